//! `proxy_requests`, `proxy_responses`: packets both ways between a client and a peer, until what
//! was to come has come.
//!
//! ```text
//! inbox of the client ──► peer     a rate drops what is over it
//! client ◄── memory of the worker ◄── peer     a rate leaves it in the kernel's queue
//! ```
//!
//! Invariants:
//! 1. One packet of the peer waits for the client's socket at most.
//! 2. A look moves [`MOST_PACKETS`] each way at most, so that one session does not hold its worker.

use std::cell::Cell;
use std::io;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use millpond_system::clock::{self, Instant};
use millpond_system::datagram::DatagramSocket;
use millpond_system::timer::Timer;

use super::Client;

/// Packets that one look moves each way (arbitrary).
const MOST_PACKETS: usize = 32;

/// Bytes of the longest packet.
const LONGEST: usize = 64 * 1024;

/// The time that a peer has for what it owes when the process ends, or has another configuration.
/// (Guessed: longer than a name server takes.)
const CLOSING_PATIENCE: Duration = Duration::from_secs(2);

thread_local! {
    /// The memory that packets of peers are received into.
    static MEMORY: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// The end of an exchange.
#[derive(Debug)]
pub(super) enum End {
    /// All packets that were to come have come.
    Done,
    /// Nothing came for too long.
    TimedOut,
    /// The generation has closed.
    Closed,
    /// The peer is not there.
    Failed(io::Error),
}

/// Rules of an exchange.
pub(super) struct Rules {
    /// The begin of the session, which rates count from.
    pub(super) began: Instant,
    /// The longest time without a packet.
    pub(super) timeout: Duration,
    /// Packets of the client that make the session; 0: any number.
    pub(super) requests: u32,
    /// Packets that each of those is answered with, if that is known.
    pub(super) responses: Option<u32>,
}

/// A direction.
#[derive(Default)]
pub(super) struct Way {
    /// Bytes a second; 0: no limit.
    pub(super) rate: u64,
    /// Packets that have come.
    pub(super) packets: u64,
    /// Their bytes.
    pub(super) received: u64,
    /// Bytes that were passed on.
    pub(super) sent: u64,
    /// The time until which no packet is taken, to keep to the rate.
    rests_until: Option<Instant>,
}

impl Way {
    /// True if a packet may come now.
    ///
    /// nginx: a packet of any length may come while the rate is not reached, and the next one when
    /// its bytes have had their time.
    fn is_open(&mut self, began: Instant) -> bool {
        if self.rate == 0 {
            return true;
        }
        let now = clock::instant();
        if self.rests_until.is_some_and(|until| until > now) {
            return false;
        }
        self.rests_until = None;
        let seconds = (now - began).as_secs() + 1;
        let share = self.rate.saturating_mul(seconds);
        if self.received < share {
            return true;
        }
        let rest = (self.received - share).saturating_mul(1000) / self.rate + 1;
        self.rests_until = Some(now + Duration::from_millis(rest));
        false
    }

    /// Counts a packet that has come.
    fn count(&mut self, len: usize) {
        self.packets += 1;
        self.received += len as u64;
        let rest = (len as u64 * 1000).checked_div(self.rate).unwrap_or(0);
        if rest > 0 {
            self.rests_until = Some(clock::instant() + Duration::from_millis(rest));
        }
    }
}

/// An exchange of packets.
pub(super) struct Exchange<'a> {
    client: &'a Client,
    peer: &'a DatagramSocket,
    rules: Rules,
    /// The header that stands before the first packet.
    header: Option<BytesMut>,
    /// From the client to the peer.
    pub(super) forth: Way,
    /// From the peer to the client.
    pub(super) back: Way,
    /// A packet that waits for the client's socket.
    held: Option<Bytes>,
    deadline: Instant,
    /// The time by which a closing generation has its end.
    closes: Option<Instant>,
    timer: Timer,
}

impl<'a> Exchange<'a> {
    /// An exchange that begins now.
    pub(super) fn new(
        (client, peer): (&'a Client, &'a DatagramSocket),
        rules: Rules,
        header: Option<BytesMut>,
    ) -> Self {
        Exchange {
            client,
            peer,
            deadline: clock::instant() + rules.timeout,
            rules,
            header,
            forth: Way::default(),
            back: Way::default(),
            held: None,
            closes: None,
            timer: Timer::new(),
        }
    }

