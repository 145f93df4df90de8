//! Taking entries out, one by one.
//!
//! ```text
//!   remove ──► out of the index ──► queue ──► tombstone      at once; nobody waits for the disk
//!                                     └─ no room for one ──► written over the record
//! ```
//!
//! 1. When the index does not have the entry any more, its tombstone is in the queue. So who finds
//!    it gone and flushes the queue knows that the removal is in the kernel.
//! 2. A tombstone is later in the log than all that it is about, and before all that came after.
//! 3. Where neither a tombstone nor its substitute can be written, the zone says that it cannot be
//!    synced, until one can: what is forgotten after a sync must not be. Each sweep tries, and so
//!    does who syncs.
//!
//! Removals of many at once, by whoever may wait, are in `sweep` and `review`.

use bytes::Bytes;

use crate::disk::format::{Kind, RECORD_HEADER, RecordHeader, Row, payload_sum};
use crate::disk::segment::Place;
use crate::disk::writer::Job;
use crate::health::Changed;
use crate::index::{Shard, Slot};
use crate::key::Key;
use crate::lock::lock;
use crate::site::{Account, Leave};
use crate::volume::Inner;

/// Attempts of a tombstone, each of which may find its segment taken by others.
const MAX_ATTEMPTS: usize = 8;

impl Inner {
    /// Takes an entry out, and has the disk thread write that down; never waits for the disk.
    pub(crate) fn remove(&self, key: &Key, why: Leave) -> bool {
        self.remove_where(key, why, |shard| shard.may_have(key))
    }

    /// Takes an entry out as [`Self::remove`] does, if it is the one that is meant.
    pub(crate) fn remove_if(&self, key: &Key, why: Leave, is_it: impl Fn(&Slot) -> bool) -> bool {
        let is_meant = |shard: &Shard| shard.table.get(key).is_some_and(|slot| is_it(&slot));
        self.remove_where(key, why, is_meant)
    }

    fn remove_where(&self, key: &Key, why: Leave, is_meant: impl Fn(&Shard) -> bool) -> bool {
        for _ in 0..MAX_ATTEMPTS {
            let mut shard = self.index.shard(key);
            if !is_meant(&shard) {
                return false;
            }
            let mut row = [tombstone_row(*key, RECORD_HEADER)];
            let reserved = lock(&self.disk.log).reserve_record(RECORD_HEADER, &mut row);
            if let Ok(place) = reserved {
                let old = shard.remove(key, why);
                self.disk.queue.charge(u64::from(place.size));
                // INVARIANT 1: under the lock of the shard.
                self.disk.queue.push(Job::Bury {
                    place,
                    key: *key,
                    old: old.map(|slot| slot.place()),
                });
                return true;
            }
            drop(shard);
            if self.make_room(RECORD_HEADER, row[0].encoded_len()).is_err() {
                break;
            }
        }
        self.remove_in_place_where(key, why, is_meant)
    }

    /// Turns the record of an entry into its tombstone, where there is no room for another.
    pub(crate) fn remove_in_place(&self, key: &Key, why: Leave) -> bool {
        self.remove_in_place_where(key, why, |shard| shard.may_have(key))
    }

    fn remove_in_place_where(
        &self,
        key: &Key,
        why: Leave,
        is_meant: impl Fn(&Shard) -> bool,
    ) -> bool {
        let mut shard = self.index.shard(key);
        if !is_meant(&shard) {
            return false;
        }
        let old = shard.remove(key, why);
        // INVARIANT 1.
        self.disk.queue.push(match old {
            Some(slot) => Job::Void(*key, slot.place()),
            // Where its record stands is not known yet.
            None => Job::BuryLate(*key),
        });
        true
    }

    /// Writes the tombstone of an entry that was taken out; if that fails, over its record.
    pub(crate) fn write_tombstone(&self, place: Place, key: &Key, old: Option<Place>) {
        let record = self.tombstone(place, *key, &[]);
        let wrote = self.write_record(place, &[record]);
        self.disk.queue.discharge(u64::from(place.size));
        if !wrote {
            self.void(key, old);
        }
        self.end_reservation(place.segment);
        self.health.note(*key);
    }

    /// Turns the record of an entry that was taken out into its tombstone.
    pub(crate) fn void(&self, key: &Key, old: Option<Place>) {
        match old {
            Some(old) if self.kill(key, old) => {
                self.void_row(old);
                self.mark_dirty(old.segment);
            }
            // INVARIANT 3.
            _ => lock(&self.pending_tombstones).add(*key),
        }
        self.health.note(*key);
    }

    /// Writes the tombstone of what was taken out before it was loaded, where there was no room for
    /// one; waits for the disk.
    pub(crate) fn bury_late(&self, key: &Key) {
        for _ in 0..MAX_ATTEMPTS {
            let shard = self.index.shard(key);
            if let Some(newer) = shard.table.get(key) {
                // INVARIANT 2: what has come meanwhile is newer than what was taken out, once it is
                // written.
                if newer.is_in_flight() {
                    lock(&self.pending_tombstones).add(*key);
                }
                return;
            }
            let mut row = [tombstone_row(*key, RECORD_HEADER)];
            let reserved = lock(&self.disk.log).reserve_record(RECORD_HEADER, &mut row);
            drop(shard);
            if let Ok(place) = reserved {
                self.disk.queue.charge(u64::from(place.size));
                return self.write_tombstone(place, key, None);
            }
            if self.make_room(RECORD_HEADER, row[0].encoded_len()).is_err() {
                break;
            }
        }
        self.void(key, None);
    }

