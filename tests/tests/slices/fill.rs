//! `proxy_cache_range_fill`, and `slice auto`: how much is fetched when a range is asked first.

use crate::bench::*;
use anyhow::Result;
use millpond_testkit::{Gate, Manners, Protocol, Ranges, Request};
use std::ops::Range;

const WANTED: Range<u64> = 2 * LARGE_SLICE + 5..2 * LARGE_SLICE + 15;

/// A proxy before an origin that keeps some bytes back until the gate is opened.
fn gated(protocol: Protocol, lines: &str, held: Range<u64>) -> Result<(Bench, Gate)> {
    let gate = Gate::new();
    let mut manners = Manners::of(LEN);
    manners.held = vec![(held, gate.clone())];
    Ok((Bench::with(protocol, lines, manners)?, gate))
}

/// `whole`: the range comes at once, by a request of its own, while the whole is fetched behind.
fn whole_serves_the_range_at_once_and_fetches_all(protocol: Protocol) -> Result<()> {
    let (bench, gate) = gated(protocol, "proxy_cache_range_fill whole;", 0..WANTED.start)?;
    for _ in 0..3 {
        assert_part(&bench.ask(WANTED)?, WANTED, 1);
    }
    gate.open();
    assert_part(&bench.ask_until(0..10, "HIT")?, 0..10, 1);
    let whole = bench.ask_whole()?;
    assert_whole(&whole, 1);
    assert_eq!(label(&whole), "HIT");
    // The whole once; the three ranges came before it.
    let sent = bench.fetched_bytes();
    assert!((LEN..=LEN + 3 * LARGE_SLICE).contains(&sent), "{sent}");
    let fetched = bench.fetched();
    let wholes = fetched.iter().filter(|sent| **sent == (0..LEN)).count();
    assert!(wholes <= 1, "{fetched:?}");
    Ok(())
}

/// `whole` behind an origin without ranges: the client gets the whole, as from nginx, by the one
/// request that fills the entry.
fn whole_without_ranges_is_one_transfer(protocol: Protocol) -> Result<()> {
    let mut manners = Manners::of(LEN);
    manners.ranges = Ranges::Ignored;
    let bench = Bench::with(protocol, "proxy_cache_range_fill whole;", manners)?;
    for _ in 0..2 {
        assert_whole(&bench.ask(WANTED)?, 1);
    }
    bench.assert_fetched_once(0..LEN);
    assert_eq!(bench.ranges_asked(), ["-"]);
    Ok(())
}

/// `slice`: the slices of the range, and no more.
fn slice_fetches_the_slices_of_the_range(protocol: Protocol) -> Result<()> {
    let bench = Bench::new(protocol, "proxy_cache_range_fill slice;")?;
    for expected in ["MISS", "HIT"] {
        let part = bench.ask(WANTED)?;
        assert_part(&part, WANTED, 1);
        assert_eq!(label(&part), expected);
    }
    bench.assert_fetched_once(slices_of(&WANTED, LARGE_SLICE));
    assert_whole(&bench.ask_whole()?, 1);
    bench.assert_fetched_once(0..LEN);
    Ok(())
}

/// `off`: as nginx, the whole is asked for, and the range waits for its bytes.
fn off_waits_for_the_whole_as_nginx_does(protocol: Protocol) -> Result<()> {
    let (bench, gate) = gated(protocol, "proxy_cache_range_fill off;", WANTED.end..LEN)?;
    assert_part(&bench.ask(WANTED)?, WANTED, 1);
    gate.open();
    assert_part(&bench.ask_until(WANTED, "HIT")?, WANTED, 1);
    assert_eq!(bench.ranges_asked(), ["-"]);
    bench.assert_fetched_once(0..LEN);
    Ok(())
}

/// Every choice gives the right bytes, cold, while it comes, and held.
fn every_choice_is_right(protocol: Protocol) -> Result<()> {
    for choice in ["whole", "slice", "off"] {
        let bench = Bench::new(protocol, &format!("proxy_cache_range_fill {choice};"))?;
        for range in [WANTED, 0..1, LARGE_SLICE - 1..LARGE_SLICE + 1, LEN - 5..LEN] {
            assert_part(&bench.ask(range.clone())?, range, 1);
        }
        assert_part(&bench.ask_as("bytes=-7")?, LEN - 7..LEN, 1);
        assert_whole(&bench.ask_whole()?, 1);
        let outside = bench.ask(LEN + 1..LEN + 2)?;
        assert_eq!(outside.status, 416, "{choice}");
    }
    Ok(())
}

/// A suffix of a cold entry under `whole` does not wait, either.
fn whole_serves_a_suffix_at_once(protocol: Protocol) -> Result<()> {
    let (bench, gate) = gated(protocol, "proxy_cache_range_fill whole;", 0..LEN - 1024)?;
    assert_part(&bench.ask_as("bytes=-1024")?, LEN - 1024..LEN, 1);
    gate.open();
    assert_part(&bench.ask_until(0..10, "HIT")?, 0..10, 1);
    Ok(())
}

/// `slice auto` takes a small body whole, in one request, however it is asked for.
fn auto_takes_a_small_body_whole(protocol: Protocol) -> Result<()> {
    let bench = Bench::with(protocol, "slice auto;", Manners::of(10_000))?;
    assert_eq!(bench.ask_whole()?.body.len(), 10_000);
    let part = bench.ask_until(10..20, "HIT")?;
    assert_bytes(&part.body, 10..20, 1);
    bench.assert_fetched_once(0..10_000);
    assert_eq!(bench.origin.requests().len(), 1);
    Ok(())
}

/// `slice auto` takes what is asked by range first in slices.
fn auto_takes_a_range_in_slices(protocol: Protocol) -> Result<()> {
    let bench = Bench::new(protocol, "slice auto;")?;
    assert_part(&bench.ask(WANTED)?, WANTED, 1);
    bench.assert_fetched_once(slices_of(&WANTED, LARGE_SLICE));
    Ok(())
}

/// A large body that is asked for whole comes once, and a reader of its end does not wait for the
/// beginning.
fn auto_lets_nobody_wait_for_bytes_that_he_does_not_want(protocol: Protocol) -> Result<()> {
    let lines = format!("slice auto; {LOCKED}");
    let (bench, gate) = gated(protocol, &lines, LARGE_SLICE..2 * LARGE_SLICE)?;
    let mut whole = bench.client.connect()?;
    whole.ask(&Request::get("/film"))?;
    bench.origin.wait_for_requests(1)?;
    assert_part(&bench.ask(WANTED)?, WANTED, 1);
    gate.open();
    assert_whole(&whole.read_response("GET")?, 1);
    Ok(())
}

millpond_testkit::each_protocol!(
    [Http1, Streams, Http3]
    whole_serves_the_range_at_once_and_fetches_all,
    whole_without_ranges_is_one_transfer,
    slice_fetches_the_slices_of_the_range,
    off_waits_for_the_whole_as_nginx_does,
    every_choice_is_right,
    whole_serves_a_suffix_at_once,
    auto_takes_a_small_body_whole,
    auto_takes_a_range_in_slices,
    auto_lets_nobody_wait_for_bytes_that_he_does_not_want,
);
