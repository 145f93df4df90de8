//! A rate: when the next bytes may go.

use std::time::{Duration, Instant};

/// Pace of bytes that go at a rate.
#[derive(Debug)]
pub(super) struct Pace {
    /// Bytes a second; none: at once.
    rate: Option<u64>,
    /// Time when all that was let go is over.
    free_at: Option<Instant>,
}

impl Pace {
    /// Nothing has gone yet.
    pub(super) fn new(rate: Option<u64>) -> Self {
        Self {
            rate: rate.filter(|rate| *rate > 0),
            free_at: None,
        }
    }

    /// Bytes that go at one time: about a hundredth of a second's, so that a rate is smooth.
    pub(super) fn piece(&self) -> usize {
        let piece = self.rate.map_or(1 << 16, |rate| rate / 100);
        piece.clamp(512, 1 << 16) as usize
    }

    /// Takes `count` bytes, and says when the last of them may be there.
    pub(super) fn take(&mut self, count: usize, now: Instant) -> Option<Instant> {
        let rate = self.rate?;
        let begins = self.free_at.unwrap_or(now).max(now);
        let ends = begins + Duration::from_secs_f64(count as f64 / rate as f64);
        self.free_at = Some(ends);
        Some(ends)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_go_at_the_rate_and_no_time_is_saved_up() {
        let now = Instant::now();
        let mut pace = Pace::new(Some(1000));
        assert_eq!(pace.take(500, now), Some(now + Duration::from_millis(500)));
        assert_eq!(pace.take(500, now), Some(now + Duration::from_secs(1)));
        let later = now + Duration::from_secs(10);
        assert_eq!(
            pace.take(100, later),
            Some(later + Duration::from_millis(100))
        );
        assert_eq!(Pace::new(None).take(1 << 30, now), None);
    }
}
