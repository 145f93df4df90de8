//! Looking an entry up without waiting for its disk.
//!
//! ```text
//!   look ──► index ──► memory, in flight ───────────────────► Found
//!                └───► disk: in the page cache ─────────────► Found
//!                            ├ not there: a thread reads it ► Cold ──wait──► look again
//!                            └ the disk is stalled, or busy ► Stalled
//!             ▼
//!          not loaded yet (`unloaded`) ─────────────────────► Unknown ──wait──► look again
//! ```
//!
//! Who holds a [`Cold`] finds what was read when it looks again, as long as the entry still stands
//! where it was read; everybody who looks for it meanwhile gets the same read.
//!
//! 1. A key has at most one read that runs.
//! 2. What was read is found only where the index says that the entry is.

use std::sync::{Arc, Weak};

use hashbrown::HashMap;

use crate::disk::pool::{Busy, Haste, Load};
use crate::disk::reader::ReadError;
use crate::disk::segment::Place;
use crate::entry::Entry;
use crate::index::{Found, Slot};
use crate::key::Key;
use crate::lock::lock;
use crate::unloaded::KeyLoad;
use crate::volume::{Inner, Volume, must_verify};

/// A record that is being read, or was: the entry, if there is one.
pub(crate) type RecordLoad = Load<Option<Entry>>;

/// Records that are being read, or were and are still wanted, each with the place where it stood.
pub(crate) type RecordLoads = HashMap<Key, (Place, Weak<RecordLoad>)>;

/// Result of looking an entry up.
#[derive(Debug)]
pub enum Look {
    /// The entry is there.
    Found(Entry),
    /// There is no entry under the key.
    Missing,
    /// The disk of the key is being asked.
    Cold(Cold),
    /// The disk of the key has too much to do, or does not answer.
    Stalled,
    /// There may be one: what the disk holds is being loaded. None if that does not go on, so that
    /// it is not worth waiting. Nothing is stored under the key until it is known.
    Unknown(Option<Cold>),
}

/// An entry whose disk is being asked.
#[derive(Clone, Debug)]
pub struct Cold(Asked);

#[derive(Clone, Debug)]
enum Asked {
    /// The entry's record is read.
    Record(Arc<RecordLoad>),
    /// The place of the key's record, if it has one, is found out.
    Key(Arc<KeyLoad>),
}

impl Cold {
    /// Waits until the disk has answered. Keep it until you have looked again.
    pub async fn wait(&self) {
        // What came of it is for the next look to say.
        match &self.0 {
            Asked::Record(read) => drop(read.done().await),
            Asked::Key(load) => drop(load.done().await),
        }
    }

    fn of_record(read: Arc<RecordLoad>) -> Self {
        Self(Asked::Record(read))
    }

    /// One of a key that is not known yet.
    pub(crate) fn of_key(load: Arc<KeyLoad>) -> Self {
        Self(Asked::Key(load))
    }
}

impl From<Option<Entry>> for Look {
    fn from(found: Option<Entry>) -> Self {
        found.map_or(Look::Missing, Look::Found)
    }
}

impl Volume {
    /// Looks an entry up like `find` at `now` (seconds since 1970), without waiting for the disk.
    pub(crate) fn look(&self, key: &Key, now: u32) -> Look {
        let inner = &self.inner;
        if !inner.is_found_in() {
            return Look::Missing;
        }
        match inner.index.touch(key, inner.use_time_at(now)) {
            None => Look::Missing,
            Some(Found::Unloaded) => inner.look_unloaded(key, now),
            Some(found) => inner.look_found(found),
        }
    }
}

impl Inner {
    /// Result of a look-up that found this in the index.
    pub(crate) fn look_found(&self, found: Found) -> Look {
        match found {
            Found::Flight(entry) => Look::Found(entry),
            Found::Kept(stored) => self.pin(stored).into(),
            Found::Stored(slot) => self.look_on_disk(&slot),
            Found::Unloaded => Look::Unknown(None),
        }
    }

    fn look_on_disk(&self, slot: &Slot) -> Look {
        if let Some(look) = self.look_among_reads(slot) {
            return look;
        }
        // What is wrong with a record is found out apart: to say so is to write.
        if !must_verify(slot)
            && self.disk.readers.pool().may_look()
            && let Some(read @ (Ok(_) | Err(ReadError::Gone))) = self.disk.try_read_entry(slot)
        {
            return self.take_read(slot, read).into();
        }
        self.read_apart(slot)
    }

    /// Result of a look-up for an entry whose record is being read, or was read and is still
    /// wanted.
    fn look_among_reads(&self, slot: &Slot) -> Option<Look> {
        let read = read_of(&lock(&self.reads), slot)?;
        Some(match read.now() {
            None => Look::Cold(Cold::of_record(read)),
            Some(Ok(found)) => found.into(),
            Some(Err(Busy)) => Look::Stalled,
        })
    }

    /// Starts a read of the record by a thread of the disk.
    fn read_apart(&self, slot: &Slot) -> Look {
        let mut reads = lock(&self.reads);
        // INVARIANT 1.
        if let Some(read) = read_of(&reads, slot) {
            return Look::Cold(Cold::of_record(read));
        }
        let (this, slot) = (self.weak(), *slot);
        let read = move || this.upgrade().and_then(|inner| inner.find_on_disk(&slot));
        let Ok(read) = Load::start((self.disk.readers.pool(), Haste::OrNotAtAll), read) else {
            return Look::Stalled;
        };
        // There are not more of them than requests that wait, and threads that read.
        reads.retain(|_, (_, read)| read.strong_count() > 0);
        reads.insert(slot.key, (slot.place(), Arc::downgrade(&read)));
        Look::Cold(Cold::of_record(read))
    }
}

/// INVARIANT 2.
fn read_of(reads: &RecordLoads, slot: &Slot) -> Option<Arc<RecordLoad>> {
    let (place, read) = reads.get(&slot.key)?;
    read.upgrade().filter(|_| *place == slot.place())
}
