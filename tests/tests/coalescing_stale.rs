//! Stale entries: updates that hold nobody, and an origin that is left alone when it fails.

use anyhow::{Context, Result};
use millpond_testkit::{
    Answer, Client, Connection, Deadline, Gate, Kind, Origin, Protocol, Proxy, Request, Response,
};
use rustix::process::Signal;
use std::time::{Duration, Instant};

const CONF: &str = "
    proxy_cache_path %%DIR%%/cache keys_zone=z:1m max_size=100m;
    add_header X-Cache $upstream_cache_status;
    proxy_cache z;
    server {
        listen 127.0.0.1:%%PORT%%;
        location /behind {
            proxy_pass http://%%ORIGIN%%;
            proxy_cache_use_stale updating;
            proxy_cache_background_update on;
        }
        location /failing {
            proxy_pass http://%%ORIGIN%%;
            proxy_cache_use_stale http_503;
            proxy_cache_refresh_backoff 10s;
        }
        location /eager {
            proxy_pass http://%%ORIGIN%%;
            proxy_cache_use_stale http_503;
            proxy_cache_refresh_backoff off;
        }
        location /fields {
            proxy_pass http://%%ORIGIN%%;
            proxy_cache_background_update on;
        }
    }";

/// Longer than a second of freshness, and than anything takes here.
const SOON: Duration = Duration::from_secs(10);

fn start(protocol: Protocol) -> Result<(Origin, Proxy, Client)> {
    let origin = Origin::start()?;
    let proxy = Proxy::new(Kind::Millpond, CONF)
        .over(protocol)
        .origin(&origin)
        .start()?;
    let client = protocol.client(proxy.port());
    Ok((origin, proxy, client))
}

/// An answer that is fresh for a second, and more of Cache-Control.
fn brief(body: &str, more: &str) -> Answer {
    let control = format!("max-age=1{more}");
    let answer = Answer::new(200).body(body);
    answer.header("Cache-Control", &control)
}

fn label(response: &Response) -> &str {
    response.header("X-Cache").unwrap_or_default()
}

/// Asks in HTTP/1.0 until the answer is labelled so, and gives it with its connection, which the
/// server is to close.
fn wait_for(client: &Client, path: &str, wanted: &str) -> Result<(Connection, Response)> {
    let look = || {
        let mut connection = client.connect().ok()?;
        let request = Request::get(path).header("Connection", "close");
        connection.ask(&request).ok()?;
        let response = connection.read_response("GET").ok()?;
        (label(&response) == wanted).then_some((connection, response))
    };
    let found = Deadline::after(SOON).poll(look);
    found.with_context(|| format!("{path} was never {wanted}"))
}

/// The client whose request began an update has its answer, and the end of its connection if it
/// reads to that, while the update waits for the origin; the window may be the configuration's or
/// the answer's own.
#[test]
fn an_update_holds_neither_a_client_nor_its_connection() -> Result<()> {
    for (path, more) in [("/behind", ""), ("/fields", ", stale-while-revalidate=60")] {
        let (origin, _proxy, client) = start(Protocol::Http1)?;
        let gate = Gate::new();
        let updated = Answer::new(200)
            .body("new")
            .header("Cache-Control", "max-age=60");
        origin.sequence(path, vec![brief("old", more), updated.hold_head(&gate)]);
        client.get(path)?;
        let (mut first, response) = wait_for(&client, path, "STALE")?;
        assert_eq!(response.text(), "old");
        assert!(first.is_closed_within(SOON)?, "{path}: the first is open");
        let (mut other, _) = wait_for(&client, path, "UPDATING")?;
        assert!(other.is_closed_within(SOON)?, "{path}: the other is open");
        gate.open();
        let (_, response) = wait_for(&client, path, "HIT")?;
        assert_eq!(response.text(), "new");
        assert_eq!(origin.requests().len(), 2, "{path}");
    }
    Ok(())
}

/// A graceful end lets idle clients go at once and the update finish: the next process has it.
fn an_update_outlives_its_client_at_a_graceful_end(protocol: Protocol) -> Result<()> {
    let (origin, mut proxy, client) = start(protocol)?;
    let gate = Gate::new();
    let updated = Answer::new(200)
        .body("new")
        .header("Cache-Control", "max-age=60");
    let answers = vec![brief("old", ""), updated.hold_head(&gate)];
    origin.sequence("/behind", answers);
    client.get("/behind")?;
    let request = Request::get("/behind");
    let mut kept = client.connect()?;
    let stale = Deadline::after(SOON).poll(|| {
        let response = kept.exchange(&request).ok()?;
        (label(&response) == "STALE").then_some(response)
    });
    assert_eq!(stale.context("never stale")?.text(), "old");
    origin.wait_for_requests(2)?;
    proxy.signal(Signal::QUIT)?;
    assert!(kept.is_closed_within(SOON)?, "the client is held");
    gate.open();
    proxy.restart()?;
    let (_, response) = wait_for(&client, "/behind", "HIT")?;
    assert_eq!(response.text(), "new");
    assert_eq!(origin.requests().len(), 2);
    Ok(())
}

/// After its second failure in a row an origin is left alone while the stale entry is served;
/// without a back-off each request asks.
fn a_failing_origin_is_left_alone(protocol: Protocol) -> Result<()> {
    for (path, asked) in [("/failing", 3), ("/eager", 21)] {
        let (origin, _proxy, client) = start(protocol)?;
        origin.sequence(path, vec![brief("old", ""), Answer::new(503)]);
        client.get(path)?;
        let (_, response) = wait_for(&client, path, "STALE")?;
        assert_eq!(response.text(), "old");
        for _ in 0..19 {
            let response = client.get(path)?;
            assert_eq!((label(&response), &response.text()[..]), ("STALE", "old"));
        }
        assert_eq!(origin.requests().len(), asked, "{path}");
    }
    Ok(())
}

/// After `worker_shutdown_timeout` a server ends, whatever an update still waits for.
fn an_update_that_gets_stuck_ends_with_the_server(protocol: Protocol) -> Result<()> {
    let origin = Origin::start()?;
    let conf = format!(
        "%%GLOBALS%% worker_shutdown_timeout 100ms; events {{}} http {{ %%HTTP%% {CONF} }}"
    );
    let mut proxy = Proxy::new(Kind::Millpond, &conf)
        .over(protocol)
        .origin(&origin)
        .start()?;
    let client = protocol.client(proxy.port());
    let never = Gate::new();
    let stuck = Answer::new(200).hold_head(&never);
    origin.sequence("/behind", vec![brief("old", ""), stuck]);
    client.get("/behind")?;
    wait_for(&client, "/behind", "STALE")?;
    origin.wait_for_requests(2)?;
    let started = Instant::now();
    proxy.quit()?;
    assert!(started.elapsed() < SOON, "{:?}", started.elapsed());
    never.open();
    Ok(())
}

millpond_testkit::each_protocol!(
    an_update_outlives_its_client_at_a_graceful_end,
    a_failing_origin_is_left_alone,
    an_update_that_gets_stuck_ends_with_the_server,
);
