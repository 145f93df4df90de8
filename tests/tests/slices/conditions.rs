//! Conditions of clients: If-Range, If-None-Match and their like, on cold and held slices.

use crate::bench::*;
use anyhow::Result;
use millpond_testkit::{Manners, Protocol, Request, Response, Validator};

/// Time when version 1 was made, and a day on which nothing was that is asked for.
const MODIFIED: &str = "Sat, 01 Jan 2022 00:00:00 GMT";
const OTHER_DATE: &str = "Mon, 10 Jan 2022 00:00:00 GMT";

/// Values that If-Range may have, and true if the range then counts.
const CONDITIONS: [(&str, bool); 5] = [
    ("\"v1\"", true),
    ("\"other\"", false),
    // RFC 9110 §13.1.5: a weak tag never matches.
    ("W/\"v1\"", false),
    (MODIFIED, true),
    (OTHER_DATE, false),
];

fn bench(protocol: Protocol) -> Result<Bench> {
    let mut manners = Manners::of(LEN);
    manners.validator = Validator::StrongAndDate;
    Bench::with(protocol, ALONE, manners)
}

fn ask_if(bench: &Bench, condition: &str) -> Result<Response> {
    let request = request("bytes=70000-70009").header("If-Range", condition);
    bench.client.send(&request)
}

fn assert_counts(response: &Response, counts: bool) {
    if counts {
        assert_part(response, 70_000..70_010, 1);
    } else {
        assert_whole(response, 1);
    }
}

/// A held entry answers If-Range by itself, and a range that counts costs nothing.
fn if_range_is_compared_with_the_held_entry(protocol: Protocol) -> Result<()> {
    for (condition, counts) in CONDITIONS {
        let bench = bench(protocol)?;
        bench.ask(70_000..70_001)?;
        let slice = slices_of(&(70_000..70_001), SLICE);
        bench.assert_fetched_once(slice.clone());
        assert_counts(&ask_if(&bench, condition)?, counts);
        let expected = if counts { slice } else { 0..LEN };
        bench.assert_fetched_once(expected);
    }
    Ok(())
}

/// On a cold entry the condition is held against what comes: the whole is sent if it fails.
fn if_range_on_a_cold_entry_gets_the_right_bytes(protocol: Protocol) -> Result<()> {
    for (condition, counts) in CONDITIONS {
        let bench = bench(protocol)?;
        assert_counts(&ask_if(&bench, condition)?, counts);
        // Twice: the second answer is made of what the first left.
        assert_counts(&ask_if(&bench, condition)?, counts);
    }
    Ok(())
}

/// A range behind the end of the version that is there, as when the rest of an older and longer one
/// is asked for: If-Range is weighed before it is 416 (RFC 9110 §13.1.5).
fn if_range_fails_before_a_range_that_is_not_there(protocol: Protocol) -> Result<()> {
    let behind = format!("bytes={}-", LEN + 5 * SLICE);
    for (condition, counts) in CONDITIONS {
        let bench = bench(protocol)?;
        for _ in 0..2 {
            let asked = request(&behind).header("If-Range", condition);
            let answer = bench.client.send(&asked)?;
            if counts {
                assert_eq!(answer.status, 416, "{condition}");
            } else {
                assert_whole(&answer, 1);
            }
        }
        // Slices of others go on.
        bench.assert_fetched_once(if counts { 0..SLICE } else { 0..LEN });
    }
    Ok(())
}

/// A range that fails If-Range after the resource has changed gets the new version whole.
fn if_range_of_an_old_version_gets_the_new_one_whole(protocol: Protocol) -> Result<()> {
    let bench = bench(protocol)?;
    bench.film.change(|manners| manners.version = 2);
    bench.ask(0..1)?;
    let whole = ask_if(&bench, "\"v1\"")?;
    assert_whole(&whole, 2);
    assert_eq!(whole.header("ETag"), Some("\"v2\""));
    Ok(())
}

/// The validator of the client and that of a fill are two things: the origin is asked with ours.
fn the_clients_condition_does_not_reach_the_origin(protocol: Protocol) -> Result<()> {
    let bench = bench(protocol)?;
    bench.ask(0..1)?;
    bench.assert_fetched_once(0..SLICE);
    bench.forget();
    ask_if(&bench, "\"v1\"")?;
    assert_eq!(bench.fields_asked("If-Range"), ["\"v1\""]);
    bench.forget();
    ask_if(&bench, "\"other\"")?;
    let asked = bench.fields_asked("If-Range");
    assert!(asked.iter().all(|value| value == "\"v1\""), "{asked:?}");
    Ok(())
}

/// 304 for a client that has the version, from one slice that is held, without a request.
fn a_client_that_has_it_gets_304(protocol: Protocol) -> Result<()> {
    let bench = bench(protocol)?;
    bench.ask(0..1)?;
    bench.assert_fetched_once(0..SLICE);
    bench.forget();
    for (name, value) in [("If-None-Match", "\"v1\""), ("If-Modified-Since", MODIFIED)] {
        let whole = Request::get("/film").header(name, value);
        assert_eq!(bench.client.send(&whole)?.status, 304, "{name}");
        let part = request("bytes=0-9").header(name, value);
        assert_eq!(bench.client.send(&part)?.status, 304, "{name}");
    }
    assert_eq!(bench.ranges_asked().len(), 0);
    Ok(())
}

/// If-Match of another version is refused.
fn if_match_of_another_version_is_refused(protocol: Protocol) -> Result<()> {
    let bench = bench(protocol)?;
    bench.ask(0..1)?;
    let request = request("bytes=0-9").header("If-Match", "\"other\"");
    assert_eq!(bench.client.send(&request)?.status, 412);
    Ok(())
}

millpond_testkit::each_protocol!(
    [Http1, Streams, Http3]
    if_range_is_compared_with_the_held_entry,
    if_range_on_a_cold_entry_gets_the_right_bytes,
    if_range_fails_before_a_range_that_is_not_there,
    if_range_of_an_old_version_gets_the_new_one_whole,
    the_clients_condition_does_not_reach_the_origin,
    a_client_that_has_it_gets_304,
    if_match_of_another_version_is_refused,
);
