//! `early_hints`: interim answers of the origin on their way to clients, and not into the cache.

use anyhow::Result;
use millpond_testkit::{Answer, Client, Kind, Origin, Proxy, Request, Response};

const CONF: &str = "
    proxy_cache_path %%DIR%%/cache keys_zone=z:1m max_size=16m;
    server {
        listen 127.0.0.1:%%PORT%%;
        location / { proxy_pass http://%%ORIGIN%%; }
        location /on/ {
            proxy_pass http://%%ORIGIN%%/;
            early_hints \"\" $arg_hints;
            proxy_hide_header X-Secret;
        }
        location /cached/ {
            proxy_pass http://%%ORIGIN%%/;
            proxy_cache z;
            proxy_cache_valid 200 1h;
            early_hints 1;
        }
        location /rfc/ {
            proxy_pass http://%%ORIGIN%%/;
            proxy_cache z;
            proxy_cache_valid 200 1h;
            proxy_cache_conformance rfc9111;
            location /rfc/off/ {
                proxy_pass http://%%ORIGIN%%/;
                early_hints 0;
            }
        }
    }";

const FINAL: &str = "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nbody";
const HINTS: &str = "HTTP/1.1 103 \r\nLink: </a.css>; rel=preload\r\nX-Secret: s\r\n\
                     Connection: X-Hop\r\nX-Hop: h\r\nServer: o\r\n\r\n";

fn bench() -> Result<(Origin, Proxy, Client)> {
    let origin = Origin::start()?;
    let proxy = Proxy::new(Kind::Millpond, CONF).origin(&origin).start()?;
    let client = Client::new(proxy.port());
    Ok((origin, proxy, client))
}

/// Statuses of the interim answers before a response.
fn interim(response: &Response) -> Vec<u16> {
    response.interim.iter().map(|head| head.status).collect()
}

/// nginx: a value that is neither empty nor "0" lets a 103 through, without hidden fields.
#[test]
fn hints_are_passed_on_where_a_value_says_so() -> Result<()> {
    let (origin, _proxy, client) = bench()?;
    origin.route("/a", Answer::raw(format!("{HINTS}{FINAL}")));
    let hinted = client.get("/on/a?hints=1")?;
    assert_eq!((hinted.status, hinted.text()), (200, "body".to_string()));
    let head = &hinted.interim[0];
    let names: Vec<_> = head.fields.0.iter().map(|(name, _)| &name[..]).collect();
    assert_eq!((head.status, names), (103, vec!["Link"]));
    for path in ["/a", "/on/a", "/on/a?hints=0"] {
        assert_eq!(interim(&client.get(path)?), [0; 0], "{path}");
    }
    let old = client.send_raw(b"GET /on/a?hints=1 HTTP/1.0\r\n\r\n")?;
    assert_eq!((old[0].status, interim(&old[0])), (200, vec![]));
    Ok(())
}

/// nginx: hints are not an answer, and no longer than a head may be.
#[test]
fn hints_alone_too_long_or_empty_are_not_passed_on() -> Result<()> {
    let (origin, _proxy, client) = bench()?;
    let long = format!("HTTP/1.1 103 x\r\nLink: {}\r\n\r\n", "l".repeat(3000));
    for (path, hints, expected) in [
        ("/empty", "HTTP/1.1 103 x\r\n\r\n".to_string(), vec![]),
        ("/long", long.repeat(2), vec![103]),
        (
            "/other",
            "HTTP/1.1 102 x\r\nA: b\r\n\r\n".to_string(),
            vec![],
        ),
        ("/two", HINTS.repeat(2), vec![103, 103]),
    ] {
        origin.route(path, Answer::raw(format!("{hints}{FINAL}")));
        let response = client.get(&format!("/on{path}?hints=1"))?;
        let got = (response.status, interim(&response));
        assert_eq!(got, (200, expected), "{path}");
    }
    origin.route("/only", Answer::raw(HINTS));
    assert_eq!(client.get("/on/only?hints=1")?.status, 502);
    Ok(())
}

/// Hints belong to the request that asked the origin; a hit has none, and none of their fields.
#[test]
fn hints_are_not_stored() -> Result<()> {
    let (origin, _proxy, client) = bench()?;
    for mode in ["cached", "rfc"] {
        let name = format!("/of-{mode}");
        origin.route(&name, Answer::raw(format!("{HINTS}{FINAL}")));
        let path = format!("/{mode}{name}");
        assert_eq!(interim(&client.get(&path)?), [103], "{mode}");
        let hit = client.get(&path)?;
        assert_eq!(interim(&hit), [0; 0], "{mode}");
        assert_eq!((hit.header("Link"), hit.text()), (None, "body".to_string()));
    }
    Ok(())
}

/// RFC 9110 §15.2: what a proxy has not asked for itself, it passes on.
#[test]
fn under_the_rfcs_rules_all_but_100_are_passed_on() -> Result<()> {
    let (origin, _proxy, client) = bench()?;
    let processing = "HTTP/1.1 102 Processing\r\n\r\n";
    let go_on = "HTTP/1.1 100 Continue\r\n\r\n";
    let answer = format!("{processing}{go_on}{HINTS}{FINAL}");
    origin.route("/a", Answer::raw(&answer));
    let fresh = Request::get("/rfc/a").header("Cache-Control", "no-cache");
    assert_eq!(interim(&client.send(&fresh)?), [102, 103]);
    assert_eq!(interim(&client.get("/rfc/off/a")?), [0; 0]);
    Ok(())
}
