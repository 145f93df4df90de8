//! Copies: entries that are served often, offered to whoever keeps copies of them outside.
//!
//! ```text
//!   hit ──► rules: status, size, lifetime ──► tally of the entry ──n-th──► Keeper::offer
//!   invalidation ────────────────────────────────────────────────────────► Keeper::withdraw
//! ```
//!
//! 1. A zone without a keeper pays one load for a hit.
//! 2. The tally is bounded and may be wrong: entries that share a place count anew. It costs a copy
//!    that is made late, or offered twice.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use millpond_store::Key;

use crate::shared_head::SharedHead;

/// Places of a tally (arbitrary: half a megabyte).
const PLACES: usize = 64 << 10;
/// Count of an entry that was offered.
const OFFERED: u64 = 0xFF;

/// The most hits that an entry may need.
pub const HITS_MAX: u32 = 200;

/// Entry that is worth a copy.
#[derive(Clone, Debug)]
pub struct Offer {
    /// Key in the zone's store.
    pub key: Key,
    /// The head, as it was served.
    pub head: SharedHead,
    /// Length of the body; of all of it, if it is kept in slices.
    pub len: u64,
}

/// Keeper of copies. It never waits.
pub trait Keeper: Send + Sync {
    /// An entry was served so often that it is worth a copy.
    fn offer(&self, offer: Offer);
    /// Nothing that is stored under a key is used any more.
    fn withdraw(&self, text: &Bytes);
}

/// Entries that are worth a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Worth {
    /// Hits before a copy is made, at least one and at most [`HITS_MAX`].
    pub hits: u32,
    /// Bytes of the body, at least.
    pub size: u64,
    /// Time for which the entry is fresh in all, at least.
    pub lifetime: Duration,
}

/// The keeper of a zone, and the tally of its entries.
#[derive(Default)]
pub struct Copies {
    /// Hits before a copy is made; 0 without a keeper.
    hits: AtomicU32,
    size: AtomicU64,
    lifetime_s: AtomicU64,
    /// For each place a mark of the entry (56 bits) and its hits (8).
    tally: OnceLock<Box<[AtomicU64]>>,
    keeper: Mutex<Option<Arc<dyn Keeper>>>,
}

impl std::fmt::Debug for Copies {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Copies")
            .field("hits", &self.hits)
            .finish_non_exhaustive()
    }
}

impl Copies {
    /// Gives the zone a keeper.
    pub fn begin(&self, keeper: Arc<dyn Keeper>, worth: Worth) {
        self.tally
            .get_or_init(|| (0..PLACES).map(|_| AtomicU64::new(0)).collect());
        let mut own = self.keeper.lock().unwrap_or_else(PoisonError::into_inner);
        let before = own.replace(keeper);
        self.size.store(worth.size, Ordering::Relaxed);
        self.lifetime_s
            .store(worth.lifetime.as_secs(), Ordering::Relaxed);
        self.hits
            .store(worth.hits.clamp(1, HITS_MAX), Ordering::Relaxed);
        drop(own);
        drop(before);
    }

    /// The zone has this keeper no more; it may have another one by now.
    pub fn end(&self, keeper: &Arc<dyn Keeper>) {
        let mut own = self.keeper.lock().unwrap_or_else(PoisonError::into_inner);
        if own.as_ref().is_some_and(|own| Arc::ptr_eq(own, keeper)) {
            self.hits.store(0, Ordering::Relaxed);
            let ended = own.take();
            drop(own);
            drop(ended);
        }
    }

    /// True if the zone has a keeper.
    pub fn has_keeper(&self) -> bool {
        self.hits.load(Ordering::Relaxed) != 0
    }

    /// An entry was served, with a body of such a length.
    #[inline]
    pub fn note_hit(&self, key: &Key, head: &SharedHead, len: u64) {
        // INVARIANT 1.
        let hits = self.hits.load(Ordering::Relaxed);
        if hits != 0 {
            self.count((key, head), len, hits);
        }
    }

    #[cold]
    fn count(&self, (key, head): (&Key, &SharedHead), len: u64, hits: u32) {
        let lifetime = head.valid_until.saturating_sub(head.stored_at);
        let least = i64::try_from(self.lifetime_s.load(Ordering::Relaxed)).unwrap_or(i64::MAX);
        // The last fresh second may be the one before the lifetime is over.
        let is_long = lifetime.saturating_add(1) >= least;
        let is_worth = head.status == 200
            && !head.bounds.must_validate
            && len >= self.size.load(Ordering::Relaxed)
            && is_long;
        if is_worth && self.is_due(mark(key, head), hits) {
            let offer = Offer {
                key: *key,
                head: head.clone(),
                len,
            };
            if let Some(keeper) = self.keeper() {
                keeper.offer(offer);
            }
        }
    }

