//! What of a segment can be read without waiting for the disk, and having the rest read.
//!
//! A file is sent from the page cache by the kernel; what is not there is read from the disk, and
//! who sends waits. So before a stretch is sent, this says how much of it is there: known from a
//! look less than two seconds ago, or seen by a look now, which reads it in a way that never waits
//! (`DiskIo::try_read_at`). What is not there is read by the pool's threads into the page cache.
//!
//! Looks are remembered by each thread for itself, in a table of fixed size, so that a hot body
//! costs a comparison. A look costs what copying the bytes costs.
//!
//! 1. What is said to be there was read from the page cache, or written to it, within the last
//!    `FRESH_MS`: pages that were used so lately are the last ones that the kernel takes away.
//! 2. A slice that is in doubt is not there before its checksum was compared.
//! 3. A look and a load are for at most `WINDOW` bytes.
//!
//! 4. What the disk did not give is a gap in its file: entries with bytes there are not found any
//!    more. They stay on the disk, which may give them after the next start.
//!
//! On a file system in memory everything is there. On one that cannot tell, nothing is until a
//! thread of the pool has read it.

use std::cell::RefCell;
use std::io;
use std::ops::{Deref, Range};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};

use hashbrown::HashMap;
use rustix::io::Errno;

use super::io::{DiskIo, File, Tried};
use super::pool::{Busy, Haste, Load, Pool};
use super::reader::is_sound;
use crate::clock::Clock;
use crate::entry::{Body, Slice, Stored};
use crate::health;
use crate::lock::lock;
use crate::volume::Inner;

/// What is looked at, and read, at once: what a disk reads well in one go. Arbitrary.
pub const WINDOW: u64 = 256 << 10;
/// For how long a look holds; milliseconds. Arbitrary: far less than the kernel keeps what was
/// just used, unless it is in distress.
const FRESH_MS: u64 = 2000;
/// What the page cache has or has not. Larger pages are several of these.
const PAGE: u64 = 4096;
const _: () = assert!(
    WINDOW / PAGE == 64,
    "a window's pages are the bits of a number"
);
/// Looks that a thread remembers: a gibibyte of windows, in 128 KiB. A power of two.
const LOOKS: usize = 4096;

/// Gaps of one file that are remembered; with more of them all of it counts as one. Arbitrary: a
/// file that has so many has more.
const MAX_GAPS: usize = 64;

/// Reading from one disk.
pub(crate) struct Readers {
    io: Arc<dyn DiskIo>,
    pool: Pool,
    /// Whether reading may take time at all.
    may_wait: bool,
    /// Set once the file system could not tell whether a read would wait.
    is_blind: AtomicBool,
    loads: Mutex<HashMap<Window, Weak<WindowLoad>>>,
    /// Who is told of errors.
    volume: OnceLock<Weak<Inner>>,
}

/// What a load of a window came to.
type WindowLoad = Load<Result<(), LoadError>>;

/// A stretch of a file: its identity while it is open, first byte, length.
type Window = (usize, u64, u64);

/// Why bytes could not be had.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LoadError {
    /// The disk has too much to do, or does not answer.
    #[error("the disk of the cache does not answer")]
    Busy,
    /// The disk refused.
    #[error("the disk of the cache does not read: {0}")]
    Io(String),
    /// The bytes are not what was written.
    #[error("the entry is corrupt")]
    Corrupt,
}

impl From<Busy> for LoadError {
    fn from(_: Busy) -> Self {
        Self::Busy
    }
}

impl Readers {
    /// Readers of a disk.
    pub(crate) fn new(io: Arc<dyn DiskIo>, clock: Arc<dyn Clock>, may_wait: bool) -> Arc<Self> {
        Arc::new(Self {
            io,
            pool: Pool::new(clock),
            may_wait,
            is_blind: AtomicBool::new(false),
            loads: Mutex::default(),
            volume: OnceLock::new(),
        })
    }

