//! Sentences of RFC 9114 and RFC 9218 about what comes to a server, and what it says.

use super::*;
use crate::http2::ExtendedConnect;

/// RFC 9114 §6.2.1, §7.2, §7.2.4, §7.2.8; RFC 9218 §7.2: streams that begin as a control stream.
#[test]
fn a_control_stream_is_settings_and_frames_that_may_stand_there() {
    let id = |number| {
        let mut out = BytesMut::new();
        frame::write_integer(&mut out, number);
        out.to_vec()
    };
    let settings = frame_of(4, &[]);
    let behind = |kind, payload: &[u8]| [&settings[..], &frame_of(kind, payload)].concat();
    for (bytes, code) in [
        (settings.clone(), None),
        (frame_of(0x21, b"x"), Some(Code::MISSING_SETTINGS)),
        (frame_of(7, &[0]), Some(Code::MISSING_SETTINGS)),
        (behind(4, &[]), Some(Code::FRAME_UNEXPECTED)),
        (behind(0, b"x"), Some(Code::FRAME_UNEXPECTED)),
        (behind(1, b"x"), Some(Code::FRAME_UNEXPECTED)),
        (behind(5, b"x"), Some(Code::FRAME_UNEXPECTED)),
        (behind(2, &[]), Some(Code::FRAME_UNEXPECTED)),
        (behind(6, &[]), Some(Code::FRAME_UNEXPECTED)),
        (behind(8, &[]), Some(Code::FRAME_UNEXPECTED)),
        (behind(9, &[]), Some(Code::FRAME_UNEXPECTED)),
        (behind(0x21, &[0; 5000]), None),
        (behind(0x21, &[]), None),
        // §7.2.3: nothing was promised.
        (behind(3, &[0]), Some(Code::ID_ERROR)),
        // §7.2.6, §7.2.7, §7.1.
        (behind(7, &[0]), None),
        (behind(7, &[]), Some(Code::FRAME_ERROR)),
        (behind(7, &[0, 0]), Some(Code::FRAME_ERROR)),
        (behind(7, &[0x40]), Some(Code::FRAME_ERROR)),
        (behind(7, &[0; 9]), Some(Code::FRAME_ERROR)),
        (
            [behind(7, &[4]), frame_of(7, &[5])].concat(),
            Some(Code::ID_ERROR),
        ),
        ([behind(7, &[4]), frame_of(7, &[4])].concat(), None),
        ([behind(0xd, &[4]), frame_of(0xd, &[9])].concat(), None),
        (
            [behind(0xd, &[4]), frame_of(0xd, &[3])].concat(),
            Some(Code::ID_ERROR),
        ),
        (behind(0xd, &[]), Some(Code::FRAME_ERROR)),
        // RFC 9218 §7.2.
        (behind(0xf_0700, b"\0u=1"), None),
        (behind(0xf_0700, b"\x04u=1"), None),
        (behind(0xf_0700, b"\0"), None),
        (behind(0xf_0700, b""), Some(Code::FRAME_ERROR)),
        (behind(0xf_0700, b"\x01u=1"), Some(Code::ID_ERROR)),
        (behind(0xf_0700, b"\x02u=1"), Some(Code::ID_ERROR)),
        (behind(0xf_0701, b"\0u=1"), Some(Code::ID_ERROR)),
        (behind(0xf_0700, &[0; 257]), Some(Code::EXCESSIVE_LOAD)),
        (frame_of(4, &[1, 0, 1]), Some(Code::FRAME_ERROR)),
        (
            frame_of(4, &[&id(4)[..], &id(1)].concat()),
            Some(Code::SETTINGS_ERROR),
        ),
        (frame_of(4, &[0x21; 1026]), Some(Code::EXCESSIVE_LOAD)),
    ] {
        for step in [1, 2, 7, usize::MAX] {
            let mut side = Side::bare(Config::default());
            side.open(2, &[0]);
            for piece in bytes.chunks(step.min(bytes.len())) {
                side.give(2, piece);
            }
            assert_eq!(side.failure(), code, "{bytes:x?} by {step}");
        }
    }
}

