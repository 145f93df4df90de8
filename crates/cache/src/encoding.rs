//! Work on stored encodings: which ones are being made, what came of it, and which are not tried
//! again for a while.
//!
//! ```text
//!   a hit wants it ──► begun ──► would the store take it? ──► made
//!                        ├─────────────┴─ no: not asked again for `ASKED_AGAIN`
//!                        └─────► in vain: not tried again for `AGAIN`
//! ```
//!
//! 1. No encoding is made twice at a time, and no more than `WAITING_MAX` wait or are made.
//! 2. What is remembered is bounded (`recent.rs`); what is forgotten costs work, never a wrong
//!    answer.
//!
//! 3. Nothing is encoded that a full zone would refuse: each question counts there as a use, as
//!    that for a missing entry does.
//!
//! The encodings themselves are in the store: `encoded.rs`.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use millpond_semantics::dictionary::Hash;
use millpond_store::Key;

use crate::recent::Recent;

/// Encodings of a zone that wait to be made, or are made, at a time (arbitrary: some minutes of
/// work, and each holds no more than an entry).
const WAITING_MAX: usize = 64;

/// Seconds after which an encoding that came to nothing is tried again (arbitrary).
const AGAIN: i64 = 600;

/// Seconds after which one is that was not stored (arbitrary; its entry may be back by then).
const STORED_AGAIN: i64 = 10;

/// Seconds after which the store is asked again (arbitrary: so often a use is counted that a full
/// zone chooses by).
const ASKED_AGAIN: i64 = 1;

/// Outcome of the work on an encoding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The encoding is stored.
    Made,
    /// The encoding would be hardly shorter than the body.
    NotShorter,
    /// The store did not take it, or the entry was replaced meanwhile.
    NotStored,
    /// The body could not be read or encoded.
    Failed,
    /// Too many others waited.
    Refused,
    /// The store would not have taken it, so that nothing was encoded.
    NotChosen,
}

impl Outcome {
    /// All outcomes, in the order of their counts.
    pub const ALL: [Outcome; 6] = [
        Outcome::Made,
        Outcome::NotShorter,
        Outcome::NotStored,
        Outcome::Failed,
        Outcome::Refused,
        Outcome::NotChosen,
    ];

    /// Word for metrics.
    pub fn word(self) -> &'static str {
        match self {
            Outcome::Made => "made",
            Outcome::NotShorter => "not_shorter",
            Outcome::NotStored => "not_stored",
            Outcome::Failed => "failed",
            Outcome::Refused => "refused",
            Outcome::NotChosen => "not_chosen",
        }
    }
}

/// Counts of a zone's encodings since the process opened it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EncodingCounts {
    /// Outcomes, as many as each of [`Outcome::ALL`].
    pub outcomes: [u64; Outcome::ALL.len()],
    /// Bytes of the bodies that encodings were made of.
    pub bytes_before: u64,
    /// Bytes of those encodings.
    pub bytes_after: u64,
    /// Answers from an encoding.
    pub answers: u64,
    /// Bytes that these answers would have had more without it.
    pub saved_bytes: u64,
}

/// Facts about dictionaries (`dictionaries.rs`) that a zone remembers.
#[derive(Debug, Default)]
pub struct Dictionaries {
    /// Seconds since the epoch up to which the dictionary of an entry is not looked at.
    pub(crate) looked_at: Recent<i64>,
    /// Dictionaries that there are encodings of an entry by, the oldest first.
    pub(crate) used: Recent<Vec<Hash>>,
}

/// Encodings of a zone that are being made, and counts.
#[derive(Debug, Default)]
pub struct Encodings {
    running: Mutex<HashSet<Key>>,
    /// Seconds since the epoch up to which an encoding is not tried.
    in_vain: Recent<i64>,
    outcomes: [AtomicU64; Outcome::ALL.len()],
    before: AtomicU64,
    after: AtomicU64,
    answers: AtomicU64,
    saved: AtomicU64,
}

impl Encodings {
    /// Begins to make an encoding; false if it is being made, was in vain of late, or has to wait
    /// for too many others. True obliges to call [`Encodings::end`].
    pub fn begin(&self, key: &Key, now: i64) -> bool {
        if self.in_vain.find(key).is_some_and(|until| now < until) {
            return false;
        }
        let mut running = self.running();
        if running.contains(key) {
            return false;
        }
        // INVARIANT 1.
        if running.len() >= WAITING_MAX {
            self.count(Outcome::Refused);
            return false;
        }
        running.insert(*key)
    }

    /// Notes what came of an encoding that was begun.
    pub fn end(&self, key: &Key, outcome: Outcome, now: i64) {
        if outcome != Outcome::Made {
            let pause = match outcome {
                Outcome::NotStored => STORED_AGAIN,
                Outcome::NotChosen => ASKED_AGAIN,
                _ => AGAIN,
            };
            let until = now.saturating_add(pause);
            self.in_vain.note(*key, |_| until);
        }
        self.count(outcome);
        self.running().remove(key);
    }

    /// Notes the lengths of a body and of an encoding that was made of it.
    pub fn note_made(&self, before: u64, after: u64) {
        self.before.fetch_add(before, Ordering::Relaxed);
        self.after.fetch_add(after, Ordering::Relaxed);
    }

    /// Notes an answer from an encoding, which is that much shorter.
    pub fn note_answer(&self, saved: u64) {
        self.answers.fetch_add(1, Ordering::Relaxed);
        self.saved.fetch_add(saved, Ordering::Relaxed);
    }

    /// The counts.
    pub fn counts(&self) -> EncodingCounts {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        EncodingCounts {
            outcomes: std::array::from_fn(|at| self.outcomes.get(at).map_or(0, read)),
            bytes_before: read(&self.before),
            bytes_after: read(&self.after),
            answers: read(&self.answers),
            saved_bytes: read(&self.saved),
        }
    }

    fn count(&self, outcome: Outcome) {
        if let Some(count) = self.outcomes.get(outcome as usize) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn running(&self) -> MutexGuard<'_, HashSet<Key>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_encoding_is_made_once_at_a_time_and_not_again_after_it_was_in_vain() {
        let table = Encodings::default();
        let key = Key::of(b"k");
        assert!(table.begin(&key, 0));
        assert!(!table.begin(&key, 0));
        table.end(&key, Outcome::NotShorter, 0);
        assert!(!table.begin(&key, AGAIN - 1));
        assert!(table.begin(&key, AGAIN));
        table.end(&key, Outcome::Made, AGAIN);
        assert!(table.begin(&key, AGAIN));
        assert_eq!(table.counts().outcomes, [1, 1, 0, 0, 0, 0]);
    }

    #[test]
    fn those_that_wait_are_bounded() {
        let table = Encodings::default();
        let key = |number: usize| Key::of(&number.to_le_bytes());
        let begun = (0..200).filter(|number| table.begin(&key(*number), 0));
        assert_eq!(begun.count(), WAITING_MAX);
        assert_eq!(table.counts().outcomes[Outcome::Refused as usize], 136);
        table.end(&key(0), Outcome::Made, 0);
        assert!(table.begin(&key(199), 0));
    }
}
