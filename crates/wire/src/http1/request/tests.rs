//! Requests as they come: good, bad, in pieces, and made to confuse.

mod framing;
mod line;

use bytes::Bytes;
use proptest::prelude::*;

use super::*;
use crate::http1::Method;

/// The result that is compared between two ways of reading the same bytes.
#[derive(Debug, PartialEq, Eq)]
enum Outcome {
    Waiting,
    Request(String, Vec<(String, String)>, Result<Framing, Refusal>),
    Refused(Refusal),
}

fn text(bytes: &[u8]) -> String {
    bytes.escape_ascii().to_string()
}

fn outcome(progress: Progress) -> Outcome {
    match progress {
        Progress::NeedMore => Outcome::Waiting,
        Progress::Refuse(refused) => Outcome::Refused(refused.why),
        Progress::Done(head) => Outcome::Request(
            text(head.line()),
            head.fields()
                .map(|field| (text(field.name), text(field.value)))
                .collect(),
            head.check(Connect::Refuse),
        ),
    }
}

/// Reads everything in `input`, given at once: outcomes up to the first that is final.
fn read(input: &[u8], limits: &Limits) -> Vec<Outcome> {
    read_pieces(&[input], limits)
}

/// Reads everything, given in pieces; what waits in between is left out.
fn read_pieces(pieces: &[&[u8]], limits: &Limits) -> Vec<Outcome> {
    let mut parser = RequestParser::new();
    let mut buf = BytesMut::new();
    let mut outcomes = Vec::new();
    for piece in pieces {
        buf.extend_from_slice(piece);
        loop {
            match outcome(parser.parse(&mut buf, limits)) {
                Outcome::Waiting => break,
                Outcome::Refused(why) => {
                    outcomes.push(Outcome::Refused(why));
                    return outcomes;
                }
                request => outcomes.push(request),
            }
        }
    }
    outcomes.push(Outcome::Waiting);
    outcomes
}

fn parse(input: &[u8], limits: &Limits) -> Progress {
    RequestParser::new().parse(&mut BytesMut::from(input), limits)
}

fn head(input: &str) -> Rc<RequestHead> {
    match parse(input.as_bytes(), &Limits::default()) {
        Progress::Done(head) => head,
        other => panic!("{input:?}: {other:?}"),
    }
}

/// The reason why an input is refused: by the parser, or by the checks of the whole head.
fn refusal(input: &[u8], limits: &Limits) -> Option<Refusal> {
    match parse(input, limits) {
        Progress::NeedMore => panic!("{:?} is not complete", text(input)),
        Progress::Done(head) => head.check(Connect::Refuse).err(),
        Progress::Refuse(refused) => Some(refused.why),
    }
}

