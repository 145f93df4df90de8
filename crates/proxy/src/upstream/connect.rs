//! `proxy_connect_timeout`, `proxy_bind`, `proxy_socket_keepalive`: connections to peers.
//!
//! Opens TCP and Unix sockets without blocking, with the local address that was asked for, within
//! the time limit.
//!
//! 1. A connection that is not established in time is closed; nothing waits behind it.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use millpond_conf::value::{ArgError, Args, FromArgs};
use millpond_conf::{OffOr, Template};
use millpond_system::address::Address;
use millpond_system::clock::{self, Instant};
use millpond_system::datagram::DatagramSocket;
use millpond_system::log::error::{Level, os_error};
use millpond_system::quota::{ROUNDS, Seat, Shortage, Side};
use millpond_system::reserve::is_shortage_error;
use millpond_system::socket::Socket;
use millpond_system::timer::Timer;
use millpond_system::transport::Transport;
use nix::sys::socket::{setsockopt, sockopt};
use rustix::io::Errno;
use socket2::{Domain, Protocol as Transmission, SockAddr, Socket as RawSocket, Type};

use super::encryption::{EncryptError, Encryption, encrypt};
use super::group::Group;
use super::http2::session::Session;
use super::keepalive;
use super::peer::Peer;
use crate::upstream::pass_settings::SettingsByProtocol as _;
use millpond_exchange::failure::{UpstreamFailure, UpstreamKind};
use millpond_exchange::protocol::Protocol;
use millpond_exchange::settings::Location;
use millpond_exchange::worker::Worker;
use millpond_semantics::proxy_status::ProxyError;

/// The local address of connections to peers.
#[derive(Clone, Debug)]
pub struct BindAddress {
    /// The address, with or without a port.
    pub address: Template,
    /// Owner that the address may have.
    pub owner: Owner,
}

/// Owner of an address that connections to peers may come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// The address is one of this machine.
    Machine,
    /// Anybody's, such as the client's.
    Anybody,
}

impl FromArgs for BindAddress {
    const SYNTAX: &'static str = "address [transparent]";

    fn from_args(args: &mut Args<'_>) -> Result<Self, ArgError> {
        let owner = match args.words {
            [_] => Owner::Machine,
            [_, word] if word.text == "transparent" => Owner::Anybody,
            [_, word] => {
                let message = format!("invalid parameter \"{}\"", word.text);
                return Err(ArgError::value(1, message));
            }
            _ => return Err(ArgError::Count),
        };
        let address: Template = args.word(0)?;
        match address.as_literal() {
            Some(text) if parse_address(text).is_none() => {
                let message = format!("invalid address \"{}\"", String::from_utf8_lossy(text));
                Err(ArgError::value(0, message))
            }
            _ => Ok(BindAddress { address, owner }),
        }
    }
}

impl BindAddress {
    /// Source of a connection, by the value of the address; a value that cannot be read is no
    /// source, as in nginx.
    pub fn source(&self, value: &[u8]) -> Option<Source> {
        let (address, owner) = (parse_address(value)?, self.owner);
        Some(Source { address, owner })
    }
}

/// An address; without a port it has port 0.
fn parse_address(text: &[u8]) -> Option<SocketAddr> {
    let text = std::str::from_utf8(text).ok()?;
    // nginx 1.31: brackets may stand without a port behind them.
    let inside = text
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'));
    let ip = match inside {
        Some(text) => text.parse().ok().map(IpAddr::V6),
        None => text.parse().ok(),
    };
    let bare = ip.map(|ip| SocketAddr::new(ip, 0));
    bare.or_else(|| text.parse().ok())
}

/// Local address that a connection comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Source {
    /// The address; port 0 is any.
    pub address: SocketAddr,
    /// Owner that the address may have.
    pub owner: Owner,
}

