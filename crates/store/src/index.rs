//! The index: where each entry stands, in forty bytes, and what of it is in memory.
//!
//! Sixty-four shards, each a mutex around an open-addressing table, a share of the memory tier,
//! and the entries whose records are still on their way to the disk. A lookup takes one lock for
//! the time of one probe, and allocates nothing.
//!
//! The table probes linearly with robin-hood order, grows by a quarter at 85 % load, and closes
//! gaps when it removes, so an entry costs 47 to 59 bytes and there are no graves.
//!
//! 1. A slot's segment is never 0; 0 marks an empty slot.
//! 2. What is in a shard's memory tier or among its flights has a slot with the same position.
//! 3. Locks are taken in this order: shard, log, files. No call leaves the crate under a lock.
//!
//! It does not know how records look, and reads no files.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use hashbrown::HashMap;

use crate::disk::segment::Place;
use crate::entry::{Entry, Stored};
use crate::key::Key;
use crate::lock::lock;
use crate::memory::Tier;

/// A power of two; enough that two cores seldom meet, few enough that each has a fair share of
/// the memory tier.
const SHARDS: usize = 64;
/// Slots of a table that holds its first entry.
const FIRST_SLOTS: usize = 8;

const SIZE_MASK: u32 = 0x0fff_ffff;
const HIT: u32 = 1 << 28;
const IN_FLIGHT: u32 = 1 << 29;
const UNVERIFIED: u32 = 1 << 30;
const SLICED: u32 = 1 << 31;

const _: () = assert!(size_of::<Slot>() == 40);

/// An index entry.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slot {
    /// The entry's name.
    pub(crate) key: Key,
    /// Length of its body.
    pub(crate) body_len: u64,
    segment: u32,
    offset: u32,
    /// Record size in units of 16 bytes, and four flags.
    size_flags: u32,
    /// Seconds since 1970 of the last use.
    pub(crate) used: u32,
}

impl Slot {
    const EMPTY: Self = Self {
        key: Key([0; 16]),
        body_len: 0,
        segment: 0,
        offset: 0,
        size_flags: 0,
        used: 0,
    };

    /// A slot for an entry at `place`.
    pub(crate) fn new(key: Key, place: Place, body_len: u64, used: u32) -> Self {
        Self {
            key,
            body_len,
            segment: place.segment,
            offset: place.offset,
            size_flags: (place.size / 16) & SIZE_MASK,
            used,
        }
    }

    /// Where the entry's record stands.
    pub(crate) fn place(&self) -> Place {
        Place {
            segment: self.segment,
            offset: self.offset,
            size: (self.size_flags & SIZE_MASK) * 16,
        }
    }

    /// Marks that the record is not on the disk yet.
    pub(crate) fn in_flight(mut self) -> Self {
        self.size_flags |= IN_FLIGHT;
        self
    }

    /// Marks that the body is in slices.
    pub(crate) fn sliced(mut self) -> Self {
        self.size_flags |= SLICED;
        self
    }

    /// Marks that the slices' checksums must be compared before use.
    pub(crate) fn unverified(mut self) -> Self {
        self.size_flags |= UNVERIFIED;
        self
    }

    /// Whether the slices' checksums must be compared before use.
    pub(crate) fn is_unverified(&self) -> bool {
        self.size_flags & UNVERIFIED != 0
    }

    /// Whether the record is not on the disk yet.
    pub(crate) fn is_in_flight(&self) -> bool {
        self.size_flags & IN_FLIGHT != 0
    }

    /// Whether the body is in slices.
    pub(crate) fn is_sliced(&self) -> bool {
        self.size_flags & SLICED != 0
    }

    /// Whether the entry was used since its record was written.
    pub(crate) fn is_hit(&self) -> bool {
        self.size_flags & HIT != 0
    }

    fn is_empty(&self) -> bool {
        self.segment == 0
    }
}

/// An open-addressing table of slots.
#[derive(Debug, Default)]
pub(crate) struct Table {
    slots: Vec<Slot>,
    count: usize,
}

