//! Parties: the members that live, as one node sees them at a moment, and what the owner of a key
//! knows of it after they have changed.
//!
//! ```text
//! members change ──► keys that were owned before: known
//!                └─► others: not known ── each member has told all that it has, and sees the
//!                                         same members; or SETTLE_MS are over ──► known
//! ```
//!
//! 1. An owner knows of a key what all nodes have if it has owned the key since all of them had
//!    told it, itself included, whatever members it saw meanwhile.
//! 2. What a member tells counts if it sees the same members: else it may tell another owner.
//! 3. Who does not hear its own beats, or did not for a moment, knows nothing: others may have
//!    taken its keys over.
//! 4. Who is back hears itself first, and seems to be alone: it knows of all members only when it
//!    has heard its own beats for as long as a member lives, or one of those that see the same has.
//! 5. What was told to a party that is left is not told to the same one when it comes back: members
//!    may have had slots of other owners meanwhile.

use std::collections::HashMap;

use crate::entry::Run;
use crate::follower::MEMBERS_MAX;
use crate::lease::{KeyId, owned_by};
use crate::owner::{self, Candidate};
use crate::peers::LIVE_MS;
use crate::slot::{Knowledge, Seen};
use crate::view::Heard;

/// Time after which members that have told nothing are taken to have nothing (arbitrary: longer
/// than slots are kept that are not asked for again). They may have a version that tells nothing.
const SETTLE_MS: u64 = 5_000;
/// Changes of the members that are remembered until all have told; after more nothing is known.
const CHANGES_MAX: usize = 16;
/// An owner is one however much it has to do.
const UNBOUNDED: u32 = u32::MAX;

/// The number of a node.
pub(crate) fn number_of(name: &str) -> u64 {
    owner::key(b"node", name.as_bytes())
}

/// Nodes that were heard of, whenever that was.
#[derive(Clone, Debug, Default)]
pub(crate) struct Roll {
    own: String,
    all: Vec<(Candidate, Run, u64)>,
}

impl Roll {
    /// The nodes that a node has heard of.
    pub(crate) fn new<'a>(own: &str, nodes: impl Iterator<Item = (&'a String, &'a Heard)>) -> Roll {
        let recent = nodes.filter(|(_, heard)| heard.was_recent);
        let all = recent.map(|(name, heard)| {
            let candidate = Candidate::new(name, 1, 0);
            (candidate, heard.member.run, heard.at_ms)
        });
        Roll {
            own: own.to_owned(),
            all: all.collect(),
        }
    }

    /// The nodes that live; none for who does not hear its own beats.
    pub(crate) fn party(&self, now_ms: u64) -> Option<Party> {
        let lives = |at_ms: u64| now_ms.saturating_sub(at_ms) <= LIVE_MS;
        let live = self.all.iter().filter(|(_, _, at_ms)| lives(*at_ms));
        let (members, runs): (Vec<Candidate>, Vec<Run>) = live
            .map(|(candidate, run, _)| (candidate.clone(), *run))
            .unzip();
        let own = members.iter().position(|it| it.name == self.own)?;
        Some(Party { members, runs, own })
    }
}

/// Nodes that live, in the order of their names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Party {
    members: Vec<Candidate>,
    runs: Vec<Run>,
    own: usize,
}

impl Party {
    /// The number of who sees it, and no other party.
    pub(crate) fn digest(&self) -> u64 {
        let mut text = Vec::new();
        for (member, run) in self.members.iter().zip(&self.runs) {
            text.extend_from_slice(&(member.name.len() as u64).to_le_bytes());
            text.extend_from_slice(member.name.as_bytes());
            text.extend_from_slice(run);
        }
        owner::key(b"party", &text)
    }

    /// Name of the owner of a key; none if it is this node.
    pub(crate) fn other_owner(&self, id: &KeyId) -> Option<&str> {
        let place = owner::owner(&self.members, owned_by(id), UNBOUNDED)?;
        let other = self.members.get(place).filter(|_| place != self.own);
        other.map(|it| it.name.as_str())
    }

    /// Names of all nodes.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.members.iter().map(|it| it.name.as_str())
    }
}

