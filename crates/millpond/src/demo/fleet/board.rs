//! The board of the demo's fleet: which node has which page, and when each purge reached whom.
//!
//! ```text
//! sent ─► Waiting ─┬─ the node tells of the purge ──────────────► After(ms)
//!                  ├─ the node is not there ─► Away ─┐
//!                  └─ silence for MISSED ────────────┴─ it is up to date ─► CaughtUp
//! ```
//!
//! Invariants:
//! 1. Milliseconds are counted from the moment at which the page sent the purge; of one that
//!    somebody else sent, from the moment at which the first node told of it.
//! 2. A node tells of its own purge twice, when it obeys and when the log has it: the first counts.
//! 3. At most `PURGES_MAX` purges are kept.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use millpond_system::clock::Instant;
use serde::Serialize;

use super::NODES;

/// Purges that are kept.
const PURGES_MAX: usize = 12;
/// Time in which a node that is there tells of a purge; later it is taken to have missed to tell.
const MISSED: Duration = Duration::from_secs(2);

/// State of a part of the fleet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum State {
    /// There is no process.
    #[default]
    Gone,
    /// The node has not caught up with the log, or is too far behind.
    Behind,
    /// All purges are known.
    UpToDate,
}

/// Answer of a node that was asked for a page.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Asked {
    /// Label of the cache, or the status of a failure.
    pub(super) label: String,
    pub(super) edition: Option<u64>,
    pub(super) ms: f64,
}

/// A node, as it is shown.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(super) struct NodeState {
    pub(super) state: State,
    /// Milliseconds since all was known; none if that is not known.
    pub(super) lag_ms: Option<u64>,
    /// Records of the log that were taken.
    pub(super) position: u64,
    /// Editions of the pages that it has, by path.
    pub(super) has: BTreeMap<String, u64>,
    /// The last answers, by path.
    pub(super) asked: BTreeMap<String, Asked>,
}

/// A node's word on itself; usually that it knows nothing yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Said {
    pub(super) state: State,
    pub(super) lag_ms: Option<u64>,
    pub(super) position: u64,
}

impl Default for Said {
    fn default() -> Said {
        Said {
            state: State::Behind,
            lag_ms: None,
            position: 0,
        }
    }
}

/// A purge at a node.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Arrival {
    /// Nothing is known.
    Waiting,
    /// The node obeys since so many milliseconds after the purge was sent.
    After(f64),
    /// The node was not there.
    Away,
    /// The node took it from the log later, before it served anything unasked.
    CaughtUp,
}

/// The target of a purge, as events tell it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct About {
    pub(super) kind: String,
    pub(super) what: String,
}

/// The answer to a purge.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Answered {
    /// Word for how far it is known to have come.
    pub(super) reach: String,
    pub(super) ms: f64,
}

/// A purge.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Purge {
    number: u64,
    about: About,
    /// The node that was asked; none if another program asked.
    at: Option<usize>,
    answered: Option<Answered>,
    nodes: [Arrival; NODES],
    #[serde(skip)]
    sent: Instant,
}

/// All that is shown of nodes and purges.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Board {
    pub(super) nodes: [NodeState; NODES],
    /// Purges, the newest first.
    purges: VecDeque<Purge>,
    #[serde(skip)]
    numbers: u64,
}

impl Board {
    /// Enters a purge that is being sent; its number.
    pub(super) fn sent(&mut self, about: About, at: Option<usize>, now: Instant) -> u64 {
        self.numbers += 1;
        let arrival = |node: &NodeState| match node.state {
            State::Gone => Arrival::Away,
            State::Behind | State::UpToDate => Arrival::Waiting,
        };
        self.purges.truncate(PURGES_MAX - 1);
        self.purges.push_front(Purge {
            number: self.numbers,
            about,
            at,
            answered: None,
            nodes: self.nodes.each_ref().map(arrival),
            sent: now,
        });
        self.numbers
    }

    /// Enters how a purge was answered.
    pub(super) fn answered(&mut self, number: u64, reach: String, now: Instant) {
        let found = self.purges.iter_mut().find(|it| it.number == number);
        if let Some(purge) = found {
            let ms = millis(purge.sent, now);
            purge.answered = Some(Answered { reach, ms });
        }
    }

