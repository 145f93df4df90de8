//! The one place where time is read.
//!
//! `now_ms` is wall time for freshness, dates and logs; `Instant` is tokio's, so a paused clock in
//! tests moves both deadlines and waits. The Date header is formatted once a second per thread.
//!
//! The clock of tokio has a lock before it where anything switches on `test-util`, as a dependency
//! of async-nats does. So a running server reads the system's, which is the same one; the feature
//! `paused-clock` is for the tests that move it.

use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use millpond_semantics::date::format_http_date;

pub use tokio::time::Instant;

/// Wall time in milliseconds since the epoch.
#[allow(clippy::disallowed_methods)]
pub fn now_ms() -> i64 {
    match SystemTime::now().duration_since(UNIX_EPOCH) {
        Ok(elapsed) => elapsed.as_millis() as i64,
        Err(before) => -(before.duration().as_millis() as i64),
    }
}

/// Wall time in microseconds since the epoch.
#[allow(clippy::disallowed_methods)]
pub fn now_us() -> i64 {
    match SystemTime::now().duration_since(UNIX_EPOCH) {
        Ok(elapsed) => elapsed.as_micros() as i64,
        Err(before) => -(before.duration().as_micros() as i64),
    }
}

/// A monotonic instant.
#[allow(clippy::disallowed_methods)]
pub fn instant() -> Instant {
    if cfg!(any(test, feature = "paused-clock")) {
        Instant::now()
    } else {
        std::time::Instant::now().into()
    }
}

/// For how long the two clocks are taken to run alike: a wall clock that is set is followed after
/// that. (Arbitrary: no date shows it.)
const ALIKE: Duration = Duration::from_millis(50);

thread_local! {
    /// An instant, and its wall time in microseconds.
    static PAIR: Cell<Option<(Instant, i64)>> = const { Cell::new(None) };
}

/// The wall time of an instant that has just been read, in microseconds since the epoch; hardly
/// ever reads a clock.
pub fn wall_us(at: Instant) -> i64 {
    let pair = PAIR.get().and_then(|(base, wall_us)| {
        let micros = |apart: Duration| (apart < ALIKE).then(|| i64::from(apart.subsec_micros()));
        match at.checked_duration_since(base) {
            Some(since) => micros(since).map(|since| wall_us + since),
            None => micros(base - at).map(|before| wall_us - before),
        }
    });
    pair.unwrap_or_else(|| {
        let wall_us = now_us();
        PAIR.set(Some((at, wall_us)));
        wall_us
    })
}

/// Waits until `deadline`.
pub async fn sleep_until(deadline: Instant) {
    tokio::time::sleep_until(deadline).await;
}

/// Waits for a future, at most for `timeout`.
pub async fn within<F: Future>(timeout: Duration, future: F) -> Option<F::Output> {
    tokio::time::timeout(timeout, future).await.ok()
}

/// Waits for `duration`.
pub async fn pause(duration: Duration) {
    tokio::time::sleep_until(instant() + duration).await;
}

thread_local! {
    static DATE: RefCell<DateLine> = const { RefCell::new(DateLine::new()) };
}

/// The line of the Date field for one second, and behind another line.
struct DateLine {
    second: Range<i64>,
    date: Vec<u8>,
    before: &'static [u8],
    both: Vec<u8>,
}

impl DateLine {
    const fn new() -> Self {
        DateLine {
            second: 0..0,
            date: Vec::new(),
            before: &[],
            both: Vec::new(),
        }
    }

    fn set(&mut self, now_us: i64, before: &'static [u8]) {
        if !self.second.contains(&now_us) {
            let second = now_us.div_euclid(1_000_000);
            self.second = second * 1_000_000..(second + 1) * 1_000_000;
            self.date.clear();
            self.date.extend_from_slice(b"Date: ");
            self.date.extend_from_slice(&format_http_date(second));
            self.date.extend_from_slice(b"\r\n");
        }
        self.before = before;
        self.both.clear();
        self.both.extend_from_slice(before);
        self.both.extend_from_slice(&self.date);
    }
}

/// Lends the line of the Date field for a wall time in microseconds, its end included, behind
/// another line; formatted once a second.
pub fn with_date_line<T>(now_us: i64, before: &'static [u8], take: impl FnOnce(&[u8]) -> T) -> T {
    DATE.with_borrow_mut(|line| {
        if !line.second.contains(&now_us) || !std::ptr::eq(line.before, before) {
            line.set(now_us, before);
        }
        take(&line.both)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn wall_time_goes_on_with_the_instants_and_is_read_again() {
        PAIR.set(None);
        let begin = instant();
        let wall = wall_us(begin);
        assert_eq!(
            wall_us(begin + Duration::from_micros(49_999)),
            wall + 49_999
        );
        // Not after the clocks may have drifted apart, and not for what was before.
        let late = begin + Duration::from_secs(3600);
        assert!(wall_us(late) < wall + 3_600_000_000);
        assert!(wall_us(begin) >= wall);
    }

    #[test]
    fn the_date_line_is_that_of_its_second_behind_the_line_asked_for() {
        let text = |now_us, before| {
            with_date_line(now_us, before, |line| {
                String::from_utf8(line.to_vec()).unwrap()
            })
        };
        let first = "Date: Thu, 01 Jan 1970 00:00:00 GMT\r\n";
        let next = "Date: Thu, 01 Jan 1970 00:00:01 GMT\r\n";
        for (now_us, before, expected) in [
            (0, "", first),
            (999_999, "", first),
            (999_999, "A: b\r\n", first),
            (1_000_000, "A: b\r\n", next),
            (1_000_001, "C: d\r\n", next),
            (0, "C: d\r\n", first),
        ] {
            let line = text(now_us, before.as_bytes());
            assert_eq!(line, format!("{before}{expected}"), "{now_us}");
        }
    }
}
