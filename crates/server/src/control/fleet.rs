//! `GET /fleets`: the fleets of a process, how far behind their logs it is, and the nodes that it
//! has heard of. `GET /fleets/NAME/sites`: the counters of sites of all nodes, summed.
//!
//! URLs of servers are left out: they may have passwords in them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use millpond_conf::value::Words;
use millpond_exchange::stats::site::SiteCount;
use millpond_fleet::Fleets;
use millpond_fleet::config::bundle::hex;
use millpond_fleet::config::known::SILENT_MS;
use millpond_fleet::config::report::{Report, Verdict};
use millpond_fleet::config::rollout::{Course, Heard as HeardOrder, Rollout, Status};
use millpond_fleet::node::{Node, NotLeft, now_ms};
use millpond_fleet::tally::Sum;
use millpond_fleet::view::Heard;
use millpond_system::log::error::{self, Level};
use serde::{Deserialize, Serialize};

use super::api::{Answer, Scene, Standing};
use super::holdings;
use super::report::{self, CountReport, OriginReport, RemovedReport};

/// The fleets of a process.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct FleetsReport {
    /// Fleets whose logs are followed.
    pub fleets: Vec<FleetReport>,
}

/// A fleet, as one of its nodes knows it.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct FleetReport {
    /// Name of the fleet.
    pub name: String,
    /// Name of this node.
    pub node: String,
    /// Zones that are part of it.
    pub zones: Vec<String>,
    /// Milliseconds since this node had all that was acknowledged; null for never.
    pub lag_ms: Option<u64>,
    /// The most that this may be.
    pub max_lag_ms: u64,
    /// Use of stored answers when it is more: `revalidate`, `miss`, `serve`.
    pub on_lag: String,
    /// True if it is more now.
    pub is_behind: bool,
    /// The reason why the log is not followed, for people; null if it is.
    pub trouble: Option<String>,
    /// Sequence in the log that all zones have taken.
    pub taken: u64,
    /// Purges that were taken from the log.
    pub purges: u64,
    /// Number of times that all of a zone was made stale, because it was not known what it missed.
    pub gaps: u64,
    /// Entries of the log that were not understood, so that everything was purged.
    pub unknown: u64,
    /// Purges of this node that the log has acknowledged.
    pub acknowledged: u64,
    /// Purges of this node that nobody else is known to have.
    pub local: u64,
    /// Nodes among which limits with `fleet=NAME:split` are split.
    pub split_nodes: u64,
    /// Nodes, by their last signs of life.
    pub nodes: Vec<FleetNodeReport>,
    /// Requests to the owners of keys, and of other nodes, by their outcomes.
    pub peer_requests: BTreeMap<String, u64>,
    /// Configuration that this node takes from it; null if it takes none.
    pub config: Option<FleetConfigReport>,
}

/// Configuration of a node that comes from its fleet.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct FleetConfigReport {
    /// Number of the order that is in force; 0 for the node's own file alone.
    pub revision: u64,
    /// Digest of its bundle; null without one.
    pub bundle: Option<String>,
    /// Number of the order that the state is about.
    pub about: u64,
    /// State of that: `settled`, `applying`, `watched`, `held`, `refused`, `back`, `waiting`.
    pub state: String,
    /// The reason for the state, for people; empty without one.
    pub reason: String,
    /// The reason why orders are not followed, for people; null if they are.
    pub trouble: Option<String>,
    /// The newest orders of the fleet, the newest first.
    #[serde(default)]
    pub orders: Vec<FleetOrderReport>,
    /// Nodes, by their own words about the configuration that they have.
    #[serde(default)]
    pub nodes: Vec<FleetConfigNodeReport>,
}

/// An order of configuration.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct FleetOrderReport {
    /// Number of the order.
    pub revision: u64,
    /// `push`, `promotion` or `rollback`.
    pub kind: String,
    /// Number of the order whose bundle it is about.
    pub of: u64,
    /// Time at which it was made, milliseconds since 1970.
    pub made_ms: u64,
    /// Nodes that try it first; none where all take it at once.
    pub canaries: Vec<String>,
    /// End of the trial: `promoted`, `back`; null while it goes on, and where there is none.
    pub verdict: Option<String>,
    /// Node that has said so, and the reason, for people; null without a verdict.
    pub reason: Option<String>,
}

impl FleetOrderReport {
    fn of(HeardOrder { order, verdict }: HeardOrder) -> FleetOrderReport {
        let (verdict, reason) = match verdict {
            Some(Verdict::Promoted { node }) => (Some("promoted"), Some(node)),
            Some(Verdict::Back { node, reason }) => {
                (Some("back"), Some(format!("{node}: {reason}")))
            }
            None => (None, None),
        };
        FleetOrderReport {
            revision: order.revision,
            kind: order.kind.word().to_owned(),
            of: order.of,
            made_ms: order.at_ms,
            canaries: order.canaries,
            verdict: verdict.map(str::to_owned),
            reason,
        }
    }
}

