//! Heads of requests: the result does not depend on how the bytes arrive, and stays within limits.

use std::rc::Rc;

use millpond_wire::http1::request::{
    Connect, InvalidNames, Limits, Progress, RequestHead, RequestParser, Underscores,
};

use crate::pieces;

/// Parses one head, whole and in pieces.
pub fn run(data: &[u8]) {
    let Some((how, bytes)) = pieces::split(data) else {
        return;
    };
    let limits = limits(how);
    let mut parser = RequestParser::new();
    let (whole, left) = pieces::feed_whole(bytes, |buf| parse(&mut parser, buf, &limits));
    let mut parser = RequestParser::new();
    let (cut, left_of_cut) = pieces::feed(how, bytes, |buf| parse(&mut parser, buf, &limits));
    assert_eq!(
        whole.is_some(),
        cut.is_some(),
        "pieces decide whether a head ends"
    );
    let (Some(whole), Some(cut)) = (whole, cut) else {
        return;
    };
    match (&whole, &cut) {
        (Ok(one), Ok(other)) => {
            assert_eq!(described(one), described(other));
            assert_eq!(left, left_of_cut, "other bytes are left over");
            check(one, bytes, &left, &limits);
        }
        (Err(one), Err(other)) => assert_eq!(one, other, "other refusals"),
        _ => panic!("accepted in one way only: {whole:?} {cut:?}"),
    }
}

fn limits(how: u8) -> Limits {
    let mut limits = Limits::default();
    if how & 1 == 1 {
        limits = Limits {
            first: 64,
            line: 128,
            total: 256,
            fields: 5,
            ..limits
        };
    }
    if how & 2 == 2 {
        limits.underscores = Underscores::Allow;
        limits.invalid = InvalidNames::Keep;
    }
    limits
}

fn parse(
    parser: &mut RequestParser,
    buf: &mut bytes::BytesMut,
    limits: &Limits,
) -> Option<Result<Rc<RequestHead>, String>> {
    match parser.parse(buf, limits) {
        Progress::NeedMore => None,
        Progress::Done(head) => Some(Ok(head)),
        Progress::Refuse(refused) => {
            assert!(
                (400..=505).contains(&refused.status()),
                "{}",
                refused.status()
            );
            // The part that was read of a refused head is shown in logs.
            let _ = described(&refused.head);
            Some(Err(refused.why.to_string()))
        }
    }
}

/// All that a head says.
fn described(head: &RequestHead) -> String {
    let fields: Vec<_> = head
        .fields()
        .map(|field| (field.known, field.name.to_vec(), field.value.to_vec()))
        .collect();
    let parts = [
        head.method_bytes(),
        head.target(),
        head.uri(),
        head.scheme(),
        head.authority(),
        head.protocol(),
        head.line(),
    ];
    let host = head.host().map(|host| (host.name.to_vec(), host.port));
    format!(
        "{:?} {:?} {parts:?} {host:?} {fields:?} {:?} {:?} {:?} {:?}",
        head.method(),
        head.version(),
        head.check(Connect::Refuse),
        head.check(Connect::Allow),
        head.keep_alive_wanted(),
        head.expects_continue(),
    )
}

fn check(head: &RequestHead, bytes: &[u8], left: &[u8], limits: &Limits) {
    assert!(
        bytes.ends_with(left),
        "what is left over is not the end of the input"
    );
    assert!(head.fields().len() <= limits.fields);
    assert!(head.head_len() + left.len() <= bytes.len());
    assert!(head.head_len() <= limits.first + limits.total);
    for field in head.fields() {
        assert!(!field.name.is_empty());
        assert!(
            !field
                .value
                .iter()
                .any(|byte| matches!(byte, 0 | b'\r' | b'\n'))
        );
    }
    assert!(!head.line().iter().any(|byte| matches!(byte, b'\r' | b'\n')));
    if head.check(Connect::Allow).is_ok() {
        let parts = [head.target(), head.uri(), head.authority()].concat();
        assert!(
            !parts
                .iter()
                .any(|byte| *byte == b' ' || byte.is_ascii_control())
        );
    }
}
