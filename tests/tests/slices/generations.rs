//! The resource changes: an old generation goes as a whole, and no body has bytes of two.

use crate::bench::*;
use anyhow::{Context, Result};
use millpond_testkit::{
    Connection, Deadline, Gate, Manners, Protocol, Ranges, Request, Response, Turn, Validator,
    offset_bytes,
};
use std::ops::Range;

/// Origins that can be told a version: those that answer a failed If-Range with the whole, and
/// those that do not look at it.
const MANNERS: [Ranges; 2] = [Ranges::Supported, Ranges::Unconditional];
/// More requests than any number of retries explains.
const TOO_MANY: usize = 10;

/// A proxy that holds slice 0 of version 1, before an origin that has gone on to version 2.
fn changed(protocol: Protocol, ranges: Ranges) -> Result<Bench> {
    let mut manners = Manners::of(LEN);
    manners.ranges = ranges;
    let bench = Bench::with(protocol, ALONE, manners)?;
    bench.ask(0..1)?;
    bench.assert_fetched_once(0..SLICE);
    bench.film.change(|manners| manners.version = 2);
    bench.forget();
    Ok(bench)
}

/// Before the head: the request starts again, and gets the new version, complete.
fn a_change_before_the_head_restarts_on_the_new_generation(protocol: Protocol) -> Result<()> {
    for ranges in MANNERS {
        let bench = changed(protocol, ranges)?;
        let part = bench.ask(SLICE..SLICE + 10)?;
        assert_part(&part, SLICE..SLICE + 10, 2);
        assert_eq!(part.header("ETag"), Some("\"v2\""));
        let asked = bench.ranges_asked().len();
        assert!(asked < TOO_MANY, "{asked} requests for one change");
    }
    Ok(())
}

/// The old generation is gone as a whole: slice 0 is not served any more, and comes anew.
fn a_change_retires_every_slice(protocol: Protocol) -> Result<()> {
    for ranges in MANNERS {
        let bench = changed(protocol, ranges)?;
        bench.ask(SLICE..SLICE + 10)?;
        assert_part(&bench.ask(0..10)?, 0..10, 2);
        assert_part(&bench.ask(0..3 * SLICE)?, 0..3 * SLICE, 2);
        assert_whole(&bench.ask_whole()?, 2);
    }
    Ok(())
}

/// After the head: the client sees the failure, with no byte of the new version in what it got;
/// the next request is right.
fn a_change_after_the_head_ends_the_answer_visibly(protocol: Protocol) -> Result<()> {
    for ranges in MANNERS {
        let bench = changed(protocol, ranges)?;
        // Held bytes go out at once, so the head and slice 0 are those of version 1.
        assert_cut((protocol, 206), bench.ask(0..2 * SLICE))?;
        assert_part(&bench.ask(0..2 * SLICE)?, 0..2 * SLICE, 2);
        assert_part(&bench.ask(0..2 * SLICE)?, 0..2 * SLICE, 2);
    }
    Ok(())
}

/// Asserts that an answer broke off behind slice 0 of version 1. Over QUIC, a reset takes away what
/// was not read before (RFC 9000 §3.2): the break is sure to be seen, but not what came before it.
fn assert_cut((protocol, status): (Protocol, u16), cut: Result<Response>) -> Result<()> {
    let is_reset = |error: &anyhow::Error| error.to_string() == "closed without a response";
    let cut = match cut {
        Err(error) if protocol == Protocol::Http3 && is_reset(&error) => return Ok(()),
        other => other?,
    };
    assert_eq!((cut.status, cut.is_complete()), (status, false));
    assert_eq!(cut.header("ETag"), Some("\"v1\""));
    if protocol == Protocol::Http3 {
        assert!(offset_bytes(0..SLICE, 1).starts_with(&cut.body));
    } else {
        assert_bytes(&cut.body, 0..SLICE, 1);
    }
    Ok(())
}

/// A change under an answer to a request for the whole ends it visibly, too.
fn a_change_under_a_whole_answer_ends_it_visibly(protocol: Protocol) -> Result<()> {
    for ranges in MANNERS {
        let bench = changed(protocol, ranges)?;
        assert_cut((protocol, 200), bench.ask_whole())?;
        assert_whole(&bench.ask_whole()?, 2);
    }
    Ok(())
}

