//! The memory tier: heads, small bodies and slice tables of entries that were used lately.
//!
//! Sixteen shards with one limit and one count of bytes for all of them, shared by all threads.
//! Each is an S3-FIFO: a new entry goes to the young queue; if it is used there it moves to the
//! main queue when its turn comes, else it leaves, and its name stays for a while. A name that
//! comes back goes to the main queue at once. The main queue gives a second chance for each use,
//! up to three. So a scan of entries that are used once passes through a tenth of the space.
//!
//! 1. The shared count is the sum of the costs of all entries in all shards, and never above the
//!    limit: space is made before an entry comes in. The cost of an entry is what it takes of the
//!    process, allocator, tables and queues included, so the process does not grow by more.
//! 2. When the queues of a shard together hold more than twice as many names as there are entries,
//!    plus a constant, each change takes names out that mean nothing, until they do not.
//! 3. A use is noted through a shared lock: readers do not exclude each other.
//! 4. No change takes longer because there are more entries: tables and queues are in parts, and an
//!    entry leaves after at most [`TURNS`] names, however often others were used.
//!
//! It does not read files and does not know whether an entry is current: who looks one up says
//! where its record must stand, and the index asks to forget.
//!
//! Source: J. Yang et al., "FIFO queues are all you need for cache eviction", SOSP 2023.

mod names;
mod parts;

use std::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, RwLock};

use names::{Name, Names};
use parts::Parts;

use crate::disk::segment::Place;
use crate::entry::Stored;
use crate::key::Key;
use crate::lock::{read, write};

/// A power of two; enough that cores seldom meet, few enough that each has a fair share.
const SHARDS: usize = 16;
/// Uses that count; as in S3-FIFO.
const MAX_USES: u8 = 3;
/// The young queue's share of the space is one in so many; as in S3-FIFO.
const YOUNG_SHARE: u64 = 10;
/// Names of entries that left stay in the queues up to this many, or as many as entries.
const STALE_NAMES: usize = 32;
/// An entry may take one in so many of the space, so that one does not sweep the tier clean.
/// Arbitrary.
const LARGEST_SHARE: u64 = 8;
/// Number of entries of other shards that may leave for one that comes.
const MAX_TURNS: usize = 256;
/// Names that are looked at before an entry leaves. After the first half of them uses count no
/// more: some fifty microseconds of work.
const TURNS: usize = 512;
/// Places for names of entries that left, at first.
const FIRST_GHOSTS: usize = 64;
/// And at most: half a mebibyte, which is there in a tenth of a millisecond.
const MOST_GHOSTS: usize = 1 << 16;

/// Entries in memory.
#[derive(Debug)]
pub(crate) struct Memory {
    shards: Box<[RwLock<Tier>]>,
    limit: AtomicU64,
    used: AtomicU64,
    hand: AtomicUsize,
}

impl Memory {
    /// An empty tier that holds up to `limit` bytes.
    pub(crate) fn new(limit: u64) -> Self {
        Self {
            shards: (0..SHARDS).map(|_| RwLock::default()).collect(),
            limit: AtomicU64::new(limit),
            used: AtomicU64::new(0),
            hand: AtomicUsize::new(0),
        }
    }

    /// Looks up the entry whose record stands at `place`, and counts the use.
    pub(crate) fn touch(&self, key: &Key, place: Place) -> Option<Arc<Stored>> {
        read(self.shard(key)).touch(key, place)
    }

    /// Adds an entry, in place of one with the same key, if there is room or can be.
    pub(crate) fn insert(&self, stored: &Arc<Stored>) {
        let cost = stored.memory();
        if cost > self.limit.load(Ordering::Relaxed) / LARGEST_SHARE {
            return;
        }
        self.remove(&stored.key);
        if self.reserve(cost, &stored.key) {
            // Someone else may have put the same key in meanwhile.
            let replaced = write(self.shard(&stored.key)).insert(Arc::clone(stored), cost);
            self.release(replaced);
        }
    }

    /// Counts `bytes` more for an entry, for what is kept with it. False if it is not here, or was
    /// not looked up since it came: what is asked for once costs no more than itself.
    pub(crate) fn grow(&self, stored: &Arc<Stored>, bytes: u64) -> bool {
        let shard = self.shard(&stored.key);
        if !read(shard).is_used(stored) || !self.reserve(bytes, &stored.key) {
            return false;
        }
        // It may have left for the bytes that it asked for.
        let has_grown = write(shard).grow(stored, bytes);
        if !has_grown {
            self.release(bytes);
        }
        has_grown
    }

    /// Forgets an entry.
    pub(crate) fn remove(&self, key: &Key) {
        let shard = self.shard(key);
        if read(shard).kept.contains_key(key) {
            let freed = write(shard).remove(key);
            self.release(freed);
        }
    }

