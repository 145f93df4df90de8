//! The memory in which a worker writes heads of requests to upstreams.
//!
//! Heads are small and short-lived, so they stand one behind the other in one block.
//!
//! Invariant: a head that was written never moves or changes.

use std::cell::Cell;

use bytes::{Bytes, BytesMut};

/// The block that a worker writes the heads of requests to upstreams into, one behind the other. It
/// is used again when all of them are gone, and left to them when it is full.
#[derive(Default)]
pub struct HeadBlock(Cell<BytesMut>);

/// Bytes of a block (arbitrary: some tens of heads; a head that is kept keeps its block).
const BLOCK_SIZE: usize = 4096;

/// Bytes that most heads take; there is room for so many before one is begun.
const USUAL_HEAD: usize = 512;

impl HeadBlock {
    /// Returns the head that `write` writes, in memory that the next heads share.
    pub fn write(&self, write: impl FnOnce(&mut BytesMut)) -> Bytes {
        let mut block = self.0.take();
        match block.capacity() {
            0 => block.reserve(BLOCK_SIZE),
            _ => block.reserve(USUAL_HEAD),
        }
        write(&mut block);
        let head = block.split().freeze();
        self.0.set(block);
        head
    }
}
