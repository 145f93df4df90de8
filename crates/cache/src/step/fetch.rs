//! The step that asks the origin: to fill, to revalidate, or for this client alone.
//!
//! It holds the lead of a fill when there is one, judges the answer with `store.rs`, starts
//! the pump that writes the store and feeds the readers, and falls back to a stale entry where the
//! policy allows it.
//!
//! 1. Whatever way it ends, its lead is told why; a lead that is dropped ends as abandoned.
//! 2. An answer without a lead is never stored, and one beside which another is being written is
//!    not either: who waits for it reads that one.
//! 3. A refresh that fails is noted before its waiters hear of it, and forgotten when one succeeds.

use std::sync::Arc;

use bytes::Bytes;
use millpond_semantics::date::format_http_date;
use millpond_semantics::reuse::{self, Validators};
use millpond_store::Key;
use tokio::time::Instant;

use super::freshen::renew;
use super::slice::{self, Taken};
use super::store::{KeptOut, storable, storage_key};
use super::{Served, Step, Walk, found};
use crate::clock;
use crate::exchange::field;
use crate::exchange::{Ask, Exchange, FetchFailure, Fetched, Purpose};
use crate::extent::{ExtentNumber, Extents};
use crate::fill::again::Again;
use crate::fill::pump::{Primed, Pump};
use crate::fill::rest::{Rest, Source};
use crate::fill::{FillEnd, Lead, Streaming, can_resume};
use crate::head::StoredHead;
use crate::key_mark::KeyMark;
use crate::reason::{Brought, Note, Reason};
use crate::refresh_backoff::{BackoffPolicy, RefreshFailure};
use crate::slice::answer::Asked;
use crate::status::CacheStatus;
use crate::use_stale::StaleCause;
use crate::variant::VariantKey;
use crate::verdict::StaleRules;
use crate::window::Laggards;
use crate::zone::{CacheZone, FoundEntry};

/// Asks the origin.
#[derive(Debug)]
pub(crate) struct Fetch {
    /// The obligation to fill; without one the answer is not stored.
    lead: Option<Lead>,
    /// The stale entry that the answer is to replace or renew.
    stale: Option<Stale>,
    /// True if the answer is to replace a stale entry, in reserve or not.
    refreshes: bool,
    /// The seed of the variants of the key, as far as it is known without a stale entry.
    seed: u64,
    /// Treatment of a failure that is answered.
    memory: Memory,
    /// Part that is asked for where bodies are kept in slices.
    part: Part,
    status: CacheStatus,
}

/// A stale entry and what it may be used for.
#[derive(Debug)]
pub(crate) struct Stale {
    pub(crate) found: Box<FoundEntry>,
    pub(crate) rules: StaleRules,
}

impl Stale {
    /// True if the stale entry may be served because no answer came.
    pub(crate) fn covers_failure(&self, walk: &Walk, cause: Option<StaleCause>) -> bool {
        self.rules.covers(cause, &walk.policies.stale)
    }

    /// True when the origin forbids to serve it without its word (RFC 9111 §4.2.4).
    fn is_bound(&self, walk: &Walk, now: i64) -> bool {
        let head = &self.found.head;
        let is_stale = head.bounds.must_validate || now > head.fresh_until(now);
        walk.rules.is_rfc() && is_stale && head.bounds.never_stale
    }

    /// True if the stale entry may be served in place of an answer with this status.
    pub(crate) fn covers_status(&self, walk: &Walk, status: u16) -> bool {
        self.rules.covers_status(status, &walk.policies.stale)
    }

    /// True if the stale entry may be served while the origin is left alone after such a failure.
    pub(crate) fn covers_backoff(&self, walk: &Walk, why: RefreshFailure) -> bool {
        let covers = match why {
            RefreshFailure::Failed(cause) => self.covers_failure(walk, cause),
            RefreshFailure::Status(status) => self.covers_status(walk, status),
        };
        covers || self.rules.while_updating
    }

