//! `proxy_cache_on_lag`: the worth of what is stored while purges of other nodes may be missing.
//!
//! A zone of a fleet knows a moment up to which it has taken every purge that any node
//! acknowledged, its `confirmed` time. As long as that is at most `max_lag` ago, entries are judged
//! as those of any zone. Afterwards a purge may be missing that everybody else obeys, and a stored
//! answer is worth what `on_lag` says.
//!
//! ```text
//!   confirmed ──── max_lag ────► behind: revalidate | miss | serve
//!       ▲                          │
//!       └── all of the log taken ──┘
//! ```
//!
//! 1. Times are those of a clock that nobody sets, and which goes on while the machine sleeps.
//! 2. The confirmed time is that of a question to the log, not that of its answer: an answer may
//!    have been on its way for long.
//! 3. A zone without a fleet is never behind, and pays one load and a comparison.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::Duration;

use millpond_conf::Words;

use crate::verdict::{StaleRules, Verdict};

/// Use of a stored answer while purges may be missing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Words)]
pub enum OnLag {
    /// The answer is validated at the origin first, with each request.
    #[default]
    #[word("revalidate")]
    Revalidate,
    /// The answer counts as missing.
    #[word("miss")]
    Miss,
    /// The answer is served as long as it is fresh.
    #[word("serve")]
    Serve,
}

impl OnLag {
    fn code(self) -> u8 {
        match self {
            OnLag::Revalidate => 0,
            OnLag::Miss => 1,
            OnLag::Serve => 2,
        }
    }

    fn of_code(code: u8) -> OnLag {
        match code {
            1 => OnLag::Miss,
            2 => OnLag::Serve,
            _ => OnLag::Revalidate,
        }
    }
}

/// Choice of a location.
#[derive(Clone, Debug, Default, millpond_conf::Family)]
#[family(http, server, location, protocols)]
pub struct LagPolicy {
    /// Use of stored answers while purges of other nodes of the fleet may be missing,
    /// because the log of the fleet was not heard of for longer than `max_lag`. With `revalidate`
    /// each request is answered after the origin was asked whether the answer still holds; with
    /// `miss` the origin is asked for the whole answer; with `serve` what is fresh is served, so
    /// that a purge that is missed is obeyed late. Without it, what the `fleet` block says counts.
    /// See docs/fleet.md.
    #[directive(name = "proxy_cache_on_lag")]
    pub on_lag: Option<OnLag>,
}

/// Trust in what is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trust {
    /// Entries are what they seem.
    Whole,
    /// An entry must be validated before it is used, however fresh it is.
    Validated,
    /// Nothing is used.
    None,
}

impl Trust {
    /// The verdict under this trust.
    pub(crate) fn over(self, verdict: Verdict) -> Verdict {
        match self {
            Trust::Whole => verdict,
            // A purge that is missing may have been a hard one, so the entry is not even a stale
            // answer.
            Trust::Validated | Trust::None => Verdict::Stale(StaleRules::UNCONFIRMED),
        }
    }
}

/// Decides what trust there is at `now_ms`.
pub(crate) fn trust(confirmed_ms: u64, max_ms: u64, now_ms: u64, on_lag: OnLag) -> Trust {
    // INVARIANT 1 of `crates/fleet`: fresh only if `now - confirmed <= max_lag`.
    let is_confirmed = confirmed_ms > 0;
    match on_lag {
        _ if is_confirmed && now_ms.saturating_sub(confirmed_ms) <= max_ms => Trust::Whole,
        OnLag::Serve => Trust::Whole,
        OnLag::Revalidate => Trust::Validated,
        OnLag::Miss => Trust::None,
    }
}

/// Value of `max_ms` without a fleet. No span is longer.
const NO_FLEET: u64 = u64::MAX;

/// Lag of a zone: written by who follows the log, read with each look-up.
#[derive(Debug)]
pub struct Lag {
    confirmed_ms: AtomicU64,
    max_ms: AtomicU64,
    on_lag: AtomicU8,
}

impl Default for Lag {
    fn default() -> Self {
        Lag {
            confirmed_ms: AtomicU64::new(0),
            max_ms: AtomicU64::new(NO_FLEET),
            on_lag: AtomicU8::new(OnLag::default().code()),
        }
    }
}

impl Lag {
    /// The zone is part of a fleet from now on; it is behind until it is confirmed.
    pub fn join(&self, max_lag: Duration, on_lag: OnLag) {
        let max_ms = u64::try_from(max_lag.as_millis()).unwrap_or(NO_FLEET - 1);
        self.on_lag.store(on_lag.code(), Ordering::Release);
        self.max_ms
            .store(max_ms.min(NO_FLEET - 1), Ordering::Release);
    }

