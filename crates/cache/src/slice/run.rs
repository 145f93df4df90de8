//! A run: one request to the origin for neighbouring slices, and who reads along.
//!
//! ```text
//!   start ........... at ............ end
//!     │ passed: in the store, in a    │ ahead
//!     │ filling, in the window, gone  │
//! ```
//!
//! Who reads along has a [`Seat`], so that the run knows what is still wanted of it: a slice that
//! was stored is read from here as long as somebody stands in it, since the store may have evicted
//! it already, and what the store did not take is in a window of memory (`crate::window`).
//!
//! A reader far behind a slow run wishes that the run be cut; who drives the run fulfils the wish
//! at a moment when it has read all that has come (`pump.rs`), since what the origin has sent
//! already would come twice.
//!
//! Invariants:
//! 1. A run covers what is ahead of it and what it still has, and nothing else.
//! 2. Who sits before a byte that is ahead is given it, unless the run ends or is cut before it.

use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use millpond_store::Region;
use tokio::sync::Notify;

use super::filling::Filling;
use crate::clock;
use crate::use_stale::StaleCause;
use crate::window::{self, Laggards, Room, SeatId, Window, WindowMemory};

/// Time that a run whose window is full waits for somebody who reads it (arbitrary: who reads the
/// slices before it comes within that, or hardly at all).
const FIRST_READER: Duration = Duration::from_secs(1);
/// Number of looks within which a run must arrive, at its pace since the last one, and for which it
/// may stand still (arbitrary: half a second).
pub(super) const LOOKS_MAX: u64 = 10;

/// Purpose of a run, which decides how long it goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// The run is for readers: it ends with a slice when nobody reads the body any more.
    Readers,
    /// The run goes on to its end.
    Cache,
}

/// One request to the origin for neighbouring slices.
#[derive(Debug)]
pub struct Run {
    /// The first byte.
    pub start: u64,
    /// Purpose of the run, which decides how long it goes on.
    pub purpose: Purpose,
    state: Mutex<RunState>,
    changed: Notify,
    /// A seat was taken, left, or has moved.
    moved: Notify,
    /// A reader wishes that the run be cut.
    wished: Notify,
    /// Number of bodies that were read from the run.
    readers: AtomicU32,
}

#[derive(Debug)]
struct RunState {
    /// The next byte to come.
    at: u64,
    /// The first byte behind the run.
    end: u64,
    /// The slice that arrives, and those that were stored and that somebody stands in.
    fillings: Vec<Part>,
    /// Bytes that the store did not take, and the seats.
    window: Window,
    ended: Option<RunEnd>,
    /// The origin has begun to answer.
    is_answered: bool,
    /// The wish of the reader who is nearest.
    wish: Option<Wish>,
    /// Changes whenever something else does.
    version: u64,
}

/// A reader's wish that another run bring its slice, since this one is too slow.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wish {
    /// The first byte of the slice.
    pub(super) slice: u64,
    /// The byte that the reader wants first.
    pub(super) position: u64,
    /// Progress of the run one look before.
    pub(super) seen_at: u64,
}

#[derive(Debug)]
struct Part {
    filling: Arc<Filling>,
    is_stored: bool,
}

/// A place among those who read a run.
#[derive(Debug)]
pub struct Seat {
    run: Arc<Run>,
    id: SeatId,
}

/// End of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunEnd {
    /// The run brought what it could; what is missing now must be asked for anew.
    Done,
    /// The origin has another version.
    Changed,
    /// The origin answered with this status, which is not for the cache, such as an error's.
    Refused(u16),
    /// The origin gave no answer, or it broke off.
    Failed {
        /// Status that a client gets for the failure.
        status: u16,
        /// Word of `proxy_cache_use_stale` for the failure.
        cause: Option<StaleCause>,
    },
}

/// Result of looking for a byte in a run.
#[derive(Debug)]
pub enum Look {
    /// Bytes from the one that was asked for on.
    Bytes(Vec<Region>),
    /// Nothing yet; the version to wait behind.
    Wait(u64),
    /// Nothing any more.
    Gone(Option<RunEnd>),
}

