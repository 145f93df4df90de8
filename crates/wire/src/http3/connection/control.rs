//! The peer's unidirectional streams (RFC 9114 §6.2, §7.2; RFC 9204 §4.2; RFC 9218 §7.2).
//!
//! ```text
//! Kind ─┬─► Control   SETTINGS, then PRIORITY_UPDATE, GOAWAY …
//!       ├─► Encoder   instructions for our table
//!       ├─► Decoder   acknowledgements of our blocks
//!       └─► another one: stopped
//! ```
//!
//! 1. Every frame and word in here is paid for by an allowance.
//! 2. A stream that must last as long as the connection has one of its kind, and no end.

use std::time::Duration;

use bytes::{Buf, Bytes};

use super::receive::take_head;
use super::{Connection, KIND, Order, REQUEST, STEP};
use crate::http2::Priority;
use crate::http3::code::{Code, Fault};
use crate::http3::event::Event;
use crate::http3::flood::Flood;
use crate::http3::frame::{Head, Kind, read_integer};
use crate::http3::limits::{EARLY_PRIORITIES, PRIORITY_UPDATE_LEN_MOST, SETTINGS_LEN_MOST};
use crate::http3::qpack::decode::BadInstruction;
use crate::http3::qpack::encode::BadAcknowledgement;
use crate::http3::settings::PeerSettings;
use crate::http3::stream::{Inbound, Partial};

/// A way to say that no more requests are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Farewell {
    /// Requests that are on their way are served (RFC 9114 §5.2: the first of two steps).
    Warn,
    /// Requests that have come are served, and no later ones.
    Last,
}

/// Most streams of the peer that have no kind yet, with those that last (arbitrary: QUIC lets it
/// open three at once).
const PEERS_MOST: usize = 32;

/// The kind of a unidirectional stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PeerKind {
    /// Its first bytes have not come.
    Unknown,
    Control,
    Encoder,
    Decoder,
}

/// A unidirectional stream of the peer.
#[derive(Debug)]
pub(super) struct Peer {
    pub(super) id: u64,
    kind: PeerKind,
    partial: Partial,
}

/// The position in the control stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Reading {
    /// At the begin of a frame, or in its head.
    #[default]
    Frame,
    /// In a frame that is read as a whole: its kind, and bytes of its payload that are to come.
    Small(Kind, usize),
    /// In bytes that nobody wants.
    Skip(u64),
}

/// The words of the control stream so far.
#[derive(Debug, Default)]
pub(super) struct State {
    reading: Reading,
    payload: Vec<u8>,
    has_settings: bool,
    max_push: Option<u64>,
    farewell: Option<u64>,
}

impl Connection {
    pub(super) fn open_peer(&mut self, id: u64) -> Result<(), Fault> {
        if self.peers.len() >= PEERS_MOST {
            return Err(Fault::Flood(Flood::UnknownStreams));
        }
        self.peers.push(Peer {
            id,
            kind: PeerKind::Unknown,
            partial: Partial::default(),
        });
        Ok(())
    }

    /// The end of a stream, however it came. INVARIANT 2.
    pub(super) fn end_peer(&mut self, id: u64) -> Result<(), Fault> {
        let Some(at) = self.peers.iter().position(|peer| peer.id == id) else {
            return Ok(());
        };
        // RFC 9114 §6.2: one that has no kind yet may end.
        match self.peers.swap_remove(at).kind {
            PeerKind::Unknown => Ok(()),
            _ => Err(Fault::CriticalStream),
        }
    }

    pub(super) fn read_peer(
        &mut self,
        id: u64,
        mut bytes: Bytes,
        now: Duration,
    ) -> Result<(), Fault> {
        let Some(at) = self.peers.iter().position(|peer| peer.id == id) else {
            return Ok(());
        };
        let mut peer = self.peers.swap_remove(at);
        if peer.kind == PeerKind::Unknown {
            let Some(number) = take_kind(&mut peer.partial, &mut bytes) else {
                self.peers.push(peer);
                return Ok(());
            };
            let Some(kind) = self.kind_of(number, now)? else {
                self.orders
                    .push(Order::Stop(id, Code::STREAM_CREATION_ERROR));
                return Ok(());
            };
            peer.kind = kind;
        }
        let outcome = match peer.kind {
            PeerKind::Unknown => Ok(()),
            PeerKind::Control => self.read_control(&mut peer.partial, bytes, now),
            PeerKind::Encoder => self.read_instructions(&bytes, now),
            PeerKind::Decoder => self.read_acknowledgements(&bytes, now),
        };
        self.peers.push(peer);
        outcome
    }

