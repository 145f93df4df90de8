//! Counters of cache zones: answers by cache status, and what of them was stored.
//!
//! Invariants:
//! 1. An answer is counted in the zone that was looked at last for its request.
//! 2. What is written is counted when its exchange is over, under the status that caused it.

use std::sync::atomic::{AtomicU64, Ordering};

use super::place::Place;
use super::{Count, Label, STATUSES};
use crate::counters::{Number, Table};

/// The counters of all zones.
#[derive(Debug, Default)]
pub struct CacheZones {
    table: Table<CacheZoneRow>,
}

/// Counters of one worker for one zone.
#[derive(Debug, Default)]
#[repr(align(64))]
struct CacheZoneRow {
    answers: [AtomicU64; STATUSES.len()],
    bytes: [AtomicU64; STATUSES.len()],
    written: [AtomicU64; STATUSES.len()],
    written_bytes: [AtomicU64; STATUSES.len()],
}

/// Counts of one status in a zone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ZoneStatusCount {
    /// Answers to clients.
    pub answers: Count,
    /// Answers of origins that were stored.
    pub written: Count,
}

impl ZoneStatusCount {
    /// Counts that came after an earlier count.
    pub fn since(&self, base: &ZoneStatusCount) -> ZoneStatusCount {
        let less = |count: Count, base: Count| Count {
            requests: count.requests.saturating_sub(base.requests),
            bytes: count.bytes.saturating_sub(base.bytes),
        };
        ZoneStatusCount {
            answers: less(self.answers, base.answers),
            written: less(self.written, base.written),
        }
    }
}

impl CacheZones {
    /// The number of a zone; takes a lock, so it is to be kept.
    pub fn number(&self, name: &[u8]) -> Number {
        self.table.number(name)
    }

    /// Counts an answer and the bytes of its body.
    pub fn answered(&self, place: Place, zone: Number, (label, bytes): (Label, u64)) {
        let row = self.table.row(place.shard(), zone);
        let cells = row.and_then(|row| {
            let count = row.answers.get(label.index())?;
            Some((count, row.bytes.get(label.index())?))
        });
        if let Some((count, sum)) = cells {
            place.add(count, 1);
            place.add(sum, bytes);
        }
    }

    /// Counts an answer of an origin that was stored, and the bytes of its body.
    pub fn written(&self, worker: usize, zone: Number, (label, bytes): (Label, u64)) {
        if let Some(row) = self.table.row(worker, zone) {
            add((&row.written, &row.written_bytes), label, bytes);
        }
    }

    /// Counts of a zone, by status.
    pub fn snapshot(&self, name: &[u8]) -> Vec<(&'static str, ZoneStatusCount)> {
        let mut counts = STATUSES.map(|status| (status, ZoneStatusCount::default()));
        for row in self.table.rows(name) {
            let answers = read(&row.answers).zip(read(&row.bytes));
            let written = read(&row.written).zip(read(&row.written_bytes));
            for ((_, count), (answers, written)) in counts.iter_mut().zip(answers.zip(written)) {
                count.answers.requests += answers.0;
                count.answers.bytes += answers.1;
                count.written.requests += written.0;
                count.written.bytes += written.1;
            }
        }
        counts.to_vec()
    }
}

type Cells = [AtomicU64; STATUSES.len()];

fn add((counts, sums): (&Cells, &Cells), label: Label, bytes: u64) {
    if let (Some(count), Some(sum)) = (counts.get(label.index()), sums.get(label.index())) {
        count.fetch_add(1, Ordering::Relaxed);
        sum.fetch_add(bytes, Ordering::Relaxed);
    }
}

fn read(cells: &Cells) -> impl Iterator<Item = u64> {
    cells.iter().map(|cell| cell.load(Ordering::Relaxed))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_zone_has_answers_and_what_was_written_by_status() {
        let zones = CacheZones::default();
        let zone = zones.number(b"z");
        let (hit, miss) = (Label::of(Some("HIT")), Label::of(Some("MISS")));
        zones.answered(Place::shared(0), zone, (hit, 5));
        zones.answered(Place::shared(2), zone, (hit, 6));
        zones.answered(Place::shared(0), zone, (miss, 7));
        zones.written(1, zone, (miss, 8));
        let counts = zones.snapshot(b"z");
        let of = |status| counts.iter().find(|(name, _)| *name == status).unwrap().1;
        assert_eq!(
            of("HIT").answers,
            Count {
                requests: 2,
                bytes: 11
            }
        );
        assert_eq!(of("HIT").written, Count::default());
        assert_eq!(
            of("MISS").written,
            Count {
                requests: 1,
                bytes: 8
            }
        );
        assert!(
            zones
                .snapshot(b"other")
                .iter()
                .all(|(_, count)| *count == ZoneStatusCount::default())
        );
    }
}
