//! One request's walk through the cache.
//!
//! ```text
//!          ┌ bypass ───────────────────────────────► Fetch (BYPASS)
//!  Lookup ─┼ fresh ────────────────────────────────► Deliver (HIT)
//!    ▲     ├ stale ── leader ─ served, updated behind ► Deliver (STALE), background Fetch
//!    │     │       │         └─────────────────────► Fetch (EXPIRED) ─ 304 ► Deliver (REVALIDATED)
//!    │     │       └─ waiter ─ may be served ──────► Deliver (UPDATING)
//!    │     │                 └► Wait, as below, with the stale entry in reserve (EXPIRED, STALE)
//!    │     ├ unread ─► Read ─ read ► Lookup ─ the disk does not answer ► as missing
//!    │     └ missing ─ leader ─► Fetch (MISS)
//!    │               └ waiter ─► Wait ─ head known ► Deliver from the fill (HIT)
//!    └─ stored; other variant ───┘  └─ timed out, not storable ► Pass (MISS)
//! ```
//!
//! Each step is a struct with a `run` that consumes it; [`serve`] is the driver, in two parts: what
//! does not wait, and the rest. The trail of steps
//! is kept for tests and logs.
//!
//! Invariants:
//! 1. A walk ends within `STEPS_MAX` steps.
//! 2. A lead is ended in every way out of a fetch; what is not said ends it as abandoned.
//! 3. Statuses and notes are labels: no step looks at them.
//! 4. A failure of a fill reaches those who wait for it, or makes one of them lead: never all of
//!    them ask.

mod fetch;
mod freshen;
mod learn;
mod lookup;
mod read;
mod slice;
mod store;
mod wait;

use std::sync::Arc;
use std::time::Duration;

use millpond_store::{Entry, Key};

use crate::admit::AdmissionPolicy;
use crate::conformance::Rules;
use crate::disk_timeout::DiskPolicy;
use crate::exchange::{Ask, Exchange, FetchFailure};
use crate::fill::lock::LockPolicy;
use crate::fill::pump::Reader;
use crate::fill::{Lead, Streaming, Ticket};
use crate::head::StoredHead;
use crate::hit_for_pass::HitForPassPolicy;
use crate::ignore::IgnorePolicy;
use crate::key_mark::KeyMark;
use crate::lag::{LagPolicy, Trust};
use crate::max_variants::MaxVariantsPolicy;
use crate::range::RangePolicy;
use crate::reason::{Note, Reason};
use crate::refresh_backoff::BackoffPolicy;
use crate::revalidate::RevalidatePolicy;
use crate::slice::Slicing;
use crate::status::CacheStatus;
use crate::targeted::TargetedPolicy;
use crate::use_stale::StalePolicy;
use crate::valid::ValidPolicy;
use crate::zone::{CacheZone, FoundEntry, LookedUp, PrimaryKey};

pub use learn::learn_from_head;
pub use lookup::{Looked, Lookup, Question, look};
pub use store::{Given, Kept, NotKept, judge};
pub use wait::Wait;

use fetch::{Fetch, Place, Stale};
use read::Read;

/// Most requests of an update: with the validators, for a range, and for the whole without either.
const UPDATE_ASKS: usize = 3;

/// Steps of one walk; more means that fills of this key end again and again before they can be
/// joined, and the request is passed on by itself (arbitrary).
const STEPS_MAX: usize = 16;

/// The policies of a location, together.
#[derive(Clone, Debug)]
pub struct Policies {
    /// Times of freshness.
    pub valid: ValidPolicy,
    /// Waiting.
    pub lock: LockPolicy,
    /// Waiting for disks.
    pub disk: DiskPolicy,
    /// Keys that nobody waits for.
    pub hit_for_pass: HitForPassPolicy,
    /// Number of variants.
    pub max_variants: MaxVariantsPolicy,
    /// Stale answers.
    pub stale: StalePolicy,
    /// Updates.
    pub revalidate: RevalidatePolicy,
    /// Updates that fail.
    pub backoff: BackoffPolicy,
    /// Ranges of missing entries.
    pub range: RangePolicy,
    /// Popularity.
    pub admission: AdmissionPolicy,
    /// Fields that are not obeyed.
    pub ignore: IgnorePolicy,
    /// Fields that are obeyed instead of Cache-Control.
    pub targeted: TargetedPolicy,
    /// Stored answers while purges of other nodes may be missing.
    pub lag: LagPolicy,
}

