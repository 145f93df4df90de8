//! The body of an upstream's answer, as it arrives.
//!
//! ```text
//! Length(n) | Chunked | UntilClose | Records | Value ──last byte──► Ended (kept or closed)
//!      └── closed early, broken coding, silence ──► error (the connection is closed)
//! ```
//!
//! Invariants:
//! 1. A connection is kept only when the request was sent whole, the answer was read whole, and the
//!    peer agreed.
//! 2. No byte beyond the announced end is handed out; a connection that has more is closed.
//! 3. What was read ahead is bounded by one read, and what waits for a client besides by
//!    `backlog.rs`. A body that comes faster than it is read goes past the inbox, into buffers that
//!    are used again, and never more of it than is announced.
//! 4. Only the time that a peer is waited for counts as its silence, not that in which the client
//!    took nothing.

use std::cell::RefCell;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use millpond_cache::exchange::{Clients, Outcome};
use millpond_system::backlog::Bound;
use millpond_system::body::{Body, BodyError, BodyStream, Piece};
use millpond_system::clock::{self, Instant};
use millpond_system::log::error::Level;
use millpond_system::transport::Transport;
use millpond_wire::fastcgi::answer::{BodyEnd, BodyEvent, StdoutBody};
use millpond_wire::header::Fields;
use millpond_wire::http1::chunked::{ChunkEvent, ChunkedDecoder, Strictness, TrailerLimits};
use millpond_wire::http1::response::Framing;
use millpond_wire::memcached::{BodyEnd as ValueEnd, BodyEvent as ValueEvent, ValueBody};

use super::answer;
use super::connect::Connection;
use super::ended::Ended;
use super::head::BodyPlan;
use super::http2::body::{Part, StreamBody};
use super::http2::carrier::Carrier;
use super::keepalive;
use super::sticky::Lesson;
use crate::log::request_error::RememberedRequest;
use crate::upstream::keepalive::IdlePeers;
use millpond_exchange::failure::{Failure, UpstreamFailure, UpstreamKind};
use millpond_exchange::protocol::Protocol;
use millpond_exchange::response::Switched;
use millpond_exchange::settings::Location;
use millpond_exchange::trace::{Attempt, UpstreamTrace};
use millpond_exchange::worker::Generation;
use millpond_exchange::worker::receive_buffer::BUFFER_SIZE;

/// Bytes asked of the socket at once (arbitrary: several segments of a fast connection).
const READ_SIZE: usize = 64 * 1024;

/// A body on its way.
pub struct UpstreamBody {
    carrier: Option<Carrier>,
    /// Instant at which the connection was last read from; none if that was not noted.
    read_at: Option<Instant>,
    state: State,
    length: Option<u64>,
    may_reuse: bool,
    /// Until when the peer may be silent; set when it is first waited for.
    deadline: Option<Instant>,
    /// Speed at which the body comes, as far as the last read tells.
    pace: Pace,
    context: BodyContext,
    attempt: usize,
    trailers: Option<Fields>,
    /// Location and protocol whose rules choose the trailer fields that are handed out; nobody's,
    /// and none is.
    shows_trailers: Option<(Arc<Location>, Protocol)>,
    lesson: Option<Lesson>,
    /// The memory that it may take, if it is for one client.
    bound: Option<Bound>,
    /// Dropped when the body is given up, whole or not.
    ended: Option<Ended>,
}

/// Amount that the peer had sent when its connection was last read from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pace {
    /// Less than could be read.
    Slow,
    /// At least as many bytes as were asked for.
    Fast,
}

enum State {
    Length(u64),
    Chunked(Box<ChunkedDecoder>),
    UntilClose,
    /// The connection belongs to another protocol now: there is no body.
    Switched,
    Records(Box<StdoutBody>),
    Value(ValueBody),
    Stream(Box<StreamBody>),
    /// A body that comes from elsewhere than a connection.
    Brought(Box<Body>),
    Ended,
}