    /// Says who is told of errors.
    pub(crate) fn set_volume(&self, volume: Weak<Inner>) {
        // It is said once.
        let _ = self.volume.set(volume);
    }

    fn has_read_body(&self) {
        if let Some(volume) = self.volume() {
            volume.health.has_read_body();
        }
    }

    fn volume(&self) -> Option<Arc<Inner>> {
        self.volume.get()?.upgrade()
    }

    /// The threads.
    pub(crate) fn pool(&self) -> &Pool {
        &self.pool
    }

    /// Reads what can be read without waiting; false if that cannot be said of it.
    pub(crate) fn try_read_at(&self, file: &File, buf: &mut [u8], offset: u64) -> io::Result<bool> {
        if !self.may_wait {
            return self.io.read_at(file, buf, offset).map(|()| true);
        }
        if self.is_blind.load(Ordering::Relaxed) {
            return Ok(false);
        }
        match self.io.try_read_at(file, buf, offset)? {
            Tried::Read => Ok(true),
            Tried::WouldWait => Ok(false),
            Tried::Unknown => {
                self.is_blind.store(true, Ordering::Relaxed);
                Ok(false)
            }
        }
    }
}

/// The file of a segment, with the way to read from its disk.
pub(crate) struct SegmentFile {
    file: File,
    readers: Arc<Readers>,
    has_gaps: AtomicBool,
    gaps: Mutex<Vec<Range<u64>>>,
}

impl SegmentFile {
    pub(crate) fn new(file: File, readers: Arc<Readers>) -> Self {
        Self {
            file,
            readers,
            has_gaps: AtomicBool::new(false),
            gaps: Mutex::default(),
        }
    }

    /// Whether there is anything that the disk did not give.
    pub(crate) fn has_gaps(&self) -> bool {
        self.has_gaps.load(Ordering::Acquire)
    }

    /// Whether there is something in one of these stretches that the disk did not give.
    pub(crate) fn has_gap_in(&self, mut stretches: impl Iterator<Item = Range<u64>>) -> bool {
        let gaps = lock(&self.gaps);
        stretches.any(|stretch| {
            let is_in = |gap: &Range<u64>| gap.start < stretch.end && stretch.start < gap.end;
            gaps.iter().any(is_in)
        })
    }

    /// INVARIANT 4.
    pub(crate) fn note_gap(&self, gap: Range<u64>) {
        let mut gaps = lock(&self.gaps);
        if gaps.len() >= MAX_GAPS {
            gaps.clear();
            gaps.push(0..u64::MAX);
        } else if !gaps.contains(&gap) {
            gaps.push(gap);
        }
        self.has_gaps.store(true, Ordering::Release);
    }

    /// The disk did not give what was asked for.
    fn refused(&self, stretch: Range<u64>, error: &io::Error) {
        if is_of_disk(error) {
            self.note_gap(stretch);
        }
        if let Some(volume) = self.readers.volume() {
            volume.read_failed(error, health::Tried::Body);
        }
    }
}

/// Whether an error is that of a disk, and not of the process, the machine, or a socket that was
/// sent to.
fn is_of_disk(error: &io::Error) -> bool {
    let is_known = |errno| {
        matches!(
            errno,
            Errno::IO
                | Errno::NODEV
                | Errno::NXIO
                | Errno::STALE
                | Errno::UCLEAN
                | Errno::BADMSG
                | Errno::NODATA
                | Errno::REMOTEIO
        )
    };
    let is_cut = error.kind() == io::ErrorKind::UnexpectedEof;
    is_cut || Errno::from_io_error(error).is_some_and(is_known)
}

impl std::fmt::Debug for SegmentFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.file.fmt(f)
    }
}

impl Deref for SegmentFile {
    type Target = File;

    fn deref(&self) -> &File {
        &self.file
    }
}

/// A slice whose checksum was not compared yet.
#[derive(Debug)]
pub(crate) struct Doubt {
    pub(crate) stored: Arc<Stored>,
    pub(crate) index: usize,
    pub(crate) zone: Weak<Inner>,
}

