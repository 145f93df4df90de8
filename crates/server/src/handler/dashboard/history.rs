//! History of the last ten minutes, for a page that is opened now.
//!
//! Where a location has `dashboard`, the process notes its totals every ten seconds, in a ring: the
//! same counters as in an event, without those of single sites, zones and peers. A viewer is sent
//! them once, before its first event, so that its charts begin ten minutes ago.
//!
//! 1. There are at most `KEPT` notes, of about a kilobyte.
//! 2. Noting waits for no disk and no worker.
//!
//! What it does not do: outliving the process.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use millpond_exchange::settings::Conf;
use millpond_exchange::stats::STATUSES;
use millpond_exchange::worker::Shared;
use millpond_system::clock;
use serde::Serialize;

use super::event::{self, Totals};

/// Time from one note to the next.
const STEP: Duration = Duration::from_secs(10);
/// Notes: those of ten minutes, and the one that the first difference is of.
const KEPT: usize = 61;

/// The last notes.
#[derive(Debug, Default)]
pub(crate) struct History(Mutex<VecDeque<Totals>>);

/// The text that a viewer is sent.
#[derive(Serialize)]
struct Told<'a> {
    started: i64,
    pid: u32,
    statuses: [&'static str; STATUSES.len()],
    totals: &'a VecDeque<Totals>,
}

impl History {
    fn note(&self, totals: Totals) {
        let mut notes = self.notes();
        if notes.len() >= KEPT {
            notes.pop_front();
        }
        notes.push_back(totals);
    }

    /// The notes as an event of their own; before the first one, `now` is the only one.
    pub(super) fn event(&self, started_ms: i64, now: impl FnOnce() -> Totals) -> Vec<u8> {
        let mut notes = self.notes();
        if notes.is_empty() {
            notes.push_back(now());
        }
        let told = Told {
            started: started_ms,
            pid: std::process::id(),
            statuses: STATUSES,
            totals: &notes,
        };
        event::framed("event: history\ndata: ", &told)
    }

    fn notes(&self) -> MutexGuard<'_, VecDeque<Totals>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Notes what there is from now on, for as long as it is let live and the configuration is there.
pub(crate) async fn keep(conf: Weak<Conf>, shared: Arc<Shared>) {
    while let Some(conf) = conf.upgrade() {
        let totals = event::totals(&conf, &shared);
        shared.guests.of::<History>().note(totals);
        drop(conf);
        clock::pause(STEP).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_goes_when_there_are_enough() {
        let history = History::default();
        // A viewer that comes before the first note is told what there is.
        let text = String::from_utf8(history.event(1, || Totals::at(-7))).unwrap();
        assert!(text.contains("\"time\":-7"), "{text}");
        for time in 0..KEPT as i64 + 5 {
            history.note(Totals::at(time));
        }
        let text = String::from_utf8(history.event(1, || Totals::at(0))).unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix("data: "));
        let told: serde_json::Value = serde_json::from_str(line.unwrap()).unwrap();
        let totals = told["totals"].as_array().unwrap();
        assert_eq!((totals.len(), &totals[0]["time"]), (KEPT, &5.into()));
        assert!(text.starts_with("event: history\n") && text.ends_with("\n\n"));
    }
}
