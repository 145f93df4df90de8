//! The bytes on disk: superblock, segment header, records, summary rows and footer.
//!
//! `docs/store-format.md` gives the tables; this file and those below it are the only place that
//! knows the layout. Everything is little endian. A decoder gets untrusted bytes and answers
//! `None` to whatever is not valid; it never panics.
//!
//! 1. A record header names its own segment and offset, and its checksum is seeded with the
//!    zone's secret. So bytes that look like a record inside a body are never taken for one.
//! 2. The position of a record is its age: a later segment, or a later offset in the same
//!    segment, is newer. Segment numbers are never used twice.
//! 3. Lengths in a decoded header agree with each other; whoever reads the payload needs no
//!    further check of them.
//!
//! It reads and writes no files.

mod live;
mod sites;
mod uses;

use xxhash_rust::xxh3::xxh3_64_with_seed;

pub(crate) use self::live::Live;
pub(crate) use self::sites::{decode_sites, encode_site, site_len};
pub(crate) use self::uses::{Saving, USES_BLOCK, USES_HEADER, Use, UsesBlock, UsesHeader};

use crate::key::{Key, Secret};
use crate::site::Account;

/// Version of everything that this file lays out, but for the superblock and the journal.
pub(crate) const VERSION: u32 = 1;
/// Version of the superblock.
pub(crate) const SUPERBLOCK_VERSION: u32 = 2;
/// The version that has no secret: anyone can find texts whose keys meet.
const UNKEYED_VERSION: u32 = 1;
/// Records begin at multiples of this.
pub(crate) const ALIGN: u32 = 16;
/// Bytes of a record header.
pub(crate) const RECORD_HEADER: u32 = 80;
/// Bytes that a device writes wholly or not at all.
pub(crate) const SECTOR: u32 = 512;
/// Bytes of one row of an entry's slice table.
pub(crate) const SLICE_REF: u32 = 24;
/// Bytes of a summary row without its list of segments.
pub(crate) const ROW: u32 = 40;
/// Bytes of a segment's footer.
pub(crate) const FOOTER: u32 = 64;
/// Bytes of a segment's header.
pub(crate) const SEGMENT_HEADER: u32 = 64;
/// Bytes of the journal's header.
pub(crate) const JOURNAL_HEADER: u32 = 64;
/// Bytes of the header of a record of the journal.
pub(crate) const JOURNAL_RECORD: u32 = 32;
/// Bytes of the superblock file.
pub(crate) const SUPERBLOCK: u64 = 4096;
/// Bytes of a key.
pub(crate) const KEY: u32 = 16;

const SUPERBLOCK_MAGIC: u64 = u64::from_le_bytes(*b"millpond");
const SEGMENT_MAGIC: u64 = u64::from_le_bytes(*b"mp-segmt");
const RECORD_MAGIC: u32 = u32::from_le_bytes(*b"mpRc");
/// The newest version of the journal; version 1 is read, too.
pub(crate) const JOURNAL_VERSION: u32 = 2;
const JOURNAL_MAGIC: u64 = u64::from_le_bytes(*b"mp-journ");
const JOURNAL_RECORD_MAGIC: u32 = u32::from_le_bytes(*b"mpJr");
const FOOTER_MAGIC: u64 = u64::from_le_bytes(*b"mp-summy");
const SUPERBLOCK_USED: usize = 56;
const MEMBERSHIP_MAGIC: u64 = u64::from_le_bytes(*b"mp-membr");
/// Offset of the membership in the superblock: in the same sector, so both are written or none.
const MEMBERSHIP_AT: usize = 64;
const MEMBERSHIP_USED: usize = 8 + 16 + 8 + 8 + 8;
/// Offset of the secret in the superblock, in the same sector, too.
const SECRET_AT: usize = 112;
const SECRET_USED: usize = 16 + 8;
/// Offset of the kind in a summary row.
const ROW_KIND: usize = 32;

