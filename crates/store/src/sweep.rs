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
//! 2. A segment that is read is renamed and counts until its last reader is gone, so that it makes
//!    no space before. What waits for readers is at most a share of the limit (`HELD_SHARE` in
//!    `disk::segment`): beyond it the oldest segment stays while it is read, and with it all, and
//!    new answers are not stored. So readers that stall cost the zone that share of its entries,
//!    however many they are, and do not stop it for long (`stalled`).
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
use crate::disk::open::SegmentFile;
use crate::disk::segment::{Load, Log, Place, Retired, Segment, file_cost};
use crate::disk::writer::Job;
use crate::fill::Fill;
use crate::health::Tried;
use crate::key::Key;
use crate::lock::{lock, read, write};
use crate::remove::tombstone_row;
use crate::site::Leave;
use crate::volume::{Event, Inner};

/// Keys of one tombstone: a few kilobytes.
const MAX_TOMBSTONE_KEYS: usize = 256;
/// Segments that one sweep evicts for `min_free`; the next sweep goes on.
const MAX_SWEPT_SEGMENTS: usize = 8;
/// Tombstones that one sweep writes for one shard; the next sweep goes on.
const MAX_BATCHES: usize = 4096;
/// Inactive entries whose records one sweep turns into tombstones where there is no room for
/// others, because all that could leave is read: each costs a summary. Arbitrary.
const MAX_IN_PLACE: usize = 64;

/// A fill that has run for so long does not stop the log from turning. Arbitrary: the default of
/// `proxy_read_timeout`, within which a stalled origin is given up anyway.
const SLOW_FILL_MS: u64 = 60_000;

/// Counts of what a sweep removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Swept {
    /// Entries removed for inactivity.
    pub expired: u64,
    /// Entries removed for space.
    pub evicted: u64,
    /// Segments evicted.
    pub segments: u64,
}

/// Result of trying to evict the oldest segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Eviction {
    /// The segment is gone, or will be when its readers are; so many entries went with it.
    Done(u64),
    /// The segment's bytes are not written yet.
    Busy,
    /// A running fill has slices there.
    InUse,
    /// The segment is being read, as is as much as may be of what has left.
    Held,
    /// The zone has no segment to evict.
    Nothing,
}

/// Treatment of the oldest segment while it is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Readers {
    /// The segment leaves within the share that may wait for readers.
    Bounded,
    /// The segment leaves: what it counts is known to be on its way out.
    Counted,
}

