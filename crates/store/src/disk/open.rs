//! Files of segments: which are open, and opening them again.
//!
//! ```text
//!   made, found ──► open ──too many are──► closed ──somebody reads──► open
//! ```
//!
//! A zone has as many segments as fit it; a process has descriptors for some of them, and needs
//! most for connections. So a segment is known by a [`SegmentFile`], which pins it, and only those
//! that were used lately have an open file. Which go is for a clock with one hand to say: it passes
//! over those that were used since it came by.
//!
//! 1. At most `limit` files are open, over all zones that share an [`OpenFiles`], besides those
//!    that are being read or sent, and those that were written lately and may not be synced: where
//!    a file is closed, the kernel may forget that writing it back went wrong.
//! 2. A file that is opened again is the one that was meant: its header says so. Another zone may
//!    have been made in the directory since.
//! 3. Opening waits for the disk: workers do not ([`SegmentFile::open_now`]), threads that read do.
//!
//! It does not know what is in a segment, nor when it may go.

use std::collections::VecDeque;
use std::io;
use std::ops::Deref;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};

use arc_swap::ArcSwapOption;
use bytes::Bytes;
use rustix::io::Errno;

use super::format::SEGMENT_HEADER;
use super::io::{DiskIo, File};
use super::ready::{Gaps, Readers, TAKEN_BACK};
use super::{retired_name, segment_name};
use crate::lock::lock;

/// Files that are open where nobody says how many may be: a quarter of what a process has by
/// default.
const DEFAULT_LIMIT: usize = 256;
/// Share of the open files (one in so many) that is closed before another try, where the process
/// has no descriptor left.
const SHED_SHARE: usize = 4;
/// Milliseconds that a file which was written stays open if nobody syncs it. The kernel writes back
/// what is older than half of that.
const UNSYNCED_MS: u64 = 60_000;
/// Time within which readers must take something: what `send_timeout` is by default, after which a
/// client that takes nothing is given up anyway.
const STALLED_MS: u64 = 60_000;
/// Bytes a second that a reader must take, on average over that time. Arbitrary: less than any link
/// of today gives.
const SLOWEST: u64 = 4096;
/// Seconds in which the readers of a segment together must take as much as it is long, so that
/// holding much costs much. Arbitrary: a reader of a segment of 64 MiB takes 218 KiB a second.
const SLOWEST_TURN_S: u64 = 300;
/// Value of a file's time of writing while it has nothing to sync.
const SYNCED: u64 = 0;

/// Count and limit of the open files of segments, over all zones that share it.
#[derive(Debug)]
pub struct OpenFiles {
    limit: AtomicUsize,
    open: AtomicUsize,
    /// Files that may be open, in the order in which the clock's hand meets them.
    clock: Mutex<VecDeque<Weak<SegmentFile>>>,
    /// Closes something else, and says whether it did.
    giver: OnceLock<fn() -> bool>,
}

impl Default for OpenFiles {
    fn default() -> Self {
        Self::new(DEFAULT_LIMIT)
    }
}

impl OpenFiles {
    /// Count with a limit, and no file yet.
    pub fn new(limit: usize) -> Self {
        Self {
            limit: AtomicUsize::new(limit),
            open: AtomicUsize::new(0),
            clock: Mutex::default(),
            giver: OnceLock::new(),
        }
    }

    /// Changes how many may be open.
    pub fn set_limit(&self, limit: usize) {
        self.limit.store(limit, Ordering::Relaxed);
        self.close_above(limit);
    }

    /// Number of files that may be open.
    pub fn limit(&self) -> usize {
        self.limit.load(Ordering::Relaxed)
    }

    /// Number of files that are open.
    pub fn count(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }

    /// Opens or makes a file, if need be after others were closed for it.
    pub(crate) fn with_room(&self, open: impl Fn() -> io::Result<File>) -> io::Result<File> {
        match open() {
            Err(error) if is_shortage(&error) => {
                let count = self.count();
                let shed = (count / SHED_SHARE).max(1);
                self.close_above(count.saturating_sub(shed));
                match open() {
                    Err(error) if is_shortage(&error) && self.is_given_one() => open(),
                    opened => opened,
                }
            }
            opened => opened,
        }
    }

