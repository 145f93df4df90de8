//! Requests that come in (RFC 9114 §4.1, §7).
//!
//! ```text
//! Frame ─┬─► Block(left)   bytes of HEADERS are gathered, or read where they are
//!    ▲   ├─► Data(left)    bytes are given out as they come
//!    └───┴─► Skip(left)    frames of unknown kinds
//! ```
//!
//! 1. Of a stream no more is kept than the head of a frame, a block, and what came behind a block
//!    that waits: no more than its giver had read at once.
//! 2. Nothing is read behind a message, or what is none.

use std::time::Duration;

use bytes::{Buf, Bytes};

use super::{Connection, KIND, Life, Order, PEER, REQUEST};
use crate::header::Fields;
use crate::http2::BodyLength;
use crate::http2::limits::take_read;
use crate::http3::code::{Code, Fault};
use crate::http3::event::{Event, Gone};
use crate::http3::flood::Flood;
use crate::http3::frame::{self, Head, Kind};
use crate::http3::limits::{Allowances, SMALL_DATA};
use crate::http3::stream::{Inbound, Owner, Partial, Reading};
use crate::http3::transport::Chatter;

/// DATA of fewer bytes than this is copied, so that it does not keep the buffer that it came in
/// (arbitrary: most of a packet).
const COPIED: usize = 1024;

/// Takes the head of a frame off bytes; those of a head that is not whole are kept.
pub(super) fn take_head(partial: &mut Partial, bytes: &mut Bytes) -> Option<Head> {
    let kept = partial.bytes().len();
    if kept == 0 {
        let mut rest = &bytes[..];
        if let Some(head) = frame::read_head(&mut rest) {
            bytes.advance(bytes.len() - rest.len());
            return Some(head);
        }
    }
    let added = partial.add(bytes);
    let mut rest = partial.bytes();
    let Some(head) = frame::read_head(&mut rest) else {
        // It is shorter than what there is room for.
        bytes.advance(added);
        return None;
    };
    bytes.advance(partial.bytes().len() - rest.len() - kept);
    partial.clear();
    Some(head)
}

impl Connection {
    /// Takes bytes of a stream, in order; `now` is the time since the connection's begin, of which
    /// seconds are enough.
    ///
    /// Nothing is to be given of a stream while [`Connection::wants_input`] says so, nor of one
    /// that was stopped.
    pub fn receive(&mut self, stream: u64, bytes: Bytes, now: Duration) {
        if self.life == Life::Failed {
            return;
        }
        let outcome = match stream & KIND {
            REQUEST if self.is_plain() => self.read_line(stream, &bytes, now),
            REQUEST => self.read_request(stream, bytes, now),
            PEER => self.read_peer(stream, bytes, now),
            _ => Ok(()),
        };
        self.fail_if(outcome);
    }

    /// Takes the end of a stream.
    pub fn receive_end(&mut self, stream: u64, now: Duration) {
        if self.life == Life::Failed {
            return;
        }
        let outcome = match stream & KIND {
            REQUEST if self.is_plain() => self.end_line(stream, now),
            REQUEST => self.end_request(stream, now),
            PEER => self.end_peer(stream),
            _ => Ok(()),
        };
        self.fail_if(outcome);
    }

    /// Notes that nothing more has come of a stream for now: a request of which it is not known
    /// whether there is a body begins.
    pub fn receive_pause(&mut self, stream: u64) {
        self.tell_pending(stream);
    }

    /// Takes the end of a stream before its time (RESET_STREAM).
    pub fn receive_reset(&mut self, stream: u64, code: Code, now: Duration) {
        if self.life == Life::Failed {
            return;
        }
        let outcome = match stream & KIND {
            REQUEST => self.reset_request(stream, code, now),
            PEER => self.end_peer(stream),
            _ => Ok(()),
        };
        self.fail_if(outcome);
    }

