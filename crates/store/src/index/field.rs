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
/// Cells that are compared with a key before it is looked where they belong: of a full table more
/// than nine keys in ten stand no further from their homes.
const NEAR: usize = 8;
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
        let (_, cell) = self.rows.find(key)?;
        Some((cell, cell.slot()))
    }

    /// When an entry was last used.
    #[inline]
    pub(super) fn last_used(&self, key: &Key) -> Option<u32> {
        self.rows.find(key)?.1.last_used()
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
        let run = self.run(position >> RUN_BITS);
        Cell(run.get(position & (RUN - 1)).unwrap_or(&NOTHING))
    }

    /// The cells of a row, one behind the other; none if there is no such row.
    #[inline]
    fn run(&self, row: usize) -> Cells<'a> {
        // Counted from one, the highest bit of a row is that of its block.
        let row = row + 1;
        let power = row.ilog2();
        let first = ((row ^ (1 << power)) << SHARD_BITS | self.shard) << RUN_BITS;
        let block = self.field.blocks.get(power as usize);
        let cells = block.and_then(OnceLock::get).map(Block::borrow_dependent);
        cells
            .and_then(|cells| cells.get(first..first + RUN))
            .unwrap_or_default()
    }

    /// All cells.
    pub(super) fn iter(self) -> impl Iterator<Item = Cell<'a>> {
        (0..self.len).map(move |position| self.at(position))
    }

    /// Where a key is, and its cell.
    ///
    /// Most stand so near to their homes that a few cells one behind the other need no look at
    /// where those belong. A core reads them at one time, as far as it foresees the end, and with
    /// few instructions it begins with the next key meanwhile.
    #[inline]
    pub(super) fn find(&self, key: &Key) -> Option<(usize, Cell<'a>)> {
        let home = self.home(key);
        let run = self.run(home >> RUN_BITS);
        let start = home & (RUN - 1);
        let near = run
            .get(start..start + NEAR)
            .filter(|_| home + NEAR <= self.len);
        let Some(near) = near else {
            return self.find_from(home, 0, key);
        };
        for (position, words) in (home..).zip(near) {
            let cell = Cell(words);
            if cell.key() == *key {
                // One that is empty has no key.
                return (!cell.is_empty()).then_some((position, cell));
            }
            if cell.is_empty() {
                return None;
            }
        }
        self.find_from(home, NEAR, key)
    }

    /// The same, for one that is at least so far from its home.
    #[inline(never)]
    fn find_from(&self, home: usize, distance: usize, key: &Key) -> Option<(usize, Cell<'a>)> {
        let mut position = (0..distance).fold(home, |position, _| self.next(position));
        // Bounded, because without a lock there may be no end.
        for distance in distance..self.len {
            let cell = self.at(position);
            if cell.is_empty() {
                return None;
            }
            let other = cell.key();
            if other == *key {
                return Some((position, cell));
            }
            if self.distance_of(&other, position) < distance {
                return None;
            }
            position = self.next(position);
        }
        None
    }

    /// The cells of all keys whose mixed bits are `least` or hardly more: less than 2^32.
    pub(super) fn near_home(self, least: u64) -> impl Iterator<Item = Cell<'a>> {
        let mut position = self.home_of(least);
        (0..self.len).map_while(move |distance| {
            let cell = self.at(position);
            let own = position;
            position = self.next(own);
            // So few bits less, and the home is this one or the one before.
            let is_near = self.distance_of(&cell.key(), own) + 1 >= distance;
            (!cell.is_empty() && is_near).then_some(cell)
        })
    }

    /// Where a key would stand if it were alone.
    #[inline]
    pub(super) fn home(&self, key: &Key) -> usize {
        self.home_of(key.mixed())
    }

    #[inline]
    fn home_of(&self, mixed: u64) -> usize {
        // The high bits chose the shard; shifting them out leaves the others for the position.
        let bits = mixed << SHARD_BITS;
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
