//! A server: requests, bodies, answers, windows, priorities, the end.

use super::*;

/// RFC 9113 §8.1: head, body, trailers, end.
#[test]
fn a_request_is_told_in_order() {
    let mut played = Played::server(Config::default());
    played.ask_with(1, End::Later, &[("content-length", "4")]);
    played.data(1, b"bo", End::Later);
    played.data(1, b"dy", End::Later);
    let block = played.block(&[("x-sum", "1")]);
    played.send(1, HEADERS_END, 1, &block);
    let events = played.events();
    assert!(matches!(
        &events[0],
        Event::Request { stream: 1, head, body: BodyLength::Known(4) } if head.uri() == b"/"
    ));
    assert!(matches!(&events[1], Event::Data { bytes, .. } if bytes == "bo"));
    assert!(matches!(&events[2], Event::Data { bytes, .. } if bytes == "dy"));
    assert!(
        matches!(&events[3], Event::End { trailers: Some(fields), .. }
        if fields.find(b"x-sum").unwrap() == "1")
    );
    assert_eq!(events.len(), 4);
}

/// RFC 9113 §8.1.1, §8.3: a malformed request is the request's fault; nginx answers by 400.
#[test]
fn a_malformed_request_is_refused_and_can_be_answered() {
    let mut played = Played::server(Config::default());
    played.ask_with(1, End::Later, &[("connection", "close")]);
    played.data(1, b"ignored", End::Later);
    let events = played.events();
    let [Event::Refused { stream: 1, refused }] = &events[..] else {
        panic!("{events:?}");
    };
    assert_eq!(refused.why, Refusal::ConnectionField(Known::Connection));
    played.connection.send_answer(1, (400, End::Later), |_| {});
    played.connection.push(1, "no".into());
    played.connection.finish(1, None);
    played.connection.release(1);
    let frames = played.frames();
    // RFC 9113 §8.1: the rest of the request is not wanted.
    let shapes = shape(&frames);
    assert_eq!(
        shapes[1..],
        [(Kind::Data, 1, 2, 1), (Kind::RstStream, 1, 4, 0)]
    );
    assert_eq!(frames[2].code(), Code::PROTOCOL_ERROR);
    assert_eq!(
        played.fields(&frames[0].payload),
        [(":status".into(), "400".into())]
    );
    assert_eq!(played.connection.stream_count(), 0);
    played.ask(3, End::WithHead);
    let events = played.events();
    assert!(matches!(
        events[..],
        [Event::Sent { .. }, Event::Request { stream: 3, .. }]
    ));
}

/// RFC 9113 §8.1: who has answered may have the rest of the request not sent.
#[test]
fn a_body_that_is_forgone_is_refused_behind_the_answer_alone() {
    let mut played = Played::server(Config::default());
    played.ask(1, End::Later);
    played.events();
    played.connection.forgo_body(1);
    played.connection.send_answer(1, (200, End::Later), |_| {});
    played.connection.forgo_body(1);
    played.connection.finish(1, None);
    assert_eq!(
        played.frames().len(),
        2,
        "nothing is refused before the end"
    );
    played.connection.forgo_body(1);
    let frames = played.frames();
    assert_eq!(shape(&frames), [(Kind::RstStream, 1, 4, 0)]);
    assert_eq!(frames[0].code(), Code::NO_ERROR);
    played.connection.release(1);
    assert!(played.frames().is_empty());
    assert_eq!(played.connection.stream_count(), 0);
}

/// RFC 9113 §8.1.1: content-length is the sum of the bytes.
#[test]
fn a_body_of_another_length_is_malformed() {
    for (pieces, fault) in [
        (&["123", "45"][..], Fault::BodyTooLong),
        (&["12345"], Fault::BodyTooLong),
        (&["123"], Fault::BodyTooShort),
        (&["1", ""], Fault::BodyTooShort),
    ] {
        let mut played = Played::server(Config::default());
        played.ask_with(1, End::Later, &[("content-length", "4")]);
        for (index, piece) in pieces.iter().enumerate() {
            let is_last = index + 1 == pieces.len();
            let end = if is_last { End::WithHead } else { End::Later };
            played.data(1, piece.as_bytes(), end);
        }
        let events = played.events();
        assert!(
            matches!(events.last(), Some(Event::Malformed { fault: it, .. }) if *it == fault),
            "{events:?}"
        );
        played
            .connection
            .send_answer(1, (400, End::WithHead), |_| {});
        played.connection.release(1);
        assert_eq!(played.frames()[0].flags, 5);
        assert_eq!(played.connection.stream_count(), 0);
    }
}

