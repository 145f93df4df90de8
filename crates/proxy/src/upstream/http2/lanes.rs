//! Lanes of a line: what has come for each of its streams, and who waits for the line itself.
//!
//! ```text
//! Begun ──made──► Made ──► Ended          told: the peer's limit is known
//!   └──────not made────────► ▲            leaving: no more streams; those that are there go on
//! ```
//!
//! Nothing in here reads, writes, or looks at a clock: the line's task says what has happened, and
//! wakes whom it is told to.
//!
//! Invariants:
//! 1. A waiter is ready as soon as it has nothing to wait for: there is room, or the peer's limit
//!    is known, or the line leaves or has ended. Whoever makes one of that true is given its waker.
//! 2. A lane holds what came, in order, and then the line's end. Of bodies that is bounded by the
//!    stream's window, in pieces that keep no memory but their own; of interim answers by
//!    `INTERIM_MOST`.
//! 3. Until the peer has told its limit there is one stream; then no more than it told, nor than
//!    `most`, nor than it bore when it last refused one.

use std::collections::VecDeque;
use std::io;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use bytes::{Bytes, BytesMut};
use millpond_wire::http1::response::MAX_INTERIM;
use millpond_wire::http2::{Event, Fault, Gone};

use millpond_exchange::failure::UpstreamFailure;

/// Interim answers of one stream: whoever reads them bears one less.
const INTERIM_MOST: u32 = MAX_INTERIM + 1;
/// Bytes of a piece that waits behind others below which it is copied (arbitrary: a quarter of a
/// read, so that what waits keeps at most four times its size).
const SHORT: usize = super::line::READ / 4;

/// The end of a line.
#[derive(Clone, Debug)]
pub(super) enum End {
    /// The connection was not made.
    NotMade(UpstreamFailure),
    /// The peer has closed it, or we have.
    Closed,
    /// The socket failed.
    Failed(Rc<io::Error>),
    /// The peer has broken HTTP's rules.
    Fault(Fault),
}

/// The stage of a line.
#[derive(Debug)]
enum Stage {
    /// Its connection is being made.
    Begun,
    /// Its connection is there.
    Made,
    /// The line is over.
    Ended(End),
}

/// The lanes of a line.
#[derive(Debug)]
pub(super) struct Lanes {
    stage: Stage,
    /// Most streams at once.
    most: usize,
    /// Most streams that the peer bears, once it has told.
    told: Option<usize>,
    /// Streams that the peer bore when it refused one, until one of them ends.
    borne: Option<usize>,
    is_leaving: bool,
    /// By the numbers of their streams, which only grow.
    lanes: Vec<(u32, Lane)>,
    waiters: Vec<(u32, Option<Waker>)>,
    next_waiter: u32,
}

/// The lane of a stream.
#[derive(Debug, Default)]
struct Lane {
    queue: VecDeque<Event>,
    waker: Option<Waker>,
    interims: u32,
    is_refused: bool,
}

impl Lanes {
    /// Lanes of a line that has just begun, for so many streams at most.
    pub(super) fn new(most: usize) -> Self {
        Lanes {
            stage: Stage::Begun,
            most,
            told: None,
            borne: None,
            is_leaving: false,
            lanes: Vec::new(),
            waiters: Vec::new(),
            next_waiter: 0,
        }
    }

    /// The connection is there.
    #[must_use = "they are to be woken"]
    pub(super) fn made(&mut self) -> Vec<Waker> {
        if matches!(self.stage, Stage::Begun) {
            self.stage = Stage::Made;
        }
        self.waiting()
    }

    /// The peer has told how many streams it bears.
    #[must_use = "they are to be woken"]
    pub(super) fn tell(&mut self, most: usize) -> Vec<Waker> {
        self.told = Some(most);
        self.waiting()
    }

    /// No stream is opened any more.
    #[must_use = "they are to be woken"]
    pub(super) fn leave(&mut self) -> Vec<Waker> {
        self.is_leaving = true;
        self.waiting()
    }

