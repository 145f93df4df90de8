//! From a handler's answer to a plan that a wire can carry out: filters, the kind of its body, its
//! head, its rate; and the accounts when it was sent.
//!
//! Here is only what every answer needs, and nothing of a protocol.
//!
//! ```text
//! begin ─┬─ all of it is in memory, and the socket takes it ──────────────► Ended
//!        └─ Refused ► BodyBegins ► Send: each only where it is needed (go_on) ──► Ended
//! ```
//!
//! Invariants:
//! 1. An answer to HEAD, and 204, 304 and 1xx, have no body (RFC 9110 §6.4.1).
//! 2. `req.sent` is right when the answer has ended, also after an error.

use std::rc::Rc;
use std::time::Duration;

use millpond_system::body::{Body, BodyError};
use millpond_system::clock;

use super::http1::{answer, writer};
use super::stream;
use crate::conditional::Refusal;
use crate::filter::fragment;
use crate::request::Request;
use crate::{filter, websocket};
use millpond_exchange::client::Client;
use millpond_exchange::client::send::{
    AnswerHead, BodyKind, Outgoing, SendError, SendLimits, SentBytes,
};
use millpond_exchange::client::wire::{Stream, Wire};
use millpond_exchange::failure::{CLOSE_WITHOUT_ANSWER, ClientGone};
use millpond_exchange::response::{Response, Source};
use millpond_exchange::stats::Label;
use millpond_exchange::stats::site::{Answered, Counting};
use millpond_exchange::stats::times::Timed;
use millpond_wire::header::{Fields, Known, KnownSet};
use millpond_wire::http1::Version;

/// The point up to which an answer came without waiting.
pub(crate) enum Begun {
    /// To its end; an error means that the connection must be closed.
    Ended(Result<(), SendError>),
    /// To its stream, which has all of it: so many bytes, and how long [`await_sent`] waits until
    /// they are sent.
    Given(SentBytes, Duration),
    /// The rest is for [`go_on`].
    Waits(Rest),
}

/// Rest of the work on an answer.
pub(crate) enum Rest {
    /// Another answer is to be made in its place.
    Refused(Refusal),
    /// The begin of its body is to be waited for.
    BodyBegins(BodyKind),
    /// The answer is to be sent.
    Send(Unsent),
}

/// The part of an answer that its wire did not take with the head.
pub(crate) enum Unsent {
    /// HTTP/1's.
    Http1(writer::Unsent, SendLimits),
    /// A stream's.
    Stream(stream::Unsent, SendLimits),
    /// Nothing: a stream has all of it.
    Given(SentBytes, SendLimits),
}

/// Filters the answer, and sends it if its body is there and the socket takes all of it.
pub(crate) fn begin(req: &mut Request, response: &mut Response) -> Begun {
    // An upstream may answer with these statuses; of our own they mean that nobody is to be told.
    let is_unspoken = matches!(response.status, CLOSE_WITHOUT_ANSWER | 408 | 499);
    if is_unspoken && response.source == Source::Own {
        req.sent.status = response.status;
        req.client.end_connection();
        return Begun::Ended(Err(ClientGone::Closed.into()));
    }
    if let Err(refusal) = filter::run(req, response).and_then(|()| Refusal::of_expressions(req)) {
        return Begun::Waits(Rest::Refused(refusal));
    }
    let kind = kind(req, response);
    if response.delivery.waits_for_body && kind != BodyKind::None {
        return Begun::Waits(Rest::BodyBegins(kind));
    }
    match start(req, response, kind) {
        Ok(sent) => Begun::Ended(sent),
        Err(Unsent::Given(sent, limits)) => Begun::Given(sent, limits.timeout),
        Err(unsent) => Begun::Waits(Rest::Send(unsent)),
    }
}

