//! The map of a request: phases in nginx's order, the handlers of each, and the loop that runs
//! them.
//!
//! ```text
//! PostRead
//!    ▼
//! ServerRewrite ► FindConfig ► Rewrite ► PostRewrite ► Preaccess ► Access ► Precontent ► Content
//!    ▲                ▲           ▲           │                                             │
//!    │                └───────────┼─uri changed                                             │
//!    └── internal redirect        └─ named location                               Respond ◄─┘
//! ```
//!
//! A failure, or an answer that an `error_page` may take over, turns into an internal redirect;
//! what no page handles becomes the built-in page (`handler/special.rs`).
//!
//! Invariants:
//! 1. Every way back (redirect, rewrite) spends one of `path.changes_left`; none left is a 500.
//! 2. [`answer`] always returns an answer; a connection that must close without one gets status
//!    444.
//! 3. As long as no location was looked for, that of the request is its server's own level.

use std::future::Future;
use std::pin::Pin;

use crate::failure::Failure;
use crate::failure::told::is_of_failure;
use crate::handler::{self, error_page};
use crate::otel;
use crate::request::Request;
use crate::response::{Response, Source};
use crate::rewrite::{self, Script};
use crate::route::location::LocationKind;
use crate::settings::level::{Closing, Due};
use millpond_wire::header::{Field, Known};

/// The phases, in running order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// The client's address is set right.
    PostRead,
    /// Directives of the rewrite module in the server block.
    ServerRewrite,
    /// The location is looked up.
    FindConfig,
    /// Directives of the rewrite module in the location.
    Rewrite,
    /// Back to `FindConfig` when the path changed.
    PostRewrite,
    /// Limits.
    Preaccess,
    /// The access phase: gates let the request in or refuse it.
    Access,
    /// `try_files`, `mirror`.
    Precontent,
    /// The answer is made.
    Content,
}

/// The decision of a phase handler.
pub enum Flow {
    /// Go on with the next handler.
    Next,
    /// Go on with the next phase.
    EndPhase,
    /// Go on with the first handler of a phase.
    Jump(Phase),
    /// The request is answered with this.
    Respond(Box<Response>),
}

/// The handlers; dispatched by one `match` in [`begin_handler`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Handler {
    AcmeChallenge,
    StartRealIp,
    ServerRewrite,
    FindLocation,
    Trace,
    Rewrite,
    InputHeaders,
    PostRewrite,
    RealIp,
    LimitReq,
    LimitConn,
    Access,
    TryFiles,
    Mirror,
    Content,
}

/// Handlers in running order.
const HANDLERS: &[(Phase, Handler)] = &[
    (Phase::PostRead, Handler::AcmeChallenge),
    (Phase::PostRead, Handler::StartRealIp),
    (Phase::ServerRewrite, Handler::ServerRewrite),
    (Phase::FindConfig, Handler::FindLocation),
    // nginx: a module that is loaded runs before those that are built in.
    (Phase::Rewrite, Handler::Trace),
    (Phase::Rewrite, Handler::Rewrite),
    (Phase::Rewrite, Handler::InputHeaders),
    (Phase::PostRewrite, Handler::PostRewrite),
    (Phase::Preaccess, Handler::RealIp),
    (Phase::Preaccess, Handler::LimitReq),
    (Phase::Preaccess, Handler::LimitConn),
    (Phase::Access, Handler::Access),
    (Phase::Precontent, Handler::TryFiles),
    (Phase::Precontent, Handler::Mirror),
    (Phase::Content, Handler::Content),
];

/// Notes the handlers that are due for a block, by its settings and what it has declared.
pub fn close(level: &mut Closing<'_>) {
    let places = HANDLERS.iter().enumerate();
    let due = places.filter(|(_, (_, handler))| is_due(*handler, level));
    let due = due.fold(Due::default(), |due, (place, _)| due.with(place));
    level.draft.put(due);
}

fn is_due(handler: Handler, level: &Closing<'_>) -> bool {
    let settings = &*level.settings;
    let has_script = || level.draft.get().is_some_and(|it: &Script| !it.is_empty());
    match handler {
        // INVARIANT 3: the location is that of the server.
        Handler::ServerRewrite | Handler::Rewrite => has_script(),
        // An `if` block inside of a location is entered by the location's script.
        Handler::PostRewrite => matches!(level.kind, LocationKind::Unnamed) || has_script(),
        Handler::InputHeaders => !settings.edit_headers.input.is_empty(),
        Handler::RealIp => !settings.real_ip.from.is_empty(),
        Handler::LimitReq => !settings.limit_req.limits.is_empty(),
        Handler::LimitConn => !settings.limit_conn.limits.is_empty(),
        Handler::Access => handler::access::has_gate(settings),
        Handler::Trace => otel::policy::is_due(level.draft),
        Handler::TryFiles => level.draft.has::<handler::try_files::TryFiles>(),
        Handler::Mirror => handler::mirror::has_mirrors(settings),
        // The work of these is no matter of the location alone.
        Handler::AcmeChallenge
        | Handler::StartRealIp
        | Handler::FindLocation
        | Handler::Content => true,
    }
}

