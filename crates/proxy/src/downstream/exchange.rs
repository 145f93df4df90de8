//! One exchange with a client: from a request's head to the end of its answer, and what becomes of
//! the connection then.
//!
//! What is usual waits for nothing: the answer comes from memory, and the socket takes it whole.
//! Then the exchange is one walk through plain functions. What has to be waited for goes on in a
//! future of its own, on the heap, so that an idle connection keeps no room for it.
//!
//! Invariants:
//! 1. A connection is reused only when the whole body of its request was consumed and its answer
//!    was sent whole.
//! 2. A refused head ends the connection after its answer.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use super::arrival::Idle;
use super::behind::Patience;
use super::body::{self, Incoming, RequestBody};
use super::connection::{KeepAlivePolicy, LingeringClose};
use super::writer::SendError;
use super::{ClientGone, Downstream};
use crate::clock::{self, Instant};
use crate::handler::post_action;
use crate::http1::Version;
use crate::http1::request::{Connect, Framing, Refused, RequestHead};
use crate::phase;
use crate::request::{self, Place, Request};
use crate::respond::{self, Begun, CLOSE_WITHOUT_ANSWER};
use crate::response::Response;
use crate::route::listen::Listen;
use crate::route::target;
use crate::stats::status_zone::{self, Visit};

/// Whether a connection goes on after an answer.
pub(super) enum After {
    /// With the next request, if one comes.
    NextRequest(Idle),
    /// It ends.
    Close(Patience),
    /// It ends when the client has had time to read the answer.
    Linger {
        /// At most so long.
        time: Duration,
        /// And so long without a byte.
        timeout: Duration,
    },
}

/// How an exchange ended, as far as the connection is concerned.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    /// The answer was sent whole.
    Answered,
    /// So was the answer to a head that was refused.
    Refused,
    /// The connection is of no more use: it failed, or was a tunnel.
    Spent,
}

/// Why a head is not answered as it asks: a status, and the reason for the log.
type Refusal = (u16, String);

/// Answers one request.
pub(super) async fn exchange(
    down: &Rc<Downstream>,
    listen: &Listen,
    head: (Rc<RequestHead>, Instant),
) -> After {
    let mut place = request::take_place();
    let after = 'served: {
        let req = begin(&mut place, down, listen, head);
        if let Err(refusal) = open(req, listen) {
            break 'served Box::pin(answer_refused(req, listen, refusal)).await;
        }
        let visit = Visit::begin(req);
        let mut response = phase::answer(req).await;
        let sent = match respond::begin(req, &mut response) {
            Begun::Ended(sent) => sent,
            Begun::Waits(rest) => Box::pin(respond::go_on(req, &mut response, rest)).await,
        };
        let end = match (&sent, response.tunnel.take()) {
            (Err(_), _) => End::Spent,
            (Ok(()), None) => End::Answered,
            (Ok(()), Some(tunnel)) => {
                Box::pin(tunnel.run(req)).await;
                End::Spent
            }
        };
        conclude(req, &sent, visit);
        post_action::run(req);
        match after_answer(req, end) {
            Some(after) => after,
            None => Box::pin(after_discard(req)).await,
        }
    };
    request::give_back(place);
    after
}

/// Answers a head that could not be understood.
pub(super) async fn refuse(down: &Rc<Downstream>, listen: &Listen, refused: Refused) -> After {
    let mut place = request::take_place();
    let req = begin(&mut place, down, listen, (refused.head, clock::instant()));
    let refusal = (refused.why.status(), refused.why.to_string());
    let after = answer_refused(req, listen, refusal).await;
    request::give_back(place);
    after
}

/// Answers what cannot be answered as it asks.
async fn answer_refused(req: &mut Request, listen: &Listen, (status, why): Refusal) -> After {
    // What is not to be read is told by the status already.
    let _ = find_server(req, listen);
    let visit = Visit::begin(req);
    crate::log::error::refused(req, &why);
    req.keep_alive = false;
    // What follows a refused head cannot be told apart from a body.
    *req.down.incoming.borrow_mut() = Incoming::None;
    let mut response = phase::answer_refused(req, status).await;
    let sent = send(req, &mut response).await;
    conclude(req, &sent, visit);
    let end = match sent {
        Ok(()) => End::Refused,
        Err(_) => End::Spent,
    };
    after_answer(req, end).unwrap_or(After::Close(Patience::Brief))
}

async fn send(req: &mut Request, response: &mut Response) -> Result<(), SendError> {
    match respond::begin(req, response) {
        Begun::Ended(sent) => sent,
        Begun::Waits(rest) => respond::go_on(req, response, rest).await,
    }
}

/// The request of a head that was there at that time, for the default server as yet.
fn begin<'a>(
    place: &'a mut Place,
    down: &Rc<Downstream>,
    listen: &Listen,
    head: (Rc<RequestHead>, Instant),
) -> &'a mut Request {
    down.requests.set(down.requests.get() + 1);
    let conf = Rc::clone(&down.generation.conf);
    let server = Arc::clone(listen.names.default_server());
    place.insert(Request::new(conf, Rc::clone(down), head, server))
}