    /// Moves what can be moved, until the exchange ends.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<End> {
        let before = (self.forth.packets, self.back.packets);
        let moved = self.move_forth(cx).and_then(|()| self.move_back(cx));
        if let Err(error) = moved {
            return Poll::Ready(End::Failed(error));
        }
        if self.is_done() {
            return Poll::Ready(End::Done);
        }
        let now = clock::instant();
        let rest = self.back.rests_until.filter(|until| *until > now);
        if before != (self.forth.packets, self.back.packets) {
            self.deadline = now + self.rules.timeout;
        }
        if let Some(until) = rest {
            // nginx: a session that keeps to its rates is not timed.
            self.deadline = self.deadline.max(until + self.rules.timeout);
        }
        if self.client.connection.generation.is_closing() {
            let closes = *self.closes.get_or_insert(now + CLOSING_PATIENCE);
            if !self.is_owed() || closes <= now {
                return Poll::Ready(End::Closed);
            }
        }
        let others = [rest, self.closes];
        let next = others
            .into_iter()
            .flatten()
            .fold(self.deadline, Instant::min);
        if self.timer.poll_expired(cx, next).is_pending() {
            return Poll::Pending;
        }
        if clock::instant() >= self.deadline {
            return Poll::Ready(End::TimedOut);
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Passes on packets of the client.
    fn move_forth(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        for _ in 0..MOST_PACKETS {
            let Poll::Ready(packet) = self.client.inbox.poll(cx) else {
                return Ok(());
            };
            let is_first = self.forth.packets == 0;
            if !is_first && !self.forth.is_open(self.rules.began) {
                // nginx: a packet that is over the rate is lost.
                continue;
            }
            if is_first {
                // nginx: it was there before the session was, and no rate holds for it.
                self.forth.packets = 1;
                self.forth.received = packet.len() as u64;
            } else {
                self.forth.count(packet.len());
            }
            self.send(&packet)?;
        }
        cx.waker().wake_by_ref();
        Ok(())
    }

    /// Sends the peer a packet; one that its socket does not take now is lost.
    fn send(&mut self, packet: &[u8]) -> io::Result<()> {
        let sent = match self.header.take() {
            None => self.peer.try_send(packet),
            Some(mut header) => {
                header.extend_from_slice(packet);
                self.peer.try_send(&header)
            }
        };
        match sent {
            Ok(count) => self.forth.sent += count as u64,
            Err(error) if is_of_packet(&error) => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Passes on packets of the peer.
    fn move_back(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        let mut memory = MEMORY.take();
        memory.resize(LONGEST, 0);
        let mut is_left = true;
        for _ in 0..MOST_PACKETS {
            match self.step_back(cx, &mut memory) {
                Ok(true) => {}
                Ok(false) => {
                    is_left = false;
                    break;
                }
                Err(error) => {
                    MEMORY.set(memory);
                    return Err(error);
                }
            }
        }
        MEMORY.set(memory);
        if is_left {
            // INVARIANT 2.
            cx.waker().wake_by_ref();
        }
        Ok(())
    }

    /// Passes on one packet; false if there is none now, or the session is over with it.
    fn step_back(&mut self, cx: &mut Context<'_>, memory: &mut [u8]) -> io::Result<bool> {
        if let Some(packet) = self.held.take() {
            if !self.give(cx, &packet) {
                self.held = Some(packet);
                return Ok(false);
            }
            return Ok(!self.is_done());
        }
        if self.is_done() || !self.back.is_open(self.rules.began) {
            return Ok(false);
        }
        let Poll::Ready(received) = self.peer.poll_recv(cx, memory) else {
            return Ok(false);
        };
        let packet = memory.get(..received?).unwrap_or_default();
        self.back.count(packet.len());
        if !self.give(cx, packet) {
            // INVARIANT 1.
            self.held = Some(Bytes::copy_from_slice(packet));
            return Ok(false);
        }
        Ok(true)
    }

    /// Sends the client a packet; false if its socket has no room. One that cannot be sent is lost.
    fn give(&mut self, cx: &mut Context<'_>, packet: &[u8]) -> bool {
        match self.client.poll_send(cx, packet) {
            Poll::Pending => false,
            Poll::Ready(sent) => {
                if sent.is_ok() {
                    self.back.sent += packet.len() as u64;
                }
                true
            }
        }
    }

    /// True if the session has all packets that it consists of.
    fn is_done(&self) -> bool {
        let is_open = self.forth.packets < u64::from(self.rules.requests.max(1));
        let has_all = |each| self.back.packets >= self.forth.packets * u64::from(each);
        !is_open && self.held.is_none() && self.rules.responses.is_some_and(has_all)
    }

    /// True if the peer owes packets that are expected.
    pub(super) fn is_owed(&self) -> bool {
        let is_short = |each| self.back.packets < self.forth.packets * u64::from(each);
        self.rules.responses.is_some_and(is_short)
    }
}

/// True for an error that concerns one packet only.
fn is_of_packet(error: &io::Error) -> bool {
    use rustix::io::Errno;
    let of_packet = [Errno::AGAIN, Errno::MSGSIZE, Errno::NOBUFS, Errno::PERM];
    Errno::from_io_error(error).is_some_and(|errno| of_packet.contains(&errno))
}
