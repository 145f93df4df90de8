//! Frames and states of streams: what RFC 9113 §3 to §6 lets nobody do.

use super::*;

/// RFC 9113 §3.4: a server tells its settings first, and a window if it has a larger one.
#[test]
fn a_server_begins_with_its_settings() {
    let mut played = Played::with(Role::Server, Config::default());
    let frames = played.frames();
    assert_eq!(
        (frames[0].kind, frames[0].flags, frames[0].stream),
        (Kind::Settings, 0, 0)
    );
    assert_eq!(frames[0].payload[..6], [0, 3, 0, 0, 0, 128]);
    assert_eq!((frames[1].kind, frames[1].stream), (Kind::WindowUpdate, 0));
    assert_eq!(frames[1].number(), (1 << 20) - 65_535);
}

/// RFC 9113 §3.4, §6.5.2: a client sends the preface and its settings, and wants no pushes.
#[test]
fn a_client_begins_with_the_preface() {
    let mut connection = Connection::new(Role::Client, Config::default());
    let mut written = BytesMut::new();
    while let Some(piece) = connection.output().take() {
        written.put_slice(&piece);
    }
    assert!(written.starts_with(PREFACE));
    let frames = take_frames(&mut written);
    assert_eq!(frames[0].kind, Kind::Settings);
    assert_eq!(frames[0].payload[..6], [0, 2, 0, 0, 0, 0]);
}

/// RFC 9113 §3.4.
#[test]
fn what_does_not_begin_as_http2_is_refused_at_its_first_wrong_byte() {
    for text in ["GET / HTTP/1.1", "PRI * HTTP/2.0\r\n\r\nXX", "x"] {
        let mut played = Played::with(Role::Server, Config::default());
        played.input.clear();
        played.input.extend_from_slice(text.as_bytes());
        played.assert_fails(Fault::Preface);
    }
    let mut played = Played::with(Role::Server, Config::default());
    played.input.truncate(23);
    assert!(played.events().is_empty());
}

/// RFC 9113 §3.4: SETTINGS come first. nginx bears it if those of a client do not.
#[test]
fn another_frame_before_settings_is_refused_to_servers() {
    let mut played = Played::with(Role::Client, Config::default());
    played.send(6, 0, 0, &[0; 8]);
    played.assert_fails(Fault::Preface);
    let mut played = Played::with(Role::Server, Config::default());
    played.send(6, 0, 0, &[0; 8]);
    assert!(played.events().is_empty());
}

/// RFC 9113 §4.2, §6: lengths and streams that a kind cannot have; §8.4 PUSH_PROMISE.
#[test]
fn frames_that_cannot_be_are_errors_of_the_connection() {
    for (kind, flags, stream, len, fault) in [
        (0, 0, 0, 1, Fault::StreamId),
        (0, 8, 1, 0, Fault::FrameLength),
        (1, 5, 0, 1, Fault::StreamId),
        (1, 0x2d, 1, 5, Fault::FrameLength),
        (2, 0, 0, 5, Fault::StreamId),
        (2, 0, 1, 4, Fault::FrameLength),
        (3, 0, 0, 4, Fault::StreamId),
        (3, 0, 1, 3, Fault::FrameLength),
        (4, 0, 1, 0, Fault::StreamId),
        (4, 0, 0, 5, Fault::FrameLength),
        (4, 1, 0, 6, Fault::FrameLength),
        (5, 4, 1, 4, Fault::Push),
        (6, 0, 1, 8, Fault::StreamId),
        (6, 0, 0, 7, Fault::FrameLength),
        (7, 0, 1, 8, Fault::StreamId),
        (7, 0, 0, 7, Fault::FrameLength),
        (8, 0, 0, 3, Fault::FrameLength),
        (9, 4, 1, 1, Fault::UnexpectedContinuation),
    ] {
        let mut played = Played::server(Config::default());
        played.send(kind, flags, stream, &vec![0; len]);
        played.assert_fails(fault);
    }
}

/// RFC 9113 §4.2.
#[test]
fn a_frame_is_no_longer_than_what_was_told() {
    let config = Config {
        max_frame_len: 16_384,
        ..Config::default()
    };
    let mut played = Played::server(config);
    played.ask(1, End::Later);
    played.data(1, &[0; 16_384], End::Later);
    assert_eq!(played.events().len(), 2);
    played.data(1, &[0; 16_385], End::Later);
    played.assert_fails(Fault::FrameTooLong);
}

