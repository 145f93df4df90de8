//! Purges on their way to the log of a fleet and back, and the position that others are asked with.
//!
//! ```text
//!   purge ──► apart ──► rule ──────────────► the log ──► other nodes
//!                         ▲                    │
//!                         └── rule, position ◄─┘ what comes back is apart no more
//! ```
//!
//! 1. What is removed here is noted as removed by this node alone before it is in force.
//! 2. Purges of the log and the position behind them are one order: all or nothing.

use bytes::Bytes;
use millpond_store::JournalError;

use super::book::PurgeBook;
use super::notes::Notes;
use super::position::Position;
use super::rule::{Matter, Mode, Target};

/// Process that a purge of the log came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Issuer {
    /// This one, in which it was in force before.
    This,
    /// Another one.
    Other,
}

/// Name of a purge in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PurgeId {
    /// Process that wrote it.
    pub run: [u8; 16],
    /// Number of the purge in its process.
    pub count: u64,
}

/// A purge that the log has brought.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogPurge {
    /// Entries that it is about.
    pub target: Target,
    /// Effect on them.
    pub mode: Mode,
    /// Process that asked for it.
    pub issuer: Issuer,
    /// Name of the purge; none if it stands for what is not known.
    pub id: Option<PurgeId>,
    /// Time of a beat of this process that stands before it in the log; 0 for none.
    pub since_ms: u64,
}

/// A moment by both clocks, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// Time since 1970.
    pub day_ms: u64,
    /// Time of the clock that beats are made by.
    pub boot_ms: u64,
}

impl PurgeBook {
    /// Puts a purge in force that this node was asked for, durably; its serial. Waits for the disk.
    /// After an error it is not in force.
    pub fn purge(
        &self,
        notes: &impl Notes,
        (target, mode): (&Target, Mode),
        now: Moment,
    ) -> Result<u64, JournalError> {
        // INVARIANT 1.
        if self.lag.max_lag().is_some() {
            self.apart.note_purge(target, mode, now.boot_ms);
        }
        let matter = Matter::of(target, &self.keys());
        self.enforce(notes, (mode, matter), now.day_ms)
    }

    /// Puts purges of the log in force, and notes up to where it was taken; the serial of the last,
    /// if there are any. Waits for the disk. After an error nothing has changed.
    pub fn take(
        &self,
        notes: &impl Notes,
        (purges, position): (&[LogPurge], Position),
        now_ms: u64,
    ) -> Result<Option<u64>, JournalError> {
        if purges.is_empty() {
            self.note_position(notes, position)?;
            return Ok(None);
        }
        let keys = self.keys();
        let of = |purge: &LogPurge| (purge.mode, Matter::of(&purge.target, &keys));
        // INVARIANT 2.
        let order = (purges.iter().map(of).collect(), Some(position));
        let serial = self.enforce_together(notes, order, now_ms)?;
        purges.iter().for_each(|it| self.apart.handle_purge(it));
        Ok(Some(serial))
    }

    /// All that the log had acknowledged before `at_ms` is in force, and all that it has up to an
    /// end of it.
    pub fn confirm(&self, at_ms: u64) {
        self.lag.confirm(at_ms);
        self.apart.confirm(at_ms);
    }

    /// The position up to which others must know the log to be asked for a key; none if nobody is
    /// to be asked at `now_ms`, of the clock that goes on: this node may have missed a purge, or
    /// has removed something that others may have. To be asked after the lead of a fill began.
    pub fn position_to_ask(&self, text: &Bytes, now_ms: u64) -> Option<Position> {
        if !self.lag.is_up_to_date(now_ms) || self.apart.has(text) {
            return None;
        }
        self.position()
    }
}
