//! One exchange with a client, whatever wire it is on: from a request's head to the end of its
//! answer.
//!
//! What is usual waits for nothing: the answer comes from memory, and the socket takes it whole.
//! Then the exchange is one walk through plain functions. What has to be waited for goes on in a
//! future of its own, on the heap, so that an idle connection keeps no room for it.

use std::rc::Rc;
use std::sync::Arc;

use super::encryption;
use super::http1;
use super::respond::{self, Begun};
use super::stream;
use crate::handler::post_action;
use crate::log::request_error;
use crate::phase;
use crate::request::{self, Place, Request};
use crate::route::{name, target};
use crate::upstream::tunnel::Tunnels;
use crate::visit::{self, Visit};
use crate::websocket;
use millpond_exchange::client::Came;
use millpond_exchange::client::Client;
use millpond_exchange::client::body::RequestBody;
use millpond_exchange::client::send::SendError;
use millpond_exchange::client::wire::Wire;
use millpond_exchange::failure::{CLIENT_LEFT, CLOSE_WITHOUT_ANSWER, ClientGone};
use millpond_exchange::response::Response;
use millpond_exchange::settings::listen::Listen;
use millpond_system::log::error::Level;
use millpond_wire::http1::request::{self as request_head, Connect};

/// The status that a client gets for a WebSocket where there is none (RFC 9220 §3).
const NO_WEBSOCKET: u16 = 501;

/// The way in which an exchange ended, as far as the connection is concerned.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// The answer was sent whole.
    Answered,
    /// The answer to a head that was refused is sent.
    Refused,
    /// The connection is of no more use: it failed, or was a tunnel.
    Spent,
}

/// The reason why a head is not answered as it asks.
pub(crate) struct Refusal {
    /// The status to answer with.
    status: u16,
    /// The reason, for the log.
    why: String,
    /// True when a target that is none is worse.
    yields_to_target: bool,
}

impl From<request_head::Refusal> for Refusal {
    fn from(why: request_head::Refusal) -> Self {
        Refusal {
            status: why.status(),
            why: why.to_string(),
            // nginx: the server that the request is for refuses it.
            yields_to_target: why == request_head::Refusal::TraceNotAllowed,
        }
    }
}

impl From<(u16, String)> for Refusal {
    fn from((status, why): (u16, String)) -> Self {
        Refusal {
            status,
            why,
            yields_to_target: false,
        }
    }
}

/// An exchange that has ended; the request is there until it is dropped.
pub struct Served {
    place: Option<Place>,
    /// The end.
    pub(crate) end: End,
}

impl Served {
    /// The request that was answered.
    pub(crate) fn request(&self) -> Option<&Request> {
        self.place.as_deref().and_then(Option::as_ref)
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.place.take().into_iter().for_each(request::give_back);
    }
}

/// A request that is answered. One that is dropped meanwhile, because its worker ends, is logged
/// all the same, as of a client that has left.
struct Running(Option<Place>);

impl Running {
    fn begin(&mut self, client: Rc<Client>, listen: &Listen, came: Came) -> &mut Request {
        let place = self.0.get_or_insert_with(request::take_place);
        begin(place, client, listen, came)
    }

