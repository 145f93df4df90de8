//! A volume: one directory of a zone, with its index, its log and its disk thread.
//!
//! ```text
//!   find ──► index ──► memory tier ─ hit ──────────────► Entry
//!                └───► in flight ───────────────────────► Entry (from the fill)
//!                └───► disk: one pread, verified ──pins─► Entry
//! ```
//!
//! All calls are synchronous and may be made from any thread. `look`, `begin`, `append`, `finish`,
//! `replace_head` and `remove` never wait for the disk, nor for its thread: they reserve space in
//! memory and leave the rest to it. `find` reads the head from disk if it is not in memory; `sweep`
//! may take longer.
//!
//! A volume is one possession of its directory: once it was closed or lent it finds nothing, and
//! whoever wants the directory back opens another one.
//!
//! 1. `find` answers the newest finished entry of a key, or none.
//! 2. After `remove` has returned, the removed entry is never found again; nor is it after a crash,
//!    once `flush` has returned (`sync`, for a power failure). What must hold from the first moment
//!    on belongs in the journal.
//! 3. An entry that was not used for `inactive` is not found, whether or not it was swept yet.
//!
//! It does not know of other volumes: which keys are its own is the zone's to say.

use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, RwLock, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use bytes::Bytes;

use crate::admit::{NewBody, NotStored, Publish, Source, Writer};
use crate::clock::Clock;
use crate::cold::RecordLoads;
use crate::disk::io::File;
use crate::disk::open::SegmentFile;
use crate::disk::reader::ReadError;
use crate::disk::segment::Place;
use crate::disk::writer::Job;
use crate::disk::{Disk, SUPERBLOCK_NAME};
use crate::entry::{Body, Entry, Pins, Slice, Stored};
pub use crate::event::{Event, Platform};
use crate::fill::Fill;
use crate::health::{Changed, Health, Tried};
use crate::index::{Found, Index, Slot, UseTime};
use crate::journal::JournalFile;
use crate::key::Key;
use crate::lend::Limits;
use crate::load::Loading;
use crate::lock::{Ranked, lock, read};
use crate::reclaim::Reclaim;
use crate::recover::{self, How, StoreError};
use crate::scrub::Scrub;
use crate::site::Leave;
use crate::sweep::Swept;
use crate::unloaded::Unloaded;
use crate::uses::UsesFile;
use crate::zone::DiskConf;

/// Bodies up to this are verified whole before they are first used after an unclean stop; larger
/// ones slice by slice. Arbitrary: about a millisecond of reading.
const VERIFY_AT_ONCE: u64 = 4 << 20;

/// Choice of the entries that a zone stores once it is full; before, it stores everything.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Admission {
    /// Everything.
    #[default]
    All,
    /// Entries whose keys were asked for before, within a bounded memory, and so often that they
    /// are worth more than what leaves for them. Bodies without a byte are stored at once, as is
    /// what takes the place of an entry.
    SecondHit,
    /// Entries as for `SecondHit`, and of the others as much as is a tenth of what the zone stores.
    Trial,
}

/// Configuration of a zone.
#[derive(Clone, Debug)]
pub struct ZoneConf {
    /// Name of the zone, for messages.
    pub name: String,
    /// Directory of the zone; created if it is not there.
    pub path: PathBuf,
    /// Weight of the directory's share of all keys, where there are other disks.
    pub weight: u32,
    /// Further directories, on other disks.
    pub disks: Vec<DiskConf>,
    /// The most that all files and the directory may take; `None`: twice what lives in it, until
    /// `min_free` or the disk ends it.
    pub max_size: Option<u64>,
    /// Bytes to leave free on the file system; 0: none.
    pub min_free: u64,
    /// Entries that were not used for this long are removed.
    pub inactive: Duration,
    /// Bytes of the memory tier; 0: off.
    pub memory: u64,
    /// Bytes of a segment; `None`: chosen by `max_size`.
    pub segment_size: Option<u64>,
    /// Bodies up to this stand in one record with their head, and go to the memory tier.
    pub small: u64,
    /// Time for which an entry must have been complete to survive a power failure, provided that
    /// the disk writes and syncs what waits for it in half of that. Zero: synced at close only.
    pub flush: Duration,
    /// Bytes that may wait for the disk.
    pub queue: u64,
    /// Choice of the entries that are stored once the zone is full.
    pub admission: Admission,
    /// Interval at which all that the zone holds is compared with its checksums, in the background.
    pub scrub: Option<Duration>,
    /// Up to so many bytes of summaries, of 40 for an entry, are loaded before a zone is there;
    /// with more it is there at once, and loaded in the background.
    pub warm_up: u64,
}