/// RFC 9113 §8.1.1: trailers that end too early, or are none.
#[test]
fn trailers_that_are_none_are_malformed() {
    for (fields, length, fault) in [
        (&[(":path", "/")][..], "0", Fault::Malformed),
        (&[("connection", "close")], "0", Fault::Malformed),
        (&[("x-a", "1")], "4", Fault::BodyTooShort),
    ] {
        let mut played = Played::server(Config::default());
        played.ask_with(1, End::Later, &[("content-length", length)]);
        let block = played.block(fields);
        played.send(1, HEADERS_END, 1, &block);
        let events = played.events();
        assert!(
            matches!(events[1..], [Event::Malformed { fault: it, .. }] if it == fault),
            "{events:?}"
        );
    }
    let mut played = Played::server(Config::default());
    played.ask(1, End::Later);
    let block = played.block(&[("x-a", "1")]);
    played.send(1, 4, 1, &block);
    // RFC 9113 §8.1: trailers end the stream.
    played.assert_breaks(1, Fault::SecondHead);
}

/// RFC 9113 §6.9.1: neither window is exceeded by a peer.
#[test]
fn more_data_than_a_window_is_refused() {
    let config = Config {
        stream_window: 10,
        connection_window: 65_535,
        ..Config::default()
    };
    let mut played = Played::server(config);
    played.ask(1, End::Later);
    played.data(1, b"0123456789", End::Later);
    assert_eq!(played.events().len(), 2);
    played.data(1, b"x", End::Later);
    played.assert_breaks(1, Fault::WindowExceeded);
    let mut played = Played::server(Config {
        stream_window: 1 << 20,
        ..config
    });
    played.ask(1, End::Later);
    for _ in 0..4 {
        played.data(1, &[0; 16_384], End::Later);
    }
    played.assert_fails(Fault::WindowExceeded);
}

/// nginx: `http2_body_preread_size`, before and behind the acknowledgement of the settings.
#[test]
fn a_body_waits_for_the_window_of_streams_to_be_known() {
    let config = Config {
        stream_window: 10,
        ..Config::default()
    };
    let mut played = Played::with(Role::Server, config);
    played.send(4, 0, 0, &[]);
    played.ask(1, End::Later);
    played.ask(3, End::WithHead);
    let (events, frames) = played.turn();
    assert!(matches!(
        events[..],
        [Event::SettingsChanged, Event::Request { stream: 3, .. }]
    ));
    let reset = frames
        .iter()
        .find(|frame| frame.kind == Kind::RstStream)
        .unwrap();
    assert_eq!((reset.stream, reset.code()), (1, Code::REFUSED_STREAM));
    played.send(4, 1, 0, &[]);
    played.ask(5, End::Later);
    assert!(matches!(
        played.events()[..],
        [_, Event::Request { stream: 5, .. }]
    ));
    // More is given when it is asked for.
    played.connection.set_window(5, 100);
    let frames = played.frames();
    assert_eq!((frames[0].stream, frames[0].number()), (5, 90));
}

/// The begin of a body that breaks is the client's, as far as it has said that it takes more.
#[test]
fn a_body_that_breaks_off_is_sent_as_far_as_it_came() {
    let config = Config {
        send_buffer: 1 << 20,
        ..Config::default()
    };
    for (len, sent) in [(10, 10), (50_000, 50_000), (70_000, 65_535)] {
        let mut played = Played::server(config);
        played.ask(1, End::WithHead);
        played.events();
        played.connection.send_answer(1, (200, End::Later), |_| {});
        played.connection.push(1, vec![b'x'; len].into());
        played.connection.break_off(1, Code::INTERNAL_ERROR);
        let frames = played.frames();
        let data: usize = frames
            .iter()
            .filter(|frame| frame.kind == Kind::Data)
            .map(|frame| frame.payload.len())
            .sum();
        assert_eq!(data, sent, "of {len}");
        let last = frames.last().unwrap();
        assert_eq!(
            (last.kind, last.code()),
            (Kind::RstStream, Code::INTERNAL_ERROR)
        );
        assert!(
            frames
                .iter()
                .all(|frame| frame.kind == Kind::RstStream || frame.flags & 1 == 0)
        );
    }
}

