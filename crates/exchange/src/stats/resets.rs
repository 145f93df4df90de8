//! Counters that are begun anew by NGINX Plus's API (`DELETE`), for who reads that API.
//!
//! Nothing that workers count on is written: what was counted until then is remembered, and taken
//! off what is told. So no count is lost, and metrics, sites and dashboards go on as they were.
//!
//! It grows with the names of the configuration and with nothing else: only what is named there can
//! be begun anew. Counters of upstream servers remember it themselves, since they outlive reloads
//! with their servers.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, PoisonError};

use bytes::Bytes;

use super::cache_zone::ZoneStatusCount;
use super::connections::ConnectionCount;
use super::status_zone::ZoneCount;

/// Answers of a cache zone by status.
type CacheCount = Vec<(&'static str, ZoneStatusCount)>;

/// Counts at the moments when counters were begun anew.
#[derive(Debug, Default)]
pub struct Resets(Mutex<Bases>);

/// The counts that are taken off.
#[derive(Clone, Debug, Default)]
pub struct Bases {
    /// Counts of connections.
    pub connections: ConnectionCount,
    /// Counts of requests.
    pub requests: ConnectionCount,
    /// Counts of workers, by number.
    pub workers: BTreeMap<usize, ConnectionCount>,
    /// Counts of status zones of servers.
    pub servers: HashMap<Bytes, ZoneCount>,
    /// Counts of status zones of locations.
    pub locations: HashMap<Bytes, ZoneCount>,
    /// Counts of cache zones.
    pub caches: HashMap<Bytes, CacheCount>,
}

impl Resets {
    /// Looks at the counts, or notes others.
    pub fn with<R>(&self, look: impl FnOnce(&mut Bases) -> R) -> R {
        look(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Bases {
    /// Counts of a worker since its counters were begun anew.
    pub fn worker(&self, id: usize, count: &ConnectionCount) -> ConnectionCount {
        match self.workers.get(&id) {
            Some(base) => count.since(base),
            None => *count,
        }
    }

    /// Counts of a zone since its counters were begun anew.
    pub fn zone(bases: &HashMap<Bytes, ZoneCount>, name: &[u8], count: ZoneCount) -> ZoneCount {
        match bases.get(name) {
            Some(base) => count.since(base),
            None => count,
        }
    }

    /// Answers of a cache since its counters were begun anew.
    pub fn cache(&self, name: &[u8], mut count: CacheCount) -> CacheCount {
        if let Some(base) = self.caches.get(name) {
            // Both have all statuses in the same order.
            for ((_, count), (_, base)) in count.iter_mut().zip(base) {
                *count = count.since(base);
            }
        }
        count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_counted_before_is_taken_off() {
        let resets = Resets::default();
        let count = |requests| ZoneCount {
            requests,
            ..ZoneCount::default()
        };
        let told = |requests| {
            resets.with(|bases| Bases::zone(&bases.servers, b"a", count(requests)).requests)
        };
        assert_eq!(told(5), 5);
        resets.with(|bases| bases.servers.insert("a".into(), count(5)));
        assert_eq!((told(5), told(7)), (0, 2));
        let open = ConnectionCount {
            accepted: 3,
            active: 2,
            ..ConnectionCount::default()
        };
        let since = resets.with(|bases| {
            bases.workers.insert(1, open);
            (bases.worker(1, &open), bases.worker(0, &open))
        });
        assert_eq!((since.0.accepted, since.0.active), (0, 2));
        assert_eq!(since.1, open);
    }
}
