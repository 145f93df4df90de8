//! A connection: the machine that both ends are, a server's or a client's.
//!
//! ```text
//! Preface ─► Running ─► Leaving (GOAWAY) ─► is_finished
//!    └──────────┴──────────┴──► Failed (GOAWAY with a code; nothing is read any more)
//! ```
//!
//! Its owner reads bytes into a buffer and calls [`Connection::next_event`] until it says that
//! there is no more; does what the events say; calls [`Connection::produce`], and writes what
//! [`Connection::output`] has. `receive` reads frames, `block` blocks of fields, `control`
//! what is about the connection as a whole, `send` writes.
//!
//! 1. A stream is in the table from its head until its owner has released it and both ends have
//!    ended it.
//! 2. A stream is known to the scheduler exactly while it has something to send, its own window has
//!    room for it, and the connection's window is not what it waits for.
//! 3. Bytes that came are room for the peer again only when they were consumed, or thrown away.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::BufMut;

use super::code::{Code, Fault};
use super::event::{Event, Gone};
use super::flood::Flood;
use super::flow::{DEFAULT_WINDOW, ReceiveWindow, SendWindow};
use super::frame::{self, DEFAULT_MAX_LEN, PREFACE};
use super::hpack::decode::Decoder;
use super::hpack::encode::Encoder;
use super::limits::{
    Allowances, LATE_HEADS_MOST, OUTPUT_MOST, PEER_RESETS_REMEMBERED, RESETS_REMEMBERED,
};
use super::output::Output;
use super::priority::Priority;
use super::request::{ExtendedConnect, Rules};
use super::scheduler::Scheduler;
use super::settings::{OwnSettings, PeerSettings};
use super::stream::{Inbound, Outbound, Owner, Reset, Streams};
use super::tree::Tree;
use crate::head::Limits;

mod block;
mod control;
mod receive;
mod send;

pub use block::GivenUp;
pub use control::Farewell;
pub use send::{End, HeadWriter, RequestLine};

use block::Block;
use receive::Reading;

/// The end of a connection that we are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Requests come in.
    Server,
    /// Requests go out.
    Client,
}

/// The size of the tables of blocks unless others are agreed on (RFC 9113 §6.5.2).
const DEFAULT_TABLE_SIZE: u32 = 4096;

/// Settings and bounds of a connection.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Streams that the peer may have at once (`http2_max_concurrent_streams`).
    pub max_concurrent_streams: u32,
    /// Bytes of bodies that may be held, or be on their way, for all streams together.
    pub connection_window: u32,
    /// Bytes that may come for a stream before its owner asks for more
    /// (`http2_body_preread_size`).
    pub stream_window: u32,
    /// Bytes of the table that the peer's blocks are read with; no more than the default size.
    pub table_size: u32,
    /// The longest payload of a frame that is read.
    pub max_frame_len: u32,
    /// The longest payload of a DATA frame that is written (`http2_chunk_size`).
    pub chunk_len: usize,
    /// Most bytes of a stream's body that wait to be written, while there are few streams.
    pub send_buffer: usize,
    /// The rules that requests are read by.
    pub rules: Rules,
}

