//! Slices of one generation that are being filled, and claims on what is asked of the origin.
//!
//! ```text
//!            claim                 answered            end of the run, or of the body
//!  missing ─────────► run: Asked ───────────► Flowing ───────────────────► Ended
//!                        │ failed, changed        │ broken off, cut            ▲
//!                        └────────────────────────┴────────────────────────────┘
//! ```
//!
//! A `Run` is one request to the origin for neighbouring slices. All runs of a generation and
//! the slices that were begun from their middle stand under one lock: whoever wants bytes either
//! finds the run that will bring them or claims them.
//!
//! A run that begins deep in its first slice claims a *tail*, which waits in memory; the gap before
//! it is claimed like anything else that is missing, at the latest by the run itself when it has
//! ended.
//!
//! Invariants:
//! 1. What runs have before them, and tails, do not overlap, but where a reader was let go by a run
//!    (`crate::window`) and asks for the rest of a slice that the run goes on with.
//! 2. A run that has ended is not in the list, and everybody who waited for it knows.
//! 3. A tail leaves the list when its slice is stored, or cannot be any more.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use millpond_store::{Entry, Key, Look as InStore, Zone};
use tokio::sync::Notify;

use super::filling::Filling;
use super::gone::Gone;
use super::run::{Purpose, Run, RunEnd};
use super::version::Validator;
use super::{DEEP, RUN_BYTES, RUN_SLICES, TAILS_BYTES};
use crate::disk_timeout::Disk;
use crate::extent::Extents;
use crate::head::{SliceSet, StoredHead};
use crate::key_mark::KeyMark;
use crate::reason::Reason;
use crate::unstored::LastUnstored;
use crate::window::WindowMemory;
use crate::zone::{FoundEntry, Unread};

/// One version of a body in slices, in use.
pub struct Generation {
    /// The slices.
    pub set: SliceSet,
    /// Validator that names the version.
    pub validator: Validator,
    /// Key of the entry.
    owner: Key,
    /// Name of the entry's site.
    site: Bytes,
    store: Arc<Zone>,
    state: Mutex<State>,
    is_retired: AtomicBool,
    readers: AtomicUsize,
    /// Depth in a slice from which on a range is asked for before the rest of the slice.
    deep: u64,
    tails: TailMemory,
    windows: WindowMemory,
    /// The text of the entry's cache key, and where it is noted what was not stored of it.
    text: Bytes,
    unstored: Arc<LastUnstored>,
    gone: Arc<Gone>,
}

#[derive(Default)]
struct State {
    runs: Vec<Arc<Run>>,
    tails: Vec<Arc<Tail>>,
}

impl State {
    fn tail(&self, index: u64) -> Option<&Arc<Tail>> {
        self.tails.iter().find(|tail| tail.index == index)
    }
}

/// A slice of which only the end has come.
#[derive(Debug)]
pub struct Tail {
    /// Index of the slice.
    pub index: u64,
    /// Bytes of the slice.
    pub filling: Arc<Filling>,
    state: Mutex<TailState>,
    changed: Notify,
    _room: Room,
}

/// State that the bodies of a zone share.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    pub(crate) tails: TailMemory,
    pub(crate) windows: WindowMemory,
    pub(crate) unstored: Arc<LastUnstored>,
    pub(crate) gone: Arc<Gone>,
}

/// Memory that tails take, of all bodies of a zone together.
#[derive(Clone, Debug, Default)]
pub(crate) struct TailMemory(Arc<AtomicU64>);

/// Room of a tail in the memory that all tails share.
#[derive(Debug)]
struct Room {
    memory: TailMemory,
    bytes: u64,
}

impl TailMemory {
    fn has_room(&self, bytes: u64) -> bool {
        self.0.load(Ordering::Relaxed).saturating_add(bytes) <= TAILS_BYTES
    }

