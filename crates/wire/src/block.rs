//! Short texts that are cut from a block, for less than an allocation each.
//!
//! They share the block's memory with those beside them: it is free again when the last is gone,
//! and used again if the block is still the one that is cut from. So a text that is kept for long
//! keeps its block.

use std::cell::Cell;

use bytes::{Bytes, BytesMut};

/// The block that texts of a kind are cut from.
pub struct Block {
    rest: Cell<BytesMut>,
    /// Bytes of a new block.
    size: usize,
}

impl Block {
    /// Blocks of so many bytes; the first is made for the first text.
    #[must_use]
    pub fn new(size: usize) -> Self {
        Block {
            rest: Cell::default(),
            size,
        }
    }

    /// A copy of a text, whatever its length.
    pub fn cut(&self, text: &[u8]) -> Bytes {
        let mut rest = self.rest.take();
        if rest.capacity() < text.len() {
            rest.reserve(text.len().max(self.size));
        }
        rest.extend_from_slice(text);
        let own = rest.split().freeze();
        self.rest.set(rest);
        own
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_kept_whatever_its_length() {
        const SIZE: usize = 4096;
        let block = Block::new(SIZE);
        let lens = [0, 1, 100, SIZE - 101, 1, SIZE, 9000, 3];
        let written = lens.map(|len| {
            (0..len)
                .map(|at| b'a' + (at % 26) as u8)
                .collect::<Vec<u8>>()
        });
        let texts = written.clone().map(|text| block.cut(&text));
        for (text, written) in texts.iter().zip(written) {
            assert_eq!(*text, written);
        }
    }
}
