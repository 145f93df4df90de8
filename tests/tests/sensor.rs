//! `millpond sensor`: what monitors are told, by exit status and by line, of servers that are well
//! and of servers that are not.

use anyhow::{Context, Result};
use millpond_testkit::{
    Answer, Client, Deadline, Kind, LogCheck, Origin, Proxy, binary, free_port,
};
use rcgen::{CertificateParams, KeyPair, date_time_ymd};
use std::process::Command;
use std::time::Duration;

const WAIT: Duration = Duration::from_secs(20);

const CONF: &str = "
    proxy_cache_path %%DIR%%/m1/one keys_zone=pond:1m max_size=6m memory=0 disk=%%DIR%%/m2/two;
    server {
        listen 127.0.0.1:%%PORT%%;
        location = /here { return 200 here; }
        location = /broken { return 503; }
        location / { proxy_pass http://%%ORIGIN%%; proxy_cache pond; proxy_cache_valid 200 1h; }
    }";

/// A sensor as a monitor sees it.
struct Seen {
    status: Option<i32>,
    line: String,
}

fn run(words: &[&str]) -> Result<Seen> {
    let mut command = Command::new(binary(Kind::Millpond).context("no binary")?);
    let output = command.arg("sensor").args(words).output()?;
    let line = String::from_utf8(output.stdout)?;
    Ok(Seen {
        status: output.status.code(),
        line: line.trim_end().to_string(),
    })
}

/// Asks about a proxy, by the socket beside its pid file.
fn sense(proxy: &Proxy, words: &str) -> Result<Seen> {
    let socket = proxy.dir().join("server.control").display().to_string();
    let words: Vec<&str> = words.split_whitespace().collect();
    run(&[&words[..], &["--socket", &socket]].concat())
}

fn start() -> Result<(Origin, Proxy)> {
    let origin = Origin::start()?;
    origin.route("/*", Answer::new(200).offset_body(4000, 1));
    origin.route("/bad*", Answer::new(500));
    let proxy = Proxy::new(Kind::Millpond, CONF)
        .origin(&origin)
        .file("m1/.keep", "")
        .file("m2/.keep", "")
        // Disks that fail and reloads that are refused are errors.
        .log_check(LogCheck::Off)
        .start()?;
    Ok((origin, proxy))
}

fn assert_seen(seen: &Seen, status: i32, start: &str) {
    assert_eq!(seen.status, Some(status), "{}", seen.line);
    assert!(seen.line.starts_with(start), "{}", seen.line);
}

#[test]
fn process_that_ends_is_critical() -> Result<()> {
    let (_origin, mut proxy) = start()?;
    let ready = || {
        sense(&proxy, "health")
            .ok()
            .filter(|seen| seen.status == Some(0))
    };
    let seen = Deadline::after(WAIT).poll(ready).context("never ready")?;
    assert_eq!(seen.line, "HEALTH OK: ready | reasons=0");
    let pid = proxy.pid().context("a pid")?;
    assert_seen(
        &sense(&proxy, "process")?,
        0,
        &format!("PROCESS OK: process {pid}, version "),
    );
    proxy.quit()?;
    assert_seen(
        &sense(&proxy, "process")?,
        2,
        "PROCESS CRITICAL: no process answers on ",
    );
    assert_seen(
        &sense(&proxy, "health")?,
        2,
        "HEALTH CRITICAL: no process answers on ",
    );
    assert_seen(
        &sense(&proxy, "hit-ratio")?,
        3,
        "HIT-RATIO UNKNOWN: no process answers on ",
    );
    Ok(())
}

#[test]
fn hit_ratio_is_that_of_all_or_of_a_time() -> Result<()> {
    let (_origin, proxy) = start()?;
    let client = Client::new(proxy.port());
    assert_seen(
        &sense(&proxy, "hit-ratio -c 50:")?,
        0,
        "HIT-RATIO OK: nothing was asked",
    );
    // One miss, and hits as soon as it is stored; both have been counted when they are told.
    let stored = || {
        client.get("/a").ok().and_then(|_| {
            let seen = sense(&proxy, "hit-ratio -w 75: -c 50:").ok()?;
            Some(seen).filter(|seen| seen.status == Some(0))
        })
    };
    let seen = Deadline::after(WAIT).poll(stored).context("no hits")?;
    assert!(seen.line.contains(" | hit_ratio="), "{}", seen.line);
    assert!(seen.line.contains("%;75:;50: requests="), "{}", seen.line);
    assert_seen(
        &sense(&proxy, "hit-ratio -c 100:")?,
        2,
        "HIT-RATIO CRITICAL",
    );
    assert_seen(&sense(&proxy, "hit-ratio -w 100:")?, 1, "HIT-RATIO WARNING");
    let seen = sense(&proxy, "hit-ratio -c 100: --over 50ms")?;
    assert_seen(
        &seen,
        0,
        "HIT-RATIO OK: nothing was asked of a cache | requests=0c",
    );
    Ok(())
}

#[test]
fn errors_of_origins_are_counted() -> Result<()> {
    let (_origin, proxy) = start()?;
    let client = Client::new(proxy.port());
    assert_seen(
        &sense(&proxy, "origin-errors -c 0")?,
        0,
        "ORIGIN-ERRORS OK: 0 of 0 exchanges",
    );
    client.get("/a")?;
    client.get("/bad")?;
    let counted = || {
        let seen = sense(&proxy, "origin-errors -w 10 -c 60").ok()?;
        Some(seen).filter(|seen| seen.line.contains("1 of 2 exchanges"))
    };
    let seen = Deadline::after(WAIT).poll(counted).context("not counted")?;
    assert_seen(&seen, 1, "ORIGIN-ERRORS WARNING");
    assert!(
        seen.line.ends_with("| errors=50%;10;60 exchanges=2c"),
        "{}",
        seen.line
    );
    Ok(())
}

#[test]
fn latency_is_that_of_a_request_of_its_own() -> Result<()> {
    let (_origin, proxy) = start()?;
    let ask = |path: &str, more: &[&str]| {
        let url = format!("http://127.0.0.1:{}{path}", proxy.port());
        run(&[&["latency", "--url", &url], more].concat())
    };
    let seen = ask("/here", &["-w", "8", "-c", "9"])?;
    assert_seen(&seen, 0, "LATENCY OK: status 200 after ");
    assert!(seen.line.contains("s;8;9 size="), "{}", seen.line);
    assert_seen(
        &ask("/here", &["-c", "~:0"])?,
        2,
        "LATENCY CRITICAL: status 200",
    );
    assert_seen(&ask("/broken", &[])?, 2, "LATENCY CRITICAL: status 503");
    let nobody = format!("http://127.0.0.1:{}/", free_port()?);
    assert_seen(
        &run(&["latency", "--url", &nobody])?,
        2,
        "LATENCY CRITICAL: no answer from ",
    );
    assert_seen(
        &run(&["latency", "--url", "ftp://x/"])?,
        3,
        "LATENCY UNKNOWN: the URL is not",
    );
    Ok(())
}

#[test]
fn zones_and_disks_tell_what_they_hold_and_which_failed() -> Result<()> {
    let (_origin, proxy) = start()?;
    let seen = sense(&proxy, "zone -w 90 -c 95")?;
    assert_seen(&seen, 0, "ZONE OK: pond ");
    assert!(seen.line.contains("%;90;95 'pond bytes'="), "{}", seen.line);
    assert_seen(
        &sense(&proxy, "zone -c 50: --zone pond")?,
        2,
        "ZONE CRITICAL: pond ",
    );
    assert_seen(
        &sense(&proxy, "zone --zone other")?,
        3,
        "ZONE UNKNOWN: there is no such zone",
    );
    let seen = sense(&proxy, "disk")?;
    assert_seen(
        &seen,
        0,
        "DISK OK: 2 disks are well | failed=0 full=0 disks=2 failures=0c read_errors=0c",
    );
    let mount = proxy.dir().join("m2");
    std::fs::rename(&mount, proxy.dir().join("gone"))?;
    std::fs::write(&mount, "no folder")?;
    let client = Client::new(proxy.port());
    let mut number = 0;
    let failed = || {
        number += 1;
        client.get(&format!("/{number}")).ok()?;
        sense(&proxy, "disk")
            .ok()
            .filter(|seen| seen.status == Some(2))
    };
    let seen = Deadline::after(WAIT)
        .poll(failed)
        .context("no disk failed")?;
    assert!(
        seen.line.contains("/m2/two is failed | failed=1"),
        "{}",
        seen.line
    );
    Ok(())
}

#[test]
fn reload_that_was_refused_is_critical_until_one_is_taken() -> Result<()> {
    let (_origin, mut proxy) = start()?;
    assert_seen(
        &sense(&proxy, "reload")?,
        0,
        "RELOAD OK: the configuration in force was taken ",
    );
    let wait_for = |proxy: &Proxy, status: i32| {
        let seen = || {
            sense(proxy, "reload")
                .ok()
                .filter(|it| it.status == Some(status))
        };
        Deadline::after(WAIT).poll(seen).context("no such state")
    };
    proxy.set_conf(&CONF.replace("listen", "tpyo on; listen"))?;
    proxy.reload()?;
    let seen = wait_for(&proxy, 2)?;
    assert_seen(&seen, 2, "RELOAD CRITICAL: the last reload was refused; ");
    assert!(seen.line.contains(" | refused=1 age="), "{}", seen.line);
    proxy.set_conf(CONF)?;
    proxy.reload()?;
    let seen = wait_for(&proxy, 0)?;
    assert!(
        seen.line.contains(" reloads=1c refused_reloads=1c"),
        "{}",
        seen.line
    );
    Ok(())
}

/// Writes a certificate that ends so many days from now, and gives the configuration that names it.
fn conf_with(dir: &std::path::Path, year: i32) -> Result<String> {
    let key = KeyPair::generate()?;
    let mut params = CertificateParams::new(vec!["a.example".to_string()])?;
    params.not_before = date_time_ymd(2001, 1, 1);
    params.not_after = date_time_ymd(year, 1, 1);
    let certificate = params.self_signed(&key)?;
    std::fs::write(dir.join("a.pem"), certificate.pem())?;
    std::fs::write(dir.join("a.key"), key.serialize_pem())?;
    let conf = dir.join("nginx.conf");
    let text = "events {} http { server { listen 127.0.0.1:8443 ssl; ssl_certificate a.pem; \
                ssl_certificate_key a.key; } }";
    std::fs::write(&conf, text)?;
    Ok(conf.display().to_string())
}

#[test]
fn certificates_have_days_left() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let conf = conf_with(dir.path(), 2099)?;
    let seen = run(&["certificate", "-w", "30:", "-c", "7:", "--conf", &conf])?;
    assert_seen(&seen, 0, "CERTIFICATE OK: ");
    assert!(seen.line.contains("days are left to ") && seen.line.ends_with(";30:;7:"));
    assert_seen(
        &run(&["certificate", "-w", "1000000:", "--conf", &conf])?,
        1,
        "CERTIFICATE W",
    );
    let conf = conf_with(dir.path(), 2002)?;
    assert_seen(
        &run(&["certificate", "--conf", &conf])?,
        2,
        "CERTIFICATE CRITICAL: -",
    );
    std::fs::write(dir.path().join("a.pem"), "no certificate")?;
    assert_seen(
        &run(&["certificate", "--conf", &conf])?,
        3,
        "CERTIFICATE UNKNOWN: ",
    );
    Ok(())
}

#[test]
fn json_says_the_same_and_mistakes_are_unknown() -> Result<()> {
    let (_origin, proxy) = start()?;
    let seen = sense(&proxy, "disk --json -c 0")?;
    let said: serde_json::Value = serde_json::from_str(&seen.line)?;
    assert_eq!(said["sensor"], "disk");
    assert_eq!(said["state"], "ok");
    assert_eq!(said["values"][0]["name"], "failed");
    assert_eq!(said["values"][0]["critical"], "0");
    for words in [
        &["temperature"][..],
        &["disk", "-w", "x"],
        &["disk", "--url", "x"],
        &[],
    ] {
        assert_eq!(run(words)?.status, Some(3), "{words:?}");
    }
    let help = run(&["--help"])?;
    assert_eq!(help.status, Some(0));
    assert!(help.line.starts_with("usage: millpond sensor"));
    Ok(())
}
