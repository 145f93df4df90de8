//! `proxy_cache_disk_timeout`: how long a request waits for a disk of the cache.
//!
//! Declares the policy only; who waits is `step/read.rs` for what is stored under a key,
//! `slice/reader.rs` for slices, and the proxy for bodies.

use std::time::Duration;

/// When a request goes on without the disk.
#[derive(Clone, Debug, millpond_conf::Family)]
#[family(http, server, location, protocols)]
pub struct DiskPolicy {
    /// A request that has waited this long for a disk of the cache to read goes to the origin, as
    /// if the answer were not stored. A disk that has not answered anybody for a second is not
    /// waited for at all. An answer whose head is sent waits for the rest of its body as long as
    /// for its client (`send_timeout`).
    #[directive(name = "proxy_cache_disk_timeout", default = "1s")]
    pub timeout: Duration,
}

/// Whether who looks something up waits for the disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Disk {
    /// It does.
    #[default]
    Awaited,
    /// It has done so for long enough.
    GivenUp,
}
