//! The zone: what a cache asks of its store.
//!
//! ```text
//!   key ──► placement ──► the volume whose key it is: find, begin, remove, …
//! ```
//!
//! A zone has a volume for each of its directories that can be used. Calls about a key go to its
//! volume; calls about the zone go to all. All calls are synchronous and may be made from any
//! thread.
//!
//! - `placement` – which disk a key belongs to
//! - `set` – the disks: who is in, who is away, and since when
//! - `maintenance` – giving disks up and taking them back, in a thread of its own
//! - `notes` – the journal, of which each disk has a copy
//!
//! 1. `find` answers the newest finished entry of a key, or none.
//! 2. After `remove` has returned, the removed entry is never found again; nor is it after a crash,
//!    once `flush` has returned (`sync`, for a power failure). What must hold from the first moment
//!    on belongs in the journal.
//! 3. An entry that was not used for `inactive` is not found, whether or not it was swept yet.
//! 4. A volume that can be found in has no entry whose key belongs to another one. So what a key's
//!    disk has is the newest, whichever disks came and went.
//!
//! With one directory, all that a look-up costs more than with a volume alone is a comparison.
//!
//! It knows nothing of HTTP: freshness, variants and statuses are the caller's.

mod maintenance;
mod notes;
mod peeks;
pub(crate) mod placement;
mod set;

use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, RwLock, Weak, mpsc};
use std::time::Duration;

use arc_swap::ArcSwap;
use bytes::Bytes;

use crate::admit::{NotStored, Writer};
use crate::clock::Clock;
use crate::cold::Look;
use crate::departure::Departures;
use crate::disk::io::DiskIo;
use crate::disk::still::{StillIo, Touch};
use crate::entry::{Entry, Reading};
use crate::inspect::Glance;
use crate::key::{Key, Keys, Secret};
use crate::lock::{lock, read};
use crate::recover::{self, StoreError};
use crate::removed_heads::RemovedHeads;
use crate::review::{Review, Reviewed};
use crate::site::{Departed, Held, Leave, SiteBook, SiteLimit};
use crate::sweep::Swept;
use crate::verify::{Progress, Verified};
use crate::volume::{EntrySummary, Event, Platform, Usage, Volume, ZoneConf};
pub use peeks::Peeks;
pub use placement::MAX_DISKS;
use placement::Placement;
use set::{Control, Phase};
pub use set::{DiskConf, DiskState, DiskUsage};

/// Time that a sweep waits for a disk; a stalled one must not keep others from being swept.
const SWEEP_PATIENCE: Duration = Duration::from_secs(1);

/// Function that is told of events, on any thread.
pub type Listener = Arc<dyn Fn(&Event) + Send + Sync>;

/// Counts of what a site holds on a disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SiteHeld {
    /// Name of the site; empty for entries that name no site.
    pub site: Bytes,
    /// The directory of the disk.
    pub disk: PathBuf,
    /// Counts of what the site holds there.
    pub held: Held,
}

/// A named cache on disk. Closed when dropped.
pub struct Zone {
    /// Volumes and their shares, exchanged each time that a disk comes or goes.
    live: ArcSwap<Live>,
    /// The disks. Not for calls about a key.
    control: Mutex<Control>,
    /// Lock of the thread that maintains the disks.
    maintaining: Mutex<()>,
    /// Held alone while what must not come back is handed from one volume of a disk to the next.
    moving: RwLock<()>,
    /// Held alone while the journal of a disk is brought up to date.
    noting: RwLock<()>,
    /// Number of changes to the journal.
    noted: AtomicU64,
    /// Secret of the keys, on all disks. INVARIANT 4 of `set`.
    secret: Secret,
    keys: Keys,
    clock: Arc<dyn Clock>,
    platform: Platform,
    this: Weak<Zone>,
}

/// The disks in use, for calls about a key.
#[derive(Default)]
struct Live {
    volumes: Vec<Arc<Volume>>,
    placement: Placement,
    /// Disks that are away and may come back as they were.
    absent: Vec<Arc<Volume>>,
}

