//! Entries that need a segment in which their records do not stand, in eight bytes each.
//!
//! A body's slices may be in other segments than its head. When such a segment goes, the entries
//! that need it go, too, so each segment knows them: by the upper bits of their mixed keys, which
//! say where in the index to look, and by a print of where their records stand.
//!
//! | bits | meaning |
//! |---|---|
//! | 40 | the highest of the mixed key |
//! | 24 | a print of segment and offset of the record |
//!
//! 1. An entry that needs a segment is among the segment's dependents, once for each record that
//!    says so. Records that were replaced since stay until the list is pruned.
//! 2. An entry that is taken for another one has the same forty bits of its key, and the same print
//!    of its place: one in 2^64 pairs. It is lost; nobody gets bytes that are not its own.
//!
//! It does not know which records are current: the index does.

use super::slot::Slot;
use crate::disk::segment::Place;
use crate::key::Key;

/// Bits of the print.
const PRINT_BITS: u32 = 24;
const PRINT: u64 = (1 << PRINT_BITS) - 1;
/// Fewer than this are not worth pruning. Arbitrary: half a kilobyte.
const FEW: usize = 64;
/// A list grows by a piece of one part in so many of it: there are many lists, and memory counts.
/// No piece is ever moved, because what is left behind is of no use to an allocator.
const GROWTH: usize = 8;
/// The least and the most that a piece holds.
const PIECE: std::ops::RangeInclusive<usize> = 8..=4096;

/// Names a record that needs a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Dependent(u64);

impl Dependent {
    /// The name of a record of `key`.
    pub(crate) fn new(key: &Key, segment: u32, offset: u32) -> Self {
        // Records begin at multiples of 16, so neighbours differ in what is multiplied.
        let place = u64::from(segment) << 32 | u64::from(offset);
        let print = place.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (u64::BITS - PRINT_BITS);
        Self(key.mixed() & !PRINT | print)
    }

    /// Least mixed key that the dependent may be of.
    pub(super) fn least(self) -> u64 {
        self.0 & !PRINT
    }

    /// True if the dependent names the record of `slot`.
    pub(super) fn is(self, slot: &Slot) -> bool {
        let Place {
            segment, offset, ..
        } = slot.place();
        self == Self::new(&slot.key, segment, offset)
    }
}

/// Dependents of one segment.
#[derive(Debug, Default)]
pub(crate) struct Dependents {
    /// All but the last are full.
    pieces: Vec<Vec<Dependent>>,
    count: usize,
    /// Number of dependents when they were pruned last.
    pruned: usize,
}

impl Dependents {
    /// Adds a record.
    pub(crate) fn add(&mut self, dependent: Dependent) {
        self.count += 1;
        let last = self.pieces.last_mut();
        if let Some(piece) = last.filter(|piece| piece.len() < piece.capacity()) {
            return piece.push(dependent);
        }
        let size = (self.count / GROWTH).clamp(*PIECE.start(), *PIECE.end());
        let mut piece = Vec::with_capacity(size);
        piece.push(dependent);
        self.pieces.push(piece);
    }

    /// Dependents in the order in which they came.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Dependent> {
        self.pieces.iter().flatten().copied()
    }

    /// True if at least half of a list that is worth it came since it was pruned.
    pub(crate) fn are_to_prune(&self) -> bool {
        self.count > 2 * self.pruned + FEW
    }

    /// Keeps `kept` of the first `seen`, and what came behind those.
    pub(crate) fn prune(&mut self, seen: usize, kept: Vec<Dependent>) {
        if kept.len() == seen {
            self.pruned = self.count;
            return;
        }
        let before = std::mem::take(self);
        for dependent in kept.into_iter().chain(before.iter().skip(seen)) {
            self.add(dependent);
        }
        self.pruned = self.count;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dependent(number: u32) -> Dependent {
        Dependent::new(&Key::of(&number.to_le_bytes()), number, 64)
    }

    #[test]
    fn record_is_known_by_its_key_and_place() {
        let key = Key::of(b"one");
        let place = Place {
            segment: 7,
            offset: 4096,
            size: 96,
        };
        let slot = Slot::new(key, place, 0, 0);
        assert!(Dependent::new(&key, 7, 4096).is(&slot));
        assert!(!Dependent::new(&key, 7, 4112).is(&slot));
        assert!(!Dependent::new(&key, 8, 4096).is(&slot));
        assert!(!Dependent::new(&Key::of(b"other"), 7, 4096).is(&slot));
        assert!(Dependent::new(&key, 7, 4096).least() <= key.mixed());
    }

    #[test]
    fn list_is_pruned_when_it_has_doubled_and_keeps_what_came_meanwhile() {
        let mut list = Dependents::default();
        (0..100).for_each(|number| list.add(dependent(number)));
        assert!(list.are_to_prune());
        let kept: Vec<_> = list.iter().step_by(2).collect();
        list.add(dependent(100));
        list.prune(100, kept);
        assert!(!list.are_to_prune());
        assert_eq!(list.iter().count(), 51);
        assert_eq!(list.iter().last(), Some(dependent(100)));
        (0..200).for_each(|number| list.add(dependent(number)));
        assert!(list.are_to_prune());
        let capacity: usize = list.pieces.iter().map(Vec::capacity).sum();
        assert!(capacity <= list.count * 9 / 8 + 8, "{capacity}");
    }
}
