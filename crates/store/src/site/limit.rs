//! Limits of what sites may hold in a zone (`cache_site_quota`), and the order in which their
//! entries leave.
//!
//! A limit belongs to a number of the book, whose name is expected, so that the number stays its
//! own. What it counts is what [`Holdings`](super::Holdings) count of all disks in use.
//!
//! Each disk has a list of those entries of a limited site that were used longest ago. Uses are not
//! noted in it, since hits must not pay for it: who takes an entry from the list looks whether it
//! was used since, and puts it back if so.
//!
//! 1. A list has all entries of its site on its disk that were last used before its horizon, as far
//!    as they are loaded; which was used last is as of some moment before.
//! 2. A list has at most [`LISTED`] entries.

use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};

use arc_swap::ArcSwap;
use bytes::Bytes;

use super::{Account, DISK_BYTES, Demand, EXCESS, FIRST, Holdings, SiteBook, cut};
use crate::key::Key;
use crate::lock::{Rank, Ranked, lock};

/// Entries of one list (arbitrary: at most 128 KiB of memory).
const LISTED: usize = 4096;

/// The limits of a zone's sites.
#[derive(Default)]
pub(super) struct Limits {
    is_any: AtomicBool,
    by_number: ArcSwap<HashMap<u16, Arc<Limit>>>,
}

/// The limit of one site.
#[derive(Debug)]
pub(crate) struct Limit {
    bytes: AtomicU64,
    /// Held by who makes an entry of the site, so that two do not take the same room.
    pub(crate) turn: Ranked<Mutex<()>>,
    /// Bytes that were refused to an entry, and may be asked for again.
    wanted: AtomicU64,
    pub(crate) evicted: AtomicU64,
    pub(crate) refused: AtomicU64,
}

impl Limits {
    /// Sets the limits, in bytes by number; those that go on keep their counts.
    pub(super) fn set(&self, limits: impl Iterator<Item = (u16, u64)>) {
        let before = self.by_number.load_full();
        let kept = limits.map(|(number, bytes)| {
            let limit = before.get(&number).map_or_else(Arc::default, Arc::clone);
            limit.bytes.store(bytes, Ordering::Relaxed);
            (number, limit)
        });
        let after: HashMap<_, _> = kept.collect();
        self.is_any.store(!after.is_empty(), Ordering::Release);
        self.by_number.store(Arc::new(after));
    }

    /// All limits.
    pub(super) fn all(&self) -> Arc<HashMap<u16, Arc<Limit>>> {
        self.by_number.load_full()
    }
}

/// A site with a limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SiteLimit {
    /// Name of the site; empty for entries that name no site.
    pub site: Bytes,
    /// The most that it may hold, as bytes of all disks.
    pub bytes: u64,
    /// Bytes of the disks in use that it holds.
    pub held: u64,
    /// Entries, and parts of entries, that left for others of the site.
    pub evicted: u64,
    /// Entries, and parts of entries, that were not stored because of the limit.
    pub refused: u64,
}

impl SiteBook {
    /// Sets the most that sites may hold, as bytes of all disks, in place of what was set before.
    /// The names of those that have no number of their own come back: they have no limit.
    pub fn limit<'a>(&self, limits: impl IntoIterator<Item = (&'a [u8], u64)>) -> Vec<Bytes> {
        let mut names = self.write();
        let mut numbered = Vec::new();
        let mut others = Vec::new();
        for (name, bytes) in limits {
            let name = cut(name);
            let number = self.number_in(&mut names, name, Demand::Expected);
            if number == 1 && name != EXCESS {
                others.push(Bytes::copy_from_slice(name));
                continue;
            }
            if number >= FIRST {
                names.expected.insert(number);
            }
            numbered.push((number, bytes));
        }
        self.limits.set(numbered.into_iter());
        for holdings in lock(&self.holdings).iter().filter_map(Weak::upgrade) {
            let limits = self.limits.all();
            lock(&holdings.leaving).retain(|number, _| limits.contains_key(number));
        }
        others
    }

    /// Sites with limits, and what they hold.
    pub(crate) fn limited(&self) -> Vec<SiteLimit> {
        let limits = self.limits.all();
        let limited = limits.iter().map(|(number, limit)| SiteLimit {
            site: self.name(*number),
            bytes: limit.bytes(),
            held: self.held_bytes(Account::of_number(*number)),
            evicted: limit.evicted.load(Ordering::Relaxed),
            refused: limit.refused.load(Ordering::Relaxed),
        });
        limited.collect()
    }

    /// True if a site has a limit.
    pub(crate) fn has_limits(&self) -> bool {
        self.limits.is_any.load(Ordering::Acquire)
    }

    /// The limit of an account's site.
    pub(crate) fn limit_of(&self, account: Account) -> Option<Arc<Limit>> {
        if !self.has_limits() {
            return None;
        }
        self.limits.all().get(&account.number()).map(Arc::clone)
    }

    /// All limits, by number.
    pub(crate) fn limits(&self) -> Arc<HashMap<u16, Arc<Limit>>> {
        self.limits.all()
    }

    /// Bytes that an account's site holds of all disks in use.
    pub(crate) fn held_bytes(&self, account: Account) -> u64 {
        let holdings = lock(&self.holdings);
        let all = holdings.iter().filter_map(Weak::upgrade);
        let used = all.filter(|it| !it.is_over.load(Ordering::Relaxed));
        used.map(|it| it.held_bytes(account)).sum()
    }
}

