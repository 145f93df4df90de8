//! The write queue of a disk and the thread that empties it.
//!
//! Jobs are done in order, by one thread. Fills are drained whole: whatever has a place by the
//! time the thread comes to a fill goes out in large vectored writes, however small the appends
//! were. Records follow their slices. A segment is sealed after its last write.
//!
//! 1. The bytes that wait are counted; above the limit new ones are refused, never waited for.
//!    Jobs that carry no bytes are bounded by the fills and segments that there are.
//! 2. What was reserved is released exactly once, written or not.
//! 3. A failed write takes away the entry that needed it, also from the summary of its segment: no
//!    older version comes back in its place.
//!
//! Reads are made by their callers; tombstones too, because they must be written before the call
//! returns.

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;

use super::format::{Footer, Row, payload_sum};
use super::reader::Summary;
use super::segment::{Place, SegmentSites};
use super::syncer::{EndsSyncer, Syncer};
use crate::admit::NotStored;
use crate::disk::io::File;
use crate::fill::Fill;
use crate::health::Tried;
use crate::key::Key;
use crate::lock::{lock, read};
use crate::site::Leave;
use crate::volume::{Event, Inner};

/// The most that one write carries: the disk thread looks at the fill again after it.
const WRITE_SIZE: u64 = 1 << 20;

/// A sync begins after this share of `flush`, so that the write queue and the sync itself have the
/// rest of the time.
const SYNC_SHARE: u32 = 2;

/// What follows a record's writing.
#[derive(Debug)]
pub(crate) enum Then {
    /// The entry can be read from the disk. The fill, if it has one, must not have failed.
    Land(Key, Option<Arc<Fill>>),
}

/// Something for the disk thread to do.
#[derive(Debug)]
pub(crate) enum Job {
    /// Write what has a place.
    Drain(Arc<Fill>),
    /// Write a record.
    Record {
        /// Where.
        place: Place,
        /// Its bytes; padding may be left out.
        bufs: Vec<Bytes>,
        /// What follows.
        then: Then,
    },
    /// Write the summary of a segment.
    Seal(u32),
    /// Release what a fill that was given up still has reserved.
    Abandon(Arc<Fill>),
    /// Take back space of a fill that was given up, which nobody has seen; the last place first.
    GiveBack(Vec<Place>),
    /// Rewrite what is in use in the oldest segment, and evict it.
    Turn,
    /// Sync what was rewritten, before the segment is evicted.
    Settle,
}

/// Jobs in order, and how many bytes they carry.
pub(crate) struct Queue {
    state: Mutex<QueueState>,
    arrived: Condvar,
    emptied: Condvar,
    limit: u64,
}

struct QueueState {
    jobs: VecDeque<Job>,
    bytes: u64,
    is_busy: bool,
    is_closed: bool,
}