/// Knowledge of an owner.
#[derive(Debug, Default)]
pub(crate) struct Known {
    /// The parties since all had told, the present one last; empty if nothing is known.
    parties: Vec<Party>,
    /// The present one, and since when.
    now: Option<(Party, u64)>,
    /// The party that each node saw when it told all that it has.
    told: HashMap<u64, Seen>,
    /// Time since which this node hears its own beats without a pause.
    heard_ms: Option<u64>,
}

impl Known {
    /// Takes over which nodes live.
    pub(crate) fn see(&mut self, party: Option<Party>, now_ms: u64) {
        let Some(party) = party else {
            // INVARIANT 3.
            *self = Known::default();
            return;
        };
        self.heard_ms.get_or_insert(now_ms);
        if self
            .now
            .as_ref()
            .is_none_or(|(present, _)| *present != party)
        {
            if let Some((left, _)) = &self.now {
                // INVARIANT 5.
                let digest = left.digest();
                self.told.retain(|_, seen| seen.digest != digest);
            }
            if !self.parties.is_empty() {
                self.parties.push(party.clone());
            }
            if self.parties.len() > CHANGES_MAX {
                self.parties.clear();
            }
            self.now = Some((party, now_ms));
        }
        self.settle(now_ms);
    }

    /// True if this node has heard the log for so long that it knows of all members.
    pub(crate) fn is_sure(&self, now_ms: u64) -> bool {
        self.heard_ms
            .is_some_and(|at_ms| now_ms.saturating_sub(at_ms) >= LIVE_MS)
    }

    /// A node has told all that it has, and sees these members.
    pub(crate) fn hear(&mut self, node: u64, seen: Seen) {
        // Who writes to NATS may have any name.
        if self.told.len() >= MEMBERS_MAX && !self.told.contains_key(&node) {
            self.told.clear();
        }
        self.told.insert(node, seen);
    }

    fn settle(&mut self, now_ms: u64) {
        let Some((party, since_ms)) = &self.now else {
            return;
        };
        if self.parties.as_slice() == std::slice::from_ref(party) {
            return;
        }
        let digest = party.digest();
        // INVARIANT 2.
        let told = |name: &str| {
            let seen = self.told.get(&number_of(name))?;
            (seen.digest == digest).then_some(seen.is_sure)
        };
        // INVARIANT 4.
        let is_sure = self.is_sure(now_ms) || party.names().any(|it| told(it) == Some(true));
        let is_over = now_ms.saturating_sub(*since_ms) >= SETTLE_MS;
        if is_over || is_sure && party.names().all(|it| told(it).is_some()) {
            self.parties = vec![party.clone()];
            self.told.retain(|_, seen| seen.digest == digest);
        }
    }

