//! Slices whose entry is gone: nobody asks for them, and they are not to count for their site.
//!
//! ```text
//!   entry leaves the store ─────► its head ──► SliceSet ─┐
//!   version is opened, or made ahead of a fill, ─────────┤
//!   and no entry has it                                  ▼
//!                                        leaving ──► in use: later
//!                                                └─► an entry has it: no matter
//!                                                └─► its slices are removed
//! ```
//!
//! Where it is not known what left (after a crash, or when a disk was lost), the records of all
//! slices are looked at: each names its entry and the generation of that. One whose generation is
//! read or fetched at the moment is left alone: its readers may go on with what is held.
//!
//! 1. An entry is stored before its slices, so a slice that was seen before its entry is missing is
//!    an orphan for good.
//! 2. A generation that is in use and has no entry is among those that leave.
//! 3. What is remembered is bounded; beyond it records are read again.

use std::collections::HashMap;
use std::ops::ControlFlow;

use millpond_store::{Key, Looked};

use crate::head::set;
use crate::head::{SliceSet, StoredHead};
use crate::purge::Judged;
use crate::slice::SLICES_MAX;
use crate::zone::CacheZone;

/// Generations that are remembered (arbitrary: a megabyte or two).
const REMEMBERED_MAX: usize = 1 << 16;
/// Slices that are removed together (arbitrary).
const AT_ONCE: usize = 1024;

/// Treatment of the readers of removed entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Readers {
    /// The readers may go on; what they read stays.
    Stay,
    /// The zone is let go: they find nothing any more either way.
    Part,
}

/// Findings of a sweep about generations.
#[derive(Debug, Default)]
pub(super) struct Orphans {
    are_gone: HashMap<[u8; 16], bool>,
}

impl Orphans {
    /// True if a record is that of a slice nobody will ask for.
    pub(super) fn is_one(&mut self, zone: &CacheZone, head: &[u8]) -> bool {
        let (Some(generation), Some(owner)) = (set::generation(head), set::owner(head)) else {
            return false;
        };
        if let Some(is_gone) = self.are_gone.get(&generation) {
            return *is_gone;
        }
        let is_gone = !zone.has_generation(&owner, generation)
            && match zone.slices.in_use_of(&generation) {
                Some(used) => {
                    // INVARIANT 2.
                    zone.slices.note_leaving(owner, used.set);
                    false
                }
                None => true,
            };
        if self.are_gone.len() >= REMEMBERED_MAX {
            self.are_gone.clear();
        }
        self.are_gone.insert(generation, is_gone);
        is_gone
    }
}

impl CacheZone {
    /// Removes slices whose entries have left; how many. To be called every second or so by one
    /// thread; waits for the disk.
    pub fn sweep_orphans(&self, readers: Readers) -> u64 {
        // What is not known yet cannot be missed.
        if self.store.is_loading() {
            return 0;
        }
        // INVARIANT 1: before anything is looked for.
        let left = self.store.take_removed_heads();
        if left.is_partial {
            self.slices.note_unknown();
        }
        let sets = self.slices.take_leaving();
        let heads = left.heads.into_iter().filter_map(|(key, head)| {
            let sliced = StoredHead::decode(&head)?.sliced?;
            Some((key, sliced))
        });
        let mut removed = 0;
        for (owner, set) in sets.into_iter().chain(heads) {
            if self.has_generation(&owner, set.generation) {
                continue;
            }
            let is_used = || self.slices.in_use_of(&set.generation).is_some();
            if readers == Readers::Stay && is_used() {
                self.slices.note_leaving(owner, set);
            } else {
                removed += self.remove_slices(set);
            }
        }
        removed
    }

    /// Looks for slices whose entries are gone among all records of slices, and removes them, if
    /// there may be some that nobody was told of: how many. For the thread that sweeps.
    pub fn review_orphans(&self, is_over: &dyn Fn() -> bool) -> Option<u64> {
        let is_due = !self.store.is_loading() && self.slices.take_unknown();
        is_due.then(|| self.review_slices(is_over))
    }

    fn remove_slices(&self, set: SliceSet) -> u64 {
        let count = set.count().min(SLICES_MAX);
        let mut removed = 0;
        let mut keys = Vec::new();
        for index in 0..count {
            keys.push(set.key(self.keys(), index));
            if keys.len() >= AT_ONCE || index + 1 == count {
                removed += self.store.remove_all(&keys);
                keys.clear();
            }
        }
        removed
    }

    fn review_slices(&self, is_over: &dyn Fn() -> bool) -> u64 {
        let mut orphans = Orphans::default();
        let (mut doomed, mut removed) = (Vec::new(), 0);
        let shown = self.store.inspect(&mut |glance| {
            if is_over() {
                return ControlFlow::Break(());
            }
            if glance.summary().is_slice
                && let Looked::Found(record) = glance.read()
                && orphans.is_one(self, &record.head)
            {
                doomed.push(*glance.key());
            }
            if doomed.len() >= AT_ONCE {
                removed += self.store.remove_all(&doomed);
                doomed.clear();
            }
            ControlFlow::Continue(())
        });
        if shown.is_break() {
            self.slices.note_unknown();
        }
        removed + self.store.remove_all(&doomed)
    }

    /// True if the entry of a key is there, or may be, with this generation of its body.
    fn has_generation(&self, owner: &Key, generation: [u8; 16]) -> bool {
        let Some(owner) = self.store.glance(owner) else {
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
        is_its_own && self.purges.judge(&head.subject()) != Judged::Gone
    }
}
