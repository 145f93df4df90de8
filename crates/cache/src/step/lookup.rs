//! The first step: what is stored for this request, and who deals with what is not.
//!
//! 1. A request that has won the right to fill looks once more: what was stored between its look-up
//!    and that moment is not fetched again.
//! 2. An origin that failed to refresh an entry is not asked again before its time, unless the
//!    stale entry may not be served.
//! 3. Without the lock, or for a key whose answers may not be stored, a request joins a fill whose
//!    head is known and waits for no other.
//! 4. While the zone is behind the log of its fleet, no entry is served that was not validated
//!    since, or stored by a fill that this request waited for; and no fill is waited for that began
//!    longer than `max_lag` ago.
//! 5. What the zone may hold and has not loaded yet is waited for as a disk is; who has waited for
//!    long enough passes, and its answer takes the place of nothing.
//! 6. Under RFC 9111 an answer whose head was known when a request came serves it as a stored one
//!    would. Who may not have it asks for itself; if nobody may, the next ones wait for that.

use std::time::Duration;

use millpond_semantics::cache_status::Forward;
use millpond_semantics::reuse::RequestRules;
use millpond_store::{Cold, Key};

use super::fetch::{Fetch, Stale};
use super::read::Read;
use super::wait::{Patience, Wait};
use super::{Policies, Served, Step, Walk, trust, update};
use crate::conformance::Rules;
use crate::disk_timeout::Disk;
use crate::exchange::{Exchange, FetchFailure};
use crate::fill::{FillEnd, Lead, Ticket, Waited, Waiter};
use crate::lag::Trust;
use crate::reason::{Note, Reason};
use crate::slice::table::Habit;
use crate::status::CacheStatus;
use crate::use_stale::StaleCause;
use crate::variant::{RequestFields, Siblings, VariantKey};
use crate::verdict::{Verdict, verdict};
use crate::zone::{CacheZone, FoundEntry, LookedUp, Unread};

/// Question of a request to a zone, as far as its first look-up needs to know. Most requests are
/// over with that, so nothing of it is owned.
#[derive(Clone, Copy, Debug)]
pub struct Question<'a> {
    /// The zone.
    pub zone: &'a CacheZone,
    /// The key.
    pub key: &'a Key,
    /// Text of the cache key.
    pub text: &'a [u8],
    /// The policies.
    pub policies: &'a Policies,
    /// Rules that the request is under.
    pub rules: &'a Rules,
}

/// Answer to a [`Question`].
#[derive(Debug)]
pub enum Looked {
    /// A fresh entry, and why it is served.
    Fresh(FoundEntry, Reason),
    /// Anything else, for [`super::begin_from`].
    Other(LookedUp),
}

/// Looks up what a request asks for at `now` (seconds).
pub fn look(question: &Question<'_>, fields: &RequestFields<'_>, now: i64) -> Looked {
    let Question { key, text, .. } = *question;
    let second = u32::try_from(now).unwrap_or(u32::MAX);
    match question.zone.seek((key, text), fields, second) {
        LookedUp::Found(found)
            if verdict(&found.head, now, &question.policies.stale, question.rules)
                == Verdict::Fresh
                && trust(question.zone, question.policies) == Trust::Whole =>
        {
            let why = why_served(now, &found);
            Looked::Fresh(found, why)
        }
        other => Looked::Other(other.boxed()),
    }
}

/// Looks the entry up.
#[derive(Debug)]
pub struct Lookup {
    round: Round,
    pub(super) patience: Patience,
    pub(super) disk: Disk,
    /// Reads of the disk for this look-up, so that it finds their results.
    pub(super) reads: Vec<Cold>,
}

/// Position of the look-up in its walk.
#[derive(Debug)]
enum Round {
    /// The first.
    First,
    /// One after a fill has ended: the request is not counted again.
    Again,
    /// A look-up like [`Round::Again`], after a fill that this request waited for: what it finds is
    /// shared.
    Shared,
    /// A look-up like [`Round::Again`], for the request's own variant: a running fill of another
    /// one says what they have in common.
    Variant(Siblings),
}

impl Lookup {
    /// The first look-up of a walk.
    pub fn new() -> Self {
        Lookup::of(Round::First, Patience::default())
    }

    /// A look-up after a fill has ended.
    pub(crate) fn again(patience: Patience) -> Self {
        Lookup::of(Round::Again, patience)
    }

