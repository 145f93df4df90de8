//! Origins that do not do ranges well: none, weak validators, wrong answers, failures. Each has a
//! defined result, and the next request is right.

use crate::bench::*;
use anyhow::{Context, Result};
use millpond_testkit::{
    Answer, Client, Gate, Lie, Manners, Outage, Protocol, Ranges, Request, Response, Validator,
};
use std::ops::Range;

/// Asserts the right bytes of version 1, or what the origin itself says to the same request, or a
/// failure that the client can see.
fn assert_right_or_failed(bench: &Bench, wanted: Range<u64>, case: &str) {
    let field = bytes_field(&wanted);
    // Closed without an answer.
    let Ok(response) = bench.ask_as(&field) else {
        return;
    };
    let own_words = Client::new(bench.origin.port()).send(&request(&field));
    if own_words.is_ok_and(|own| is_same(&own, &response)) {
        return;
    }
    match response.status {
        500..=599 => {}
        200 => assert_eq!(assert_one_version(&response.body, 0), 1, "{case}"),
        206 if response.is_complete() => {
            let place = format!("bytes {}-{}/", wanted.start, wanted.end - 1);
            let content_range = response.header("Content-Range").unwrap_or_default();
            assert!(content_range.starts_with(&place), "{case}: {content_range}");
            assert_bytes(&response.body, wanted, 1);
        }
        206 if response.body.is_empty() => {}
        206 => assert_eq!(
            assert_one_version(&response.body, wanted.start),
            1,
            "{case}"
        ),
        other => panic!("{case}: status {other}"),
    }
}

fn is_same(one: &Response, other: &Response) -> bool {
    let told = |response: &Response| {
        let content_range = response.header("Content-Range").map(str::to_string);
        (response.status, content_range, response.is_complete())
    };
    told(one) == told(other) && one.body == other.body
}

/// 200 to a range: as in nginx, an origin that does no ranges has none; the whole is one transfer
/// and is kept.
#[test]
fn an_origin_without_ranges_is_kept_whole() -> Result<()> {
    for (form, _) in FORMS {
        let mut manners = Manners::of(LEN);
        manners.ranges = Ranges::Ignored;
        let bench = Bench::with(Protocol::Http1, form, manners)?;
        let first = bench.ask(SLICE..SLICE + 10)?;
        assert_whole(&first, 1);
        assert_eq!(label(&first), "MISS", "{form}");
        for wanted in [0..10, SLICE..SLICE + 10] {
            assert_whole(&bench.ask_until(wanted, "HIT")?, 1);
        }
        assert_whole(&bench.ask_whole()?, 1);
        bench.assert_fetched_once(0..LEN);
    }
    Ok(())
}

/// With `proxy_force_ranges` the client has its bytes before the rest comes.
#[test]
fn ranges_can_be_forced() -> Result<()> {
    for (form, _) in FORMS {
        let gate = Gate::new();
        let mut manners = Manners::of(LEN);
        manners.ranges = Ranges::Ignored;
        manners.held = vec![(2 * SLICE..LEN, gate.clone())];
        let bench = Bench::with(
            Protocol::Http1,
            &format!("{form} proxy_force_ranges on;"),
            manners,
        )?;
        let first = bench.ask(SLICE..SLICE + 10)?;
        assert_part(&first, SLICE..SLICE + 10, 1);
        assert_eq!(label(&first), "MISS", "{form}");
        gate.open();
        assert_whole(&bench.ask_whole()?, 1);
        let part = bench.ask_until(LEN - 10..LEN, "HIT")?;
        assert_part(&part, LEN - 10..LEN, 1);
        assert_part(&bench.ask_as("bytes=-5")?, LEN - 5..LEN, 1);
        bench.assert_fetched_once(0..LEN);
    }
    Ok(())
}

/// The whole of an origin without ranges is one transfer, too.
#[test]
fn a_whole_answer_without_ranges_is_one_transfer() -> Result<()> {
    for (form, _) in FORMS {
        let mut manners = Manners::of(LEN);
        manners.ranges = Ranges::Ignored;
        let bench = Bench::with(Protocol::Http1, form, manners)?;
        assert_whole(&bench.ask_whole()?, 1);
        assert_whole(&bench.ask_until(5..15, "HIT")?, 1);
        bench.assert_fetched_once(0..LEN);
    }
    Ok(())
}

