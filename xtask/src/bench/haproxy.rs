//! `cargo xtask bench haproxy`: hits per CPU second against HAProxy's cache in memory.
//!
//! HAProxy (Debian package `haproxy`) has one thread and a cache that holds the bodies; Millpond
//! has the configuration of the other rows. Both are pinned to the first core, wrk has the other,
//! rounds alternate. The figure is the CPU time that a server spent for each request.

use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result};
use millpond_gauge::origin::{Origin, OriginConf};
use millpond_gauge::resource::Resource;
use millpond_testkit::{Client, Deadline, Kind, Proxy, free_port};

use super::conf::Conf;
use super::line::Line;
use super::options::Options;
use super::rounds::{Rounds, spent_by};
use super::{cpu, load};
use crate::tally::Tally;

/// Bodies that are asked for: name, bytes, and HAProxy's CPU time over Millpond's, at least.
const ROWS: &[(&str, u64, f64)] = &[
    ("hit, 1 KiB, 64 connections", 1 << 10, 1.0),
    ("hit, 64 KiB, 64 connections", 64 << 10, 1.3),
];

const CONNECTIONS: u32 = 64;
/// The time that HAProxy may take until it listens.
const START: Duration = Duration::from_secs(10);

const CONF: &str = "
global
    nbthread 1
    maxconn 4096
cache bodies
    total-max-size 64
    max-object-size 1048576
    max-age 3600
defaults
    mode http
    timeout connect 10s
    timeout client 600s
    timeout server 600s
frontend clients
    bind 127.0.0.1:PORT
    http-request cache-use bodies
    http-response cache-store bodies
    http-response set-header X-Cache-Status stored
    default_backend origin
backend origin
    server origin ORIGIN
";

/// A HAProxy that ends with this.
struct Haproxy {
    process: Child,
    port: u16,
    conf: PathBuf,
}

impl Haproxy {
    /// Starts one in front of an origin and waits until it answers.
    fn start(origin: &str) -> Result<Self> {
        let port = free_port()?;
        let name = format!("millpond-bench-haproxy-{port}.cfg");
        let conf = std::env::temp_dir().join(name);
        let text = CONF.replace("PORT", &port.to_string());
        std::fs::write(&conf, text.replace("ORIGIN", origin))?;
        let process = Command::new("haproxy")
            .args(["-q", "-db", "-f"])
            .arg(&conf)
            .stdin(Stdio::null())
            .spawn()
            .context("haproxy is not installed (Debian package haproxy)")?;
        let started = Haproxy {
            process,
            port,
            conf,
        };
        started.wait()?;
        cpu::pin(started.process.id(), cpu::SERVER_CORE)?;
        Ok(started)
    }

    /// Waits until it listens.
    fn wait(&self) -> Result<()> {
        let connected = || TcpStream::connect(("127.0.0.1", self.port)).ok();
        let there = Deadline::after(START).poll(connected);
        there.map(drop).context("HAProxy does not listen")
    }
}

impl Drop for Haproxy {
    fn drop(&mut self) {
        // It has ended by itself, or it ends now.
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = std::fs::remove_file(&self.conf);
    }
}

/// Measures the rows; one below its bound counts as failed.
pub(super) fn run(options: &Options) -> Result<Tally> {
    let rounds = Rounds::of(options, 2).against("HAProxy");
    let origin = Origin::start(OriginConf::new())?;
    let address = origin.address().to_string();
    let haproxy = Haproxy::start(&address)?;
    let millpond = Proxy::new(Kind::Millpond, &Conf::default().text())
        .value("ORIGIN", &address)
        .start()?;
    let pid = millpond.pid().context("the server is not running")?;
    let mut tally = Tally::default();
    for &(row, body_bytes, bound) in ROWS {
        let resource = Resource::new("bench", "hot", body_bytes);
        for port in [haproxy.port, millpond.port()] {
            Client::new(port).get(resource.path())?;
        }
        let cost = |(pid, port): (u32, u16)| -> Result<f64> {
            let drive = || load::run(port, resource.path(), CONNECTIONS, rounds.time);
            let (requests, spent): (u64, Duration) = spent_by(pid, drive)?;
            Ok(spent.as_secs_f64() * 1e6 / requests as f64)
        };
        let costs = rounds.run(row, |_| {
            let theirs = cost((haproxy.process.id(), haproxy.port))?;
            Ok((theirs, cost((pid, millpond.port()))?))
        })?;
        tally += Line::of_rounds(row, "µs", bound, &costs).print();
    }
    Ok(tally)
}
