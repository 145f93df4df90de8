//! The memory of all tables, and what of them is read without a lock.
//!
//! ```text
//!   block 0   row 0    shard 0: positions 0..256 | shard 1: 0..256 | …
//!   block 1   row 1    shard 0: positions 256..512 | …
//!             row 2    …
//!   block 2   rows 3 to 6, and so on: each block has twice as many as the one before
//! ```
//!
//! Shards grow alike, because keys are spread evenly; so each row has room for the same positions
//! of all, and a table grows where it stands. Blocks are anonymous mappings, taken from the system
//! as they are touched; but for the first they are asked for in huge pages, because a lookup among
//! millions of entries otherwise waits as long for the address as for the entry. Where there are no
//! huge pages, all works without.
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

use memmap2::{Advice, MmapMut, MmapOptions};
use self_cell::{MutBorrow, self_cell};
use zerocopy::{FromBytes, IntoBytes};

use super::slot::{Cell, Slot, Words};
use super::{SHARD_BITS, SHARDS};
use crate::key::Key;

/// Positions of a shard in one row. Few, so that the last row wastes little; enough that a walk
/// seldom passes from one row to the next.
const RUN_BITS: u32 = 8;
const RUN: usize = 1 << RUN_BITS;
/// The last one would end behind more cells than any memory has.
const BLOCKS: usize = 24;

/// What is read where there is no memory yet: an empty cell. Nobody writes to it.
static NOTHING: Words = [const { AtomicU64::new(0) }; 5];

/// Where a block has its cells.
enum Memory {
    Mapped(MmapMut),
    /// The system maps nothing more.
    Allocated(Vec<u64>),
}

impl Memory {
    fn bytes(&mut self) -> &mut [u8] {
        match self {
            Self::Mapped(map) => map,
            Self::Allocated(words) => words.as_mut_bytes(),
        }
    }
}

type Cells<'a> = &'a [Words];

self_cell!(
    /// Cells, with the memory in which they stand.
    struct Block {
        owner: MutBorrow<Memory>,
        #[covariant]
        dependent: Cells,
    }
);

impl Block {
    /// Empty cells for so many rows.
    fn with_rows(rows: usize) -> Self {
        let bytes = rows * SHARDS * RUN * size_of::<Words>();
        let mapped = MmapOptions::new().len(bytes).no_reserve_swap().map_anon();
        let memory = match mapped {
            Ok(map) => {
                if rows > 1 {
                    // If it has none, small ones do.
                    let _ = map.advise(Advice::HugePage);
                }
                Memory::Mapped(map)
            }
            Err(_) => Memory::Allocated(vec![0; bytes / size_of::<u64>()]),
        };
        Self::new(MutBorrow::new(memory), |memory| {
            let cells = <[Words]>::mut_from_bytes(memory.borrow_mut().bytes());
            // Both kinds of memory are aligned for words, and the length is that of whole cells.
            cells.map_or(&[], |cells| cells)
        })
    }
}

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
    fronts: Box<[Front]>,
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
            fronts: (0..SHARDS).map(front).collect(),
            blocks: [const { OnceLock::new() }; BLOCKS],
        }
    }

    #[inline]
    pub(super) fn front(&self, shard: usize) -> &Front {
        // Shards are known by their positions among as many.
        &self.fronts[shard]
    }

    /// The cells of a shard, as many as it has now.
    #[inline]
    pub(super) fn rows(&self, shard: usize) -> Rows<'_> {
        Rows {
            field: self,
            shard,
            len: self.front(shard).len(),
        }
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
        let cell = self.rows.at(self.rows.position(key)?);
        Some((cell, cell.slot()))
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

/// The cells of one shard.
#[derive(Clone, Copy)]
pub(super) struct Rows<'a> {
    field: &'a Field,
    shard: usize,
    pub(super) len: usize,
}

impl<'a> Rows<'a> {
    /// The cell at a position; an empty one where there is none.
    #[inline]
    pub(super) fn at(&self, position: usize) -> Cell<'a> {
        // Counted from one, the highest bit of a row is that of its block.
        let row = (position >> RUN_BITS) + 1;
        let power = row.ilog2();
        let run = (row ^ (1 << power)) << SHARD_BITS | self.shard;
        let index = run << RUN_BITS | position & (RUN - 1);
        let block = self.field.blocks.get(power as usize);
        let block = block.and_then(OnceLock::get);
        let words = block.and_then(|block| block.borrow_dependent().get(index));
        Cell(words.unwrap_or(&NOTHING))
    }

    /// All cells.
    pub(super) fn iter(self) -> impl Iterator<Item = Cell<'a>> {
        (0..self.len).map(move |position| self.at(position))
    }

    /// Where a key is.
    #[inline]
    pub(super) fn position(&self, key: &Key) -> Option<usize> {
        let mut position = self.home(key);
        self.touch(position);
        // Bounded, because without a lock there may be no end.
        for distance in 0..self.len {
            let cell = self.at(position);
            if cell.is_empty() {
                return None;
            }
            let other = cell.key();
            if other == *key {
                return Some(position);
            }
            if self.distance_of(&other, position) < distance {
                return None;
            }
            position = self.next(position);
        }
        None
    }

    /// Asks for the lines that a walk from a position reads, at one time rather than one after the
    /// other.
    #[inline]
    pub(super) fn touch(&self, position: usize) {
        // Cells and words that are 64, 128 and 192 bytes further.
        for (ahead, word) in [(1, 3), (3, 1), (4, 4)] {
            // What is read is of no use: that it is read is.
            std::hint::black_box(self.at(position + ahead).0[word].load(Ordering::Relaxed));
        }
    }

    /// Where a key would stand if it were alone.
    #[inline]
    pub(super) fn home(&self, key: &Key) -> usize {
        // The high bits chose the shard; shifting them out leaves the others for the position.
        let bits = key.mixed() << SHARD_BITS;
        ((u128::from(bits) * self.len as u128) >> 64) as usize
    }

    /// How far what stands at `position` is from its home.
    pub(super) fn distance(&self, position: usize) -> usize {
        self.distance_of(&self.at(position).key(), position)
    }

    #[inline]
    fn distance_of(&self, key: &Key, position: usize) -> usize {
        let home = self.home(key);
        if position >= home {
            position - home
        } else {
            position + self.len - home
        }
    }

    /// The position behind another one.
    #[inline]
    pub(super) fn next(&self, position: usize) -> usize {
        if position + 1 == self.len {
            0
        } else {
            position + 1
        }
    }
}
