//! The log of one disk: which segments there are, where the next record goes, and what is pinned.
//!
//! ```text
//!   planned ─► created ─► closing ──► sealed ──► retired ──► unlinked
//!   \__ active: records    waits for   summary    still       space may
//!       are reserved       writes in   on disk    pinned      be used again
//!                          flight
//! ```
//!
//! 1. The bytes of all files, from creation to unlinking, are at most the limit. They are counted
//!    before a file is created and discounted after it is gone.
//! 2. Segments leave in the order in which they came. So a record that counts is never outlived by
//!    an older record of the same key, and a tombstone goes only when nothing is left for it.
//! 3. A segment is pinned while someone besides the table has its file. New pins are made under
//!    the lock of the table, so a segment taken out of the table gets no more of them.
//! 4. A reservation is open until its bytes were written; a segment with open reservations is
//!    neither sealed nor evicted.
//! 5. A segment is planned without waiting for the disk; its file is created, and what must go for
//!    it evicted, before the first write to it. Until then it counts nothing, and nobody reads it.
//!
//! It decides about space only; it reads and writes no records.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Weak};

use hashbrown::HashMap;

use super::format::{
    ALIGN, FOOTER, Kind, Row, SEGMENT_HEADER, SUPERBLOCK, encode_site, record_start, site_len,
};
use crate::admit::NotStored;
use crate::disk::LAST_SEGMENT;
use crate::disk::open::SegmentFile;
use crate::disk::rows::EncodedRows;
use crate::fill::Fill;
use crate::index::{Dependent, Dependents};
use crate::live::Lost;
use crate::site::{Account, Claim, SiteBook};

/// Bytes that a directory takes of its file system while it holds few names.
const DIRECTORY: u64 = 4096;
/// Bytes that each name adds to a directory: the name is 24 bytes long, and blocks of a large
/// directory are half full.
const NAME: u64 = 64;
/// Bytes that a file may need beside its data, for the list of its extents: preallocated space that
/// is written here and there falls into many.
const FILE_OVERHEAD: u64 = 4096;
/// Files up to this have their list of extents in the inode: one for each block, at most four.
const PLAIN_FILE: u32 = 4 * 4096;
/// The smallest piece of a body that is worth a slice of its own at the end of a segment.
const SMALLEST_EXTENT: u32 = 4096;

/// At most one byte in so many of the limit waits for readers of segments that have left. A share
/// that a busy zone needs (what is stored in the time that a download takes), and that may be lost
/// when all of them stall.
const HELD_SHARE: u64 = 4;

const MIB: u64 = 1 << 20;
/// The longest segment. One is read into memory to be scanned, and what is in use there is written
/// again in one go; both is arbitrary from here on.
pub(crate) const MAX_SEGMENT: u32 = 256 << 20;
/// The longest one that is chosen before there are as many as `MANY`: it is written and removed as
/// fast as any.
const USUAL_SEGMENT: u64 = 64 * MIB;
/// Beyond so many, segments of larger zones are longer instead of more: each costs a file, two
/// reads at the start and some hundred bytes of memory. A zone of a terabyte has about so many.
const MANY: u64 = 4096;

/// Place of a record on the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) struct Place {
    /// Segment number, from 1.
    pub(crate) segment: u32,
    /// Offset from the beginning of the segment's file.
    pub(crate) offset: u32,
    /// Bytes up to the next record.
    pub(crate) size: u32,
}

/// Size of segments, and limit for the bytes of all files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    /// Bytes of a new segment; 0 if not even one fits.
    pub(crate) segment_size: u32,
    /// Bytes of all files and the directory.
    pub(crate) limit: Option<u64>,
}

