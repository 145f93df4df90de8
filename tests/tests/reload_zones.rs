//! State that is kept in memory and on disk over a reload: entries of cache zones, tables of
//! limits.

use anyhow::{Context, Result};
use millpond_testkit::{Answer, Client, Deadline, Kind, LogCheck, Origin, Proxy};
use std::time::Duration;

const WAIT: Duration = Duration::from_secs(20);
const WARM: usize = 20;

/// A configuration with what stands before the server, and a generation that it tells.
fn conf(before: &str, cache: &str, generation: &str) -> String {
    format!(
        "{before}
        server {{
            listen 127.0.0.1:%%PORT%%;
            add_header X-Cache $upstream_cache_status;
            location / {{ proxy_pass http://%%ORIGIN%%; {cache} proxy_cache_valid 200 1h; }}
            location /generation {{ return 200 {generation}; }}
        }}"
    )
}

/// A zone with other parameters than `%%DIR%%/cache keys_zone=NAME:1m` alone.
fn zone(name: &str, parameters: &str) -> String {
    format!("proxy_cache_path %%DIR%%/cache keys_zone={name}:1m {parameters};")
}

fn start(conf: &str, log_check: LogCheck) -> Result<(Origin, Proxy)> {
    let origin = Origin::start()?;
    origin.route("/*", Answer::new(200).offset_body(50_000, 1));
    let proxy = Proxy::new(Kind::Millpond, conf)
        .origin(&origin)
        .log_check(log_check)
        .start()?;
    Ok((origin, proxy))
}

/// Reloads, and waits until the generation answers.
fn reload(proxy: &mut Proxy, conf: &str, generation: &str) -> Result<()> {
    proxy.set_conf(conf)?;
    proxy.reload()?;
    let client = Client::new(proxy.port());
    let answers = || Some(client.get("/generation").ok()?.text());
    Deadline::after(WAIT)
        .poll(|| answers().filter(|text| text == generation))
        .with_context(|| format!("generation {generation} does not come"))?;
    Ok(())
}

/// Reloads, and waits until the error log says that it came to nothing.
fn reload_in_vain(proxy: &mut Proxy, conf: &str, message: &str) -> Result<()> {
    proxy.set_conf(conf)?;
    proxy.reload()?;
    let says = || proxy.error_log().contains(message).then_some(());
    Deadline::after(WAIT)
        .poll(says)
        .with_context(|| format!("nobody says {message}"))
}

/// Number of the entries that are hits.
fn hits(proxy: &Proxy) -> Result<usize> {
    let client = Client::new(proxy.port());
    let mut hits = 0;
    for number in 0..WARM {
        let response = client.get(&format!("/{number}"))?;
        assert_eq!(response.status, 200);
        hits += usize::from(response.header("X-Cache") == Some("HIT"));
    }
    Ok(hits)
}

/// A zone gets other parameters, and another name, at once, and nothing is lost.
#[test]
fn zone_keeps_its_entries_when_its_parameters_change() -> Result<()> {
    let with = |name: &str, parameters: &str, generation: &str| {
        let cache = format!("proxy_cache {name};");
        conf(&zone(name, parameters), &cache, generation)
    };
    let (_origin, mut proxy) = start(&with("z", "max_size=64m", "g0"), LogCheck::On)?;
    assert_eq!(hits(&proxy)?, 0);
    for (turn, (name, parameters)) in [
        ("z", "max_size=16m inactive=1h"),
        ("z", "inactive=30m min_free=1m memory=64k"),
        ("z", "max_size=128m memory=0"),
        ("renamed", "max_size=128m memory=8m"),
        ("renamed", ""),
    ]
    .into_iter()
    .enumerate()
    {
        let generation = format!("g{}", turn + 1);
        reload(
            &mut proxy,
            &with(name, parameters, &generation),
            &generation,
        )?;
        assert_eq!(hits(&proxy)?, WARM, "{parameters}");
    }
    reload(
        &mut proxy,
        &with("renamed", "max_size=512k", "small"),
        "small",
    )?;
    assert!(hits(&proxy)? < WARM, "a smaller limit is kept");
    proxy.quit()
}

/// A zone that goes and comes back finds what it had, at once.
#[test]
fn zone_that_comes_back_is_warm() -> Result<()> {
    let with = conf(&zone("z", "max_size=64m"), "proxy_cache z;", "with");
    let without = conf("", "", "without");
    let (_origin, mut proxy) = start(&with, LogCheck::On)?;
    hits(&proxy)?;
    for _ in 0..5 {
        reload(&mut proxy, &without, "without")?;
        reload(&mut proxy, &with, "with")?;
        assert_eq!(hits(&proxy)?, WARM);
    }
    proxy.quit()
}

/// A reload under which one zone cannot be opened leaves another one its parameters.
#[test]
fn failed_reload_changes_no_zone() -> Result<()> {
    let good = conf(&zone("z", "max_size=64m"), "proxy_cache z;", "good");
    let (_origin, mut proxy) = start(&good, LogCheck::Off)?;
    hits(&proxy)?;
    let bad = format!(
        "{} proxy_cache_path %%DIR%%/nginx.conf/x keys_zone=y:1m;",
        zone("z", "max_size=64k")
    );
    let bad = conf(&bad, "proxy_cache z;", "bad");
    reload_in_vain(&mut proxy, &bad, "mkdir()")?;
    assert_eq!(hits(&proxy)?, WARM);
    let text = Client::new(proxy.port()).get("/generation")?.text();
    assert_eq!(text, "good");
    proxy.quit()
}

/// A limit goes on counting where it was, unless its size changes; another key is refused.
#[test]
fn limits_keep_their_state() -> Result<()> {
    let limited = |key: &str, parameters: &str, generation: &str| {
        let zone = format!("limit_req_zone {key} zone=l:{parameters};");
        conf(&zone, "limit_req zone=l;", generation)
    };
    let (_origin, mut proxy) = start(&limited("$uri", "1m rate=1r/m", "g0"), LogCheck::Off)?;
    let status = |proxy: &Proxy| -> Result<u16> { Ok(Client::new(proxy.port()).get("/a")?.status) };
    assert_eq!(status(&proxy)?, 200);
    assert_eq!(status(&proxy)?, 503);
    for (parameters, generation, expected) in [
        ("1m rate=1r/m", "g1", 503),
        ("1m rate=2r/m", "g2", 503),
        ("2m rate=1r/m", "g3", 200),
    ] {
        let conf = limited("$uri", parameters, generation);
        reload(&mut proxy, &conf, generation)?;
        assert_eq!(status(&proxy)?, expected, "{parameters}");
    }
    let other = limited("$host", "2m rate=1r/m", "g4");
    let message =
        "limit_req \"l\" uses the \"$host\" key while previously it used the \"$uri\" key";
    reload_in_vain(&mut proxy, &other, message)?;
    assert_eq!(status(&proxy)?, 503);
    proxy.quit()
}
