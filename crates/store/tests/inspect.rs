//! Looking at a zone: every entry with its head, checksums, and nothing changed by it.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use millpond_store::{
    Checked, Glance, Key, Looked, StoreError, SystemClock, Touch, Zone, ZoneConf,
};

const BODY_LEN: usize = 100_000;

fn conf(dir: &Path) -> ZoneConf {
    let mut conf = ZoneConf::new("z", dir);
    conf.max_size = Some(64 << 20);
    conf.segment_size = Some(4 << 20);
    conf
}

fn open(dir: &Path) -> Arc<Zone> {
    Zone::open(conf(dir), Arc::new(SystemClock)).expect("the store")
}

fn open_still(dir: &Path, touch: Touch) -> Result<Arc<Zone>, StoreError> {
    Zone::open_still(
        conf(dir),
        Arc::new(SystemClock),
        (touch, Arc::new(|_| {}), Arc::default()),
    )
}

fn put(zone: &Zone, name: &str, body: Vec<u8>) {
    let mut writer = zone
        .begin(Key::of(name.as_bytes()), None)
        .expect("the store");
    writer.set_head(Bytes::copy_from_slice(name.as_bytes()));
    writer.append(Bytes::from(body)).expect("the store");
    writer.finish().expect("the store");
}

/// Small bodies and large ones by turns.
fn fill(zone: &Zone, count: usize) {
    for number in 0..count {
        let len = if number % 2 == 0 { 10 } else { BODY_LEN };
        put(zone, &format!("entry {number}"), vec![number as u8; len]);
    }
}

/// The heads of all entries, and what their checksums say.
fn look(zone: &Zone) -> BTreeMap<String, Checked> {
    let mut found = BTreeMap::new();
    let flow = zone.inspect(&mut |glance| {
        let Looked::Found(record) = glance.read() else {
            return ControlFlow::Continue(());
        };
        let name = String::from_utf8(record.head.to_vec()).expect("the store");
        assert_eq!(Key::of(name.as_bytes()), *glance.key());
        found.insert(name, check(glance));
        ControlFlow::Continue(())
    });
    assert_eq!(flow, ControlFlow::Continue(()));
    found
}

fn check(glance: &Glance) -> Checked {
    let mut bytes = 0;
    let checked = glance.verify(&mut |more| {
        bytes += more;
        ControlFlow::Continue(())
    });
    // What is on its way to the disk is not compared.
    assert!(checked != Checked::Sound || [0, glance.summary().body_len].contains(&bytes));
    checked
}

/// Files with their bytes.
fn snapshot(dir: &Path) -> BTreeMap<String, Vec<u8>> {
    let names = std::fs::read_dir(dir)
        .expect("the store")
        .map(|name| name.expect("a name"));
    names
        .map(|name| {
            let text = name.file_name().into_string().expect("the store");
            (text, std::fs::read(name.path()).expect("the store"))
        })
        .collect()
}

fn copy(from: &Path, to: &Path) {
    for (name, bytes) in snapshot(from) {
        std::fs::write(to.join(name), bytes).expect("the store");
    }
}

#[test]
fn every_entry_is_shown_once_and_not_marked_used() {
    let dir = tempfile::tempdir().unwrap();
    let zone = open(dir.path());
    fill(&zone, 100);
    let found = look(&zone);
    assert_eq!(found.len(), 100);
    assert!(found.values().all(|checked| *checked == Checked::Sound));
    zone.flush();
    assert_eq!(look(&zone), found);
    let glance = zone.glance(&Key::of(b"entry 1")).unwrap();
    assert_eq!(glance.summary().body_len, BODY_LEN as u64);
    assert!(!glance.summary().is_hit);
    assert!(zone.find(&Key::of(b"entry 1")).is_some());
    assert!(zone.glance(&Key::of(b"entry 1")).unwrap().summary().is_hit);
    assert!(zone.glance(&Key::of(b"no entry")).is_none());
    let stopped = glance.verify(&mut |_| ControlFlow::Break(()));
    assert_eq!(stopped, Checked::Stopped);
    let mut count = 0;
    let flow = zone.inspect(&mut |_| {
        count += 1;
        match count {
            10 => ControlFlow::Break(()),
            _ => ControlFlow::Continue(()),
        }
    });
    assert_eq!((flow, count), (ControlFlow::Break(()), 10));
    zone.remove(&Key::of(b"entry 1"));
    assert_eq!(
        (glance.read(), check(&glance)),
        (Looked::Gone, Checked::Gone)
    );
}

