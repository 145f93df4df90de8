//! List of the segments that there must be, kept in a second place.
//!
//! ```text
//!   sync of all segments and names ──► the list of their numbers, in the superblock, synced
//!
//!   at the start:   3 4 5 6 7 8      listed
//!                   3 4 5   7 8      found, and understood
//!                   └─┬─┘ gap └┬┘
//!                 let go     loaded
//! ```
//!
//! What was replaced or removed may stand in any older segment, and that it was is known from a
//! newer one. A newer one that is gone, or says nothing any more, hides what is older.
//!
//! 1. A number is in the list on the device only if the segment, its header and its name are there,
//!    too. So what is listed and not found was taken away.
//! 2. Where one is missing, all older ones are let go, and the operator is told. That ends when the
//!    next list is written, so a crash meanwhile changes nothing.
//! 3. What has a lower number than the first of the list was evicted: a file of that name is a name
//!    that a power failure has brought back.
//! 4. A segment that was lost (`loss`) is listed until its keys have their tombstones on the
//!    device; if nobody knows its keys, until all that is older is gone, also the files of what was
//!    evicted and that the disk would not remove.
//! 5. A segment whose header is damaged is one of ours if its summary is whole, or if records of
//!    this zone are found in it; without a summary it counts only if no record can have stood where
//!    the damage is. A file that has neither is not ours: it is set aside, and its number is
//!    nothing.
//! 6. A number is given once. The last one is given, and then the zone stores nothing more.
//! 7. What is damaged and not in the list was never on the device as a whole: a power failure takes
//!    pages of it, and what it replaced is back as after any power failure. It hides nothing.
//! 8. A segment that has left counts for nothing, also if the disk lets its file neither be removed
//!    nor renamed: it is in the list as gone, as long as that is so.
//!
//! A store that was never opened by a version that keeps the list has none: there, what is missing
//! is not noticed.

use std::io;

use bytes::Bytes;

use crate::disk::SUPERBLOCK_NAME;
use crate::disk::format::{FOOTER, Live, SEGMENT_HEADER, Shutdown, Superblock};
use crate::disk::io::File;
use crate::disk::open::SegmentFile;
use crate::disk::segment::{Log, MAX_SEGMENT};
use crate::lock::lock;
use crate::recover::{Probe, Probed, StoreError};
use crate::volume::{Event, Inner};

/// Files that do not look like segments and are searched for records: each takes as long as it
/// takes to read it.
const MAX_SEARCHED: usize = 16;
/// A segment that the disk does not give at all may have a number that was given after the
/// superblock was written; so many may have been. Arbitrary.
const REACH: u32 = 1 << 16;
/// Bytes of a segment that may be damaged where its header is: what a file system reads at a time.
const HEADER_PAGE: u32 = 4096;
/// Sizes of segments are multiples of this.
const SIZE_STEP: u64 = 4096;

/// A segment that was lost, and is listed still.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lost {
    /// Number of the segment.
    pub(crate) id: u32,
    /// True if the segment's keys have, or will have, tombstones.
    pub(crate) is_buried: bool,
}

/// List of segments that will be true when a sync that begins has gone well.
pub(crate) struct Listing {
    /// Segments whose files are there, ascending.
    numbers: Vec<u32>,
    /// Lost segments whose tombstones are in the kernel.
    settled: Vec<u32>,
}

/// The segments that were found in the directory.
#[derive(Default)]
pub(crate) struct Sifted {
    pub(crate) ours: Vec<Probed>,
    /// Numbers, and what the disk answered.
    pub(crate) unread: Vec<(u32, io::Error)>,
    /// Files that are no segments of this zone.
    pub(crate) strange: Vec<u32>,
    /// Nothing counts that is older.
    pub(crate) gap: u32,
}

impl Sifted {
    fn has(&self, id: u32) -> bool {
        let is_ours = self.ours.iter().any(|probed| probed.id == id);
        is_ours || self.unread.iter().any(|(other, _)| *other == id)
    }
}

/// Nature of a file that does not begin as a segment does.
enum Searched {
    /// A segment all the same.
    Segment(Probed),
    /// One of ours, of which nobody knows all.
    Damaged,
    /// The file is none of ours.
    Foreign,
}

impl Inner {
    /// Lists what the next sync is about, before it begins.
    pub(crate) fn begin_listing(&self) -> Listing {
        let are_buried = lock(&self.pending_tombstones).is_empty();
        let log = lock(&self.disk.log);
        let created = log.segments.iter().filter(|(_, it)| !it.is_planned);
        let settled = log.lost.iter().filter(|lost| lost.is_buried && are_buried);
        Listing {
            numbers: created.map(|(id, _)| *id).collect(),
            settled: settled.map(|lost| lost.id).collect(),
        }
    }