    /// Sets the function that is asked for a descriptor when closing files gave none; the first
    /// call counts.
    pub fn ask_for_more(&self, giver: fn() -> bool) {
        self.giver.get_or_init(|| giver);
    }

    fn is_given_one(&self) -> bool {
        self.giver.get().is_some_and(|giver| giver())
    }

    fn note(&self, file: &Weak<SegmentFile>) {
        lock(&self.clock).push_back(Weak::clone(file));
        self.trim();
    }

    /// Closes what is too much, when more of it may be closed than before.
    pub(crate) fn trim(&self) {
        self.close_above(self.limit());
    }

    /// INVARIANT 1. Passes each file at most twice, so that it ends.
    fn close_above(&self, limit: usize) {
        let mut clock = lock(&self.clock);
        let mut left = clock.len() * 2;
        while self.count() > limit && left > 0 {
            left -= 1;
            let Some(weak) = clock.pop_front() else {
                return;
            };
            let Some(file) = weak.upgrade() else {
                continue;
            };
            if !file.close() {
                clock.push_back(weak);
            }
        }
    }
}

/// True if an error says that the process or the machine has no descriptor left.
fn is_shortage(error: &io::Error) -> bool {
    matches!(
        Errno::from_io_error(error),
        Some(Errno::MFILE | Errno::NFILE)
    )
}

/// An open file, which counts.
#[derive(Debug)]
pub(crate) struct OpenFile {
    file: File,
    counted: Arc<OpenFiles>,
}

impl OpenFile {
    fn new(file: File, counted: Arc<OpenFiles>) -> Arc<Self> {
        counted.open.fetch_add(1, Ordering::Relaxed);
        Arc::new(Self { file, counted })
    }
}

impl Drop for OpenFile {
    fn drop(&mut self) {
        self.counted.open.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Deref for OpenFile {
    type Target = File;

    fn deref(&self) -> &File {
        &self.file
    }
}

/// Directory and file system of a disk's segments.
pub(crate) struct Home {
    pub(crate) io: Arc<dyn DiskIo>,
    pub(crate) dir: PathBuf,
    /// Identity that ties segments to their zone.
    pub(crate) uuid: [u8; 16],
    pub(crate) open_files: Arc<OpenFiles>,
}

impl Home {
    /// Opens the file of a segment, whatever its name is by now.
    fn open(&self, segment: u32) -> io::Result<File> {
        let own = self.dir.join(segment_name(segment));
        let retired = self.dir.join(retired_name(segment));
        // It is renamed at most once, from the one to the other.
        for path in [own, retired] {
            match self.open_files.with_room(|| self.io.open(&path)) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
                Ok(file) if self.is_it(&file, segment)? => return Ok(file),
                Ok(_) => {}
            }
        }
        // Of the disk: what was there is not.
        Err(Errno::NODATA.into())
    }

    /// INVARIANT 2. What the format says of a segment's number and its zone.
    fn is_it(&self, file: &File, segment: u32) -> io::Result<bool> {
        let mut header = [0; SEGMENT_HEADER as usize];
        match self.io.read_at(file, &mut header, 0) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(false),
            read => read?,
        }
        let number = header.get(12..16) == Some(&segment.to_le_bytes());
        Ok(number && header.get(16..32) == Some(&self.uuid))
    }
}

/// The file of a segment: pins it, and is open or can be opened.
pub(crate) struct SegmentFile {
    segment: u32,
    readers: Arc<Readers>,
    open: ArcSwapOption<OpenFile>,
    /// Lock that is held while the file is opened, so that it is opened once.
    opening: Mutex<()>,
    /// Set when the file is used, taken by the hand of the clock.
    was_used: AtomicBool,
    /// Set once the file must stay open as long as it is pinned.
    must_stay: AtomicBool,
    /// Time of the last write, if the file was not synced since, by the steady clock.
    unsynced_ms: AtomicU64,
    /// Bytes that readers of bodies took.
    taken: AtomicU64,
    /// Time since which readers were watched, by the steady clock, and what they had taken then;
    /// the time is zero while nobody reads.
    watched: (AtomicU64, AtomicU64),
    pub(super) gaps: Gaps,
    this: Weak<SegmentFile>,
}

