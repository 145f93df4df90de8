//! Paths in all spellings: how they are normalized, and what an upstream is asked for.
//!
//! Each case sends one target to a server that merges slashes, to one that does not, and through
//! `proxy_pass` with and without a path of its own.

use super::random::Random;
use crate::scenario::{Scenario, case_name};
use millpond_testkit::{Answer, Request};

const SEGMENTS: &[&str] = &[
    "a", "b", "..", ".", "", "%2e%2e", "%2E", ".%2e", "%2f", "a%2Fb", "a%20b", "a.", "...", "%25",
    "%252e", "%c3%a9", "a;b", "a+b", "~", "%7e", "a&b=c", "%3f", "%23x", "%41", "a:b", "@", "%40",
    "!$'()*,", "%5c", "%09", "{a}", "a|b", "%22", "^",
];

const QUERIES: &[&str] = &[
    "", "", "", "", "?", "?x", "?a=%20b", "?a=/../b", "?a#b", "#b", "?a?b", "?%2e", "?&&",
];

const PATHS: usize = 70;

fn target(random: &mut Random) -> String {
    let segments = random.several(SEGMENTS, 1, 5);
    let slash = if random.happens(30) { "/" } else { "" };
    format!("/{}{slash}{}", segments.join("/"), random.pick(QUERIES))
}

fn server(name: &str, directives: &str) -> String {
    format!("server {{ listen 127.0.0.1:%%PORT%%; server_name {name}; {directives} }}\n")
}

fn echoing(scenario: Scenario) -> Scenario {
    scenario.computed("/*", |request| {
        Answer::new(200).body(request.target.clone())
    })
}

/// Targets on servers of four kinds.
pub fn paths() -> Scenario {
    let text = "\"$uri|$args|$request_uri|$is_args\"";
    let conf = [
        server("on.test", &format!("return 200 {text};")),
        server(
            "off.test",
            &format!("merge_slashes off; return 200 {text};"),
        ),
        server("pass.test", "location / { proxy_pass http://%%ORIGIN%%; }"),
        server(
            "path.test",
            "location / { proxy_pass http://%%ORIGIN%%/base/; }
             location /a { proxy_pass http://%%ORIGIN%%/c; }",
        ),
    ];
    let mut scenario = echoing(Scenario::new("uri").http(&conf.concat()));
    let mut random = Random::new(1);
    for index in 0..PATHS {
        let target = target(&mut random);
        scenario = scenario.case(&case_name(index, &target));
        for host in ["on.test", "off.test", "pass.test", "path.test"] {
            scenario = scenario.send(Request::get(&target).host(host));
        }
    }
    scenario
}

/// Targets through locations that replace, rewrite and match by regular expressions.
pub fn replaced_paths() -> Scenario {
    let conf = [
        server(
            "plain.test",
            "location / { proxy_pass http://%%ORIGIN%%/; }
             location /a/ { proxy_pass http://%%ORIGIN%%; }
             location /b { proxy_pass http://%%ORIGIN%%/x/; }",
        ),
        server(
            "regex.test",
            "location ~ ^/(.*)$ { proxy_pass http://%%ORIGIN%%/re/$1; }",
        ),
        server(
            "rewritten.test",
            "location / { rewrite ^/(.*)$ /rw/$1 break; proxy_pass http://%%ORIGIN%%; }",
        ),
        server(
            "variable.test",
            "location / { proxy_pass http://%%ORIGIN%%$uri?$args; }",
        ),
    ];
    let mut scenario = echoing(Scenario::new("uri-replaced").http(&conf.concat()));
    let mut random = Random::new(2);
    for index in 0..PATHS {
        let target = target(&mut random);
        scenario = scenario.case(&case_name(index, &target));
        // A variable goes out as it is: what must be escaped would break the request's line.
        let hosts: &[&str] = if target.contains('%') {
            &["plain.test", "rewritten.test"]
        } else {
            &[
                "plain.test",
                "rewritten.test",
                "regex.test",
                "variable.test",
            ]
        };
        for host in hosts {
            scenario = scenario.send(Request::get(&target).host(host));
        }
    }
    scenario
}