    /// INVARIANTS 1 and 4, after a sync that went well.
    pub(crate) fn end_listing(&self, listing: &Listing) -> Result<(), StoreError> {
        // Under the lock nothing but copies are made: there may be tens of thousands of segments.
        let (present, lost): (Vec<u32>, Vec<u32>) = {
            let mut log = lock(&self.disk.log);
            let stuck = self.stuck(&log).first().copied();
            let Log { segments, lost, .. } = &mut *log;
            let oldest = segments.keys().next().copied();
            let first = oldest.into_iter().chain(stuck).min().unwrap_or(u32::MAX);
            // What nobody knows hides nothing, once nothing is older.
            lost.retain(|lost| !listing.settled.contains(&lost.id) && lost.id > first);
            let lost = lost.iter().map(|lost| lost.id).collect();
            (segments.keys().copied().collect(), lost)
        };
        let is_synced = |id: &u32| listing.numbers.binary_search(id).is_ok();
        let mut numbers: Vec<u32> = present.into_iter().filter(is_synced).chain(lost).collect();
        numbers.sort_unstable();
        self.list(Live::of(numbers.into_iter()))
    }

    /// Notes that there is a journal now, so that there must be one from now on.
    pub(crate) fn list_journal(&self) -> Result<(), StoreError> {
        let live = lock(&self.disk.live).first().cloned();
        self.list(live.unwrap_or_default())
    }

    /// INVARIANTS 4 and 8, after a sync that did not go well: what is on the device is there still.
    pub(crate) fn list_lost(&self) -> Result<(), StoreError> {
        let live = lock(&self.disk.live).first().cloned().unwrap_or_default();
        if lock(&self.pending_tombstones).is_empty() {
            return self.list(live);
        }
        let mut numbers: Vec<u32> = live.newest_first().collect();
        numbers.extend(lock(&self.disk.log).lost.iter().map(|lost| lost.id));
        numbers.sort_unstable();
        numbers.dedup();
        self.list(Live::of(numbers.into_iter()))
    }

    /// Writes a list down, unless it is there.
    fn list(&self, mut next: Live) -> Result<(), StoreError> {
        let superblock = lock(&self.disk.superblock);
        next.has_journal = lock(&self.journal).is_there();
        next.gone = self.stuck(&lock(&self.disk.log));
        {
            let mut live = lock(&self.disk.live);
            let newest = live.first();
            next.serial = newest.map_or(0, |live| live.serial);
            if newest == Some(&next) {
                return Ok(());
            }
            next.serial += 1;
            live.insert(0, next);
            live.truncate(2);
        }
        let written = self.put_superblock(superblock.as_ref(), Shutdown::Unclean);
        if written.is_err() {
            // The next one takes its place, also if it is there.
            lock(&self.disk.live).remove(0);
        }
        written
    }

    /// Writes the superblock, and syncs it.
    pub(crate) fn write_superblock(&self, shutdown: Shutdown) -> Result<(), StoreError> {
        let superblock = lock(&self.disk.superblock);
        self.put_superblock(superblock.as_ref(), shutdown)
    }

    fn put_superblock(&self, file: Option<&File>, shutdown: Shutdown) -> Result<(), StoreError> {
        let Some(file) = file else {
            return Ok(());
        };
        let block = Superblock {
            uuid: self.disk.uuid,
            created_ms: self.disk.created_ms,
            shutdown,
            next_segment: lock(&self.disk.log).next_segment,
            membership: *lock(&self.disk.membership),
            live: lock(&self.disk.live).clone(),
            secret: *lock(&self.disk.secret),
        };
        let bytes = Bytes::from(block.encode());
        let io = &self.disk.io;
        let wrote = io.write_at(file, &[bytes], 0).and_then(|()| io.sync(file));
        let path = self.disk.dir.join(SUPERBLOCK_NAME);
        wrote.map_err(|error| StoreError::io("write", &path, error))
    }

