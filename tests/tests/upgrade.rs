//! Changing the binary: no connection is refused, the cache stays warm, and a successor that ends
//! brings the old process back.
//!
//! The successor is started by the process under test, so that the kit does not know it: a guard
//! ends it.

use anyhow::{Context, Result};
use millpond_testkit::{
    Answer, Client, Deadline, End, Gate, Kind, LogCheck, Origin, Proxy, Request, stop_process,
};
use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

const CONF: &str = "
    proxy_cache_path %%DIR%%/cache keys_zone=z:1m max_size=64m;
    server {
        listen 127.0.0.1:%%PORT%%;
        listen unix:%%DIR%%/u.sock;
        add_header X-Cache $upstream_cache_status;
        location / { proxy_pass http://%%ORIGIN%%; }
        location /stored/ {
            proxy_pass http://%%ORIGIN%%;
            proxy_cache z;
            proxy_cache_lock on;
            proxy_cache_valid 200 1h;
        }
        location /rfc/ {
            proxy_pass http://%%ORIGIN%%;
            proxy_cache z;
            proxy_cache_conformance rfc9111;
            proxy_cache_groups on;
        }
        location /here { return 200 here; }
    }";

const LEN: u64 = 3 << 20;
const WAIT: Duration = Duration::from_secs(20);
/// Entries that are warm before and after.
const WARM: usize = 40;

/// The process of the pid file, which is ended with this.
struct Successor(Pid);

impl Successor {
    fn signal(&self, signal: Signal) -> Result<()> {
        kill_process(self.0, signal).context("signal")
    }

    fn wait_for_end(&self) -> Result<()> {
        Deadline::after(WAIT)
            .poll(|| test_kill_process(self.0).err())
            .map(|_gone| ())
            .context("the new process does not end")
    }
}

impl Drop for Successor {
    fn drop(&mut self) {
        // It may have ended.
        let _gone = kill_process(self.0, Signal::KILL);
    }
}

/// A proxy on an origin that has everything.
struct Bench {
    origin: Origin,
    proxy: Proxy,
    gate: Gate,
}

impl Bench {
    fn start(log_check: LogCheck) -> Result<Bench> {
        Bench::start_with(CONF, log_check)
    }

    fn start_with(conf: &str, log_check: LogCheck) -> Result<Bench> {
        let origin = Origin::start()?;
        let gate = Gate::new();
        let long = Answer::new(200).offset_body(LEN, 1);
        origin.route("/long", long.clone().hold_body_at(LEN / 2, &gate));
        origin.route("/stored/long", long.hold_body_at(LEN / 2, &gate));
        origin.route("/stored/*", Answer::new(200).offset_body(20_000, 3));
        let proxy = Proxy::new(Kind::Millpond, conf)
            .origin(&origin)
            .log_check(log_check)
            .start()?;
        Ok(Bench {
            origin,
            proxy,
            gate,
        })
    }

    fn client(&self) -> Client {
        Client::new(self.proxy.port())
    }

    fn pid_file(&self) -> PathBuf {
        self.proxy.dir().join("server.pid")
    }

    fn old_file(&self) -> PathBuf {
        self.proxy.dir().join("server.pid.oldbin")
    }

    fn pid_in_file(&self) -> Option<Pid> {
        let text = self.proxy.read_file("server.pid");
        Pid::from_raw(text.trim().parse().ok()?)
    }

    fn warm_up(&self) -> Result<()> {
        for number in 0..WARM {
            self.client().get(&format!("/stored/{number}"))?;
        }
        Ok(())
    }

    /// Number of the warm entries that are hits.
    fn hits(&self) -> Result<usize> {
        let mut hits = 0;
        for number in 0..WARM {
            let response = self.client().get(&format!("/stored/{number}"))?;
            hits += usize::from(response.header("X-Cache") == Some("HIT"));
        }
        Ok(hits)
    }

    /// Starts another process in place of this one, and waits until it serves.
    fn upgrade(&self) -> Result<Successor> {
        let old = self.proxy.pid().context("it runs")?;
        self.proxy.signal(Signal::USR2)?;
        let new = || {
            self.pid_in_file()
                .filter(|pid| pid.as_raw_nonzero().get() as u32 != old)
        };
        let pid = Deadline::after(WAIT).poll(new).context("no new process")?;
        assert!(self.old_file().exists());
        Ok(Successor(pid))
    }

    /// Waits until the old process is the one of the pid file again.
    fn wait_for_return(&self) -> Result<()> {
        let old = self.proxy.pid();
        let is_back = || {
            let pid = self.pid_in_file()?.as_raw_nonzero().get() as u32;
            (Some(pid) == old && !self.old_file().exists()).then_some(())
        };
        Deadline::after(WAIT)
            .poll(is_back)
            .context("the old process does not come back")
    }

    /// Everything works: hits, new entries, connections of both kinds.
    fn check_full_service(&self, name: &str) -> Result<()> {
        Deadline::after(WAIT)
            .poll(|| (self.hits().ok()? == WARM).then_some(()))
            .context("the cache is not warm")?;
        let path = format!("/stored/{name}");
        assert_eq!(self.client().get(&path)?.header("X-Cache"), Some("MISS"));
        assert_eq!(self.client().get(&path)?.header("X-Cache"), Some("HIT"));
        let socket = self.proxy.dir().join("u.sock");
        std::os::unix::net::UnixStream::connect(socket).context("unix socket")?;
        Ok(())
    }
}

/// Connects and asks without a pause until it is told to stop; a failure is the result.
fn ask(client: &Client, path: &str, is_over: &AtomicBool, asked: &AtomicUsize) -> Result<()> {
    while !is_over.load(Ordering::Relaxed) {
        let response = client.get(path).with_context(|| path.to_string())?;
        assert_eq!(response.status, 200, "{path}");
        asked.fetch_add(1, Ordering::Relaxed);
    }
    Ok(())
}

/// Two upgrades under load: nobody is refused, hits stay hits, and a download goes on in the
/// process that began it.
#[test]
fn upgrade_refuses_nobody_and_keeps_the_cache() -> Result<()> {
    let mut bench = Bench::start(LogCheck::On)?;
    bench.warm_up()?;
    assert_eq!(bench.hits()?, WARM);
    let client = bench.client();
    let mut long = client.connect()?;
    long.send_raw(&Request::get("/long").encode())?;
    let mut answer = long.read_head("GET")?.context("a head")?;
    bench.origin.forget_requests();
    let (is_over, asked) = (AtomicBool::new(false), AtomicUsize::new(0));
    let successor = std::thread::scope(|scope| -> Result<Successor> {
        let clients: Vec<_> = ["/here", "/stored/1"]
            .into_iter()
            .map(|path| scope.spawn(|| ask(&client, path, &is_over, &asked)))
            .collect();
        let upgraded = bench.upgrade().and_then(|successor| {
            bench.proxy.signal(Signal::QUIT)?;
            let asked_before = asked.load(Ordering::Relaxed);
            Deadline::after(WAIT)
                .poll(|| (asked.load(Ordering::Relaxed) > asked_before + 50).then_some(()))
                .context("nobody is served")?;
            Ok(successor)
        });
        is_over.store(true, Ordering::Relaxed);
        for thread in clients {
            let outcome = thread.join();
            outcome.map_err(|_| anyhow::anyhow!("a client failed"))??;
        }
        upgraded
    })?;
    assert_eq!(bench.hits()?, WARM);
    bench.gate.open();
    long.read_body(&mut answer)?;
    assert_eq!(answer.end, End::Complete);
    assert_eq!(answer.body.len() as u64, LEN);
    bench.proxy.quit()?;
    assert!(!bench.old_file().exists() && bench.pid_file().exists());
    bench.check_full_service("later")?;
    successor.signal(Signal::QUIT)?;
    successor.wait_for_end()?;
    assert!(!bench.pid_file().exists());
    assert!(!bench.proxy.dir().join("u.sock").exists());
    Ok(())
}

/// A fill that two clients read is finished for both by the process that began it.
#[test]
fn fill_with_readers_survives_an_upgrade() -> Result<()> {
    let mut bench = Bench::start(LogCheck::On)?;
    let mut readers = Vec::new();
    for _ in 0..2 {
        let mut connection = bench.client().connect()?;
        connection.send_raw(&Request::get("/stored/long").encode())?;
        let head = connection.read_head("GET")?.context("a head")?;
        readers.push((connection, head));
    }
    let successor = bench.upgrade()?;
    bench.proxy.signal(Signal::QUIT)?;
    bench.gate.open();
    for (mut connection, mut response) in readers {
        connection.read_body(&mut response)?;
        assert_eq!(response.end, End::Complete);
        assert_eq!(response.body.len() as u64, LEN);
    }
    bench.proxy.quit()?;
    assert_eq!(bench.client().get("/stored/long")?.body.len() as u64, LEN);
    successor.signal(Signal::TERM)?;
    successor.wait_for_end()
}

/// A new process that is killed, or told to end, brings the old one back with all that it had.
#[test]
fn end_of_the_new_process_brings_the_old_one_back() -> Result<()> {
    let mut bench = Bench::start(LogCheck::On)?;
    bench.warm_up()?;
    for (number, signal) in [Signal::KILL, Signal::QUIT, Signal::TERM]
        .into_iter()
        .enumerate()
    {
        let successor = bench.upgrade()?;
        bench.check_full_service(&format!("new{number}"))?;
        successor.signal(signal)?;
        bench.wait_for_return()?;
        bench.check_full_service(&format!("old{number}"))?;
    }
    bench.proxy.quit()
}

/// RFC 9111 §4.4, RFC 9875 §3: what a request that ends in the old process has made wrong is gone
/// from the caches, which are the new one's by then, and stays gone when they come back.
#[test]
fn requests_that_end_in_the_old_process_invalidate_in_the_new_one() -> Result<()> {
    let mut bench = Bench::start(LogCheck::On)?;
    let client = bench.client();
    let fresh = || Answer::new(200).header("Cache-Control", "max-age=1000");
    let label = |path: &str| -> Result<String> {
        let answer = client.get(path)?;
        Ok(answer.header("X-Cache").unwrap_or("-").to_owned())
    };
    let warm = |path: &str| -> Result<()> {
        bench
            .origin
            .route(path, fresh().header("Cache-Groups", "\"g\"").body("old"));
        client.get(path)?;
        assert_eq!(label(path)?, "HIT");
        Ok(())
    };
    warm("/rfc/uri")?;
    warm("/rfc/group")?;
    let told = fresh().header("Cache-Group-Invalidation", "\"g\"");
    bench
        .origin
        .route("/rfc/change", told.body("done").hold_head(&bench.gate));
    bench
        .origin
        .route("/rfc/uri", fresh().body("new").hold_head(&bench.gate));
    let begin = |path: &str| -> Result<_> {
        let asked = bench.origin.requests().len();
        let mut connection = client.connect()?;
        connection.send_raw(&Request::post(path, "x").encode())?;
        bench.origin.wait_for_requests(asked + 1)?;
        Ok(connection)
    };
    let mut posted = [begin("/rfc/uri")?, begin("/rfc/change")?];
    let successor = bench.upgrade()?;
    for path in ["/rfc/uri", "/rfc/group"] {
        let is_hit = || (label(path).ok()? == "HIT").then_some(());
        Deadline::after(WAIT)
            .poll(is_hit)
            .context("it is not served from the cache")?;
    }
    bench.gate.open();
    for connection in &mut posted {
        assert_eq!(connection.read_response("POST")?.status, 200);
    }
    for path in ["/rfc/uri", "/rfc/group"] {
        let is_gone = || (label(path).ok()? == "MISS").then_some(());
        Deadline::after(WAIT)
            .poll(is_gone)
            .with_context(|| format!("{path} stays a hit"))?;
    }
    // What was handed on is not lost with the one that it was handed to.
    successor.signal(Signal::KILL)?;
    bench.wait_for_return()?;
    bench.origin.route("/rfc/uri", fresh().body("newest"));
    let answer = client.get("/rfc/uri")?.text();
    assert!(matches!(&answer[..], "new" | "newest"), "{answer}");
    bench.proxy.quit()
}

/// HUP lets the old process accept again beside the new one.
#[test]
fn old_process_accepts_again_when_told_to() -> Result<()> {
    let mut bench = Bench::start(LogCheck::On)?;
    bench.warm_up()?;
    let successor = bench.upgrade()?;
    bench.proxy.reload()?;
    let says = || bench.proxy.error_log().contains("accepting connections");
    Deadline::after(WAIT)
        .poll(|| says().then_some(()))
        .context("it does not accept")?;
    stop_process(successor.0)?;
    for _ in 0..20 {
        assert_eq!(bench.client().get("/here")?.text(), "here");
    }
    successor.signal(Signal::CONT)?;
    successor.signal(Signal::QUIT)?;
    bench.wait_for_return()?;
    bench.check_full_service("after")?;
    bench.proxy.quit()
}

/// A new process that cannot start changes nothing; neither does a second try meanwhile.
#[test]
fn failed_start_of_the_new_process_changes_nothing() -> Result<()> {
    let mut bench = Bench::start(LogCheck::Off)?;
    bench.warm_up()?;
    bench
        .proxy
        .set_conf(&CONF.replace("listen 127", "lissen 127"))?;
    bench.proxy.signal(Signal::USR2)?;
    let has_ended = || bench.proxy.error_log().contains("ended with exit status");
    Deadline::after(WAIT)
        .poll(|| has_ended().then_some(()))
        .context("its end is not logged")?;
    bench.wait_for_return()?;
    assert!(
        bench
            .proxy
            .error_log()
            .contains("unknown directive \"lissen\"")
    );
    bench.check_full_service("new")?;
    bench.proxy.set_conf(CONF)?;
    let successor = bench.upgrade()?;
    for pid in [
        bench.proxy.pid().and_then(|pid| Pid::from_raw(pid as i32)),
        Some(successor.0),
    ] {
        let count = || {
            bench
                .proxy
                .error_log()
                .matches("is being changed already")
                .count()
        };
        let before = count();
        kill_process(pid.context("a process")?, Signal::USR2)?;
        Deadline::after(WAIT)
            .poll(|| (count() > before).then_some(()))
            .context("it is not refused")?;
    }
    successor.signal(Signal::QUIT)?;
    bench.wait_for_return()?;
    bench.proxy.quit()
}

/// Disks go to the new process with all that they hold, and come back with it; none is given up or
/// emptied by that.
#[test]
fn several_disks_change_hands_with_all_that_they_hold() -> Result<()> {
    let three = "keys_zone=z:1m disk=%%DIR%%/second disk=%%DIR%%/third:2";
    let mut bench = Bench::start_with(&CONF.replace("keys_zone=z:1m", three), LogCheck::On)?;
    bench.warm_up()?;
    assert_eq!(bench.hits()?, WARM);
    for number in 0..2 {
        let successor = bench.upgrade()?;
        bench.check_full_service(&format!("new{number}"))?;
        successor.signal(Signal::KILL)?;
        bench.wait_for_return()?;
        bench.check_full_service(&format!("old{number}"))?;
    }
    bench.origin.forget_requests();
    let successor = bench.upgrade()?;
    bench.proxy.signal(Signal::QUIT)?;
    bench.proxy.quit()?;
    bench.check_full_service("last")?;
    assert_eq!(bench.origin.requests().len(), 1, "but for what is new");
    let log = bench.proxy.error_log();
    assert!(
        !log.contains("given up") && !log.contains("was removed"),
        "{log}"
    );
    successor.signal(Signal::QUIT)?;
    successor.wait_for_end()
}
