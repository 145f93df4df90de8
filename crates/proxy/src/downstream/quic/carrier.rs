//! A connection as those see it who bring requests on it: its streams, and its end.
//!
//! Invariants:
//! 1. Streams are read in order, and what is not read holds the client back by QUIC's windows.
//! 2. Clients are told of the end of a connection, also when its task is ended from outside
//!    (`worker_shutdown_timeout`).

use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::task::{Context, Poll};

use bytes::Bytes;
use millpond_system::clock;
use millpond_system::timer::Timer;
use millpond_wire::http3::{Chatter, Code, Transport, Unsent};
use quinn_proto::{
    ConnectionError, Dir, Event, ReadError, StreamEvent as Happened, StreamId, VarInt, WriteError,
};

use super::canonical;
use super::link::Link;
use millpond_exchange::client::connection::Connection;

/// H3_NO_ERROR (RFC 9114 §8.1).
pub(super) const NO_ERROR: u64 = 0x100;

/// A connection whose client is known, and whose handshake is over unless it brings early data.
pub(crate) struct QuicCarrier {
    /// Facts about it.
    pub(crate) connection: Rc<Connection>,
    /// The connection's one timer.
    pub(crate) timer: Timer,
    pub(super) link: Rc<Link>,
    /// Streams that were stopped before anybody looked at streams, with the codes: each is told of
    /// once.
    stopped: RefCell<Vec<(u64, u64)>>,
}

/// News of the streams, and of the handshake where that goes on beside them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StreamEvent {
    /// The handshake is over.
    Established,
    /// Streams of the client that [`QuicCarrier::accept`] has.
    Opened(Dir),
    /// Something to read.
    Readable(u64),
    /// Room to send.
    Writable(u64),
    /// The client wants nothing more, for the reason with this code.
    Stopped(u64, u64),
    /// The client has everything, and its end.
    Finished(u64),
    /// The client takes more streams of ours.
    Available(Dir),
}

/// The outcome of a read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Read {
    /// The next bytes.
    Bytes(Bytes),
    /// The end.
    End,
    /// The client has broken off, with this code.
    Reset(u64),
    /// Nothing, as yet.
    Blocked,
    /// The stream is over, or was never there.
    Gone,
}

/// The reason for which a connection is over.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Lost(pub(super) ConnectionError);

/// Sends on streams; what was written goes out together.
pub(crate) struct Sender<'a>(&'a mut quinn_proto::Connection);

impl QuicCarrier {
    pub(super) fn new(connection: Rc<Connection>, link: Rc<Link>) -> Self {
        QuicCarrier {
            connection,
            timer: Timer::new(),
            link,
            stopped: RefCell::default(),
        }
    }

    /// Keeps news of a stream that came while the handshake was waited for. That there is a stream,
    /// and something to read, is seen later; that it was stopped is not.
    pub(super) fn keep(&self, event: Happened) {
        if let Happened::Stopped { id, error_code } = event {
            let stopped = (id.into(), error_code.into_inner());
            self.stopped.borrow_mut().push(stopped);
        }
    }

    /// The next news; to be asked until there is none.
    pub(crate) fn poll_event(&self, cx: &Context<'_>) -> Poll<Result<StreamEvent, Lost>> {
        if let Some((stream, code)) = self.stopped.borrow_mut().pop() {
            return Poll::Ready(Ok(StreamEvent::Stopped(stream, code)));
        }
        loop {
            let event = self.link.drive(quinn_proto::Connection::poll);
            let Some(event) = event else {
                if self.link.look(quinn_proto::Connection::is_drained) {
                    return Poll::Ready(Err(Lost(ConnectionError::LocallyClosed)));
                }
                self.link.register(cx);
                return Poll::Pending;
            };
            match event {
                Event::Connected => return Poll::Ready(Ok(StreamEvent::Established)),
                Event::Stream(event) => return Poll::Ready(Ok(told(event))),
                Event::ConnectionLost { reason } => return Poll::Ready(Err(Lost(reason))),
                _ => {}
            }
        }
    }

    /// The next stream that the client has opened.
    pub(crate) fn accept(&self, dir: Dir) -> Option<u64> {
        let id = self.link.change(|machine| machine.streams().accept(dir))?;
        Some(id.into())
    }

    /// Opens a stream on which only we send, if the client lets us.
    pub(crate) fn open_uni(&self) -> Option<u64> {
        let id = self
            .link
            .change(|machine| machine.streams().open(Dir::Uni))?;
        Some(id.into())
    }