/// RFC 9114 §6.2, RFC 9204 §4.2.
#[test]
fn unidirectional_streams_have_one_of_each_kind_and_last() {
    let mut side = Side::new();
    side.open(6, &[2]);
    side.open(10, &[3]);
    // Others are refused, and no error; one that ends before its kind is there is none either.
    side.open(14, &[0x40, 0x21, 1, 2, 3]);
    assert_eq!(side.sent(14).stop, Some(Code::STREAM_CREATION_ERROR));
    assert!(!side.connection.wants_input(14));
    side.open(18, &[0x40]);
    side.end(18);
    side.open(22, &[]);
    side.end(22);
    assert_eq!(side.failure(), None);
    for (kind, code) in [
        (0, Code::STREAM_CREATION_ERROR),
        (1, Code::STREAM_CREATION_ERROR),
        (2, Code::STREAM_CREATION_ERROR),
        (3, Code::STREAM_CREATION_ERROR),
    ] {
        let mut side = Side::new();
        side.open(6, &[2]);
        side.open(10, &[3]);
        side.open(14, &[kind]);
        assert_eq!(side.failure(), Some(code), "{kind}");
    }
    for stream in [2, 6, 10] {
        for is_reset in [true, false] {
            let mut side = Side::new();
            side.open(6, &[2]);
            side.open(10, &[3]);
            if is_reset {
                side.connection.receive_reset(stream, Code::NO_ERROR, NOW);
                side.collect();
            } else {
                side.end(stream);
            }
            assert_eq!(side.failure(), Some(Code::CLOSED_CRITICAL_STREAM));
        }
    }
    for stream in [3, 7, 11] {
        let mut side = Side::new();
        side.connection.receive_stop(stream, Code::NO_ERROR, NOW);
        side.collect();
        assert_eq!(side.failure(), Some(Code::CLOSED_CRITICAL_STREAM));
    }
}

/// RFC 9114 §4.1, §7.1, §7.2, §7.2.8: frames of a request, and its end.
#[test]
fn a_request_is_a_head_and_a_body_and_trailers_in_that_order() {
    let get = headers(GET);
    let data = frame_of(0, b"0123456789abcdef");
    let trailers = headers(&[("x-a", "1")]);
    let grease = frame_of(0x21, b"grease");
    let (get, data, trailers) = (&get[..], &data[..], &trailers[..]);
    let unexpected = Some(Code::FRAME_UNEXPECTED);
    for (frames, code) in [
        (&[get][..], None),
        (&[get, data], None),
        (&[get, data, data], None),
        (&[get, data, trailers], None),
        (&[get, trailers], None),
        (
            &[&grease, get, &grease, data, &grease, trailers, &grease],
            None,
        ),
        (&[data], unexpected),
        (&[get, trailers, data], unexpected),
        (&[get, trailers, trailers], unexpected),
        (&[get, &frame_of(3, &[0])], unexpected),
        (&[get, &frame_of(4, &[])], unexpected),
        (&[get, &frame_of(5, &[0, 0, 0])], unexpected),
        (&[get, &frame_of(7, &[0])], unexpected),
        (&[get, &frame_of(0xd, &[0])], unexpected),
        (&[get, &frame_of(0xf_0700, b"\0u=1")], unexpected),
        (&[get, &frame_of(2, &[])], unexpected),
        (&[get, &frame_of(6, &[])], unexpected),
        (&[get, &frame_of(8, &[])], unexpected),
        (&[get, &frame_of(9, &[])], unexpected),
        (&[get, &data[..5]], Some(Code::FRAME_ERROR)),
        (&[get, &data[..1]], Some(Code::FRAME_ERROR)),
        (&[&get[..5]], Some(Code::FRAME_ERROR)),
        (&[get, &grease[..4]], Some(Code::FRAME_ERROR)),
    ] {
        let bytes = frames.concat();
        for step in [1, 3, usize::MAX] {
            let mut side = Side::new();
            side.open(0, &[]);
            for piece in bytes.chunks(step.min(bytes.len())) {
                side.give(0, piece);
            }
            side.end(0);
            assert_eq!(side.failure(), code, "{bytes:x?} by {step}");
        }
    }
}

