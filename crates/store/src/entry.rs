//! An entry as its readers have it: head, body length, and regions to send the body from.
//!
//! 1. While an [`Entry`] or a [`Region`] lives, the bytes it refers to are neither overwritten nor
//!    given to anyone else, whatever happens to the entry in the index.
//! 2. A region of a slice whose checksum is in doubt is not ready before it was compared.
//!
//! An entry does not change: a new head makes a new entry. What a reader makes of the head can be
//! kept with an entry of the memory tier ([`Reading`]), and goes with it.

use std::any::Any;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use bytes::Bytes;

use crate::disk::format::SliceRef;
use crate::disk::open::SegmentFile;
use crate::disk::ready::{Doubt, HeldFile};
use crate::disk::segment::Place;
use crate::fill::Fill;
use crate::key::Key;
use crate::volume::Inner;

/// Bytes that an entry in the memory tier takes besides its parts: at most five allocations of 16
/// bytes more than was asked for, 24 bytes for the count of the record's holders, 16 for that of
/// the entry's, a row of a map that has just grown (94), its name in queues that have (80), and its
/// name among those of entries that left (16).
const MEMORY_OVERHEAD: usize = 310;

/// Value that a reader made of an entry's head, whatever that is.
pub type Reading = Arc<dyn Any + Send + Sync>;

/// A stretch of a body.
#[derive(Clone, Debug)]
pub enum Region {
    /// Bytes in memory.
    Memory(Bytes),
    /// Bytes of a file, for `sendfile` or `pread`.
    File {
        /// File of the region; holding it keeps the bytes where they are. Ask it whether they are
        /// ready.
        file: HeldFile,
        /// First byte.
        offset: u64,
        /// Number of bytes, at least one.
        len: u64,
    },
}

impl Region {
    /// Number of bytes in the region.
    pub fn len(&self) -> u64 {
        match self {
            Self::Memory(bytes) => bytes.len() as u64,
            Self::File { len, .. } => *len,
        }
    }

    /// True if the region has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A part of a body with its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Slice {
    /// First byte, in the body.
    pub(crate) start: u64,
    /// Segment that holds the slice.
    pub(crate) segment: u32,
    /// First byte, in the segment's file.
    pub(crate) offset: u32,
    /// Number of bytes in the slice.
    pub(crate) len: u32,
    /// Checksum of the slice's bytes.
    pub(crate) checksum: u64,
}

impl Slice {
    /// The slices of a table, with their positions in the body.
    pub(crate) fn from_table(table: &[SliceRef]) -> Box<[Self]> {
        let mut start = 0;
        let locate = |row: &SliceRef| {
            let slice = Self {
                start,
                segment: row.segment,
                offset: row.offset,
                len: row.len,
                checksum: row.checksum,
            };
            start += u64::from(row.len);
            slice
        };
        table.iter().map(locate).collect()
    }

    /// Range of the slice in the segment's file.
    pub(crate) fn stretch(&self) -> Range<u64> {
        let start = u64::from(self.offset);
        start..start + u64::from(self.len)
    }

    /// The slice as it stands in a table.
    pub(crate) fn to_ref(self) -> SliceRef {
        SliceRef {
            segment: self.segment,
            offset: self.offset,
            len: self.len,
            checksum: self.checksum,
        }
    }
}

/// Treatment of slices whose checksum is in doubt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Doubts {
    /// The checksums are compared at once.
    Settle,
    /// The checksums are compared before the slices' bytes are ready.
    Leave,
}

/// Body of an entry, by where it is.
#[derive(Debug)]
pub(crate) enum Body {
    /// The body is in memory, from the same record as the head.
    Inline(Bytes),
    /// The body is in segments.
    Sliced(Sliced),
}

/// A body in segments.
#[derive(Debug)]
pub(crate) struct Sliced {
    /// Slices of the body, in order.
    pub(crate) slices: Box<[Slice]>,
    /// The segments that hold them, each once, ascending.
    pub(crate) segments: Box<[u32]>,
    /// One flag for each slice, set once its checksum was compared; `None` if none is in doubt.
    pub(crate) checked: Option<Box<[AtomicBool]>>,
    /// Slices of the body with neighbours joined, as they are sent; empty if some are in doubt.
    runs: Box<[Run]>,
}

/// Slices that stand one behind the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Run {
    /// First byte, in the body.
    start: u64,
    /// Offset of the first byte behind the run.
    end: u64,
    /// Segment that holds the run.
    segment: u32,
    /// First byte, in the segment's file.
    offset: u32,
}

impl Run {
    /// Neighbours among slices as one.
    fn of(slices: &[Slice]) -> Box<[Self]> {
        let mut runs: Vec<Self> = Vec::new();
        for slice in slices {
            let end = slice.start + u64::from(slice.len);
            match runs.last_mut() {
                Some(last) if last.is_before(slice) => last.end = end,
                _ => runs.push(Self {
                    start: slice.start,
                    end,
                    segment: slice.segment,
                    offset: slice.offset,
                }),
            }
        }
        runs.into()
    }

