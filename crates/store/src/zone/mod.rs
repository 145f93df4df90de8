//! The zone: what a cache asks of its store.
//!
//! ```text
//!   key ──► volumes ──► the one whose key it is: find, begin, remove, …
//! ```
//!
//! A zone has a volume for each of its directories. Calls about a key go to its volume; calls about
//! the zone go to all. All calls are synchronous and may be made from any thread.
//!
//! 1. `find` answers the newest finished entry of a key, or none.
//! 2. After `remove` has returned, the removed entry is never found again, also after a crash.
//! 3. An entry that was not used for `inactive` is not found, whether or not it was swept yet.
//!
//! It knows nothing of HTTP: freshness, variants and statuses are the caller's.

use std::ops::ControlFlow;
use std::sync::Arc;

use arc_swap::ArcSwap;
use bytes::Bytes;

use crate::admit::{NotStored, Writer};
use crate::clock::Clock;
use crate::cold::Look;
use crate::disk::io::DiskIo;
use crate::disk::still::{StillIo, Touch};
use crate::entry::Entry;
use crate::inspect::Glance;
use crate::journal::{Journal, JournalError};
use crate::key::Key;
use crate::recover::{self, StoreError};
use crate::review::{Review, Reviewed};
use crate::sweep::Swept;
use crate::verify::{Progress, Verified};
use crate::volume::{EntrySummary, Event, Platform, Usage, Volume, ZoneConf};

/// Who is told of events, from any thread.
pub type Listener = Arc<dyn Fn(&Event) + Send + Sync>;

/// A named cache on disk. Closed when dropped.
pub struct Zone {
    /// Another one after each time that the directory was lent.
    volume: ArcSwap<Volume>,
}

impl Zone {
    /// Opens a zone, or makes it. Reads the summaries of all segments.
    pub fn open(conf: ZoneConf, clock: Arc<dyn Clock>) -> Result<Arc<Self>, StoreError> {
        Self::open_on(conf, clock, Platform::default())
    }

    /// Opens a zone on a given file system, with events.
    pub fn open_on(
        conf: ZoneConf,
        clock: Arc<dyn Clock>,
        platform: Platform,
    ) -> Result<Arc<Self>, StoreError> {
        let volume = Volume::open(conf, clock, platform)?;
        Ok(Arc::new(Self {
            volume: ArcSwap::new(volume),
        }))
    }

    /// Opens a zone to look at it, or to purge; it must be there and stays as it is, whatever its
    /// state. Nothing is evicted: the limits of `conf` do not count for `Touch::Nothing`.
    pub fn open_still(
        mut conf: ZoneConf,
        clock: Arc<dyn Clock>,
        (touch, events): (Touch, Listener),
    ) -> Result<Arc<Self>, StoreError> {
        if touch == Touch::Nothing {
            conf.max_size = None;
        }
        conf.min_free = 0;
        let io: Arc<dyn DiskIo> = Arc::new(StillIo::new(touch));
        if !recover::is_there(&*io, &conf.path)? {
            return Err(StoreError::Absent { path: conf.path });
        }
        Self::open_on(conf, clock, Platform { io, events })
    }

    /// Looks an entry up and marks it used. A corrupt record is a miss, a counter and an event.
    /// Waits for the disk.
    pub fn find(&self, key: &Key) -> Option<Entry> {
        self.volume.load().find(key)
    }

    /// As [`Zone::find`], without waiting for the disk.
    pub fn look(&self, key: &Key) -> Look {
        self.volume.load().look(key)
    }

    /// Whether `find` would look for the key on the disk or in memory; marks nothing.
    pub fn peek(&self, key: &Key) -> bool {
        self.volume.load().peek(key)
    }

    /// When what `find` would look for was last used, in seconds since 1970; marks nothing.
    pub fn last_used(&self, key: &Key) -> Option<u32> {
        self.volume.load().last_used(key)
    }

    /// Begins to fill an entry. Nothing is reserved before bytes come.
    pub fn begin(&self, key: Key, expected_len: Option<u64>) -> Result<Writer, NotStored> {
        self.volume.load().begin(key, expected_len)
    }