/// Bytes that are consumed are room again, at both levels; those of a stream that is gone as well.
#[test]
fn room_comes_back_when_bytes_are_consumed_or_the_stream_is_released() {
    let config = Config {
        stream_window: 1000,
        connection_window: 65_535,
        ..Config::default()
    };
    let mut played = Played::server(config);
    played.ask(1, End::Later);
    played.data(1, &[0; 600], End::Later);
    played.events();
    assert!(played.frames().is_empty());
    played.connection.consume(1, 600);
    let frames = played.frames();
    assert_eq!((frames[0].stream, frames[0].number()), (1, 600));
    assert_eq!(played.connection.receive.held(), 0);
    played.data(1, &[0; 900], End::Later);
    played.events();
    assert_eq!(played.connection.receive.held(), 900);
    played.connection.release(1);
    assert_eq!(played.connection.receive.held(), 0);
    played.connection.consume(1, 900);
    assert_eq!(played.connection.receive.held(), 0);
}

/// Bytes that nobody wants are given back at once.
#[test]
fn bytes_behind_a_release_are_thrown_away() {
    let mut played = Played::server(Config::default());
    played.ask(1, End::Later);
    played.events();
    played.connection.send_answer(1, (200, End::Later), |_| {});
    played.connection.push(1, "x".into());
    played.connection.finish(1, None);
    played.connection.release(1);
    // In the middle of a frame.
    let mut frame = raw(0, 0, 1, &[0; 5000]);
    let rest = frame.split_off(2000);
    played.input.extend_from_slice(&frame);
    assert!(played.events().is_empty());
    played.input.extend_from_slice(&rest);
    assert!(played.events().is_empty());
    assert_eq!(played.connection.receive.held(), 0);
    assert_eq!(
        shape(&played.frames())[1..],
        [(Kind::Data, 1, 1, 1), (Kind::RstStream, 1, 4, 0)]
    );
}

/// RFC 9113 §8.1: an interim answer, an answer, trailers.
#[test]
fn an_answer_goes_out_in_order() {
    let mut played = Played::server(Config::default());
    played.ask(1, End::WithHead);
    played.events();
    let mut fields = Fields::new();
    fields.push_known(Known::Link, "</a>");
    fields.push_known(Known::Connection, "close");
    played.connection.send_interim(1, 103, &fields);
    let len = played.connection.send_answer(1, (200, End::Later), |head| {
        head.known(Known::Server, b"millpond");
        head.fields(&fields);
        head.any(b"X-Any", b"1");
        head.content_length(4);
    });
    played.connection.send_interim(1, 103, &fields);
    assert_eq!(played.connection.room(1), 65_535);
    played.connection.push(1, "bo".into());
    played.connection.push(1, "dy".into());
    assert!(!played.connection.is_sent(1));
    let mut trailers = Fields::new();
    trailers.push_known(Known::ETag, "x");
    played.connection.finish(1, Some(&trailers));
    let frames = played.frames();
    let kinds: Vec<_> = frames
        .iter()
        .map(|frame| (frame.kind, frame.flags))
        .collect();
    assert_eq!(
        kinds,
        [
            (Kind::Headers, 4),
            (Kind::Headers, 4),
            (Kind::Data, 0),
            (Kind::Headers, 5)
        ]
    );
    assert_eq!(frames[1].payload.len(), len);
    let mut text = |index: usize| {
        let fields = played.fields(&frames[index].payload);
        let lines = fields.iter().map(|(name, value)| format!("{name}={value}"));
        lines.collect::<Vec<_>>().join(" ")
    };
    assert_eq!(text(0), ":status=103 link=</a>");
    assert_eq!(
        text(1),
        ":status=200 server=millpond link=</a> x-any=1 content-length=4"
    );
    assert_eq!(text(3), "etag=x");
    assert_eq!(data_of(&frames, 1), b"body");
    assert!(matches!(played.events()[..], [Event::Sent { stream: 1 }]));
    assert!(played.connection.is_sent(1));
}

