//! A file system of which nothing changes: for looking at a zone that no server has.
//!
//! A zone writes when it is opened (its mark, summaries) and when it is closed. Here such writes
//! are taken and dropped: they are about what the next opening would find by itself. So whoever
//! looks leaves everything as it was, the signs of an unclean stop among it, and what was to be
//! verified after a crash still is.
//!
//! 1. No byte and no name on the disk changes, but the journal's if it [`Touch::Journal`]s.
//! 2. The lock is a real one: no server opens what is looked at.
//!
//! What is created anew cannot be had, so a zone cannot be made through this.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use bytes::Bytes;

use super::io::{DirEntry, DiskIo, File, RealIo, keep_atime};
use super::{JOURNAL_NAME, JOURNAL_NEW_NAME, SUPERBLOCK_NAME};

/// Files that may be changed through a file system that stays as it is otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Touch {
    /// Nothing.
    Nothing,
    /// The journal: purges.
    Journal,
}

/// The file system.
#[derive(Debug)]
pub(crate) struct StillIo {
    touch: Touch,
    /// Device and number of the files that may be written.
    journals: Mutex<HashSet<(u64, u64)>>,
}

impl StillIo {
    /// One on which this may change.
    pub(crate) fn new(touch: Touch) -> Self {
        Self {
            touch,
            journals: Mutex::default(),
        }
    }

    fn may_touch(&self, path: &Path) -> bool {
        let name = path.file_name().unwrap_or_default();
        self.touch == Touch::Journal && (name == JOURNAL_NAME || name == JOURNAL_NEW_NAME)
    }

    fn is_journal(&self, file: &File) -> io::Result<bool> {
        if self.touch == Touch::Nothing {
            return Ok(false);
        }
        let journals = self.journals.lock();
        let meta = file.metadata()?;
        let id = (meta.dev(), meta.ino());
        Ok(journals
            .unwrap_or_else(PoisonError::into_inner)
            .contains(&id))
    }

    fn note_journal(&self, file: &File) -> io::Result<()> {
        let meta = file.metadata()?;
        let journals = self.journals.lock();
        let mut journals = journals.unwrap_or_else(PoisonError::into_inner);
        journals.insert((meta.dev(), meta.ino()));
        Ok(())
    }
}

impl DiskIo for StillIo {
    fn make_dir(&self, dir: &Path) -> io::Result<()> {
        fs::metadata(dir).map(|_| ())
    }

    fn make_last_dir(&self, dir: &Path) -> io::Result<()> {
        self.make_dir(dir)
    }

    fn may_change(&self) -> bool {
        false
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<DirEntry>> {
        RealIo.list(dir)
    }

    fn create(&self, path: &Path, len: u64) -> io::Result<File> {
        if !self.may_touch(path) {
            return Err(io::ErrorKind::ReadOnlyFilesystem.into());
        }
        let file = RealIo.create(path, len)?;
        give_to_owner(path, &file);
        self.note_journal(&file)?;
        Ok(file)
    }

    fn open(&self, path: &Path) -> io::Result<File> {
        if !self.may_touch(path) {
            let file = File::open(path)?;
            keep_atime(&file);
            return Ok(file);
        }
        let file = RealIo.open(path)?;
        self.note_journal(&file)?;
        Ok(file)
    }

    fn lock(&self, file: &File) -> io::Result<bool> {
        RealIo.lock(file)
    }

    fn read_at(&self, file: &File, buf: &mut [u8], offset: u64) -> io::Result<()> {
        RealIo.read_at(file, buf, offset)
    }

    fn write_at(&self, file: &File, bufs: &[Bytes], offset: u64) -> io::Result<()> {
        if self.is_journal(file)? {
            RealIo.write_at(file, bufs, offset)
        } else {
            Ok(())
        }
    }

    fn sync(&self, file: &File) -> io::Result<()> {
        if self.is_journal(file)? {
            RealIo.sync(file)
        } else {
            Ok(())
        }
    }

    fn unlink(&self, path: &Path) -> io::Result<()> {
        if self.may_touch(path) {
            RealIo.unlink(path)
        } else {
            Ok(())
        }
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        if self.may_touch(from) {
            return RealIo.rename(from, to);
        }
        // Without its superblock a zone is not known at all.
        if from.file_name().is_some_and(|name| name == SUPERBLOCK_NAME) {
            Err(io::ErrorKind::InvalidData.into())
        } else {
            Ok(())
        }
    }

    fn sync_all(&self, _: &Path) -> io::Result<()> {
        Ok(())
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        match self.touch {
            Touch::Journal => RealIo.sync_dir(dir),
            Touch::Nothing => Ok(()),
        }
    }

    fn available(&self, dir: &Path) -> io::Result<u64> {
        RealIo.available(dir)
    }

    fn random(&self) -> [u8; 16] {
        RealIo.random()
    }
}

/// A file that root makes in somebody's folder is to be that somebody's.
fn give_to_owner(path: &Path, file: &File) {
    let Some(dir) = path.parent().and_then(|dir| fs::metadata(dir).ok()) else {
        return;
    };
    let is_foreign = file.metadata().is_ok_and(|meta| meta.uid() != dir.uid());
    if is_foreign {
        // Only root can; for others it was theirs already.
        let _ = std::os::unix::fs::fchown(file, Some(dir.uid()), Some(dir.gid()));
    }
}
