//! Sequences of requests with different fields for answers that vary by them.
//!
//! The origin says by which fields an answer varies, and what it saw in them; some answers change
//! what they vary by. Each case is a sequence of requests for a path of its own.

use super::random::Random;
use crate::scenario::{Scenario, case_name};
use millpond_testkit::{Answer, Recorded, Request};

const VARIES: &[&str] = &[
    "X-A",
    "X-A, X-B",
    "x-a",
    "X-B,X-A",
    "Accept-Encoding",
    "Accept-Encoding, X-A",
    "X-A, *",
    "*",
    "",
    " , X-A ,",
    "Cookie",
    "User-Agent, X-B",
];
const X_A: &[&str] = &["1", "2", "1, 2", "1,2", "", " 1"];
const X_B: &[&str] = &["1", "2", "3"];
const ENCODINGS: &[&str] = &["gzip", "br", "gzip, br"];
const CASES: usize = 40;

/// An answer by the path: its last part is the place of the Vary in the list.
fn answer(request: &Recorded) -> Answer {
    let place = request.target.rsplit('/').next().unwrap_or_default();
    let place: usize = place.parse().unwrap_or_default();
    let vary = VARIES[place % VARIES.len()];
    let seen = ["X-A", "X-B", "Accept-Encoding", "Cookie", "User-Agent"];
    let seen = seen.map(|name| request.header(name).unwrap_or("-").to_string());
    let mut answer = Answer::new(200).header("Cache-Control", "max-age=60");
    if request.header("X-B") == Some("3") {
        // What it varies by depends on what it varies by.
        answer = answer.header("Vary", "X-B");
    }
    if !vary.is_empty() {
        answer = answer.header("Vary", vary);
    }
    answer.body(seen.join("|"))
}

/// Requests of one case, for one path.
fn requests(random: &mut Random, path: &str) -> Vec<Request> {
    let count = 4 + random.below(5);
    let mut requests = Vec::new();
    for _ in 0..count {
        let mut request = Request::get(path);
        if random.happens(70) {
            request = request.header("X-A", random.word(X_A));
        }
        if random.happens(50) {
            request = request.header("X-B", random.word(X_B));
        }
        if random.happens(30) {
            request = request.header("Accept-Encoding", random.word(ENCODINGS));
        }
        if random.happens(15) {
            request = request.header("Cookie", "a=1");
        }
        requests.push(request);
    }
    requests
}

/// Sequences of requests.
pub fn sequences() -> Scenario {
    let mut scenario = Scenario::cached("vary-sequences", "").computed("/*", answer);
    let mut random = Random::new(6);
    for index in 0..CASES {
        let place = random.below(VARIES.len());
        let path = format!("/{index}/{place}");
        scenario = scenario.case(&case_name(index, VARIES[place]));
        for request in requests(&mut random, &path) {
            scenario = scenario.send(request);
        }
    }
    scenario
}
