//! Giving back space that nothing lives in, whether or not a limit asks for it.
//!
//! ```text
//!   oldest segment ─ something lives there ─► witness, looked at again by the next sweep
//!         │                    └─ the log is mostly dead ─► written again at the end
//!         └─ nothing does ─► what replaced it is synced ─► unlinked
//! ```
//!
//! Each sweep looks at the oldest segment. What says that it lives is one entry, the witness: that
//! which was used last, so as a rule the last to go. While it stands where it stood, nothing is
//! read. Where the witness is gone, another one is looked for in the summary.
//!
//! One entry that is asked for again and again would keep everything behind it. So when less than
//! half of the log lives, what lives in the oldest segment is written again at the end of the log.
//! Before that can be due again as much must have died as was written again: no byte of new data
//! costs more than one that is written again, and a zone without a limit takes at most twice what
//! lives in it, and `SLACK` segments.
//!
//! 1. Segments leave in the order in which they came, here too: a tombstone, or an entry that
//!    replaced another one, goes only when nothing older is left that it hides.
//! 2. A segment in which nothing lives goes when all that was written before that was found is on
//!    the device: what is missing there has been replaced, removed or moved by something that a
//!    power failure leaves.
//! 3. The newest segment goes only when no other one is left, nothing lives or is being written in
//!    it, and nothing came since the last sweep; its number is not used again.
//!
//! Nothing is done before all segments are loaded.

use crate::disk::format::{Kind, Row, Shutdown};
use crate::disk::rows::EncodedRows;
use crate::disk::segment::{Load, Log, Place, Segment, file_cost};
use crate::disk::writer::Job;
use crate::index::{Dependent, Slot};
use crate::key::Key;
use crate::lock::lock;
use crate::rewrite::{Candidate, may_be_moved};
use crate::volume::Inner;

/// Segments that one sweep gives back; the next one goes on. Arbitrary: four gigabytes a second,
/// and a summary is read for each.
const MOST_AT_ONCE: usize = 64;
/// Segments that a log may have beyond twice what lives in it before anything is written again:
/// those at its ends, of which a part is used.
const SLACK: u64 = 2;
/// Bytes that one sweep writes again, if it is not one entry alone. Arbitrary: what a disk writes
/// in less than a second.
const MOST_MOVED: u64 = 64 << 20;
/// A longer entry is not written again to give space back: it goes. Nobody waits for a sweep, but
/// a directory is not lent while one writes. Arbitrary: a few seconds.
const LONGEST_MOVED: u64 = 1 << 30;

/// Progress of sweeps in the oldest segment.
#[derive(Debug, Default)]
pub(crate) struct Reclaim {
    /// Entry that lives in the oldest segment.
    witness: Option<Witness>,
    /// The newest segment and its end, as of the last sweep.
    end: Option<(u32, u32)>,
}

/// An entry that needs a segment.
#[derive(Clone, Copy, Debug)]
struct Witness {
    segment: u32,
    key: Key,
    place: Place,
}

/// A segment as it is looked through.
struct Oldest {
    id: u32,
    size: u32,
    /// Rows of the segment, if they are not on the disk.
    rows: Option<EncodedRows>,
    dependents: Vec<Dependent>,
}

impl Inner {
    /// Gives back what nothing lives in; may wait for the disk.
    pub(crate) fn reclaim(&self) {
        if !self.loading.is_done() || self.is_closed() || self.health.is_failed() {
            return;
        }
        let mut reclaim = lock(&self.reclaim);
        self.close_dead_end(&mut reclaim);
        if lock(&self.disk.log).turned.is_some() {
            return;
        }
        let mut dead = None;
        let mut after = 0;
        for _ in 0..MOST_AT_ONCE {
            let Some(oldest) = self.oldest_after(after) else {
                break;
            };
            if self.lives(&oldest, &mut reclaim) {
                break;
            }
            after = oldest.id;
            dead.get_or_insert(oldest.id);
        }
        match dead {
            Some(first) => self.let_go(first, after),
            None => self.thin_out(&reclaim),
        }
    }

    /// INVARIANT 3: closes the newest segment if nothing lives in the whole log.
    fn close_dead_end(&self, reclaim: &mut Reclaim) {
        let closed = {
            let mut log = lock(&self.disk.log);
            let active = log.active;
            let end = log.segments.get(&active).map(|it| (active, it.tail));
            let is_quiet = std::mem::replace(&mut reclaim.end, end) == end;
            let is_unused = |it: &Segment| it.open == 0 && it.fills.is_empty();
            let is_alone = log.segments.len() == 1 && log.segments.values().all(is_unused);
            // Under the lock of the log nothing can come in between.
            if !is_quiet || !is_alone || active == 0 || self.index.holdings().disk_bytes() > 0 {
                return;
            }
            log.close_active()
        };
        if let Some(id) = closed {
            self.disk.queue.push(Job::Seal(id));
        }
    }

    /// The first segment behind another one, if nothing is written to it any more.
    fn oldest_after(&self, after: u32) -> Option<Oldest> {
        let log = lock(&self.disk.log);
        let (&id, segment) = log.segments.range(after + 1..).next()?;
        let is_quiet = segment.open == 0 && segment.fills.is_empty();
        if id == log.active || !is_quiet || segment.load != Load::Loaded {
            return None;
        }
        Some(Oldest {
            id,
            size: segment.size,
            rows: (!segment.is_sealed).then(|| segment.rows.clone()),
            dependents: segment.dependents.iter().collect(),
        })
    }