    /// The line is over; the first reason counts.
    #[must_use = "they are to be woken"]
    pub(super) fn end(&mut self, end: End) -> Vec<Waker> {
        if !matches!(self.stage, Stage::Ended(_)) {
            self.stage = Stage::Ended(end);
        }
        let lanes = self.lanes.iter_mut().filter_map(|(_, it)| it.waker.take());
        let mut wakers: Vec<Waker> = lanes.collect();
        wakers.extend(self.waiting());
        wakers
    }

    /// The end, if it has come.
    pub(super) fn ended(&self) -> Option<&End> {
        match &self.stage {
            Stage::Ended(end) => Some(end),
            Stage::Begun | Stage::Made => None,
        }
    }

    /// True if no stream is opened any more.
    pub(super) fn is_leaving(&self) -> bool {
        self.is_leaving || self.ended().is_some()
    }

    /// The count of streams.
    pub(super) fn len(&self) -> usize {
        self.lanes.len()
    }

    /// Most streams that the peer bears, once it has told.
    pub(super) fn told(&self) -> Option<usize> {
        self.told
    }

    /// True if a stream may be opened. INVARIANT 3.
    pub(super) fn has_room(&self) -> bool {
        let told = self.told.map_or(1, |told| told.min(self.most));
        let most = self.borne.map_or(told, |borne| borne.min(told));
        matches!(self.stage, Stage::Made) && !self.is_leaving && self.len() < most
    }

    /// True while nobody knows how many streams there may be.
    fn is_forming(&self) -> bool {
        !self.is_leaving() && self.told.is_none()
    }

    /// True if one more may wait for the line, of which so many streams are expected at most.
    pub(super) fn may_join(&self, expected: usize) -> bool {
        let counted = self.lanes.len() + self.waiters.len();
        self.is_forming() && counted < expected.min(self.most)
    }

    /// True if somebody waits for the line.
    pub(super) fn is_awaited(&self) -> bool {
        !self.waiters.is_empty()
    }

    /// Enters a waiter; its number.
    pub(super) fn join(&mut self) -> u32 {
        self.next_waiter = self.next_waiter.wrapping_add(1);
        self.waiters.push((self.next_waiter, None));
        self.next_waiter
    }

    /// Takes a waiter out.
    pub(super) fn quit(&mut self, waiter: u32) {
        self.waiters.retain(|(it, _)| *it != waiter);
    }

    /// Ready when a waiter has nothing to wait for. INVARIANT 1.
    pub(super) fn poll_wait(&mut self, waiter: u32, cx: &mut Context<'_>) -> Poll<()> {
        if !self.is_forming() || self.has_room() {
            return Poll::Ready(());
        }
        for (it, waker) in &mut self.waiters {
            if *it == waiter {
                *waker = Some(cx.waker().clone());
            }
        }
        Poll::Pending
    }

    /// The wakers of those who have nothing to wait for any more.
    fn waiting(&mut self) -> Vec<Waker> {
        if self.is_forming() && !self.has_room() {
            return Vec::new();
        }
        let waiters = self.waiters.iter_mut();
        waiters.filter_map(|(_, waker)| waker.take()).collect()
    }

    /// Enters a stream, whose number is higher than all before.
    pub(super) fn open(&mut self, stream: u32) {
        self.lanes.push((stream, Lane::default()));
    }

    /// Takes a stream out, with what nobody took of it.
    #[must_use = "they are to be woken"]
    pub(super) fn close(&mut self, stream: u32) -> Vec<Waker> {
        if let Ok(at) = self.find(stream) {
            let (_, lane) = self.lanes.remove(at);
            if !lane.is_refused {
                self.borne = None;
            }
        }
        self.waiting()
    }

    fn find(&self, stream: u32) -> Result<usize, usize> {
        self.lanes.binary_search_by_key(&stream, |(id, _)| *id)
    }

    fn lane(&mut self, stream: u32) -> Option<&mut Lane> {
        let at = self.find(stream).ok()?;
        self.lanes.get_mut(at).map(|(_, lane)| lane)
    }

