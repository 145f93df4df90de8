//! A passed request through the cache: from its key to its answer.
//!
//! Evaluates the key, decides whether the cache takes part at all, walks `millpond_cache::step`
//! with an exchange of this request, and turns what is served (an entry, a fill that still runs, or
//! the origin's own answer) into a [`Response`].

use std::sync::Arc;

use bytes::Bytes;
use millpond_cache::catalogue;
use millpond_cache::exchange::{Exchange, FetchFailure};
use millpond_cache::fill::Streaming;
use millpond_cache::fill::pump::Reader;
use millpond_cache::reason::{Brought, FillRole, Note, Reason};
use millpond_cache::rule_counts::Rule;
use millpond_cache::slice::reader::SliceFailure;
use millpond_cache::status::CacheStatus;
use millpond_cache::step::{self, Looked, Policies, Question, Served, Walk};
use millpond_cache::unstored::NotStoredNote;
use millpond_cache::variant::RequestFields;
use millpond_cache::zone::{CacheZone, FoundEntry, LookedUp, PrimaryKey};
use millpond_semantics::cache_status::Forward;
use millpond_system::body::Body;
use millpond_wire::block::Block;
use millpond_wire::header::Known;
use millpond_wire::http1;

use super::body::{self, FillBody};
use super::exchange::{Failed, Origin, PassExchange, clients_range};
use super::peers::part::{self, Fit};
use super::peers::rest::Resumable;
use super::status_header::{self, Told};
use super::uncached::fetch;
use super::zones::{LocationCache, ZoneOf};
use super::{
    content_key, encodings, leap, loaded, no_vary_search, peers, rule_of_hit, slice, stored_head,
    vary_as,
};
use crate::otel::steps::Steps;
use crate::phase::{Begun, Flow};
use crate::request::Request;
use crate::request::scratch::with_scratch;
use crate::upstream::answer::{self, Stored};
use crate::upstream::pass::{PassTarget, Resolved};
use crate::upstream::pass_settings::SettingsByProtocol as _;
use crate::upstream::settings::UpstreamSettings;
use crate::upstream::{by_rfc, http};
use crate::{content, otel, request_body};
use millpond_exchange::failure::Failure;
use millpond_exchange::protocol::Protocol;
use millpond_exchange::provenance::{Provenance, Whence};
use millpond_exchange::response::Response;
use millpond_exchange::settings::Location;
use millpond_exchange::trace::TierWord;

/// Answers from the zone, or from the origin through it; a hit at once.
pub fn begin<'a>(
    req: &'a mut Request,
    (location, target): (&Location, &Arc<PassTarget>),
    cache: &LocationCache,
    zone: ZoneOf<'_>,
) -> Result<Begun<'a>, Failure> {
    // All slices are one entry: of that range the key says nothing.
    req.slice_range = None;
    if cache.has_detours {
        vary_as::note(req, target);
    }
    let is_held_back = by_rfc::holds_fields_back(req, target);
    if must_read_body(req, target.protocol) {
        if let Some(kind) = content_key::kind(req, target.protocol) {
            let of = (zone.into_arc(), kind);
            return Ok(content_key::begin(req, target, cache, of));
        }
        let (target, policies) = (Arc::clone(target), Arc::clone(&cache.policies));
        let zone = zone.into_arc();
        return Ok(Begun::waits(req, async move |req| {
            request_body::read_all(req).await?;
            let key = zone.primary(key(req, &target)?);
            let walk = walk(req, &target, key, policies, zone);
            let rest = Rest::of(PassExchange::new(req, target), walk);
            rest.run().await
        }));
    }
    if cache.has_detours {
        if let Some(peers) = &cache.peers
            && peers::answer::is_asked(req)
        {
            return Ok(peers::answer::begin(req, target, (peers, zone)));
        }
        if let Some(kind) = content_key::kind(req, target.protocol) {
            let of = (zone.into_arc(), kind);
            return Ok(content_key::begin(req, target, cache, of));
        }
        if no_vary_search::is_due(req, target.protocol) {
            let zone = zone.into_arc();
            let key = zone.primary(no_vary_search::key(req, target, &zone)?);
            return begin_past(rest(req, target, cache, (key, ZoneOf::Request(zone))));
        }
    }
    let bypass = &location.settings.pass(target.protocol).bypass.bypass;
    if is_held_back || cache.has_detours && bypass.is_some() {
        let key = zone.primary(key(req, target)?);
        return begin_past(rest(req, target, cache, (key, zone)));
    }
    begin_with_look(req, (location, target), cache, zone)
}