const _: () = assert!(RECORD_HEADER == 4 + 1 + 1 + 2 + 4 * 4 + KEY + 8 + 8 + 4 + 4 + 8 + 8);
const _: () = assert!(SECRET_AT == MEMBERSHIP_AT + MEMBERSHIP_USED);
const _: () = assert!(SECRET_AT + SECRET_USED <= SECTOR as usize);
const _: () = assert!(SLICE_REF == 4 + 4 + 4 + 4 + 8);
const _: () = assert!(ROW == KEY + 4 + 4 + 8 + 1 + 1 + 2 + 4);
const _: () = assert!(FOOTER == 8 + 4 + 4 + 4 + 4 + 4 + 4 + 8 + 8 + 8 + 8);
const _: () = assert!(SEGMENT_HEADER == 8 + 4 + 4 + 16 + 4 + 4 + 8 + 8 + 8);
const _: () = assert!(JOURNAL_HEADER == 8 + 4 + 4 + 16 + 4 + 4 + 8 + 8 + 8);
const _: () = assert!(JOURNAL_RECORD == 4 + 4 + 4 + 4 + 8 + 8);
const _: () = assert!(JOURNAL_HEADER.is_multiple_of(ALIGN) && JOURNAL_RECORD.is_multiple_of(ALIGN));
const _: () = assert!(RECORD_HEADER.is_multiple_of(ALIGN) && SEGMENT_HEADER.is_multiple_of(ALIGN));

/// Rounds up to where a record may begin.
pub(crate) const fn aligned(size: u64) -> u64 {
    size.next_multiple_of(ALIGN as u64)
}

/// The secret of a zone, as the seed of its header checksums.
pub(crate) fn seed_of(uuid: &[u8; 16]) -> u64 {
    xxh3_64_with_seed(uuid, u64::from(VERSION))
}

/// Takes fixed fields off the front of a buffer.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn bytes<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (first, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*first)
    }

    fn u8(&mut self) -> Option<u8> {
        self.bytes::<1>().map(|[byte]| byte)
    }

    fn u16(&mut self) -> Option<u16> {
        self.bytes().map(u16::from_le_bytes)
    }

    fn u32(&mut self) -> Option<u32> {
        self.bytes().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.bytes().map(u64::from_le_bytes)
    }

    fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (first, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(first)
    }
}

/// True if the last eight bytes of `block` are the checksum of the bytes before them.
fn is_sealed(block: &[u8], seed: u64) -> bool {
    block
        .split_last_chunk::<8>()
        .is_some_and(|(body, sum)| u64::from_le_bytes(*sum) == xxh3_64_with_seed(body, seed))
}

/// Appends the checksum of everything in `block`.
fn seal(block: &mut Vec<u8>, seed: u64) {
    let sum = xxh3_64_with_seed(block, seed);
    block.extend_from_slice(&sum.to_le_bytes());
}

/// End of a zone's last run: closed in order or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shutdown {
    /// Everything was written and synced.
    Clean,
    /// The zone is open, or its process died.
    Unclean,
}

/// The first bytes of `millpond.zone`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Superblock {
    /// The secret that seeds header checksums, and the tie between segments and their zone.
    pub(crate) uuid: [u8; 16],
    /// Milliseconds since 1970.
    pub(crate) created_ms: u64,
    /// End of the last run.
    pub(crate) shutdown: Shutdown,
    /// A segment number that was never used; also above those whose files are gone.
    pub(crate) next_segment: u32,
    /// The set of disks that this one is of; none if it never had company.
    pub(crate) membership: Option<Membership>,
    /// Lists of the segments that there must be: the list that counts, and the one before it.
    pub(crate) live: Vec<Live>,
    /// The secret that the zone's keys are made with: one for all disks of a zone.
    pub(crate) secret: Secret,
}

/// Membership of a disk: the set that it belongs to, and as of which generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Membership {
    /// The set's own name, random.
    pub(crate) set: [u8; 16],
    /// Grows each time that a disk leaves the set or comes into it.
    pub(crate) generation: u64,
    /// A digest of the uuids of all disks in the set.
    pub(crate) disks: u64,
}

impl Membership {
    fn encode(&self) -> Vec<u8> {
        let mut block = Vec::with_capacity(MEMBERSHIP_USED);
        block.extend_from_slice(&MEMBERSHIP_MAGIC.to_le_bytes());
        block.extend_from_slice(&self.set);
        block.extend_from_slice(&self.generation.to_le_bytes());
        block.extend_from_slice(&self.disks.to_le_bytes());
        seal(&mut block, 0);
        block
    }