impl Plan {
    /// Chooses the segment size for a limit, or checks the configured one.
    pub(crate) fn new(limit: Option<u64>, wanted: Option<u64>) -> Self {
        let usable = limit.map_or(u64::MAX, |limit| {
            limit.saturating_sub(DIRECTORY + SUPERBLOCK)
        });
        let automatic = match limit {
            None => USUAL_SEGMENT,
            Some(limit) if limit >= 64 * MIB => {
                let usual = (limit / 64).clamp(4 * MIB, USUAL_SEGMENT);
                usual.max(limit / MANY)
            }
            // Below 64 MiB sixteen segments; at least 16 KiB, so that ordinary heads fit.
            Some(limit) => (limit / 16).max(16 << 10),
        };
        let size = wanted.unwrap_or(automatic).clamp(4096, MAX_SEGMENT.into());
        // With fewer than four segments, half of the zone would be lost at each turn.
        let size = if usable / size < 4 {
            (usable / 4).max(4096)
        } else {
            size
        };
        let size = (size.min(MAX_SEGMENT.into()) / 4096 * 4096) as u32;
        Self {
            segment_size: if file_cost(size) <= usable { size } else { 0 },
            limit,
        }
    }

    /// Segments that fit the limit; `None` without one.
    pub(crate) fn most_segments(&self) -> Option<u64> {
        let usable = self.limit?.saturating_sub(DIRECTORY + SUPERBLOCK);
        let cost = file_cost(self.segment_size);
        Some(if self.segment_size == 0 {
            0
        } else {
            usable / cost
        })
    }

    /// True if the zone may have files at all.
    pub(crate) fn has_superblock(&self) -> bool {
        self.limit
            .is_none_or(|limit| limit >= DIRECTORY + SUPERBLOCK)
    }

    /// Bytes of a body that could be stored if nothing else were.
    pub(crate) fn capacity(&self) -> u64 {
        let Some(count) = self.most_segments() else {
            return u64::MAX;
        };
        if count == 0 {
            return 0;
        }
        count * u64::from(self.segment_size - SEGMENT_HEADER - FOOTER)
    }
}

/// Number of segments that a zone of one disk may have by its limit; `None`: as many as the disk
/// holds.
pub fn most_segments(max_size: Option<u64>) -> Option<u64> {
    Plan::new(max_size, None).most_segments()
}

/// Bytes that a segment of `size` bytes counts against the limit.
pub(crate) fn file_cost(size: u32) -> u64 {
    let overhead = if size > PLAIN_FILE { FILE_OVERHEAD } else { 0 };
    u64::from(size) + overhead + NAME
}

/// The room that a segment must have for the next piece of a body that needs `wanted` bytes.
pub(crate) fn least_extent(wanted: u32) -> u32 {
    wanted.min(SMALLEST_EXTENT).next_multiple_of(ALIGN)
}

/// State of loading a segment's rows into the index.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Load {
    /// Nobody has begun to read the rows. Bytes of its summary, if it seems to have one.
    Waiting(Option<u32>),
    /// The rows are being read.
    Running,
    /// The disk does not give the rows. Nobody knows what is in the segment, so it is neither
    /// written to nor given a summary; nor is anything used that came before it.
    Unread,
    /// The rows are in the index, or there were none.
    #[default]
    Loaded,
}

impl Load {
    /// True if nobody has begun to read the rows.
    pub(crate) fn is_waiting(self) -> bool {
        matches!(self, Self::Waiting(_))
    }
}

/// State of one segment.
#[derive(Debug, Default)]
pub(crate) struct Segment {
    /// Length of the segment's file.
    pub(crate) size: u32,
    /// Offset for the next record.
    pub(crate) tail: u32,
    /// Summary rows of the segment, until they are on the disk and synced.
    pub(crate) rows: EncodedRows,
    /// Sites that the accounts in the rows mean.
    pub(crate) sites: SegmentSites,
    /// State of loading the rows into the index.
    pub(crate) load: Load,
    /// True if there is no file yet.
    pub(crate) is_planned: bool,
    /// True if the rows are on the disk.
    pub(crate) is_sealed: bool,
    /// True if a write to the segment went wrong: the zone was not closed in order.
    pub(crate) is_damaged: bool,
    /// True if a sync of the segment failed: nobody knows what stands there (`loss`).
    pub(crate) is_lost: bool,
    /// True if the rows have no room: the segment is scanned at each start.
    pub(crate) is_unsealable: bool,
    /// True if the segment was written to since it was last synced.
    pub(crate) is_dirty: bool,
    /// Reservations that were not written yet.
    pub(crate) open: u32,
    /// Unfinished fills with slices here.
    pub(crate) fills: Vec<Weak<Fill>>,
    /// Entries in other segments that need slices of this one.
    pub(crate) dependents: Dependents,
}