#[test]
fn the_method_of_a_line_that_is_too_long_is_known() {
    for (input, method) in [
        ("HEAD /", Method::Head),
        ("GET /", Method::Get),
        ("HEADER /", Method::Other),
        ("HEAD", Method::Other),
    ] {
        let input = format!("{input}{} HTTP/1.1\r\n", "a".repeat(9000));
        match parse(input.as_bytes(), &Limits::default()) {
            Progress::Refuse(refused) => assert_eq!(refused.head.method(), method, "{method:?}"),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_line_is_read_alike_whole_and_in_pieces() {
    // A line that comes whole is read in one go, one that comes in pieces is not.
    for line in [
        "GET /a HTTP/1.1\r\n",
        "GET /a HTTP/1.1\n",
        "GET  /a HTTP/1.1\r\n",
        "GET /a HTTP/1.1 \r\n",
        "GET /a HTTP/1.0\r\n",
        "GET /a\r\n",
        "GET a HTTP/1.1\r\n",
        "GET /a\tb HTTP/1.1\r\n",
        "CONNECT /a HTTP/1.1\r\n",
        "CONNECT a:1 HTTP/1.1\r\n",
        " /a HTTP/1.1\r\n",
        "GET /\x7f HTTP/1.1\r\n",
        "GET /a HTTP/1.1\r\nHost: a\r\n",
        "GET /a HTTP/1.1\nHost: a\n",
        "GET /a HTTP/1.1\r\nhOST:a\r\n",
        "GET /a HTTP/1.1\r\nX-B:  \t b \r\n",
        "GET /a HTTP/1.1\r\nX-B:\r\n",
        "GET /a HTTP/1.1\r\nX-B: \r\n",
        "GET /a HTTP/1.1\r\nX-B\r\n",
        "GET /a HTTP/1.1\r\nHost : a\r\n",
        "GET /a HTTP/1.1\r\n: a\r\n",
        "GET /a HTTP/1.1\r\nAge: a\rb\r\n",
        "GET /a HTTP/1.1\r\nAge: a\0b\r\n",
        "GET /a HTTP/1.1\r\nAge: a\r\r\n",
        "GET /a HTTP/1.1\r\nA_b: c\r\nA.b: c\r\n",
        "GET /a HTTP/1.1\r\n Age: c\r\n",
        "GET /a HTTP/1.1\r\nHost: a..b\r\n",
        "GET /a HTTP/1.1\r\nHost: a\r\nHost: a\r\n",
    ] {
        let input = format!("{line}\r\n");
        let pieces: Vec<&[u8]> = input.as_bytes().chunks(1).collect();
        for first in [1024, 20, 8] {
            let limits = Limits {
                first,
                line: 24,
                total: 48,
                ..Limits::default()
            };
            let whole = read(input.as_bytes(), &limits);
            assert_eq!(whole, read_pieces(&pieces, &limits), "{line:?} {first}");
        }
    }
}

#[test]
fn a_request_is_taken_apart() {
    let input = "GET /a/b?c=d HTTP/1.1\r\nHost: example.org:81\r\nX-A:  1 2 \r\nx-a:\r\n\r\nbody";
    let mut buf = BytesMut::from(input);
    let Progress::Done(head) = RequestParser::new().parse(&mut buf, &Limits::default()) else {
        panic!("not done");
    };
    assert_eq!(buf, "body");
    assert_eq!(head.method(), Method::Get);
    assert_eq!(head.method_bytes(), b"GET");
    assert_eq!(head.target(), b"/a/b?c=d");
    assert_eq!(head.uri(), b"/a/b?c=d");
    assert_eq!(head.version(), Version::Http11);
    assert_eq!(head.protocol(), b"HTTP/1.1");
    assert_eq!(head.line(), b"GET /a/b?c=d HTTP/1.1");
    assert_eq!(head.head_len(), input.len() - 4);
    assert_eq!(head.authority(), b"");
    let host = head.host().expect("host");
    assert_eq!((host.name, host.port), (&b"example.org"[..], Some(81)));
    assert_eq!(head.get(Known::Host), Some(&b"example.org:81"[..]));
    assert_eq!(head.get(Known::Age), None);
    assert_eq!(head.find(b"X-a"), Some(&b"1 2"[..]));
    assert_eq!(
        head.find_all(b"X-a").collect::<Vec<_>>(),
        [&b"1 2"[..], b""]
    );
    let spelled = |known, name: &str| -> Vec<Vec<u8>> {
        let values = head.find_all_spelled(known, name.as_bytes());
        values.map(<[u8]>::to_vec).collect()
    };
    assert_eq!(spelled(Known::Other, "x_a"), [&b"1 2"[..], b""]);
    assert_eq!(spelled(Known::Host, "host"), [b"example.org:81"]);
    assert!(spelled(Known::Age, "age").is_empty());
    assert_eq!(head.fields().len(), 3);
    let field = head.fields().next().expect("first");
    assert_eq!(field.name_bytes(), "Host");
    assert_eq!(field.value_bytes(), "example.org:81");
    assert_eq!(
        head.to_fields().get(Known::Host),
        Some(&Bytes::from("example.org:81"))
    );
    assert_eq!(head.share(head.target()), "/a/b?c=d");
    assert_eq!(head.share(b"/"), "/");
}

#[test]
fn statuses_are_those_of_nginx() {
    for (refusal, status) in [
        (Refusal::InvalidMethod, 400),
        (Refusal::MissingHost, 400),
        (Refusal::UriTooLong, 414),
        (Refusal::HeaderTooLarge, 494),
        (Refusal::TooManyFields, 494),
        (Refusal::VersionNotSupported, 505),
        (Refusal::UnknownEncoding, 501),
        (Refusal::TraceNotAllowed, 405),
        (Refusal::ConnectNotAllowed, 405),
    ] {
        assert_eq!(refusal.status(), status);
    }
}

#[test]
fn empty_lines_before_a_request_are_dropped() {
    let head = head("\r\n\n\r\r\nGET / HTTP/1.0\r\n\r\n");
    assert_eq!(head.line(), b"GET / HTTP/1.0");
    let mut buf = BytesMut::from("\r\n\r\n");
    let mut parser = RequestParser::new();
    assert!(parser.is_idle(&buf));
    assert!(matches!(
        parser.parse(&mut buf, &Limits::default()),
        Progress::NeedMore
    ));
    assert!(buf.is_empty());
    assert!(parser.is_idle(&buf));
    buf.extend_from_slice(b"G");
    assert!(!parser.is_idle(&buf));
}

#[test]
fn a_bare_line_feed_ends_a_line_of_a_head() {
    let head = head("GET / HTTP/1.1\nHost: a\nX: y\r\n\n");
    assert_eq!(head.get(Known::Host), Some(&b"a"[..]));
    assert_eq!(head.find(b"x"), Some(&b"y"[..]));
}

#[test]
fn what_is_no_http_is_refused_without_a_line_end() {
    let refused = match parse(b"\x16\x03\x01\x02\x00", &Limits::default()) {
        Progress::Refuse(refused) => refused,
        other => panic!("{other:?}"),
    };
    assert_eq!(refused.status(), 400);
    assert_eq!(refused.head.line(), b"\x16\x03\x01\x02\x00");
    assert_eq!(refused.head.uri(), b"");
}

#[test]
fn a_refused_request_keeps_what_was_read_for_the_log() {
    let input = b"POST /a HTTP/1.1\r\nHost: a\r\nUser-Agent: u\r\nBad : x\r\n\r\n";
    let Progress::Refuse(refused) = parse(input, &Limits::default()) else {
        panic!("not refused");
    };
    assert_eq!(refused.why, Refusal::InvalidField);
    assert_eq!(refused.head.line(), b"POST /a HTTP/1.1");
    assert_eq!(refused.head.method(), Method::Post);
    assert_eq!(refused.head.get(Known::UserAgent), Some(&b"u"[..]));
    let Progress::Refuse(refused) = parse(b"GET / FOO\r\nHost: a\r\n\r\n", &Limits::default())
    else {
        panic!("not refused");
    };
    assert_eq!(refused.head.line(), b"GET / FOO");
}

#[test]
fn a_parser_starts_afresh_after_a_refusal() {
    let mut parser = RequestParser::new();
    let mut buf = BytesMut::from("GET / HTTP/1.1\r\n: x\r\n\r\n");
    assert!(matches!(
        parser.parse(&mut buf, &Limits::default()),
        Progress::Refuse(_)
    ));
    assert!(buf.is_empty());
    buf.extend_from_slice(b"GET / HTTP/1.0\r\n\r\n");
    assert!(matches!(
        parser.parse(&mut buf, &Limits::default()),
        Progress::Done(_)
    ));
}

#[test]
fn pipelined_requests_come_one_by_one() {
    let input = b"GET /1 HTTP/1.0\r\n\r\n\r\nGET /2 HTTP/1.1\r\nHost: a\r\n\r\nGET /3";
    let lines: Vec<_> = read(input, &Limits::default())
        .into_iter()
        .map(|outcome| match outcome {
            Outcome::Request(line, ..) => line,
            other => format!("{other:?}"),
        })
        .collect();
    assert_eq!(lines, ["GET /1 HTTP/1.0", "GET /2 HTTP/1.1", "Waiting"]);
}

#[test]
fn invalid_names_follow_the_settings() {
    let keep = Limits {
        invalid: InvalidNames::Keep,
        ..Limits::default()
    };
    let underscores = Limits {
        underscores: Underscores::Allow,
        ..Limits::default()
    };
    let ignore = Limits::default();
    for (name, limits, is_kept) in [
        ("x_foo", &keep, true),
        ("_foo", &keep, true),
        ("x.foo", &keep, true),
        (".foo", &keep, true),
        ("</kie>", &keep, true),
        ("x_foo", &ignore, false),
        ("_foo", &ignore, false),
        ("x.foo", &ignore, false),
        ("x_foo", &underscores, true),
        ("_foo", &underscores, true),
        ("x.foo", &underscores, false),
        ("\u{fc}", &ignore, false),
    ] {
        let input = format!("GET / HTTP/1.0\r\ncoo: foo\r\n{name}: x-bar\r\n\r\n");
        let Progress::Done(head) = parse(input.as_bytes(), limits) else {
            panic!("{name}");
        };
        assert_eq!(head.find(name.as_bytes()).is_some(), is_kept, "{name}");
        assert_eq!(head.find(b"coo"), Some(&b"foo"[..]));
    }
    for name in [":foo", " foo", "foo\x02", "foo ", "\x7f", ""] {
        for limits in [&keep, &ignore, &underscores] {
            let input = format!("GET / HTTP/1.0\r\n{name}: x-bar\r\n\r\n");
            let found = refusal(input.as_bytes(), limits);
            assert_eq!(found, Some(Refusal::InvalidField), "{name:?}");
        }
    }
}

#[test]
fn fields_are_counted_and_ignored_ones_are_not() {
    let limits = Limits {
        fields: 5,
        ..Limits::default()
    };
    let request = |count: usize| {
        let fields = "X-Blah: 1\n_: ignored\n".repeat(count - 1);
        format!("GET / HTTP/1.0\nHost: localhost\n{fields}\n")
    };
    assert_eq!(refusal(request(5).as_bytes(), &limits), None);
    assert_eq!(
        refusal(request(6).as_bytes(), &limits),
        Some(Refusal::TooManyFields)
    );
}

#[test]
fn fields_that_must_be_unique_are_refused_twice() {
    for name in [
        "Host",
        "If-Modified-Since",
        "If-Unmodified-Since",
        "If-Match",
        "If-None-Match",
        "Content-Length",
        "Content-Range",
        "If-Range",
        "Transfer-Encoding",
        "Expect",
        "Authorization",
        "Proxy-Authorization",
    ] {
        let input = format!(
            "GET / HTTP/1.1\r\n{name}: 1\r\n{}: 1\r\n\r\n",
            name.to_uppercase()
        );
        let expected = Refusal::DuplicateField(Known::of(name.as_bytes()));
        assert_eq!(
            refusal(input.as_bytes(), &Limits::default()),
            Some(expected)
        );
    }
    for name in [
        "Via",
        "Cookie",
        "X-Forwarded-For",
        "User-Agent",
        "Referer",
        "Content-Type",
        "Foo",
    ] {
        let input = format!("GET / HTTP/1.0\r\n{name}: 1\r\n{name}: 2\r\n\r\n");
        let head = head(&input);
        let values: Vec<_> = head.find_all(name.as_bytes()).collect();
        assert_eq!(values, [b"1", b"2"], "{name}");
    }
}

#[test]
fn by_the_rfc_lists_may_come_in_lines_and_tabs_are_white_space() {
    let by_rfc = Limits {
        reading: Reading::ByRfc,
        ..Limits::default()
    };
    let parse = |input: &str| {
        let mut buf = BytesMut::from(input.as_bytes());
        match RequestParser::new().parse(&mut buf, &by_rfc) {
            Progress::Done(head) => Ok(head),
            Progress::Refuse(refused) => Err(refused.why),
            Progress::NeedMore => panic!("it is whole"),
        }
    };
    for (name, known) in [
        ("If-Match", Known::IfMatch),
        ("If-None-Match", Known::IfNoneMatch),
    ] {
        let input = format!("GET / HTTP/1.1\r\nHost: a\r\n{name}: 1\r\n{name}: 2\r\n\r\n");
        let head = parse(&input).unwrap();
        assert_eq!(head.repeated(), Some(known));
        assert_eq!(Vec::from_iter(head.get_all(known)), [b"1", b"2"]);
    }
    for name in ["Host", "If-Range", "Content-Length", "If-Modified-Since"] {
        let input = format!("GET / HTTP/1.1\r\n{name}: 1\r\n{name}: 1\r\n\r\n");
        let expected = Refusal::DuplicateField(Known::of(name.as_bytes()));
        assert_eq!(parse(&input).err(), Some(expected), "{name}");
    }
    // Whole lines are read in one way, those that come in parts in another.
    for end in ["\r\n", "\n"] {
        for (value, expected) in [
            ("\tx", "x"),
            (" \t x \t", "x"),
            ("\ta\tb", "a\tb"),
            ("\t", ""),
            ("", ""),
        ] {
            let input = format!("GET / HTTP/1.1{end}Host:\ta{end}X-Y:{value}{end}{end}");
            let head = parse(&input).unwrap();
            assert_eq!(head.find(b"x-y"), Some(expected.as_bytes()), "{value:?}");
            assert_eq!(head.host().map(|host| host.name), Some(&b"a"[..]));
        }
    }
    let plain = "GET / HTTP/1.1\r\nHost: a\r\nX-Y:\tx\r\n\r\n";
    assert_eq!(head(plain).find(b"x-y"), Some(&b"\tx"[..]));
    assert_eq!(head(plain).repeated(), None);
}

#[test]
fn host_is_required_and_well_formed() {
    for (input, expected) in [
        ("GET / HTTP/1.1\r\n\r\n", Some(Refusal::MissingHost)),
        ("GET http://a/ HTTP/1.1\r\n\r\n", Some(Refusal::MissingHost)),
        ("GET / HTTP/1.0\r\n\r\n", None),
        (
            "GET / HTTP/1.1\r\nHost:\r\n\r\n",
            Some(Refusal::InvalidHost),
        ),
        (
            "GET / HTTP/1.1\r\nHost: a b\r\n\r\n",
            Some(Refusal::InvalidHost),
        ),
        (
            "GET / HTTP/1.1\r\nHost: a/b\r\n\r\n",
            Some(Refusal::InvalidHost),
        ),
        (
            "GET / HTTP/1.1\r\nHost: a, b\r\n\r\n",
            Some(Refusal::InvalidHost),
        ),
        ("GET / HTTP/1.1\r\nHost: a:1\r\n\r\n", None),
        (
            "TRACE / HTTP/1.1\r\nHost: a\r\n\r\n",
            Some(Refusal::TraceNotAllowed),
        ),
    ] {
        assert_eq!(
            refusal(input.as_bytes(), &Limits::default()),
            expected,
            "{input:?}"
        );
    }
}

#[test]
fn connection_fields_decide_what_happens_after() {
    for (version, fields, expected) in [
        ("1.1", "", true),
        ("1.0", "", false),
        ("1.1", "Connection: close\r\n", false),
        ("1.1", "Connection: foo, Close\r\n", false),
        ("1.0", "Connection: Keep-Alive\r\n", true),
        (
            "1.0",
            "Connection: keep-alive\r\nConnection: close\r\n",
            false,
        ),
        ("1.1", "Connection: upgrade\r\n", true),
    ] {
        let head = head(&format!("GET / HTTP/{version}\r\nHost: a\r\n{fields}\r\n"));
        assert_eq!(head.keep_alive_wanted(), expected, "{version} {fields:?}");
    }
    let ws = head(
        "GET / HTTP/1.1\r\nHost: a\r\nConnection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n\r\n",
    );
    assert_eq!(ws.upgrade(), Some(&b"websocket"[..]));
    assert!(ws.connection_has(b"keep-alive"));
    let no = head("GET / HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\n\r\n");
    assert_eq!(no.upgrade(), None);
    assert!(head("POST / HTTP/1.1\r\nExpect: 100-Continue\r\n\r\n").expects_continue());
    assert!(!head("POST / HTTP/1.0\r\nExpect: 100-continue\r\n\r\n").expects_continue());
    assert!(!head("POST / HTTP/1.1\r\nExpect: 200-ok\r\n\r\n").expects_continue());
}

/// The buffers of `client_header_buffer_size 128; large_client_header_buffers COUNT 256`.
fn buffers(count: usize) -> Limits {
    Limits {
        first: 128,
        line: 256,
        total: count * 256,
        ..Limits::default()
    }
}

#[test]
fn lines_are_bounded_as_nginx_bounds_them() {
    let digits = "1234567890".repeat(20);
    let field = format!("X-Foo: {digits}\r\n");
    for (input, count, expected) in [
        (
            format!("GET / HTTP/1.0\r\nHost: foo\r\nX-Foo: foo{digits}bar\r\n\r\n"),
            5,
            None,
        ),
        (
            format!("GET /foo{digits}bar HTTP/1.0\r\nHost: foo\r\n\r\n"),
            5,
            None,
        ),
        (
            format!("GET / HTTP/1.0\r\n{}\r\n", field.repeat(5)),
            5,
            None,
        ),
        (
            format!("GET / HTTP/1.0\r\n{}\r\n", field.repeat(6)),
            5,
            Some(Refusal::HeaderTooLarge),
        ),
        (
            format!("GET / HTTP/1.0\r\n{}\r\n", field.repeat(6)),
            10,
            None,
        ),
        (
            format!("GET / HTTP/1.0\r\nX: {digits}{digits}\r\n\r\n"),
            10,
            Some(Refusal::HeaderTooLarge),
        ),
        (
            format!("GET /{digits}{digits} HTTP/1.0\r\n\r\n"),
            10,
            Some(Refusal::UriTooLong),
        ),
        (
            format!("GET /{digits} HTTP/1.0\r\n\r\n"),
            0,
            Some(Refusal::UriTooLong),
        ),
    ] {
        assert_eq!(
            refusal(input.as_bytes(), &buffers(count)),
            expected,
            "{count} {input}"
        );
    }
}

#[test]
fn a_line_may_fill_a_buffer_and_not_a_byte_more() {
    // "GET /" + path + " HTTP/1.0\r\n" is 16 bytes and the path.
    for (path, expected) in [(240, None), (241, Some(Refusal::UriTooLong))] {
        let input = format!("GET /{} HTTP/1.0\r\n\r\n", "a".repeat(path));
        assert_eq!(refusal(input.as_bytes(), &buffers(2)), expected, "{path}");
    }
    for (value, expected) in [(251, None), (252, Some(Refusal::HeaderTooLarge))] {
        let input = format!("GET / HTTP/1.0\r\nX: {}\r\n\r\n", "a".repeat(value));
        assert_eq!(refusal(input.as_bytes(), &buffers(2)), expected, "{value}");
    }
}

#[test]
fn an_endless_line_is_refused_without_its_end() {
    let mut parser = RequestParser::new();
    let mut buf = BytesMut::new();
    let mut given = 0;
    loop {
        buf.extend_from_slice(if given == 0 { b"G" } else { b"A" });
        given += 1;
        match parser.parse(&mut buf, &buffers(4)) {
            Progress::NeedMore => assert!(given < 256),
            Progress::Refuse(refused) => {
                assert_eq!((refused.why, given), (Refusal::UriTooLong, 256));
                return;
            }
            Progress::Done(head) => panic!("{head:?}"),
        }
    }
}

#[test]
fn the_splitting_of_the_input_changes_nothing() {
    let inputs: &[&[u8]] = &[
        b"GET /a HTTP/1.1\r\nHost: a\r\nX: y\r\n\r\n",
        b"\r\n\r\nGET /a HTTP/1.1\nHost: a\nX: y\n\nPOST / HTTP/1.0\r\nContent-Length: 3\r\n\r\nGET /",
        b"GET /\r\nGET http://x:80?y HTTP/1.0\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nBad : 1\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n",
        b"get / HTTP/1.1\r\n\r\n",
        b"GET / HTTP/2.0\r\n\r\n",
        b"GET / HTTP/1.1\r\r\n\r\n",
        b"GET /aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nA: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\r\n\r\n",
    ];
    let small = Limits {
        first: 20,
        line: 40,
        total: 80,
        ..Limits::default()
    };
    for limits in [&Limits::default(), &small] {
        for input in inputs {
            let whole = read(input, limits);
            let bytes: Vec<_> = input.chunks(1).collect();
            assert_eq!(read_pieces(&bytes, limits), whole, "{:?}", text(input));
            for at in 0..input.len() {
                let (first, second) = input.split_at(at);
                let split = read_pieces(&[first, second], limits);
                assert_eq!(split, whole, "{:?} at {at}", text(input));
            }
        }
    }
}

/// Bytes that look like requests often enough to get far.
fn request_like() -> impl Strategy<Value = Vec<u8>> {
    let word = prop_oneof![
        4 => prop::sample::select(vec![
            "GET ", "POST ", "CONNECT ", "/", "http://", "a:80", "[::1]", " HTTP/1.1", " HTTP/1.0",
            "\r\n", "\n", "\r", "\r\n\r\n", "Host: a\r\n", "Content-Length: 5\r\n",
            "Transfer-Encoding: chunked\r\n", "X", ":", " ", "\t", "\0", "_", "?", "#", "%",
        ])
        .prop_map(|word| word.as_bytes().to_vec()),
        1 => prop::collection::vec(any::<u8>(), 0..6),
    ];
    prop::collection::vec(word, 0..24).prop_map(|words| words.concat())
}

proptest! {
    #[test]
    fn any_bytes_are_read_alike_in_one_piece_and_in_many(
        input in request_like(),
        cut in any::<prop::sample::Index>(),
        first in 1usize..64,
        line in 1usize..64,
    ) {
        let limits = Limits { first, line, total: 4 * line, ..Limits::default() };
        for limits in [&limits, &Limits::default()] {
            let whole = read(&input, limits);
            let (left, right) = input.split_at(cut.index(input.len() + 1));
            prop_assert_eq!(&read_pieces(&[left, right], limits), &whole);
            let bytes: Vec<_> = input.chunks(1).collect();
            prop_assert_eq!(&read_pieces(&bytes, limits), &whole);
        }
    }

    #[test]
    fn any_accepted_head_can_be_asked_anything(input in request_like()) {
        let limits = Limits { invalid: InvalidNames::Keep, ..Limits::default() };
        let head = match parse(&input, &limits) {
            Progress::NeedMore => return Ok(()),
            Progress::Done(head) => head,
            Progress::Refuse(refused) => refused.head,
        };
        let _ = (head.uri(), head.scheme(), head.authority(), head.host(), head.protocol());
        let _ = (head.check(Connect::Allow), head.keep_alive_wanted(), head.upgrade());
        for field in head.fields() {
            prop_assert!(!field.name.is_empty());
            prop_assert!(field.value.iter().all(|byte| !b"\0\r\n".contains(byte)));
            prop_assert_eq!(field.name_bytes(), field.name);
            prop_assert_eq!(field.value_bytes(), field.value);
        }
        prop_assert_eq!(head.to_fields().len(), head.fields().len());
    }
}
