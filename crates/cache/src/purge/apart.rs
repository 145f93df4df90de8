//! Removals of this node alone: what it has removed, and other nodes of its fleet may still have.
//!
//! A purge is in force here before the log has it, and stays so if the log never gets it; what an
//! unsafe method has invalidated is no matter of the log at all. Until it is known that others have
//! removed it as well, this node asks none of them for it.
//!
//! 1. A removal is noted before it is in force, and dropped when the same comes from the log.
//! 2. What does not fit is not forgotten: then nothing is asked of others. Invalidations are
//!    forgotten, the oldest first: that they stay on their node is all that was promised.
//! 3. It is kept in memory: after a restart a purge that was told to be in force here only may be
//!    undone by what another node has.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;

use super::rule::Target;

/// Purges that are remembered until the log brings them (arbitrary: some seconds of them).
const PURGES_MAX: usize = 1024;
/// Keys that are remembered as invalidated (arbitrary).
const INVALIDATED_MAX: usize = 4096;

/// The removals of a zone.
#[derive(Debug, Default)]
pub struct Apart(Mutex<Removed>);

#[derive(Debug, Default)]
struct Removed {
    purges: Vec<Target>,
    /// INVARIANT 2.
    is_full: bool,
    invalidated: VecDeque<Bytes>,
}

impl Apart {
    /// Something is purged here.
    pub(crate) fn note_purge(&self, target: &Target) {
        let mut removed = self.lock();
        if removed.purges.len() >= PURGES_MAX {
            removed.is_full = true;
        } else {
            removed.purges.push(target.clone());
        }
    }

    /// A key is invalidated here.
    pub(crate) fn note_invalidated(&self, text: &Bytes) {
        let mut removed = self.lock();
        if removed.invalidated.contains(text) {
            return;
        }
        if removed.invalidated.len() >= INVALIDATED_MAX {
            removed.invalidated.pop_front();
        }
        removed.invalidated.push_back(text.clone());
    }

    /// The log has brought a purge: all nodes have it.
    pub(crate) fn forget(&self, target: &Target) {
        let mut removed = self.lock();
        let found = removed.purges.iter().position(|it| it == target);
        if let Some(place) = found {
            removed.purges.swap_remove(place);
        }
        match target {
            Target::Key(text) => removed.invalidated.retain(|it| it != text),
            Target::All => {
                // Nothing that was removed before is anywhere.
                removed.invalidated.clear();
                removed.is_full = false;
            }
            _ => {}
        }
    }

    /// True if other nodes may have what this one has removed under a key.
    pub fn has(&self, text: &Bytes) -> bool {
        let removed = self.lock();
        let is_about = |target: &Target| match target {
            Target::Key(key) => key == text,
            Target::Prefix(prefix) => text.starts_with(prefix),
            _ => true,
        };
        removed.is_full || removed.purges.iter().any(is_about) || removed.invalidated.contains(text)
    }

    fn lock(&self) -> MutexGuard<'_, Removed> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &'static str) -> Bytes {
        Bytes::from_static(text.as_bytes())
    }

    #[test]
    fn purges_are_apart_until_the_log_brings_them() {
        let apart = Apart::default();
        let key = Target::Key(text("a"));
        apart.note_purge(&key);
        apart.note_purge(&key);
        assert!(apart.has(&text("a")) && !apart.has(&text("ab")));
        apart.forget(&key);
        assert!(apart.has(&text("a")), "the second one is on its way");
        apart.forget(&key);
        assert!(!apart.has(&text("a")));
        for (target, others) in [
            (Target::Prefix(text("a")), false),
            (Target::Host(text("h")), true),
            (Target::Tags(vec![text("t")]), true),
        ] {
            apart.note_purge(&target);
            assert!(apart.has(&text("ab")));
            assert_eq!(apart.has(&text("b")), others);
            apart.forget(&target);
            assert!(!apart.has(&text("ab")));
        }
    }

    #[test]
    fn what_does_not_fit_is_not_forgotten() {
        let apart = Apart::default();
        for number in 0..=PURGES_MAX {
            apart.note_purge(&Target::Key(Bytes::from(number.to_string())));
        }
        assert!(apart.has(&text("other")));
        for number in 0..=PURGES_MAX {
            apart.forget(&Target::Key(Bytes::from(number.to_string())));
        }
        assert!(apart.has(&text("other")));
        apart.forget(&Target::All);
        assert!(!apart.has(&text("other")));
    }

    #[test]
    fn invalidated_keys_are_apart_until_they_are_purged_everywhere() {
        let apart = Apart::default();
        apart.note_invalidated(&text("a"));
        assert!(apart.has(&text("a")) && !apart.has(&text("b")));
        apart.forget(&Target::Key(text("a")));
        assert!(!apart.has(&text("a")));
        for number in 0..=INVALIDATED_MAX {
            apart.note_invalidated(&Bytes::from(number.to_string()));
        }
        assert!(!apart.has(&text("0")) && apart.has(&text("1")));
    }
}