/// RFC 9113 §4.1, §5.5: kinds, flags and settings that nobody knows are ignored.
#[test]
fn what_is_not_known_is_ignored() {
    let mut played = Played::server(Config::default());
    played.send(0x0a, 0xff, 0, b"payload");
    played.send(0xfe, 0, 9, &[0; 20_000]);
    played.send(4, 0, 0, &[0xaa, 0xbb, 0, 0, 0, 1]);
    played.send(6, 0xfe, 0, b"SEE-THIS");
    let (events, frames) = played.turn();
    assert!(matches!(events[..], [Event::SettingsChanged]));
    assert_eq!(frames[1].payload, b"SEE-THIS");
    assert_eq!(frames[1].flags, 1);
}

/// RFC 9113 §6.1, §6.2.
#[test]
fn more_padding_than_payload_is_refused() {
    for (kind, flags) in [(0, 8), (1, 0xd)] {
        let mut played = Played::server(Config::default());
        if kind == 0 {
            played.ask(1, End::Later);
        }
        played.send(kind, flags, 1, &[4, 0x82, 0x86, 0x84]);
        played.assert_fails(Fault::Padding);
    }
}

/// RFC 9113 §6.1, §6.2, §6.9.1: padding is no part of what is given out, and counts for windows.
#[test]
fn padding_is_cut_off_and_counted() {
    let mut played = Played::server(Config::default());
    let mut block = vec![42];
    block.extend(played.request_block(&[]));
    block.extend([0; 42]);
    played.send(1, 0xc, 1, &block);
    played.send(0, 9, 1, &[3, b'a', b'b', 0, 0, 0]);
    let events = played.events();
    assert!(matches!(events[0], Event::Request { stream: 1, .. }));
    assert!(matches!(&events[1], Event::Data { bytes, .. } if bytes == "ab"));
    assert!(matches!(events[2], Event::End { stream: 1, .. }));
}

/// RFC 9113 §5.1: on an idle stream nothing but HEADERS and PRIORITY.
#[test]
fn frames_for_idle_streams_are_refused() {
    for (kind, len) in [(0, 1), (3, 4), (8, 4)] {
        for stream in [1, 2] {
            let mut played = Played::server(Config::default());
            played.send(kind, 0, stream, &vec![1; len]);
            played.assert_fails(Fault::IdleStream);
        }
    }
    let mut played = Played::server(Config::default());
    played.send(2, 0, 5, &[0, 0, 0, 3, 9]);
    assert!(played.turn().1.is_empty());
}

/// RFC 9113 §5.1.1: streams of a client are odd and grow.
#[test]
fn numbers_of_streams_are_odd_and_grow() {
    for (streams, last) in [(&[2][..], 0), (&[3, 1], 3), (&[1, 1], 1)] {
        let mut played = Played::server(Config::default());
        for stream in &streams[..streams.len() - 1] {
            played.ask(*stream, End::WithHead);
            played.events();
            played.answer(*stream, b"");
            played.frames();
            played.connection.release(*stream);
        }
        played.ask(streams[streams.len() - 1], End::WithHead);
        let (events, frames) = played.turn();
        assert!(matches!(
            events.last(),
            Some(Event::Failed(Fault::BackwardStream))
        ));
        let away = frames.last().unwrap();
        assert_eq!((away.code(), away.number()), (Code::PROTOCOL_ERROR, last));
    }
}

/// RFC 9113 §5.1: closed by RST_STREAM.
#[test]
fn a_head_behind_a_reset_by_the_peer_is_an_error_of_the_connection() {
    for is_answered in [true, false] {
        let mut played = Played::server(Config::default());
        played.ask(1, End::WithHead);
        played.events();
        if is_answered {
            played.answer(1, b"");
            played.frames();
            played.connection.release(1);
        }
        played.send(3, 0, 1, &[0, 0, 0, 8]);
        played.ask(1, End::WithHead);
        let (events, frames) = played.turn();
        assert!(matches!(
            events.last(),
            Some(Event::Failed(Fault::ClosedStream))
        ));
        assert_eq!(frames.last().unwrap().code(), Code::STREAM_CLOSED);
    }
}

