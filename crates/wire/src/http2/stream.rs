//! Streams (RFC 9113 §5.1): one exchange each, with two directions that end by themselves.
//!
//! ```text
//!            Inbound                              Outbound
//! client:    Head ─► Body ─► Ended                Body ─► Ending ─► Ended
//! server:    Body ─► Ended                        Head ─► Body ─► Ending ─► Ended
//!
//! open = neither has ended; half-closed = one has; closed = both have, or the stream was reset
//! ```
//!
//! `Ending` is an end that was said and not written. A stream that is closed stays in its table
//! until its owner has released it: its exchange still runs, and counts as one of those that may be
//! at once.
//!
//! 1. Numbers only grow, so the table is in order by itself.
//! 2. The memory of a stream that is gone is that of the next one.

use std::collections::VecDeque;

use bytes::Bytes;

use super::flow::{ReceiveWindow, SendWindow};
use super::priority::Priority;
use crate::header::Fields;

/// The direction from the peer to us.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Inbound {
    /// The head of the answer is to come.
    Head,
    /// The body comes: so many bytes, if that is known.
    Body(Option<u64>),
    /// The body is no message's: it is thrown away.
    Discard,
    /// The peer has ended it.
    Ended,
}

/// The direction from us to the peer.
#[derive(Debug)]
pub(crate) enum Outbound {
    /// The head is to be sent.
    Head,
    /// The body is to be sent.
    Body,
    /// The end was said, perhaps with trailers.
    Ending(Option<Box<Fields>>),
    /// The end was written.
    Ended,
}

/// The way in which a stream was reset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reset {
    ByUs,
    ByPeer,
}

/// A choice about the owner of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    /// Its exchange runs.
    Holds,
    /// Its exchange is over.
    Released,
}

/// A stream.
#[derive(Debug)]
pub(crate) struct Stream {
    pub(crate) inbound: Inbound,
    pub(crate) outbound: Outbound,
    pub(crate) reset: Option<Reset>,
    pub(crate) owner: Owner,
    pub(crate) send: SendWindow,
    pub(crate) receive: ReceiveWindow,
    pub(crate) priority: Priority,
    /// The longest payload of a DATA frame that is written.
    pub(crate) chunk_len: usize,
    /// True while the scheduler has the stream, or the list of those that wait for the connection.
    pub(crate) is_scheduled: bool,
    /// True if the owner was told that there is no room.
    pub(crate) wants_room: bool,
    /// True for an answer to HEAD, which has no body whatever it says.
    pub(crate) is_head: bool,
    /// True if the peer has sent something that is no message.
    pub(crate) is_malformed: bool,
    /// True if the request asks for a tunnel (RFC 8441).
    pub(crate) is_tunnel: bool,
    /// Small frames of DATA that were counted and that its owner has not taken.
    pub(crate) small_unread: u32,
    /// Pieces of the body that are to be sent.
    pub(crate) queue: VecDeque<Bytes>,
    /// Bytes of them.
    pub(crate) queued: usize,
    /// Bytes of its frames of HEADERS and DATA that were written out.
    pub(crate) sent_len: u64,
}

impl Stream {
    /// True if no frame of it is to come or to go.
    pub(crate) fn is_closed(&self) -> bool {
        self.reset.is_some()
            || (self.inbound == Inbound::Ended && matches!(self.outbound, Outbound::Ended))
    }

    /// True if it has something to send that its window lets go.
    pub(crate) fn may_send(&self) -> bool {
        match self.outbound {
            _ if self.reset.is_some() => false,
            Outbound::Body => self.queued > 0 && self.send.room() > 0,
            Outbound::Ending(_) => self.queued == 0 || self.send.room() > 0,
            Outbound::Head | Outbound::Ended => false,
        }
    }

    /// Bytes that its owner may push when so many may wait.
    pub(crate) fn room(&self, most: usize) -> usize {
        match self.outbound {
            Outbound::Body if self.reset.is_none() => {
                self.send.room().min(most).saturating_sub(self.queued)
            }
            _ => 0,
        }
    }

    /// Ends it at once.
    pub(crate) fn close(&mut self, reset: Reset) {
        self.reset = Some(reset);
        self.queue.clear();
        self.queued = 0;
        self.outbound = Outbound::Ended;
    }
}

/// The begin of a stream.
#[derive(Debug)]
pub(crate) struct Opening {
    pub(crate) id: u32,
    pub(crate) inbound: Inbound,
    pub(crate) outbound: Outbound,
    pub(crate) send: SendWindow,
    pub(crate) receive: ReceiveWindow,
    pub(crate) priority: Priority,
    pub(crate) chunk_len: usize,
}

/// The streams of a connection, by number.
#[derive(Debug, Default)]
pub(crate) struct Streams {
    /// Numbers in order, with the place of each stream.
    order: Vec<(u32, u32)>,
    places: Vec<Stream>,
    /// Places of streams that are gone.
    free: Vec<u32>,
}

/// Pieces that a queue keeps room for when its stream is gone (arbitrary).
const QUEUE_KEPT: usize = 8;

impl Streams {
    /// The count of streams.
    pub(crate) fn len(&self) -> usize {
        self.order.len()
    }

