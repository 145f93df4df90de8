//! Judgement of copies: the position that one is written with, whether one that is there may stay,
//! and whether one that was read may be used.
//!
//! Functions of what is known, without a store: readers and writers decide by them, and so does the
//! model of a fleet (`tests/model`), which runs them through random schedules.

use millpond_cache::head::StoredHead;
use millpond_cache::purge::position::Position;
use millpond_cache::purge::{PurgeBook, Subject};
use millpond_fleet::ledger::Ledgers;

use crate::head::{Kind, TierHead};

/// The entry that a copy is to be made of, found by `find`, with the position that the copy names:
/// one up to which no purge was about the entry. None if it is purged or gone.
pub fn source<T>(
    purges: &PurgeBook,
    subject: &Subject<'_>,
    find: impl FnOnce() -> Option<T>,
) -> Option<(Position, T)> {
    // INVARIANT 2 of the crate: a purge whose rule has retired is seen by the entry that is gone.
    let position = purges.position_untouched(subject)?;
    Some((position, find()?))
}

/// Knowledge of purges by which copies are judged.
#[derive(Clone, Copy, Debug)]
pub struct Known<'a> {
    /// Purges that the log has.
    pub ledgers: &'a Ledgers,
    /// Name of the zone.
    pub zone: &'a str,
    /// Position of the zone, read after the lead of the fill began that a copy is for.
    pub own: Position,
}

impl Known<'_> {
    /// True if the log was read as far as the zone knows it: before, no copy is used.
    pub fn is_settled(&self) -> bool {
        self.ledgers.is_settled(self.zone, self.own)
    }

    /// True if no purge is about what has this head, behind the position that its copy names.
    pub fn is_untouched(&self, stored: &StoredHead, position: Position) -> bool {
        let copy = (stored, position);
        self.ledgers.is_untouched(self.zone, copy, self.own)
    }

    /// True if a copy that is there serves as well as another one.
    pub fn is_as_good(&self, there: &TierHead, other: &TierHead) -> bool {
        let (theirs, ours) = (there.stored.stored_at, other.stored.stored_at);
        let is_no_older = match (&there.kind, &other.kind) {
            (Kind::Entry(body), Kind::Entry(same)) if body == same => theirs >= ours,
            _ => theirs > ours,
        };
        is_no_older && self.is_untouched(&there.stored, there.position)
    }
}