    fn end(mut self, end: End) -> Served {
        Served {
            place: self.0.take(),
            end,
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let Some(mut place) = self.0.take() else {
            return;
        };
        if let Some(req) = place.as_mut() {
            req.sent.status = CLIENT_LEFT;
            crate::otel::server::end(req);
            crate::log::access::write(req);
        }
        request::give_back(place);
    }
}

/// Answers a request whose head is in order.
pub async fn serve(client: Rc<Client>, listen: &Listen, came: Came, body: RequestBody) -> Served {
    let mut running = Running(Some(request::take_place()));
    let req = running.begin(client, listen, came);
    req.body = body;
    let checked = find_server(req, listen).and_then(|()| check_server(req, listen));
    let end = match checked {
        Ok(()) => answer(req).await,
        Err(refusal) => Box::pin(answer_refused(req, listen, refusal.into())).await,
    };
    running.end(end)
}

/// Answers a CONNECT, if the server that it is for has tunnels: others are not known for a proxy by
/// one.
pub(crate) async fn connect(client: Rc<Client>, listen: &Listen, came: Came) -> Served {
    let mut running = Running(Some(request::take_place()));
    let req = running.begin(client, listen, came);
    let found = find_server(req, listen).and_then(|()| check_server(req, listen));
    let checked = found.map_err(Refusal::from);
    let end = match checked.and_then(|()| check_connect(req).map_err(Refusal::from)) {
        Ok(()) => {
            req.client.end_connection();
            answer(req).await
        }
        Err(refusal) => answer_refused(req, listen, refusal).await,
    };
    running.end(end)
}

/// Refuses a CONNECT where there are no tunnels, or with a body.
fn check_connect(req: &Request) -> Result<(), request_head::Refusal> {
    if req.server.parts.get::<Tunnels>().is_none() {
        return Err(request_head::Refusal::ConnectNotAllowed);
    }
    req.head.check(Connect::Allow).map(drop)
}

/// Gives a request that names no host to the server that its handshake named, as nginx does.
fn take_first_server(req: &mut Request, listen: &Listen) {
    let server = Arc::clone(req.client.connection.first_server(listen));
    req.location = Arc::clone(&server.location);
    req.server = server;
}

/// Refuses a request whose server is none for what its connection is.
fn check_server(req: &mut Request, listen: &Listen) -> Result<(), (u16, String)> {
    if listen.is_encrypted && req.host.is_empty() {
        take_first_server(req, listen);
    }
    if let Wire::Stream(_) = req.client.wire
        && !listen.may_have_streams(&req.server)
    {
        let why = "client attempted to request the server name for which the negotiated protocol is \
                   disabled";
        return Err((421, String::from(why)));
    }
    if listen.is_encrypted {
        return encryption::check(req);
    }
    Ok(())
}

/// Answers a request whose head is not in order, or could not be understood.
pub(crate) async fn refuse(
    client: Rc<Client>,
    listen: &Listen,
    came: Came,
    refusal: Refusal,
) -> Served {
    let mut running = Running(Some(request::take_place()));
    let req = running.begin(client, listen, came);
    let end = answer_refused(req, listen, refusal).await;
    running.end(end)
}

async fn answer(req: &mut Request) -> End {
    let visit = Visit::begin(req);
    let mut response = phase::answer(req).await;
    if is_misread(req, &response) {
        let why = format_args!("no WebSocket was made of a CONNECT");
        request_error::write(req, Level::Info, why);
        response = Box::pin(phase::answer_refused(req, NO_WEBSOCKET)).await;
    }
    let sent = match respond::begin(req, &mut response) {
        Begun::Ended(sent) => sent,
        Begun::Given(sent, timeout) => {
            respond::await_sent(req, &mut response, (sent, timeout)).await
        }
        Begun::Waits(rest) => Box::pin(respond::go_on(req, &mut response, rest)).await,
    };
    let end = match (&sent, response.delivery.tunnel.take()) {
        (Err(_), _) => End::Spent,
        (Ok(()), None) => End::Answered,
        (Ok(()), Some(tunnel)) => {
            match req.client.wire {
                Wire::Stream(_) => Box::pin(stream::tunnel::run(tunnel, req)).await,
                Wire::None | Wire::Http1(_) => Box::pin(http1::tunnel::run(tunnel, req)).await,
            }
            End::Spent
        }
    };
    conclude(req, &sent, visit);
    post_action::run(req);
    end
}

/// True if a client would take an answer for a WebSocket that is none (RFC 8441 §5).
fn is_misread(req: &Request, response: &Response) -> bool {
    let is_success = matches!(response.status, 200..=299);
    is_success && response.delivery.tunnel.is_none() && websocket::is_asked(&req.head)
}

/// A request's target, as far as it could be taken apart.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Target {
    Good,
    None,
}

