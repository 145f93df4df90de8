//! The only door to the file system: a trait, and the real implementation.
//!
//! Everything that a zone does to a disk goes through [`DiskIo`], so that tests can put a disk
//! with faults in its place. Files are `std::fs::File`, because regions of them are handed to
//! `sendfile`.
//!
//! It does not retry, count or log: an error goes to the caller unchanged.

use std::ffi::OsString;
use std::fs::{self, DirBuilder, OpenOptions, Permissions};
use std::hash::{BuildHasher, RandomState};
use std::io::{self, IoSlice, IoSliceMut};
use std::num::NonZeroU64;
use std::ops::Range;
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::sync::Arc;

pub(crate) use std::fs::File;

use bytes::Bytes;
use rustix::fs::{Advice, FallocateFlags, FlockOperation, OFlags};
use rustix::io::{Errno, ReadWriteFlags};

/// Buffers per `pwritev`; far below the kernel's limit of 1024, and enough for a megabyte of
/// 16 KiB reads.
const VECTOR_LEN: usize = 64;

/// Unit in which the page cache holds bytes of files. Larger pages are several of these.
const PAGE: u64 = 4096;

/// Mode of the folders of zones: nobody but their owner looks or renames (nginx: 0700).
const PRIVATE_FOLDER: u32 = 0o700;

/// Mode of the folders above them, which the owner of a zone has to pass.
const PARENT_FOLDER: u32 = 0o755;

/// Mode of files: nobody but their owner reads or writes.
const PRIVATE_FILE: u32 = 0o600;

/// File systems in memory, as `statfs` names them: tmpfs and ramfs.
const IN_MEMORY: [u64; 2] = [0x0102_1994, 0x8584_58f6];

/// File systems of which what was written a moment ago is in the page cache, and what was read is
/// sent from there: ext2 to 4, xfs, btrfs, f2fs, bcachefs, zfs, jfs, overlay, vfat, exfat. Not
/// FUSE, nor those on other machines: a read may go to their servers, or fail, at any time.
const LOCAL: [u64; 10] = [
    0xef53,
    0x5846_5342,
    0x9123_683e,
    0xf2f5_2010,
    0xca45_1a4e,
    0x2fc1_2fc1,
    0x3153_464a,
    0x794c_7630,
    0x4d44,
    0x2011_bab0,
];

/// Result of reading without waiting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tried {
    /// The whole buffer is filled.
    Read,
    /// A part of the bytes is not in memory.
    WouldWait,
    /// The file system cannot tell.
    Unknown,
}

/// One name in a directory.
#[derive(Clone, Debug)]
pub struct DirEntry {
    /// Name without the directory.
    pub name: OsString,
    /// Length in bytes, 0 for what is not a file.
    pub len: u64,
    /// True if the name is that of a directory.
    pub is_dir: bool,
}

/// Operations of a file system that a zone needs.
pub trait DiskIo: Send + Sync {
    /// Makes a directory and its parents, durably, unless they are there.
    fn make_dir(&self, dir: &Path) -> io::Result<()>;
    /// Makes a directory unless it is there; where there are parents, they must be there.
    fn make_last_dir(&self, dir: &Path) -> io::Result<()> {
        self.make_dir(dir)
    }
    /// True if a file system is mounted at this directory.
    fn is_mount(&self, _dir: &Path) -> bool {
        false
    }
    /// The way to one of several disks, where it is another one.
    fn for_disk(&self, _dir: &Path) -> Option<Arc<dyn DiskIo>> {
        None
    }
    /// True if writes through this interface change anything.
    fn may_change(&self) -> bool {
        true
    }
    /// Names in a directory.
    fn list(&self, dir: &Path) -> io::Result<Vec<DirEntry>>;
    /// Creates a file of `len` zero bytes whose space is allocated; fails if the name exists.
    fn create(&self, path: &Path, len: u64) -> io::Result<File>;
    /// Opens a file for reading and writing.
    fn open(&self, path: &Path) -> io::Result<File>;
    /// Takes the exclusive lock of a file; false if someone else holds it.
    fn lock(&self, file: &File) -> io::Result<bool>;
    /// True if an open file is still the one that has this name.
    fn is_named(&self, _file: &File, _path: &Path) -> io::Result<bool> {
        Ok(true)
    }
    /// Fills the whole buffer from `offset`.
    fn read_at(&self, file: &File, buf: &mut [u8], offset: u64) -> io::Result<()>;
    /// Fills the whole buffer from `offset`, if that takes no time.
    fn try_read_at(&self, file: &File, buf: &mut [u8], offset: u64) -> io::Result<Tried> {
        self.read_at(file, buf, offset).map(|()| Tried::Read)
    }
    /// Lets the pages of a stretch go from memory, as if they had not been read.
    fn forget(&self, _file: &File, _stretch: Range<u64>) {}
    /// True if reading files in a directory may take time: false for memory.
    fn may_wait(&self, _dir: &Path) -> bool {
        true
    }
    /// True if the page cache keeps what it has of files in a directory for a while: not on file
    /// systems that another process or machine serves.
    fn is_local(&self, _dir: &Path) -> bool {
        true
    }
    /// Writes all buffers, one after the other, from `offset` on.
    fn write_at(&self, file: &File, bufs: &[Bytes], offset: u64) -> io::Result<()>;
    /// Waits until what was written to the file is on the device.
    fn sync(&self, file: &File) -> io::Result<()>;
    /// Removes a file.
    fn unlink(&self, path: &Path) -> io::Result<()>;
    /// Gives the space of a file back: who has it open finds its end where it begins.
    fn empty(&self, _file: &File) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
    /// Renames a file within its directory.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Waits until the names in a directory are on the device.
    fn sync_dir(&self, dir: &Path) -> io::Result<()>;
    /// Waits until everything that was written to the file system of `dir` is on the device, also
    /// by processes that are gone.
    fn sync_all(&self, dir: &Path) -> io::Result<()> {
        Ok(rustix::fs::syncfs(File::open(dir)?)?)
    }
    /// Bytes that an ordinary process may still allocate on the file system of `dir`.
    fn available(&self, dir: &Path) -> io::Result<u64>;
    /// Name of the file system of `dir`, where others may allocate on it, too.
    fn device(&self, _dir: &Path) -> Option<u64> {
        None
    }
    /// Sixteen bytes that nobody can guess.
    fn random(&self) -> [u8; 16];
}