/// Facts of the request that its body needs.
pub struct BodyContext {
    /// Trace in which the progress of the body is noted.
    pub trace: Rc<RefCell<UpstreamTrace>>,
    /// Instant at which the peer was asked.
    pub started: Instant,
    /// Generation that keeps the connection.
    pub generation: Rc<Generation>,
    /// Time that the peer may be silent.
    pub timeout: Duration,
    /// Log to which messages of an application, and faults of streams, go.
    pub log: Option<RememberedRequest>,
}

impl UpstreamBody {
    /// The body after a head, which came just `now`.
    pub fn new(
        (carrier, now): (Carrier, Instant),
        plan: BodyPlan,
        may_reuse: bool,
        context: BodyContext,
    ) -> Self {
        let is_switched = matches!(plan, BodyPlan::Framed(Framing::Switched));
        let (state, length) = match plan {
            BodyPlan::Framed(Framing::None) => (State::Length(0), None),
            BodyPlan::Framed(Framing::Length(length)) => (State::Length(length), Some(length)),
            BodyPlan::Framed(Framing::Chunked) => {
                let decoder = ChunkedDecoder::new(Strictness::Upstream, TrailerLimits::default());
                (State::Chunked(Box::new(decoder)), None)
            }
            BodyPlan::Framed(Framing::UntilClose) => (State::UntilClose, None),
            BodyPlan::Framed(Framing::Switched) => (State::Switched, None),
            BodyPlan::Records(body) => {
                let length = body.left();
                (State::Records(body), length)
            }
            BodyPlan::Value(body) => {
                let length = Some(body.left());
                (State::Value(body), length)
            }
            BodyPlan::Stream(stream, length) => (State::Stream(stream), length),
        };
        let attempt = context.trace.borrow().attempts.len().saturating_sub(1);
        let mut body = UpstreamBody {
            carrier: Some(carrier),
            read_at: Some(now),
            state,
            length,
            may_reuse: may_reuse && !is_switched,
            deadline: None,
            pace: Pace::Slow,
            context,
            attempt,
            trailers: None,
            shows_trailers: None,
            lesson: None,
            bound: None,
            ended: None,
        };
        if matches!(body.state, State::Length(0)) {
            body.finish();
        }
        body
    }

    /// A body that comes from elsewhere than a connection, for which no peer was tried.
    pub fn brought(body: Body, length: u64, context: BodyContext) -> Self {
        UpstreamBody {
            carrier: None,
            read_at: Some(context.started),
            state: State::Brought(Box::new(body)),
            length: Some(length),
            may_reuse: false,
            deadline: None,
            pace: Pace::Slow,
            context,
            attempt: usize::MAX,
            trailers: None,
            shows_trailers: None,
            lesson: None,
            bound: None,
            ended: None,
        }
    }

    /// Hands out the trailer fields that a location shows; without this only variables see them.
    pub fn show_trailers(&mut self, location: Arc<Location>, protocol: Protocol) {
        self.shows_trailers = Some((location, protocol));
    }

    /// Takes no more memory than that from now on.
    pub fn bound(&mut self, bound: Bound) {
        self.bound = Some(bound);
    }

    /// Length, when announced.
    pub fn length(&self) -> Option<u64> {
        self.length
    }

    /// True when length or coding tell where the body ends.
    pub fn is_delimited(&self) -> bool {
        !matches!(self.state, State::UntilClose)
    }

    /// True for a stream that has neither a body nor trailers.
    pub fn is_bare(&self) -> bool {
        matches!(&self.state, State::Stream(stream) if stream.is_bare())
    }

    /// True when the connection has changed to another protocol.
    pub fn is_switched(&self) -> bool {
        matches!(self.state, State::Switched)
    }

    /// The connection, as long as it is held, and if it is the exchange's alone.
    pub fn connection_mut(&mut self) -> Option<&mut Connection> {
        self.carrier.as_mut()?.own()
    }

    /// Instant at which the connection was last read from; now if that was not noted.
    pub fn read_at(&self) -> Instant {
        self.read_at.unwrap_or_else(clock::instant)
    }