    /// The kind of a stream; none if it is not to be read (RFC 9114 §6.2). INVARIANT 2.
    fn kind_of(&mut self, number: u64, now: Duration) -> Result<Option<PeerKind>, Fault> {
        let kind = match number {
            0 => PeerKind::Control,
            // RFC 9114 §6.2.2: only servers push.
            1 => return Err(Fault::StreamKind),
            2 => PeerKind::Encoder,
            3 => PeerKind::Decoder,
            _ if self.allowances.control.spend(now) => return Ok(None),
            _ => return Err(Fault::Flood(Flood::UnknownStreams)),
        };
        if self.peers.iter().any(|peer| peer.kind == kind) {
            return Err(Fault::StreamKind);
        }
        Ok(Some(kind))
    }

    /// Obeys instructions for the table. A block is read as soon as the insertions that it needs
    /// have come, so that what is read does not depend on what comes in one piece.
    fn read_instructions(&mut self, bytes: &[u8], now: Duration) -> Result<(), Fault> {
        let mut rest = bytes;
        loop {
            let awaited = self.awaited_insertions();
            let allowance = &mut self.allowances.instructions;
            let outcome = self
                .decoder
                .obey_until(rest, awaited, || allowance.spend(now));
            let is_there = outcome.map_err(|bad| match bad {
                BadInstruction::Invalid => Fault::EncoderInstruction,
                BadInstruction::TooMany => Fault::Flood(Flood::TableInstructions),
            })?;
            if !is_there {
                return Ok(());
            }
            rest = &[];
            self.read_waiting(now)?;
        }
    }

    fn read_acknowledgements(&mut self, bytes: &[u8], now: Duration) -> Result<(), Fault> {
        let allowance = &mut self.allowances.acknowledgements;
        let outcome = self.encoder.heed(bytes, || allowance.spend(now));
        outcome.map_err(|bad| match bad {
            BadAcknowledgement::Invalid => Fault::DecoderInstruction,
            BadAcknowledgement::TooMany => Fault::Flood(Flood::Acknowledgements),
        })
    }

    fn read_control(
        &mut self,
        partial: &mut Partial,
        mut bytes: Bytes,
        now: Duration,
    ) -> Result<(), Fault> {
        while !bytes.is_empty() {
            match self.control.reading {
                Reading::Frame => {
                    if let Some(head) = take_head(partial, &mut bytes) {
                        self.begin_control(head, now)?;
                    }
                }
                Reading::Small(kind, left) => {
                    let part = bytes.split_to(bytes.len().min(left));
                    self.control.payload.extend_from_slice(&part);
                    self.control.reading = Reading::Small(kind, left - part.len());
                    if part.len() == left {
                        self.end_control(kind)?;
                    }
                }
                Reading::Skip(left) => {
                    let most = usize::try_from(left).unwrap_or(usize::MAX);
                    let count = bytes.len().min(most);
                    bytes.advance(count);
                    self.control.reading = match left - count as u64 {
                        0 => Reading::Frame,
                        left => Reading::Skip(left),
                    };
                }
            }
        }
        Ok(())
    }

    /// Judges a frame of the control stream (RFC 9114 §6.2.1, §7.2).
    fn begin_control(&mut self, head: Head, now: Duration) -> Result<(), Fault> {
        let is_first = !self.control.has_settings;
        if is_first && head.kind != Kind::Settings {
            return Err(Fault::NoSettings);
        }
        let most = match head.kind {
            Kind::Settings if is_first => SETTINGS_LEN_MOST,
            Kind::PriorityUpdate | Kind::PushPriorityUpdate => {
                self.spend_priority(now)?;
                PRIORITY_UPDATE_LEN_MOST
            }
            Kind::GoAway | Kind::MaxPushId | Kind::CancelPush => {
                self.spend_control(now)?;
                // RFC 9114 §7.1: a payload that is longer than its fields.
                if head.len > 8 {
                    return Err(Fault::FrameLength);
                }
                8
            }
            Kind::Unknown => {
                self.spend_control(now)?;
                if head.len > 0 {
                    self.control.reading = Reading::Skip(head.len);
                }
                return Ok(());
            }
            _ => return Err(Fault::UnexpectedFrame),
        };
        if head.len > most {
            return Err(Fault::Flood(Flood::LongFrames));
        }
        // It is no more than a thousand.
        self.control.reading = Reading::Small(head.kind, head.len as usize);
        if head.len == 0 {
            return self.end_control(head.kind);
        }
        Ok(())
    }