/// RFC 9113 §5.1: half-closed (remote): STREAM_CLOSED for all but a few frames.
#[test]
fn frames_behind_the_end_of_a_stream_are_an_error_of_it() {
    for kind in [0, 1] {
        let mut played = Played::server(Config::default());
        played.ask(1, End::WithHead);
        played.events();
        if kind == 0 {
            played.data(1, b"x", End::Later);
        } else {
            played.ask(1, End::WithHead);
        }
        played.assert_breaks(1, Fault::ClosedStream);
    }
    let mut played = Played::server(Config::default());
    played.ask(1, End::WithHead);
    played.events();
    for (kind, payload) in [(8, &[0, 0, 0, 1][..]), (2, &[0, 0, 0, 3, 1])] {
        played.send(kind, 0, 1, payload);
        assert!(played.turn().1.is_empty());
    }
}

/// RFC 9113 §5.1: closed: late WINDOW_UPDATE and RST_STREAM are ignored, DATA is not.
#[test]
fn late_frames_of_a_stream_that_ended_are_told_apart() {
    let closed = || {
        let mut played = Played::server(Config::default());
        played.ask(1, End::WithHead);
        played.events();
        played.answer(1, b"x");
        played.frames();
        played.events();
        played.connection.release(1);
        played
    };
    let mut played = closed();
    assert_eq!(played.connection.stream_count(), 0);
    played.send(8, 0, 1, &[0, 0, 0, 1]);
    played.send(3, 0, 1, &[0, 0, 0, 8]);
    let (events, frames) = played.turn();
    assert!(events.is_empty() && frames.is_empty());
    let mut played = closed();
    played.data(1, b"x", End::Later);
    played.assert_fails(Fault::ClosedStream);
}

/// RFC 9113 §5.1: what comes for a stream that we have reset is ignored, read for its effects on
/// the table and the window only.
#[test]
fn late_frames_of_a_stream_that_we_reset_are_ignored() {
    for is_released in [false, true] {
        let mut played = Played::server(Config::default());
        played.ask(1, End::Later);
        played.events();
        played.connection.reset(1, Code::CANCEL);
        if is_released {
            played.connection.release(1);
        }
        played.frames();
        let window = played.connection.receive;
        played.data(1, &[0; 100], End::Later);
        let block = played.block(&[("x-a", "1"), ("server", "b")]);
        played.send(1, HEADERS_END, 1, &block);
        played.send(3, 0, 1, &[0, 0, 0, 8]);
        played.ask_with(3, End::WithHead, &[("server", "b")]);
        let (events, frames) = played.turn();
        assert!(matches!(&events[..], [Event::Request { head, .. }]
            if head.get(Known::Server) == Some(b"b")));
        assert!(frames.is_empty(), "{frames:?}");
        assert_eq!(played.connection.receive.held(), window.held());
    }
}

/// RFC 9113 §6.4: a stream that the peer has reset is over.
#[test]
fn a_stream_that_is_reset_by_the_peer_is_gone() {
    let mut played = Played::server(Config::default());
    played.ask(1, End::Later);
    played.events();
    played.answer(1, b"body");
    played.send(3, 0, 1, &[0, 0, 0, 8]);
    let events = played.events();
    assert!(matches!(
        events[..],
        [Event::Gone {
            stream: 1,
            why: Gone::ByPeer(Code::CANCEL)
        }]
    ));
    assert_eq!(played.connection.stream_count(), 1, "its exchange runs");
    assert_eq!(played.connection.room(1), 0);
    played.connection.push(1, "more".into());
    let frames = played.frames();
    assert!(
        frames.iter().all(|frame| frame.kind == Kind::Headers),
        "{frames:?}"
    );
    played.connection.release(1);
    assert_eq!(played.connection.stream_count(), 0);
    assert!(played.frames().is_empty(), "no reset answers a reset");
    played.data(1, b"x", End::Later);
    played.assert_fails(Fault::ClosedStream);
}