impl SegmentFile {
    /// A segment whose file was just opened.
    pub(crate) fn found(segment: u32, file: File, readers: &Arc<Readers>) -> Arc<Self> {
        Self::new(segment, file, (readers, SYNCED))
    }

    /// A segment whose file was just made, and is about to be written.
    pub(crate) fn made(segment: u32, file: File, readers: &Arc<Readers>) -> Arc<Self> {
        Self::new(segment, file, (readers, written_now(readers)))
    }

    fn new(segment: u32, file: File, (readers, unsynced_ms): (&Arc<Readers>, u64)) -> Arc<Self> {
        let files = &readers.home().open_files;
        let open = OpenFile::new(file, Arc::clone(files));
        let new = Arc::new_cyclic(|this| Self {
            segment,
            readers: Arc::clone(readers),
            open: ArcSwapOption::new(Some(open)),
            opening: Mutex::new(()),
            was_used: AtomicBool::new(true),
            must_stay: AtomicBool::new(false),
            unsynced_ms: AtomicU64::new(unsynced_ms),
            taken: AtomicU64::new(0),
            watched: Default::default(),
            gaps: Gaps::default(),
            this: Weak::clone(this),
        });
        files.note(&new.this);
        new
    }

    /// Threads that read from the segment's disk.
    pub(super) fn readers(&self) -> &Arc<Readers> {
        &self.readers
    }

    /// The file, if it is open; never waits.
    pub(crate) fn open_now(&self) -> Option<Arc<OpenFile>> {
        let open = self.open.load_full()?;
        // So that a line that all cores read is seldom written.
        if !self.was_used.load(Ordering::Relaxed) {
            self.was_used.store(true, Ordering::Relaxed);
        }
        Some(open)
    }

    /// The file, opened if it is not; waits for the disk then.
    pub(crate) fn file(&self) -> io::Result<Arc<OpenFile>> {
        if let Some(open) = self.open_now() {
            return Ok(open);
        }
        let _alone = lock(&self.opening);
        if let Some(open) = self.open_now() {
            return Ok(open);
        }
        let home = self.readers.home();
        let file = home.open(self.segment)?;
        let open = OpenFile::new(file, Arc::clone(&home.open_files));
        self.open.store(Some(Arc::clone(&open)));
        home.open_files.note(&self.this);
        Ok(open)
    }

    /// Opens the file for as long as it is pinned: it may have no name soon.
    pub(crate) fn keep_open(&self) -> io::Result<()> {
        self.must_stay.store(true, Ordering::Release);
        self.file().map(|_| ())
    }

    /// Closes the file unless it is in use; whether it is closed.
    fn close(&self) -> bool {
        let was_used = self.was_used.swap(false, Ordering::Relaxed);
        let now_ms = self.readers.pool().clock().steady();
        let written_ms = self.unsynced_ms.load(Ordering::Acquire);
        let is_unsynced = written_ms != SYNCED && now_ms.saturating_sub(written_ms) < UNSYNCED_MS;
        if was_used || self.must_stay.load(Ordering::Acquire) || is_unsynced {
            return false;
        }
        // Whoever holds it would share it with nobody who comes now.
        let is_held = self
            .open
            .load()
            .as_ref()
            .is_some_and(|it| Arc::strong_count(it) > 1);
        if !is_held {
            self.open.store(None);
        }
        !is_held
    }

    /// Counts bytes that a reader of a body took.
    pub(crate) fn note_taken(&self, count: u64) {
        self.taken.fetch_add(count, Ordering::Relaxed);
    }

    /// Notes whether somebody besides one holder has the file, of `size` bytes, and takes something
    /// of it; for one thread, from time to time.
    pub(crate) fn watch_readers(&self, now_ms: u64, size: u64) {
        let (since_ms, before) = &self.watched;
        let goes_on =
            || self.passed_ms(now_ms) >= STALLED_MS && self.stalled_rate(now_ms, size).is_none();
        if self.readers_now() == 0 {
            since_ms.store(0, Ordering::Relaxed);
        } else if since_ms.load(Ordering::Relaxed) == 0 || goes_on() {
            before.store(self.taken.load(Ordering::Relaxed), Ordering::Relaxed);
            since_ms.store(now_ms, Ordering::Relaxed);
        }
    }

