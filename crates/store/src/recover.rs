//! Opening a zone, warm, and closing it.
//!
//! ```text
//!   lock the superblock ─► mark it unclean ─► open every segment, in parallel ─► go on in the
//!   newest one ─► trim to the limit ─► load the others, in the background (`load`)
//! ```
//!
//! A segment is loaded from its summary; where there is none, by a scan. The segment that goes on
//! loses its summary first. Of two records of a key the later one counts: an entry replaces, a
//! tombstone removes. An entry that needs a segment which is gone is not there, and its older
//! versions are not either.
//!
//! 1. Two zones never use one directory: the superblock is locked from before the first look at
//!    the segments until after the last write.
//! 2. The superblock says `Clean` only while no process has the zone, and only if all that was
//!    written was synced and every segment has a summary that covers it.
//! 3. What is not understood is set aside, never changed and never read again.
//! 4. After an unclean stop nothing is written where the dead process may have had slices: the
//!    kernel still sends what it was given of them, and takes it from the page cache. So no old
//!    segment goes on.
//! 5. What a dead process had written counts as not synced, so it is synced with the rest.
//! 6. A disk that answers with an error has lost nothing: what it does not give stays where it is,
//!    and is asked for again (`load`).
//!
//! Bodies in slices that another process wrote are compared with their checksums before their first
//! use: a lost page of a body leaves no trace in its record, nor does one that changed at rest.

mod probe;
mod set_aside;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use hashbrown::HashMap;

pub(crate) use self::probe::{Probe, Probed};
use self::set_aside::Reporting;
use crate::clock::Clock;
use crate::disk::copies::Copies;
use crate::disk::format::{
    FOOTER, Kind, Membership, RECORD_HEADER, Row, SEGMENT_HEADER, SUPERBLOCK, Shutdown, Superblock,
    seed_of,
};
use crate::disk::io::{DirEntry, DiskIo, File};
use crate::disk::open::{Home, OpenFiles, SegmentFile};
use crate::disk::reader::Found;
use crate::disk::ready::Readers;
use crate::disk::segment::{Load, Log, Place, Plan, Segment, file_cost};
use crate::disk::writer::Queue;
use crate::disk::{
    Disk, JOURNAL_NAME, JOURNAL_NEW_NAME, RETIRED, SET_ASIDE, SUPERBLOCK_NAME, USES_NAME,
    USES_NEW_NAME, segment_number,
};
use crate::health::Health;
use crate::index::Index;
use crate::key::{Key, Secret};
use crate::lend::Limits;
use crate::load::Loading;
use crate::lock::{Rank, Ranked, lock};
use crate::unloaded::Unloaded;
use crate::volume::{Counters, Event, Inner, Platform, ZoneConf};

/// Segments are not continued with less room than this.
const WORTH_CONTINUING: u32 = 1024;

/// Number of segments that are synced one by one after an unclean stop; with more of them the whole
/// file system is.
const FEW_SEGMENTS: usize = 256;

/// The reason why a zone could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Another zone has the directory.
    #[error("{path} is in use by another zone or process")]
    InUse {
        /// The directory.
        path: PathBuf,
    },
    /// The directory has no store to look at.
    #[error("there is no store in {path}")]
    Absent {
        /// The directory.
        path: PathBuf,
    },
    /// The file system refused something.
    #[error("cannot {what} {path}")]
    Io {
        /// Operation that was tried.
        what: &'static str,
        /// Path of the file.
        path: PathBuf,
        /// Answer of the file system.
        source: io::Error,
    },
}

impl StoreError {
    pub(crate) fn io(what: &'static str, path: &Path, source: io::Error) -> Self {
        Self::Io {
            what,
            path: path.to_path_buf(),
            source,
        }
    }
}

/// Treatment of a directory that holds something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Start {
    /// The store goes on as it is.
    Resume,
    /// The store goes on in a new segment: someone may still read what the newest one has no record
    /// of.
    Apart,
    /// Everything is removed.
    Empty,
}

/// Treatment of the path to a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Parents {
    /// The whole path is made.
    Make,
    /// The parent must be there: where it is not, a file system may not be mounted.
    Need,
}

