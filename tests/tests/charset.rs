//! `charset`, `source_charset`, `charset_map`, `charset_types`: character sets of answers.
//!
//! Every fact holds for nginx, too, and is checked there when its binary is at hand.

use anyhow::Result;
use millpond_testkit::{Client, Kind, Proxy, Request};

const CONF: &str = "
    charset_map small big { 61 41; 62 42; }
    charset_map koi8-r utf-8 { D0 D0BF; D2 D180; }
    server {
        listen 127.0.0.1:%%PORT%%;
        root %%DIR%%/www;
        location / { charset utf-8; }
        location /all/ { charset utf-8; charset_types *; alias %%DIR%%/www/; }
        location /var/ { charset $arg_set; alias %%DIR%%/www/; }
        location /big/ { charset big; source_charset small; alias %%DIR%%/www/; }
        location /utf/ { charset utf-8; source_charset koi8-r; alias %%DIR%%/www/; }
        location /koi/ { charset koi8-r; source_charset utf-8; alias %%DIR%%/www/; }
    }";

fn everywhere(check: impl Fn(&Client) -> Result<()>) -> Result<()> {
    for kind in Kind::both() {
        let proxy = Proxy::new(kind, CONF)
            .file("www/a.html", "abc")
            .file("www/a.gif", "abc")
            .file("www/koi.html", b"a\xd0\xd2\xff")
            .file("www/utf.html", "aпр€")
            .start()?;
        check(&Client::new(proxy.port()))?;
    }
    Ok(())
}

#[test]
fn character_set_is_added_to_listed_types() -> Result<()> {
    everywhere(|client| {
        for (path, content_type) in [
            ("/a.html", "text/html; charset=utf-8"),
            ("/a.gif", "image/gif"),
            ("/all/a.gif", "image/gif; charset=utf-8"),
            ("/var/a.html?set=x", "text/html; charset=x"),
            ("/nothing", "text/html; charset=utf-8"),
        ] {
            let response = client.get(path)?;
            assert_eq!(
                response.header("Content-Type"),
                Some(content_type),
                "{path}"
            );
        }
        Ok(())
    })
}

#[test]
fn body_is_converted_by_the_map_between_two_sets() -> Result<()> {
    everywhere(|client| {
        for (path, body) in [
            ("/big/a.html", &b"ABc"[..]),
            ("/utf/koi.html", "aпр?".as_bytes()),
            ("/koi/utf.html", b"a\xd0\xd2&#8364;"),
        ] {
            assert_eq!(client.get(path)?.body, body, "{path}");
        }
        Ok(())
    })
}

#[test]
fn range_is_cut_before_bytes_are_converted() -> Result<()> {
    everywhere(|client| {
        let ranged = |path| client.send(&Request::get(path).header("Range", "bytes=1-1"));
        let response = ranged("/big/a.html")?;
        assert_eq!((response.status, &*response.text()), (206, "B"));
        // The length is not known before the conversion.
        assert_eq!(ranged("/utf/koi.html")?.status, 200);
        Ok(())
    })
}
