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

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, RwLock};

use bytes::Bytes;
use hashbrown::{HashMap, HashSet};

use crate::clock::Clock;
use crate::disk::format::{
    FOOTER, Footer, Kind, Membership, RECORD_HEADER, Row, SEGMENT_HEADER, SUPERBLOCK,
    SegmentHeader, Shutdown, Superblock, seed_of,
};
use crate::disk::io::{DirEntry, DiskIo, File};
use crate::disk::reader::Found;
use crate::disk::ready::Readers;
use crate::disk::segment::{Load, Log, MAX_SEGMENT, Place, Plan, Segment, file_cost};
use crate::disk::writer::Queue;
use crate::disk::{
    Disk, JOURNAL_NAME, JOURNAL_NEW_NAME, RETIRED, SEGMENT, SET_ASIDE, SUPERBLOCK_NAME, USES_NAME,
    USES_NEW_NAME, segment_number,
};
use crate::health::Health;
use crate::index::Index;
use crate::key::Key;
use crate::lend::Limits;
use crate::load::Loading;
use crate::lock::lock;
use crate::volume::{Counters, Event, Inner, Platform, ZoneConf};

/// Threads that open segments; more are no use for a disk.
const PROBERS: usize = 4;
/// Attempts to find a name for a file to be set aside.
const MAX_SET_ASIDE: u32 = 10_000;
/// How much of a segment is read at a time to see whether there is anything.
const BLANK_BLOCK: usize = 64 << 10;
/// Segments are not continued with less room than this.
const WORTH_CONTINUING: u32 = 1024;

/// So many segments are synced one by one after an unclean stop; with more of them the whole file
/// system is.
const FEW_SEGMENTS: usize = 256;

/// Why a zone could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Another zone has the directory.
    #[error("{path} is in use by another zone or process")]
    InUse {
        /// The directory.
        path: PathBuf,
    },
    /// There is nothing to look at.
    #[error("there is no store in {path}")]
    Absent {
        /// The directory.
        path: PathBuf,
    },
    /// The file system refused something.
    #[error("cannot {what} {path}")]
    Io {
        /// What was tried.
        what: &'static str,
        /// On which file.
        path: PathBuf,
        /// Its answer.
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

/// A segment as it was found.
pub(crate) struct Probed {
    id: u32,
    size: u32,
    file: File,
    footer: Option<Footer>,
}

/// What came of looking at a segment.
pub(crate) enum Probe {
    Ours(Probed),
    /// It is not one of this zone, or nothing was ever in it.
    Strange(u32),
    /// The disk does not give it.
    Unread(u32, io::Error),
}

/// What is made of a directory that holds something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Start {
    /// It goes on as it is.
    Resume,
    /// It goes on in a new segment: someone may still read what the newest one has no record of.
    Apart,
    /// Everything is removed.
    Empty,
}

/// What is made of the path to a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Parents {
    /// All of it is made.
    Make,
    /// Its parent must be there: where it is not, a file system may not be mounted.
    Need,
}

/// How a directory is opened.
#[derive(Clone, Copy, Debug)]
pub(crate) struct How {
    pub(crate) start: Start,
    pub(crate) parents: Parents,
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
        membership: Mutex::new(superblock.membership),
        superblock: Mutex::new(file),
        log: Mutex::new(Log::new(opening.plan, Arc::clone(&platform.sites))),
        has_new_names: AtomicBool::new(true),
        has_legacy: AtomicBool::new(false),
        syncing: Mutex::new(()),
        turning: Mutex::new(()),
        queue: Queue::new(conf.queue),
        readers: Readers::new(
            Arc::clone(&opening.io),
            Arc::clone(&clock),
            opening.io.may_wait(&conf.path),
        ),
        files: RwLock::new(HashMap::new()),
    };
    let inner = Arc::new_cyclic(|this| Inner {
        index: Index::new(conf.memory, platform.sites),
        loading: Loading::default(),
        limits: Limits::new(&conf),
        conf,
        clock,
        disk,
        counters: Counters::default(),
        events: Arc::clone(&opening.events),
        closed: AtomicBool::new(false),
        door: RwLock::new(()),
        yard: RwLock::new(()),
        is_shut: AtomicBool::new(false),
        fills: Mutex::default(),
        reads: Mutex::default(),
        journal: Mutex::default(),
        uses: Mutex::default(),
        scrub: Mutex::default(),
        is_low: AtomicBool::new(false),
        is_full: AtomicBool::new(false),
        is_turn_queued: AtomicBool::new(false),
        is_retry_queued: AtomicBool::new(false),
        rewrite_credit: AtomicU64::new(0),
        unburied: Mutex::default(),
        health: Health::default(),
        serial: SERIALS.fetch_add(1, Ordering::Relaxed),
        this: this.clone(),
    });
    inner.disk.readers.set_volume(inner.weak());
    inner.load(&opening, &superblock)?;
    Ok(inner)
}

