//! `DELETE` of counters: they begin anew for who reads this API.
//!
//! Metrics, sites and dashboards go on counting as before (`stats/resets.rs`). What cannot be begun
//! anew (sizes, states, what is open) stays as it is.

use bytes::Bytes;
use millpond_system::clock;
use millpond_system::log::error::{self, Level};

use super::{Refusal, View, find};

/// Begins the counters of a path anew.
pub(super) fn reset(view: &View, path: &[&str]) -> Result<(), Refusal> {
    // A thing that is not there is not begun anew.
    find(view, path)?;
    let shared = &view.shared;
    match path {
        // These counters are always zero.
        ["processes" | "ssl"] => {}
        ["connections"] => {
            let count = shared.connections.snapshot();
            shared.resets.with(|bases| bases.connections = count);
        }
        ["http", "requests"] => {
            let count = shared.connections.snapshot();
            shared.resets.with(|bases| bases.requests = count);
        }
        ["workers"] => (0..view.conf.main.process.worker_count()).for_each(|id| worker(view, id)),
        ["workers", id] => worker(view, id.parse().map_err(|_| Refusal::Path)?),
        ["http", kind, name] => named(view, kind, name)?,
        _ => return Err(Refusal::Method),
    }
    let path = path.join("/");
    let message = format_args!("counters of {path} begun anew, {}", view.by);
    error::process(Level::Notice, message);
    Ok(())
}

fn worker(view: &View, id: usize) {
    let count = view.shared.connections.of_worker(id);
    view.shared
        .resets
        .with(|bases| bases.workers.insert(id, count));
}

fn named(view: &View, kind: &str, name: &str) -> Result<(), Refusal> {
    let shared = &view.shared;
    let key = Bytes::copy_from_slice(name.as_bytes());
    match kind {
        "server_zones" => {
            let count = shared.status_zones.server(&key);
            shared.resets.with(|bases| bases.servers.insert(key, count));
        }
        "location_zones" => {
            let count = shared.status_zones.location(&key);
            shared
                .resets
                .with(|bases| bases.locations.insert(key, count));
        }
        "caches" => {
            let count = shared.cache_zones.snapshot(&key);
            shared.resets.with(|bases| bases.caches.insert(key, count));
        }
        "limit_conns" | "limit_reqs" => super::tally(view, kind, name)?.reset(),
        "upstreams" => {
            let roster = super::group(view, name)?.roster();
            let peers = roster.peers();
            peers.for_each(|peer| peer.tally().reset(clock::now_ms()));
        }
        _ => return Err(Refusal::Method),
    }
    Ok(())
}