    /// Time from the begin of the try to the last read.
    pub fn delay(&self) -> Duration {
        self.read_at() - self.context.started
    }

    /// The whole body, if all of it came with its head.
    pub fn take_whole(&mut self) -> Option<Bytes> {
        let State::Length(left) = self.state else {
            return None;
        };
        let inbox = &mut self.connection_mut()?.inbox;
        let left = usize::try_from(left).ok()?;
        if inbox.len() < left {
            return None;
        }
        let bytes = inbox.split_to(left).freeze();
        self.note_bytes(bytes.len());
        self.finish();
        Some(bytes)
    }

    /// The exchange is over when the body is dropped.
    pub fn set_ended(&mut self, ended: Ended) {
        self.ended = Some(ended);
    }

    /// Notes who else got the answer, and where it is stored.
    pub fn note_outcome(&self, outcome: &Outcome) {
        self.note(|attempt| {
            attempt.clients = match outcome.clients {
                Clients::Besides(others) => attempt.clients.saturating_add(others),
                Clients::InAll(clients) => clients,
            };
            attempt.entry = outcome.entry.or(attempt.entry);
        });
    }

    /// Logs a fault of the peer that broke the body off.
    pub fn tell_fault(&self, why: &str) {
        if let Some(log) = &self.context.log {
            log.write(Level::Error, format_args!("{why} while reading upstream"));
        }
    }

    /// Remembers a session when the body has ended.
    pub fn learn_at_end(&mut self, lesson: Lesson) {
        match self.carrier {
            Some(_) => self.lesson = Some(lesson),
            None => lesson.learn(),
        }
    }

    /// The body is over: its connection is kept or closed.
    fn finish(&mut self) {
        self.state = State::Ended;
        let now = self.read_at();
        let took = now - self.context.started;
        self.note(|attempt| {
            attempt.response.get_or_insert(took);
        });
        let Some(carrier) = self.carrier.take() else {
            return;
        };
        self.account(&carrier, took);
        if let Some(lesson) = self.lesson.take() {
            lesson.learn();
        }
        let Carrier::Own(connection) = carrier else {
            return;
        };
        if self.may_reuse && !connection.inbox.is_empty() {
            // INVARIANT 2.
            keepalive::note_unasked(&connection, now);
            return;
        }
        if self.may_reuse && !self.context.generation.is_closing() {
            let worker = &self.context.generation.worker;
            worker.of::<IdlePeers>().put(connection, now);
        }
    }

    fn fail(&mut self, error: BodyError) -> Poll<Option<Result<Piece, BodyError>>> {
        self.may_reuse = false;
        self.finish();
        Poll::Ready(Some(Err(error)))
    }

    /// The end of a body whose connection is of no use any more.
    fn close(&mut self) -> Poll<Option<Result<Piece, BodyError>>> {
        self.may_reuse = false;
        self.finish();
        Poll::Ready(None)
    }

    /// Gives the peer's connection back; an answer that was read to its end tells how fast it is.
    fn account(&self, carrier: &Carrier, took: Duration) {
        let trace = self.context.trace.borrow();
        let header = trace.attempts.get(self.attempt).and_then(|it| it.header);
        let times = header.map(|header| (header, took));
        let (group, peer) = carrier.asked();
        group.ended(peer, times, took);
    }

    /// Writes into the trace of this try.
    fn note(&self, write: impl FnOnce(&mut Attempt)) {
        let mut trace = self.context.trace.borrow_mut();
        if let Some(attempt) = trace.attempts.get_mut(self.attempt) {
            write(attempt);
        }
    }

    fn note_bytes(&self, count: usize) {
        self.note(|attempt| {
            attempt.body_bytes += count as u64;
            attempt.bytes_received += count as u64;
        });
    }

