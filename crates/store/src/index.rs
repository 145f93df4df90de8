//! The index: where each entry stands, in forty bytes, and what of it is in memory.
//!
//! Shards, each a lock around an open-addressing table and around the entries whose records are
//! still on their way to the disk; beside them the memory tier, which has locks of its own. A
//! lookup takes no lock, unless the shard is changed just then or the entry is on its way to the
//! disk; it notes the use in the slot itself, and allocates nothing.
//!
//! - `dependent` – entries that need a segment in which they do not stand
//! - `block` – the memory of some rows of all tables
//! - `field` – the tables of all shards, and how they are read without a lock
//! - `layout` – where keys stand, also while a table grows
//! - `rows` – the cells of one shard, and how a key is found among them
//! - `slot` – an index entry
//! - `table` – the slots of one shard
//!
//! 1. A slot's segment is never 0; 0 marks an empty slot.
//! 2. What is in the memory tier counts only if a slot names the same position; what is among the
//!    flights has such a slot.
//! 3. Locks are taken in this order: shard, memory tier, log, files. No call leaves the crate
//!    under a lock.
//! 4. While segments are loaded, an entry that is removed leaves a grave: an older record of its
//!    key that is loaded later does not come back.
//! 5. An entry that is looked up while segments are loaded stands behind all that were not loaded
//!    yet, so that nothing newer of its key can be among them.
//!
//! It does not know how records look, and reads no files.

mod block;
mod dependent;
mod field;
mod layout;
mod rows;
mod slot;
mod table;

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, RwLock, RwLockReadGuard, RwLockWriteGuard};

use hashbrown::HashMap;

pub(crate) use self::dependent::{Dependent, Dependents};
use self::field::Field;
pub(crate) use self::slot::{Cell, Slot};
use self::table::Table;
use crate::disk::segment::Place;
use crate::entry::{Entry, Reading, Stored};
use crate::key::Key;
use crate::lock::{read, write};
use crate::memory::Memory;
use crate::site::{Batch, Holdings, Leave, SiteBook};

/// Enough that a shard of ten million entries is scanned in about a tenth of a millisecond, and
/// that two cores seldom meet; few enough that tombstones of a shard are shared by several entries.
const SHARD_BITS: u32 = 8;
const SHARDS: usize = 1 << SHARD_BITS;

/// Passes over a table for graves. One is enough unless others change it meanwhile.
const STRIP_PASSES: usize = 3;

/// Slots whose places are read at one time: about as many as a core can wait for.
const AT_ONCE: usize = 8;

/// A position in the log behind all others.
const LAST: Place = Place {
    segment: u32::MAX,
    offset: 0,
    size: 0,
};

/// Part of the index that one lock protects.
#[derive(Debug)]
pub(crate) struct Shard {
    /// Places of entries. What is changed here is changed in the holdings, too.
    pub(crate) table: Table,
    /// Entries whose records are not on the disk yet.
    pub(crate) flights: HashMap<Key, Entry>,
    /// No slot was last used before this second, as of the last sweep.
    pub(crate) oldest_used: u32,
    memory: Arc<Memory>,
    holdings: Arc<Holdings>,
}

impl Shard {
    /// Takes an entry out if it still stands at `place`.
    pub(crate) fn remove_at(&mut self, key: &Key, place: Place, why: Leave) -> Option<Slot> {
        self.table.get(key).filter(|slot| slot.place() == place)?;
        self.remove(key, why)
    }

    /// Takes an entry out.
    pub(crate) fn remove(&mut self, key: &Key, why: Leave) -> Option<Slot> {
        let flight = self.flights.remove(key);
        self.memory.remove(key);
        let removed = if self.table.is_loading() {
            // INVARIANT 4.
            self.table.insert(Slot::grave(*key, LAST))
        } else {
            self.table.remove(key)
        };
        if let Some(slot) = &removed {
            self.holdings.left(slot, why);
            self.holdings.removed.note(slot, flight.as_ref(), why);
        }
        removed
    }

    /// Puts an entry in, in place of whatever had its key, which leaves as `why` says.
    pub(crate) fn insert(&mut self, slot: Slot, why: Leave) {
        let flight = self.flights.remove(&slot.key);
        self.memory.remove(&slot.key);
        self.oldest_used = self.oldest_used.min(slot.used);
        if let Some(replaced) = self.table.insert(slot) {
            self.holdings.left(&replaced, why);
            self.holdings.removed.note(&replaced, flight.as_ref(), why);
        }
        self.holdings.came(&slot);
    }

