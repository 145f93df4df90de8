//! Removals of this node alone: what it has removed, and other nodes of its fleet may still have.
//!
//! ```text
//!   purge ──► noted ── written down ──► sent ──► the log ──┬─► it comes back: forgotten
//!                                                          └─► acknowledged, and all up to a
//!                                                              later beat is taken: forgotten
//! ```
//!
//! A purge is in force here before the log has it, and stays so if the log never gets it; what an
//! unsafe method has invalidated is no matter of the log at all. Until it is known that others have
//! removed it as well, this node asks none of them for it.
//!
//! 1. A removal is noted before it is in force.
//! 2. It is forgotten only by what stands behind it in the log: its own purge, or another one of
//!    the same, behind a beat of this node that was made later. One that was on its way before says
//!    nothing of what others have stored since.
//! 3. What does not fit is not forgotten: then nothing is asked of others. Invalidations are
//!    forgotten, the oldest first: that they stay on their node is all that was promised.
//! 4. It is kept in memory: after a restart a purge that was told to be in force here only may be
//!    undone by what another node has.
//!
//! Times are milliseconds of the clock that beats are made by.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;

use super::log::{LogPurge, PurgeId};
use super::rule::{Mode, Target};

/// Purges that are remembered until the log brings them (arbitrary: some seconds of them).
const PURGES_MAX: usize = 1024;
/// Keys that are remembered as invalidated (arbitrary).
const INVALIDATED_MAX: usize = 4096;

/// The removals of a zone.
#[derive(Debug, Default)]
pub struct Apart(Mutex<Removed>);

#[derive(Debug, Default)]
struct Removed {
    /// One for each target and mode.
    purges: Vec<Note>,
    /// INVARIANT 3: the time of the last purge that did not fit.
    full_ms: Option<u64>,
    /// Keys, and when they were invalidated.
    invalidated: VecDeque<(Bytes, u64)>,
}

/// A purge that other nodes may not have.
#[derive(Debug)]
struct Note {
    target: Target,
    mode: Mode,
    /// Time of the last such purge.
    noted_ms: u64,
    /// Name under which it was sent since then, the last time.
    sent: Option<PurgeId>,
    /// Time at which the log had acknowledged that.
    acknowledged_ms: Option<u64>,
}

impl Note {
    /// True if what does the same to all nodes makes the note needless.
    fn is_covered_by(&self, target: &Target, mode: Mode) -> bool {
        let is_as_hard = mode == Mode::Hard || self.mode == Mode::Soft;
        is_as_hard && (*target == Target::All || *target == self.target)
    }
}

impl Removed {
    fn find(&mut self, target: &Target, mode: Mode) -> Option<&mut Note> {
        let mut notes = self.purges.iter_mut();
        notes.find(|it| it.target == *target && it.mode == mode)
    }
}

impl Apart {
    /// Something is purged here.
    pub(crate) fn note_purge(&self, target: &Target, mode: Mode, now_ms: u64) {
        let mut removed = self.lock();
        let note = Note {
            target: target.clone(),
            mode,
            noted_ms: now_ms,
            sent: None,
            acknowledged_ms: None,
        };
        if let Some(known) = removed.find(target, mode) {
            *known = note;
        } else if removed.purges.len() < PURGES_MAX {
            removed.purges.push(note);
        } else {
            removed.full_ms = Some(now_ms);
        }
    }

    /// A key is invalidated here.
    pub(crate) fn note_invalidated(&self, text: &Bytes, now_ms: u64) {
        let mut removed = self.lock();
        if let Some(known) = removed.invalidated.iter_mut().find(|it| it.0 == *text) {
            known.1 = now_ms;
            return;
        }
        if removed.invalidated.len() >= INVALIDATED_MAX {
            removed.invalidated.pop_front();
        }
        removed.invalidated.push_back((text.clone(), now_ms));
    }

    /// A purge that is in force here is about to be sent to the log.
    pub fn send(&self, target: &Target, mode: Mode, id: PurgeId) {
        if let Some(note) = self.lock().find(target, mode) {
            (note.sent, note.acknowledged_ms) = (Some(id), None);
        }
    }

