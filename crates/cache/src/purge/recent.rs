//! The purges of a zone that were acknowledged last, for people who look.
//!
//! Kept in memory only, since the process opened the zone; what is in force is in the book. How
//! many there were of each kind is counted along.
//!
//! 1. There are at most [`RECENT_MAX`], and each has at most [`WHAT_MAX`] bytes of text.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;

use super::rule::{Mode, Target};

/// Purges that are remembered (arbitrary: a few pages).
pub const RECENT_MAX: usize = 100;
/// Bytes of what one was about.
pub const WHAT_MAX: usize = 1024;

/// A purge that was acknowledged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecentPurge {
    /// Time of the purge, milliseconds since 1970.
    pub at_ms: u64,
    /// Kind of the purge's target, in a word.
    pub kind: &'static str,
    /// Target of the purge in full, as far as it is kept.
    pub what: Bytes,
    /// Effect of the purge.
    pub mode: Mode,
    /// Serial of the purge.
    pub serial: u64,
}

/// The last purges.
#[derive(Debug, Default)]
pub struct RecentPurges {
    noted: Mutex<Noted>,
}

#[derive(Debug, Default)]
struct Noted {
    list: VecDeque<RecentPurge>,
    /// Totals by kind and mode: there are some seven kinds, and two modes.
    totals: BTreeMap<(&'static str, &'static str), u64>,
}

impl RecentPurges {
    pub(crate) fn note(&self, target: &Target, mode: Mode, (serial, at_ms): (u64, u64)) {
        let mut what = target.text();
        what.truncate(WHAT_MAX);
        let mut noted = self.lock();
        let kind = (target.kind(), mode.word());
        *noted.totals.entry(kind).or_default() += 1;
        let list = &mut noted.list;
        if list.len() >= RECENT_MAX {
            list.pop_front();
        }
        list.push_back(RecentPurge {
            at_ms,
            kind: target.kind(),
            what,
            mode,
            serial,
        });
    }

    /// The last ones, the newest first.
    pub fn list(&self) -> Vec<RecentPurge> {
        self.lock().list.iter().rev().cloned().collect()
    }

    /// Number of purges of each kind and mode.
    pub fn totals(&self) -> Vec<((&'static str, &'static str), u64)> {
        let noted = self.lock();
        let totals = noted.totals.iter();
        totals.map(|(kind, count)| (*kind, *count)).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Noted> {
        self.noted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_are_kept_and_come_first() {
        let purges = RecentPurges::default();
        for serial in 1..=RECENT_MAX as u64 + 3 {
            let target = Target::Prefix(Bytes::from(vec![b'a'; 2000]));
            purges.note(&target, Mode::Soft, (serial, serial * 10));
        }
        let list = purges.list();
        assert_eq!(list.len(), RECENT_MAX);
        assert_eq!((list[0].serial, list[0].at_ms), (103, 1030));
        assert_eq!((list[0].kind, list[0].what.len()), ("prefix", WHAT_MAX));
        assert_eq!(purges.totals(), [(("prefix", "soft"), 103)]);
    }
}
