//! A look at many keys of a zone: which are there, and when were they last used.
//!
//! The disks and the time are asked for once. A look-up reads little else than the cell of its key,
//! writes to nothing, and does not wait for the one before, so a core has several under way.
//!
//! It marks nothing and reads no disk. It is meant to be short-lived: as long as it lives, a disk
//! that has gone keeps its memory.

use std::sync::Arc;

use arc_swap::Guard;

use super::{Live, Zone};
use crate::key::Key;

/// A zone's disks and the time, as they were at one moment.
pub struct Peeks {
    live: Guard<Arc<Live>>,
    /// Seconds since 1970.
    now: u32,
}

impl Peeks {
    /// True if [`Zone::find`] would look for the key on the disk or in memory, or may when all is
    /// loaded.
    #[inline]
    pub fn is_there(&self, key: &Key) -> bool {
        self.last_used(key).is_some() || self.is_unknown(key)
    }

    fn is_unknown(&self, key: &Key) -> bool {
        let volume = self.live.of(key);
        volume.is_some_and(|volume| volume.is_unknown(key))
    }

    /// Time when what [`Zone::find`] would look for was last used, in seconds since 1970.
    #[inline]
    pub fn last_used(&self, key: &Key) -> Option<u32> {
        self.live.of(key)?.last_used(key, self.now)
    }
}

impl Zone {
    /// Begins to look for many keys.
    pub fn peeks(&self) -> Peeks {
        Peeks {
            live: self.live.load(),
            now: self.now_s(),
        }
    }

    /// True if `find` would look for the key on the disk or in memory, or may when all is loaded;
    /// marks nothing.
    pub fn peek(&self, key: &Key) -> bool {
        self.peeks().is_there(key)
    }

    /// True if there may be something under a key: false if a look-up would certainly find nothing.
    /// Marks nothing, and reads no clock.
    pub fn may_hold(&self, key: &Key) -> bool {
        let live = self.live.load();
        live.of(key).is_some_and(|volume| volume.may_hold(key))
    }
}
