//! A socket whose bytes are encrypted, or may come to be.
//!
//! ```text
//! Open ──begin(session)──► Encrypted: handshake ──► plaintext both ways ──► close_notify, at drop
//!   └── bytes as they are: a header of the PROXY protocol, or a client that does not encrypt
//! ```
//!
//! Invariants:
//! 1. Records go out in sequence and whole. Bytes count as sent once the kernel has their records:
//!    a caller that was told to wait offers the same bytes again.
//! 2. Between calls nothing is kept but the part of a record that has not come, the records that
//!    the kernel has not taken, and plaintext that was only looked at.
//! 3. After the peer's end, or an error, nothing is read any more.
//!
//! Bytes of files are read to where their records are made, and sealed there.

use std::cell::{Cell, RefCell};
use std::io::{self, IoSlice, IoSliceMut};
use std::task::{Context, Poll, ready};

use bytes::{Buf, BytesMut};
use millpond_tls::{Ending, Error, Facts, Filled, Session};

use crate::body::FileRegion;
use crate::socket::{More, Socket};

/// Bytes asked of the kernel at once: some records.
const READ: usize = 64 * 1024;
/// Bytes that are encrypted at once.
const WRITE: usize = 64 * 1024;

/// The most plaintext that one write takes: as much, and the heads of the frames that it is cut
/// into, so that they do not make a write of their own.
const SEALED_AT_ONCE: usize = WRITE + 1024;
/// Bytes that their records take, if they are no shorter than 4 KiB; of shorter ones fewer are made
/// at once.
const SEALED_WRITE: usize = WRITE + WRITE / 64;

/// Bytes that are to be said and that wait for the next records (arbitrary: some tickets).
const SAID_MOST: usize = 4 * 1024;

thread_local! {
    /// Memory that records are received into.
    static RECORDS: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
    /// Memory that bytes of files are read into.
    static PLAIN: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
    /// Memory that records of files are made in.
    static ROOM: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
    /// Memory that records are made in.
    static SEALED: Cell<BytesMut> = Cell::new(BytesMut::new());
}

/// A socket, and the session on it.
pub struct TlsSocket {
    socket: Socket,
    state: RefCell<State>,
}

#[derive(Default)]
struct State {
    session: Option<Box<dyn Session>>,
    /// Plaintext that was looked at and not read.
    plain: BytesMut,
    /// Records that the kernel has not taken.
    out: BytesMut,
    /// Bytes of plaintext in those records that the caller takes for unsent.
    owed: usize,
    end: End,
    /// True if the close is a reset, which says nothing.
    is_reset: bool,
}

/// State of the bytes that come.
#[derive(Default)]
enum End {
    /// More may come.
    #[default]
    Open,
    /// The peer has ended them.
    Ended,
    /// An error: what came is no TLS, or not the peer's.
    Failed(String),
}

/// The end of a handshake that failed.
#[derive(Debug, thiserror::Error)]
pub enum HandshakeError {
    /// The peer broke the rules, or the two have nothing in common.
    #[error(transparent)]
    Tls(#[from] Error),
    /// The socket failed.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The peer closed the connection.
    #[error("peer closed connection in SSL handshake")]
    Closed,
}

impl TlsSocket {
    /// A socket without a session as yet.
    pub fn new(socket: Socket) -> Self {
        TlsSocket {
            socket,
            state: RefCell::default(),
        }
    }

    /// The socket, for what is the same with every transport.
    pub fn socket(&self) -> &Socket {
        &self.socket
    }

    /// Encrypts from here on. `plain` is what the session has read already, and `told` what it has
    /// to say at once.
    pub fn begin(&self, session: Box<dyn Session>, plain: BytesMut, told: BytesMut) {
        let mut state = self.state.borrow_mut();
        state.session = Some(session);
        state.plain = plain;
        state.out = told;
    }

    /// Says why there will be no session.
    pub fn refuse(&self, alert: &[u8]) {
        // Whoever is gone does not want to know.
        let _ = self.socket.try_send(alert);
    }

    /// True once there is a session.
    pub fn is_encrypted(&self) -> bool {
        self.state.borrow().session.is_some()
    }

    /// True when the peer's bytes ended without a word: something may be missing.
    pub fn is_truncated(&self) -> bool {
        let state = self.state.borrow();
        let ending = state.session.as_deref().map(Session::ending);
        ending == Some(Ending::Truncated)
    }

