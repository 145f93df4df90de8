//! The request on its way to a peer, and the first look at what comes back.
//!
//! Head and body are sent as the socket takes them. A body that the client is still sending goes on
//! part by part: the next one is asked for when the last was sent, so that a slow peer slows the
//! client down and memory is bounded by one part.
//!
//! Invariants:
//! 1. What the peer says is read also while it does not take more: an early answer is not lost.
//! 2. When sending fails, the peer's answer is still looked for; only its end reports the failure.

use std::collections::VecDeque;
use std::io::IoSlice;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::{Buf, Bytes, BytesMut};

use super::request::{OutBody, OutFraming, Prepared};
use crate::body::{FileRegion, Piece};
use crate::downstream::body::Remains;
use crate::http1::chunked;
use crate::socket::{More, Socket};

/// What one look at the connection brought.
pub enum Happened {
    /// Bytes went out.
    Sent,
    /// The client had more of its body.
    More,
    /// So many bytes came; 0 at the peer's end.
    Received(usize),
    /// The socket failed.
    Failed(std::io::Error),
}

/// Bytes asked of the socket at once while a head is read.
const HEAD_READ: usize = 16 * 1024;

/// The request on its way out.
pub struct Outgoing {
    queue: VecDeque<Piece>,
    /// True while the client has more of the body.
    from_client: bool,
    framing: OutFraming,
    /// True once a byte went out.
    pub has_sent: bool,
    /// Bytes sent.
    pub sent: u64,
    /// Bytes of the body that came from the client.
    pub received: u64,
    /// Sending failed; the peer may still have answered.
    failed: Option<std::io::Error>,
}

impl Outgoing {
    /// The request from its begin.
    pub fn new(prepared: &Prepared) -> Self {
        let mut queue = VecDeque::from([Piece::Memory(prepared.head.clone())]);
        let mut outgoing = Outgoing {
            queue: VecDeque::new(),
            from_client: false,
            framing: prepared.framing,
            has_sent: false,
            sent: 0,
            received: 0,
            failed: None,
        };
        match &prepared.body {
            OutBody::None => {}
            OutBody::Memory(bytes) if bytes.is_empty() => {}
            OutBody::Memory(bytes) => queue.push_back(Piece::Memory(bytes.clone())),
            OutBody::File(file) => queue.push_back(Piece::File(FileRegion {
                file: Arc::clone(&file.file),
                offset: 0,
                len: file.len,
            })),
            OutBody::Client { first, .. } => {
                outgoing.from_client = true;
                outgoing.queue = queue;
                outgoing.push_body(first.clone(), Remains::More);
                return outgoing;
            }
        }
        outgoing.queue = queue;
        outgoing
    }

    /// True when the body goes out in chunks.
    pub fn is_chunked(&self) -> bool {
        self.framing == OutFraming::Chunked
    }

    /// True when everything was sent.
    pub fn is_done(&self) -> bool {
        self.queue.is_empty() && !self.from_client
    }

    /// True when the next bytes to send are to come from the client.
    pub fn wants_client(&self) -> bool {
        self.queue.is_empty() && self.from_client
    }

    /// Takes what the client has sent of the body; the last part may be empty.
    pub fn push_body(&mut self, bytes: Bytes, remains: Remains) {
        self.received += bytes.len() as u64;
        if !bytes.is_empty() {
            if self.is_chunked() {
                let head = chunked::chunk_head(bytes.len() as u64);
                let head = Bytes::copy_from_slice(head.as_ref());
                self.queue.push_back(Piece::Memory(head));
            }
            self.queue.push_back(Piece::Memory(bytes));
            if self.is_chunked() {
                let end = Bytes::from_static(chunked::CHUNK_END);
                self.queue.push_back(Piece::Memory(end));
            }
        }
        if remains == Remains::Nothing {
            self.from_client = false;
            if self.is_chunked() {
                let last = Bytes::from_static(chunked::LAST_CHUNK);
                self.queue.push_back(Piece::Memory(last));
            }
        }
    }

    /// Sends what can be sent, else reads what has come.
    pub fn poll_talk(
        &mut self,
        cx: &mut Context<'_>,
        socket: &Socket,
        inbox: &mut BytesMut,
    ) -> Poll<Happened> {
        if let Poll::Ready(outcome) = self.poll_send(cx, socket) {
            match outcome {
                Ok(count) => {
                    self.consume(count);
                    return Poll::Ready(Happened::Sent);
                }
                Err(error) => {
                    self.queue.clear();
                    self.from_client = false;
                    self.failed = Some(error);
                }
            }
        }
        if inbox.capacity() - inbox.len() < HEAD_READ / 4 {
            inbox.reserve(HEAD_READ);
        }
        match std::task::ready!(socket.poll_recv(cx, inbox)) {
            Ok(0) => match self.failed.take() {
                Some(error) => Poll::Ready(Happened::Failed(error)),
                None => Poll::Ready(Happened::Received(0)),
            },
            Ok(count) => Poll::Ready(Happened::Received(count)),
            Err(error) => Poll::Ready(Happened::Failed(self.failed.take().unwrap_or(error))),
        }
    }

    fn poll_send(&mut self, cx: &mut Context<'_>, socket: &Socket) -> Poll<std::io::Result<u64>> {
        match self.queue.front() {
            None => Poll::Pending,
            Some(Piece::File(region)) => socket
                .poll_sendfile(cx, region)
                .map_ok(|count| count as u64),
            Some(Piece::Memory(_)) => {
                let slices: smallvec::SmallVec<[IoSlice<'_>; 4]> = self
                    .queue
                    .iter()
                    .map_while(|piece| match piece {
                        Piece::Memory(bytes) => Some(IoSlice::new(bytes.chunk())),
                        Piece::File(_) => None,
                    })
                    .take(4)
                    .collect();
                let more = if slices.len() < self.queue.len() {
                    More::Follows
                } else {
                    More::Nothing
                };
                socket
                    .poll_send(cx, &slices, more)
                    .map_ok(|count| count as u64)
            }
        }
    }

    fn consume(&mut self, mut count: u64) {
        self.has_sent |= count > 0;
        self.sent += count;
        while count > 0 {
            let Some(front) = self.queue.front_mut() else {
                return;
            };
            count -= front.split_to(count).len();
            if front.is_empty() {
                self.queue.pop_front();
            }
        }
    }
}
