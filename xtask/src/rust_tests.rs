//! Rust tests: their output as it comes, their counts, and a second run of the few that failed.
//!
//! Hundreds of servers start and stop in a full run, and a machine that stands still for seconds
//! makes a test fail that waits for one of them. So a few failed tests run again, one at a time.
//!
//! 1. Every test that failed at first is named at the end as unstable, and counted as such: it is a
//!    fault of the test or of the server that somebody has to look into.
//! 2. More failures than [`MOST_UNSTABLE`], and a program that crashed, fail the run at once.

use crate::tally::Tally;
use anyhow::{Context, Result};
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

/// Failed tests that get a second run.
const MOST_UNSTABLE: usize = 3;

/// The counts and the failed tests of a run.
struct Run {
    tally: Tally,
    /// The names of the failed tests.
    failed: Vec<String>,
}

/// Runs tests; the output is shown as it comes and summed.
pub(crate) fn run(command: Command) -> Result<Tally> {
    Ok(run_once(command)?.tally)
}

/// Runs tests, and those that failed once more by themselves, if they are few.
pub(crate) fn run_twice_if_few_fail(command: impl Fn() -> Command) -> Result<Tally> {
    let first = run_once(command())?;
    if !deserves_second(&first) {
        return Ok(first.tally);
    }
    println!("== failed tests run again, one at a time");
    let mut again = command();
    again.args(["--", "--exact", "--test-threads=1"]);
    again.args(&first.failed);
    let second = run_once(again)?;
    let tally = merged(&first, &second);
    for name in first.failed.iter().filter(|_| tally.unstable > 0) {
        println!("unstable: {name} failed among others, and passed alone");
    }
    Ok(tally)
}

/// INVARIANT 2.
fn deserves_second(first: &Run) -> bool {
    let names = first.failed.len();
    (1..=MOST_UNSTABLE).contains(&names) && first.tally.failed == names as u64
}

/// The first run's tally, with those that the second run found in order as unstable.
fn merged(first: &Run, second: &Run) -> Tally {
    let count = first.failed.len() as u64;
    let mut tally = first.tally;
    if second.tally.failed == 0 && second.tally.passed >= count {
        tally.failed -= count;
        tally.passed += count;
        tally.unstable += count;
    }
    tally
}

fn run_once(mut command: Command) -> Result<Run> {
    let notes = std::env::temp_dir().join(format!("millpond-skipped-{}", std::process::id()));
    let mut child = command
        .env("MILLPOND_SKIPPED", &notes)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .context("cargo test does not start")?;
    let stdout = child.stdout.take().context("cargo test has no output")?;
    let mut results = String::new();
    let mut failed = Vec::new();
    for line in BufReader::new(stdout).split(b'\n') {
        let bytes = line?;
        let line = String::from_utf8_lossy(&bytes);
        println!("{line}");
        if line.trim_start().starts_with("test result:") {
            results.push_str(&line);
            results.push('\n');
        }
        failed.extend(failed_test(&line).map(str::to_owned));
    }
    let success = child.wait()?.success();
    let mut tally = Tally::of_test_output(&results, success);
    // Nobody writes it if nothing was skipped.
    let notes = std::fs::read_to_string(&notes)
        .and_then(|text| std::fs::remove_file(&notes).map(|()| text))
        .unwrap_or_default();
    notes.lines().for_each(|note| println!("skipped: {note}"));
    tally.skip(&notes);
    Ok(Run { tally, failed })
}

/// The name of a test whose line says that it failed, or of a scenario of the differential test.
fn failed_test(line: &str) -> Option<&str> {
    line.strip_prefix("failed: ")
        .or_else(|| line.strip_prefix("test ")?.strip_suffix(" ... FAILED"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(passed: u64, names: &[&str], failed: u64) -> Run {
        Run {
            tally: Tally::new(passed, failed),
            failed: names.iter().map(|name| (*name).to_owned()).collect(),
        }
    }

    #[test]
    fn few_failed_tests_run_again_and_crashes_and_many_do_not() {
        let many = ["a", "b", "c", "d"];
        for (first, expected) in [
            (run(9, &[], 0), false),
            (run(9, &["a"], 1), true),
            (run(9, &many[..3], 3), true),
            (run(9, &many, 4), false),
            // A program that ended without a word counts as failed, and has no name.
            (run(9, &[], 1), false),
            (run(9, &["a"], 2), false),
        ] {
            assert_eq!(deserves_second(&first), expected, "{:?}", first.failed);
        }
    }

    #[test]
    fn a_test_that_passes_alone_is_unstable_and_one_that_fails_twice_has_failed() {
        let first = run(9, &["a", "b"], 2);
        let unstable = merged(&first, &run(2, &[], 0));
        assert_eq!(
            (unstable.passed, unstable.failed, unstable.unstable),
            (11, 0, 2)
        );
        // One failed again; one was not found.
        for second in [run(1, &["a"], 1), run(1, &[], 0)] {
            assert_eq!(merged(&first, &second), Tally::new(9, 2));
        }
    }

    #[test]
    fn the_names_of_failed_tests_are_taken_from_their_lines() {
        for (line, expected) in [
            ("test life::one ... FAILED", Some("life::one")),
            ("failed: cache-lock", Some("cache-lock")),
            ("test life::one ... ok", None),
            ("test result: FAILED. 1 passed; 1 failed", None),
            ("    test life::one ... FAILED", None),
        ] {
            assert_eq!(failed_test(line), expected, "{line}");
        }
    }
}
