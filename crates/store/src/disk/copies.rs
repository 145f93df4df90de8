//! Entries that were written again, by how far that has come.
//!
//! Until a copy is on the device, what it is a copy of is not to go.

use std::sync::atomic::{AtomicU64, Ordering};

/// Copies by how far they have come: each is a count of those since the zone was opened.
#[derive(Debug, Default)]
pub(crate) struct Copies {
    /// Those that were begun.
    made: AtomicU64,
    /// Those whose records are in the queue, and those that came to nothing.
    queued: AtomicU64,
    /// Those that are in the kernel.
    written: AtomicU64,
    /// Those that are on the device.
    synced: AtomicU64,
}

impl Copies {
    /// Counts one that a dead process may have written.
    pub(crate) fn inherit(&self) {
        let copies = self.order();
        self.note_written(copies);
    }

    /// Counts one, before anything of it is written.
    pub(crate) fn begin(&self) {
        self.made.fetch_add(1, Ordering::AcqRel);
    }

    /// Notes that one has its record in the queue, or comes to nothing.
    pub(crate) fn end(&self) {
        self.queued.fetch_add(1, Ordering::AcqRel);
    }

    /// A number that no other order has: when all that is in the queue by now is in the kernel, so
    /// are so many copies, of which the order is the last one.
    pub(crate) fn order(&self) -> u64 {
        self.begin();
        self.queued.fetch_add(1, Ordering::AcqRel) + 1
    }

    /// Notes that the first so many are in the kernel.
    pub(crate) fn note_written(&self, copies: u64) {
        self.written.fetch_max(copies, Ordering::AcqRel);
    }

    /// Those that are on the device if a sync that begins now goes well.
    pub(crate) fn written(&self) -> u64 {
        self.written.load(Ordering::Acquire)
    }

    /// Notes that the first so many are on the device.
    pub(crate) fn note_synced(&self, copies: u64) {
        self.synced.fetch_max(copies, Ordering::AcqRel);
    }

    /// True if all are on the device, or there were none.
    pub(crate) fn are_synced(&self) -> bool {
        self.synced.load(Ordering::Acquire) >= self.made.load(Ordering::Acquire)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copy_that_was_made_while_others_were_synced_is_not_synced() {
        let copies = Copies::default();
        assert!(copies.are_synced());
        copies.inherit();
        let begun = copies.written();
        copies.begin();
        copies.end();
        copies.note_written(copies.order());
        copies.note_synced(begun);
        assert!(!copies.are_synced());
        copies.note_synced(copies.written());
        assert!(copies.are_synced());
    }

    #[test]
    fn copy_that_is_being_made_is_in_no_order() {
        let copies = Copies::default();
        copies.begin();
        copies.note_written(copies.order());
        copies.note_synced(copies.written());
        assert!(!copies.are_synced());
        copies.end();
        copies.note_written(copies.order());
        copies.note_synced(copies.written());
        assert!(copies.are_synced());
    }
}