/// Manner in which a directory is opened.
#[derive(Clone, Copy, Debug)]
pub(crate) struct How {
    pub(crate) start: Start,
    pub(crate) parents: Parents,
    /// The zone's secret, where that is known: what was stored under another one is removed.
    pub(crate) secret: Option<Secret>,
}

/// Numbers possessions of directories.
static SERIALS: AtomicU64 = AtomicU64::new(1);

/// Opens a directory, without its disk thread.
pub(crate) fn open(
    conf: ZoneConf,
    (clock, platform): (Arc<dyn Clock>, Platform),
    how: How,
) -> Result<Arc<Inner>, StoreError> {
    let opening = Opening {
        dir: conf.path.clone(),
        how,
        plan: Plan::new(conf.max_size, conf.segment_size),
        open_files: platform.open_files,
        io: platform.io,
        events: platform.events,
    };
    let (superblock, file) = opening.superblock(clock.now())?;
    let seed = seed_of(&superblock.uuid);
    let disk = Disk {
        dir: conf.path.clone(),
        is_mount: opening.io.is_mount(&conf.path),
        io: Arc::clone(&opening.io),
        seed,
        book: Arc::clone(&platform.sites),
        uuid: superblock.uuid,
        created_ms: superblock.created_ms,
        membership: Ranked::new(Rank::Membership, superblock.membership),
        live: Ranked::new(Rank::Live, superblock.live.clone()),
        secret: Ranked::new(Rank::Secret, superblock.secret),
        superblock: Ranked::new(Rank::Superblock, file),
        log: Ranked::new(
            Rank::Log,
            Log::new(opening.plan, Arc::clone(&platform.sites)),
        ),
        has_new_names: AtomicBool::new(true),
        has_legacy: AtomicBool::new(false),
        copies: Copies::default(),
        syncing: Ranked::new(Rank::Syncing, ()),
        turning: Ranked::new(Rank::Turning, ()),
        queue: Queue::new(conf.queue),
        readers: Readers::new(opening.home(&superblock), Arc::clone(&clock)),
        files: Ranked::new(Rank::Files, HashMap::new()),
    };
    let inner = Arc::new_cyclic(|this| Inner {
        index: Index::new(conf.memory, platform.sites),
        loading: Loading::default(),
        unloaded: Unloaded::default(),
        limits: Limits::new(&conf),
        conf,
        clock,
        disk,
        counters: Counters::default(),
        events: Arc::clone(&opening.events),
        closed: AtomicBool::new(false),
        close_lock: Ranked::new(Rank::Close, ()),
        slow_close_lock: Ranked::new(Rank::SlowClose, ()),
        is_shut: AtomicBool::new(false),
        fills: Ranked::new(Rank::Fills, Mutex::default()),
        reads: Ranked::new(Rank::Reads, Mutex::default()),
        journal: Ranked::new(Rank::Journal, Mutex::default()),
        uses: Ranked::new(Rank::Uses, Mutex::default()),
        scrub: Ranked::new(Rank::Scrub, Mutex::default()),
        is_low: AtomicBool::new(false),
        is_full: AtomicBool::new(false),
        is_turn_queued: AtomicBool::new(false),
        is_retry_queued: AtomicBool::new(false),
        reclaim: Ranked::new(Rank::Reclaim, Mutex::default()),
        rewrite_credit: AtomicU64::new(0),
        pending_tombstones: Ranked::new(Rank::Tombstones, Mutex::default()),
        health: Health::default(),
        serial: SERIALS.fetch_add(1, Ordering::Relaxed),
        this: this.clone(),
    });
    inner.disk.readers.set_volume(inner.weak());
    inner.load(&opening, &superblock)?;
    Ok(inner)
}