    /// Reads what was agreed; `None` before there is a session.
    pub fn with_facts<R>(&self, read: impl FnOnce(Facts<'_>) -> R) -> Option<R> {
        let state = self.state.borrow();
        state
            .session
            .as_deref()
            .map(|session| read(session.facts()))
    }

    /// Goes on with the handshake until it is over.
    pub fn poll_handshake(&self, cx: &mut Context<'_>) -> Poll<Result<(), HandshakeError>> {
        loop {
            let state = &mut *self.state.borrow_mut();
            let has_ended = |session: &dyn Session| !session.is_handshaking();
            let is_done = state.session.as_deref().is_none_or(has_ended);
            if is_done && !state.plain.is_empty() {
                // The answer to what came already goes out with what is to be said (tickets).
                return Poll::Ready(Ok(()));
            }
            let flushed = self.poll_flush(cx, state);
            if is_done {
                return flushed.map_err(HandshakeError::Io);
            }
            if let Poll::Ready(Err(error)) = flushed {
                return Poll::Ready(Err(error.into()));
            }
            match ready!(self.poll_records(cx, state, None))? {
                Ok(0) => return Poll::Ready(Err(HandshakeError::Closed)),
                Ok(_) => {}
                Err(error) => {
                    self.say(state);
                    return Poll::Ready(Err(error.into()));
                }
            }
        }
    }

    /// Reads into `buf`, of which at least the spare capacity is filled if more is there; 0 at the
    /// peer's end.
    pub fn poll_recv(&self, cx: &mut Context<'_>, buf: &mut BytesMut) -> Poll<io::Result<usize>> {
        let state = &mut *self.state.borrow_mut();
        if state.session.is_none() {
            return self.socket.poll_recv(cx, buf);
        }
        if !state.plain.is_empty() {
            let count = state.plain.len().min(buf.capacity() - buf.len());
            buf.extend_from_slice(&state.plain.split_to(count));
            state.let_go();
            return Poll::Ready(Ok(count));
        }
        let before = buf.len();
        self.poll_plain(cx, state, Some(buf))
            .map_ok(|()| buf.len() - before)
    }

    /// Reads into `room`, which is not empty; 0 at the peer's end.
    pub fn poll_recv_into(&self, cx: &mut Context<'_>, room: &mut [u8]) -> Poll<io::Result<usize>> {
        let state = &mut *self.state.borrow_mut();
        if state.session.is_none() {
            return self.socket.poll_recv_into(cx, room);
        }
        if state.plain.is_empty() {
            ready!(self.poll_plain(cx, state, None))?;
        }
        let count = state.plain.len().min(room.len());
        if let Some(room) = room.get_mut(..count) {
            state.plain.copy_to_slice(room);
        }
        state.let_go();
        Poll::Ready(Ok(count))
    }

    /// Receives until there is plaintext, or there will be none: it goes to `buf`, or is kept.
    fn poll_plain(
        &self,
        cx: &mut Context<'_>,
        state: &mut State,
        mut buf: Option<&mut BytesMut>,
    ) -> Poll<io::Result<()>> {
        let before = buf.as_ref().map_or(0, |buf| buf.len());
        loop {
            match &state.end {
                End::Open => {}
                End::Ended => return Poll::Ready(Ok(())),
                End::Failed(why) => return Poll::Ready(Err(io::Error::other(why.clone()))),
            }
            // What waits goes out meanwhile; a socket that failed says so when it is read.
            let _ = self.poll_flush(cx, state);
            let is_failed = ready!(self.poll_records(cx, state, buf.as_deref_mut()))?.is_err();
            self.say(state);
            let has_plain =
                !state.plain.is_empty() || buf.as_ref().is_some_and(|b| b.len() > before);
            if has_plain || (!is_failed && matches!(state.end, End::Ended)) {
                return Poll::Ready(Ok(()));
            }
        }
    }

    /// Receives once, and has the session read it: so many bytes, none at the socket's end.
    fn poll_records(
        &self,
        cx: &mut Context<'_>,
        state: &mut State,
        buf: Option<&mut BytesMut>,
    ) -> Poll<io::Result<Result<usize, Error>>> {
        let mut records = lent(&RECORDS, READ);
        let received = self.socket.poll_recv_into(cx, &mut records);
        let taken = received.map_ok(|count| {
            let records = records.get_mut(..count).unwrap_or_default();
            state.take_in(records, buf).map(|()| count)
        });
        RECORDS.set(records);
        taken
    }

    /// Takes in what is there by now, unless something is there already.
    fn look(&self, state: &mut State) {
        while state.plain.is_empty() && matches!(state.end, End::Open) && state.session.is_some() {
            let mut records = lent(&RECORDS, READ);
            let received = self.socket.try_recv_into(&mut records);
            let is_more = match received {
                Ok(count) => {
                    let records = records.get_mut(..count).unwrap_or_default();
                    state.take_in(records, None).is_ok()
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => false,
                Err(error) => {
                    state.end = End::Failed(error.to_string());
                    false
                }
            };
            RECORDS.set(records);
            self.say(state);
            if !is_more {
                return;
            }
        }
    }

    /// Encrypts and sends as much of `slices` as is taken at once (INVARIANT 1).
    pub fn poll_send(
        &self,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
        more: More,
    ) -> Poll<io::Result<usize>> {
        let state = &mut *self.state.borrow_mut();
        if state.session.is_none() {
            return self.socket.poll_send(cx, slices, more);
        }
        if !state.may_add() {
            ready!(self.poll_flush(cx, state))?;
        }
        if state.owed > 0 {
            let len = slices.iter().map(|slice| slice.len()).sum();
            let count = state.owed.min(len);
            state.owed -= count;
            return Poll::Ready(Ok(count));
        }
        let mut sealed = state.begin_records();
        let count = state.seal(slices, &mut sealed);
        let sent = match &count {
            Ok(_) => self.socket.poll_send(cx, &[IoSlice::new(&sealed)], more),
            Err(_) => Poll::Pending,
        };
        let count = match count {
            Ok(count) => count,
            Err(error) => return Poll::Ready(Err(error)),
        };
        let taken = match sent {
            Poll::Ready(Ok(taken)) => taken,
            Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
            Poll::Pending => 0,
        };
        if taken == sealed.len() {
            give_back(sealed);
            return Poll::Ready(Ok(count));
        }
        sealed.advance(taken);
        state.out = sealed;
        state.owed = count;
        // The kernel is full: it says so, and wakes us.
        ready!(self.poll_flush(cx, state))?;
        state.owed = 0;
        Poll::Ready(Ok(count))
    }

    /// Sends bytes of a file; returns how many. A disk is waited for, if they are not in memory.
    pub fn poll_sendfile(
        &self,
        cx: &mut Context<'_>,
        region: &FileRegion,
    ) -> Poll<io::Result<usize>> {
        if !self.is_encrypted() {
            return self.socket.poll_sendfile(cx, region);
        }
        let len = usize::try_from(region.len).unwrap_or(WRITE).min(WRITE);
        let state = &mut *self.state.borrow_mut();
        ready!(self.poll_flush(cx, state))?;
        if state.owed > 0 {
            let count = state.owed.min(len);
            state.owed -= count;
            return Poll::Ready(Ok(count));
        }
        let Some(session) = &mut state.session else {
            return Poll::Ready(Err(io::ErrorKind::NotConnected.into()));
        };
        let mut room = lent(&ROOM, SEALED_WRITE);
        let filled = if session.may_fill() {
            let mut read = |places: &mut [IoSliceMut<'_>]| {
                let file = region.file.file()?;
                Ok(rustix::io::preadv(file, places, region.offset)?)
            };
            session.send_filled(len, &mut read, &mut room, &mut state.out)
        } else {
            state.seal_copy(region, len)
        };
        let sent = match filled {
            Ok(filled) => {
                let records = room.get(..filled.sealed).unwrap_or_default();
                let more = if region.len > filled.plain as u64 {
                    More::Follows
                } else {
                    More::Nothing
                };
                self.poll_records_out(cx, state, (records, filled.plain), more)
            }
            Err(error) => Poll::Ready(Err(error)),
        };
        ROOM.set(room);
        sent
    }

    /// Sends what is to be said, and records behind it, which stand for `plain` bytes
    /// (INVARIANT 1).
    fn poll_records_out(
        &self,
        cx: &mut Context<'_>,
        state: &mut State,
        (records, plain): (&[u8], usize),
        more: More,
    ) -> Poll<io::Result<usize>> {
        let slices = [IoSlice::new(&state.out), IoSlice::new(records)];
        let first = usize::from(state.out.is_empty());
        let slices = slices.get(first..).unwrap_or_default();
        let taken = match self.socket.poll_send(cx, slices, more) {
            Poll::Ready(taken) => taken?,
            Poll::Pending => 0,
        };
        let of_told = taken.min(state.out.len());
        state.out.advance(of_told);
        let rest = records.get(taken - of_told..).unwrap_or_default();
        state.out.extend_from_slice(rest);
        state.owed = plain;
        // If something is left, the kernel is full: it says so, and wakes us.
        ready!(self.poll_flush(cx, state))?;
        state.owed = 0;
        Poll::Ready(Ok(plain))
    }

    /// Sends as many of the bytes as are taken now; returns how many.
    pub fn try_send(&self, first: &[u8], second: &[u8]) -> io::Result<usize> {
        let state = &mut *self.state.borrow_mut();
        if state.session.is_none() {
            return self.socket.try_send_both(first, second);
        }
        if !state.may_add() {
            return Ok(0);
        }
        let mut sealed = state.begin_records();
        let count = state.seal(&[IoSlice::new(first), IoSlice::new(second)], &mut sealed)?;
        let taken = self.socket.try_send(&sealed)?;
        if taken == sealed.len() {
            give_back(sealed);
            return Ok(count);
        }
        sealed.advance(taken);
        state.out = sealed;
        state.owed = count;
        Ok(0)
    }

    /// Sends all of the bytes, now or before anything else, or none of them; returns how many.
    pub fn offer(&self, bytes: &[u8]) -> io::Result<usize> {
        let count = self.try_send(bytes, &[])?;
        let mut state = self.state.borrow_mut();
        Ok(count + std::mem::take(&mut state.owed))
    }

    /// Waits until the peer has gone (true), or has sent what was not read (false). RFC 8446 §6.1:
    /// one that has said that nothing more comes still reads, as long as its connection is there.
    pub fn poll_gone(&self, cx: &mut Context<'_>) -> Poll<bool> {
        if ready!(self.poll_readable(cx)).is_err() {
            return Poll::Ready(true);
        }
        let has_said_last = {
            let state = self.state.borrow();
            match state.end {
                _ if !state.plain.is_empty() => return Poll::Ready(false),
                End::Failed(_) => return Poll::Ready(true),
                End::Ended => true,
                End::Open => false,
            }
        };
        if has_said_last && ready!(self.socket.poll_readable(cx)).is_err() {
            return Poll::Ready(true);
        }
        Poll::Ready(self.socket.is_closed_by_peer())
    }

    /// True when there is plaintext that was not read; never waits.
    pub fn has_unread(&self) -> bool {
        let state = &mut *self.state.borrow_mut();
        if state.session.is_none() {
            return self.socket.has_unread();
        }
        self.look(state);
        !state.plain.is_empty()
    }

    /// The first bytes that were received and not read, left where they are; see [`Socket::peek`].
    pub fn peek<'b>(&self, buf: &'b mut [u8]) -> io::Result<&'b [u8]> {
        let state = &mut *self.state.borrow_mut();
        if state.session.is_none() {
            return self.socket.peek(buf);
        }
        self.look(state);
        if state.plain.is_empty() && matches!(state.end, End::Open) {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let count = state.plain.len().min(buf.len());
        let (begin, plain) = (buf.get_mut(..count), state.plain.get(..count));
        if let (Some(begin), Some(plain)) = (begin, plain) {
            begin.copy_from_slice(plain);
        }
        Ok(buf.get(..count).unwrap_or_default())
    }

    /// True when plaintext or an end was received, as far as the event loop has heard by now.
    pub fn has_heard(&self) -> bool {
        let has_heard = self.socket.has_heard();
        let state = &mut *self.state.borrow_mut();
        if state.session.is_none() {
            return has_heard;
        }
        if has_heard {
            self.look(state);
        }
        !state.plain.is_empty() || !matches!(state.end, End::Open)
    }

    /// Waits until there is plaintext to read, or the peer's end.
    pub fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            let state = &mut *self.state.borrow_mut();
            if !state.plain.is_empty() || !matches!(state.end, End::Open) {
                return Poll::Ready(Ok(()));
            }
            ready!(self.socket.poll_readable(cx))?;
            if state.session.is_none() {
                return Poll::Ready(Ok(()));
            }
            self.look(state);
        }
    }

