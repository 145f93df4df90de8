//! Facts of the kernel about the process: `/proc/self`, as text.
//!
//! What cannot be read is left out: another system, or a process that may not see itself.

use std::fs;

use millpond_system::clock;

/// Facts about the process; none for what is not known.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct ProcessFacts {
    /// Processor time that it took, in the kernel and outside.
    pub cpu_seconds: Option<f64>,
    /// Start of the process, seconds since 1970.
    pub started: Option<f64>,
    /// Bytes of memory that it has.
    pub resident_bytes: Option<u64>,
    /// Bytes of addresses that it uses.
    pub virtual_bytes: Option<u64>,
    /// Open descriptors.
    pub open_fds: Option<u64>,
    /// The most that it may have.
    pub max_fds: Option<u64>,
}

/// Clock ticks of a second in `/proc`: the same on all of Linux's platforms that we run on.
const TICKS: f64 = 100.0;

/// Reads them.
pub(super) fn read() -> ProcessFacts {
    let text = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let booted = boot_time(&text("/proc/stat")).or_else(boot_time_by_clock);
    let mut facts = of_stat(&text("/proc/self/stat"), booted);
    facts.resident_bytes = resident(&text("/proc/self/status"));
    facts.max_fds = max_fds(&text("/proc/self/limits"));
    // Since 6.2 the folder's length is the number of descriptors; earlier it is 0.
    let known = fs::metadata("/proc/self/fd").ok().map(|it| it.len());
    let counted = || Some(fs::read_dir("/proc/self/fd").ok()?.count() as u64);
    facts.open_fds = known.filter(|count| *count > 0).or_else(counted);
    facts
}

/// The start of the machine, seconds since 1970, from `/proc/stat` (proc_stat(5)).
fn boot_time(system: &str) -> Option<f64> {
    let mut lines = system.lines();
    lines.find_map(|line| line.strip_prefix("btime ")?.trim().parse().ok())
}

/// The same where a process sees nothing of `/proc` but itself (systemd's `ProcSubset=pid`).
fn boot_time_by_clock() -> Option<f64> {
    let uptime = rustix::system::sysinfo().uptime;
    Some(clock::now_ms() as f64 / 1000.0 - uptime as f64)
}

/// From `/proc/self/stat` (proc_pid_stat(5)) and the start of the machine.
fn of_stat(stat: &str, booted: Option<f64>) -> ProcessFacts {
    // The second field is a name in parentheses, which may have any characters.
    let rest = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let field = |number: usize| -> Option<u64> {
        let word = rest.split_ascii_whitespace().nth(number.checked_sub(3)?)?;
        word.parse().ok()
    };
    let ticks = |number| field(number).map(|ticks| ticks as f64 / TICKS);
    ProcessFacts {
        cpu_seconds: ticks(14).zip(ticks(15)).map(|(user, kernel)| user + kernel),
        started: booted.zip(ticks(22)).map(|(booted, after)| booted + after),
        virtual_bytes: field(23),
        ..ProcessFacts::default()
    }
}

fn resident(status: &str) -> Option<u64> {
    let mut lines = status.lines();
    let line = lines.find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kilobytes: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kilobytes * 1024)
}

fn max_fds(limits: &str) -> Option<u64> {
    let mut lines = limits.lines();
    let line = lines.find_map(|line| line.strip_prefix("Max open files"))?;
    line.split_ascii_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_counted_after_the_name() {
        let stat = "7 (a) b (c) S 1 7 7 0 -1 4194560 1 0 0 0 250 150 0 0 20 0 4 0 1200 8192 2 1";
        let booted = boot_time("cpu 1 2\nbtime 1000\nprocesses 3\n");
        let facts = of_stat(stat, booted);
        assert_eq!(facts.cpu_seconds, Some(4.0));
        assert_eq!(facts.started, Some(1012.0));
        assert_eq!(facts.virtual_bytes, Some(8192));
    }

    #[test]
    fn what_is_not_there_is_not_known() {
        assert_eq!(of_stat("", boot_time("")), ProcessFacts::default());
        assert_eq!(
            (resident("VmRSS: x"), max_fds("Max cpu time 1 2")),
            (None, None)
        );
        let unlimited = "Max open files            unlimited            unlimited            files";
        assert_eq!(max_fds(unlimited), None);
    }

    #[test]
    fn boot_time_is_about_the_same_by_both_ways() {
        let told = boot_time(&fs::read_to_string("/proc/stat").unwrap()).unwrap();
        let computed = boot_time_by_clock().unwrap();
        assert!((told - computed).abs() < 5.0, "{told} {computed}");
    }

    #[test]
    fn a_process_can_see_itself() {
        let facts = read();
        assert!(facts.resident_bytes > Some(0) && facts.open_fds > Some(2));
        assert!(facts.max_fds >= facts.open_fds);
        assert!(facts.started > Some(1.6e9));
    }
}
