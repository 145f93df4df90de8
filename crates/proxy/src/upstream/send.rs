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
use std::task::{Context, Poll};

use bytes::{Buf, Bytes, BytesMut};
use millpond_system::body::Piece;
use millpond_system::socket::More;
use millpond_system::transport::Transport;

use super::aws_sign::chunks::Chunks;
use super::request::{OutBody, OutFraming, Prepared};
use millpond_exchange::client::body::Remains;
use millpond_wire::fastcgi::record;
use millpond_wire::http1::chunked;

/// Result of one look at the connection.
pub(crate) enum Happened {
    /// Bytes went out.
    Sent,
    /// The client had more of its body.
    More,
    /// Number of bytes that came; 0 at the peer's end.
    Received(usize),
    /// The socket failed.
    Failed(std::io::Error),
}

/// Bytes asked of the socket at once while a head is read.
pub(crate) const HEAD_READ: usize = 16 * 1024;

/// The request on its way out.
pub(crate) struct Outgoing {
    /// Bytes of the head that are not sent yet; the rest waits behind it.
    head: Bytes,
    queue: VecDeque<Piece>,
    /// Part of a whole body that is not in the queue yet: it goes out in records.
    rest: Option<Box<Piece>>,
    /// True while the client has more of the body.
    from_client: bool,
    framing: OutFraming,
    /// Chunks of a body that is signed while it goes out.
    chunks: Option<Box<Chunks>>,
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
    pub(crate) fn new(prepared: &Prepared) -> Self {
        let mut outgoing = Outgoing {
            head: prepared.head.clone(),
            queue: VecDeque::new(),
            rest: None,
            from_client: false,
            framing: prepared.framing.clone(),
            chunks: match &prepared.framing {
                OutFraming::Signed(signer) => Some(Box::new(Chunks::new(signer))),
                _ => None,
            },
            has_sent: false,
            sent: 0,
            received: 0,
            failed: None,
        };
        if let OutBody::Client { first, .. } = &prepared.body {
            outgoing.from_client = true;
            outgoing.push_body(first.clone(), Remains::More);
            return outgoing;
        }
        match (&prepared.framing, prepared.body.whole()) {
            (OutFraming::Stdin | OutFraming::Signed(_), Some(whole)) => {
                outgoing.rest = Some(Box::new(whole))
            }
            (OutFraming::Stdin, None) => outgoing.push_record_head(0),
            (_, whole) => outgoing.queue.extend(whole),
        }
        outgoing.refill();
        outgoing
    }

    /// True when something stands around the parts of the body.
    pub(crate) fn is_framed(&self) -> bool {
        !matches!(self.framing, OutFraming::Plain)
    }

    /// True when everything was sent.
    pub(crate) fn is_done(&self) -> bool {
        self.is_sent() && self.rest.is_none() && !self.from_client
    }

    /// True when the next bytes to send are to come from the client.
    pub(crate) fn wants_client(&self) -> bool {
        self.is_sent() && self.from_client
    }

    /// True when nothing is ready to be sent.
    fn is_sent(&self) -> bool {
        self.head.is_empty() && self.queue.is_empty()
    }

    /// Takes what the client has sent of the body; the last part may be empty.
    pub(crate) fn push_body(&mut self, bytes: Bytes, remains: Remains) {
        self.received += bytes.len() as u64;
        match &self.framing {
            OutFraming::Plain => self.push_memory(bytes),
            OutFraming::Signed(_) => self.push_signed(&bytes),
            OutFraming::Chunked if bytes.is_empty() => {}
            OutFraming::Chunked => {
                let head = chunked::chunk_head(bytes.len() as u64);
                self.push_memory(Bytes::copy_from_slice(head.as_ref()));
                self.push_memory(bytes);
                self.push_memory(Bytes::from_static(chunked::CHUNK_END));
            }
            OutFraming::Stdin => {
                let mut rest = Piece::Memory(bytes);
                while !rest.is_empty() {
                    self.push_record(&mut rest);
                }
            }
        }
        if remains == Remains::Nothing {
            self.from_client = false;
            match &self.framing {
                OutFraming::Plain => {}
                OutFraming::Signed(_) => self.end_signed(),
                OutFraming::Chunked => self.push_memory(Bytes::from_static(chunked::LAST_CHUNK)),
                OutFraming::Stdin => self.push_record_head(0),
            }
        }
    }