    /// Reads from a stream, `most` bytes at most. INVARIANT 1.
    pub(crate) fn read(&self, stream: u64, most: usize) -> Read {
        let Some(id) = id(stream) else {
            return Read::Gone;
        };
        let (read, must_tell) = self.link.drive(|machine| {
            let mut stream = machine.recv_stream(id);
            let Ok(mut chunks) = stream.read(true) else {
                return (Read::Gone, false);
            };
            let read = match chunks.next(most) {
                Ok(Some(chunk)) => Read::Bytes(chunk.bytes),
                Ok(None) => Read::End,
                Err(ReadError::Blocked) => Read::Blocked,
                Err(ReadError::Reset(code)) => Read::Reset(code.into_inner()),
            };
            (read, chunks.finalize().should_transmit())
        });
        if must_tell {
            self.link.change(|_| ());
        }
        read
    }

    /// Sends; the endpoint takes it away after this task's turn.
    pub(crate) fn send<T>(&self, work: impl FnOnce(&mut Sender<'_>) -> T) -> T {
        self.link.change(|machine| work(&mut Sender(machine)))
    }

    /// The client's address now: it may have changed since the connection began (RFC 9000 §9).
    pub(crate) fn peer(&self) -> SocketAddr {
        let now = self.link.look(quinn_proto::Connection::remote_address);
        canonical(now)
    }

    /// The frames of QUIC that have come and were answered.
    pub(crate) fn chatter(&self) -> Chatter {
        let frames = self.link.look(quinn_proto::Connection::stats).frame_rx;
        Chatter {
            pings: frames.ping + frames.path_challenge,
            identifiers: frames.new_connection_id + frames.retire_connection_id,
        }
    }

    /// Ends the connection with a code of the protocol inside.
    pub(crate) fn close(&self, code: u64, reason: &[u8]) {
        let code = VarInt::from_u64(code).unwrap_or(VarInt::MAX);
        let reason = Bytes::copy_from_slice(reason);
        let now = clock::instant().into_std();
        self.link.change(|machine| machine.close(now, code, reason));
    }

    /// Waits until the endpoint has sent what there is to be sent now.
    pub(crate) async fn flushed(&self) {
        std::future::poll_fn(|cx| self.link.poll_flushed(cx)).await;
    }
}

/// INVARIANT 2.
impl Drop for QuicCarrier {
    fn drop(&mut self) {
        self.close(NO_ERROR, b"");
    }
}

impl Transport for Sender<'_> {
    fn send(&mut self, stream: u64, pieces: &mut [Bytes]) -> Result<usize, Unsent> {
        let id = id(stream).ok_or(Unsent::Gone)?;
        let mut taken = 0;
        // QUIC tells of room only to those who were told that there is none.
        loop {
            match self.0.send_stream(id).write_chunks(pieces) {
                Ok(written) => taken += written.bytes,
                Err(_) if taken > 0 => return Ok(taken),
                Err(WriteError::Blocked) => return Err(Unsent::Blocked),
                Err(WriteError::Stopped(_) | WriteError::ClosedStream) => {
                    return Err(Unsent::Gone);
                }
            }
            if pieces.iter().all(Bytes::is_empty) {
                return Ok(taken);
            }
        }
    }

    fn finish(&mut self, stream: u64) {
        if let Some(id) = id(stream) {
            // One that is over needs no end.
            let _ = self.0.send_stream(id).finish();
        }
    }

    fn reset(&mut self, stream: u64, code: Code) {
        if let (Some(id), Ok(code)) = (id(stream), VarInt::from_u64(code.0)) {
            // One that is over cannot be broken off.
            let _ = self.0.send_stream(id).reset(code);
        }
    }

    fn stop(&mut self, stream: u64, code: Code) {
        if let (Some(id), Ok(code)) = (id(stream), VarInt::from_u64(code.0)) {
            // One that is over brings nothing.
            let _ = self.0.recv_stream(id).stop(code);
        }
    }
}

fn id(stream: u64) -> Option<StreamId> {
    VarInt::from_u64(stream).ok().map(StreamId::from)
}

fn told(event: Happened) -> StreamEvent {
    match event {
        Happened::Opened { dir } => StreamEvent::Opened(dir),
        Happened::Readable { id } => StreamEvent::Readable(id.into()),
        Happened::Writable { id } => StreamEvent::Writable(id.into()),
        Happened::Stopped { id, error_code } => {
            StreamEvent::Stopped(id.into(), error_code.into_inner())
        }
        Happened::Finished { id } => StreamEvent::Finished(id.into()),
        Happened::Available { dir } => StreamEvent::Available(dir),
    }
}
