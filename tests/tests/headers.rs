//! `add_header`, `add_trailer`, `expires`: fields that the configuration adds.
//!
//! Every fact holds for nginx, too, and is checked there when its binary is at hand.

use anyhow::Result;
use millpond_testkit::{Answer, Client, Kind, Origin, Proxy, Response};

const CONF: &str = "
    map $sent_http_content_type $by_type { default off; text/html epoch; image/gif 1h; }
    server {
        listen 127.0.0.1:%%PORT%%;
        root %%DIR%%/www;
        add_header X-Outer outer;
        add_header X-Always $status always;
        location / { }
        location /own/ { add_header X-Own $uri; alias %%DIR%%/www/; }
        location /tag/ { add_header ETag '\"mine\"'; add_header Last-Modified ''; alias %%DIR%%/www/; }
        location /cache/ {
            add_header Cache-Control public;
            add_header Cache-Control immutable;
            add_header X-Both $sent_http_cache_control;
            alias %%DIR%%/www/;
        }
        location /type/ { expires $by_type; alias %%DIR%%/www/; }
        location /max/ { expires max; alias %%DIR%%/www/; }
        location /past/ { expires -1; alias %%DIR%%/www/; }
        location /changed/ { expires modified 10s; alias %%DIR%%/www/; }
        location /end/ {
            add_trailer X-End $sent_http_content_type;
            add_trailer X-Empty '';
            alias %%DIR%%/www/;
        }
    }";

fn everywhere(check: impl Fn(&Client) -> Result<()>) -> Result<()> {
    for kind in Kind::both() {
        let proxy = Proxy::new(kind, CONF)
            .file("www/a.html", "page")
            .file("www/a.gif", "picture")
            .file("www/a.txt", "text")
            .start()?;
        check(&Client::new(proxy.port()))?;
    }
    Ok(())
}

fn values<'a>(response: &'a Response, name: &'a str) -> Vec<&'a str> {
    response.headers.all(name).collect()
}

#[test]
fn fields_are_added_by_status_and_block() -> Result<()> {
    everywhere(|client| {
        for (path, name, expected) in [
            ("/a.html", "X-Outer", Some("outer")),
            ("/a.html", "X-Always", Some("200")),
            ("/nothing", "X-Outer", None),
            ("/nothing", "X-Always", Some("404")),
            ("/own/a.html", "X-Own", Some("/own/a.html")),
            ("/own/a.html", "X-Outer", None),
            ("/tag/a.html", "ETag", Some("\"mine\"")),
            ("/tag/a.html", "Last-Modified", None),
        ] {
            assert_eq!(client.get(path)?.header(name), expected, "{path} {name}");
        }
        Ok(())
    })
}

#[test]
fn value_may_speak_of_fields_before_it() -> Result<()> {
    everywhere(|client| {
        let response = client.get("/cache/a.html")?;
        assert_eq!(values(&response, "Cache-Control"), ["public", "immutable"]);
        assert!(
            response
                .header("X-Both")
                .is_some_and(|both| both.starts_with("public"))
        );
        Ok(())
    })
}

#[test]
fn expiry_is_chosen_by_time_or_type() -> Result<()> {
    everywhere(|client| {
        for (path, cache_control) in [
            ("/type/a.html", Some("no-cache")),
            ("/type/a.gif", Some("max-age=3600")),
            ("/type/a.txt", None),
            ("/type/nothing.html", None),
            ("/max/a.html", Some("max-age=315360000")),
            ("/past/a.html", Some("no-cache")),
            ("/changed/a.html", Some("no-cache")),
        ] {
            let response = client.get(path)?;
            assert_eq!(response.header("Cache-Control"), cache_control, "{path}");
            assert_eq!(
                response.header("Expires").is_some(),
                cache_control.is_some()
            );
        }
        Ok(())
    })
}

#[test]
fn trailer_follows_the_body() -> Result<()> {
    everywhere(|client| {
        let response = client.get("/end/a.html")?;
        assert!(response.is_chunked());
        assert_eq!(response.text(), "page");
        assert_eq!(response.trailers.value("X-End"), Some("text/html"));
        assert_eq!(response.trailers.value("X-Empty"), None);
        Ok(())
    })
}

/// nginx has this since 1.29.3 only.
#[test]
fn inner_list_may_be_merged_with_the_outer_one() -> Result<()> {
    let conf = "
        server {
            listen 127.0.0.1:%%PORT%%;
            root %%DIR%%/www;
            add_header X-Outer outer;
            location /merge/ { add_header_inherit merge; add_header X-Own own; return 204; }
            location /off/ { add_header_inherit off; return 204; }
        }";
    let proxy = Proxy::new(Kind::Millpond, conf).start()?;
    let client = Client::new(proxy.port());
    let merged = client.get("/merge/")?;
    assert_eq!(merged.header("X-Own"), Some("own"));
    assert_eq!(merged.header("X-Outer"), Some("outer"));
    assert_eq!(client.get("/off/")?.header("X-Outer"), None);
    Ok(())
}

/// Status and reason are those of the origin, also when the answer comes from the cache.
#[test]
fn reason_of_an_origin_is_kept_with_its_answer() -> Result<()> {
    let conf = "
        proxy_cache_path %%DIR%%/cache keys_zone=z:1m;
        server {
            listen 127.0.0.1:%%PORT%%;
            proxy_cache z;
            proxy_cache_valid any 1h;
            add_header X-Cache $upstream_cache_status always;
            location / { proxy_pass http://%%ORIGIN%%; }
        }";
    for kind in Kind::both() {
        let origin = Origin::start()?;
        for (path, status) in [
            ("/nope", "404 Nope"),
            ("/found", "302 Found"),
            ("/ok", "200 OK"),
        ] {
            let head = format!("HTTP/1.1 {status}\r\nContent-Length: 2\r\n\r\nno");
            origin.route(path, Answer::raw(head));
        }
        let proxy = Proxy::new(kind, conf).origin(&origin).start()?;
        let client = Client::new(proxy.port());
        for (path, status, reason) in [
            ("/nope", 404, "Nope"),
            ("/found", 302, "Found"),
            ("/ok", 200, "OK"),
        ] {
            for cached in ["MISS", "HIT", "HIT", "HIT"] {
                let response = client.get(path)?;
                let told = (response.status, response.reason.as_str());
                assert_eq!(told, (status, reason), "{path} {cached}");
                assert_eq!(response.header("X-Cache"), Some(cached), "{path}");
                assert_eq!(response.text(), "no", "{path}");
            }
        }
    }
    Ok(())
}

/// A refused request for a head alone is answered with a head alone, whatever was wrong with it.
#[test]
fn refused_request_for_a_head_gets_no_body() -> Result<()> {
    everywhere(|client| {
        let long = "a".repeat(9000);
        for (request, status) in [
            (format!("HEAD /{long} HTTP/1.1\r\nHost: a\r\n\r\n"), 414),
            (format!("HEAD / HTTP/1.1\r\nX: {long}\r\n\r\n"), 400),
            ("HEAD a HTTP/1.1\r\n\r\n".to_string(), 400),
        ] {
            let mut connection = client.connect()?;
            connection.send_raw(request.as_bytes())?;
            let response = connection.read_response("HEAD")?;
            assert_eq!(response.status, status);
            connection.expect_close()?;
        }
        Ok(())
    })
}
