//! `GET /peers`: the peers of upstream groups, and how they are.
//!
//! Peers of groups that the configuration declares are told, and those that a location passes to by
//! address. A process at rest has none.

use millpond_proxy::upstream::groups::Groups;
use millpond_proxy::upstream::peer::{Availability, Peer};
use millpond_system::clock;
use serde::{Deserialize, Serialize};

use super::api::{Answer, Scene, Standing};
use super::report;

/// The peers of all groups.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct PeersReport {
    /// Peers, by group.
    pub peers: Vec<PeerReport>,
}

/// A peer.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct PeerReport {
    /// Name of the group.
    pub upstream: String,
    /// Address of the peer.
    pub server: String,
    /// The server as it is configured.
    pub name: String,
    /// `up`, `unavail` (it has failed too often), `draining`, or `down` (as configured).
    pub state: String,
    /// True if it is asked only when the others cannot be.
    pub is_backup: bool,
    /// Requests that it was asked.
    pub requests: u64,
    /// Requests that failed.
    pub fails: u64,
    /// Number of times that it became unavailable.
    pub unavailable: u64,
    /// Milliseconds for which it was.
    pub downtime_ms: u64,
}

/// State of a peer, as NGINX Plus names it.
pub(super) fn state(peer: &Peer) -> &'static str {
    match peer.settings.availability {
        Availability::Down => "down",
        Availability::Draining => "draining",
        Availability::Up if peer.is_failing() => "unavail",
        Availability::Up => "up",
    }
}

/// Answers with all peers.
pub(super) fn answer(scene: &Scene) -> Answer {
    let conf = match &scene.standing {
        Standing::Running(facts) => facts.conf.as_ref(),
        Standing::AtRest => None,
    };
    let declared = conf.into_iter().map(|conf| conf.parts.of::<Groups>());
    let groups = declared.flat_map(|it| it.upstreams.iter().chain(&it.implicit));
    let peers = groups.flat_map(|group| {
        let roster = group.roster();
        let peers = roster.peers().map(|peer| about(&group.name, peer));
        peers.collect::<Vec<_>>()
    });
    let report = PeersReport {
        peers: peers.collect(),
    };
    report::json(200, &report)
}

fn about(upstream: &str, peer: &Peer) -> PeerReport {
    let count = peer.tally().since_reset(clock::now_ms());
    PeerReport {
        upstream: upstream.to_string(),
        server: peer.name.to_string(),
        name: peer.settings.server.to_string(),
        state: state(peer).to_string(),
        is_backup: peer.settings.is_backup,
        requests: count.requests,
        fails: count.fails,
        unavailable: count.unavailable,
        downtime_ms: u64::try_from(count.downtime.as_millis()).unwrap_or(u64::MAX),
    }
}
