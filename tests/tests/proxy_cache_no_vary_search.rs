//! `proxy_cache_no_vary_search`: answers that are used for queries which their No-Vary-Search calls
//! equivalent, and for no others.

use anyhow::Result;
use millpond_testkit::{Answer, Client, Kind, Origin, Proxy, Request};

const CONF: &str = "
    proxy_cache_path %%DIR%%/cache keys_zone=z:1m max_size=16m;
    proxy_cache z;
    proxy_cache_valid any 1h;
    add_header X-Cache $upstream_cache_status always;
    add_header X-Reason $cache_status_reason always;
    proxy_cache_purge PURGE from 127.0.0.1;
    server {
        listen 127.0.0.1:%%PORT%%;
        proxy_cache_no_vary_search on;
        location / { proxy_pass http://%%ORIGIN%%; }
        location /args/ { proxy_pass http://%%ORIGIN%%; proxy_cache_key $host$uri$is_args$args; }
        location /whole/ { proxy_pass http://%%ORIGIN%%; proxy_cache_key $host$request_uri; }
        location /rfc/ { proxy_pass http://%%ORIGIN%%; proxy_cache_conformance rfc9111; }
        location /off/ { proxy_pass http://%%ORIGIN%%; proxy_cache_no_vary_search off; }
    }";

struct Site {
    client: Client,
    _proxy: Proxy,
    origin: Origin,
}

impl Site {
    /// An origin whose field is the one of the argument `nvs`, or else this one.
    fn start(field: &'static str) -> Result<Self> {
        let origin = Origin::start()?;
        origin.answer_with("/*", move |request| {
            let own = request
                .target
                .split_once("nvs=")
                .map(|(_, own)| own.replace('+', " "));
            let is_gone = request.path().ends_with("gone");
            let status = if is_gone { 404 } else { 200 };
            let answer = Answer::new(status).body(request.target.as_bytes());
            match own.as_deref().unwrap_or(field) {
                "" => answer,
                field => answer.header("No-Vary-Search", field),
            }
        });
        let proxy = Proxy::new(Kind::Millpond, CONF).origin(&origin).start()?;
        Ok(Site {
            client: Client::new(proxy.port()),
            _proxy: proxy,
            origin,
        })
    }

    fn get(&self, target: &str) -> Result<String> {
        let response = self.client.get(target)?;
        Ok(response.header("X-Cache").unwrap_or("-").to_owned())
    }

    /// Asks in turn, each with what is expected.
    fn expect(&self, asked: &[(&str, &str)]) -> Result<()> {
        for (target, expected) in asked {
            assert_eq!(self.get(target)?, *expected, "{target}");
        }
        Ok(())
    }
}

/// §6: a stored answer is used if the target URIs "match or are equivalent modulo URL variation
/// config".
#[test]
fn equivalent_queries_share_an_entry_once_the_origin_has_spoken() -> Result<()> {
    let site = Site::start("params=(\"utm\"), key-order")?;
    for path in ["/a", "/args/a", "/whole/a", "/rfc/a"] {
        site.expect(&[
            (&format!("{path}?b=2&utm=x&c=3"), "MISS"),
            // From here on it is known.
            (&format!("{path}?b=2&utm=x&c=3"), "MISS"),
            (&format!("{path}?c=3&b=2"), "HIT"),
            (&format!("{path}?c=3&utm=y&b=%32&utm"), "HIT"),
            (&format!("{path}?c=3&b=3"), "MISS"),
            (&format!("{path}?b=3&c=3&utm=z"), "HIT"),
            (path, "MISS"),
            (&format!("{path}?utm=1"), "HIT"),
            (&format!("{path}x?utm=1"), "MISS"),
        ])?;
    }
    // The origin is asked for what the client has asked for.
    let asked = site.origin.requests();
    assert!(asked.iter().any(|it| it.target == "/a?b=2&utm=x&c=3"));
    let head = site.client.send(&Request::head("/a?c=3&b=2&utm=h"))?;
    assert_eq!(head.header("X-Cache"), Some("HIT"));
    Ok(())
}

#[test]
fn where_it_is_off_or_nothing_is_said_every_query_is_its_own() -> Result<()> {
    let site = Site::start("except=(\"id\")")?;
    site.expect(&[
        ("/off/a?id=1", "MISS"),
        ("/off/a?id=1&x=1", "MISS"),
        ("/off/a?id=1&x=2", "MISS"),
    ])?;
    let silent = Site::start("")?;
    silent.expect(&[
        ("/a?id=1", "MISS"),
        ("/a?id=1&x=1", "MISS"),
        ("/a?id=1", "HIT"),
    ])?;
    let malformed = Site::start("params=(id)")?;
    malformed.expect(&[("/a?id=1", "MISS"), ("/a?id=2", "MISS"), ("/a?id=1", "HIT")])?;
    Ok(())
}

/// An entry is used for what its own field calls equivalent only.
#[test]
fn an_answer_that_says_something_else_is_not_stored_under_the_key_of_the_last_one() -> Result<()> {
    let site = Site::start("except=()")?;
    site.expect(&[("/a?x=1", "MISS"), ("/a?x=1", "MISS"), ("/a?x=2", "HIT")])?;
    // Another query, of which the origin says less: it is asked, by whatever is in the key.
    site.expect(&[("/b?x=1", "MISS"), ("/b?nvs=params=(\"x\")", "MISS")])?;
    let response = site.client.get("/b?y=1&nvs=params=(\"x\")")?;
    assert_eq!(response.header("X-Cache"), Some("MISS"));
    site.expect(&[("/b?y=1&x=2&nvs=params=(\"x\")", "HIT")])?;
    // An error says nothing of others, and is no answer to them.
    site.expect(&[("/gone?x=1&nvs=", "MISS"), ("/gone?x=2&nvs=", "MISS")])?;
    Ok(())
}

#[test]
fn purges_of_any_equivalent_uri_and_of_prefixes_find_the_entry() -> Result<()> {
    let site = Site::start("params=(\"utm\")")?;
    let purge = |target: &str, kind: &str| -> Result<u16> {
        let request = Request::new("PURGE", target).header("Purge-Type", kind);
        Ok(site.client.send(&request)?.status)
    };
    site.expect(&[
        ("/a?b&utm=1", "MISS"),
        ("/a?b&utm=1", "MISS"),
        ("/a?b&utm=2", "HIT"),
    ])?;
    assert_eq!(purge("/a?b&utm=3", "exact")?, 200);
    site.expect(&[("/a?b&utm=2", "MISS"), ("/a?b", "HIT")])?;
    assert!(purge("/a", "prefix")? < 300);
    site.expect(&[("/a?b", "MISS"), ("/a?utm=1&b", "HIT")])?;
    // Unsafe methods invalidate what is equivalent, too.
    site.expect(&[
        ("/rfc/a?b", "MISS"),
        ("/rfc/a?b", "MISS"),
        ("/rfc/a?b&utm=1", "HIT"),
    ])?;
    assert_eq!(
        site.client
            .send(&Request::post("/rfc/a?utm=5&b", "x"))?
            .status,
        200
    );
    site.expect(&[("/rfc/a?b", "MISS")])?;
    Ok(())
}
