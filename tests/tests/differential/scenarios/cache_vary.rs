//! Variants by Vary.

use crate::scenario::Scenario;
use millpond_testkit::{Answer, Recorded, Request};

/// The scenarios of this subject.
pub fn scenarios() -> Vec<Scenario> {
    vec![
        variants(),
        several_fields(),
        vary_ignored(),
        vary_star(),
        vary_star_untimed(),
        vary_changes(),
        vary_by_accept_encoding(),
    ]
}

/// An answer that names the values it was chosen by.
fn by(request: &Recorded, vary: &str, fields: &[&str]) -> Answer {
    let values: Vec<String> = fields
        .iter()
        .map(|name| request.header(name).unwrap_or("none").to_string())
        .collect();
    Answer::new(200)
        .header("Cache-Control", "max-age=60")
        .header("Vary", vary)
        .body(values.join("|"))
}

fn asks(mut scenario: Scenario, name: &str, values: &[&str]) -> Scenario {
    for value in values {
        scenario = scenario.get_with("/a", name, value);
    }
    scenario
}

fn variants() -> Scenario {
    let scenario = Scenario::cached("cache-vary", "")
        .computed("/*", |request| by(request, "X-V", &["X-V"]))
        .gets(&["/a", "/a"]);
    asks(
        scenario,
        "X-V",
        &["1", "1", "2", "2", "1", " 1 ", "1,2", "1, 2", "", "A", "a"],
    )
    .get("/a")
}

fn several_fields() -> Scenario {
    let ask = |one: &str, two: &str| Request::get("/a").header("X-One", one).header("X-Two", two);
    Scenario::cached("cache-vary-several", "")
        .computed("/*", |request| {
            by(request, "X-One, x-two", &["X-One", "X-Two"])
        })
        .send(ask("1", "1"))
        .send(ask("1", "1"))
        .send(ask("1", "2"))
        .send(ask("2", "1"))
        .send(ask("1", "2"))
        .send(ask("2", "1").header("X-Three", "3"))
        .get_with("/a", "X-Two", "1")
        .get_with("/a", "X-One", "1")
}

fn vary_ignored() -> Scenario {
    let scenario = Scenario::cached("cache-vary-ignored", "proxy_ignore_headers Vary;")
        .computed("/*", |request| by(request, "X-V", &["X-V"]));
    asks(scenario, "X-V", &["1", "2", "1"])
}

fn vary_star() -> Scenario {
    Scenario::cached("cache-vary-star", "proxy_cache_valid 1m;")
        .computed("/*", |request| by(request, "*", &["X-V"]))
        .gets(&["/a", "/a"])
}

/// An answer without a time would not be stored anyway, whatever its Vary says.
fn vary_star_untimed() -> Scenario {
    let star = || Answer::new(200).header("Vary", "*").header("ETag", "\"a\"");
    Scenario::cached("cache-vary-star-untimed", "")
        .answer("/a", star().body("x"))
        .answer(
            "/zero",
            star().header("Cache-Control", "max-age=0").body("x"),
        )
        .answer(
            "/past",
            star()
                .header("Expires", "Thu, 01 Jan 1970 00:00:01 GMT")
                .body("x"),
        )
        .gets(&["/a", "/a", "/zero", "/zero", "/past", "/past"])
        .get_with("/a", "If-None-Match", "\"a\"")
        .get_with("/zero", "If-None-Match", "\"a\"")
        .get_with("/a", "Range", "bytes=0-0")
        .get_with("/past", "Range", "bytes=0-0")
        .head("/a")
}

fn vary_changes() -> Scenario {
    let answer = |vary: &str, body: &str| {
        let answer = Answer::new(200)
            .header("Cache-Control", "max-age=60")
            .body(body);
        if vary.is_empty() {
            answer
        } else {
            answer.header("Vary", vary)
        }
    };
    let scenario = Scenario::cached("cache-vary-changes", "proxy_cache_bypass $http_x_by;")
        .answers(
            "/a",
            vec![
                answer("", "plain"),
                answer("X-V", "by v"),
                answer("X-W", "by w"),
            ],
        )
        .gets(&["/a", "/a"])
        .get_with("/a", "X-By", "1");
    asks(scenario, "X-V", &["1", "1"]).get("/a")
}

fn vary_by_accept_encoding() -> Scenario {
    let scenario = Scenario::cached("cache-vary-accept-encoding", "").computed("/*", |request| {
        by(request, "Accept-Encoding", &["Accept-Encoding"])
    });
    asks(
        scenario,
        "Accept-Encoding",
        &["gzip", "gzip", "br", "gzip, br", "gzip,br", "identity"],
    )
    .gets(&["/a", "/a"])
}
