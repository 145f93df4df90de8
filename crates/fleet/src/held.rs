//! Zones of a cache, as the follower sees them.
//!
//! A zone takes the purges of the log as it takes its own, and notes the position in the log with
//! them, in one record of its journal.

use std::sync::Arc;

use millpond_cache::purge::position::Position;
use millpond_cache::purge::{Mode, Target};
use millpond_cache::zone::CacheZone;
use millpond_store::{JournalError, SystemClock};

use crate::follower::Replica;

impl Replica for Arc<CacheZone> {
    type Error = JournalError;

    fn name(&self) -> &[u8] {
        self.name.as_bytes()
    }

    fn position(&self) -> Option<Position> {
        self.purges.position()
    }

    fn take(&self, purges: &[(Target, Mode)], position: Position) -> Result<(), JournalError> {
        let now_ms = millpond_store::Clock::now(&SystemClock);
        self.take_from_log(purges, position, now_ms)
    }

    fn confirm(&self, at_ms: u64) {
        self.purges.lag.confirm(at_ms);
    }
}
