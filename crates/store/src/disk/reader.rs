//! Reading: records for lookups, summaries and scans for recovery, slices for verification.
//!
//! A record is believed when its header is valid at its own position and its payload has the
//! checksum that the header says. A summary is believed when its footer and rows have theirs.
//! What is not believed is not there.
//!
//! A disk that answers with an error has said nothing of what stands there: that is neither "not
//! there" nor "corrupt".
//!
//! A scan looks for records at every multiple of 16 bytes and skips only what is inside a valid
//! record, so holes, torn records and unfinished slices do not hide what follows them.

use std::io;
use std::ops::Range;
use std::sync::OnceLock;

use bytes::Bytes;
use hashbrown::HashMap;

use super::Disk;
use super::format::{
    ALIGN, FOOTER, Footer, KEY, Kind, RECORD_HEADER, RecordHeader, Row, SEGMENT_HEADER, SLICE_REF,
    SliceRef, decode_sites, payload_sum,
};
use super::hole::Holes;
use super::segment::Place;
use crate::disk::open::SegmentFile;
use crate::entry::{Body, Slice, Sliced, Stored, segments_of, unchecked};
use crate::index::Slot;
use crate::key::Key;
use crate::site::{Account, SiteBook};

/// Reason why a record was not read.
#[derive(Debug)]
pub(crate) enum ReadError {
    /// The segment was evicted meanwhile.
    Gone,
    /// The bytes are not the record that the index named.
    Corrupt,
    /// The disk answered with an error.
    Io(io::Error),
}

impl Disk {
    /// Reads the record of an index entry.
    pub(crate) fn read_entry(&self, slot: &Slot) -> Result<Stored, ReadError> {
        let place = slot.place();
        let file = self.file(place.segment).ok_or(ReadError::Gone)?;
        let mut record = vec![0; place.size as usize];
        let offset = u64::from(place.offset);
        file.read_at(&mut record, offset).map_err(ReadError::Io)?;
        self.judge_entry(slot, record)
    }

    /// Reads the record of an index entry if that takes no time.
    pub(crate) fn try_read_entry(&self, slot: &Slot) -> Option<Result<Stored, ReadError>> {
        let place = slot.place();
        let Some(file) = self.file(place.segment) else {
            return Some(Err(ReadError::Gone));
        };
        let mut record = vec![0; place.size as usize];
        let offset = u64::from(place.offset);
        match self.readers.try_read_at(&file, &mut record, offset) {
            Ok(true) => Some(self.judge_entry(slot, record)),
            Ok(false) => None,
            Err(error) => Some(Err(ReadError::Io(error))),
        }
    }

    fn judge_entry(&self, slot: &Slot, record: Vec<u8>) -> Result<Stored, ReadError> {
        let place = slot.place();
        let at = (place.segment, place.offset);
        let header = RecordHeader::decode(&record, self.seed, at).ok_or(ReadError::Corrupt)?;
        if header.kind == Kind::Tombstone && header.key == slot.key {
            return Err(ReadError::Gone);
        }
        let is_ours = header.kind == Kind::Entry
            && header.key == slot.key
            && header.size == place.size
            && payload(&record, &header).map(payload_sum) == Some(header.payload_sum);
        if !is_ours {
            return Err(ReadError::Corrupt);
        }
        stored(&header, place, Bytes::from(record), slot).ok_or(ReadError::Corrupt)
    }

    /// Reads the head of an entry's record, whether or not it counts still.
    pub(crate) fn read_head(&self, key: &Key, place: Place, file: &SegmentFile) -> Option<Bytes> {
        let mut record = vec![0; place.size as usize];
        let read = file.read_at(&mut record, place.offset.into());
        let header = valid_record(&record, self.seed, (place.segment, place.offset))?;
        let is_it = read.is_ok() && header.kind == Kind::Entry && header.key == *key;
        let start = RECORD_HEADER as usize + header.count as usize * SLICE_REF as usize;
        let head = start..start + header.head_len as usize;
        (is_it && head.end <= record.len()).then(|| Bytes::from(record).slice(head))
    }

