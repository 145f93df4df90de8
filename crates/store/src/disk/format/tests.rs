//! Every structure: encoded, decoded, cut short, and with each bit flipped.

use super::*;
use crate::site::Role;

const SEED: u64 = 7;

fn header() -> RecordHeader {
    RecordHeader {
        kind: Kind::Entry,
        segment: 3,
        offset: 64,
        size: 96,
        head_len: 10,
        key: Key([9; 16]),
        created_ms: 1_700_000_000_000,
        body_len: 5,
        count: 0,
        inline_len: 5,
        payload_sum: 1,
    }
}

fn row(needs: &[u32]) -> Row {
    Row {
        kind: Kind::Entry,
        key: Key([1; 16]),
        offset: 64,
        size: 96,
        body_len: 1 << 40,
        is_sliced: !needs.is_empty(),
        account: Account::new(5, Role::Slice),
        needs: needs.to_vec(),
    }
}

#[test]
fn structures_have_their_documented_sizes() {
    let superblock = Superblock {
        uuid: [1; 16],
        created_ms: 5,
        shutdown: Shutdown::Clean,
        next_segment: 2,
        membership: None,
        live: Vec::new(),
        secret: Secret([6; 16]),
    };
    let segment = SegmentHeader {
        segment: 1,
        size: 4096,
        rows: 0,
        created_ms: 5,
    };
    let footer = Footer {
        segment: 1,
        tail: 64,
        rows_len: 0,
        rows_sum: 0,
        sites_len: 0,
        sites_sum: 0,
    };
    let table = [
        ("superblock", superblock.encode().len(), SUPERBLOCK as usize),
        ("segment header", segment.encode(&[1; 16], SEED).len(), 64),
        ("record header", header().encode(SEED).len(), 80),
        ("footer", footer.encode(SEED).len(), 64),
    ];
    for (name, len, expected) in table {
        assert_eq!(len, expected, "{name}");
    }
}

