//! Compression of a body while it is sent, whatever the coding, and its levels.
//!
//! The body is pulled piece by piece; what is compressed is handed on in pieces of about
//! `OUTPUT_SIZE`, and when the source has nothing for the moment, what it gave is flushed, so
//! that a slow stream is not held back.
//!
//! Invariants:
//! 1. Not more than one input piece, the compressor's state and `OUTPUT_SIZE` with one compressed
//!    input are held.
//! 2. A body that fails is not finished: the client sees that it is cut.
//! 3. A body of which little comes out, however much goes in, lets other connections have their
//!    turn.

use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use bytes::Bytes;
use millpond_conf::{ArgError, Args, FromArgs};
use millpond_system::body::{Body, BodyError, BodyStream, FILE_READ_SIZE, Piece};
use millpond_wire::header::Fields;
use tokio::task::coop::poll_proceed;

use crate::request::state::CompressedLens;

/// Amount of compressed data that is gathered before it is sent: as much as one read of a file.
const OUTPUT_SIZE: usize = FILE_READ_SIZE;
/// Part of a task's budget of 128 that one part of the input takes, beside one for a read of a
/// socket (arbitrary: half a megabyte a turn is some ten milliseconds of text).
const PART_COST: u32 = 8;

/// A level of compression, within the bounds of its coding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Level<const LEAST: u32, const MOST: u32>(pub(super) u32);

impl<const LEAST: u32, const MOST: u32> FromArgs for Level<LEAST, MOST> {
    const SYNTAX: &'static str = "number";

    fn from_args(args: &mut Args<'_>) -> Result<Self, ArgError> {
        args.one()?;
        match args.word(0)? {
            level if level < LEAST => {
                let message = format!("value must be equal to or greater than {LEAST}");
                Err(ArgError::value(0, message))
            }
            level if level > MOST => {
                let message = format!("value must be equal to or less than {MOST}");
                Err(ArgError::value(0, message))
            }
            level => Ok(Level(level)),
        }
    }
}

/// The compressor of one body. Each function adds what comes out to `out`.
pub(crate) trait Compressor {
    /// Takes input, of which some may be held back.
    fn take(&mut self, input: &[u8], out: &mut Vec<u8>) -> io::Result<()>;
    /// Gives out what is held back, so that what was taken can be read.
    fn flush(&mut self, out: &mut Vec<u8>) -> io::Result<()>;
    /// Ends the stream; nothing is called behind it.
    fn finish(&mut self, out: &mut Vec<u8>) -> io::Result<()>;
}

/// Compresses a body while it is sent, and counts its bytes.
pub(crate) fn compress_body(
    body: Body,
    compressor: impl Compressor + Unpin + 'static,
    lens: Rc<CompressedLens>,
) -> Body {
    Body::stream(Compressed {
        inner: body,
        current: None,
        compressor,
        output: Vec::new(),
        state: State::Flushed,
        lens,
    })
}

/// Place at which the compressed stream stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Everything that came in is on its way.
    Flushed,
    /// The compressor holds something back.
    Holding,
    /// The end was written.
    Ended,
}

/// A body that is compressed.
struct Compressed<C> {
    inner: Body,
    /// Rest of the last piece.
    current: Option<Piece>,
    compressor: C,
    output: Vec<u8>,
    state: State,
    lens: Rc<CompressedLens>,
}

impl<C: Compressor + Unpin> BodyStream for Compressed<C> {
    fn poll_next(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Piece, BodyError>>> {
        while self.state != State::Ended && self.output.len() < OUTPUT_SIZE {
            // INVARIANT 3.
            if self.current.is_some() && poll_turn(cx).is_pending() {
                if self.output.is_empty() {
                    return Poll::Pending;
                } else {
                    break;
                }
            }
            if let Err(error) = self.compress_current() {
                return Poll::Ready(Some(Err(error)));
            }
            if self.current.is_some() {
                continue;
            }
            let done = match self.inner.poll_next(cx) {
                Poll::Ready(Some(Ok(piece))) => {
                    self.current = Some(piece);
                    Ok(())
                }
                Poll::Ready(Some(Err(error))) => Err(error),
                Poll::Ready(None) => self.turn_to(State::Ended),
                Poll::Pending if self.state == State::Holding => self.turn_to(State::Flushed),
                Poll::Pending if self.output.is_empty() => return Poll::Pending,
                Poll::Pending => break,
            };
            if let Err(error) = done {
                return Poll::Ready(Some(Err(error)));
            }
        }
        let output = std::mem::take(&mut self.output);
        if output.is_empty() {
            return Poll::Ready(None);
        }
        Poll::Ready(Some(Ok(Piece::Memory(Bytes::from(output)))))
    }

    fn take_trailers(mut self: Pin<&mut Self>) -> Option<Fields> {
        super::trailers_of_changed(self.inner.take_trailers())
    }
}

/// Takes what a part of the input costs from the task's budget; pending when the turn is over.
fn poll_turn(cx: &mut Context<'_>) -> Poll<()> {
    for _ in 0..PART_COST {
        std::task::ready!(poll_proceed(cx)).made_progress();
    }
    Poll::Ready(())
}

impl<C: Compressor> Compressed<C> {
    /// Compresses the next part of the current piece.
    fn compress_current(&mut self) -> Result<(), BodyError> {
        let Some(piece) = &mut self.current else {
            return Ok(());
        };
        let input = piece.split_to(FILE_READ_SIZE as u64).take_memory()?;
        if piece.is_empty() {
            self.current = None;
        }
        self.lens
            .before
            .set(self.lens.before.get() + input.len() as u64);
        self.state = State::Holding;
        self.count(|compressor, out| compressor.take(&input, out))
    }

