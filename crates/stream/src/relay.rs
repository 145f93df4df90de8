//! The relay of a session: bytes both ways, until one side has ended (or both, `proxy_half_close`).
//!
//! ```text
//! client ──read──► memory of the worker ──write──► peer
//!                        └─ what it does not take waits in the flow, and nothing more is read
//! ```
//!
//! Bytes are read into memory that all sessions of a worker share, and written from there at once.
//! Only the rest that the other side does not take is copied into memory of the session's own.
//!
//! Invariants:
//! 1. A side is read only when nothing of it waits: a flow holds `proxy_buffer_size` bytes at most.
//! 2. The end of a side is passed on behind its bytes.
//! 3. A look at a flow moves [`MOST_READS`] buffers at most, so that one session does not hold its
//!    worker.

use std::cell::Cell;
use std::io::IoSlice;
use std::task::{Context, Poll};
use std::time::Duration;

#[cfg(feature = "script")]
use bytes::Bytes;
use bytes::{Buf, BytesMut};
#[cfg(feature = "script")]
use millpond_script::Side;
use millpond_system::clock::{self, Instant};
use millpond_system::socket::More;
use millpond_system::timer::Timer;
use millpond_system::transport::Transport;

/// Buffers that one look at a flow moves (arbitrary: 256 KiB of the usual size).
const MOST_READS: usize = 4;

/// Bytes that may wait for one side while a filter sees those for the other (guessed: a filter that
/// answers its client has this much before the client must read).
#[cfg(feature = "script")]
const MOST_BESIDE: usize = 1 << 20;

thread_local! {
    /// The memory that bytes are read into.
    static MEMORY: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// The end of a relay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// The client has ended.
    Client,
    /// The peer has ended.
    Peer,
    /// Nothing went through for too long.
    TimedOut,
}

/// Something that a filter sees.
#[cfg(feature = "script")]
#[derive(Debug)]
pub(crate) enum Seen {
    /// Bytes of a side.
    Bytes(Side, Bytes),
    /// The end of a side.
    Last(Side),
    /// The end of the relay.
    Over(End),
}

/// A direction's progress to its end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Way {
    /// More may come.
    #[default]
    Open,
    /// All has come, and some of it may wait to be passed on.
    Ending,
    /// All was passed on.
    Ended,
}

/// A direction.
#[derive(Default)]
pub(crate) struct Flow {
    /// Bytes that were read and not taken.
    waiting: BytesMut,
    way: Way,
    /// Bytes a second; 0: no limit.
    rate: u64,
    /// The time until which nothing is read, to keep to the rate.
    rests_until: Option<Instant>,
    rest: Timer,
    /// Bytes read.
    pub(crate) read: u64,
    /// Bytes written.
    pub(crate) written: u64,
}

impl Flow {
    /// A flow of a rate that begins with bytes that were read before.
    pub(crate) fn new(rate: u64, waiting: BytesMut) -> Flow {
        Flow {
            read: waiting.len() as u64,
            waiting,
            rate,
            ..Flow::default()
        }
    }

    /// Adds bytes of ours before what waits.
    pub(crate) fn put_first(&mut self, mut bytes: BytesMut) {
        bytes.extend_from_slice(&self.waiting);
        self.waiting = bytes;
    }

    /// Takes what waits, which then is not written.
    pub(crate) fn take_waiting(&mut self) -> BytesMut {
        std::mem::take(&mut self.waiting)
    }

    /// Adds bytes behind what waits; those of a flow that has ended are lost.
    #[cfg(feature = "script")]
    pub(crate) fn put_last(&mut self, bytes: BytesMut) {
        match self.way {
            Way::Ended => {}
            _ if self.waiting.is_empty() => self.waiting = bytes,
            _ => self.waiting.extend_from_slice(&bytes),
        }
    }

    /// Writes what waits and, if then nothing does, reads once; none if there is nothing to see.
    /// `beside` is what waits for the other side.
    #[cfg(feature = "script")]
    fn poll_seen(&mut self, cx: &mut Context<'_>, ends: &Ends<'_>, beside: usize) -> Option<Bytes> {
        while !self.waiting.is_empty() {
            if !self.write_waiting(cx, ends) {
                return None;
            }
        }
        if self.way != Way::Open {
            self.end_of_way(ends);
            return None;
        }
        if beside > MOST_BESIDE {
            return None;
        }
        let room = self.allowance(cx, ends)?;
        let mut memory = MEMORY.take();
        memory.resize(ends.buffer_size, 0);
        let read = memory.get_mut(..room).unwrap_or_default();
        let seen = match ends.from.poll_recv_into(cx, read) {
            Poll::Pending => None,
            Poll::Ready(Ok(0) | Err(_)) => {
                self.way = Way::Ending;
                Some(Bytes::new())
            }
            Poll::Ready(Ok(count)) => {
                self.read += count as u64;
                self.hold_back(count as u64);
                Some(Bytes::copy_from_slice(
                    memory.get(..count).unwrap_or_default(),
                ))
            }
        };
        MEMORY.set(memory);
        seen
    }

