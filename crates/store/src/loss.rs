//! Segments of which a sync failed.
//!
//! ```text
//!   sync fails ──► lost: nothing is sent from its file, nothing is reserved there
//!                    └──► out of the log and of the index; its file is let go
//!                           └──► tombstones of its keys, in another segment ──► as if never been
//! ```
//!
//! When a sync fails, Linux may have dropped the pages that it could not write, and marks those
//! that it keeps as written: the next sync of the file succeeds and proves nothing. Where an extent
//! was allocated and never written, zeros are read. What this process compares today may stand in
//! the page cache and nowhere else, so no comparison holds for longer than until the kernel takes
//! the page. So nothing of such a segment is compared: all of it goes, with every entry that needs
//! a slice of it.
//!
//! 1. From the failed sync on nothing is handed out of the file: who reads it already gets an error
//!    with the next window that he asks for. Heads and small bodies are compared with a checksum
//!    each time that they are read, so they were never in doubt.
//! 2. A segment that is lost is not written to, nor synced, nor given a summary any more.
//! 3. What stood in the segment had replaced or removed something: each of its keys that has
//!    nothing newer gets a tombstone elsewhere. Until that is synced a sync of the zone says that
//!    not all is.
//! 4. The rows of a segment stay in memory until it was synced with its summary, so that its keys
//!    are known here though its file says nothing.
//! 5. A disk that loses segment after segment is given up where there are others. A lone one takes
//!    nothing for a while; then it is tried again.
//! 6. A device that runs out of space may call a write done of which it took the first half (Linux'
//!    loop device does). So what was written shortly before is compared with its checksums, read
//!    from the device and not from the page cache.
//! 7. A process that died, or whose disk let it neither remove nor rename a file, leaves a segment
//!    of which nobody knows that a sync of it failed. So the next one that opens the zone after an
//!    unclean stop has the kernel forget what it holds of segments that were never synced with
//!    their summary, but for what is still to be written: it reads what is on the device.
//!
//! A write that fails is another matter: it leaves only its own bytes unknown, and makes no entry
//! (`disk::writer`, invariant 3). What came of the others in its segment the next sync says.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use crate::admit::NotStored;
use crate::disk::format::{Kind, RECORD_HEADER, ROW, Row, aligned};
use crate::disk::segment::{Load, Place, Segment, file_cost};
use crate::health::Endured;
use crate::index::{Index, Slot};
use crate::key::Key;
use crate::live::Lost;
use crate::lock::{lock, read, write};
use crate::remove::tombstone_row;
use crate::site::Leave;
use crate::verify::{Care, Compared};
use crate::volume::{Event, Inner};

/// Keys of one tombstone: a few kilobytes.
const MAX_KEYS: usize = 256;
/// Attempts of a tombstone, each of which may find its segment taken by others.
const MAX_ATTEMPTS: usize = 4;

/// Number of segments before a lost one that are compared. Arbitrary: what a device was given
/// together is at most a few megabytes, and the one before may be nearly empty.
const NEIGHBOURS: usize = 2;

/// Keys in a segment that is lost, by shards of the index.
type Doomed = BTreeMap<usize, Vec<Key>>;

impl Inner {
    /// INVARIANTS 1 and 2, at once, for a segment of which a sync failed.
    pub(crate) fn note_lost(&self, id: u32) {
        if let Some(file) = self.disk.file(id) {
            file.lose();
        }
        let mut log = lock(&self.disk.log);
        if log.active == id {
            log.close_active();
        }
        if let Some(segment) = log.segments.get_mut(&id) {
            segment.is_lost = true;
        }
    }

    /// Lets all segments go that are lost; waits for the disk. The caller lets nobody else do it.
    pub(crate) fn drop_lost(&self) {
        let lost: Vec<u32> = {
            let log = lock(&self.disk.log);
            // INVARIANT 2 of `load`.
            let may_go = |segment: &Segment| segment.is_lost && segment.load != Load::Running;
            let lost = log.segments.iter().filter(|(_, it)| may_go(it));
            lost.map(|(id, _)| *id).collect()
        };
        for id in lost {
            let doomed = self.take_lost(id);
            self.endure();
            // What another process has by now is not written to.
            if !self.is_shut() {
                self.bury_doomed(id, doomed);
                self.compare_neighbours(id);
            }
        }
    }

