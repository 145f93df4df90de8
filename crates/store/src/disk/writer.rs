//! The write queue of a disk and the thread that empties it.
//!
//! Jobs are done in order, by one thread. Fills are drained whole: whatever has a place by the
//! time the thread comes to a fill goes out in large vectored writes, however small the appends
//! were. Records follow their slices. A segment is sealed after its last write.
//!
//! 1. The bytes that wait are counted; above the limit new ones are refused, never waited for.
//!    Jobs that carry no bytes are bounded by the fills, segments and entries that there are.
//! 2. What was reserved is released exactly once, written or not.
//! 3. A failed write takes away the entry that needed it, also from the summary of its segment: no
//!    older version comes back in its place.
//!
//! Reads are made by their callers; so are tombstones of many keys, by whoever sweeps.

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, WaitTimeoutResult};
use std::time::Duration;

use bytes::Bytes;

use super::format::{Footer, Row, SEGMENT_HEADER, SegmentHeader, payload_sum};
use super::reader::Summary;
use super::segment::{Place, SegmentSites};
use super::syncer::{EndsSyncer, Syncer};
use crate::admit::NotStored;
use crate::disk::open::SegmentFile;
use crate::disk::rows::EncodedRows;
use crate::fill::Fill;
use crate::health::Tried;
use crate::key::Key;
use crate::lock::{lock, read};
use crate::site::{Account, Leave};
use crate::volume::{Event, Inner};

/// The most that one write carries: the disk thread looks at the fill again after it.
const WRITE_SIZE: u64 = 1 << 20;

/// Jobs push others: a turn writes again what is in use, for which there may be another turn.
const FLUSH_ROUNDS: u32 = 64;

/// A sync begins after this share of `flush`, so that the write queue and the sync itself have the
/// rest of the time.
const SYNC_SHARE: u32 = 2;

/// Time in which the disk thread lets records gather before it sleeps until it is told of one:
/// small entries that come one after the other are written without a wake-up for each. (Arbitrary:
/// they are served from memory meanwhile, and what waits to be synced waits much longer.)
const GATHER: Duration = Duration::from_millis(1);

/// Pause between two looks whether fills still run, when the directory is lent.
const SHORT_PATIENCE: Duration = Duration::from_millis(100);

/// Action that follows the writing of a record.
#[derive(Debug)]
pub(crate) enum Then {
    /// The entry can be read from the disk.
    Land {
        /// Key of the entry.
        key: Key,
        /// Fill of the record, if it has one; a fill that failed lands nothing.
        fill: Option<Arc<Fill>>,
        /// Place of the record that was replaced, if it was known.
        older: Option<Place>,
    },
}

/// Something for the disk thread to do.
#[derive(Debug)]
pub(crate) enum Job {
    /// Write what has a place.
    Drain(Arc<Fill>),
    /// Write a record.
    Record {
        /// Place of the record.
        place: Place,
        /// Bytes of the record; padding may be left out.
        bufs: Vec<Bytes>,
        /// Action that follows the writing.
        then: Then,
    },
    /// Write a tombstone.
    Bury {
        /// Place of the tombstone.
        place: Place,
        /// Key of the entry that is buried.
        key: Key,
        /// Place of the entry's record, if it is known.
        old: Option<Place>,
    },
    /// Turn the record of a key into its tombstone.
    Void(Key, Place),
    /// Write the tombstone of a key whose record is not known yet, if there is room by now.
    BuryLate(Key),
    /// Write the summary of a segment.
    Seal(u32),
    /// Try whether a file can be created again.
    Retry,
    /// Release what a fill that was given up still has reserved.
    Abandon(Arc<Fill>),
    /// Take back space of a fill that was given up, which nobody has seen; the last place first.
    GiveBack(Vec<Place>),
    /// Rewrite what is in use in the oldest segment, and evict it.
    Turn,
    /// List the entries of a limited site that leave first.
    ListLeaving(Account),
    /// Sync what was rewritten, by the order of this number, before the segment is evicted.
    Settle(u64),
    /// Look soon, and then often, whether there is still something to write: the directory is lent.
    Part,
}

/// Jobs in order, and how many bytes they carry.
///
/// Telling a condition variable is a call into the kernel even where nobody waits for it, so who
/// waits is noted, and for what: right after a job the disk thread only dozes, and records let it.
pub(crate) struct Queue {
    state: Mutex<QueueState>,
    arrived: Condvar,
    emptied: Condvar,
    bytes: AtomicU64,
    limit: u64,
}

