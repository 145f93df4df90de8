//! Counters of answers by cache status: how many, and how many bytes of bodies clients got with
//! them.
//!
//! Every worker adds to a shard of its own, which no other core writes; readers sum the shards.
//! Since shards are read one after the other, a sum is exact only when nothing is being answered.
//!
//! Invariants:
//! 1. An answer is counted once, when it was sent or its client was gone.
//! 2. An answer that no cache looked at counts under `-`, so that the total is all answers.

pub mod attempts;
pub mod cache_zone;
pub mod connections;
pub mod departed;
pub mod ending;
pub mod ledger;
pub mod limit;
pub mod missing;
pub mod peer;
pub mod place;
pub mod resets;
pub mod responses;
pub mod site;
pub mod site_info;
pub mod site_names;
pub mod site_numbers;
pub mod site_quota;
pub mod status_zone;
pub mod times;

use std::sync::atomic::{AtomicU64, Ordering};

use millpond_system::log::loss::{self, Lost};

use self::place::{Place, SHARDS};

/// The statuses, as `$upstream_cache_status` writes them; the last one stands for none.
pub const STATUSES: [&str; 8] = [
    "HIT",
    "MISS",
    "EXPIRED",
    "STALE",
    "UPDATING",
    "REVALIDATED",
    "BYPASS",
    "-",
];

/// Statuses whose body came from the cache, without waiting for the origin to send one.
pub const FROM_CACHE: [&str; 4] = ["HIT", "STALE", "UPDATING", "REVALIDATED"];

/// The place of a status among [`STATUSES`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Label(usize);

impl Label {
    /// That of `$upstream_cache_status`, if there is one.
    pub fn of(status: Option<&str>) -> Self {
        let name = status.unwrap_or("-");
        let index = STATUSES.iter().position(|known| *known == name);
        Label(index.unwrap_or(STATUSES.len() - 1))
    }

    /// True if the entry was not there.
    pub fn is_miss(self) -> bool {
        STATUSES.get(self.0) == Some(&"MISS")
    }

    fn index(self) -> usize {
        self.0
    }
}

/// Counters of all workers.
#[derive(Debug, Default)]
pub struct CacheCounters {
    shards: [Shard; SHARDS],
}

/// One worker's counters, on cache lines of their own.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Shard {
    requests: [AtomicU64; STATUSES.len()],
    bytes: [AtomicU64; STATUSES.len()],
}

/// Number of answers, and of the bytes of their bodies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// Answers.
    pub requests: u64,
    /// Bytes of bodies, as they were sent.
    pub bytes: u64,
}

/// The counters at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CacheSnapshot {
    counts: [Count; STATUSES.len()],
}

impl CacheCounters {
    /// Counts an answer of the worker that has a place.
    pub fn record(&self, place: Place, label: Label, bytes: u64) {
        let Some(shard) = self.shards.get(place.shard()) else {
            return;
        };
        let index = label.index();
        if let (Some(requests), Some(sum)) = (shard.requests.get(index), shard.bytes.get(index)) {
            place.add(requests, 1);
            place.add(sum, bytes);
        }
    }

    /// Sums the shards.
    pub fn snapshot(&self) -> CacheSnapshot {
        let mut snapshot = CacheSnapshot::default();
        for shard in &self.shards {
            let counted = shard.requests.iter().zip(&shard.bytes);
            for (count, (requests, bytes)) in snapshot.counts.iter_mut().zip(counted) {
                count.requests += requests.load(Ordering::Relaxed);
                count.bytes += bytes.load(Ordering::Relaxed);
            }
        }
        snapshot
    }
}

impl CacheSnapshot {
    /// Every status with its count, in the order of [`STATUSES`].
    pub fn by_status(&self) -> impl Iterator<Item = (&'static str, Count)> {
        STATUSES.into_iter().zip(self.counts)
    }

    /// All answers.
    pub fn total(&self) -> Count {
        self.sum(|_| true)
    }

    /// Answers whose body came from the cache.
    pub fn from_cache(&self) -> Count {
        self.sum(|name| FROM_CACHE.contains(&name))
    }

    /// The part of the answers that came from the cache, of those that a cache looked at; 0 when
    /// there are none.
    pub fn hit_ratio(&self) -> f64 {
        let asked = self.looked_up();
        if asked == 0 {
            return 0.0;
        }
        self.from_cache().requests as f64 / asked as f64
    }

    /// Answers that a cache was asked for.
    pub fn looked_up(&self) -> u64 {
        self.sum(|name| name != "-").requests
    }

    fn sum(&self, is_meant: impl Fn(&str) -> bool) -> Count {
        let mut sum = Count::default();
        for (name, count) in self.by_status() {
            if is_meant(name) {
                sum.requests += count.requests;
                sum.bytes += count.bytes;
            }
        }
        sum
    }
}

/// Lines that logs lost since the start.
pub fn lost_lines() -> Lost {
    loss::lost()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_of_all_workers_are_summed_by_status() {
        let counters = CacheCounters::default();
        for (worker, status, bytes) in [
            (0, Some("HIT"), 10),
            (1, Some("HIT"), 5),
            (1, Some("UPDATING"), 1),
            (17, Some("MISS"), 100),
            (2, None, 7),
        ] {
            counters.record(Place::shared(worker), Label::of(status), bytes);
        }
        let snapshot = counters.snapshot();
        let hit = snapshot.by_status().find(|(name, _)| *name == "HIT");
        assert_eq!(
            hit.map(|(_, count)| (count.requests, count.bytes)),
            Some((2, 15))
        );
        assert_eq!(
            (snapshot.total().requests, snapshot.total().bytes),
            (5, 123)
        );
        assert_eq!(snapshot.from_cache().bytes, 16);
        assert!((snapshot.hit_ratio() - 0.75).abs() < 1e-9);
    }

    #[test]
    fn without_requests_the_hit_ratio_is_zero() {
        assert!(CacheSnapshot::default().hit_ratio().abs() < 1e-9);
    }
}
