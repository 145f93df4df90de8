//! Filters that change a body on its way: gzip, gunzip, charset, sub_filter.

use crate::scenario::Scenario;
use flate2::{Compression, write::GzEncoder};
use millpond_testkit::{Answer, Framing, Request};
use std::io::Write;

/// The scenarios of this subject.
pub fn scenarios() -> Vec<Scenario> {
    vec![
        gzip_of_files(),
        gzip_of_proxied(),
        gzip_conditions(),
        gzip_of_cached(),
        gzip_static(),
        gunzip(),
        charset(),
        charset_of_proxied(),
        charset_with_others(),
        sub_filter(),
    ]
}

fn zipped(text: &str) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(text.as_bytes()).unwrap();
    encoder.finish().unwrap()
}

fn gzip_of_files() -> Scenario {
    let text = "some text that repeats ".repeat(50);
    Scenario::new("gzip-files")
        .http("types { text/html html; text/plain txt; image/png png; }")
        .server("gzip on; gzip_types text/plain; location /all { gzip_types *; }")
        .server("location /vary { gzip_vary on; } location /off { gzip off; }")
        .file("html/a.html", &text)
        .file("html/a.txt", &text)
        .file("html/a.png", &text)
        .file("html/all.png", &text)
        .file("html/vary.txt", &text)
        .file("html/off.html", &text)
        .file("html/small.html", "small")
        .send(Request::get("/a.html").header("Accept-Encoding", "gzip"))
        .send(Request::get("/a.txt").header("Accept-Encoding", "gzip"))
        .send(Request::get("/a.png").header("Accept-Encoding", "gzip"))
        .send(Request::get("/all.png").header("Accept-Encoding", "gzip"))
        .send(Request::get("/vary.txt").header("Accept-Encoding", "gzip"))
        .get("/vary.txt")
        .send(Request::get("/off.html").header("Accept-Encoding", "gzip"))
        .send(Request::get("/small.html").header("Accept-Encoding", "gzip"))
        .send(Request::head("/a.html").header("Accept-Encoding", "gzip"))
        .send(
            Request::get("/a.html")
                .header("Accept-Encoding", "gzip")
                .header("Range", "bytes=0-9"),
        )
}