/// A request whose stream ends with its head has no body, as soon as that is known.
#[test]
fn a_request_is_told_of_when_it_is_known_if_there_is_a_body() {
    let length = |side: &Side| match side.events.first() {
        Some(Event::Request { body, .. }) => Some(*body),
        None => None,
        other => panic!("{other:?}"),
    };
    let mut side = Side::new();
    side.open(0, &headers(GET));
    assert_eq!(length(&side), None);
    side.give(0, &frame_of(0x21, b"grease"));
    assert_eq!(length(&side), None);
    side.end(0);
    assert_eq!(length(&side), Some(BodyLength::None));
    assert_eq!(side.events.len(), 1, "its end says nothing more");
    let Some(Event::Request { head, .. }) = side.events.first() else {
        panic!()
    };
    assert_eq!(head.line(), b"GET /a?b HTTP/3.0");
    assert_eq!(head.version(), crate::head::Version::Http3);

    let mut side = Side::new();
    side.open(0, &headers(GET));
    side.connection.receive_pause(0);
    side.collect();
    assert_eq!(length(&side), Some(BodyLength::Unknown));
    side.end(0);
    assert!(matches!(side.events[1], Event::End { trailers: None, .. }));

    let mut side = Side::new();
    side.open(0, &[headers(GET), frame_of(0, b"x")].concat());
    assert_eq!(length(&side), Some(BodyLength::Unknown));

    let mut side = Side::new();
    side.open(0, &get_with(&[("content-length", "7")]));
    assert_eq!(length(&side), Some(BodyLength::Known(7)));
}

/// RFC 9114 §4.1.2: a length is that of the bytes.
#[test]
fn bodies_have_the_length_that_they_say() {
    for (length, frames, fault) in [
        ("3", &[&b"abc"[..]][..], None),
        ("3", &[b"a", b"bc"], None),
        ("0", &[], None),
        ("3", &[b"ab"], Some(Fault::BodyTooShort)),
        ("3", &[], Some(Fault::BodyTooShort)),
        ("3", &[b"abcd"], Some(Fault::BodyTooLong)),
        ("3", &[b"ab", b"cd"], Some(Fault::BodyTooLong)),
        ("0", &[b"a"], Some(Fault::BodyTooLong)),
    ] {
        let mut side = Side::new();
        side.open(0, &get_with(&[("content-length", length)]));
        for bytes in frames {
            side.give(0, &frame_of(0, bytes));
        }
        side.end(0);
        let found = side.events.iter().find_map(|event| match event {
            Event::Malformed { fault, .. } => Some(*fault),
            _ => None,
        });
        assert_eq!(found, fault, "{length} {frames:?}");
        if let Some(fault) = fault {
            assert_eq!(fault.code(), Code::MESSAGE_ERROR);
            side.connection.send_answer(0, (400, End::WithHead), |_| {});
            side.connection.release(0);
            let sent = side.sent(0);
            assert!(sent.has_end && sent.reset.is_none(), "it is answered");
            assert_eq!(side.connection.stream_count(), 0);
        }
    }
}

/// RFC 9114 §4.4, RFC 9220 §3: a tunnel has DATA alone.
#[test]
fn tunnels_have_no_fields() {
    let mut config = Config::default();
    config.rules.extended_connect = ExtendedConnect::Allow;
    let mut side = Side::with(config);
    side.open(
        0,
        &headers(&[
            (":method", "CONNECT"),
            (":protocol", "websocket"),
            (":scheme", "https"),
            (":path", "/chat"),
            (":authority", "a"),
        ]),
    );
    side.give(0, &frame_of(0, b"x"));
    assert_eq!(side.failure(), None);
    side.give(0, &headers(&[("x-a", "1")]));
    assert_eq!(side.failure(), Some(Code::FRAME_UNEXPECTED));
}

/// RFC 9114 §4.2, §4.3: what is no request is refused, and its stream stopped behind the answer.
#[test]
fn malformed_requests_are_answered_and_their_streams_stopped() {
    for list in [
        &[(":method", "GET")][..],
        &[(":method", "GET"), (":scheme", "https"), (":path", "/")],
        &[&[("x-a", "1")], GET].concat(),
        &[GET, &[(":status", "200")]].concat(),
        &[GET, &[("te", "gzip")]].concat(),
        &[GET, &[(":protocol", "websocket")]].concat(),
    ] {
        let mut side = Side::new();
        side.open(0, &headers(list));
        let [Event::Refused { refused, .. }] = &side.events[..] else {
            panic!("{list:?}: {:?}", side.events);
        };
        assert_eq!(refused.status(), 400, "{list:?}");
        side.connection.send_answer(0, (400, End::WithHead), |_| {});
        side.connection.release(0);
        let sent = side.sent(0);
        assert!(sent.has_end);
        assert_eq!(sent.stop, Some(Code::MESSAGE_ERROR));
        assert_eq!(side.failure(), None);
    }
}

