//! A session from its accept to its line in the log: the phases, in nginx's order.
//!
//! Invariants:
//! 1. A session that ends in any way, also because its task is dropped, is logged once: `Logged`
//!    is a guard.

use std::ops::{Deref, DerefMut};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use millpond_exchange::client::carrier::Carrier;
use millpond_exchange::client::connection::Connection as Accepted;
use millpond_exchange::settings::Server;
use millpond_exchange::settings::listen::{Binding, Carries, Listen};
use millpond_exchange::stats::connections::Counted;
use millpond_exchange::worker::Member;
use millpond_proxy::downstream::accepted;
use millpond_proxy::downstream::{encryption, proxy_protocol};
use millpond_proxy::handler::{access, limit_conn, realip};
use millpond_proxy::log::{access as access_log, request_error};
use millpond_proxy::request::Request;
use millpond_proxy::request::state::Listener;
use millpond_proxy::route::name;
use millpond_proxy::tls::settings::SslPolicy;
use millpond_proxy::upstream::connect::Connection;
use millpond_proxy::upstream::group::Group;
use millpond_system::address::Address;
use millpond_system::clock;
use millpond_system::log::error::Level;
use millpond_system::socket::delay_packets;
use millpond_system::tls_socket::TlsSocket;
use millpond_system::transport::Transport;

use crate::content::{self, Content};
use crate::header;
use crate::peer::{self, Connected, Lease};
use crate::preread::{self, Look};
use crate::relay::{End, Flow, Relay, Rules};
#[cfg(feature = "script")]
use crate::script::filter::Filter;
#[cfg(feature = "script")]
use crate::script::phase::{self, Word};
use crate::settings::{MOST_BUFFER, SessionPolicy, SessionSettings};
use crate::status::{BAD_REQUEST, Ended, OK, OUR_FAULT};

/// The time that a client has to take the text of `return` (nginx's number).
const RETURN_TIMEOUT: Duration = Duration::from_secs(5);
/// The most listeners that a session goes through (nginx's number).
const MOST_PASSES: u8 = 10;

/// The outcome of a session's phases.
enum Outcome {
    /// The session has ended.
    Ended(Ended),
    /// The session goes on by the listener of an address.
    Passed(Address),
}

/// A session that is logged when this is dropped.
pub(crate) struct Logged {
    req: Request,
    /// True for a session that another listener goes on with: it has no line.
    is_handed_over: bool,
}

impl Logged {
    /// A session that begins at a listener, under a configuration.
    pub(crate) fn begin(
        connection: &Rc<Accepted>,
        (listen, listener): (&Listen, Listener),
    ) -> Option<Logged> {
        let conf = connection.generation.stream.clone()?;
        let server = Arc::clone(listen.names.default_server());
        let mut req = Request::without_head(conf, Rc::clone(connection), server);
        let kind = if listener.is_datagrams { "udp " } else { "" };
        let peer = &connection.peer;
        let message = format_args!("{kind}client {peer} connected to {}", listener.address);
        request_error::write_bare(&req, Level::Info, message);
        req.notes.put(listener);
        Some(Logged {
            req,
            is_handed_over: false,
        })
    }
}

impl Deref for Logged {
    type Target = Request;

    fn deref(&self) -> &Request {
        &self.req
    }
}

impl DerefMut for Logged {
    fn deref_mut(&mut self) -> &mut Request {
        &mut self.req
    }
}

impl Drop for Logged {
    fn drop(&mut self) {
        if self.is_handed_over {
            return;
        }
        // A session that is dropped has taken its time.
        if self.req.sent.status == 0 {
            self.req.sent.status = OK;
        }
        access_log::write(&mut self.req);
        #[cfg(feature = "script")]
        millpond_proxy::script::session::exit(&mut self.req);
    }
}

/// A connection on its way through the phases.
struct Session {
    carrier: Carrier,
    listen: Arc<Listen>,
    member: Member,
}

/// Serves a connection to its end.
pub async fn serve(carrier: Carrier, binding: Arc<Binding>, member: Member) {
    serve_passed(carrier, binding, (member, 0)).await;
}

/// Serves a connection that was handed over so many times.
async fn serve_passed(carrier: Carrier, binding: Arc<Binding>, (member, passes): (Member, u8)) {
    let worker = Rc::clone(&carrier.connection.generation.worker);
    let active = Counted::new(&worker.shared.connections.shard(worker.index).active);
    let Some(listen) = binding.listen_for(&carrier.connection.local).cloned() else {
        return;
    };
    let listener = Listener {
        address: binding.bound.clone(),
        is_datagrams: false,
    };
    let Some(mut req) = Logged::begin(&carrier.connection, (&listen, listener)) else {
        return;
    };
    let session = Session {
        carrier,
        listen,
        member,
    };
    match Box::pin(session.run(&mut req)).await {
        Outcome::Ended(status) => req.sent.status = status,
        Outcome::Passed(address) => match find_listener(&req, &address, passes) {
            Err(status) => req.sent.status = status,
            Ok(binding) => {
                let client = req.client.remote.borrow().clone();
                req.is_handed_over = true;
                drop(req);
                drop(active);
                session.hand_over(client, (address, binding), passes).await;
            }
        },
    }
}

