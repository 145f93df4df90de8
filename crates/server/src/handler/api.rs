//! `api`: what the process knows of itself, as JSON, to whoever the location lets in.
//!
//! | below the location's name | answer |
//! |---|---|
//! | `/`, `/1/` to `/9/` | NGINX Plus's API (`control/plus`) |
//! | `/millpond/1/` | our own, the same as on the control socket (`control/api.rs`) |
//! | `/openapi.json` | a description of both |
//!
//! ```text
//! worker: request ──► thread: answer ──head──► worker ──► client
//!                          └── lines, at most PIECES ahead of the client ──►┘
//! ```
//!
//! 1. Everything is answered by a thread beside the worker: it may wait for a lock or a disk.
//! 2. At most `PLACES` requests are answered at once, all workers together.
//! 3. Without `write=on` nothing can be changed; nor by a page of another site that a browser shows
//!    to somebody who could (`foreign`).
//! 4. A list that does not end as it should ends the connection.
//! 5. Who takes no piece of a list for `PATIENCE` gets no more of it, and gives the place back.

use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use millpond_conf::{Contexts, Statement};
use millpond_exchange::client::body::RequestBody;
use millpond_exchange::failure::Failure;
use millpond_exchange::response::Response;
use millpond_exchange::scope::block::{Draft, Pass, Row};
use millpond_exchange::scope::build::Builder;
use millpond_exchange::worker::{Generation, Member};
use millpond_proxy::content::{ContentHandler, Explained, Handler};
use millpond_proxy::phase::{self, Flow};
use millpond_proxy::request::Request;
use millpond_proxy::request_body;
use millpond_proxy::var::request::random_id;
use millpond_system::body::{Body, BodyError, BodyStream, Piece};
use millpond_system::clock;
use millpond_wire::header::{Field, Known};
use millpond_wire::http1::Method;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{mpsc, oneshot};

use crate::control::api::{self, Answer, Ask, MakeLines, Verb};
use crate::control::lines::{Pieces, Sink};
use crate::control::plus::{self, BODY_MAX, Payload, Refusal, View};
use crate::control::query::Reader;
use crate::control::warm::{self, Jobs};
use crate::control::{foreign, query, report, scene};
use crate::handler;

/// The description of everything that is answered.
pub(crate) const OPENAPI: &str = include_str!("../../../../docs/openapi.json");
/// Requests at once (arbitrary: dashboards ask for a dozen things at a time).
const PLACES: usize = 32;
/// Pieces that may wait for the client.
const PIECES: usize = 2;
/// The longest time that a client may take for a piece (arbitrary: a page on a telephone's line
/// takes a second).
const PATIENCE: Duration = Duration::from_secs(20);
/// The same of a reader of events, who is told what he misses (arbitrary: a program that is stopped
/// for a moment).
const PATIENCE_WITH_READERS: Duration = Duration::from_secs(300);
/// The path of orders to warm caches.
const WARM: [&str; 3] = ["millpond", "1", "warm"];
/// Between two looks whether it has taken one (arbitrary: 32 threads that do this are nothing).
const LOOK: Duration = Duration::from_millis(20);

/// The row.
pub(crate) const ROWS: &[Row] = &[Row {
    name: "api",
    contexts: Contexts::LOCATION,
    syntax: "[write=on | off] [hosts=name,...]",
    is_block: false,
    pass: Pass::First,
    doc: "Answers with what the process knows of itself, as JSON: below the location's name are \
          NGINX Plus's API (`/9/`), our own (`/millpond/1/`) and a description of both \
          (`/openapi.json`); docs/api.md has more. With `write=on` zones can be purged and \
          verified, counters begun anew and servers of upstream groups changed by it, too, by \
          requests with `Content-Type: application/json` or the field `Millpond-Api`, and by no \
          page of another site. The host that such a request names must be an IP address, \
          `localhost`, a name of the server, or one of `hosts`; with `hosts` that holds for all \
          requests. Who may ask is for `allow`, `deny` and the other gates of the location to say.",
    apply: row,
}];

