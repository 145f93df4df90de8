//! Lists of fields that inner blocks inherit as a whole or not at all.
//!
//! For each subset of the levels server, location, nested location and `if`, one case: the
//! directives stand at just those levels. What a directive sets names its level.

use crate::scenario::{Scenario, case_name};
use millpond_testkit::{Answer, Request};

const LEVELS: [&str; 4] = ["server", "location", "nested", "if"];

/// The directives of a level; some of them only at every second one, so that lists differ.
fn directives(level: usize, is_there: bool) -> String {
    if !is_there {
        return String::new();
    }
    let name = LEVELS[level];
    let mut text = format!("add_header X-Level {name}; add_header X-{name} 1 always;\n");
    if level == 3 {
        // The others are not allowed inside of if.
        return text;
    }
    text.push_str(&format!(
        "proxy_set_header X-Level {name}; proxy_set_header X-{name} 1;
         proxy_hide_header X-Hide-{name}; error_page 404 /{name};\n"
    ));
    if level.is_multiple_of(2) {
        text.push_str(&format!(
            "expires {level}h; proxy_set_header Host {name}.test;\n"
        ));
    }
    text
}

fn server(levels: usize) -> String {
    let at = |level: usize| directives(level, levels & (1 << level) != 0);
    let pass = "proxy_pass http://%%ORIGIN%%;";
    format!(
        "server {{ listen 127.0.0.1:%%PORT%%; server_name l{levels}.test;
             {} location /a {{ {} {pass}
                 location /a/b {{ {} if ($arg_if) {{ {} }} {pass} }}
                 location /a/n {{ {} return 404; }} }}
             location / {{ return 200 $uri; }} }}\n",
        at(0),
        at(1),
        at(2),
        at(3),
        at(2),
    )
}

fn cases(mut scenario: Scenario) -> Scenario {
    let conf: String = (0..16).map(server).collect();
    let mut answer = Answer::new(200).body("x");
    for level in LEVELS.iter().chain(&["http"]) {
        answer = answer.header(&format!("X-Hide-{level}"), "1");
    }
    scenario = scenario.http(&conf).answer("/*", answer);
    for levels in 0..16_usize {
        let names = LEVELS.iter().enumerate();
        let names = names.filter(|(level, _)| levels & (1 << level) != 0);
        let about: Vec<&str> = names.map(|(_, name)| *name).collect();
        scenario = scenario.case(&case_name(levels, &about.join(" ")));
        for target in ["/a", "/a/b", "/a/b?if=1", "/a/n", "/c"] {
            let host = format!("l{levels}.test");
            scenario = scenario.send(Request::get(target).host(&host));
        }
    }
    scenario
}

/// Scenarios with nothing in the http block.
pub fn without_http() -> Scenario {
    cases(Scenario::new("inheritance"))
}

/// Scenarios with directives in the http block too.
pub fn with_http() -> Scenario {
    cases(Scenario::new("inheritance-from-http").http(
        "add_header X-Level http; add_header X-Http 1; proxy_set_header X-Level http;
         proxy_set_header X-Http 1; proxy_hide_header X-Hide-http; error_page 404 /http;
         expires 1d;",
    ))
}