impl Table {
    /// Puts a slot in, and returns the one that it replaces.
    pub(crate) fn insert(&mut self, slot: Slot) -> Option<Slot> {
        if let Some(found) = self.get_mut(&slot.key) {
            return Some(std::mem::replace(found, slot));
        }
        if (self.count + 1) * 20 > self.slots.len() * 17 {
            self.resize((self.slots.len() * 5 / 4).max(FIRST_SLOTS));
        }
        self.place(slot);
        self.count += 1;
        None
    }

    /// Takes a slot out.
    pub(crate) fn remove(&mut self, key: &Key) -> Option<Slot> {
        let mut gap = self.position(key)?;
        let removed = self.slots[gap];
        // Indexes stay below `slots.len()`: `next` wraps, and the table is never full.
        loop {
            let following = self.next(gap);
            let slot = self.slots[following];
            if slot.is_empty() || self.distance(following) == 0 {
                break;
            }
            self.slots[gap] = slot;
            gap = following;
        }
        self.slots[gap] = Slot::EMPTY;
        self.count -= 1;
        Some(removed)
    }

    /// Makes room for `additional` more slots.
    pub(crate) fn reserve(&mut self, additional: usize) {
        let wanted = (self.count + additional) * 20 / 17 + 1;
        if wanted > self.slots.len() {
            self.resize(wanted.max(FIRST_SLOTS));
        }
    }

    /// The slot of a key, for changes that leave the key as it is.
    pub(crate) fn get_mut(&mut self, key: &Key) -> Option<&mut Slot> {
        let position = self.position(key)?;
        self.slots.get_mut(position)
    }

    /// The slot of a key.
    pub(crate) fn get(&self, key: &Key) -> Option<&Slot> {
        self.slots.get(self.position(key)?)
    }

    /// All slots.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Slot> {
        self.slots.iter().filter(|slot| !slot.is_empty())
    }

    /// How many slots are used.
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// Bytes of memory that the table takes.
    pub(crate) fn memory(&self) -> usize {
        self.slots.capacity() * size_of::<Slot>()
    }

    fn resize(&mut self, slots: usize) {
        let old = std::mem::replace(&mut self.slots, vec![Slot::EMPTY; slots]);
        for slot in old.into_iter().filter(|slot| !slot.is_empty()) {
            self.place(slot);
        }
    }

    /// Puts a slot whose key is not in the table where robin-hood order wants it.
    fn place(&mut self, mut slot: Slot) {
        let mut position = self.home(&slot.key);
        let mut distance = 0;
        // The caller left at least one slot empty, so the walk ends; positions are below `len`.
        while !self.slots[position].is_empty() {
            let theirs = self.distance(position);
            if theirs < distance {
                std::mem::swap(&mut slot, &mut self.slots[position]);
                distance = theirs;
            }
            position = self.next(position);
            distance += 1;
        }
        self.slots[position] = slot;
    }

    fn position(&self, key: &Key) -> Option<usize> {
        if self.slots.is_empty() {
            return None;
        }
        let mut position = self.home(key);
        let mut distance = 0;
        loop {
            let slot = self.slots.get(position)?;
            if slot.is_empty() || self.distance(position) < distance {
                return None;
            }
            if slot.key == *key {
                return Some(position);
            }
            position = self.next(position);
            distance += 1;
        }
    }

    /// Where a key would stand if it were alone.
    fn home(&self, key: &Key) -> usize {
        // The high six bits chose the shard; shifting them out leaves the others for the position.
        let bits = key.mixed() << 6;
        ((u128::from(bits) * self.slots.len() as u128) >> 64) as usize
    }

    /// How far the slot at `position` stands from its home.
    fn distance(&self, position: usize) -> usize {
        let home = self.home(&self.slots[position].key);
        if position >= home {
            position - home
        } else {
            position + self.slots.len() - home
        }
    }

    fn next(&self, position: usize) -> usize {
        if position + 1 == self.slots.len() {
            0
        } else {
            position + 1
        }
    }
}

/// What one lock protects.
#[derive(Debug, Default)]
pub(crate) struct Shard {
    /// Where entries stand.
    pub(crate) table: Table,
    /// Entries whose records are not on the disk yet.
    pub(crate) flights: HashMap<Key, Entry>,
    /// Entries in memory.
    pub(crate) tier: Tier,
    /// No slot was last used before this second, as of the last sweep.
    pub(crate) oldest_used: u32,
}