/// An API of a location.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ApiPolicy {
    /// The rights of those who ask: to read, or to change things too.
    pub rights: Rights,
    /// Names under which the API is asked, beside those of the server; none if all are welcome that
    /// only ask.
    pub hosts: Option<Vec<String>>,
}

/// The rights of those who ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rights {
    /// Requests that only ask.
    Read,
    /// Requests that change something, too.
    Write,
}

fn row(builder: &mut Builder, statement: &Statement, draft: &mut Draft) {
    if !builder.has_arguments(statement, 0..=2) {
        return;
    }
    let mut policy = ApiPolicy {
        rights: Rights::Read,
        hosts: None,
    };
    for word in &statement.args {
        let hosts = word.text.strip_prefix("hosts=");
        let hosts = hosts.filter(|_| policy.hosts.is_none()).and_then(names);
        match (word.text.as_str(), hosts) {
            ("write=on", _) => policy.rights = Rights::Write,
            ("write=off", _) => policy.rights = Rights::Read,
            (_, Some(hosts)) => policy.hosts = Some(hosts),
            (other, None) => {
                let message = format!("invalid parameter \"{other}\"");
                return builder.error(word.span, message);
            }
        }
    }
    if !draft.has_plain_name {
        let message = "\"api\" must stand in a location that is found by a prefix";
        return builder.error(statement.span, message);
    }
    draft.put(ContentHandler::own(ApiHandler(Arc::new(policy))));
}

/// Names between commas, without ports; none if there is none, or an empty one.
fn names(list: &str) -> Option<Vec<String>> {
    let names: Vec<String> = list.split(',').map(str::to_ascii_lowercase).collect();
    names.iter().all(|name| !name.is_empty()).then_some(names)
}

/// The answers of an API.
#[derive(Debug)]
struct ApiHandler(Arc<ApiPolicy>);

impl Handler for ApiHandler {
    fn begin<'a>(&self, req: &'a mut Request) -> Result<phase::Begun<'a>, Failure> {
        let policy = Arc::clone(&self.0);
        Ok(phase::Begun::waits(req, async move |req| {
            let mut response = run(req, &policy).await?;
            if response.status == 405 {
                response.fields.push(allow(policy.rights, Some(req.method)));
            }
            Ok(Flow::Respond(Box::new(response)))
        }))
    }

    fn explain(&self) -> Explained {
        Explained::Itself("api")
    }
}

/// Answers a request.
async fn run(req: &mut Request, policy: &ApiPolicy) -> Result<Response, Failure> {
    let Some(segments) = segments(req) else {
        return Err(Failure::Status(404));
    };
    let id = req.request_id.get_or_init(random_id);
    let id = String::from_utf8_lossy(id).into_owned();
    let is_own = segments.first().is_some_and(|first| first == "millpond");
    let verb = match verb(req, policy) {
        Ok(verb) => verb,
        Err(Turned::Options) => return Ok(options(policy.rights)),
        Err(Turned::Refused(refusal)) if is_own => {
            let (status, text) = refusal.status_and_text();
            return Ok(at_once(report::problem(status, text)));
        }
        Err(Turned::Refused(refusal)) => return Ok(at_once(refusal.answer(&id))),
    };
    if segments.iter().map(String::as_str).eq(["openapi.json"]) && verb == Verb::Get {
        let body = Bytes::from_static(OPENAPI.as_bytes());
        return Ok(Response::text(200, JSON, body));
    }
    if is_own && verb == Verb::Post && segments.iter().map(String::as_str).eq(WARM) {
        return warm(req).await;
    }
    let ask = Ask {
        verb,
        segments,
        parameters: query::parameters(&req.args),
    };
    let payload = payload(req, ask.verb, BODY_MAX).await?;
    let Some(place) = Place::take(&req.worker().shared.api_places) else {
        return Ok(at_once(Refusal::Busy.answer(&id)));
    };
    let by = format!("by the API for {}", req.client.remote.borrow().host_text());
    let view = View {
        conf: Arc::clone(&req.conf),
        shared: Arc::clone(&req.worker().shared),
        address: req.client.connection.local.to_string(),
        request_id: id,
        by,
    };
    let held = (place, Rc::clone(req.generation()));
    let answered = beside(held, move || {
        if is_own {
            let scene = scene(Some(&view.conf), Some(&view.shared), &view.by);
            api::answer(&scene, &own(ask))
        } else {
            plus::answer(&view, &ask, &payload)
        }
    });
    answered.await
}

