//! One range: what is fetched for it, in which order, and when the client has it.

use crate::bench::*;
use anyhow::{Context, Result};
use millpond_testkit::{Gate, Manners, Outage, Protocol, Request};
use std::ops::Range;

/// Ten bytes cost the slice around them, in every form of configuration, and then nothing.
fn a_cold_range_fetches_its_slices_only(protocol: Protocol) -> Result<()> {
    for (form, size) in FORMS {
        let bench = Bench::new(protocol, form)?;
        let wanted = size + 10..size + 20;
        for expected in ["MISS", "HIT", "HIT"] {
            let part = bench.ask(wanted.clone())?;
            assert_part(&part, wanted.clone(), 1);
            assert_eq!(label(&part), expected, "{form}");
        }
        bench.assert_fetched_once(slices_of(&wanted, size));
    }
    Ok(())
}

/// Any other range of a slice that is held is a hit; the one over its border fetches its neighbour.
fn a_range_over_a_border_fetches_the_missing_side_only(protocol: Protocol) -> Result<()> {
    for (form, size) in FORMS {
        let bench = Bench::new(protocol, form)?;
        bench.ask(0..1)?;
        bench.assert_fetched_once(0..size);
        let inside = bench.ask(size - 100..size)?;
        assert_part(&inside, size - 100..size, 1);
        assert_eq!(label(&inside), "HIT", "{form}");
        let over = size - 100..size + 100;
        assert_part(&bench.ask(over.clone())?, over, 1);
        bench.assert_fetched_once(0..2 * size);
    }
    Ok(())
}

/// Missing slices that touch come in one upstream request; those with a held one between them in
/// two.
fn neighbours_come_in_one_request(protocol: Protocol) -> Result<()> {
    let bench = Bench::new(protocol, ALONE)?;
    let three = 0..3 * SLICE;
    assert_part(&bench.ask(three.clone())?, three.clone(), 1);
    assert_eq!(bench.ranges_asked(), [bytes_field(&three)]);

    let bench = Bench::new(protocol, ALONE)?;
    bench.ask(2 * SLICE..3 * SLICE)?;
    let five = 0..5 * SLICE;
    assert_part(&bench.ask(five.clone())?, five.clone(), 1);
    let asked = [2 * SLICE..3 * SLICE, 0..2 * SLICE, 3 * SLICE..5 * SLICE];
    assert_eq!(bench.ranges_asked(), asked.map(|range| bytes_field(&range)));
    bench.assert_fetched_once(five);
    Ok(())
}

/// One request never asks for all of a long body: many small slices come in several.
fn requests_to_the_origin_are_of_bounded_length(protocol: Protocol) -> Result<()> {
    let bench = Bench::new(protocol, "slice 4k;")?;
    assert_whole(&bench.ask_whole()?, 1);
    bench.assert_fetched_once(0..LEN);
    let longest = bench
        .fetched()
        .iter()
        .map(|sent| sent.end - sent.start)
        .max();
    assert!(longest <= Some(LARGE_SLICE), "{:?}", bench.fetched());
    Ok(())
}

/// However many requests overlap, each byte is fetched once: ranges and the whole, begun before the
/// origin says a word.
fn overlapping_requests_at_once_fetch_each_byte_once(protocol: Protocol) -> Result<()> {
    for (form, size) in FORMS {
        let gate = Gate::new();
        let mut manners = Manners::of(LEN);
        manners.head_gate = Some(gate.clone());
        let bench = Bench::with(protocol, &format!("{form} {LOCKED}"), manners)?;
        let wanted: Vec<Range<u64>> = (0..24u64)
            .map(|turn| {
                // In one slice: whoever is further behind a slow transfer asks for itself.
                let start = turn * 17_001 % size;
                start..(start + 1 + turn * size / 12).min(LEN)
            })
            .collect();
        let mut asked = Vec::new();
        for range in &wanted {
            asked.push(bench.begin(&bytes_field(range))?);
        }
        let mut whole = bench.client.connect()?;
        whole.ask(&Request::get("/film"))?;
        bench.origin.wait_for_requests(1)?;
        gate.open();
        for (connection, range) in asked.iter_mut().zip(&wanted) {
            assert_part(&connection.read_response("GET")?, range.clone(), 1);
        }
        assert_whole(&whole.read_response("GET")?, 1);
        bench.assert_fetched_once(0..LEN);
    }
    Ok(())
}

