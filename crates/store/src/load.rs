//! Filling the index from the log, in the background, newest segments first.
//!
//! ```text
//!   waiting ──► running ──► loaded
//!      ▲           └──► unread ──┐
//!      └─────── a sweep, later ──┘
//! ```
//!
//! A segment that is evicted while it waits, or is unread, has nothing to load any more.
//!
//! Opening a volume registers its segments and reads the newest one; threads read the summaries of
//! the others, or scan those that have none. Meanwhile look-ups find what is loaded and cannot be
//! told otherwise by what is not; for anything else they wait (`unloaded`). Of two records of a key
//! the one that stands later in the log counts, in whatever order they come.
//!
//! 1. What is removed while segments are loaded does not come back: it leaves a grave in the index,
//!    as do tombstones and entries that miss a segment, until all is loaded.
//! 2. A segment is evicted before it is loaded or after, never meanwhile; one that was evicted
//!    is not loaded. What needs it is found gone, or is noted with it, under one lock.
//! 3. A segment without a summary gets one after it was scanned, never before.
//! 4. The threads end before the volume's last writes.
//! 5. What a segment may have replaced or removed that the disk does not give, or that has lost its
//!    summary and some records, is not found: while there is one, nothing that came before it is in
//!    the index. It is asked for again a few times, by sweeps; after that its turn to be evicted
//!    comes as if it were loaded, and the next start asks again.
//!
//! Little is loaded before a volume is there, so that one with few entries has them from the
//! first moment on.

use std::io;
use std::sync::atomic::Ordering;
use std::sync::{Condvar, Mutex, PoisonError};

use crate::disk::format::{FOOTER, Kind, ROW, Row, SEGMENT_HEADER};
use crate::disk::reader::Found;
use crate::disk::rows::EncodedRows;
use crate::disk::segment::{Load, Log, Place, Segment, SegmentSites};
use crate::health::Tried;
use crate::index::Slot;
use crate::lock::lock;
use crate::recover::Probe;
use crate::uses::Joined;
use crate::volume::{Event, Inner};

/// Threads that load; two keep a disk busy, and leave half of a small machine to requests.
const LOADERS: usize = 2;
/// Rows that are put in the index at one time, a few hundred for each shard.
const PIECE: usize = 64 << 10;
/// Number of times that a disk is asked again for what it did not give: for about a minute. As the
/// graves of that time take memory, not for ever. Fewer than the errors in a row that give a disk
/// up.
const MAX_TRIES: u32 = 3;
/// Time for which the disk is left alone before the first of them, and how many times longer before
/// each that follows.
const FIRST_WAIT_MS: u64 = 2000;
const WAIT_GROWTH: u64 = 4;

/// Cost of a byte of a scan, compared with one of a summary.
const SCAN_SHARE: u64 = 8;

/// State of loading.
#[derive(Debug, Default)]
pub(crate) struct Loading {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// Threads that have not ended.
    running: usize,
    /// Number of those threads that still load.
    left: usize,
    /// True if one of the threads failed.
    has_failed: bool,
    /// True if loading is done in the background.
    is_much: bool,
    /// True if nothing more comes.
    is_done: bool,
    /// Segments that the disk did not give.
    unread: u64,
    /// Last answer of the disk.
    why: String,
    /// Number of times that the disk was asked again, and the time when it is next.
    tries: u32,
    due_ms: u64,
    /// Time when loading began, milliseconds since 1970.
    began_ms: u64,
    /// True if the zone was open when its process ended.
    was_open: bool,
    /// True if nobody is told.
    is_quiet: bool,
}

impl Loading {
    /// Notes the beginning.
    pub(crate) fn begin(&self, now_ms: u64, was_open: bool) {
        let mut state = lock(&self.state);
        state.began_ms = now_ms;
        state.was_open = was_open;
    }

    /// True if the zone was open when its process ended.
    pub(crate) fn was_open(&self) -> bool {
        lock(&self.state).was_open
    }

    /// Keeps the operator from being told of the loading: it is no start.
    pub(crate) fn be_quiet(&self) {
        lock(&self.state).is_quiet = true;
    }

    /// True if someone still loads.
    pub(crate) fn is_running(&self) -> bool {
        lock(&self.state).running > 0
    }

    /// Waits until everything is loaded, or nobody loads any more; whether everything is.
    pub(crate) fn wait(&self) -> bool {
        let mut state = lock(&self.state);
        while state.running > 0 {
            let waited = self.changed.wait(state);
            state = waited.unwrap_or_else(PoisonError::into_inner);
        }
        state.is_done && state.unread == 0
    }

