//! Knowledge of a fleet that this process has, for those who do not follow the log themselves.
//!
//! 1. A purge is everywhere when this node has taken it, and every node has that was heard of
//!    within `max_lag`. A node that was not heard of for longer serves nothing as fresh: its beats
//!    would have to come back to it by the same log. A node whose first beat comes later has
//!    everything before.
//! 2. Nodes are heard of by this machine's own clock, after they have written.
//! 3. What a node has taken counts only if it names the log that is followed here: a log that was
//!    made anew begins its sequences again, and who has not noticed tells those of the old one.

use std::collections::BTreeMap;

use millpond_cache::purge::position::Position;

use crate::follower::{Counts, MEMBERS_MAX, Member};
use crate::held::mixed;

/// A node, and the time at which it was heard of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Heard {
    /// Last beat of the node.
    pub member: Member,
    /// Time by the clock that zones are confirmed by.
    pub at_ms: u64,
    /// True if the beat was not old when it was read.
    pub was_recent: bool,
}

/// The knowledge.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct View {
    /// Name of the log that is followed.
    pub log: Option<[u8; 16]>,
    /// Sequence up to which every purge is in force in all zones of this node.
    pub taken: u64,
    /// Time up to which everything that was acknowledged is in force here; 0 for never.
    pub confirmed_ms: u64,
    /// Time of the newest record that was read, by the log's clock, milliseconds since 1970.
    pub newest_ms: u64,
    /// Nodes by name.
    pub members: BTreeMap<String, Heard>,
    /// Counts of what was taken.
    pub counts: Counts,
    /// The reason why the log is not followed now.
    pub trouble: Option<String>,
}

impl View {
    /// True if a purge with this sequence in the log that is followed is in force on all nodes that
    /// serve at `now_ms`.
    pub fn is_everywhere(&self, sequence: u64, now_ms: u64, max_lag_ms: u64) -> bool {
        // What is not known cannot be waited for.
        if self.members.len() >= MEMBERS_MAX || self.counts.rivals > 0 {
            return false;
        }
        // INVARIANTS 1 and 3.
        let has = |heard: &Heard| {
            let announced = heard.member.announced.as_ref();
            let is_of_log = self.log.is_some() && announced.and_then(|it| it.log) == self.log;
            let has_taken = is_of_log && heard.member.taken >= sequence;
            has_taken || now_ms.saturating_sub(heard.at_ms) > max_lag_ms
        };
        self.taken >= sequence && self.members.values().all(has)
    }

    /// Position up to which a zone has every purge of the log, itself or one that has replaced it;
    /// none before the log is followed.
    pub fn position(&self, zone: &str) -> Option<Position> {
        let of_log = Position {
            log: self.log?,
            sequence: self.taken,
            at_ms: 0,
        };
        Some(mixed(of_log, zone.as_bytes()))
    }

    /// Milliseconds since everything that was acknowledged is in force; none for never.
    pub fn lag_ms(&self, now_ms: u64) -> Option<u64> {
        let is_known = self.confirmed_ms > 0;
        is_known.then(|| now_ms.saturating_sub(self.confirmed_ms))
    }

    /// Number of nodes that were heard of within `max_lag_ms`.
    pub fn live_count(&self, now_ms: u64, max_lag_ms: u64) -> usize {
        let is_live = |heard: &&Heard| now_ms.saturating_sub(heard.at_ms) <= max_lag_ms;
        self.members.values().filter(is_live).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entry::Announced;

    fn heard(taken: u64, at_ms: u64) -> Heard {
        Heard {
            member: Member {
                run: [0; 16],
                taken,
                at_ms: 1,
                announced: Some(Announced {
                    log: Some([1; 16]),
                    ..Announced::default()
                }),
            },
            at_ms,
            was_recent: true,
        }
    }

    #[test]
    fn purge_is_everywhere_when_all_have_it_that_may_serve() {
        let of = |taken, others: &[(u64, u64)]| View {
            log: Some([1; 16]),
            taken,
            members: others
                .iter()
                .enumerate()
                .map(|(number, (taken, at_ms))| (format!("n{number}"), heard(*taken, *at_ms)))
                .collect(),
            ..View::default()
        };
        let table = [
            (of(7, &[(7, 10_000)]), true),
            (of(7, &[(9, 10_000), (8, 10_000)]), true),
            (of(6, &[(7, 10_000)]), false),
            (of(7, &[(7, 10_000), (6, 10_000)]), false),
            // Silent for as long as it may still serve, and for longer.
            (of(7, &[(6, 5_000)]), false),
            (of(7, &[(6, 4_999)]), true),
        ];
        for (view, expected) in table {
            assert_eq!(view.is_everywhere(7, 10_000, 5_000), expected, "{view:?}");
        }
        // Sequences of the log of before say nothing of this one.
        let anew = View {
            log: Some([2; 16]),
            ..of(7, &[(9, 10_000)])
        };
        assert!(!anew.is_everywhere(7, 10_000, 5_000));
        let mut rival = of(7, &[(7, 10_000)]);
        rival.counts.rivals = 1;
        assert!(!rival.is_everywhere(7, 10_000, 5_000));
    }
}