/// Does the rest; an error means that the connection must be closed.
pub(crate) async fn go_on(
    req: &mut Request,
    response: &mut Response,
    rest: Rest,
) -> Result<(), SendError> {
    let kind = match rest {
        Rest::Send(unsent) => return finish(req, response, unsent).await,
        Rest::BodyBegins(kind) => kind,
        Rest::Refused(refusal) => {
            replace(req, response, refusal).await;
            kind(req, response)
        }
    };
    if response.delivery.waits_for_body && kind != BodyKind::None {
        begin_body(req, response).await?;
    }
    match start(req, response, kind) {
        Ok(sent) => sent,
        Err(unsent) => finish(req, response, unsent).await,
    }
}

/// Puts the answer to a refusal in the place of the refused one.
async fn replace(req: &mut Request, response: &mut Response, refusal: Refusal) {
    let kept = refusal.take_fields(response);
    *response = *crate::phase::answer_refused(req, refusal.status).await;
    refusal.complete(response);
    // The conditions and ranges of the answer are settled: nothing is refused twice.
    let _ = filter::run(req, response);
    for field in kept {
        if response.fields.find(&field.name).is_none() {
            response.fields.push(field);
        }
    }
}

/// Begins the answer on the client's wire. Comes back with the part that is left to be sent.
fn start(
    req: &mut Request,
    response: &mut Response,
    kind: BodyKind,
) -> Result<Result<(), SendError>, Unsent> {
    let client = Rc::clone(&req.client);
    let now = clock::instant();
    req.sent.first_byte = now.saturating_duration_since(req.head_at);
    // An answer that goes out at once was sent now.
    req.sent.ended = Some(now);
    match &client.wire {
        Wire::None => Ok(Err(ClientGone::Closed.into())),
        Wire::Http1(http1) => {
            let encoded = answer::encode(http1, req, response, kind);
            req.sent.is_chunked = encoded.framing.is_chunked();
            note_head(req, response);
            let limits = begin_body_of(req, response, kind);
            match encoded.write(http1, response, &limits) {
                answer::Written::Part(unsent) => Err(Unsent::Http1(unsent, limits)),
                answer::Written::Whole(bytes, outcome) => {
                    let outcome = outcome.map_err(|error| ClientGone::Io(error).into());
                    // The answer was sent when its head was written.
                    let whole = (req.started == req.head_at).then_some(req.sent.first_byte);
                    end(req, response, (bytes, whole), &outcome);
                    Ok(outcome)
                }
            }
        }
        Wire::Stream(stream) if response.delivery.tunnel.is_some() => {
            open_tunnel(req, response, &**stream);
            Ok(Ok(()))
        }
        Wire::Stream(stream) => {
            let frame_len = req.location.settings.frames.chunk.as_usize();
            let unsent = stream::begin(stream, &head(req, response, kind), frame_len);
            note_head(req, response);
            let limits = begin_body_of(req, response, kind);
            let is_free = limits.rate == 0 && response.delivery.backlog.is_none();
            let give = || stream::give(&**stream, &unsent, &mut response.body);
            Err(match is_free.then(give).flatten() {
                Some(sent) => Unsent::Given(sent, limits),
                None => Unsent::Stream(unsent, limits),
            })
        }
    }
}

/// Begins the answer that opens a tunnel on a stream (RFC 8441 §5); the tunnel ends it.
fn open_tunnel(req: &mut Request, response: &mut Response, stream: &dyn Stream) {
    response.status = 200;
    response.orders.status_text = None;
    websocket::drop_words_of_http1(&mut response.fields);
    let frame_len = req.location.settings.frames.chunk.as_usize();
    let sent = SentBytes {
        head: stream.begin(&head(req, response, BodyKind::Unknown), frame_len),
        body: 0,
    };
    note_head(req, response);
    end(req, response, (sent, None), &Ok(()));
}