/// A weak tag, or none: slices could be of two versions, so none is kept, and every range passes.
#[test]
fn ranges_without_a_strong_validator_pass_unstored() -> Result<()> {
    for validator in [Validator::Weak, Validator::None] {
        let mut manners = Manners::of(LEN);
        manners.validator = validator;
        let bench = Bench::with(Protocol::Http1, ALONE, manners)?;
        for version in [1, 2, 3] {
            bench.film.change(|manners| manners.version = version);
            bench.forget();
            let part = bench.ask(SLICE..SLICE + 10)?;
            assert_part(&part, SLICE..SLICE + 10, version);
            assert_eq!(label(&part), "MISS", "{validator:?}");
            let over = SLICE - 10..2 * SLICE + 10;
            assert_part(&bench.ask(over.clone())?, over, version);
            assert_part(&bench.ask_as("bytes=-10")?, LEN - 10..LEN, version);
        }
    }
    Ok(())
}

/// An origin that has answered a range with all there is serves ranges, whether or not it says so:
/// they are cut from what is kept.
#[test]
fn a_whole_that_came_as_a_range_has_ranges() -> Result<()> {
    let bench = Bench::new(Protocol::Http1, ALONE)?;
    let all = Answer::new(206)
        .header("Content-Range", "bytes 0-999/1000")
        .header("ETag", "W/\"w\"")
        .offset_body(1000, 1);
    bench.origin.route("/short", all);
    for expected in ["MISS", "HIT"] {
        let ranged = Request::get("/short").header("Range", "bytes=10-19");
        let part = bench.client.send(&ranged)?;
        assert_eq!((part.status, label(&part)), (206, expected));
        assert_eq!(part.header("Content-Range"), Some("bytes 10-19/1000"));
        assert_bytes(&part.body, 10..20, 1);
    }
    Ok(())
}

/// A whole answer has one version whatever its validator: it is kept, and ranges are cut from it.
#[test]
fn a_whole_without_a_strong_validator_is_kept() -> Result<()> {
    for validator in [Validator::Weak, Validator::None] {
        let mut manners = Manners::of(LEN);
        manners.validator = validator;
        let bench = Bench::with(Protocol::Http1, ALONE, manners)?;
        assert_whole(&bench.ask_whole()?, 1);
        bench.film.change(|manners| manners.version = 2);
        let part = bench.ask_until(SLICE - 5..SLICE + 5, "HIT")?;
        assert_part(&part, SLICE - 5..SLICE + 5, 1);
        let whole = bench.ask_whole()?;
        assert_whole(&whole, 1);
        assert_eq!(label(&whole), "HIT", "{validator:?}");
    }
    Ok(())
}

/// A wrong Content-Range is found out: the client gets the right bytes or sees a failure, nothing
/// of it is kept, and an origin that has mended its ways is served.
#[test]
fn a_wrong_content_range_is_found_out() -> Result<()> {
    let lies = [
        Lie::NoContentRange,
        Lie::GarbledContentRange,
        Lie::Total(SLICE + 5),
        Lie::OtherBytes(16),
        Lie::OtherBytes(SLICE),
        Lie::OtherPlace(16),
        Lie::Fewer(16),
        Lie::AtMost(1000),
        Lie::AtMost(SLICE - 1),
        Lie::AtMost(SLICE),
        Lie::More(16),
        Lie::FewerUntold(16),
    ];
    for lie in lies {
        let case = format!("{lie:?}");
        let mut manners = Manners::of(LEN);
        manners.lie = Some(lie);
        let bench = Bench::with(Protocol::Http1, ALONE, manners)?;
        let wanted = SLICE - 10..2 * SLICE - 10;
        for _ in 0..2 {
            assert_right_or_failed(&bench, wanted.clone(), &case);
        }
        assert!(bench.fetched().len() < 16, "{case}");
        bench.film.change(|manners| manners.lie = None);
        assert_part(&bench.ask(wanted.clone())?, wanted, 1);
        assert_whole(&bench.ask_whole()?, 1);
    }
    Ok(())
}