    /// Changes the limit.
    pub(crate) fn set_limit(&self, limit: u64) {
        self.limit.store(limit, Ordering::Relaxed);
        for shard in &self.shards {
            // Each round forgets an entry or a few names.
            while self.used() > limit && !read(shard).is_empty() {
                let freed = write(shard).evict();
                self.release(freed);
            }
        }
    }

    /// Bytes held.
    pub(crate) fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    fn shard(&self, key: &Key) -> &RwLock<Tier> {
        // The remainder is below the number of shards, the length of the boxed slice. Low bits,
        // because the high ones choose the shard of the index.
        &self.shards[key.mixed() as usize % SHARDS]
    }

    /// INVARIANT 1: counts bytes that are about to come in, after others left for them.
    fn reserve(&self, cost: u64, key: &Key) -> bool {
        for _ in 0..MAX_TURNS {
            let limit = self.limit.load(Ordering::Relaxed);
            let fits = |used: u64| used.checked_add(cost).filter(|sum| *sum <= limit);
            let counted = self
                .used
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits);
            if counted.is_ok() {
                return true;
            }
            let own = self.shard(key);
            let is_own = read(own).used > limit / SHARDS as u64;
            let next = self.hand.fetch_add(1, Ordering::Relaxed) % SHARDS;
            let victim = self.shards.get(next).filter(|_| !is_own).unwrap_or(own);
            let freed = write(victim).evict();
            self.release(freed);
        }
        false
    }

    fn release(&self, cost: u64) {
        self.used.fetch_sub(cost, Ordering::Relaxed);
    }
}

/// One shard.
#[derive(Debug, Default)]
struct Tier {
    kept: Parts,
    young: Names,
    main: Names,
    ghosts: Ghosts,
    young_used: u64,
    used: u64,
    serial: u32,
}

#[derive(Debug)]
struct Kept {
    stored: Arc<Stored>,
    cost: u64,
    serial: u32,
    uses: AtomicU8,
    queue: Queue,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Queue {
    Young,
    Main,
}

impl Tier {
    fn touch(&self, key: &Key, place: Place) -> Option<Arc<Stored>> {
        let kept = self.kept.get(key)?;
        if kept.stored.place != place {
            return None;
        }
        let uses = kept.uses.load(Ordering::Relaxed);
        if uses < MAX_USES {
            // Two uses at one time may count as one.
            kept.uses.store(uses + 1, Ordering::Relaxed);
        }
        Some(Arc::clone(&kept.stored))
    }

    fn is_used(&self, stored: &Arc<Stored>) -> bool {
        self.kept.get(&stored.key).is_some_and(|kept| {
            Arc::ptr_eq(&kept.stored, stored) && kept.uses.load(Ordering::Relaxed) > 0
        })
    }

    /// Counts more for an entry; false if it is not here.
    fn grow(&mut self, stored: &Arc<Stored>, bytes: u64) -> bool {
        let kept = self.kept.get_mut(&stored.key);
        let Some(kept) = kept.filter(|kept| Arc::ptr_eq(&kept.stored, stored)) else {
            return false;
        };
        kept.cost += bytes;
        self.used += bytes;
        if kept.queue == Queue::Young {
            self.young_used += bytes;
        }
        true
    }

    /// Puts an entry in; returns the cost of the one that it replaced.
    fn insert(&mut self, stored: Arc<Stored>, cost: u64) -> u64 {
        let key = stored.key;
        let replaced = self.remove(&key);
        self.serial = self.serial.wrapping_add(1);
        let queue = if self.ghosts.take(&key) {
            Queue::Main
        } else {
            Queue::Young
        };
        let kept = Kept {
            stored,
            cost,
            serial: self.serial,
            uses: AtomicU8::new(0),
            queue,
        };
        self.used += cost;
        match queue {
            Queue::Young => {
                self.young_used += cost;
                self.young.push_back((key, kept.serial));
            }
            Queue::Main => self.main.push_back((key, kept.serial)),
        }
        self.kept.insert(key, kept);
        self.forget_stale_names();
        replaced
    }

    /// Removes an entry; returns its cost, 0 if there was none.
    fn remove(&mut self, key: &Key) -> u64 {
        let Some(kept) = self.kept.remove(key) else {
            return 0;
        };
        if kept.queue == Queue::Young {
            self.young_used -= kept.cost;
        }
        self.used -= kept.cost;
        kept.cost
    }

