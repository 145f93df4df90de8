//! Making space and sweeping: new segments, eviction, inactivity, `min_free`.
//!
//! A caller that finds no room in the active segment closes it and plans the next one, which is a
//! number in memory: no worker waits for a disk. Whoever writes to it first, as a rule the disk
//! thread, creates its file, and evicts the oldest segment where the limit demands it. So a plan is
//! made only if, as things stand, there will be room. One thread at a time creates and evicts.
//!
//! 1. Segments are evicted in the order in which they came (`disk::segment`, invariant 2). The
//!    oldest one stays, and with it all, while it holds writes that were not made, or slices of a
//!    fill that began less than a minute ago: then the store is full, and the caller goes on
//!    without it. Older fills are stopped, because the whole log turned while they ran.
//! 2. A segment that is read is renamed and counts until its last reader is gone.
//! 3. What inactivity removed is in the log as a tombstone, so it does not come back.
//!
//! What keeps entries in use through eviction is in `rewrite`.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, Weak};

use bytes::Bytes;

use crate::admit::NotStored;
use crate::disk::format::{Kind, RECORD_HEADER, ROW, Row, SegmentHeader, aligned};
use crate::disk::io::File;
use crate::disk::ready::SegmentFile;
use crate::disk::segment::{Load, Log, Place, Retired, Segment, file_cost};
use crate::disk::writer::Job;
use crate::fill::Fill;
use crate::health::Tried;
use crate::key::Key;
use crate::lock::{lock, write};
use crate::remove::tombstone_row;
use crate::site::Leave;
use crate::volume::{Event, Inner};

/// Keys of one tombstone: a few kilobytes.
const MAX_TOMBSTONE_KEYS: usize = 256;
/// Segments that one sweep evicts for `min_free`; the next sweep goes on.
const MAX_SWEPT_SEGMENTS: usize = 8;
/// Tombstones that one sweep writes for one shard; the next sweep goes on.
const MAX_BATCHES: usize = 4096;

/// A fill that has run for so long does not stop the log from turning. Arbitrary: the default of
/// `proxy_read_timeout`, within which a stalled origin is given up anyway.
const SLOW_FILL_MS: u64 = 60_000;

/// What a sweep did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Swept {
    /// Entries removed for inactivity.
    pub expired: u64,
    /// Entries removed for space.
    pub evicted: u64,
    /// Segments evicted.
    pub segments: u64,
}

/// What came of trying to evict the oldest segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Eviction {
    /// It is gone, or will be when its readers are; so many entries went with it.
    Done(u64),
    /// Its bytes are not written yet.
    Busy,
    /// A running fill has slices there.
    InUse,
    /// There is no segment to evict.
    Nothing,
}

/// What came of trying to create a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Creation {
    Done,
    NoSpace,
    Failed,
}

/// Whether nobody reads a segment that is on its way out: the table has no such file, so a count
/// of one stays one.
fn is_idle(retired: &Retired) -> bool {
    Arc::strong_count(&retired.file) == 1
}

/// Held while a file is allocated on a file system of which `min_free` is to stay.
fn alone_on(device: u64) -> Arc<Mutex<()>> {
    static DEVICES: Mutex<BTreeMap<u64, Arc<Mutex<()>>>> = Mutex::new(BTreeMap::new());
    Arc::clone(lock(&DEVICES).entry(device).or_default())
}

impl Inner {
    /// Removes what is inactive and keeps the space within its limits.
    pub(crate) fn sweep(&self) -> Swept {
        let mut swept = Swept::default();
        {
            let _turn = lock(&self.disk.turning);
            self.unlink_retired();
        }
        self.trim();
        self.load_again();
        self.prune_dependents();
        swept.expired = self.sweep_inactive();
        self.sweep_uses();
        self.sweep_min_free(&mut swept);
        self.retry();
        self.bury_again();
        swept
    }

    /// Sees to it that the active segment has room for a record and its rows. Never waits for the
    /// disk: of a new segment it only makes the plan.
    pub(crate) fn make_room(&self, size: u32, rows_len: u32) -> Result<(), NotStored> {
        if u64::from(size) + u64::from(rows_len) > self.disk.record_limit() {
            return Err(NotStored::TooLarge);
        }
        let mut log = lock(&self.disk.log);
        if log.has_room(size, rows_len) {
            return Ok(());
        }
        let closed = log.close_active();
        let planned = self.may_plan(&log).inspect(|_| {
            log.plan_segment();
        });
        drop(log);
        if let Some(closed) = closed {
            self.disk.queue.push(Job::Seal(closed));
        }
        match planned {
            Ok(must_evict) => {
                self.order_turn();
                // Where nothing is evicted ahead, it is the next file that something goes for.
                self.is_full.fetch_or(must_evict, Ordering::Relaxed);
                Ok(())
            }
            Err(why) => {
                self.order_retry();
                Err(why)
            }
        }
    }

