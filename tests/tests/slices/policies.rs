//! Slices under the other policies of the cache: Vary, revalidation, stale answers, background
//! update, purge, bypass.

use crate::bench::*;
use anyhow::{Context, Result};
use millpond_testkit::{Deadline, Gate, Manners, Outage, Protocol, Request, Resource, Response};
use std::ops::Range;
use std::time::Duration;

/// A body that is fresh for a second.
fn short_lived() -> Manners {
    let mut manners = Manners::of(LEN);
    manners.fields = vec![("Cache-Control", "max-age=1".to_string())];
    manners
}

/// Slices 0 and 1 are held, and no longer fresh after a second.
fn two_slices(lines: &str) -> Result<Bench> {
    let bench = Bench::with(Protocol::Http1, &format!("{ALONE} {lines}"), short_lived())?;
    assert_part(&bench.ask(0..2 * SLICE)?, 0..2 * SLICE, 1);
    bench.assert_fetched_once(0..2 * SLICE);
    bench.forget();
    Ok(bench)
}

/// Each variant has slices of its own, and none is taken for another's.
#[test]
fn variants_have_their_own_slices() -> Result<()> {
    let mut manners = Manners::of(LEN);
    manners.varies_by = Some("X-Lang");
    let bench = Bench::with(Protocol::Http1, ALONE, manners)?;
    let ask = |language: u16, range: Range<u64>| -> Result<Response> {
        let request = request(&bytes_field(&range)).header("X-Lang", &language.to_string());
        bench.client.send(&request)
    };
    for expected in ["MISS", "HIT"] {
        for slice in 0..2 {
            for language in [1, 2] {
                let range = slice * SLICE..slice * SLICE + 10;
                let part = ask(language, range.clone())?;
                assert_part(&part, range, Resource::variant(1, language));
                assert_eq!(label(&part), expected, "{slice} of {language}");
            }
        }
    }
    for language in [2, 1] {
        let whole = Request::get("/film").header("X-Lang", &language.to_string());
        let whole = bench.client.send(&whole)?;
        assert_whole(&whole, Resource::variant(1, language));
    }
    assert_eq!(bench.fetched_bytes(), 2 * LEN, "each byte of each variant");
    Ok(())
}

/// One condition renews the entry with all of its slices.
#[test]
fn a_304_renews_every_slice() -> Result<()> {
    let bench = two_slices("proxy_cache_revalidate on;")?;
    // Long enough that the second slice cannot be stale again.
    bench
        .film
        .change(|manners| manners.fields = vec![("Cache-Control", "max-age=1000".to_string())]);
    let first = bench.ask_until(0..10, "REVALIDATED")?;
    assert_part(&first, 0..10, 1);
    for range in [SLICE..SLICE + 10, 0..2 * SLICE] {
        let part = bench.ask(range.clone())?;
        assert_part(&part, range, 1);
        assert_eq!(label(&part), "HIT");
    }
    assert_eq!(bench.fields_asked("If-None-Match"), ["\"v1\""]);
    assert_eq!(bench.fetched_bytes(), 0);
    Ok(())
}

/// A revalidation that finds a new version retires every slice of the old one.
#[test]
fn a_revalidation_that_brings_a_new_version_retires_the_old() -> Result<()> {
    for lines in ["proxy_cache_revalidate on;", ""] {
        let bench = two_slices(lines)?;
        bench.film.change(|manners| {
            manners.version = 2;
            manners.fields.clear();
        });
        assert_part(&bench.ask_until(0..10, "EXPIRED")?, 0..10, 2);
        assert_part(&bench.ask(SLICE..SLICE + 10)?, SLICE..SLICE + 10, 2);
        assert_part(&bench.ask(0..2 * SLICE)?, 0..2 * SLICE, 2);
    }
    Ok(())
}

/// Without `proxy_cache_revalidate`, an entry that is no longer fresh costs no more than the slices
/// that are asked for.
#[test]
fn an_expired_entry_without_revalidation_is_right() -> Result<()> {
    let bench = two_slices("")?;
    assert_part(&bench.ask_until_not_fresh(0..10)?, 0..10, 1);
    let sent = bench.fetched_bytes();
    assert!(sent <= SLICE, "{sent} bytes for ten");
    assert_part(&bench.ask(0..2 * SLICE)?, 0..2 * SLICE, 1);
    Ok(())
}

