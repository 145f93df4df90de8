//! Ranges and conditions on cached entries, and slices.

use crate::scenario::Scenario;
use millpond_testkit::{Answer, Framing, Ranges, Request};

const MODIFIED: &str = "Sun, 06 Nov 1994 08:49:37 GMT";

/// The scenarios of this subject.
pub fn scenarios() -> Vec<Scenario> {
    vec![
        ranges_of_an_entry(),
        ranges_of_an_entry_without_length(),
        range_asked_first(),
        conditions_on_an_entry(),
        conditions_on_what_is_not_stored(),
        force_ranges_on_entries(),
        max_range_offset(),
        partial_answers(),
        slices(),
        slices_in_many_ranges(),
        slices_without_ranges_at_the_origin(),
        slice_of_head_and_missing(),
    ]
}

fn fresh() -> Answer {
    Answer::new(200).header("Cache-Control", "max-age=60")
}

fn asks(mut scenario: Scenario, path: &str, ranges: &[&str]) -> Scenario {
    for range in ranges {
        scenario = scenario.get_with(path, "Range", range);
    }
    scenario
}

fn ranges_of_an_entry() -> Scenario {
    let answer = fresh()
        .offset_body(1000, 1)
        .ranges(Ranges::Supported)
        .etag("\"e\"");
    let scenario = Scenario::cached("cache-ranges", "")
        .answer("/a", answer)
        .get("/a");
    asks(
        scenario,
        "/a",
        &[
            "bytes=0-9",
            "bytes=990-",
            "bytes=-5",
            "bytes=1000-",
            "bytes=0-1,10-19",
            "bytes=5-2",
            "bytes=0-5000",
            "bytes=-0",
        ],
    )
    .send(
        Request::get("/a")
            .header("Range", "bytes=0-1")
            .header("If-Range", "\"e\""),
    )
    .send(
        Request::get("/a")
            .header("Range", "bytes=0-1")
            .header("If-Range", "\"x\""),
    )
    .send(Request::head("/a").header("Range", "bytes=0-1"))
}

fn ranges_of_an_entry_without_length() -> Scenario {
    let answer = fresh()
        .offset_body(1000, 1)
        .framing(Framing::Chunked)
        .etag("\"e\"");
    let close = answer.clone().framing(Framing::UntilClose);
    let scenario = Scenario::cached("cache-ranges-without-length", "")
        .answer("/a", answer.header("Accept-Ranges", "bytes"))
        .answer("/b", close.header("Accept-Ranges", "bytes"))
        .act(|run| run.client().get("/a").map(|_| ()))
        .act(|run| run.client().get("/b").map(|_| ()));
    let scenario = asks(scenario, "/a", &["bytes=0-9", "bytes=990-", "bytes=1000-"]);
    asks(scenario, "/b", &["bytes=0-9"])
}

fn range_asked_first() -> Scenario {
    let answer = fresh().offset_body(1000, 1).ranges(Ranges::Supported);
    let scenario = Scenario::cached("cache-range-first", "").answer("/*", answer);
    asks(
        scenario,
        "/a",
        &["bytes=10-19", "bytes=20-29", "bytes=2000-"],
    )
    .get("/a")
    .get_with("/b", "Range", "bytes=2000-")
    .get("/b")
}

fn conditions_on_an_entry() -> Scenario {
    let answer = fresh().body("hello").etag("\"e\"").last_modified(MODIFIED);
    let mut scenario = Scenario::cached("cache-conditions", "")
        .answer("/a", answer)
        .get("/a");
    for (name, value) in [
        ("If-None-Match", "\"e\""),
        ("If-None-Match", "\"x\""),
        ("If-None-Match", "*"),
        ("If-Modified-Since", MODIFIED),
        ("If-Modified-Since", "Sun, 06 Nov 1994 08:49:38 GMT"),
        ("If-Modified-Since", "Sun, 06 Nov 1994 08:49:36 GMT"),
        ("If-Match", "\"e\""),
        ("If-Match", "\"x\""),
        ("If-Unmodified-Since", MODIFIED),
        ("If-Unmodified-Since", "Sun, 06 Nov 1994 08:49:36 GMT"),
    ] {
        scenario = scenario.get_with("/a", name, value);
    }
    scenario
        .get_with("/fresh", "If-None-Match", "\"e\"")
        .send(Request::head("/a").header("If-None-Match", "\"e\""))
}

