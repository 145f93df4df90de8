//! Running fills, as purges see them: what began before a purge must not be found after it.
//!
//! ```text
//!   Open ──► Ending: it may store, and its rules wait for it ──► over
//!     └────► Doomed: a rule was about it; it stores nothing, and nobody waits for it
//! ```
//!
//! A fill has the serial of its beginning, which goes into the head that it stores, so the rules in
//! force are about it like about any entry. What this adds is that rules may retire while a long
//! fill runs: before, each running fill is judged once, and doomed where a rule is about it.
//!
//! What purges see of a fill is a part of it ([`Runs`]), so that a fill is one allocation.

use std::fmt::Debug;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;

use super::book::{Judged, PurgeBook, Subject};

/// A fill, as far as purges look at it.
pub(crate) trait Runs: Debug + Send + Sync + 'static {
    /// State of the fill as purges see it.
    fn running(&self) -> &Running;
}

/// State of a fill that runs, as purges see it.
#[derive(Debug)]
pub(crate) struct Running {
    text: Bytes,
    serial: u64,
    /// True if what the fill fetches is older than a change of the resource.
    is_outdated: AtomicBool,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    phase: Phase,
    /// Tags of the answer, once its head is known.
    tags: Option<Bytes>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Open,
    Ending,
    Doomed,
}

impl Running {
    pub(super) fn new(text: Bytes, serial: u64) -> Self {
        let state = State {
            phase: Phase::Open,
            tags: None,
        };
        Running {
            text,
            serial,
            is_outdated: AtomicBool::new(false),
            state: Mutex::new(state),
        }
    }

    /// Text of the fill's key.
    pub(crate) fn text(&self) -> &Bytes {
        &self.text
    }

    /// True if a purge is about the fill, as far as it is known; then nobody may join it any more.
    pub(crate) fn is_purged(&self, book: &PurgeBook) -> bool {
        if self.is_outdated.load(Ordering::Acquire) {
            return true;
        }
        if self.serial >= book.newest() {
            return false;
        }
        let state = self.state();
        state.phase == Phase::Doomed || self.judge(&state, book) != Judged::Untouched
    }

    /// Keeps the fill from being stored and joined, if it is of this key.
    pub(super) fn outdate(&self, text: &[u8]) {
        if self.text == text {
            self.part();
        }
    }

    /// Keeps the fill from being stored and joined.
    pub(super) fn part(&self) {
        self.is_outdated.store(true, Ordering::Release);
    }

    /// Serial up to which rules need not wait for the fill.
    pub(super) fn settle(&self, book: &PurgeBook, newest: u64) -> u64 {
        if self.serial >= newest {
            return newest;
        }
        let mut state = self.state();
        match state.phase {
            Phase::Doomed => newest,
            Phase::Ending => self.serial,
            Phase::Open if state.tags.is_none() => self.serial,
            Phase::Open => {
                if self.judge(&state, book) != Judged::Untouched {
                    state.phase = Phase::Doomed;
                }
                newest
            }
        }
    }

    fn judge(&self, state: &State, book: &PurgeBook) -> Judged {
        book.judge(&Subject {
            text: &self.text,
            tags: state.tags.as_deref().unwrap_or_default(),
            serial: self.serial,
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Holds a fill's place among those that run, until it is dropped.
#[derive(Debug)]
pub(crate) struct RunningFill<F> {
    book: Arc<PurgeBook>,
    fill: Arc<F>,
    place: usize,
}

impl<F> Deref for RunningFill<F> {
    type Target = Arc<F>;

    fn deref(&self) -> &Arc<F> {
        &self.fill
    }
}

impl<F: Runs> RunningFill<F> {
    pub(super) fn new(book: Arc<PurgeBook>, fill: Arc<F>, place: usize) -> Self {
        RunningFill { book, fill, place }
    }

    /// Newest serial when the fill began.
    pub(crate) fn serial(&self) -> u64 {
        self.fill.running().serial
    }

    /// Notes the tags, once the head is known.
    pub(crate) fn know(&self, tags: Bytes) {
        self.fill.running().state().tags = Some(tags);
    }

    /// True if a purge is about the fill, as far as it is known.
    pub(crate) fn is_purged(&self) -> bool {
        self.fill.running().is_purged(&self.book)
    }

    /// True if the fill may store now; if so, the rules wait until it is over. Not even for a soft
    /// purge, because a newer answer may be there by now.
    pub(crate) fn may_store(&self) -> bool {
        let running = self.fill.running();
        let mut state = running.state();
        if running.is_outdated.load(Ordering::Acquire) {
            return false;
        }
        let judged = running.judge(&state, &self.book);
        if state.phase == Phase::Doomed || judged != Judged::Untouched {
            return false;
        }
        state.phase = Phase::Ending;
        true
    }
}

impl<F> Drop for RunningFill<F> {
    fn drop(&mut self) {
        self.book.end(self.place);
    }
}
