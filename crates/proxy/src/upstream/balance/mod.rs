//! `hash`, `ip_hash`, `least_conn`, `least_time`, `random`: which peer of a group a request goes
//! to.
//!
//! ```text
//! Selection ── pick ──► bound peer? ──► the method's choice ──► round robin ──► the backup peers
//!                                          (hash, random: 20 misses at most)
//! ```
//!
//! One [`Selection`] serves one request: it holds on to the peers that there were when the request
//! came, and to those that it has tried. What the choice depends on is shared by all workers, so
//! that several threads take turns as one worker of nginx would. The functions that choose are
//! nginx's, so that a group behind a cluster of both programs is cut the same way by each.
//!
//! Invariants:
//! 1. A request is given each peer once, or again only after it went over to the backup peers.
//! 2. A group with one peer never lets it rest: there is nobody else to ask.
//! 3. Backup peers are asked only when every other one was tried or rests.

pub(crate) mod hash;
pub(crate) mod least;
pub(crate) mod random;
pub(crate) mod round_robin;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use millpond_conf::Template;
use millpond_system::clock::Instant;

use self::least::LeastTime;
use super::group::{Group, Roster, Tier};
use super::peer::Peer;
use crate::request::Request;

/// Misses after which a hash or a random choice gives way to the round robin (nginx's number).
const MAX_MISSES: u32 = 20;

/// Method by which a group's peers are chosen.
#[derive(Debug, Default)]
pub enum Method {
    /// In turn, by weight.
    #[default]
    RoundRobin,
    /// By the hash of a key, modulo the weights.
    Hash(Template),
    /// By the hash of a key, on a ring of points.
    ConsistentHash(Template),
    /// By the client's network.
    IpHash,
    /// The one with the fewest connections for its weight.
    LeastConn,
    /// The one that is expected to be done first.
    LeastTime(LeastTime),
    /// Any, by weight.
    Random,
    /// The less busy one of two.
    RandomTwo,
}

/// Values that a request brings to the choice.
#[derive(Clone, Debug, Default)]
pub struct Wish {
    /// Value that is hashed; empty where nothing is.
    pub key: Bytes,
    /// The name of the peer that the request is bound to.
    pub bound_to: Option<Bytes>,
}

impl Wish {
    /// True if the choice depends on the request.
    fn is_any(&self) -> bool {
        !self.key.is_empty() || self.bound_to.is_some()
    }
}

/// The choice of peers for one request.
#[derive(Debug)]
pub struct Selection {
    pub(super) group: Arc<Group>,
    roster: Arc<Roster>,
    /// None that wishes nothing: an exchange holds the selection for as long as it waits.
    wish: Option<Box<Wish>>,
    is_backup: bool,
    tried: Tried,
    misses: u32,
    /// The hash so far (`hash`, `ip_hash`) or the place on the ring, once there is one.
    place: Option<u32>,
    rehashes: u32,
    /// Time for which the request waited for a peer with room, until it is told of.
    pub(super) queued: Option<Duration>,
}

/// The peers of a tier that were tried, by index.
#[derive(Debug, Default)]
struct Tried {
    first: u64,
    more: Vec<usize>,
}

impl Tried {
    fn contains(&self, index: usize) -> bool {
        if index < 64 {
            self.first & (1 << index) != 0
        } else {
            self.more.contains(&index)
        }
    }

    fn add(&mut self, index: usize) {
        if index < 64 {
            self.first |= 1 << index
        } else {
            self.more.push(index)
        }
    }
}

impl Method {
    /// Value of a request that is hashed.
    pub(super) fn key(&self, req: &mut Request) -> Bytes {
        match self {
            Method::Hash(template) | Method::ConsistentHash(template) => req.eval(template),
            Method::IpHash => hash::address_key(&req.client.remote.borrow()),
            _ => Bytes::new(),
        }
    }

    /// True when the group may have backup peers.
    pub fn allows_backup(&self) -> bool {
        matches!(
            self,
            Method::RoundRobin | Method::LeastConn | Method::LeastTime(_)
        )
    }
}

impl Selection {
    /// The choice among the peers that the group has now.
    pub fn new(group: &Arc<Group>, wish: Wish) -> Self {
        Selection {
            group: Arc::clone(group),
            roster: group.roster(),
            wish: wish.is_any().then(|| Box::new(wish)),
            is_backup: false,
            tried: Tried::default(),
            misses: 0,
            place: None,
            rehashes: 0,
            queued: None,
        }
    }

