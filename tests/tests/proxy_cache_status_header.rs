//! `proxy_cache_status_header`, `$cache_status_reason`: what clients and logs are told of the cache
//! (RFC 9211).

use anyhow::Result;
use millpond_testkit::{Answer, Client, Kind, Origin, Proxy, Request};

const CONF: &str = "
    proxy_cache_path %%DIR%%/cache keys_zone=z:1m max_size=16m;
    server {
        listen 127.0.0.1:%%PORT%%;
        proxy_cache z;
        proxy_cache_key $uri$is_args$args;
        proxy_cache_bypass $http_x_bypass;
        proxy_cache_valid 404 1m;
        proxy_cache_status_header on;
        proxy_cache_revalidate on;
        proxy_cache_use_stale error http_500;
        add_header X-Why $cache_status_reason always;
        location / { proxy_pass http://%%ORIGIN%%; }
        location /named/ {
            proxy_pass http://%%ORIGIN%%/;
            proxy_cache_status_header \"edge $server_name\" key;
        }
        location /off/ { proxy_pass http://%%ORIGIN%%/; proxy_cache_status_header off; }
        location /rfc/ { proxy_pass http://%%ORIGIN%%/; proxy_cache_conformance rfc9111; }
    }";

struct Bench {
    origin: Origin,
    _proxy: Proxy,
    client: Client,
}

fn bench() -> Result<Bench> {
    let origin = Origin::start()?;
    let proxy = Proxy::new(Kind::Millpond, CONF).origin(&origin).start()?;
    let client = Client::new(proxy.port());
    Ok(Bench {
        origin,
        _proxy: proxy,
        client,
    })
}

impl Bench {
    /// Cache-Status and reason of a request.
    fn told(&self, request: &Request) -> Result<(String, String)> {
        let response = self.client.send(request)?;
        let field = |name| response.header(name).unwrap_or("-").to_string();
        Ok((field("Cache-Status"), field("X-Why")))
    }

    fn get(&self, path: &str) -> Result<(String, String)> {
        self.told(&Request::get(path))
    }
}

fn pair(status: &str, why: &str) -> (String, String) {
    (status.to_string(), why.to_string())
}

/// §2.2 to §2.5: why requests went on, and what became of their answers.
#[test]
fn the_way_of_a_request_is_told() -> Result<()> {
    let bench = bench()?;
    let answer = |control: &str| Answer::new(200).header("Cache-Control", control).body("b");
    bench.origin.route("/a", answer("max-age=1000"));
    bench.origin.route("/no", answer("no-store"));
    bench
        .origin
        .route("/cookie", answer("max-age=9").header("Set-Cookie", "a=b"));
    bench
        .origin
        .route("/vary", answer("max-age=1000").header("Vary", "X-Kind"));
    let miss = pair(
        "millpond;fwd=uri-miss;fwd-status=200;stored;ttl=1000",
        "uri-miss",
    );
    assert_eq!(bench.get("/a")?, miss);
    let (status, why) = bench.get("/a")?;
    assert!(status.starts_with("millpond;hit;ttl="), "{status}");
    assert_eq!(why, "fresh");
    let bypass = Request::get("/a").header("X-Bypass", "1");
    let (status, why) = bench.told(&bypass)?;
    assert_eq!(why, "bypass");
    assert_eq!(status, "millpond;fwd=bypass;fwd-status=200;stored;ttl=1000");
    assert_eq!(
        bench.get("/no")?,
        pair(
            "millpond;fwd=uri-miss;fwd-status=200;detail=no-store",
            "no-store"
        )
    );
    assert_eq!(bench.get("/cookie")?.1, "set-cookie");
    bench.get("/vary")?;
    let other = Request::get("/vary").header("X-Kind", "other");
    assert_eq!(bench.told(&other)?.1, "vary-miss");
    let (status, why) = bench.told(&Request::post("/a", "x"))?;
    assert_eq!(
        (&status[..], &why[..]),
        ("millpond;fwd=method;fwd-status=200", "method")
    );
    Ok(())
}

/// A validation, a failure behind a stale answer, and a client that wants a fresh one validated.
#[test]
fn what_becomes_of_stored_answers_is_told() -> Result<()> {
    let bench = bench()?;
    let stale = Answer::new(200)
        .header("X-Accel-Expires", "@1")
        .etag("\"v\"")
        .body("old");
    let unchanged = Answer::new(304).header("Cache-Control", "max-age=1000");
    let failing = Answer::new(500);
    let script = vec![stale.clone(), failing, unchanged];
    bench.origin.sequence("/s", script);
    bench.get("/s")?;
    let (status, why) = bench.get("/s")?;
    assert!(
        status.starts_with("millpond;fwd=stale;fwd-status=500;ttl=-"),
        "{status}"
    );
    assert!(status.ends_with(";detail=stale-if-error"), "{status}");
    assert_eq!(why, "stale-if-error");
    let renewed = pair("millpond;fwd=stale;fwd-status=304;ttl=1000", "not-modified");
    assert_eq!(bench.get("/s")?, renewed);
    bench.origin.sequence("/down", vec![stale, Answer::raw("")]);
    bench.get("/down")?;
    let (status, _) = bench.get("/down")?;
    assert!(status.starts_with("millpond;fwd=stale;ttl=-"), "{status}");
    let fresh = Answer::new(200).header("Cache-Control", "max-age=1000");
    bench.origin.route("/f", fresh);
    let (status, _) = bench.get("/rfc/f")?;
    assert!(status.ends_with(";stored;ttl=1000"), "{status}");
    let demanding = Request::get("/rfc/f").header("Cache-Control", "no-cache");
    assert_eq!(bench.told(&demanding)?.1, "request");
    Ok(())
}

/// §2: the name is ours to choose, and each cache adds its member at the end.
#[test]
fn members_of_other_caches_come_first() -> Result<()> {
    let bench = bench()?;
    let behind = Answer::new(200)
        .header("Cache-Control", "max-age=1000")
        .header("Cache-Status", "inner; hit")
        .header("Cache-Status", "middle; fwd=miss");
    bench.origin.route("/a", behind);
    let (status, _) = bench.get("/named/a?x=1")?;
    assert_eq!(
        status,
        "inner; hit, middle; fwd=miss, \"edge \";fwd=uri-miss;fwd-status=200;stored;ttl=1000;\
         key=\"/named/a?x=1\""
    );
    let (status, why) = bench.get("/off/a")?;
    assert_eq!((&status[..], &why[..]), ("inner; hit", "uri-miss"));
    Ok(())
}
