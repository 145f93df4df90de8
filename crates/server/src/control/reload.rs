//! `POST /reload`, on the control socket only: a reload, and its outcome as the answer. `GET
//! /reload` tells of the last one.
//!
//! The process sends itself HUP and waits, on the thread of the connection, until the main thread
//! has read the configuration: 200 if it is in force, 422 with the reasons if it was refused.

use std::time::Duration;

use millpond_exchange::stats::attempts::{Attempts, Reasons};
use millpond_exchange::worker::Shared;
use rustix::process::{Signal, getpid, kill_process};
use serde::{Deserialize, Serialize};

use super::api::{Answer, Ask, PREFIX, Verb};
use super::report;

/// The segment of the path behind that of the API.
pub const SEGMENT: &str = "reload";
/// Time that a reload may take: large zones are opened, on slow disks.
const PATIENCE: Duration = Duration::from_secs(300);

/// The outcome of a reload.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
pub struct ReloadReport {
    /// True if the configuration is in force.
    pub is_taken: bool,
    /// The reasons for which it is not.
    pub reasons: Reasons,
}

/// The configurations that were taken and refused since the start.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
pub struct LoadsReport {
    /// True if the last one was taken.
    pub is_taken: bool,
    /// Time when one was last taken, seconds since 1970.
    pub taken_at: i64,
    /// Number of those that were taken.
    pub taken: u64,
    /// Number of those that were refused.
    pub refused: u64,
}

/// Answers a request about a reload; none if something else is asked.
pub(super) fn answer(ask: &Ask, shared: Option<&Shared>) -> Option<Answer> {
    let segments = ask.segments.iter().map(String::as_str);
    if !segments.eq(PREFIX.into_iter().chain([SEGMENT])) {
        return None;
    }
    if !ask.parameters.is_empty() {
        return Some(report::problem(400, "a reload has no parameters"));
    }
    Some(match (ask.verb, shared) {
        (Verb::Post, Some(shared)) => reload(&shared.attempts),
        (Verb::Get, Some(shared)) => report::json(200, &loads(shared)),
        (_, None) => report::problem(503, "the process does not serve yet"),
        _ => report::problem(405, "the other method is meant"),
    })
}

fn loads(shared: &Shared) -> LoadsReport {
    let last = shared.loads.outcome();
    LoadsReport {
        is_taken: last.is_taken,
        taken_at: last.taken_ms / 1000,
        taken: last.taken,
        refused: last.failed,
    }
}

fn reload(attempts: &Attempts) -> Answer {
    let ask = || {
        // Nobody may forbid a process to send itself a signal.
        let _ = kill_process(getpid(), Signal::HUP);
    };
    let outcome = match attempts.outcome_of(ask, PATIENCE) {
        Some(outcome) => outcome,
        None => return report::problem(504, "the reload takes longer than five minutes"),
    };
    let (status, reasons) = match outcome {
        Ok(()) => (200, Reasons::new()),
        Err(reasons) => (422, reasons),
    };
    let told = ReloadReport {
        is_taken: status == 200,
        reasons,
    };
    report::json(status, &told)
}