/// RFC 9113 §6.10: a head longer than a frame.
#[test]
fn a_long_head_is_cut_into_frames() {
    let mut played = Played::server(Config::default());
    played.ask(1, End::WithHead);
    played.events();
    let value = "x".repeat(20_000);
    played
        .connection
        .send_answer(1, (204, End::WithHead), |head| {
            for name in [b"x-a", b"x-b", b"x-c"] {
                head.any(name, value.as_bytes());
            }
        });
    let frames = played.frames();
    assert_eq!((frames[0].kind, frames[0].flags), (Kind::Headers, 1));
    let (last, others) = frames.split_last().unwrap();
    assert!(others.len() >= 2 && others.iter().all(|it| it.payload.len() == 16_384));
    assert_eq!((last.kind, last.flags), (Kind::Continuation, 4));
    let block: Vec<u8> = frames.iter().flat_map(|it| it.payload.clone()).collect();
    assert_eq!(played.fields(&block).len(), 4);
}

/// RFC 9113 §6.9.2, nginx's h2.t: windows, chunks, and what a change of the initial window does.
#[test]
fn a_body_keeps_to_both_windows() {
    let body = Bytes::from(vec![b'x'; 65_535 + 81]);
    let mut played = Played::server(Config {
        send_buffer: 1 << 20,
        ..Config::default()
    });
    played.ask(1, End::WithHead);
    played.events();
    played.connection.send_answer(1, (200, End::Later), |_| {});
    played.connection.push(1, body);
    played.connection.finish(1, None);
    let frames = played.frames();
    let lens: Vec<_> = frames[1..]
        .iter()
        .map(|frame| frame.payload.len())
        .collect();
    assert_eq!(lens, [8192, 8192, 8192, 8192, 8192, 8192, 8192, 8191]);
    // The stream's window alone is not enough.
    played.send(8, 0, 1, &[0, 1, 0, 0]);
    assert!(played.turn().1.is_empty());
    played.send(8, 0, 0, &[0, 0, 0, 80]);
    assert_eq!(shape(&played.turn().1), [(Kind::Data, 1, 80, 0)]);
    // A smaller initial window makes the stream's negative.
    played.send(4, 0, 0, &[0, 4, 0, 0, 0, 42]);
    played.send(8, 0, 0, &[0, 1, 0, 0]);
    assert_eq!(shape(&played.turn().1), [(Kind::Settings, 0, 0, 1)]);
    played.send(4, 0, 0, &[0, 4, 0, 1, 0, 0]);
    assert_eq!(shape(&played.turn().1)[1..], [(Kind::Data, 1, 1, 1)]);
    assert!(played.connection.is_sent(1));
}

/// nginx's h2.t: `http2_chunk_size 1`; RFC 9113 §4.2: no frame beyond the peer's longest.
#[test]
fn frames_are_as_long_as_the_settings_let() {
    for (chunk_len, peer_len, expected) in [
        (1, 16_384, vec![1, 1, 1, 1]),
        (3, 16_384, vec![3, 1]),
        (1 << 20, 16_384, vec![4]),
    ] {
        let mut played = Played::server(Config {
            chunk_len,
            ..Config::default()
        });
        let mut row = vec![0, 5];
        row.extend(u32::to_be_bytes(peer_len));
        played.send(4, 0, 0, &row);
        played.ask(1, End::WithHead);
        played.events();
        played.answer(1, b"body");
        let frames = played.frames();
        let data: Vec<_> = frames.iter().filter(|it| it.kind == Kind::Data).collect();
        let lens: Vec<_> = data.iter().map(|it| it.payload.len()).collect();
        assert_eq!(lens, expected);
        let (last, others) = data.split_last().unwrap();
        assert!(last.flags == 1 && others.iter().all(|it| it.flags == 0));
    }
    let mut played = Played::server(Config {
        chunk_len: 1 << 20,
        send_buffer: 1 << 20,
        ..Config::default()
    });
    played.ask(1, End::WithHead);
    played.events();
    played.connection.send_answer(1, (200, End::Later), |_| {});
    played.connection.push(1, Bytes::from(vec![0; 40_000]));
    let lens: Vec<_> = played.frames()[1..]
        .iter()
        .map(|it| it.payload.len())
        .collect();
    assert_eq!(lens, [16_384, 16_384, 7232]);
}

