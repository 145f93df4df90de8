//! The one place of this crate where time is read.
//!
//! Fills and waits are measured by a monotonic clock; it is tokio's, so a paused clock in tests
//! moves them. Wall time, which freshness is judged by, comes with each request instead.

use std::time::Duration;

use tokio::time::{Instant, Sleep};

/// A moment that lies ahead.
#[allow(clippy::disallowed_methods, reason = "the one place of this crate")]
pub(crate) fn timer(duration: Duration) -> Sleep {
    tokio::time::sleep(duration)
}

/// Awaits a future until a deadline; without a deadline, for as long as it takes.
pub(crate) async fn within<F: Future>(deadline: Option<Instant>, future: F) -> Option<F::Output> {
    match deadline {
        Some(deadline) => tokio::time::timeout_at(deadline, future).await.ok(),
        None => Some(future.await),
    }
}

/// A monotonic instant.
pub(crate) fn now() -> Instant {
    Instant::now()
}
