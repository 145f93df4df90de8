//! The tables of all shards, and what of them is read without a lock.
//!
//! ```text
//!   block 0   row 0    shard 0: positions 0..256 | shard 1: 0..256 | …
//!   block 1   row 1    shard 0: positions 256..512 | …
//!             row 2    …
//!   block 2   rows 3 to 6, and so on: each block has twice as many as the one before
//! ```
//!
//! Shards grow alike, because keys are spread evenly; so each row has room for the same positions
//! of all, and a table grows where it stands.
//!
//! A reader takes the version of a shard, looks, and takes it again: if both are the same and even,
//! nothing has changed meanwhile. If not, it asks again with the lock; so readers wait for writers
//! at most once, never for readers, and write to nothing.
//!
//! 1. Memory is neither moved nor given back while the field lives, so what is read late is old or
//!    mixed, but is a cell.
//! 2. A shard is changed by one writer at a time, who makes the version odd before the first change
//!    and even after the last.
//!
//! It gives no memory back to the system before it goes: what a zone needed once, it needs again.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence};

use super::block::{Block, NOTHING, RUN, Run};
use super::rows::Rows;
use super::slot::{Cell, Slot};
use super::{SHARD_BITS, SHARDS};
use crate::key::Key;

/// The last one would end behind more cells than any memory has.
const BLOCKS: usize = 24;

/// What a reader without a lock must know of a shard. Alone on its line.
#[derive(Debug)]
#[repr(align(64))]
pub(super) struct Front {
    /// INVARIANT 2.
    version: AtomicU64,
    /// Positions of its table.
    len: AtomicUsize,
    /// Whether older slots may still come.
    is_loading: AtomicBool,
}

impl Front {
    /// Begins a change, by whoever has the shard alone.
    pub(super) fn begin(&self) {
        let version = self.version.load(Ordering::Relaxed);
        self.version.store(version | 1, Ordering::Relaxed);
        fence(Ordering::Release);
    }

    /// Ends a change.
    pub(super) fn end(&self) {
        let version = self.version.load(Ordering::Relaxed);
        self.version.store((version | 1) + 1, Ordering::Release);
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        self.len.load(Ordering::Relaxed)
    }

    #[inline]
    pub(super) fn is_loading(&self) -> bool {
        self.is_loading.load(Ordering::Relaxed)
    }

    /// Nothing older comes any more; within a change.
    pub(super) fn end_loading(&self) {
        self.is_loading.store(false, Ordering::Relaxed);
    }
}

/// All shards' cells.
pub(crate) struct Field {
    fronts: Box<[Front; SHARDS]>,
    blocks: [OnceLock<Block>; BLOCKS],
}

impl Field {
    /// Tables without positions, which are being loaded.
    pub(crate) fn new() -> Self {
        let front = |_| Front {
            version: AtomicU64::new(0),
            len: AtomicUsize::new(0),
            is_loading: AtomicBool::new(true),
        };
        Self {
            fronts: Box::new(std::array::from_fn(front)),
            blocks: [const { OnceLock::new() }; BLOCKS],
        }
    }

    #[inline]
    pub(super) fn front(&self, shard: usize) -> &Front {
        // There are as many as the remainder has values.
        &self.fronts[shard % SHARDS]
    }

    /// The cells of a shard, as many as it has now.
    #[inline]
    pub(super) fn rows(&self, shard: usize) -> Rows<'_> {
        Rows::new(self, shard)
    }

    /// What a row has for a shard; empty cells if there is no such row.
    #[inline]
    pub(super) fn run(&self, row: usize, shard: usize) -> &Run {
        // Counted from one, the highest bit of a row is that of its block.
        let row = row + 1;
        let power = row.ilog2();
        let number = (row ^ (1 << power)) << SHARD_BITS | shard;
        let block = self.blocks.get(power as usize).and_then(OnceLock::get);
        block
            .and_then(|block| block.run(number))
            .unwrap_or(&NOTHING)
    }

    /// Gives a shard other positions, for which there is memory then; within a change.
    pub(super) fn resize(&self, shard: usize, len: usize) {
        let rows = len.div_ceil(RUN);
        // Rows up to 2^n - 2 are in the first n blocks.
        let blocks = (usize::BITS - rows.leading_zeros()) as usize;
        for (power, block) in self.blocks.iter().take(blocks).enumerate() {
            block.get_or_init(|| Block::with_rows(1 << power));
        }
        self.front(shard).len.store(len, Ordering::Relaxed);
    }

    /// Begins to look without a lock; none if the shard is being changed.
    #[inline]
    pub(super) fn look(&self, shard: usize) -> Option<Look<'_>> {
        let front = self.front(shard);
        let version = front.version.load(Ordering::Acquire);
        version.is_multiple_of(2).then(|| Look {
            front,
            version,
            rows: self.rows(shard),
        })
    }
}

impl std::fmt::Debug for Field {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Field").finish_non_exhaustive()
    }
}

/// A look at a shard without a lock. What it shows counts if it is still true in the end.
pub(super) struct Look<'a> {
    front: &'a Front,
    version: u64,
    rows: Rows<'a>,
}

impl<'a> Look<'a> {
    /// The cell of a key, and a copy.
    #[inline]
    pub(super) fn find(&self, key: &Key) -> Option<(Cell<'a>, Slot)> {
        let (_, cell) = self.rows.find(key)?;
        Some((cell, cell.slot()))
    }

    /// The cell of a key that stands where most do; none says nothing.
    #[inline]
    pub(super) fn find_near(&self, key: &Key) -> Option<Cell<'a>> {
        let (_, cell) = self.rows.find_near(key)?;
        Some(cell)
    }

    #[inline]
    pub(super) fn is_loading(&self) -> bool {
        self.front.is_loading()
    }

    /// Whether nothing has changed since it began.
    #[inline]
    pub(super) fn is_true(&self) -> bool {
        fence(Ordering::Acquire);
        self.front.version.load(Ordering::Relaxed) == self.version
    }
}
