//! `listen`: addresses that servers answer on, and their options.
//!
//! What servers wrote is joined into one [`Listen`] for each address and one [`Binding`] for each
//! socket; reading it is the business of `scope/listen.rs`.

use std::sync::Arc;

use millpond_system::address::Address;

use super::Server;
use super::names::ServerNames;

/// Options of a listening socket; the first `listen` that names them decides.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenOptions {
    /// Length of the queue of connections not yet accepted.
    pub backlog: i32,
    /// Receive buffer of the socket, bytes.
    pub rcvbuf: Option<usize>,
    /// Send buffer of the socket, bytes.
    pub sndbuf: Option<usize>,
    /// True if an IPv6 socket leaves IPv4 alone.
    pub ipv6_only: bool,
    /// True if the kernel probes idle connections.
    pub keepalive: bool,
    /// True if each worker has a socket of its own although the system could share one.
    pub reuse_port: bool,
}

impl Default for ListenOptions {
    fn default() -> Self {
        ListenOptions {
            backlog: 511,
            rcvbuf: None,
            sndbuf: None,
            ipv6_only: true,
            keepalive: false,
            reuse_port: false,
        }
    }
}

/// One address with the servers that answer on it.
#[derive(Debug)]
pub struct Listen {
    /// The address.
    pub address: Address,
    /// Socket options.
    pub options: ListenOptions,
    /// True if connections begin with a header of the PROXY protocol.
    pub has_proxy_protocol: bool,
    /// True if connections are encrypted.
    pub is_encrypted: bool,
    /// True for an address of UDP.
    pub is_udp: bool,
    /// True if connections come in packets of QUIC, which are always encrypted.
    pub is_quic: bool,
    /// True if a `listen` of the address has the parameter `http2`.
    pub has_http2: bool,
    /// Servers by name, and the default.
    pub names: ServerNames,
}

/// The use of the connections that a socket brings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carries {
    /// Requests of HTTP.
    Requests,
    /// Sessions of `stream`.
    Sessions,
}

/// The listens of a configuration, found by the address of a connection.
///
/// A wildcard listener may stand for several `listen` addresses of one port; the connection's own
/// local address then decides (nginx binds once and looks up the same way).
#[derive(Debug)]
pub struct Binding {
    /// The address that is bound.
    pub bound: Address,
    /// True for a socket of UDP, on which QUIC or sessions of packets come.
    pub is_udp: bool,
    /// Options of the socket.
    pub options: ListenOptions,
    /// The use of its connections.
    pub carries: Carries,
    /// Candidates; the one with the connection's very address first, else the wildcard.
    pub listens: Vec<Arc<Listen>>,
}

impl Listen {
    /// True if connections to a server may speak HTTP/2.
    pub fn may_be_http2(&self, server: &Server) -> bool {
        self.has_http2 || server.settings.http2.is_on
    }

    /// True if requests for a server may come on streams of a connection.
    pub fn may_have_streams(&self, server: &Server) -> bool {
        if self.is_quic {
            server.settings.quic.is_on || server.settings.quic.is_plain_on
        } else {
            self.may_be_http2(server)
        }
    }
}

impl Binding {
    /// True if connections of QUIC come on the socket.
    pub fn is_quic(&self) -> bool {
        self.is_udp && self.carries == Carries::Requests
    }

    /// True if connections may have to be encrypted.
    pub fn is_encrypted(&self) -> bool {
        self.listens.iter().any(|listen| listen.is_encrypted)
    }

    /// The listen that a connection to `local` belongs to.
    pub fn listen_for(&self, local: &Address) -> Option<&Arc<Listen>> {
        self.listens
            .iter()
            .find(|listen| listen.address == *local)
            .or_else(|| {
                self.listens
                    .iter()
                    .find(|listen| listen.address == self.bound)
            })
            .or_else(|| self.listens.first())
    }
}