/// Answers a request with a refusal.
async fn answer_refused(req: &mut Request, listen: &Listen, refusal: Refusal) -> End {
    // A target that is none is refused by the default server.
    let found = find_server(req, listen);
    if req.client.http1().is_some() {
        let target = match &found {
            Ok(()) => Target::Good,
            Err(_) => Target::None,
        };
        forget_unread(req, target);
    }
    let refusal = match found {
        Err(worse) if refusal.yields_to_target => worse.into(),
        _ => refusal,
    };
    let visit = Visit::begin(req);
    crate::log::request_error::refused(req, &refusal.why);
    req.client.end_connection();
    // The bytes behind a refused head cannot be told apart from a body.
    req.client.forget_body();
    let mut response = phase::answer_refused(req, refusal.status).await;
    let sent = send(req, &mut response).await;
    conclude(req, &sent, visit);
    match sent {
        Ok(()) => End::Refused,
        Err(_) => End::Spent,
    }
}

/// nginx: a line that cannot be read counts for nothing, and a target that is none is refused
/// before any field is read.
fn forget_unread(req: &mut Request, target: Target) {
    let len = match target {
        _ if req.head.target().is_empty() => 0,
        Target::Good => return,
        Target::None => {
            req.head = Rc::new(req.head.line_alone());
            req.head.head_len()
        }
    };
    req.client.request_bytes.set(len as u64);
}

async fn send(req: &mut Request, response: &mut Response) -> Result<(), SendError> {
    match respond::begin(req, response) {
        Begun::Ended(sent) => sent,
        Begun::Given(sent, timeout) => respond::await_sent(req, response, (sent, timeout)).await,
        Begun::Waits(rest) => respond::go_on(req, response, rest).await,
    }
}

/// The request of a head, for the default server as yet.
fn begin<'a>(
    place: &'a mut Place,
    client: Rc<Client>,
    listen: &Listen,
    came: Came,
) -> &'a mut Request {
    let conf = Rc::clone(&client.connection.generation.conf);
    let server = Arc::clone(client.connection.first_server(listen));
    place.insert(Request::new(conf, client, came, server))
}

/// Logs and counts a request whose answer was sent, or could not be.
fn conclude(req: &mut Request, sent: &Result<(), SendError>, visit: Option<Visit>) {
    crate::otel::server::end(req);
    crate::log::access::write(req);
    visit::ended(req, visit);
    if let Err(error) = sent
        && is_for_reset(req, error)
    {
        reset(req);
    }
}

/// Logs a request whose head did not come whole. nginx: 408 when it took too long, else 400;
/// neither is sent.
pub(super) fn record_broken(client: Rc<Client>, listen: &Listen, came: Came, gone: &ClientGone) {
    let mut place = request::take_place();
    let req = begin(&mut place, client, listen, came);
    req.sent.status = match gone {
        ClientGone::TimedOut | ClientGone::Displaced => 408,
        ClientGone::Closed | ClientGone::Io(_) => 400,
    };
    let visit = Visit::begin(req);
    crate::log::request_error::refused(req, &gone.to_string());
    crate::log::access::write(req);
    visit::ended(req, visit);
    if let ClientGone::TimedOut = gone {
        reset(req);
    }
    request::give_back(place);
}

/// Has the connection closed with a reset, if that is wanted.
fn reset(req: &Request) {
    if req.location.settings.keep_alive.reset_timed_out {
        req.client.reset();
    }
}

/// True if an answer was not sent because of the time that its client took, or on purpose.
fn is_for_reset(req: &Request, error: &SendError) -> bool {
    match error {
        SendError::Client(ClientGone::TimedOut) => true,
        _ => matches!(req.sent.status, CLOSE_WITHOUT_ANSWER | 408) && req.sent.head_bytes == 0,
    }
}

/// Takes the target apart and finds the server that it is for.
pub fn find_server(req: &mut Request, listen: &Listen) -> Result<(), (u16, String)> {
    target::apply(req)?;
    let server = name::find(&listen.names, req);
    // The request began with the default server.
    if !Arc::ptr_eq(server, &req.server) {
        req.server = Arc::clone(server);
        req.location = Arc::clone(&server.location);
    }
    Ok(())
}