    fn take(&self, bytes: u64) -> Room {
        self.0.fetch_add(bytes, Ordering::Relaxed);
        Room {
            memory: self.clone(),
            bytes,
        }
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        self.memory.0.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TailState {
    Arriving,
    Whole,
    Broken,
}

/// Answer of the store about a slice.
#[derive(Debug)]
pub enum Held {
    /// The store has the slice.
    Yes(Entry),
    /// The slice's disk must be waited for.
    Unread(Unread),
    /// The store has not got the slice.
    No,
}

/// Source of a byte that is not held.
pub enum Source {
    /// A run that goes on already.
    Run(Arc<Run>),
    /// A tail that has the byte.
    Tail(Arc<Filling>),
    /// A run that the caller drives: it is in the list, and must be driven.
    Claimed(Arc<Run>),
}

impl std::fmt::Debug for Generation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Generation")
            .field("set", &self.set)
            .finish_non_exhaustive()
    }
}

impl Generation {
    pub(crate) fn new(store: Arc<Zone>, owner: Key, head: &StoredHead, set: SliceSet) -> Self {
        Generation {
            set,
            validator: Validator::stored(head),
            owner,
            site: head.site(),
            store,
            state: Mutex::default(),
            is_retired: AtomicBool::new(false),
            readers: AtomicUsize::new(0),
            deep: DEEP,
            tails: TailMemory::default(),
            windows: WindowMemory::default(),
            text: head.key.clone(),
            unstored: Arc::default(),
            gone: Arc::default(),
        }
    }

    /// Shares the memory of tails and windows with the other bodies of its zone, and where it is
    /// noted what was not stored.
    pub(crate) fn sharing(self, shared: &Shared) -> Self {
        Generation {
            tails: shared.tails.clone(),
            windows: shared.windows.clone(),
            unstored: Arc::clone(&shared.unstored),
            gone: Arc::clone(&shared.gone),
            ..self
        }
    }

    /// Text of the entry's cache key.
    pub(crate) fn text(&self) -> &Bytes {
        &self.text
    }

    /// Notes why a slice of an answer with this status was not stored, at a time (seconds).
    pub(crate) fn note_unstored(&self, why: (Reason, u16), at: i64) {
        self.unstored.note_late(self.mark(), why, at);
    }

    /// Notes that the version is gone at the origin.
    pub(crate) fn note_gone(&self) {
        if let Some(validator) = self.validator.if_range() {
            self.gone.note(self.mark(), validator);
        }
    }

    fn mark(&self) -> KeyMark {
        let keys = self.store.keys();
        KeyMark::of(keys, &keys.of(&self.text), &self.text)
    }

    /// Asks for what is wanted first, however deep in its slice it is.
    pub(crate) fn wanted_first(self) -> Self {
        Generation { deep: 1, ..self }
    }

    /// The store.
    pub(crate) fn store(&self) -> &Arc<Zone> {
        &self.store
    }

    /// Key of a slice.
    pub(crate) fn key(&self, index: u64) -> Key {
        self.set.key(self.store.keys(), index)
    }

    /// Key of the entry.
    pub(crate) fn owner(&self) -> &Key {
        &self.owner
    }

    /// Name of the entry's site; empty if it has none.
    pub(crate) fn site(&self) -> &[u8] {
        &self.site
    }

    /// A slice, if the store has it.
    pub fn held(&self, index: u64) -> Held {
        let span = self.set.span(index);
        match self.store.look(&self.key(index)) {
            InStore::Found(entry)
                if entry.len() == span.end - span.start
                    && self.set.is_record(entry.head(), index) =>
            {
                Held::Yes(entry)
            }
            InStore::Found(_) | InStore::Missing => Held::No,
            InStore::Cold(cold) => Held::Unread(Unread::Cold(cold)),
            InStore::Stalled => Held::Unread(Unread::Stalled),
            InStore::Unknown(cold) => Held::Unread(Unread::Unknown(cold)),
        }
    }