/// Looks a request up, and goes on from what is found.
#[inline]
fn begin_with_look<'a>(
    req: &'a mut Request,
    (location, target): (&Location, &Arc<PassTarget>),
    cache: &LocationCache,
    zone: ZoneOf<'_>,
) -> Result<Begun<'a>, Failure> {
    match look(req, (location, target), (cache, &zone))? {
        Look::Fresh(found, why) => {
            req.upstream.borrow_mut().account.note(Note::Hit(why));
            let key = PrimaryKey {
                key: found.key,
                text: found.head.key.clone(),
            };
            if found.head.sliced.is_some() {
                let begun = step::Begun::Found(Box::new(found), CacheStatus::Hit);
                let mut rest = rest(req, target, cache, (key, zone));
                rest.begun = Some(begun.into());
                return Ok(rest.wait());
            }
            let tries_before = status_header::tries(req);
            let hit = (&found, CacheStatus::Hit, zone.arc());
            let mut response = answer_with_entry(req, target, hit, tries_before);
            if loaded::is_begun(req, &mut response) {
                return content::respond(req, response).map(Begun::Done);
            }
            let mut rest = rest(req, target, cache, (key, zone));
            rest.loading = Some((Box::new(found), response));
            Ok(rest.wait())
        }
        Look::Other(key, looked_up) => {
            let mut rest = rest(req, target, cache, (key, zone));
            let begun = step::begin_from(&mut rest.exchange, &rest.walk, looked_up);
            rest.begin(begun)
        }
    }
}

/// The steps of a request that has this key.
fn rest<'a>(
    req: &'a mut Request,
    target: &Arc<PassTarget>,
    cache: &LocationCache,
    (key, zone): (PrimaryKey, ZoneOf<'_>),
) -> Rest<'a> {
    let policies = Arc::clone(&cache.policies);
    let walk = walk(req, target, key, policies, zone.into_arc());
    Rest::of(PassExchange::new(req, Arc::clone(target)), walk)
}

/// Answers a peer that asks for a part of a body: what is found may have to be validated.
pub(super) async fn run_for_peer(
    req: &mut Request,
    target: &Arc<PassTarget>,
    cache: &LocationCache,
    zone: Arc<CacheZone>,
) -> Result<Flow, Failure> {
    if cache.has_detours {
        vary_as::note(req, target);
    }
    if content_key::kind(req, target.protocol).is_some() {
        return Err(Failure::Status(part::NO_PART));
    }
    let text = if no_vary_search::is_due(req, target.protocol) {
        no_vary_search::key(req, target, &zone)?
    } else {
        key(req, target)?
    };
    run(req, Arc::clone(target), cache, (zone, text)).await
}

/// Answers from the zone, or from the origin through it, under a key that is known.
pub(crate) async fn run(
    req: &mut Request,
    target: Arc<PassTarget>,
    cache: &LocationCache,
    (zone, text): (Arc<CacheZone>, Bytes),
) -> Result<Flow, Failure> {
    let key = zone.primary(text);
    let walk = walk(req, &target, key, Arc::clone(&cache.policies), zone);
    Rest::of(PassExchange::new(req, target), walk).run().await
}

/// Answers from the upstream a request that has no key although the cache is asked for it.
pub(crate) async fn pass_by(
    req: &mut Request,
    target: &Arc<PassTarget>,
) -> Result<Box<Response>, Failure> {
    let tries_before = status_header::tries(req);
    let note = Note::Forwarded(Forward::Bypass);
    req.upstream.borrow_mut().account.note(note);
    let mut response = fetch(req, target).await?;
    let told = Told {
        tries_before,
        ..Told::default()
    };
    status_header::tell(req, target, &mut response, &told);
    Ok(response)
}

