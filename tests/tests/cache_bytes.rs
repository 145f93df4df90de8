//! `$cache_bytes`, `$origin_bytes`, `$cache_hits`: whose bytes answers are made of, and how often
//! an entry was found.

use anyhow::{Context, Result, ensure};
use millpond_testkit::{
    Answer, Client, Deadline, Gate, Kind, LogCheck, Manners, Origin, Protocol, Proxy, Request,
    Resource,
};
use std::time::Duration;

const CONF: &str = "
    proxy_cache_path %%DIR%%/cache keys_zone=z:1m max_size=100m;
    log_format line \"$request_uri $upstream_cache_status $cache_bytes $origin_bytes $body_bytes_sent \
                     $cache_hits\";
    access_log %%DIR%%/a.log line;
    upstream_log %%DIR%%/u.log;
    server {
        listen 127.0.0.1:%%PORT%%;
        proxy_cache z;
        proxy_cache_lock on;
        proxy_cache_valid 200 206 1h;
        location / { proxy_pass http://%%ORIGIN%%; }
        location /sliced { proxy_pass http://%%ORIGIN%%; slice 64k; }
        location /renewed { proxy_pass http://%%ORIGIN%%; proxy_cache_revalidate on; }
        location /zipped {
            proxy_pass http://%%ORIGIN%%;
            gzip on; gzip_min_length 1; gzip_types text/plain;
        }
        location /page { proxy_pass http://%%ORIGIN%%; ssi on; }
        location /part { proxy_pass http://%%ORIGIN%%; proxy_cache off; }
        location /own { return 200 own; }
    }";

const WAIT: Duration = Duration::from_secs(20);

/// Fields of a line of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Line {
    status: String,
    cache: u64,
    origin: u64,
    sent: u64,
    hits: String,
}

fn start(protocol: Protocol) -> Result<(Origin, Proxy, Client)> {
    let origin = Origin::start()?;
    let proxy = Proxy::new(Kind::Millpond, CONF)
        .over(protocol)
        .origin(&origin)
        .log_check(LogCheck::Off)
        .start()?;
    let client = protocol.client(proxy.port());
    Ok((origin, proxy, client))
}

/// The lines about a path, once there are so many.
fn lines(proxy: &Proxy, path: &str, count: usize) -> Result<Vec<Line>> {
    let found = || {
        let log = proxy.read_file("a.log");
        let lines = log.lines().filter_map(|line| {
            let mut words = line.split(' ');
            let mut word = || words.next().filter(|word| !word.is_empty());
            word().filter(|uri| *uri == path)?;
            Some(Line {
                status: word()?.to_owned(),
                cache: word()?.parse().ok()?,
                origin: word()?.parse().ok()?,
                sent: word()?.parse().ok()?,
                hits: word()?.to_owned(),
            })
        });
        let lines: Vec<Line> = lines.collect();
        (lines.len() >= count).then_some(lines)
    };
    let found = Deadline::after(WAIT).poll(found);
    found.with_context(|| format!("{count} lines about {path} in {}", proxy.read_file("a.log")))
}

/// Cache status, bytes of the cache, bytes of the origin.
fn shares(lines: &[Line]) -> Vec<(&str, u64, u64)> {
    let mut shares = Vec::new();
    for line in lines {
        shares.push((line.status.as_str(), line.cache, line.origin));
    }
    shares
}

fn what_was_stored_is_the_caches_and_what_is_fetched_the_origins(protocol: Protocol) -> Result<()> {
    let (origin, proxy, client) = start(protocol)?;
    let answer = Answer::new(200).header("Accept-Ranges", "bytes");
    origin.route("/a", answer.etag("\"1\"").offset_body(5_000, 1));
    origin.route("/big", Answer::new(200).offset_body(3_000_000, 1));
    let kept_out = Answer::new(200).header("Cache-Control", "no-store");
    origin.route("/no", kept_out.body("12345"));
    for request in [
        Request::get("/a"),
        Request::get("/a"),
        Request::head("/a"),
        Request::get("/a").header("If-None-Match", "\"1\""),
        Request::get("/a").header("Range", "bytes=10-19"),
        Request::get("/a").header("Range", "bytes=9999-"),
    ] {
        client.send(&request)?;
    }
    let of_a = lines(&proxy, "/a", 6)?;
    let refused = of_a[5].clone();
    let expected = [
        ("MISS", 0, 5_000),
        ("HIT", 5_000, 0),
        ("HIT", 0, 0),
        ("HIT", 0, 0),
        ("HIT", 10, 0),
        // The page about a range that is not there is this server's.
        ("HIT", 0, 0),
    ];
    assert_eq!(shares(&of_a), expected);
    assert!(refused.sent > 0, "{refused:?}");
    let hits: Vec<&str> = of_a.iter().map(|line| line.hits.as_str()).collect();
    assert_eq!(hits[1..], ["1", "2", "3", "4", "5"], "{of_a:?}");
    for path in ["/big", "/big", "/no", "/no", "/own"] {
        client.get(path)?;
    }
    let big = lines(&proxy, "/big", 2)?;
    // The second may be read while the first is stored, but all of it has come.
    assert_eq!(
        (big[0].cache, big[0].origin, big[1].cache, big[1].origin),
        (0, 3_000_000, 3_000_000, 0)
    );
    let kept_out = lines(&proxy, "/no", 2)?;
    assert_eq!(shares(&kept_out), [("MISS", 0, 5), ("MISS", 0, 5)]);
    assert_eq!(kept_out[1].hits, "-");
    assert_eq!(shares(&lines(&proxy, "/own", 1)?), [("-", 0, 0)]);
    Ok(())
}

fn of_a_body_that_is_partly_held_the_rest_is_the_origins(protocol: Protocol) -> Result<()> {
    let (origin, proxy, client) = start(protocol)?;
    origin.resource("/sliced", &Resource::new(Manners::of(300_000)));
    for (range, exchanges) in [
        ("bytes=65536-131071", 1),
        ("bytes=65530-131081", 3),
        ("bytes=0-299999", 4),
        ("bytes=0-9,299990-299999", 4),
    ] {
        let response = client.send(&Request::get("/sliced").header("Range", range))?;
        ensure!(response.status == 206, "{range}: {}", response.status);
        // A slice of which somebody got a part goes on.
        let ended = || (proxy.read_file("u.log").lines().count() >= exchanges).then_some(());
        let ended = Deadline::after(WAIT).poll(ended);
        ended.with_context(|| format!("{exchanges} exchanges in {}", proxy.read_file("u.log")))?;
    }
    let lines = lines(&proxy, "/sliced", 4)?;
    let expected = [
        ("MISS", 0, 65_536),
        ("MISS", 65_536, 6 + 10),
        ("MISS", 3 * 65_536, 300_000 - 3 * 65_536),
    ];
    assert_eq!(shares(&lines)[..3], expected);
    assert_eq!((lines[3].cache, lines[3].origin), (lines[3].sent, 0));
    Ok(())
}

fn who_joins_a_fill_has_of_the_cache_what_had_come_by_then(protocol: Protocol) -> Result<()> {
    let (origin, proxy, client) = start(protocol)?;
    let gate = Gate::new();
    let answer = Answer::new(200).offset_body(1_000_000, 1);
    origin.route("/w", answer.hold_body_at(400_000, &gate));
    let mut leader = client.connect()?;
    leader.ask(&Request::get("/w"))?;
    let mut first = leader.read_head("GET")?.context("a head")?;
    leader.read_some(&mut first, 400_000)?;
    let mut waiter = client.connect()?;
    waiter.ask(&Request::get("/w"))?;
    let mut second = waiter.read_head("GET")?.context("a head")?;
    waiter.read_some(&mut second, 400_000)?;
    gate.open();
    leader.read_body(&mut first)?;
    waiter.read_body(&mut second)?;
    let mut lines = lines(&proxy, "/w", 2)?;
    lines.sort_by_key(|line| line.cache);
    assert_eq!(
        shares(&lines),
        [("MISS", 0, 1_000_000), ("HIT", 400_000, 600_000)]
    );
    Ok(())
}

fn who_waited_for_the_whole_has_nothing_of_the_cache(protocol: Protocol) -> Result<()> {
    let (origin, proxy, client) = start(protocol)?;
    let gate = Gate::new();
    let answer = Answer::new(200).offset_body(1_000, 1);
    origin.route("/w", answer.hold_head(&gate));
    let mut connections = Vec::new();
    for _ in 0..4 {
        let mut connection = client.connect()?;
        connection.ask(&Request::get("/w"))?;
        connections.push(connection);
    }
    origin.wait_for_requests(1)?;
    // With the one worker that there is, all of them wait by now.
    client.get("/own")?;
    gate.open();
    for connection in &mut connections {
        connection.read_response("GET")?;
    }
    let lines = lines(&proxy, "/w", 4)?;
    for (_, cache, origin) in shares(&lines) {
        assert_eq!((cache, origin), (0, 1_000), "{lines:?}");
    }
    Ok(())
}

fn an_entry_that_was_found_unchanged_is_the_caches(protocol: Protocol) -> Result<()> {
    let (origin, proxy, client) = start(protocol)?;
    let answer = Answer::new(200)
        .header("Cache-Control", "max-age=1")
        .etag("\"1\"")
        .body("1234567")
        .revalidates();
    origin.route("/renewed", answer);
    let renewed = || {
        client.get("/renewed").ok()?;
        let lines = lines(&proxy, "/renewed", 1).ok()?;
        lines.into_iter().find(|line| line.status == "REVALIDATED")
    };
    let line = Deadline::after(WAIT)
        .poll(renewed)
        .context("a revalidation")?;
    assert_eq!((line.cache, line.origin), (7, 0));
    Ok(())
}

fn bytes_of_a_changed_body_are_divided_as_its_sources_were(protocol: Protocol) -> Result<()> {
    let (origin, proxy, client) = start(protocol)?;
    let text = Answer::new(200).header("Content-Type", "text/plain");
    origin.route("/zipped", text.body("many words ".repeat(1000)));
    let zipped = Request::get("/zipped").header("Accept-Encoding", "gzip");
    client.send(&zipped)?;
    client.send(&zipped)?;
    let of_zipped = lines(&proxy, "/zipped", 2)?;
    assert_eq!(
        (of_zipped[0].cache, of_zipped[0].origin),
        (0, of_zipped[0].sent)
    );
    assert_eq!(
        (of_zipped[1].cache, of_zipped[1].origin),
        (of_zipped[1].sent, 0)
    );
    let html = |body: String| {
        let answer = Answer::new(200).header("Content-Type", "text/html");
        answer.body(body)
    };
    let include = "<!--# include virtual=\"/part\" -->";
    origin.route("/page", html("p".repeat(1000) + include));
    origin.route("/part", html("q".repeat(1000)));
    client.get("/page")?;
    client.get("/page")?;
    let of_page = lines(&proxy, "/page", 2)?;
    assert_eq!((of_page[0].cache, of_page[0].origin), (0, of_page[0].sent));
    let half = &of_page[1];
    assert_eq!(half.cache + half.origin, half.sent);
    // The page's command is part of what was read of it.
    assert!(half.cache > half.origin, "{half:?}");
    assert!(half.cache - half.origin < 50, "{half:?}");
    Ok(())
}

fn a_client_that_leaves_has_what_was_sent(protocol: Protocol) -> Result<()> {
    let (origin, proxy, client) = start(protocol)?;
    origin.route("/big", Answer::new(200).offset_body(30_000_000, 1));
    client.get("/big")?;
    let mut leaving = client.connect()?;
    leaving.ask(&Request::get("/big"))?;
    let mut response = leaving.read_head("GET")?.context("a head")?;
    leaving.read_some(&mut response, 100_000)?;
    drop(leaving);
    let line = lines(&proxy, "/big", 2)?.remove(1);
    assert!((100_000..30_000_000).contains(&line.sent), "{line:?}");
    assert_eq!((line.cache, line.origin), (line.sent, 0));
    Ok(())
}

millpond_testkit::each_protocol!(
    what_was_stored_is_the_caches_and_what_is_fetched_the_origins,
    of_a_body_that_is_partly_held_the_rest_is_the_origins,
    who_joins_a_fill_has_of_the_cache_what_had_come_by_then,
    who_waited_for_the_whole_has_nothing_of_the_cache,
    an_entry_that_was_found_unchanged_is_the_caches,
    bytes_of_a_changed_body_are_divided_as_its_sources_were,
    a_client_that_leaves_has_what_was_sent,
);
