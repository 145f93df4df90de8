//! The file of uses: when each entry was used last and how often, kept over restarts.
//!
//! Once a minute, and at the end, what changed is appended in blocks, each for one segment: an
//! entry is named by where its record stands. When the file is full, all is written to a new one,
//! which takes its name. At the start the blocks of a segment are read with its summary, and the
//! later one counts.
//!
//! 1. A missing or damaged file, or block, costs order only: its entries count as used when the
//!    file was last written, a minute added, or when their segment was made, whichever is later;
//!    without a file, as used now.
//! 2. The file counts against the limit of the zone, and is at most a sixteenth of that. What does
//!    not fit is left out.
//! 3. What changes while it is written is written the next time.
//! 4. The time in which nobody had the zone is no disuse: all uses move by it, if it was more
//!    than a minute. A server that was down overnight starts warm.
//!
//! It is synced before it takes the place of another one, and at the end; in between a power
//! failure may take more than a minute, and nothing but order.

use std::io;
use std::path::PathBuf;

use bytes::Bytes;
use hashbrown::HashMap;

use crate::disk::format::{
    SEGMENT_HEADER, Saving, SegmentHeader, USES_BLOCK, USES_HEADER, Use, UsesBlock, UsesHeader,
    payload_sum,
};
use crate::disk::io::File;
use crate::disk::segment::file_cost;
use crate::disk::{USES_NAME, USES_NEW_NAME};
use crate::index::{Cell, Slot};
use crate::lock::{lock, read};
use crate::volume::{Event, Inner};

/// Between two writings: what the death of the process may take.
pub(crate) const INTERVAL_S: u32 = 60;
/// Uses that are gathered before they are written: some megabytes.
const BATCH: usize = 256 << 10;
/// Blocks are looked for with reads of this size: many small ones at a time.
const READ: u32 = 4096;
/// The least size of a file; zones for which it would be too large do without.
const MIN_SIZE: u32 = 4096;
/// A file is at most one part in so many of the zone.
const SHARE: u64 = 16;
/// A new file has room for so many times what it holds at first.
const ROOM: u64 = 2;

/// The file and what is known of it.
#[derive(Debug, Default)]
pub(crate) struct UsesFile {
    file: Option<File>,
    /// Length of the file: what was counted for it.
    size: u32,
    /// Offset for the next block.
    tail: u32,
    /// Time when the file was last written, seconds since 1970; 0: never.
    saved: u32,
    /// Number of entries that there were then.
    entries: u64,
    /// Number of seconds for which nobody had the zone before it was opened; 0 if they are few.
    away: u32,
    /// Places of the blocks of each segment, until they are loaded.
    blocks: HashMap<u32, Vec<(u32, UsesBlock)>>,
}

/// A use and the place that names its entry.
#[derive(Clone, Copy, Debug)]
struct Found {
    segment: u32,
    used: Use,
}

/// Choice of the uses that are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Which {
    Changed,
    All,
}

/// The reason why not all was written.
enum Stopped {
    /// The uses did not fit.
    Full,
    /// The disk did not take the file.
    Failed(io::Error),
}

impl Inner {
    /// Reads where the blocks stand. What is not understood is written anew.
    pub(crate) fn open_uses(&self, len: u64) {
        let mut uses = lock(&self.uses);
        // A file of ours is not longer than that.
        uses.size = u32::try_from(len).unwrap_or(u32::MAX);
        lock(&self.disk.log).note_kept(file_cost(uses.size));
        let Ok(file) = self.disk.io.open(&self.disk.dir.join(USES_NAME)) else {
            return;
        };
        let mut block = [0; USES_HEADER as usize];
        let is_read = self.disk.io.read_at(&file, &mut block, 0).is_ok();
        let header = UsesHeader::decode(&block, &self.disk.uuid, self.disk.seed);
        if !is_read || header.is_none_or(|header| header.size != uses.size) {
            return;
        }
        uses.tail = USES_HEADER;
        let mut buffer = Vec::new();
        let mut start = uses.tail;
        while let Some(block) = self.block_at(&file, &mut buffer, &mut start, &uses) {
            let tail = uses.tail;
            uses.saved = uses.saved.max(block.saved);
            uses.entries = block.entries;
            // `block_at` saw that it lies in the file, whose length is a `u32`.
            uses.tail = tail + block.whole_len() as u32;
            uses.blocks
                .entry(block.segment)
                .or_default()
                .push((tail, block));
        }
        // A clock that was ahead must not keep the next writing away.
        uses.saved = uses.saved.min(self.now_s());
        let away = self.now_s() - uses.saved;
        uses.away = if away > INTERVAL_S { away } else { 0 };
        uses.file = Some(file);
    }

