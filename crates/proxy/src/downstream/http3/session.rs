//! A connection's task: reads streams, hands events on, writes; and decides when the connection
//! ends.
//!
//! ```text
//! news of streams ─► events ─► begin exchanges ─► write what they made ─► conclude them ─┐
//!        ▲                                                                               │
//!        └──────────────────────── as long as something moves ◄──────────────────────────┘
//! ```
//!
//! | wait | ends after | then |
//! |---|---|---|
//! | for the end of a handshake behind early data | `client_header_timeout` | closed |
//! | for the first request | `client_header_timeout` | GOAWAY, closed |
//! | for the rest of a head | `client_header_timeout` | the stream is reset |
//! | for the next request | `keepalive_timeout` | GOAWAY, closed |
//! | for the client to acknowledge the last answers | `send_timeout` | closed |
//!
//! Invariants:
//! 1. A stream is read only while the machine wants it: what is not read holds the client back.
//! 2. An answer counts as sent when QUIC has taken its last byte.

use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::time::Duration;

use millpond_system::address::Address;
use millpond_system::clock::{self, Instant};
use millpond_system::log::error::Level;
use millpond_system::quota::Waiting;
use millpond_wire::head::{Refused, RequestHead};
use millpond_wire::http2::BodyLength;
use millpond_wire::http3::{self, Code, Event, Farewell, Fault, Gone};
use quinn_proto::Dir;

use super::Http3;
use super::early::{Early, may_be_early};
use crate::downstream::lanes::exchanges::{Begun, Exchanges};
use crate::downstream::lanes::lane::{self, Rest};
use crate::downstream::quic::carrier::{Lost, QuicCarrier, Read, StreamEvent};
use crate::downstream::serve::Refusal;
use crate::log::request_error;
use crate::websocket;
use millpond_exchange::client::Came;
use millpond_exchange::client::Client;
use millpond_exchange::client::body::RequestBody;
use millpond_exchange::client::carrier::CLOSING_GRACE;
use millpond_exchange::client::wire::{Stream, Wire};
use millpond_exchange::settings::Server;
use millpond_exchange::settings::listen::Listen;
use millpond_exchange::stats::connections::{ConnectionShard, Counted, Happened};
use millpond_exchange::worker::Member;

/// Bytes that are read of a stream at once (arbitrary: some packets).
const READ: usize = 16 * 1024;
/// Bytes of answers that are written before what came is looked at (arbitrary: QUIC takes no more
/// than the client and the path allow).
const WRITE: usize = 256 * 1024;
/// Rounds of reading and writing before other connections have their turn (arbitrary).
const ROUNDS: usize = 16;
/// Turns after which the frames of QUIC are counted (arbitrary: they are copied for it).
const CHATTER_TURNS: u32 = 32;

/// A stream.
type Lane = lane::Lane<http3::Connection>;

/// The wait that is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Due {
    /// For the end of the handshake.
    Handshake,
    /// For the rest of a head.
    Head,
    /// For a request.
    Request,
    /// For requests that were on their way when the generation began to close.
    Farewell,
    /// For acknowledgements.
    End,
}

/// A connection's task.
pub(super) struct Session<'a> {
    http3: Rc<Http3>,
    carrier: &'a QuicCarrier,
    listen: Arc<Listen>,
    member: &'a Member,
    counters: &'a ConnectionShard,
    exchanges: Exchanges<http3::Connection>,
    /// The rest of the handshake, where requests come before its end.
    early: Option<Early>,
    /// Streams whose answers were written, and not acknowledged as yet.
    unacknowledged: BTreeSet<u64>,
    /// Turns so far.
    turns: u32,
    /// Since when there is no request.
    idle_since: Option<Instant>,
    /// True once the client has begun a request.
    has_begun: bool,
    /// The time of the last word that was announced.
    farewell_at: Option<Instant>,
    /// True once a last word was said.
    is_leaving: bool,
    /// Since when nothing is left but acknowledgements.
    ended_since: Option<Instant>,
    /// In the count of connections that are answered.
    writing: Option<Counted<'a>>,
    /// In the count of connections that bring a head.
    reading: Option<Counted<'a>>,
}

