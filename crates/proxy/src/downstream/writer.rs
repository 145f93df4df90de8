//! `send_timeout`, `limit_rate`, `limit_rate_after`, `sendfile`, `sendfile_max_chunk`: how an
//! answer is sent.
//!
//! The writer pulls pieces from a body while they are ready, sends them with as few calls as the
//! socket allows (head and memory together in one `sendmsg`, files by `sendfile`), and only then
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
use millpond_conf::value::SizeTemplate;
use millpond_conf::{ByteSize, Offset};
use smallvec::SmallVec;

use super::{ClientGone, Downstream};
use crate::body::{Body, BodyError, FILE_READ_SIZE, Piece};
use crate::cache::loaded::{has_refused, load, ready_len};
use crate::clock::{self, Instant};
use crate::header::Fields;
use crate::http1::chunked;
use crate::socket::More;

/// Memory held for one connection before the socket must take some (arbitrary: twice a socket's
/// usual free space).
const QUEUE_BYTES: usize = 128 * 1024;
/// Pieces held at once; one `sendmsg` takes up to so many slices.
const QUEUE_PIECES: usize = 24;

/// Bytes of a file that are looked at before they are sent (arbitrary: more than a socket takes).
const LOOK_BYTES: u64 = 4 << 20;

/// How answers are sent.
#[derive(Clone, Debug, millpond_conf::Family)]
#[family(http, server, location, if_location)]
pub struct SendPolicy {
    /// The time between two successful writes to a client, after which the connection is closed.
    #[directive(
        name = "send_timeout",
        default = "60s",
        contexts(http, server, location)
    )]
    pub timeout: Duration,
    /// Limits the rate of an answer, in bytes a second; 0 means no limit. The limit is for one
    /// request.
    #[directive(name = "limit_rate")]
    pub rate: Option<SizeTemplate>,
    /// Bytes of an answer that are sent before `limit_rate` begins to act.
    #[directive(name = "limit_rate_after")]
    pub rate_after: Option<SizeTemplate>,
    /// Whether files are sent by the kernel from the page cache without a copy in this process.
    #[directive(name = "sendfile", default = "off")]
    pub sendfile: bool,
    /// The most that one `sendfile` call sends, so that one fast client does not hold a worker; 0:
    /// no limit.
    #[directive(
        name = "sendfile_max_chunk",
        default = "2m",
        contexts(http, server, location)
    )]
    pub sendfile_max_chunk: ByteSize,
    /// Data of less than this many bytes may be held back until more comes.
    ///
    /// # Differs from nginx
    ///
    /// What is ready is sent at once and nothing is held back; the value is only checked.
    #[directive(
        name = "postpone_output",
        default = "1460",
        contexts(http, server, location)
    )]
    pub postpone_output: Offset,
}

/// How the end of the body is made known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutFraming {
    /// The answer has no body (HEAD, 204, 304).
    NoBody,
    /// Exactly so many bytes.
    Length(u64),
    /// Chunked coding.
    Chunked,
    /// Until the connection closes.
    UntilClose,
}

/// Limits of one answer.
#[derive(Clone, Copy, Debug)]
pub struct SendLimits {
    /// Longest wait for the socket.
    pub timeout: Duration,
    /// Bytes a second; 0 is no limit.
    pub rate: u64,
    /// Bytes before the limit acts.
    pub rate_after: u64,
    /// Most bytes of one `sendfile` call.
    pub file_chunk: u64,
}

/// Why an answer was not sent whole.
#[derive(Debug, thiserror::Error)]
pub enum SendError {
    /// The client's fault.
    #[error(transparent)]
    Client(#[from] ClientGone),
    /// The body's source failed.
    #[error(transparent)]
    Body(BodyError),
}

impl From<BodyError> for SendError {
    fn from(error: BodyError) -> Self {
        match error {
            BodyError::ClientLeft => SendError::Client(ClientGone::Closed),
            error => SendError::Body(error),
        }
    }
}

/// Bytes that went out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SentBytes {
    /// Of the head.
    pub head: u64,
    /// Of the body, framing included.
    pub body: u64,
}

impl SentBytes {
    /// The first `count` bytes of an answer with a head of that length.
    pub fn of(count: u64, head_len: u64) -> Self {
        let head = count.min(head_len);
        SentBytes {
            head,
            body: count - head,
        }
    }
}