    /// A look-up after a fill that this request waited for, and that is in the store.
    pub(crate) fn shared(patience: Patience) -> Self {
        Lookup::of(Round::Shared, patience)
    }

    /// A look-up of the request's variant, by a running fill of another one.
    pub(crate) fn variant(siblings: Siblings, patience: Patience) -> Self {
        Lookup::of(Round::Variant(siblings), patience)
    }

    fn of(round: Round, patience: Patience) -> Self {
        Lookup {
            round,
            patience,
            disk: Disk::default(),
            reads: Vec::new(),
        }
    }

    pub(crate) fn run<X: Exchange>(self, x: &mut X, walk: &Walk) -> Result<Step<X>, X::Failure> {
        if self.is_first() && x.must_bypass() && !x.must_be_stored() {
            return Ok(bypass(x, walk));
        }
        let looked_up = self.look_up(x, walk);
        self.go_on(x, walk, looked_up)
    }

    /// Goes on with what was found.
    pub(super) fn go_on<X: Exchange>(
        self,
        x: &mut X,
        walk: &Walk,
        looked_up: LookedUp,
    ) -> Result<Step<X>, X::Failure> {
        match looked_up {
            LookedUp::Missing(wanted) => self.missing(x, walk, wanted.key),
            LookedUp::Unread(wanted, unread) => self.unread(x, walk, (wanted.key, unread)),
            LookedUp::Found(found) => {
                let now = x.now();
                let trust = self.trust(walk);
                if trust == Trust::None {
                    return self.missing(x, walk, found.key);
                }
                match trust.over(judge(now, walk, &found)) {
                    Verdict::Fresh => {
                        x.note(match self.round {
                            // RFC 9211 §2.6: it was forwarded, together with another one.
                            Round::Shared => Note::Collapsed,
                            _ => Note::Hit(why_served(now, &found)),
                        });
                        Ok(Step::Done(Served::Entry(found, CacheStatus::Hit)))
                    }
                    Verdict::Stale(rules) => self.stale(x, walk, Stale { found, rules }),
                }
            }
        }
    }

    /// Trust in what this look-up finds. INVARIANT 4: who waited for a fill that was young enough
    /// takes what it stored.
    fn trust(&self, walk: &Walk) -> Trust {
        match self.round {
            Round::Shared => Trust::Whole,
            Round::First | Round::Again | Round::Variant(_) => walk.trust(),
        }
    }

    fn is_first(&self) -> bool {
        matches!(self.round, Round::First)
    }

    fn look_up<X: Exchange>(&self, x: &X, walk: &Walk) -> LookedUp {
        let fields = RequestFields {
            lookup: &|name| x.selecting(name),
            spelling: walk.rules.spelling(),
        };
        let held = match &self.round {
            Round::Variant(siblings) => walk.zone.look_up_variant(&walk.key, siblings, &fields),
            Round::First | Round::Again | Round::Shared => walk.zone.look_up(&walk.key, &fields),
        };
        let looked_up = match held {
            LookedUp::Found(found) if !self.is_first() && self.trust(walk) == Trust::None => {
                LookedUp::Missing(wanted_of(walk, &found))
            }
            looked_up => looked_up,
        };
        match (looked_up, &walk.past) {
            (LookedUp::Found(found), Some(past)) if past.is(&found.entry) => {
                LookedUp::Unread(wanted_of(walk, &found), Unread::Stalled)
            }
            (looked_up, _) => looked_up,
        }
    }

    fn unread<X: Exchange>(
        self,
        x: &mut X,
        walk: &Walk,
        (key, unread): (Key, Unread),
    ) -> Result<Step<X>, X::Failure> {
        match unread {
            Unread::Cold(cold) | Unread::Unknown(Some(cold)) if self.disk == Disk::Awaited => {
                return Ok(Step::Read(Read::new(self, cold)));
            }
            Unread::Unknown(_) => {
                // INVARIANT 5.
                not_found(x, walk, key)?;
                x.note(Note::Because(Reason::Loading));
                return Ok(Step::Pass(CacheStatus::Miss));
            }
            Unread::Cold(_) | Unread::Stalled => {}
        }
        let step = self.missing(x, walk, key)?;
        x.note(Note::Because(Reason::DiskStalled));
        Ok(step)
    }

