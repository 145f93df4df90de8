//! A line: a connection to a peer that carries several requests at once, and the task that reads
//! it.
//!
//! ```text
//! task:    made ─► drive: write, read, hand out ─► … ─► idle too long, leaving and empty, ended
//! streams: open ─► push, take from the lane, wait ─► dropped: the engine forgets it
//! ```
//!
//! The connection is driven by its task, whoever waits for it: a stream that gives the engine
//! something wakes the task. Only who opens a stream drives it once itself if the kernel has news,
//! so that no request goes out on what is known to be dead.
//!
//! Invariants:
//! 1. Neither the connection nor the lanes are borrowed while somebody is woken.
//! 2. What a stream owes is given back when its [`LineStream`] is dropped: its number in the
//!    engine, its lane, and what waits in it.
//! 3. A line is idle exactly while it is made and has no streams; it counts in its group then.

use std::cell::{Cell, RefCell};
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll, Waker};

use millpond_system::clock::{self, Instant};
use millpond_system::timer::Timer;
use millpond_wire::http2::{Code, Connection as Engine, Event, Fault};

use super::super::connect::{Connection, Source};
use super::super::encryption::Encryption;
use super::super::group::Group;
use super::super::keepalive::{self, News};
use super::super::peer::Peer;
use super::lanes::{End, Lanes};
use super::lines::Wanted;
use super::session::Session;
use millpond_exchange::worker::Generation;

/// Bytes that are read at once (arbitrary: several frames).
pub(super) const READ: usize = 64 * 1024;
/// Reads of one turn of the task, after which others have theirs (arbitrary).
const TURN: usize = 8;

/// A connection that carries several requests at once.
pub struct Line {
    pub(super) group: Arc<Group>,
    pub(super) peer: Arc<Peer>,
    source: Option<Source>,
    location: usize,
    encryption: Option<Encryption>,
    /// The place of the line in the order in which the worker's lines began.
    pub(super) number: u64,
    pub(super) lanes: RefCell<Lanes>,
    /// The connection, while there is one.
    wire: RefCell<Option<Box<Connection>>>,
    task: RefCell<Option<Waker>>,
    requests: Cell<u32>,
    /// Bytes that were written.
    written: Cell<u64>,
    /// Instant at which it was last read from.
    read_at: Cell<Instant>,
    /// Instant at which it became idle.
    pub(super) idle_since: Cell<Option<Instant>>,
    farewell: Cell<Code>,
    /// The number of the worker's next line.
    next: Rc<Cell<u64>>,
    /// The number of the first line that was begun after the end of this one.
    after: Cell<u64>,
}

impl Line {
    /// A line whose connection is to be made.
    pub(super) fn new(wanted: &Wanted<'_>, next: &Rc<Cell<u64>>) -> Self {
        let number = next.get();
        next.set(number + 1);
        let most = wanted.group.keep_alive.streams as usize;
        wanted.group.shared.lines.fetch_add(1, Relaxed);
        Line {
            group: Arc::clone(wanted.group),
            peer: Arc::clone(wanted.peer),
            source: wanted.way.source,
            location: Arc::as_ptr(wanted.location) as usize,
            encryption: wanted.way.encryption.cloned(),
            number,
            lanes: RefCell::new(Lanes::new(most)),
            wire: RefCell::default(),
            task: RefCell::default(),
            requests: Cell::new(0),
            written: Cell::new(0),
            read_at: Cell::new(clock::instant()),
            idle_since: Cell::new(None),
            farewell: Cell::new(Code::NO_ERROR),
            next: Rc::clone(next),
            after: Cell::new(number + 1),
        }
    }

    /// The group of its peer.
    pub(in super::super) fn group(&self) -> &Arc<Group> {
        &self.group
    }

    /// The number of the first line that was begun after the end of this one.
    pub(super) fn after(&self) -> u64 {
        self.after.get()
    }

    /// True if requests that want this may use it.
    pub(super) fn is_wanted(&self, wanted: &Wanted<'_>) -> bool {
        let is_shared = self.group.keep_alive.sharing == keepalive::Sharing::All;
        self.peer.address == wanted.peer.address
            && self.source == wanted.way.source
            && self.encryption.as_ref() == wanted.way.encryption
            && (is_shared || self.location == Arc::as_ptr(wanted.location) as usize)
    }

    /// True if a stream may be opened at this instant, as far as the task knows.
    pub(super) fn has_room(&self, now: Instant) -> bool {
        if self.is_spent(now) {
            self.leave();
        }
        let wire = self.wire.borrow();
        let session = wire.as_ref().and_then(|it| it.http2.as_deref());
        self.lanes.borrow().has_room() && session.is_some_and(Session::may_carry_another)
    }

