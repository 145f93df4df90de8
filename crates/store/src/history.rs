//! Which keys were asked for lately: for a zone that admits on the second request.
//!
//! A table of fingerprints of 32 bits, in buckets of eight. A key has one bucket; what is noted
//! goes to its front and pushes the last one out, so that a bucket is a queue of the keys that
//! were noted last, without a queue's memory.
//!
//! 1. It never grows: its size follows from what the zone may hold.
//! 2. A key that is not there may be taken for one that is, once in half a thousand million times;
//!    then it is admitted one request early.
//!
//! It is not kept over a restart: then the zone forgets what it refused.

use std::sync::Mutex;

use crate::key::Key;
use crate::lock::lock;

/// Fingerprints of a bucket: half a line of the processor's cache.
const BUCKET: usize = 8;
/// Locks that the table is split into; more than threads that meet.
const LOCKS: usize = 64;
/// Bytes of a zone for each key that is remembered: well below the mean length of what is stored,
/// so that the table remembers more keys than the zone has entries.
const BYTES_A_KEY: u64 = 16 << 10;
/// At most 32 MiB of table.
const MOST_KEYS: u64 = 8 << 20;
const FEWEST_KEYS: u64 = 64 << 10;

type Bucket = [u32; BUCKET];

/// The table.
#[derive(Debug)]
pub(crate) struct History {
    parts: Box<[Mutex<Box<[Bucket]>>]>,
    /// Buckets of a part; a power of two.
    buckets: u64,
}

impl History {
    /// For a zone of `limit` bytes.
    pub(crate) fn new(limit: u64) -> Self {
        let keys = (limit / BYTES_A_KEY).clamp(FEWEST_KEYS, MOST_KEYS);
        let buckets = (keys / (LOCKS * BUCKET) as u64).next_power_of_two();
        let part = || Mutex::new(vec![[0; BUCKET]; buckets as usize].into());
        Self {
            parts: (0..LOCKS).map(|_| part()).collect(),
            buckets,
        }
    }

    /// Notes a key; whether it was there.
    pub(crate) fn note(&self, key: &Key) -> bool {
        let bits = key.mixed();
        // The lowest six bits choose the part, those above them the bucket, the highest 32 are the
        // fingerprint; zero stands for none.
        let fingerprint = ((bits >> 32) as u32).max(1);
        let Some(part) = self.parts.get(bits as usize % LOCKS) else {
            return false;
        };
        let position = (bits / LOCKS as u64) % self.buckets;
        let mut buckets = lock(part);
        let Some(bucket) = buckets.get_mut(position as usize) else {
            return false;
        };
        let found = bucket.iter().position(|other| *other == fingerprint);
        // At most the last position, which `rotate_right` wraps to the front.
        bucket[..=found.unwrap_or(BUCKET - 1)].rotate_right(1);
        bucket[0] = fingerprint;
        found.is_some()
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

    #[test]
    fn a_key_is_known_from_its_second_request_on() {
        let history = History::new(0);
        for number in 0..1000 {
            assert!(!history.note(&key(number)), "{number}");
        }
        for number in 0..1000 {
            assert!(history.note(&key(number)), "{number}");
        }
    }

    #[test]
    fn what_is_noted_again_and_again_outlives_what_is_noted_once() {
        let history = History::new(0);
        let mut missed = 0;
        for number in 0..1_000_000 {
            history.note(&key(number));
            if number % 1000 == 0 {
                missed += u64::from(!history.note(&key(u64::MAX)));
            }
        }
        assert_eq!(missed, 1);
        // The oldest are forgotten, the newest are not.
        let known = |from: u64| {
            (from..from + 1000)
                .filter(|n| history.note(&key(*n)))
                .count()
        };
        assert!(known(999_000) > 990);
        assert!(known(0) < 10);
    }

    #[test]
    fn it_takes_no_more_memory_than_its_bound() {
        for (limit, memory) in [(0, 256 << 10), (1 << 40, 32 << 20), (u64::MAX, 32 << 20)] {
            assert_eq!(History::new(limit).memory(), memory, "{limit}");
        }
    }
}
