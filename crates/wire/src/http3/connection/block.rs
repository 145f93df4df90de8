//! Blocks of fields (RFC 9114 §4.2, RFC 9204 §2.2): heads of requests and trailers, and those that
//! wait for the table.
//!
//! 1. No more blocks wait than the peer was allowed to let wait.
//! 2. A block that is too long costs its request, not the connection: others are read without it.

use std::time::Duration;

use bytes::{Bytes, BytesMut};

use super::Connection;
use crate::head::builder::HeadBuilder;
use crate::head::{Refusal, Refused, Version};
use crate::http2::hpack::decode::Bounds;
use crate::http2::message::{MessageReader, Part};
use crate::http2::request::{Ends, RequestReader};
use crate::http2::{BodyLength, Priority};
use crate::http3::code::Fault;
use crate::http3::event::Event;
use crate::http3::qpack::decode::Prefix;
use crate::http3::stream::{Inbound, Owner, Reading};

/// Bytes of a block beyond those of its texts (as in HTTP/2).
const OVERHEAD: usize = 8 * 1024;

impl Connection {
    /// Begins a block of so many bytes.
    pub(super) fn begin_block(&mut self, id: u64, len: u64, now: Duration) -> Result<(), Fault> {
        let most = self.config.rules.limits.total.saturating_add(OVERHEAD);
        let Some(stream) = self.streams.get_mut(id) else {
            return Ok(());
        };
        match usize::try_from(len) {
            Ok(0) => self.read_block(id, Bytes::new(), now),
            Ok(len) if len <= most => {
                stream.reading = Reading::Block(len);
                Ok(())
            }
            // INVARIANT 2.
            _ => self.refuse_long(id, HeadBuilder::new(), now),
        }
    }

    /// Reads a block, or lets it wait for the table.
    pub(super) fn read_block(&mut self, id: u64, block: Bytes, now: Duration) -> Result<(), Fault> {
        let prefix = self.decoder.prefix(&block).map_err(Fault::Block)?;
        if prefix.required <= self.decoder.insertions() {
            return self.read_ready(id, (&block, prefix), now);
        }
        // INVARIANT 1 (RFC 9204 §2.1.2).
        if self.waiting.len() >= self.config.blocked_streams as usize {
            return Err(Fault::TooManyBlocked);
        }
        if let Some(stream) = self.streams.get_mut(id) {
            stream.awaits = prefix.required;
            stream.block = BytesMut::from(block);
            self.waiting.push(id);
        }
        Ok(())
    }

    /// The fewest insertions that a block waits for.
    pub(super) fn awaited_insertions(&self) -> Option<u32> {
        let awaited = |id: &u64| self.streams.get(*id).map(|stream| stream.awaits);
        self.waiting.iter().filter_map(awaited).min()
    }

    /// Reads the blocks whose insertions have come, and what came behind them.
    pub(super) fn read_waiting(&mut self, now: Duration) -> Result<(), Fault> {
        let count = self.decoder.insertions();
        for id in self.waiting.clone() {
            let Some(stream) = self.streams.get_mut(id) else {
                continue;
            };
            if stream.awaits > count {
                continue;
            }
            stream.awaits = 0;
            let block = std::mem::take(&mut stream.block).freeze();
            let held = std::mem::take(&mut stream.held);
            let has_end = std::mem::take(&mut stream.has_held_end);
            self.waiting.retain(|other| *other != id);
            self.read_block(id, block, now)?;
            for bytes in held {
                self.read_request(id, bytes, now)?;
            }
            if has_end {
                self.end_request(id, now)?;
            } else {
                // Its giver was told not to read on.
                self.tell_pending(id);
            }
            self.offer_input(id);
        }
        Ok(())
    }

    fn read_ready(
        &mut self,
        id: u64,
        (block, prefix): (&Bytes, Prefix),
        now: Duration,
    ) -> Result<(), Fault> {
        match self.streams.get(id).map(|stream| stream.inbound) {
            Some(Inbound::Head) => self.read_head(id, (block, prefix), now),
            Some(Inbound::Body(left)) => self.read_trailers((id, left), (block, prefix), now),
            _ => Ok(()),
        }
    }

    fn bounds(&self) -> Bounds {
        let limits = &self.config.rules.limits;
        Bounds {
            text: limits.line,
            list: limits.total,
        }
    }

