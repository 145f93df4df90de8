//! An open-addressing table of index entries.
//!
//! It probes linearly with robin-hood order, so slots stand in the order of their hashes, growing
//! is one pass over memory, and a removal closes its gap. It grows by an eighth at 85 % load and
//! shrinks below half of that, so an entry costs 47 to 53 bytes, and there are no grave stones
//! but those that the loading of a zone puts there on purpose.
//!
//! 1. At least one slot is empty, so every walk ends.

use super::slot::{Cell, Slot};
use crate::key::Key;

/// Slots of a table that holds its first entry.
const FIRST_SLOTS: usize = 8;

/// The slots of one shard.
#[derive(Debug, Default)]
pub(crate) struct Table {
    cells: Vec<Cell>,
    count: usize,
    graves: usize,
}

impl Table {
    /// Puts a slot in, and returns the entry that it replaces.
    pub(crate) fn insert(&mut self, slot: Slot) -> Option<Slot> {
        if let Some(position) = self.position(&slot.key) {
            // `position` is that of a cell.
            let replaced = std::mem::replace(&mut self.cells[position], slot.into()).slot();
            self.graves -= usize::from(replaced.is_grave());
            self.graves += usize::from(slot.is_grave());
            return Some(replaced).filter(|slot| !slot.is_grave());
        }
        if (self.count + 1) * 20 > self.cells.len() * 17 {
            self.resize((self.cells.len() * 9 / 8 + 1).max(FIRST_SLOTS));
        }
        self.place(slot);
        self.count += 1;
        self.graves += usize::from(slot.is_grave());
        None
    }

    /// Puts a slot in unless a newer one or a newer grave of its key is there; none if it did not,
    /// otherwise what [`Table::insert`] says.
    pub(crate) fn insert_older(&mut self, slot: Slot) -> Option<Option<Slot>> {
        let is_older = |position: usize| slot.is_newer_than(&self.cells[position].slot());
        let is_in = self.position(&slot.key).is_none_or(is_older);
        is_in.then(|| self.insert(slot))
    }

    /// Reads where slots will stand, at one time rather than one after the other.
    pub(crate) fn warm(&self, slots: &[Slot]) {
        let homes = slots
            .iter()
            .map(|slot| self.cells.get(self.home(&slot.key)));
        let used = homes.flatten().filter(|cell| !cell.is_empty()).count();
        // The count is of no use: the reads are.
        std::hint::black_box(used);
    }

    /// Takes a slot out.
    pub(crate) fn remove(&mut self, key: &Key) -> Option<Slot> {
        let gap = self.position(key)?;
        let removed = self.close(gap);
        self.count -= 1;
        self.graves -= usize::from(removed.is_grave());
        if self.cells.len() > FIRST_SLOTS && self.count * 20 < self.cells.len() * 8 {
            self.shrink();
        }
        Some(removed).filter(|slot| !slot.is_grave())
    }

    /// Takes all graves out, and gives back memory that is not needed.
    pub(crate) fn clear_graves(&mut self) {
        if self.graves > 0 {
            let cells = std::mem::take(&mut self.cells);
            let is_entry = |cell: &Cell| !cell.is_empty() && !cell.slot().is_grave();
            self.count -= self.graves;
            self.graves = 0;
            self.fill_again(self.fitting(), cells.into_iter().filter(is_entry));
        } else if self.fitting() * 8 / 7 < self.cells.len() {
            self.shrink();
        }
    }

    /// Makes room for `count` slots altogether.
    pub(crate) fn reserve(&mut self, count: usize) {
        let wanted = count * 20 / 17 + 2;
        if wanted > self.cells.len() {
            self.resize(wanted.max(FIRST_SLOTS));
        }
    }

    /// The cell of an entry, for changes that leave the key as it is.
    pub(crate) fn cell_mut(&mut self, key: &Key) -> Option<&mut Cell> {
        let position = self.position(key)?;
        self.cells
            .get_mut(position)
            .filter(|cell| !cell.slot().is_grave())
    }

    /// The cell of an entry.
    pub(crate) fn cell(&self, key: &Key) -> Option<&Cell> {
        self.cells.get(self.position(key)?)
    }

    /// The slot of an entry.
    pub(crate) fn get(&self, key: &Key) -> Option<Slot> {
        let slot = self.cell(key)?.slot();
        (!slot.is_grave()).then_some(slot)
    }

