//! A bounded map from keys to what was learnt of them, which forgets the oldest first.
//!
//! It holds what may be lost: a forgotten key costs requests to the origin, never a wrong answer.
//!
//! 1. A shard holds at most [`SHARD_MAX`] keys, and its queue at most twice as many.
//! 2. A key keeps its place in the queue while its value changes, so that one that is noted all the
//!    time pushes no other out.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use hashbrown::HashMap;
use millpond_store::Key;

/// Locks that the map is split into (arbitrary: a few more than workers that meet).
const SHARDS: usize = 16;

/// Keys of a shard: 16,384 in all, about a megabyte of a zone that uses them all.
const SHARD_MAX: usize = 1024;

/// The map.
#[derive(Debug)]
pub(crate) struct Recent<V> {
    shards: Vec<Mutex<Shard<V>>>,
}

#[derive(Debug)]
struct Shard<V> {
    values: HashMap<Key, Placed<V>>,
    /// Keys in the order in which they were first noted; one that was forgotten since has another
    /// number, or none.
    order: VecDeque<(Key, u64)>,
    next: u64,
}

#[derive(Debug)]
struct Placed<V> {
    number: u64,
    value: V,
}

impl<V> Default for Recent<V> {
    fn default() -> Self {
        let shard = || {
            Mutex::new(Shard {
                values: HashMap::new(),
                order: VecDeque::new(),
                next: 0,
            })
        };
        Recent {
            shards: (0..SHARDS).map(|_| shard()).collect(),
        }
    }
}

impl<V: Copy> Recent<V> {
    /// What was noted last of a key.
    pub(crate) fn find(&self, key: &Key) -> Option<V> {
        self.shard(key).values.get(key).map(|placed| placed.value)
    }

    /// Notes what `change` makes of what was known.
    pub(crate) fn note(&self, key: Key, change: impl FnOnce(Option<V>) -> V) {
        let mut shard = self.shard(&key);
        if let Some(placed) = shard.values.get_mut(&key) {
            placed.value = change(Some(placed.value));
            return;
        }
        let number = shard.next;
        shard.next += 1;
        let value = change(None);
        shard.values.insert(key, Placed { number, value });
        shard.order.push_back((key, number));
        shard.shrink();
    }

    /// Forgets a key.
    pub(crate) fn forget(&self, key: &Key) {
        self.shard(key).values.remove(key);
    }

    fn shard(&self, key: &Key) -> MutexGuard<'_, Shard<V>> {
        // INVARIANT: there are SHARDS shards, and the remainder is below that.
        let shard = &self.shards[usize::from(key.0[14]) % SHARDS];
        shard.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<V> Shard<V> {
    /// INVARIANT 1.
    fn shrink(&mut self) {
        while self.values.len() > SHARD_MAX
            && let Some((key, number)) = self.order.pop_front()
        {
            if self.is_placed(&key, number) {
                self.values.remove(&key);
            }
        }
        if self.order.len() > 2 * SHARD_MAX {
            let mut order = std::mem::take(&mut self.order);
            order.retain(|(key, number)| self.is_placed(key, *number));
            self.order = order;
        }
    }

    fn is_placed(&self, key: &Key, number: u64) -> bool {
        let placed = self.values.get(key);
        placed.is_some_and(|placed| placed.number == number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Keys of one shard.
    fn key(number: usize) -> Key {
        let mut key = Key([0; 16]);
        key.0[..8].copy_from_slice(&number.to_le_bytes());
        key
    }

    #[test]
    fn the_oldest_key_goes_when_a_shard_is_full() {
        let recent = Recent::default();
        for number in 0..=SHARD_MAX {
            recent.note(key(number), |_| number);
        }
        assert_eq!(recent.find(&key(0)), None);
        assert_eq!(recent.find(&key(1)), Some(1));
        assert_eq!(recent.find(&key(SHARD_MAX)), Some(SHARD_MAX));
    }

    #[test]
    fn a_key_that_changes_all_the_time_pushes_no_other_out() {
        let recent = Recent::default();
        recent.note(key(0), |_| 0);
        for _ in 0..5 * SHARD_MAX {
            recent.note(key(1), |old| old.unwrap_or(0) + 1);
        }
        assert_eq!(recent.find(&key(0)), Some(0));
        assert_eq!(recent.find(&key(1)), Some(5 * SHARD_MAX));
    }

    #[test]
    fn keys_that_come_and_go_take_no_room() {
        let recent = Recent::default();
        recent.note(key(0), |_| 0);
        for number in 1..10 * SHARD_MAX {
            recent.note(key(number), |_| number);
            recent.forget(&key(number));
        }
        let shard = recent.shard(&key(0));
        assert_eq!(shard.values.len(), 1);
        assert!(shard.order.len() <= 2 * SHARD_MAX);
    }
}
