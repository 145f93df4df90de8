//! The step of those who came second: wait for the fill's head, read along, or go on alone.

use tokio::time::Instant;

use super::fetch::Fetch;
use super::lookup::Lookup;
use super::{Exchange, FetchFailure, Served, Step, Walk};
use crate::fill::pump::Reader;
use crate::fill::{FillEnd, Streaming, Waited, Waiter};
use crate::status::CacheStatus;
use crate::variant;
use std::sync::Arc;

/// Waits for another request's fill.
#[derive(Debug)]
pub struct Wait {
    waiter: Waiter,
    /// The label if the request goes on alone.
    alone: CacheStatus,
}

impl Wait {
    pub(crate) fn for_missing(waiter: Waiter) -> Self {
        Wait {
            waiter,
            alone: CacheStatus::Miss,
        }
    }

    pub(crate) fn for_stale(waiter: Waiter) -> Self {
        Wait {
            waiter,
            alone: CacheStatus::Expired,
        }
    }

    pub(crate) async fn run<X: Exchange>(
        mut self,
        x: &mut X,
        walk: &Walk,
    ) -> Result<Step<X>, X::Failure> {
        let waited = match self.waiter.now() {
            Some(known) => known,
            None if !walk.policies.lock.enabled => return Ok(self.alone()),
            None => self.wait(walk).await,
        };
        Ok(match waited {
            Waited::Streaming(streaming) => self.join(x, walk, streaming),
            Waited::Ended(FillEnd::Complete | FillEnd::Abandoned) => Step::Lookup(Lookup::again()),
            Waited::Ended(FillEnd::NotStorable) => self.alone(),
            Waited::Ended(FillEnd::Failed(status)) => return Err(X::Failure::shared(status)),
            Waited::TimedOut => self.timed_out(walk),
        })
    }

    async fn wait(&mut self, walk: &Walk) -> Waited {
        let lock = &walk.policies.lock;
        let now = Instant::now();
        let aged = self.waiter.started().checked_add(lock.age);
        let patience = now.checked_add(lock.timeout);
        let deadline = match (aged, patience) {
            (Some(aged), Some(patience)) => aged.min(patience),
            (Some(one), None) | (None, Some(one)) => one,
            (None, None) => now,
        };
        self.waiter.wait(deadline).await
    }

    /// The lock timed out, or the fill is so old that one more request may try.
    fn timed_out<X: Exchange>(self, walk: &Walk) -> Step<X> {
        let lock = &walk.policies.lock;
        let is_aged = self.waiter.started().elapsed() >= lock.age;
        if is_aged && lock.age <= lock.timeout {
            Step::Lookup(Lookup::again())
        } else {
            self.alone()
        }
    }

    fn alone<X: Exchange>(self) -> Step<X> {
        Step::Fetch(Fetch::unstored(self.alone))
    }

    /// Reads along, if the fill is of the request's own variant.
    fn join<X: Exchange>(self, x: &X, walk: &Walk, streaming: Arc<Streaming>) -> Step<X> {
        let head = &streaming.head;
        if !head.vary.is_empty() {
            let wanted = variant::hash(&walk.key.key, &head.vary, &|name| x.field(name));
            if wanted != head.variant {
                return self.alone();
            }
        }
        let reader = Reader {
            view: streaming.view.clone(),
            overflow: None,
        };
        Step::Done(Served::Filling(streaming, reader, CacheStatus::Hit))
    }
}