    /// True if a tombstone stands at a place.
    pub(crate) fn is_tombstone(&self, place: Place, file: &SegmentFile) -> bool {
        let mut record = vec![0; place.size as usize];
        let read = file.read_at(&mut record, place.offset.into());
        let at = (place.segment, place.offset);
        let header = valid_record(&record, self.seed, at).filter(|_| read.is_ok());
        header.is_some_and(|header| header.kind == Kind::Tombstone)
    }

    /// True if the bytes of a slice have their checksum.
    pub(crate) fn is_slice_sound(&self, slice: &Slice, file: &SegmentFile) -> io::Result<bool> {
        is_sound(slice, file)
    }

    /// Reads the summary of a segment: where it ends, and its rows.
    pub(crate) fn read_summary(
        &self,
        id: u32,
        file: &SegmentFile,
        size: u32,
    ) -> io::Result<Option<Found>> {
        let Some(summary) = self.read_rows(id, file, size)? else {
            return Ok(None);
        };
        let accounts = summary.accounts(&self.book);
        let mut rows = Row::decode_all(&summary.rows);
        for row in rows.iter_mut().flatten() {
            row.account = accounts.of(row.account);
        }
        Ok(rows.map(|rows| Found {
            tail: summary.tail,
            rows,
        }))
    }

    /// Reads the summary of a segment as it stands there.
    pub(crate) fn read_rows(
        &self,
        id: u32,
        file: &SegmentFile,
        size: u32,
    ) -> io::Result<Option<Summary>> {
        let Some(footer) = self.read_footer(id, file, size)? else {
            return Ok(None);
        };
        let sites_len = footer.sites_len as usize;
        let mut sites = vec![0; sites_len + footer.rows_len as usize];
        // A footer that is valid fits its segment, with all before it.
        let start = u64::from(size - footer.summary_len());
        let is_there = is_there(file.read_at(&mut sites, start))?;
        // The table is short, or not there; then the rows are not copied.
        let rows = match sites_len {
            0 => std::mem::take(&mut sites),
            len => sites.split_off(len),
        };
        let are_sites_whole = sites_len == 0 || payload_sum(&sites) == footer.sites_sum;
        let is_whole = is_there && are_sites_whole && payload_sum(&rows) == footer.rows_sum;
        Ok(is_whole.then_some(Summary {
            tail: footer.tail,
            sites,
            rows,
        }))
    }

    /// Reads the footer of a segment.
    pub(crate) fn read_footer(
        &self,
        id: u32,
        file: &SegmentFile,
        size: u32,
    ) -> io::Result<Option<Footer>> {
        let mut block = [0; FOOTER as usize];
        let Some(end) = size.checked_sub(FOOTER) else {
            return Ok(None);
        };
        let is_there = is_there(file.read_at(&mut block, u64::from(end)))?;
        let footer = is_there.then(|| Footer::decode(&block, self.seed, id, size));
        Ok(footer.flatten())
    }

    /// Finds the records of a segment whose header is damaged, and with it maybe what stands in
    /// `damaged`; whether nothing can have stood there but what was found.
    pub(crate) fn search(
        &self,
        id: u32,
        file: &SegmentFile,
        (size, damaged): (u32, Range<u32>),
    ) -> io::Result<(Found, bool)> {
        let mut holes = Holes::default();
        holes.doubt(damaged);
        let found = self.scan_around(id, file, (SEGMENT_HEADER..size, &mut holes))?;
        Ok((found, holes.are_known()))
    }

    /// Finds the records of a segment from `start` on.
    pub(crate) fn scan(&self, id: u32, file: &SegmentFile, range: Range<u32>) -> io::Result<Found> {
        self.scan_around(id, file, (range, &mut Holes::default()))
    }

    /// Scans a segment without a summary as [`Disk::scan`] does; an error if it had a summary that
    /// was synced, and not all the records are found that it told of.
    pub(crate) fn scan_unsummed(
        &self,
        id: u32,
        file: &SegmentFile,
        range: Range<u32>,
    ) -> io::Result<Found> {
        let found = self.scan(id, file, range)?;
        let mut block = [0; SEGMENT_HEADER as usize];
        file.read_at(&mut block, 0)?;
        let told = self.segment_header(&block).map_or(0, |header| header.rows);
        if told == 0 || told as usize == found.rows.len() {
            Ok(found)
        } else {
            Err(io::Error::new(
                io::ErrorKind::InvalidData,
                format!(
                    "{} of {told} records of segment {id} are left",
                    found.rows.len()
                ),
            ))
        }
    }

