//! A connection's task: reads, hands events on, writes; and decides when the connection ends.
//!
//! ```text
//! read ─► events ─► begin exchanges ─► write what they made ─► conclude them ─┐
//!   ▲                                                                         │
//!   └───────────────────────── as long as something moves ◄───────────────────┘
//! ```
//!
//! | wait | ends after | then |
//! |---|---|---|
//! | for the first request | `client_header_timeout` | GOAWAY |
//! | for the rest of a head | `client_header_timeout` | the stream is reset |
//! | for the rest of a head that was given up | `keepalive_timeout` | GOAWAY |
//! | for the next request | `keepalive_timeout` | GOAWAY |
//! | for the client to read | `send_timeout` | closed |
//!
//! Invariants:
//! 1. Nothing is read while more than the machine's bound waits to be written.
//! 2. An answer counts as sent when the transport has taken its last byte.

use std::collections::VecDeque;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::BytesMut;
use millpond_system::clock::{self, Instant};
use millpond_system::log::error::Level;
use millpond_system::quota::Waiting;
use millpond_system::socket::More;
use millpond_wire::head::{Refused, RequestHead};
use millpond_wire::http2::{self, BodyLength, Code, Event, Farewell, Fault, GivenUp, Gone, Role};

use super::Http2;
use crate::downstream::lanes::exchanges::{Begun, Exchanges};
use crate::downstream::lanes::lane::{self, Rest};
use crate::downstream::serve::Refusal;
use crate::log::request_error;
use crate::websocket;
use millpond_exchange::client::Came;
use millpond_exchange::client::Client;
use millpond_exchange::client::body::RequestBody;
use millpond_exchange::client::carrier::{CLOSING_GRACE, Carrier, LARGE_READ};
use millpond_exchange::client::wire::{Stream, Wire};
use millpond_exchange::failure::ClientGone;
use millpond_exchange::settings::Server;
use millpond_exchange::settings::listen::Listen;
use millpond_exchange::stats::connections::{ConnectionShard, Counted, Happened};
use millpond_exchange::worker::Member;

/// Bytes that are written at once: some records of TLS.
const WRITE: usize = 64 * 1024;
/// Bytes asked of the transport while a body comes.
const BODY_READ: usize = 64 * 1024;
/// Rounds of reading and writing before other connections have their turn (arbitrary).
const ROUNDS: usize = 16;

/// Time for which an idle connection keeps memory that its next requests would need again
/// (arbitrary: clients that ask one after the other ask sooner).
const REST_AFTER: Duration = Duration::from_secs(1);

/// Pieces of bodies that are many for one read (arbitrary: of 1 KiB each).
const PIECES: usize = 64;

/// A stream.
type Lane = lane::Lane<http2::Connection>;

/// The way in which a connection has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    /// The client was told (GOAWAY), and may still have to read that.
    Told,
    /// The client has left, or is to be left.
    Gone,
}

/// The wait that is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Due {
    /// For the client to read.
    Write,
    /// For the rest of a head.
    Head,
    /// For a request, before memory is given back.
    Rest,
    /// For a request.
    Request,
    /// For requests that were on their way when the generation began to close.
    Farewell,
}

/// A connection's task.
pub(super) struct Session<'a> {
    http2: Rc<Http2>,
    carrier: Carrier,
    listen: Arc<Listen>,
    member: &'a Member,
    counters: &'a ConnectionShard,
    exchanges: Exchanges<http2::Connection>,
    /// The place of each answer's last byte in all that is written, and its stream.
    endings: VecDeque<(u64, u32)>,
    /// Bytes that the transport has taken.
    written: u64,
    /// True if the last read brought as much as was asked for, of bodies.
    reads_much: bool,
    /// True if the last read brought as much of small frames: others have their turn then, so that
    /// no read of a thousand frames holds them up more than once, and who reads bodies can do so.
    is_others_turn: bool,
    /// Pieces of bodies that the last read brought.
    pieces: usize,
    /// Since when there is no request.
    idle_since: Option<Instant>,
    /// True if an idle connection has memory to give back.
    has_memory: bool,
    /// True once the client has begun a request.
    has_begun: bool,
    /// Since when a head is there in part.
    head_since: Option<Instant>,
    /// True if that head was given up: its rest may take as long as another request may.
    has_given_up_head: bool,
    /// Since when the client has read nothing.
    stalled_since: Option<Instant>,
    /// The time of the last word that was announced.
    farewell_at: Option<Instant>,
    /// True once a last word was said.
    is_leaving: bool,
    /// In the count of connections that are answered.
    writing: Option<Counted<'a>>,
    /// In the count of connections that bring a head.
    reading: Option<Counted<'a>>,
}