    /// True if it has carried as many requests, or is as old, as a connection may.
    fn is_spent(&self, now: Instant) -> bool {
        let requests = self.requests.get();
        let wire = self.wire.borrow();
        let is_old = |wire: &Connection| now >= wire.young_until || !self.peer.is_trusted(now);
        requests > 0
            && (requests >= self.group.keep_alive.requests || wire.as_deref().is_some_and(is_old))
    }

    /// True if a stream may be opened, as far as the kernel knows: it is asked, and what it has is
    /// read.
    pub(super) fn is_live(&self, now: Instant) -> bool {
        let news = {
            let wire = self.wire.borrow();
            wire.as_ref().map(|wire| keepalive::news(&wire.socket))
        };
        match news {
            None => return false,
            Some(News::None) => {}
            Some(News::End | News::Unasked) => {
                let mut cx = Context::from_waker(Waker::noop());
                if let Poll::Ready(end) = self.drive(&mut cx) {
                    self.end(end);
                }
                // It is the task that waits for the socket.
                self.wake_task();
            }
        }
        self.has_room(now)
    }

    /// The connection was made.
    pub(super) fn made(&self, mut connection: Box<Connection>) {
        let most = self.group.keep_alive.streams;
        connection.http2 = Some(Box::new(Session::shared(most)));
        *self.wire.borrow_mut() = Some(connection);
        self.rest();
        let wakers = self.lanes.borrow_mut().made();
        wake(wakers);
    }

    /// Lets no stream be opened any more.
    pub(super) fn leave(&self) {
        if self.lanes.borrow().is_leaving() {
            return;
        }
        let wakers = self.lanes.borrow_mut().leave();
        wake(wakers);
        self.wake_task();
    }

    /// The end of it; the connection is closed.
    pub(super) fn end(&self, end: End) {
        let wire = self.wire.borrow_mut().take();
        self.after.set(self.next.get());
        self.stir();
        let wakers = self.lanes.borrow_mut().end(end);
        wake(wakers);
        drop(wire);
    }

