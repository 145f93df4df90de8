//! Resources that a server's processes used, as the kernel knows.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

/// Resources that a process and its descendants used.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Usage {
    /// Seconds of CPU time, user and system.
    pub cpu: f64,
    /// Bytes of memory, as the kernel counts them for each process (shared pages more than once).
    pub memory: u64,
    /// Bytes that were given to disks.
    pub written: u64,
    /// Calls that read or wrote.
    pub calls: u64,
}

impl Usage {
    /// Usage of a process and its descendants so far.
    pub fn of(pid: u32) -> Result<Self> {
        let mut sum = Self::default();
        for pid in family(pid)? {
            // One that ended meanwhile counts for nothing.
            let Ok(usage) = Self::of_one(pid) else {
                continue;
            };
            sum.cpu += usage.cpu;
            sum.memory += usage.memory;
            sum.written += usage.written;
            sum.calls += usage.calls;
        }
        Ok(sum)
    }

    fn of_one(pid: u32) -> Result<Self> {
        let dir = Path::new("/proc").join(pid.to_string());
        // proc(5): user and system time are the 12th and 13th field behind the name.
        let stat = fs::read_to_string(dir.join("stat"))?;
        let fields: Vec<&str> = fields(&stat)?;
        let ticks = |at: usize| fields.get(at).and_then(|text| text.parse::<u64>().ok());
        let ticks = ticks(11).unwrap_or(0) + ticks(12).unwrap_or(0);
        let status = fs::read_to_string(dir.join("status"))?;
        // Another user's is not shown.
        let io = fs::read_to_string(dir.join("io")).unwrap_or_default();
        Ok(Self {
            // Linux counts in hundredths of a second on all machines that this runs on.
            cpu: ticks as f64 / 100.0,
            memory: number(&status, "VmRSS:").unwrap_or(0) * 1024,
            written: number(&io, "write_bytes:").unwrap_or(0),
            calls: number(&io, "syscr:").unwrap_or(0) + number(&io, "syscw:").unwrap_or(0),
        })
    }
}

fn fields(stat: &str) -> Result<Vec<&str>> {
    let (_, rest) = stat.rsplit_once(')').context("unreadable process status")?;
    Ok(rest.split_ascii_whitespace().collect())
}

/// The first number of a line that begins with `name`.
fn number(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_ascii_whitespace().next()?.parse().ok()
}

/// A process and all its descendants.
pub fn family(pid: u32) -> Result<Vec<u32>> {
    let mut children: HashMap<u32, Vec<u32>> = HashMap::new();
    for entry in fs::read_dir("/proc")? {
        let name = entry?.file_name();
        let Some(other) = name.to_str().and_then(|name| name.parse::<u32>().ok()) else {
            continue;
        };
        // A process may end while we look.
        let Ok(stat) = fs::read_to_string(Path::new("/proc").join(&name).join("stat")) else {
            continue;
        };
        let parent = fields(&stat)
            .ok()
            .and_then(|fields| fields.get(1)?.parse().ok());
        if let Some(parent) = parent {
            children.entry(parent).or_default().push(other);
        }
    }
    let mut all = vec![pid];
    let mut next = 0;
    while let Some(pid) = all.get(next) {
        all.extend(children.remove(pid).unwrap_or_default());
        next += 1;
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_uses_memory() {
        let usage = Usage::of(std::process::id()).expect("readable");
        assert!(usage.memory > 0);
    }

    #[test]
    fn numbers_are_found_by_name() {
        let text = "a: 1\nVmRSS:\t  12 kB\n";
        assert_eq!(number(text, "VmRSS:"), Some(12));
        assert_eq!(number(text, "VmHWM:"), None);
    }
}