impl Live {
    #[inline]
    fn of(&self, key: &Key) -> Option<&Arc<Volume>> {
        self.volumes.get(self.placement.of(key))
    }

    /// Something happens to a key that a disk may hold which is away.
    fn note(&self, key: &Key) {
        for volume in &self.absent {
            // What was its own when it left counts, wherever the key belongs now.
            if volume.inner.health.may_hold(key) {
                volume.inner.health.note(*key);
            }
        }
    }
}

/// An entry that is to be made: the zone would take it.
#[derive(Debug)]
pub struct Chosen(Key);

impl Zone {
    /// Opens a zone, or makes it. Reads the summaries of all segments.
    pub fn open(conf: ZoneConf, clock: Arc<dyn Clock>) -> Result<Arc<Self>, StoreError> {
        Self::open_on(conf, clock, Platform::default())
    }

    /// Opens a zone on a given file system, with events.
    ///
    /// Of several disks, those that cannot be opened are tried again later; it is an error if none
    /// can, or if one is used by someone else.
    pub fn open_on(
        conf: ZoneConf,
        clock: Arc<dyn Clock>,
        platform: Platform,
    ) -> Result<Arc<Self>, StoreError> {
        let (control, secret) = set::assemble(conf, (&clock, &platform), None)?;
        let zone = Arc::new_cyclic(|this| Self {
            live: ArcSwap::default(),
            control: Mutex::new(control),
            maintaining: Mutex::default(),
            moving: RwLock::default(),
            noting: RwLock::default(),
            noted: AtomicU64::new(0),
            secret,
            keys: Keys::new(secret),
            clock,
            platform,
            this: this.clone(),
        });
        zone.maintain();
        Ok(zone)
    }

    /// Opens a zone to look at it, or to purge; it must be there and stays as it is, whatever its
    /// state. Nothing is evicted and no time passes: `inactive` does not count, nor do the limits
    /// of `conf` for `Touch::Nothing`.
    pub fn open_still(
        mut conf: ZoneConf,
        clock: Arc<dyn Clock>,
        (touch, events, sites): (Touch, Listener, Arc<SiteBook>),
    ) -> Result<Arc<Self>, StoreError> {
        if touch == Touch::Nothing {
            conf.max_size = None;
        }
        conf.min_free = 0;
        conf.inactive = Duration::MAX;
        let io: Arc<dyn DiskIo> = Arc::new(StillIo::new(touch));
        let platform = Platform {
            io,
            events,
            sites,
            ..Platform::default()
        };
        Self::open_existing(conf, clock, platform)
    }

    /// Opens a zone that must be there, as [`Zone::open_on`] does.
    pub fn open_existing(
        conf: ZoneConf,
        clock: Arc<dyn Clock>,
        platform: Platform,
    ) -> Result<Arc<Self>, StoreError> {
        let others = conf.disks.iter().map(|disk| &disk.path);
        let mut is_there = false;
        for path in std::iter::once(&conf.path).chain(others) {
            is_there |= recover::is_there(&*platform.io, path)?;
        }
        if !is_there {
            return Err(StoreError::Absent { path: conf.path });
        }
        Self::open_on(conf, clock, platform)
    }

    /// Makes the keys of the zone: another one makes others of the same texts.
    #[inline]
    pub fn keys(&self) -> &Keys {
        &self.keys
    }

    /// Looks an entry up and marks it used. A corrupt record is a miss, a counter and an event.
    /// Waits for the disk. What is not loaded yet is not found: see [`Zone::loaded`].
    pub fn find(&self, key: &Key) -> Option<Entry> {
        self.live.load().of(key)?.find(key)
    }

    /// Looks an entry up as [`Zone::find`] does, without waiting for the disk.
    pub fn look(&self, key: &Key) -> Look {
        self.look_at(key, self.now_s())
    }

    /// Looks an entry up as [`Zone::look`] does, for a caller that knows what time it is: seconds
    /// since 1970.
    pub fn look_at(&self, key: &Key, now: u32) -> Look {
        match self.live.load().of(key) {
            Some(volume) => volume.look(key, now),
            None => Look::Missing,
        }
    }

