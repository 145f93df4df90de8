//! Limits and malformed requests: 400, 413, 414, 494, 505.

use crate::scenario::{Scenario, case_name};
use millpond_testkit::{Answer, Request};

/// The scenarios of this subject.
pub fn scenarios() -> Vec<Scenario> {
    vec![
        body_size(),
        line_and_header_sizes(),
        malformed_request_lines(),
        malformed_headers(),
        framing_conflicts(),
        hosts(),
        header_names(),
        limit_req(),
        access_rules(),
    ]
}

fn body_size() -> Scenario {
    Scenario::new("client-max-body-size")
        .server(
            "client_max_body_size 10;
             location / { proxy_pass http://%%ORIGIN%%; }
             location /more { client_max_body_size 1k; proxy_pass http://%%ORIGIN%%; }
             location /any { client_max_body_size 0; proxy_pass http://%%ORIGIN%%; }
             location /ret { return 200 x; }
             location /page { error_page 413 /too.html; proxy_pass http://%%ORIGIN%%; }",
        )
        .file("html/too.html", "too large")
        .answer("/*", Answer::new(200).body("ok"))
        .send(Request::post("/", "0123456789"))
        .send(Request::post("/", "0123456789a"))
        .send(Request::post("/more", "0123456789a"))
        .send(Request::post("/any", "a".repeat(5000)))
        .send(Request::post("/ret", "0123456789a"))
        .send(Request::post("/page", "0123456789a"))
        .send(Request::new("POST", "/").chunks(&["0123456789"]))
        .send(Request::new("POST", "/").chunks(&["01234", "56789a"]))
}

fn line_and_header_sizes() -> Scenario {
    let long = |len: usize| "a".repeat(len);
    let header = |count: usize, len: usize| -> String {
        (0..count)
            .map(|n| format!("X-{n}: {}\r\n", "b".repeat(len)))
            .collect()
    };
    let end = "Connection: close\r\n\r\n";
    Scenario::new("header-buffer-limits")
        .http("client_header_buffer_size 128; large_client_header_buffers 2 512;")
        .server("location / { return 200 \"$http_x_0\"; }")
        .raw(format!("GET /{} HTTP/1.1\r\nHost: a\r\n{end}", long(100)))
        .raw(format!("GET /{} HTTP/1.1\r\nHost: a\r\n{end}", long(300)))
        .raw(format!("GET /{} HTTP/1.1\r\nHost: a\r\n{end}", long(600)))
        .raw(format!(
            "GET / HTTP/1.1\r\nHost: a\r\n{}{end}",
            header(1, 300)
        ))
        .raw(format!(
            "GET / HTTP/1.1\r\nHost: a\r\n{}{end}",
            header(1, 600)
        ))
        .raw(format!(
            "GET / HTTP/1.1\r\nHost: a\r\n{}{end}",
            header(2, 300)
        ))
        .raw(format!(
            "GET / HTTP/1.1\r\nHost: a\r\n{}{end}",
            header(8, 300)
        ))
}

fn malformed_request_lines() -> Scenario {
    let mut scenario = Scenario::new("malformed-request-lines")
        .server("location / { return 200 \"$request_method $uri\"; }");
    let lines = [
        "GET / HTTP/1.1",
        "GET  / HTTP/1.1",
        "GET /  HTTP/1.1",
        "GET / HTTP/1.1 ",
        "GET /",
        "GET",
        "GET / HTTP/1.2",
        "GET / HTTP/2.0",
        "GET / HTTP/0.9",
        "GET / HTTP/1",
        "GET / http/1.1",
        "GET / FTP/1.1",
        "GET / HTTP/1.1x",
        "GET / HTTP/11.1",
        "get / HTTP/1.1",
        "G@T / HTTP/1.1",
        "GET a HTTP/1.1",
        "GET * HTTP/1.1",
        "OPTIONS * HTTP/1.1",
        "GET /a\u{1}b HTTP/1.1",
        "GET http://a.test/x HTTP/1.1",
        "GET http://a.test HTTP/1.1",
        "GET http://a.test?x HTTP/1.1",
        "GET https://a.test:99/x HTTP/1.1",
        "GET ftp://a.test/x HTTP/1.1",
        "GET http:///x HTTP/1.1",
        "GET /a%2 HTTP/1.1",
        "GET /%00 HTTP/1.1",
        "GET /a\\b HTTP/1.1",
        "GET /\u{e9} HTTP/1.1",
        " GET / HTTP/1.1",
        "\r\n\r\nGET / HTTP/1.1",
        "-GET / HTTP/1.1",
        "M-SEARCH / HTTP/1.1",
    ];
    for (index, line) in lines.iter().enumerate() {
        scenario = scenario
            .case(&case_name(index, line))
            .raw(format!("{line}\r\nHost: h\r\nConnection: close\r\n\r\n"));
    }
    scenario
}

fn malformed_headers() -> Scenario {
    let mut scenario =
        Scenario::new("malformed-headers").server("location / { return 200 \"$http_x|$http_y\"; }");
    let headers = [
        "X: a",
        "X:a",
        "X:",
        "X :a",
        "X\t:a",
        ": a",
        "X",
        "X: a\r\n\tfolded",
        "X: a\r\n folded",
        "X: \u{0}",
        "X: a\u{1}",
        "X: a\rb",
        "\u{e9}: a",
        "X: \u{e9}",
        "X: a\r\nx: b",
        "X@: a",
        "(X): a",
        "Y_Z: a",
        "X: a\nY: b",
    ];
    for (index, header) in headers.iter().enumerate() {
        scenario = scenario.case(&case_name(index, header)).raw(format!(
            "GET / HTTP/1.1\r\nHost: h\r\n{header}\r\nConnection: close\r\n\r\n"
        ));
    }
    scenario
        .case("line-feeds")
        .raw("GET / HTTP/1.1\nHost: h\nConnection: close\n\n")
        .raw("GET / HTTP/1.1\r\nHost: h\nX: a\r\nConnection: close\n\r\n")
}

fn framing_conflicts() -> Scenario {
    let mut scenario = Scenario::new("framing-conflicts")
        .server("location / { proxy_pass http://%%ORIGIN%%; client_body_timeout 1s; }")
        .answer("/*", Answer::new(200).body("ok"));
    let cases = [
        ("Content-Length: 3", "abc"),
        ("Content-Length: 3\r\nContent-Length: 3", "abc"),
        ("Content-Length: 3\r\nContent-Length: 4", "abcd"),
        ("Content-Length: 3, 3", "abc"),
        ("Content-Length: +3", "abc"),
        ("Content-Length: -3", "abc"),
        ("Content-Length: 0x3", "abc"),
        ("Content-Length: ", "abc"),
        ("Content-Length: 3 ", "abc"),
        ("Content-Length: 99999999999999999999", "abc"),
        ("Transfer-Encoding: chunked", "3\r\nabc\r\n0\r\n\r\n"),
        ("Transfer-Encoding: Chunked", "3\r\nabc\r\n0\r\n\r\n"),
        ("Transfer-Encoding: identity", "abc"),
        ("Transfer-Encoding: gzip, chunked", "3\r\nabc\r\n0\r\n\r\n"),
        (
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
            "0\r\n\r\n",
        ),
        (
            "Transfer-Encoding: chunked\r\nContent-Length: 3",
            "0\r\n\r\n",
        ),
        (
            "Transfer-Encoding: chunked",
            "3;ext=1\r\nabc\r\n0\r\nX-T: 1\r\n\r\n",
        ),
        ("Transfer-Encoding: chunked", "03\r\nabc\r\n00\r\n\r\n"),
        ("Transfer-Encoding: chunked", "x\r\nabc\r\n0\r\n\r\n"),
        ("Transfer-Encoding: chunked", "-3\r\nabc\r\n0\r\n\r\n"),
        ("Transfer-Encoding: chunked", "3\r\nabcd\r\n0\r\n\r\n"),
        (
            "Transfer-Encoding: chunked",
            "fffffffffffffffff\r\nabc\r\n0\r\n\r\n",
        ),
        ("Transfer-Encoding: chunked", "3\nabc\n0\n\n"),
    ];
    for (index, (headers, body)) in cases.iter().enumerate() {
        scenario = scenario.case(&case_name(index, headers)).raw(format!(
            "POST / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n{headers}\r\n\r\n{body}"
        ));
    }
    scenario
        .case("http-1-0")
        .raw("POST / HTTP/1.0\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n")
}

fn hosts() -> Scenario {
    let mut scenario = Scenario::new("host-values").server("location / { return 200 $host; }");
    let hosts = [
        "a.test",
        "A.Test",
        "a.test:80",
        "a.test.",
        "a..test",
        "a/b",
        "a b",
        "[::1]",
        "[::1]:80",
        "[::1",
        "",
        ":80",
        "a_b",
        "a:b",
        "1.2.3.4",
        "a\u{e9}",
        "a@b",
    ];
    for (index, host) in hosts.iter().enumerate() {
        scenario = scenario.case(&case_name(index, host)).raw(format!(
            "GET / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"
        ));
    }
    scenario
        .case("two")
        .raw("GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\nConnection: close\r\n\r\n")
}

fn header_names() -> Scenario {
    let request = "GET / HTTP/1.1\r\nHost: HOST\r\nX_Y: a\r\nX.Z: b\r\nConnection: close\r\n\r\n";
    let server = |name: &str, directives: &str| {
        format!(
            "server {{ listen 127.0.0.1:%%PORT%%; server_name {name}; {directives}
                       location / {{ proxy_pass http://%%ORIGIN%%; }} }}\n"
        )
    };
    Scenario::new("header-names")
        .http(&server("plain.test", ""))
        .http(&server("under.test", "underscores_in_headers on;"))
        .http(&server("invalid.test", "ignore_invalid_headers off;"))
        .answer("/*", Answer::new(200).body("ok"))
        // Both directives are those of the default server of the address.
        .raw(request.replace("HOST", "plain.test"))
        .raw(request.replace("HOST", "under.test"))
        .raw(request.replace("HOST", "invalid.test"))
}

fn limit_req() -> Scenario {
    Scenario::new("limit-req")
        .http("limit_req_zone $arg_k zone=r:1m rate=1r/m;")
        .server(
            "location / { limit_req zone=r; add_header X-Limit $limit_req_status always; }
             location /code { limit_req zone=r burst=1 nodelay; limit_req_status 429;
                              add_header X-Limit $limit_req_status always; }",
        )
        .file("html/a", "a")
        .file("html/code", "code")
        .gets(&[
            "/a?k=1",
            "/a?k=1",
            "/a?k=2",
            "/a",
            "/a",
            "/code?k=3",
            "/code?k=3",
            "/code?k=3",
        ])
}

fn access_rules() -> Scenario {
    Scenario::new("access-rules")
        .server(
            "location /deny { deny all; }
             location /allow { allow 127.0.0.0/8; deny all; }
             location /other { deny 127.0.0.1; allow all; }
             location /six { allow ::1; deny all; }
             location /auth { auth_basic \"closed site\"; auth_basic_user_file %%DIR%%/users; }
             location /any { satisfy any; deny all; auth_basic any;
                 auth_basic_user_file %%DIR%%/users; }
             location /off { auth_basic off; }",
        )
        .file(
            "users",
            "user:{PLAIN}pass\n# comment\nsha:{SHA}nU4eI71bcnBGqeO0t9tXvY1u5oQ=\n",
        )
        .file("html/deny", "x")
        .file("html/allow", "x")
        .file("html/other", "x")
        .file("html/six", "x")
        .file("html/auth", "x")
        .file("html/any", "x")
        .file("html/off", "x")
        .gets(&["/deny", "/allow", "/other", "/six", "/auth", "/any", "/off"])
        .get_with("/auth", "Authorization", "Basic dXNlcjpwYXNz")
        .get_with("/auth", "Authorization", "Basic dXNlcjp3cm9uZw==")
        .get_with("/auth", "Authorization", "Basic c2hhOnBhc3M=")
        .get_with("/auth", "Authorization", "Bearer x")
        .get_with("/any", "Authorization", "Basic dXNlcjpwYXNz")
}