impl ZoneConf {
    /// A zone at `path` with everything else as by default.
    pub fn new(name: impl Into<String>, path: impl Into<PathBuf>) -> Self {
        Self {
            name: name.into(),
            path: path.into(),
            weight: 1,
            disks: Vec::new(),
            max_size: None,
            min_free: 0,
            inactive: Duration::from_secs(600),
            memory: 32 << 20,
            segment_size: None,
            small: 8 << 10,
            flush: Duration::from_secs(1),
            queue: 32 << 20,
            admission: Admission::All,
            scrub: None,
            warm_up: 4 << 20,
        }
    }
}

/// Numbers about a zone. Counters begin at zero when the zone is opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Entries in the index.
    pub entries: u64,
    /// Bytes of all files.
    pub bytes: u64,
    /// Bytes of the files that entries take; the rest is space that is not used yet, or not again.
    pub live_bytes: u64,
    /// The limit.
    pub max_size: Option<u64>,
    /// Bytes in the memory tier.
    pub memory_bytes: u64,
    /// Bytes that the index takes, and the keys that were asked for, if those decide.
    pub index_bytes: u64,
    /// Entries that have no cell in the index, because too many keys are at home where theirs is:
    /// they cost more to find. Random keys do not come to this.
    pub index_spilled: u64,
    /// Bytes that wait for the disk.
    pub queued_bytes: u64,
    /// Entries removed for space.
    pub evicted: u64,
    /// Entries removed for inactivity.
    pub expired: u64,
    /// Entries removed because their bytes were not what was written.
    pub corrupt: u64,
    /// Entries lost because the disk refused to write or to sync them.
    pub lost: u64,
    /// Fills that the zone did not take, at their beginning or on the way.
    pub not_stored: u64,
    /// Number of those that were not asked for often enough.
    pub asked_seldom: u64,
    /// Bytes written to the disk.
    pub written_bytes: u64,
    /// Number of writes that that took.
    pub writes: u64,
    /// Bytes that were written again to keep what is in use; part of those that were written.
    pub rewritten_bytes: u64,
    /// Writes and syncs that the disk refused.
    pub write_errors: u64,
    /// Segments of which a sync failed, so that they were let go with all that they held.
    pub lost_segments: u64,
    /// Reads that the disk refused.
    pub read_errors: u64,
    /// Segments that nobody knows the entries of, because the disk does not give them.
    pub unread_segments: u64,
    /// Segments that had to go before the copies of what was in use there were synced: a power
    /// failure within `flush` took those entries.
    pub hasty: u64,
}

/// Facts about an entry that the index knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntrySummary {
    /// Length of the body.
    pub body_len: u64,
    /// Bytes of the record: head and, if it is small, body.
    pub record_size: u64,
    /// Bytes of the disk: of the record and, where it is not in there, of the body.
    pub disk_size: u64,
    /// Time when the entry was last used, milliseconds since 1970, to the second.
    pub used_ms: u64,
    /// True if the entry is a part of another entry.
    pub is_slice: bool,
    /// True if the entry was found since it was written.
    pub is_hit: bool,
    /// Number of times that the entry was found; 65535 stands for more, too. Halved each time that
    /// it is written again to be kept, and then at most 127.
    pub hits: u32,
}

