//! Many encrypted connections at a time: what each of them holds, and what a reload leaves of them.

use anyhow::{Context, Result, ensure};
use millpond_testkit::{Client, Deadline, Kind, LogCheck, Proxy};
use rustix::process::{Resource, getrlimit, setrlimit};
use std::fs;
use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::kit::{Authority, Encrypted, WAIT, ask, client_config, encrypted, read_to};

/// Connections of a test of memory.
const COUNT: usize = 300;

/// The most that an idle connection may hold of the server's memory.
const IDLE_MAX: usize = 10 * 1024;

const CONF: &str = "
    %%GLOBALS%%
    worker_processes 2;
    events { worker_connections 16384; }
    http {
        %%HTTP%%
        keepalive_timeout 1h;
        server {
            listen 127.0.0.1:%%PORT%% ssl;
            ssl_certificate cert.pem;
            ssl_certificate_key key.pem;
            location / { return 200 (one); }
            listen 127.0.0.1:%%PORT_PLAIN%%;
            location /metrics { metrics; }
        }
    }";

const WHOLE: &str = "GET / HTTP/1.1\r\nHost: a.example\r\n\r\n";

fn server(authority: &Authority) -> Result<Proxy> {
    let [certificate, key] = authority.sign("a.example")?;
    Proxy::new(Kind::Millpond, CONF)
        .file("cert.pem", certificate)
        .file("key.pem", key)
        .log_check(LogCheck::Off)
        .start()
}

/// The longest that a newcomer may wait for an answer while connections are handed over.
const PATIENCE: Duration = Duration::from_secs(1);

/// Lets this process, and the server that it starts, have so many descriptors.
fn allow_descriptors(count: u64) -> Result<()> {
    let mut limit = getrlimit(Resource::Nofile);
    let most = limit.maximum.unwrap_or(u64::MAX);
    ensure!(
        most >= count,
        "{count} descriptors, where {most} may be had"
    );
    limit.current = limit.current.map(|current| current.max(count));
    Ok(setrlimit(Resource::Nofile, limit)?)
}

/// Newcomers, one after the other and each with a handshake of its own, until that is over.
/// Returns how many came, and the longest that one of them waited.
fn newcomers(
    (authority, port): (&Authority, u16),
    is_over: &AtomicBool,
) -> Result<(usize, Duration)> {
    let (mut count, mut longest) = (0, Duration::ZERO);
    while !is_over.load(Ordering::Relaxed) {
        let config = client_config(authority, None)?;
        let begun = Instant::now();
        let mut stream = encrypted(&config, port, "a.example")?;
        ask(&mut stream, WHOLE, ")")?;
        longest = longest.max(begun.elapsed());
        count += 1;
    }
    Ok((count, longest))
}

/// Reloads under so many connections, each of which has sent the beginning of a request.
fn reload_under(connection_count: usize) -> Result<()> {
    // The server keeps a quarter for files of a cache.
    allow_descriptors(connection_count as u64 * 4 / 3 + 1024)?;
    let authority = Authority::new("root")?;
    let mut back = server(&authority)?;
    let config = client_config(&authority, None)?;
    let port = back.port();
    let connect = || encrypted(&config, port, "a.example");
    let (begin, rest) = WHOLE.split_at(10);
    let mut connections: Vec<Encrypted> = Vec::new();
    for _ in 0..connection_count {
        let mut stream = connect()?;
        assert!(ask(&mut stream, WHOLE, "(one)")?.starts_with("HTTP/1.1 200"));
        stream.write_all(begin.as_bytes())?;
        connections.push(stream);
    }
    back.set_conf(&CONF.replace("(one)", "(two)"))?;
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let coming = scope.spawn(|| newcomers((&authority, port), &is_over));
        let handed_over = (|| {
            back.reload()?;
            // Newcomers are served by the new configuration, and resume what the old one has made.
            let found = Deadline::after(WAIT).poll(|| {
                let mut stream = connect().ok()?;
                let told = ask(&mut stream, WHOLE, ")").ok()?;
                told.ends_with("(two)").then_some(stream)
            });
            let newcomer = found.context("the new configuration")?;
            let kind = newcomer.conn.handshake_kind();
            assert_eq!(kind, Some(rustls::HandshakeKind::Resumed));
            for stream in &mut connections {
                stream.write_all(rest.as_bytes())?;
                assert!(read_to(stream, "(one)")?.starts_with("HTTP/1.1 200"));
            }
            anyhow::Ok(())
        })();
        is_over.store(true, Ordering::Relaxed);
        let (count, longest) = coming.join().ok().context("a thread")??;
        handed_over?;
        println!("{connection_count} connections, {count} newcomers, {longest:?} at most");
        assert!(count > 0);
        assert!(longest < PATIENCE, "a newcomer has waited for {longest:?}");
        Ok(())
    })
}

#[test]
fn reload_drops_no_connection_whose_request_has_begun() -> Result<()> {
    reload_under(1000)
}

#[test]
#[ignore = "nightly: a minute"]
fn reload_drops_none_of_ten_thousand_connections() -> Result<()> {
    reload_under(10_000)
}

/// Bytes of the server's memory that are its own.
fn memory(proxy: &Proxy) -> Result<usize> {
    let pid = proxy.pid().context("a pid")?;
    let text = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = text.lines().find_map(|line| line.strip_prefix("RssAnon:"));
    let kib: usize = line
        .and_then(|it| it.split_whitespace().next())
        .context("a size")?
        .parse()?;
    Ok(kib * 1024)
}

#[test]
fn idle_connection_holds_little() -> Result<()> {
    let authority = Authority::new("root")?;
    let back = server(&authority)?;
    let config = client_config(&authority, None)?;
    let open = || -> Result<Vec<Encrypted>> {
        let mut connections = Vec::new();
        for _ in 0..COUNT {
            let mut stream = encrypted(&config, back.port(), "a.example")?;
            ask(&mut stream, WHOLE, "(one)")?;
            connections.push(stream);
        }
        Ok(connections)
    };
    // What is made once is made.
    let _first = open()?;
    let before = memory(&back)?;
    let _second = open()?;
    let each = memory(&back)?.saturating_sub(before) / COUNT;
    assert!(each <= IDLE_MAX, "{each} bytes of each");
    Ok(())
}

#[test]
fn handshakes_are_counted_by_their_ends() -> Result<()> {
    let authority = Authority::new("root")?;
    let back = server(&authority)?;
    let config = client_config(&authority, None)?;
    for _ in 0..2 {
        let mut stream = encrypted(&config, back.port(), "a.example")?;
        ask(&mut stream, WHOLE, "(one)")?;
    }
    let strangers = client_config(&Authority::new("others")?, None)?;
    assert!(encrypted(&strangers, back.port(), "a.example").is_err());
    let plain = Client::new(back.named_port("PORT_PLAIN"));
    for line in [
        "millpond_tls_handshakes_total{version=\"1.3\",session=\"new\"} 1",
        "millpond_tls_handshakes_total{version=\"1.3\",session=\"resumed\"} 1",
        "millpond_tls_handshakes_total{version=\"1.2\",session=\"new\"} 0",
        "millpond_tls_handshakes_failed_total 1",
    ] {
        let is_there = || {
            let page = plain.get("/metrics").ok()?.text();
            page.lines().any(|it| it == line).then_some(())
        };
        Deadline::after(WAIT).poll(is_there).context(line)?;
    }
    Ok(())
}
