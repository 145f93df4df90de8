//! Frames that come in (RFC 9113 §4, §5.1, §6).
//!
//! ```text
//! Preface ─► Head ─┬─► (small frames, whole)
//!             ▲    ├─► Data{…}      bytes are given out as they come
//!             │    ├─► Fragment{…}  bytes go to the block as they come
//!             └────┴─► Skip{…}      padding, and what is not wanted
//! ```
//!
//! 1. Of a frame no more is left in the buffer than its head and what stands before its data: a
//!    small frame has [`SMALL`] bytes at most.
//! 2. What a frame of DATA takes from the connection's window is taken before anything else is
//!    looked at, and given back for whatever is not given out.

use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};

use super::{Connection, Life, Role};
use crate::header::Fields;
use crate::http2::code::Fault;
use crate::http2::event::Event;
use crate::http2::flood::Flood;
use crate::http2::frame::{self, END_HEADERS, END_STREAM, HEAD_LEN, Head, Kind, PREFACE};
use crate::http2::limits::{
    OVERHEAD_MOST, PRIORITY_UPDATE_LEN_MOST, SETTINGS_LEN_MOST, SMALL_DATA, take_read,
};
use crate::http2::stream::{Inbound, Owner, Reset};

/// Most bytes of a frame that is read as a whole.
const SMALL: u32 = SETTINGS_LEN_MOST;
/// DATA of fewer bytes than this is copied, so that it does not keep the buffer that it came in
/// (arbitrary: a sixteenth of what is read at once).
const COPIED: usize = 1024;

/// The position in the input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reading {
    /// At the begin.
    Preface,
    /// At the begin of a frame, or in one that is read as a whole.
    Head,
    /// In the data of a stream.
    Data(Data),
    /// In a block of fields.
    Fragment {
        /// Bytes of the block that are to come in this frame.
        left: u32,
        /// Bytes of padding behind them.
        padding: u32,
    },
    /// In bytes that nobody wants.
    Skip(u32),
}

/// The rest of a DATA frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Data {
    stream: u32,
    left: u32,
    padding: u32,
    is_last: bool,
}

/// The outcome of one step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Done,
    NeedMore,
}

impl Connection {
    /// The next thing that has happened; takes from `input` what it has read. None when all is
    /// read: then what is left is the begin of a frame, and is to be given again with what follows.
    ///
    /// `now` is the time since the connection's begin; seconds are enough.
    pub fn next_event(&mut self, input: &mut BytesMut, now: Duration) -> Option<Event> {
        loop {
            if let Some(event) = self.events.pop_front() {
                return Some(event);
            }
            if self.life == Life::Failed {
                input.clear();
                return None;
            }
            let before = input.len();
            let step = self.step(input, now);
            self.counts.bytes += (before - input.len()) as u64;
            match step.and_then(|step| self.check_overhead().map(|()| step)) {
                Ok(Step::Done) => {}
                Ok(Step::NeedMore) => {
                    self.counts.new_streams = 0;
                    if self.events.is_empty() {
                        return None;
                    }
                }
                Err(fault) => self.fail(fault),
            }
        }
    }

    /// nginx: bytes that carried nothing are a flood when they are too many.
    fn check_overhead(&self) -> Result<(), Fault> {
        let counts = &self.counts;
        if counts.bytes / 8 > counts.payload + OVERHEAD_MOST {
            return Err(Fault::Flood(Flood::Overhead));
        }
        Ok(())
    }

    fn step(&mut self, input: &mut BytesMut, now: Duration) -> Result<Step, Fault> {
        match self.reading {
            Reading::Preface => self.read_preface(input),
            Reading::Head => self.read_head(input, now),
            Reading::Data(data) => self.read_data(input, data, now),
            Reading::Fragment { left, padding } => self.read_fragment(input, (left, padding), now),
            Reading::Skip(left) => {
                let len = input.len().min(left as usize);
                input.advance(len);
                self.reading = match left - len as u32 {
                    0 => Reading::Head,
                    left => Reading::Skip(left),
                };
                Ok(match self.reading {
                    Reading::Head => Step::Done,
                    _ => Step::NeedMore,
                })
            }
        }
    }