impl Holdings {
    /// The disk is not used any more: what was on it is not held.
    pub(crate) fn end(&self) {
        self.is_over.store(true, Ordering::Relaxed);
    }

    fn held_bytes(&self, account: Account) -> u64 {
        let row = self.rows.get(usize::from(account.number()));
        let counter = row.and_then(|row| row.get()?.get(DISK_BYTES));
        // While a batch is on its way, there may be less than nothing.
        let bytes = counter.map_or(0, |it| it.load(Ordering::Acquire).cast_signed());
        u64::try_from(bytes).unwrap_or(0)
    }

    /// Does something with the list of an account's site.
    pub(crate) fn with_leaving<T>(
        &self,
        account: Account,
        act: impl FnOnce(&mut Leaving) -> T,
    ) -> T {
        act(lock(&self.leaving).entry(account.number()).or_default())
    }
}

impl Default for Limit {
    fn default() -> Self {
        Limit {
            bytes: AtomicU64::new(u64::MAX),
            turn: Ranked::new(Rank::SiteTurn, ()),
            wanted: AtomicU64::new(0),
            evicted: AtomicU64::new(0),
            refused: AtomicU64::new(0),
        }
    }
}

impl Limit {
    /// The most that the site may hold.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Asks for room that the next sweep is to make.
    pub(crate) fn want(&self, bytes: u64) {
        self.wanted.fetch_max(bytes, Ordering::Relaxed);
    }

    /// Room that is asked for.
    pub(crate) fn wanted(&self) -> u64 {
        self.wanted.load(Ordering::Relaxed).min(self.bytes())
    }

    /// Nobody asks for room any more.
    pub(crate) fn forget_wanted(&self) {
        // So that a line that others read is written seldom.
        if self.wanted.load(Ordering::Relaxed) > 0 {
            self.wanted.store(0, Ordering::Relaxed);
        }
    }
}

/// Entries of a site in the order of their turns (`quota`): times in seconds, that of the last use
/// or some more, as they were noted.
#[derive(Debug, Default)]
pub(crate) struct Leaving {
    queue: BTreeSet<(u32, Key)>,
    /// INVARIANT 1.
    horizon: u32,
    /// Entries that came, so that who lists all knows of those that came meanwhile.
    arrivals: u64,
    /// True while the list is about to be made anew.
    pub(crate) is_ordered: bool,
}

/// A list as it is made: of all entries that are shown to it, those that were used longest ago.
#[derive(Debug)]
pub(crate) struct Listing {
    queue: BTreeSet<(u32, Key)>,
    horizon: u32,
    arrivals: u64,
}

impl Listing {
    /// An entry that was last used then.
    pub(crate) fn show(&mut self, used: u32, key: Key) {
        if used < self.horizon {
            self.queue.insert((used, key));
        }
        // INVARIANT 2.
        if self.queue.len() > LISTED
            && let Some((last, _)) = self.queue.pop_last()
        {
            self.horizon = last;
        }
    }
}