/// The machine's file system.
#[derive(Clone, Copy, Debug, Default)]
pub struct RealIo;

impl DiskIo for RealIo {
    fn make_dir(&self, dir: &Path) -> io::Result<()> {
        let missing = dir.ancestors().take_while(|dir| !dir.exists());
        let parents: Vec<_> = missing.filter_map(Path::parent).collect();
        make_private_folder(dir)?;
        // The names of new directories must outlive a power failure, as those of their files do.
        let mut parents = parents.into_iter().filter(|parent| parent.is_dir());
        parents.try_for_each(|parent| self.sync_dir(parent))
    }

    fn is_mount(&self, dir: &Path) -> bool {
        let device = |dir: &Path| fs::metadata(dir).map(|found| found.dev());
        matches!((device(dir), device(&dir.join(".."))), (Ok(own), Ok(above)) if own != above)
    }

    fn make_last_dir(&self, dir: &Path) -> io::Result<()> {
        make_folder(dir, PRIVATE_FOLDER)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<DirEntry>> {
        let mut found = Vec::new();
        for entry in fs::read_dir(dir)? {
            let entry = entry?;
            let meta = match entry.metadata() {
                Ok(meta) => meta,
                // A name that went away between the listing and the question.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => return Err(error),
            };
            found.push(DirEntry {
                name: entry.file_name(),
                len: if meta.is_file() { meta.len() } else { 0 },
                is_dir: meta.is_dir(),
            });
        }
        Ok(found)
    }

    fn create(&self, path: &Path, len: u64) -> io::Result<File> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .mode(PRIVATE_FILE)
            .open(path)?;
        keep_atime(&file);
        if let Err(error) = allocate(&file, len) {
            drop(file);
            // The first error is the one to report; an empty file that stays is removed at start.
            let _ = fs::remove_file(path);
            return Err(error);
        }
        Ok(file)
    }

    fn open(&self, path: &Path) -> io::Result<File> {
        let file = OpenOptions::new().read(true).write(true).open(path)?;
        keep_atime(&file);
        Ok(file)
    }

    fn is_named(&self, file: &File, path: &Path) -> io::Result<bool> {
        let own = file.metadata()?;
        match fs::metadata(path) {
            Ok(named) => Ok((named.dev(), named.ino()) == (own.dev(), own.ino())),
            Err(error) => match error.kind() {
                io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => Ok(false),
                _ => Err(error),
            },
        }
    }

