//! The queue of records that wait for their collector.
//!
//! Invariant: no more records than [`Bounds`] says wait or are on their way, and no more bytes of
//! them wait than [`BYTES_MAX`].

use std::collections::VecDeque;

use bytes::Bytes;

/// Bytes of records that wait, at most (arbitrary: many times what batches of the usual size have).
const BYTES_MAX: usize = 32 << 20;
/// Bytes of a batch, at most: receivers of gRPC take messages of 4 MiB unless they are told
/// otherwise.
const BATCH_BYTES_MAX: usize = 3 << 20;

/// Sizes of a queue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    /// Records of a batch.
    pub(crate) batch: usize,
    /// Records in all.
    pub(crate) records: usize,
}

/// Records that wait.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    records: VecDeque<Bytes>,
    bytes: usize,
    /// Records that are on their way.
    sending: usize,
}

/// The outcome of an attempt to add a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Added {
    /// The record waits, the first one.
    Begins,
    /// The record waits.
    Waits,
    /// The record waits, and a batch is full.
    Fills,
    /// There was no room.
    Dropped,
}

/// The batches that are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// Full ones.
    Full,
    /// Any.
    All,
}

impl Queue {
    pub(crate) fn add(&mut self, record: Bytes, bounds: Bounds) -> Added {
        let is_full = self.records.len() + self.sending >= bounds.records;
        if is_full || self.bytes + record.len() > BYTES_MAX {
            return Added::Dropped;
        }
        self.bytes += record.len();
        self.records.push_back(record);
        match self.records.len() {
            count if count >= bounds.batch => Added::Fills,
            1 => Added::Begins,
            _ => Added::Waits,
        }
    }

    /// True if nothing waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// Takes a batch; empty if there is none.
    pub(crate) fn take(&mut self, wanted: Wanted, bounds: Bounds) -> Vec<Bytes> {
        let count = self.records.len().min(bounds.batch);
        if count < bounds.batch && wanted == Wanted::Full {
            return Vec::new();
        }
        let mut batch = Vec::with_capacity(count);
        let mut left = BATCH_BYTES_MAX;
        while batch.len() < count {
            let fits = |record: &mut Bytes| record.len() <= left || batch.is_empty();
            let Some(record) = self.records.pop_front_if(fits) else {
                break;
            };
            left = left.saturating_sub(record.len());
            self.bytes -= record.len();
            batch.push(record);
        }
        self.sending += batch.len();
        batch
    }

    /// Notes that so many records are on their way no longer.
    pub(crate) fn sent(&mut self, count: usize) {
        self.sending = self.sending.saturating_sub(count);
    }

    /// Drops everything that waits; says how many records that were.
    pub(crate) fn clear(&mut self) -> usize {
        self.bytes = 0;
        std::mem::take(&mut self.records).len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: Bounds = Bounds {
        batch: 2,
        records: 4,
    };

    fn record(len: usize) -> Bytes {
        Bytes::from(vec![0; len])
    }

    #[test]
    fn spans_on_their_way_count() {
        let mut queue = Queue::default();
        assert_eq!(queue.add(record(1), BOUNDS), Added::Begins);
        assert!(queue.take(Wanted::Full, BOUNDS).is_empty());
        assert_eq!(queue.add(record(1), BOUNDS), Added::Fills);
        assert_eq!(queue.take(Wanted::Full, BOUNDS).len(), 2);
        for expected in [Added::Begins, Added::Fills, Added::Dropped] {
            assert_eq!(queue.add(record(1), BOUNDS), expected);
        }
        queue.sent(2);
        assert_eq!(queue.add(record(1), BOUNDS), Added::Fills);
        assert_eq!(queue.take(Wanted::All, BOUNDS).len(), 2);
        assert_eq!(queue.take(Wanted::All, BOUNDS).len(), 1);
        assert!(queue.take(Wanted::All, BOUNDS).is_empty());
    }

    #[test]
    fn bytes_are_bounded() {
        let bounds = Bounds {
            batch: 100,
            records: 1000,
        };
        let mut queue = Queue::default();
        for _ in 0..32 {
            assert_ne!(queue.add(record(1 << 20), bounds), Added::Dropped);
        }
        assert_eq!(queue.add(record(1), bounds), Added::Dropped);
        assert_eq!(queue.take(Wanted::All, bounds).len(), 3);
        assert_ne!(queue.add(record(1), bounds), Added::Dropped);
        assert_eq!(queue.clear(), 30);
        // One that is too long for a batch goes alone.
        queue.add(record(BATCH_BYTES_MAX + 1), bounds);
        queue.add(record(1), bounds);
        assert_eq!(queue.take(Wanted::All, bounds).len(), 1);
    }
}
