//! Zones of a cache, as the follower sees them.
//!
//! A zone takes the purges of the log as it takes its own, and notes the position in the log with
//! them, in one record of its journal.
//!
//! 1. A position is one of a zone's name: purges name zones, so a folder whose zone gets another
//!    name has followed nothing under that one. The log's name is noted mixed with the zone's.

use std::sync::Arc;
use std::time::Duration;

use millpond_cache::purge::log::LogPurge;
use millpond_cache::purge::position::Position;
use millpond_cache::zone::CacheZone;
use millpond_store::{Clock, JournalError, SystemClock};
use millpond_system::clock;
use millpond_system::log::error::{self, Level};
use sha2::{Digest, Sha256};

use crate::follower::Replica;

/// Time between two looks at the lag.
const LOOK_EVERY: Duration = Duration::from_secs(1);

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
        let now_ms = SystemClock.now();
        self.take_from_log(purges, mixed(position, self.name.as_bytes()), now_ms)
    }

    fn confirm(&self, at_ms: u64) {
        self.purges.confirm(at_ms);
    }
}

/// Lines for zones of a fleet that get behind, and for those that are back.
pub(crate) async fn watch_lag(fleet: &str, max_lag: Duration, zones: &[Arc<CacheZone>]) {
    let max_lag_ms = u64::try_from(max_lag.as_millis()).unwrap_or(u64::MAX);
    let seconds = max_lag.as_secs_f64();
    let mut was_behind = false;
    loop {
        clock::pause(LOOK_EVERY).await;
        let now_ms = SystemClock.since_boot();
        let is_behind = zones.iter().any(|zone| {
            let confirmed_ms = zone.purges.lag.confirmed_ms();
            confirmed_ms > 0 && now_ms.saturating_sub(confirmed_ms) > max_lag_ms
        });
        match (was_behind, is_behind) {
            (false, true) => error::process(
                Level::Warn,
                format_args!(
                    "fleet \"{fleet}\": behind, nothing was heard of its log for {seconds} s; \
                     \"on_lag\" says what becomes of requests"
                ),
            ),
            (true, false) => error::process(
                Level::Notice,
                format_args!("fleet \"{fleet}\": not behind any more"),
            ),
            _ => {}
        }
        was_behind = is_behind;
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
