//! Members of the answers of a process that are read: those that are shown, and no others.
//!
//! They are types of their own, and what may be missing has a default, so that a process of another
//! version can be looked at, too.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Members of the answer to `GET /`.
#[derive(Clone, Debug, Default, Deserialize)]
pub(super) struct Server {
    #[serde(default)]
    pub(super) version: String,
    pub(super) pid: Option<u32>,
    #[serde(default)]
    pub(super) zones: Vec<Zone>,
    pub(super) answers: Option<BTreeMap<String, Count>>,
    /// Answers by class of status.
    pub(super) classes: Option<BTreeMap<String, u64>>,
    /// Counts of exchanges with origins, by their end.
    pub(super) exchanges: Option<Exchanges>,
}

/// Counts of exchanges with origins, by their end.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Exchanges {
    pub(super) answered: u64,
    pub(super) refused: u64,
    pub(super) failed: u64,
}

/// Answers with one status.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
pub(super) struct Count {
    pub(super) requests: u64,
    pub(super) bytes: u64,
}

/// A zone.
#[derive(Clone, Debug, Default, Deserialize)]
pub(super) struct Zone {
    pub(super) name: String,
    #[serde(default)]
    pub(super) records: u64,
    #[serde(default)]
    pub(super) bytes: u64,
    #[serde(default)]
    pub(super) live_bytes: u64,
    pub(super) max_size: Option<u64>,
    #[serde(default)]
    pub(super) disks: Vec<Disk>,
    pub(super) live: Option<Live>,
}

/// A disk of a zone.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub(super) struct Disk {
    pub(super) path: String,
    #[serde(default)]
    pub(super) state: String,
    #[serde(default)]
    pub(super) why: String,
    #[serde(default)]
    pub(super) bytes: u64,
    pub(super) max_size: Option<u64>,
}

/// Counters of a process about a zone.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Live {
    pub(super) memory_bytes: u64,
    pub(super) memory_limit: u64,
    pub(super) queued_bytes: u64,
    pub(super) evicted: u64,
    pub(super) inactive_removed: u64,
    pub(super) corrupt: u64,
    pub(super) lost: u64,
    pub(super) not_stored: u64,
    pub(super) written_bytes: u64,
    pub(super) write_errors: u64,
}

/// Members of the answer to `GET /sites`.
#[derive(Clone, Debug, Default, Deserialize)]
pub(super) struct Sites {
    pub(super) sites: Vec<Site>,
}

/// A site.
#[derive(Clone, Debug, Default, Deserialize)]
pub(super) struct Site {
    pub(super) site: String,
    #[serde(default)]
    pub(super) requests: u64,
    #[serde(default)]
    pub(super) bytes: u64,
    #[serde(default)]
    pub(super) answers: BTreeMap<String, Count>,
    #[serde(default)]
    pub(super) origin: Origin,
    pub(super) held: Option<Held>,
}

/// Counts of the requests to the origins of a site.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Origin {
    pub(super) requests: u64,
    pub(super) received: u64,
}

/// Counts of what a site holds.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub(super) struct Held {
    pub(super) entries: u64,
    pub(super) bytes: u64,
}

/// Members of the answer to `GET /fills`.
#[derive(Clone, Debug, Default, Deserialize)]
pub(super) struct Fills {
    pub(super) fills: Vec<Fill>,
}

/// A fill that runs.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub(super) struct Fill {
    pub(super) zone: String,
    pub(super) key: String,
    pub(super) site: Option<String>,
    pub(super) status: Option<u16>,
    pub(super) received: u64,
    pub(super) length: Option<u64>,
    pub(super) followers: u32,
    pub(super) since: i64,
    pub(super) idle_ms: u64,
}