/// nginx's defaults, where it has them.
impl Default for Config {
    fn default() -> Self {
        Config {
            max_concurrent_streams: 128,
            // As many as sixteen streams may hold; nginx sets no bound.
            connection_window: 1 << 20,
            stream_window: 64 * 1024,
            table_size: DEFAULT_TABLE_SIZE,
            // What the window lets through at once. A frame is not held until it is whole.
            max_frame_len: 1 << 20,
            chunk_len: 8 * 1024,
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
    /// Streams up to this one are served, later ones are ignored.
    Leaving(u32),
    /// Nothing is read any more.
    Failed,
}

/// Streams that we have reset, of which late frames may come (RFC 9113 §5.1).
#[derive(Debug, Default)]
struct Closed {
    reset: VecDeque<u32>,
    /// The highest of those that were forgotten.
    forgotten: u32,
    /// Streams that the peer has reset.
    by_peer: VecDeque<u32>,
    /// Heads that came late since we have reset a stream.
    late_heads: u32,
}

impl Closed {
    fn remember(&mut self, stream: u32) {
        self.late_heads = 0;
        if self.reset.len() >= RESETS_REMEMBERED {
            let oldest = self.reset.pop_front().unwrap_or(0);
            self.forgotten = self.forgotten.max(oldest);
        }
        self.reset.push_back(stream);
    }

    /// Notes that the peer has reset a stream.
    fn note_by_peer(&mut self, stream: u32) {
        if self.by_peer.len() >= PEER_RESETS_REMEMBERED {
            self.by_peer.pop_front();
        }
        self.by_peer.push_back(stream);
    }

    /// Counts a head of a stream that we have reset: it costs the peer less than us.
    fn count_late_head(&mut self) -> Result<(), Fault> {
        self.late_heads += 1;
        if self.late_heads > LATE_HEADS_MOST {
            return Err(Fault::Flood(Flood::Overhead));
        }
        Ok(())
    }

    /// True if late frames of a stream are no fault.
    fn may_be_late(&self, stream: u32) -> bool {
        stream <= self.forgotten || self.reset.contains(&stream)
    }
}

/// Counts that the bounds on floods are about.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    /// New streams since the input was used up.
    new_streams: u32,
    /// Streams that were refused.
    refused: u32,
    /// Acknowledgements since all was written.
    acks: u32,
    /// Bytes that came and went.
    bytes: u64,
    /// Those of them that carried heads and bodies.
    payload: u64,
    /// Those of these that have paid for WINDOW_UPDATE.
    updated: u64,
}

/// A connection of HTTP/2.
#[derive(Debug)]
pub struct Connection {
    role: Role,
    config: Config,
    reading: Reading,
    block: Block,
    decoder: Decoder,
    encoder: Encoder,
    streams: Streams,
    closed: Closed,
    /// The highest stream that the peer has begun.
    last_peer: u32,
    /// The next stream that we begin.
    next_own: u32,
    send: SendWindow,
    receive: ReceiveWindow,
    peer: PeerSettings,
    has_first_frame: bool,
    has_ack: bool,
    scheduler: Scheduler,
    /// The dependencies of streams, once the peer has told one.
    tree: Option<Box<Tree>>,
    /// True if dependencies have changed since the scheduler was told the streams' places.
    has_new_places: bool,
    /// Streams that wait for room in the connection's window.
    blocked: Vec<u32>,
    /// Priorities of streams that are to come (RFC 9218 §7.1).
    early: VecDeque<(u32, Priority)>,
    output: Output,
    events: VecDeque<Event>,
    allowances: Allowances,
    counts: Counts,
    life: Life,
    /// The last stream that the peer looks at, once it goes away.
    peer_last: Option<u32>,
}

impl Connection {
    /// A connection at its begin, with what is to be written first.
    #[must_use]
    pub fn new(role: Role, config: Config) -> Self {
        let mut connection = Connection {
            role,
            config,
            reading: match role {
                Role::Server => Reading::Preface,
                Role::Client => Reading::Head,
            },
            block: Block::default(),
            decoder: Decoder::with_size(config.table_size.min(DEFAULT_TABLE_SIZE) as usize),
            encoder: Encoder::new(),
            streams: Streams::default(),
            closed: Closed::default(),
            last_peer: 0,
            next_own: 1,
            send: SendWindow::new(DEFAULT_WINDOW),
            receive: ReceiveWindow::new(DEFAULT_WINDOW),
            peer: PeerSettings::default(),
            has_first_frame: false,
            has_ack: false,
            scheduler: Scheduler::default(),
            tree: None,
            has_new_places: false,
            blocked: Vec::new(),
            early: VecDeque::new(),
            output: Output::default(),
            events: VecDeque::new(),
            allowances: Allowances::new(config.max_concurrent_streams),
            counts: Counts::default(),
            life: Life::Running,
            peer_last: None,
        };
        connection.begin();
        connection
    }

    /// Writes the preface: RFC 9113 §3.4.
    fn begin(&mut self) {
        let config = &self.config;
        let settings = OwnSettings {
            header_table_size: (config.table_size < DEFAULT_TABLE_SIZE)
                .then_some(config.table_size),
            refuses_push: self.role == Role::Client,
            max_concurrent_streams: match self.role {
                Role::Server => Some(config.max_concurrent_streams),
                Role::Client => None,
            },
            initial_window: (config.stream_window != DEFAULT_WINDOW)
                .then_some(config.stream_window),
            max_frame_len: (config.max_frame_len != DEFAULT_MAX_LEN)
                .then_some(config.max_frame_len),
            has_connect_protocol: self.role == Role::Server
                && config.rules.extended_connect == ExtendedConnect::Allow,
        };
        let out = self.output.block();
        if self.role == Role::Client {
            out.put_slice(PREFACE);
        }
        settings.write(out);
        if let Some(increment) = self.receive.set_target(config.connection_window) {
            frame::write_window_update(out, 0, increment);
        }
    }

    /// The bytes that are to be written.
    #[must_use]
    pub fn output(&mut self) -> &mut Output {
        &mut self.output
    }

    /// The settings of the peer.
    #[must_use]
    pub fn peer(&self) -> &PeerSettings {
        &self.peer
    }

