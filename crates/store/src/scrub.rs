//! `scrub`: comparing all that a disk holds with its checksums, once in a while, in the background.
//!
//! ```text
//!   resting ──a sweep, when it is due──► running ──all compared──► resting
//! ```
//!
//! A pass is a verification (`verify`) in a thread of its own, at the speed at which it would be
//! done in half of the time, within bounds. It begins when the volume is loaded, and then when the
//! time has passed since the last one began. What is corrupt is removed, and told, as in a look-up;
//! what the disk does not give is counted, and bodies of which that is so are not used any more.
//!
//! 1. A pass leaves in the page cache what it found there, and takes out of it what it brought in.
//! 2. Errors that it meets do not give a disk up: it looks for them, and a few bad blocks in a row
//!    are no reason to lose the rest.
//! 3. It ends when the volume is closed or given up, or the scrub is turned off.
//!
//! How far it was is not remembered over restarts.

use std::time::Duration;

use crate::lock::lock;
use crate::verify::{Care, Progress, Verified};
use crate::volume::{Event, Inner};

/// Bytes that a scrub reads in a second, at least and at most: hardly anything, and a third of what
/// a disk with a head gives. Arbitrary.
const SLOWEST: u64 = 1 << 20;
const FASTEST: u64 = 64 << 20;
/// Cost of an entry besides its bytes, as bytes: one more read.
const ENTRY_COST: u64 = 16 << 10;
/// Share of its time (one part in so many) in which a scrub is done.
const HASTE: u64 = 2;
/// The longest pause without a look at whether it is to end.
const PAUSE: Duration = Duration::from_millis(100);

/// State of a disk's scrub.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Scrub {
    /// Interval at which all is to be compared; zero: never.
    pub every: Duration,
    /// True if a pass runs.
    pub is_running: bool,
    /// Time when the pass that runs, or ran last, began: milliseconds since 1970; 0: never.
    pub began_ms: u64,
    /// Time when that pass began by the steady clock; 0: never.
    pub(crate) began_steady_ms: u64,
    /// Progress of the pass.
    pub progress: Progress,
    /// Time when a pass last ended that compared everything; 0: never.
    pub ended_ms: u64,
    /// Number of such passes since the disk was opened.
    pub passes: u64,
    /// Entries that were corrupt, in all passes.
    pub corrupt: u64,
    /// Entries that the disk did not give, in all passes.
    pub unread: u64,
}

/// Guard of a pass that runs, whatever becomes of the pass.
struct Running<'a>(&'a Inner);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        lock(&self.0.scrub).is_running = false;
    }
}

impl Inner {
    /// State of the scrub.
    pub(crate) fn scrub_state(&self) -> Scrub {
        let state = *lock(&self.scrub);
        let every = self.limits.scrub();
        Scrub { every, ..state }
    }

    /// Begins a pass if one is due.
    pub(crate) fn scrub_soon(&self) {
        let every = self.limits.scrub();
        let now_ms = self.clock.steady();
        {
            let mut state = lock(&self.scrub);
            let is_early = state.began_steady_ms != 0
                && now_ms.saturating_sub(state.began_steady_ms) < every.as_millis() as u64;
            if every.is_zero() || state.is_running || is_early || !self.loading.is_done() {
                return;
            }
            state.is_running = true;
        }
        let this = self.this.upgrade();
        let scrub = move || {
            if let Some(inner) = this {
                inner.scrub();
            }
        };
        let named = std::thread::Builder::new().name("store-scrub".to_string());
        if named.spawn(scrub).is_err() {
            // The next sweep tries again.
            drop(Running(self));
        }
    }

