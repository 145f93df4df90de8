//! Filling the index from the log, in the background, newest segments first.
//!
//! ```text
//!   waiting ──► running ──► loaded
//!      └──── evicted ────► (nothing to load)
//! ```
//!
//! Opening a volume registers its segments and reads the newest one; threads read the summaries of
//! the others, or scan those that have none. Meanwhile look-ups find what is loaded, and an entry
//! that is not is a miss. Of two records of a key the one that stands later in the log counts,
//! in whatever order they come.
//!
//! 1. What is removed while segments are loaded does not come back: it leaves a grave in the index,
//!    as do tombstones and entries that miss a segment, until all is loaded.
//! 2. A segment is evicted before it is loaded or after, never meanwhile; one that was evicted
//!    is not loaded. What needs it is found gone, or is noted with it, under one lock.
//! 3. A segment without a summary gets one after it was scanned, never before.
//! 4. The threads end before the volume's last writes.
//!
//! Little is loaded before a volume is there, so that one with few entries has them from the
//! first moment on.

use std::sync::{Condvar, Mutex, PoisonError};

use crate::disk::format::{FOOTER, Kind, ROW, Row, SEGMENT_HEADER};
use crate::disk::reader::Found;
use crate::disk::segment::{Load, Place};
use crate::index::Slot;
use crate::lock::lock;
use crate::recover::StoreError;
use crate::uses::Joined;
use crate::volume::{Event, Inner};

/// Threads that load; two keep a disk busy, and leave half of a small machine to requests.
const LOADERS: usize = 2;
/// Rows that are put in the index at one time, a few hundred for each shard.
const PIECE: usize = 64 << 10;
/// What a byte of a scan costs, compared with one of a summary.
const SCAN_SHARE: u64 = 8;

/// How loading stands.
#[derive(Debug, Default)]
pub(crate) struct Loading {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// Threads that have not ended.
    running: usize,
    /// Those of them that still load.
    left: usize,
    /// Whether one of them failed.
    has_failed: bool,
    /// Whether it is done in the background.
    is_much: bool,
    /// Whether everything is loaded.
    is_done: bool,
    /// When it began, milliseconds since 1970.
    began_ms: u64,
    /// Whether the zone was open when its process ended.
    was_open: bool,
    /// Whether nobody is told.
    is_quiet: bool,
}

impl Loading {
    /// Notes the beginning.
    pub(crate) fn begin(&self, now_ms: u64, was_open: bool) {
        let mut state = lock(&self.state);
        state.began_ms = now_ms;
        state.was_open = was_open;
    }

    /// Tells nobody of it: it is no start.
    pub(crate) fn be_quiet(&self) {
        lock(&self.state).is_quiet = true;
    }

    /// Whether someone still loads.
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
        state.is_done
    }
}

impl Loading {
    /// Whether everything is loaded.
    pub(crate) fn is_done(&self) -> bool {
        lock(&self.state).is_done
    }
}

/// A thread that loads, whatever becomes of it.
struct Loader<'a>(&'a Inner);

impl Drop for Loader<'_> {
    fn drop(&mut self) {
        self.0.end_loader();
    }
}

/// A segment that is being loaded, whatever becomes of it.
struct Running<'a> {
    inner: &'a Inner,
    id: u32,
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        if let Some(segment) = lock(&self.inner.disk.log).segments.get_mut(&self.id) {
            segment.load = Load::Loaded;
        }
    }
}

