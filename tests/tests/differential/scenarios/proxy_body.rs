//! Bodies through the proxy, in both directions.

use crate::scenario::Scenario;
use millpond_testkit::{Answer, Framing, Request};

/// The scenarios of this subject.
pub fn scenarios() -> Vec<Scenario> {
    vec![
        request_bodies(),
        request_buffering_off(),
        method_and_body(),
        held_back_bodies(),
        response_framings(),
        response_buffering_off(),
        http_1_0_upstream(),
        broken_responses(),
        odd_upstream_heads(),
        large_responses(),
    ]
}

fn request_bodies() -> Scenario {
    Scenario::new("request-bodies")
        .server(
            "location / { proxy_pass http://%%ORIGIN%%; }
             location /small { client_body_buffer_size 1k; proxy_pass http://%%ORIGIN%%; }
             location /single { client_body_in_single_buffer on; proxy_pass http://%%ORIGIN%%; }
             location /var { proxy_pass http://%%ORIGIN%%;
                 proxy_set_header X-Body $request_body; }",
        )
        .answer("/*", Answer::new(200).body("ok"))
        .send(Request::post("/", "body"))
        .send(Request::post("/", ""))
        .send(Request::post("/", "x".repeat(100_000)))
        .send(Request::post("/small", "y".repeat(50_000)))
        .send(Request::new("PUT", "/").chunks(&["one", "two", "three"]))
        .send(Request::new("PUT", "/").chunks(&[]))
        .send(Request::new("GET", "/").body("get body"))
        .send(Request::new("DELETE", "/").body("x"))
        .send(Request::post("/single", "z".repeat(20_000)))
        .send(Request::post("/var", "in a variable"))
}

fn request_buffering_off() -> Scenario {
    Scenario::new("request-buffering-off")
        .server("location / { proxy_pass http://%%ORIGIN%%; proxy_request_buffering off; }")
        .answer("/*", Answer::new(200).body("ok"))
        .send(Request::post("/", "body"))
        .send(Request::post("/", "x".repeat(100_000)))
        .send(Request::new("PUT", "/").chunks(&["one", "two"]))
        .get("/")
}

/// A body that is not passed on.
fn held_back_bodies() -> Scenario {
    Scenario::new("held-back-bodies")
        .server(
            "location / { proxy_pass http://%%ORIGIN%%; proxy_pass_request_body off;
                 proxy_set_header Content-Length \"\"; }
             location /announced { proxy_pass http://%%ORIGIN%%; proxy_pass_request_body off;
                 proxy_read_timeout 3s; }",
        )
        .answer("/*", Answer::new(200).body("ok"))
        .send(Request::post("/", "body"))
        .send(Request::new("PUT", "/").chunks(&["one", "two"]))
        .send(Request::new("GET", "/announced"))
        .send(Request::post("/announced", ""))
        .send(Request::new("PUT", "/").body("three"))
        .send(Request::post("/announced", "body"))
}

fn method_and_body() -> Scenario {
    Scenario::new("proxy-method-and-set-body")
        .server(
            "location /method { proxy_pass http://%%ORIGIN%%; proxy_method PUT; }
             location /var { proxy_pass http://%%ORIGIN%%; proxy_method $arg_m; }
             location /body { proxy_pass http://%%ORIGIN%%;
                 proxy_set_body \"set $request_method\"; }
             location /empty { proxy_pass http://%%ORIGIN%%; proxy_set_body \"\"; }
             location /around { proxy_pass http://%%ORIGIN%%;
                 proxy_set_body \"<$request_body>\"; }
             location /around/later { proxy_pass http://%%ORIGIN%%;
                 proxy_request_buffering off; proxy_set_body \"<$request_body>\"; }
             location /head { proxy_pass http://%%ORIGIN%%; proxy_method HEAD; }",
        )
        .answer("/*", Answer::new(200).header("X-A", "1").body("ok"))
        .gets(&["/method", "/var?m=PATCH", "/body", "/empty"])
        .send(Request::post("/method", "body"))
        .send(Request::post("/body", "body"))
        .send(Request::post("/around", "body"))
        .send(Request::post("/around/later", "body"))
        .send(Request::new("PURGE", "/none"))
        .send(Request::new("FOO", "/method/foo"))
}

fn response_framings() -> Scenario {
    let answer = Answer::new(200).body("0123456789");
    Scenario::new("response-framings")
        .server("location / { proxy_pass http://%%ORIGIN%%; }")
        .answer("/length", answer.clone())
        .answer(
            "/chunked",
            answer.clone().framing(Framing::Chunked).trailer("X-T", "1"),
        )
        .answer("/close", answer.framing(Framing::UntilClose))
        .answer("/empty", Answer::new(200))
        .answer("/empty-chunked", Answer::new(200).framing(Framing::Chunked))
        .answer(
            "/empty-close",
            Answer::new(200).framing(Framing::UntilClose),
        )
        .gets(&[
            "/length",
            "/chunked",
            "/close",
            "/empty",
            "/empty-chunked",
            "/empty-close",
        ])
        .head("/length")
        .head("/chunked")
        .raw("GET /chunked HTTP/1.0\r\n\r\n")
        .raw("GET /close HTTP/1.0\r\n\r\n")
}

fn response_buffering_off() -> Scenario {
    let answer = Answer::new(200).offset_body(100_000, 1);
    Scenario::new("response-buffering-off")
        .server(
            "location / { proxy_pass http://%%ORIGIN%%; proxy_buffering off; }
             location /accel { proxy_pass http://%%ORIGIN%%; }",
        )
        .answer("/length", answer.clone())
        .answer("/chunked", answer.clone().framing(Framing::Chunked))
        .answer("/close", answer.clone().framing(Framing::UntilClose))
        .answer("/accel", answer.header("X-Accel-Buffering", "no"))
        .gets(&["/length", "/chunked", "/close", "/accel"])
}

fn http_1_0_upstream() -> Scenario {
    let answer = Answer::new(200).body("0123456789");
    Scenario::new("proxy-http-version-1-0")
        .compare_connection()
        .server("location / { proxy_pass http://%%ORIGIN%%; proxy_http_version 1.0; }")
        .answer("/length", answer.clone())
        .answer("/close", answer.framing(Framing::UntilClose))
        .gets(&["/length", "/close"])
        .send(Request::post("/length", "body"))
        .send(Request::new("POST", "/length").chunks(&["one", "two"]))
}

fn broken_responses() -> Scenario {
    let length = Answer::new(200).offset_body(20_000, 1);
    let chunked = length.clone().framing(Framing::Chunked);
    Scenario::new("broken-responses")
        .server("location / { proxy_pass http://%%ORIGIN%%; }")
        .answer("/short", length.clone().drop_after(100))
        .answer("/none", length.drop_after(0))
        .answer("/chunked", chunked.drop_after(9_000))
        .answer("/empty", Answer::raw(""))
        .answer("/garbage", Answer::raw("garbage\r\n\r\nmore"))
        .answer("/head", Answer::raw("HTTP/1.1 200 OK\r\nX-A: 1\r\n"))
        .answer(
            "/colon",
            Answer::raw("HTTP/1.1 200 OK\r\nno colon\r\n\r\nbody"),
        )
        .answer(
            "/big",
            Answer::raw(format!(
                "HTTP/1.1 200 OK\r\nX-A: {}\r\n\r\n",
                "a".repeat(9_000)
            )),
        )
        .answer(
            "/long",
            Answer::raw("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nabcdef"),
        )
        .answer(
            "/chunk",
            Answer::raw("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"),
        )
        .gets(&[
            "/short", "/none", "/chunked", "/empty", "/garbage", "/head", "/colon", "/big", "/long",
        ])
        // nginx has sent nothing yet when it finds the fault, and closes.
        .keep(vec![Request::get("/chunk")])
}

fn odd_upstream_heads() -> Scenario {
    let mut scenario =
        Scenario::new("odd-upstream-heads").server("location / { proxy_pass http://%%ORIGIN%%; }");
    let heads = [
        "HTTP/1.0 200 OK\r\nContent-Length: 2",
        "HTTP/1.1 200\r\nContent-Length: 2",
        "HTTP/1.1 200 \r\nContent-Length: 2",
        "HTTP/1.1 299 Odd\r\nContent-Length: 2",
        "HTTP/1.1 999 Odd\r\nContent-Length: 2",
        "HTTP/1.1 200 OK\r\ncontent-length: 2\r\nX-A:1\r\nX-B:   2   \r\nX-C:",
        "HTTP/1.1 200 OK\nContent-Length: 2\nX-A: 1",
        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: identity",
        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nX-Under_Score: 1\r\nX.Dot: 1",
        "HTTP/1.1 404 Gone Fishing\r\nContent-Length: 2",
        "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2",
        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Type: text/html;
            charset=a\r\nContent-Encoding: x",
    ];
    for (index, head) in heads.iter().enumerate() {
        let path = format!("/{index}");
        scenario = scenario
            .answer(&path, Answer::raw(format!("{head}\r\n\r\nab")))
            .get(&path);
    }
    scenario
}

fn large_responses() -> Scenario {
    let large = Answer::new(200).offset_body(3_000_000, 1);
    Scenario::new("large-responses")
        .server(
            "location / { proxy_pass http://%%ORIGIN%%; }
             location /small { proxy_pass http://%%ORIGIN%%; proxy_buffers 4 4k;
                 proxy_buffer_size 4k;
                               proxy_busy_buffers_size 8k; proxy_max_temp_file_size 0; }",
        )
        .answer("/length", large.clone())
        .answer("/chunked", large.clone().framing(Framing::Chunked))
        .answer("/small", large)
        .gets(&["/length", "/chunked", "/small"])
}