    /// Whether another segment may be planned, and whether something must be evicted for its file.
    /// Only what could be evicted now counts.
    fn may_plan(&self, log: &Log) -> Result<bool, NotStored> {
        if log.plan.segment_size == 0 {
            return Err(NotStored::Disk);
        }
        if let Some(why) = log.refusal {
            return Err(why);
        }
        let shortage = log.shortage();
        let idle = log.retired.iter().filter(|it| is_idle(it));
        let idle: u64 = idle.map(|retired| retired.cost).sum();
        let aside: u64 = log.set_aside.iter().map(|(_, cost)| cost).sum();
        let mut missing = shortage.saturating_sub(idle + aside);
        // INVARIANT 1.
        let mut oldest_first = log.segments.values();
        while missing > 0 {
            let segment = oldest_first.next().ok_or(NotStored::Disk)?;
            if segment.open > 0 || segment.load == Load::Running {
                return Err(NotStored::QueueFull);
            }
            if self.slow_fills(segment).1 {
                return Err(NotStored::Full);
            }
            missing = missing.saturating_sub(file_cost(segment.size));
        }
        Ok(shortage > 0)
    }

    /// Has it tried whether a file can be created again.
    fn order_retry(&self) {
        let is_refused = lock(&self.disk.log).refusal.is_some();
        if is_refused && !self.is_retry_queued.swap(true, Ordering::AcqRel) {
            self.disk.queue.push(Job::Retry);
        }
    }

    /// Tries whether a file can be created again.
    pub(crate) fn retry(&self) {
        self.is_retry_queued.store(false, Ordering::Release);
        let (closed, planned) = {
            let mut log = lock(&self.disk.log);
            let is_wanted = log.refusal.take().is_some() && log.plan.segment_size > 0;
            if !is_wanted || self.is_closed() {
                return;
            }
            (log.close_active(), log.plan_segment())
        };
        let is_created = self.file_to_write(planned).is_some();
        let unwanted = (!is_created).then_some(planned);
        for id in closed.into_iter().chain(unwanted) {
            self.disk.queue.push(Job::Seal(id));
        }
    }

    /// The file of a segment that is about to be written to, created if it was only planned; waits
    /// for the disk. What must go for it is evicted.
    pub(crate) fn file_to_write(&self, id: u32) -> Option<Arc<SegmentFile>> {
        self.disk.file(id).or_else(|| {
            let _turn = lock(&self.disk.turning);
            self.create_planned(id)
        })
    }

    /// As [`Self::file_to_write`], for who has the turn.
    pub(crate) fn create_planned(&self, id: u32) -> Option<Arc<SegmentFile>> {
        if let Some(file) = self.disk.file(id) {
            return Some(file);
        }
        let mut has_evicted = false;
        loop {
            // It was told why, and is tried again by a retry.
            let charged = {
                let mut log = lock(&self.disk.log);
                let may_try = log.refusal.is_none();
                may_try.then(|| log.charge_planned(id)).flatten()?
            };
            let created = charged.map_or(Creation::NoSpace, |size| self.create_segment(id, size));
            if created == Creation::Done {
                self.is_full.fetch_or(has_evicted, Ordering::Relaxed);
                return self.disk.file(id);
            }
            if self.unlink_retired() || self.unlink_set_aside() {
                continue;
            }
            // Each round evicts a segment, so the loop ends.
            let why = match (self.evict_oldest(), created) {
                (Eviction::Done(_), _) => {
                    has_evicted = true;
                    continue;
                }
                (_, Creation::Failed) | (Eviction::Nothing, _) => NotStored::Disk,
                (Eviction::Busy, _) => NotStored::QueueFull,
                (Eviction::InUse, _) => NotStored::Full,
            };
            lock(&self.disk.log).refuse(id, why);
            return None;
        }
    }

