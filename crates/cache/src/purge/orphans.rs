//! Slices whose entry is gone: nobody asks for them, but they count for their site until they are
//! swept.
//!
//! The record of a slice names its entry and the generation of that. If the entry is not there, or
//! purged, or of another generation, the slice is an orphan. One whose generation is read or
//! fetched at the moment is left alone: its readers may go on with what is held.
//!
//! 1. An entry is stored before its slices, so a slice that was seen before its entry is missing is
//!    an orphan for good.
//! 2. What is remembered is bounded; beyond it records are read again.

use std::collections::HashMap;

use millpond_store::Looked;

use super::Judged;
use crate::head::StoredHead;
use crate::slice::set;
use crate::zone::CacheZone;

/// Generations that are remembered (arbitrary: a megabyte or two).
const REMEMBERED_MAX: usize = 1 << 16;

/// What a sweep knows of generations.
#[derive(Debug, Default)]
pub(super) struct Orphans {
    are_gone: HashMap<[u8; 16], bool>,
}

impl Orphans {
    /// Whether a record is that of a slice nobody will ask for.
    pub(super) fn is_one(&mut self, zone: &CacheZone, head: &[u8]) -> bool {
        let Some(generation) = set::generation(head) else {
            return false;
        };
        if let Some(is_gone) = self.are_gone.get(&generation) {
            return *is_gone;
        }
        let is_gone =
            zone.slices.in_use_of(&generation).is_none() && !has_entry(zone, head, generation);
        if self.are_gone.len() >= REMEMBERED_MAX {
            self.are_gone.clear();
        }
        self.are_gone.insert(generation, is_gone);
        is_gone
    }
}

/// Whether the entry of a slice is there, or may be.
fn has_entry(zone: &CacheZone, slice: &[u8], generation: [u8; 16]) -> bool {
    let Some(owner) = set::owner(slice).and_then(|key| zone.store.glance(&key)) else {
        return false;
    };
    let record = match owner.read() {
        Looked::Found(record) => record,
        Looked::Gone | Looked::Corrupt => return false,
        Looked::Unread => return true,
    };
    let Some(head) = StoredHead::decode(&record.head) else {
        return false;
    };
    let is_its_own = head.sliced.is_some_and(|set| set.generation == generation);
    is_its_own && zone.purges.judge(&head.subject()) != Judged::Gone
}