/// Begins a walk that may skip the look-up.
fn begin_past(mut rest: Rest<'_>) -> Result<Begun<'_>, Failure> {
    let mut steps = Steps::of(rest.exchange.request());
    let note = &mut |step| steps.note(step);
    let begun = step::begin(&mut rest.exchange, &rest.walk, note);
    rest.begin(begun)
}

/// Result of a first look-up.
enum Look {
    /// A fresh entry, and why it is served.
    Fresh(FoundEntry, Reason),
    /// Anything else under this key.
    Other(PrimaryKey, LookedUp),
}

/// Looks a request up. Most end with a hit, for which nothing is copied or counted.
fn look(
    req: &mut Request,
    (location, target): (&Location, &PassTarget),
    (cache, zone): (&LocationCache, &CacheZone),
) -> Result<Look, Failure> {
    let lookup = otel::child(req, "cache lookup");
    with_scratch(|text| {
        write_key(req, (location, target), text)?;
        let (key, rules) = (zone.keys().of(text), by_rfc::rules(req, target));
        let fields = RequestFields {
            lookup: &|name| vary_as::values(req, name),
            spelling: rules.spelling(),
        };
        let question = Question {
            zone,
            key: &key,
            text,
            policies: &cache.policies,
            rules: &rules,
        };
        Ok(match step::look(&question, &fields, req.now_s()) {
            Looked::Fresh(found, why) => {
                lookup
                    .iter()
                    .for_each(|it| it.word("millpond.cache.found", "fresh"));
                Look::Fresh(found, why)
            }
            Looked::Other(looked_up) => {
                let text = own_text(text);
                Look::Other(PrimaryKey { text, key }, looked_up)
            }
        })
    })
}

/// The walk of a request.
fn walk(
    req: &Request,
    target: &PassTarget,
    key: PrimaryKey,
    policies: Arc<Policies>,
    zone: Arc<CacheZone>,
) -> Walk {
    Walk {
        zone,
        key,
        policies,
        rules: by_rfc::rules(req, target),
        slicing: slice::slicing(req, target),
        past: None,
    }
}

/// An exchange of the client's own request.
type Own<'a> = PassExchange<&'a mut Request>;

/// Steps of a request through its cache that take longer than the first look-up.
struct Rest<'a> {
    exchange: Own<'a>,
    walk: Walk,
    tries_before: usize,
    /// The walk, if it was begun. It stands here, and not in what goes on with it, so that the
    /// future has room for it once.
    begun: Option<step::Rest<Own<'a>>>,
    /// An answer for which all is done but that the disk was asked for its first bytes.
    loading: Option<Loading>,
}

/// An answer whose first bytes a disk is asked for, and the entry that it is made of.
type Loading = (Box<FoundEntry>, Box<Response>);

impl<'a> Rest<'a> {
    fn of(mut exchange: Own<'a>, walk: Walk) -> Self {
        let tries_before = status_header::tries(exchange.request());
        Rest {
            exchange,
            walk,
            tries_before,
            begun: None,
            loading: None,
        }
    }

    fn answer_with(&mut self, found: &FoundEntry, status: CacheStatus) -> Box<Response> {
        let (req, target) = self.exchange.parts();
        let found = (found, status, &self.walk.zone);
        answer_with_entry(req, target, found, self.tries_before)
    }

    /// Answers what was found at once, and goes on with all else.
    fn begin(mut self, begun: Result<step::Begun<Own<'a>>, Failed>) -> Result<Begun<'a>, Failure> {
        match begun.map_err(|failed| self.tell_when(failed))? {
            step::Begun::Found(found, status) if found.head.sliced.is_none() => {
                let mut response = self.answer_with(&found, status);
                if !loaded::is_begun(self.exchange.request(), &mut response) {
                    self.loading = Some((found, response));
                    return Ok(self.wait());
                }
                return content::respond(self.exchange.into_request(), response).map(Begun::Done);
            }
            begun => self.begun = Some(begun.into()),
        }
        Ok(self.wait())
    }

    fn wait(mut self) -> Begun<'a> {
        self.exchange.request().has_waited = true;
        Begun::Waits(Box::pin(self.run()))
    }