    /// Counts the file of a journal against the limit, and makes space for it.
    pub(crate) fn make_file_room(&self, cost: u64) -> io::Result<()> {
        let _turn = lock(&self.disk.turning);
        loop {
            {
                let mut log = lock(&self.disk.log);
                if log.charge(cost) {
                    log.journal_bytes += cost;
                    return Ok(());
                }
            }
            if self.unlink_retired() || self.unlink_set_aside() {
                continue;
            }
            // Each round evicts a segment, so the loop ends.
            match self.evict_oldest() {
                Eviction::Done(_) => {}
                // Only the active segment is left; without it the next round finds it.
                Eviction::Nothing if lock(&self.disk.log).active != 0 => {
                    lock(&self.disk.log).close_active();
                }
                _ => return Err(io::ErrorKind::StorageFull.into()),
            }
        }
    }

    /// Evicts segments until the files are within the limit. For a limit that was lowered.
    pub(crate) fn trim(&self) {
        let _turn = lock(&self.disk.turning);
        while lock(&self.disk.log).excess() > 0 {
            if self.unlink_set_aside() {
                continue;
            }
            match self.evict_oldest() {
                Eviction::Done(_) => {}
                // Only the active segment is left; without it the next round finds it.
                Eviction::Nothing if lock(&self.disk.log).active != 0 => {
                    lock(&self.disk.log).close_active();
                }
                _ => return,
            }
        }
    }

    /// Evicts a segment if it still is the oldest one.
    pub(crate) fn evict_if_oldest(&self, id: u32) {
        let _turn = lock(&self.disk.turning);
        // Whoever has the directory now has its segments, too.
        if self.is_shut() {
            return;
        }
        let oldest = lock(&self.disk.log).segments.keys().next().copied();
        if oldest == Some(id) {
            self.evict_oldest();
        }
    }

    fn create_segment(&self, id: u32, size: u32) -> Creation {
        self.clear_name(&self.disk.segment_path(id));
        match self.create_file(id, size) {
            Ok(()) => {
                lock(&self.disk.log).has_created(id);
                self.health.set_full(false);
                Creation::Done
            }
            Err(error) => {
                self.discard(self.disk.segment_path(id), file_cost(size));
                if error.kind() == io::ErrorKind::StorageFull {
                    self.health.set_full(true);
                    return Creation::NoSpace;
                }
                self.health.met(&error, Tried::Create);
                self.counters.write_failed();
                self.report(&Event::WriteFailed(error.to_string()));
                Creation::Failed
            }
        }
    }

    /// Removes what is left of an attempt to create a file, as far as the disk lets it be removed.
    fn clear_name(&self, path: &Path) {
        let left = {
            let mut log = lock(&self.disk.log);
            let position = log.set_aside.iter().position(|(left, _)| left == path);
            position.map(|position| log.set_aside.swap_remove(position))
        };
        if let Some((path, cost)) = left {
            self.discard(path, cost);
        }
    }

    fn create_file(&self, id: u32, size: u32) -> io::Result<()> {
        let min_free = self.limits.min_free();
        let device = (min_free > 0).then(|| self.disk.io.device(&self.disk.dir));
        let alone = device.flatten().map(alone_on);
        // What is free for one zone is not free for another one by the time that it is taken.
        let _alone = alone.as_ref().map(|alone| lock(alone));
        if min_free > 0 {
            let available = self.disk.io.available(&self.disk.dir)?;
            if available < min_free.saturating_add(u64::from(size)) {
                return Err(io::ErrorKind::StorageFull.into());
            }
        }
        let path = self.disk.segment_path(id);
        let file = self.disk.io.create(&path, u64::from(size))?;
        self.disk.has_new_names.store(true, Ordering::Release);
        let header = SegmentHeader {
            segment: id,
            size,
            created_ms: self.clock.now(),
        };
        let block = Bytes::from(header.encode(&self.disk.uuid, self.disk.seed));
        self.disk.io.write_at(&file, &[block], 0)?;
        self.disk.add_file(id, file);
        Ok(())
    }