    /// Forgets the entry whose turn it is; what it had cost, 0 if there is none, or so many names
    /// before it mean nothing that this is for another time. INVARIANT 4.
    fn evict(&mut self) -> u64 {
        for turn in 0..TURNS {
            let from_young = self.young_used * YOUNG_SHARE > self.used || self.main.is_empty();
            let queue = if from_young {
                &mut self.young
            } else {
                &mut self.main
            };
            let Some((key, serial)) = queue.pop_front() else {
                continue;
            };
            let Some(kept) = self.kept.get_mut(&key).filter(|kept| kept.serial == serial) else {
                continue;
            };
            let uses = kept.uses.get_mut();
            if *uses == 0 || turn >= TURNS / 2 {
                if kept.queue == Queue::Young {
                    self.ghosts.add(&key, self.kept.len());
                }
                return self.remove(&key);
            }
            if kept.queue == Queue::Young {
                *uses = 0;
                kept.queue = Queue::Main;
                self.young_used -= kept.cost;
            } else {
                *uses -= 1;
            }
            self.main.push_back((key, serial));
        }
        0
    }

    /// True if there is neither an entry nor a name.
    fn is_empty(&self) -> bool {
        self.young.is_empty() && self.main.is_empty()
    }

    /// INVARIANT 2.
    fn forget_stale_names(&mut self) {
        if self.young.len() + self.main.len() <= 2 * self.kept.len() + STALE_NAMES {
            return;
        }
        let kept = &self.kept;
        let is_current =
            |(key, serial): &Name| kept.get(key).is_some_and(|entry| entry.serial == *serial);
        self.young.tidy(is_current);
        self.main.tidy(is_current);
    }
}

/// Names of entries that left the young queue unused, as many as there are entries and at most
/// [`MOST_GHOSTS`]: a table in which a later name takes the place of an earlier one, with the upper
/// half of each name's hash and the count of names at its time.
#[derive(Debug, Default)]
struct Ghosts {
    names: Vec<(u32, u32)>,
    added: u32,
}

impl Ghosts {
    fn add(&mut self, key: &Key, entries: usize) {
        if self.names.len() < entries.min(MOST_GHOSTS) {
            let more = entries.next_power_of_two().clamp(FIRST_GHOSTS, MOST_GHOSTS);
            self.names = vec![(0, 0); more];
        }
        self.added = self.added.wrapping_add(1);
        let (position, print) = self.locate(key);
        if let Some(name) = self.names.get_mut(position) {
            *name = (print, self.added);
        }
    }

    /// Takes a name out; true if it was there.
    fn take(&mut self, key: &Key) -> bool {
        let (position, print) = self.locate(key);
        let window = self.names.len();
        let Some(name) = self.names.get_mut(position) else {
            return false;
        };
        let age = self.added.wrapping_sub(name.1) as usize;
        let is_it = name.0 == print && age < window;
        if is_it {
            *name = (0, 0);
        }
        is_it
    }