    /// Ends the sending side, with a word to the peer first.
    pub fn shutdown_write(&self) {
        self.end_records();
        self.socket.shutdown_write();
    }

    /// Makes the close a reset.
    pub fn reset_on_close(&self) {
        self.state.borrow_mut().is_reset = true;
        self.socket.reset_on_close();
    }

    /// Says the end of our bytes, unless it was said, or cannot be.
    fn end_records(&self) {
        let state = &mut *self.state.borrow_mut();
        if let Some(session) = &mut state.session
            && !state.is_reset
        {
            session.close(&mut state.out);
            self.say(state);
        }
    }

    /// Sends what waits, as far as the kernel takes it now.
    fn say(&self, state: &mut State) {
        if state.out.is_empty() {
            return;
        }
        // A socket that is gone says so to the next read.
        let count = self.socket.try_send(&state.out).unwrap_or(0);
        state.out.advance(count);
    }

    fn poll_flush(&self, cx: &mut Context<'_>, state: &mut State) -> Poll<io::Result<()>> {
        while !state.out.is_empty() {
            let slices = [IoSlice::new(&state.out)];
            let count = ready!(self.socket.poll_send(cx, &slices, More::Nothing))?;
            state.out.advance(count);
        }
        if state.out.capacity() > 0 {
            give_back(std::mem::take(&mut state.out));
        }
        Poll::Ready(Ok(()))
    }
}