    /// Puts what has happened to a stream into its lane; the waker of whom it is for.
    #[must_use = "it is to be woken"]
    pub(super) fn deliver(&mut self, stream: u32, event: Event) -> Option<Waker> {
        if let Event::Gone { why, .. } = &event
            && is_refusal(*why)
        {
            self.note_refused(stream);
        }
        let lane = self.lane(stream)?;
        lane.put(event);
        lane.waker.take()
    }

    /// INVARIANT 3; a peer that bears none is left.
    fn note_refused(&mut self, stream: u32) {
        if let Some(lane) = self.lane(stream) {
            lane.is_refused = true;
        }
        let borne = self.lanes.iter().filter(|(_, lane)| !lane.is_refused);
        match borne.count() {
            0 => self.is_leaving = true,
            borne => self.borne = Some(borne),
        }
    }

    /// The next thing that has happened to a stream. INVARIANT 2.
    pub(super) fn next(&mut self, stream: u32) -> Option<Event> {
        if let Some(event) = self.lane(stream)?.queue.pop_front() {
            return Some(event);
        }
        match &self.stage {
            Stage::Ended(End::Fault(fault)) => Some(Event::Failed(*fault)),
            _ => None,
        }
    }

    /// Waits for more of a stream: 0 at the line's end.
    pub(super) fn poll_more(
        &mut self,
        stream: u32,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        let Ok(at) = self.find(stream) else {
            return Poll::Ready(Ok(0));
        };
        let Some((_, lane)) = self.lanes.get_mut(at) else {
            return Poll::Ready(Ok(0));
        };
        if !lane.queue.is_empty() {
            return Poll::Ready(Ok(1));
        }
        match &self.stage {
            Stage::Begun | Stage::Made => {
                lane.waker = Some(cx.waker().clone());
                Poll::Pending
            }
            Stage::Ended(End::NotMade(_) | End::Closed) => Poll::Ready(Ok(0)),
            Stage::Ended(End::Failed(error)) => Poll::Ready(Err(again(error))),
            Stage::Ended(End::Fault(_)) => Poll::Ready(Ok(1)),
        }
    }
}

/// True for a stream that the peer refused, and did nothing with.
fn is_refusal(why: Gone) -> bool {
    matches!(why, Gone::ByPeer(_)) && why.is_safe_to_retry()
}

/// An error that several are told of.
fn again(error: &io::Error) -> io::Error {
    match error.raw_os_error() {
        Some(code) => io::Error::from_raw_os_error(code),
        None => error.kind().into(),
    }
}

impl Lane {
    /// INVARIANT 2.
    fn put(&mut self, event: Event) {
        match event {
            // Whoever waits looks at the engine.
            Event::Room { .. } | Event::Sent { .. } => {}
            Event::Interim { .. } => {
                self.interims = self.interims.saturating_add(1);
                if self.interims <= INTERIM_MOST {
                    self.queue.push_back(event);
                }
            }
            Event::Data { stream, bytes } => self.put_data(stream, bytes),
            event => self.queue.push_back(event),
        }
    }

    fn put_data(&mut self, stream: u32, bytes: Bytes) {
        if self.queue.is_empty() || bytes.len() >= SHORT {
            return self.queue.push_back(Event::Data { stream, bytes });
        }
        match self.queue.pop_back() {
            Some(Event::Data { bytes: before, .. }) if before.len() < SHORT => {
                let bytes = joined(before, &bytes);
                self.queue.push_back(Event::Data { stream, bytes });
            }
            before => {
                self.queue.extend(before);
                let bytes = Bytes::copy_from_slice(&bytes);
                self.queue.push_back(Event::Data { stream, bytes });
            }
        }
    }
}

/// Two pieces as one, in memory of their own.
fn joined(before: Bytes, bytes: &[u8]) -> Bytes {
    // What is alone in its memory grows there: many short pieces cost no more than a long one.
    let mut piece = before.try_into_mut().unwrap_or_else(|shared| {
        let mut piece = BytesMut::with_capacity(SHORT);
        piece.extend_from_slice(&shared);
        piece
    });
    piece.extend_from_slice(bytes);
    piece.freeze()
}

#[cfg(test)]
mod tests;
