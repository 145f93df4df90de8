//! A block device that loses its power: a loop device over a file whose blocks this process has.
//!
//! ```text
//!   file system ──► loop device ──► file on FUSE ──► writes that no flush followed
//!                     (direct)                        └─ flush ──► what is durable
//! ```
//!
//! What the device was given since the last flush is in its cache: after a cut it has any of that,
//! each write whole, torn at a sector, or not at all. The device itself goes on meanwhile, so one
//! run gives as many cuts as are wanted.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex};

use crate::fuse_server::{
    Attributes, FLUSH, FSYNC, Fuse, GETATTR, LOOKUP, NO_CALL, NO_ENTRY, OPEN, OPENDIR, READ,
    RELEASE, ROOT, Request, SETATTR, STATFS, Serve, WRITE, run, text, unmount,
};
use crate::random::Random;

const SECTOR: usize = 512;
const IMAGE: u64 = 2;
const NAME: &[u8] = b"image\0";
/// Time for which the kernel believes what it was told, in seconds: nothing of it changes.
const BELIEVED: u64 = 3600;

/// Content of the device.
struct Blocks {
    durable: Vec<u8>,
    /// Bytes that reads are answered with: everything that the device was given.
    newest: Vec<u8>,
    /// Writes since the last flush, in order.
    cached: Vec<(usize, Vec<u8>)>,
    flushes: u64,
}

impl Blocks {
    fn write(&mut self, offset: usize, bytes: &[u8]) -> bool {
        let Some(place) = self.newest.get_mut(offset..offset + bytes.len()) else {
            return false;
        };
        place.copy_from_slice(bytes);
        self.cached.push((offset, bytes.to_vec()));
        true
    }

    fn flush(&mut self) {
        for (offset, bytes) in self.cached.drain(..) {
            self.durable[offset..offset + bytes.len()].copy_from_slice(&bytes);
        }
        self.flushes += 1;
    }

    /// Content of the device after the power failed now.
    fn cut(&self, random: &mut Random) -> Vec<u8> {
        let mut left = self.durable.clone();
        let fate = random.below(3);
        for (offset, bytes) in &self.cached {
            let kept = match (fate, random.below(4)) {
                // Some failures take all of the cache, some nothing.
                (0, _) => 0,
                (1, _) | (2, 0 | 1) => bytes.len(),
                (_, 2) => random.below((bytes.len() / SECTOR) as u64 + 1) as usize * SECTOR,
                _ => 0,
            };
            let kept = kept.min(bytes.len());
            left[*offset..*offset + kept].copy_from_slice(&bytes[..kept]);
        }
        left
    }
}

/// A file system on the device.
pub(crate) struct BlockDevice {
    blocks: Arc<Mutex<Blocks>>,
    /// Directory at which the device's file system is mounted.
    pub(crate) dir: PathBuf,
    home: PathBuf,
    device: String,
    /// The last to go: the device is a file there.
    _fuse: Fuse,
}

impl BlockDevice {
    /// One of `size` bytes with a new file system; none where that is not permitted.
    pub(crate) fn new(home: &Path, size: usize) -> Option<Self> {
        let (fuse, dir) = (home.join("fuse"), home.join("mounted"));
        for dir in [&fuse, &dir, &home.join("after")] {
            std::fs::create_dir(dir).expect("directory");
        }
        let blocks = Arc::new(Mutex::new(Blocks {
            durable: vec![0; size],
            newest: vec![0; size],
            cached: Vec::new(),
            flushes: 0,
        }));
        let mut device = Self {
            _fuse: Fuse::mount(&fuse, Arc::new(Image(Arc::clone(&blocks))))?,
            blocks,
            dir,
            home: home.to_path_buf(),
            device: String::new(),
        };
        let image = fuse.join("image");
        let words = ["--find", "--show", "--direct-io=on", text(&image)];
        let made = Command::new("losetup").args(words).output().ok()?;
        device.device = String::from_utf8(made.stdout).ok()?.trim().to_string();
        let is_made = made.status.success()
            && run("mkfs.ext4", &["-q", "-F", "-b", "4096", &device.device])
            && run("mount", &[&device.device, text(&device.dir)]);
        is_made.then_some(device)
    }

    /// Number of times that the device was told to make durable what it has.
    pub(crate) fn flushes(&self) -> u64 {
        self.blocks.lock().expect("whole").flushes
    }

    /// The power fails now: mounts what is left, beside the device that goes on, and lets it be
    /// looked at.
    pub(crate) fn cut(&self, random: &mut Random, look: impl FnOnce(&Path)) {
        let left = self.blocks.lock().expect("whole").cut(random);
        let (image, dir) = (self.home.join("left"), self.home.join("after"));
        std::fs::write(&image, left).expect("written");
        let after = After {
            is_mounted: run("mount", &["-o", "loop", text(&image), text(&dir)]),
            dir,
        };
        assert!(
            after.is_mounted,
            "the file system is no file system any more"
        );
        look(&after.dir);
    }
}

/// File system that is mounted after a cut, until it was looked at.
struct After {
    dir: PathBuf,
    is_mounted: bool,
}

impl Drop for After {
    fn drop(&mut self) {
        if self.is_mounted {
            unmount(&self.dir);
        }
    }
}

impl Drop for BlockDevice {
    fn drop(&mut self) {
        unmount(&self.dir);
        if !self.device.is_empty() {
            run("losetup", &["-d", &self.device]);
        }
    }
}

/// The file system with one file.
struct Image(Arc<Mutex<Blocks>>);

impl Serve for Image {
    fn answer(&self, request: &Request<'_>) -> Result<Vec<u8>, i32> {
        let mut blocks = self.0.lock().expect("whole");
        let size = blocks.newest.len();
        let (mode, len) = match request.node {
            ROOT if request.code != LOOKUP => (0o040_755, 0),
            _ => (0o100_600, size as u64),
        };
        let attributes = |node| Attributes {
            node,
            mode,
            size: len,
        };
        match request.code {
            LOOKUP if request.node == ROOT && request.body == NAME => {
                Ok(attributes(IMAGE).entry(BELIEVED))
            }
            LOOKUP => Err(NO_ENTRY),
            GETATTR | SETATTR => Ok(attributes(request.node).found(BELIEVED)),
            OPEN | OPENDIR => Ok(vec![0; 16]),
            READ => {
                let (offset, len) = request.stretch();
                let end = (offset + len).min(size);
                Ok(blocks.newest[offset.min(end)..end].to_vec())
            }
            WRITE => {
                let ((offset, len), bytes) = (request.stretch(), request.written());
                if blocks.write(offset, bytes) {
                    Ok([len as u32, 0].map(u32::to_le_bytes).concat())
                } else {
                    Err(NO_ENTRY)
                }
            }
            FSYNC => {
                blocks.flush();
                Ok(Vec::new())
            }
            STATFS => Ok(vec![0; 80]),
            RELEASE | FLUSH => Ok(Vec::new()),
            _ => Err(NO_CALL),
        }
    }
}