    /// True if an entry or one that was not loaded yet may be there.
    pub(crate) fn may_have(&self, key: &Key) -> bool {
        match self.table.cell(key) {
            Some(cell) => !cell.slot().is_grave(),
            None => self.table.is_loading(),
        }
    }

    /// Puts an entry or a grave in that was found in the log; false if a newer one is there.
    pub(crate) fn load(&mut self, slot: Slot) -> bool {
        let mut batch = Batch::default();
        let is_in = self.load_counted(slot, &mut batch);
        self.holdings.settle(&batch);
        is_in
    }
}

impl Shard {
    /// Loads many slots as [`Shard::load`] does one; `batch` is to be settled.
    fn load_many(&mut self, slots: &[Slot], batch: &mut Batch) {
        for group in slots.chunks(AT_ONCE) {
            self.table.warm(group);
            for slot in group {
                self.load_counted(*slot, batch);
            }
        }
    }

    fn load_counted(&mut self, slot: Slot, batch: &mut Batch) -> bool {
        self.oldest_used = self.oldest_used.min(slot.used);
        let Some(replaced) = self.table.insert_older(slot) else {
            return false;
        };
        if let Some(replaced) = replaced {
            batch.left(&replaced);
        }
        if !slot.is_grave() {
            batch.came(&slot);
        }
        true
    }
}

/// Result of a look-up in the index.
pub(crate) enum Found {
    /// Head, and body or slice table, are in memory.
    Kept(Arc<Stored>),
    /// The record is on its way to the disk.
    Flight(Entry),
    /// The record is on the disk.
    Stored(Slot),
    /// Nothing that counts: a segment that was not loaded yet may say something else of the key.
    Unloaded,
}

/// Result of a look without a lock.
enum Glance {
    /// The index has no entry that may be found.
    Nothing,
    /// There may be one that was not loaded yet.
    Unloaded,
    /// The entry's record is on the disk.
    Stored(Slot),
    /// Known to nobody without the lock.
    Unsure,
}

/// Oldest last use with which an entry is found, and the time of the look-up.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UseTime {
    /// Now, in seconds since 1970.
    pub(crate) now: u32,
    /// Entries that were last used before this second are gone.
    pub(crate) oldest: u32,
}

/// True if what is found under a key, if anything, stands behind all that was not loaded yet: in
/// the segment `from` or behind it.
#[inline]
fn is_known(found: Option<Slot>, from: u32) -> bool {
    from == 0 || found.is_some_and(|slot| slot.place().segment >= from)
}

/// All shards.
pub(crate) struct Index {
    field: Arc<Field>,
    shards: Box<[RwLock<Shard>]>,
    /// First segment whose entries are shown while segments are loaded: what stands before it may
    /// have been replaced or removed in one that was not loaded yet.
    shown_from: AtomicU32,
    memory: Arc<Memory>,
    holdings: Arc<Holdings>,
}

impl Index {
    /// An empty index that is being loaded, whose memory tier holds up to `memory_limit` bytes.
    pub(crate) fn new(memory_limit: u64, book: Arc<SiteBook>) -> Self {
        let memory = Arc::new(Memory::new(memory_limit));
        let holdings = Holdings::new(book);
        let field = Arc::new(Field::new());
        let shard = |position| {
            RwLock::new(Shard {
                table: Table::new(&field, position),
                flights: HashMap::new(),
                oldest_used: u32::MAX,
                memory: Arc::clone(&memory),
                holdings: Arc::clone(&holdings),
            })
        };
        Self {
            shards: (0..SHARDS).map(shard).collect(),
            field,
            shown_from: AtomicU32::new(0),
            memory,
            holdings,
        }
    }

    /// Counts of what each site holds.
    pub(crate) fn holdings(&self) -> &Holdings {
        &self.holdings
    }

    /// Looks an entry up and marks it used.
    pub(crate) fn touch(&self, key: &Key, time: UseTime) -> Option<Found> {
        let slot = match self.glance(key, time) {
            Glance::Nothing => return None,
            Glance::Unloaded => return Some(Found::Unloaded),
            Glance::Stored(slot) => slot,
            Glance::Unsure => match self.touch_locked(key, time)? {
                Found::Stored(slot) => slot,
                found => return Some(found),
            },
        };
        match self.memory.touch(key, slot.place()) {
            Some(stored) => Some(Found::Kept(stored)),
            None => Some(Found::Stored(slot)),
        }
    }

