//! `auth_request`, `auth_request_set`, with `satisfy`: another request decides.
//!
//! What `everywhere` checks holds for nginx, too, and is checked there when its binary is at hand.

use anyhow::Result;
use millpond_testkit::{Answer, Client, Kind, Origin, Proxy, Request};

const CONF: &str = "
    server {
        listen 127.0.0.1:%%PORT%%;
        root %%DIR%%/www;
        location / { auth_request /ask; }
        location /post { auth_request /ask; proxy_pass http://%%ORIGIN%%; }
        location /told {
            auth_request /ask;
            auth_request_set $who $upstream_http_x_who;
            auth_request_set $sent $sent_http_x_who,$sent_http_content_length;
            error_page 403 /sorry;
            try_files /a =404;
        }
        location /sorry { return 200 'sorry $who $sent'; }
        location /either {
            satisfy any; auth_request /ask; auth_basic b; auth_basic_user_file %%DIR%%/www/a;
            try_files /a =404;
        }
        location /any {
            satisfy any; deny all; auth_request /ask; try_files /a =404;
        }
        location /all {
            satisfy all; deny all; auth_request /ask; try_files /a =404;
        }
        location /local { auth_request /yes; try_files /a =404; }
        location /off { auth_request off; try_files /a =404; }
        location = /yes { internal; return 204; }
        location = /ask {
            internal;
            proxy_pass http://%%ORIGIN%%/ask$is_args$args;
            proxy_pass_request_body off;
            proxy_set_header Content-Length '';
            proxy_set_header X-Uri $request_uri;
        }
    }";

fn everywhere(check: impl Fn(&Origin, &Client) -> Result<()>) -> Result<()> {
    for kind in Kind::both() {
        let origin = Origin::start()?;
        origin.answer_with("/ask", |request| {
            let uri = request.header("X-Uri").unwrap_or_default();
            let status = uri.split_once('?').map_or("200", |(_, status)| status);
            Answer::new(status.parse().unwrap_or(500))
                .header("X-Who", "somebody")
                .header("WWW-Authenticate", "Basic realm=\"a\"")
                .body("unseen")
        });
        origin.answer_with("/post", |request| Answer::new(200).body(&request.body));
        let proxy = Proxy::new(kind, CONF)
            .origin(&origin)
            .file("www/a", "a")
            .start()?;
        check(&origin, &Client::new(proxy.port()))?;
    }
    Ok(())
}

#[test]
fn status_of_the_asked_decides() -> Result<()> {
    everywhere(|origin, client| {
        for (path, status) in [
            ("/a", 200),
            ("/a?204", 200),
            ("/a?401", 401),
            ("/a?403", 403),
            ("/a?404", 500),
            ("/a?302", 500),
            ("/any", 200),
            ("/any?401", 401),
            ("/any?403", 403),
            ("/any?500", 500),
            ("/all", 403),
            ("/off?403", 200),
            ("/local", 200),
        ] {
            let response = client.get(path)?;
            assert_eq!(response.status, status, "{path}");
            assert!(!response.text().contains("unseen"), "{path}");
        }
        let challenge = client.get("/a?401")?;
        assert_eq!(
            challenge.header("WWW-Authenticate"),
            Some("Basic realm=\"a\"")
        );
        assert_eq!(client.get("/any")?.header("WWW-Authenticate"), None);
        assert!(
            origin
                .requests()
                .iter()
                .all(|request| request.method == "GET")
        );
        Ok(())
    })
}

#[test]
fn variables_are_set_also_for_who_is_refused() -> Result<()> {
    everywhere(|_, client| {
        let response = client.get("/told?403")?;
        assert_eq!(
            (response.status, response.text().as_str()),
            (403, "sorry somebody somebody,6")
        );
        Ok(())
    })
}

/// With `satisfy any` a client is told of all the ways in.
#[test]
fn challenges_of_several_gates_are_told() -> Result<()> {
    everywhere(|_, client| {
        let response = client.get("/either?401")?;
        let mut challenges = response.headers.all("WWW-Authenticate").collect::<Vec<_>>();
        challenges.sort_unstable();
        assert_eq!(response.status, 401);
        assert_eq!(challenges, ["Basic realm=\"a\"", "Basic realm=\"b\""]);
        Ok(())
    })
}

/// The body of the client's request goes where the request goes, and is not lost on the way.
#[test]
fn body_is_not_for_the_asked() -> Result<()> {
    everywhere(|origin, client| {
        let body = "0123456789".repeat(10_000);
        let response = client.send(&Request::post("/post", &body))?;
        assert_eq!(response.status, 200);
        assert!(response.text() == body);
        let asked = &origin.requests()[0];
        assert!(asked.target == "/ask" && asked.body.is_empty());
        assert_eq!(client.send(&Request::post("/post?403", &body))?.status, 403);
        Ok(())
    })
}