    /// The zone is part of no fleet any more.
    pub fn leave(&self) {
        self.max_ms.store(NO_FLEET, Ordering::Release);
        self.confirmed_ms.store(0, Ordering::Release);
    }

    /// Everything that was acknowledged before `at_ms` (of the clock that goes on) is in force.
    pub fn confirm(&self, at_ms: u64) {
        self.confirmed_ms.fetch_max(at_ms, Ordering::AcqRel);
    }

    /// Nothing is confirmed any more.
    pub fn doubt(&self) {
        self.confirmed_ms.store(0, Ordering::Release);
    }

    /// The confirmed time; 0 for never.
    pub fn confirmed_ms(&self) -> u64 {
        self.confirmed_ms.load(Ordering::Acquire)
    }

    /// The most that the confirmed time may be ago; `None` without a fleet.
    pub fn max_lag(&self) -> Option<Duration> {
        let max_ms = self.max_ms.load(Ordering::Acquire);
        (max_ms != NO_FLEET).then(|| Duration::from_millis(max_ms))
    }

    /// True if the zone is part of a fleet and has, at a time, all purges of it as far as may be.
    pub fn is_up_to_date(&self, now_ms: u64) -> bool {
        let max_ms = self.max_ms.load(Ordering::Acquire);
        let trust = trust(self.confirmed_ms(), max_ms, now_ms, OnLag::Miss);
        max_ms != NO_FLEET && trust == Trust::Whole
    }

    /// True if the zone has never been up to date with the log of its fleet, and trusts nothing
    /// until it is.
    pub fn is_catching_up(&self) -> bool {
        let on_lag = OnLag::of_code(self.on_lag.load(Ordering::Acquire));
        self.max_lag().is_some() && on_lag != OnLag::Serve && self.confirmed_ms() == 0
    }

    /// Trust in what is stored, at the time that `now_ms` tells if it is asked for.
    #[inline]
    pub(crate) fn trust(&self, policy: &LagPolicy, now_ms: impl FnOnce() -> u64) -> Trust {
        let max_ms = self.max_ms.load(Ordering::Acquire);
        // INVARIANT 3.
        if max_ms == NO_FLEET {
            return Trust::Whole;
        }
        let of_fleet = OnLag::of_code(self.on_lag.load(Ordering::Acquire));
        // Before the clock: what is confirmed meanwhile makes it no later.
        let confirmed_ms = self.confirmed_ms();
        let on_lag = policy.on_lag.unwrap_or(of_fleet);
        trust(confirmed_ms, max_ms, now_ms(), on_lag)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trust_ends_when_the_log_was_not_heard_of_for_longer_than_the_limit() {
        let table = [
            (1000, OnLag::Revalidate, Trust::Whole),
            (6000, OnLag::Revalidate, Trust::Whole),
            (6001, OnLag::Revalidate, Trust::Validated),
            (6001, OnLag::Miss, Trust::None),
            (6001, OnLag::Serve, Trust::Whole),
            // Another thread has confirmed since the clock was read.
            (500, OnLag::Miss, Trust::Whole),
        ];
        for (now_ms, on_lag, expected) in table {
            assert_eq!(trust(1000, 5000, now_ms, on_lag), expected, "{now_ms}");
        }
    }

    #[test]
    fn a_zone_is_behind_from_when_it_joins_until_it_is_confirmed() {
        let (lag, policy) = (Lag::default(), LagPolicy::default());
        let trust = |now_ms| lag.trust(&policy, || now_ms);
        assert_eq!(trust(u64::MAX), Trust::Whole, "there is no fleet");
        assert!(!lag.is_catching_up());
        lag.join(Duration::from_secs(5), OnLag::Miss);
        assert!(lag.is_catching_up() && !lag.is_up_to_date(100_000));
        assert_eq!(trust(100_000), Trust::None);
        assert_eq!(trust(10), Trust::None, "the machine was just booted");
        lag.confirm(100_000);
        lag.confirm(90_000);
        assert!(!lag.is_catching_up());
        assert_eq!(trust(105_000), Trust::Whole);
        assert_eq!(trust(105_001), Trust::None);
        assert!(lag.is_up_to_date(105_000) && !lag.is_up_to_date(105_001));
        let own = LagPolicy {
            on_lag: Some(OnLag::Serve),
        };
        assert_eq!(lag.trust(&own, || 105_001), Trust::Whole);
        lag.doubt();
        assert_eq!(trust(105_000), Trust::None);
        lag.leave();
        assert_eq!(trust(105_000), Trust::Whole);
    }
}