    /// Takes the word that what we send on a stream is not wanted (STOP_SENDING).
    pub fn receive_stop(&mut self, stream: u64, code: Code, now: Duration) {
        if self.life == Life::Failed {
            return;
        }
        let is_ours = self.own.iter().any(|own| own.id == Some(stream));
        let outcome = if is_ours {
            // RFC 9114 §6.2.1, RFC 9204 §4.2.
            Err(Fault::CriticalStream)
        } else {
            self.stop_answer(stream, code, now)
        };
        self.fail_if(outcome);
    }

    /// Takes the count of frames that the transport has answered on this connection.
    pub fn receive_chatter(&mut self, all: Chatter, now: Duration) {
        let paid = std::mem::replace(&mut self.paid, all);
        let more = |all: u64, paid| u32::try_from(all.saturating_sub(paid)).unwrap_or(u32::MAX);
        let Allowances {
            pings, identifiers, ..
        } = &mut self.allowances;
        let has_pings = pings.spend_all(more(all.pings, paid.pings), now);
        let has_identifiers = identifiers.spend_all(more(all.identifiers, paid.identifiers), now);
        self.fail_if(match (has_pings, has_identifiers) {
            (false, _) => Err(Fault::Flood(Flood::Pings)),
            (_, false) => Err(Fault::Flood(Flood::Identifiers)),
            (true, true) => Ok(()),
        });
    }

    /// True if bytes of a stream are to be read. If not, [`Event::Wanted`] tells when they are,
    /// unless the stream has ended.
    pub fn wants_input(&mut self, stream: u64) -> bool {
        if self.life == Life::Failed {
            return false;
        }
        if stream & KIND == PEER {
            return self.peers.iter().any(|peer| peer.id == stream);
        }
        let Some(stream) = self.streams.get_mut(stream) else {
            return false;
        };
        stream.is_unwanted = !stream.wants_input();
        !stream.is_unwanted
    }

    /// Says that a stream may be read again that was not to be.
    pub(super) fn offer_input(&mut self, id: u64) {
        if let Some(stream) = self.streams.get_mut(id)
            && stream.is_unwanted
            && stream.wants_input()
        {
            stream.is_unwanted = false;
            self.tell(Event::Wanted { stream: id });
        }
    }

    pub(super) fn read_request(
        &mut self,
        id: u64,
        mut bytes: Bytes,
        now: Duration,
    ) -> Result<(), Fault> {
        while !bytes.is_empty() {
            let Some(stream) = self.streams.get_mut(id) else {
                return Ok(());
            };
            // INVARIANT 2.
            if matches!(stream.inbound, Inbound::Discard | Inbound::Ended) {
                return Ok(());
            }
            if stream.awaits > 0 {
                stream.held.push_back(bytes);
                return Ok(());
            }
            match stream.reading {
                Reading::Frame => {
                    if let Some(head) = take_head(&mut stream.partial, &mut bytes) {
                        self.begin_frame(id, head, now)?;
                    }
                }
                Reading::Block(left) if stream.block.is_empty() && bytes.len() >= left => {
                    stream.reading = Reading::Frame;
                    let block = bytes.split_to(left);
                    self.read_block(id, block, now)?;
                }
                Reading::Block(left) => {
                    let part = bytes.split_to(bytes.len().min(left));
                    stream.block.extend_from_slice(&part);
                    stream.reading = Reading::Block(left - part.len());
                    if part.len() == left {
                        stream.reading = Reading::Frame;
                        let block = stream.block.split().freeze();
                        self.read_block(id, block, now)?;
                    }
                }
                Reading::Data(left) => {
                    let part = take_up_to(&mut bytes, left);
                    stream.reading = rest_of(left, part.len(), Reading::Data);
                    self.give_data(id, part);
                }
                Reading::Skip(left) => {
                    let part = take_up_to(&mut bytes, left);
                    stream.reading = rest_of(left, part.len(), Reading::Skip);
                }
            }
        }
        Ok(())
    }

