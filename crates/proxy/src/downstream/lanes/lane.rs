//! A stream as its exchange sees it: bytes of the body that have come, and calls on the
//! connection's machine.
//!
//! Whatever an exchange does outside its connection's task wakes that task, which writes.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use bytes::{Bytes, BytesMut};
use millpond_wire::header::Fields;
use smallvec::SmallVec;

use super::{Engine, Lanes};
use millpond_exchange::client::send::AnswerHead;
use millpond_exchange::client::wire::{Broken, Stream};
use millpond_exchange::failure::{ClientGone, Failure};
use millpond_exchange::stats::connections::Happened;

/// Bytes of a body that may be on their way once somebody reads it (arbitrary: what the whole
/// connection may have).
const READ_WINDOW: u32 = 1 << 20;
/// Pieces that wait are put together when they are shorter than this (arbitrary: twice what one
/// takes beside its bytes).
const SHORT: usize = 64;

/// The part of a body that is to come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::downstream) enum Rest<F> {
    /// More may come.
    Open,
    /// All has come.
    Ended,
    /// The bytes that came are no body.
    Malformed(F),
}

#[derive(Debug)]
struct State<F> {
    body: VecDeque<Bytes>,
    /// Short pieces behind those, put together: any number of them take their bytes of memory.
    short: BytesMut,
    rest: Rest<F>,
    /// True once somebody has asked for the body.
    is_read: bool,
    /// True if the body goes on behind the end of the answer.
    is_tunnel: bool,
    /// True while the client waits for `100 Continue`.
    wants_continue: bool,
    /// True when the client has reset the stream, or its connection is gone.
    is_gone: bool,
    /// True once the answer was ended by us.
    has_ended: bool,
    /// True once the transport has its last byte.
    is_sent: bool,
    wakers: SmallVec<[Waker; 2]>,
}

impl<F> State<F> {
    fn new(rest: Rest<F>) -> Self {
        State {
            body: VecDeque::new(),
            short: BytesMut::new(),
            rest,
            is_read: false,
            is_tunnel: false,
            wants_continue: false,
            is_gone: false,
            has_ended: false,
            is_sent: false,
            wakers: SmallVec::new(),
        }
    }

    fn keep(&mut self, bytes: Bytes) {
        if bytes.len() < SHORT && !(self.body.is_empty() && self.short.is_empty()) {
            self.short.extend_from_slice(&bytes);
            return;
        }
        let short = self.take_short();
        self.body.extend(short.into_iter().chain([bytes]));
    }

    fn take_piece(&mut self) -> Option<Bytes> {
        self.body.pop_front().or_else(|| self.take_short())
    }

    fn take_short(&mut self) -> Option<Bytes> {
        let short = std::mem::take(&mut self.short);
        (!short.is_empty()).then(|| short.freeze())
    }
}

/// A stream.
pub(in crate::downstream) struct Lane<E: Engine> {
    pub(super) id: E::Id,
    lanes: Rc<Lanes<E>>,
    state: RefCell<State<E::Fault>>,
}

impl<E: Engine> Lane<E> {
    pub(in crate::downstream) fn new(
        lanes: &Rc<Lanes<E>>,
        id: E::Id,
        rest: Rest<E::Fault>,
    ) -> Rc<Self> {
        Rc::new(Lane {
            id,
            lanes: Rc::clone(lanes),
            state: RefCell::new(State::new(rest)),
        })
    }

    /// Notes that the client waits to be asked for its body (RFC 9110 §10.1.1).
    pub(in crate::downstream) fn expect_continue(&self) {
        self.state.borrow_mut().wants_continue = true;
    }

    /// Takes bytes of the body.
    pub(in crate::downstream) fn receive(&self, bytes: Bytes) {
        self.state.borrow_mut().keep(bytes);
        self.wake();
    }

    /// Notes that all of the body has come.
    pub(in crate::downstream) fn end_body(&self) {
        self.state.borrow_mut().rest = Rest::Ended;
        self.wake();
    }

    /// Notes that what came is no body.
    pub(in crate::downstream) fn spoil_body(&self, fault: E::Fault) {
        self.state.borrow_mut().rest = Rest::Malformed(fault);
        self.wake();
    }

    /// Notes that the stream is gone.
    pub(in crate::downstream) fn leave(&self) {
        self.state.borrow_mut().is_gone = true;
        self.wake();
    }

    /// Notes that all of the answer was written.
    pub(in crate::downstream) fn note_sent(&self) {
        self.state.borrow_mut().is_sent = true;
        self.wake();
    }

    /// The fault of a body that is none, if that is known already.
    pub(super) fn fault(&self) -> Option<E::Fault> {
        match self.state.borrow().rest {
            Rest::Malformed(fault) => Some(fault),
            Rest::Open | Rest::Ended => None,
        }
    }

    /// True when nothing is left but to send what was made.
    pub(super) fn has_ended(&self) -> bool {
        self.state.borrow().has_ended
    }

    /// True if the body goes on behind the end of the answer.
    pub(in crate::downstream) fn is_tunnel(&self) -> bool {
        self.state.borrow().is_tunnel
    }

