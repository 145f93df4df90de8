//! Reading everything that a zone holds, and comparing it with its checksums.
//!
//! For tools, and for the scrub that runs in the background (`scrub`): bytes that a disk has lost
//! are found before somebody asks for them, while the origin still has them. Segment by segment,
//! oldest first, each in the order of its records; so most of it is read in one direction. It
//! holds no lock while it reads, marks nothing used, and is for a thread of its own.
//!
//! 1. What became visible before a verification began was compared or is gone, if the verification
//!    says that it is complete. What is written again meanwhile is compared by whoever does that.
//! 2. An entry that is corrupt is removed, counted and told, as a look-up would do.
//! 3. An entry that the disk does not give stays on it: the disk may give it later.

use std::io;

use crate::disk::format::{Kind, payload_sum};
use crate::disk::open::SegmentFile;
use crate::disk::reader::ReadError;
use crate::entry::{Body, Slice, Stored};
use crate::index::Slot;
use crate::lock::{lock, read};
use crate::volume::{Inner, Volume};

/// Progress of a verification.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Entries that were looked at.
    pub entries: u64,
    /// Entries that there are now.
    pub all_entries: u64,
    /// Bytes that were read.
    pub bytes: u64,
}

/// Result of a verification.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Verified {
    /// Entries that were looked at.
    pub entries: u64,
    /// Bytes that were read.
    pub bytes: u64,
    /// Entries that were corrupt, and are gone.
    pub corrupt: u64,
    /// Entries that the disk does not give, and stay.
    pub unread: u64,
    /// True if every entry was looked at.
    pub is_complete: bool,
}

/// Treatment of the page cache by a verification.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Care {
    /// Bytes that are read stay there: somebody waits for the result.
    None,
    /// Bytes that were not there are not there afterwards.
    Cache,
}

/// Result of comparing an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Compared {
    Sound,
    Corrupt,
    Unread,
    /// The entry is not there any more, or not yet.
    Gone,
    /// The verification is to end.
    Stopped,
}

/// A verification that runs.
struct Verification<'a> {
    inner: &'a Inner,
    care: Care,
    verified: Verified,
    /// Function that is told the progress, after each slice and each entry; false ends the
    /// verification.
    progress: &'a mut dyn FnMut(Progress) -> bool,
}

impl Volume {
    /// Compares all entries with their checksums.
    pub(crate) fn verify(&self, progress: &mut dyn FnMut(Progress) -> bool) -> Verified {
        self.inner.verify_all(Care::None, progress)
    }
}

impl Inner {
    /// Compares all entries with their checksums.
    pub(crate) fn verify_all(
        &self,
        care: Care,
        progress: &mut dyn FnMut(Progress) -> bool,
    ) -> Verified {
        let mut verification = Verification {
            inner: self,
            care,
            verified: Verified::default(),
            progress,
        };
        verification.verified.is_complete = verification.run();
        verification.verified
    }

    /// Compares an entry with its checksums. Tells `step` how many bytes of its body were compared;
    /// false ends it.
    pub(crate) fn compare(
        &self,
        slot: &Slot,
        care: Care,
        step: &mut dyn FnMut(u64) -> bool,
    ) -> Compared {
        if slot.is_in_flight() {
            return Compared::Gone;
        }
        let stored = match self.read_entry(slot, care) {
            Ok(stored) => stored,
            Err(error) => return self.why_not(slot, &error),
        };
        let Body::Sliced(sliced) = &stored.body else {
            return if step(stored.len) {
                Compared::Sound
            } else {
                Compared::Stopped
            };
        };
        for slice in &sliced.slices {
            // Holding the file keeps the segment's bytes where they are.
            let Some(file) = self.disk.file(slice.segment) else {
                return Compared::Gone;
            };
            match self.compare_slice(slice, &file, care) {
                Ok(true) => {}
                Ok(false) => return Compared::Corrupt,
                Err(_) => {
                    file.note_gap(slice.stretch());
                    return Compared::Unread;
                }
            }
            if !step(u64::from(slice.len)) {
                return Compared::Stopped;
            }
        }
        Compared::Sound
    }

    fn read_entry(&self, slot: &Slot, care: Care) -> Result<Stored, ReadError> {
        if care == Care::None {
            return self.disk.read_entry(slot);
        }
        // What is in memory is what readers get.
        if let Some(read) = self.disk.try_read_entry(slot) {
            return read;
        }
        let read = self.disk.read_entry(slot);
        let place = slot.place();
        if let Some(file) = self.disk.file(place.segment) {
            let start = u64::from(place.offset);
            let stretch = start..start + u64::from(place.size);
            file.forget(stretch);
        }
        read
    }

