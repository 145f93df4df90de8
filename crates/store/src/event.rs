//! What a zone tells its surroundings, and what it is given by them.
//!
//! An event is one line for the operator; it says what happened, not what to do. Nothing depends
//! on whether anybody listens.

use std::sync::Arc;

use crate::disk::io::{DiskIo, RealIo};
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
        /// Where its record stands.
        segment: u32,
        /// Where its record stands.
        offset: u32,
    },
    /// The disk refused a write or a sync.
    #[error("write failed: {0}")]
    WriteFailed(String),
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
        /// How many.
        count: u64,
        /// What the disk answered.
        why: String,
    },
    /// A file could not be used and was renamed.
    #[error("{from} is not usable and was renamed to {to}")]
    SetAside {
        /// Its name before.
        from: String,
        /// Its name now.
        to: String,
    },
    /// The directory holds files of someone else, which were left alone.
    #[error("{count} foreign names in {dir} were left alone")]
    Foreign {
        /// The directory.
        dir: String,
        /// How many.
        count: usize,
    },
    /// All that is on the disk is known, some time after the zone was opened.
    #[error("{entries} entries loaded in {ms} ms")]
    Loaded {
        /// How many entries there are.
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
        /// Its directory.
        dir: String,
        /// What was found.
        verified: Verified,
        /// How long it took, seconds.
        s: u64,
    },
    /// A disk is not used any more until it answers again.
    #[error("disk {path} is given up and will be tried again: {why}")]
    DiskFailed {
        /// Its directory.
        path: String,
        /// What it answered.
        why: String,
    },
    /// A disk that was given up, or is new, is used.
    #[error("disk {path} is in use, with {entries} entries")]
    DiskBack {
        /// Its directory.
        path: String,
        /// How many entries it came with.
        entries: u64,
    },
    /// A disk held what may be out of date.
    #[error("what {path} held may be out of date and was removed")]
    DiskCleared {
        /// Its directory.
        path: String,
    },
    /// The zone was open when its process ended.
    #[error("zone was not closed: {entries} entries recovered")]
    Recovered {
        /// How many entries were found.
        entries: u64,
    },
}

/// What a zone is given by its surroundings.
#[derive(Clone)]
pub struct Platform {
    /// The file system.
    pub io: Arc<dyn DiskIo>,
    /// Called for each event, from any thread; must not call the zone.
    pub events: Arc<dyn Fn(&Event) + Send + Sync>,
    /// Whose entries are, by their heads.
    pub sites: Arc<SiteBook>,
}

impl Default for Platform {
    fn default() -> Self {
        Self {
            io: Arc::new(RealIo),
            events: Arc::new(|_| {}),
            sites: Arc::default(),
        }
    }
}