impl Leaving {
    /// Begins to list all entries.
    pub(crate) fn list(&self) -> Listing {
        Listing {
            queue: BTreeSet::new(),
            horizon: u32::MAX,
            arrivals: self.arrivals,
        }
    }

    /// Takes a list over that was begun at a time, in seconds.
    pub(crate) fn take(&mut self, listing: Listing, (began, is_loading): (u32, bool)) {
        let is_whole = listing.arrivals == self.arrivals && !is_loading;
        // What came meanwhile was used since.
        self.horizon = if is_whole {
            listing.horizon
        } else {
            listing.horizon.min(began)
        };
        self.queue = listing.queue;
        self.is_ordered = false;
    }

    /// An entry of the site came; with its turn, unless it is listed already, or has left again.
    pub(crate) fn came(&mut self, turn: Option<u32>, key: Key) {
        self.arrivals += 1;
        if let Some(turn) = turn {
            self.put(turn, key);
        }
    }

    /// Puts an entry in, at the time of its last use.
    pub(crate) fn put(&mut self, used: u32, key: Key) {
        if used < self.horizon {
            self.queue.insert((used, key));
        }
        // INVARIANT 2.
        if self.queue.len() > LISTED
            && let Some((last, _)) = self.queue.pop_last()
        {
            self.horizon = last;
        }
    }

    /// Takes the entry that was used longest ago, as far as was noted.
    pub(crate) fn pop(&mut self) -> Option<(u32, Key)> {
        self.queue.pop_first()
    }

    /// True if the site has entries that are not in the list.
    pub(crate) fn is_partial(&self) -> bool {
        self.horizon != u32::MAX
    }

    /// True if the list should be made anew soon.
    pub(crate) fn runs_out(&self) -> bool {
        self.is_partial() && self.queue.len() < LISTED / 2
    }

    /// Nothing is known any more.
    pub(crate) fn forget(&mut self) {
        self.queue.clear();
        self.horizon = 0;
    }

    /// Number of entries in the list.
    pub(crate) fn count(&self) -> usize {
        self.queue.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(number: u32) -> Key {
        let mut key = [0; 16];
        key[..4].copy_from_slice(&number.to_be_bytes());
        Key(key)
    }

    fn listed(numbers: impl Iterator<Item = u32>) -> Leaving {
        let mut leaving = Leaving::default();
        let mut listing = leaving.list();
        numbers.for_each(|number| listing.show(number, key(number)));
        leaving.take(listing, (u32::MAX, false));
        leaving
    }

    #[test]
    fn those_that_were_used_longest_ago_are_listed_and_come_first() {
        let most = LISTED as u32;
        let mut leaving = listed((0..most + 100).rev());
        assert!(leaving.is_partial() && !leaving.runs_out());
        assert_eq!(leaving.count(), LISTED);
        // What was used behind the horizon since is not put back: others may be before it.
        leaving.put(most + 50, key(0));
        leaving.put(7, key(most));
        let popped: Vec<_> = std::iter::from_fn(|| leaving.pop()).take(9).collect();
        assert!(popped.is_sorted());
        assert_eq!(popped[..2], [(0, key(0)), (1, key(1))]);
        assert_eq!(popped[8], (7, key(most)));
    }

    #[test]
    fn what_comes_is_listed_as_long_as_all_are() {
        let mut leaving = listed(0..10);
        assert!(!leaving.is_partial());
        leaving.came(Some(20), key(20));
        leaving.came(None, key(3));
        assert_eq!(leaving.count(), 11);
        (100..100 + LISTED as u32).for_each(|number| leaving.came(Some(number), key(number)));
        assert!(leaving.is_partial());
        assert_eq!(leaving.count(), LISTED);
        assert_eq!(leaving.pop(), Some((0, key(0))));
    }

    #[test]
    fn list_that_others_came_beside_is_not_all() {
        let mut leaving = Leaving::default();
        let listing = leaving.list();
        leaving.came(Some(50), key(1));
        leaving.take(listing, (40, false));
        assert!(leaving.is_partial());
        let listing = leaving.list();
        leaving.take(listing, (40, true));
        assert!(leaving.is_partial());
        let listing = leaving.list();
        leaving.take(listing, (40, false));
        assert!(!leaving.is_partial());
    }
}