/// Counters that any thread adds to.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) evicted: AtomicU64,
    pub(crate) expired: AtomicU64,
    pub(crate) corrupt: AtomicU64,
    pub(crate) lost: AtomicU64,
    pub(crate) not_stored: AtomicU64,
    pub(crate) asked_seldom: AtomicU64,
    pub(crate) written_bytes: AtomicU64,
    pub(crate) writes: AtomicU64,
    pub(crate) rewritten_bytes: AtomicU64,
    pub(crate) write_errors: AtomicU64,
    pub(crate) lost_segments: AtomicU64,
    pub(crate) read_errors: AtomicU64,
    pub(crate) hasty: AtomicU64,
}

impl Counters {
    pub(crate) fn wrote(&self, size: u64) {
        self.written_bytes.fetch_add(size, Ordering::Relaxed);
        self.writes.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn write_failed(&self) {
        self.write_errors.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn lost(&self) {
        self.lost.fetch_add(1, Ordering::Relaxed);
    }
}

/// State that a volume, its writers and its disk thread share.
pub(crate) struct Inner {
    pub(crate) conf: ZoneConf,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) index: Index,
    /// State of loading: is all that is on the disk in the index?
    pub(crate) loading: Loading,
    /// Look-ups that wait for what is not loaded yet.
    pub(crate) unloaded: Unloaded,
    pub(crate) disk: Disk,
    pub(crate) counters: Counters,
    pub(crate) events: Arc<dyn Fn(&Event) + Send + Sync>,
    /// Set once the zone takes nothing more and finds nothing more.
    pub(crate) closed: AtomicBool,
    /// Lock that is shared by all who may reserve space, and held alone by the one that sets
    /// `closed`. Nobody waits for the disk meanwhile.
    pub(crate) close_lock: Ranked<RwLock<()>>,
    /// Lock like `close_lock` for those who do wait for the disk, so that nobody who takes
    /// `close_lock` waits for them.
    pub(crate) slow_close_lock: Ranked<RwLock<()>>,
    /// Set once nothing is written any more but what fills were granted.
    pub(crate) is_shut: AtomicBool,
    /// Fills that may still run.
    pub(crate) fills: Ranked<Mutex<Vec<Weak<Fill>>>>,
    /// Records that are being read, or were and are still wanted.
    pub(crate) reads: Ranked<Mutex<RecordLoads>>,
    /// Journal: notes that must outlive everything.
    pub(crate) journal: Ranked<Mutex<JournalFile>>,
    /// File with the last uses of entries.
    pub(crate) uses: Ranked<Mutex<UsesFile>>,
    /// State of the scrub.
    pub(crate) scrub: Ranked<Mutex<Scrub>>,
    /// Limits that a reload may change.
    pub(crate) limits: Limits,
    /// Set while the file system has less than `min_free`.
    pub(crate) is_low: AtomicBool,
    /// Set while what comes takes the place of something else.
    pub(crate) is_full: AtomicBool,
    /// Set while a turn waits in the queue.
    pub(crate) is_turn_queued: AtomicBool,
    /// Set while a try to create a file is in the queue.
    pub(crate) is_retry_queued: AtomicBool,
    /// State of sweeps in the oldest segment.
    pub(crate) reclaim: Ranked<Mutex<Reclaim>>,
    /// Bytes that may be written again.
    pub(crate) rewrite_credit: AtomicU64,
    /// Keys that were taken out while the disk did not let that be written down.
    pub(crate) pending_tombstones: Ranked<Mutex<Changed>>,
    /// Health of the disk.
    pub(crate) health: Health,
    /// A number that no other possession of a directory has in this process.
    pub(crate) serial: u64,
    pub(crate) this: Weak<Inner>,
}

/// One directory with entries. Closed when dropped.
pub(crate) struct Volume {
    pub(crate) inner: Arc<Inner>,
    /// Configuration that is in force now.
    pub(crate) conf: Mutex<ZoneConf>,
    pub(crate) thread: Mutex<Option<JoinHandle<()>>>,
}

impl Volume {
    /// Opens a directory, or makes it. Reads the summaries of all segments.
    pub(crate) fn open(
        conf: ZoneConf,
        (clock, platform): (Arc<dyn Clock>, Platform),
        how: How,
    ) -> Result<Arc<Self>, StoreError> {
        let inner = recover::open(conf.clone(), (clock, platform), how)?;
        let thread = start_writing(&inner)?;
        Ok(Arc::new(Self {
            inner,
            conf: Mutex::new(conf),
            thread: Mutex::new(Some(thread)),
        }))
    }

