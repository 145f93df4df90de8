//! The order in which streams send their bodies (RFC 9218 §10).
//!
//! ```text
//! urgency 0 ─► 1 ─► … ─► 7      a more urgent stream goes before all less urgent ones
//! of one urgency:  those that take turns, in a ring for each place in the tree of RFC 7540
//!                  those that come whole, the oldest first; they have every other turn
//! ```
//!
//! A stream is in here while it has something to send and may send it. Who is picked leaves; the
//! connection puts it back behind the frame that it has sent.
//!
//! 1. A stream is in here once at most.
//! 2. Of one urgency and place, nobody who takes turns waits longer than a turn of each other one.
//! 3. The ring is in the order of places.
//!
//! It holds numbers and priorities, and is asked, never woken.

use std::collections::VecDeque;

use super::priority::{Manner, Priority, URGENCIES};
use super::tree::Place;

/// Streams of an urgency.
#[derive(Debug, Default)]
struct Lane {
    /// Those that take turns, the next one first.
    ring: VecDeque<(u32, Place)>,
    /// Those that come whole, the oldest last.
    whole: Vec<u32>,
    /// True if the next turn is that of those that come whole.
    is_turn_of_whole: bool,
}

impl Lane {
    fn add(&mut self, stream: u32, manner: Manner, place: Place) {
        match manner {
            // INVARIANT 3. Nearly always all have one place.
            Manner::Incremental if self.ring.back().is_none_or(|(_, last)| *last <= place) => {
                self.ring.push_back((stream, place));
            }
            Manner::Incremental => {
                let at = self.ring.partition_point(|(_, other)| *other <= place);
                self.ring.insert(at, (stream, place));
            }
            Manner::Whole => {
                let at = self.whole.partition_point(|other| *other > stream);
                self.whole.insert(at, stream);
            }
        }
    }

    fn pick(&mut self) -> Option<u32> {
        let is_turn = self.is_turn_of_whole || self.ring.is_empty();
        self.is_turn_of_whole = !self.is_turn_of_whole;
        let whole = if is_turn { self.whole.pop() } else { None };
        whole.or_else(|| self.ring.pop_front().map(|(stream, _)| stream))
    }

    fn remove(&mut self, stream: u32) -> bool {
        let before = self.len();
        self.ring.retain(|(other, _)| *other != stream);
        self.whole.retain(|other| *other != stream);
        self.len() < before
    }

    fn len(&self) -> usize {
        self.ring.len() + self.whole.len()
    }
}

/// The streams that have something to send, by priority.
#[derive(Debug, Default)]
pub struct Scheduler {
    lanes: [Lane; URGENCIES],
    len: usize,
}

impl Scheduler {
    /// Adds a stream that is not in here. The place counts where it takes turns.
    pub fn add(&mut self, stream: u32, priority: Priority, place: Place) {
        if let Some(lane) = self.lanes.get_mut(usize::from(priority.urgency)) {
            lane.add(stream, priority.manner, place);
            self.len += 1;
        }
    }

    /// Takes the stream whose turn it is.
    pub fn pick(&mut self) -> Option<u32> {
        if self.len == 0 {
            return None;
        }
        let lane = self.lanes.iter_mut().find(|lane| lane.len() > 0)?;
        self.len -= 1;
        lane.pick()
    }

    /// Takes a stream out; true if it was in here.
    pub fn remove(&mut self, stream: u32, priority: Priority) -> bool {
        let lane = self.lanes.get_mut(usize::from(priority.urgency));
        let was_in = lane.is_some_and(|lane| lane.remove(stream));
        self.len -= usize::from(was_in);
        was_in
    }

    /// Brings the streams of a priority, which takes turns, to other places; those of one place
    /// keep their order.
    pub(crate) fn replace(&mut self, priority: Priority, place: impl Fn(u32) -> Place) {
        if let Some(lane) = self.lanes.get_mut(usize::from(priority.urgency)) {
            for (stream, old) in &mut lane.ring {
                *old = place(*stream);
            }
            lane.ring.make_contiguous().sort_by_key(|(_, place)| *place);
        }
    }

    /// True if no stream is in here.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http2::tree::{Dependency, Tree};

    fn priority(urgency: u8, manner: Manner) -> Priority {
        Priority { urgency, manner }
    }