/// A missing slice of an entry that is no longer fresh: one revalidation, and the slice.
#[test]
fn a_missing_slice_of_a_stale_entry_is_right() -> Result<()> {
    let bench = two_slices("proxy_cache_revalidate on;")?;
    bench.ask_until(0..10, "REVALIDATED")?;
    // Stale again after a second, or not: the answer is right either way.
    for slice in 2..6 {
        let range = slice * SLICE - 10..slice * SLICE + 10;
        assert_part(&bench.ask(range.clone())?, range, 1);
    }
    Ok(())
}

/// A failing origin: held slices are served stale, where the directive allows it.
#[test]
fn held_slices_are_served_stale() -> Result<()> {
    for outage in [Outage::Status(500), Outage::Closes] {
        let bench = two_slices("proxy_cache_use_stale error http_500;")?;
        bench.film.change(|manners| manners.outage = outage);
        let part = bench.ask_until(SLICE - 10..SLICE + 10, "STALE")?;
        assert_part(&part, SLICE - 10..SLICE + 10, 1);
        let outside = bench.ask(3 * SLICE..3 * SLICE + 10)?;
        assert!(outside.status >= 500, "{}: not held", outside.status);
        bench.film.change(|manners| manners.outage = Outage::None);
        assert_part(&bench.ask(0..4 * SLICE)?, 0..4 * SLICE, 1);
    }
    Ok(())
}

/// Without the directive a failing origin is a failure, and the slices are there when it is back.
#[test]
fn held_slices_are_not_served_stale_unasked() -> Result<()> {
    let bench = two_slices("proxy_cache_revalidate on;")?;
    bench
        .film
        .change(|manners| manners.outage = Outage::Status(500));
    let failed = bench.ask_until(0..10, "EXPIRED")?;
    assert_eq!(failed.status, 500);
    bench.film.change(|manners| manners.outage = Outage::None);
    assert_part(&bench.ask(0..2 * SLICE)?, 0..2 * SLICE, 1);
    assert_eq!(bench.fetched_bytes(), 0, "a 304 is enough");
    Ok(())
}

/// A background update holds no reader: held slices go out stale while the origin is silent.
#[test]
fn a_background_update_holds_nobody() -> Result<()> {
    let bench = two_slices(
        "proxy_cache_revalidate on; proxy_cache_background_update on;
         proxy_cache_use_stale updating;",
    )?;
    let gate = Gate::new();
    bench.film.change(|manners| {
        manners.head_gate = Some(gate.clone());
        manners.fields = vec![("Cache-Control", "max-age=1000".to_string())];
    });
    let first = bench.ask_until(0..10, "STALE")?;
    assert_part(&first, 0..10, 1);
    bench.origin.wait_for_requests(1)?;
    let second = bench.ask(SLICE..SLICE + 10)?;
    assert_part(&second, SLICE..SLICE + 10, 1);
    assert_eq!(label(&second), "UPDATING");
    gate.open();
    assert_part(&bench.ask_until(0..2 * SLICE, "HIT")?, 0..2 * SLICE, 1);
    assert_eq!(bench.fields_asked("If-None-Match"), ["\"v1\""], "once");
    Ok(())
}

/// A background update that finds a new version: readers of the old one are served, later ones get
/// the new.
#[test]
fn a_background_update_brings_the_new_version() -> Result<()> {
    let bench = two_slices(
        "proxy_cache_revalidate on; proxy_cache_background_update on;
         proxy_cache_use_stale updating;",
    )?;
    bench.film.change(|manners| {
        manners.version = 2;
        manners.fields.clear();
    });
    assert_part(&bench.ask_until(0..10, "STALE")?, 0..10, 1);
    assert_part(&bench.ask_until(0..10, "HIT")?, 0..10, 2);
    let part = bench.ask(0..2 * SLICE)?;
    assert_part(&part, 0..2 * SLICE, 2);
    Ok(())
}

