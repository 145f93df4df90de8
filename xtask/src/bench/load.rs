//! The load, on the core that the servers do not have: wrk, or the gauge, which compares every
//! byte.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use millpond_testkit::Proxy;

use super::cpu::CLIENT_CORE;
use crate::workspace;

/// Drives a path of the server at a port; returns how many requests were answered with 200.
pub(crate) fn run(port: u16, path: &str, connections: u32, time: Duration) -> Result<u64> {
    let url = format!("http://127.0.0.1:{port}{path}");
    run_url(&url, connections, time)
}

/// Drives a URL; returns how many requests were answered with 200.
pub(crate) fn run_url(url: &str, connections: u32, time: Duration) -> Result<u64> {
    drive(&[url], connections, time)
}

/// Drives a path with a field line; returns how many requests were answered with 200, 206 or 304.
pub(crate) fn run_with(
    port: u16,
    (path, field): (&str, &str),
    connections: u32,
    time: Duration,
) -> Result<u64> {
    let url = format!("http://127.0.0.1:{port}{path}");
    drive(&["-H", field, &url], connections, time)
}

/// Sends what a script of wrk makes, and returns how many requests were answered with 200.
pub(crate) fn run_script(
    proxy: &Proxy,
    script: &Path,
    connections: u32,
    time: Duration,
) -> Result<u64> {
    let url = format!("http://127.0.0.1:{}", proxy.port());
    let script = script.to_str().context("a path that is not text")?;
    drive(&["-s", script, &url], connections, time)
}

/// Has the gauge ask for one body again and again; returns how many answers were right.
pub(crate) fn run_gauge(
    proxy: &Proxy,
    body_bytes: u64,
    connections: u32,
    time: Duration,
) -> Result<u64> {
    let output = Command::new("taskset")
        .args(["-c", CLIENT_CORE])
        .arg(workspace::binary())
        .args([
            "gauge",
            "run",
            "simple",
            "-q",
            "--objects",
            "1",
            "--json",
            "-",
        ])
        .args(["--url", &format!("http://127.0.0.1:{}", proxy.port())])
        .args(["--size", &body_bytes.to_string()])
        .args(["--users", &connections.to_string()])
        .args(["--time", &format!("{}s", time.as_secs())])
        .output()
        .context("the gauge does not run")?;
    let text = String::from_utf8_lossy(&output.stdout);
    ensure!(
        output.status.success(),
        "the gauge found something wrong: {text}"
    );
    let report: serde_json::Value = serde_json::from_str(&text)?;
    report["requests"]
        .as_u64()
        .context("the gauge told no requests")
}

fn drive(what: &[&str], connections: u32, time: Duration) -> Result<u64> {
    let output = Command::new("taskset")
        .args(["-c", CLIENT_CORE, "wrk", "-t1"])
        .arg(format!("-c{connections}"))
        .arg(format!("-d{}s", time.as_secs()))
        .args(what)
        .output()
        .context("wrk is not installed (Debian package wrk)")?;
    let text = String::from_utf8_lossy(&output.stdout);
    ensure!(output.status.success(), "wrk failed: {text}");
    ensure!(
        !text.contains("Non-2xx"),
        "not all answers were 200:\n{text}"
    );
    let requests = text
        .lines()
        .find_map(|line| line.trim().split_once(" requests in "))
        .with_context(|| format!("no count in the output of wrk:\n{text}"))?
        .0;
    let count: u64 = requests.trim().parse()?;
    ensure!(count > 0, "no request was answered:\n{text}");
    Ok(count)
}
