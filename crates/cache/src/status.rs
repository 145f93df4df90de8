//! `$upstream_cache_status`: what the cache did for a request, as one word.
//!
//! The word is a label for logs and clients; nothing is decided by it.

/// The label.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CacheStatus {
    /// The entry was missing.
    Miss,
    /// The look-up was skipped.
    Bypass,
    /// The entry was stale and was fetched again.
    Expired,
    /// A stale entry was served, for want of the origin or while it is updated.
    Stale,
    /// A stale entry was served while another request updates it.
    Updating,
    /// A stale entry was found unchanged.
    Revalidated,
    /// A fresh entry was served.
    Hit,
}

impl CacheStatus {
    /// Word for the status, as nginx writes it.
    pub fn as_str(self) -> &'static str {
        match self {
            CacheStatus::Miss => "MISS",
            CacheStatus::Bypass => "BYPASS",
            CacheStatus::Expired => "EXPIRED",
            CacheStatus::Stale => "STALE",
            CacheStatus::Updating => "UPDATING",
            CacheStatus::Revalidated => "REVALIDATED",
            CacheStatus::Hit => "HIT",
        }
    }
}