/// A range that wants what another request is fetching reads along, and asks for the rest only.
fn a_running_fetch_is_shared(protocol: Protocol) -> Result<()> {
    let gate = Gate::new();
    let mut manners = Manners::of(LEN);
    manners.held = vec![(SLICE / 2..SLICE, gate.clone())];
    let bench = Bench::with(protocol, &format!("{ALONE} {LOCKED}"), manners)?;
    let mut first = bench.begin(&bytes_field(&(0..SLICE)))?;
    let mut head = first.read_head("GET")?.context("a head")?;
    first.read_some(&mut head, 100)?;
    let over = SLICE / 4..2 * SLICE;
    let mut second = bench.begin(&bytes_field(&over))?;
    let mut response = second.read_head("GET")?.context("a head")?;
    second.read_some(&mut response, 100)?;
    gate.open();
    second.read_body(&mut response)?;
    assert_part(&response, over, 1);
    first.read_body(&mut head)?;
    assert_part(&head, 0..SLICE, 1);
    bench.assert_fetched_once(0..2 * SLICE);
    Ok(())
}

/// Bytes that are held go out while the rest is still at the origin.
fn held_bytes_are_sent_before_the_missing_ones_come(protocol: Protocol) -> Result<()> {
    let bench = Bench::new(protocol, ALONE)?;
    bench.ask(0..1)?;
    bench.assert_fetched_once(0..SLICE);
    let gate = Gate::new();
    let held = vec![(SLICE..2 * SLICE, gate.clone())];
    bench.film.change(|manners| manners.held = held);
    let mut connection = bench.begin(&bytes_field(&(0..2 * SLICE)))?;
    let mut response = connection.read_head("GET")?.context("a head")?;
    connection.read_some(&mut response, SLICE as usize)?;
    assert_bytes(&response.body, 0..SLICE, 1);
    gate.open();
    connection.read_body(&mut response)?;
    assert_part(&response, 0..2 * SLICE, 1);
    Ok(())
}

/// Bytes go out as they come, not at the end of their slice.
fn missing_bytes_are_sent_as_they_come(protocol: Protocol) -> Result<()> {
    let gate = Gate::new();
    let mut manners = Manners::of(LEN);
    manners.held = vec![(SLICE / 2..LEN, gate.clone())];
    let bench = Bench::with(protocol, ALONE, manners)?;
    assert_part(&bench.ask(0..1000)?, 0..1000, 1);
    gate.open();
    bench.assert_fetched_once(0..SLICE);
    Ok(())
}

/// The first request for an entry has no condition; every later fill names its generation.
fn fills_of_a_known_entry_carry_if_range(protocol: Protocol) -> Result<()> {
    for (form, size) in FORMS {
        let bench = Bench::new(protocol, form)?;
        bench.ask(0..1)?;
        bench.assert_fetched_once(0..size);
        bench.ask(size..size + 1)?;
        bench.assert_fetched_once(0..2 * size);
        assert_eq!(bench.fields_asked("If-Range"), ["-", "\"v1\""], "{form}");
    }
    Ok(())
}

/// The wanted bytes lie deep in a slice: they are asked for first, the rest of the slice behind
/// them, and nothing twice.
fn a_deep_cold_range_starts_with_the_wanted_bytes(protocol: Protocol) -> Result<()> {
    for slice in [0, 1, 2] {
        let start = slice * LARGE_SLICE;
        let wanted = start + 900_000..start + 900_010;
        let gate = Gate::new();
        let mut manners = Manners::of(LEN);
        manners.held = vec![(start..wanted.start, gate.clone())];
        let bench = Bench::with(protocol, LARGE, manners)?;
        assert_part(&bench.ask(wanted.clone())?, wanted, 1);
        gate.open();
        bench.assert_fetched_once(start..start + LARGE_SLICE);
        assert!(
            bench.ranges_asked().len() <= 2,
            "{:?}",
            bench.ranges_asked()
        );
        assert_eq!(label(&bench.ask_until(start..start + 10, "HIT")?), "HIT");
        bench.assert_fetched_once(start..start + LARGE_SLICE);
    }
    Ok(())
}