    fn push_memory(&mut self, bytes: Bytes) {
        if !bytes.is_empty() {
            self.queue.push_back(Piece::Memory(bytes));
        }
    }

    /// Queues the chunks that are whole now.
    fn push_signed(&mut self, bytes: &[u8]) {
        let ready = self.chunks.iter_mut().flat_map(|chunks| chunks.push(bytes));
        self.queue.extend(ready.map(Piece::Memory));
    }

    /// Queues the last chunks.
    fn end_signed(&mut self) {
        let last = self.chunks.iter_mut().flat_map(|chunks| chunks.finish());
        self.queue.extend(last.map(Piece::Memory));
    }

    /// Queues a chunk or two of a body in a file, while there is a rest; its end follows it.
    fn refill_signed(&mut self) {
        while self.queue.is_empty()
            && let Some(mut rest) = self.rest.take()
        {
            match rest.take_memory() {
                Ok(bytes) => self.push_signed(&bytes),
                Err(error) => {
                    self.queue.clear();
                    self.failed = Some(std::io::Error::other(error));
                    return;
                }
            }
            if rest.is_empty() {
                self.end_signed();
            } else {
                self.rest = Some(rest);
            }
        }
    }

    /// Queues the next record of a body that goes out in records.
    fn push_record(&mut self, rest: &mut Piece) {
        let part = rest.split_to(record::CONTENT_MAX as u64);
        // At most `CONTENT_MAX`, which fits.
        self.push_record_head(part.len() as u16);
        self.queue.push_back(part);
    }

    fn push_record_head(&mut self, len: u16) {
        let head = record::record_head(record::Sent::Stdin, len);
        self.push_memory(Bytes::copy_from_slice(&head));
    }

    /// Keeps a record or two in the queue while there is a rest; its end follows it.
    fn refill(&mut self) {
        if self.chunks.is_some() {
            return self.refill_signed();
        }
        while self.queue.len() < 4
            && let Some(mut rest) = self.rest.take()
        {
            self.push_record(&mut rest);
            if rest.is_empty() {
                self.push_record_head(0)
            } else {
                self.rest = Some(rest)
            }
        }
    }

    /// Sends what can be sent, else reads what has come.
    pub(crate) fn poll_talk(
        &mut self,
        cx: &mut Context<'_>,
        socket: &Transport,
        inbox: &mut BytesMut,
    ) -> Poll<Happened> {
        if let Poll::Ready(outcome) = self.poll_send(cx, socket) {
            match outcome {
                Ok(count) => {
                    self.consume(count);
                    return Poll::Ready(Happened::Sent);
                }
                Err(error) => {
                    self.head.clear();
                    self.queue.clear();
                    self.rest = None;
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

    fn poll_send(
        &mut self,
        cx: &mut Context<'_>,
        socket: &Transport,
    ) -> Poll<std::io::Result<u64>> {
        let sent = match self.queue.front() {
            None if self.head.is_empty() => return Poll::Pending,
            None => socket.poll_send(cx, &[IoSlice::new(&self.head)], More::Nothing),
            Some(Piece::File(region)) if self.head.is_empty() => socket.poll_sendfile(cx, region),
            Some(_) => {
                let head = (!self.head.is_empty()).then(|| IoSlice::new(&self.head));
                let ready = self.queue.iter().map_while(|piece| match piece {
                    Piece::Memory(bytes) => Some(IoSlice::new(bytes.chunk())),
                    Piece::File(_) => None,
                });
                let pieces = usize::from(head.is_some()) + self.queue.len();
                let slices: smallvec::SmallVec<[IoSlice<'_>; 4]> =
                    head.into_iter().chain(ready).take(4).collect();
                let more = if slices.len() < pieces {
                    More::Follows
                } else {
                    More::Nothing
                };
                socket.poll_send(cx, &slices, more)
            }
        };
        sent.map_ok(|count| count as u64)
    }

    fn consume(&mut self, mut count: u64) {
        self.has_sent |= count > 0;
        self.sent += count;
        let of_head = self
            .head
            .len()
            .min(usize::try_from(count).unwrap_or(usize::MAX));
        self.head.advance(of_head);
        count -= of_head as u64;
        while count > 0 {
            let Some(front) = self.queue.front_mut() else {
                break;
            };
            count -= front.split_to(count).len();
            if front.is_empty() {
                self.queue.pop_front();
            }
        }
        self.refill();
    }
}