    /// A pass.
    fn scrub(&self) {
        let running = Running(self);
        let began_ms = self.clock.steady();
        {
            let mut state = lock(&self.scrub);
            state.began_ms = self.clock.now();
            state.began_steady_ms = began_ms;
            state.progress = Progress::default();
        }
        let mut pace = Pace::new(self.all_bytes(), self.limits.scrub());
        let verified = self.verify_all(Care::Cache, &mut |progress| {
            let mut pause = pace.pause(&progress);
            lock(&self.scrub).progress = progress;
            while !pause.is_zero() && self.is_scrubbed() {
                let part = pause.min(PAUSE);
                // A thread of its own, which only reads: nobody waits for it.
                std::thread::park_timeout(part);
                pause -= part;
            }
            self.is_scrubbed()
        });
        self.count_scrub(&verified);
        // Who is told of the end of a pass finds that it does not run any more.
        drop(running);
        self.tell_scrub(began_ms, &verified);
    }

    /// INVARIANT 3.
    fn is_scrubbed(&self) -> bool {
        self.is_found_in() && !self.limits.scrub().is_zero()
    }

    fn all_bytes(&self) -> u64 {
        let bytes = lock(&self.disk.log).file_bytes;
        bytes.saturating_add(self.index.count().saturating_mul(ENTRY_COST))
    }

    fn count_scrub(&self, verified: &Verified) {
        let now_ms = self.clock.now();
        let mut state = lock(&self.scrub);
        state.corrupt += verified.corrupt;
        state.unread += verified.unread;
        if verified.is_complete {
            state.ended_ms = now_ms;
            state.passes += 1;
        }
    }

    fn tell_scrub(&self, began_ms: u64, verified: &Verified) {
        if !verified.is_complete {
            return;
        }
        let now_ms = self.clock.steady();
        self.report(&Event::Scrubbed {
            dir: self.disk.dir.display().to_string(),
            verified: *verified,
            s: now_ms.saturating_sub(began_ms) / 1000,
        });
    }
}

/// Speed at which a pass may go.
#[derive(Debug)]
struct Pace {
    /// Rate of the pass: bytes in a second, entries counted as bytes.
    rate: u64,
    before: Progress,
}

impl Pace {
    fn new(all_bytes: u64, every: Duration) -> Self {
        let wanted = all_bytes.saturating_mul(HASTE) / every.as_secs().max(1);
        Self {
            rate: wanted.clamp(SLOWEST, FASTEST),
            before: Progress::default(),
        }
    }

    /// Time to wait after what was read since the last call.
    fn pause(&mut self, progress: &Progress) -> Duration {
        let entries = progress.entries.saturating_sub(self.before.entries);
        let bytes = progress.bytes.saturating_sub(self.before.bytes);
        self.before = *progress;
        let cost = bytes.saturating_add(entries.saturating_mul(ENTRY_COST));
        Duration::from_micros(cost.saturating_mul(1_000_000) / self.rate)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pace_fits_the_time_within_bounds() {
        let day = Duration::from_secs(86_400);
        let table = [
            (0, day, SLOWEST),
            (1 << 30, day, SLOWEST),
            (864_000 << 20, day, 20 << 20),
            (1 << 50, day, FASTEST),
            (1 << 30, Duration::ZERO, FASTEST),
        ];
        for (bytes, every, rate) in table {
            assert_eq!(Pace::new(bytes, every).rate, rate, "{bytes} {every:?}");
        }
    }

    #[test]
    fn bytes_and_entries_are_paid_for_once() {
        let mut pace = Pace::new(0, Duration::ZERO + Duration::from_secs(60));
        let at = |entries, bytes| Progress {
            entries,
            bytes,
            all_entries: 100,
        };
        let table = [
            (at(0, SLOWEST), Duration::from_secs(1)),
            (at(0, SLOWEST), Duration::ZERO),
            (at(64, SLOWEST), Duration::from_secs(1)),
            (at(128, SLOWEST * 2), Duration::from_secs(2)),
        ];
        for (progress, expected) in table {
            assert_eq!(pace.pause(&progress), expected, "{progress:?}");
        }
    }
}