/// Takes an order to warm caches; this worker carries it out.
async fn warm(req: &mut Request) -> Result<Response, Failure> {
    let reader = Reader::new(&query::parameters(&req.args));
    if let Err(why) = reader.end() {
        return Ok(at_once(report::problem(400, why)));
    }
    let Payload::Bytes(order) = payload(req, Verb::Post, warm::BODY_MAX).await? else {
        return Ok(at_once(report::problem(413, "the list is too long")));
    };
    let worker = Rc::clone(&req.generation().worker);
    let jobs = worker.shared.guests.of::<Jobs>();
    let (answer, run) = jobs.take(&order);
    if let Some(run) = run {
        handler::warm::run(&worker, run);
    }
    Ok(at_once(answer))
}

/// Reads the body of a request that changes something, which is little.
async fn payload(req: &mut Request, verb: Verb, most: u64) -> Result<Payload, Failure> {
    if !matches!(verb, Verb::Post | Verb::Patch) {
        return Ok(Payload::Bytes(Bytes::new()));
    }
    if req.body.len().is_some_and(|length| length > most) {
        return Ok(Payload::TooLarge);
    }
    request_body::read_all(req).await?;
    Ok(match &req.body {
        RequestBody::Memory(bytes) if bytes.len() as u64 <= most => Payload::Bytes(bytes.clone()),
        RequestBody::Memory(_) | RequestBody::File(_) => Payload::TooLarge,
        RequestBody::None | RequestBody::Unread { .. } => Payload::Bytes(Bytes::new()),
    })
}

/// The segments of the path below the location's name.
fn segments(req: &Request) -> Option<Vec<String>> {
    let below = req.uri.strip_prefix(&*req.location.name)?;
    let is_below = below.is_empty() || below.starts_with(b"/") || req.location.name.ends_with(b"/");
    let below = Some(below).filter(|_| is_below)?;
    let segments = below.split(|byte| *byte == b'/');
    let segments = segments.filter(|segment| !segment.is_empty());
    Some(
        segments
            .map(|segment| String::from_utf8_lossy(segment).into_owned())
            .collect(),
    )
}

/// The request as it would be on the control socket.
fn own(ask: Ask) -> Ask {
    let segments = std::iter::once("api".to_string()).chain(ask.segments);
    Ask {
        segments: segments.collect(),
        ..ask
    }
}

/// A method that is not run.
enum Turned {
    Options,
    Refused(Refusal),
}

/// INVARIANT 3.
fn verb(req: &Request, policy: &ApiPolicy) -> Result<Verb, Turned> {
    let refused = |foreign| Turned::Refused(Refusal::Foreign(foreign));
    if policy.hosts.is_some() {
        foreign::check_host(req, policy.hosts.as_deref()).map_err(refused)?;
    }
    let verb = verb_of(req.method, policy.rights)?;
    if verb != Verb::Get {
        foreign::check_writing(req).map_err(refused)?;
        foreign::check_host(req, policy.hosts.as_deref()).map_err(refused)?;
    }
    Ok(verb)
}

fn verb_of(method: Method, rights: Rights) -> Result<Verb, Turned> {
    match (method, rights) {
        (Method::Get | Method::Head, _) => Ok(Verb::Get),
        (Method::Options, _) => Err(Turned::Options),
        (Method::Post, Rights::Write) => Ok(Verb::Post),
        (Method::Patch, Rights::Write) => Ok(Verb::Patch),
        (Method::Delete, Rights::Write) => Ok(Verb::Delete),
        (Method::Post | Method::Put | Method::Patch | Method::Delete, Rights::Read) => {
            Err(Turned::Refused(Refusal::Disabled))
        }
        _ => Err(Turned::Refused(Refusal::Method)),
    }
}

