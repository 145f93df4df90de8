//! Events of entries: server-sent events of the API, and the lines of `cache_events_log`.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use millpond_testkit::{Answer, Client, Deadline, Kind, Origin, Proxy, Request};
use serde_json::Value;

const CONF: &str = "
    proxy_cache_path %%DIR%%/cache keys_zone=pond:1m max_size=64m;
    proxy_cache_path %%DIR%%/other keys_zone=lake:1m max_size=64m;
    cache_events_log %%DIR%%/events.log;
    proxy_cache_valid 200 1h;
    proxy_cache_valid 404 1s;
    proxy_cache_key $uri;
    proxy_cache_revalidate on;
    server {
        listen 127.0.0.1:%%PORT%%;
        location / { proxy_pass http://%%ORIGIN%%; proxy_cache pond; proxy_cache_purge PURGE from 127.0.0.1; }
        location /lake/ { proxy_pass http://%%ORIGIN%%; proxy_cache lake; }
        location /api { api; allow 127.0.0.1; deny all; }
    }";

const WAIT: Duration = Duration::from_secs(20);

struct Site {
    client: Client,
    proxy: Proxy,
    _origin: Origin,
}

impl Site {
    fn start() -> Result<Site> {
        let origin = Origin::start()?;
        origin.route("/*", Answer::new(200).body("hello"));
        let proxy = Proxy::new(Kind::Millpond, CONF).origin(&origin).start()?;
        Ok(Site {
            client: Client::new(proxy.port()),
            proxy,
            _origin: origin,
        })
    }

    fn get(&self, path: &str) -> Result<()> {
        let response = self.client.get(path)?;
        ensure!(response.status == 200, "{path}: {}", response.status);
        Ok(())
    }

    fn purge(&self, path: &str) -> Result<()> {
        let response = self.client.send(&Request::new("PURGE", path))?;
        ensure!(response.status < 300, "{path}: {}", response.status);
        Ok(())
    }

    fn read(&self, target: &str) -> Result<Stream> {
        let stream = TcpStream::connect(("127.0.0.1", self.proxy.port()))?;
        stream.set_read_timeout(Some(WAIT))?;
        write!(
            &stream,
            "GET /api/millpond/1/{target} HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n"
        )?;
        let mut stream = Stream(BufReader::new(stream));
        let head = stream.until_empty()?;
        ensure!(head[0].contains(" 200 "), "{head:?}");
        let kind = "Content-Type: text/event-stream";
        ensure!(head.iter().any(|line| line == kind), "{head:?}");
        // From here on everything is told.
        assert_eq!(stream.until_empty()?, ["retry: 1000"]);
        Ok(stream)
    }
}

/// Server-sent events.
struct Stream(BufReader<TcpStream>);

impl Stream {
    fn until_empty(&mut self) -> Result<Vec<String>> {
        let mut lines = Vec::new();
        loop {
            let mut line = String::new();
            let count = self.0.read_line(&mut line)?;
            ensure!(count > 0, "the stream ended behind {lines:?}");
            match line.trim_end_matches(['\r', '\n']) {
                "" => return Ok(lines),
                line => lines.push(line.to_owned()),
            }
        }
    }

    fn next(&mut self) -> Result<Value> {
        loop {
            let lines = self.until_empty()?;
            if lines == [":"] {
                continue;
            }
            let [name, data] = &lines[..] else {
                anyhow::bail!("{lines:?}");
            };
            let data = data.strip_prefix("data: ").context("data")?;
            let event: Value = serde_json::from_str(data)?;
            assert_eq!(
                *name,
                format!("event: {}", event["kind"].as_str().unwrap_or("-"))
            );
            return Ok(event);
        }
    }

    fn is_at_end(&mut self) -> Result<bool> {
        let mut line = String::new();
        Ok(self.0.read_line(&mut line)? == 0)
    }
}

#[test]
fn what_is_stored_purged_and_replaced_is_told_in_order() -> Result<()> {
    let site = Site::start()?;
    let mut stream = site.read("events")?;
    site.get("/a")?;
    let stored = stream.next()?;
    assert_eq!(
        (&stored["kind"], &stored["zone"]),
        (&"stored".into(), &"pond".into())
    );
    assert_eq!(
        (&stored["key"], &stored["bytes"]),
        (&"/a".into(), &5.into())
    );
    let (at, until) = (&stored["at"], &stored["fresh_until"]);
    let lifetime = until.as_i64().context("a time")? - at.as_i64().context("a time")? / 1000;
    ensure!((3590..=3601).contains(&lifetime), "{lifetime}");
    site.get("/lake/b")?;
    let other = stream.next()?;
    assert_eq!(
        (&other["zone"], &other["key"]),
        (&"lake".into(), &"/lake/b".into())
    );
    site.purge("/a")?;
    let (first, second) = (stream.next()?, stream.next()?);
    let (purged, removed) = if first["kind"] == "purged" {
        (first, second)
    } else {
        (second, first)
    };
    assert_eq!(
        (&purged["type"], &purged["what"]),
        (&"exact".into(), &"/a".into())
    );
    assert_eq!(
        (&removed["kind"], &removed["id"]),
        (&"removed".into(), &stored["id"])
    );
    // A hit is no event.
    site.get("/lake/b")?;
    site.get("/a")?;
    assert_eq!(stream.next()?["key"], "/a");
    Ok(())
}

#[test]
fn readers_are_told_the_kinds_and_the_zone_that_they_ask_for() -> Result<()> {
    let site = Site::start()?;
    let mut purges = site.read("events?kind=purged&kind=removed")?;
    let mut lake = site.read("zones/lake/events")?;
    let mut expiring = site.read("zones/pond/events?kind=expiring&expiring=7200")?;
    for path in ["/a", "/lake/b"] {
        site.get(path)?;
    }
    site.purge("/a")?;
    let kinds = [
        purges.next()?["kind"].clone(),
        purges.next()?["kind"].clone(),
    ];
    assert!(
        kinds.contains(&"purged".into()) && kinds.contains(&"removed".into()),
        "{kinds:?}"
    );
    assert_eq!(lake.next()?["key"], "/lake/b");
    // What is gone again does not expire; what is there is told once.
    site.get("/c")?;
    let mut told = expiring.next()?;
    if told["key"] == "/a" {
        told = expiring.next()?;
    }
    assert_eq!(
        (&told["kind"], &told["key"]),
        (&"expiring".into(), &"/c".into())
    );
    Ok(())
}

#[test]
fn a_stream_ends_when_it_was_asked_to_and_what_is_not_understood_is_refused() -> Result<()> {
    let site = Site::start()?;
    let mut short = site.read("events?for=0")?;
    assert!(short.is_at_end()?);
    for (target, status) in [
        ("events?kind=nothing", 400),
        ("events?slip=1", 400),
        ("zones/none/events", 404),
    ] {
        let response = site.client.get(&format!("/api/millpond/1/{target}"))?;
        assert_eq!(response.status, status, "{target}");
    }
    // There are a few places, which are given back.
    let full = || -> Result<Vec<Stream>> {
        let mut streams = Vec::new();
        while let Ok(stream) = site.read("zones/lake/events") {
            streams.push(stream);
            ensure!(streams.len() < 50, "no bound");
        }
        Ok(streams)
    };
    let streams = full()?;
    assert!(!streams.is_empty());
    let status = || {
        site.client
            .get("/api/millpond/1/zones/lake/events?for=0")
            .map(|it| it.status)
    };
    assert_eq!(status()?, 503);
    drop(streams);
    let is_free = Deadline::after(WAIT).poll(|| match status() {
        Ok(200) => Some(Ok(())),
        Ok(_) => None,
        Err(error) => Some(Err(error)),
    });
    is_free.context("the places are not given back")?
}

#[test]
fn a_reload_ends_the_streams_and_the_log_goes_on() -> Result<()> {
    let site = Site::start()?;
    let mut stream = site.read("events")?;
    site.get("/a")?;
    assert_eq!(stream.next()?["key"], "/a");
    site.proxy.reload()?;
    assert!(stream.is_at_end()?);
    site.get("/b")?;
    let log = site.proxy.dir().join("events.log");
    let keys = || -> Option<Vec<String>> {
        let text = std::fs::read_to_string(&log).ok()?;
        let parse = |line| serde_json::from_str::<Value>(line);
        let lines: Vec<Value> = text.lines().map(parse).collect::<Result<_, _>>().ok()?;
        let keys = lines.iter().filter(|it| it["kind"] == "stored");
        Some(
            keys.map(|it| it["key"].as_str().unwrap_or("-").to_owned())
                .collect(),
        )
    };
    let written = Deadline::after(WAIT).poll(|| keys().filter(|keys| keys.len() >= 2));
    assert_eq!(written.context("no lines")?, ["/a", "/b"]);
    Ok(())
}
