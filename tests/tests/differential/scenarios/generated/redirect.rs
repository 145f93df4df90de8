//! Redirects of upstreams and of the server, under every mixture of the directives about them.
//!
//! Each mixture of `proxy_redirect`, `absolute_redirect`, `port_in_redirect` and
//! `server_name_in_redirect` is a server and a case.

use crate::scenario::{Scenario, case_name};
use millpond_testkit::{Answer, Request};

const RULES: &[&str] = &[
    "",
    "proxy_redirect off;",
    "proxy_redirect default;",
    "proxy_redirect http://old.test/ /new/;",
    "proxy_redirect ~^http://([^/]+)/(.*)$ http://$host/$1/$2;",
    "proxy_redirect / /under/; proxy_redirect default;",
];

const LOCATIONS: &[&str] = &[
    "http://%%ORIGIN%%/up/x",
    "http://%%ORIGIN%%/other",
    "http://old.test/y?z=1",
    "/up/rel",
    "rel",
    "//old.test/s",
    "",
];

fn server(mixture: usize) -> String {
    let on = |bit: usize| {
        if mixture & (1 << bit) == 0 {
            "on"
        } else {
            "off"
        }
    };
    let rule = RULES[mixture >> 3];
    format!(
        "server {{ listen 127.0.0.1:%%PORT%%; server_name m{mixture}.test other{mixture}.test;
             root %%DIR%%/html;
             absolute_redirect {}; port_in_redirect {}; server_name_in_redirect {};
             location /a/ {{ proxy_pass http://%%ORIGIN%%/up/; {rule} }}
             location /dir {{ }}
             location /return {{ return 301 /to; }}
             location /rewrite {{ rewrite ^ /to?x redirect; }}
             location /page {{ error_page 404 =302 /to; return 404; }} }}\n",
        on(0),
        on(1),
        on(2),
    )
}

/// All mixtures.
pub fn policies() -> Scenario {
    let mixtures = RULES.len() << 3;
    let conf: String = (0..mixtures).map(server).collect();
    let mut scenario = Scenario::new("redirect-policies")
        .http(&conf)
        .file("html/dir/x", "x");
    for (index, location) in LOCATIONS.iter().enumerate() {
        let named = *location;
        scenario = scenario.computed(&format!("/up/{index}"), move |request| {
            let host = request.header("Host").unwrap_or_default();
            let location = named.replace("%%ORIGIN%%", host);
            Answer::new(302).header("Location", &location).body("x")
        });
    }
    for mixture in 0..mixtures {
        scenario = scenario.case(&case_name(mixture, RULES[mixture >> 3]));
        let host = format!("other{mixture}.test:99");
        for index in 0..LOCATIONS.len() {
            let target = format!("/a/{index}");
            scenario = scenario.send(Request::get(&target).host(&host));
        }
        for target in ["/dir", "/dir?q", "/return", "/rewrite", "/a", "/page"] {
            scenario = scenario.send(Request::get(target).host(&host));
        }
    }
    scenario
}