impl<'a> Session<'a> {
    /// A connection whose handshake is over, but for `early`.
    pub(super) fn new(
        carrier: &'a QuicCarrier,
        (listen, early): (Arc<Listen>, Option<Early>),
        (member, counters): (&'a Member, &'a ConnectionShard),
    ) -> Self {
        let connection = Rc::clone(&carrier.connection);
        let settings = &connection.first_server(&listen).settings;
        let reading = connection.generation.conf.reading;
        let alpn = connection.tls.get().map(|agreed| &*agreed.alpn);
        let protocol = alpn.unwrap_or_default();
        let config = settings.quic.config(protocol, (&settings.head, reading));
        let since = clock::instant();
        connection.waiting.set(Waiting::Idle(since));
        counters.count(Happened::Http3);
        let machine = http3::Connection::new(config);
        let session = Session {
            http3: Rc::new(Http3::new(connection, machine)),
            carrier,
            listen,
            member,
            counters,
            exchanges: Exchanges::default(),
            early,
            unacknowledged: BTreeSet::new(),
            turns: 0,
            idle_since: Some(since),
            has_begun: false,
            farewell_at: None,
            is_leaving: false,
            ended_since: None,
            writing: None,
            reading: None,
        };
        session.open_streams();
        // Streams of early data are there already.
        session.accept(Dir::Uni, since);
        session.accept(Dir::Bi, since);
        session
    }

    /// The exchanges, which outlive the task's work.
    pub(super) fn into_exchanges(self) -> Exchanges<http3::Connection> {
        self.exchanges
    }

    fn server(&self) -> &Arc<Server> {
        self.http3.connection.first_server(&self.listen)
    }

