//! `cargo xtask hit-cost`: instructions, system calls and looks at the clock of a hot hit, held
//! against bounds.
//!
//! The binary under test runs inside valgrind (callgrind, with its system calls traced), which
//! needs no rights and counts nearly the same on a loaded machine. One user asks the gauge's cache
//! configuration for one object of 1 KiB, over one connection, a few times and, in another run,
//! many times; the difference of what the serving thread did in both is the cost of the further
//! hits, without that of the start and of threads that do other things from time to time.
//!
//! 1. A bound is what was measured when it was written, and a tenth more (a quarter for counting,
//!    the difference of two runs). Whoever makes hits cheaper lowers it; whoever raises it says in
//!    the commit what is gained for it.
//! 2. No time is measured.
//!
//! What counting by site takes is the difference of two such runs: with `cache_site $host`, and
//! with `cache_site off`.
//!
//! Outside of valgrind the clock is read without a system call, so its reads are counted by
//! themselves. With one connection each hit waits for its request: one receive, one send, one
//! `epoll_wait`.
//!
//! The quick build has bounds of its own: its instructions are some seven times as many as those of
//! the release build, but come and go with them.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};

use crate::tally::Tally;
use crate::{packages, workspace};

/// Requests of the two runs.
const FEW: u64 = 50;
const MANY: u64 = 250;

/// The most that a hit may cost.
struct Bounds {
    instructions: f64,
    calls: f64,
    clock_reads: f64,
    /// Instructions of counting by site.
    counting: f64,
}

/// Bounds of the quick build.
const QUICK: Bounds = Bounds {
    instructions: 91_000.0,
    calls: 3.45,
    clock_reads: 6.7,
    counting: 4_300.0,
};
/// Bounds of the release build.
const RELEASE: Bounds = Bounds {
    instructions: 10_300.0,
    calls: 3.45,
    clock_reads: 6.7,
    counting: 260.0,
};

/// The cost of all requests of a run, and of its start.
#[derive(Clone, Copy)]
struct Cost {
    instructions: u64,
    calls: u64,
    clock_reads: u64,
}

/// Measurements at most; the least of each figure counts. What the serving thread does from time to
/// time adds to a hit, the more the slower the machine is, and nothing takes away from it.
const TRIES: usize = 3;

/// Measures, and compares with the bounds.
pub(crate) fn run() -> Result<Tally> {
    if !packages::runs("valgrind", &["--version"]) {
        println!("hit-cost: skipped, valgrind is not installed");
        return Ok(Tally::SKIP);
    }
    let dir = std::env::temp_dir().join(format!("millpond-hit-cost-{}", std::process::id()));
    std::fs::create_dir(&dir)?;
    let bounds = if workspace::is_release() {
        RELEASE
    } else {
        QUICK
    };
    let measured = least(&dir, &bounds);
    std::fs::remove_dir_all(&dir)?;
    let mut tally = Tally::default();
    for ((what, bound), found) in bounds.named().into_iter().zip(measured?) {
        println!("a hot hit takes {found:.2} {what}; at most {bound} are allowed");
        tally += Tally::from(found <= bound);
    }
    Ok(tally)
}

/// The least of each figure, measured until all are within their bounds or the tries are over.
fn least(dir: &Path, bounds: &Bounds) -> Result<[f64; 4]> {
    let mut least = [f64::INFINITY; 4];
    for _ in 0..TRIES {
        for (least, found) in least.iter_mut().zip(measure(dir)?.figures()) {
            *least = least.min(found);
        }
        let within = least.iter().zip(bounds.named());
        if within
            .into_iter()
            .all(|(found, (_, bound))| *found <= bound)
        {
            break;
        }
    }
    Ok(least)
}

