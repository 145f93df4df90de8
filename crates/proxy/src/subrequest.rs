//! `subrequest_output_buffer_size`, `log_subrequest`: requests that this server makes to itself for
//! parts of an answer.
//!
//! A subrequest is a [`Request`] like any other: it chooses its location, runs the phases, and is
//! answered by a handler, through that location's cache. It shares with the client's request the
//! connection, the fields and the values of variables; path, query, captures and upstreams are its
//! own. It is a GET, and its body is the client's as far as that was collected.
//!
//! ```text
//! client's request ─► Page ◄─┬─ subrequest ◄── subrequest …
//!                            └─ subrequest
//! ```
//!
//! The requests of one answer are a [`Page`]: it counts them, and holds what server-side includes
//! share. All of them run in the task of the connection, so that they end with it.
//!
//! Invariants:
//! 1. A subrequest is at most `MOST_NESTED` subrequests deep, and a page makes at most `MOST_MADE`.
//! 2. No more than `MOST_RUNNING` parts of a page are fetched ahead of their turn.
//! 3. Who may ask (`allow`, `auth_basic` …) was settled for the client's request and is not asked
//!    again.
//! 4. A page of many parts that need not be waited for lets other connections have their turn.
//!
//! What it does not do: it sends nothing. Who makes a subrequest reads its answer
//! (`filter/fragment.rs`).
//!
//! Sources: nginx ngx_http_subrequest, ngx_http_core_access_phase.

use std::cell::{Cell, OnceCell, RefCell};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use millpond_conf::ByteSize;
use millpond_system::clock;
use millpond_system::log::error::Level;
use millpond_wire::header::{Known, KnownSet};
use millpond_wire::http1::Method;
use millpond_wire::http1::request::RequestHead;
use tokio::task::coop::consume_budget;

use crate::downstream::body::RequestBody;
use crate::filter::ssi::Memory;
use crate::log::request_error;
use crate::phase;
use crate::provenance::Tally;
use crate::request::state::ErrorState;
use crate::request::{Captures, Request};
use crate::response::Response;
use crate::stats::Label;
use crate::trace::UpstreamTrace;

/// The depth to which subrequests may be nested; deeper is a cycle (nginx: 50).
const MOST_NESTED: u8 = 50;
/// The most subrequests of one page (nginx: the same number at one time).
const MOST_MADE: u32 = 65_535 - 1000;
/// The most parts of a page that are fetched before it is their turn (arbitrary: enough to hide
/// the time of one origin behind that of another).
const MOST_RUNNING: u32 = 16;

/// Fields of the client's that are about its answer as a whole, and not about parts of it.
const ABOUT_THE_WHOLE: KnownSet = KnownSet::of(&[
    Known::IfModifiedSince,
    Known::IfUnmodifiedSince,
    Known::IfNoneMatch,
    Known::IfMatch,
    Known::Range,
    Known::IfRange,
]);

/// The treatment of subrequests.
#[derive(Clone, Debug, millpond_conf::Family)]
#[family(http, server, location)]
pub struct SubrequestPolicy {
    /// The longest answer of a subrequest that is kept in memory, as the value of a variable.
    #[directive(name = "subrequest_output_buffer_size", default = "4k")]
    pub buffer_size: ByteSize,
    /// Writes subrequests to the access log.
    #[directive(name = "log_subrequest", default = "off")]
    pub is_logged: bool,
}

/// The kind of a request among those of one answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The client's own.
    Main,
    /// A subrequest whose answer is a part of the page.
    Shown,
    /// A subrequest whose answer is a part of the page, but something stands ready to take its
    /// place should it fail.
    Replaceable,
    /// A subrequest whose answer becomes a value.
    Kept,
    /// A subrequest whose status decides about the client's request.
    Asked,
    /// A subrequest whose answer nobody reads.
    Mirrored,
}

/// The requests of one answer.
#[derive(Default)]
pub struct Page {
    made: Cell<u32>,
    running: Cell<u32>,
    /// True while what the client gets next is worked on, and not what comes later.
    is_active: Cell<bool>,
    /// The client's head without what is about the whole answer.
    head: OnceCell<Rc<RequestHead>>,
    /// The values that server-side includes remember.
    pub memory: RefCell<Memory>,
    /// The account of the bytes that the page is made of, once it has a body.
    pub tally: RefCell<Option<Rc<Tally>>>,
}

/// A request's place in a page.
#[derive(Clone)]
pub struct Role {
    /// The page.
    pub page: Rc<Page>,
    /// The kind of the request among those of its answer.
    pub kind: Kind,
    /// The method of the page's own request when it made this one.
    method: Method,
    /// The count of levels that subrequests may still be nested.
    nested_left: u8,
    /// The form of dates that its text has chosen.
    pub time_format: Option<Bytes>,
}

impl Role {
    /// True for a subrequest whose answer is a part of the page.
    pub fn is_shown(&self) -> bool {
        matches!(self.kind, Kind::Shown | Kind::Replaceable)
    }
}

/// The address that a subrequest asks for.
#[derive(Clone, Debug)]
pub struct Target {
    /// The path, unescaped.
    pub uri: Bytes,
    /// The query.
    pub args: Bytes,
}

/// A place among the parts that run; given back when dropped.
pub struct Running(Rc<Page>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.running.set(self.0.running.get().saturating_sub(1));
    }
}