    /// Passes on the end, if all that came before it was.
    fn end_of_way(&mut self, ends: &Ends<'_>) {
        if self.way == Way::Ending {
            self.way = Way::Ended;
            // INVARIANT 2.
            if ends.passes_end {
                ends.to.shutdown_write();
            }
        }
    }

    /// Moves what can be moved; true if anything was, or the flow has come nearer to its end.
    fn poll(&mut self, cx: &mut Context<'_>, ends: &Ends<'_>) -> bool {
        let before = (self.read, self.written, self.way);
        let mut memory = MEMORY.take();
        memory.resize(ends.buffer_size, 0);
        let is_left = (0..MOST_READS).all(|_| self.step(cx, ends, &mut memory));
        MEMORY.set(memory);
        if is_left {
            // INVARIANT 3.
            cx.waker().wake_by_ref();
        }
        before != (self.read, self.written, self.way)
    }

    /// Writes what waits, or reads once and writes that; false if there is no more to do now.
    fn step(&mut self, cx: &mut Context<'_>, ends: &Ends<'_>, memory: &mut [u8]) -> bool {
        if !self.waiting.is_empty() {
            return self.write_waiting(cx, ends);
        }
        if self.way != Way::Open {
            self.end_of_way(ends);
            return false;
        }
        let Some(room) = self.allowance(cx, ends) else {
            return false;
        };
        let room = memory.get_mut(..room).unwrap_or_default();
        match ends.from.poll_recv_into(cx, room) {
            Poll::Pending => false,
            // nginx: a side that fails has ended.
            Poll::Ready(Ok(0) | Err(_)) => {
                self.way = Way::Ending;
                true
            }
            Poll::Ready(Ok(count)) => {
                self.read += count as u64;
                self.hold_back(count as u64);
                self.write(cx, ends, room.get(..count).unwrap_or_default())
            }
        }
    }

    fn write_waiting(&mut self, cx: &mut Context<'_>, ends: &Ends<'_>) -> bool {
        match ends
            .to
            .poll_send(cx, &[IoSlice::new(&self.waiting)], More::Nothing)
        {
            Poll::Pending => false,
            Poll::Ready(Ok(count)) => {
                self.written += count as u64;
                self.waiting.advance(count);
                if self.waiting.is_empty() {
                    self.waiting = BytesMut::new();
                }
                true
            }
            Poll::Ready(Err(_)) => self.give_up(),
        }
    }

    fn write(&mut self, cx: &mut Context<'_>, ends: &Ends<'_>, bytes: &[u8]) -> bool {
        let taken = match ends.to.poll_send(cx, &[IoSlice::new(bytes)], More::Nothing) {
            Poll::Pending => 0,
            Poll::Ready(Ok(count)) => count,
            Poll::Ready(Err(_)) => return self.give_up(),
        };
        self.written += taken as u64;
        let rest = bytes.get(taken..).unwrap_or_default();
        self.waiting.extend_from_slice(rest);
        rest.is_empty()
    }

    /// Ends the flow: nobody takes its bytes any more.
    fn give_up(&mut self) -> bool {
        self.waiting = BytesMut::new();
        self.way = Way::Ended;
        false
    }

    /// The bytes that may be read now; none while the flow keeps to its rate.
    ///
    /// nginx: the first second's share is there at once.
    fn allowance(&mut self, cx: &mut Context<'_>, ends: &Ends<'_>) -> Option<usize> {
        if self.rate == 0 {
            return Some(ends.buffer_size);
        }
        if let Some(until) = self.rests_until {
            if self.rest.poll_expired(cx, until).is_pending() {
                return None;
            }
            self.rests_until = None;
        }
        let seconds = (clock::instant() - ends.began).as_secs() + 1;
        let left = self.rate.saturating_mul(seconds).saturating_sub(self.read);
        if left == 0 {
            let excess = self.read - self.rate.saturating_mul(seconds).min(self.read);
            self.rest_for(excess * 1000 / self.rate + 1, cx);
            return None;
        }
        Some(usize::try_from(left).map_or(ends.buffer_size, |left| left.min(ends.buffer_size)))
    }

    /// Lets the flow rest for as long as what was read takes at its rate.
    fn hold_back(&mut self, count: u64) {
        let rest_ms = (count * 1000).checked_div(self.rate).unwrap_or(0);
        if rest_ms > 0 {
            self.rests_until = Some(clock::instant() + Duration::from_millis(rest_ms));
        }
    }

    fn rest_for(&mut self, ms: u64, cx: &mut Context<'_>) {
        let until = clock::instant() + Duration::from_millis(ms);
        self.rests_until = Some(until);
        // Armed; if it is over already, the next look finds it so.
        if self.rest.poll_expired(cx, until).is_ready() {
            cx.waker().wake_by_ref();
        }
    }

