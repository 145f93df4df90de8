//! `proxy_cache_min_uses`: whether an answer is worth storing at all.
//!
//! Counts the requests for keys that have no entry; the count is shared by all workers of a zone.
//!
//! 1. The table of counts is bounded: when it is full it starts over, which delays admission and
//!    never grants it early.
//! 2. Counts are not kept over a restart.

use std::collections::HashMap;
use std::sync::Mutex;

use millpond_store::Key;

/// Keys that are counted at once; beyond it the counts start over, which only delays admission
/// (arbitrary: a few megabytes).
const COUNTED_MAX: usize = 64 * 1024;

/// How popular a key must be before its answer is stored.
#[derive(Clone, Debug, millpond_conf::Family)]
#[family(http, server, location, protocols)]
pub struct AdmissionPolicy {
    /// The number of requests for a key after which the answer is stored.
    #[directive(name = "proxy_cache_min_uses", default = "1")]
    pub min_uses: u32,
}

/// Counts of requests for keys that were not stored; bounded.
#[derive(Debug, Default)]
pub struct Uses {
    counts: Mutex<HashMap<Key, u32>>,
}

impl Uses {
    /// Counts a request for what is missing; true when the key has been asked for often enough to
    /// be stored.
    pub fn admits(&self, key: &Key, policy: &AdmissionPolicy) -> bool {
        if policy.min_uses <= 1 {
            return true;
        }
        let mut counts = self
            .counts
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        if counts.len() >= COUNTED_MAX && !counts.contains_key(key) {
            counts.clear();
        }
        // The count stays: who comes while the admitted answer is fetched is to join it.
        let count = counts.entry(*key).or_insert(0);
        *count = count.saturating_add(1);
        *count >= policy.min_uses
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_needed_use_and_all_after_it_admit() {
        let uses = Uses::default();
        let policy = AdmissionPolicy { min_uses: 3 };
        let key = Key::of(b"a");
        let admitted: Vec<bool> = (0..4).map(|_| uses.admits(&key, &policy)).collect();
        assert_eq!(admitted, [false, false, true, true]);
        assert!(uses.admits(&key, &AdmissionPolicy { min_uses: 1 }));
    }
}
