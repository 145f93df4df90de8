//! History of the keys that were asked for lately and are not there: how often each was.
//!
//! A table of words of 32 bits, in buckets of eight: a fingerprint of 18 bits, uses and their time.
//! A key has one bucket; what is noted goes to its front and pushes the last one out, so that a
//! bucket is a queue of the keys that were noted last, without a queue's memory. Time is counted in
//! turns: one is over when as many keys were noted as the zone has entries. Uses are halved with
//! each turn that ends. What was noted once is forgotten with the second, since it would not be in
//! the zone any more either.
//!
//! 1. It never grows: its size follows from what the zone may hold.
//! 2. A key that is not there may be taken for one that is, once in thirty thousand times; then it
//!    is taken a few requests early.
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

/// Bits of a word that are its fingerprint; below it are the uses, and eight of the turn.
const MARK_BITS: u32 = 18;
const MARK_AT: u32 = u32::BITS - MARK_BITS;
const USES_AT: u32 = 8;
/// The most uses that are counted.
pub(crate) const MOST_USES: u8 = (1 << (MARK_AT - USES_AT)) - 1;

type Bucket = [u32; BUCKET];

/// Place of a key's word.
struct Spot {
    part: usize,
    bucket: usize,
    mark: u32,
}

impl Spot {
    fn is_of(&self, word: u32) -> bool {
        word >> MARK_AT == self.mark
    }
}

/// Uses that a word stands for in a turn: half of them for each one that has ended since.
fn uses_at(word: u32, turn: u8) -> u8 {
    // The lowest byte is the turn.
    let passed = turn.wrapping_sub(word as u8);
    let uses = (word >> USES_AT) as u8 & MOST_USES;
    match passed {
        0 => uses,
        1 => uses.div_ceil(2),
        _ => uses.checked_shr(passed.into()).unwrap_or(0),
    }
}

