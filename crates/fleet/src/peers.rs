//! Peers: nodes of the fleet that are asked in place of an origin, as one of them knows them.
//!
//! ```text
//! beats ──► members that live ──► owner of a key ──► asked by who needs it (`millpond_proxy`)
//! ```
//!
//! Members are in pools: a key has an owner in each of them, and who asks says in which.
//!
//! 1. A member lives as long as its beats are heard, three of them or fewer missing. Beats that
//!    were old when they were read, as after a start, make no member.
//! 2. Who is not a member itself, because it does not hear its own beats, asks nobody.
//! 3. Nothing here decides about an answer: a wrong list costs a request.
//! 4. Of a pool without members that live nobody is asked.

use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::entry::{Announced, DEFAULT_POOL};
use crate::owner::{self, Candidate};
use crate::view::Heard;

/// Time for which a member lives after a beat: three of them.
pub const LIVE_MS: u64 = 3_000;
/// Keys that are remembered as asked for once, in each of two generations (arbitrary: a megabyte).
const SEEN_MAX: usize = 32 << 10;

/// Bytes that requests between nodes are signed with.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Vec<u8>);

impl Secret {
    /// A secret of these bytes.
    pub fn new(bytes: Vec<u8>) -> Self {
        Secret(bytes)
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

/// Place of a node among its peers, as it is configured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeersConf {
    /// Address at which others ask it; without one it owns nothing.
    pub address: Option<SocketAddr>,
    /// Share of the keys that it owns, beside the weights of the others of its pool; 0 counts as 1.
    pub weight: u16,
    /// Name of its pool.
    pub pool: String,
    /// Secret of the fleet; without one nobody is asked or answered.
    pub secret: Option<Secret>,
}

impl Default for PeersConf {
    fn default() -> Self {
        PeersConf {
            address: None,
            weight: 0,
            pool: DEFAULT_POOL.to_owned(),
            secret: None,
        }
    }
}

/// A choice of the owner of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choice<'a> {
    /// The pool whose members are chosen from; none for that of the node itself.
    pub pool: Option<&'a str>,
    /// The part of its share that a member may have to do, as for [`owner::owner`].
    pub bound: u32,
}

/// Outcome of a request to an owner, or of one from a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerResult {
    /// The owner's answer was used.
    Answered,
    /// The owner gave no sign of life in time, and the origin was asked.
    Slow,
    /// The owner was not reached, or broke off, and the origin was asked.
    Failed,
    /// The owner refused, or gave an answer that cannot be used, and the origin was asked.
    Refused,
    /// A peer was answered.
    Served,
    /// A peer was refused: its signature, its time, its key or its zone is another.
    Rejected,
    /// A peer was refused, because it has more of the log than this node.
    Behind,
}

impl PeerResult {
    /// The outcome in a word.
    pub fn word(self) -> &'static str {
        match self {
            PeerResult::Answered => "answered",
            PeerResult::Slow => "slow",
            PeerResult::Failed => "failed",
            PeerResult::Refused => "refused",
            PeerResult::Served => "served",
            PeerResult::Rejected => "rejected",
            PeerResult::Behind => "behind",
        }
    }
}

/// All outcomes, in the order of their counters.
pub const PEER_RESULTS: [PeerResult; 7] = [
    PeerResult::Answered,
    PeerResult::Slow,
    PeerResult::Failed,
    PeerResult::Refused,
    PeerResult::Served,
    PeerResult::Rejected,
    PeerResult::Behind,
];

/// The node that a key belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Owner {
    /// This one, or none that is known.
    Own,
    /// Another one.
    Peer {
        /// Name of the node.
        name: Arc<str>,
        /// Address at which it is asked.
        address: SocketAddr,
    },
}

/// Members of a pool.
#[derive(Debug, Default)]
struct Pool {
    candidates: Vec<Candidate>,
    /// Address of each, and the time at which it was heard of.
    rest: Vec<(Arc<str>, SocketAddr, u64)>,
}

