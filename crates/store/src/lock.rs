//! Taking locks: whether or not a thread died while it held one, and in one order.
//!
//! The tables under these locks are changed in steps that each leave them whole, so a panic
//! elsewhere in the critical section cannot leave a state that later readers must not see.
//!
//! A directory's locks have a [`Rank`] each. A thread that holds one takes only such as stand after
//! it; debug builds, so all tests, check that at each taking. What has no rank (queues, shards of
//! tables) is a leaf: nothing with a rank is taken under it.

#[cfg(debug_assertions)]
use std::cell::RefCell;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// The locks of a directory, in the order in which they are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Rank {
    /// `disk.syncing`.
    Syncing,
    /// `slow_close_lock`: shared by those who wait for the disk.
    SlowClose,
    /// `close_lock`: shared by those who reserve space.
    Close,
    /// `turn` of a site's limit: held by who makes an entry of the site.
    SiteTurn,
    /// `scrub`.
    Scrub,
    /// `uses`.
    Uses,
    /// `reclaim`.
    Reclaim,
    /// `pending_tombstones`.
    Tombstones,
    /// `disk.superblock`.
    Superblock,
    /// `journal`.
    Journal,
    /// `disk.turning`.
    Turning,
    /// `disk.log`: space; nobody waits for the disk under it.
    Log,
    /// `disk.membership`.
    Membership,
    /// `disk.live`.
    Live,
    /// `disk.secret`.
    Secret,
    /// `disk.files`.
    Files,
    /// `fills`.
    Fills,
    /// `reads`.
    Reads,
}

/// A lock with its place in the order.
#[derive(Debug)]
pub(crate) struct Ranked<L> {
    rank: Rank,
    lock: L,
}

impl<L> Ranked<L> {
    /// A lock of a rank.
    pub(crate) fn new(rank: Rank, lock: impl Into<L>) -> Self {
        Ranked {
            rank,
            lock: lock.into(),
        }
    }
}

/// The guard of a lock with a rank.
pub(crate) struct Held<G> {
    guard: G,
    _order: Order,
}

impl<G: Deref> Deref for Held<G> {
    type Target = G::Target;

    fn deref(&self) -> &G::Target {
        &self.guard
    }
}

impl<G: DerefMut> DerefMut for Held<G> {
    fn deref_mut(&mut self) -> &mut G::Target {
        &mut self.guard
    }
}

/// A note that the thread holds a lock of a rank; nothing in release builds.
struct Order {
    #[cfg(debug_assertions)]
    rank: Rank,
}

#[cfg(debug_assertions)]
thread_local! {
    static RANKS: RefCell<Vec<Rank>> = const { RefCell::new(Vec::new()) };
}

impl Order {
    #[cfg(debug_assertions)]
    fn enter(rank: Rank) -> Order {
        RANKS.with_borrow_mut(|held| {
            let after = held.iter().find(|held| **held >= rank);
            assert!(after.is_none(), "{rank:?} is taken under {after:?}");
            held.push(rank);
        });
        Order { rank }
    }

    #[cfg(not(debug_assertions))]
    fn enter(_: Rank) -> Order {
        Order {}
    }
}

#[cfg(debug_assertions)]
impl Drop for Order {
    fn drop(&mut self) {
        RANKS.with_borrow_mut(|held| {
            if let Some(at) = held.iter().rposition(|rank| *rank == self.rank) {
                held.swap_remove(at);
            }
        });
    }
}

/// A lock that one thread holds.
pub(crate) trait Exclusive {
    /// The guard.
    type Guard<'a>
    where
        Self: 'a;

    /// Waits for the lock.
    fn take(&self) -> Self::Guard<'_>;
}

impl<T> Exclusive for Mutex<T> {
    type Guard<'a>
        = MutexGuard<'a, T>
    where
        T: 'a;

    fn take(&self) -> MutexGuard<'_, T> {
        self.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<L: Exclusive> Exclusive for Ranked<L> {
    type Guard<'a>
        = Held<L::Guard<'a>>
    where
        L: 'a;

    fn take(&self) -> Self::Guard<'_> {
        let order = Order::enter(self.rank);
        Held {
            guard: self.lock.take(),
            _order: order,
        }
    }
}

impl<L: Exclusive> Exclusive for Arc<L> {
    type Guard<'a>
        = L::Guard<'a>
    where
        L: 'a;

    fn take(&self) -> Self::Guard<'_> {
        L::take(self)
    }
}

/// A lock that many threads may share.
pub(crate) trait Shared {
    /// The guard of one of many.
    type Read<'a>
    where
        Self: 'a;
    /// The guard of the only one.
    type Write<'a>
    where
        Self: 'a;

    /// Waits for a share.
    fn share(&self) -> Self::Read<'_>;

    /// Waits until nobody has a share.
    fn own(&self) -> Self::Write<'_>;
}

impl<T> Shared for RwLock<T> {
    type Read<'a>
        = RwLockReadGuard<'a, T>
    where
        T: 'a;
    type Write<'a>
        = RwLockWriteGuard<'a, T>
    where
        T: 'a;

    fn share(&self) -> RwLockReadGuard<'_, T> {
        self.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn own(&self) -> RwLockWriteGuard<'_, T> {
        self.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<L: Shared> Shared for Ranked<L> {
    type Read<'a>
        = Held<L::Read<'a>>
    where
        L: 'a;
    type Write<'a>
        = Held<L::Write<'a>>
    where
        L: 'a;

    fn share(&self) -> Self::Read<'_> {
        let order = Order::enter(self.rank);
        Held {
            guard: self.lock.share(),
            _order: order,
        }
    }

    fn own(&self) -> Self::Write<'_> {
        let order = Order::enter(self.rank);
        Held {
            guard: self.lock.own(),
            _order: order,
        }
    }
}

/// Locks a mutex.
pub(crate) fn lock<L: Exclusive>(mutex: &L) -> L::Guard<'_> {
    mutex.take()
}

/// Locks for reading.
pub(crate) fn read<L: Shared>(lock: &L) -> L::Read<'_> {
    lock.share()
}

/// Locks for writing.
pub(crate) fn write<L: Shared>(lock: &L) -> L::Write<'_> {
    lock.own()
}
