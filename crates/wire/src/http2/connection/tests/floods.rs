//! Floods: what costs a peer little has an end.

use super::*;

/// Repeats frames until the connection fails.
fn flood(played: &mut Played, most: usize, mut send: impl FnMut(&mut Played, u32)) -> Fault {
    for turn in 0..most {
        send(played, turn as u32);
        for event in played.events() {
            match event {
                Event::Failed(fault) => return fault,
                Event::Request { stream, .. } | Event::Refused { stream, .. } => {
                    played.connection.release(stream);
                }
                Event::Gone { stream, .. } => played.connection.release(stream),
                _ => {}
            }
        }
        played.frames();
    }
    panic!("{most} are not too many");
}

/// The rapid reset: streams that are reset as soon as they have come.
#[test]
fn streams_that_are_reset_at_once_are_too_many_some_time() {
    let mut played = Played::server(Config::default());
    let fault = flood(&mut played, 2000, |played, turn| {
        let stream = 2 * turn + 1;
        played.ask(stream, End::Later);
        played.send(3, 0, stream, &[0, 0, 0, 8]);
    });
    assert!(matches!(fault, Fault::Flood(_)), "{fault}");
    assert_eq!(fault.code(), Code::ENHANCE_YOUR_CALM);
}

/// A client that leaves a page now and then is none.
#[test]
fn streams_that_are_reset_now_and_then_are_no_flood() {
    let mut played = Played::server(Config::default());
    for turn in 0..2000 {
        let stream = 2 * turn + 1;
        played.ask(stream, End::WithHead);
        played.send(3, 0, stream, &[0, 0, 0, 8]);
        let events = played.events();
        assert!(!events.iter().any(|event| matches!(event, Event::Failed(_))));
        played.connection.release(stream);
        played.now += Duration::from_millis(20);
    }
}

/// Streams that are reset by the peer count as long as their exchange runs.
#[test]
fn a_stream_that_is_reset_counts_until_it_is_released() {
    let config = Config {
        max_concurrent_streams: 2,
        ..Config::default()
    };
    let mut played = Played::server(config);
    for stream in [1, 3] {
        played.ask(stream, End::WithHead);
        played.send(3, 0, stream, &[0, 0, 0, 8]);
    }
    played.events();
    played.ask(5, End::WithHead);
    let (events, frames) = played.turn();
    assert!(events.is_empty());
    assert_eq!(frames[0].code(), Code::REFUSED_STREAM);
    played.connection.release(1);
    played.ask(7, End::WithHead);
    assert!(matches!(
        played.events()[..],
        [Event::Request { stream: 7, .. }]
    ));
}

/// RFC 9113 §10.5; nginx: refused streams end the connection some time.
#[test]
fn refused_streams_are_too_many_some_time() {
    let config = Config {
        max_concurrent_streams: 1,
        ..Config::default()
    };
    let mut played = Played::server(config);
    played.ask(1, End::WithHead);
    played.events();
    for turn in 1..=101_u32 {
        played.ask(2 * turn + 1, End::WithHead);
        assert!(played.events().is_empty(), "{turn}");
        played.connection.counts.new_streams = 0;
    }
    played.ask(301, End::WithHead);
    played.ask(303, End::WithHead);
    played.assert_fails(Fault::TooManyRefused);
    assert_eq!(Fault::TooManyRefused.code(), Code::NO_ERROR);
}

/// nginx: no more new streams in one read than twice those that may be at once.
#[test]
fn new_streams_in_one_read_are_bounded() {
    let config = Config {
        max_concurrent_streams: 3,
        ..Config::default()
    };
    let mut played = Played::server(config);
    for turn in 0..10 {
        played.ask(2 * turn + 1, End::WithHead);
    }
    let mut served = 0;
    while let Some(event) = played.connection.next_event(&mut played.input, NOW) {
        if let Event::Request { stream, .. } = event {
            served += 1;
            played
                .connection
                .send_answer(stream, (200, End::WithHead), |_| {});
            played.connection.release(stream);
        }
    }
    assert_eq!(served, 6);
    let frames = played.frames();
    let refused = frames.iter().filter(|frame| frame.kind == Kind::RstStream);
    assert_eq!(refused.count(), 4);
    played.ask(101, End::WithHead);
    assert!(
        matches!(played.events()[0], Event::Request { .. }),
        "the next read"
    );
}

/// RFC 9113 §10.5: SETTINGS, PING, PRIORITY, frames of no kind, empty DATA, WINDOW_UPDATE.
#[test]
fn frames_that_do_nothing_are_too_many_some_time() {
    for (kind, payload) in [
        (4, &[][..]),
        (6, &[0; 8]),
        (2, &[0, 0, 0, 9, 1]),
        (0xaa, &[]),
        (0x10, &[0, 0, 0, 1, b'u', b'=', b'1']),
        (8, &[0, 0, 0, 1]),
        (0, &[]),
        (0, b"x"),
    ] {
        let mut played = Played::server(Config {
            stream_window: 1 << 20,
            ..Config::default()
        });
        played.ask(1, End::Later);
        played.events();
        let stream = if matches!(kind, 0 | 2) { 1 } else { 0 };
        let fault = flood(&mut played, 200_000, |played, _| {
            played.send(kind, 0, stream, payload);
        });
        assert!(matches!(fault, Fault::Flood(_)), "{kind} {fault}");
    }
}

