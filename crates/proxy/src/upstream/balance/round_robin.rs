//! Peers in turn: nginx's smooth weighted round robin.
//!
//! Each peer's current weight grows by its effective weight; the largest is taken and pays the
//! total. A failure takes from the effective weight, time gives it back. Equal peers, and those of
//! one point of a ring, are told apart by the same turn.

use std::sync::atomic::Ordering::Relaxed;

use millpond_system::clock::Instant;

use super::Selection;
use crate::upstream::group::Tier;
use crate::upstream::peer::Peer;

impl Selection {
    /// The peer whose turn it is.
    pub(super) fn in_turn(&self, tier: &Tier, now: Instant) -> Option<usize> {
        turn(tier, |index, peer| self.may(index, peer, now))
    }

    /// Lets a peer pay for a request that is bound to it, so that the others have more of the rest;
    /// one that has paid for a whole round pays no more.
    pub(super) fn out_of_turn(&self, tier: &Tier, chosen: usize, now: Instant) {
        let Some(peer) = tier.peers.get(chosen) else {
            return;
        };
        let others = tier
            .total_weight
            .saturating_sub(u64::from(peer.settings.weight));
        if peer.standing.current.load(Relaxed) <= -(others as i64) {
            return;
        }
        let mut total = 0;
        for (index, other) in tier.peers.iter().enumerate() {
            if self.may(index, other, now) {
                total += other.grow().1;
            }
        }
        peer.standing.current.fetch_sub(total, Relaxed);
    }
}

/// The peer whose turn it is among some of a tier; the caller holds the tier's lock.
pub(super) fn turn(tier: &Tier, mut is_one: impl FnMut(usize, &Peer) -> bool) -> Option<usize> {
    let mut best: Option<(usize, &Peer, i64)> = None;
    let mut total = 0;
    for (index, peer) in tier.peers.iter().enumerate() {
        if !is_one(index, peer) {
            continue;
        }
        let (current, effective) = peer.grow();
        total += effective;
        if best.is_none_or(|(_, _, most)| current > most) {
            best = Some((index, peer, current));
        }
    }
    let (index, peer, current) = best?;
    peer.standing.current.store(current - total, Relaxed);
    Some(index)
}
