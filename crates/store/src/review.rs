//! Looking at every head of a zone, to remove entries or to give them other heads.
//!
//! For whoever has marked many entries at once and wants the marks to come true. A review reads
//! each record from the disk, shard by shard in the order of the log, marks nothing used, and holds
//! no lock meanwhile; it is for a thread of its own. What is removed goes into tombstones of many
//! keys, as in a sweep.
//!
//! 1. What became visible before the review began was looked at, or is gone, if the review says
//!    that it is complete. Entries that move meanwhile are looked for again.
//! 2. An entry that was replaced since it was looked at stays.
//!
//! It does not sync: see [`Volume::sync`].

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;

use crate::disk::format::{RECORD_HEADER, ROW, Row, aligned};
use crate::disk::reader::ReadError;
use crate::disk::segment::Place;
use crate::entry::Stored;
use crate::index::{Index, Slot};
use crate::key::Key;
use crate::lock::{lock, read, write};
use crate::remove::tombstone_row;
use crate::site::Leave;
use crate::volume::{Inner, Volume};
use crate::zone::placement::Share;
/// Keys of one tombstone: a few kilobytes.
const MAX_KEYS: usize = 256;
/// Attempts to find an entry that moves while it is looked at.
const MAX_ROUNDS: usize = 4;

/// Decision of a review about an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Review {
    /// The entry stays as it is.
    Keep,
    /// The entry is removed.
    Remove,
    /// The entry gets this head.
    Head(Bytes),
    /// The review ends here.
    Stop,
}

/// Counts of a review.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reviewed {
    /// Heads that were looked at; one that moved may count twice.
    pub seen: u64,
    /// Entries removed.
    pub removed: u64,
    /// Entries with another head.
    pub changed: u64,
    /// True if every entry was looked at and what was decided was done.
    pub is_complete: bool,
}

/// Result of looking for a head.
pub(crate) enum Look {
    Seen(Arc<Stored>),
    /// The entry stands somewhere else now, or nowhere.
    Moved,
    /// The disk does not give the entry.
    Unread,
    /// The entry cannot be read by anybody.
    Corrupt,
}

impl Volume {
    /// Shows `judge` the head of each entry, and does what it says.
    pub(crate) fn review(&self, judge: &mut dyn FnMut(&Key, &Bytes) -> Review) -> Reviewed {
        let inner = &self.inner;
        let mut reviewed = Reviewed {
            // What was not loaded because the volume is being closed was not looked at.
            is_complete: inner.loading.wait(),
            ..Reviewed::default()
        };
        for position in 0..inner.index.shards().count() {
            if inner.is_closed() || !self.review_shard(inner, position, judge, &mut reviewed) {
                reviewed.is_complete = false;
                break;
            }
        }
        reviewed
    }

    /// False when the review is over.
    fn review_shard(
        &self,
        inner: &Inner,
        position: usize,
        judge: &mut dyn FnMut(&Key, &Bytes) -> Review,
        reviewed: &mut Reviewed,
    ) -> bool {
        let mut slots = inner.slots(position);
        for _ in 0..MAX_ROUNDS {
            let mut again = Vec::new();
            let mut doomed = Vec::new();
            for slot in &slots {
                let stored = match inner.look(slot) {
                    Look::Seen(stored) => stored,
                    Look::Moved => {
                        again.push(slot.key);
                        continue;
                    }
                    Look::Corrupt => continue,
                    Look::Unread => {
                        reviewed.is_complete = false;
                        continue;
                    }
                };
                reviewed.seen += 1;
                match judge(&slot.key, &stored.head) {
                    Review::Keep => {}
                    Review::Remove => doomed.push((slot.key, slot.place())),
                    Review::Head(head) => {
                        if self.rehead(inner, stored, head) {
                            reviewed.changed += 1;
                        } else {
                            again.push(slot.key);
                        }
                    }
                    Review::Stop => return false,
                }
                if doomed.len() >= MAX_KEYS {
                    let rest = (&mut again, &mut *reviewed);
                    inner.bury(position, (&mut doomed, Leave::Removed), rest);
                }
            }
            let rest = (&mut again, &mut *reviewed);
            inner.bury(position, (&mut doomed, Leave::Removed), rest);
            let shard = inner.index.shards().nth(position).map(read);
            let Some(shard) = shard.filter(|_| !again.is_empty()) else {
                return true;
            };
            let present = again.iter().filter_map(|key| shard.table.get(key));
            slots = present.collect();
        }
        reviewed.is_complete &= slots.is_empty();
        true
    }

    /// Gives an entry another head; false if it is not where it was, or cannot be written.
    fn rehead(&self, inner: &Inner, stored: Arc<Stored>, head: Bytes) -> bool {
        let flight = inner
            .index
            .shard(&stored.key)
            .flights
            .get(&stored.key)
            .cloned();
        let entry = match flight {
            Some(entry) if entry.stored.place == stored.place => Some(entry),
            _ => inner.pin(stored),
        };
        entry.is_some_and(|entry| self.replace_head(&entry, head).is_ok())
    }
}

