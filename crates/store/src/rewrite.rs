//! Keeping what is in use: before the oldest segment goes, its used entries are written again.
//!
//! A turn is done by the disk thread when hardly a segment is free. It goes through the summary of
//! the oldest segment, writes what pays most to the end of the log, and has it evicted. What
//! pays most is worth most for the space that it takes, and what leaves must be worth less than
//! what comes (`choice`). Each turn adds two ninths of the segment to a credit that pays for this,
//! so that for each byte of new data at most two sevenths of a byte are written again.
//!
//! 1. An entry is moved only if it still stands where the turn found it, under the lock of its
//!    shard; a newer one or a removal wins.
//! 2. Moving is no use: its time of last use stays, and the count of its uses is halved. So an
//!    entry that nobody asks for again leaves after as many turns as its uses have bits.
//! 3. The credit is at most two segments, so a quiet time buys no burst.
//! 4. What was written again is on the device before the segment that it stood in goes, so that no
//!    power failure takes an entry that was complete; so is what a dead process may have written
//!    again. The disk thread does not wait for that, nor does who needs the space at once: such
//!    haste is counted.
//!
//! Zones of fewer than eight segments do without: a free segment would cost them too much.
//! `docs/eviction.md` compares this with other policies.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use bytes::Bytes;

use crate::admit::{Hold, NewBody, Publish, Source};
use crate::choice::{Extent, Lost, worth};
use crate::disk::format::{Kind, payload_sum};
use crate::disk::segment::{Load, Log, Retired, Turned, file_cost};
use crate::disk::writer::Job;
use crate::entry::{Body, Pins, Slice, Stored};
use crate::fill::Fill;
use crate::index::Slot;
use crate::key::Key;
use crate::lock::lock;
use crate::volume::Inner;

/// At most one segment in so many is kept free, and at least one, so that callers seldom evict
/// themselves.
const FREE_SHARE: u64 = 32;
/// Zones with fewer segments keep none free.
const FEW_SEGMENTS: u64 = 8;
/// At most so many bytes in so many of what is evicted are written again.
const REWRITTEN: u64 = 2;
const OF_EVICTED: u64 = 9;
/// Uses that count. More would outlast too many turns.
const MOST_HITS: u16 = 255;
/// The most that the credit holds, in segments: enough for an entry that is larger than its share.
const MAX_CREDIT: u64 = 2;

/// An entry that may be written again.
pub(crate) struct Candidate {
    pub(crate) slot: Slot,
    /// Bytes that this takes.
    pub(crate) cost: u64,
    /// Uses, as far as they count still.
    uses: f64,
}

impl Candidate {
    /// Worth of each of its bytes.
    fn worth(&self) -> f64 {
        worth(self.uses, self.cost)
    }
}

/// True if an entry that needs a segment may be written again.
pub(crate) fn may_be_moved(slot: &Slot, segment: u32) -> bool {
    // What is not in slices and stands elsewhere came in its place meanwhile.
    !slot.is_in_flight() && (slot.is_sliced() || slot.place().segment == segment)
}

impl Inner {
    /// Orders the disk thread to evict ahead of need, if that is due.
    pub(crate) fn order_turn(&self) {
        let is_due = {
            let log = lock(&self.disk.log);
            log.plan.limit.is_some_and(|limit| {
                let cost = file_cost(log.plan.segment_size).max(1);
                let taken = log.file_bytes + log.planned_bytes;
                let free = limit.saturating_sub(taken) / cost;
                let all = limit / cost;
                // What waits in the queue has its place already; one more is for what comes.
                let wanted = self.conf.queue / cost + 1;
                all >= FEW_SEGMENTS && free < wanted.min(all / FREE_SHARE).max(1)
            })
        };
        self.is_full.store(is_due, Ordering::Relaxed);
        if is_due && !self.is_turn_queued.swap(true, Ordering::AcqRel) {
            self.disk.queue.push(Job::Turn);
        }
    }

    /// Rewrites what is in use in the oldest segment, and evicts it.
    pub(crate) fn turn(&self) {
        self.is_turn_queued.store(false, Ordering::Release);
        if self.is_closed() || self.rests() {
            return;
        }
        // What nobody reads goes before what is in use.
        if self.make_room_of_set_aside() {
            return;
        }
        let Some((id, size, keys)) = self.oldest_keys() else {
            return;
        };
        self.keep_used(id, u64::from(size), &keys);
        if self.has_unsynced_copies() {
            // INVARIANT 4.
            self.settle_and_evict(id, id);
        } else {
            self.evict_if_oldest(id);
        }
    }