    fn decode(file: &[u8]) -> Option<Self> {
        let block = file.get(MEMBERSHIP_AT..MEMBERSHIP_AT + MEMBERSHIP_USED)?;
        let mut fields = Fields(block);
        if fields.u64()? != MEMBERSHIP_MAGIC || !is_sealed(block, 0) {
            return None;
        }
        Some(Self {
            set: fields.bytes()?,
            generation: fields.u64()?,
            disks: fields.u64()?,
        })
    }
}

impl Superblock {
    /// The whole file.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut block = Vec::with_capacity(SUPERBLOCK as usize);
        block.extend_from_slice(&SUPERBLOCK_MAGIC.to_le_bytes());
        block.extend_from_slice(&SUPERBLOCK_VERSION.to_le_bytes());
        block.extend_from_slice(&u32::from(self.shutdown == Shutdown::Clean).to_le_bytes());
        block.extend_from_slice(&self.uuid);
        block.extend_from_slice(&self.created_ms.to_le_bytes());
        block.extend_from_slice(&self.next_segment.to_le_bytes());
        block.extend_from_slice(&[0; 4]);
        seal(&mut block, 0);
        if let Some(membership) = &self.membership {
            block.resize(MEMBERSHIP_AT, 0);
            block.extend_from_slice(&membership.encode());
        }
        block.resize(SECRET_AT, 0);
        let mut secret = self.secret.0.to_vec();
        seal(&mut secret, seed_of(&self.uuid));
        block.extend_from_slice(&secret);
        block.resize(SUPERBLOCK as usize, 0);
        for live in &self.live {
            live.encode(&self.uuid, &mut block);
        }
        block
    }

    /// Reads a superblock; `None` if it is damaged or of an unknown version.
    pub(crate) fn decode(file: &[u8]) -> Option<Self> {
        let block = file.get(..SUPERBLOCK_USED)?;
        if !is_sealed(block, 0) {
            return None;
        }
        let mut fields = Fields(block);
        if fields.u64()? != SUPERBLOCK_MAGIC || fields.u32()? != SUPERBLOCK_VERSION {
            return None;
        }
        let shutdown = match fields.u32()? {
            1 => Shutdown::Clean,
            _ => Shutdown::Unclean,
        };
        let uuid = fields.bytes()?;
        let secret = file.get(SECRET_AT..SECRET_AT + SECRET_USED)?;
        if !is_sealed(secret, seed_of(&uuid)) {
            return None;
        }
        Some(Self {
            shutdown,
            uuid,
            created_ms: fields.u64()?,
            next_segment: fields.u32()?,
            membership: Membership::decode(file),
            live: Live::decode_both(&uuid, file),
            secret: Secret(*secret.first_chunk()?),
        })
    }

    /// True if `file` is a whole superblock of the version that has no secret.
    pub(crate) fn is_unkeyed(file: &[u8]) -> bool {
        let Some(block) = file.get(..SUPERBLOCK_USED).filter(|it| is_sealed(it, 0)) else {
            return false;
        };
        let mut fields = Fields(block);
        let start = (fields.u64(), fields.u32());
        start == (Some(SUPERBLOCK_MAGIC), Some(UNKEYED_VERSION))
    }
}

/// The first bytes of a segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SegmentHeader {
    /// Number of the segment.
    pub(crate) segment: u32,
    /// Length of the segment's file.
    pub(crate) size: u32,
    /// Number of rows of the segment's summary, once that was synced; 0: the segment may have no
    /// summary.
    pub(crate) rows: u32,
    /// Milliseconds since 1970.
    pub(crate) created_ms: u64,
}

impl SegmentHeader {
    /// The header's bytes.
    pub(crate) fn encode(&self, uuid: &[u8; 16], seed: u64) -> Vec<u8> {
        let mut block = Vec::with_capacity(SEGMENT_HEADER as usize);
        block.extend_from_slice(&SEGMENT_MAGIC.to_le_bytes());
        block.extend_from_slice(&VERSION.to_le_bytes());
        block.extend_from_slice(&self.segment.to_le_bytes());
        block.extend_from_slice(uuid);
        block.extend_from_slice(&self.size.to_le_bytes());
        block.extend_from_slice(&self.rows.to_le_bytes());
        block.extend_from_slice(&self.created_ms.to_le_bytes());
        block.extend_from_slice(&[0; 8]);
        seal(&mut block, seed);
        block
    }

