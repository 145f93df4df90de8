//! Header fields of answers: `add_header`, `expires`, and inheritance.

use crate::scenario::Scenario;
use millpond_testkit::{Answer, Request};

/// The scenarios of this subject.
pub fn scenarios() -> Vec<Scenario> {
    vec![
        last_modified_by_name(),
        add_header_inheritance(),
        add_header_always(),
        add_header_special_names(),
        content_type_that_is_added(),
        add_header_on_proxied(),
        expires_forms(),
        expires_by_status(),
        expires_variable(),
        add_trailer(),
    ]
}

fn add_header_inheritance() -> Scenario {
    Scenario::new("add-header-inheritance")
        .http("add_header X-Level http; add_header X-Http 1;")
        .server(
            "location / { return 200 x; }
             location /own { add_header X-Level location; return 200 x; }
             location /twice { add_header X-A 1; add_header X-A 2; return 200 x; }
             location /nested { add_header X-Level outer;
                 location /nested/in { return 200 x; }
                 location /nested/own { add_header X-B 1; return 200 x; } }",
        )
        .gets(&["/", "/own", "/twice", "/nested/in", "/nested/own"])
}

fn add_header_always() -> Scenario {
    let mut conf =
        "add_header X-Plain \"$status\"; add_header X-Always \"$status\" always;\n".to_string();
    let mut scenario = Scenario::new("add-header-always");
    for code in [
        200, 201, 204, 206, 301, 302, 303, 307, 308, 400, 404, 500, 503,
    ] {
        let text = if matches!(code, 301 | 302 | 303 | 307 | 308) {
            "/x"
        } else {
            "text"
        };
        conf.push_str(&format!("location /{code} {{ return {code} {text}; }}\n"));
        scenario = scenario.get(&format!("/{code}"));
    }
    scenario
        .server(&conf)
        .file("html/file", "x")
        .get_with("/file", "If-None-Match", "*")
        .get_with("/file", "Range", "bytes=0-0")
}

