//! `proxy_cache_valid` with variables: how long an answer is fresh, told by the request and by the
//! answer itself.

use std::time::Duration;

use anyhow::{Context, Result};
use millpond_testkit::{Answer, Client, Deadline, Kind, LogCheck, Origin, Proxy, Response};

const CONF: &str = "
    proxy_cache_path %%DIR%%/cache keys_zone=z:1m max_size=64m;
    map $upstream_http_x_class $class_time {
        default '';
        short 10s;
        long 1d;
        never 0;
        wrong 'one day';
    }
    server {
        listen 127.0.0.1:%%PORT%%;
        proxy_cache z;
        proxy_cache_key $uri;
        add_header X-Cache $upstream_cache_status always;
        location / {
            proxy_pass http://%%ORIGIN%%;
            proxy_cache_valid any $class_time stale=$arg_stale;
            proxy_cache_valid 200 1h;
            proxy_cache_status_header on;
        }
        location /rfc/ {
            proxy_pass http://%%ORIGIN%%;
            proxy_cache_conformance rfc9111;
            proxy_cache_valid any $class_time;
            proxy_cache_status_header on;
        }
        location /dead/ {
            proxy_pass http://127.0.0.1:%%PORT_DEAD%%;
            proxy_cache_valid 502 $arg_time;
        }
    }";

/// Seconds that an answer is fresh, as the second request's Cache-Status tells; none if it was not
/// stored.
fn seconds(client: &Client, path: &str) -> Result<Option<u64>> {
    client.get(path)?;
    let again = client.get(path)?;
    let status = again.header("Cache-Status").unwrap_or_default().to_owned();
    if again.header("X-Cache") != Some("HIT") {
        return Ok(None);
    }
    let ttl = status
        .split(';')
        .find_map(|part| part.trim().strip_prefix("ttl="));
    Ok(ttl.and_then(|ttl| ttl.parse().ok()))
}

fn about(seconds: Option<u64>, expected: u64) -> bool {
    seconds.is_some_and(|it| it <= expected && it + 5 > expected)
}

/// The first answer that is not a hit any more.
fn no_longer_fresh(client: &Client, path: &str) -> Result<Response> {
    let look = || match client.get(path) {
        Ok(answer) if answer.header("X-Cache") == Some("HIT") => None,
        done => Some(done),
    };
    let looked = Deadline::after(Duration::from_secs(10)).poll(look);
    looked.context("it stays fresh")?
}

#[test]
fn an_answer_tells_its_class_and_the_map_how_long() -> Result<()> {
    let origin = Origin::start()?;
    for class in ["short", "long", "never", "wrong", "none"] {
        let answer = Answer::new(200).header("X-Class", class).body(class);
        origin.route(&format!("/{class}"), answer.clone());
        origin.route(&format!("/rfc/{class}"), answer.clone());
        let stated = answer.header("Cache-Control", "max-age=60");
        origin.route(&format!("/stated/{class}"), stated);
    }
    let proxy = Proxy::new(Kind::Millpond, CONF)
        .origin(&origin)
        .log_check(LogCheck::Off)
        .start()?;
    let client = Client::new(proxy.port());
    assert!(about(seconds(&client, "/short")?, 10));
    assert!(about(seconds(&client, "/long")?, 86_400));
    assert_eq!(seconds(&client, "/never")?, None);
    // A line that tells no time does not count: the next one does.
    assert!(about(seconds(&client, "/none")?, 3600));
    assert!(about(seconds(&client, "/wrong")?, 3600));
    let log = proxy.error_log();
    assert!(
        log.contains("proxy_cache_valid: \"one day\" is no time"),
        "{log}"
    );
    // The answer's own fields are stronger.
    assert!(about(seconds(&client, "/stated/long")?, 60));
    assert!(about(seconds(&client, "/rfc/long")?, 86_400));
    assert_eq!(seconds(&client, "/rfc/never")?, None);
    Ok(())
}

/// The times are read anew when a 304 makes the answer fresh again.
#[test]
fn a_validated_answer_has_the_time_of_its_304() -> Result<()> {
    let origin = Origin::start()?;
    let answer = Answer::new(200).header("ETag", "\"1\"").body("page");
    origin.route("/page", answer.header("X-Class", "short"));
    let conf = CONF.replace("short 10s", "short 1s").replace(
        "proxy_cache_valid any",
        "proxy_cache_revalidate on; proxy_cache_valid any",
    );
    let proxy = Proxy::new(Kind::Millpond, &conf).origin(&origin).start()?;
    let client = Client::new(proxy.port());
    client.get("/page")?;
    let unchanged = Answer::new(304).header("ETag", "\"1\"");
    origin.route("/page", unchanged.header("X-Class", "long"));
    let renewed = no_longer_fresh(&client, "/page")?;
    assert_eq!(renewed.header("X-Cache"), Some("REVALIDATED"));
    assert!(about(seconds(&client, "/page")?, 86_400));
    Ok(())
}

#[test]
fn a_request_tells_how_long_it_is_stale() -> Result<()> {
    let origin = Origin::start()?;
    origin.route(
        "/page",
        Answer::new(200).header("X-Class", "short").body("page"),
    );
    let conf = CONF.replace("short 10s", "short 1s").replace(
        "proxy_cache_valid any",
        "proxy_cache_background_update on; proxy_cache_valid any",
    );
    let proxy = Proxy::new(Kind::Millpond, &conf).origin(&origin).start()?;
    let client = Client::new(proxy.port());
    client.get("/page?stale=1h")?;
    let stale = no_longer_fresh(&client, "/page?stale=1h")?;
    assert_eq!(stale.header("X-Cache"), Some("STALE"));
    Ok(())
}

/// nginx remembers 502 of its own for as long as the line says.
#[test]
fn a_failure_is_remembered_for_as_long_as_is_told() -> Result<()> {
    let origin = Origin::start()?;
    let proxy = Proxy::new(Kind::Millpond, CONF).origin(&origin).start()?;
    let client = Client::new(proxy.port());
    let asked = |path: &str| -> Result<Option<String>> {
        client.get(path)?;
        let again = client.get(path)?;
        assert_eq!(again.status, 502);
        Ok(again.header("X-Cache").map(str::to_owned))
    };
    assert_eq!(asked("/dead/told?time=1h")?.as_deref(), Some("HIT"));
    assert_eq!(asked("/dead/none")?.as_deref(), Some("MISS"));
    Ok(())
}

#[test]
fn a_time_that_is_none_is_refused_at_start() {
    let conf = CONF.replace("$class_time", "soon");
    let Err(error) = Proxy::new(Kind::Millpond, &conf)
        .value("ORIGIN", "127.0.0.1:1")
        .start()
    else {
        panic!("it starts");
    };
    let said = format!("{error:#}");
    assert!(said.contains("invalid time value \"soon\""), "{said}");
}