    fn keeper(&self) -> Option<Arc<dyn Keeper>> {
        let keeper = self.keeper.lock();
        keeper.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// An entry that was offered could not be copied: its hits count anew.
    pub fn offer_again(&self, offer: &Offer) {
        let mark = mark(&offer.key, &offer.head);
        if let Some(place) = self.place(mark) {
            let offered = mark | OFFERED;
            // Another entry may have the place by now.
            let _ = place.compare_exchange(
                offered,
                mark & !OFFERED,
                Ordering::Relaxed,
                Ordering::Relaxed,
            );
        }
    }

    fn place(&self, mark: u64) -> Option<&AtomicU64> {
        let places = self.tally.get()?;
        places.get(usize::try_from(mark >> 8).unwrap_or(0) % PLACES)
    }

    /// Counts a hit; true for the one with which an entry is offered.
    fn is_due(&self, mark: u64, hits: u32) -> bool {
        let Some(place) = self.place(mark) else {
            return false;
        };
        let known = place.load(Ordering::Relaxed);
        let count = if known & !OFFERED == mark & !OFFERED {
            known & OFFERED
        } else {
            0
        };
        if count == OFFERED {
            return false;
        }
        let is_due = count + 1 >= u64::from(hits);
        let counted = if is_due { OFFERED } else { count + 1 };
        let next = (mark & !OFFERED) | counted;
        // Of two that count at once one may be lost, and none is offered twice.
        let changed = place.compare_exchange(known, next, Ordering::Relaxed, Ordering::Relaxed);
        is_due && changed.is_ok()
    }

    /// Nothing that is stored under a key is used any more.
    pub(crate) fn withdraw(&self, text: &Bytes) {
        if self.has_keeper()
            && let Some(keeper) = self.keeper()
        {
            keeper.withdraw(text);
        }
    }
}

/// Name of an entry in the tally: another of the same key, and one that was freshened, has another.
fn mark(key: &Key, head: &SharedHead) -> u64 {
    let mut first = [0; 8];
    first.copy_from_slice(&key.0[..8]);
    let time = head.stored_at.cast_unsigned() ^ head.serial.rotate_left(32);
    (u64::from_le_bytes(first) ^ time).wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::head::{FieldsWriter, StoredHead};

    struct Nobody;

    impl Keeper for Nobody {
        fn offer(&self, _offer: Offer) {}
        fn withdraw(&self, _text: &Bytes) {}
    }

    fn copies(hits: u32) -> Copies {
        let copies = Copies::default();
        let worth = Worth {
            hits,
            size: 0,
            lifetime: Duration::ZERO,
        };
        copies.begin(Arc::new(Nobody), worth);
        copies
    }

    #[test]
    fn entry_is_offered_with_the_hit_that_is_asked_for_and_not_again() {
        for (hits, expected) in [(1, 1), (2, 2), (200, 200)] {
            let copies = copies(hits);
            let due: Vec<u32> = (1..=600).filter(|_| copies.is_due(0x1200, hits)).collect();
            assert_eq!(due, [expected]);
            assert!(!copies.is_due(0x1200, hits));
        }
    }

    #[test]
    fn entry_that_could_not_be_copied_is_offered_again() {
        let copies = copies(2);
        let offer = Offer {
            key: Key([7; 16]),
            head: SharedHead::from(StoredHead::new(200, FieldsWriter::default())),
            len: 1,
        };
        let mark = mark(&offer.key, &offer.head);
        assert!(!copies.is_due(mark, 2) && copies.is_due(mark, 2) && !copies.is_due(mark, 2));
        copies.offer_again(&offer);
        assert!(!copies.is_due(mark, 2) && copies.is_due(mark, 2));
    }

    #[test]
    fn entries_of_one_place_count_anew() {
        let copies = copies(2);
        let other = 0x1200 + ((PLACES as u64) << 8);
        assert!(!copies.is_due(0x1200, 2) && !copies.is_due(other, 2));
        assert!(copies.is_due(other, 2) && !copies.is_due(0x1200, 2));
        assert!(copies.is_due(0x1200, 2));
    }
}
