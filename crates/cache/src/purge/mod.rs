//! `proxy_cache_purge`: taking out of a zone what its operator names.
//!
//! ```text
//!   purge ──► book (in force at once, durable)      look-ups and joins judge by the book
//!   sweep ──► review of all heads ──► sync ──► the book's rules retire
//! ```
//!
//! A purge changes no entry: it is a rule in the zone's [`PurgeBook`], which every look-up obeys.
//! So it takes the same time whatever it is about, and covers every variant, every slice and every
//! fill that runs. A sweep in the background removes what hard purges are about, makes the heads
//! stale that soft ones are about, and lets the rules go.
//!
//! - `apart`: removals that other nodes of a fleet may not have
//! - `book`: the rules and the judgement
//! - `rule`: one rule, in memory and in the journal
//! - `gather`: writing down together what many threads purge
//! - `log`: purges on their way to the log of a fleet and back
//! - `notes`: the place where rules are written down
//! - `ledger`: the last purge of each target in the log of a fleet
//! - `position`: up to where the log of a fleet was taken
//! - `running`: fills that began before a purge
//!
//! Beside it, [`crate::tag`] is what entries can be purged by besides their keys, and
//! [`crate::upkeep`] carries purges out and removes slices of entries that are gone.
//!
//! 1. When [`CacheZone::purge`](crate::zone::CacheZone::purge) has returned, no look-up on any
//!    thread finds what was purged, and none will after a crash.
//! 2. What was asked of the origin after that is not touched by it.

pub mod apart;
pub(crate) mod book;
mod gather;
pub mod ledger;
pub mod log;
pub mod notes;
pub mod position;
pub mod recent;
pub(crate) mod rule;
pub(crate) mod running;

pub use book::{InForce, Judged, PurgeBook, Subject};
pub use rule::{Mode, Target};

use crate::head::StoredHead;

impl StoredHead {
    /// Subject of the entry, as a purge sees it.
    pub fn subject(&self) -> Subject<'_> {
        Subject {
            text: &self.key,
            tags: &self.tags,
            serial: self.serial,
        }
    }

    /// Makes the entry stale from a second on, if it is fresh then.
    pub(crate) fn expire(&mut self, since: i64) {
        self.valid_until = self.valid_until.min(since.saturating_sub(1));
    }
}

#[cfg(test)]
mod tests;
