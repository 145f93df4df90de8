//! `dashboard`: a page that shows what the server and its caches are doing, live.
//!
//! ```text
//! GET /dashboard         ─► page.rs: one page, with all that it needs
//! GET /dashboard?events  ─► server-sent events, one a second ◄── feed.rs ◄── event.rs (a thread)
//!                                └─ before them the last ten minutes ◄── history.rs
//! ```
//!
//! The handler answers for every path of its location. The page asks only for the events, at its
//! own address, and nothing of other servers; its Content-Security-Policy has the browser see
//! to that.
//!
//! Invariants:
//! 1. Without viewers no event is made; with many, each is made once.
//! 2. There are at most [`feed::VIEWERS_MAX`] viewers, and what one does not take in time is not
//!    kept for it.
//! 3. Events end when their generation closes; the page asks again, and is answered by the next.
//! 4. They end after the time of a view, too, so that who is silent gives the place back; a page
//!    that is there asks again.
//!
//! What it does not do: changing anything. Who may look is said by `allow`, `deny` and the like.

mod event;
pub(crate) mod feed;
pub(crate) mod history;
mod page;

use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use millpond_conf::value::parse_duration;
use millpond_conf::{Contexts, Statement};
use millpond_exchange::failure::Failure;
use millpond_exchange::response::{Changes, Response};
use millpond_exchange::scope::block::{Draft, Pass, Row};
use millpond_exchange::scope::build::Builder;
use millpond_exchange::settings::declared::Declared;
use millpond_exchange::worker::{Generation, Member};
use millpond_proxy::content::{ContentHandler, Explained, Handler};
use millpond_proxy::handler::only_read;
use millpond_proxy::phase::Begun;
use millpond_proxy::request::Request;
use millpond_system::body::{Body, BodyError, BodyStream, Piece};
use millpond_system::clock::{self, Instant};
use millpond_wire::header::{Field, Known};
use millpond_wire::http1::Method;

use feed::{Feed, Viewer};
use history::History;

/// The row.
pub(crate) const ROWS: &[Row] = &[Row {
    name: "dashboard",
    contexts: Contexts::LOCATION,
    syntax: "[view=time]",
    is_block: false,
    pass: Pass::First,
    doc: "Answers with a page that shows live what the server and its caches are doing: answers by \
          cache status, hit ratio, what origins are asked, zones and disks, sites, what is missing \
          most. It shows URLs and names of sites, so say who may look (`allow`, `deny`, \
          `auth_basic`). After the time of a `view` (5m) the page asks again by itself, and \
          whoever has left without a word gives the place back: there are 64.",
    apply: dashboard,
}];

/// The query of requests for events.
const EVENTS: &[u8] = b"events";
/// The begin of the events: after so many milliseconds a browser asks again.
const GREETING: &[u8] = b"retry: 1000\n\n";
/// After so many seconds a place may be free.
const RETRY_AFTER: &[u8] = b"10";

fn dashboard(builder: &mut Builder, statement: &Statement, draft: &mut Draft) {
    if !builder.has_arguments(statement, 0..=1) {
        return;
    }
    let mut view = VIEW;
    for word in &statement.args {
        let time = word.text.strip_prefix("view=").and_then(parse_duration);
        match time {
            Some(time) if !time.is_zero() => view = time,
            _ => {
                let message = format!(
                    "invalid parameter \"{}\" of \"dashboard\": it takes \"view=\" with a time",
                    word.text
                );
                builder.error(word.span, message);
            }
        }
    }
    builder.of::<Declared>().has_dashboard = true;
    draft.put(ContentHandler::own(Dashboard(view)));
}

/// The page, with the time of a view.
#[derive(Debug)]
struct Dashboard(Duration);

impl Handler for Dashboard {
    fn begin<'a>(&self, req: &'a mut Request) -> Result<Begun<'a>, Failure> {
        run(req, self.0).map(Begun::answer)
    }

    fn explain(&self) -> Explained {
        Explained::Itself("dashboard")
    }
}

/// Answers with the page or with events.
fn run(req: &mut Request, view: Duration) -> Result<Response, Failure> {
    only_read(req)?;
    let mut response = if req.args.as_ref() == EVENTS {
        events(req, view)?
    } else {
        page::answer()
    };
    let fields = &mut response.fields;
    fields.set(Known::CacheControl, Bytes::from_static(b"no-store"));
    let mut push = |name: &'static str, value: &'static str| {
        fields.push(Field::new(name.into(), value.into()));
    };
    push("X-Content-Type-Options", "nosniff");
    push("Referrer-Policy", "no-referrer");
    response.conditions.are_skipped = true;
    Ok(response)
}

fn events(req: &mut Request, view: Duration) -> Result<Response, Failure> {
    let generation = Rc::clone(req.generation());
    let body = match req.method {
        // Nobody looks.
        Method::Head => Body::Empty,
        _ => match Viewer::join(&generation.worker.shared, &req.conf) {
            Some(viewer) => Body::stream(Events::new(viewer, view, generation)),
            None => {
                let field = (Known::RetryAfter.canonical(), RETRY_AFTER);
                let field = Field::new(field.0.into(), Bytes::from_static(field.1));
                req.answer_fields.push(field);
                return Err(Failure::Status(503));
            }
        },
    };
    let mut response = Response {
        status: 200,
        body,
        changes: Changes {
            are_barred: true,
            ..Changes::default()
        },
        ..Response::default()
    };
    let fields = &mut response.fields;
    fields.set(
        Known::ContentType,
        Bytes::from_static(b"text/event-stream; charset=utf-8"),
    );
    // A proxy before this one is not to collect them.
    fields.push(Field::new("X-Accel-Buffering".into(), "no".into()));
    Ok(response)
}

/// The time of a view. (Arbitrary: what a client has not read stands in the kernel's buffers, and
/// only when those are full does `send_timeout` begin, after hours of events.)
const VIEW: Duration = Duration::from_secs(300);

/// Waits for the next event; gives the viewer back, and the event if there is one.
type Wait = Pin<Box<dyn Future<Output = (Viewer, Option<Bytes>)>>>;

async fn wait(mut viewer: Viewer) -> (Viewer, Option<Bytes>) {
    let event = viewer.next().await;
    (viewer, event)
}

/// The events of one viewer.
struct Events {
    next: Wait,
    is_greeted: bool,
    until: Instant,
    generation: Rc<Generation>,
    member: Member,
}

impl Events {
    fn new(viewer: Viewer, view: Duration, generation: Rc<Generation>) -> Self {
        Events {
            next: Box::pin(wait(viewer)),
            is_greeted: false,
            until: clock::instant() + view,
            member: generation.enter(),
            generation,
        }
    }
}

impl BodyStream for Events {
    fn poll_next(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Piece, BodyError>>> {
        // INVARIANTS 3 and 4.
        if self.generation.is_closing() || clock::instant() >= self.until {
            return Poll::Ready(None);
        }
        self.member.register(cx.waker());
        if !self.is_greeted {
            self.is_greeted = true;
            let shared = &self.generation.worker.shared;
            let now = || event::totals(&self.generation.conf, shared);
            let started_ms = shared.guests.of::<Feed>().started_ms();
            let history = shared.guests.of::<History>().event(started_ms, now);
            let greeting = Bytes::from([GREETING, &history].concat());
            return Poll::Ready(Some(Ok(Piece::Memory(greeting))));
        }
        let (viewer, event) = std::task::ready!(self.next.as_mut().poll(cx));
        self.next = Box::pin(wait(viewer));
        Poll::Ready(event.map(|event| Ok(Piece::Memory(event))))
    }
}
