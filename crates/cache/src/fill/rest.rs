//! Rest of a body after the store has given its fill up: it goes through memory, to those who read
//! along.
//!
//! ```text
//!   0 ........... the view ......... begun ........ the window ........ at
//!   in the store, readable by all          in memory, for the seats
//! ```
//!
//! Everybody who reads a fill has a [`Seat`] from the beginning on, whether or not it comes to
//! that. The store gives up where it will; what it has stays readable through the view, and from
//! there on bytes go through a window (`crate::window`): the origin is read as fast as the slowest
//! seat, and one that keeps others waiting too long is let go. Where the version has a strong
//! validator and the origin serves ranges, that one asks for the rest itself.
//!
//! Invariants:
//! 1. Nobody takes a seat once something that it would need was dropped.
//! 2. Whoever has a seat and is not let go gets every byte, and is told how the body ended.

use std::future::Future;
use std::ops::{Deref, Range};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use millpond_store::Region;
use tokio::sync::Notify;

use crate::exchange::FetchEnd;
use crate::window::{self, Laggards, Room, SeatId, Window, WindowMemory};

/// The rest of a body, for all who read it.
#[derive(Debug)]
pub struct Rest {
    state: Mutex<State>,
    /// True once the store has given up; to be seen without the lock.
    is_begun: AtomicBool,
    /// More has come, or the end.
    came: Notify,
    /// A seat has moved or was left.
    moved: Notify,
}

#[derive(Debug)]
struct State {
    window: Window,
    /// End of the view, once the store has given up.
    begun: Option<u64>,
    /// The next byte to come.
    at: u64,
    end: Option<Result<(), FetchEnd>>,
    /// Changes whenever something else does.
    version: u64,
}

/// A place among those who read a fill.
#[derive(Debug)]
pub struct Seat {
    rest: Arc<Rest>,
    id: SeatId,
}

/// Part of the rest that there is.
#[derive(Debug)]
pub enum Look {
    /// The view has the bytes.
    InView,
    /// Bytes from the one that was asked for on.
    Bytes(Vec<Region>),
    /// Nothing yet; the version to wait behind.
    Wait(u64),
    /// The byte came, and was dropped before this reader took it.
    LetGo,
    /// The body has ended; an error says that it broke off.
    End(Result<(), FetchEnd>),
}

impl Rest {
    pub(crate) fn new(windows: &WindowMemory, laggards: Laggards) -> Arc<Self> {
        Arc::new(Rest {
            state: Mutex::new(State {
                window: Window::new(windows.clone(), laggards),
                begun: None,
                at: 0,
                end: None,
                version: 0,
            }),
            is_begun: AtomicBool::new(false),
            came: Notify::new(),
            moved: Notify::new(),
        })
    }

    /// The rest of a body that is all in its view.
    pub(super) fn of_nothing(end: Result<(), FetchEnd>) -> Arc<Self> {
        let rest = Rest::new(&WindowMemory::default(), Laggards::Awaited);
        rest.end(end);
        rest
    }

    /// A seat for whoever reads from the first byte on; `None` where that is too late.
    pub fn sit(self: &Arc<Self>) -> Option<Seat> {
        let mut state = self.state();
        let begun = state.begun.filter(|begun| *begun < state.at);
        // INVARIANT 1.
        if begun.is_some_and(|begun| !state.window.has(begun)) {
            return None;
        }
        Some(Seat {
            id: state.window.sit(0),
            rest: Arc::clone(self),
        })
    }

    /// A seat for whoever reads from the first byte on; only before it has come to anything.
    pub(super) fn first_seat(self: &Arc<Self>) -> Seat {
        Seat {
            id: self.state().window.sit(0),
            rest: Arc::clone(self),
        }
    }

    /// The view ends here: what follows goes through the window.
    pub(super) fn begin(&self, at: u64) {
        self.change(|state| {
            state.begun = Some(at);
            state.at = at;
        });
        self.is_begun.store(true, Ordering::Release);
    }

    /// More bytes.
    pub(super) fn push(&self, bytes: Bytes) {
        self.change(|state| {
            let (at, len) = (state.at, bytes.len() as u64);
            state.window.push(at, Region::Memory(bytes));
            state.at = at + len;
        });
    }

    /// Waits until the window has room; false if nobody reads.
    pub(super) async fn room(&self) -> bool {
        let look = |now| {
            let mut state = self.state();
            let head = state.at;
            if !state.window.has_seats() {
                return Ok(false);
            }
            match state.window.room(head, now) {
                Room::Yes => Ok(true),
                Room::Later(until) => Err(until),
            }
        };
        window::room(&self.moved, look).await
    }

    /// The body has ended.
    pub(super) fn end(&self, end: Result<(), FetchEnd>) {
        self.change(|state| {
            state.end.get_or_insert(end);
        });
    }

