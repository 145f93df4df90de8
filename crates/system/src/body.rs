//! Bodies on their way to a client: pieces of memory and regions of files.
//!
//! A [`Body`] is pulled by the downstream writer. What is ready is handed out piece by piece
//! without waiting; a stream (an upstream connection, a running fill, a filter) is polled.
//!
//! Invariants:
//! 1. A piece is never empty.
//! 2. After a body has ended (`None`) or erred it is not polled again.
//! 3. A body holds no more than what its source bounds; it never collects a whole stream.
//!
//! It knows no framing: chunked coding and Content-Length are the writer's.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::{Buf, Bytes};
use millpond_store::HeldFile;

use millpond_wire::header::Fields;

/// The largest piece of a file that is read into memory at once (found good for gzip and
/// charset conversion: large enough to hide the call, small enough to stay in cache).
pub const FILE_READ_SIZE: usize = 32 * 1024;

/// A file that is open.
#[derive(Clone, Debug)]
pub enum FileSource {
    /// One that is shared with whoever else serves it.
    Plain(Arc<File>),
    /// One of the cache's, which says what of it can be read without waiting.
    Held(HeldFile),
}

impl FileSource {
    /// The file. One of a cache is opened if need be, which waits for its disk, unless it was asked
    /// whether its bytes are ready.
    pub fn file(&self) -> io::Result<&File> {
        match self {
            FileSource::Plain(file) => Ok(file),
            FileSource::Held(file) => file.file(),
        }
    }
}

impl FileSource {
    /// Counts bytes that were sent or read to be sent.
    pub fn note_taken(&self, count: u64) {
        if let FileSource::Held(file) = self {
            file.note_taken(count);
        }
    }
}

/// A region of an open file.
#[derive(Clone, Debug)]
pub struct FileRegion {
    /// The file.
    pub file: FileSource,
    /// First byte.
    pub offset: u64,
    /// Bytes.
    pub len: u64,
}

/// A part of a body that can be sent as it is.
#[derive(Clone, Debug)]
pub enum Piece {
    /// Bytes in memory.
    Memory(Bytes),
    /// Bytes in a file, for `sendfile`.
    File(FileRegion),
}

/// The reason why a body ended before its end.
#[derive(Clone, Debug, thiserror::Error)]
pub enum BodyError {
    /// The upstream closed its connection, or broke framing, before the end.
    #[error("upstream prematurely closed connection")]
    UpstreamTruncated,
    /// The upstream was silent for longer than its timeout.
    #[error("upstream timed out")]
    UpstreamTimedOut,
    /// The fill that this body was read from was given up.
    #[error("the fill was abandoned: {0}")]
    FillAbandoned(String),
    /// The client left while its answer was being put together.
    #[error("client prematurely closed connection")]
    ClientLeft,
    /// The bytes are not what they are said to be.
    #[error("{0}")]
    Broken(String),
    /// A part of the answer could not be had, so that the whole is worth nothing.
    #[error("{0}")]
    Subrequest(String),
    /// A slice is not one of the body that it was asked for.
    #[error("{0}")]
    Slice(String),
    /// A file could not be read, or is shorter than it was.
    #[error("file is not readable: {0}")]
    File(String),
}

