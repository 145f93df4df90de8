//! Places for hashing passwords: a costly hash is a lever for whoever sends passwords.
//!
//! ```text
//! enter ─► a place is free: Place ──dropped──► free again
//!      ├─► all are taken: waits, with at most QUEUE_MAX others ─► Place
//!      └─► too many wait: none
//! ```
//!
//! Invariants:
//! 1. At most as many passwords are hashed at once as the machine has cores, all workers together:
//!    more would only take the processor from the workers.
//! 2. A place belongs to the hash, not to the request: a client that leaves does not let another
//!    hash begin while its own still runs.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Requests that may wait for a place (arbitrary: a second or two of usual hashes on two cores).
pub(crate) const QUEUE_MAX: usize = 256;

/// The places of a process.
#[derive(Debug)]
pub(crate) struct HashPlaces {
    free: Arc<Semaphore>,
    waiting: AtomicUsize,
}

/// The right to hash one password.
#[derive(Debug)]
pub(crate) struct Place(#[expect(dead_code, reason = "held")] OwnedSemaphorePermit);

impl Default for HashPlaces {
    fn default() -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        HashPlaces::of(cores)
    }
}

/// One that waits, for as long as it does.
struct Waiting<'a>(&'a AtomicUsize);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

impl HashPlaces {
    fn of(count: usize) -> Self {
        HashPlaces {
            free: Arc::new(Semaphore::new(count)),
            waiting: AtomicUsize::new(0),
        }
    }

    /// A place, once there is one; none if too many wait for one.
    pub(crate) async fn enter(&self) -> Option<Place> {
        if let Ok(permit) = Arc::clone(&self.free).try_acquire_owned() {
            return Some(Place(permit));
        }
        let before = self.waiting.fetch_add(1, Ordering::AcqRel);
        let _waiting = Waiting(&self.waiting);
        if before >= QUEUE_MAX {
            return None;
        }
        let permit = Arc::clone(&self.free).acquire_owned().await;
        permit.ok().map(Place)
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use super::*;

    #[test]
    fn places_and_those_who_wait_for_them_are_bounded() {
        let places = HashPlaces::of(2);
        let mut cx = Context::from_waker(Waker::noop());
        let mut enter = || {
            let mut entering = Box::pin(places.enter());
            let polled = entering.as_mut().poll(&mut cx);
            (entering, polled)
        };
        let (first, second) = (enter().1, enter().1);
        assert!(matches!(&first, Poll::Ready(Some(_))));
        assert!(matches!(&second, Poll::Ready(Some(_))));
        let mut waiting: Vec<_> = (0..QUEUE_MAX).map(|_| enter()).collect();
        assert!(waiting.iter().all(|(_, polled)| polled.is_pending()));
        assert!(matches!(enter().1, Poll::Ready(None)));
        // One that leaves makes room in the queue.
        drop(waiting.pop());
        let (last, polled) = enter();
        assert!(polled.is_pending());
        drop((last, first));
        let mut cx = Context::from_waker(Waker::noop());
        let mut next = pin!(&mut waiting[0].0);
        assert!(matches!(next.as_mut().poll(&mut cx), Poll::Ready(Some(_))));
    }
}
