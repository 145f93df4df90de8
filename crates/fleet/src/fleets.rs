//! The fleets that a process is part of, over reloads.
//!
//! 1. A zone is part of its fleet before it serves under the configuration that says so, and behind
//!    until it is confirmed.
//! 2. A fleet has threads as long as the plan names it; a process without fleets has none.
//! 3. Two followers never have the same zone.
//! 4. The share of a fleet outlives its threads: limits keep theirs when a node is started anew.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use millpond_cache::zone::CacheZone;
use millpond_system::log::error::{self, Level};

use crate::config::rollout::Rollout;
use crate::node::{FleetConf, Node, Sources};
use crate::share::Share;

/// Fleets with the zones that are to follow them.
pub type Plan = Vec<(FleetConf, Vec<Arc<CacheZone>>)>;

/// The fleets.
#[derive(Debug, Default)]
pub struct Fleets {
    nodes: Mutex<Vec<Arc<Node>>>,
    /// Shares by the names of fleets; configurations name them, so they are few.
    shares: Mutex<BTreeMap<String, Arc<Share>>>,
    /// Things of the process that its nodes tell.
    sources: OnceLock<Sources>,
    /// Configuration that comes from one of them.
    rollout: Arc<Rollout>,
}

impl Fleets {
    /// Follows these fleets and no others from now on.
    pub fn serve(&self, plan: Plan) {
        let mut nodes = self.nodes();
        let is_meant =
            |node: &Arc<Node>| plan.iter().any(|(conf, zones)| is_same(node, conf, zones));
        let (kept, gone): (Vec<_>, Vec<_>) = nodes.drain(..).partition(is_meant);
        *nodes = kept;
        // INVARIANT 3: before others begin.
        let gone: Vec<(FleetConf, Vec<Arc<CacheZone>>)> = gone.into_iter().map(stopped).collect();
        let is_planned = |zone: &CacheZone| {
            let mut zones = plan.iter().flat_map(|(_, zones)| zones);
            zones.any(|it| Arc::ptr_eq(&it.purges, &zone.purges))
        };
        for zone in gone.iter().flat_map(|(_, zones)| zones) {
            if !is_planned(zone) {
                zone.purges.lag.leave();
            }
        }
        for (conf, zones) in plan {
            if nodes.iter().any(|node| is_same(node, &conf, &zones)) {
                continue;
            }
            let follows_same = gone.iter().any(|(older, _)| older.log == conf.log);
            for zone in &zones {
                // INVARIANT 1. What another log said confirms nothing.
                if !follows_same {
                    zone.purges.lag.doubt();
                }
                zone.purges.lag.join(conf.max_lag, conf.on_lag);
            }
            let share = self.share(conf.name());
            let name = conf.name().to_owned();
            let sources = self.sources.get().cloned().unwrap_or_default();
            match Node::start(conf, zones, share, (sources, Arc::clone(&self.rollout))) {
                Ok(node) => nodes.push(Arc::new(node)),
                Err(error) => tell_failure(&name, &error),
            }
        }
    }

    /// Ends all threads; zones stay as far behind as they are.
    pub fn stop(&self) {
        let nodes: Vec<Arc<Node>> = self.nodes().drain(..).collect();
        for node in nodes {
            stopped(node);
        }
    }

    /// The node that has a zone of this name.
    pub fn of_zone(&self, name: &str) -> Option<Arc<Node>> {
        let nodes = self.nodes();
        let mut found = nodes.iter();
        let has = |node: &&Arc<Node>| node.zones().iter().any(|zone| zone.name == name);
        found.find(has).cloned()
    }

    /// Configuration that comes from one of the fleets.
    pub fn rollout(&self) -> &Arc<Rollout> {
        &self.rollout
    }

    /// All nodes.
    pub fn all(&self) -> Vec<Arc<Node>> {
        self.nodes().clone()
    }

    /// Has the nodes that start from here on tell their fleets of the process.
    pub fn tell(&self, sources: impl FnOnce() -> Sources) {
        // They are the same for life.
        self.sources.get_or_init(sources);
    }

    /// The node of a fleet.
    pub fn find(&self, fleet: &str) -> Option<Arc<Node>> {
        let nodes = self.nodes();
        nodes
            .iter()
            .find(|node| node.conf().name() == fleet)
            .cloned()
    }

    /// Share of this node in the limits of a fleet, followed or not.
    pub fn share(&self, fleet: &str) -> Arc<Share> {
        let mut shares = lock(&self.shares);
        Arc::clone(shares.entry(fleet.to_owned()).or_default())
    }

    fn nodes(&self) -> MutexGuard<'_, Vec<Arc<Node>>> {
        lock(&self.nodes)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn is_same(node: &Node, conf: &FleetConf, zones: &[Arc<CacheZone>]) -> bool {
    let own = node.zones();
    let mut pairs = own.iter().zip(zones);
    node.conf() == conf && own.len() == zones.len() && pairs.all(|(own, it)| Arc::ptr_eq(own, it))
}

fn stopped(node: Arc<Node>) -> (FleetConf, Vec<Arc<CacheZone>>) {
    let parts = (node.conf().clone(), node.zones().to_vec());
    node.stop();
    parts
}

fn tell_failure(fleet: &str, failure: &std::io::Error) {
    let why = error::os_error(failure);
    let message = format_args!("fleet \"{fleet}\": starting its threads failed ({why})");
    error::process(Level::Alert, message);
}