    fn scan_around(
        &self,
        id: u32,
        file: &SegmentFile,
        (range, holes): (Range<u32>, &mut Holes),
    ) -> io::Result<Found> {
        let start = range.start.max(SEGMENT_HEADER);
        let mut found = Found {
            tail: start,
            rows: Vec::new(),
        };
        let mut bytes = vec![0; range.end.saturating_sub(start) as usize];
        let refused = match self.read_around(file, start, (&mut bytes, holes)) {
            Ok(refused) => refused,
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(found),
            Err(error) => return Err(error),
        };
        let mut position = 0;
        while let Some(rest) = bytes.get(position..).filter(|rest| !rest.is_empty()) {
            let at = (id, start + position as u32);
            let header = match valid_record(rest, self.seed, at) {
                Some(header) => {
                    self.add_rows(&mut found.rows, &header, rest);
                    holes.know_slices(id, &slices(rest, &header));
                    header
                }
                None => match lost_record(rest, self.seed, at, holes) {
                    Some(header) => {
                        found.rows.push(lost_row(&header));
                        header
                    }
                    None => {
                        position += ALIGN as usize;
                        continue;
                    }
                },
            };
            holes.know_record(&header);
            found.tail = header.offset + header.size;
            position += header.size as usize;
        }
        match refused {
            Some(error) if !holes.are_known() => Err(error),
            _ => Ok(found),
        }
    }

    /// Adds the summary rows of a valid record.
    fn add_rows(&self, rows: &mut Vec<Row>, header: &RecordHeader, record: &[u8]) {
        let row = Row {
            kind: header.kind,
            key: header.key,
            offset: header.offset,
            size: header.size,
            body_len: header.body_len,
            is_sliced: false,
            account: Account::default(),
            needs: Vec::new(),
        };
        let payload = payload(record, header).unwrap_or_default();
        match header.kind {
            Kind::Entry => {
                let table = header.count as usize * SLICE_REF as usize;
                let rest = payload.get(table..).unwrap_or_default();
                let slices = slices(record, header);
                let head = rest.get(..header.head_len as usize).unwrap_or_default();
                let needs = segments_of(&slices).into_iter();
                rows.push(Row {
                    is_sliced: header.count > 0,
                    account: self.book.account(head),
                    needs: needs.filter(|id| *id != header.segment).collect(),
                    ..row
                });
            }
            Kind::Tombstone if header.count == 0 => rows.push(row),
            Kind::Tombstone => {
                for key in payload.as_chunks::<{ KEY as usize }>().0 {
                    rows.push(Row {
                        key: Key(*key),
                        ..row.clone()
                    });
                }
            }
        }
    }
}

/// True if the bytes of a slice have their checksum.
pub(crate) fn is_sound(slice: &Slice, file: &SegmentFile) -> io::Result<bool> {
    let mut bytes = vec![0; slice.len as usize];
    let is_there = is_there(file.read_at(&mut bytes, u64::from(slice.offset)))?;
    Ok(is_there && payload_sum(&bytes) == slice.checksum)
}

/// True if the bytes were there; a file may have been cut off.
fn is_there(read: io::Result<()>) -> io::Result<bool> {
    match read {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        Err(error) => Err(error),
    }
}

/// A summary with its rows as they stand on the disk.
#[derive(Debug)]
pub(crate) struct Summary {
    /// The rows cover what stands before this offset.
    pub(crate) tail: u32,
    /// The table of the sites that the rows mean.
    pub(crate) sites: Vec<u8>,
    /// Encoded rows.
    pub(crate) rows: Vec<u8>,
}

impl Summary {
    /// Accounts of this process for those in the rows.
    pub(crate) fn accounts(&self, book: &SiteBook) -> Accounts {
        let sites = decode_sites(&self.sites);
        Accounts(sites.map(|(own, name)| (own, book.number(name))).collect())
    }
}