/// RFC 9113 §6.10: a block is one run of frames of one stream.
#[test]
fn nothing_comes_between_the_frames_of_a_block() {
    for (kind, flags, stream, len) in [
        (0, 0, 1, 1),
        (1, 4, 3, 1),
        (6, 0, 0, 8),
        (9, 4, 3, 1),
        (0xaa, 0, 0, 1),
    ] {
        let mut played = Played::server(Config::default());
        let block = played.request_block(&[]);
        played.send(1, 1, 1, &block[..3]);
        played.send(kind, flags, stream, &vec![0; len]);
        played.assert_fails(Fault::ContinuationExpected);
    }
}

/// RFC 9113 §4.3, §6.10: a block may be cut anywhere, and padded in its first frame.
#[test]
fn a_block_is_the_same_however_it_is_cut() {
    let mut encoder = Played::server(Config::default());
    let block = encoder.request_block(&[("x-a", "abcdefghijkl")]);
    for cuts in [&[0][..], &[1], &[2, 3, 9], &[5, 5], &[block.len()]] {
        let mut played = Played::server(Config::default());
        let mut padded = vec![7];
        padded.extend(&block[..cuts[0]]);
        padded.extend([0; 7]);
        played.send(1, 9, 1, &padded);
        let mut from = cuts[0];
        for to in &cuts[1..] {
            played.send(9, 0, 1, &block[from..*to]);
            from = *to;
        }
        assert_eq!(played.connection.unfinished_head(), None);
        assert!(played.events().is_empty());
        assert_eq!(played.connection.unfinished_head(), Some(1));
        played.send(9, 4, 1, &block[from..]);
        let events = played.events();
        assert!(
            matches!(&events[..], [Event::Request { head, body: BodyLength::None, .. }]
            if head.find(b"x-a") == Some(b"abcdefghijkl"))
        );
        assert_eq!(played.connection.unfinished_head(), None);
    }
}

/// RFC 9113 §4.3: COMPRESSION_ERROR ends the connection, also for a stream that is refused.
#[test]
fn a_block_that_cannot_be_read_is_an_error_of_the_connection() {
    use super::super::super::hpack::decode::BadBlock;
    for (block, bad) in [
        (&[0xff][..], BadBlock::Truncated),
        (&[0x42, 0xff], BadBlock::Truncated),
        (&[0xff, 0xff, 0xff, 0xff], BadBlock::LongInteger),
        (&[0xbe], BadBlock::BadIndex),
        (&[0x80], BadBlock::BadIndex),
        (&[0x82, 0x20], BadBlock::BadSizeUpdate),
    ] {
        for most in [0, 10] {
            let config = Config {
                max_concurrent_streams: most,
                ..Config::default()
            };
            let mut played = Played::server(config);
            played.send(1, 5, 1, block);
            played.assert_fails(Fault::Block(bad));
        }
    }
    assert_eq!(
        Fault::Block(BadBlock::BadIndex).code(),
        Code::COMPRESSION_ERROR
    );
    // nginx.
    assert_eq!(
        Fault::Block(BadBlock::Truncated).code(),
        Code::FRAME_SIZE_ERROR
    );
}

/// RFC 9113 §5.3.1 has it no more; nginx: PROTOCOL_ERROR.
#[test]
fn a_stream_that_depends_on_itself_is_refused() {
    let mut played = Played::server(Config::default());
    played.send(2, 0, 5, &[0x80, 0, 0, 5, 1]);
    played.assert_fails(Fault::SelfDependency);
    let mut played = Played::server(Config::default());
    let mut block = vec![0, 0, 0, 1, 9];
    block.extend(played.request_block(&[]));
    played.send(1, 0x25, 1, &block);
    played.assert_fails(Fault::SelfDependency);
    let mut played = Played::server(Config::default());
    let mut block = vec![2, 0, 0, 0, 3, 9];
    block.extend(played.request_block(&[]));
    block.extend([0, 0]);
    played.send(1, 0x2d, 1, &block);
    assert!(matches!(
        played.events()[..],
        [Event::Request { stream: 1, .. }]
    ));
}