/// State that does not change during a walk.
#[derive(Clone, Debug)]
pub struct Walk {
    /// The zone.
    pub zone: Arc<CacheZone>,
    /// The key.
    pub key: PrimaryKey,
    /// The policies.
    pub policies: Arc<Policies>,
    /// Rules that the request is under, and its wishes.
    pub rules: Rules,
    /// Manner in which bodies are kept in slices; `None` where they are not.
    pub slicing: Option<Slicing>,
    /// An entry whose body its disk did not give in time: it is as if it were not there.
    pub past: Option<Entry>,
}

impl Walk {
    /// The name of what is remembered of a key that its own text has.
    pub(crate) fn mark(&self, key: &Key) -> KeyMark {
        self.zone.mark(key, &self.key.text)
    }

    /// Trust in what is stored now.
    pub(crate) fn trust(&self) -> Trust {
        match trust(&self.zone, &self.policies) {
            Trust::Whole if self.confirms() => Trust::Validated,
            trust => trust,
        }
    }

    fn confirms(&self) -> bool {
        self.slicing.is_some_and(|slicing| slicing.confirms)
    }

    /// True if requests wait for the head of another's fill. Who fills an entry in slices is done
    /// with the head: nobody waits for more.
    pub(crate) fn locks(&self) -> bool {
        self.policies.lock.enabled || self.slicing.is_some()
    }
}

/// Trust in what a zone has stored, under the policies of a location.
pub(crate) fn trust(zone: &CacheZone, policies: &Policies) -> Trust {
    let lag = &zone.purges.lag;
    lag.trust(&policies.lag, || zone.store.since_boot_ms())
}

/// Answer to a request.
pub enum Served<F> {
    /// A stored entry.
    Entry(Box<FoundEntry>, CacheStatus),
    /// A fill that runs.
    Filling(Arc<Streaming>, Reader, CacheStatus),
    /// The origin's answer, unstored.
    Passed(F, CacheStatus),
}

/// A step that is to be taken next.
pub(crate) enum Step<X: Exchange> {
    Lookup(Lookup),
    Wait(Wait),
    Read(Read),
    Fetch(Fetch),
    Pass(CacheStatus),
    Done(Served<X::Fetched>),
}

impl<X: Exchange> Step<X> {
    fn name(&self) -> &'static str {
        match self {
            Step::Lookup(_) => "lookup",
            Step::Wait(_) => "wait",
            Step::Read(_) => "read",
            Step::Fetch(_) => "fetch",
            Step::Pass(_) => "pass",
            Step::Done(_) => "deliver",
        }
    }

    /// Label of the request if it ends in this step.
    fn label(&self) -> Option<CacheStatus> {
        match self {
            Step::Lookup(_) | Step::Done(_) => None,
            Step::Wait(step) => Some(step.label()),
            Step::Read(step) => Some(step.label()),
            Step::Fetch(step) => Some(step.label()),
            Step::Pass(status) => Some(*status),
        }
    }
}

/// The names of the steps that a walk took, for tests and debug logs.
pub type Trail = Vec<&'static str>;

/// Progress of a walk that did not wait.
pub enum Begun<X: Exchange> {
    /// The walk came to its end: an entry.
    Found(Box<FoundEntry>, CacheStatus),
    /// [`finish`] walks on.
    Waits(Rest<X>),
}

/// Rest of a walk: the step that is to be taken next. It stays where it is, since a walk is one of
/// many that wait.
pub struct Rest<X: Exchange>(Step<X>);

impl<X: Exchange> From<Begun<X>> for Rest<X> {
    fn from(begun: Begun<X>) -> Self {
        match begun {
            Begun::Found(found, status) => Rest(Step::Done(Served::Entry(found, status))),
            Begun::Waits(rest) => rest,
        }
    }
}

