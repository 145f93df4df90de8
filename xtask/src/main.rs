//! `cargo xtask`: the tasks of the project, in Rust, so that they run wherever the project builds.
//!
//! `test` (also `ci`) runs every check and every test and ends with the line `N passed, N failed`.
//! `quick` builds and runs the tests of one area, `setup` installs what tests need. `tidy` enforces
//! the style guide (docs/style.md). `foreign` runs suites written by others against the binary.
//! `fuzz` feeds parsers and store what nobody thought of. `bench` compares the cost of hits with
//! nginx's. `hit-cost` guards what one costs, by counts. `store-bench` measures what the store
//! promises. `seeds` runs the experiments of articles on caching again. `docs` writes manuals and
//! the picture of the architecture from the code. `release` builds by a profile, `package` makes
//! what users install.
//!
//! This file reads the command line and nothing else; each task has a file of its own.

mod arrows;
mod bench;
mod checks;
mod client_libraries;
mod documents;
mod foreign;
mod fuzz;
mod go_programs;
mod guided;
mod hit_cost;
mod log_lines;
mod machine;
mod needs;
mod pace;
mod package;
mod packages;
mod place;
mod quick;
mod room;
mod rust_tests;
mod seeds;
mod store_bench;
mod tally;
mod tidy;
mod workspace;

use std::process::ExitCode;

const USAGE: &str = "usage: cargo xtask TASK

  setup [--yes]          names the Debian packages that are missing, asks, and installs them
  quick [AREA]           builds what the tests of an area need, the binary too, and runs them, in
                         under a minute; without AREA, lists the areas
  test, ci [--no-install]
                         every check and every test; what needs a missing package is skipped,
                         but with CI=true it is installed first; the last line is
                         `N passed, N failed`
  tidy [--bounds | --list [RULE [CRATE]] | --arrows [CRATE]]
                         the rules of the style guide that a program can check; --bounds lowers
                         the counts of xtask/tidy-bounds.txt, --list names what is counted,
                         --arrows takes lines from the table of who may import whom
                         (xtask/arrows.txt), or names where the arrows of CRATE stand
  docs [--check]         writes directives.md, variables.md, metrics.md and the picture of the
                         architecture in docs/ from the code, or compares them
  foreign [--suite DIR] [--njs] [--all] [FILE...]
                         nginx-tests files against the binary: those of the list, or FILEs of it;
                         with --all any file of the suite
  nginx-tests DIR        the same with the suite in DIR: foreign --suite DIR
  fuzz [TARGET...] [--seconds N]
                         fuzz targets under libFuzzer, each for N seconds (60)
  bench [NAME] [OPTION...]
                         what requests cost against nginx, with the release binary (set
                         MILLPOND_BIN), as a table; needs nginx, wrk and taskset. NAME is table
                         (hot hits, as without it), misses, waiters, idle, all (of these), crowd
                         (a hundred thousand connections), latency (of hits beside other work),
                         scale (a million entries), disks (two block devices beside one),
                         haproxy (against HAProxy's cache), sites (counted by site or not) or
                         fleet (a purge on a hundred nodes);
                         --help lists the options; eviction is store-bench replay: which entries
                         stay, against other policies and the optimum
  store-bench [NAME [ARG...]]
                         a figure of the store against its bound; without a name, the list of them
  hit-cost               instructions and system calls of a hot hit, inside valgrind, held
                         against bounds
  seeds [PLAN...] [--brief]
                         the experiments of articles on caching, on nginx and the release binary
                         (or MILLPOND_BIN); all of them together write docs/seeds.md
  release [--counting BINARY | --profile FILE]
                         a release build that is guided by a profile of the program at work, in
                         target/guided: builds with counters (or takes BINARY, which has them),
                         works, builds again; needs wrk, h2load, openssl and llvm-profdata;
                         --profile builds by the profile in FILE instead
  package [--debug | --guided | --profile FILE] [--static] [--arm64]
          [--repository DIR --key KEY]
                         a release build as .deb, .rpm and tarball with their checksums, in
                         target/package/out; --debug packs the quick build, --guided one
                         as `release` makes it with its profile beside it, --profile one by
                         that profile, --static adds a tarball that needs no C library,
                         --arm64 makes them for such machines, with Debian's compiler,
                         --repository adds all to repositories for apt and dnf in DIR,
                         signed by a key of gpg
  package --image [--debug] [--arm64]
                         a container image with that program and nothing else, by podman
  package --check | --chart | --rollout | --container | --container-arm64
          | --boot [--release] [--upgrades N]
                         --check checks packages as `test` does and installs the packagers
                         that it needs, --chart checks the Helm chart alone;
                         --boot installs and upgrades one, N times (5), in a container that
                         boots with systemd (root, systemd-nspawn, mmdebstrap); --rollout
                         brings some to three of them with the role of contrib/ansible
                         (ansible-core and ssh, too), --container checks the image (root,
                         podman, musl-gcc), --container-arm64 that for arm64, by qemu
";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let (task, rest) = match args.split_first() {
        Some((task, rest)) => (task.as_str(), rest),
        None => ("", args.as_slice()),
    };
    let outcome = match task {
        "test" | "ci" => checks::run_all(rest),
        "quick" => quick::run(rest),
        "setup" => packages::setup(rest),
        "tidy" => tidy::run(rest),
        "foreign" => foreign::run(rest),
        "nginx-tests" => foreign::run_suite(rest),
        "fuzz" => fuzz::run(rest),
        "bench" => bench::run(rest),
        "store-bench" => store_bench::run(rest),
        "hit-cost" => hit_cost::run(),
        "seeds" => seeds::run(rest),
        "docs" => documents::run(rest),
        "release" => guided::run(rest),
        "package" => package::run(rest),
        _ => {
            eprint!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    match outcome {
        Ok(tally) => {
            if tally.skipped > 0 {
                println!("{} skipped, as named above", tally.skipped);
            }
            if tally.unstable > 0 {
                println!("{} unstable, as named above", tally.unstable);
            }
            // What only prints something has no checks, and its output is for a file.
            if tally != tally::Tally::default() {
                println!("{} passed, {} failed", tally.passed, tally.failed);
            }
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
