//! Keep-alive, pipelining and how request bodies are read.

use crate::scenario::Scenario;
use millpond_testkit::{Answer, Request};

/// The scenarios of this subject.
pub fn scenarios() -> Vec<Scenario> {
    vec![
        trace_of_nothing(),
        keep_alive(),
        keep_alive_limits(),
        keep_alive_versions(),
        keep_alive_after_errors(),
        keep_alive_of_each_location_on_the_way(),
        closed_by_who_is_asked(),
        pipelining(),
        expect_continue(),
        bodies_that_nobody_reads(),
        reset_of_options(),
        stub_status(),
    ]
}

fn keep_alive() -> Scenario {
    Scenario::new("keep-alive")
        .compare_connection()
        .server(
            "location / { return 200 x; }
             location /p { proxy_pass http://%%ORIGIN%%; }
             location /timeout { keepalive_timeout 60s 30s; return 200 x; }",
        )
        .answer("/*", Answer::new(200).body("origin"))
        .file("html/file", "file")
        .keep(vec![
            Request::get("/"),
            Request::get("/p"),
            Request::head("/p"),
            Request::get("/none-such"),
            Request::post("/p", "body"),
            Request::get("/timeout"),
            Request::get("/").header("Connection", "close"),
        ])
}

fn keep_alive_limits() -> Scenario {
    Scenario::new("keep-alive-limits")
        .compare_connection()
        .http("keepalive_requests 2;")
        .server(
            "location / { return 200 x; }
             location /never { keepalive_timeout 0; return 200 x; }
             location /msie { keepalive_disable msie6; return 200 x; }
             location /none { keepalive_disable none; return 200 x; }",
        )
        .keep(vec![
            Request::get("/"),
            Request::get("/"),
            Request::get("/"),
        ])
        .keep(vec![Request::get("/never")])
        .keep(vec![Request::post("/msie", "x").header(
            "User-Agent",
            "Mozilla/4.0 (compatible; MSIE 6.0; a)",
        )])
}

fn keep_alive_versions() -> Scenario {
    Scenario::new("keep-alive-versions")
        .compare_connection()
        .server("location / { return 200 x; } location /p { proxy_pass http://%%ORIGIN%%; }")
        .answer(
            "/*",
            Answer::new(200)
                .body("origin")
                .framing(millpond_testkit::Framing::Chunked),
        )
        .raw("GET / HTTP/1.0\r\nHost: a\r\n\r\n")
        .raw("GET /p HTTP/1.0\r\nHost: a\r\n\r\n")
        .raw("GET /p HTTP/1.0\r\nHost: a\r\nConnection: keep-alive\r\n\r\n")
        .raw("GET / HTTP/1.0\r\nHost: a\r\nConnection: keep-alive\r\n\r\nGET / HTTP/1.0\r\n\r\n")
        .raw("GET / HTTP/1.1\r\nHost: a\r\nConnection: Close\r\n\r\n")
        .raw("GET / HTTP/1.1\r\nHost: a\r\nConnection: x, close\r\n\r\n")
}

/// One location on a request's way that keeps no connection is enough.
fn keep_alive_of_each_location_on_the_way() -> Scenario {
    Scenario::new("keep-alive-of-each-location-on-the-way")
        .compare_connection()
        .server(
            "error_page 404 /page; error_page 403 @named;
             location /page { return 200 page; }
             location @named { return 200 named; }
             location /kept { return 404; }
             location /closed { keepalive_timeout 0; return 404; }
             location /named { keepalive_timeout 0; return 403; }
             location /one { keepalive_requests 1; return 404; }
             location /rewritten { keepalive_timeout 0; rewrite ^ /page last; }",
        )
        .keep(vec![Request::get("/kept"), Request::get("/closed")])
        .keep(vec![Request::get("/named")])
        .keep(vec![Request::get("/one")])
        .keep(vec![Request::get("/rewritten")])
}

/// A connection is closed by a subrequest that decides, too.
fn closed_by_who_is_asked() -> Scenario {
    Scenario::new("closed-by-who-is-asked")
        .http("log_format s '$uri $status $body_bytes_sent'; access_log %%DIR%%/s.log s;")
        .server(
            "error_page 500 444 /page; location /page { return 200 page; }
             location /closed { auth_request /444; root %%DIR%%/html; }
             location = /444 { return 444; }
             location /said { auth_request /up; root %%DIR%%/html; }
             location = /up { proxy_pass http://%%ORIGIN%%; }",
        )
        .answer("/up", Answer::new(444))
        .raw("GET /closed HTTP/1.1\r\nHost: a\r\n\r\n")
        .get("/said")
        .lines("s.log", 2)
}

fn keep_alive_after_errors() -> Scenario {
    Scenario::new("keep-alive-after-errors")
        .compare_connection()
        .server(
            "client_max_body_size 10;
             location /400 { return 400; } location /404 { return 404; }
                 location /405 { return 405; }
             location /500 { return 500; } location /503 { return 503; }
                 location /408 { return 408; }
             location /413 { proxy_pass http://%%ORIGIN%%; }
                 location /refused { proxy_pass http://127.0.0.1:1; }",
        )
        .keep(vec![
            Request::get("/404"),
            Request::get("/405"),
            Request::get("/503"),
        ])
        .keep(vec![Request::get("/500")])
        .keep(vec![Request::get("/400")])
        .keep(vec![Request::get("/408")])
        .keep(vec![Request::get("/refused"), Request::get("/404")])
        .keep(vec![Request::post("/413", "0123456789a")])
}

fn pipelining() -> Scenario {
    Scenario::new("pipelining")
        .server(
            "location / { return 200 $uri; }
             location /p { proxy_pass http://%%ORIGIN%%; }",
        )
        .computed("/*", |request| Answer::new(200).body(request.target.clone()))
        .raw(
            "GET /1 HTTP/1.1\r\nHost: a\r\n\r\nGET /p/2 HTTP/1.1\r\nHost: a\r\n\r\n\
             POST /p/3 HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc\
             POST /4 HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc\
             POST /p/5 HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n\
             1\r\nx\r\n0\r\n\r\n\r\n\
             GET /6 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\nGET /7 HTTP/1.1\r\nHost: a\r\n\r\n",
        )
}

fn expect_continue() -> Scenario {
    let request = |path: &str, expect: &str, body: &str| {
        format!(
            "POST {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\nExpect: {expect}\r\n\
             Content-Length: {}\r\n\r\n{body}",
            body.len()
        )
    };
    Scenario::new("expect-continue")
        .server(
            "client_max_body_size 10;
             location / { proxy_pass http://%%ORIGIN%%; }
             location /ret { return 200 x; }",
        )
        .answer("/*", Answer::new(200).body("ok"))
        .act(move |run| {
            for (name, path) in [("proxied", "/"), ("returned", "/ret")] {
                let mut connection = run.client().connect()?;
                let head = format!(
                    "POST {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\
                     Expect: 100-continue\r\nContent-Length: 3\r\n\r\n"
                );
                connection.send_raw(head.as_bytes())?;
                connection.send_raw(b"abc")?;
                let response = connection.read_response("POST")?;
                run.record(name, &response);
            }
            Ok(())
        })
        .raw(request("/", "100-Continue", "abc"))
        .raw(request("/", "100-continue", ""))
        .raw(request("/", "something", "abc"))
        .raw(request("/", "100-continue", "0123456789abc"))
        .raw("POST / HTTP/1.0\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 1\r\n\r\na")
}

fn bodies_that_nobody_reads() -> Scenario {
    Scenario::new("unread-bodies")
        .server("location / { return 200 $uri; } location /file { }")
        .file("html/file", "file")
        .keep(vec![
            Request::post("/a", "body"),
            Request::post("/b", "x".repeat(100_000)),
            Request::new("PUT", "/c").chunks(&["one", "two"]),
            Request::new("GET", "/d").body("get with body"),
            Request::get("/file").body("body"),
            Request::get("/e"),
        ])
}

fn reset_of_options() -> Scenario {
    Scenario::new("http09-and-versions")
        .server("location / { return 200 \"$server_protocol\"; }")
        .raw("GET / HTTP/1.0\r\n\r\n")
        .raw("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        .raw("HEAD / HTTP/1.0\r\n\r\n")
}

fn stub_status() -> Scenario {
    Scenario::new("stub-status")
        .server("location / { stub_status; } location /x { return 200 x; }")
        .keep(vec![
            Request::get("/x"),
            Request::get("/"),
            Request::head("/"),
        ])
}

/// TRACE is refused by the server that it is for, and its target before it.
fn trace_of_nothing() -> Scenario {
    Scenario::new("trace-of-nothing")
        .http(
            "server { listen 127.0.0.1:%%PORT%%; server_name other.test; error_page 405 =405 /no;
                      location /no { return 405 other; } }",
        )
        .raw("TRACE /a%00b HTTP/1.1\r\nHost: other.test\r\nConnection: close\r\n\r\n")
        .raw("TRACE /../a HTTP/1.0\r\n\r\n")
        .raw("TRACE /a HTTP/1.1\r\nHost: other.test\r\nConnection: close\r\n\r\n")
        .raw("TRACE /a HTTP/1.1\r\nConnection: close\r\n\r\n")
        .raw("TRACE /a HTTP/1.0\r\nHost: none.test\r\n\r\n")
}
