//! Counts of the requests to an origin.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

/// Ranges of a path that are remembered one by one (arbitrary).
const RANGES_MAX: usize = 10_000;
/// Paths that are told apart; further ones count in the sum only (arbitrary).
const PATHS_MAX: usize = 1_000_000;

/// Sums over all paths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Counts {
    /// Requests.
    pub requests: u64,
    /// Requests that were answered with 304.
    pub not_modified: u64,
    /// Requests that were answered with 503 on purpose.
    pub failed: u64,
    /// Answers that were cut on purpose.
    pub cut: u64,
    /// Bytes of bodies that were sent.
    pub body_bytes: u64,
    /// Connections.
    pub connections: u64,
    /// The most requests at one time.
    pub most_at_once: u64,
    /// The most requests for one path.
    pub most_asked: u64,
}

/// Counts of the requests for one path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Asked {
    /// Requests.
    pub requests: u64,
    /// Bytes of bodies that were sent.
    pub body_bytes: u64,
    /// Pieces of the body that were sent: start and end (excluded), the first 10,000 of them.
    pub sent: Vec<(u64, u64)>,
}

#[derive(Debug, Default)]
struct State {
    counts: Counts,
    running: u64,
    paths: HashMap<String, Asked>,
}

/// Counters of an origin.
#[derive(Debug, Default)]
pub(super) struct Counters {
    state: Mutex<State>,
}

impl Counters {
    fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        change(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// A connection was taken.
    pub(super) fn connected(&self) {
        self.change(|state| state.counts.connections += 1);
    }

    /// A request came.
    pub(super) fn begin(&self, path: &str) -> Running<'_> {
        self.change(|state| {
            state.counts.requests += 1;
            state.running += 1;
            state.counts.most_at_once = state.counts.most_at_once.max(state.running);
            if state.paths.len() < PATHS_MAX || state.paths.contains_key(path) {
                let asked = state.paths.entry(path.to_owned()).or_default();
                asked.requests += 1;
                state.counts.most_asked = state.counts.most_asked.max(asked.requests);
            }
        });
        Running { counters: self }
    }

    /// Bytes of a body, from `start` on, are about to be sent; returns the place of their answer
    /// among [`Asked::sent`], which is given with the next bytes of the same answer.
    pub(super) fn sent(
        &self,
        path: &str,
        start: u64,
        len: u64,
        at: Option<usize>,
    ) -> Option<usize> {
        self.change(|state| {
            state.counts.body_bytes += len;
            let asked = state.paths.get_mut(path)?;
            asked.body_bytes += len;
            if let Some((_, end)) = at.and_then(|at| asked.sent.get_mut(at)) {
                *end = start + len;
                return at;
            }
            (asked.sent.len() < RANGES_MAX).then(|| {
                asked.sent.push((start, start + len));
                asked.sent.len() - 1
            })
        })
    }

    pub(super) fn not_modified(&self) {
        self.change(|state| state.counts.not_modified += 1);
    }

    pub(super) fn failed(&self) {
        self.change(|state| state.counts.failed += 1);
    }

    pub(super) fn cut(&self) {
        self.change(|state| state.counts.cut += 1);
    }

    pub(super) fn counts(&self) -> Counts {
        self.change(|state| state.counts)
    }

    pub(super) fn asked(&self, path: &str) -> Asked {
        self.change(|state| state.paths.get(path).cloned().unwrap_or_default())
    }

    pub(super) fn all_asked(&self) -> Vec<(String, Asked)> {
        self.change(|state| {
            let all = state.paths.iter();
            all.map(|(path, asked)| (path.clone(), asked.clone()))
                .collect()
        })
    }
}

/// A request that is being answered.
#[derive(Debug)]
pub(super) struct Running<'a> {
    counters: &'a Counters,
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.counters.change(|state| state.running -= 1);
    }
}
