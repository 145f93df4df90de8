//! Access logs.

use crate::scenario::Scenario;
use millpond_testkit::{Answer, Request};

/// The scenarios of this subject.
pub fn scenarios() -> Vec<Scenario> {
    vec![
        log_formats(),
        log_conditions(),
        log_places(),
        log_of_errors(),
        log_of_refused_lines(),
        log_of_queries(),
        log_of_pages(),
        log_of_upstreams(),
        log_of_lengths_and_rates(),
        log_of_hosts_passed_to(),
    ]
}

fn log_formats() -> Scenario {
    let odd = "a\"b\\c\u{e9}\td";
    Scenario::new("log-formats")
        .http(
            "log_format plain '$request_method $uri $status [$http_x_odd] [$http_none] [$body_bytes_sent]';
             log_format json escape=json '{\"x\":\"$http_x_odd\",\"n\":\"$http_none\",\"r\":\"$request\"}';
             log_format none escape=none '$http_x_odd|$http_none|$request';
             log_format default escape=default '$http_x_odd' ' joined';
             access_log %%DIR%%/plain.log plain; access_log %%DIR%%/json.log json;
             access_log %%DIR%%/none.log none; access_log %%DIR%%/default.log default;",
        )
        .server("location / { return 200 text; } location /204 { return 204; }")
        .send(Request::get("/a?b").header("X-Odd", odd))
        .get("/204")
        .head("/a")
        .send(Request::post("/a%20b", "body"))
        .lines("plain.log", 4)
        .lines("json.log", 4)
        .lines("none.log", 4)
        .lines("default.log", 4)
}

fn log_conditions() -> Scenario {
    Scenario::new("log-conditions")
        .http(
            "log_format u '$uri';
             map $status $good { ~^2 1; default 0; }
             access_log %%DIR%%/all.log u;",
        )
        .server(
            "location /if { access_log %%DIR%%/if.log u if=$good; return 200 x; }
             location /ifnot { access_log %%DIR%%/if.log u if=$good; return 404; }
             location /arg { access_log %%DIR%%/arg.log u if=$arg_log; return 200 x; }
             location /off { access_log off; return 200 x; }
             location / { return 200 x; }",
        )
        .gets(&[
            "/if",
            "/ifnot",
            "/arg",
            "/arg?log=1",
            "/arg?log=0",
            "/off",
            "/end",
        ])
        .lines("all.log", 1)
        .lines("if.log", 1)
        .lines("arg.log", 1)
}

fn log_places() -> Scenario {
    Scenario::new("log-places")
        .http("log_format u '$uri $server_name'; access_log %%DIR%%/http.log u;")
        .server(
            "access_log %%DIR%%/server.log u; access_log %%DIR%%/second.log u;
             location / { return 200 x; }
             location /in { access_log %%DIR%%/location.log u; return 200 x; }
             location /var { access_log %%DIR%%/var-$arg_n.log u; return 200 x; }
             location /rw { rewrite ^ /in last; }
             location /buf { access_log %%DIR%%/buffered.log u buffer=4k flush=1s; return 200 x; }",
        )
        // A path with variables is written to only if the root exists.
        .file("html/x", "x")
        .gets(&["/", "/in", "/var?n=a", "/rw", "/buf"])
        .lines("server.log", 1)
        .lines("second.log", 1)
        .lines("location.log", 2)
        .lines("var-a.log", 1)
        .lines("buffered.log", 1)
        .act(|run| {
            let text = run.proxy.read_file("http.log");
            run.note("http.log", &text);
            Ok(())
        })
}

fn log_of_errors() -> Scenario {
    Scenario::new("log-of-errors")
        .http(
            "log_format e '$request|$status|$uri|$host|$server_name|$http_x|$request_method';
             access_log %%DIR%%/e.log e;",
        )
        .server("location / { return 200 x; } location /444 { return 444; }")
        .raw("GARBAGE\r\n\r\n")
        .raw("GET / HTTP/1.1\r\n\r\n")
        .raw("GET / HTTP/3.0\r\nHost: a\r\n\r\n")
        .raw("GET /%zz HTTP/1.1\r\nHost: a\r\n\r\n")
        .raw("GET /a b HTTP/1.1\r\nHost: a\r\n\r\n")
        .raw("GET / HTTP/1.1\r\nHost: a\r\nBad Header: x\r\nConnection: close\r\n\r\n")
        .raw("GET /444 HTTP/1.1\r\nHost: a\r\n\r\n")
        .get("/end")
        .lines("e.log", 8)
}

/// Nothing behind a request line that is refused has been read.
fn log_of_refused_lines() -> Scenario {
    let rest = "Host: a\r\nX: b\r\nAuthorization: Basic dTpw\r\nContent-Length: 3\r\n\r\nabc";
    let with = |line: &str| format!("{line}\r\n{rest}");
    Scenario::new("log-of-refused-lines")
        .http(
            "log_format r '$request|$status|$host|$http_host|$http_x|$remote_user|$request_length|'
                          '$content_length|$request_uri|$uri';
             access_log %%DIR%%/r.log r;",
        )
        .server("location / { return 200 x; }")
        .raw(with("GET g HTTP/1.1"))
        .raw(with("GET /%2e%2e/x HTTP/1.1"))
        .raw(with("GET /../x HTTP/1.1"))
        .raw(with("get / HTTP/1.1"))
        .raw(with("GET / HTTP/2.5"))
        .raw(with("GET http://b/%zz HTTP/1.1"))
        .raw(with("OPTIONS * HTTP/1.1"))
        .raw(with("GET / HTTP/1.1 x"))
        .raw(with("TRACE / HTTP/1.1"))
        .raw("GET / HTTP/1.1\r\nHost: a\r\nX: b\r\nContent-Length: x\r\nY: z\r\n\r\n")
        .lines("r.log", 10)
}

