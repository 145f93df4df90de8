//! A server of a group as the balancing sees it: what is configured of it, and how it stands.
//!
//! The standing is shared by all workers and consists of atomic numbers, so that noting the end of
//! a connection takes no lock. Whoever weighs peers against each other holds the lock of their
//! tier; numbers that change meanwhile make a choice a little old, never wrong.
//!
//! Invariants:
//! 1. A peer that failed `max_fails` times within `fail_timeout` rests for as long.
//! 2. Each connection that was counted is given back once.

use std::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use millpond_semantics::hex::Hex;
use millpond_system::address::Address;
use millpond_system::clock::{self, Instant};

use millpond_exchange::stats::peer::PeerTally;

/// Permission to ask a peer at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Availability {
    /// The peer may be asked.
    Up,
    /// By requests that are bound to it only.
    Draining,
    /// The peer may not be asked.
    Down,
}

/// Settings of a `server` line besides the address.
#[derive(Clone, Debug)]
pub struct PeerSettings {
    /// The server as it was written, for consistent hashes.
    pub server: Arc<str>,
    /// Share of the turns that the peer gets.
    pub weight: u32,
    /// Failures after which it rests; 0: it never does.
    pub max_fails: u32,
    /// The time in which failures count, and for which it rests.
    pub fail_timeout: Duration,
    /// Most connections at once; 0: any number.
    pub max_conns: u32,
    /// Asked only when the others cannot be.
    pub is_backup: bool,
    /// Permission to ask the peer at all.
    pub availability: Availability,
    /// The name by which requests are bound to it; empty: one is made of its address.
    pub route: Arc<str>,
}

/// nginx's defaults.
impl PeerSettings {
    /// Settings of a server without parameters.
    pub fn new(server: &str) -> Self {
        PeerSettings {
            server: Arc::from(server),
            weight: 1,
            max_fails: 1,
            fail_timeout: Duration::from_secs(10),
            max_conns: 0,
            is_backup: false,
            availability: Availability::Up,
            route: Arc::from(""),
        }
    }
}

/// A server of a group.
#[derive(Debug)]
pub struct Peer {
    /// Address that the peer is connected to.
    pub address: Address,
    /// The address as text, for `$upstream_addr`.
    pub name: Arc<str>,
    /// Settings that its `server` line gives.
    pub settings: PeerSettings,
    /// The `server` line that it was resolved from, by its place in the group; none for one whose
    /// address is fixed.
    pub origin: Option<usize>,
    /// Number of the peer in its group; the number never means another peer.
    pub number: usize,
    /// Digest of the address, which binds requests to the peer when the configuration names no
    /// route.
    digest: OnceLock<String>,
    /// Counters of the peer, once something was counted.
    tally: OnceLock<Arc<PeerTally>>,
    /// Shared with what it was before its settings were changed.
    pub(super) standing: Arc<Standing>,
}

/// Instant of something that never happened; so long ago that every timeout is over.
const NEVER: i64 = i64::MIN / 2;

/// Time for which no connection is kept of a peer that said something unasked, ms (arbitrary: as
/// long as nginx keeps an idle connection).
const UNTRUSTED_MS: i64 = 60_000;

/// A new time's share in an average; what was before has the rest (nginx's number).
const NEW_SHARE: f64 = 0.05;

/// Standing of a peer: its turns, failures and load. Times are milliseconds since `born`.
#[derive(Debug)]
pub(super) struct Standing {
    born: Instant,
    /// Part of the peer in the smooth weighted turn.
    pub(super) current: AtomicI64,
    /// Weight of the peer, less what failures took.
    pub(super) effective: AtomicI64,
    fails: AtomicU32,
    pub(super) connections: AtomicU32,
    accessed: AtomicI64,
    pub(super) checked: AtomicI64,
    /// Instant at which the peer last said something that it was not asked.
    spoke_unasked: AtomicI64,
    /// Average times to the head and to the end of an answer.
    pub(super) header_ms: AtomicU64,
    pub(super) response_ms: AtomicU64,
    pub(super) inflight: AtomicU32,
    /// The sum of the times of what was in flight when that last changed, and when it did.
    inflight_sum: AtomicI64,
    inflight_since: AtomicI64,
    inflight_ms: AtomicU64,
}

impl Peer {
    /// A peer that nothing was asked of.
    pub fn new(address: Address, settings: PeerSettings, origin: Option<usize>) -> Self {
        let standing = Standing {
            born: clock::instant(),
            current: AtomicI64::new(0),
            effective: AtomicI64::new(i64::from(settings.weight)),
            fails: AtomicU32::new(0),
            connections: AtomicU32::new(0),
            accessed: AtomicI64::new(NEVER),
            checked: AtomicI64::new(NEVER),
            spoke_unasked: AtomicI64::new(NEVER),
            header_ms: AtomicU64::new(0),
            response_ms: AtomicU64::new(0),
            inflight: AtomicU32::new(0),
            inflight_sum: AtomicI64::new(0),
            inflight_since: AtomicI64::new(0),
            inflight_ms: AtomicU64::new(0),
        };
        Peer {
            name: Arc::from(address.to_string()),
            digest: OnceLock::new(),
            tally: OnceLock::new(),
            address,
            settings,
            origin,
            number: 0,
            standing: Arc::new(standing),
        }
    }