/// An owner that had no room is told when there is some, once.
#[test]
fn room_is_told_to_who_waits_for_it() {
    let mut played = Played::server(Config {
        send_buffer: 10,
        ..Config::default()
    });
    played.ask(1, End::WithHead);
    played.events();
    played.connection.send_answer(1, (200, End::Later), |_| {});
    assert_eq!(played.connection.room(1), 10);
    played.connection.push(1, "0123456789".into());
    assert_eq!(played.connection.room(1), 0);
    assert!(played.events().is_empty());
    played.frames();
    assert!(matches!(played.events()[..], [Event::Room { stream: 1 }]));
    assert_eq!(played.connection.room(1), 10);
    // The stream's window has no room.
    played.send(4, 0, 0, &[0, 4, 0, 0, 0, 0]);
    played.events();
    assert_eq!(played.connection.room(1), 0);
    played.send(8, 0, 1, &[0, 0, 0, 12]);
    let events = played.events();
    assert!(
        matches!(events[..], [Event::Room { stream: 1 }]),
        "{events:?}"
    );
    assert_eq!(played.connection.room(1), 2);
}

/// Streams share a connection's window fairly, frame by frame.
#[test]
fn streams_take_turns() {
    let mut played = Played::server(Config::default());
    for stream in [1, 3, 5] {
        played.ask(stream, End::WithHead);
    }
    played.events();
    for stream in [1, 3, 5] {
        played
            .connection
            .send_answer(stream, (200, End::Later), |_| {});
        played.connection.push(stream, Bytes::from(vec![0; 20_000]));
    }
    let frames = played.frames();
    let turns: Vec<_> = frames[3..].iter().map(|frame| frame.stream).collect();
    assert_eq!(turns, [1, 3, 5, 1, 3, 5, 1, 3, 5]);
}

/// RFC 9218 §5, §7.1: a field, and frames before and behind the request.
#[test]
fn priorities_decide_who_is_first() {
    let order = |updates: &dyn Fn(&mut Played, bool)| {
        let mut played = Played::server(Config::default());
        updates(&mut played, true);
        played.ask_with(1, End::WithHead, &[("priority", "u=5")]);
        played.ask_with(3, End::WithHead, &[("priority", "u=2, i")]);
        played.ask(5, End::WithHead);
        played.events();
        for stream in [1, 3, 5] {
            played.answer(stream, b"x");
        }
        updates(&mut played, false);
        played.events();
        let frames = played.frames();
        let data = frames.iter().filter(|frame| frame.kind == Kind::Data);
        data.map(|frame| frame.stream).collect::<Vec<_>>()
    };
    assert_eq!(order(&|_, _| {}), [3, 5, 1]);
    let update = |stream: u8, value: &str| {
        let mut payload = vec![0, 0, 0, stream];
        payload.extend(value.bytes());
        payload
    };
    let early = |played: &mut Played, is_before: bool| {
        if is_before {
            played.send(0x10, 0, 0, &update(1, "u=0"));
        }
    };
    assert_eq!(order(&early), [1, 3, 5]);
    let late = |played: &mut Played, is_before: bool| {
        if !is_before {
            played.send(0x10, 0, 0, &update(3, "u=7"));
        }
    };
    assert_eq!(order(&late), [5, 1, 3]);
    let own = |played: &mut Played, is_before: bool| {
        if !is_before {
            let priority = Priority {
                urgency: 0,
                manner: Manner::Whole,
            };
            played.connection.set_priority(5, priority);
        }
    };
    assert_eq!(order(&own), [5, 3, 1]);
    for payload in [update(0, "u=1"), update(2, "u=1")] {
        let mut played = Played::server(Config::default());
        played.send(0x10, 0, 0, &payload);
        played.assert_fails(Fault::PriorityUpdate);
    }
}

