//! `cached_only`, `cached_only_retry_after`: requests that only what is stored may answer, such as
//! those of crawlers.
//!
//! Such a request never asks the origin: an entry answers it, fresh or stale, or else 503 does,
//! with Retry-After. What the origin forbids to serve without its word is not served (RFC 9111
//! §4.2.4).

use std::time::Duration;

use millpond_conf::Template;

/// Requests that may not make the cache ask an origin.
#[derive(Clone, Debug, millpond_conf::Family)]
#[family(http, server, location)]
pub struct CachedOnlyPolicy {
    /// Values of which one that is neither empty nor "0" lets the request be answered only with
    /// what the cache has: a fresh entry, or a stale one, which is not updated for it. Else it gets
    /// 503, and is told by Retry-After when to come again. It never waits for the origin, whatever
    /// `proxy_cache_bypass` and `proxy_cache_min_uses` say. An entry in slices must have all of
    /// them. Requests that the cache is not asked for, such as POST, or where there is none, go on
    /// as usual. `$cache_status_reason` is `cached-only`.
    #[directive(name = "cached_only", union)]
    pub values: Option<Vec<Template>>,
    /// The time that a request which gets 503 by `cached_only` is told to wait.
    #[directive(name = "cached_only_retry_after", default = "60s")]
    pub retry_after: Duration,
}
