//! `least_conn`, `least_time`: the peer with the least to do for its weight; equals take turns.
//!
//! What a peer has to do is the number of its connections, or the time that it is expected to need
//! for them: the average time of its answers, of which times over 5 s count as equally bad and
//! others by steps of 20 ms (nginx's numbers), times one more than its connections. A peer that was
//! not asked for longer than its `fail_timeout` is taken to be twice as fast, for each time that
//! went by, so that a slow one gets another chance.

use std::time::Duration;

use millpond_system::clock::Instant;

use super::Selection;
use super::round_robin::turn;
use crate::upstream::group::Tier;
use crate::upstream::peer::{Measured, Peer};

/// Times above are equally bad, in milliseconds.
const BAD_MS: u64 = 5000;

/// Times within one step are equal, in milliseconds.
const STEP_MS: u64 = 20;

/// Time that `least_time` goes by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// The time to a connection, of sessions.
    Connect,
    /// The time to the head of an answer.
    Header,
    /// The time to its end.
    LastByte,
}

/// Treatment of requests that have no answer yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unanswered {
    /// Requests without an answer do not count.
    Ignored,
    /// Requests without an answer count, too.
    Counted,
}

/// Settings of `least_time`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeastTime {
    /// Time that is compared.
    pub until: Until,
    /// Treatment of requests in flight.
    pub unanswered: Unanswered,
}

impl LeastTime {
    /// Counts a request to a peer.
    pub(super) fn begin(&self, peer: &Peer, now: Instant) {
        if self.unanswered == Unanswered::Counted {
            peer.begin_inflight(now);
        }
    }

    /// Notes that a session has its connection.
    pub fn connected(&self, peer: &Peer, took: Duration) {
        if self.until == Until::Connect {
            peer.measured(Measured::Header, took);
            if self.unanswered == Unanswered::Counted {
                peer.end_inflight(took);
            }
        }
    }

    /// Notes that the head of an answer came.
    pub fn head_came(&self, peer: &Peer, took: Duration) {
        if self.ends_with_head() {
            peer.measured(Measured::Header, took);
            peer.end_inflight(took);
        }
    }

    /// Notes that an exchange ended; with its times when it went well.
    pub fn ended(&self, peer: &Peer, times: Option<(Duration, Duration)>, took: Duration) {
        let has_ended = (self.ends_with_head() || self.until == Until::Connect) && times.is_some();
        if self.unanswered == Unanswered::Counted && !has_ended {
            peer.end_inflight(took);
        }
        if let Some((header, response)) = times {
            peer.measured(Measured::Response, response);
            if !self.ends_with_head() && self.until != Until::Connect {
                peer.measured(Measured::Header, header);
            }
        }
    }

    /// True when a request is in flight up to the head of its answer only.
    fn ends_with_head(&self) -> bool {
        self.until == Until::Header && self.unanswered == Unanswered::Counted
    }

    /// The time that a peer is expected to need, in milliseconds.
    pub(super) fn estimate(&self, peer: &Peer, now: Instant) -> u64 {
        let average = peer.average_ms(match self.until {
            Until::Connect | Until::Header => Measured::Header,
            Until::LastByte => Measured::Response,
        });
        let idle = peer.since_checked(now) / 1000;
        let limit = peer.settings.fail_timeout.as_secs() as i64;
        let halvings = if idle > limit { idle / (limit + 1) } else { 0 };
        let mut time = average.checked_shr(halvings.min(63) as u32).unwrap_or(0);
        time = time.max(peer.inflight_time(now));
        time = if time > BAD_MS {
            BAD_MS
        } else {
            time + STEP_MS - time % STEP_MS
        };
        time * (1 + peer.load())
    }
}

impl Selection {
    /// The peer with the least of something for its weight; the first of equals that has its turn.
    pub(super) fn least(
        &self,
        tier: &Tier,
        now: Instant,
        amount: impl Fn(&Peer) -> u64,
    ) -> Option<usize> {
        let mut best: Option<(usize, u64, u64)> = None;
        let mut are_equal = false;
        let mut amounts = Vec::with_capacity(tier.peers.len());
        for (index, peer) in tier.peers.iter().enumerate() {
            let has = self.may(index, peer, now).then(|| amount(peer));
            amounts.push(has);
            let Some(has) = has else { continue };
            let weight = u64::from(peer.settings.weight);
            match best {
                Some((_, least, of)) if has * of == least * weight => are_equal = true,
                Some((_, least, of)) if has * of > least * weight => {}
                _ => {
                    best = Some((index, has, weight));
                    are_equal = false;
                }
            }
        }
        let (first, least, of) = best?;
        if !are_equal {
            return Some(first);
        }
        turn(tier, |index, peer| {
            let has = amounts.get(index).copied().flatten();
            has.is_some_and(|has| has * of == least * u64::from(peer.settings.weight))
        })
    }
}
