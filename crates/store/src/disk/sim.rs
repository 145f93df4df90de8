//! A disk with faults: the real file system, with writes that fail, tear or vanish on demand.
//!
//! Faults are set by the test and stay until they are changed; [`Fault::None`] behaves like the
//! real thing, except that syncing takes no time and promises nothing. Files are real, because
//! regions of them are handed out.

use std::io;
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use bytes::Bytes;
use hashbrown::HashMap;

use super::io::{DirEntry, DiskIo, File, RealIo, Tried};
use crate::lock::lock;

/// What goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Nothing.
    None,
    /// Every write answers EIO.
    WriteError,
    /// Every sync answers EIO; what is written stays in the page cache.
    SyncError,
    /// The device is gone: every call answers ENODEV.
    Gone,
    /// Every read answers EIO.
    ReadError,
    /// Reads of what `SimIo::damage` named answer EIO.
    BadSectors,
    /// Reads do not return until the fault is another one, but of what is written meanwhile: that
    /// is in the page cache.
    Stall,
    /// Whatever changes something (writes, syncs, names) does not return until the fault is another
    /// one.
    StallWrites,
    /// Creating a file answers ENOSPC.
    NoSpace,
    /// Writes report success and write only their first half.
    TornWrite,
    /// Writes report success and write nothing.
    LostWrite,
    /// The file system says that this many bytes are free.
    Available(u64),
}

/// A file system that obeys a [`Fault`].
#[derive(Debug)]
pub struct SimIo {
    real: RealIo,
    fault: Mutex<Fault>,
    changed: Condvar,
    stalled: AtomicU64,
    /// What was written since the fault was set: file, first byte, first byte behind.
    written: Mutex<Vec<(u64, u64, u64)>>,
    /// What cannot be read: file, first byte, first byte behind.
    damaged: Mutex<Vec<(u64, u64, u64)>>,
    injected: AtomicU64,
    is_mounted: AtomicBool,
    /// Other devices, by the directories that are on them.
    disks: Mutex<HashMap<PathBuf, Arc<SimIo>>>,
}

impl SimIo {
    /// A disk without faults.
    pub fn new() -> Self {
        Self {
            real: RealIo,
            fault: Mutex::new(Fault::None),
            changed: Condvar::new(),
            stalled: AtomicU64::new(0),
            written: Mutex::default(),
            damaged: Mutex::default(),
            injected: AtomicU64::new(0),
            is_mounted: AtomicBool::new(false),
            disks: Mutex::default(),
        }
    }

    /// The device of a directory, which has faults of its own from now on.
    pub fn disk(&self, dir: impl Into<PathBuf>) -> Arc<SimIo> {
        let mut disks = lock(&self.disks);
        Arc::clone(disks.entry(dir.into()).or_default())
    }

    /// Says whether it is a file system of its own that is mounted.
    pub fn set_mounted(&self, is_mounted: bool) {
        self.is_mounted.store(is_mounted, Ordering::SeqCst);
    }

    fn present(&self) -> io::Result<&RealIo> {
        match self.fault() {
            Fault::Gone => Err(self.inject(rustix::io::Errno::NODEV)),
            _ => Ok(&self.real),
        }
    }

    /// Sets what goes wrong from now on.
    pub fn set(&self, fault: Fault) {
        lock(&self.written).clear();
        *lock(&self.fault) = fault;
        self.changed.notify_all();
    }

    /// Names a stretch of a file that cannot be read while the fault is [`Fault::BadSectors`].
    pub fn damage(&self, path: &Path, stretch: Range<u64>) -> io::Result<()> {
        let id = self.real.open(path)?.metadata()?.ino();
        lock(&self.damaged).push((id, stretch.start, stretch.end));
        Ok(())
    }

    fn is_bad(&self, file: &File, offset: u64, len: u64) -> io::Result<bool> {
        if self.fault() != Fault::BadSectors {
            return Ok(false);
        }
        let id = file.metadata()?.ino();
        let damaged = lock(&self.damaged);
        let is_hit = |(file, from, to): &(u64, u64, u64)| {
            *file == id && *from < offset + len && offset < *to
        };
        Ok(damaged.iter().any(is_hit))
    }

    /// How many calls do not return at the moment.
    pub fn stalled(&self) -> u64 {
        self.stalled.load(Ordering::SeqCst)
    }

    fn note_written(&self, file: &File, bufs: &[Bytes], offset: u64) -> io::Result<()> {
        let len: u64 = bufs.iter().map(|buf| buf.len() as u64).sum();
        // What else is in its last block is there, too.
        let end = (offset + len).next_multiple_of(512);
        let written = (file.metadata()?.ino(), offset, end);
        lock(&self.written).push(written);
        Ok(())
    }

    /// Whether all of a stretch was written since the fault was set.
    fn was_written(&self, file: &File, offset: u64, len: u64) -> io::Result<bool> {
        let (id, mut at) = (file.metadata()?.ino(), offset);
        let written = lock(&self.written);
        while at < offset + len {
            let covers =
                |(file, from, to): &&(u64, u64, u64)| *file == id && *from <= at && at < *to;
            let Some((_, _, end)) = written.iter().find(covers) else {
                return Ok(false);
            };
            at = *end;
        }
        Ok(true)
    }

