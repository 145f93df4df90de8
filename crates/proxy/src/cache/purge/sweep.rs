//! Removal of purged entries, and of slices whose entries are gone: by the thread that sweeps, a
//! little at a time.
//!
//! A sweep of purges reads the head of every entry of a zone, so after one the zone is left alone
//! for many times as long as it took. Slices of entries that were seen to leave go at once.

use std::sync::atomic::{AtomicBool, Ordering};

use millpond_cache::upkeep::Readers;
use millpond_cache::zone::CacheZone;
use millpond_system::clock;
use millpond_system::log::error::{self, Level};

/// Factor by which the rest of a zone after a sweep is longer than the sweep (arbitrary: a
/// twentieth of one core and of the disk).
const REST: u64 = 20;

/// The sweeps of one zone.
#[derive(Debug, Default)]
pub(crate) struct PurgeSweeps {
    /// Before when it is left alone.
    rests_until: u64,
}

impl PurgeSweeps {
    /// Sweeps the zone if that is due; gives up as soon as the process wants to stop.
    pub(crate) fn run(&mut self, zone: &CacheZone, must_stop: &AtomicBool) {
        zone.sweep_orphans(Readers::Stay);
        let began = now_ms();
        if began < self.rests_until {
            return;
        }
        let is_over = || must_stop.load(Ordering::Relaxed);
        let reviewed = zone.review_orphans(&is_over);
        let swept = zone.sweep_purges(began, &is_over);
        if reviewed.is_none() && swept.is_none() {
            return;
        }
        let ended = now_ms();
        let rest = ended.saturating_sub(began).saturating_mul(REST);
        self.rests_until = ended.saturating_add(rest);
        let swept = swept.filter(|swept| swept.removed > 0 || swept.changed > 0);
        if let Some(swept) = swept {
            error::process(
                Level::Notice,
                format_args!(
                    "cache \"{}\": purges up to number {} swept, {} entries removed, {} made stale",
                    zone.name, swept.upto, swept.removed, swept.changed
                ),
            );
        }
    }
}

fn now_ms() -> u64 {
    u64::try_from(clock::now_ms()).unwrap_or(0)
}