impl<'a> Session<'a> {
    /// A connection at its begin; what has come of it is in the carrier.
    pub(super) fn new(
        carrier: Carrier,
        listen: Arc<Listen>,
        (member, counters): (&'a Member, &'a ConnectionShard),
    ) -> Self {
        let connection = Rc::clone(&carrier.connection);
        let settings = &connection.first_server(&listen).settings;
        let reading = connection.generation.conf.reading;
        let config = settings.http2.config(&settings.head, reading);
        let since = connection.accepted;
        connection.waiting.set(Waiting::Idle(since));
        counters.count(Happened::Http2);
        Session {
            http2: Rc::new(Http2::new(
                connection,
                http2::Connection::new(Role::Server, config),
            )),
            carrier,
            listen,
            member,
            counters,
            exchanges: Exchanges::default(),
            endings: VecDeque::new(),
            written: 0,
            reads_much: false,
            is_others_turn: false,
            pieces: 0,
            idle_since: Some(since),
            has_memory: false,
            has_begun: false,
            head_since: None,
            has_given_up_head: false,
            stalled_since: None,
            farewell_at: None,
            is_leaving: false,
            writing: None,
            reading: None,
        }
    }

    /// The parts that outlive the task's work.
    pub(super) fn part(self) -> (Carrier, Exchanges<http2::Connection>) {
        (self.carrier, self.exchanges)
    }

    fn server(&self) -> &Arc<Server> {
        self.http2.connection.first_server(&self.listen)
    }

