//! CPU time of a server's processes, and where they run.

use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use millpond_gauge::process::Usage;
pub(crate) use millpond_gauge::process::family;

/// The core that servers are pinned to.
pub(crate) const SERVER_CORE: &str = "0";
/// The core of the client.
pub(crate) const CLIENT_CORE: &str = "1";

/// Pins a server, its descendants and all their threads.
pub(crate) fn pin(pid: u32, core: &str) -> Result<()> {
    for pid in family(pid)? {
        let status = Command::new("taskset")
            .args(["-a", "-c", "-p", core, &pid.to_string()])
            .stdout(std::process::Stdio::null())
            .status()
            .context("taskset is not installed (util-linux)")?;
        ensure!(status.success(), "taskset failed for process {pid}");
    }
    Ok(())
}

/// User and system time of a process and its descendants so far.
pub(crate) fn spent(pid: u32) -> Result<Duration> {
    Ok(Duration::from_secs_f64(Usage::of(pid)?.cpu))
}
