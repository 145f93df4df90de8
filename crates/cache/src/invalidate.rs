//! Invalidation (RFC 9111 §4.4): what a request that changed a resource does to what is stored of
//! it.
//!
//! It differs from a purge: nobody waits for a disk, and nothing is written down. After a crash an
//! entry that was invalidated in the last moment before it may be there again, as fresh as it was.
//!
//! 1. Who looks up after it finds neither the entry nor a variant, and joins no fill that began
//!    before it.

use crate::zone::{CacheZone, PrimaryKey};

impl CacheZone {
    /// Removes what is stored under a key, and lets what is being fetched for it be stored by
    /// nobody.
    pub fn invalidate(&self, key: &PrimaryKey) {
        if self.purges.lag.max_lag().is_some() {
            let now_ms = self.store.since_boot_ms();
            self.purges.apart.note_invalidated(&key.text, now_ms);
        }
        // First the fills: one that ends in between stores nothing any more.
        self.purges.outdate(&key.text);
        self.store.remove(&key.key);
        self.copies.withdraw(&key.text);
    }
}
