//! Everything at once: readers of every kind while the origin changes, lies, fails and comes back.
//!
//! Each answer is judged by what it says of itself: the bytes under its Content-Range, or of the
//! whole, are those of one version, the one that its ETag names. At rest, all is right.

use crate::bench::*;
use anyhow::{Context, Result};
use millpond_testkit::{Lie, Manners, Outage, Protocol, Ranges, Request, Response, offset_bytes};
use std::sync::atomic::{AtomicBool, Ordering};

const LINES: [&str; 3] = [
    "slice 64k; proxy_cache_lock on; proxy_cache_revalidate on;
     proxy_cache_use_stale error http_500 updating; proxy_cache_background_update on;
     proxy_cache_refresh_backoff 1s 2s;",
    "slice auto; proxy_cache_use_stale error http_500;",
    "proxy_cache_range_fill whole; proxy_cache_revalidate on;",
];
const READERS: u64 = 4;
const REQUESTS: usize = 40;

/// Lies whose answers still say what their bytes are, so that they can be judged when they are
/// passed on.
const LIES: [Lie; 6] = [
    Lie::NoContentRange,
    Lie::UnknownTotal,
    Lie::OtherBytes(16),
    Lie::Fewer(16),
    Lie::More(16),
    Lie::FewerUntold(16),
];

/// Whatever happens, an answer is of one version and says which bytes it has.
#[test]
#[ignore = "takes half a minute; to be run by hand until it has been right for long"]
fn no_answer_is_wrong_whatever_happens() -> Result<()> {
    for (seed, lines) in (0..).zip(LINES) {
        let mut manners = Manners::of(LEN);
        manners.fields = vec![("Cache-Control", "max-age=1".to_string())];
        let bench = Bench::with_workers(Protocol::Http1, 2, lines, manners)?;
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let readers: Vec<_> = (0..READERS)
                .map(|reader| {
                    let bench = &bench;
                    scope.spawn(move || {
                        let mut numbers = Numbers::new(seed * 100 + reader);
                        for _ in 0..REQUESTS {
                            read_one(bench, &mut numbers);
                        }
                    })
                })
                .collect();
            scope.spawn(|| {
                let mut numbers = Numbers::new(seed + 1000);
                let mut seen = 0;
                while !is_over.load(Ordering::Relaxed) {
                    // After some requests more, or when nothing comes for a while.
                    let _more = bench.wait_for_more_requests(seen + 3);
                    seen = bench.origin.requests().len();
                    bench.film.change(|manners| stir(manners, &mut numbers));
                }
            });
            let failed = readers.into_iter().filter_map(|reader| reader.join().err());
            let failed: Vec<_> = failed.collect();
            is_over.store(true, Ordering::Relaxed);
            assert!(failed.is_empty(), "a reader saw something wrong: {lines}");
        });
        settles(&bench).with_context(|| lines.to_string())?;
    }
    Ok(())
}

/// Changes one of the origin's manners.
fn stir(manners: &mut Manners, numbers: &mut Numbers) {
    match numbers.below(8) {
        0 | 1 => manners.version += 1,
        2 => manners.outage = Outage::Status(500),
        3 => manners.outage = Outage::Closes,
        4 => manners.lie = LIES.get(numbers.below(LIES.len() as u64) as usize).copied(),
        5 => manners.drop_at = Some(numbers.below(LEN)),
        6 => manners.ranges = Ranges::Unconditional,
        _ => {
            manners.outage = Outage::None;
            manners.lie = None;
            manners.drop_at = None;
            manners.ranges = Ranges::Supported;
        }
    }
}

/// Asks for something and judges the answer; one in four is read late, after another.
fn read_one(bench: &Bench, numbers: &mut Numbers) {
    let request = any_request(numbers);
    // No answer at all is a failure that a client sees.
    let response = match numbers.below(4) {
        0 => read_late(bench, &request, numbers),
        _ => bench.client.send(&request),
    };
    if let Ok(response) = response
        && request.method == "GET"
    {
        judge(&response);
    }
}

/// Reads the body of an answer only when another answer was read.
fn read_late(bench: &Bench, request: &Request, numbers: &mut Numbers) -> Result<Response> {
    let mut connection = bench.client.connect()?;
    let last = request.clone().header("Connection", "close");
    connection.ask(&last)?;
    let head = connection.read_head(&request.method)?;
    let mut response = head.context("closed without an answer")?;
    let other = any_request(numbers);
    if let Ok(other_response) = bench.client.send(&other)
        && other.method == "GET"
    {
        judge(&other_response);
    }
    connection.read_body(&mut response)?;
    Ok(response)
}

fn any_request(numbers: &mut Numbers) -> Request {
    let start = numbers.below(LEN - 1);
    let end = LEN.min(start + 1 + numbers.below(4 * SLICE));
    match numbers.below(8) {
        0 => Request::get("/film"),
        1 => Request::head("/film"),
        2 => request(&format!("bytes=-{}", LEN - start)),
        3 => request(&format!("bytes={start}-")),
        4 => request(&bytes_field(&(start..end))).header("If-Range", "\"v1\""),
        _ => request(&bytes_field(&(start..end))),
    }
}

/// Asserts that a body has the bytes that the head says it has.
fn judge(response: &Response) {
    let start = match response.status {
        200 => 0,
        206 => match response.header("Content-Range").and_then(first_byte) {
            Some(start) => start,
            // Passed on as the origin said it.
            None => return,
        },
        _ => return,
    };
    let Some(version) = response.header("ETag").and_then(version_of) else {
        panic!("an answer without its validator");
    };
    let expected = offset_bytes(start..start + response.body.len() as u64, version);
    let wrong = response
        .body
        .iter()
        .zip(&expected)
        .position(|(a, b)| a != b);
    if let Some(wrong) = wrong {
        let there = response
            .body
            .get(wrong.saturating_sub(16)..)
            .unwrap_or_default();
        let there = String::from_utf8_lossy(there.get(..80.min(there.len())).unwrap_or_default());
        panic!(
            "{} bytes from {start} on are not of version {version} from byte {wrong} on: {there:?}, \
             {:?}",
            response.body.len(),
            response.headers
        );
    }
}

fn first_byte(content_range: &str) -> Option<u64> {
    let place = content_range.strip_prefix("bytes ")?;
    place.split('-').next()?.parse().ok()
}

fn version_of(etag: &str) -> Option<u16> {
    etag.strip_prefix("\"v")?.strip_suffix('"')?.parse().ok()
}

/// The origin is honest again: within a moment, everything is right and of the last version.
fn settles(bench: &Bench) -> Result<()> {
    bench.film.change(|manners| {
        let version = manners.version + 1;
        *manners = Manners::of(LEN);
        manners.version = version;
    });
    let version = bench.film.manners().version;
    bench.poll_whole(|whole| {
        judge(whole);
        let etag = whole.header("ETag").and_then(version_of);
        whole.is_complete() && whole.status == 200 && etag == Some(version)
    })?;
    assert_part(
        &bench.ask(SLICE - 5..SLICE + 5)?,
        SLICE - 5..SLICE + 5,
        version,
    );
    assert_part(&bench.ask_as("bytes=-9")?, LEN - 9..LEN, version);
    Ok(())
}
