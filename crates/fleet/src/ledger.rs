//! The ledgers of a node's zones: what the log knows of purges, for entries that lie outside.
//!
//! ```text
//!   unknown ── the log is read from its begin ──► reading ── its end is reached ──► settled
//!      ▲                                                                             │
//!      └───────────────── closed, failed, made anew ─────────────────────────────────┘
//! ```
//!
//! The follower of a node goes on where its zones stand, and so does not see what was purged before
//! a disk was lost. A ledger is read from the begin of the log, which keeps the newest purge of
//! each target, each time that the log is opened, and goes on beside the follower.
//!
//! 1. A ledger says of an entry that it is untouched only if it has come to an end of the log that
//!    is no earlier than the position that its zone had when it was asked. In between a purge may
//!    have been replaced by a newer one of the same target that was not read yet.
//! 2. An entry with a position of another log, or so old that purges behind it may have been
//!    forgotten by the log, is not untouched.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use millpond_cache::head::StoredHead;
use millpond_cache::purge::ledger::Ledger;
use millpond_cache::purge::position::Position;
use millpond_cache::purge::{Mode, Target};
use millpond_store::Keys;

use crate::entry::Entry;
use crate::gap::is_too_long;
use crate::held::mixed;
use crate::log::{Feed, FleetLog, LogError, Record, Standing};

/// Records that are noted together.
const BATCH_MAX: usize = 1024;

/// The ledgers of some zones.
#[derive(Debug, Default)]
pub struct Ledgers(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// Keys of the zones that have ledgers, by their names.
    zones: HashMap<Vec<u8>, Keys>,
    known: Option<Known>,
}

/// Knowledge of a log that was read since it was opened.
#[derive(Debug)]
struct Known {
    log: [u8; 16],
    retain: Duration,
    /// Sequence of the last end of the log that was reached; 0 for none.
    settled: u64,
    /// Time of the newest record, by the log's clock.
    newest_ms: u64,
    ledgers: HashMap<Vec<u8>, Ledger>,
}

impl Ledgers {
    /// A zone has a ledger from now on; the log is to be read again.
    pub fn add(&self, zone: &str, keys: Keys) {
        let mut state = self.lock();
        if state.zones.insert(zone.as_bytes().to_vec(), keys).is_none() {
            state.known = None;
        }
    }

    /// True if there are no zones that have ledgers.
    pub fn is_empty(&self) -> bool {
        self.lock().zones.is_empty()
    }

    /// True if a log is read.
    #[cfg(test)]
    fn is_read(&self) -> bool {
        self.lock().known.is_some()
    }

    /// True if the log was read to an end that is no earlier than the position of a zone: only then
    /// something can be untouched.
    pub fn is_settled(&self, zone: &str, own: Position) -> bool {
        let state = self.lock();
        let known = state.known.as_ref();
        known.is_some_and(|known| known.is_settled(zone, own))
    }

    /// Nothing is known any more.
    pub fn forget(&self) {
        self.lock().known = None;
    }

    /// The log is read from its begin.
    pub fn begin(&self, standing: &Standing) {
        let mut state = self.lock();
        let zones = state.zones.iter();
        let ledgers = zones.map(|(name, keys)| (name.clone(), Ledger::new(*keys)));
        state.known = Some(Known {
            log: standing.log,
            retain: standing.retain,
            settled: 0,
            newest_ms: 0,
            ledgers: ledgers.collect(),
        });
    }

    /// Notes records of the log, in their order; false if they are not wanted any more.
    pub fn note(&self, records: &[Record]) -> bool {
        let mut state = self.lock();
        let Some(known) = &mut state.known else {
            return false;
        };
        records.iter().for_each(|record| known.note(record));
        true
    }