impl Shard {
    /// Takes an entry out if it still stands at `place`.
    pub(crate) fn remove_at(&mut self, key: &Key, place: Place) -> Option<Slot> {
        self.table.get(key).filter(|slot| slot.place() == place)?;
        self.remove(key)
    }

    /// Takes an entry out.
    pub(crate) fn remove(&mut self, key: &Key) -> Option<Slot> {
        self.flights.remove(key);
        self.tier.remove(key);
        self.table.remove(key)
    }

    /// Puts an entry in, in place of whatever had its key.
    pub(crate) fn insert(&mut self, slot: Slot) -> Option<Slot> {
        self.flights.remove(&slot.key);
        self.tier.remove(&slot.key);
        self.oldest_used = self.oldest_used.min(slot.used);
        self.table.insert(slot)
    }
}

/// What a lookup found.
pub(crate) enum Found {
    /// Head, and body or slice table, are in memory.
    Kept(Arc<Stored>),
    /// The record is on its way to the disk.
    Flight(Entry),
    /// The record is on the disk.
    Stored(Slot),
}

/// When an entry must have been used last to be found, and what time it is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UseTime {
    /// Now, in seconds since 1970.
    pub(crate) now: u32,
    /// Entries that were last used before this second are gone.
    pub(crate) oldest: u32,
}

/// All shards.
pub(crate) struct Index {
    shards: Box<[Mutex<Shard>]>,
    memory_limit: AtomicU64,
    memory_used: Arc<AtomicU64>,
    hand: AtomicUsize,
}

impl Index {
    /// An empty index whose memory tier holds up to `memory_limit` bytes.
    pub(crate) fn new(memory_limit: u64) -> Self {
        let memory_used = Arc::new(AtomicU64::new(0));
        let shard = || {
            Mutex::new(Shard {
                tier: Tier::new(Arc::clone(&memory_used)),
                ..Shard::default()
            })
        };
        Self {
            shards: (0..SHARDS).map(|_| shard()).collect(),
            memory_limit: AtomicU64::new(memory_limit),
            memory_used: Arc::clone(&memory_used),
            hand: AtomicUsize::new(0),
        }
    }

    /// Looks an entry up and marks it used.
    pub(crate) fn touch(&self, key: &Key, time: UseTime) -> Option<Found> {
        let mut shard = self.shard(key);
        let slot = shard.table.get_mut(key)?;
        if slot.used < time.oldest {
            return None;
        }
        slot.used = slot.used.max(time.now);
        slot.size_flags |= HIT;
        let slot = *slot;
        if slot.is_in_flight()
            && let Some(entry) = shard.flights.get(key)
        {
            return Some(Found::Flight(entry.clone()));
        }
        if let Some(stored) = shard.tier.touch(key) {
            return Some(Found::Kept(stored));
        }
        Some(Found::Stored(slot))
    }

    /// Keeps an entry in memory if it still stands where it was read.
    pub(crate) fn keep(&self, stored: &Arc<Stored>) {
        let cost = stored.memory();
        let limit = self.memory_limit.load(Ordering::Relaxed);
        // An eighth is arbitrary: one entry must not sweep the tier clean.
        if cost > limit / 8 {
            return;
        }
        let fair = limit / SHARDS as u64;
        {
            let mut shard = self.shard(&stored.key);
            let is_current = |slot: &&Slot| slot.place() == stored.place;
            if shard.table.get(&stored.key).filter(is_current).is_none() {
                return;
            }
            shard.tier.insert(Arc::clone(stored), cost);
            while self.memory_used() > limit && shard.tier.used() > fair {
                shard.tier.evict();
            }
        }
        // This shard is within its share: the hand takes from the others in turn.
        for _ in 0..SHARDS * 2 {
            if self.memory_used() <= limit {
                return;
            }
            let next = self.hand.fetch_add(1, Ordering::Relaxed) % SHARDS;
            if let Some(shard) = self.shards.get(next) {
                lock(shard).tier.evict();
            }
        }
    }