/// RFC 9113 §8.1: what an owner has not ended when it leaves is reset.
#[test]
fn a_stream_that_is_left_is_reset() {
    for (end, steps, code) in [
        (End::WithHead, 0, Some(Code::INTERNAL_ERROR)),
        (End::WithHead, 1, Some(Code::INTERNAL_ERROR)),
        (End::WithHead, 2, None),
        (End::Later, 2, Some(Code::NO_ERROR)),
    ] {
        let mut played = Played::server(Config::default());
        played.ask(1, end);
        played.events();
        if steps > 0 {
            played.connection.send_answer(1, (200, End::Later), |_| {});
        }
        if steps > 1 {
            played.connection.finish(1, None);
        }
        played.connection.release(1);
        let frames = played.frames();
        let reset = frames.iter().find(|frame| frame.kind == Kind::RstStream);
        assert_eq!(reset.map(Frame::code), code);
        assert_eq!(played.connection.stream_count(), 0);
        played.connection.release(1);
        played.connection.reset(1, Code::CANCEL);
        assert!(
            played
                .turn()
                .0
                .iter()
                .all(|it| matches!(it, Event::Sent { .. }))
        );
    }
}

/// nginx: `client_header_timeout`: the stream is reset, the connection goes on.
#[test]
fn a_head_that_does_not_come_is_given_up() {
    let mut played = Played::server(Config::default());
    played.connection.give_up_head();
    assert!(played.frames().is_empty());
    let block = played.request_block(&[("server", "x")]);
    let frame = raw(1, 5, 1, &block);
    played.input.extend_from_slice(&frame[..12]);
    assert!(played.events().is_empty());
    assert_eq!(played.connection.unfinished_head(), Some(1));
    played.connection.give_up_head();
    let frames = played.frames();
    assert_eq!(frames[0].code(), Code::PROTOCOL_ERROR);
    played.input.extend_from_slice(&frame[12..]);
    played.ask_with(3, End::WithHead, &[("server", "x")]);
    assert!(
        matches!(&played.events()[..], [Event::Request { stream: 3, head, .. }]
        if head.get(Known::Server) == Some(b"x"))
    );
}

/// RFC 9113 §6.8: the end in two steps; streams behind the last one are ignored, their blocks are
/// not.
#[test]
fn a_connection_ends_when_its_streams_do() {
    let mut played = Played::server(Config::default());
    played.ask(1, End::WithHead);
    played.events();
    played.connection.go_away(Farewell::Warn);
    let frames = played.frames();
    assert_eq!(
        (frames[0].number(), frames[0].code()),
        ((1 << 31) - 1, Code::NO_ERROR)
    );
    played.ask(3, End::WithHead);
    assert_eq!(played.events().len(), 1, "it was on its way");
    played.connection.go_away(Farewell::Last);
    played.connection.go_away(Farewell::Last);
    let frames = played.frames();
    assert_eq!((frames.len(), frames[0].number()), (1, 3));
    played.ask_with(5, End::Later, &[("server", "x")]);
    played.data(5, b"ignored", End::WithHead);
    assert!(played.turn().0.is_empty());
    for stream in [1, 3] {
        assert!(!played.connection.is_finished());
        played.answer(stream, b"x");
        assert_eq!(data_of(&played.frames(), stream), b"x");
        played.connection.release(stream);
    }
    assert!(played.connection.is_finished());
    // RFC 9113 §6.8: the last one does not grow.
    played.ask(7, End::WithHead);
    played.events();
    played.connection.close(Code::ENHANCE_YOUR_CALM);
    let frames = played.frames();
    assert_eq!(
        (frames[0].number(), frames[0].code()),
        (3, Code::ENHANCE_YOUR_CALM)
    );
}

/// RFC 9113 §6.8: a client that goes away still gets its answers.
#[test]
fn a_client_that_goes_away_is_served_to_the_end() {
    let mut played = Played::server(Config::default());
    played.ask(1, End::WithHead);
    played.send(7, 0, 0, &[0, 0, 0, 0, 0, 0, 0, 5, b'x', b'y']);
    let events = played.events();
    assert!(matches!(
        events[1],
        Event::GoneAway {
            last: 0,
            code: Code(5)
        }
    ));
    assert!(!played.connection.is_finished());
    played.answer(1, b"x");
    played.frames();
    played.connection.release(1);
    assert!(played.connection.is_finished());
}