    /// RFC 9113 §3.4.
    fn read_preface(&mut self, input: &mut BytesMut) -> Result<Step, Fault> {
        let len = input.len().min(PREFACE.len());
        if input.get(..len) != PREFACE.get(..len) {
            return Err(Fault::Preface);
        }
        if len < PREFACE.len() {
            return Ok(Step::NeedMore);
        }
        input.advance(len);
        self.reading = Reading::Head;
        Ok(Step::Done)
    }

    #[inline]
    fn read_head(&mut self, input: &mut BytesMut, now: Duration) -> Result<Step, Fault> {
        let Some(bytes) = input.first_chunk::<HEAD_LEN>() else {
            return Ok(Step::NeedMore);
        };
        let head = Head::read(*bytes);
        head.check(self.config.max_frame_len)?;
        // RFC 9113 §3.4: SETTINGS come first. nginx bears it from clients if they do not.
        let is_first = !std::mem::replace(&mut self.has_first_frame, true);
        if is_first && self.role == Role::Client && head.kind != Kind::Settings {
            return Err(Fault::Preface);
        }
        // RFC 9113 §6.10.
        if let Some(stream) = self.block.stream()
            && (head.kind != Kind::Continuation || head.stream != stream)
        {
            return Err(Fault::ContinuationExpected);
        }
        match head.kind {
            Kind::Headers => self.read_headers(input, head, now),
            Kind::Data => self.read_data_head(input, head, now),
            Kind::Continuation => self.read_continuation(input, head),
            Kind::PushPromise => Err(Fault::Push),
            Kind::Unknown => {
                self.spend_control(Flood::UnknownFrames, now)?;
                input.advance(HEAD_LEN);
                self.skip(head.len);
                Ok(Step::Done)
            }
            _ => self.read_small(input, head, now),
        }
    }

    /// A frame that is read as a whole.
    fn read_small(
        &mut self,
        input: &mut BytesMut,
        head: Head,
        now: Duration,
    ) -> Result<Step, Fault> {
        let most = match head.kind {
            Kind::PriorityUpdate => PRIORITY_UPDATE_LEN_MOST,
            _ => SMALL,
        };
        // What GOAWAY says behind its code is for people.
        let len = if head.kind == Kind::GoAway {
            8
        } else {
            head.len
        };
        if len > most {
            return Err(Fault::Flood(Flood::LongFrames));
        }
        let Some(payload) = input.get(HEAD_LEN..HEAD_LEN + len as usize) else {
            return Ok(Step::NeedMore);
        };
        let payload = Payload::of(payload);
        input.advance(HEAD_LEN + len as usize);
        self.skip(head.len - len);
        self.handle_control(head, payload.bytes(), now)?;
        Ok(Step::Done)
    }

    /// Bytes to be left out, if any.
    fn skip(&mut self, len: u32) {
        if len > 0 {
            self.reading = Reading::Skip(len);
        }
    }

    fn read_headers(
        &mut self,
        input: &mut BytesMut,
        head: Head,
        now: Duration,
    ) -> Result<Step, Fault> {
        let prefix_len = head.prefix_len() as usize;
        let Some(prefix) = input.get(HEAD_LEN..HEAD_LEN + prefix_len) else {
            return Ok(Step::NeedMore);
        };
        let (len, padding) = head.split(prefix)?;
        let purpose = self.begin_block(head, prefix, now)?;
        input.advance(HEAD_LEN + prefix_len);
        // Most blocks have come whole, and are read where they are.
        if head.has(END_HEADERS)
            && let Some(block) = input.get(..len as usize)
        {
            self.read_block(purpose, block, now)?;
            input.advance(len as usize);
            self.skip(padding);
            return Ok(Step::Done);
        }
        self.block.begin(purpose, head);
        self.block.reserve(len, &self.config)?;
        self.reading = Reading::Fragment { left: len, padding };
        Ok(Step::Done)
    }

