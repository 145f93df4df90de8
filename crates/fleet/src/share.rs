//! Shares: the part of a limit that a node has, where the limit is one of the whole fleet.
//!
//! ```text
//! beats ──► nodes that live ──► share of this node ──► limits, at each request
//! ```
//!
//! 1. A share is never nothing: who is alone, or has heard of nobody yet, has the whole.
//! 2. More nodes count at once. Fewer count when this node has heard its own beats without a pause
//!    for as long as a node lives without one: after a pause of the log all others seem to be gone.
//! 3. Who does not hear the log keeps the share of before. So nodes that NATS has left have no more
//!    than the whole together; a node that is cut off while it serves has its old share beside the
//!    whole of the others.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::lending::Leases;
use crate::peers::LIVE_MS;
use crate::slot_lending::SlotLeases;
use crate::view::Heard;

/// Place of a node among those that share a limit.
#[derive(Debug, Default)]
pub struct Share {
    /// Number of nodes, and the place of this one.
    word: AtomicU64,
    leases: Arc<Leases>,
    slots: Arc<SlotLeases>,
}

impl Share {
    /// Number of nodes that share; 1 for a node that knows of none.
    pub fn nodes(&self) -> u64 {
        // INVARIANT 1.
        (self.word.load(Relaxed) >> 32).max(1)
    }

    /// The part of a number of things: all parts together are the whole, or one for each node if
    /// those are more.
    pub fn part_of(&self, whole: u16) -> u16 {
        let word = self.word.load(Relaxed);
        let (nodes, place) = ((word >> 32).max(1), word & u64::from(u32::MAX));
        let whole = u64::from(whole);
        let part = whole / nodes + u64::from(place < whole % nodes);
        // INVARIANT 1. A part is no more than the whole.
        u16::try_from(part.max(1)).unwrap_or(u16::MAX)
    }

    /// Leases of the limits that the node shares.
    pub fn leases(&self) -> &Arc<Leases> {
        &self.leases
    }

    /// Leases of slots of the limits that the node shares.
    pub fn slots(&self) -> &Arc<SlotLeases> {
        &self.slots
    }

    fn set(&self, nodes: usize, place: usize) {
        let [nodes, place] = [nodes, place].map(|it| u64::try_from(it).unwrap_or(u64::MAX));
        self.word.store(nodes << 32 | place, Relaxed);
    }
}

/// The nodes that live, counted by one of them.
#[derive(Debug)]
pub(crate) struct Census {
    own: String,
    share: Arc<Share>,
    /// Time since which this node has heard its own beats without a pause, and that of the last.
    heard_ms: Option<(u64, u64)>,
}

impl Census {
    /// A count by a node of this name, told to its limits.
    pub(crate) fn new(own: &str, share: Arc<Share>) -> Self {
        Census {
            own: own.to_owned(),
            share,
            heard_ms: None,
        }
    }

    /// The share.
    pub(crate) fn share(&self) -> &Arc<Share> {
        &self.share
    }

    /// Takes over what was heard of all nodes by now, in the order of their names.
    pub(crate) fn hear<'a>(
        &mut self,
        nodes: impl Iterator<Item = (&'a String, &'a Heard)> + Clone,
        now_ms: u64,
    ) {
        self.share.leases.hear(&self.own, nodes.clone());
        self.share.slots.hear(&self.own, nodes.clone());
        let lives = |(_, heard): &(&String, &Heard)| {
            heard.was_recent && now_ms.saturating_sub(heard.at_ms) <= LIVE_MS
        };
        let live: Vec<_> = nodes.filter(lives).collect();
        let own = live.iter().position(|(name, _)| **name == self.own);
        // INVARIANT 3.
        let Some((place, (_, own))) = own.and_then(|place| Some((place, live.get(place)?))) else {
            return;
        };
        let since_ms = match self.heard_ms {
            Some((since_ms, last_ms)) if own.at_ms.saturating_sub(last_ms) <= LIVE_MS => since_ms,
            _ => own.at_ms,
        };
        self.heard_ms = Some((since_ms, own.at_ms));
        // INVARIANT 2.
        let is_sure = now_ms.saturating_sub(since_ms) >= LIVE_MS;
        if is_sure || live.len() as u64 >= self.share.nodes() {
            self.share.set(live.len(), place);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::follower::Member;

    struct World {
        census: Census,
        view: BTreeMap<String, Heard>,
    }

    impl World {
        fn new(own: &str) -> Self {
            World {
                census: Census::new(own, Arc::default()),
                view: BTreeMap::new(),
            }
        }

        /// Beats of some nodes; the number of those that share.
        fn beat(&mut self, names: &[&str], at_ms: u64) -> u64 {
            for name in names {
                let member = Member {
                    run: [0; 16],
                    taken: 0,
                    at_ms: 0,
                    announced: None,
                };
                let heard = Heard {
                    member,
                    at_ms,
                    was_recent: true,
                };
                self.view.insert((*name).to_owned(), heard);
            }
            self.census.hear(self.view.iter(), at_ms);
            self.census.share.nodes()
        }
    }

    #[test]
    fn parts_are_the_whole_together_and_never_nothing() {
        for nodes in [1, 2, 3, 7, 100] {
            for whole in [1, 2, 3, 10, 100, 65_535_u16] {
                let parts = (0..nodes).map(|place| {
                    let share = Share::default();
                    share.set(nodes, place);
                    u32::from(share.part_of(whole))
                });
                let expected = u32::from(whole).max(nodes as u32);
                assert_eq!(parts.sum::<u32>(), expected, "{whole} among {nodes}");
            }
        }
        assert_eq!(Share::default().part_of(7), 7);
    }

    #[test]
    fn nodes_that_come_count_at_once_and_those_that_go_after_three_seconds() {
        let mut world = World::new("b");
        assert_eq!(world.beat(&["a"], 1_000), 1);
        assert_eq!(world.beat(&["b"], 1_000), 2);
        assert_eq!(world.beat(&["a", "b", "c"], 2_000), 3);
        for at_ms in [3_000, 4_000, 5_000] {
            assert_eq!(world.beat(&["a", "b"], at_ms), 3, "{at_ms}");
        }
        assert_eq!(world.beat(&["a", "b"], 5_001), 2);
        assert_eq!(world.census.share.part_of(3), 1);
    }

    #[test]
    fn who_hears_nothing_keeps_its_share_and_forgets_nobody_after_a_pause() {
        let mut world = World::new("a");
        for at_ms in [1_000, 2_000, 3_000, 4_000] {
            world.beat(&["a", "b", "c"], at_ms);
        }
        // The own beat stays out, as of who cannot write to the log.
        assert_eq!(world.beat(&["b"], 9_000), 3);
        // The log is back, and this node is the first to be heard.
        assert_eq!(world.beat(&["a"], 60_000), 3);
        assert_eq!(world.beat(&["a", "b", "c"], 61_000), 3);
        assert_eq!(world.beat(&["a", "b", "c"], 63_000), 3);
        // What does not come back is gone by then.
        assert_eq!(world.beat(&["a"], 80_000), 3);
        assert_eq!(world.beat(&["a", "b"], 82_999), 3);
        assert_eq!(world.beat(&["a", "b"], 83_000), 2);
    }

    #[test]
    fn beats_that_were_old_when_they_were_read_are_of_nobody() {
        let mut world = World::new("a");
        world.beat(&["b"], 1_000);
        world.view.get_mut("b").unwrap().was_recent = false;
        assert_eq!(world.beat(&["a"], 1_000), 1);
    }
}
