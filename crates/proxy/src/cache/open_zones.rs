//! Zones that are open in this process, by their folders, and the disks that they are on.
//!
//! A zone is here for as long as somebody uses it: configurations share it across reloads. Who
//! opens zones is in `zones.rs`, who sweeps them in `sweep.rs`; the ledger of counters asks for
//! their disks.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use millpond_cache::zone::{CacheZone, ZonePath};
use millpond_store::{DiskState, DiskUsage};

use millpond_exchange::stats::ledger::Disks;

/// Zones that are open, by their folders.
#[derive(Clone, Debug, Default)]
pub(super) struct Open(Arc<Mutex<HashMap<PathBuf, OpenZone>>>);

/// The disks of the zones that are open, now and later, and how they are.
#[derive(Clone, Debug, Default)]
pub struct ZoneDisks(pub(super) Open);

impl Disks for ZoneDisks {
    fn paths(&self) -> Vec<PathBuf> {
        self.usages().map(|disk| disk.path).collect()
    }

    fn failed(&self) -> HashSet<PathBuf> {
        let failed = self.usages().filter(|disk| disk.state == DiskState::Failed);
        failed.map(|disk| disk.path).collect()
    }
}

impl ZoneDisks {
    fn usages(&self) -> impl Iterator<Item = DiskUsage> + use<> {
        let zones = self.0.all().into_iter();
        zones.flat_map(|(_, zone)| zone.store.disks())
    }
}

#[derive(Debug)]
struct OpenZone {
    declared: ZonePath,
    zone: Weak<CacheZone>,
}

impl Open {
    /// The zone of a folder, if somebody uses it.
    pub(super) fn at(&self, path: &Path) -> Option<Arc<CacheZone>> {
        lock(&self.0).get(path)?.zone.upgrade()
    }

    /// All that somebody uses.
    pub(super) fn all(&self) -> Vec<(PathBuf, Arc<CacheZone>)> {
        let open = lock(&self.0);
        let used = open.iter().filter_map(|(path, zone)| {
            let zone = zone.zone.upgrade()?;
            Some((path.clone(), zone))
        });
        used.collect()
    }

    /// True when the zone of a folder was declared with the same parameters.
    pub(super) fn is_declared_as(&self, declared: &ZonePath) -> bool {
        let open = lock(&self.0);
        let known = open.get(&declared.path);
        known.is_some_and(|known| known.declared == *declared)
    }

    /// Notes a zone and its parameters, and forgets those that nobody uses.
    pub(super) fn note(&self, declared: &ZonePath, zone: &Arc<CacheZone>) {
        let known = OpenZone {
            declared: declared.clone(),
            zone: Arc::downgrade(zone),
        };
        let mut open = lock(&self.0);
        open.retain(|_, zone| zone.zone.strong_count() > 0);
        open.insert(declared.path.clone(), known);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
