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
//! 1. What is said to be there was read from the page cache within the last `FRESH_MS`: pages that
//!    were used so lately are the last ones that the kernel takes away.
//! 2. A slice that is in doubt is not there before its checksum was compared.
//! 3. A look and a load are for at most `WINDOW` bytes.
//!
//! On a file system in memory everything is there. On one that cannot tell, nothing is until a
//! thread of the pool has read it.

use std::cell::RefCell;
use std::ops::Deref;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};

use hashbrown::HashMap;

use super::io::{DiskIo, File, Tried};
use super::pool::{Busy, Load, Pool};
use crate::clock::Clock;
use crate::entry::{Body, Slice, Stored};
use crate::lock::lock;
use crate::volume::Inner;

/// What is looked at, and read, at once: what a disk reads well in one go. Arbitrary.
pub const WINDOW: u64 = 256 << 10;
/// For how long a look holds; milliseconds. Arbitrary: far less than the kernel keeps what was
/// just used, unless it is in distress.
const FRESH_MS: u64 = 2000;
/// Looks that a thread remembers: a gibibyte of windows, in 128 KiB. A power of two.
const LOOKS: usize = 4096;

/// Reading from one disk.
pub(crate) struct Readers {
    io: Arc<dyn DiskIo>,
    pool: Pool,
    /// Whether reading may take time at all.
    may_wait: bool,
    /// Set once the file system could not tell whether a read would wait.
    is_blind: AtomicBool,
    loads: Mutex<HashMap<Window, Weak<WindowLoad>>>,
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
        })
    }

    /// The threads.
    pub(crate) fn pool(&self) -> &Pool {
        &self.pool
    }

    /// Reads what can be read without waiting; false if that cannot be said of it.
    pub(crate) fn try_read_at(
        &self,
        file: &File,
        buf: &mut [u8],
        offset: u64,
    ) -> std::io::Result<bool> {
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
}

impl SegmentFile {
    pub(crate) fn new(file: File, readers: Arc<Readers>) -> Self {
        Self { file, readers }
    }
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
    pub(crate) fn settle(&self, file: &File) -> Result<(), LoadError> {
        let Some((slice, flag)) = self.slice() else {
            return Err(LoadError::Corrupt);
        };
        let zone = self.zone.upgrade().ok_or(LoadError::Busy)?;
        if !zone.is_slice_sound(&self.stored, slice, file) {
            return Err(LoadError::Corrupt);
        }
        flag.store(true, Ordering::Release);
        Ok(())
    }
}

/// A segment's file that somebody keeps: while it lives, the bytes that it was handed out for stay
/// where they are.
#[derive(Clone, Debug)]
pub struct HeldFile {
    segment: Arc<SegmentFile>,
    doubt: Option<Arc<Doubt>>,
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
        }
    }

    /// Whether two regions of these files may be one.
    pub(crate) fn continues(&self, other: &Self) -> bool {
        let are_trusted = self.doubt.is_none() && other.doubt.is_none();
        are_trusted && Arc::ptr_eq(&self.segment, &other.segment)
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
        if was_seen(&key, now_ms) {
            return true;
        }
        // A stalled disk is not asked for more than it was, and a look may ask it to read ahead.
        if readers.pool.is_stalled() || !look(&self.segment, offset, len) {
            return false;
        }
        note_seen(key, now_ms);
        true
    }

    /// Has the first window of a stretch read, by a thread of the pool.
    pub fn load(&self, offset: u64, len: u64) -> Loading {
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
                let started = Load::start(&readers.pool, read);
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
    static SEEN: RefCell<Vec<(Window, u64)>> = const { RefCell::new(Vec::new()) };
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

/// Where a look stands in the table of a thread.
fn place((file, offset, len): &Window) -> usize {
    let mixed = (*file as u64 ^ offset.rotate_left(23) ^ len.rotate_left(41))
        .wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> 40) as usize % LOOKS
}

fn was_seen(window: &Window, now_ms: u64) -> bool {
    SEEN.with_borrow(|seen| {
        let look = seen.get(place(window));
        look.is_some_and(|(seen, at)| seen == window && now_ms.wrapping_sub(*at) < FRESH_MS)
    })
}

fn note_seen(window: Window, now_ms: u64) {
    SEEN.with_borrow_mut(|seen| {
        if seen.is_empty() {
            *seen = vec![((0, 0, 0), 0); LOOKS];
        }
        if let Some(look) = seen.get_mut(place(&window)) {
            *look = (window, now_ms);
        }
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
    fn a_look_holds_for_a_while() {
        let window = (1, 2, 3);
        assert!(!was_seen(&window, 5000));
        note_seen(window, 5000);
        assert!(was_seen(&window, 5000 + FRESH_MS - 1));
        assert!(!was_seen(&window, 5000 + FRESH_MS));
        assert!(!was_seen(&(1, 2, 4), 5000));
        assert!(!was_seen(&window, 4999), "the clock jumped back");
    }
}
