//! Heads and bodies that go out, and the writing of all streams.
//!
//! ```text
//! send_answer, send_interim, push, finish ─► frames in the queue of the stream
//! flush: orders ─► our own streams ─► streams by priority, a turn each ─► transport
//! ```
//!
//! 1. Calls for a stream that is gone do nothing: its owner has been told, or will be.
//! 2. A piece of a body that is `SPLICED` bytes or longer is not copied.
//! 3. Frames stand in the queue in the order of the calls.

use bytes::{Buf, Bytes, BytesMut};
use smallvec::SmallVec;

use super::{Connection, Life, Order, STEP, number_of};
use crate::header::{Fields, Known};
use crate::http2::Priority;
use crate::http2::tree::Place;
use crate::http3::event::Event;
use crate::http3::frame;
use crate::http3::limits::WAITING_MOST;
use crate::http3::qpack::encode::Encoder;
use crate::http3::qpack::integer;
use crate::http3::stream::Outbound;
use crate::http3::transport::{Transport, Unsent};

/// Bytes from which on a piece is not copied (as in HTTP/2).
const SPLICED: usize = 2048;
/// Bytes of a new block of frames (arbitrary: dozens of heads of answers).
const BLOCK: usize = 4096;
/// Bytes of a stream that go to the transport in one turn (arbitrary: a dozen packets).
const TURN: usize = 16 * 1024;
/// Bytes of interim answers that wait, beyond which none are added (arbitrary).
const INTERIM_MOST: usize = 16 * 1024;

/// The end of a message with its head, or later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// There is no body.
    WithHead,
    /// A body follows, which may be empty.
    Later,
}

/// One of our unidirectional streams.
#[derive(Debug, Default)]
pub(super) struct Own {
    /// The stream, once it was opened.
    pub(super) id: Option<u64>,
    pub(super) out: BytesMut,
    is_blocked: bool,
}

impl Own {
    fn may_send(&self) -> bool {
        self.id.is_some() && !self.is_blocked && !self.out.is_empty()
    }

    fn send(&mut self, transport: &mut impl Transport) {
        let Some(id) = self.id.filter(|_| self.may_send()) else {
            return;
        };
        let mut pieces = [self.out.split().freeze()];
        let outcome = transport.send(id, &mut pieces);
        let [rest] = pieces;
        // A stream that is gone is told of by another way.
        self.is_blocked = outcome.is_err() || !rest.is_empty();
        if !rest.is_empty() {
            self.out.extend_from_slice(&rest);
        }
    }
}

/// The writer of a head's fields.
#[derive(Debug)]
pub struct HeadWriter<'a> {
    encoder: &'a mut Encoder,
}

impl HeadWriter<'_> {
    /// Adds a field with a known name, which must not be `Other`.
    pub fn known(&mut self, known: Known, value: &[u8]) {
        self.encoder.write_known(known, value);
    }

    /// Adds a field with any name.
    pub fn any(&mut self, name: &[u8], value: &[u8]) {
        self.encoder.write_any(name, value);
    }

    /// Adds the length of the body.
    pub fn content_length(&mut self, length: u64) {
        self.encoder.write_content_length(length);
    }

    /// Adds fields, but for those of HTTP/1 connections.
    pub fn fields(&mut self, fields: &Fields) {
        self.encoder.write_fields(fields);
    }
}

