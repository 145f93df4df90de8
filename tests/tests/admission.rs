//! `proxy_cache_path … admission=`: a full zone takes what is asked for twice, and on trial a tenth
//! of the rest; one with room takes everything at once.

use std::time::Duration;

use anyhow::{Context, Result};
use millpond_testkit::{Answer, Client, Deadline, Kind, Origin, Proxy};

const CONF: &str = "
    proxy_cache_path %%DIR%%/cache keys_zone=z:1m max_size=4m %%ADMISSION%%;
    server {
        listen 127.0.0.1:%%PORT%%;
        location / {
            proxy_pass http://%%ORIGIN%%;
            proxy_cache z;
            proxy_cache_valid 200 1h;
            add_header X-Cache $upstream_cache_status;
            add_header X-Why $cache_status_reason;
        }
    }";

fn asked(origin: &Origin, path: &str) -> usize {
    let requests = origin.requests();
    requests
        .iter()
        .filter(|request| request.path() == path)
        .count()
}

/// A proxy whose zone is full.
fn full(origin: &Origin, admission: &str) -> Result<Proxy> {
    origin.route("/*", Answer::new(200).body(vec![b'x'; 100_000]));
    let proxy = Proxy::new(Kind::Millpond, CONF)
        .origin(origin)
        .value("ADMISSION", admission)
        .start()?;
    let client = Client::new(proxy.port());
    for number in 0..60 {
        client.get(&format!("/fill/{number}"))?;
    }
    Ok(proxy)
}

/// Asks until the answer is a hit; the origin's requests until then.
fn until_hit(origin: &Origin, client: &Client, path: &str) -> Result<usize> {
    Deadline::after(Duration::from_secs(10))
        .poll(|| {
            let response = client.get(path).ok()?;
            (response.header("X-Cache") == Some("HIT")).then_some(())
        })
        .with_context(|| format!("{path} is never a hit"))?;
    Ok(asked(origin, path))
}

#[test]
fn a_full_zone_stores_at_the_second_request_if_it_is_told_so() -> Result<()> {
    let table = [
        ("admission=all", 1),
        ("admission=second-hit", 2),
        // Nothing was stored twice yet that would pay for it.
        ("admission=trial", 2),
        ("", 2),
    ];
    for (admission, requests) in table {
        let origin = Origin::start()?;
        let proxy = full(&origin, admission)?;
        let client = Client::new(proxy.port());
        assert_eq!(
            until_hit(&origin, &client, "/new")?,
            requests,
            "{admission}"
        );
    }
    Ok(())
}

/// Users of nginx expect that the second request is a hit: so it is, until something must leave.
#[test]
fn a_zone_with_room_stores_at_the_first_request() -> Result<()> {
    let origin = Origin::start()?;
    origin.route("/*", Answer::new(200).body(vec![b'x'; 100_000]));
    let proxy = Proxy::new(Kind::Millpond, CONF)
        .origin(&origin)
        .value("ADMISSION", "")
        .start()?;
    let client = Client::new(proxy.port());
    for number in 0..20 {
        let path = format!("/{number}");
        assert_eq!(until_hit(&origin, &client, &path)?, 1, "{path}");
    }
    Ok(())
}

#[test]
fn a_reload_changes_admission_where_the_zone_stands() -> Result<()> {
    let origin = Origin::start()?;
    let mut proxy = full(&origin, "admission=second-hit")?;
    let client = Client::new(proxy.port());
    let first = client.get("/new")?;
    assert_eq!(first.header("X-Why"), Some("min-uses"));
    proxy.set_conf(&CONF.replace("%%ADMISSION%%", "admission=all"))?;
    proxy.reload()?;
    // The new configuration answers as soon as the signal has come.
    let stores_at_once = |number: u32| {
        let path = format!("/new/{number}");
        let is_stored = client.get(&path).ok()?.header("X-Why") != Some("min-uses");
        is_stored.then_some(path)
    };
    let mut number = 0;
    let path = Deadline::after(Duration::from_secs(10)).poll(|| {
        number += 1;
        stores_at_once(number)
    });
    let path = path.context("the reload has no effect")?;
    assert_eq!(until_hit(&origin, &client, &path)?, 1);
    Ok(())
}
