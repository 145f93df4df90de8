//! A directory that somebody empties, or replaces, while the zone is open: it begins anew there.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use millpond_store::{
    DiskConf, DiskState, Event, Key, ManualClock, NotStored, Platform, Zone, ZoneConf,
};

struct Bench {
    dir: tempfile::TempDir,
    clock: Arc<ManualClock>,
    events: Arc<Mutex<Vec<Event>>>,
}

impl Bench {
    fn new() -> Self {
        Self {
            dir: tempfile::tempdir().expect("directory"),
            clock: Arc::new(ManualClock::new(1_700_000_000_000)),
            events: Arc::default(),
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// A zone on these disks.
    fn open(&self, names: &[&str]) -> Arc<Zone> {
        let mut disks = names.iter().map(|name| DiskConf {
            path: self.path(name),
            weight: 1,
        });
        let first = disks.next().expect("a disk");
        let conf = ZoneConf {
            disks: disks.collect(),
            max_size: Some(64 << 20),
            memory: 1 << 20,
            ..ZoneConf::new("test", first.path)
        };
        let events = Arc::clone(&self.events);
        let platform = Platform {
            events: Arc::new(move |event| events.lock().expect("events").push(event.clone())),
            ..Platform::default()
        };
        Zone::open_on(conf, self.clock.clone(), platform).expect("opened")
    }

    /// Sweeps until all disks are in use again.
    fn until_back(&self, zone: &Zone) {
        for _ in 0..50 {
            self.clock.advance(Duration::from_secs(61));
            zone.sweep();
            zone.wait_for_disks();
            if zone
                .disks()
                .iter()
                .all(|disk| disk.state == DiskState::Live)
            {
                return;
            }
        }
        panic!("not all disks are back: {:?}", zone.disks());
    }

    fn failures(&self) -> usize {
        let events = self.events.lock().expect("events");
        let is_failure = |event: &&Event| matches!(event, Event::DiskFailed { .. });
        events.iter().filter(is_failure).count()
    }
}

fn key(number: u64) -> Key {
    Key::of(&number.to_le_bytes())
}

fn store(zone: &Zone, number: u64) -> Result<(), NotStored> {
    let mut writer = zone.begin(key(number), None)?;
    writer.set_head(Bytes::from_static(b"head"));
    writer.append(Bytes::from(vec![7; 100]))?;
    writer.finish()?;
    zone.flush();
    Ok(())
}

fn count(zone: &Zone) -> usize {
    (0..100)
        .filter(|number| zone.find(&key(*number)).is_some())
        .count()
}

fn empty(dir: &Path) {
    for entry in std::fs::read_dir(dir).expect("listed") {
        std::fs::remove_file(entry.expect("entry").path()).expect("removed");
    }
}

#[test]
fn an_emptied_directory_is_noticed_and_filled_anew() {
    let bench = Bench::new();
    let zone = bench.open(&["a"]);
    (0..100).for_each(|number| store(&zone, number).expect("stored"));
    zone.sweep();
    assert_eq!((count(&zone), bench.failures()), (100, 0));
    empty(&bench.path("a"));
    zone.sweep();
    assert_eq!(count(&zone), 0);
    assert_eq!(store(&zone, 0), Err(NotStored::Disk));
    bench.until_back(&zone);
    assert_eq!((count(&zone), bench.failures()), (0, 1));
    store(&zone, 7).expect("stored");
    zone.sweep();
    assert_eq!(count(&zone), 1);
    zone.close();
    assert_eq!(count(&bench.open(&["a"])), 1);
    assert_eq!(bench.failures(), 1);
}

#[test]
fn another_directory_in_its_place_is_noticed() {
    let bench = Bench::new();
    let zone = bench.open(&["a"]);
    (0..100).for_each(|number| store(&zone, number).expect("stored"));
    std::fs::rename(bench.path("a"), bench.path("old")).expect("renamed");
    std::fs::create_dir(bench.path("a")).expect("created");
    zone.sweep();
    bench.until_back(&zone);
    assert_eq!((count(&zone), bench.failures()), (0, 1));
    store(&zone, 7).expect("stored");
    zone.close();
    assert_eq!(count(&bench.open(&["a"])), 1);
}

#[test]
fn a_file_in_its_place_is_noticed() {
    let bench = Bench::new();
    let zone = bench.open(&["a"]);
    store(&zone, 0).expect("stored");
    std::fs::remove_dir_all(bench.path("a")).expect("removed");
    std::fs::write(bench.path("a"), "").expect("written");
    zone.sweep();
    bench.clock.advance(Duration::from_secs(61));
    zone.sweep();
    zone.wait_for_disks();
    assert_eq!((count(&zone), bench.failures()), (0, 1));
    std::fs::remove_file(bench.path("a")).expect("removed");
    bench.until_back(&zone);
    store(&zone, 0).expect("stored");
    assert_eq!((count(&zone), bench.failures()), (1, 1));
}

#[test]
fn of_several_disks_an_emptied_one_loses_its_own_share() {
    let bench = Bench::new();
    let zone = bench.open(&["a", "b"]);
    (0..100).for_each(|number| store(&zone, number).expect("stored"));
    let of_b = zone.disks().pop().expect("two disks").usage.entries;
    empty(&bench.path("b"));
    zone.sweep();
    bench.until_back(&zone);
    assert_eq!(count(&zone) as u64, 100 - of_b);
    (0..100).for_each(|number| store(&zone, number).expect("stored"));
    assert_eq!((count(&zone), bench.failures()), (100, 1));
}
