//! `proxy_status_header`: errors that say what has failed (Proxy-Status, RFC 9209).

use std::time::Duration;

use anyhow::Result;
use millpond_testkit::{Answer, Client, Kind, Origin, Proxy};

const CONF: &str = "
    proxy_cache_path %%DIR%%/cache keys_zone=z:1m max_size=16m;
    resolver 127.0.0.1:%%PORT_DNS%% ipv6=off;
    resolver_timeout 1s;
    server {
        listen 127.0.0.1:%%PORT%%;
        proxy_status_header edge.example;
        proxy_cdn_loop edge.example;
        proxy_read_timeout 300ms;
        location / { proxy_pass http://%%ORIGIN%%; }
        location /cached/ { proxy_pass http://127.0.0.1:%%PORT_GONE%%/; proxy_cache z; }
        location /refused { proxy_pass http://127.0.0.1:%%PORT_GONE%%; }
        location /details { proxy_pass http://127.0.0.1:%%PORT_GONE%%; proxy_status_header on details; }
        location /off { proxy_pass http://127.0.0.1:%%PORT_GONE%%; proxy_status_header off; }
        location /page { proxy_pass http://127.0.0.1:%%PORT_GONE%%; error_page 502 /sorry; }
        location = /sorry { add_header X-Page yes always; return 200 sorry; }
        location /denied { deny all; }
        location /chosen { return 502; }
        location /named { set $name nowhere.example; proxy_pass http://$name; }
        location /circle { proxy_pass http://127.0.0.1:%%PORT%%; }
        location /plain { proxy_pass https://127.0.0.1:%%PORT%%; }
    }";

/// §2.3: each failure has its name, and nothing else has one.
#[test]
fn each_failure_is_told_by_its_name() -> Result<()> {
    let origin = Origin::start()?;
    origin.route("/fine", Answer::new(200).body("fine"));
    origin.route(
        "/missing",
        Answer::new(404).header("Proxy-Status", "other; error=dns_error"),
    );
    origin.route(
        "/slow",
        Answer::new(200).delay_head(Duration::from_secs(20)),
    );
    origin.route("/closes", Answer::raw(""));
    origin.route("/garbage", Answer::raw("no head of HTTP\r\n\r\n"));
    let proxy = Proxy::new(Kind::Millpond, CONF).origin(&origin).start()?;
    let client = Client::new(proxy.port());
    for (path, status, told) in [
        ("/fine", 200, None),
        ("/missing", 404, Some("other; error=dns_error")),
        (
            "/refused",
            502,
            Some("edge.example;error=connection_refused"),
        ),
        (
            "/cached/a",
            502,
            Some("edge.example;error=connection_refused"),
        ),
        (
            "/slow",
            504,
            Some("edge.example;error=connection_read_timeout"),
        ),
        (
            "/closes",
            502,
            Some("edge.example;error=connection_terminated"),
        ),
        (
            "/garbage",
            502,
            Some("edge.example;error=http_protocol_error"),
        ),
        ("/named", 502, Some("edge.example;error=dns_error")),
        ("/plain", 502, Some("edge.example;error=tls_protocol_error")),
        (
            "/circle",
            508,
            Some("edge.example;error=proxy_loop_detected"),
        ),
        ("/off", 502, None),
        ("/denied", 403, None),
        ("/chosen", 502, None),
    ] {
        let response = client.get(path)?;
        let line = response.header("Proxy-Status");
        assert_eq!((response.status, line), (status, told), "{path}");
    }
    Ok(())
}

/// A page that stands for an error keeps its field, and details are told only where they are asked
/// for.
#[test]
fn pages_keep_it_and_details_are_asked_for() -> Result<()> {
    let origin = Origin::start()?;
    let proxy = Proxy::new(Kind::Millpond, CONF).origin(&origin).start()?;
    let client = Client::new(proxy.port());
    let page = client.get("/page")?;
    assert_eq!((page.status, page.header("X-Page")), (502, Some("yes")));
    let told = page.header("Proxy-Status");
    assert_eq!(told, Some("edge.example;error=connection_refused"));
    let details = client.get("/details")?;
    assert_eq!(
        details.header("Proxy-Status"),
        Some(
            "millpond;error=connection_refused;details=\"connect() failed (111: Connection \
             refused) while connecting to upstream\""
        )
    );
    Ok(())
}
