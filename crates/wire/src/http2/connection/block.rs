//! Blocks of fields (RFC 9113 §4.3, §6.2, §6.10): requests, answers, trailers, and those that are
//! read for their effect on the table only.
//!
//! 1. What a block is for is decided by its first frame, before its bytes are there; the block is
//!    read in any case, so that both tables stay alike.
//! 2. A block has no more bytes and frames than [`Block::reserve`] and [`Block::go_on`] let pass.

use std::time::Duration;

use super::{Config, Connection, Life, Role};
use crate::head::builder::HeadBuilder;
use crate::head::{Refused, Version, content_length};
use crate::header::Known;
use crate::http2::code::{Code, Fault};
use crate::http2::event::Event;
use crate::http2::flood::Flood;
use crate::http2::flow::{DEFAULT_WINDOW, ReceiveWindow, SendWindow};
use crate::http2::frame::{END_HEADERS, END_STREAM, Head, PADDED, PRIORITY};
use crate::http2::hpack::decode::{Bounds, Decoded};
use crate::http2::limits::{CONTINUATIONS_MOST, REFUSED_MOST, STREAMS_PER_READ};
use crate::http2::message::{BodyLength, Message, MessageReader, Part};
use crate::http2::priority::Priority;
use crate::http2::request::{Ends, RequestReader};
use crate::http2::stream::{Inbound, Opening, Outbound, Reset};
use crate::http2::tree::Dependency;

/// Bytes of a block beyond those of its texts (arbitrary: a few for each of a thousand fields).
const OVERHEAD: usize = 8 * 1024;

/// The use of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// The head of a request.
    Request(u32, Ends),
    /// The head of an answer.
    Answer(u32, Ends),
    /// Fields behind a body.
    Trailers(u32),
    /// None but that on the table.
    Nothing,
}

/// The time when a head was given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GivenUp {
    /// Just now, or there was none.
    Now,
    /// Before: its stream had been refused, reset or given up.
    Before,
}

/// A block whose last frame has not come.
#[derive(Clone, Copy, Debug)]
struct Open {
    purpose: Purpose,
    stream: u32,
    is_last_frame: bool,
    frames: u32,
}

/// A block that comes in several frames, or in pieces.
#[derive(Debug, Default)]
pub(super) struct Block {
    open: Option<Open>,
    bytes: Vec<u8>,
}

impl Block {
    /// The stream of the block that has begun.
    pub(super) fn stream(&self) -> Option<u32> {
        self.open.map(|open| open.stream)
    }

    /// True if the block that has begun is for more than the table.
    #[cfg(test)]
    pub(super) fn is_of_use(&self) -> bool {
        self.open
            .is_some_and(|open| open.purpose != Purpose::Nothing)
    }

    pub(super) fn begin(&mut self, purpose: Purpose, head: Head) {
        self.open = Some(Open {
            purpose,
            stream: head.stream,
            is_last_frame: head.has(END_HEADERS),
            frames: 0,
        });
    }

    /// INVARIANT 2.
    pub(super) fn go_on(&mut self, head: Head) -> Result<(), Fault> {
        if let Some(open) = &mut self.open {
            open.frames += 1;
            open.is_last_frame = head.has(END_HEADERS);
            if open.frames > CONTINUATIONS_MOST {
                return Err(Fault::Flood(Flood::Continuations));
            }
        }
        Ok(())
    }

    /// Judges the length of a block to which so many bytes will be added. INVARIANT 2.
    pub(super) fn reserve(&mut self, len: u32, config: &Config) -> Result<(), Fault> {
        let most = config.rules.limits.total.saturating_add(OVERHEAD);
        if self.bytes.len().saturating_add(len as usize) > most {
            return Err(Fault::LongBlock);
        }
        Ok(())
    }

    pub(super) fn add(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// The block, if its last frame has come.
    pub(super) fn take_whole(&mut self) -> Option<(Purpose, Vec<u8>)> {
        let open = self.open.take_if(|open| open.is_last_frame)?;
        Some((open.purpose, std::mem::take(&mut self.bytes)))
    }
}

impl Connection {
    /// The stream of a head of which the rest has not come.
    #[must_use]
    pub fn unfinished_head(&self) -> Option<u32> {
        self.block.stream()
    }

    /// Gives the head up of which the rest does not come: its stream is reset, as by nginx when a
    /// head takes too long.
    pub fn give_up_head(&mut self) -> GivenUp {
        match &mut self.block.open {
            Some(open) if open.purpose == Purpose::Nothing => GivenUp::Before,
            Some(open) => {
                open.purpose = Purpose::Nothing;
                let stream = open.stream;
                self.reset(stream, Code::PROTOCOL_ERROR);
                GivenUp::Now
            }
            None => GivenUp::Now,
        }
    }