    /// The time by the zone's clock, in seconds since 1970.
    pub fn now_s(&self) -> u32 {
        u32::try_from(self.clock.now() / 1000).unwrap_or(u32::MAX)
    }

    /// Milliseconds by a clock that nobody sets, and which goes on while the machine sleeps.
    pub fn since_boot_ms(&self) -> u64 {
        self.clock.since_boot()
    }

    /// Keeps with an entry what was made of its head, as long as the entry is in memory; `bytes` is
    /// what that takes. Without effect for an entry that is not, was not found there since it came,
    /// or has one already.
    pub fn keep_reading(&self, entry: &Entry, reading: Reading, bytes: u64) {
        if let Some(volume) = self.live.load().of(entry.key()) {
            volume
                .inner
                .index
                .keep_reading(&entry.stored, (reading, bytes));
        }
    }

    /// Begins to fill an entry. Nothing is reserved before bytes come. Refused while it is not
    /// known what is there ([`Look::Unknown`]).
    pub fn begin(&self, key: Key, expected_len: Option<u64>) -> Result<Writer, NotStored> {
        self.at(&key, |live| match live.of(&key) {
            Some(volume) => volume.begin(key, expected_len),
            None => Err(NotStored::Disk),
        })
    }

    /// Chooses, as [`Zone::begin`] does, whether an entry of about so many bytes would be taken:
    /// for those who have to make its body first. Notes that it is asked for.
    pub fn choose(&self, key: Key, about: u64) -> Result<Chosen, NotStored> {
        match self.live.load().of(&key) {
            Some(volume) => volume.choose(&key, about).map(|()| Chosen(key)),
            None => Err(NotStored::Disk),
        }
    }

    /// Begins to fill an entry that was chosen; no second choice is made.
    pub fn begin_chosen(&self, Chosen(key): Chosen, len: u64) -> Result<Writer, NotStored> {
        self.at(&key, |live| match live.of(&key) {
            Some(volume) => volume.begin_chosen(key, len),
            None => Err(NotStored::Disk),
        })
    }

    /// Removes an entry; true if there was one. Never waits for the disk: the removal is written
    /// down soon, and [`Zone::flush`] waits for that.
    pub fn remove(&self, key: &Key) -> bool {
        let mut was_there = false;
        loop {
            let before = self.live.load_full();
            was_there |= self.at(key, |live| {
                live.of(key)
                    .is_some_and(|volume| volume.remove(key, Leave::Removed))
            });
            // Another disk may have the key by now. Disks seldom come or go, so the loop ends.
            if Arc::ptr_eq(&before, &self.live.load()) {
                return was_there;
            }
        }
    }

    /// Gives an entry a new head; the body stays where it is.
    pub fn replace_head(&self, entry: &Entry, head: Bytes) -> Result<Entry, NotStored> {
        match self.live.load().of(entry.key()) {
            Some(volume) => volume.replace_head(entry, head),
            None => Err(NotStored::Superseded),
        }
    }

    /// Changes something under a key, and remembers that for disks that are away.
    fn at<T>(&self, key: &Key, act: impl FnOnce(&Live) -> T) -> T {
        let live = self.live.load();
        if live.absent.is_empty() {
            return act(&live);
        }
        drop(live);
        let _still = read(&self.moving);
        let live = self.live.load();
        live.note(key);
        act(&live)
    }

    /// Removes what is inactive, makes space, and sees after disks that failed; to be called every
    /// second or so by one thread.
    pub fn sweep(&self) -> Swept {
        self.maintain_soon();
        self.platform.sites.maintain();
        let live = self.live.load_full();
        match live.volumes.as_slice() {
            [volume] => volume.sweep(),
            volumes => sweep_each(volumes),
        }
    }

    /// Numbers about the zone.
    pub fn usage(&self) -> Usage {
        lock(&self.control).usage()
    }

    /// Numbers about each disk, in the order of the configuration.
    pub fn disks(&self) -> Vec<DiskUsage> {
        lock(&self.control).disks()
    }