    /// Says what counts of the files that have names of segments.
    pub(crate) fn sift(&self, files: &[(u32, u64)]) -> Sifted {
        let live = lock(&self.disk.live).first().cloned().unwrap_or_default();
        let mut sifted = Sifted::default();
        let (mut searched, mut unread) = (0, Vec::new());
        for probe in self.probe_segments(files) {
            let id = match probe {
                Probe::Ours(probed) => {
                    sifted.ours.push(probed);
                    continue;
                }
                Probe::Unread(id, error) => {
                    unread.push((id, error));
                    continue;
                }
                Probe::Strange(id) => id,
            };
            searched += 1;
            let len = files.iter().find(|(other, _)| *other == id);
            let found = if searched > MAX_SEARCHED {
                Ok(Searched::Foreign)
            } else {
                self.search(id, len.map_or(0, |(_, len)| *len))
            };
            match found {
                Ok(Searched::Segment(probed)) => sifted.ours.push(probed),
                Ok(Searched::Damaged) => {
                    // INVARIANT 7.
                    if live.has(id) {
                        sifted.gap = sifted.gap.max(id);
                    }
                    sifted.strange.push(id);
                }
                Ok(Searched::Foreign) => sifted.strange.push(id),
                Err(error) => unread.push((id, error)),
            }
        }
        let given = sifted.ours.iter().map(|probed| probed.id.saturating_add(1));
        let given = given.chain([lock(&self.disk.log).next_segment]).max();
        let reach = given.unwrap_or_default().saturating_add(REACH);
        // What cannot be read and was never given is nothing.
        unread.retain(|(id, _)| *id < reach || live.has(*id));
        sifted.unread = unread;
        let missing = live.newest_first().find(|id| !sifted.has(*id));
        sifted.gap = sifted.gap.max(missing.unwrap_or(0));
        sifted
    }

    /// INVARIANT 5.
    fn search(&self, id: u32, len: u64) -> io::Result<Searched> {
        let least = u64::from(SEGMENT_HEADER + FOOTER);
        if len < least || len > u64::from(MAX_SEGMENT) {
            return Ok(Searched::Foreign);
        }
        let path = self.disk.segment_path(id);
        let open = || self.disk.io.open(&path);
        let file = match self.disk.readers.home().open_files.with_room(open) {
            Ok(file) => SegmentFile::found(id, file, &self.disk.readers),
            Err(error) => {
                return match error.kind() {
                    io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied => {
                        Ok(Searched::Foreign)
                    }
                    _ => Err(error),
                };
            }
        };
        // It was compared with the longest.
        let size = len as u32;
        let footer = self.disk.read_footer(id, &file, size)?;
        let is_summed_up = footer.is_some() && self.disk.read_rows(id, &file, size)?.is_some();
        let is_cut = !len.is_multiple_of(SIZE_STEP);
        let damaged = SEGMENT_HEADER..HEADER_PAGE.min(size);
        let is_known = is_summed_up || {
            let (found, is_known) = self.disk.search(id, &file, (size, damaged))?;
            if found.rows.is_empty() && !self.has_own_header(id, &file) {
                return Ok(Searched::Foreign);
            }
            is_known && !is_cut && !self.has_own_header(id, &file)
        };
        if is_known {
            // Its header would not say that it is the one that was meant.
            file.keep_open()?;
        }
        Ok(if is_known {
            Searched::Segment(Probed {
                id,
                size,
                file,
                footer: footer.filter(|_| is_summed_up),
            })
        } else {
            Searched::Damaged
        })
    }

    /// True if a file that is no segment has the header of one: then it is longer or shorter.
    fn has_own_header(&self, id: u32, file: &SegmentFile) -> bool {
        let mut block = [0; SEGMENT_HEADER as usize];
        let read = file.read_at(&mut block, 0);
        let header = self.disk.segment_header(&block).filter(|_| read.is_ok());
        header.is_some_and(|header| header.segment == id)
    }

    /// INVARIANT 2: lets what is older than a gap go; how many files.
    pub(crate) fn let_go_before(&self, gap: u32, files: &[(u32, u64)]) -> Result<(), StoreError> {
        let older = files.iter().filter(|(id, _)| *id < gap);
        let mut count = 0;
        for (id, _) in older {
            let path = self.disk.segment_path(*id);
            match self.disk.io.unlink(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(StoreError::io("remove", &path, error));
                }
                _ => count += 1,
            }
        }
        // Where nothing is older nothing is hidden: the oldest ones were evicted.
        if count > 0 {
            let dir = self.disk.dir.display().to_string();
            self.report(&Event::Gap {
                dir,
                segment: gap,
                count,
            });
        }
        Ok(())
    }

    /// INVARIANT 6: tells that there are no numbers left, once.
    pub(crate) fn tell_no_numbers(&self) {
        let is_news = {
            let mut log = lock(&self.disk.log);
            !std::mem::replace(&mut log.has_told_end, true)
        };
        if is_news {
            let dir = self.disk.dir.display().to_string();
            self.report(&Event::NoNumbers { dir });
        }
    }
}
