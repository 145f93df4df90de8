//! Heads of entries that were removed, in whatever way, and may have parts that were not.
//!
//! An entry whose body is kept as entries of their own ([`Role::Slice`](crate::site::Role)) has no
//! body itself. When it leaves, its parts are of no use to anybody, but only whoever knows what
//! heads mean knows which they are.
//!
//! ```text
//!   leaves the index ──► its place ──────────────────────► head, read when it is asked for
//!          │                 └─ its segment goes ────────► head, read before that
//!          └─ it was on its way to the disk ─────────────► head
//! ```
//!
//! 1. An entry without a body that left while there were parts is among the heads, or it is said
//!    that some are not.
//! 2. What is remembered is bounded.
//!
//! What leaves because it is on another disk now is not remembered.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;

use crate::disk::open::SegmentFile;
use crate::disk::segment::Place;
use crate::entry::Entry;
use crate::index::Slot;
use crate::key::Key;
use crate::lock::lock;
use crate::site::Leave;
use crate::volume::Inner;

/// Entries that are remembered (arbitrary: half a megabyte of places).
const COUNT_MAX: usize = 1 << 14;
/// Bytes of heads that are remembered (arbitrary).
const BYTES_MAX: usize = 8 << 20;

/// Heads of entries without a body that were removed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RemovedHeads {
    /// Keys and heads of the entries.
    pub heads: Vec<(Key, Bytes)>,
    /// True if there are others, of which nothing is known.
    pub is_partial: bool,
}

#[derive(Debug, Default)]
struct List {
    places: Vec<(Key, Place)>,
    heads: Vec<(Key, Bytes)>,
    head_bytes: usize,
    is_partial: bool,
}

/// Heads and places that a volume remembers of its entries that were removed.
#[derive(Debug, Default)]
pub(crate) struct RemovedList {
    /// True if there are parts.
    is_watched: AtomicBool,
    list: Mutex<List>,
}

impl RemovedList {
    /// Notes that there are parts, or will be.
    pub(crate) fn watch(&self) {
        // So that a line that all cores read is written once.
        if !self.is_watched.load(Ordering::Relaxed) {
            self.is_watched.store(true, Ordering::Relaxed);
        }
    }

    /// Notes that an entry left; `flight` is the one of them whose record is not on the disk.
    pub(crate) fn note(&self, slot: &Slot, flight: Option<&Entry>, why: Leave) {
        let may_have_parts = slot.body_len() == 0 && !slot.account().is_slice();
        if !may_have_parts || why == Leave::Moved || !self.is_watched.load(Ordering::Relaxed) {
            return;
        }
        match flight {
            Some(entry) => self.add(slot.key, Some(entry.stored.head.clone())),
            None => {
                let mut list = lock(&self.list);
                if list.places.len() < COUNT_MAX {
                    list.places.push((slot.key, slot.place()));
                } else {
                    list.is_partial = true;
                }
            }
        }
    }

    /// Notes that nobody knows which entries were removed.
    pub(crate) fn note_unknown(&self) {
        lock(&self.list).is_partial = true;
    }

    fn add(&self, key: Key, head: Option<Bytes>) {
        let mut list = lock(&self.list);
        let fits = |head: &Bytes| {
            list.heads.len() < COUNT_MAX && list.head_bytes.saturating_add(head.len()) <= BYTES_MAX
        };
        match head.filter(fits) {
            Some(head) => {
                list.head_bytes += head.len();
                // The record that it is a part of goes.
                list.heads.push((key, Bytes::copy_from_slice(&head)));
            }
            // INVARIANT 1.
            None => list.is_partial = true,
        }
    }

    fn take_places(&self, is_wanted: impl Fn(&Place) -> bool) -> Vec<(Key, Place)> {
        let mut list = lock(&self.list);
        let places = std::mem::take(&mut list.places).into_iter();
        let (wanted, others) = places.partition(|(_, place)| is_wanted(place));
        list.places = others;
        wanted
    }

    fn take(&self) -> RemovedHeads {
        let mut list = lock(&self.list);
        list.head_bytes = 0;
        RemovedHeads {
            heads: std::mem::take(&mut list.heads),
            is_partial: std::mem::take(&mut list.is_partial),
        }
    }
}

impl Inner {
    /// Reads the heads of removed entries that stand in a segment which goes, too.
    pub(crate) fn save_heads(&self, segment: u32, file: Option<&SegmentFile>) {
        let removed = &self.index.holdings().removed;
        for (key, place) in removed.take_places(|place| place.segment == segment) {
            removed.add(
                key,
                file.and_then(|it| self.disk.read_head(&key, place, it)),
            );
        }
    }

    /// Takes the entries that left since the last call; waits for the disk.
    pub(crate) fn take_removed_heads(&self) -> RemovedHeads {
        let removed = &self.index.holdings().removed;
        for (key, place) in removed.take_places(|_| true) {
            let file = self.disk.file(place.segment);
            let head = file.and_then(|it| self.disk.read_head(&key, place, &it));
            removed.add(key, head);
        }
        removed.take()
    }
}