impl Segment {
    /// An empty segment.
    pub(crate) fn new(size: u32) -> Self {
        Self {
            size,
            tail: SEGMENT_HEADER,
            ..Self::default()
        }
    }

    /// True if the summary says all that there is, and no write to the segment went wrong.
    pub(crate) fn is_whole(&self) -> bool {
        !self.is_damaged && !self.is_lost && !self.is_unsealable && self.open == 0
    }

    /// Bytes between the tail and the summary that the segment would have now.
    fn room(&self) -> u32 {
        self.room_from(self.tail)
    }

    /// Bytes that are left for a record and its rows.
    fn record_room(&self) -> u32 {
        self.room_from(record_start(self.tail))
    }

    fn room_from(&self, start: u32) -> u32 {
        let summary = FOOTER + self.rows.len() + self.sites.len();
        self.size.saturating_sub(summary).saturating_sub(start)
    }
}

/// The sites of a segment's rows, as its summary will name them.
#[derive(Debug, Default)]
pub(crate) struct SegmentSites {
    table: Vec<u8>,
    numbers: HashMap<u16, Claim>,
}

impl SegmentSites {
    /// The encoded table.
    pub(crate) fn table(&self) -> &[u8] {
        &self.table
    }

    /// Length of the table in bytes.
    pub(crate) fn len(&self) -> u32 {
        // A site is once in it, so it has at most a mebibyte.
        self.table.len() as u32
    }

    /// Names the site of an account, if it has one.
    pub(crate) fn note(&mut self, account: Account, book: &Arc<SiteBook>) {
        let number = account.number();
        if number != 0 && !self.numbers.contains_key(&number) {
            encode_site(&mut self.table, number, &book.name(number));
            self.numbers.insert(number, book.claim_number(account));
        }
    }

    /// Bytes that [`SegmentSites::note`] would add for all rows.
    fn missing(&self, rows: &[Row], book: &SiteBook) -> u32 {
        // Records have a row each, but for tombstones, which are nobody's.
        let accounts = rows.iter().map(|row| row.account);
        let missing = accounts.filter(|it| !self.numbers.contains_key(&it.number()));
        missing.map(|account| site_room(account, book)).sum()
    }
}

/// Bytes that an account may take in the table of a segment.
pub(crate) fn site_room(account: Account, book: &SiteBook) -> u32 {
    match account.number() {
        0 => 0,
        number => site_len(&book.name(number)),
    }
}

/// A segment that left the table and is still read by someone.
#[derive(Debug)]
pub(crate) struct Retired {
    /// Number of the segment.
    pub(crate) segment: u32,
    /// File of the segment; the only holder if nobody reads it any more.
    pub(crate) file: Arc<SegmentFile>,
    /// The file's name now: that of a segment only if the disk does not let it be changed.
    pub(crate) path: PathBuf,
    /// Bytes that the file counts against the limit.
    pub(crate) cost: u64,
}

impl Retired {
    /// True if nobody reads the file any more: the table has no such file, so a count of one stays
    /// one.
    pub(crate) fn is_idle(&self) -> bool {
        Arc::strong_count(&self.file) == 1
    }
}

/// Segments that are to go when what was written before is on the device: the copies of what was in
/// use there.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Turned {
    /// The number of the oldest one.
    pub(crate) segment: u32,
    /// Number of the last segment; nothing lives in those behind the first.
    pub(crate) through: u32,
    /// Order of the sync, which says whether what it is about is in the kernel.
    pub(crate) order: u64,
}

