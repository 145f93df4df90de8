//! `cache_site`: who an entry belongs to, whoever finds it later.

use anyhow::{Context, Result};
use millpond_testkit::{Answer, Client, Deadline, Kind, Origin, Proxy, Request};
use std::time::Duration;

const CONF: &str = "
    proxy_cache_path %%DIR%%/cache keys_zone=z:1m max_size=100m;
    map $http_x_site $site { default $http_x_site; }
    log_format line \"$uri $cache_site\";
    access_log %%DIR%%/a.log line;
    proxy_cache z;
    proxy_cache_valid 1h;
    proxy_cache_purge PURGE from 127.0.0.1 types=site,host,tag,all;
    add_header X-Cache $upstream_cache_status;
    server {
        listen 127.0.0.1:%%PORT%%;
        server_name First.example second.example;
        location / { proxy_pass http://%%ORIGIN%%; cache_site $site; }
        location /plain { proxy_pass http://%%ORIGIN%%; }
        location /fixed { proxy_pass http://%%ORIGIN%%; cache_site \"One Two\"; }
    }";

const WAIT: Duration = Duration::from_secs(20);

struct Setup {
    proxy: Proxy,
    client: Client,
    _origin: Origin,
}

impl Setup {
    fn new() -> Result<Self> {
        let origin = Origin::start()?;
        for path in ["/a", "/b", "/plain", "/fixed"] {
            origin.route(path, Answer::new(200).body("x"));
        }
        let proxy = Proxy::new(Kind::Millpond, CONF).origin(&origin).start()?;
        let client = Client::new(proxy.port());
        Ok(Setup {
            proxy,
            client,
            _origin: origin,
        })
    }

    fn ask(&self, path: &str, site: &str) -> Result<String> {
        let request = Request::get(path).header("X-Site", site);
        let response = self.client.send(&request)?;
        let label = response.header("X-Cache");
        Ok(label.with_context(|| format!("{response:?}"))?.to_owned())
    }

    /// Site that the log has for the request for a path.
    fn site(&self, path: &str) -> Result<String> {
        let start = format!("{path} ");
        let found = || {
            let log = self.proxy.read_file("a.log");
            let line = log.lines().find(|line| line.starts_with(&start))?;
            line.strip_prefix(&start).map(str::to_owned)
        };
        let found = Deadline::after(WAIT).poll(found);
        found.with_context(|| format!("a line about {path}"))
    }
}

#[test]
fn a_site_is_what_the_directive_says_or_the_servers_name() -> Result<()> {
    let setup = Setup::new()?;
    for (path, given, expected) in [
        ("/a", "Shop", "shop"),
        ("/b", "", "first.example"),
        ("/plain", "Shop", "first.example"),
        ("/fixed", "Shop", "one_two"),
    ] {
        setup.ask(path, given)?;
        assert_eq!(setup.site(path)?, expected, "{path}");
    }
    Ok(())
}

#[test]
fn an_entry_belongs_to_the_site_that_filled_it() -> Result<()> {
    let setup = Setup::new()?;
    assert_eq!(setup.ask("/a", "one")?, "MISS");
    assert_eq!(setup.ask("/a", "two")?, "HIT");
    let purge = |site: &str| {
        let request = Request::new("PURGE", "/a").header("X-Site", site);
        setup.client.send(&request.header("Purge-Type", "site"))
    };
    purge("two")?;
    assert_eq!(setup.ask("/a", "two")?, "HIT");
    purge("ONE")?;
    assert_eq!(setup.ask("/a", "two")?, "MISS");
    purge("two")?;
    assert_eq!(setup.ask("/a", "one")?, "MISS");
    Ok(())
}
