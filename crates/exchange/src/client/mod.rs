//! The client of one request: its address after `real_ip`, its bytes, and the wire to it.
//!
//! ```text
//! Connection   facts that last: addresses, number, when it was accepted
//!    ▲
//! Client       one for each request: its address, its bytes
//!    │
//!    ▼
//! Wire         the way its bytes go: none, HTTP/1, or a stream of a connection that has several
//! ```
//!
//! Subrequests and evaluations for a request share its client. Work that goes on behind a request
//! (an update of the cache, a mirrored request) has a client of its own, without a wire
//! ([`Client::detached`]): it stays that client's, whoever asks next on the same connection.

pub mod agreed;
pub mod body;
pub mod carrier;
pub mod connection;
pub mod http1;
pub mod send;
pub mod wire;

use std::cell::{Cell, RefCell};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use millpond_system::address::Address;
use millpond_system::clock::{self, Instant};

use self::body::Remains;
use self::connection::Connection;
use self::http1::Http1;
use self::http1::behind::Task;
use self::wire::{Broken, Stream, Wire};
use crate::failure::ClientGone;
use crate::failure::Failure;
use millpond_wire::header::Fields;
use millpond_wire::http1::Version;
use millpond_wire::http1::request::RequestHead;

/// A head that has come.
pub struct Came {
    /// The head.
    pub head: Rc<RequestHead>,
    /// The time of its first byte.
    pub started: Instant,
    /// The time when all of it was there.
    pub at: Instant,
    /// True when it was sent before the answer to the request before it.
    pub is_pipelined: bool,
}

/// The client of one request.
pub struct Client {
    /// The connection that the request came on.
    pub connection: Rc<Connection>,
    /// The peer's address, or the one that `real_ip_header` put in its place.
    pub remote: RefCell<Address>,
    /// Bytes of the request received so far (`$request_length`).
    pub request_bytes: Cell<u64>,
    /// Number of the request on its connection, from 1 (`$connection_requests`).
    pub number: u32,
    /// True when the request was sent before the answer to the one before it (`$pipe`).
    pub is_pipelined: bool,
    /// The way to the client.
    pub wire: Wire,
}

impl Client {
    /// The client of the next request of a connection.
    pub fn next(connection: Rc<Connection>, wire: Wire, came: &Came) -> Self {
        Client {
            remote: RefCell::new(connection.peer.clone()),
            request_bytes: Cell::new(came.head.head_len() as u64),
            number: connection.count_request(),
            is_pipelined: came.is_pipelined,
            connection,
            wire,
        }
    }

    /// Becomes the client of the next request, after one of which nothing is left.
    pub fn begin_anew(&mut self, came: &Came) {
        let remote = self.remote.get_mut();
        if *remote != self.connection.peer {
            remote.clone_from(&self.connection.peer);
        }
        self.request_bytes.set(came.head.head_len() as u64);
        self.number = self.connection.count_request();
        self.is_pipelined = came.is_pipelined;
    }

    /// The same client as it is now, for work that it does not wait for.
    pub fn detached(&self) -> Rc<Client> {
        Rc::new(Client {
            connection: Rc::clone(&self.connection),
            remote: self.remote.clone(),
            request_bytes: self.request_bytes.clone(),
            number: self.number,
            is_pipelined: self.is_pipelined,
            wire: Wire::None,
        })
    }

    /// HTTP/1's state of its connection, if that is what it speaks.
    pub fn http1(&self) -> Option<&Rc<Http1>> {
        match &self.wire {
            Wire::Http1(http1) => Some(http1),
            Wire::None | Wire::Stream(_) => None,
        }
    }

