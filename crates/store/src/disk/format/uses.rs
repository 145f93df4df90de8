//! The bytes of the file of uses: header, blocks and rows.
//!
//! As everywhere in the format, a decoder answers `None` to what is not valid, and never panics.

use super::{ALIGN, Fields, VERSION, aligned, is_sealed, payload_sum, seal};

/// Bytes of the header of the file of uses.
pub(crate) const USES_HEADER: u32 = 64;
/// Bytes of the header of a block of uses.
pub(crate) const USES_BLOCK: u32 = 48;

const USES_MAGIC: u64 = u64::from_le_bytes(*b"mp-uses\0");
const USES_BLOCK_MAGIC: u32 = u32::from_le_bytes(*b"mpUs");

const _: () = assert!(USES_HEADER == 8 + 4 + 4 + 16 + 4 + 4 + 16 + 8);
const _: () = assert!(USES_BLOCK == 4 + 4 + 4 + 4 + 4 + 4 + 8 + 8 + 8);
const _: () = assert!(USES_HEADER.is_multiple_of(ALIGN) && USES_BLOCK.is_multiple_of(ALIGN));

/// The first bytes of the file of uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct UsesHeader {
    /// Length of the file.
    pub(crate) size: u32,
}

impl UsesHeader {
    /// The header's bytes.
    pub(crate) fn encode(&self, uuid: &[u8; 16], seed: u64) -> Vec<u8> {
        let mut block = Vec::with_capacity(USES_HEADER as usize);
        block.extend_from_slice(&USES_MAGIC.to_le_bytes());
        block.extend_from_slice(&VERSION.to_le_bytes());
        block.extend_from_slice(&[0; 4]);
        block.extend_from_slice(uuid);
        block.extend_from_slice(&self.size.to_le_bytes());
        block.extend_from_slice(&[0; 20]);
        seal(&mut block, seed);
        block
    }

    /// Reads a header; `None` if it is damaged, of an unknown version or of another zone.
    pub(crate) fn decode(block: &[u8], uuid: &[u8; 16], seed: u64) -> Option<Self> {
        let block = block.get(..USES_HEADER as usize)?;
        let mut fields = Fields(block);
        if !is_sealed(block, seed) || fields.u64()? != USES_MAGIC || fields.u32()? != VERSION {
            return None;
        }
        fields.u32()?;
        if fields.bytes::<16>()? != *uuid {
            return None;
        }
        Some(Self {
            size: fields.u32()?,
        })
    }
}

/// Values that all blocks of one writing have in common.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Saving {
    /// Seconds since 1970.
    pub(crate) now: u32,
    /// Number of entries in the zone.
    pub(crate) entries: u64,
    /// Seed of header checksums.
    pub(crate) seed: u64,
}

/// The first bytes of a block of uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct UsesBlock {
    /// The segment whose entries were used; 0 if there are no rows.
    pub(crate) segment: u32,
    /// Number of rows.
    pub(crate) count: u32,
    /// Time when the block was written, seconds since 1970.
    pub(crate) saved: u32,
    /// Checksum of the rows.
    pub(crate) rows_sum: u64,
    /// Number of entries that the zone had.
    pub(crate) entries: u64,
}

impl UsesBlock {
    /// A whole block of a segment, for an offset of the file.
    pub(crate) fn encode(uses: &[Use], (segment, offset): (u32, u32), at: &Saving) -> Vec<u8> {
        let rows: Vec<u8> = uses.iter().flat_map(Use::encode).collect();
        let mut block = Vec::with_capacity(USES_BLOCK as usize + rows.len() + ALIGN as usize);
        block.extend_from_slice(&USES_BLOCK_MAGIC.to_le_bytes());
        // What is gathered for one block is bounded far below 2^32.
        for field in [segment, offset, uses.len() as u32, at.now, 0] {
            block.extend_from_slice(&field.to_le_bytes());
        }
        block.extend_from_slice(&payload_sum(&rows).to_le_bytes());
        block.extend_from_slice(&at.entries.to_le_bytes());
        seal(&mut block, at.seed);
        block.extend_from_slice(&rows);
        block.resize(aligned(block.len() as u64) as usize, 0);
        block
    }