/// A reader whose slices are all held goes on with the old version when another request finds out
/// about the new one.
fn a_reader_finishes_from_what_is_held(protocol: Protocol) -> Result<()> {
    // More than sockets take, so that the reader is still there when the change is seen.
    let len = 24 * LARGE_SLICE;
    let held = 20 * LARGE_SLICE;
    let bench = Bench::with(protocol, LARGE, Manners::of(len))?;
    assert_eq!(bench.ask(0..held)?.body.len() as u64, held);
    let mut reader = bench.begin(&bytes_field(&(0..held)))?;
    let mut response = reader.read_head("GET")?.context("a head")?;
    assert_eq!(label(&response), "HIT");
    bench.film.change(|manners| manners.version = 2);
    let other = bench.ask(held..held + 10)?;
    assert_bytes(&other.body, held..held + 10, 2);
    reader.read_body(&mut response)?;
    assert!(response.is_complete(), "{:?}", response.end);
    assert_bytes(&response.body, 0..held, 1);
    assert_bytes(&bench.ask(0..10)?.body, 0..10, 2);
    Ok(())
}

/// Two requests meet the change at once: both get the new version.
fn requests_that_meet_a_change_together_are_right(protocol: Protocol) -> Result<()> {
    for ranges in MANNERS {
        let bench = changed(protocol, ranges)?;
        let gate = Gate::new();
        bench
            .film
            .change(|manners| manners.head_gate = Some(gate.clone()));
        let wanted: Vec<Range<u64>> = (1..9)
            .map(|slice| slice * SLICE / 2 + SLICE..slice * SLICE / 2 + 2 * SLICE)
            .collect();
        let mut asked = Vec::new();
        for range in &wanted {
            asked.push(bench.begin(&bytes_field(range))?);
        }
        bench.origin.wait_for_requests(1)?;
        gate.open();
        for (connection, range) in asked.iter_mut().zip(wanted) {
            assert_part(&connection.read_response("GET")?, range, 2);
        }
    }
    Ok(())
}

/// An origin that never says the same twice is not asked for ever, and mixes nothing.
fn restarts_are_bounded(protocol: Protocol) -> Result<()> {
    for ranges in MANNERS {
        let mut manners = Manners::of(LEN);
        manners.ranges = ranges;
        manners.turn = Turn::EveryRequests(1);
        let bench = Bench::with(protocol, ALONE, manners)?;
        for range in [
            0..1,
            SLICE..SLICE + 10,
            0..2 * SLICE,
            0..LEN,
            SLICE - 9..SLICE + 9,
        ] {
            bench.forget();
            if let Ok(response) = bench.ask(range.clone())
                && response.status == 206
            {
                assert_one_version(&response.body, range.start);
            }
            let asked = bench.ranges_asked().len();
            assert!(asked < TOO_MANY, "{asked} requests for {range:?}");
        }
    }
    Ok(())
}

/// The change comes while bytes are on their way: who reads the old file reads it to the end or
/// sees a failure, and the next slices are of the new one.
fn a_change_within_a_transfer_is_seen(protocol: Protocol) -> Result<()> {
    for ranges in MANNERS {
        let mut manners = Manners::of(LEN);
        manners.ranges = ranges;
        manners.turn = Turn::AfterBytes(SLICE + 100);
        let bench = Bench::with(protocol, ALONE, manners)?;
        for start in [0, SLICE, 2 * SLICE, 3 * SLICE] {
            let part = bench.ask(start..start + SLICE)?;
            assert_one_version(&part.body, start);
        }
        assert_whole(&whole_until_complete(&bench)?, 2);
        assert_part(&bench.ask(0..SLICE)?, 0..SLICE, 2);
    }
    Ok(())
}

/// One request for the whole may have to fail for the change to be seen; the second is right.
fn whole_until_complete(bench: &Bench) -> Result<Response> {
    let first = bench.ask_whole()?;
    assert_one_version(&first.body, 0);
    if first.is_complete() {
        return Ok(first);
    }
    let second = bench.ask_whole()?;
    assert_one_version(&second.body, 0);
    Ok(second)
}

