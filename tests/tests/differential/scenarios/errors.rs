//! `error_page` in its forms, and the built-in error pages.

use crate::scenario::Scenario;
use millpond_testkit::{Answer, Request};

/// The scenarios of this subject.
pub fn scenarios() -> Vec<Scenario> {
    vec![
        error_page_forms(),
        error_page_to_proxy(),
        error_page_inheritance(),
        error_page_recursion(),
        builtin_pages(),
        error_page_without_content(),
    ]
}

fn error_page_forms() -> Scenario {
    Scenario::new("error-page-forms")
        .server(
            "error_page 404 /404.html;
             error_page 403 =200 /ok.html;
             error_page 410 = /ok.html;
             error_page 500 502 503 /50x.html;
             error_page 402 http://other.test/402;
             error_page 405 =301 http://other.test/405;
             error_page 406 =307 /ok.html;
             error_page 409 /script;
             error_page 411 = /script;
             error_page 412 =204 /script;
             error_page 413 /none.html;
             error_page 414 $arg_page;
             error_page 415 @named;
             error_page 416 =202 @named;
             location = /script { return 201 \"script $status $request_uri $uri\"; }
             location @named { return 203 \"named $uri\"; }
             location /402 { return 402; } location /403 { return 403; }
                 location /405 { return 405; }
             location /406 { return 406; } location /409 { return 409; }
                 location /410 { return 410; }
             location /411 { return 411; } location /412 { return 412; }
                 location /413 { return 413; }
             location /414 { return 414; } location /415 { return 415; }
                 location /416 { return 416; }
             location /502 { return 502; } location /503 { return 503; }
                 location /500 { return 500; }",
        )
        .file("html/404.html", "page 404")
        .file("html/ok.html", "page ok")
        .file("html/50x.html", "page 50x")
        .gets(&[
            "/none",
            "/402",
            "/403",
            "/405",
            "/406",
            "/409",
            "/410",
            "/411",
            "/412",
            "/413",
            "/414?page=/ok.html",
            "/415",
            "/416",
            "/500",
            "/502",
            "/503",
            "/404.html",
        ])
        .head("/none")
        .send(Request::post("/403", "x"))
        .get_with("/403", "Range", "bytes=0-1")
}

fn error_page_to_proxy() -> Scenario {
    Scenario::new("error-page-to-proxy")
        .server(
            "location / { error_page 404 = @up; }
             location /keep { error_page 404 @up; }
             location /uri { error_page 404 = /up/page; return 404; }
             location /up/ { proxy_pass http://%%ORIGIN%%; }
             location @up { proxy_pass http://%%ORIGIN%%; }",
        )
        .answer(
            "/*",
            Answer::new(200).body("origin").header("X-Origin", "1"),
        )
        .gets(&["/a?b=c", "/keep/a", "/uri"])
        .send(Request::post("/a", "body"))
}

fn error_page_inheritance() -> Scenario {
    Scenario::new("error-page-inheritance")
        .http("error_page 404 /http; error_page 403 /http;")
        .server(
            "location /none { error_page 403 /inner; return 404; }
             location /all { return 404; }
             location = /http { return 200 http; }
             location = /inner { return 200 inner; }
             location /own { error_page 403 /inner; return 403; }",
        )
        .gets(&["/none", "/all", "/own"])
}

fn error_page_recursion() -> Scenario {
    Scenario::new("error-page-recursion")
        .server(
            "error_page 404 /first; error_page 403 /second;
             location = /first { return 403; }
             location = /second { return 200 second; }
             location /off { return 404; }
             location /on { recursive_error_pages on; return 404; }
             location = /loop { recursive_error_pages on; error_page 410 /loop; return 410; }",
        )
        .gets(&["/off", "/on", "/loop"])
}

fn builtin_pages() -> Scenario {
    let mut conf = String::new();
    let mut scenario = Scenario::new("builtin-error-pages");
    let codes = [
        400, 401, 402, 403, 404, 405, 406, 409, 411, 412, 413, 414, 415, 416, 421, 429, 494, 495,
        496, 497, 500, 501, 502, 503, 504, 505, 507,
    ];
    for code in codes {
        conf.push_str(&format!("location /{code} {{ return {code}; }}\n"));
        scenario = scenario.get(&format!("/{code}"));
    }
    scenario
        .server(&conf)
        .server("msie_padding on; server_tokens off;")
        .get_with(
            "/404",
            "User-Agent",
            "Mozilla/4.0 (compatible; MSIE 6.0; Windows NT 5.1)",
        )
}

/// An answer that becomes one without content has no type; one that the origin made so keeps it.
fn error_page_without_content() -> Scenario {
    let dated = Answer::new(200)
        .header("Content-Type", "text/x")
        .header("Last-Modified", "Mon, 28 Sep 1970 06:00:00 GMT")
        .body("origin");
    Scenario::new("error-page-204")
        .server(
            "location /file { error_page 404 =204 /page.html; }
             location /pass { error_page 404 =204 /origin/200; }
             location /empty { error_page 404 =204 /origin/204; }
             location /origin/ { proxy_pass http://%%ORIGIN%%; }",
        )
        .answer("/origin/200", dated)
        .answer(
            "/origin/204",
            Answer::new(204).header("Content-Type", "text/x"),
        )
        .file("html/page.html", "page")
        .gets(&["/file", "/pass", "/empty", "/origin/204"])
}
