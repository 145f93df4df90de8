//! An open-addressing table of index entries.
//!
//! It probes linearly with robin-hood order, so slots stand in the order of their hashes, and a
//! removal closes its gap. It grows by an eighth at 85 % load (at 89 %, if there is no memory for
//! it before that) and shrinks below half of that, so an entry costs 47 to 53 bytes, and there are
//! no grave stones but those that the loading of a zone puts there on purpose.
//!
//! It grows and shrinks in steps, one with each change, while it stands where it is: the keys at a
//! few neighbouring homes are taken out and put in again where they are at home from now on
//! (`layout`). Nothing is held twice, and no change costs more than a step.
//!
//! Its cells stand in the field, where others may look at them meanwhile without a lock.
//!
//! 1. No slot stands [`REACH`] or further from its home, and none is moved over more than
//!    [`MOVES_MAX`] cells at a time. One for which that leaves no cell is *spilled* into a map
//!    beside the cells, until it is removed. With random keys that does not happen; whoever could
//!    choose keys would gain nothing.
//! 2. Slots are moved, put in and taken out only within a change of the shard's front.
//! 3. A table that grows is done before it is to grow again. A step moves [`STEP`] homes, so it
//!    takes one change for each `STEP` homes, and as many more entries fit at any time.

use std::collections::HashMap;
use std::sync::Arc;

use super::dependent::Dependent;
use super::field::{Field, Front};
use super::layout::{Layout, REACH, first_bits};
use super::rows::{Rows, bits_of};
use super::slot::{Cell, Slot, Words};
use crate::key::Key;

/// Homes of a table that holds its first entry.
const FIRST_HOMES: usize = 8;

/// Percent of the homes that are taken when memory for more is prepared, when it is used, and when
/// it is used even if it is not ready ([`REACH`] has room for that).
const PREPARED: usize = 83;
const FULL: usize = 85;
const FULLEST: usize = 89;

/// Homes whose keys are moved with each change, while the table grows or shrinks: 2.7 to 5.4 KiB.
/// An eighth more homes are needed when a tenth more entries have come, so eight were enough; with
/// so many it is done when the load has become two percent more.
const STEP: usize = 64;

/// Cells over which one change moves slots to make room. A table that is 87 % full has no runs of
/// taken cells that are half as long.
const MOVES_MAX: usize = 1024;

/// Positions that are looked at for graves at a time.
const STRIP: usize = 1024;

/// Change of a table's size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Resize {
    /// Homes from this one on have been moved.
    Grow { from: usize },
    /// Homes before this one have been moved.
    Shrink { before: usize },
}