struct QueueState {
    jobs: VecDeque<Job>,
    /// Number of jobs that were pushed, and of those that are done.
    pushed: u64,
    done: u64,
    is_busy: bool,
    is_closed: bool,
    /// Jobs that the disk thread waits for, as long as it has not been told of one.
    awaited: Awaited,
    /// Number of those that wait for jobs to be done.
    flushers: u32,
}

/// Jobs that the disk thread is to be told of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Awaited {
    /// No job: the thread is busy.
    Nothing,
    /// Jobs but for records: it looks by itself soon.
    Pressing,
    /// Any job.
    Any,
}

/// Next action of the disk thread.
enum Next {
    Do(Job),
    Idle,
    Stop,
}

impl Queue {
    /// An empty queue that takes up to `limit` bytes.
    pub(crate) fn new(limit: u64) -> Self {
        Self {
            state: Mutex::new(QueueState {
                jobs: VecDeque::new(),
                pushed: 0,
                done: 0,
                is_busy: false,
                is_closed: false,
                awaited: Awaited::Nothing,
                flushers: 0,
            }),
            arrived: Condvar::new(),
            emptied: Condvar::new(),
            bytes: AtomicU64::new(0),
            limit,
        }
    }

    /// True if `size` more bytes may wait. A single one that is larger than the limit may, alone.
    pub(crate) fn has_room(&self, size: u64) -> bool {
        let bytes = self.bytes();
        bytes == 0 || bytes + size <= self.limit
    }

    /// True if the disk has fallen back by so much that fills should not run ahead of it.
    pub(crate) fn is_half_full(&self) -> bool {
        self.bytes() > self.limit / 2
    }

    /// Counts bytes that wait from now on.
    pub(crate) fn charge(&self, size: u64) {
        self.bytes.fetch_add(size, Ordering::AcqRel);
    }

    /// Adds a job; drops it if nobody will do it any more.
    pub(crate) fn push(&self, job: Job) {
        let mut state = lock(&self.state);
        if state.is_closed {
            return;
        }
        let may_gather = matches!(job, Job::Record { .. });
        state.jobs.push_back(job);
        state.pushed += 1;
        let wakes = state.wakes(may_gather);
        drop(state);
        if wakes {
            self.arrived.notify_one();
        }
    }

    /// Waits until everything that was pushed before is done, and what that pushed.
    pub(crate) fn flush(&self) {
        let mut state = lock(&self.state);
        let mut wanted = state.pushed;
        let mut rounds = FLUSH_ROUNDS;
        if state.wakes(false) {
            self.arrived.notify_one();
        }
        while !state.is_closed && state.done < state.pushed {
            if state.done >= wanted {
                // Under load there is no end of what is pushed.
                if rounds == 0 {
                    return;
                }
                rounds -= 1;
                wanted = state.pushed;
            }
            state.flushers += 1;
            state = self
                .emptied
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
            state.flushers -= 1;
        }
    }

    /// Lets the thread end after the jobs that are there.
    pub(crate) fn close(&self) {
        lock(&self.state).is_closed = true;
        self.arrived.notify_all();
        self.emptied.notify_all();
    }

    /// Bytes that wait.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Acquire)
    }

    /// Counts bytes that wait no longer.
    pub(crate) fn discharge(&self, size: u64) {
        let less = |bytes: u64| Some(bytes.saturating_sub(size));
        // Always changed: the closure gives a value.
        let _ = self
            .bytes
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, less);
    }

    fn next(&self, patience: Option<Duration>) -> Next {
        let mut state = lock(&self.state);
        let mut may_doze = std::mem::take(&mut state.is_busy);
        if may_doze {
            state.done += 1;
            if state.flushers > 0 {
                self.emptied.notify_all();
            }
        }
        loop {
            state.awaited = Awaited::Nothing;
            if let Some(job) = state.jobs.pop_front() {
                state.is_busy = true;
                return Next::Do(job);
            }
            if state.is_closed {
                return Next::Stop;
            }
            if std::mem::take(&mut may_doze) {
                state.awaited = Awaited::Pressing;
                (state, _) = self.wait_for(state, GATHER);
                continue;
            }
            state.awaited = Awaited::Any;
            let Some(patience) = patience else {
                state = self
                    .arrived
                    .wait(state)
                    .unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            let (after, timeout) = self.wait_for(state, patience);
            if timeout.timed_out() && after.jobs.is_empty() && !after.is_closed {
                return Next::Idle;
            }
            state = after;
        }
    }

    fn wait_for<'a>(
        &self,
        state: MutexGuard<'a, QueueState>,
        time: Duration,
    ) -> (MutexGuard<'a, QueueState>, WaitTimeoutResult) {
        let waited = self.arrived.wait_timeout(state, time);
        waited.unwrap_or_else(PoisonError::into_inner)
    }
}