impl Doubt {
    fn slice(&self) -> Option<(&Slice, &AtomicBool)> {
        let Body::Sliced(sliced) = &self.stored.body else {
            return None;
        };
        let flag = sliced.checked.as_ref()?.get(self.index)?;
        Some((sliced.slices.get(self.index)?, flag))
    }

    fn is_settled(&self) -> bool {
        self.slice()
            .is_some_and(|(_, flag)| flag.load(Ordering::Acquire))
    }

    /// Compares; waits for the disk.
    pub(crate) fn settle(&self, file: &SegmentFile) -> Result<(), LoadError> {
        let Some((slice, flag)) = self.slice() else {
            return Err(LoadError::Corrupt);
        };
        let compared = match self.zone.upgrade() {
            Some(zone) => zone.is_slice_sound(&self.stored, slice, file),
            // The directory was lent or closed: who reads on gets the rest nevertheless.
            None => is_sound(&*file.readers.io, slice, file),
        };
        match compared {
            Ok(true) => flag.store(true, Ordering::Release),
            Ok(false) => return Err(LoadError::Corrupt),
            Err(error) => {
                file.refused(slice.stretch(), &error);
                return Err(LoadError::Io(error.to_string()));
            }
        }
        Ok(())
    }
}

/// A segment's file that somebody keeps: while it lives, the bytes that it was handed out for stay
/// where they are.
#[derive(Clone, Debug)]
pub struct HeldFile {
    segment: Arc<SegmentFile>,
    doubt: Option<Arc<Doubt>>,
    /// The bytes that it was handed out for were not written before; milliseconds since 1970.
    written_ms: u64,
}

impl Deref for HeldFile {
    type Target = File;

    fn deref(&self) -> &File {
        &self.segment.file
    }
}

impl AsFd for HeldFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.segment.file.as_fd()
    }
}

impl HeldFile {
    pub(crate) fn new(segment: &Arc<SegmentFile>, doubt: Option<Arc<Doubt>>) -> Self {
        Self {
            segment: Arc::clone(segment),
            doubt,
            written_ms: 0,
        }
    }

    /// One for bytes that were not written before `written_ms`: for a while they are ready without
    /// a look.
    pub(crate) fn written(segment: &Arc<SegmentFile>, written_ms: u64) -> Self {
        Self {
            written_ms,
            ..Self::new(segment, None)
        }
    }

    /// Whether two regions of these files may be one.
    pub(crate) fn continues(&self, other: &Self) -> bool {
        let are_trusted = self.doubt.is_none() && other.doubt.is_none();
        are_trusted && Arc::ptr_eq(&self.segment, &other.segment)
    }

    /// Tells the disk what came of reading or sending some bytes, and forgets the entries that need
    /// them; false if the error is not the disk's.
    pub fn has_refused(&self, stretch: Range<u64>, error: &io::Error) -> bool {
        let is_of_disk = is_of_disk(error);
        if is_of_disk {
            self.segment.refused(stretch, error);
        }
        is_of_disk
    }

    /// How many of the bytes from `offset` on, up to `len`, can be read without waiting. Looks at
    /// no more than it takes to find out; never waits.
    pub fn ready_len(&self, offset: u64, len: u64) -> u64 {
        let readers = &self.segment.readers;
        if self.doubt.as_ref().is_some_and(|doubt| !doubt.is_settled()) {
            return 0;
        }
        if !readers.may_wait {
            return len;
        }
        let now_ms = readers.pool.clock().now();
        if now_ms.wrapping_sub(self.written_ms) < FRESH_MS {
            return len;
        }
        let mut ready = 0;
        while ready < len {
            let window = window(offset + ready, len - ready);
            if !self.is_ready(window, now_ms) {
                break;
            }
            ready += window.1;
        }
        ready
    }