    /// Looks an entry up and marks it used. A corrupt record is a miss, a counter and an event.
    pub(crate) fn find(&self, key: &Key) -> Option<Entry> {
        let inner = &self.inner;
        if !inner.is_found_in() {
            return None;
        }
        match inner.index.touch(key, inner.use_time())? {
            Found::Flight(entry) => Some(entry),
            Found::Kept(stored) => inner.pin(stored),
            Found::Stored(slot) => inner.find_on_disk(&slot),
            Found::Unloaded => None,
        }
    }

    /// True if there may be something under a key; marks nothing.
    pub(crate) fn may_hold(&self, key: &Key) -> bool {
        self.inner.index.get(key).is_some() || self.is_unknown(key)
    }

    /// True if what stands under a key is not known yet, and will be.
    pub(crate) fn is_unknown(&self, key: &Key) -> bool {
        self.inner.is_found_in() && self.inner.is_unknown(key)
    }

    /// Time when what `find` would look for at `now` was last used, seconds since 1970; marks
    /// nothing.
    #[inline]
    pub(crate) fn last_used(&self, key: &Key, now: u32) -> Option<u32> {
        let inner = &self.inner;
        if !inner.is_found_in() {
            return None;
        }
        let oldest = inner.use_time_at(now).oldest;
        inner.index.last_used(key).filter(|used| *used >= oldest)
    }

    /// Begins to fill an entry. Nothing is reserved before bytes come.
    pub(crate) fn begin(&self, key: Key, expected_len: Option<u64>) -> Result<Writer, NotStored> {
        let inner = &self.inner;
        // So that no fill begins unseen while the directory is lent.
        let _open = read(&inner.close_lock);
        let admitted = inner.may_begin(&key, expected_len);
        if matches!(admitted, Err(NotStored::AskedSeldom)) {
            inner.counters.asked_seldom.fetch_add(1, Ordering::Relaxed);
        }
        if admitted.is_err() {
            inner.counters.not_stored.fetch_add(1, Ordering::Relaxed);
        }
        admitted.map(|()| Writer::new(Arc::clone(inner), key, expected_len))
    }

    /// Chooses whether an entry of about so many bytes is to be made.
    pub(crate) fn choose(&self, key: &Key, about: u64) -> Result<(), NotStored> {
        self.inner.may_begin(key, Some(about))
    }

    /// Begins to fill an entry that was chosen.
    pub(crate) fn begin_chosen(&self, key: Key, len: u64) -> Result<Writer, NotStored> {
        let inner = &self.inner;
        let _open = read(&inner.close_lock);
        inner.may_write(&key, Some(len))?;
        Ok(Writer::new(Arc::clone(inner), key, Some(len)))
    }

    /// Removes an entry; true if there was one. That is written down by the disk thread.
    pub(crate) fn remove(&self, key: &Key, why: Leave) -> bool {
        let inner = &self.inner;
        let _open = read(&inner.close_lock);
        if inner.health.is_failed() {
            // It is out of sight already; it must not come back with the disk.
            inner.health.note(*key);
            return inner.index.shard(key).remove(key, why).is_some();
        }
        let was_there = !inner.is_closed() && inner.remove(key, why);
        // What was under way when the disk was given up may have got nowhere.
        if inner.health.is_failed() {
            inner.health.note(*key);
        }
        was_there
    }