    /// Serves the stale entry as the answer.
    pub(crate) fn served<X: Exchange>(self, x: &mut X) -> Step<X> {
        x.note(Note::Because(Reason::OnError));
        Step::Done(Served::Entry(self.found, CacheStatus::Stale))
    }
}

/// Part that is asked for where bodies are kept in slices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    /// Slices that are wanted.
    Slices,
    /// The first slice, because those that are wanted lie behind the end of the current version.
    Beginning,
    /// The whole, because slices were in vain.
    Whole,
}

/// Choice to remember a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Memory {
    Remember,
    /// nginx: a request that skipped the look-up has nothing to write its failure to.
    Forget,
}

impl Fetch {
    /// Fetch for a missing entry.
    pub(crate) fn miss(lead: Lead, seed: u64) -> Self {
        Fetch {
            lead: Some(lead),
            stale: None,
            refreshes: false,
            seed,
            memory: Memory::Remember,
            part: Part::Slices,
            status: CacheStatus::Miss,
        }
    }

    /// Fetch of a request whose look-up was bypassed and whose answer may be stored.
    pub(crate) fn bypass(lead: Lead) -> Self {
        Fetch {
            lead: Some(lead),
            stale: None,
            refreshes: false,
            seed: 0,
            memory: Memory::Forget,
            part: Part::Slices,
            status: CacheStatus::Bypass,
        }
    }

    /// Fetch for a stale entry; the answer is to replace or renew the entry.
    pub(crate) fn stale(lead: Lead, stale: Stale) -> Self {
        Fetch {
            lead: Some(lead),
            seed: stale.found.head.seed,
            refreshes: true,
            stale: Some(stale),
            memory: Memory::Remember,
            part: Part::Slices,
            status: CacheStatus::Expired,
        }
    }

    /// Fetch for this client alone, with a stale entry in reserve.
    pub(crate) fn unstored_stale(stale: Stale) -> Self {
        Fetch {
            lead: None,
            seed: 0,
            stale: Some(stale),
            refreshes: true,
            memory: Memory::Forget,
            part: Part::Slices,
            status: CacheStatus::Expired,
        }
    }

    /// Fetch for a stale entry that a 304 was not about: without its validators.
    fn unconditional(lead: Lead, stale: &Stale) -> Self {
        Fetch {
            lead: Some(lead),
            stale: None,
            refreshes: true,
            seed: stale.found.head.seed,
            memory: Memory::Remember,
            part: Part::Slices,
            status: CacheStatus::Expired,
        }
    }

    /// Fetch for the whole after that of a range, whose answer could not be used.
    pub(super) fn whole(place: Place, stale: Option<Stale>) -> Self {
        Fetch::again(place, stale, Part::Whole)
    }

    /// A second fetch, of the first slice, after an answer that there are none where the client
    /// wants some.
    pub(super) fn beginning(place: Place, stale: Option<Stale>) -> Self {
        Fetch::again(place, stale, Part::Beginning)
    }

    fn again(place: Place, stale: Option<Stale>, part: Part) -> Self {
        Fetch {
            lead: Some(place.lead),
            stale,
            refreshes: place.refreshes,
            seed: place.seed,
            memory: Memory::Remember,
            part,
            status: place.status,
        }
    }

    /// The label of a request for which this fails.
    pub(crate) fn label(&self) -> CacheStatus {
        self.status
    }