/// A source of pieces that may have to be waited for.
pub trait BodyStream {
    /// The next piece, `None` at the end.
    fn poll_next(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Piece, BodyError>>>;

    /// Asks for only this part of the body, before the first piece was taken; false when the stream
    /// must be read from its start.
    fn narrow(self: Pin<&mut Self>, _wanted: std::ops::Range<u64>) -> bool {
        false
    }

    /// Says that files are sent without being read: a stream that will soon have its bytes in files
    /// may wait for that.
    fn prefer_files(self: Pin<&mut Self>) {}

    /// The whole body, if all of it is there and nothing was taken from it; the stream has ended
    /// then.
    fn take_whole(self: Pin<&mut Self>) -> Option<Bytes> {
        None
    }

    /// True if [`Self::fork`] gives streams.
    fn can_fork(&self) -> bool {
        false
    }

    /// Another stream of a part of the same body, whatever was taken from this one; `None` when it
    /// can be read only once.
    fn fork(&self, _wanted: std::ops::Range<u64>) -> Option<Pin<Box<dyn BodyStream>>> {
        None
    }

    /// Trailer fields; asked for once, after the end.
    fn take_trailers(self: Pin<&mut Self>) -> Option<Fields> {
        None
    }
}

/// A body.
#[derive(Default)]
pub enum Body {
    /// No bytes.
    #[default]
    Empty,
    /// One piece.
    One(Piece),
    /// Several pieces.
    Many(VecDeque<Piece>),
    /// Pieces to come.
    Stream(Pin<Box<dyn BodyStream>>),
}

impl Piece {
    /// Bytes of the piece.
    pub fn len(&self) -> u64 {
        match self {
            Piece::Memory(bytes) => bytes.len() as u64,
            Piece::File(region) => region.len,
        }
    }

    /// True for a piece without bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Splits off and returns the first `count` bytes; all of them when there are fewer.
    pub fn split_to(&mut self, count: u64) -> Piece {
        let count = count.min(self.len());
        match self {
            Piece::Memory(bytes) => Piece::Memory(bytes.split_to(count as usize)),
            Piece::File(region) => {
                let mut head = region.clone();
                head.len = count;
                region.offset += count;
                region.len -= count;
                Piece::File(head)
            }
        }
    }

    /// Leaves `len` bytes from `start` on, or as many of them as there are.
    pub fn narrow(&mut self, start: u64, len: u64) {
        let start = start.min(self.len());
        let len = len.min(self.len() - start);
        match self {
            Piece::Memory(bytes) => {
                bytes.advance(start as usize);
                bytes.truncate(len as usize);
            }
            Piece::File(region) => {
                region.offset += start;
                region.len = len;
            }
        }
    }

    /// The bytes of at most [`FILE_READ_SIZE`] of the piece, taken from its front.
    ///
    /// Reads a file synchronously; an unexpected end of file is an error.
    pub fn take_memory(&mut self) -> Result<Bytes, BodyError> {
        match self {
            Piece::Memory(bytes) => Ok(std::mem::take(bytes)),
            Piece::File(_) => {
                let Piece::File(head) = self.split_to(FILE_READ_SIZE as u64) else {
                    return Ok(Bytes::new());
                };
                head.read()
            }
        }
    }
}

impl FileRegion {
    /// Reads the whole region into memory; the caller bounds its length.
    pub fn read(&self) -> Result<Bytes, BodyError> {
        let mut block = Block::lent(self.len as usize);
        self.read_into(&mut block.memory)?;
        Ok(block.into_bytes())
    }

    /// Reads the first bytes of the region, as many as there is room for.
    pub fn read_into(&self, buf: &mut [u8]) -> Result<(), BodyError> {
        let file = self.file.file();
        let read = file.and_then(|file| file.read_exact_at(buf, self.offset));
        if let (Err(error), FileSource::Held(file)) = (&read, &self.file) {
            // The disk is told; whose fault it is does not matter here.
            file.has_refused(self.offset..self.offset + buf.len() as u64, error);
        }
        if read.is_ok() {
            self.file.note_taken(buf.len() as u64);
        }
        read.map_err(|error: io::Error| BodyError::File(error.to_string()))
    }
}

/// The most blocks that a thread keeps (arbitrary: 2 MiB, which 64 bodies fill that are sent at
/// once).
const BLOCKS_KEPT: usize = 64;

thread_local! {
    /// Blocks of [`FILE_READ_SIZE`] that nobody has a share in.
    static BLOCKS: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
}

/// Memory that a piece of a file is read into. One of the usual length is used again by the thread
/// that drops it: neither is it cleared each time, nor does the kernel get and give its pages.
struct Block {
    memory: Vec<u8>,
}

impl Block {
    /// Memory of `len` bytes, with any content.
    fn lent(len: usize) -> Block {
        let kept = || BLOCKS.with_borrow_mut(Vec::pop);
        let memory = (len == FILE_READ_SIZE).then(kept).flatten();
        Block {
            memory: memory.unwrap_or_else(|| vec![0; len]),
        }
    }