/// Configuration of a node, by its own words.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct FleetConfigNodeReport {
    /// Name of the node.
    pub name: String,
    /// Number of the order that is in force there; 0 for the node's own file alone.
    pub revision: u64,
    /// Number of the order that the state is about.
    pub about: u64,
    /// State of that.
    pub state: String,
    /// The reason for the state, for people; empty without one.
    pub reason: String,
    /// Milliseconds that its words are older than the newest of any node.
    pub heard_ms_ago: u64,
    /// True unless that is more than three times as long as nodes are silent.
    pub is_live: bool,
}

impl FleetConfigNodeReport {
    fn of((report, heard_ms_ago): (Report, u64)) -> FleetConfigNodeReport {
        FleetConfigNodeReport {
            name: report.node,
            revision: report.in_force,
            about: report.about,
            state: report.state.word().to_owned(),
            reason: report.reason,
            heard_ms_ago,
            is_live: heard_ms_ago <= SILENT_MS,
        }
    }
}

impl FleetConfigReport {
    fn of(status: Status, course: Course) -> FleetConfigReport {
        let nodes = course.nodes.into_iter().map(FleetConfigNodeReport::of);
        FleetConfigReport {
            revision: status.report.in_force,
            bundle: status.digest.map(|digest| hex(&digest)),
            about: status.report.about,
            state: status.report.state.word().to_owned(),
            reason: status.report.reason,
            trouble: status.trouble,
            orders: course
                .orders
                .into_iter()
                .map(FleetOrderReport::of)
                .collect(),
            nodes: nodes.collect(),
        }
    }
}

/// A node of a fleet.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct FleetNodeReport {
    /// Name of the node.
    pub name: String,
    /// Sequence in the log that all of its zones have taken.
    pub taken: u64,
    /// Milliseconds since it had all that was acknowledged, as it said when it was heard of; null
    /// for never.
    pub lag_ms: Option<u32>,
    /// Milliseconds since it was heard of.
    pub heard_ms_ago: u64,
    /// True if that is no longer ago than `max_lag`.
    pub is_live: bool,
    /// Address at which it is asked for keys that it owns; null if it owns none.
    pub address: Option<String>,
    /// Share of the keys that it owns, beside the weights of the others of its pool; null if it
    /// owns none.
    pub weight: Option<u16>,
    /// Name of its pool; null if it has told nothing of itself.
    pub pool: Option<String>,
    /// Version of its software.
    pub version: Option<String>,
}

/// Counters of sites of all nodes of a fleet.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct FleetSitesReport {
    /// Name of the fleet.
    pub fleet: String,
    /// Nodes whose counters are in the sum, and nodes that live and have told none.
    pub nodes: Vec<FleetCountersReport>,
    /// Sites that something was counted for, by name.
    pub sites: Vec<FleetSiteReport>,
}

/// A node that has left its fleet for good.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct FleetLeftReport {
    /// Name of the fleet.
    pub fleet: String,
    /// Name of the node.
    pub node: String,
}

/// The part of a node in the counters of its fleet.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct FleetCountersReport {
    /// Name of the node.
    pub name: String,
    /// Milliseconds since it told its counters; null if it never has.
    pub age_ms: Option<u64>,
    /// True if it was heard of within `max_lag`.
    pub is_live: bool,
}

/// Counters of a site on all nodes of a fleet, since the files of the counters were made.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct FleetSiteReport {
    /// Name of the site; `*` for all that there was no number for, `-` for requests without a name.
    pub site: String,
    /// Answers to clients.
    pub requests: u64,
    /// Bytes of their bodies.
    pub bytes: u64,
    /// Bytes of bodies that came from the cache.
    pub cache_bytes: u64,
    /// Bytes of bodies that came from origins.
    pub origin_bytes: u64,
    /// The answers by cache status; those that there are none of are left out.
    pub answers: BTreeMap<String, CountReport>,
    /// Requests that the site's origins were asked.
    pub origin: OriginReport,
    /// Entries of the site that left the caches.
    pub removed: RemovedReport,
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