    /// Reads a header; `None` if it is damaged or belongs to another zone.
    pub(crate) fn decode(block: &[u8], uuid: &[u8; 16], seed: u64) -> Option<Self> {
        let block = block.get(..SEGMENT_HEADER as usize)?;
        let mut fields = Fields(block);
        if !is_sealed(block, seed) || fields.u64()? != SEGMENT_MAGIC || fields.u32()? != VERSION {
            return None;
        }
        let segment = fields.u32()?;
        if fields.bytes::<16>()? != *uuid {
            return None;
        }
        Some(Self {
            segment,
            size: fields.u32()?,
            rows: fields.u32()?,
            created_ms: fields.u64()?,
        })
    }
}

/// The first bytes of the journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct JournalHeader {
    /// Version of the format: it decides whether records of several notes may be appended.
    pub(crate) version: u32,
    /// Length of the file.
    pub(crate) size: u32,
    /// Milliseconds since 1970.
    pub(crate) created_ms: u64,
}

impl JournalHeader {
    /// The header's bytes.
    pub(crate) fn encode(&self, uuid: &[u8; 16], seed: u64) -> Vec<u8> {
        let mut block = Vec::with_capacity(JOURNAL_HEADER as usize);
        block.extend_from_slice(&JOURNAL_MAGIC.to_le_bytes());
        block.extend_from_slice(&self.version.to_le_bytes());
        block.extend_from_slice(&[0; 4]);
        block.extend_from_slice(uuid);
        block.extend_from_slice(&self.size.to_le_bytes());
        block.extend_from_slice(&[0; 4]);
        block.extend_from_slice(&self.created_ms.to_le_bytes());
        block.extend_from_slice(&[0; 8]);
        seal(&mut block, seed);
        block
    }

    /// Reads a header; `None` if it is damaged, of an unknown version or of another zone.
    pub(crate) fn decode(block: &[u8], uuid: &[u8; 16], seed: u64) -> Option<Self> {
        let block = block.get(..JOURNAL_HEADER as usize)?;
        let mut fields = Fields(block);
        if !is_sealed(block, seed) || fields.u64()? != JOURNAL_MAGIC {
            return None;
        }
        let version = fields.u32()?;
        fields.u32()?;
        let is_known = (1..=JOURNAL_VERSION).contains(&version);
        if !is_known || fields.bytes::<16>()? != *uuid {
            return None;
        }
        let size = fields.u32()?;
        fields.u32()?;
        Some(Self {
            version,
            size,
            created_ms: fields.u64()?,
        })
    }
}

/// The first bytes of a record of the journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct JournalRecord {
    /// Length of the payload.
    pub(crate) len: u32,
    /// Notes in the payload, each behind its length; 0: it is one note.
    pub(crate) count: u32,
    /// Checksum of the payload.
    pub(crate) payload_sum: u64,
}

impl JournalRecord {
    /// The header's bytes, for a record at `offset`.
    pub(crate) fn encode(&self, offset: u32, seed: u64) -> Vec<u8> {
        let mut block = Vec::with_capacity(JOURNAL_RECORD as usize);
        block.extend_from_slice(&JOURNAL_RECORD_MAGIC.to_le_bytes());
        block.extend_from_slice(&self.len.to_le_bytes());
        block.extend_from_slice(&offset.to_le_bytes());
        block.extend_from_slice(&self.count.to_le_bytes());
        block.extend_from_slice(&self.payload_sum.to_le_bytes());
        seal(&mut block, seed);
        block
    }

    /// Reads the header of the record at `offset`; `None` if there is none.
    pub(crate) fn decode(block: &[u8], seed: u64, offset: u32) -> Option<Self> {
        let block = block.get(..JOURNAL_RECORD as usize)?;
        let mut fields = Fields(block);
        if fields.u32()? != JOURNAL_RECORD_MAGIC || !is_sealed(block, seed) {
            return None;
        }
        let len = fields.u32()?;
        if fields.u32()? != offset {
            return None;
        }
        let count = fields.u32()?;
        Some(Self {
            len,
            count,
            payload_sum: fields.u64()?,
        })
    }
}

/// Meaning of a record: an entry, or its removal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A stored response.
    Entry,
    /// Keys whose older records no longer count: those of the payload, or the header's own if
    /// there are none.
    Tombstone,
}