impl QueueState {
    /// True if the disk thread must be told of something; it is told once.
    fn wakes(&mut self, may_gather: bool) -> bool {
        let wakes = match self.awaited {
            Awaited::Nothing => false,
            Awaited::Pressing => !may_gather,
            Awaited::Any => true,
        };
        if wakes {
            self.awaited = Awaited::Nothing;
        }
        wakes
    }
}

/// Closes the queue when the disk thread ends in any way, so that nobody waits for it.
struct ClosesQueue<'a>(&'a Queue);

impl Drop for ClosesQueue<'_> {
    fn drop(&mut self) {
        self.0.close();
    }
}

impl Inner {
    /// The disk thread.
    pub(crate) fn write_loop(&self) {
        let _closes = ClosesQueue(&self.disk.queue);
        let syncer = Syncer::default();
        std::thread::scope(|scope| {
            let _ends = EndsSyncer(&syncer);
            let sync = || {
                while syncer.wait() {
                    self.sync_and_evict();
                }
            };
            let named = std::thread::Builder::new().name("store-sync".to_string());
            let is_apart = named.spawn_scoped(scope, sync).is_ok();
            self.write_until_closed(&|| {
                if is_apart {
                    syncer.ask();
                } else {
                    // Without a thread of its own a sync is done here, and writes wait for it.
                    self.sync_and_evict();
                }
            });
        });
    }

    fn write_until_closed(&self, sync: &dyn Fn()) {
        let interval = self.conf.flush / SYNC_SHARE;
        let patience = (!interval.is_zero()).then_some(interval);
        let interval_ms = interval.as_millis() as u64;
        let mut synced_ms = self.clock.steady();
        loop {
            let patience_now = if self.is_shut() {
                Some(SHORT_PATIENCE)
            } else {
                patience
            };
            let is_due = match self.disk.queue.next(patience_now) {
                Next::Do(job) => {
                    let is_asked = matches!(job, Job::Settle(_));
                    self.do_job(job);
                    let unsynced_ms = self.clock.steady().saturating_sub(synced_ms);
                    let is_late = unsynced_ms >= interval_ms;
                    is_asked || (is_late && patience.is_some())
                }
                // Nobody has anything for us any more.
                Next::Idle if self.is_shut() && !self.has_fills() => return,
                Next::Idle => {
                    let unsynced_ms = self.clock.steady().saturating_sub(synced_ms);
                    patience.is_some() && (!self.is_shut() || unsynced_ms >= interval_ms)
                }
                Next::Stop => return,
            };
            if is_due {
                sync();
                synced_ms = self.clock.steady();
            }
        }
    }

    fn do_job(&self, job: Job) {
        match job {
            Job::Drain(fill) => self.drain(&fill),
            Job::Record { place, bufs, then } => self.write_entry(place, &bufs, then),
            Job::Bury { place, key, old } => self.write_tombstone(place, &key, old),
            Job::Void(key, place) => self.void(&key, Some(place)),
            Job::BuryLate(key) => self.bury_late(&key),
            Job::Seal(segment) => self.seal(segment),
            Job::Retry => self.retry(),
            Job::Abandon(fill) => self.release(&fill),
            Job::GiveBack(places) => self.give_back(&places),
            Job::Turn => self.turn(),
            Job::ListLeaving(account) => self.list_leaving(account),
            Job::Settle(copies) => self.disk.copies.note_written(copies),
            Job::Part => {}
        }
    }

