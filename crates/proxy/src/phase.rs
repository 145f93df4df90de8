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
//! what no page handles becomes the built-in page. The handlers are handed in from above
//! (`steps.rs`).
//!
//! Invariants:
//! 1. Every way back (redirect, rewrite) spends one of `path.changes_left`; none left is a 500.
//! 2. [`answer`] always returns an answer; a connection that must close without one gets status
//!    444.
//! 3. As long as no location was looked for, that of the request is its server's own level.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use crate::request::Request;
use millpond_exchange::failure::Failure;
use millpond_exchange::failure::told::is_of_failure;
use millpond_exchange::response::{Response, Source};
use millpond_exchange::scope::parts::{Part, Place};
use millpond_exchange::settings::level::{Closing, Due};
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

/// The record of a handler.
pub struct Step {
    /// The phase that it belongs to.
    pub phase: Phase,
    /// True if it may have something to do for requests of a block, by the block's settings and
    /// what it has declared.
    pub is_due: fn(&Closing<'_>) -> bool,
    /// The handler.
    pub run: Run,
}

/// A handler.
pub enum Run {
    /// One that only changes the request; explanations run it, too.
    Changes(fn(&mut Request)),
    /// One that says where a request goes: it neither counts nor waits, so explanations run it.
    Routes(fn(&mut Request) -> Result<Flow, Failure>),
    /// One that may count, wait or answer.
    Acts(for<'a> fn(&'a mut Request) -> Result<Begun<'a>, Failure>),
}

/// The handlers in running order, and the pages of errors; handed in from above, as a part of the
/// configuration.
pub struct Steps {
    /// The handlers, by their phases; at most [`Due::BITS`].
    pub handlers: &'static [Step],
    /// True when an error page takes the place of an answer that an upstream gave.
    pub takes_over: fn(&Request, &Response) -> bool,
    /// Goes from an error to its page, or to the built-in one.
    pub follow_status: fn(&mut Request, u16) -> Next,
}

impl Part for &'static Steps {
    const PLACE: Place = Place::Steps;
}

/// The way on from an error.
pub enum Next {
    /// The request is answered with this.
    Answer(Box<Response>),
    /// The page is made from this phase on.
    Run(Phase),
}

impl Steps {
    /// Those of the configuration of a request.
    fn of(req: &Request) -> &'static Steps {
        req.conf.parts.of::<&'static Steps>()
    }

    /// The first handler that is due from a place on, with its place.
    fn next_due(&self, due: Due, from: usize) -> Option<(usize, &'static Step)> {
        let place = due.next(from);
        Some((place, self.handlers.get(place)?))
    }

    fn first_of(&self, phase: Phase) -> usize {
        let mut handlers = self.handlers.iter();
        let place = handlers.position(|step| step.phase >= phase);
        place.unwrap_or(self.handlers.len())
    }

    fn after(&self, phase: Phase) -> usize {
        let mut handlers = self.handlers.iter();
        let place = handlers.position(|step| step.phase > phase);
        place.unwrap_or(self.handlers.len())
    }
}

impl Run {
    /// Runs the handler as far as it does not wait.
    fn begin<'a>(&self, req: &'a mut Request) -> Result<Begun<'a>, Failure> {
        match self {
            Run::Changes(run) => {
                run(req);
                Ok(Begun::Done(Flow::Next))
            }
            Run::Routes(run) => run(req).map(Begun::Done),
            Run::Acts(run) => run(req),
        }
    }
}

/// Notes the handlers that are due for a block, by its settings and what it has declared.
pub fn close(level: &mut Closing<'_>, steps: &Steps) {
    let places = steps.handlers.iter().enumerate();
    let due = places.filter(|(_, step)| (step.is_due)(level));
    let due = due.fold(Due::default(), |due, (place, _)| due.with(place));
    level.draft.put(due);
}

