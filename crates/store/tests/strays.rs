//! Files in the directory that have names of segments and are none: they count for nothing. And the
//! last of all numbers is given once.

#[path = "support/home.rs"]
mod home;
#[path = "support/read.rs"]
mod read;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use millpond_store::{Event, Key, ManualClock, NotStored, Platform, Zone, ZoneConf};

use home::home;
use read::read;

const KEYS: u64 = 180;
const LEN: usize = 20_000;
/// The highest number that a segment can have.
const LAST: u32 = u32::MAX - 1;

struct Bench {
    home: tempfile::TempDir,
    told: Arc<Mutex<Vec<Event>>>,
}

impl Bench {
    fn new() -> Self {
        Self {
            home: home(),
            told: Arc::default(),
        }
    }

    fn path(&self) -> PathBuf {
        self.home.path().join("zone")
    }

    fn open(&self) -> Arc<Zone> {
        let conf = ZoneConf {
            max_size: Some(8 << 20),
            segment_size: Some(64 << 10),
            memory: 0,
            inactive: Duration::from_secs(1 << 30),
            ..ZoneConf::new("strays", self.path())
        };
        let told = Arc::clone(&self.told);
        let platform = Platform {
            events: Arc::new(move |event| told.lock().expect("whole").push(event.clone())),
            ..Platform::default()
        };
        let clock = Arc::new(ManualClock::new(1_790_000_000_000));
        Zone::open_on(conf, clock, platform).expect("opens")
    }

    fn count(&self, which: fn(&Event) -> bool) -> usize {
        let told = self.told.lock().expect("whole");
        told.iter().filter(|event| which(event)).count()
    }
}

fn key(number: u64) -> Key {
    Key::of(&number.to_le_bytes())
}

fn body(number: u64) -> Vec<u8> {
    vec![number as u8 | 1; LEN + number as usize]
}

fn store(zone: &Zone, number: u64) -> Result<(), NotStored> {
    let mut writer = zone.begin(key(number), None)?;
    writer.set_head(Bytes::from(number.to_string()));
    writer.append(Bytes::from(body(number)))?;
    writer.finish().map(|_| ())
}

/// Stores what can be, and checks all that is found; how many entries those are.
fn use_it(zone: &Zone) -> usize {
    for number in 0..KEYS {
        // What is not stored is not found.
        let _ = store(zone, number);
        zone.flush();
    }
    check(zone)
}

fn check(zone: &Zone) -> usize {
    let found = (0..KEYS).filter_map(|number| Some((number, zone.find(&key(number))?)));
    let check = |(number, entry): (u64, millpond_store::Entry)| {
        assert_eq!(**entry.head(), *number.to_string().as_bytes());
        let found = read(entry.regions(0..entry.len()));
        assert!(found == body(number), "{number}: other bytes");
    };
    found.map(check).count()
}

/// The numbers of the segments that there are.
fn numbers(path: &Path) -> Vec<u32> {
    let names = std::fs::read_dir(path).expect("list");
    let name = |entry: std::io::Result<std::fs::DirEntry>| entry.expect("entry").file_name();
    let names = names.map(name).filter_map(|name| name.into_string().ok());
    let mut numbers: Vec<u32> = names
        .filter_map(|name| name.strip_prefix("segment-")?.parse().ok())
        .collect();
    numbers.sort_unstable();
    numbers
}

#[test]
fn stray_file_with_the_name_of_a_segment_counts_for_nothing() {
    let contents: [&[u8]; 4] = [b"", b"somebody's", &[0; 8192], &[7; 8192]];
    for number in ["00000007", "4294967294", "4294967295", "99999999999"] {
        for content in contents {
            let bench = Bench::new();
            let zone = bench.open();
            assert!(store(&zone, 1).is_ok());
            drop(zone);
            let stray = bench.path().join(format!("segment-{number}"));
            std::fs::write(&stray, content).expect("written");
            for _ in 0..2 {
                let zone = bench.open();
                assert!(use_it(&zone) > 100, "segment-{number}");
                assert_eq!(
                    bench.count(|event| matches!(event, Event::NoNumbers { .. })),
                    0
                );
                zone.close();
            }
            let highest = numbers(&bench.path()).into_iter().filter(|id| *id < LAST);
            assert!(highest.max().expect("some") < 1000);
            // Where the name is not taken since, what cannot be a segment of anybody is left alone.
            let is_left = number.len() > 10 || number == "4294967295";
            assert!(
                number == "00000007" || stray.exists() == is_left,
                "{number}"
            );
        }
    }
}

/// Another name for a segment makes it none.
#[test]
fn segment_under_another_number_is_none() {
    let bench = Bench::new();
    let zone = bench.open();
    assert!(use_it(&zone) > 100);
    zone.close();
    let names = numbers(&bench.path());
    let path = |number: u32| bench.path().join(format!("segment-{number:08}"));
    let copied = names.first().expect("one");
    std::fs::copy(path(*copied), path(LAST)).expect("copied");
    let zone = bench.open();
    assert!(use_it(&zone) > 100);
    zone.close();
    assert!(numbers(&bench.path()).iter().all(|number| *number < 1000));
}

#[test]
fn zone_without_numbers_stores_nothing_and_says_so_once() {
    let bench = Bench::new();
    let zone = bench.open();
    zone.close();
    set_next(&bench.path(), LAST - 2);
    let zone = bench.open();
    let stored = (0..KEYS).take_while(|number| {
        let is_stored = store(&zone, *number).is_ok();
        zone.flush();
        is_stored
    });
    let stored = stored.count();
    assert!((3..KEYS as usize).contains(&stored), "{stored}");
    assert_eq!(store(&zone, 1), Err(NotStored::Disk));
    let found = check(&zone);
    assert!(found + 1 >= stored, "{found} of {stored}");
    assert_eq!(
        bench.count(|event| matches!(event, Event::NoNumbers { .. })),
        1
    );
    zone.close();
    assert_eq!(numbers(&bench.path()), [LAST - 2, LAST - 1, LAST]);
    let zone = bench.open();
    assert_eq!(check(&zone), found);
    let _ = store(&zone, 7);
    assert_eq!(check(&zone), found, "no number is given twice");
}

/// Writes down which number comes next, as a zone does.
fn set_next(path: &Path, next: u32) {
    let path = path.join("millpond.zone");
    let mut block = std::fs::read(&path).expect("read");
    block[40..44].copy_from_slice(&next.to_le_bytes());
    let sum = xxhash_rust::xxh3::xxh3_64_with_seed(&block[..48], 0);
    block[48..56].copy_from_slice(&sum.to_le_bytes());
    std::fs::write(&path, block).expect("written");
}