fn add_header_special_names() -> Scenario {
    Scenario::new("add-header-special")
        .server(
            "location /cc { add_header Cache-Control private; add_header Cache-Control no-store; }
             location /lm { add_header Last-Modified \"\"; }
             location /lmset { add_header Last-Modified \"Sun, 06 Nov 1994 08:49:37 GMT\"; }
             location /etag { add_header ETag \"\"; }
             location /etagset { add_header ETag '\"mine\"'; }
             location /link { add_header Link a; add_header Link b; }
             location /empty { add_header X-Empty \"\"; add_header X-Var $arg_none; }
             location /both { expires 1h; add_header Cache-Control public; }",
        )
        .file("html/cc", "x")
        .file("html/lm", "x")
        .file("html/lmset", "x")
        .file("html/etag", "x")
        .file("html/etagset", "x")
        .file("html/link", "x")
        .file("html/empty", "x")
        .file("html/both", "x")
        .gets(&[
            "/cc", "/lm", "/lmset", "/etag", "/etagset", "/link", "/empty", "/both",
        ])
        .get_with("/etagset", "If-None-Match", "\"mine\"")
}

/// A type that is added is a field beside that of the answer, which filters do not look at.
fn content_type_that_is_added() -> Scenario {
    let added = "add_header Content-Type text/x-own always;";
    Scenario::new("content-type-that-is-added")
        .http("log_format t '$uri [$sent_http_content_type]'; access_log %%DIR%%/t.log t;")
        .server(&format!(
            "default_type text/plain;
             location /plain/ {{ {added} }}
             location /charset/ {{ charset utf-8; {added} }}
             location /gzip/ {{ gzip on; gzip_min_length 1; gzip_types text/x-own; {added}
                 default_type text/odd; }}
             location /proxied/ {{ charset utf-8; {added} proxy_pass http://%%ORIGIN%%; }}
             location /return {{ charset utf-8; {added} return 200 x; }}
             location /none {{ charset utf-8; {added} return 204; }}
             location /error {{ charset utf-8; {added} return 404; }}"
        ))
        .file("html/plain/a", "text")
        .file("html/charset/a", "text")
        .file("html/gzip/a", "text of some length")
        .answer(
            "/proxied/typed",
            Answer::new(200)
                .header("Content-Type", "text/html")
                .body("x"),
        )
        .answer("/proxied/bare", Answer::new(200).body("x"))
        .gets(&["/plain/a", "/charset/a", "/proxied/typed", "/proxied/bare"])
        .steps_with_gzip(&["/gzip/a"])
        .gets(&["/return", "/none", "/error"])
        .lines("t.log", 8)
}

fn add_header_on_proxied() -> Scenario {
    let answer = Answer::new(200)
        .header("X-A", "origin")
        .header("Cache-Control", "max-age=5")
        .header("Expires", "Sun, 06 Nov 1994 08:49:37 GMT");
    Scenario::new("add-header-on-proxied")
        .server(
            "location / { proxy_pass http://%%ORIGIN%%; add_header X-A mine;
                          add_header X-Copy \"$sent_http_x_a|$upstream_http_x_a\"; }
             location /exp { proxy_pass http://%%ORIGIN%%; expires 1h; }
             location /off { proxy_pass http://%%ORIGIN%%; expires off; }
             location /cc { proxy_pass http://%%ORIGIN%%; add_header Cache-Control private; }",
        )
        .answer("/*", answer.body("x"))
        .gets(&["/", "/exp", "/off", "/cc"])
}

fn expires_forms() -> Scenario {
    let mut conf = String::new();
    let mut scenario = Scenario::new("expires-forms");
    for (path, argument) in [
        ("hour", "1h"),
        ("minus", "-1"),
        ("minus-hour", "-1h"),
        ("zero", "0"),
        ("epoch", "epoch"),
        ("max", "max"),
        ("off", "off"),
        ("mixed", "1d 2h"),
        ("modified", "modified +24h"),
        ("modified-minus", "modified -1h"),
    ] {
        let argument = if argument.contains(' ') && !argument.starts_with("modified") {
            format!("\"{argument}\"")
        } else {
            argument.to_string()
        };
        conf.push_str(&format!(
            "location /{path} {{ expires {argument}; return 200 x; }}\n"
        ));
        scenario = scenario.get(&format!("/{path}"));
    }
    scenario
        .server(&conf)
        .server("location /file { expires modified +24h; }")
        .file("html/file", "x")
        // It is relative to a date that is always the same.
        .get("/file")
        .ignore("cache-control")
}

fn expires_by_status() -> Scenario {
    Scenario::new("expires-by-status")
        .server(
            "expires 1h;
             location /200 { return 200 x; } location /204 { return 204; }
             location /301 { return 301 /x; } location /404 { return 404; }
             location /500 { return 500; }",
        )
        .gets(&["/200", "/204", "/301", "/404", "/500"])
}

fn expires_variable() -> Scenario {
    Scenario::new("expires-variable")
        .http(
            "map $sent_http_content_type $e { default off; text/css 1d; ~image max;
            text/x epoch; }",
        )
        .http("types { text/css css; image/png png; text/x x; text/plain txt; }")
        .server("location / { expires $e; } location /arg { expires $arg_e; return 200 x; }")
        .file("html/a.css", "x")
        .file("html/a.png", "x")
        .file("html/a.x", "x")
        .file("html/a.txt", "x")
        .gets(&[
            "/a.css",
            "/a.png",
            "/a.x",
            "/a.txt",
            "/arg?e=10m",
            "/arg?e=nonsense",
            "/arg",
        ])
        .send(Request::head("/a.css"))
}

fn add_trailer() -> Scenario {
    Scenario::new("add-trailer")
        .server(
            "location / { add_trailer X-T \"$request_uri\"; add_trailer X-E \"\"; return 200 x; }
             location /p { proxy_pass http://%%ORIGIN%%; add_trailer X-T $upstream_status; }",
        )
        .answer("/*", Answer::new(200).body("x"))
        .gets(&["/", "/p"])
        .head("/")
        .get_with("/", "Range", "bytes=0-0")
}

/// A Last-Modified that is added to an error stays if it is no date.
fn last_modified_by_name() -> Scenario {
    Scenario::new("add-last-modified")
        .server(
            "location /word { add_header Last-Modified word always; }
             location /date { add_header Last-Modified \"Mon, 28 Sep 1970 06:00:00 GMT\" always; }
             location /type { add_header Last-Modified $sent_http_content_type always; }
             location /moved { add_header Last-Modified word; return 302 /; }
             location /none { add_header Last-Modified word; return 204; }",
        )
        .file("html/word", "file")
        .file("html/date", "file")
        .gets(&[
            "/word", "/word/x", "/date", "/date/x", "/type/x", "/moved", "/none",
        ])
}
