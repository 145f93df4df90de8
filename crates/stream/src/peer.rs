//! `proxy_next_upstream` of `stream`: the connection of a session to a peer of its group.
//!
//! ```text
//! pick ─► connect ─► connected: its place is held until the session ends ([`Lease`])
//!   ▲        │
//!   └────────┴ failed: counted, logged; another peer, while one is left and time, else 502
//! ```

use std::cell::RefCell;
use std::io::IoSlice;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Poll, ready};
use std::time::Duration;

use millpond_conf::OffOr;
use millpond_exchange::failure::{Failure, UpstreamFailure, UpstreamKind};
use millpond_exchange::protocol::Protocol;
use millpond_exchange::trace::{Attempt, UpstreamTrace};
use millpond_proxy::log::request_error;
use millpond_proxy::request::Request;
use millpond_proxy::upstream::balance::Selection;
use millpond_proxy::upstream::connect::{ConnectError, Connection, Maker, Source, open_packets};
use millpond_proxy::upstream::encryption::{Encryption, encrypt};
use millpond_proxy::upstream::group::Group;
use millpond_proxy::upstream::next::Tries;
use millpond_proxy::upstream::peer::Peer;
use millpond_proxy::upstream::settings::UpstreamSettings;
use millpond_system::clock::{self, Instant};
use millpond_system::datagram::DatagramSocket;
use millpond_system::log::error::Level;
use millpond_system::quota::Seat;
use millpond_system::socket::More;
use millpond_system::transport::Transport;

use crate::header;
use crate::settings::SessionSettings;
use crate::status::OUR_FAULT;

/// The status of a session that no peer could be reached for.
const NO_PEER: u16 = 502;

/// A connection to a peer, for the rest of a session.
pub(crate) struct Connected {
    /// The connection.
    pub(crate) connection: Box<Connection>,
    /// The place among the peer's connections.
    pub(crate) lease: Lease,
}

/// A socket for packets to and from a peer, for the rest of a session.
pub(crate) struct Opened {
    /// The socket.
    pub(crate) socket: DatagramSocket,
    /// The place among the peer's sessions.
    pub(crate) lease: Lease,
    /// The place among the worker's connections.
    _seat: Seat,
}

/// A session's place among a peer's connections, given back with the time that it took.
pub(crate) struct Lease {
    group: Arc<Group>,
    peer: Arc<Peer>,
    trace: Rc<RefCell<UpstreamTrace>>,
    /// The place of the try in the trace.
    index: usize,
    started: Instant,
    /// True once there is a connection.
    is_connected: bool,
    /// The time to the first byte, once there was one.
    first_byte: Option<Duration>,
}

impl Lease {
    /// Begins the trace of a try with a peer that was chosen.
    fn begin(req: &Request, group: &Arc<Group>, peer: Arc<Peer>, started: Instant) -> Lease {
        let mut trace = req.upstream.borrow_mut();
        trace.attempts.push(Attempt {
            peer: Arc::clone(&peer.name),
            started_ms: clock::wall_us(started).div_euclid(1000),
            ..Attempt::default()
        });
        let index = trace.attempts.len() - 1;
        Lease {
            group: Arc::clone(group),
            peer,
            trace: Rc::clone(&req.upstream),
            index,
            started,
            is_connected: false,
            first_byte: None,
        }
    }

    /// Changes what is known of the try.
    pub(crate) fn note(&self, change: impl FnOnce(&mut Attempt)) {
        // Nobody who holds the trace calls this.
        if let Ok(mut trace) = self.trace.try_borrow_mut()
            && let Some(attempt) = trace.attempts.get_mut(self.index)
        {
            change(attempt);
        }
    }

    /// Notes that the peer is connected.
    fn connected(&mut self) {
        self.is_connected = true;
        let took = clock::instant() - self.started;
        self.note(|attempt| attempt.connect = Some(took));
        // nginx: a peer that was tried after a rest has passed when it is connected.
        self.group.answered(&self.peer);
        self.group.connected(&self.peer, took);
    }

    /// The peer.
    pub(crate) fn peer(&self) -> &Peer {
        &self.peer
    }

    /// Counts that the peer failed after all.
    pub(crate) fn failed(&self, req: &Request) {
        note_failed(req, &self.group, &self.peer);
    }

    /// Notes that the peer has sent its first byte.
    pub(crate) fn first_byte(&mut self) {
        if self.first_byte.is_none() {
            let took = clock::instant() - self.started;
            self.first_byte = Some(took);
            self.note(|attempt| attempt.header = Some(took));
            self.group.head_came(&self.peer, took);
        }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let took = clock::instant() - self.started;
        if self.is_connected && self.first_byte.is_none() {
            // It waits for no byte any more.
            self.group.head_came(&self.peer, took);
        }
        let first = self.first_byte.unwrap_or(took);
        let times = self.is_connected.then_some((first, took));
        self.group.ended(&self.peer, times, took);
        self.note(|attempt| attempt.response = Some(took));
    }
}

/// Connects a session to a peer of its group; the error is the session's status.
pub(crate) async fn connect(
    req: &mut Request,
    group: &Arc<Group>,
    settings: &SessionSettings,
) -> Result<Connected, u16> {
    let encryption = encryption(req, group, settings).map_err(|failure| {
        request_error::failure(req, &failure);
        OUR_FAULT
    })?;
    let source = source(req);
    let make = async |req: &Request, peer: Arc<Peer>| {
        let maker = Maker {
            worker: Rc::clone(req.worker()),
            group: Arc::clone(group),
            peer,
            location: Arc::clone(&req.location),
            protocol: Protocol::Http,
            source,
            encryption: None,
            is_http2: false,
        };
        let connection = Box::pin(maker.make()).await?;
        match &encryption {
            None => Ok(connection),
            Some(by) => Box::pin(encrypted(req, connection, (by, settings))).await,
        }
    };
    let (connection, lease) = try_peers(req, (group, settings), make).await?;
    Ok(Connected { connection, lease })
}