    /// INVARIANT 1. The caller holds the turn.
    fn evict_oldest(&self) -> Eviction {
        if self.is_stuck() {
            return Eviction::Busy;
        }
        let stopped;
        let (id, segment) = {
            let mut log = lock(&self.disk.log);
            let active = log.active;
            let oldest = log.segments.iter().find(|(id, _)| **id != active);
            let Some((&id, segment)) = oldest else {
                return Eviction::Nothing;
            };
            // INVARIANT 2 of `load`.
            if segment.open > 0 || segment.load == Load::Running {
                return Eviction::Busy;
            }
            let (slow, others) = self.slow_fills(segment);
            if others {
                return Eviction::InUse;
            }
            stopped = slow;
            let Some(segment) = log.remove(id) else {
                return Eviction::Nothing;
            };
            if log.turned.take_if(|turned| turned.segment == id).is_some() {
                self.counters.hasty.fetch_add(1, Ordering::Relaxed);
            }
            (id, segment)
        };
        for fill in stopped {
            fill.fail(NotStored::Full);
        }
        let file = write(&self.disk.files).remove(&id);
        let evicted = self.drop_entries(id, &segment, file.as_ref().map(|file| &***file));
        self.counters.evicted.fetch_add(evicted, Ordering::Relaxed);
        match file {
            Some(file) => self.retire(id, file, file_cost(segment.size)),
            None if segment.is_planned => {}
            // It could never be opened.
            None => self.discard(self.disk.segment_path(id), file_cost(segment.size)),
        }
        Eviction::Done(evicted)
    }

    /// The fills of a segment that may be stopped, and whether there are others.
    fn slow_fills(&self, segment: &Segment) -> (Vec<Arc<Fill>>, bool) {
        let now = self.clock.now();
        let fills = segment.fills.iter().filter_map(Weak::upgrade);
        let is_slow = |fill: &Arc<Fill>| now.saturating_sub(fill.began_ms) >= SLOW_FILL_MS;
        let (slow, others): (Vec<_>, Vec<_>) = fills.partition(is_slow);
        (slow, !others.is_empty())
    }

    /// Takes everything out of the index that needs a segment.
    fn drop_entries(&self, id: u32, segment: &Segment, file: Option<&File>) -> u64 {
        let mut dropped = 0;
        let dependents = segment.dependents.iter();
        for slot in dependents.filter_map(|one| self.index.dependent(one)) {
            // Nothing, if another one has come in its place meanwhile.
            let removed = self
                .index
                .remove_at(&slot.key, slot.place(), Leave::Evicted);
            dropped += u64::from(removed.is_some());
        }
        match self.rows(id, segment, file) {
            Some(rows) => {
                for row in rows.iter().filter(|row| row.kind == Kind::Entry) {
                    let place = Place {
                        segment: id,
                        offset: row.offset,
                        size: row.size,
                    };
                    let removed = self.index.remove_at(&row.key, place, Leave::Evicted);
                    dropped += u64::from(removed.is_some());
                }
            }
            None => dropped += self.drop_all_in(id),
        }
        self.save_gone(id, file);
        dropped
    }

    /// Forgets records that need other segments and were replaced.
    fn prune_dependents(&self) {
        // Before, what counts may not be known yet.
        if !self.loading.is_done() {
            return;
        }
        let grown: Vec<u32> = {
            let log = lock(&self.disk.log);
            let segments = log.segments.iter();
            let grown = segments.filter(|(_, segment)| segment.dependents.are_to_prune());
            grown.map(|(id, _)| *id).collect()
        };
        for id in grown {
            let copy = |log: &Log| -> Option<Vec<_>> {
                let segment = log.segments.get(&id)?;
                Some(segment.dependents.iter().collect())
            };
            let Some(mut all) = copy(&lock(&self.disk.log)) else {
                continue;
            };
            let seen = all.len();
            // A record that is being published has its shard until it is in the index.
            all.retain(|dependent| self.index.dependent(*dependent).is_some());
            if let Some(segment) = lock(&self.disk.log).segments.get_mut(&id) {
                segment.dependents.prune(seen, all);
            }
        }
    }

    /// The summary rows of a segment; `None` if they cannot be read.
    pub(crate) fn rows(&self, id: u32, segment: &Segment, file: Option<&File>) -> Option<Vec<Row>> {
        if segment.is_sealed {
            let found = self.disk.read_summary(id, file?, segment.size);
            return Some(found.ok()??.rows);
        }
        Row::decode_all(&segment.rows)
    }

    /// Looks through the whole index, for a segment whose summary cannot be read.
    fn drop_all_in(&self, id: u32) -> u64 {
        let mut dropped = 0;
        for shard in self.index.shards() {
            let mut shard = write(shard);
            let in_segment = shard.table.iter().filter(|slot| slot.place().segment == id);
            let keys: Vec<Key> = in_segment.map(|slot| slot.key).collect();
            for key in &keys {
                shard.remove(key, Leave::Evicted);
            }
            dropped += keys.len() as u64;
        }
        dropped
    }