    /// Decides what a block is for, by its stream's state (RFC 9113 §5.1, §5.1.1). INVARIANT 1.
    pub(super) fn begin_block(
        &mut self,
        head: Head,
        prefix: &[u8],
        now: Duration,
    ) -> Result<Purpose, Fault> {
        let place = usize::from(head.has(PADDED));
        let dependency =
            (head.has(PRIORITY)).then(|| Dependency::read(prefix.get(place..).unwrap_or_default()));
        // nginx: an error of the connection.
        if dependency.is_some_and(|it| it.parent == head.stream) {
            return Err(Fault::SelfDependency);
        }
        let ends = if head.has(END_STREAM) {
            Ends::WithHead
        } else {
            Ends::Later
        };
        if self.streams.get(head.stream).is_some() {
            return self.begin_known(head.stream, ends, now);
        }
        match self.role {
            Role::Server if head.stream % 2 == 1 && head.stream > self.last_peer => {
                let purpose = self.begin_request((head.stream, ends), now)?;
                match dependency {
                    Some(dependency) if purpose != Purpose::Nothing => {
                        self.set_dependency(head.stream, dependency)?;
                    }
                    _ => {}
                }
                Ok(purpose)
            }
            // RFC 9113 §5.1: the peer has closed it itself.
            Role::Server if self.closed.by_peer.contains(&head.stream) => Err(Fault::ClosedStream),
            // RFC 9113 §5.1.1, and nginx for streams that are gone.
            Role::Server if self.judge_late(head.stream).is_err() => Err(Fault::BackwardStream),
            Role::Server | Role::Client => {
                self.judge_late(head.stream)?;
                self.closed.count_late_head()?;
                Ok(Purpose::Nothing)
            }
        }
    }

    fn begin_known(&mut self, id: u32, ends: Ends, now: Duration) -> Result<Purpose, Fault> {
        let Some(stream) = self.streams.get(id) else {
            return Ok(Purpose::Nothing);
        };
        match (stream.reset, stream.inbound) {
            (Some(Reset::ByUs), _) => {
                self.closed.count_late_head()?;
                Ok(Purpose::Nothing)
            }
            (Some(Reset::ByPeer), _) => Err(Fault::ClosedStream),
            // RFC 9113 §5.1.1: a number is used once.
            (None, Inbound::Ended) if stream.is_closed() => Err(Fault::BackwardStream),
            (None, Inbound::Ended) => {
                self.break_stream(id, Fault::ClosedStream, now)?;
                Ok(Purpose::Nothing)
            }
            (None, Inbound::Head) => Ok(Purpose::Answer(id, ends)),
            // RFC 9113 §8.1, and §8.5 for tunnels.
            (None, _) if ends == Ends::Later || self.is_tunnel(id) => {
                self.break_stream(id, Fault::SecondHead, now)?;
                Ok(Purpose::Nothing)
            }
            (None, _) => Ok(Purpose::Trailers(id)),
        }
    }

    fn is_tunnel(&mut self, id: u32) -> bool {
        let stream = self.streams.get_mut(id);
        stream.is_some_and(|stream| stream.is_tunnel)
    }

    /// Decides if a new stream is served. (nginx: the same conditions, in the same order.)
    fn begin_request(&mut self, (id, ends): (u32, Ends), now: Duration) -> Result<Purpose, Fault> {
        self.last_peer = id;
        if let Life::Leaving(last) = self.life
            && id > last
        {
            return Ok(Purpose::Nothing);
        }
        self.counts.new_streams += 1;
        let most = self.config.max_concurrent_streams;
        let has_early_data =
            !self.has_ack && ends == Ends::Later && self.config.stream_window < DEFAULT_WINDOW;
        let is_refused = self.streams.len() >= most as usize
            || self.counts.new_streams > most.saturating_mul(STREAMS_PER_READ)
            || has_early_data;
        if !is_refused {
            self.allowances.priorities.earn(most);
            return Ok(Purpose::Request(id, ends));
        }
        if self.counts.refused > most.max(REFUSED_MOST) {
            return Err(Fault::TooManyRefused);
        }
        self.counts.refused += 1;
        self.spend_made_reset(now)?;
        self.reset(id, Code::REFUSED_STREAM);
        Ok(Purpose::Nothing)
    }

    /// Reads a block for what it is for.
    pub(super) fn read_block(
        &mut self,
        purpose: Purpose,
        block: &[u8],
        now: Duration,
    ) -> Result<(), Fault> {
        self.counts.payload += block.len() as u64;
        match purpose {
            Purpose::Request(id, ends) => self.read_request((id, ends), block, now),
            Purpose::Answer(id, ends) => self.read_answer((id, ends), block, now),
            Purpose::Trailers(id) => self.read_trailers(id, block, now),
            Purpose::Nothing => {
                let bounds = self.bounds();
                let mut ignore = |_: Decoded<'_>| {};
                let outcome = self.decoder.decode(block, bounds, &mut ignore);
                outcome.map_err(Fault::Block)
            }
        }
    }

    fn bounds(&self) -> Bounds {
        let limits = &self.config.rules.limits;
        Bounds {
            text: limits.line,
            list: limits.total,
        }
    }