impl Pool {
    /// The members that live at a time, if those are not all.
    fn living(&self, now_ms: u64) -> Option<Pool> {
        if self.rest.iter().all(|it| lives(it.2, now_ms)) {
            return None;
        }
        let pairs = self
            .candidates
            .iter()
            .cloned()
            .zip(self.rest.iter().cloned());
        let (candidates, rest) = pairs.filter(|(_, it)| lives(it.2, now_ms)).unzip();
        Some(Pool { candidates, rest })
    }
}

/// True if who was heard of at a time lives at another one.
fn lives(at_ms: u64, now_ms: u64) -> bool {
    now_ms.saturating_sub(at_ms) <= LIVE_MS
}

#[derive(Debug, Default)]
struct Known {
    /// The time at which this node was heard of as a member; none if it never was.
    own_ms: Option<u64>,
    /// Pools by name.
    pools: BTreeMap<String, Pool>,
}

/// Keys that were asked of their owners once; forgotten in two steps.
#[derive(Debug, Default)]
struct Seen {
    now: HashSet<u64>,
    before: HashSet<u64>,
}

impl Seen {
    /// Notes a key; true if it was noted before.
    fn note(&mut self, key: u64) -> bool {
        if self.now.contains(&key) {
            return true;
        }
        let was_there = self.before.contains(&key);
        if self.now.len() >= SEEN_MAX {
            self.before = std::mem::take(&mut self.now);
        }
        self.now.insert(key);
        was_there
    }
}

/// The peers of a node.
#[derive(Debug)]
pub struct Peers {
    conf: PeersConf,
    own: String,
    known: Mutex<Arc<Known>>,
    /// Requests of peers that are being answered.
    load: AtomicU32,
    seen: Mutex<Seen>,
    counts: [AtomicU64; PEER_RESULTS.len()],
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Peers {
    /// The peers of a node with this name.
    pub fn new(own: &str, conf: PeersConf) -> Self {
        Peers {
            conf,
            own: own.to_owned(),
            known: Mutex::default(),
            load: AtomicU32::new(0),
            seen: Mutex::default(),
            counts: Default::default(),
        }
    }

    /// Secret of the fleet.
    pub fn secret(&self) -> Option<&Secret> {
        self.conf.secret.as_ref()
    }

    /// Words of this node about itself, for its beats.
    pub(crate) fn announced(&self) -> Announced {
        let address = self.conf.address.filter(|_| self.conf.secret.is_some());
        Announced {
            address: address.map_or_else(String::new, |address| address.to_string()),
            weight: self.conf.weight,
            load: self.load.load(Relaxed),
            // The follower knows both.
            lag_ms: None,
            log: None,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pool: self.conf.pool.clone(),
        }
    }

    /// Takes over what was heard of all nodes.
    pub(crate) fn hear<'a>(&self, nodes: impl Iterator<Item = (&'a String, &'a Heard)>) {
        if self.conf.secret.is_none() {
            return;
        }
        let mut known = Known::default();
        for (name, heard) in nodes {
            let Some(announced) = &heard.member.announced else {
                continue;
            };
            let Ok(address) = announced.address.parse() else {
                continue;
            };
            // INVARIANT 1.
            if !heard.was_recent {
                continue;
            }
            if *name == self.own {
                known.own_ms = Some(heard.at_ms);
            }
            let (weight, load) = (u32::from(announced.weight), announced.load);
            let pool = known.pools.entry(announced.pool.clone()).or_default();
            pool.candidates.push(Candidate::new(name, weight, load));
            pool.rest
                .push((Arc::from(name.as_str()), address, heard.at_ms));
        }
        *lock(&self.known) = Arc::new(known);
    }

