//! HTTP/0.9 on streams.

use super::*;

fn plain() -> Side {
    let config = Config {
        dialect: Dialect::Plain,
        ..Config::default()
    };
    Side {
        connection: Connection::new(config),
        pipes: Pipes::default(),
        events: Vec::new(),
    }
}

#[test]
fn lines_are_requests_and_answers_are_bytes() {
    for pieces in [
        &[&b"GET /a?b\r\n"[..]][..],
        &[b"GET /a?b\n"],
        &[b"G", b"ET /a", b"?b\r", b"\n"],
        // The end of the stream is that of the line.
        &[b"GET /a?b"],
    ] {
        let mut side = plain();
        assert!(!side.connection.wants_stream(), "none is needed");
        side.open(0, pieces[0]);
        for piece in &pieces[1..] {
            side.give(0, piece);
        }
        side.end(0);
        let [Event::Request { head, body, .. }] = &side.events[..] else {
            panic!("{pieces:?}: {:?}", side.events);
        };
        assert_eq!(head.target(), b"/a?b");
        assert_eq!(*body, BodyLength::None);
        let connection = &mut side.connection;
        connection.send_interim(0, 103, &Fields::default());
        let field = |out: &mut HeadWriter<'_>| out.content_length(5003);
        assert_eq!(connection.send_answer(0, (200, End::Later), field), 0);
        connection.push(0, Bytes::from_static(b"abc"));
        connection.push(0, Bytes::from(vec![b'l'; 5000]));
        let trailers = Field::new("ETag".into(), "x".into());
        connection.finish(0, Some(&[trailers].into_iter().collect()));
        connection.release(0);
        let sent = side.sent(0);
        assert_eq!(sent.bytes, [b"abc", &[b'l'; 5000][..]].concat());
        assert!(sent.has_end && sent.stop.is_none());
        assert_eq!(side.connection.stream_count(), 0);
    }
}

#[test]
fn what_is_no_such_line_is_refused() {
    let long = [b"GET /", &[b'a'; 40_000][..]].concat();
    for (line, status) in [
        (&b"GET / HTTP/1.1\r\n"[..], 400),
        (b"GET / HTTP/1.0\r\n\r\n", 400),
        (b"POST /\r\n", 400),
        (b"\x00\x04\x00\n", 400),
        (&long, 414),
    ] {
        let mut side = plain();
        side.open(0, line);
        side.end(0);
        let [Event::Refused { refused, .. }] = &side.events[..] else {
            panic!("{line:?}: {:?}", side.events);
        };
        assert_eq!(refused.status(), status, "{line:?}");
        side.connection
            .send_answer(0, (status, End::WithHead), |_| {});
        side.connection.release(0);
        assert!(side.sent(0).has_end);
        assert_eq!(side.connection.stream_count(), 0);
    }
    let mut side = plain();
    side.open(0, &[]);
    side.end(0);
    assert_eq!(side.sent(0).reset, Some(Code::REQUEST_INCOMPLETE));
}

#[test]
fn nothing_may_follow_a_line_and_no_other_stream_is_read() {
    let mut side = plain();
    side.open(0, b"GET /\n");
    side.give(0, b"more");
    assert!(!side.connection.wants_input(0));
    side.open(2, b"\0");
    assert_eq!(side.sent(2).stop, Some(Code::STREAM_CREATION_ERROR));
    side.connection.send_answer(0, (200, End::WithHead), |_| {});
    side.connection.release(0);
    let sent = side.sent(0);
    assert!(sent.has_end);
    assert_eq!(sent.stop, Some(Code::NO_ERROR));
    for stream in (6..10_000).step_by(4) {
        side.connection.opened(stream, NOW);
    }
    side.collect();
    assert_eq!(side.failure(), Some(Code::EXCESSIVE_LOAD));
}