    /// The bytes, which hold the block until the last share in them is gone.
    fn into_bytes(self) -> Bytes {
        if self.memory.len() == FILE_READ_SIZE {
            Bytes::from_owner(self)
        } else {
            let mut block = self;
            Bytes::from(std::mem::take(&mut block.memory))
        }
    }
}

impl AsRef<[u8]> for Block {
    fn as_ref(&self) -> &[u8] {
        &self.memory
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        let memory = std::mem::take(&mut self.memory);
        if memory.len() != FILE_READ_SIZE {
            return;
        }
        // A thread that ends keeps nothing.
        let _ = BLOCKS.try_with(|blocks| {
            if let Ok(mut blocks) = blocks.try_borrow_mut()
                && blocks.len() < BLOCKS_KEPT
            {
                blocks.push(memory);
            }
        });
    }
}

impl From<Bytes> for Body {
    fn from(bytes: Bytes) -> Self {
        if bytes.is_empty() {
            Body::Empty
        } else {
            Body::One(Piece::Memory(bytes))
        }
    }
}

impl From<VecDeque<Piece>> for Body {
    fn from(mut pieces: VecDeque<Piece>) -> Self {
        match pieces.len() {
            0 => Body::Empty,
            1 => pieces.pop_front().map_or(Body::Empty, Body::One),
            _ => Body::Many(pieces),
        }
    }
}

impl Body {
    /// A body read from a stream.
    pub fn stream(stream: impl BodyStream + 'static) -> Self {
        Body::Stream(Box::pin(stream))
    }

    /// Takes a stream's bytes, if all of them are there.
    pub fn settle(&mut self) {
        if let Body::Stream(stream) = self
            && let Some(bytes) = stream.as_mut().take_whole()
        {
            *self = Body::from(bytes);
        }
    }

    /// True when it is known that no byte will come.
    pub fn is_empty(&self) -> bool {
        matches!(self, Body::Empty)
    }

    /// The pieces that are there already.
    pub fn pieces(&self) -> impl Iterator<Item = &Piece> {
        let (one, many) = match self {
            Body::One(piece) => (Some(piece), None),
            Body::Many(pieces) => (None, Some(pieces)),
            Body::Empty | Body::Stream(_) => (None, None),
        };
        one.into_iter().chain(many.into_iter().flatten())
    }

    /// True if any part of the body can be had, also several, in any order.
    pub fn has_random_access(&self) -> bool {
        match self {
            Body::Stream(stream) => stream.can_fork(),
            _ => true,
        }
    }

    /// The next piece; `None` at the end.
    pub fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Piece, BodyError>>> {
        match self {
            Body::Empty => Poll::Ready(None),
            Body::One(_) => {
                let Body::One(piece) = std::mem::take(self) else {
                    return Poll::Ready(None);
                };
                Poll::Ready(Some(Ok(piece)))
            }
            Body::Many(pieces) => Poll::Ready(pieces.pop_front().map(Ok)),
            Body::Stream(stream) => stream.as_mut().poll_next(cx),
        }
    }

    /// Passes [`BodyStream::prefer_files`] on to a stream.
    pub fn prefer_files(&mut self) {
        if let Body::Stream(stream) = self {
            stream.as_mut().prefer_files();
        }
    }

    /// Waits for the next piece; `None` at the end.
    pub async fn next(&mut self) -> Option<Result<Piece, BodyError>> {
        std::future::poll_fn(|cx| self.poll_next(cx)).await
    }