    /// Counts of what each site holds on each disk that can be used. Until all is loaded, of what
    /// is known.
    pub fn sites(&self) -> Vec<SiteHeld> {
        let volumes = lock(&self.control).volumes();
        let on_disk = |volume: &Arc<Volume>| {
            let disk = volume.inner.disk.dir.clone();
            let held = volume.inner.index.holdings().held().into_iter();
            held.map(move |(site, held)| SiteHeld {
                site,
                disk: disk.clone(),
                held,
            })
        };
        volumes.iter().flat_map(on_disk).collect()
    }

    /// True if something of a site is stored, or on its way, as far as is known.
    pub fn holds_site(&self, site: &[u8]) -> bool {
        self.platform.sites.holds(site)
    }

    /// Sets the listener that departures of entries are told from now on; there is one, the first.
    pub fn tell_departures(&self, listener: Arc<dyn Departures>) {
        self.platform.sites.tell(listener);
    }

    /// Keeps numbers for the sites that are to be expected ([`SiteBook::expect`]).
    pub fn expect_sites<'a>(&self, sites: impl IntoIterator<Item = &'a [u8]>) {
        self.platform.sites.expect(sites);
    }

    /// Sets the most that sites may hold ([`SiteBook::limit`]).
    pub fn limit_sites<'a>(&self, limits: impl IntoIterator<Item = (&'a [u8], u64)>) -> Vec<Bytes> {
        self.platform.sites.limit(limits)
    }

    /// Sites with limits, and what they hold.
    pub fn limited_sites(&self) -> Vec<SiteLimit> {
        self.platform.sites.limited()
    }

    /// Counts of what happened to entries since the process began with the zone, by site; sites
    /// without any are left out. What a disk takes with it when it fails does not count.
    pub fn departed(&self) -> Vec<(Bytes, Departed)> {
        self.platform.sites.departed()
    }

    /// Takes the counts of [`Zone::departed`] since the last call: each entry that is gone is told
    /// once.
    pub fn take_departed(&self) -> Vec<(Bytes, Departed)> {
        self.platform.sites.take_departed()
    }

    /// Waits until everything that is on the disk is known; false if it never will be, because the
    /// zone was closed. Until then [`Zone::look`] says so of what is not known yet, and
    /// [`Zone::usage`] counts what is known.
    pub fn loaded(&self) -> bool {
        let live = self.live.load_full();
        let loaded = live.volumes.iter().map(|volume| volume.loaded());
        loaded.fold(!live.volumes.is_empty(), |all, one| all & one)
    }

    /// True if what is on the disks is still being loaded; see [`Zone::loaded`].
    pub fn is_loading(&self) -> bool {
        let live = self.live.load();
        live.volumes.iter().any(|it| it.inner.loading.is_running())
    }

    /// Calls `f` for each entry, in no order; entries that come or go meanwhile may be missed.
    pub fn entries(&self, f: &mut dyn FnMut(&Key, EntrySummary)) {
        for volume in &self.live.load_full().volumes {
            volume.entries(f);
        }
    }

    /// Facts about a key that the index knows, if `find` would look for it; marks nothing.
    pub fn glance(&self, key: &Key) -> Option<Glance> {
        self.live.load().of(key)?.glance(key)
    }

    /// Shows each entry until told to stop, in no order; marks nothing. `Break` if not all were
    /// shown. For a thread that may wait.
    pub fn inspect(&self, each: &mut dyn FnMut(&Glance) -> ControlFlow<()>) -> ControlFlow<()> {
        for volume in &self.live.load_full().volumes {
            volume.inspect(each)?;
        }
        ControlFlow::Continue(())
    }

    /// Shows `judge` the head of each entry, and does what it says. A disk that is away meanwhile
    /// comes back empty.
    pub fn review(&self, judge: &mut dyn FnMut(&Key, &Bytes) -> Review) -> Reviewed {
        let live = self.live.load_full();
        for volume in &live.absent {
            volume.inner.health.distrust();
        }
        let mut all = Reviewed {
            is_complete: true,
            ..Reviewed::default()
        };
        let mut is_over = false;
        for volume in &live.volumes {
            let one = volume.review(&mut |key, head| {
                let verdict = judge(key, head);
                is_over |= verdict == Review::Stop;
                verdict
            });
            all.seen += one.seen;
            all.removed += one.removed;
            all.changed += one.changed;
            all.is_complete &= one.is_complete && !volume.inner.health.is_failed();
            if is_over {
                break;
            }
        }
        // What came back meanwhile was not looked at.
        all.is_complete &= Arc::ptr_eq(&live, &self.live.load());
        all
    }

    /// Compares every entry with its checksums; removes what is corrupt. Tells `progress` how far
    /// it is, after a mebibyte at the latest, and ends when that says false. Reads all that there
    /// is: for a thread of its own, which `progress` may delay.
    pub fn verify(&self, progress: &mut dyn FnMut(Progress) -> bool) -> Verified {
        let live = self.live.load_full();
        let mut all = Verified {
            is_complete: true,
            ..Verified::default()
        };
        let counts = live.volumes.iter().map(|it| it.inner.index.count());
        let counts: Vec<u64> = counts.collect();
        for (position, volume) in live.volumes.iter().enumerate() {
            let (entries, bytes) = (all.entries, all.bytes);
            let others: u64 = counts.iter().skip(position + 1).sum();
            let one = volume.verify(&mut |one| {
                progress(Progress {
                    entries: entries + one.entries,
                    all_entries: entries + one.all_entries + others,
                    bytes: bytes + one.bytes,
                })
            });
            all.entries += one.entries;
            all.bytes += one.bytes;
            all.corrupt += one.corrupt;
            all.unread += one.unread;
            if !one.is_complete {
                all.is_complete = false;
                break;
            }
        }
        all.is_complete &= Arc::ptr_eq(&live, &self.live.load());
        all
    }

    /// Removes entries whose keys are given, many with one record; how many were there. Waits for
    /// the disk.
    pub fn remove_all(&self, keys: &[Key]) -> u64 {
        let live = self.live.load_full();
        keys.iter().for_each(|key| live.note(key));
        let of_volume = |(position, volume): (usize, &Arc<Volume>)| {
            let own = keys.iter().filter(|key| live.placement.of(key) == position);
            volume.remove_all(&mut own.copied())
        };
        live.volumes.iter().enumerate().map(of_volume).sum()
    }

    /// Heads of removed entries without a body since the last call, which may have slices; those
    /// that left after the first slice came or [`Zone::watch_removed`]. Waits for the disk.
    pub fn take_removed_heads(&self) -> RemovedHeads {
        let live = self.live.load_full();
        let mut all = RemovedHeads::default();
        for volume in &live.volumes {
            let mut one = volume.inner.take_removed_heads();
            all.heads.append(&mut one.heads);
            // The entries of slices may come back with a disk.
            if one.is_partial && !live.absent.is_empty() {
                volume.inner.index.holdings().removed.note_unknown();
            } else {
                all.is_partial |= one.is_partial;
            }
        }
        all
    }

    /// Notes that there will be slices: from now on, entries that leave are told by
    /// [`Zone::take_removed_heads`].
    pub fn watch_removed(&self) {
        let live = self.live.load();
        let volumes = live.volumes.iter();
        volumes.for_each(|volume| volume.inner.index.holdings().removed.watch());
    }

    /// True if an entry that was found is what would be found now, with the same head.
    pub fn is_current(&self, entry: &Entry) -> bool {
        let live = self.live.load();
        let slot = live
            .of(entry.key())
            .and_then(|it| it.inner.index.get(entry.key()));
        slot.is_some_and(|slot| slot.place() == entry.stored.place)
    }

    /// Waits until everything that was finished is in the kernel. For tests and tools.
    pub fn flush(&self) {
        for volume in &self.live.load_full().volumes {
            volume.flush();
        }
    }

    /// Waits until everything that was finished or removed is on the device; false if some of it
    /// cannot be.
    pub fn sync(&self) -> bool {
        let live = self.live.load_full();
        let synced = live.volumes.iter().map(|volume| volume.sync());
        synced.fold(true, |all, one| all & one)
    }

    /// Puts another configuration into force: limits at once, disks that come, go or change their
    /// weight as soon as they are opened and what must move is gone. Entries stay, as far as they
    /// fit and belong to the same disk as before. The rest counts when a disk is opened again.
    pub fn change(&self, conf: ZoneConf) {
        let changes = lock(&self.control).change(conf, self.clock.steady());
        // Not under the lock: making space takes as long as the disks do.
        for (volume, conf) in changes {
            volume.change(conf);
        }
        self.maintain_soon();
    }

    /// Lets the directories go, for another process to open them. Later calls find nothing, and
    /// fills that run go on for their readers. Waits until what was finished is written.
    pub fn lend(&self) {
        self.part_for_good();
        let ended = lock(&self.control).end(Phase::Lent);
        on_each(&ended.volumes, |volume| volume.lend());
        on_each(&ended.leaving, |volume| volume.close());
        on_each(&ended.given_up, maintenance::let_go);
    }

    /// Opens the directories again after [`Zone::lend`]; an error leaves the zone as it is.
    pub fn take_back(&self) -> Result<(), StoreError> {
        let conf = {
            let control = lock(&self.control);
            if control.phase() != Phase::Lent {
                return Ok(());
            }
            control.conf().clone()
        };
        let surroundings = (&self.clock, &self.platform);
        let (assembled, _) = set::assemble(conf, surroundings, Some(self.secret))?;
        // The volumes that were lent go on writing what their fills were granted.
        let lent = lock(&self.control).replace(assembled);
        self.maintain();
        drop(lent);
        Ok(())
    }

    /// Waits until no disk that is due is still to be opened or given up. For tests and tools.
    pub fn wait_for_disks(&self) {
        let thread = lock(&self.control).take_maintenance_thread();
        if let Some(thread) = thread {
            // One that panicked has left everything as it was.
            let _ = thread.join();
        }
        self.maintain();
    }

    /// Writes everything down, syncs it and lets the directories go. Later calls find nothing.
    pub fn close(&self) {
        self.part_for_good();
        let ended = lock(&self.control).end(Phase::Closed);
        on_each(&ended.volumes, |volume| volume.close());
        on_each(&ended.leaving, |volume| volume.close());
        on_each(&ended.given_up, maintenance::let_go);
    }
}