    /// Lets the file of an evicted segment go, once nobody reads it.
    fn retire(&self, id: u32, file: Arc<SegmentFile>, cost: u64) {
        let path = self.disk.segment_path(id);
        lock(&self.disk.log).retired.push(Retired {
            segment: id,
            file,
            path,
            cost,
        });
        self.unlink_retired();
    }

    /// Gives a segment that is still read a name that nobody loads it by.
    fn rename_retired(&self, retired: &mut Retired) {
        let path = self.disk.retired_path(retired.segment);
        if retired.path != path && self.disk.io.rename(&retired.path, &path).is_ok() {
            self.disk.has_new_names.store(true, Ordering::Release);
            retired.path = path;
        }
    }

    /// Whether an evicted segment would be loaded again at the next start, because the disk lets it
    /// neither be removed nor renamed. Until it does no newer one may go: INVARIANT 1.
    fn is_stuck(&self) -> bool {
        let may_return =
            |retired: &Retired| retired.path == self.disk.segment_path(retired.segment);
        if !lock(&self.disk.log).retired.iter().any(may_return) {
            return false;
        }
        self.unlink_retired();
        lock(&self.disk.log).retired.iter().any(may_return)
    }

    /// Unlinks what nobody reads any more, and renames what is read. True if that made space.
    pub(crate) fn unlink_retired(&self) -> bool {
        let (free, held): (Vec<_>, Vec<_>) = {
            let mut log = lock(&self.disk.log);
            std::mem::take(&mut log.retired)
                .into_iter()
                .partition(is_idle)
        };
        let mut stuck = held;
        for retired in &mut stuck {
            self.rename_retired(retired);
        }
        let mut made_space = false;
        for retired in free {
            if self.unlink(&retired.path) {
                lock(&self.disk.log).discharge(retired.cost);
                made_space = true;
            } else {
                stuck.push(retired);
            }
        }
        lock(&self.disk.log).retired.append(&mut stuck);
        made_space
    }

    /// Unlinks one file that was set aside: the limit is harder than the wish to keep it.
    fn unlink_set_aside(&self) -> bool {
        let Some((path, cost)) = lock(&self.disk.log).set_aside.pop() else {
            return false;
        };
        let is_gone = self.unlink(&path);
        let mut log = lock(&self.disk.log);
        match is_gone {
            true => log.discharge(cost),
            // It still counts; others are tried before it.
            false => log.set_aside.insert(0, (path, cost)),
        }
        is_gone
    }

    /// Gives back what was counted for a file that could not be made. While it cannot be removed
    /// either, it counts.
    pub(crate) fn discard(&self, path: PathBuf, cost: u64) {
        let is_gone = self.unlink(&path);
        let mut log = lock(&self.disk.log);
        match is_gone {
            true => log.discharge(cost),
            false => log.set_aside.push((path, cost)),
        }
    }

    fn unlink(&self, path: &Path) -> bool {
        let unlinked = self.disk.io.unlink(path);
        // Not before: a sync in between would clear it, and leave this name behind.
        self.disk.has_new_names.store(true, Ordering::Release);
        match unlinked {
            Ok(()) => true,
            Err(error) => error.kind() == io::ErrorKind::NotFound,
        }
    }

    fn sweep_min_free(&self, swept: &mut Swept) {
        let min_free = self.limits.min_free();
        if min_free == 0 {
            self.is_low.store(false, Ordering::Relaxed);
            return;
        }
        let is_low = || {
            let available = self.disk.io.available(&self.disk.dir);
            available.is_ok_and(|available| available < min_free)
        };
        let _turn = lock(&self.disk.turning);
        let mut rounds = MAX_SWEPT_SEGMENTS;
        let mut still_low = is_low();
        while still_low && rounds > 0 {
            let Eviction::Done(evicted) = self.evict_oldest() else {
                break;
            };
            swept.evicted += evicted;
            swept.segments += 1;
            rounds -= 1;
            still_low = is_low();
        }
        self.is_low.store(still_low, Ordering::Relaxed);
    }

