//! Bodies of HTTP/1 answers on their way to the socket, in chunks or as they are.
//!
//! The writer pulls pieces from a body while they are ready, sends them with as few calls as the
//! socket allows (head and memory together in one `sendmsg`, files by `sendfile`, or read to where
//! they are encrypted), and only then
//! waits: for the socket when it is full, for the body when it has nothing.
//!
//! Invariants:
//! 1. No more than `QUEUE_BYTES` of memory and `QUEUE_PIECES` pieces are held here.
//! 2. A body of known length that ends early, or any error of the body, ends the connection, so
//!    that the client sees the failure, after the bytes that came before it.
//! 3. Nothing is sent from a file of the cache that its disk would have to be waited for.
//! 4. A chunk is framed only around bytes that are there.

use std::collections::VecDeque;
use std::io::IoSlice;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use millpond_system::backlog::Backlog;
use millpond_system::body::{Body, BodyError, Piece};
use millpond_system::clock;
use millpond_system::socket::More;
use millpond_system::transport::Transport;
use smallvec::SmallVec;

use crate::cache::loaded::{has_refused, in_memory, load, loaded_len, ready_len};
use millpond_exchange::client::Client;
use millpond_exchange::client::http1::Http1;
use millpond_exchange::client::send::{
    Outgoing, SendError, SendLimits, SentBytes, Trailers, rate_allowance,
};
use millpond_exchange::failure::ClientGone;
use millpond_wire::header::Fields;
use millpond_wire::http1::chunked;

/// Memory held for one connection before the socket must take some (arbitrary: twice a socket's
/// usual free space).
const QUEUE_BYTES: usize = 128 * 1024;
/// Pieces held at once; one `sendmsg` takes up to so many slices.
const QUEUE_PIECES: usize = 24;

/// Bytes of a file that are looked at before they are sent (arbitrary: more than a socket takes).
const LOOK_BYTES: u64 = 4 << 20;

/// Framing that makes the end of the body known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Framing {
    /// The answer has no body (HEAD, 204, 304).
    NoBody,
    /// Exactly so many bytes.
    Length(u64),
    /// Chunked coding.
    Chunked,
    /// Until the connection closes.
    UntilClose,
}

impl Framing {
    /// True for the chunked coding.
    pub(crate) fn is_chunked(self) -> bool {
        self == Framing::Chunked
    }
}

/// The part of an answer that was not sent with its head.
pub(crate) struct Unsent {
    /// The encoded head.
    pub head: Bytes,
    /// The end of the body.
    pub framing: Framing,
    /// Bytes that the socket has taken already, of the head and of a body in memory.
    pub taken: u64,
}

/// Sends head and body; `sent` is kept up to date, so that it is right after an error too.
pub(crate) async fn send(
    client: &Client,
    http1: &Http1,
    unsent: Unsent,
    answer: Outgoing<'_>,
    sent: &mut SentBytes,
) -> Result<(), SendError> {
    let mut taken = unsent.taken;
    let limits = answer.limits;
    *sent = SentBytes::of(taken, unsent.head.len() as u64);
    let mut out = Outbox::new(unsent.head, unsent.framing);
    out.backlog = answer.backlog;
    out.head_left -= sent.head;
    // Bytes that went out since others had their turn.
    let mut in_a_row = 0;
    if http1.transport.sends_files() {
        answer.body.prefer_files();
    }
    // Time counts only for a rate.
    let started = (limits.rate > 0).then(clock::instant);
    loop {
        out.gather(answer.body, answer.trailers).await;
        out.consume(std::mem::take(&mut taken));
        if out.queue.is_empty() {
            return out.outcome();
        }
        let allowance = match started {
            Some(started) => rate_allowance(client, limits, started, sent).await?,
            None => u64::MAX,
        };
        let step =
            std::future::poll_fn(|cx| out.poll_write(cx, &http1.transport, limits, allowance));
        let count = match http1.timer.guard_for(limits.timeout, step).await {
            Ok(Ok(Wrote::Bytes(count))) => count,
            Ok(Ok(Wrote::Unready)) => {
                Box::pin(out.load(limits.timeout)).await?;
                continue;
            }
            Ok(Ok(Wrote::Refused(error))) => return Err(error.into()),
            Ok(Err(error)) => return Err(ClientGone::Io(error).into()),
            Err(_) => return Err(ClientGone::TimedOut.into()),
        };
        let of_head = count.min(out.head_left);
        out.head_left -= of_head;
        sent.head += of_head;
        sent.body += count - of_head;
        in_a_row += count;
        if in_a_row >= limits.file_chunk {
            // A client that takes all at once is not to hold the worker.
            in_a_row = 0;
            tokio::task::yield_now().await;
        }
    }
}