    /// Removes an entry; true if there was one. Its removal is in the log when this returns.
    pub fn remove(&self, key: &Key) -> bool {
        self.volume.load().remove(key)
    }

    /// Gives an entry a new head; the body stays where it is.
    pub fn replace_head(&self, entry: &Entry, head: Bytes) -> Result<Entry, NotStored> {
        self.volume.load().replace_head(entry, head)
    }

    /// Removes what is inactive and makes space; to be called every second or so by one thread.
    pub fn sweep(&self) -> Swept {
        self.volume.load().sweep()
    }

    /// Numbers about the zone.
    pub fn usage(&self) -> Usage {
        self.volume.load().usage()
    }

    /// Waits until everything that is on the disk is known; false if it never will be, because the
    /// zone was closed. Until then what is not known yet is a miss, and [`Zone::usage`] counts what
    /// is known.
    pub fn loaded(&self) -> bool {
        self.volume.load_full().loaded()
    }

    /// Calls `f` for each entry, in no order; entries that come or go meanwhile may be missed.
    pub fn entries(&self, f: &mut dyn FnMut(&Key, EntrySummary)) {
        self.volume.load_full().entries(f);
    }

    /// What the index knows of a key, if `find` would look for it; marks nothing.
    pub fn glance(&self, key: &Key) -> Option<Glance> {
        self.volume.load().glance(key)
    }

    /// Shows each entry until told to stop, in no order; marks nothing. `Break` if not all were
    /// shown. For a thread that may wait.
    pub fn inspect(&self, each: &mut dyn FnMut(&Glance) -> ControlFlow<()>) -> ControlFlow<()> {
        self.volume.load_full().inspect(each)
    }

    /// Shows `judge` the head of each entry, and does what it says.
    pub fn review(&self, judge: &mut dyn FnMut(&Key, &Bytes) -> Review) -> Reviewed {
        self.volume.load_full().review(judge)
    }

    /// Compares every entry with its checksums; removes what is corrupt. Tells `progress` how far
    /// it is, after a mebibyte at the latest, and ends when that says false. Reads all that there
    /// is: for a thread of its own, which `progress` may delay.
    pub fn verify(&self, progress: &mut dyn FnMut(Progress) -> bool) -> Verified {
        self.volume.load_full().verify(progress)
    }

    /// Waits until everything that was finished is in the kernel. For tests and tools.
    pub fn flush(&self) {
        self.volume.load().flush();
    }

    /// Waits until everything that was finished or removed is on the device; false if some of it
    /// cannot be.
    pub fn sync(&self) -> bool {
        self.volume.load().sync()
    }

    /// What the journal held when the zone was opened, or taken back; to be asked for once.
    pub fn take_journal(&self) -> Journal {
        self.volume.load().take_journal()
    }

    /// Appends a record. It is durable when this returns; waits for the disk.
    pub fn note(&self, record: &Bytes) -> Result<(), JournalError> {
        self.volume.load().note(record)
    }

    /// Puts records in the place of all that the journal holds. They are durable when this returns;
    /// after an error the old ones, or both, are there. Waits for the disk.
    pub fn rewrite_journal(&self, records: &[Bytes]) -> Result<(), JournalError> {
        self.volume.load().rewrite_journal(records)
    }

    /// Puts other limits into force: `max_size`, `min_free`, `inactive` and `memory`. Entries stay,
    /// as far as they fit. The rest of `conf` counts when the zone is opened again.
    pub fn change(&self, conf: ZoneConf) {
        self.volume.load().change(conf);
    }

    /// Lets the directory go, for another process to open it. Later calls find nothing, and fills
    /// that run go on for their readers. Waits until what was finished is written.
    pub fn lend(&self) {
        self.volume.load().lend();
    }

    /// Opens the directory again after [`Zone::lend`]; an error leaves the zone as it is.
    pub fn take_back(&self) -> Result<(), StoreError> {
        if let Some(volume) = self.volume.load().take_back()? {
            self.volume.store(volume);
        }
        Ok(())
    }

    /// Writes everything down, syncs it and lets the directory go. Later calls find nothing.
    pub fn close(&self) {
        self.volume.load().close();
    }
}

impl Drop for Zone {
    fn drop(&mut self) {
        self.close();
    }
}