    /// Asks, and takes what comes. (An `async fn` has room for its arguments twice.)
    #[expect(
        clippy::manual_async_fn,
        reason = "the future has room for `self` once"
    )]
    pub(crate) fn run<X: Exchange>(
        self,
        x: &mut X,
        walk: &Walk,
    ) -> impl Future<Output = Result<Step<X>, X::Failure>> {
        async move {
            x.note(match self.lead {
                Some(_) => Note::Led,
                None => Note::Alone,
            });
            let asked = match walk.slicing {
                Some(_) => self.asked(walk, x.extents()),
                None => None,
            };
            // Not the extents: the future would have room for them.
            let extent = x.extents().map(|_| ExtentNumber::FIRST);
            match x.fetch(self.ask(walk, asked.as_ref(), extent)).await {
                Ok(fetched) => Ok(self.answered(x, walk, (fetched, asked.as_ref()))),
                Err(failure) => self.failed(x, walk, failure),
            }
        }
    }

    /// The range that is asked for, if it is not the whole.
    fn asked(&self, walk: &Walk, extents: Option<Extents>) -> Option<Asked> {
        let lead = self.lead.as_ref()?;
        match self.part {
            Part::Slices => slice::asked(walk, lead.key(), (self.stale.as_ref(), extents)),
            Part::Beginning => slice::beginning(walk, extents),
            Part::Whole => None,
        }
    }

    fn ask(&self, walk: &Walk, asked: Option<&Asked>, extent: Option<ExtentNumber>) -> Ask {
        if self.lead.is_none() {
            return Ask::default();
        }
        let mut ask = Ask {
            purpose: Purpose::Fill,
            label: Some(self.status),
            range: asked.map(Asked::field),
            extent: extent.filter(|_| asked.is_some()),
            missing: self.is_miss().then(|| walk.key.text.clone()),
            ..Ask::default()
        };
        let Some(stale) = &self.stale else { return ask };
        let head = &stale.found.head;
        // nginx: the validators of other answers are not kept.
        if validates(walk, stale) && matches!(head.status, 200 | 206) {
            ask.if_none_match = head.field(b"etag");
            ask.if_modified_since = head
                .last_modified
                .map(|time| Bytes::copy_from_slice(&format_http_date(time)));
        }
        ask
    }

    /// True if nothing is stored, not even what is stale, and it was looked for.
    fn is_miss(&self) -> bool {
        self.stale.is_none() && self.status == CacheStatus::Miss
    }

    fn failed<X: Exchange>(
        self,
        x: &mut X,
        walk: &Walk,
        failure: X::Failure,
    ) -> Result<Step<X>, X::Failure> {
        let cause = failure.cause();
        // RFC 9111 §5.2.2.2: what must be validated and cannot be is answered with 504.
        let is_bound = self
            .stale
            .as_ref()
            .is_some_and(|stale| stale.is_bound(walk, x.now()));
        let failure = if is_bound {
            failure.unvalidated()
        } else {
            failure
        };
        let status = failure.status();
        let stale = self.stale.filter(|stale| stale.covers_failure(walk, cause));
        if let Some(lead) = self.lead {
            if self.refreshes {
                back_off(walk, &lead, RefreshFailure::Failed(cause));
            }
            if stale.is_none() && self.memory == Memory::Remember {
                remember(x, walk, &lead, status);
            }
            lead.end(FillEnd::Failed { status, cause });
        }
        stale.map(|stale| stale.served(x)).ok_or(failure)
    }

    fn answered<X: Exchange>(
        self,
        x: &mut X,
        walk: &Walk,
        (fetched, asked): (X::Fetched, Option<&Asked>),
    ) -> Step<X> {
        let code = fetched.status();
        match (self.lead, self.stale) {
            (lead, Some(stale)) if stale.covers_status(walk, code) => {
                if let Some(lead) = lead {
                    back_off(walk, &lead, RefreshFailure::Status(code));
                    lead.end(FillEnd::KeptStale(code));
                }
                stale.served(x)
            }
            (None, _) => Step::Done(Served::Passed(fetched, self.status)),
            (Some(lead), Some(stale)) if is_unchanged(walk, &stale, code) => {
                if !is_about(walk, &stale.found, &fetched) {
                    return Step::Fetch(Fetch::unconditional(lead, &stale));
                }
                let renewed = (&fetched, CacheStatus::Revalidated);
                renew(x, walk, lead, stale.found, renewed)
            }
            (Some(lead), stale) => {
                let place = Place {
                    lead,
                    status: self.status,
                    refreshes: self.refreshes,
                    seed: self.seed,
                };
                let taken = match asked {
                    Some(asked) => slice::take(x, walk, (place, stale), (fetched, asked)),
                    None => slice::split(x, walk, place, fetched),
                };
                match taken {
                    Taken::Step(step) => step,
                    Taken::Ordinary(place, fetched) => Step::Done(place.take(x, walk, fetched)),
                }
            }
        }
    }
}

