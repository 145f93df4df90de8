//! The one place of this crate where time is read.
//!
//! Fills and waits are measured by a monotonic clock; it is tokio's, so a paused clock in tests
//! moves them. Wall time, which freshness is judged by, comes with each request instead.

use tokio::time::Instant;

/// A monotonic instant.
pub(crate) fn now() -> Instant {
    Instant::now()
}