    fn end_control(&mut self, kind: Kind) -> Result<(), Fault> {
        self.control.reading = Reading::Frame;
        let payload = std::mem::take(&mut self.control.payload);
        match kind {
            Kind::Settings => self.heed_settings(&payload),
            Kind::PriorityUpdate => self.heed_priority(&payload),
            // Nothing is pushed, so no push has a priority or can be cancelled (RFC 9114 §7.2.3,
            // RFC 9218 §7.2).
            Kind::PushPriorityUpdate | Kind::CancelPush => Err(Fault::Id),
            Kind::MaxPushId => {
                let id = only_integer(&payload)?;
                // RFC 9114 §7.2.7.
                if self.control.max_push.is_some_and(|before| id < before) {
                    return Err(Fault::Id);
                }
                self.control.max_push = Some(id);
                Ok(())
            }
            Kind::GoAway => {
                let id = only_integer(&payload)?;
                // RFC 9114 §5.2.
                if self.control.farewell.is_some_and(|before| id > before) {
                    return Err(Fault::Id);
                }
                self.control.farewell = Some(id);
                self.tell(Event::GoneAway);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn spend_control(&mut self, now: Duration) -> Result<(), Fault> {
        let has_one = self.allowances.control.spend(now);
        has_one
            .then_some(())
            .ok_or(Fault::Flood(Flood::UnknownFrames))
    }

    fn spend_priority(&mut self, now: Duration) -> Result<(), Fault> {
        let has_one = self.allowances.priorities.spend(now);
        has_one.then_some(()).ok_or(Fault::Flood(Flood::Priorities))
    }

    fn heed_settings(&mut self, payload: &[u8]) -> Result<(), Fault> {
        self.control.has_settings = true;
        self.peer = PeerSettings::read(payload)?;
        self.encoder.set_max_size(self.peer.table_capacity);
        self.tell(Event::Settings);
        Ok(())
    }

    /// RFC 9218 §7.2.
    fn heed_priority(&mut self, payload: &[u8]) -> Result<(), Fault> {
        let mut value = payload;
        let id = read_integer(&mut value).ok_or(Fault::FrameLength)?;
        if id & KIND != REQUEST || id >= self.beyond_limit() {
            return Err(Fault::Id);
        }
        let Some(priority) = Priority::parse(value) else {
            return Ok(());
        };
        let stream = self.streams.get(id);
        // The field of a request whose head has not come counts less.
        let is_to_come = match stream {
            Some(stream) => stream.inbound == Inbound::Head,
            None => id >= self.next_request,
        };
        self.set_priority(id, priority);
        if is_to_come {
            self.early.retain(|(other, _)| *other != id);
            if self.early.len() >= EARLY_PRIORITIES {
                self.early.pop_front();
            }
            self.early.push_back((id, priority));
        }
        Ok(())
    }

    /// The first request that the transport cannot have let the peer begin, whatever it has heard:
    /// it gives out one stream for each that has come and ended.
    fn beyond_limit(&self) -> u64 {
        self.next_request + u64::from(self.config.max_concurrent_streams) * STEP
    }

    /// The priority that was told before a head came.
    pub(super) fn early_priority(&mut self, id: u64) -> Option<Priority> {
        if self.early.is_empty() {
            return None;
        }
        let at = self.early.iter().position(|(other, _)| *other == id)?;
        self.early.remove(at).map(|(_, priority)| priority)
    }
}

/// Takes the kind of a stream off its bytes.
fn take_kind(partial: &mut Partial, bytes: &mut Bytes) -> Option<u64> {
    let kept = partial.bytes().len();
    let added = partial.add(bytes);
    let mut rest = partial.bytes();
    let Some(kind) = read_integer(&mut rest) else {
        bytes.advance(added);
        return None;
    };
    bytes.advance(partial.bytes().len() - rest.len() - kept);
    partial.clear();
    Some(kind)
}

/// The integer that a payload is (RFC 9114 §7.1: nothing else).
fn only_integer(payload: &[u8]) -> Result<u64, Fault> {
    let mut rest = payload;
    match read_integer(&mut rest) {
        Some(id) if rest.is_empty() => Ok(id),
        _ => Err(Fault::FrameLength),
    }
}