    fn sweep_inactive(&self) -> u64 {
        let oldest = self.use_time().oldest;
        let mut swept = 0;
        for position in 0..self.index.shards().count() {
            for _ in 0..MAX_BATCHES {
                let batch = self.sweep_shard(position, oldest);
                swept += batch;
                if batch == 0 {
                    break;
                }
            }
        }
        self.counters.expired.fetch_add(swept, Ordering::Relaxed);
        swept
    }

    /// Removes some inactive entries of a shard; 0 when there are none left.
    fn sweep_shard(&self, position: usize, oldest: u32) -> u64 {
        let Some(shard) = self.index.shards().nth(position) else {
            return 0;
        };
        let limit = self
            .disk
            .record_limit()
            .saturating_sub(u64::from(RECORD_HEADER) + 16);
        let fitting = limit / u64::from(ROW + 16);
        let most = MAX_TOMBSTONE_KEYS.min(fitting as usize);
        for _ in 0..2 {
            let mut shard = write(shard);
            if shard.oldest_used >= oldest || most == 0 {
                return 0;
            }
            let old = shard.table.iter().filter(|slot| slot.used < oldest);
            let keys: Vec<Key> = old.map(|slot| slot.key).take(most).collect();
            if keys.is_empty() {
                let first = shard.table.iter().map(|slot| slot.used).min();
                shard.oldest_used = first.unwrap_or(u32::MAX);
                return 0;
            }
            let size = aligned(u64::from(RECORD_HEADER) + 16 * keys.len() as u64) as u32;
            let mut rows: Vec<Row> = keys.iter().map(|key| tombstone_row(*key, size)).collect();
            let reserved = lock(&self.disk.log).reserve_record(size, &mut rows);
            if let Ok(place) = reserved {
                for key in &keys {
                    shard.remove(key, Leave::Swept);
                }
                drop(shard);
                self.write_record(place, &[self.tombstone(place, Key([0; 16]), &keys)]);
                self.end_reservation(place.segment);
                return keys.len() as u64;
            }
            drop(shard);
            let rows_len = rows.iter().map(Row::encoded_len).sum();
            if self.make_room(size, rows_len).is_err() {
                return 0;
            }
        }
        0
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::clock::ManualClock;
    use crate::event::Platform;
    use crate::recover::{How, Parents, Start};
    use crate::volume::{Volume, ZoneConf};

    fn store(volume: &Volume, key: &Key, len: usize) {
        let mut writer = volume.begin(*key, Some(len as u64)).expect("begun");
        writer.set_head(Bytes::from_static(b"head"));
        writer.append(Bytes::from(vec![7; len])).expect("taken");
        writer.finish().expect("stored");
        volume.flush();
    }

    /// Known to the segment of its slices by each of its heads at first, then by the last one only;
    /// and it goes with that segment.
    #[test]
    fn entry_whose_head_is_replaced_ever_so_often_is_known_to_its_segment_once() {
        let home = tempfile::tempdir().expect("directory");
        let conf = ZoneConf {
            max_size: Some(16 << 20),
            segment_size: Some(64 << 10),
            small: 0,
            memory: 0,
            flush: Duration::from_secs(3600),
            ..ZoneConf::new("sweep", home.path())
        };
        let how = How {
            start: Start::Resume,
            parents: Parents::Make,
        };
        let clock = Arc::new(ManualClock::new(1_700_000_000_000));
        let volume = Volume::open(conf, (clock, Platform::default()), how).expect("opens");
        let key = Key([1; 16]);
        store(&volume, &key, 40_000);
        // What follows stands in another segment.
        store(&volume, &Key([2; 16]), 40_000);
        let known = || -> usize {
            let log = lock(&volume.inner.disk.log);
            log.segments
                .values()
                .map(|it| it.dependents.iter().count())
                .sum()
        };
        let before = known();
        for _ in 0..500 {
            let entry = volume.find(&key).expect("there");
            let replaced = volume.replace_head(&entry, Bytes::from_static(b"other"));
            replaced.expect("replaced");
            volume.flush();
        }
        assert!(known() >= before + 500, "{}", known());
        volume.sweep();
        assert!(known() <= before + 1, "{}", known());
        assert!(volume.find(&key).is_some());
        let oldest = *lock(&volume.inner.disk.log)
            .segments
            .keys()
            .next()
            .expect("one");
        volume.inner.evict_if_oldest(oldest);
        // The body of the other one begins there, too.
        assert_eq!(volume.inner.index.count(), 0);
        assert!(volume.find(&key).is_none());
    }
}