/// Walks a request to what it is answered with; `note` gets the name of each step.
pub async fn serve<X: Exchange>(
    x: &mut X,
    walk: &Walk,
    note: &mut dyn FnMut(&'static str),
) -> Result<Served<X::Fetched>, X::Failure> {
    match begin(x, walk, note)? {
        Begun::Found(found, status) => Ok(Served::Entry(found, status)),
        Begun::Waits(mut rest) => finish(x, walk, note, &mut rest).await,
    }
}

/// Walks as far as nothing is to be waited for: most walks are over then.
pub fn begin<X: Exchange>(
    x: &mut X,
    walk: &Walk,
    note: &mut dyn FnMut(&'static str),
) -> Result<Begun<X>, X::Failure> {
    note("lookup");
    Ok(match Lookup::new().run(x, walk)? {
        Step::Done(Served::Entry(found, status)) => {
            note("deliver");
            Begun::Found(found, status)
        }
        step => Begun::Waits(Rest(step)),
    })
}

/// Begins a walk as [`begin`] does, when its first look-up was made by [`look`], without a bypass.
pub fn begin_from<X: Exchange>(
    x: &mut X,
    walk: &Walk,
    looked_up: LookedUp,
) -> Result<Begun<X>, X::Failure> {
    Ok(match Lookup::new().go_on(x, walk, looked_up)? {
        Step::Done(Served::Entry(found, status)) => Begun::Found(found, status),
        step => Begun::Waits(Rest(step)),
    })
}

/// Walks on to the end; who goes on from there is passed on.
pub async fn finish<X: Exchange>(
    x: &mut X,
    walk: &Walk,
    note: &mut dyn FnMut(&'static str),
    rest: &mut Rest<X>,
) -> Result<Served<X::Fetched>, X::Failure> {
    let mut step = std::mem::replace(&mut rest.0, Step::Pass(CacheStatus::Miss));
    for _ in 1..STEPS_MAX {
        note(step.name());
        if let Some(status) = step.label() {
            x.label(status);
        }
        step = match step {
            Step::Lookup(step) => step.run(x, walk)?,
            // What waits longest has no room in every walk.
            Step::Wait(step) => Box::pin(step.run(x, walk)).await?,
            Step::Read(step) => Box::pin(step.run(walk)).await,
            Step::Fetch(step) => step.run(x, walk).await?,
            Step::Pass(status) => pass(x, status).await?,
            Step::Done(served) => return Ok(served),
        };
    }
    match pass(x, CacheStatus::Miss).await? {
        Step::Done(served) => Ok(served),
        _ => Err(X::Failure::shared(500)),
    }
}

/// Asks the origin for this client alone.
async fn pass<X: Exchange>(x: &mut X, status: CacheStatus) -> Result<Step<X>, X::Failure> {
    x.note(Note::Alone);
    let fetched = x.fetch(Ask::default()).await?;
    Ok(Step::Done(Served::Passed(fetched, status)))
}

/// Stores an answer that was fetched without a look-up under the walk's key, if it may be stored
/// no other answer is being stored there, and nothing was purged since the origin was asked: the
/// newest purge then was `since`.
pub fn keep<X: Exchange>(
    x: &mut X,
    walk: &Walk,
    fetched: X::Fetched,
    since: u64,
) -> Served<X::Fetched> {
    let (key, text) = (walk.key.key, &walk.key.text);
    match walk.zone.fills.enter(key, text, Duration::MAX) {
        Ticket::Lead(lead) if lead.serial() != since => pass_on(fetched),
        Ticket::Lead(lead) => Place::unasked(lead).take(x, walk, fetched),
        Ticket::Wait(_) => {
            x.note(Note::Because(Reason::BeingStored));
            Served::Passed(fetched, CacheStatus::Bypass)
        }
    }
}

/// An answer that was fetched without a look-up, to be passed on unstored.
pub fn pass_on<F>(fetched: F) -> Served<F> {
    Served::Passed(fetched, CacheStatus::Bypass)
}

/// Updates a stale entry for no client.
pub(crate) async fn update<X: Exchange>(mut x: X, walk: Walk, lead: Lead, stale: Stale) {
    let mut fetch = Fetch::stale(lead, stale);
    for _ in 0..UPDATE_ASKS {
        fetch = match fetch.run(&mut x, &walk).await {
            Ok(Step::Fetch(next)) => next,
            // A failed update leaves the stale entry as it is; the upstream code has logged why.
            Ok(_) | Err(_) => return,
        };
    }
}

/// A finished entry with its head, as if it had been looked up.
fn found(entry: Entry, head: StoredHead) -> Box<FoundEntry> {
    Box::new(FoundEntry {
        key: *entry.key(),
        entry,
        head: head.into(),
    })
}

#[cfg(test)]
mod tests;
