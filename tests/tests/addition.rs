//! `add_before_body`, `add_after_body`, `addition_types`: other requests' answers around an answer.
//!
//! Every fact holds for nginx, too, and is checked there when its binary is at hand.

use anyhow::Result;
use millpond_testkit::{Answer, Client, Kind, Origin, Proxy, Request};

const CONF: &str = "
    server {
        listen 127.0.0.1:%%PORT%%;
        root %%DIR%%/www;
        types { text/html html; text/css css; }
        add_before_body /before;
        add_after_body /after;
        location / { }
        location /inner/ { alias %%DIR%%/www/; add_before_body ''; }
        location /css/ { alias %%DIR%%/www/; addition_types text/css; }
        location /before { default_type text/html; return 200 '<$uri|$request_method>'; }
        location /after { deny all; return 404; }
        location /origin/ { proxy_pass http://%%ORIGIN%%/; }
        location /teapot { default_type text/html; return 418 'tea'; }
    }";

fn everywhere(check: impl Fn(&Origin, &Client) -> Result<()>) -> Result<()> {
    for kind in Kind::both() {
        let origin = Origin::start()?;
        let proxy = Proxy::new(kind, CONF)
            .origin(&origin)
            .file("www/page.html", "page")
            .file("www/page.css", "page")
            .start()?;
        check(&origin, &Client::new(proxy.port()))?;
    }
    Ok(())
}

#[test]
fn answers_are_added_before_and_behind_a_body() -> Result<()> {
    everywhere(|_, client| {
        let page = client.get("/page.html")?;
        let text = page.text();
        assert!(text.starts_with("</before|GET>page<html>"), "{text}");
        assert!(text.contains("404 Not Found"), "{text}");
        assert_eq!(page.header("Content-Length"), None);
        assert_eq!(page.header("Accept-Ranges"), None);
        assert!(page.header("ETag").is_some_and(|tag| tag.starts_with("W/")));
        let inner = client.get("/inner/page.html")?.text();
        assert!(inner.starts_with("page<html>"), "{inner}");
        Ok(())
    })
}

#[test]
fn type_and_status_decide() -> Result<()> {
    everywhere(|_, client| {
        assert_eq!(client.get("/page.css")?.text(), "page");
        assert!(client.get("/css/page.css")?.text().starts_with("</before"));
        assert_eq!(client.get("/teapot")?.text(), "tea");
        assert!(!client.get("/nothing.html")?.text().contains("before"));
        let head = client.send(&Request::head("/page.html"))?;
        assert_eq!((head.status, head.body.len()), (200, 0));
        Ok(())
    })
}

#[test]
fn body_that_breaks_off_gets_nothing_behind_it() -> Result<()> {
    everywhere(|origin, client| {
        let whole = Answer::new(200).header("Content-Type", "text/html");
        origin.route("/broken", whole.offset_body(10_000, 1).drop_after(5_000));
        let response = client.get("/origin/broken")?;
        assert!(!response.is_complete());
        assert!(!response.text().contains("404"));
        Ok(())
    })
}
