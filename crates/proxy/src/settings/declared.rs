//! Declarations of the http block by name: log formats, upstream groups, cache zones.
//!
//! One field for each kind; the type stands in the file that uses it.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use millpond_cache::zone::ZonePath;
use millpond_conf::OffOr;
use millpond_otlp::Exporter;
use millpond_system::confinement::Reach;
use millpond_system::log::error::Level;

use crate::handler::limit_conn::ConnectionZone;
use crate::handler::limit_req::RequestZone;
use crate::log::format::Logs;
use crate::upstream::group::Group;

/// Declarations of an http block.
#[derive(Debug, Default)]
pub struct Declared {
    /// `log_format`, and the buffers of `access_log`.
    pub logs: Logs,
    /// `upstream`.
    pub upstreams: Vec<Arc<Group>>,
    /// Hosts that are passed to by address, each once, so that all locations share their state and
    /// connections.
    pub implicit: Vec<Arc<Group>>,
    /// `proxy_cache_path`.
    pub zones: Vec<ZonePath>,
    /// `fleet`.
    pub fleets: Vec<millpond_fleet::node::FleetConf>,
    /// `cache_site_counters`.
    pub site_counters: Option<OffOr<PathBuf>>,
    /// `client_body_temp_path`, `proxy_temp_path` and their like.
    pub temp_folders: millpond_system::temp_file::TempFolders,
    /// `status_zone`.
    pub status_zones: crate::stats::status_zone::ZoneNames,
    /// `cache_site_info`.
    pub site_info: Option<PathBuf>,
    /// True if a location has `dashboard`.
    pub has_dashboard: bool,
    /// `limit_req_zone`.
    pub limit_req: Vec<Arc<RequestZone>>,
    /// `limit_conn_zone`.
    pub limit_conn: Vec<Arc<ConnectionZone>>,
    /// `acme_issuer`, `acme_certificate`.
    pub orders: crate::tls::acme::Orders,
    /// `otel_exporter`.
    pub otel: Option<Arc<Exporter>>,
    /// `otel_metrics`, `otel_logs`.
    pub telemetry: Telemetry,
    /// The paths that the configuration names, for `landlock`.
    pub reaches: Vec<Reach>,
    /// `charset_map`.
    pub charset_maps: crate::filter::charset::CharsetMaps,
}

/// Records that a collector gets beside spans.
#[derive(Debug, Default)]
pub struct Telemetry {
    /// The exporter of metrics, and the time between two readings.
    pub metrics: Option<(Arc<Exporter>, Duration)>,
    /// The exporter of lines, and the least severe level.
    pub logs: Option<(Arc<Exporter>, Level)>,
}

impl Declared {
    /// Takes over what the names of peers resolved to, and the sessions that were learnt, under an
    /// earlier configuration.
    ///
    /// nginx: in groups of the same name that are in the same shared memory.
    pub fn inherit(&self, older: &Declared) {
        for group in &self.upstreams {
            let mut others = older.upstreams.iter();
            let same_name = others.find(|other| other.name == group.name);
            let older_sticky = same_name.and_then(|other| other.sticky.as_ref());
            if let (Some(sticky), Some(older)) = (&group.sticky, older_sticky) {
                sticky.inherit(older);
            }
            let mut others = older.upstreams.iter().filter(|other| other.zone.is_some());
            let same = others.find(|other| other.name == group.name && other.zone == group.zone);
            if let Some(same) = same {
                group.inherit(same);
            }
            group.inherit_tallies(same_name);
        }
        for group in &self.implicit {
            let mut others = older.implicit.iter();
            group.inherit_tallies(others.find(|other| other.name == group.name));
        }
    }
}
