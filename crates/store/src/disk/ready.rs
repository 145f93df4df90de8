//! Bytes of a segment that can be read without waiting for the disk, and loads of the others.
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
//! 5. Of a file of which a sync failed nothing is ready, and nothing is loaded (`loss`).
//! 6. Where the page cache is another's to keep (FUSE, file systems of other machines), nothing is
//!    believed to be there, and nothing sent from there: a thread reads a window into memory of the
//!    process, where a bounded number of windows is kept.
//!
//! On a file system in memory everything is there. On one that cannot tell, nothing is until a
//! thread of the pool has read it.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};

use bytes::Bytes;
use hashbrown::HashMap;
use rustix::io::Errno;

use super::io::{File, Tried};
use super::open::{Home, OpenFile, SegmentFile};
use super::pool::{Busy, Haste, Load, Pool};
use super::reader::is_sound;
use crate::clock::Clock;
use crate::entry::{Body, Slice, Stored};
use crate::health;
use crate::lock::lock;
use crate::volume::Inner;

/// Bytes that are looked at, and read, at once: a stretch that a disk reads well in one go.
/// Arbitrary.
pub const WINDOW: u64 = 256 << 10;
/// Time for which a look holds; milliseconds. Arbitrary: far less than the kernel keeps what was
/// just used, unless it is in distress.
const FRESH_MS: u64 = 2000;
/// Unit in which the page cache holds bytes of files. Larger pages are several of these.
const PAGE: u64 = 4096;
const _: () = assert!(
    WINDOW / PAGE == 64,
    "a window's pages are the bits of a number"
);
/// Looks that a thread remembers: a gibibyte of windows, in 128 KiB. A power of two.
const LOOKS: usize = 4096;

/// Windows in memory of the process, where the page cache is not believed: 64 MiB for each disk.
/// Arbitrary: each is sent soon after it was read.
const MOST_KEPT: usize = 256;

/// Gaps of one file that are remembered; with more of them all of it counts as one. Arbitrary: a
/// file that has so many has more.
const MAX_GAPS: usize = 64;

/// Reading from one disk.
pub(crate) struct Readers {
    home: Home,
    pool: Pool,
    /// True if reading may take time at all.
    may_wait: bool,
    /// Set once the file system could not tell whether a read would wait.
    is_blind: AtomicBool,
    loads: Mutex<HashMap<Window, Weak<WindowLoad>>>,
    /// INVARIANT 6: windows in memory, the newest last; none where the page cache is believed.
    kept: Option<Mutex<VecDeque<Kept>>>,
    /// Volume that is told of errors.
    volume: OnceLock<Weak<Inner>>,
}

/// A window in memory.
struct Kept {
    /// File of the window, and not its address alone, which another file may have later.
    file: Weak<SegmentFile>,
    start: u64,
    bytes: Bytes,
}

/// Load of one window, and its result.
type WindowLoad = Load<Result<(), LoadError>>;

/// A stretch of a file: its identity while it is open, first byte, length.
type Window = (usize, u64, u64);

