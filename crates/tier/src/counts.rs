//! Counts of what happened to a tier.
//!
//! They begin with the tier, and end with it.

use std::sync::atomic::{AtomicU64, Ordering};

/// Outcome of a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Read {
    /// A copy was used.
    Hit,
    /// There is none that may be used.
    Miss,
    /// There is one that a purge is about.
    Purged,
    /// The store failed, or was too slow.
    Fault,
    /// The store was not asked: it has failed before, too much is being read, or the log is not
    /// known.
    Skipped,
}

/// Outcome of an offer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Write {
    /// A copy was written.
    Written,
    /// There is a copy already.
    Present,
    /// The queue is full, or the store has failed before.
    Dropped,
    /// The entry is gone or purged, or its body cannot be copied.
    Gone,
    /// The store failed.
    Fault,
}

impl Read {
    const ALL: [(Read, &'static str); 5] = [
        (Read::Hit, "hit"),
        (Read::Miss, "miss"),
        (Read::Purged, "purged"),
        (Read::Fault, "fault"),
        (Read::Skipped, "skipped"),
    ];
}

impl Write {
    const ALL: [(Write, &'static str); 5] = [
        (Write::Written, "written"),
        (Write::Present, "present"),
        (Write::Dropped, "dropped"),
        (Write::Gone, "gone"),
        (Write::Fault, "fault"),
    ];
}

/// The counts.
#[derive(Debug, Default)]
pub struct Counts {
    reads: [AtomicU64; Read::ALL.len()],
    writes: [AtomicU64; Write::ALL.len()],
    read_bytes: AtomicU64,
    written_bytes: AtomicU64,
    written_objects: AtomicU64,
    removed_objects: AtomicU64,
}

impl Counts {
    /// A question has come to this.
    pub fn note_read(&self, outcome: Read) {
        add(&self.reads, Read::ALL.iter().position(|it| it.0 == outcome));
    }

    /// An offer has come to this.
    pub fn note_write(&self, outcome: Write) {
        add(
            &self.writes,
            Write::ALL.iter().position(|it| it.0 == outcome),
        );
    }

    /// Bytes of bodies have come.
    pub fn note_read_bytes(&self, count: usize) {
        self.read_bytes.fetch_add(count as u64, Ordering::Relaxed);
    }

    /// Bytes of bodies were written.
    pub fn note_written_bytes(&self, count: usize) {
        self.written_bytes
            .fetch_add(count as u64, Ordering::Relaxed);
    }

    /// An object was written: a head, or a slice of a body.
    pub fn note_written_object(&self) {
        self.written_objects.fetch_add(1, Ordering::Relaxed);
    }

    /// An object was removed, if it was there.
    pub fn note_removed_object(&self) {
        self.removed_objects.fetch_add(1, Ordering::Relaxed);
    }

    /// Questions, by their outcomes.
    pub fn reads(&self) -> Vec<(&'static str, u64)> {
        let counts = self.reads.iter().map(|it| it.load(Ordering::Relaxed));
        Read::ALL.iter().map(|it| it.1).zip(counts).collect()
    }

    /// Offers, by their outcomes.
    pub fn writes(&self) -> Vec<(&'static str, u64)> {
        let counts = self.writes.iter().map(|it| it.load(Ordering::Relaxed));
        Write::ALL.iter().map(|it| it.1).zip(counts).collect()
    }

    /// Bytes of bodies that have come, and that were written.
    pub fn bytes(&self) -> (u64, u64) {
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        (of(&self.read_bytes), of(&self.written_bytes))
    }

    /// Objects that were written, and that were removed.
    pub fn objects(&self) -> (u64, u64) {
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        (of(&self.written_objects), of(&self.removed_objects))
    }
}

fn add(counts: &[AtomicU64], place: Option<usize>) {
    if let Some(count) = place.and_then(|place| counts.get(place)) {
        count.fetch_add(1, Ordering::Relaxed);
    }
}
