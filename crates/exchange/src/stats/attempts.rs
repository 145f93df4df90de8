//! Attempts to take another configuration, for those who wait for the outcome of one.
//!
//! An attempt has a number, from 1; the main thread makes one after the other. Whoever asked for a
//! reload waits for one that began after that: one that had begun before may have read the files as
//! they were.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The reasons for which a configuration was refused.
pub type Reasons = Vec<String>;

/// The attempts of the process.
#[derive(Debug, Default)]
pub struct Attempts {
    counts: Mutex<Counts>,
    ended: Condvar,
}

#[derive(Debug)]
struct Counts {
    begun: u64,
    ended: u64,
    /// That of the last one that ended.
    outcome: Result<(), Reasons>,
}

impl Default for Counts {
    fn default() -> Self {
        Counts {
            begun: 0,
            ended: 0,
            outcome: Ok(()),
        }
    }
}

impl Attempts {
    /// Notes that an attempt begins.
    pub fn begin(&self) {
        self.lock().begun += 1;
    }

    /// Notes the outcome of the attempt that began last.
    pub fn end(&self, outcome: Result<(), Reasons>) {
        let mut counts = self.lock();
        counts.ended = counts.begun;
        counts.outcome = outcome;
        drop(counts);
        self.ended.notify_all();
    }

    /// Notes that somebody asked for an attempt and none will be made.
    pub fn decline(&self, reason: &str) {
        self.begin();
        self.end(Err(vec![reason.to_string()]));
    }

    /// Asks for an attempt, and waits for the outcome of one that began after that; none if it
    /// takes longer than `patience`.
    pub fn outcome_of(
        &self,
        ask: impl FnOnce(),
        patience: Duration,
    ) -> Option<Result<(), Reasons>> {
        let before = self.lock().begun;
        ask();
        let waits = |counts: &mut Counts| counts.ended <= before;
        let waited = self.ended.wait_timeout_while(self.lock(), patience, waits);
        let (counts, waited) = waited.unwrap_or_else(PoisonError::into_inner);
        (!waited.timed_out()).then(|| counts.outcome.clone())
    }

    fn lock(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn outcome_is_that_of_an_attempt_that_began_later() {
        let attempts = Attempts::default();
        attempts.begin();
        let outcome = attempts.outcome_of(
            || {
                // The one that runs had begun before, and tells nothing.
                attempts.end(Ok(()));
                attempts.begin();
                attempts.end(Err(vec!["no".to_string()]));
            },
            LONG,
        );
        assert_eq!(outcome, Some(Err(vec!["no".to_string()])));
        let declined = attempts.outcome_of(|| attempts.decline("busy"), LONG);
        assert_eq!(declined, Some(Err(vec!["busy".to_string()])));
    }

    #[test]
    fn whoever_waits_for_nothing_is_told() {
        let attempts = Attempts::default();
        attempts.begin();
        let outcome = attempts.outcome_of(|| attempts.end(Ok(())), Duration::ZERO);
        assert_eq!(outcome, None);
    }
}
