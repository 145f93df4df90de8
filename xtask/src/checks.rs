//! `cargo xtask test`: every check and every test, in the order in which they fail cheapest.
//!
//! room on the disk → packages → fmt → clippy → binary → tidy → documents → tests → doc build
//! → package → fuzz targets → seeds → hit-cost → foreign suite
//!
//! 1. A failed check does not stop the later ones: a run reports everything that is wrong.
//! 2. The last line of standard output is `N passed, N failed`, printed by `main`. What could not
//!    run here is neither: it is counted as skipped, in a line before.
//! 3. Whoever watches sees within a minute that the run lives.
//! 4. Tests of behaviour get the binary's path in `MILLPOND_BIN`, and it is built before they run.
//! 5. Tests wait for much of their time: the fuzz targets and the packagers are built then, only
//!    with what the tests leave of the machine.
//! 6. Programs and libraries that tests need are installed while the workspace is compiled, since
//!    that waits for the network; packages of the system before, since compilers are among them.

use crate::pace::Pace;
use crate::tally::Tally;
use crate::{
    client_libraries, documents, foreign, fuzz, go_programs, hit_cost, package, packages, room,
    rust_tests, seeds, tidy, workspace,
};
use anyhow::{Context, Result, bail};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// INVARIANT 3.
const PULSE: Duration = Duration::from_secs(30);

/// Runs everything and sums it up; `--no-install` takes the machine as it is, whatever it is for.
pub(crate) fn run_all(args: &[String]) -> Result<Tally> {
    let may_install = match args {
        [] => packages::MayInstall::of_environment(),
        [arg] if arg == "--no-install" => packages::MayInstall::Never,
        _ => bail!("`test` takes `--no-install` only, not {}", args.join(" ")),
    };
    room::check()?;
    // INVARIANT 6.
    packages::ensure(may_install)?;
    let tools = std::thread::spawn(move || install(may_install));
    let mut sum = Tally::default();
    sum += check("fmt", workspace::cargo(&["fmt", "--all", "--check"]))?;
    let of_fuzz = ["fmt", "--manifest-path", "fuzz/Cargo.toml", "--check"];
    sum += check("fmt of fuzz", workspace::cargo(&of_fuzz))?;
    sum += check("clippy", clippy())?;
    sum += check("build", build_binary())?;
    tools.join().expect("what installs does not panic");
    sum += timed("tidy", || tidy::run(&[]))?;
    sum += timed("documents", documents::check)?;
    // INVARIANT 5.
    let builds = std::thread::spawn(move || build_beside(may_install));
    sum += timed("tests", tests)?;
    sum += check("doc", docs())?;
    builds.join().expect("what builds beside does not panic");
    sum += timed("package", package::check)?;
    sum += timed("fuzz", fuzz::run_briefly)?;
    sum += timed("seeds", seeds::run_briefly)?;
    sum += timed("hit-cost", hit_cost::run)?;
    sum += timed("foreign", || foreign::run(&[]))?;
    Ok(sum)
}

/// Installs what is missing of programs and libraries, where that is allowed, or names it.
fn install(may_install: packages::MayInstall) {
    let start = Instant::now();
    go_programs::ensure(may_install);
    client_libraries::ensure(may_install);
    println!("== tools: {} s", start.elapsed().as_secs());
}

/// Builds what is not needed before the tests have ended; who needs it and does not find it says
/// so.
fn build_beside(may_install: packages::MayInstall) {
    let start = Instant::now();
    if let Err(error) = fuzz::build_all(Pace::Idle) {
        println!("fuzz: {error:#}");
    }
    if may_install == packages::MayInstall::Unasked {
        package::prepare(Pace::Idle);
    }
    println!("== builds beside: {} s", start.elapsed().as_secs());
}

fn clippy() -> Command {
    let targets = ["clippy", "--workspace", "--all-targets"];
    let mut command = workspace::cargo(&targets);
    command.args(["--", "-D", "warnings"]);
    command
}

fn docs() -> Command {
    let mut command = workspace::cargo(&["doc", "--workspace", "--no-deps"]);
    command.env("RUSTDOCFLAGS", "-D warnings");
    command
}

/// The command that builds the binary under test.
pub(crate) fn build_binary() -> Command {
    let mut command = build_quick_binary();
    if workspace::is_release() {
        command.arg("--release");
    }
    command
}

/// The command that builds the binary that stands beside the tests.
pub(crate) fn build_quick_binary() -> Command {
    workspace::cargo(&["build", "-p", "millpond"])
}

/// Runs every Rust test.
fn tests() -> Result<Tally> {
    rust_tests::run_twice_if_few_fail(|| {
        let mut command = workspace::cargo(&["test", "--workspace", "--no-fail-fast"]);
        command.env("MILLPOND_BIN", workspace::binary());
        command
    })
}

/// Runs one command that either holds or does not.
fn check(name: &str, mut command: Command) -> Result<Tally> {
    timed(name, || {
        let status = command
            .stdin(Stdio::null())
            .status()
            .with_context(|| format!("{name} does not start"))?;
        Ok(Tally::from(status.success()))
    })
}

fn timed(name: &str, run: impl FnOnce() -> Result<Tally>) -> Result<Tally> {
    println!("== {name}");
    let start = Instant::now();
    let (ended, end) = mpsc::channel::<()>();
    let title = name.to_string();
    let pulse = std::thread::spawn(move || {
        while end.recv_timeout(PULSE) == Err(mpsc::RecvTimeoutError::Timeout) {
            println!("== {title}: {} s", start.elapsed().as_secs());
        }
    });
    let tally = run();
    drop(ended);
    pulse.join().expect("what prints the time does not panic");
    // INVARIANT 1.
    let tally = tally.unwrap_or_else(|error| {
        println!("{name}: {error:#}");
        Tally::FAIL
    });
    println!(
        "== {name}: {tally} in {:.1} s",
        start.elapsed().as_secs_f64()
    );
    Ok(tally)
}
