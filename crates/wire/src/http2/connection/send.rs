//! Heads and bodies that go out: heads at once, bodies when it is their turn.
//!
//! ```text
//! send_answer, send_interim, open ─► block of fields ─► output
//! push, finish ─► queue of the stream ─► scheduler ─► produce: one DATA frame a turn ─► output
//! ```
//!
//! 1. A frame of DATA has no more bytes than both windows, the peer's longest frame and `chunk_len`
//!    let.
//! 2. Calls for a stream that is gone do nothing: its owner has been told, or will be.
//! 3. Blocks of fields stand in the output in the order in which they were compressed.

use bytes::{BufMut, Bytes, BytesMut};

use super::{Connection, Life, Role};
use crate::header::{Fields, Known};
use crate::http2::code::Code;
use crate::http2::event::Event;
use crate::http2::flow::{ReceiveWindow, SendWindow};
use crate::http2::frame::{self, END_HEADERS, END_STREAM, HEAD_LEN, Kind, MAX_STREAM};
use crate::http2::hpack::encode::Encoder;
use crate::http2::limits::{OUTPUT_MOST, WAITING_MOST};
use crate::http2::priority::Priority;
use crate::http2::stream::{Inbound, Opening, Outbound, Stream};
use crate::http2::tree::Place;

/// The end of a message with its head, or later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// There is no body.
    WithHead,
    /// A body follows, which may be empty.
    Later,
}

/// The target of a request, and its method.
#[derive(Clone, Copy, Debug)]
pub struct RequestLine<'a> {
    /// The method.
    pub method: &'a [u8],
    /// The scheme.
    pub scheme: &'a [u8],
    /// The host, and its port.
    pub authority: &'a [u8],
    /// Path and query.
    pub path: &'a [u8],
}

/// The writer of a head's fields.
#[derive(Debug)]
pub struct HeadWriter<'a> {
    encoder: &'a mut Encoder,
    out: &'a mut BytesMut,
}

impl HeadWriter<'_> {
    /// Adds a field with a known name, which must not be `Other`.
    pub fn known(&mut self, known: Known, value: &[u8]) {
        self.encoder.write_known(self.out, known, value);
    }

    /// Adds a field with any name.
    pub fn any(&mut self, name: &[u8], value: &[u8]) {
        self.encoder.write_any(self.out, name, value);
    }

    /// Adds the length of the body.
    pub fn content_length(&mut self, length: u64) {
        self.encoder.write_content_length(self.out, length);
    }

    /// Adds fields, but for those of HTTP/1 connections.
    pub fn fields(&mut self, fields: &Fields) {
        self.encoder.write_fields(self.out, fields);
    }
}