    /// Writes what waits; true once all of it is taken, false if nobody takes it.
    pub(crate) fn poll_sent(&mut self, cx: &mut Context<'_>, to: &Transport) -> Poll<bool> {
        while !self.waiting.is_empty() {
            match to.poll_send(cx, &[IoSlice::new(&self.waiting)], More::Nothing) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Err(_)) => return Poll::Ready(false),
                Poll::Ready(Ok(count)) => {
                    self.written += count as u64;
                    self.waiting.advance(count);
                }
            }
        }
        Poll::Ready(true)
    }

    fn has_ended(&self) -> bool {
        self.way == Way::Ended
    }
}

/// The two ends of a flow, and what holds for both flows of a relay.
struct Ends<'a> {
    from: &'a Transport,
    to: &'a Transport,
    buffer_size: usize,
    began: Instant,
    passes_end: bool,
}

/// Rules of a relay.
pub(crate) struct Rules {
    /// The begin of the session, which rates count from.
    pub(crate) began: Instant,
    /// The longest time without a byte.
    pub(crate) timeout: Duration,
    /// Bytes that are read at once.
    pub(crate) buffer_size: usize,
    /// True if the session goes on when one side has ended.
    pub(crate) half_close: bool,
}

/// A relay between a client and a peer.
pub(crate) struct Relay<'a> {
    pub(crate) client: &'a Transport,
    pub(crate) peer: &'a Transport,
    /// From the client to the peer.
    pub(crate) forth: Flow,
    /// From the peer to the client.
    pub(crate) back: Flow,
    pub(crate) rules: Rules,
    timer: Timer,
    deadline: Instant,
    /// The side that a filter looks at first, so that neither has to wait for the other.
    #[cfg(feature = "script")]
    turns: bool,
}

impl<'a> Relay<'a> {
    /// A relay that begins now.
    pub(crate) fn new(
        (client, peer): (&'a Transport, &'a Transport),
        (forth, back): (Flow, Flow),
        rules: Rules,
    ) -> Self {
        Relay {
            client,
            peer,
            forth,
            back,
            deadline: clock::instant() + rules.timeout,
            rules,
            timer: Timer::new(),
            #[cfg(feature = "script")]
            turns: false,
        }
    }

    /// Moves what can be moved, until the relay ends.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<End> {
        let (to_peer, to_client) = self.ends();
        if self.forth.poll(cx, &to_peer) | self.back.poll(cx, &to_client) {
            self.has_moved();
        }
        self.poll_end(cx)
    }

    /// Writes what waits, and reads what a filter is to see of one side.
    #[cfg(feature = "script")]
    pub(crate) fn poll_seen(&mut self, cx: &mut Context<'_>) -> Poll<Seen> {
        let written = |relay: &Self| (relay.forth.written, relay.back.written);
        let before = written(self);
        let (to_peer, to_client) = self.ends();
        self.turns = !self.turns;
        let sides = if self.turns {
            [Side::Client, Side::Peer]
        } else {
            [Side::Peer, Side::Client]
        };
        for side in sides {
            let (flow, other, ends) = match side {
                Side::Client => (&mut self.forth, &self.back, &to_peer),
                Side::Peer => (&mut self.back, &self.forth, &to_client),
            };
            let Some(bytes) = flow.poll_seen(cx, ends, other.waiting.len()) else {
                continue;
            };
            self.has_moved();
            if bytes.is_empty() {
                return Poll::Ready(Seen::Last(side));
            }
            return Poll::Ready(Seen::Bytes(side, bytes));
        }
        if before != written(self) {
            self.has_moved();
        }
        self.poll_end(cx).map(Seen::Over)
    }

    /// The ends of both flows.
    fn ends(&self) -> (Ends<'a>, Ends<'a>) {
        let ends = |from, to| Ends {
            from,
            to,
            buffer_size: self.rules.buffer_size,
            began: self.rules.began,
            passes_end: self.rules.half_close,
        };
        (ends(self.client, self.peer), ends(self.peer, self.client))
    }

    /// Gives both sides their time anew.
    fn has_moved(&mut self) {
        self.deadline = clock::instant() + self.rules.timeout;
    }

    /// The end of the relay, also by its timeout.
    fn poll_end(&mut self, cx: &mut Context<'_>) -> Poll<End> {
        if let Some(end) = self.end() {
            return Poll::Ready(end);
        }
        // nginx: a session that keeps to its rates is not timed.
        if self.forth.rests_until.is_some() || self.back.rests_until.is_some() {
            self.has_moved();
            return Poll::Pending;
        }
        if self.timer.poll_expired(cx, self.deadline).is_ready() {
            return Poll::Ready(End::TimedOut);
        }
        Poll::Pending
    }

    fn end(&self) -> Option<End> {
        let (client, peer) = (self.forth.has_ended(), self.back.has_ended());
        let is_over = if self.rules.half_close {
            client && peer
        } else {
            client || peer
        };
        is_over.then_some(if client { End::Client } else { End::Peer })
    }
}
