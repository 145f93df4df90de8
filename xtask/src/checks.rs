//! `cargo xtask test`: every check and every test, in the order in which they fail cheapest.
//!
//! packages → fmt → clippy → tidy → binary → documents → tests → doc build → fuzz targets
//! → seeds → hit-cost → foreign suite
//!
//! 1. A failed check does not stop the later ones: a run reports everything that is wrong.
//! 2. The last line of standard output is `N passed, N failed`, printed by `main`.
//! 3. Tests of behaviour get the binary's path in `MILLPOND_BIN`, and it is built before they run.

use crate::tally::Tally;
use crate::{documents, foreign, fuzz, hit_cost, packages, seeds, tidy, workspace};
use anyhow::{Context, Result};
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::Instant;

/// Runs everything and sums it up.
pub(crate) fn run_all() -> Result<Tally> {
    packages::ensure()?;
    let mut sum = Tally::default();
    sum += check("fmt", workspace::cargo(&["fmt", "--all", "--check"]))?;
    sum += check("clippy", clippy())?;
    sum += timed("tidy", tidy::run)?;
    sum += check("build", build_binary())?;
    sum += timed("documents", documents::check)?;
    sum += timed("tests", tests)?;
    sum += check("doc", docs())?;
    sum += timed("fuzz", fuzz::run_briefly)?;
    sum += timed("seeds", seeds::run_briefly)?;
    sum += timed("hit-cost", hit_cost::run)?;
    sum += timed("foreign", || foreign::run(&[]))?;
    Ok(sum)
}

fn clippy() -> Command {
    let targets = ["clippy", "--workspace", "--all-targets", "--quiet"];
    let mut command = workspace::cargo(&targets);
    command.args(["--", "-D", "warnings"]);
    command
}

fn docs() -> Command {
    let mut command = workspace::cargo(&["doc", "--workspace", "--no-deps", "--quiet"]);
    command.env("RUSTDOCFLAGS", "-D warnings");
    command
}

/// The command that builds the binary under test.
pub(crate) fn build_binary() -> Command {
    let mut command = workspace::cargo(&["build", "--quiet", "-p", "millpond"]);
    if workspace::is_release() {
        command.arg("--release");
    }
    command
}

/// Runs every Rust test; the output is shown as it comes and summed.
fn tests() -> Result<Tally> {
    let mut child = workspace::cargo(&["test", "--workspace", "--no-fail-fast"])
        .env("MILLPOND_BIN", workspace::binary())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .context("cargo test does not start")?;
    let stdout = child.stdout.take().context("cargo test has no output")?;
    let mut output = String::new();
    for line in BufReader::new(stdout).split(b'\n') {
        let line = line?;
        let line = String::from_utf8_lossy(&line);
        println!("{line}");
        if line.trim_start().starts_with("test result:") {
            output.push_str(&line);
            output.push('\n');
        }
    }
    let success = child.wait()?.success();
    Ok(Tally::of_test_output(&output, success))
}

/// Runs one command that either holds or does not.
fn check(name: &str, mut command: Command) -> Result<Tally> {
    timed(name, || {
        let status = command
            .stdin(Stdio::null())
            .status()
            .with_context(|| format!("{name} does not start"))?;
        Ok(if status.success() {
            Tally::PASS
        } else {
            Tally::FAIL
        })
    })
}

fn timed(name: &str, run: impl FnOnce() -> Result<Tally>) -> Result<Tally> {
    println!("== {name}");
    let start = Instant::now();
    let tally = run()?;
    println!(
        "== {name}: {tally} in {:.1} s",
        start.elapsed().as_secs_f64()
    );
    Ok(tally)
}