/// True if somebody has made a zone in a directory.
pub(crate) fn is_there(io: &dyn DiskIo, dir: &Path) -> Result<bool, StoreError> {
    match io.list(dir) {
        Ok(names) => Ok(names.iter().any(|entry| entry.name == SUPERBLOCK_NAME)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(StoreError::io("list", dir, error)),
    }
}

/// State that is at hand before there is a zone.
struct Opening {
    dir: PathBuf,
    how: How,
    plan: Plan,
    open_files: Arc<OpenFiles>,
    io: Arc<dyn DiskIo>,
    events: Arc<dyn Fn(&Event) + Send + Sync>,
}

impl Opening {
    fn home(&self, superblock: &Superblock) -> Home {
        Home {
            io: Arc::clone(&self.io),
            dir: self.dir.clone(),
            uuid: superblock.uuid,
            open_files: Arc::clone(&self.open_files),
        }
    }

    /// Locks and reads the superblock, or makes one. No file if the zone has no room for any.
    fn superblock(&self, now_ms: u64) -> Result<(Superblock, Option<File>), StoreError> {
        let at_dir = |what, source| StoreError::io(what, &self.dir, source);
        let made = match self.how.parents {
            Parents::Make => self.io.make_dir(&self.dir),
            Parents::Need => self.io.make_last_dir(&self.dir),
        };
        made.map_err(|error| at_dir("create", error))?;
        let path = self.dir.join(SUPERBLOCK_NAME);
        let fresh = Superblock {
            uuid: self.io.random(),
            created_ms: now_ms,
            shutdown: Shutdown::Clean,
            next_segment: 1,
            membership: None,
            live: Vec::new(),
            secret: self.how.secret.unwrap_or(Secret(self.io.random())),
        };
        let existing = match self.io.open(&path) {
            Ok(file) => Some(file),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(StoreError::io("open", &path, error)),
        };
        if let Some(file) = existing {
            self.lock(&file)?;
            if self.how.start == Start::Empty {
                self.clear()?;
                return self.create_superblock(fresh);
            }
            let mut block = vec![0; SUPERBLOCK as usize];
            let is_read = match self.io.read_at(&file, &mut block, 0) {
                Ok(()) => true,
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => false,
                // A disk that does not read says nothing of what is on it.
                Err(error) => return Err(StoreError::io("read", &path, error)),
            };
            // The process ended between creating the file and writing to it.
            if is_read && block.iter().all(|byte| *byte == 0) && self.plan.has_superblock() {
                return Ok((fresh, Some(file)));
            }
            let known = Superblock::decode(&block).filter(|_| is_read);
            if let Some(superblock) = known {
                // Nobody would find what has keys under another one.
                if fresh.secret != superblock.secret && self.how.secret.is_some() {
                    self.clear()?;
                    return self.create_superblock(fresh);
                }
                if self.plan.has_superblock() {
                    return Ok((superblock, Some(file)));
                }
                self.remove_all()?;
                return Ok((fresh, None));
            }
            if is_read && Superblock::is_unkeyed(&block) {
                self.set_unkeyed_aside()?;
            } else {
                self.set_aside_all(Reporting::Each)?;
            }
        }
        self.create_superblock(fresh)
    }

    fn create_superblock(
        &self,
        fresh: Superblock,
    ) -> Result<(Superblock, Option<File>), StoreError> {
        if !self.plan.has_superblock() {
            return Ok((fresh, None));
        }
        let path = self.dir.join(SUPERBLOCK_NAME);
        let created = self.io.create(&path, SUPERBLOCK);
        let file = created.map_err(|error| StoreError::io("create", &path, error))?;
        self.lock(&file)?;
        Ok((fresh, Some(file)))
    }

    fn lock(&self, file: &File) -> Result<(), StoreError> {
        match self.io.lock(file) {
            Ok(true) => Ok(()),
            Ok(false) => Err(StoreError::InUse {
                path: self.dir.clone(),
            }),
            Err(error) => Err(StoreError::io("lock", &self.dir, error)),
        }
    }

    fn list(&self) -> Result<Vec<DirEntry>, StoreError> {
        let listed = self.io.list(&self.dir);
        listed.map_err(|error| StoreError::io("list", &self.dir, error))
    }

    /// Removes a zone whose entries may not be found any more, and says so if there are some.
    fn clear(&self) -> Result<(), StoreError> {
        let is_used = |entry: &DirEntry| entry.name.to_str().and_then(segment_number).is_some();
        if self.list()?.iter().any(is_used) {
            let path = self.dir.display().to_string();
            (self.events)(&Event::DiskCleared { path });
        }
        self.remove_all()
    }

    /// Removes a zone that may have no files any more.
    fn remove_all(&self) -> Result<(), StoreError> {
        for name in self.list()?.iter().filter_map(|entry| entry.name.to_str()) {
            if is_ours(name) {
                let path = self.dir.join(name);
                let removed = self.io.unlink(&path);
                removed.map_err(|error| StoreError::io("remove", &path, error))?;
            }
        }
        Ok(())
    }
}

/// True if a name in the directory is one of ours.
fn is_ours(name: &str) -> bool {
    let base = name.split(SET_ASIDE).next().unwrap_or(name);
    let is_single = matches!(
        base,
        SUPERBLOCK_NAME | JOURNAL_NAME | JOURNAL_NEW_NAME | USES_NAME | USES_NEW_NAME
    );
    is_single || segment_number(base).is_some() || base.starts_with(RETIRED)
}

impl Inner {
    fn load(&self, opening: &Opening, superblock: &Superblock) -> Result<(), StoreError> {
        lock(&self.disk.log).next_segment = superblock.next_segment;
        self.write_superblock(Shutdown::Unclean)?;
        let segments = self.look_around(opening)?;
        self.take_journal(opening, superblock)?;
        let is_unclean = superblock.shutdown == Shutdown::Unclean;
        self.loading.begin(self.clock.steady(), is_unclean);
        if is_unclean {
            self.disk.copies.inherit();
        }
        self.take_segments(opening, superblock, &segments)?;
        let is_much = is_unclean && segments.len() > FEW_SEGMENTS;
        self.disk.has_legacy.store(is_much, Ordering::Release);
        if is_unclean {
            self.index.holdings().removed.note_unknown();
        }
        self.expect_rows();
        match opening.how.start {
            // INVARIANT 4.
            Start::Resume if is_unclean => {}
            Start::Resume => self.go_on(),
            Start::Apart | Start::Empty => self.loading.be_quiet(),
        }
        self.trim();
        self.found_journal()?;
        self.begin_loading();
        Ok(())
    }

    /// Puts in the log what counts of the segments that were found.
    fn take_segments(
        &self,
        opening: &Opening,
        superblock: &Superblock,
        segments: &[(u32, u64)],
    ) -> Result<(), StoreError> {
        let sifted = self.sift(segments);
        let gap = sifted.gap;
        for id in sifted.strange {
            self.put_away(opening, id)?;
        }
        for probed in sifted.ours.into_iter().filter(|it| it.id >= gap) {
            let mut segment = Segment::new(probed.size);
            // INVARIANT 5.
            let is_legacy = superblock.shutdown == Shutdown::Unclean;
            segment.is_dirty = is_legacy && segments.len() <= FEW_SEGMENTS;
            self.put_in(probed.id, segment);
            self.take_over(probed);
        }
        for (id, error) in sifted.unread.into_iter().filter(|(id, _)| *id >= gap) {
            let len = segments.iter().find(|(other, _)| *other == id);
            self.leave(id, len.map_or(0, |(_, len)| *len), &error);
        }
        if gap == 0 {
            return Ok(());
        }
        self.raise_numbers(gap);
        self.let_go_before(gap, segments)
    }

    /// Lists the directory: the segments with their sizes. Unlinks what was on its way out.
    fn look_around(&self, opening: &Opening) -> Result<Vec<(u32, u64)>, StoreError> {
        let mut segments = Vec::new();
        let mut foreign = 0;
        let live = lock(&self.disk.live).first().cloned().unwrap_or_default();
        let counts = |id: &u32| *id >= live.first && !live.gone.contains(id);
        for entry in opening.list()? {
            let name = entry.name.to_str().unwrap_or_default();
            let path = self.disk.dir.join(name);
            if entry.is_dir || !is_ours(name) {
                foreign += 1;
            } else if let Some(id) = segment_number(name).filter(counts) {
                segments.push((id, entry.len));
            } else if name == USES_NAME {
                self.open_uses(entry.len);
            } else if name.starts_with(RETIRED)
                || matches!(name, JOURNAL_NEW_NAME | USES_NEW_NAME)
                // INVARIANTS 3 and 8 of `live`.
                || segment_number(name).is_some()
            {
                let removed = self.disk.io.unlink(&path);
                removed.map_err(|error| StoreError::io("remove", &path, error))?;
            } else if name.contains(SET_ASIDE) {
                let mut log = lock(&self.disk.log);
                log.file_bytes += entry.len;
                log.set_aside.push((path, entry.len));
            }
        }
        if foreign > 0 {
            self.report(&Event::Foreign {
                dir: self.disk.dir.display().to_string(),
                count: foreign,
            });
        }
        Ok(segments)
    }

    /// Reads the journal; sets it aside if it is not understood.
    fn take_journal(&self, opening: &Opening, superblock: &Superblock) -> Result<(), StoreError> {
        let is_it = |entry: &DirEntry| entry.name == JOURNAL_NAME;
        let Some(entry) = opening.list()?.into_iter().find(is_it) else {
            if superblock.live.iter().any(|live| live.has_journal) {
                self.lost_journal();
                let dir = self.disk.dir.display().to_string();
                self.report(&Event::JournalLost { dir });
            }
            return Ok(());
        };
        let path = self.disk.dir.join(JOURNAL_NAME);
        let loaded = self.load_journal(entry.len, superblock.shutdown);
        let loaded = loaded.map_err(|error| StoreError::io("read", &path, error))?;
        if loaded.is_some() {
            return Ok(());
        }
        self.lost_journal();
        let to = opening.set_aside(JOURNAL_NAME)?;
        let mut log = lock(&self.disk.log);
        log.file_bytes += entry.len;
        log.set_aside.push((to, entry.len));
        Ok(())
    }

    /// Notes that a number was given.
    fn raise_numbers(&self, id: u32) {
        let mut log = lock(&self.disk.log);
        log.next_segment = log.next_segment.max(id.saturating_add(1));
    }

    /// Puts a segment in the log.
    fn put_in(&self, id: u32, segment: Segment) {
        self.raise_numbers(id);
        let mut log = lock(&self.disk.log);
        log.file_bytes += file_cost(segment.size);
        log.segments.insert(id, segment);
    }

    /// A segment of the log is one of this zone, and is to be loaded.
    pub(crate) fn take_over(&self, probed: Probed) {
        if self.disk.file(probed.id).is_none() {
            self.disk.add_file(probed.id, probed.file);
        }
        let footer = probed.footer.as_ref();
        if let Some(segment) = lock(&self.disk.log).segments.get_mut(&probed.id) {
            segment.load = Load::Waiting(footer.map(|footer| footer.rows_len));
            segment.is_sealed = footer.is_some();
            // Until it was scanned nobody may write a summary.
            segment.is_unsealable = footer.is_none();
            segment.tail = footer.map_or(probed.size, |footer| footer.tail);
        }
    }

    /// INVARIANT 6: a segment that the disk does not give counts, and is in nobody's way.
    fn leave(&self, id: u32, len: u64, error: &io::Error) {
        // What is longer is not one of ours.
        let size = u32::try_from(len).unwrap_or(u32::MAX);
        let mut segment = Segment::new(size);
        segment.load = Load::Unread;
        segment.is_unsealable = true;
        segment.tail = size;
        self.put_in(id, segment);
        self.note_unread(error);
    }

    /// Lets the newest segment go on if it has room. It is the only one whose rows are needed for
    /// that.
    fn go_on(&self) {
        let Some((id, size)) = self.next_to_load() else {
            return;
        };
        let Some(file) = self.disk.file(id) else {
            return;
        };
        let _numbers = self.disk.book.hold();
        let summary = self.disk.read_summary(id, &file, size).unwrap_or_default();
        let has_summary = summary.is_some();
        let scan = || self.disk.scan_unsummed(id, &file, SEGMENT_HEADER..size);
        let found = match summary.map_or_else(scan, Ok) {
            Ok(found) => found,
            Err(error) => {
                self.set_load(id, Load::Unread);
                return self.note_unread(&error);
            }
        };
        self.load_rows(id, found.rows.iter().cloned());
        let (rows, sites) = self.summary_of(&found);
        let summary = rows.len() + sites.len();
        let end = found.tail.saturating_add(summary).saturating_add(FOOTER);
        let has_room = end.saturating_add(WORTH_CONTINUING) <= size;
        let is_active = has_room && (!has_summary || self.unseal(id, &file, &found, size));
        if is_active || !has_summary {
            self.know_rows(id, &found);
        }
        if is_active {
            lock(&self.disk.log).active = id;
        }
        self.set_load(id, Load::Loaded);
        if !is_active && !has_summary {
            self.seal(id);
        }
    }

    /// Takes the summary off a segment that is to go on: it would hide what happens from now on.
    fn unseal(&self, id: u32, file: &SegmentFile, found: &Found, size: u32) -> bool {
        if !self.write_tombstones(id, file, &found.rows) {
            return false;
        }
        let zeros = Bytes::from_static(&[0; FOOTER as usize]);
        let wrote = self.count_rows(id, file, 0);
        let wrote = wrote.and_then(|()| file.write_at(&[zeros], u64::from(size - FOOTER)));
        let synced = wrote.and_then(|()| file.sync());
        if let Err(error) = &synced {
            self.report(&Event::WriteFailed(error.to_string()));
        }
        synced.is_ok()
    }

    /// Writes down of which set of disks this one is.
    pub(crate) fn stamp(&self, membership: Membership) -> Result<(), StoreError> {
        // A disk of this set has nothing that was taken out before.
        self.disk.queue.flush();
        *lock(&self.disk.membership) = Some(membership);
        self.write_superblock(Shutdown::Unclean)
    }

    /// Writes down the secret of the zone, on a disk that holds nothing.
    pub(crate) fn adopt(&self, secret: Secret) -> Result<(), StoreError> {
        *lock(&self.disk.secret) = secret;
        self.write_superblock(Shutdown::Unclean)
    }

    /// Writes down what only the summary of a segment says: that a record which was not written,
    /// or was corrupt, is none. False if that cannot be done.
    fn write_tombstones(&self, id: u32, file: &SegmentFile, rows: &[Row]) -> bool {
        let tombstones = rows.iter();
        let mut rows: Vec<&Row> = tombstones
            .filter(|row| row.kind == Kind::Tombstone)
            .collect();
        rows.sort_by_key(|row| row.offset);
        rows.chunk_by(|a, b| a.offset == b.offset).all(|rows| {
            let Some(row) = rows.first() else {
                return true;
            };
            let mut place = Place {
                segment: id,
                offset: row.offset,
                size: row.size,
            };
            if self.disk.is_tombstone(place, file) {
                return true;
            }
            let keys: Vec<Key> = rows.iter().map(|row| row.key).collect();
            let record = match keys.as_slice() {
                [key] => {
                    place.size = RECORD_HEADER;
                    self.tombstone(place, *key, &[])
                }
                keys => self.tombstone(place, Key([0; 16]), keys),
            };
            let offset = u64::from(place.offset);
            file.write_at(&[record], offset).is_ok()
        })
    }

    /// Seals, syncs and marks the zone clean, after the last write.
    pub(crate) fn shut_down(&self) {
        self.loading.wait();
        self.close_uses();
        // What this loses is written down in segments that have no summary yet; what the last sync
        // loses is not.
        self.sync_segments();
        let unsealed: Vec<u32> = {
            let mut log = lock(&self.disk.log);
            log.close_active();
            let unsealed = log
                .segments
                .iter()
                .filter(|(_, segment)| !segment.is_sealed);
            unsealed.map(|(id, _)| *id).collect()
        };
        for id in unsealed {
            self.seal(id);
        }
        self.is_shut.store(true, Ordering::Release);
        // Who was at it when the flag was set is done with it after this.
        let turn = lock(&self.disk.turning);
        self.unlink_retired();
        drop(turn);
        // Once more for the headers, which say so only now that there are summaries.
        let are_synced = self.sync_all_segments() && self.sync_segments();
        let are_synced = self.settle_journal() && are_synced;
        self.close_journal();
        let is_whole = {
            let log = lock(&self.disk.log);
            log.segments.values().all(Segment::is_whole) && are_synced
        };
        // INVARIANT 2. If the mark cannot be written, the next start takes the longer way.
        if is_whole && let Err(error) = self.write_superblock(Shutdown::Clean) {
            self.report(&Event::WriteFailed(error.to_string()));
        }
        *lock(&self.disk.superblock) = None;
    }
}