    fn drain(&self, fill: &Fill) {
        loop {
            let Some(pending) = fill.next_write(WRITE_SIZE) else {
                let mut state = fill.state();
                if state.failed.is_some() {
                    drop(state);
                    self.release(fill);
                    return;
                }
                if state.written == state.allocated {
                    state.is_queued = false;
                    return;
                }
                continue;
            };
            let Some(file) = pending
                .file
                .or_else(|| self.pin_file(fill, pending.segment))
            else {
                // It was told when the file could not be created.
                let why = lock(&self.disk.log).refusal;
                fill.fail(why.unwrap_or(NotStored::Disk));
                continue;
            };
            let wrote = file.write_at(&pending.bufs, pending.offset);
            if let Err(error) = wrote {
                self.report_write(&error);
                fill.fail(NotStored::Disk);
                continue;
            }
            self.health.wrote();
            self.counters.wrote(pending.size);
            for segment in fill.wrote(pending.size, self.clock.steady()) {
                self.end_reservation(segment);
            }
            self.disk.queue.discharge(pending.size);
        }
    }

    /// Creates the file of a segment that a fill is the first to write to.
    fn pin_file(&self, fill: &Fill, segment: u32) -> Option<Arc<SegmentFile>> {
        let file = self.file_to_write(segment)?;
        fill.state().files.push((segment, Arc::clone(&file)));
        Some(file)
    }

    /// INVARIANT 2, for a fill that will not be written further.
    pub(crate) fn release(&self, fill: &Fill) {
        let (charged, open) = {
            let mut state = fill.state();
            state.is_queued = false;
            (
                std::mem::take(&mut state.charged),
                std::mem::take(&mut state.open),
            )
        };
        self.disk.queue.discharge(charged);
        for (_, segment) in open {
            self.end_reservation(segment);
        }
    }

    /// Lets the end of the log fall back over places that nobody refers to.
    fn give_back(&self, places: &[Place]) {
        let mut log = lock(&self.disk.log);
        for place in places {
            log.give_back(*place);
        }
    }

    fn write_entry(&self, place: Place, bufs: &[Bytes], then: Then) {
        let Then::Land { key, fill, older } = then;
        let failed = fill.and_then(|fill| fill.state().failed);
        let wrote = failed.is_none() && self.write_record(place, bufs);
        self.disk.queue.discharge(u64::from(place.size));
        if wrote {
            self.index.land(&key, place);
        } else {
            self.index.remove_at(&key, place, Leave::Lost);
            self.counters.lost();
            self.void_row(place);
            self.bury_older(&key, older);
        }
        self.end_reservation(place.segment);
        self.health.note(key);
    }

    /// INVARIANT 3: the row of what could not be written is not on the disk yet, and its segment
    /// may never be.
    fn bury_older(&self, key: &Key, older: Option<Place>) {
        match older {
            Some(_) => self.void(key, older),
            None if self.loading.is_done() => {}
            None => self.bury_late(key),
        }
    }

    /// Writes a record to its segment. INVARIANT 3.
    pub(crate) fn write_record(&self, place: Place, bufs: &[Bytes]) -> bool {
        let Some(file) = self.file_to_write(place.segment) else {
            // It was told when the file could not be created.
            return false;
        };
        let offset = u64::from(place.offset);
        match file.write_at(bufs, offset) {
            Ok(()) => {
                self.health.wrote();
                self.counters.wrote(u64::from(place.size));
                true
            }
            Err(error) => {
                self.report_write(&error);
                self.mark_damaged(place.segment);
                false
            }
        }
    }

    /// Ends a reservation, and seals its segment if it was the last one.
    pub(crate) fn end_reservation(&self, segment: u32) {
        let may_seal = lock(&self.disk.log).end_reservation(segment);
        if may_seal {
            self.disk.queue.push(Job::Seal(segment));
        }
    }