    /// True if a slice is held or arriving.
    pub fn is_at_hand(&self, index: u64) -> bool {
        self.is_taken(&self.state(), index)
    }

    /// The runs that run: what they bring, how far they are, and how many bodies were read from
    /// them.
    pub fn running(&self) -> Vec<(Range<u64>, u64, u32)> {
        let state = self.state();
        let runs = state.runs.iter();
        runs.map(|run| (run.start..run.end(), run.progress().0, run.readers()))
            .collect()
    }

    /// True if the version is gone at the origin.
    pub fn is_retired(&self) -> bool {
        self.is_retired.load(Ordering::Acquire)
    }

    /// Takes the entry out of the zone, unless another has taken its place.
    pub fn retire(&self) {
        if self.is_retired.swap(true, Ordering::AcqRel) {
            return;
        }
        // If it has not been read, whoever finds it later finds out again.
        let InStore::Found(entry) = self.store.look(&self.owner) else {
            return;
        };
        let head = StoredHead::decode(entry.head());
        let generation = head.and_then(|head| head.sliced).map(|set| set.generation);
        if generation == Some(self.set.generation) {
            self.store.remove(&self.owner);
        }
    }

    /// Somebody reads the body until the guard is dropped.
    pub fn attend(self: &Arc<Self>) -> Attendance {
        self.readers.fetch_add(1, Ordering::AcqRel);
        Attendance(Arc::clone(self))
    }

    /// True if nobody reads the body.
    pub(crate) fn is_deserted(&self) -> bool {
        self.readers.load(Ordering::Acquire) == 0
    }

    /// Finds out who brings the bytes from the start of `wanted` on; claims them if nobody does.
    /// `None` if the store has the first by now.
    pub fn source(&self, wanted: &Range<u64>, purpose: Purpose) -> Option<Source> {
        self.source_besides(Disk::Awaited, wanted, purpose)
    }

    /// Source of bytes as of [`Self::source`]; the first slice may be held by a disk that was given
    /// up.
    pub(crate) fn source_besides(
        &self,
        disk: Disk,
        wanted: &Range<u64>,
        purpose: Purpose,
    ) -> Option<Source> {
        let (position, end) = (wanted.start, wanted.end);
        let index = self.set.index_of(position);
        let mut state = self.state();
        if let Some(run) = state.runs.iter().find(|run| run.covers(position)) {
            return Some(Source::Run(Arc::clone(run)));
        }
        if let Some(tail) = state.tail(index)
            && position >= tail.filling.memory_start()
        {
            return Some(Source::Tail(Arc::clone(&tail.filling)));
        }
        // Not merely known to the store: a disk that does not read is a miss.
        if disk == Disk::Awaited && matches!(self.held(index), Held::Yes(_)) {
            return None;
        }
        let span = self.claimable(&state, position, end);
        Some(Source::Claimed(self.claim(&mut state, span, purpose)))
    }

    /// True if a run is more than a slice away from a byte that it will bring.
    pub fn is_far(&self, run: &Run, position: u64) -> bool {
        position.saturating_sub(run.progress().0) > self.set.size.max(DEEP)
    }

    /// Fulfils the wish of a reader that the run be cut, if there is one and the run is still slow.
    pub(crate) fn cut_as_wished(&self, run: &Run) {
        // So that nobody claims meanwhile.
        let _state = self.state();
        run.cut_as_wished();
    }

