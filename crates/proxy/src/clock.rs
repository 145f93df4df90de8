//! The one place where time is read.
//!
//! `now_ms` is wall time for freshness, dates and logs; `Instant` is tokio's, so a paused clock in
//! tests moves both deadlines and waits. The Date header is formatted once a second per thread.

use std::cell::RefCell;
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
    Instant::now()
}

/// Waits until `deadline`.
pub async fn sleep_until(deadline: Instant) {
    tokio::time::sleep_until(deadline).await;
}

/// What comes of a future for at most `timeout`.
pub async fn within<F: Future>(timeout: Duration, future: F) -> Option<F::Output> {
    tokio::time::timeout(timeout, future).await.ok()
}

/// Waits for `duration`.
pub async fn pause(duration: Duration) {
    tokio::time::sleep_until(instant() + duration).await;
}

thread_local! {
    static DATE: RefCell<(i64, Vec<u8>)> = const { RefCell::new((i64::MIN, Vec::new())) };
}

/// Lends the line of the Date field for `now_ms`, its end included; formatted once a second.
pub fn with_date_line<T>(now_ms: i64, take: impl FnOnce(&[u8]) -> T) -> T {
    let second = now_ms.div_euclid(1000);
    DATE.with_borrow_mut(|(cached, line)| {
        if *cached != second {
            *cached = second;
            line.clear();
            line.extend_from_slice(b"Date: ");
            line.extend_from_slice(&format_http_date(second));
            line.extend_from_slice(b"\r\n");
        }
        take(line)
    })
}