/// The first handler that is due from a place on, with its place.
fn next_due(due: Due, from: usize) -> Option<(usize, Phase, Handler)> {
    let place = due.next(from);
    let (phase, handler) = HANDLERS.get(place)?;
    Some((place, *phase, *handler))
}

const _: () = assert!(HANDLERS.len() <= Due::BITS);

/// Runs a routed request to its answer, error pages included.
pub async fn answer(req: &mut Request) -> Box<Response> {
    let start = if req.conf.uses_real_ip || !req.conf.declared.orders.is_empty() {
        Phase::PostRead
    } else {
        // Nobody has replaced the client's address, and nobody will; and no authority asks.
        Phase::ServerRewrite
    };
    answer_from(req, start).await
}

/// Runs a request that this server made for another one (`subrequest.rs`) to its answer.
pub async fn answer_inside(req: &mut Request) -> Box<Response> {
    answer_from(req, Phase::ServerRewrite).await
}

/// Runs a request that this server made to a path or a named location of its own to its answer.
pub async fn answer_at(req: &mut Request, target: bytes::Bytes) -> Option<Box<Response>> {
    let flow = match target.first() {
        Some(b'/') => redirect(req, target, bytes::Bytes::new()),
        _ => redirect_named(req, &target),
    };
    match flow {
        Ok(Flow::Jump(phase)) => Some(answer_from(req, phase).await),
        // Redirects do nothing else.
        Ok(_) => None,
        Err(failure) => {
            crate::log::request_error::failure(req, &failure);
            None
        }
    }
}

/// Runs phases and error pages until there is an answer.
async fn answer_from(req: &mut Request, mut start: Phase) -> Box<Response> {
    // INVARIANT 1: every round but the last spends one of the request's redirects.
    loop {
        let next = match run(req, start).await.and_then(|it| discard_body(req, it)) {
            Ok(response) if error_page::takes_over(req, &response) => {
                keep_challenges(req, &response);
                error_page::follow_status(req, response.status)
            }
            Ok(response) => error_page::Next::Answer(response),
            Err(failure) if req.needs_no_page() => {
                note_failure(req, &failure);
                error_page::Next::Answer(Box::new(Response::empty(failure.status())))
            }
            Err(failure) => {
                note_failure(req, &failure);
                error_page::follow_status(req, failure.status())
            }
        };
        match next {
            error_page::Next::Answer(response) => return finish(req, response),
            error_page::Next::Run(phase) => start = phase,
        }
    }
}

/// Logs a failure, and leaves for the answer what its client is told of it.
fn note_failure(req: &mut Request, failure: &Failure) {
    crate::log::request_error::failure(req, failure);
    let policy = &req.location.settings.proxy_status;
    policy.tell(failure, &mut req.answer_fields);
}

/// Gives the answer the status of the error that it answers, and the fields that the phases left.
fn finish(req: &mut Request, response: Box<Response>) -> Box<Response> {
    if req.error.status == 0 && req.answer_fields.is_empty() {
        response
    } else {
        finish_with(req, response)
    }
}

fn finish_with(req: &mut Request, mut response: Box<Response>) -> Box<Response> {
    if req.error.status != 0 && response.status != req.error.status {
        response.status = req.error.status;
        response.orders.status_text = None;
    }
    let mut left = std::mem::take(&mut req.answer_fields);
    if req.error.status == 0 && response.source == Source::Own {
        // nginx: the type that an upstream gave before it redirected is that of the answer made
        // here.
        if let Some(content_type) = left.get(Known::ContentType) {
            response
                .fields
                .set(Known::ContentType, content_type.clone());
        }
    }
    // nginx: what an answer that redirects inside says of cookies and storing counts beside what
    // its target says.
    let adds = |field: &Field| {
        matches!(field.known, Known::SetCookie | Known::CacheControl) || is_of_failure(field)
    };
    left.retain(|field| adds(field) || !response.fields.contains(field.known));
    for mut field in left {
        if field.known == Known::Location {
            field.value = req.redirect_to(field.value);
        }
        response.fields.push(field);
    }
    response
}

