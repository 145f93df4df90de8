//! The cells of one shard, and how a key is found among them.
//!
//! A key stands at its home or behind it, and what stands between is not empty and no nearer to its
//! own home. Nearly always a look at a few cells, one behind the other, is enough; what is left
//! goes from cell to cell.
//!
//! It knows nothing of versions: who looks without a lock finds out afterwards whether what it saw
//! was true.

use super::SHARD_BITS;
use super::block::{RUN, RUN_BITS, Run};
use super::field::Field;
use super::slot::Cell;
use crate::key::Key;

/// Cells that are compared with a key at one time. Nine keys in ten stand no further from their
/// homes where four positions in five are taken, and five in six where the table is about to grow;
/// more would be read from memory for nothing.
const NEAR: usize = 6;

/// The cells of one shard.
#[derive(Clone, Copy)]
pub(super) struct Rows<'a> {
    field: &'a Field,
    shard: usize,
    pub(super) len: usize,
}

impl<'a> Rows<'a> {
    #[inline]
    pub(super) fn new(field: &'a Field, shard: usize) -> Self {
        let len = field.front(shard).len();
        Self { field, shard, len }
    }

    /// The cell at a position; an empty one where there is none.
    #[inline]
    pub(super) fn at(&self, position: usize) -> Cell<'a> {
        // There are as many as the remainder has values.
        Cell(&self.run(position)[position % RUN])
    }

    /// What stands around a position.
    #[inline]
    fn run(&self, position: usize) -> &'a Run {
        self.field.run(position >> RUN_BITS, self.shard)
    }

    /// All cells.
    pub(super) fn iter(self) -> impl Iterator<Item = Cell<'a>> {
        (0..self.len).map(move |position| self.at(position))
    }

    /// Where a key is, and its cell.
    #[inline]
    pub(super) fn find(&self, key: &Key) -> Option<(usize, Cell<'a>)> {
        match self.find_near(key) {
            Some(found) => Some(found),
            None => self.find_far(key),
        }
    }

    /// As [`Rows::find`], if the key stands as near to its home as most do; otherwise none, as for
    /// one that is not there.
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

    /// As [`Rows::find`], cell by cell.
    #[inline(never)]
    fn find_far(&self, key: &Key) -> Option<(usize, Cell<'a>)> {
        let home = self.home(key);
        // Bounded, because without a lock there may be no end.
        let positions = (home..self.len).chain(0..home);
        for (distance, position) in positions.enumerate() {
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