    /// Gives an entry a new head; the body stays where it is.
    pub(crate) fn replace_head(&self, entry: &Entry, head: Bytes) -> Result<Entry, NotStored> {
        let inner = &self.inner;
        let _open = read(&inner.close_lock);
        if inner.is_closed() {
            return Err(NotStored::Closed);
        }
        if entry.origin != inner.serial {
            return Err(NotStored::Superseded);
        }
        let stored = &entry.stored;
        let (body, source, is_doubtful) = match &stored.body {
            Body::Inline(body) => (NewBody::Inline(vec![body.clone()]), Source::Memory, false),
            Body::Sliced(sliced) => {
                let pins = || Source::Pins(entry.pins.clone());
                let source = entry.fill.clone().map_or_else(pins, Source::Fill);
                (
                    NewBody::Sliced(sliced.slices.to_vec()),
                    source,
                    sliced.checked.is_some(),
                )
            }
        };
        inner.publish_charged(Publish {
            key: stored.key,
            head,
            body,
            created_ms: stored.created_ms,
            replaces: Some(stored.place),
            halvings: 0,
            source,
            is_doubtful,
        })
    }

    /// Removes what is inactive and makes space; to be called every second or so by one thread.
    pub(crate) fn sweep(&self) -> Swept {
        let inner = &self.inner;
        let _open = read(&inner.slow_close_lock);
        if !inner.is_found_in() {
            return Swept::default();
        }
        if !inner.is_in_place() {
            inner.health.fail("its files were removed");
            return Swept::default();
        }
        inner.scrub_soon();
        inner.sweep()
    }

    /// Numbers about the zone.
    pub(crate) fn usage(&self) -> Usage {
        self.inner.usage()
    }

    /// Calls `f` for each entry, in no order; entries that come or go meanwhile may be missed.
    pub(crate) fn entries(&self, f: &mut dyn FnMut(&Key, EntrySummary)) {
        let inner = &self.inner;
        inner.loading.wait();
        let oldest = inner.use_time().oldest;
        for shard in inner.index.shards() {
            let slots: Vec<Slot> = read(shard).table.iter().collect();
            for slot in slots.iter().filter(|slot| slot.used >= oldest) {
                f(&slot.key, summary(slot));
            }
        }
    }

    /// Waits until everything that is on the disk is known; false if some of it is not, because the
    /// volume was closed or the disk does not give it.
    pub(crate) fn loaded(&self) -> bool {
        self.inner.loading.wait()
    }

    /// Waits until everything that was finished is in the kernel. For tests and tools.
    pub(crate) fn flush(&self) {
        self.inner.disk.queue.flush();
    }

    /// Waits until everything that was finished or removed is on the device; false if some of it
    /// cannot be.
    pub(crate) fn sync(&self) -> bool {
        let inner = &self.inner;
        inner.disk.queue.flush();
        inner.retry();
        let are_buried = inner.bury_again();
        inner.sync_all_segments() && are_buried && !inner.health.is_failed()
    }

    /// Writes everything down, syncs it and lets the directory go. Later calls find nothing.
    pub(crate) fn close(&self) {
        let inner = &self.inner;
        inner.settle_lost();
        if !inner.shut_door() {
            return;
        }
        inner.disk.queue.flush();
        inner.disk.queue.close();
        if let Some(thread) = lock(&self.thread).take() {
            // A disk thread that panicked has nothing left to say here.
            let _ = thread.join();
        }
        inner.shut_down();
    }
}

/// Starts the disk thread of a volume.
fn start_writing(inner: &Arc<Inner>) -> Result<JoinHandle<()>, StoreError> {
    let writer = Arc::clone(inner);
    std::thread::Builder::new()
        .name(format!("disk {}", inner.conf.name))
        .spawn(move || writer.write_loop())
        .map_err(|source| StoreError::io("start the thread of", &inner.conf.path, source))
}

impl Drop for Volume {
    fn drop(&mut self) {
        self.close();
    }
}

impl Inner {
    /// True if the zone was closed.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// True if the directory is still the one that was opened: somebody may have emptied it, or put
    /// another one in its place. What cannot be looked at says nothing.
    fn is_in_place(&self) -> bool {
        // A disk that stands still would keep the lock.
        let superblock = lock(&self.disk.superblock).as_ref().map(File::try_clone);
        let Some(Ok(superblock)) = superblock else {
            return true;
        };
        let path = self.disk.dir.join(SUPERBLOCK_NAME);
        self.disk.io.is_named(&superblock, &path).unwrap_or(true)
    }

