//! `proxy_cache_lock`, `proxy_cache_lock_timeout`, `proxy_cache_lock_age`: who waits for whose
//! fill.
//!
//! Declares the policy only; the table of fills is [`super::Fills`] and the waiting is
//! `step/wait.rs`.

use std::time::Duration;

/// Conditions under which a request waits for another request's fill.
#[derive(Clone, Debug, millpond_conf::Family)]
#[family(http, server, location, protocols)]
pub struct LockPolicy {
    /// Lets only one request at a time fill a new entry, when on; others wait for its answer and
    /// stream it as it arrives.
    ///
    /// # Differs from nginx
    ///
    /// Waiting requests are woken at once, and need not wait for the last byte. Requests for a
    /// stale entry that may not be served wait, too. When the origin fails (no answer, or 500, 502,
    /// 503 or 504 that may not be stored), those who wait get an error of the same status instead
    /// of asking it one after another; when its answer breaks off before anybody could read along,
    /// or is kept out by proxy_no_cache, one of them asks once more.
    ///
    /// When off, a request joins a fill whose head has arrived, and else fetches for itself. One
    /// answer at a time is written to an entry: the first whose head comes. Others that come while
    /// it is being written are passed on unstored (in nginx each is stored, and replaces the one
    /// before it); one that comes later is stored, and stays.
    #[directive(name = "proxy_cache_lock", default = "off")]
    pub enabled: bool,
    /// A request that has waited this long, for one fill or several, goes to the origin, and its
    /// answer is not stored.
    #[directive(name = "proxy_cache_lock_timeout", default = "5s")]
    pub timeout: Duration,
    /// A fill that has stood still for this long lets one more request fill the same entry.
    ///
    /// # Differs from nginx
    ///
    /// nginx counts from the start of the fill, so that a body that takes longer is fetched again
    /// and again. Here it counts from the last bytes that came.
    #[directive(name = "proxy_cache_lock_age", default = "5s")]
    pub age: Duration,
    /// Interval at which a waiting request looks whether the lock is free.
    ///
    /// # Differs from nginx
    ///
    /// Nothing is polled; the value is only checked.
    #[directive(name = "proxy_cache_lock_wait_time", default = "500ms")]
    pub wait_time: Duration,
}