/// RFC 9204 §2.2: a head that is too long costs its request alone.
#[test]
fn long_heads_are_refused_and_others_served() {
    let most = Config::default().rules.limits.total + 10_000;
    let long = "v".repeat(10_000);
    let mut too_long = BytesMut::new();
    frame::write_integer(&mut too_long, 1);
    frame::write_integer(&mut too_long, most as u64);
    for bytes in [&get_with(&[("x-a", &long)])[..], &too_long] {
        let mut side = Side::new();
        side.open(0, bytes);
        let [Event::Refused { refused, .. }] = &side.events[..] else {
            panic!("{:?}", side.events);
        };
        assert_eq!(refused.status(), 494);
        assert!(!side.connection.wants_input(0));
        assert_eq!(side.sent(7).bytes, [3, 0x40], "the block was cancelled");
        side.open(4, &headers(GET));
        side.end(4);
        assert!(matches!(side.events[1], Event::Request { stream: 4, .. }));
    }
}

/// RFC 9114 §4.1: a stream that ends without a request.
#[test]
fn a_request_without_a_head_is_reset() {
    let mut side = Side::new();
    side.open(0, &[]);
    assert_eq!(side.connection.unfinished_head(), Some((0, NOW)));
    side.end(0);
    assert_eq!(side.sent(0).reset, Some(Code::REQUEST_INCOMPLETE));
    assert!(side.events.is_empty() && side.connection.stream_count() == 0);
    assert_eq!(side.connection.unfinished_head(), None);
    side.open(4, &headers(GET)[..7]);
    side.connection.give_up_head(4);
    let sent = side.sent(4);
    assert_eq!(sent.reset, Some(Code::REQUEST_INCOMPLETE));
    assert_eq!(sent.stop, Some(Code::REQUEST_INCOMPLETE));
    assert_eq!(side.connection.unfinished_head(), None);
}

/// RFC 9114 §4.1: the answer, with what goes before and behind it.
#[test]
fn an_answer_is_interim_heads_a_head_a_body_and_trailers() {
    let mut side = Side::new();
    side.open(0, &headers(GET));
    side.end(0);
    let long = Bytes::from(vec![b'l'; 5000]);
    let field = |name: &'static str, value: &'static str| Field::new(name.into(), value.into());
    let link: Fields = [field("Link", "</a>")].into_iter().collect();
    let connection = &mut side.connection;
    connection.send_interim(0, 103, &link);
    let len = connection.send_answer(0, (200, End::Later), |out| out.content_length(5003));
    assert_eq!(
        len,
        2 + 1 + 5,
        "prefix, row, row by name and four digits in three bytes"
    );
    connection.push(0, Bytes::from_static(b"abc"));
    connection.push(0, long.clone());
    let trailers: Fields = [field("ETag", "x")].into_iter().collect();
    connection.finish(0, Some(&trailers));
    connection.finish(0, None);
    let queued = connection.sent_len(0).unwrap();
    let mut expected = headers(&[(":status", "103"), ("link", "</a>")]);
    expected.extend(headers(&[(":status", "200"), ("content-length", "5003")]));
    expected.extend(frame_of(0, b"abc"));
    expected.extend(frame_of(0, &long));
    expected.extend(headers(&[("etag", "x")]));
    assert_eq!(queued, expected.len() as u64);
    let sent = side.sent(0);
    assert_eq!(sent.bytes, expected);
    assert!(sent.has_end);
    assert!(matches!(side.events[1], Event::Sent { stream: 0 }));
    side.connection.release(0);
    assert_eq!(side.connection.stream_count(), 0);
    assert_eq!(side.sent(0).stop, None, "the request had ended");
}

/// RFC 9114 §4.1: an early answer ends the wish for the rest with no error; an answer that is not
/// whole is an error.
#[test]
fn exchanges_that_end_early_stop_the_request_or_reset_the_answer() {
    let post = get_with(&[("content-length", "100")]);
    let mut side = Side::new();
    side.open(0, &post);
    side.connection.send_answer(0, (413, End::WithHead), |_| {});
    side.connection.release(0);
    let sent = side.sent(0);
    assert!(sent.has_end);
    assert_eq!(sent.stop, Some(Code::NO_ERROR));
    side.connection.receive_reset(0, Code::NO_ERROR, NOW);
    assert_eq!(side.connection.stream_count(), 0);

    side.open(4, &post);
    side.connection.send_answer(4, (200, End::Later), |_| {});
    side.connection.push(4, Bytes::from_static(b"half"));
    side.connection.release(4);
    let sent = side.sent(4);
    assert!(!sent.has_end);
    assert_eq!(sent.reset, Some(Code::INTERNAL_ERROR));
    assert_eq!(side.connection.stream_count(), 0);
}

