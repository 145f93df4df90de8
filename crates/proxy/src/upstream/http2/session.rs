//! An HTTP/2 connection to a peer: the engine, its times, and what it has written.
//!
//! While it is idle the peer may still speak: settings, signs of life, a farewell. They are read
//! when somebody looks at the connection ([`hear`]), and can never be taken for an answer, since
//! those have numbers.

use std::io;
use std::task::{Context, Poll, Waker, ready};

use bytes::BytesMut;
use millpond_system::clock::{self, Instant};
use millpond_system::socket::More;
use millpond_system::transport::Transport;
use millpond_wire::head::Limits;
use millpond_wire::http2::{Code, Config, Connection as Engine, Event, Role};

use super::super::connect::Connection;
use super::super::send::HEAD_READ;

/// Bytes that may be on their way, of a stream and of a connection: what a kernel receives at most
/// by default, so that the socket slows a peer down and not a window. None of them are held here.
const WINDOW: u32 = 6 << 20;
/// Bytes of a stream that shares its connection: so many are held for one that nobody reads
/// (arbitrary: what a fast client takes in a few milliseconds).
const SHARED_WINDOW: u32 = 256 * 1024;
/// Bytes of a request's body that wait for the socket (arbitrary: a few of its usual reads).
const SEND_BUFFER: usize = 64 * 1024;
/// Bytes that are framed at once (arbitrary: the same).
const SENT_AT_ONCE: usize = 64 * 1024;
/// Longest frame of DATA that is written: the default of what peers take (RFC 9113 §6.5.2).
const CHUNK_LEN: usize = 16 * 1024;
/// Longest frame that is read: the default.
const FRAME_LEN: u32 = 16 * 1024;
/// Reads of what an idle peer has said (arbitrary: more than an honest one says in a second).
const LOOKS: usize = 4;

/// A connection's state.
pub struct Session {
    pub(super) engine: Engine,
    began: Instant,
    /// Code of the peer's farewell, once it said one.
    farewell: Option<Code>,
    is_broken: bool,
    written: u64,
    longest_head: usize,
}

impl Session {
    /// The state of a connection that was just made.
    pub fn new() -> Self {
        Session::with(Config {
            connection_window: WINDOW,
            stream_window: WINDOW,
            ..Config::default()
        })
    }

    /// The state of a connection that so many streams share. A slow one closes its own window only,
    /// and holds no more than that.
    pub fn shared(streams: u32) -> Self {
        Session::with(Config {
            connection_window: SHARED_WINDOW.saturating_mul(streams),
            stream_window: SHARED_WINDOW,
            // Of ours the peer may refuse or reset as many as of others.
            max_concurrent_streams: streams.max(Config::default().max_concurrent_streams),
            ..Config::default()
        })
    }

    fn with(windows: Config) -> Self {
        let config = Config {
            // nginx: nothing of an answer's fields is kept for the next one.
            table_size: 0,
            max_frame_len: FRAME_LEN,
            chunk_len: CHUNK_LEN,
            send_buffer: SEND_BUFFER,
            ..windows
        };
        Session {
            engine: Engine::new(Role::Client, config),
            began: clock::instant(),
            farewell: None,
            is_broken: false,
            written: 0,
            longest_head: 0,
        }
    }

    /// True if another request may be sent.
    pub fn may_carry_another(&self) -> bool {
        !self.is_broken && self.farewell.is_none() && self.engine.may_open()
    }

    /// Code of the peer's farewell.
    pub(super) fn farewell(&self) -> Code {
        self.farewell.unwrap_or(Code::NO_ERROR)
    }

    /// Bytes that were written since the connection began.
    pub(super) fn written(&self) -> u64 {
        self.written
    }

    /// Bounds the heads that are read to so many bytes.
    pub(super) fn bound_heads(&mut self, most: usize) {
        self.engine.set_head_limits(Limits {
            line: most,
            total: most,
            ..Limits::default()
        });
    }

    /// Bounds the heads that are read to the most that any of its streams bears.
    pub(super) fn bear_heads(&mut self, most: usize) {
        self.longest_head = self.longest_head.max(most);
        self.bound_heads(self.longest_head);
    }

    /// True while more may be read: not too much waits to be written.
    pub(super) fn wants_input(&self) -> bool {
        self.engine.wants_input()
    }

    /// Gives memory back that an idle connection does not need.
    pub fn rest(&mut self) {
        self.engine.rest();
    }

    /// The next thing that has happened, as far as the bytes of `inbox` say.
    pub(super) fn next_event(&mut self, inbox: &mut BytesMut) -> Option<Event> {
        let now = clock::instant().saturating_duration_since(self.began);
        let event = self.engine.next_event(inbox, now);
        match &event {
            Some(Event::GoneAway { code, .. }) => self.farewell = Some(*code),
            Some(Event::Failed(_)) => self.is_broken = true,
            _ => {}
        }
        event
    }

    /// Writes what is to be written; ready when nothing is left of it.
    pub(super) fn poll_flush(
        &mut self,
        cx: &mut Context<'_>,
        socket: &Transport,
    ) -> Poll<io::Result<()>> {
        loop {
            self.engine.produce(SENT_AT_ONCE);
            let output = self.engine.output();
            if output.is_empty() {
                return Poll::Ready(Ok(()));
            }
            let written = output.poll_write(|slices| socket.poll_send(cx, slices, More::Nothing));
            let sent = ready!(written)?;
            if sent == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.written += sent as u64;
        }
    }

    /// Writes what can be written now. What is left waits for the next request.
    pub(super) fn flush_now(&mut self, socket: &Transport) {
        let mut cx = Context::from_waker(Waker::noop());
        // A socket that fails is found when it is read.
        if let Poll::Ready(Err(_)) = self.poll_flush(&mut cx, socket) {
            self.is_broken = true;
        }
    }
}

impl Default for Session {
    fn default() -> Self {
        Self::new()
    }
}

/// Reads what the peer of an idle connection has said, as far as the event loop has heard; false if
/// the connection is of no use any more.
pub fn hear(connection: &mut Connection) -> bool {
    let Connection {
        socket,
        inbox,
        http2: Some(session),
        ..
    } = connection
    else {
        return false;
    };
    let mut cx = Context::from_waker(Waker::noop());
    for _ in 0..LOOKS {
        inbox.reserve(HEAD_READ / 4);
        match socket.poll_recv(&mut cx, inbox) {
            Poll::Pending => break,
            Poll::Ready(Ok(1..)) => while session.next_event(inbox).is_some() {},
            Poll::Ready(Ok(0) | Err(_)) => return false,
        }
    }
    session.flush_now(socket);
    session.may_carry_another()
}