    /// True if entries can be found here.
    pub(crate) fn is_found_in(&self) -> bool {
        !self.is_closed() && !self.health.is_failed()
    }

    /// Seconds since 1970.
    pub(crate) fn now_s(&self) -> u32 {
        u32::try_from(self.clock.now() / 1000).unwrap_or(u32::MAX)
    }

    /// Now, and up to when entries are inactive.
    pub(crate) fn use_time(&self) -> UseTime {
        self.use_time_at(self.now_s())
    }

    /// A time of use, and up to when entries are inactive then.
    pub(crate) fn use_time_at(&self, now: u32) -> UseTime {
        // Uses are known to the second, so an entry may stay up to a second longer.
        let oldest = now.saturating_sub(self.limits.inactive_s());
        UseTime { now, oldest }
    }

    /// The longest body that could be stored.
    pub(crate) fn capacity(&self) -> u64 {
        lock(&self.disk.log).capacity()
    }

    /// The zone, for an entry that may have to report a corrupt slice. Others do without: counting
    /// the reference would make all cores write to one place at each lookup.
    pub(crate) fn zone_of(&self, stored: &Stored) -> Weak<Self> {
        match &stored.body {
            Body::Sliced(sliced) if sliced.checked.is_some() => self.weak(),
            _ => Weak::new(),
        }
    }

    /// A reference that does not keep the zone.
    pub(crate) fn weak(&self) -> Weak<Self> {
        Weak::clone(&self.this)
    }

    /// Reports an event to the operator.
    pub(crate) fn report(&self, event: &Event) {
        (self.events)(event);
    }

    /// Compares a slice with its checksum; if it differs, the entry goes.
    pub(crate) fn is_slice_sound(
        &self,
        stored: &Stored,
        slice: &Slice,
        file: &SegmentFile,
    ) -> io::Result<bool> {
        let is_sound = self.disk.is_slice_sound(slice, file)?;
        if !is_sound {
            self.drop_corrupt(&stored.key, stored.place);
        }
        Ok(is_sound)
    }

    /// The disk did not give what was asked for.
    pub(crate) fn read_failed(&self, error: &io::Error, tried: Tried) {
        self.health.met(error, tried);
        self.counters.read_errors.fetch_add(1, Ordering::Relaxed);
        self.report(&Event::ReadFailed(error.to_string()));
    }

    /// An entry for what is in memory, with the segments of its body pinned.
    pub(crate) fn pin(&self, stored: Arc<Stored>) -> Option<Entry> {
        let pins = match stored.segments() {
            [] => Some(Pins::None),
            [segment] => {
                let file = self.disk.file(*segment).map(|file| [(*segment, file)]);
                let file = file.filter(|file| !stored.has_gaps(file));
                file.map(|[(segment, file)]| Pins::One(segment, file))
            }
            segments => {
                let files = self.disk.files(segments);
                files.filter(|files| !stored.has_gaps(files)).map(Pins::new)
            }
        };
        let Some(pins) = pins else {
            self.index
                .remove_at(&stored.key, stored.place, Leave::Evicted);
            return None;
        };
        Some(Entry {
            zone: self.zone_of(&stored),
            stored,
            pins,
            fill: None,
            origin: self.serial,
        })
    }

    /// Reads the record of an entry; waits for the disk.
    pub(crate) fn find_on_disk(&self, slot: &Slot) -> Option<Entry> {
        let read = self.disk.read_entry(slot);
        self.take_read(slot, read)
    }

    /// The entry of a record that was read.
    pub(crate) fn take_read(&self, slot: &Slot, read: Result<Stored, ReadError>) -> Option<Entry> {
        let stored = match read {
            Ok(stored) => stored,
            Err(ReadError::Gone) => {
                self.drop_gone(slot);
                return None;
            }
            Err(ReadError::Corrupt) => {
                self.drop_corrupt(&slot.key, slot.place());
                return None;
            }
            Err(ReadError::Io(error)) => {
                self.read_failed(&error, Tried::Read);
                return None;
            }
        };
        self.health.has_read();
        let mut entry = self.pin(Arc::new(stored))?;
        if must_verify(slot) {
            entry = self.verify(entry)?;
        }
        self.index.keep(&entry.stored);
        Some(entry)
    }