    /// True if nothing more comes.
    pub(crate) fn is_done(&self) -> bool {
        lock(&self.state).is_done
    }

    /// Segments that the disk did not give.
    pub(crate) fn unread(&self) -> u64 {
        lock(&self.state).unread
    }
}

/// Source of the rows of a segment.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Loaded {
    FromSummary,
    ByScan,
}

/// Guard of a thread that loads: the thread is counted off, whatever becomes of it.
struct Loader<'a>(&'a Inner);

impl Drop for Loader<'_> {
    fn drop(&mut self) {
        self.0.end_loader();
    }
}

/// Guard of a segment that is being loaded, whatever becomes of the loading.
struct Running<'a> {
    inner: &'a Inner,
    id: u32,
    end: Load,
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.inner.set_load(self.id, self.end);
    }
}

impl Inner {
    /// Loads what waits, in the background if it is much.
    pub(crate) fn begin_loading(&self) {
        let (cost, _) = self.waiting();
        let threads = if cost <= self.conf.warm_up {
            0
        } else {
            LOADERS
        };
        {
            let mut state = lock(&self.loading.state);
            state.running = threads.max(1);
            state.left = threads.max(1);
            state.is_much = threads > 0;
            self.unloaded.begin(self.clock.now());
        }
        lock(&self.disk.log).loading_below = u32::MAX;
        self.hide_unloaded();
        if threads == 0 {
            self.load_all();
        }
        let this = self.this.upgrade();
        for _ in 0..threads {
            let inner = this.clone();
            let started = std::thread::Builder::new()
                .name(format!("load {}", self.conf.name))
                .spawn(move || inner.map(|inner| inner.load_all()));
            if started.is_err() {
                // What no thread can be had for is done here.
                self.load_all();
            }
        }
    }

    /// Makes room for what will be loaded: tables that grow leave holes in the memory of a process.
    pub(crate) fn expect_rows(&self) {
        let (_, rows) = self.waiting();
        // Shards differ by a few in a hundred. Of rows that nobody counted some may be of one key.
        let known = self.entries_before().map(|entries| entries / 32 * 33);
        let wanted = known.unwrap_or(rows / 4 * 3).min(rows);
        self.index.reserve(wanted as usize);
    }

    /// Cost of loading, in bytes of summaries, and the number of rows that there may be.
    fn waiting(&self) -> (u64, u64) {
        let log = lock(&self.disk.log);
        let segments = log.segments.values();
        segments.fold((0, 0), |(cost, rows), segment| match segment.load {
            Load::Waiting(Some(len)) => (cost + u64::from(len), rows + u64::from(len / ROW)),
            Load::Waiting(None) => (cost + u64::from(segment.size) / SCAN_SHARE, rows),
            Load::Running | Load::Loaded | Load::Unread => (cost, rows),
        })
    }

    /// Loads segments until there are none left, or the volume is closed.
    fn load_all(&self) {
        let _loader = Loader(self);
        while !self.is_closed() {
            let Some((id, size)) = self.next_to_load() else {
                return;
            };
            let mut running = Running {
                inner: self,
                id,
                end: Load::Loaded,
            };
            let loaded = self.load_segment(id, size);
            if let Err(error) = &loaded {
                running.end = Load::Unread;
                self.note_unread(error);
            }
            drop(running);
            if loaded.is_ok_and(|how| how == Loaded::ByScan) {
                self.seal(id);
            }
        }
    }

    fn load_segment(&self, id: u32, size: u32) -> io::Result<Loaded> {
        let Some(file) = self.disk.file(id) else {
            return Ok(Loaded::FromSummary);
        };
        let _numbers = self.disk.book.hold();
        // A summary that cannot be read is made anew, if all else can be.
        let summary = self.disk.read_rows(id, &file, size).unwrap_or_default();
        if let Some(summary) = summary.filter(|summary| Row::are_whole(&summary.rows)) {
            let accounts = summary.accounts(&self.disk.book);
            // Row by row: all of them would take several times as much.
            let mut rest = summary.rows.as_slice();
            let rows = std::iter::from_fn(|| Row::decode_next(&mut rest));
            let charged = rows.map(|row| Row {
                account: accounts.of(row.account),
                ..row
            });
            self.load_rows(id, charged);
            return Ok(Loaded::FromSummary);
        }
        let footer = self.disk.read_footer(id, &file, size);
        let end = footer
            .unwrap_or_default()
            .map_or(size, |footer| footer.tail);
        let found = self.disk.scan_unsummed(id, &file, SEGMENT_HEADER..end)?;
        self.load_rows(id, found.rows.iter().cloned());
        // INVARIANT 3.
        self.know_rows(id, &found);
        // INVARIANT 4 of `recover`: nor does it go on after a clean stop, should it be the newest.
        lock(&self.disk.log).fill(id);
        Ok(Loaded::ByScan)
    }

