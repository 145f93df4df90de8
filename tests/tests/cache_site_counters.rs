//! Counters of sites: equal to what clients got and origins were asked, over restarts and kills.

use anyhow::{Context, Result, ensure};
use millpond_testkit::{
    Answer, Client, Deadline, Kind, LogCheck, Origin, Protocol, Proxy, Request, sites_in_answer,
    sites_in_file,
};
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

const CONF: &str = "
%%GLOBALS%%
worker_processes 2;
control unix:%%DIR%%/control;
events { }
http {
    %%HTTP%%
    proxy_cache_path %%DIR%%/cache keys_zone=z:1m max_size=100m;
    proxy_cache_valid 200 1h;
    proxy_cache_key $host$uri;
    server {
        listen 127.0.0.1:%%PORT%%;
        location / { proxy_pass http://%%ORIGIN%%; proxy_cache z; cache_site $host; }
        location /free { proxy_pass http://%%ORIGIN%%; cache_site $host; }
    }
}
";

const WAIT: Duration = Duration::from_secs(20);
const SITES: usize = 5;

/// Counts that a site must have by our own account.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Account {
    requests: u64,
    bytes: u64,
    hits: u64,
    exchanges: u64,
}

/// Answer of the API about sites.
fn answer(proxy: &Proxy) -> Result<Value> {
    let mut stream = UnixStream::connect(proxy.dir().join("control"))?;
    stream
        .write_all(b"GET /api/millpond/1/sites HTTP/1.1\r\nHost: m\r\nConnection: close\r\n\r\n")?;
    let mut said = String::new();
    stream.read_to_string(&mut said)?;
    ensure!(said.starts_with("HTTP/1.1 200"), "{said}");
    let body = said
        .find('{')
        .and_then(|start| said.get(start..))
        .context("a body")?;
    Ok(serde_json::from_str(body)?)
}

fn sites(proxy: &Proxy) -> Result<BTreeMap<String, Account>> {
    let body = answer(proxy)?;
    let found = body["sites"]
        .as_array()
        .context("sites")?
        .iter()
        .map(|site| {
            let number = |value: &Value| value.as_u64().unwrap_or(0);
            let account = Account {
                requests: number(&site["requests"]),
                bytes: number(&site["bytes"]),
                hits: number(&site["answers"]["HIT"]["requests"]),
                exchanges: number(&site["origin"]["requests"]),
            };
            Ok((site["site"].as_str().context("a name")?.to_owned(), account))
        });
    found.collect()
}

/// Waits until the counters are as they must be: an answer is counted after its last byte.
fn settle(proxy: &Proxy, expected: &BTreeMap<String, Account>) -> Result<()> {
    let are_right = || (sites(proxy).ok()? == *expected).then_some(());
    let settled = Deadline::after(WAIT).poll(are_right);
    settled.with_context(|| format!("{:?} instead of {expected:?}", sites(proxy)))
}

/// Drives known traffic from several clients at once, and adds it to the account.
fn drive(
    proxy: (Protocol, u16),
    round: usize,
    account: &mut BTreeMap<String, Account>,
) -> Result<()> {
    let clients: Vec<_> = (0..SITES)
        .map(|number| {
            std::thread::spawn(move || -> Result<(String, Account)> {
                let (protocol, port) = proxy;
                let site = format!("site{number}.example");
                let mut connection = protocol.client(port).connect()?;
                let mut account = Account::default();
                for turn in 0..40 {
                    let path = match turn % 4 {
                        3 => "/free".to_string(),
                        _ => format!("/r{round}/{}", turn % 5),
                    };
                    let response = connection.exchange(&Request::get(&path).host(&site))?;
                    ensure!(response.status == 200, "{path}: {}", response.status);
                    account.requests += 1;
                    account.bytes += response.body.len() as u64;
                }
                // Five paths are asked for the first time; the others are hits, ten are not cached.
                account.hits = 40 - 10 - 5;
                account.exchanges = 15;
                Ok((site, account))
            })
        })
        .collect();
    for client in clients {
        let (site, more) = client.join().expect("a client does not panic")?;
        let sum = account.entry(site).or_default();
        sum.requests += more.requests;
        sum.bytes += more.bytes;
        sum.hits += more.hits;
        sum.exchanges += more.exchanges;
    }
    Ok(())
}

fn counters_are_exact_and_outlive_restarts_and_kills(protocol: Protocol) -> Result<()> {
    let origin = Origin::start()?;
    origin.route("/*", Answer::new(200).body("some bytes of a page"));
    let mut proxy = Proxy::new(Kind::Millpond, CONF)
        .over(protocol)
        .origin(&origin)
        .log_check(LogCheck::Off)
        .start()?;
    let mut account = BTreeMap::new();
    drive((protocol, proxy.port()), 0, &mut account)?;
    settle(&proxy, &account)?;
    proxy.quit()?;
    proxy.restart()?;
    settle(&proxy, &account)?;
    drive((protocol, proxy.port()), 1, &mut account)?;
    settle(&proxy, &account)?;
    let file = proxy.dir().join("cache.sites");
    let is_written = || {
        let counted = sites_in_answer(&answer(&proxy).ok()?);
        (counted == sites_in_file(&file).ok()?).then_some(())
    };
    Deadline::after(WAIT)
        .poll(is_written)
        .context("what was counted is written")?;
    proxy.kill9()?;
    proxy.restart()?;
    settle(&proxy, &account)?;
    drive((protocol, proxy.port()), 2, &mut account)?;
    settle(&proxy, &account)?;
    proxy.quit()
}

#[test]
fn counters_can_be_kept_elsewhere_or_not_at_all() -> Result<()> {
    let origin = Origin::start()?;
    origin.route("/*", Answer::new(200).body("x"));
    for (words, file, is_there) in [
        ("cache_site_counters %%DIR%%/mine;", "mine", true),
        ("cache_site_counters off;", "cache.sites", false),
    ] {
        let conf = CONF.replace("http {\n", &format!("http {{ {words}\n"));
        let mut proxy = Proxy::new(Kind::Millpond, &conf).origin(&origin).start()?;
        Client::new(proxy.port()).send(&Request::get("/a").host("one.example"))?;
        let counted = || {
            sites(&proxy)
                .ok()?
                .contains_key("one.example")
                .then_some(())
        };
        Deadline::after(WAIT).poll(counted).context(words)?;
        proxy.quit()?;
        assert_eq!(proxy.dir().join(file).exists(), is_there, "{words}");
    }
    Ok(())
}

millpond_testkit::each_protocol!(
    [Http1, Http2, Streams]
    counters_are_exact_and_outlive_restarts_and_kills,
);
