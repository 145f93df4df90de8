//! The step of those who came second: wait for the fill's head, read along, or go on alone.
//!
//! 1. The patience of a request (`proxy_cache_lock_timeout`) covers all fills it waits for.
//! 2. A fill that has not moved for `proxy_cache_lock_age` is no longer waited for.
//! 3. A fill that came to nothing for a reason that need not hold for the next one is followed by
//!    one more, whatever it comes to: one of those who waited leads it.

use std::sync::Arc;

use tokio::time::Instant;

use super::fetch::{Fetch, Stale};
use super::lookup::Lookup;
use super::store;
use super::{Served, Step, Walk};
use crate::clock;
use crate::disk_timeout::DiskPolicy;
use crate::exchange::{Exchange, FetchFailure};
use crate::fill::lock::LockPolicy;
use crate::fill::{FillEnd, Streaming, Waited, Waiter};
use crate::purge::Judged;
use crate::reason::{Brought, Note, Reason};
use crate::status::CacheStatus;
use crate::variant::{RequestFields, Siblings};

/// Waits for another request's fill.
#[derive(Debug)]
pub struct Wait {
    waiter: Waiter,
    /// The stale entry of the request, if it has one.
    stale: Option<Stale>,
    patience: Patience,
}

/// Deadlines of a request that waits for fills; set with the first fill and not renewed.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Patience {
    until: Option<Instant>,
    /// Deadline of waiting for disks; set with the first one.
    disk_until: Option<Instant>,
    /// True if a fill came to nothing already, and was waited for once more.
    is_second: bool,
}

impl Patience {
    /// Deadline of the waiting; from now on it is running.
    fn deadline(&mut self, lock: &LockPolicy) -> Option<Instant> {
        if self.until.is_none() {
            self.until = clock::now().checked_add(lock.timeout);
        }
        self.until
    }

    /// Deadline of waiting for disks; from now on it is running.
    pub(super) fn disk_deadline(&mut self, disk: &DiskPolicy) -> Option<Instant> {
        if self.disk_until.is_none() {
            self.disk_until = clock::now().checked_add(disk.timeout);
        }
        self.disk_until
    }

    /// INVARIANT 3: true once.
    fn has_another(&mut self) -> bool {
        !std::mem::replace(&mut self.is_second, true)
    }
}

impl Wait {
    pub(crate) fn for_missing(waiter: Waiter, patience: Patience) -> Self {
        Wait {
            waiter,
            stale: None,
            patience,
        }
    }

    pub(crate) fn for_stale(waiter: Waiter, stale: Stale, patience: Patience) -> Self {
        Wait {
            waiter,
            stale: Some(stale),
            patience,
        }
    }

    /// The label of a request whose fill failed.
    pub(crate) fn label(&self) -> CacheStatus {
        match self.stale {
            Some(_) => CacheStatus::Expired,
            None => CacheStatus::Miss,
        }
    }

    pub(crate) async fn run<X: Exchange>(
        mut self,
        x: &mut X,
        walk: &Walk,
    ) -> Result<Step<X>, X::Failure> {
        let waited = match self.waiter.now() {
            Some(Waited::Streaming(streaming)) if walk.locks() && !streaming.is_delimited => {
                self.wait(walk).await
            }
            Some(known) => known,
            None if !walk.locks() => {
                x.note(Note::Because(Reason::NoLock));
                return Ok(self.alone());
            }
            None => self.wait(walk).await,
        };
        match waited {
            Waited::Streaming(streaming) => Ok(self.join(x, walk, streaming)),
            Waited::TimedOut => Ok(self.timed_out(x, walk)),
            Waited::Ended(end) => self.ended(x, walk, end),
        }
    }

    /// Waits until patience ends or the fill is old. One that has moved in the meantime grows old
    /// later, so each round ends later than the one before it.
    async fn wait(&mut self, walk: &Walk) -> Waited {
        let lock = &walk.policies.lock;
        let patience = self.patience.deadline(lock);
        loop {
            let old = self.waiter.grows_old_at(lock.age);
            let Some(deadline) = [old, patience].into_iter().flatten().min() else {
                return Waited::TimedOut;
            };
            let waited = self.waiter.wait(deadline).await;
            let is_over = patience.is_some_and(|patience| clock::now() >= patience);
            match waited {
                Waited::TimedOut if !is_over && !self.waiter.is_old(lock.age) => {}
                waited => return waited,
            }
        }
    }

