//! Descriptors that are held for nothing, so that a file can be opened when there is no other.
//!
//! ```text
//! open() ──EMFILE──► one is closed ──► open() again
//!                        └─► workers close idle connections, and it is filled up
//! ```
//!
//! A socket can wait until idle connections were closed for it; a file is opened in passing, by a
//! worker or by a thread of a disk. For these there is the reserve, which is one of the process.
//!
//! Invariants:
//! 1. It holds at most `MOST` descriptors, and no more than one in `SHARE` of the process.
//! 2. What was taken from it is asked for until it is there again.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use tokio::sync::Notify;

use crate::clock;

/// Descriptors of the reserve (arbitrarily: files that are opened before the workers had a turn).
const MOST: u64 = 16;
/// Share of the descriptors that the reserve has at most, one in so many: a process that may have
/// few needs them.
const SHARE: u64 = 64;
/// Time for which a worker waits that has nothing to close (nginx: accept_mutex_delay's 500 ms, for
/// a process that cannot accept).
const PAUSE: Duration = Duration::from_millis(500);

/// The reserve of the process.
pub static RESERVE: Reserve = Reserve::new();

/// Descriptors that are held.
#[derive(Debug)]
pub struct Reserve {
    /// Number of descriptors that are to be held.
    size: AtomicUsize,
    held: Mutex<Vec<OwnedFd>>,
    /// Set while somebody is to fill it up.
    is_lacking: AtomicBool,
    taken: Notify,
}

impl Reserve {
    const fn new() -> Self {
        Reserve {
            size: AtomicUsize::new(0),
            held: Mutex::new(Vec::new()),
            is_lacking: AtomicBool::new(false),
            taken: Notify::const_new(),
        }
    }

    /// Holds its share of the descriptors of the process, or as many as are left.
    pub fn hold(&self, count: u64) {
        let size = (count / SHARE).min(MOST);
        self.size.store(size as usize, Ordering::Relaxed);
        self.fill();
    }

    /// Holds as many as it may; false if there are too few.
    fn fill(&self) -> bool {
        let size = self.size.load(Ordering::Relaxed);
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        while held.len() < size {
            match rustix::fs::open("/dev/null", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()) {
                Ok(file) => held.push(file),
                // A machine without it has no reserve.
                Err(errno) => return !is_shortage(Some(errno)),
            }
        }
        true
    }

    /// Opens something, with a descriptor of the reserve if there is no other.
    pub fn with_room<T, E>(
        &self,
        open: impl Fn() -> Result<T, E>,
        errno: impl Fn(&E) -> Option<Errno>,
    ) -> Result<T, E> {
        match open() {
            Err(error) if is_shortage(errno(&error)) && self.give() => open(),
            opened => opened,
        }
    }

    /// Closes one; false if there is none.
    pub fn give(&self) -> bool {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        let given = held.pop().is_some();
        self.is_lacking.store(true, Ordering::Release);
        self.taken.notify_waiters();
        given
    }

    /// Waits until something is lacking.
    async fn lacks(&self) {
        let mut taken = std::pin::pin!(self.taken.notified());
        // Before the look: what is taken after it is told.
        taken.as_mut().enable();
        if !self.is_lacking.load(Ordering::Acquire) {
            taken.await;
        }
    }

    /// Fills it up again; false if there are too few descriptors still.
    fn refill(&self) -> bool {
        self.is_lacking.store(false, Ordering::Release);
        let is_full = self.fill();
        if !is_full {
            self.is_lacking.store(true, Ordering::Release);
        }
        is_full
    }
}

/// True if an error says that no descriptor is left.
pub fn is_shortage(errno: Option<Errno>) -> bool {
    matches!(errno, Some(Errno::MFILE | Errno::NFILE))
}

/// True if an error of the system says that no descriptor is left.
pub fn is_shortage_error(error: &io::Error) -> bool {
    is_shortage(Errno::from_io_error(error))
}

/// Fills the reserve up whenever something was taken from it, for as long as a worker runs.
/// `make_room` closes idle connections of that worker, and is false if there is none.
pub async fn tend(make_room: impl AsyncFn() -> bool) {
    loop {
        RESERVE.lacks().await;
        // INVARIANT 2. One batch, and then what is lacking.
        let mut has_closed = make_room().await;
        while !RESERVE.refill() {
            if !has_closed {
                clock::pause(PAUSE).await;
            }
            has_closed = make_room().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[test]
    fn one_is_given_for_each_that_cannot_be_opened() {
        let reserve = Reserve::new();
        for (count, size) in [(44, 0), (640, 10), (100_000, 16)] {
            reserve.hold(count);
            assert_eq!(reserve.held.lock().unwrap().len(), size, "{count}");
        }
        let tries = Cell::new(0);
        let open = |fails_with: Errno| {
            tries.set(0);
            let open = || {
                tries.set(tries.get() + 1);
                match tries.get() {
                    1 => Err(fails_with),
                    _ => Ok(()),
                }
            };
            let opened = reserve.with_room(open, |errno| Some(*errno));
            let held = reserve.held.lock().unwrap().len();
            (opened.is_ok(), held)
        };
        assert_eq!(open(Errno::MFILE), (true, 15));
        assert_eq!(open(Errno::NFILE), (true, 14));
        assert_eq!(open(Errno::NOENT), (false, 14));
        while reserve.give() {}
        assert_eq!(open(Errno::MFILE), (false, 0));
    }
}