/// The socket of this process that sessions for an address come by; the error is a status.
fn find_listener(req: &Request, to: &Address, passes: u8) -> Result<Arc<Binding>, Ended> {
    if passes >= MOST_PASSES {
        request_error::write(req, Level::Error, format_args!("stream pass cycle"));
        return Err(OUR_FAULT);
    }
    let takes = |binding: &Arc<Binding>| match (&binding.bound, to) {
        (Address::Inet(bound), Address::Inet(to)) if bound.ip().is_unspecified() => {
            bound.is_ipv4() == to.is_ipv4() && bound.port() == to.port()
        }
        (bound, to) => bound == to,
    };
    let sockets = req.generation().conf.sockets();
    sockets.into_iter().find(takes).ok_or_else(|| {
        request_error::write(
            req,
            Level::Error,
            format_args!("port not found for \"{to}\""),
        );
        OK
    })
}

impl Session {
    /// Runs the phases.
    async fn run(&self, req: &mut Request) -> Outcome {
        let settings = match self.admit(req).await {
            Err(status) => return Outcome::Ended(status),
            Ok(settings) => settings,
        };
        match &settings.content {
            None => Outcome::Ended(OUR_FAULT),
            Some(Content::Pass(to)) => match content::passed_to(req, to) {
                Ok(address) => Outcome::Passed(address),
                Err(failure) => {
                    request_error::failure(req, &failure);
                    Outcome::Ended(OUR_FAULT)
                }
            },
            Some(content) => Outcome::Ended(self.content(req, &settings, content).await),
        }
    }

    /// The phases before the content.
    async fn admit(&self, req: &mut Request) -> Result<Arc<SessionSettings>, Ended> {
        let settings = settings(&req.server)?;
        if self.listen.has_proxy_protocol {
            let timeout = settings.session.header_timeout;
            let is_read = proxy_protocol::read(&self.carrier, timeout, &self.member);
            if !Box::pin(is_read).await {
                return Err(BAD_REQUEST);
            }
        }
        judge(req, &settings).await?;
        if self.listen.is_encrypted {
            Box::pin(self.handshake(req, &settings.session)).await?;
        }
        if !self.is_read_by_script(req).await? && settings.session.preread {
            Box::pin(self.preread(req, &settings.session)).await?;
        }
        self::settings(&req.server)
    }

    /// Makes the connection an encrypted one; its server is that of the name that was asked for.
    async fn handshake(&self, req: &mut Request, policy: &SessionPolicy) -> Result<(), Ended> {
        let within = (&self.member, policy.handshake_timeout);
        let is_done = encryption::begin(&self.carrier, &self.listen, within).await;
        let found = self.carrier.connection.tls.get().filter(|_| is_done);
        let agreed = found.ok_or(OUR_FAULT)?;
        // An expression among the names sets its captures.
        req.host = Bytes::from(agreed.server_name.to_ascii_lowercase());
        name::find(&self.listen.names, req);
        choose_server(req, Arc::clone(&agreed.server));
        let demand = req.server.parts.of::<SslPolicy>().demand();
        if let Some(refusal) = demand.and_then(|demand| agreed.verdict.refusal(demand)) {
            let message = format_args!("{refusal} while SSL handshaking");
            request_error::write(req, Level::Info, message);
            return Err(OUR_FAULT);
        }
        Ok(())
    }

    /// Asks `js_preread`, where there is one; true if it leaves out the other looks at first bytes.
    #[cfg(feature = "script")]
    async fn is_read_by_script(&self, req: &mut Request) -> Result<bool, Ended> {
        let settings = settings(&req.server)?;
        let Some((function, _)) = &settings.functions.preread else {
            return Ok(false);
        };
        let source = phase::Source {
            carrier: &self.carrier,
            member: &self.member,
            policy: &settings.session,
        };
        let word = Box::pin(phase::ask(req, &function.0, Some(&source))).await?;
        Ok(word == Word::Allowed)
    }

    #[cfg(not(feature = "script"))]
    async fn is_read_by_script(&self, _req: &mut Request) -> Result<bool, Ended> {
        Ok(false)
    }