/// A range that begins deep in one slice and ends in the next: both become whole.
fn a_deep_range_over_a_border_is_right(protocol: Protocol) -> Result<()> {
    let bench = Bench::new(protocol, LARGE)?;
    let wanted = LARGE_SLICE - 1000..LARGE_SLICE + 1000;
    assert_part(&bench.ask(wanted.clone())?, wanted, 1);
    bench.assert_fetched_once(0..2 * LARGE_SLICE);
    assert_part(&bench.ask(0..2 * LARGE_SLICE)?, 0..2 * LARGE_SLICE, 1);
    bench.assert_fetched_once(0..2 * LARGE_SLICE);
    Ok(())
}

/// The last bytes of an entry nobody knows are asked for as they are: no request for the length
/// first, and the rest of the last slice comes behind.
fn a_cold_suffix_is_asked_as_it_is(protocol: Protocol) -> Result<()> {
    for (form, size) in FORMS {
        let last = slices_of(&(LEN - 1024..LEN), size);
        let gate = Gate::new();
        let mut manners = Manners::of(LEN);
        manners.held = vec![(0..LEN - 1024, gate.clone())];
        let bench = Bench::with(protocol, form, manners)?;
        assert_part(&bench.ask_as("bytes=-1024")?, LEN - 1024..LEN, 1);
        let asked = bench.ranges_asked();
        assert_eq!(asked.first().map(String::as_str), Some("bytes=-1024"));
        gate.open();
        bench.assert_fetched_once(last.clone());
        let again = bench.ask_until(last.start..LEN, "HIT")?;
        assert_part(&again, last.start..LEN, 1);
        assert_eq!(label(&bench.ask_as("bytes=-1024")?), "HIT", "{form}");
        bench.assert_fetched_once(last);
    }
    Ok(())
}

/// A suffix over several slices makes each of them whole, and fetches nothing before them.
fn a_long_suffix_fetches_the_slices_that_it_touches(protocol: Protocol) -> Result<()> {
    let bench = Bench::new(protocol, ALONE)?;
    let wanted = LEN - 3 * SLICE..LEN;
    let field = format!("bytes=-{}", 3 * SLICE);
    assert_part(&bench.ask_as(&field)?, wanted.clone(), 1);
    bench.assert_fetched_once(slices_of(&wanted, SLICE));
    Ok(())
}

/// A suffix longer than the body is all of it.
fn a_suffix_beyond_the_start_is_the_whole(protocol: Protocol) -> Result<()> {
    let bench = Bench::new(protocol, ALONE)?;
    let field = format!("bytes=-{}", LEN + 10);
    for _ in 0..2 {
        assert_part(&bench.ask_as(&field)?, 0..LEN, 1);
    }
    bench.assert_fetched_once(0..LEN);
    Ok(())
}

/// A suffix of an entry that is known is cut from its slices.
fn a_suffix_of_a_known_entry_fetches_its_last_slice(protocol: Protocol) -> Result<()> {
    let bench = Bench::new(protocol, ALONE)?;
    bench.ask(0..1)?;
    bench.assert_fetched_once(0..SLICE);
    assert_part(&bench.ask_as("bytes=-10")?, LEN - 10..LEN, 1);
    let last = slices_of(&(LEN - 10..LEN), SLICE);
    bench.assert_all_fetched_once(&[0..SLICE, last]);
    Ok(())
}

/// `bytes=N-` fetches from the slice of N to the end, and nothing before it.
fn an_open_range_goes_to_the_end(protocol: Protocol) -> Result<()> {
    for (form, size) in FORMS {
        let bench = Bench::new(protocol, form)?;
        let start = 2 * size + 7;
        let field = format!("bytes={start}-");
        assert_part(&bench.ask_as(&field)?, start..LEN, 1);
        bench.assert_fetched_once(2 * size..LEN);
        let again = bench.ask_as(&field)?;
        assert_part(&again, start..LEN, 1);
        assert_eq!(label(&again), "HIT", "{form}");
    }
    Ok(())
}

