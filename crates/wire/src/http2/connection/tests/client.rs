//! A client: requests out, answers in.

use super::*;

const LINE: RequestLine<'_> = RequestLine {
    method: b"GET",
    scheme: b"https",
    authority: b"example.org",
    path: b"/a",
};

fn open(played: &mut Played, end: End) -> u32 {
    let opened = played.connection.open(&LINE, end, |head| {
        head.known(Known::Accept, b"*/*");
    });
    opened.expect("one more stream")
}

fn reply(played: &mut Played, stream: u32, flags: u8, fields: &[(&str, &str)]) {
    let block = played.block(fields);
    played.send(1, flags, stream, &block);
}

/// RFC 9113 §8.1, §8.3.1: a request goes out as one.
#[test]
fn requests_go_out_with_a_body_and_trailers() {
    let mut played = Played::client(Config::default());
    assert_eq!(open(&mut played, End::WithHead), 1);
    assert_eq!(open(&mut played, End::Later), 3);
    played.connection.push(3, "body".into());
    let mut trailers = Fields::new();
    trailers.push_known(Known::ETag, "x");
    played.connection.finish(3, Some(&trailers));
    let frames = played.frames();
    assert_eq!((frames[0].flags, frames[1].flags), (5, 4));
    assert_eq!(data_of(&frames, 3), b"body");
    assert_eq!((frames[3].kind, frames[3].flags), (Kind::Headers, 5));
    for frame in &frames[..2] {
        let read = played.fields(&frame.payload);
        let fields: Vec<_> = read.iter().map(|(a, b)| (&**a, &**b)).collect();
        let expected = [
            (":method", "GET"),
            (":scheme", "https"),
            (":authority", "example.org"),
            (":path", "/a"),
            ("accept", "*/*"),
        ];
        assert_eq!(fields, expected);
    }
}

/// RFC 9113 §8.1: interim answers, an answer, trailers.
#[test]
fn answers_come_in_order() {
    let mut played = Played::client(Config::default());
    let stream = open(&mut played, End::WithHead);
    reply(
        &mut played,
        stream,
        4,
        &[(":status", "103"), ("link", "</a>")],
    );
    reply(
        &mut played,
        stream,
        4,
        &[(":status", "200"), ("content-length", "4")],
    );
    played.data(stream, b"body", End::Later);
    reply(&mut played, stream, 5, &[("x-sum", "1")]);
    let events = played.events();
    assert!(
        matches!(&events[0], Event::Interim { status: 103, fields, .. }
        if fields.contains(Known::Link))
    );
    assert!(matches!(
        &events[1],
        Event::Answer {
            status: 200,
            body: BodyLength::Known(4),
            ..
        }
    ));
    assert!(matches!(&events[2], Event::Data { bytes, .. } if bytes == "body"));
    assert!(
        matches!(&events[3], Event::End { trailers: Some(fields), .. }
        if fields.find(b"x-sum").unwrap() == "1")
    );
    assert_eq!(events.len(), 4);
    played.connection.release(stream);
    assert_eq!(played.connection.stream_count(), 0);
    assert!(
        played
            .frames()
            .iter()
            .all(|frame| frame.kind != Kind::RstStream)
    );
}

/// RFC 9110 §6.4.1: answers without a body whatever they say.
#[test]
fn answers_without_a_body_are_known() {
    for (method, status, has_body) in [
        (&b"HEAD"[..], "200", false),
        (b"GET", "304", false),
        (b"GET", "204", false),
        (b"GET", "200", true),
    ] {
        for flags in [4, 5] {
            let mut played = Played::client(Config::default());
            let line = RequestLine { method, ..LINE };
            let stream = played
                .connection
                .open(&line, End::WithHead, |_| {})
                .unwrap();
            reply(
                &mut played,
                stream,
                flags,
                &[(":status", status), ("content-length", "4")],
            );
            if flags == 4 {
                played.data(stream, b"", End::WithHead);
            }
            let events = played.events();
            let is_whole = matches!(events.last(), Some(Event::End { .. }));
            assert_eq!(is_whole, !has_body, "{status} {events:?}");
            if !has_body {
                assert!(matches!(
                    events[0],
                    Event::Answer {
                        body: BodyLength::None,
                        ..
                    }
                ));
            }
        }
    }
}

/// RFC 9113 §8.1, §8.1.1, §8.3.2: malformed answers are errors of the stream.
#[test]
fn malformed_answers_are_refused() {
    for (flags, fields) in [
        (5, &[("x-a", "1")][..]),
        (5, &[(":status", "200"), ("connection", "close")]),
        (5, &[(":status", "100")]),
        (4, &[(":status", "101")]),
        (
            5,
            &[
                (":status", "200"),
                ("content-length", "1"),
                ("content-length", "2"),
            ],
        ),
        (5, &[(":status", "200"), (":path", "/")]),
    ] {
        let mut played = Played::client(Config::default());
        let stream = open(&mut played, End::WithHead);
        reply(&mut played, stream, flags, fields);
        played.assert_breaks(stream, Fault::Malformed);
        played.connection.release(stream);
        assert_eq!(played.connection.stream_count(), 0);
    }
    let mut played = Played::client(Config::default());
    let stream = open(&mut played, End::WithHead);
    played.data(stream, b"x", End::Later);
    played.assert_breaks(stream, Fault::Malformed);
}