impl Bounds {
    /// The bounds with the names of what they bound.
    fn named(&self) -> [(&'static str, f64); 4] {
        [
            ("instructions", self.instructions),
            ("system calls", self.calls),
            ("clock reads", self.clock_reads),
            ("instructions of counting by site", self.counting),
        ]
    }
}

/// The costs of all requests, by run.
struct Measured {
    few: Cost,
    many: Cost,
    /// Many requests, counted by site.
    counted: Cost,
    /// Many that are not.
    uncounted: Cost,
}

impl Measured {
    /// Figures of a hit, in the order of the bounds.
    fn figures(&self) -> [f64; 4] {
        let each = |few: u64, many: u64| many.saturating_sub(few) as f64 / (MANY - FEW) as f64;
        let (few, many) = (&self.few, &self.many);
        let counted = self.counted.instructions as f64;
        [
            each(few.instructions, many.instructions),
            each(few.calls, many.calls),
            each(few.clock_reads, many.clock_reads),
            (counted - self.uncounted.instructions as f64) / MANY as f64,
        ]
    }
}

/// Two runs at a time.
fn measure(dir: &Path) -> Result<Measured> {
    let two = |one: (&str, u64), other: (&str, u64)| {
        std::thread::scope(|scope| {
            let one = scope.spawn(|| cost(dir, one));
            let other = cost(dir, other);
            let Ok(one) = one.join() else {
                bail!("a run panicked");
            };
            Ok((one?, other?))
        })
    };
    let (few, many) = two(("", FEW), ("", MANY))?;
    let (counted, uncounted) = two(("cache_site $host;", MANY), ("cache_site off;", MANY))?;
    Ok(Measured {
        few,
        many,
        counted,
        uncounted,
    })
}

/// Runs the server inside valgrind, with a line more in its configuration, for so many requests.
fn cost(dir: &Path, (line, requests): (&str, u64)) -> Result<Cost> {
    let name = match line {
        "" => requests.to_string(),
        line => line.replace(|it: char| !it.is_ascii_alphanumeric(), "-"),
    };
    let counted: PathBuf = dir.join(format!("counted-{name}"));
    let traced: PathBuf = dir.join(format!("traced-{name}"));
    let conf: PathBuf = dir.join(format!("{name}.conf"));
    let usual = std::fs::read_to_string(workspace::root().join("bench/cache.conf"))?;
    std::fs::write(
        &conf,
        usual.replacen("http {", &format!("http {{ {line}"), 1),
    )?;
    let under = format!(
        "valgrind --tool=callgrind --separate-threads=yes --callgrind-out-file={} \
         --trace-syscalls=yes --log-file={}",
        counted.display(),
        traced.display()
    );
    let server = format!("{} -c {{conf}} -p {{dir}}", workspace::binary().display());
    let requests = requests.to_string();
    let mut words: Vec<OsString> = ["simple", "--only", "b", "--rounds", "1", "--users", "1"]
        .map(OsString::from)
        .to_vec();
    words.extend(["--objects", "1", "--size", "1k", "-n", &requests].map(OsString::from));
    words.extend(["--b", &server, "--under", &under].map(OsString::from));
    words.extend(["--conf".into(), conf.into()]);
    for (_, comparison) in millpond_gauge::compare(&words)? {
        let wrong: Vec<String> = comparison.wrong().collect();
        ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    }
    let bytes = std::fs::read(traced).context("valgrind wrote nothing")?;
    let traced = String::from_utf8_lossy(&bytes);
    let thread = serving(&traced).context("no thread sends answers")?;
    let of_thread = format!("{}-{thread:02}", counted.display());
    let counted = std::fs::read_to_string(of_thread).context("callgrind wrote nothing")?;
    let total = counted
        .lines()
        .find_map(|line| line.strip_prefix("totals: "));
    let calls = calls(&traced).filter(|call| call.0 == thread);
    let (clock, others): (Vec<_>, Vec<_>) =
        calls.partition(|call| call.1.starts_with("clock_gettime"));
    Ok(Cost {
        instructions: total.context("callgrind told no total")?.trim().parse()?,
        calls: others.len() as u64,
        clock_reads: clock.len() as u64,
    })
}

/// Threads and what they called. A call that blocks has a second line, without its name.
fn calls(traced: &str) -> impl Iterator<Item = (u32, &str)> {
    let calls = traced.split("SYSCALL[").skip(1);
    calls.filter_map(|line| {
        let (ids, call) = line.split_once(") sys_")?;
        let thread = ids.split_once(',')?.1.split(']').next()?;
        Some((thread.parse().ok()?, call))
    })
}

/// The thread that sends the most answers.
fn serving(traced: &str) -> Option<u32> {
    let mut sends = std::collections::BTreeMap::<u32, u32>::new();
    for (thread, call) in calls(traced) {
        if call.starts_with("send") || call.starts_with("writev") {
            *sends.entry(thread).or_default() += 1;
        }
    }
    let most = sends.into_iter().max_by_key(|(_, count)| *count);
    most.map(|(thread, _)| thread)
}