/// RFC 9114 §4.1.1; RFC 9000 §3.5.
#[test]
fn requests_that_are_taken_back_are_told_of_once_and_reset() {
    let code = Code::REQUEST_CANCELLED;
    for is_stop in [true, false] {
        let mut side = Side::new();
        side.open(0, &get_with(&[("content-length", "100")]));
        side.connection.send_answer(0, (200, End::Later), |_| {});
        if is_stop {
            side.connection.receive_stop(0, code, NOW);
        }
        side.connection.receive_reset(0, code, NOW);
        side.connection.receive_stop(0, code, NOW);
        side.collect();
        let gone = |event: &&Event| {
            matches!(
                event,
                Event::Gone {
                    why: Gone::ByPeer(_),
                    ..
                }
            )
        };
        assert_eq!(side.events.iter().filter(gone).count(), 1);
        side.connection.push(0, Bytes::from_static(b"late"));
        let sent = side.sent(0);
        assert_eq!(sent.reset, Some(code));
        assert!(sent.bytes.is_empty());
        assert_eq!(side.connection.stream_count(), 1, "its exchange runs");
        side.connection.release(0);
        assert_eq!(side.connection.stream_count(), 0);
        assert_eq!(side.failure(), None);
    }
    // A request that nobody was told of.
    let mut side = Side::new();
    side.open(0, &headers(GET));
    side.connection.receive_reset(0, code, NOW);
    side.collect();
    assert!(side.events.is_empty() && side.connection.stream_count() == 0);
}

/// RFC 9114 §5.2.
#[test]
fn going_away_serves_what_came_before() {
    let mut side = Side::new();
    side.open(0, &headers(GET));
    side.end(0);
    side.connection.go_away(Farewell::Warn);
    side.open(4, &headers(GET));
    side.end(4);
    side.connection.go_away(Farewell::Last);
    side.connection.go_away(Farewell::Last);
    side.open(8, &headers(GET));
    side.end(8);
    assert_eq!(side.events.len(), 2, "the last one is not served");
    let sent = side.sent(8);
    assert_eq!(sent.reset, Some(Code::REQUEST_REJECTED));
    assert_eq!(sent.stop, Some(Code::REQUEST_REJECTED));
    let control = side.sent(3).bytes.clone();
    let begin = [0, 4, 6, 1, 0x50, 0, 7, 0x40, 0x80];
    assert_eq!(control[..begin.len()], begin);
    let end = [
        7, 8, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xfc, 7, 1, 8,
    ];
    assert!(control.ends_with(&end), "{control:x?}");
    for stream in [0, 4] {
        assert!(!side.connection.is_finished());
        side.connection
            .send_answer(stream, (204, End::WithHead), |_| {});
        side.connection.release(stream);
        side.flush();
    }
    assert!(side.connection.is_finished());
}

