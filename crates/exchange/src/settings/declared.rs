//! Declarations of the http block that the program itself obeys: cache zones, folders, collectors.
//!
//! One field for each kind. What modules above declare by name stands in the parts of the
//! configuration.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use millpond_cache::zone::ZonePath;
use millpond_conf::{OffOr, Span};
use millpond_fleet::config::folder::Held;
use millpond_otlp::Exporter;
use millpond_system::confinement::Reach;
use millpond_system::log::error::Level;

/// Declarations of an http block.
#[derive(Debug, Default)]
pub struct Declared {
    /// `proxy_cache_path`.
    pub zones: Vec<ZonePath>,
    /// `fleet`.
    pub fleets: Vec<millpond_fleet::node::FleetConf>,
    /// `cache_site_counters`.
    pub site_counters: Option<OffOr<PathBuf>>,
    /// `client_body_temp_path`, `proxy_temp_path` and their like.
    pub temp_folders: millpond_system::temp_file::TempFolders,
    /// `cache_site_info`.
    pub site_info: Option<PathBuf>,
    /// `cache_site_quota`.
    pub site_quotas: Vec<SiteQuota>,
    /// `cache_events_log`.
    pub events_log: Option<Arc<millpond_system::log::file::LogFile>>,
    /// True if a location has `dashboard`.
    pub has_dashboard: bool,
    /// `otel_exporter`.
    pub otel: Option<Arc<Exporter>>,
    /// `otel_metrics`, `otel_logs`.
    pub telemetry: Telemetry,
    /// The bundle that a fleet has given.
    pub bundle: Option<Arc<Held>>,
    /// The paths that the configuration names, for `landlock`.
    pub reaches: Vec<Reach>,
}

/// The most that a site may hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SiteQuota {
    /// Name of the site, as entries name it; empty for those that name none.
    pub site: Bytes,
    /// Bytes in each zone.
    pub bytes: u64,
    /// The fleet whose nodes share them, and its place in the configuration.
    pub fleet: Option<(String, Span)>,
}

impl SiteQuota {
    /// True if the nodes of a fleet share the quota.
    pub fn is_of(&self, fleet: &str) -> bool {
        self.fleet.as_ref().is_some_and(|(name, _)| name == fleet)
    }
}

/// Records that a collector gets beside spans.
#[derive(Debug, Default)]
pub struct Telemetry {
    /// The exporter of metrics, and the time between two readings.
    pub metrics: Option<(Arc<Exporter>, Duration)>,
    /// The exporter of lines, and the least severe level.
    pub logs: Option<(Arc<Exporter>, Level)>,
}
