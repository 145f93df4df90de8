//! Counters of sites: what each sent, by cache status, and what its origins were asked.
//!
//! ```text
//! request answered ─► its site's number ─► the worker's row of that site
//! exchange over ────►      (names)      ─► ledger.rs writes rows that changed to a file
//! ```
//!
//! A site is a name (`cache_site`) with a number for as long as the file of the ledger lives. Each
//! worker adds to rows of its own, which no other core writes; readers sum them.
//!
//! Invariants:
//! 1. There are at most [`SITES_MAX`] sites; what belongs to further names is counted under
//!    [`EXCESS`], which is number 0.
//! 2. A number means the same name for ever, so that rows can be added to after a restart.
//! 3. An answer is counted once, when it was sent or its client was gone; an exchange once, when it
//!    is over.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use std::sync::{Mutex, OnceLock, PoisonError, RwLock};
use std::thread::Thread;

use bytes::Bytes;
use millpond_store::Departed;

use super::departed;
use super::place::{Place, SHARDS};
use super::{Count, Label, STATUSES};
use crate::cache::provenance::Shares;

/// Sites that are told apart (arbitrary: some megabytes of counters).
pub const SITES_MAX: usize = 4096;
/// The name under which all further ones are counted.
pub const EXCESS: &[u8] = b"*";
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
    /// Its position, below [`SITES_MAX`].
    pub fn index(self) -> usize {
        usize::from(self.0)
    }
}

/// What one worker counted for one site.
#[derive(Debug, Default)]
#[repr(align(64))]
pub struct Row {
    cells: [AtomicU64; CELLS],
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

    /// Its numbers.
    pub fn cells(&self) -> impl Iterator<Item = u64> {
        self.cells.iter().map(|cell| cell.load(Ordering::Relaxed))
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
    /// Whether a row changed since the ledger last looked.
    pub(super) is_dirty: AtomicBool,
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

/// What is known of one site.
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
    /// Whose the bytes of the bodies are.
    pub shares: Shares,
    /// Entries that left the cache.
    pub departed: Departed,
}

/// An answer that was sent, or whose client was gone.
#[derive(Clone, Copy, Debug)]
pub struct Answered {
    /// Its cache status.
    pub label: Label,
    /// Bytes of its body, as they were sent.
    pub bytes: u64,
    /// Whose they are.
    pub shares: Shares,
}

impl SiteCount {
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

#[derive(Debug)]
struct Names {
    by_name: HashMap<Bytes, SiteId>,
    list: Vec<Bytes>,
}

/// The sites of the process.
#[derive(Debug)]
pub struct Sites {
    names: RwLock<Names>,
    shards: Box<[Shard]>,
    /// The thread that writes the ledger, if there is one, and whether it sleeps.
    writer: Mutex<Option<Thread>>,
    is_idle: AtomicBool,
}

impl Default for Sites {
    fn default() -> Self {
        let shard = || Shard {
            rows: (0..SITES_MAX).map(|_| OnceLock::new()).collect(),
            is_dirty: AtomicBool::new(false),
        };
        let excess = Bytes::from_static(EXCESS);
        Sites {
            names: RwLock::new(Names {
                by_name: HashMap::from([(excess.clone(), SiteId(0))]),
                list: vec![excess],
            }),
            shards: (0..SHARDS).map(|_| shard()).collect(),
            writer: Mutex::default(),
            is_idle: AtomicBool::new(false),
        }
    }
}

impl Sites {
    /// The number of a name, given when it is first asked for.
    pub fn id(&self, name: &[u8]) -> SiteId {
        let known = {
            let names = self.names.read().unwrap_or_else(PoisonError::into_inner);
            names.by_name.get(name).copied()
        };
        known.unwrap_or_else(|| self.new_id(name))
    }

    fn new_id(&self, name: &[u8]) -> SiteId {
        let mut names = self.names.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = names.by_name.get(name) {
            return *known;
        }
        // INVARIANT 1.
        let number = names.list.len();
        let Some(id) = u16::try_from(number).ok().filter(|_| number < SITES_MAX) else {
            return SiteId(0);
        };
        let name = Bytes::copy_from_slice(name);
        names.list.push(name.clone());
        names.by_name.insert(name, SiteId(id));
        SiteId(id)
    }

