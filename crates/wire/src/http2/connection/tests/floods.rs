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
        let fault = flood(&mut played, 300_000, |played, _| {
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
    played.assert_fails(Fault::Flood(Flood::Continuations));
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

/// A way in which a peer makes us reset a stream.
type Way = (&'static str, fn(&mut Played, u32));

/// Ways of CVE-2025-8671 and its kin, each on a stream of its own.
const WAYS_TO_BE_RESET: &[Way] = &[
    ("DATA behind the end", |played, stream| {
        played.ask(stream, End::WithHead);
        played.data(stream, b"x", End::Later);
    }),
    ("HEADERS behind the end", |played, stream| {
        played.ask(stream, End::WithHead);
        played.ask(stream, End::WithHead);
    }),
    ("trailers that do not end", |played, stream| {
        played.ask(stream, End::Later);
        played.ask(stream, End::Later);
    }),
    ("malformed trailers", |played, stream| {
        played.ask(stream, End::Later);
        let block = played.block(&[("connection", "x")]);
        played.send(1, 5, stream, &block);
    }),
    ("a malformed head", |played, stream| {
        played.ask_with(stream, End::WithHead, &[("connection", "x")]);
    }),
    ("a body that is too long", |played, stream| {
        played.ask_with(stream, End::Later, &[("content-length", "1")]);
        played.data(stream, b"xx", End::WithHead);
    }),
    ("a body that is too short", |played, stream| {
        played.ask_with(stream, End::Later, &[("content-length", "20")]);
        played.data(stream, &[0; 19], End::WithHead);
    }),
    ("a body whose end is missing", |played, stream| {
        played.ask_with(stream, End::Later, &[("content-length", "20")]);
        let block = played.block(&[("x-a", "1")]);
        played.send(1, 5, stream, &block);
    }),
    ("WINDOW_UPDATE by nothing", |played, stream| {
        played.ask(stream, End::WithHead);
        played.send(8, 0, stream, &[0; 4]);
    }),
    ("a window that overflows", |played, stream| {
        played.ask(stream, End::WithHead);
        played.send(8, 0, stream, &[0x7f, 0xff, 0xff, 0xff]);
    }),
    ("a window that is exceeded", |played, stream| {
        played.ask(stream, End::Later);
        played.data(stream, &[0; 101], End::Later);
    }),
];

/// Answers what has come, and gives the fault that the connection has ended for.
fn answer_all(played: &mut Played) -> Option<Fault> {
    let mut fault = None;
    for event in played.events() {
        match event {
            Event::Failed(why) => fault = Some(why),
            Event::Request { stream, .. } | Event::Refused { stream, .. } => {
                let answer = (400, End::WithHead);
                played.connection.send_answer(stream, answer, |_| {});
                played.connection.release(stream);
            }
            _ => {}
        }
    }
    played.frames();
    fault
}

/// Streams that we reset for what the peer sends are bounded, whatever it is.
#[test]
fn streams_that_we_are_made_to_reset_are_too_many_some_time() {
    for (way, send) in WAYS_TO_BE_RESET {
        let mut played = Played::server(Config {
            stream_window: 100,
            ..Config::default()
        });
        // They are answered before the next one comes.
        let fault = (0..2000).find_map(|turn| {
            send(&mut played, 2 * turn + 1);
            answer_all(&mut played).map(|fault| (turn, fault))
        });
        let made = Fault::Flood(Flood::MadeResets);
        assert_eq!(fault, Some((256, made)), "{way}");
    }
}

/// CVE-2025-8671: a stream that we are made to reset counts as long as its exchange runs.
#[test]
fn a_stream_that_we_are_made_to_reset_counts_until_it_is_released() {
    for (way, send) in WAYS_TO_BE_RESET {
        let mut played = Played::server(Config {
            max_concurrent_streams: 1,
            stream_window: 100,
            ..Config::default()
        });
        send(&mut played, 1);
        played.turn();
        played.ask(3, End::WithHead);
        let (events, frames) = played.turn();
        assert!(events.is_empty(), "{way} {events:?}");
        assert_eq!(frames[0].code(), Code::REFUSED_STREAM, "{way}");
        played.connection.release(1);
        played.ask(5, End::WithHead);
        let events = played.events();
        let is_next = matches!(events[..], [Event::Request { stream: 5, .. }]);
        assert!(is_next, "{way} {events:?}");
    }
}

/// Windows of a byte are a flood, those of somebody who reads are none.
#[test]
fn window_updates_are_paid_for_by_bodies() {
    let mut played = Played::server(Config::default());
    played.ask(1, End::WithHead);
    played.events();
    played.connection.send_answer(1, (200, End::Later), |_| {});
    for _ in 0..50_000 {
        played.connection.push(1, Bytes::from(vec![0; 256]));
        for stream in [0, 1] {
            played.send(8, 0, stream, &[0, 0, 0, 128]);
            played.send(8, 0, stream, &[0, 0, 0, 128]);
        }
        let (events, frames) = played.turn();
        if let [Event::Failed(fault)] = events[..] {
            assert_eq!(fault, Fault::Flood(Flood::WindowUpdates));
            assert!(played.connection.counts.payload > 1 << 20, "too early");
            return;
        }
        assert_eq!(data_of(&frames, 1).len(), 256);
    }
    panic!("four updates for 256 bytes, for ever");
}

/// One update for each quarter of a KiB is what a busy reader needs.
#[test]
fn window_updates_of_a_reader_are_no_flood() {
    let mut played = Played::server(Config::default());
    played.ask(1, End::WithHead);
    played.events();
    played.connection.send_answer(1, (200, End::Later), |_| {});
    for _ in 0..50_000 {
        played.connection.push(1, Bytes::from(vec![0; 512]));
        for stream in [0, 1] {
            played.send(8, 0, stream, &[0, 0, 2, 0]);
        }
        let (events, frames) = played.turn();
        assert!(!events.iter().any(|it| matches!(it, Event::Failed(_))));
        assert_eq!(data_of(&frames, 1).len(), 512);
    }
}

/// A head whose rest does not come is given up once; who waits for it again waits for nothing.
#[test]
fn a_head_is_given_up_once() {
    let mut played = Played::server(Config::default());
    assert_eq!(played.connection.give_up_head(), GivenUp::Now);
    played.send(1, 0, 1, &[0x82]);
    played.events();
    assert_eq!(played.connection.give_up_head(), GivenUp::Now);
    assert_eq!(played.frames()[0].code(), Code::PROTOCOL_ERROR);
    assert_eq!(played.connection.give_up_head(), GivenUp::Before);
    assert!(played.frames().is_empty());
}

/// Faults that are floods, too, are named so.
#[test]
fn long_heads_and_refused_streams_are_floods() {
    use super::super::super::hpack::decode::BadBlock;
    for (fault, flood) in [
        (Fault::Block(BadBlock::LongText), Some(Flood::LongHeads)),
        (Fault::Block(BadBlock::LongList), Some(Flood::LongHeads)),
        (Fault::LongBlock, Some(Flood::LongHeads)),
        (Fault::TooManyRefused, Some(Flood::RefusedStreams)),
        (Fault::Flood(Flood::Pings), Some(Flood::Pings)),
        (Fault::Block(BadBlock::BadIndex), None),
        (Fault::Padding, None),
    ] {
        assert_eq!(fault.flood(), flood, "{fault}");
    }
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

/// A reader that pauses is sent a window of messages, of five bytes each, and never takes them all.
#[test]
fn small_messages_that_wait_fill_the_window_and_are_no_flood() {
    let mut played = Played::server(Config::default());
    played.ask(1, End::Later);
    played.connection.set_window(1, 1 << 20);
    let mut sent = 0;
    while sent + 5 <= 1 << 20 {
        send_message(&mut played, 1);
        sent += 5;
    }
    played.events();
    for _ in 0..50 {
        // Never all that waits.
        played.connection.consume(1, 600_000);
        for _ in 0..120_000 {
            send_message(&mut played, 1);
        }
        let events = played.events();
        let failed = events.iter().find(|it| matches!(it, Event::Failed(_)));
        assert!(failed.is_none(), "{failed:?}");
        played.frames();
    }
}

/// Frames of a byte that wait for a reader are too many some time; so are frames that say nothing,
/// though all else of their stream is read.
#[test]
fn small_frames_that_nobody_can_read_are_too_many_some_time() {
    let mut played = Played::server(Config::default());
    played.ask(1, End::Later);
    played.connection.set_window(1, 1 << 20);
    let mut sent = 0;
    let fault = flood(&mut played, 300_000, |played, _| {
        sent += 1;
        played.send(0, 0, 1, b"x");
    });
    assert_eq!(fault, Fault::Flood(Flood::SmallData));
    assert!(sent > (1 << 20) / 5, "a window of messages of gRPC: {sent}");
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
    assert_eq!(fault, Some(Fault::Flood(Flood::EmptyData)));
}
