//! Listening sockets: bound once for the process, accepted from by each worker.
//!
//! Every worker has a socket of its own for an address (SO_REUSEPORT), so that the kernel spreads
//! connections and workers share nothing. With one worker there is one socket. Sockets live as long
//! as their address stays in the configuration: a reload hands them on, and no connection in a
//! queue is lost.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use millpond_system::address::Address;
use millpond_system::log::error::{self, Level};
use millpond_system::quota::{Seat, Shortage, Side};
use millpond_system::reserve::is_shortage_error;
use millpond_system::socket::Socket;
use millpond_system::tls_socket::TlsSocket;
use millpond_system::transport::Transport;
use millpond_system::{clock, root_helper};
use socket2::{Domain, Protocol, SockAddr, Socket as RawSocket, Type};
use tokio::io::unix::AsyncFd;

use millpond_exchange::client::carrier::Carrier;
use millpond_exchange::client::connection::Connection;
use millpond_exchange::settings::listen::{Binding, ListenOptions};
use millpond_exchange::worker::{Generation, Member};

/// Wait after an accept that failed for want of descriptors or memory (nginx: accept_mutex_delay's
/// 500 ms).
const ACCEPT_PAUSE: Duration = Duration::from_millis(500);

/// Permission to bind an address although another socket of this user has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PortUse {
    /// No: a second process is an error. Later sockets of ours may join.
    Exclusive,
    /// Yes, for the further sockets of an address.
    Joined,
}

/// Binds and listens.
pub fn bind(address: &Address, options: &ListenOptions, port_use: PortUse) -> io::Result<OwnedFd> {
    let socket = match address {
        Address::Inet(inet) => bind_inet(*inet, options, port_use)?,
        Address::Unix(path) => {
            let by_helper = || Some(root_helper::bind(path)?.map(RawSocket::from));
            root_helper::unless_refused(bind_unix(path), by_helper)?
        }
    };
    if let Some(size) = options.rcvbuf {
        socket.set_recv_buffer_size(size)?;
    }
    if let Some(size) = options.sndbuf {
        socket.set_send_buffer_size(size)?;
    }
    socket.set_nonblocking(true)?;
    socket.listen(options.backlog)?;
    let socket = socket.into();
    prepare(&socket, address)?;
    Ok(socket)
}

/// Sets what accepted connections take over from their listening socket, also on one that another
/// process has bound: answers go out in whole packets, and to wait until those are full only delays
/// them (nginx: `tcp_nodelay on`).
pub fn prepare(fd: &OwnedFd, address: &Address) -> io::Result<()> {
    if let Address::Inet(_) = address {
        rustix::net::sockopt::set_tcp_nodelay(fd, true)?;
    }
    Ok(())
}

fn bind_inet(
    address: SocketAddr,
    options: &ListenOptions,
    port_use: PortUse,
) -> io::Result<RawSocket> {
    let socket = RawSocket::new(
        Domain::for_address(address),
        Type::STREAM,
        Some(Protocol::TCP),
    )?;
    socket.set_reuse_address(true)?;
    if port_use == PortUse::Joined {
        socket.set_reuse_port(true)?;
    }
    if address.is_ipv6() {
        socket.set_only_v6(options.ipv6_only)?;
    }
    if options.keepalive {
        socket.set_keepalive(true)?;
    }
    socket.bind(&address.into())?;
    // Set after an exclusive bind, so that the bind saw other processes and our own sockets may
    // join.
    socket.set_reuse_port(true)?;
    Ok(socket)
}

/// Binds a Unix socket that every local user may connect to; it does not listen yet.
pub fn bind_unix(path: &Path) -> io::Result<RawSocket> {
    let socket = RawSocket::new(Domain::UNIX, Type::STREAM, None)?;
    let address = SockAddr::unix(path)?;
    match socket.bind(&address) {
        // A socket file that nobody listens on was left by a process that was killed.
        Err(error) if error.kind() == io::ErrorKind::AddrInUse && is_dead(&address) => {
            std::fs::remove_file(path)?;
            socket.bind(&address)?;
        }
        outcome => outcome?,
    }
    use std::os::unix::fs::PermissionsExt;
    // nginx: a Unix listener is open to every local user.
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o666))?;
    Ok(socket)
}

/// Removes the file of a Unix listener that is closed.
pub fn remove_file(address: &Address) {
    if let Address::Unix(path) = address {
        let removed = std::fs::remove_file(path);
        // Somebody who removed it first did what is wanted.
        let _ = root_helper::unless_refused(removed, || root_helper::remove_socket(path));
    }
}