    /// INVARIANTS 2 and 5.
    pub(crate) fn next_to_load(&self) -> Option<(u32, u32)> {
        let mut log = lock(&self.disk.log);
        // From the newest on each time, this would take the square of their number.
        let below = log.loading_below;
        let newest_first = log.segments.range_mut(..below).rev();
        let mut known = newest_first.take_while(|(_, segment)| segment.load != Load::Unread);
        let (id, segment) = known.find(|(_, segment)| segment.load.is_waiting())?;
        segment.load = Load::Running;
        let (id, size) = (*id, segment.size);
        log.loading_below = id;
        Some((id, size))
    }

    /// Puts the rows of a segment in the index.
    pub(crate) fn load_rows(&self, id: u32, rows: impl Iterator<Item = Row>) {
        let (uses, missing) = self.uses_of(id);
        let (now, away) = (self.now_s(), self.away_s());
        let mut uses = Joined::new(&uses, missing);
        let mut slots = Vec::with_capacity(PIECE);
        for row in rows {
            if slots.len() == PIECE {
                self.index.load_many(&slots);
                self.unloaded.loaded(slots.len());
                self.unloaded.moved(self.clock.now());
                slots.clear();
            }
            let place = Place {
                segment: id,
                offset: row.offset,
                size: row.size,
            };
            if row.kind == Kind::Tombstone {
                slots.push(Slot::grave(row.key, place));
                continue;
            }
            let (used, hits, is_saved) = uses.at(row.offset);
            let used = used.saturating_add(away).min(now);
            let slot = Slot::new(row.key, place, row.body_len, used).with_hits(hits);
            let mut slot = slot.charged_to(row.account);
            // One that was moved is written as it is now.
            if is_saved && away == 0 {
                slot = slot.saved();
            }
            if row.is_sliced {
                slot = slot.sliced().unverified();
            }
            if row.needs.is_empty() {
                slots.push(slot);
            } else {
                self.load_slot(slot, &row);
            }
        }
        self.index.load_many(&slots);
        self.unloaded.loaded(slots.len());
    }

    /// Puts an entry that needs other segments in the index, unless it misses one.
    fn load_slot(&self, slot: Slot, row: &Row) {
        let mut shard = self.index.shard(&row.key);
        let place = slot.place();
        // INVARIANT 2.
        let mut log = lock(&self.disk.log);
        let is_there = |needed: &u32| log.segments.contains_key(needed);
        if !row.needs.iter().all(is_there) {
            shard.load(Slot::grave(row.key, place));
        } else if shard.load(slot) {
            log.note_needs(row, place.segment);
        }
    }

    /// Notes the rows of a segment that had no summary.
    pub(crate) fn know_rows(&self, id: u32, found: &Found) {
        let (rows, sites) = self.summary_of(found);
        let mut log = lock(&self.disk.log);
        if let Some(segment) = log.segments.get_mut(&id) {
            let summary = rows.len() + sites.len() + FOOTER;
            let end = found.tail.saturating_add(summary);
            segment.tail = found.tail;
            segment.is_sealed = false;
            // Without room for the rows the segment stays as it is, and is scanned each time.
            segment.is_unsealable = end > segment.size;
            segment.rows = rows;
            segment.sites = sites;
        }
    }

    /// The rows of a segment as a summary has them, and the sites that they mean.
    pub(crate) fn summary_of(&self, found: &Found) -> (EncodedRows, SegmentSites) {
        let (mut rows, mut sites) = (EncodedRows::default(), SegmentSites::default());
        for row in &found.rows {
            rows.push(row);
            sites.note(row.account, &self.disk.book);
        }
        (rows, sites)
    }

    /// The last thread that loads says so, unless something is left.
    fn end_loader(&self) {
        let is_last = {
            let mut state = lock(&self.loading.state);
            state.left = state.left.saturating_sub(1);
            state.has_failed |= std::thread::panicking() || self.is_closed();
            state.left == 0 && !state.has_failed
        };
        let is_done = is_last && self.end_loading();
        let mut state = lock(&self.loading.state);
        state.running = state.running.saturating_sub(1);
        state.is_done |= is_done;
        if state.running == 0 {
            self.unloaded.end();
        }
        drop(state);
        self.loading.changed.notify_all();
    }