/// nginx: who answers without the request's body throws it away first.
fn discard_body(req: &Request, response: Box<Response>) -> Result<Box<Response>, Failure> {
    if response.source == Source::Own && req.is_clients_own() {
        req.client.discard_ready()?;
    }
    Ok(response)
}

/// nginx: a page instead of an upstream's 401 keeps how the client may prove who it is.
fn keep_challenges(req: &mut Request, response: &Response) {
    if response.status == 401 {
        let challenges = response.fields.iter();
        let challenges = challenges.filter(|field| field.known == Known::WwwAuthenticate);
        req.answer_fields.extend(challenges.cloned());
    }
}

/// Answers a request that failed before it had a location (a malformed head).
pub async fn answer_refused(req: &mut Request, status: u16) -> Box<Response> {
    match error_page::follow_status(req, status) {
        error_page::Next::Answer(response) => finish(req, response),
        error_page::Next::Run(phase) => answer_from(req, phase).await,
    }
}

/// Runs the phases from the first handler of `start`.
async fn run(req: &mut Request, start: Phase) -> Result<Box<Response>, Failure> {
    let mut at = first_of(start);
    // The name of a server may be an expression.
    req.heed_expressions()?;
    // Every jump back spends one of the request's redirects, so this loop ends. A handler may have
    // changed the location.
    while let Some((place, phase, handler)) = next_due(req.location.due, at) {
        let flow = match begin_handler(req, handler) {
            Ok(Begun::Done(flow)) => Ok(flow),
            Ok(Begun::Waits(rest)) => rest.await,
            Err(failure) => Err(failure),
        };
        // Whatever came of an expression that gave up, an answer or a failure, is dropped.
        req.heed_expressions()?;
        match flow? {
            Flow::Next => at = place + 1,
            Flow::EndPhase => at = after(phase),
            Flow::Jump(phase) => at = first_of(phase),
            Flow::Respond(response) => return Ok(response),
        }
    }
    Err(Failure::Status(404))
}

fn first_of(phase: Phase) -> usize {
    HANDLERS
        .iter()
        .position(|(at, _)| *at >= phase)
        .unwrap_or(HANDLERS.len())
}

fn after(phase: Phase) -> usize {
    HANDLERS
        .iter()
        .position(|(at, _)| *at > phase)
        .unwrap_or(HANDLERS.len())
}

/// The point that a handler came to without waiting.
pub enum Begun<'a> {
    /// The handler ran to its end.
    Done(Flow),
    /// The rest, on the heap: what seldom waits is no part of every request's future.
    Waits(Pin<Box<dyn Future<Output = Result<Flow, Failure>> + 'a>>),
}

impl<'a> Begun<'a> {
    /// An answer that was not waited for.
    pub fn answer(response: Response) -> Self {
        Begun::Done(Flow::Respond(Box::new(response)))
    }

    /// A handler that waits: its time is not that of the request's head any more.
    pub fn waits<F>(req: &'a mut Request, begin: impl FnOnce(&'a mut Request) -> F) -> Self
    where
        F: Future<Output = Result<Flow, Failure>> + 'a,
    {
        req.has_waited = true;
        Begun::Waits(Box::pin(begin(req)))
    }
}

/// Runs a handler as far as it does not wait.
fn begin_handler(req: &mut Request, handler: Handler) -> Result<Begun<'_>, Failure> {
    Ok(match handler {
        Handler::LimitReq if handler::limit_req::is_due(req) => {
            Begun::waits(req, handler::limit_req::run)
        }
        // nginx: who may ask for the whole may ask for its parts.
        Handler::Access if !req.is_subrequest() && handler::access::is_due(req) => {
            Begun::waits(req, handler::access::run)
        }
        Handler::Mirror if handler::mirror::is_due(req) => Begun::waits(req, handler::mirror::run),
        Handler::LimitReq | Handler::Access | Handler::Mirror => Begun::Done(Flow::Next),
        Handler::LimitConn => Begun::Done(handler::limit_conn::run(req)?),
        Handler::Content => handler::content(req)?,
        routing => Begun::Done(run_routing(req, routing)?),
    })
}

