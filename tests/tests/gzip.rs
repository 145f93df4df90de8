//! `gzip` and its directives, `gzip_static`: compressed answers.
//!
//! Every fact holds for nginx, too, and is checked there when its binary is at hand.

use anyhow::Result;
use flate2::read::GzDecoder;
use millpond_testkit::{Client, Kind, Proxy, Request, Response};
use std::io::Read;

const CONF: &str = "
    server {
        listen 127.0.0.1:%%PORT%%;
        root %%DIR%%/www;
        types { text/html html; text/css css; image/png png; }
        gzip on;
        gzip_types text/css;
        location / { }
        location /vary/ { gzip_vary on; alias %%DIR%%/www/; }
        location /long/ { gzip_min_length 1m; alias %%DIR%%/www/; }
        location /old/ { gzip_http_version 1.0; gzip_proxied any; alias %%DIR%%/www/; }
        location /tired/ { gzip_disable tired; alias %%DIR%%/www/; }
    }";

fn page() -> String {
    "<p>The pond freezes over, and the mill stands still.</p>\n".repeat(3000)
}

fn everywhere(check: impl Fn(&Client) -> Result<()>) -> Result<()> {
    for kind in Kind::both() {
        let proxy = Proxy::new(kind, CONF)
            .file("www/page.html", page())
            .file("www/page.css", page())
            .file("www/page.png", page())
            .file("www/short.html", "short")
            .start()?;
        check(&Client::new(proxy.port()))?;
    }
    Ok(())
}

fn get(client: &Client, path: &str) -> Result<Response> {
    client.send(&Request::get(path).header("Accept-Encoding", "gzip"))
}

fn is_compressed(response: &Response) -> bool {
    response.header("Content-Encoding") == Some("gzip")
}

#[test]
fn compressed_page_is_the_page() -> Result<()> {
    everywhere(|client| {
        let response = get(client, "/page.html")?;
        assert!(is_compressed(&response) && response.is_chunked());
        assert!(response.body.len() < page().len() / 10);
        let mut text = String::new();
        GzDecoder::new(&*response.body).read_to_string(&mut text)?;
        assert_eq!(text, page());
        Ok(())
    })
}

#[test]
fn compressed_page_is_another_representation() -> Result<()> {
    everywhere(|client| {
        let (plain, compressed) = (client.get("/page.html")?, get(client, "/page.html")?);
        let tag = plain.header("ETag").unwrap_or_default();
        assert_eq!(compressed.header("ETag"), Some(&*format!("W/{tag}")));
        assert_eq!(compressed.header("Accept-Ranges"), None);
        assert_eq!(compressed.header("Content-Length"), None);
        let request = Request::get("/page.html").header("Accept-Encoding", "gzip");
        let ranged = client.send(&request.header("Range", "bytes=0-1"))?;
        assert_eq!((ranged.status, is_compressed(&ranged)), (200, true));
        Ok(())
    })
}

#[test]
fn type_length_and_client_decide() -> Result<()> {
    everywhere(|client| {
        for (path, compressed) in [
            ("/page.html", true),
            ("/page.css", true),
            ("/page.png", false),
            ("/short.html", false),
            ("/long/page.html", false),
            ("/nothing.html", true),
        ] {
            assert_eq!(is_compressed(&get(client, path)?), compressed, "{path}");
        }
        for (path, field, value, compressed) in [
            ("/page.html", "Via", "1.1 proxy", false),
            ("/old/page.html", "Via", "1.1 proxy", true),
            ("/tired/page.html", "User-Agent", "Tired/1.0", false),
            ("/tired/page.html", "User-Agent", "Awake/1.0", true),
        ] {
            let request = Request::get(path).header("Accept-Encoding", "gzip");
            let response = client.send(&request.header(field, value))?;
            assert_eq!(is_compressed(&response), compressed, "{path} {value}");
        }
        assert!(!is_compressed(&client.get("/page.html")?));
        Ok(())
    })
}

#[test]
fn vary_is_said_to_both_kinds_of_clients() -> Result<()> {
    everywhere(|client| {
        for (path, vary) in [
            ("/vary/page.html", Some("Accept-Encoding")),
            ("/vary/page.png", None),
            ("/page.html", None),
        ] {
            assert_eq!(get(client, path)?.header("Vary"), vary, "{path}");
            assert_eq!(client.get(path)?.header("Vary"), vary, "{path}");
        }
        Ok(())
    })
}

/// nginx has this module only if it was built with it, so it is not asked.
#[test]
fn file_that_is_compressed_already_is_sent() -> Result<()> {
    let conf = "
        server {
            listen 127.0.0.1:%%PORT%%;
            root %%DIR%%/www;
            gzip_vary on;
            location / { gzip_static on; }
            location /always/ { gzip_static always; alias %%DIR%%/www/; }
        }";
    let proxy = Proxy::new(Kind::Millpond, conf)
        .file("www/a.html", "plain")
        .file("www/a.html.gz", "compressed")
        .file("www/b.html", "alone")
        .start()?;
    let client = Client::new(proxy.port());
    for (path, accepts, body, vary) in [
        ("/a.html", true, "compressed", true),
        ("/a.html", false, "plain", true),
        ("/b.html", true, "alone", false),
        ("/always/a.html", false, "compressed", false),
    ] {
        let response = if accepts {
            get(&client, path)?
        } else {
            client.get(path)?
        };
        assert_eq!(response.text(), body, "{path}");
        assert_eq!(is_compressed(&response), body == "compressed", "{path}");
        assert_eq!(response.header("Vary").is_some(), vary, "{path}");
        assert_eq!(response.header("Content-Type"), Some("text/html"), "{path}");
    }
    Ok(())
}
