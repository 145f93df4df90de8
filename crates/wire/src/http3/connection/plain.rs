//! HTTP/0.9 on streams of QUIC (`hq-interop`): a stream brings one line, `GET` and a path, and is
//! answered by bytes without a head. Tests of interoperability speak it.
//!
//! ```text
//! Head ─line─► Behind ─► Ended
//!   └─ what is no such line ─► Discard: answered by an error's page
//! ```
//!
//! 1. No more is kept of a line than a request line may have, and what came in one piece with it.
//! 2. No stream of one direction is opened, and those of the peer are stopped.

use std::time::Duration;

use bytes::{Bytes, BytesMut};

use super::{Connection, Dialect, Order};
use crate::head::{Refusal, Refused, Version};
use crate::http1::request::{Progress, RequestParser};
use crate::http2::BodyLength;
use crate::http3::code::{Code, Fault};
use crate::http3::event::Event;
use crate::http3::flood::Flood;
use crate::http3::stream::{Inbound, Owner};

impl Connection {
    /// True if requests are lines, and answers bytes.
    pub(super) fn is_plain(&self) -> bool {
        self.config.dialect == Dialect::Plain
    }

    /// INVARIANT 2.
    pub(super) fn refuse_peer(&mut self, id: u64, now: Duration) -> Result<(), Fault> {
        if !self.allowances.control.spend(now) {
            return Err(Fault::Flood(Flood::UnknownStreams));
        }
        self.orders
            .push(Order::Stop(id, Code::STREAM_CREATION_ERROR));
        Ok(())
    }

    /// Takes bytes of a request.
    pub(super) fn read_line(&mut self, id: u64, bytes: &Bytes, now: Duration) -> Result<(), Fault> {
        let most = self.config.rules.limits.line;
        let Some(stream) = self.streams.get_mut(id) else {
            return Ok(());
        };
        if stream.inbound != Inbound::Head {
            // Nothing may follow.
            stream.inbound = Inbound::Discard;
            return Ok(());
        }
        stream.block.extend_from_slice(bytes);
        // INVARIANT 1.
        let is_whole = memchr::memchr(b'\n', bytes).is_some() || stream.block.len() > most;
        if is_whole {
            return self.judge_line(id, now);
        }
        Ok(())
    }

    /// Takes the end of a request.
    pub(super) fn end_line(&mut self, id: u64, now: Duration) -> Result<(), Fault> {
        let Some(stream) = self.streams.get_mut(id) else {
            return Ok(());
        };
        if stream.inbound == Inbound::Head {
            if stream.block.is_empty() {
                self.heads -= 1;
                stream.inbound = Inbound::Ended;
                return self.break_stream(id, Fault::NoHead, now);
            }
            // Its end is that of the line.
            stream.block.extend_from_slice(b"\n");
            self.judge_line(id, now)?;
        }
        if let Some(stream) = self.streams.get_mut(id) {
            stream.close_inbound();
        }
        self.settle(id);
        Ok(())
    }

    /// Reads a line, or what is none.
    fn judge_line(&mut self, id: u64, now: Duration) -> Result<(), Fault> {
        let limits = self.config.rules.limits;
        let Some(stream) = self.streams.get_mut(id) else {
            return Ok(());
        };
        let mut line: BytesMut = std::mem::take(&mut stream.block);
        let outcome = match RequestParser::new().parse(&mut line, &limits) {
            Progress::Done(head) if head.version() == Version::Http09 => Ok(head),
            Progress::Done(head) => Err(Refused {
                why: Refusal::InvalidRequest,
                head,
            }),
            Progress::Refuse(refused) => Err(refused),
            // A version was told, and fields are to follow.
            Progress::NeedMore => Err(Refused {
                why: Refusal::InvalidRequest,
                head: Default::default(),
            }),
        };
        self.heads -= 1;
        stream.owner = Owner::Holds;
        match outcome {
            Ok(head) => {
                stream.inbound = if line.is_empty() {
                    Inbound::Behind
                } else {
                    Inbound::Discard
                };
                self.tell(Event::Request {
                    stream: id,
                    head,
                    body: BodyLength::None,
                });
            }
            Err(refused) => {
                stream.inbound = Inbound::Discard;
                stream.is_malformed = true;
                self.spend_made_reset(now)?;
                self.tell(Event::Refused {
                    stream: id,
                    refused,
                });
            }
        }
        Ok(())
    }
}