    fn missing<X: Exchange>(self, x: &mut X, walk: &Walk, key: Key) -> Result<Step<X>, X::Failure> {
        not_found(x, walk, key)?;
        if self.is_first()
            && !walk
                .zone
                .uses
                .admits(&walk.mark(&key), &walk.policies.admission)
        {
            x.note(Note::Because(Reason::MinUses));
            return Ok(Step::Pass(CacheStatus::Miss));
        }
        if !may_fill(x, walk) {
            x.note(Note::Because(Reason::RangeOffset));
            return Ok(Step::Pass(CacheStatus::Miss));
        }
        if asks_in_vain(walk, &key) {
            x.note(Note::Because(Reason::Unversioned));
            return Ok(Step::Pass(CacheStatus::Miss));
        }
        let ticket = match enter(walk, key) {
            Ticket::Wait(waiter) => unless_unlocked(x, walk, waiter),
            lead => lead,
        };
        Ok(match ticket {
            Ticket::Lead(lead) => self.lead_missing(x, walk, lead),
            Ticket::Wait(waiter) => Step::Wait(Wait::for_missing(waiter, self.patience)),
        })
    }

    fn lead_missing<X: Exchange>(self, x: &X, walk: &Walk, lead: Lead) -> Step<X> {
        let first = VariantKey::first(walk.key.key);
        // Nothing was stored since it was looked up.
        if *lead.key() == first.key && !walk.zone.store.may_hold(&first.key) {
            return Step::Fetch(Fetch::miss(lead, first.seed));
        }
        match self.look_up(x, walk) {
            LookedUp::Missing(wanted)
            | LookedUp::Unread(wanted, Unread::Cold(_) | Unread::Stalled)
                if wanted.key == *lead.key() =>
            {
                Step::Fetch(Fetch::miss(lead, wanted.seed))
            }
            _ => {
                lead.end(FillEnd::Unchanged);
                Step::Lookup(Lookup::again(self.patience))
            }
        }
    }

    fn stale<X: Exchange>(
        self,
        x: &mut X,
        walk: &Walk,
        stale: Stale,
    ) -> Result<Step<X>, X::Failure> {
        x.note(Note::Forwarded(why_not_served(x.now(), &stale.found)));
        if wants_stored_only(walk) {
            x.note(Note::Because(Reason::OnlyIfCached));
            return Err(X::Failure::shared(504));
        }
        if x.must_be_stored() {
            return only_stored(x, stale);
        }
        if !stale.rules.while_updating
            && let Some(status) =
                walk.zone
                    .remembered_error(&stale.found.key, &walk.key.text, x.now())
            && !stale.covers_failure(walk, remembered_cause(status))
        {
            x.note(Note::Because(Reason::RecentFailure));
            x.label(CacheStatus::Hit);
            return Err(X::Failure::shared(status));
        }
        // INVARIANT 2.
        if let Some(why) = walk.zone.backoffs.pending(&walk.mark(&stale.found.key))
            && stale.covers_backoff(walk, why)
        {
            x.note(Note::Hit(Reason::RecentFailure));
            return Ok(Step::Done(Served::Entry(stale.found, CacheStatus::Stale)));
        }
        Ok(match enter(walk, stale.found.key) {
            Ticket::Lead(lead) => self.lead_stale(x, walk, stale, lead),
            Ticket::Wait(waiter) => self.wait_stale(x, walk, stale, waiter),
        })
    }

    fn lead_stale<X: Exchange>(self, x: &mut X, walk: &Walk, stale: Stale, lead: Lead) -> Step<X> {
        if is_fresh_now(&self.look_up(x, walk), x, walk) {
            lead.end(FillEnd::Unchanged);
            return Step::Lookup(Lookup::again(self.patience));
        }
        // RFC 5861 §3: what may be served stale while it is validated is served at once.
        let behind = walk.policies.revalidate.in_background || walk.rules.is_rfc();
        let behind = behind && !x.is_background();
        if behind && stale.rules.while_updating {
            let found = stale.found.clone();
            x.note(Note::Hit(Reason::WhileRevalidating));
            x.spawn(update(x.updater(), walk.clone(), lead, stale));
            return Step::Done(Served::Entry(found, CacheStatus::Stale));
        }
        if !may_fill(x, walk) {
            return Step::Fetch(Fetch::unstored_stale(stale));
        }
        Step::Fetch(Fetch::stale(lead, stale))
    }