/// Whether somebody has made a zone in a directory.
pub(crate) fn is_there(io: &dyn DiskIo, dir: &Path) -> Result<bool, StoreError> {
    match io.list(dir) {
        Ok(names) => Ok(names.iter().any(|entry| entry.name == SUPERBLOCK_NAME)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(StoreError::io("list", dir, error)),
    }
}

/// What is at hand before there is a zone.
struct Opening {
    dir: PathBuf,
    how: How,
    plan: Plan,
    io: Arc<dyn DiskIo>,
    events: Arc<dyn Fn(&Event) + Send + Sync>,
}

impl Opening {
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
        };
        let existing = match self.io.open(&path) {
            Ok(file) => Some(file),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(StoreError::io("open", &path, error)),
        };
        if let Some(file) = existing {
            self.lock(&file)?;
            if self.how.start == Start::Empty {
                let is_used =
                    |entry: &DirEntry| entry.name.to_str().and_then(segment_number).is_some();
                if self.list()?.iter().any(is_used) {
                    let path = self.dir.display().to_string();
                    (self.events)(&Event::DiskCleared { path });
                }
                self.remove_all()?;
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
                if self.plan.has_superblock() {
                    return Ok((superblock, Some(file)));
                }
                self.remove_all()?;
                return Ok((fresh, None));
            }
            self.set_aside_all()?;
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

    /// INVARIANT 3, for a superblock that is not understood and all that belongs to it.
    fn set_aside_all(&self) -> Result<(), StoreError> {
        for name in self.list()?.iter().filter_map(|entry| entry.name.to_str()) {
            if name == SUPERBLOCK_NAME || segment_number(name).is_some() {
                self.set_aside(name)?;
            }
        }
        Ok(())
    }

    fn set_aside(&self, name: &str) -> Result<PathBuf, StoreError> {
        let from = self.dir.join(name);
        let taken: HashSet<_> = self.list()?.into_iter().map(|entry| entry.name).collect();
        let free = (1..MAX_SET_ASIDE)
            .map(|number| format!("{name}{SET_ASIDE}{number}"))
            .find(|name| !taken.contains(std::ffi::OsStr::new(name)));
        let full = || StoreError::io("set aside", &from, io::ErrorKind::AlreadyExists.into());
        let to = self.dir.join(free.ok_or_else(full)?);
        let renamed = self.io.rename(&from, &to);
        renamed.map_err(|error| StoreError::io("rename", &from, error))?;
        (self.events)(&Event::SetAside {
            from: from.display().to_string(),
            to: to.display().to_string(),
        });
        Ok(to)
    }
}

/// Whether a name in the directory is one of ours.
fn is_ours(name: &str) -> bool {
    let base = name.split(SET_ASIDE).next().unwrap_or(name);
    let is_single = matches!(
        base,
        SUPERBLOCK_NAME | JOURNAL_NAME | JOURNAL_NEW_NAME | USES_NAME | USES_NEW_NAME
    );
    is_single || base.starts_with(SEGMENT) || base.starts_with(RETIRED)
}

impl Inner {
    fn load(&self, opening: &Opening, superblock: &Superblock) -> Result<(), StoreError> {
        lock(&self.disk.log).next_segment = superblock.next_segment;
        self.write_superblock(Shutdown::Unclean)?;
        let segments = self.look_around(opening)?;
        self.take_journal(opening, superblock.shutdown)?;
        for probe in self.probe_segments(&segments) {
            match probe {
                Probe::Ours(probed) => {
                    let mut segment = Segment::new(probed.size);
                    // INVARIANT 5.
                    let is_legacy = superblock.shutdown == Shutdown::Unclean;
                    segment.is_dirty = is_legacy && segments.len() <= FEW_SEGMENTS;
                    self.put_in(probed.id, segment);
                    self.take_over(probed);
                }
                Probe::Strange(id) => self.put_away(opening, id)?,
                Probe::Unread(id, error) => {
                    let len = segments.iter().find(|(other, _)| *other == id);
                    self.leave(id, len.map_or(0, |(_, len)| *len), &error);
                }
            }
        }
        let is_much = superblock.shutdown == Shutdown::Unclean && segments.len() > FEW_SEGMENTS;
        self.disk.has_legacy.store(is_much, Ordering::Release);
        self.loading
            .begin(self.clock.now(), superblock.shutdown == Shutdown::Unclean);
        if superblock.shutdown == Shutdown::Unclean {
            self.index.holdings().gone.note_unknown();
        }
        self.expect_rows();
        match opening.how.start {
            // INVARIANT 4.
            Start::Resume if superblock.shutdown == Shutdown::Unclean => {}
            Start::Resume => self.go_on(),
            Start::Apart | Start::Empty => self.loading.be_quiet(),
        }
        self.trim();
        self.begin_loading()
    }

    /// Lists the directory: the segments with their sizes. Unlinks what was on its way out.
    fn look_around(&self, opening: &Opening) -> Result<Vec<(u32, u64)>, StoreError> {
        let mut segments = Vec::new();
        let mut foreign = 0;
        for entry in opening.list()? {
            let name = entry.name.to_str().unwrap_or_default();
            let path = self.disk.dir.join(name);
            if entry.is_dir || !is_ours(name) {
                foreign += 1;
            } else if let Some(id) = segment_number(name) {
                segments.push((id, entry.len));
            } else if name == USES_NAME {
                self.open_uses(entry.len);
            } else if name.starts_with(RETIRED) || matches!(name, JOURNAL_NEW_NAME | USES_NEW_NAME)
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
    fn take_journal(&self, opening: &Opening, shutdown: Shutdown) -> Result<(), StoreError> {
        let is_it = |entry: &DirEntry| entry.name == JOURNAL_NAME;
        let Some(entry) = opening.list()?.into_iter().find(is_it) else {
            return Ok(());
        };
        let path = self.disk.dir.join(JOURNAL_NAME);
        let loaded = self.load_journal(entry.len, shutdown);
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

    /// Opens all segments that are ours, some at a time.
    fn probe_segments(&self, segments: &[(u32, u64)]) -> Vec<Probe> {
        let probers = PROBERS.min(segments.len().div_ceil(16)).max(1);
        let share = segments.len().div_ceil(probers).max(1);
        let probe = |part: &[(u32, u64)]| -> Vec<Probe> {
            let one = |(id, len): &(u32, u64)| self.probe(*id, *len);
            part.iter().map(one).collect()
        };
        std::thread::scope(|scope| {
            let parts: Vec<_> = segments
                .chunks(share)
                .map(|part| (part, scope.spawn(move || probe(part))))
                .collect();
            // A thread that panicked has opened nothing; its segments are set aside.
            let strange = |part: &[(u32, u64)]| -> Vec<Probe> {
                part.iter().map(|(id, _)| Probe::Strange(*id)).collect()
            };
            parts
                .into_iter()
                .flat_map(|(part, probed)| probed.join().unwrap_or_else(|_| strange(part)))
                .collect()
        })
    }

    /// Opens a segment, and sees whether it has a summary.
    pub(crate) fn probe(&self, id: u32, len: u64) -> Probe {
        match self.probe_segment(id, len) {
            Ok(Some(probed)) => Probe::Ours(probed),
            Ok(None) => Probe::Strange(id),
            Err(error) => match error.kind() {
                io::ErrorKind::NotFound
                | io::ErrorKind::PermissionDenied
                | io::ErrorKind::UnexpectedEof => Probe::Strange(id),
                _ => Probe::Unread(id, error),
            },
        }
    }

    fn probe_segment(&self, id: u32, len: u64) -> io::Result<Option<Probed>> {
        let file = self.disk.io.open(&self.disk.segment_path(id))?;
        let mut block = [0; SEGMENT_HEADER as usize];
        self.disk.io.read_at(&file, &mut block, 0)?;
        let header = SegmentHeader::decode(&block, &self.disk.uuid, self.disk.seed);
        let is_fit = |header: &SegmentHeader| {
            let size = header.size;
            header.segment == id && u64::from(size) == len && size <= MAX_SEGMENT
        };
        let Some(SegmentHeader { size, .. }) = header.filter(is_fit) else {
            return Ok(None);
        };
        // Without a footer that can be read it is scanned.
        let footer = self.disk.read_footer(id, &file, size).unwrap_or_default();
        Ok(Some(Probed {
            id,
            size,
            file,
            footer,
        }))
    }

    /// Puts a segment aside that could not be loaded, or removes it if nothing was ever in it.
    fn put_away(&self, opening: &Opening, id: u32) -> Result<(), StoreError> {
        let path = self.disk.segment_path(id);
        let name = crate::disk::segment_name(id);
        let len = opening
            .list()?
            .iter()
            .find(|entry| *entry.name == *name)
            .map_or(0, |e| e.len);
        if self.is_blank(&path, len) {
            let removed = self.disk.io.unlink(&path);
            return removed.map_err(|error| StoreError::io("remove", &path, error));
        }
        let to = opening.set_aside(&name)?;
        let mut log = lock(&self.disk.log);
        log.file_bytes += len;
        log.set_aside.push((to, len));
        log.next_segment = log.next_segment.max(id.saturating_add(1));
        Ok(())
    }

    /// Whether the process ended between creating the file of a segment and the end of writing its
    /// header: what comes behind that is nothing.
    fn is_blank(&self, path: &Path, len: u64) -> bool {
        let io = &self.disk.io;
        let Ok(file) = io.open(path) else {
            return false;
        };
        let mut header = [0; SEGMENT_HEADER as usize];
        match io.read_at(&file, &mut header, 0) {
            Ok(()) if header.iter().all(|byte| *byte == 0) => return true,
            Ok(()) => {}
            Err(error) => return error.kind() == io::ErrorKind::UnexpectedEof,
        }
        if len > u64::from(MAX_SEGMENT) {
            return false;
        }
        let mut block = vec![0; BLANK_BLOCK];
        let mut at = u64::from(SEGMENT_HEADER);
        while at < len {
            let size = (len - at).min(BLANK_BLOCK as u64);
            let Some(part) = block.get_mut(..size as usize) else {
                return false;
            };
            if io.read_at(&file, part, at).is_err() || part.iter().any(|byte| *byte != 0) {
                return false;
            }
            at += size;
        }
        true
    }

    /// Puts a segment in the log.
    fn put_in(&self, id: u32, segment: Segment) {
        let mut log = lock(&self.disk.log);
        log.file_bytes += file_cost(segment.size);
        log.next_segment = log.next_segment.max(id.saturating_add(1));
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
        let summary = self.disk.read_summary(id, &file, size).unwrap_or_default();
        let has_summary = summary.is_some();
        let scan = || self.disk.scan(id, &file, SEGMENT_HEADER..size);
        let found = match summary.map_or_else(scan, Ok) {
            Ok(found) => found,
            Err(error) => {
                self.set_load(id, Load::Unread);
                return self.note_unread(&error);
            }
        };
        self.load_rows(id, found.rows.iter().cloned());
        let (rows, sites) = self.summary_of(&found);
        let summary = rows.len() as u32 + sites.len();
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
    fn unseal(&self, id: u32, file: &File, found: &Found, size: u32) -> bool {
        if !self.write_tombstones(id, file, &found.rows) {
            return false;
        }
        let io = &self.disk.io;
        let zeros = Bytes::from_static(&[0; FOOTER as usize]);
        let wrote = io.write_at(file, &[zeros], u64::from(size - FOOTER));
        let synced = wrote.and_then(|()| io.sync(file));
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

    /// Writes down what only the summary of a segment says: that a record which was not written,
    /// or was corrupt, is none. False if that cannot be done.
    fn write_tombstones(&self, id: u32, file: &File, rows: &[Row]) -> bool {
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
            self.disk.io.write_at(file, &[record], offset).is_ok()
        })
    }

    fn write_superblock(&self, shutdown: Shutdown) -> Result<(), StoreError> {
        let superblock = lock(&self.disk.superblock);
        let Some(file) = &*superblock else {
            return Ok(());
        };
        let block = Superblock {
            uuid: self.disk.uuid,
            created_ms: self.disk.created_ms,
            shutdown,
            next_segment: lock(&self.disk.log).next_segment,
            membership: *lock(&self.disk.membership),
        };
        let bytes = Bytes::from(block.encode());
        let io = &self.disk.io;
        let wrote = io.write_at(file, &[bytes], 0).and_then(|()| io.sync(file));
        let path = self.disk.dir.join(SUPERBLOCK_NAME);
        wrote.map_err(|error| StoreError::io("write", &path, error))
    }

    /// Seals, syncs and marks the zone clean, after the last write.
    pub(crate) fn shut_down(&self) {
        self.loading.wait();
        self.close_uses();
        let unsealed: Vec<u32> = {
            let log = lock(&self.disk.log);
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
        let are_synced = self.sync_all_segments() & self.settle_journal();
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
