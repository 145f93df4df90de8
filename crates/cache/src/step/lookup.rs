//! The first step: what is stored for this request, and who deals with what is not.

use std::time::Duration;

use super::fetch::Fetch;
use super::wait::Wait;
use super::{Exchange, FetchFailure, Served, Step, Walk, update};
use crate::fill::{Lead, Ticket, Waiter};
use crate::status::CacheStatus;
use crate::verdict::{StaleRules, Verdict, verdict};
use crate::zone::{FoundEntry, LookedUp};

/// Looks the entry up.
#[derive(Debug)]
pub struct Lookup {
    /// True when the request has led or joined a fill before: it is not counted again.
    is_repeated: bool,
}

impl Lookup {
    /// The first look-up of a walk.
    pub fn new() -> Self {
        Lookup { is_repeated: false }
    }

    /// A look-up after a fill has ended.
    pub fn again() -> Self {
        Lookup { is_repeated: true }
    }

    pub(crate) fn run<X: Exchange>(self, x: &mut X, walk: &Walk) -> Result<Step<X>, X::Failure> {
        if !self.is_repeated && x.must_bypass() {
            return Ok(bypass(walk));
        }
        let looked_up = walk
            .zone
            .look_up(&walk.key.key, &walk.key.text, &|name| x.field(name));
        match looked_up {
            LookedUp::Found(found) => match verdict(&found.head, x.now(), &walk.policies.stale) {
                Verdict::Fresh => Ok(Step::Done(Served::Entry(found, CacheStatus::Hit))),
                Verdict::Stale(rules) => Ok(stale(x, walk, found, rules)),
            },
            LookedUp::Missing(key) => self.missing(x, walk, key),
        }
    }

    fn missing<X: Exchange>(
        self,
        x: &mut X,
        walk: &Walk,
        key: millpond_store::Key,
    ) -> Result<Step<X>, X::Failure> {
        if let Some(status) = walk.zone.remembered_error(&key, x.now()) {
            return Err(X::Failure::shared(status));
        }
        let policies = &walk.policies;
        if !self.is_repeated && !walk.zone.uses.admits(&key, &policies.admission) {
            return Ok(Step::Fetch(Fetch::unstored(CacheStatus::Miss)));
        }
        if !policies.range.may_fill(x.field(b"range").first().copied()) {
            return Ok(Step::Pass(CacheStatus::Miss));
        }
        Ok(match enter(walk, key) {
            Ticket::Lead(lead) => Step::Fetch(Fetch::miss(lead)),
            Ticket::Wait(waiter) => Step::Wait(Wait::for_missing(waiter)),
        })
    }
}

impl Default for Lookup {
    fn default() -> Self {
        Lookup::new()
    }
}

fn enter(walk: &Walk, key: millpond_store::Key) -> Ticket {
    let lock = &walk.policies.lock;
    // nginx: the age belongs to the lock; without it a fill is as old as it is.
    let age = if lock.enabled {
        lock.age
    } else {
        Duration::MAX
    };
    walk.zone.fills.enter(key, age)
}

/// nginx: a bypassed answer may replace the stored one; while another is being stored it is not.
fn bypass<X: Exchange>(walk: &Walk) -> Step<X> {
    match walk.zone.fills.enter(walk.key.key, Duration::MAX) {
        Ticket::Lead(lead) => Step::Fetch(Fetch::bypass(lead)),
        Ticket::Wait(_) => Step::Fetch(Fetch::unstored(CacheStatus::Bypass)),
    }
}

fn stale<X: Exchange>(
    x: &mut X,
    walk: &Walk,
    found: Box<FoundEntry>,
    rules: StaleRules,
) -> Step<X> {
    match enter(walk, found.key) {
        Ticket::Lead(lead) => lead_stale(x, walk, found, rules, lead),
        Ticket::Wait(waiter) => wait_stale(x, found, rules, waiter),
    }
}

fn lead_stale<X: Exchange>(
    x: &mut X,
    walk: &Walk,
    found: Box<FoundEntry>,
    rules: StaleRules,
    lead: Lead,
) -> Step<X> {
    let behind = walk.policies.revalidate.in_background && !x.is_background();
    if !behind || !rules.while_updating {
        return Step::Fetch(Fetch::stale(lead, found, rules));
    }
    let task = update(x.background(), walk.clone(), lead, found.clone());
    x.spawn(task);
    Step::Done(Served::Entry(found, CacheStatus::Stale))
}

fn wait_stale<X: Exchange>(
    x: &X,
    found: Box<FoundEntry>,
    rules: StaleRules,
    waiter: Waiter,
) -> Step<X> {
    if rules.while_updating && !x.is_background() {
        return Step::Done(Served::Entry(found, CacheStatus::Updating));
    }
    Step::Wait(Wait::for_stale(waiter))
}