    /// Judges a frame by the state of its stream (RFC 9114 §4.1, §7).
    fn begin_frame(&mut self, id: u64, head: Head, now: Duration) -> Result<(), Fault> {
        if head.kind == Kind::Unknown {
            if !self.allowances.control.spend(now) {
                return Err(Fault::Flood(Flood::UnknownFrames));
            }
            if let Some(stream) = self.streams.get_mut(id) {
                stream.reading = rest_of(head.len, 0, Reading::Skip);
            }
            return Ok(());
        }
        self.tell_pending(id);
        let Some(stream) = self.streams.get_mut(id) else {
            return Ok(());
        };
        match (head.kind, stream.inbound) {
            (Kind::Headers, Inbound::Head | Inbound::Body(_)) => {
                self.begin_block(id, head.len, now)
            }
            (Kind::Data, Inbound::Body(left)) => self.begin_data((id, left), head.len, now),
            _ => Err(Fault::UnexpectedFrame),
        }
    }

    fn begin_data(
        &mut self,
        (id, left): (u64, Option<u64>),
        len: u64,
        now: Duration,
    ) -> Result<(), Fault> {
        self.spend_small(id, len, now)?;
        let left = match left {
            Some(left) => match left.checked_sub(len) {
                Some(left) => Some(left),
                None => return self.tell_malformed(id, Fault::BodyTooLong, now),
            },
            None => None,
        };
        if let Some(stream) = self.streams.get_mut(id) {
            stream.inbound = Inbound::Body(left);
            stream.reading = rest_of(len, 0, Reading::Data);
        }
        Ok(())
    }

    /// Pays for a small frame; its reader may make it good.
    fn spend_small(&mut self, id: u64, len: u64, now: Duration) -> Result<(), Fault> {
        if len == 0 {
            let has_one = self.allowances.empty_data.spend(now);
            return has_one.then_some(()).ok_or(Fault::Flood(Flood::EmptyData));
        }
        let stream = self.streams.get_mut(id);
        // As small as that are messages of WebSockets.
        if len >= SMALL_DATA || stream.as_ref().is_some_and(|stream| stream.is_tunnel) {
            return Ok(());
        }
        if !self.allowances.small_data.spend(now) {
            return Err(Fault::Flood(Flood::SmallData));
        }
        if let Some(stream) = stream {
            stream.small_unread = stream.small_unread.saturating_add(1);
        }
        Ok(())
    }

    fn give_data(&mut self, id: u64, bytes: Bytes) {
        let Some(stream) = self.streams.get_mut(id) else {
            return;
        };
        // Its owner has left: it is stopped when its answer has ended.
        if stream.owner != Owner::Holds || bytes.is_empty() {
            return;
        }
        stream.unread += bytes.len() as u64;
        let bytes = if bytes.len() < COPIED {
            Bytes::copy_from_slice(&bytes)
        } else {
            bytes
        };
        self.tell(Event::Data { stream: id, bytes });
    }

    /// Notes that bytes of a body were consumed, so that more are wanted.
    ///
    /// Small frames whose bytes somebody takes are messages and no flood: what they cost comes back
    /// as they are taken.
    pub fn consume(&mut self, id: u64, len: usize) {
        let Some(stream) = self.streams.get_mut(id) else {
            return;
        };
        let read = take_read(&mut stream.small_unread, len as u64, stream.unread);
        self.allowances.small_data.earn(read);
        stream.unread = stream.unread.saturating_sub(len as u64);
        self.offer_input(id);
    }

    /// Sets the bytes of a stream's body that may be given out and not consumed.
    pub fn set_window(&mut self, id: u64, len: u64) {
        if let Some(stream) = self.streams.get_mut(id) {
            stream.window = len;
            self.offer_input(id);
        }
    }

    /// Reports a request whose head has come, and behind it more than its end.
    pub(super) fn tell_pending(&mut self, id: u64) {
        let Some(stream) = self.streams.get_mut(id) else {
            return;
        };
        if let Some(head) = stream.pending.take() {
            stream.owner = Owner::Holds;
            let body = match stream.inbound {
                Inbound::Body(Some(length)) => BodyLength::Known(length),
                _ => BodyLength::Unknown,
            };
            self.tell(Event::Request {
                stream: id,
                head,
                body,
            });
        }
    }

