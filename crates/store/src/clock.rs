//! Time as an argument: the zone asks a clock, and tests move it by hand.
//!
//! The time of day is for what outlives the process: the age of entries, and when they were used.
//! When it is set, entries become inactive too early or too late, and that is all the harm.
//! Whatever is a duration within the process (how long a fill runs, a read takes, a sync is due) is
//! measured by [`Clock::steady`], which nobody sets.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustix::time::{ClockId, clock_gettime};

/// Source of the time of day, and of a steady time that measures what has passed.
pub trait Clock: Send + Sync {
    /// Milliseconds since 1970-01-01 00:00 UTC.
    fn now(&self) -> u64;
    /// Milliseconds since a moment that is the same as long as the process runs, and long ago when
    /// it begins: 0 is never lately.
    fn steady(&self) -> u64;
    /// Milliseconds since the machine was booted, or another moment before the process began; goes
    /// on while the machine sleeps. For what must not be older than it seems.
    fn since_boot(&self) -> u64 {
        self.steady()
    }
}

/// Value that [`Clock::steady`] of the machine's clock begins with: a day (arbitrary, longer than
/// any span that is measured backwards).
const STEADY_BEGIN_MS: u64 = 24 * 3600 * 1000;

/// The machine's clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> u64 {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        since.map_or(0, |passed| passed.as_millis() as u64)
    }

    #[allow(clippy::disallowed_methods, reason = "the one place of this crate")]
    fn steady(&self) -> u64 {
        static BEGIN: OnceLock<Instant> = OnceLock::new();
        let now = Instant::now();
        let passed = now.saturating_duration_since(*BEGIN.get_or_init(|| now));
        STEADY_BEGIN_MS.saturating_add(passed.as_millis() as u64)
    }

    fn since_boot(&self) -> u64 {
        let time = clock_gettime(ClockId::Boottime);
        let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
        let millis = u64::try_from(time.tv_nsec / 1_000_000).unwrap_or(0);
        seconds.saturating_mul(1000).saturating_add(millis)
    }
}

/// A clock that stands still until it is told to move.
#[derive(Debug)]
pub struct ManualClock {
    wall_ms: AtomicU64,
    steady_ms: AtomicU64,
}

impl ManualClock {
    /// A clock that shows `now_ms`.
    pub fn new(now_ms: u64) -> Self {
        Self {
            wall_ms: AtomicU64::new(now_ms),
            steady_ms: AtomicU64::new(now_ms),
        }
    }

    /// Lets time pass.
    pub fn advance(&self, by: Duration) {
        let by_ms = by.as_millis() as u64;
        self.wall_ms.fetch_add(by_ms, Ordering::SeqCst);
        self.steady_ms.fetch_add(by_ms, Ordering::SeqCst);
    }

    /// Sets the time of day; no time passes.
    pub fn set(&self, now_ms: u64) {
        self.wall_ms.store(now_ms, Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> u64 {
        self.wall_ms.load(Ordering::SeqCst)
    }

    fn steady(&self) -> u64 {
        self.steady_ms.load(Ordering::SeqCst)
    }
}