    /// Writes down what could not be; waits for the disk. Whether nothing is left of it.
    pub(crate) fn bury_again(&self) -> bool {
        if self.rests() {
            return lock(&self.pending_tombstones).is_empty();
        }
        let pending_tombstones = std::mem::take(&mut *lock(&self.pending_tombstones));
        if pending_tombstones.is_empty() {
            return lock(&self.pending_tombstones).is_empty();
        }
        let Some(keys) = pending_tombstones.into_keys() else {
            // Nobody knows what it is about.
            *lock(&self.pending_tombstones) = Changed::unknown();
            return false;
        };
        let mut is_refused = false;
        for key in keys {
            // A disk that refuses one is not asked for all the others.
            if is_refused || self.is_closed() {
                lock(&self.pending_tombstones).add(key);
                continue;
            }
            self.bury_late(&key);
            is_refused = !lock(&self.pending_tombstones).is_empty();
        }
        lock(&self.pending_tombstones).is_empty()
    }

    /// Writes a tombstone over whatever stands at `place`, unless its segment is gone; false if the
    /// disk refuses.
    pub(crate) fn kill(&self, key: &Key, place: Place) -> bool {
        if self.disk.file(place.segment).is_none() {
            return true;
        }
        let place = Place {
            size: RECORD_HEADER,
            ..place
        };
        let record = self.tombstone(place, *key, &[]);
        self.write_record(place, &[record])
    }

    /// The record that takes keys out of the log: those of the list, or `key` if it is empty.
    pub(crate) fn tombstone(&self, place: Place, key: Key, keys: &[Key]) -> Bytes {
        let payload: Vec<u8> = keys.iter().flat_map(|key| key.0).collect();
        let header = RecordHeader {
            kind: Kind::Tombstone,
            segment: place.segment,
            offset: place.offset,
            size: place.size,
            head_len: 0,
            key,
            created_ms: self.clock.now(),
            body_len: 0,
            count: keys.len() as u32,
            inline_len: 0,
            payload_sum: payload_sum(&payload),
        };
        let mut record = header.encode(self.disk.seed);
        record.extend_from_slice(&payload);
        Bytes::from(record)
    }
}

/// The summary row of a tombstone.
pub(crate) fn tombstone_row(key: Key, size: u32) -> Row {
    Row {
        kind: Kind::Tombstone,
        key,
        offset: 0,
        size,
        body_len: 0,
        is_sliced: false,
        account: Account::default(),
        needs: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;
    use std::time::Duration;

    use super::*;
    use crate::clock::ManualClock;
    use crate::disk::power::PowerIo;
    use crate::event::Platform;
    use crate::recover::{How, Parents, Start};
    use crate::volume::{Volume, ZoneConf};

    fn open(home: &Path, io: &Arc<PowerIo>) -> Arc<Volume> {
        let conf = ZoneConf {
            max_size: Some(1 << 20),
            memory: 0,
            flush: Duration::from_secs(3600),
            ..ZoneConf::new("remove", home.join("zone"))
        };
        let platform = Platform {
            io: io.clone(),
            ..Platform::default()
        };
        let how = How {
            start: Start::Resume,
            parents: Parents::Make,
            secret: None,
        };
        let clock = Arc::new(ManualClock::new(1_700_000_000_000));
        Volume::open(conf, (clock, platform), how).expect("opens")
    }

    fn store(volume: &Volume, key: &Key, head: &'static [u8]) {
        let mut writer = volume.begin(*key, Some(0)).expect("begun");
        writer.set_head(Bytes::from_static(head));
        writer.finish().expect("stored");
    }

    /// Whatever the power failure leaves of the tombstone, wherever the record stands: the version
    /// that was removed is there or nothing, never the one before it.
    #[test]
    fn removal_in_place_that_is_torn_brings_nothing_older_back() {
        let key = Key([7; 16]);
        let mut seen = [0; 2];
        for seed in 0..512 {
            let home = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir());
            let home = home.expect("directory");
            let io = Arc::new(PowerIo::new(seed, home.path().join("graves")));
            let volume = open(home.path(), &io);
            // So that what follows begins at any multiple of 16 in a sector.
            let shift = &[b' '; 512][..seed as usize % 32 * 16];
            store(&volume, &Key([1; 16]), shift);
            store(&volume, &key, b"old");
            store(&volume, &key, b"new");
            assert!(volume.sync());
            assert!(volume.inner.remove_in_place(&key, Leave::Removed));
            volume.flush();
            io.cut();
            volume.close();
            io.lose().expect("lost");
            let io = Arc::new(PowerIo::new(seed, home.path().join("graves")));
            let volume = open(home.path(), &io);
            match volume.find(&key) {
                None => seen[0] += 1,
                Some(entry) if **entry.head() == *b"new" => seen[1] += 1,
                Some(entry) => panic!("{seed}: {:?}", entry.head()),
            }
        }
        assert!(seen.iter().all(|times| *times > 0), "{seen:?}");
    }
}