    /// All entries.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Slot> {
        let slots = self.cells().map(Cell::slot);
        slots.filter(|slot| !slot.is_grave())
    }

    /// All cells that are not empty, graves included.
    pub(crate) fn cells(&self) -> impl Iterator<Item = &Cell> {
        self.cells.iter().filter(|cell| !cell.is_empty())
    }

    /// How many entries there are.
    pub(crate) fn count(&self) -> usize {
        self.count - self.graves
    }

    /// Bytes of memory that the table takes.
    pub(crate) fn memory(&self) -> usize {
        self.cells.capacity() * size_of::<Cell>()
    }

    /// Empties the cell at `gap`, which has a slot.
    fn close(&mut self, mut gap: usize) -> Slot {
        // Indexes stay below `cells.len()`: `next` wraps, and the table is never full.
        let removed = self.cells[gap].slot();
        loop {
            let following = self.next(gap);
            if self.cells[following].is_empty() || self.distance(following) == 0 {
                break;
            }
            self.cells.swap(gap, following);
            gap = following;
        }
        self.cells[gap] = Cell::empty();
        removed
    }

    /// Slots of a table with as many entries, at two thirds of the load at which it grows.
    fn fitting(&self) -> usize {
        (self.count * 5 / 4 + 1).max(FIRST_SLOTS)
    }

    fn shrink(&mut self) {
        self.resize(self.fitting());
    }

    fn resize(&mut self, slots: usize) {
        let old = std::mem::take(&mut self.cells);
        self.fill_again(slots, old.into_iter().filter(|cell| !cell.is_empty()));
    }

    /// Begins again with `slots` slots and what `old` has.
    fn fill_again(&mut self, slots: usize, old: impl Iterator<Item = Cell>) {
        let mut cells = Vec::new();
        cells.reserve_exact(slots);
        cells.resize_with(slots, Cell::empty);
        self.cells = cells;
        for cell in old {
            self.place(cell.slot());
        }
    }

    /// Puts a slot whose key is not in the table where robin-hood order wants it.
    fn place(&mut self, slot: Slot) {
        let mut cell = Cell::from(slot);
        let mut position = self.home(cell.key());
        let mut distance = 0;
        // The caller left at least one slot empty, so the walk ends; positions are below `len`.
        while !self.cells[position].is_empty() {
            let theirs = self.distance(position);
            if theirs < distance {
                std::mem::swap(&mut cell, &mut self.cells[position]);
                distance = theirs;
            }
            position = self.next(position);
            distance += 1;
        }
        self.cells[position] = cell;
    }

    fn position(&self, key: &Key) -> Option<usize> {
        if self.cells.is_empty() {
            return None;
        }
        let mut position = self.home(key);
        let mut distance = 0;
        loop {
            let cell = self.cells.get(position)?;
            if cell.is_empty() {
                return None;
            }
            if cell.key() == key {
                return Some(position);
            }
            if self.distance(position) < distance {
                return None;
            }
            position = self.next(position);
            distance += 1;
        }
    }

    /// Where a key would stand if it were alone.
    fn home(&self, key: &Key) -> usize {
        // The high bits chose the shard; shifting them out leaves the others for the position.
        let bits = key.mixed() << super::SHARD_BITS;
        ((u128::from(bits) * self.cells.len() as u128) >> 64) as usize
    }

    /// How far the slot at `position` stands from its home.
    fn distance(&self, position: usize) -> usize {
        let home = self.home(self.cells[position].key());
        if position >= home {
            position - home
        } else {
            position + self.cells.len() - home
        }
    }

    fn next(&self, position: usize) -> usize {
        if position + 1 == self.cells.len() {
            0
        } else {
            position + 1
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::segment::Place;

    fn slot(number: u64) -> Slot {
        slot_at(number, 1)
    }

    fn slot_at(number: u64, segment: u32) -> Slot {
        let place = Place {
            segment,
            offset: number as u32 * 16,
            size: 96,
        };
        Slot::new(Key::of(&number.to_le_bytes()), place, number, 0)
    }

    #[test]
    fn table_agrees_with_a_map_under_inserts_and_removals() {
        let mut table = Table::default();
        let mut map = std::collections::HashMap::new();
        let mut state = 1_u64;
        for step in 0..30_000 {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            let number = (state >> 40) % 700;
            let slot = slot(number);
            // Mostly inserts at first, then mostly removals, so that it grows and shrinks.
            if state >> 60 < [12, 8, 3][step / 10_000] {
                assert_eq!(
                    table.insert(slot).is_some(),
                    map.insert(slot.key, number).is_some()
                );
            } else {
                assert_eq!(
                    table.remove(&slot.key).map(|slot| slot.body_len()),
                    map.remove(&slot.key)
                );
            }
            assert_eq!(table.count(), map.len());
        }
        for (key, number) in &map {
            assert_eq!(table.get(key).map(|slot| slot.body_len()), Some(*number));
        }
        assert_eq!(table.iter().count(), map.len());
    }

    #[test]
    fn an_entry_costs_at_most_54_bytes() {
        let mut table = Table::default();
        for number in 0..50_000 {
            table.insert(slot(number));
            if number > 1000 {
                assert!(table.memory() as u64 <= (number + 1) * 54, "{number}");
            }
        }
        for number in 0..49_000 {
            table.remove(&slot(number).key);
        }
        assert!(table.memory() <= 1000 * 120, "{}", table.memory());
    }

    #[test]
    fn older_slots_and_what_lies_under_a_grave_stay_out() {
        let mut table = Table::default();
        table.insert(slot_at(1, 5));
        table.insert_older(slot_at(1, 4));
        assert_eq!(
            table.get(&slot(1).key).map(|slot| slot.place().segment),
            Some(5)
        );
        table.insert_older(slot_at(1, 6));
        assert_eq!(
            table.get(&slot(1).key).map(|slot| slot.place().segment),
            Some(6)
        );
        let grave = |number, segment| {
            let slot = slot_at(number, segment);
            Slot::grave(slot.key, slot.place())
        };
        table.insert_older(grave(1, 7));
        table.insert_older(slot_at(1, 6));
        table.insert_older(grave(2, 3));
        assert!(table.get(&slot(1).key).is_none() && table.get(&slot(2).key).is_none());
        assert_eq!((table.count(), table.iter().count()), (0, 0));
        table.insert_older(slot_at(2, 4));
        assert_eq!(table.count(), 1);
        table.clear_graves();
        assert_eq!((table.count(), table.cells().count()), (1, 1));
        table.insert_older(slot_at(1, 1));
        assert_eq!(table.count(), 2);
    }
}
