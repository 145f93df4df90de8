//! One deadline for a connection, moved without touching the timer wheel.
//!
//! A connection arms its timer a few times for each request and nearly never lets it fire. Moving a
//! deadline later costs a comparison here: the sleeping timer fires early, sees that the deadline
//! has moved, and sleeps again.
//!
//! Invariant: `guard` never reports expiry before its deadline.

use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::Sleep;

use crate::clock::{self, Instant};

/// The timer of one connection.
pub struct Timer {
    sleep: RefCell<Option<Pin<Box<Sleep>>>>,
}

/// The deadline passed before the future was ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("timed out")]
pub struct Expired;

impl Timer {
    /// A timer that is not armed.
    pub fn new() -> Self {
        Timer {
            sleep: RefCell::new(None),
        }
    }

    /// Runs `future` until `deadline`; one guard at a time.
    pub async fn guard<F: Future>(
        &self,
        deadline: Instant,
        future: F,
    ) -> Result<F::Output, Expired> {
        let mut future = std::pin::pin!(future);
        std::future::poll_fn(move |cx| match future.as_mut().poll(cx) {
            Poll::Ready(output) => Poll::Ready(Ok(output)),
            Poll::Pending => self.poll_expired(cx, deadline).map(Err),
        })
        .await
    }

    /// Runs `future` for at most `timeout`; what is ready at once reads no clock.
    pub async fn guard_for<F: Future>(
        &self,
        timeout: Duration,
        future: F,
    ) -> Result<F::Output, Expired> {
        let mut future = std::pin::pin!(future);
        let mut deadline = None;
        std::future::poll_fn(move |cx| match future.as_mut().poll(cx) {
            Poll::Ready(output) => Poll::Ready(Ok(output)),
            Poll::Pending => {
                let deadline = *deadline.get_or_insert_with(|| clock::instant() + timeout);
                self.poll_expired(cx, deadline).map(Err)
            }
        })
        .await
    }

    /// Ready when `deadline` has passed.
    pub fn poll_expired(&self, cx: &mut Context<'_>, deadline: Instant) -> Poll<Expired> {
        let mut slot = self.sleep.borrow_mut();
        let sleep = slot.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(deadline)));
        if sleep.deadline() > deadline {
            sleep.as_mut().reset(deadline);
        }
        // Two rounds are enough: after the reset the timer sleeps until the deadline itself.
        for _ in 0..2 {
            if sleep.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
            if clock::instant() >= deadline {
                return Poll::Ready(Expired);
            }
            sleep.as_mut().reset(deadline);
        }
        Poll::Pending
    }
}

impl Default for Timer {
    fn default() -> Self {
        Timer::new()
    }
}
