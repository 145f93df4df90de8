//! The generations in use, and what is remembered of ranges, in a zone.
//!
//! 1. A generation that somebody uses is in the table once.
//! 2. All that is remembered is bounded, and forgetting it costs requests to the origin, no more.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use millpond_store::{Key, Zone};
use tokio::time::Instant;

use super::SIZE_AHEAD;
use super::generation::{self, Generation, Shared};
use super::gone::Gone;
use crate::clock;
use crate::fill::Streaming;
use crate::head::{SliceSet, StoredHead};
use crate::key_mark::KeyMark;
use crate::unstored::LastUnstored;
use crate::window::WindowMemory;
use crate::zone::{CacheZone, FoundEntry};

/// Keys whose answers cannot be kept in slices, and orders of ranges, that are remembered
/// (arbitrary; a few hundred kilobytes at the most).
const REMEMBERED_MAX: usize = 4096;
/// Time for which answers of a key are not tried to be kept in slices again (arbitrary: an origin's
/// habits seldom change).
const UNSLICED: Duration = Duration::from_secs(60);
/// Versions that are remembered because their slices are to go (arbitrary; beyond it the records
/// of all slices are looked at).
const LEAVING_MAX: usize = 1 << 14;
/// Requests in order before slices are fetched in advance.
const ORDERLY: u64 = 2;

/// Knowledge of a zone about slices besides what is stored.
#[derive(Debug, Default)]
pub struct Slices {
    shared: Shared,
    open: Mutex<Open>,
    orders: Mutex<HashMap<[u8; 16], Order>>,
    /// Treatment of keys whose answers cannot be kept in slices, and its end.
    unsliced: Mutex<HashMap<KeyMark, (Habit, Instant)>>,
    /// Versions, and the keys of their entries: their slices are to go when nobody uses them,
    /// unless an entry has them.
    leaving: Mutex<Vec<(Key, SliceSet)>>,
    /// True if there may be others.
    is_unknown: AtomicBool,
}

type Open = HashMap<[u8; 16], Weak<Generation>>;

/// Treatment of requests for answers that cannot be kept in slices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Habit {
    /// Ranges are passed on as they are, and not stored.
    Pass,
    /// The whole is asked for: ranges of this origin are not to be believed.
    Whole,
}

/// Sequence of the requests for a body.
#[derive(Clone, Copy, Debug, Default)]
struct Order {
    /// End of the last range.
    end: u64,
    /// Number of ranges in a row that began where another had ended.
    count: u64,
}

impl Slices {
    /// Table without slices, which notes in `unstored` what is not stored of them.
    pub fn noting(unstored: Arc<LastUnstored>) -> Self {
        let shared = Shared {
            unstored,
            ..Shared::default()
        };
        Slices {
            shared,
            ..Slices::default()
        }
    }

    /// Versions that were found to be gone at the origin.
    pub fn gone(&self) -> &Gone {
        &self.shared.gone
    }

    /// Memory of the windows of the zone.
    pub(crate) fn windows(&self) -> &WindowMemory {
        &self.shared.windows
    }

    /// The generation of an entry; `None` if its body is not in slices.
    pub fn open(&self, store: &Arc<Zone>, found: &FoundEntry) -> Option<Arc<Generation>> {
        let set = found.head.sliced?;
        let mut open = lock(&self.open);
        if let Some(known) = open.get(&set.generation).and_then(Weak::upgrade) {
            return Some(known);
        }
        let generation = generation::of_entry(store, found)?;
        let generation = Arc::new(generation.sharing(&self.shared));
        insert(&mut open, &generation);
        drop(open);
        // In this order: an entry that leaves from now on is told.
        store.watch_removed();
        if !store.is_current(&found.entry) {
            self.note_leaving(found.key, set);
        }
        Some(generation)
    }

    /// The generation of an entry that is about to be put into the zone: what is claimed of it
    /// before that, nobody who finds the entry asks for.
    pub(crate) fn begin(
        &self,
        store: &Arc<Zone>,
        owner: Key,
        head: &StoredHead,
    ) -> Option<Arc<Generation>> {
        let set = head.sliced?;
        // Before the entry can leave, so that it is told.
        store.watch_removed();
        let made = Generation::new(Arc::clone(store), owner, head, set);
        let generation = Arc::new(made.sharing(&self.shared));
        insert(&mut lock(&self.open), &generation);
        Some(generation)
    }

