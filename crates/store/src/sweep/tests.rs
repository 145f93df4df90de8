//! Tests of eviction and inactivity.

use std::time::Duration;

use super::*;
use crate::clock::ManualClock;
use crate::event::Platform;
use crate::recover::{How, Parents, Start};
use crate::volume::{Volume, ZoneConf};

fn store(volume: &Volume, key: &Key, len: usize) {
    let mut writer = volume.begin(*key, Some(len as u64)).expect("begun");
    writer.set_head(Bytes::from_static(b"head"));
    writer.append(Bytes::from(vec![7; len])).expect("taken");
    writer.finish().expect("stored");
    volume.flush();
}

/// Known to the segment of its slices by each of its heads at first, then by the last one only;
/// and it goes with that segment.
#[test]
fn entry_whose_head_is_replaced_ever_so_often_is_known_to_its_segment_once() {
    let home = tempfile::tempdir().expect("directory");
    let conf = ZoneConf {
        max_size: Some(16 << 20),
        segment_size: Some(64 << 10),
        small: 0,
        memory: 0,
        flush: Duration::from_secs(3600),
        ..ZoneConf::new("sweep", home.path())
    };
    let how = How {
        start: Start::Resume,
        parents: Parents::Make,
        secret: None,
    };
    let clock = Arc::new(ManualClock::new(1_700_000_000_000));
    let volume = Volume::open(conf, (clock, Platform::default()), how).expect("opens");
    let key = Key([1; 16]);
    store(&volume, &key, 40_000);
    // What follows stands in another segment.
    store(&volume, &Key([2; 16]), 40_000);
    let known = || -> usize {
        let log = lock(&volume.inner.disk.log);
        log.segments
            .values()
            .map(|it| it.dependents.iter().count())
            .sum()
    };
    let before = known();
    for _ in 0..500 {
        let entry = volume.find(&key).expect("there");
        let replaced = volume.replace_head(&entry, Bytes::from_static(b"other"));
        replaced.expect("replaced");
        volume.flush();
    }
    assert!(known() >= before + 500, "{}", known());
    volume.sweep();
    assert!(known() <= before + 1, "{}", known());
    assert!(volume.find(&key).is_some());
    let oldest = *lock(&volume.inner.disk.log)
        .segments
        .keys()
        .next()
        .expect("one");
    volume.inner.evict_if_oldest(oldest);
    // The body of the other one begins there, too.
    assert_eq!(volume.inner.index.count(), 0);
    assert!(volume.find(&key).is_none());
}