    /// Does not return while the fault is this one.
    fn stall(&self, cause: Fault) {
        let mut fault = lock(&self.fault);
        if *fault != cause {
            return;
        }
        self.injected.fetch_add(1, Ordering::SeqCst);
        self.stalled.fetch_add(1, Ordering::SeqCst);
        while *fault == cause {
            let waited = self.changed.wait(fault);
            fault = waited.unwrap_or_else(PoisonError::into_inner);
        }
        self.stalled.fetch_sub(1, Ordering::SeqCst);
    }

    /// How many calls met the fault.
    pub fn injected(&self) -> u64 {
        self.injected.load(Ordering::SeqCst)
    }

    fn fault(&self) -> Fault {
        *lock(&self.fault)
    }

    fn inject(&self, errno: rustix::io::Errno) -> io::Error {
        self.injected.fetch_add(1, Ordering::SeqCst);
        errno.into()
    }
}

impl Default for SimIo {
    fn default() -> Self {
        Self::new()
    }
}

impl DiskIo for SimIo {
    fn make_dir(&self, dir: &Path) -> io::Result<()> {
        self.present()?.make_dir(dir)
    }

    fn make_last_dir(&self, dir: &Path) -> io::Result<()> {
        self.present()?.make_last_dir(dir)
    }

    fn is_mount(&self, _dir: &Path) -> bool {
        self.is_mounted.load(Ordering::SeqCst)
    }

    fn for_disk(&self, dir: &Path) -> Option<Arc<dyn DiskIo>> {
        let disk = lock(&self.disks).get(dir).map(Arc::clone)?;
        Some(disk)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<DirEntry>> {
        self.present()?.list(dir)
    }

    fn create(&self, path: &Path, len: u64) -> io::Result<File> {
        self.stall(Fault::StallWrites);
        if self.fault() == Fault::NoSpace {
            return Err(self.inject(rustix::io::Errno::NOSPC));
        }
        self.present()?.create(path, len)
    }

    fn open(&self, path: &Path) -> io::Result<File> {
        self.present()?.open(path)
    }

    fn lock(&self, file: &File) -> io::Result<bool> {
        self.present()?.lock(file)
    }

    fn try_read_at(&self, file: &File, buf: &mut [u8], offset: u64) -> io::Result<Tried> {
        match self.fault() {
            Fault::Stall if !self.was_written(file, offset, buf.len() as u64)? => {
                Ok(Tried::WouldWait)
            }
            Fault::ReadError => Err(self.inject(rustix::io::Errno::IO)),
            _ if self.is_bad(file, offset, buf.len() as u64)? => Ok(Tried::WouldWait),
            _ => self.present()?.try_read_at(file, buf, offset),
        }
    }

    fn forget(&self, file: &File, stretch: Range<u64>) {
        self.real.forget(file, stretch);
    }

    fn read_at(&self, file: &File, buf: &mut [u8], offset: u64) -> io::Result<()> {
        if !self.was_written(file, offset, buf.len() as u64)? {
            self.stall(Fault::Stall);
        }
        let is_bad = self.is_bad(file, offset, buf.len() as u64)?;
        if self.fault() == Fault::ReadError || is_bad {
            return Err(self.inject(rustix::io::Errno::IO));
        }
        self.present()?.read_at(file, buf, offset)
    }

    fn write_at(&self, file: &File, bufs: &[Bytes], offset: u64) -> io::Result<()> {
        self.stall(Fault::StallWrites);
        match self.fault() {
            Fault::WriteError => Err(self.inject(rustix::io::Errno::IO)),
            Fault::LostWrite => {
                self.injected.fetch_add(1, Ordering::SeqCst);
                Ok(())
            }
            Fault::TornWrite => {
                self.injected.fetch_add(1, Ordering::SeqCst);
                let whole = bufs.concat();
                let half = Bytes::copy_from_slice(whole.split_at(whole.len() / 2).0);
                self.present()?.write_at(file, &[half], offset)
            }
            Fault::Stall => {
                self.real.write_at(file, bufs, offset)?;
                self.note_written(file, bufs, offset)
            }
            _ => self.present()?.write_at(file, bufs, offset),
        }
    }

    fn sync(&self, _: &File) -> io::Result<()> {
        self.stall(Fault::StallWrites);
        if matches!(self.fault(), Fault::WriteError | Fault::SyncError) {
            return Err(self.inject(rustix::io::Errno::IO));
        }
        self.present().map(|_| ())
    }

    fn unlink(&self, path: &Path) -> io::Result<()> {
        self.stall(Fault::StallWrites);
        self.present()?.unlink(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.stall(Fault::StallWrites);
        self.present()?.rename(from, to)
    }

    fn sync_dir(&self, _: &Path) -> io::Result<()> {
        self.stall(Fault::StallWrites);
        if matches!(self.fault(), Fault::WriteError | Fault::SyncError) {
            return Err(self.inject(rustix::io::Errno::IO));
        }
        self.present().map(|_| ())
    }

    fn sync_all(&self, dir: &Path) -> io::Result<()> {
        self.sync_dir(dir)
    }

    fn available(&self, dir: &Path) -> io::Result<u64> {
        match self.fault() {
            Fault::Available(bytes) => Ok(bytes),
            _ => self.present()?.available(dir),
        }
    }

    fn random(&self) -> [u8; 16] {
        self.real.random()
    }
}