/// The slots of one shard.
#[derive(Debug)]
pub(crate) struct Table {
    field: Arc<Field>,
    shard: usize,
    count: usize,
    graves: usize,
    /// Most positions that the table had: their memory is still there.
    most: usize,
    resize: Option<Resize>,
    /// INVARIANT 1.
    spilled: HashMap<Key, Words>,
    /// Cells that were written to, or looked at to be moved.
    #[cfg(test)]
    work: std::sync::atomic::AtomicUsize,
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
            resize: None,
            spilled: HashMap::new(),
            #[cfg(test)]
            work: Default::default(),
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
        self.cell(key)?;
        self.front().begin();
        let removed = self.take(key);
        self.shrink_if_due();
        self.step();
        self.front().end();
        removed.filter(|slot| !slot.is_grave())
    }

    /// True if older slots may still come.
    pub(crate) fn is_loading(&self) -> bool {
        self.front().is_loading()
    }

    /// Notes that nothing older comes any more.
    pub(crate) fn end_loading(&mut self) {
        self.front().begin();
        self.front().end_loading();
        self.front().end();
    }

    /// Takes out the graves that stand at a few positions from this one on, which nobody needs when
    /// loading has ended. Where to go on; none at the end.
    pub(crate) fn strip(&mut self, from: usize) -> Option<usize> {
        if self.graves == 0 {
            return None;
        }
        let end = self.layout().positions();
        let until = end.min(from + STRIP);
        self.front().begin();
        for position in from..until {
            // What stood behind it comes to its place.
            while let Some(key) = self.grave_at(position) {
                self.take(&key);
            }
        }
        let spilled = self.spilled.keys().copied();
        let graves: Vec<Key> = spilled.filter(|key| self.has_grave(key)).collect();
        for key in &graves {
            self.take(key);
        }
        self.front().end();
        (until < end).then_some(until)
    }

    /// Goes on to take positions away that are not needed, when loading has ended; false when there
    /// is nothing left to do.
    pub(crate) fn trim(&mut self) -> bool {
        self.front().begin();
        if self.resize.is_none() && self.fitting() * 8 / 7 < self.layout().high {
            self.begin_resize(self.fitting());
        }
        self.step();
        self.front().end();
        self.resize.is_some()
    }

    /// Makes room for `count` slots altogether.
    pub(crate) fn reserve(&mut self, count: usize) {
        let wanted = (count * 20 / 17 + 2).max(FIRST_HOMES);
        self.front().begin();
        // One that is under way ends first. It is bounded, since each step brings it nearer.
        while self.resize.is_some() {
            self.step();
        }
        if wanted > self.layout().high {
            self.begin_resize(wanted);
        }
        self.front().end();
    }

    /// The cell of an entry or a grave. Its flags may be changed by whoever has the table for
    /// writing.
    pub(crate) fn cell(&self, key: &Key) -> Option<Cell<'_>> {
        match self.rows().find(key) {
            Some((_, cell)) => Some(cell),
            None => self.spilled.get(key).map(Cell),
        }
    }

    /// The slot of an entry.
    pub(crate) fn get(&self, key: &Key) -> Option<Slot> {
        let slot = self.cell(key)?.slot();
        (!slot.is_grave()).then_some(slot)
    }

    /// The slot of a record that needs another segment.
    pub(crate) fn dependent(&self, dependent: Dependent) -> Option<Slot> {
        let near = self.rows().near_home(dependent.least());
        let cells = near.chain(self.spilled.values().map(Cell));
        let mut slots = cells.map(|cell| cell.slot());
        slots.find(|slot| dependent.is(slot))
    }

    /// All entries.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Slot> {
        let slots = self.cells().map(|cell| cell.slot());
        slots.filter(|slot| !slot.is_grave())
    }

    /// All cells that are not empty, graves included.
    pub(crate) fn cells(&self) -> impl Iterator<Item = Cell<'_>> {
        let cells = self.rows().iter().filter(|cell| !cell.is_empty());
        cells.chain(self.spilled.values().map(Cell))
    }

    /// Number of entries.
    pub(crate) fn count(&self) -> usize {
        self.count - self.graves
    }

    /// Number of slots that have no cell.
    pub(crate) fn spilled(&self) -> usize {
        self.spilled.len()
    }

    /// Bytes of memory that the table takes.
    pub(crate) fn memory(&self) -> usize {
        self.most * size_of::<Words>() + self.spilled.capacity() * size_of::<(Key, Words)>()
    }

    fn front(&self) -> &Front {
        self.field.front(self.shard)
    }

    fn rows(&self) -> Rows<'_> {
        self.field.rows(self.shard)
    }

    fn layout(&self) -> Layout {
        self.front().layout()
    }

    fn grave_at(&self, position: usize) -> Option<Key> {
        let cell = self.rows().at(position);
        let slot = (!cell.is_empty()).then(|| cell.slot())?;
        slot.is_grave().then_some(slot.key)
    }

    fn has_grave(&self, key: &Key) -> bool {
        self.cell(key).is_some_and(|cell| cell.slot().is_grave())
    }

    /// Puts a slot in; what had its key, entry or grave.
    fn put(&mut self, slot: Slot) -> Option<Slot> {
        if let Some(cell) = self.cell(&slot.key) {
            let replaced = cell.slot();
            cell.put(&slot);
            return Some(replaced);
        }
        self.grow_if_due();
        self.step();
        self.place(slot);
        self.count += 1;
        None
    }

    /// Takes the slot of a key out, which has one.
    fn take(&mut self, key: &Key) -> Option<Slot> {
        let removed = match self.rows().find(key) {
            Some((gap, _)) => self.close(gap),
            None => {
                let words = self.spilled.remove(key)?;
                self.front().set_spilled(!self.spilled.is_empty());
                Cell(&words).slot()
            }
        };
        self.count -= 1;
        self.graves -= usize::from(removed.is_grave());
        Some(removed)
    }

    /// Empties the cell at `gap`, which has a slot.
    fn close(&self, mut gap: usize) -> Slot {
        let rows = self.rows();
        let removed = rows.at(gap).slot();
        // It ends before an empty cell, or before one that is at home; the last is one or the
        // other.
        loop {
            let following = gap + 1;
            let cell = rows.at(following);
            self.note_work();
            if cell.is_empty() || rows.distance(following) == 0 {
                break;
            }
            rows.at(gap).put(&cell.slot());
            gap = following;
        }
        rows.at(gap).clear();
        removed
    }

    /// Homes of a table with as many entries, at two thirds of the load at which it grows.
    fn fitting(&self) -> usize {
        (self.count * 5 / 4 + 1).max(FIRST_HOMES)
    }

    fn shrink_if_due(&mut self) {
        let homes = self.layout().high;
        if self.resize.is_none() && homes > FIRST_HOMES && self.count * 20 < homes * 8 {
            self.begin_resize(self.fitting());
        }
    }

    /// Grows the table if it has no homes for one more. INVARIANT 3.
    fn grow_if_due(&mut self) {
        let layout = self.layout();
        let is_above = |percent: usize, homes: usize| (self.count + 1) * 100 > homes * percent;
        let next = (layout.high * 9 / 8 + 1).max(FIRST_HOMES);
        match self.resize {
            None if !is_above(PREPARED, layout.high) => {}
            None => {
                let positions = Layout::even(next).positions();
                self.field.prepare(positions);
                let is_ready = self.field.is_ready(positions);
                let is_due = is_above(FULL, layout.high) && is_ready;
                if is_due || is_above(FULLEST, layout.high) {
                    self.begin_resize(next);
                }
            }
            // So many came meanwhile that it turns back. What stands on the low side of the
            // frontier is at home before the first home behind it.
            Some(Resize::Shrink { .. }) if is_above(FULL, layout.low) => {
                let from = (layout.low_home(layout.frontier) + 1).min(layout.low);
                self.resize = Some(Resize::Grow { from });
            }
            _ => {}
        }
    }

    /// Begins to change the number of homes.
    fn begin_resize(&mut self, homes: usize) {
        let now = self.layout().high;
        let (low, high) = (now.min(homes), now.max(homes));
        let (frontier, resize) = if homes > now {
            (u64::MAX, Resize::Grow { from: now })
        } else {
            (0, Resize::Shrink { before: 0 })
        };
        let layout = Layout {
            low,
            high,
            frontier,
        };
        self.field.reserve(layout.positions());
        self.most = self.most.max(high);
        self.front().set_layout(layout);
        self.resize = Some(resize);
        if self.count == 0 {
            self.end_resize(homes);
        }
    }

    fn end_resize(&mut self, homes: usize) {
        self.front().set_layout(Layout::even(homes));
        self.resize = None;
    }

    /// Moves the keys of a few homes, if the table grows or shrinks.
    fn step(&mut self) {
        let Layout { low, high, .. } = self.layout();
        match self.resize {
            None => {}
            Some(Resize::Grow { from: 0 }) => self.end_resize(high),
            Some(Resize::Grow { from }) => {
                let first = from.saturating_sub(STEP);
                self.resize = Some(Resize::Grow { from: first });
                let bits = first_bits(first, low)..first_bits(from, low);
                let frontier = bits.start;
                self.rehome(first, bits, frontier);
            }
            Some(Resize::Shrink { before }) if before >= high => self.end_resize(low),
            Some(Resize::Shrink { before }) => {
                let behind = (before + STEP).min(high);
                self.resize = Some(Resize::Shrink { before: behind });
                let bits = first_bits(before, high)..first_bits(behind, high);
                let frontier = bits.end;
                self.rehome(before, bits, frontier);
            }
        }
    }

    /// Takes out the keys with these bits, the first of which are at home at `first`, and puts them
    /// in again where they are at home when the frontier is there.
    fn rehome(&mut self, first: usize, bits: std::ops::Range<u64>, frontier: u64) {
        let mut moved: Vec<Slot> = Vec::with_capacity(STEP + REACH);
        let mut last = None;
        {
            let rows = self.rows();
            for position in first..first + STEP + REACH {
                self.note_work();
                let cell = rows.at(position);
                if cell.is_empty() {
                    continue;
                }
                let own = bits_of(cell.key().mixed());
                if own >= bits.end {
                    break;
                }
                if own >= bits.start {
                    moved.push(cell.slot());
                    last = Some(position);
                }
            }
        }
        // From the last one on: little stands behind each that would have to move up. They stand
        // next to each other but for empty cells.
        let end = last.map_or(first, |last| last + 1);
        for position in (first..end).rev() {
            let cell = self.rows().at(position);
            if !cell.is_empty() && bits.contains(&bits_of(cell.key().mixed())) {
                self.close(position);
            }
        }
        self.front().set_layout(Layout {
            frontier,
            ..self.layout()
        });
        for slot in moved {
            self.place(slot);
        }
    }

    /// Puts a slot whose key is not in the table where robin-hood order wants it.
    fn place(&mut self, mut slot: Slot) {
        let rows = self.field.rows(self.shard);
        let mut position = rows.home(&slot.key);
        let mut distance = 0;
        // INVARIANT 1.
        let end = position + MOVES_MAX;
        while distance < REACH && position < end {
            self.note_work();
            let cell = rows.at(position);
            if cell.is_empty() {
                cell.put(&slot);
                self.most = self.most.max(position + 1);
                return;
            }
            let theirs = rows.distance(position);
            if theirs < distance {
                let displaced = cell.slot();
                cell.put(&slot);
                slot = displaced;
                distance = theirs;
            }
            position += 1;
            distance += 1;
        }
        self.spill(&slot);
    }

    #[inline]
    fn note_work(&self) {
        #[cfg(test)]
        self.work.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    }

    /// Keeps a slot that has no cell.
    fn spill(&mut self, slot: &Slot) {
        let words = self.spilled.entry(slot.key).or_default();
        Cell(words).put(slot);
        self.front().set_spilled(true);
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
        assert!(table.layout().high <= 1000 * 3, "{:?}", table.layout());
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
        assert_eq!(table.strip(0), None);
        assert_eq!((table.count(), table.cells().count()), (1, 1));
        table.insert_older(slot_at(1, 1));
        assert_eq!(table.count(), 2);
    }

    /// All that is true of a table that can be looked at without its lock.
    fn check(table: &Table) {
        let rows = table.rows();
        let mut homes = Vec::new();
        for position in 0..table.layout().positions() {
            let cell = rows.at(position);
            if cell.is_empty() {
                continue;
            }
            let home = rows.home(&cell.key());
            assert!(
                home <= position && position - home < REACH,
                "{home} {position}"
            );
            let between = (home..position).all(|before| !rows.at(before).is_empty());
            assert!(between, "a gap before {position}");
            homes.push(home);
        }
        assert!(homes.is_sorted());
        assert_eq!(homes.len() + table.spilled(), table.count);
        assert_eq!(table.front().has_spilled(), table.spilled() > 0);
        // Nothing is left behind the end.
        let end = table.layout().positions();
        assert!((end..end + 600).all(|position| rows.at(position).is_empty()));
    }

    /// While it grows and shrinks, after each change everything is found and in order.
    #[test]
    fn table_is_whole_after_each_step() {
        let mut table = table();
        let mut held = std::collections::BTreeSet::new();
        let mut state = 9_u64;
        for round in 0..14_000_u64 {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            let number = (state >> 40) % 4_000;
            // It fills, empties, and turns back in the middle of both.
            let grows = [9, 12, 2, 13, 1, 14, 0][round as usize / 2_000];
            if state >> 60 < grows {
                _ = (table.insert(slot(number)), held.insert(number));
            } else {
                _ = (table.remove(&slot(number).key), held.remove(&number));
            }
            if round % 31 == 0 {
                check(&table);
                let is_there = |number: &u64| table.get(&slot(*number).key).is_some();
                assert!(held.iter().all(is_there), "{round}");
                assert_eq!(table.count(), held.len());
            }
        }
        assert_eq!(table.spilled(), 0);
    }

    /// No change holds a worker for longer because there are more entries.
    #[test]
    fn no_change_of_a_large_table_takes_longer_than_a_step() {
        let mut table = table();
        let mut most = 0;
        let mut worked = |table: &Table| {
            let work = table.work.swap(0, std::sync::atomic::Ordering::Relaxed);
            most = most.max(work);
        };
        for number in 0..60_000 {
            table.insert(slot(number));
            worked(&table);
        }
        for number in 0..59_000 {
            table.remove(&slot(number).key);
            worked(&table);
        }
        assert_eq!(table.spilled(), 0);
        println!("cells at most: {most}");
        // A step looks at a few hundred cells, moves some seventy keys, and none of them far.
        assert!(most < 4_000, "{most}");
    }

    /// A table that shrinks and is filled again meanwhile turns back.
    #[test]
    fn table_that_is_trimmed_takes_what_comes_meanwhile() {
        let mut table = table();
        table.reserve(60_000);
        for number in 0..20 {
            table.insert(slot(number));
        }
        table.end_loading();
        for _ in 0..300 {
            table.trim();
        }
        for number in 20..5_000 {
            table.insert(slot(number));
            if number % 97 == 0 {
                check(&table);
            }
        }
        while table.trim() {}
        check(&table);
        assert_eq!((table.count(), table.spilled()), (5_000, 0));
        assert!(table.layout().high < 8_000, "{:?}", table.layout());
        assert!((0..5_000).all(|number| table.get(&slot(number).key).is_some()));
    }

    /// Keys whose mixed bits are nearly the same: all are at home in one place.
    fn crafted(number: u64) -> Slot {
        // Both halves alike but for the lowest bits that are mixed in.
        let place = slot(number).place();
        Slot::new(
            Key::from_halves(number, number.rotate_left(32)),
            place,
            number,
            0,
        )
    }

    /// INVARIANT 1: whoever could make all keys meet would cost nobody more than a look aside.
    #[test]
    fn keys_that_meet_are_found_and_cost_no_walk() {
        let mut table = table();
        let mut most = 0;
        for number in 0..30_000 {
            table.insert(crafted(number));
            let work = table.work.swap(0, std::sync::atomic::Ordering::Relaxed);
            most = most.max(work);
        }
        assert!(table.spilled() > 29_000, "{}", table.spilled());
        println!("cells at most: {most}");
        // As many as can stand there, each put in behind the others.
        assert!(most < REACH * REACH, "{most}");
        check(&table);
        let place = crafted(7).place();
        let dependent = Dependent::new(&crafted(7).key, place.segment, place.offset);
        assert_eq!(
            table.dependent(dependent).map(|slot| slot.key),
            Some(crafted(7).key)
        );
        assert_eq!(table.iter().count(), 30_000);
        for number in 0..30_000 {
            let key = crafted(number).key;
            assert_eq!(table.get(&key).map(|slot| slot.body_len()), Some(number));
            assert!(table.remove(&key).is_some() && table.get(&key).is_none());
        }
        check(&table);
        assert_eq!((table.count(), table.spilled()), (0, 0));
    }
}