impl Page {
    /// A place for a part that begins to run: always there for what the client gets next, else
    /// as long as there are few (invariant 2).
    pub fn enter(self: &Rc<Self>) -> Option<Running> {
        let running = self.running.get();
        if running >= MOST_RUNNING && !self.is_active.get() {
            return None;
        }
        self.running.set(running + 1);
        Some(Running(Rc::clone(self)))
    }

    /// Works on what the client gets next.
    pub fn now<T>(&self, work: impl FnOnce() -> T) -> T {
        self.with_activity(true, work)
    }

    /// Works on what comes later.
    pub fn ahead<T>(&self, work: impl FnOnce() -> T) -> T {
        self.with_activity(false, work)
    }

    fn with_activity<T>(&self, is_active: bool, work: impl FnOnce() -> T) -> T {
        let before = self.is_active.replace(is_active);
        let made = work();
        self.is_active.set(before);
        made
    }
}

impl Request {
    /// The page that the request is of; a request alone becomes the main one of a new page.
    pub fn page(&mut self) -> Rc<Page> {
        if self.role.is_none() {
            // The page has one name, whoever asks for it first.
            self.request_id.get_or_init(crate::var::request::random_id);
            // Values that subrequests set are seen here, and the other way round.
            self.values.reserve(self.conf.variables.len());
        }
        let method = self.method;
        let role = self.role.get_or_insert_with(|| {
            Box::new(Role {
                page: Rc::default(),
                kind: Kind::Main,
                method,
                nested_left: MOST_NESTED + 1,
                time_format: None,
            })
        });
        Rc::clone(&role.page)
    }

    /// The method of the page's own request: what `$request_method` is in all its parts (nginx).
    pub fn page_method(&self) -> Method {
        match self.role.as_deref() {
            Some(role) if role.kind != Kind::Main => role.method,
            _ => self.method,
        }
    }

    /// Makes a subrequest; `None`, which is logged, when there may be no more.
    pub fn subrequest(&mut self, target: Target, kind: Kind) -> Option<Box<Request>> {
        let page = self.page();
        let role = self.role.as_deref()?;
        let made = page.made.get();
        let refusal = if role.nested_left == 0 {
            Some((Level::Error, "subrequests cycle"))
        } else if made >= MOST_MADE {
            Some((Level::Crit, "request reference counter overflow"))
        } else if role.kind == Kind::Kept {
            Some((Level::Error, "nested in-memory subrequest"))
        } else {
            None
        };
        if let Some((level, what)) = refusal {
            let uri = String::from_utf8_lossy(&target.uri);
            request_error::write(
                self,
                level,
                format_args!("{what} while processing \"{uri}\""),
            );
            return None;
        }
        page.made.set(made + 1);
        let nested_left = role.nested_left - 1;
        let head = match kind {
            Kind::Shown | Kind::Replaceable | Kind::Kept => page.part_head(&self.head),
            Kind::Main | Kind::Asked | Kind::Mirrored => Rc::clone(&self.head),
        };
        let role = Role {
            page,
            kind,
            method: self.page_method(),
            nested_left,
            time_format: None,
        };
        Some(Box::new(self.child(target, head, role)))
    }

    fn child(&self, target: Target, head: Rc<RequestHead>, role: Role) -> Request {
        Request {
            head,
            method: Method::Get,
            uri: target.uri,
            args: target.args,
            body: match role.kind {
                Kind::Asked => RequestBody::None,
                _ => self.body.share(),
            },
            location: Arc::clone(&self.server.location),
            is_internal: true,
            path: self.path.of_subrequest(),
            error: ErrorState::default(),
            pass_is_lost: false,
            captures: Captures::default(),
            upstream: Rc::new(RefCell::new(UpstreamTrace::default())),
            started: clock::instant(),
            slice_range: None,
            role: Some(Box::new(role)),
            ..self.fork()
        }
    }
}

impl Page {
    fn part_head(&self, head: &Rc<RequestHead>) -> Rc<RequestHead> {
        let shared = self.head.get_or_init(|| {
            let is_about_the_whole = |known: Known| ABOUT_THE_WHOLE.contains(known);
            if head.fields().any(|field| is_about_the_whole(field.known)) {
                Rc::new(head.without(ABOUT_THE_WHOLE))
            } else {
                Rc::clone(head)
            }
        });
        Rc::clone(shared)
    }
}

/// A subrequest on its way to its answer.
pub(crate) type Answering = Pin<Box<dyn Future<Output = (Box<Request>, Box<Response>)>>>;

/// Runs a subrequest to its answer, which no filter has seen yet.
pub(crate) fn answer(mut req: Box<Request>) -> Answering {
    Box::pin(async move {
        // INVARIANT 4.
        consume_budget().await;
        let response = phase::answer_inside(&mut req).await;
        (req, response)
    })
}

/// Notes the end of a subrequest: in the counters and, where that is wanted, in the access log.
pub(crate) fn finish(req: &mut Request) {
    let status = req.upstream.borrow().cache_status;
    if status.is_some() {
        // Its bytes are part of the page's, which are counted for its site.
        let worker = req.worker();
        let cache = &worker.shared.cache;
        cache.record(worker.place.place, Label::of(status), req.sent.body_bytes);
    }
    if req.location.settings.subrequest.is_logged {
        crate::log::access::write(req);
    }
}