    fn wait_stale<X: Exchange>(
        self,
        x: &mut X,
        walk: &Walk,
        stale: Stale,
        waiter: Waiter,
    ) -> Step<X> {
        if stale.rules.while_updating && !x.is_background() {
            x.note(Note::Hit(Reason::Updating));
            return Step::Done(Served::Entry(stale.found, CacheStatus::Updating));
        }
        if !may_fill(x, walk) {
            return Step::Fetch(Fetch::unstored_stale(stale));
        }
        match unless_unlocked(x, walk, waiter) {
            Ticket::Lead(lead) => Step::Fetch(Fetch::stale(lead, stale)),
            Ticket::Wait(waiter) => Step::Wait(Wait::for_stale(waiter, stale, self.patience)),
        }
    }
}

impl Default for Lookup {
    fn default() -> Self {
        Lookup::new()
    }
}

/// The key under which another answer would be stored in the place of an entry.
fn wanted_of(walk: &Walk, found: &FoundEntry) -> VariantKey {
    if found.key == walk.key.key {
        return VariantKey::first(found.key);
    }
    VariantKey {
        key: found.key,
        seed: found.head.seed,
    }
}

/// Nothing is known to be stored under a key: an error if the request is over with that.
fn not_found<X: Exchange>(x: &mut X, walk: &Walk, key: Key) -> Result<(), X::Failure> {
    x.note(Note::Forwarded(why_missing(walk, key)));
    if wants_stored_only(walk) {
        x.note(Note::Because(Reason::OnlyIfCached));
        return Err(X::Failure::shared(504));
    }
    if x.must_be_stored() {
        x.note(Note::Because(Reason::CachedOnly));
        return Err(X::Failure::shared(503));
    }
    if let Some(status) = walk.zone.remembered_error(&key, &walk.key.text, x.now()) {
        x.note(Note::Because(Reason::RecentFailure));
        x.label(CacheStatus::Hit);
        return Err(X::Failure::shared(status));
    }
    Ok(())
}

/// Serves a stale entry to a request that may have nothing else, unless the origin forbids that.
fn only_stored<X: Exchange>(x: &mut X, stale: Stale) -> Result<Step<X>, X::Failure> {
    let head = &stale.found.head;
    let is_stale = x.now() > head.fresh_until(x.now());
    let is_forbidden = head.bounds.must_validate || (is_stale && head.bounds.never_stale);
    if is_forbidden || stale.rules.is_unconfirmed {
        x.note(Note::Because(Reason::CachedOnly));
        return Err(X::Failure::shared(503));
    }
    x.note(Note::Hit(Reason::CachedOnly));
    let status = if is_stale {
        CacheStatus::Stale
    } else {
        CacheStatus::Hit
    };
    Ok(Step::Done(Served::Entry(stale.found, status)))
}

fn enter(walk: &Walk, key: Key) -> Ticket {
    let lock = &walk.policies.lock;
    // nginx: the age belongs to the lock; without it a fill is as old as it is.
    let of_lock = if walk.locks() {
        lock.age
    } else {
        Duration::MAX
    };
    // INVARIANT 4. What was asked of the origin since has no purge that is missing.
    let age = match walk.zone.purges.lag.max_lag() {
        Some(max_lag) if walk.trust() != Trust::Whole => of_lock.min(max_lag),
        _ => of_lock,
    };
    walk.zone.fills.enter(key, &walk.key.text, age)
}

/// INVARIANT 6. The fill of a request that may not have what is arriving.
fn instead<X: Exchange>(x: &mut X, walk: &Walk, waiter: &Waiter) -> Option<Ticket> {
    let Rules::Rfc9111(asked) = &walk.rules else {
        return None;
    };
    let Some(Waited::Streaming(streaming)) = waiter.now() else {
        return None;
    };
    let head = &streaming.head;
    let fields = RequestFields {
        lookup: &|name| x.selecting(name),
        spelling: walk.rules.spelling(),
    };
    let is_another = !head.vary.is_empty() && fields.variant(&head.vary) != head.variant;
    let serves = |asked: RequestRules| {
        let rules = Rules::Rfc9111(asked);
        verdict(head, x.now(), &walk.policies.stale, &rules) == Verdict::Fresh
    };
    if is_another || serves(*asked) {
        return None;
    }
    let fills = &walk.zone.fills;
    let ticket = if serves(RequestRules::default()) {
        Ticket::Lead(fills.beside(*waiter.key(), &walk.key.text))
    } else {
        fills.instead_of(waiter)
    };
    x.note(Note::Because(Reason::NotShared));
    Some(ticket)
}

