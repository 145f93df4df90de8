//! History of the keys that were asked for lately: for a zone that admits on the second request.
//!
//! A table of words of 32 bits, in buckets of eight: a fingerprint of 24 bits and its time.
//! A key has one bucket; what is noted goes to its front and pushes the last one out, so that a
//! bucket is a queue of the keys that were noted last, without a queue's memory. Time is counted in
//! turns: one is over when as many keys were noted as the zone has entries. What was noted before
//! the last turn is forgotten, since it would not be in the zone any more either.
//!
//! 1. It never grows: its size follows from what the zone may hold.
//! 2. A key that is not there may be taken for one that is, once in two million times; then it is
//!    admitted one request early.
//!
//! It is not kept over a restart: then the zone forgets what it refused.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use crate::key::Key;
use crate::lock::lock;

/// Words of a bucket: half a line of the processor's cache.
const BUCKET: usize = 8;
/// Locks that the table is split into; more than threads that meet.
const LOCKS: usize = 64;
/// Bytes of a zone for each key that is remembered: well below the mean length of what is stored,
/// so that the table remembers more keys than the zone has entries.
const BYTES_A_KEY: u64 = 16 << 10;
/// At most 32 MiB of table.
const MOST_KEYS: u64 = 8 << 20;
const FEWEST_KEYS: u64 = 64 << 10;
/// Keys of a turn of a zone that has hardly an entry.
const SHORTEST_TURN: u64 = 1024;

type Bucket = [u32; BUCKET];

/// The table.
#[derive(Debug)]
pub(crate) struct History {
    parts: Box<[Mutex<Box<[Bucket]>>]>,
    /// Buckets of a part; a power of two.
    buckets: u64,
    turn: AtomicU8,
    /// Keys that are to be noted until the turn is over.
    left: AtomicU64,
}

impl History {
    /// History for a zone of `limit` bytes.
    pub(crate) fn new(limit: u64) -> Self {
        let keys = (limit / BYTES_A_KEY).clamp(FEWEST_KEYS, MOST_KEYS);
        let buckets = (keys / (LOCKS * BUCKET) as u64).next_power_of_two();
        let part = || Mutex::new(vec![[0; BUCKET]; buckets as usize].into());
        Self {
            parts: (0..LOCKS).map(|_| part()).collect(),
            buckets,
            turn: AtomicU8::new(0),
            left: AtomicU64::new(0),
        }
    }

    /// Notes a key, for a zone of so many entries; whether it was there.
    pub(crate) fn note(&self, key: &Key, entries: &dyn Fn() -> u64) -> bool {
        let bits = key.mixed();
        // The lowest six bits choose the part, those above them the bucket, the highest 24 are the
        // fingerprint; zero stands for none.
        let fingerprint = ((bits >> 40) as u32).max(1);
        let turn = self.count(entries);
        let Some(part) = self.parts.get(bits as usize % LOCKS) else {
            return false;
        };
        let position = (bits / LOCKS as u64) % self.buckets;
        let mut buckets = lock(part);
        let Some(bucket) = buckets.get_mut(position as usize) else {
            return false;
        };
        let found = bucket.iter().position(|word| word >> 8 == fingerprint);
        // The lowest byte is the turn.
        let is_known = |at: usize| turn.wrapping_sub(bucket[at] as u8) <= 1;
        let is_known = found.is_some_and(is_known);
        // At most the last position, which `rotate_right` wraps to the front.
        bucket[..=found.unwrap_or(BUCKET - 1)].rotate_right(1);
        bucket[0] = fingerprint << 8 | u32::from(turn);
        is_known
    }

    /// Counts one more key; returns the turn of the history after it.
    fn count(&self, entries: &dyn Fn() -> u64) -> u8 {
        let take = |left: u64| left.checked_sub(1);
        let taken = self
            .left
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, take);
        if taken.is_ok() {
            return self.turn.load(Ordering::Relaxed);
        }
        // Two threads may both end a turn: then it was a short one.
        self.left
            .store(entries().max(SHORTEST_TURN), Ordering::Relaxed);
        self.turn.fetch_add(1, Ordering::Relaxed).wrapping_add(1)
    }

    /// Bytes that the table takes.
    pub(crate) fn memory(&self) -> u64 {
        self.buckets * (LOCKS * size_of::<Bucket>()) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(number: u64) -> Key {
        Key::of(&number.to_le_bytes())
    }

    /// Notes a key of a zone of a thousand entries.
    fn note(history: &History, number: u64) -> bool {
        history.note(&key(number), &|| 1000)
    }

    #[test]
    fn a_key_is_known_from_its_second_request_on() {
        let history = History::new(0);
        for expected in [false, true, true] {
            for number in 0..500 {
                assert_eq!(note(&history, number), expected, "{number}");
            }
        }
    }

    #[test]
    fn what_is_noted_again_and_again_outlives_what_is_noted_once() {
        let history = History::new(0);
        let mut missed = 0;
        for number in 0..100_000 {
            note(&history, number);
            if number % 500 == 0 {
                missed += u64::from(!note(&history, u64::MAX));
            }
        }
        assert_eq!(missed, 1);
        // The newest are known; what is older than two turns is not.
        assert!((99_500..100_000).all(|number| note(&history, number)));
        assert!((0..90_000).all(|number| !note(&history, number)));
    }

    #[test]
    fn turns_that_come_round_again_do_not_bring_keys_back() {
        let history = History::new(0);
        for number in 0..600 * SHORTEST_TURN {
            assert!(!note(&history, number), "{number}");
        }
    }

    #[test]
    fn it_takes_no_more_memory_than_its_bound() {
        for (limit, memory) in [(0, 256 << 10), (1 << 40, 32 << 20), (u64::MAX, 32 << 20)] {
            assert_eq!(History::new(limit).memory(), memory, "{limit}");
        }
    }
}