/// The total length belongs to the generation: another one under the same validator is a change.
fn another_length_is_another_generation(protocol: Protocol) -> Result<()> {
    let mut manners = Manners::of(LEN - 1000);
    manners.validator = Validator::Unchanging;
    let bench = Bench::with(protocol, ALONE, manners)?;
    bench.ask(0..1)?;
    bench
        .film
        .change(|manners| (manners.len, manners.version) = (LEN, 2));
    assert_part(&bench.ask(SLICE..SLICE + 10)?, SLICE..SLICE + 10, 2);
    assert_part(&bench.ask(0..10)?, 0..10, 2);
    assert_whole(&bench.ask_whole()?, 2);
    Ok(())
}

/// The new version is shorter than the range asked for: 416 with its length, and the old slices
/// are gone.
fn a_shorter_version_refuses_the_range(protocol: Protocol) -> Result<()> {
    for ranges in MANNERS {
        let bench = changed(protocol, ranges)?;
        bench.film.change(|manners| manners.len = 1000);
        let refused = bench.ask(2 * SLICE..2 * SLICE + 10)?;
        assert_eq!(refused.status, 416, "{ranges:?}");
        assert_eq!(refused.header("Content-Range"), Some("bytes */1000"));
        let part = bench.ask(0..10)?;
        assert_eq!(part.header("Content-Range"), Some("bytes 0-9/1000"));
        assert_bytes(&part.body, 0..10, 2);
    }
    Ok(())
}

/// The new version does not do ranges: it is kept whole, and served.
fn a_version_without_ranges_replaces_the_slices(protocol: Protocol) -> Result<()> {
    let bench = changed(protocol, Ranges::Supported)?;
    bench
        .film
        .change(|manners| manners.ranges = Ranges::Ignored);
    assert_whole(&bench.ask(SLICE..SLICE + 10)?, 2);
    assert_whole(&bench.ask(0..10)?, 2);
    let whole = bench.ask_whole()?;
    assert_whole(&whole, 2);
    assert_eq!(label(&whole), "HIT");
    Ok(())
}

/// Dates alone tell versions apart, or slices are not kept: either way nothing mixes.
fn a_change_that_only_a_date_tells_is_seen(protocol: Protocol) -> Result<()> {
    for ranges in MANNERS {
        let mut manners = Manners::of(LEN);
        manners.validator = Validator::Date;
        manners.ranges = ranges;
        let bench = Bench::with(protocol, ALONE, manners)?;
        assert_part(&bench.ask(0..10)?, 0..10, 1);
        bench.film.change(|manners| manners.version = 2);
        let part = bench.ask(0..2 * SLICE)?;
        let version = assert_one_version(&part.body, 0);
        assert!(version == 2 || !part.is_complete(), "all of an old version");
        assert_part(&bench.ask(0..2 * SLICE)?, 0..2 * SLICE, 2);
    }
    Ok(())
}

/// Many readers of a resource that changes all the time: each answer has bytes of one version, the
/// one that its ETag names; at rest, all is right.
fn readers_of_a_changing_resource_never_see_a_mixture(protocol: Protocol) -> Result<()> {
    for ranges in MANNERS {
        let mut manners = Manners::of(LEN);
        manners.ranges = ranges;
        manners.turn = Turn::EveryRequests(7);
        let bench = Bench::with(protocol, &format!("{ALONE} proxy_cache_lock on;"), manners)?;
        std::thread::scope(|scope| {
            for reader in 0..6 {
                let bench = &bench;
                scope.spawn(move || {
                    let mut numbers = Numbers::new(reader);
                    for _ in 0..20 {
                        let start = numbers.below(LEN - 1);
                        let len = 1 + numbers.below(LEN - start).min(numbers.below(4 * SLICE));
                        read_one(bench, start..start + len);
                    }
                });
            }
        });
        bench.film.change(|manners| manners.turn = Turn::ByHand);
        // What is held may be of an older version than the last; one failure shows it.
        let whole = whole_until_complete(&bench)?;
        assert!(whole.is_complete(), "{:?}", whole.end);
        assert_eq!(whole.body.len() as u64, LEN);
    }
    Ok(())
}

