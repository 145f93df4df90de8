//! A zone of more than a tebibyte, of segments that are holes but for a record and a summary each.
//!
//! It is made as the format says and not by storing: nobody waits for a tebibyte to be written.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::format::{
    Footer, Kind, RECORD_HEADER, RecordHeader, Row, SEGMENT_HEADER, SegmentHeader, aligned,
    payload_sum, record_start,
};
use super::io::{DiskIo, RealIo};
use super::segment::file_cost;
use super::segment_name;
use crate::clock::ManualClock;
use crate::event::Platform;
use crate::key::Key;
use crate::recover::{How, Parents, Start};
use crate::site::Account;
use crate::volume::{Volume, ZoneConf};

const SIZE: u32 = 256 << 20;
/// Together somewhat more than a tebibyte.
const COUNT: u32 = 4_200;
const NOW_MS: u64 = 1_790_000_000_000;

fn key(number: u32) -> Key {
    Key::from_halves(number.into(), u64::MAX)
}

fn open(dir: &Path, max_size: u64) -> Arc<Volume> {
    let conf = ZoneConf {
        max_size: Some(max_size),
        memory: 0,
        // A body is appended in one go, which the disk may not have begun to write.
        queue: 256 << 20,
        inactive: Duration::from_secs(1_000_000),
        ..ZoneConf::new("huge", dir)
    };
    let how = How {
        start: Start::Resume,
        parents: Parents::Make,
        secret: None,
    };
    let clock = Arc::new(ManualClock::new(NOW_MS));
    Volume::open(conf, (clock, Platform::default()), how).expect("opens")
}

/// Writes a segment with one entry, which has a head and no body.
fn make_segment(dir: &Path, id: u32, (uuid, seed): (&[u8; 16], u64)) {
    let file = RealIo.create(&dir.join(segment_name(id)), 1).expect("made");
    file.set_len(SIZE.into()).expect("as long");
    let write = |bytes: Vec<u8>, at: u64| {
        let wrote = RealIo.write_at(&file, &[Bytes::from(bytes)], at);
        wrote.expect("written");
    };
    let header = SegmentHeader {
        segment: id,
        size: SIZE,
        rows: 1,
        created_ms: NOW_MS,
    };
    write(header.encode(uuid, seed), 0);
    let head = id.to_le_bytes();
    let offset = record_start(SEGMENT_HEADER);
    let size = aligned(u64::from(RECORD_HEADER) + head.len() as u64) as u32;
    let record = RecordHeader {
        kind: Kind::Entry,
        segment: id,
        offset,
        size,
        head_len: head.len() as u32,
        key: key(id),
        created_ms: NOW_MS,
        body_len: 0,
        count: 0,
        inline_len: 0,
        payload_sum: payload_sum(&head),
    };
    let mut bytes = record.encode(seed);
    bytes.extend_from_slice(&head);
    write(bytes, offset.into());
    let mut rows = Vec::new();
    let row = Row {
        kind: Kind::Entry,
        key: key(id),
        offset,
        size,
        body_len: 0,
        is_sliced: false,
        account: Account::default(),
        needs: Vec::new(),
    };
    row.encode(&mut rows);
    let footer = Footer {
        segment: id,
        tail: offset + size,
        rows_len: rows.len() as u32,
        rows_sum: payload_sum(&rows),
        sites_len: 0,
        sites_sum: 0,
    };
    let end = u64::from(SIZE - footer.summary_len());
    rows.extend_from_slice(&footer.encode(seed));
    write(rows, end);
}

fn held(volume: &Volume) -> Vec<u32> {
    let is_there = |number: &u32| {
        let found = volume.find(&key(*number));
        found
            .inspect(|entry| assert_eq!(**entry.head(), number.to_le_bytes()))
            .is_some()
    };
    (1..=COUNT).filter(is_there).collect()
}

/// Entries of such a zone are all found, new ones replace the oldest, and a limit that is lowered
/// is kept to.
#[test]
fn zone_of_more_than_a_tebibyte_is_opened_filled_and_trimmed() {
    const TEBIBYTE: u64 = 1 << 40;
    let home = tempfile::tempdir().expect("directory");
    let dir = home.path();
    let volume = open(dir, 4 * TEBIBYTE);
    volume.close();
    let (uuid, seed) = (volume.inner.disk.uuid, volume.inner.disk.seed);
    drop(volume);
    let first = 1;
    (first..=COUNT).for_each(|id| make_segment(dir, id, (&uuid, seed)));

    let volume = open(dir, 4 * TEBIBYTE);
    assert!(volume.loaded());
    let bytes = volume.usage().bytes;
    assert!(bytes > TEBIBYTE + TEBIBYTE / 50, "{bytes}");
    assert_eq!(volume.usage().entries, u64::from(COUNT));
    assert_eq!(held(&volume).len(), COUNT as usize);
    volume.close();
    drop(volume);

    // Room for all that there is, and for no other segment.
    let limit = bytes + u64::from(SIZE) / 2;
    let volume = open(dir, limit);
    for number in 0..3 {
        let mut writer = volume.begin(key(COUNT + 1 + number), None).expect("begun");
        writer.set_head(Bytes::from_static(b"new"));
        writer
            .append(Bytes::from(vec![7; 100_000_000]))
            .expect("taken");
        writer.finish().expect("stored");
        volume.flush();
        assert!(volume.usage().bytes <= limit);
    }
    let left = held(&volume);
    assert!(
        left.len() < COUNT as usize && left.len() > COUNT as usize - 5,
        "{}",
        left.len()
    );
    assert_eq!(left.last(), Some(&COUNT));
    assert!(
        volume
            .find(&key(COUNT + 3))
            .is_some_and(|entry| entry.len() == 100_000_000)
    );
    volume.close();
    drop(volume);

    let volume = open(dir, TEBIBYTE);
    assert!(volume.usage().bytes <= TEBIBYTE);
    let most = TEBIBYTE / file_cost(SIZE);
    let left = held(&volume).len() as u64;
    assert!((most - 5..=most).contains(&left), "{left} of {most}");
    assert!(volume.find(&key(COUNT + 3)).is_some());
    volume.close();
}