/// Result of a write.
enum Wrote {
    /// Number of bytes.
    Bytes(u64),
    /// Nothing: the first bytes are on a disk that must be waited for.
    Unready,
    /// Nothing: the disk does not give them.
    Refused(BodyError),
}

/// Pieces on their way to the socket.
struct Outbox {
    queue: VecDeque<Piece>,
    memory: usize,
    head_left: u64,
    /// Bytes of the first piece that its disk has read for this answer.
    loaded: u64,
    framing: Framing,
    /// Bytes of a `Length` body that have not come yet.
    missing: u64,
    is_ended: bool,
    /// The reason why the body ended early: said once everything before it is sent.
    broken: Option<BodyError>,
    backlog: Option<Backlog>,
}

impl Outbox {
    fn new(head: Bytes, framing: Framing) -> Self {
        let mut outbox = Outbox {
            queue: VecDeque::with_capacity(4),
            memory: 0,
            head_left: head.len() as u64,
            loaded: 0,
            framing,
            missing: match framing {
                Framing::Length(len) => len,
                _ => 0,
            },
            is_ended: framing == Framing::NoBody || framing == Framing::Length(0),
            broken: None,
            backlog: None,
        };
        // An answer to HTTP/0.9 has no head, and no piece is empty.
        if !head.is_empty() {
            outbox.push(Piece::Memory(head));
        }
        outbox
    }

    /// Takes what the body has ready; waits for it only when nothing else is to be sent.
    async fn gather(&mut self, body: &mut Body, trailers: Trailers<'_>) {
        std::future::poll_fn(|cx| self.poll_gather(cx, body, trailers)).await
    }

    fn poll_gather(
        &mut self,
        cx: &mut Context<'_>,
        body: &mut Body,
        trailers: Trailers<'_>,
    ) -> Poll<()> {
        while !self.is_ended && self.memory < QUEUE_BYTES && self.queue.len() + 3 <= QUEUE_PIECES {
            self.note_backlog();
            match body.poll_next(cx) {
                Poll::Ready(Some(Ok(piece))) => self.push_body(piece),
                Poll::Ready(Some(Err(error))) => {
                    self.is_ended = true;
                    self.broken = Some(error);
                }
                Poll::Ready(None) => self.end(trailers(body.take_trailers())),
                Poll::Pending if self.queue.is_empty() => return Poll::Pending,
                Poll::Pending => break,
            }
        }
        Poll::Ready(())
    }

    /// Notes for the source of the body how much of it waits.
    fn note_backlog(&self) {
        if let Some(backlog) = &self.backlog {
            let head = usize::try_from(self.head_left).unwrap_or(usize::MAX);
            backlog.set(self.memory.saturating_sub(head));
        }
    }

    fn push_body(&mut self, mut piece: Piece) {
        if piece.is_empty() {
            return;
        }
        match self.framing {
            Framing::Length(_) => {
                // Bytes that a source has beyond its stated length are not sent.
                let piece = piece.split_to(self.missing);
                self.missing -= piece.len();
                self.is_ended = self.missing == 0;
                if !piece.is_empty() {
                    self.push(piece);
                }
            }
            Framing::Chunked => {
                let head = chunked::chunk_head(piece.len());
                self.push(Piece::Memory(Bytes::copy_from_slice(head.as_ref())));
                self.push(piece);
                self.push(Piece::Memory(Bytes::from_static(b"\r\n")));
            }
            Framing::UntilClose | Framing::NoBody => self.push(piece),
        }
    }

