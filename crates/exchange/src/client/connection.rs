//! A client's connection: facts that last from its accept to the end of the last request that it
//! brought, whatever protocol it speaks. Requests in the background outlive the socket, and may
//! still ask for them.

use std::cell::{Cell, OnceCell};
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use millpond_system::address::Address;
use millpond_system::clock::Instant;
use millpond_system::quota::Waiting;

use crate::client::agreed::Agreed;
use crate::settings::Server;
use crate::settings::listen::Listen;
use crate::worker::{Displaced, Generation};

/// Facts that the header of the PROXY protocol tells of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Told {
    /// The client.
    pub source: SocketAddr,
    /// The address that it connected to.
    pub server: SocketAddr,
    /// Types, lengths and values as they came.
    pub values: Box<[u8]>,
}

/// A client's connection.
pub struct Connection {
    /// The client's address as the kernel knows it.
    pub peer: Address,
    /// The address it connected to.
    pub local: Address,
    /// The header of the PROXY protocol, if a balancer sent one.
    pub told: OnceCell<Box<Told>>,
    /// The agreement of the handshake, once its bytes are encrypted.
    pub tls: OnceCell<Box<Agreed>>,
    /// True until the handshake is over, where requests are answered before that.
    pub is_early: Cell<bool>,
    /// Number of the connection, counted from 1 over all workers (`$connection`).
    pub number: u64,
    /// Time of its accept.
    pub accepted: Instant,
    /// Requests so far.
    pub requests: Cell<u32>,
    /// State of its task, for the choice of connections that make room for others.
    pub waiting: Cell<Waiting>,
    /// True when it is to be closed, to make room for another.
    pub is_displaced: Cell<bool>,
    /// The worker and configuration that serve it.
    pub generation: Rc<Generation>,
}

impl Displaced for Connection {
    fn waiting(&self) -> Waiting {
        self.waiting.get()
    }

    fn is_displaced(&self) -> bool {
        self.is_displaced.get()
    }

    fn displace(&self) {
        self.is_displaced.set(true);
    }
}

impl Connection {
    /// A connection from `peer` to `local` that was accepted now, as number `number`.
    pub fn new(
        generation: Rc<Generation>,
        number: u64,
        [peer, local]: [Address; 2],
        accepted: Instant,
    ) -> Self {
        Connection {
            peer,
            local,
            told: OnceCell::new(),
            tls: OnceCell::new(),
            is_early: Cell::new(false),
            number,
            accepted,
            requests: Cell::new(0),
            waiting: Cell::default(),
            is_displaced: Cell::new(false),
            generation,
        }
    }

    /// The same connection as it is seen before the handshake is over, when no more is known than
    /// what the client asked for.
    pub fn asking(&self, asked: Agreed) -> Self {
        let addresses = [self.peer.clone(), self.local.clone()];
        let generation = Rc::clone(&self.generation);
        Connection {
            told: self.told.clone(),
            tls: OnceCell::from(Box::new(asked)),
            ..Connection::new(generation, self.number, addresses, self.accepted)
        }
    }

    /// The same connection as it is passed on to another listener.
    pub fn passed(&self, peer: Address, local: Address) -> Self {
        let generation = Rc::clone(&self.generation);
        Connection {
            told: self.told.clone(),
            ..Connection::new(generation, self.number, [peer, local], self.accepted)
        }
    }

    /// True when its bytes are encrypted.
    pub fn is_encrypted(&self) -> bool {
        self.tls.get().is_some()
    }

    /// The scheme of URLs that lead here.
    pub fn scheme(&self) -> &'static str {
        if self.is_encrypted() { "https" } else { "http" }
    }

    /// The server that speaks until a request names another one.
    pub fn first_server<'a>(&'a self, listen: &'a Listen) -> &'a Arc<Server> {
        match self.tls.get() {
            Some(agreed) => &agreed.server,
            None => listen.names.default_server(),
        }
    }

    /// Counts a request; returns its number.
    pub(crate) fn count_request(&self) -> u32 {
        let number = self.requests.get() + 1;
        self.requests.set(number);
        number
    }

    /// Counts that it was closed to make room for another.
    pub fn count_displaced(&self) {
        let worker = &self.generation.worker;
        let counters = worker.shared.connections.shard(worker.index);
        counters.displaced.fetch_add(1, Relaxed);
    }
}