impl Run {
    pub(super) fn new(span: Range<u64>, purpose: Purpose, windows: &WindowMemory) -> Self {
        Run {
            start: span.start,
            purpose,
            state: Mutex::new(RunState {
                at: span.start,
                end: span.end,
                fillings: Vec::new(),
                // Whoever is let go asks for the rest by a run of its own.
                window: Window::new(windows.clone(), Laggards::Resume),
                ended: None,
                is_answered: false,
                wish: None,
                version: 0,
            }),
            changed: Notify::new(),
            moved: Notify::new(),
            wished: Notify::new(),
            readers: AtomicU32::new(0),
        }
    }

    /// Notes that one more body is read from the run.
    pub(crate) fn join(&self) {
        self.readers.fetch_add(1, Ordering::Relaxed);
    }

    /// Number of bodies that were read from the run.
    pub(crate) fn readers(&self) -> u32 {
        self.readers.load(Ordering::Relaxed)
    }

    /// A seat before a byte.
    pub fn sit(self: &Arc<Self>, position: u64) -> Seat {
        let id = self.state().window.sit(position);
        self.moved.notify_waiters();
        Seat {
            run: Arc::clone(self),
            id,
        }
    }

    /// Offset of the first byte behind the run; may be moved towards the start.
    pub fn end(&self) -> u64 {
        self.state().end
    }

    /// INVARIANT 1.
    pub(super) fn covers(&self, position: u64) -> bool {
        let state = self.state();
        (position >= state.at && position < state.end) || state.has(position)
    }

    /// True if the run will bring something of a span.
    pub(super) fn brings(&self, span: &Range<u64>) -> bool {
        let state = self.state();
        span.start < state.end && state.at < span.end
    }

    /// Wishes that the run be cut, if it is as slow as it looked.
    pub(super) fn wish_cut(&self, wish: Wish) {
        let mut state = self.state();
        let is_nearest = |other: Wish| wish.position <= other.position;
        if !state.is_due(&wish) || !state.wish.is_none_or(is_nearest) {
            return;
        }
        state.wish = Some(wish);
        drop(state);
        self.wished.notify_one();
    }

    /// Waits for a wish.
    pub(super) async fn wished(&self) {
        self.wished.notified().await;
    }

    /// Lets another run bring the slice of the wish and what follows it, if the run is still slow.
    pub(super) fn cut_as_wished(&self) {
        let mut state = self.state();
        let Some(wish) = state.wish.take() else {
            return;
        };
        if !state.is_due(&wish) {
            return;
        }
        state.end = wish.slice;
        state.version += 1;
        drop(state);
        self.changed.notify_waiters();
    }

    /// The next byte to come, and whether the origin has begun to answer.
    pub fn progress(&self) -> (u64, bool) {
        let state = self.state();
        (state.at, state.is_answered)
    }

    /// The origin has begun to answer.
    pub(crate) fn answered(&self) {
        self.state().is_answered = true;
    }

    /// The answer ends here.
    pub(super) fn shorten(&self, end: u64) {
        let mut state = self.state();
        state.end = state.end.min(end);
    }

    /// A slice begins to arrive.
    pub(crate) fn add(&self, filling: &Arc<Filling>) {
        self.state().fillings.push(Part {
            filling: Arc::clone(filling),
            is_stored: false,
        });
    }

    /// A slice has come and is in the store, or need not be read from here.
    pub(crate) fn land(&self, filling: &Arc<Filling>) {
        let mut state = self.state();
        for part in &mut state.fillings {
            part.is_stored |= Arc::ptr_eq(&part.filling, filling);
        }
        state.prune();
    }

    /// The store does not take a slice: what has come of it stays in the window.
    pub(crate) fn give_up(&self, filling: &Arc<Filling>) {
        let mut state = self.state();
        let before = state.fillings.len();
        state
            .fillings
            .retain(|part| !Arc::ptr_eq(&part.filling, filling));
        if state.fillings.len() == before {
            // It stays there already.
            return;
        }
        let mut at = filling.span().start;
        for region in filling.regions(filling.span().clone()) {
            let len = region.len();
            state.window.push(at, region);
            at += len;
        }
    }