    /// True if an entry needs a segment, as far as is known.
    fn lives(&self, oldest: &Oldest, reclaim: &mut Reclaim) -> bool {
        if self.index.holdings().disk_bytes() == 0 {
            return false;
        }
        let known = reclaim.witness.filter(|it| it.segment == oldest.id);
        if known.is_some_and(|witness| self.stands(&witness)) {
            return true;
        }
        let Some(rows) = self.rows_of(oldest) else {
            // What cannot be read leaves in its turn.
            return true;
        };
        let entries = rows.iter().filter(|row| row.kind == Kind::Entry);
        let own = entries.filter_map(|row| {
            let slot = self.index.get(&row.key)?;
            let stands = slot.place().segment == oldest.id && slot.place().offset == row.offset;
            stands.then_some(slot)
        });
        let others = oldest.dependents.iter();
        let others = others.filter_map(|one| self.index.dependent(*one));
        let last = own.chain(others).max_by_key(|slot| slot.used);
        reclaim.witness = last.map(|slot| Witness {
            segment: oldest.id,
            key: slot.key,
            place: slot.place(),
        });
        reclaim.witness.is_some()
    }

    fn stands(&self, witness: &Witness) -> bool {
        let slot = self.index.get(&witness.key);
        slot.is_some_and(|slot| slot.place() == witness.place)
    }

    fn rows_of(&self, oldest: &Oldest) -> Option<Vec<Row>> {
        if let Some(rows) = &oldest.rows {
            return rows.decode();
        }
        let file = self.disk.file(oldest.id)?;
        let found = self.disk.read_summary(oldest.id, &file, oldest.size);
        Some(found.ok()??.rows)
    }

    /// Evicts segments without anything alive. INVARIANT 2.
    fn let_go(&self, first: u32, last: u32) {
        if self.conf.flush.is_zero() {
            return self.evict_through(first, last);
        }
        self.settle_and_evict(first, last);
    }

    /// Evicts segments from one to another one, if the first still is the oldest.
    pub(crate) fn evict_through(&self, first: u32, last: u32) {
        let mut next = Some(first);
        while let Some(id) = next {
            // INVARIANT 3.
            let is_end = lock(&self.disk.log).segments.len() == 1;
            if is_end && self.write_superblock(Shutdown::Unclean).is_err() {
                return;
            }
            self.evict_if_oldest(id);
            let log = lock(&self.disk.log);
            let oldest = log.segments.keys().next().copied();
            next = oldest.filter(|oldest| *oldest > id && *oldest <= last);
        }
    }

    /// Writes again what lives in the oldest segment, if most of the log is dead.
    fn thin_out(&self, reclaim: &Reclaim) {
        let is_due = {
            let log = lock(&self.disk.log);
            self.is_mostly_dead(&log)
        };
        let Some((id, _, keys)) = self.oldest_keys().filter(|_| is_due) else {
            return;
        };
        // It is the one that was looked at.
        if reclaim.witness.is_none_or(|witness| witness.segment != id) {
            return;
        }
        let candidates = self.candidates(&keys, |slot| may_be_moved(slot, id));
        let is_whole = self.move_all(&candidates, id);
        if self.has_unsynced_copies() {
            // The segment may be evicted before the next sweep: INVARIANT 4 of `rewrite`.
            self.settle();
        }
        // What is left is too long.
        let gives_up = candidates.iter().any(|it| it.cost > LONGEST_MOVED);
        if is_whole && gives_up {
            self.let_go(id, id);
        }
    }

    /// Moves entries out of a segment, as many as one sweep may; true if none that could be moved
    /// needs it any more.
    fn move_all(&self, candidates: &[Candidate], id: u32) -> bool {
        let mut left = MOST_MOVED;
        let mut is_whole = true;
        for candidate in candidates.iter().filter(|it| it.cost <= LONGEST_MOVED) {
            let is_first = left == MOST_MOVED;
            if candidate.cost > left && !is_first || self.is_closed() {
                return false;
            }
            left = left.saturating_sub(candidate.cost);
            is_whole &= self.move_entry(candidate, id);
        }
        is_whole
    }

    /// True if less than half of the log lives, but for what is at its ends.
    fn is_mostly_dead(&self, log: &Log) -> bool {
        let segments = log.segments.values();
        let bytes: u64 = segments.map(|segment| file_cost(segment.size)).sum();
        let slack = SLACK * file_cost(log.plan.segment_size);
        bytes.saturating_sub(slack) > 2 * self.index.holdings().disk_bytes()
    }

    /// Moves an entry out of a segment; true if it does not need the segment any more.
    fn move_entry(&self, candidate: &Candidate, leaving: u32) -> bool {
        let Slot { key, .. } = candidate.slot;
        self.rewrite(candidate, leaving, 0).is_some() || {
            let slot = self.index.get(&key);
            slot.is_none_or(|slot| slot.place() != candidate.slot.place())
        }
    }
}