impl FleetReport {
    /// The report of a node on its fleet.
    fn of(node: &Node, rollout: &Rollout) -> FleetReport {
        let (conf, view, published) = (node.conf(), node.view(), node.published());
        let (now_ms, max_lag_ms) = (now_ms(), millis(conf.max_lag));
        let lag_ms = view.lag_ms(now_ms);
        let nodes = view.members.iter().map(|(name, heard)| {
            let announced = heard.member.announced.as_ref();
            let owner = announced.filter(|it| !it.address.is_empty());
            let heard_ms_ago = now_ms.saturating_sub(heard.at_ms);
            FleetNodeReport {
                name: name.clone(),
                taken: heard.member.taken,
                lag_ms: announced.and_then(|it| it.lag_ms),
                heard_ms_ago,
                is_live: heard_ms_ago <= max_lag_ms,
                address: owner.map(|it| it.address.clone()),
                weight: owner.map(|it| it.weight),
                pool: announced.map(|it| it.pool.clone()),
                version: announced.map(|it| it.version.clone()),
            }
        });
        FleetReport {
            name: conf.name().to_owned(),
            node: conf.log.node.clone(),
            zones: node.zones().iter().map(|it| it.name.clone()).collect(),
            lag_ms,
            max_lag_ms,
            on_lag: conf.on_lag.word().to_owned(),
            is_behind: lag_ms.is_none_or(|lag_ms| lag_ms > max_lag_ms),
            trouble: view.trouble.clone(),
            taken: view.taken,
            purges: view.counts.taken,
            gaps: view.counts.gaps,
            unknown: view.counts.unknown,
            acknowledged: published.acknowledged,
            local: published.local,
            split_nodes: node.split_nodes(),
            nodes: nodes.collect(),
            peer_requests: node
                .peers()
                .counts()
                .map(|(word, count)| (word.to_owned(), count))
                .into(),
            config: rollout
                .status(conf.name())
                .zip(rollout.course(conf.name()))
                .map(|(status, course)| FleetConfigReport::of(status, course)),
        }
    }
}

impl FleetSitesReport {
    /// The report of a node that has asked for the sum.
    fn of(node: &Node, sum: &Sum) -> FleetSitesReport {
        let (view, now_ms, max_lag_ms) = (node.view(), now_ms(), millis(node.conf().max_lag));
        let is_live = |heard: &Heard| now_ms.saturating_sub(heard.at_ms) <= max_lag_ms;
        let live = view.members.iter().filter(|(_, heard)| is_live(heard));
        let names: BTreeSet<&String> = live.map(|it| it.0).chain(sum.nodes.keys()).collect();
        let nodes = names.into_iter().map(|name| FleetCountersReport {
            name: name.clone(),
            // Beats are newer by a second at most than the clock of the log is late.
            age_ms: sum
                .nodes
                .get(name)
                .map(|at_ms| view.newest_ms.saturating_sub(*at_ms)),
            is_live: view.members.get(name).is_some_and(is_live),
        });
        let sites = sum.rows.iter().map(|(name, cells)| {
            let nothing = holdings::nothing(name);
            let site = report::site(&SiteCount::of(cells), nothing);
            FleetSiteReport {
                site: site.site,
                requests: site.requests,
                bytes: site.bytes,
                cache_bytes: site.cache_bytes,
                origin_bytes: site.origin_bytes,
                answers: site.answers,
                origin: site.origin,
                removed: site.removed,
            }
        });
        FleetSitesReport {
            fleet: node.conf().name().to_owned(),
            nodes: nodes.collect(),
            sites: sites.collect(),
        }
    }
}

pub(super) fn fleets(scene: &Scene) -> Option<Arc<Fleets>> {
    match &scene.standing {
        Standing::Running(facts) => Some(facts.shared.as_ref()?.guests.of::<Fleets>()),
        Standing::AtRest => None,
    }
}

/// Answers with the counters of all nodes of a fleet.
pub(super) fn sites(scene: &Scene, name: &str) -> Answer {
    let Some(node) = fleets(scene).and_then(|fleets| fleets.find(name)) else {
        return report::problem(404, format!("no fleet \"{name}\" is followed"));
    };
    match node.sum_and_wait() {
        Ok(sum) => report::json(200, &FleetSitesReport::of(&node, &sum)),
        Err(why) => report::problem(503, why),
    }
}

/// Has a node leave a fleet.
pub(super) fn leave(scene: &Scene, fleet: &str, name: &str) -> Answer {
    let Some(node) = fleets(scene).and_then(|fleets| fleets.find(fleet)) else {
        return report::problem(404, format!("no fleet \"{fleet}\" is followed"));
    };
    match node.leave_and_wait(name) {
        Ok(()) => {
            let message = format_args!("fleet \"{fleet}\": node \"{name}\" has left for good");
            error::process(Level::Notice, message);
            let (fleet, node) = (fleet.to_owned(), name.to_owned());
            report::json(200, &FleetLeftReport { fleet, node })
        }
        Err(NotLeft::Unknown) => report::problem(404, format!("no node \"{name}\" was heard of")),
        Err(NotLeft::Lives) => {
            let why = format!("node \"{name}\" lives: stop it, and wait for \"max_lag\"");
            report::problem(409, why)
        }
        Err(NotLeft::Failed(why)) => report::problem(503, why),
    }
}

/// All fleets.
pub(crate) fn all(fleets: &Fleets) -> Vec<FleetReport> {
    let nodes = fleets.all().into_iter();
    let reports = nodes.map(|node| FleetReport::of(&node, fleets.rollout()));
    reports.collect()
}

/// Answers with all fleets.
pub(super) fn answer(scene: &Scene) -> Answer {
    let fleets = fleets(scene).map_or_else(Vec::new, |fleets| all(&fleets));
    report::json(200, &FleetsReport { fleets })
}
