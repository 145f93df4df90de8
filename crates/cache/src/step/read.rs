//! The step of those whose answer is on a disk that takes its time, or may be while not all is
//! loaded: wait for it, or go on without.
//!
//! 1. A request waits for disks for `proxy_cache_disk_timeout` in all, however often it looks.

use millpond_store::Cold;

use super::lookup::Lookup;
use super::{Step, Walk};
use crate::clock;
use crate::disk_timeout::Disk;
use crate::exchange::Exchange;
use crate::status::CacheStatus;

/// Waits for the disk.
#[derive(Debug)]
pub(crate) struct Read {
    lookup: Lookup,
    cold: Cold,
}

impl Read {
    /// Waits for an entry that `lookup` has met.
    pub(crate) fn new(lookup: Lookup, cold: Cold) -> Self {
        Read { lookup, cold }
    }

    /// The label of a request that ends here.
    pub(crate) fn label(&self) -> CacheStatus {
        CacheStatus::Miss
    }

    pub(crate) async fn run<X: Exchange>(mut self, walk: &Walk) -> Step<X> {
        let deadline = self.lookup.patience.disk_deadline(&walk.policies.disk);
        match clock::within(deadline, self.cold.wait()).await {
            Some(()) => self.lookup.reads.push(self.cold),
            None => self.lookup.disk = Disk::GivenUp,
        }
        Step::Lookup(self.lookup)
    }
}