    /// Goes on until the connection has ended.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Ended> {
        self.http2.note_awake();
        self.member.register(cx.waker());
        let mut rounds = 0;
        while self.http2.is_dirty.replace(false) || rounds == 0 {
            match self.round(cx) {
                Ok(has_moved) if has_moved => self.http2.is_dirty.set(true),
                Ok(_) => {}
                Err(gone) => return Poll::Ready(self.break_off(&gone)),
            }
            rounds += 1;
            if rounds > ROUNDS || self.is_others_turn {
                cx.waker().wake_by_ref();
                break;
            }
        }
        match self.poll_life(cx) {
            Poll::Ready(ended) => {
                self.http2.leave();
                Poll::Ready(ended)
            }
            Poll::Pending => {
                self.http2.note_waiting(cx.waker());
                Poll::Pending
            }
        }
    }

    /// Reads, answers and writes once; true if bytes have moved.
    fn round(&mut self, cx: &mut Context<'_>) -> Result<bool, ClientGone> {
        self.exchanges.reap(cx);
        self.pieces = 0;
        let has_read = self.read(cx)?;
        self.heed_events();
        self.is_others_turn = self.reads_much && !(1..PIECES).contains(&self.pieces);
        self.reads_much &= self.pieces > 0;
        self.exchanges.begin();
        let has_written = self.write(cx)?;
        self.exchanges.conclude();
        Ok(has_read || has_written)
    }

    /// One read. INVARIANT 1.
    fn read(&mut self, cx: &mut Context<'_>) -> Result<bool, ClientGone> {
        if !self.http2.engine.borrow().wants_input() {
            self.reads_much = false;
            return Ok(false);
        }
        match self.poll_recv(cx) {
            Poll::Ready(Ok(0)) => Err(ClientGone::Closed),
            Poll::Ready(Ok(count)) => {
                self.reads_much = count >= LARGE_READ / 4;
                Ok(true)
            }
            Poll::Ready(Err(error)) => Err(ClientGone::Io(error)),
            Poll::Pending => {
                // A connection that waits holds no memory for what may come.
                self.reads_much = false;
                let mut inbox = self.carrier.inbox.borrow_mut();
                if inbox.is_empty() {
                    *inbox = BytesMut::new();
                }
                Ok(false)
            }
        }
    }

    fn poll_recv(&self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let is_empty = self.carrier.inbox.borrow().is_empty();
        if is_empty && !self.reads_much {
            return self.carrier.poll_arrival(cx, LARGE_READ);
        }
        let mut inbox = self.carrier.inbox.borrow_mut();
        if inbox.capacity() - inbox.len() < LARGE_READ / 4 {
            inbox.reserve(if self.reads_much {
                BODY_READ
            } else {
                LARGE_READ
            });
        }
        self.carrier.transport.poll_recv(cx, &mut inbox)
    }

    /// Hands on what the machine has to tell.
    fn heed_events(&mut self) {
        if self.has_no_news() {
            return;
        }
        let now = clock::instant();
        let age = now.saturating_duration_since(self.http2.connection.accepted);
        // The machine is called by those who heed an event.
        while let Some(event) = self.next_event(age) {
            self.heed(event, now);
        }
        self.note_head(now);
    }

    /// True if nothing has come, and the machine has nothing to tell: no clock is read for that.
    fn has_no_news(&self) -> bool {
        let engine = self.http2.engine.borrow();
        self.carrier.inbox.borrow().is_empty()
            && !engine.has_events()
            && engine.unfinished_head().is_some() == self.head_since.is_some()
    }

    fn next_event(&self, age: Duration) -> Option<Event> {
        let mut inbox = self.carrier.inbox.borrow_mut();
        self.http2.engine.borrow_mut().next_event(&mut inbox, age)
    }

    fn heed(&mut self, event: Event, now: Instant) {
        match event {
            Event::Request { stream, head, body } => {
                self.heed_request(stream, (head, now), body);
            }
            Event::Refused { stream, refused } => {
                let Refused { why, head } = refused;
                self.begin(stream, (head, now), (Rest::Ended, Err(Refusal::from(why))));
            }
            Event::Data { stream, bytes } => {
                self.pieces += 1;
                self.with_lane(stream, |lane| lane.receive(bytes));
            }
            Event::End { stream, .. } => self.with_lane(stream, Lane::end_body),
            Event::Malformed { stream, fault } => {
                self.with_lane(stream, |lane| lane.spoil_body(fault));
            }
            Event::Gone { stream, why } => {
                match why {
                    Gone::ByPeer(_) => self.counters.count(Happened::ResetByClient),
                    Gone::ByFault(_) => self.counters.count(Happened::ResetForFault),
                    Gone::Unprocessed => {}
                }
                self.log_gone(why);
                self.with_lane(stream, Lane::leave);
            }
            Event::Room { stream } => self.with_lane(stream, Lane::wake),
            Event::Sent { stream } => {
                let lane = self.http2.lane(stream);
                let is_tunnel = lane.is_some_and(|lane| lane.is_tunnel());
                let mut engine = self.http2.engine.borrow_mut();
                if !is_tunnel {
                    engine.forgo_body(stream);
                }
                let waiting = engine.output().len() as u64;
                self.endings.push_back((self.written + waiting, stream));
            }
            Event::Failed(fault) => self.heed_failure(fault),
            // What a client tells of its connection is the machine's business. A server gets no
            // answers.
            Event::GoneAway { .. }
            | Event::SettingsAcknowledged
            | Event::SettingsChanged
            | Event::Pong(_)
            | Event::Interim { .. }
            | Event::Answer { .. } => {}
        }
    }

    /// The connection is over for what the client sent. A flood is no mistake that clients make:
    /// it is told louder.
    fn heed_failure(&mut self, fault: Fault) {
        match (fault, fault.flood()) {
            (_, None) => {
                self.counters.count(Happened::GoAwayForFault);
                self.log(format_args!("client sent {fault}"));
            }
            (Fault::Flood(_), Some(flood)) => {
                self.counters.count_flood(flood);
                self.log_at(Level::Warn, format_args!("client sent {fault}"));
            }
            (_, Some(flood)) => {
                self.counters.count_flood(flood);
                let message = format_args!("client sent {fault}, http2 flood: {flood}");
                self.log_at(Level::Warn, message);
            }
        }
        self.is_leaving = true;
        self.http2.leave();
    }

    fn heed_request(
        &mut self,
        stream: u32,
        (head, now): (Rc<RequestHead>, Instant),
        body: BodyLength,
    ) {
        let (rest, length) = match body {
            BodyLength::None => (Rest::Ended, None),
            BodyLength::Known(length) => (Rest::Open, Some(length)),
            BodyLength::Unknown => (Rest::Open, None),
        };
        if websocket::is_asked(&head) {
            // What follows the head is no body, but the client's side of a tunnel.
            let head = Rc::new(websocket::to_upgrade(&head));
            return self.begin(stream, (head, now), (rest, Ok(RequestBody::None)));
        }
        let body = match body {
            BodyLength::None => RequestBody::None,
            BodyLength::Known(_) | BodyLength::Unknown => RequestBody::Unread { length },
        };
        self.begin(stream, (head, now), (rest, Ok(body)));
        // nginx: who reads a long body opens its window before the bytes behind its head are
        // looked at.
        if length > Some(self.server().settings.http2.preread.0) {
            self.exchanges.begin();
        }
    }

    fn with_lane(&self, stream: u32, act: impl FnOnce(&Lane)) {
        if let Some(lane) = self.http2.lane(stream) {
            act(&lane);
        }
    }

    /// Begins the exchange of a request.
    fn begin(
        &mut self,
        stream: u32,
        (head, now): (Rc<RequestHead>, Instant),
        (rest, body): (Rest<Fault>, Result<RequestBody, Refusal>),
    ) {
        let connection = &self.http2.connection;
        let came = Came {
            started: self.head_since.take().unwrap_or(now),
            head,
            at: now,
            is_pipelined: false,
        };
        self.reading = None;
        self.has_begun = true;
        if self.idle_since.take().is_some() {
            connection.waiting.set(Waiting::Answer);
            self.writing = Some(Counted::new(&self.counters.writing));
        }
        self.counters.requests.fetch_add(1, Ordering::Relaxed);
        let lane = Lane::new(&self.http2, stream, rest);
        if came.head.expects_continue() {
            lane.expect_continue();
        }
        self.http2.enter(Rc::clone(&lane));
        let wire = Wire::Stream(Rc::clone(&lane) as Rc<dyn Stream>);
        let client = Rc::new(Client::next(Rc::clone(connection), wire, &came));
        let begun = Begun { client, came, body };
        self.exchanges.add(&self.http2, lane, &self.listen, begun);
        if !self.may_go_on(now) {
            self.say_last_word();
        }
    }

    /// True if the connection may bring more requests (`keepalive_requests`, `keepalive_time`).
    fn may_go_on(&self, now: Instant) -> bool {
        let connection = &self.http2.connection;
        let policy = &self.server().location.settings.keep_alive;
        !policy.idle_timeout().is_zero()
            && connection.requests.get() < policy.requests
            && now.saturating_duration_since(connection.accepted) <= policy.time
    }

    fn say_last_word(&mut self) {
        if !self.is_leaving {
            self.counters.count(Happened::GoAway);
        }
        self.is_leaving = true;
        self.http2.call(|engine| engine.go_away(Farewell::Last));
    }

    /// Notes whether a head is there in part.
    fn note_head(&mut self, now: Instant) {
        let is_partial = self.http2.engine.borrow().unfinished_head().is_some();
        if !is_partial {
            self.head_since = None;
            self.has_given_up_head = false;
            self.reading = None;
        } else if self.head_since.is_none() {
            self.head_since = Some(now);
            self.reading = Some(Counted::new(&self.counters.reading));
            if self.idle_since.is_some() {
                self.http2.connection.waiting.set(Waiting::Head(now));
            }
        }
    }

    /// Writes until nothing is left, or no more is taken. INVARIANT 2.
    fn write(&mut self, cx: &mut Context<'_>) -> Result<bool, ClientGone> {
        let mut has_moved = false;
        loop {
            self.http2.engine.borrow_mut().produce(WRITE);
            // What was produced may have been the end of an answer, or made room.
            self.heed_events();
            match self.poll_send(cx) {
                Poll::Ready(Ok(0)) => {
                    self.stalled_since = None;
                    return Ok(has_moved);
                }
                Poll::Ready(Ok(count)) => {
                    has_moved = true;
                    self.stalled_since = None;
                    self.note_written(count);
                }
                Poll::Ready(Err(error)) => return Err(ClientGone::Io(error)),
                Poll::Pending => {
                    self.stalled_since.get_or_insert_with(clock::instant);
                    return Ok(has_moved);
                }
            }
        }
    }

    /// One write; 0 if there is nothing to write.
    fn poll_send(&self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let mut engine = self.http2.engine.borrow_mut();
        let more = if engine.has_more() {
            More::Follows
        } else {
            More::Nothing
        };
        let output = engine.output();
        if output.is_empty() {
            return Poll::Ready(Ok(0));
        }
        let transport = &self.carrier.transport;
        output.poll_write(|slices| transport.poll_send(cx, slices, more))
    }

    fn note_written(&mut self, count: usize) {
        self.written += count as u64;
        while let Some((at, stream)) = self.endings.front().copied()
            && at <= self.written
        {
            self.endings.pop_front();
            self.with_lane(stream, Lane::note_sent);
        }
    }

    /// The client is gone, or failed.
    fn break_off(&mut self, gone: &ClientGone) -> Ended {
        self.http2.leave();
        match gone {
            ClientGone::Closed if self.has_begun && self.idle_since.is_some() => {
                let client = self.http2.connection.peer.host_text();
                let message = format_args!("client {client} closed keepalive connection");
                request_error::connection(&self.http2.connection, Level::Info, message);
            }
            gone => self.log(format_args!("{gone}")),
        }
        Ended::Gone
    }

    /// Decides whether the connection goes on.
    fn poll_life(&mut self, cx: &mut Context<'_>) -> Poll<Ended> {
        loop {
            if self.idle_since.is_none() && self.http2.is_empty() {
                self.become_idle();
            }
            self.heed_others();
            // What was said is to be written.
            if self.http2.is_dirty.get()
                && let Err(gone) = self.write(cx)
            {
                return Poll::Ready(self.break_off(&gone));
            }
            if self.is_over() {
                return Poll::Ready(Ended::Told);
            }
            let Some((at, due)) = self.next_due() else {
                return Poll::Pending;
            };
            if self.carrier.timer.poll_expired(cx, at).is_pending() {
                return Poll::Pending;
            }
            if self.expire(due) == Some(Ended::Gone) {
                return Poll::Ready(Ended::Gone);
            }
        }
    }

    fn become_idle(&mut self) {
        let now = clock::instant();
        self.idle_since = Some(now);
        self.writing = None;
        self.has_memory = true;
        self.http2.connection.waiting.set(Waiting::Idle(now));
    }

    /// Gives memory back.
    fn rest(&mut self) {
        self.has_memory = false;
        self.http2.engine.borrow_mut().rest();
        self.endings.shrink_to_fit();
    }

    /// The generation closes, or room is to be made.
    fn heed_others(&mut self) {
        let connection = Rc::clone(&self.http2.connection);
        if connection.is_displaced.get() && !self.is_leaving {
            if self.idle_since.is_some() {
                connection.count_displaced();
                self.say_last_word();
            } else {
                connection.is_displaced.set(false);
            }
        }
        if connection.generation.is_closing() && !self.is_leaving && self.farewell_at.is_none() {
            self.begin_farewell();
        }
    }

    /// RFC 9113 §6.8: requests that may be on their way are served, too.
    fn begin_farewell(&mut self) {
        let min_timeout = self.server().location.settings.keep_alive.min_timeout;
        let grace = CLOSING_GRACE.max(min_timeout);
        let now = clock::instant();
        let is_quiet = |since: Instant| now.saturating_duration_since(since) >= grace;
        if self.idle_since.is_some_and(is_quiet) {
            self.say_last_word();
        } else {
            self.farewell_at = Some(now + grace);
            self.http2.call(|engine| engine.go_away(Farewell::Warn));
        }
    }

    /// True when nothing is to come or to go.
    fn is_over(&self) -> bool {
        let mut engine = self.http2.engine.borrow_mut();
        engine.is_finished() && engine.output().is_empty()
    }

    /// The wait that ends next.
    fn next_due(&self) -> Option<(Instant, Due)> {
        let server = self.server();
        let head_timeout = server.settings.head.timeout;
        let settings = &server.location.settings;
        let idle_timeout = if self.has_begun {
            settings.keep_alive.idle_timeout()
        } else {
            head_timeout
        };
        let send_timeout = settings.send.timeout;
        let head_timeout = if self.has_given_up_head {
            idle_timeout
        } else {
            head_timeout
        };
        let waits = [
            (self.stalled_since.map(|at| at + send_timeout), Due::Write),
            (self.head_since.map(|at| at + head_timeout), Due::Head),
            (
                self.idle_since
                    .filter(|_| self.has_memory)
                    .map(|at| at + REST_AFTER),
                Due::Rest,
            ),
            (
                self.idle_since
                    .filter(|_| !self.is_leaving && self.head_since.is_none())
                    .map(|at| at + idle_timeout),
                Due::Request,
            ),
            (self.farewell_at, Due::Farewell),
        ];
        waits
            .into_iter()
            .filter_map(|(at, due)| at.map(|at| (at, due)))
            .min_by_key(|(at, _)| *at)
    }

    fn expire(&mut self, due: Due) -> Option<Ended> {
        match due {
            Due::Write => {
                self.counters.count(Happened::SlowReader);
                self.log(format_args!("client timed out"));
                return Some(Ended::Gone);
            }
            Due::Head => {
                self.log(format_args!(
                    "client timed out while reading a request's head"
                ));
                self.counters.count(Happened::SlowHead);
                self.give_up_head();
            }
            Due::Rest => self.rest(),
            Due::Request => self.say_last_word(),
            Due::Farewell => {
                self.farewell_at = None;
                self.say_last_word();
            }
        }
        None
    }

    /// The rest of a head does not come. Its stream is reset, so that others may go on behind it;
    /// where the rest does not come within `keepalive_timeout` either, nothing ever will.
    fn give_up_head(&mut self) {
        self.head_since = None;
        self.has_given_up_head = true;
        self.reading = None;
        self.has_begun = true;
        self.idle_since = self.idle_since.map(|_| clock::instant());
        if self.http2.call(http2::Connection::give_up_head) == GivenUp::Before {
            self.counters.count(Happened::GoAwayForFault);
            self.is_leaving = true;
            self.http2.call(|engine| engine.close(Code::PROTOCOL_ERROR));
            self.http2.leave();
        }
    }

    fn log(&self, message: std::fmt::Arguments<'_>) {
        self.log_at(Level::Info, message);
    }

    fn log_at(&self, level: Level, message: std::fmt::Arguments<'_>) {
        let message = format_args!("{message} while processing HTTP/2 connection");
        request_error::connection(&self.http2.connection, level, message);
    }

    fn log_gone(&self, why: Gone) {
        match why {
            Gone::ByPeer(Code::NO_ERROR | Code::CANCEL) => {
                self.log(format_args!("client canceled stream"));
            }
            Gone::ByPeer(Code::REFUSED_STREAM) => self.log(format_args!("client refused stream")),
            Gone::ByPeer(Code(code)) => {
                self.log(format_args!("client terminated stream with status {code}"));
            }
            Gone::ByFault(fault) => self.log(format_args!("client sent {fault}")),
            Gone::Unprocessed => {}
        }
    }
}
