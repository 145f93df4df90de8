//! Bodies of HTTP/1 requests: their framing, and the client that waits to be asked for one.
//!
//! ```text
//! None ──begin──► Length(n) | Chunked(decoder) ──last byte──► None
//! ```
//!
//! Invariants:
//! 1. The connection is reused only when [`Incoming`] is `None`.

use std::cell::Cell;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::{Bytes, BytesMut};

use super::Http1;
use crate::client::body::{Remains, RequestBody};
use crate::failure::ClientGone;
use crate::failure::Failure;
use millpond_wire::http1::chunked::{ChunkEvent, ChunkedDecoder, Strictness, TrailerLimits};
use millpond_wire::http1::request::{Framing, RequestHead};

/// Bytes asked of the socket at once while a body is read.
const READ_SIZE: usize = 16 * 1024;

/// Bytes of an unwanted body that are read before its answer is made; arbitrarily what a socket
/// holds by default. The rest is read after it.
const DISCARDED_BEFORE_ANSWER: usize = 128 * 1024;

/// The part of a body that is still to be received.
#[derive(Debug, Default)]
pub(super) enum Incoming {
    /// Nothing.
    #[default]
    None,
    /// A body of known length.
    Length {
        /// Bytes to come.
        left: u64,
    },
    /// Chunked coding.
    Chunked {
        /// The place in the coding.
        decoder: Box<ChunkedDecoder>,
    },
}

impl Incoming {
    /// The body that a head announces.
    fn begin(framing: Framing) -> Self {
        match framing {
            Framing::Length(left) if left > 0 => Incoming::Length { left },
            Framing::Chunked => Incoming::Chunked {
                decoder: Box::new(ChunkedDecoder::new(
                    Strictness::Request,
                    TrailerLimits::default(),
                )),
            },
            _ => Incoming::None,
        }
    }

    /// True when nothing is left on the connection.
    fn is_done(&self) -> bool {
        matches!(self, Incoming::None)
    }

    /// Takes what `inbox` holds of the body: `Some(bytes)` (empty at the end), or `None` for need
    /// of more.
    fn take(&mut self, inbox: &mut BytesMut) -> Result<Option<Bytes>, Failure> {
        match self {
            Incoming::None => Ok(Some(Bytes::new())),
            Incoming::Length { left } => {
                if inbox.is_empty() {
                    return Ok(None);
                }
                let count = (*left).min(inbox.len() as u64);
                *left -= count;
                let bytes = inbox.split_to(count as usize).freeze();
                if *left == 0 {
                    *self = Incoming::None;
                }
                Ok(Some(bytes))
            }
            Incoming::Chunked { decoder } => match decoder.decode(inbox) {
                Ok(ChunkEvent::NeedMore) => Ok(None),
                Ok(ChunkEvent::Data(bytes)) => Ok(Some(bytes)),
                Ok(ChunkEvent::End { .. }) => {
                    *self = Incoming::None;
                    Ok(Some(Bytes::new()))
                }
                Err(error) => Err(Failure::bad_request(error.to_string())),
            },
        }
    }
}

impl Http1 {
    /// Begins the body that a head announces.
    pub fn begin(&self, head: &RequestHead, framing: Framing) -> RequestBody {
        self.wants_continue.set(head.expects_continue());
        self.keep_alive.set(head.keep_alive_wanted());
        *self.incoming.borrow_mut() = Incoming::begin(framing);
        match framing {
            Framing::None => RequestBody::None,
            Framing::Length(length) => RequestBody::Unread {
                length: Some(length),
            },
            _ => RequestBody::Unread { length: None },
        }
    }

    /// Has the rest of the body be taken for nothing.
    pub fn forget_body(&self) {
        *self.incoming.borrow_mut() = Incoming::None;
    }

    /// True when nothing of the body is still to come.
    pub fn is_body_done(&self) -> bool {
        self.incoming.borrow().is_done()
    }

    /// True while the client waits to be asked for its body.
    pub fn waits_to_be_asked(&self) -> bool {
        self.wants_continue.get()
    }

    /// True when the client was not asked for its body: nobody knows whether it will send it (RFC
    /// 9110 §10.1.1).
    pub fn is_body_in_doubt(&self) -> bool {
        self.wants_continue.get() && !self.is_body_done()
    }

