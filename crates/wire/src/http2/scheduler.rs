//! The order in which streams send their bodies (RFC 9218 §10).
//!
//! ```text
//! urgency 0 ─► 1 ─► … ─► 7      a more urgent stream goes before all less urgent ones
//! of one urgency:  those that take turns, in a ring
//!                  those that come whole, the oldest first; all of them have one place in it
//! ```
//!
//! A stream is in here while it has something to send and may send it. Who is picked leaves; the
//! connection puts it back behind the frame that it has sent.
//!
//! 1. A stream is in here once at most.
//! 2. Of one urgency, nobody who takes turns waits longer than one turn of each other one.
//!
//! It holds numbers and priorities, and is asked, never woken.

use std::collections::VecDeque;

use super::priority::{Manner, Priority, URGENCIES};

/// Streams of an urgency.
#[derive(Debug, Default)]
struct Lane {
    /// Those that take turns, the next one first.
    ring: VecDeque<u32>,
    /// Those that come whole, the oldest last.
    whole: Vec<u32>,
    /// True if the next turn is that of those that come whole.
    is_turn_of_whole: bool,
}

impl Lane {
    fn add(&mut self, stream: u32, manner: Manner) {
        match manner {
            Manner::Incremental => self.ring.push_back(stream),
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
        whole.or_else(|| self.ring.pop_front())
    }

    fn remove(&mut self, stream: u32) -> bool {
        let before = self.len();
        self.ring.retain(|other| *other != stream);
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
    /// Adds a stream that is not in here.
    pub fn add(&mut self, stream: u32, priority: Priority) {
        if let Some(lane) = self.lanes.get_mut(usize::from(priority.urgency)) {
            lane.add(stream, priority.manner);
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

    /// True if no stream is in here.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn priority(urgency: u8, manner: Manner) -> Priority {
        Priority { urgency, manner }
    }

    /// The next picks, when each stream that is picked goes on.
    fn picks(scheduler: &mut Scheduler, streams: &[(u32, Priority)], count: usize) -> Vec<u32> {
        let mut picked = Vec::new();
        while picked.len() < count {
            let stream = scheduler.pick().unwrap();
            let (_, priority) = streams.iter().find(|(it, _)| *it == stream).unwrap();
            scheduler.add(stream, *priority);
            picked.push(stream);
        }
        picked
    }

    fn with(streams: &[(u32, Priority)]) -> Scheduler {
        let mut scheduler = Scheduler::default();
        for (stream, priority) in streams {
            scheduler.add(*stream, *priority);
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
        scheduler.add(3, whole);
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
}