    /// Writes the summary of a segment that has no open reservations.
    pub(crate) fn seal(&self, id: u32) {
        // Nobody may void a row between the copy of the rows and its writing.
        let _turn = lock(&self.disk.turning);
        if self.is_shut() {
            return;
        }
        let (rows, sites, tail, size) = {
            let log = lock(&self.disk.log);
            let Some(segment) = log.segments.get(&id) else {
                return;
            };
            let is_shut = segment.is_sealed || segment.is_unsealable || segment.is_lost;
            if segment.open > 0 || is_shut {
                return;
            }
            let sites = segment.sites.table().to_vec();
            (segment.rows.clone(), sites, segment.tail, segment.size)
        };
        if rows.is_empty() && self.forget_planned(id) {
            return;
        }
        let Some(file) = self.create_planned(id) else {
            self.mark_damaged(id);
            return;
        };
        let summary = Summary {
            tail,
            sites,
            rows: rows.concat(),
        };
        if !self.write_summary(id, &file, size, summary) {
            return;
        }
        let mut log = lock(&self.disk.log);
        let is_active = log.active == id;
        if let Some(segment) = log.segments.get_mut(&id) {
            segment.is_dirty = true;
            // The active segment is sealed at the end only, and keeps its rows until then.
            if !is_active {
                segment.is_sealed = true;
                segment.sites = SegmentSites::default();
                // INVARIANT 4 of `loss`, where anybody syncs before the end.
                if self.conf.flush.is_zero() {
                    segment.rows = EncodedRows::default();
                }
            }
        }
    }

    /// Lets a segment go that nothing was written to.
    fn forget_planned(&self, id: u32) -> bool {
        let mut log = lock(&self.disk.log);
        let is_planned = log.segments.get(&id).is_some_and(|it| it.is_planned);
        // What is active may be reserved in at any moment, until the zone is closed.
        let may_go = is_planned && (log.active != id || self.is_closed());
        if may_go {
            log.remove(id);
        }
        may_go
    }

    fn write_summary(&self, id: u32, file: &SegmentFile, size: u32, summary: Summary) -> bool {
        let footer = Footer {
            segment: id,
            tail: summary.tail,
            rows_len: summary.rows.len() as u32,
            rows_sum: payload_sum(&summary.rows),
            sites_len: summary.sites.len() as u32,
            sites_sum: payload_sum(&summary.sites),
        };
        let written = footer.summary_len();
        let offset = u64::from(size - written);
        let footer = Bytes::from(footer.encode(self.disk.seed));
        let bufs = [summary.sites.into(), summary.rows.into(), footer];
        match file.write_at(&bufs, offset) {
            Ok(()) => {
                self.counters.wrote(u64::from(written));
                true
            }
            Err(error) => {
                self.report_write(&error);
                self.mark_damaged(id);
                false
            }
        }
    }

    /// Takes an entry out of the summary of its segment, where no tombstone follows it.
    pub(crate) fn void_row(&self, place: Place) {
        let _turn = lock(&self.disk.turning);
        let size = {
            let mut log = lock(&self.disk.log);
            let Some(segment) = log.segments.get_mut(&place.segment) else {
                return;
            };
            let is_in_memory = segment.rows.void(place.offset);
            if is_in_memory && !segment.is_sealed {
                return;
            }
            segment.size
        };
        let Some(file) = self.disk.file(place.segment) else {
            return;
        };
        let summary = self.disk.read_rows(place.segment, &file, size);
        if let Ok(Some(mut summary)) = summary {
            Row::void(&mut summary.rows, place.offset);
            self.write_summary(place.segment, &file, size, summary);
        }
    }

    /// Syncs every segment that was written to.
    pub(crate) fn sync_segments(&self) -> bool {
        let _alone = lock(&self.disk.syncing);
        self.sync_dirty()
    }

    /// Syncs all segments, and once more those of which a write went wrong.
    pub(crate) fn sync_all_segments(&self) -> bool {
        let _alone = lock(&self.disk.syncing);
        // Not before: a sync that went on meanwhile may have gone wrong.
        self.disk.sync_damaged_again();
        self.sync_dirty()
    }

