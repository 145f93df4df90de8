//! Floods: each kind passes in the measure of honest clients, and ends the connection beyond.

use super::*;

/// Repeats until the connection fails; gives the flood, and after how many.
fn until_failed(side: &mut Side, act: impl FnMut(&mut Side, u64)) -> (Option<Flood>, u64) {
    until_failed_of(40_000, side, act)
}

/// As [`until_failed`], after a number of turns at most.
fn until_failed_of(
    most: u64,
    side: &mut Side,
    mut act: impl FnMut(&mut Side, u64),
) -> (Option<Flood>, u64) {
    for count in 0..most {
        act(side, count);
        side.collect();
        let fault = side.events.iter().find_map(|event| match event {
            Event::Failed(fault) => Some(*fault),
            _ => None,
        });
        side.events.clear();
        if let Some(fault) = fault {
            assert!(side.connection.is_finished());
            return (fault.flood(), count);
        }
    }
    (None, u64::MAX)
}

#[test]
fn requests_that_are_reset_as_soon_as_they_come_are_a_flood() {
    for has_come in [true, false] {
        let mut side = Side::new();
        let get = headers(GET);
        let (flood, count) = until_failed(&mut side, |side, count| {
            let stream = count * 4;
            side.open(stream, if has_come { &get } else { &[] });
            if has_come {
                side.connection.receive_pause(stream);
            }
            side.connection
                .receive_reset(stream, Code::REQUEST_CANCELLED, NOW);
            side.connection.release(stream);
            side.flush();
        });
        assert_eq!(flood, Some(Flood::Resets));
        assert!((128..1000).contains(&count), "{count}");
    }
}

#[test]
fn requests_that_make_us_reset_them_are_a_flood() {
    let mut side = Side::new();
    let (flood, count) = until_failed(&mut side, |side, count| {
        side.open(count * 4, &[]);
        side.end(count * 4);
        side.flush();
    });
    assert_eq!(flood, Some(Flood::MadeResets));
    assert!((128..1000).contains(&count), "{count}");
}

#[test]
fn requests_beyond_those_that_may_be_at_once_are_rejected_and_then_a_flood() {
    let mut side = Side::with(Config {
        max_concurrent_streams: 4,
        ..Config::default()
    });
    let get = headers(GET);
    let mut told = 0;
    let (flood, count) = until_failed(&mut side, |side, count| {
        side.open(count * 4, &get);
        side.end(count * 4);
        let is_request = |event: &&Event| matches!(event, Event::Request { .. });
        told += side.events.iter().filter(is_request).count();
        side.flush();
    });
    assert_eq!(told, 8);
    assert_eq!(flood, Some(Flood::RejectedRequests));
    assert!((100..200).contains(&count), "{count}");
    assert_eq!(side.pipes.sent[&32].reset, Some(Code::REQUEST_REJECTED));
}

#[test]
fn frames_that_say_nothing_are_floods() {
    for (bytes, is_in_body, expected, least) in [
        (frame_of(0, b""), true, Flood::EmptyData, 500),
        (frame_of(0x21, b""), true, Flood::UnknownFrames, 500),
        (frame_of(0x21, b""), false, Flood::UnknownFrames, 500),
        (frame_of(0xd, b"\0"), false, Flood::UnknownFrames, 500),
        (frame_of(0xf_0700, b"\0u=1"), false, Flood::Priorities, 500),
    ] {
        let mut side = Side::new();
        side.open(0, &headers(GET));
        let stream = if is_in_body { 0 } else { 2 };
        let (flood, count) = until_failed(&mut side, |side, _| side.give(stream, &bytes));
        assert_eq!(flood, Some(expected));
        assert!(count >= least, "{expected:?} {count}");
    }
}

/// As many as a window of messages of gRPC has, of five bytes each, are no flood.
#[test]
fn small_frames_that_nobody_takes_are_a_flood() {
    let mut side = Side::new();
    side.open(0, &headers(GET));
    side.connection.set_window(0, 1 << 20);
    let bytes = frame_of(0, b"x");
    let (flood, count) = until_failed_of(300_000, &mut side, |side, _| side.give(0, &bytes));
    assert_eq!(flood, Some(Flood::SmallData));
    assert!(count > (1 << 20) / 5, "{count}");
}

