//! Slices in a life: several workers, reloads, crashes, clients that come and go.

use crate::bench::*;
use anyhow::{Context, Result};
use millpond_testkit::{Gate, Manners, Protocol, Request};

/// Requests on four workers share what is fetched: each byte comes once.
fn workers_share_what_is_fetched(protocol: Protocol) -> Result<()> {
    let gate = Gate::new();
    let mut manners = Manners::of(LEN);
    manners.head_gate = Some(gate.clone());
    let lines = format!("{ALONE} {LOCKED}");
    let bench = Bench::with_workers(protocol, 4, &lines, manners)?;
    let mut asked = Vec::new();
    for turn in 0..40 {
        // All begin in one slice: whoever is further behind a transfer that is slow, as all are on
        // a machine that stalls, asks for itself.
        let start = turn * 1_601;
        let range = start..start + 3 * SLICE;
        asked.push((bench.begin(&bytes_field(&range))?, range));
    }
    bench.origin.wait_for_requests(1)?;
    gate.open();
    let end = asked.last().map_or(0, |(_, range)| range.end);
    for (connection, range) in asked {
        let mut connection = connection;
        assert_part(&connection.read_response("GET")?, range, 1);
    }
    bench.assert_fetched_once(slices_of(&(0..end), SLICE));
    assert_whole(&bench.ask_whole()?, 1);
    bench.assert_fetched_once(0..LEN);
    Ok(())
}

/// A reload neither loses slices nor cuts a reader off.
fn a_reload_keeps_slices_and_readers(protocol: Protocol) -> Result<()> {
    let gate = Gate::new();
    let mut manners = Manners::of(LEN);
    manners.held = vec![(SLICE + 100..2 * SLICE, gate.clone())];
    let bench = Bench::with(protocol, ALONE, manners)?;
    let mut reader = bench.begin(&bytes_field(&(0..2 * SLICE)))?;
    let mut response = reader.read_head("GET")?.context("a head")?;
    reader.read_some(&mut response, SLICE as usize)?;
    bench.proxy.reload()?;
    let held = bench.ask(0..10)?;
    assert_part(&held, 0..10, 1);
    assert_eq!(label(&held), "HIT");
    gate.open();
    reader.read_body(&mut response)?;
    assert_part(&response, 0..2 * SLICE, 1);
    assert_part(&bench.ask(SLICE..2 * SLICE)?, SLICE..2 * SLICE, 1);
    bench.assert_fetched_once(0..2 * SLICE);
    Ok(())
}

/// A crash within a slice: nothing torn is served afterwards.
fn a_crash_within_a_slice_leaves_nothing_torn(protocol: Protocol) -> Result<()> {
    let gate = Gate::new();
    let mut manners = Manners::of(LEN);
    manners.held = vec![(SLICE + 100..2 * SLICE, gate.clone())];
    let mut bench = Bench::with(protocol, ALONE, manners)?;
    let mut reader = bench.begin(&bytes_field(&(0..2 * SLICE)))?;
    let mut response = reader.read_head("GET")?.context("a head")?;
    reader.read_some(&mut response, SLICE as usize + 50)?;
    bench.proxy.kill9()?;
    gate.open();
    bench.proxy.restart()?;
    // A new version, so that a torn slice would be seen by its bytes, too.
    bench.film.change(|manners| manners.version = 2);
    let part = bench.ask(SLICE..2 * SLICE)?;
    assert_part(&part, SLICE..2 * SLICE, 2);
    assert_part(&bench.ask(0..2 * SLICE)?, 0..2 * SLICE, 2);
    assert_whole(&bench.ask_whole()?, 2);
    Ok(())
}

/// Readers that come, seek and leave in the middle: who stays gets the right bytes, and the origin
/// is not asked without measure.
fn readers_that_come_and_go_are_served(protocol: Protocol) -> Result<()> {
    let mut manners = Manners::of(LEN);
    // Slow enough that readers meet what is on its way.
    manners.rate = Some(8 << 20);
    let bench = Bench::with_workers(protocol, 2, &format!("{ALONE} {LOCKED}"), manners)?;
    std::thread::scope(|scope| {
        for reader in 0..8 {
            let bench = &bench;
            scope.spawn(move || {
                let mut numbers = Numbers::new(reader);
                for _ in 0..12 {
                    let read = come_and_go(bench, &mut numbers);
                    assert!(read.is_ok(), "{read:?}");
                }
            });
        }
    });
    assert_whole(&bench.ask_whole()?, 1);
    let sent = bench.fetched_bytes();
    assert!(sent <= 2 * LEN, "{sent} bytes for {LEN}");
    Ok(())
}

fn come_and_go(bench: &Bench, numbers: &mut Numbers) -> Result<()> {
    let start = numbers.below(LEN - 1);
    let end = LEN.min(start + 1 + numbers.below(6 * SLICE));
    let mut connection = bench.begin(&bytes_field(&(start..end)))?;
    let mut response = connection.read_head("GET")?.context("a head")?;
    if numbers.below(3) == 0 {
        connection.read_some(&mut response, 100)?;
        assert_one_version(&response.body, start);
        return Ok(());
    }
    connection.read_body(&mut response)?;
    assert_part(&response, start..end, 1);
    Ok(())
}

/// The first uses of `proxy_cache_min_uses` pass, with the right bytes; then slices are kept.
fn slices_are_kept_after_min_uses(protocol: Protocol) -> Result<()> {
    let bench = Bench::new(protocol, &format!("{ALONE} proxy_cache_min_uses 3;"))?;
    let wanted = SLICE - 10..SLICE + 10;
    for expected in ["MISS", "MISS", "MISS", "HIT"] {
        let part = bench.ask(wanted.clone())?;
        assert_part(&part, wanted.clone(), 1);
        assert_eq!(label(&part), expected);
    }
    Ok(())
}

/// Hosts have slices of their own where the key says so.
fn keys_do_not_share_slices(protocol: Protocol) -> Result<()> {
    let keyed = format!("{ALONE} proxy_cache_key $host$uri;");
    for form in [&*keyed, LISTING] {
        let bench = Bench::new(protocol, form)?;
        for (host, version) in [("one", 1), ("two", 2), ("one", 1), ("two", 2)] {
            bench.film.change(|manners| manners.version = version);
            for slice in [0, 1] {
                let range = slice * SLICE..slice * SLICE + 10;
                let request = Request::get("/film").host(host);
                let request = request.header("Range", &bytes_field(&range));
                assert_part(&bench.client.send(&request)?, range, version);
            }
        }
        bench.film.change(|manners| manners.version = 3);
        assert_part(&bench.ask(0..10)?, 0..10, 3);
    }
    Ok(())
}

/// A worker's log stays clean through a client that asks for everything in the worst order.
fn the_worst_order_is_served(protocol: Protocol) -> Result<()> {
    let mut bench = Bench::new(protocol, ALONE)?;
    let slices = LEN.div_ceil(SLICE);
    for slice in (0..slices).rev() {
        let range = slice * SLICE + 1..LEN.min((slice + 1) * SLICE + 1);
        assert_part(&bench.ask(range.clone())?, range, 1);
    }
    bench.assert_fetched_once(0..LEN);
    bench.proxy.quit()
}

millpond_testkit::each_protocol!(
    [Http1, Streams, Http3]
    workers_share_what_is_fetched,
    a_reload_keeps_slices_and_readers,
    a_crash_within_a_slice_leaves_nothing_torn,
    readers_that_come_and_go_are_served,
    slices_are_kept_after_min_uses,
    keys_do_not_share_slices,
    the_worst_order_is_served,
);