    /// Trailer fields, after the end.
    pub fn take_trailers(&mut self) -> Option<Fields> {
        match self {
            Body::Stream(stream) => stream.as_mut().take_trailers(),
            _ => None,
        }
    }
}

/// A stream that can only be read from its start, cut to a part of it.
struct Cut {
    stream: Pin<Box<dyn BodyStream>>,
    skip: u64,
    left: u64,
}

impl BodyStream for Cut {
    fn poll_next(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Piece, BodyError>>> {
        let this = &mut *self;
        while this.left > 0 {
            let mut piece = match std::task::ready!(this.stream.as_mut().poll_next(cx)) {
                Some(Ok(piece)) => piece,
                end => return Poll::Ready(end),
            };
            let skipped = piece.split_to(this.skip);
            this.skip -= skipped.len();
            if !piece.is_empty() {
                let piece = piece.split_to(this.left);
                this.left -= piece.len();
                return Poll::Ready(Some(Ok(piece)));
            }
        }
        Poll::Ready(None)
    }

    fn prefer_files(mut self: Pin<&mut Self>) {
        self.stream.as_mut().prefer_files();
    }
}

impl Body {
    /// Cuts the body to a part of it, before anything was taken from it.
    pub fn narrow(&mut self, wanted: std::ops::Range<u64>) {
        let body = std::mem::take(self);
        let mut pieces = match body {
            Body::Empty => return,
            Body::One(piece) => VecDeque::from([piece]),
            Body::Many(pieces) => pieces,
            Body::Stream(mut stream) => {
                let left = wanted.end.saturating_sub(wanted.start);
                if !stream.as_mut().narrow(wanted.clone()) {
                    stream = Box::pin(Cut {
                        stream,
                        skip: wanted.start,
                        left,
                    });
                }
                *self = Body::Stream(stream);
                return;
            }
        };
        let mut skip = wanted.start;
        let mut left = wanted.end.saturating_sub(wanted.start);
        for mut piece in std::mem::take(&mut pieces) {
            skip -= piece.split_to(skip).len();
            let part = piece.split_to(left);
            if !part.is_empty() {
                left -= part.len();
                pieces.push_back(part);
            }
        }
        *self = Body::from(pieces);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn memory(text: &'static str) -> Piece {
        Piece::Memory(Bytes::from_static(text.as_bytes()))
    }

    struct Texts(VecDeque<&'static str>);

    impl BodyStream for Texts {
        fn poll_next(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Piece, BodyError>>> {
            Poll::Ready(self.0.pop_front().map(|text| Ok(memory(text))))
        }
    }

    fn text(mut body: Body) -> String {
        let mut out = Vec::new();
        let mut cx = Context::from_waker(std::task::Waker::noop());
        while let Poll::Ready(Some(piece)) = body.poll_next(&mut cx) {
            out.extend_from_slice(&piece.unwrap().take_memory().unwrap());
        }
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_block_is_used_again_when_nobody_has_a_share_in_it() {
        let block = Block::lent(FILE_READ_SIZE);
        let place = block.memory.as_ptr();
        let bytes = block.into_bytes();
        let share = bytes.slice(1..2);
        drop(bytes);
        assert_ne!(Block::lent(FILE_READ_SIZE).memory.as_ptr(), place);
        drop(share);
        assert_eq!(Block::lent(FILE_READ_SIZE).memory.as_ptr(), place);
        assert_eq!(Block::lent(3).into_bytes().len(), 3);
    }

    #[test]
    fn any_body_is_cut_to_any_part() {
        let texts = ["0123", "45", "6789"];
        for start in 0..=10 {
            for end in start..=12 {
                let whole = "0123456789";
                let expected = &whole[start..end.min(10)];
                let wanted = start as u64..end as u64;
                let mut many = Body::from(VecDeque::from(texts.map(memory)));
                many.narrow(wanted.clone());
                assert_eq!(text(many), expected, "{wanted:?}");
                let mut one = Body::One(memory("0123456789"));
                one.narrow(wanted.clone());
                assert_eq!(text(one), expected, "{wanted:?}");
                let mut stream = Body::stream(Texts(texts.into()));
                stream.narrow(wanted.clone());
                assert_eq!(text(stream), expected, "{wanted:?}");
            }
        }
    }
}
