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

/// This thread comes before all others of its core, until this is dropped: what it measures is not
/// how long it waited itself. Threads and processes that it makes do not.
pub(crate) struct First(());

impl First {
    /// From now on; where that is not allowed, it is told, and nothing changes.
    pub(crate) fn now() -> Self {
        if !scheduled(&["-R", "-f"], "1") {
            eprintln!("without priority (chrt -f): what the machine does beside is in the times");
        }
        First(())
    }
}

impl Drop for First {
    fn drop(&mut self) {
        scheduled(&["-o"], "0");
    }
}

/// Sets how the first thread of this process is scheduled.
fn scheduled(policy: &[&str], priority: &str) -> bool {
    let status = Command::new("chrt")
        .args(policy)
        .args(["-p", priority, &std::process::id().to_string()])
        .stderr(std::process::Stdio::null())
        .status();
    status.is_ok_and(|status| status.success())
}

/// User and system time of a process and its descendants so far.
pub(crate) fn spent(pid: u32) -> Result<Duration> {
    Ok(Duration::from_secs_f64(Usage::of(pid)?.cpu))
}
