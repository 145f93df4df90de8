//! The exporters of the process: counts of what became of their records, and the end of all of
//! them.
//!
//! There is one for each signal of each configuration that has requests, so more than one of a
//! signal for a while after a reload.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use crate::signal::Signal;

/// The count of what became of records since the process began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Records that a collector has taken.
    pub sent: u64,
    /// Records that were sent and not taken, or could not be sent.
    pub failed: u64,
    /// Records for which there was no room, or no time at the end.
    pub dropped: u64,
}

/// A thread's order to send what is left and end, and what wakes it besides.
#[derive(Debug, Default)]
pub(crate) struct Stop {
    wake: Notify,
    is_told: AtomicBool,
}

impl Stop {
    /// Wakes the thread.
    pub(crate) fn wake(&self) {
        self.wake.notify_one();
    }

    /// Has the thread end.
    pub(crate) fn end(&self) {
        self.is_told.store(true, Ordering::Release);
        self.wake();
    }

    /// True once it was told to end.
    pub(crate) fn is_told(&self) -> bool {
        self.is_told.load(Ordering::Acquire)
    }

    /// Waits to be woken.
    pub(crate) async fn woken(&self) {
        self.wake.notified().await;
    }
}

/// Counters of one signal.
#[derive(Debug, Default)]
struct Tally {
    sent: AtomicU64,
    failed: AtomicU64,
    dropped: AtomicU64,
}

/// The exporters of the process.
#[derive(Debug, Default)]
pub struct Exporters {
    traces: Tally,
    metrics: Tally,
    logs: Tally,
    running: Mutex<Vec<Arc<Stop>>>,
    one_ended: Condvar,
}

impl Exporters {
    /// The counts of a signal now.
    pub fn counts(&self, signal: Signal) -> Counts {
        let tally = self.of(signal);
        Counts {
            sent: tally.sent.load(Ordering::Relaxed),
            failed: tally.failed.load(Ordering::Relaxed),
            dropped: tally.dropped.load(Ordering::Relaxed),
        }
    }

    fn of(&self, signal: Signal) -> &Tally {
        match signal {
            Signal::Traces => &self.traces,
            Signal::Metrics => &self.metrics,
            Signal::Logs => &self.logs,
        }
    }

    /// Has all exporters send what they have and end, and waits for that, but not for longer than
    /// a time.
    pub fn finish(&self, timeout: Duration) {
        let running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        running.iter().for_each(|stop| stop.end());
        let waited = self
            .one_ended
            .wait_timeout_while(running, timeout, |running| !running.is_empty());
        drop(waited);
    }

    pub(crate) fn add_sent(&self, signal: Signal, count: u64) {
        self.of(signal).sent.fetch_add(count, Ordering::Relaxed);
    }

    pub(crate) fn add_failed(&self, signal: Signal, count: u64) {
        self.of(signal).failed.fetch_add(count, Ordering::Relaxed);
    }

    pub(crate) fn add_dropped(&self, signal: Signal, count: u64) {
        self.of(signal).dropped.fetch_add(count, Ordering::Relaxed);
    }

    pub(crate) fn began(&self, stop: Arc<Stop>) {
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        running.push(stop);
    }

    pub(crate) fn ended(&self, stop: &Arc<Stop>) {
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        running.retain(|other| !Arc::ptr_eq(other, stop));
        self.one_ended.notify_all();
    }
}
