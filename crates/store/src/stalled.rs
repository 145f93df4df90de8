//! Readers that stall, and the space that is taken back from them.
//!
//! ```text
//!   read ──takes some──► read          watched by each sweep
//!     └──too little for a minute───────► stalled ──a new answer needs the space──► taken back
//! ```
//!
//! A segment takes space until its last reader is gone. What waits for readers so is bounded, and
//! beyond that new answers are not stored. A client that takes a byte now and then would keep it so
//! for as long as it likes: the space of those who took too little for a minute is taken back, and
//! their bodies break off. Too little is next to nothing for each reader, and for a segment what
//! would take long to come to its size: who keeps a part of a zone takes as much every few minutes.
//!
//! 1. Nothing is taken back unless new answers are not stored for its sake, and then as much as it
//!    takes for another segment: first what has left, the slowest first, then the oldest.
//! 2. Who reads gets an error and no other bytes: the file ends where it begins, and says so first.
//! 3. A segment that would be loaded again at the next start stays whole.

use crate::admit::NotStored;
use crate::disk::segment::Retired;
use crate::lock::{lock, read};
use crate::sweep::{Eviction, Readers};
use crate::volume::Inner;

impl Inner {
    /// Takes segments back, if that is due. The caller holds the turn.
    pub(crate) fn take_back_stalled(&self) {
        let now_ms = self.clock.steady();
        self.watch_all_readers(now_ms);
        let is_blocked = || self.may_have_room(&lock(&self.disk.log)) == Err(NotStored::Full);
        // Each round takes one back, or evicts one, so the loop ends.
        while is_blocked() {
            let goes_on = match self.stalled_one(now_ms) {
                Some(stalled) => self.take_back(stalled),
                None => {
                    let has_stalled = self.has_oldest_stalled(now_ms);
                    let evict = || self.evict_oldest(Readers::Counted);
                    has_stalled && matches!(evict(), Eviction::Done(_))
                }
            };
            if !goes_on {
                return;
            }
        }
    }

    fn watch_all_readers(&self, now_ms: u64) {
        let read_now: Vec<u32> = {
            let files = read(&self.disk.files);
            let watched = files.iter().filter(|(_, file)| file.is_watched());
            watched.map(|(id, _)| *id).collect()
        };
        let log = lock(&self.disk.log);
        for retired in &log.retired {
            retired.file.watch_readers(now_ms, retired.cost);
        }
        let files = read(&self.disk.files);
        for id in read_now {
            if let (Some(file), Some(segment)) = (files.get(&id), log.segments.get(&id)) {
                file.watch_readers(now_ms, u64::from(segment.size));
            }
        }
    }

    /// Takes that segment from the list of those that have left whose readers stall most.
    fn stalled_one(&self, now_ms: u64) -> Option<Retired> {
        let mut log = lock(&self.disk.log);
        let rate = |it: &Retired| {
            // INVARIANT 3.
            let is_whole = it.path == self.disk.segment_path(it.segment);
            let rate = it.file.stalled_rate(now_ms, it.cost);
            rate.filter(|_| !is_whole)
        };
        let all = log.retired.iter().enumerate();
        let rates = all.filter_map(|(at, it)| Some((rate(it)?, at)));
        let (_, slowest) = rates.min()?;
        Some(log.retired.remove(slowest))
    }

    /// Gives the space of a segment back; false if the disk does not let it go.
    fn take_back(&self, stalled: Retired) -> bool {
        if stalled.file.take_back().is_ok() && self.unlink(&stalled.path) {
            lock(&self.disk.log).discharge(stalled.cost);
            return true;
        }
        lock(&self.disk.log).retired.push(stalled);
        false
    }

    fn has_oldest_stalled(&self, now_ms: u64) -> bool {
        let oldest = {
            let log = lock(&self.disk.log);
            let mut others = log.segments.iter().filter(|(id, _)| **id != log.active);
            others.next().map(|(id, segment)| (*id, segment.size))
        };
        let Some((id, size)) = oldest else {
            return false;
        };
        let files = read(&self.disk.files);
        let file = files.get(&id);
        file.is_some_and(|file| file.stalled_rate(now_ms, u64::from(size)).is_some())
    }
}