    /// Writes again what pays most of a segment, within the credit, and notes what is lost with the
    /// rest.
    fn keep_used(&self, id: u32, size: u64, keys: &[Key]) {
        let saved = self.rewrite_credit.load(Ordering::Relaxed);
        let before = (saved + size * REWRITTEN / OF_EVICTED).min(size * MAX_CREDIT);
        let mut credit = before;
        let mut lost = Lost::default();
        for candidate in self.candidates(keys, |slot| may_be_moved(slot, id)) {
            let Candidate { cost, uses, .. } = candidate;
            let is_kept = uses > 0.0
                && cost <= credit
                && self.disk.queue.has_room(cost)
                && self.rewrite(&candidate, id, 1).is_some();
            if is_kept {
                credit -= cost;
                continue;
            }
            // All of it is lost now, also what stands in later segments, which will count as dead.
            lost.worth += candidate.worth() * cost as f64;
            if uses > 0.0 {
                self.limits.choice.remember(&candidate.slot.key, uses);
            }
        }
        let copied = before - credit;
        lost.bytes = size.saturating_sub(copied);
        self.rewrite_credit.store(credit, Ordering::Relaxed);
        let segments = lock(&self.disk.log).segments.len() as u64;
        // Not under the lock of the log: each shard is locked for it.
        let entries = self.index.count();
        let zone = Extent { segments, entries };
        self.limits.choice.note_turn(lost, self.now_s(), zone);
    }

    /// True if something was written again that is not on the device, and is to be.
    pub(crate) fn has_unsynced_copies(&self) -> bool {
        !self.conf.flush.is_zero() && !self.disk.copies.are_synced()
    }

    /// Orders that copies be synced.
    pub(crate) fn settle(&self) {
        self.disk.queue.push(Job::Settle(self.disk.copies.order()));
    }

    /// Orders that copies be synced, and segments evicted then, from one to another one.
    pub(crate) fn settle_and_evict(&self, segment: u32, through: u32) {
        let order = self.disk.copies.order();
        lock(&self.disk.log).turned = Some(Turned {
            segment,
            through,
            order,
        });
        self.disk.queue.push(Job::Settle(order));
    }

    /// Syncs, and evicts the segment whose copies that was about.
    pub(crate) fn sync_and_evict(&self) {
        let written = self.disk.copies.written();
        let turned = lock(&self.disk.log)
            .turned
            .filter(|turned| turned.order <= written);
        // What could not be synced was counted and told; a disk that fails promises nothing.
        let _ = self.sync_segments();
        if let Some(turned) = turned {
            // The disk thread may have ordered another one meanwhile.
            let is_it = |other: &mut Turned| other.order == turned.order;
            lock(&self.disk.log).turned.take_if(is_it);
            self.evict_through(turned.segment, turned.through);
        }
        self.unlink_synced();
    }

    /// Unlinks what was evicted while it was synced: until here the syncer held its file.
    fn unlink_synced(&self) {
        let is_due = |log: &Log| log.retired.iter().any(Retired::is_idle);
        if !is_due(&lock(&self.disk.log)) {
            return;
        }
        let _turn = lock(&self.disk.turning);
        if !self.is_shut() {
            self.unlink_retired();
        }
    }

    /// Entries that are wanted, what pays most first.
    pub(crate) fn candidates(
        &self,
        keys: &[Key],
        is_wanted: impl Fn(&Slot) -> bool,
    ) -> Vec<Candidate> {
        let (choice, now) = (&self.limits.choice, self.now_s());
        let pace = choice.pace();
        let mut found: Vec<Candidate> = Vec::new();
        for key in keys {
            let Some(slot) = self.index.get(key).filter(&is_wanted) else {
                continue;
            };
            let uses = slot.hits().min(MOST_HITS) + u16::from(choice.uses_before(key));
            found.push(Candidate {
                slot,
                cost: slot.disk_size(),
                uses: pace.faded(uses.into(), now.saturating_sub(slot.used)),
            });
        }
        found.sort_by(|one, other| other.worth().total_cmp(&one.worth()));
        found
    }

