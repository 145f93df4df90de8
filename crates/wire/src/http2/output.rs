//! Bytes that are to be written: heads and short pieces in a block, long pieces as they are.
//!
//! ```text
//! pieces  [block: heads, short data][long][block: a frame's head][long] …   block (not yet cut)
//! ```
//!
//! 1. A piece of a body that is `SPLICED` bytes or longer is not copied.
//! 2. What was given out by [`Output::slices`] stays until [`Output::advance`] says that it is
//!    written.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::task::Poll;

use bytes::{Buf, Bytes, BytesMut};

/// Bytes from which on a piece is not copied (arbitrary: where a copy begins to cost more than a
/// piece of its own does).
const SPLICED: usize = 2048;
/// Bytes of the first block (arbitrary: dozens of heads of answers), and of those behind one that
/// was filled (a record of TLS).
const BLOCKS: [usize; 2] = [4096, 16 * 1024];

/// Pieces that are written at once.
const SLICES: usize = 16;

/// Bytes that there is room for when something is to be written (arbitrary: most heads fit).
const ROOM: usize = 512;

/// Bytes that are to be written.
#[derive(Debug, Default)]
pub struct Output {
    pieces: VecDeque<Bytes>,
    block: BytesMut,
    /// Bytes of the pieces.
    cut: usize,
    /// True if a block was filled.
    is_busy: bool,
}

impl Output {
    /// Bytes that wait.
    #[must_use]
    #[inline]
    pub fn len(&self) -> usize {
        self.cut + self.block.len()
    }

    /// True if nothing waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The block, to be written to.
    #[inline]
    pub(crate) fn block(&mut self) -> &mut BytesMut {
        self.make_room(ROOM);
        &mut self.block
    }

    /// Begins a new block where the old one has no room for so many bytes, so that nothing that is
    /// written moves.
    #[inline]
    fn make_room(&mut self, len: usize) {
        if self.block.capacity() - self.block.len() < len {
            self.begin_block(len);
        }
    }

    #[cold]
    fn begin_block(&mut self, len: usize) {
        self.is_busy |= !self.block.is_empty();
        self.cut_block();
        let [first, later] = BLOCKS;
        let size = if self.is_busy { later } else { first };
        self.block.reserve(size.max(len));
    }

    /// Adds a piece of a body. INVARIANT 1.
    #[inline]
    pub(crate) fn push(&mut self, piece: Bytes) {
        if piece.len() < SPLICED {
            self.make_room(piece.len());
            return self.block.extend_from_slice(&piece);
        }
        self.cut_block();
        self.cut += piece.len();
        self.pieces.push_back(piece);
    }

    fn cut_block(&mut self) {
        if !self.block.is_empty() {
            self.cut += self.block.len();
            self.pieces.push_back(self.block.split().freeze());
        }
    }

    /// Fills in what is to be written first; returns how many were filled in.
    pub fn slices<'a>(&'a self, into: &mut [IoSlice<'a>]) -> usize {
        let block = (!self.block.is_empty()).then_some(&self.block[..]);
        let all = self.pieces.iter().map(|piece| &piece[..]).chain(block);
        let mut count = 0;
        for (place, bytes) in into.iter_mut().zip(all) {
            *place = IoSlice::new(bytes);
            count += 1;
        }
        count
    }

    /// Has `send` write what is to be written first, and drops what it took.
    ///
    /// # Errors
    /// Those of `send`; nothing is dropped then.
    pub fn poll_write(
        &mut self,
        send: impl FnOnce(&[IoSlice<'_>]) -> Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        let mut slices = [IoSlice::new(&[]); SLICES];
        let count = self.slices(&mut slices);
        let sent = send(slices.get(..count).unwrap_or_default());
        if let Poll::Ready(Ok(count)) = &sent {
            self.advance(*count);
        }
        sent
    }

    /// Takes the first piece, to be written by the caller.
    pub fn take(&mut self) -> Option<Bytes> {
        if self.pieces.is_empty() {
            self.cut_block();
        }
        let piece = self.pieces.pop_front()?;
        self.cut -= piece.len();
        Some(piece)
    }

    /// Drops so many bytes, which were written.
    pub fn advance(&mut self, count: usize) {
        let mut left = count;
        while let Some(first) = self.pieces.front_mut() {
            if first.len() > left {
                first.advance(left);
                self.cut -= left;
                return;
            }
            left -= first.len();
            self.cut -= first.len();
            self.pieces.pop_front();
        }
        if left >= self.block.len() {
            self.block.clear();
        } else {
            self.block.advance(left);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(output: &Output) -> Vec<u8> {
        let mut slices = [IoSlice::new(&[]); 8];
        let count = output.slices(&mut slices);
        let all: Vec<u8> = slices[..count].iter().flat_map(|it| it.to_vec()).collect();
        assert_eq!(all.len(), output.len());
        all
    }

    #[test]
    fn pieces_go_out_in_order_however_they_are_taken() {
        let long = Bytes::from(vec![b'l'; SPLICED]);
        for step in [1, 7, SPLICED, 3 * SPLICED] {
            let mut output = Output::default();
            let mut expected = Vec::new();
            for piece in [
                Bytes::from_static(b"head"),
                long.clone(),
                long.clone(),
                "x".into(),
            ] {
                expected.extend_from_slice(&piece);
                output.push(piece);
            }
            assert_eq!(written(&output), expected);
            let mut taken = 0;
            while !output.is_empty() {
                let len = step.min(output.len());
                output.advance(len);
                taken += len;
                assert_eq!(written(&output), expected[taken..], "{step} {taken}");
            }
        }
    }

    #[test]
    fn long_pieces_are_not_copied_and_short_ones_stand_together() {
        let long = Bytes::from(vec![b'l'; SPLICED]);
        let mut output = Output::default();
        output.push(Bytes::from_static(b"a"));
        output.push(Bytes::from_static(b"b"));
        output.push(long.clone());
        output.push(Bytes::from_static(b"c"));
        assert_eq!(output.take().unwrap(), "ab");
        assert_eq!(output.take().unwrap().as_ptr(), long.as_ptr());
        assert_eq!(output.take().unwrap(), "c");
        assert_eq!(output.take(), None);
    }
}
