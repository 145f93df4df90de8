//! `listen … udp`: sessions of packets, by the address of their client.
//!
//! ```text
//! socket ─► packet ─► a session has the client's address? ─ yes ─► its inbox ─► session
//!                         └ no: a new one, if there is room ────────────┘
//! ```
//!
//! Each worker has a socket of its own for an address; the kernel brings all packets of a client to
//! the same one. The listener alone reads it, and hands packets on.
//!
//! Invariants:
//! 1. An inbox holds `proxy_buffer_size` bytes at most, but at least one packet; what is beyond is
//!    dropped, as networks drop packets.
//! 2. A session has a place among the worker's connections, as one of TCP has; without one its
//!    first packet is dropped.
//! 3. A session is in the table until it ends, or has the packets of `proxy_requests`.

mod exchange;
mod session;

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};

use bytes::Bytes;
use millpond_exchange::client::connection::Connection;
use millpond_exchange::settings::listen::{Binding, Listen, ListenOptions};
use millpond_exchange::worker::Generation;
use millpond_proxy::downstream::listener::{PortUse, refuse};
use millpond_proxy::downstream::quic;
use millpond_system::address::Address;
use millpond_system::clock;
use millpond_system::log::error::{self, Level, os_error};
use millpond_system::quota::{Seat, Side};
use millpond_system::udp::{ReceiveSpace, Transmit, UdpSocket};
use tokio::task::spawn_local;

use crate::content::Content;
use crate::settings::SessionSettings;

/// Bytes that a packet in an inbox counts for beside its own. (Guessed: its record and what the
/// allocator adds.)
const PACKET_COST: usize = 64;

thread_local! {
    /// The memory that packets are received into, once a worker serves some.
    static SPACE: RefCell<Option<ReceiveSpace>> = const { RefCell::new(None) };
}

/// A client's address, and that of ours which it sends to where the socket has several.
type Ends = (SocketAddr, Option<IpAddr>);

/// The sessions of a socket.
type Table = Rc<RefCell<HashMap<Ends, Rc<Inbox>>>>;

/// Binds a socket.
pub fn bind(address: &Address, options: &ListenOptions, port_use: PortUse) -> io::Result<OwnedFd> {
    let fd = quic::bind(address, options, port_use)?;
    if let Some(size) = options.rcvbuf {
        rustix::net::sockopt::set_socket_recv_buffer_size(&fd, size)?;
    }
    if let Some(size) = options.sndbuf {
        rustix::net::sockopt::set_socket_send_buffer_size(&fd, size)?;
    }
    Ok(fd)
}

/// Serves the sessions of a socket under a generation; the owner aborts the task when that closes.
/// Sessions go on without it for as long as their peers owe packets.
pub async fn listen(fd: OwnedFd, binding: Arc<Binding>, generation: Rc<Generation>) {
    let socket = match UdpSocket::new(fd) {
        Ok(socket) => Rc::new(socket),
        Err(error) => {
            let (address, why) = (&binding.bound, os_error(&error));
            let message = format_args!("serving packets on {address} failed ({why})");
            return error::process(Level::Alert, message);
        }
    };
    let listener = Listener {
        socket,
        binding,
        generation,
        table: Table::default(),
    };
    loop {
        // An error concerns a packet that was sent: a client is away.
        let _ = std::future::poll_fn(|cx| listener.poll(cx)).await;
    }
}

/// A socket with its sessions.
struct Listener {
    socket: Rc<UdpSocket>,
    binding: Arc<Binding>,
    generation: Rc<Generation>,
    table: Table,
}

impl Listener {
    /// Receives a batch of packets.
    fn poll(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        SPACE.with_borrow_mut(|space| {
            let space = space.get_or_insert_default();
            let received = self.socket.poll_recv(cx, space, |packet| {
                self.handle_packet((packet.remote, packet.local), packet.bytes);
            });
            Poll::Ready(ready!(received))
        })
    }

    fn handle_packet(&self, ends: Ends, bytes: &[u8]) {
        let inbox = self.table.borrow().get(&ends).cloned();
        let Some(inbox) = inbox.or_else(|| self.begin(ends)) else {
            return;
        };
        let left = inbox.left.get().map(|left| left.saturating_sub(1));
        inbox.left.set(left);
        if left == Some(0) {
            // INVARIANT 3.
            self.table.borrow_mut().remove(&ends);
        }
        inbox.put(bytes);
    }

