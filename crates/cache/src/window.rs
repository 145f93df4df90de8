//! Bytes of a body that the store does not take, in memory, for those who read along.
//!
//! ```text
//!   dropped │ piece │ piece │ piece │ to come
//!                ▲ the slowest seat ▲ the head: where the source is
//! ```
//!
//! Whoever reads along has a *seat*, which says how far it is. What all seats have passed is
//! dropped. When the window is full its source waits, and with it the origin. A seat that others
//! are waiting for is let go after a while: what it wants is dropped, and it must get that
//! elsewhere.
//!
//! This is the bookkeeping alone: who waits and who is woken is the owner's (`room` waits).
//!
//! Invariants:
//! 1. Pieces stand in the order of their positions and do not overlap; there may be gaps, of what
//!    the store took.
//! 2. What a seat that was not let go stands before stays; while there is no seat, all stays.
//! 3. A window has at most [`WINDOW_BYTES`], or [`NARROW_BYTES`] while those of its zone have more
//!    than [`WINDOWS_BYTES`] together, and what is handed to it at once.
//! 4. Nobody is let go while nobody waits for more.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use millpond_store::Region;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::clock;

/// The most bytes of a window (arbitrary: what a client that is fast takes in some ten sends).
pub const WINDOW_BYTES: u64 = 1 << 20;
/// The most bytes of a window while all of a zone have more than [`WINDOWS_BYTES`] (arbitrary: the
/// least with which a body still flows).
pub const NARROW_BYTES: u64 = 64 << 10;
/// Bytes of the windows of a zone beyond which each is narrow (arbitrary: as many wide ones as a
/// machine with little memory bears).
pub const WINDOWS_BYTES: u64 = 64 << 20;

/// Memory that windows take, of all bodies of a zone together.
#[derive(Clone, Debug, Default)]
pub struct WindowMemory(Arc<AtomicU64>);

/// Treatment of readers that keep the others waiting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Laggards {
    /// The rest can be had elsewhere, for one request more: they are waited for a second for each
    /// window that comes.
    Resume,
    /// The laggards can have the rest from nowhere else: they are waited for half a minute for each
    /// window that comes.
    Awaited,
}

impl Laggards {
    /// Time that others wait for them while one window comes (arbitrary: a second is what a reader
    /// bears once, and half a minute half of the usual `send_timeout`).
    fn patience(self) -> Duration {
        match self {
            Laggards::Resume => Duration::from_secs(1),
            Laggards::Awaited => Duration::from_secs(30),
        }
    }
}

/// A place among those who read along.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SeatId(u64);

/// Answer to the question if more may be taken in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Room {
    /// More may be taken in.
    Yes,
    /// More may be taken in when a seat has moved, or at this instant.
    Later(Option<Instant>),
}

/// Window: the bytes that came last, and the seats of their readers.
#[derive(Debug)]
pub(crate) struct Window {
    memory: WindowMemory,
    laggards: Laggards,
    pieces: VecDeque<Piece>,
    len: u64,
    seats: Vec<Seat>,
    next_seat: u64,
    /// Time that some have waited for others while this window came, and the time since when they
    /// do now.
    waited: Duration,
    waiting_since: Option<Instant>,
    /// Bytes that came since the time was reckoned anew.
    came: u64,
}

#[derive(Debug)]
struct Piece {
    at: u64,
    region: Region,
}

impl Piece {
    fn end(&self) -> u64 {
        self.at + self.region.len()
    }
}

#[derive(Debug)]
struct Seat {
    id: SeatId,
    at: u64,
    is_let_go: bool,
}

impl Window {
    pub(crate) fn new(memory: WindowMemory, laggards: Laggards) -> Self {
        Window {
            memory,
            laggards,
            pieces: VecDeque::new(),
            len: 0,
            seats: Vec::new(),
            next_seat: 0,
            waited: Duration::ZERO,
            waiting_since: None,
            came: 0,
        }
    }

    /// One more reads along, from a position on.
    pub(crate) fn sit(&mut self, at: u64) -> SeatId {
        let id = SeatId(self.next_seat);
        self.next_seat += 1;
        self.seats.push(Seat {
            id,
            at,
            is_let_go: false,
        });
        id
    }

    /// A seat has got this far.
    pub(crate) fn move_to(&mut self, id: SeatId, at: u64) {
        if let Some(seat) = self.seats.iter_mut().find(|seat| seat.id == id) {
            seat.at = at;
            self.trim();
        }
    }

    /// A seat reads no more.
    pub(crate) fn leave(&mut self, id: SeatId) {
        self.seats.retain(|seat| seat.id != id);
        // INVARIANT 2: the last one may be followed by another.
        if self.has_seats() {
            self.trim();
        }
    }

    /// True if anybody reads along.
    pub(crate) fn has_seats(&self) -> bool {
        self.seats.iter().any(|seat| !seat.is_let_go)
    }

