//! Memory for some rows of all tables.
//!
//! A block is an anonymous mapping, taken from the system as it is touched; but for the first, a
//! block is asked for in huge pages, because a lookup among millions of entries otherwise waits as
//! long for the address as for the entry. Where there are no huge pages, all works without.
//!
//! Memory is neither moved nor given back before the block goes.

use std::sync::atomic::AtomicU64;

use memmap2::{Advice, MmapMut, MmapOptions};
use self_cell::{MutBorrow, self_cell};
use zerocopy::{FromBytes, IntoBytes};

use super::SHARDS;
use super::slot::Words;

/// Positions of a shard in one row. Few, so that the last row wastes little; enough that a walk
/// seldom passes from one row to the next.
pub(super) const RUN_BITS: u32 = 8;
/// Cells of a shard in one row.
pub(super) const RUN: usize = 1 << RUN_BITS;

/// Cells that stand in a row for one shard.
pub(super) type Run = [Words; RUN];

/// Empty cells that are read where there is no memory yet. Nobody writes to them.
pub(super) static NOTHING: Run = [const { [const { AtomicU64::new(0) }; 5] }; RUN];

/// Memory of a block.
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

type Runs<'a> = &'a [Run];

self_cell!(
    /// Rows, with the memory in which they stand.
    pub(super) struct Block {
        owner: MutBorrow<Memory>,
        #[covariant]
        dependent: Runs,
    }
);

impl Block {
    /// Empty cells for so many rows.
    pub(super) fn with_rows(rows: usize) -> Self {
        let bytes = rows * SHARDS * size_of::<Run>();
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
            let runs = <[Run]>::mut_from_bytes(memory.borrow_mut().bytes());
            // Both kinds of memory are aligned for words, and the length is that of whole runs.
            runs.map_or(&[], |runs| runs)
        })
    }

    /// Run of the block by its number; none behind the last.
    #[inline]
    pub(super) fn run(&self, number: usize) -> Option<&Run> {
        self.borrow_dependent().get(number)
    }
}