    /// Number of bytes that have come in all, once the store has given up.
    pub fn received(&self) -> Option<u64> {
        let state = self.state();
        state.begun.map(|_| state.at)
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        let mut state = self.state();
        change(&mut state);
        state.version += 1;
        drop(state);
        self.came.notify_waiters();
    }

    async fn changed(&self, version: u64) {
        loop {
            let mut came = std::pin::pin!(self.came.notified());
            came.as_mut().enable();
            if self.state().version != version {
                return;
            }
            came.await;
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Seat {
    /// Notes that the seat's reader has read up to here.
    pub fn move_to(&self, position: u64) {
        // Until then nobody waits for it.
        if !self.rest.is_begun.load(Ordering::Acquire) {
            return;
        }
        self.rest.state().window.move_to(self.id, position);
        self.rest.moved.notify_waiters();
    }

    /// Part of a range that there is, from its start on, for a reader that has read all that the
    /// view has: the seat is there from now on.
    pub fn look(&self, range: &Range<u64>) -> Look {
        self.move_to(range.start);
        let state = self.rest.state();
        if state.begun.is_some_and(|begun| range.start < begun) {
            return Look::InView;
        }
        let regions = state.window.regions(range);
        if !regions.is_empty() {
            return Look::Bytes(regions);
        }
        if state.begun.is_some() && range.start < state.at {
            return Look::LetGo;
        }
        match state.end {
            Some(end) => Look::End(end),
            None => Look::Wait(state.version),
        }
    }

    /// True if the store has given the fill up, so that its origin may wait for its readers.
    pub fn is_begun(&self) -> bool {
        self.rest.is_begun.load(Ordering::Acquire)
    }

    /// Waits until something has changed since `version`.
    pub fn changed(&self, version: u64) -> impl Future<Output = ()> + use<> {
        let rest = Arc::clone(&self.rest);
        async move { rest.changed(version).await }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.rest.state().window.leave(self.id);
        self.rest.moved.notify_waiters();
    }
}

/// The obligation to end it: dropped in any way, it ends the body.
#[derive(Debug)]
pub struct Source(Arc<Rest>);

impl Source {
    /// Source of the rest: its holder brings the rest.
    pub fn new(rest: Arc<Rest>) -> Self {
        Source(rest)
    }
}

impl Deref for Source {
    type Target = Rest;

    fn deref(&self) -> &Rest {
        &self.0
    }
}

impl Drop for Source {
    fn drop(&mut self) {
        self.0.end(Err(FetchEnd::Truncated));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::window::WINDOW_BYTES;

    fn rest() -> Arc<Rest> {
        Rest::new(&WindowMemory::default(), Laggards::Resume)
    }

    fn bytes(len: u64) -> Bytes {
        Bytes::from(vec![b'x'; len as usize])
    }

    #[tokio::test(start_paused = true)]
    async fn who_comes_too_late_gets_no_seat() {
        let rest = rest();
        let first = rest.sit().unwrap();
        rest.begin(100);
        let second = rest.sit().unwrap();
        rest.push(bytes(10));
        let third = rest.sit().unwrap();
        for seat in [&first, &second, &third] {
            assert!(matches!(seat.look(&(99..200)), Look::InView));
            assert!(matches!(seat.look(&(100..200)), Look::Bytes(_)));
            assert!(matches!(seat.look(&(110..200)), Look::Wait(_)));
        }
        assert!(rest.sit().is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn a_reader_that_is_let_go_is_told_and_the_others_get_the_end() {
        let rest = rest();
        let (slow, fast) = (rest.sit().unwrap(), rest.sit().unwrap());
        rest.begin(0);
        rest.push(bytes(WINDOW_BYTES));
        fast.move_to(WINDOW_BYTES);
        assert!(rest.room().await);
        rest.push(bytes(1));
        rest.end(Ok(()));
        assert!(matches!(slow.look(&(0..u64::MAX)), Look::LetGo));
        assert!(matches!(
            fast.look(&(WINDOW_BYTES..u64::MAX)),
            Look::Bytes(_)
        ));
        let end = WINDOW_BYTES + 1;
        assert!(matches!(fast.look(&(end..u64::MAX)), Look::End(Ok(()))));
        drop((slow, fast));
        assert!(!rest.room().await);
    }

    #[tokio::test(start_paused = true)]
    async fn a_source_that_goes_ends_the_body() {
        let rest = rest();
        let seat = rest.sit().unwrap();
        let Look::Wait(version) = seat.look(&(0..10)) else {
            panic!("nothing has come");
        };
        drop(Source::new(Arc::clone(&rest)));
        seat.changed(version).await;
        assert!(matches!(
            seat.look(&(0..10)),
            Look::End(Err(FetchEnd::Truncated))
        ));
    }
}
