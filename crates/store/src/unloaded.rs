//! Looking up what is not loaded yet: who waits for it, and who is told.
//!
//! ```text
//!   look ──► index: nothing, but not all is loaded ──► Unknown ──wait──► look again
//!                                    ▲                    │
//!            a segment was loaded ───┘  known, or no more comes: woken
//! ```
//!
//! A key is *known* as soon as nothing that was not loaded can say anything else about it: an entry
//! or a grave stands behind all that is missing, or nothing is missing. Segments are loaded newest
//! first, so what was written last is known first; that there is nothing is known last.
//!
//! 1. What is not known is not replaced: no fill begins for it ([`NotStored::Unloaded`]).
//! 2. Who waits is woken when its key is known, and when nobody loads any more, in whatever way
//!    that came.
//! 3. What is looked through to find those who may be woken is at most as much as was loaded.
//! 4. Nobody is held up by a disk that does not go on: after a while nobody begins to wait for it.
//!
//! What a disk does not give counts as lost while nobody asks for it again: nobody waits for that.
//!
//! [`NotStored::Unloaded`]: crate::NotStored::Unloaded

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};

use crate::cold::{Cold, Look};
use crate::disk::pool::Load;
use crate::index::Found;
use crate::key::Key;
use crate::lock::lock;
use crate::volume::Inner;

/// Nobody begins to wait when nothing was loaded for so long; milliseconds. The largest segment is
/// scanned in that at fifteen megabytes a second, which is a slow disk that has much to do.
const STALL_MS: u64 = 5000;

/// A key that somebody waits for.
pub(crate) type KeyLoad = Load<()>;

/// Look-ups that wait for what is not loaded.
#[derive(Debug, Default)]
pub(crate) struct Unloaded {
    /// True if somebody loads. Set and cleared under the lock of those who wait.
    is_coming: AtomicBool,
    /// Time when something was loaded last, milliseconds since 1970.
    moved_ms: AtomicU64,
    /// Rows that were loaded since those who wait were looked through.
    rows: AtomicUsize,
    waiting: Mutex<Vec<(Key, Weak<KeyLoad>)>>,
}

impl Unloaded {
    /// Somebody loads from now on.
    pub(crate) fn begin(&self, now_ms: u64) {
        let _waiting = lock(&self.waiting);
        self.moved(now_ms);
        self.is_coming.store(true, Ordering::Release);
    }

    /// Nobody loads any more: all who wait look again.
    pub(crate) fn end(&self) {
        let waiting = {
            let mut waiting = lock(&self.waiting);
            self.is_coming.store(false, Ordering::Release);
            std::mem::take(&mut *waiting)
        };
        wake(waiting);
    }

    /// Loading goes on.
    pub(crate) fn moved(&self, now_ms: u64) {
        self.moved_ms.store(now_ms, Ordering::Relaxed);
    }

    /// Notes that so many rows were loaded.
    pub(crate) fn loaded(&self, rows: usize) {
        self.rows.fetch_add(rows, Ordering::Relaxed);
    }

    /// True if what is not loaded will be.
    pub(crate) fn is_coming(&self) -> bool {
        self.is_coming.load(Ordering::Acquire)
    }

    fn is_stalled(&self, now_ms: u64) -> bool {
        now_ms.saturating_sub(self.moved_ms.load(Ordering::Relaxed)) >= STALL_MS
    }

    /// Begins to wait for a key; none if it is known, or nobody loads.
    fn wait_for(&self, key: &Key, is_known: impl Fn(&Key) -> bool) -> Option<Arc<KeyLoad>> {
        let mut waiting = lock(&self.waiting);
        // INVARIANT 2: whoever changes one of them looks through those who wait after that.
        if !self.is_coming() || is_known(key) {
            return None;
        }
        // There are not more of them than requests that wait, and as many that have gone.
        if waiting.len() >= waiting.capacity() {
            waiting.retain(|(_, load)| load.strong_count() > 0);
        }
        let load = Arc::new(KeyLoad::awaited());
        waiting.push((*key, Arc::downgrade(&load)));
        Some(load)
    }

    /// Wakes those whose keys are known by now.
    fn wake_known(&self, is_known: impl Fn(&Key) -> bool) {
        let waiting = {
            let mut waiting = lock(&self.waiting);
            // INVARIANT 3.
            if waiting.is_empty() || waiting.len() > self.rows.load(Ordering::Relaxed) {
                return;
            }
            self.rows.store(0, Ordering::Relaxed);
            std::mem::take(&mut *waiting)
        };
        // Not under the lock: who begins to wait is a worker.
        let is_over =
            |(key, load): &(Key, Weak<KeyLoad>)| load.strong_count() == 0 || is_known(key);
        let (known, mut others) = waiting.into_iter().partition(is_over);
        wake(known);
        let mut waiting = lock(&self.waiting);
        waiting.append(&mut others);
        let is_coming = self.is_coming();
        let left = if is_coming {
            Vec::new()
        } else {
            std::mem::take(&mut *waiting)
        };
        drop(waiting);
        wake(left);
    }
}

fn wake(waiting: Vec<(Key, Weak<KeyLoad>)>) {
    for load in waiting.iter().filter_map(|(_, load)| load.upgrade()) {
        load.finish(());
    }
}

impl Inner {
    /// Looks an entry up that was not loaded a moment ago; never waits.
    pub(crate) fn look_unloaded(&self, key: &Key, now: u32) -> Look {
        if self.unloaded.is_coming() && self.unloaded.is_stalled(self.clock.now()) {
            // INVARIANT 4.
            return Look::Unknown(None);
        }
        match self.unloaded.wait_for(key, |key| self.index.knows(key)) {
            Some(load) => Look::Unknown(Some(Cold::of_key(load))),
            None => match self.index.touch(key, self.use_time_at(now)) {
                None | Some(Found::Unloaded) => Look::Missing,
                Some(found) => self.look_found(found),
            },
        }
    }

    /// True if what stands under a key is not known, and will be.
    pub(crate) fn is_unknown(&self, key: &Key) -> bool {
        !self.index.knows(key) && self.unloaded.is_coming()
    }

    /// Wakes those who wait for what is known by now.
    pub(crate) fn wake_known(&self) {
        self.unloaded.moved(self.clock.now());
        loop {
            let from = self.index.shown_from();
            self.unloaded.wake_known(|key| self.index.knows(key));
            // Others who load may have looked through nobody, while all were looked through here.
            if self.index.shown_from() == from {
                return;
            }
        }
    }
}
