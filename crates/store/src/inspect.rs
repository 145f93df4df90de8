//! Looking at what a zone holds, from outside: every entry, or one, with its head and checksums.
//!
//! ```text
//!   inspect ──► a shard's slots, copied ──► Glance ──► read: head     verify: all checksums
//! ```
//!
//! A [`Glance`] is what the index knows of an entry; its record is read only if that is asked for,
//! so whoever looks for a few of many entries reads a few.
//!
//! 1. Nothing is marked used, and nothing changes but by [`Glance::remove_corrupt`].
//! 2. No lock is held while the caller is called or the disk is read.
//!
//! It is for a thread that may wait for the disk. Entries that come or go meanwhile may be missed.

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;

use crate::disk::reader::ReadError;
use crate::entry::Stored;
use crate::index::Slot;
use crate::key::Key;
use crate::lock::read;
use crate::review::Look;
use crate::verify::{Care, Compared};
use crate::volume::{EntrySummary, Inner, Volume, summary};

/// Attempts to find an entry that moves while it is looked at.
const MAX_ROUNDS: usize = 4;

/// An entry as the index knew it a moment ago.
#[derive(Clone)]
pub struct Glance {
    inner: Arc<Inner>,
    slot: Slot,
}

/// Record of an entry, as the disk has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Head of the entry, as it was given to the writer.
    pub head: Bytes,
    /// Time when the entry was finished, milliseconds since 1970.
    pub created_ms: u64,
    /// Segment that the record stands in.
    pub segment: u32,
    /// Offset in the segment.
    pub offset: u32,
}

/// Result of reading an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Looked {
    /// The entry is there.
    Found(Record),
    /// The entry was removed meanwhile.
    Gone,
    /// The bytes that stand there are not those that were written.
    Corrupt,
    /// The disk does not give the entry.
    Unread,
}

/// Result of comparing an entry with its checksums.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checked {
    /// Head and body are what was written.
    Sound,
    /// The entry was removed meanwhile.
    Gone,
    /// Head or body differs from its checksum.
    Corrupt,
    /// The disk does not give the entry.
    Unread,
    /// The entry was not compared to its end.
    Stopped,
}

impl Glance {
    /// The entry's name.
    pub fn key(&self) -> &Key {
        &self.slot.key
    }

    /// Facts about the entry that the index knows.
    pub fn summary(&self) -> EntrySummary {
        summary(&self.slot)
    }

    /// Directory that the entry is in.
    pub fn dir(&self) -> &Path {
        &self.inner.disk.dir
    }

    /// Reads head and place; the disk may be waited for.
    pub fn read(&self) -> Looked {
        match self.look() {
            Ok(stored) => Looked::Found(Record {
                head: stored.head.clone(),
                created_ms: stored.created_ms,
                segment: stored.place.segment,
                offset: stored.place.offset,
            }),
            Err(ReadError::Gone) => Looked::Gone,
            Err(ReadError::Corrupt) => Looked::Corrupt,
            Err(ReadError::Io(_)) => Looked::Unread,
        }
    }

    /// Reads all of the entry and compares checksums; the disk is waited for. Tells `progress`
    /// after each piece how many bytes were compared, and ends when that breaks.
    pub fn verify(&self, progress: &mut dyn FnMut(u64) -> ControlFlow<()>) -> Checked {
        for _ in 0..MAX_ROUNDS {
            let Some(slot) = self.inner.index.get(self.key()) else {
                return Checked::Gone;
            };
            if slot.is_in_flight() {
                // Its last bytes may be on their way.
                return Checked::Sound;
            }
            let mut step = |bytes| progress(bytes).is_continue();
            match self.inner.compare(&slot, Care::None, &mut step) {
                Compared::Sound => return Checked::Sound,
                Compared::Corrupt => return Checked::Corrupt,
                Compared::Unread => return Checked::Unread,
                Compared::Stopped => return Checked::Stopped,
                Compared::Gone => {}
            }
        }
        Checked::Gone
    }

    /// Takes the entry out as a corrupt one, for good, if it still is where it was.
    pub fn remove_corrupt(&self) {
        self.inner.drop_corrupt(self.key(), self.slot.place());
    }

    fn look(&self) -> Result<Arc<Stored>, ReadError> {
        let mut slot = self.slot;
        for _ in 0..MAX_ROUNDS {
            match self.inner.look(&slot) {
                Look::Seen(stored) => return Ok(stored),
                Look::Corrupt => return Err(ReadError::Corrupt),
                Look::Unread => return Err(ReadError::Io(std::io::ErrorKind::Other.into())),
                Look::Moved => {}
            }
            slot = self.inner.index.get(self.key()).ok_or(ReadError::Gone)?;
        }
        Err(ReadError::Gone)
    }
}

impl Volume {
    /// Facts about a key that the index knows; none if it would not be found.
    pub(crate) fn glance(&self, key: &Key) -> Option<Glance> {
        let oldest = self.inner.use_time().oldest;
        let slot = self.inner.index.get(key);
        let slot = slot.filter(|slot| slot.used >= oldest)?;
        Some(Glance {
            inner: Arc::clone(&self.inner),
            slot,
        })
    }

    /// Shows each entry, until it is told to stop or the volume is closed.
    pub(crate) fn inspect(
        &self,
        each: &mut dyn FnMut(&Glance) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let inner = &self.inner;
        if !inner.loading.wait() {
            return ControlFlow::Break(());
        }
        let oldest = inner.use_time().oldest;
        for shard in inner.index.shards() {
            let mut slots: Vec<Slot> = read(shard).table.iter().collect();
            // In the order of the log, so that a disk with a head moves it little.
            slots.sort_unstable_by_key(|slot| (slot.place().segment, slot.place().offset));
            for slot in slots.into_iter().filter(|slot| slot.used >= oldest) {
                if inner.is_closed() {
                    return ControlFlow::Break(());
                }
                let inner = Arc::clone(inner);
                each(&Glance { inner, slot })?;
            }
        }
        ControlFlow::Continue(())
    }
}
