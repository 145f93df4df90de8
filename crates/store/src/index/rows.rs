//! The cells of one shard, and how a key is found among them.
//!
//! A key stands at its home or behind it, less than [`REACH`] further, and what stands between is
//! not empty and no nearer to its own home. Nearly always a look at a few cells, one behind the
//! other, is enough; what is left goes from cell to cell.
//!
//! It knows nothing of versions: who looks without a lock finds out afterwards whether what it saw
//! was true.

use super::SHARD_BITS;
use super::block::{RUN, RUN_BITS, Run};
use super::field::Field;
use super::layout::{Layout, REACH};
use super::slot::Cell;
use crate::key::Key;

/// Cells that are compared with a key at one time. Nine keys in ten stand no further from their
/// homes where four positions in five are taken, and five in six where the table is about to grow;
/// more would be read from memory for nothing.
const NEAR: usize = 6;

/// Distance between the bits of keys that have the upper forty of their mixed bits in common.
const NEIGHBOURS: u64 = 1 << (24 + SHARD_BITS);

/// The cells of one shard.
#[derive(Clone, Copy)]
pub(super) struct Rows<'a> {
    field: &'a Field,
    shard: usize,
    layout: Layout,
}

impl<'a> Rows<'a> {
    #[inline]
    pub(super) fn new(field: &'a Field, shard: usize) -> Self {
        let layout = field.front(shard).layout();
        Self {
            field,
            shard,
            layout,
        }
    }

    /// The cell at a position; an empty one where there is none.
    #[inline]
    pub(super) fn at(&self, position: usize) -> Cell<'a> {
        // There are as many as the remainder has values.
        Cell(&self.run(position)[position % RUN])
    }

    /// Cells around a position.
    #[inline]
    fn run(&self, position: usize) -> &'a Run {
        self.field.run(position >> RUN_BITS, self.shard)
    }

    /// All cells.
    pub(super) fn iter(self) -> impl Iterator<Item = Cell<'a>> {
        (0..self.layout.positions()).map(move |position| self.at(position))
    }

    /// Position of a key, and its cell.
    #[inline]
    pub(super) fn find(&self, key: &Key) -> Option<(usize, Cell<'a>)> {
        match self.find_near(key) {
            Some(found) => Some(found),
            None => self.find_far(key),
        }
    }

    /// Finds a key as [`Rows::find`] does, if it stands as near to its home as most do; otherwise
    /// none, as for a key that is not there.
    ///
    /// A few cells one behind the other are compared without a branch between them: a core would
    /// foresee the end wrongly more often than not, and wait for the memory before it begins with
    /// the next key.
    #[inline]
    pub(super) fn find_near(&self, key: &Key) -> Option<(usize, Cell<'a>)> {
        let home = self.home(key);
        let start = home % RUN;
        let near = self.run(home).get(start..start + NEAR)?;
        let (low, _) = key.halves();
        let mut equal = 0_u32;
        for (distance, words) in near.iter().enumerate() {
            equal |= u32::from(Cell(words).low() == low) << distance;
        }
        let distance = equal.trailing_zeros() as usize;
        let cell = near.get(distance).map(Cell)?;
        let position = home + distance;
        // What is empty, or is no position of the table, may still have the key that it had.
        let is_there = cell.key() == *key && !cell.is_empty();
        is_there.then_some((position, cell))
    }

    /// Finds a key as [`Rows::find`] does, cell by cell.
    #[inline(never)]
    fn find_far(&self, key: &Key) -> Option<(usize, Cell<'a>)> {
        let home = self.home(key);
        // Bounded, also because without a lock there may be no end.
        for distance in 0..REACH {
            let position = home + distance;
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
        }
        None
    }

    /// The cells of all keys whose mixed bits are `least` or hardly more: less than 2^24.
    pub(super) fn near_home(self, least: u64) -> impl Iterator<Item = Cell<'a>> {
        let bits = bits_of(least);
        let Layout { frontier, .. } = self.layout;
        // On both sides of a frontier between them they are at home in two places.
        let is_between = bits < frontier && frontier - bits < NEIGHBOURS;
        let beyond = is_between.then_some(frontier);
        let homes = std::iter::once(bits).chain(beyond);
        homes.flat_map(move |bits| self.around(self.layout.home(bits)))
    }

    /// The cells of all keys that are at home at a position, or at the one behind it.
    fn around(self, home: usize) -> impl Iterator<Item = Cell<'a>> {
        (0..=REACH).map_while(move |distance| {
            let position = home + distance;
            let cell = self.at(position);
            let theirs = || self.distance_of(&cell.key(), position);
            let is_near = || theirs().saturating_add(1) >= distance;
            (!cell.is_empty() && is_near()).then_some(cell)
        })
    }

    /// Position at which a key would stand if it were alone.
    #[inline]
    pub(super) fn home(&self, key: &Key) -> usize {
        self.home_of(key.mixed())
    }

    #[inline]
    fn home_of(&self, mixed: u64) -> usize {
        self.layout.home(bits_of(mixed))
    }

    /// Distance of what stands at `position` from its home.
    pub(super) fn distance(&self, position: usize) -> usize {
        self.distance_of(&self.at(position).key(), position)
    }

    #[inline]
    fn distance_of(&self, key: &Key, position: usize) -> usize {
        // What is read without a lock may be before its home; that is found out afterwards.
        position.wrapping_sub(self.home(key))
    }
}

/// Bits of a key that say where it stands in its shard. The high bits chose the shard; shifting
/// them out leaves the others.
#[inline]
pub(super) fn bits_of(mixed: u64) -> u64 {
    mixed << SHARD_BITS
}