    /// True if there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    /// A stream.
    #[inline]
    pub(crate) fn get(&self, id: u32) -> Option<&Stream> {
        let at = self.find(id).ok()?;
        let (_, place) = self.order.get(at)?;
        self.places.get(*place as usize)
    }

    /// A stream, to be changed.
    #[inline]
    pub(crate) fn get_mut(&mut self, id: u32) -> Option<&mut Stream> {
        let at = self.find(id).ok()?;
        let (_, place) = self.order.get(at)?;
        self.places.get_mut(*place as usize)
    }

    #[inline]
    fn find(&self, id: u32) -> Result<usize, usize> {
        // Most calls are for the newest.
        match self.order.last() {
            Some((last, _)) if *last == id => Ok(self.order.len() - 1),
            _ => self.order.binary_search_by_key(&id, |(id, _)| *id),
        }
    }

    /// Adds a stream, whose number is higher than all others. INVARIANT 1.
    pub(crate) fn insert(&mut self, opening: Opening) {
        debug_assert!(self.order.last().is_none_or(|(last, _)| *last < opening.id));
        let queue = |queue| Stream {
            inbound: opening.inbound,
            outbound: opening.outbound,
            reset: None,
            owner: Owner::Holds,
            send: opening.send,
            receive: opening.receive,
            priority: opening.priority,
            chunk_len: opening.chunk_len,
            is_scheduled: false,
            wants_room: false,
            is_head: false,
            is_malformed: false,
            is_tunnel: false,
            small_unread: 0,
            queue,
            queued: 0,
            sent_len: 0,
        };
        let id = opening.id;
        let free = self.free.pop();
        let place = free.unwrap_or(self.places.len() as u32);
        match self.places.get_mut(place as usize) {
            // INVARIANT 2.
            Some(old) => *old = queue(std::mem::take(&mut old.queue)),
            None => self.places.push(queue(VecDeque::new())),
        }
        self.order.push((id, place));
    }

    /// Removes a stream.
    pub(crate) fn remove(&mut self, id: u32) {
        if let Ok(at) = self.find(id) {
            let (_, place) = self.order.remove(at);
            if let Some(stream) = self.places.get_mut(place as usize) {
                stream.queue.clear();
                stream.queue.shrink_to(QUEUE_KEPT);
            }
            self.free.push(place);
        }
    }

    /// Gives memory back that no stream needs, when there is none.
    pub(crate) fn shrink(&mut self) {
        if self.is_empty() {
            *self = Streams::default();
        }
    }

    /// The numbers of all streams, in order.
    pub(crate) fn ids(&self) -> impl Iterator<Item = u32> + '_ {
        self.order.iter().map(|(id, _)| *id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn opening(id: u32) -> Opening {
        Opening {
            id,
            inbound: Inbound::Body(None),
            outbound: Outbound::Head,
            // A window that tells which one it is.
            send: SendWindow::new(if id == 1 { 10 } else { id }),
            receive: ReceiveWindow::new(10),
            priority: Priority::default(),
            chunk_len: 8192,
        }
    }

    /// RFC 9113 §5.1.
    #[test]
    fn a_stream_is_closed_when_both_directions_are_or_when_it_is_reset() {
        let mut streams = Streams::default();
        streams.insert(opening(1));
        let stream = streams.get_mut(1).unwrap();
        assert!(!stream.is_closed());
        stream.outbound = Outbound::Ended;
        assert!(!stream.is_closed());
        stream.inbound = Inbound::Ended;
        assert!(stream.is_closed());
        stream.inbound = Inbound::Body(None);
        stream.close(Reset::ByPeer);
        assert!(stream.is_closed() && !stream.may_send() && stream.room(10) == 0);
    }

    #[test]
    fn room_is_what_the_window_and_the_buffer_let() {
        let mut streams = Streams::default();
        streams.insert(opening(1));
        let stream = streams.get_mut(1).unwrap();
        assert_eq!(stream.room(4), 0, "no head was sent");
        stream.outbound = Outbound::Body;
        assert_eq!((stream.room(4), stream.room(40)), (4, 10));
        stream.queued = 3;
        assert_eq!((stream.room(4), stream.room(40)), (1, 7));
        assert!(stream.may_send());
        stream.send.take(10);
        assert!(!stream.may_send());
        stream.outbound = Outbound::Ending(None);
        assert!(!stream.may_send());
        stream.queued = 0;
        assert!(stream.may_send(), "the end needs no window");
    }

    #[test]
    fn streams_are_found_whatever_comes_and_goes() {
        let mut streams = Streams::default();
        for round in 0..50_u32 {
            streams.insert(opening(2 * round + 1));
            if round % 3 == 0 {
                streams.remove(round | 1);
            }
            for id in streams.ids().collect::<Vec<_>>() {
                let window = if id == 1 { 10 } else { id };
                assert_eq!(streams.get(id).unwrap().send, SendWindow::new(window));
            }
            assert!(streams.get(2 * round + 2).is_none());
        }
        let all: Vec<u32> = streams.ids().collect();
        assert!(all.is_sorted() && streams.len() == all.len());
        all.into_iter().for_each(|id| streams.remove(id));
        streams.shrink();
        assert!(streams.is_empty() && streams.places.is_empty());
    }
}