/// Requests for a stale entry revalidate it once, whichever slices they want.
#[test]
fn many_requests_for_stale_slices_revalidate_once() -> Result<()> {
    let bench = two_slices(&format!("proxy_cache_revalidate on; {LOCKED}"))?;
    let gate = Gate::new();
    bench.film.change(|manners| {
        manners.head_gate = Some(gate.clone());
        manners.fields = vec![("Cache-Control", "max-age=1000".to_string())];
    });
    // Readers come until one of them has found the entry stale, and some more.
    let mut asked = Vec::new();
    let stale = Deadline::after(Duration::from_secs(10)).poll(|| {
        asked.push((bench.begin("bytes=0-9").ok()?, 0..10));
        (!bench.origin.requests().is_empty()).then_some(())
    });
    stale.context("the entry is never stale")?;
    for slice in [0, 1, 0, 1] {
        let range = slice * SLICE..slice * SLICE + 10;
        asked.push((bench.begin(&bytes_field(&range))?, range));
    }
    gate.open();
    for (connection, range) in &mut asked {
        let part = connection.read_response("GET")?;
        assert_part(&part, range.clone(), 1);
    }
    assert_eq!(bench.fields_asked("If-None-Match"), ["\"v1\""], "once");
    Ok(())
}

/// A purge takes every slice, and what comes then is new.
#[test]
fn a_purge_takes_every_slice() -> Result<()> {
    for (form, size) in FORMS {
        let bench = Bench::new(
            Protocol::Http1,
            &format!("{form} proxy_cache_purge $is_purge;"),
        )?;
        bench.ask(0..2 * size)?;
        bench.ask_until(0..2 * size, "HIT")?;
        bench.film.change(|manners| manners.version = 2);
        let purged = bench.client.send(&Request::new("PURGE", "/film"))?;
        assert!((200..300).contains(&purged.status), "{}", purged.status);
        for slice in [1, 0] {
            let range = slice * size..slice * size + 10;
            let part = bench.ask(range.clone())?;
            assert_part(&part, range, 2);
            assert_eq!(label(&part), "MISS", "{form}");
        }
    }
    Ok(())
}

/// A purge while a slice is on its way: its reader is served, and it is not kept.
#[test]
fn a_purge_covers_running_fills() -> Result<()> {
    let gate = Gate::new();
    let mut manners = Manners::of(LEN);
    manners.held = vec![(SLICE / 2..SLICE, gate.clone())];
    let bench = Bench::with(
        Protocol::Http1,
        &format!("{ALONE} proxy_cache_purge $is_purge;"),
        manners,
    )?;
    let mut reader = bench.begin(&bytes_field(&(0..SLICE)))?;
    let mut response = reader.read_head("GET")?.context("a head")?;
    reader.read_some(&mut response, 100)?;
    bench.film.change(|manners| manners.version = 2);
    let purged = bench.client.send(&Request::new("PURGE", "/film"))?;
    assert!(purged.status < 500, "{}", purged.status);
    gate.open();
    reader.read_body(&mut response)?;
    assert_bytes(&response.body, 0..SLICE, 1);
    assert_part(&bench.ask(0..10)?, 0..10, 2);
    Ok(())
}

/// A bypass asks the origin for the range as it is; it neither takes held slices nor hurts them.
#[test]
fn a_bypass_leaves_the_slices_whole() -> Result<()> {
    let bench = Bench::new(
        Protocol::Http1,
        &format!("{ALONE} proxy_cache_bypass $http_x_bypass; proxy_no_cache $http_x_bypass;"),
    )?;
    bench.ask(0..SLICE)?;
    bench.assert_fetched_once(0..SLICE);
    let past = request("bytes=5-14").header("X-Bypass", "1");
    let part = bench.client.send(&past)?;
    assert_part(&part, 5..15, 1);
    assert_eq!(label(&part), "BYPASS");
    let held = bench.ask(0..SLICE)?;
    assert_part(&held, 0..SLICE, 1);
    assert_eq!(label(&held), "HIT");
    Ok(())
}

/// An answer that may not be stored passes: ranges are right, and nothing stays.
#[test]
fn what_may_not_be_stored_passes() -> Result<()> {
    for (form, size) in FORMS {
        let mut manners = Manners::of(LEN);
        manners.fields = vec![("Cache-Control", "no-store".to_string())];
        let bench = Bench::with(Protocol::Http1, form, manners)?;
        for version in [1, 2] {
            bench.film.change(|manners| manners.version = version);
            let range = size - 10..size + 10;
            let part = bench.ask(range.clone())?;
            assert_part(&part, range, version);
            assert_eq!(label(&part), "MISS", "{form}");
            assert_whole(&bench.ask_whole()?, version);
        }
    }
    Ok(())
}