/// An answer that the configuration keeps out was asked for whole, without the client's conditions;
/// one that the origin keeps out is passed on as it is.
fn conditions_on_what_is_not_stored() -> Scenario {
    let body = || Answer::new(200).offset_body(100, 1).etag("\"e\"");
    let body = || body().last_modified(MODIFIED);
    let mut scenario = Scenario::cached("cache-conditions-unstored", "proxy_no_cache $arg_out;")
        .answer("/*", body().header("Accept-Ranges", "bytes"))
        .answer("/secret", body().header("Cache-Control", "no-store"));
    let conditions = [
        ("If-None-Match", "\"e\""),
        ("If-None-Match", "*"),
        ("If-None-Match", "\"x\""),
        ("If-Modified-Since", MODIFIED),
        ("If-Match", "\"x\""),
        ("If-Unmodified-Since", "Sun, 06 Nov 1993 08:49:37 GMT"),
        ("Range", "bytes=0-9"),
        ("Range", "bytes=200-"),
    ];
    for (number, (name, value)) in conditions.into_iter().enumerate() {
        for path in [format!("/a{number}?out=1"), "/secret".to_owned()] {
            scenario = scenario.get_with(&path, name, value);
        }
    }
    scenario
}

fn force_ranges_on_entries() -> Scenario {
    let scenario = Scenario::cached("cache-force-ranges", "proxy_force_ranges on;")
        .answer("/a", fresh().offset_body(1000, 1))
        .answer(
            "/none",
            fresh().offset_body(1000, 1).header("Accept-Ranges", "none"),
        )
        .gets(&["/a", "/none"]);
    asks(
        asks(scenario, "/a", &["bytes=0-9"]),
        "/none",
        &["bytes=0-9"],
    )
}

fn max_range_offset() -> Scenario {
    let answer = fresh().offset_body(1000, 1).ranges(Ranges::Supported);
    let scenario = Scenario::cached(
        "cache-max-range-offset",
        "proxy_cache_max_range_offset 100;",
    )
    .answer("/*", answer);
    asks(scenario, "/far", &["bytes=500-509", "bytes=500-509"])
        .get_with("/near", "Range", "bytes=50-59")
        .get_with("/near", "Range", "bytes=500-509")
        .get_with("/suffix", "Range", "bytes=-5")
        .get_with("/suffix", "Range", "bytes=-5")
        .get_with("/edge", "Range", "bytes=100-109")
        .get_with("/edge", "Range", "bytes=100-109")
}

fn partial_answers() -> Scenario {
    let partial = Answer::new(206)
        .header("Content-Range", "bytes 0-4/10")
        .header("Cache-Control", "max-age=60")
        .body("01234");
    let scenario = Scenario::cached(
        "cache-206",
        "proxy_set_header Range $http_range; proxy_cache_valid 206 1m;",
    )
    .answer("/*", partial);
    asks(scenario, "/a", &["bytes=0-4", "bytes=0-4"]).get("/a")
}

fn sliced(id: &'static str) -> Scenario {
    let slice = "slice 1k; proxy_cache_key $uri$is_args$args$slice_range;
                 proxy_set_header Range $slice_range; proxy_cache_valid 200 206 1h;";
    Scenario::cached(id, slice)
}

fn slices() -> Scenario {
    let answer = fresh()
        .offset_body(3500, 1)
        .ranges(Ranges::Supported)
        .etag("\"e\"");
    let scenario = sliced("slice").answer("/*", answer);
    asks(
        scenario,
        "/a",
        &["bytes=0-9", "bytes=1000-1100", "bytes=3000-", "bytes=-10"],
    )
    .gets(&["/a", "/a", "/b"])
    .get_with("/b", "Range", "bytes=2048-2049")
    .get_with("/b", "If-None-Match", "\"e\"")
}

fn slices_in_many_ranges() -> Scenario {
    let answer = fresh()
        .offset_body(3500, 1)
        .ranges(Ranges::Supported)
        .etag("\"e\"");
    let scenario = sliced("slice-ranges").answer("/*", answer);
    asks(
        scenario,
        "/a",
        &[
            "bytes=0-1,2000-2001",
            "bytes=5000-",
            "bytes=3499-3499",
            "bytes=1023-1024",
            "bytes=5-2",
        ],
    )
    .ignore_words()
}

fn slices_without_ranges_at_the_origin() -> Scenario {
    let scenario = sliced("slice-without-ranges").answer("/*", fresh().offset_body(3500, 1));
    asks(
        scenario.gets(&["/a", "/a"]),
        "/b",
        &["bytes=0-9", "bytes=2000-2001"],
    )
}

fn slice_of_head_and_missing() -> Scenario {
    let answer = fresh()
        .offset_body(3500, 1)
        .ranges(Ranges::Supported)
        .etag("\"e\"");
    sliced("slice-head-and-missing")
        .answer("/a", answer)
        .answer("/empty", fresh().ranges(Ranges::Supported))
        .head("/a")
        .get("/none")
        .get_with("/none", "Range", "bytes=0-1")
        .get("/empty")
        .ignore_words()
}
