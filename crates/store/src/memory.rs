//! The memory tier: heads, small bodies and slice tables of entries that were used lately.
//!
//! Each shard of the index has a [`Tier`]; all tiers share one count of bytes and one limit. A new
//! entry goes to the young queue; if it is used there it moves to the main queue when its turn
//! comes, else it leaves. The main queue gives a second chance for each use, up to three. So a
//! scan of entries that are used once passes through a tenth of the space.
//!
//! 1. The shared count is the sum of the costs of all entries in all tiers.
//! 2. The queues together never hold more than twice as many names as there are entries, plus a
//!    constant.
//!
//! It does not read files and does not know whether an entry is current: the index asks it to
//! forget.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use hashbrown::HashMap;

use crate::entry::Stored;
use crate::key::Key;

/// Uses that count; as in S3-FIFO.
const MAX_USES: u8 = 3;
/// Names of entries that left stay in the queues up to this many, or as many as entries.
const STALE_NAMES: usize = 32;

/// One shard's share of the memory tier.
#[derive(Debug, Default)]
pub(crate) struct Tier {
    kept: HashMap<Key, Kept>,
    young: VecDeque<(Key, u32)>,
    main: VecDeque<(Key, u32)>,
    young_used: u64,
    used: u64,
    serial: u32,
    shared: Arc<AtomicU64>,
}

#[derive(Debug)]
struct Kept {
    stored: Arc<Stored>,
    cost: u64,
    serial: u32,
    uses: u8,
    queue: Queue,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Queue {
    Young,
    Main,
}

impl Tier {
    /// An empty tier that counts its bytes in `shared`.
    pub(crate) fn new(shared: Arc<AtomicU64>) -> Self {
        Self {
            shared,
            ..Self::default()
        }
    }

    /// Looks up and counts the use.
    pub(crate) fn touch(&mut self, key: &Key) -> Option<Arc<Stored>> {
        let kept = self.kept.get_mut(key)?;
        kept.uses = (kept.uses + 1).min(MAX_USES);
        Some(Arc::clone(&kept.stored))
    }

    /// Adds an entry, in place of one with the same key.
    pub(crate) fn insert(&mut self, stored: Arc<Stored>, cost: u64) {
        let key = stored.key;
        self.remove(&key);
        self.serial = self.serial.wrapping_add(1);
        let kept = Kept {
            stored,
            cost,
            serial: self.serial,
            uses: 0,
            queue: Queue::Young,
        };
        self.young.push_back((key, kept.serial));
        self.kept.insert(key, kept);
        self.young_used += cost;
        self.used += cost;
        self.shared.fetch_add(cost, Ordering::Relaxed);
        self.forget_stale_names();
    }

    /// Forgets an entry.
    pub(crate) fn remove(&mut self, key: &Key) {
        if let Some(kept) = self.kept.remove(key) {
            if kept.queue == Queue::Young {
                self.young_used -= kept.cost;
            }
            self.used -= kept.cost;
            self.shared.fetch_sub(kept.cost, Ordering::Relaxed);
        }
    }

    /// Forgets the entry whose turn it is, if there is one.
    pub(crate) fn evict(&mut self) {
        // Each turn takes a name off a queue or one of at most three uses off an entry.
        let turns = (self.young.len() + self.main.len()) * (usize::from(MAX_USES) + 2);
        for _ in 0..turns {
            let from_young = self.young_used * 10 > self.used || self.main.is_empty();
            let queue = if from_young {
                &mut self.young
            } else {
                &mut self.main
            };
            let Some((key, serial)) = queue.pop_front() else {
                continue;
            };
            let Some(kept) = self.kept.get_mut(&key).filter(|kept| kept.serial == serial) else {
                continue;
            };
            if kept.uses == 0 {
                self.remove(&key);
                return;
            }
            if kept.queue == Queue::Young {
                kept.uses = 0;
                kept.queue = Queue::Main;
                self.young_used -= kept.cost;
            } else {
                kept.uses -= 1;
            }
            self.main.push_back((key, serial));
        }
    }

    /// Bytes held.
    pub(crate) fn used(&self) -> u64 {
        self.used
    }

    /// INVARIANT 2.
    fn forget_stale_names(&mut self) {
        if self.young.len() + self.main.len() <= 2 * self.kept.len() + STALE_NAMES {
            return;
        }
        let kept = &self.kept;
        let is_current =
            |(key, serial): &(Key, u32)| kept.get(key).is_some_and(|entry| entry.serial == *serial);
        self.young.retain(is_current);
        self.main.retain(is_current);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::segment::Place;
    use crate::entry::Stored;
    use bytes::Bytes;

    fn stored(number: u32) -> Arc<Stored> {
        let place = Place {
            segment: 1,
            offset: number,
            size: 96,
        };
        let key = Key::of(&number.to_le_bytes());
        Arc::new(Stored::inline(key, place, Bytes::new(), Bytes::new(), 0))
    }

    #[test]
    fn entries_in_use_outlive_a_scan() {
        let mut tier = Tier::default();
        for number in 0..20 {
            tier.insert(stored(number), 10);
            tier.touch(&Key::of(&number.to_le_bytes()));
        }
        for number in 100..1000 {
            tier.insert(stored(number), 10);
            while tier.used() > 400 {
                tier.evict();
            }
        }
        let alive = (0..20_u32).filter(|n| tier.touch(&Key::of(&n.to_le_bytes())).is_some());
        assert_eq!(alive.count(), 20);
    }

    #[test]
    fn evicting_everything_ends_and_leaves_nothing() {
        let mut tier = Tier::default();
        for number in 0..50 {
            tier.insert(stored(number), 10);
            tier.touch(&Key::of(&number.to_le_bytes()));
        }
        for _ in 0..50 {
            tier.evict();
        }
        assert_eq!((tier.used(), tier.kept.len()), (0, 0));
        assert_eq!(tier.shared.load(Ordering::Relaxed), 0);
        tier.evict();
    }

    #[test]
    fn names_do_not_pile_up_under_replacement() {
        let mut tier = Tier::default();
        for _ in 0..10_000 {
            tier.insert(stored(1), 10);
        }
        assert!(tier.young.len() + tier.main.len() <= 2 + STALE_NAMES + 1);
        assert_eq!(tier.used(), 10);
    }
}
