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
//!    to somebody who could.
//! 4. A list that does not end as it should ends the connection.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use millpond_conf::{Contexts, Statement};
use tokio::sync::{mpsc, oneshot};

use super::ContentHandler;
use crate::body::{Body, BodyError, BodyStream, Piece};
use crate::control::api::{self, Answer, Ask, MakeLines, Verb};
use crate::control::lines::{Pieces, Sink};
use crate::control::plus::{self, BODY_MAX, Payload, Refusal, View};
use crate::control::{query, report, scene};
use crate::downstream::body::{self, RequestBody};
use crate::failure::Failure;
use crate::header::{Field, Known};
use crate::http1::Method;
use crate::request::Request;
use crate::response::Response;
use crate::scope::block::{Draft, Pass, Row};
use crate::scope::build::Builder;
use crate::var::request::random_id;

/// The description of everything that is answered.
pub const OPENAPI: &str = include_str!("../../../../docs/openapi.json");
/// Requests at once (arbitrary: dashboards ask for a dozen things at a time).
const PLACES: usize = 32;
/// Pieces that may wait for the client.
const PIECES: usize = 2;

/// The row.
pub const ROWS: &[Row] = &[Row {
    name: "api",
    contexts: Contexts::LOCATION,
    syntax: "[write=on | off]",
    is_block: false,
    pass: Pass::First,
    doc: "Answers with what the process knows of itself, as JSON: below the location's name are \
          NGINX Plus's API (`/9/`), our own (`/millpond/1/`) and a description of both \
          (`/openapi.json`); docs/api.md has more. With `write=on` zones can be purged and \
          verified, counters begun anew and servers of upstream groups changed by it, too. Who \
          may ask is for `allow`, `deny` and the other gates of the location to say.",
    apply: row,
}];

/// What may be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rights {
    /// Asking.
    Read,
    /// Also what changes something.
    Write,
}

fn row(builder: &mut Builder, statement: &Statement, draft: &mut Draft) {
    if !builder.has_arguments(statement, 0..=1) {
        return;
    }
    let rights = match statement.args.first() {
        None => Rights::Read,
        Some(word) => match word.text.as_str() {
            "write=on" => Rights::Write,
            "write=off" => Rights::Read,
            other => {
                let message = format!("invalid parameter \"{other}\"");
                return builder.error(word.span, message);
            }
        },
    };
    if !draft.has_plain_name {
        let message = "\"api\" must stand in a location that is found by a prefix";
        return builder.error(statement.span, message);
    }
    draft.handler = Some(ContentHandler::Api(rights));
}

