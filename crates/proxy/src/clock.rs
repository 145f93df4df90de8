//! The one place where time is read.
//!
//! `now_ms` is wall time for freshness, dates and logs; `Instant` is tokio's, so a paused clock in
//! tests moves both deadlines and waits. The Date header is formatted once a second per thread.

use std::cell::RefCell;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
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

/// A monotonic instant.
#[allow(clippy::disallowed_methods)]
pub fn instant() -> Instant {
    Instant::now()
}

/// Waits until `deadline`.
pub async fn sleep_until(deadline: Instant) {
    tokio::time::sleep_until(deadline).await;
}

/// Waits for `duration`.
pub async fn pause(duration: Duration) {
    tokio::time::sleep_until(instant() + duration).await;
}

thread_local! {
    static DATE: RefCell<(i64, Bytes)> = const { RefCell::new((i64::MIN, Bytes::new())) };
}

/// The value of the Date header for `now_ms`; formatted once a second.
pub fn date_header(now_ms: i64) -> Bytes {
    let second = now_ms.div_euclid(1000);
    DATE.with_borrow_mut(|(cached, text)| {
        if *cached != second {
            *cached = second;
            *text = Bytes::copy_from_slice(&format_http_date(second));
        }
        text.clone()
    })
}
