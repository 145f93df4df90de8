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
//! The requests of one answer are a [`Page`]: it counts them, and keeps what they share. All of
//! them run in the task of the connection, so that they end with it.
//!
//! Invariants:
//! 1. A subrequest is at most `MOST_NESTED` subrequests deep, and a page makes at most `MOST_MADE`.
//! 2. Who may ask (`allow`, `auth_basic` …) was settled for the client's request and is not asked
//!    again.
//! 3. A page of many parts that need not be waited for lets other connections have their turn.
//!
//! What it does not do: it sends nothing. Who makes a subrequest reads its answer
//! (`filter/fragment.rs`).
//!
//! Sources: nginx ngx_http_subrequest, ngx_http_core_access_phase.

use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use millpond_conf::ByteSize;
use millpond_system::clock;
use millpond_system::log::error::Level;
use millpond_wire::http1::Method;
use millpond_wire::http1::request::RequestHead;
use tokio::task::coop::consume_budget;

use crate::log::request_error;
use crate::phase;
use crate::request::Request;
use crate::request::page::{Kind, Page, Role};
use crate::request::state::ErrorState;
use millpond_exchange::client::body::RequestBody;
use millpond_exchange::expression::Captures;
use millpond_exchange::response::Response;
use millpond_exchange::scope::parts::{Part, Place};
use millpond_exchange::stats::Label;
use millpond_exchange::trace::UpstreamTrace;

/// The depth to which subrequests may be nested; deeper is a cycle (nginx: 50).
const MOST_NESTED: u8 = 50;
/// The most subrequests of one page (nginx: the same number at one time).
const MOST_MADE: u32 = 65_535 - 1000;
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

impl Part for SubrequestPolicy {
    const PLACE: Place = Place::Subrequests;
}

/// The address that a subrequest asks for.
#[derive(Clone, Debug)]
pub struct Target {
    /// The path, unescaped.
    pub uri: Bytes,
    /// The query.
    pub args: Bytes,
}

impl Request {
    /// The page that the request is of; a request alone becomes the main one of a new page.
    pub fn page(&mut self) -> Rc<Page> {
        if self.role.is_none() {
            // The page has one name, whoever asks for it first.
            self.request_id.get_or_init(crate::var::request::random_id);
            // Values that subrequests set are seen here, and the other way round.
            self.values.reserve(self.conf.variable_count);
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

/// A subrequest on its way to its answer.
pub(crate) type Answering = Pin<Box<dyn Future<Output = (Box<Request>, Box<Response>)>>>;

/// Runs a subrequest to its answer, which no filter has seen yet.
pub(crate) fn answer(mut req: Box<Request>) -> Answering {
    Box::pin(async move {
        // INVARIANT 3.
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
    if req.location.settings.of::<SubrequestPolicy>().is_logged {
        crate::log::access::write(req);
    }
}