    fn read_continuation(&mut self, input: &mut BytesMut, head: Head) -> Result<Step, Fault> {
        if self.block.stream().is_none() {
            return Err(Fault::UnexpectedContinuation);
        }
        input.advance(HEAD_LEN);
        self.block.go_on(head)?;
        self.block.reserve(head.len, &self.config)?;
        self.reading = Reading::Fragment {
            left: head.len,
            padding: 0,
        };
        Ok(Step::Done)
    }

    fn read_fragment(
        &mut self,
        input: &mut BytesMut,
        (left, padding): (u32, u32),
        now: Duration,
    ) -> Result<Step, Fault> {
        let len = input.len().min(left as usize);
        self.block.add(input.get(..len).unwrap_or_default());
        input.advance(len);
        let left = left - len as u32;
        if left > 0 {
            self.reading = Reading::Fragment { left, padding };
            return Ok(Step::NeedMore);
        }
        self.reading = Reading::Head;
        self.skip(padding);
        if let Some((purpose, block)) = self.block.take_whole() {
            self.read_block(purpose, &block, now)?;
        }
        Ok(Step::Done)
    }

    fn read_data_head(
        &mut self,
        input: &mut BytesMut,
        head: Head,
        now: Duration,
    ) -> Result<Step, Fault> {
        let prefix_len = head.prefix_len();
        let Some(prefix) = input.get(HEAD_LEN..HEAD_LEN + prefix_len as usize) else {
            return Ok(Step::NeedMore);
        };
        let (len, padding) = head.split(prefix)?;
        input.advance(HEAD_LEN + prefix_len as usize);
        let is_last = head.has(END_STREAM);
        // What an origin sends is asked for.
        if self.role == Role::Server && len < SMALL_DATA && !is_last {
            self.spend_small((head.stream, len), now)?;
        }
        // INVARIANT 2.
        self.receive.take(head.len)?;
        self.counts.payload += u64::from(len);
        if self.begin_data(head, len, now)? == Use::ThrowAway {
            self.free_connection(head.len);
            self.skip(len + padding);
            return Ok(Step::Done);
        }
        // RFC 9113 §6.9.1: padding counts, and nobody will consume it.
        self.free(head.stream, prefix_len + padding);
        self.reading = Reading::Data(Data {
            stream: head.stream,
            left: len,
            padding,
            is_last,
        });
        Ok(Step::Done)
    }