    /// The owner of a key at a time.
    pub fn owner(&self, key: u64, choice: Choice<'_>, now_ms: u64) -> Owner {
        let known = Arc::clone(&lock(&self.known));
        // INVARIANT 2: a node with an address is a member if it is heard.
        let is_heard = known.own_ms.is_some_and(|at_ms| lives(at_ms, now_ms));
        if self.conf.address.is_some() && !is_heard {
            return Owner::Own;
        }
        // INVARIANT 4.
        let Some(pool) = known.pools.get(choice.pool.unwrap_or(&self.conf.pool)) else {
            return Owner::Own;
        };
        match pool.living(now_ms) {
            Some(living) => self.pick(&living, key, choice.bound),
            None => self.pick(pool, key, choice.bound),
        }
    }

    fn pick(&self, pool: &Pool, key: u64, bound: u32) -> Owner {
        let place = owner::owner(&pool.candidates, key, bound);
        match place.and_then(|place| pool.rest.get(place)) {
            Some((name, address, _)) if **name != *self.own => Owner::Peer {
                name: Arc::clone(name),
                address: *address,
            },
            _ => Owner::Own,
        }
    }

    /// Notes that a key was asked of its owner; true if it was before.
    pub fn was_asked(&self, key: u64) -> bool {
        lock(&self.seen).note(key)
    }

    /// Counts an outcome.
    pub fn count(&self, result: PeerResult) {
        let mut places = PEER_RESULTS.iter();
        let place = places.position(|it| *it == result);
        if let Some(counter) = place.and_then(|place| self.counts.get(place)) {
            counter.fetch_add(1, Relaxed);
        }
    }

