//! `proxy_cache_hit_for_pass`: keys whose answers may not be stored, so that nobody waits for them.
//!
//! While a key is remembered, the lock is off for it: its requests go to the origin at once, side
//! by side. Each answer is still judged; the first that may be stored is, and ends it. So an answer
//! that was kept out for the sake of one client does not keep the entry out for the others. (In
//! Varnish this is called hit-for-miss.)
//!
//! 1. What is remembered is bounded (`recent.rs`), and looked at only when an entry is missing or
//!    stale: it costs hits nothing.

use std::time::Duration;

use millpond_conf::OffOr;
use tokio::time::Instant;

use crate::clock;
use crate::key_mark::KeyMark;
use crate::recent::Recent;

/// Time for which it is remembered that answers may not be stored.
#[derive(Clone, Debug, millpond_conf::Family)]
#[family(http, server, location, protocols)]
pub struct HitForPassPolicy {
    /// Sets how long it is remembered that the answer for a key may not be stored. In that time
    /// requests for the key go to the origin at once, without waiting for each other, whatever
    /// proxy_cache_lock says. The first answer that may be stored is stored and ends it. An answer
    /// that says that the origin failed (500, 502, 503, 504), or that proxy_no_cache keeps out, is
    /// not remembered.
    ///
    /// # Differs from nginx
    ///
    /// nginx remembers nothing of the kind: with the lock on, such requests go one after another.
    #[directive(name = "proxy_cache_hit_for_pass", default = "10s")]
    pub time: OffOr<Duration>,
}

/// The keys that are remembered.
#[derive(Debug, Default)]
pub struct Unstorable {
    until: Recent<Instant>,
}

impl Unstorable {
    /// True while the answer for a key is known to be none to store.
    pub fn has(&self, mark: &KeyMark) -> bool {
        self.left(mark).is_some()
    }

    /// Time for which the mark stays.
    pub fn left(&self, mark: &KeyMark) -> Option<Duration> {
        let left = self
            .until
            .find(mark.key())?
            .checked_duration_since(clock::now())?;
        Some(left).filter(|left| !left.is_zero())
    }

    /// The answer for a key was none to store.
    pub fn note(&self, mark: KeyMark, policy: &HitForPassPolicy) {
        let time = policy.time.on().copied().unwrap_or_default();
        if let Some(until) = clock::now().checked_add(time)
            && !time.is_zero()
        {
            self.until.note(*mark.key(), |_| until);
        }
    }

    /// An answer for the key is stored.
    pub fn forget(&self, mark: &KeyMark) {
        self.until.forget(mark.key());
    }
}