    /// Looks a key up as [`Index::touch`] does but for the memory tier, without a lock.
    fn glance(&self, key: &Key, time: UseTime) -> Glance {
        let Some(look) = self.field.look(Self::position(key)) else {
            return Glance::Unsure;
        };
        let found = look.find(key);
        // INVARIANT 5: both belong to what is looked at.
        let from = if look.is_loading() {
            self.shown_from()
        } else {
            0
        };
        if !look.is_true() {
            return Glance::Unsure;
        }
        match found {
            None if look.has_spilled() => Glance::Unsure,
            Some((_, slot)) if slot.is_in_flight() => Glance::Unsure,
            Some((cell, slot)) if slot.is_shown(time.oldest, from) => {
                cell.touch(time.now);
                Glance::Stored(slot)
            }
            found => {
                if is_known(found.map(|(_, slot)| slot), from) {
                    Glance::Nothing
                } else {
                    Glance::Unloaded
                }
            }
        }
    }

    /// True if nothing that was not loaded yet can say anything else of a key than what is there.
    pub(crate) fn knows(&self, key: &Key) -> bool {
        if let Some(look) = self.field.look(Self::position(key)) {
            let from = if look.is_loading() {
                self.shown_from()
            } else {
                0
            };
            let found = look.find(key).map(|(_, slot)| slot);
            if look.is_true() {
                return is_known(found, from);
            }
        }
        let shard = self.shared(key);
        let from = if shard.table.is_loading() {
            self.shown_from()
        } else {
            0
        };
        is_known(shard.table.cell(key).map(|cell| cell.slot()), from)
    }

    /// Looks a key up as [`Index::touch`] does but for the memory tier, under the lock.
    fn touch_locked(&self, key: &Key, time: UseTime) -> Option<Found> {
        let shard = self.shared(key);
        let from = if shard.table.is_loading() {
            self.shown_from()
        } else {
            0
        };
        let cell = shard.table.cell(key);
        let shown = cell.filter(|cell| cell.slot().is_shown(time.oldest, from));
        let Some(cell) = shown else {
            let is_known = is_known(cell.map(|cell| cell.slot()), from);
            return (!is_known).then_some(Found::Unloaded);
        };
        let slot = cell.slot();
        cell.touch(time.now);
        match shard.flights.get(key).filter(|_| slot.is_in_flight()) {
            Some(entry) => Some(Found::Flight(entry.clone())),
            None => Some(Found::Stored(slot)),
        }
    }

    /// The segment whose entries are looked up, as all behind it, while segments are loaded.
    pub(crate) fn shown_from(&self) -> u32 {
        self.shown_from.load(Ordering::Acquire)
    }

    /// Entries that stand before a segment are not looked up, as long as segments are loaded.
    pub(crate) fn show_from(&self, segment: u32) {
        self.shown_from.store(segment, Ordering::Release);
    }

    /// The slot of an entry; marks nothing.
    pub(crate) fn get(&self, key: &Key) -> Option<Slot> {
        if let Some(look) = self.field.look(Self::position(key)) {
            let found = look.find(key).map(|(_, slot)| slot);
            let is_known = found.is_some() || !look.has_spilled();
            if look.is_true() && is_known {
                return found.filter(|slot| !slot.is_grave());
            }
        }
        self.shared(key).table.get(key)
    }

    /// Time when an entry was last used, seconds since 1970; marks nothing.
    #[inline]
    pub(crate) fn last_used(&self, key: &Key) -> Option<u32> {
        if let Some(look) = self.field.look(Self::position(key))
            && let Some(cell) = look.find_near(key)
        {
            let used = cell.last_used();
            if look.is_true() {
                return used;
            }
        }
        self.last_used_far(key)
    }

    /// Time of the last use as in [`Index::last_used`], for a key that stands far from its home, or
    /// in a shard that is changed, or nowhere.
    #[inline(never)]
    fn last_used_far(&self, key: &Key) -> Option<u32> {
        self.get(key).map(|slot| slot.used)
    }

    /// The slot of a record that needs another segment, if it is the one that counts.
    pub(crate) fn dependent(&self, dependent: Dependent) -> Option<Slot> {
        let position = Self::shard_of(dependent.least());
        // As many bits as `SHARDS` has are left, so the position is in the boxed slice.
        let shard = read(&self.shards[position]);
        let found = shard.table.dependent(dependent);
        found.filter(|slot| !slot.is_grave())
    }

    /// Keeps an entry in memory if it still stands where it was read.
    pub(crate) fn keep(&self, stored: &Arc<Stored>) {
        let is_current = || {
            let slot = self.get(&stored.key);
            slot.is_some_and(|slot| slot.place() == stored.place)
        };
        if is_current() {
            self.memory.insert(stored);
            // What was removed meanwhile would not be found, and stay until its turn comes.
            if !is_current() {
                self.memory.remove(&stored.key);
            }
        }
    }

