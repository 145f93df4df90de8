//! A bounded map from keys to what was learnt of them, which forgets what is old.
//!
//! It holds what may be lost: a forgotten key costs requests to the origin, never a wrong answer.
//!
//! Keys are noted by requests that nothing is stored for, of which there may be many, each with
//! another key. So a key has few places where it can stand, next to each other: to note one touches
//! two or three lines of memory, and moves nothing.
//!
//! ```text
//! key ──► shard (a lock) ──► set: four keys, four values; the next of them to be forgotten
//! ```
//!
//! 1. A shard holds at most [`SETS_MAX`] times [`WAYS`] keys. It grows as long as a set is full.
//! 2. A key keeps its place while its value changes, so that one that is noted all the time pushes
//!    no other out.
//! 3. What is noted last of a set stays for as long as [`WAYS`] other keys are noted in it.

use std::sync::{Mutex, MutexGuard, PoisonError};

use millpond_store::Key;

/// Locks that the map is split into (arbitrary: a few more than workers that meet).
const SHARDS: usize = 16;

/// Places of a set: their keys take one line of memory.
const WAYS: usize = 4;

/// Sets of a shard, a power of two: 16,384 keys in all, about a megabyte of a zone that uses them
/// all.
const SETS_MAX: usize = 256;

/// Sets that a shard begins with.
const SETS_MIN: usize = 4;

/// The map.
#[derive(Debug)]
pub(crate) struct Recent<V> {
    shards: Vec<Mutex<Shard<V>>>,
}

/// Sets, as many as a power of two, or none.
#[derive(Debug)]
struct Shard<V>(Vec<Set<V>>);

/// A few keys, and what is known of them. A place without a value is free.
#[derive(Debug)]
struct Set<V> {
    keys: [Key; WAYS],
    values: [Option<V>; WAYS],
    /// The place that is given to another key next.
    next: usize,
}

impl<V> Default for Recent<V> {
    fn default() -> Self {
        let shard = || Mutex::new(Shard(Vec::new()));
        Recent {
            shards: (0..SHARDS).map(|_| shard()).collect(),
        }
    }
}

impl<V: Clone> Recent<V> {
    /// Value that was noted last of a key.
    pub(crate) fn find(&self, key: &Key) -> Option<V> {
        self.shard(key).place(key).and_then(|value| value.clone())
    }

    /// Notes what `change` makes of what was known.
    pub(crate) fn note(&self, key: Key, change: impl FnOnce(Option<V>) -> V) {
        let mut shard = self.shard(&key);
        match shard.place(&key) {
            Some(value) => *value = Some(change(value.take())),
            None => shard.enter(key, change(None)),
        }
    }

    /// Forgets a key.
    pub(crate) fn forget(&self, key: &Key) {
        if let Some(value) = self.shard(key).place(key) {
            *value = None;
        }
    }

    fn shard(&self, key: &Key) -> MutexGuard<'_, Shard<V>> {
        // INVARIANT: there are SHARDS shards, and the remainder is below that.
        let shard = &self.shards[usize::from(key.0[14]) % SHARDS];
        shard.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<V: Clone> Shard<V> {
    fn set(&mut self, key: &Key) -> Option<&mut Set<V>> {
        let number = u16::from_le_bytes([key.0[0], key.0[1]]);
        let mask = self.0.len().checked_sub(1)?;
        self.0.get_mut(usize::from(number) & mask)
    }

    /// Value of a key.
    fn place(&mut self, key: &Key) -> Option<&mut Option<V>> {
        let set = self.set(key)?;
        let mut places = set.keys.iter().zip(&mut set.values);
        let (_, value) = places.find(|(other, value)| *other == key && value.is_some())?;
        Some(value)
    }

    /// Gives a place to a key that has none.
    fn enter(&mut self, key: Key, value: V) {
        // Each round but the last doubles the sets.
        while self.0.len() < SETS_MAX && !self.set(&key).is_some_and(|set| set.has_room()) {
            self.grow();
        }
        if let Some(set) = self.set(&key) {
            set.enter(key, value);
        }
    }

    fn grow(&mut self) {
        let count = (self.0.len() * 2).max(SETS_MIN);
        let empty = || Set {
            keys: [Key([0; 16]); WAYS],
            values: [const { None }; WAYS],
            next: 0,
        };
        let old = std::mem::replace(&mut self.0, (0..count).map(|_| empty()).collect());
        for set in old {
            for (key, value) in set.keys.into_iter().zip(set.values) {
                // The keys of a set go to two.
                if let (Some(value), Some(set)) = (value, self.set(&key)) {
                    set.enter(key, value);
                }
            }
        }
    }
}

impl<V> Set<V> {
    fn has_room(&self) -> bool {
        self.values.iter().any(Option::is_none)
    }

    /// Puts a key to a free place, or to that of another.
    fn enter(&mut self, key: Key, value: V) {
        let free = self.values.iter().position(Option::is_none);
        let place = free.unwrap_or(self.next);
        self.next = (place + 1) % WAYS;
        if let (Some(its_key), Some(its_value)) =
            (self.keys.get_mut(place), self.values.get_mut(place))
        {
            *its_key = key;
            *its_value = Some(value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Keys of one shard; those of a number and of that times `SETS_MAX` are of one set.
    fn key(number: usize) -> Key {
        let mut key = Key([0; 16]);
        key.0[..8].copy_from_slice(&number.to_le_bytes());
        key
    }

    #[test]
    fn a_full_shard_forgets_the_oldest_key_of_a_set() {
        let recent = Recent::default();
        for number in 0..=SETS_MAX * WAYS {
            recent.note(key(number), |_| number);
        }
        assert_eq!(recent.find(&key(0)), None);
        for number in 1..=SETS_MAX * WAYS {
            assert_eq!(recent.find(&key(number)), Some(number));
        }
    }

    #[test]
    fn a_key_that_changes_all_the_time_pushes_no_other_out() {
        let recent = Recent::default();
        for place in 0..WAYS - 1 {
            recent.note(key(place * SETS_MAX), |_| place);
        }
        let last = (WAYS - 1) * SETS_MAX;
        for _ in 0..5 * WAYS {
            recent.note(key(last), |old| old.unwrap_or(0) + 1);
        }
        for place in 0..WAYS - 1 {
            assert_eq!(recent.find(&key(place * SETS_MAX)), Some(place));
        }
        assert_eq!(recent.find(&key(last)), Some(5 * WAYS));
    }

    #[test]
    fn keys_that_come_and_go_take_no_room() {
        let recent = Recent::default();
        recent.note(key(0), |_| 0);
        for number in 1..10 * SETS_MAX {
            recent.note(key(number), |_| number);
            assert_eq!(recent.find(&key(number)), Some(number));
            recent.forget(&key(number));
            assert_eq!(recent.find(&key(number)), None);
        }
        assert_eq!(recent.find(&key(0)), Some(0));
        assert_eq!(recent.shard(&key(0)).0.len(), SETS_MIN);
    }

    #[test]
    fn few_keys_take_little_memory_and_many_are_bounded() {
        let recent = Recent::default();
        assert_eq!(recent.shard(&key(0)).0.len(), 0);
        for number in 0..100 * SETS_MAX {
            recent.note(key(number), |_| number);
            assert_eq!(recent.find(&key(number)), Some(number));
        }
        assert_eq!(recent.shard(&key(0)).0.len(), SETS_MAX);
    }
}
