//! `random`: any peer, by weight; or the less busy one of two.
//!
//! A peer that cannot be asked is a miss, and another one is looked for; the round robin follows
//! after too many of them.

use millpond_system::chance;
use millpond_system::clock::Instant;

use super::Selection;
use crate::upstream::group::Tier;

/// A peer at random, with the chance that its weight gives it.
fn any(tier: &Tier) -> Option<usize> {
    tier.at_weight(chance::below(tier.total_weight))
}

impl Selection {
    pub(super) fn at_random(&mut self, tier: &Tier, now: Instant) -> Option<usize> {
        while tier.peers.len() > 1 && self.misses <= super::MAX_MISSES {
            let index = any(tier)?;
            if self.may_at(tier, index, now) {
                return Some(index);
            }
            self.missed();
        }
        self.in_turn(tier, now)
    }

    pub(super) fn of_two(&mut self, tier: &Tier, now: Instant) -> Option<usize> {
        let mut first: Option<usize> = None;
        while tier.peers.len() > 1 && self.misses <= super::MAX_MISSES {
            let index = any(tier)?;
            let peer = tier.peers.get(index)?;
            if first == Some(index) || !self.may(index, peer, now) {
                self.missed();
                continue;
            }
            let Some(other) = first else {
                first = Some(index);
                continue;
            };
            let rival = tier.peers.get(other)?;
            let is_busier = peer.load() * u64::from(rival.settings.weight)
                > rival.load() * u64::from(peer.settings.weight);
            return Some(if is_busier { other } else { index });
        }
        self.in_turn(tier, now)
    }
}
