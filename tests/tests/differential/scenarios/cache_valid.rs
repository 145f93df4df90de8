//! Lifetimes of answers: `proxy_cache_valid`, Cache-Control, Expires and X-Accel-Expires.

use crate::scenario::{Scenario, case_name};
use millpond_testkit::{Answer, Request};

const PAST: &str = "Sun, 06 Nov 1994 08:49:37 GMT";
const FUTURE: &str = "Sun, 06 Nov 2094 08:49:37 GMT";

/// The scenarios of this subject.
pub fn scenarios() -> Vec<Scenario> {
    vec![
        valid_by_code(),
        valid_default_codes(),
        valid_any(),
        cache_control("cache-control", ""),
        cache_control("cache-control-and-valid", "proxy_cache_valid 1m;"),
        cache_control(
            "cache-control-ignored",
            "proxy_cache_valid 1m;
                proxy_ignore_headers Cache-Control Expires X-Accel-Expires Set-Cookie;",
        ),
        accel_expires(),
        set_cookie(),
        authorization(),
        statuses_that_headers_make_storable(),
    ]
}

/// Requests every path twice, so that the second answer tells whether the first was stored.
fn twice(mut scenario: Scenario, paths: &[&str]) -> Scenario {
    for path in paths {
        scenario = scenario.gets(&[path, path]);
    }
    scenario
}

fn with_statuses(mut scenario: Scenario, statuses: &[u16]) -> Scenario {
    for status in statuses {
        let path = format!("/{status}");
        let answer = Answer::new(*status).header("Location", "/x").body("body");
        let case = scenario.answer(&path, answer).case(&status.to_string());
        scenario = twice(case, &[&path]);
    }
    scenario.ignore_words()
}

const STATUSES: &[u16] = &[
    200, 201, 204, 206, 301, 302, 303, 307, 400, 403, 404, 410, 500, 502, 503,
];

fn valid_by_code() -> Scenario {
    let directives =
        "proxy_cache_valid 200 404 1m; proxy_cache_valid 500 0; proxy_cache_valid 206 1m;";
    with_statuses(
        Scenario::cached("cache-valid-by-code", directives),
        STATUSES,
    )
}

fn valid_default_codes() -> Scenario {
    with_statuses(
        Scenario::cached("cache-valid-default", "proxy_cache_valid 1m;"),
        STATUSES,
    )
}

fn valid_any() -> Scenario {
    let directives = "proxy_cache_valid 403 0; proxy_cache_valid any 1m;";
    with_statuses(Scenario::cached("cache-valid-any", directives), STATUSES)
}

fn cache_control(id: &'static str, directives: &str) -> Scenario {
    let mut scenario = Scenario::cached(id, directives);
    let cases: &[&[(&str, &str)]] = &[
        &[],
        &[("Cache-Control", "max-age=60")],
        &[("Cache-Control", "max-age=0")],
        &[("Cache-Control", "s-maxage=60")],
        &[("Cache-Control", "s-maxage=0, max-age=60")],
        &[("Cache-Control", "max-age=0, s-maxage=60")],
        &[("Cache-Control", "public")],
        &[("Cache-Control", "private, max-age=60")],
        &[("Cache-Control", "private=\"x\", max-age=60")],
        &[("Cache-Control", "no-cache, max-age=60")],
        &[("Cache-Control", "no-cache=\"x\", max-age=60")],
        &[("Cache-Control", "no-store, max-age=60")],
        &[("Cache-Control", "NO-STORE")],
        &[("Cache-Control", "Max-Age=60")],
        &[("Cache-Control", "max-age=\"60\"")],
        &[("Cache-Control", "max-age=abc")],
        &[("Cache-Control", "max-age=-1")],
        &[("Cache-Control", "max-age= 60")],
        &[("Cache-Control", "must-revalidate, max-age=60")],
        &[
            ("Cache-Control", "max-age=60"),
            ("Cache-Control", "no-store"),
        ],
        &[("Cache-Control", "max-age=60"), ("Expires", PAST)],
        &[("Expires", PAST), ("Cache-Control", "max-age=60")],
        &[("Expires", FUTURE)],
        &[("Expires", PAST)],
        &[("Expires", "0")],
        &[("Expires", "nonsense")],
        &[("Cache-Control", "no-cache"), ("Expires", FUTURE)],
        &[("Expires", FUTURE), ("Cache-Control", "no-cache")],
        &[("Pragma", "no-cache"), ("Cache-Control", "max-age=60")],
        &[("Cache-Control", "max-age=60"), ("X-Accel-Expires", "0")],
        &[("X-Accel-Expires", "60"), ("Cache-Control", "no-store")],
        &[("Age", "100"), ("Cache-Control", "max-age=60")],
        &[("Vary", "*"), ("Cache-Control", "max-age=60")],
    ];
    for (index, fields) in cases.iter().enumerate() {
        let path = format!("/{}", index + 1);
        let mut answer = Answer::new(200).body("body");
        for (name, value) in *fields {
            answer = answer.header(name, value);
        }
        let about: String = fields.iter().map(|(n, v)| format!("{n} {v} ")).collect();
        let case = scenario
            .answer(&path, answer)
            .case(&case_name(index, &about));
        scenario = twice(case, &[&path]);
    }
    scenario
}

fn accel_expires() -> Scenario {
    let mut scenario = Scenario::cached("cache-x-accel-expires", "");
    for (index, value) in ["60", "0", "@9999999999", "@1", "-1", "abc", "off", ""]
        .iter()
        .enumerate()
    {
        let path = format!("/{}", index + 1);
        let answer = Answer::new(200)
            .header("X-Accel-Expires", value)
            .body("body");
        let case = scenario
            .answer(&path, answer)
            .case(&case_name(index, value));
        scenario = twice(case, &[&path]);
    }
    scenario
}

fn set_cookie() -> Scenario {
    let answer = Answer::new(200)
        .header("Cache-Control", "max-age=60")
        .header("Set-Cookie", "a=1");
    let scenario = Scenario::new("cache-set-cookie")
        .http("proxy_cache_path %%DIR%%/cache keys_zone=zone:1m;")
        .server(
            "add_header X-Cache $upstream_cache_status; proxy_cache zone;
             location / { proxy_pass http://%%ORIGIN%%; }
             location /ignore { proxy_pass http://%%ORIGIN%%; proxy_ignore_headers Set-Cookie; }
             location /hide { proxy_pass http://%%ORIGIN%%; proxy_ignore_headers Set-Cookie;
                              proxy_hide_header Set-Cookie; }",
        )
        .answer("/*", answer.body("body"));
    twice(scenario, &["/", "/ignore", "/hide"])
}

fn authorization() -> Scenario {
    let request = |path: &str| Request::get(path).header("Authorization", "Basic x");
    Scenario::cached("cache-authorization", "")
        .answer(
            "/a",
            Answer::new(200)
                .header("Cache-Control", "max-age=60")
                .body("a"),
        )
        .answer(
            "/b",
            Answer::new(200)
                .header("Cache-Control", "public, max-age=60")
                .body("b"),
        )
        .send(request("/a"))
        .send(request("/a"))
        .get("/a")
        .send(request("/b"))
        .send(request("/b"))
}

fn statuses_that_headers_make_storable() -> Scenario {
    let mut scenario = Scenario::cached("cache-control-by-status", "");
    for status in STATUSES {
        let path = format!("/{status}");
        let answer = Answer::new(*status)
            .header("Cache-Control", "max-age=60")
            .body("body");
        let case = scenario.answer(&path, answer).case(&status.to_string());
        scenario = twice(case, &[&path]);
    }
    scenario.ignore_words()
}
