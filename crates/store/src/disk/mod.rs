//! One disk of a zone: its directory, its log of segments, and its write queue.
//!
//! - `format` – the bytes; `docs/store-format.md`
//! - `segment` – what space there is, and who holds it
//! - `writer` – the queue and the thread behind it
//! - `reader` – records, summaries and scans
//! - `open` – which files of segments are open
//! - `pool` – the threads that read; `ready` – what can be read without them
//! - `io` – the file system as a trait; `sim` – one with faults; `power` – one that loses power;
//!   `still` – one that stays as it is
//!
//! Locks are taken in this order: turning, shard, log, files.

pub(crate) mod copies;
pub(crate) mod format;
pub(crate) mod hole;
#[cfg(test)]
mod huge;
pub(crate) mod io;
pub(crate) mod open;
pub(crate) mod pool;
pub(crate) mod power;
pub(crate) mod reader;
pub(crate) mod ready;
pub(crate) mod rows;
pub(crate) mod segment;
pub(crate) mod sim;
pub(crate) mod still;
pub(crate) mod syncer;
pub(crate) mod writer;

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, RwLock};

use hashbrown::HashMap;

use crate::key::Secret;
use crate::lock::{Ranked, read, write};
use crate::site::SiteBook;
use copies::Copies;
use format::{FOOTER, Live, Membership, SEGMENT_HEADER, SegmentHeader};
use io::{DiskIo, File};
use open::SegmentFile;
use ready::Readers;
use segment::Log;
use writer::Queue;

/// A directory with segments.
pub(crate) struct Disk {
    /// The zone's directory.
    pub(crate) dir: PathBuf,
    /// File system that the disk is used through.
    pub(crate) io: Arc<dyn DiskIo>,
    /// True if a file system was mounted at the directory when the disk was opened.
    pub(crate) is_mount: bool,
    /// Seed of header checksums.
    pub(crate) seed: u64,
    /// Identity that ties segments to this zone.
    pub(crate) uuid: [u8; 16],
    /// Time when the zone was made, milliseconds since 1970.
    pub(crate) created_ms: u64,
    /// Set of disks that the disk belongs to.
    pub(crate) membership: Ranked<Mutex<Option<Membership>>>,
    /// Lists of the segments that there must be: the list that counts, and the one before it.
    pub(crate) live: Ranked<Mutex<Vec<Live>>>,
    /// Secret that the zone's keys are made with.
    pub(crate) secret: Ranked<Mutex<Secret>>,
    /// The superblock's file, which holds the lock; `None` once closed, or if the zone has no room
    /// for files.
    pub(crate) superblock: Ranked<Mutex<Option<File>>>,
    /// Sites of the entries.
    pub(crate) book: Arc<SiteBook>,
    /// Space.
    pub(crate) log: Ranked<Mutex<Log>>,
    /// Set while names in the directory changed since it was synced.
    pub(crate) has_new_names: AtomicBool,
    /// Set until what a process that died had written is on the device.
    pub(crate) has_legacy: AtomicBool,
    /// Entries that were written again, by how far that has come.
    pub(crate) copies: Copies,
    /// Held while segments are synced, so that whoever finds none to sync knows that all are.
    pub(crate) syncing: Ranked<Mutex<()>>,
    /// Held while segments are evicted or created, so that one thread does it for all.
    pub(crate) turning: Ranked<Mutex<()>>,
    /// Writes to be made.
    pub(crate) queue: Queue,
    /// Reads to be made.
    pub(crate) readers: Arc<Readers>,
    /// Files of the segments in the table. INVARIANT 3 of `segment`: clones are made under this.
    pub(crate) files: Ranked<RwLock<HashMap<u32, Arc<SegmentFile>>>>,
}

impl Disk {
    /// Pins a segment.
    pub(crate) fn file(&self, segment: u32) -> Option<Arc<SegmentFile>> {
        read(&self.files).get(&segment).map(Arc::clone)
    }

    /// Pins all of some segments, or none if one is gone.
    pub(crate) fn files(&self, segments: &[u32]) -> Option<Vec<(u32, Arc<SegmentFile>)>> {
        let files = read(&self.files);
        let pin = |id: &u32| files.get(id).map(|file| (*id, Arc::clone(file)));
        segments.iter().map(pin).collect()
    }