/// Destination of an answer.
pub(super) struct Place {
    pub(super) lead: Lead,
    pub(super) status: CacheStatus,
    /// True if the answer is to replace a stale entry.
    pub(super) refreshes: bool,
    /// The seed of the variants of the key, as far as it is known.
    pub(super) seed: u64,
}

impl Place {
    /// Place of an answer that was fetched without a look-up.
    pub(super) fn unasked(lead: Lead) -> Self {
        Place {
            lead,
            status: CacheStatus::Bypass,
            refreshes: false,
            seed: 0,
        }
    }

    /// Fills the entry with an answer, or passes it on.
    pub(super) fn take<X: Exchange>(
        self,
        x: &mut X,
        walk: &Walk,
        fetched: X::Fetched,
    ) -> Served<X::Fetched> {
        match store(x, walk, &self, &fetched) {
            Ok((head, writer)) => fill(x, walk, self, head, (fetched, writer)),
            Err(end) => {
                self.lead.end(end);
                Served::Passed(fetched, self.status)
            }
        }
    }
}

/// Begins to fill the entry with an answer, or says what is to be told to those who wait for it.
fn store<X: Exchange>(
    x: &mut X,
    walk: &Walk,
    place: &Place,
    fetched: &X::Fetched,
) -> Result<(StoredHead, millpond_store::Writer), FillEnd> {
    let key = *place.lead.key();
    let mut head = match storable(x, walk, fetched) {
        Ok(head) => head,
        Err(why) => {
            let (KeptOut::Answer(reason) | KeptOut::Request(reason)) = why;
            x.note(Note::Because(reason));
            end_stale(x, walk, place, (&why, fetched.status()));
            return Err(unstored(walk, place, (why, fetched.status())));
        }
    };
    head.serial = place.lead.serial();
    place.lead.know(&head);
    walk.zone.forget_error(&key);
    // INVARIANT 2.
    if !place.lead.claim(walk.policies.lock.age) {
        x.note(Note::Because(Reason::BeingStored));
        return Err(FillEnd::Complete);
    }
    walk.zone.unstorable.forget(&walk.mark(&key));
    let seed = place.seed;
    match writer_for(walk, VariantKey { key, seed }, &mut head, fetched.length()) {
        Ok(writer) => Ok((head, writer)),
        Err(why) => {
            x.note(Note::Because(why));
            Err(FillEnd::NotStorable)
        }
    }
}

/// Ends an entry whose update in the background has brought an answer that may not be stored: the
/// next request has what the origin says now (RFC 9111 §4.3.3). A failure says nothing about it,
/// nor does an origin that is asked too often (429, RFC 6585 §4).
pub(super) fn end_stale<X: Exchange>(
    x: &X,
    walk: &Walk,
    place: &Place,
    (why, status): (&KeptOut, u16),
) {
    let is_told = matches!(why, KeptOut::Answer(_)) && status < 500 && status != 429;
    if x.is_background() && place.refreshes && is_told {
        walk.zone.store.remove(place.lead.key());
    }
}