/// Settles the body of an answer whose head is made, and evaluates the limits of its sending.
#[inline]
fn begin_body_of(req: &mut Request, response: &mut Response, kind: BodyKind) -> SendLimits {
    if let BodyKind::Length(_) = kind {
        // Not before the head is written: what it says of the upstream is said without the body.
        response.body.settle();
    }
    limits(req)
}

/// Sends what the wire has not taken, and what of the body is still to come.
async fn finish(
    req: &mut Request,
    response: &mut Response,
    unsent: Unsent,
) -> Result<(), SendError> {
    let client = Rc::clone(&req.client);
    if req.sent.is_chunked {
        response.provenance.is_changed();
    }
    let mut sent = SentBytes::default();
    let outcome = send(req, response, (&client, unsent), &mut sent).await;
    req.sent.ended = Some(clock::instant());
    end(req, response, (sent, None), &outcome);
    outcome
}

/// Waits until an answer is sent that its stream has whole; an error means that it is not.
pub(crate) async fn await_sent(
    req: &mut Request,
    response: &mut Response,
    (sent, timeout): (SentBytes, Duration),
) -> Result<(), SendError> {
    let outcome = match &req.client.wire {
        Wire::Stream(stream) => stream::sent(&**stream, timeout).await,
        // A request has one wire.
        Wire::None | Wire::Http1(_) => Err(ClientGone::Closed.into()),
    };
    req.sent.ended = Some(clock::instant());
    end(req, response, (sent, None), &outcome);
    outcome
}

async fn send(
    req: &mut Request,
    response: &mut Response,
    (client, unsent): (&Client, Unsent),
    sent: &mut SentBytes,
) -> Result<(), SendError> {
    let mut body = std::mem::take(&mut response.body);
    let backlog = response.delivery.backlog.take();
    let mut trailers = |own: Option<Fields>| filter::trailers(req, own);
    let (Unsent::Http1(_, limits) | Unsent::Stream(_, limits) | Unsent::Given(_, limits)) = unsent;
    let outgoing = Outgoing {
        body: &mut body,
        limits: &limits,
        backlog,
        trailers: &mut trailers,
    };
    match (unsent, &client.wire) {
        (Unsent::Http1(unsent, _), Wire::Http1(http1)) => {
            writer::send(client, http1, unsent, outgoing, sent).await
        }
        (Unsent::Stream(unsent, _), Wire::Stream(stream)) => {
            stream::send(client, &**stream, unsent, outgoing, sent).await
        }
        (Unsent::Given(given, _), Wire::Stream(stream)) => {
            *sent = given;
            stream::sent(&**stream, limits.timeout).await
        }
        // A request has one wire.
        _ => Err(ClientGone::Closed.into()),
    }
}

/// The head of the answer, in the words of no protocol.
#[inline]
pub(crate) fn head<'a>(req: &Request, response: &'a Response, body: BodyKind) -> AnswerHead<'a> {
    const OWN_LINES: KnownSet = KnownSet::of(&[Known::Server, Known::Date]);
    let fields = &response.fields;
    let (mut hides_server, mut hides_date) =
        (response.orders.hides_server, response.orders.hides_date);
    if fields.has_any(OWN_LINES) {
        hides_server |= fields.contains(Known::Server);
        hides_date |= fields.contains(Known::Date);
    }
    AnswerHead {
        status: response.status,
        status_text: response.orders.status_text.as_ref(),
        server: (!hides_server).then_some(req.location.settings.tokens.tokens),
        date_us: (!hides_date).then(|| date_us(req)),
        fields,
        length: response.length,
        body,
    }
}

fn date_us(req: &Request) -> i64 {
    if req.has_waited {
        // The end was just noted.
        req.sent.ended.map_or_else(clock::now_us, clock::wall_us)
    } else {
        req.started_us + req.sent.first_byte.as_micros() as i64
    }
}

/// Notes the head that was made.
#[inline]
fn note_head(req: &mut Request, response: &mut Response) {
    req.sent.status = response.status;
    // An answer in HTTP/0.9 has no head.
    if req.head.version() == Version::Http09 {
        return;
    }
    req.sent.length = response.length;
    req.sent.fields = std::mem::take(&mut response.fields);
}