    fn compare_slice(&self, slice: &Slice, file: &SegmentFile, care: Care) -> io::Result<bool> {
        let disk = &self.disk;
        if care == Care::None {
            return disk.is_slice_sound(slice, file);
        }
        let mut bytes = vec![0; slice.len as usize];
        let tried = disk
            .readers
            .try_read_at(file, &mut bytes, slice.offset.into());
        if matches!(tried, Ok(true)) {
            return Ok(payload_sum(&bytes) == slice.checksum);
        }
        let is_sound = disk.is_slice_sound(slice, file);
        file.forget(slice.stretch());
        is_sound
    }

    fn why_not(&self, slot: &Slot, error: &ReadError) -> Compared {
        match error {
            ReadError::Gone => Compared::Gone,
            ReadError::Io(_) => Compared::Unread,
            // A record may be overwritten by its own tombstone; then it is nobody's any more.
            ReadError::Corrupt => {
                if self.is_current(slot) {
                    Compared::Corrupt
                } else {
                    Compared::Gone
                }
            }
        }
    }

    fn is_current(&self, slot: &Slot) -> bool {
        let now = self.index.get(&slot.key).map(|slot| slot.place());
        now == Some(slot.place())
    }
}

impl Verification<'_> {
    /// Compares all entries; false if the verification was ended.
    fn run(&mut self) -> bool {
        let mut last = 0;
        if !self.inner.loading.wait() || self.inner.is_closed() {
            return false;
        }
        while let Some((id, slots)) = self.segment_after(last) {
            for slot in &slots {
                if !self.verify(slot) {
                    return false;
                }
            }
            last = id;
        }
        !self.inner.is_closed()
    }

    /// The next segment, and the entries whose records stand there, in their order.
    fn segment_after(&self, last: u32) -> Option<(u32, Vec<Slot>)> {
        let disk = &self.inner.disk;
        let first = last.saturating_add(1);
        let (id, size, rows) = {
            let log = lock(&disk.log);
            let (id, segment) = log.segments.range(first..).next()?;
            let rows = (!segment.is_sealed).then(|| segment.rows.clone());
            (*id, segment.size, rows)
        };
        let rows = match rows {
            Some(rows) => rows.decode(),
            None => {
                let file = disk.file(id);
                let found = file.map(|file| disk.read_summary(id, &file, size));
                found.and_then(|found| Some(found.ok()??.rows))
            }
        };
        let Some(rows) = rows else {
            // Its summary cannot be read, so the index has to say.
            return Some((id, self.slots_in(id)));
        };
        let entries = rows.iter().filter(|row| row.kind == Kind::Entry);
        let slots = entries.filter_map(|row| {
            let slot = self.inner.index.get(&row.key)?;
            let place = slot.place();
            ((place.segment, place.offset) == (id, row.offset)).then_some(slot)
        });
        Some((id, slots.collect()))
    }

    /// Looks through the whole index.
    fn slots_in(&self, id: u32) -> Vec<Slot> {
        let mut slots: Vec<Slot> = Vec::new();
        for shard in self.inner.index.shards() {
            let shard = read(shard);
            slots.extend(shard.table.iter().filter(|slot| slot.place().segment == id));
        }
        slots.sort_unstable_by_key(|slot| slot.place().offset);
        slots
    }

    /// False if the verification is to end.
    fn verify(&mut self, slot: &Slot) -> bool {
        let (inner, care) = (self.inner, self.care);
        let compared = inner.compare(slot, care, &mut |bytes| {
            self.verified.bytes += bytes;
            self.is_to_go_on()
        });
        match compared {
            Compared::Stopped => return false,
            // What is not on the disk yet was not looked at, and what is gone need not be.
            Compared::Gone => return true,
            Compared::Sound => {
                if slot.is_unverified() {
                    self.inner.index.verified(&slot.key, slot.place());
                }
            }
            Compared::Corrupt => {
                self.verified.corrupt += 1;
                self.inner.drop_corrupt(&slot.key, slot.place());
            }
            Compared::Unread => self.verified.unread += 1,
        }
        let body_in_record = if slot.is_sliced() { 0 } else { slot.body_len() };
        let rest = u64::from(slot.place().size).saturating_sub(body_in_record);
        self.verified.bytes += rest;
        self.verified.entries += 1;
        self.is_to_go_on()
    }

    fn is_to_go_on(&mut self) -> bool {
        let progress = Progress {
            entries: self.verified.entries,
            all_entries: self.inner.index.count(),
            bytes: self.verified.bytes,
        };
        !self.inner.is_closed() && (self.progress)(progress)
    }
}