    /// Hands out bytes that came past the inbox, of so many that were asked for.
    fn hand_out(&mut self, bytes: Bytes, asked: usize) -> Poll<Option<Result<Piece, BodyError>>> {
        self.note_bytes(bytes.len());
        self.pace = if bytes.len() < asked / 2 {
            Pace::Slow
        } else {
            Pace::Fast
        };
        if matches!(self.state, State::Length(0)) {
            self.finish();
        }
        Poll::Ready(Some(Ok(Piece::Memory(bytes))))
    }

    /// True when only the client's taking what it was handed can bring more.
    fn waits_for_client(&self) -> bool {
        let (Some(bound), Some(carrier)) = (&self.bound, &self.carrier) else {
            return false;
        };
        let has_room = match carrier {
            Carrier::Own(connection) => has_room(&connection.inbox, self.read_size()),
            // What is taken from a lane is room for the peer again.
            Carrier::Shared(_) => false,
        };
        !bound.backlog.is_empty() && !has_room
    }

    fn is_shared(&self) -> bool {
        self.carrier.as_ref().is_some_and(Carrier::is_shared)
    }

    /// Bytes that are asked of the socket at once.
    fn read_size(&self) -> usize {
        let most = self.bound.as_ref().map_or(READ_SIZE, |bound| bound.most);
        most.min(READ_SIZE)
    }

    /// True if a read may take a buffer of its own, beside the inbox.
    fn may_pass_inbox(&self) -> bool {
        let has_memory =
            |bound: &Bound| bound.backlog.is_empty() && bound.most >= BUFFER_SIZE + READ_SIZE;
        self.pace == Pace::Fast && self.bound.as_ref().is_none_or(has_memory)
    }

    /// Reads once, into the inbox or past it.
    fn poll_more(&mut self, cx: &mut Context<'_>) -> Poll<std::io::Result<More>> {
        let (size, may_pass) = (self.read_size(), self.may_pass_inbox());
        self.read_at = None;
        let connection = match &mut self.carrier {
            Some(Carrier::Own(connection)) => connection,
            Some(Carrier::Shared(stream)) => return stream.poll_more(cx).map_ok(More::Inbox),
            None => return Poll::Ready(Ok(More::Inbox(0))),
        };
        match &mut self.state {
            State::Length(left) if may_pass && *left >= READ_SIZE as u64 => {
                let mut buffer = self.context.generation.worker.receive_buffers.take();
                let room = buffer.room(*left);
                let asked = room.len();
                let count = ready!(connection.socket.poll_recv_into(cx, room))?;
                if count == 0 {
                    return Poll::Ready(Ok(More::Inbox(0)));
                }
                *left -= count as u64;
                self.deadline = None;
                let bytes = buffer.received(count);
                Poll::Ready(Ok(More::Past { bytes, asked }))
            }
            _ => receive((connection, size), cx, &mut self.pace)
                .map(|received| received.map(More::Inbox)),
        }
    }

    /// Ready when the peer has been silent for too long.
    fn poll_silence(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let timeout = self.context.timeout;
        let deadline = self
            .deadline
            .get_or_insert_with(|| clock::instant() + timeout);
        match &self.carrier {
            Some(carrier) => carrier.timer().poll_expired(cx, *deadline).map(|_| ()),
            None => Poll::Ready(()),
        }
    }

