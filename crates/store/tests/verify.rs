//! A verification reads everything, removes what is corrupt, and nothing else.

use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use millpond_store::{Fault, Key, ManualClock, Platform, SimIo, Verified, Zone, ZoneConf};

const ENTRIES: u64 = 60;

fn key(number: u64) -> Key {
    Key::of(&number.to_le_bytes())
}

/// Every fourth body is in slices; each has its number as a mark.
fn fill(zone: &Zone) {
    for number in 0..ENTRIES {
        let len = if number % 4 == 0 { 30_000 } else { 500 };
        let mut writer = zone.begin(key(number), None).expect("begun");
        writer.set_head(Bytes::from("head"));
        let mark = format!("<mark {number}>").repeat(4_000);
        writer
            .append(Bytes::from(mark).slice(..len))
            .expect("taken");
        writer.finish().expect("finished");
    }
    zone.flush();
}

/// Changes the first byte of an entry's body where it stands on the disk.
fn damage(dir: &Path, number: u64) {
    let mark = format!("<mark {number}>");
    for entry in std::fs::read_dir(dir).expect("list") {
        let path = entry.expect("entry").path();
        let bytes = std::fs::read(&path).expect("read");
        let found = bytes
            .windows(mark.len())
            .position(|window| window == mark.as_bytes());
        if let Some(at) = found {
            let file = std::fs::OpenOptions::new().write(true).open(&path);
            let written = file.expect("opened").write_all_at(b"!", at as u64);
            return written.expect("written");
        }
    }
    panic!("{mark} is nowhere");
}

fn zone(dir: &Path) -> (Arc<Zone>, Arc<SimIo>) {
    let conf = ZoneConf {
        max_size: Some(4 << 20),
        memory: 0,
        ..ZoneConf::new("verify", dir)
    };
    let io = Arc::new(SimIo::new());
    let platform = Platform {
        io: io.clone(),
        ..Platform::default()
    };
    let clock = Arc::new(ManualClock::new(1_790_000_000_000));
    (Zone::open_on(conf, clock, platform).expect("opens"), io)
}

#[test]
fn what_is_corrupt_is_removed_and_counted() {
    let dir = tempfile::tempdir().expect("directory");
    let (zone, _) = zone(dir.path());
    fill(&zone);
    let whole = zone.verify(&mut |_| true);
    assert_eq!((whole.entries, whole.corrupt), (ENTRIES, 0));
    assert!(whole.is_complete && whole.bytes > 15 * 30_000, "{whole:?}");
    for number in [3, 8] {
        damage(dir.path(), number);
    }
    let verified = zone.verify(&mut |_| true);
    assert_eq!((verified.corrupt, verified.unread), (2, 0));
    assert_eq!(zone.usage().corrupt, 2);
    for number in 0..ENTRIES {
        assert_eq!(zone.peek(&key(number)), number != 3 && number != 8);
    }
    let again = zone.verify(&mut |_| true);
    assert_eq!((again.entries, again.corrupt), (ENTRIES - 2, 0));
}

#[test]
fn what_the_disk_does_not_give_stays() {
    let dir = tempfile::tempdir().expect("directory");
    let (zone, io) = zone(dir.path());
    fill(&zone);
    io.set(Fault::ReadError);
    let verified = zone.verify(&mut |_| true);
    assert_eq!((verified.unread, verified.corrupt), (ENTRIES, 0));
    io.set(Fault::None);
    assert_eq!(zone.verify(&mut |_| true).unread, 0);
    assert!((0..ENTRIES).all(|number| zone.find(&key(number)).is_some()));
}

#[test]
fn it_ends_when_it_is_told_to() {
    let dir = tempfile::tempdir().expect("directory");
    let (zone, _) = zone(dir.path());
    fill(&zone);
    let mut steps = 0;
    let verified = zone.verify(&mut |progress| {
        assert_eq!(progress.all_entries, ENTRIES);
        steps += 1;
        steps < 10
    });
    assert!(!verified.is_complete && verified.entries < ENTRIES);
    zone.close();
    assert_eq!(zone.verify(&mut |_| true), Verified::default());
}
