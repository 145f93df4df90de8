//! Counters of sites: what each sent, by cache status, and what its origins were asked.
//!
//! ```text
//! request answered ─► its site's number ─► the worker's row of that site
//! exchange over ────►      (names)      ─► ledger.rs writes rows that changed to a file
//! ```
//!
//! A site is a name (`cache_site`) with a number (`site_names.rs` says which names have one). Each
//! worker adds to rows of its own, which no other core writes; readers sum them.
//!
//! Who counts is in a *turn* ([`Counting`]) from looking a name up to having added. To take numbers
//! back, their names are made unknown, a new turn begins, the end of all that count in the old one
//! is awaited, and the rows are added to those of the excess; then the numbers are free.
//!
//! Invariants:
//! 1. There are at most [`SITES_MAX`] sites; what belongs to names without a number is counted
//!    under [`EXCESS`], which is number 0.
//! 2. A number means the same name for a whole turn, and in the ledger for all of a file.
//! 3. An answer is counted once, when it was sent or its client was gone; an exchange once, when it
//!    is over. Taking numbers back moves counts to the excess, and loses none.
//! 4. A name gets a number for a reason: it is written in the configuration, or something is stored
//!    for it. What clients merely ask for gets none.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};
use std::sync::{
    Mutex, MutexGuard, OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, Weak,
};
use std::thread::Thread;

use bytes::Bytes;
use millpond_fleet::tally::{LedgerId, Source, Tally};
use millpond_store::{Departed, Zone};
use millpond_system::clock;

use super::departed;
use super::place::{Place, SHARDS};
use super::site_names::{Claim, IDLE_S, Names, RESERVE, Use};
use super::{Count, Label, STATUSES};
use crate::provenance::Shares;

/// Sites that are told apart (arbitrary: some megabytes of counters).
pub const SITES_MAX: usize = 4096;
/// The name under which all further ones are counted.
pub const EXCESS: &[u8] = millpond_fleet::tally::EXCESS;
/// Numbers in a row.
pub const CELLS: usize = 32;

const REQUESTS: usize = 0;
const BYTES: usize = REQUESTS + STATUSES.len();
const EXCHANGES: usize = BYTES + STATUSES.len();
const RECEIVED: usize = EXCHANGES + 1;
const ASKED: usize = RECEIVED + 1;
const FROM_CACHE: usize = ASKED + 1;
const FROM_ORIGIN: usize = FROM_CACHE + 1;
const _: () = assert!(FROM_ORIGIN < CELLS);

/// The number of a site.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SiteId(u16);

impl SiteId {
    /// Position of the site, below [`SITES_MAX`].
    pub fn index(self) -> usize {
        usize::from(self.0)
    }

    /// The number at a position; the excess's for one that is no position.
    pub fn of_bits(bits: u16) -> Self {
        if usize::from(bits) < SITES_MAX {
            SiteId(bits)
        } else {
            SiteId(0)
        }
    }

    /// True if the id is that of all names without a number.
    pub fn is_excess(self) -> bool {
        self.0 == 0
    }
}

/// Counters of one worker for one site.
#[derive(Debug, Default)]
#[repr(align(64))]
pub struct Row {
    cells: [AtomicU64; CELLS],
    /// The second in which it was counted under last.
    counted_s: AtomicU32,
}

impl Row {
    pub(super) fn add(&self, cell: usize, value: u64) {
        if let Some(cell) = self.cells.get(cell).filter(|_| value > 0) {
            cell.fetch_add(value, Ordering::Relaxed);
        }
    }

    /// Counts what only who has the place counts in this row.
    fn count(&self, place: Place, cell: usize, value: u64) {
        if let Some(cell) = self.cells.get(cell).filter(|_| value > 0) {
            place.add(cell, value);
        }
    }

    /// Numbers of the row.
    pub fn cells(&self) -> impl Iterator<Item = u64> {
        self.cells.iter().map(|cell| cell.load(Ordering::Relaxed))
    }

    /// Takes the numbers of the row, which are nobody's then.
    fn take(&self) -> impl Iterator<Item = u64> {
        self.counted_s.store(0, Ordering::Relaxed);
        self.cells
            .iter()
            .map(|cell| cell.swap(0, Ordering::Relaxed))
    }

