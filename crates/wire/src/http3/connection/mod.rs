//! A connection: the machine of a server.
//!
//! ```text
//! Running ─► Leaving (GOAWAY) ─► is_finished
//!    └──────────┴──► Failed (the transport tells the code; nothing is read or written any more)
//! ```
//!
//! Its owner tells of streams that the peer has [opened](Connection::opened) and gives what it
//! reads of them; does what [`Connection::next_event`] says; and calls [`Connection::flush`].
//! `receive` reads requests, `block` blocks of fields, `plain` requests of HTTP/0.9, `control` the
//! peer's unidirectional streams, `send` writes.
//!
//! 1. A stream is in the table from its begin until its owner has released it and both directions
//!    have ended.
//! 2. A stream is known to the scheduler exactly while it has something to send and the transport
//!    has not said that there is no room for it.
//! 3. The peer is told of every block that is not read (RFC 9204 §4.4.2).

use std::collections::VecDeque;
use std::time::Duration;

use bytes::{BufMut, BytesMut};

use super::code::{Code, Fault};
use super::event::{Event, Gone};
use super::flood::Flood;
use super::frame;
use super::limits::{ACKS_LEN_MOST, Allowances, INSTRUCTIONS_PER_REQUEST, REJECTED_MOST};
use super::qpack::decode::Decoder;
use super::qpack::encode::Encoder;
use super::qpack::integer;
use super::settings::{OwnSettings, PeerSettings};
use super::stream::{Inbound, Outbound, Owner, Streams};
use super::transport::Chatter;
use crate::head::Limits;
use crate::http2::scheduler::Scheduler;
use crate::http2::{ExtendedConnect, Priority, Rules};

mod block;
mod control;
mod plain;
mod receive;
mod send;

pub use control::Farewell;
pub use send::{End, HeadWriter};

use control::Peer;
use send::Own;

/// The protocol that is spoken on the streams.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Dialect {
    /// HTTP/3.
    #[default]
    Frames,
    /// HTTP/0.9: requests are lines, answers bytes.
    Plain,
}

/// Settings and bounds of a connection.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// The protocol.
    pub dialect: Dialect,
    /// Requests whose exchange may run at once, and that may be open beside them.
    pub max_concurrent_streams: u32,
    /// Bytes that may come of a body before its owner asks for more.
    pub stream_window: u64,
    /// Bytes of the table that the peer's blocks are read with.
    pub table_capacity: u32,
    /// Streams whose blocks may wait for that table.
    pub blocked_streams: u32,
    /// Most bytes of a stream that wait to be written, while there are few streams.
    pub send_buffer: usize,
    /// The rules that requests are read by.
    pub rules: Rules,
}

/// nginx's defaults, where it has them.
impl Default for Config {
    fn default() -> Self {
        Config {
            dialect: Dialect::Frames,
            max_concurrent_streams: 128,
            stream_window: 64 * 1024,
            table_capacity: 4096,
            // As many as may be at once.
            blocked_streams: 128,
            send_buffer: 64 * 1024,
            rules: Rules::default(),
        }
    }
}

/// The way of a connection to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Life {
    /// Streams come and go.
    Running,
    /// Streams before this one are served, later ones are rejected.
    Leaving(u64),
    /// Nothing is read or written any more.
    Failed,
}

/// An order to the transport.
#[derive(Clone, Copy, Debug)]
enum Order {
    Reset(u64, Code),
    Stop(u64, Code),
}

/// The bits of a stream's number that say who has opened it, and for which directions.
const KIND: u64 = 3;
/// The bits of a request's stream.
const REQUEST: u64 = 0;
/// The bits of the peer's unidirectional streams.
const PEER: u64 = 2;
/// The difference of the numbers of two streams of a kind.
const STEP: u64 = 4;

