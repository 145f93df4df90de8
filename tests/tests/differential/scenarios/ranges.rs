//! Range requests, on files and on proxied answers.

use crate::scenario::Scenario;
use millpond_testkit::{Answer, Framing, Ranges, Request};

const MODIFIED: &str = "Sun, 09 Sep 2001 01:46:40 GMT";
const VALUES: &[&str] = &[
    "bytes=0-0",
    "bytes=2-5",
    "bytes=5-",
    "bytes=-3",
    "bytes=-100",
    "bytes=0-100",
    "bytes=9-9",
    "bytes=10-",
    "bytes=10-20",
    "bytes=-0",
    "bytes=5-2",
    "bytes=a-b",
    "bytes=",
    "bytes=1",
    "bytes=-",
    "items=0-1",
    "bytes 0-1",
    "BYTES=0-1",
    "bytes=0-1,3-4",
    "bytes=0-1, 3-4 ,-1",
    "bytes=0-1,20-30",
    "bytes=20-30,40-50",
    "bytes=0-5,2-3",
    "bytes=0-,0-",
    "bytes=0-1,,3-4",
    "bytes=99999999999999999999-",
    "bytes=0-99999999999999999999",
    "bytes=1-2;x",
];

/// The scenarios of this subject.
pub fn scenarios() -> Vec<Scenario> {
    vec![
        file_ranges(),
        max_ranges(),
        if_range(),
        ranges_of_returned_text(),
        proxied_without_ranges(),
        force_ranges(),
        origin_ranges_pass(),
    ]
}

fn with_ranges(mut scenario: Scenario, path: &str, values: &[&str]) -> Scenario {
    for value in values {
        scenario = scenario.get_with(path, "Range", value);
    }
    scenario
}

fn file_ranges() -> Scenario {
    let scenario = Scenario::new("file-ranges")
        .server("types { text/plain txt; }")
        .file("html/a.txt", "0123456789")
        .file("html/empty.txt", "");
    let scenario = with_ranges(scenario, "/a.txt", VALUES);
    with_ranges(
        scenario,
        "/empty.txt",
        &["bytes=0-", "bytes=0-1", "bytes=1-", "bytes=-1"],
    )
    .send(Request::head("/a.txt").header("Range", "bytes=1-2"))
    .send(Request::new("POST", "/a.txt").header("Range", "bytes=1-2"))
    .get_with("/none", "Range", "bytes=1-2")
}

fn max_ranges() -> Scenario {
    let scenario = Scenario::new("max-ranges")
        .server("location /none { max_ranges 0; } location /two { max_ranges 2; }")
        .file("html/none", "0123456789")
        .file("html/two", "0123456789");
    let scenario = with_ranges(scenario, "/none", &["bytes=0-1"]);
    with_ranges(
        scenario,
        "/two",
        &["bytes=0-1", "bytes=0-1,3-4", "bytes=0-1,3-4,6-7"],
    )
}

fn if_range() -> Scenario {
    let mut scenario = Scenario::new("if-range")
        .server("location / { }")
        .file("html/a", "0123456789");
    for value in [
        MODIFIED,
        "Sun, 09 Sep 2001 01:46:41 GMT",
        "Sun, 09 Sep 2001 01:46:39 GMT",
        "\"3b9aca00-a\"",
        "\"other\"",
        "W/\"3b9aca00-a\"",
        "nonsense",
        "x",
    ] {
        let request = Request::get("/a").header("Range", "bytes=1-2");
        scenario = scenario.send(request.header("If-Range", value));
    }
    scenario.send(
        Request::get("/a")
            .header("Range", "bytes=1-2")
            .header("If-Modified-Since", MODIFIED),
    )
}

fn ranges_of_returned_text() -> Scenario {
    let scenario = Scenario::new("returned-text-ranges")
        .server("location / { return 200 0123456789; }")
        .server("location /404 { return 404 0123456789; }");
    with_ranges(scenario, "/", &["bytes=1-2", "bytes=0-1,3-4", "bytes=10-"]).get_with(
        "/404",
        "Range",
        "bytes=1-2",
    )
}

fn proxied_without_ranges() -> Scenario {
    let scenario = Scenario::new("proxied-without-ranges")
        .server("location / { proxy_pass http://%%ORIGIN%%; }")
        .answer("/a", Answer::new(200).body("0123456789"))
        .answer(
            "/chunked",
            Answer::new(200)
                .body("0123456789")
                .framing(Framing::Chunked),
        );
    let scenario = with_ranges(scenario, "/a", &["bytes=1-2", "bytes=20-"]);
    with_ranges(scenario, "/chunked", &["bytes=1-2"])
}

fn force_ranges() -> Scenario {
    let answer = Answer::new(200).body("0123456789").etag("\"e\"");
    let scenario = Scenario::new("force-ranges")
        .server("location / { proxy_pass http://%%ORIGIN%%; proxy_force_ranges on; }")
        .answer("/a", answer.clone())
        .answer("/none", answer.clone().header("Accept-Ranges", "none"))
        .answer("/chunked", answer.clone().framing(Framing::Chunked))
        .answer("/ranges", answer.ranges(Ranges::Supported));
    let scenario = with_ranges(scenario, "/a", &["bytes=1-2", "bytes=20-", "bytes=0-1,3-4"]);
    let scenario = with_ranges(scenario, "/chunked", &["bytes=1-2"]);
    let scenario = with_ranges(scenario, "/none", &["bytes=1-2"]);
    with_ranges(scenario, "/ranges", &["bytes=1-2", "bytes=20-"]).send(
        Request::get("/a")
            .header("Range", "bytes=1-2")
            .header("If-Range", "\"other\""),
    )
}

fn origin_ranges_pass() -> Scenario {
    let answer = Answer::new(200).body("0123456789").etag("\"e\"");
    let scenario = Scenario::new("origin-ranges-pass")
        .server("location / { proxy_pass http://%%ORIGIN%%; }")
        .answer("/a", answer.ranges(Ranges::Supported));
    with_ranges(
        scenario,
        "/a",
        &["bytes=1-2", "bytes=-2", "bytes=20-", "bytes=0-1,3-4"],
    )
    .send(Request::head("/a"))
}
