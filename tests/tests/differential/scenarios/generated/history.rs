//! Histories of a key over a few requests, in locations with what was drawn of the directives of
//! the cache.
//!
//! Each case is a key of its own. The origin's answers are drawn by case and step, so that both
//! servers get the same at the same step whatever they asked before. Only the last request of a
//! case may have an answer that ends before the origin's does (HEAD, a range, 304): whether that
//! was stored when the next one comes is a matter of luck.

use super::random::Random;
use crate::scenario::{Scenario, case_name};
use millpond_testkit::{Answer, Recorded, Request};

const DIRECTIVES: &[&str] = &[
    "proxy_cache_valid 200 1h;",
    "proxy_cache_valid any 1h;",
    "proxy_cache_valid 404 301 1h;",
    "proxy_cache_bypass $arg_bypass;",
    "proxy_no_cache $arg_out;",
    "proxy_cache_methods GET HEAD POST;",
    "proxy_cache_revalidate on;",
    "proxy_cache_lock on;",
    "proxy_ignore_headers Cache-Control Expires;",
    "proxy_ignore_headers Set-Cookie Vary;",
    "proxy_hide_header ETag;",
    "proxy_force_ranges on;",
    "expires 1h;",
    "if_modified_since before;",
    "max_ranges 1;",
];
const CONTROL: &[&str] = &[
    "max-age=60",
    "max-age=60",
    "no-store",
    "private",
    "max-age=0",
    "s-maxage=60, max-age=0",
    "no-cache",
];
const FIELDS: &[(&str, &str)] = &[
    ("ETag", "\"a\""),
    ("ETag", "\"a\""),
    ("ETag", "W/\"a\""),
    ("Last-Modified", "Sun, 06 Nov 1994 08:49:37 GMT"),
    ("Set-Cookie", "a=1"),
    ("Vary", "X-A"),
    ("Accept-Ranges", "bytes"),
    ("Expires", "Sun, 06 Nov 1994 08:49:37 GMT"),
];
const ASKED: &[(&str, &str)] = &[
    ("If-None-Match", "\"a\""),
    ("If-None-Match", "\"b\""),
    ("If-None-Match", "*"),
    ("If-Modified-Since", "Sun, 06 Nov 1994 08:49:37 GMT"),
    ("If-Modified-Since", "Sun, 06 Nov 1993 08:49:37 GMT"),
    ("Range", "bytes=0-9"),
    ("Range", "bytes=-5"),
    ("If-Range", "\"a\""),
    ("X-A", "1"),
    ("X-A", "2"),
];
const VARYING: &[(&str, &str)] = &[("X-A", "1"), ("X-A", "2")];
const STATUSES: &[u16] = &[200, 200, 200, 200, 404, 301, 500, 204];
const ENDS: &[&str] = &["", "", "", "?bypass=1", "?out=1"];
const METHODS: &[&str] = &["GET", "GET", "GET", "GET", "POST"];
const LAST_METHODS: &[&str] = &["GET", "GET", "GET", "HEAD"];

const LOCATIONS: usize = 12;
const CASES: usize = 80;
const STEPS: u16 = 4;

fn answer(random: &mut Random, step: u16) -> Answer {
    let status = *random.pick(STATUSES);
    let mut answer = Answer::new(status);
    if status != 204 {
        answer = answer.offset_body(100, step + 1);
    }
    if random.happens(60) {
        answer = answer.header("Cache-Control", random.word(CONTROL));
    }
    let mut fields = random.several(FIELDS, 0, 3);
    fields.sort_unstable();
    fields.dedup_by_key(|field| field.0);
    let fields = fields.into_iter();
    fields.fold(answer, |answer, (name, value)| answer.header(name, value))
}

fn request(random: &mut Random, path: &str, step: u16) -> Request {
    let target = format!("{path}{}", random.word(ENDS));
    let is_last = step + 1 == STEPS;
    let methods = if is_last { LAST_METHODS } else { METHODS };
    let request = match random.word(methods) {
        "HEAD" => Request::head(&target),
        "POST" => Request::post(&target, "body"),
        _ => Request::get(&target),
    };
    let mut fields = if is_last {
        random.several(ASKED, 1, 3)
    } else {
        random.several(VARYING, 0, 1)
    };
    fields.sort_unstable();
    fields.dedup_by_key(|field| field.0);
    let request = request.header("X-Step", &step.to_string());
    let fields = fields.into_iter();
    fields.fold(request, |request, (name, value)| {
        request.header(name, value)
    })
}

/// The answer that was drawn for a case and a step.
fn drawn(answers: &[Vec<Answer>], request: &Recorded) -> Option<Answer> {
    let path = request.target.split('?').next()?;
    let case: usize = path.rsplit('/').next()?.parse().ok()?;
    let step: usize = request.header("X-Step")?.parse().ok()?;
    answers.get(case)?.get(step).cloned()
}

/// Histories of keys.
pub fn of_keys() -> Scenario {
    let mut random = Random::new(11);
    let mut scenario = Scenario::new("histories")
        .http("proxy_cache_path %%DIR%%/cache keys_zone=zone:1m; proxy_cache_key $uri;")
        .server("add_header X-Cache $upstream_cache_status always;")
        .ignore_words();
    let mut chosen = Vec::new();
    for location in 0..LOCATIONS {
        let mut lines = random.several(DIRECTIVES, 1, 5);
        lines.sort_unstable();
        lines.dedup_by_key(|line| line.split(' ').next().map(str::to_owned));
        let lines = lines.join(" ");
        scenario = scenario.server(&format!(
            "location /{location}/ {{ proxy_pass http://%%ORIGIN%%; proxy_cache zone; {lines} }}"
        ));
        chosen.push(lines);
    }
    let mut answers = Vec::new();
    for case in 0..CASES {
        let location = random.below(LOCATIONS);
        answers.push((0..STEPS).map(|step| answer(&mut random, step)).collect());
        let path = format!("/{location}/{case}");
        scenario = scenario.case(&case_name(case, &chosen[location]));
        for step in 0..STEPS {
            scenario = scenario.send(request(&mut random, &path, step));
        }
    }
    let answers: Vec<Vec<Answer>> = answers;
    scenario.computed("/*", move |request| {
        drawn(&answers, request).unwrap_or_else(|| Answer::new(404))
    })
}
