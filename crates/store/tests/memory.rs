//! The memory tier takes no more of the process than its size. A process of its own, so that
//! nothing else is measured.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use millpond_store::{Key, SystemClock, Zone, ZoneConf};

const LIMIT: u64 = 24 << 20;

/// Bytes of memory that the process takes now.
fn resident() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("statm");
    let pages = statm.split_whitespace().nth(1).expect("a number");
    pages.parse::<u64>().expect("a number") * 4096
}

fn key(number: u32) -> Key {
    Key::of(&number.to_le_bytes())
}

fn store(zone: &Arc<Zone>, number: u32, len: usize) {
    let mut writer = zone.begin(key(number), None).expect("begun");
    writer.set_head(Bytes::from(vec![b'h'; 200]));
    writer
        .append(Bytes::from(vec![number as u8; len]))
        .expect("taken");
    writer.finish().expect("finished");
    if number.is_multiple_of(256) {
        zone.flush();
    }
}

#[test]
fn the_tier_takes_no_more_than_its_size_of_the_process() {
    let dir = tempfile::tempdir().expect("directory");
    let conf = ZoneConf {
        memory: 0,
        flush: Duration::ZERO,
        ..ZoneConf::new("memory", dir.path())
    };
    let zone = Zone::open(conf.clone(), Arc::new(SystemClock)).expect("open");
    // From next to nothing to the largest that stand beside their head.
    let len = |number: u32| [10, 300, 1000, 5000][number as usize % 4];
    for number in 0..24_000 {
        store(&zone, number, len(number));
    }
    zone.flush();
    zone.change(ZoneConf {
        memory: LIMIT,
        ..conf
    });
    let before = resident();
    for round in 0..2 {
        for number in 0..24_000 {
            assert!(zone.find(&key(number)).is_some());
            assert!(zone.usage().memory_bytes <= LIMIT, "{round} {number}");
        }
    }
    let taken = resident() - before;
    // A sixteenth and a megabyte for what the allocator keeps besides, at other times for others.
    assert!(taken <= LIMIT / 16 * 17 + (1 << 20), "{taken} of {LIMIT}");
    let counted = zone.usage().memory_bytes;
    assert!(counted > LIMIT / 10 * 9, "{counted} of {LIMIT}");
    println!("{LIMIT} bytes allowed, {counted} counted, {taken} taken");
}
