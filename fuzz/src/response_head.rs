//! Heads of upstreams' answers: the same whole and in pieces, and what is passed on is harmless.

use bytes::BytesMut;
use millpond_wire::http1::response::{Progress, ResponseHead, ResponseParser};
use millpond_wire::http1::{Method, encode};

use crate::pieces;

/// Parses one head, whole and in pieces, and writes it again.
pub fn run(data: &[u8]) {
    let Some((how, bytes)) = pieces::split(data) else {
        return;
    };
    let max = if how & 1 == 1 { 256 } else { 4096 };
    let mut parser = ResponseParser::new();
    let (whole, left) = pieces::feed_whole(bytes, |buf| parse(&mut parser, buf, max));
    let mut parser = ResponseParser::new();
    let (cut, left_of_cut) = pieces::feed(how, bytes, |buf| parse(&mut parser, buf, max));
    let text = |outcome: &Option<Result<ResponseHead, String>>| match outcome {
        Some(Ok(head)) => Some(described(head)),
        Some(Err(fault)) => Some(fault.clone()),
        None => None,
    };
    assert_eq!(text(&whole), text(&cut), "pieces decide what a head says");
    if let Some(Ok(head)) = whole {
        assert_eq!(left, left_of_cut);
        assert!(head.head_len <= max && head.head_len + left.len() == bytes.len());
        assert!((100..=999).contains(&head.status));
        check_rewritten(&head);
    }
}

fn parse(
    parser: &mut ResponseParser,
    buf: &mut BytesMut,
    max: usize,
) -> Option<Result<ResponseHead, String>> {
    match parser.parse(buf, max) {
        Progress::NeedMore => None,
        Progress::Done(head) => Some(Ok(head)),
        Progress::NotHttp => Some(Err("no status line".to_owned())),
        Progress::Refuse(fault) => Some(Err(fault.to_string())),
    }
}

fn described(head: &ResponseHead) -> String {
    let framing = [head.framing(Method::Get), head.framing(Method::Head)];
    let alive = head.keeps_alive();
    format!("{head:?} {framing:?} {alive}")
}

/// Checks that a written head is read like the head it was made from, so no line was smuggled in.
fn check_rewritten(head: &ResponseHead) {
    let mut out = BytesMut::new();
    encode::write_response_head(&mut out, 200, &head.fields);
    if !out.ends_with(b"\r\n\r\n") {
        encode::end_head(&mut out);
    }
    match ResponseParser::new().parse(&mut out, usize::MAX) {
        Progress::Done(again) => {
            assert_eq!(again.fields.len(), head.fields.len());
            for (one, other) in head.fields.iter().zip(again.fields.iter()) {
                assert_eq!((&one.name, &one.value), (&other.name, &other.value));
            }
            assert!(out.is_empty(), "bytes are left behind the head");
        }
        other => panic!("what was written is not read: {other:?}"),
    }
}