/// RFC 9204 §2.1.2, §2.2.1: a block that waits, its acknowledgement, and what came behind it.
#[test]
fn blocks_wait_for_their_insertions() {
    let settings = [0x3f, 0xbd, 0x01];
    let inserts = [&[0xc0, 1, b'a'][..], &[0xc1, 2, b'/', b'x']].concat();
    // Method and scheme by rows, authority and path behind the base.
    let block = [&[0x03, 0x81, 0xc0 | 17, 0xc0 | 23][..], &[0x10, 0x11]].concat();
    let request = [frame_of(1, &block), frame_of(0, b"body")].concat();
    let mut side = Side::new();
    side.open(6, &[2]);
    side.give(6, &settings);
    side.open(0, &request);
    side.end(0);
    assert!(side.events.is_empty() && !side.connection.wants_input(0));
    side.give(6, &inserts[..5]);
    assert!(side.events.is_empty());
    side.give(6, &inserts[5..]);
    let [
        Event::Request { head, .. },
        Event::Data { bytes, .. },
        Event::End { .. },
    ] = &side.events[..]
    else {
        panic!("{:?}", side.events);
    };
    assert_eq!(head.line(), b"GET /x HTTP/3.0");
    assert_eq!(bytes, "body");
    assert_eq!(side.sent(7).bytes, [3, 0x80], "it says of both insertions");
    // One that is taken back is cancelled, and insertions that no block needed are told of.
    let block = [&[0x04, 0x00, 0xc0 | 17, 0xc0 | 23][..], &[0x80, 0x81]].concat();
    side.open(4, &frame_of(1, &block));
    side.connection.receive_reset(4, Code::NO_ERROR, NOW);
    side.give(6, &[0x01]);
    assert_eq!(side.sent(7).bytes, [3, 0x80, 0x44, 0x01]);
    assert_eq!(side.connection.stream_count(), 1);

    let mut side = Side::with(Config {
        blocked_streams: 1,
        ..Config::default()
    });
    side.open(6, &[2]);
    side.give(6, &settings);
    side.open(0, &request);
    assert_eq!(side.failure(), None);
    side.open(4, &request);
    assert_eq!(side.failure(), Some(Code::DECOMPRESSION_FAILED));
    assert_eq!(Fault::TooManyBlocked.flood(), Some(Flood::BlockedStreams));
}

/// A block is read as soon as it can be: what its entries are does not depend on the instructions
/// that came in one piece with them.
#[test]
fn a_block_is_read_before_a_later_instruction_evicts_what_it_needs() {
    let block = [&[0x03, 0x81, 0xc0 | 17, 0xc0 | 23][..], &[0x10, 0x11]].concat();
    let mut side = Side::new();
    side.open(6, &[2, 0x3f, 0xbd, 0x01]);
    side.open(0, &frame_of(1, &block));
    side.end(0);
    let inserts = [&[0xc0, 1, b'a'][..], &[0xc1, 2, b'/', b'x']].concat();
    // The table is emptied, and gets room for others.
    let pieces = [&inserts[..], &[0x20, 0x3f, 0xbd, 0x01]].concat();
    side.give(6, &[&pieces[..], &inserts].concat());
    assert!(
        matches!(&side.events[..], [Event::Request { head, .. }] if head.line() == b"GET /x HTTP/3.0")
    );
    side.open(4, &frame_of(1, &[&[0x05, 0x81][..], &block[2..]].concat()));
    side.end(4);
    assert_eq!(side.failure(), None, "instructions behind it were obeyed");
}

/// RFC 9204 §2.2.3, §6.
#[test]
fn what_cannot_be_obeyed_or_read_ends_the_connection() {
    for (kind, bytes, code) in [
        (2, &[0x3f, 0xff, 0x7f][..], Code::ENCODER_STREAM_ERROR),
        (2, &[0x00], Code::ENCODER_STREAM_ERROR),
        (3, &[0x80], Code::DECODER_STREAM_ERROR),
        (3, &[0x00], Code::DECODER_STREAM_ERROR),
    ] {
        let mut side = Side::new();
        side.open(6, &[kind]);
        side.give(6, bytes);
        assert_eq!(side.failure(), Some(code), "{bytes:x?}");
    }
    let mut side = Side::new();
    side.open(0, &frame_of(1, &[0, 0, 0x80]));
    assert_eq!(side.failure(), Some(Code::DECOMPRESSION_FAILED));
    assert!(side.connection.is_finished());
}

/// RFC 9218 §7, §10: a frame counts more than the field, wherever it comes.
#[test]
fn urgent_answers_go_first() {
    let mut side = Side::new();
    side.give(2, &frame_of(0xf_0700, b"\x08u=0"));
    for (stream, wish) in [(0, "u=5"), (4, "u=1"), (8, "u=6")] {
        side.open(stream, &get_with(&[("priority", wish)]));
        side.end(stream);
        side.connection
            .send_answer(stream, (200, End::Later), |_| {});
        side.connection.push(stream, Bytes::from(vec![0; 60_000]));
        side.connection.finish(stream, None);
    }
    side.flush();
    side.pipes.turns.retain(|stream| stream % 4 == 0);
    side.pipes.turns.dedup();
    assert_eq!(side.pipes.turns, [8, 4, 0]);
    // Those that take turns have one each.
    let mut side = Side::new();
    for stream in [0, 4] {
        side.open(stream, &headers(GET));
        side.end(stream);
        side.connection
            .send_answer(stream, (200, End::Later), |_| {});
        side.connection.push(stream, Bytes::from(vec![0; 40_000]));
        side.connection.finish(stream, None);
    }
    side.flush();
    side.pipes.turns.retain(|stream| stream % 4 == 0);
    assert_eq!(side.pipes.turns, [0, 4, 0, 4, 0, 4]);
}

