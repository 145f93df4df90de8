//! Places in which workers count: a shard that no other thread adds to, as far as there are some.
//!
//! Counters of answers are added to for each of them, and a sum that only one thread writes needs
//! no locked instruction.
//!
//! Invariants:
//! 1. A shard below [`OWN`] is added to by one thread at a time: who has its place. The others add
//!    to the shards above, as many together as there are.
//! 2. This is about the counters of answers: what else stands in the same rows is added to by
//!    anybody, and locked.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Shards of counters of answers.
pub const SHARDS: usize = 16;
/// Number of shards that one worker at a time has for itself (arbitrary: machines with more cores
/// notice the others' locks the least).
pub const OWN: usize = 8;

/// A place among all.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    shard: usize,
    is_own: bool,
}

impl Place {
    /// The place of those that have none for themselves; `number` spreads them.
    pub fn shared(number: usize) -> Self {
        Place {
            shard: OWN + number % (SHARDS - OWN),
            is_own: false,
        }
    }

    /// Shard of the place, below [`SHARDS`].
    pub fn shard(self) -> usize {
        self.shard
    }

    /// Adds to a counter of its shard.
    #[inline]
    pub fn add(self, counter: &AtomicU64, value: u64) {
        if self.is_own {
            // INVARIANT 1: nobody has added to it meanwhile.
            let sum = counter.load(Ordering::Relaxed).wrapping_add(value);
            counter.store(sum, Ordering::Relaxed);
        } else {
            counter.fetch_add(value, Ordering::Relaxed);
        }
    }
}

/// Record of the places that are taken.
#[derive(Clone, Debug, Default)]
pub struct Places(Arc<Mutex<[bool; OWN]>>);

impl Places {
    /// Takes a place for a worker's thread, until what comes back is dropped.
    pub fn take(&self, worker: usize) -> TakenPlace {
        let mut taken = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let free = taken.iter().position(|is_taken| !is_taken);
        let place = match free {
            Some(shard) => {
                taken[shard] = true;
                Place {
                    shard,
                    is_own: true,
                }
            }
            None => Place::shared(worker),
        };
        drop(taken);
        TakenPlace {
            place,
            places: self.clone(),
        }
    }
}

/// The place of a worker, which is free for another one when this is dropped.
pub struct TakenPlace {
    /// The place. Not for other threads.
    pub place: Place,
    places: Places,
}

impl fmt::Debug for TakenPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.place.fmt(f)
    }
}

impl Drop for TakenPlace {
    fn drop(&mut self) {
        if self.place.is_own {
            let mut taken = self.places.0.lock().unwrap_or_else(PoisonError::into_inner);
            // One's own is below the length.
            taken[self.place.shard] = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_of_ones_own_are_given_once_and_come_back() {
        let places = Places::default();
        let mut own: Vec<_> = (0..OWN).map(|number| places.take(number)).collect();
        let mut shards: Vec<usize> = own.iter().map(|it| it.place.shard()).collect();
        shards.sort_unstable();
        assert!(shards.into_iter().eq(0..OWN) && own.iter().all(|it| it.place.is_own));
        let further: Vec<_> = (0..SHARDS).map(|number| places.take(number)).collect();
        let is_shared =
            |it: &TakenPlace| !it.place.is_own && (OWN..SHARDS).contains(&it.place.shard);
        assert!(further.iter().all(is_shared));
        let freed = own.swap_remove(3);
        let shard = freed.place.shard();
        drop(freed);
        assert_eq!(places.take(20).place.shard(), shard);
    }

    #[test]
    fn what_is_added_at_once_is_not_lost() {
        const ROUNDS: u64 = 10_000;
        let places = Places::default();
        let counters: [AtomicU64; SHARDS] = Default::default();
        std::thread::scope(|scope| {
            for worker in 0..OWN + 4 {
                let (places, counters) = (&places, &counters);
                scope.spawn(move || {
                    let taken = places.take(worker);
                    for _ in 0..ROUNDS {
                        taken.place.add(&counters[taken.place.shard()], 1);
                    }
                });
            }
        });
        let sum: u64 = counters.iter().map(|it| it.load(Ordering::Relaxed)).sum();
        assert_eq!(sum, (OWN as u64 + 4) * ROUNDS);
    }
}
