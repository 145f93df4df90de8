//! An open-addressing table of index entries.
//!
//! It probes linearly with robin-hood order, so slots stand in the order of their hashes, growing
//! is one pass over memory, and a removal closes its gap. It grows by an eighth at 85 % load and
//! shrinks below half of that, so an entry costs 47 to 53 bytes, and there are no grave stones
//! but those that the loading of a zone puts there on purpose.
//!
//! Its cells stand in the field, where others may look at them meanwhile without a lock.
//!
//! 1. At least one slot is empty, so every walk ends.
//! 2. Slots are moved, put in and taken out only within a change of the shard's front.

use std::sync::Arc;

use super::dependent::Dependent;
use super::field::{Field, Front};
use super::rows::Rows;
use super::slot::{Cell, Slot, Words};
use crate::key::Key;

/// Slots of a table that holds its first entry.
const FIRST_SLOTS: usize = 8;

/// The slots of one shard.
#[derive(Debug)]
pub(crate) struct Table {
    field: Arc<Field>,
    shard: usize,
    count: usize,
    graves: usize,
    /// The most positions that it had: their memory is still there.
    most: usize,
}

impl Table {
    /// The empty table of a shard.
    pub(crate) fn new(field: &Arc<Field>, shard: usize) -> Self {
        Self {
            field: Arc::clone(field),
            shard,
            count: 0,
            graves: 0,
            most: 0,
        }
    }

    /// Puts a slot in, and returns the entry that it replaces.
    pub(crate) fn insert(&mut self, slot: Slot) -> Option<Slot> {
        self.front().begin();
        let replaced = self.put(slot);
        self.front().end();
        self.graves += usize::from(slot.is_grave());
        let replaced = replaced?;
        self.graves -= usize::from(replaced.is_grave());
        Some(replaced).filter(|slot| !slot.is_grave())
    }

    /// Puts a slot in unless a newer one or a newer grave of its key is there; none if it did not,
    /// otherwise what [`Table::insert`] says.
    pub(crate) fn insert_older(&mut self, slot: Slot) -> Option<Option<Slot>> {
        let there = self.cell(&slot.key);
        let is_in = there.is_none_or(|cell| slot.is_newer_than(&cell.slot()));
        is_in.then(|| self.insert(slot))
    }

    /// Reads where slots will stand, at one time rather than one after the other.
    pub(crate) fn warm(&self, slots: &[Slot]) {
        let rows = self.rows();
        for slot in slots {
            std::hint::black_box(rows.at(rows.home(&slot.key)).is_empty());
        }
    }

    /// Takes a slot out.
    pub(crate) fn remove(&mut self, key: &Key) -> Option<Slot> {
        let (gap, _) = self.rows().find(key)?;
        self.front().begin();
        let removed = self.close(gap);
        self.count -= 1;
        self.graves -= usize::from(removed.is_grave());
        if self.len() > FIRST_SLOTS && self.count * 20 < self.len() * 8 {
            self.resize(self.fitting());
        }
        self.front().end();
        Some(removed).filter(|slot| !slot.is_grave())
    }

    /// Whether older slots may still come.
    pub(crate) fn is_loading(&self) -> bool {
        self.front().is_loading()
    }

    /// Nothing older comes any more: takes all graves out, and the positions that are not needed.
    pub(crate) fn end_loading(&mut self) {
        self.front().begin();
        self.front().end_loading();
        if self.graves > 0 {
            let held = self.take_all();
            self.count -= self.graves;
            self.graves = 0;
            let entries = held.into_iter().filter(|slot| !slot.is_grave());
            self.fill_again(self.fitting(), entries);
        } else if self.fitting() * 8 / 7 < self.len() {
            self.resize(self.fitting());
        }
        self.front().end();
    }

    /// Makes room for `count` slots altogether.
    pub(crate) fn reserve(&mut self, count: usize) {
        let wanted = count * 20 / 17 + 2;
        if wanted > self.len() {
            self.front().begin();
            self.resize(wanted.max(FIRST_SLOTS));
            self.front().end();
        }
    }

