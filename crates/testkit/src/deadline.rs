//! The one place that waits: an instant that a wait may not pass, and polling until it.
//!
//! Other files of the workspace may not sleep; a test that has to wait for another program says
//! what it waits for, and polls for that.

use std::time::{Duration, Instant};

/// Pause between two looks; short enough to cost a test nothing, long enough to leave the CPU to
/// others.
const POLL: Duration = Duration::from_millis(5);

/// An instant that a wait may not pass.
#[derive(Clone, Copy, Debug)]
pub struct Deadline(Instant);

impl Deadline {
    /// The instant that lies `timeout` from now.
    pub fn after(timeout: Duration) -> Deadline {
        Deadline(Instant::now() + timeout)
    }

    /// Time until the deadline; zero once it has passed.
    pub fn left(self) -> Duration {
        self.0.saturating_duration_since(Instant::now())
    }

    /// True if the deadline has passed.
    pub fn is_over(self) -> bool {
        self.left().is_zero()
    }

    /// Calls `look` until it finds something, or the deadline passes; it is called at least once.
    pub fn poll<T>(self, mut look: impl FnMut() -> Option<T>) -> Option<T> {
        loop {
            if let Some(found) = look() {
                return Some(found);
            }
            if self.is_over() {
                return None;
            }
            std::thread::sleep(POLL.min(self.left()));
        }
    }

    /// Waits until the deadline; for an origin that answers late on purpose.
    pub(crate) fn pass(self) {
        std::thread::sleep(self.left());
    }
}