    /// Range that a run from `position` on may ask for: its slice, and those that follow and are
    /// missing, too, up to `end`.
    fn claimable(&self, state: &State, position: u64, end: u64) -> Range<u64> {
        let first = self.set.index_of(position);
        let first_span = self.set.span(first);
        let before = first_span.start..position;
        let is_begun = state.runs.iter().any(|run| run.brings(&before));
        let tail = state.tail(first).map(|tail| tail.filling.memory_start());
        let may_wait = self.tails.has_room(first_span.end - first_span.start);
        let is_deep = |depth| depth >= self.deep && tail.is_none() && may_wait;
        let start = match position - first_span.start {
            // A gap is stored with its tail if it is whole.
            depth if is_begun || is_deep(depth) => position,
            _ => first_span.start,
        };
        let others = state.runs.iter().map(|run| run.start).chain(tail);
        // One that began before has passed, or it would cover the byte.
        let next = others.filter(|next| *next > position && *next < first_span.end);
        if let Some(next) = next.min() {
            // INVARIANT 1.
            return start..next;
        }
        let mut last = first_span.end;
        for index in (first..first.saturating_add(RUN_SLICES)).skip(1) {
            let span = self.set.span(index);
            let is_wanted = span.start < end && !span.is_empty();
            let fits = span.end.saturating_sub(first_span.start) <= RUN_BYTES;
            if !is_wanted || !fits || self.is_taken(state, index) {
                break;
            }
            last = span.end;
        }
        start..last
    }

    fn is_taken(&self, state: &State, index: u64) -> bool {
        let span = self.set.span(index);
        state.tail(index).is_some()
            || state.runs.iter().any(|run| run.brings(&span))
            || self.store.peek(&self.key(index))
    }

    fn claim(&self, state: &mut State, span: Range<u64>, purpose: Purpose) -> Arc<Run> {
        let index = self.set.index_of(span.start);
        let slice = self.set.span(index);
        let slice_len = slice.end - slice.start;
        let has_tail = state.tail(index).is_some();
        if span.start > slice.start && span.end >= slice.end && !has_tail {
            state.tails.push(Arc::new(Tail {
                index,
                filling: Arc::new(Filling::new(slice, span.start)),
                state: Mutex::new(TailState::Arriving),
                changed: Notify::new(),
                _room: self.tails.take(slice_len),
            }));
        }
        let run = Arc::new(Run::new(span, purpose, &self.windows));
        state.runs.push(Arc::clone(&run));
        run
    }

    /// A run for bytes that arrive already; `None` if somebody else brings the first of them, or
    /// they are held.
    pub fn adopt(&self, span: Range<u64>, purpose: Purpose) -> Option<Arc<Run>> {
        let mut state = self.state();
        let first = self.set.index_of(span.start);
        if span.is_empty() || self.is_taken(&state, first) {
            return None;
        }
        let mut end = self.set.span(first).end;
        while end < span.end && !self.is_taken(&state, self.set.index_of(end)) {
            end = self.set.round_up(end + 1);
        }
        let end = self.usable(span.start, end.min(span.end));
        Some(self.claim(&mut state, span.start..end, purpose))
    }

    /// End of the bytes from `start` on that a run should fetch, if it ends at `end`: of a slice
    /// whose rest is missing nothing is stored, but without its first slice a run has nothing.
    fn usable(&self, start: u64, end: u64) -> u64 {
        let first_end = self.set.span(self.set.index_of(start)).end;
        if end <= first_end || end >= self.set.total {
            return end;
        }
        self.set.span(self.set.index_of(end)).start
    }

    /// The answer to a run ends here.
    pub(crate) fn shorten(&self, run: &Run, end: u64) {
        let mut state = self.state();
        if end >= run.end() {
            return;
        }
        run.shorten(self.usable(run.start, end));
        // INVARIANT 3: the slice of a tail ends behind what will come.
        let slice_end = self.set.span(self.set.index_of(run.start)).end;
        if end < slice_end {
            state.tails.retain(|tail| !tail.is_left_by(run));
        }
    }

