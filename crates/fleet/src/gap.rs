//! Gaps: from where a zone goes on in the log, or that it cannot know what it missed.
//!
//! The log keeps the newest entry of each subject, so numbers that are not there say nothing. What
//! was removed because it was old is told by time: that of the position and that of the newest
//! entry, both by the clock of the log. A node writes a beat before it asks, so that the newest
//! entry is of now.

use std::time::Duration;

use millpond_cache::purge::position::Position;

use crate::log::Standing;

/// Records that a zone takes one by one when it was away; more are one purge of everything. As many
/// as rules fit a book.
pub const RECORDS_MAX: u64 = 64 << 10;
/// Part of the time for which the log keeps entries that counts as too long: clocks of its servers
/// differ, and one may have been set.
const MARGIN: u32 = 8;

/// Reason for which a zone begins anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gap {
    /// The zone has followed no log before.
    First,
    /// The log is another one: that of before was lost.
    OtherLog,
    /// The log ends before the position: a part of it was lost.
    Shorter,
    /// The zone was away for longer than the log keeps entries.
    TooLong,
    /// The zone has missed more than it takes one by one.
    TooMany,
}

impl Gap {
    /// The reason, for a line of the log.
    pub fn as_str(self) -> &'static str {
        match self {
            Gap::First => "it has followed no log before",
            Gap::OtherLog => "the log was made anew",
            Gap::Shorter => "the end of the log was lost",
            Gap::TooLong => "it was away for longer than entries are kept",
            Gap::TooMany => "it has missed too many entries",
        }
    }
}

/// Way in which a zone goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// The zone takes what stands behind this sequence.
    Behind(u64),
    /// The zone makes everything stale that it has.
    Anew(Gap),
}

/// Decides how a zone goes on whose position is noted, in a log that stands so.
pub fn start(position: Option<Position>, standing: &Standing) -> Start {
    let Some(position) = position else {
        return Start::Anew(Gap::First);
    };
    let away = standing.last_at_ms.saturating_sub(position.at_ms);
    match () {
        () if position.log != standing.log => Start::Anew(Gap::OtherLog),
        () if position.sequence > standing.last => Start::Anew(Gap::Shorter),
        () if is_too_long(Duration::from_millis(away), standing.retain) => {
            Start::Anew(Gap::TooLong)
        }
        () => Start::Behind(position.sequence),
    }
}

/// True if entries of the log may be gone that somebody missed who was away for so long. A log
/// without a limit keeps all.
pub(crate) fn is_too_long(away: Duration, retain: Duration) -> bool {
    !retain.is_zero() && away > retain - retain / MARGIN
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zones_go_on_where_nothing_can_be_missing() {
        let standing = Standing {
            log: [1; 16],
            last: 100,
            last_at_ms: 1_000_000,
            retain: Duration::from_secs(800),
        };
        let at = |log: u8, sequence, at_ms| {
            Some(Position {
                log: [log; 16],
                sequence,
                at_ms,
            })
        };
        let table = [
            (None, Start::Anew(Gap::First)),
            (at(1, 100, 1_000_000), Start::Behind(100)),
            (at(1, 5, 300_000), Start::Behind(5)),
            (at(1, 5, 299_999), Start::Anew(Gap::TooLong)),
            (at(1, 101, 1_000_000), Start::Anew(Gap::Shorter)),
            (at(2, 100, 1_000_000), Start::Anew(Gap::OtherLog)),
            // The clock of the log was set back.
            (at(1, 99, 1_000_500), Start::Behind(99)),
        ];
        for (position, expected) in table {
            assert_eq!(start(position, &standing), expected, "{position:?}");
        }
        let endless = Standing {
            retain: Duration::ZERO,
            ..standing
        };
        assert_eq!(start(at(1, 5, 1), &endless), Start::Behind(5));
    }
}
