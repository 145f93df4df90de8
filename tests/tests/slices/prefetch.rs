//! `slice_prefetch`: who reads one range after the other finds the next slices there.

use crate::bench::*;
use anyhow::Result;
use millpond_testkit::Protocol;

/// Number of slices beyond the end of a range, as the directive allows.
const AHEAD: u64 = 2;

fn nth(slice: u64) -> std::ops::Range<u64> {
    slice * SLICE..(slice + 1) * SLICE
}

/// After some ranges in order, the next ones are hits, and never more than the bound is fetched
/// beyond what was asked for.
#[test]
fn a_sequential_reader_finds_the_next_slices() -> Result<()> {
    let bench = Bench::new(Protocol::Http1, &format!("{ALONE} slice_prefetch {AHEAD};"))?;
    for slice in 0..6 {
        assert_part(&bench.ask(nth(slice))?, nth(slice), 1);
        let furthest = bench.fetched().iter().map(|sent| sent.end).max();
        let bound = (slice + 1 + AHEAD) * SLICE;
        assert!(furthest <= Some(bound), "{furthest:?} after slice {slice}");
    }
    bench.assert_fetched_once(0..(6 + AHEAD) * SLICE);
    for slice in 6..6 + AHEAD {
        let part = bench.ask(nth(slice))?;
        assert_part(&part, nth(slice), 1);
        assert_eq!(label(&part), "HIT", "slice {slice}");
    }
    Ok(())
}

/// Off is off.
#[test]
fn nothing_is_fetched_in_advance_when_it_is_off() -> Result<()> {
    let bench = Bench::new(Protocol::Http1, &format!("{ALONE} slice_prefetch off;"))?;
    for slice in 0..6 {
        let part = bench.ask(nth(slice))?;
        assert_part(&part, nth(slice), 1);
        assert_eq!(label(&part), "MISS", "slice {slice}");
        bench.assert_fetched_once(0..nth(slice).end);
    }
    Ok(())
}

/// A reader that jumps is no sequential one.
#[test]
fn a_reader_that_jumps_gets_nothing_in_advance() -> Result<()> {
    let bench = Bench::new(Protocol::Http1, &format!("{ALONE} slice_prefetch {AHEAD};"))?;
    let mut fetched = Vec::new();
    for slice in [20, 8, 32, 2, 14] {
        assert_part(&bench.ask(nth(slice))?, nth(slice), 1);
        fetched.push(nth(slice));
    }
    fetched.sort_by_key(|range| range.start);
    bench.assert_all_fetched_once(&fetched);
    Ok(())
}

/// The end of the body is the end.
#[test]
fn nothing_is_fetched_beyond_the_end() -> Result<()> {
    let bench = Bench::new(Protocol::Http1, &format!("{ALONE} slice_prefetch 16;"))?;
    let last = LEN / SLICE;
    let first = last - 4;
    for slice in first..last {
        assert_part(&bench.ask(nth(slice))?, nth(slice), 1);
    }
    let tail = nth(last).start..LEN;
    assert_part(&bench.ask(tail.clone())?, tail, 1);
    bench.assert_fetched_once(nth(first).start..LEN);
    Ok(())
}

/// A prefetch never takes a byte that another request is fetching.
#[test]
fn what_is_fetched_in_advance_is_fetched_once() -> Result<()> {
    let bench = Bench::new(
        Protocol::Http1,
        &format!("{ALONE} slice_prefetch 16; {LOCKED}"),
    )?;
    let slices = LEN / SLICE;
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                for slice in 0..slices {
                    let part = bench.ask(nth(slice)).ok();
                    assert!(part.is_some_and(|part| part.body == bench.film.bytes(nth(slice))));
                }
            });
        }
    });
    assert_whole(&bench.ask_whole()?, 1);
    bench.assert_fetched_once(0..LEN);
    Ok(())
}
