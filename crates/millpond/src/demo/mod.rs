//! `millpond demo`: a slow origin, Millpond in front of it, and a live page, in one process.
//!
//! ```text
//! curl ──► Millpond :8080 ──► origin :8081        conf/demo.conf, with the ports that are free
//!          https on :8443                         certificate.rs: one of its own making
//!              │  counters      │  ledger
//! browser ◄────┴── page :8082 ◄─┘                 server-sent events
//! ```
//!
//! Millpond runs here as it always does: from a configuration file, which is `conf/demo.conf` with
//! its ports and its directory replaced. The origin and the page are served by threads of a small
//! server of their own (`http.rs`).
//!
//! `millpond demo --fleet` is three nodes of a fleet in place of one server (`fleet/`).
//!
//! Invariants:
//! 1. Nothing outside of one temporary directory is written, and it is removed at the end.
//! 2. Everything listens on 127.0.0.1 only.
//!
//! Does not need to be root, and does not touch the network's speed: the origin itself is slow.

mod certificate;
mod feed;
mod fleet;
mod http;
mod options;
mod origin;
mod page;
mod stats;
mod tour;

use std::io::Write;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, Result};
use certificate::Certificate;
use http::Stop;
use millpond_server::server::Server;

use crate::arguments::Arguments;
use options::Show;
use origin::Origin;
use page::Page;
use stats::Ledger;

/// The configuration as it stands in the repository; it works by hand, too.
const CONF: &str = include_str!("../../../../conf/demo.conf");
/// Names in the file that are replaced by what is free and ours.
const CONF_FRONT: &str = "127.0.0.1:8080";
const CONF_ENCRYPTED: &str = "127.0.0.1:8443";
const CONF_ORIGIN: &str = "127.0.0.1:8081";
const CONF_DIR: &str = "/tmp/millpond-demo";
/// The ports that are used if nobody else has them.
const FRONT_PORT: u16 = 8080;
const ENCRYPTED_PORT: u16 = 8443;
const ORIGIN_PORT: u16 = 8081;
const PAGE_PORT: u16 = 8082;

/// Runs the demo until it is interrupted.
pub(crate) fn run(words: impl Iterator<Item = String>) -> Result<ExitCode> {
    let words: Vec<String> = words.collect();
    let show = match crate::options::read(words, options::USAGE, options::parse) {
        Ok(show) => show,
        Err(code) => return Ok(code),
    };
    let dir = tempfile::Builder::new()
        .prefix("millpond-demo-")
        .tempdir()
        .context("a temporary directory")?;
    let outcome = match show {
        Show::Server => run_in(dir.path()),
        Show::Fleet(options) => fleet::run(options, dir.path()),
    };
    dir.close().context("removing the temporary directory")?;
    outcome
}

fn run_in(dir: &Path) -> Result<ExitCode> {
    let (origin, page) = (listen(ORIGIN_PORT)?, listen(PAGE_PORT)?);
    let [front, encrypted] = front_addresses(origin.local_addr()?.port())?;
    let places = Places {
        front,
        encrypted,
        origin: origin.local_addr()?.to_string(),
        page: page.local_addr()?.to_string(),
        conf: dir.join("demo.conf"),
    };
    let conf = effective_conf(CONF, &places, dir);
    std::fs::write(&places.conf, conf).with_context(|| places.conf.display().to_string())?;

    let certificate = Certificate::make(dir)?;
    let stop = Arc::new(Stop::default());
    let ledger = Arc::new(Ledger::default());
    let site = Origin::new(Arc::clone(&ledger), Arc::clone(&stop));
    http::spawn(origin, Arc::new(site))?;
    let outcome = crate::start::run_then(&arguments(dir)?, |server: &Server| {
        let trials = tour::trials(&format!("http://{}", places.front));
        let shared = Arc::clone(server.shared());
        let site = Page::start(shared, ledger, Arc::clone(&stop), &trials)?;
        http::spawn(page, Arc::new(site))?;
        print(&places, &certificate, dir, &tour::text(&trials))
    });
    stop.set();
    outcome
}

