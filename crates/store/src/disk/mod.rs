//! One disk of a zone: its directory, its log of segments, and its write queue.
//!
//! - `format` – the bytes; `docs/store-format.md`
//! - `segment` – what space there is, and who holds it
//! - `writer` – the queue and the thread behind it
//! - `reader` – records, summaries and scans
//! - `pool` – the threads that read; `ready` – what can be read without them
//! - `io` – the file system as a trait; `sim` – one with faults; `power` – one that loses power;
//!   `still` – one that stays as it is
//!
//! Locks are taken in this order: turning, shard, log, files.

pub(crate) mod format;
pub(crate) mod hole;
pub(crate) mod io;
pub(crate) mod pool;
pub(crate) mod power;
pub(crate) mod reader;
pub(crate) mod ready;
pub(crate) mod segment;
pub(crate) mod sim;
pub(crate) mod still;
pub(crate) mod syncer;
pub(crate) mod writer;

use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, RwLock};

use hashbrown::HashMap;

use crate::lock::{read, write};
use crate::site::SiteBook;
use format::{FOOTER, Membership, SEGMENT_HEADER};
use io::{DiskIo, File};
use ready::{Readers, SegmentFile};
use segment::Log;
use writer::Queue;

/// A directory with segments.
pub(crate) struct Disk {
    /// The zone's directory.
    pub(crate) dir: PathBuf,
    /// The way to it.
    pub(crate) io: Arc<dyn DiskIo>,
    /// Whether a file system was mounted there when it was opened.
    pub(crate) is_mount: bool,
    /// Seed of header checksums.
    pub(crate) seed: u64,
    /// What ties segments to this zone.
    pub(crate) uuid: [u8; 16],
    /// When the zone was made, milliseconds since 1970.
    pub(crate) created_ms: u64,
    /// The set of disks that it is of.
    pub(crate) membership: Mutex<Option<Membership>>,
    /// The superblock's file, which holds the lock; `None` once closed, or if the zone has no room
    /// for files.
    pub(crate) superblock: Mutex<Option<File>>,
    /// Whose the entries are.
    pub(crate) book: Arc<SiteBook>,
    /// Space.
    pub(crate) log: Mutex<Log>,
    /// Set while names in the directory changed since it was synced.
    pub(crate) has_new_names: AtomicBool,
    /// Set until what a process that died had written is on the device.
    pub(crate) has_legacy: AtomicBool,
    /// Held while segments are synced, so that who finds none to sync knows that all are.
    pub(crate) syncing: Mutex<()>,
    /// Held while segments are evicted or created, so that one thread does it for all.
    pub(crate) turning: Mutex<()>,
    /// Writes to be made.
    pub(crate) queue: Queue,
    /// Reads to be made.
    pub(crate) readers: Arc<Readers>,
    /// Files of the segments in the table. INVARIANT 3 of `segment`: clones are made under this.
    pub(crate) files: RwLock<HashMap<u32, Arc<SegmentFile>>>,
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

    /// Puts a segment's file in the table.
    pub(crate) fn add_file(&self, segment: u32, file: File) {
        let file = SegmentFile::new(file, Arc::clone(&self.readers));
        write(&self.files).insert(segment, Arc::new(file));
    }

    /// Has segments synced once more of which a write or a sync went wrong.
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

    /// The name of a segment's file.
    pub(crate) fn segment_path(&self, segment: u32) -> PathBuf {
        self.dir.join(segment_name(segment))
    }

    /// The name of a segment's file while it is only read.
    pub(crate) fn retired_path(&self, segment: u32) -> PathBuf {
        self.dir.join(format!("{RETIRED}{segment:08}"))
    }
}

/// The superblock's file.
pub(crate) const SUPERBLOCK_NAME: &str = "millpond.zone";
/// The journal's file.
pub(crate) const JOURNAL_NAME: &str = "millpond.journal";
/// The journal's file while it is written.
pub(crate) const JOURNAL_NEW_NAME: &str = "millpond.journal.new";
/// The file of uses.
pub(crate) const USES_NAME: &str = "millpond.uses";
/// The file of uses while it is written.
pub(crate) const USES_NEW_NAME: &str = "millpond.uses.new";
/// How names of files on their way out begin.
pub(crate) const RETIRED: &str = "retired-";
/// How names of segments begin.
pub(crate) const SEGMENT: &str = "segment-";
/// Stands in the names of files that could not be read.
pub(crate) const SET_ASIDE: &str = ".set-aside-";

/// The file name of a segment.
pub(crate) fn segment_name(segment: u32) -> String {
    format!("{SEGMENT}{segment:08}")
}

/// The segment of a file name, if it is exactly that of a segment.
pub(crate) fn segment_number(name: &str) -> Option<u32> {
    let number = name.strip_prefix(SEGMENT)?.parse().ok()?;
    (number > 0 && segment_name(number) == name).then_some(number)
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