/// A wrong slice is found out also when the first one came right and the next is wrong.
#[test]
fn a_wrong_second_slice_is_found_out() -> Result<()> {
    let lies = [
        Lie::NoContentRange,
        Lie::GarbledContentRange,
        Lie::UnknownTotal,
        Lie::Total(LEN + 5),
        Lie::OtherBytes(16),
        Lie::OtherPlace(16),
        Lie::Fewer(16),
        Lie::AtMost(1000),
        Lie::AtMost(SLICE - 1),
        Lie::AtMost(SLICE),
        Lie::More(16),
        Lie::FewerUntold(16),
    ];
    for lie in lies {
        let case = format!("{lie:?}");
        let bench = Bench::new(Protocol::Http1, ALONE)?;
        bench.ask(0..1)?;
        bench.assert_fetched_once(0..SLICE);
        bench.film.change(|manners| manners.lie = Some(lie));
        let wanted = 0..2 * SLICE;
        assert_right_or_failed(&bench, wanted.clone(), &case);
        assert!(bench.fetched().len() < 16, "{case}");
        bench.film.change(|manners| manners.lie = None);
        // What was said in the lie may have been taken for a change, which the next one sees.
        let _change = bench.ask(wanted.clone())?;
        assert_part(&bench.ask(wanted.clone())?, wanted, 1);
        assert_whole(&bench.ask_whole()?, 1);
    }
    Ok(())
}

/// `bytes 0-9/*`, or a total that nobody can list the slices of: passed on as it is, and not kept.
#[test]
fn a_total_that_cannot_be_counted_in_slices_passes_unstored() -> Result<()> {
    for lie in [Lie::UnknownTotal, Lie::Total(1 << 60)] {
        let mut manners = Manners::of(LEN);
        manners.lie = Some(lie);
        let bench = Bench::with(Protocol::Http1, ALONE, manners)?;
        for _ in 0..2 {
            let part = bench.ask(SLICE..SLICE + 10)?;
            assert_eq!((part.status, label(&part)), (206, "MISS"), "{lie:?}");
            assert_bytes(&part.body, SLICE..SLICE + 10, 1);
            let content_range = part.header("Content-Range").unwrap_or_default();
            let place = format!("bytes {SLICE}-{}/", SLICE + 9);
            assert!(content_range.starts_with(&place), "{content_range}");
        }
        bench.film.change(|manners| manners.lie = None);
        assert_part(&bench.ask(0..10)?, 0..10, 1);
    }
    Ok(())
}

/// 416 is passed on with its Content-Range, whatever the reason, and does not stay.
#[test]
fn a_416_is_passed_on() -> Result<()> {
    for (form, _) in FORMS {
        let outside = 2 * LARGE_SLICE..2 * LARGE_SLICE + 10;
        let bench = Bench::with(Protocol::Http1, form, Manners::of(1000))?;
        let refused = bench.ask(outside.clone())?;
        assert_eq!(refused.status, 416, "{form}");
        assert_eq!(refused.header("Content-Range"), Some("bytes */1000"));
        bench.film.change(|manners| manners.len = LEN);
        assert_part(&bench.ask(0..10)?, 0..10, 1);
        assert_part(&bench.ask(outside.clone())?, outside, 1);
    }
    Ok(())
}

/// An empty resource has no range at all; its whole is served.
#[test]
fn an_empty_body_has_no_ranges() -> Result<()> {
    for (form, _) in FORMS {
        let bench = Bench::with(Protocol::Http1, form, Manners::of(0))?;
        for _ in 0..2 {
            let whole = bench.ask_whole()?;
            assert_eq!((whole.status, whole.body.len()), (200, 0), "{form}");
            let part = bench.ask(0..10)?;
            assert!(matches!(part.status, 200 | 416), "{form}: {}", part.status);
            assert!(part.status == 416 || part.body.is_empty());
        }
    }
    Ok(())
}

/// A body smaller than a slice is one slice, from its whole or from a range.
#[test]
fn a_small_body_is_one_slice() -> Result<()> {
    for (form, _) in FORMS {
        let bench = Bench::with(Protocol::Http1, form, Manners::of(1000))?;
        let part = bench.ask(10..20)?;
        assert_eq!(part.header("Content-Range"), Some("bytes 10-19/1000"));
        assert_bytes(&part.body, 10..20, 1);
        bench.assert_fetched_once(0..1000);
        let whole = bench.ask_whole()?;
        assert_bytes(&whole.body, 0..1000, 1);
        assert_eq!(label(&whole), "HIT", "{form}");

        let bench = Bench::with(Protocol::Http1, form, Manners::of(1000))?;
        let whole = bench.ask_whole()?;
        assert_eq!((whole.status, label(&whole)), (200, "MISS"), "{form}");
        assert_bytes(&whole.body, 0..1000, 1);
        assert_eq!(label(&bench.ask_until(0..10, "HIT")?), "HIT");
        bench.assert_fetched_once(0..1000);
    }
    Ok(())
}