/// RFC 8441 §3: it is told, and then it may be used.
#[test]
fn extended_connect_is_off_unless_it_is_told() {
    let connect = [
        (":method", "CONNECT"),
        (":protocol", "websocket"),
        (":scheme", "http"),
        (":path", "/chat"),
        (":authority", "a"),
    ];
    for extended in [ExtendedConnect::Refuse, ExtendedConnect::Allow] {
        let mut config = Config::default();
        config.rules.extended_connect = extended;
        let mut played = Played::with(Role::Server, config);
        let is_told = played.frames()[0]
            .payload
            .chunks(6)
            .any(|row| row == [0, 8, 0, 0, 0, 1]);
        assert_eq!(is_told, extended == ExtendedConnect::Allow);
        played.greet();
        let block: Vec<u8> = connect
            .iter()
            .flat_map(|(name, value)| literal(name, value))
            .collect();
        played.send(1, 4, 1, &block);
        let events = played.events();
        let is_served = matches!(&events[..], [Event::Request { head, .. }]
            if head.connect_protocol() == b"websocket");
        assert_eq!(is_served, is_told, "{events:?}");
    }
}

/// A WebSocket (RFC 8441 §5).
const WEBSOCKET: &[(&str, &str)] = &[
    (":method", "CONNECT"),
    (":protocol", "websocket"),
    (":scheme", "http"),
    (":path", "/chat"),
    (":authority", "a"),
];

/// RFC 9113 §8.5: fields in a tunnel are an error of its stream, also as its end.
#[test]
fn tunnels_have_no_fields() {
    for flags in [4, 5] {
        let mut config = Config::default();
        config.rules.extended_connect = ExtendedConnect::Allow;
        let mut played = Played::with(Role::Server, config);
        played.greet();
        let block = played.block(WEBSOCKET);
        played.send(1, 4, 1, &block);
        played.events();
        let block = played.block(&[("x-a", "1")]);
        played.send(1, flags, 1, &block);
        played.assert_breaks(1, Fault::SecondHead);
    }
}

/// Messages of WebSockets may be as small as what floods are made of.
#[test]
fn small_frames_are_a_flood_but_in_a_tunnel_where_they_say_something() {
    let connect = WEBSOCKET;
    let post: &[(&str, &str)] = &[
        (":method", "POST"),
        (":scheme", "http"),
        (":path", "/"),
        (":authority", "a"),
    ];
    for (fields, payload, is_flood) in [
        (connect, &b"x"[..], false),
        (connect, b"", true),
        (post, b"x", true),
    ] {
        let mut config = Config::default();
        config.rules.extended_connect = ExtendedConnect::Allow;
        config.stream_window = 1 << 20;
        let mut played = Played::with(Role::Server, config);
        played.greet();
        let block = played.block(fields);
        played.send(1, 4, 1, &block);
        for _ in 0..300_000 {
            played.data(1, payload, End::Later);
        }
        let is_failed = |event: &Event| matches!(event, Event::Failed(Fault::Flood(_)));
        let events = played.events();
        assert_eq!(events.iter().any(is_failed), is_flood, "{fields:?}");
    }
}

/// Memory is given back while nothing happens, and the connection goes on.
#[test]
fn a_connection_that_rests_goes_on() {
    let mut played = Played::server(Config::default());
    for stream in [1, 3, 5] {
        played.ask(stream, End::WithHead);
        played.events();
        played.answer(stream, b"x");
        assert_eq!(data_of(&played.frames(), stream), b"x");
        played.connection.release(stream);
        played.connection.rest();
        assert!(!played.connection.is_in_frame());
    }
}

/// A packet that is not full waits for what is announced: nothing may be that a window does not let
/// go.
#[test]
fn more_is_announced_where_both_windows_let_it_go() {
    let mut played = Played::server(Config::default());
    assert!(!played.connection.has_more());
    let body: &[u8] = &[b'x'; 100_000];
    for stream in [1, 3] {
        played.ask(stream, End::WithHead);
        played.events();
        played.answer(stream, body);
    }
    assert!(played.connection.has_more());
    played.connection.produce(1);
    assert!(played.connection.has_more());
    // 65,535 bytes are the connection's window, and what is left of a stream's is more than none.
    let sent = data_of(&played.frames(), 1).len();
    assert!((1..65_535).contains(&sent), "{sent}");
    assert!(!played.connection.has_more());
    played.send(8, 0, 0, &20_u32.to_be_bytes());
    played.events();
    assert!(played.connection.has_more());
    let frames = played.frames();
    assert_eq!(data_of(&frames, 1).len() + data_of(&frames, 3).len(), 20);
    assert!(!played.connection.has_more());
}