    /// True if no purge is about what has this head and lies outside, where its position is so; as
    /// a zone sees it whose own position is `own`, or was.
    pub fn is_untouched(
        &self,
        zone: &str,
        (head, position): (&StoredHead, Position),
        own: Position,
    ) -> bool {
        let state = self.lock();
        let Some(known) = &state.known else {
            return false;
        };
        let away = Duration::from_millis(known.newest_ms.saturating_sub(position.at_ms));
        // INVARIANTS 1 and 2.
        known.is_settled(zone, own)
            && position.log == own.log
            && !is_too_long(away, known.retain)
            && known
                .ledgers
                .get(zone.as_bytes())
                .is_some_and(|ledger| ledger.is_untouched(head, position))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Known {
    fn is_settled(&self, zone: &str, own: Position) -> bool {
        let of_log = Position {
            log: self.log,
            sequence: self.settled,
            at_ms: 0,
        };
        let settled = mixed(of_log, zone.as_bytes());
        settled.sequence > 0 && settled.log == own.log && settled.sequence >= own.sequence
    }

    fn note(&mut self, record: &Record) {
        let at = Position {
            log: self.log,
            sequence: record.sequence,
            at_ms: record.at_ms,
        };
        match Entry::decode(&record.payload) {
            Some(Entry::Beat(_) | Entry::Farewell { .. }) => {}
            Some(Entry::Purge(purge)) => {
                if let Some(ledger) = self.ledgers.get_mut(&purge.zone[..]) {
                    ledger.note(&purge.target, purge.mode, at);
                }
            }
            // What is not understood was acknowledged.
            None => {
                for ledger in self.ledgers.values_mut() {
                    ledger.note(&Target::All, Mode::Hard, at);
                }
            }
        }
        self.newest_ms = self.newest_ms.max(record.at_ms);
        if record.pending == 0 {
            self.settled = record.sequence;
        }
    }
}

/// Reads a log into the ledgers until that fails, or they are to be read again.
pub(crate) async fn read<L: FleetLog>(log: &L, ledgers: &Ledgers) -> Result<(), LogError> {
    let standing = log.standing().await?;
    ledgers.begin(&standing);
    let mut opened = log.read_behind(0).await?;
    if opened.log != standing.log {
        return Err(LogError {
            what: "reading the log",
            why: "it was made anew".to_owned(),
        });
    }
    while ledgers.note(&opened.feed.next(BATCH_MAX).await?) {}
    Ok(())
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use millpond_cache::head::FieldsWriter;

    use super::*;
    use crate::entry::{Beat, Purge};

    const LOG: [u8; 16] = [7; 16];

    fn standing() -> Standing {
        Standing {
            log: LOG,
            last: 9,
            last_at_ms: 9000,
            retain: Duration::from_secs(800),
        }
    }

    fn record(sequence: u64, pending: u64, entry: &Entry) -> Record {
        Record {
            sequence,
            at_ms: sequence * 1000,
            pending,
            payload: entry.encode(),
        }
    }

    fn beat() -> Entry {
        Entry::Beat(Beat {
            run: [1; 16],
            count: 1,
            taken: 0,
            node: "n".to_owned(),
            announced: None,
        })
    }

    fn purge(zone: &'static str) -> Entry {
        Entry::Purge(Purge {
            run: [1; 16],
            count: 1,
            zone: Bytes::from_static(zone.as_bytes()),
            mode: Mode::Hard,
            target: Target::Key(Bytes::from_static(b"key")),
        })
    }

    fn at(sequence: u64) -> Position {
        let position = Position {
            log: LOG,
            sequence,
            at_ms: sequence * 1000,
        };
        mixed(position, b"z")
    }

    fn ledgers() -> Ledgers {
        let ledgers = Ledgers::default();
        ledgers.add("z", Keys::for_tests());
        ledgers.begin(&standing());
        ledgers
    }

    fn head() -> StoredHead {
        let mut head = StoredHead::new(200, FieldsWriter::default());
        head.key = Bytes::from_static(b"key");
        head
    }

    fn is_untouched(ledgers: &Ledgers, position: u64, own: u64) -> bool {
        ledgers.is_untouched("z", (&head(), at(position)), at(own))
    }

    #[test]
    fn nothing_is_untouched_before_an_end_of_the_log_behind_the_zones_position() {
        let ledgers = ledgers();
        assert!(!is_untouched(&ledgers, 9, 0));
        assert!(ledgers.note(&[record(3, 2, &purge("z")), record(8, 1, &beat())]));
        assert!(!is_untouched(&ledgers, 9, 0));
        assert!(ledgers.note(&[record(9, 0, &beat())]));
        assert!(is_untouched(&ledgers, 9, 9) && is_untouched(&ledgers, 3, 9));
        assert!(!is_untouched(&ledgers, 2, 9), "it was purged behind that");
        assert!(!is_untouched(&ledgers, 9, 10), "the zone has come further");
        ledgers.forget();
        assert!(!is_untouched(&ledgers, 9, 0) && !ledgers.note(&[]));
    }

    #[test]
    fn positions_of_other_logs_and_zones_and_old_ones_are_not_untouched() {
        let ledgers = ledgers();
        ledgers.note(&[record(3, 1, &purge("y")), record(2000, 0, &beat())]);
        assert!(is_untouched(&ledgers, 1300, 9));
        // Seven eighths of the time for which the log keeps purges.
        assert!(!is_untouched(&ledgers, 1299, 9));
        let other = Position {
            log: [8; 16],
            ..at(1999)
        };
        assert!(!ledgers.is_untouched("z", (&head(), other), at(9)));
        assert!(!ledgers.is_untouched("z", (&head(), at(1999)), other));
        assert!(!ledgers.is_untouched("y", (&head(), at(1999)), at(9)));
    }

    #[test]
    fn entry_that_is_not_understood_is_a_purge_of_everything() {
        let ledgers = ledgers();
        let mut unknown = record(5, 0, &beat());
        unknown.payload = Bytes::from_static(b"?");
        ledgers.note(&[unknown]);
        assert!(!is_untouched(&ledgers, 4, 5) && is_untouched(&ledgers, 5, 5));
    }

    #[test]
    fn a_zone_that_is_added_has_all_read_again() {
        let ledgers = ledgers();
        ledgers.note(&[record(9, 0, &beat())]);
        ledgers.add("z", Keys::for_tests());
        assert!(ledgers.is_read());
        ledgers.add("y", Keys::for_tests());
        assert!(!ledgers.is_read() && !ledgers.note(&[record(10, 0, &beat())]));
    }
}