    /// Goes on to the answer. (An `async fn` has room for its arguments twice.)
    #[expect(
        clippy::manual_async_fn,
        reason = "the future has room for `self` once"
    )]
    fn run(mut self) -> impl Future<Output = Result<Flow, Failure>> + 'a {
        async move {
            let response = self.answer().await?;
            content::respond(self.exchange.into_request(), response)
        }
    }

    async fn answer(&mut self) -> Result<Box<Response>, Failure> {
        for _ in 0..WALKS_MAX {
            if self.loading.is_some() {
                match self.load().await {
                    Some(response) => return Ok(response),
                    None => continue,
                }
            }
            let served = self.walk_on().await;
            let (found, status) = match served.map_err(|failed| self.tell_when(failed))? {
                Served::Entry(found, status) => (found, status),
                other => return self.answer_unfound(other).await,
            };
            let fit = part::judge(self.exchange.request(), &found.head);
            if fit != Fit::Asked && status == CacheStatus::Hit && self.begins_to_confirm() {
                continue;
            }
            if fit == Fit::Other {
                return Err(Failure::Status(part::OTHER_VERSION));
            }
            if found.head.sliced.is_none() {
                let response = self.answer_with(&found, status);
                self.loading = Some((found, response));
                match self.load().await {
                    Some(response) => return Ok(response),
                    None => continue,
                }
            }
            self.refuse_parts(&found)?;
            let (req, target) = self.exchange.parts();
            let opened = from_slices(
                req,
                target,
                (&self.walk, self.tries_before),
                (&found, status),
            );
            match opened.await {
                Ok(response) => return Ok(response),
                // The version is gone: what is there now is looked up, or fetched.
                Err(SliceFailure::Changed) => {}
                Err(SliceFailure::Refused) => break,
                Err(SliceFailure::Failed { status, .. }) => return Err(Failure::Status(status)),
            }
        }
        let (req, target) = self.exchange.parts();
        pass_on(req, target, &told(&self.walk, self.tries_before)).await
    }

    /// Has what is stored validated from now on; false if it was already.
    fn begins_to_confirm(&mut self) -> bool {
        let slicing = self.walk.slicing.as_mut();
        slicing.is_some_and(|slicing| !std::mem::replace(&mut slicing.confirms, true))
    }

    /// Refuses an entry in slices that are not all there, where only what is stored may answer.
    fn refuse_parts(&mut self, found: &FoundEntry) -> Result<(), Failure> {
        let has_gaps = |set| !self.walk.zone.holds_whole(set);
        if self.exchange.must_be_stored() && found.head.sliced.is_some_and(has_gaps) {
            self.exchange.note(Note::Because(Reason::CachedOnly));
            return Err(self.tell_when(Failed::shared(503)));
        }
        Ok(())
    }

    /// A failure; with Retry-After for a request that may have only what is stored.
    fn tell_when(&mut self, Failed(failure): Failed) -> Failure {
        let req = self.exchange.request();
        let why = req.upstream.borrow().account.reason;
        if why == Some(Reason::CachedOnly) {
            let after = req.location.settings.cached_only.retry_after.as_secs();
            let value = Bytes::from(after.to_string());
            req.answer_fields.set(Known::RetryAfter, value);
            self.walk.zone.rule_counts.note(Rule::CachedOnlyRefused);
        }
        failure
    }

    /// Walks to the end, from where the walk has come.
    async fn walk_on(&mut self) -> Result<Served<Origin>, Failed> {
        let mut steps = Steps::of(self.exchange.request());
        let rest = match &mut self.begun {
            Some(rest) => rest,
            None => {
                let note = &mut |step| steps.note(step);
                let begun = step::begin(&mut self.exchange, &self.walk, note)?;
                self.begun.insert(begun.into())
            }
        };
        let note = &mut |step| steps.note(step);
        let served = step::finish(&mut self.exchange, &self.walk, note, rest).await;
        self.begun = None;
        served
    }

    /// Waits for the first bytes of an answer; an entry whose disk does not give them is passed by
    /// from now on.
    async fn load(&mut self) -> Option<Box<Response>> {
        let (found, mut response) = self.loading.take()?;
        let timeout = self.walk.policies.disk.timeout;
        let req = self.exchange.request();
        if loaded::is_begun(req, &mut response)
            || Box::pin(loaded::begin(req, &mut response, timeout)).await
        {
            return Some(response);
        }
        self.walk.past = Some(found.entry.clone());
        None
    }

    /// The answer when there is no entry to answer with.
    async fn answer_unfound(&mut self, served: Served<Origin>) -> Result<Box<Response>, Failure> {
        if let Served::Passed(fetched, _) = &served {
            if self.exchange.is_head_by_rfc() {
                step::learn_from_head(&mut self.exchange, &self.walk, fetched);
            }
            let (status, at) = (fetched.fetched.head.status, fetched.came_at_s());
            note_unstored(self.exchange.request(), &self.walk, (status, at));
        }
        let (req, target) = self.exchange.parts();
        let answer = answer_from_origin(req, target, (served, &self.walk), self.tries_before);
        answer.await
    }
}