/// Result of trying to create a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Creation {
    Done,
    NoSpace,
    Failed,
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
            self.take_back_stalled();
        }
        self.trim();
        self.load_again();
        self.prune_dependents();
        swept.expired = self.sweep_inactive();
        swept.evicted += self.sweep_limits();
        self.sweep_uses();
        self.sweep_min_free(&mut swept);
        self.reclaim();
        self.retry();
        self.bury_again();
        swept
    }

    /// Makes the active segment have room for a record and its rows. Never waits for the disk: of a
    /// new segment it only makes the plan.
    pub(crate) fn make_room(&self, size: u32, rows_len: u32) -> Result<(), NotStored> {
        if u64::from(size) + u64::from(rows_len) > self.disk.record_limit() {
            return Err(NotStored::TooLarge);
        }
        let mut log = lock(&self.disk.log);
        if log.has_room(size, rows_len) {
            return Ok(());
        }
        let closed = log.close_active();
        let has_numbers = log.has_numbers();
        let planned = self.may_plan(&log).inspect(|_| {
            log.plan_segment();
        });
        drop(log);
        if !has_numbers {
            self.tell_no_numbers();
        }
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

    /// Decides whether another segment may be planned, and whether something must be evicted for
    /// its file. Only what could be evicted now counts.
    fn may_plan(&self, log: &Log) -> Result<bool, NotStored> {
        if log.plan.segment_size == 0 || !log.has_numbers() {
            return Err(NotStored::Disk);
        }
        match log.refusal {
            Some(why) => Err(why),
            None => self.may_have_room(log),
        }
    }

    /// Decides the same by the space alone.
    pub(crate) fn may_have_room(&self, log: &Log) -> Result<bool, NotStored> {
        let shortage = log.shortage();
        let idle = log.retired.iter().filter(|it| it.is_idle());
        let idle: u64 = idle.map(|retired| retired.cost).sum();
        let aside: u64 = log.set_aside.iter().map(|(_, cost)| cost).sum();
        let mut missing = shortage.saturating_sub(idle + aside);
        let mut held = log.held();
        // INVARIANT 1.
        let mut oldest_first = log.segments.iter();
        while missing > 0 {
            let (&id, segment) = oldest_first.next().ok_or(NotStored::Disk)?;
            if segment.open > 0 || segment.load == Load::Running {
                return Err(NotStored::QueueFull);
            }
            if self.slow_fills(segment).1 {
                return Err(NotStored::Full);
            }
            let cost = file_cost(segment.size);
            // INVARIANT 2.
            if !self.disk.is_pinned(id) {
                missing = missing.saturating_sub(cost);
                continue;
            }
            held += cost;
            if held > log.most_held() {
                return Err(NotStored::Full);
            }
        }
        Ok(shortage > 0)
    }

    /// Orders a try to create a file again.
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
        let is_created = |id: &u32| self.file_to_write(*id).is_some();
        let unwanted = planned.filter(|id| !is_created(id));
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

    /// File of a planned segment as of [`Self::file_to_write`], for a caller that has the turn.
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
            // Nothing that goes would help a disk that makes no file for another reason than space.
            let has_failed = created == Creation::Failed;
            if !has_failed && (self.unlink_retired() || self.unlink_set_aside()) {
                continue;
            }
            // Each round evicts a segment, so the loop ends.
            let why = match (!has_failed).then(|| self.evict_oldest(Readers::Bounded)) {
                Some(Eviction::Done(_)) => {
                    has_evicted = true;
                    continue;
                }
                None | Some(Eviction::Nothing) => NotStored::Disk,
                Some(Eviction::Busy) => NotStored::QueueFull,
                Some(Eviction::InUse | Eviction::Held) => NotStored::Full,
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
            match self.evict_oldest(Readers::Bounded) {
                Eviction::Done(_) => {}
                // Only the active segment is left; without it the next round finds it.
                Eviction::Nothing if lock(&self.disk.log).active != 0 => {
                    lock(&self.disk.log).close_active();
                }
                _ => return Err(io::ErrorKind::StorageFull.into()),
            }
        }
    }

    /// Evicts a segment for a journal that the file system has no room for; false if none can go.
    pub(crate) fn evict_for_journal(&self) -> bool {
        let _turn = lock(&self.disk.turning);
        matches!(self.evict_oldest(Readers::Bounded), Eviction::Done(_))
    }

    /// Evicts segments until the files are within the limit, or will be when nobody reads what has
    /// left. For a limit that was lowered.
    pub(crate) fn trim(&self) {
        let _turn = lock(&self.disk.turning);
        let is_over = |log: &Log| log.excess() > log.held();
        while is_over(&lock(&self.disk.log)) {
            if self.unlink_set_aside() {
                continue;
            }
            match self.evict_oldest(Readers::Counted) {
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
            self.evict_oldest(Readers::Bounded);
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
                let (full, quota) = (io::ErrorKind::StorageFull, io::ErrorKind::QuotaExceeded);
                if error.kind() == full || error.kind() == quota {
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
        let _alone = alone.as_ref().map(lock);
        if min_free > 0 {
            let available = self.disk.io.available(&self.disk.dir)?;
            if available < min_free.saturating_add(u64::from(size)) {
                return Err(io::ErrorKind::StorageFull.into());
            }
        }
        let path = self.disk.segment_path(id);
        let (io, open_files) = (&self.disk.io, &self.disk.readers.home().open_files);
        let file = open_files.with_room(|| io.create(&path, u64::from(size)))?;
        let file = SegmentFile::made(id, file, &self.disk.readers);
        self.disk.has_new_names.store(true, Ordering::Release);
        let header = SegmentHeader {
            segment: id,
            size,
            rows: 0,
            created_ms: self.clock.now(),
        };
        let block = Bytes::from(header.encode(&self.disk.uuid, self.disk.seed));
        file.write_at(&[block], 0)?;
        self.disk.add_file(id, file);
        Ok(())
    }

    /// INVARIANT 1. The caller holds the turn.
    pub(crate) fn evict_oldest(&self, readers: Readers) -> Eviction {
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
            if readers == Readers::Bounded && !self.may_leave(&log, id, segment) {
                return Eviction::Held;
            }
            stopped = slow;
            let Some(segment) = log.remove(id) else {
                return Eviction::Nothing;
            };
            let turned = log.turned.take_if(|turned| turned.segment == id);
            if turned.is_some() || self.has_unsynced_copies() {
                self.counters.hasty.fetch_add(1, Ordering::Relaxed);
            }
            (id, segment)
        };
        for fill in stopped {
            fill.fail(NotStored::Full);
        }
        let file = write(&self.disk.files).remove(&id);
        let evicted = self.drop_entries(id, &segment, file.as_deref());
        self.counters.evicted.fetch_add(evicted, Ordering::Relaxed);
        match file {
            Some(file) => self.retire(id, file, file_cost(segment.size)),
            None if segment.is_planned => {}
            // It could never be opened.
            None => self.discard(self.disk.segment_path(id), file_cost(segment.size)),
        }
        Eviction::Done(evicted)
    }

    /// INVARIANT 2: whether a segment makes space when it leaves, or may wait for its readers.
    pub(crate) fn may_leave(&self, log: &Log, id: u32, segment: &Segment) -> bool {
        let after = log.held() + file_cost(segment.size);
        after <= log.most_held() || !self.disk.is_pinned(id)
    }

    /// The fills of a segment that may be stopped, and whether there are others.
    fn slow_fills(&self, segment: &Segment) -> (Vec<Arc<Fill>>, bool) {
        let now = self.clock.steady();
        let fills = segment.fills.iter().filter_map(Weak::upgrade);
        let is_slow = |fill: &Arc<Fill>| now.saturating_sub(fill.began_ms) >= SLOW_FILL_MS;
        let (slow, others): (Vec<_>, Vec<_>) = fills.partition(is_slow);
        (slow, !others.is_empty())
    }

    /// Takes everything out of the index that needs a segment.
    fn drop_entries(&self, id: u32, segment: &Segment, file: Option<&SegmentFile>) -> u64 {
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
        self.save_heads(id, file);
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
    pub(crate) fn rows(
        &self,
        id: u32,
        segment: &Segment,
        file: Option<&SegmentFile>,
    ) -> Option<Vec<Row>> {
        if segment.is_sealed {
            let found = self.disk.read_summary(id, file?, segment.size);
            return Some(found.ok()??.rows);
        }
        segment.rows.decode()
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
    pub(crate) fn retire(&self, id: u32, file: Arc<SegmentFile>, cost: u64) {
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

    /// True if an evicted segment would be loaded again at the next start, because the disk lets it
    /// neither be removed nor renamed. Until it does no newer one may go: INVARIANT 1.
    fn is_stuck(&self) -> bool {
        if self.stuck(&lock(&self.disk.log)).is_empty() {
            return false;
        }
        self.unlink_retired();
        !self.stuck(&lock(&self.disk.log)).is_empty()
    }

    /// Segments that have left the log and have the names by which they are loaded; ascending.
    pub(crate) fn stuck(&self, log: &Log) -> Vec<u32> {
        let may_return =
            |retired: &&Retired| retired.path == self.disk.segment_path(retired.segment);
        let retired = log.retired.iter().filter(may_return);
        let mut stuck: Vec<u32> = retired.map(|retired| retired.segment).collect();
        stuck.sort_unstable();
        stuck
    }

    /// Unlinks what nobody reads any more, and renames what is read. True if that made space.
    pub(crate) fn unlink_retired(&self) -> bool {
        let (free, held): (Vec<_>, Vec<_>) = {
            let mut log = lock(&self.disk.log);
            std::mem::take(&mut log.retired)
                .into_iter()
                .partition(Retired::is_idle)
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

    /// Unlinks one file that was set aside, if there is one, ahead of need.
    pub(crate) fn make_room_of_set_aside(&self) -> bool {
        let _turn = lock(&self.disk.turning);
        // Whoever has the directory now has its files, too.
        !self.is_shut() && self.unlink_set_aside()
    }

    /// Unlinks one file that was set aside: the limit is harder than the wish to keep it.
    fn unlink_set_aside(&self) -> bool {
        let Some((path, cost)) = lock(&self.disk.log).set_aside.pop() else {
            return false;
        };
        let is_gone = self.unlink(&path);
        let mut log = lock(&self.disk.log);
        if is_gone {
            log.discharge(cost);
        } else {
            // The file still counts; others are tried before it.
            log.set_aside.insert(0, (path, cost));
        }
        is_gone
    }

    /// Gives back what was counted for a file that could not be made. While it cannot be removed
    /// either, it counts.
    pub(crate) fn discard(&self, path: PathBuf, cost: u64) {
        let is_gone = self.unlink(&path);
        let mut log = lock(&self.disk.log);
        if is_gone {
            log.discharge(cost);
        } else {
            log.set_aside.push((path, cost));
        }
    }

    pub(crate) fn unlink(&self, path: &Path) -> bool {
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
        let is_below = |more: u64| {
            let available = self.disk.io.available(&self.disk.dir);
            available.is_ok_and(|available| available.saturating_add(more) < min_free)
        };
        let _turn = lock(&self.disk.turning);
        // What has left and is still read will be free without more being evicted.
        let stays_below = || is_below(lock(&self.disk.log).held());
        let mut rounds = MAX_SWEPT_SEGMENTS;
        while rounds > 0 && stays_below() {
            rounds -= 1;
            if !self.unlink_set_aside() {
                let Eviction::Done(evicted) = self.evict_oldest(Readers::Counted) else {
                    break;
                };
                swept.evicted += evicted;
                swept.segments += 1;
            }
        }
        self.is_low.store(is_below(0), Ordering::Relaxed);
    }

    fn sweep_inactive(&self) -> u64 {
        let oldest = self.use_time().oldest;
        let mut swept = 0;
        let mut in_place = MAX_IN_PLACE;
        for position in 0..self.index.shards().count() {
            for _ in 0..MAX_BATCHES {
                match self.sweep_shard(position, oldest) {
                    Ok(0) => break,
                    Ok(batch) => swept += batch,
                    Err(_) if in_place == 0 => break,
                    Err(_) => {
                        let keys = self.inactive_keys(position, oldest, in_place);
                        in_place -= keys.len();
                        let removed = |key: &&Key| self.remove_in_place(key, Leave::Swept);
                        swept += keys.iter().filter(removed).count() as u64;
                        break;
                    }
                }
            }
        }
        self.counters.expired.fetch_add(swept, Ordering::Relaxed);
        swept
    }

    /// Some inactive entries of a shard.
    fn inactive_keys(&self, position: usize, oldest: u32, most: usize) -> Vec<Key> {
        let Some(shard) = self.index.shards().nth(position).map(read) else {
            return Vec::new();
        };
        let old = shard.table.iter().filter(|slot| slot.used < oldest);
        old.map(|slot| slot.key).take(most).collect()
    }

    /// Removes some inactive entries of a shard; 0 when there are none left. An error if there is
    /// no room for their tombstone.
    fn sweep_shard(&self, position: usize, oldest: u32) -> Result<u64, NotStored> {
        let Some(shard) = self.index.shards().nth(position) else {
            return Ok(0);
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
                return Ok(0);
            }
            let old = shard.table.iter().filter(|slot| slot.used < oldest);
            let keys: Vec<Key> = old.map(|slot| slot.key).take(most).collect();
            if keys.is_empty() {
                let first = shard.table.iter().map(|slot| slot.used).min();
                shard.oldest_used = first.unwrap_or(u32::MAX);
                return Ok(0);
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
                return Ok(keys.len() as u64);
            }
            drop(shard);
            let rows_len = rows.iter().map(Row::encoded_len).sum();
            self.make_room(size, rows_len)?;
        }
        Ok(0)
    }
}

#[cfg(test)]
mod tests;
