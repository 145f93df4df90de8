//! Purges that are written down together: while one sync runs, those that come wait for the next.
//!
//! ```text
//!   order ──► waiting ──► batch ──► written, synced ──► settled: all of it, or none
//!                           └ by one of those who wait, the leader; the others sleep
//! ```
//!
//! So purges from many threads cost little more syncs than purges from one. Whoever must be alone
//! with the journal takes the lead without a batch.
//!
//! 1. There is at most one leader, and batches are made in the order in which orders came. So rules
//!    come into force in the order of their serials, and the newest serial says that all before it
//!    have been settled.
//! 2. Every order is settled, also if its leader panics.
//! 3. A batch has at most `BATCH_MAX` orders; who waits is bounded by the threads that there are.

use std::collections::{HashMap, VecDeque};
use std::sync::{Condvar, Mutex, PoisonError};

use millpond_store::JournalError;

use super::rule::Rule;

/// Orders of a batch (arbitrary: some ten kilobytes of the journal).
const BATCH_MAX: usize = 256;

/// Rules that are one order, in the order of their serials.
pub(super) type Order = Vec<Rule>;

type Outcome = Result<(), JournalError>;

/// Orders that wait, and what came of others.
#[derive(Debug, Default)]
pub(super) struct Gather {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// The last serial that was given away, whatever came of it.
    serial: u64,
    waiting: VecDeque<Order>,
    /// Outcomes of orders, by their last serials, until who gave them has seen it.
    settled: HashMap<u64, Outcome>,
    is_led: bool,
}

/// Guard of the leader: the lead is free again when it is dropped.
struct Lead<'a> {
    gather: &'a Gather,
    batch: Vec<Order>,
    outcome: Outcome,
}

impl Drop for Lead<'_> {
    fn drop(&mut self) {
        let mut state = self.gather.lock();
        state.is_led = false;
        for rule in self.batch.iter().filter_map(|order| order.last()) {
            state.settled.insert(rule.serial, again(&self.outcome));
        }
        drop(state);
        self.gather.changed.notify_all();
    }
}

impl Gather {
    /// Writes an order by `write`, with others that wait; returns its last serial. `make` makes the
    /// rules, and is given the last serial. Waits for the disk.
    pub(super) fn order(
        &self,
        make: impl FnOnce(u64) -> Order,
        write: impl Fn(&[Order]) -> Outcome,
    ) -> Result<u64, JournalError> {
        let mut state = self.lock();
        let order = make(state.serial);
        let Some(serial) = order.last().map(|rule| rule.serial) else {
            return Ok(state.serial);
        };
        state.serial = serial;
        state.waiting.push_back(order);
        loop {
            if let Some(outcome) = state.settled.remove(&serial) {
                return outcome.map(|()| serial);
            }
            if state.is_led {
                let waited = self.changed.wait(state);
                state = waited.unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            state.is_led = true;
            let count = state.waiting.len().min(BATCH_MAX);
            let mut lead = Lead {
                gather: self,
                batch: state.waiting.drain(..count).collect(),
                // INVARIANT 2: what stays if `write` panics.
                outcome: Err(JournalError::Closed),
            };
            drop(state);
            lead.outcome = write(&lead.batch);
            drop(lead);
            state = self.lock();
        }
    }

    /// Calls a function while nothing is written.
    pub(super) fn alone<T>(&self, act: impl FnOnce() -> T) -> T {
        let mut state = self.lock();
        while state.is_led {
            let waited = self.changed.wait(state);
            state = waited.unwrap_or_else(PoisonError::into_inner);
        }
        state.is_led = true;
        drop(state);
        let _lead = Lead {
            gather: self,
            batch: Vec::new(),
            outcome: Ok(()),
        };
        act()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Copy of an outcome, for another order of the batch.
fn again(outcome: &Outcome) -> Outcome {
    match outcome {
        Ok(()) => Ok(()),
        Err(JournalError::NoRoom) => Err(JournalError::NoRoom),
        Err(JournalError::TooLarge { size, limit }) => Err(JournalError::TooLarge {
            size: *size,
            limit: *limit,
        }),
        Err(JournalError::Disk(error)) => Err(JournalError::Disk(match error.raw_os_error() {
            Some(errno) => std::io::Error::from_raw_os_error(errno),
            None => error.kind().into(),
        })),
        Err(_) => Err(JournalError::Closed),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::sync::{Arc, Barrier, mpsc};

    use super::super::rule::{Matter, Mode};
    use super::*;

    fn order(serial: u64) -> Order {
        let rule = Rule {
            serial,
            at: 0,
            mode: Mode::Hard,
            matter: Matter::All,
            position: None,
        };
        vec![rule]
    }

    /// Orders that come while one is written are one batch, in their order.
    #[test]
    fn what_comes_while_something_is_written_is_written_together() {
        let gather = Arc::new(Gather::default());
        let (begun, began) = mpsc::channel();
        let (go_on, gone_on) = mpsc::channel::<()>();
        let batches = Arc::new(Mutex::new(Vec::new()));
        std::thread::scope(|scope| {
            let (first, seen) = (Arc::clone(&gather), Arc::clone(&batches));
            scope.spawn(move || {
                let write = |batch: &[Order]| {
                    begun.send(()).unwrap();
                    gone_on.recv().unwrap();
                    seen.lock().unwrap().push(batch.len());
                    Ok(())
                };
                assert_eq!(first.order(|last| order(last + 1), write).unwrap(), 1);
            });
            began.recv().unwrap();
            for _ in 0..8 {
                let (gather, batches) = (Arc::clone(&gather), Arc::clone(&batches));
                scope.spawn(move || {
                    let write = |batch: &[Order]| {
                        assert!(batch.is_sorted_by_key(|order| order[0].serial));
                        batches.lock().unwrap().push(batch.len());
                        Ok(())
                    };
                    gather.order(|last| order(last + 1), write).unwrap();
                });
            }
            while gather.lock().waiting.len() < 8 {
                std::thread::yield_now();
            }
            go_on.send(()).unwrap();
        });
        assert_eq!(*batches.lock().unwrap(), [1, 8]);
        assert!(gather.lock().settled.is_empty());
    }

    /// The outcome of a batch is that of all its orders, also if its leader panics.
    #[test]
    fn every_order_is_settled() {
        let gather = Gather::default();
        let refused = gather.order(|_| order(1), |_| Err(JournalError::NoRoom));
        assert!(matches!(refused, Err(JournalError::NoRoom)));
        let (start, count) = (Barrier::new(9), AtomicU64::new(0));
        std::thread::scope(|scope| {
            let panics =
                scope.spawn(|| gather.order(|last| order(last + 1), |_| panic!("on purpose")));
            assert!(panics.join().is_err());
            for _ in 0..8 {
                scope.spawn(|| {
                    start.wait();
                    gather.order(|last| order(last + 1), |_| Ok(())).unwrap();
                    count.fetch_add(1, Ordering::Relaxed);
                });
            }
            start.wait();
        });
        assert_eq!(count.load(Ordering::Relaxed), 8);
        assert_eq!(gather.alone(|| 7), 7);
    }
}
