//! The carrier of a stream: what its bytes go through, and its events come from.
//!
//! A stream asks its carrier for what has happened to it, gives it what is to be sent, and waits
//! for more. So neither the way to an answer's head nor that of its body knows whose connection it
//! is.

use std::io;
use std::task::{Context, Poll};

use bytes::Bytes;
use millpond_system::timer::Timer;
use millpond_wire::http2::{Code, Connection as Engine, Event};

use super::super::connect::Connection;
use super::super::group::Group;
use super::super::peer::Peer;
use super::super::send::HEAD_READ;
use super::line::LineStream;

/// The carrier of a stream, and of answers that have none.
pub enum Carrier {
    /// A connection that is the exchange's alone.
    Own(Box<Connection>),
    /// A place on a connection that others share.
    Shared(Box<LineStream>),
}

impl Carrier {
    /// The connection, if it is the exchange's alone.
    pub fn own(&mut self) -> Option<&mut Connection> {
        match self {
            Carrier::Own(connection) => Some(connection),
            Carrier::Shared(_) => None,
        }
    }

    /// True if others share the connection.
    pub fn is_shared(&self) -> bool {
        matches!(self, Carrier::Shared(_))
    }

    /// The group and the peer that are asked.
    pub fn asked(&self) -> (&Group, &Peer) {
        match self {
            Carrier::Own(connection) => (&connection.group, &connection.peer),
            Carrier::Shared(stream) => stream.asked(),
        }
    }

    /// The timer of the exchange.
    pub fn timer(&self) -> &Timer {
        match self {
            Carrier::Own(connection) => &connection.timer,
            Carrier::Shared(stream) => stream.timer(),
        }
    }

    /// Opens a stream whose heads have `max` bytes at most; none if the peer lets none be opened.
    pub(super) fn open(
        &mut self,
        max: usize,
        open: impl FnOnce(&mut Engine) -> Option<u32>,
    ) -> Option<u32> {
        match self {
            Carrier::Own(connection) => {
                connection.requests += 1;
                let session = connection.http2.as_mut()?;
                session.bound_heads(max);
                open(&mut session.engine)
            }
            Carrier::Shared(place) => place.open(max, open),
        }
    }

    /// The next thing that has happened to a stream, or to its connection as a whole.
    pub(super) fn next_event(&mut self, stream: u32) -> Option<Event> {
        match self {
            Carrier::Own(connection) => {
                let session = connection.http2.as_mut()?;
                loop {
                    let event = session.next_event(&mut connection.inbox)?;
                    if event.stream().is_none_or(|id| id == stream) {
                        return Some(event);
                    }
                }
            }
            Carrier::Shared(place) => place.next_event(),
        }
    }

    /// Reads more of an answer's head: the number of bytes, 0 at the end.
    pub(super) fn poll_head(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        match self {
            Carrier::Own(connection) => {
                let inbox = &mut connection.inbox;
                if inbox.capacity() - inbox.len() < HEAD_READ / 4 {
                    inbox.reserve(HEAD_READ);
                }
                connection.socket.poll_recv(cx, inbox)
            }
            Carrier::Shared(stream) => stream.poll_more(cx),
        }
    }

    /// Writes what is to be written; ready when nothing is left of it. What is shared is written
    /// by a task of its own, which is never waited for.
    pub(super) fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Carrier::Own(connection) => match &mut connection.http2 {
                Some(session) => session.poll_flush(cx, &connection.socket),
                None => Poll::Ready(Ok(())),
            },
            Carrier::Shared(stream) => {
                stream.flush();
                Poll::Pending
            }
        }
    }

    /// Writes what can be written now.
    pub(super) fn flush_now(&mut self) {
        match self {
            Carrier::Own(connection) => {
                if let Some(session) = &mut connection.http2 {
                    session.flush_now(&connection.socket);
                }
            }
            Carrier::Shared(stream) => stream.flush(),
        }
    }

    /// Bytes that were sent so far: only the growth means something.
    pub(super) fn sent(&self) -> u64 {
        match self {
            Carrier::Own(connection) => connection.http2.as_ref().map_or(0, |it| it.written()),
            Carrier::Shared(stream) => stream.sent(),
        }
    }

    /// Bytes of a stream's head and body that were sent, without words about the connection.
    pub(super) fn sent_of(&mut self, stream: u32) -> u64 {
        let sent = self.engine(|engine| engine.sent_len(stream));
        sent.flatten().unwrap_or(0)
    }

    /// True if some of a request may have gone to the peer, of which so many bytes were just sent.
    pub(super) fn was_sent(&self, sent: u64) -> bool {
        match self {
            Carrier::Own(_) => sent > 0,
            Carrier::Shared(stream) => stream.was_sent(),
        }
    }

    /// False for the first request of a shared connection, whose death is the peer's failure. Of
    /// one that is not shared, whoever took it knows.
    pub(super) fn may_be_repeated(&self) -> bool {
        match self {
            Carrier::Own(_) => true,
            Carrier::Shared(stream) => !stream.is_first(),
        }
    }

    /// The peer was silent for too long.
    pub fn note_silence(&self) {
        match self {
            // It is closed.
            Carrier::Own(_) => {}
            Carrier::Shared(stream) => stream.note_silence(),
        }
    }

    /// Code of the peer's farewell.
    pub(super) fn farewell(&self) -> Code {
        match self {
            Carrier::Own(connection) => {
                let session = connection.http2.as_ref();
                session.map_or(Code::NO_ERROR, |session| session.farewell())
            }
            Carrier::Shared(stream) => stream.farewell(),
        }
    }

    /// True if another request may follow the one that has ended.
    pub(super) fn may_carry_another(&self) -> bool {
        match self {
            Carrier::Own(connection) => {
                let session = connection.http2.as_ref();
                connection.inbox.is_empty()
                    && session.is_some_and(|session| session.may_carry_another())
            }
            // The line knows.
            Carrier::Shared(_) => true,
        }
    }

    /// Bytes of a request's body that may be pushed now.
    pub(super) fn room(&mut self, stream: u32) -> usize {
        self.engine(|engine| engine.room(stream)).unwrap_or(0)
    }

    /// Adds a piece to a request's body.
    pub(super) fn push(&mut self, stream: u32, piece: Bytes) {
        self.engine(|engine| engine.push(stream, piece));
    }

    /// Ends a request's body.
    pub(super) fn finish(&mut self, stream: u32) {
        self.engine(|engine| engine.finish(stream, None));
    }

    /// Lets the peer send as many bytes more as were taken.
    pub(super) fn consume(&mut self, stream: u32, len: usize) {
        self.engine(|engine| engine.consume(stream, len));
    }

    /// True if all of a request was written out.
    pub(super) fn is_sent(&mut self, stream: u32) -> bool {
        self.engine(|engine| engine.is_sent(stream)).unwrap_or(true)
    }

    /// Notes that a stream's exchange is over.
    pub(super) fn release(&mut self, stream: u32) {
        self.engine(|engine| engine.release(stream));
    }

    /// Does something with the engine of the connection.
    fn engine<T>(&mut self, act: impl FnOnce(&mut Engine) -> T) -> Option<T> {
        match self {
            Carrier::Own(connection) => {
                let session = connection.http2.as_mut()?;
                Some(act(&mut session.engine))
            }
            Carrier::Shared(stream) => stream.engine(act),
        }
    }
}