impl Connection {
    /// Sends the head of an answer, whose fields `write` adds; returns the bytes that it took,
    /// which are none for a stream that is gone.
    pub fn send_answer(
        &mut self,
        id: u64,
        (status, end): (u16, End),
        write: impl FnOnce(&mut HeadWriter<'_>),
    ) -> usize {
        let Some(stream) = self.streams.get_mut(id) else {
            return 0;
        };
        if !matches!(stream.outbound, Outbound::Head) {
            return 0;
        }
        stream.outbound = match end {
            End::WithHead => Outbound::Ending,
            End::Later => Outbound::Body,
        };
        if self.is_plain() {
            self.schedule(id);
            return 0;
        }
        self.write_block(id, |encoder| {
            encoder.write_status(status);
            write(&mut HeadWriter { encoder });
        })
    }

    /// Sends an interim answer; drops it if too much waits to be written.
    pub fn send_interim(&mut self, id: u64, status: u16, fields: &Fields) {
        let stream = self.streams.get(id);
        let is_early = stream.is_some_and(|stream| {
            matches!(stream.outbound, Outbound::Head) && stream.queued < INTERIM_MOST
        });
        if is_early && !self.is_plain() {
            self.write_block(id, |encoder| {
                encoder.write_status(status);
                encoder.write_fields(fields);
            });
        }
    }

    /// Writes a block of fields as a HEADERS frame; returns its bytes.
    fn write_block(&mut self, id: u64, write: impl FnOnce(&mut Encoder)) -> usize {
        self.encoder.begin();
        write(&mut self.encoder);
        self.take_tail(id);
        let before = self.tail.len();
        let len = self.encoder.end(id, &mut self.tail);
        let written = self.tail.len() - before;
        self.note_queued(id, written);
        len
    }

    /// Makes the block of frames the one of a stream. INVARIANT 3.
    #[inline]
    fn take_tail(&mut self, id: u64) {
        if self.tail_of != Some(id) {
            self.cut_tail();
            self.tail_of = Some(id);
        }
        if self.tail.capacity() - self.tail.len() < BLOCK / 8 {
            self.tail.reserve(BLOCK);
        }
    }

    /// Moves the frames that were written last to the queue of their stream.
    fn cut_tail(&mut self) {
        let Some(id) = self.tail_of.take() else {
            return;
        };
        let piece = self.tail.split().freeze();
        if let Some(stream) = self.streams.get_mut(id)
            && !stream.is_sent()
            && !piece.is_empty()
        {
            stream.queue.push_back(piece);
        }
    }

    fn note_queued(&mut self, id: u64, len: usize) {
        if let Some(stream) = self.streams.get_mut(id) {
            stream.queued += len;
            stream.sent_len += len as u64;
        }
        self.schedule(id);
    }

    /// Bytes of a body that may be pushed now; if there are none, [`Event::Room`] tells when there
    /// are.
    pub fn room(&mut self, id: u64) -> usize {
        let most = self.share();
        let Some(stream) = self.streams.get_mut(id) else {
            return 0;
        };
        let room = stream.room(most);
        stream.wants_room = room == 0;
        room
    }

    /// Bytes that each stream may have waiting: the more streams there are, the fewer, but for one
    /// turn.
    fn share(&self) -> usize {
        let share = WAITING_MOST / self.streams.len().max(1);
        share.max(TURN).min(self.config.send_buffer)
    }

    /// Says to an owner that waits for room that there is some.
    fn offer_room(&mut self, id: u64) {
        let most = self.share();
        if let Some(stream) = self.streams.get_mut(id)
            && stream.wants_room
            && stream.room(most) > 0
        {
            stream.wants_room = false;
            self.tell(Event::Room { stream: id });
        }
    }

    /// Adds a piece to a body. More than [`Connection::room`] says is kept, too, and waits.
    pub fn push(&mut self, id: u64, piece: Bytes) {
        let stream = self.streams.get(id);
        let takes = stream.is_some_and(|stream| matches!(stream.outbound, Outbound::Body));
        if !takes || piece.is_empty() {
            return;
        }
        self.take_tail(id);
        let before = self.tail.len();
        if !self.is_plain() {
            frame::write_data_head(&mut self.tail, piece.len());
        }
        let len = self.tail.len() - before + piece.len();
        if piece.len() < SPLICED {
            self.tail.extend_from_slice(&piece);
        } else {
            // INVARIANT 2.
            self.cut_tail();
            if let Some(stream) = self.streams.get_mut(id) {
                stream.queue.push_back(piece);
            }
        }
        self.note_queued(id, len);
    }

    /// Ends a body.
    pub fn finish(&mut self, id: u64, trailers: Option<&Fields>) {
        let Some(stream) = self.streams.get_mut(id) else {
            return;
        };
        if !matches!(stream.outbound, Outbound::Body) {
            return;
        }
        stream.outbound = Outbound::Ending;
        let may_trail = !self.is_plain();
        if let Some(trailers) = trailers.filter(|fields| may_trail && !fields.is_empty()) {
            self.write_block(id, |encoder| encoder.write_fields(trailers));
        }
        self.schedule(id);
    }

    /// True if all of a message that was ended was taken, or the stream is gone.
    #[must_use]
    pub fn is_sent(&self, id: u64) -> bool {
        let stream = self.streams.get(id);
        stream.is_none_or(|stream| stream.is_sent())
    }

    /// Bytes of a stream's heads and bodies that were put into frames, with the frames' heads; none
    /// for a stream that is gone.
    #[must_use]
    pub fn sent_len(&self, id: u64) -> Option<u64> {
        self.streams.get(id).map(|stream| stream.sent_len)
    }

    /// Notes that nothing more is wanted of a request whose answer was ended and taken (RFC 9114
    /// §4.1).
    pub fn forgo_body(&mut self, id: u64) {
        if self.streams.get(id).is_some_and(|stream| stream.is_sent()) {
            self.stop(id);
        }
    }

    /// Changes the priority of a stream.
    pub fn set_priority(&mut self, id: u64, priority: Priority) {
        if self.streams.get(id).is_none() {
            return;
        }
        let was_scheduled = self.unschedule(id);
        if let Some(stream) = self.streams.get_mut(id) {
            stream.priority = priority;
        }
        if was_scheduled {
            self.schedule(id);
        }
    }

    /// The priority of a stream.
    #[must_use]
    pub fn priority(&self, id: u64) -> Option<Priority> {
        self.streams.get(id).map(|stream| stream.priority)
    }

    /// Lets a stream take part, if it has something to send. INVARIANT 2 of the connection.
    pub(super) fn schedule(&mut self, id: u64) {
        if let (Some(stream), Some(number)) = (self.streams.get_mut(id), number_of(id))
            && !stream.is_scheduled
            && stream.may_send()
        {
            stream.is_scheduled = true;
            self.scheduler
                .add(number, stream.priority, Place::default());
        }
    }

    /// Lets a stream take part no longer; true if it did.
    pub(super) fn unschedule(&mut self, id: u64) -> bool {
        let (Some(stream), Some(number)) = (self.streams.get_mut(id), number_of(id)) else {
            return false;
        };
        let was = std::mem::take(&mut stream.is_scheduled);
        if was {
            self.scheduler.remove(number, stream.priority);
        }
        was
    }

    /// Notes that the transport has room for a stream again.
    pub fn writable(&mut self, id: u64) {
        if let Some(own) = self.own.iter_mut().find(|own| own.id == Some(id)) {
            own.is_blocked = false;
        } else if let Some(stream) = self.streams.get_mut(id) {
            stream.is_blocked = false;
            self.schedule(id);
        }
    }

    /// True if [`Connection::flush`] has something to do.
    #[must_use]
    pub fn wants_flush(&self) -> bool {
        if self.life == Life::Failed {
            return false;
        }
        let [control, decoder, encoder] = &self.own;
        let has_instructions = encoder.id.is_some() && !encoder.is_blocked;
        !self.orders.is_empty()
            || !self.scheduler.is_empty()
            || control.may_send()
            || decoder.may_send()
            || encoder.may_send()
            || (has_instructions && self.encoder.has_instructions())
            || (decoder.id.is_some() && !decoder.is_blocked && self.decoder.has_increment())
    }

    /// Writes to the transport what it takes: orders and our own streams, then about `budget` bytes
    /// of answers in the order of their priorities.
    pub fn flush(&mut self, transport: &mut impl Transport, budget: usize) {
        if self.life == Life::Failed {
            return;
        }
        self.flush_own(transport);
        self.flush_orders(transport);
        let mut left = budget;
        while left > 0
            && let Some(number) = self.scheduler.pick()
        {
            let sent = self.send_turn(u64::from(number) * STEP, transport);
            left = left.saturating_sub(sent);
        }
        self.flush_orders(transport);
    }

    fn flush_orders(&mut self, transport: &mut impl Transport) {
        for order in self.orders.drain(..) {
            match order {
                Order::Reset(id, code) => transport.reset(id, code),
                Order::Stop(id, code) => transport.stop(id, code),
            }
        }
    }

    fn flush_own(&mut self, transport: &mut impl Transport) {
        let [control, decoder, encoder] = &mut self.own;
        control.send(transport);
        // RFC 9204 §4.4.3: what no acknowledgement of a block has told.
        if decoder.id.is_some() && !decoder.is_blocked {
            let increment = self.decoder.take_increment();
            if increment > 0 {
                integer::write(&mut decoder.out, 0, 6, u64::from(increment));
            }
        }
        decoder.send(transport);
        if encoder.id.is_some() && !encoder.is_blocked {
            encoder.out.unsplit(self.encoder.take_instructions());
        }
        encoder.send(transport);
    }

    /// One turn of a stream; returns the bytes that were taken.
    fn send_turn(&mut self, id: u64, transport: &mut impl Transport) -> usize {
        if self.tail_of == Some(id) {
            self.cut_tail();
        }
        let Some(stream) = self.streams.get_mut(id) else {
            return 0;
        };
        stream.is_scheduled = false;
        let mut pieces: SmallVec<[Bytes; 8]> = SmallVec::new();
        let mut len = 0;
        while len < TURN
            && let Some(first) = stream.queue.front_mut()
        {
            let most = TURN - len;
            let piece = if first.len() > most {
                Some(first.split_to(most))
            } else {
                stream.queue.pop_front()
            };
            if let Some(piece) = piece {
                len += piece.len();
                pieces.push(piece);
            }
        }
        let outcome = match len {
            0 => Ok(0),
            _ => transport.send(id, &mut pieces),
        };
        for piece in pieces.into_iter().rev().filter(Buf::has_remaining) {
            stream.queue.push_front(piece);
        }
        let taken = outcome.unwrap_or(0);
        stream.queued -= taken.min(stream.queued);
        // What has happened to one that is gone is told by another way.
        stream.is_blocked = taken < len || matches!(outcome, Err(Unsent::Blocked | Unsent::Gone));
        if stream.queued == 0 && matches!(stream.outbound, Outbound::Ending) {
            stream.outbound = Outbound::Ended;
            transport.finish(id);
            self.end_outbound(id);
        } else {
            self.schedule(id);
            self.offer_room(id);
        }
        taken
    }

    /// Notes that all of a message was taken.
    fn end_outbound(&mut self, id: u64) {
        // An exchange that was useful.
        self.allowances.resets.earn(1);
        self.tell(Event::Sent { stream: id });
        self.settle(id);
    }
}