    /// Takes from the inbox what it has of the body.
    fn take(&mut self) -> Result<Taken, BodyError> {
        let Some(carrier) = &mut self.carrier else {
            return Ok(Taken::End);
        };
        if let State::Stream(stream) = &mut self.state {
            let part = stream.take(carrier)?;
            return Ok(self.take_part(part));
        }
        let Some(connection) = carrier.own() else {
            return Ok(Taken::End);
        };
        let inbox = &mut connection.inbox;
        match &mut self.state {
            // It was taken.
            State::Stream(_) => Ok(Taken::End),
            State::Brought(_) | State::Ended | State::Switched => Ok(Taken::End),
            State::Length(left) => {
                let count = (*left).min(inbox.len() as u64);
                *left -= count;
                let is_last = *left == 0;
                Ok(Taken::Bytes(
                    inbox.split_to(count as usize).freeze(),
                    is_last,
                ))
            }
            State::UntilClose => Ok(Taken::Bytes(inbox.split().freeze(), false)),
            State::Chunked(decoder) => match decoder.decode(inbox) {
                Ok(ChunkEvent::NeedMore) => Ok(Taken::Bytes(Bytes::new(), false)),
                Ok(ChunkEvent::Data(bytes)) => Ok(Taken::Bytes(bytes, false)),
                Ok(ChunkEvent::End { trailers }) => {
                    self.keep_trailers(trailers);
                    Ok(Taken::End)
                }
                Err(_) => Err(BodyError::UpstreamTruncated),
            },
            State::Records(body) => take_record(body, inbox, &self.context),
            State::Value(body) => {
                let around = (&self.context, &mut self.may_reuse);
                Ok(take_value(body, inbox, around))
            }
        }
    }

    /// Takes a part of a stream.
    fn take_part(&mut self, part: Part) -> Taken {
        let Some(end) = part.end else {
            return Taken::Bytes(part.bytes, false);
        };
        self.may_reuse &= end.is_clean;
        self.keep_trailers(end.trailers.unwrap_or_default());
        if part.bytes.is_empty() {
            Taken::End
        } else {
            Taken::Bytes(part.bytes, true)
        }
    }

    /// Keeps the trailer fields for variables, and for the client those that it is to get.
    fn keep_trailers(&mut self, trailers: Fields) {
        if !trailers.is_empty() {
            self.context.trace.borrow_mut().trailers = Some(Rc::new(trailers.clone()));
            let by = self.shows_trailers.take();
            self.trailers = by.and_then(|by| answer::shown_trailers(by, trailers));
        }
    }

    /// Sends what can be sent of a request whose answer has begun.
    fn send_rest(&mut self, cx: &mut Context<'_>) -> Result<(), BodyError> {
        if let State::Stream(stream) = &mut self.state
            && let Some(carrier) = &mut self.carrier
        {
            let sent = stream.poll_send(cx, carrier);
            let (sent, _) = sent.map_err(|failure| match failure {
                Failure::Client(_) => BodyError::ClientLeft,
                failure => BodyError::Broken(failure.to_string()),
            })?;
            let is_left = stream.is_left(cx);
            self.note(|attempt| attempt.bytes_sent += sent);
            if is_left {
                return Err(BodyError::ClientLeft);
            }
        }
        Ok(())
    }

    /// Takes what follows a body of known length, if it has come since its last byte was handed
    /// out: the end of a value of memcached, or of a stream.
    fn take_trailer(&mut self) {
        let left = match &self.state {
            State::Value(body) => Some(body.left()),
            State::Stream(stream) => stream.left(),
            _ => None,
        };
        if left == Some(0)
            && let Some(carrier) = &mut self.carrier
        {
            if let Some(connection) = carrier.own() {
                let mut cx = Context::from_waker(Waker::noop());
                let _ready = receive((connection, READ_SIZE), &mut cx, &mut self.pace);
            }
            if let Ok(Taken::End) = self.take() {
                self.finish();
            }
        }
    }

    /// True when an encrypted connection ended without the peer's word: RFC 9112 §9.8 takes a body
    /// that only this ends for incomplete.
    fn is_cut_off(&self) -> bool {
        matches!(&self.carrier, Some(Carrier::Own(connection)) if connection.socket.is_truncated())
    }

    /// True when nothing that matters is to come: silence and a closed connection are its end.
    fn is_whole(&self) -> bool {
        matches!(&self.state, State::Records(body) if body.is_whole())
    }
}

/// True when reading `size` bytes into the inbox takes no memory.
fn has_room(inbox: &BytesMut, size: usize) -> bool {
    inbox.capacity() - inbox.len() >= size / 4
}

