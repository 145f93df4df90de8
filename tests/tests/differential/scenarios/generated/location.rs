//! Location that a path gets, for sets of locations that were drawn.
//!
//! A set has prefixes, `^~`, `=`, regular expressions and some nested ones, over a small alphabet,
//! so that they overlap. Each location names itself in its answer.

use super::random::Random;
use crate::scenario::{Scenario, case_name};
use millpond_testkit::{Answer, Request};

const PATHS: &[&str] = &[
    "/", "/a", "/a/", "/ab", "/a/b", "/a/b/", "/a/b/c", "/b", "/b/", "/b/a", "/A", "/a.c",
    "/c/a.c", "/c", "/c/", "/a/b.c", "/b.C",
];

const REGEXES: &[&str] = &[
    "~ \\.c$",
    "~* \\.c$",
    "~ ^/a",
    "~ b",
    "~* ^/B",
    "~ /a/.*c",
    "~ ^/[ab]/$",
    "~* A",
    "~ (a)/(b)",
    "~ ^/c/?$",
];

const SETS: usize = 8;
const TARGETS: usize = 12;

/// One set of locations, none of them twice.
fn locations(random: &mut Random) -> String {
    let mut known: Vec<String> = Vec::new();
    let mut conf = String::new();
    for index in 0..12 {
        let body = if random.happens(80) {
            format!("return 200 \"{index} $1\";")
        } else {
            format!("proxy_set_header X-Location {index}; proxy_pass http://%%ORIGIN%%;")
        };
        if random.happens(35) {
            let regex = *random.pick(REGEXES);
            conf.push_str(&format!("location {regex} {{ {body} }}\n"));
            continue;
        }
        let path = *random.pick(PATHS);
        let modifier = *random.pick(&["", "", "", "^~ ", "= "]);
        let name = if modifier == "= " { "=" } else { "" };
        let clash = format!("{name}{path}");
        if known.contains(&clash) {
            continue;
        }
        known.push(clash);
        let nested = if modifier.is_empty() && random.happens(40) {
            let regex = *random.pick(REGEXES);
            format!("location {regex} {{ return 200 \"{index} nested\"; }}")
        } else {
            String::new()
        };
        conf.push_str(&format!(
            "location {modifier}{path} {{ {nested} {body} }}\n"
        ));
    }
    conf
}

/// Targets on servers with sets of locations.
pub fn choice() -> Scenario {
    let mut random = Random::new(3);
    let mut conf = String::new();
    for set in 0..SETS {
        conf.push_str(&format!(
            "server {{ listen 127.0.0.1:%%PORT%%; server_name s{set}.test;\n{}}}\n",
            locations(&mut random)
        ));
    }
    let mut scenario = Scenario::new("location-choice")
        .http(&conf)
        .computed("/*", |request| {
            let location = request.header("X-Location").unwrap_or_default();
            Answer::new(200).body(format!("origin {location}"))
        });
    for set in 0..SETS {
        for index in 0..TARGETS {
            let more = ["", "", "c", "/", ".c", "?b", "/b"];
            let target = format!("{}{}", random.pick(PATHS), random.pick(&more));
            let name = case_name(set * TARGETS + index, &target);
            let request = Request::get(&target).host(&format!("s{set}.test"));
            scenario = scenario.case(&name).send(request);
        }
    }
    scenario
}
