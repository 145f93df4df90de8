//! A passed request through the cache: from its key to its answer.
//!
//! Evaluates the key, decides whether the cache takes part at all, walks `millpond_cache::step`
//! with an exchange of this request, and turns what is served (an entry, a fill that still runs, or
//! the origin's own answer) into a [`Response`].

use std::sync::Arc;

use bytes::Bytes;
use millpond_cache::catalogue;
use millpond_cache::fill::Streaming;
use millpond_cache::fill::pump::Reader;
use millpond_cache::head::StoredHead;
use millpond_cache::reason::{Brought, FillRole};
use millpond_cache::slice::reader::SliceFailure;
use millpond_cache::status::CacheStatus;
use millpond_cache::step::{self, Served, Walk};
use millpond_cache::why::NotStoredNote;
use millpond_cache::zone::{CacheZone, FoundEntry, PrimaryKey};

use super::body::{self, FillBody};
use super::by_rfc;
use super::exchange::{Failed, Origin, PassExchange, clients_range};
use super::leap;
use super::loaded;
use super::provenance::{Provenance, Whence};
use super::slice;
use super::status_header::{self, Told};
use super::zones::LocationCache;
use crate::body::Body;
use crate::clock;
use crate::downstream::{self, body::RequestBody};
use crate::failure::Failure;
use crate::header::{Field, Fields, Known};
use crate::http1;
use crate::request::Request;
use crate::response::Response;
use crate::upstream::answer::{self, AnswerHead, Stored};
use crate::upstream::pass::{PassTarget, fetch};
use crate::upstream::trace::Freshness;
use crate::upstream::{http, protocol::Protocol};

/// Answers from the zone, or from the origin through it.
pub async fn run(
    req: &mut Request,
    target: &Arc<PassTarget>,
    cache: &LocationCache,
    zone: Arc<CacheZone>,
) -> Result<Response, Failure> {
    read_body(req, target.protocol).await?;
    // All slices are one entry: of that range the key says nothing.
    req.slice_range = None;
    let text = key(req, target)?;
    let mut walk = Walk {
        zone,
        key: PrimaryKey::new(text),
        policies: Arc::clone(&cache.policies),
        rules: by_rfc::rules(req, target),
        slicing: slice::slicing(req, target),
        past: None,
    };
    let tries_before = status_header::tries(req);
    for _ in 0..WALKS_MAX {
        let mut exchange = PassExchange::new(&mut *req, Arc::clone(target));
        let served = step::serve(&mut exchange, &walk, &mut |_| {}).await;
        let served = served.map_err(|Failed(failure)| failure)?;
        if let Served::Passed(fetched, _) = &served
            && exchange.is_head_by_rfc()
        {
            step::learn_from_head(&exchange, &walk, fetched);
        }
        if let Served::Passed(fetched, _) = &served {
            note_unstored(req, &walk, fetched.fetched.head.status);
        }
        let Served::Entry(found, status) = &served else {
            return answer_from_origin(req, target, (served, &walk), tries_before).await;
        };
        if found.head.sliced.is_none() {
            let response = answer_with_entry(req, target, (found, *status, &walk), tries_before);
            if loaded::is_begun(req, &response)
                || Box::pin(loaded::begin(req, &response, cache.policies.disk.timeout)).await
            {
                return Ok(response);
            }
            walk.past = Some(found.entry.clone());
            continue;
        }
        let opened = from_slices(req, target, (&walk, tries_before), (found, *status));
        match Box::pin(opened).await {
            Ok(response) => return Ok(response),
            // The version is gone: what is there now is looked up, or fetched.
            Err(SliceFailure::Changed) => {}
            Err(SliceFailure::Refused) => break,
            Err(SliceFailure::Failed { status, .. }) => return Err(Failure::Status(status)),
        }
    }
    note(req, CacheStatus::Miss);
    req.slice_range = clients_range(req);
    let mut response = fetch(req, target).await?;
    status_header::tell(req, target, &mut response, &told(&walk, tries_before));
    Ok(response)
}

/// How often a request begins anew because the version that it found is gone at the origin; then
/// it is passed on as it is (arbitrary: an origin that changes faster than it answers).
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
) -> Result<Response, SliceFailure> {
    note_hits(req, walk, found);
    let mut response = from_head(req, target, &found.head, Stored::Yes);
    let answer = (&mut response, &mut status);
    slice::open(req, target, (&walk.zone, found), answer).await?;
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
) -> Result<Response, Failure> {
    let filling = match &served {
        Served::Filling(streaming, ..) if req.field(Known::Range).is_some() => {
            Some(Arc::clone(streaming))
        }
        _ => None,
    };
    let mut response = answer_with(req, target, (served, walk), tries_before)?;
    if let Some(streaming) = filling {
        let ahead = (walk, &*streaming);
        Box::pin(leap::over(req, target, ahead, &mut response)).await;
    }
    Ok(response)
}

/// The answer for what a walk served; `tries_before` it the request had asked peers so often.
pub fn answer_with(
    req: &mut Request,
    target: &PassTarget,
    (served, walk): (Served<Origin>, &Walk),
    tries_before: usize,
) -> Result<Response, Failure> {
    let mut told = told(walk, tries_before);
    let mut response = match served {
        Served::Entry(found, status) => {
            return Ok(answer_with_entry(
                req,
                target,
                (&found, status, walk),
                tries_before,
            ));
        }
        Served::Filling(streaming, reader, status) => {
            told.valid_until = Some(streaming.head.valid_until);
            from_fill(req, target, &streaming, reader, status)
        }
        Served::Passed(fetched, status) => {
            note(req, status);
            answer::from_fetched(req, target, fetched.fetched)?
        }
    };
    status_header::tell(req, target, &mut response, &told);
    Ok(response)
}