/// The reason why a reservation was not made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// The active segment has no room for the record; another one may.
    NoRoom,
    /// A segment that the entry needs is gone.
    Gone,
}

/// The limit has no room for a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NoRoom;

/// The allocator of one disk. Kept under one lock.
#[derive(Debug)]
pub(crate) struct Log {
    /// Limits.
    pub(crate) plan: Plan,
    /// Sites of the entries.
    book: Arc<SiteBook>,
    /// The segment that takes reservations; 0 if there is none.
    pub(crate) active: u32,
    /// Number of the next segment.
    pub(crate) next_segment: u32,
    /// Number of the segment that loading has come to, from the newest on: those from here on do
    /// not wait.
    pub(crate) loading_below: u32,
    /// A segment whose entries in use were written again, until those are synced.
    pub(crate) turned: Option<Turned>,
    /// All segments in the table, by age.
    pub(crate) segments: BTreeMap<u32, Segment>,
    /// Segments that were lost, and are listed still.
    pub(crate) lost: Vec<Lost>,
    /// True if the operator was told that there are no numbers left.
    pub(crate) has_told_end: bool,
    /// Segments that were evicted, whose files are still there.
    pub(crate) retired: Vec<Retired>,
    /// Files that were set aside, and what they count.
    pub(crate) set_aside: Vec<(PathBuf, u64)>,
    /// Bytes that the files of planned segments will count.
    pub(crate) planned_bytes: u64,
    /// The reason why the last file could not be created, until one can.
    pub(crate) refusal: Option<NotStored>,
    /// Bytes of all files.
    pub(crate) file_bytes: u64,
    /// Bytes that the journal and the file of uses count, which are part of `file_bytes`.
    pub(crate) journal_bytes: u64,
}

impl Log {
    /// A log without segments.
    pub(crate) fn new(plan: Plan, book: Arc<SiteBook>) -> Self {
        Self {
            plan,
            book,
            active: 0,
            next_segment: 1,
            loading_below: u32::MAX,
            turned: None,
            segments: BTreeMap::new(),
            lost: Vec::new(),
            has_told_end: false,
            retired: Vec::new(),
            set_aside: Vec::new(),
            planned_bytes: 0,
            refusal: None,
            file_bytes: if plan.has_superblock() { SUPERBLOCK } else { 0 },
            journal_bytes: 0,
        }
    }

    /// Reserves a record of `size` bytes and writes down its rows, whose offsets it fills in.
    pub(crate) fn reserve_record(&mut self, size: u32, rows: &mut [Row]) -> Result<Place, Refused> {
        let needs = rows.iter().flat_map(|row| &row.needs);
        if needs
            .clone()
            .any(|segment| !self.segments.contains_key(segment))
        {
            return Err(Refused::Gone);
        }
        let active = self.active;
        let segment = self.segments.get_mut(&active).ok_or(Refused::NoRoom)?;
        let rows_len: u32 = rows.iter().map(Row::encoded_len).sum();
        let rows_len = rows_len + segment.sites.missing(rows, &self.book);
        if u64::from(segment.record_room()) < u64::from(size) + u64::from(rows_len) {
            return Err(Refused::NoRoom);
        }
        let place = Place {
            segment: active,
            offset: record_start(segment.tail),
            size,
        };
        segment.tail = place.offset + size;
        segment.open += 1;
        for row in rows.iter_mut() {
            row.offset = place.offset;
            segment.rows.push(row);
            segment.sites.note(row.account, &self.book);
        }
        for row in rows.iter().filter(|row| row.kind == Kind::Entry) {
            self.note_needs(row, active);
        }
        Ok(place)
    }