    /// Reads the client's first message, and lets its name choose the server.
    async fn preread(&self, req: &mut Request, policy: &SessionPolicy) -> Result<(), Ended> {
        let deadline = clock::instant() + policy.preread_timeout;
        let most = policy.preread_size.0.min(MOST_BUFFER) as usize;
        let hello = loop {
            let (look, count) = {
                let inbox = self.carrier.inbox.borrow();
                let len = inbox.len().min(most);
                let first = inbox.get(..len).unwrap_or_default();
                (preread::look(first), inbox.len())
            };
            req.client.request_bytes.set(count as u64);
            match look {
                Look::Other => return Ok(()),
                Look::Hello(hello) => break hello,
                Look::Partial => {}
            }
            if count >= most {
                let message = format_args!("preread buffer full while prereading client data");
                request_error::write(req, Level::Error, message);
                return Err(BAD_REQUEST);
            }
            let left = deadline.saturating_duration_since(clock::instant());
            let more = proxy_protocol::more(&self.carrier, &self.member, most - count);
            match self.carrier.timer.guard_for(left, more).await {
                Ok(Ok(1..)) => {}
                // nginx: a client that says nothing, or leaves, has had its session.
                _ => return Err(OK),
            }
        };
        req.host = Bytes::from(hello.server_name.trim_end_matches('.').to_owned());
        req.notes.put(hello);
        let server = Arc::clone(name::find(&self.listen.names, req));
        choose_server(req, server);
        Ok(())
    }

    /// Lets another listener go on with the session.
    async fn hand_over(self, client: Address, (to, binding): (Address, Arc<Binding>), passes: u8) {
        let Session {
            mut carrier,
            member,
            ..
        } = self;
        carrier.connection = Rc::new(carrier.connection.passed(client, to));
        let generation = &carrier.connection.generation;
        generation.rename(member.slot(), Rc::downgrade(&carrier.connection));
        if binding.is_encrypted() {
            carrier.transport = match carrier.transport {
                Transport::Plain(socket) => Transport::Tls(Box::new(TlsSocket::new(socket))),
                encrypted => encrypted,
            };
        }
        match binding.carries {
            Carries::Requests => Box::pin(accepted::serve(carrier, binding, member)).await,
            Carries::Sessions => {
                Box::pin(serve_passed(carrier, binding, (member, passes + 1))).await;
            }
        }
    }

    /// Passes the session on, or answers it.
    async fn content(
        &self,
        req: &mut Request,
        settings: &SessionSettings,
        content: &Content,
    ) -> Ended {
        if !settings.session.nodelay {
            delay_packets(self.carrier.transport.as_fd());
        }
        if let Content::Return(text) = content {
            let text = req.eval(text);
            return match returned(req, settings, text) {
                Ok(text) => self.send(req, text).await,
                Err(status) => status,
            };
        }
        match Box::pin(content.group(req)).await {
            Ok(Some(group)) => self.pass(req, settings, &group).await,
            Ok(None) => OUR_FAULT,
            Err(failure) => {
                request_error::failure(req, &failure);
                OUR_FAULT
            }
        }
    }

    /// Sends a text; its client has a while to take it.
    async fn send(&self, req: &mut Request, text: BytesMut) -> Ended {
        let mut flow = Flow::new(0, text);
        let sent = std::future::poll_fn(|cx| flow.poll_sent(cx, &self.carrier.transport));
        let outcome = self.carrier.timer.guard_for(RETURN_TIMEOUT, sent).await;
        req.sent.body_bytes = flow.written;
        match outcome {
            Ok(true) => OK,
            Ok(false) => OUR_FAULT,
            Err(_) => {
                let message = "connection timed out (110: Connection timed out)";
                request_error::write(req, Level::Info, format_args!("{message}"));
                OK
            }
        }
    }

    /// Passes the session to a peer of a group.
    async fn pass(
        &self,
        req: &mut Request,
        settings: &SessionSettings,
        group: &Arc<Group>,
    ) -> Ended {
        let policy = &settings.proxy;
        let rates = [&policy.upload_rate, &policy.download_rate];
        let [upload, download] = rates.map(|rate| req.eval_size(rate.as_ref()));
        let Connected {
            connection,
            mut lease,
        } = match Box::pin(peer::connect(req, group, settings)).await {
            Ok(connected) => connected,
            Err(status) => return status,
        };
        log_connected(req, &connection);
        if !settings.session.nodelay {
            delay_packets(connection.socket.as_fd());
        }
        let mut forth = Flow::new(upload, self.carrier.inbox.take());
        // A filter sees what was read before, and not the header.
        let unseen = settings.is_filtered().then(|| forth.take_waiting());
        // An encrypted connection has it before its handshake.
        if !policy.encrypts
            && let Some(header) = header::of(req, policy.header)
        {
            forth.put_first(header);
        }
        let rules = Rules {
            began: req.started,
            timeout: policy.timeout,
            buffer_size: policy.buffer_size.0.clamp(1, MOST_BUFFER) as usize,
            half_close: policy.half_close,
        };
        let ends = (&self.carrier.transport, &connection.socket);
        let flows = (forth, Flow::new(download, BytesMut::new()));
        let mut relay = Relay::new(ends, flows, rules);
        let note = |req: &mut Request, relay: &Relay<'_>| {
            if relay.back.read > 0 {
                lease.first_byte();
            }
            note_bytes(req, &lease, relay);
        };
        match relayed(req, settings, (&mut relay, unseen), note).await {
            Ok(end) => log_end(req, end),
            Err(status) => return status,
        }
        OK
    }
}