    /// The next picks, when each stream that is picked goes on.
    fn picks(scheduler: &mut Scheduler, streams: &[(u32, Priority)], count: usize) -> Vec<u32> {
        let mut picked = Vec::new();
        while picked.len() < count {
            let stream = scheduler.pick().unwrap();
            let (_, priority) = streams.iter().find(|(it, _)| *it == stream).unwrap();
            scheduler.add(stream, *priority, Place::default());
            picked.push(stream);
        }
        picked
    }

    fn with(streams: &[(u32, Priority)]) -> Scheduler {
        let mut scheduler = Scheduler::default();
        for (stream, priority) in streams {
            scheduler.add(*stream, *priority, Place::default());
        }
        scheduler
    }

    #[test]
    fn streams_that_say_nothing_take_turns() {
        let streams = [1, 3, 5].map(|stream| (stream, Priority::default()));
        let picked = picks(&mut with(&streams), &streams, 7);
        assert_eq!(picked, [1, 3, 5, 1, 3, 5, 1]);
    }

    /// RFC 9218 §10: a more urgent one first.
    #[test]
    fn a_more_urgent_stream_goes_before_all_others() {
        let streams = [
            (1, priority(7, Manner::Incremental)),
            (3, priority(0, Manner::Whole)),
            (5, priority(0, Manner::Whole)),
        ];
        let mut scheduler = with(&streams);
        assert_eq!(picks(&mut scheduler, &streams, 3), [3, 3, 3]);
        assert!(scheduler.remove(3, streams[1].1));
        assert!(!scheduler.remove(3, streams[1].1));
        assert_eq!(picks(&mut scheduler, &streams, 3), [5, 5, 5]);
        assert!(scheduler.remove(5, streams[2].1));
        assert_eq!(scheduler.pick(), Some(1));
        assert!(scheduler.is_empty() && scheduler.pick().is_none());
    }

    /// RFC 9218 §10: of those that come whole, in the order of their numbers.
    #[test]
    fn streams_that_come_whole_come_one_after_the_other() {
        let whole = priority(3, Manner::Whole);
        let mut scheduler = with(&[(7, whole), (3, whole), (5, whole)]);
        assert_eq!(scheduler.pick(), Some(3));
        scheduler.add(3, whole, Place::default());
        assert_eq!(scheduler.pick(), Some(3));
        assert_eq!(scheduler.pick(), Some(5));
        assert_eq!(scheduler.pick(), Some(7));
    }

    #[test]
    fn those_that_come_whole_share_with_those_that_take_turns() {
        let streams = [
            (1, priority(3, Manner::Incremental)),
            (3, priority(3, Manner::Whole)),
            (5, priority(3, Manner::Incremental)),
        ];
        let picked = picks(&mut with(&streams), &streams, 8);
        assert_eq!(picked, [1, 3, 5, 3, 1, 3, 5, 3]);
    }

    /// INVARIANT 3, through additions, turns and another tree.
    #[test]
    fn the_ring_goes_by_places_and_those_of_one_place_take_turns() {
        let default = Priority::default();
        let mut tree = Tree::default();
        let on = |parent| Dependency {
            parent,
            weight: 16,
            is_exclusive: false,
        };
        for (stream, parent) in [(1, 3), (3, 0), (5, 3), (7, 0)] {
            tree.depend(stream, on(parent), |_| true);
        }
        let mut scheduler = Scheduler::default();
        for stream in [1, 5, 7, 3] {
            scheduler.add(stream, default, tree.place(stream));
        }
        let turn = |scheduler: &mut Scheduler, tree: &Tree| {
            let stream = scheduler.pick().unwrap();
            scheduler.add(stream, default, tree.place(stream));
            stream
        };
        let picked: Vec<u32> = (0..4).map(|_| turn(&mut scheduler, &tree)).collect();
        assert_eq!(picked, [7, 3, 7, 3]);
        assert!(scheduler.remove(7, default) && scheduler.remove(3, default));
        let picked: Vec<u32> = (0..3).map(|_| turn(&mut scheduler, &tree)).collect();
        assert_eq!(picked, [1, 5, 1]);
        tree.depend(5, on(0), |_| true);
        scheduler.replace(default, |stream| tree.place(stream));
        let picked: Vec<u32> = (0..2).map(|_| turn(&mut scheduler, &tree)).collect();
        assert_eq!(picked, [5, 5]);
    }
}