const JSON: Bytes = Bytes::from_static(b"application/json");

fn options(rights: Rights) -> Response {
    let mut response = Response::empty(204);
    response.fields.push(allow(rights, None));
    response
}

/// The methods that an API answers, but for one that it has just refused (RFC 9110 §10.2.1).
fn allow(rights: Rights, refused: Option<Method>) -> Field {
    const METHODS: [(Method, &str); 6] = [
        (Method::Get, "GET"),
        (Method::Head, "HEAD"),
        (Method::Post, "POST"),
        (Method::Patch, "PATCH"),
        (Method::Delete, "DELETE"),
        (Method::Options, "OPTIONS"),
    ];
    let is_left = |method| {
        let is_answered = !matches!(verb_of(method, rights), Err(Turned::Refused(_)));
        is_answered && Some(method) != refused
    };
    let left = METHODS.iter().filter(|(method, _)| is_left(*method));
    let names: Vec<&str> = left.map(|(_, name)| *name).collect();
    Field::new(Bytes::from_static(b"Allow"), Bytes::from(names.join(", ")))
}

/// An answer that took no thread.
fn at_once(answer: Answer) -> Response {
    let text = match answer.body {
        api::Body::Json(text) => text,
        api::Body::Lines(_) | api::Body::Events(_) => String::new(),
    };
    fresh(Response::text(answer.status, JSON, Bytes::from(text)))
}

/// Marks an answer as one not to be stored: it is true now, and need not be a moment later.
fn fresh(mut response: Response) -> Response {
    let value = Bytes::from_static(b"no-store");
    response.fields.set(Known::CacheControl, value);
    response
}

/// The head of an answer from another thread.
enum Begun {
    Json(u16, String),
    Lines(u16),
    Events,
}

/// Makes the answer on a thread of its own.
async fn beside(
    (place, generation): (Place, Rc<Generation>),
    answer: impl FnOnce() -> Answer + Send + 'static,
) -> Result<Response, Failure> {
    let (begin, begun) = oneshot::channel();
    let (send, parts) = mpsc::channel(PIECES);
    let job = move || {
        let _place = place;
        let answer = answer();
        match answer.body {
            api::Body::Json(text) => {
                // A client that has left meanwhile is told nothing.
                let _ = begin.send(Begun::Json(answer.status, text));
            }
            api::Body::Lines(make) => {
                if begin.send(Begun::Lines(answer.status)).is_ok() {
                    write_lines(make, send, PATIENCE);
                }
            }
            api::Body::Events(make) => {
                if begin.send(Begun::Events).is_ok() {
                    write_lines(make, send, PATIENCE_WITH_READERS);
                }
            }
        }
    };
    let thread = std::thread::Builder::new().name("api".to_string());
    if let Err(error) = thread.spawn(job) {
        return Err(Failure::Internal(format!("no thread for the API: {error}")));
    }
    Ok(fresh(match begun.await {
        Ok(Begun::Json(204, _)) => Response::empty(204),
        Ok(Begun::Json(status, text)) => Response::text(status, JSON, Bytes::from(text)),
        Ok(Begun::Lines(status)) => {
            let kind = Bytes::from_static(b"application/x-ndjson");
            let mut response = Response::text(status, kind, Bytes::new());
            response.length = None;
            response.body = Body::Stream(Box::pin(LinesBody { parts }));
            response
        }
        Ok(Begun::Events) => events(EventsBody {
            lines: LinesBody { parts },
            member: generation.enter(),
            generation,
        }),
        Err(_) => return Err(Failure::Internal("an answer of the API panicked".into())),
    }))
}

/// A place among the requests that may run at once.
struct Place(Arc<AtomicUsize>);