    fn sync_dirty(&self) -> bool {
        // Before the marks are looked at: `health`, invariant 1.
        let changed = self.health.take_changed();
        let copies = self.disk.copies.written();
        let listing = self.begin_listing();
        let mut are_synced = self.sync_names();
        let dirty: Vec<u32> = {
            let mut log = lock(&self.disk.log);
            let dirty = log
                .segments
                .iter_mut()
                .filter(|(_, segment)| segment.is_dirty);
            dirty
                .map(|(id, segment)| {
                    segment.is_dirty = false;
                    *id
                })
                .collect()
        };
        for id in dirty {
            let Some(file) = read(&self.disk.files).get(&id).map(Arc::clone) else {
                continue;
            };
            match file.sync() {
                Ok(()) => {
                    self.health.synced();
                    self.forget_rows(id);
                }
                Err(error) => {
                    self.report_failed(&error, Tried::Sync);
                    self.note_lost(id);
                    are_synced = false;
                }
            }
        }
        // What waited to be synced may be closed by now.
        self.disk.readers.home().open_files.trim();
        self.drop_lost();
        if !are_synced && let Err(error) = self.list_lost() {
            self.report(&Event::WriteFailed(error.to_string()));
        }
        if are_synced && let Err(error) = self.end_listing(&listing) {
            self.report(&Event::WriteFailed(error.to_string()));
            are_synced = false;
        }
        // What a write did not bring to a segment is only known here.
        let is_doubtful = lock(&self.disk.log)
            .segments
            .values()
            .any(|it| it.is_damaged);
        if !are_synced || is_doubtful || self.health.is_failed() {
            self.health.put_back(changed);
        } else {
            self.disk.copies.note_synced(copies);
        }
        are_synced
    }

    /// A segment was synced: if it has its summary, that is on the device.
    fn forget_rows(&self, id: u32) {
        let rows = {
            let mut log = lock(&self.disk.log);
            let segment = log.segments.get_mut(&id);
            let summed = segment.filter(|segment| segment.is_sealed && !segment.is_dirty);
            summed.map(|segment| std::mem::take(&mut segment.rows))
        };
        let count = rows
            .and_then(|rows| rows.decode())
            .map_or(0, |rows| rows.len());
        if let Some(file) = self.disk.file(id).filter(|_| count > 0) {
            // A segment fits 32 bits, and so do its rows. Without the count a scan is believed.
            match self.count_rows(id, &file, count as u32) {
                Ok(()) => self.mark_dirty(id),
                Err(error) => self.report_write(&error),
            }
        }
    }

    /// Says in the header of a segment how many rows its summary has.
    pub(crate) fn count_rows(&self, id: u32, file: &SegmentFile, rows: u32) -> io::Result<()> {
        let mut block = [0; SEGMENT_HEADER as usize];
        file.read_at(&mut block, 0)?;
        let header = self.disk.segment_header(&block);
        let Some(header) = header.filter(|it| it.segment == id && it.rows != rows) else {
            return Ok(());
        };
        let block = SegmentHeader { rows, ..header }.encode(&self.disk.uuid, self.disk.seed);
        file.write_at(&[Bytes::from(block)], 0)
    }

    /// Notes that a segment is to be synced.
    pub(crate) fn mark_dirty(&self, id: u32) {
        if let Some(segment) = lock(&self.disk.log).segments.get_mut(&id) {
            segment.is_dirty = true;
        }
    }

    /// Syncs the names in the directory, if they changed, because a file without one is lost; and
    /// all that a dead process may have left.
    fn sync_names(&self) -> bool {
        let (disk, io) = (&self.disk, &self.disk.io);
        let sync_if = |flag: &AtomicBool, sync: &dyn Fn() -> io::Result<()>| {
            if !flag.swap(false, Ordering::AcqRel) {
                return true;
            }
            let synced = sync();
            if let Err(error) = &synced {
                flag.store(true, Ordering::Release);
                self.report_failed(error, Tried::Sync);
            }
            synced.is_ok()
        };
        let is_settled = sync_if(&disk.has_legacy, &|| io.sync_all(&disk.dir));
        if !is_settled {
            // Which of them it is about only their own syncs say, and only once.
            disk.has_legacy.store(false, Ordering::Release);
            let mut log = lock(&disk.log);
            let segments = log.segments.values_mut();
            segments.for_each(|segment| segment.is_dirty = true);
        }
        sync_if(&disk.has_new_names, &|| io.sync_dir(&disk.dir)) && is_settled
    }

    /// A write to a segment went wrong: its next sync says what came of the others.
    fn mark_damaged(&self, id: u32) {
        if let Some(segment) = lock(&self.disk.log).segments.get_mut(&id) {
            (segment.is_damaged, segment.is_dirty) = (true, true);
        }
    }

    fn report_write(&self, error: &io::Error) {
        self.report_failed(error, Tried::Write);
    }

    fn report_failed(&self, error: &io::Error, tried: Tried) {
        self.health.met(error, tried);
        self.counters.write_failed();
        self.report(&Event::WriteFailed(error.to_string()));
    }
}
