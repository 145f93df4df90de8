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

/// Fault that the disk has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Nothing.
    None,
    /// Every write answers EIO.
    WriteError,
    /// Every sync answers EIO; what is written stays in the page cache.
    SyncError,
    /// Every sync of a file answers EIO, and what was written to the file since it was last synced
    /// is gone: there are zeros in its place, as where an extent was allocated and never written.
    SyncLoses,
    /// The device is gone: every call answers ENODEV.
    Gone,
    /// Every read answers EIO.
    ReadError,
    /// Reads of what `SimIo::damage` named answer EIO.
    BadSectors,
    /// Reads of what `SimIo::damage` named do not return until the fault is another one.
    StallSectors,
    /// Reads do not return until the fault is another one, but of what is written meanwhile: that
    /// is in the page cache.
    Stall,
    /// A stall of all that changes something (writes, syncs, names), until the fault is another
    /// one.
    StallWrites,
    /// Syncs of files do not return until the fault is another one.
    StallSyncs,
    /// Creating a file answers ENOSPC.
    NoSpace,
    /// Creating a file answers EMFILE.
    NoDescriptor,
    /// Files are made without space of their own, and writes to them answer ENOSPC: where nothing
    /// can be allocated ahead (EOPNOTSUPP), a disk that is full says so only then.
    NoneAhead,
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
    /// Stretches that were written since the fault was set: file, first byte, first byte behind.
    written: Mutex<Vec<(u64, u64, u64)>>,
    /// Stretches of each file that were written since it was synced: first byte, first byte behind.
    unsynced: Mutex<HashMap<u64, Vec<(u64, u64)>>>,
    /// Stretches that cannot be read: file, first byte, first byte behind.
    damaged: Mutex<Vec<(u64, u64, u64)>>,
    injected: AtomicU64,
    is_mounted: AtomicBool,
    /// File that can be neither unlinked nor renamed.
    kept: Mutex<Option<PathBuf>>,
    is_remote: AtomicBool,
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
            unsynced: Mutex::default(),
            damaged: Mutex::default(),
            injected: AtomicU64::new(0),
            is_mounted: AtomicBool::new(false),
            kept: Mutex::default(),
            is_remote: AtomicBool::new(false),
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

    /// Names the one file of which unlinking and renaming answer EIO, whatever the fault is.
    pub fn keep(&self, path: Option<PathBuf>) {
        *lock(&self.kept) = path;
    }

    fn may_change_name(&self, path: &Path) -> io::Result<()> {
        if lock(&self.kept).as_deref() == Some(path) {
            return Err(self.inject(rustix::io::Errno::IO));
        }
        Ok(())
    }

    /// Says that another machine serves it; for zones that are opened from now on.
    pub fn set_remote(&self) {
        self.is_remote.store(true, Ordering::SeqCst);
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

    /// Names a stretch of a file that cannot be read while the fault is [`Fault::BadSectors`] or
    /// [`Fault::StallSectors`].
    pub fn damage(&self, path: &Path, stretch: Range<u64>) -> io::Result<()> {
        let id = self.real.open(path)?.metadata()?.ino();
        lock(&self.damaged).push((id, stretch.start, stretch.end));
        Ok(())
    }

    fn is_bad(&self, file: &File, offset: u64, len: u64) -> io::Result<bool> {
        if !matches!(self.fault(), Fault::BadSectors | Fault::StallSectors) {
            return Ok(false);
        }
        let id = file.metadata()?.ino();
        let damaged = lock(&self.damaged);
        let is_hit = |(file, from, to): &(u64, u64, u64)| {
            *file == id && *from < offset + len && offset < *to
        };
        Ok(damaged.iter().any(is_hit))
    }

    /// Number of calls that do not return at the moment.
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

    fn note_unsynced(&self, file: &File, bufs: &[Bytes], offset: u64) -> io::Result<()> {
        let len: u64 = bufs.iter().map(|buf| buf.len() as u64).sum();
        let mut unsynced = lock(&self.unsynced);
        let stretches = unsynced.entry(file.metadata()?.ino()).or_default();
        match stretches.last_mut() {
            Some((_, end)) if *end == offset => *end += len,
            _ => stretches.push((offset, offset + len)),
        }
        Ok(())
    }

    /// Forgets what was not synced of a file; that is gone if the fault says so.
    fn settle(&self, file: &File) -> io::Result<()> {
        let id = file.metadata()?.ino();
        let stretches = lock(&self.unsynced).remove(&id).unwrap_or_default();
        if self.fault() != Fault::SyncLoses {
            return Ok(());
        }
        for (start, end) in stretches {
            let zeros = Bytes::from(vec![0; (end - start) as usize]);
            self.real.write_at(file, &[zeros], start)?;
        }
        Err(self.inject(rustix::io::Errno::IO))
    }

    /// True if all of a stretch was written since the fault was set.
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

    /// Stalls the call while the fault is this one.
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

    /// Number of calls that met the fault.
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

    fn is_local(&self, _dir: &Path) -> bool {
        !self.is_remote.load(Ordering::SeqCst)
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
        match self.fault() {
            Fault::NoSpace => return Err(self.inject(rustix::io::Errno::NOSPC)),
            Fault::NoDescriptor => return Err(self.inject(rustix::io::Errno::MFILE)),
            Fault::NoneAhead => {
                let file = self.real.create(path, 1)?;
                file.set_len(len)?;
                return Ok(file);
            }
            _ => {}
        }
        self.present()?.create(path, len)
    }

    fn open(&self, path: &Path) -> io::Result<File> {
        self.present()?.open(path)
    }

    fn lock(&self, file: &File) -> io::Result<bool> {
        self.present()?.lock(file)
    }

    fn is_named(&self, file: &File, path: &Path) -> io::Result<bool> {
        self.present()?.is_named(file, path)
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
        let is_bad = || self.is_bad(file, offset, buf.len() as u64);
        if is_bad()? {
            self.stall(Fault::StallSectors);
        }
        let is_bad = is_bad()?;
        if self.fault() == Fault::ReadError || is_bad {
            return Err(self.inject(rustix::io::Errno::IO));
        }
        self.present()?.read_at(file, buf, offset)
    }

    fn write_at(&self, file: &File, bufs: &[Bytes], offset: u64) -> io::Result<()> {
        self.stall(Fault::StallWrites);
        match self.fault() {
            Fault::WriteError => Err(self.inject(rustix::io::Errno::IO)),
            // What is at the beginning of a file is made with it.
            Fault::NoneAhead if offset > 0 => Err(self.inject(rustix::io::Errno::NOSPC)),
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
                self.note_unsynced(file, bufs, offset)?;
                self.note_written(file, bufs, offset)
            }
            _ => {
                self.present()?.write_at(file, bufs, offset)?;
                self.note_unsynced(file, bufs, offset)
            }
        }
    }

    fn sync(&self, file: &File) -> io::Result<()> {
        self.stall(Fault::StallWrites);
        self.stall(Fault::StallSyncs);
        if self.fault() == Fault::SyncError {
            return Err(self.inject(rustix::io::Errno::IO));
        }
        self.present()?;
        self.settle(file)
    }

    fn unlink(&self, path: &Path) -> io::Result<()> {
        self.stall(Fault::StallWrites);
        self.may_change_name(path)?;
        self.present()?.unlink(path)
    }

    fn empty(&self, file: &File) -> io::Result<()> {
        self.stall(Fault::StallWrites);
        self.present()?.empty(file)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.stall(Fault::StallWrites);
        self.may_change_name(from)?;
        self.present()?.rename(from, to)
    }

    fn sync_dir(&self, _: &Path) -> io::Result<()> {
        self.stall(Fault::StallWrites);
        if self.fault() == Fault::SyncError {
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