    fn is_before(&self, slice: &Slice) -> bool {
        let next = u64::from(self.offset) + (self.end - self.start);
        let is_there = self.segment == slice.segment && next == u64::from(slice.offset);
        is_there && self.end == slice.start
    }
}

impl Sliced {
    /// A body of these slices; with a flag for each if they are in doubt.
    pub(crate) fn new(slices: Box<[Slice]>, doubt: Option<Box<[AtomicBool]>>) -> Self {
        Self {
            segments: segments_of(&slices),
            runs: match doubt {
                None => Run::of(&slices),
                Some(_) => Box::default(),
            },
            slices,
            checked: doubt,
        }
    }

    /// Notes that all slices were compared.
    pub(crate) fn settle(&mut self) {
        self.checked = None;
        self.runs = Run::of(&self.slices);
    }

    /// True if a slice can be used without a look at its checksum.
    fn is_settled(&self, index: usize) -> bool {
        let Some(checked) = &self.checked else {
            return true;
        };
        let flag = checked.get(index);
        flag.is_some_and(|flag| flag.load(Ordering::Acquire))
    }
}

/// Content of a record, without pins: this is what the memory tier keeps.
#[derive(Debug)]
pub(crate) struct Stored {
    pub(crate) key: Key,
    pub(crate) place: Place,
    pub(crate) head: Bytes,
    pub(crate) body: Body,
    pub(crate) len: u64,
    pub(crate) created_ms: u64,
    /// Value that is kept for readers; its bytes were counted by the memory tier.
    pub(crate) reading: OnceLock<Reading>,
}

impl Stored {
    /// An entry whose body stands in its record.
    pub(crate) fn inline(
        key: Key,
        place: Place,
        head: Bytes,
        body: Bytes,
        created_ms: u64,
    ) -> Self {
        Self {
            key,
            place,
            head,
            len: body.len() as u64,
            body: Body::Inline(body),
            created_ms,
            reading: OnceLock::new(),
        }
    }

    /// Bytes of memory that the entry takes in the memory tier, everything included.
    pub(crate) fn memory(&self) -> u64 {
        let table = match &self.body {
            Body::Inline(_) => 0,
            Body::Sliced(sliced) => {
                let runs = size_of_val(&*sliced.runs);
                let slices = sliced.slices.len() * (size_of::<Slice>() + 1);
                slices + sliced.segments.len() * 4 + runs
            }
        };
        // Head and body keep the whole record.
        let record = u64::from(self.place.size);
        record + (MEMORY_OVERHEAD + size_of::<Self>() + table) as u64
    }

    /// True if the disk is known not to give some of the body.
    pub(crate) fn has_gaps(&self, files: &[(u32, Arc<SegmentFile>)]) -> bool {
        let Body::Sliced(sliced) = &self.body else {
            return false;
        };
        let has_gap = |(id, file): &(u32, Arc<SegmentFile>)| {
            let slices = sliced.slices.iter().filter(|slice| slice.segment == *id);
            file.has_gaps() && file.has_gap_in(slices.map(Slice::stretch))
        };
        files.iter().any(has_gap)
    }

    /// The segments that hold its body, if they are not the record's own bytes.
    pub(crate) fn segments(&self) -> &[u32] {
        match &self.body {
            Body::Inline(_) => &[],
            Body::Sliced(sliced) => &sliced.segments,
        }
    }
}

/// The segments of some slices, each once, ascending.
pub(crate) fn segments_of(slices: &[Slice]) -> Box<[u32]> {
    let mut segments: Vec<u32> = slices.iter().map(|slice| slice.segment).collect();
    segments.sort_unstable();
    segments.dedup();
    segments.into()
}

/// Flags for slices of which none was compared with its checksum.
pub(crate) fn unchecked(count: usize) -> Box<[AtomicBool]> {
    (0..count).map(|_| AtomicBool::new(false)).collect()
}

/// Files that an entry keeps.
#[derive(Clone, Debug)]
pub(crate) enum Pins {
    /// The body is in memory, or a fill holds the files.
    None,
    /// The usual case: one segment.
    One(u32, Arc<SegmentFile>),
    /// Several segments, ascending.
    Many(Arc<[(u32, Arc<SegmentFile>)]>),
}

impl Pins {
    /// Pins for files, ascending by segment.
    pub(crate) fn new(mut files: Vec<(u32, Arc<SegmentFile>)>) -> Self {
        match files.len() {
            0 => Self::None,
            1 => files
                .pop()
                .map_or(Self::None, |(id, file)| Self::One(id, file)),
            _ => Self::Many(files.into()),
        }
    }