    fn ended<X: Exchange>(
        mut self,
        x: &mut X,
        walk: &Walk,
        end: FillEnd,
    ) -> Result<Step<X>, X::Failure> {
        x.note(Note::Waited);
        match (end, self.stale) {
            (FillEnd::Complete, _) => {
                x.note(Note::Brought(Brought::All));
                Ok(Step::Lookup(Lookup::shared(self.patience)))
            }
            (FillEnd::Unchanged, _) => Ok(Step::Lookup(Lookup::shared(self.patience))),
            (FillEnd::Abandoned, _) => Ok(Step::Lookup(Lookup::again(self.patience))),
            // It asks for itself, and is judged by itself.
            (FillEnd::NotStorable, _)
                if walk.zone.unstorable.has(&walk.mark(self.waiter.key())) =>
            {
                Ok(Step::Lookup(Lookup::again(self.patience)))
            }
            (FillEnd::Withheld, stale) => {
                // What kept the leader's answer out would keep out this one, too.
                if store::may_keep_out(x, &walk.rules) || !self.patience.has_another() {
                    x.note(Note::Because(Reason::NotShared));
                    return Ok(alone(stale));
                }
                Ok(Step::Lookup(Lookup::again(self.patience)))
            }
            (FillEnd::Broken(end), Some(stale))
                if stale.covers_failure(walk, Some(end.cause())) =>
            {
                Ok(stale.served(x))
            }
            (FillEnd::Broken(end), _) => {
                if self.patience.has_another() {
                    Ok(Step::Lookup(Lookup::again(self.patience)))
                } else {
                    x.note(Note::Because(Reason::SharedFailure));
                    Err(X::Failure::shared(end.status()))
                }
            }
            (FillEnd::Failed { cause, .. }, Some(stale)) if stale.covers_failure(walk, cause) => {
                Ok(stale.served(x))
            }
            (FillEnd::Failed { status, .. }, _) => {
                x.note(Note::Because(Reason::SharedFailure));
                Err(X::Failure::shared(status))
            }
            (FillEnd::KeptStale(status), Some(stale)) if stale.covers_status(walk, status) => {
                Ok(stale.served(x))
            }
            (FillEnd::KeptStale(_) | FillEnd::NotStorable, stale) => {
                x.note(Note::Because(Reason::NotShared));
                Ok(alone(stale))
            }
        }
    }

    /// The lock timed out, or the fill is so old that one more request may try.
    fn timed_out<X: Exchange>(self, x: &mut X, walk: &Walk) -> Step<X> {
        if self.waiter.is_old(walk.policies.lock.age) {
            Step::Lookup(Lookup::again(self.patience))
        } else {
            x.note(Note::Because(Reason::LockTimeout));
            self.alone()
        }
    }

    fn alone<X: Exchange>(self) -> Step<X> {
        alone(self.stale)
    }

    /// Reads along, if the fill is of the request's own key and variant.
    fn join<X: Exchange>(self, x: &mut X, walk: &Walk, streaming: Arc<Streaming>) -> Step<X> {
        let head = &streaming.head;
        if head.key != walk.key.text {
            x.note(Note::Because(Reason::NotShared));
            return self.alone();
        }
        if walk.zone.purges.judge(&head.subject()) != Judged::Untouched {
            // Purged while it ran: nobody new is given it.
            return Step::Lookup(Lookup::again(self.patience));
        }
        if !head.vary.is_empty() {
            let fields = RequestFields {
                lookup: &|name| x.selecting(name),
                spelling: walk.rules.spelling(),
            };
            let wanted = fields.variant(&head.vary);
            if wanted != head.variant {
                let siblings = Siblings {
                    vary: head.vary.clone(),
                    seed: head.seed,
                };
                return Step::Lookup(Lookup::variant(siblings, self.patience));
            }
        }
        let Some(reader) = streaming.reader() else {
            // The store has given it up, and its beginning is gone.
            return Step::Lookup(Lookup::again(self.patience));
        };
        self.waiter.join();
        x.note(Note::Collapsed);
        Step::Done(Served::Filling(streaming, reader, CacheStatus::Hit))
    }
}

/// Asks the origin for this client only.
fn alone<X: Exchange>(stale: Option<Stale>) -> Step<X> {
    match stale {
        Some(stale) => Step::Fetch(Fetch::unstored_stale(stale)),
        None => Step::Pass(CacheStatus::Miss),
    }
}
