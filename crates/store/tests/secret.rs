//! The secret of a zone: where it comes from, where it stands, and that all disks have the same.

use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use millpond_store::{
    DiskConf, Event, Key, ManualClock, Platform, RealIo, StoreError, Zone, ZoneConf,
};
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Range of the zone's identity in the superblock.
const UUID: std::ops::Range<usize> = 16..32;
const SECRET: std::ops::Range<usize> = 112..128;
const SECRET_SUM: std::ops::Range<usize> = 128..136;
const ENTRIES: u64 = 60;

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

    fn try_open(&self, names: &[&str]) -> Result<Arc<Zone>, StoreError> {
        let disk = |name: &&str| DiskConf {
            path: self.path(name),
            weight: 1,
        };
        let conf = ZoneConf {
            disks: names[1..].iter().map(disk).collect(),
            max_size: Some(64 << 20),
            flush: Duration::ZERO,
            ..ZoneConf::new("secret", self.path(names[0]))
        };
        let events = Arc::clone(&self.events);
        let platform = Platform {
            io: Arc::new(RealIo),
            events: Arc::new(move |event| events.lock().expect("whole").push(event.clone())),
            ..Platform::default()
        };
        Zone::open_on(conf, self.clock.clone(), platform)
    }

    fn open(&self, names: &[&str]) -> Arc<Zone> {
        self.try_open(names).expect("opens")
    }

    fn superblock(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.path(name).join("millpond.zone")).expect("superblock")
    }

    fn secret(&self, name: &str) -> Vec<u8> {
        self.superblock(name)[SECRET].to_vec()
    }

    fn cleared(&self, name: &str) -> bool {
        let path = self.path(name).display().to_string();
        let told = Event::DiskCleared { path };
        self.events.lock().expect("whole").contains(&told)
    }
}

fn text(number: u64) -> Vec<u8> {
    format!("http://host/{number}").into_bytes()
}

fn key(zone: &Zone, number: u64) -> Key {
    zone.keys().of(&text(number))
}

fn fill(zone: &Zone) {
    for number in 0..ENTRIES {
        let mut writer = zone.begin(key(zone, number), None).expect("begun");
        writer.set_head(Bytes::from(text(number)));
        writer.append(Bytes::from(text(number))).expect("taken");
        writer.finish().expect("finished");
    }
    zone.sync();
}

fn found(zone: &Zone) -> u64 {
    let is_found = |number: &u64| {
        let entry = zone.find(&key(zone, *number));
        entry.is_some_and(|entry| *entry.head() == text(*number))
    };
    (0..ENTRIES).filter(is_found).count() as u64
}

/// Gives a disk another secret, in a superblock that is valid otherwise.
fn change_secret(dir: &Path) {
    let path = dir.join("millpond.zone");
    let block = std::fs::read(&path).expect("superblock");
    let zone_seed = xxh3_64_with_seed(&block[UUID], 1);
    let secret = [0x5a; 16];
    let sum = xxh3_64_with_seed(&secret, zone_seed).to_le_bytes();
    assert_ne!(block[SECRET], secret);
    let file = std::fs::OpenOptions::new().write(true).open(path);
    let file = file.expect("superblock");
    let parts = [(SECRET, &secret[..]), (SECRET_SUM, &sum[..])];
    for (range, bytes) in parts {
        file.write_all_at(bytes, range.start as u64)
            .expect("written");
    }
}

/// Nobody can tell the keys of one zone from another, and entries are found after a restart.
#[test]
fn each_zone_draws_a_secret_and_keeps_it() {
    let bench = Bench::new();
    let (one, other) = (bench.open(&["a"]), bench.open(&["b"]));
    assert_ne!(key(&one, 1), key(&other, 1));
    assert_ne!(bench.secret("a"), bench.secret("b"));
    fill(&one);
    let (before, secret) = (key(&one, 1), bench.secret("a"));
    one.close();
    let one = bench.open(&["a"]);
    assert_eq!((key(&one, 1), bench.secret("a")), (before, secret));
    assert_eq!(found(&one), ENTRIES);
}

