//! Fields that say how long an answer is fresh, in combinations that were drawn.
//!
//! Each case asks three times for one answer, in a location with `proxy_cache_valid`, in one
//! without, or in one that ignores some of the fields. X-Cache tells what was stored.

use super::random::Random;
use crate::scenario::{Scenario, case_name};
use millpond_testkit::Answer;

const PAST: &str = "Sun, 06 Nov 1994 08:49:37 GMT";
const FUTURE: &str = "Sun, 06 Nov 2094 08:49:37 GMT";

const CACHE_CONTROL: &[&str] = &[
    "max-age=60",
    "max-age=0",
    "s-maxage=60",
    "s-maxage=0",
    "max-age=60, s-maxage=0",
    "s-maxage=60, max-age=0",
    "no-cache",
    "no-store",
    "private",
    "public",
    "public, max-age=60",
    "private, max-age=60",
    "must-revalidate",
    "max-age=60, must-revalidate",
    "stale-while-revalidate=60",
    "max-age=60, stale-while-revalidate=60",
    "max-age=60,no-cache",
    "no-cache=\"set-cookie\", max-age=60",
    "MAX-AGE=60",
    "max-age = 60",
    "max-age=60;no-store",
    "xmax-age=60",
    "max-age=",
    "max-age=60x",
    "max-age=99999999999",
    "immutable, max-age=60",
    "",
    ", ,max-age=60",
];

const EXPIRES: &[&str] = &[
    PAST,
    FUTURE,
    "0",
    "-1",
    "",
    "Sunday, 06-Nov-94 08:49:37 GMT",
];
const ACCEL: &[&str] = &["60", "0", "@9999999999", "@1", "-1", "x", ""];
const PATHS: &[&str] = &["/none", "/valid", "/ignore"];
const STATUSES: &[u16] = &[200, 200, 200, 200, 301, 404, 500];
const CASES: usize = 90;

/// The fields of one answer, in the order in which they are sent.
fn draw(random: &mut Random) -> Vec<(&'static str, &'static str)> {
    let mut fields = Vec::new();
    if random.happens(25) {
        fields.push(("X-Accel-Expires", *random.pick(ACCEL)));
    }
    if random.happens(70) {
        fields.push(("Cache-Control", *random.pick(CACHE_CONTROL)));
    }
    if random.happens(15) {
        fields.push(("Cache-Control", *random.pick(CACHE_CONTROL)));
    }
    if random.happens(35) {
        fields.push(("Expires", *random.pick(EXPIRES)));
    }
    if random.happens(10) {
        fields.push(("Set-Cookie", "a=1"));
    }
    if random.happens(10) {
        fields.push(("Vary", *random.pick(&["Accept", "*", ""])));
    }
    if random.happens(10) {
        fields.push(("Pragma", "no-cache"));
    }
    fields
}

/// Answers with combinations of fields.
pub fn fields() -> Scenario {
    let pass = "proxy_pass http://%%ORIGIN%%; proxy_cache zone;";
    let ignored = "proxy_ignore_headers Cache-Control Set-Cookie;";
    let mut scenario = Scenario::new("freshness")
        .http("proxy_cache_path %%DIR%%/cache keys_zone=zone:1m;")
        .server("add_header X-Cache $upstream_cache_status always;")
        .server(&format!(
            "location /none {{ {pass} }}
             location /valid {{ {pass} proxy_cache_valid 200 404 1m; }}
             location /ignore {{ {pass} {ignored} proxy_cache_valid 301 1m; }}"
        ))
        .ignore_words();
    let mut random = Random::new(5);
    for index in 0..CASES {
        let status = *random.pick(STATUSES);
        let mut answer = Answer::new(status).header("Location", "/x").body("body");
        let mut about = status.to_string();
        for (name, value) in draw(&mut random) {
            answer = answer.header(name, value);
            about.push_str(&format!(" {name} {value}"));
        }
        let path = format!("{}/{index}", random.pick(PATHS));
        scenario = scenario
            .answer(&path, answer)
            .case(&case_name(index, &about))
            .gets(&[&path, &path, &path]);
    }
    scenario
}
