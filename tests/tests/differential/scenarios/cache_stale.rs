//! Entries that are no longer fresh: expiry, revalidation and stale answers.

use crate::run::Run;
use crate::scenario::{ORIGIN, Scenario};
use millpond_testkit::{Answer, Deadline};
use std::time::Duration;

const INVALID: &str = "HTTP/1.1 200 OK\r\nno colon\r\n\r\n";
const MODIFIED: &str = "Sun, 06 Nov 1994 08:49:37 GMT";

/// The scenarios of this subject.
pub fn scenarios() -> Vec<Scenario> {
    vec![
        expired(),
        revalidated(),
        revalidation_brings_a_new_answer(),
        revalidated_by_both_validators(),
        stale_on_error(),
        stale_on_statuses(),
        stale_on_timeout(),
        stale_while_updating(),
        background_update(),
        stale_if_error_of_the_origin(),
        stale_while_revalidate_of_the_origin(),
        must_revalidate(),
    ]
}

fn short(body: &str) -> Answer {
    Answer::new(200)
        .header("Cache-Control", "max-age=1")
        .body(body)
}

/// The origin closes behind it: a server that keeps connections asks again when one dies.
fn once(body: &str) -> Answer {
    short(body).header("Connection", "close")
}

fn expired() -> Scenario {
    Scenario::cached("cache-expired", "")
        .answers("/a", vec![short("one"), short("two")])
        .gets(&["/a", "/a"])
        .get_until("/a", &["EXPIRED"])
        .get("/a")
}

fn revalidated() -> Scenario {
    let answer = short("one")
        .etag("\"e\"")
        .header("X-A", "first")
        .revalidates();
    Scenario::cached("cache-revalidated", "proxy_cache_revalidate on;")
        .answer("/a", answer)
        .gets(&["/a", "/a"])
        .get_until("/a", &["REVALIDATED"])
        .gets(&["/a"])
}

fn revalidation_brings_a_new_answer() -> Scenario {
    let first = short("one").etag("\"1\"").revalidates();
    let second = short("two").etag("\"2\"").revalidates();
    Scenario::cached("cache-revalidation-changes", "proxy_cache_revalidate on;")
        .answers("/a", vec![first, second])
        .gets(&["/a", "/a"])
        .get_until("/a", &["EXPIRED"])
        .gets(&["/a"])
}

fn revalidated_by_both_validators() -> Scenario {
    let answer = short("one")
        .etag("\"e\"")
        .last_modified(MODIFIED)
        .revalidates();
    let date = short("two").last_modified(MODIFIED).revalidates();
    Scenario::cached("cache-revalidation-fields", "proxy_cache_revalidate on;")
        .answer("/both", answer)
        .answer("/date", date)
        .answers("/none", vec![short("1"), short("2")])
        .gets(&["/both", "/date", "/none"])
        .get_until("/both", &["REVALIDATED"])
        .get_until("/date", &["REVALIDATED"])
        .get_until("/none", &["EXPIRED"])
}

fn stale_on_error() -> Scenario {
    Scenario::cached(
        "cache-stale-on-error",
        "proxy_cache_use_stale error invalid_header;",
    )
    .answers("/error", vec![once("one"), Answer::raw("")])
    .answers("/invalid", vec![once("one"), Answer::raw(INVALID)])
    .gets(&["/error", "/invalid"])
    .get_until("/error", &["STALE"])
    .get_until("/invalid", &["STALE"])
    .gets(&["/error", "/invalid", "/none"])
}

fn stale_on_statuses() -> Scenario {
    let directives =
        "proxy_cache_use_stale http_500 http_502 http_503 http_504 http_403 http_404 http_429;
                      proxy_cache_valid 418 1m;";
    let mut scenario = Scenario::cached("cache-stale-on-statuses", directives);
    let statuses = [403, 404, 429, 500, 502, 503, 504];
    for status in statuses {
        let path = format!("/{status}");
        let answers = vec![short("good"), Answer::new(status).body("bad")];
        scenario = scenario.answers(&path, answers).get(&path);
    }
    for status in statuses {
        scenario = scenario.get_until(&format!("/{status}"), &["STALE"]);
    }
    scenario
        .answers("/501", vec![short("good"), Answer::new(501).body("bad")])
        .get("/501")
        .get_until("/501", &["EXPIRED"])
}