/// The answer from an entry.
fn answer_with_entry(
    req: &mut Request,
    target: &PassTarget,
    (found, status, walk): (&FoundEntry, CacheStatus, &Walk),
    tries_before: usize,
) -> Response {
    note_hits(req, walk, found);
    let mut response = from_entry(req, target, found, status);
    let mut told = told(walk, tries_before);
    told.valid_until = Some(found.head.valid_until);
    status_header::tell(req, target, &mut response, &told);
    response
}

/// nginx: a body that is not passed on while it comes is read first, so that the key may name it.
async fn read_body(req: &mut Request, protocol: Protocol) -> Result<(), Failure> {
    let buffers = req.location.settings.pass(protocol).request.buffering;
    if buffers && matches!(req.body, RequestBody::Unread { .. }) {
        Box::pin(downstream::body::read_all(req)).await?;
    }
    Ok(())
}

/// The key's text.
///
/// nginx: the usual key has the URI that is passed on, so that a page or a path that the server
/// goes on with inside is another entry than what the client asked for.
pub fn key(req: &mut Request, target: &PassTarget) -> Result<Bytes, Failure> {
    let location = Arc::clone(&req.location);
    if let Some(template) = &location.settings.pass(target.protocol).key.key {
        return Ok(req.eval(template));
    }
    let (resolved, _) = target.locate(req)?;
    let mut text = Vec::with_capacity(128);
    text.extend_from_slice(b"http");
    text.extend_from_slice(resolved.host.as_bytes());
    http::write_uri(req, target, &resolved, &mut text);
    Ok(Bytes::from(text))
}

fn note(req: &Request, status: CacheStatus) {
    req.upstream.borrow_mut().cache_status = Some(status.as_str());
}

/// Notes that an answer is passed on without being stored, and why.
fn note_unstored(req: &Request, walk: &Walk, status: u16) {
    let note = NotStoredNote {
        account: req.upstream.borrow().account,
        status,
        at: clock::now_ms().div_euclid(1000),
    };
    walk.zone.unstored.note(walk.key.key, note);
}

/// Notes how often the entry was found, where that is used.
fn note_hits(req: &Request, walk: &Walk, found: &FoundEntry) {
    if req.conf.uses_cache_hits {
        let glance = walk.zone.store.glance(&found.key);
        let hits = glance.map(|glance| catalogue::hits(&glance.summary()));
        req.upstream.borrow_mut().hits = hits;
    }
}

fn from_entry(
    req: &mut Request,
    target: &PassTarget,
    found: &FoundEntry,
    status: CacheStatus,
) -> Response {
    note(req, status);
    let mut response = from_head(req, target, &found.head, Stored::Yes);
    // What a stored answer to HEAD announced is the length of a body that is not there.
    let announced = found.head.field(b"content-length");
    let announced = announced.and_then(|value| http1::content_length(&value));
    response.length = announced
        .filter(|_| req.is_head())
        .or(Some(found.entry.len()));
    if by_rfc::is_on(req, target) {
        by_rfc::tell_age(&mut response, &found.head, status);
    }
    if req.upstream.borrow().account.brought != Brought::Nothing {
        response.provenance = Provenance::One(Whence::Origin);
    }
    response.body = body::of_entry(&found.entry);
    response
}

fn from_fill(
    req: &mut Request,
    target: &PassTarget,
    streaming: &Streaming,
    reader: Reader,
    status: CacheStatus,
) -> Response {
    note(req, status);
    let mut response = from_head(req, target, &streaming.head, Stored::Filling);
    if by_rfc::is_on(req, target) && status == CacheStatus::Hit {
        by_rfc::tell_age(&mut response, &streaming.head, status);
        response.ranges = response.ranges.for_stream();
    }
    response.length = streaming.length;
    response.body = match req.upstream.borrow().account.role {
        FillRole::Waiter => {
            let (body, provenance) = FillBody::joined(reader);
            response.provenance = provenance;
            Body::stream(body)
        }
        FillRole::Leader | FillRole::None => Body::stream(FillBody::new(reader)),
    };
    response
}

/// The head for the client, from what was stored.
fn from_head(
    req: &mut Request,
    target: &PassTarget,
    head: &StoredHead,
    stored: Stored,
) -> Response {
    req.upstream.borrow_mut().freshness = Some(Freshness {
        age: i64::try_from(head.age(clock::now_ms().div_euclid(1000))).unwrap_or(i64::MAX),
        ttl: status_header::left(req, target, head.valid_until),
    });
    // Room for what the configuration adds.
    let mut fields = Fields::with_capacity(head.field_count() + 4);
    for (name, value) in head.fields() {
        fields.push(stored_field(head, name, value));
    }
    if req.conf.uses_upstream_fields {
        req.upstream.borrow_mut().fields = Some(std::rc::Rc::new(fields.clone()));
    }
    let head = AnswerHead {
        status: head.status,
        status_text: None,
        fields,
    };
    answer::from_head(req, target, head, stored)
}

/// A name that is written as usual costs no reference to the stored head.
fn stored_field(head: &StoredHead, name: &[u8], value: &[u8]) -> Field {
    let (known, value) = (Known::of(name), head.share(value));
    if known != Known::Other && name == known.canonical().as_bytes() {
        return Field::known(known, value);
    }
    let name = head.share(name);
    Field { known, name, value }
}
