//! Opening the files that have names of segments, and telling ours from others.
//!
//! A file is a segment of the zone if its header says so: number, size and uuid. What the disk does
//! not give may be one (`load`), and is neither set aside nor removed.

use std::io;
use std::path::Path;
use std::sync::Arc;

use super::{Opening, StoreError};
use crate::disk::format::{Footer, SEGMENT_HEADER, SegmentHeader};
use crate::disk::open::SegmentFile;
use crate::disk::segment::MAX_SEGMENT;
use crate::lock::lock;
use crate::volume::Inner;

/// Threads that open segments; more are no use for a disk.
const PROBERS: usize = 4;
/// Bytes of a segment that are read at a time to see whether there is anything.
const BLANK_BLOCK: usize = 64 << 10;

/// A segment as it was found.
pub(crate) struct Probed {
    pub(crate) id: u32,
    pub(crate) size: u32,
    pub(crate) file: Arc<SegmentFile>,
    pub(crate) footer: Option<Footer>,
}

/// Result of looking at a segment.
pub(crate) enum Probe {
    Ours(Probed),
    /// The segment is not one of this zone, or nothing was ever in it.
    Strange(u32),
    /// The disk does not give the segment.
    Unread(u32, io::Error),
}

impl Inner {
    /// Opens all segments that are ours, some at a time.
    pub(crate) fn probe_segments(&self, segments: &[(u32, u64)]) -> Vec<Probe> {
        let probers = PROBERS.min(segments.len().div_ceil(16)).max(1);
        let share = segments.len().div_ceil(probers).max(1);
        let probe = |part: &[(u32, u64)]| -> Vec<Probe> {
            let one = |(id, len): &(u32, u64)| self.probe(*id, *len);
            part.iter().map(one).collect()
        };
        std::thread::scope(|scope| {
            let parts: Vec<_> = segments
                .chunks(share)
                .map(|part| (part, scope.spawn(move || probe(part))))
                .collect();
            // A thread that panicked has opened nothing; its segments are set aside.
            let strange = |part: &[(u32, u64)]| -> Vec<Probe> {
                part.iter().map(|(id, _)| Probe::Strange(*id)).collect()
            };
            parts
                .into_iter()
                .flat_map(|(part, probed)| probed.join().unwrap_or_else(|_| strange(part)))
                .collect()
        })
    }

    /// Opens a segment, and sees whether it has a summary.
    pub(crate) fn probe(&self, id: u32, len: u64) -> Probe {
        match self.probe_segment(id, len) {
            Ok(Some(probed)) => Probe::Ours(probed),
            Ok(None) => Probe::Strange(id),
            Err(error) => match error.kind() {
                io::ErrorKind::NotFound
                | io::ErrorKind::PermissionDenied
                | io::ErrorKind::UnexpectedEof => Probe::Strange(id),
                _ => Probe::Unread(id, error),
            },
        }
    }

    fn probe_segment(&self, id: u32, len: u64) -> io::Result<Option<Probed>> {
        let (path, io) = (self.disk.segment_path(id), &self.disk.io);
        let file = self
            .disk
            .readers
            .home()
            .open_files
            .with_room(|| io.open(&path))?;
        let header = || {
            let mut block = [0; SEGMENT_HEADER as usize];
            io.read_at(&file, &mut block, 0)?;
            let header = SegmentHeader::decode(&block, &self.disk.uuid, self.disk.seed);
            io::Result::Ok(header)
        };
        let mut found = header()?;
        if found.as_ref().is_some_and(|header| header.rows == 0) && self.loading.was_open() {
            // INVARIANT 7 of `loss`.
            io.forget(&file, 0..len);
            found = header()?;
        }
        let is_fit = |header: &SegmentHeader| {
            let size = header.size;
            header.segment == id && u64::from(size) == len && size <= MAX_SEGMENT
        };
        let Some(SegmentHeader { size, .. }) = found.filter(is_fit) else {
            return Ok(None);
        };
        let file = SegmentFile::found(id, file, &self.disk.readers);
        // Without a footer that can be read it is scanned.
        let footer = self.disk.read_footer(id, &file, size).unwrap_or_default();
        Ok(Some(Probed {
            id,
            size,
            file,
            footer,
        }))
    }

    /// Puts a segment aside that could not be loaded, or removes it if nothing was ever in it.
    pub(super) fn put_away(&self, opening: &Opening, id: u32) -> Result<(), StoreError> {
        let path = self.disk.segment_path(id);
        let name = crate::disk::segment_name(id);
        let len = opening
            .list()?
            .iter()
            .find(|entry| *entry.name == *name)
            .map_or(0, |e| e.len);
        if self.is_blank(&path, len) {
            let removed = self.disk.io.unlink(&path);
            return removed.map_err(|error| StoreError::io("remove", &path, error));
        }
        let to = opening.set_aside(&name)?;
        let mut log = lock(&self.disk.log);
        log.file_bytes += len;
        log.set_aside.push((to, len));
        Ok(())
    }

    /// True if the process ended between creating the file of a segment and the end of writing its
    /// header: what comes behind that is nothing.
    fn is_blank(&self, path: &Path, len: u64) -> bool {
        let io = &self.disk.io;
        let Ok(file) = io.open(path) else {
            return false;
        };
        let mut header = [0; SEGMENT_HEADER as usize];
        match io.read_at(&file, &mut header, 0) {
            Ok(()) if header.iter().all(|byte| *byte == 0) => return true,
            Ok(()) => {}
            Err(error) => return error.kind() == io::ErrorKind::UnexpectedEof,
        }
        if len > u64::from(MAX_SEGMENT) {
            return false;
        }
        let mut block = vec![0; BLANK_BLOCK];
        let mut at = u64::from(SEGMENT_HEADER);
        while at < len {
            let size = (len - at).min(BLANK_BLOCK as u64);
            let Some(part) = block.get_mut(..size as usize) else {
                return false;
            };
            if io.read_at(&file, part, at).is_err() || part.iter().any(|byte| *byte != 0) {
                return false;
            }
            at += size;
        }
        true
    }
}
