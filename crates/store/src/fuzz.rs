//! A door for fuzzing: the decoders of the disk's format, with checksums made right.
//!
//! Random bytes never have the right checksum, so a fuzzer would see nothing behind it. Only built
//! with `--cfg fuzzing`; nothing of the program uses it.

use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::disk::format::{
    FOOTER, Footer, RECORD_HEADER, RecordHeader, Row, SEGMENT_HEADER, SUPERBLOCK, SegmentHeader,
    SliceRef, Superblock,
};

const SEED: u64 = 7;

/// Hands bytes to every decoder; what is decoded must be encoded to something that reads alike.
///
/// # Panics
///
/// If a decoder breaks its promise.
pub fn decode_all(data: &[u8]) {
    if let Some(rows) = Row::decode_all(data) {
        let mut again = Vec::new();
        rows.iter().for_each(|row| row.encode(&mut again));
        assert_eq!(again.len(), data.len());
        assert_eq!(Row::decode_all(&again).as_ref(), Some(&rows));
        let offset = rows.first().map_or(0, |row| row.offset);
        assert_eq!(Row::void(&mut again, offset), !rows.is_empty());
    }
    let mut damaged = data.to_vec();
    Row::void(&mut damaged, 0);
    assert!(SliceRef::decode_table(data).len() <= data.len());
    record(data);
    footer(data);
    let block = resized(data, SEGMENT_HEADER as usize);
    if let Some(header) = SegmentHeader::decode(&sealed(&block, SEED), &[3; 16], SEED) {
        let again = header.encode(&[3; 16], SEED);
        assert_eq!(SegmentHeader::decode(&again, &[3; 16], SEED), Some(header));
    }
    let block = resized(data, SUPERBLOCK as usize);
    for file in [data, &block] {
        if let Some(superblock) = Superblock::decode(file) {
            assert_eq!(Superblock::decode(&superblock.encode()), Some(superblock));
        }
    }
}

fn record(data: &[u8]) {
    let mut block = resized(data, RECORD_HEADER as usize);
    // The place is the reader's to know.
    block[8..16].copy_from_slice(&[3, 0, 0, 0, 64, 0, 0, 0]);
    let Some(header) = RecordHeader::decode(&sealed(&block, SEED), SEED, (3, 64)) else {
        return;
    };
    // INVARIANT 3 of the format.
    assert!(u64::from(header.size) >= u64::from(RECORD_HEADER) + header.payload_len());
    let again = header.encode(SEED);
    assert_eq!(RecordHeader::decode(&again, SEED, (3, 64)), Some(header));
}

fn footer(data: &[u8]) {
    let mut block = resized(data, FOOTER as usize);
    block[12..16].copy_from_slice(&[3, 0, 0, 0]);
    if let Some(footer) = Footer::decode(&sealed(&block, SEED), SEED, 3, 1 << 20) {
        assert!(u64::from(footer.tail) + u64::from(footer.rows_len) <= 1 << 20);
        assert_eq!(
            Footer::decode(&footer.encode(SEED), SEED, 3, 1 << 20),
            Some(footer)
        );
    }
}

fn resized(data: &[u8], len: usize) -> Vec<u8> {
    let mut block = data.to_vec();
    block.resize(len, 0);
    block
}

/// The block with a right checksum at its end.
fn sealed(block: &[u8], seed: u64) -> Vec<u8> {
    let mut sealed = block.to_vec();
    sealed.truncate(block.len() - 8);
    let sum = xxh3_64_with_seed(&sealed, seed);
    sealed.extend_from_slice(&sum.to_le_bytes());
    sealed
}