/// A last byte beyond the end is the end.
fn a_range_past_the_end_stops_there(protocol: Protocol) -> Result<()> {
    let bench = Bench::new(protocol, ALONE)?;
    for _ in 0..2 {
        let part = bench.ask(LEN - 10..LEN + 1000)?;
        assert_part(&part, LEN - 10..LEN, 1);
    }
    bench.assert_fetched_once(slices_of(&(LEN - 10..LEN), SLICE));
    Ok(())
}

/// A range outside of a known entry is refused without a request; of a cold one, the origin says.
fn a_range_outside_is_refused(protocol: Protocol) -> Result<()> {
    // Beyond the last slice, so that nothing of the body is touched.
    let outside = LEN + SLICE..LEN + SLICE + 10;
    let content_range = format!("bytes */{LEN}");
    let bench = Bench::new(protocol, ALONE)?;
    for _ in 0..2 {
        let refused = bench.ask(outside.clone())?;
        assert_eq!(refused.status, 416);
        assert_eq!(refused.header("Content-Range"), Some(&*content_range));
    }
    bench.ask(0..1)?;
    bench.assert_fetched_once(0..SLICE);
    bench.forget();
    let refused = bench.ask(outside)?;
    assert_eq!(refused.status, 416);
    assert_eq!(refused.header("Content-Range"), Some(&*content_range));
    assert_eq!(bench.ranges_asked().len(), 0, "the length is known");
    Ok(())
}

/// The whole of a cold entry, then any of its ranges; and the whole of one that is held in part.
fn whole_and_ranges_share_the_entry(protocol: Protocol) -> Result<()> {
    for (form, size) in FORMS {
        let bench = Bench::new(protocol, form)?;
        assert_whole(&bench.ask_whole()?, 1);
        for start in [0, size - 5, LEN - 10] {
            let part = bench.ask(start..start + 10)?;
            assert_part(&part, start..start + 10, 1);
            assert_eq!(label(&part), "HIT", "{form}");
        }
        bench.assert_fetched_once(0..LEN);

        let bench = Bench::new(protocol, form)?;
        bench.ask(size..size + 10)?;
        bench.ask_as("bytes=-10")?;
        assert_whole(&bench.ask_whole()?, 1);
        bench.assert_fetched_once(0..LEN);
        let again = bench.ask_whole()?;
        assert_whole(&again, 1);
        assert_eq!(label(&again), "HIT", "{form}");
    }
    Ok(())
}

/// A player reads on and on, and seeks: no byte comes twice, prefetched or not.
fn a_sequential_reader_costs_each_byte_once(protocol: Protocol) -> Result<()> {
    let bench = Bench::new(protocol, ALONE)?;
    let step = SLICE / 2 + 1;
    let mut start = 0;
    while start < LEN {
        let range = start..LEN.min(start + step);
        assert_part(&bench.ask(range.clone())?, range, 1);
        start += step;
    }
    bench.assert_fetched_once(0..LEN);
    Ok(())
}

/// One range never makes the origin send more than the slices that it touches, wherever it lies.
fn the_origin_sends_no_more_than_the_slices_touched(protocol: Protocol) -> Result<()> {
    let cases = [
        0..1,
        SLICE - 1..SLICE,
        SLICE - 1..SLICE + 1,
        5 * SLICE + 3..7 * SLICE + 1,
        LEN - 1..LEN,
    ];
    for wanted in cases {
        let bench = Bench::new(protocol, ALONE)?;
        assert_part(&bench.ask(wanted.clone())?, wanted.clone(), 1);
        bench.assert_fetched_once(slices_of(&wanted, SLICE));
    }
    Ok(())
}

/// A client that leaves early loses nothing of what was fetched, and its slices are kept.
fn a_client_that_leaves_leaves_its_slices(protocol: Protocol) -> Result<()> {
    let gate = Gate::new();
    let mut manners = Manners::of(LEN);
    manners.held = vec![(SLICE / 2..SLICE, gate.clone())];
    let bench = Bench::with(protocol, ALONE, manners)?;
    let mut leaver = bench.begin(&bytes_field(&(0..SLICE)))?;
    let mut head = leaver.read_head("GET")?.context("a head")?;
    leaver.read_some(&mut head, 100)?;
    drop(leaver);
    gate.open();
    assert_part(&bench.ask(0..SLICE)?, 0..SLICE, 1);
    bench.assert_fetched_once(0..SLICE);
    Ok(())
}