    /// Notes that the entry of `row`, whose record is in `segment`, needs its slices' segments.
    pub(crate) fn note_needs(&mut self, row: &Row, segment: u32) {
        for needed in &row.needs {
            if let Some(needed) = self.segments.get_mut(needed) {
                let dependent = Dependent::new(&row.key, segment, row.offset);
                needed.dependents.add(dependent);
            }
        }
    }

    /// Reserves up to `wanted` bytes of body; the place's size is what was granted.
    pub(crate) fn reserve_extent(&mut self, wanted: u32) -> Option<Place> {
        let segment = self.segments.get_mut(&self.active)?;
        let room = segment.room() & !15;
        if room < least_extent(wanted) {
            return None;
        }
        let granted = wanted.min(room);
        let place = Place {
            segment: self.active,
            offset: segment.tail,
            size: granted,
        };
        // Records begin at multiples of 16, and `room` is one, so the rounded tail still fits.
        segment.tail += granted.next_multiple_of(16);
        segment.open += 1;
        Some(place)
    }

    /// Ends a reservation. True if the segment can be sealed now.
    pub(crate) fn end_reservation(&mut self, id: u32) -> bool {
        let active = self.active;
        let Some(segment) = self.segments.get_mut(&id) else {
            return false;
        };
        debug_assert!(segment.open > 0, "a reservation ended twice");
        segment.open = segment.open.saturating_sub(1);
        segment.is_dirty = true;
        id != active && segment.open == 0 && !segment.is_sealed
    }

    /// Gives space at the tail back that nobody refers to.
    pub(crate) fn give_back(&mut self, place: Place) {
        if let Some(segment) = self.segments.get_mut(&place.segment)
            && place.segment == self.active
            && segment.tail == place.offset + place.size.next_multiple_of(16)
        {
            segment.tail = place.offset;
        }
    }

    /// True if there is a number for another segment.
    pub(crate) fn has_numbers(&self) -> bool {
        self.next_segment <= LAST_SEGMENT
    }

    /// Begins a segment whose file is still to be created, and makes it the active one; none if
    /// there is no number for it.
    pub(crate) fn plan_segment(&mut self) -> Option<u32> {
        let (id, size) = (self.next_segment, self.plan.segment_size);
        if !self.has_numbers() {
            return None;
        }
        // The last number is below the highest that there is.
        self.next_segment = id + 1;
        self.planned_bytes += file_cost(size);
        let segment = Segment {
            is_planned: true,
            ..Segment::new(size)
        };
        self.segments.insert(id, segment);
        self.active = id;
        Some(id)
    }

    /// Counts the file of a planned segment, if there is room for it: its size. The segment stays
    /// planned until the file is there.
    pub(crate) fn charge_planned(&mut self, id: u32) -> Option<Result<u32, NoRoom>> {
        let segment = self.segments.get(&id).filter(|it| it.is_planned)?;
        let size = segment.size;
        Some(if self.charge(file_cost(size)) {
            Ok(size)
        } else {
            Err(NoRoom)
        })
    }

    /// Notes that the file of a planned segment is there.
    pub(crate) fn has_created(&mut self, id: u32) {
        self.refusal = None;
        if let Some(segment) = self.segments.get_mut(&id) {
            // Its header is to be synced, too.
            (segment.is_planned, segment.is_dirty) = (false, true);
            let cost = file_cost(segment.size);
            self.planned_bytes = self.planned_bytes.saturating_sub(cost);
        }
    }

    /// Takes a segment out of the table.
    pub(crate) fn remove(&mut self, id: u32) -> Option<Segment> {
        let segment = self.segments.remove(&id)?;
        if segment.is_planned {
            let cost = file_cost(segment.size);
            self.planned_bytes = self.planned_bytes.saturating_sub(cost);
        }
        if self.active == id {
            self.active = 0;
        }
        Some(segment)
    }

    /// Notes that a file cannot be created: until one can, no segment is planned.
    pub(crate) fn refuse(&mut self, id: u32, why: NotStored) {
        self.refusal = Some(why);
        if self.active == id {
            self.active = 0;
        }
    }

