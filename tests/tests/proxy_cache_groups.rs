//! `proxy_cache_groups`: answers that their origin groups, and purges by its word (RFC 9875).

use anyhow::Result;
use millpond_testkit::{Answer, Client, Kind, Origin, Proxy, Request};

const CONF: &str = "
    proxy_cache_path %%DIR%%/cache keys_zone=z:1m max_size=16m;
    proxy_cache z;
    proxy_cache_key $host$uri;
    proxy_cache_valid 1h;
    add_header X-Cache $upstream_cache_status always;
    server {
        listen 127.0.0.1:%%PORT%%;
        proxy_cache_groups on;
        location / { proxy_pass http://%%ORIGIN%%; }
        location /off/ { proxy_pass http://%%ORIGIN%%/; proxy_cache_groups off; }
        location /rfc/ { proxy_pass http://%%ORIGIN%%/; proxy_cache_conformance rfc9111; }
    }";

/// A site with pages in groups, and a cache before it that has them.
struct Site {
    client: Client,
    _proxy: Proxy,
    origin: Origin,
}

const PAGES: [(&str, &str); 5] = [
    ("/a", "\"x\", \"y z\""),
    ("/b", "\"y z\";v=1"),
    ("/c", "\"Y z\""),
    ("/malformed", "\"y z\", nothing"),
    ("/alone", ""),
];

impl Site {
    fn start() -> Result<Self> {
        let origin = Origin::start()?;
        for (path, groups) in PAGES {
            origin.route(
                path,
                Answer::new(200).header("Cache-Groups", groups).body(path),
            );
        }
        let proxy = Proxy::new(Kind::Millpond, CONF).origin(&origin).start()?;
        let site = Site {
            client: Client::new(proxy.port()),
            _proxy: proxy,
            origin,
        };
        for (path, _) in PAGES {
            assert_eq!(site.status_of(path, "one.example")?, "MISS");
            assert_eq!(site.status_of(path, "one.example")?, "HIT");
        }
        Ok(site)
    }

    /// The cache status of a page.
    fn status_of(&self, path: &str, host: &str) -> Result<String> {
        let response = self.client.send(&Request::get(path).host(host))?;
        Ok(response.header("X-Cache").unwrap_or("-").to_owned())
    }

    /// Asks for a change, which the origin answers with these groups.
    fn change(&self, (method, path): (&str, &str), status: u16, groups: &str) -> Result<()> {
        let name = path.rsplit_once('/').map_or(path, |(_, name)| name);
        let answer = Answer::new(status).header("Cache-Group-Invalidation", groups);
        self.origin
            .route(&format!("/{name}"), answer.body("changed"));
        let request = Request::new(method, path).host("one.example");
        assert_eq!(self.client.send(&request)?.status, status);
        Ok(())
    }

    /// The pages that are not found in the cache any more.
    fn missed(&self) -> Result<Vec<&'static str>> {
        let mut missed = Vec::new();
        for (path, _) in PAGES {
            match self.status_of(path, "one.example")?.as_str() {
                "MISS" => missed.push(path),
                status => assert_eq!(status, "HIT", "{path}"),
            }
        }
        Ok(missed)
    }
}

/// §3: what is in one of the groups is gone when the client has its answer; §2.1: names are
/// compared as they are written.
#[test]
fn a_change_purges_the_groups_that_its_answer_names() -> Result<()> {
    let site = Site::start()?;
    site.change(("POST", "/change"), 200, "\"w\", \"y z\"")?;
    assert_eq!(site.missed()?, ["/a", "/b"]);
    site.change(("DELETE", "/change"), 204, "\"x\"")?;
    assert_eq!(site.missed()?, ["/a"]);
    site.change(("PUT", "/rfc/change"), 303, "\"Y z\"")?;
    assert_eq!(site.missed()?, ["/c"]);
    Ok(())
}

/// §3: "MUST be ignored" on answers to safe methods; an error has changed nothing.
#[test]
fn safe_methods_errors_and_malformed_lists_purge_nothing() -> Result<()> {
    let site = Site::start()?;
    site.change(("GET", "/change"), 200, "\"y z\"")?;
    site.change(("OPTIONS", "/change"), 200, "\"y z\"")?;
    site.change(("POST", "/change"), 500, "\"y z\"")?;
    site.change(("POST", "/change"), 404, "\"y z\"")?;
    site.change(("POST", "/change"), 200, "\"y z\", nothing")?;
    site.change(("POST", "/off/change"), 200, "\"y z\"")?;
    assert_eq!(site.missed()?, [""; 0]);
    Ok(())
}

/// §2.1: groups are those of one origin.
#[test]
fn groups_of_another_host_stay() -> Result<()> {
    let site = Site::start()?;
    for host in ["two.example", "one.example:8080"] {
        // The key has no port.
        let fresh = if host == "two.example" { "MISS" } else { "HIT" };
        assert_eq!(site.status_of("/a", host)?, fresh);
    }
    site.change(("POST", "/change"), 200, "\"y z\"")?;
    assert_eq!(site.status_of("/a", "two.example")?, "HIT");
    assert_eq!(site.missed()?, ["/a", "/b"]);
    Ok(())
}