fn read_one(bench: &Bench, range: Range<u64>) {
    let Ok(part) = bench.ask(range.clone()) else {
        return;
    };
    if part.status == 206 && !part.body.is_empty() {
        let version = assert_one_version(&part.body, range.start);
        assert_eq!(part.header("ETag"), Some(&*format!("\"v{version}\"")));
        assert!(!part.is_complete() || part.body.len() as u64 == range.end - range.start);
    }
}

/// A fill breaks off, and the next one is of another version: a client that reads late gets what
/// was sent to it, though the kernel takes it from the pages of the file only when it leaves.
fn what_was_sent_of_a_broken_fill_is_not_written_over(protocol: Protocol) -> Result<()> {
    const BROKEN_AT: u64 = 512 << 10;
    const UNREAD: u64 = 32 << 10;
    let gate = Gate::new();
    let mut manners = Manners::of(LEN);
    manners.held = vec![(BROKEN_AT..LEN, gate.clone())];
    manners.drop_at = Some(BROKEN_AT + 1);
    let lines = "proxy_cache_lock on; access_log %%DIR%%/access.log;";
    let bench = Bench::with(protocol, lines, manners)?;
    let (mut leader, mut filled) = begin_whole(&bench, BROKEN_AT)?;
    wait_until_in_the_cache(&bench, BROKEN_AT, 1)?;
    let (mut reader, mut late) = begin_whole(&bench, BROKEN_AT - UNREAD)?;
    gate.open();
    leader.read_body(&mut filled)?;
    // All was handed to the kernel, and the fill is gone.
    bench.proxy.wait_for_lines("access.log", 2)?;
    bench.film.change(|manners| {
        *manners = Manners::of(LEN);
        manners.version = 2;
    });
    assert_whole(&bench.ask_whole()?, 2);
    wait_until_in_the_cache(&bench, BROKEN_AT, 2)?;
    reader.read_body(&mut late)?;
    assert!(!late.is_complete());
    assert_bytes(&late.body, 0..late.body.len() as u64, 1);
    Ok(())
}

/// Asks for all of it, and reads the first `len` bytes.
fn begin_whole(bench: &Bench, len: u64) -> Result<(Connection, Response)> {
    let mut connection = bench.client.connect()?;
    connection.ask(&Request::get("/film"))?;
    let head = connection.read_head("GET")?;
    let mut response = head.context("closed without a head")?;
    connection.read_some(&mut response, usize::try_from(len)?)?;
    Ok((connection, response))
}

/// Waits until a file of the cache has the bytes of `version` before `end`.
fn wait_until_in_the_cache(bench: &Bench, end: u64, version: u16) -> Result<()> {
    // Bodies are made of lines of 16 bytes, and stand in segments at multiples of 16.
    let line = offset_bytes(end - 16..end, version);
    let has_it = |file: std::fs::DirEntry| {
        let bytes = std::fs::read(file.path()).unwrap_or_default();
        bytes.chunks_exact(16).any(|stored| stored == line)
    };
    let cache = bench.proxy.dir().join("cache");
    let is_there = || {
        let mut files = std::fs::read_dir(&cache).ok()?.flatten();
        files.any(has_it).then_some(())
    };
    let waited = Deadline::after(std::time::Duration::from_secs(10)).poll(is_there);
    waited.with_context(|| format!("version {version} never came to the disk"))
}

millpond_testkit::each_protocol!(
    [Http1, Streams, Http3]
    a_change_before_the_head_restarts_on_the_new_generation,
    a_change_retires_every_slice,
    a_change_after_the_head_ends_the_answer_visibly,
    a_change_under_a_whole_answer_ends_it_visibly,
    a_reader_finishes_from_what_is_held,
    requests_that_meet_a_change_together_are_right,
    restarts_are_bounded,
    a_change_within_a_transfer_is_seen,
    another_length_is_another_generation,
    a_shorter_version_refuses_the_range,
    a_version_without_ranges_replaces_the_slices,
    a_change_that_only_a_date_tells_is_seen,
    readers_of_a_changing_resource_never_see_a_mixture,
    what_was_sent_of_a_broken_fill_is_not_written_over,
);