/// Runs a handler that says where a request goes: it neither counts nor waits.
fn run_routing(req: &mut Request, handler: Handler) -> Result<Flow, Failure> {
    match handler {
        Handler::ServerRewrite => {
            let server = std::sync::Arc::clone(&req.server);
            rewrite::run(req, &server.location.script)
        }
        Handler::FindLocation => handler::find_location(req),
        Handler::Trace => {
            otel::begin(req);
            Ok(Flow::Next)
        }
        Handler::Rewrite => {
            let location = std::sync::Arc::clone(&req.location);
            if location.is_server_level() {
                return Ok(Flow::Next);
            }
            rewrite::run(req, &location.script)
        }
        Handler::InputHeaders => {
            handler::input_headers::run(req);
            Ok(Flow::Next)
        }
        Handler::PostRewrite => post_rewrite(req),
        Handler::AcmeChallenge => Ok(handler::acme_challenge::run(req)),
        Handler::StartRealIp => {
            handler::realip::start(req);
            Ok(Flow::Next)
        }
        Handler::RealIp => {
            handler::realip::replace(req);
            Ok(Flow::Next)
        }
        Handler::TryFiles => handler::try_files::run(req),
        Handler::LimitReq
        | Handler::LimitConn
        | Handler::Access
        | Handler::Mirror
        | Handler::Content => Ok(Flow::Next),
    }
}

/// Runs the phases that say where a request goes, without limits, gates and the answer itself, and
/// tells after each what has become of the request; for explanations.
pub fn route(
    req: &mut Request,
    note: &mut dyn FnMut(Phase, &Request),
) -> Result<Option<Box<Response>>, Failure> {
    let mut at = first_of(Phase::PostRead);
    // Every jump back spends one of the request's redirects, so this loop ends.
    while let Some((phase, handler)) = HANDLERS.get(at) {
        let flow = run_routing(req, *handler);
        note(*phase, req);
        req.heed_expressions()?;
        match flow? {
            Flow::Next => at += 1,
            Flow::EndPhase => at = after(*phase),
            Flow::Jump(phase) => at = first_of(phase),
            Flow::Respond(response) => return Ok(Some(response)),
        }
    }
    Ok(None)
}

/// nginx: a path that the location's rewrites changed is looked up again.
fn post_rewrite(req: &mut Request) -> Result<Flow, Failure> {
    if !std::mem::take(&mut req.path.is_changed_in_location) {
        return Ok(Flow::Next);
    }
    spend_uri_change(req)?;
    Ok(Flow::Jump(Phase::FindConfig))
}

/// Counts a redirect; the one too many is a configuration loop.
pub fn spend_uri_change(req: &mut Request) -> Result<(), Failure> {
    let Some(left) = req.path.changes_left.checked_sub(1) else {
        let uri = String::from_utf8_lossy(&req.uri).into_owned();
        return Err(Failure::Internal(format!(
            "rewrite or internal redirection cycle while processing \"{uri}\""
        )));
    };
    req.path.changes_left = left;
    Ok(())
}

/// Starts over inside the server with another path (`error_page`, index, X-Accel-Redirect).
pub fn redirect(req: &mut Request, uri: bytes::Bytes, args: bytes::Bytes) -> Result<Flow, Failure> {
    spend_uri_change(req)?;
    req.uri = uri;
    req.args = args;
    req.is_internal = true;
    req.path.is_changed = true;
    req.path.is_changed_in_location = false;
    req.path.has_left_prefix = false;
    forget_location(req);
    req.location = std::sync::Arc::clone(&req.server.location);
    Ok(Flow::Jump(Phase::ServerRewrite))
}

/// Goes on in a named location.
pub fn redirect_named(req: &mut Request, name: &[u8]) -> Result<Flow, Failure> {
    spend_uri_change(req)?;
    if req.uri.is_empty() {
        let name = String::from_utf8_lossy(name).into_owned();
        return Err(Failure::Internal(format!(
            "empty URI in redirect to named location \"{name}\""
        )));
    }
    let server = std::sync::Arc::clone(&req.server);
    let Some(location) = server.location.children.named(name) else {
        let name = String::from_utf8_lossy(name).into_owned();
        return Err(Failure::Internal(format!(
            "could not find named location \"{name}\""
        )));
    };
    req.location = std::sync::Arc::clone(location);
    handler::limit_method(req);
    req.is_internal = true;
    req.path.is_changed_in_location = false;
    forget_location(req);
    Ok(Flow::Jump(Phase::Rewrite))
}

/// Clears what the location that is left has found out, which is nothing to the next one.
fn forget_location(req: &mut Request) {
    req.path.adds_to_alias = false;
    req.pass_is_lost = false;
    // nginx: `$proxy_host` and `$proxy_port` are of the location that answers.
    req.upstream.borrow_mut().host = None;
}
