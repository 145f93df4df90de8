//! One deadline for a connection, moved without touching the timer wheel.
//!
//! A connection arms its timer a few times for each request and nearly never lets it fire. Moving a
//! deadline later costs a comparison here: the sleeping timer fires early, sees that the deadline
//! has moved, and sleeps again.
//!
//! The wait for the next request is the one that nearly every request has. It leaves the timer
//! alone as long as that sleeps on for it ([`Timer::poll_idle`]).
//!
//! Invariants:
//! 1. `guard` never reports expiry before its deadline.
//! 2. `armed` is an instant at which the timer wakes the connection's own task, unless that instant
//!    has passed.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::Sleep;

use crate::clock::{self, Instant};

/// The timer of one connection.
pub struct Timer {
    sleep: RefCell<Option<Pin<Box<Sleep>>>>,
    /// The time at which it fires, if it was last set by [`Timer::poll_idle`].
    armed: Cell<Option<Instant>>,
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
            armed: Cell::new(None),
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

    /// As [`Timer::poll_expired`], for what a connection's own task does between two requests.
    /// `now` is given if it was read since that task was woken.
    pub fn poll_idle(
        &self,
        cx: &mut Context<'_>,
        now: Option<Instant>,
        deadline: Instant,
    ) -> Poll<Expired> {
        // INVARIANT 2: the timer has not fired before `now`, and cannot while the task runs.
        let is_set = now
            .zip(self.armed.get())
            .is_some_and(|(now, at)| now < at && at <= deadline);
        if is_set {
            return Poll::Pending;
        }
        let expired = self.poll_expired(cx, deadline);
        let sleep = self.sleep.borrow();
        self.armed.set(sleep.as_ref().map(|sleep| sleep.deadline()));
        expired
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
        self.armed.set(None);
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

#[cfg(test)]
mod tests {
    use super::*;

    const NEVER: Duration = Duration::from_secs(1000);

    /// The timeout of a wait, in seconds, and when what it waits for comes.
    type Wait = (u64, Duration);

    /// One wait; the second at which it ended, and whether by expiry.
    async fn wait(timer: &Timer, (timeout, event): Wait) -> (u64, bool) {
        let now = clock::instant();
        let deadline = now + Duration::from_secs(timeout);
        let mut came = std::pin::pin!(clock::pause(event));
        let mut read = Some(now);
        let ended = std::future::poll_fn(|cx| match came.as_mut().poll(cx) {
            Poll::Ready(()) => Poll::Ready(Ok(())),
            Poll::Pending => timer.poll_idle(cx, read.take(), deadline).map(Err),
        });
        let ended = ended.await;
        (elapsed(now), ended.is_err())
    }

    fn elapsed(since: Instant) -> u64 {
        (clock::instant() - since).as_secs()
    }

    #[tokio::test(start_paused = true)]
    async fn idle_waits_expire_at_their_own_deadline() {
        let seconds = Duration::from_secs;
        // Timeout and event of the waits, one after another, and how the last one ends.
        let cases: [(&[Wait], (u64, bool)); 6] = [
            (&[(10, NEVER)], (10, true)),
            // The timer is still set for the first wait.
            (&[(10, seconds(4)), (10, NEVER)], (10, true)),
            (&[(10, seconds(4)), (10, seconds(8))], (8, false)),
            // A shorter wait than the one before.
            (&[(10, seconds(4)), (3, NEVER)], (3, true)),
            // The timer has fired when the next wait begins, and nobody has looked at it.
            (&[(10, seconds(10)), (10, NEVER)], (10, true)),
            (
                &[
                    (2, seconds(1)),
                    (2, seconds(1)),
                    (2, seconds(1)),
                    (5, NEVER),
                ],
                (5, true),
            ),
        ];
        for (waits, expected) in cases {
            let timer = Timer::new();
            let mut last = (0, false);
            for each in waits {
                last = wait(&timer, *each).await;
            }
            assert_eq!(last, expected, "{waits:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn another_wait_between_takes_the_timer() {
        let timer = Timer::new();
        let seconds = Duration::from_secs;
        assert_eq!(wait(&timer, (10, seconds(1))).await, (1, false));
        let between = timer.guard_for(seconds(20), clock::pause(seconds(2)));
        assert_eq!(between.await, Ok(()));
        assert_eq!(wait(&timer, (10, NEVER)).await, (10, true));
    }
}
