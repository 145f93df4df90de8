//! Bounds that are promised: memory for large bodies, the size of a zone, what a crash costs.

use anyhow::{Context, Result};
use millpond_testkit::{
    Answer, Client, Deadline, Framing, Kind, Origin, Proxy, Request, offset_bytes,
};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

const CONF: &str = "
    proxy_cache_path %%DIR%%/cache keys_zone=z:4m max_size=100m;
    server {
        listen 127.0.0.1:%%PORT%%;
        location / { proxy_pass http://%%ORIGIN%%; }
        location /stored/ {
            proxy_pass http://%%ORIGIN%%;
            proxy_cache z;
            proxy_cache_valid 200 1h;
        }
    }";

const MAX_SIZE: u64 = 100 << 20;
const MIB: u64 = 1 << 20;
/// Far more than the buffers of one connection, far less than any body here.
const ALLOWED_KIB: u64 = 16 << 10;

fn start(origin: &Origin) -> Result<Proxy> {
    Proxy::new(Kind::Millpond, CONF).origin(origin).start()
}

/// Resident memory, KiB.
fn resident(proxy: &Proxy) -> Result<u64> {
    let pid = proxy.pid().context("it runs")?;
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let number = line.and_then(|line| line.split_whitespace().next());
    Ok(number.context("VmRSS")?.parse()?)
}

/// A client that stops reading in the midst of a body stops the origin, not the memory.
#[test]
fn memory_does_not_grow_with_a_body() -> Result<()> {
    let origin = Origin::start()?;
    let len = 64 * MIB;
    let body = Answer::new(200).offset_body(len, 1);
    origin.route("/length", body.clone());
    origin.route("/chunked", body.clone().framing(Framing::Chunked));
    origin.route("/close", body.clone().framing(Framing::UntilClose));
    origin.route("/stored/large", body.clone());
    origin.route("/stored/chunked", body.framing(Framing::Chunked));
    let proxy = start(&origin)?;
    let client = Client::new(proxy.port());
    client.get("/warm")?;
    let before = resident(&proxy)?;
    for path in [
        "/length",
        "/chunked",
        "/close",
        "/stored/large",
        "/stored/chunked",
    ] {
        let sent_before = origin.sent_bytes();
        let mut connection = client.connect()?;
        connection.send_raw(&Request::get(path).encode())?;
        connection.read_head("GET")?.context("a head")?;
        // Until the origin is held up, or has sent all it has to a fill.
        let mut last = 0;
        let mut still = 0;
        let is_still = Deadline::after(Duration::from_secs(20)).poll(|| {
            let sent = origin.sent_bytes();
            still = if sent == last { still + 1 } else { 0 };
            last = sent;
            (still > 20).then_some(())
        });
        is_still.with_context(|| format!("{path} never stands still"))?;
        let grown = resident(&proxy)?.saturating_sub(before);
        assert!(grown < ALLOWED_KIB, "{path} takes {grown} KiB");
        assert!(origin.sent_bytes() - sent_before > 0, "{path}");
    }
    Ok(())
}

/// Bytes of all files below `path`.
fn size_below(path: &Path) -> u64 {
    let Ok(entries) = std::fs::read_dir(path) else {
        return 0;
    };
    entries
        .flatten()
        .map(|entry| match entry.metadata() {
            Ok(meta) if meta.is_dir() => size_below(&entry.path()),
            Ok(meta) => meta.len(),
            Err(_) => 0,
        })
        .sum()
}

/// Eight clients fill a zone four times over; at no moment does it take more than its `max_size`.
#[test]
fn a_zone_never_passes_its_size() -> Result<()> {
    let origin = Origin::start()?;
    origin.route("/stored/*", Answer::new(200).offset_body(MIB, 1));
    let proxy = start(&origin)?;
    let client = Client::new(proxy.port());
    let expected = offset_bytes(0..MIB, 1);
    let (largest, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let watcher = scope.spawn(|| {
            let cache = proxy.dir().join("cache");
            Deadline::after(Duration::from_secs(120)).poll(|| {
                largest.fetch_max(size_below(&cache), Ordering::Relaxed);
                is_over.load(Ordering::Relaxed).then_some(())
            })
        });
        let (client, expected) = (&client, &expected);
        let clients: Vec<_> = (0..8)
            .map(|number| {
                scope.spawn(move || {
                    (0..50).all(|turn| {
                        let response = client.get(&format!("/stored/{number}-{turn}"));
                        response.is_ok_and(|r| r.status == 200 && r.body == *expected)
                    })
                })
            })
            .collect();
        let all_right = clients
            .into_iter()
            .all(|thread| thread.join().unwrap_or(false));
        is_over.store(true, Ordering::Relaxed);
        assert!(watcher.join().is_ok());
        assert!(all_right, "an answer is wrong");
    });
    let largest = largest.into_inner();
    assert!(largest <= MAX_SIZE, "{largest} bytes");
    assert!(largest > MAX_SIZE / 2, "only {largest} bytes were used");
    Ok(())
}

/// Killed in the midst of fills, several times: every body is right, and what had been complete
/// for more than five seconds is still there.
#[test]
fn a_kill_costs_no_old_entry_and_tears_none() -> Result<()> {
    let origin = Origin::start()?;
    let old: Vec<String> = (0..200).map(|n| format!("/stored/old-{n}")).collect();
    let body_len = |path: &str| 1000 + path.len() as u64 * 977;
    origin.answer_with("/stored/old-*", move |request| {
        Answer::new(200).offset_body(body_len(&request.target), 1)
    });
    origin.route(
        "/stored/slow-*",
        Answer::new(200).offset_body(4 * MIB, 2).rate(MIB),
    );
    let mut proxy = start(&origin)?;
    let client = Client::new(proxy.port());
    for path in &old {
        assert_eq!(client.get(path)?.status, 200);
    }
    let age = Duration::from_millis(5500);
    // Other fills run while these grow old.
    assert!(
        Deadline::after(age)
            .poll(|| client.get("/stored/slow-0").err())
            .is_none()
    );
    for round in 0..3 {
        let mut running = Vec::new();
        for number in 1..5 {
            let mut connection = client.connect()?;
            let request = Request::get(&format!("/stored/slow-{round}-{number}"));
            connection.send_raw(&request.encode())?;
            connection.read_head("GET")?.context("a head")?;
            running.push(connection);
        }
        proxy.kill9()?;
        proxy.restart()?;
        drop(running);
        origin.forget_requests();
        for path in &old {
            let response = client.get(path)?;
            assert!(
                response.body == offset_bytes(0..body_len(path), 1),
                "{path}"
            );
        }
        assert_eq!(
            origin.requests().len(),
            0,
            "round {round}: entries are lost"
        );
        let torn = client.get(&format!("/stored/slow-{round}-1"))?;
        assert!(torn.body == offset_bytes(0..4 * MIB, 2), "round {round}");
    }
    Ok(())
}
