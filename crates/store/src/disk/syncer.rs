//! The thread that syncs: a disk that takes seconds to sync goes on being written to meanwhile.
//!
//! The disk thread asks for a sync when it is idle, or has not been for long; the syncer does one
//! at a time. What is asked for during one is done after it.
//!
//! 1. The syncer ends before the disk thread does.
//! 2. A segment counts as written to after its write, so what a sync came too early for is synced
//!    by the next one.

use std::sync::{Condvar, Mutex, PoisonError};

use crate::lock::lock;

/// Requests and answers between the disk thread and the thread that syncs.
#[derive(Debug, Default)]
pub(crate) struct Syncer {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    is_wanted: bool,
    is_over: bool,
}

/// Ends the syncer when the disk thread ends in any way.
pub(crate) struct EndsSyncer<'a>(pub(crate) &'a Syncer);

impl Drop for EndsSyncer<'_> {
    fn drop(&mut self) {
        lock(&self.0.state).is_over = true;
        self.0.changed.notify_one();
    }
}

impl Syncer {
    /// Asks for a sync; never waits for it.
    pub(crate) fn ask(&self) {
        lock(&self.state).is_wanted = true;
        self.changed.notify_one();
    }

    /// Waits until a sync is wanted; false at the end.
    pub(crate) fn wait(&self) -> bool {
        let mut state = lock(&self.state);
        loop {
            if state.is_over {
                return false;
            }
            if std::mem::take(&mut state.is_wanted) {
                return true;
            }
            let waited = self.changed.wait(state);
            state = waited.unwrap_or_else(PoisonError::into_inner);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_for_is_done_once_and_the_end_is_seen() {
        let syncer = Syncer::default();
        syncer.ask();
        syncer.ask();
        assert!(syncer.wait());
        let waited = std::thread::scope(|scope| {
            let waiting = scope.spawn(|| syncer.wait());
            drop(EndsSyncer(&syncer));
            waiting.join()
        });
        assert!(!waited.expect("the waiting thread does not panic"));
    }
}