fn gzip_of_proxied() -> Scenario {
    let text = "some text that repeats ".repeat(50);
    let answer = Answer::new(200)
        .header("Content-Type", "text/html")
        .body(&text)
        .etag("\"e\"");
    Scenario::new("gzip-proxied-answers")
        .server(
            "gzip on; gzip_min_length 100;
             location / { proxy_pass http://%%ORIGIN%%; }
             location /buf { proxy_pass http://%%ORIGIN%%; proxy_buffering off; }",
        )
        .answer("/a", answer.clone())
        .answer("/chunked", answer.clone().framing(Framing::Chunked))
        .answer("/buf", answer.clone())
        .answer(
            "/weak",
            Answer::new(200)
                .header("Content-Type", "text/html")
                .body(&text)
                .etag("W/\"e\""),
        )
        .answer("/coded", answer.header("Content-Encoding", "x-own"))
        .answer(
            "/404",
            Answer::new(404)
                .header("Content-Type", "text/html")
                .body(&text),
        )
        .answer(
            "/500",
            Answer::new(500)
                .header("Content-Type", "text/html")
                .body(&text),
        )
        .steps_with_gzip(&["/a", "/chunked", "/buf", "/weak", "/coded", "/404", "/500"])
}

fn gzip_conditions() -> Scenario {
    let text = "some text that repeats ".repeat(50);
    let mut scenario = Scenario::new("gzip-conditions")
        .http("types { text/html html; }")
        .server(
            "gzip on; gzip_disable \"MSIE [4-6]\\.\";
             location /any { gzip_proxied any; }
                 location /none { gzip_proxied expired no-cache auth; }
             location /old { gzip_http_version 1.0; }",
        )
        .file("html/a.html", &text)
        .file("html/any.html", &text)
        .file("html/none.html", &text)
        .file("html/old.html", &text);
    for value in [
        "gzip",
        "GZIP",
        "gzip;q=0",
        "gzip;q=0.0",
        "gzip;q=0.5",
        "gzip;q=1.0",
        "deflate, gzip",
        "*",
        "identity",
        "xgzip",
        "gzip;q=abc",
        "deflate;q=1, gzip ; q=0.1",
        "",
        "gzip, deflate, br",
    ] {
        scenario = scenario.get_with("/a.html", "Accept-Encoding", value);
    }
    let gzip = |path: &str| Request::get(path).header("Accept-Encoding", "gzip");
    scenario
        .send(gzip("/a.html").header("Via", "1.1 x"))
        .send(gzip("/any.html").header("Via", "1.1 x"))
        .send(gzip("/none.html").header("Via", "1.1 x"))
        .send(
            gzip("/none.html")
                .header("Via", "1.1 x")
                .header("Authorization", "x"),
        )
        .send(gzip("/a.html").header("User-Agent", "Mozilla/4.0 (MSIE 6.0; x)"))
        .raw("GET /a.html HTTP/1.0\r\nAccept-Encoding: gzip\r\n\r\n")
        .raw("GET /old.html HTTP/1.0\r\nAccept-Encoding: gzip\r\n\r\n")
}

fn gzip_of_cached() -> Scenario {
    let text = "some text that repeats ".repeat(50);
    let answer = Answer::new(200)
        .header("Content-Type", "text/html")
        .header("Cache-Control", "max-age=60")
        .etag("\"e\"");
    Scenario::cached("gzip-cached", "")
        .server("gzip on; gzip_vary on;")
        .answer("/a", answer.clone().body(&text))
        .answer(
            "/coded",
            answer
                .header("Content-Encoding", "gzip")
                .body(zipped(&text)),
        )
        .steps_with_gzip(&["/a", "/a", "/coded", "/coded"])
        .gets(&["/a", "/coded"])
        .send(
            Request::get("/a")
                .header("Accept-Encoding", "gzip")
                .header("Range", "bytes=0-9"),
        )
        .send(
            Request::get("/a")
                .header("If-None-Match", "W/\"e\"")
                .header("Accept-Encoding", "gzip"),
        )
}

fn gzip_static() -> Scenario {
    Scenario::new("gzip-static")
        .http("types { text/html html; }")
        .server(
            "location / { gzip_static on; gzip_vary on; } location /always { gzip_static always; }
             location /both/ { gzip_static on; gzip on; gzip_vary on; }
             location /silent/ { gzip_static on; gzip on; }",
        )
        .steps_with_gzip(&["/none", "/both/none", "/silent/none"])
        .gets(&["/none", "/both/none", "/silent/none"])
        .file("html/a.html", "plain")
        .file("html/a.html.gz", zipped("zipped"))
        .file("html/only.html.gz", zipped("only"))
        .file("html/always.html.gz", zipped("always"))
        .steps_with_gzip(&["/a.html", "/only.html", "/always.html"])
        .gets(&["/a.html", "/only.html", "/always.html"])
        // The file's length depends on the library that made it, not on the server.
        .ignore("etag")
}

fn gunzip() -> Scenario {
    let answer = Answer::new(200)
        .header("Content-Type", "text/html")
        .header("Content-Encoding", "gzip")
        .etag("\"e\"");
    let text = "unzipped ".repeat(100);
    Scenario::new("gunzip")
        .server("gunzip on; location / { proxy_pass http://%%ORIGIN%%; }")
        .answer("/a", answer.clone().body(zipped(&text)))
        .answer("/empty", answer.clone().body(zipped("")))
        .answer("/broken", answer.body("not gzip at all"))
        .gets(&["/a", "/empty"])
        .head("/a")
        .steps_with_gzip(&["/a"])
}

/// Other filters know a type by its name, whatever character set `charset` has written behind it.
fn charset_with_others() -> Scenario {
    const SOURCES: [&str; 6] = ["a.html", "a.txt", "a.css", "ret", "none", "proxied.html"];
    let filters = [
        ("gzip", "gzip on; gzip_types text/plain text/css;"),
        ("ssi", "ssi on; ssi_types text/plain;"),
        ("sub", "sub_filter text words; sub_filter_types text/plain;"),
        (
            "added",
            "add_after_body /after.txt; addition_types text/plain;",
        ),
        (
            "all",
            "ssi on; gzip on; gzip_types text/plain; sub_filter text words;",
        ),
    ];
    let text = "<!--#echo var=\"request_uri\" --> some text that repeats ".repeat(50);
    let mut conf = "charset utf-8; ssi_value_length 64;".to_owned();
    let mut scenario = Scenario::new("charset-with-others")
        .http("types { text/html html; text/plain txt; text/css css; }")
        .file("html/after.txt", "after")
        .answer(
            "/*",
            Answer::new(200)
                .header("Content-Type", "text/html")
                .body(&text),
        );
    for (name, lines) in filters {
        conf.push_str(&format!(
            "location /{name}/ {{ {lines} root html; try_files /$arg_f =404; }}
             location /{name}/ret {{ {lines} default_type text/html; return 200 '{text}'; }}
             location /{name}/none {{ {lines} }}
             location /{name}/proxied.html {{ {lines} proxy_pass http://%%ORIGIN%%; }}"
        ));
        for source in SOURCES {
            let path = format!("/{name}/{source}?f={source}");
            scenario = scenario
                .get(&path)
                .get_with(&path, "Accept-Encoding", "gzip");
        }
    }
    for name in ["a.html", "a.txt", "a.css"] {
        scenario = scenario.file(&*format!("html/{name}").leak(), &text);
    }
    scenario.server(&conf)
}

fn charset() -> Scenario {
    Scenario::new("charset")
        .http("types { text/html html; text/css css; image/png png; text/plain txt; }")
        .server(
            "charset utf-8;
             location / { } location /off { charset off; } location /own { charset koi8-r; }
             location /types { charset_types text/css; } location /var { charset $arg_c; }
             location /ret { return 200 x; } location /json { default_type application/json;
                 return 200 x; }",
        )
        .file("html/a.html", "x")
        .file("html/a.css", "x")
        .file("html/a.png", "x")
        .file("html/a.txt", "x")
        .file("html/off.html", "x")
        .file("html/own.html", "x")
        .file("html/types.css", "x")
        .file("html/types.html", "x")
        .file("html/var.html", "x")
        .gets(&[
            "/a.html",
            "/a.css",
            "/a.png",
            "/a.txt",
            "/off.html",
            "/own.html",
            "/types.css",
            "/types.html",
            "/var.html?c=x",
            "/ret",
            "/json",
        ])
}

fn charset_of_proxied() -> Scenario {
    let typed = |value: &str| Answer::new(200).header("Content-Type", value).body("x");
    Scenario::new("charset-proxied-answers")
        .server(
            "charset utf-8;
             location / { proxy_pass http://%%ORIGIN%%; }
             location /over { proxy_pass http://%%ORIGIN%%; override_charset on; }
             location /sent { proxy_pass http://%%ORIGIN%%; charset off;
                              add_header X-Type $upstream_http_content_type; }",
        )
        .answer("/plain", typed("text/html"))
        .answer("/own", typed("text/html; charset=koi8-r"))
        .answer("/quoted", typed("text/html; charset=\"koi8-r\""))
        .answer("/image", typed("image/png"))
        .answer(
            "/accel",
            typed("text/html").header("X-Accel-Charset", "koi8-r"),
        )
        .answer("/over", typed("text/html; charset=koi8-r"))
        .answer("/sent", typed("text/html; charset=koi8-r"))
        .gets(&["/plain", "/own", "/quoted", "/image", "/accel", "/sent"])
}

fn sub_filter() -> Scenario {
    let text = "one two ONE three one";
    let html = Answer::new(200).header("Content-Type", "text/html");
    Scenario::new("sub-filter")
        .server(
            "location / { proxy_pass http://%%ORIGIN%%; sub_filter one 1; }
             location /all { proxy_pass http://%%ORIGIN%%; sub_filter one 1; sub_filter two 2;
                             sub_filter_once off; sub_filter_last_modified on; }
             location /var { proxy_pass http://%%ORIGIN%%; sub_filter one $arg_v;
                 sub_filter_once off; }
             location /types { proxy_pass http://%%ORIGIN%%; sub_filter one 1;
                 sub_filter_types *; }",
        )
        .answer(
            "/a",
            html.clone()
                .body(text)
                .etag("\"e\"")
                .last_modified("Sun, 06 Nov 1994 08:49:37 GMT"),
        )
        .answer(
            "/all",
            html.clone()
                .body(text)
                .etag("\"e\"")
                .last_modified("Sun, 06 Nov 1994 08:49:37 GMT"),
        )
        .answer("/var", html.body(text))
        .answer(
            "/types",
            Answer::new(200).header("Content-Type", "text/x").body(text),
        )
        .answer(
            "/not",
            Answer::new(200).header("Content-Type", "text/x").body(text),
        )
        .gets(&["/a", "/all", "/var?v=x", "/types", "/not"])
        .head("/a")
}
