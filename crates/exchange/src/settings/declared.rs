//! Declarations of the http block that the program itself obeys: cache zones, folders, collectors.
//!
//! One field for each kind. What modules above declare by name stands in the parts of the
//! configuration.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use millpond_cache::zone::ZonePath;
use millpond_conf::OffOr;
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

/// Records that a collector gets beside spans.
#[derive(Debug, Default)]
pub struct Telemetry {
    /// The exporter of metrics, and the time between two readings.
    pub metrics: Option<(Arc<Exporter>, Duration)>,
    /// The exporter of lines, and the least severe level.
    pub logs: Option<(Arc<Exporter>, Level)>,
}
