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
//! of all, and a table grows where it stands. While it does, it has two [`Layout`]s at once, each
//! for a part of all keys.
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
//! Memory that is touched for the first time costs its toucher the clearing of a huge page, and a
//! virtual machine as much again and more: up to tens of milliseconds. So a thread of its own does
//! that for the rows of the next growth, shortly before they are needed ([`Field::prepare`]).
//!
//! It gives no memory back to the system before it goes: what a zone needed once, it needs again.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence};
use std::sync::{Arc, OnceLock};

use super::block::{Block, NOTHING, RUN, Run};
use super::layout::Layout;
use super::rows::Rows;
use super::slot::{Cell, Slot, Words};
use super::{SHARD_BITS, SHARDS};
use crate::key::Key;

/// Rows that nobody touches ahead: of three megabytes, in small pages.
const SMALL_ROWS: usize = 1;

/// The last one would end behind more cells than any memory has.
const BLOCKS: usize = 24;

/// State of a shard that a reader without a lock must know. Alone on its line.
#[derive(Debug)]
#[repr(align(64))]
pub(super) struct Front {
    /// INVARIANT 2.
    version: AtomicU64,
    /// Layout of the shard's table.
    low: AtomicUsize,
    high: AtomicUsize,
    frontier: AtomicU64,
    /// True if older slots may still come.
    is_loading: AtomicBool,
    /// True if some slots have no cell.
    has_spilled: AtomicBool,
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

    /// Homes of the keys.
    #[inline]
    pub(super) fn layout(&self) -> Layout {
        Layout {
            low: self.low.load(Ordering::Relaxed),
            high: self.high.load(Ordering::Relaxed),
            frontier: self.frontier.load(Ordering::Relaxed),
        }
    }

    /// Says where keys are at home from now on; within a change.
    pub(super) fn set_layout(&self, layout: Layout) {
        self.low.store(layout.low, Ordering::Relaxed);
        self.high.store(layout.high, Ordering::Relaxed);
        self.frontier.store(layout.frontier, Ordering::Relaxed);
    }

    /// True if what is not found in the cells may be among the slots that have none.
    #[inline]
    pub(super) fn has_spilled(&self) -> bool {
        self.has_spilled.load(Ordering::Relaxed)
    }

    /// Notes whether there are slots without a cell; within a change.
    pub(super) fn set_spilled(&self, has_spilled: bool) {
        self.has_spilled.store(has_spilled, Ordering::Relaxed);
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
    /// Rows that were touched, or are being touched.
    prepared: AtomicUsize,
    /// Rows that were touched.
    ready: AtomicUsize,
}

/// Cells between two that are touched: no more than a small page holds.
const TOUCHED: usize = 4096 / size_of::<Words>();

impl Field {
    /// Tables without positions, which are being loaded.
    pub(crate) fn new() -> Self {
        let front = |_| Front {
            version: AtomicU64::new(0),
            low: AtomicUsize::new(0),
            high: AtomicUsize::new(0),
            frontier: AtomicU64::new(0),
            is_loading: AtomicBool::new(true),
            has_spilled: AtomicBool::new(false),
        };
        Self {
            fronts: Box::new(std::array::from_fn(front)),
            blocks: [const { OnceLock::new() }; BLOCKS],
            // The first few rows are not of huge pages.
            prepared: AtomicUsize::new(SMALL_ROWS),
            ready: AtomicUsize::new(SMALL_ROWS),
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

    /// Cells that a row has for a shard; empty cells if there is no such row.
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

    /// Makes memory for so many positions of each shard, if there is none yet.
    pub(super) fn reserve(&self, positions: usize) {
        let rows = positions.div_ceil(RUN);
        self.make_blocks(rows);
        // Whoever asks for them touches them.
        self.prepared.fetch_max(rows, Ordering::Relaxed);
        self.ready.fetch_max(rows, Ordering::Relaxed);
    }

    fn make_blocks(&self, rows: usize) {
        // Rows up to 2^n - 2 are in the first n blocks.
        let blocks = (usize::BITS - rows.leading_zeros()) as usize;
        for (power, block) in self.blocks.iter().take(blocks).enumerate() {
            block.get_or_init(|| Block::with_rows(1 << power));
        }
    }

    /// True if so many positions of each shard cost nobody more than others.
    pub(super) fn is_ready(&self, positions: usize) -> bool {
        self.ready.load(Ordering::Relaxed) >= positions.div_ceil(RUN)
    }

    /// Starts a thread that touches the memory of so many positions of each shard, if nobody did
    /// yet. Where there is no such thread, or it is late, whoever puts something there waits.
    pub(super) fn prepare(self: &Arc<Self>, positions: usize) {
        let rows = positions.div_ceil(RUN);
        if self.prepared.load(Ordering::Relaxed) >= rows {
            return;
        }
        let before = self.prepared.fetch_max(rows, Ordering::Relaxed);
        let field = Arc::clone(self);
        let touch = move || {
            field.make_blocks(rows);
            (before..rows).for_each(|row| field.touch(row));
            field.ready.fetch_max(rows, Ordering::Relaxed);
        };
        let named = std::thread::Builder::new().name("store-room".to_string());
        drop(named.spawn(touch));
    }

    /// Writes to each page of a row, and changes nothing: others may write there meanwhile.
    fn touch(&self, row: usize) {
        for shard in 0..SHARDS {
            let run = self.run(row, shard);
            for [word, ..] in run.iter().step_by(TOUCHED) {
                // A compiler makes a read of what adds nothing, and a read takes no memory.
                let seen = word.load(Ordering::Relaxed);
                let _ = word.compare_exchange(seen, seen, Ordering::Relaxed, Ordering::Relaxed);
            }
        }
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

    /// True if what was not found may be there nevertheless, for a caller that has the lock.
    #[inline]
    pub(super) fn has_spilled(&self) -> bool {
        self.front.has_spilled()
    }

    /// True if nothing has changed since the look began.
    #[inline]
    pub(super) fn is_true(&self) -> bool {
        fence(Ordering::Acquire);
        self.front.version.load(Ordering::Relaxed) == self.version
    }
}
