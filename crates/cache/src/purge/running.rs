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
    /// What they see.
    fn running(&self) -> &Running;
}

/// What purges see of a fill that runs.
#[derive(Debug)]
pub(crate) struct Running {
    text: Bytes,
    serial: u64,
    /// What it fetches is older than a change of the resource.
    is_outdated: AtomicBool,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    phase: Phase,
    /// Its tags, once its head is known.
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

    /// The text of its key.
    pub(crate) fn text(&self) -> &Bytes {
        &self.text
    }

    /// Whether a purge is about it, as far as it is known; then nobody may join it any more.
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

    /// It stores nothing and nobody joins it, if it is of this key.
    pub(super) fn outdate(&self, text: &[u8]) {
        if self.text == text {
            self.part();
        }
    }

    /// It stores nothing and nobody joins it.
    pub(super) fn part(&self) {
        self.is_outdated.store(true, Ordering::Release);
    }

    /// Up to which serial rules need not wait for it.
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

    /// The newest serial when it began.
    pub(crate) fn serial(&self) -> u64 {
        self.fill.running().serial
    }

    /// Its head is known.
    pub(crate) fn know(&self, tags: Bytes) {
        self.fill.running().state().tags = Some(tags);
    }

    /// Whether a purge is about it, as far as it is known.
    pub(crate) fn is_purged(&self) -> bool {
        self.fill.running().is_purged(&self.book)
    }

    /// Whether it may store now; if so, the rules wait until it is over. Not even for a soft purge,
    /// because a newer answer may be there by now.
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
