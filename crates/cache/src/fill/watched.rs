//! State of a fill that others wait for, on whatever thread.
//!
//! Nearly all fills have nobody who waits: then a change costs a lock that nobody else holds and a
//! look at a number.
//!
//! Invariant: who waits looks after it was entered among those who are woken, so that no change is
//! missed.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

/// A value that changes, and who waits for that.
#[derive(Debug)]
pub(super) struct Watched<T> {
    value: Mutex<T>,
    changed: Notify,
    listeners: AtomicU32,
}

impl<T> Watched<T> {
    /// A value that nobody waits for.
    pub(super) fn new(value: T) -> Self {
        Watched {
            value: Mutex::new(value),
            changed: Notify::new(),
            listeners: AtomicU32::new(0),
        }
    }

    /// The value; not to be held for long.
    pub(super) fn value(&self) -> MutexGuard<'_, T> {
        self.value.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the value, and wakes who waits.
    pub(super) fn set(&self, value: T) {
        *self.value() = value;
        self.changed.notify_waiters();
    }

    /// Waits until `known` makes something of the value.
    pub(super) async fn until<K>(&self, known: impl Fn(&T) -> Option<K>) -> K {
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            // The invariant.
            changed.as_mut().enable();
            if let Some(known) = known(&self.value()) {
                return known;
            }
            changed.await;
        }
    }

    /// One more listens.
    pub(super) fn enter(&self) {
        self.listeners.fetch_add(1, Ordering::Relaxed);
    }

    /// Notes that one of the listeners listens no more.
    pub(super) fn leave(&self) {
        self.listeners.fetch_sub(1, Ordering::Relaxed);
    }

    /// Number of listeners.
    pub(super) fn listeners(&self) -> u32 {
        self.listeners.load(Ordering::Relaxed)
    }
}
