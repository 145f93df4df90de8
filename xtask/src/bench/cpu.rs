//! CPU time of a server's processes, and where they run.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

/// The core that servers are pinned to.
pub(crate) const SERVER_CORE: &str = "0";
/// The core of the client.
pub(crate) const CLIENT_CORE: &str = "1";

/// Pins a server, its children and all their threads.
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

/// User and system time of a process and its children so far.
pub(crate) fn spent(pid: u32) -> Result<Duration> {
    let mut ticks = 0;
    for pid in family(pid)? {
        ticks += stat(pid)?.ticks;
    }
    // Linux counts in hundredths of a second on all machines that this runs on.
    Ok(Duration::from_millis(ticks * 10))
}

struct Stat {
    parent: u32,
    ticks: u64,
}

/// proc(5): fields after the name in parentheses; parent is the 4th, times are the 14th and 15th of
/// all.
fn stat(pid: u32) -> Result<Stat> {
    let text = std::fs::read_to_string(Path::new("/proc").join(pid.to_string()).join("stat"))?;
    let (_, rest) = text.rsplit_once(')').context("unreadable process status")?;
    let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
    let number =
        |at: usize| -> Result<u64> { Ok(fields.get(at).context("short process status")?.parse()?) };
    Ok(Stat {
        parent: u32::try_from(number(1)?)?,
        ticks: number(11)? + number(12)?,
    })
}

/// A process and its children.
fn family(pid: u32) -> Result<Vec<u32>> {
    let mut all = vec![pid];
    for entry in std::fs::read_dir("/proc")? {
        let name = entry?.file_name();
        let Some(other) = name.to_str().and_then(|name| name.parse::<u32>().ok()) else {
            continue;
        };
        // A process may end while we look.
        if stat(other).is_ok_and(|stat| stat.parent == pid) {
            all.push(other);
        }
    }
    Ok(all)
}