impl Source {
    /// Gives a socket its address.
    fn bind(self, socket: &RawSocket) -> Result<(), ConnectError> {
        if self.owner == Owner::Anybody {
            let (call, set) = match self.address {
                SocketAddr::V4(_) => ("IP_TRANSPARENT", socket.set_ip_transparent_v4(true)),
                SocketAddr::V6(_) => ("IPV6_TRANSPARENT", socket.set_ip_transparent_v6(true)),
            };
            set.map_err(|error| ConnectError::Transparent(call, error))?;
        }
        if self.address.port() == 0 {
            // nginx: the port is chosen when the peer is known, so that there are as many
            // connections to each peer as there are ports, not to all of them together. A kernel
            // that does not know the option chooses it at once.
            let _ = setsockopt(socket, sockopt::IpBindAddressNoPort, &true);
        }
        let bound = socket.bind(&self.address.into());
        bound.map_err(|error| ConnectError::Bind(self.address, error))
    }
}

/// The way in which a connection is made; an idle one serves requests that want the same.
#[derive(Clone, Copy)]
pub struct Way<'a> {
    /// The local address that it comes from, if one is asked for.
    pub source: Option<Source>,
    /// Its encryption.
    pub encryption: Option<&'a Encryption>,
    /// True if HTTP/2 is to be spoken.
    pub is_http2: bool,
}

/// Settings of connections to peers.
#[derive(Clone, Debug, millpond_conf::Family)]
#[family(http, server, location, stream, stream_server, protocols)]
pub struct ConnectPolicy {
    /// The time within which a connection to a peer must be made.
    #[directive(name = "proxy_connect_timeout", default = "60s")]
    pub timeout: Duration,
    /// The local address that connections to peers come from; `off` undoes an outer one. With
    /// `transparent` it may be one that this machine does not have, such as the client's
    /// (`$remote_addr`): the kernel must be told to route what peers answer back to this machine,
    /// and the process must be root or have CAP_NET_RAW.
    ///
    /// # Differs from nginx
    ///
    /// An idle connection is used again only by requests that come from the same address. What a
    /// cache fetches for several clients comes from the address of the first of them. With `user`,
    /// CAP_NET_RAW is kept if the parameter stands in the configuration that the process starts
    /// with; a reload cannot get it back.
    #[directive(name = "proxy_bind", default = "off")]
    pub bind: OffOr<BindAddress>,
    /// Makes the kernel probe idle connections to peers.
    #[directive(name = "proxy_socket_keepalive", default = "off")]
    pub keepalive: bool,
}

/// A connection to a peer. It is passed on in a box: an exchange hands it through many places.
pub struct Connection {
    /// The way of its bytes.
    pub socket: Transport,
    /// Bytes received and not consumed.
    pub inbox: BytesMut,
    /// Timer of the connection.
    pub timer: Timer,
    /// The group that its peer was chosen from.
    pub group: Arc<Group>,
    /// The peer.
    pub peer: Arc<Peer>,
    /// The local address that was asked for.
    pub source: Option<Source>,
    /// Identity of the location whose settings it was opened with. A number: it is compared only,
    /// with locations of the same configuration, which its group belongs to.
    pub location: usize,
    /// Place of the connection among the worker's connections.
    pub seat: Option<Seat>,
    /// Its encryption.
    pub encryption: Option<Encryption>,
    /// The state of HTTP/2, where that is spoken.
    pub http2: Option<Box<Session>>,
    /// Requests sent on it.
    pub requests: u32,
    /// Instant from which the connection is too old to be kept.
    pub young_until: Instant,
    /// Instant at which the connection will have been idle for too long, once it is idle.
    pub idle_until: Instant,
}

impl Connection {
    /// The local address that the kernel gave it; a Unix path for one that has none.
    pub fn local_address(&self) -> Address {
        let name = rustix::net::getsockname(self.socket.as_fd());
        let unknown = |_| Address::Unix(Default::default());
        name.map_or_else(unknown, |any| Address::of_kernel(&any))
    }
}

