//! Zones of a cache, as the follower sees them.
//!
//! A zone takes the purges of the log as it takes its own, and notes the position in the log with
//! them, in one record of its journal.
//!
//! 1. A position is one of a zone's name: purges name zones, so a folder whose zone gets another
//!    name has followed nothing under that one. The log's name is noted mixed with the zone's.

use std::sync::Arc;

use millpond_cache::purge::log::LogPurge;
use millpond_cache::purge::position::Position;
use millpond_cache::zone::CacheZone;
use millpond_store::{JournalError, SystemClock};
use sha2::{Digest, Sha256};

use crate::follower::Replica;

/// The position with the name of its log mixed with that of the zone, or unmixed.
pub fn mixed(position: Position, zone: &[u8]) -> Position {
    let digest = Sha256::digest(zone);
    let mut log = position.log;
    for (byte, other) in log.iter_mut().zip(digest) {
        *byte ^= other;
    }
    Position { log, ..position }
}

impl Replica for Arc<CacheZone> {
    type Error = JournalError;

    fn name(&self) -> &[u8] {
        self.name.as_bytes()
    }

    fn position(&self) -> Option<Position> {
        // INVARIANT 1.
        let noted = self.purges.position();
        noted.map(|position| mixed(position, self.name.as_bytes()))
    }

    fn take(&self, purges: &[LogPurge], position: Position) -> Result<(), JournalError> {
        let now_ms = millpond_store::Clock::now(&SystemClock);
        self.take_from_log(purges, mixed(position, self.name.as_bytes()), now_ms)
    }

    fn confirm(&self, at_ms: u64) {
        self.purges.lag.confirm(at_ms);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn position_of_another_zone_is_one_of_another_log() {
        let position = Position {
            log: [7; 16],
            sequence: 3,
            at_ms: 9,
        };
        let noted = mixed(position, b"a");
        assert_eq!(mixed(noted, b"a"), position);
        assert_ne!(mixed(noted, b"b").log, position.log);
    }
}