/// End of the fill for those who wait for an answer that is not stored.
pub(super) fn unstored(walk: &Walk, place: &Place, (why, status): (KeptOut, u16)) -> FillEnd {
    let is_failure = matches!(status, 500 | 502 | 503 | 504);
    if is_failure && place.refreshes {
        back_off(walk, &place.lead, RefreshFailure::Status(status));
    }
    match why {
        KeptOut::Request(_) => FillEnd::Withheld,
        _ if is_failure => FillEnd::Failed {
            status,
            cause: StaleCause::of_status(status),
        },
        KeptOut::Answer(_) => {
            let policy = &walk.policies.hit_for_pass;
            let mark = walk.mark(place.lead.key());
            walk.zone.unstorable.note(mark, policy);
            FillEnd::NotStorable
        }
    }
}

/// Refreshing a stale entry has failed.
fn back_off(walk: &Walk, lead: &Lead, why: RefreshFailure) {
    let policy = &walk.policies.backoff;
    walk.zone.backoffs.note(walk.mark(lead.key()), why, policy);
}

/// nginx remembers 502 and 504 of its own for as long as `proxy_cache_valid` says.
fn remember<X: Exchange>(x: &mut X, walk: &Walk, lead: &Lead, status: u16) {
    if !matches!(status, 502 | 504) || lead.is_purged() {
        return;
    }
    let valid = walk.policies.valid.told(&mut |text| x.time_of(text));
    if let Some(line) = valid.times_for(status) {
        let time = i64::try_from(line.time.as_secs()).unwrap_or(i64::MAX);
        let until = x.now().saturating_add(time);
        let key = *lead.key();
        walk.zone
            .remember_error(key, &walk.key.text, (status, until));
    }
}

/// True if the stored answer is validated: by the RFC always, by nginx where it is configured.
fn validates(walk: &Walk, stale: &Stale) -> bool {
    stale.rules.is_unconfirmed || walk.policies.revalidate.conditional || walk.rules.is_rfc()
}

fn is_unchanged(walk: &Walk, stale: &Stale, status: u16) -> bool {
    status == 304 && validates(walk, stale)
}

/// RFC 9111 §4.3.4: a 304 that names another version must not update the stored answer.
fn is_about<F: Fetched>(walk: &Walk, found: &FoundEntry, fetched: &F) -> bool {
    if !walk.rules.is_rfc() {
        return true;
    }
    let names: [&[u8]; 2] = [b"etag", b"last-modified"];
    let stored = names.map(|name| found.head.field(name));
    let told = names.map(|name| field(fetched, name));
    reuse::may_freshen(validators(&stored), validators(&told))
}

fn validators([etag, last_modified]: &[Option<Bytes>; 2]) -> Validators<'_> {
    Validators {
        etag: etag.as_deref(),
        last_modified: last_modified.as_deref(),
    }
}

/// A writer for an answer with this head, which is set.
pub(super) fn writer_for(
    walk: &Walk,
    looked_up: VariantKey,
    head: &mut StoredHead,
    length: Option<u64>,
) -> Result<millpond_store::Writer, Reason> {
    let VariantKey { key, seed } = storage_key(walk, head, looked_up);
    head.seed = seed;
    let mut writer = walk.zone.store.begin(key, length)?;
    let own = VariantKey { key, seed };
    let policy = &walk.policies.max_variants;
    if key != walk.key.key && !walk.zone.admit_variant(&walk.key.key, &own, policy) {
        return Err(Reason::Variants);
    }
    writer.set_head(head.encode());
    writer.fits_site()?;
    Ok(writer)
}

