//! Scripts of `rewrite`, `if`, `set`, `break` and `return` that were drawn.
//!
//! A server has a script of its own and some locations with scripts. What comes out of them goes to
//! the origin, which tells what it was asked and what the variables held.

use super::random::Random;
use crate::scenario::{Scenario, case_name};
use millpond_testkit::{Answer, Request};

const LOCATIONS: &[&str] = &["/a", "/b", "/b/c", "~ /d$"];
const SERVERS: usize = 8;
const TARGETS: usize = 10;

/// One directive of the rewrite module.
fn directive(random: &mut Random, depth: usize) -> String {
    let flag = *random.pick(&["", "", " last", " break", " redirect", " permanent"]);
    match random.below(if depth == 0 { 12 } else { 9 }) {
        0..=3 => {
            let pattern = *random.pick(&["^/a(.*)$", "^/b/?(.*)$", "^(.*)/c$", "^/(.)/(.*)$", "d"]);
            let to = *random.pick(&["/b$1", "/a/$1", "/b/c", "/x/$1/d", "/b?r=$1", "/a$1?"]);
            format!("rewrite {pattern} {to}{flag};")
        }
        4..=6 => {
            let value = *random.pick(&["\"${v}1\"", "$uri", "\"$1-$2\"", "$args", "\"\"", "x"]);
            format!("set $v {value};")
        }
        7 if random.happens(40) => "break;".to_string(),
        7 => "set $args \"$args&s\";".to_string(),
        8 => {
            let answer = *random.pick(&["204", "301 /r$uri", "200 \"$v|$uri|$1\"", "404", "/z"]);
            let answer = answer.replace("/z", "http://o.test/$v");
            format!("return {answer};")
        }
        _ => {
            let condition = *random.pick(&[
                "$arg_i",
                "$arg_i = 1",
                "$arg_i != 1",
                "$uri ~ ^/(a)(.*)$",
                "$uri !~ c",
                "$request_method = POST",
                "$v",
                "$v ~* X",
            ]);
            let count = 1 + random.below(2);
            let inner: Vec<String> = (0..count).map(|_| directive(random, depth + 1)).collect();
            format!("if ({condition}) {{ {} }}", inner.join(" "))
        }
    }
}

fn script(random: &mut Random, max: usize) -> String {
    let count = random.below(max + 1);
    let directives: Vec<String> = (0..count).map(|_| directive(random, 0)).collect();
    directives.join("\n")
}

fn server(random: &mut Random, index: usize) -> String {
    let pass = "proxy_set_header X-V \"$v|$uri|$args\"; proxy_pass http://%%ORIGIN%%;";
    let own = script(random, 2);
    let mut locations = format!("location / {{ {pass} }}\n");
    for name in LOCATIONS {
        let own = script(random, 4);
        locations.push_str(&format!("location {name} {{ {own}\n{pass} }}\n"));
    }
    format!(
        "server {{ listen 127.0.0.1:%%PORT%%; server_name r{index}.test; set $v \"\";\n{own}\n{locations}}}\n"
    )
}

/// Targets on servers with scripts.
pub fn flags() -> Scenario {
    let mut random = Random::new(4);
    let conf: String = (0..SERVERS)
        .map(|index| server(&mut random, index))
        .collect();
    let mut scenario = Scenario::new("rewrite-scripts")
        .http(&conf)
        .computed("/*", |request| {
            let values = request.header("X-V").unwrap_or_default();
            Answer::new(200).body(format!("{} {values}", request.target))
        });
    let paths = [
        "/a", "/a/b", "/b", "/b/c", "/b/x", "/a/c", "/x/d", "/a%20/d", "/",
    ];
    let queries = ["", "", "?i=1", "?i=0", "?i=2&j"];
    for server in 0..SERVERS {
        for index in 0..TARGETS {
            let target = format!("{}{}", random.pick(&paths), random.pick(&queries));
            let method = *random.pick(&["GET", "GET", "GET", "POST"]);
            let name = case_name(server * TARGETS + index, &format!("{method} {target}"));
            let request = Request::new(method, &target).host(&format!("r{server}.test"));
            scenario = scenario.case(&name).send(request);
        }
    }
    scenario
}
