//! What passed and what failed, and how that is read from the output of test programs.
//!
//! `Tally` adds up. `of_test_output` sums the `test result:` lines of Rust test binaries.
//!
//! 1. A program that failed without naming a failed test counts as one failure, so that a crash
//!    or a build error can never look like a pass.

use std::fmt;
use std::ops::AddAssign;

/// How many checks, tests and subtests passed and failed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    /// How many held.
    pub(crate) passed: u64,
    /// How many did not.
    pub(crate) failed: u64,
}

impl Tally {
    /// One check that held.
    pub(crate) const PASS: Tally = Tally {
        passed: 1,
        failed: 0,
    };
    /// One check that did not hold.
    pub(crate) const FAIL: Tally = Tally {
        passed: 0,
        failed: 1,
    };

    /// Sums the `test result:` lines of `output`; `success` is whether the program ended well.
    pub(crate) fn of_test_output(output: &str, success: bool) -> Tally {
        let mut sum = Tally::default();
        for line in output.lines() {
            if let Some(rest) = line.trim_start().strip_prefix("test result:") {
                sum.passed += number_before(rest, " passed");
                sum.failed += number_before(rest, " failed");
            }
        }
        // INVARIANT 1.
        if !success && sum.failed == 0 {
            sum.failed = 1;
        }
        sum
    }
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Tally) {
        self.passed += other.passed;
        self.failed += other.failed;
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} passed, {} failed", self.passed, self.failed)
    }
}

/// The number that stands just before `word`, or 0.
fn number_before(text: &str, word: &str) -> u64 {
    text.split_once(word)
        .and_then(|(before, _)| before.rsplit([' ', '.', ';']).next())
        .and_then(|digits| digits.parse().ok())
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn result_lines_are_summed_and_a_silent_failure_counts_as_one() {
        let two = "test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured\n\
                   noise\n\
                   test result: FAILED. 4 passed; 2 failed; 0 ignored\n";
        for (output, success, passed, failed) in [
            (two, false, 7, 2),
            ("test result: ok. 5 passed; 0 failed;", true, 5, 0),
            ("test result: ok. 5 passed; 0 failed;", false, 5, 1),
            ("", false, 0, 1),
            ("", true, 0, 0),
        ] {
            let expected = Tally { passed, failed };
            assert_eq!(Tally::of_test_output(output, success), expected, "{output}");
        }
    }
}