/// Sends head and body; `sent` is kept up to date, so that it is right after an error too.
pub async fn send(
    down: &Downstream,
    answer: Answer<'_>,
    limits: &SendLimits,
    sent: &mut SentBytes,
) -> Result<(), SendError> {
    let mut taken = answer.taken;
    *sent = SentBytes::of(taken, answer.head.len() as u64);
    let mut out = Outbox::new(answer.head, answer.framing);
    out.head_left -= sent.head;
    // Bytes that went out since others had their turn.
    let mut in_a_row = 0;
    answer.body.prefer_files();
    // Time counts only for a rate.
    let started = (limits.rate > 0).then(clock::instant);
    loop {
        out.gather(answer.body, answer.trailers).await;
        out.consume(std::mem::take(&mut taken));
        if out.queue.is_empty() {
            return out.outcome();
        }
        let allowance = match started {
            Some(started) => rate_allowance(down, limits, started, sent).await?,
            None => u64::MAX,
        };
        let step = std::future::poll_fn(|cx| out.poll_write(cx, down, limits, allowance));
        let count = match down.timer.guard_for(limits.timeout, step).await {
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

/// What is to be sent.
pub struct Answer<'a> {
    /// The encoded head.
    pub head: Bytes,
    /// The body; left unread when there is none to send.
    pub body: &'a mut Body,
    /// How it ends.
    pub framing: OutFraming,
    /// Bytes that the socket has taken already, of the head and of a body in memory.
    pub taken: u64,
    /// Gives the trailer fields of a chunked body when it has ended; gets the body's own.
    pub trailers: &'a mut dyn FnMut(Option<Fields>) -> Option<Fields>,
}

/// What came of a write.
enum Wrote {
    /// So many bytes.
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
    framing: OutFraming,
    /// Bytes of a `Length` body that have not come yet.
    missing: u64,
    is_ended: bool,
    /// Why the body ended early: said once everything before it is sent.
    broken: Option<BodyError>,
}

impl Outbox {
    fn new(head: Bytes, framing: OutFraming) -> Self {
        let mut outbox = Outbox {
            queue: VecDeque::with_capacity(4),
            memory: 0,
            head_left: head.len() as u64,
            loaded: 0,
            framing,
            missing: match framing {
                OutFraming::Length(len) => len,
                _ => 0,
            },
            is_ended: framing == OutFraming::NoBody || framing == OutFraming::Length(0),
            broken: None,
        };
        // An answer to HTTP/0.9 has no head, and no piece is empty.
        if !head.is_empty() {
            outbox.push(Piece::Memory(head));
        }
        outbox
    }

    /// Takes what the body has ready; waits for it only when nothing else is to be sent.
    async fn gather(
        &mut self,
        body: &mut Body,
        trailers: &mut dyn FnMut(Option<Fields>) -> Option<Fields>,
    ) {
        std::future::poll_fn(|cx| self.poll_gather(cx, body, trailers)).await
    }

    fn poll_gather(
        &mut self,
        cx: &mut Context<'_>,
        body: &mut Body,
        trailers: &mut dyn FnMut(Option<Fields>) -> Option<Fields>,
    ) -> Poll<()> {
        while !self.is_ended && self.memory < QUEUE_BYTES && self.queue.len() + 3 <= QUEUE_PIECES {
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

    fn push_body(&mut self, mut piece: Piece) {
        if piece.is_empty() {
            return;
        }
        match self.framing {
            OutFraming::Length(_) => {
                // What a source has beyond its stated length is not sent.
                let piece = piece.split_to(self.missing);
                self.missing -= piece.len();
                self.is_ended = self.missing == 0;
                if !piece.is_empty() {
                    self.push(piece);
                }
            }
            OutFraming::Chunked => {
                let head = chunked::chunk_head(piece.len());
                self.push(Piece::Memory(Bytes::copy_from_slice(head.as_ref())));
                self.push(piece);
                self.push(Piece::Memory(Bytes::from_static(b"\r\n")));
            }
            OutFraming::UntilClose | OutFraming::NoBody => self.push(piece),
        }
    }

    fn end(&mut self, trailers: Option<Fields>) {
        self.is_ended = true;
        if self.framing == OutFraming::Chunked {
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

    /// How the answer ended, when nothing is left to send.
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
        down: &Downstream,
        limits: &SendLimits,
        allowance: u64,
    ) -> Poll<std::io::Result<Wrote>> {
        let count = if let Some(Piece::File(region)) = self.queue.front() {
            let most = allowance.min(limits.file_chunk).min(LOOK_BYTES);
            let ready = ready_len(region, most).max(self.loaded.min(most));
            if ready == 0 {
                return Poll::Ready(Ok(Wrote::Unready));
            }
            let mut region = region.clone();
            region.len = region.len.min(ready);
            let sent = match std::task::ready!(down.socket.poll_sendfile(cx, &region)) {
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
            std::task::ready!(down.socket.poll_send(cx, &slices, more))? as u64
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

/// How many bytes may be sent now under a `limit_rate`; waits until it is at least one.
async fn rate_allowance(
    down: &Downstream,
    limits: &SendLimits,
    started: Instant,
    sent: &SentBytes,
) -> Result<u64, ClientGone> {
    loop {
        // nginx: the first second's share is there at once.
        let elapsed_ms = (clock::instant() - started).as_millis() as u64;
        let budget = limits.rate_after + limits.rate * (elapsed_ms / 1000 + 1);
        let allowance = budget.saturating_sub(sent.head + sent.body);
        if allowance > 0 {
            return Ok(allowance.min(limits.rate.max(FILE_READ_SIZE as u64)));
        }
        down.pause(Duration::from_millis(1000 - elapsed_ms % 1000))
            .await?;
    }
}