    /// Ends a round of loading; true if nothing more comes.
    fn end_loading(&self) -> bool {
        let unread = self.hide_doubtful();
        let will_try = {
            let mut state = lock(&self.loading.state);
            state.unread = unread;
            let wait_ms = FIRST_WAIT_MS * WAIT_GROWTH.pow(state.tries.min(MAX_TRIES));
            state.due_ms = self.clock.steady().saturating_add(wait_ms);
            unread > 0 && state.tries < MAX_TRIES
        };
        if !will_try {
            self.index.is_loaded();
        }
        match unread {
            0 => self.tell_loaded(),
            _ => self.tell_unread(unread),
        }
        !will_try
    }

    /// INVARIANT 5. How many segments the disk did not give.
    fn hide_doubtful(&self) -> u64 {
        let (newest, count) = {
            let mut log = lock(&self.disk.log);
            let is_unread = |(_, segment): &(&u32, &Segment)| segment.load == Load::Unread;
            let unread = log.segments.iter().filter(is_unread);
            let count = unread.clone().count() as u64;
            let Some(newest) = unread.map(|(id, _)| *id).next_back() else {
                return 0;
            };
            for (_, segment) in log.segments.range_mut(..newest) {
                if segment.load == Load::Loaded {
                    segment.load = Load::Waiting(None);
                }
            }
            (newest, count)
        };
        self.index.forget_before(newest);
        count
    }

    /// Asks again for what the disk did not give, when that is due.
    pub(crate) fn load_again(&self) {
        {
            let mut state = lock(&self.loading.state);
            let is_over = state.is_done || state.running > 0 || state.unread == 0;
            if is_over || state.due_ms > self.clock.steady() {
                return;
            }
            state.tries += 1;
        }
        let unread: Vec<(u32, u32)> = {
            let log = lock(&self.disk.log);
            let is_unread = |(_, segment): &(&u32, &Segment)| segment.load == Load::Unread;
            let unread = log.segments.iter().filter(is_unread);
            unread.map(|(id, segment)| (*id, segment.size)).collect()
        };
        for (id, size) in unread {
            match self.probe(id, u64::from(size)) {
                Probe::Ours(probed) => self.take_over(probed),
                Probe::Unread(_, error) => self.note_unread(&error),
                // The next start sees to it.
                Probe::Strange(_) => {}
            }
        }
        self.begin_loading();
    }

    pub(crate) fn set_load(&self, id: u32, load: Load) {
        let mut log = lock(&self.disk.log);
        if let Some(segment) = log.segments.get_mut(&id) {
            segment.load = load;
        }
        if load == Load::Unread {
            // INVARIANT 5.
            log.loading_below = 0;
        }
        self.show_loaded(&log);
        drop(log);
        self.unloaded.loaded(1);
        self.wake_known();
    }

    /// Lets be found what stands behind all that was not loaded yet (INVARIANT 5 of the index).
    fn show_loaded(&self, log: &Log) {
        let shown = self.index.shown_from();
        let mut before = log.segments.range(..shown).rev();
        let missing = before.find(|(_, segment)| segment.load != Load::Loaded);
        self.index.show_from(missing.map_or(0, |(id, _)| id + 1));
    }

    /// Hides all that stands before the newest segment that was not loaded yet.
    fn hide_unloaded(&self) {
        let log = lock(&self.disk.log);
        self.index.show_from(u32::MAX);
        self.show_loaded(&log);
    }

    /// The disk did not give a segment.
    pub(crate) fn note_unread(&self, error: &io::Error) {
        self.health.met(error, Tried::Read);
        self.counters.read_errors.fetch_add(1, Ordering::Relaxed);
        lock(&self.loading.state).why = error.to_string();
    }

    /// Reports once the segments that were not read.
    fn tell_unread(&self, count: u64) {
        let (tries, why) = {
            let state = lock(&self.loading.state);
            (state.tries, state.why.clone())
        };
        if tries == 0 {
            let dir = self.disk.dir.display().to_string();
            self.report(&Event::Unread { dir, count, why });
        }
    }

    fn tell_loaded(&self) {
        let (began_ms, was_open, is_much) = {
            let state = lock(&self.loading.state);
            if state.is_quiet {
                return;
            }
            (state.began_ms, state.was_open, state.is_much)
        };
        let entries = self.index.count();
        let ms = self.clock.steady().saturating_sub(began_ms);
        if was_open {
            self.report(&Event::Recovered { entries });
        }
        if is_much {
            self.report(&Event::Loaded { entries, ms });
        }
    }
}