    /// Changes what the memory tier may hold.
    pub(crate) fn limit_memory(&self, limit: u64) {
        self.memory_limit.store(limit, Ordering::Relaxed);
        let fair = limit / SHARDS as u64;
        for shard in &self.shards {
            let mut shard = lock(shard);
            // Each round forgets an entry, or there is none.
            while self.memory_used() > limit && shard.tier.used() > fair {
                shard.tier.evict();
            }
        }
    }

    /// Notes that the record at `place` reached the disk.
    pub(crate) fn land(&self, key: &Key, place: Place) {
        let mut shard = self.shard(key);
        if let Some(slot) = shard.table.get_mut(key)
            && slot.place() == place
        {
            slot.size_flags &= !IN_FLIGHT;
            shard.flights.remove(key);
        }
    }

    /// Notes that the slices of the entry at `place` were compared with their checksums.
    pub(crate) fn verified(&self, key: &Key, place: Place) {
        if let Some(slot) = self.shard(key).table.get_mut(key)
            && slot.place() == place
        {
            slot.size_flags &= !UNVERIFIED;
        }
    }

    /// Takes an entry out if it still stands at `place`.
    pub(crate) fn remove_at(&self, key: &Key, place: Place) -> Option<Slot> {
        self.shard(key).remove_at(key, place)
    }

    /// The shard of a key, locked.
    pub(crate) fn shard(&self, key: &Key) -> MutexGuard<'_, Shard> {
        // Six bits are left, so the position is below 64, the length of the boxed slice.
        lock(&self.shards[key.mixed() as usize >> 58])
    }

    /// Every shard, one after the other, none locked.
    pub(crate) fn shards(&self) -> impl Iterator<Item = &Mutex<Shard>> {
        self.shards.iter()
    }

    /// How many entries there are.
    pub(crate) fn count(&self) -> u64 {
        self.shards()
            .map(|shard| lock(shard).table.count() as u64)
            .sum()
    }

    /// Bytes of memory that the tables take.
    pub(crate) fn table_memory(&self) -> u64 {
        self.shards()
            .map(|shard| lock(shard).table.memory() as u64)
            .sum()
    }

    /// Bytes that the memory tier holds.
    pub(crate) fn memory_used(&self) -> u64 {
        self.memory_used.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slot(number: u64) -> Slot {
        let place = Place {
            segment: 1,
            offset: number as u32,
            size: 96,
        };
        Slot::new(Key::of(&number.to_le_bytes()), place, number, 0)
    }

    #[test]
    fn table_agrees_with_a_map_under_inserts_and_removals() {
        let mut table = Table::default();
        let mut map = std::collections::HashMap::new();
        let mut state = 1_u64;
        for _ in 0..20_000 {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            let number = (state >> 40) % 700;
            let slot = slot(number);
            if state >> 63 == 0 {
                assert_eq!(
                    table.insert(slot).is_some(),
                    map.insert(slot.key, number).is_some()
                );
            } else {
                assert_eq!(
                    table.remove(&slot.key).map(|s| s.body_len),
                    map.remove(&slot.key)
                );
            }
            assert_eq!(table.count(), map.len());
        }
        for (key, number) in &map {
            assert_eq!(table.get(key).map(|slot| slot.body_len), Some(*number));
        }
        assert_eq!(table.iter().count(), map.len());
    }

    #[test]
    fn an_entry_costs_at_most_64_bytes() {
        let mut table = Table::default();
        for number in 0..50_000 {
            table.insert(slot(number));
            if number > 100 {
                assert!(table.memory() as u64 <= (number + 1) * 64, "{number}");
            }
        }
    }

    #[test]
    fn slot_keeps_size_beside_its_flags() {
        let place = Place {
            segment: 9,
            offset: 16,
            size: 1 << 26,
        };
        let slot = Slot::new(Key([1; 16]), place, 0, 0)
            .sliced()
            .in_flight()
            .unverified();
        assert_eq!(slot.place(), place);
        assert!(slot.is_sliced() && slot.is_in_flight() && slot.is_unverified());
        assert!(!slot.is_hit());
    }
}