/// Passes a request on as it is.
async fn pass_on(
    req: &mut Request,
    target: &Arc<PassTarget>,
    told: &Told<'_>,
) -> Result<Box<Response>, Failure> {
    note(req, CacheStatus::Miss);
    req.slice_range = clients_range(req);
    let mut response = fetch(req, target).await?;
    status_header::tell(req, target, &mut response, told);
    Ok(response)
}

/// Number of times that a request begins anew because the version that it found is gone at the
/// origin; then it is passed on as it is (arbitrary: an origin that changes faster than it
/// answers).
const WALKS_MAX: usize = 4;

fn told(walk: &Walk, tries_before: usize) -> Told<'_> {
    Told {
        key: Some(&walk.key.text),
        tries_before,
        ..Told::default()
    }
}

/// The answer from an entry in slices.
async fn from_slices(
    req: &mut Request,
    target: &Arc<PassTarget>,
    (walk, tries_before): (&Walk, usize),
    (found, mut status): (&FoundEntry, CacheStatus),
) -> Result<Box<Response>, SliceFailure> {
    note_hits(req, &walk.zone, found);
    let mut response = stored_head::from_found(req, target, found);
    let answer = (&mut *response, &mut status);
    slice::open(req, target, (&walk.zone, found), answer).await?;
    if let Some(set) = found.head.sliced.filter(|_| status == CacheStatus::Hit) {
        let copies = &walk.zone.copies;
        copies.note_hit(&found.key, &found.head, set.total);
    }
    note(req, status);
    if by_rfc::is_on(req, target) {
        by_rfc::tell_age(&mut response, &found.head, status);
    }
    let mut told = told(walk, tries_before);
    told.valid_until = Some(found.head.valid_until);
    status_header::tell(req, target, &mut response, &told);
    Ok(response)
}

/// The answer of the origin, or of a fill, of which a range may be wanted that lies ahead.
async fn answer_from_origin(
    req: &mut Request,
    target: &Arc<PassTarget>,
    (served, walk): (Served<Origin>, &Walk),
    tries_before: usize,
) -> Result<Box<Response>, Failure> {
    let filling = match &served {
        Served::Filling(streaming, ..) if req.field(Known::Range).is_some() => {
            Some(Arc::clone(streaming))
        }
        _ => None,
    };
    let rest = match &served {
        Served::Passed(answer, label) => {
            peers::rest::right(req, target, (answer, *label), &walk.zone.rule_counts)
        }
        _ => None,
    };
    let mut response = answer_with(req, target, (served, walk), tries_before)?;
    if let Some(right) = rest {
        let body = std::mem::take(&mut response.body);
        response.body = Body::stream(Resumable::new(body, right));
    }
    if let Some(streaming) = filling {
        let ahead = (walk, &*streaming);
        Box::pin(leap::over(req, target, ahead, &mut response)).await;
    }
    Ok(response)
}