/// Notes what was sent, and how long it took if that is known.
fn end(
    req: &mut Request,
    response: &Response,
    (sent, whole): (SentBytes, Option<Duration>),
    outcome: &Result<(), SendError>,
) {
    req.sent.head_bytes = sent.head;
    req.sent.body_bytes = sent.body;
    req.sent.shares = response.provenance.shares(sent.body);
    req.sent.is_complete = outcome.is_ok();
    count(req, whole);
    if let Err(error) = outcome {
        req.client.end_connection();
        crate::log::request_error::send_failed(req, error);
    }
}

/// Waits for the begin of a page's body; a page whose part fails before that is not answered.
async fn begin_body(req: &mut Request, response: &mut Response) -> Result<(), SendError> {
    let mut body = std::mem::take(&mut response.body);
    let first = match Box::pin(body.next()).await {
        Some(Err(
            error @ (BodyError::Subrequest(_) | BodyError::ClientLeft | BodyError::Slice(_)),
        )) => {
            req.sent.status = response.status;
            req.client.end_connection();
            let error = SendError::from(error);
            crate::log::request_error::send_failed(req, &error);
            return Err(error);
        }
        first => first,
    };
    response.body = match first {
        Some(first) => Body::stream(fragment::Begun::new(first, body)),
        None => Body::Empty,
    };
    Ok(())
}

/// Enters the answer in the worker's counters.
fn count(req: &mut Request, whole: Option<Duration>) {
    let worker = Rc::clone(req.worker());
    let (label, zone) = {
        let trace = req.upstream.borrow();
        (Label::of(trace.cache_status), trace.zone)
    };
    let answered = Answered {
        label,
        bytes: req.sent.body_bytes,
        shares: req.sent.shares,
    };
    let shared = &worker.shared;
    let place = worker.place.place;
    shared.cache.record(place, label, answered.bytes);
    let of_site = |counting: &Counting<'_>, site| counting.answered(place, site, &answered);
    crate::site::count(req, of_site);
    let until_end = || req.sent.ended.unwrap_or_else(clock::instant) - req.started;
    let timed = Timed {
        label,
        status: req.sent.status,
        first_byte: req.sent.first_byte,
        whole: whole.unwrap_or_else(until_end),
    };
    shared.times.answered(place, &timed);
    if let Some(zone) = zone {
        let answer = (label, answered.bytes);
        shared.cache_zones.answered(place, zone, answer);
    }
    if label.is_miss() {
        let missing = &worker.shared.missing;
        missing.record(worker.index, &req.host, req.unparsed_uri());
    }
}

fn kind(req: &Request, response: &Response) -> BodyKind {
    if req.is_head() || matches!(response.status, 204 | 304) || response.status < 200 {
        return BodyKind::None;
    }
    response.length.map_or(BodyKind::Unknown, BodyKind::Length)
}

fn limits(req: &mut Request) -> SendLimits {
    let policy = &req.location.settings.send;
    let (mut rate, mut rate_after) = (req.limit_rate, 0);
    if policy.rate.is_some() || policy.rate_after.is_some() {
        let location = std::sync::Arc::clone(&req.location);
        let policy = &location.settings.send;
        rate = rate.or_else(|| Some(req.eval_size(policy.rate.as_ref())));
        rate_after = req.eval_size(policy.rate_after.as_ref());
    }
    // nginx: `$limit_rate` is from now on the rate that the answer is sent at.
    req.limit_rate = rate;
    let policy = &req.location.settings.send;
    SendLimits {
        timeout: policy.timeout,
        rate: rate.unwrap_or(0),
        rate_after,
        file_chunk: match policy.sendfile_max_chunk.0 {
            0 => u64::MAX,
            chunk => chunk,
        },
    }
}
