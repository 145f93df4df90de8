//! `cargo xtask`: the tasks of the project, in Rust, so that they run wherever the project builds.
//!
//! `test` (also `ci`) runs every check and every test and ends with the line `N passed, N failed`.
//! `tidy` enforces the style guide. `foreign` runs suites written by others against the binary.
//! `fuzz` feeds parsers and store what nobody thought of. `bench` compares the cost of hits with
//! nginx's. `hit-cost` guards what one costs, by counts. `store-bench`
//! measures what the store promises. `seeds` runs the experiments of articles
//! on caching again. `docs` writes the manual from the code.
//!
//! This file reads the command line and nothing else; each task has a file of its own.

mod bench;
mod checks;
mod documents;
mod foreign;
mod fuzz;
mod hit_cost;
mod machine;
mod packages;
mod seeds;
mod store_bench;
mod tally;
mod tidy;
mod workspace;

use std::process::ExitCode;

const USAGE: &str = "usage: cargo xtask TASK

  test, ci               every check and every test; the last line is `N passed, N failed`
  tidy                   the rules of the style guide that a program can check
  docs                   writes docs/directives.md and docs/variables.md from the code
  foreign [--suite DIR] [--all] [FILE...]
                         nginx-tests files against the binary: those of the list, or FILEs of it;
                         with --all any file of the suite
  nginx-tests DIR        the same with the suite in DIR: foreign --suite DIR
  fuzz [TARGET...] [--seconds N]
                         fuzz targets under libFuzzer, each for N seconds (60)
  bench [NAME] [OPTION...]
                         what requests cost against nginx, with the release binary (set
                         MILLPOND_BIN), as a table; needs nginx, wrk and taskset. NAME is table
                         (hot hits, as without it), misses, waiters, idle, all (of these),
                         haproxy (against HAProxy's cache) or sites (counted by site or not);
                         --help lists the options
  store-bench [NAME [ARG...]]
                         a figure of the store against its bound; without a name, the list of them
  hit-cost               instructions and system calls of a hot hit, inside valgrind, held
                         against bounds
  seeds [PLAN...] [--brief]
                         the experiments of articles on caching, on nginx and the release binary
                         (or MILLPOND_BIN); all of them together write docs/seeds.md
";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let (task, rest) = match args.split_first() {
        Some((task, rest)) => (task.as_str(), rest),
        None => ("", args.as_slice()),
    };
    let outcome = match task {
        "test" | "ci" => checks::run_all(),
        "tidy" => tidy::run(),
        "foreign" => foreign::run(rest),
        "nginx-tests" => foreign::run_suite(rest),
        "fuzz" => fuzz::run(rest),
        "bench" => bench::run(rest),
        "store-bench" => store_bench::run(rest),
        "hit-cost" => hit_cost::run(),
        "seeds" => seeds::run(rest),
        "docs" => documents::run(),
        _ => {
            eprint!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    match outcome {
        Ok(tally) => {
            println!("{tally}");
            if tally.failed == 0 {
                ExitCode::SUCCESS
            } else {
                ExitCode::FAILURE
            }
        }
        Err(error) => {
            eprintln!("xtask: {error:#}");
            println!("0 passed, 1 failed");
            ExitCode::FAILURE
        }
    }
}
