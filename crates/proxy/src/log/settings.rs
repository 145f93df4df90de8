//! The families of logs, merged for each location.
//!
//! A table: each family is declared where it is obeyed, and inherited by `derive(Scope)` from the
//! block around it.

use millpond_conf::Scope;

use super::access::AccessLogPolicy;
use super::upstream::UpstreamLogPolicy;
use millpond_exchange::scope::parts::{Part, Place};

/// Settings of logs.
#[derive(Clone, Debug, Scope)]
pub struct LogSettings {
    /// Access logs.
    pub access_log: AccessLogPolicy,
    /// Logs of exchanges with upstreams.
    pub upstream_log: UpstreamLogPolicy,
}

impl Part for LogSettings {
    const PLACE: Place = Place::Logs;
}