    /// Bytes that are not stored.
    pub(crate) fn push(&self, at: u64, region: Region) {
        self.state().window.push(at, region);
    }

    /// Waits until the window has room; false if nobody reads what is not stored.
    pub(crate) async fn room(&self, is_deserted: impl Fn() -> bool) -> bool {
        let patience = clock::now().checked_add(FIRST_READER);
        let look = |now| {
            let mut state = self.state();
            let (head, is_alone) = (state.at, !state.window.has_seats());
            if is_alone && self.readers() > 0 && is_deserted() {
                return Ok(false);
            }
            match state.window.room(head, now) {
                Room::Yes => Ok(true),
                Room::Later(until) if !is_alone => Err(until),
                Room::Later(_) if patience.is_none_or(|patience| now >= patience) => Ok(false),
                Room::Later(_) => Err(patience),
            }
        };
        window::room(&self.moved, look).await
    }

    /// Bytes up to `at` can be read.
    pub(crate) fn advance(&self, at: u64) {
        let mut state = self.state();
        state.at = at;
        state.version += 1;
        drop(state);
        self.changed.notify_waiters();
    }

    pub(super) fn finish(&self, end: RunEnd) {
        let mut state = self.state();
        state.ended.get_or_insert(end);
        state.version += 1;
        drop(state);
        self.changed.notify_waiters();
    }

    /// Part of a range that can be read, from its start on.
    pub fn look(&self, range: Range<u64>) -> Look {
        let state = self.state();
        let regions = state.regions(&range);
        if !regions.is_empty() {
            return Look::Bytes(regions);
        }
        match state.ended {
            Some(end) => Look::Gone(Some(end)),
            None if range.start < state.at || range.start >= state.end => Look::Gone(None),
            None => Look::Wait(state.version),
        }
    }

    /// Waits until something has changed since `version`.
    pub async fn changed(&self, version: u64) {
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            changed.as_mut().enable();
            if self.state().version != version {
                return;
            }
            changed.await;
        }
    }

    fn state(&self) -> MutexGuard<'_, RunState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl RunState {
    /// True if the run will not come to a reader soon, and what it wants is still ahead and is not
    /// being filled.
    fn is_due(&self, wish: &Wish) -> bool {
        let left = wish.position.saturating_sub(self.at);
        let looks_left = left.checked_div(self.at.saturating_sub(wish.seen_at));
        let is_slow = looks_left.is_none_or(|looks| looks > LOOKS_MAX);
        is_slow && wish.slice > self.at && wish.slice < self.end
    }

    fn has(&self, position: u64) -> bool {
        let first = position..position.saturating_add(1);
        self.window.has(position) || !self.arriving(&first).is_empty()
    }

    fn regions(&self, range: &Range<u64>) -> Vec<Region> {
        match self.arriving(range) {
            regions if regions.is_empty() => self.window.regions(range),
            regions => regions,
        }
    }

    /// Regions of a range in slices that arrive, or are there.
    fn arriving(&self, range: &Range<u64>) -> Vec<Region> {
        let mut parts = self.fillings.iter().map(|part| &part.filling);
        let filling = parts.find(|filling| filling.span().contains(&range.start));
        filling.map_or(Vec::new(), |filling| filling.regions(range.clone()))
    }

    /// Forgets what is in the store and nobody stands in.
    fn prune(&mut self) {
        let window = &self.window;
        self.fillings
            .retain(|part| !part.is_stored || window.is_anyone_in(part.filling.span()));
    }
}

impl Seat {
    /// The run.
    pub fn run(&self) -> &Arc<Run> {
        &self.run
    }

    /// Notes that the seat's reader has read up to here.
    pub fn move_to(&self, position: u64) {
        let mut state = self.run.state();
        state.window.move_to(self.id, position);
        state.prune();
        drop(state);
        self.run.moved.notify_waiters();
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut state = self.run.state();
        state.window.leave(self.id);
        state.prune();
        drop(state);
        self.run.moved.notify_waiters();
    }
}