#[test]
fn a_body_of_another_length_is_malformed() {
    let mut played = Played::client(Config::default());
    let stream = open(&mut played, End::WithHead);
    reply(
        &mut played,
        stream,
        4,
        &[(":status", "200"), ("content-length", "4")],
    );
    played.data(stream, b"bod", End::WithHead);
    let events = played.events();
    assert!(matches!(
        events[1..],
        [Event::Malformed {
            fault: Fault::BodyTooShort,
            ..
        }]
    ));
    played.connection.release(stream);
    assert_eq!(played.connection.stream_count(), 0);
}

/// RFC 9113 §5.1.2, §6.5.2: no more streams than the peer bears, and its settings are obeyed.
#[test]
fn settings_of_the_peer_are_obeyed() {
    let mut played = Played::client(Config::default());
    played.send(
        4,
        0,
        0,
        &[0, 3, 0, 0, 0, 1, 0, 4, 0, 0, 0, 2, 0, 1, 0, 0, 0, 0],
    );
    played.events();
    let stream = open(&mut played, End::Later);
    assert!(!played.connection.may_open());
    assert_eq!(played.connection.open(&LINE, End::WithHead, |_| {}), None);
    assert_eq!(played.connection.room(stream), 2);
    played.connection.push(stream, "body".into());
    let frames = played.frames();
    assert_eq!(frames[1].payload[0], 0x20, "the table has no room");
    assert_eq!(data_of(&frames, stream), b"bo");
    reply(&mut played, stream, 5, &[(":status", "200")]);
    played.events();
    played.connection.release(stream);
    assert!(played.connection.may_open(), "one after the other");
    // The answer was whole before the request.
    let frames = played.frames();
    assert_eq!(frames.last().map(Frame::code), Some(Code::NO_ERROR));
}

/// RFC 9113 §6.8, §8.7: what is safe to ask again.
#[test]
fn what_was_not_looked_at_may_be_asked_again() {
    let mut played = Played::client(Config::default());
    let streams = [1, 3, 5].map(|_| open(&mut played, End::WithHead));
    played.send(3, 0, streams[0], &[0, 0, 0, 7]);
    played.send(7, 0, 0, &[0, 0, 0, 3, 0, 0, 0, 0]);
    let events = played.events();
    let is_safe = |event: &Event| match event {
        Event::Gone { stream, why } => Some((*stream, why.is_safe_to_retry())),
        _ => None,
    };
    let safe: Vec<_> = events.iter().filter_map(is_safe).collect();
    assert_eq!(safe, [(1, true), (5, true)]);
    assert!(matches!(
        events[1],
        Event::GoneAway {
            last: 3,
            code: Code::NO_ERROR
        }
    ));
    assert!(!played.connection.may_open());
    reply(&mut played, 3, 5, &[(":status", "200")]);
    assert_eq!(played.events().len(), 2);
    for stream in streams {
        played.connection.release(stream);
    }
    assert!(played.connection.is_finished());
    assert!(!Gone::ByPeer(Code::CANCEL).is_safe_to_retry());
    assert!(!Gone::ByFault(Fault::Malformed).is_safe_to_retry());
}

/// RFC 9113 §5.1, §8.4: streams that nobody asked for.
#[test]
fn streams_that_nobody_asked_for_are_refused() {
    for stream in [1, 2, 4] {
        let mut played = Played::client(Config::default());
        reply(&mut played, stream, 5, &[(":status", "200")]);
        played.assert_fails(Fault::IdleStream);
    }
    let mut played = Played::client(Config::default());
    let stream = open(&mut played, End::WithHead);
    played.send(5, 4, stream, &[0, 0, 0, 2, 0x88]);
    played.assert_fails(Fault::Push);
}

/// A client that leaves an answer tells so, and late frames are no fault.
#[test]
fn an_answer_that_is_not_wanted_is_cancelled() {
    let mut played = Played::client(Config::default());
    let stream = open(&mut played, End::WithHead);
    reply(&mut played, stream, 4, &[(":status", "200")]);
    played.data(stream, &[0; 2000], End::Later);
    played.events();
    played.connection.release(stream);
    let frames = played.frames();
    assert_eq!(frames.last().map(Frame::code), Some(Code::CANCEL));
    played.data(stream, &[0; 2000], End::WithHead);
    assert!(played.events().is_empty());
    assert_eq!(played.connection.receive.held(), 0);
}

/// Interim answers go on behind our reset: some are on their way, those without end are a flood.
#[test]
fn heads_without_end_of_a_stream_that_we_reset_are_a_flood() {
    let mut played = Played::client(Config::default());
    for _ in 0..3 {
        let stream = open(&mut played, End::WithHead);
        played.connection.reset(stream, Code::CANCEL);
        played.connection.release(stream);
        for _ in 0..200 {
            reply(&mut played, stream, 4, &[(":status", "103")]);
        }
        let events = played.events();
        assert!(!events.iter().any(|event| matches!(event, Event::Failed(_))));
    }
    let stream = open(&mut played, End::WithHead);
    played.connection.reset(stream, Code::CANCEL);
    for _ in 0..201 {
        reply(&mut played, stream, 4, &[(":status", "103")]);
    }
    let events = played.events();
    let is_flood = |event: &Event| matches!(event, Event::Failed(Fault::Flood(Flood::Overhead)));
    assert!(events.iter().any(is_flood), "{events:?}");
}
