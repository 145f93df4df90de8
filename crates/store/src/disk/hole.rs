//! Holes: what a disk does not give of a segment, and whether it is known what they hid.
//!
//! ```text
//!   segment   │ record │ slices of a body …  │ record │ …
//!   holes                   ████                ██        known: within a body, within a record
//!             █████                                       not known: anything may begin there
//! ```
//!
//! A segment without a summary is read as a whole. Where the disk answers with an error, it is read
//! block by block, and a block that is refused counts as zeros. Such a hole lies
//!
//! - in a slice of an entry whose record is found: the entry is found, its body is not given;
//! - in the payload of a record whose header is found: that entry is lost, and so is whatever it
//!   had replaced;
//! - anywhere else.
//!
//! 1. Only if each hole is of the first two kinds nothing unknown was lost, and the segment counts
//!    as read. Otherwise a removal may have stood there, and the answer is the disk's error.
//! 2. A disk that refuses many blocks is asked for no more of them.

use std::io;
use std::ops::Range;

use super::Disk;
use super::format::{ALIGN, RecordHeader, record_start};
use crate::disk::open::SegmentFile;
use crate::entry::Slice;

/// Bytes that are read at a time around a hole: the page of a page cache, and no smaller than a
/// sector.
const BLOCK: u32 = 4096;
/// Number of blocks that may be refused: each may take a disk seconds.
const MAX_REFUSED: usize = 16;

/// The holes of a segment, and what of it is known.
#[derive(Debug, Default)]
pub(crate) struct Holes {
    refused: Vec<Range<u32>>,
    known: Vec<Range<u32>>,
}

impl Holes {
    /// Counts a stretch as a hole that was read, and may not be what was written.
    pub(crate) fn doubt(&mut self, stretch: Range<u32>) {
        self.refused.push(stretch);
    }

    /// True if a stretch overlaps a hole.
    pub(crate) fn touch(&self, stretch: &Range<u32>) -> bool {
        let mut refused = self.refused.iter();
        refused.any(|hole| hole.start < stretch.end && stretch.start < hole.end)
    }

    /// Notes that nothing unknown begins in a record.
    pub(crate) fn know_record(&mut self, header: &RecordHeader) {
        if !self.refused.is_empty() {
            // What is left free behind it is no unknown either.
            let end = record_start(header.offset.saturating_add(header.size));
            self.known.push(header.offset..end);
        }
    }

    /// Notes the same of the slices of a body, as far as they are in the segment.
    pub(crate) fn know_slices(&mut self, segment: u32, slices: &[Slice]) {
        if self.refused.is_empty() {
            return;
        }
        let own = slices.iter().filter(|slice| slice.segment == segment);
        let stretch = |slice: &Slice| {
            let end = u64::from(slice.offset) + u64::from(slice.len);
            let end = end.next_multiple_of(u64::from(ALIGN));
            slice.offset..record_start(u32::try_from(end).unwrap_or(u32::MAX))
        };
        self.known.extend(own.map(stretch));
    }

    /// INVARIANT 1.
    pub(crate) fn are_known(&mut self) -> bool {
        self.known.sort_unstable_by_key(|known| known.start);
        let known = &self.known;
        self.refused.iter().all(|hole| {
            // Neighbours may cover it together.
            let covered = known.iter().fold(hole.start, |at, known| {
                if known.start <= at {
                    at.max(known.end)
                } else {
                    at
                }
            });
            covered >= hole.end
        })
    }
}

impl Disk {
    /// Reads a stretch of a segment whole, or around its holes.
    pub(crate) fn read_around(
        &self,
        file: &SegmentFile,
        start: u32,
        (bytes, holes): (&mut [u8], &mut Holes),
    ) -> io::Result<Option<io::Error>> {
        let error = match file.read_at(bytes, u64::from(start)) {
            Ok(()) => return Ok(None),
            Err(error) if is_of_a_sector(&error) => error,
            Err(error) => return Err(error),
        };
        let mut at = start;
        let mut rest = bytes;
        while !rest.is_empty() {
            let size = (BLOCK - at % BLOCK).min(u32::try_from(rest.len()).unwrap_or(BLOCK));
            let (block, after) = rest.split_at_mut(size as usize);
            match file.read_at(block, u64::from(at)) {
                Ok(()) => {}
                Err(error) if is_of_a_sector(&error) => {
                    block.fill(0);
                    holes.refused.push(at..at + size);
                }
                Err(error) => return Err(error),
            }
            // INVARIANT 2.
            if holes.refused.len() > MAX_REFUSED {
                return Err(error);
            }
            (at, rest) = (at + size, after);
        }
        Ok(Some(error))
    }
}

/// True if an error is about one sector, and not about the disk.
fn is_of_a_sector(error: &io::Error) -> bool {
    rustix::io::Errno::from_io_error(error) == Some(rustix::io::Errno::IO)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holes_are_known_where_all_of_them_is_covered() {
        let table: [(&[(u32, u32)], bool); 6] = [
            (&[], false),
            (&[(0, 4096)], false),
            (&[(0, 8192)], true),
            (&[(4096, 6000), (6000, 8192)], true),
            (&[(6000, 9000), (0, 6000)], true),
            (&[(0, 6000), (6016, 9000)], false),
        ];
        let range = |(start, end): &(u32, u32)| *start..*end;
        for (known, expected) in table {
            let mut holes = Holes {
                refused: [(4096, 8192)].iter().map(range).collect(),
                known: known.iter().map(range).collect(),
            };
            assert_eq!(holes.are_known(), expected, "{known:?}");
        }
    }
}