    /// Enters that a node obeys a purge.
    pub(super) fn arrived(&mut self, node: usize, about: &About, now: Instant) {
        let mut same = self.purges.iter_mut().filter(|it| it.about == *about);
        let owed = same.find_map(|purge| {
            let after = Arrival::After(millis(purge.sent, now));
            let arrival = purge.nodes.get_mut(node)?;
            match arrival {
                Arrival::Waiting => Some((arrival, after)),
                Arrival::Away => Some((arrival, Arrival::CaughtUp)),
                Arrival::After(_) | Arrival::CaughtUp => None,
            }
        });
        if let Some((arrival, come)) = owed {
            *arrival = come;
            return;
        }
        let newest = self.purges.iter().find(|it| it.about == *about);
        let is_echo = newest.is_some_and(|it| now.saturating_duration_since(it.sent) <= MISSED);
        let shown = self.nodes.get(node).map(|it| it.state);
        // A node that has not caught up tells of what it makes stale because it was away.
        if shown == Some(State::UpToDate) && !is_echo {
            self.sent(about.clone(), None, now);
            self.arrived(node, about, now);
        }
    }

    /// Enters what a node says of itself; a node that says nothing is gone.
    pub(super) fn told(&mut self, node: usize, said: Option<Said>, now: Instant) {
        let Some(shown) = self.nodes.get_mut(node) else {
            return;
        };
        match said {
            Some(said) => {
                shown.state = said.state;
                shown.lag_ms = said.lag_ms;
                shown.position = said.position;
            }
            None => *shown = NodeState::default(),
        }
        let state = shown.state;
        for purge in &mut self.purges {
            let age = now.saturating_duration_since(purge.sent);
            let Some(arrival) = purge.nodes.get_mut(node) else {
                continue;
            };
            *arrival = match (*arrival, state) {
                (Arrival::Waiting, State::Gone) => Arrival::Away,
                (Arrival::Away, State::UpToDate) => Arrival::CaughtUp,
                (Arrival::Waiting, State::UpToDate) if age > MISSED => Arrival::CaughtUp,
                (other, _) => other,
            };
        }
    }
}

/// Milliseconds between two moments, with three digits behind the point.
pub(super) fn millis(from: Instant, to: Instant) -> f64 {
    let micros = to.saturating_duration_since(from).as_micros();
    // A demo runs for less than the centuries that a float cannot count in microseconds.
    u32::try_from(micros).map_or(f64::INFINITY, f64::from) / 1000.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use millpond_system::clock;

    const UP: Option<Said> = Some(Said {
        state: State::UpToDate,
        lag_ms: Some(0),
        position: 1,
    });

    fn about(what: &str) -> About {
        About {
            kind: "exact".to_string(),
            what: what.to_string(),
        }
    }

    fn at(start: Instant, ms: u64) -> Instant {
        start + Duration::from_millis(ms)
    }

    /// A board whose first two nodes are there, and its beginning.
    fn board() -> (Board, Instant) {
        let (mut board, start) = (Board::default(), clock::instant());
        (0..2).for_each(|node| board.told(node, UP, start));
        (board, start)
    }

    #[test]
    fn a_purge_arrives_at_each_node_once_or_is_caught_up_with() {
        let (mut board, start) = board();
        board.sent(about("/a"), Some(0), start);
        for (node, ms) in [(0, 1), (1, 3), (0, 4)] {
            board.arrived(node, &about("/a"), at(start, ms));
        }
        let nodes = |board: &Board| board.purges.front().unwrap().nodes;
        let [first, second] = [Arrival::After(1.0), Arrival::After(3.0)];
        assert_eq!(nodes(&board), [first, second, Arrival::Away]);
        board.told(2, UP, at(start, 9));
        assert_eq!(nodes(&board), [first, second, Arrival::CaughtUp]);
        assert_eq!(board.purges.len(), 1, "what a node tells twice is one");
    }

    #[test]
    fn a_purge_of_somebody_else_is_counted_from_the_first_node() {
        let (mut board, start) = board();
        board.arrived(1, &about("/b"), at(start, 7));
        board.arrived(0, &about("/b"), at(start, 9));
        let purge = board.purges.front().unwrap();
        let nodes = [Arrival::After(2.0), Arrival::After(0.0), Arrival::Away];
        assert_eq!((purge.at, purge.nodes), (None, nodes));
    }

    #[test]
    fn a_node_that_ends_or_tells_nothing_does_not_leave_a_purge_waiting() {
        let (mut board, start) = board();
        board.sent(about("/c"), Some(0), start);
        board.told(0, UP, at(start, 1999));
        board.told(1, None, at(start, 1999));
        let nodes = |board: &Board| board.purges.front().unwrap().nodes;
        assert_eq!(
            nodes(&board),
            [Arrival::Waiting, Arrival::Away, Arrival::Away]
        );
        board.told(0, UP, at(start, 2001));
        assert_eq!(nodes(&board)[0], Arrival::CaughtUp);
        for _ in 0..2 * PURGES_MAX {
            board.sent(about("/d"), Some(0), start);
        }
        assert_eq!(board.purges.len(), PURGES_MAX);
    }
}