    /// Copy of this peer for the same server with other settings: what is known of it stays.
    pub(super) fn changed(&self, settings: PeerSettings) -> Self {
        if settings.weight != self.settings.weight {
            let effective = i64::from(settings.weight);
            self.standing.effective.store(effective, Relaxed);
        }
        Peer {
            address: self.address.clone(),
            name: Arc::clone(&self.name),
            settings,
            origin: self.origin,
            number: self.number,
            digest: OnceLock::new(),
            tally: OnceLock::from(Arc::clone(self.tally())),
            standing: Arc::clone(&self.standing),
        }
    }

    /// True when a request that is bound to no peer may be sent to it now.
    pub(super) fn is_live(&self, now: Instant) -> bool {
        self.is_open() && self.has_room() && !self.rests(now)
    }

    /// True when a request that is bound to it may be sent to it now.
    pub(super) fn is_live_for_bound(&self, now: Instant) -> bool {
        self.is_open_to_bound() && self.has_room() && !self.rests(now)
    }

    /// True when it is asked by requests that are bound to no peer.
    pub(super) fn is_open(&self) -> bool {
        self.settings.availability == Availability::Up
    }

    /// True when it is asked by requests that are bound to it.
    pub(super) fn is_open_to_bound(&self) -> bool {
        self.settings.availability != Availability::Down
    }

    /// The name by which requests are bound to it.
    pub fn id(&self) -> &[u8] {
        if self.settings.route.is_empty() {
            self.digest.get_or_init(|| digest(&self.name)).as_bytes()
        } else {
            self.settings.route.as_bytes()
        }
    }

    /// Counters of the peer, begun with the first use.
    pub fn tally(&self) -> &Arc<PeerTally> {
        self.tally.get_or_init(Arc::default)
    }

    /// Goes on counting where another one is; without effect once something was counted.
    pub(super) fn share_tally(&self, other: &Peer) {
        let _ = self.tally.set(Arc::clone(other.tally()));
    }

    fn is_back(&self) {
        if let Some(tally) = self.tally.get() {
            tally.is_back(clock::now_ms);
        }
    }

    /// True while it has failed so often that it rests, or is to be tried.
    pub fn is_failing(&self) -> bool {
        let max = self.settings.max_fails;
        max > 0 && self.standing.fails.load(Relaxed) >= max
    }

    /// Connections that the peer has now.
    pub fn load(&self) -> u64 {
        u64::from(self.standing.connections.load(Relaxed))
    }

    /// Lets its part in the turn grow; gives that, and by how much it grew.
    pub(super) fn grow(&self) -> (i64, i64) {
        let standing = &self.standing;
        let effective = standing.effective.load(Relaxed);
        let current = standing.current.load(Relaxed) + effective;
        standing.current.store(current, Relaxed);
        if effective < i64::from(self.settings.weight) {
            standing.effective.fetch_add(1, Relaxed);
        }
        (current, effective)
    }

    /// An average of its answers' times, in milliseconds.
    pub(super) fn average_ms(&self, which: Measured) -> u64 {
        match which {
            Measured::Header => self.standing.header_ms.load(Relaxed),
            Measured::Response => self.standing.response_ms.load(Relaxed),
            Measured::Inflight => self.standing.inflight_ms.load(Relaxed),
        }
    }

    /// True while it has fewer connections than it may.
    pub(super) fn has_room(&self) -> bool {
        let max = self.settings.max_conns;
        max == 0 || self.standing.connections.load(Relaxed) < max
    }

    /// INVARIANT 1.
    fn rests(&self, now: Instant) -> bool {
        let max = self.settings.max_fails;
        max > 0
            && self.standing.fails.load(Relaxed) >= max
            && self.since_checked(now) <= self.settings.fail_timeout.as_millis() as i64
    }

    /// Milliseconds since it was last tried after a failure, or failed.
    pub(super) fn since_checked(&self, now: Instant) -> i64 {
        self.standing.at(now) - self.standing.checked.load(Relaxed)
    }

    /// Counts a connection to a peer that was chosen.
    pub(super) fn take(&self, now: Instant) {
        if self.since_checked(now) > self.settings.fail_timeout.as_millis() as i64 {
            self.standing.checked.store(self.standing.at(now), Relaxed);
        }
        self.standing.connections.fetch_add(1, Relaxed);
    }