/// A connection of HTTP/3.
#[derive(Debug)]
pub struct Connection {
    config: Config,
    decoder: Decoder,
    encoder: Encoder,
    streams: Streams,
    /// Streams whose block waits for the table.
    waiting: Vec<u64>,
    /// Streams whose head has not come.
    heads: usize,
    /// The peer's unidirectional streams.
    peers: Vec<Peer>,
    control: control::State,
    /// Our unidirectional streams: control, decoder, encoder.
    own: [Own; 3],
    peer: PeerSettings,
    /// The first number that no request has come with.
    next_request: u64,
    rejected: u32,
    scheduler: Scheduler,
    /// Priorities of streams that are to come (RFC 9218 §7.2).
    early: VecDeque<(u64, Priority)>,
    /// Frames that were written last, and their stream.
    tail: BytesMut,
    tail_of: Option<u64>,
    orders: Vec<Order>,
    events: VecDeque<Event>,
    allowances: Allowances,
    /// Frames of the transport that were paid for.
    paid: Chatter,
    life: Life,
}

impl Connection {
    /// A connection at its begin.
    #[must_use]
    pub fn new(config: Config) -> Self {
        let mut connection = Connection {
            config,
            decoder: Decoder::new(config.table_capacity as usize)
                .with_longest(config.rules.limits.line),
            encoder: Encoder::new(),
            streams: Streams::default(),
            waiting: Vec::new(),
            heads: 0,
            peers: Vec::new(),
            control: control::State::default(),
            own: Default::default(),
            peer: PeerSettings::default(),
            next_request: 0,
            rejected: 0,
            scheduler: Scheduler::default(),
            early: VecDeque::new(),
            tail: BytesMut::new(),
            tail_of: None,
            orders: Vec::new(),
            events: VecDeque::new(),
            allowances: Allowances::new(config.max_concurrent_streams),
            paid: Chatter::default(),
            life: Life::Running,
        };
        connection.begin();
        connection
    }

    /// Writes what our streams begin with (RFC 9114 §6.2, RFC 9204 §4.2).
    fn begin(&mut self) {
        let config = &self.config;
        let settings = OwnSettings {
            table_capacity: u64::from(config.table_capacity),
            max_field_section: u64::MAX,
            blocked_streams: u64::from(config.blocked_streams),
            has_connect_protocol: config.rules.extended_connect == ExtendedConnect::Allow,
        };
        let [control, decoder, encoder] = &mut self.own;
        control.out.put_u8(0);
        settings.write(&mut control.out);
        decoder.out.put_u8(3);
        encoder.out.put_u8(2);
    }

    /// True while one of our streams is to be opened; see [`Connection::attach`].
    #[must_use]
    pub fn wants_stream(&self) -> bool {
        let may_want = self.life != Life::Failed && !self.is_plain();
        may_want && self.own.iter().any(|own| own.id.is_none())
    }

    /// Takes a unidirectional stream that was opened for us.
    pub fn attach(&mut self, stream: u64) {
        if let Some(own) = self.own.iter_mut().find(|own| own.id.is_none()) {
            own.id = Some(stream);
        }
    }

    /// The settings of the peer.
    #[must_use]
    pub fn peer(&self) -> &PeerSettings {
        &self.peer
    }

    /// The count of requests, with those whose exchange still runs.
    #[must_use]
    pub fn stream_count(&self) -> usize {
        self.streams.len()
    }

    /// Sets the bounds of the heads and trailers that are read from now on.
    pub fn set_head_limits(&mut self, limits: Limits) {
        self.config.rules.limits = limits;
    }

