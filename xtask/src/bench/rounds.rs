//! Rounds in which nginx and Millpond take turns.

use std::time::Duration;

use anyhow::{Context, Result};
use millpond_testkit::Proxy;

use super::cpu;
use super::options::Options;

/// How often, and for how long.
pub(crate) struct Rounds {
    count: usize,
    pub(crate) time: Duration,
}

impl Rounds {
    /// As options say: five rounds, each of so many seconds, unless told.
    pub(crate) fn of(options: &Options, seconds: u64) -> Self {
        Rounds {
            count: options.rounds(5),
            time: options.time(seconds),
        }
    }

    /// Runs them: what each cost nginx and Millpond. One round more comes before them, which opens
    /// connections and fills caches.
    pub(crate) fn run(
        &self,
        what: &str,
        mut costs: impl FnMut(usize) -> Result<(f64, f64)>,
    ) -> Result<Vec<(f64, f64)>> {
        let mut rounds = Vec::new();
        for round in 0..=self.count {
            let (nginx, millpond) = costs(round)?;
            eprintln!("{what}, round {round}: nginx {nginx:.1}, Millpond {millpond:.1}");
            if round > 0 {
                rounds.push((nginx, millpond));
            }
        }
        Ok(rounds)
    }
}

/// What is done, and the CPU time that the server spent on it on its own core.
pub(crate) fn spent<T>(proxy: &Proxy, drive: impl FnOnce() -> Result<T>) -> Result<(T, Duration)> {
    let pid = proxy.pid().context("the server is not running")?;
    cpu::pin(pid, cpu::SERVER_CORE)?;
    let before = cpu::spent(pid)?;
    let done = drive()?;
    Ok((done, cpu::spent(pid)? - before))
}