/// Opens a socket for the packets of a session to a peer of its group; the error is the session's
/// status.
pub(crate) async fn open(
    req: &mut Request,
    group: &Arc<Group>,
    settings: &SessionSettings,
) -> Result<Opened, u16> {
    let source = source(req);
    let make = async |req: &Request, peer: Arc<Peer>| open_packets(req.worker(), &peer, source);
    let ((socket, seat), lease) = try_peers(req, (group, settings), make).await?;
    Ok(Opened {
        socket,
        lease,
        _seat: seat,
    })
}

/// Reaches a peer by a function, another one while one fails; the error is the session's status.
async fn try_peers<Reached>(
    req: &mut Request,
    (group, settings): (&Arc<Group>, &SessionSettings),
    make: impl AsyncFn(&Request, Arc<Peer>) -> Result<Reached, ConnectError>,
) -> Result<(Reached, Lease), u16> {
    let location = Arc::clone(&req.location);
    let mut selection = Selection::new(group, group.wish(req));
    let mut tries = Tries::new(
        &location.settings.of::<UpstreamSettings>().proxy.next,
        selection.tries(),
    );
    loop {
        let started = clock::instant();
        let Some(peer) = selection.pick(started) else {
            no_live(req, group);
            return Err(NO_PEER);
        };
        tries.spend();
        let mut lease = Lease::begin(req, group, Arc::clone(&peer), started);
        let failure = match make(req, Arc::clone(&peer)).await {
            Ok(reached) => {
                lease.connected();
                return Ok((reached, lease));
            }
            Err(error) => UpstreamFailure::from(error),
        };
        request_error::write(req, failure.level, format_args!("{}", failure.message));
        // nginx: the next peer would get no socket either.
        if failure.kind == UpstreamKind::NoSocket {
            return Err(OUR_FAULT);
        }
        note_failed(req, group, &peer);
        if !(settings.proxy.next && tries.is_left()) {
            return Err(NO_PEER);
        }
    }
}

/// The encryption of connections to the peers of a group, if they are encrypted.
fn encryption(
    req: &mut Request,
    group: &Group,
    settings: &SessionSettings,
) -> Result<Option<Encryption>, Failure> {
    let Some(origin) = &settings.origin else {
        return Ok(None);
    };
    let by_lines = Encryption::of(req, (origin, Protocol::Http), &group.name)?;
    let offered = settings.proxy.protocols.iter().flatten();
    let protocols = offered.map(|name| req.eval(name));
    Ok(Some(Encryption {
        // RFC 7301 §3.1: from 1 to 255 bytes.
        of_session: protocols
            .filter(|name| (1..=255).contains(&name.len()))
            .collect(),
        ..by_lines
    }))
}

/// Encrypts a connection, behind the header of the PROXY protocol.
async fn encrypted(
    req: &Request,
    connection: Box<Connection>,
    (by, settings): (&Encryption, &SessionSettings),
) -> Result<Box<Connection>, ConnectError> {
    let timeout = req
        .location
        .settings
        .of::<UpstreamSettings>()
        .proxy
        .connect
        .timeout;
    let mut connection = *connection;
    let Transport::Plain(socket) = connection.socket else {
        return Ok(Box::new(connection));
    };
    if let Some(header) = header::of(req, settings.proxy.header) {
        let mut unsent = &header[..];
        let sent = std::future::poll_fn(|cx| {
            while !unsent.is_empty() {
                let slices = [IoSlice::new(unsent)];
                let count = ready!(socket.poll_send(cx, &slices, More::Nothing))?;
                unsent = unsent.get(count..).unwrap_or_default();
            }
            Poll::Ready(Ok(()))
        });
        match connection.timer.guard_for(timeout, sent).await {
            Err(_) => return Err(ConnectError::TimedOut),
            Ok(outcome) => outcome.map_err(ConnectError::Late)?,
        }
    }
    let within = (&connection.timer, timeout);
    connection.socket = encrypt(socket, &connection.peer, by, within).await?;
    Ok(Box::new(connection))
}

/// The local address of connections to peers, if one is asked for.
fn source(req: &mut Request) -> Option<Source> {
    let location = Arc::clone(&req.location);
    let OffOr::On(bind) = &location
        .settings
        .of::<UpstreamSettings>()
        .proxy
        .connect
        .bind
    else {
        return None;
    };
    let value = req.eval(&bind.address);
    let source = bind.source(&value);
    if source.is_none() && !value.is_empty() {
        let value = String::from_utf8_lossy(&value);
        let message = format_args!("invalid local address \"{value}\"");
        request_error::write(req, Level::Error, message);
    }
    source
}

/// Notes a try that finds no live peer.
fn no_live(req: &Request, group: &Group) {
    req.upstream.borrow_mut().attempts.push(Attempt {
        peer: Arc::from(group.name.as_str()),
        response: Some(Duration::ZERO),
        ..Attempt::default()
    });
    let message = format_args!("no live upstreams while connecting to upstream");
    request_error::write(req, Level::Error, message);
}

/// Counts a failure of a peer, and says when it rests.
fn note_failed(req: &Request, group: &Group, peer: &Peer) {
    if group.failed(peer) {
        let message =
            format_args!("upstream server temporarily disabled while connecting to upstream");
        request_error::write(req, Level::Warn, message);
    }
}
