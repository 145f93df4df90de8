//! `proxy_cdn_loop`: requests in a circle of proxies (RFC 8586).

use anyhow::Result;
use millpond_testkit::{Answer, Client, Kind, Origin, Proxy, Request};

const CONF: &str = "
    proxy_cache_path %%DIR%%/cache keys_zone=z:1m max_size=16m;
    server {
        listen 127.0.0.1:%%PORT%%;
        proxy_cdn_loop edge.example;
        location / { proxy_pass http://%%ORIGIN%%; }
        location /twice/ { proxy_pass http://%%ORIGIN%%/; proxy_cdn_loop edge.example 2; }
        location /off/ { proxy_pass http://%%ORIGIN%%/; proxy_cdn_loop off; }
        location /self/ {
            proxy_pass http://127.0.0.1:%%PORT%%;
            proxy_cache z;
            proxy_cache_key $uri;
            proxy_cache_lock on;
        }
    }";

/// §2: a proxy adds itself and takes nothing away; one that finds itself breaks the circle.
#[test]
fn the_server_adds_itself_and_answers_what_has_gone_round() -> Result<()> {
    let origin = Origin::start()?;
    origin.route("/a", Answer::new(200).body("body"));
    let proxy = Proxy::new(Kind::Millpond, CONF).origin(&origin).start()?;
    let client = Client::new(proxy.port());
    let status = |path: &str, list: &[&str]| -> Result<u16> {
        let mut request = Request::get(path);
        for value in list {
            request = request.header("CDN-Loop", value);
        }
        Ok(client.send(&request)?.status)
    };
    let asked_with = || {
        origin
            .requests()
            .last()
            .map(|asked| asked.header("CDN-Loop").unwrap_or("-").to_string())
    };
    assert_eq!(status("/a", &[])?, 200);
    assert_eq!(asked_with().as_deref(), Some("edge.example"));
    assert_eq!(status("/a", &["one;x=\"a, b\"", "two"])?, 200);
    assert_eq!(
        asked_with().as_deref(),
        Some("one;x=\"a, b\", two, edge.example")
    );
    assert_eq!(status("/a", &["one, Edge.Example;v=1"])?, 508);
    assert_eq!(status("/twice/a", &["edge.example, edge.example"])?, 200);
    assert_eq!(
        status("/twice/a", &["edge.example, edge.example, edge.example"])?,
        508
    );
    assert_eq!(status("/off/a", &["edge.example"])?, 200);
    assert_eq!(asked_with().as_deref(), Some("edge.example"));
    Ok(())
}

/// A cache that asks itself for what it is fetching already does not wait for itself.
#[test]
fn a_circle_through_one_cache_is_broken_at_once() -> Result<()> {
    let origin = Origin::start()?;
    let proxy = Proxy::new(Kind::Millpond, CONF).origin(&origin).start()?;
    let client = Client::new(proxy.port());
    assert_eq!(client.get("/self/a")?.status, 508);
    Ok(())
}
