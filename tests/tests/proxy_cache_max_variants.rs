//! Variants: which requests share one, how many a key may have (`proxy_cache_max_variants`), and
//! what removes them.

use anyhow::Result;
use millpond_testkit::{Answer, Client, Kind, Origin, Proxy, Request};

const CONF: &str = "
    proxy_cache_path %%DIR%%/cache keys_zone=z:1m max_size=16m;
    server {
        listen 127.0.0.1:%%PORT%%;
        proxy_cache z;
        proxy_cache_key $uri;
        add_header X-Cache $upstream_cache_status always;
        add_header X-Why $cache_status_reason always;
        location / { proxy_pass http://%%ORIGIN%%; }
        location /one/ { proxy_pass http://%%ORIGIN%%; proxy_cache_max_variants 1; }
        location /three/ { proxy_pass http://%%ORIGIN%%; proxy_cache_max_variants 3; }
        location /rfc/ {
            proxy_pass http://%%ORIGIN%%;
            proxy_cache_conformance rfc9111;
        }
    }";

/// An answer that differs by `name`, and says what the request had there.
fn vary_by(origin: &Origin, name: &'static str) {
    origin.answer_with("/*", move |request| {
        let value = request.header(name).unwrap_or("-");
        Answer::new(200)
            .header("Cache-Control", "max-age=1000")
            .header("Vary", name)
            .body(value)
    });
}

/// Label and body of a request with a field.
fn get(client: &Client, path: &str, (name, value): (&str, &str)) -> Result<String> {
    let response = client.send(&Request::get(path).header(name, value))?;
    let label = response.header("X-Cache").unwrap_or("-").to_string();
    Ok(format!("{label} {}", response.text()))
}

/// A browser's codings are one variant, however they are written.
#[test]
fn codings_that_mean_the_same_are_one_variant() -> Result<()> {
    let origin = Origin::start()?;
    vary_by(&origin, "Accept-Encoding");
    let proxy = Proxy::new(Kind::Millpond, CONF).origin(&origin).start()?;
    let client = Client::new(proxy.port());
    let get = |value| get(&client, "/a", ("Accept-Encoding", value));
    assert_eq!(get("gzip, deflate, br")?, "MISS gzip, deflate, br");
    for value in ["br,gzip", "GZip;q=0.2, br", "br, gzip, identity"] {
        assert_eq!(get(value)?, "HIT gzip, deflate, br");
    }
    for value in ["gzip", "gzip, br;q=0, identity;q=0", "*"] {
        assert_eq!(get(value)?, format!("MISS {value}"));
    }
    assert_eq!(client.get("/a")?.header("X-Cache"), Some("MISS"));
    // As in nginx, an empty field is as none.
    assert_eq!(get("")?, "HIT -");
    assert_eq!(get("identity")?, "MISS identity");
    Ok(())
}

/// The least recently used goes; with room for one, others are passed on, and say why.
#[test]
fn a_key_has_no_more_variants_than_it_may() -> Result<()> {
    let origin = Origin::start()?;
    vary_by(&origin, "X-Kind");
    let proxy = Proxy::new(Kind::Millpond, CONF).origin(&origin).start()?;
    let client = Client::new(proxy.port());
    for number in 0..20 {
        let value = number.to_string();
        let answer = get(&client, "/three/a", ("X-Kind", &value))?;
        assert_eq!(answer, format!("MISS {number}"));
    }
    assert_eq!(get(&client, "/three/a", ("X-Kind", "0"))?, "HIT 0");
    assert_eq!(get(&client, "/three/a", ("X-Kind", "19"))?, "HIT 19");
    assert_eq!(get(&client, "/three/a", ("X-Kind", "5"))?, "MISS 5");
    assert_eq!(get(&client, "/one/a", ("X-Kind", "0"))?, "MISS 0");
    for _ in 0..2 {
        let other = client.send(&Request::get("/one/a").header("X-Kind", "1"))?;
        assert_eq!(other.header("X-Cache"), Some("MISS"));
        assert_eq!(other.header("X-Why"), Some("variants"));
    }
    assert_eq!(get(&client, "/one/a", ("X-Kind", "0"))?, "HIT 0");
    Ok(())
}

/// RFC 9111 §4.4: what is invalidated is invalidated in all variants.
#[test]
fn an_unsafe_method_invalidates_all_variants() -> Result<()> {
    let origin = Origin::start()?;
    vary_by(&origin, "Accept-Language");
    let proxy = Proxy::new(Kind::Millpond, CONF).origin(&origin).start()?;
    let client = Client::new(proxy.port());
    let get = |value| get(&client, "/rfc/a", ("Accept-Language", value));
    for value in ["de, en", "fr"] {
        assert_eq!(get(value)?, format!("MISS {value}"));
    }
    assert_eq!(get("EN,de")?, "HIT de, en");
    assert_eq!(get("fr")?, "HIT fr");
    client.send(&Request::post("/rfc/a", "x"))?;
    for value in ["de, en", "fr"] {
        assert_eq!(get(value)?, format!("MISS {value}"));
    }
    Ok(())
}