    /// Ends a connection's count.
    pub fn release(&self) {
        let fewer = |count: u32| count.checked_sub(1);
        let _ = self
            .standing
            .connections
            .fetch_update(Relaxed, Relaxed, fewer);
    }

    /// Notes that it failed; true when it rests now.
    pub fn failed(&self) -> bool {
        let now = self.standing.at(clock::instant());
        let fails = self.standing.fails.fetch_add(1, Relaxed).saturating_add(1);
        self.standing.accessed.store(now, Relaxed);
        self.standing.checked.store(now, Relaxed);
        let Some(share) = self.settings.weight.checked_div(self.settings.max_fails) else {
            return false;
        };
        let less = |effective: i64| Some((effective - i64::from(share)).max(0));
        let _ = self.standing.effective.fetch_update(Relaxed, Relaxed, less);
        fails >= self.settings.max_fails
    }

    /// Notes that it answered: what was a test is passed.
    pub fn answered(&self) {
        let standing = &self.standing;
        if standing.accessed.load(Relaxed) < standing.checked.load(Relaxed) {
            standing.fails.store(0, Relaxed);
            self.is_back();
        }
    }

    /// Forgets its failures: there is nobody else to ask.
    pub fn forgive(&self) {
        self.standing.fails.store(0, Relaxed);
        self.is_back();
    }

    /// Notes that it said something on a connection without being asked; true the first time in a
    /// while.
    pub fn spoke_unasked(&self, now: Instant) -> bool {
        let was_trusted = self.is_trusted(now);
        let at = self.standing.at(now);
        self.standing.spoke_unasked.store(at, Relaxed);
        was_trusted
    }

    /// False for a while after it said something unasked: none of its connections is used twice,
    /// since what comes first on one may be no answer.
    pub fn is_trusted(&self, now: Instant) -> bool {
        let spoke = self.standing.spoke_unasked.load(Relaxed);
        self.standing.at(now) - spoke >= UNTRUSTED_MS
    }

    /// Adds a time to the average of one kind.
    pub(super) fn measured(&self, which: Measured, time: Duration) {
        let average = match which {
            Measured::Header => &self.standing.header_ms,
            Measured::Response => &self.standing.response_ms,
            Measured::Inflight => &self.standing.inflight_ms,
        };
        let time = time.as_millis() as u64;
        let with = |average: u64| {
            let mixed = 0.5 + time as f64 * NEW_SHARE + average as f64 * (1.0 - NEW_SHARE);
            Some(if average == 0 { time } else { mixed as u64 })
        };
        let _ = average.fetch_update(Relaxed, Relaxed, with);
    }

    /// Counts a request that waits for an answer.
    pub(super) fn begin_inflight(&self, now: Instant) {
        self.pass_inflight_time(now, 0);
        self.standing.inflight.fetch_add(1, Relaxed);
    }

    /// Ends such a request, which took that long.
    pub(super) fn end_inflight(&self, took: Duration) {
        if self.standing.inflight.load(Relaxed) <= 1 {
            self.standing.inflight_sum.store(0, Relaxed);
        } else {
            self.pass_inflight_time(clock::instant(), took.as_millis() as i64);
        }
        let fewer = |count: u32| count.checked_sub(1);
        let _ = self.standing.inflight.fetch_update(Relaxed, Relaxed, fewer);
    }

    /// Brings the sum of times up to now, less what is done.
    fn pass_inflight_time(&self, now: Instant, done_ms: i64) {
        let now = self.standing.at(now);
        let since = self.standing.inflight_since.swap(now, Relaxed);
        let count = i64::from(self.standing.inflight.load(Relaxed));
        let more = (now - since).max(0) * count - done_ms;
        self.standing.inflight_sum.fetch_add(more, Relaxed);
    }

    /// The average time of what is in flight, brought up to now; 0 when nothing is.
    pub(super) fn inflight_time(&self, now: Instant) -> u64 {
        let count = i64::from(self.standing.inflight.load(Relaxed));
        if count == 0 {
            return 0;
        }
        let since = self.standing.at(now) - self.standing.inflight_since.load(Relaxed);
        let mean = self.standing.inflight_sum.load(Relaxed) / count + since;
        self.measured(
            Measured::Inflight,
            Duration::from_millis(mean.max(0) as u64),
        );
        self.standing.inflight_ms.load(Relaxed)
    }
}

/// Times that were measured of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Measured {
    /// The time to its head.
    Header,
    /// The time to its end.
    Response,
    /// The time of those without an answer.
    Inflight,
}

impl Standing {
    fn at(&self, now: Instant) -> i64 {
        now.saturating_duration_since(self.born).as_millis() as i64
    }
}

/// nginx: what stands for a server without a route is the MD5 of its address.
fn digest(name: &str) -> String {
    use md5::{Digest, Md5};
    let digest = Md5::digest(name.as_bytes());
    Hex(&digest).to_string()
}
