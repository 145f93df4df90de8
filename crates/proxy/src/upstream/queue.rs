//! Requests that wait for a peer with room (`queue`).
//!
//! ```text
//! nobody can be picked, and a peer is full ──► enter ──► woken by an end ──► picked
//!                                               │                 └─ not yet: waits on
//!                                               └─ full, or too late: none, as without a queue
//! ```
//!
//! 1. Those who wait are woken one by one, in the order in which they came: the end of an exchange
//!    wakes one, and one who gets a peer wakes the next, in case there is more room. An end that
//!    nobody waits for is kept for the next who does, so that none is missed.
//! 2. While somebody waits, those who come later wait behind him.
//! 3. A place is given back however the wait ends: with a peer, too late, or with the client gone.
//! 4. Only a full peer is waited for: an end of one of its exchanges will wake somebody. A peer
//!    that rests after failures is no reason to wait.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use millpond_conf::value::parse_duration;
use millpond_system::clock::{self, Instant};
use tokio::sync::Notify;

use super::balance::Selection;
use super::group::Group;
use super::peer::Peer;

/// The longest wait, unless told (nginx).
const TIMEOUT: Duration = Duration::from_secs(60);

/// The queue of a group.
#[derive(Debug)]
pub struct Queue {
    /// The most requests that wait.
    pub most: usize,
    timeout: Duration,
    waiting: AtomicUsize,
    overflows: AtomicU64,
    turn: Notify,
}

impl Queue {
    /// Reads `queue number [timeout=time]`; the error is what nginx says.
    pub(super) fn read(args: &[&str]) -> Result<Queue, String> {
        let (number, timeout) = match args {
            [number] => (number, None),
            [number, time] => (number, Some(time)),
            _ => return Err("invalid number of arguments in \"queue\" directive".to_owned()),
        };
        let most = number.parse().ok().filter(|most| *most > 0);
        let most_waiting = most.ok_or_else(|| format!("invalid value \"{number}\""))?;
        let read = |time: &&str| {
            let told = time.strip_prefix("timeout=").and_then(parse_duration);
            told.ok_or_else(|| format!("invalid parameter \"{time}\""))
        };
        Ok(Queue {
            most: most_waiting,
            timeout: timeout.map_or(Ok(TIMEOUT), read)?,
            waiting: AtomicUsize::new(0),
            overflows: AtomicU64::new(0),
            turn: Notify::new(),
        })
    }

    /// Requests that wait now.
    pub fn waiting(&self) -> usize {
        self.waiting.load(Relaxed)
    }

    /// Requests that found the queue full.
    pub fn overflows(&self) -> u64 {
        self.overflows.load(Relaxed)
    }

    /// Wakes who has waited longest, or who waits next. INVARIANT 1.
    pub(super) fn wake(&self) {
        self.turn.notify_one();
    }

    fn enter(&self) -> Option<Place<'_>> {
        let one_more = |waiting| (waiting < self.most).then_some(waiting + 1);
        if self
            .waiting
            .fetch_update(Relaxed, Relaxed, one_more)
            .is_err()
        {
            self.overflows.fetch_add(1, Relaxed);
            return None;
        }
        Some(Place(self))
    }
}

/// A place in a queue. INVARIANT 3.
struct Place<'q>(&'q Queue);

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Relaxed);
    }
}

/// The first peer of a request to a group with a queue; none when nobody can be asked. (Most groups
/// have none, and an exchange has no room for the wait.)
pub(super) async fn first(group: &Group, selection: &mut Selection) -> Option<Arc<Peer>> {
    match &group.queue {
        Some(queue) => Box::pin(wait((group, queue), selection)).await,
        None => None,
    }
}

async fn wait((group, queue): (&Group, &Queue), selection: &mut Selection) -> Option<Arc<Peer>> {
    let began = clock::instant();
    // INVARIANT 2.
    if queue.waiting() == 0 {
        let was_full = group.has_full_peer();
        let picked = selection.pick(began);
        if picked.is_some() || !(was_full || group.has_full_peer()) {
            return picked;
        }
    }
    let place = queue.enter()?;
    let turn = take_turn((group, queue), selection, began).await;
    selection.queued = Some(clock::instant() - began);
    drop(place);
    if turn.is_some() {
        queue.wake();
    }
    turn.flatten()
}

/// Waits for a peer with room, or until there is none that could have it; none when it took too
/// long.
async fn take_turn(
    (group, queue): (&Group, &Queue),
    selection: &mut Selection,
    began: Instant,
) -> Option<Option<Arc<Peer>>> {
    loop {
        let left = (began + queue.timeout).saturating_duration_since(clock::instant());
        clock::within(left, queue.turn.notified()).await?;
        selection.begin_anew();
        let was_full = group.has_full_peer();
        let picked = selection.pick(clock::instant());
        // INVARIANT 4.
        if picked.is_some() || !(was_full || group.has_full_peer()) {
            return Some(picked);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_has_a_number_and_a_time() {
        let queue = Queue::read(&["3", "timeout=5s"]).unwrap();
        assert_eq!((queue.most, queue.timeout), (3, Duration::from_secs(5)));
        assert_eq!(Queue::read(&["1"]).unwrap().timeout, TIMEOUT);
        for args in [&["0"][..], &["x"], &["1", "5s"], &["1", "timeout=x"], &[]] {
            assert!(Queue::read(args).is_err(), "{args:?}");
        }
    }

    #[test]
    fn a_place_is_given_back_and_a_full_queue_is_counted() {
        let queue = Queue::read(&["2"]).unwrap();
        let places = [queue.enter(), queue.enter()];
        assert!(places.iter().all(Option::is_some) && queue.enter().is_none());
        assert_eq!((queue.waiting(), queue.overflows()), (2, 1));
        drop(places);
        assert_eq!(queue.waiting(), 0);
    }
}
