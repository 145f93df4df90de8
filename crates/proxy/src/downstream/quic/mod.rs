//! QUIC: connections of clients that come in UDP packets, up to their streams.
//!
//! ```text
//! socket ─► endpoint ─► link (the machine of a connection) ◄─► carrier ◄─► HTTP/3
//!              │ a client begins                      ▲
//!              └► admission ─► handshake (TLS) ───────┘ begins when that is over
//! ```
//!
//! quinn-proto is the machine, without I/O; `endpoint` has the socket, `identifier` the ids by
//! which packets find it, `directory` hands over those that came to another, `admission` decides
//! about new connections, `handshake` is a connection's begin, `qlog` writes down what connections
//! say.
//!
//! Invariants:
//! 1. A worker has one endpoint for each socket of its own, whatever generations come and go.

mod admission;
pub(crate) mod carrier;
mod directory;
mod endpoint;
mod handshake;
mod identifier;
mod kin;
mod link;
mod qlog;
mod tokens;

use std::cell::RefCell;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;

use millpond_system::address::Address;
use millpond_system::log::error::{self, Level};
use millpond_system::udp::{self, Mapped, ReceiveSpace, Share, UdpSocket};
use millpond_tls::quic::{HostKey, VERSION};
use quinn_proto::EndpointConfig;

use self::admission::Admitting;
use self::endpoint::{Endpoint, Post};
use super::listener::PortUse;
use crate::tls::contexts::Encryption;
use millpond_exchange::settings::listen::{Binding, ListenOptions};
use millpond_exchange::worker::parts::Kept;
use millpond_exchange::worker::parts::Part;
use millpond_exchange::worker::parts::Place;
use millpond_exchange::worker::{Generation, Worker};

pub use directory::Directory;
pub(super) use endpoint::UnderWay;

/// A socket that a worker reads.
#[derive(Debug)]
pub struct QuicSocket {
    /// The servers behind it.
    pub binding: Arc<Binding>,
    /// Its place among the sockets of the address.
    pub number: usize,
    /// The socket.
    pub fd: OwnedFd,
}

/// The endpoints of a worker.
#[derive(Default)]
pub struct Endpoints {
    /// Each with the number by which the system knows its socket.
    all: RefCell<Vec<(u64, Rc<Endpoint>)>>,
    /// Memory that all of them receive into.
    space: Rc<RefCell<ReceiveSpace>>,
}

/// Binds a socket.
pub fn bind(address: &Address, options: &ListenOptions, port_use: PortUse) -> io::Result<OwnedFd> {
    let Address::Inet(address) = address else {
        let why = "packets of QUIC come to addresses of the Internet only";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
    };
    let share = match port_use {
        PortUse::Exclusive => Share::Exclusive,
        PortUse::Joined => Share::Joined,
    };
    let mapped = if options.ipv6_only {
        Mapped::Left
    } else {
        Mapped::Taken
    };
    udp::bind(*address, share, mapped)
}

/// Serves new connections of these sockets under a generation, and none of others.
pub fn listen(generation: &Rc<Generation>, sockets: Vec<QuicSocket>) {
    let worker = &generation.worker;
    let mut served = Vec::new();
    for socket in sockets {
        let address = socket.binding.bound.clone();
        match serve(generation, socket) {
            Ok(number) => served.push(number),
            Err(error) => {
                let why = error::os_error(&error);
                let message = format_args!("serving QUIC on {address} failed ({why})");
                error::process(Level::Alert, message);
            }
        }
    }
    let others = worker.of::<Endpoints>().others(&served);
    others.iter().for_each(|endpoint| endpoint.serve(None));
}

/// Takes no new connections any more.
pub fn close(worker: &Worker) {
    let all = worker.of::<Endpoints>().others(&[]);
    all.iter().for_each(|endpoint| endpoint.serve(None));
}

/// Serves one socket; the number by which the system knows it.
fn serve(generation: &Rc<Generation>, socket: QuicSocket) -> io::Result<u64> {
    let worker = &generation.worker;
    let key = key(worker, &socket.binding).map_err(io::Error::other)?;
    let binding = Arc::clone(&socket.binding);
    let host = Admitting::new(binding, Rc::clone(generation), &key).map_err(io::Error::other)?;
    let config = host.first();
    let number = rustix::fs::fstat(&socket.fd)?.st_ino;
    let endpoint = match worker.of::<Endpoints>().find(number) {
        // INVARIANT 1.
        Some(endpoint) => endpoint,
        None => begin(worker, (socket, number), &key)?,
    };
    endpoint.serve(config.map(|config| (Rc::new(host) as Rc<_>, config)));
    Ok(number)
}

/// The keys of an address: those of its default server, or those of the process.
fn key(worker: &Worker, binding: &Binding) -> Result<HostKey, millpond_tls::Error> {
    let listen = binding.listens.first();
    let own = listen.and_then(|listen| Encryption::of(listen.names.default_server()));
    match own.and_then(|own| own.host_key.clone()) {
        Some(key) => Ok(key),
        None => Directory::of(&worker.shared).key(),
    }
}

/// Makes the endpoint of a socket, and starts its task.
fn begin(
    worker: &Rc<Worker>,
    (socket, number): (QuicSocket, u64),
    key: &HostKey,
) -> io::Result<Rc<Endpoint>> {
    let place = u16::try_from(socket.number).map_err(io::Error::other)?;
    let socket = UdpSocket::new(socket.fd)?;
    let address = socket.address()?;
    let (owner, handed) = Directory::of(&worker.shared).enter(place, address);
    let mut config = EndpointConfig::new(key.reset());
    config
        .cid_generator(move || Box::new(owner))
        .supported_versions(vec![VERSION]);
    let post = Post {
        owner,
        address,
        directory: Directory::of(&worker.shared),
    };
    let (endpoint, task) = Endpoint::new(socket, post, Arc::new(config));
    let made = (number, Rc::clone(&endpoint));
    worker.of::<Endpoints>().all.borrow_mut().push(made);
    let (worker, space) = (
        Rc::clone(worker),
        Rc::clone(&worker.of::<Endpoints>().space),
    );
    tokio::task::spawn_local(async move {
        task.run(handed, space).await;
        worker.of::<Endpoints>().forget(number);
        Directory::of(&worker.shared).leave(owner);
    });
    Ok(endpoint)
}

impl Kept for Endpoints {}

impl Part for Endpoints {
    const PLACE: Place = Place::Endpoints;
}

impl Endpoints {
    fn find(&self, number: u64) -> Option<Rc<Endpoint>> {
        let all = self.all.borrow();
        let mut found = all.iter().filter(|(own, _)| *own == number);
        found.next().map(|(_, endpoint)| Rc::clone(endpoint))
    }

    fn others(&self, numbers: &[u64]) -> Vec<Rc<Endpoint>> {
        let all = self.all.borrow();
        let others = all.iter().filter(|(own, _)| !numbers.contains(own));
        others.map(|(_, endpoint)| Rc::clone(endpoint)).collect()
    }

    fn forget(&self, number: u64) {
        self.all.borrow_mut().retain(|(own, _)| *own != number);
    }
}

/// An address of the Internet without the form of the other version.
fn canonical(mut address: SocketAddr) -> SocketAddr {
    address.set_ip(address.ip().to_canonical());
    address
}