    fn age(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.http3.connection.accepted)
    }

    /// Goes on until the connection has ended.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.http3.note_awake();
        self.member.register(cx.waker());
        self.turns = self.turns.wrapping_add(1);
        if self.turns.is_multiple_of(CHATTER_TURNS) {
            let age = self.age(clock::instant());
            let mut engine = self.http3.engine.borrow_mut();
            engine.receive_chatter(self.carrier.chatter(), age);
        }
        let mut rounds = 0;
        while self.http3.is_dirty.replace(false) || rounds == 0 {
            match self.round(cx) {
                Ok(true) => self.http3.is_dirty.set(true),
                Ok(false) => {}
                Err(lost) => {
                    self.break_off(&lost);
                    return Poll::Ready(());
                }
            }
            rounds += 1;
            if rounds > ROUNDS {
                cx.waker().wake_by_ref();
                break;
            }
        }
        if self.poll_life(cx).is_ready() {
            self.http3.leave();
            return Poll::Ready(());
        }
        self.http3.note_waiting(cx.waker());
        Poll::Pending
    }

    /// Reads, answers and writes once; true if something has moved.
    fn round(&mut self, cx: &mut Context<'_>) -> Result<bool, Lost> {
        self.exchanges.reap(cx);
        let has_read = self.read(cx)?;
        self.heed_events();
        self.exchanges.begin();
        let has_written = self.write();
        self.exchanges.conclude();
        Ok(has_read || has_written)
    }

    /// Hands the news of all streams to the machine; true if there was any.
    fn read(&mut self, cx: &mut Context<'_>) -> Result<bool, Lost> {
        let mut has_read = false;
        let now = clock::instant();
        let age = self.age(now);
        while let Poll::Ready(event) = self.carrier.poll_event(cx) {
            has_read = true;
            match event? {
                StreamEvent::Established => self.end_handshake(),
                StreamEvent::Opened(dir) => self.accept(dir, now),
                StreamEvent::Readable(stream) => self.read_stream(stream, age),
                StreamEvent::Writable(stream) => {
                    self.http3.engine.borrow_mut().writable(stream);
                }
                StreamEvent::Stopped(stream, code) => {
                    self.unacknowledged.remove(&stream);
                    let mut engine = self.http3.engine.borrow_mut();
                    engine.receive_stop(stream, Code(code), age);
                }
                StreamEvent::Finished(stream) => {
                    self.unacknowledged.remove(&stream);
                }
                StreamEvent::Available(_) => self.open_streams(),
            }
        }
        Ok(has_read)
    }

    /// Begins what has waited for the end of the handshake.
    fn end_handshake(&mut self) {
        self.http3.connection.is_early.set(false);
        let held = self.early.take().map(Early::into_held);
        for (lane, begun) in held.into_iter().flatten() {
            self.exchanges.add(&self.http3, lane, &self.listen, begun);
        }
    }

    /// Opens the streams that the machine wants.
    fn open_streams(&self) {
        let mut engine = self.http3.engine.borrow_mut();
        while engine.wants_stream()
            && let Some(stream) = self.carrier.open_uni()
        {
            engine.attach(stream);
        }
    }

    /// Takes the streams that the client has opened.
    fn accept(&self, dir: Dir, now: Instant) {
        let age = self.age(now);
        while let Some(stream) = self.carrier.accept(dir) {
            self.http3.engine.borrow_mut().opened(stream, age);
            self.read_stream(stream, age);
        }
    }

    /// Reads a stream as long as the machine wants it. INVARIANT 1.
    fn read_stream(&self, stream: u64, age: Duration) {
        let mut engine = self.http3.engine.borrow_mut();
        while engine.wants_input(stream) {
            match self.carrier.read(stream, READ) {
                Read::Bytes(bytes) => engine.receive(stream, bytes, age),
                Read::End => return engine.receive_end(stream, age),
                Read::Reset(code) => return engine.receive_reset(stream, Code(code), age),
                Read::Blocked => return engine.receive_pause(stream),
                Read::Gone => return,
            }
        }
    }

    /// Hands on what the machine has to tell.
    fn heed_events(&mut self) {
        let now = clock::instant();
        loop {
            // The machine is called by those who heed an event.
            let event = self.http3.engine.borrow_mut().next_event();
            let Some(event) = event else { break };
            self.heed(event, now);
        }
        self.note_head(now);
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
            Event::Data { stream, bytes } => self.with_lane(stream, |lane| lane.receive(bytes)),
            Event::End { stream, .. } => self.with_lane(stream, Lane::end_body),
            Event::Malformed { stream, fault } => {
                self.with_lane(stream, |lane| lane.spoil_body(fault));
            }
            Event::Gone { stream, why } => {
                match why {
                    Gone::ByPeer(_) => self.counters.count(Happened::ResetByClient),
                    Gone::ByFault(_) => self.counters.count(Happened::ResetForFault),
                }
                self.log_gone(why);
                self.with_lane(stream, Lane::leave);
            }
            Event::Room { stream } => self.with_lane(stream, Lane::wake),
            Event::Wanted { stream } => self.read_stream(stream, self.age(now)),
            Event::Sent { stream } => self.heed_sent(stream),
            Event::Failed(fault) => self.heed_failure(fault),
            // What a client tells of its connection is the machine's business.
            Event::GoneAway | Event::Settings => {}
        }
    }

    /// QUIC has all of an answer. INVARIANT 2.
    fn heed_sent(&mut self, stream: u64) {
        self.unacknowledged.insert(stream);
        let Some(lane) = self.http3.lane(stream) else {
            return;
        };
        if !lane.is_tunnel() {
            self.http3.call(|engine| engine.forgo_body(stream));
        }
        lane.note_sent();
    }

    /// The connection is over for what the client sent. A flood is no mistake that clients make:
    /// it is told louder.
    fn heed_failure(&mut self, fault: Fault) {
        match (fault, fault.flood()) {
            (_, None) => {
                self.counters.count(Happened::GoAwayForFault);
                self.log_at(Level::Info, format_args!("client sent {fault}"));
            }
            (Fault::Flood(_), Some(flood)) => {
                self.counters.count_quic_flood(flood);
                self.log_at(Level::Warn, format_args!("client sent {fault}"));
            }
            (_, Some(flood)) => {
                self.counters.count_quic_flood(flood);
                let message = format_args!("client sent {fault}, http3 flood: {flood}");
                self.log_at(Level::Warn, message);
            }
        }
        self.is_leaving = true;
        self.unacknowledged.clear();
        // nginx's words.
        self.carrier.close(fault.code().0, b"stream error");
        self.http3.leave();
    }

    fn heed_request(
        &mut self,
        stream: u64,
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
    }

    fn with_lane(&self, stream: u64, act: impl FnOnce(&Lane)) {
        if let Some(lane) = self.http3.lane(stream) {
            act(&lane);
        }
    }

    /// Begins the exchange of a request.
    fn begin(
        &mut self,
        stream: u64,
        (head, now): (Rc<RequestHead>, Instant),
        (rest, body): (Rest<Fault>, Result<RequestBody, Refusal>),
    ) {
        let connection = &self.http3.connection;
        let came = Came {
            started: now,
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
        let lane = Lane::new(&self.http3, stream, rest);
        if came.head.expects_continue() {
            lane.expect_continue();
        }
        self.http3.enter(Rc::clone(&lane));
        let wire = Wire::Stream(Rc::clone(&lane) as Rc<dyn Stream>);
        let client = Rc::new(Client::next(Rc::clone(connection), wire, &came));
        client.remote.replace(Address::Inet(self.carrier.peer()));
        let begun = Begun { client, came, body };
        match &mut self.early {
            Some(early) if !may_be_early(&begun.came.head) => early.hold(lane, begun),
            _ => self.exchanges.add(&self.http3, lane, &self.listen, begun),
        }
        if !self.may_go_on(now) {
            self.say_last_word();
        }
    }

    /// True if the connection may bring more requests (`keepalive_requests`, `keepalive_time`).
    fn may_go_on(&self, now: Instant) -> bool {
        let connection = &self.http3.connection;
        let policy = &self.server().location.settings.keep_alive;
        !policy.idle_timeout().is_zero()
            && connection.requests.get() < policy.requests
            && self.age(now) <= policy.time
    }

    fn say_last_word(&mut self) {
        if !self.is_leaving {
            self.counters.count(Happened::GoAway);
        }
        self.is_leaving = true;
        self.http3.call(|engine| engine.go_away(Farewell::Last));
    }

    /// Notes whether a head is there in part.
    fn note_head(&mut self, now: Instant) {
        let is_partial = self.http3.engine.borrow().unfinished_head().is_some();
        if !is_partial {
            self.reading = None;
        } else if self.reading.is_none() {
            self.reading = Some(Counted::new(&self.counters.reading));
            if self.idle_since.is_some() {
                self.http3.connection.waiting.set(Waiting::Head(now));
            }
        }
    }

    /// Writes what QUIC takes; true if there was something to write.
    fn write(&mut self) -> bool {
        let mut engine = self.http3.engine.borrow_mut();
        if !engine.wants_flush() {
            return false;
        }
        self.carrier.send(|sender| engine.flush(sender, WRITE));
        drop(engine);
        // What was written may have been the end of an answer, or made room.
        self.heed_events();
        true
    }

    /// The client is gone.
    fn break_off(&mut self, lost: &Lost) {
        self.http3.leave();
        if self.has_begun && self.idle_since.is_some() {
            let client = self.http3.connection.peer.host_text();
            let message = format_args!("client {client} closed keepalive connection");
            request_error::connection(&self.http3.connection, Level::Info, message);
        } else {
            self.log_at(Level::Info, format_args!("{lost}"));
        }
    }

    /// Decides whether the connection goes on.
    fn poll_life(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            if self.idle_since.is_none() && self.http3.is_empty() {
                self.become_idle();
            }
            self.heed_others();
            // What was said is to be written.
            if self.http3.is_dirty.get() {
                self.write();
            }
            if self.is_over() {
                return Poll::Ready(());
            }
            let Some((at, due)) = self.next_due() else {
                return Poll::Pending;
            };
            if self.carrier.timer.poll_expired(cx, at).is_pending() {
                return Poll::Pending;
            }
            match due {
                Due::Handshake => {
                    self.counters.count(Happened::HandshakeFailed);
                    let message = format_args!("client timed out while SSL handshaking");
                    self.log_at(Level::Info, message);
                    return Poll::Ready(());
                }
                Due::End => {
                    self.counters.count(Happened::SlowReader);
                    return Poll::Ready(());
                }
                Due::Head | Due::Request | Due::Farewell => self.expire(due),
            }
        }
    }

    fn become_idle(&mut self) {
        let now = clock::instant();
        self.idle_since = Some(now);
        self.writing = None;
        self.http3.connection.waiting.set(Waiting::Idle(now));
        self.http3.engine.borrow_mut().rest();
    }

    /// The generation closes, or room is to be made.
    fn heed_others(&mut self) {
        let connection = Rc::clone(&self.http3.connection);
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

    /// RFC 9114 §5.2: requests that may be on their way are served, too.
    fn begin_farewell(&mut self) {
        let min_timeout = self.server().location.settings.keep_alive.min_timeout;
        let grace = CLOSING_GRACE.max(min_timeout);
        let now = clock::instant();
        let is_quiet = |since: Instant| now.saturating_duration_since(since) >= grace;
        if self.idle_since.is_some_and(is_quiet) {
            self.say_last_word();
        } else {
            self.farewell_at = Some(now + grace);
            self.http3.call(|engine| engine.go_away(Farewell::Warn));
        }
    }

    /// True when nothing is to come or to go, and the client has all.
    fn is_over(&mut self) -> bool {
        if !self.http3.engine.borrow().is_finished() {
            return false;
        }
        self.ended_since.get_or_insert_with(clock::instant);
        self.unacknowledged.is_empty()
    }

    /// The wait that ends next.
    fn next_due(&self) -> Option<(Instant, Due)> {
        let server = self.server();
        let settings = &server.location.settings;
        if let Some(since) = self.ended_since {
            return Some((since + settings.send.timeout, Due::End));
        }
        let head_timeout = server.settings.head.timeout;
        let idle_timeout = if self.has_begun {
            settings.keep_alive.idle_timeout()
        } else {
            head_timeout
        };
        let head = self.http3.engine.borrow().unfinished_head();
        let accepted = self.http3.connection.accepted;
        let is_idle = !self.is_leaving && head.is_none();
        let idle_since = self.idle_since.filter(|_| is_idle);
        let waits = [
            (
                head.map(|(_, since)| accepted + since + head_timeout),
                Due::Head,
            ),
            (idle_since.map(|at| at + idle_timeout), Due::Request),
            (self.farewell_at, Due::Farewell),
            (self.early.as_ref().map(|it| it.until), Due::Handshake),
        ];
        waits
            .into_iter()
            .filter_map(|(at, due)| at.map(|at| (at, due)))
            .min_by_key(|(at, _)| *at)
    }

    fn expire(&mut self, due: Due) {
        match due {
            Due::Head => {
                self.counters.count(Happened::SlowHead);
                let message = format_args!("client timed out while reading a request's head");
                self.log_at(Level::Info, message);
                let head = self.http3.engine.borrow().unfinished_head();
                if let Some((stream, _)) = head {
                    self.http3.call(|engine| engine.give_up_head(stream));
                }
                let now = clock::instant();
                // It was not idle meanwhile, and goes on.
                self.idle_since = self.idle_since.map(|_| now);
                self.note_head(now);
            }
            Due::Request => self.say_last_word(),
            Due::Farewell => {
                self.farewell_at = None;
                self.say_last_word();
            }
            // Its owner looks at it before.
            Due::End | Due::Handshake => {}
        }
    }

    fn log_at(&self, level: Level, message: std::fmt::Arguments<'_>) {
        let message = format_args!("{message} while processing HTTP/3 connection");
        request_error::connection(&self.http3.connection, level, message);
    }

    fn log_gone(&self, why: Gone) {
        match why {
            Gone::ByPeer(Code::NO_ERROR | Code::REQUEST_CANCELLED) => {
                self.log_at(Level::Info, format_args!("client canceled stream"));
            }
            Gone::ByPeer(Code(code)) => {
                let message = format_args!("client terminated stream with status {code}");
                self.log_at(Level::Info, message);
            }
            Gone::ByFault(fault) => self.log_at(Level::Info, format_args!("client sent {fault}")),
        }
    }
}