    /// The log has acknowledged a purge of this node by now.
    pub fn acknowledge(&self, id: PurgeId, now_ms: u64) {
        let mut removed = self.lock();
        let sent = removed.purges.iter_mut().filter(|it| it.sent == Some(id));
        sent.for_each(|note| note.acknowledged_ms = Some(now_ms));
    }

    /// The log has brought a purge: all nodes have it that have come so far.
    pub(crate) fn handle_purge(&self, purge: &LogPurge) {
        let mut removed = self.lock();
        let (target, mode) = (&purge.target, purge.mode);
        let own = removed
            .find(target, mode)
            .filter(|note| purge.id.is_some() && note.sent == purge.id);
        // INVARIANT 2: what was noted before this time stands before the purge.
        let since_ms = own.map_or(0, |note| note.noted_ms).max(purge.since_ms);
        removed.purges.retain(|note| {
            let is_own = purge.id.is_some() && note.sent == purge.id;
            !(is_own || note.noted_ms < since_ms && note.is_covered_by(target, mode))
        });
        removed.invalidated.retain(|(text, at_ms)| {
            let is_about = match target {
                Target::Key(key) => key == text,
                Target::All => true,
                _ => false,
            };
            !is_about || *at_ms >= since_ms
        });
        let is_all = *target == Target::All && mode == Mode::Hard;
        if is_all && removed.full_ms.is_some_and(|at_ms| at_ms < since_ms) {
            removed.full_ms = None;
        }
    }

    /// All that the log had acknowledged before a time is in force here, itself or what has
    /// replaced it.
    pub fn confirm(&self, at_ms: u64) {
        let is_there = |note: &Note| note.acknowledged_ms.is_some_and(|it| it < at_ms);
        self.lock().purges.retain(|note| !is_there(note));
    }

    /// True if other nodes may have what this one has removed under a key.
    pub fn has(&self, text: &Bytes) -> bool {
        let removed = self.lock();
        let is_about = |note: &Note| match &note.target {
            Target::Key(key) => key == text,
            Target::Prefix(prefix) => text.starts_with(prefix),
            _ => true,
        };
        removed.full_ms.is_some()
            || removed.purges.iter().any(is_about)
            || removed.invalidated.iter().any(|it| it.0 == *text)
    }

    fn lock(&self) -> MutexGuard<'_, Removed> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::super::log::Issuer;
    use super::*;

    fn text(text: &'static str) -> Bytes {
        Bytes::from_static(text.as_bytes())
    }

    fn key(name: &'static str) -> Target {
        Target::Key(text(name))
    }

    fn id(count: u64) -> PurgeId {
        PurgeId {
            run: [1; 16],
            count,
        }
    }

    /// A purge of this node that comes back.
    fn own(target: &Target, count: u64) -> LogPurge {
        LogPurge {
            target: target.clone(),
            mode: Mode::Hard,
            issuer: Issuer::This,
            id: Some(id(count)),
            since_ms: 0,
        }
    }

    /// A purge of another node behind a beat of this one.
    fn other(target: &Target, mode: Mode, since_ms: u64) -> LogPurge {
        LogPurge {
            target: target.clone(),
            mode,
            issuer: Issuer::Other,
            id: Some(PurgeId {
                run: [2; 16],
                count: 1,
            }),
            since_ms,
        }
    }

    #[test]
    fn purges_are_apart_until_they_come_back() {
        for (target, others) in [
            (key("ab"), false),
            (Target::Prefix(text("a")), false),
            (Target::Host(text("h")), true),
            (Target::Tags(vec![text("t")]), true),
            (Target::All, true),
        ] {
            let apart = Apart::default();
            apart.note_purge(&target, Mode::Hard, 10);
            assert!(apart.has(&text("ab")));
            assert_eq!(apart.has(&text("b")), others);
            apart.send(&target, Mode::Hard, id(7));
            apart.handle_purge(&own(&target, 6));
            assert!(apart.has(&text("ab")));
            apart.handle_purge(&own(&target, 7));
            assert!(!apart.has(&text("ab")) && !apart.has(&text("b")));
        }
    }