fn is_dead(address: &SockAddr) -> bool {
    RawSocket::new(Domain::UNIX, Type::STREAM, None)
        .and_then(|probe| probe.connect(address))
        .is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
}

/// Accepts connections for a generation, each of which is then served; the owner of the loop aborts
/// its task when the generation closes.
pub async fn accept_loop<Served>(
    fd: OwnedFd,
    binding: Arc<Binding>,
    generation: Rc<Generation>,
    serve: fn(Carrier, Arc<Binding>, Member) -> Served,
) where
    Served: Future<Output = ()> + 'static,
{
    let Ok(listener) = millpond_system::socket::watch(fd) else {
        return;
    };
    loop {
        if generation.worker.quota.is_cut() {
            wait_for_room(&listener, &generation).await;
        }
        match std::future::poll_fn(|cx| poll_accept(&listener, cx)).await {
            Ok(accepted) => match generation.worker.seat_in_turn(Side::Client).await {
                Some(seat) => {
                    if let Some((carrier, member)) = start(accepted, seat, &binding, &generation) {
                        let (slot, known) = (member.slot(), Rc::downgrade(&carrier.connection));
                        let served = serve(carrier, Arc::clone(&binding), member);
                        let task = tokio::task::spawn_local(served);
                        generation.adopt(slot, (task.abort_handle(), known));
                    }
                }
                None => refuse(&generation),
            },
            Err(error) if is_of_connection(&error) => {}
            Err(error)
                if is_shortage_error(&error)
                    && generation.worker.make_room(Shortage::Descriptors).await => {}
            Err(error) => {
                error::accept_failed(&error);
                clock::pause(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// Leaves clients in the queue of the socket, where a reload finds them, while there is no place
/// for one.
async fn wait_for_room(listener: &AsyncFd<OwnedFd>, generation: &Generation) {
    // An error is found again by whoever accepts.
    let _ = listener.readable().await;
    drop(generation.worker.seat_in_turn(Side::Client).await);
}

/// Errors that concern one connection only.
fn is_of_connection(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::Interrupted
    )
}

fn poll_accept(
    listener: &AsyncFd<OwnedFd>,
    cx: &mut std::task::Context<'_>,
) -> std::task::Poll<io::Result<(OwnedFd, Option<rustix::net::SocketAddrAny>)>> {
    use rustix::net::SocketFlags;
    loop {
        let mut guard = std::task::ready!(listener.poll_read_ready(cx))?;
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        match rustix::net::acceptfrom_with(listener.get_ref(), flags) {
            Ok(accepted) => return std::task::Poll::Ready(Ok(accepted)),
            Err(rustix::io::Errno::AGAIN) => guard.clear_ready(),
            Err(errno) => return std::task::Poll::Ready(Err(errno.into())),
        }
    }
}

/// Counts a client that there is no room for, and says so. nginx closes it, too.
pub fn refuse(generation: &Generation) {
    let worker = &generation.worker;
    worker.shared.connections.refuse(worker.index);
    let most = worker.quota.most();
    let message = format_args!("{most} worker_connections are not enough");
    error::process(Level::Alert, message);
}

/// Makes a member of the generation of an accepted connection.
fn start(
    (fd, peer): (OwnedFd, Option<rustix::net::SocketAddrAny>),
    seat: Seat,
    binding: &Arc<Binding>,
    generation: &Rc<Generation>,
) -> Option<(Carrier, Member)> {
    let peer = peer.map_or(Address::Unix(Default::default()), |any| {
        Address::of_kernel(&any)
    });
    let local = local_address(&fd, &binding.bound);
    let socket = Socket::accepted(fd).ok()?;
    let worker = &generation.worker;
    let number = worker.shared.connections.accept(worker.index);
    let made = Rc::new(Connection::new(
        Rc::clone(generation),
        number,
        [peer, local],
        clock::instant(),
    ));
    let transport = if binding.is_encrypted() {
        Transport::Tls(Box::new(TlsSocket::new(socket)))
    } else {
        Transport::Plain(socket)
    };
    let carrier = Carrier::new(made, transport, Some(seat));
    Some((carrier, generation.enter()))
}

/// The address that a client connected to; asked of the kernel only for wildcard listeners.
fn local_address(fd: &OwnedFd, bound: &Address) -> Address {
    match bound {
        Address::Inet(inet) if inet.ip().is_unspecified() => rustix::net::getsockname(fd)
            .map_or_else(|_| bound.clone(), |any| Address::of_kernel(&any)),
        bound => bound.clone(),
    }
}
