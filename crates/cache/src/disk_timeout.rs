//! `proxy_cache_disk_timeout`: how long a request waits for a disk of the cache.
//!
//! Declares the policy only; who waits is `step/read.rs` for what is stored under a key or may be,
//! `slice/reader.rs` for slices, and the proxy for bodies.

use std::time::Duration;

/// Time after which a request goes on without the disk.
#[derive(Clone, Debug, millpond_conf::Family)]
#[family(http, server, location, protocols)]
pub struct DiskPolicy {
    /// A request that has waited this long for a disk of the cache to read goes to the origin, as
    /// if the answer were not stored. A disk that has not answered anybody for a second is not
    /// waited for at all. An answer whose head is sent waits for the rest of its body as long as
    /// for its client (`send_timeout`).
    ///
    /// After a start it is also how long a request waits until it is known whether its answer is
    /// stored: a zone with many entries is loaded while it is in use, in a third of a second for a
    /// million, what was stored last first. Who has waited for long enough gets the origin's
    /// answer, which is not stored, so that nothing that is held is replaced unseen. A zone of
    /// which nothing was loaded for five seconds is not waited for.
    #[directive(name = "proxy_cache_disk_timeout", default = "1s")]
    pub timeout: Duration,
}

/// Patience of a look-up with the disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Disk {
    /// The look-up waits for the disk.
    #[default]
    Awaited,
    /// The look-up has waited for long enough.
    GivenUp,
}