    /// Keeps what a reader made of an entry's head with the entry, for as long as that is in
    /// memory; it takes so many bytes.
    pub(crate) fn keep_reading(&self, stored: &Arc<Stored>, (reading, bytes): (Reading, u64)) {
        if stored.reading.get().is_none() && self.memory.grow(stored, bytes) {
            // Someone else's is as good; then the entry counts for more than it takes.
            let _ = stored.reading.set(reading);
        }
    }

    /// Changes what the memory tier may hold.
    pub(crate) fn limit_memory(&self, limit: u64) {
        self.memory.set_limit(limit);
    }

    /// Notes that the record at `place` reached the disk.
    pub(crate) fn land(&self, key: &Key, place: Place) {
        let mut shard = self.shard(key);
        if let Some(cell) = shard.table.cell(key)
            && cell.slot().place() == place
        {
            cell.land();
            shard.flights.remove(key);
        }
    }

    /// Notes that the slices of the entry at `place` were compared with their checksums.
    pub(crate) fn verified(&self, key: &Key, place: Place) {
        let shard = self.shard(key);
        if let Some(cell) = shard.table.cell(key)
            && cell.slot().place() == place
        {
            cell.verified();
        }
    }

    /// Takes an entry out if it still stands at `place`.
    pub(crate) fn remove_at(&self, key: &Key, place: Place, why: Leave) -> Option<Slot> {
        self.shard(key).remove_at(key, place, why)
    }

    /// Puts entries and graves in that were found in the log, shard by shard.
    pub(crate) fn load_many(&self, slots: &[Slot]) {
        let mut ends = [0; SHARDS];
        let positions = || slots.iter().map(|slot| Self::position(&slot.key));
        // Positions are below `SHARDS`, and what is counted is as many as there are slots.
        positions().for_each(|position| ends[position] += 1);
        let mut sum = 0;
        for end in &mut ends {
            sum += std::mem::replace(end, sum);
        }
        let mut sorted = slots.to_vec();
        for (slot, position) in slots.iter().zip(positions()) {
            sorted[ends[position]] = *slot;
            ends[position] += 1;
        }
        let mut rest = sorted.as_slice();
        let mut batch = Batch::default();
        let mut start = 0;
        for (shard, end) in self.shards.iter().zip(ends) {
            let (own, others) = rest.split_at(end - start);
            if !own.is_empty() {
                write(shard).load_many(own, &mut batch);
            }
            (rest, start) = (others, end);
        }
        self.holdings.settle(&batch);
    }

    /// Forgets entries whose records stand before a segment, as if they had not been loaded.
    pub(crate) fn forget_before(&self, segment: u32) {
        for shard in self.shards() {
            let mut shard = write(shard);
            let is_before = |slot: &Slot| slot.place().segment < segment;
            let keys: Vec<Key> = shard
                .table
                .iter()
                .filter(is_before)
                .map(|it| it.key)
                .collect();
            for key in &keys {
                shard.memory.remove(key);
                if let Some(slot) = shard.table.remove(key) {
                    shard.holdings.left(&slot, Leave::Moved);
                }
            }
        }
    }

    /// Makes room for `count` entries.
    pub(crate) fn reserve(&self, count: usize) {
        for shard in self.shards() {
            write(shard).table.reserve(count / SHARDS);
        }
    }

    /// Notes that nothing older comes any more, and tidies the tables up, a little at a time.
    pub(crate) fn is_loaded(&self) {
        for shard in self.shards() {
            write(shard).table.end_loading();
            // What moves meanwhile may be passed over, and is seen by another pass; a grave that is
            // left in the end is found by nobody.
            for _ in 0..STRIP_PASSES {
                let mut next = Some(0);
                while let Some(from) = next {
                    next = write(shard).table.strip(from);
                }
            }
            while write(shard).table.trim() {}
        }
    }

    /// Number of entries that have no cell in their table, because too many keys are at home where
    /// theirs is.
    pub(crate) fn spilled(&self) -> u64 {
        let spilled = |shard: &RwLock<Shard>| read(shard).table.spilled() as u64;
        self.shards().map(spilled).sum()
    }

    /// The position of a key's shard among [`Index::shards`].
    pub(crate) fn position(key: &Key) -> usize {
        Self::shard_of(key.mixed())
    }

    #[inline]
    fn shard_of(mixed: u64) -> usize {
        (mixed >> (u64::BITS - SHARD_BITS)) as usize
    }

