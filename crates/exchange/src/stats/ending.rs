//! The end of the process, once it has been asked for.
//!
//! The main thread announces it; health checks tell of it, so that balancers send nothing more.

use std::sync::atomic::{AtomicBool, Ordering};

/// The knowledge that the process is about to end.
#[derive(Debug, Default)]
pub struct Ending(AtomicBool);

impl Ending {
    /// Notes that the process is about to end; for good.
    pub fn announce(&self) {
        self.0.store(true, Ordering::Release);
    }

    /// True if the process is about to end.
    pub fn is_near(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}