/// Relays to the end, through `js_filter` where there is one; `note` is told at each look how far
/// the relay has come.
#[cfg_attr(not(feature = "script"), allow(unused_variables))]
async fn relayed(
    req: &mut Request,
    settings: &SessionSettings,
    (relay, unseen): (&mut Relay<'_>, Option<BytesMut>),
    mut note: impl FnMut(&mut Request, &Relay<'_>),
) -> Result<End, Ended> {
    #[cfg(feature = "script")]
    if let Some(function) = settings.filter() {
        let mut filter = Filter::begin(req, function)?;
        let first = unseen.unwrap_or_default().freeze();
        return Box::pin(filter.run(req, (relay, first), note)).await;
    }
    let relayed = std::future::poll_fn(|cx| {
        let polled = relay.poll(cx);
        note(req, relay);
        polled
    });
    Ok(relayed.await)
}

/// The text of `return` as the client gets it: `js_filter` may change it.
#[cfg_attr(not(feature = "script"), allow(unused_variables))]
fn returned(req: &mut Request, settings: &SessionSettings, text: Bytes) -> Result<BytesMut, Ended> {
    #[cfg(feature = "script")]
    if let Some(function) = settings.filter() {
        return Filter::begin(req, function)?.text(req, text);
    }
    Ok(BytesMut::from(&text[..]))
}

/// Runs the phases that need nothing of what the client sends.
pub(crate) async fn judge(req: &mut Request, settings: &SessionSettings) -> Result<(), Ended> {
    realip::start_session(req);
    limit_conn::run(req).map_err(|refused| refused.status())?;
    for assignment in &settings.assignments {
        assignment.run(req);
    }
    #[cfg(feature = "script")]
    if phase::access(req).await? == Word::Allowed {
        return Ok(());
    }
    let access = Box::pin(access::run(req)).await;
    access.map_err(|refused| refused.status())?;
    Ok(())
}

/// Goes on with another server of the address.
fn choose_server(req: &mut Request, server: Arc<Server>) {
    req.location = Arc::clone(&server.location);
    req.server = server;
}

/// The settings of a session's server.
pub(crate) fn settings(server: &Server) -> Result<Arc<SessionSettings>, Ended> {
    SessionSettings::of(server).ok_or(OUR_FAULT)
}

/// Notes what went through, for variables and lines of logs.
fn note_bytes(req: &mut Request, lease: &Lease, relay: &Relay<'_>) {
    req.client.request_bytes.set(relay.forth.read);
    req.sent.body_bytes = relay.back.written;
    lease.note(|attempt| {
        attempt.bytes_received = relay.back.read;
        attempt.bytes_sent = relay.forth.written;
    });
}

/// Says from where a peer was connected.
fn log_connected(req: &Request, connection: &Connection) {
    let local = connection.local_address();
    let peer = &connection.peer.name;
    let message = format_args!("proxy {local} connected to {peer}");
    request_error::write_bare(req, Level::Info, message);
}

/// Says how a session with a peer ended.
fn log_end(req: &Request, end: End) {
    let who = match end {
        End::Client => "client",
        End::Peer => "upstream",
        End::TimedOut => {
            let what = "connection timed out (110: Connection timed out)";
            let message = format_args!("{what} while proxying connection");
            return request_error::write(req, Level::Info, message);
        }
    };
    let (received, sent) = (req.client.request_bytes.get(), req.sent.body_bytes);
    let trace = req.upstream.borrow();
    let attempt = trace.attempts.last();
    let (from_peer, to_peer) = attempt.map_or((0, 0), |it| (it.bytes_received, it.bytes_sent));
    let message = format_args!(
        "{who} disconnected, bytes from/to client:{received}/{sent}, \
         bytes from/to upstream:{from_peer}/{to_peer}"
    );
    request_error::write_bare(req, Level::Info, message);
}