impl Volume {
    /// Removes entries, many with one record where that can be; how many were there.
    pub(crate) fn remove_all(&self, keys: &mut dyn Iterator<Item = Key>) -> u64 {
        let inner = &self.inner;
        let mut by_shard = BTreeMap::<usize, Vec<(Key, Place)>>::new();
        for key in keys {
            if let Some(slot) = inner.index.get(&key) {
                let shard = by_shard.entry(Index::position(&key)).or_default();
                shard.push((key, slot.place()));
            }
        }
        let mut removed = Reviewed::default();
        let mut others = Vec::new();
        for (position, mut doomed) in by_shard {
            let doomed = (&mut doomed, Leave::Removed);
            inner.bury(position, doomed, (&mut others, &mut removed));
        }
        for key in &others {
            removed.removed += u64::from(self.remove(key, Leave::Removed));
        }
        removed.removed
    }
}

impl Inner {
    /// The slots of a shard, in the order of the log.
    fn slots(&self, position: usize) -> Vec<Slot> {
        let Some(shard) = self.index.shards().nth(position) else {
            return Vec::new();
        };
        let mut slots: Vec<Slot> = read(shard).table.iter().collect();
        slots.sort_unstable_by_key(|slot| (slot.place().segment, slot.place().offset));
        slots
    }

    /// Finds what is at a slot, without marking it used.
    pub(crate) fn look(&self, slot: &Slot) -> Look {
        {
            let shard = self.index.shared(&slot.key);
            let Some(now) = shard.table.get(&slot.key) else {
                return Look::Moved;
            };
            if now.place() != slot.place() {
                return Look::Moved;
            }
            if let Some(entry) = shard.flights.get(&slot.key) {
                return Look::Seen(Arc::clone(&entry.stored));
            }
        }
        match self.disk.read_entry(slot) {
            Ok(stored) => Look::Seen(Arc::new(stored)),
            Err(ReadError::Gone) => Look::Moved,
            // A look-up would find that out, too, and end it.
            Err(ReadError::Corrupt) => Look::Corrupt,
            Err(ReadError::Io(_)) => Look::Unread,
        }
    }

    /// Removes all entries whose keys are not of a share; how many. Waits until all are loaded.
    pub(crate) fn drop_strays(&self, share: &Share) -> u64 {
        self.loading.wait();
        let mut dropped = Reviewed::default();
        for position in 0..self.index.shards().count() {
            let slots = self.slots(position).into_iter();
            let strays = slots.filter(|slot| !share.has(&slot.key));
            let mut strays: Vec<_> = strays.map(|slot| (slot.key, slot.place())).collect();
            let mut others = Vec::new();
            let strays = (&mut strays, Leave::Moved);
            self.bury(position, strays, (&mut others, &mut dropped));
            for key in &others {
                // There is no room for a tombstone of many, or the entry has just moved.
                let _open = read(&self.slow_close_lock);
                dropped.removed += u64::from(!self.is_closed() && self.remove(key, Leave::Moved));
            }
        }
        dropped.removed
    }

    /// Removes entries of a shard that stand where they were; the others are to be looked at again.
    fn bury(
        &self,
        position: usize,
        (doomed, why): (&mut Vec<(Key, Place)>, Leave),
        (again, reviewed): (&mut Vec<Key>, &mut Reviewed),
    ) {
        let doomed = std::mem::take(doomed);
        let limit = self.disk.record_limit();
        let limit = limit.saturating_sub(u64::from(RECORD_HEADER) + 16);
        let most = ((limit / u64::from(ROW + 16)) as usize).clamp(1, MAX_KEYS);
        for batch in doomed.chunks(most) {
            let (buried, is_written) = self.bury_batch(position, batch, why);
            let keys = batch.iter().map(|(key, _)| *key);
            again.extend(keys.filter(|key| !buried.contains(key)));
            reviewed.removed += buried.len() as u64;
            reviewed.is_complete &= is_written;
        }
    }

    /// Buries a batch; returns the keys that are gone, and true if that is written.
    fn bury_batch(&self, position: usize, batch: &[(Key, Place)], why: Leave) -> (Vec<Key>, bool) {
        let _open = read(&self.slow_close_lock);
        let Some(shard) = self
            .index
            .shards()
            .nth(position)
            .filter(|_| !self.is_closed())
        else {
            return (Vec::new(), false);
        };
        for _ in 0..2 {
            let mut shard = write(shard);
            let stays = |(key, place): &&(Key, Place)| {
                shard
                    .table
                    .get(key)
                    .is_some_and(|slot| slot.place() == *place)
            };
            let keys: Vec<Key> = batch.iter().filter(stays).map(|(key, _)| *key).collect();
            if keys.is_empty() {
                return (keys, true);
            }
            let size = aligned(u64::from(RECORD_HEADER) + 16 * keys.len() as u64) as u32;
            let mut rows: Vec<Row> = keys.iter().map(|key| tombstone_row(*key, size)).collect();
            let reserved = lock(&self.disk.log).reserve_record(size, &mut rows);
            if let Ok(place) = reserved {
                for key in &keys {
                    shard.remove(key, why);
                }
                drop(shard);
                let tombstone = self.tombstone(place, Key([0; 16]), &keys);
                let is_written = self.write_record(place, &[tombstone]);
                self.end_reservation(place.segment);
                keys.iter().for_each(|key| self.health.note(*key));
                return (keys, is_written);
            }
            drop(shard);
            let rows_len = rows.iter().map(Row::encoded_len).sum();
            if self.make_room(size, rows_len).is_err() {
                break;
            }
        }
        (Vec::new(), false)
    }
}
