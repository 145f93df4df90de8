//! Streams of requests (RFC 9114 §4, §6.1): one exchange each, with two directions that end by
//! themselves.
//!
//! ```text
//! Inbound    Head ─► Body ─► Behind (trailers came) ─► Ended       Discard: nobody wants the rest
//! Outbound   Head ─► Body ─► Ending ─► Ended
//! ```
//!
//! 1. A stream stays in the table until its owner has released it and both directions have ended.
//! 2. The memory of a stream that is gone is that of the next one.

use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};

use super::frame::HEAD_MOST;
use crate::head::RequestHead;
use crate::header::Fields;
use crate::http2::Priority;

/// The direction from the peer to us.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Inbound {
    /// The head is to come.
    Head,
    /// The body comes: so many bytes, if that is known.
    Body(Option<u64>),
    /// The trailers have come.
    Behind,
    /// Bytes that are no message, or not wanted: they are not read, and stopped behind the answer.
    Discard,
    /// Nothing is read any more.
    Ended,
}

/// The direction from us to the peer.
#[derive(Debug)]
pub(crate) enum Outbound {
    /// The head is to be sent.
    Head,
    /// The body is to be sent.
    Body,
    /// The end was said, and all of it stands in the queue.
    Ending,
    /// The end was taken by the transport, or the stream was reset.
    Ended,
}

/// A choice about the owner of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    /// Nobody: the head of the stream has not come.
    Absent,
    /// Its exchange runs.
    Holds,
    /// Its exchange is over.
    Released,
}

/// The position in the input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reading {
    /// At the begin of a frame, or in its head.
    Frame,
    /// In a block of fields: bytes that are to come.
    Block(usize),
    /// In the data of a body: bytes that are to come.
    Data(u64),
    /// In bytes that nobody wants.
    Skip(u64),
}

/// The begin of a frame's head.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Partial {
    bytes: [u8; HEAD_MOST],
    len: usize,
}

impl Partial {
    /// Adds bytes, as many as fit; returns how many.
    pub(crate) fn add(&mut self, bytes: &[u8]) -> usize {
        let room = self.bytes.get_mut(self.len..).unwrap_or_default();
        let count = room.len().min(bytes.len());
        for (place, byte) in room.iter_mut().zip(bytes) {
            *place = *byte;
        }
        self.len += count;
        count
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }

    pub(crate) fn clear(&mut self) {
        self.len = 0;
    }
}

/// A stream.
#[derive(Debug)]
pub(crate) struct Stream {
    pub(crate) inbound: Inbound,
    pub(crate) outbound: Outbound,
    pub(crate) owner: Owner,
    pub(crate) reading: Reading,
    pub(crate) partial: Partial,
    /// The block of fields that comes, or waits.
    pub(crate) block: BytesMut,
    /// Insertions that its block waits for; zero if it waits for none.
    pub(crate) awaits: u32,
    /// Bytes that came behind a block that waits.
    pub(crate) held: VecDeque<Bytes>,
    /// True if the end came behind them.
    pub(crate) has_held_end: bool,
    /// The head of a request of which it is not known whether there is a body.
    pub(crate) pending: Option<Rc<RequestHead>>,
    /// Fields that came behind the body.
    pub(crate) trailers: Option<Box<Fields>>,
    /// The time when it came, until its head is there.
    pub(crate) since: Duration,
    pub(crate) priority: Priority,
    /// True while the scheduler has the stream.
    pub(crate) is_scheduled: bool,
    /// True while the transport has no room for it.
    pub(crate) is_blocked: bool,
    /// True if the owner was told that there is no room.
    pub(crate) wants_room: bool,
    /// True if the owner was told that it is not to be read.
    pub(crate) is_unwanted: bool,
    /// True if the peer has sent something that is no message.
    pub(crate) is_malformed: bool,
    /// True if the request asks for a tunnel.
    pub(crate) is_tunnel: bool,
    /// Small frames of DATA that were counted and that its owner has not taken.
    pub(crate) small_unread: u32,
    /// Bytes of the body that were given out and not consumed.
    pub(crate) unread: u64,
    /// Bytes of it that there may be.
    pub(crate) window: u64,
    /// Pieces that are to be sent.
    pub(crate) queue: VecDeque<Bytes>,
    /// Bytes of them.
    pub(crate) queued: usize,
    /// Bytes of its frames of HEADERS and DATA that were queued.
    pub(crate) sent_len: u64,
}