    /// Adds what was counted before.
    pub fn add_all(&self, values: impl Iterator<Item = u64>) {
        for (cell, value) in self.cells.iter().zip(values) {
            cell.fetch_add(value, Ordering::Relaxed);
        }
    }
}

/// The rows of one worker.
#[derive(Debug)]
pub struct Shard {
    rows: Box<[OnceLock<Box<Row>>]>,
    /// True if a row changed since the ledger last looked.
    pub(super) is_dirty: AtomicBool,
    /// Numbers of the counts that are under way: in even turns, and in odd ones.
    counting: [AtomicUsize; 2],
}

impl Shard {
    /// The row of a site, made when it is first needed.
    pub fn row(&self, site: SiteId) -> Option<&Row> {
        let row = self.rows.get(site.index())?;
        Some(row.get_or_init(Box::default))
    }

    /// The row of a site, if it has counted anything.
    pub fn find(&self, index: usize) -> Option<&Row> {
        self.rows.get(index)?.get().map(|row| &**row)
    }
}

/// Counts of one site.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SiteCount {
    /// Answers and bytes of their bodies, in the order of [`STATUSES`].
    counts: [Count; STATUSES.len()],
    /// Exchanges with origins.
    pub exchanges: u64,
    /// Bytes that came from origins, heads included.
    pub received: u64,
    /// Bytes that were sent to origins.
    pub asked: u64,
    /// Shares of cache and origin in the bytes of the bodies.
    pub shares: Shares,
    /// Entries that left the cache.
    pub departed: Departed,
}

/// An answer that was sent, or whose client was gone.
#[derive(Clone, Copy, Debug)]
pub struct Answered {
    /// Cache status of the answer.
    pub label: Label,
    /// Bytes of its body, as they were sent.
    pub bytes: u64,
    /// Shares of cache and origin in the bytes of the body.
    pub shares: Shares,
}

impl Source for Sites {
    fn tally(&self) -> Option<Tally> {
        let ledger = *self.ledger.lock().unwrap_or_else(PoisonError::into_inner);
        let stores: Vec<_> = self
            .stores
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .iter()
            .filter_map(Weak::upgrade)
            .collect();
        stores.iter().for_each(|store| self.gather(store));
        let counted = |(_, cells): &(_, [u64; CELLS])| cells.iter().any(|cell| *cell > 0);
        let rows = self.rows().into_iter().filter(counted);
        Some(Tally {
            ledger: ledger?,
            rows: rows.map(|(name, cells)| (name, cells.to_vec())).collect(),
        })
    }
}

impl SiteCount {
    /// Counts that stand in a row of numbers.
    pub fn of(cells: &[u64]) -> Self {
        let mut count = SiteCount::default();
        count.add(cells);
        count
    }

    fn add(&mut self, cells: &[u64]) {
        let cell = |index: usize| cells.get(index).copied().unwrap_or(0);
        for (index, count) in self.counts.iter_mut().enumerate() {
            count.requests += cell(REQUESTS + index);
            count.bytes += cell(BYTES + index);
        }
        self.exchanges += cell(EXCHANGES);
        self.received += cell(RECEIVED);
        self.asked += cell(ASKED);
        self.shares.cache += cell(FROM_CACHE);
        self.shares.origin += cell(FROM_ORIGIN);
        self.departed.add(&departed::of_row(cells));
    }

    /// Adds what was counted for another site.
    pub fn add_count(&mut self, other: &SiteCount) {
        let SiteCount {
            counts,
            exchanges,
            received,
            asked,
            shares,
            departed,
        } = other;
        for (sum, count) in self.counts.iter_mut().zip(counts) {
            sum.requests += count.requests;
            sum.bytes += count.bytes;
        }
        self.exchanges += exchanges;
        self.received += received;
        self.asked += asked;
        self.shares.cache += shares.cache;
        self.shares.origin += shares.origin;
        self.departed.add(departed);
    }

    /// Every status with its count.
    pub fn by_status(&self) -> impl Iterator<Item = (&'static str, Count)> {
        STATUSES.into_iter().zip(self.counts)
    }

    /// All answers.
    pub fn total(&self) -> Count {
        self.sum(|_| true)
    }