    /// The cell of an entry or a grave. Its flags may be changed by whoever has the table for
    /// writing.
    pub(crate) fn cell(&self, key: &Key) -> Option<Cell<'_>> {
        self.rows().find(key).map(|(_, cell)| cell)
    }

    /// The slot of an entry.
    pub(crate) fn get(&self, key: &Key) -> Option<Slot> {
        let slot = self.cell(key)?.slot();
        (!slot.is_grave()).then_some(slot)
    }

    /// The slot of a record that needs another segment.
    pub(crate) fn dependent(&self, dependent: Dependent) -> Option<Slot> {
        let slots = self.rows().near_home(dependent.least());
        let mut slots = slots.map(|cell| cell.slot());
        slots.find(|slot| dependent.is(slot))
    }

    /// All entries.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Slot> {
        let slots = self.cells().map(|cell| cell.slot());
        slots.filter(|slot| !slot.is_grave())
    }

    /// All cells that are not empty, graves included.
    pub(crate) fn cells(&self) -> impl Iterator<Item = Cell<'_>> {
        self.rows().iter().filter(|cell| !cell.is_empty())
    }

    /// How many entries there are.
    pub(crate) fn count(&self) -> usize {
        self.count - self.graves
    }

    /// Bytes of memory that the table takes.
    pub(crate) fn memory(&self) -> usize {
        self.most * size_of::<Words>()
    }

    fn front(&self) -> &Front {
        self.field.front(self.shard)
    }

    fn rows(&self) -> Rows<'_> {
        self.field.rows(self.shard)
    }

    fn len(&self) -> usize {
        self.front().len()
    }

    /// Puts a slot in; what had its key, entry or grave.
    fn put(&mut self, slot: Slot) -> Option<Slot> {
        if let Some(cell) = self.cell(&slot.key) {
            let replaced = cell.slot();
            cell.put(&slot);
            return Some(replaced);
        }
        if (self.count + 1) * 20 > self.len() * 17 {
            self.resize((self.len() * 9 / 8 + 1).max(FIRST_SLOTS));
        }
        self.place(slot);
        self.count += 1;
        None
    }

    /// Empties the cell at `gap`, which has a slot.
    fn close(&self, mut gap: usize) -> Slot {
        let rows = self.rows();
        let removed = rows.at(gap).slot();
        // INVARIANT 1: it ends before an empty cell, or before one that is at home.
        loop {
            let following = rows.next(gap);
            let cell = rows.at(following);
            if cell.is_empty() || rows.distance(following) == 0 {
                break;
            }
            rows.at(gap).put(&cell.slot());
            gap = following;
        }
        rows.at(gap).clear();
        removed
    }

    /// Slots of a table with as many entries, at two thirds of the load at which it grows.
    fn fitting(&self) -> usize {
        (self.count * 5 / 4 + 1).max(FIRST_SLOTS)
    }

    fn resize(&mut self, slots: usize) {
        let held = self.take_all();
        self.fill_again(slots, held.into_iter());
    }

    /// Empties all cells, and returns what was there in the order of their hashes.
    fn take_all(&self) -> Vec<Slot> {
        let mut held = Vec::with_capacity(self.count);
        for cell in self.cells() {
            held.push(cell.slot());
            cell.clear();
        }
        held
    }

    /// Begins again with `slots` slots and what `held` has.
    fn fill_again(&mut self, slots: usize, held: impl Iterator<Item = Slot>) {
        self.field.resize(self.shard, slots);
        self.most = self.most.max(slots);
        for slot in held {
            self.place(slot);
        }
    }

    /// Puts a slot whose key is not in the table where robin-hood order wants it.
    fn place(&self, mut slot: Slot) {
        let rows = self.rows();
        let mut position = rows.home(&slot.key);
        let mut distance = 0;
        // INVARIANT 1: the caller left at least one cell empty.
        loop {
            let cell = rows.at(position);
            if cell.is_empty() {
                return cell.put(&slot);
            }
            let theirs = rows.distance(position);
            if theirs < distance {
                let displaced = cell.slot();
                cell.put(&slot);
                slot = displaced;
                distance = theirs;
            }
            position = rows.next(position);
            distance += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::segment::Place;

    fn table() -> Table {
        Table::new(&Arc::new(Field::new()), 3)
    }

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
        let mut table = table();
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
    fn record_that_needs_a_segment_is_found_by_its_name() {
        let mut table = table();
        for number in 0..5_000 {
            table.insert(slot_at(number, 1 + number as u32 % 7));
        }
        for number in 0..6_000 {
            let Place {
                segment, offset, ..
            } = slot_at(number, 1 + number as u32 % 7).place();
            let key = slot(number).key;
            let find = |segment| table.dependent(Dependent::new(&key, segment, offset));
            let found = find(segment).map(|slot| slot.key);
            assert_eq!(found, (number < 5_000).then_some(key), "{number}");
            assert!(find(segment + 7).is_none(), "{number}");
        }
    }

    #[test]
    fn an_entry_costs_at_most_54_bytes() {
        let mut table = table();
        for number in 0..50_000 {
            table.insert(slot(number));
            if number > 1000 {
                assert!(table.memory() as u64 <= (number + 1) * 54, "{number}");
            }
        }
        for number in 0..49_000 {
            table.remove(&slot(number).key);
        }
        // Memory stays, for the next ones; walks over it get shorter.
        assert!(table.len() <= 1000 * 3, "{}", table.len());
    }

    #[test]
    fn older_slots_and_what_lies_under_a_grave_stay_out() {
        let mut table = table();
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
        table.end_loading();
        assert_eq!((table.count(), table.cells().count()), (1, 1));
        table.insert_older(slot_at(1, 1));
        assert_eq!(table.count(), 2);
    }
}
