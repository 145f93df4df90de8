//! Work on a zone besides requests: purges, their coming true in the entries, slices whose entry is
//! gone.
//!
//! A purge is a rule first, by which everything is judged ([`crate::purge`]); a thread that sweeps
//! removes what the rules are about, and forgets them.

mod orphans;

use millpond_store::{JournalError, Key, Review};

use crate::head::StoredHead;
use crate::purge::log::{Issuer, LogPurge, Moment};
use crate::purge::position::Position;
use crate::purge::rule::Matter;
use crate::purge::{Judged, Mode, PurgeBook, Subject, Target};
use crate::zone::CacheZone;
use orphans::Orphans;
pub use orphans::Readers;

/// Result of a purge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Purged {
    /// Serial of the purge: larger than that of any purge before.
    pub serial: u64,
    /// True if the purged key had an entry. Other purges do not look.
    pub was_there: Option<bool>,
}

/// Counts of a sweep of purges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PurgesSwept {
    /// Serial of the newest purge that the sweep was for.
    pub upto: u64,
    /// Entries removed, and slices of such as are gone.
    pub removed: u64,
    /// Entries that are stale now.
    pub changed: u64,
    /// True if all entries were seen to, so that the purges are forgotten.
    pub is_complete: bool,
}

impl CacheZone {
    /// Purges, durably; waits for the disk. `now_ms` is the time in milliseconds since the epoch.
    /// After an error nothing is purged.
    pub fn purge(&self, target: &Target, mode: Mode, now_ms: u64) -> Result<Purged, JournalError> {
        let was_there = match target {
            Target::Key(text) => Some(self.has(text)),
            _ => None,
        };
        let now = Moment {
            day_ms: now_ms,
            boot_ms: self.store.since_boot_ms(),
        };
        let serial = self.purges.purge(&self.store, (target, mode), now)?;
        self.recent_purges.note(target, mode, (serial, now_ms));
        self.watch.tell_purge(target, mode, serial);
        self.forget_errors(target);
        if let (Target::Key(text), Mode::Hard, Some(true)) = (target, mode, was_there) {
            // INVARIANT 1 holds without; but its space need not wait for the sweep.
            self.store.remove(&self.keys().of(text));
        }
        Ok(Purged { serial, was_there })
    }

    /// Takes purges from the log of a fleet, all or none, and notes with them up to where the log
    /// was taken; waits for the disk. After an error nothing has changed.
    pub fn take_from_log(
        &self,
        purges: &[LogPurge],
        position: Position,
        now_ms: u64,
    ) -> Result<(), JournalError> {
        let taken = self.purges.take(&self.store, (purges, position), now_ms)?;
        let Some(serial) = taken else { return Ok(()) };
        for LogPurge {
            target,
            mode,
            issuer,
            ..
        } in purges
        {
            // What was asked for here was told then.
            if *issuer == Issuer::Other {
                self.recent_purges.note(target, *mode, (serial, now_ms));
                self.watch.tell_purge(target, *mode, serial);
            }
            self.forget_errors(target);
            if let (Target::Key(text), Mode::Hard) = (target, mode) {
                // As in `purge`: its space need not wait for the sweep.
                self.store.remove(&self.keys().of(text));
            }
        }
        Ok(())
    }

    /// Number of entries that a purge would be about; looks at all heads. None if it was told to
    /// stop.
    pub fn count_purged(&self, target: &Target, is_over: &dyn Fn() -> bool) -> Option<u64> {
        let probe = PurgeBook::of_one(&Matter::of(target, self.keys()), *self.keys());
        let mut count = 0;
        let reviewed = self.store.review(&mut |_, head| {
            if is_over() {
                return Review::Stop;
            }
            let found = StoredHead::decode(head).filter(|head| {
                let subject = Subject {
                    serial: 0,
                    ..head.subject()
                };
                head.encoding_of().is_none()
                    && self.purges.judge(&head.subject()) != Judged::Gone
                    && probe.judge(&subject) == Judged::Gone
            });
            count += u64::from(found.is_some());
            Review::Keep
        });
        (reviewed.is_complete || !is_over()).then_some(count)
    }

    /// Makes purges come true in the entries themselves, and forgets them, if that is due; to be
    /// called by the thread that sweeps. None if there is nothing to do.
    pub fn sweep_purges(&self, now_ms: u64, is_over: &dyn Fn() -> bool) -> Option<PurgesSwept> {
        if !self.purges.is_sweep_due(self.purges.newest(), now_ms) {
            return None;
        }
        // Before the review: what was stored by then is seen by it.
        let floor = self.purges.floor();
        if !self.purges.is_sweep_due(floor, now_ms) {
            return None;
        }
        let mut orphans = Orphans::default();
        let reviewed = self.store.review(&mut |_, bytes| {
            if is_over() {
                return Review::Stop;
            }
            if orphans.is_one(self, bytes) {
                Review::Remove
            } else {
                self.review(bytes)
            }
        });
        // What cannot be written down now is swept again.
        if reviewed.is_complete && self.store.sync() {
            let _ = self.purges.retire(&self.store, floor);
        }
        Some(PurgesSwept {
            upto: floor,
            removed: reviewed.removed,
            changed: reviewed.changed,
            is_complete: reviewed.is_complete,
        })
    }

    fn review(&self, bytes: &bytes::Bytes) -> Review {
        let Some(mut head) = StoredHead::decode(bytes) else {
            return Review::Keep;
        };
        match self.purges.judge(&head.subject()) {
            Judged::Untouched => Review::Keep,
            Judged::Gone => Review::Remove,
            Judged::Stale { since, serial } => {
                head.expire(since);
                head.serial = serial;
                Review::Head(head.encode())
            }
        }
    }

    /// Reads the purges of a zone that was taken back: its borrower may have made some.
    pub fn reload_purges(&self) {
        self.purges.load(&self.store.take_journal());
    }

    /// Lets the zone go to another process, until it is taken back. Who is reading goes on; nobody
    /// joins what is being fetched here, because the other process takes the purges.
    pub fn lend(&self) {
        self.settle_orphans();
        self.store.lend();
        self.purges.part();
    }

    /// Removes what nobody will know of that the next owner of the zone could miss; for whoever is
    /// about to close it or to let it go.
    pub fn settle_orphans(&self) {
        self.sweep_orphans(Readers::Part);
        if self.slices.take_unknown() {
            // It is about no entry, and has all of them looked at.
            let nothing = Matter::Key(Key([0; 16]));
            let order = (Mode::Hard, nothing);
            // A disk that does not take it has more to lose.
            let _ = self.purges.enforce(&self.store, order, 0);
        }
    }
}
