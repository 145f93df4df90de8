//! `cargo xtask experiments`: what articles on caching measured, measured again, as tables.
//!
//! `lock`: the time to the first byte of ten requests for one missing entry at once.
//! `ranges`: byte ranges of a file that is cold, being filled, and filled, behind a slow line.
//!
//! Each table has nginx beside Millpond where nginx is installed. A row that promises something
//! and does not keep it counts as failed.

mod lock;
mod ranges;

use anyhow::{Result, bail};

use crate::tally::Tally;

/// Runs the experiment that the arguments name.
pub(crate) fn run(args: &[String]) -> Result<Tally> {
    match args.split_first() {
        Some((name, rest)) if name == "lock" => lock::run(rest),
        Some((name, rest)) if name == "ranges" => ranges::run(rest),
        Some((name, _)) => bail!("unknown experiment {name}; there are: lock, ranges"),
        None => {
            let mut sum = lock::run(&[])?;
            sum += ranges::run(&[])?;
            Ok(sum)
        }
    }
}

/// What can be measured again in seconds, for the run of all tests.
pub(crate) fn run_briefly() -> Result<Tally> {
    ranges::run(&["--brief".to_owned()])
}