    fn locate(&self, key: &Key) -> (usize, u32) {
        let bits = key.mixed();
        let mask = self.names.len().saturating_sub(1);
        // The shard was chosen by the lowest bits; 0 stands for no name.
        ((bits >> 4) as usize & mask, (bits >> 32) as u32 | 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    const PLACE: Place = Place {
        segment: 1,
        offset: 64,
        size: 96,
    };

    fn key(number: u32) -> Key {
        Key::of(&number.to_le_bytes())
    }

    fn stored(number: u32) -> Arc<Stored> {
        let body = Bytes::from(vec![7; 100]);
        Arc::new(Stored::inline(key(number), PLACE, Bytes::new(), body, 0))
    }

    #[test]
    fn entries_in_use_outlive_a_scan() {
        let cost = stored(0).memory();
        let memory = Memory::new(cost * 2000);
        for number in 0..500 {
            memory.insert(&stored(number));
            memory.touch(&key(number), PLACE);
        }
        for number in 1000..50_000 {
            memory.insert(&stored(number));
        }
        let alive = (0..500).filter(|number| memory.touch(&key(*number), PLACE).is_some());
        assert_eq!(alive.count(), 500);
    }

    #[test]
    fn what_comes_back_soon_outlives_a_scan() {
        let cost = stored(0).memory();
        let memory = Memory::new(cost * 2000);
        let scan = |from: u32, count| (from..from + count).for_each(|n| memory.insert(&stored(n)));
        scan(10_000, 4000);
        // Pushed out by the scan, and back while its name is remembered.
        memory.insert(&stored(1));
        scan(20_000, 2600);
        assert!(memory.touch(&key(1), PLACE).is_none());
        memory.insert(&stored(1));
        scan(30_000, 10_000);
        assert!(memory.touch(&key(1), PLACE).is_some());
    }

    #[test]
    fn never_holds_more_than_its_limit() {
        let memory = Memory::new(100_000);
        for number in 0..5000 {
            memory.insert(&stored(number % 700));
            assert!(memory.used() <= 100_000);
        }
        memory.set_limit(10_000);
        assert!(memory.used() <= 10_000 && memory.used() > 0);
        memory.set_limit(0);
        assert_eq!(memory.used(), 0);
        memory.insert(&stored(1));
        assert_eq!(memory.used(), 0);
    }

    #[test]
    fn an_entry_at_another_place_is_not_it() {
        let memory = Memory::new(1 << 20);
        memory.insert(&stored(1));
        let elsewhere = Place {
            offset: 96,
            ..PLACE
        };
        assert!(memory.touch(&key(1), elsewhere).is_none());
        assert!(memory.touch(&key(1), PLACE).is_some());
        memory.remove(&key(1));
        assert_eq!(memory.used(), 0);
    }

    #[test]
    fn what_is_kept_with_an_entry_is_counted_and_goes_with_it() {
        let memory = Memory::new(1 << 20);
        let entry = stored(1);
        assert!(!memory.grow(&entry, 10), "it is not here");
        memory.insert(&entry);
        assert!(!memory.grow(&entry, 10), "it was not looked up");
        memory.touch(&key(1), PLACE);
        assert!(!memory.grow(&stored(1), 10), "it is another one");
        assert!(memory.grow(&entry, 10));
        assert_eq!(memory.used(), entry.memory() + 10);
        assert!(!memory.grow(&entry, 2 << 20), "more than the limit");
        memory.remove(&key(1));
        assert_eq!(memory.used(), 0);
    }

    #[test]
    fn evicting_everything_ends_and_leaves_nothing() {
        let mut tier = Tier::default();
        for number in 0..50 {
            tier.insert(stored(number), 10);
            tier.touch(&key(number), PLACE);
        }
        for _ in 0..50 {
            assert_eq!(tier.evict(), 10);
        }
        assert_eq!((tier.used, tier.kept.len()), (0, 0));
        assert_eq!(tier.evict(), 0);
    }

    #[test]
    fn names_do_not_pile_up_under_replacement() {
        let mut tier = Tier::default();
        for _ in 0..10_000 {
            tier.insert(stored(1), 10);
        }
        assert!(tier.young.len() + tier.main.len() <= 2 + STALE_NAMES + 1);
        assert_eq!(tier.used, 10);
        for number in 0..100_000 {
            tier.insert(stored(number % 5_000), 10);
        }
        assert_eq!(tier.kept.len(), 5_000);
        // While a round goes through the pieces of both queues, as many changes add a name each.
        let names = tier.young.len() + tier.main.len();
        assert!(names <= 2 * 5_000 + STALE_NAMES + 200, "{names}");
    }

    /// INVARIANT 4.
    #[test]
    fn an_entry_leaves_after_few_turns_though_all_were_used() {
        let mut tier = Tier::default();
        for number in 0..20_000 {
            tier.insert(stored(number), 10);
            (0..4).for_each(|_| assert!(tier.touch(&key(number), PLACE).is_some()));
        }
        assert_eq!(tier.evict(), 10);
        assert!(tier.main.len() <= TURNS, "{} moved", tier.main.len());
        for number in 0..20_000 {
            tier.remove(&key(number));
        }
        // Names that mean nothing are a little work at a time, too.
        let before = tier.young.len() + tier.main.len();
        assert_eq!(tier.evict(), 0);
        assert_eq!(tier.young.len() + tier.main.len(), before - TURNS);
    }

    /// Prints what the names of entries that left are good for:
    /// `cargo test --release -p millpond-store --lib -- --ignored --nocapture hit_ratio`.
    #[test]
    #[ignore = "prints figures"]
    fn hit_ratio_with_and_without_names_of_entries_that_left() {
        for (scans, share) in [(0, 20), (0, 100), (30, 20), (30, 100)] {
            let [with, without] = [true, false].map(|has_ghosts| {
                let memory = Memory::new(stored(0).memory() * 200_000 / share);
                let (mut hits, mut scanned, mut state) = (0, 1 << 24, 7_u64);
                for _ in 0..2_000_000 {
                    state ^= state << 13;
                    state ^= state >> 7;
                    state ^= state << 17;
                    // Popularity as 1 / rank, and a scan of keys that are asked for once.
                    let part = (state >> 11) as f64 / (1_u64 << 53) as f64;
                    let mut number = 200_000_f64.powf(part) as u32;
                    if state % 100 < scans {
                        scanned += 1;
                        number = scanned;
                    }
                    if memory.touch(&key(number), PLACE).is_some() {
                        hits += 1;
                        continue;
                    }
                    memory.insert(&stored(number));
                    if !has_ghosts {
                        write(memory.shard(&key(number))).ghosts = Ghosts::default();
                    }
                }
                f64::from(hits) / 20_000.0
            });
            println!(
                "space for 1 in {share}, {scans} % scanned: {with:.1} % hits, {without:.1} % without names"
            );
        }
    }
}