/// Stores the answer while it arrives, and lets everybody read it.
pub(super) fn fill<X: Exchange>(
    x: &mut X,
    walk: &Walk,
    place: Place,
    head: StoredHead,
    (fetched, writer): (X::Fetched, millpond_store::Writer),
) -> Served<X::Fetched> {
    let key = *writer.key();
    let mut pump = Pump::new(fetched, writer);
    x.note(Note::Stored);
    x.note(Note::Brought(Brought::All));
    let primed = pump.prime();
    if primed == Primed::Whole {
        return fill_whole(walk, place, head, pump);
    }
    let (lead, status) = (place.lead, place.status);
    let laggards = if can_resume(&head, pump.length()) {
        Laggards::Resume
    } else {
        Laggards::Awaited
    };
    let rest = Rest::new(walk.zone.slices.windows(), laggards);
    let reader = pump.reader(&rest);
    let resumes = walk.policies.range.resume;
    let again = resumes
        .then(|| Again::of_head(x, (&head, pump.length()), (&walk.zone.rule_counts, status)))
        .flatten();
    let streaming = pump.streaming(head, &rest);
    // Nobody joins a body that is known to break off.
    if primed == Primed::More || again.is_some() {
        lead.begin(Arc::clone(&streaming));
    }
    let notes = FillNotes {
        zone: Arc::clone(&walk.zone),
        key: walk.mark(&walk.key.key),
        backoff: place.refreshes.then(|| walk.policies.backoff.clone()),
        fill: walk.mark(lead.key()),
        status: streaming.head.status,
        judged: (streaming.head.stored_at, clock::now()),
        told: walk
            .zone
            .watch
            .is_on()
            .then(|| (key, Arc::clone(&streaming))),
    };
    let source = Source::new(rest);
    let settle = |end, why| notes.settle(end, why);
    x.spawn(pump.run((source, lead), again, settle));
    Served::Filling(streaming, reader, status)
}

/// Stores an answer whose body is there already. If it cannot be stored, the client has it all the
/// same.
fn fill_whole<F: Fetched>(walk: &Walk, place: Place, head: StoredHead, pump: Pump<F>) -> Served<F> {
    let (lead, status) = (place.lead, place.status);
    let alone = pump.alone();
    let end = if !lead.may_store() {
        pump.finish_unseen();
        FillEnd::Abandoned
    } else {
        match pump.finish(&lead) {
            Ok(entry) => {
                walk.zone.backoffs.forget(&walk.mark(lead.key()));
                lead.end(FillEnd::Complete);
                let watch = &walk.zone.watch;
                watch.tell_stored(*entry.key(), &head, entry.len());
                return Served::Entry(found(entry, head), status);
            }
            Err(why) => {
                let why = (why.into(), head.status);
                let unstored = &walk.zone.unstored;
                unstored.note_late(walk.mark(&walk.key.key), why, head.stored_at);
                FillEnd::NotStorable
            }
        }
    };
    lead.end(end);
    let (streaming, reader) = alone.read(head);
    Served::Filling(streaming, reader, status)
}

/// Notes that a fill which runs by itself makes at its end.
struct FillNotes {
    zone: Arc<CacheZone>,
    /// Marks of the key that was asked for, and of the one that is filled.
    key: KeyMark,
    fill: KeyMark,
    /// Set for a refresh.
    backoff: Option<BackoffPolicy>,
    status: u16,
    /// Time when the head was judged: seconds since the epoch, and the instant.
    judged: (i64, Instant),
    /// Key and fill of what is told, if somebody watches.
    told: Option<(Key, Arc<Streaming>)>,
}

impl FillNotes {
    fn settle(self, end: FillEnd, why: Option<Reason>) {
        if let (Some((key, streaming)), FillEnd::Complete) = (&self.told, end) {
            let len = streaming.view.len();
            self.zone.watch.tell_stored(*key, &streaming.head, len);
        }
        if let Some(policy) = &self.backoff {
            match end {
                FillEnd::Complete => self.zone.backoffs.forget(&self.fill),
                FillEnd::Broken(end) => {
                    let why = RefreshFailure::Failed(Some(end.cause()));
                    self.zone.backoffs.note(self.fill, why, policy);
                }
                _ => {}
            }
        }
        if let Some(why) = why {
            let (at, since) = self.judged;
            let passed = clock::now().saturating_duration_since(since).as_secs();
            let at = at.saturating_add(i64::try_from(passed).unwrap_or(i64::MAX));
            self.zone
                .unstored
                .note_late(self.key, (why, self.status), at);
        }
    }
}