    /// Number and size of the oldest segment, and the keys of entries that need it.
    pub(crate) fn oldest_keys(&self) -> Option<(u32, u32, Vec<Key>)> {
        // What a segment that is yet to be read has replaced must not be written again.
        if !self.loading.is_done() {
            return None;
        }
        let log = lock(&self.disk.log);
        let active = log.active;
        let (&id, segment) = log.segments.iter().find(|(id, _)| **id != active)?;
        if segment.open > 0
            || !segment.fills.is_empty()
            || !segment.is_sealed
            || segment.load != Load::Loaded
            || !self.may_leave(&log, id, segment)
        {
            return None;
        }
        let size = segment.size;
        let dependents = segment.dependents.iter().collect::<Vec<_>>();
        drop(log);
        let slots = dependents
            .iter()
            .filter_map(|one| self.index.dependent(*one));
        let mut keys: Vec<Key> = slots.map(|slot| slot.key).collect();
        let file = self.disk.file(id)?;
        let found = self.disk.read_summary(id, &file, size).ok()??;
        let entries = found.rows.iter().filter(|row| row.kind == Kind::Entry);
        let stands = |key: &Key| {
            self.index
                .get(key)
                .is_some_and(|it| it.place().segment == id)
        };
        keys.extend(entries.map(|row| row.key).filter(stands));
        keys.sort_unstable_by_key(|key| key.0);
        keys.dedup();
        Some((id, size, keys))
    }

    /// Writes an entry again if it needs the segment that is leaving; its count of uses is halved
    /// so many times.
    pub(crate) fn rewrite(&self, candidate: &Candidate, leaving: u32, halvings: u32) -> Option<()> {
        let slot = &candidate.slot;
        let stored = self.disk.read_entry(slot).ok()?;
        let needs_it = slot.place().segment == leaving || stored.segments().contains(&leaving);
        if !needs_it {
            return None;
        }
        self.disk.copies.begin();
        let copied = self.copy(&stored, slot, halvings);
        self.disk.copies.end();
        copied?;
        self.counters
            .rewritten_bytes
            .fetch_add(candidate.cost, Ordering::Relaxed);
        Some(())
    }

    fn copy(&self, stored: &Stored, slot: &Slot, halvings: u32) -> Option<()> {
        // Until the entry is published, its new slices are those of a running fill.
        let fill = Arc::new(Fill::new(Weak::new(), self.clock.steady(), None));
        let mut hold = Hold::new(self.this.upgrade()?, fill);
        let (body, source) = match &stored.body {
            Body::Inline(body) => (NewBody::Inline(vec![body.clone()]), Source::Memory),
            Body::Sliced(sliced) => {
                let mut slices = Vec::new();
                for slice in &sliced.slices {
                    self.copy_slice(slice, &mut slices, &mut hold)?;
                }
                let segments = crate::entry::segments_of(&slices);
                let pins = Pins::new(self.disk.files(&segments)?);
                (NewBody::Sliced(slices), Source::Pins(pins))
            }
        };
        let publish = Publish {
            key: stored.key,
            head: stored.head.clone(),
            body,
            created_ms: stored.created_ms,
            replaces: Some(slot.place()),
            halvings,
            source,
            is_doubtful: false,
        };
        self.publish(publish).ok().map(|_| ())
    }

    /// Copies a slice to the end of the log, in as many pieces as it takes.
    fn copy_slice(&self, slice: &Slice, slices: &mut Vec<Slice>, hold: &mut Hold) -> Option<()> {
        let file = self.disk.file(slice.segment)?;
        let mut bytes = vec![0; slice.len as usize];
        file.read_at(&mut bytes, u64::from(slice.offset)).ok()?;
        if payload_sum(&bytes) != slice.checksum {
            return None;
        }
        let mut rest = Bytes::from(bytes);
        while !rest.is_empty() {
            // A slice is at most a mebibyte.
            let place = hold.reserve_extent(rest.len() as u32).ok()?;
            let piece = rest.split_to(place.size as usize);
            let checksum = payload_sum(&piece);
            let wrote = self.write_record(place, &[piece]);
            self.end_reservation(place.segment);
            if !wrote {
                return None;
            }
            slices.push(Slice {
                start: slices
                    .last()
                    .map_or(0, |last| last.start + u64::from(last.len)),
                segment: place.segment,
                offset: place.offset,
                len: place.size,
                checksum,
            });
        }
        Some(())
    }
}