    /// Number of seconds for which nobody had the zone: INVARIANT 4.
    pub(crate) fn away_s(&self) -> u32 {
        lock(&self.uses).away
    }

    /// The block at the tail, out of a buffer that begins at `start`.
    fn block_at(
        &self,
        file: &File,
        buffer: &mut Vec<u8>,
        start: &mut u32,
        uses: &UsesFile,
    ) -> Option<UsesBlock> {
        let tail = uses.tail;
        let end = tail
            .checked_add(USES_BLOCK)
            .filter(|end| *end <= uses.size)?;
        if end > *start + buffer.len() as u32 {
            *start = tail;
            buffer.resize(READ.min(uses.size - tail) as usize, 0);
            self.disk.io.read_at(file, buffer, u64::from(tail)).ok()?;
        }
        let block = buffer.get((tail - *start) as usize..)?;
        let block = UsesBlock::decode(block, self.disk.seed, tail)?;
        let fits = u64::from(tail) + block.whole_len() <= u64::from(uses.size);
        fits.then_some(block)
    }

    /// The last uses of the entries of a segment, in the order of their offsets, and when those
    /// that are not among them were used: INVARIANT 1.
    pub(crate) fn uses_of(&self, segment: u32) -> (Vec<Use>, u32) {
        let now = self.now_s();
        let made = self.made(segment).unwrap_or(now);
        let mut uses = lock(&self.uses);
        let missing = match uses.file {
            Some(_) => uses.saved.saturating_add(INTERVAL_S).max(made).min(now),
            None => now,
        };
        let blocks = uses.blocks.remove(&segment).unwrap_or_default();
        let file = uses.file.as_ref().and_then(|file| file.try_clone().ok());
        drop(uses);
        let Some(file) = file else {
            return (Vec::new(), missing);
        };
        let mut found: Vec<Use> = Vec::new();
        for (offset, block) in &blocks {
            let mut rows = vec![0; block.rows_len() as usize];
            let start = u64::from(offset + USES_BLOCK);
            let is_read = self.disk.io.read_at(&file, &mut rows, start).is_ok();
            if is_read && payload_sum(&rows) == block.rows_sum {
                found.extend(Use::decode_all(&rows));
            }
        }
        // Stable: of several uses of one entry the last one written stands last.
        found.sort_by_key(|used| used.offset);
        found.dedup_by(|later, kept| {
            let is_same = later.offset == kept.offset;
            if is_same {
                *kept = *later;
            }
            is_same
        });
        (found, missing)
    }

    /// Number of entries when the file was last written; none if nobody knows.
    pub(crate) fn entries_before(&self) -> Option<u64> {
        let uses = lock(&self.uses);
        uses.file.as_ref().map(|_| uses.entries)
    }

    /// Time when a segment was made, seconds since 1970.
    fn made(&self, segment: u32) -> Option<u32> {
        let file = self.disk.file(segment)?;
        let mut block = [0; SEGMENT_HEADER as usize];
        file.read_at(&mut block, 0).ok()?;
        let header = SegmentHeader::decode(&block, &self.disk.uuid, self.disk.seed)?;
        u32::try_from(header.created_ms / 1000).ok()
    }

    /// Writes what changed, if that is due.
    pub(crate) fn sweep_uses(&self) {
        let now = self.now_s();
        let is_due = {
            let mut uses = lock(&self.uses);
            if uses.saved == 0 {
                // The first minute of a zone without a file begins now.
                uses.saved = now;
            }
            now.saturating_sub(uses.saved) >= INTERVAL_S
        };
        if is_due && self.loading.is_done() {
            self.save_uses();
        }
    }