/// Acknowledgements that the peer does not read are bounded.
#[test]
fn a_peer_that_does_not_read_gets_no_more_acknowledgements_some_time() {
    let mut played = Played::server(Config::default());
    let mut most = 0;
    for turn in 0..5000 {
        played.now = Duration::from_secs(turn);
        played.send(6, 0, 0, &[0; 8]);
        let events = played.events();
        most = most.max(played.connection.output().len());
        if let [Event::Failed(Fault::Flood(_))] = events[..] {
            assert!(most < 20_000, "{most}");
            return;
        }
    }
    panic!("5000 acknowledgements wait");
}

/// The CONTINUATION flood: a block has an end, by frames and by bytes.
#[test]
fn a_block_without_an_end_is_refused() {
    let mut played = Played::server(Config::default());
    played.send(1, 1, 1, &[0x82]);
    for _ in 0..100 {
        played.send(9, 0, 1, &[]);
    }
    played.assert_fails(Fault::Flood("CONTINUATION frames"));
    let mut played = Played::server(Config::default());
    played.send(1, 1, 1, &[0x82]);
    for _ in 0..20 {
        played.send(9, 0, 1, &[0; 16_000]);
    }
    played.assert_fails(Fault::LongBlock);
    assert_eq!(Fault::LongBlock.code(), Code::ENHANCE_YOUR_CALM);
}

/// nginx: `large_client_header_buffers`, as the length of a field and of all fields.
#[test]
fn long_fields_and_long_heads_are_errors_of_the_connection() {
    use super::super::super::hpack::decode::BadBlock;
    for (name, value, bad) in [
        ("x".repeat(513), 5, BadBlock::LongText),
        ("x".to_owned(), 513, BadBlock::LongText),
        ("x".repeat(512), 512, BadBlock::LongList),
    ] {
        let mut config = Config::default();
        config.rules.limits.line = 512;
        config.rules.limits.total = 1024;
        let mut played = Played::server(config);
        // '{' is not coded.
        let value = "{".repeat(value);
        played.ask_with(1, End::WithHead, &[(&name.replace('x', "~"), &value)]);
        played.assert_fails(Fault::Block(bad));
    }
    assert_eq!(
        Fault::Block(BadBlock::LongList).code(),
        Code::ENHANCE_YOUR_CALM
    );
}

/// Streams that we reset for the peer's faults are bounded.
#[test]
fn faulty_streams_are_too_many_some_time() {
    let mut played = Played::server(Config::default());
    let fault = flood(&mut played, 2000, |played, turn| {
        let stream = 2 * turn + 1;
        played.ask(stream, End::WithHead);
        played.data(stream, b"x", End::Later);
    });
    assert!(matches!(fault, Fault::Flood("faulty streams")), "{fault}");
}

/// Output that waits stops the reading.
#[test]
fn nothing_is_read_while_too_much_waits() {
    let mut played = Played::server(Config::default());
    played.connection.send = SendWindow::new(1 << 30);
    played.send(4, 0, 0, &[0, 4, 0x40, 0, 0, 0]);
    played.ask(1, End::WithHead);
    played.events();
    played.connection.send_answer(1, (200, End::Later), |_| {});
    assert!(played.connection.wants_input());
    played.connection.push(1, Bytes::from(vec![0; 1 << 20]));
    played.connection.produce(usize::MAX);
    assert!(!played.connection.wants_input());
    played.frames();
    assert!(played.connection.wants_input());
}

/// Sends five bytes, which is an empty message of gRPC.
fn send_message(played: &mut Played, stream: u32) {
    played.send(0, 0, stream, &[0; 5]);
}

/// gRPC: a stream of small messages that somebody reads may have any number of them at any speed.
#[test]
fn small_messages_that_are_read_are_no_flood() {
    let mut played = Played::server(Config::default());
    played.ask(1, End::Later);
    let mut read = 0;
    for _ in 0..100_000 {
        send_message(&mut played, 1);
        for event in played.events() {
            match event {
                Event::Data { stream, bytes } => {
                    read += bytes.len();
                    played.connection.consume(stream, bytes.len());
                }
                Event::Failed(fault) => panic!("{fault} after {read} bytes"),
                _ => {}
            }
        }
        played.frames();
    }
    assert_eq!(read, 500_000);
}

/// Messages that wait for a reader hold memory, and are bounded; so are frames that say nothing,
/// though all else of their stream is read.
#[test]
fn small_frames_that_nobody_can_read_are_too_many_some_time() {
    let mut played = Played::server(Config::default());
    played.ask(1, End::Later);
    let fault = flood(&mut played, 20_000, |played, _| send_message(played, 1));
    assert_eq!(fault, Fault::Flood("small DATA frames"));
    let mut played = Played::server(Config::default());
    played.ask(1, End::Later);
    let mut turns = 0..20_000;
    let fault = turns.find_map(|_| {
        played.send(0, 0, 1, &[]);
        send_message(&mut played, 1);
        let events = played.events();
        played.frames();
        events.into_iter().find_map(|event| match event {
            Event::Data { stream, bytes } => {
                played.connection.consume(stream, bytes.len());
                None
            }
            Event::Failed(fault) => Some(fault),
            _ => None,
        })
    });
    assert_eq!(fault, Some(Fault::Flood("small DATA frames")));
}
