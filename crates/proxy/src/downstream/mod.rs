//! The client's side: listeners, connections, request bodies in, answers out.
//!
//! A connection is one task on one worker ([`connection`]). [`Downstream`] is what the task shares
//! with the request that it is serving.

pub mod address;
pub(crate) mod arrival;
pub mod behind;
pub mod body;
pub mod connection;
pub(crate) mod exchange;
pub mod listener;
pub mod proxy_protocol;
pub mod timer;
pub mod writer;

use std::cell::{Cell, OnceCell, RefCell};
use std::io;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::BytesMut;

use crate::clock::{self, Instant};
use crate::socket::Socket;
use crate::worker::Generation;

use address::Address;
use behind::Behind;
use body::Incoming;
use proxy_protocol::Told;
use timer::Timer;

/// A client's connection, as its requests see it.
pub struct Downstream {
    /// The socket.
    pub socket: Socket,
    /// Bytes received and not yet consumed.
    pub inbox: RefCell<BytesMut>,
    /// The body of the current request, as far as it is still to come.
    pub incoming: RefCell<Incoming>,
    /// The connection's one timer.
    pub timer: Timer,
    /// The client's address, or the one that `real_ip_header` put in its place.
    pub remote: RefCell<Address>,
    /// The client's address as the kernel knows it.
    pub peer: Address,
    /// The address it connected to.
    pub local: Address,
    /// What a balancer said of the connection, if it did.
    pub told: OnceCell<Box<Told>>,
    /// Number of the connection, counted from 1 over all workers (`$connection`).
    pub number: u64,
    /// When it was accepted.
    pub accepted: Instant,
    /// Requests so far, this one included (`$connection_requests`).
    pub requests: Cell<u32>,
    /// When the current request's first byte was there.
    pub request_started: Cell<Instant>,
    /// Bytes of the current request received so far (`$request_length`).
    pub request_bytes: Cell<u64>,
    /// True when several requests were sent without waiting (`$pipe`).
    pub is_pipelined: Cell<bool>,
    /// True while the client waits for `100 Continue` before it sends its body.
    pub wants_continue: Cell<bool>,
    /// What goes on behind its requests.
    pub behind: Rc<Behind>,
    /// The worker and configuration that serve it.
    pub generation: Rc<Generation>,
}

/// Bytes of the buffer that requests arrive in, and so the most that a request that takes long may
/// keep of it: some heads of the usual length, and most of those with cookies.
const ARRIVAL: usize = 4 * 1024;

impl Downstream {
    /// Reads the begin of a request, of which nothing is there yet, into the inbox; 0 at the
    /// client's end of stream. At least `size` bytes are asked for, within reason.
    ///
    /// While there is nothing, the connection holds no memory for it.
    pub fn poll_arrival(&self, cx: &mut Context<'_>, size: usize) -> Poll<io::Result<usize>> {
        let mut inbox = self.inbox.borrow_mut();
        if inbox.capacity() > 0 {
            *inbox = BytesMut::new();
        }
        let mut arrivals = self.generation.worker.arrivals.borrow_mut();
        if arrivals.capacity() < size.clamp(256, ARRIVAL) {
            arrivals.reserve(ARRIVAL);
        }
        let count = ready!(self.socket.poll_recv(cx, &mut arrivals))?;
        *inbox = arrivals.split();
        Poll::Ready(Ok(count))
    }

    /// Reads more bytes into the inbox within `timeout`.
    ///
    /// Returns false at the client's end of stream.
    pub async fn fill_inbox(&self, size: usize, timeout: Duration) -> Result<bool, ClientGone> {
        let read = std::future::poll_fn(|cx| {
            let mut inbox = self.inbox.borrow_mut();
            if inbox.capacity() == inbox.len() {
                inbox.reserve(size);
            }
            self.socket.poll_recv(cx, &mut inbox)
        });
        match self.timer.guard_for(timeout, read).await {
            Ok(Ok(count)) => Ok(count > 0),
            Ok(Err(error)) => Err(ClientGone::Io(error)),
            Err(_) => Err(ClientGone::TimedOut),
        }
    }
}

impl Downstream {
    /// Waits, unless the client leaves meanwhile.
    ///
    /// A client that has sent more than was read is not watched: its end could not be seen behind
    /// that.
    pub async fn pause(&self, duration: Duration) -> Result<(), ClientGone> {
        tokio::select! {
            () = clock::pause(duration) => Ok(()),
            () = self.left() => Err(ClientGone::Closed),
        }
    }

    /// Waits until the client has closed its side.
    pub async fn left(&self) {
        // Whatever the socket says, there is no second wait: readable bytes would end it at once.
        let _ = std::future::poll_fn(|cx| self.socket.poll_readable(cx)).await;
        if !self.socket.is_closed_by_peer() {
            std::future::pending::<()>().await;
        }
    }
}

/// Why a client cannot be served further.
#[derive(Debug, thiserror::Error)]
pub enum ClientGone {
    /// It was silent for too long.
    #[error("client timed out")]
    TimedOut,
    /// It closed the connection before the end of its request.
    #[error("client prematurely closed connection")]
    Closed,
    /// The socket failed.
    #[error("client connection failed: {0}")]
    Io(std::io::Error),
}
