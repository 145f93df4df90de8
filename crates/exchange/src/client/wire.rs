//! The way to a client: the protocol that carries a request's body in and its answer out.
//!
//! `serve` and the handlers see a [`Client`](super::Client), which asks its
//! wire. A new protocol with several requests on a connection is one more [`Stream`].

use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use millpond_system::timer::Timer;

use super::body::Remains;
use super::http1::Http1;
use super::send::AnswerHead;
use crate::failure::{ClientGone, Failure};
use millpond_wire::header::Fields;

/// The way to the client of a request.
///
/// HTTP/1 has one request at a time, and its path is known to the compiler; protocols with several
/// streams on a connection stand behind [`Stream`].
pub enum Wire {
    /// None: nobody waits for the answer.
    None,
    /// The connection itself.
    Http1(Rc<Http1>),
    /// One of the streams of a connection.
    Stream(Rc<dyn Stream>),
}

/// A stream of a connection that carries several at once.
///
/// 1. The connection's own task moves the bytes; none of these calls reads or writes a socket that
///    would block.
/// 2. A stream whose exchange was over before [`Stream::end`] is reset by its connection.
pub trait Stream {
    /// The next bytes of the request's body; empty at its end.
    fn poll_body(&self, cx: &mut Context<'_>) -> Poll<Result<Bytes, Failure>>;

    /// True when all of the request's body was taken.
    fn is_body_done(&self) -> bool;

    /// Notes that the body and the answer are the two directions of a tunnel: neither ends with the
    /// other, and what may stand still for long does not take the room of the whole connection.
    fn become_tunnel(&self);

    /// Ready when the client has reset the stream, or its connection is gone.
    fn poll_left(&self, cx: &mut Context<'_>) -> Poll<()>;

    /// Sends an interim answer, or drops it if that would have to wait.
    fn inform(&self, status: u16, fields: &Fields);

    /// Begins the answer, whose body goes in frames of at most `frame_len` bytes where there are
    /// any; returns the bytes that its head takes.
    fn begin(&self, head: &AnswerHead<'_>, frame_len: usize) -> u64;

    /// Bytes of the body that may be pushed now, at least one; waits while there is no room.
    fn poll_room(&self, cx: &mut Context<'_>) -> Poll<Result<usize, ClientGone>>;

    /// Takes a piece of the body, no longer than the room there was.
    fn push(&self, bytes: Bytes);

    /// Ends the answer.
    fn end(&self, trailers: Option<&Fields>);

    /// Waits until the connection has taken all of an answer that was ended.
    fn poll_sent(&self, cx: &mut Context<'_>) -> Poll<Result<(), ClientGone>>;

    /// Breaks the exchange off, so that the client sees that its answer is not whole.
    fn reset(&self, why: Broken);
}

/// The reason for which an exchange is broken off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Broken {
    /// The client sent no more of its body for too long.
    SlowBody,
    /// The client let no more of the answer come for too long.
    SlowAnswer,
    /// The answer failed, or is not wanted.
    Failed,
    /// The other end of a tunnel was torn off (RFC 8441 §5).
    Torn,
}

impl dyn Stream {
    /// The next bytes of the request's body, within `timeout`; empty at its end.
    pub async fn next_chunk(&self, timeout: Duration) -> Result<Bytes, Failure> {
        let next = std::future::poll_fn(|cx| self.poll_body(cx));
        match Timer::new().guard_for(timeout, next).await {
            Ok(chunk) => chunk,
            Err(_) => {
                self.reset(Broken::SlowBody);
                Err(ClientGone::TimedOut.into())
            }
        }
    }

    /// Appends to `ready` the part of the body that has come, up to about `max` bytes.
    pub fn take_ready(&self, ready: &mut BytesMut, max: usize) -> Result<Remains, Failure> {
        let mut cx = Context::from_waker(Waker::noop());
        while !self.is_body_done() {
            if ready.len() >= max {
                return Ok(Remains::More);
            }
            match self.poll_body(&mut cx) {
                Poll::Ready(chunk) => ready.extend_from_slice(&chunk?),
                Poll::Pending => return Ok(Remains::More),
            }
        }
        Ok(Remains::Nothing)
    }
}