fn stale_on_timeout() -> Scenario {
    let late = short("late").delay_head(Duration::from_millis(900));
    Scenario::cached(
        "cache-stale-on-timeout",
        "proxy_cache_use_stale timeout; proxy_read_timeout 300ms;",
    )
    .answers("/a", vec![short("one"), late])
    .gets(&["/a", "/a"])
    .get_until("/a", &["STALE"])
}

/// Asks until the origin holds a request for an update, then lets the run go on.
fn start_update(run: &mut Run, path: &'static str) -> anyhow::Result<()> {
    let client = run.client();
    let before = run.origin(ORIGIN)?.requests().len();
    let thread = std::thread::spawn(move || -> anyhow::Result<Option<String>> {
        let found = Deadline::after(Duration::from_secs(8)).poll(|| {
            let response = client.get(path).ok()?;
            let cache = response.header("X-Cache")?.to_string();
            (cache != "HIT").then_some(cache)
        });
        Ok(found)
    });
    run.origin(ORIGIN)?.wait_for_requests(before + 1)?;
    let updating = run.client().get(path)?;
    run.record("during", &updating);
    let leader = thread.join().unwrap()?.unwrap_or_default();
    run.note("leader", &leader);
    Ok(())
}

fn stale_while_updating() -> Scenario {
    let slow = short("two").delay_head(Duration::from_millis(500));
    Scenario::cached(
        "cache-updating",
        "proxy_cache_use_stale updating; proxy_cache_lock on;",
    )
    .answers("/a", vec![short("one"), slow])
    .get("/a")
    .act(|run| start_update(run, "/a"))
    .get("/a")
}

fn background_update() -> Scenario {
    let directives = "proxy_cache_use_stale updating; proxy_cache_background_update on;";
    let long = Answer::new(200)
        .header("Cache-Control", "max-age=60")
        .body("two");
    Scenario::cached("cache-background-update", directives)
        .answers("/a", vec![short("one"), long])
        .gets(&["/a", "/a"])
        .get_until("/a", &["STALE"])
        .origin_requests(2)
        .get_until("/a", &["HIT"])
}

fn stale_if_error_of_the_origin() -> Scenario {
    let first = Answer::new(200)
        .header("Cache-Control", "max-age=1, stale-if-error=60")
        .header("Connection", "close")
        .body("one");
    let plain = once("one");
    Scenario::cached("cache-stale-if-error", "")
        .answers("/with", vec![first.clone(), Answer::raw("")])
        .answers("/status", vec![first, Answer::new(500).body("bad")])
        .answers("/without", vec![plain, Answer::new(500).body("bad")])
        .gets(&["/with", "/status", "/without"])
        .get_until("/with", &["STALE"])
        .get_until("/status", &["STALE", "EXPIRED"])
        .get_until("/without", &["EXPIRED"])
}

fn stale_while_revalidate_of_the_origin() -> Scenario {
    let first = Answer::new(200)
        .header("Cache-Control", "max-age=1, stale-while-revalidate=60")
        .body("one");
    let long = Answer::new(200)
        .header("Cache-Control", "max-age=60")
        .body("two");
    Scenario::cached(
        "cache-stale-while-revalidate",
        "proxy_cache_background_update on;",
    )
    .answers("/a", vec![first, long])
    .gets(&["/a", "/a"])
    .get_until("/a", &["STALE"])
    .origin_requests(2)
    .get_until("/a", &["HIT"])
}

fn must_revalidate() -> Scenario {
    let first = Answer::new(200)
        .header("Cache-Control", "max-age=1, must-revalidate")
        .body("one");
    Scenario::cached("cache-must-revalidate", "proxy_cache_use_stale http_500;")
        .answers("/a", vec![first, Answer::new(500).body("bad")])
        .gets(&["/a", "/a"])
        .get_until("/a", &["STALE", "EXPIRED"])
}