    /// Waits until the client has left.
    pub fn left(&self) -> Left<'_> {
        match &self.wire {
            Wire::None => Left::Socket(carrier::Left::never()),
            Wire::Http1(http1) => Left::Socket(http1.left()),
            Wire::Stream(stream) => Left::Stream(stream),
        }
    }

    /// Waits, unless the client leaves meanwhile.
    pub async fn pause(&self, duration: Duration) -> Result<(), ClientGone> {
        tokio::select! {
            () = clock::pause(duration) => Ok(()),
            () = self.left() => Err(ClientGone::Closed),
        }
    }

    /// True when nothing of the request's body is still to come.
    pub fn is_body_done(&self) -> bool {
        match &self.wire {
            Wire::None => true,
            Wire::Http1(http1) => http1.is_body_done(),
            Wire::Stream(stream) => stream.is_body_done(),
        }
    }

    /// The next bytes of the request's body, within `timeout`; empty at the end.
    ///
    /// The client is asked for its body before it is waited for.
    pub async fn next_chunk(&self, timeout: Duration) -> Result<Bytes, Failure> {
        match &self.wire {
            Wire::None => Ok(Bytes::new()),
            Wire::Http1(http1) => http1.next_chunk(&self.request_bytes, timeout).await,
            Wire::Stream(stream) => {
                let chunk = Box::pin(stream.next_chunk(timeout)).await?;
                self.count_received(chunk.len());
                Ok(chunk)
            }
        }
    }

    /// The part of the request's body that has come, up to about `max` bytes, without waiting; and
    /// whether that is all of it.
    pub fn take_ready(&self, max: usize) -> Result<(Bytes, Remains), Failure> {
        match &self.wire {
            Wire::None => Ok((Bytes::new(), Remains::Nothing)),
            Wire::Http1(http1) => http1.take_ready(&self.request_bytes, max),
            Wire::Stream(stream) => {
                let mut ready = BytesMut::new();
                let remains = stream.take_ready(&mut ready, max)?;
                self.count_received(ready.len());
                Ok((ready.freeze(), remains))
            }
        }
    }

    /// Throws away the part that has come of a body that nobody will read, before the answer is
    /// made: a fault in it is then answered, and not found only when the answer is on its way. A
    /// body that the client was not asked for stays: its connection ends with the answer.
    pub fn discard_ready(&self) -> Result<(), Failure> {
        let counted = self.request_bytes.get();
        let outcome = match &self.wire {
            Wire::Http1(http1) => http1.discard_ready(&self.request_bytes),
            // A stream that is answered early is reset behind its answer.
            Wire::None | Wire::Stream(_) => Ok(()),
        };
        // nginx: a body that is thrown away is no part of `$request_length`.
        self.request_bytes.set(counted);
        outcome
    }

    /// Has nothing more of the request's body be read.
    pub fn forget_body(&self) {
        if let Wire::Http1(http1) = &self.wire {
            http1.forget_body();
        }
    }

    /// Asks for the request's body, if the client waits to be asked (RFC 9110 §10.1.1).
    pub async fn ask_for_body(&self) -> Result<(), Failure> {
        match &self.wire {
            Wire::Http1(http1) => http1.ask_for_body().await,
            Wire::None | Wire::Stream(_) => Ok(()),
        }
    }

    /// True while the client waits to be asked for its body.
    pub fn waits_to_be_asked(&self) -> bool {
        self.http1().is_some_and(|http1| http1.waits_to_be_asked())
    }

    /// True when the client understands interim answers; `version` is its request's.
    pub fn takes_interim(&self, version: Version) -> bool {
        match &self.wire {
            Wire::None => false,
            Wire::Http1(_) => version == Version::Http11,
            Wire::Stream(_) => true,
        }
    }

    /// Sends an interim answer; one that cannot be sent at once is dropped. The client gets
    /// `timeout` to take the rest of one that it took in part.
    pub async fn inform(&self, status: u16, fields: &Fields, timeout: Duration) {
        match &self.wire {
            Wire::None => {}
            Wire::Http1(http1) => http1.inform(status, fields, timeout).await,
            Wire::Stream(stream) => stream.inform(status, fields),
        }
    }

    /// True when the connection may bring another request after this one.
    pub fn keeps_connection(&self) -> bool {
        match &self.wire {
            Wire::None => false,
            Wire::Http1(http1) => http1.keep_alive.get(),
            Wire::Stream(_) => true,
        }
    }

    /// Has the connection end with the answer, where it brings one request at a time.
    pub fn end_connection(&self) {
        if let Wire::Http1(http1) = &self.wire {
            http1.keep_alive.set(false);
        }
    }

    /// Has nothing of the answer stay in the kernel: `reset_timedout_connection`.
    pub fn reset(&self) {
        match &self.wire {
            Wire::None => {}
            Wire::Http1(http1) => http1.transport.reset_on_close(),
            Wire::Stream(stream) => stream.reset(Broken::Failed),
        }
    }

    /// A share in the work that goes on behind the connection's requests, where its close waits for
    /// that.
    pub fn begin_behind(&self) -> Option<Task> {
        self.http1().map(|http1| Task::begin(http1))
    }

    fn count_received(&self, count: usize) {
        let received = self.request_bytes.get() + count as u64;
        self.request_bytes.set(received);
    }
}

/// A wait for the client to leave.
pub enum Left<'a> {
    /// The end of an HTTP/1 connection; none where nobody can be seen to leave.
    Socket(carrier::Left<'a>),
    /// The end of a stream.
    Stream(&'a Rc<dyn Stream>),
}

impl Future for Left<'_> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        match self.get_mut() {
            Left::Socket(left) => Pin::new(left).poll(cx),
            Left::Stream(stream) => stream.poll_left(cx),
        }
    }
}
