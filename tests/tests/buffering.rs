//! `proxy_buffering`, `proxy_limit_rate`, X-Accel-Buffering: how answers are read from upstreams.
//!
//! Every fact holds for nginx, too, and is checked there when its binary is at hand.

use anyhow::Result;
use millpond_testkit::{Answer, Client, Kind, Origin, Proxy};
use std::time::{Duration, Instant};

const CONF: &str = "
    proxy_cache_path %%DIR%%/cache keys_zone=z:1m;
    server {
        listen 127.0.0.1:%%PORT%%;
        root %%DIR%%/root;
        proxy_cache z;
        proxy_cache_key $uri;
        proxy_cache_valid 1h;
        add_header X-Cache $upstream_cache_status;
        location / { proxy_pass http://%%ORIGIN%%; }
        location /off/ { proxy_pass http://%%ORIGIN%%; proxy_buffering off; }
        location /ignores/ {
            proxy_pass http://%%ORIGIN%%;
            proxy_ignore_headers X-Accel-Buffering;
        }
        location /store/ { proxy_pass http://%%ORIGIN%%; proxy_store on; proxy_buffering off; }
        location /slow/ { proxy_pass http://%%ORIGIN%%; proxy_limit_rate 5k; }
        location /slow/passed/ {
            proxy_pass http://%%ORIGIN%%;
            proxy_limit_rate 5k;
            proxy_cache off;
        }
        location /fill { proxy_pass http://%%ORIGIN%%; proxy_cache_key $arg_key; }
        # Nothing that this holds back comes while a client waits.
        location /crawl {
            proxy_pass http://%%ORIGIN%%;
            proxy_cache_key $arg_key;
            proxy_limit_rate 10;
        }
        location /crawl/off/ {
            proxy_pass http://%%ORIGIN%%;
            proxy_limit_rate 10;
            limit_rate 10;
            proxy_buffering off;
        }
    }";

fn everywhere(check: impl Fn(&Origin, &Proxy, &Client) -> Result<()>) -> Result<()> {
    for kind in Kind::both() {
        let origin = Origin::start()?;
        let proxy = Proxy::new(kind, CONF).origin(&origin).start()?;
        check(&origin, &proxy, &Client::new(proxy.port()))?;
    }
    Ok(())
}

#[test]
fn an_answer_that_is_not_read_ahead_is_not_kept() -> Result<()> {
    everywhere(|origin, proxy, client| {
        let answer = || Answer::new(200).body("body");
        origin.route("/*", answer());
        for (path, said, second) in [
            ("/yes", None, "HIT"),
            ("/no", Some("no"), "MISS"),
            ("/off/a", None, "MISS"),
            ("/off/yes", Some("Yes"), "HIT"),
            ("/ignores/no", Some("no"), "HIT"),
        ] {
            if let Some(said) = said {
                origin.route(path, answer().header("X-Accel-Buffering", said));
            }
            for status in ["MISS", second] {
                let response = client.get(path)?;
                assert_eq!(response.header("X-Cache"), Some(status), "{path}");
                assert_eq!(response.text(), "body", "{path}");
            }
        }
        client.get("/store/a")?;
        assert!(!proxy.dir().join("root/store/a").exists());
        Ok(())
    })
}

#[test]
fn what_is_read_ahead_is_read_no_faster_than_its_rate() -> Result<()> {
    everywhere(|origin, _, client| {
        origin.route("/*", Answer::new(200).body("x".repeat(12_000)));
        // nginx counts whole seconds of its clock.
        let least = Duration::from_millis(400);
        for path in ["/slow/a", "/slow/passed/a"] {
            let begun = Instant::now();
            assert_eq!(client.get(path)?.body.len(), 12_000, "{path}");
            assert!(begun.elapsed() >= least, "{path}");
        }
        client.get("/fill?key=a")?;
        let hit = client.get("/crawl?key=a")?;
        assert_eq!(hit.header("X-Cache"), Some("HIT"));
        assert_eq!(hit.body.len(), 12_000, "from the cache");
        let body = client.get("/crawl/off/a")?.body;
        assert_eq!(body.len(), 12_000, "not read ahead");
        Ok(())
    })
}
