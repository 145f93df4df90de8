//! Facts about fleets, and samples of them.
//!
//! Names of fleets are those of the configuration; states and outcomes are few words.

use millpond_exchange::worker::Shared;
use millpond_fleet::Fleets;
use millpond_fleet::config::rollout::Status;
use millpond_fleet::follower::Counts as Taken;
use millpond_fleet::lending::LeaseCounts;
use millpond_fleet::node::{Published, now_ms};

use super::facts::Facts;
use super::text::Samples;

/// A fleet.
#[derive(Debug)]
pub(super) struct FleetFacts {
    name: String,
    /// Milliseconds since this node had everything; none for never.
    lag_ms: Option<u64>,
    /// True if that is more than it may be.
    pub(super) is_behind: bool,
    /// Nodes that live.
    pub(super) live: u64,
    /// Nodes that share limits.
    pub(super) split: u64,
    /// Questions for leases of limits.
    leases: LeaseCounts,
    pub(super) counts: Taken,
    /// Requests between nodes, by their outcomes.
    peers: Vec<(&'static str, u64)>,
    /// Requests of peers that are being answered.
    pub(super) answering: u64,
    published: Published,
    /// Configuration that comes from it.
    config: Option<Status>,
}

/// The fleets of the process.
pub(super) fn read(shared: &Shared) -> Vec<FleetFacts> {
    let fleets = shared.guests.of::<Fleets>();
    let facts = fleets.all().into_iter().map(|node| {
        let (conf, view, now_ms) = (node.conf(), node.view(), now_ms());
        let max_lag_ms = u64::try_from(conf.max_lag.as_millis()).unwrap_or(u64::MAX);
        let lag_ms = view.lag_ms(now_ms);
        let share = fleets.share(conf.name());
        FleetFacts {
            name: conf.name().to_owned(),
            lag_ms,
            is_behind: lag_ms.is_none_or(|lag_ms| lag_ms > max_lag_ms),
            live: view.live_count(now_ms, max_lag_ms) as u64,
            split: node.split_nodes(),
            leases: share.leases().counts().with(share.slots().counts()),
            counts: view.counts,
            peers: node.peers().counts().to_vec(),
            answering: u64::from(node.peers().load()),
            published: node.published(),
            config: fleets.rollout().status(conf.name()),
        }
    });
    facts.collect()
}

pub(super) fn each(facts: &Facts, out: &mut Samples<'_>, of: impl Fn(&FleetFacts) -> u64) {
    for fleet in &facts.fleets {
        out.add(&[&fleet.name], of(fleet));
    }
}

pub(super) fn lag(facts: &Facts, out: &mut Samples<'_>) {
    for fleet in &facts.fleets {
        if let Some(lag_ms) = fleet.lag_ms {
            out.add(&[&fleet.name], lag_ms as f64 / 1000.0);
        }
    }
}

pub(super) fn purges(facts: &Facts, out: &mut Samples<'_>) {
    for fleet in &facts.fleets {
        out.add(&[&fleet.name, "acknowledged"], fleet.published.acknowledged);
        out.add(&[&fleet.name, "local"], fleet.published.local);
    }
}

pub(super) fn peers(facts: &Facts, out: &mut Samples<'_>) {
    for fleet in &facts.fleets {
        for (result, count) in &fleet.peers {
            out.add(&[&fleet.name, result], *count);
        }
    }
}

pub(super) fn leases(facts: &Facts, out: &mut Samples<'_>) {
    for fleet in &facts.fleets {
        let LeaseCounts {
            granted,
            empty,
            away,
        } = fleet.leases;
        for (outcome, count) in [("granted", granted), ("empty", empty), ("away", away)] {
            out.add(&[&fleet.name, outcome], count);
        }
    }
}

fn configs(facts: &Facts) -> impl Iterator<Item = (&str, &Status)> {
    let fleets = facts.fleets.iter();
    fleets.filter_map(|fleet| Some((fleet.name.as_str(), fleet.config.as_ref()?)))
}

pub(super) fn revision(facts: &Facts, out: &mut Samples<'_>) {
    for (fleet, config) in configs(facts) {
        out.add(&[fleet], config.report.in_force);
    }
}

pub(super) fn state(facts: &Facts, out: &mut Samples<'_>) {
    for (fleet, config) in configs(facts) {
        out.add(&[fleet, config.report.state.word()], 1);
    }
}

pub(super) fn orders(facts: &Facts, out: &mut Samples<'_>) {
    for (fleet, config) in configs(facts) {
        out.add(&[fleet, "applied"], config.applied);
        out.add(&[fleet, "refused"], config.refused);
        out.add(&[fleet, "back"], config.back);
        out.add(&[fleet, "not_taken"], config.unsigned);
    }
}
