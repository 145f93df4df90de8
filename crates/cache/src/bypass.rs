//! `proxy_cache_bypass`, `proxy_no_cache`: requests that skip the look-up, answers that are not
//! stored.
//!
//! Both take a list of values; one that is neither empty nor "0" decides. They are independent: a
//! bypassing request still refreshes the entry unless `proxy_no_cache` forbids it, too.

use millpond_conf::Template;

/// Conditions under which the cache is not asked, and those under which it is not written.
#[derive(Clone, Debug, millpond_conf::Family)]
#[family(http, server, location, protocols)]
pub struct BypassPolicy {
    /// Values of which one that is neither empty nor "0" sends the request to the origin without a
    /// look-up; the answer may be stored.
    #[directive(name = "proxy_cache_bypass", union)]
    pub bypass: Option<Vec<Template>>,
    /// Values of which one that is neither empty nor "0" keeps the answer from being stored.
    #[directive(name = "proxy_no_cache", union)]
    pub no_cache: Option<Vec<Template>>,
}