    /// True if somebody stands within a span.
    pub(crate) fn is_anyone_in(&self, span: &Range<u64>) -> bool {
        let mut seats = self.seats.iter();
        seats.any(|seat| !seat.is_let_go && span.contains(&seat.at))
    }

    /// Takes bytes in, which follow those that are there.
    pub(crate) fn push(&mut self, at: u64, region: Region) {
        let len = region.len();
        if len == 0 {
            return;
        }
        let last = self.pieces.back().map_or(0, Piece::end);
        assert!(last <= at, "INVARIANT 1: {at} behind {last}");
        self.len += len;
        self.memory.0.fetch_add(len, Ordering::Relaxed);
        self.pieces.push_back(Piece { at, region });
        self.came += len;
        if self.came >= self.size() {
            self.came = 0;
            self.waited = Duration::ZERO;
        }
        self.trim();
    }

    /// True if a byte is there.
    pub(crate) fn has(&self, position: u64) -> bool {
        self.piece_of(position).is_some()
    }

    /// The bytes of a range that are there, from its first one on.
    pub(crate) fn regions(&self, range: &Range<u64>) -> Vec<Region> {
        let Some(first) = self.piece_of(range.start) else {
            return Vec::new();
        };
        let mut regions = Vec::new();
        let mut at = range.start;
        for piece in self.pieces.range(first..) {
            // INVARIANT 1.
            if piece.at > at || at >= range.end {
                break;
            }
            let end = piece.end().min(range.end);
            regions.push(part(&piece.region, at - piece.at..end - piece.at));
            at = end;
        }
        regions
    }

    /// Decides if more may be taken in behind the head; lets go of whoever is waited for too long.
    pub(crate) fn room(&mut self, head: u64, now: Instant) -> Room {
        if self.len < self.size() {
            self.end_waiting(now);
            return Room::Yes;
        }
        let mut seats = self.seats.iter().filter(|seat| !seat.is_let_go);
        // INVARIANT 4.
        if !seats.any(|seat| seat.at >= head) {
            self.end_waiting(now);
            return Room::Later(None);
        }
        let since = *self.waiting_since.get_or_insert(now);
        let left = self.laggards.patience().saturating_sub(self.waited);
        match since.checked_add(left) {
            Some(until) if now < until => Room::Later(Some(until)),
            _ => {
                self.let_go(head);
                self.waiting_since = None;
                self.waited = Duration::ZERO;
                Room::Yes
            }
        }
    }

    fn end_waiting(&mut self, now: Instant) {
        if let Some(since) = self.waiting_since.take() {
            self.waited += now.saturating_duration_since(since);
        }
    }

    /// Goes on without those who have less than the second half before them.
    fn let_go(&mut self, head: u64) {
        let mut left = self.len;
        let mut edge = head;
        for piece in &self.pieces {
            edge = piece.end();
            left -= piece.region.len();
            if left <= self.len / 2 {
                break;
            }
        }
        for seat in &mut self.seats {
            seat.is_let_go |= seat.at < edge;
        }
        self.trim();
    }

    /// INVARIANT 2.
    fn trim(&mut self) {
        let seats = self.seats.iter().filter(|seat| !seat.is_let_go);
        let Some(slowest) = seats.map(|seat| seat.at).min() else {
            return;
        };
        while let Some(piece) = self.pieces.pop_front_if(|piece| piece.end() <= slowest) {
            self.len -= piece.region.len();
            self.memory
                .0
                .fetch_sub(piece.region.len(), Ordering::Relaxed);
        }
    }

    /// INVARIANT 3.
    fn size(&self) -> u64 {
        if self.memory.0.load(Ordering::Relaxed) > WINDOWS_BYTES {
            NARROW_BYTES
        } else {
            WINDOW_BYTES
        }
    }

    fn piece_of(&self, position: u64) -> Option<usize> {
        let after = self.pieces.partition_point(|piece| piece.at <= position);
        let before = after.checked_sub(1)?;
        let piece = self.pieces.get(before)?;
        (position < piece.end()).then_some(before)
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        self.memory.0.fetch_sub(self.len, Ordering::Relaxed);
    }
}

/// Waits until `look` says that there is room; `moved` tells that it may say something else.
pub(crate) async fn room<T>(
    moved: &Notify,
    look: impl Fn(Instant) -> Result<T, Option<Instant>>,
) -> T {
    loop {
        let mut changed = std::pin::pin!(moved.notified());
        changed.as_mut().enable();
        match look(clock::now()) {
            Ok(room) => return room,
            Err(until) => {
                clock::within(until, changed).await;
            }
        }
    }
}