    /// True if somebody besides the table has a segment's file, for the moment: new pins come while
    /// it is in the table.
    pub(crate) fn is_pinned(&self, segment: u32) -> bool {
        let files = read(&self.files);
        let file = files.get(&segment);
        file.is_some_and(|file| Arc::strong_count(file) > 1)
    }

    /// Puts a segment's file in the table.
    pub(crate) fn add_file(&self, segment: u32, file: Arc<SegmentFile>) {
        write(&self.files).insert(segment, file);
    }

    /// Opens all files that somebody reads, of segments that are here and that have left, for as
    /// long as somebody has them.
    pub(crate) fn keep_pinned_open(&self) {
        let retired: Vec<_> = {
            let log = crate::lock::lock(&self.log);
            log.retired.iter().map(|it| Arc::clone(&it.file)).collect()
        };
        let files = read(&self.files);
        let pinned = files.values().filter(|file| Arc::strong_count(file) > 1);
        for file in pinned.chain(&retired) {
            // Who reads it without that is cut off, as by a disk that fails.
            let _ = file.keep_open();
        }
    }

    /// Marks segments of which a write went wrong, so that they are synced once more.
    pub(crate) fn sync_damaged_again(&self) {
        for segment in crate::lock::lock(&self.log).segments.values_mut() {
            segment.is_dirty |= segment.is_damaged;
        }
    }

    /// The largest record and rows that fit a new segment.
    pub(crate) fn record_limit(&self) -> u64 {
        let size = crate::lock::lock(&self.log).plan.segment_size;
        u64::from(size.saturating_sub(SEGMENT_HEADER + FOOTER))
    }

    /// The header of a segment of this zone.
    pub(crate) fn segment_header(&self, block: &[u8]) -> Option<SegmentHeader> {
        SegmentHeader::decode(block, &self.uuid, self.seed)
    }

    /// The name of a segment's file.
    pub(crate) fn segment_path(&self, segment: u32) -> PathBuf {
        self.dir.join(segment_name(segment))
    }

    /// The name of a segment's file while it is only read.
    pub(crate) fn retired_path(&self, segment: u32) -> PathBuf {
        self.dir.join(retired_name(segment))
    }
}

/// The file that makes a folder a store: a regular one, if it is there.
pub fn store_file(folder: &Path) -> PathBuf {
    folder.join(SUPERBLOCK_NAME)
}

/// The superblock's file.
pub(crate) const SUPERBLOCK_NAME: &str = "millpond.zone";
/// The journal's file.
pub(crate) const JOURNAL_NAME: &str = "millpond.journal";
/// Name of the journal's file while the file is written.
pub(crate) const JOURNAL_NEW_NAME: &str = "millpond.journal.new";
/// The file of uses.
pub(crate) const USES_NAME: &str = "millpond.uses";
/// The file of uses while it is written.
pub(crate) const USES_NEW_NAME: &str = "millpond.uses.new";
/// Prefix of the names of files on their way out.
pub(crate) const RETIRED: &str = "retired-";
/// Prefix of the names of segments.
pub(crate) const SEGMENT: &str = "segment-";
/// Stands in the names of files that could not be read.
pub(crate) const SET_ASIDE: &str = ".set-aside-";

/// The highest number of a segment. The one above it stands for "behind all" in the index.
pub(crate) const LAST_SEGMENT: u32 = u32::MAX - 1;

/// The file name of a segment.
pub(crate) fn segment_name(segment: u32) -> String {
    format!("{SEGMENT}{segment:08}")
}

/// The file name of a segment that is only read.
pub(crate) fn retired_name(segment: u32) -> String {
    format!("{RETIRED}{segment:08}")
}

/// The segment of a file name, if it is exactly that of a segment.
pub(crate) fn segment_number(name: &str) -> Option<u32> {
    let number = name.strip_prefix(SEGMENT)?.parse().ok()?;
    let is_one = (1..=LAST_SEGMENT).contains(&number);
    (is_one && segment_name(number) == name).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_exact_names_are_segments() {
        let table = [
            ("segment-00000001", Some(1)),
            ("segment-123456789", Some(123_456_789)),
            ("segment-1", None),
            ("segment-4294967294", Some(LAST_SEGMENT)),
            ("segment-4294967295", None),
            ("segment-4294967296", None),
            ("segment-00000000", None),
            ("segment-00000001.set-aside-1", None),
            ("segment-+0000001", None),
            ("retired-00000001", None),
        ];
        for (name, expected) in table {
            assert_eq!(segment_number(name), expected, "{name}");
        }
    }
}