    /// Something has changed for whoever waits.
    pub(in crate::downstream) fn wake(&self) {
        let wakers = std::mem::take(&mut self.state.borrow_mut().wakers);
        wakers.into_iter().for_each(Waker::wake);
    }

    fn wait<T>(&self, cx: &Context<'_>) -> Poll<T> {
        let wakers = &mut self.state.borrow_mut().wakers;
        if !wakers.iter().any(|waker| waker.will_wake(cx.waker())) {
            wakers.push(cx.waker().clone());
        }
        Poll::Pending
    }

    /// The next bytes that have come; empty at the end, `None` if more are to come.
    fn take_body(&self) -> Result<Option<Bytes>, Failure> {
        let state = &mut *self.state.borrow_mut();
        if let Some(bytes) = state.take_piece() {
            return Ok(Some(bytes));
        }
        match state.rest {
            Rest::Ended => Ok(Some(Bytes::new())),
            Rest::Malformed(fault) => Err(Failure::bad_request(format!("client sent {fault}"))),
            Rest::Open if state.is_gone => Err(ClientGone::Closed.into()),
            Rest::Open => Ok(None),
        }
    }
}

impl<E: Engine> Stream for Lane<E> {
    fn poll_body(&self, cx: &mut Context<'_>) -> Poll<Result<Bytes, Failure>> {
        if !std::mem::replace(&mut self.state.borrow_mut().is_read, true) {
            self.lanes
                .call(|engine| engine.set_window(self.id, READ_WINDOW));
        }
        let Some(bytes) = self.take_body()? else {
            if std::mem::take(&mut self.state.borrow_mut().wants_continue) {
                self.inform(100, &Fields::default());
            }
            return self.wait(cx);
        };
        if !bytes.is_empty() {
            self.lanes
                .call(|engine| engine.consume(self.id, bytes.len()));
        }
        Poll::Ready(Ok(bytes))
    }

    fn is_body_done(&self) -> bool {
        let state = self.state.borrow();
        state.rest == Rest::Ended && state.body.is_empty() && state.short.is_empty()
    }

    fn become_tunnel(&self) {
        let mut state = self.state.borrow_mut();
        state.is_tunnel = true;
        // The window stays what it is for streams that nobody reads.
        state.is_read = true;
    }

    fn poll_left(&self, cx: &mut Context<'_>) -> Poll<()> {
        if self.state.borrow().is_gone {
            Poll::Ready(())
        } else {
            self.wait(cx)
        }
    }

    fn inform(&self, status: u16, fields: &Fields) {
        self.lanes
            .call(|engine| engine.send_interim(self.id, status, fields));
    }

    fn begin(&self, head: &AnswerHead<'_>, frame_len: usize) -> u64 {
        let begin = |engine: &mut E| engine.begin(self.id, head, frame_len);
        self.lanes.call(begin) as u64
    }

    fn poll_room(&self, cx: &mut Context<'_>) -> Poll<Result<usize, ClientGone>> {
        if self.state.borrow().is_gone {
            return Poll::Ready(Err(ClientGone::Closed));
        }
        // Asking is no news for the connection.
        match self.lanes.engine.borrow_mut().room(self.id) {
            0 => self.wait(cx),
            room => Poll::Ready(Ok(room)),
        }
    }

    fn push(&self, bytes: Bytes) {
        self.lanes.call(|engine| engine.push(self.id, bytes));
    }

    fn end(&self, trailers: Option<&Fields>) {
        self.state.borrow_mut().has_ended = true;
        self.lanes.call(|engine| engine.finish(self.id, trailers));
    }

    fn poll_sent(&self, cx: &mut Context<'_>) -> Poll<Result<(), ClientGone>> {
        let (is_sent, is_gone) = {
            let state = self.state.borrow();
            (state.is_sent, state.is_gone)
        };
        match () {
            () if is_sent => Poll::Ready(Ok(())),
            () if is_gone => Poll::Ready(Err(ClientGone::Closed)),
            () => self.wait(cx),
        }
    }

    fn reset(&self, why: Broken) {
        self.state.borrow_mut().has_ended = true;
        let event = match why {
            Broken::SlowBody => Some(Happened::SlowBody),
            Broken::SlowAnswer => Some(Happened::SlowAnswer),
            Broken::Failed | Broken::Torn => None,
        };
        if let Some(event) = event {
            self.lanes.counters().count(event);
        }
        self.lanes.call(|engine| engine.break_off(self.id, why));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_keep_their_order_and_short_ones_take_no_room_of_their_own() {
        let long = [b'l'; SHORT];
        let mut state: State<()> = State::new(Rest::Open);
        let mut sent = Vec::new();
        for piece in [&b"a"[..], b"b", b"c", &long, b"d", b"e", &long, &long, b"f"] {
            sent.extend_from_slice(piece);
            state.keep(Bytes::copy_from_slice(piece));
        }
        let pieces: Vec<Bytes> = std::iter::from_fn(|| state.take_piece()).collect();
        assert_eq!(pieces.concat(), sent);
        let lens: Vec<usize> = pieces.iter().map(Bytes::len).collect();
        assert_eq!(lens, [1, 2, SHORT, 2, SHORT, SHORT, 1]);
    }
}
