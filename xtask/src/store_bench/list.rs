//! The time and the memory that a list of many entries takes.
//!
//! The measuring is a test of `millpond-proxy`, so that it runs with the others; here it prints its
//! figures. It is built for development: the bound on memory does not depend on that.

use std::process::Command;

use anyhow::{Context, Result};

use crate::tally::Tally;

/// Runs the test; the first word of the command line is the number of entries.
pub(super) fn run(args: &[String]) -> Result<Tally> {
    let mut command = Command::new(env!("CARGO"));
    command
        .args(["test", "--quiet", "-p", "millpond-proxy"])
        .args(["--test", "large_list", "--", "--nocapture"]);
    if let Some(entries) = args.first() {
        command.env("ENTRIES", entries);
    }
    let status = command.status().context("cannot run the test")?;
    Ok(Tally::from(status.success()))
}
