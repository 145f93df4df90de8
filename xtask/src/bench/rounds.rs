//! Rounds in which another server and Millpond take turns.

use std::time::Duration;

use anyhow::{Context, Result};
use millpond_testkit::Proxy;

use super::cpu;
use super::options::Options;

/// The number of rounds, and the time of each.
pub(crate) struct Rounds {
    count: usize,
    pub(crate) time: Duration,
    /// The other server.
    other: &'static str,
}

impl Rounds {
    /// As options say: five rounds, each of so many seconds, unless told.
    pub(crate) fn of(options: &Options, seconds: u64) -> Self {
        Rounds {
            count: options.rounds(5),
            time: options.time(seconds),
            other: "nginx",
        }
    }

    /// Against another server than nginx.
    pub(crate) fn against(self, other: &'static str) -> Self {
        Rounds { other, ..self }
    }

    /// Runs them: what each cost the other and Millpond. One round more comes before them, which
    /// opens connections and fills caches.
    pub(crate) fn run(
        &self,
        what: &str,
        mut costs: impl FnMut(usize) -> Result<(f64, f64)>,
    ) -> Result<Vec<(f64, f64)>> {
        let mut rounds = Vec::new();
        for round in 0..=self.count {
            let (theirs, ours) = costs(round)?;
            let other = self.other;
            eprintln!("{what}, round {round}: {other} {theirs:.1}, Millpond {ours:.1}");
            if round > 0 {
                rounds.push((theirs, ours));
            }
        }
        Ok(rounds)
    }
}

/// The work that is done, and the CPU time that the server spent on it on its own core.
pub(crate) fn spent<T>(proxy: &Proxy, drive: impl FnOnce() -> Result<T>) -> Result<(T, Duration)> {
    let pid = proxy.pid().context("the server is not running")?;
    spent_by(pid, drive)
}

/// The same of a process.
pub(crate) fn spent_by<T>(pid: u32, drive: impl FnOnce() -> Result<T>) -> Result<(T, Duration)> {
    cpu::pin(pid, cpu::SERVER_CORE)?;
    let before = cpu::spent(pid)?;
    let done = drive()?;
    Ok((done, cpu::spent(pid)? - before))
}