    /// The next thing that has happened.
    pub fn next_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// True if nothing is to come or to go any more.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        match self.life {
            Life::Running => false,
            Life::Leaving(_) => self.streams.is_empty() && !self.wants_flush(),
            Life::Failed => true,
        }
    }

    /// Gives memory back that is not needed while the connection is idle.
    pub fn rest(&mut self) {
        self.streams.shrink();
        self.events.shrink_to_fit();
        self.orders.shrink_to_fit();
        if self.tail.is_empty() {
            self.tail = BytesMut::new();
        }
    }

    /// Notes that the peer has opened a stream.
    pub fn opened(&mut self, id: u64, now: Duration) {
        if self.life == Life::Failed {
            return;
        }
        let outcome = match id & KIND {
            REQUEST => self.open_request(id, now),
            PEER if self.is_plain() => self.refuse_peer(id, now),
            PEER => self.open_peer(id),
            _ => Ok(()),
        };
        self.fail_if(outcome);
    }

    fn open_request(&mut self, id: u64, now: Duration) -> Result<(), Fault> {
        self.next_request = self.next_request.max(id + STEP);
        let is_late = matches!(self.life, Life::Leaving(end) if id >= end);
        let most = self.config.max_concurrent_streams as usize;
        // A stream that the peer has reset is none of its open ones, but its exchange may still
        // run.
        let is_one_too_many = self.streams.len() >= most.saturating_mul(2);
        if !is_late && !is_one_too_many && number_of(id).is_some() {
            self.streams.insert(id, now, self.config.stream_window);
            self.heads += 1;
            self.allowances.control.earn(1);
            self.allowances.priorities.earn(1);
            self.allowances.acknowledgements.earn(1);
            self.allowances.instructions.earn(INSTRUCTIONS_PER_REQUEST);
            return Ok(());
        }
        if is_one_too_many {
            self.rejected += 1;
            if self.rejected > self.config.max_concurrent_streams.max(REJECTED_MOST) {
                return Err(Fault::TooManyRejected);
            }
        }
        self.orders.push(Order::Stop(id, Code::REQUEST_REJECTED));
        self.orders.push(Order::Reset(id, Code::REQUEST_REJECTED));
        self.cancel_section(id)
    }

    /// The oldest stream whose head has not come as a whole, and the time when it was opened.
    #[must_use]
    pub fn unfinished_head(&self) -> Option<(u64, Duration)> {
        if self.heads == 0 {
            return None;
        }
        let open = self.streams.iter();
        let mut heads = open.filter(|(_, stream)| stream.inbound == Inbound::Head);
        heads.next().map(|(id, stream)| (id, stream.since))
    }

    /// Gives the head of a stream up of which the rest does not come.
    pub fn give_up_head(&mut self, id: u64) {
        self.reset(id, Code::REQUEST_INCOMPLETE);
    }

    /// Notes that a stream's exchange is over. What it has not ended is broken off: a body that is
    /// still to come with no error if all was answered (RFC 9114 §4.1), an answer that is not whole
    /// with an error.
    pub fn release(&mut self, id: u64) {
        if let Some(stream) = self.streams.get_mut(id)
            && stream.owner == Owner::Holds
        {
            stream.owner = Owner::Released;
            stream.wants_room = false;
            self.settle(id);
        }
    }

    /// Removes a stream that is closed and released, and resets one that its owner has left.
    fn settle(&mut self, id: u64) {
        let Some(stream) = self.streams.get(id) else {
            return;
        };
        if stream.owner != Owner::Released {
            return;
        }
        match stream.outbound {
            // The end is on its way; it is looked at again when it was taken.
            Outbound::Ending => {}
            Outbound::Ended => {
                self.stop(id);
                self.remove(id);
            }
            Outbound::Head | Outbound::Body => self.reset(id, Code::INTERNAL_ERROR),
        }
    }

    fn remove(&mut self, id: u64) {
        if self.tail_of == Some(id) {
            self.tail_of = None;
            self.tail.clear();
        }
        self.unschedule(id);
        self.waiting.retain(|other| *other != id);
        self.streams.remove(id);
    }

    /// Refuses what is still to come of a stream. INVARIANT 3.
    fn stop(&mut self, id: u64) {
        let Some(stream) = self.streams.get_mut(id) else {
            return;
        };
        if stream.inbound == Inbound::Ended {
            return;
        }
        let code = if stream.is_malformed {
            Code::MESSAGE_ERROR
        } else {
            Code::NO_ERROR
        };
        self.orders.push(Order::Stop(id, code));
        self.abandon(id);
    }

    /// Reads no more of a stream, and tells the peer that its blocks are not read.
    fn abandon(&mut self, id: u64) {
        let Some(stream) = self.streams.get_mut(id) else {
            return;
        };
        if stream.inbound == Inbound::Head {
            self.heads -= 1;
        }
        stream.close_inbound();
        self.waiting.retain(|other| *other != id);
        let outcome = self.cancel_section(id);
        self.fail_if(outcome);
    }

    /// The word to the peer that blocks of a stream are not read (RFC 9204 §4.4.2). INVARIANT 3.
    fn cancel_section(&mut self, id: u64) -> Result<(), Fault> {
        if !self.decoder.has_table() {
            return Ok(());
        }
        self.write_acknowledgement((0x40, 6), id)
    }

    /// Writes a word on the decoder stream. Words that are not read pile up: a bound on them.
    fn write_acknowledgement(
        &mut self,
        (first, prefix): (u8, u32),
        value: u64,
    ) -> Result<(), Fault> {
        let [_, decoder, _] = &mut self.own;
        if decoder.out.len() > ACKS_LEN_MOST {
            return Err(Fault::Flood(Flood::UnreadAnswers));
        }
        integer::write(&mut decoder.out, first, prefix, value);
        Ok(())
    }

    /// Resets a stream. Its owner is told nothing: it is who resets it, or it has never heard of
    /// it.
    pub fn reset(&mut self, id: u64, code: Code) {
        let Some(stream) = self.streams.get_mut(id) else {
            return;
        };
        if !stream.is_sent() {
            self.orders.push(Order::Reset(id, code));
            stream.close_outbound();
        }
        if stream.inbound != Inbound::Ended {
            self.orders.push(Order::Stop(id, code));
            self.abandon(id);
        }
        self.unschedule(id);
        if self
            .streams
            .get(id)
            .is_some_and(|it| it.owner != Owner::Holds)
        {
            self.remove(id);
        }
    }

    /// Ends a stream for a fault of the peer, and tells its owner.
    fn break_stream(&mut self, id: u64, fault: Fault, now: Duration) -> Result<(), Fault> {
        self.spend_made_reset(now)?;
        if self
            .streams
            .get(id)
            .is_some_and(|it| it.owner == Owner::Holds)
        {
            self.tell(Event::Gone {
                stream: id,
                why: Gone::ByFault(fault),
            });
        }
        self.reset(id, fault.code());
        Ok(())
    }

    /// Pays for a reset that the peer makes us send.
    fn spend_made_reset(&mut self, now: Duration) -> Result<(), Fault> {
        let has_one = self.allowances.made_resets.spend(now);
        has_one.then_some(()).ok_or(Fault::Flood(Flood::MadeResets))
    }

    /// Reports a body that is none, of which no more is read; its stream will be stopped behind the
    /// answer.
    fn tell_malformed(&mut self, id: u64, fault: Fault, now: Duration) -> Result<(), Fault> {
        self.spend_made_reset(now)?;
        if let Some(stream) = self.streams.get_mut(id) {
            stream.is_malformed = true;
            stream.inbound = Inbound::Discard;
        }
        self.tell(Event::Malformed { stream: id, fault });
        Ok(())
    }

    fn tell(&mut self, event: Event) {
        self.events.push_back(event);
    }

    /// Says that no more requests are wanted (RFC 9114 §5.2).
    pub fn go_away(&mut self, farewell: Farewell) {
        if self.life != Life::Running {
            return;
        }
        let [control, ..] = &mut self.own;
        match farewell {
            Farewell::Warn => frame::write_go_away(&mut control.out, frame::MAX & !KIND),
            Farewell::Last => {
                frame::write_go_away(&mut control.out, self.next_request);
                self.life = Life::Leaving(self.next_request);
            }
        }
    }

    /// Ends the connection at once, for a reason of ours; the transport is to be closed.
    pub fn close(&mut self) {
        self.life = Life::Failed;
        self.orders.clear();
        self.waiting.clear();
        self.heads = 0;
        self.tail.clear();
        self.tail_of = None;
        for id in self.streams.ids() {
            self.unschedule(id);
            if let Some(stream) = self.streams.get_mut(id) {
                stream.close_inbound();
                stream.close_outbound();
                if stream.owner != Owner::Holds {
                    self.streams.remove(id);
                }
            }
        }
    }

    /// Ends the connection for a fault of the peer (RFC 9114 §8).
    fn fail_if(&mut self, outcome: Result<(), Fault>) {
        if let Err(fault) = outcome
            && self.life != Life::Failed
        {
            self.close();
            self.tell(Event::Failed(fault));
        }
    }
}

/// The number by which the scheduler knows a request.
fn number_of(id: u64) -> Option<u32> {
    u32::try_from(id / STEP).ok()
}

#[cfg(test)]
mod tests;