/// Logs and counts a request whose answer was sent, or could not be.
fn conclude(req: &mut Request, sent: &Result<(), SendError>, visit: Option<Visit>) {
    crate::log::access::write(req);
    status_zone::ended(req, visit);
    if let Err(error) = sent
        && is_for_reset(req, error)
    {
        reset(req);
    }
}

/// Logs a request whose head did not come whole. nginx: 408 when it took too long, else 400;
/// neither is sent.
pub(super) fn record_broken(
    down: &Rc<Downstream>,
    listen: &Listen,
    head: Rc<RequestHead>,
    gone: &ClientGone,
) {
    let mut place = request::take_place();
    let req = begin(&mut place, down, listen, (head, clock::instant()));
    req.sent.status = match gone {
        ClientGone::TimedOut => 408,
        ClientGone::Closed | ClientGone::Io(_) => 400,
    };
    let visit = Visit::begin(req);
    crate::log::error::refused(req, &gone.to_string());
    crate::log::access::write(req);
    status_zone::ended(req, visit);
    if let ClientGone::TimedOut = gone {
        reset(req);
    }
    request::give_back(place);
}

/// Has the connection closed with a reset, if that is wanted.
fn reset(req: &Request) {
    if req.location.settings.keep_alive.reset_timed_out {
        req.down.socket.reset_on_close();
    }
}

/// Whether an answer was not sent because of the time that its client took, or on purpose.
fn is_for_reset(req: &Request, error: &SendError) -> bool {
    match error {
        SendError::Client(ClientGone::TimedOut) => true,
        _ => matches!(req.sent.status, CLOSE_WITHOUT_ANSWER | 408) && req.sent.head_bytes == 0,
    }
}

/// Sets up framing and target of a parsed head.
fn open(req: &mut Request, listen: &Listen) -> Result<(), Refusal> {
    let checked = req.head.check(Connect::Refuse);
    if checked == Err(crate::http1::request::Refusal::TraceNotAllowed) {
        // nginx: the server that the request is for refuses it, and a target that is none is worse.
        find_server(req, listen)?;
    }
    let framing = checked.map_err(|why| (why.status(), why.to_string()))?;
    let down = &req.down;
    down.wants_continue.set(req.head.expects_continue());
    *down.incoming.borrow_mut() = Incoming::begin(framing);
    req.body = match framing {
        Framing::None => RequestBody::None,
        Framing::Length(length) => RequestBody::Unread {
            length: Some(length),
        },
        _ => RequestBody::Unread { length: None },
    };
    req.keep_alive = req.head.keep_alive_wanted();
    find_server(req, listen)
}

/// Takes the target apart and finds the server that it is for.
pub(crate) fn find_server(req: &mut Request, listen: &Listen) -> Result<(), Refusal> {
    target::apply(req)?;
    let server = listen.names.find(req);
    // The request began with the default server.
    if !Arc::ptr_eq(server, &req.server) {
        req.server = Arc::clone(server);
        req.location = Arc::clone(&server.location);
    }
    Ok(())
}

/// Decides how the connection goes on; `None` if that depends on the rest of the request's body.
fn after_answer(req: &Request, end: End) -> Option<After> {
    let policy = &req.location.settings.keep_alive;
    match end {
        End::Spent => return Some(After::Close(Patience::Brief)),
        End::Refused => return Some(linger(req)),
        End::Answered => {}
    }
    if !req.down.incoming.borrow().is_done() {
        return match req.keep_alive {
            true => None,
            false => Some(linger(req)),
        };
    }
    if req.keep_alive {
        return Some(After::NextRequest(policy.idle(req.sent.ended)));
    }
    Some(match policy.lingering_close {
        LingeringClose::Always => linger(req),
        // What a close leaves unread resets the connection, and the answer on its way may be lost
        // with it.
        LingeringClose::On if has_unread(&req.down) => linger(req),
        _ => After::Close(patience(req)),
    })
}

/// Reads what is left of the request of a connection that is to be kept.
async fn after_discard(req: &Request) -> After {
    let policy = &req.location.settings.keep_alive;
    match discard(req, policy).await {
        // What was waited for after the answer is no part of the idle time.
        Ok(()) => After::NextRequest(policy.idle(None)),
        Err(_) => linger(req),
    }
}

fn linger(req: &Request) -> After {
    let policy = &req.location.settings.keep_alive;
    match policy.lingering_close {
        LingeringClose::Off => After::Close(patience(req)),
        _ => After::Linger {
            time: policy.lingering_time,
            timeout: policy.lingering_timeout,
        },
    }
}

/// A body without length or chunks is over when the connection is.
fn patience(req: &Request) -> Patience {
    match req.head.version() == Version::Http11 && req.location.settings.chunked.enabled {
        true => Patience::Long,
        false => Patience::Brief,
    }
}

/// True when the client has sent more than was read.
fn has_unread(down: &Downstream) -> bool {
    !down.inbox.borrow().is_empty() || down.socket.has_unread()
}

/// Reads a body that no handler wanted, within the limits of lingering.
async fn discard(req: &Request, policy: &KeepAlivePolicy) -> Result<(), crate::failure::Failure> {
    let end = clock::instant() + policy.lingering_time;
    while !req.down.incoming.borrow().is_done() {
        if clock::instant() >= end {
            return Err(ClientGone::TimedOut.into());
        }
        body::next_chunk(&req.down, policy.lingering_timeout).await?;
    }
    Ok(())
}