impl Inner {
    /// Loads what waits, in the background if it is much.
    pub(crate) fn begin_loading(&self) -> Result<(), StoreError> {
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
        }
        if threads == 0 {
            self.load_all();
            return Ok(());
        }
        let this = self.this.upgrade();
        for _ in 0..threads {
            let inner = this.clone();
            let started = std::thread::Builder::new()
                .name(format!("load {}", self.conf.name))
                .spawn(move || inner.map(|inner| inner.load_all()));
            if let Err(source) = started {
                return Err(StoreError::io("start a thread of", &self.conf.path, source));
            }
        }
        Ok(())
    }

    /// Makes room for what will be loaded: tables that grow leave holes in the memory of a process.
    pub(crate) fn expect_rows(&self) {
        let (_, rows) = self.waiting();
        // Shards differ by a few in a hundred. Of rows that nobody counted some may be of one key.
        let known = self.entries_before().map(|entries| entries / 32 * 33);
        let wanted = known.unwrap_or(rows / 4 * 3).min(rows);
        self.index.reserve(wanted as usize);
    }

    /// What loading costs, in bytes of summaries, and how many rows there may be.
    fn waiting(&self) -> (u64, u64) {
        let log = lock(&self.disk.log);
        let segments = log.segments.values();
        segments.fold((0, 0), |(cost, rows), segment| match segment.load {
            Load::Waiting(Some(len)) => (cost + u64::from(len), rows + u64::from(len / ROW)),
            Load::Waiting(None) => (cost + u64::from(segment.size) / SCAN_SHARE, rows),
            Load::Running | Load::Loaded => (cost, rows),
        })
    }

    /// Loads segments until there are none left, or the volume is closed.
    fn load_all(&self) {
        let _loader = Loader(self);
        while !self.is_closed() {
            let Some((id, size)) = self.next_to_load() else {
                return;
            };
            let running = Running { inner: self, id };
            let Some(file) = self.disk.file(id) else {
                continue;
            };
            let summary = self.disk.read_rows(id, &file, size);
            let rows = summary.map(|summary| summary.rows);
            if let Some(rows) = rows.filter(|rows| Row::are_whole(rows)) {
                // Row by row: all of them would take several times as much.
                let mut rest = rows.as_slice();
                self.load_rows(id, std::iter::from_fn(|| Row::decode_next(&mut rest)));
                continue;
            }
            let found = self.disk.scan(id, &file, SEGMENT_HEADER..size);
            self.load_rows(id, found.rows.iter().cloned());
            // INVARIANT 3.
            self.know_rows(id, &found);
            drop(running);
            self.seal(id);
        }
    }

    /// INVARIANT 2.
    pub(crate) fn next_to_load(&self) -> Option<(u32, u32)> {
        let mut log = lock(&self.disk.log);
        let mut newest_first = log.segments.iter_mut().rev();
        let (id, segment) = newest_first.find(|(_, segment)| segment.load.is_waiting())?;
        segment.load = Load::Running;
        Some((*id, segment.size))
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
            let mut slot = Slot::new(row.key, place, row.body_len, used).with_hits(hits);
            // One that was moved is written as it is now.
            if is_saved && away == 0 {
                slot = slot.saved();
            }
            if row.is_sliced {
                slot = slot.sliced().unverified();
            }
            match row.needs.is_empty() {
                true => slots.push(slot),
                false => self.load_slot(slot, &row),
            }
        }
        self.index.load_many(&slots);
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
        let mut rows = Vec::new();
        for row in &found.rows {
            row.encode(&mut rows);
        }
        let mut log = lock(&self.disk.log);
        if let Some(segment) = log.segments.get_mut(&id) {
            let end = found.tail.saturating_add(rows.len() as u32 + FOOTER);
            segment.tail = found.tail;
            segment.is_sealed = false;
            // Without room for the rows the segment stays as it is, and is scanned each time.
            segment.is_unsealable = end > segment.size;
            segment.rows = rows;
        }
    }

    /// The last thread that loads says so, unless something is left.
    fn end_loader(&self) {
        let is_done = {
            let mut state = lock(&self.loading.state);
            state.left = state.left.saturating_sub(1);
            state.has_failed |= std::thread::panicking() || self.is_closed();
            state.left == 0 && !state.has_failed
        };
        if is_done {
            self.index.is_loaded();
            self.tell_loaded();
        }
        let mut state = lock(&self.loading.state);
        state.running = state.running.saturating_sub(1);
        state.is_done |= is_done;
        drop(state);
        self.loading.changed.notify_all();
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
        let ms = self.clock.now().saturating_sub(began_ms);
        if was_open {
            self.report(&Event::Recovered { entries });
        }
        if is_much {
            self.report(&Event::Loaded { entries, ms });
        }
    }
}
