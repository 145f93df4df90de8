//! Groups of peers: who is in, and what the end of an exchange means for them.
//!
//! The peers of a group stand in a [`Roster`], which is never changed: names that resolve to other
//! addresses make another one, in which those that stay are the same peers as before, with all
//! that is known of them. A request keeps to the roster that it began with.
//!
//! Invariants:
//! 1. A peer that stays keeps its place among those that stay, and its standing.
//! 2. A name that cannot be resolved now leaves its peers as they are.
//! 3. What a name resolves to adds at most [`MOST_ADDRESSES`] peers.
//! 4. A number that a peer has had is no other peer's.

mod change;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use millpond_system::address::Address;
use millpond_system::clock::{self, Instant};
use millpond_system::resolve::Resolver;
use millpond_system::resolve::service::Found;

use super::balance::hash::{self, Point};
use super::balance::{Method, Wish};
use super::keepalive::KeepAliveLimits;
use super::peer::{Availability, Peer, PeerSettings};
use super::queue::Queue;
use super::sticky::Sticky;
use crate::request::Request;

pub use self::change::{Full, Wanted};

/// Peers that one name may stand for (arbitrary: far more than a message has room for in practice).
pub const MOST_ADDRESSES: usize = 1024;

/// A group of peers.
#[derive(Debug)]
pub struct Group {
    /// The name.
    pub name: String,
    /// Limits of keeping idle connections.
    pub keep_alive: KeepAliveLimits,
    /// True if it was made for a host that no block declares.
    pub is_implicit: bool,
    /// Method by which peers are chosen.
    pub method: Method,
    /// Rule that binds requests to peers.
    pub sticky: Option<Sticky>,
    /// The shared memory that nginx would keep it in: a reload finds the addresses of names by it.
    pub zone: Option<String>,
    /// Servers whose names are resolved while the program runs.
    pub named: Vec<NamedServer>,
    /// Resolver of the peers' names, and the time that a look-up may take.
    pub resolver: OnceLock<(Arc<Resolver>, Duration)>,
    /// True if exchanges with the group's peers are counted.
    pub is_counted: bool,
    /// Idle connections of all workers.
    pub idle: AtomicUsize,
    /// Connections that several requests share, of all workers.
    pub shared: SharedCount,
    /// Requests that wait for a peer with room.
    pub queue: Option<Queue>,
    roster: ArcSwap<Roster>,
    /// The number of the next peer that is added.
    next_number: AtomicUsize,
    /// Held while one roster is made from another.
    changing: Mutex<()>,
}

/// Counts of the connections that several requests share (`keepalive_streams`).
#[derive(Debug, Default)]
pub struct SharedCount {
    /// Connections.
    pub lines: AtomicUsize,
    /// Requests on them.
    pub streams: AtomicUsize,
}

/// A server whose addresses are found while the program runs.
#[derive(Debug)]
pub struct NamedServer {
    /// The name.
    pub host: String,
    /// The service, when the name has SRV records.
    pub service: Option<String>,
    /// The port of its addresses; a service tells its own.
    pub port: u16,
    /// Settings that the peers of the name have in common.
    pub settings: PeerSettings,
    /// Until when its addresses are good.
    pub valid_until: Mutex<Option<Instant>>,
}

/// The peers of a group at one time.
#[derive(Debug)]
pub struct Roster {
    /// Peers that are asked first.
    pub primary: Tier,
    /// Peers that are asked when the others cannot be.
    pub backup: Tier,
    /// The number of peers that a request may try.
    pub tries: usize,
}

/// Peers among which one is chosen.
#[derive(Debug, Default)]
pub struct Tier {
    /// The peers.
    pub peers: Vec<Arc<Peer>>,
    /// The sum of their weights.
    pub total_weight: u64,
    /// The ring of a consistent hash; empty for other methods.
    pub ring: Vec<Point>,
    turn: Mutex<()>,
}

impl Tier {
    fn new(peers: Vec<Arc<Peer>>, method: &Method) -> Self {
        let weights = peers.iter().map(|peer| u64::from(peer.settings.weight));
        Tier {
            total_weight: weights.sum(),
            ring: match method {
                Method::ConsistentHash(_) => hash::ring(&peers),
                _ => Vec::new(),
            },
            peers,
            turn: Mutex::default(),
        }
    }

    /// The peer that a number below the total weight falls to.
    pub fn at_weight(&self, number: u64) -> Option<usize> {
        let mut left = number;
        self.peers.iter().position(|peer| {
            let weight = u64::from(peer.settings.weight);
            let is_here = left < weight;
            left = left.saturating_sub(weight);
            is_here
        })
    }