impl Drop for TlsSocket {
    fn drop(&mut self) {
        self.end_records();
    }
}

impl State {
    /// Reads records, none at the socket's end; the plaintext in them goes to `buf`, or is kept.
    fn take_in(&mut self, records: &mut [u8], buf: Option<&mut BytesMut>) -> Result<(), Error> {
        if records.is_empty() {
            self.end = End::Ended;
            return Ok(());
        }
        let Some(session) = &mut self.session else {
            return Ok(());
        };
        let plain = buf.unwrap_or(&mut self.plain);
        match session.receive(records, plain, &mut self.out) {
            Ok(received) => {
                if received.is_closed {
                    self.end = End::Ended;
                }
                Ok(())
            }
            Err(error) => {
                self.end = End::Failed(error.to_string());
                Err(error)
            }
        }
    }

    /// True if records may stand behind those that the kernel has not taken: what was said in
    /// passing, and no bytes of the caller's.
    fn may_add(&self) -> bool {
        self.owed == 0 && self.out.len() <= SAID_MOST
    }

    /// Memory for records, which go out behind what is to be said.
    fn begin_records(&mut self) -> BytesMut {
        if self.out.is_empty() {
            lent_sealed()
        } else {
            std::mem::take(&mut self.out)
        }
    }

    /// Makes records of the first bytes of `slices`; returns how many.
    fn seal(&mut self, slices: &[IoSlice<'_>], out: &mut BytesMut) -> io::Result<usize> {
        let Some(session) = &mut self.session else {
            return Ok(0);
        };
        let mut left = SEALED_AT_ONCE;
        let mut first = smallvec::SmallVec::<[IoSlice<'_>; 8]>::new();
        for slice in slices {
            let part = slice.get(..left.min(slice.len())).unwrap_or_default();
            left -= part.len();
            if !part.is_empty() {
                first.push(IoSlice::new(part));
            }
        }
        let count = session.send(&first, out).map_err(io::Error::other)?;
        match count {
            0 if left < SEALED_AT_ONCE => Err(io::ErrorKind::NotConnected.into()),
            count => Ok(count),
        }
    }

    /// Makes records of a file's bytes, which are read first; they are appended to what is to be
    /// said.
    fn seal_copy(&mut self, region: &FileRegion, len: usize) -> io::Result<Filled> {
        let mut memory = lent(&PLAIN, WRITE);
        let read = region.file.file().and_then(|file| {
            let room = memory.get_mut(..len).unwrap_or_default();
            Ok(rustix::io::pread(file, room, region.offset)?)
        });
        let sealed = read.and_then(|count| {
            let mut out = std::mem::take(&mut self.out);
            let bytes = memory.get(..count).unwrap_or_default();
            let sealed = self.seal(&[IoSlice::new(bytes)], &mut out);
            self.out = out;
            sealed
        });
        PLAIN.set(memory);
        Ok(Filled {
            plain: sealed?,
            sealed: 0,
        })
    }

    /// Gives back the memory of plaintext that was read.
    fn let_go(&mut self) {
        if self.plain.is_empty() {
            self.plain = BytesMut::new();
        }
    }
}

/// Memory of the thread, of at least `len` bytes.
fn lent(place: &'static std::thread::LocalKey<Cell<Vec<u8>>>, len: usize) -> Vec<u8> {
    let mut memory = place.take();
    if memory.len() < len {
        memory.resize(len, 0);
    }
    memory
}

fn lent_sealed() -> BytesMut {
    let mut memory = SEALED.take();
    memory.clear();
    memory
}

/// Keeps memory for the next records, within reason.
fn give_back(memory: BytesMut) {
    if memory.capacity() <= 2 * WRITE {
        SEALED.set(memory);
    }
}