    /// The generation of a name, if somebody uses it.
    pub fn in_use_of(&self, generation: &[u8; 16]) -> Option<Arc<Generation>> {
        lock(&self.open).get(generation).and_then(Weak::upgrade)
    }

    /// Number of bodies that are read or fetched at the moment.
    pub fn in_use(&self) -> usize {
        let open = lock(&self.open);
        let used = open.values().filter(|body| body.strong_count() > 0);
        used.count()
    }

    /// The slices of what a fill brings, for ranges that lie ahead of it; in no stored head.
    pub fn ahead_of(&self, zone: &CacheZone, streaming: &Streaming, total: u64) -> Arc<Generation> {
        let make = || {
            let set = SliceSet {
                generation: zone.new_generation(),
                total,
                size: SIZE_AHEAD,
            };
            let owner = zone.keys().of(&streaming.head.key);
            let store = Arc::clone(&zone.store);
            let generation = Generation::new(store, owner, &streaming.head, set);
            let generation = generation.sharing(&self.shared);
            let generation = Arc::new(generation.wanted_first());
            insert(&mut lock(&self.open), &generation);
            self.note_leaving(owner, set);
            generation
        };
        Arc::clone(streaming.ahead.get_or_init(make))
    }

    /// No entry has these slices, or none may have them by now.
    pub(crate) fn note_leaving(&self, owner: Key, set: SliceSet) {
        let mut leaving = lock(&self.leaving);
        if leaving.len() < LEAVING_MAX {
            leaving.push((owner, set));
        } else {
            self.note_unknown();
        }
    }

    /// Some slices may have no entry; nobody knows which.
    pub(crate) fn note_unknown(&self) {
        self.is_unknown.store(true, Ordering::Release);
    }

    /// Takes what was noted since the last call.
    pub(crate) fn take_leaving(&self) -> Vec<(Key, SliceSet)> {
        std::mem::take(&mut *lock(&self.leaving))
    }

    /// Takes the note that some slices may have no entry that were not noted one by one.
    pub(crate) fn take_unknown(&self) -> bool {
        self.is_unknown.swap(false, Ordering::AcqRel)
    }

    /// Notes that a range of a body was asked for; how many slices behind it are worth fetching,
    /// `most` at most.
    pub fn note_range(&self, generation: &Generation, range: &Range<u64>, most: u64) -> u64 {
        if most == 0 {
            return 0;
        }
        let mut orders = lock(&self.orders);
        if orders.len() >= REMEMBERED_MAX {
            orders.clear();
        }
        let order = orders.entry(generation.set.generation).or_default();
        order.count = if range.start == order.end && range.start > 0 {
            order.count.saturating_add(1)
        } else {
            0
        };
        order.end = range.end;
        // Adaptive: one more for each request that confirms it.
        (order.count + 1).saturating_sub(ORDERLY).min(most)
    }

    /// Remembers that answers of a key cannot be kept in slices.
    pub fn remember_unsliced(&self, mark: KeyMark, habit: Habit) {
        let mut unsliced = lock(&self.unsliced);
        if unsliced.len() >= REMEMBERED_MAX {
            unsliced.clear();
        }
        if let Some(until) = clock::now().checked_add(UNSLICED) {
            unsliced.insert(mark, (habit, until));
        }
    }

    /// Treatment of a key's requests, instead of trying again to keep the answers in slices.
    pub fn habit(&self, mark: &KeyMark) -> Option<Habit> {
        let unsliced = lock(&self.unsliced);
        // Most zones have none.
        let (habit, until) = unsliced.get(mark)?;
        (clock::now() <= *until).then_some(*habit)
    }
}

fn insert(open: &mut Open, generation: &Arc<Generation>) {
    // Each that is alive has somebody who uses it: the dead are no more than once as many.
    if open.len() >= open.capacity() {
        open.retain(|_, generation| generation.strong_count() > 0);
    }
    open.insert(generation.set.generation, Arc::downgrade(generation));
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
