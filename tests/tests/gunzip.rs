//! `gunzip`: compressed answers for clients that do not take them.

use std::io::Write;

use anyhow::Result;
use flate2::Compression;
use flate2::write::GzEncoder;
use millpond_testkit::{Answer, Client, Kind, Origin, Proxy, Request};

const CONF: &str = "
    server {
        listen 127.0.0.1:%%PORT%%;
        root %%DIR%%/www;
        types { text/html html; }
        gzip_vary on;
        location / { proxy_pass http://%%ORIGIN%%; gunzip on; }
        location /off/ { proxy_pass http://%%ORIGIN%%/; }
        location = /page.html { ssi on; }
    }";

fn compress(text: &str) -> Result<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(text.as_bytes())?;
    Ok(encoder.finish()?)
}

#[test]
fn answers_are_decompressed_for_who_does_not_take_them() -> Result<()> {
    let origin = Origin::start()?;
    let text = "the pond and the mill\n".repeat(50_000);
    let compressed = compress(&text)?;
    let answer = Answer::new(200)
        .header("Content-Encoding", "gzip")
        .etag("\"a\"");
    origin.route("/text", answer.clone().body(&compressed));
    origin.route(
        "/cut",
        answer.clone().body(&compressed[..compressed.len() / 2]),
    );
    origin.route("/plain", Answer::new(200).body("plain"));
    // RFC 9110 §5.3: it was compressed twice, and only the inner coding is gzip.
    let twice = answer.clone().header("Content-Encoding", "br");
    origin.route("/twice", twice.body("opaque"));
    let proxy = Proxy::new(Kind::Millpond, CONF)
        .origin(&origin)
        .file("www/page.html", "<<!--#include virtual='/text' -->>")
        .start()?;
    let client = Client::new(proxy.port());
    let response = client.get("/text")?;
    assert_eq!(response.header("Content-Encoding"), None);
    assert_eq!(response.header("Content-Length"), None);
    assert_eq!(response.header("ETag"), Some("W/\"a\""));
    assert_eq!(response.header("Vary"), Some("Accept-Encoding"));
    assert!(response.text() == text);
    let taken = client.send(&Request::get("/text").header("Accept-Encoding", "gzip"))?;
    assert_eq!(taken.header("Content-Encoding"), Some("gzip"));
    assert!(taken.body == compressed);
    assert!(client.get("/off/text")?.body == compressed);
    assert_eq!(client.get("/plain")?.text(), "plain");
    let twice = client.get("/twice")?;
    assert_eq!(twice.header("Content-Encoding"), Some("gzip"));
    assert_eq!(twice.text(), "opaque");
    assert!(!client.get("/cut")?.is_complete());
    let page = Request::get("/page.html").header("Accept-Encoding", "gzip");
    assert!(client.send(&page)?.text() == format!("<{text}>"));
    Ok(())
}