impl Stream {
    fn new(since: Duration, window: u64, queue: VecDeque<Bytes>) -> Self {
        Stream {
            inbound: Inbound::Head,
            outbound: Outbound::Head,
            owner: Owner::Absent,
            reading: Reading::Frame,
            partial: Partial::default(),
            block: BytesMut::new(),
            awaits: 0,
            held: VecDeque::new(),
            has_held_end: false,
            pending: None,
            trailers: None,
            since,
            priority: Priority::default(),
            is_scheduled: false,
            is_blocked: false,
            wants_room: false,
            is_unwanted: false,
            is_malformed: false,
            is_tunnel: false,
            small_unread: 0,
            unread: 0,
            window,
            queue,
            queued: 0,
            sent_len: 0,
        }
    }

    /// True if nothing is to be sent any more.
    pub(crate) fn is_sent(&self) -> bool {
        matches!(self.outbound, Outbound::Ended)
    }

    /// True if it has something to send that the transport may take.
    pub(crate) fn may_send(&self) -> bool {
        match self.outbound {
            Outbound::Ended => false,
            _ if self.is_blocked => false,
            Outbound::Ending => true,
            Outbound::Head | Outbound::Body => self.queued > 0,
        }
    }

    /// True if bytes of it are to be read.
    pub(crate) fn wants_input(&self) -> bool {
        self.awaits == 0
            && !matches!(self.inbound, Inbound::Discard | Inbound::Ended)
            && self.unread < self.window
    }

    /// Bytes that its owner may push when so many may wait.
    pub(crate) fn room(&self, most: usize) -> usize {
        match self.outbound {
            Outbound::Body => most.saturating_sub(self.queued),
            _ => 0,
        }
    }

    /// Drops what is to be sent.
    pub(crate) fn close_outbound(&mut self) {
        self.outbound = Outbound::Ended;
        self.queue.clear();
        self.queued = 0;
    }

    /// Drops what has come and was not given out.
    pub(crate) fn close_inbound(&mut self) {
        self.inbound = Inbound::Ended;
        self.awaits = 0;
        self.pending = None;
        self.trailers = None;
        self.held.clear();
        self.block = BytesMut::new();
    }
}

/// The streams of a connection, by number.
#[derive(Debug, Default)]
pub(crate) struct Streams {
    /// Numbers in order, with the place of each stream.
    order: Vec<(u64, u32)>,
    places: Vec<Stream>,
    /// Places of streams that are gone.
    free: Vec<u32>,
}

/// Pieces that a queue keeps room for when its stream is gone (as in HTTP/2).
const QUEUE_KEPT: usize = 8;

impl Streams {
    pub(crate) fn len(&self) -> usize {
        self.order.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    #[inline]
    pub(crate) fn get(&self, id: u64) -> Option<&Stream> {
        let (_, place) = self.order.get(self.find(id).ok()?)?;
        self.places.get(*place as usize)
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, id: u64) -> Option<&mut Stream> {
        let (_, place) = self.order.get(self.find(id).ok()?)?;
        self.places.get_mut(*place as usize)
    }

    #[inline]
    fn find(&self, id: u64) -> Result<usize, usize> {
        // Most calls are for the newest.
        match self.order.last() {
            Some((last, _)) if *last == id => Ok(self.order.len() - 1),
            Some((last, _)) if *last < id => Err(self.order.len()),
            _ => self.order.binary_search_by_key(&id, |(id, _)| *id),
        }
    }

    /// Adds a stream that is not in here.
    pub(crate) fn insert(&mut self, id: u64, since: Duration, window: u64) {
        let Err(at) = self.find(id) else {
            return;
        };
        let free = self.free.pop();
        let place = free.unwrap_or(self.places.len() as u32);
        match self.places.get_mut(place as usize) {
            // INVARIANT 2.
            Some(old) => *old = Stream::new(since, window, std::mem::take(&mut old.queue)),
            None => self
                .places
                .push(Stream::new(since, window, VecDeque::new())),
        }
        self.order.insert(at, (id, place));
    }

    /// Removes a stream.
    pub(crate) fn remove(&mut self, id: u64) {
        let Ok(at) = self.find(id) else {
            return;
        };
        let (_, place) = self.order.remove(at);
        if let Some(stream) = self.places.get_mut(place as usize) {
            stream.close_inbound();
            stream.close_outbound();
            stream.queue.shrink_to(QUEUE_KEPT);
        }
        self.free.push(place);
    }

    /// Gives memory back that no stream needs, when there is none.
    pub(crate) fn shrink(&mut self) {
        if self.is_empty() {
            *self = Streams::default();
        }
    }

    /// The streams in order, with their numbers.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, &Stream)> + '_ {
        let place = |(id, place): &(u64, u32)| Some((*id, self.places.get(*place as usize)?));
        self.order.iter().filter_map(place)
    }

    /// The numbers of all streams, in order.
    pub(crate) fn ids(&self) -> Vec<u64> {
        self.order.iter().map(|(id, _)| *id).collect()
    }
}