    /// Bytes that must go before the files of all planned segments and one more fit the limit.
    pub(crate) fn shortage(&self) -> u64 {
        let Some(limit) = self.plan.limit else {
            return 0;
        };
        let next = file_cost(self.plan.segment_size);
        (self.file_bytes + self.planned_bytes + DIRECTORY + next).saturating_sub(limit)
    }

    /// Stops reservations in the active segment. The number of a segment that can be sealed now.
    pub(crate) fn close_active(&mut self) -> Option<u32> {
        let id = std::mem::take(&mut self.active);
        let segment = self.segments.get(&id)?;
        (segment.open == 0 && !segment.is_sealed).then_some(id)
    }

    /// Leaves no room in the active segment, so that nobody goes on in it.
    pub(crate) fn fill_active(&mut self) {
        self.fill(self.active);
    }

    /// Leaves no room in a segment, also for the next owner.
    pub(crate) fn fill(&mut self, id: u32) {
        if let Some(segment) = self.segments.get_mut(&id) {
            segment.tail += segment.room() & !15;
        }
    }

    /// True if a record of `size` bytes with `rows_len` bytes of rows fits the active segment.
    pub(crate) fn has_room(&self, size: u32, rows_len: u32) -> bool {
        let active = self.segments.get(&self.active);
        active.is_some_and(|segment| {
            u64::from(segment.record_room()) >= u64::from(size) + u64::from(rows_len)
        })
    }

    /// Counts a new segment against the limit; false if it does not fit.
    pub(crate) fn charge(&mut self, cost: u64) -> bool {
        let fixed = DIRECTORY;
        let after = self.file_bytes + cost + fixed;
        if self.plan.limit.is_some_and(|limit| after > limit) {
            return false;
        }
        self.file_bytes += cost;
        true
    }

    /// Bytes of a body that could be stored if nothing else were.
    pub(crate) fn capacity(&self) -> u64 {
        let rest = |limit: u64| limit.saturating_sub(self.journal_bytes);
        let limit = self.plan.limit.map(rest);
        Plan { limit, ..self.plan }.capacity()
    }

    /// Counts a file that was there when the zone was opened and is not a segment.
    pub(crate) fn note_kept(&mut self, cost: u64) {
        self.file_bytes += cost;
        self.journal_bytes += cost;
    }

    /// Discounts such a file, or one that `make_file_room` counted.
    pub(crate) fn discharge_kept(&mut self, cost: u64) {
        self.discharge(cost);
        self.journal_bytes = self.journal_bytes.saturating_sub(cost);
    }

    /// Discounts a file that is gone.
    pub(crate) fn discharge(&mut self, cost: u64) {
        self.file_bytes = self.file_bytes.saturating_sub(cost);
    }

    /// Bytes of segments that have left and are still read.
    pub(crate) fn held(&self) -> u64 {
        let held = self.retired.iter().filter(|retired| !retired.is_idle());
        held.map(|retired| retired.cost).sum()
    }

    /// The most that may wait for readers when space is needed; at least a segment.
    pub(crate) fn most_held(&self) -> u64 {
        let share = self.plan.limit.unwrap_or(u64::MAX) / HELD_SHARE;
        share.max(file_cost(self.plan.segment_size))
    }