    /// Pays for a small frame that does not end a body; its reader may make it good.
    fn spend_small(&mut self, (id, len): (u32, u32), now: Duration) -> Result<(), Fault> {
        if len == 0 {
            let has_one = self.allowances.empty_data.spend(now);
            return has_one.then_some(()).ok_or(Fault::Flood(Flood::EmptyData));
        }
        let stream = self.streams.get_mut(id);
        // As small as that are messages of WebSockets.
        if stream.as_ref().is_some_and(|stream| stream.is_tunnel) {
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

    /// Judges a DATA frame by the state of its stream (RFC 9113 §5.1, §6.1, §8.1.1).
    fn begin_data(&mut self, head: Head, len: u32, now: Duration) -> Result<Use, Fault> {
        let id = head.stream;
        let Some(stream) = self.streams.get_mut(id) else {
            return self.judge_late(id).map(|()| Use::ThrowAway);
        };
        match stream.reset {
            Some(Reset::ByUs) => return Ok(Use::ThrowAway),
            Some(Reset::ByPeer) => return Err(Fault::ClosedStream),
            None => {}
        }
        let fault = match stream.inbound {
            Inbound::Ended => Some(Fault::ClosedStream),
            Inbound::Head => Some(Fault::Malformed),
            _ => stream.receive.take(head.len).err(),
        };
        if let Some(fault) = fault {
            self.break_stream(id, fault, now)?;
            return Ok(Use::ThrowAway);
        }
        let left = match stream.inbound {
            Inbound::Body(None) => return Ok(Use::GiveOut),
            Inbound::Body(Some(left)) => left.checked_sub(u64::from(len)),
            _ => Some(0),
        };
        match left {
            _ if stream.inbound == Inbound::Discard => {}
            Some(1..) if head.has(END_STREAM) => {
                self.tell_malformed(id, Fault::BodyTooShort, now)?;
            }
            Some(left) => {
                stream.inbound = Inbound::Body(Some(left));
                return Ok(Use::GiveOut);
            }
            None => self.tell_malformed(id, Fault::BodyTooLong, now)?,
        }
        self.throw_away(id, head);
        Ok(Use::ThrowAway)
    }

    /// Notes that nobody wants a frame of DATA, nor those behind it; what it took of the stream's
    /// window is given back.
    fn throw_away(&mut self, id: u32, head: Head) {
        let Some(stream) = self.streams.get_mut(id) else {
            return;
        };
        stream.inbound = Inbound::Discard;
        let increment = stream.receive.free(head.len);
        if head.has(END_STREAM) {
            stream.inbound = Inbound::Ended;
            return self.settle(id);
        }
        self.write_increment(id, increment);
    }

    /// Judges a frame of a stream that is not in the table: it has not begun, or is gone.
    pub(super) fn judge_late(&self, id: u32) -> Result<(), Fault> {
        // RFC 9113 §5.1: idle.
        if !self.has_begun(id) {
            return Err(Fault::IdleStream);
        }
        if self.closed.may_be_late(id) || self.is_ignored(id) {
            return Ok(());
        }
        Err(Fault::ClosedStream)
    }

    /// True for a stream that was begun, by either end.
    pub(super) fn has_begun(&self, id: u32) -> bool {
        match (self.role, id % 2) {
            (Role::Server, 1) => id <= self.last_peer,
            (Role::Client, 1) => id < self.next_own,
            // Nobody pushes.
            _ => false,
        }
    }

    /// True for a stream that came after we went away.
    pub(super) fn is_ignored(&self, id: u32) -> bool {
        matches!(self.life, Life::Leaving(last) if id > last)
    }

    /// Reports a body that is none; its stream will be reset.
    pub(super) fn tell_malformed(
        &mut self,
        stream: u32,
        fault: Fault,
        now: Duration,
    ) -> Result<(), Fault> {
        self.spend_made_reset(now)?;
        if let Some(stream) = self.streams.get_mut(stream) {
            stream.is_malformed = true;
        }
        self.tell(Event::Malformed { stream, fault });
        Ok(())
    }

    /// Gives out what has come of a DATA frame.
    fn read_data(
        &mut self,
        input: &mut BytesMut,
        data: Data,
        now: Duration,
    ) -> Result<Step, Fault> {
        let len = input.len().min(data.left as usize);
        if len == 0 && data.left > 0 {
            return Ok(Step::NeedMore);
        }
        let left = data.left - len as u32;
        self.give_data(data.stream, input, len);
        if left > 0 {
            self.reading = Reading::Data(Data { left, ..data });
            return Ok(Step::Done);
        }
        self.reading = Reading::Head;
        self.skip(data.padding);
        if data.is_last {
            self.end_inbound(data.stream, None, now)?;
        }
        Ok(Step::Done)
    }

    fn give_data(&mut self, id: u32, input: &mut BytesMut, len: usize) {
        // It may have been reset since the frame began.
        let is_wanted = self.streams.get(id).is_some_and(|stream| {
            matches!(stream.inbound, Inbound::Body(_)) && stream.reset.is_none()
        });
        if !is_wanted {
            input.advance(len);
            return self.free(id, len as u32);
        }
        if len == 0 {
            return;
        }
        let bytes = if len < COPIED {
            let bytes = Bytes::copy_from_slice(input.get(..len).unwrap_or_default());
            input.advance(len);
            bytes
        } else {
            input.split_to(len).freeze()
        };
        self.tell(Event::Data { stream: id, bytes });
    }

    /// Ends a direction that the peer has ended.
    pub(super) fn end_inbound(
        &mut self,
        id: u32,
        trailers: Option<Fields>,
        now: Duration,
    ) -> Result<(), Fault> {
        let Some(stream) = self.streams.get_mut(id) else {
            return Ok(());
        };
        if stream.reset.is_some() {
            return Ok(());
        }
        let was = std::mem::replace(&mut stream.inbound, Inbound::Ended);
        match was {
            Inbound::Discard | Inbound::Ended => {}
            Inbound::Body(Some(1..)) => self.tell_malformed(id, Fault::BodyTooShort, now)?,
            _ => self.tell(Event::End {
                stream: id,
                trailers,
            }),
        }
        self.settle(id);
        Ok(())
    }

    /// Notes that bytes of a body were consumed, so that the peer may send as many more.
    ///
    /// Small frames whose bytes somebody takes are messages and no flood: what they cost comes
    /// back as they are taken.
    pub fn consume(&mut self, stream: u32, len: usize) {
        let len = u32::try_from(len).unwrap_or(u32::MAX);
        if let Some(stream) = self.streams.get_mut(stream)
            && stream.small_unread > 0
            && stream.owner == Owner::Holds
        {
            let held = stream.receive.held();
            let read = take_read(&mut stream.small_unread, len.into(), held.into());
            self.allowances.small_data.earn(read);
        }
        self.free(stream, len);
    }

    /// Gives back what a stream took of both windows. Of one that was released all was given back.
    fn free(&mut self, id: u32, len: u32) {
        let Some(stream) = self.streams.get_mut(id) else {
            return;
        };
        if stream.owner == Owner::Released {
            return;
        }
        let len = len.min(stream.receive.held());
        let increment = stream.receive.free(len);
        if stream.inbound != Inbound::Ended && stream.reset.is_none() {
            self.write_increment(id, increment);
        }
        self.free_connection(len);
    }

    /// INVARIANT 3 of the connection.
    pub(super) fn free_connection(&mut self, len: u32) {
        let increment = self.receive.free(len);
        self.write_increment(0, increment);
    }

    fn write_increment(&mut self, id: u32, increment: Option<u32>) {
        if let Some(increment) = increment {
            frame::write_window_update(self.output.block(), id, increment);
        }
    }

    /// Sets the bytes of a stream's body that may be held, or be on their way: more when its owner
    /// wants to read it.
    pub fn set_window(&mut self, id: u32, len: u32) {
        if let Some(stream) = self.streams.get_mut(id)
            && stream.inbound != Inbound::Ended
            && stream.reset.is_none()
        {
            let increment = stream.receive.set_target(len);
            self.write_increment(id, increment);
        }
    }
}

/// The use of a frame of DATA.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Use {
    GiveOut,
    ThrowAway,
}

/// The payload of a small frame: most have eight bytes at most.
enum Payload {
    Short([u8; 8], usize),
    Long(Vec<u8>),
}

impl Payload {
    fn of(bytes: &[u8]) -> Self {
        let mut short = [0; 8];
        match short.get_mut(..bytes.len()) {
            Some(room) => {
                room.copy_from_slice(bytes);
                Payload::Short(short, bytes.len())
            }
            None => Payload::Long(bytes.to_vec()),
        }
    }

    fn bytes(&self) -> &[u8] {
        match self {
            Payload::Short(bytes, len) => bytes.get(..*len).unwrap_or_default(),
            Payload::Long(bytes) => bytes,
        }
    }
}