/// The reason why bytes could not be had.
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
    pub(crate) fn new(home: Home, clock: Arc<dyn Clock>) -> Arc<Self> {
        let kept = (!home.io.is_local(&home.dir)).then(Mutex::default);
        Arc::new(Self {
            may_wait: home.io.may_wait(&home.dir),
            home,
            pool: Pool::new(clock),
            is_blind: AtomicBool::new(kept.is_some()),
            kept,
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

    /// True if what is in the page cache is believed to stay there.
    pub(crate) fn is_local(&self) -> bool {
        self.kept.is_none()
    }

    /// Bytes of a file from `offset` on that are in memory of the process, at most `len`.
    fn kept(&self, file: &Arc<SegmentFile>, offset: u64, len: u64) -> Option<Bytes> {
        let kept = lock(self.kept.as_ref()?);
        let mut newest_first = kept.iter().rev();
        newest_first.find_map(|window| {
            let is_its = std::ptr::eq(window.file.as_ptr(), Arc::as_ptr(file));
            let at = offset.checked_sub(window.start).filter(|_| is_its)?;
            // What is kept is at most a window.
            let at = usize::try_from(at)
                .ok()
                .filter(|at| *at < window.bytes.len())?;
            let end = window.bytes.len().min(at.saturating_add(len as usize));
            Some(window.bytes.slice(at..end))
        })
    }

    fn keep(&self, file: &Arc<SegmentFile>, start: u64, bytes: Bytes) {
        let Some(kept) = &self.kept else { return };
        let mut kept = lock(kept);
        kept.push_back(Kept {
            file: Arc::downgrade(file),
            start,
            bytes,
        });
        if kept.len() > MOST_KEPT {
            kept.pop_front();
        }
    }

    /// Directory and file system of the segments.
    pub(crate) fn home(&self) -> &Home {
        &self.home
    }

    /// The threads.
    pub(crate) fn pool(&self) -> &Pool {
        &self.pool
    }

    /// Reads what can be read without waiting; false if that cannot be said of it.
    pub(crate) fn try_read_at(
        &self,
        file: &SegmentFile,
        buf: &mut [u8],
        offset: u64,
    ) -> io::Result<bool> {
        let Some(file) = file.open_now() else {
            return Ok(false);
        };
        if !self.may_wait {
            return self.home.io.read_at(&file, buf, offset).map(|()| true);
        }
        if self.is_blind.load(Ordering::Relaxed) {
            return Ok(false);
        }
        match self.home.io.try_read_at(&file, buf, offset)? {
            Tried::Read => Ok(true),
            Tried::WouldWait => Ok(false),
            Tried::Unknown => {
                self.is_blind.store(true, Ordering::Relaxed);
                Ok(false)
            }
        }
    }
}

/// Stretches of a file that the disk did not give.
#[derive(Debug, Default)]
pub(crate) struct Gaps {
    are_any: AtomicBool,
    /// Set once nobody knows what stands in the file: a sync of it failed.
    is_lost: AtomicBool,
    /// Set once the file's space was taken back from its readers.
    is_taken_back: AtomicBool,
    stretches: Mutex<Vec<Range<u64>>>,
}

/// The error of those who read a body whose space was taken back.
pub(super) const TAKEN_BACK: &str = "the space of a stalled reader was taken back";

impl Gaps {
    pub(super) fn give_up(&self) {
        self.is_taken_back.store(true, Ordering::Release);
    }
}

impl SegmentFile {
    /// True if the file's space was taken back from its readers.
    pub(crate) fn is_taken_back(&self) -> bool {
        self.gaps.is_taken_back.load(Ordering::Acquire)
    }

    /// True if there is anything that the disk did not give.
    pub(crate) fn has_gaps(&self) -> bool {
        self.gaps.are_any.load(Ordering::Acquire)
    }

    /// INVARIANT 5.
    pub(crate) fn lose(&self) {
        self.gaps.is_lost.store(true, Ordering::Release);
        // Entries with bytes there are not found any more.
        self.note_gap(0..u64::MAX);
    }

    /// True if nobody knows what stands in the file.
    pub(crate) fn is_lost(&self) -> bool {
        self.gaps.is_lost.load(Ordering::Acquire)
    }

    /// True if there is something in one of these stretches that the disk did not give.
    pub(crate) fn has_gap_in(&self, mut stretches: impl Iterator<Item = Range<u64>>) -> bool {
        let gaps = lock(&self.gaps.stretches);
        stretches.any(|stretch| {
            let is_in = |gap: &Range<u64>| gap.start < stretch.end && stretch.start < gap.end;
            gaps.iter().any(is_in)
        })
    }

    /// INVARIANT 4.
    pub(crate) fn note_gap(&self, gap: Range<u64>) {
        let mut gaps = lock(&self.gaps.stretches);
        if gaps.len() >= MAX_GAPS {
            gaps.clear();
            gaps.push(0..u64::MAX);
        } else if !gaps.contains(&gap) {
            gaps.push(gap);
        }
        self.gaps.are_any.store(true, Ordering::Release);
    }

    /// The disk did not give what was asked for.
    fn refused(&self, stretch: Range<u64>, error: &io::Error) {
        if self.is_taken_back() {
            return;
        }
        if is_of_disk(error) {
            self.note_gap(stretch);
        }
        if let Some(volume) = self.readers().volume() {
            volume.read_failed(error, health::Tried::Body);
        }
    }
}

/// True if an error is that of a disk, and not of the process, the machine, or a socket that was
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
            None => is_sound(slice, file),
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
    /// Stays open as long as this lives, once it is known to be.
    open: OnceLock<Arc<OpenFile>>,
    doubt: Option<Arc<Doubt>>,
    /// Earliest time at which the bytes that the file was handed out for can have been written, by
    /// the steady clock.
    written_ms: u64,
}

impl HeldFile {
    pub(crate) fn new(segment: &Arc<SegmentFile>, doubt: Option<Arc<Doubt>>) -> Self {
        Self {
            segment: Arc::clone(segment),
            open: OnceLock::new(),
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

    /// True if nobody knows what stands in the file, as a sync of it failed.
    pub(crate) fn is_lost(&self) -> bool {
        self.segment.is_lost()
    }

    /// Counts bytes of the body that a client took. One that takes next to none for a minute may
    /// lose the rest, where a zone has much that waits for such.
    pub fn note_taken(&self, count: u64) {
        self.segment.note_taken(count);
    }

    /// The file, opened if it is not: not to be asked for before its bytes are ready, by whoever
    /// must not wait for the disk.
    pub fn file(&self) -> io::Result<&File> {
        if self.open.get().is_none() {
            // Another one that came first is the same file.
            let _ = self.open.set(self.segment.file()?);
        }
        let open = self.open.get().ok_or(io::ErrorKind::NotFound)?;
        Ok(open)
    }

    /// True if the file's bytes may be sent from the page cache.
    pub fn is_local(&self) -> bool {
        self.segment.readers().is_local()
    }

    /// Bytes from `offset` on, at most `len`, that are to be sent from memory: where the file is on
    /// a file system that a read may go to the server of. They were asked for with
    /// [`HeldFile::ready_len`].
    pub fn in_memory(&self, offset: u64, len: u64) -> Option<Bytes> {
        self.segment.readers().kept(&self.segment, offset, len)
    }

    /// Fills the whole buffer from `offset`.
    pub fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        if let Some(bytes) = self.in_memory(offset, buf.len() as u64)
            && bytes.len() == buf.len()
        {
            buf.copy_from_slice(&bytes);
            return Ok(());
        }
        self.file()?.read_exact_at(buf, offset)
    }

    /// Holds the file open if it is; never waits.
    pub fn is_open(&self) -> bool {
        let hold = |open| {
            let _ = self.open.set(open);
        };
        self.open.get().is_some() || self.segment.open_now().map(hold).is_some()
    }

    /// True if two regions of these files may be joined.
    pub(crate) fn continues(&self, other: &Self) -> bool {
        let are_trusted = self.doubt.is_none() && other.doubt.is_none();
        are_trusted && Arc::ptr_eq(&self.segment, &other.segment)
    }

    /// Reports to the disk an error of reading or sending some bytes, and forgets the entries that
    /// need them; false if the error is not the disk's.
    pub fn has_refused(&self, stretch: Range<u64>, error: &io::Error) -> bool {
        let is_of_disk = is_of_disk(error);
        if is_of_disk {
            self.segment.refused(stretch, error);
        }
        is_of_disk
    }

    /// Number of bytes from `offset` on, up to `len`, that can be read without waiting. Looks at no
    /// more than it takes to find out; never waits.
    pub fn ready_len(&self, offset: u64, len: u64) -> u64 {
        let readers = self.segment.readers();
        let is_doubtful = self.doubt.as_ref().is_some_and(|doubt| !doubt.is_settled());
        // INVARIANT 5.
        if self.segment.is_lost() || is_doubtful {
            return 0;
        }
        if !readers.is_local() {
            let kept = self.in_memory(offset, len);
            return kept.map_or(0, |bytes| bytes.len() as u64);
        }
        if !self.is_open() {
            return 0;
        }
        if !readers.may_wait {
            return len;
        }
        let now_ms = readers.pool.clock().steady();
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
        let readers = self.segment.readers();
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

    /// Starts a read of the first window of a stretch, by a thread of the pool.
    pub fn load(&self, offset: u64, len: u64, haste: Haste) -> Loading {
        let (offset, len) = window(offset, len);
        let readers = self.segment.readers();
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
    /// Waits until the bytes are there; returns how many they are.
    pub async fn done(self) -> Result<u64, LoadError> {
        self.load?.done().await??;
        let (offset, len) = self.window;
        let now_ms = self.file.segment.readers().pool.clock().steady();
        note_seen(self.file.key(offset, len), now_ms);
        Ok(len)
    }
}

/// Reads a window into the page cache, or to where windows are kept, and compares what is in doubt.
fn read_window(
    segment: &Arc<SegmentFile>,
    doubt: Option<&Doubt>,
    (offset, len): (u64, u64),
) -> Result<(), LoadError> {
    if segment.is_taken_back() {
        return Err(LoadError::Io(TAKEN_BACK.to_string()));
    }
    // INVARIANT 5.
    if segment.is_lost() {
        return Err(LoadError::Io("what it took was never written".to_string()));
    }
    let readers = segment.readers();
    if let Some(doubt) = doubt.filter(|doubt| !doubt.is_settled()) {
        doubt.settle(segment)?;
        // What was compared is in the page cache by now; INVARIANT 6 wants it in memory.
        if readers.is_local() {
            return Ok(());
        }
    }
    with_scratch(len, |buf| {
        let read = segment.read_at(buf, offset);
        match &read {
            Ok(()) => {
                readers.has_read_body();
                segment.note_taken(len);
                if !readers.is_local() {
                    readers.keep(segment, offset, Bytes::copy_from_slice(buf));
                }
            }
            Err(error) => segment.refused(offset..offset + len, error),
        }
        read.map_err(|error| LoadError::Io(error.to_string()))
    })
}

/// True if all of a stretch is in the page cache.
fn look(segment: &SegmentFile, offset: u64, len: u64) -> bool {
    with_scratch(len, |buf| {
        let read = segment.readers().try_read_at(segment, buf, offset);
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

/// Pages of a window that a thread has seen in the page cache.
#[derive(Clone, Copy, Default)]
struct Seen {
    file: usize,
    /// Index of the window in the file.
    index: u64,
    /// A bit for each page that was there.
    pages: u64,
    /// Time when the first of the pages was looked at, by the steady clock.
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

    /// Position of the window in the table.
    fn place(&self) -> usize {
        let mixed =
            (self.file as u64 ^ self.index.rotate_left(40)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (mixed >> 40) as usize % LOOKS
    }

    /// True if `other` is of the same window, and not old.
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