    fn read_request(
        &mut self,
        (id, ends): (u32, Ends),
        block: &[u8],
        now: Duration,
    ) -> Result<(), Fault> {
        let bounds = self.bounds();
        let mut builder = HeadBuilder::new();
        let mut reader = RequestReader::new(&self.config.rules, builder.open(), Version::Http2);
        let outcome = self.decoder.decode(block, bounds, &mut reader);
        outcome.map_err(Fault::Block)?;
        let outcome = reader.finish(ends);
        let head = builder.finish(block.len());
        let inbound = match (&outcome, ends) {
            (_, Ends::WithHead) => Inbound::Ended,
            (Ok(BodyLength::Known(length)), _) => Inbound::Body(Some(*length)),
            (Ok(_), _) => Inbound::Body(None),
            (Err(_), _) => Inbound::Discard,
        };
        let wish = head.find(b"priority").and_then(Priority::parse);
        // RFC 9218 §7: a frame that came before counts more than the field.
        let priority = self.early_priority(id).or(wish).unwrap_or_default();
        self.streams.insert(Opening {
            id,
            inbound,
            outbound: Outbound::Head,
            send: SendWindow::new(self.peer.initial_window),
            receive: ReceiveWindow::new(self.config.stream_window),
            priority,
            chunk_len: self.config.chunk_len,
        });
        if let Some(stream) = self.streams.get_mut(id) {
            match &outcome {
                Ok(_) => stream.is_tunnel = !head.connect_protocol().is_empty(),
                Err(why) => stream.is_malformed = why.is_malformed(),
            }
            if stream.is_malformed {
                // It is reset behind its answer.
                self.spend_made_reset(now)?;
            }
        }
        self.tell(match outcome {
            Ok(body) => Event::Request {
                stream: id,
                head,
                body,
            },
            Err(why) => Event::Refused {
                stream: id,
                refused: Refused { why, head },
            },
        });
        Ok(())
    }

    fn read_message(&mut self, part: Part, block: &[u8]) -> Result<Option<Message>, Fault> {
        let bounds = self.bounds();
        let mut reader = MessageReader::new(part, self.config.rules.limits.fields);
        let outcome = self.decoder.decode(block, bounds, &mut reader);
        outcome.map_err(Fault::Block)?;
        Ok(reader.finish().ok())
    }

    fn read_trailers(&mut self, id: u32, block: &[u8], now: Duration) -> Result<(), Fault> {
        match self.read_message(Part::Trailers, block)? {
            Some(message) => {
                let trailers = (!message.fields.is_empty()).then_some(message.fields);
                self.end_inbound(id, trailers, now)?;
            }
            None if self.role == Role::Client => {
                self.break_stream(id, Fault::Malformed, now)?;
            }
            None => {
                if let Some(stream) = self.streams.get_mut(id) {
                    stream.inbound = Inbound::Ended;
                }
                self.tell_malformed(id, Fault::Malformed, now)?;
                self.settle(id);
            }
        }
        Ok(())
    }

    fn read_answer(
        &mut self,
        (id, ends): (u32, Ends),
        block: &[u8],
        now: Duration,
    ) -> Result<(), Fault> {
        let Some(message) = self.read_message(Part::Answer, block)? else {
            return self.break_stream(id, Fault::Malformed, now);
        };
        let Message { status, fields } = message;
        if status < 200 {
            // RFC 9113 §8.1: an interim answer does not end a stream.
            if ends == Ends::WithHead {
                return self.break_stream(id, Fault::Malformed, now);
            }
            let stream = id;
            self.tell(Event::Interim {
                stream,
                status,
                fields,
            });
            return Ok(());
        }
        let Some(stream) = self.streams.get_mut(id) else {
            return Ok(());
        };
        let said = fields.get(Known::ContentLength);
        let length = said.and_then(|value| content_length(value));
        if fields.get_all(Known::ContentLength).nth(1).is_some() {
            return self.break_stream(id, Fault::Malformed, now);
        }
        let has_no_body = stream.is_head || matches!(status, 204 | 304);
        let (inbound, body) = match (ends, length) {
            (Ends::WithHead, Some(1..)) if !has_no_body => {
                return self.break_stream(id, Fault::BodyTooShort, now);
            }
            (Ends::WithHead, _) => (Inbound::Ended, BodyLength::None),
            (Ends::Later, _) if has_no_body => (Inbound::Body(Some(0)), BodyLength::None),
            (Ends::Later, Some(length)) => (Inbound::Body(Some(length)), BodyLength::Known(length)),
            (Ends::Later, None) => (Inbound::Body(None), BodyLength::Unknown),
        };
        // RFC 9113 §8.1.1: none of the bytes of a body that is not there.
        stream.inbound = inbound;
        self.tell(Event::Answer {
            stream: id,
            status,
            fields,
            body,
            head_len: block.len(),
        });
        if inbound == Inbound::Ended {
            self.tell(Event::End {
                stream: id,
                trailers: None,
            });
            self.settle(id);
        }
        Ok(())
    }
}