    /// Begins a session.
    fn begin(&self, (remote, local): Ends) -> Option<Rc<Inbox>> {
        let worker = &self.generation.worker;
        let Some(seat) = worker.seat_now(Side::Client) else {
            // INVARIANT 2.
            refuse(&self.generation);
            return None;
        };
        let address = self.local_address(local);
        let listen = Arc::clone(self.binding.listen_for(&address)?);
        let settings = SessionSettings::of(listen.names.default_server())?;
        let inbox = Rc::new(Inbox::new(&settings));
        let ends = (remote, local);
        self.table.borrow_mut().insert(ends, Rc::clone(&inbox));
        let number = worker.shared.connections.accept(worker.index);
        let mut peer = remote;
        peer.set_ip(peer.ip().to_canonical());
        let connection = Rc::new(Connection::new(
            Rc::clone(&self.generation),
            number,
            [Address::Inet(peer), address],
            clock::instant(),
        ));
        self.spawn(
            Client {
                socket: Rc::clone(&self.socket),
                ends,
                inbox: Rc::clone(&inbox),
                table: Rc::clone(&self.table),
                connection,
                _seat: seat,
            },
            listen,
        );
        Some(inbox)
    }

    fn spawn(&self, client: Client, listen: Arc<Listen>) {
        let member = self.generation.enter();
        let (slot, known) = (member.slot(), Rc::downgrade(&client.connection));
        let bound = self.binding.bound.clone();
        let served = session::serve(client, (listen, bound), member);
        let task = spawn_local(served);
        self.generation.adopt(slot, (task.abort_handle(), known));
    }

    /// The address that a packet was sent to.
    fn local_address(&self, local: Option<IpAddr>) -> Address {
        match (&self.binding.bound, local) {
            (Address::Inet(bound), Some(ip)) if bound.ip().is_unspecified() => {
                Address::Inet(SocketAddr::new(ip.to_canonical(), bound.port()))
            }
            (bound, _) => bound.clone(),
        }
    }
}

/// Packets of a client that its session has not taken yet.
struct Inbox {
    packets: RefCell<VecDeque<Bytes>>,
    len: Cell<usize>,
    most: usize,
    /// The packets that the session still gets; none for all that come while it lasts.
    left: Cell<Option<u32>>,
    waker: Cell<Option<Waker>>,
}

impl Inbox {
    fn new(settings: &SessionSettings) -> Inbox {
        let proxy = &settings.proxy;
        // A session that waits for nothing ends with the first packet.
        let is_over_at_once = proxy.responses == Some(0)
            || !matches!(
                settings.content,
                Some(Content::Group(_) | Content::Variable(_))
            );
        let left = match proxy.requests {
            0 if is_over_at_once => Some(1),
            0 => None,
            requests => Some(requests),
        };
        Inbox {
            packets: RefCell::default(),
            len: Cell::new(0),
            most: usize::try_from(proxy.buffer_size.0).unwrap_or(usize::MAX),
            left: Cell::new(left),
            waker: Cell::default(),
        }
    }

    /// Adds a packet, if it has room.
    fn put(&self, bytes: &[u8]) {
        let len = self.len.get();
        if len > 0 && len + bytes.len() > self.most {
            // INVARIANT 1.
            return;
        }
        self.len.set(len + bytes.len() + PACKET_COST);
        let packet = Bytes::copy_from_slice(bytes);
        self.packets.borrow_mut().push_back(packet);
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }

    /// Takes the oldest packet.
    fn poll(&self, cx: &mut Context<'_>) -> Poll<Bytes> {
        if let Some(packet) = self.packets.borrow_mut().pop_front() {
            let len = self.len.get().saturating_sub(packet.len() + PACKET_COST);
            self.len.set(len);
            return Poll::Ready(packet);
        }
        self.waker.set(Some(cx.waker().clone()));
        Poll::Pending
    }
}

/// A client's end of a session; it leaves the table with it.
struct Client {
    socket: Rc<UdpSocket>,
    ends: Ends,
    inbox: Rc<Inbox>,
    table: Table,
    connection: Rc<Connection>,
    /// Its place among the worker's connections.
    _seat: Seat,
}

impl Client {
    /// Sends the client a packet.
    fn poll_send(&self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<()>> {
        let (destination, src_ip) = self.ends;
        let transmit = Transmit {
            destination,
            ecn: None,
            contents: bytes,
            segment_size: None,
            src_ip,
        };
        self.socket.poll_send(cx, &transmit)
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let mut table = self.table.borrow_mut();
        // INVARIANT 3: another session may have its place by now.
        let is_own = |inbox: &Rc<Inbox>| Rc::ptr_eq(inbox, &self.inbox);
        if table.get(&self.ends).is_some_and(is_own) {
            table.remove(&self.ends);
        }
    }
}