    /// Takes a segment out of the log, and out of the index what needs it.
    fn take_lost(&self, id: u32) -> Doomed {
        let _turn = lock(&self.disk.turning);
        let Some(segment) = lock(&self.disk.log).remove(id) else {
            return Doomed::new();
        };
        for fill in segment.fills.iter().filter_map(std::sync::Weak::upgrade) {
            fill.fail(NotStored::Disk);
        }
        let file = write(&self.disk.files).remove(&id);
        let mut entries = 0;
        for one in segment.dependents.iter() {
            let slot = self.index.dependent(one);
            let removed = slot.and_then(|slot| self.remove_lost(&slot.key, slot.place()));
            entries += u64::from(removed.is_some());
        }
        let rows = match segment.rows.decode() {
            // INVARIANT 4.
            Some(rows) if !rows.is_empty() => Some(rows),
            _ => self.rows(id, &segment, file.as_deref()),
        };
        // INVARIANT 4 of `live`.
        let is_buried = rows.is_some() && !self.is_shut();
        lock(&self.disk.log).lost.push(Lost { id, is_buried });
        let rows = rows.unwrap_or_else(|| self.rows_of_index(id));
        let mut doomed = Doomed::new();
        for row in &rows {
            let place = Place {
                segment: id,
                offset: row.offset,
                size: row.size,
            };
            if row.kind == Kind::Entry {
                entries += u64::from(self.remove_lost(&row.key, place).is_some());
            }
            let shard = doomed.entry(Index::position(&row.key)).or_default();
            shard.push(row.key);
        }
        if let Some(file) = file {
            self.retire(id, file, file_cost(segment.size));
        }
        self.counters.lost.fetch_add(entries, Ordering::Relaxed);
        self.counters.lost_segments.fetch_add(1, Ordering::Relaxed);
        let dir = self.disk.dir.display().to_string();
        self.report(&Event::SegmentLost {
            dir,
            segment: id,
            entries,
        });
        doomed
    }

    fn remove_lost(&self, key: &Key, place: Place) -> Option<Slot> {
        self.index.remove_at(key, place, Leave::Lost)
    }

    /// Rows for what the index knows of a segment whose summary cannot be read.
    fn rows_of_index(&self, id: u32) -> Vec<Row> {
        let mut rows = Vec::new();
        for shard in self.index.shards() {
            let shard = read(shard);
            let inside = shard.table.iter().filter(|slot| slot.place().segment == id);
            rows.extend(inside.map(|slot| Row {
                kind: Kind::Entry,
                offset: slot.place().offset,
                ..tombstone_row(slot.key, slot.place().size)
            }));
        }
        rows
    }

    /// INVARIANT 3.
    fn bury_doomed(&self, id: u32, doomed: Doomed) {
        let limit = self.disk.record_limit();
        let limit = limit.saturating_sub(u64::from(RECORD_HEADER) + 16);
        let most = ((limit / u64::from(ROW + 16)) as usize).clamp(1, MAX_KEYS);
        for (position, mut keys) in doomed {
            keys.sort_unstable_by_key(|key| key.0);
            keys.dedup();
            for batch in keys.chunks(most) {
                self.bury_lost(id, position, batch);
            }
        }
    }

