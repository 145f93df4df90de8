//! `proxy_cache_refresh_backoff`: how long an origin that failed to refresh a stale entry is left
//! alone.
//!
//! ```text
//!  (nothing) ─ fails ─► failed once ─ fails ─► waits MIN ─ fails ─► waits twice as long, up to MAX
//!      ▲                     │                     │                        │
//!      └────── succeeds ─────┴─────────────────────┴────────────────────────┘
//! ```
//!
//! One failure may be chance, so the next request tries again, as in nginx.
//!
//! While it waits, a request that may be answered with the stale entry is, without asking the
//! origin. One that may not asks as before, and what comes of it counts.
//!
//! 1. What is remembered is bounded (`recent.rs`), and looked at only when an entry is stale.

use std::time::Duration;

use millpond_conf::OffOr;
use millpond_conf::value::{ArgError, Args, FromArgs};
use tokio::time::Instant;

use crate::clock;
use crate::key_mark::KeyMark;
use crate::recent::Recent;
use crate::use_stale::StaleCause;

/// The longest wait where only the first is configured.
const MAX_DEFAULT: Duration = Duration::from_secs(60);

/// Choice to leave an origin that failed alone for a while.
#[derive(Clone, Debug, millpond_conf::Family)]
#[family(http, server, location, protocols)]
pub struct BackoffPolicy {
    /// Sets how long the origin is not asked again for a stale entry after refreshing it has failed
    /// twice in a row: at first and at most. Each further failure doubles the time; the longest is
    /// 60s if it is not given. In that time, requests that may be answered with the stale entry (by
    /// proxy_cache_use_stale, stale-while-revalidate or stale-if-error) are; others are not
    /// affected.
    ///
    /// # Differs from nginx
    ///
    /// nginx asks a failing origin again with each request; `off` does so, too.
    #[directive(name = "proxy_cache_refresh_backoff", default = "1s 60s")]
    pub backoff: OffOr<Backoff>,
}

/// The first wait and the longest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    /// After the second failure.
    pub min: Duration,
    /// After many.
    pub max: Duration,
}

impl FromArgs for Backoff {
    const SYNTAX: &'static str = "min [max]";

    fn from_args(args: &mut Args<'_>) -> Result<Self, ArgError> {
        let count = args.at_least(1)?.len();
        let min: Duration = args.word(0)?;
        let max = match count {
            1 => MAX_DEFAULT.max(min),
            2 => args.word(1)?,
            _ => return Err(ArgError::Count),
        };
        if min.is_zero() {
            return Err(ArgError::value(
                0,
                "it must not be zero; off switches it off",
            ));
        }
        if max < min {
            return Err(ArgError::value(1, "it must not be less than the first"));
        }
        Ok(Backoff { min, max })
    }
}

/// Failure of a refresh.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefreshFailure {
    /// The origin gave no answer, or not the whole of it.
    Failed(Option<StaleCause>),
    /// An answer with this status.
    Status(u16),
}

/// The keys whose origin is left alone.
#[derive(Debug, Default)]
pub struct Backoffs {
    waits: Recent<Wait>,
}

#[derive(Clone, Copy, Debug)]
struct Wait {
    until: Instant,
    /// Length of the wait in all.
    time: Duration,
    why: RefreshFailure,
}

impl Backoffs {
    /// Failure of the last refresh of a key, while the origin is left alone.
    pub fn pending(&self, mark: &KeyMark) -> Option<RefreshFailure> {
        self.left(mark).map(|(_, why)| why)
    }

    /// Time for which the origin is left alone yet, and the failure of the last refresh.
    pub fn left(&self, mark: &KeyMark) -> Option<(Duration, RefreshFailure)> {
        let wait = self.waits.find(mark.key())?;
        let left = wait.until.checked_duration_since(clock::now())?;
        Some((left, wait.why)).filter(|_| !left.is_zero())
    }

    /// Refreshing the entry of a key has failed.
    pub fn note(&self, mark: KeyMark, why: RefreshFailure, policy: &BackoffPolicy) {
        let Some(backoff) = policy.backoff.on() else {
            return;
        };
        let now = clock::now();
        self.waits.note(*mark.key(), |last| {
            let time = match last {
                None => Duration::ZERO,
                // One that failed beside another does not count twice.
                Some(last) if now < last.until => last.time,
                Some(last) => last.time.saturating_mul(2).clamp(backoff.min, backoff.max),
            };
            // A time that cannot be told is none.
            let until = now.checked_add(time).unwrap_or(now);
            Wait { until, time, why }
        });
    }

    /// The entry of a key is fresh again.
    pub fn forget(&self, mark: &KeyMark) {
        self.waits.forget(mark.key());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use millpond_store::{Key, Keys};

    const SECOND: Duration = Duration::from_secs(1);

    fn policy(min: u64, max: u64) -> BackoffPolicy {
        let (min, max) = (Duration::from_secs(min), Duration::from_secs(max));
        BackoffPolicy {
            backoff: OffOr::On(Backoff { min, max }),
        }
    }

    fn mark() -> KeyMark {
        KeyMark::of(&Keys::for_tests(), &Key([1; 16]), b"k")
    }

    /// Number of whole seconds for which the origin is left alone from now on.
    async fn wait(backoffs: &Backoffs, key: &KeyMark) -> u64 {
        let mut seconds = 0;
        while backoffs.pending(key).is_some() {
            tokio::time::advance(SECOND).await;
            seconds += 1;
        }
        seconds
    }

    #[tokio::test(start_paused = true)]
    async fn waits_double_up_to_the_longest_and_start_over_after_a_success() {
        let (backoffs, key) = (Backoffs::default(), mark());
        let policy = policy(1, 6);
        let why = RefreshFailure::Status(503);
        let mut waits = Vec::new();
        for _ in 0..6 {
            backoffs.note(key, why, &policy);
            waits.push(wait(&backoffs, &key).await);
        }
        assert_eq!(waits, [0, 1, 2, 4, 6, 6]);
        backoffs.note(key, why, &policy);
        assert_eq!(backoffs.pending(&key), Some(why));
        backoffs.forget(&key);
        assert_eq!(backoffs.pending(&key), None);
        backoffs.note(key, why, &policy);
        assert_eq!(wait(&backoffs, &key).await, 0);
    }

    #[tokio::test(start_paused = true)]
    async fn failures_side_by_side_count_once() {
        let (backoffs, key) = (Backoffs::default(), mark());
        for _ in 0..6 {
            backoffs.note(key, RefreshFailure::Failed(None), &policy(3, 60));
        }
        assert_eq!(wait(&backoffs, &key).await, 3);
    }

    #[tokio::test(start_paused = true)]
    async fn off_leaves_nobody_alone() {
        let (backoffs, key) = (Backoffs::default(), mark());
        let off = BackoffPolicy {
            backoff: OffOr::Off,
        };
        backoffs.note(key, RefreshFailure::Failed(None), &off);
        backoffs.note(key, RefreshFailure::Failed(None), &off);
        assert_eq!(backoffs.pending(&key), None);
    }
}