    /// All names, by number.
    pub fn names(&self) -> Vec<Bytes> {
        let names = self.names.read().unwrap_or_else(PoisonError::into_inner);
        names.list.clone()
    }

    /// Counts an answer and the bytes of its body.
    pub fn answered(&self, place: Place, site: SiteId, answer: &Answered) {
        let index = answer.label.index();
        self.with_row(place.shard(), site, |row| {
            row.count(place, REQUESTS + index, 1);
            row.count(place, BYTES + index, answer.bytes);
            row.count(place, FROM_CACHE, answer.shares.cache);
            row.count(place, FROM_ORIGIN, answer.shares.origin);
        });
    }

    /// Counts an exchange with an origin.
    pub fn exchanged(&self, worker: usize, site: SiteId, (received, asked): (u64, u64)) {
        self.with_row(worker, site, |row| {
            row.add(EXCHANGES, 1);
            row.add(RECEIVED, received);
            row.add(ASKED, asked);
        });
    }

    pub(super) fn with_row(&self, worker: usize, site: SiteId, count: impl FnOnce(&Row)) {
        let Some(shard) = self.shards.get(worker % SHARDS) else {
            return;
        };
        if let Some(row) = shard.row(site) {
            count(row);
        }
        // What was counted must be there before the mark is looked at: if that is taken away then,
        // the ledger sees what was counted.
        fence(Ordering::SeqCst);
        if !shard.is_dirty.load(Ordering::Relaxed) {
            shard.is_dirty.store(true, Ordering::SeqCst);
            self.wake();
        }
    }

    /// What was counted for each site, by name.
    pub fn snapshot(&self) -> Vec<(Bytes, SiteCount)> {
        let names = self.names().into_iter().enumerate();
        let counted = names.map(|(index, name)| {
            let mut sum = SiteCount::default();
            for row in self.shards.iter().filter_map(|shard| shard.find(index)) {
                let cells: Vec<u64> = row.cells().collect();
                sum.add(&cells);
            }
            (name, sum)
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
mod tests {
    use super::*;

    #[test]
    fn workers_are_summed_by_site_and_status() {
        let sites = Sites::default();
        let (one, two) = (sites.id(b"one"), sites.id(b"two"));
        let answer = |status, cache, origin| Answered {
            label: Label::of(status),
            bytes: cache + origin,
            shares: Shares { cache, origin },
        };
        sites.answered(Place::shared(0), one, &answer(Some("HIT"), 10, 0));
        sites.answered(Place::shared(17), one, &answer(Some("HIT"), 3, 2));
        sites.answered(Place::shared(1), one, &answer(None, 0, 1));
        sites.exchanged(1, two, (100, 30));
        let found = sites.snapshot();
        let names: Vec<&[u8]> = found.iter().map(|(name, _)| &name[..]).collect();
        assert_eq!(names, [EXCESS, b"one", b"two"]);
        let hits = Count {
            requests: 2,
            bytes: 15,
        };
        assert_eq!(found[1].1.by_status().next(), Some(("HIT", hits)));
        assert_eq!(found[1].1.total().requests, 3);
        let shares = Shares {
            cache: 13,
            origin: 3,
        };
        assert_eq!(found[1].1.shares, shares);
        let exchanges = (found[2].1.exchanges, found[2].1.received, found[2].1.asked);
        assert_eq!(exchanges, (1, 100, 30));
    }

    #[test]
    fn further_names_share_one_number() {
        let sites = Sites::default();
        for number in 0..SITES_MAX + 10 {
            sites.id(format!("site-{number}").as_bytes());
        }
        assert_eq!(sites.names().len(), SITES_MAX);
        assert_eq!(sites.id(b"one more"), SiteId(0));
        assert_eq!(sites.id(b"site-0"), SiteId(1));
    }
}