/// Makes the inbox one of `size` bytes, in which what it has already stands at the begin.
fn make_room(inbox: &mut BytesMut, size: usize) {
    let size = size.max(inbox.len() + size / 4);
    if !inbox.try_reclaim(size - inbox.len()) {
        // Not `reserve`: that also keeps room for what has been taken from its begin.
        let mut room = BytesMut::with_capacity(size);
        room.extend_from_slice(inbox);
        *inbox = room;
    }
}

/// Reads into the inbox, so much at once.
fn receive(
    (connection, size): (&mut Connection, usize),
    cx: &mut Context<'_>,
    pace: &mut Pace,
) -> Poll<std::io::Result<usize>> {
    let inbox = &mut connection.inbox;
    if !has_room(inbox, size) {
        make_room(inbox, size);
    }
    let received = connection.socket.poll_recv(cx, inbox);
    *pace = if inbox.capacity() == inbox.len() {
        Pace::Fast
    } else {
        Pace::Slow
    };
    received
}

/// Takes from the inbox the next part of a body in records. A message of the application is logged.
fn take_record(
    body: &mut StdoutBody,
    inbox: &mut BytesMut,
    context: &BodyContext,
) -> Result<Taken, BodyError> {
    let log = |level, message: std::fmt::Arguments<'_>| {
        if let Some(log) = &context.log {
            log.write(level, format_args!("{message} while reading upstream"));
        }
    };
    // Each round but the last takes a record from the inbox.
    loop {
        return match body.next(inbox) {
            Ok(BodyEvent::NeedMore) => Ok(Taken::Bytes(Bytes::new(), false)),
            Ok(BodyEvent::Data(bytes)) => Ok(Taken::Bytes(bytes, false)),
            Ok(BodyEvent::Stderr(message)) => {
                log(Level::Error, format_args!("{}", StderrMessage(&message)));
                continue;
            }
            Ok(BodyEvent::End(BodyEnd::Clean)) => Ok(Taken::End),
            Ok(BodyEvent::End(BodyEnd::Excess)) => {
                let what = "upstream sent more data than specified in \"Content-Length\" header";
                log(Level::Warn, format_args!("{what}"));
                Ok(Taken::Last)
            }
            Err(fault) => {
                log(Level::Error, format_args!("{fault}"));
                Err(BodyError::UpstreamTruncated)
            }
        };
    }
}

/// Takes from the inbox the next part of a value of memcached.
fn take_value(
    body: &mut ValueBody,
    inbox: &mut BytesMut,
    (context, may_reuse): (&BodyContext, &mut bool),
) -> Taken {
    let (bytes, event) = match body.next(inbox) {
        // A reader that knows the length asks for no more, so the end is taken here: it
        // usually came with the bytes.
        ValueEvent::Data(bytes) if body.left() == 0 => (bytes, body.next(inbox)),
        ValueEvent::Data(bytes) => return Taken::Bytes(bytes, false),
        event => (Bytes::new(), event),
    };
    let has_ended = matches!(event, ValueEvent::End(_));
    if event == ValueEvent::End(ValueEnd::Invalid) {
        *may_reuse = false;
        if let Some(log) = &context.log {
            let message = format_args!("memcached sent invalid trailer while reading upstream");
            log.write(Level::Error, message);
        }
    }
    if has_ended && bytes.is_empty() {
        Taken::End
    } else {
        Taken::Bytes(bytes, has_ended)
    }
}

/// Result of one read.
enum More {
    /// Number of bytes in the inbox; 0 at the peer's end.
    Inbox(usize),
    /// Bytes of the body, of so many that were asked for.
    Past {
        /// Bytes that came.
        bytes: Bytes,
        /// Number of bytes that were asked for.
        asked: usize,
    },
}

/// Result of one look at the inbox.
enum Taken {
    /// Bytes, and whether they are the last; empty for need of more.
    Bytes(Bytes, bool),
    /// The end.
    End,
    /// The end, after which the connection is of no use.
    Last,
}

impl Switched for UpstreamBody {
    fn connection(&mut self) -> Option<(&Transport, &mut BytesMut)> {
        let connection = self.connection_mut()?;
        Some((&connection.socket, &mut connection.inbox))
    }