    /// Writes the tombstone of those of some keys, all of one shard, that have nothing newer.
    fn bury_lost(&self, id: u32, position: usize, batch: &[Key]) {
        let Some(shard) = self.index.shards().nth(position) else {
            return;
        };
        let mut keys = batch.to_vec();
        // A disk that rests would lose the tombstone, and be given another one for that.
        let attempts = if self.rests() { 0 } else { MAX_ATTEMPTS };
        for _ in 0..attempts {
            let mut shard = write(shard);
            let is_newer = |key: &Key| {
                let slot = shard.table.get(key);
                slot.is_some_and(|slot| slot.place().segment > id)
            };
            keys = batch.iter().filter(|key| !is_newer(key)).copied().collect();
            if keys.is_empty() {
                return;
            }
            let size = aligned(u64::from(RECORD_HEADER) + 16 * keys.len() as u64) as u32;
            let mut rows: Vec<Row> = keys.iter().map(|key| tombstone_row(*key, size)).collect();
            let reserved = lock(&self.disk.log).reserve_record(size, &mut rows);
            if let Ok(place) = reserved {
                for key in &keys {
                    // A grave, as long as older ones may still be loaded.
                    shard.remove(key, Leave::Lost);
                }
                drop(shard);
                let tombstone = self.tombstone(place, Key([0; 16]), &keys);
                let is_written = self.write_record(place, &[tombstone]);
                self.end_reservation(place.segment);
                keys.iter().for_each(|key| self.health.note(*key));
                if is_written {
                    return;
                }
                break;
            }
            drop(shard);
            let rows_len = rows.iter().map(Row::encoded_len).sum();
            if self.make_room(size, rows_len).is_err() {
                break;
            }
        }
        // INVARIANT 3 of `remove`: each sweep tries again.
        let mut pending_tombstones = lock(&self.pending_tombstones);
        keys.into_iter().for_each(|key| pending_tombstones.add(key));
    }

    /// INVARIANT 6.
    fn compare_neighbours(&self, id: u32) {
        let before: Vec<(u32, u32)> = {
            let log = lock(&self.disk.log);
            let older = log.segments.range(..id).rev();
            let known = older.filter(|(_, it)| it.load == Load::Loaded && !it.is_lost);
            let sizes = known.map(|(id, segment)| (*id, segment.size));
            sizes.take(NEIGHBOURS).collect()
        };
        for (id, size) in before {
            let Some(file) = self.disk.file(id) else {
                continue;
            };
            file.forget(0..u64::from(size));
            for key in self.keys_that_need(id) {
                let slot = self.index.get(&key).filter(Slot::is_sliced);
                let compared =
                    slot.map(|slot| (self.compare(&slot, Care::None, &mut |_| true), slot));
                if let Some((Compared::Corrupt, slot)) = compared {
                    self.drop_corrupt(&slot.key, slot.place());
                }
            }
        }
    }

    /// The keys of entries with a record or a slice in a segment, as far as that is known.
    fn keys_that_need(&self, id: u32) -> Vec<Key> {
        let (dependents, rows, size) = {
            let log = lock(&self.disk.log);
            let Some(segment) = log.segments.get(&id) else {
                return Vec::new();
            };
            let dependents: Vec<_> = segment.dependents.iter().collect();
            (dependents, segment.rows.decode(), segment.size)
        };
        let rows = match (rows, self.disk.file(id)) {
            (Some(rows), Some(file)) if rows.is_empty() => {
                let found = self.disk.read_summary(id, &file, size);
                found.ok().flatten().map(|found| found.rows)
            }
            (rows, _) => rows,
        };
        let rows = rows.unwrap_or_else(|| self.rows_of_index(id));
        let slots = dependents
            .into_iter()
            .filter_map(|one| self.index.dependent(one));
        let keys = slots.map(|slot| slot.key);
        keys.chain(rows.into_iter().map(|row| row.key)).collect()
    }

    /// Writes the tombstones down that wait, whether or not the disk rests, before the directory is
    /// let go: without them the next start takes all that is older for doubtful.
    pub(crate) fn settle_lost(&self) {
        let has_lost = !lock(&self.disk.log).lost.is_empty();
        if has_lost && self.is_found_in() {
            self.health.end_rest();
            self.retry();
            // What the disk refuses it refuses; the next start sees to it.
            let _ = self.bury_again();
        }
    }

    /// True if nothing is to be stored, because what was stored lately was lost.
    pub(crate) fn rests(&self) -> bool {
        self.health.rests(|| self.clock.now())
    }

    /// INVARIANT 5.
    fn endure(&self) {
        if self.health.lost_segment(self.clock.now()) == Endured::Rests {
            let dir = self.disk.dir.display().to_string();
            self.report(&Event::Resting { dir });
        }
    }
}
