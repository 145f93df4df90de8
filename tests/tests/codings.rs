//! `brotli`, `zstd` and their directives, and which coding a client gets.
//!
//! What only has to do with brotli holds for nginx with Debian's module, too, and is checked there.

use anyhow::{Context, Result, ensure};
use millpond_testkit::{Answer, Client, Framing, Kind, Origin, Proxy, Request, Response};
use std::io::Read;

/// The largest window of the content coding zstd, as a power of two (RFC 9659 §3).
const ZSTD_WINDOW_BITS: u32 = 23;

fn page() -> String {
    "<p>The pond freezes over, and the mill stands still.</p>\n".repeat(3000)
}

fn get(client: &Client, path: &str, accepted: &str) -> Result<Response> {
    client.send(&Request::get(path).header("Accept-Encoding", accepted))
}

/// The text of an answer, by its coding.
fn text(response: &Response) -> Result<String> {
    let mut text = String::new();
    let body = &*response.body;
    match response.header("Content-Encoding") {
        None => text.push_str(std::str::from_utf8(body)?),
        Some("br") => {
            brotli::Decompressor::new(body, 4096).read_to_string(&mut text)?;
        }
        Some("gzip") => {
            flate2::read::GzDecoder::new(body).read_to_string(&mut text)?;
        }
        Some("zstd") => {
            let mut reader = zstd::stream::read::Decoder::new(body)?;
            reader.window_log_max(ZSTD_WINDOW_BITS)?;
            reader.read_to_string(&mut text)?;
        }
        Some(other) => anyhow::bail!("{other}"),
    }
    Ok(text)
}

fn has_brotli(kind: Kind) -> bool {
    let module = "/usr/lib/nginx/modules/ngx_http_brotli_filter_module.so";
    kind == Kind::Millpond || std::path::Path::new(module).exists()
}

const BROTLI: &str = "
    server {
        listen 127.0.0.1:%%PORT%%;
        root %%DIR%%/www;
        types { text/html html; text/css css; image/png png; }
        gzip on;
        gzip_types text/css;
        brotli on;
        brotli_types text/css;
        location / { }
        location /vary/ { gzip_vary on; alias %%DIR%%/www/; }
        location /long/ { brotli_min_length 1m; alias %%DIR%%/www/; }
        location /best/ { brotli_comp_level 11; brotli_window 16m; alias %%DIR%%/www/; }
        location /least/ { brotli_comp_level 0; brotli_window 1k; alias %%DIR%%/www/; }
        location /none/ { brotli off; alias %%DIR%%/www/; }
        location /ready/ { brotli_static on; gzip_static on; gzip_vary on; alias %%DIR%%/www/; }
        location /always/ { brotli_static always; alias %%DIR%%/www/; }
    }";

fn everywhere(check: impl Fn(&Client, Kind) -> Result<()>) -> Result<()> {
    for kind in Kind::both().filter(|kind| has_brotli(*kind)) {
        let proxy = Proxy::new(kind, BROTLI)
            .file("www/page.html", page())
            .file("www/page.css", page())
            .file("www/page.png", page())
            .file("www/short.html", "short")
            .file("www/made.html", page())
            .file("www/made.html.br", "made by brotli")
            .file("www/made.html.gz", "made by gzip")
            .start()?;
        check(&Client::new(proxy.port()), kind).with_context(|| format!("{kind:?}"))?;
    }
    Ok(())
}

#[test]
fn brotli_comes_to_clients_that_take_it() -> Result<()> {
    everywhere(|client, _| {
        for (path, accepted, coding) in [
            ("/page.html", "br", Some("br")),
            ("/page.html", "gzip, deflate, br, zstd", Some("br")),
            ("/page.html", "gzip;q=0.9, br;q=0.9", Some("br")),
            ("/page.html", "gzip, br;q=0", Some("gzip")),
            ("/page.html", "gzip", Some("gzip")),
            ("/page.html", "brr", None),
            ("/page.html", "", None),
            ("/page.css", "br", Some("br")),
            ("/page.png", "br", None),
            ("/short.html", "br", None),
            ("/long/page.html", "br", None),
            ("/best/page.html", "br", Some("br")),
            ("/least/page.html", "br", Some("br")),
            ("/none/page.html", "br", None),
            ("/none/page.html", "br, gzip", Some("gzip")),
            ("/missing.html", "br", Some("br")),
        ] {
            let response = get(client, path, accepted)?;
            let found = response.header("Content-Encoding");
            ensure!(found == coding, "{path} {accepted}: {found:?}");
            let is_page = !path.contains("short") && !path.contains("missing");
            ensure!(!is_page || text(&response)? == page(), "{path} {accepted}");
        }
        Ok(())
    })
}

#[test]
fn answers_that_depend_on_the_coding_say_so() -> Result<()> {
    everywhere(|client, _| {
        for (path, accepted, varies) in [
            ("/vary/page.html", "br", true),
            ("/vary/page.html", "identity", true),
            ("/vary/page.png", "br", false),
            ("/page.html", "br", false),
        ] {
            let response = get(client, path, accepted)?;
            let has_vary = response.header("Vary") == Some("Accept-Encoding");
            ensure!(has_vary == varies, "{path} {accepted}");
        }
        Ok(())
    })
}

