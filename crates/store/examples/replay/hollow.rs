//! A disk without bodies: buffers of zeros are not written, and read back as the holes they leave.
//!
//! So the real store runs with bodies that take neither memory nor time, and everything else of it
//! (records, summaries, checksums) is real.

use std::fs::{File, OpenOptions};
use std::io;
use std::path::Path;

use bytes::Bytes;
use millpond_store::{DirEntry, DiskIo, RealIo};

/// Shorter buffers are written as they are.
const SHORT: usize = 4096;
static ZEROS: [u8; SHORT] = [0; SHORT];

fn are_zeros(buf: &[u8]) -> bool {
    buf.chunks(SHORT)
        .all(|part| ZEROS.get(..part.len()) == Some(part))
}

/// The disk.
pub(crate) struct HollowIo(pub(crate) RealIo);

impl DiskIo for HollowIo {
    fn create(&self, path: &Path, len: u64) -> io::Result<File> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .open(path)?;
        // Nothing is allocated: what is not written stays a hole.
        file.set_len(len)?;
        Ok(file)
    }

    fn write_at(&self, file: &File, bufs: &[Bytes], offset: u64) -> io::Result<()> {
        let mut at = offset;
        for buf in bufs {
            let is_hollow = buf.len() >= SHORT && are_zeros(buf);
            if !is_hollow {
                self.0.write_at(file, std::slice::from_ref(buf), at)?;
            }
            at += buf.len() as u64;
        }
        Ok(())
    }

    fn sync(&self, _: &File) -> io::Result<()> {
        Ok(())
    }

    fn sync_dir(&self, _: &Path) -> io::Result<()> {
        Ok(())
    }

    fn make_dir(&self, dir: &Path) -> io::Result<()> {
        self.0.make_dir(dir)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<DirEntry>> {
        self.0.list(dir)
    }

    fn open(&self, path: &Path) -> io::Result<File> {
        self.0.open(path)
    }

    fn lock(&self, file: &File) -> io::Result<bool> {
        self.0.lock(file)
    }

    fn read_at(&self, file: &File, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.0.read_at(file, buf, offset)
    }

    fn unlink(&self, path: &Path) -> io::Result<()> {
        self.0.unlink(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.0.rename(from, to)
    }

    fn available(&self, dir: &Path) -> io::Result<u64> {
        self.0.available(dir)
    }

    fn random(&self) -> [u8; 16] {
        self.0.random()
    }
}