/// The transfer breaks off within a slice: the client sees it or is served by another request,
/// nothing torn is kept, and the next request is right.
#[test]
fn a_part_that_breaks_off_is_never_kept_as_whole() -> Result<()> {
    for (form, _) in FORMS {
        let mut manners = Manners::of(LEN);
        manners.drop_at = Some(SLICE + 100);
        let bench = Bench::with(Protocol::Http1, form, manners)?;
        let wanted = 0..2 * SLICE;
        assert_right_or_failed(&bench, wanted.clone(), form);
        bench.film.change(|manners| manners.drop_at = None);
        assert_part(&bench.ask(wanted.clone())?, wanted, 1);
        assert_whole(&bench.ask_whole()?, 1);
    }
    Ok(())
}

/// Bytes that came before the break are the client's, also of a slice that stays incomplete.
#[test]
fn bytes_before_the_break_are_served() -> Result<()> {
    let mut manners = Manners::of(LEN);
    manners.drop_at = Some(1000);
    let bench = Bench::with(Protocol::Http1, ALONE, manners)?;
    assert_part(&bench.ask(0..500)?, 0..500, 1);
    bench.film.change(|manners| manners.drop_at = None);
    assert_part(&bench.ask(0..2000)?, 0..2000, 1);
    Ok(())
}

/// Errors of the origin are answers as ever, and are not slices.
#[test]
fn an_error_of_the_origin_is_passed_on() -> Result<()> {
    for (form, _) in FORMS {
        for status in [404, 403, 500, 503] {
            let mut manners = Manners::of(LEN);
            manners.outage = Outage::Status(status);
            let bench = Bench::with(Protocol::Http1, form, manners)?;
            let failed = bench.ask(0..10)?;
            assert_eq!(failed.status, status, "{form}");
            assert_eq!(failed.text(), "the origin fails\n");
            bench.film.change(|manners| manners.outage = Outage::None);
            assert_part(&bench.ask(0..10)?, 0..10, 1);
        }
    }
    Ok(())
}

/// An origin that closes is a bad gateway, and its waiters' too.
#[test]
fn an_origin_that_closes_is_a_bad_gateway() -> Result<()> {
    for (form, _) in FORMS {
        let mut manners = Manners::of(LEN);
        manners.outage = Outage::Closes;
        let bench = Bench::with(Protocol::Http1, form, manners)?;
        assert_eq!(bench.ask(0..10)?.status, 502, "{form}");
        bench.film.change(|manners| manners.outage = Outage::None);
        assert_part(&bench.ask(0..10)?, 0..10, 1);
    }
    Ok(())
}

/// An origin that fails for a later slice: held bytes have gone out, so the end is visible; the
/// held slices stay.
#[test]
fn a_failure_behind_held_slices_is_visible_and_keeps_them() -> Result<()> {
    for outage in [Outage::Status(500), Outage::Closes] {
        let bench = Bench::new(Protocol::Http1, ALONE)?;
        bench.ask(0..1)?;
        bench.assert_fetched_once(0..SLICE);
        bench.film.change(|manners| manners.outage = outage);
        let mut cut = bench.begin(&bytes_field(&(0..2 * SLICE)))?;
        let response = cut.next_response("GET")?.context("an answer")?;
        assert!(response.status >= 500 || !response.is_complete());
        if response.status == 206 {
            assert_bytes(&response.body, 0..SLICE, 1);
        }
        let held = bench.ask(0..SLICE)?;
        assert_part(&held, 0..SLICE, 1);
        assert_eq!(label(&held), "HIT");
        bench.film.change(|manners| manners.outage = Outage::None);
        assert_part(&bench.ask(0..2 * SLICE)?, 0..2 * SLICE, 1);
        bench.assert_fetched_once(0..2 * SLICE);
    }
    Ok(())
}