/// The numbers of a segment's sites, and those that the process has given them.
#[derive(Debug)]
pub(crate) struct Accounts(HashMap<u16, u16>);

impl Accounts {
    /// An account of the segment; one that is not in its table is nobody's.
    pub(crate) fn of(&self, account: Account) -> Account {
        match account.number() {
            0 => account,
            own => account.with_number(self.0.get(&own).copied().unwrap_or(0)),
        }
    }
}

/// Records of a segment.
#[derive(Debug, Default)]
pub(crate) struct Found {
    /// Offset for the next record.
    pub(crate) tail: u32,
    /// Records in the order of their offsets.
    pub(crate) rows: Vec<Row>,
}

/// The payload of a record that begins with `header`.
fn payload<'a>(record: &'a [u8], header: &RecordHeader) -> Option<&'a [u8]> {
    let end = u64::from(RECORD_HEADER) + header.payload_len();
    record.get(RECORD_HEADER as usize..end as usize)
}

/// The header of a record whose payload is intact, too.
fn valid_record(bytes: &[u8], seed: u64, at: (u32, u32)) -> Option<RecordHeader> {
    let header = RecordHeader::decode(bytes, seed, at)?;
    let sum = payload(bytes, &header).map(payload_sum)?;
    // The padding may be cut off nowhere: a record lies within the file.
    (sum == header.payload_sum && header.size as usize <= bytes.len()).then_some(header)
}

/// The header of an entry of whose payload the disk does not give all.
fn lost_record(bytes: &[u8], seed: u64, at: (u32, u32), holes: &Holes) -> Option<RecordHeader> {
    let header = RecordHeader::decode(bytes, seed, at)?;
    let is_lost = holes.touch(&(header.offset..header.offset + header.size));
    let is_entry = header.kind == Kind::Entry && header.size as usize <= bytes.len();
    (is_lost && is_entry).then_some(header)
}

/// Tombstone in place of an entry that is lost: nothing that the entry has replaced is found in its
/// place.
fn lost_row(header: &RecordHeader) -> Row {
    Row {
        kind: Kind::Tombstone,
        key: header.key,
        offset: header.offset,
        size: header.size,
        body_len: 0,
        is_sliced: false,
        account: Account::default(),
        needs: Vec::new(),
    }
}

/// The slices of an entry whose record is valid.
fn slices(record: &[u8], header: &RecordHeader) -> Box<[Slice]> {
    let table = match header.kind {
        Kind::Entry => header.count as usize * SLICE_REF as usize,
        Kind::Tombstone => 0,
    };
    let payload = payload(record, header).unwrap_or_default();
    let table = payload.get(..table).unwrap_or_default();
    Slice::from_table(&SliceRef::decode_table(table))
}

/// Takes a verified record apart. `None` if its slices do not add up to its body.
fn stored(header: &RecordHeader, place: Place, record: Bytes, slot: &Slot) -> Option<Stored> {
    // `is_consistent` of the header and the checksum guarantee that the parts lie in the record.
    let table_end = RECORD_HEADER as usize + header.count as usize * SLICE_REF as usize;
    let head_end = table_end + header.head_len as usize;
    let head = record.slice(table_end..head_end);
    let (key, created_ms) = (header.key, header.created_ms);
    if header.count == 0 {
        let body = record.slice(head_end..head_end + header.inline_len as usize);
        return Some(Stored::inline(key, place, head, body, created_ms));
    }
    let table = SliceRef::decode_table(record.get(RECORD_HEADER as usize..table_end)?);
    let slices = Slice::from_table(&table);
    let last = slices.last()?;
    if last.start + u64::from(last.len) != header.body_len {
        return None;
    }
    let doubt = slot.is_unverified().then(|| unchecked(slices.len()));
    Some(Stored {
        key,
        place,
        // The record holds the table beside the head: copying the head lets the rest go.
        head: Bytes::copy_from_slice(&head),
        len: header.body_len,
        created_ms,
        reading: OnceLock::new(),
        body: Body::Sliced(Sliced::new(slices, doubt)),
    })
}