#[test]
fn small_frames_that_somebody_takes_are_messages() {
    let mut side = Side::new();
    side.open(0, &headers(GET));
    let bytes = frame_of(0, b"x");
    let (flood, _) = until_failed(&mut side, |side, _| {
        side.give(0, &bytes);
        side.connection.consume(0, 1);
    });
    assert_eq!(flood, None);
}

#[test]
fn streams_of_unknown_kinds_are_a_flood() {
    let mut side = Side::new();
    let (flood, count) = until_failed(&mut side, |side, count| {
        side.open(6 + count * 4, &[0x21]);
        side.flush();
    });
    assert_eq!(flood, Some(Flood::UnknownStreams));
    assert!(count >= 500, "{count}");
    let mut side = Side::new();
    let (flood, _) = until_failed(&mut side, |side, count| {
        side.connection.opened(6 + count * 4, NOW);
    });
    assert_eq!(flood, Some(Flood::UnknownStreams));
}

#[test]
fn instructions_and_words_about_tables_are_floods() {
    // An entry of most of the table, and then a byte for each copy of it.
    let insert = [
        &[0x3f, 0xe1, 0x1f][..],
        &[0xc0, 0x7f, 0xb1, 0x1e],
        &[b'a'; 4016],
    ]
    .concat();
    let mut side = Side::new();
    side.open(6, &[2]);
    side.give(6, &insert);
    assert_eq!(side.failure(), None);
    let (flood, count) = until_failed(&mut side, |side, _| {
        side.give(6, &[0]);
        side.flush();
    });
    assert_eq!(flood, Some(Flood::TableInstructions));
    assert!((1000..10_000).contains(&count), "{count}");
    let mut side = Side::new();
    side.open(6, &[3]);
    let (flood, count) = until_failed(&mut side, |side, _| side.give(6, &[0x44]));
    assert_eq!(flood, Some(Flood::Acknowledgements));
    assert!(count >= 500, "{count}");
}

#[test]
fn words_that_the_peer_does_not_read_are_a_flood() {
    let mut side = Side::new();
    side.pipes.room = 10;
    let get = headers(GET);
    let (flood, _) = until_failed(&mut side, |side, count| {
        let stream = count * 4;
        side.open(stream, &get_with(&[("content-length", "1")]));
        side.connection
            .send_answer(stream, (200, End::WithHead), |_| {});
        side.connection.release(stream);
        side.flush();
    });
    assert_eq!(flood, Some(Flood::UnreadAnswers));
    assert!(!get.is_empty());
}

#[test]
fn allowances_come_again_with_time() {
    let mut side = Side::new();
    for second in 0..100_u64 {
        for _ in 0..10 {
            let grease = Bytes::from(frame_of(0x21, b""));
            side.connection
                .receive(2, grease, Duration::from_secs(second));
        }
    }
    side.collect();
    assert_eq!(side.failure(), None);
}

/// Frames of QUIC itself: a client that moves, or hears nothing, sends some.
#[test]
fn pings_and_connection_ids_beyond_what_a_client_needs_are_a_flood() {
    let mut pings = 0;
    let (flood, count) = until_failed(&mut Side::new(), |side, _| {
        pings += 10;
        let identifiers = 0;
        let chatter = Chatter { pings, identifiers };
        side.connection.receive_chatter(chatter, NOW);
    });
    assert_eq!((flood, count), (Some(Flood::Pings), 100));
    let mut identifiers = 0;
    let (flood, count) = until_failed(&mut Side::new(), |side, _| {
        identifiers += 1;
        let pings = 0;
        let chatter = Chatter { pings, identifiers };
        side.connection.receive_chatter(chatter, NOW);
    });
    assert_eq!((flood, count), (Some(Flood::Identifiers), 500));
    // Ten a second are nothing to speak of.
    let mut identifiers = 0;
    let (flood, _) = until_failed_of(2000, &mut Side::new(), |side, second| {
        identifiers += 10;
        let pings = identifiers;
        let chatter = Chatter { pings, identifiers };
        side.connection
            .receive_chatter(chatter, Duration::from_secs(second));
    });
    assert_eq!(flood, None);
}
