//! A log in memory, with faults.

use std::collections::BTreeMap;
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

    /// Adds an entry at a time of the log's clock; an older one of its subject goes.
    pub(crate) fn append(&mut self, entry: &Entry, at_ms: u64) -> u64 {
        let subject = entry.subject("f");
        self.records.retain(|_, (other, _)| *other != subject);
        self.last += 1;
        self.last_at_ms = at_ms;
        let record = Record {
            sequence: self.last,
            at_ms,
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
        self.records.range(behind + 1..).count() as u64
    }

    /// Some records behind a sequence, from a server that has all up to another.
    pub(crate) fn read(&self, behind: u64, upto: u64, most: usize) -> Vec<Record> {
        let records = self.records.range(behind + 1..).map(|(_, it)| it.1.clone());
        let known = records.take_while(|record| record.sequence <= upto);
        known.take(most).collect()
    }

    pub(crate) fn last(&self) -> u64 {
        self.last
    }
}

/// A key of a text.
pub(crate) fn key_text(key: u8) -> Bytes {
    Bytes::from(vec![b'a' + key])
}
