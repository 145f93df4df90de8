//! `cargo xtask store-bench NAME`: what the store promises in figures, measured.
//!
//! Each benchmark prints its figure, and fails when the figure misses its bound. What can be
//! measured inside a process is an example of `millpond-store`, built for release and run here;
//! what needs the binary runs in a file of its own beside this one and takes the binary that
//! `MILLPOND_BIN` names.
//!
//! A new one is a line in [`BENCHES`].

mod list;
mod small;
pub(crate) mod stored;

use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::tally::Tally;

/// One benchmark.
struct Bench {
    /// The name on the command line.
    name: &'static str,
    /// The figure that is measured, and its bound.
    about: &'static str,
    /// Runs it with the rest of the command line.
    run: fn(&[String]) -> Result<Tally>,
}

/// All of them.
const BENCHES: &[Bench] = &[
    Bench {
        name: "cost",
        about: "nanoseconds a lookup, index bytes an entry, seconds to open",
        run: |args| example("store_cost", args),
    },
    Bench {
        name: "open",
        about: "seconds until ten million entries are known again, after a close (4) and a kill (8)",
        run: |args| example("open_index", &with("open", args)),
    },
    Bench {
        name: "body",
        about: "CPU time to send a body from memory, by sendfile and through a buffer; no bound",
        run: |args| example("body_source", args),
    },
    Bench {
        name: "index",
        about: "memory an entry at ten million (64 bytes), nanoseconds a lookup (200)",
        run: |args| example("open_index", &with("index", args)),
    },
    Bench {
        name: "inserts",
        about: "how long an entry that is stored holds its thread, up to ten million (1 ms)",
        run: |args| example("open_index", &with("inserts", args)),
    },
    Bench {
        name: "slices",
        about: "memory an entry of slices whose heads were all replaced (64 bytes)",
        run: |args| example("open_index", &with("slices", args)),
    },
    Bench {
        name: "disks",
        about: "shares of disks within 0.02 of their weights; a lookup with one disk and three",
        run: |args| example("disks_cost", args),
    },
    Bench {
        name: "fill",
        about: "fill throughput against a sequential writer, two zones or disks against one (0.9)",
        run: |args| example("fill_speed", args),
    },
    Bench {
        name: "list",
        about: "seconds and memory of a list of 100,000 entries (16 MiB); [ENTRIES]",
        run: list::run,
    },
    Bench {
        name: "purges",
        about: "durable purges a second by 1, 8 and 64 threads (4 times one); [DIR]",
        run: |args| example_of("millpond-cache", "purge_speed", args),
    },
    Bench {
        name: "replay",
        about: "hit ratios against other policies; write amplification at most 1.3",
        run: |args| example("replay", args),
    },
    Bench {
        name: "stall",
        about: "microseconds of look-ups while a disk does not read, of changes while it does not write \
                (20,000)",
        run: |args| example("stall_cost", args),
    },
    Bench {
        name: "small",
        about: "bytes of disk for an entry of 1 KiB, below 1.6 KiB; needs wrk, MILLPOND_BIN",
        run: small::run,
    },
    Bench {
        name: "stored",
        about: "CPU for each stored byte, below nginx's; needs nginx, wrk, MILLPOND_BIN (release)",
        run: stored::run,
    },
];

/// Arguments behind a first one.
pub(crate) fn with(first: &str, rest: &[String]) -> Vec<String> {
    let first = std::iter::once(first.to_string());
    first.chain(rest.iter().cloned()).collect()
}

/// Runs one benchmark, or lists all.
pub(crate) fn run(args: &[String]) -> Result<Tally> {
    let Some((name, rest)) = args.split_first() else {
        for bench in BENCHES {
            println!("{:<12} {}", bench.name, bench.about);
        }
        return Ok(Tally::default());
    };
    match BENCHES.iter().find(|bench| bench.name == name) {
        Some(bench) => (bench.run)(rest),
        None => bail!("no benchmark is called {name}; without a name they are listed"),
    }
}

/// Runs an example of the store's crate; it fails when its bound is missed.
fn example(name: &str, args: &[String]) -> Result<Tally> {
    example_of("millpond-store", name, args)
}

/// Runs an example of a crate; it fails when its bound is missed.
fn example_of(package: &str, name: &str, args: &[String]) -> Result<Tally> {
    let status = Command::new(env!("CARGO"))
        .args(["run", "--quiet", "--release", "-p", package])
        .args(["--example", name, "--"])
        .args(args)
        .status()
        .with_context(|| format!("cannot run the example {name}"))?;
    Ok(Tally::from(status.success()))
}
