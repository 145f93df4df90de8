//! Hits that are due at fixed times: the crowd that asks, its times, and rows of them.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use millpond_gauge::crowd::{Crowd, CrowdConf, Paths, Seen, Steady};
use millpond_testkit::Proxy;

use super::line::{Line, Wanted, middle};
use super::{cpu, sorted};
use crate::tally::Tally;

/// Longest wait for an answer.
const PATIENCE: Duration = Duration::from_secs(30);

/// The shares of hits whose times are told, and their names.
pub(super) const SHARES: [(f64, &str); 3] = [(0.5, "50 %"), (0.99, "99 %"), (0.999, "99.9 %")];

/// Microseconds of hits, by share.
pub(super) type Micros = [f64; SHARES.len()];

/// Nobody yet, for a server; the bodies that it is asked for are so long.
pub(super) fn crowd_of(proxy: &Proxy, fields: &str, body_bytes: u64) -> Result<Crowd> {
    Crowd::new(CrowdConf {
        address: SocketAddrV4::new(Ipv4Addr::LOCALHOST, proxy.port()),
        fields: fields.to_owned(),
        body_bytes,
        patience: PATIENCE,
    })
}

/// Times of hits that this thread asks for before all else on its core; none may fail.
pub(super) fn hits(
    what: &str,
    crowd: &mut Crowd,
    steady: Steady,
    paths: &mut Paths,
) -> Result<Micros> {
    let first = cpu::First::now();
    let seen = crowd.ask(steady, paths)?;
    drop(first);
    let [half, most, nearly] = SHARES.map(|(share, _)| seen.times.micros_at(share));
    eprintln!(
        "{what}: {half:.0}, {most:.0}, {nearly:.0} µs, the longest {:.0}; sent late by {:.0} µs \
         (99.9 %); {} sent again",
        seen.times.micros_at(1.0),
        seen.late.micros_at(0.999),
        seen.again,
    );
    well(seen)?;
    Ok([half, most, nearly])
}

/// The record, if nothing failed.
pub(super) fn well(seen: Seen) -> Result<Seen> {
    let (failed, why) = (seen.failed, &seen.examples);
    ensure!(failed == 0, "{failed} requests failed: {why:?}");
    Ok(seen)
}

/// Keeps a server to its core.
pub(super) fn pinned(proxy: &Proxy) -> Result<()> {
    let pid = proxy.pid().context("the server is not running")?;
    cpu::pin(pid, cpu::SERVER_CORE)
}

/// The figure of the round in the middle.
pub(super) fn in_the_middle(values: impl Iterator<Item = f64>) -> f64 {
    middle(&sorted(values))
}

/// Prints a row of figures of both servers.
pub(super) fn row(
    row: String,
    unit: &'static str,
    (nginx, millpond): (Option<f64>, f64),
    wanted: Wanted,
) -> Tally {
    let line = Line {
        row,
        unit,
        nginx,
        millpond,
        wanted,
    };
    line.print()
}
