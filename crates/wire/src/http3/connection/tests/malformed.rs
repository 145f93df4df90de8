//! Malformed messages (RFC 9114 §4.1.2, §4.2, §4.3, §10.3): one row for each sentence that says
//! what makes a message malformed, or what does not.

use super::*;

/// A block of literals without a table: names as they are given, which an encoder would mend.
fn block(fields: &[(&[u8], &[u8])]) -> Vec<u8> {
    let mut out = BytesMut::from(&[0, 0][..]);
    for (name, value) in fields {
        integer::write(&mut out, 0x20, 3, name.len() as u64);
        out.extend_from_slice(name);
        integer::write(&mut out, 0, 7, value.len() as u64);
        out.extend_from_slice(value);
    }
    frame_of(1, &out)
}

type Field<'a> = (&'a [u8], &'a [u8]);

const METHOD: Field<'_> = (b":method", b"GET");
const SCHEME: Field<'_> = (b":scheme", b"https");
const AUTHORITY: Field<'_> = (b":authority", b"a");
const PATH: Field<'_> = (b":path", b"/");
const CONNECT: Field<'_> = (b":method", b"CONNECT");

/// A request with more fields behind its own.
fn behind(more: &[Field<'_>]) -> Vec<u8> {
    block(&[&[METHOD, SCHEME, AUTHORITY, PATH], more].concat())
}

fn status_of(bytes: &[u8]) -> Option<u16> {
    let mut side = Side::new();
    side.open(0, bytes);
    side.end(0);
    assert_eq!(side.failure(), None, "it costs its stream alone");
    let status = match &side.events[..] {
        [Event::Request { .. }] => None,
        [Event::Refused { refused, .. }] => Some(refused.status()),
        other => panic!("{other:?}"),
    };
    side.connection.send_answer(0, (400, End::WithHead), |_| {});
    side.connection.release(0);
    assert!(side.sent(0).has_end);
    assert_eq!(side.connection.stream_count(), 0);
    status
}

fn assert_refused(rows: &[(&str, Vec<u8>)]) {
    for (what, bytes) in rows {
        let status = status_of(bytes);
        assert!(
            matches!(status, Some(400 | 405 | 501)),
            "{what}: {status:?}"
        );
    }
}

#[test]
fn heads_are_refused_for_fields_that_may_not_stand_there() {
    assert_refused(&[
        // §4.2.
        ("a capital in a name", behind(&[(b"X-a", b"1")])),
        ("a capital in a known name", behind(&[(b"Accept", b"a")])),
        ("a name of nothing", behind(&[(b"", b"1")])),
        ("a space in a name", behind(&[(b"x a", b"1")])),
        ("a colon in a name", behind(&[(b"x:a", b"1")])),
        ("a byte of no token in a name", behind(&[(b"x\x80", b"1")])),
        ("Connection", behind(&[(b"connection", b"close")])),
        ("Keep-Alive", behind(&[(b"keep-alive", b"a")])),
        ("Proxy-Connection", behind(&[(b"proxy-connection", b"a")])),
        (
            "Transfer-Encoding",
            behind(&[(b"transfer-encoding", b"chunked")]),
        ),
        ("Upgrade", behind(&[(b"upgrade", b"websocket")])),
        (
            "TE of something else",
            behind(&[(b"te", b"trailers, gzip")]),
        ),
        // §10.3.
        ("CR in a value", behind(&[(b"x-a", b"1\r2")])),
        ("LF in a value", behind(&[(b"x-a", b"1\n2")])),
        ("NUL in a value", behind(&[(b"x-a", b"1\x002")])),
    ]);
}

#[test]
fn heads_are_refused_for_pseudo_fields_that_may_not_stand_there() {
    assert_refused(&[
        // §4.3.
        (
            "a pseudo field behind a field",
            block(&[METHOD, SCHEME, AUTHORITY, (b"x-a", b"1"), PATH]),
        ),
        ("an unknown pseudo field", behind(&[(b":x", b"1")])),
        ("a pseudo field of answers", behind(&[(b":status", b"200")])),
        (
            "two methods",
            block(&[METHOD, METHOD, SCHEME, AUTHORITY, PATH]),
        ),
        (
            "two schemes",
            block(&[METHOD, SCHEME, SCHEME, AUTHORITY, PATH]),
        ),
        (
            "two authorities",
            block(&[METHOD, SCHEME, AUTHORITY, AUTHORITY, PATH]),
        ),
        ("two paths", block(&[METHOD, SCHEME, AUTHORITY, PATH, PATH])),
    ]);
}

#[test]
fn heads_are_refused_that_name_no_target() {
    assert_refused(&[
        // §4.3.1.
        ("no method", block(&[SCHEME, AUTHORITY, PATH])),
        ("no scheme", block(&[METHOD, AUTHORITY, PATH])),
        ("no path", block(&[METHOD, SCHEME, AUTHORITY])),
        (
            "a path of nothing",
            block(&[METHOD, SCHEME, AUTHORITY, (b":path", b"")]),
        ),
        (
            "a path that is none",
            block(&[METHOD, SCHEME, AUTHORITY, (b":path", b"x")]),
        ),
        ("no authority and no host", block(&[METHOD, SCHEME, PATH])),
        (
            "an authority of nothing",
            block(&[METHOD, SCHEME, (b":authority", b""), PATH]),
        ),
        (
            "a user in the authority",
            block(&[METHOD, SCHEME, (b":authority", b"u@a"), PATH]),
        ),
        ("another host", behind(&[(b"host", b"b")])),
        (
            "two hosts",
            block(&[METHOD, SCHEME, PATH, (b"host", b"a"), (b"host", b"a")]),
        ),
        (
            "a method that is none",
            block(&[(b":method", b"G T"), SCHEME, AUTHORITY, PATH]),
        ),
        (
            "a line end in the path",
            block(&[METHOD, SCHEME, AUTHORITY, (b":path", b"/\r\nx")]),
        ),
        (
            "a space in the path",
            block(&[METHOD, SCHEME, AUTHORITY, (b":path", b"/ x")]),
        ),
        // RFC 9220 §3, RFC 8441 §4.
        (
            "a protocol without CONNECT",
            behind(&[(b":protocol", b"websocket")]),
        ),
        // §4.4.
        ("CONNECT with a path", block(&[CONNECT, AUTHORITY, PATH])),
        (
            "CONNECT with a scheme",
            block(&[CONNECT, AUTHORITY, SCHEME]),
        ),
        ("CONNECT without authority", block(&[CONNECT])),
        // §4.1.2.
        (
            "a length that is none",
            behind(&[(b"content-length", b"x")]),
        ),
        (
            "two lengths",
            behind(&[(b"content-length", b"0"), (b"content-length", b"1")]),
        ),
    ]);
}

#[test]
fn heads_that_are_odd_and_right_are_requests() {
    for (what, bytes) in [
        ("the least", behind(&[])),
        // §4.3.1: a Host in the place of an authority, or equal to it.
        (
            "a host alone",
            block(&[METHOD, SCHEME, PATH, (b"host", b"a")]),
        ),
        ("a host beside", behind(&[(b"host", b"a")])),
        ("other order", block(&[PATH, AUTHORITY, SCHEME, METHOD])),
        // §4.2.
        ("TE: trailers", behind(&[(b"te", b"trailers")])),
        // §4.2.1.
        (
            "cookies in pieces",
            behind(&[(b"cookie", b"a=b"), (b"cookie", b"c=d")]),
        ),
        ("a value of nothing", behind(&[(b"x-a", b"")])),
        ("bytes beyond ASCII", behind(&[(b"x-a", b"\xc3\xa4")])),
        ("a tab in a value", behind(&[(b"x-a", b"a\tb")])),
    ] {
        assert_eq!(status_of(&bytes), None, "{what}");
    }
}

/// RFC 9114 §4.1, §4.3: trailers have no pseudo fields, and are fields like others.
#[test]
fn trailers_are_malformed_by_what_may_not_stand_there() {
    let get = headers(GET);
    for (what, trailers, is_good) in [
        ("a field", block(&[(b"x-a", b"1")]), true),
        ("none", block(&[]), true),
        ("a pseudo field", block(&[(b":path", b"/")]), false),
        ("a status", block(&[(b":status", b"200")]), false),
        ("a capital", block(&[(b"X-a", b"1")]), false),
        ("Connection", block(&[(b"connection", b"close")]), false),
        ("a line end", block(&[(b"x-a", b"1\r\nb: 2")]), false),
    ] {
        let mut side = Side::new();
        side.open(0, &[&get[..], &frame_of(0, b"body"), &trailers].concat());
        side.end(0);
        let is_malformed = |event: &Event| matches!(event, Event::Malformed { .. });
        assert_eq!(!side.events.iter().any(is_malformed), is_good, "{what}");
        assert_eq!(side.failure(), None, "{what}");
    }
}