    pub(super) fn end_request(&mut self, id: u64, now: Duration) -> Result<(), Fault> {
        let Some(stream) = self.streams.get_mut(id) else {
            return Ok(());
        };
        if stream.awaits > 0 {
            stream.has_held_end = true;
            return Ok(());
        }
        if matches!(stream.inbound, Inbound::Discard | Inbound::Ended) {
            stream.close_inbound();
            self.settle(id);
            return Ok(());
        }
        // RFC 9114 §7.1.
        if stream.reading != Reading::Frame || !stream.partial.bytes().is_empty() {
            return Err(Fault::TruncatedFrame);
        }
        match stream.inbound {
            // RFC 9114 §4.1.
            Inbound::Head => {
                self.heads -= 1;
                stream.inbound = Inbound::Ended;
                return self.break_stream(id, Fault::NoHead, now);
            }
            Inbound::Body(Some(1..)) => {
                self.tell_malformed(id, Fault::BodyTooShort, now)?;
            }
            _ => self.tell_end(id),
        }
        if let Some(stream) = self.streams.get_mut(id) {
            stream.inbound = Inbound::Ended;
        }
        self.settle(id);
        Ok(())
    }

    /// Reports the end of a body, or of a request that is nothing but a head.
    fn tell_end(&mut self, id: u64) {
        let Some(stream) = self.streams.get_mut(id) else {
            return;
        };
        let pending = stream.pending.take();
        stream.owner = Owner::Holds;
        let trailers = stream.trailers.take().map(|fields| *fields);
        let event = match pending {
            Some(head) => Event::Request {
                stream: id,
                head,
                body: BodyLength::None,
            },
            None => Event::End {
                stream: id,
                trailers: trailers.filter(|fields: &Fields| !fields.is_empty()),
            },
        };
        self.tell(event);
    }

    fn reset_request(&mut self, id: u64, code: Code, now: Duration) -> Result<(), Fault> {
        let Some(stream) = self.streams.get(id) else {
            return Ok(());
        };
        // What comes behind our own word is no news.
        if stream.inbound == Inbound::Ended {
            return Ok(());
        }
        let was_sent = stream.is_sent();
        let owner = stream.owner;
        self.abandon(id);
        if was_sent {
            self.settle(id);
            return Ok(());
        }
        self.pay_for_reset(now)?;
        if owner == Owner::Holds {
            self.tell(Event::Gone {
                stream: id,
                why: Gone::ByPeer(code),
            });
        }
        self.reset(id, Code::REQUEST_CANCELLED);
        Ok(())
    }

    /// A peer whose requests are taken back as soon as they have come makes work for nothing.
    fn pay_for_reset(&mut self, now: Duration) -> Result<(), Fault> {
        let has_one = self.allowances.resets.spend(now);
        has_one.then_some(()).ok_or(Fault::Flood(Flood::Resets))
    }

    /// RFC 9114 §4.1.1; RFC 9000 §3.5: the stream is reset with the code of the peer.
    fn stop_answer(&mut self, id: u64, code: Code, now: Duration) -> Result<(), Fault> {
        let Some(stream) = self.streams.get_mut(id) else {
            return Ok(());
        };
        if stream.is_sent() {
            return Ok(());
        }
        let owner = stream.owner;
        stream.close_outbound();
        self.orders.push(Order::Reset(id, code));
        self.pay_for_reset(now)?;
        if owner == Owner::Holds {
            self.tell(Event::Gone {
                stream: id,
                why: Gone::ByPeer(code),
            });
        }
        self.reset(id, Code::REQUEST_CANCELLED);
        Ok(())
    }
}

/// The position behind so many bytes of a part of a frame.
fn rest_of(left: u64, count: usize, reading: fn(u64) -> Reading) -> Reading {
    match left - count as u64 {
        0 => Reading::Frame,
        left => reading(left),
    }
}

fn take_up_to(bytes: &mut Bytes, most: u64) -> Bytes {
    let most = usize::try_from(most).unwrap_or(usize::MAX);
    bytes.split_to(bytes.len().min(most))
}
