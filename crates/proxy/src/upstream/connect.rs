//! `proxy_connect_timeout`, `proxy_bind`, `proxy_socket_keepalive`: connections to peers.
//!
//! Opens TCP and Unix sockets without blocking, with the local address that was asked for, within
//! the time limit.
//!
//! 1. A connection that is not established in time is closed; nothing waits behind it.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use millpond_conf::value::{ArgError, Args, FromArgs};
use millpond_conf::{OffOr, Template};
use socket2::{Domain, Protocol, SockAddr, Socket as RawSocket, Type};

use super::group::Group;
use super::peer::Peer;
use crate::clock::{self, Instant};
use crate::downstream::address::Address;
use crate::downstream::timer::Timer;
use crate::scope::Location;
use crate::socket::Socket;

/// The local address of connections to peers.
#[derive(Clone, Debug)]
pub struct BindAddress(pub Template);

impl FromArgs for BindAddress {
    const SYNTAX: &'static str = "address";

    fn from_args(args: &mut Args<'_>) -> Result<Self, ArgError> {
        if args
            .words
            .get(1)
            .is_some_and(|word| word.text == "transparent")
        {
            return Err(ArgError::other(
                "the \"transparent\" parameter is not supported",
            ));
        }
        let text = args.one()?.text.clone();
        let template: Template = args.word(0)?;
        if template.as_literal().is_some() && parse_local(&text).is_none() {
            let message = format!("invalid address \"{text}\"");
            return Err(ArgError::value(0, message));
        }
        Ok(BindAddress(template))
    }
}

/// An address, or an address and a port, as `proxy_bind` has them.
pub fn parse_local(text: &str) -> Option<SocketAddr> {
    let bare = text.parse().ok().map(|ip| SocketAddr::new(ip, 0));
    bare.or_else(|| text.parse().ok())
}

/// How peers are connected to.
#[derive(Clone, Debug, millpond_conf::Family)]
#[family(http, server, location, protocols)]
pub struct ConnectPolicy {
    /// The time within which a connection to a peer must be made.
    #[directive(name = "proxy_connect_timeout", default = "60s")]
    pub timeout: Duration,
    /// The local address that connections to peers come from; `off` undoes an outer one.
    #[directive(name = "proxy_bind", default = "off")]
    pub bind: OffOr<BindAddress>,
    /// Whether the kernel probes idle connections to peers.
    #[directive(name = "proxy_socket_keepalive", default = "off")]
    pub keepalive: bool,
}

/// A connection to a peer. It is passed on in a box: an exchange hands it through many places.
pub struct Connection {
    /// The socket.
    pub socket: Socket,
    /// Bytes received and not consumed.
    pub inbox: BytesMut,
    /// Its timer.
    pub timer: Timer,
    /// The group that its peer was chosen from.
    pub group: Arc<Group>,
    /// The peer.
    pub peer: Arc<Peer>,
    /// Identity of the location whose settings it was opened with. A number: it is compared only,
    /// with locations of the same configuration, which its group belongs to.
    pub location: usize,
    /// Requests sent on it.
    pub requests: u32,
    /// When it was made.
    pub opened: Instant,
    /// Since when it is idle.
    pub idle_since: Instant,
}

/// Why no connection was made.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The time is over.
    #[error("upstream timed out (110: Connection timed out)")]
    TimedOut,
    /// The kernel's answer.
    #[error("connect() failed ({0})")]
    Io(io::Error),
}

/// Connects to a peer of a group.
pub async fn connect(
    group: &Arc<Group>,
    peer: &Arc<Peer>,
    location: &Arc<Location>,
    policy: &ConnectPolicy,
    from: Option<SocketAddr>,
) -> Result<Box<Connection>, ConnectError> {
    let socket = start(&peer.address, policy, from).map_err(ConnectError::Io)?;
    let timer = Timer::new();
    let now = clock::instant();
    match timer.guard(now + policy.timeout, socket.connected()).await {
        Err(_) => return Err(ConnectError::TimedOut),
        Ok(Err(error)) => return Err(ConnectError::Io(error)),
        Ok(Ok(())) => {}
    }
    Ok(Box::new(Connection {
        socket,
        inbox: BytesMut::new(),
        timer,
        group: Arc::clone(group),
        peer: Arc::clone(peer),
        location: Arc::as_ptr(location) as usize,
        requests: 0,
        opened: now,
        idle_since: now,
    }))
}

fn start(
    address: &Address,
    policy: &ConnectPolicy,
    from: Option<SocketAddr>,
) -> io::Result<Socket> {
    let (raw, to) = match address {
        Address::Inet(inet) => {
            let raw = RawSocket::new(
                Domain::for_address(*inet),
                Type::STREAM,
                Some(Protocol::TCP),
            )?;
            raw.set_tcp_nodelay(true)?;
            if policy.keepalive {
                raw.set_keepalive(true)?;
            }
            if let Some(from) = from {
                raw.bind(&from.into())?;
            }
            (raw, SockAddr::from(*inet))
        }
        Address::Unix(path) => (
            RawSocket::new(Domain::UNIX, Type::STREAM, None)?,
            SockAddr::unix(path)?,
        ),
    };
    raw.set_nonblocking(true)?;
    match raw.connect(&to) {
        Err(error) if !is_in_progress(&error) => return Err(error),
        _ => {}
    }
    Socket::new(raw.into())
}

fn is_in_progress(error: &io::Error) -> bool {
    error.raw_os_error() == Some(rustix::io::Errno::INPROGRESS.raw_os_error())
}