    /// Bytes above the limit.
    pub(crate) fn excess(&self) -> u64 {
        let limit = self.plan.limit.unwrap_or(u64::MAX);
        (self.file_bytes + DIRECTORY).saturating_sub(limit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::format::{RECORD_HEADER, SECTOR};
    use crate::key::Key;

    #[test]
    fn segment_size_follows_the_limit() {
        let table = [
            (None, None, 64 * MIB),
            (Some(0), None, 0),
            (Some(10_000), None, 0),
            (Some(12_288), None, 0),
            (Some(12_400), None, 4096),
            (Some(20_000), None, 4096),
            (Some(100 << 10), None, 16 << 10),
            (Some(MIB), None, 64 << 10),
            (Some(16 * MIB), None, MIB),
            (Some(64 * MIB), None, 4 * MIB),
            (Some(1024 * MIB), None, 16 * MIB),
            (Some(4 << 30), None, 64 * MIB),
            (Some(256 << 30), None, 64 * MIB),
            (Some(512 << 30), None, 128 * MIB),
            (Some(1 << 40), None, 256 * MIB),
            (Some(4 << 40), None, 256 * MIB),
            (Some(1 << 40), Some(MIB), MIB),
            (Some(MIB), Some(MIB), 255 << 10 & !4095),
        ];
        for (limit, wanted, expected) in table {
            let plan = Plan::new(limit, wanted);
            assert_eq!(
                u64::from(plan.segment_size),
                expected,
                "{limit:?} {wanted:?}"
            );
        }
    }

    fn log(size: u32) -> Log {
        let mut log = Log::new(Plan::new(None, None), Arc::default());
        log.segments.insert(1, Segment::new(size));
        log.active = 1;
        log
    }

    fn row(needs: &[u32]) -> Row {
        Row {
            kind: Kind::Entry,
            key: Key([1; 16]),
            offset: 0,
            size: 96,
            body_len: 0,
            is_sliced: !needs.is_empty(),
            account: Account::default(),
            needs: needs.to_vec(),
        }
    }

    #[test]
    fn records_never_reach_into_the_summary() {
        let mut log = log(4096);
        while log.reserve_record(96, &mut [row(&[])]).is_ok() {}
        let segment = &log.segments[&1];
        assert!(segment.tail + segment.rows.len() + FOOTER <= segment.size);
        assert!(log.reserve_extent(4096).is_none());
    }

    /// Whoever makes room asks the one and then takes the other.
    #[test]
    fn where_there_is_room_for_an_extent_it_is_reserved() {
        for rows in 0..3 {
            for wanted in 1..4200 {
                let mut log = log(4096);
                for _ in 0..rows {
                    log.reserve_record(96, &mut [row(&[])]).expect("room");
                }
                let has_room = log.has_room(least_extent(wanted), 0);
                let reserved = log.reserve_extent(wanted);
                assert_eq!(has_room, reserved.is_some(), "{wanted}");
            }
        }
    }

    #[test]
    fn header_of_a_record_lies_in_one_sector() {
        let mut log = log(1 << 20);
        for _ in 0..1_000 {
            let place = log.reserve_record(96, &mut [row(&[])]).expect("room");
            let end = place.offset + RECORD_HEADER - 1;
            assert_eq!(place.offset / SECTOR, end / SECTOR, "{place:?}");
            assert!(place.offset.is_multiple_of(ALIGN));
        }
        // Five of these fit a sector, and 32 bytes are left free behind them.
        assert!(log.segments[&1].tail <= (1 + 1_000 / 5) * SECTOR);
    }

    #[test]
    fn entry_whose_slices_are_gone_is_refused() {
        let mut log = log(4096);
        let refused = log.reserve_record(96, &mut [row(&[7])]);
        assert_eq!(refused, Err(Refused::Gone));
    }

    #[test]
    fn only_space_at_the_tail_is_given_back() {
        let mut log = log(1 << 20);
        let first = log.reserve_extent(5000).expect("room");
        let second = log.reserve_extent(5000).expect("room");
        log.give_back(first);
        assert_eq!(log.segments[&1].tail, second.offset + 5008);
        log.give_back(second);
        assert_eq!(log.segments[&1].tail, second.offset);
        log.give_back(first);
        assert_eq!(log.segments[&1].tail, first.offset);
    }

    #[test]
    fn limit_counts_files_and_directory() {
        let mut log = Log::new(Plan::new(Some(100_000), None), Arc::default());
        assert!(log.charge(100_000 - SUPERBLOCK - DIRECTORY));
        assert!(!log.charge(1));
        log.discharge(10);
        assert!(log.charge(10));
    }
}