    /// Claims the first missing slice from `index` on and those that follow it, `count` at most,
    /// for nobody in particular, and no more than the rest of its extent.
    pub fn claim_ahead(
        &self,
        (index, count): (u64, u64),
        extents: Option<Extents>,
    ) -> Option<Arc<Run>> {
        let mut state = self.state();
        let wanted = index..index.saturating_add(count);
        let first = wanted
            .clone()
            .find(|index| !self.set.span(*index).is_empty() && !self.is_taken(&state, *index))?;
        let start = self.set.span(first).start;
        let limit = extents.map_or(u64::MAX, |it| it.end(self.set.size, start));
        let end = self.set.span(wanted.end - 1).end.min(limit);
        let span = self.claimable(&state, start, end);
        Some(self.claim(&mut state, span, Purpose::Cache))
    }

    /// The tail of a slice.
    pub(crate) fn tail(&self, index: u64) -> Option<Arc<Tail>> {
        self.state().tail(index).cloned()
    }

    /// Claims the gap before a tail, if nobody has.
    pub(crate) fn claim_gap(&self, tail: &Tail) -> Option<Arc<Run>> {
        let mut state = self.state();
        let gap = self.set.span(tail.index).start..tail.filling.memory_start();
        let is_listed = state.tails.iter().any(|other| other.index == tail.index);
        let is_claimed = state.runs.iter().any(|run| run.brings(&gap));
        (is_listed && !is_claimed && !gap.is_empty())
            .then(|| self.claim(&mut state, gap, Purpose::Cache))
    }

    /// INVARIANT 3.
    pub(crate) fn drop_tail(&self, index: u64) {
        self.state().tails.retain(|tail| tail.index != index);
    }

    /// Ends a run. INVARIANT 2.
    pub(crate) fn end(&self, run: &Arc<Run>, end: RunEnd) {
        let mut state = self.state();
        state.runs.retain(|other| !Arc::ptr_eq(other, run));
        // INVARIANT 3: a tail that has not come whole by now will not, and one whose gap did not
        // come is not kept for another.
        state
            .tails
            .retain(|tail| !tail.is_left_by(run) && !self.is_gap(run, tail));
        drop(state);
        run.finish(end);
    }

    /// True if a run was to bring what lies before a tail that is there.
    fn is_gap(&self, run: &Run, tail: &Tail) -> bool {
        self.set.index_of(run.start) == tail.index
            && run.start < tail.filling.memory_start()
            && !tail.is_arriving()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Keeps runs for readers going.
#[derive(Debug)]
pub struct Attendance(Arc<Generation>);

impl Attendance {
    /// Generation of the body that is read.
    pub fn generation(&self) -> &Arc<Generation> {
        &self.0
    }
}

impl Drop for Attendance {
    fn drop(&mut self) {
        self.0.readers.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Tail {
    fn is_arriving(&self) -> bool {
        *self.state() == TailState::Arriving
    }

    /// Ends a tail that will not come whole, since its run goes no further; true if the tail was of
    /// this run.
    fn is_left_by(&self, run: &Run) -> bool {
        let is_left = self.filling.memory_start() == run.start && self.is_arriving();
        if is_left {
            self.finish(false);
        }
        is_left
    }

    /// Notes that the tail has come to its end, or will not.
    pub(crate) fn finish(&self, is_whole: bool) {
        let end = if is_whole {
            TailState::Whole
        } else {
            TailState::Broken
        };
        *self.state() = end;
        self.changed.notify_waiters();
    }

    /// Waits for the end of the tail; true if it is whole.
    pub(crate) async fn whole(&self) -> bool {
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            changed.as_mut().enable();
            let state = *self.state();
            if state != TailState::Arriving {
                return state == TailState::Whole;
            }
            changed.await;
        }
    }

    fn state(&self) -> MutexGuard<'_, TailState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The generation of an entry in slices.
pub(crate) fn of_entry(store: &Arc<Zone>, found: &FoundEntry) -> Option<Generation> {
    let set = found.head.sliced?;
    Some(Generation::new(
        Arc::clone(store),
        found.key,
        &found.head,
        set,
    ))
}

#[cfg(test)]
mod tests;