/// RFC 9218 §7.2: a request beyond the limit of streams is none that can come.
#[test]
fn a_priority_is_of_a_request_within_the_limit() {
    let update = |id: u64| {
        let mut payload = BytesMut::new();
        frame::write_integer(&mut payload, id);
        payload.extend_from_slice(b"u=0");
        frame_of(0xf_0700, &payload)
    };
    for (id, failure) in [(4 * 127, None), (4 * 128, Some(Code::ID_ERROR))] {
        let mut side = Side::new();
        side.give(2, &update(id));
        assert_eq!(side.failure(), failure, "{id}");
        let mut side = Side::new();
        side.open(0, &headers(GET));
        side.give(2, &update(id + 4));
        assert_eq!(side.failure(), failure, "{id}");
    }
}

#[test]
fn a_body_that_nobody_takes_is_not_read_on() {
    let mut side = Side::with(Config {
        stream_window: 1000,
        ..Config::default()
    });
    side.open(0, &get_with(&[("content-length", "5000")]));
    side.give(0, &frame_of(0, &[0; 900]));
    assert!(side.connection.wants_input(0));
    side.give(0, &frame_of(0, &[0; 100]));
    assert!(!side.connection.wants_input(0));
    side.events.clear();
    side.connection.consume(0, 1);
    side.connection.consume(0, 1);
    side.collect();
    assert!(matches!(side.events[..], [Event::Wanted { stream: 0 }]));
    assert!(side.connection.wants_input(0));
}

#[test]
fn an_answer_waits_while_the_transport_has_no_room() {
    let mut side = Side::new();
    side.pipes.room = 100;
    side.open(0, &headers(GET));
    side.end(0);
    side.connection.send_answer(0, (200, End::Later), |_| {});
    let room = side.connection.room(0);
    side.connection.push(0, Bytes::from(vec![1; room]));
    assert_eq!(side.connection.room(0), 0);
    side.connection.finish(0, None);
    side.events.clear();
    side.flush();
    assert!(side.events.is_empty() && !side.connection.wants_flush());
    side.pipes.room = usize::MAX;
    side.flush();
    assert!(side.events.is_empty(), "it was not said that there is room");
    side.connection.writable(0);
    assert!(side.connection.wants_flush());
    assert_eq!(side.sent(0).bytes.len(), 5 + 3 + 2 + room);
    assert!(matches!(side.events[..], [Event::Sent { stream: 0 }]));
}

#[test]
fn who_waits_for_room_is_told_of_it() {
    let mut side = Side::new();
    side.open(0, &headers(GET));
    side.end(0);
    side.events.clear();
    side.connection.send_answer(0, (200, End::Later), |_| {});
    let room = side.connection.room(0);
    side.connection.push(0, Bytes::from(vec![1; room]));
    assert_eq!(side.connection.room(0), 0);
    side.flush();
    assert!(matches!(side.events[..], [Event::Room { stream: 0 }]));
    assert!(side.connection.room(0) > 0);
}

/// RFC 9114 §4.1.1: an answer that nobody wants is reset, whatever had come of its request before.
#[test]
fn answers_that_are_not_wanted_are_reset_before_they_begin() {
    let code = Code::REQUEST_CANCELLED;
    for (what, has_come, has_end) in [
        ("nothing", &[][..], false),
        ("a part of the head", &headers(GET)[..7], false),
        ("the head", &headers(GET), false),
        ("all", &headers(GET), true),
    ] {
        let mut side = Side::new();
        side.connection.opened(0, NOW);
        side.connection
            .receive(0, Bytes::copy_from_slice(has_come), NOW);
        if has_end {
            side.connection.receive_end(0, NOW);
        }
        side.connection.receive_stop(0, code, NOW);
        side.collect();
        let sent = side.sent(0);
        assert_eq!(sent.reset, Some(code), "{what}");
        assert_eq!(sent.stop.is_none(), has_end, "{what}");
        side.connection.release(0);
        assert_eq!(side.connection.stream_count(), 0, "{what}");
        assert_eq!(side.failure(), None);
    }
}
