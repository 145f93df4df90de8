//! Report of a run: as a table, as JSON, as a page, and against limits.
//!
//! - `figure` – the figures by name
//! - `limit` – `ttfb.p99 > 5ms`
//! - `table` – for a terminal
//! - `page` – one file of HTML with charts

mod figure;
mod limit;
mod page;
mod table;

use std::collections::BTreeMap;
use std::time::Duration;

use hdrhistogram::Histogram;
use serde::Serialize;

pub use self::limit::Limit;
pub use self::page::{About, page};
pub use self::table::{bytes, table, time};
use crate::client::{OF_BYTES, Protocol};
use crate::load::{Connections, Faults, Record, Second, Shared};
use crate::module::{Claim, Module};
use crate::origin::Counts;

/// Parts of a percentile that a page draws.
const CURVE: usize = 60;

/// Times, in microseconds.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Times {
    /// The shortest.
    pub min: u64,
    /// Half of all are shorter.
    pub p50: u64,
    /// Nine of ten.
    pub p90: u64,
    /// 95 of 100.
    pub p95: u64,
    /// 99 of 100.
    pub p99: u64,
    /// 999 of 1000.
    pub p999: u64,
    /// The longest.
    pub max: u64,
    /// The mean.
    pub mean: f64,
    /// Percentile and time, for a curve.
    pub curve: Vec<(f64, u64)>,
}

impl Times {
    fn of(histogram: &Histogram<u64>) -> Self {
        let at = |quantile: f64| histogram.value_at_quantile(quantile);
        // Each point halves what is left, four points at a time: 0, 16, 29, … 99.9969 %.
        let quantile = |step: usize| 1.0 - 0.5_f64.powf(step as f64 / 4.0);
        Self {
            min: histogram.min(),
            p50: at(0.5),
            p90: at(0.9),
            p95: at(0.95),
            p99: at(0.99),
            p999: at(0.999),
            max: histogram.max(),
            mean: histogram.mean(),
            curve: (0..CURVE)
                .map(|step| (quantile(step), at(quantile(step))))
                .collect(),
        }
    }
}

/// Amount of a figure, with its unit.
pub fn shown(name: &str, amount: f64) -> Option<String> {
    Some(figure::find(name)?.show(amount))
}

/// Resources that the processes of a server used, as far as the gauge started it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct ServerUse {
    /// Microseconds of CPU time for a request, user and system.
    pub cpu_us: f64,
    /// Calls that read or wrote, for a request.
    pub calls: f64,
    /// The most bytes of memory at any look.
    pub memory: u64,
    /// Bytes of memory in the end above what there was before the load.
    pub growth: u64,
    /// The most bytes of disk that its directory took at any look.
    pub disk: u64,
    /// Bytes that were given to disks.
    pub written: u64,
}

/// Choice to count what a module says of all answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claims {
    /// The claims must be true.
    Held,
    /// The claims are told, and do not matter.
    Ignored,
}

/// Report of a run.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Module that the users ran.
    pub module: String,
    /// Number of users.
    pub users: usize,
    /// Protocol of the users.
    pub protocol: Protocol,
    /// Requests a second that were wanted.
    pub rate: Option<f64>,
    /// Seed of the chances.
    pub seed: u64,
    /// Time that the run took.
    pub seconds: f64,
    /// Answers.
    pub requests: u64,
    /// Number of bytes of the answers' bodies, each compared.
    pub bytes: u64,
    /// Connections of the users.
    pub connections: Connections,
    /// Answers by status.
    pub statuses: BTreeMap<u16, u64>,
    /// Answers by cache status; `-`: none was told.
    pub cache_statuses: BTreeMap<String, u64>,
    /// Times to the first byte.
    pub ttfb: Times,
    /// Times to the last byte.
    pub total: Times,
    /// First bytes behind the first of those who asked at one time; none but for `coalesce`.
    pub behind: Option<Times>,
    /// Times of the phases that the module tells apart.
    pub phases: BTreeMap<&'static str, Times>,
    /// The largest of what the module counts.
    pub amounts: BTreeMap<&'static str, u64>,
    /// Faults of answers, by kind.
    pub faults: BTreeMap<&'static str, Faults>,
    /// Claims that must be true of all answers.
    pub claims: Vec<Claim>,
    /// Counts of the requests to the origin.
    pub origin: Option<Counts>,
    /// Resources that the server used; none if it was not started by the gauge.
    pub server: Option<ServerUse>,
    /// Second by second.
    pub timeline: Vec<Second>,
}

impl Report {
    /// Sums up.
    pub fn new(module: &Module, shared: &Shared, record: &Record, elapsed: Duration) -> Self {
        let load = &shared.load;
        Self {
            module: module.name().to_owned(),
            users: load.users,
            protocol: shared.target.protocol,
            rate: load.rate,
            seed: load.seed,
            seconds: elapsed.as_secs_f64(),
            requests: record.requests,
            bytes: record.bytes,
            connections: record.connections,
            statuses: record.statuses.clone(),
            cache_statuses: record.cache_statuses.clone(),
            ttfb: Times::of(&record.first_byte),
            total: Times::of(&record.total),
            behind: (!record.behind.is_empty()).then(|| Times::of(&record.behind)),
            phases: record
                .phases
                .iter()
                .map(|(name, times)| (*name, Times::of(times)))
                .collect(),
            amounts: record.amounts.clone(),
            faults: record.faults.clone(),
            claims: module.claims(shared, record, elapsed),
            origin: shared.origin.as_ref().map(|origin| origin.counts()),
            server: None,
            timeline: record.seconds.clone(),
        }
    }

    /// True if all answers were right, and all claims are kept as far as they count.
    pub fn is_right(&self, claims: Claims) -> bool {
        let is_kept = || self.claims.iter().all(|claim| claim.is_kept);
        self.faults.is_empty() && (claims == Claims::Ignored || is_kept())
    }

    /// True if every byte was right, whatever else was not.
    pub fn has_right_bytes(&self) -> bool {
        let kinds = self.faults.keys();
        kinds.into_iter().all(|kind| !OF_BYTES.contains(kind))
    }

    /// The part of the answers that were hits.
    pub fn hit_ratio(&self) -> f64 {
        let hits = self.cache_statuses.get("HIT").copied().unwrap_or(0);
        hits as f64 / self.requests.max(1) as f64
    }

    /// The figure of that name: times in microseconds. None if there is none in this run.
    pub fn figure(&self, name: &str) -> Option<f64> {
        figure::find(name).and_then(|figure| figure.of(self))
    }
}