    /// Takes the part of the body that has come, and counts it, framing and all, as a part of the
    /// request.
    fn take(&self, counted: &Cell<u64>) -> Result<Option<Bytes>, Failure> {
        let mut inbox = self.inbox.borrow_mut();
        let before = inbox.len();
        let taken = self.incoming.borrow_mut().take(&mut inbox);
        let count = before.saturating_sub(inbox.len()) as u64;
        counted.set(counted.get() + count);
        taken
    }

    /// The next bytes of the body; empty at the end.
    ///
    /// Sends `100 Continue` before it waits for the first byte, when the client asked for it.
    pub async fn next_chunk(
        &self,
        counted: &Cell<u64>,
        timeout: Duration,
    ) -> Result<Bytes, Failure> {
        loop {
            let taken = self.take(counted)?;
            if let Some(bytes) = taken {
                return Ok(bytes);
            }
            self.ask_for_body().await?;
            if !self.fill_inbox(READ_SIZE, timeout).await? {
                return Err(ClientGone::Closed.into());
            }
        }
    }

    /// The part of the body that has come, up to about `max` bytes, without waiting; and whether
    /// that is all of it.
    pub fn take_ready(&self, counted: &Cell<u64>, max: usize) -> Result<(Bytes, Remains), Failure> {
        let mut ready = BytesMut::new();
        let mut asked = false;
        while !self.is_body_done() && ready.len() < max {
            let taken = self.take(counted)?;
            match taken {
                Some(bytes) => ready.extend_from_slice(&bytes),
                // One look at the socket: what the kernel has already is as good as read.
                None if !asked => {
                    asked = true;
                    if !self.look_for_more()? {
                        break;
                    }
                }
                None => break,
            }
        }
        let remains = if self.is_body_done() {
            Remains::Nothing
        } else {
            Remains::More
        };
        Ok((ready.freeze(), remains))
    }

    /// Reads once, without waiting; false if there is nothing.
    fn look_for_more(&self) -> Result<bool, ClientGone> {
        let mut inbox = self.inbox.borrow_mut();
        inbox.reserve(READ_SIZE);
        let mut cx = Context::from_waker(Waker::noop());
        match self.transport.poll_recv(&mut cx, &mut inbox) {
            Poll::Ready(Ok(0)) => Err(ClientGone::Closed),
            Poll::Ready(Err(error)) => Err(ClientGone::Io(error)),
            Poll::Ready(Ok(_)) => Ok(true),
            Poll::Pending => Ok(false),
        }
    }

    /// Throws away the part that has come of a body that nobody will read. A body that the client
    /// was not asked for stays.
    pub fn discard_ready(&self, counted: &Cell<u64>) -> Result<(), Failure> {
        if self.waits_to_be_asked() {
            return Ok(());
        }
        let mut left = DISCARDED_BEFORE_ANSWER;
        while left > 0 && !self.is_body_done() {
            match self.take_ready(counted, READ_SIZE) {
                Ok((ready, Remains::More)) if !ready.is_empty() => {
                    left = left.saturating_sub(ready.len());
                }
                // A connection in trouble shows when the answer is sent.
                Ok(_) | Err(Failure::Client(_)) => return Ok(()),
                Err(failure) => return Err(failure),
            }
        }
        Ok(())
    }

    /// RFC 9110 §10.1.1: sends the interim answer that lets a waiting client send its body; once,
    /// if it asked for it.
    pub async fn ask_for_body(&self) -> Result<(), Failure> {
        if !self.wants_continue.take() {
            return Ok(());
        }
        let text: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";
        let slices = [std::io::IoSlice::new(text)];
        // A fresh line of 25 bytes always fits: anything shorter is a connection in trouble.
        let sent = std::future::poll_fn(|cx| {
            self.transport
                .poll_send(cx, &slices, millpond_system::socket::More::Nothing)
        })
        .await;
        match sent {
            Ok(count) if count == text.len() => Ok(()),
            Ok(_) => Err(ClientGone::Closed.into()),
            Err(error) => Err(ClientGone::Io(error).into()),
        }
    }
}