#[test]
fn all_disks_of_a_zone_have_one_secret() {
    let bench = Bench::new();
    let zone = bench.open(&["a", "b", "c"]);
    fill(&zone);
    let secrets = ["a", "b", "c"].map(|name| bench.secret(name));
    assert!(secrets.iter().all(|secret| *secret == secrets[0]));
    let before = key(&zone, 1);
    zone.close();
    // Whichever comes first.
    let zone = bench.open(&["c", "a", "b"]);
    assert_eq!((key(&zone, 1), found(&zone)), (before, ENTRIES));
    assert_eq!(bench.secret("b"), secrets[0]);
}

#[test]
fn disk_that_comes_to_a_zone_gets_its_secret() {
    let bench = Bench::new();
    let zone = bench.open(&["a"]);
    let before = key(&zone, 1);
    zone.close();
    // Once at the start, once by a reload, and once after it was used elsewhere.
    let zone = bench.open(&["a", "b"]);
    assert_eq!(key(&zone, 1), before);
    assert_eq!(bench.secret("b"), bench.secret("a"));
    zone.close();
    let elsewhere = bench.open(&["c"]);
    fill(&elsewhere);
    elsewhere.close();
    assert_ne!(bench.secret("c"), bench.secret("a"));
    let zone = bench.open(&["a", "b", "c"]);
    zone.wait_for_disks();
    assert_eq!(key(&zone, 1), before);
    assert!(bench.cleared("c"));
    assert_eq!(bench.secret("c"), bench.secret("a"));
    fill(&zone);
    assert_eq!(found(&zone), ENTRIES);
}

/// A disk of the right set and generation is emptied if nobody can make its keys.
#[test]
fn disk_with_another_secret_is_emptied() {
    let bench = Bench::new();
    let zone = bench.open(&["a", "b"]);
    fill(&zone);
    let before = key(&zone, 1);
    zone.close();
    change_secret(&bench.path("b"));
    let zone = bench.open(&["a", "b"]);
    assert!(bench.cleared("b") && !bench.cleared("a"));
    assert_eq!(
        (key(&zone, 1), bench.secret("b")),
        (before, bench.secret("a"))
    );
    let left = found(&zone);
    assert!(0 < left && left < ENTRIES, "{left}");
    fill(&zone);
    assert_eq!(found(&zone), ENTRIES);
}

/// Whoever holds keys of a zone holds them for as long as it is open.
#[test]
fn zone_keeps_its_secret_over_a_loan_from_which_it_comes_back_emptied() {
    let bench = Bench::new();
    let zone = bench.open(&["a"]);
    fill(&zone);
    let (before, secret) = (key(&zone, 1), bench.secret("a"));
    zone.lend();
    std::fs::remove_dir_all(bench.path("a")).expect("removed");
    let borrower = bench.open(&["a"]);
    fill(&borrower);
    assert_ne!(bench.secret("a"), secret);
    borrower.close();
    zone.take_back().expect("taken back");
    assert_eq!((key(&zone, 1), bench.secret("a")), (before, secret));
    assert!(bench.cleared("a"));
    assert_eq!(found(&zone), 0);
    fill(&zone);
    assert_eq!(found(&zone), ENTRIES);
}

/// A superblock whose secret is damaged is none: what it holds would never be found.
#[test]
fn damaged_secret_sets_the_store_aside() {
    let bench = Bench::new();
    let zone = bench.open(&["a"]);
    fill(&zone);
    zone.close();
    let file = std::fs::OpenOptions::new()
        .write(true)
        .open(bench.path("a").join("millpond.zone"))
        .expect("superblock");
    let byte = bench.secret("a")[3] ^ 1;
    file.write_all_at(&[byte], SECRET.start as u64 + 3)
        .expect("written");
    let zone = bench.open(&["a"]);
    assert_eq!(zone.usage().entries, 0);
    let events = bench.events.lock().expect("whole");
    let is_told = |event: &Event| matches!(event, Event::SetAside { .. });
    assert!(events.iter().any(is_told), "{events:?}");
}
