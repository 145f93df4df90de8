//! A log in memory, with faults. Each server has it up to an entry, and has forgotten what another
//! entry up to there has replaced.

use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

use bytes::Bytes;
use millpond_fleet::entry::Entry;
use millpond_fleet::{Record, Standing};

/// Time for which entries are kept.
pub(crate) const RETAIN_MS: u64 = 80_000;

#[derive(Debug)]
pub(crate) struct MemoryLog {
    pub(crate) id: [u8; 16],
    records: BTreeMap<u64, (String, Record)>,
    last: u64,
    last_at_ms: u64,
}

impl MemoryLog {
    /// An empty log, whose first entry stands behind a sequence.
    pub(crate) fn new(id: u8, last: u64) -> Self {
        MemoryLog {
            id: [id; 16],
            records: BTreeMap::new(),
            last,
            last_at_ms: 0,
        }
    }

    /// Adds an entry at a time of the log's clock.
    pub(crate) fn append(&mut self, entry: &Entry, at_ms: u64) -> u64 {
        let subject = entry.subject("f");
        self.last += 1;
        self.last_at_ms = at_ms;
        let record = Record {
            sequence: self.last,
            at_ms,
            pending: 0,
            payload: entry.encode(),
        };
        self.records.insert(self.last, (subject, record));
        self.last
    }

    /// Forgets what is too old by the log's clock.
    pub(crate) fn age(&mut self, now_ms: u64) {
        let is_kept = |record: &Record| record.at_ms + RETAIN_MS >= now_ms;
        self.records.retain(|_, (_, record)| is_kept(record));
    }

    pub(crate) fn standing(&self) -> Standing {
        Standing {
            log: self.id,
            last: self.last,
            last_at_ms: self.last_at_ms,
            retain: Duration::from_millis(RETAIN_MS),
        }
    }

    pub(crate) fn pending(&self, behind: u64) -> u64 {
        self.read(behind, self.last, usize::MAX).len() as u64
    }

    /// Some records behind a sequence, from a server that has all up to another.
    pub(crate) fn read(&self, behind: u64, upto: u64, most: usize) -> Vec<Record> {
        let known = self.records.range(behind + 1..).filter(|it| *it.0 <= upto);
        let mut newest = HashSet::new();
        // From the end, the first of each subject is the one that is there.
        let there = known.rev().filter(|(_, it)| newest.insert(it.0.as_str()));
        let mut records: Vec<Record> = Vec::new();
        for (pending, (_, (_, record))) in there.enumerate() {
            records.push(Record {
                pending: pending as u64,
                ..record.clone()
            });
        }
        records.into_iter().rev().take(most).collect()
    }

    pub(crate) fn last(&self) -> u64 {
        self.last
    }
}

/// A key of a text.
pub(crate) fn key_text(key: u8) -> Bytes {
    Bytes::from(vec![b'a' + key])
}