    /// Reads the header of the block at `offset`; `None` if there is none.
    pub(crate) fn decode(block: &[u8], seed: u64, offset: u32) -> Option<Self> {
        let block = block.get(..USES_BLOCK as usize)?;
        let mut fields = Fields(block);
        if fields.u32()? != USES_BLOCK_MAGIC || !is_sealed(block, seed) {
            return None;
        }
        let segment = fields.u32()?;
        if fields.u32()? != offset {
            return None;
        }
        let (count, saved) = (fields.u32()?, fields.u32()?);
        fields.u32()?;
        Some(Self {
            segment,
            count,
            saved,
            rows_sum: fields.u64()?,
            entries: fields.u64()?,
        })
    }

    /// Bytes of the rows.
    pub(crate) fn rows_len(&self) -> u64 {
        u64::from(self.count) * Use::LEN as u64
    }

    /// Bytes from this block to the next.
    pub(crate) fn whole_len(&self) -> u64 {
        aligned(u64::from(USES_BLOCK) + self.rows_len())
    }
}

/// Last use of an entry, and the number of its uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Use {
    /// Offset of the entry's record in its segment.
    pub(crate) offset: u32,
    /// Seconds since 1970 of the last use.
    pub(crate) used: u32,
    /// Number of uses.
    pub(crate) hits: u16,
}

impl Use {
    /// Bytes of a row.
    pub(crate) const LEN: usize = 4 + 4 + 2;

    fn encode(&self) -> [u8; Self::LEN] {
        let mut row = [0; Self::LEN];
        let fields = self.offset.to_le_bytes().into_iter();
        let fields = fields.chain(self.used.to_le_bytes());
        for (target, byte) in row.iter_mut().zip(fields.chain(self.hits.to_le_bytes())) {
            *target = byte;
        }
        row
    }

    /// Reads the rows of a block.
    pub(crate) fn decode_all(rows: &[u8]) -> impl Iterator<Item = Self> {
        rows.as_chunks::<{ Self::LEN }>()
            .0
            .iter()
            .filter_map(|row| {
                let mut fields = Fields(row);
                Some(Self {
                    offset: fields.u32()?,
                    used: fields.u32()?,
                    hits: fields.u16()?,
                })
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const USES: [Use; 2] = [
        Use {
            offset: 64,
            used: 1_700_000_000,
            hits: 3,
        },
        Use {
            offset: 1 << 25,
            used: u32::MAX,
            hits: u16::MAX,
        },
    ];

    const SAVING: Saving = Saving {
        now: 99,
        entries: 12,
        seed: 5,
    };

    #[test]
    fn blocks_read_as_they_were_written() {
        let bytes = UsesBlock::encode(&USES, (7, 640), &SAVING);
        let block = UsesBlock::decode(&bytes, 5, 640).expect("valid");
        assert_eq!((block.segment, block.count, block.saved), (7, 2, 99));
        assert_eq!(block.entries, 12);
        assert_eq!(block.whole_len(), bytes.len() as u64);
        let rows = &bytes[USES_BLOCK as usize..][..block.rows_len() as usize];
        assert_eq!(payload_sum(rows), block.rows_sum);
        assert_eq!(Use::decode_all(rows).collect::<Vec<_>>(), USES);
        let header = UsesHeader { size: 4096 };
        let bytes = header.encode(&[3; 16], 5);
        assert_eq!(UsesHeader::decode(&bytes, &[3; 16], 5), Some(header));
    }

    #[test]
    fn no_changed_bit_cut_or_other_place_is_taken_for_valid() {
        let block = UsesBlock::encode(&USES, (7, 640), &SAVING);
        let header = UsesHeader { size: 4096 }.encode(&[3; 16], 5);
        for bit in 0..8 * USES_BLOCK as usize {
            let mut damaged = block.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(UsesBlock::decode(&damaged, 5, 640).is_none(), "{bit}");
        }
        for bit in 0..8 * USES_HEADER as usize {
            let mut damaged = header.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(UsesHeader::decode(&damaged, &[3; 16], 5).is_none(), "{bit}");
        }
        assert!(UsesBlock::decode(&block, 5, 656).is_none());
        assert!(UsesBlock::decode(&block, 6, 640).is_none());
        assert!(UsesBlock::decode(&block[..40], 5, 640).is_none());
        assert!(UsesHeader::decode(&header, &[4; 16], 5).is_none());
        assert!(UsesHeader::decode(&header[..60], &[3; 16], 5).is_none());
    }
}