    /// Takes out an entry whose segment is gone, or whose record is its own tombstone by now: a
    /// power failure kept that and lost the summary that says so.
    fn drop_gone(&self, slot: &Slot) {
        let _open = read(&self.close_lock);
        let place = slot.place();
        let removed = self.index.remove_at(&slot.key, place, Leave::Evicted);
        if removed.is_some() && !self.is_closed() && self.disk.file(place.segment).is_some() {
            self.disk.queue.push(Job::Void(slot.key, place));
        }
    }

    /// Compares all slices with their checksums, and removes the doubt.
    fn verify(&self, entry: Entry) -> Option<Entry> {
        let wanted = entry.len();
        let found: u64 = entry.regions(0..wanted).map(|region| region.len()).sum();
        if found != wanted {
            return None;
        }
        let Entry { stored, pins, .. } = entry;
        self.index.verified(&stored.key, stored.place);
        let mut stored = Arc::into_inner(stored)?;
        if let Body::Sliced(sliced) = &mut stored.body {
            sliced.settle();
        }
        Some(Entry {
            stored: Arc::new(stored),
            pins,
            fill: None,
            zone: Weak::new(),
            origin: self.serial,
        })
    }

    /// Takes a corrupt entry out, for good: older versions must not come back in its place, and
    /// nobody should have to find out again after a restart.
    pub(crate) fn drop_corrupt(&self, key: &Key, place: Place) {
        let _open = read(&self.slow_close_lock);
        let removed = self.index.remove_at(key, place, Leave::Corrupt);
        if removed.is_none() || self.is_closed() {
            return;
        }
        self.kill(key, place);
        self.void_row(place);
        self.counters.corrupt.fetch_add(1, Ordering::Relaxed);
        self.report(&Event::Corrupt {
            key: *key,
            segment: place.segment,
            offset: place.offset,
        });
    }

    fn usage(&self) -> Usage {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let (bytes, max_size) = {
            let log = lock(&self.disk.log);
            (log.file_bytes, log.plan.limit)
        };
        Usage {
            entries: self.index.count(),
            bytes,
            live_bytes: self.index.holdings().disk_bytes(),
            max_size,
            memory_bytes: self.index.memory_used(),
            index_bytes: self.index.table_memory() + self.limits.choice.memory(),
            index_spilled: self.index.spilled(),
            queued_bytes: self.disk.queue.bytes(),
            evicted: count(&self.counters.evicted),
            expired: count(&self.counters.expired),
            corrupt: count(&self.counters.corrupt),
            lost: count(&self.counters.lost),
            not_stored: count(&self.counters.not_stored),
            asked_seldom: count(&self.counters.asked_seldom),
            written_bytes: count(&self.counters.written_bytes),
            writes: count(&self.counters.writes),
            rewritten_bytes: count(&self.counters.rewritten_bytes),
            write_errors: count(&self.counters.write_errors),
            lost_segments: count(&self.counters.lost_segments),
            read_errors: count(&self.counters.read_errors),
            unread_segments: self.loading.unread(),
            hasty: count(&self.counters.hasty),
        }
    }
}

/// True if the whole body is to be compared with its checksums before it is used.
pub(crate) fn must_verify(slot: &Slot) -> bool {
    slot.is_unverified() && slot.body_len() <= VERIFY_AT_ONCE
}

pub(crate) fn summary(slot: &Slot) -> EntrySummary {
    EntrySummary {
        body_len: slot.body_len(),
        record_size: u64::from(slot.place().size),
        disk_size: slot.disk_size(),
        used_ms: u64::from(slot.used) * 1000,
        is_slice: slot.account().is_slice(),
        is_hit: slot.hits() > 0,
        hits: u32::from(slot.hits()),
    }
}