    /// Flushes or ends the stream.
    fn turn_to(&mut self, state: State) -> Result<(), BodyError> {
        self.state = state;
        self.count(|compressor, out| match state {
            State::Ended => compressor.finish(out),
            _ => compressor.flush(out),
        })
    }

    /// Runs the compressor and counts what comes out.
    fn count(
        &mut self,
        run: impl FnOnce(&mut C, &mut Vec<u8>) -> io::Result<()>,
    ) -> Result<(), BodyError> {
        let before = self.output.len();
        let outcome = run(&mut self.compressor, &mut self.output);
        let added = self.output.len() - before;
        self.lens.after.set(self.lens.after.get() + added as u64);
        outcome.map_err(|error| BodyError::Broken(format!("compression failed: {error}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::filter::{brotli, gzip, zstd};
    use std::collections::VecDeque;
    use std::io::Read;
    use std::task::Waker;

    const TEXT: [&[u8]; 2] = [b"The pond freezes over", b", and the mill stands still."];

    /// A source that says "not yet" after each piece.
    struct Halting(VecDeque<&'static [u8]>, bool);

    impl BodyStream for Halting {
        fn poll_next(
            mut self: Pin<&mut Self>,
            _cx: &mut Context<'_>,
        ) -> Poll<Option<Result<Piece, BodyError>>> {
            self.1 = !self.1;
            if !self.1 {
                return Poll::Pending;
            }
            let piece = self.0.pop_front();
            Poll::Ready(piece.map(|bytes| Ok(Piece::Memory(Bytes::from_static(bytes)))))
        }
    }

    /// The next piece; empty at the end.
    fn next(body: &mut Body) -> Vec<u8> {
        let mut cx = Context::from_waker(Waker::noop());
        loop {
            match body.poll_next(&mut cx) {
                Poll::Ready(Some(piece)) => return piece.unwrap().take_memory().unwrap().to_vec(),
                Poll::Ready(None) => return Vec::new(),
                Poll::Pending => {}
            }
        }
    }

    /// Checks that text before a pause of the source can be read, and all of it at the end.
    fn check_pause<R: Read>(
        compressor: impl Compressor + Unpin + 'static,
        reader: impl Fn(io::Cursor<Vec<u8>>) -> R,
    ) {
        let lens = Rc::<CompressedLens>::default();
        let source = Body::stream(Halting(VecDeque::from(TEXT), false));
        let mut body = compress_body(source, compressor, Rc::clone(&lens));
        let mut whole = next(&mut body);
        let mut first = vec![0; TEXT[0].len()];
        let mut early = reader(io::Cursor::new(whole.clone()));
        early.read_exact(&mut first).unwrap();
        assert_eq!(first, TEXT[0]);
        loop {
            let piece = next(&mut body);
            if piece.is_empty() {
                break;
            }
            whole.extend(piece);
        }
        assert_eq!(lens.before.get(), TEXT.concat().len() as u64);
        assert_eq!(lens.after.get(), whole.len() as u64);
        let mut text = Vec::new();
        reader(io::Cursor::new(whole))
            .read_to_end(&mut text)
            .unwrap();
        assert_eq!(text, TEXT.concat());
    }

    #[test]
    fn pause_of_the_source_flushes_what_it_gave() {
        let plan = gzip::Plan {
            level: 1,
            window_bits: 15,
        };
        check_pause(plan.compressor(), flate2::read::GzDecoder::new);
        for level in [0, 6, 11] {
            let plan = brotli::Plan {
                level,
                window_bits: 19,
            };
            check_pause(plan.compressor(), |bytes| {
                ::brotli::Decompressor::new(bytes, 4096)
            });
        }
        for (level, length) in [(1, None), (3, Some(TEXT.concat().len() as u64)), (22, None)] {
            let plan = zstd::Plan { level, length };
            check_pause(plan.compressor(), |bytes| {
                ::zstd::stream::read::Decoder::new(bytes).unwrap()
            });
        }
    }

    /// A body that is shorter than was said does not end as if it were whole.
    #[test]
    fn length_that_is_not_kept_breaks_the_body() {
        let plan = zstd::Plan {
            level: 1,
            length: Some(1000),
        };
        let source = Body::from(Bytes::from_static(b"short"));
        let mut body = compress_body(source, plan.compressor(), Rc::default());
        let mut cx = Context::from_waker(Waker::noop());
        let ended = body.poll_next(&mut cx);
        assert!(matches!(
            ended,
            Poll::Ready(Some(Err(BodyError::Broken(_))))
        ));
    }
}