    /// Completeness of what is known of a key.
    pub(crate) fn of(&self, id: &KeyId) -> Knowledge {
        let is_own = |party: &Party| party.other_owner(id).is_none();
        // INVARIANT 1.
        if !self.parties.is_empty() && self.parties.iter().all(is_own) {
            Knowledge::Whole
        } else {
            Knowledge::Part
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::follower::Member;
    use crate::lease::key_id;

    fn party(own: &str, names: &[&str]) -> Party {
        of_runs(
            own,
            &names.iter().map(|name| (*name, 1)).collect::<Vec<_>>(),
        )
    }

    fn of_runs(own: &str, nodes: &[(&str, u8)]) -> Party {
        let heard = |run| Heard {
            member: Member {
                run: [run; 16],
                taken: 0,
                at_ms: 0,
                announced: None,
            },
            at_ms: 1_000,
            was_recent: true,
        };
        let nodes: BTreeMap<String, Heard> = nodes
            .iter()
            .map(|(name, run)| ((*name).to_owned(), heard(*run)))
            .collect();
        Roll::new(own, nodes.iter()).party(1_000).unwrap()
    }

    fn sure(digest: u64) -> Seen {
        Seen {
            digest,
            is_sure: true,
        }
    }

    fn ids() -> impl Iterator<Item = KeyId> {
        (0..50_u32).map(|number| key_id(b"zone", &number.to_le_bytes()))
    }

    fn known_count(known: &Known) -> usize {
        ids().filter(|id| known.of(id) == Knowledge::Whole).count()
    }

    fn owned_count(party: &Party) -> usize {
        ids().filter(|id| party.other_owner(id).is_none()).count()
    }

    #[test]
    fn owner_knows_what_it_owns_once_all_have_told_who_see_the_same() {
        let mut known = Known::default();
        let three = party("a", &["a", "b", "c"]);
        known.see(Some(three.clone()), 0);
        assert_eq!(known_count(&known), 0);
        known.hear(number_of("a"), sure(three.digest()));
        known.hear(number_of("b"), sure(three.digest()));
        known.hear(number_of("c"), sure(three.digest() ^ 1));
        known.see(Some(three.clone()), 100);
        assert_eq!(known_count(&known), 0);
        known.hear(number_of("c"), sure(three.digest()));
        known.see(Some(three.clone()), 200);
        assert_eq!(known_count(&known), owned_count(&three));
        // The same nodes anew are others.
        let anew = of_runs("a", &[("a", 1), ("b", 2), ("c", 1)]);
        assert_ne!(anew.digest(), three.digest());
        // Who sees the same makes the same of it.
        assert_eq!(party("b", &["a", "b", "c"]).digest(), three.digest());
    }

    #[test]
    fn change_of_the_members_leaves_what_was_owned_all_the_time() {
        let mut known = Known::default();
        let (three, two) = (party("a", &["a", "b", "c"]), party("a", &["a", "b"]));
        known.see(Some(three.clone()), 0);
        for name in ["a", "b", "c"] {
            known.hear(number_of(name), sure(three.digest()));
        }
        known.see(Some(three.clone()), 100);
        known.see(Some(two.clone()), 200);
        // Not yet those of the node that went.
        assert_eq!(known_count(&known), owned_count(&three));
        assert!(owned_count(&two) > owned_count(&three));
        known.hear(number_of("b"), sure(two.digest()));
        known.see(Some(two.clone()), 250);
        assert_eq!(known_count(&known), owned_count(&three));
        known.hear(number_of("a"), sure(two.digest()));
        known.see(Some(two.clone()), 300);
        assert_eq!(known_count(&known), owned_count(&two));
        // One that goes, and comes back before anybody has told.
        known.see(Some(three.clone()), 400);
        known.see(Some(two), 500);
        assert_eq!(known_count(&known), owned_count(&three));
    }

    #[test]
    fn who_is_alone_knows_all_and_who_does_not_hear_itself_nothing() {
        let mut known = Known::default();
        let one = party("a", &["a"]);
        known.hear(number_of("a"), sure(one.digest()));
        known.see(Some(one.clone()), 0);
        assert_eq!(known_count(&known), 50);
        known.see(None, 100);
        assert_eq!(known_count(&known), 0);
        assert_eq!(Roll::default().party(0), None);
    }

    #[test]
    fn who_is_back_waits_for_the_others_unless_one_of_them_was_there() {
        let mut known = Known::default();
        let (one, two) = (party("a", &["a"]), party("a", &["a", "b"]));
        let seen = |party: &Party, is_sure| Seen {
            digest: party.digest(),
            is_sure,
        };
        known.see(Some(one.clone()), 1_000);
        known.hear(number_of("a"), seen(&one, false));
        known.see(Some(one.clone()), 1_100);
        assert_eq!(known_count(&known), 0);
        known.see(Some(one), 1_000 + LIVE_MS);
        assert_eq!(known_count(&known), 50);
        let mut joined = Known::default();
        joined.see(Some(two.clone()), 1_000);
        joined.hear(number_of("a"), seen(&two, false));
        joined.hear(number_of("b"), seen(&two, true));
        joined.see(Some(two.clone()), 1_100);
        assert_eq!(known_count(&joined), owned_count(&two));
    }

    #[test]
    fn members_that_tell_nothing_are_waited_for_some_seconds() {
        let mut known = Known::default();
        let two = party("a", &["a", "b"]);
        known.see(Some(two.clone()), 1_000);
        known.see(Some(two.clone()), 1_000 + SETTLE_MS - 1);
        assert_eq!(known_count(&known), 0);
        known.see(Some(two.clone()), 1_000 + SETTLE_MS);
        assert_eq!(known_count(&known), owned_count(&two));
    }
}