/// The answer for what a walk served; `tries_before` it the request had asked peers so often.
pub fn answer_with(
    req: &mut Request,
    target: &Arc<PassTarget>,
    (served, walk): (Served<Origin>, &Walk),
    tries_before: usize,
) -> Result<Box<Response>, Failure> {
    let mut told = told(walk, tries_before);
    let mut response = match served {
        Served::Entry(found, status) => {
            let found = (&*found, status, &walk.zone);
            return Ok(answer_with_entry(req, target, found, tries_before));
        }
        Served::Filling(streaming, reader, status) => {
            told.valid_until = Some(streaming.head.valid_until);
            from_fill(req, target, (walk, &streaming), reader, status)
        }
        Served::Passed(fetched, status) => {
            note(req, status);
            let stored = if is_kept_out_here(req) {
                Stored::Filling
            } else {
                Stored::No
            };
            answer::from_fetched(req, target, fetched.fetched, stored)?
        }
    };
    status_header::tell(req, target, &mut response, &told);
    Ok(response)
}

/// True if an answer was asked for as if it were to be stored, so that the client's range and
/// conditions did not go with it, and is kept out by something else than its own fields.
///
/// nginx: `u->cacheable`, which fields clear before the head is passed on.
fn is_kept_out_here(req: &Request) -> bool {
    let account = req.upstream.borrow().account;
    match account.reason {
        Some(Reason::BeingStored) => true,
        Some(reason) => account.role == FillRole::Leader && !reason.is_of_fields(),
        None => false,
    }
}

/// The answer from an entry.
fn answer_with_entry(
    req: &mut Request,
    target: &PassTarget,
    (found, status, zone): (&FoundEntry, CacheStatus, &Arc<CacheZone>),
    tries_before: usize,
) -> Box<Response> {
    note_hits(req, zone, found);
    let is_hit = matches!(
        status,
        CacheStatus::Hit | CacheStatus::Stale | CacheStatus::Updating
    );
    if is_hit && let Some(rule) = rule_of_hit::of(req, target, &found.head) {
        zone.rule_counts.note(rule);
    }
    if status == CacheStatus::Hit {
        let len = found.entry.len();
        zone.copies.note_hit(&found.key, &found.head, len);
    }
    let mut response = stored_head::from_found(req, target, found);
    complete(req, target, (found, status), &mut response);
    encodings::apply(req, target, (found, zone), &mut response);
    let told = Told {
        // The text is that of the walk: another one would not have been found.
        key: Some(&found.head.key),
        tries_before,
        valid_until: Some(found.head.valid_until),
    };
    status_header::tell(req, target, &mut response, &told);
    response
}

/// nginx: a body that is not passed on while it comes is read first, so that the key may name it.
fn must_read_body(req: &Request, protocol: Protocol) -> bool {
    let buffers = req.location.settings.pass(protocol).request.buffering;
    buffers && request_body::is_to_be_read(req)
}

/// The key's text.
///
/// nginx: the usual key has the URI that is passed on, so that a page or a path that the server
/// goes on with inside is another entry than what the client asked for.
pub fn key(req: &mut Request, target: &PassTarget) -> Result<Bytes, Failure> {
    let location = Arc::clone(&req.location);
    with_scratch(|text| {
        write_key(req, (&location, target), text)?;
        Ok(own_text(text))
    })
}

/// Bytes of the blocks that the texts of keys are cut from (arbitrary: some tens of them; a text
/// that is kept, as that of a fill that takes long, keeps its block).
const TEXTS_BLOCK: usize = 4096;

thread_local! {
    static TEXTS: Block = Block::new(TEXTS_BLOCK);
}

/// A key's text as bytes of their own.
fn own_text(text: &[u8]) -> Bytes {
    TEXTS.with(|block| block.cut(text))
}

fn write_key(
    req: &mut Request,
    (location, target): (&Location, &PassTarget),
    text: &mut Vec<u8>,
) -> Result<(), Failure> {
    if let Some(template) = &location.settings.pass(target.protocol).key.key {
        req.eval_into(template, text);
        return req.heed_expressions();
    }
    match target.fixed() {
        Some(resolved) => write_usual_key(req, target, resolved, text),
        None => {
            let (resolved, _) = target.locate(req)?;
            write_usual_key(req, target, &resolved, text);
        }
    }
    req.heed_expressions()
}

