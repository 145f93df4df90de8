//! `error_page`, `recursive_error_pages`, `return`, `internal`: answers instead of errors.
//!
//! Every fact holds for nginx, too, and is checked there when its binary is at hand.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use anyhow::Result;
use millpond_testkit::{Client, Kind, Proxy, Request, Response};

const CONF: &str = r#"
    server {
        listen 127.0.0.1:%%PORT%%;
        server_name localhost;
        error_page 404 /page?code=404;
        error_page 403 =200 /page;
        error_page 402 = /own;
        error_page 410 =411 /own;
        error_page 405 @named;
        error_page 406 http://away.example/$uri;
        error_page 409 =301 http://away.example/;
        error_page 301 /page?moved;

        location /page { internal; return 200 "$uri?$args $request_method $request_uri"; }
        location /own { return 202 own; }
        location @named { return 200 "named $uri $request_method"; }

        location /404 { return 404; }
        location /404-text { return 404 text; }
        location /403 { return 403; }
        location /402 { return 402; }
        location /410 { return 410; }
        location /405 { return 405; }
        location /406 { return 406; }
        location /409 { return 409; }
        location /301 { return 301 /elsewhere; }
        location /418 { return 418; }
        location /444 { return 444; }
        location /500 { return 500; }

        location /once {
            error_page 404 /once/second;
            return 404;
            location /once/second { error_page 403 /once/third; return 403; }
            location /once/third { return 200 third; }
        }
        location /again {
            recursive_error_pages on;
            error_page 404 /again/second;
            return 404;
            location /again/second { error_page 403 /again/third; return 403; }
            location /again/third { return 200 third; }
        }
        location /lost { error_page 404 @nowhere; return 404; }
        location /round { recursive_error_pages on; error_page 404 /round; return 404; }
    }"#;

fn everywhere(check: impl Fn(&Proxy, &Client) -> Result<()>) -> Result<()> {
    for kind in Kind::both() {
        let proxy = Proxy::new(kind, CONF).start()?;
        check(&proxy, &Client::new(proxy.port()))?;
    }
    Ok(())
}

fn get(client: &Client, path: &str) -> Result<Response> {
    client.send(&Request::get(path).host("localhost"))
}

#[test]
fn pages_answer_with_the_status_that_is_asked_for() -> Result<()> {
    everywhere(|_, client| {
        for (path, status, text) in [
            ("/404", 404, "/page?code=404 GET /404"),
            ("/404-text", 404, "text"),
            ("/403", 200, "/page? GET /403"),
            ("/402", 202, "own"),
            ("/410", 411, "own"),
            ("/405", 405, "named /405 GET"),
            ("/301", 301, "/page?moved GET /301"),
            ("/418", 418, ""),
            ("/page", 404, "/page?code=404 GET /page"),
        ] {
            let response = get(client, path)?;
            assert_eq!(
                (response.status, &*response.text()),
                (status, text),
                "{path}"
            );
        }
        Ok(())
    })
}

#[test]
fn pages_that_are_urls_are_redirects() -> Result<()> {
    everywhere(|proxy, client| {
        for (path, status, location) in [
            ("/406", 302, "http://away.example//406".to_owned()),
            ("/409", 301, "http://away.example/".to_owned()),
            (
                "/301",
                301,
                format!("http://localhost:{}/elsewhere", proxy.port()),
            ),
        ] {
            let response = get(client, path)?;
            assert_eq!(response.status, status, "{path}");
            assert_eq!(response.header("Location"), Some(&*location), "{path}");
        }
        Ok(())
    })
}

#[test]
fn pages_are_fetched_and_named_locations_keep_the_method() -> Result<()> {
    everywhere(|_, client| {
        for (path, text) in [
            ("/404", "/page?code=404 GET /404"),
            ("/405", "named /405 POST"),
        ] {
            let request = Request::post(path, "body").host("localhost");
            assert_eq!(client.send(&request)?.text(), text, "{path}");
        }
        let head = client.send(&Request::head("/404").host("localhost"))?;
        assert_eq!((head.status, &*head.text()), (404, ""));
        Ok(())
    })
}

#[test]
fn errors_of_pages_have_pages_only_when_asked_for() -> Result<()> {
    everywhere(|_, client| {
        for (path, status, is_third) in [
            ("/once", 403, false),
            ("/again", 403, true),
            ("/lost", 500, false),
            ("/round", 500, false),
        ] {
            let response = get(client, path)?;
            assert_eq!(response.status, status, "{path}");
            assert_eq!(response.text() == "third", is_third, "{path}");
        }
        Ok(())
    })
}

#[test]
fn a_connection_is_closed_where_it_is_not_trusted() -> Result<()> {
    everywhere(|_, client| {
        for (path, connection) in [("/404", "keep-alive"), ("/500", "close")] {
            let request = Request::get(path).host("localhost");
            let response = client.connect()?.exchange(&request)?;
            assert_eq!(response.header("Connection"), Some(connection), "{path}");
        }
        let mut connection = client.connect()?;
        connection.send_raw(b"GET /444 HTTP/1.1\r\nHost: localhost\r\n\r\n")?;
        connection.expect_close()?;
        Ok(())
    })
}

#[test]
fn an_answer_to_http_0_9_is_its_body_alone() -> Result<()> {
    everywhere(|proxy, _| {
        let mut socket = TcpStream::connect(("127.0.0.1", proxy.port()))?;
        socket.set_read_timeout(Some(Duration::from_secs(10)))?;
        socket.write_all(b"GET /own\r\n")?;
        let mut answer = Vec::new();
        socket.read_to_end(&mut answer)?;
        assert_eq!(answer, b"own");
        Ok(())
    })
}
