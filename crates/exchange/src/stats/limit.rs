//! Counters of the zones of `limit_conn` and `limit_req`, by what they did to requests.
//!
//! A zone counts what it said itself: of several limits that let a request through, each counts it
//! as passed, or as delayed if it asked for a wait; of those of a refused request only the one that
//! refused it counts. A request without a key (an empty value) is not counted.
//!
//! 1. A zone keeps its counts over reloads, also when its table begins anew.
//! 2. What is begun anew by the API is for who reads the API; metrics count on (`resets.rs`).

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// Outcome of a request at a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The request went on at once.
    Passed,
    /// The request went on after a wait.
    Delayed,
    /// The request was refused.
    Rejected,
    /// The request would have waited, but for a dry run.
    DelayedDryRun,
    /// The request would have been refused, but for a dry run.
    RejectedDryRun,
}

impl Outcome {
    /// All, in the order of the counts.
    pub const ALL: [Outcome; 5] = [
        Outcome::Passed,
        Outcome::Delayed,
        Outcome::Rejected,
        Outcome::DelayedDryRun,
        Outcome::RejectedDryRun,
    ];
    /// Outcomes of connections, which do not wait.
    pub const OF_CONNECTIONS: [Outcome; 3] =
        [Outcome::Passed, Outcome::Rejected, Outcome::RejectedDryRun];

    /// Name of the outcome in the API and in metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Outcome::Passed => "passed",
            Outcome::Delayed => "delayed",
            Outcome::Rejected => "rejected",
            Outcome::DelayedDryRun => "delayed_dry_run",
            Outcome::RejectedDryRun => "rejected_dry_run",
        }
    }
}

/// Counts by outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LimitCount([u64; Outcome::ALL.len()]);

impl LimitCount {
    /// Requests with this outcome.
    pub fn of(&self, outcome: Outcome) -> u64 {
        // An outcome's number is its place in the list.
        self.0.get(outcome as usize).copied().unwrap_or_default()
    }
}

/// The counters of a zone.
#[derive(Debug, Default)]
pub struct LimitTally {
    cells: [AtomicU64; Outcome::ALL.len()],
    base: Mutex<LimitCount>,
}

impl LimitTally {
    /// One more request.
    pub fn add(&self, outcome: Outcome) {
        if let Some(cell) = self.cells.get(outcome as usize) {
            cell.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// All that was counted.
    pub fn snapshot(&self) -> LimitCount {
        LimitCount(
            self.cells
                .each_ref()
                .map(|cell| cell.load(Ordering::Relaxed)),
        )
    }

    /// Counts since the counters were begun anew.
    pub fn since_reset(&self) -> LimitCount {
        let base = *self.base.lock().unwrap_or_else(PoisonError::into_inner);
        let mut count = self.snapshot();
        for (count, base) in count.0.iter_mut().zip(base.0) {
            *count = count.saturating_sub(base);
        }
        count
    }

    /// Begins anew.
    pub fn reset(&self) {
        *self.base.lock().unwrap_or_else(PoisonError::into_inner) = self.snapshot();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_stand_at_their_outcomes() {
        for (place, outcome) in Outcome::ALL.into_iter().enumerate() {
            assert_eq!(outcome as usize, place);
            let tally = LimitTally::default();
            tally.add(outcome);
            for other in Outcome::ALL {
                assert_eq!(tally.snapshot().of(other), u64::from(other == outcome));
            }
        }
    }

    #[test]
    fn what_was_counted_before_a_reset_is_left_to_metrics() {
        let tally = LimitTally::default();
        tally.add(Outcome::Passed);
        tally.reset();
        tally.add(Outcome::Passed);
        tally.add(Outcome::Rejected);
        let (all, since) = (tally.snapshot(), tally.since_reset());
        assert_eq!((all.of(Outcome::Passed), since.of(Outcome::Passed)), (2, 1));
        assert_eq!(since.of(Outcome::Rejected), 1);
    }
}
