//! Times and failures of a crowd.

use std::time::Duration;

use hdrhistogram::Histogram;

/// The longest time that is told apart, in nanoseconds: ten minutes.
const LONGEST: u64 = 600_000_000_000;
/// Examples of failures that are kept.
const EXAMPLES: usize = 3;

/// Times, to three digits.
#[derive(Clone, Debug)]
pub struct Times(Histogram<u64>);

impl Default for Times {
    fn default() -> Self {
        #[expect(clippy::expect_used, reason = "the bounds are constants")]
        Self(Histogram::new_with_bounds(1, LONGEST, 3).expect("bounds of a histogram"))
    }
}

impl Times {
    /// Adds a time.
    pub fn add(&mut self, time: Duration) {
        let nanos = u64::try_from(time.as_nanos()).unwrap_or(LONGEST);
        self.0.saturating_record(nanos);
    }

    /// Number of times.
    pub fn count(&self) -> u64 {
        self.0.len()
    }

    /// The time that this share of them is not above, in microseconds; 0 if there are none.
    pub fn micros_at(&self, share: f64) -> f64 {
        self.0.value_at_quantile(share) as f64 / 1e3
    }
}

/// Record of a crowd.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// Times of answers since their requests were due.
    pub times: Times,
    /// Times by which requests were sent late although a connection was free: the client's own.
    pub late: Times,
    /// Bytes of bodies.
    pub bytes: u64,
    /// Requests that were sent again on a new connection.
    pub again: u64,
    /// Connections that ended while they were idle.
    pub ended: u64,
    /// Requests that were not answered, and answers that were not as they should be.
    pub failed: u64,
    /// Examples of failures.
    pub examples: Vec<String>,
    /// Time from the beginning to the last answer.
    pub elapsed: Duration,
}

impl Seen {
    pub(super) fn fail(&mut self, count: u64, why: impl FnOnce() -> String) {
        self.failed += count;
        if count > 0 && self.examples.len() < EXAMPLES {
            self.examples.push(why());
        }
    }

    /// Requests that are over, well or not.
    pub(super) fn ended_requests(&self) -> u64 {
        self.times.count() + self.failed
    }
}
