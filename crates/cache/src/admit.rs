//! `proxy_cache_min_uses`: whether an answer is worth storing at all.
//!
//! Counts the requests for keys that have no entry; the count is shared by all workers of a zone.
//!
//! Counts stand in two tables, of what was asked for lately and of what was before that:
//!
//! ```text
//!   asked for ──► young ──full──► old ──young is full again──► forgotten
//!                   ▲──asked for───┘
//! ```
//!
//! 1. A count is remembered until at least `YOUNG_MAX` other keys were asked for since its last
//!    use, and at most twice as many counts are there. What is forgotten delays admission, and
//!    never grants it early.
//! 2. Counts are not kept over a restart.

use std::collections::HashMap;
use std::sync::Mutex;

use millpond_store::Key;

use crate::key_mark::KeyMark;

/// Counts in one of the tables (arbitrary: what fills a table of 131072 places, of 21 bytes each,
/// so that both take less than six megabytes).
const YOUNG_MAX: usize = 112 * 1024;

/// Popularity that a key must have before its answer is stored.
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
    counts: Mutex<Counts>,
}

/// INVARIANT 1.
#[derive(Debug, Default)]
struct Counts {
    young: HashMap<Key, u32>,
    old: HashMap<Key, u32>,
}

impl Counts {
    /// Counts a request; each table holds at most `limit` keys.
    fn count(&mut self, key: &Key, limit: usize) -> u32 {
        if let Some(count) = self.young.get_mut(key) {
            *count = count.saturating_add(1);
            return *count;
        }
        let count = self
            .old
            .remove(key)
            .map_or(1, |count| count.saturating_add(1));
        if self.young.len() >= limit {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(*key, count);
        count
    }
}

impl Uses {
    /// Counts a request for what is missing; true when the key has been asked for often enough to
    /// be stored.
    pub fn admits(&self, mark: &KeyMark, policy: &AdmissionPolicy) -> bool {
        if policy.min_uses <= 1 {
            return true;
        }
        let mut counts = self
            .counts
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        // The count stays: who comes while the admitted answer is fetched is to join it.
        counts.count(mark.key(), YOUNG_MAX) >= policy.min_uses
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_needed_use_and_all_after_it_admit() {
        let uses = Uses::default();
        let policy = AdmissionPolicy { min_uses: 3 };
        let key = KeyMark::of(&millpond_store::Keys::for_tests(), &Key::of(b"a"), b"a");
        let admitted: Vec<bool> = (0..4).map(|_| uses.admits(&key, &policy)).collect();
        assert_eq!(admitted, [false, false, true, true]);
        assert!(uses.admits(&key, &AdmissionPolicy { min_uses: 1 }));
    }

    #[test]
    fn counts_outlast_as_many_other_keys_as_a_table_has() {
        const LIMIT: usize = 100;
        let mut counts = Counts::default();
        let key = Key::of(b"a");
        let mut others = (0..u64::MAX).map(|number| Key::of(&number.to_le_bytes()));
        for expected in 1..=5 {
            assert_eq!(counts.count(&key, LIMIT), expected);
            for other in others.by_ref().take(LIMIT - 1) {
                counts.count(&other, LIMIT);
                assert!(counts.young.len() <= LIMIT && counts.old.len() <= LIMIT);
            }
        }
        others.by_ref().take(2 * LIMIT).for_each(|other| {
            counts.count(&other, LIMIT);
        });
        assert_eq!(counts.count(&key, LIMIT), 1, "it was forgotten");
    }
}
