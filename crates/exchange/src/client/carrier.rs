//! A client's connection as bytes: its transport, and what has come on it and was not read.
//!
//! It begins before anybody knows which protocol is spoken, and serves the one that is.

use std::cell::RefCell;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::BytesMut;
use millpond_system::clock;
use millpond_system::quota::{Seat, Waiting};
use millpond_system::timer::Timer;
use millpond_system::transport::Transport;

use super::connection::Connection;
use crate::failure::ClientGone;
use crate::worker::Member;

/// Bytes of the buffer that requests arrive in, and so the most that a request that takes long may
/// keep of it: some heads of the usual length, and most of those with cookies.
const ARRIVAL: usize = 4 * 1024;

/// Bytes asked of the socket at once where the first buffer is not enough.
pub const LARGE_READ: usize = 16 * 1024;

/// Time for which a connection that has just been answered, or accepted, is kept when its
/// generation closes: its client was told that it may go on, and its next request may be on the
/// way. (200 ms: more than most round trips; a process that ends is hardly kept by it.)
pub const CLOSING_GRACE: Duration = Duration::from_millis(200);

/// A connection's bytes.
pub struct Carrier {
    /// Facts about it.
    pub connection: Rc<Connection>,
    /// The way of its bytes.
    pub transport: Transport,
    /// Bytes received and not yet consumed.
    pub inbox: RefCell<BytesMut>,
    /// The connection's one timer.
    pub timer: Timer,
    /// Its place among the worker's connections, for as long as the socket is open.
    seat: Option<Seat>,
}

/// A wait for the end of a client's side.
///
/// A client that has sent more than was read is not watched any more: its end could not be seen
/// behind that.
pub struct Left<'a>(Option<&'a Carrier>);

impl Left<'_> {
    /// A wait without an end.
    pub fn never() -> Self {
        Left(None)
    }
}

impl Future for Left<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let Some(carrier) = self.0 else {
            return Poll::Pending;
        };
        if ready!(carrier.transport.poll_gone(cx)) {
            return Poll::Ready(());
        }
        // There is no second wait: bytes that are there would end it at once.
        self.0 = None;
        Poll::Pending
    }
}

impl Carrier {
    /// A connection that was accepted, before its first byte.
    pub fn new(connection: Rc<Connection>, transport: Transport, seat: Option<Seat>) -> Self {
        Carrier {
            connection,
            transport,
            inbox: RefCell::default(),
            timer: Timer::new(),
            seat,
        }
    }

    /// The connection without its timer, and without bytes that were not read.
    pub(super) fn into_parts(self) -> (Transport, Rc<Connection>, Option<Seat>) {
        (self.transport, self.connection, self.seat)
    }

    /// Reads the begin of a request, of which nothing is there yet, into the inbox; 0 at the
    /// client's end of stream. At least `size` bytes are asked for, within reason.
    ///
    /// While there is nothing, the connection holds no memory for it.
    pub fn poll_arrival(&self, cx: &mut Context<'_>, size: usize) -> Poll<io::Result<usize>> {
        let mut inbox = self.inbox.borrow_mut();
        if inbox.capacity() > 0 {
            *inbox = BytesMut::new();
        }
        let mut arrivals = self.connection.generation.worker.arrivals.borrow_mut();
        if arrivals.capacity() < size.clamp(256, ARRIVAL) {
            arrivals.reserve(ARRIVAL);
        }
        let count = ready!(self.transport.poll_recv(cx, &mut arrivals))?;
        *inbox = arrivals.split();
        Poll::Ready(Ok(count))
    }

    /// Reads more bytes into the inbox within `timeout`.
    ///
    /// Returns false at the client's end of stream.
    pub(crate) async fn fill_inbox(
        &self,
        size: usize,
        timeout: Duration,
    ) -> Result<bool, ClientGone> {
        let read = std::future::poll_fn(|cx| {
            let mut inbox = self.inbox.borrow_mut();
            if inbox.capacity() == inbox.len() {
                inbox.reserve(size);
            }
            self.transport.poll_recv(cx, &mut inbox)
        });
        match self.timer.guard_for(timeout, read).await {
            Ok(Ok(count)) => Ok(count > 0),
            Ok(Err(error)) => Err(ClientGone::Io(error)),
            Err(_) => Err(ClientGone::TimedOut),
        }
    }

    /// Waits until the client has closed its side.
    pub fn left(&self) -> Left<'_> {
        Left(Some(self))
    }

    /// True when the client has sent more than was read.
    pub fn has_unread(&self) -> bool {
        !self.inbox.borrow().is_empty() || self.transport.has_unread()
    }
}

/// Ends the sending side and reads on for a while, so that the client can read the answer before a
/// reset.
pub async fn linger(carrier: &Carrier, member: &Member, time: Duration, timeout: Duration) {
    carrier.transport.shutdown_write();
    carrier
        .connection
        .waiting
        .set(Waiting::Idle(clock::instant()));
    let displaced = std::future::poll_fn(|cx| {
        member.register(cx.waker());
        if carrier.connection.is_displaced.get() {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    });
    let ended = drain(carrier, time, timeout);
    tokio::select! {
        biased;
        () = displaced => carrier.connection.count_displaced(),
        () = ended => {}
    }
}

/// Reads what a client sends that will get no more answers.
async fn drain(carrier: &Carrier, time: Duration, timeout: Duration) {
    let end = clock::instant() + time;
    while clock::instant() < end {
        *carrier.inbox.borrow_mut() = BytesMut::new();
        let wait = timeout.min(end.saturating_duration_since(clock::instant()));
        match carrier.fill_inbox(LARGE_READ, wait).await {
            Ok(true) => {}
            _ => return,
        }
    }
}