/// Guard of a volume that is being swept, whatever becomes of the sweep.
struct Sweeping(Arc<Volume>);

impl Drop for Sweeping {
    fn drop(&mut self) {
        self.0.inner.health.end_sweep();
    }
}

/// Sweeps each volume in a thread of its own; one that takes long is left alone until it is done.
fn sweep_each(volumes: &[Arc<Volume>]) -> Swept {
    let (done, swept) = mpsc::channel();
    let idle = volumes.iter().filter(|it| it.inner.health.begin_sweep());
    for volume in idle {
        let (sweeping, done) = (Sweeping(Arc::clone(volume)), done.clone());
        let sweep = move || {
            let swept = sweeping.0.sweep();
            // Before: who hears of it may begin the next one.
            drop(sweeping);
            // Whoever asked may have gone on.
            let _ = done.send(swept);
        };
        let named = std::thread::Builder::new().name("store-sweep".to_string());
        // Without a thread it is swept the next time.
        drop(named.spawn(sweep));
    }
    drop(done);
    let mut all = Swept::default();
    while let Ok(one) = swept.recv_timeout(SWEEP_PATIENCE) {
        all.expired += one.expired;
        all.evicted += one.evicted;
        all.segments += one.segments;
    }
    all
}

/// Calls a function for all volumes at the same time: each waits for its own disk.
fn on_each(volumes: &[Arc<Volume>], act: impl Fn(&Volume) + Sync) {
    if let [volume] = volumes {
        return act(volume);
    }
    std::thread::scope(|scope| {
        for volume in volumes {
            let act = &act;
            scope.spawn(move || act(volume));
        }
    });
}

impl Drop for Zone {
    fn drop(&mut self) {
        self.close();
    }
}