#[test]
fn whoever_looks_at_a_zone_at_rest_leaves_every_byte_as_it_was() {
    let dir = tempfile::tempdir().unwrap();
    let crashed = tempfile::tempdir().unwrap();
    let zone = open(dir.path());
    fill(&zone, 60);
    zone.sync();
    // What a process leaves that is killed now.
    copy(dir.path(), crashed.path());
    drop(zone);
    for dir in [dir.path(), crashed.path()] {
        let before = snapshot(dir);
        let zone = open_still(dir, Touch::Nothing).unwrap();
        assert_eq!(look(&zone).len(), 60);
        assert!(matches!(
            open_still(dir, Touch::Nothing),
            Err(StoreError::InUse { .. })
        ));
        zone.remove(&Key::of(b"entry 2"));
        zone.sweep();
        drop(zone);
        assert!(snapshot(dir) == before, "something changed");
        // A smaller limit evicts nothing either.
        let mut small = conf(dir);
        small.max_size = Some(1 << 20);
        let clock = Arc::new(SystemClock);
        let zone = Zone::open_still(
            small,
            clock,
            (Touch::Nothing, Arc::new(|_| {}), Arc::default()),
        )
        .unwrap();
        assert_eq!(look(&zone).len(), 60);
        drop(zone);
        assert!(snapshot(dir) == before, "something changed");
        assert_eq!(look(&open(dir)).len(), 60);
    }
}

#[test]
fn the_journal_alone_may_be_let_change() {
    let dir = tempfile::tempdir().unwrap();
    let zone = open(dir.path());
    fill(&zone, 10);
    drop(zone);
    let mut before = snapshot(dir.path());
    before.remove("millpond.journal").unwrap();
    let record = Bytes::from_static(b"purged");
    let zone = open_still(dir.path(), Touch::Journal).unwrap();
    if zone.note(&record).is_err() {
        zone.rewrite_journal(std::slice::from_ref(&record)).unwrap();
    }
    drop(zone);
    let mut after = snapshot(dir.path());
    after.remove("millpond.journal").unwrap();
    assert!(after == before, "something else changed");
    assert_eq!(open(dir.path()).take_journal().records, [record]);
}

#[test]
fn what_is_not_there_is_not_made() {
    let dir = tempfile::tempdir().unwrap();
    for path in [dir.path().to_path_buf(), dir.path().join("absent")] {
        let opened = open_still(&path, Touch::Journal);
        assert!(matches!(opened, Err(StoreError::Absent { .. })));
    }
    assert!(snapshot(dir.path()).is_empty());
    // Nor is one that is not understood set aside.
    std::fs::write(dir.path().join("millpond.zone"), [7; 4096]).unwrap();
    let before = snapshot(dir.path());
    assert!(open_still(dir.path(), Touch::Journal).is_err());
    assert!(snapshot(dir.path()) == before);
}

#[test]
fn a_changed_byte_is_found_and_what_is_corrupt_can_be_removed() {
    let dir = tempfile::tempdir().unwrap();
    let zone = open(dir.path());
    fill(&zone, 40);
    drop(zone);
    // Bytes of a large body, and of a record.
    for (name, bytes) in snapshot(dir.path()) {
        let mut bytes = bytes;
        if !name.starts_with("segment") {
            continue;
        }
        let body = [7u8; 5000];
        if let Some(at) = bytes.windows(body.len()).position(|window| window == body) {
            bytes[at + 100] ^= 1;
        }
        if let Some(at) = bytes.windows(8).position(|window| window == b"entry 12") {
            bytes[at] ^= 1;
        }
        std::fs::write(dir.path().join(name), bytes).unwrap();
    }
    let zone = open(dir.path());
    let mut corrupt = Vec::new();
    let flow = zone.inspect(&mut |glance| {
        if check(glance) == Checked::Corrupt {
            corrupt.push(*glance.key());
            glance.remove_corrupt();
        }
        ControlFlow::Continue(())
    });
    assert!(flow.is_continue());
    corrupt.sort_unstable();
    let mut expected = [Key::of(b"entry 7"), Key::of(b"entry 12")];
    expected.sort_unstable();
    assert_eq!(corrupt, expected);
    assert_eq!(zone.usage().corrupt, 2);
    assert_eq!(look(&zone).len(), 38);
    drop(zone);
    assert_eq!(look(&open(dir.path())).len(), 38);
}