    fn file(&self, segment: u32) -> Option<&Arc<SegmentFile>> {
        match self {
            Self::None => None,
            Self::One(id, file) => (*id == segment).then_some(file),
            Self::Many(files) => {
                let found = files.binary_search_by_key(&segment, |(id, _)| *id).ok()?;
                files.get(found).map(|(_, file)| file)
            }
        }
    }
}

/// Regions in order. Most bodies are one, which needs no list.
#[derive(Default)]
struct Regions {
    first: Option<Region>,
    more: Vec<Region>,
}

impl Regions {
    fn push(&mut self, region: Region) {
        match &self.first {
            None => self.first = Some(region),
            Some(_) => self.more.push(region),
        }
    }

    fn into_regions(self) -> impl Iterator<Item = Region> + use<> {
        self.first.into_iter().chain(self.more)
    }
}

impl From<Vec<Region>> for Regions {
    fn from(more: Vec<Region>) -> Self {
        Self { first: None, more }
    }
}

/// A stored response. Cheap to clone; keeps its body readable while it lives.
#[derive(Clone)]
pub struct Entry {
    pub(crate) stored: Arc<Stored>,
    pub(crate) pins: Pins,
    /// The fill that the entry came from, while its last bytes may not be written yet.
    pub(crate) fill: Option<Arc<Fill>>,
    /// Set if slices may have to be compared with their checksums.
    pub(crate) zone: Weak<Inner>,
    /// Serial of the possession of a directory that the entry is from.
    pub(crate) origin: u64,
}

impl Entry {
    /// Key that the entry was stored under.
    pub fn key(&self) -> &Key {
        &self.stored.key
    }

    /// Head of the entry, as it was given to the writer.
    pub fn head(&self) -> &Bytes {
        &self.stored.head
    }

    /// Value that [`crate::Zone::keep_reading`] kept of the entry's head.
    pub fn reading(&self) -> Option<&Reading> {
        self.stored.reading.get()
    }

    /// True if `other` is the same entry, and not another of the same key.
    pub fn is(&self, other: &Self) -> bool {
        self.stored.key == other.stored.key && self.stored.place == other.stored.place
    }

    /// Length of the body.
    pub fn len(&self) -> u64 {
        self.stored.len
    }

    /// True if the body has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Time when the entry was finished, milliseconds since 1970. A new head does not change it.
    pub fn created_ms(&self) -> u64 {
        self.stored.created_ms
    }

    /// The whole body, if it is in memory as one piece.
    pub fn body_in_memory(&self) -> Option<&Bytes> {
        match &self.stored.body {
            Body::Inline(bytes) => Some(bytes),
            Body::Sliced(_) => None,
        }
    }

    /// The bytes of `range`, cut at the end of the body, in order; fewer if some were lost.
    ///
    /// Adjacent slices come as one region. After an unclean stop the slices of a large body are
    /// compared with their checksums here, which waits for the disk; if one is corrupt, the regions
    /// end before it and the entry is gone from the zone, so a caller that got fewer bytes than it
    /// asked for must treat the body as truncated.
    pub fn regions(&self, range: Range<u64>) -> impl Iterator<Item = Region> + use<> {
        let regions = self.collect_regions(range, Doubts::Settle).into_regions();
        regions.take_while(|region| match region {
            Region::Memory(_) => true,
            Region::File { file, .. } => !file.is_lost(),
        })
    }

    /// Regions like those of [`Entry::regions`], without waiting for the disk: the bytes of a
    /// region in a file may be used once it says that they are ready.
    pub fn regions_to_load(&self, range: Range<u64>) -> impl Iterator<Item = Region> + use<> {
        self.collect_regions(range, Doubts::Leave).into_regions()
    }

    fn collect_regions(&self, range: Range<u64>, doubts: Doubts) -> Regions {
        let range = range.start..range.end.min(self.stored.len);
        if range.is_empty() {
            return Regions::default();
        }
        if let Some(fill) = &self.fill {
            return Regions::from(fill.regions(range));
        }
        match &self.stored.body {
            // The range was cut at the length of the body, which is in memory.
            Body::Inline(bytes) => Regions {
                first: Some(Region::Memory(
                    bytes.slice(range.start as usize..range.end as usize),
                )),
                more: Vec::new(),
            },
            Body::Sliced(sliced) if sliced.checked.is_none() => self.run_regions(sliced, range),
            Body::Sliced(sliced) => Regions::from(self.slice_regions(sliced, range, doubts)),
        }
    }

