//! A connection between two requests, without what only its task needs.
//!
//! The connection is taken off the event loop when nothing has come for a while, and put on it
//! again when something happens; in between it is a socket, its place, and facts.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;

use millpond_system::quota::Seat;
use millpond_system::socket::{self, Socket};
use millpond_system::transport::Transport;

use super::Http1;
use crate::client::carrier::Carrier;
use crate::client::connection::Connection;

/// A connection that waits for a request, off the event loop.
pub struct Quiet {
    socket: OwnedFd,
    /// Facts about it.
    pub connection: Rc<Connection>,
    seat: Option<Seat>,
}

impl Quiet {
    /// Takes a connection that has no request off the event loop. It is given back if it has more
    /// than its socket: a session, bytes that were not read, or somebody who holds it.
    pub fn new(http1: Rc<Http1>) -> Result<Self, Rc<Http1>> {
        if http1.behind.running() > 0 || !http1.inbox.borrow().is_empty() {
            return Err(http1);
        }
        let (transport, connection, seat) = Rc::try_unwrap(http1)?.carrier.into_parts();
        match transport.into_socket() {
            Ok(socket) => Ok(Quiet {
                socket: socket.into_fd(),
                connection,
                seat,
            }),
            Err(transport) => {
                let carrier = Carrier::new(connection, transport, seat);
                Err(Rc::new(Http1::new(carrier)))
            }
        }
    }

    /// True when the client has sent something.
    pub fn has_unread(&self) -> bool {
        socket::has_unread(self.as_fd())
    }

    /// Puts the connection on the event loop again.
    pub fn wake(self) -> io::Result<Http1> {
        let transport = Transport::Plain(Socket::accepted(self.socket)?);
        Ok(Http1::new(Carrier::new(
            self.connection,
            transport,
            self.seat,
        )))
    }
}

impl AsFd for Quiet {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