    fn note_tunnelled(&self, sent: usize, received: usize) {
        self.note(|attempt| {
            attempt.bytes_sent += sent as u64;
            attempt.bytes_received += received as u64;
        });
    }
}

impl BodyStream for UpstreamBody {
    fn poll_next(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Piece, BodyError>>> {
        let this = &mut *self;
        if let State::Brought(body) = &mut this.state {
            let next = ready!(body.poll_next(cx));
            if !matches!(next, Some(Ok(_))) {
                this.finish();
            }
            return Poll::Ready(next);
        }
        if let Err(error) = this.send_rest(cx) {
            return this.fail(error);
        }
        loop {
            // INVARIANT 3: what is not taken closes the stream's window.
            if this.is_shared() && this.waits_for_client() {
                return Poll::Pending;
            }
            match this.take() {
                Err(error) => return this.fail(error),
                Ok(Taken::End) => {
                    this.finish();
                    return Poll::Ready(None);
                }
                Ok(Taken::Last) => return this.close(),
                Ok(Taken::Bytes(bytes, is_last)) if !bytes.is_empty() => {
                    this.note_bytes(bytes.len());
                    if is_last {
                        this.finish();
                    }
                    return Poll::Ready(Some(Ok(Piece::Memory(bytes))));
                }
                Ok(Taken::Bytes(..)) => {}
            }
            // What came may have made room for more of the request.
            if let Err(error) = this.send_rest(cx) {
                return this.fail(error);
            }
            if this.waits_for_client() {
                return Poll::Pending;
            }
            let received = match this.poll_more(cx) {
                Poll::Ready(Ok(More::Inbox(count))) => Poll::Ready(Ok(count)),
                Poll::Ready(Ok(More::Past { bytes, asked })) => return this.hand_out(bytes, asked),
                Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
                Poll::Pending => Poll::Pending,
            };
            match received {
                Poll::Pending => {
                    ready!(this.poll_silence(cx));
                    if let Some(carrier) = &this.carrier {
                        carrier.note_silence();
                    }
                    if this.is_whole() {
                        return this.close();
                    }
                    return this.fail(BodyError::UpstreamTimedOut);
                }
                Poll::Ready(Ok(0))
                    if matches!(this.state, State::UntilClose) && !this.is_cut_off() =>
                {
                    return this.close();
                }
                Poll::Ready(Ok(0) | Err(_)) if this.is_whole() => return this.close(),
                Poll::Ready(Ok(0) | Err(_)) => return this.fail(BodyError::UpstreamTruncated),
                Poll::Ready(Ok(_)) => this.deadline = None,
            }
        }
    }

    fn take_trailers(mut self: Pin<&mut Self>) -> Option<Fields> {
        self.trailers.take()
    }
}

impl Drop for UpstreamBody {
    fn drop(&mut self) {
        self.take_trailer();
        // A body that nobody read to its end closes its connection.
        self.may_reuse &= matches!(self.state, State::Ended);
        if self.carrier.is_some() {
            self.finish();
        }
    }
}

/// Text that an application wrote to its error stream, as nginx logs it.
pub(crate) struct StderrMessage<'a>(pub &'a [u8]);

impl std::fmt::Display for StderrMessage<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let is_end = |byte: &&u8| matches!(byte, b'\n' | b'\r' | b'.' | b' ');
        let cut = self.0.iter().rev().take_while(is_end).count();
        let text = self.0.get(..self.0.len() - cut).unwrap_or_default();
        let text = String::from_utf8_lossy(text);
        write!(f, "FastCGI sent in stderr: \"{text}\"")
    }
}

/// A socket's failure in nginx's words.
pub(crate) fn upstream_error(error: &std::io::Error, doing: &str) -> UpstreamFailure {
    let text = millpond_system::log::error::os_error(error);
    let message = format!("upstream connection failed ({text}) while {doing}");
    UpstreamFailure::new(UpstreamKind::Error, message)
}
