//! The last answer of each key that was not stored, with the reason.
//!
//! 1. The number of keys is bounded (`recent.rs`); what is old is forgotten.
//! 2. A hit never looks at it.

use crate::key_mark::KeyMark;
use crate::reason::{Account, Note, Reason};
use crate::recent::Recent;

/// An answer that was not stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotStoredNote {
    /// The reason.
    pub account: Account,
    /// Status of the answer.
    pub status: u16,
    /// Time of the answer, seconds since the epoch.
    pub at: i64,
}

/// The last answer of each key that was not stored.
#[derive(Debug, Default)]
pub struct LastUnstored(Recent<NotStoredNote>);

impl LastUnstored {
    /// An answer was not stored.
    pub fn note(&self, mark: KeyMark, note: NotStoredNote) {
        self.0.note(*mark.key(), |_| note);
    }

    /// An answer with this status was not stored at a time (seconds), although its head was one to
    /// store.
    pub(crate) fn note_late(&self, mark: KeyMark, (why, status): (Reason, u16), at: i64) {
        let mut account = Account::default();
        account.note(Note::Because(why));
        let note = NotStoredNote {
            account,
            status,
            at,
        };
        self.note(mark, note);
    }

    /// The last one of a key.
    pub fn find(&self, mark: &KeyMark) -> Option<NotStoredNote> {
        self.0.find(mark.key())
    }
}
