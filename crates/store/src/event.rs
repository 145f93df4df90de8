//! Events that a zone reports to its surroundings, and the services that it is given by them.
//!
//! An event is one line for the operator; it says what happened, not what to do. Nothing depends
//! on whether anybody listens.

use std::sync::Arc;

use crate::disk::io::{DiskIo, RealIo};
use crate::disk::open::OpenFiles;
use crate::key::Key;
use crate::site::SiteBook;
use crate::verify::Verified;

/// Something that an operator may want to read about: one log line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Event {
    /// A record or slice does not have its checksum; the entry is gone.
    #[error("corrupt record of {key} in segment {segment} at {offset}")]
    Corrupt {
        /// The entry.
        key: Key,
        /// Segment of the entry's record.
        segment: u32,
        /// Offset of the entry's record in the segment.
        offset: u32,
    },
    /// The disk refused a write or a sync.
    #[error("write failed: {0}")]
    WriteFailed(String),
    /// A sync of a segment failed: nobody knows what stands there, so it was let go.
    #[error(
        "{entries} entries of segment {segment} in {dir} are lost: what was written there could \
         not be synced"
    )]
    SegmentLost {
        /// The directory.
        dir: String,
        /// Number of the segment.
        segment: u32,
        /// Number of entries that needed the segment.
        entries: u64,
    },
    /// A disk without others beside it has lost several segments.
    #[error("nothing is stored in {dir} for a minute: it loses what is written there")]
    Resting {
        /// The directory.
        dir: String,
    },
    /// A segment that must be there is not, or nobody knows what stood in it.
    #[error(
        "segment {segment} in {dir} is missing or damaged: what is older may have been replaced or \
         removed there, so {count} segments were let go"
    )]
    Gap {
        /// The directory.
        dir: String,
        /// Number of the segment.
        segment: u32,
        /// Number of older segments that there were.
        count: u64,
    },
    /// The journal that must be there is not.
    #[error("the journal in {dir} is gone: everything counts as purged")]
    JournalLost {
        /// The directory.
        dir: String,
    },
    /// Each number that a segment can have was given.
    #[error("nothing is stored in {dir} any more: there are no numbers left; empty the directory")]
    NoNumbers {
        /// The directory.
        dir: String,
    },
    /// The disk refused a read.
    #[error("read failed: {0}")]
    ReadFailed(String),
    /// The disk does not say what some segments hold; they stay as they are.
    #[error(
        "{count} segments in {dir} cannot be read and are tried again; until then what came \
         before them is not used either: {why}"
    )]
    Unread {
        /// The directory.
        dir: String,
        /// Number of segments that were not read.
        count: u64,
        /// Answer of the disk.
        why: String,
    },
    /// A file could not be used and was renamed.
    #[error("{from} is not usable and was renamed to {to}")]
    SetAside {
        /// Name of the file before.
        from: String,
        /// Name of the file now.
        to: String,
    },
    /// A store was made before keys had a secret.
    #[error(
        "the store in {dir} is of a version whose keys were made without a secret, so that clients \
         could choose texts whose keys meet: its {files} files were renamed, its space is taken \
         as it is needed, and a new store begins"
    )]
    Unkeyed {
        /// The directory.
        dir: String,
        /// Number of files in the store.
        files: usize,
    },
    /// The directory holds files of someone else, which were left alone.
    #[error("{count} foreign names in {dir} were left alone; their room counts for no max_size")]
    Foreign {
        /// The directory.
        dir: String,
        /// Number of such names.
        count: usize,
    },
    /// All that is on the disk is known, some time after the zone was opened.
    #[error("{entries} entries loaded in {ms} ms")]
    Loaded {
        /// Number of entries in the zone.
        entries: u64,
        /// Milliseconds since the zone was opened.
        ms: u64,
    },
    /// All that a disk holds was compared with its checksums.
    #[error(
        "scrubbed {dir} in {s} s: {} entries, {} bytes; {} corrupt, {} not given by the disk",
        .verified.entries, .verified.bytes, .verified.corrupt, .verified.unread
    )]
    Scrubbed {
        /// Directory of the disk.
        dir: String,
        /// Result of the comparison.
        verified: Verified,
        /// Time that the scrub took, seconds.
        s: u64,
    },
    /// A disk is not used any more until it answers again.
    #[error("disk {path} is given up and will be tried again: {why}")]
    DiskFailed {
        /// Directory of the disk.
        path: String,
        /// Answer of the disk.
        why: String,
    },
    /// A disk that was given up, or is new, is used.
    #[error("disk {path} is in use, with {entries} entries")]
    DiskBack {
        /// Directory of the disk.
        path: String,
        /// Number of entries that the disk came with.
        entries: u64,
    },
    /// A disk held what may be out of date.
    #[error("what {path} held may be out of date and was removed")]
    DiskCleared {
        /// Directory of the disk.
        path: String,
    },
    /// The zone was open when its process ended.
    #[error("zone was not closed: {entries} entries recovered")]
    Recovered {
        /// Number of entries that were found.
        entries: u64,
    },
}

/// Services that a zone is given by its surroundings.
#[derive(Clone)]
pub struct Platform {
    /// The file system.
    pub io: Arc<dyn DiskIo>,
    /// Called for each event, from any thread; must not call the zone.
    pub events: Arc<dyn Fn(&Event) + Send + Sync>,
    /// Sites of entries, by their heads.
    pub sites: Arc<SiteBook>,
    /// Count and limit of the open files of segments.
    pub open_files: Arc<OpenFiles>,
}

impl Default for Platform {
    fn default() -> Self {
        Self {
            io: Arc::new(RealIo),
            events: Arc::new(|_| {}),
            sites: Arc::default(),
            open_files: Arc::default(),
        }
    }
}