    /// Begins once more, among the peers that the group has by now; no peer was tried yet.
    pub(super) fn begin_anew(&mut self) {
        *self = Selection {
            roster: self.group.roster(),
            group: Arc::clone(&self.group),
            wish: self.wish.take(),
            is_backup: false,
            tried: Tried::default(),
            misses: 0,
            place: None,
            rehashes: 0,
            queued: None,
        };
    }

    /// The number of peers that a request may try.
    pub fn tries(&self) -> usize {
        self.roster.tries
    }

    /// The next peer, with a connection counted to it; none when nobody can be asked. It is `now`.
    pub fn pick(&mut self, now: Instant) -> Option<Arc<Peer>> {
        if let Some(peer) = self.roster.single().cloned() {
            return self.only(peer, now);
        }
        let roster = Arc::clone(&self.roster);
        loop {
            let tier = if self.is_backup {
                &roster.backup
            } else {
                &roster.primary
            };
            let chosen = {
                let _turn = tier.lock();
                let index = self.choose(tier, now);
                index
                    .and_then(|index| Some((index, tier.peers.get(index)?)))
                    .inspect(|(index, peer)| {
                        self.tried.add(*index);
                        peer.take(now);
                        if let Method::LeastTime(settings) = &self.group.method {
                            settings.begin(peer, now);
                        }
                    })
            };
            if let Some((_, peer)) = chosen {
                return Some(Arc::clone(peer));
            }
            if std::mem::replace(&mut self.is_backup, true) {
                return None;
            }
            self.tried = Tried::default();
        }
    }

    /// INVARIANT 2.
    fn only(&mut self, peer: Arc<Peer>, now: Instant) -> Option<Arc<Peer>> {
        let is_bound = self.bound_to().is_some_and(|name| peer.id() == name);
        let is_open = peer.is_open() || (is_bound && peer.is_open_to_bound());
        if self.tried.contains(0) || !is_open || !peer.has_room() {
            return None;
        }
        self.tried.add(0);
        peer.take(now);
        if let Method::LeastTime(settings) = &self.group.method {
            settings.begin(&peer, now);
        }
        Some(peer)
    }

    fn choose(&mut self, tier: &Tier, now: Instant) -> Option<usize> {
        if let Some(index) = self.bound(tier, now) {
            if matches!(self.group.method, Method::RoundRobin) {
                self.out_of_turn(tier, index, now);
            }
            return Some(index);
        }
        let group = Arc::clone(&self.group);
        match &group.method {
            Method::RoundRobin => self.in_turn(tier, now),
            Method::Hash(_) => self.by_hash(tier, now),
            Method::IpHash => self.by_address(tier, now),
            Method::ConsistentHash(_) => self.on_ring(tier, now),
            Method::LeastConn => self.least(tier, now, |peer| peer.load()),
            Method::LeastTime(settings) => {
                self.least(tier, now, |peer| settings.estimate(peer, now))
            }
            Method::Random => self.at_random(tier, now),
            Method::RandomTwo => self.of_two(tier, now),
        }
    }

    /// Value that is hashed; empty where nothing is.
    fn key(&self) -> &[u8] {
        self.wish.as_deref().map_or(&[], |wish| &wish.key)
    }

    /// The name of the peer that the request is bound to.
    fn bound_to(&self) -> Option<&Bytes> {
        self.wish.as_deref()?.bound_to.as_ref()
    }

    /// The peer that the request is bound to, when it can be asked.
    fn bound(&self, tier: &Tier, now: Instant) -> Option<usize> {
        let name = self.bound_to()?;
        let index = tier.peers.iter().position(|peer| peer.id() == name)?;
        let peer = tier.peers.get(index)?;
        let may = !self.tried.contains(index) && peer.is_live_for_bound(now);
        may.then_some(index)
    }

    /// True when a request that is bound to no peer may be given this one.
    fn may(&self, index: usize, peer: &Peer, now: Instant) -> bool {
        !self.tried.contains(index) && peer.is_live(now)
    }

    /// True if [`Self::may`] holds for the peer at a place in the tier.
    fn may_at(&self, tier: &Tier, index: usize, now: Instant) -> bool {
        let peer = tier.peers.get(index);
        peer.is_some_and(|peer| self.may(index, peer, now))
    }

    /// Counts a miss; true when there were too many.
    fn missed(&mut self) -> bool {
        self.misses += 1;
        self.misses > MAX_MISSES
    }
}