    /// The regions of a body of which nothing is in doubt.
    fn run_regions(&self, sliced: &Sliced, range: Range<u64>) -> Regions {
        let mut regions = Regions::default();
        let mut position = range.start;
        let begun = sliced.runs.partition_point(|run| run.end <= position);
        for run in sliced.runs.get(begun..).unwrap_or_default() {
            let is_next = run.start <= position && position < range.end;
            let Some(file) = self.pins.file(run.segment).filter(|_| is_next) else {
                break;
            };
            let end = run.end.min(range.end);
            regions.push(Region::File {
                file: HeldFile::new(file, None),
                offset: u64::from(run.offset) + (position - run.start),
                len: end - position,
            });
            position = end;
        }
        regions
    }

    fn slice_regions(&self, sliced: &Sliced, range: Range<u64>, doubts: Doubts) -> Vec<Region> {
        let mut regions = Vec::new();
        let mut position = range.start;
        let slices = &sliced.slices;
        let mut after = slices.partition_point(|slice| slice.start <= position);
        // The segment of the last region, if more of it may be added.
        let mut open = None;
        while position < range.end {
            while slices
                .get(after)
                .is_some_and(|slice| slice.start <= position)
            {
                after += 1;
            }
            let Some(index) = after.checked_sub(1) else {
                break;
            };
            let Some(slice) = slices.get(index) else {
                break;
            };
            let stop = range.end.min(slice.start + u64::from(slice.len));
            if stop <= position {
                break;
            }
            let is_settled = sliced.is_settled(index);
            if is_settled && open == Some(slice.segment) {
                let start = u64::from(slice.offset) + (position - slice.start);
                if lengthen(&mut regions, start, stop - position) {
                    position = stop;
                    continue;
                }
            }
            let Some(file) = self.pins.file(slice.segment) else {
                break;
            };
            open = is_settled.then_some(slice.segment);
            let doubt = (!is_settled).then(|| self.doubt(index));
            if let Some(doubt) = doubt.as_ref().filter(|_| doubts == Doubts::Settle)
                && doubt.settle(file).is_err()
            {
                break;
            }
            let file = HeldFile::new(file, doubt);
            file_region(&mut regions, file, slice, position..stop);
            position = stop;
        }
        regions
    }

    /// INVARIANT 2: what there is to compare before a slice is used.
    fn doubt(&self, index: usize) -> Arc<Doubt> {
        Arc::new(Doubt {
            stored: Arc::clone(&self.stored),
            index,
            zone: Weak::clone(&self.zone),
        })
    }
}

impl std::fmt::Debug for Entry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Entry")
            .field("key", &self.stored.key)
            .field("len", &self.stored.len)
            .field("place", &self.stored.place)
            .finish_non_exhaustive()
    }
}

/// Adds the part of `slice` that holds `range` of the body, to the last region if it continues it.
pub(crate) fn file_region(
    regions: &mut Vec<Region>,
    file: HeldFile,
    slice: &Slice,
    range: Range<u64>,
) {
    let start = u64::from(slice.offset) + (range.start - slice.start);
    let size = range.end - range.start;
    if let Some(Region::File { file: last, .. }) = regions.last()
        && last.continues(&file)
        && lengthen(regions, start, size)
    {
        return;
    }
    regions.push(Region::File {
        file,
        offset: start,
        len: size,
    });
}

/// Adds `size` bytes to the last region if they begin at its end, `start`, in the same file.
fn lengthen(regions: &mut [Region], start: u64, size: u64) -> bool {
    let Some(Region::File { offset, len, .. }) = regions.last_mut() else {
        return false;
    };
    let is_next = *offset + *len == start;
    if is_next {
        *len += size;
    }
    is_next
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Start, segment, offset and length.
    type Place = (u64, u32, u32, u32);
    /// Slices, and where runs of them begin and end.
    type Case = (&'static [Place], &'static [(u64, u64)]);

    #[test]
    fn neighbours_in_body_and_segment_are_one_run() {
        let slice = |(start, segment, offset, len): Place| Slice {
            start,
            segment,
            offset,
            len,
            checksum: 0,
        };
        let cases: [Case; 6] = [
            (&[], &[]),
            (&[(0, 1, 100, 10)], &[(0, 10)]),
            (&[(0, 1, 100, 10), (10, 1, 110, 5)], &[(0, 15)]),
            (&[(0, 1, 100, 10), (10, 1, 200, 5)], &[(0, 10), (10, 15)]),
            (&[(0, 1, 100, 10), (10, 2, 110, 5)], &[(0, 10), (10, 15)]),
            (
                &[(0, 1, 100, 10), (10, 1, 110, 5), (15, 1, 90, 10)],
                &[(0, 15), (15, 25)],
            ),
        ];
        for (slices, expected) in cases {
            let slices: Vec<Slice> = slices.iter().copied().map(slice).collect();
            let runs = Run::of(&slices);
            let found: Vec<_> = runs.iter().map(|run| (run.start, run.end)).collect();
            assert_eq!(found, expected);
        }
    }
}