impl Place {
    /// Takes a place, if one is free (INVARIANT 2).
    fn take(places: &Arc<AtomicUsize>) -> Option<Place> {
        let before = places.fetch_add(1, Ordering::AcqRel);
        // Dropped again, it is given back.
        Some(Place(Arc::clone(places))).filter(|_| before < PLACES)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// A part of a list.
enum Part {
    Bytes(Bytes),
    End,
}

fn write_lines(make: MakeLines, send: mpsc::Sender<Part>, patience: Duration) {
    let mut pieces = Pieces::new(Channel { send, patience });
    let made = make(&mut pieces).and_then(|()| pieces.end());
    if let Ok(channel) = made {
        // A client that has left meanwhile misses nothing.
        let _ = channel.put(Part::End);
    }
}

/// Pieces for the worker; waits for the client.
struct Channel {
    send: mpsc::Sender<Part>,
    patience: Duration,
}

impl Channel {
    fn put(&self, part: Part) -> io::Result<()> {
        let until = clock::instant() + self.patience;
        let mut part = part;
        // Each round but the last waits, and there is an end to waiting.
        loop {
            part = match self.send.try_send(part) {
                Ok(()) => return Ok(()),
                Err(TrySendError::Closed(_)) => return Err(io::ErrorKind::BrokenPipe.into()),
                // INVARIANT 5.
                Err(TrySendError::Full(_)) if clock::instant() >= until => {
                    return Err(io::ErrorKind::TimedOut.into());
                }
                Err(TrySendError::Full(part)) => part,
            };
            std::thread::park_timeout(LOOK);
        }
    }
}

impl Sink for Channel {
    fn send(&mut self, piece: &mut BytesMut) -> io::Result<()> {
        self.put(Part::Bytes(piece.split().freeze()))
    }

    fn is_wanted(&mut self) -> bool {
        !self.send.is_closed()
    }
}

/// The body of an answer whose lines a thread makes.
struct LinesBody {
    parts: mpsc::Receiver<Part>,
}

impl BodyStream for LinesBody {
    fn poll_next(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Piece, BodyError>>> {
        Poll::Ready(match ready!(self.parts.poll_recv(cx)) {
            Some(Part::Bytes(bytes)) => Some(Ok(Piece::Memory(bytes))),
            Some(Part::End) => None,
            // INVARIANT 4.
            None => Some(Err(BodyError::Broken("a list broke off".to_string()))),
        })
    }
}

/// An answer of events.
fn events(body: EventsBody) -> Response {
    let kind = Bytes::from_static(b"text/event-stream");
    let mut response = Response::text(200, kind, Bytes::new());
    response.length = None;
    response.body = Body::Stream(Box::pin(body));
    response.changes.are_barred = true;
    let fields = &mut response.fields;
    // A proxy before this one is not to collect them.
    fields.push(Field::new("X-Accel-Buffering".into(), "no".into()));
    response
}

/// The body of an answer of events, which ends with the generation: whoever reads asks the next.
struct EventsBody {
    lines: LinesBody,
    generation: Rc<Generation>,
    member: Member,
}

impl BodyStream for EventsBody {
    fn poll_next(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Piece, BodyError>>> {
        if self.generation.is_closing() {
            return Poll::Ready(None);
        }
        self.member.register(cx.waker());
        Pin::new(&mut self.lines).poll_next(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn list_that_nobody_takes_is_given_up() {
        let (send, mut parts) = mpsc::channel(PIECES);
        let channel = Channel {
            send,
            patience: Duration::ZERO,
        };
        for _ in 0..PIECES {
            channel.put(Part::Bytes(Bytes::new())).unwrap();
        }
        let failure = channel.put(Part::End).unwrap_err();
        assert_eq!(failure.kind(), io::ErrorKind::TimedOut);
        // Room again, for one.
        assert!(parts.try_recv().is_ok());
        channel.put(Part::End).unwrap();
        drop(parts);
        let failure = channel.put(Part::End).unwrap_err();
        assert_eq!(failure.kind(), io::ErrorKind::BrokenPipe);
    }
}
