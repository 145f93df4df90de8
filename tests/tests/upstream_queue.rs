//! `queue` of `upstream`: requests that wait for a peer with room, in their order, for a time, and
//! not more of them than are let in.

use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use millpond_testkit::{Answer, Client, Deadline, Gate, Kind, LogCheck, Origin, Proxy, Request};
use serde_json::Value;

const CONF: &str = "
    log_format waits '$uri $status $upstream_queue_time';
    access_log %%DIR%%/waits.log waits;
    upstream farm {
        zone farm 64k;
        server %%ORIGIN%% max_conns=1;
        queue 2 timeout=%%TIMEOUT%%;
    }
    upstream both {
        zone both 64k;
        server 127.0.0.1:%%PORT_DEAD%% max_fails=1 fail_timeout=1h;
        server 127.0.0.1:%%PORT_DEAD%% max_fails=1 fail_timeout=1h;
        queue 2 timeout=1h;
    }
    server {
        listen 127.0.0.1:%%PORT%%;
        location / { proxy_pass http://farm; }
        location /both/ { proxy_pass http://both; }
        location /api { api; allow 127.0.0.1; }
    }";

const WAIT: Duration = Duration::from_secs(20);

struct Site {
    origin: Origin,
    gate: Gate,
    proxy: Proxy,
}

impl Site {
    /// An origin that holds its answers until the gate is open.
    fn start(timeout: &str) -> Result<Site> {
        let (origin, gate) = (Origin::start()?, Gate::new());
        origin.route("/*", Answer::new(200).body("here").hold_head(&gate));
        let proxy = Proxy::new(Kind::Millpond, CONF)
            .origin(&origin)
            .value("TIMEOUT", timeout)
            .log_check(LogCheck::Off)
            .start()?;
        Ok(Site {
            origin,
            gate,
            proxy,
        })
    }

    fn ask(&self, path: &str) -> JoinHandle<Result<u16>> {
        let (client, path) = (Client::new(self.proxy.port()), path.to_owned());
        thread::spawn(move || Ok(client.get(&path)?.status))
    }

    fn queue(&self) -> Result<Value> {
        let answer = Client::new(self.proxy.port()).get("/api/9/http/upstreams/farm")?;
        let text = answer.text();
        let group: Value = serde_json::from_str(&text).context(text)?;
        Ok(group["queue"].clone())
    }

    /// Waits until so many requests wait.
    fn wait_for(&self, waiting: u64) -> Result<()> {
        let is_so = || match self.queue() {
            Ok(queue) if queue["size"] == waiting => Some(Ok(())),
            Ok(_) => None,
            Err(error) => Some(Err(error)),
        };
        let waited = Deadline::after(WAIT).poll(is_so);
        waited.with_context(|| format!("not {waiting} wait"))?
    }
}

fn status(asked: JoinHandle<Result<u16>>) -> Result<u16> {
    asked.join().map_err(|_| anyhow::anyhow!("it panicked"))?
}

#[test]
fn requests_wait_for_room_in_their_order_and_no_more_than_may() -> Result<()> {
    let site = Site::start("1h")?;
    let first = site.ask("/first");
    site.origin.wait_for_requests(1)?;
    let second = site.ask("/second");
    site.wait_for(1)?;
    let third = site.ask("/third");
    site.wait_for(2)?;
    // The queue is full.
    assert_eq!(status(site.ask("/fourth"))?, 502);
    let queue = site.queue()?;
    assert_eq!(
        (&queue["max_size"], &queue["overflows"]),
        (&2.into(), &1.into())
    );
    assert_eq!(site.origin.requests().len(), 1);
    site.gate.open();
    for asked in [first, second, third] {
        assert_eq!(status(asked)?, 200);
    }
    let requests = site.origin.requests();
    let paths: Vec<&str> = requests.iter().map(|request| request.path()).collect();
    assert_eq!(paths, ["/first", "/second", "/third"]);
    site.wait_for(0)
}

#[test]
fn whoever_waits_too_long_is_told_so_and_leaves() -> Result<()> {
    let site = Site::start("300ms")?;
    let first = site.ask("/first");
    site.origin.wait_for_requests(1)?;
    let began = Instant::now();
    assert_eq!(status(site.ask("/second"))?, 502);
    ensure!(
        began.elapsed() >= Duration::from_millis(300),
        "it did not wait"
    );
    site.wait_for(0)?;
    site.gate.open();
    assert_eq!(status(first)?, 200);
    assert_eq!(status(site.ask("/third"))?, 200);
    Ok(())
}

#[test]
fn a_client_that_leaves_gives_its_place_back() -> Result<()> {
    let site = Site::start("1h")?;
    let first = site.ask("/first");
    site.origin.wait_for_requests(1)?;
    let mut leaving = Client::new(site.proxy.port()).connect()?;
    leaving.send_raw(&Request::get("/leaving").encode())?;
    site.wait_for(1)?;
    let second = site.ask("/second");
    site.wait_for(2)?;
    drop(leaving);
    site.wait_for(1)?;
    site.gate.open();
    assert_eq!((status(first)?, status(second)?), (200, 200));
    assert_eq!(site.origin.requests().len(), 2);
    Ok(())
}

/// The log tells for how long a request has waited, if it has: also one that has waited in vain.
#[test]
fn the_time_in_the_queue_is_told() -> Result<()> {
    let site = Site::start("300ms")?;
    let first = site.ask("/first");
    site.origin.wait_for_requests(1)?;
    let second = site.ask("/second");
    assert_eq!(status(second)?, 502);
    let third = site.ask("/third");
    site.wait_for(1)?;
    site.gate.open();
    assert_eq!((status(first)?, status(third)?), (200, 200));
    let told = |path: &str| -> Result<Option<String>> {
        let log = std::fs::read_to_string(site.proxy.dir().join("waits.log"))?;
        let line = log.lines().find(|line| line.starts_with(path));
        Ok(line.and_then(|line| Some(line.rsplit_once(' ')?.1.to_owned())))
    };
    for (path, has_waited) in [("/first", false), ("/second", true), ("/third", true)] {
        let written = Deadline::after(WAIT)
            .poll(|| told(path).transpose())
            .with_context(|| format!("no line of {path}"))??;
        assert_eq!(
            written.parse::<f64>().is_ok_and(|time| time >= 0.0),
            has_waited,
            "{path} {written}"
        );
        assert_eq!(written == "-", !has_waited, "{path} {written}");
        if path == "/second" {
            assert!(written.parse::<f64>()? >= 0.3, "{written}");
        }
    }
    Ok(())
}

/// A peer that rests will not be freed by anybody.
#[test]
fn nobody_waits_for_peers_that_have_failed() -> Result<()> {
    let site = Site::start("1h")?;
    for _ in 0..3 {
        assert_eq!(status(site.ask("/both/a"))?, 502);
    }
    Ok(())
}

/// Many more requests than there is room for come through one after the other.
#[test]
fn a_short_queue_carries_a_crowd() -> Result<()> {
    let origin = Origin::start()?;
    origin.route("/*", Answer::new(200).body("here"));
    let proxy = Proxy::new(Kind::Millpond, &CONF.replace("queue 2", "queue 1000"))
        .origin(&origin)
        .value("TIMEOUT", "1h")
        .start()?;
    let crowd: Vec<_> = (0..50)
        .map(|user| {
            let client = Client::new(proxy.port());
            thread::spawn(move || -> Result<()> {
                for number in 0..10 {
                    let answer = client.get(&format!("/{user}/{number}"))?;
                    ensure!(answer.status == 200, "{}", answer.status);
                }
                Ok(())
            })
        })
        .collect();
    for user in crowd {
        user.join().map_err(|_| anyhow::anyhow!("it panicked"))??;
    }
    assert_eq!(origin.requests().len(), 500);
    Ok(())
}
