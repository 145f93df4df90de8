//! Heads of entries that are gone and may have parts that are not.
//!
//! An entry whose body is kept as entries of their own ([`Role::Slice`](crate::site::Role)) has no
//! body itself. When it leaves, its parts are of no use to anybody, but only who knows what heads
//! mean knows which they are.
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

use crate::disk::io::File;
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

/// Entries without a body that are gone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Gone {
    /// Their keys and heads.
    pub heads: Vec<(Key, Bytes)>,
    /// Whether there are others, of which nothing is known.
    pub is_partial: bool,
}

#[derive(Debug, Default)]
struct List {
    places: Vec<(Key, Place)>,
    heads: Vec<(Key, Bytes)>,
    head_bytes: usize,
    is_partial: bool,
}

/// What is remembered of a volume's entries that are gone.
#[derive(Debug, Default)]
pub(crate) struct GoneHeads {
    /// Whether there are parts.
    is_watched: AtomicBool,
    list: Mutex<List>,
}

impl GoneHeads {
    /// There are parts, or will be.
    pub(crate) fn watch(&self) {
        // So that a line that all cores read is written once.
        if !self.is_watched.load(Ordering::Relaxed) {
            self.is_watched.store(true, Ordering::Relaxed);
        }
    }

    /// An entry left; `flight` is the one of them whose record is not on the disk.
    pub(crate) fn note(&self, slot: &Slot, flight: Option<&Entry>, why: Leave) {
        let may_have_parts = slot.body_len() == 0 && !slot.account().is_slice();
        if !may_have_parts || why == Leave::Moved || !self.is_watched.load(Ordering::Relaxed) {
            return;
        }
        match flight {
            Some(entry) => self.add(slot.key, Some(entry.stored.head.clone())),
            None => {
                let mut list = lock(&self.list);
                match list.places.len() < COUNT_MAX {
                    true => list.places.push((slot.key, slot.place())),
                    false => list.is_partial = true,
                }
            }
        }
    }

    /// Nobody knows what is gone.
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

    fn take(&self) -> Gone {
        let mut list = lock(&self.list);
        list.head_bytes = 0;
        Gone {
            heads: std::mem::take(&mut list.heads),
            is_partial: std::mem::take(&mut list.is_partial),
        }
    }
}

impl Inner {
    /// Reads the heads of entries that are gone and stand in a segment that goes, too.
    pub(crate) fn save_gone(&self, segment: u32, file: Option<&File>) {
        let gone = &self.index.holdings().gone;
        for (key, place) in gone.take_places(|place| place.segment == segment) {
            gone.add(
                key,
                file.and_then(|it| self.disk.read_head(&key, place, it)),
            );
        }
    }

    /// What is gone since this was called last; waits for the disk.
    pub(crate) fn take_gone(&self) -> Gone {
        let gone = &self.index.holdings().gone;
        for (key, place) in gone.take_places(|_| true) {
            let file = self.disk.file(place.segment);
            let head = file.and_then(|it| self.disk.read_head(&key, place, &it));
            gone.add(key, head);
        }
        gone.take()
    }
}