/// Runs a routed request to its answer, error pages included.
pub async fn answer(req: &mut Request) -> Box<Response> {
    let start = if req.conf.uses_real_ip || req.conf.has_orders {
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
        Some(b'/') => redirect(req, target, None),
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
    let steps = Steps::of(req);
    // INVARIANT 1: every round but the last spends one of the request's redirects.
    loop {
        let next = match run(req, (steps, start))
            .await
            .and_then(|it| discard_body(req, it))
        {
            Ok(response) if (steps.takes_over)(req, &response) => {
                keep_challenges(req, &response);
                (steps.follow_status)(req, response.status)
            }
            Ok(response) => Next::Answer(response),
            Err(failure) if req.needs_no_page() => {
                note_failure(req, &failure);
                Next::Answer(Box::new(Response::empty(failure.status())))
            }
            Err(failure) => {
                note_failure(req, &failure);
                (steps.follow_status)(req, failure.status())
            }
        };
        match next {
            Next::Answer(response) => return finish(req, response),
            Next::Run(phase) => start = phase,
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
    match (Steps::of(req).follow_status)(req, status) {
        Next::Answer(response) => finish(req, response),
        Next::Run(phase) => answer_from(req, phase).await,
    }
}

/// Runs the phases from the first handler of `start`.
async fn run(
    req: &mut Request,
    (steps, start): (&'static Steps, Phase),
) -> Result<Box<Response>, Failure> {
    let mut at = steps.first_of(start);
    // The name of a server may be an expression.
    req.heed_expressions()?;
    // Every jump back spends one of the request's redirects, so this loop ends. A handler may have
    // changed the location.
    while let Some((place, step)) = steps.next_due(req.location.due, at) {
        let flow = match step.run.begin(req) {
            Ok(Begun::Done(flow)) => Ok(flow),
            Ok(Begun::Waits(rest)) => rest.await,
            Err(failure) => Err(failure),
        };
        // Whatever came of an expression that gave up, an answer or a failure, is dropped.
        req.heed_expressions()?;
        match flow? {
            Flow::Next => at = place + 1,
            Flow::EndPhase => at = steps.after(step.phase),
            Flow::Jump(phase) => at = steps.first_of(phase),
            Flow::Respond(response) => return Ok(response),
        }
    }
    Err(Failure::Status(404))
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

/// Runs the phases that say where a request goes, without limits, gates and the answer itself, and
/// tells after each what has become of the request; for explanations.
pub fn route(
    req: &mut Request,
    note: &mut dyn FnMut(Phase, &Request),
) -> Result<Option<Box<Response>>, Failure> {
    let steps = Steps::of(req);
    let mut at = steps.first_of(Phase::PostRead);
    // Every jump back spends one of the request's redirects, so this loop ends.
    while let Some(step) = steps.handlers.get(at) {
        let flow = match step.run {
            Run::Changes(run) => {
                run(req);
                Ok(Flow::Next)
            }
            Run::Routes(run) => run(req),
            Run::Acts(_) => Ok(Flow::Next),
        };
        note(step.phase, req);
        req.heed_expressions()?;
        match flow? {
            Flow::Next => at += 1,
            Flow::EndPhase => at = steps.after(step.phase),
            Flow::Jump(phase) => at = steps.first_of(phase),
            Flow::Respond(response) => return Ok(Some(response)),
        }
    }
    Ok(None)
}

/// nginx: a path that the location's rewrites changed is looked up again.
pub(crate) fn post_rewrite(req: &mut Request) -> Result<Flow, Failure> {
    if !std::mem::take(&mut req.path.is_changed_in_location) {
        return Ok(Flow::Next);
    }
    spend_uri_change(req)?;
    close_after_answer(req);
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

/// Starts over inside the server with another path (`error_page`, index, X-Accel-Redirect), and
/// with the query that was written after it.
pub fn redirect(
    req: &mut Request,
    uri: bytes::Bytes,
    query: Option<bytes::Bytes>,
) -> Result<Flow, Failure> {
    spend_uri_change(req)?;
    req.uri = uri;
    req.set_query(query);
    req.is_internal = true;
    req.path.is_changed = true;
    req.path.is_changed_in_location = false;
    req.path.has_left_prefix = false;
    leave_location(req);
    req.location = Arc::clone(&req.server.location);
    close_after_answer(req);
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
    let server = Arc::clone(&req.server);
    let Some(location) = server.location.children.named(name) else {
        let name = String::from_utf8_lossy(name).into_owned();
        return Err(Failure::Internal(format!(
            "could not find named location \"{name}\""
        )));
    };
    let location = Arc::clone(location);
    leave_location(req);
    req.location = location;
    limit_method(req);
    req.is_internal = true;
    req.path.is_changed_in_location = false;
    Ok(Flow::Jump(Phase::Rewrite))
}

/// Goes over to the settings of `limit_except` when the method is not among the allowed ones.
pub fn limit_method(req: &mut Request) {
    if let Some(limit) = &req.location.limit_except
        && limit.limits(req.method)
    {
        req.location = Arc::clone(&limit.location);
    }
}

/// Clears what the location that is left has found out, which is nothing to the next one.
fn leave_location(req: &mut Request) {
    close_after_answer(req);
    req.path.adds_to_alias = false;
    req.pass_is_lost = false;
    // nginx: `$proxy_host` and `$proxy_port` are of the location that answers.
    req.upstream.borrow_mut().host = None;
}

/// nginx: one location on a request's way that keeps no connection has it closed, whichever makes
/// the answer.
fn close_after_answer(req: &Request) {
    let http1 = req.client.http1().filter(|_| !req.is_subrequest());
    if let Some(http1) = http1
        && !req
            .location
            .settings
            .keep_alive
            .keeps(http1.connection.requests.get())
    {
        http1.keep_alive.set(false);
    }
}