/// RFC 9113 §6.5.3: settings are acknowledged; §6.5.2: not if they are wrong.
#[test]
fn settings_are_acknowledged_once_they_are_obeyed() {
    let mut played = Played::server(Config::default());
    played.send(4, 0, 0, &[0, 4, 0, 0, 0, 9]);
    assert_eq!(shape(&played.turn().1), [(Kind::Settings, 0, 0, 1)]);
    assert_eq!(played.connection.peer().initial_window, 9);
    for (setting, value, fault) in [
        (2, 2, Fault::SettingValue),
        (4, 1 << 31, Fault::SettingWindow),
        (5, 42, Fault::SettingValue),
    ] {
        let mut played = Played::server(Config::default());
        let mut row = vec![0, setting];
        row.extend(u32::to_be_bytes(value));
        played.send(4, 0, 0, &row);
        let (_, frames) = played.turn();
        assert!(
            frames.iter().all(|frame| frame.kind == Kind::GoAway),
            "{frames:?}"
        );
        assert_eq!(frames[0].code(), fault.code());
    }
}

/// RFC 9113 §6.7.
#[test]
fn a_ping_is_answered_by_its_payload_and_an_answer_is_not() {
    let mut played = Played::server(Config::default());
    played.send(6, 0, 0, b"SEE-THIS");
    played.send(6, 1, 0, b"8 bytes.");
    let (events, frames) = played.turn();
    assert!(matches!(&events[..], [Event::Pong(payload)] if payload == b"8 bytes."));
    assert_eq!(shape(&frames), [(Kind::Ping, 0, 8, 1)]);
    assert_eq!(frames[0].payload, b"SEE-THIS");
    played.connection.ping(*b"and mine");
    assert_eq!(shape(&played.frames()), [(Kind::Ping, 0, 8, 0)]);
}

/// RFC 9113 §6.9, §6.9.1.
#[test]
fn window_updates_of_nothing_and_beyond_the_most_are_refused() {
    let update = |stream, increment: u32| {
        let mut played = Played::server(Config::default());
        played.ask(1, End::WithHead);
        played.events();
        played.send(8, 0, stream, &increment.to_be_bytes());
        played
    };
    update(0, 0).assert_fails(Fault::ZeroUpdate);
    update(0, (1 << 31) - 1).assert_fails(Fault::WindowOverflow);
    update(1, 0).assert_breaks(1, Fault::ZeroUpdate);
    update(1, (1 << 31) - 1).assert_breaks(1, Fault::WindowOverflow);
    assert!(update(1, (1 << 31) - 1 - 65_535).turn().1.is_empty());
    // The reserved bit is ignored.
    assert!(update(0, (1 << 31) | 1).turn().1.is_empty());
}

/// The events do not depend on how the input was cut.
#[test]
fn frames_are_read_alike_however_they_are_cut() {
    let mut recorded = Played::server(Config::default());
    for stream in [1, 3] {
        recorded.ask_with(stream, End::Later, &[("x-long", &"y".repeat(300))]);
        recorded.data(stream, &[b'z'; 1500], End::Later);
        recorded.send(0, 8, stream, &[5, 1, 2, 3, 0, 0, 0, 0, 0]);
        let block = recorded.block(&[("x-trailer", "1")]);
        recorded.send(1, 1, stream, &block[..2]);
        recorded.send(9, 4, stream, &block[2..]);
        recorded.send(7, 0, 0, &[0; 20]);
        recorded.send(4, 0, 0, &[0, 4, 0, 1, 0, 0]);
        recorded.send(0xaa, 0, 0, &[0; 50]);
    }
    let bytes = recorded.input.split();
    let told = |step: usize| {
        let mut played = Played::server(Config::default());
        let (mut data, mut others) = (Vec::new(), Vec::new());
        for piece in bytes.chunks(step) {
            played.input.extend_from_slice(piece);
            for event in played.events() {
                match event {
                    Event::Data { stream, bytes } => data.push((stream, bytes)),
                    Event::Request { stream, head, .. } => {
                        others.push(format!("{stream} {:?}", head.find(b"x-long")));
                    }
                    other => others.push(format!("{other:?}")),
                }
            }
        }
        let of = |id| -> Vec<u8> {
            let of_id = data.iter().filter(|(stream, _)| *stream == id);
            of_id.flat_map(|(_, bytes)| bytes.to_vec()).collect()
        };
        (others, of(1), of(3))
    };
    let whole = told(usize::MAX);
    assert_eq!((whole.1.len(), whole.2.len()), (1503, 1503));
    for step in [1, 2, 3, 8, 9, 10, 100, 1000] {
        assert_eq!(told(step), whole, "{step}");
    }
}