    fn is_ready(&self, (offset, len): (u64, u64), now_ms: u64) -> bool {
        let readers = &self.segment.readers;
        let key = self.key(offset, len);
        if was_seen(key, now_ms) {
            return true;
        }
        if !readers.pool.may_look() || !look(&self.segment, offset, len) {
            return false;
        }
        note_seen(key, now_ms);
        true
    }

    /// Has the first window of a stretch read, by a thread of the pool.
    pub fn load(&self, offset: u64, len: u64, haste: Haste) -> Loading {
        let (offset, len) = window(offset, len);
        let readers = &self.segment.readers;
        let key = self.key(offset, len);
        let mut loads = lock(&readers.loads);
        let running = loads.get(&key).and_then(Weak::upgrade);
        let load = match running.filter(|load| load.now().is_none()) {
            Some(load) => Ok(load),
            None => {
                loads.retain(|_, load| load.strong_count() > 0);
                let (segment, doubt) = (Arc::clone(&self.segment), self.doubt.clone());
                let read = move || read_window(&segment, doubt.as_deref(), (offset, len));
                let started = Load::start((&readers.pool, haste), read);
                if let Ok(load) = &started {
                    loads.insert(key, Arc::downgrade(load));
                }
                started
            }
        };
        drop(loads);
        Loading {
            file: self.clone(),
            window: (offset, len),
            load,
        }
    }

    fn key(&self, offset: u64, len: u64) -> Window {
        (Arc::as_ptr(&self.segment) as usize, offset, len)
    }
}

/// The first window of a stretch: up to the next multiple of `WINDOW` in the file, so that
/// different ranges of a long body meet in the same windows.
fn window(offset: u64, len: u64) -> (u64, u64) {
    (offset, len.min(WINDOW - offset % WINDOW))
}

/// Bytes that are being read.
pub struct Loading {
    file: HeldFile,
    window: (u64, u64),
    load: Result<Arc<WindowLoad>, Busy>,
}

impl Loading {
    /// Waits until they are there; how many they are.
    pub async fn done(self) -> Result<u64, LoadError> {
        self.load?.done().await??;
        let (offset, len) = self.window;
        let now_ms = self.file.segment.readers.pool.clock().now();
        note_seen(self.file.key(offset, len), now_ms);
        Ok(len)
    }
}

/// Reads a window into the page cache, and compares what is in doubt.
fn read_window(
    segment: &SegmentFile,
    doubt: Option<&Doubt>,
    (offset, len): (u64, u64),
) -> Result<(), LoadError> {
    if let Some(doubt) = doubt.filter(|doubt| !doubt.is_settled()) {
        return doubt.settle(segment);
    }
    with_scratch(len, |buf| {
        let read = segment.readers.io.read_at(segment, buf, offset);
        match &read {
            Ok(()) => segment.readers.has_read_body(),
            Err(error) => segment.refused(offset..offset + len, error),
        }
        read.map_err(|error| LoadError::Io(error.to_string()))
    })
}

/// Whether all of a stretch is in the page cache.
fn look(segment: &SegmentFile, offset: u64, len: u64) -> bool {
    with_scratch(len, |buf| {
        let read = segment.readers.try_read_at(segment, buf, offset);
        // Who reads in earnest will meet the error.
        read.unwrap_or(false)
    })
}