    /// Writes what changed, and syncs it; for the end.
    pub(crate) fn close_uses(&self) {
        if self.loading.is_done() {
            self.save_uses();
        }
        let mut uses = lock(&self.uses);
        if let Some(file) = uses.file.take() {
            // Without it order may be lost, if the machine dies now.
            let _ = self.disk.io.sync(&file);
        }
    }

    /// Closes the file as it is.
    pub(crate) fn drop_uses(&self) {
        lock(&self.uses).file = None;
    }

    fn save_uses(&self) {
        let mut uses = lock(&self.uses);
        let saving = Saving {
            now: self.now_s(),
            entries: self.index.count(),
            seed: self.disk.seed,
        };
        if uses.size == 0 && saving.entries == 0 {
            return;
        }
        let written = match uses.file {
            Some(_) => self.write_uses(&mut uses, Which::Changed, &saving),
            None => Err(Stopped::Full),
        };
        let written = match written {
            Err(Stopped::Full) => self.renew_uses(&mut uses, &saving),
            other => other,
        };
        uses.saved = saving.now;
        if let Err(Stopped::Failed(error)) = written {
            // The next time all is written anew.
            uses.file = None;
            // Who only looks at a zone cannot write: no fault of the disk.
            if error.kind() != io::ErrorKind::ReadOnlyFilesystem {
                self.counters.write_failed();
                self.report(&Event::WriteFailed(error.to_string()));
            }
        }
    }

    /// Appends blocks.
    fn write_uses(
        &self,
        uses: &mut UsesFile,
        which: Which,
        saving: &Saving,
    ) -> Result<(), Stopped> {
        let mut batch = Vec::new();
        let mut wrote = false;
        for shard in self.index.shards() {
            {
                let shard = read(shard);
                let slots = shard.table.cells().filter_map(|cell| of(cell, which));
                batch.extend(slots.map(|slot| found(&slot)));
            }
            if batch.len() >= BATCH {
                self.append_uses(uses, &mut batch, saving)?;
                wrote = true;
            }
        }
        if batch.is_empty() && !wrote {
            // So that it is known that nothing changed.
            return self.append_blocks(uses, UsesBlock::encode(&[], (0, uses.tail), saving));
        }
        self.append_uses(uses, &mut batch, saving)
    }

    fn append_uses(
        &self,
        uses: &mut UsesFile,
        batch: &mut Vec<Found>,
        saving: &Saving,
    ) -> Result<(), Stopped> {
        batch.sort_unstable_by_key(|found| (found.segment, found.used.offset));
        let mut blocks = Vec::new();
        for of_segment in batch.chunk_by(|one, next| one.segment == next.segment) {
            let rows: Vec<Use> = of_segment.iter().map(|found| found.used).collect();
            let segment = of_segment.first().map_or(0, |found| found.segment);
            // What is gathered is some megabytes.
            let offset = uses.tail.saturating_add(blocks.len() as u32);
            let block = UsesBlock::encode(&rows, (segment, offset), saving);
            blocks.extend_from_slice(&block);
        }
        batch.clear();
        self.append_blocks(uses, blocks)
    }

    fn append_blocks(&self, uses: &mut UsesFile, blocks: Vec<u8>) -> Result<(), Stopped> {
        let Some(file) = &uses.file else {
            return Err(Stopped::Full);
        };
        if blocks.len() as u64 > u64::from(uses.size - uses.tail) {
            return Err(Stopped::Full);
        }
        let end = uses.tail + blocks.len() as u32;
        let wrote = self
            .disk
            .io
            .write_at(file, &[Bytes::from(blocks)], u64::from(uses.tail));
        wrote.map_err(Stopped::Failed)?;
        uses.tail = end;
        Ok(())
    }

    /// Writes everything to a new file. INVARIANT 2.
    fn renew_uses(&self, uses: &mut UsesFile, saving: &Saving) -> Result<(), Stopped> {
        let Some(size) = self.uses_size() else {
            return Ok(());
        };
        if self.make_uses_room(file_cost(size)).is_err() {
            return Ok(());
        }
        match self.create_uses(size, saving) {
            Ok(new) => {
                let old = std::mem::replace(uses, new);
                if old.size > 0 {
                    lock(&self.disk.log).discharge_kept(file_cost(old.size));
                }
                Ok(())
            }
            Err(error) => {
                lock(&self.disk.log).discharge_kept(file_cost(size));
                // Its error is not the one to report; a file that stays is removed at start.
                let _ = self.disk.io.unlink(&self.new_uses_path());
                Err(Stopped::Failed(error))
            }
        }
    }