/// Bytes of a region.
fn part(region: &Region, range: Range<u64>) -> Region {
    match region {
        // Within these bytes, whose length is a `usize`.
        Region::Memory(bytes) => {
            Region::Memory(bytes.slice(range.start as usize..range.end as usize))
        }
        Region::File { file, offset, .. } => Region::File {
            file: file.clone(),
            offset: offset + range.start,
            len: range.end - range.start,
        },
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    const PIECE: u64 = WINDOW_BYTES / 4;
    const SECOND: Duration = Duration::from_secs(1);

    fn window(laggards: Laggards) -> Window {
        Window::new(WindowMemory::default(), laggards)
    }

    fn piece(len: u64) -> Region {
        Region::Memory(Bytes::from(vec![b'x'; len as usize]))
    }

    fn fill(window: &mut Window, at: &mut u64, now: Instant) {
        while window.room(*at, now) == Room::Yes {
            window.push(*at, piece(PIECE));
            *at += PIECE;
        }
    }

    fn len(regions: &[Region]) -> u64 {
        regions.iter().map(Region::len).sum()
    }

    #[tokio::test(start_paused = true)]
    async fn the_source_waits_for_the_slowest_while_nobody_waits_for_more() {
        let mut window = window(Laggards::Resume);
        let (slow, mut at) = (window.sit(0), 0);
        let fast = window.sit(0);
        fill(&mut window, &mut at, clock::now());
        assert_eq!(at, WINDOW_BYTES);
        window.move_to(fast, at - 1);
        assert_eq!(
            window.room(at, clock::now() + 3600 * SECOND),
            Room::Later(None)
        );
        window.move_to(slow, PIECE);
        assert_eq!(window.room(at, clock::now()), Room::Yes);
        assert!(!window.has(PIECE - 1) && window.has(PIECE));
    }

    #[tokio::test(start_paused = true)]
    async fn who_keeps_others_waiting_is_let_go_after_its_time() {
        for (laggards, seconds) in [(Laggards::Resume, 1), (Laggards::Awaited, 30)] {
            let mut window = window(laggards);
            let (slow, mut at) = (window.sit(0), 0);
            let near = window.sit(3 * PIECE);
            let fast = window.sit(0);
            fill(&mut window, &mut at, clock::now());
            window.move_to(fast, at);
            let until = clock::now() + seconds * SECOND;
            assert_eq!(window.room(at, clock::now()), Room::Later(Some(until)));
            assert_eq!(window.room(at, until), Room::Yes);
            assert!(!window.has(3 * PIECE - 1) && window.has(3 * PIECE));
            assert_eq!(len(&window.regions(&(3 * PIECE..at))), PIECE);
            // It may come back, and counts no more.
            window.move_to(slow, PIECE);
            window.move_to(near, at);
            assert!(!window.has(3 * PIECE) && window.has_seats());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn who_moves_a_little_all_the_time_is_let_go_all_the_same() {
        let mut window = window(Laggards::Resume);
        let (slow, fast, mut at) = (window.sit(0), window.sit(0), 0);
        fill(&mut window, &mut at, clock::now());
        let mut now = clock::now();
        let mut at_slow = 0;
        let began = now;
        while window.is_anyone_in(&(at_slow..at_slow + 1)) {
            window.move_to(fast, at);
            if let Room::Later(_) = window.room(at, now) {
                now += SECOND / 10;
            }
            at_slow += PIECE / 8;
            window.move_to(slow, at_slow);
            fill(&mut window, &mut at, now);
            assert!(now - began < 10 * SECOND, "it keeps them for ever");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_nobody_reads_yet_stays_and_there_may_be_gaps() {
        let mut window = window(Laggards::Resume);
        window.push(10, piece(5));
        window.push(20, piece(5));
        let seat = window.sit(12);
        assert_eq!(len(&window.regions(&(12..30))), 3);
        assert_eq!(len(&window.regions(&(15..30))), 0);
        assert_eq!(len(&window.regions(&(21..23))), 2);
        window.move_to(seat, 15);
        assert_eq!((window.has(14), window.len), (false, 5));
        window.leave(seat);
        assert_eq!(window.len, 5);
    }

    #[tokio::test(start_paused = true)]
    async fn windows_are_narrow_while_all_have_much() {
        let memory = WindowMemory::default();
        let mut windows: Vec<Window> = Vec::new();
        for _ in 0..WINDOWS_BYTES / WINDOW_BYTES + 1 {
            let mut window = Window::new(memory.clone(), Laggards::Resume);
            fill(&mut window, &mut 0, clock::now());
            windows.push(window);
        }
        let mut narrow = Window::new(memory.clone(), Laggards::Resume);
        narrow.push(0, piece(NARROW_BYTES));
        assert_eq!(narrow.room(NARROW_BYTES, clock::now()), Room::Later(None));
        windows.clear();
        assert_eq!(narrow.room(NARROW_BYTES, clock::now()), Room::Yes);
    }
}