impl Kind {
    const fn code(self) -> u8 {
        match self {
            Self::Entry => 1,
            Self::Tombstone => 2,
        }
    }

    const fn of(code: u8) -> Option<Self> {
        match code {
            1 => Some(Self::Entry),
            2 => Some(Self::Tombstone),
            _ => None,
        }
    }
}

/// The first bytes of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RecordHeader {
    /// Meaning of the record.
    pub(crate) kind: Kind,
    /// Number of the segment that the record stands in.
    pub(crate) segment: u32,
    /// Offset of the record from the beginning of the segment's file.
    pub(crate) offset: u32,
    /// Bytes from this record to the next.
    pub(crate) size: u32,
    /// Length of an entry's head.
    pub(crate) head_len: u32,
    /// The key of the entry, or of a tombstone without payload.
    pub(crate) key: Key,
    /// Time when the entry was stored, milliseconds since 1970.
    pub(crate) created_ms: u64,
    /// Length of the entry's body.
    pub(crate) body_len: u64,
    /// Rows of the slice table, or keys of the tombstone.
    pub(crate) count: u32,
    /// Bytes of the body that stand in this record: all or none.
    pub(crate) inline_len: u32,
    /// Checksum of the payload.
    pub(crate) payload_sum: u64,
}

impl RecordHeader {
    /// The header's bytes.
    pub(crate) fn encode(&self, seed: u64) -> Vec<u8> {
        let mut block = Vec::with_capacity(RECORD_HEADER as usize);
        block.extend_from_slice(&RECORD_MAGIC.to_le_bytes());
        block.extend_from_slice(&[self.kind.code(), 0]);
        block.extend_from_slice(&(VERSION as u16).to_le_bytes());
        for field in [self.segment, self.offset, self.size, self.head_len] {
            block.extend_from_slice(&field.to_le_bytes());
        }
        block.extend_from_slice(&self.key.0);
        block.extend_from_slice(&self.created_ms.to_le_bytes());
        block.extend_from_slice(&self.body_len.to_le_bytes());
        block.extend_from_slice(&self.count.to_le_bytes());
        block.extend_from_slice(&self.inline_len.to_le_bytes());
        block.extend_from_slice(&self.payload_sum.to_le_bytes());
        seal(&mut block, seed);
        block
    }

    /// Reads the header of the record at (`segment`, `offset`); `None` if there is none.
    pub(crate) fn decode(block: &[u8], seed: u64, at: (u32, u32)) -> Option<Self> {
        let block = block.get(..RECORD_HEADER as usize)?;
        let mut fields = Fields(block);
        if fields.u32()? != RECORD_MAGIC || !is_sealed(block, seed) {
            return None;
        }
        let kind = Kind::of(fields.u8()?)?;
        fields.u8()?;
        if u32::from(fields.u16()?) != VERSION || (fields.u32()?, fields.u32()?) != at {
            return None;
        }
        let header = Self {
            kind,
            segment: at.0,
            offset: at.1,
            size: fields.u32()?,
            head_len: fields.u32()?,
            key: Key(fields.bytes()?),
            created_ms: fields.u64()?,
            body_len: fields.u64()?,
            count: fields.u32()?,
            inline_len: fields.u32()?,
            payload_sum: fields.u64()?,
        };
        header.is_consistent().then_some(header)
    }

    /// Bytes between the header and the padding.
    pub(crate) fn payload_len(&self) -> u64 {
        let count = u64::from(self.count);
        match self.kind {
            Kind::Entry => {
                count * u64::from(SLICE_REF) + u64::from(self.head_len) + u64::from(self.inline_len)
            }
            Kind::Tombstone => count * u64::from(KEY),
        }
    }

    /// INVARIANT 3.
    fn is_consistent(&self) -> bool {
        let size = aligned(u64::from(RECORD_HEADER) + self.payload_len());
        let inline = self.count == 0 && u64::from(self.inline_len) == self.body_len;
        let sliced = self.count > 0 && self.inline_len == 0;
        size == u64::from(self.size) && (self.kind == Kind::Tombstone || inline || sliced)
    }
}