    /// Answers that came from the cache.
    pub fn from_cache(&self) -> u64 {
        self.sum(|name| super::FROM_CACHE.contains(&name)).requests
    }

    /// Answers that a cache looked at.
    pub fn asked_of_cache(&self) -> u64 {
        self.sum(|name| name != "-").requests
    }

    fn sum(&self, is_meant: impl Fn(&str) -> bool) -> Count {
        let mut sum = Count::default();
        for (_, count) in self.by_status().filter(|(name, _)| is_meant(name)) {
            sum.requests += count.requests;
            sum.bytes += count.bytes;
        }
        sum
    }
}

/// The sites of the process.
#[derive(Debug)]
pub struct Sites {
    names: RwLock<Names>,
    shards: Box<[Shard]>,
    /// Number of times that numbers were taken back.
    turn: AtomicUsize,
    made: tokio::time::Instant,
    /// Seconds since then, as of the last [`Sites::tend`]; from 1 on.
    now_s: AtomicU32,
    /// Held while numbers are taken back, and while rows are copied for the ledger.
    layout: Mutex<()>,
    /// The stores that entries of sites are in.
    stores: RwLock<Vec<Weak<Zone>>>,
    /// Name of the ledger, once its rows are among those here.
    ledger: Mutex<Option<LedgerId>>,
    /// The thread that writes the ledger, if there is one, and whether it sleeps.
    writer: Mutex<Option<Thread>>,
    is_idle: AtomicBool,
}

impl Default for Sites {
    fn default() -> Self {
        let shard = || Shard {
            rows: (0..SITES_MAX).map(|_| OnceLock::new()).collect(),
            is_dirty: AtomicBool::new(false),
            counting: Default::default(),
        };
        Sites {
            names: RwLock::default(),
            shards: (0..SHARDS).map(|_| shard()).collect(),
            turn: AtomicUsize::new(0),
            made: clock::instant(),
            now_s: AtomicU32::new(1),
            layout: Mutex::default(),
            stores: RwLock::default(),
            ledger: Mutex::default(),
            writer: Mutex::default(),
            is_idle: AtomicBool::new(false),
        }
    }
}

/// Somebody counts: numbers keep their meaning until this is dropped. Not to be kept across an
/// await.
#[derive(Debug)]
pub struct Counting<'a> {
    sites: &'a Sites,
    shard: &'a Shard,
    turn: usize,
}

impl Drop for Counting<'_> {
    fn drop(&mut self) {
        self.shard.counting[self.turn % 2].fetch_sub(1, Ordering::Release);
    }
}