/// The command line on which Millpond would serve the same by itself.
fn arguments(dir: &Path) -> Result<Arguments> {
    let dir = dir.to_str().context("a temporary directory in UTF-8")?;
    let words = ["-p", dir, "-c", "demo.conf", "-e", "error.log"];
    Ok(Arguments::parse(words.map(str::to_string).into_iter())?)
}

/// Addresses and files of the demo's parts.
struct Places {
    front: String,
    /// Address for https.
    encrypted: String,
    origin: String,
    page: String,
    conf: PathBuf,
}

/// Listens on `port`, or on any other port if that one is taken.
fn listen(port: u16) -> Result<TcpListener> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, port))
        .or_else(|_| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)))
        .context("listening on 127.0.0.1")
}

/// The addresses for Millpond, which binds them itself: in clear text, and for https. Whoever has
/// the origin's usual port, and keeps it, may have Millpond's too; so demos that start together
/// never choose the same.
fn front_addresses(origin: u16) -> Result<[String; 2]> {
    let ports = match origin {
        ORIGIN_PORT => [FRONT_PORT, ENCRYPTED_PORT],
        _ => [0, 0],
    };
    // Both are held until both are known, so that they differ.
    let [front, encrypted] = [listen(ports[0])?, listen(ports[1])?];
    Ok([
        front.local_addr()?.to_string(),
        encrypted.local_addr()?.to_string(),
    ])
}

fn effective_conf(conf: &str, places: &Places, dir: &Path) -> String {
    conf.replace(CONF_FRONT, &places.front)
        .replace(CONF_ENCRYPTED, &places.encrypted)
        .replace(CONF_ORIGIN, &places.origin)
        .replace(CONF_DIR, &dir.display().to_string())
}

fn print(places: &Places, certificate: &Certificate, dir: &Path, trials: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(
        out,
        "Millpond demo: a slow origin, and Millpond in front of it.

  live page      http://{page}/
  Millpond       http://{front}/
  by https       https://{encrypted}/   HTTP/2 and HTTP/1.1
  certificate    {certificate}   of the demo's own making
  its SHA-256    {fingerprint}
  origin         http://{origin}/   10 MB at 1 MB/s, and a page that takes 300 ms
  configuration  conf/demo.conf; with these ports: {conf}
  access log     {log}

Open the page, and try in another terminal:

{trials}By https, in HTTP/2. curl trusts the file for this one line; a browser warns, and
shows the SHA-256 above.

     curl -s -D - --cacert {certificate} https://{encrypted}/time

Ctrl-C ends the demo and removes {dir}.",
        page = places.page,
        front = places.front,
        encrypted = places.encrypted,
        certificate = certificate.path.display(),
        fingerprint = certificate.fingerprint,
        origin = places.origin,
        conf = places.conf.display(),
        log = dir.join("access.log").display(),
        dir = dir.display(),
    )?;
    out.flush()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_effective_configuration_names_only_what_is_ours() {
        let places = Places {
            front: "127.0.0.1:1".to_string(),
            encrypted: "127.0.0.1:4".to_string(),
            origin: "127.0.0.1:2".to_string(),
            page: "127.0.0.1:3".to_string(),
            conf: PathBuf::new(),
        };
        let conf = effective_conf(CONF, &places, Path::new("/d"));
        for (present, text) in [
            (true, "listen 127.0.0.1:1;"),
            (true, "listen 127.0.0.1:4 ssl;"),
            (true, "ssl_certificate /d/demo.pem;"),
            (true, "server 127.0.0.1:2;"),
            (true, "proxy_cache_path /d/cache"),
            (false, "8080"),
            (false, "8081"),
            (false, "8443"),
            (false, "/tmp"),
        ] {
            assert_eq!(conf.contains(text), present, "{text}");
        }
    }
}
