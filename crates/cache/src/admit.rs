//! `proxy_cache_min_uses`: whether an answer is worth storing at all.

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

/// Counts of requests for keys that are not stored yet; bounded.
#[derive(Debug, Default)]
pub struct Uses {
    counts: Mutex<HashMap<Key, u32>>,
}

impl Uses {
    /// Counts a request; true when the key has been asked for often enough to be stored.
    pub fn admits(&self, key: &Key, policy: &AdmissionPolicy) -> bool {
        if policy.min_uses <= 1 {
            return true;
        }
        let mut counts = self
            .counts
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        if counts.len() >= COUNTED_MAX {
            counts.clear();
        }
        let count = counts.entry(*key).or_insert(0);
        *count += 1;
        let is_enough = *count >= policy.min_uses;
        if is_enough {
            counts.remove(key);
        }
        is_enough
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_needed_use_admits() {
        let uses = Uses::default();
        let policy = AdmissionPolicy { min_uses: 3 };
        let key = Key::of(b"a");
        let admitted: Vec<bool> = (0..4).map(|_| uses.admits(&key, &policy)).collect();
        assert_eq!(admitted, [false, false, true, false]);
        assert!(uses.admits(&key, &AdmissionPolicy { min_uses: 1 }));
    }
}