thread_local! {
    static SEEN: RefCell<Vec<Seen>> = const { RefCell::new(Vec::new()) };
    static SCRATCH: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Lends `len` bytes of this thread, at most a window.
fn with_scratch<T>(len: u64, read: impl FnOnce(&mut [u8]) -> T) -> T {
    SCRATCH.with_borrow_mut(|scratch| {
        if scratch.is_empty() {
            *scratch = vec![0; WINDOW as usize];
        }
        let len = len.min(WINDOW) as usize;
        read(scratch.get_mut(..len).unwrap_or_default())
    })
}

/// What a thread has seen of a window.
#[derive(Clone, Copy, Default)]
struct Seen {
    file: usize,
    /// Which window of the file.
    index: u64,
    /// A bit for each page that was there.
    pages: u64,
    /// When the first of them was looked at, milliseconds since 1970.
    at_ms: u64,
}

impl Seen {
    /// The pages of a stretch of one window.
    fn of((file, offset, len): Window, at_ms: u64) -> Self {
        let first = offset % WINDOW / PAGE;
        let last = (offset % WINDOW + len.max(1) - 1) / PAGE;
        // A window has 64 pages, so both are below 64.
        let pages = u64::MAX >> (63 - last.min(63)) & u64::MAX << first;
        Self {
            file,
            index: offset / WINDOW,
            pages,
            at_ms,
        }
    }

    /// Where it stands in the table.
    fn place(&self) -> usize {
        let mixed =
            (self.file as u64 ^ self.index.rotate_left(40)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (mixed >> 40) as usize % LOOKS
    }

    /// Whether `other` is of the same window, and not old.
    fn is_beside(&self, other: &Self) -> bool {
        let age_ms = self.at_ms.wrapping_sub(other.at_ms);
        (self.file, self.index) == (other.file, other.index) && age_ms < FRESH_MS
    }
}

fn was_seen(window: Window, now_ms: u64) -> bool {
    let wanted = Seen::of(window, now_ms);
    SEEN.with_borrow(|table| {
        let seen = table.get(wanted.place());
        seen.is_some_and(|seen| wanted.is_beside(seen) && wanted.pages & !seen.pages == 0)
    })
}

fn note_seen(window: Window, now_ms: u64) {
    let mut news = Seen::of(window, now_ms);
    SEEN.with_borrow_mut(|table| {
        if table.is_empty() {
            *table = vec![Seen::default(); LOOKS];
        }
        let Some(seen) = table.get_mut(news.place()) else {
            return;
        };
        if news.is_beside(seen) {
            news.pages |= seen.pages;
            news.at_ms = seen.at_ms;
        }
        *seen = news;
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_meet_at_multiples() {
        let table = [
            ((0, 10), (0, 10)),
            ((0, WINDOW * 3), (0, WINDOW)),
            ((WINDOW - 1, 10), (WINDOW - 1, 1)),
            ((WINDOW, 10), (WINDOW, 10)),
            ((WINDOW + 5, WINDOW), (WINDOW + 5, WINDOW - 5)),
        ];
        for ((offset, len), expected) in table {
            assert_eq!(window(offset, len), expected, "{offset} {len}");
        }
    }

    #[test]
    fn a_look_holds_for_a_while_and_for_its_pages() {
        let at = |offset, len| (7, WINDOW * 3 + offset, len);
        assert!(!was_seen(at(5000, 10_000), 5000));
        note_seen(at(5000, 10_000), 5000);
        let table = [
            (at(5000, 10_000), 5000 + FRESH_MS - 1, true),
            (at(5000, 10_000), 5000 + FRESH_MS, false),
            (at(5000, 10_000), 4999, false),
            (at(9000, 100), 5000, true),
            // The rest of its first and last page.
            (at(4096, 12_288), 5000, true),
            (at(4095, 10), 5000, false),
            (at(16_384, 1), 5000, false),
            ((8, WINDOW * 3 + 5000, 10_000), 5000, false),
            ((7, WINDOW * 4 + 5000, 10_000), 5000, false),
        ];
        for (window, now_ms, expected) in table {
            assert_eq!(was_seen(window, now_ms), expected, "{window:?} {now_ms}");
        }
        // Another body of the window stands beside it, and does not make it younger.
        note_seen(at(100_000, WINDOW - 100_000), 6000);
        assert!(was_seen(at(WINDOW - 1, 1), 6000) && was_seen(at(5000, 1), 6000));
        assert!(!was_seen(at(WINDOW - 1, 1), 5000 + FRESH_MS));
        note_seen(at(0, WINDOW), 9000);
        assert!(was_seen(at(0, WINDOW), 9000));
    }
}