    /// True if somebody besides one holder has the file, or had it when that was looked at last.
    pub(crate) fn is_watched(&self) -> bool {
        self.readers_now() > 0 || self.watched.0.load(Ordering::Relaxed) > 0
    }

    /// Bytes a second that the readers of the file, of `size` bytes, took since they were watched,
    /// if that is too little for long: their space may be taken back.
    pub(crate) fn stalled_rate(&self, now_ms: u64, size: u64) -> Option<u64> {
        let passed_ms = self.passed_ms(now_ms);
        if passed_ms < STALLED_MS {
            return None;
        }
        let before = self.watched.1.load(Ordering::Relaxed);
        let taken = self.taken.load(Ordering::Relaxed).saturating_sub(before);
        let rate = taken.saturating_mul(1000) / passed_ms;
        (rate < least_rate(self.readers_now(), size)).then_some(rate)
    }

    /// Holders besides the table, or the list of what has left.
    fn readers_now(&self) -> u64 {
        self.this.strong_count().saturating_sub(1) as u64
    }

    /// Time for which readers were watched.
    fn passed_ms(&self, now_ms: u64) -> u64 {
        match self.watched.0.load(Ordering::Relaxed) {
            0 => 0,
            since_ms => now_ms.saturating_sub(since_ms),
        }
    }

    /// Takes the space of the file back from its readers, who get an error from now on; waits for
    /// the disk.
    pub(crate) fn take_back(&self) -> io::Result<()> {
        let file = self.file()?;
        // Before: who meets the end of the file finds out why.
        self.gaps.give_up();
        self.lose();
        self.readers.home().io.empty(&file)
    }

    /// Fills the whole buffer from `offset`; waits for the disk.
    pub(crate) fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        if self.is_taken_back() {
            return Err(io::Error::other(TAKEN_BACK));
        }
        let file = self.file()?;
        self.readers.home().io.read_at(&file, buf, offset)
    }

    /// Writes all buffers, one after the other, from `offset` on.
    pub(crate) fn write_at(&self, bufs: &[Bytes], offset: u64) -> io::Result<()> {
        self.note_written();
        let file = self.file()?;
        self.readers.home().io.write_at(&file, bufs, offset)
    }

    /// Notes that there is something to sync.
    pub(crate) fn note_written(&self) {
        let written_ms = written_now(&self.readers);
        self.unsynced_ms.store(written_ms, Ordering::Release);
    }

    /// Waits until what was written is on the device.
    pub(crate) fn sync(&self) -> io::Result<()> {
        // Before: what is written meanwhile is for the next one.
        let unsynced_ms = self.unsynced_ms.swap(SYNCED, Ordering::AcqRel);
        let synced = self
            .file()
            .and_then(|file| self.readers.home().io.sync(&file));
        if synced.is_err() {
            self.unsynced_ms.fetch_max(unsynced_ms, Ordering::AcqRel);
        }
        synced
    }

    /// Lets the pages of a stretch go from memory.
    pub(crate) fn forget(&self, stretch: std::ops::Range<u64>) {
        if let Some(file) = self.open_now() {
            self.readers.home().io.forget(&file, stretch);
        }
    }
}

/// Now, by the steady clock, which may have begun just now.
fn written_now(readers: &Readers) -> u64 {
    readers.pool().clock().steady().max(SYNCED + 1)
}

impl std::fmt::Debug for SegmentFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "segment {}", self.segment)
    }
}

/// Bytes a second that the readers of a segment of `size` bytes must take together.
fn least_rate(readers: u64, size: u64) -> u64 {
    let each = readers.saturating_mul(SLOWEST);
    each.max(size / SLOWEST_TURN_S)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_holds_much_must_take_much() {
        let table = [
            (1, 1 << 20, 4_096),
            (3, 1 << 20, 12_288),
            (1, 64 << 20, 223_696),
            (54, 64 << 20, 223_696),
            (55, 64 << 20, 225_280),
        ];
        for (readers, size, least) in table {
            assert_eq!(least_rate(readers, size), least, "{readers} {size}");
        }
    }
}
