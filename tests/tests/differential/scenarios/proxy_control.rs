//! Controls that an answer of the origin has over the proxy: `X-Accel-…` and intercepted errors.

use crate::scenario::Scenario;
use millpond_testkit::{Answer, Request};
use std::time::Duration;

/// The scenarios of this subject.
pub fn scenarios() -> Vec<Scenario> {
    vec![
        accel_redirect(),
        accel_redirect_keeps_fields(),
        accel_redirect_beside_error_page(),
        no_content(),
        intercept_errors(),
        timeouts(),
        limit_rate(),
        auth_request(),
        subrequest_methods(),
        intercepted_without_buffers(),
        redirected_ranges(),
        post_action(),
    ]
}

/// An answer is told afterwards.
fn post_action() -> Scenario {
    Scenario::new("post-action")
        .server(
            "location /short { post_action /done; return 200 short; }
             location /file { post_action @done; }
             location /error { post_action /done; return 404 error; }
             location /page { error_page 404 /file/page; return 404; }
             location /passed { post_action /done; proxy_pass http://%%ORIGIN%%; }
             location /static { post_action /done; }
             location /missing { post_action @nowhere; return 200 x; }
             location /denied { post_action /closed; return 200 x; }
             location /none { return 200 none; }
             location /closed { deny all; }
             location /done {
                 proxy_pass http://%%ORIGIN%%/told;
                 proxy_set_header X-Told \"$status $body_bytes_sent $request_uri $uri\";
             }
             location @done {
                 proxy_pass http://%%ORIGIN%%;
                 proxy_set_header X-Told \"$status $body_bytes_sent $request_uri $uri\";
             }",
        )
        .file("html/file/a", "file a")
        .file("html/file/page", "page of an error")
        .file("html/static", "static")
        .answer("/told", Answer::new(500).body("nobody reads this"))
        .answer("/passed", Answer::new(203).body("passed"))
        .get("/short?a=b")
        .origin_requests(1)
        .get("/file/a")
        .origin_requests(2)
        .get("/error")
        .origin_requests(3)
        .get("/page")
        .origin_requests(4)
        .get("/passed")
        .origin_requests(6)
        .head("/short")
        .origin_requests(7)
        .send(Request::post("/short", "body"))
        .origin_requests(8)
        .gets(&["/none", "/denied", "/static"])
        .origin_requests(9)
}

fn accel_redirect() -> Scenario {
    let to = |path: &str| {
        Answer::new(200)
            .header("X-Accel-Redirect", path)
            .body("hidden")
    };
    Scenario::new("accel-redirect")
        .server(
            "location / { proxy_pass http://%%ORIGIN%%; }
             location /files/ { internal; }
             location /loc { return 200 \"$uri?$args $request_method\"; }
             location @named { return 200 \"named $uri $request_method\"; }
             location /told { error_page 404 @told; proxy_pass http://%%ORIGIN%%/bad; }
             location @told { return 200 \"told $uri $request_method\"; }",
        )
        .file("html/files/a.txt", "file a")
        .file("html/files/a b.txt", "file a b")
        .answer("/file", to("/files/a.txt"))
        .answer("/space", to("/files/a%20b.txt"))
        .answer("/loc-args", to("/loc?x=y"))
        .answer("/named", to("@named"))
        .answer("/none", to("/files/none"))
        .answer("/full", to("http://other.test/x"))
        .answer("/bad", to("/../x"))
        .answer("/again", to("/file"))
        .answer(
            "/error",
            Answer::new(404).header("X-Accel-Redirect", "/files/a.txt"),
        )
        .gets(&[
            "/file",
            "/space",
            "/loc-args",
            "/named",
            "/none",
            "/bad",
            "/again",
            "/error",
        ])
        .head("/file")
        .send(Request::post("/file", "body"))
        .send(Request::post("/loc-args", "body"))
        .send(Request::post("/named", "body"))
        .send(Request::new("DELETE", "/named"))
        .send(Request::new("DELETE", "/told"))
        .head("/named")
        .get_with("/file", "Range", "bytes=1-2")
}

/// An error that has a page is intercepted, whatever its answer redirects to.
fn accel_redirect_beside_error_page() -> Scenario {
    let answer = |status| {
        Answer::new(status)
            .header("X-Accel-Redirect", "/else")
            .header("Cache-Control", "max-age=1")
    };
    Scenario::new("accel-redirect-error-page")
        .server(
            "location / { proxy_pass http://%%ORIGIN%%; proxy_intercept_errors on;
                          error_page 404 /page; }
             location /page { return 200 \"page\"; }
             location /else { return 200 \"else\"; }",
        )
        .answer("/404", answer(404))
        .answer("/403", answer(403))
        .answer("/200", answer(200))
        .gets(&["/404", "/403", "/200"])
}

/// Fields of an answer without content are passed on; of its own a server sends none.
fn no_content() -> Scenario {
    let answer = Answer::new(204).header("Content-Type", "text/x-origin");
    Scenario::new("no-content")
        .server(
            "location / { proxy_pass http://%%ORIGIN%%; }
             location /own { default_type text/x-own; return 204; }",
        )
        .answer("/a", answer)
        .gets(&["/a", "/own"])
}

fn accel_redirect_keeps_fields() -> Scenario {
    let answer = Answer::new(200)
        .header("X-Accel-Redirect", "/files/a.txt")
        .header("Content-Type", "text/x-origin")
        .header("Content-Disposition", "attachment")
        .header("Set-Cookie", "a=1")
        .header("Cache-Control", "max-age=1")
        .header("Expires", "Sun, 06 Nov 1994 08:49:37 GMT")
        .header("Accept-Ranges", "none")
        .header("Content-Language", "fr")
        .header("ETag", "\"origin\"")
        .header("Last-Modified", "Sun, 06 Nov 1994 08:49:37 GMT")
        .header("X-Other", "1")
        .body("hidden");
    Scenario::new("accel-redirect-fields")
        .server("location / { proxy_pass http://%%ORIGIN%%; } location /files/ { internal; }")
        .file("html/files/a.txt", "file a")
        .answer("/a", answer)
        .get("/a")
}

fn intercept_errors() -> Scenario {
    let mut scenario = Scenario::new("proxy-intercept-errors").server(
        "proxy_intercept_errors on;
             error_page 404 /404.html; error_page 500 =200 /404.html; error_page 302 =200 /404.html;
             error_page 401 /404.html; error_page 503 @named;
             location / { proxy_pass http://%%ORIGIN%%; }
             location /off { proxy_intercept_errors off; proxy_pass http://%%ORIGIN%%; }
             location = /404.html { }
             location @named { return 200 named; }",
    );
    for status in [200, 302, 401, 403, 404, 500, 502, 503] {
        let answer = Answer::new(status)
            .header("WWW-Authenticate", "Basic realm=a")
            .header("X-A", "1")
            .header("Location", "/x")
            .body("from the origin");
        scenario = scenario
            .answer(&format!("/{status}"), answer)
            .get(&format!("/{status}"));
    }
    scenario
        .file("html/404.html", "own page")
        .answer("/off", Answer::new(404).body("from the origin"))
        .get("/off")
}

fn timeouts() -> Scenario {
    Scenario::new("proxy-timeouts")
        .server(
            "location / { proxy_pass http://%%ORIGIN%%; proxy_read_timeout 300ms; }
             location /next { proxy_pass http://%%ORIGIN%%; proxy_read_timeout 300ms;
                              error_page 504 =200 /local; }
             location /local { return 200 local; }",
        )
        .answer(
            "/*",
            Answer::new(200)
                .delay_head(Duration::from_millis(800))
                .body("late"),
        )
        .gets(&["/", "/next"])
}

fn limit_rate() -> Scenario {
    Scenario::new("limit-rate")
        .server(
            "location /file { limit_rate 100k; limit_rate_after 20k; }
             location /set { set $limit_rate 100k; }
             location / { proxy_pass http://%%ORIGIN%%; proxy_limit_rate 100k; }",
        )
        .file("html/file", "a".repeat(50_000))
        .file("html/set", "a".repeat(30_000))
        .answer("/a", Answer::new(200).offset_body(30_000, 1))
        .answer(
            "/b",
            Answer::new(200)
                .header("X-Accel-Limit-Rate", "100000")
                .offset_body(30_000, 1),
        )
        .gets(&["/file", "/set", "/a", "/b"])
}

fn auth_request() -> Scenario {
    Scenario::new("auth-request")
        .server(
            "location / { auth_request /auth; auth_request_set $who $upstream_http_x_who;
                          add_header X-Who $who always; proxy_pass http://%%ORIGIN%%/content/; }
             location = /auth { internal; proxy_pass http://%%ORIGIN%%/check;
                                proxy_set_header X-Uri $request_uri;
                                    proxy_pass_request_body off;
                                        proxy_set_header Content-Length \"\"; }",
        )
        .answer("/content/*", Answer::new(200).body("content"))
        .computed("/check", |request| match request.header("X-Uri") {
            Some("/a?ok") => Answer::new(200).header("X-Who", "me"),
            Some("/a?401") => Answer::new(401).header("WWW-Authenticate", "Basic realm=x"),
            Some("/a?403") => Answer::new(403),
            _ => Answer::new(500),
        })
        .gets(&["/a?ok", "/a?401", "/a?403", "/a?500"])
        .send(Request::post("/a?ok", "body"))
}

/// A subrequest is a GET, and tells the method of the request that it is made for.
fn subrequest_methods() -> Scenario {
    Scenario::new("subrequest-methods")
        .server(
            "location / { auth_request /auth; proxy_pass http://%%ORIGIN%%; }
             location /page { auth_request off; error_page 403 /shown; return 403; }
             location /shown { auth_request /auth; return 200 shown; }
             location /parts/ { add_after_body /part; addition_types *; }
             location = /part { auth_request /auth; proxy_pass http://%%ORIGIN%%/part;
                                proxy_set_header X-Method $request_method; }
             location = /auth { internal; proxy_pass http://%%ORIGIN%%/check;
                                proxy_set_header X-Method $request_method;
                                proxy_pass_request_body off;
                                proxy_set_header Content-Length \"\";
                                if ($request_method = DELETE) { return 403; } }",
        )
        .answer("/*", Answer::new(200).body("origin"))
        .file("html/parts/file", "file")
        .gets(&["/a", "/page", "/parts/file"])
        .head("/a")
        .send(Request::post("/a", "body"))
        .send(Request::post("/page", "body"))
        .send(Request::new("DELETE", "/a"))
        .send(Request::new("PURGE", "/a"))
}

/// An intercepted error is no answer to stream, whatever it says of buffers.
fn intercepted_without_buffers() -> Scenario {
    let answer = |status| {
        Answer::new(status)
            .header("X-Accel-Buffering", "no")
            .header("Cache-Control", "max-age=100")
            .body("of the origin")
    };
    Scenario::cached(
        "intercepted-without-buffers",
        "proxy_intercept_errors on; error_page 404 500 /page;",
    )
    .server("location /page { return 200 \"page\"; }")
    .answer("/404", answer(404))
    .answer("/500", answer(500))
    .answer("/403", answer(403))
    .answer("/200", answer(200))
    .gets(&[
        "/404", "/404", "/500", "/500", "/403", "/403", "/200", "/200",
    ])
}

/// The file that an answer redirects to decides by itself if it is served in ranges.
fn redirected_ranges() -> Scenario {
    let to = |path: &str, ranges: &str| {
        Answer::new(200)
            .header("X-Accel-Redirect", path)
            .header("Accept-Ranges", ranges)
            .body("hidden")
    };
    Scenario::new("accel-redirect-ranges")
        .server(
            "location / { proxy_pass http://%%ORIGIN%%; }
             location /files/ { internal; }
             location /off/ { internal; max_ranges 0; alias %%DIR%%/html/files/; }
             location /word { return 200 word; }",
        )
        .file("html/files/a.txt", "a file of some bytes")
        .answer("/none", to("/files/a.txt", "none"))
        .answer("/bytes", to("/files/a.txt", "bytes"))
        .answer("/off", to("/off/a.txt", "bytes"))
        .answer("/word-none", to("/word", "none"))
        .answer("/word-bytes", to("/word", "bytes"))
        .gets(&["/none", "/bytes", "/off", "/word-none", "/word-bytes"])
        .get_with("/none", "Range", "bytes=2-5")
        .get_with("/bytes", "Range", "bytes=2-5")
        .get_with("/off", "Range", "bytes=2-5")
        .get_with("/word-bytes", "Range", "bytes=2-3")
}