fn write_usual_key(req: &Request, target: &PassTarget, resolved: &Resolved, text: &mut Vec<u8>) {
    text.extend_from_slice(b"http");
    text.extend_from_slice(resolved.host.as_bytes());
    http::write_uri(req, target, resolved, text);
}

fn note(req: &Request, status: CacheStatus) {
    req.upstream.borrow_mut().cache_status = Some(status.as_str());
}

/// Notes that an answer is passed on without being stored, and why.
fn note_unstored(req: &Request, walk: &Walk, (status, at): (u16, i64)) {
    let note = NotStoredNote {
        account: req.upstream.borrow().account,
        status,
        at,
    };
    let mark = walk.zone.mark(&walk.key.key, &walk.key.text);
    walk.zone.unstored.note(mark, note);
}

/// Notes how often the entry was found, where that is used.
fn note_hits(req: &Request, zone: &CacheZone, found: &FoundEntry) {
    if req.conf.uses_cache_hits {
        let glance = zone.store.glance(&found.key);
        let hits = glance.map(|glance| catalogue::hits(&glance.summary()));
        req.upstream.borrow_mut().hits = hits;
    }
}

/// Adds to the answer from an entry's head what depends on the request, and the body.
fn complete(
    req: &mut Request,
    target: &PassTarget,
    (found, status): (&FoundEntry, CacheStatus),
    response: &mut Response,
) {
    let brought = {
        let mut trace = req.upstream.borrow_mut();
        trace.cache_status = Some(status.as_str());
        trace.account.brought
    };
    response.length = if req.is_head() {
        length_for_head(req, target, found)
    } else {
        Some(found.entry.len())
    };
    if by_rfc::is_on(req, target) {
        by_rfc::tell_age(response, &found.head, as_reused(req, status));
    }
    if brought != Brought::Nothing {
        response.provenance = Provenance::One(Whence::Origin);
    }
    response.body = body::of_entry(&found.entry);
}

/// Status of an answer as its age sees it: a copy of the second tier is a stored answer.
fn as_reused(req: &Request, status: CacheStatus) -> CacheStatus {
    match req.upstream.borrow().tier {
        Some(TierWord::Hit) => CacheStatus::Hit,
        _ => status,
    }
}

/// Length that HEAD is told. A stored answer to HEAD has no body: only the announced length says
/// how long the body would be, if there is one.
fn length_for_head(req: &Request, target: &PassTarget, found: &FoundEntry) -> Option<u64> {
    let announced = found.head.field(b"content-length");
    let announced = announced.and_then(|value| http1::content_length(&value));
    let method = &req.location.settings.of::<UpstreamSettings>().proxy.method;
    let is_converted = target.protocol == Protocol::Http && method.convert_head;
    let len = Some(found.entry.len()).filter(|len| *len > 0 || is_converted);
    announced.or(len)
}

fn from_fill(
    req: &mut Request,
    target: &Arc<PassTarget>,
    (walk, streaming): (&Walk, &Arc<Streaming>),
    reader: Reader,
    status: CacheStatus,
) -> Box<Response> {
    note(req, status);
    let mut response = stored_head::from_head(req, target, &streaming.head, Stored::Filling);
    if by_rfc::is_on(req, target) {
        // Also for the client that it was fetched for: the same answer has ranges if it is whole.
        by_rfc::tell_age(&mut response, &streaming.head, as_reused(req, status));
        response.parts.rule = response.parts.rule.for_stream();
    }
    response.length = streaming.length;
    encodings::announce(req, target, &mut response);
    let role = req.upstream.borrow().account.role;
    let body = match role {
        FillRole::Waiter => {
            let (body, provenance) = FillBody::joined(reader);
            response.provenance = provenance;
            body
        }
        FillRole::Leader | FillRole::None => FillBody::new(reader),
    };
    let resume = slice::resume(req, target, (walk, streaming));
    response.body = Body::stream(body.with_resume(resume));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes of the future that a function makes.
    fn future_size<'a, T>(_: impl FnOnce(Rest<'a>) -> T) -> usize {
        size_of::<T>()
    }

    #[test]
    fn a_walk_is_no_longer_than_what_the_allocator_has_at_hand() {
        let size = future_size(Rest::run);
        assert!(size <= 1032, "{size}");
    }
}
