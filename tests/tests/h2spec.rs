//! h2spec against the server, in clear text and over TLS.
//!
//! The suite takes it that frames may have 16 KiB, and no more. Requests go to an origin, so that
//! a body that is broken off by the suite is waited for, and not answered early.

use anyhow::{Context, Result, ensure};
use millpond_testkit::{Answer, Kind, LogCheck, Origin, Proxy, skip};
use std::path::{Path, PathBuf};
use std::process::Command;

const CONF: &str = "%%GLOBALS%%
    events {}
    http {
        %%HTTP%%
        server {
            listen 127.0.0.1:%%PORT%%;
            listen 127.0.0.1:%%PORT_TLS%% ssl;
            http2 on;
            http2_max_frame_size 16k;
            ssl_certificate cert.pem;
            ssl_certificate_key key.pem;
            location / { proxy_pass http://%%ORIGIN%%; }
        }
    }";

/// The suite's case of bytes that are no preface: in clear text they are a request of HTTP/1, which
/// is answered in HTTP/1. nginx does so, too.
const NO_PREFACE: &str = "Sends invalid connection preface";

/// The program, where `cargo xtask setup` installs it.
fn program() -> Option<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent()?;
    let path = root.join("target/tools/bin/h2spec");
    path.is_file().then_some(path)
}

/// The cases that fail, and the last line.
fn run(program: &Path, port: u16, more: &[&str]) -> Result<(Vec<String>, String)> {
    let output = Command::new(program)
        .args(["-h", "127.0.0.1", "-o", "4", "-p", &port.to_string()])
        .args(more)
        .output()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let last = text.lines().rfind(|line| line.contains(" tests, "));
    let end = last
        .with_context(|| format!("no end in {text}"))?
        .to_owned();
    let failures = text.split("Failures:").nth(1).unwrap_or_default();
    let failed = failures
        .lines()
        .filter_map(|line| line.trim().strip_prefix("× "));
    Ok((failed.map(str::to_owned).collect(), end))
}

#[test]
fn the_suite_passes() -> Result<()> {
    let Some(program) = program() else {
        skip("h2spec is not installed: `cargo xtask setup`, where there is Go");
        return Ok(());
    };
    let origin = Origin::start()?;
    origin.route("/", Answer::new(200).body("some bytes"));
    let key = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()])?;
    let proxy = Proxy::new(Kind::Millpond, CONF)
        .origin(&origin)
        .file("cert.pem", key.cert.pem())
        .file("key.pem", key.signing_key.serialize_pem())
        .log_check(LogCheck::Off)
        .start()?;
    let (failed, end) = run(&program, proxy.port(), &[])?;
    let is_excused = |line: &String| line.contains(NO_PREFACE);
    ensure!(
        failed.len() == 1 && failed.iter().all(is_excused),
        "{failed:?} {end}"
    );
    let (failed, end) = run(&program, proxy.named_port("PORT_TLS"), &["-t", "-k"])?;
    ensure!(failed.is_empty(), "{failed:?} {end}");
    ensure!(end.contains("145 passed"), "{end}");
    Ok(())
}