/// Slices outlive the process.
fn slices_are_there_after_a_restart(protocol: Protocol) -> Result<()> {
    for (form, size) in FORMS {
        let mut bench = Bench::new(protocol, form)?;
        bench.ask(size..size + 10)?;
        bench.ask_until(size..2 * size, "HIT")?;
        bench.proxy.restart()?;
        bench
            .film
            .change(|manners| manners.outage = Outage::Status(500));
        let part = bench.ask(size..2 * size)?;
        assert_part(&part, size..2 * size, 1);
        assert_eq!(label(&part), "HIT", "{form}");
        bench.film.change(|manners| manners.outage = Outage::None);
        assert_part(&bench.ask(0..3 * size)?, 0..3 * size, 1);
        bench.assert_fetched_once(0..3 * size);
    }
    Ok(())
}

/// HEAD tells the length of the whole and costs no more than a slice.
fn head_is_answered_from_the_entry(protocol: Protocol) -> Result<()> {
    let len = LEN.to_string();
    for (form, size) in FORMS {
        let bench = Bench::new(protocol, form)?;
        let gate = Gate::new();
        bench
            .film
            .change(|manners| manners.held.push((size..LEN, gate.clone())));
        for _ in 0..2 {
            let head = bench.client.send(&Request::head("/film"))?;
            assert_eq!(head.status, 200, "{form}");
            assert_eq!(head.header("Content-Length"), Some(&*len), "{form}");
            assert_eq!(head.header("ETag"), Some("\"v1\""), "{form}");
        }
        assert_eq!(bench.origin.requests().len(), 1, "{form}");
        // What lies behind the slice is not waited for: who wants it has it asked for.
        bench.ask_until(0..10, "HIT")?;
        let reading = bench.begin(&bytes_field(&(2 * size..2 * size + 10)))?;
        bench.origin.wait_for_requests(2)?;
        assert!(
            bench.fetched_bytes() <= size,
            "{form}: {} bytes",
            bench.fetched_bytes()
        );
        gate.open();
        drop(reading);

        let bench = Bench::new(protocol, form)?;
        bench.ask(size..size + 10)?;
        bench.ask_until(size..2 * size, "HIT")?;
        bench.forget();
        let head = bench.client.send(&Request::head("/film"))?;
        assert_eq!(head.header("Content-Length"), Some(&*len), "{form}");
        assert_eq!(label(&head), "HIT", "{form}: the head is held");
        assert_eq!(bench.ranges_asked().len(), 0, "{form}");
    }
    Ok(())
}

millpond_testkit::each_protocol!(
    [Http1, Streams, Http3]
    a_cold_range_fetches_its_slices_only,
    a_range_over_a_border_fetches_the_missing_side_only,
    neighbours_come_in_one_request,
    requests_to_the_origin_are_of_bounded_length,
    overlapping_requests_at_once_fetch_each_byte_once,
    a_running_fetch_is_shared,
    held_bytes_are_sent_before_the_missing_ones_come,
    missing_bytes_are_sent_as_they_come,
    fills_of_a_known_entry_carry_if_range,
    a_deep_cold_range_starts_with_the_wanted_bytes,
    a_deep_range_over_a_border_is_right,
    a_cold_suffix_is_asked_as_it_is,
    a_long_suffix_fetches_the_slices_that_it_touches,
    a_suffix_beyond_the_start_is_the_whole,
    a_suffix_of_a_known_entry_fetches_its_last_slice,
    an_open_range_goes_to_the_end,
    a_range_past_the_end_stops_there,
    a_range_outside_is_refused,
    whole_and_ranges_share_the_entry,
    a_sequential_reader_costs_each_byte_once,
    the_origin_sends_no_more_than_the_slices_touched,
    a_client_that_leaves_leaves_its_slices,
    slices_are_there_after_a_restart,
    head_is_answered_from_the_entry,
);