/// What the disk thread is to do next.
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
                bytes: 0,
                is_busy: false,
                is_closed: false,
            }),
            arrived: Condvar::new(),
            emptied: Condvar::new(),
            limit,
        }
    }

    /// Whether `size` more bytes may wait. A single one that is larger than the limit may, alone.
    pub(crate) fn has_room(&self, size: u64) -> bool {
        let state = lock(&self.state);
        state.bytes == 0 || state.bytes + size <= self.limit
    }

    /// Counts bytes that wait from now on.
    pub(crate) fn charge(&self, size: u64) {
        lock(&self.state).bytes += size;
    }

    /// Adds a job; drops it if nobody will do it any more.
    pub(crate) fn push(&self, job: Job) {
        let mut state = lock(&self.state);
        if state.is_closed {
            return;
        }
        state.jobs.push_back(job);
        drop(state);
        self.arrived.notify_one();
    }

    /// Waits until everything that was pushed is done.
    pub(crate) fn flush(&self) {
        let mut state = lock(&self.state);
        while !state.is_closed && (state.is_busy || !state.jobs.is_empty()) {
            state = self
                .emptied
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
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
        lock(&self.state).bytes
    }

    fn discharge(&self, size: u64) {
        let mut state = lock(&self.state);
        state.bytes = state.bytes.saturating_sub(size);
    }

    fn next(&self, patience: Option<Duration>) -> Next {
        let mut state = lock(&self.state);
        state.is_busy = false;
        loop {
            if let Some(job) = state.jobs.pop_front() {
                state.is_busy = true;
                return Next::Do(job);
            }
            self.emptied.notify_all();
            if state.is_closed {
                return Next::Stop;
            }
            let Some(patience) = patience else {
                state = self
                    .arrived
                    .wait(state)
                    .unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            let waited = self.arrived.wait_timeout(state, patience);
            let (after, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
            if timeout.timed_out() && after.jobs.is_empty() && !after.is_closed {
                return Next::Idle;
            }
            state = after;
        }
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
            self.write_until_closed(&|| match is_apart {
                true => syncer.ask(),
                // Without a thread of its own a sync is done here, and writes wait for it.
                false => self.sync_and_evict(),
            });
        });
    }

    fn write_until_closed(&self, sync: &dyn Fn()) {
        let interval = self.conf.flush / SYNC_SHARE;
        let patience = (!interval.is_zero()).then_some(interval);
        let interval_ms = interval.as_millis() as u64;
        let mut synced_ms = self.clock.now();
        loop {
            let is_due = match self.disk.queue.next(patience) {
                Next::Do(job) => {
                    let is_asked = matches!(job, Job::Settle);
                    self.do_job(job);
                    // A clock that was set back says nothing.
                    let unsynced_ms = self.clock.now().checked_sub(synced_ms);
                    let is_late = unsynced_ms.is_none_or(|unsynced| unsynced >= interval_ms);
                    is_asked || (is_late && patience.is_some())
                }
                // Nobody has anything for us any more.
                Next::Idle if self.is_shut() && !self.has_fills() => return,
                Next::Idle => true,
                Next::Stop => return,
            };
            if is_due {
                sync();
                synced_ms = self.clock.now();
            }
        }
    }

    fn do_job(&self, job: Job) {
        match job {
            Job::Drain(fill) => self.drain(&fill),
            Job::Record { place, bufs, then } => self.write_entry(place, &bufs, then),
            Job::Seal(segment) => self.seal(segment),
            Job::Abandon(fill) => self.release(&fill),
            Job::GiveBack(places) => self.give_back(&places),
            Job::Turn => self.turn(),
            Job::Settle => self.note_copies(),
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
            let wrote = self
                .disk
                .io
                .write_at(&pending.file, &pending.bufs, pending.offset);
            if let Err(error) = wrote {
                self.report_write(&error);
                fill.fail(NotStored::Disk);
                continue;
            }
            self.health.wrote();
            self.counters.wrote(pending.size);
            for segment in fill.wrote(pending.size, self.clock.now()) {
                self.end_reservation(segment);
            }
            self.disk.queue.discharge(pending.size);
        }
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
        let Then::Land(key, fill) = then;
        let failed = fill.and_then(|fill| fill.state().failed);
        let wrote = failed.is_none() && self.write_record(place, bufs);
        self.disk.queue.discharge(u64::from(place.size));
        if wrote {
            self.index.land(&key, place);
        } else {
            self.index.remove_at(&key, place, Leave::Lost);
            self.counters.lost();
            self.void_row(place);
        }
        self.end_reservation(place.segment);
        self.health.note(key);
    }

    /// Writes a record to its segment. INVARIANT 3.
    pub(crate) fn write_record(&self, place: Place, bufs: &[Bytes]) -> bool {
        let gone = || io::Error::from(io::ErrorKind::NotFound);
        let file = self.disk.file(place.segment).ok_or_else(gone);
        let offset = u64::from(place.offset);
        match file.and_then(|file| self.disk.io.write_at(&file, bufs, offset)) {
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
            if segment.open > 0 || segment.is_sealed || segment.is_unsealable {
                return;
            }
            let sites = segment.sites.table().to_vec();
            (segment.rows.clone(), sites, segment.tail, segment.size)
        };
        let Some(file) = self.disk.file(id) else {
            return;
        };
        let summary = Summary { tail, sites, rows };
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
                segment.rows = Vec::new();
                segment.sites = SegmentSites::default();
            }
        }
    }

    fn write_summary(&self, id: u32, file: &File, size: u32, summary: Summary) -> bool {
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
        match self.disk.io.write_at(file, &bufs, offset) {
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
            if Row::void(&mut segment.rows, place.offset) {
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
        let _syncing = lock(&self.disk.syncing);
        // Before the marks are looked at: `health`, invariant 1.
        let changed = self.health.take_changed();
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
            if let Err(error) = self.disk.io.sync(&file) {
                self.report_write(&error);
                self.mark_damaged(id);
                are_synced = false;
            }
        }
        if !are_synced || self.health.is_failed() {
            self.health.put_back(changed);
        }
        are_synced
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
                self.report_write(error);
            }
            synced.is_ok()
        };
        let is_settled = sync_if(&disk.has_legacy, &|| io.sync_all(&disk.dir));
        sync_if(&disk.has_new_names, &|| io.sync_dir(&disk.dir)) && is_settled
    }

    fn mark_damaged(&self, id: u32) {
        if let Some(segment) = lock(&self.disk.log).segments.get_mut(&id) {
            segment.is_damaged = true;
        }
    }

    fn report_write(&self, error: &io::Error) {
        self.health.met(error, Tried::Write);
        self.counters.write_failed();
        self.report(&Event::WriteFailed(error.to_string()));
    }
}
