//! The fleets that a process is part of, over reloads.
//!
//! 1. A zone is part of its fleet before it serves under the configuration that says so, and behind
//!    until it is confirmed.
//! 2. A fleet without zones has no threads; so has a process without fleets.
//! 3. Two followers never have the same zone.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use millpond_cache::zone::CacheZone;
use millpond_system::log::error::{self, Level};

use crate::node::{FleetConf, Node};

/// Fleets with the zones that are to follow them.
pub type Plan = Vec<(FleetConf, Vec<Arc<CacheZone>>)>;

/// The fleets.
#[derive(Debug, Default)]
pub struct Fleets(Mutex<Vec<Arc<Node>>>);

impl Fleets {
    /// Follows these fleets and no others from now on.
    pub fn serve(&self, plan: Plan) {
        let mut nodes = self.nodes();
        let plan: Plan = plan.into_iter().filter(|it| !it.1.is_empty()).collect();
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
            nodes.extend(start(conf, zones));
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

    /// All nodes.
    pub fn all(&self) -> Vec<Arc<Node>> {
        self.nodes().clone()
    }

    fn nodes(&self) -> MutexGuard<'_, Vec<Arc<Node>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
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

fn start(conf: FleetConf, zones: Vec<Arc<CacheZone>>) -> Option<Arc<Node>> {
    let name = conf.name().to_owned();
    match Node::start(conf, zones) {
        Ok(node) => Some(Arc::new(node)),
        Err(error) => {
            let why = error::os_error(&error);
            let message = format_args!("fleet \"{name}\": starting its threads failed ({why})");
            error::process(Level::Alert, message);
            None
        }
    }
}