/// INVARIANT 3. Who does not wait asks for itself; the first answer is stored, and another that
/// comes while it is being written is not.
fn unless_unlocked<X: Exchange>(x: &mut X, walk: &Walk, waiter: Waiter) -> Ticket {
    if let Some(ticket) = instead(x, walk, &waiter) {
        return ticket;
    }
    let lock = &walk.policies.lock;
    let why = if !walk.locks() {
        Reason::NoLock
    } else if walk.zone.unstorable.has(&walk.mark(waiter.key())) {
        Reason::HitForPass
    } else {
        return Ticket::Wait(waiter);
    };
    let is_joinable = match waiter.now() {
        Some(Waited::Streaming(streaming)) => {
            let is_readable = streaming.is_delimited || !walk.locks();
            is_readable && !waiter.is_old(lock.age)
        }
        Some(_) => true,
        None => false,
    };
    if is_joinable {
        return Ticket::Wait(waiter);
    }
    x.note(Note::Because(why));
    Ticket::Lead(walk.zone.fills.beside(*waiter.key(), &walk.key.text))
}

/// A bypassed answer replaces the stored one; while another is being stored it is passed on
/// unstored, because which of the two is newer is not known.
fn bypass<X: Exchange>(x: &mut X, walk: &Walk) -> Step<X> {
    x.note(Note::Forwarded(Forward::Bypass));
    let (key, text) = (walk.key.key, &walk.key.text);
    match walk.zone.fills.enter(key, text, Duration::MAX) {
        Ticket::Lead(lead) => Step::Fetch(Fetch::bypass(lead)),
        Ticket::Wait(_) => {
            x.note(Note::Because(Reason::BeingStored));
            Step::Pass(CacheStatus::Bypass)
        }
    }
}

/// RFC 9211 §2.2: another variant may be there.
fn why_missing(walk: &Walk, key: Key) -> Forward {
    if key == walk.key.key {
        Forward::UriMiss
    } else {
        Forward::VaryMiss
    }
}

/// RFC 9211 §2.2: a fresh answer that is not served is one that the request does not want.
fn why_not_served(now: i64, found: &FoundEntry) -> Forward {
    if now <= found.head.fresh_until(now) && !found.head.bounds.must_validate {
        Forward::Request
    } else {
        Forward::Stale
    }
}

fn why_served(now: i64, found: &FoundEntry) -> Reason {
    if now <= found.head.fresh_until(now) {
        Reason::Fresh
    } else {
        Reason::MaxStale
    }
}

/// A range of what could not be kept in slices a moment ago.
fn asks_in_vain(walk: &Walk, key: &Key) -> bool {
    let is_range = walk
        .slicing
        .is_some_and(|slicing| slicing.client.is_range());
    is_range && walk.zone.slices.habit(&walk.mark(key)) == Some(Habit::Pass)
}

fn may_fill<X: Exchange>(x: &X, walk: &Walk) -> bool {
    if walk.slicing.is_some() {
        return true;
    }
    let range = x.field(b"range").first().copied();
    walk.policies.range.may_fill(range)
}

fn judge(now: i64, walk: &Walk, found: &FoundEntry) -> Verdict {
    verdict(&found.head, now, &walk.policies.stale, &walk.rules)
}

/// RFC 9111 §5.2.1.7: without a stored answer, `only-if-cached` is answered by 504.
fn wants_stored_only(walk: &Walk) -> bool {
    walk.rules.asked().is_some_and(|asked| asked.only_if_cached)
}

fn is_fresh_now<X: Exchange>(looked_up: &LookedUp, x: &X, walk: &Walk) -> bool {
    match looked_up {
        LookedUp::Found(found) => {
            walk.trust() == Trust::Whole && judge(x.now(), walk, found) == Verdict::Fresh
        }
        LookedUp::Missing(_) | LookedUp::Unread(..) => false,
    }
}

/// Only 502 and 504 are remembered.
fn remembered_cause(status: u16) -> Option<StaleCause> {
    Some(match status {
        504 => StaleCause::Timeout,
        _ => StaleCause::Error,
    })
}