/// Offset of the next record, if nothing stands from `tail` on: its header lies in one sector, so
/// that a tombstone which is written over it is there or not, whenever the power fails.
pub(crate) fn record_start(tail: u32) -> u32 {
    let left = SECTOR - tail % SECTOR;
    if left < RECORD_HEADER {
        tail.saturating_add(left)
    } else {
        tail
    }
}

/// The checksum of payloads and slices.
pub(crate) fn payload_sum(payload: &[u8]) -> u64 {
    xxh3_64_with_seed(payload, 0)
}

/// Place of a slice of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SliceRef {
    /// Segment that holds the slice.
    pub(crate) segment: u32,
    /// First byte in the segment's file.
    pub(crate) offset: u32,
    /// Length.
    pub(crate) len: u32,
    /// Checksum of the slice's bytes.
    pub(crate) checksum: u64,
}

impl SliceRef {
    /// Appends one row of the slice table.
    pub(crate) fn encode(&self, table: &mut Vec<u8>) {
        for field in [self.segment, self.offset, self.len, 0] {
            table.extend_from_slice(&field.to_le_bytes());
        }
        table.extend_from_slice(&self.checksum.to_le_bytes());
    }

    /// Reads a slice table.
    pub(crate) fn decode_table(table: &[u8]) -> Vec<Self> {
        let rows = table.chunks_exact(SLICE_REF as usize);
        rows.filter_map(|row| {
            let mut fields = Fields(row);
            let (segment, offset, len) = (fields.u32()?, fields.u32()?, fields.u32()?);
            fields.u32()?;
            Some(Self {
                segment,
                offset,
                len,
                checksum: fields.u64()?,
            })
        })
        .collect()
    }
}

/// One line of a segment's summary: a record of that segment, as the index needs it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    /// Meaning of the record.
    pub(crate) kind: Kind,
    /// The entry's key, or a key of the tombstone.
    pub(crate) key: Key,
    /// Offset of the record in the segment.
    pub(crate) offset: u32,
    /// Size of the record in bytes.
    pub(crate) size: u32,
    /// Length of the entry's body.
    pub(crate) body_len: u64,
    /// True if the body is in slices.
    pub(crate) is_sliced: bool,
    /// Site and role that the entry is charged to, by the numbers of the segment's table or of the
    /// process.
    pub(crate) account: Account,
    /// Other segments that hold slices of the entry, each once.
    pub(crate) needs: Vec<u32>,
}

impl Row {
    /// Bytes that the row takes in a summary.
    pub(crate) fn encoded_len(&self) -> u32 {
        ROW + 4 * self.needs.len() as u32
    }

    /// Appends the row to a summary.
    pub(crate) fn encode(&self, rows: &mut Vec<u8>) {
        rows.extend_from_slice(&self.key.0);
        rows.extend_from_slice(&self.offset.to_le_bytes());
        rows.extend_from_slice(&self.size.to_le_bytes());
        rows.extend_from_slice(&self.body_len.to_le_bytes());
        rows.extend_from_slice(&[self.kind.code(), u8::from(self.is_sliced)]);
        rows.extend_from_slice(&self.account.bits().to_le_bytes());
        rows.extend_from_slice(&(self.needs.len() as u32).to_le_bytes());
        for segment in &self.needs {
            rows.extend_from_slice(&segment.to_le_bytes());
        }
    }

    /// Offset of the record of a summary's first row; `None` if there is no row.
    pub(crate) fn first_offset(rows: &[u8]) -> Option<u32> {
        Fields(rows.get(KEY as usize..)?).u32()
    }

    /// Makes the row of the record at `offset` one of a tombstone. True if there is such a row.
    pub(crate) fn void(rows: &mut [u8], offset: u32) -> bool {
        let mut rest = rows;
        while let Some((row, after)) = rest.split_at_mut_checked(ROW as usize) {
            let mut fields = Fields(row.get(KEY as usize..).unwrap_or_default());
            if fields.u32() == Some(offset) {
                if let Some(kind) = row.get_mut(ROW_KIND) {
                    *kind = Kind::Tombstone.code();
                }
                return true;
            }
            let count = row
                .last_chunk()
                .map_or(0, |count| u32::from_le_bytes(*count));
            let Some((_, following)) = after.split_at_mut_checked(count as usize * 4) else {
                return false;
            };
            rest = following;
        }
        false
    }