/// An empty query is logged as one that is there, if its question mark is.
fn log_of_queries() -> Scenario {
    Scenario::new("log-of-queries")
        .http("log_format q '$uri [$args] [$query_string] [$is_args]'; access_log %%DIR%%/q.log q;")
        .file("html/index.html", "index")
        .file("html/there/index.html", "index")
        .server(
            "location / { try_files $uri $uri/ /index.php?$args; }
             location = /index.php { return 200 php; }
             location /plain { return 200 x; }
             location /fall/ { try_files $uri /plain; }
             location /drop { rewrite ^ /plain? last; }
             location /rewrite { rewrite ^ /plain last; }
             location /new { rewrite ^ /plain?$arg_x last; }
             location /set { set $args \"\"; return 200 x; }
             location /page { error_page 404 /plain?; return 404; }
             location /named { try_files /none @named; }
             location @named { return 200 x; }",
        )
        .gets(&[
            "/plain",
            "/plain?",
            "/plain?a",
            "/pretty",
            "/pretty?",
            "/pretty?a",
            "/there/",
            "/there/?",
            "/fall/x",
            "/fall/x?a",
            "/drop",
            "/drop?",
            "/drop?a",
            "/rewrite",
            "/rewrite?",
            "/new",
            "/new?x=1",
            "/set",
            "/set?a",
            "/page",
            "/page?a",
            "/named",
            "/named?",
            "/named?a",
            "/plain#a",
        ])
        .lines("q.log", 25)
}

/// The status of an error's page is that of the error, also where the page was sent in part.
fn log_of_pages() -> Scenario {
    Scenario::new("log-of-pages")
        .http("log_format s '$uri $status'; access_log %%DIR%%/s.log s;")
        .file("html/page.html", "a page")
        .server(
            "location /found { error_page 404 =200 /page.html; return 404; }
             location /own { error_page 404 = /page.html; return 404; }
             location /kept { error_page 404 /page.html; return 404; }",
        )
        .gets(&["/found", "/own", "/kept"])
        .get_with("/found", "If-None-Match", "*")
        .get_with("/found", "Range", "bytes=0-1")
        .get_with("/own", "Range", "bytes=0-1")
        .get_with("/own", "If-None-Match", "*")
        .get_with("/kept", "Range", "bytes=0-1")
        .lines("s.log", 8)
}

fn log_of_upstreams() -> Scenario {
    Scenario::new("log-of-upstreams")
        .http(
            "log_format up '$uri|$status|$upstream_status|$upstream_addr|$upstream_cache_status|$upstream_response_length|$upstream_http_x_a';
             access_log %%DIR%%/up.log up;
             upstream two { server 127.0.0.1:1; server %%ORIGIN%%; }",
        )
        .server(
            "location / { proxy_pass http://%%ORIGIN%%; }
             location /refused { proxy_pass http://127.0.0.1:1; }
             location /two { proxy_pass http://two; }
             location /none { return 200 x; }",
        )
        .answer("/*", Answer::new(200).header("X-A", "a").body("12345"))
        .gets(&["/a", "/refused", "/two", "/none"])
        .head("/a")
        .lines("up.log", 5)
}

fn log_of_lengths_and_rates() -> Scenario {
    Scenario::new("log-lengths")
        .http("log_format l '$uri $request_length $limit_rate'; access_log %%DIR%%/l.log l;")
        .server(
            "limit_rate 1m;
             location /pass { proxy_pass http://%%ORIGIN%%; }
             location /stream { proxy_pass http://%%ORIGIN%%; proxy_request_buffering off; }
             location /set { set $limit_rate 2m; return 200 $limit_rate; }
             location /return { return 200 \"$limit_rate\"; }",
        )
        .answer("/*", Answer::new(200).body("origin"))
        .send(Request::post("/pass", "twelve bytes"))
        .send(Request::post("/stream", "twelve bytes"))
        .send(Request::new("POST", "/pass").chunks(&["twelve", " bytes"]))
        .send(Request::new("POST", "/stream").chunks(&["twelve", " bytes"]))
        .send(Request::post("/return", "thrown away"))
        .gets(&["/set", "/none"])
        .lines("l.log", 7)
}

fn log_of_hosts_passed_to() -> Scenario {
    Scenario::new("log-hosts")
        .http(
            "log_format h '$request_uri $proxy_host $proxy_port'; access_log %%DIR%%/h.log h;
             upstream origin { server %%ORIGIN%%; }",
        )
        .server(
            "location /origin/ { proxy_pass http://origin/; }
             location /named/ { error_page 404 @named; }
             location /page/ { proxy_pass http://origin; proxy_intercept_errors on;
                               error_page 404 /page; }
             location /unknown/ { proxy_pass http://unknown$uri; }
             location /told/ { proxy_pass http://$arg_to; proxy_set_header Host $proxy_host;
                               proxy_set_header X-Port $proxy_port; }
             location @named { proxy_pass http://origin; }",
        )
        .file("html/file", "file")
        .file("html/page", "page")
        .answer(
            "/inside",
            Answer::new(200).header("X-Accel-Redirect", "/file"),
        )
        .answer(
            "/named-too",
            Answer::new(200).header("X-Accel-Redirect", "@named"),
        )
        .gets(&[
            "/origin/inside",
            "/origin/named-too",
            "/origin/none",
            "/named/x",
            "/page/x",
            "/unknown/x",
            "/told/x?to=origin",
            "/file",
        ])
        .lines("h.log", 8)
}
