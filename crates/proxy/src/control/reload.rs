//! `POST /reload`, on the control socket only: a reload, and its outcome as the answer.
//!
//! The process sends itself HUP and waits, on the thread of the connection, until the main thread
//! has read the configuration: 200 if it is in force, 422 with the reasons if it was refused.

use std::time::Duration;

use rustix::process::{Signal, getpid, kill_process};
use serde::{Deserialize, Serialize};

use super::api::{Answer, Ask, PREFIX, Verb};
use super::report;
use crate::stats::attempts::{Attempts, Reasons};

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

/// Answers a request for a reload; none if something else is asked.
pub(super) fn answer(ask: &Ask, attempts: Option<&Attempts>) -> Option<Answer> {
    let segments = ask.segments.iter().map(String::as_str);
    if !segments.eq(PREFIX.into_iter().chain([SEGMENT])) {
        return None;
    }
    Some(match (ask.verb, attempts) {
        (Verb::Post, _) if !ask.parameters.is_empty() => {
            report::problem(400, "a reload has no parameters")
        }
        (Verb::Post, Some(attempts)) => reload(attempts),
        (Verb::Post, None) => report::problem(503, "the process does not serve yet"),
        _ => report::problem(405, "the other method is meant"),
    })
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
