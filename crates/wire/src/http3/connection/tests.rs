//! The machine of a server, against bytes made by hand and against a client that is one of two
//! ends.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::{Bytes, BytesMut};

use super::*;
use crate::header::{Field, Fields, Known};
use crate::http2::BodyLength;
use crate::http2::hpack::name::Class;
use crate::http3::transport::{Transport, Unsent};

mod floods;
mod malformed;
mod model;
mod plain;
mod server;

const NOW: Duration = Duration::ZERO;
const NO_SETTINGS: &[u8] = &[0, 4, 0];

/// Bytes that a stream has taken, and its end.
#[derive(Debug, Default)]
pub(super) struct Sent {
    bytes: Vec<u8>,
    has_end: bool,
    reset: Option<Code>,
    stop: Option<Code>,
}

/// A transport that keeps what it takes.
#[derive(Debug)]
pub(super) struct Pipes {
    sent: BTreeMap<u64, Sent>,
    /// Bytes that each stream takes before it is blocked.
    room: usize,
    /// The order in which streams were written to.
    turns: Vec<u64>,
}

impl Default for Pipes {
    fn default() -> Self {
        Pipes {
            sent: BTreeMap::new(),
            room: usize::MAX,
            turns: Vec::new(),
        }
    }
}

impl Transport for Pipes {
    fn send(&mut self, stream: u64, pieces: &mut [Bytes]) -> Result<usize, Unsent> {
        let sent = self.sent.entry(stream).or_default();
        assert!(!sent.has_end && sent.reset.is_none(), "{stream}");
        let mut room = self.room.saturating_sub(sent.bytes.len());
        if room == 0 {
            return Err(Unsent::Blocked);
        }
        self.turns.push(stream);
        let mut taken = 0;
        for piece in pieces {
            let part = piece.split_to(piece.len().min(room));
            sent.bytes.extend_from_slice(&part);
            room -= part.len();
            taken += part.len();
        }
        Ok(taken)
    }

    fn finish(&mut self, stream: u64) {
        let sent = self.sent.entry(stream).or_default();
        assert!(!std::mem::replace(&mut sent.has_end, true));
    }

    fn reset(&mut self, stream: u64, code: Code) {
        let sent = self.sent.entry(stream).or_default();
        assert!(!sent.has_end && sent.reset.replace(code).is_none());
    }

    fn stop(&mut self, stream: u64, code: Code) {
        let sent = self.sent.entry(stream).or_default();
        assert!(sent.stop.replace(code).is_none(), "{stream}");
    }
}

/// A server, what it sends, and what it has told.
pub(super) struct Side {
    connection: Connection,
    pipes: Pipes,
    events: Vec<Event>,
}

impl Side {
    /// A server whose client has told no settings but the defaults.
    fn new() -> Self {
        Self::with(Config::default())
    }

    fn with(config: Config) -> Self {
        let mut side = Self::bare(config);
        side.open(2, NO_SETTINGS);
        assert!(matches!(side.events.pop(), Some(Event::Settings)));
        side
    }

    /// A server that has heard nothing.
    fn bare(config: Config) -> Self {
        let mut connection = Connection::new(config);
        for stream in [3, 7, 11] {
            assert!(connection.wants_stream());
            connection.attach(stream);
        }
        assert!(!connection.wants_stream());
        Side {
            connection,
            pipes: Pipes::default(),
            events: Vec::new(),
        }
    }

    fn open(&mut self, stream: u64, bytes: &[u8]) {
        self.connection.opened(stream, NOW);
        self.give(stream, bytes);
    }

    fn give(&mut self, stream: u64, bytes: &[u8]) {
        let bytes = Bytes::copy_from_slice(bytes);
        if !bytes.is_empty() {
            self.connection.receive(stream, bytes, NOW);
        }
        self.collect();
    }

    fn end(&mut self, stream: u64) {
        self.connection.receive_end(stream, NOW);
        self.collect();
    }

    fn collect(&mut self) {
        while let Some(event) = self.connection.next_event() {
            self.events.push(event);
        }
    }

    fn flush(&mut self) {
        self.connection.flush(&mut self.pipes, usize::MAX);
        self.collect();
    }

    fn sent(&mut self, stream: u64) -> &Sent {
        self.flush();
        self.pipes.sent.entry(stream).or_default()
    }

    /// The code that the connection has failed with.
    fn failure(&self) -> Option<Code> {
        self.events.iter().find_map(|event| match event {
            Event::Failed(fault) => Some(fault.code()),
            _ => None,
        })
    }
}

/// A frame.
fn frame_of(kind: u64, payload: &[u8]) -> Vec<u8> {
    let mut out = BytesMut::new();
    frame::write_integer(&mut out, kind);
    frame::write_integer(&mut out, payload.len() as u64);
    out.extend_from_slice(payload);
    out.to_vec()
}

/// HEADERS without a table.
fn headers(list: &[(&str, &str)]) -> Vec<u8> {
    let mut encoder = Encoder::new();
    let mut out = BytesMut::new();
    write_headers(&mut encoder, 0, list, &mut out);
    out.to_vec()
}

fn write_headers(encoder: &mut Encoder, stream: u64, list: &[(&str, &str)], out: &mut BytesMut) {
    encoder.begin();
    for (name, value) in list {
        match Class::of(name.as_bytes()) {
            Class::Field(_) | Class::Bad | Class::Odd | Class::Underscored => {
                encoder.write_any(name.as_bytes(), value.as_bytes());
            }
            class => encoder.write_pseudo(class, name.as_bytes(), value.as_bytes()),
        }
    }
    encoder.end(stream, out);
}

const GET: &[(&str, &str)] = &[
    (":method", "GET"),
    (":scheme", "https"),
    (":authority", "a"),
    (":path", "/a?b"),
];

/// A request with more fields.
fn get_with(more: &[(&str, &str)]) -> Vec<u8> {
    headers(&[GET, more].concat())
}