    /// Makes room for the file of uses; at the end nothing is evicted for it.
    fn make_uses_room(&self, cost: u64) -> io::Result<()> {
        if !self.is_closed() {
            return self.make_file_room(cost);
        }
        let mut log = lock(&self.disk.log);
        if log.charge(cost) {
            log.journal_bytes += cost;
            Ok(())
        } else {
            Err(io::ErrorKind::StorageFull.into())
        }
    }

    /// The size of a new file; none if the zone is too small for one.
    fn uses_size(&self) -> Option<u32> {
        let plan = lock(&self.disk.log).plan;
        let most = plan
            .limit
            .map_or(u64::from(u32::MAX), |limit| limit / SHARE);
        let segments = lock(&self.disk.log).segments.len() as u64;
        let entries = self.index.count();
        let batches = entries / BATCH as u64 + 1;
        let blocks = (segments * batches).min(entries) * u64::from(USES_BLOCK + 16);
        let live = entries * Use::LEN as u64 + blocks;
        let least = u64::from(MIN_SIZE);
        let wanted = (live * ROOM).next_multiple_of(least).max(least);
        let size = wanted.min(most.min(u64::from(u32::MAX)) / least * least);
        // The most is a `u32`.
        (plan.has_superblock() && size >= least).then_some(size as u32)
    }

    fn create_uses(&self, size: u32, saving: &Saving) -> io::Result<UsesFile> {
        let (io, path) = (&self.disk.io, self.new_uses_path());
        match io.unlink(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let file = io.create(&path, u64::from(size))?;
        let header = UsesHeader { size };
        let header = Bytes::from(header.encode(&self.disk.uuid, self.disk.seed));
        io.write_at(&file, &[header], 0)?;
        let mut new = UsesFile {
            file: Some(file),
            size,
            tail: USES_HEADER,
            saved: saving.now,
            entries: saving.entries,
            // All segments are loaded by then.
            away: 0,
            blocks: HashMap::new(),
        };
        if let Err(Stopped::Failed(error)) = self.write_uses(&mut new, Which::All, saving) {
            return Err(error);
        }
        if let Some(file) = &new.file {
            io.sync(file)?;
        }
        io.rename(&path, &self.disk.dir.join(USES_NAME))?;
        io.sync_dir(&self.disk.dir)?;
        Ok(new)
    }

    fn new_uses_path(&self) -> PathBuf {
        self.disk.dir.join(USES_NEW_NAME)
    }
}

/// Slot of a cell whose use is to be written. INVARIANT 3.
fn of(cell: Cell<'_>, which: Which) -> Option<Slot> {
    match (cell.take_unsaved(), which) {
        (Some(slot), _) => Some(slot),
        (None, Which::Changed) => None,
        (None, Which::All) => Some(cell.slot()).filter(|slot| !slot.is_grave()),
    }
}

fn found(slot: &Slot) -> Found {
    let place = slot.place();
    Found {
        segment: place.segment,
        used: Use {
            offset: place.offset,
            used: slot.used,
            hits: slot.hits(),
        },
    }
}

/// Joins the rows of a segment with their uses; both stand in the order of their offsets.
pub(crate) struct Joined<'a> {
    uses: &'a [Use],
    missing: u32,
}

impl<'a> Joined<'a> {
    /// Uses of a segment; an entry that is not among them counts as used at `missing`.
    pub(crate) fn new(uses: &'a [Use], missing: u32) -> Self {
        Self { uses, missing }
    }

    /// Second of the last use, uses, and whether the file says so, of the record at an offset that
    /// is not below the one before.
    pub(crate) fn at(&mut self, offset: u32) -> (u32, u16, bool) {
        while let Some((first, rest)) = self.uses.split_first() {
            if first.offset > offset {
                break;
            }
            if first.offset == offset {
                return (first.used, first.hits, true);
            }
            self.uses = rest;
        }
        (self.missing, 0, false)
    }
}