    /// Counts of all outcomes, by their words.
    pub fn counts(&self) -> [(&'static str, u64); PEER_RESULTS.len()] {
        let mut counts = PEER_RESULTS.map(|it| (it.word(), 0));
        for (count, counter) in counts.iter_mut().zip(&self.counts) {
            count.1 = counter.load(Relaxed);
        }
        counts
    }

    /// Requests of peers that are being answered.
    pub fn load(&self) -> u32 {
        self.load.load(Relaxed)
    }

    /// Counts a request of a peer as being answered, as long as the guard is there.
    pub fn begin(self: &Arc<Self>) -> Answering {
        self.load.fetch_add(1, Relaxed);
        Answering(Arc::clone(self))
    }
}

/// A request of a peer that is being answered.
#[derive(Debug)]
pub struct Answering(Arc<Peers>);

impl Drop for Answering {
    fn drop(&mut self) {
        self.0.load.fetch_sub(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::follower::Member;

    fn heard(address: &str, at_ms: u64) -> Heard {
        Heard {
            member: Member {
                run: [0; 16],
                taken: 0,
                at_ms: 0,
                announced: Some(Announced {
                    address: address.to_owned(),
                    weight: 1,
                    ..Announced::default()
                }),
            },
            at_ms,
            was_recent: true,
        }
    }

    fn peers(own: &str) -> Peers {
        let conf = PeersConf {
            address: "127.0.0.1:1".parse().ok(),
            weight: 1,
            secret: Some(Secret::new(vec![1])),
            ..PeersConf::default()
        };
        Peers::new(own, conf)
    }

    fn peers_of(peers: &Peers, now_ms: u64) -> HashSet<String> {
        peers_in(peers, None, now_ms)
    }

    fn peers_in(peers: &Peers, pool: Option<&str>, now_ms: u64) -> HashSet<String> {
        let choice = Choice { pool, bound: 125 };
        let owners = (0..200).map(|key| peers.owner(key, choice, now_ms));
        let name = |owner| match owner {
            Owner::Own => "own".to_owned(),
            Owner::Peer { name, .. } => name.to_string(),
        };
        owners.map(name).collect()
    }

    #[test]
    fn members_own_keys_as_long_as_they_are_heard() {
        let peers = peers("a");
        assert_eq!(peers_of(&peers, 0), HashSet::from(["own".to_owned()]));
        let names = ["a", "b", "c", "d"].map(str::to_owned);
        let mut all = [
            heard("127.0.0.1:1", 9_000),
            heard("127.0.0.1:2", 9_000),
            heard("127.0.0.1:3", 5_000),
            heard("nowhere", 9_000),
        ];
        peers.hear(names.iter().zip(&all));
        let of = |names: &[&str]| names.iter().map(ToString::to_string).collect();
        assert_eq!(peers_of(&peers, 8_000), of(&["own", "b", "c"]));
        assert_eq!(peers_of(&peers, 8_001), of(&["own", "b"]));
        // Who does not hear of itself asks nobody.
        all[0].at_ms = 0;
        peers.hear(names.iter().zip(&all));
        assert_eq!(peers_of(&peers, 9_000), of(&["own"]));
        // What was old when it was read makes no member.
        (all[0].at_ms, all[1].was_recent) = (9_000, false);
        peers.hear(names.iter().zip(&all));
        assert_eq!(peers_of(&peers, 9_000), of(&["own"]));
    }

    /// Owners in a pool do not depend on who is in others, nor on who asks.
    #[test]
    fn pools_have_owners_of_their_own() {
        let names = ["a", "b", "s", "t"].map(str::to_owned);
        let mut all = [1, 2, 3, 4].map(|port| heard(&format!("127.0.0.1:{port}"), 9_000));
        for shield in &mut all[2..] {
            shield.member.announced.as_mut().unwrap().pool = "shield".to_owned();
        }
        let of = |own: &str, pool: &str| {
            let mut peers = peers(own);
            peers.conf.pool = pool.to_owned();
            peers.hear(names.iter().zip(&all));
            peers
        };
        let set =
            |names: &[&str]| -> HashSet<String> { names.iter().map(ToString::to_string).collect() };
        let (edge, shield) = (of("a", "default"), of("s", "shield"));
        assert_eq!(peers_of(&edge, 9_000), set(&["own", "b"]));
        assert_eq!(peers_in(&edge, Some("default"), 9_000), set(&["own", "b"]));
        assert_eq!(peers_in(&edge, Some("shield"), 9_000), set(&["s", "t"]));
        assert_eq!(peers_of(&shield, 9_000), set(&["own", "t"]));
        assert_eq!(peers_in(&shield, Some("default"), 9_000), set(&["a", "b"]));
        assert_eq!(peers_in(&edge, Some("other"), 9_000), set(&["own"]));
        for key in 0..200 {
            let choice = Choice {
                pool: Some("shield"),
                bound: 125,
            };
            let own = shield.owner(key, choice, 9_000) == Owner::Own;
            let asked = match edge.owner(key, choice, 9_000) {
                Owner::Peer { name, .. } => name.to_string(),
                Owner::Own => panic!("it is in no shield"),
            };
            assert_eq!(own, asked == "s", "{key}");
        }
        // A shield whose members are all missed is asked by nobody.
        let mut late = all.clone();
        (late[2].at_ms, late[3].at_ms) = (5_000, 4_000);
        edge.hear(names.iter().zip(&late));
        assert_eq!(peers_in(&edge, Some("shield"), 7_500), set(&["s"]));
        assert_eq!(peers_in(&edge, Some("shield"), 9_000), set(&["own"]));
        // Nor is it by who does not hear of itself, in whatever pool that is.
        late[0].at_ms = 0;
        edge.hear(names.iter().zip(&late));
        assert_eq!(peers_in(&edge, Some("shield"), 7_500), set(&["own"]));
    }

    #[test]
    fn keys_are_remembered_once_asked_for_and_forgotten_in_two_steps() {
        let peers = peers("a");
        assert!(!peers.was_asked(7));
        assert!(peers.was_asked(7));
        for key in 0..2 * SEEN_MAX as u64 {
            peers.was_asked(1000 + key);
        }
        assert!(!peers.was_asked(7));
    }

    #[test]
    fn load_is_what_is_being_answered() {
        let peers = Arc::new(peers("a"));
        let some = [peers.begin(), peers.begin()];
        assert_eq!(peers.announced().load, 2);
        drop(some);
        assert_eq!(peers.load(), 0);
        peers.count(PeerResult::Served);
        assert_eq!(peers.counts()[4], ("served", 1));
    }
}
