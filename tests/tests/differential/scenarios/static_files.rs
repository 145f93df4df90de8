//! Files: `root`, `alias`, `index`, `autoindex`, `random_index`, `try_files`, types and validators.

use crate::scenario::Scenario;
use millpond_testkit::{Answer, Request};

const MODIFIED: &str = "Sun, 09 Sep 2001 01:46:40 GMT";
const BEFORE: &str = "Sun, 09 Sep 2001 01:46:39 GMT";
const AFTER: &str = "Sun, 09 Sep 2001 01:46:41 GMT";

/// The scenarios of this subject.
pub fn scenarios() -> Vec<Scenario> {
    vec![
        root_and_alias(),
        index_files(),
        folder_lists(),
        random_index(),
        try_files(),
        types(),
        conditions("conditions", ""),
        conditions("conditions-before", "if_modified_since before;"),
        conditions("conditions-off", "if_modified_since off;"),
        conditions("conditions-without-etag", "etag off;"),
        methods(),
        file_errors(),
        large_file(),
        flash_video(),
    ]
}

fn root_and_alias() -> Scenario {
    Scenario::new("root-and-alias")
        .server(
            "location /r/ { root %%DIR%%/one; }
             location /a/ { alias %%DIR%%/two/; }
             location /noslash { alias %%DIR%%/two; }
             location = /exact { alias %%DIR%%/two/file; }
             location ~ ^/re/(.+)$ { alias %%DIR%%/two/$1; }
             location /var/ { root %%DIR%%/$arg_dir; }
             location /path { return 200 \"$document_root $realpath_root $request_filename\"; }
             location ~ ^/rep/(.+)$ { alias %%DIR%%/two/$1; return 200 \"$request_filename\"; }",
        )
        .file("html/x", "x")
        .file("one/r/file", "root")
        .file("two/file", "alias")
        .file("two/sub/file", "alias sub")
        .file("x/var/file", "variable")
        .gets(&[
            "/r/file",
            "/a/file",
            "/a/sub/file",
            "/noslash/file",
            "/exact",
            "/re/file",
            "/re/sub/file",
            "/var/file?dir=x",
            "/path",
            "/rep/file",
            "/a/none",
            "/a/../r/file",
        ])
}

fn index_files() -> Scenario {
    Scenario::new("index-files")
        .server(
            "index index.html index.txt;
             location /vars/ { index $arg_i /fallback.html; }
             location /abs/ { index /other.html; }
             location /sub/ { index none.html page.html; }
             location ~ page\\.html$ { add_header X-Page 1; }
             location /empty/ { }",
        )
        .file("html/index.html", "index")
        .file("html/txt/index.txt", "text index")
        .file("html/vars/a.html", "a")
        .file("html/fallback.html", "fallback")
        .file("html/abs/x", "x")
        .file("html/other.html", "other")
        .file("html/sub/page.html", "page")
        .file("html/empty/x", "x")
        .gets(&[
            "/",
            "/txt/",
            "/vars/?i=a.html",
            "/vars/?i=b.html",
            "/abs/",
            "/sub/",
            "/empty/",
            "/txt",
            "/?a=b",
        ])
        .send(Request::post("/", "x"))
}

fn folder_lists() -> Scenario {
    Scenario::new("folder-lists")
        .server(
            "autoindex on;
             location /page/ { alias %%DIR%%/files/; }
             location /short/ { alias %%DIR%%/files/; autoindex_exact_size off; }
             location /local/ { alias %%DIR%%/files/; autoindex_localtime on; }
             location /utf8/ { alias %%DIR%%/files/; charset utf-8; }
             location /json/ { alias %%DIR%%/files/; autoindex_format json; }
             location /jsonp/ { alias %%DIR%%/files/; autoindex_format jsonp; }
             location /xml/ { alias %%DIR%%/files/; autoindex_format xml; charset koi8-r; }
             location /off/ { alias %%DIR%%/files/; autoindex off; }
             location /index/ { alias %%DIR%%/files/; index b.txt; }
             location /<&>/ { alias %%DIR%%/empty/; autoindex_format html; }
             location /empty/ { alias %%DIR%%/empty/; autoindex_format json; }",
        )
        .file("files/.hidden", "x")
        .file("files/b.txt", "hello")
        .file("files/a:<&>\"'%?.txt", "")
        .file("files/back\\slash\ttab\u{1}", "x")
        .file("files/k", [b'k'; 10_752])
        .file("files/ф", "x")
        .file(
            "files/ффффффффффффффффффффффффффффффффффффффффффффффффффф",
            "x",
        )
        .file(
            "files/<<<<<<<<<<<<<<<<<<<<<<<<<<<<<<<<<<<<<<<<<<<<<<<<<<<<",
            "x",
        )
        .file(
            "files/12345678901234567890123456789012345678901234567890",
            "x",
        )
        .file(
            "files/123456789012345678901234567890123456789012345678901",
            "x",
        )
        .file("empty/.hidden", "x")
        .gets(&[
            "/page/",
            "/short/",
            "/local/",
            "/utf8/",
            "/json/",
            "/jsonp/",
            "/jsonp/?callback=",
            "/jsonp/?a=b&callback=call.me_1",
            "/jsonp/?callback=call(1)",
            "/xml/",
            "/off/",
            "/index/",
            "/%3C&%3E/",
            "/empty/",
            "/none/",
        ])
        .head("/page/")
        .send(Request::post("/page/", "x"))
        .send(Request::new("PUT", "/page/"))
        .get_with("/page/", "Range", "bytes=0-1")
}

fn random_index() -> Scenario {
    Scenario::new("random-index")
        .server(
            "location /one/ { random_index on; index other.html; }
             location /empty/ { random_index on; }
             location /listed/ { random_index on; autoindex on; autoindex_format json; }
             location /missing/ { random_index on; }",
        )
        .file("html/one/only.html", "only")
        .file("html/one/.hidden", "hidden")
        .file("html/one/folder/x", "x")
        .file("html/empty/.hidden", "hidden")
        .file("html/listed/.hidden", "x")
        .gets(&[
            "/one/",
            "/one/?a=b",
            "/one/folder/",
            "/empty/",
            "/listed/",
            "/missing/",
        ])
        .head("/one/")
        .send(Request::post("/one/", "x"))
        .send(Request::new("PUT", "/one/"))
}

fn try_files() -> Scenario {
    Scenario::new("try-files")
        .server(
            "location / { try_files $uri $uri/ $uri.html =404; }
             location /code { try_files /none =403; }
             location /last { try_files /none /index.html; }
             location /args { try_files /none /script?a=b&$args; }
             location /named { try_files $uri @up; }
             location /alias/ { alias %%DIR%%/two/; try_files $uri file =404; }
             location /dir/ { try_files /none /dir/index.html /index.html; }
             location /proxy { try_files $uri /pass$uri; }
             location /pass { proxy_pass http://%%ORIGIN%%; }
             location = /script { return 200 \"$uri?$args $request_uri\"; }
             location @up { proxy_pass http://%%ORIGIN%%; }",
        )
        .file("html/index.html", "index")
        .file("html/a.html", "a")
        .file("html/d/index.html", "d")
        .file("two/file", "two")
        .answer("/*", Answer::new(200).body("origin"))
        .gets(&[
            "/index.html",
            "/",
            "/a",
            "/d",
            "/d/",
            "/none",
            "/code",
            "/last",
            "/args?x=y",
            "/named/x?y",
            "/alias/file",
            "/alias/none",
            "/dir/x",
            "/proxy/x?a=b",
        ])
}

fn types() -> Scenario {
    Scenario::new("types")
        .http("types { text/html html htm; text/css css; application/x-a a.b; } default_type d/e;")
        .server(
            "location / { }
             location /own { types { text/x-own html; } }
             location /empty { types { } default_type text/x-empty; }
             location /none { default_type \"\"; }
             location /ret { return 200 x; }
             location /ret.css { return 200 x; }",
        )
        .file("html/a.html", "x")
        .file("html/a.HTM", "x")
        .file("html/a.css", "x")
        .file("html/a", "x")
        .file("html/a.unknown", "x")
        .file("html/a.css.", "x")
        .file("html/own.html", "x")
        .file("html/own.css", "x")
        .file("html/empty.html", "x")
        .file("html/none", "x")
        .gets(&[
            "/a.html",
            "/a.HTM",
            "/a.css",
            "/a",
            "/a.unknown",
            "/a.css.",
            "/own.html",
            "/own.css",
            "/empty.html",
            "/none",
            "/ret",
            "/ret.css",
        ])
}

fn conditions(id: &'static str, directive: &str) -> Scenario {
    // The ETag of nginx is its modification time and its length, both in hexadecimal.
    let mut scenario = Scenario::new(id)
        .server(&format!("location / {{ {directive} }}"))
        .file("html/a", "hello")
        .get("/a");
    for (name, value) in [
        ("If-Modified-Since", MODIFIED),
        ("If-Modified-Since", BEFORE),
        ("If-Modified-Since", AFTER),
        ("If-Modified-Since", "nonsense"),
        ("If-Unmodified-Since", MODIFIED),
        ("If-Unmodified-Since", BEFORE),
        ("If-None-Match", "\"3b9aca00-5\""),
        ("If-None-Match", "W/\"3b9aca00-5\""),
        ("If-None-Match", "\"x\", \"3b9aca00-5\""),
        ("If-None-Match", "\"x\""),
        ("If-None-Match", "*"),
        ("If-Match", "\"3b9aca00-5\""),
        ("If-Match", "W/\"3b9aca00-5\""),
        ("If-Match", "\"x\""),
        ("If-Match", "*"),
    ] {
        scenario = scenario.get_with("/a", name, value);
    }
    scenario.send(
        Request::get("/a")
            .header("If-None-Match", "\"x\"")
            .header("If-Modified-Since", MODIFIED),
    )
}

fn methods() -> Scenario {
    let mut scenario = Scenario::new("static-methods")
        .server("location / { }")
        .file("html/a", "hello");
    for method in [
        "GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH", "PROPFIND", "FOO",
    ] {
        scenario = scenario.send(Request::new(method, "/a"));
    }
    scenario
        .raw("TRACE /a HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        .raw("CONNECT a:1 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        .raw("get /a HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
}

fn flash_video() -> Scenario {
    Scenario::new("flv")
        .server("location / { flv; } location /index/ { flv; index a.flv; }")
        .file("html/a.flv", "FLV-0123456789")
        .file("html/index/a.flv", "FLV-index")
        .file("html/empty.flv", "")
        .gets(&[
            "/a.flv",
            "/a.flv?start=6",
            "/a.flv?x=y&start=13",
            "/a.flv?start=14",
            "/a.flv?start=0",
            "/a.flv?start=x",
            "/empty.flv?start=1",
            "/none.flv?start=1",
            "/index",
            "/index/?start=1",
            "/",
        ])
        .head("/a.flv?start=6")
        .send(Request::post("/a.flv", "x"))
        .get_with("/a.flv?start=6", "Range", "bytes=0-3")
        .get_with("/a.flv?start=6", "Range", "bytes=10-14")
        .get_with("/a.flv?start=6", "Range", "bytes=-3")
        .get_with("/a.flv?start=6", "Range", "bytes=21-")
        .get_with("/a.flv", "If-None-Match", "\"3b9aca00-e\"")
}

fn file_errors() -> Scenario {
    Scenario::new("file-errors")
        .server("location / { }")
        .file("html/dir/file", "x")
        .file("html/file", "x")
        .gets(&[
            "/dir/",
            "/dir",
            "/file/",
            "/file/x",
            "/none",
            "/dir/none/x",
            "/",
        ])
        .get(&format!("/{}", "a".repeat(300)))
}

fn large_file() -> Scenario {
    let body: Vec<u8> = (0..300_000_u32).flat_map(u32::to_le_bytes).collect();
    Scenario::new("large-file")
        .server("location / { } location /sendfile { sendfile on; tcp_nopush on; }")
        .file("html/a", &body)
        .file("html/sendfile", &body)
        .gets(&["/a", "/sendfile"])
        .head("/a")
        .get_with("/a", "Range", "bytes=1000000-1100000")
}