/// The reason why no connection was made.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The time is over.
    #[error("upstream timed out (110: Connection timed out)")]
    TimedOut,
    /// The worker has as many connections as it may.
    #[error("{0} worker_connections are not enough")]
    NoSeat(usize),
    /// There is no socket to be had.
    #[error("socket() failed ({reason})", reason = os_error(.0))]
    Socket(io::Error),
    /// The socket may not have a foreign address.
    #[error("setsockopt({0}) failed ({reason})", reason = os_error(.1))]
    Transparent(&'static str, io::Error),
    /// The local address cannot be had.
    #[error("bind({address}) failed ({reason})", address = written(.0), reason = os_error(.1))]
    Bind(SocketAddr, io::Error),
    /// The kernel's answer to the call, as always for a Unix socket.
    #[error("connect() to {0} failed ({reason})", reason = os_error(.1))]
    AtOnce(Address, io::Error),
    /// The peer's answer, or that of a router.
    #[error("connect() failed ({reason})", reason = os_error(.0))]
    Late(io::Error),
    /// The handshake.
    #[error(transparent)]
    Encrypt(#[from] EncryptError),
}

impl ConnectError {
    /// The level at which it is logged: what peers and networks do is an error, and what this
    /// machine refuses is graver.
    ///
    /// nginx: `ngx_event_connect_peer` for what the calls say, `ngx_connection_error` for the rest.
    pub fn level(&self) -> Level {
        match self {
            ConnectError::TimedOut => Level::Error,
            ConnectError::NoSeat(_) | ConnectError::Socket(_) | ConnectError::Transparent(..) => {
                Level::Alert
            }
            ConnectError::Bind(..) => Level::Crit,
            ConnectError::AtOnce(_, error) if is_of(error, &AT_ONCE_ERRORS) => Level::Error,
            ConnectError::AtOnce(..) => Level::Crit,
            ConnectError::Late(error) if is_of(error, &LATE_ERRORS) => Level::Error,
            ConnectError::Late(_) => Level::Alert,
            ConnectError::Encrypt(error) => error.level(),
        }
    }
}

impl ConnectError {
    /// The error that clients are told of (RFC 9209 §2.3).
    fn told_as(&self) -> ProxyError {
        match self {
            ConnectError::TimedOut | ConnectError::Encrypt(EncryptError::TimedOut) => {
                ProxyError::ConnectionTimeout
            }
            ConnectError::Encrypt(EncryptError::Refused(_)) => ProxyError::TlsCertificate,
            ConnectError::Encrypt(EncryptError::Tls(_) | EncryptError::Connection(_)) => {
                ProxyError::TlsProtocol
            }
            ConnectError::AtOnce(_, error) | ConnectError::Late(error) => match error.kind() {
                io::ErrorKind::ConnectionRefused => ProxyError::ConnectionRefused,
                io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable => {
                    ProxyError::DestinationUnroutable
                }
                io::ErrorKind::TimedOut => ProxyError::ConnectionTimeout,
                io::ErrorKind::ConnectionReset => ProxyError::ConnectionTerminated,
                _ => ProxyError::DestinationUnavailable,
            },
            ConnectError::NoSeat(_)
            | ConnectError::Socket(_)
            | ConnectError::Transparent(..)
            | ConnectError::Bind(..)
            | ConnectError::Encrypt(EncryptError::Certificate(_)) => ProxyError::Internal,
        }
    }
}

impl From<ConnectError> for UpstreamFailure {
    fn from(error: ConnectError) -> Self {
        let kind = match error {
            ConnectError::TimedOut | ConnectError::Encrypt(EncryptError::TimedOut) => {
                UpstreamKind::Timeout
            }
            ConnectError::NoSeat(_)
            | ConnectError::Encrypt(EncryptError::Certificate(_))
            | ConnectError::Socket(_)
            | ConnectError::Transparent(..)
            | ConnectError::Bind(..) => UpstreamKind::NoSocket,
            ConnectError::AtOnce(..) | ConnectError::Late(_) | ConnectError::Encrypt(_) => {
                UpstreamKind::Error
            }
        };
        let doing = match error {
            ConnectError::Encrypt(_) => "SSL handshaking",
            _ => "connecting",
        };
        UpstreamFailure {
            kind,
            level: error.level(),
            message: format!("{error} while {doing} to upstream"),
            error: error.told_as(),
        }
    }
}

/// An address as it was written: without a port if it has none.
fn written(address: &SocketAddr) -> String {
    match address.port() {
        0 => address.ip().to_string(),
        _ => address.to_string(),
    }
}

/// Errors that the call may return of a peer that is away, or whose queue is full (EAGAIN).
const AT_ONCE_ERRORS: [Errno; 7] = [
    Errno::CONNREFUSED,
    Errno::AGAIN,
    Errno::CONNRESET,
    Errno::NETDOWN,
    Errno::NETUNREACH,
    Errno::HOSTDOWN,
    Errno::HOSTUNREACH,
];

/// Errors that the network may report later.
const LATE_ERRORS: [Errno; 9] = [
    Errno::CONNRESET,
    Errno::PIPE,
    Errno::NOTCONN,
    Errno::TIMEDOUT,
    Errno::CONNREFUSED,
    Errno::NETDOWN,
    Errno::NETUNREACH,
    Errno::HOSTDOWN,
    Errno::HOSTUNREACH,
];

fn is_of(error: &io::Error, errors: &[Errno]) -> bool {
    Errno::from_io_error(error).is_some_and(|errno| errors.contains(&errno))
}

/// All that it takes to make a connection, for as long as that lasts.
#[derive(Clone)]
pub struct Maker {
    /// The worker that the connection belongs to.
    pub worker: Rc<Worker>,
    /// The group of the peer.
    pub group: Arc<Group>,
    /// The peer.
    pub peer: Arc<Peer>,
    /// The location with the settings.
    pub location: Arc<Location>,
    /// The protocol whose settings they are.
    pub protocol: Protocol,
    /// The local address, if one is asked for.
    pub source: Option<Source>,
    /// The encryption of the connection.
    pub encryption: Option<Encryption>,
    /// True if HTTP/2 is to be spoken.
    pub is_http2: bool,
}

impl Maker {
    /// Makes a connection, with a place among the worker's.
    ///
    /// # Errors
    /// There is no place or no socket, or the peer cannot be connected to in time.
    pub async fn make(&self) -> Result<Box<Connection>, ConnectError> {
        let worker = &self.worker;
        let policy = &self.location.settings.pass(self.protocol).connect;
        let way = Way {
            source: self.source,
            encryption: self.encryption.as_ref(),
            is_http2: self.is_http2,
        };
        let seat = match worker.seat(Side::Upstream).await {
            None if worker.quota.is_cut() => {
                let in_turn = worker.seat_in_turn(Side::Upstream);
                Box::pin(clock::within(policy.timeout, in_turn))
                    .await
                    .flatten()
            }
            seat => seat,
        };
        let Some(seat) = seat else {
            return Err(ConnectError::NoSeat(worker.quota.most()));
        };
        let mut rounds = ROUNDS;
        loop {
            match connect(&self.group, &self.peer, &self.location, policy, way).await {
                Ok(mut connection) => {
                    connection.seat = Some(seat);
                    return Ok(connection);
                }
                Err(ConnectError::Socket(error))
                    if rounds > 0
                        && is_shortage_error(&error)
                        && worker.make_room(Shortage::Descriptors).await =>
                {
                    rounds -= 1;
                }
                Err(error) => return Err(error),
            }
        }
    }
}

/// Connects to a peer of a group.
async fn connect(
    group: &Arc<Group>,
    peer: &Arc<Peer>,
    location: &Arc<Location>,
    policy: &ConnectPolicy,
    way: Way<'_>,
) -> Result<Box<Connection>, ConnectError> {
    let timer = Timer::new();
    let now = clock::instant();
    let plain = plain(&peer.address, policy, (way.source, &timer)).await?;
    let socket = match way.encryption {
        None => Transport::Plain(plain),
        Some(by) => Box::pin(encrypt(plain, peer, by, (&timer, policy.timeout))).await?,
    };
    Ok(Box::new(Connection {
        socket,
        inbox: BytesMut::new(),
        timer,
        group: Arc::clone(group),
        peer: Arc::clone(peer),
        source: way.source,
        location: Arc::as_ptr(location) as usize,
        seat: None,
        encryption: way.encryption.cloned(),
        http2: way.is_http2.then(Box::default),
        requests: 0,
        young_until: keepalive::end_of(now, group.keep_alive.time),
        idle_until: now,
    }))
}

/// Connects a socket to an address.
///
/// # Errors
/// There is no socket, or nobody is there in time.
pub async fn plain(
    address: &Address,
    policy: &ConnectPolicy,
    (source, timer): (Option<Source>, &Timer),
) -> Result<Socket, ConnectError> {
    let socket = start(address, policy, source)?;
    match timer.guard_for(policy.timeout, socket.connected()).await {
        Err(_) => Err(ConnectError::TimedOut),
        Ok(Err(error)) => Err(ConnectError::Late(error)),
        Ok(Ok(())) => Ok(socket),
    }
}

fn start(
    address: &Address,
    policy: &ConnectPolicy,
    source: Option<Source>,
) -> Result<Socket, ConnectError> {
    let raw = open(address, policy).map_err(ConnectError::Socket)?;
    connect_to(&raw, address, source)?;
    Socket::new(raw.into()).map_err(ConnectError::Socket)
}

/// Begins to connect a socket to an address, from the address that is asked for.
fn connect_to(
    raw: &RawSocket,
    address: &Address,
    source: Option<Source>,
) -> Result<(), ConnectError> {
    let at_once = |error| ConnectError::AtOnce(address.clone(), error);
    let to = match address {
        Address::Inet(inet) => {
            if let Some(source) = source {
                source.bind(raw)?;
            }
            SockAddr::from(*inet)
        }
        Address::Unix(path) => SockAddr::unix(path).map_err(at_once)?,
    };
    match raw.connect(&to) {
        Err(error) if !is_in_progress(&error) => Err(at_once(error)),
        _ => Ok(()),
    }
}

/// Opens a socket for packets to and from a peer, with a place among the worker's connections.
///
/// # Errors
/// There is no place or no socket, or the kernel knows no way to the peer.
pub fn open_packets(
    worker: &Worker,
    peer: &Peer,
    source: Option<Source>,
) -> Result<(DatagramSocket, Seat), ConnectError> {
    let Some(seat) = worker.seat_now(Side::Upstream) else {
        return Err(ConnectError::NoSeat(worker.quota.most()));
    };
    let domain = match &peer.address {
        Address::Inet(inet) => Domain::for_address(*inet),
        Address::Unix(_) => Domain::UNIX,
    };
    let raw = RawSocket::new(domain, Type::DGRAM, None).map_err(ConnectError::Socket)?;
    raw.set_nonblocking(true).map_err(ConnectError::Socket)?;
    connect_to(&raw, &peer.address, source)?;
    let socket = DatagramSocket::new(raw.into()).map_err(ConnectError::Socket)?;
    Ok((socket, seat))
}

/// A socket for connections to an address.
fn open(address: &Address, policy: &ConnectPolicy) -> io::Result<RawSocket> {
    let raw = match address {
        Address::Inet(inet) => {
            let domain = Domain::for_address(*inet);
            let raw = RawSocket::new(domain, Type::STREAM, Some(Transmission::TCP))?;
            raw.set_tcp_nodelay(true)?;
            if policy.keepalive {
                raw.set_keepalive(true)?;
            }
            raw
        }
        Address::Unix(_) => RawSocket::new(Domain::UNIX, Type::STREAM, None)?,
    };
    raw.set_nonblocking(true)?;
    Ok(raw)
}

fn is_in_progress(error: &io::Error) -> bool {
    error.raw_os_error() == Some(Errno::INPROGRESS.raw_os_error())
}

#[cfg(test)]
mod tests {
    use super::*;
    use millpond_conf::{LoadOptions, ParseContext, load_text};

    fn read(text: &str) -> Result<BindAddress, ArgError> {
        let tree = load_text(
            "t.conf",
            text,
            &LoadOptions::default(),
            &mut Default::default(),
        );
        let line = &tree.statements[0];
        BindAddress::from_args(&mut Args {
            name: &line.name,
            words: &line.args,
            body: None,
            cx: &mut ParseContext::new("/prefix", "/conf"),
        })
    }

    #[test]
    fn local_address_is_an_address_with_or_without_a_port() {
        for (text, expected) in [
            ("127.0.0.2", Some("127.0.0.2:0")),
            ("127.0.0.2:81", Some("127.0.0.2:81")),
            ("::1", Some("[::1]:0")),
            ("[::1]:81", Some("[::1]:81")),
            ("localhost", None),
            ("127.0.0.2:99999", None),
            ("\"\"", None),
        ] {
            let bind = read(&format!("proxy_bind {text};"));
            let source = bind.ok().and_then(|bind| bind.source(text.as_bytes()));
            let source = source.map(|source| source.address.to_string());
            assert_eq!(source.as_deref(), expected, "{text}");
        }
        let variable = read("proxy_bind $remote_addr transparent;").unwrap();
        assert_eq!(variable.owner, Owner::Anybody);
        assert_eq!(variable.source(b"unix:"), None);
        assert!(read("proxy_bind 127.0.0.2 opaque;").is_err());
        assert_eq!(read("proxy_bind a b c;").unwrap_err(), ArgError::Count);
    }

    #[test]
    fn failures_have_the_levels_of_nginx() {
        let io = |errno: Errno| io::Error::from(errno);
        let path = || Address::Unix("/run/app.sock".into());
        for (errno, at_once, late) in [
            (Errno::CONNREFUSED, Level::Error, Level::Error),
            (Errno::AGAIN, Level::Error, Level::Alert),
            (Errno::CONNRESET, Level::Error, Level::Error),
            (Errno::NETDOWN, Level::Error, Level::Error),
            (Errno::NETUNREACH, Level::Error, Level::Error),
            (Errno::HOSTDOWN, Level::Error, Level::Error),
            (Errno::HOSTUNREACH, Level::Error, Level::Error),
            (Errno::TIMEDOUT, Level::Crit, Level::Error),
            (Errno::PIPE, Level::Crit, Level::Error),
            (Errno::NOTCONN, Level::Crit, Level::Error),
            (Errno::NOENT, Level::Crit, Level::Alert),
            (Errno::ACCESS, Level::Crit, Level::Alert),
            (Errno::ADDRNOTAVAIL, Level::Crit, Level::Alert),
        ] {
            let call = ConnectError::AtOnce(path(), io(errno));
            assert_eq!(call.level(), at_once, "{errno:?}");
            assert_eq!(ConnectError::Late(io(errno)).level(), late, "{errno:?}");
        }
        let missing = ConnectError::AtOnce(path(), io(Errno::NOENT)).to_string();
        let expected = "connect() to unix:/run/app.sock failed (2: No such file or directory)";
        assert_eq!(missing, expected);
        let foreign = "192.0.2.1:0".parse().unwrap();
        let bound = ConnectError::Bind(foreign, io(Errno::ADDRNOTAVAIL));
        assert_eq!(bound.level(), Level::Crit);
        assert_eq!(ConnectError::Socket(io(Errno::MFILE)).level(), Level::Alert);
        assert_eq!(ConnectError::TimedOut.level(), Level::Error);
    }

    #[test]
    fn local_port_is_chosen_when_the_peer_is_known() {
        let port_of = |address: &str| {
            let socket =
                RawSocket::new(Domain::IPV4, Type::STREAM, Some(Transmission::TCP)).unwrap();
            let address = address.parse().unwrap();
            let owner = Owner::Machine;
            Source { address, owner }.bind(&socket).unwrap();
            let bound = socket.local_addr().unwrap().as_socket().unwrap();
            assert_eq!(bound.ip(), address.ip());
            (bound.port(), socket)
        };
        assert_eq!(port_of("127.0.0.2:0").0, 0);
        // One that is named is taken at once; this one was free a moment ago.
        let free = std::net::TcpListener::bind("127.0.0.2:0").unwrap();
        let named = free.local_addr().unwrap();
        drop(free);
        assert_eq!(port_of(&named.to_string()).0, named.port());
    }

    #[test]
    fn foreign_address_is_for_transparent_sockets() {
        // RFC 5737: no machine has them.
        for (foreign, domain) in [
            ("192.0.2.1:0", Domain::IPV4),
            ("[2001:db8::1]:0", Domain::IPV6),
        ] {
            let bound = |owner| {
                let socket = RawSocket::new(domain, Type::STREAM, Some(Transmission::TCP)).unwrap();
                let address = foreign.parse().unwrap();
                Source { address, owner }.bind(&socket)
            };
            assert!(matches!(bound(Owner::Machine), Err(ConnectError::Bind(..))));
            // Only who has the right may do it.
            let is_denied = |error: &io::Error| error.kind() == io::ErrorKind::PermissionDenied;
            match bound(Owner::Anybody) {
                Ok(()) => {}
                Err(ConnectError::Transparent(_, error)) if is_denied(&error) => {}
                Err(error) => panic!("{error}"),
            }
        }
    }
}
