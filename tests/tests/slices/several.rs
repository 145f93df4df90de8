//! Several ranges in one request: the parts exactly, in order, and bounded.

use crate::bench::*;
use anyhow::Result;
use millpond_testkit::{Protocol, Response, offset_bytes};
use std::ops::Range;

/// Asserts a multipart answer of exactly these parts of version 1.
fn assert_parts(response: &Response, parts: &[Range<u64>]) {
    assert_eq!(response.status, 206);
    assert!(response.is_complete(), "{:?}", response.end);
    assert_eq!(response.header("Content-Range"), None);
    let content_type = response.header("Content-Type").unwrap_or_default();
    let Some(boundary) = content_type.strip_prefix("multipart/byteranges; boundary=") else {
        panic!("{content_type}");
    };
    let mut expected = Vec::new();
    for part in parts {
        let head = format!(
            "\r\n--{boundary}\r\nContent-Type: text/plain\r\n\
             Content-Range: bytes {}-{}/{LEN}\r\n\r\n",
            part.start,
            part.end - 1
        );
        expected.extend(head.into_bytes());
        expected.extend(offset_bytes(part.clone(), 1));
    }
    expected.extend(format!("\r\n--{boundary}--\r\n").into_bytes());
    assert!(
        response.body == expected,
        "{}\nexpected\n{}",
        response.text(),
        String::from_utf8_lossy(&expected)
    );
    assert_eq!(
        response.header("Content-Length"),
        Some(&*expected.len().to_string())
    );
}

/// Ranges in different slices are parts, cold and held, and cost their slices.
fn ranges_are_parts_and_cost_their_slices(protocol: Protocol) -> Result<()> {
    for (form, size) in FORMS {
        let bench = Bench::new(protocol, form)?;
        let parts = [5..15, 2 * size + 5..2 * size + 15, LEN - 20..LEN];
        let field = format!(
            "bytes=5-14,{}-{},{}-",
            2 * size + 5,
            2 * size + 14,
            LEN - 20
        );
        for _ in 0..2 {
            assert_parts(&bench.ask_as(&field)?, &parts);
        }
        let last = slices_of(&parts[2], size);
        if last.start == 3 * size {
            bench.assert_all_fetched_once(&[0..size, 2 * size..LEN]);
        } else {
            bench.assert_all_fetched_once(&[0..size, 2 * size..3 * size, last]);
        }
        assert_eq!(label(&bench.ask_as(&field)?), "HIT", "{form}");
    }
    Ok(())
}

/// A suffix among the ranges, on an entry that nobody knows.
fn a_suffix_may_be_one_of_them(protocol: Protocol) -> Result<()> {
    let bench = Bench::new(protocol, ALONE)?;
    for _ in 0..2 {
        let several = bench.ask_as("bytes=0-9,-10")?;
        assert_parts(&several, &[0..10, LEN - 10..LEN]);
    }
    let last = slices_of(&(LEN - 10..LEN), SLICE);
    bench.assert_all_fetched_once(&[0..SLICE, last]);
    Ok(())
}

/// Two ranges of one slice cost one slice, in one request.
fn ranges_of_one_slice_cost_it_once(protocol: Protocol) -> Result<()> {
    let bench = Bench::new(protocol, ALONE)?;
    let several = bench.ask_as("bytes=0-9,100-109")?;
    assert_parts(&several, &[0..10, 100..110]);
    bench.assert_fetched_once(0..SLICE);
    Ok(())
}

/// The parts come in ascending order, however they were asked for.
fn parts_ascend(protocol: Protocol) -> Result<()> {
    let bench = Bench::new(protocol, ALONE)?;
    for _ in 0..2 {
        let field = format!("bytes={}-{},0-9", 3 * SLICE, 3 * SLICE + 9);
        let parts = [0..10, 3 * SLICE..3 * SLICE + 10];
        assert_parts(&bench.ask_as(&field)?, &parts);
    }
    bench.assert_all_fetched_once(&[0..SLICE, 3 * SLICE..4 * SLICE]);
    Ok(())
}

/// Ranges that overlap or touch are one; if one is left, it is no multipart.
fn overlapping_ranges_are_merged(protocol: Protocol) -> Result<()> {
    let bench = Bench::new(protocol, ALONE)?;
    for field in [
        "bytes=0-99,50-149",
        "bytes=100-149,0-99",
        "bytes=0-149,10-20",
    ] {
        assert_part(&bench.ask_as(field)?, 0..150, 1);
    }
    let several = bench.ask_as("bytes=0-99,50-149,1000-1009")?;
    assert_parts(&several, &[0..150, 1000..1010]);
    bench.assert_fetched_once(0..SLICE);
    Ok(())
}

/// A hundred ranges that overlap are no way to have the file sent a hundred times.
fn the_same_range_many_times_is_sent_once(protocol: Protocol) -> Result<()> {
    let bench = Bench::new(protocol, ALONE)?;
    let field = format!("bytes={}", ["0-"; 100].join(","));
    let response = bench.ask_as(&field)?;
    assert!(matches!(response.status, 200 | 206), "{}", response.status);
    assert_bytes(&response.body, 0..LEN, 1);
    bench.assert_fetched_once(0..LEN);
    Ok(())
}

/// Sixteen ranges are answered; seventeen are not, and the whole is sent instead.
fn ranges_are_bounded(protocol: Protocol) -> Result<()> {
    let spread = |count: u64| -> (String, Vec<Range<u64>>) {
        let parts: Vec<_> = (0..count).map(|at| at * 100..at * 100 + 10).collect();
        let specs: Vec<_> = parts
            .iter()
            .map(|part| format!("{}-{}", part.start, part.end - 1))
            .collect();
        (format!("bytes={}", specs.join(",")), parts)
    };
    let bench = Bench::new(protocol, ALONE)?;
    let (field, parts) = spread(16);
    assert_parts(&bench.ask_as(&field)?, &parts);
    bench.assert_fetched_once(0..SLICE);
    let (field, _) = spread(17);
    assert_whole(&bench.ask_as(&field)?, 1);
    Ok(())
}

/// Ranges outside of the body are left out; if none is left, the answer is 416.
fn ranges_outside_are_left_out(protocol: Protocol) -> Result<()> {
    let bench = Bench::new(protocol, ALONE)?;
    bench.ask(0..1)?;
    let field = format!("bytes=0-9,{}-{}", LEN + 5, LEN + 9);
    assert_part(&bench.ask_as(&field)?, 0..10, 1);
    let field = format!("bytes={}-,{}-{}", LEN, LEN + 5, LEN + 9);
    assert_eq!(bench.ask_as(&field)?.status, 416);
    bench.assert_fetched_once(0..SLICE);
    Ok(())
}

/// A Range that is no range of bytes is not looked at, and the whole is sent.
fn other_units_get_the_whole(protocol: Protocol) -> Result<()> {
    let bench = Bench::new(protocol, ALONE)?;
    for _ in 0..2 {
        assert_whole(&bench.ask_as("lines=1-2")?, 1);
    }
    bench.assert_fetched_once(0..LEN);
    Ok(())
}

millpond_testkit::each_protocol!(
    [Http1, Streams, Http3]
    ranges_are_parts_and_cost_their_slices,
    a_suffix_may_be_one_of_them,
    ranges_of_one_slice_cost_it_once,
    parts_ascend,
    overlapping_ranges_are_merged,
    the_same_range_many_times_is_sent_once,
    ranges_are_bounded,
    ranges_outside_are_left_out,
    other_units_get_the_whole,
);