    fn wake_task(&self) {
        let waker = self.task.borrow_mut().take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// True if it is idle, and nobody waits for it.
    pub(in super::super) fn may_be_closed(&self) -> bool {
        let lanes = self.lanes.borrow();
        self.idle_since.get().is_some() && !lanes.is_leaving() && !lanes.is_awaited()
    }

    /// Makes the line an idle one.
    fn rest(&self) {
        if self.idle_since.replace(Some(clock::instant())).is_none() {
            self.group.idle.fetch_add(1, Relaxed);
        }
        if let Some(wire) = self.wire.borrow_mut().as_deref_mut()
            && let Some(session) = &mut wire.http2
        {
            session.rest();
        }
    }

    /// Makes the line one that is not idle.
    fn stir(&self) {
        if self.idle_since.take().is_some() {
            self.group.idle.fetch_sub(1, Relaxed);
        }
    }

    /// One turn of the task: ready when the line is over.
    pub(super) fn poll_turn(&self, cx: &mut Context<'_>) -> Poll<()> {
        *self.task.borrow_mut() = Some(cx.waker().clone());
        if self.lanes.borrow().ended().is_some() {
            return Poll::Ready(());
        }
        let end = match self.drive(cx) {
            Poll::Ready(end) => end,
            Poll::Pending if self.poll_useless(cx).is_ready() => End::Closed,
            Poll::Pending => return Poll::Pending,
        };
        self.end(end);
        Poll::Ready(())
    }

    /// Ready when it has no streams and is to have none.
    fn poll_useless(&self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(since) = self.idle_since.get() else {
            return Poll::Pending;
        };
        if self.lanes.borrow().is_leaving() {
            return Poll::Ready(());
        }
        let until = keepalive::end_of(since, self.group.keep_alive.timeout);
        match self.wire.borrow().as_ref() {
            Some(wire) => wire.timer.poll_expired(cx, until).map(|_| ()),
            None => Poll::Ready(()),
        }
    }

    /// Writes and reads what can be; ready with the end, if that has come.
    fn drive(&self, cx: &mut Context<'_>) -> Poll<End> {
        for _ in 0..TURN {
            // What came may let more be written, and what was written may make room.
            let mut fault = self.hand_out();
            self.write(cx);
            fault = fault.or_else(|| self.hand_out());
            if let Some(fault) = fault {
                return Poll::Ready(End::Fault(fault));
            }
            match self.poll_read(cx) {
                Poll::Ready(Ok(1..)) => {}
                Poll::Ready(Ok(0)) => return Poll::Ready(End::Closed),
                Poll::Ready(Err(error)) => return Poll::Ready(End::Failed(Rc::new(error))),
                Poll::Pending => return Poll::Pending,
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    fn write(&self, cx: &mut Context<'_>) {
        let mut wire = self.wire.borrow_mut();
        if let Some(wire) = wire.as_deref_mut()
            && let Some(session) = &mut wire.http2
        {
            // A socket that fails is found when it is read.
            let _ = session.poll_flush(cx, &wire.socket);
            self.written.set(session.written());
        }
    }

    fn poll_read(&self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let mut wire = self.wire.borrow_mut();
        let Some(wire) = wire.as_deref_mut() else {
            return Poll::Ready(Ok(0));
        };
        if !wire.http2.as_ref().is_some_and(|it| it.wants_input()) {
            // What waits to be written wakes the task when it can be.
            return Poll::Pending;
        }
        if wire.inbox.capacity() - wire.inbox.len() < READ / 4 {
            wire.inbox.reserve(READ);
        }
        let read = wire.socket.poll_recv(cx, &mut wire.inbox);
        match read {
            Poll::Ready(Ok(1..)) => self.read_at.set(clock::instant()),
            // An idle line keeps no memory.
            Poll::Pending if self.idle_since.get().is_some() && wire.inbox.is_empty() => {
                wire.inbox = bytes::BytesMut::new();
            }
            _ => {}
        }
        read
    }

    /// Gives each stream what has come for it; the fault of the connection, if there is one.
    fn hand_out(&self) -> Option<Fault> {
        while let Some(event) = self.next_event() {
            let wakers = match (event.stream(), event) {
                (Some(stream), event) => {
                    let waker = self.lanes.borrow_mut().deliver(stream, event);
                    if let Some(waker) = waker {
                        waker.wake();
                    }
                    continue;
                }
                (None, Event::Failed(fault)) => return Some(fault),
                (None, Event::SettingsChanged) => self.told(),
                (None, Event::GoneAway { code, .. }) => {
                    self.farewell.set(code);
                    self.lanes.borrow_mut().leave()
                }
                (None, _) => continue,
            };
            wake(wakers);
        }
        None
    }

    fn next_event(&self) -> Option<Event> {
        let mut held = self.wire.borrow_mut();
        let wire = held.as_deref_mut()?;
        wire.http2.as_mut()?.next_event(&mut wire.inbox)
    }

    fn told(&self) -> Vec<Waker> {
        let told = self.engine(|engine| engine.peer().max_concurrent_streams);
        let most = told.map_or(0, |most| usize::try_from(most).unwrap_or(usize::MAX));
        self.lanes.borrow_mut().tell(most)
    }

    /// Does something with the engine, while there is one.
    fn engine<T>(&self, act: impl FnOnce(&mut Engine) -> T) -> Option<T> {
        let mut wire = self.wire.borrow_mut();
        let session = wire.as_deref_mut()?.http2.as_mut()?;
        Some(act(&mut session.engine))
    }

    /// Opens a stream whose heads have `max` bytes at most; its number, and how many bytes are to
    /// be written before its first one.
    fn open(
        &self,
        max: usize,
        open: impl FnOnce(&mut Engine) -> Option<u32>,
    ) -> Option<(u32, u64)> {
        let opened = {
            let mut wire = self.wire.borrow_mut();
            let session = wire.as_deref_mut()?.http2.as_mut()?;
            session.bear_heads(max);
            let before = session.written() + session.engine.output().len() as u64;
            let id = open(&mut session.engine)?;
            (id, before)
        };
        self.requests.set(self.requests.get().saturating_add(1));
        self.group.shared.streams.fetch_add(1, Relaxed);
        self.stir();
        self.lanes.borrow_mut().open(opened.0);
        self.wake_task();
        Some(opened)
    }

    /// Forgets a stream. INVARIANT 2.
    fn close(&self, stream: u32) {
        self.engine(|engine| engine.release(stream));
        self.group.shared.streams.fetch_sub(1, Relaxed);
        let (wakers, is_last) = {
            let mut lanes = self.lanes.borrow_mut();
            let wakers = lanes.close(stream);
            (wakers, lanes.len() == 0 && lanes.ended().is_none())
        };
        wake(wakers);
        if self.is_spent(clock::instant()) {
            self.leave();
        }
        if is_last {
            self.rest();
        }
        // There may be a reset to be written, and an idle line is timed.
        self.wake_task();
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        self.stir();
        self.group.shared.lines.fetch_sub(1, Relaxed);
    }
}

/// INVARIANT 1.
fn wake(wakers: Vec<Waker>) {
    wakers.into_iter().for_each(Waker::wake);
}

/// A place on a line for one stream, which is opened at once.
pub struct LineStream {
    line: Rc<Line>,
    /// The peer as it was chosen: after its name was resolved again, the same address may be
    /// another one.
    peer: Arc<Peer>,
    generation: Rc<Generation>,
    timer: Timer,
    opened: Option<Opened>,
}

/// A stream that was opened.
struct Opened {
    id: u32,
    /// Bytes of the line that were before its own.
    before: u64,
    /// Bytes of its own heads and bodies that were framed, as far as that was asked.
    sent: Cell<u64>,
    at: Instant,
    max_head: usize,
    is_first: bool,
}

impl LineStream {
    /// A place on a line that has room.
    pub(super) fn new(line: Rc<Line>, peer: &Arc<Peer>, generation: &Rc<Generation>) -> Self {
        LineStream {
            line,
            peer: Arc::clone(peer),
            generation: Rc::clone(generation),
            timer: Timer::new(),
            opened: None,
        }
    }

    /// The line that it is on.
    pub(super) fn line(&self) -> &Rc<Line> {
        &self.line
    }

    /// The group and the peer.
    pub(super) fn asked(&self) -> (&Group, &Peer) {
        (&self.line.group, &self.peer)
    }

    /// The timer of the stream.
    pub(super) fn timer(&self) -> &Timer {
        &self.timer
    }

    /// Opens the stream.
    pub(super) fn open(
        &mut self,
        max: usize,
        open: impl FnOnce(&mut Engine) -> Option<u32>,
    ) -> Option<u32> {
        let is_first = self.line.requests.get() == 0;
        let (id, before) = self.line.open(max, open)?;
        self.opened = Some(Opened {
            id,
            before,
            sent: Cell::new(0),
            at: clock::instant(),
            max_head: max,
            is_first,
        });
        Some(id)
    }

    /// True if it was the first stream of its line.
    pub(super) fn is_first(&self) -> bool {
        self.opened.as_ref().is_none_or(|it| it.is_first)
    }

    /// The next thing that has happened.
    pub(super) fn next_event(&mut self) -> Option<Event> {
        let opened = self.opened.as_ref()?;
        let event = self.line.lanes.borrow_mut().next(opened.id)?;
        match event {
            // The line bears the longest heads that any of its streams may have.
            Event::Answer { head_len, .. } if head_len > opened.max_head => {
                let (stream, fault) = (opened.id, Fault::LongBlock);
                Some(Event::Malformed { stream, fault })
            }
            event => Some(event),
        }
    }

    /// Waits for more: 0 at the line's end.
    pub(in super::super) fn poll_more(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        match &self.opened {
            Some(opened) => self.line.lanes.borrow_mut().poll_more(opened.id, cx),
            None => Poll::Ready(Ok(0)),
        }
    }

    /// Has what is to be written be written.
    pub(super) fn flush(&self) {
        let has_more = self.line.engine(|engine| {
            engine.produce(1);
            !engine.output().is_empty()
        });
        if has_more == Some(true) {
            self.line.wake_task();
        }
    }

    /// Does something with the engine, while there is one.
    pub(super) fn engine<T>(&self, act: impl FnOnce(&mut Engine) -> T) -> Option<T> {
        self.line.engine(act)
    }

    /// Bytes of the stream that were framed, with the frames' heads.
    pub(super) fn sent(&self) -> u64 {
        let Some(opened) = &self.opened else {
            return 0;
        };
        let sent = self.line.engine(|engine| engine.sent_len(opened.id));
        opened.sent.set(sent.flatten().unwrap_or(opened.sent.get()));
        opened.sent.get()
    }

    /// True if some of it may have gone to the peer.
    pub(super) fn was_sent(&self) -> bool {
        let opened = self.opened.as_ref();
        opened.is_some_and(|opened| self.line.written.get() > opened.before)
    }

    /// Code of the peer's farewell.
    pub(super) fn farewell(&self) -> Code {
        self.line.farewell.get()
    }

    /// The peer was silent for too long: if it has said nothing at all, its line is not used again.
    pub(super) fn note_silence(&self) {
        let opened = self.opened.as_ref();
        if opened.is_some_and(|opened| self.line.read_at.get() < opened.at) {
            self.line.leave();
        }
    }
}

impl Drop for LineStream {
    fn drop(&mut self) {
        if self.generation.is_closing() {
            self.line.leave();
        }
        if let Some(opened) = self.opened.take() {
            self.line.close(opened.id);
        }
    }
}