/// The table.
#[derive(Debug)]
pub(crate) struct History {
    parts: Box<[Mutex<Box<[Bucket]>>]>,
    /// Buckets of a part; a power of two.
    buckets: u64,
    turn: AtomicU8,
    /// Keys that are to be noted until the turn is over.
    left: AtomicU64,
    /// Keys that were noted, each time that they were.
    noted: AtomicU64,
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
            noted: AtomicU64::new(0),
        }
    }

    /// Notes that a key is asked for, for a zone of so many entries; returns how often it was
    /// before, as far as is remembered.
    pub(crate) fn note(&self, key: &Key, entries: &dyn Fn() -> u64) -> u8 {
        let turn = self.count(entries);
        self.noted.fetch_add(1, Ordering::Relaxed);
        self.change(key, turn, |uses| uses.saturating_add(1))
    }

    /// Notes how often an entry that leaves the zone was used.
    pub(crate) fn note_left(&self, key: &Key, uses: u8) {
        let turn = self.turn.load(Ordering::Relaxed);
        self.change(key, turn, |_| uses);
    }

    /// Number of times that a key was asked for, as far as is remembered.
    pub(crate) fn uses(&self, key: &Key) -> u8 {
        let turn = self.turn.load(Ordering::Relaxed);
        let place = self.place(key);
        let buckets = self.parts.get(place.part).map(lock);
        let bucket = buckets.as_ref().and_then(|it| it.get(place.bucket));
        let found = bucket.and_then(|bucket| bucket.iter().find(|word| place.is_of(**word)));
        found.map_or(0, |word| uses_at(*word, turn))
    }

    /// Number of keys that were noted, each time that they were.
    pub(crate) fn noted(&self) -> u64 {
        self.noted.load(Ordering::Relaxed)
    }

    /// Keys of a turn of a zone of so many entries.
    pub(crate) fn turn_of(entries: u64) -> u64 {
        entries.max(SHORTEST_TURN)
    }

    fn place(&self, key: &Key) -> Spot {
        let bits = key.mixed();
        // The lowest six bits choose the part, those above them the bucket, the highest 18 are the
        // fingerprint; zero stands for none.
        Spot {
            part: bits as usize % LOCKS,
            bucket: (bits / LOCKS as u64 % self.buckets) as usize,
            mark: ((bits >> (u64::BITS - MARK_BITS)) as u32).max(1),
        }
    }

    /// Changes the uses of a key, which goes to the front of its bucket; how many they were.
    fn change(&self, key: &Key, turn: u8, change: impl FnOnce(u8) -> u8) -> u8 {
        let place = self.place(key);
        let Some(part) = self.parts.get(place.part) else {
            return 0;
        };
        let mut buckets = lock(part);
        let Some(bucket) = buckets.get_mut(place.bucket) else {
            return 0;
        };
        let found = bucket.iter().position(|word| place.is_of(*word));
        let before = found.map_or(0, |at| uses_at(bucket[at], turn));
        let uses = u32::from(change(before).min(MOST_USES));
        // At most the last position, which `rotate_right` wraps to the front.
        bucket[..=found.unwrap_or(BUCKET - 1)].rotate_right(1);
        bucket[0] = place.mark << MARK_AT | uses << USES_AT | u32::from(turn);
        before
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
        self.left.store(Self::turn_of(entries()), Ordering::Relaxed);
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
    fn note(history: &History, number: u64) -> u8 {
        history.note(&key(number), &|| 1000)
    }

    #[test]
    fn a_key_is_counted_each_time() {
        let history = History::new(0);
        for expected in [0, 1, 2] {
            for number in 0..300 {
                assert_eq!(note(&history, number), expected, "{number}");
            }
        }
        for _ in 0..100 {
            note(&history, 1);
        }
        assert_eq!(history.uses(&key(1)), MOST_USES);
        assert_eq!((history.uses(&key(2)), history.uses(&key(300))), (3, 0));
    }

    #[test]
    fn uses_of_what_left_are_those_that_are_remembered() {
        let history = History::new(0);
        // The first note begins the first turn.
        note(&history, 0);
        history.note_left(&key(1), 9);
        assert_eq!((note(&history, 1), note(&history, 1)), (9, 10));
        history.note_left(&key(1), 2);
        assert_eq!(history.uses(&key(1)), 2);
        history.note_left(&key(1), u8::MAX);
        assert_eq!(history.uses(&key(1)), MOST_USES);
    }

    #[test]
    fn uses_are_halved_with_each_turn() {
        let history = History::new(0);
        // The first note begins the first turn.
        note(&history, 0);
        history.note_left(&key(1), 40);
        let mut others = 100..;
        for expected in [20, 10, 5, 2, 1, 0] {
            // The one behind a turn ends it.
            for number in others.by_ref().take(SHORTEST_TURN as usize + 1) {
                note(&history, number);
            }
            assert_eq!(history.uses(&key(1)), expected);
        }
    }

    #[test]
    fn what_is_noted_again_and_again_outlives_what_is_noted_once() {
        let history = History::new(0);
        let mut missed = 0;
        for number in 0..100_000 {
            note(&history, number);
            if number % 500 == 0 {
                missed += u64::from(note(&history, u64::MAX) == 0);
            }
        }
        assert_eq!(missed, 1);
        // The newest are known; what is older than two turns is not, but for a chance of one in
        // thirty thousand.
        assert!((99_500..100_000).all(|number| note(&history, number) > 0));
        let known = (0..90_000).filter(|number| note(&history, *number) > 0);
        assert!(known.count() < 30);
    }

    #[test]
    fn turns_that_come_round_again_do_not_bring_keys_back() {
        let history = History::new(0);
        let all = 600 * SHORTEST_TURN;
        let known = (0..all).filter(|number| note(&history, *number) > 0);
        // By chance: once in thirty thousand times.
        assert!((known.count() as u64) < all / 10_000);
    }

    #[test]
    fn it_takes_no_more_memory_than_its_bound() {
        for (limit, memory) in [(0, 256 << 10), (1 << 40, 32 << 20), (u64::MAX, 32 << 20)] {
            assert_eq!(History::new(limit).memory(), memory, "{limit}");
        }
    }
}
