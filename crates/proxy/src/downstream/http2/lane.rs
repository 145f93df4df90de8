//! A stream as its exchange sees it: bytes of the body that have come, and calls on the
//! connection's machine.
//!
//! Whatever an exchange does outside its connection's task wakes that task, which writes.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use millpond_wire::header::Fields;
use millpond_wire::http2::{Code, End, Fault};
use smallvec::SmallVec;

use super::Http2;
use super::head;
use crate::downstream::send::{AnswerHead, BodyKind};
use crate::downstream::wire::{Broken, Stream};
use crate::failure::{ClientGone, Failure};
use crate::stats::connections::Happened;

/// Bytes of a body that may be on their way once somebody reads it (arbitrary: what the whole
/// connection may have).
const READ_WINDOW: u32 = 1 << 20;

/// The part of a body that is to come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rest {
    /// More may come.
    Open,
    /// All has come.
    Ended,
    /// The bytes that came are no body.
    Malformed(Fault),
}

#[derive(Debug)]
struct State {
    body: VecDeque<Bytes>,
    rest: Rest,
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

/// A stream.
pub(super) struct Lane {
    pub(super) id: u32,
    http2: Rc<Http2>,
    state: RefCell<State>,
}

impl Lane {
    pub(super) fn new(http2: &Rc<Http2>, id: u32, rest: Rest) -> Rc<Self> {
        let state = State {
            body: VecDeque::new(),
            rest,
            is_read: false,
            is_tunnel: false,
            wants_continue: false,
            is_gone: false,
            has_ended: false,
            is_sent: false,
            wakers: SmallVec::new(),
        };
        Rc::new(Lane {
            id,
            http2: Rc::clone(http2),
            state: RefCell::new(state),
        })
    }

    /// Notes that the client waits to be asked for its body (RFC 9110 §10.1.1).
    pub(super) fn expect_continue(&self) {
        self.state.borrow_mut().wants_continue = true;
    }

    /// Takes bytes of the body.
    pub(super) fn receive(&self, bytes: Bytes) {
        self.state.borrow_mut().body.push_back(bytes);
        self.wake();
    }

    /// Notes that all of the body has come.
    pub(super) fn end_body(&self) {
        self.state.borrow_mut().rest = Rest::Ended;
        self.wake();
    }

    /// Notes that what came is no body.
    pub(super) fn spoil_body(&self, fault: Fault) {
        self.state.borrow_mut().rest = Rest::Malformed(fault);
        self.wake();
    }

    /// Notes that the stream is gone.
    pub(super) fn leave(&self) {
        self.state.borrow_mut().is_gone = true;
        self.wake();
    }

    /// Notes that all of the answer was written.
    pub(super) fn note_sent(&self) {
        self.state.borrow_mut().is_sent = true;
        self.wake();
    }

    /// True when nothing is left but to send what was made.
    pub(super) fn has_ended(&self) -> bool {
        self.state.borrow().has_ended
    }

    /// True if the body goes on behind the end of the answer.
    pub(super) fn is_tunnel(&self) -> bool {
        self.state.borrow().is_tunnel
    }

    /// Something has changed for whoever waits.
    pub(super) fn wake(&self) {
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
        if let Some(bytes) = state.body.pop_front() {
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

impl Stream for Lane {
    fn poll_body(&self, cx: &mut Context<'_>) -> Poll<Result<Bytes, Failure>> {
        if !std::mem::replace(&mut self.state.borrow_mut().is_read, true) {
            self.http2
                .call(|engine| engine.set_window(self.id, READ_WINDOW));
        }
        let Some(bytes) = self.take_body()? else {
            if std::mem::take(&mut self.state.borrow_mut().wants_continue) {
                self.inform(100, &Fields::default());
            }
            return self.wait(cx);
        };
        if !bytes.is_empty() {
            self.http2
                .call(|engine| engine.consume(self.id, bytes.len()));
        }
        Poll::Ready(Ok(bytes))
    }

    fn is_body_done(&self) -> bool {
        let state = self.state.borrow();
        state.rest == Rest::Ended && state.body.is_empty()
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
        self.http2
            .call(|engine| engine.send_interim(self.id, status, fields));
    }

    fn begin(&self, head: &AnswerHead<'_>, frame_len: usize) -> u64 {
        let end = match head.body {
            BodyKind::None | BodyKind::Length(0) => End::WithHead,
            BodyKind::Length(_) | BodyKind::Unknown => End::Later,
        };
        let len = self.http2.call(|engine| {
            engine.set_chunk_len(self.id, frame_len);
            engine.send_answer(self.id, (head.status, end), |out| head::write(out, head))
        });
        len as u64
    }

    fn poll_room(&self, cx: &mut Context<'_>) -> Poll<Result<usize, ClientGone>> {
        if self.state.borrow().is_gone {
            return Poll::Ready(Err(ClientGone::Closed));
        }
        // Asking is no news for the connection.
        match self.http2.engine.borrow_mut().room(self.id) {
            0 => self.wait(cx),
            room => Poll::Ready(Ok(room)),
        }
    }

    fn push(&self, bytes: Bytes) {
        self.http2.call(|engine| engine.push(self.id, bytes));
    }

    fn end(&self, trailers: Option<&Fields>) {
        self.state.borrow_mut().has_ended = true;
        self.http2.call(|engine| engine.finish(self.id, trailers));
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
        // nginx's codes.
        let (code, event) = match why {
            Broken::SlowBody => (Code::PROTOCOL_ERROR, Some(Happened::SlowBody)),
            Broken::SlowAnswer => (Code::PROTOCOL_ERROR, Some(Happened::SlowAnswer)),
            Broken::Failed => (Code::INTERNAL_ERROR, None),
            // RFC 8441 §5.
            Broken::Torn => (Code::CANCEL, None),
        };
        if let Some(event) = event {
            self.http2.counters().count(event);
        }
        self.http2.call(|engine| engine.reset(self.id, code));
    }
}