/// Answers a request.
pub async fn run(req: &mut Request, rights: Rights) -> Result<Response, Failure> {
    let Some(segments) = segments(req) else {
        return Err(Failure::Status(404));
    };
    let id = req.request_id.get_or_init(random_id);
    let id = String::from_utf8_lossy(id).into_owned();
    let is_own = segments.first().is_some_and(|first| first == "millpond");
    let verb = match verb(req, rights) {
        Ok(verb) => verb,
        Err(Turned::Options) => return Ok(options(rights)),
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
    let ask = Ask {
        verb,
        segments,
        parameters: query::parameters(&req.args),
    };
    let payload = payload(req, ask.verb).await?;
    let Some(place) = Place::take(&req.down.generation.worker.shared.api_places) else {
        return Ok(at_once(Refusal::Busy.answer(&id)));
    };
    let by = format!("by the API for {}", req.down.remote.borrow().host_text());
    let view = View {
        conf: Arc::clone(&req.conf),
        shared: Arc::clone(&req.down.generation.worker.shared),
        address: req.down.local.to_string(),
        request_id: id,
        by,
    };
    let answered = beside(place, move || match is_own {
        true => {
            let scene = scene(Some(&view.conf), Some(&view.shared), &view.by);
            api::answer(&scene, &own(ask))
        }
        false => plus::answer(&view, &ask, &payload),
    });
    answered.await
}

/// What is to be changed, which is little.
async fn payload(req: &mut Request, verb: Verb) -> Result<Payload, Failure> {
    if !matches!(verb, Verb::Post | Verb::Patch) {
        return Ok(Payload::Bytes(Bytes::new()));
    }
    if req.body.len().is_some_and(|length| length > BODY_MAX) {
        return Ok(Payload::TooLarge);
    }
    body::read_all(req).await?;
    Ok(match &req.body {
        RequestBody::Memory(bytes) if bytes.len() as u64 <= BODY_MAX => {
            Payload::Bytes(bytes.clone())
        }
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

/// The same request as it is on the control socket.
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
fn verb(req: &Request, rights: Rights) -> Result<Verb, Turned> {
    match (req.method, rights) {
        (Method::Get | Method::Head, _) => Ok(Verb::Get),
        (Method::Options, _) => Err(Turned::Options),
        (Method::Post | Method::Patch | Method::Delete, Rights::Write)
            if is_from_elsewhere(req) =>
        {
            Err(Turned::Refused(Refusal::Elsewhere))
        }
        (Method::Post, Rights::Write) => Ok(Verb::Post),
        (Method::Patch, Rights::Write) => Ok(Verb::Patch),
        (Method::Delete, Rights::Write) => Ok(Verb::Delete),
        (Method::Post | Method::Put | Method::Patch | Method::Delete, Rights::Read) => {
            Err(Turned::Refused(Refusal::Disabled))
        }
        _ => Err(Turned::Refused(Refusal::Method)),
    }
}

/// Whether a browser says that the page of another site asks (Fetch Metadata).
fn is_from_elsewhere(req: &Request) -> bool {
    let said = req.head.find_all(b"sec-fetch-site").next();
    said.is_some_and(|site| site != b"same-origin" && site != b"none")
}

const JSON: Bytes = Bytes::from_static(b"application/json");

fn options(rights: Rights) -> Response {
    let methods: &'static [u8] = match rights {
        Rights::Read => b"GET, HEAD, OPTIONS",
        Rights::Write => b"GET, HEAD, POST, PATCH, DELETE, OPTIONS",
    };
    let mut response = Response::empty(204);
    let allow = Field::new(Bytes::from_static(b"Allow"), Bytes::from_static(methods));
    response.fields.push(allow);
    response
}

/// An answer that took no thread.
fn at_once(answer: Answer) -> Response {
    let text = match answer.body {
        api::Body::Json(text) => text,
        api::Body::Lines(_) => String::new(),
    };
    fresh(Response::text(answer.status, JSON, Bytes::from(text)))
}

/// What is told is true now, and need not be a moment later.
fn fresh(mut response: Response) -> Response {
    let value = Bytes::from_static(b"no-store");
    response.fields.set(Known::CacheControl, value);
    response
}

/// The head of an answer from another thread.
enum Begun {
    Json(u16, String),
    Lines(u16),
}

/// Answers on a thread of its own.
async fn beside(
    place: Place,
    answer: impl FnOnce() -> Answer + Send + 'static,
) -> Result<Response, Failure> {
    let (begin, begun) = oneshot::channel();
    let (send, parts) = mpsc::channel(PIECES);
    let job = move || {
        let _place = place;
        let answer = answer();
        match answer.body {
            api::Body::Json(text) => {
                // Who has left meanwhile is told nothing.
                let _ = begin.send(Begun::Json(answer.status, text));
            }
            api::Body::Lines(make) => {
                if begin.send(Begun::Lines(answer.status)).is_ok() {
                    write_lines(make, send);
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
        Err(_) => return Err(Failure::Internal("an answer of the API panicked".into())),
    }))
}

/// One of the requests that may be.
struct Place(Arc<AtomicUsize>);

impl Place {
    /// INVARIANT 2.
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

fn write_lines(make: MakeLines, send: mpsc::Sender<Part>) {
    let mut pieces = Pieces::new(Channel(send));
    let made = make(&mut pieces).and_then(|()| pieces.end());
    if let Ok(Channel(send)) = made {
        let _ = send.blocking_send(Part::End);
    }
}

/// Pieces for the worker; waits for the client.
struct Channel(mpsc::Sender<Part>);

impl Sink for Channel {
    fn send(&mut self, piece: &mut BytesMut) -> io::Result<()> {
        let piece = Part::Bytes(piece.split().freeze());
        let sent = self.0.blocking_send(piece);
        sent.map_err(|_| io::ErrorKind::BrokenPipe.into())
    }

    fn is_wanted(&mut self) -> bool {
        !self.0.is_closed()
    }
}

/// What a thread makes, as the body of an answer.
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