impl Connection {
    /// Sends the head of an answer, whose fields `write` adds; returns the bytes that it took,
    /// which are none for a stream that is gone.
    pub fn send_answer(
        &mut self,
        id: u32,
        (status, end): (u16, End),
        write: impl FnOnce(&mut HeadWriter<'_>),
    ) -> usize {
        let Some(stream) = self.streams.get_mut(id) else {
            return 0;
        };
        if stream.reset.is_some() || !matches!(stream.outbound, Outbound::Head) {
            return 0;
        }
        stream.outbound = match end {
            End::WithHead => Outbound::Ended,
            End::Later => Outbound::Body,
        };
        let len = self.write_block(id, end, |encoder, out| {
            encoder.write_status(out, status);
            write(&mut HeadWriter { encoder, out });
        });
        if end == End::WithHead {
            self.tell(Event::Sent { stream: id });
            self.settle(id);
        }
        len
    }

    /// Sends an interim answer; drops it if too much waits to be written.
    pub fn send_interim(&mut self, id: u32, status: u16, fields: &Fields) {
        let stream = self.streams.get(id);
        let is_early = stream.is_some_and(|stream| {
            stream.reset.is_none() && matches!(stream.outbound, Outbound::Head)
        });
        if is_early && self.output.len() < OUTPUT_MOST {
            self.write_block(id, End::Later, |encoder, out| {
                encoder.write_status(out, status);
                encoder.write_fields(out, fields);
            });
        }
    }

    /// True if a request may be sent now: the peer bears one more stream, and neither end goes
    /// away.
    #[must_use]
    pub fn may_open(&self) -> bool {
        self.role == Role::Client
            && self.life == Life::Running
            && self.peer_last.is_none()
            && self.next_own <= MAX_STREAM
            && self.streams.len() < self.peer.max_concurrent_streams as usize
    }

    /// Sends the head of a request, whose fields `write` adds; returns its stream, or none if no
    /// request may be sent.
    pub fn open(
        &mut self,
        line: &RequestLine<'_>,
        end: End,
        write: impl FnOnce(&mut HeadWriter<'_>),
    ) -> Option<u32> {
        if !self.may_open() {
            return None;
        }
        let id = self.next_own;
        self.next_own += 2;
        self.streams.insert(Opening {
            id,
            inbound: Inbound::Head,
            outbound: match end {
                End::WithHead => Outbound::Ended,
                End::Later => Outbound::Body,
            },
            send: SendWindow::new(self.peer.initial_window),
            receive: ReceiveWindow::new(self.config.stream_window),
            priority: Priority::default(),
            chunk_len: self.config.chunk_len,
        });
        if let Some(stream) = self.streams.get_mut(id) {
            stream.is_head = line.method == b"HEAD";
        }
        self.write_block(id, end, |encoder, out| {
            encoder.write_method(out, line.method);
            encoder.write_scheme(out, line.scheme);
            encoder.write_authority(out, line.authority);
            encoder.write_path(out, line.path);
            write(&mut HeadWriter { encoder, out });
        });
        Some(id)
    }

    /// Writes a block of fields as HEADERS, and CONTINUATION where it is longer than a frame;
    /// returns its bytes. INVARIANT 3.
    fn write_block(
        &mut self,
        id: u32,
        end: End,
        write: impl FnOnce(&mut Encoder, &mut BytesMut),
    ) -> usize {
        let flags = match end {
            End::WithHead => END_HEADERS | END_STREAM,
            End::Later => END_HEADERS,
        };
        let out = self.output.block();
        let start = out.len();
        out.put_slice(&[0; HEAD_LEN]);
        self.encoder.begin(out);
        write(&mut self.encoder, out);
        let len = out.len() - start - HEAD_LEN;
        self.counts.bytes += (len + HEAD_LEN) as u64;
        self.counts.payload += len as u64;
        if let Some(stream) = self.streams.get_mut(id) {
            stream.sent_len += (len + HEAD_LEN) as u64;
        }
        let most = self.peer.max_frame_len as usize;
        let first = frame::head(len.min(most), (Kind::Headers, flags), id);
        if let Some(place) = out.get_mut(start..start + HEAD_LEN) {
            place.copy_from_slice(&first);
        }
        if len > most {
            split_block(out, start, most);
        }
        len
    }

    /// Sets the longest payload of a stream's DATA frames (`http2_chunk_size`); at least one byte
    /// goes in each.
    pub fn set_chunk_len(&mut self, id: u32, len: usize) {
        if let Some(stream) = self.streams.get_mut(id) {
            stream.chunk_len = len;
        }
    }

    /// Bytes of a body that may be pushed now; if there are none, [`Event::Room`] tells when there
    /// are.
    pub fn room(&mut self, id: u32) -> usize {
        let most = self.share();
        let Some(stream) = self.streams.get_mut(id) else {
            return 0;
        };
        let room = stream.room(most);
        stream.wants_room = room == 0;
        room
    }

    /// Bytes that each stream may have waiting: the more streams there are, the fewer, but for one
    /// frame.
    fn share(&self) -> usize {
        let config = &self.config;
        let share = WAITING_MOST / self.streams.len().max(1);
        share.max(config.chunk_len).min(config.send_buffer)
    }

    /// Says to an owner that waits for room that there is some.
    pub(super) fn offer_room(&mut self, id: u32) {
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
    pub fn push(&mut self, id: u32, piece: Bytes) {
        let Some(stream) = self.streams.get_mut(id) else {
            return;
        };
        if piece.is_empty() || stream.reset.is_some() || !matches!(stream.outbound, Outbound::Body)
        {
            return;
        }
        stream.queued += piece.len();
        stream.queue.push_back(piece);
        self.schedule(id);
    }

    /// Ends a body.
    pub fn finish(&mut self, id: u32, trailers: Option<&Fields>) {
        let Some(stream) = self.streams.get_mut(id) else {
            return;
        };
        if stream.reset.is_some() || !matches!(stream.outbound, Outbound::Body) {
            return;
        }
        let trailers = trailers.filter(|fields| !fields.is_empty());
        stream.outbound = Outbound::Ending(trailers.map(|fields| Box::new(fields.clone())));
        self.schedule(id);
    }

    /// Breaks a body off: what waits of it goes out before the reset, as far as the windows let it.
    pub fn break_off(&mut self, id: u32, code: Code) {
        while self.send.room() > 0
            && let Some(stream) = self.streams.get(id)
            && stream.queued > 0
            && stream.may_send()
        {
            self.unschedule(id);
            self.send_turn(id);
        }
        self.reset(id, code);
    }

    /// True if all of a message that was ended is written, or the stream is gone.
    #[must_use]
    pub fn is_sent(&self, id: u32) -> bool {
        let stream = self.streams.get(id);
        stream.is_none_or(|stream| matches!(stream.outbound, Outbound::Ended))
    }

    /// Bytes of a stream's heads and bodies that were put into frames, with the frames' heads; none
    /// for a stream that is gone.
    #[must_use]
    pub fn sent_len(&self, id: u32) -> Option<u64> {
        self.streams.get(id).map(|stream| stream.sent_len)
    }

    /// Lets a stream take part, if it has something to send. INVARIANT 2 of the connection.
    pub(super) fn schedule(&mut self, id: u32) {
        if let Some(stream) = self.streams.get_mut(id)
            && !stream.is_scheduled
            && stream.may_send()
        {
            stream.is_scheduled = true;
            let place = match &self.tree {
                Some(tree) => tree.place(id),
                None => Place::default(),
            };
            self.scheduler.add(id, stream.priority, place);
        }
    }

    /// Lets a stream take part no longer; true if it did.
    pub(super) fn unschedule(&mut self, id: u32) -> bool {
        let Some(stream) = self.streams.get_mut(id) else {
            return false;
        };
        let was = std::mem::take(&mut stream.is_scheduled);
        if was && !self.scheduler.remove(id, stream.priority) {
            self.blocked.retain(|other| *other != id);
        }
        was
    }

    /// Lets those take part again that waited for the connection's window.
    pub(super) fn schedule_blocked(&mut self) {
        for id in std::mem::take(&mut self.blocked) {
            if let Some(stream) = self.streams.get_mut(id) {
                stream.is_scheduled = false;
            }
            self.schedule(id);
        }
    }

    /// Writes bodies to the output, in the order of their priorities, until it has `budget` bytes
    /// or there is nothing that may be sent.
    pub fn produce(&mut self, budget: usize) {
        if std::mem::take(&mut self.has_new_places)
            && let Some(tree) = &self.tree
        {
            let place = |stream| tree.place(stream);
            self.scheduler.replace(Priority::default(), place);
        }
        while self.output.len() < budget
            && let Some(id) = self.scheduler.pick()
        {
            self.send_turn(id);
        }
    }

    /// One turn of a stream: a frame of DATA, or its end.
    fn send_turn(&mut self, id: u32) {
        let Some(stream) = self.streams.get_mut(id) else {
            return;
        };
        if stream.queued > 0 && self.send.room() == 0 {
            // It stays scheduled: it waits for the connection's window.
            return self.blocked.push(id);
        }
        stream.is_scheduled = false;
        if stream.queued == 0
            && let Outbound::Ending(trailers) = &mut stream.outbound
            && let Some(trailers) = trailers.take()
        {
            stream.outbound = Outbound::Ended;
            self.write_block(id, End::WithHead, |encoder, out| {
                encoder.write_fields(out, &trailers);
            });
            return self.end_outbound(id);
        }
        // INVARIANT 1.
        let longest = (self.peer.max_frame_len as usize).min(stream.chunk_len.max(1));
        let window = self.send.room().min(stream.send.room());
        let len = stream.queued.min(longest).min(window);
        let is_last = len == stream.queued && matches!(stream.outbound, Outbound::Ending(None));
        let flags = if is_last { END_STREAM } else { 0 };
        stream.send.take(len);
        stream.sent_len += (len + HEAD_LEN) as u64;
        self.send.take(len);
        self.counts.bytes += (len + HEAD_LEN) as u64;
        self.counts.payload += len as u64;
        let head = frame::head(len, (Kind::Data, flags), id);
        self.output.block().put_slice(&head);
        take_from_queue(stream, len, |piece| self.output.push(piece));
        if is_last {
            stream.outbound = Outbound::Ended;
            return self.end_outbound(id);
        }
        self.schedule(id);
        self.offer_room(id);
    }

    /// Notes that nothing more is wanted of a request whose answer was ended and written (RFC 9113
    /// §8.1): the reset goes out with the end of the answer.
    pub fn forgo_body(&mut self, id: u32) {
        let is_early = self.streams.get(id).is_some_and(|stream| {
            let is_answered = matches!(stream.outbound, Outbound::Ended);
            is_answered && stream.inbound != Inbound::Ended && !stream.is_malformed
        });
        if is_early {
            self.reset(id, Code::NO_ERROR);
        }
    }

    /// Notes that all of a message is written.
    fn end_outbound(&mut self, id: u32) {
        // An exchange that was useful.
        self.allowances.resets.earn(1);
        self.tell(Event::Sent { stream: id });
        self.settle(id);
    }
}

/// Gives out the first bytes of a stream's queue, of which there are as many.
fn take_from_queue(stream: &mut Stream, len: usize, mut give: impl FnMut(Bytes)) {
    stream.queued -= len;
    let mut left = len;
    while left > 0
        && let Some(first) = stream.queue.front_mut()
    {
        if first.len() > left {
            give(first.split_to(left));
            return;
        }
        left -= first.len();
        if let Some(piece) = stream.queue.pop_front() {
            give(piece);
        }
    }
}

/// Cuts a block that was written as one frame into HEADERS and CONTINUATION (RFC 9113 §6.10).
#[cold]
fn split_block(out: &mut BytesMut, start: usize, most: usize) {
    let mut frames = out.split_off(start);
    let head = frames.split_to(HEAD_LEN);
    let (flags, stream) = (head[4], frame::number_31(&head[5..]));
    let mut kind = (Kind::Headers, flags & !END_HEADERS);
    loop {
        let piece = frames.split_to(most.min(frames.len()));
        if frames.is_empty() {
            kind.1 |= END_HEADERS;
        }
        out.put_slice(&frame::head(piece.len(), kind, stream));
        out.put_slice(&piece);
        if frames.is_empty() {
            return;
        }
        kind = (Kind::Continuation, 0);
    }
}