    /// The acknowledgement of a block that was read and needed the table (RFC 9204 §4.4.1).
    fn acknowledge(&mut self, id: u64, prefix: &Prefix) -> Result<(), Fault> {
        if prefix.required == 0 {
            return Ok(());
        }
        self.decoder.note_acknowledged(prefix);
        self.write_acknowledgement((0x80, 7), id)
    }

    fn read_head(
        &mut self,
        id: u64,
        (block, prefix): (&Bytes, Prefix),
        now: Duration,
    ) -> Result<(), Fault> {
        let bounds = self.bounds();
        let mut builder = HeadBuilder::new();
        let mut reader = RequestReader::new(&self.config.rules, builder.open(), Version::Http3);
        match self.decoder.decode(block, (&prefix, bounds), &mut reader) {
            Ok(()) => {}
            Err(bad) if bad.is_long() => return self.refuse_long(id, builder, now),
            Err(bad) => return Err(Fault::Block(bad)),
        }
        let outcome = reader.finish(Ends::Later);
        let head = builder.finish(block.len());
        self.acknowledge(id, &prefix)?;
        let wish = head.find(b"priority").and_then(Priority::parse);
        // RFC 9218 §7: a frame that came before counts more than the field.
        let priority = self.early_priority(id).or(wish).unwrap_or_default();
        let Some(stream) = self.streams.get_mut(id) else {
            return Ok(());
        };
        self.heads -= 1;
        stream.priority = priority;
        match outcome {
            // It is told when it is known if there is a body.
            Ok(BodyLength::Unknown | BodyLength::None) => {
                stream.inbound = Inbound::Body(None);
                stream.is_tunnel = !head.connect_protocol().is_empty();
                stream.pending = Some(head);
            }
            Ok(BodyLength::Known(0)) => {
                stream.inbound = Inbound::Body(Some(0));
                stream.pending = Some(head);
            }
            Ok(body @ BodyLength::Known(length)) => {
                stream.owner = Owner::Holds;
                stream.inbound = Inbound::Body(Some(length));
                self.tell(Event::Request {
                    stream: id,
                    head,
                    body,
                });
            }
            Err(why) => {
                stream.owner = Owner::Holds;
                stream.is_malformed = why.is_malformed();
                stream.inbound = Inbound::Discard;
                if stream.is_malformed {
                    self.spend_made_reset(now)?;
                }
                self.tell(Event::Refused {
                    stream: id,
                    refused: Refused { why, head },
                });
            }
        }
        Ok(())
    }

    fn read_trailers(
        &mut self,
        (id, left): (u64, Option<u64>),
        (block, prefix): (&Bytes, Prefix),
        now: Duration,
    ) -> Result<(), Fault> {
        if self.streams.get(id).is_some_and(|stream| stream.is_tunnel) {
            // RFC 9114 §4.4: a tunnel has DATA and its end, and no fields.
            return Err(Fault::UnexpectedFrame);
        }
        let bounds = self.bounds();
        let mut reader = MessageReader::new(Part::Trailers, self.config.rules.limits.fields);
        match self.decoder.decode(block, (&prefix, bounds), &mut reader) {
            Ok(()) => {}
            Err(bad) if bad.is_long() => return self.refuse_long(id, HeadBuilder::new(), now),
            Err(bad) => return Err(Fault::Block(bad)),
        }
        self.acknowledge(id, &prefix)?;
        if matches!(left, Some(1..)) {
            return self.tell_malformed(id, Fault::BodyTooShort, now);
        }
        let Ok(message) = reader.finish() else {
            return self.tell_malformed(id, Fault::Malformed, now);
        };
        if let Some(stream) = self.streams.get_mut(id) {
            stream.inbound = Inbound::Behind;
            stream.trailers = Some(Box::new(message.fields));
        }
        Ok(())
    }

    /// A block that is longer than what is read. INVARIANT 2.
    fn refuse_long(&mut self, id: u64, builder: HeadBuilder, now: Duration) -> Result<(), Fault> {
        self.cancel_section(id)?;
        let Some(stream) = self.streams.get_mut(id) else {
            return Ok(());
        };
        if stream.inbound != Inbound::Head {
            return self.tell_malformed(id, Fault::LongTrailers, now);
        }
        self.heads -= 1;
        stream.inbound = Inbound::Discard;
        stream.owner = Owner::Holds;
        stream.is_malformed = true;
        self.spend_made_reset(now)?;
        let why = Refusal::HeaderTooLarge;
        let head = builder.finish(0);
        self.tell(Event::Refused {
            stream: id,
            refused: Refused { why, head },
        });
        Ok(())
    }
}