    /// Other nodes may have stored between the two what the second removes.
    #[test]
    fn earlier_purge_of_the_same_leaves_the_note_of_a_later_one() {
        let apart = Apart::default();
        apart.note_purge(&key("a"), Mode::Hard, 10);
        apart.handle_purge(&other(&key("a"), Mode::Hard, 10));
        assert!(apart.has(&text("a")), "before it was sent");
        apart.send(&key("a"), Mode::Hard, id(1));
        apart.handle_purge(&other(&key("a"), Mode::Hard, 0));
        assert!(apart.has(&text("a")), "before it came back");
        // Again, while the first one is on its way.
        apart.note_purge(&key("a"), Mode::Hard, 20);
        apart.handle_purge(&own(&key("a"), 1));
        assert!(apart.has(&text("a")), "the second one is on its way");
        apart.send(&key("a"), Mode::Hard, id(2));
        apart.handle_purge(&own(&key("a"), 2));
        assert!(!apart.has(&text("a")));
    }

    /// As when the acknowledgement was lost, and somebody asks another node again.
    #[test]
    fn later_purge_of_the_same_makes_a_note_needless_if_it_is_as_hard() {
        let apart = Apart::default();
        apart.note_purge(&key("a"), Mode::Hard, 10);
        apart.handle_purge(&other(&key("b"), Mode::Hard, 11));
        apart.handle_purge(&other(&key("a"), Mode::Soft, 11));
        assert!(apart.has(&text("a")));
        apart.handle_purge(&other(&key("a"), Mode::Hard, 11));
        assert!(!apart.has(&text("a")));
        apart.note_purge(&key("a"), Mode::Soft, 12);
        apart.handle_purge(&other(&Target::All, Mode::Hard, 13));
        assert!(!apart.has(&text("a")));
    }

    /// Another node may have replaced it in the log before it came back.
    #[test]
    fn acknowledged_purge_is_apart_until_all_of_a_later_time_is_in_force() {
        let apart = Apart::default();
        apart.note_purge(&key("a"), Mode::Hard, 10);
        apart.send(&key("a"), Mode::Hard, id(1));
        apart.confirm(1000);
        apart.acknowledge(id(2), 20);
        apart.confirm(1000);
        assert!(apart.has(&text("a")), "nothing is acknowledged");
        apart.acknowledge(id(1), 20);
        apart.confirm(20);
        assert!(apart.has(&text("a")), "the beat may stand before it");
        apart.confirm(21);
        assert!(!apart.has(&text("a")));
    }

    #[test]
    fn what_does_not_fit_is_not_forgotten() {
        let apart = Apart::default();
        let all = || (0..=PURGES_MAX).map(|number| Target::Key(Bytes::from(number.to_string())));
        for target in all().chain(all()) {
            apart.note_purge(&target, Mode::Hard, 10);
        }
        for target in all() {
            apart.handle_purge(&other(&target, Mode::Hard, 11));
        }
        assert!(apart.has(&text("other")));
        apart.handle_purge(&other(&Target::All, Mode::Hard, 10));
        assert!(apart.has(&text("other")));
        apart.handle_purge(&other(&Target::All, Mode::Hard, 11));
        assert!(!apart.has(&text("other")));
    }

    #[test]
    fn invalidated_keys_are_apart_until_they_are_purged_everywhere() {
        let apart = Apart::default();
        apart.note_invalidated(&text("a"), 10);
        assert!(apart.has(&text("a")) && !apart.has(&text("b")));
        apart.handle_purge(&other(&key("a"), Mode::Hard, 10));
        assert!(apart.has(&text("a")), "it was on its way before");
        apart.handle_purge(&other(&key("a"), Mode::Soft, 11));
        assert!(!apart.has(&text("a")));
        for number in 0..=INVALIDATED_MAX {
            apart.note_invalidated(&Bytes::from(number.to_string()), 20);
        }
        assert!(!apart.has(&text("0")) && apart.has(&text("1")));
        // A purge of this node that was made later stands behind it as well.
        apart.note_purge(&key("1"), Mode::Hard, 21);
        apart.send(&key("1"), Mode::Hard, id(1));
        apart.handle_purge(&own(&key("1"), 1));
        assert!(!apart.has(&text("1")));
    }
}