    /// The right to weigh the peers against each other.
    pub(super) fn lock(&self) -> MutexGuard<'_, ()> {
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Roster {
    fn new(peers: Vec<Arc<Peer>>, method: &Method) -> Self {
        let is_up = |peer: &&Arc<Peer>| peer.settings.availability != Availability::Down;
        let tries = peers.iter().filter(is_up).count().max(1);
        let (backup, primary) = peers.into_iter().partition(|peer| peer.settings.is_backup);
        Roster {
            primary: Tier::new(primary, method),
            backup: Tier::new(backup, method),
            tries,
        }
    }

    /// The peer of a group that has no other.
    pub fn single(&self) -> Option<&Arc<Peer>> {
        match (self.primary.peers.as_slice(), self.backup.peers.as_slice()) {
            ([peer], []) => Some(peer),
            _ => None,
        }
    }

    /// All peers, those first that are asked first.
    pub fn peers(&self) -> impl Iterator<Item = &Arc<Peer>> {
        self.primary.peers.iter().chain(&self.backup.peers)
    }
}

impl Group {
    /// A group of peers that are known.
    pub fn new(name: String, mut peers: Vec<Peer>, method: Method) -> Self {
        // In the order in which they are told of.
        peers.sort_by_key(|peer| peer.settings.is_backup);
        let next_number = AtomicUsize::new(peers.len());
        let numbered = peers.into_iter().enumerate();
        let peers = numbered.map(|(number, mut peer)| {
            peer.number = number;
            Arc::new(peer)
        });
        let roster = Roster::new(peers.collect(), &method);
        Group {
            name,
            keep_alive: KeepAliveLimits::default(),
            is_implicit: false,
            method,
            sticky: None,
            zone: None,
            named: Vec::new(),
            resolver: OnceLock::new(),
            is_counted: true,
            idle: AtomicUsize::new(0),
            shared: SharedCount::default(),
            queue: None,
            next_number,
            roster: ArcSwap::from_pointee(roster),
            changing: Mutex::default(),
        }
    }

    /// A group for one request, whose connections nobody else can use.
    pub fn passing(name: String, addresses: Vec<Address>) -> Self {
        let settings = PeerSettings::new("");
        let peer = |address| Peer::new(address, settings.clone(), None);
        let peers = addresses.into_iter().map(peer).collect();
        let mut group = Group::new(name, peers, Method::RoundRobin);
        group.keep_alive.connections = 0;
        group.is_counted = false;
        group
    }

    /// Values of a request that the choice of its peer depends on.
    pub fn wish(&self, req: &mut Request) -> Wish {
        Wish {
            key: self.method.key(req),
            bound_to: self.sticky.as_ref().and_then(|sticky| sticky.bound_to(req)),
        }
    }

    /// The peers that there are now.
    pub fn roster(&self) -> Arc<Roster> {
        self.roster.load_full()
    }

    /// True if a peer has as many connections as it may.
    pub(super) fn has_full_peer(&self) -> bool {
        let roster = self.roster.load();
        roster.peers().any(|peer| !peer.has_room())
    }

    /// Notes that a peer failed; true when it rests now.
    pub fn failed(&self, peer: &Peer) -> bool {
        if self.is_counted {
            peer.tally().failed();
        }
        if self.roster.load().single().is_some() {
            peer.forgive();
            return false;
        }
        let rests = peer.failed();
        if rests && self.is_counted {
            peer.tally().rests(clock::now_ms());
        }
        rests
    }

    /// Notes that a peer answered.
    pub fn answered(&self, peer: &Peer) {
        match self.roster.load().single() {
            Some(_) => peer.forgive(),
            None => peer.answered(),
        }
    }

    /// Notes that a session has its connection.
    pub fn connected(&self, peer: &Peer, took: Duration) {
        if let Method::LeastTime(settings) = &self.method {
            settings.connected(peer, took);
        }
    }

    /// Notes that the head of an answer, or the first byte of a session, came.
    pub fn head_came(&self, peer: &Peer, took: Duration) {
        if let Method::LeastTime(settings) = &self.method {
            settings.head_came(peer, took);
        }
    }

    /// Ends an exchange's count; with its times to the head and to the end when it went well.
    pub fn ended(&self, peer: &Peer, times: Option<(Duration, Duration)>, took: Duration) {
        peer.release();
        self.queue.iter().for_each(Queue::wake);
        if let Method::LeastTime(settings) = &self.method {
            settings.ended(peer, times, took);
        }
    }