impl Counting<'_> {
    /// Number of the turn: what was looked up in another one may mean something else.
    pub fn turn(&self) -> usize {
        self.turn
    }

    /// The number of a name, which is given if there is a reason; that of the excess otherwise.
    pub fn id(&self, name: &[u8], claim: Claim) -> SiteId {
        let known = {
            let names = self.sites.read();
            let claim = if names.is_written(name) {
                Claim::Written
            } else {
                claim
            };
            names.find(name).ok_or(claim)
        };
        match known {
            Ok(number) => SiteId(number),
            // INVARIANT 4.
            Err(Claim::None) if !self.sites.holds(name) => SiteId(0),
            Err(_) => SiteId(self.sites.write().give(name)),
        }
    }

    /// Counts an answer and the bytes of its body.
    pub fn answered(&self, place: Place, site: SiteId, answer: &Answered) {
        let index = answer.label.index();
        self.with_row(site, |row| {
            row.count(place, REQUESTS + index, 1);
            row.count(place, BYTES + index, answer.bytes);
            row.count(place, FROM_CACHE, answer.shares.cache);
            row.count(place, FROM_ORIGIN, answer.shares.origin);
        });
    }

    /// Counts an exchange with an origin.
    pub fn exchanged(&self, site: SiteId, (received, asked): (u64, u64)) {
        self.with_row(site, |row| {
            row.add(EXCHANGES, 1);
            row.add(RECEIVED, received);
            row.add(ASKED, asked);
        });
    }

    pub(super) fn with_row(&self, site: SiteId, count: impl FnOnce(&Row)) {
        if let Some(row) = self.shard.row(site) {
            count(row);
            row.counted_s
                .store(self.sites.now_s.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        // The count must be there before the mark is looked at: if the mark is taken away then,
        // the ledger sees the count.
        fence(Ordering::SeqCst);
        if !self.shard.is_dirty.load(Ordering::Relaxed) {
            self.shard.is_dirty.store(true, Ordering::SeqCst);
            self.sites.wake();
        }
    }
}

impl Sites {
    /// Begins to count in a shard: that of one's [`Place`], or any that is shared.
    pub fn enter(&self, shard: usize) -> Counting<'_> {
        let shard = &self.shards[shard % SHARDS];
        // Turns end seldom, and each waits for who counts: it goes round once or twice.
        loop {
            let turn = self.turn.load(Ordering::SeqCst);
            let counting = &shard.counting[turn % 2];
            counting.fetch_add(1, Ordering::SeqCst);
            if self.turn.load(Ordering::SeqCst) == turn {
                return Counting {
                    sites: self,
                    shard,
                    turn,
                };
            }
            counting.fetch_sub(1, Ordering::SeqCst);
        }
    }

    /// The names of a configuration: they have numbers as long as it is in force, and others make
    /// room for them.
    pub fn expect(&self, written: HashSet<Bytes>) {
        let lacking = {
            let mut names = self.write();
            names.write(written);
            names.lacking()
        };
        let layout = self.layout();
        let missing = lacking.len().saturating_sub(self.read().free_count());
        if missing > 0 {
            let mut unused = self.retirable(u32::MAX);
            unused.truncate(missing);
            self.take_back(&layout, &unused);
        }
        let mut names = self.write();
        for name in lacking {
            names.give(&name);
        }
    }

    /// Sets the stores in which entries of sites are.
    pub fn set_stores(&self, stores: Vec<Weak<Zone>>) {
        *self.stores.write().unwrap_or_else(PoisonError::into_inner) = stores;
    }

    /// Seconds since the table was made.
    pub fn age_s(&self) -> u32 {
        let age = clock::instant() - self.made;
        u32::try_from(age.as_secs()).unwrap_or(u32::MAX)
    }

    /// Notes the time, in seconds since the table was made, and takes numbers back if few are free.
    pub fn tend(&self, now_s: u32) {
        self.now_s.store(now_s.max(1), Ordering::Relaxed);
        let free = self.read().free_count();
        if free >= RESERVE || self.are_stores_loading() {
            return;
        }
        let layout = self.layout();
        let mut unused = self.retirable(now_s.saturating_sub(IDLE_S));
        unused.truncate(2 * RESERVE - free);
        self.take_back(&layout, &unused);
    }

    /// Takes back the number of a site, or of all that the configuration does not say; tells how
    /// many. They begin anew: what was counted is among the excess.
    pub fn reset(&self, site: Option<&[u8]>) -> usize {
        let layout = self.layout();
        let numbers = match site {
            Some(name) => self
                .read()
                .find(name)
                .filter(|it| *it > 0)
                .into_iter()
                .collect(),
            None => self.retirable(u32::MAX),
        };
        self.take_back(&layout, &numbers);
        let mut names = self.write();
        for name in names.lacking() {
            names.give(&name);
        }
        numbers.len()
    }

    fn retirable(&self, idle_from_s: u32) -> Vec<u16> {
        let names = self.read();
        names.retirable(idle_from_s, |number, name| {
            let rows = self.shards.iter().filter_map(|shard| shard.find(number));
            let counted = rows.map(|row| row.counted_s.load(Ordering::Relaxed));
            Use {
                counted_s: counted.max().unwrap_or(0),
                holds: self.holds(name),
            }
        })
    }

    /// INVARIANTS 2 and 3.
    fn take_back(&self, _layout: &MutexGuard<'_, ()>, numbers: &[u16]) {
        if numbers.is_empty() {
            return;
        }
        self.write().retire(numbers);
        let turn = self.turn.fetch_add(1, Ordering::SeqCst);
        for shard in &self.shards {
            // A thread that counts waits for nothing, so the wait is over as soon as those
            // threads run.
            while shard.counting[turn % 2].load(Ordering::SeqCst) > 0 {
                std::thread::yield_now();
            }
        }
        let mut names = self.write();
        let shared = &self.shards[Place::shared(0).shard()];
        for number in numbers {
            let rows = self.shards.iter();
            for row in rows.filter_map(|shard| shard.find(usize::from(*number))) {
                if let Some(excess) = shared.row(SiteId(0)) {
                    excess.add_all(row.take());
                }
            }
        }
        names.free(numbers);
        drop(names);
        shared.is_dirty.store(true, Ordering::SeqCst);
        self.wake();
    }

    /// True if something is stored for a site.
    fn holds(&self, name: &[u8]) -> bool {
        let name = if name == departed::NAMELESS {
            b""
        } else {
            name
        };
        let stores = self.stores.read().unwrap_or_else(PoisonError::into_inner);
        let mut stores = stores.iter().filter_map(Weak::upgrade);
        stores.any(|store| store.holds_site(name))
    }

    fn are_stores_loading(&self) -> bool {
        let stores = self.stores.read().unwrap_or_else(PoisonError::into_inner);
        let mut stores = stores.iter().filter_map(Weak::upgrade);
        stores.any(|store| store.is_loading())
    }

    /// No number changes its meaning as long as what comes back lives.
    pub(super) fn layout(&self) -> MutexGuard<'_, ()> {
        self.layout.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Number of the turn.
    pub(super) fn turn(&self) -> usize {
        self.turn.load(Ordering::SeqCst)
    }

    /// All names, by number; empty for one that is free.
    pub fn names(&self) -> Vec<Bytes> {
        self.read().list().to_vec()
    }

    /// Names that are not in the ledger as they are, with their numbers.
    pub(super) fn unwritten(&self) -> Vec<(usize, Bytes)> {
        let mut names = self.write();
        let numbers = names.unwritten().into_iter().map(usize::from);
        let list = names.list();
        numbers
            .filter_map(|number| Some((number, list.get(number)?.clone())))
            .collect()
    }

    /// All is to be written to the ledger again.
    pub(super) fn rewrite(&self) {
        self.write().rewrite();
        for shard in &self.shards {
            shard.is_dirty.store(true, Ordering::Release);
        }
    }

    fn read(&self) -> RwLockReadGuard<'_, Names> {
        self.names.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Names> {
        self.names.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// The rows here go on with those of a ledger.
    pub(super) fn set_ledger(&self, ledger: LedgerId) {
        *self.ledger.lock().unwrap_or_else(PoisonError::into_inner) = Some(ledger);
    }

    /// Counts of each site, by name.
    pub fn snapshot(&self) -> Vec<(Bytes, SiteCount)> {
        let rows = self.rows().into_iter();
        rows.map(|(name, cells)| (name, SiteCount::of(&cells)))
            .collect()
    }

    /// Numbers of each site, by name.
    fn rows(&self) -> Vec<(Bytes, [u64; CELLS])> {
        // Counts do not move meanwhile.
        let names = self.read();
        let named = names.list().iter().enumerate();
        let counted = named
            .filter(|(_, name)| !name.is_empty())
            .map(|(index, name)| {
                let mut sums = [0; CELLS];
                for row in self.shards.iter().filter_map(|shard| shard.find(index)) {
                    let cells = sums.iter_mut().zip(row.cells());
                    cells.for_each(|(sum, cell)| *sum += cell);
                }
                (name.clone(), sums)
            });
        counted.collect()
    }

    /// The rows of all workers.
    pub(super) fn shards(&self) -> &[Shard] {
        &self.shards
    }

    /// The thread that is to be woken when something was counted.
    pub(super) fn set_writer(&self, thread: Option<Thread>) {
        *self.writer.lock().unwrap_or_else(PoisonError::into_inner) = thread;
    }

    /// The writer goes to sleep until something is counted; false if something was already.
    pub(super) fn may_sleep(&self) -> bool {
        self.is_idle.store(true, Ordering::SeqCst);
        !self
            .shards
            .iter()
            .any(|shard| shard.is_dirty.load(Ordering::SeqCst))
    }

    fn wake(&self) {
        if self.is_idle.swap(false, Ordering::SeqCst)
            && let Some(writer) = &*self.writer.lock().unwrap_or_else(PoisonError::into_inner)
        {
            writer.unpark();
        }
    }
}

#[cfg(test)]
mod tests;