    /// The shard of a key, alone.
    pub(crate) fn shard(&self, key: &Key) -> RwLockWriteGuard<'_, Shard> {
        // As many bits as `SHARDS` has are left, so the position is in the boxed slice.
        write(&self.shards[Self::position(key)])
    }

    /// The shard of a key, shared with others who only look.
    pub(crate) fn shared(&self, key: &Key) -> RwLockReadGuard<'_, Shard> {
        // As above.
        read(&self.shards[Self::position(key)])
    }

    /// Every shard, one after the other, none locked.
    pub(crate) fn shards(&self) -> impl ExactSizeIterator<Item = &RwLock<Shard>> {
        self.shards.iter()
    }

    /// Number of entries.
    pub(crate) fn count(&self) -> u64 {
        self.shards()
            .map(|shard| read(shard).table.count() as u64)
            .sum()
    }

    /// Bytes of memory that the tables take.
    pub(crate) fn table_memory(&self) -> u64 {
        self.shards()
            .map(|shard| read(shard).table.memory() as u64)
            .sum()
    }

    /// Bytes that the memory tier holds.
    pub(crate) fn memory_used(&self) -> u64 {
        self.memory.used()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;

    const STAYING: u64 = 3_000;
    const COMING: std::ops::Range<u64> = STAYING..12_000;

    fn slot(number: u64) -> Slot {
        let place = Place {
            segment: 1 + number as u32,
            offset: 64,
            size: 96,
        };
        Slot::new(Key::of(&number.to_le_bytes()), place, number, 1)
    }

    /// Entries for which a table has no cell are found like others, by all who look.
    #[test]
    fn entries_without_a_cell_are_found() {
        let index = Index::new(0, Arc::default());
        index.is_loaded();
        // Keys whose mixed bits are the same, and so their homes.
        let met = |number: u64| {
            let mut slot = slot(number);
            slot.key = Key::from_halves(number, number.rotate_left(32));
            slot
        };
        for number in 0..1_000 {
            let slot = met(number);
            index.shard(&slot.key).insert(slot, Leave::Replaced);
        }
        assert!(index.spilled() > 800, "{}", index.spilled());
        let time = UseTime { now: 9, oldest: 0 };
        for number in 0..1_000 {
            let key = met(number).key;
            assert!(index.touch(&key, time).is_some(), "{number}");
            let used = index.get(&key).map(|slot| (slot.used, slot.body_len()));
            assert_eq!(used, Some((9, number)));
            assert_eq!(index.last_used(&key), Some(9));
            let removed = index.shard(&key).remove(&key, Leave::Removed);
            assert!(removed.is_some() && index.get(&key).is_none());
            assert!(index.touch(&key, time).is_none());
        }
        assert_eq!((index.count(), index.spilled()), (0, 0));
    }

    /// A look shows whole slots, and entries that stay are always found, while tables grow and
    /// shrink.
    #[test]
    fn looks_without_a_lock_see_whole_slots_of_tables_that_change() {
        let index = Index::new(0, Arc::default());
        index.is_loaded();
        let insert = |number| {
            let slot = slot(number);
            index.shard(&slot.key).insert(slot, Leave::Replaced);
        };
        (0..STAYING).for_each(insert);
        let is_over = AtomicBool::new(false);
        let look = |mut number: u64| {
            let time = UseTime { now: 9, oldest: 0 };
            let mut looks = 0;
            while !is_over.load(Ordering::Acquire) || looks < 1_000 {
                looks += 1;
                number = (number + 7_919) % COMING.end;
                let wanted = slot(number);
                let found = match looks % 2 {
                    0 => index.get(&wanted.key),
                    _ => index.touch(&wanted.key, time).map(|found| match found {
                        Found::Stored(slot) => slot,
                        Found::Kept(_) | Found::Flight(_) => panic!("nothing is in memory"),
                        Found::Unloaded => panic!("all is loaded"),
                    }),
                };
                let place = found.map(|found| (found.key, found.place(), found.body_len()));
                let whole = (wanted.key, wanted.place(), number);
                assert!(place.is_none_or(|place| place == whole), "{place:?}");
                assert!(place.is_some() || number >= STAYING, "{number} is lost");
            }
        };
        std::thread::scope(|scope| {
            scope.spawn(|| look(0));
            scope.spawn(|| look(5));
            for _ in 0..3 {
                COMING.for_each(insert);
                for number in COMING {
                    let key = slot(number).key;
                    assert!(index.shard(&key).remove(&key, Leave::Removed).is_some());
                }
            }
            is_over.store(true, Ordering::Release);
        });
        assert_eq!(index.count(), STAYING);
        let uses = |number| index.get(&slot(number).key).map(|slot| slot.hits());
        assert!((0..STAYING).any(|number| uses(number) > Some(0)));
    }
}