/// The bytes are others than the file's: no range of the file is cut from them, and their validator
/// is weak.
#[test]
fn compressed_answers_have_no_ranges_and_a_weak_validator() -> Result<()> {
    everywhere(|client, _| {
        let ranged = Request::get("/page.html")
            .header("Accept-Encoding", "br")
            .header("Range", "bytes=0-9");
        let response = client.send(&ranged)?;
        ensure!(response.status == 200 && text(&response)? == page());
        let etag = response.header("ETag").unwrap_or_default();
        ensure!(etag.starts_with("W/"), "{etag}");
        let again = Request::get("/page.html")
            .header("Accept-Encoding", "br")
            .header("If-None-Match", etag);
        ensure!(client.send(&again)?.status == 304);
        let head = Request::new("HEAD", "/page.html").header("Accept-Encoding", "br");
        let response = client.send(&head)?;
        ensure!(response.header("Content-Encoding") == Some("br"));
        ensure!(response.header("Content-Length").is_none() && response.body.is_empty());
        Ok(())
    })
}

#[test]
fn files_that_are_compressed_already_are_sent_as_they_are() -> Result<()> {
    everywhere(|client, _| {
        for (path, accepted, coding, body) in [
            ("/ready/made.html", "gzip, br", Some("br"), "made by brotli"),
            ("/ready/made.html", "gzip", Some("gzip"), "made by gzip"),
            ("/ready/page.html", "identity", None, &*page()),
            (
                "/always/made.html",
                "identity",
                Some("br"),
                "made by brotli",
            ),
        ] {
            let response = get(client, path, accepted)?;
            let found = response.header("Content-Encoding");
            ensure!(found == coding, "{path} {accepted}: {found:?}");
            ensure!(response.body == body.as_bytes(), "{path} {accepted}");
        }
        let response = get(client, "/ready/made.html", "identity")?;
        ensure!(response.header("Vary") == Some("Accept-Encoding"));
        ensure!(response.body == page().as_bytes());
        Ok(())
    })
}

const ALL: &str = "
    proxy_cache_path %%DIR%%/cache keys_zone=z:1m;
    log_format ratio '$uri br=$brotli_ratio zstd=$zstd_ratio gzip=$gzip_ratio';
    access_log %%DIR%%/access.log ratio;
    server {
        listen 127.0.0.1:%%PORT%%;
        gzip on;
        brotli on;
        zstd on;
        location / { proxy_pass http://%%ORIGIN%%; proxy_cache z; proxy_cache_valid 1h; }
        location /far/ { zstd_comp_level 22; proxy_pass http://%%ORIGIN%%/; }
    }";

/// RFC 9110 §12.5.3: of the codings that a client takes, the one that it likes most.
#[test]
fn a_client_gets_the_coding_that_it_likes_most() -> Result<()> {
    let origin = Origin::start()?;
    let html = || {
        Answer::new(200)
            .header("Content-Type", "text/html")
            .body(page())
    };
    origin.route("/*", html());
    let proxy = Proxy::new(Kind::Millpond, ALL).origin(&origin).start()?;
    let client = Client::new(proxy.port());
    for (accepted, coding) in [
        ("gzip, deflate, br, zstd", Some("br")),
        ("gzip, zstd", Some("zstd")),
        ("zstd;q=1, br;q=0.9, gzip;q=0.8", Some("zstd")),
        ("br;q=0.1, gzip;q=0.2", Some("gzip")),
        ("br;q=0.1, gzip;q=0.2, zstd;q=0.3", Some("zstd")),
        ("ZSTD", Some("zstd")),
        ("zstd;q=0", None),
        ("identity;q=1, *;q=0", None),
    ] {
        let response = get(&client, "/page", accepted)?;
        let found = response.header("Content-Encoding");
        ensure!(found == coding, "{accepted}: {found:?}");
        ensure!(text(&response)? == page(), "{accepted}");
    }
    // One answer is kept, of which each client gets what it takes.
    ensure!(origin.requests().len() == 1);
    let lines = proxy.wait_for_lines("access.log", 8)?;
    let ratios = lines[0].as_str();
    ensure!(
        ratios.starts_with("/page br=") && ratios.ends_with(" zstd=- gzip=-"),
        "{ratios}"
    );
    Ok(())
}

/// RFC 9659 §3: no window that a browser has no room for, however high the level.
#[test]
fn windows_of_zstd_are_no_larger_than_readers_must_have_room_for() -> Result<()> {
    let origin = Origin::start()?;
    // The length is not known, so that the window is the level's.
    let page = page();
    let answer = Answer::new(200).header("Content-Type", "text/html");
    origin.route("/*", answer.body(&page).framing(Framing::Chunked));
    let proxy = Proxy::new(Kind::Millpond, ALL).origin(&origin).start()?;
    let response = get(&Client::new(proxy.port()), "/far/page", "zstd")?;
    ensure!(response.header("Content-Encoding") == Some("zstd"));
    ensure!(text(&response)? == page);
    Ok(())
}