    /// Reads the rows of a summary; `None` if a row is cut off or of an unknown kind.
    pub(crate) fn decode_all(rows: &[u8]) -> Option<Vec<Self>> {
        let mut found = Vec::with_capacity(rows.len() / ROW as usize);
        let mut rest = rows;
        while !rest.is_empty() {
            found.push(Self::decode_next(&mut rest)?);
        }
        Some(found)
    }

    /// True if no row of a summary is cut off or of an unknown kind.
    pub(crate) fn are_whole(rows: &[u8]) -> bool {
        let mut rest = rows;
        while !rest.is_empty() {
            if Self::decode_next(&mut rest).is_none() {
                return false;
            }
        }
        true
    }

    /// Takes the first row off a summary; `None` if it is cut off or of an unknown kind.
    pub(crate) fn decode_next(rows: &mut &[u8]) -> Option<Self> {
        let mut fields = Fields(rows);
        let key = Key(fields.bytes()?);
        let (offset, size, body_len) = (fields.u32()?, fields.u32()?, fields.u64()?);
        let kind = Kind::of(fields.u8()?)?;
        let is_sliced = fields.u8()? == 1;
        let account = Account::from_bits(fields.u16()?);
        let count = fields.u32()? as usize;
        let list = fields.take(count.checked_mul(4)?)?;
        let needs = list.chunks_exact(4).filter_map(|four| Fields(four).u32());
        *rows = fields.0;
        Some(Self {
            kind,
            key,
            offset,
            size,
            body_len,
            is_sliced,
            account,
            needs: needs.collect(),
        })
    }
}

/// The last bytes of a segment that was sealed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Footer {
    /// The segment's number.
    pub(crate) segment: u32,
    /// Offset at which the next record would have been written.
    pub(crate) tail: u32,
    /// Bytes of rows, which end where the footer begins.
    pub(crate) rows_len: u32,
    /// Checksum of the rows.
    pub(crate) rows_sum: u64,
    /// Bytes of the table of sites, which ends where the rows begin.
    pub(crate) sites_len: u32,
    /// Checksum of the table of sites; 0 if there is none.
    pub(crate) sites_sum: u64,
}

impl Footer {
    /// The footer's bytes.
    pub(crate) fn encode(&self, seed: u64) -> Vec<u8> {
        let mut block = Vec::with_capacity(FOOTER as usize);
        block.extend_from_slice(&FOOTER_MAGIC.to_le_bytes());
        let (segment, tail) = (self.segment, self.tail);
        for field in [VERSION, segment, tail, self.rows_len, self.sites_len, 0] {
            block.extend_from_slice(&field.to_le_bytes());
        }
        block.extend_from_slice(&self.rows_sum.to_le_bytes());
        let sites_sum = if self.sites_len == 0 {
            0
        } else {
            self.sites_sum
        };
        block.extend_from_slice(&sites_sum.to_le_bytes());
        block.extend_from_slice(&[0; 8]);
        seal(&mut block, seed);
        block
    }

    /// Bytes of table, rows and footer.
    pub(crate) fn summary_len(&self) -> u32 {
        // They fit a segment together.
        self.sites_len + self.rows_len + FOOTER
    }

    /// Reads the footer of `segment`, whose file is `size` bytes long.
    pub(crate) fn decode(block: &[u8], seed: u64, segment: u32, size: u32) -> Option<Self> {
        let block = block.get(..FOOTER as usize)?;
        let mut fields = Fields(block);
        if fields.u64()? != FOOTER_MAGIC || !is_sealed(block, seed) || fields.u32()? != VERSION {
            return None;
        }
        if fields.u32()? != segment {
            return None;
        }
        let (tail, rows_len) = (fields.u32()?, fields.u32()?);
        let sites_len = fields.u32()?;
        fields.u32()?;
        let (rows_sum, sites_sum) = (fields.u64()?, fields.u64()?);
        // Without a table the sum is none, whatever stands there.
        let sites_sum = if sites_len == 0 { 0 } else { sites_sum };
        let lens = [tail, rows_len, sites_len, FOOTER];
        let end: u64 = lens.into_iter().map(u64::from).sum();
        (end <= u64::from(size) && tail >= SEGMENT_HEADER).then_some(Self {
            segment,
            tail,
            rows_len,
            rows_sum,
            sites_len,
            sites_sum,
        })
    }
}

#[cfg(test)]
mod tests;
