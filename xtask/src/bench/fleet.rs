//! `cargo xtask bench fleet`: how soon a purge is in force on a hundred nodes of a fleet on this
//! host.
//!
//! One process has all nodes: for each a connection to NATS, a thread, and the code that follows
//! the log. A time is from the moment at which a node is asked until the last of them has taken the
//! purge, with one server of NATS and with three. The figure is that of a test, which is built as
//! tests are; it says nothing of disks.

use anyhow::Result;

use super::options::Options;
use crate::tally::Tally;
use crate::workspace;

/// Milliseconds in which 99 of 100 purges must be in force everywhere.
const BOUND_MS: &str = "50";

/// Measures; above the bound it has failed.
pub(super) fn run(options: &Options) -> Result<Tally> {
    let mut cargo = workspace::cargo(&["test", "--workspace", "--test", "nats", "--"]);
    cargo.args(["--ignored", "--nocapture", "a_hundred_nodes"]);
    let (nodes, purges) = (options.connections(100), options.rounds(300));
    let status = cargo
        .env("SUBSCRIBERS", nodes.to_string())
        .env("PURGES", purges.to_string())
        .env("P99_MS", BOUND_MS)
        .status()?;
    Ok(if status.success() {
        Tally::PASS
    } else {
        Tally::FAIL
    })
}