    /// The count of streams, with those whose exchange still runs.
    #[must_use]
    pub fn stream_count(&self) -> usize {
        self.streams.len()
    }

    /// Sets the bounds of the heads and trailers that are read from now on.
    pub fn set_head_limits(&mut self, limits: Limits) {
        self.config.rules.limits = limits;
    }

    /// True while the owner may read: what waits to be written is not too much, and the connection
    /// has not failed.
    #[must_use]
    pub fn wants_input(&self) -> bool {
        self.life != Life::Failed && self.output.len() < OUTPUT_MOST
    }

    /// True if there is a frame of which a part has come, or a block of which more is to come.
    #[must_use]
    pub fn is_in_frame(&self) -> bool {
        self.reading != Reading::Head || self.block.stream().is_some()
    }

    /// True if nothing is to come or to go any more: the connection can be closed once its output
    /// is written.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        match self.life {
            Life::Running => self.peer_last.is_some() && self.streams.is_empty(),
            Life::Leaving(_) => self.streams.is_empty(),
            Life::Failed => true,
        }
    }

    /// True if there is something to tell before more is read.
    #[must_use]
    pub fn has_events(&self) -> bool {
        !self.events.is_empty()
    }

    /// True if [`Connection::produce`] is sure to write something.
    #[must_use]
    pub fn has_more(&self) -> bool {
        self.send.room() > 0 && !self.scheduler.is_empty()
    }

    /// Gives memory back that is not needed while the connection is idle.
    pub fn rest(&mut self) {
        self.streams.shrink();
        self.events.shrink_to_fit();
        self.blocked.shrink_to_fit();
        if self.output.is_empty() {
            self.output = Output::default();
        }
    }

    /// Notes that a stream's exchange is over. What it has not ended is reset: a body that is still
    /// to come with no error if all was answered (RFC 9113 §8.1), an answer that is not whole with
    /// an error.
    pub fn release(&mut self, id: u32) {
        let Some(stream) = self.streams.get_mut(id) else {
            return;
        };
        if stream.owner == Owner::Released {
            return;
        }
        stream.owner = Owner::Released;
        stream.wants_room = false;
        if matches!(stream.inbound, Inbound::Body(_)) {
            stream.inbound = Inbound::Discard;
        }
        // INVARIANT 3: nobody else will consume it.
        let held = stream.receive.held();
        stream.receive.free(held);
        self.free_connection(held);
        self.settle(id);
    }

    /// Removes a stream that is closed and released, and resets one that its owner has left.
    fn settle(&mut self, id: u32) {
        let Some(stream) = self.streams.get(id) else {
            return;
        };
        if stream.owner == Owner::Holds {
            return;
        }
        let is_answered = matches!(stream.outbound, Outbound::Ended) && stream.reset.is_none();
        if self.role == Role::Server && stream.is_malformed && is_answered {
            // RFC 9113 §8.1.1: the answer to what is malformed goes before the reset.
            frame::write_reset(self.output.block(), id, Code::PROTOCOL_ERROR);
            return self.close_by_us(id);
        }
        if stream.is_closed() {
            self.streams.remove(id);
            if let Some(tree) = &mut self.tree {
                tree.end(id);
            }
            return;
        }
        let code = match (&stream.outbound, self.role) {
            // The end is on its way; it is looked at again when it is written.
            (Outbound::Ending(_), Role::Server) => return,
            (Outbound::Ended, Role::Server) => Code::NO_ERROR,
            (_, Role::Server) => Code::INTERNAL_ERROR,
            (_, Role::Client) if stream.is_malformed => Code::PROTOCOL_ERROR,
            (_, Role::Client) if stream.inbound == Inbound::Ended => Code::NO_ERROR,
            (_, Role::Client) => Code::CANCEL,
        };
        self.reset(id, code);
    }

    /// Ends a stream for a fault of the peer, and tells its owner.
    fn break_stream(&mut self, id: u32, fault: Fault, now: Duration) -> Result<(), Fault> {
        self.spend_made_reset(now)?;
        if self.streams.get(id).is_some_and(|it| it.reset.is_none()) {
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
        if self.allowances.made_resets.spend(now) {
            Ok(())
        } else {
            Err(Fault::Flood(Flood::MadeResets))
        }
    }

    /// Writes RST_STREAM, and closes the stream if it is open.
    fn close_by_us(&mut self, id: u32) {
        self.closed.remember(id);
        if let Some(stream) = self.streams.get_mut(id) {
            stream.close(Reset::ByUs);
            self.unschedule(id);
            self.settle(id);
        }
    }

    fn tell(&mut self, event: Event) {
        self.events.push_back(event);
    }
}

#[cfg(test)]
mod tests;