    fn end(&mut self, trailers: Option<Fields>) {
        self.is_ended = true;
        if self.framing == Framing::Chunked {
            let last = match trailers {
                None => Bytes::from_static(chunked::LAST_CHUNK),
                Some(trailers) => {
                    let mut last = BytesMut::new();
                    chunked::write_last_chunk(&mut last, &trailers);
                    last.freeze()
                }
            };
            self.push(Piece::Memory(last));
        }
    }

    fn push(&mut self, piece: Piece) {
        if let Piece::Memory(bytes) = &piece {
            self.memory += bytes.len();
        }
        self.queue.push_back(piece);
    }

    /// End of the answer, when nothing is left to send.
    fn outcome(&mut self) -> Result<(), SendError> {
        match self.broken.take() {
            Some(error) => Err(error.into()),
            None if self.missing > 0 => Err(BodyError::UpstreamTruncated.into()),
            None => Ok(()),
        }
    }

    /// One write of at most `allowance` bytes; returns the bytes taken.
    fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        transport: &Transport,
        limits: &SendLimits,
        allowance: u64,
    ) -> Poll<std::io::Result<Wrote>> {
        let count = if let Some(Piece::File(region)) = self.queue.front() {
            let most = allowance.min(limits.file_chunk).min(LOOK_BYTES);
            let ready = ready_len(region, most).max(loaded_len(region, self.loaded.min(most)));
            if ready == 0 {
                return Poll::Ready(Ok(Wrote::Unready));
            }
            if let Some(bytes) = in_memory(region, ready) {
                let slices = [IoSlice::new(&bytes)];
                let more = if bytes.len() as u64 == region.len && self.queue.len() == 1 {
                    More::Nothing
                } else {
                    More::Follows
                };
                let count = std::task::ready!(transport.poll_send(cx, &slices, more))? as u64;
                self.consume(count);
                return Poll::Ready(Ok(Wrote::Bytes(count)));
            }
            let mut region = region.clone();
            region.len = region.len.min(ready);
            let sent = match std::task::ready!(transport.poll_sendfile(cx, &region)) {
                Ok(0) => Err(std::io::Error::new(
                    std::io::ErrorKind::UnexpectedEof,
                    "file is shorter than it was",
                )),
                sent => sent,
            };
            match sent {
                Ok(count) => count as u64,
                Err(error) if has_refused(&region, &error) => {
                    let error = BodyError::File(error.to_string());
                    return Poll::Ready(Ok(Wrote::Refused(error)));
                }
                Err(error) => return Poll::Ready(Err(error)),
            }
        } else {
            let (slices, more) = self.memory_slices(allowance);
            std::task::ready!(transport.poll_send(cx, &slices, more))? as u64
        };
        self.consume(count);
        Poll::Ready(Ok(Wrote::Bytes(count)))
    }

    /// Has the first bytes of the first piece read.
    async fn load(&mut self, timeout: Duration) -> Result<(), BodyError> {
        if let Some(Piece::File(region)) = self.queue.front() {
            self.loaded = load(region, timeout).await?;
        }
        Ok(())
    }

    /// The leading memory pieces, cut to `allowance`.
    fn memory_slices(&self, allowance: u64) -> (SmallVec<[IoSlice<'_>; QUEUE_PIECES]>, More) {
        let mut slices = SmallVec::new();
        let mut left = allowance.min(usize::MAX as u64) as usize;
        for piece in &self.queue {
            let Piece::Memory(bytes) = piece else {
                return (slices, More::Follows);
            };
            let part = bytes.get(..left.min(bytes.len())).unwrap_or_default();
            if part.is_empty() {
                break;
            }
            left -= part.len();
            slices.push(IoSlice::new(part));
        }
        (slices, More::Nothing)
    }

    fn consume(&mut self, mut count: u64) {
        self.loaded = self.loaded.saturating_sub(count);
        while count > 0 {
            let Some(front) = self.queue.front_mut() else {
                return;
            };
            let part = front.split_to(count);
            count -= part.len();
            if matches!(part, Piece::Memory(_)) {
                self.memory -= part.len() as usize;
            }
            if front.is_empty() {
                self.queue.pop_front();
            }
        }
    }
}
