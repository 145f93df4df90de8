//! Options of `cargo xtask bench`, and of benchmarks of the store that drive the binary.

use std::time::Duration;

use anyhow::Result;
use clap::{Parser, ValueEnum};

/// The figure that is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Name {
    /// Hot hits.
    Table,
    /// Everything that has nginx beside it.
    All,
    /// Hot hits against HAProxy's.
    Haproxy,
    /// A purge on a hundred nodes of a fleet.
    Fleet,
    /// Counting by site.
    Sites,
    /// Memory of idle connections.
    Idle,
    /// A hundred thousand connections.
    Crowd,
    /// Times of hits while something else goes on.
    Latency,
    /// Bodies that are stored on two block devices.
    Disks,
    /// A million entries.
    Scale,
    /// Encrypted requests, handshakes and idle connections.
    Tls,
    /// Requests over HTTP/3.
    Http3,
    /// Misses that are not stored.
    Misses,
    /// Connections that are passed on as they are.
    Stream,
    /// The clients that ask for what is being fetched.
    Waiters,
}

/// `cargo xtask bench [NAME] [OPTION...]`; a benchmark takes what it has a use for.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask bench", disable_version_flag = true)]
pub(crate) struct Options {
    /// The figures that are measured.
    #[arg(value_enum, default_value = "table")]
    pub(crate) name: Name,
    /// The number of rounds, in turn.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: Option<u32>,
    /// Seconds of a round.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    seconds: Option<u64>,
    /// Only rows of hits, encrypted requests or states whose name has this in it.
    #[arg(long)]
    pub(crate) row: Option<String>,
    /// The gauge is not asked for a second opinion.
    #[arg(long)]
    pub(crate) wrk_alone: bool,
    /// Connections: 10,000 for `idle`, 100,000 for `crowd`; 100 nodes for `fleet`.
    #[arg(long, value_parser = clap::value_parser!(u32).range(100..))]
    connections: Option<u32>,
    /// Entries that a cache has: 300,000 for `latency`, a million for `scale`, 8000 for `disks`.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1000..))]
    entries: Option<u64>,
    /// Hits a second; for `scale` entries that are stored a second.
    #[arg(long, value_parser = clap::value_parser!(u32).range(100..))]
    rate: Option<u32>,
}

impl Options {
    /// Those of `cargo xtask bench`; wrong ones are told, and the program ends.
    pub(crate) fn of_bench(args: &[String]) -> Self {
        let words = std::iter::once("bench").chain(args.iter().map(String::as_str));
        Options::parse_from(words)
    }

    /// Those of another task, which has no name behind it.
    pub(crate) fn of(args: &[String]) -> Result<Self> {
        let words = ["bench", "all"]
            .into_iter()
            .chain(args.iter().map(String::as_str));
        Ok(Options::try_parse_from(words)?)
    }

    /// The number of rounds, where a benchmark usually takes so many.
    pub(crate) fn rounds(&self, usual: u32) -> usize {
        self.rounds.unwrap_or(usual) as usize
    }

    /// The time of a round, where a benchmark usually takes so many seconds.
    pub(crate) fn time(&self, usual: u64) -> Duration {
        Duration::from_secs(self.seconds.unwrap_or(usual))
    }

    /// The number of connections, where a benchmark usually has so many.
    pub(crate) fn connections(&self, usual: u32) -> usize {
        self.connections.unwrap_or(usual) as usize
    }

    /// The number of entries, where a benchmark usually has so many.
    pub(crate) fn entries(&self, usual: u64) -> u64 {
        self.entries.unwrap_or(usual)
    }

    /// Hits a second, if they were told.
    pub(crate) fn rate(&self) -> Option<f64> {
        self.rate.map(f64::from)
    }
}