    /// Puts what a named server resolved to in the place of what it resolved to before.
    ///
    /// nginx: the targets of a service with the best priority are peers, the others backup peers;
    /// a weight that is configured goes before the one of a target.
    pub fn update(&self, index: usize, found: &[Found]) {
        let Some(server) = self.named.get(index) else {
            return;
        };
        let best = found.iter().map(|found| found.priority).min().unwrap_or(0);
        let may_back_up = self.method.allows_backup() && !server.settings.is_backup;
        let wanted = found.iter().take(MOST_ADDRESSES).filter_map(|found| {
            let is_backup = found.priority != best;
            if is_backup && !may_back_up {
                return None;
            }
            let mut settings = server.settings.clone();
            settings.is_backup |= is_backup;
            if server.service.is_some() {
                settings.server = Arc::from(found.name.as_str());
                if settings.weight == 1 {
                    settings.weight = u32::from(found.weight).max(1);
                }
            }
            let port = found.port.unwrap_or(server.port);
            Some((Address::Inet(SocketAddr::new(found.ip, port)), settings))
        });
        self.replace(index, wanted.collect());
    }

    /// Makes a roster in which the peers of a named server are these.
    fn replace(&self, index: usize, mut wanted: Vec<(Address, PeerSettings)>) {
        let _changing = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let now = self.roster.load_full();
        let mut peers: Vec<Arc<Peer>> = Vec::new();
        for peer in now.peers() {
            if peer.origin != Some(index) {
                peers.push(Arc::clone(peer));
                continue;
            }
            let same = wanted.iter().position(|(address, settings)| {
                *address == peer.address
                    && settings.is_backup == peer.settings.is_backup
                    && settings.server == peer.settings.server
                    && settings.weight == peer.settings.weight
            });
            if let Some(at) = same {
                wanted.remove(at);
                peers.push(Arc::clone(peer));
            }
        }
        let is_same = wanted.is_empty() && peers.len() == now.peers().count();
        if is_same {
            return;
        }
        let add = |(address, settings)| self.numbered(Peer::new(address, settings, Some(index)));
        peers.extend(wanted.into_iter().map(add));
        self.take(peers);
    }

    /// A peer that comes in; INVARIANT 4.
    fn numbered(&self, mut peer: Peer) -> Arc<Peer> {
        peer.number = self.next_number.fetch_add(1, Ordering::Relaxed);
        Arc::new(peer)
    }

    /// Goes on with the counters of the same peers under an earlier configuration.
    pub fn inherit_tallies(&self, older: Option<&Arc<Group>>) {
        let Some(older) = older.map(|older| older.roster()) else {
            return;
        };
        for peer in self.roster().peers() {
            let mut others = older.peers();
            let same = others.find(|other| {
                other.address == peer.address && other.settings.server == peer.settings.server
            });
            if let Some(same) = same {
                peer.share_tally(same);
            }
        }
    }

    /// Takes over what the names of the same group resolved to under an earlier configuration.
    pub fn inherit(&self, older: &Group) {
        for (index, server) in self.named.iter().enumerate() {
            let is_same =
                |other: &NamedServer| other.host == server.host && other.service == server.service;
            let Some(at) = older.named.iter().position(is_same) else {
                continue;
            };
            let roster = older.roster();
            let peers = roster.peers().filter(|peer| peer.origin == Some(at));
            let wanted = peers.filter_map(|peer| {
                let Address::Inet(mut address) = peer.address.clone() else {
                    return None;
                };
                let mut settings = server.settings.clone();
                match &server.service {
                    None => address.set_port(server.port),
                    Some(_) => {
                        settings.server = Arc::clone(&peer.settings.server);
                        settings.is_backup = peer.settings.is_backup;
                        if settings.weight == 1 {
                            settings.weight = peer.settings.weight;
                        }
                    }
                }
                Some((Address::Inet(address), settings))
            });
            self.replace(index, wanted.collect());
            let valid_until = older.named.get(at).and_then(NamedServer::valid_until);
            server.set_valid_until(valid_until);
        }
    }
}

impl NamedServer {
    /// Until when its addresses are good; none when it was never resolved.
    pub fn valid_until(&self) -> Option<Instant> {
        let valid_until = self.valid_until.lock();
        *valid_until.unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes until when its addresses are good.
    pub fn set_valid_until(&self, instant: Option<Instant>) {
        let valid_until = self.valid_until.lock();
        *valid_until.unwrap_or_else(PoisonError::into_inner) = instant;
    }
}

#[cfg(test)]
mod tests;
