//! Counts of what passed and what failed, also as the output of test programs tells them.
//!
//! `Tally` adds up. `of_test_output` sums the `test result:` lines of Rust test binaries.
//!
//! 1. A program that failed without naming a failed test counts as one failure, so that a crash
//!    or a build error can never look like a pass.

use std::collections::BTreeSet;
use std::fmt;
use std::ops::AddAssign;

/// Counts of checks, tests and subtests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    /// The checks that held.
    pub(crate) passed: u64,
    /// The checks that did not hold.
    pub(crate) failed: u64,
    /// The checks that could not run here.
    pub(crate) skipped: u64,
    /// Those of the passed that failed among others and passed alone.
    pub(crate) unstable: u64,
}

impl Tally {
    /// One check that held.
    pub(crate) const PASS: Tally = Tally::new(1, 0);
    /// One check that did not hold.
    pub(crate) const FAIL: Tally = Tally::new(0, 1);
    /// One that could not run here.
    pub(crate) const SKIP: Tally = Tally {
        passed: 0,
        failed: 0,
        skipped: 1,
        unstable: 0,
    };

    /// A tally of checks that ran.
    pub(crate) const fn new(passed: u64, failed: u64) -> Tally {
        Tally {
            passed,
            failed,
            skipped: 0,
            unstable: 0,
        }
    }

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

/// One check, which held or did not.
impl From<bool> for Tally {
    fn from(is_held: bool) -> Tally {
        if is_held { Tally::PASS } else { Tally::FAIL }
    }
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Tally) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
        self.unstable += other.unstable;
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} passed, {} failed", self.passed, self.failed)?;
        for (count, word) in [(self.skipped, "skipped"), (self.unstable, "unstable")] {
            if count > 0 {
                write!(f, ", {count} {word}")?;
            }
        }
        Ok(())
    }
}

impl Tally {
    /// Counts tests as skipped that said so, one a line and before a colon, and not as passed. A
    /// test may say it more than once.
    pub(crate) fn skip(&mut self, notes: &str) {
        let names = notes.lines().map(|line| line.split(':').next());
        let tests = names.collect::<BTreeSet<_>>().len() as u64;
        self.passed = self.passed.saturating_sub(tests);
        self.skipped += tests;
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
            let expected = Tally::new(passed, failed);
            assert_eq!(Tally::of_test_output(output, success), expected, "{output}");
        }
    }

    #[test]
    fn tests_that_say_that_they_were_skipped_have_not_passed() {
        let mut tally = Tally::of_test_output("test result: ok. 5 passed; 0 failed", true);
        tally.skip("");
        assert_eq!(tally.to_string(), "5 passed, 0 failed");
        tally.skip("one: no nginx\ntwo: no disk: none\none: no curl\n");
        assert_eq!(tally.to_string(), "3 passed, 0 failed, 2 skipped");
    }
}