    fn lock(&self, file: &File) -> io::Result<bool> {
        match rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(true),
            Err(rustix::io::Errno::WOULDBLOCK) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    fn read_at(&self, file: &File, buf: &mut [u8], offset: u64) -> io::Result<()> {
        file.read_exact_at(buf, offset)
    }

    fn try_read_at(&self, file: &File, buf: &mut [u8], offset: u64) -> io::Result<Tried> {
        let mut filled = 0;
        while let Some(rest) = buf.get_mut(filled..).filter(|rest| !rest.is_empty()) {
            let (at, flags) = (offset + filled as u64, ReadWriteFlags::NOWAIT);
            match rustix::io::preadv2(file, &mut [IoSliceMut::new(rest)], at, flags) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => filled += count,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(Tried::WouldWait),
                Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => return Ok(Tried::Unknown),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(Tried::Read)
    }

    fn forget(&self, file: &File, stretch: Range<u64>) {
        let start = stretch.start - stretch.start % PAGE;
        let len = NonZeroU64::new(stretch.end.next_multiple_of(PAGE) - start);
        // It is a hint.
        let _ = rustix::fs::fadvise(file, start, len, Advice::DontNeed);
    }

    fn may_wait(&self, dir: &Path) -> bool {
        let kind = rustix::fs::statfs(dir).map(|stat| stat.f_type as u64);
        !kind.is_ok_and(|kind| IN_MEMORY.contains(&kind))
    }

    fn is_local(&self, dir: &Path) -> bool {
        let kind = rustix::fs::statfs(dir).map(|stat| stat.f_type as u64);
        kind.is_ok_and(|kind| LOCAL.contains(&kind) || IN_MEMORY.contains(&kind))
    }

    fn write_at(&self, file: &File, bufs: &[Bytes], offset: u64) -> io::Result<()> {
        let mut offset = offset;
        for group in bufs.chunks(VECTOR_LEN) {
            let mut slices: Vec<IoSlice<'_>> = group.iter().map(|buf| IoSlice::new(buf)).collect();
            let mut rest = slices.as_mut_slice();
            IoSlice::advance_slices(&mut rest, 0);
            while !rest.is_empty() {
                let written = match rustix::io::pwritev(file, rest, offset) {
                    Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                    Ok(written) => written,
                    Err(rustix::io::Errno::INTR) => continue,
                    Err(error) => return Err(error.into()),
                };
                offset += written as u64;
                IoSlice::advance_slices(&mut rest, written);
            }
        }
        Ok(())
    }

    fn sync(&self, file: &File) -> io::Result<()> {
        file.sync_data()
    }

    fn unlink(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn empty(&self, file: &File) -> io::Result<()> {
        file.set_len(0)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        File::open(dir)?.sync_all()
    }

    fn available(&self, dir: &Path) -> io::Result<u64> {
        let stat = rustix::fs::statvfs(dir)?;
        Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
    }

    fn device(&self, dir: &Path) -> Option<u64> {
        Some(fs::metadata(dir).ok()?.dev())
    }

    fn random(&self) -> [u8; 16] {
        // The keys of `RandomState` come from the operating system's generator.
        let halves = [
            RandomState::new().hash_one(0),
            RandomState::new().hash_one(1),
        ];
        let mut bytes = [0; 16];
        for (target, half) in bytes.chunks_exact_mut(8).zip(halves) {
            target.copy_from_slice(&half.to_le_bytes());
        }
        bytes
    }
}

/// Makes a folder that nobody but its owner enters, unless it is there, and those above it as
/// everybody may enter them; the umask has no say.
pub fn make_private_folder(dir: &Path) -> io::Result<()> {
    make_parents(dir)?;
    make_folder(dir, PRIVATE_FOLDER)
}

/// Makes the folders above a path as everybody may enter them, unless they are there.
pub fn make_parents(path: &Path) -> io::Result<()> {
    let missing = path.ancestors().skip(1).take_while(|dir| !dir.exists());
    let missing: Vec<_> = missing.filter(|dir| dir.file_name().is_some()).collect();
    let mut outer_first = missing.into_iter().rev();
    outer_first.try_for_each(|dir| make_folder(dir, PARENT_FOLDER))?;
    match path.parent() {
        Some(parent) if parent.exists() && !parent.is_dir() => Err(Errno::NOTDIR.into()),
        _ => Ok(()),
    }
}

/// Makes a folder with exactly this mode, unless it is there.
fn make_folder(dir: &Path, mode: u32) -> io::Result<()> {
    match DirBuilder::new().mode(mode).create(dir) {
        // The umask can only have taken rights away.
        Ok(()) => fs::set_permissions(dir, Permissions::from_mode(mode)),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(error),
    }
}

/// Makes reads of a file leave its time of access as it is. The kernel writes that time to the
/// journal of the file system, so whoever sends a page that is in memory would wait for a disk that
/// is stalled.
pub(crate) fn keep_atime(file: &File) {
    // Not when it is opened: where another user owns the file, that would fail.
    let Ok(flags) = rustix::fs::fcntl_getfl(file) else {
        return;
    };
    let _ = rustix::fs::fcntl_setfl(file, flags | OFlags::NOATIME);
}

/// Gives a file its final length, with its space allocated where the file system can do that.
fn allocate(file: &File, len: u64) -> io::Result<()> {
    match rustix::fs::fallocate(file, FallocateFlags::empty(), 0, len) {
        Ok(()) => Ok(()),
        Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NOSYS) => file.set_len(len),
        Err(error) => Err(error.into()),
    }
}
