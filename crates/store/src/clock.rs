//! Time as an argument: the zone asks a clock, and tests move it by hand.
//!
//! A zone uses the time of day only, for the age of entries and for when they were used. A clock
//! that jumps makes entries inactive too early or too late, and does no other harm.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Tells the time of day.
pub trait Clock: Send + Sync {
    /// Milliseconds since 1970-01-01 00:00 UTC.
    fn now(&self) -> u64;
}

/// The machine's clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> u64 {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        since.map_or(0, |passed| passed.as_millis() as u64)
    }
}

/// A clock that stands still until it is told to move.
#[derive(Debug)]
pub struct ManualClock(AtomicU64);

impl ManualClock {
    /// A clock that shows `now_ms`.
    pub fn new(now_ms: u64) -> Self {
        Self(AtomicU64::new(now_ms))
    }

    /// Moves the clock forward.
    pub fn advance(&self, by: Duration) {
        self.0.fetch_add(by.as_millis() as u64, Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }
}
