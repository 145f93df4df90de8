//! Keeping what is in use: before the oldest segment goes, its used entries are written again.
//!
//! A turn is done by the disk thread when hardly a segment is free. It goes through the summary of
//! the oldest segment, writes what pays most to the end of the log, and has it evicted. What
//! pays most is what was used most often for the space that it takes. Each turn adds a sixth of
//! the segment to a credit that pays for this, so that for each byte of new data at most a fifth of
//! a byte is written again.
//!
//! 1. An entry is moved only if it still stands where the turn found it, under the lock of its
//!    shard; a newer one or a removal wins.
//! 2. Moving is no use: its time of last use stays, and the count of its uses is halved. So an
//!    entry that nobody asks for again leaves after as many turns as its uses have bits.
//! 3. The credit is at most two segments, so a quiet time buys no burst.
//! 4. What was written again is on the device before the segment that it stood in goes, so that no
//!    power failure takes an entry that was complete. The disk thread does not wait for that, nor
//!    does who needs the space at once: such haste is counted.
//!
//! Zones of fewer than eight segments do without: a free segment would cost them too much.
//! `docs/eviction.md` compares this with other policies.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use bytes::Bytes;

use crate::admit::{Hold, NewBody, Publish, Source};
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
const FREE_SHARE: u64 = 16;
/// Zones with fewer segments keep none free.
const FEW_SEGMENTS: u64 = 8;
/// At most one byte in so many of what is evicted is written again.
const REWRITE_SHARE: u64 = 6;
/// The most that the credit holds, in segments: enough for an entry that is larger than its share.
const MAX_CREDIT: u64 = 2;

/// An entry that may be written again.
pub(crate) struct Candidate {
    pub(crate) slot: Slot,
    /// Bytes that this takes.
    pub(crate) cost: u64,
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
        let size = u64::from(size);
        let credit = self.rewrite_credit.load(Ordering::Relaxed) + size / REWRITE_SHARE;
        let mut credit = credit.min(size * MAX_CREDIT);
        let mut has_copies = false;
        let is_in_use = |slot: &Slot| {
            let may_need_it = slot.is_sliced() || slot.place().segment == id;
            slot.hits() > 0 && !slot.is_in_flight() && may_need_it
        };
        for candidate in self.candidates(&keys, is_in_use) {
            if !self.disk.queue.has_room(candidate.cost) {
                break;
            }
            if candidate.cost <= credit && self.rewrite(&candidate, id, 1).is_some() {
                credit -= candidate.cost;
                has_copies = true;
            }
        }
        self.rewrite_credit.store(credit, Ordering::Relaxed);
        if !has_copies || self.conf.flush.is_zero() {
            self.evict_if_oldest(id);
        } else {
            // INVARIANT 4. The records of the copies are in the queue before this job.
            lock(&self.disk.log).turned = Some(Turned {
                segment: id,
                through: id,
                is_written: false,
            });
            self.disk.queue.push(Job::Settle);
        }
    }

    /// Notes that the copies of what was in use are in the kernel.
    pub(crate) fn note_copies(&self) {
        if let Some(turned) = &mut lock(&self.disk.log).turned {
            turned.is_written = true;
        }
    }

    /// Syncs, and evicts the segment whose copies that was about.
    pub(crate) fn sync_and_evict(&self) {
        let turned = lock(&self.disk.log)
            .turned
            .filter(|turned| turned.is_written);
        // What could not be synced was counted and told; a disk that fails promises nothing.
        let _ = self.sync_segments();
        if let Some(turned) = turned {
            lock(&self.disk.log).turned = None;
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
        let mut found: Vec<Candidate> = Vec::new();
        for key in keys {
            let Some(slot) = self.index.get(key).filter(&is_wanted) else {
                continue;
            };
            let size = u64::from(slot.place().size);
            let body = if slot.is_sliced() { slot.body_len() } else { 0 };
            found.push(Candidate {
                slot,
                cost: size + body,
            });
        }
        // Uses for each byte, without fractions. An entry is at most 2^48 bytes long.
        let worth =
            |of: &Candidate, by: &Candidate| u128::from(of.slot.hits()) * u128::from(by.cost);
        found.sort_by(|one, other| worth(other, one).cmp(&worth(one, other)));
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
        keys.extend(entries.map(|row| row.key));
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
        self.copy(&stored, slot, halvings)?;
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