#[test]
fn superblock_survives_and_no_bit_may_flip() {
    let superblock = Superblock {
        uuid: [0x5a; 16],
        created_ms: 77,
        shutdown: Shutdown::Unclean,
        next_segment: 12,
        membership: Some(Membership {
            set: [3; 16],
            generation: 9,
            disks: 0x1234_5678,
        }),
        live: Vec::new(),
        secret: Secret([0xa7; 16]),
    };
    let bytes = superblock.encode();
    assert_eq!(Superblock::decode(&bytes), Some(superblock.clone()));
    for bit in MEMBERSHIP_AT * 8..(MEMBERSHIP_AT + MEMBERSHIP_USED) * 8 {
        let mut bad = bytes.clone();
        bad[bit / 8] ^= 1 << (bit % 8);
        let alone = Superblock {
            membership: None,
            ..superblock.clone()
        };
        assert_eq!(Superblock::decode(&bad), Some(alone), "bit {bit}");
    }
    for bit in (0..SUPERBLOCK_USED * 8).chain(SECRET_AT * 8..(SECRET_AT + SECRET_USED) * 8) {
        let mut bad = bytes.clone();
        bad[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(Superblock::decode(&bad), None, "bit {bit}");
    }
}

#[test]
fn superblock_without_a_secret_is_known_as_such() {
    let mut block = SUPERBLOCK_MAGIC.to_le_bytes().to_vec();
    block.extend_from_slice(&UNKEYED_VERSION.to_le_bytes());
    block.resize(SUPERBLOCK_USED - 8, 9);
    seal(&mut block, 0);
    block.resize(SUPERBLOCK as usize, 0);
    assert!(Superblock::is_unkeyed(&block) && Superblock::decode(&block).is_none());
    for bit in 0..SUPERBLOCK_USED * 8 {
        let mut bad = block.clone();
        bad[bit / 8] ^= 1 << (bit % 8);
        assert!(!Superblock::is_unkeyed(&bad), "bit {bit}");
    }
    assert!(!Superblock::is_unkeyed(b""));
}

#[test]
fn record_header_is_valid_at_its_own_position_only() {
    let bytes = header().encode(SEED);
    assert_eq!(RecordHeader::decode(&bytes, SEED, (3, 64)), Some(header()));
    for (seed, at) in [(SEED, (3, 80)), (SEED, (4, 64)), (SEED + 1, (3, 64))] {
        assert_eq!(
            RecordHeader::decode(&bytes, seed, at),
            None,
            "{seed} {at:?}"
        );
    }
    for bit in 0..bytes.len() * 8 {
        let mut bad = bytes.clone();
        bad[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(RecordHeader::decode(&bad, SEED, (3, 64)), None, "bit {bit}");
    }
    for len in 0..bytes.len() {
        assert_eq!(RecordHeader::decode(&bytes[..len], SEED, (3, 64)), None);
    }
}

#[test]
fn record_header_with_lengths_that_disagree_is_refused() {
    type Change = fn(&mut RecordHeader);
    let table: [(&str, Change); 4] = [
        ("size too small", |h| h.size = 80),
        ("size too large", |h| h.size = 112),
        ("inline is not the body", |h| h.body_len = 6),
        ("huge count", |h| h.count = u32::MAX),
    ];
    for (name, change) in table {
        let mut bad = header();
        change(&mut bad);
        let bytes = bad.encode(SEED);
        assert_eq!(RecordHeader::decode(&bytes, SEED, (3, 64)), None, "{name}");
    }
}

#[test]
fn rows_survive_and_cut_rows_are_refused() {
    let rows = vec![row(&[]), row(&[1, 2, 9])];
    let mut bytes = Vec::new();
    for row in &rows {
        row.encode(&mut bytes);
    }
    let len: u32 = rows.iter().map(Row::encoded_len).sum();
    assert_eq!(bytes.len(), len as usize);
    assert_eq!(Row::decode_all(&bytes), Some(rows));
    for cut in [1, 39, 41, bytes.len() - 1] {
        assert_eq!(Row::decode_all(&bytes[..cut]), None, "{cut}");
    }
}

#[test]
fn voided_row_is_a_tombstone_and_the_others_stay() {
    let mut rows = [row(&[3]), row(&[1, 2, 9]), row(&[])];
    let mut bytes = Vec::new();
    for (index, row) in rows.iter_mut().enumerate() {
        row.offset = 64 + 96 * index as u32;
        row.encode(&mut bytes);
    }
    assert!(Row::void(&mut bytes, rows[1].offset));
    assert!(!Row::void(&mut bytes, 1));
    rows[1].kind = Kind::Tombstone;
    assert_eq!(Row::decode_all(&bytes), Some(rows.to_vec()));
}

#[test]
fn footer_must_fit_its_segment() {
    let footer = Footer {
        segment: 8,
        tail: 1000,
        rows_len: 80,
        rows_sum: 4,
        sites_len: 10,
        sites_sum: 6,
    };
    let bytes = footer.encode(SEED);
    assert_eq!(Footer::decode(&bytes, SEED, 8, 4096), Some(footer));
    assert_eq!(Footer::decode(&bytes, SEED, 8, 1153), None);
    assert!(Footer::decode(&bytes, SEED, 8, 1154).is_some());
    assert_eq!(Footer::decode(&bytes, SEED, 9, 4096), None);
}

#[test]
fn table_of_sites_survives_and_ends_where_it_is_cut_off() {
    let sites: [(u16, &[u8]); 3] = [(2, b"one.example"), (4095, b""), (7, &[b'x'; 255])];
    let mut table = Vec::new();
    let mut len = 0;
    for (number, name) in sites {
        encode_site(&mut table, number, name);
        len += site_len(name);
        assert_eq!(table.len(), len as usize);
    }
    assert!(decode_sites(&table).eq(sites));
    for cut in 0..table.len() {
        assert!(decode_sites(&table[..cut]).count() < 3, "cut to {cut}");
    }
    encode_site(&mut table, 8, &[b'y'; 300]);
    assert_eq!(
        decode_sites(&table).last().map(|(_, name)| name.len()),
        Some(255)
    );
}

#[test]
fn slice_table_survives() {
    let slices = vec![
        SliceRef {
            segment: 1,
            offset: 64,
            len: 1 << 20,
            checksum: 5,
        };
        3
    ];
    let mut table = Vec::new();
    for slice in &slices {
        slice.encode(&mut table);
    }
    assert_eq!(table.len(), 3 * SLICE_REF as usize);
    assert_eq!(SliceRef::decode_table(&table), slices);
}
