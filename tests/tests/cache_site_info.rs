//! `cache_site_info`: what is written of a site stands beside its counters.

use anyhow::{Context, Result, ensure};
use millpond_testkit::{Answer, Client, Deadline, Kind, LogCheck, Origin, Proxy, Request};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

const CONF: &str = "
%%GLOBALS%%
control unix:%%DIR%%/control;
events { }
http {
    %%HTTP%%
    cache_site_info %%DIR%%/sites.toml;
    server {
        listen 127.0.0.1:%%PORT%%;
        server_name other.example;
        location / { proxy_pass http://%%ORIGIN%%; cache_site $host; }
    }
}
";

const WAIT: Duration = Duration::from_secs(20);

/// Facts that are told of a site beside its counters.
fn info(proxy: &Proxy, site: &str) -> Result<Value> {
    let mut stream = UnixStream::connect(proxy.dir().join("control"))?;
    stream
        .write_all(b"GET /api/millpond/1/sites HTTP/1.1\r\nHost: m\r\nConnection: close\r\n\r\n")?;
    let mut said = String::new();
    stream.read_to_string(&mut said)?;
    ensure!(said.starts_with("HTTP/1.1 200"), "{said}");
    let (_, body) = said.split_once("\r\n\r\n").context("a body")?;
    let body: Value = serde_json::from_str(body)?;
    let all = body["sites"].as_array().context("sites")?;
    let found = all.iter().find(|found| found["site"] == site);
    Ok(found.context("the site")?["info"].clone())
}

#[test]
fn a_file_that_is_broken_changes_nothing_until_it_is_right() -> Result<()> {
    let origin = Origin::start()?;
    origin.route("/*", Answer::new(200).body("x"));
    let proxy = Proxy::new(Kind::Millpond, CONF)
        .origin(&origin)
        .file(
            "sites.toml",
            "[\"Shop.example\"]\nowner = \"Shop Ltd\"\nplan = \"gold\"\n",
        )
        .log_check(LogCheck::Off)
        .start()?;
    let client = Client::new(proxy.port());
    for host in ["shop.example", "other.example"] {
        client.send(&Request::get("/").host(host))?;
    }
    let gold = json!({"owner": "Shop Ltd", "plan": "gold"});
    let is = |expected: &Value| {
        let is = || (info(&proxy, "shop.example").ok()? == *expected).then_some(());
        let found = Deadline::after(WAIT).poll(is);
        found.with_context(|| format!("{expected}: {:?}", info(&proxy, "shop.example")))
    };
    // An answer is counted after its last byte.
    is(&gold)?;
    let others = || info(&proxy, "other.example").ok();
    let others = Deadline::after(WAIT).poll(others).context("the other")?;
    assert_eq!(others, Value::Null);

    proxy.write_file("sites.toml", "[\"shop.example\"]\nowner = \n")?;
    proxy.reload()?;
    let told = || proxy.error_log().contains("cache_site_info").then_some(());
    Deadline::after(WAIT).poll(told).context("a line")?;
    let log = proxy.error_log();
    assert!(
        log.contains("invalid TOML") && log.contains("line 2"),
        "{log}"
    );
    is(&gold)?;

    proxy.write_file("sites.toml", "[\"shop.example\"]\nplan = \"tin\"\n")?;
    proxy.reload()?;
    is(&json!({"plan": "tin"}))
}
