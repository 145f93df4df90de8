//! A zone gives its space back when nothing lives in it, with and without `max_size`.
//!
//! nginx unlinks the file of each entry; a log unlinks segments. The rules: what is inactive or
//! removed leaves no segment behind; one entry that stays keeps no more than a few; and nothing
//! that was removed or replaced comes back for it, also after a crash, which is a copy of the
//! directory here.

#[path = "support/home.rs"]
mod home;
#[path = "support/random.rs"]
mod random;
#[path = "support/seeds.rs"]
mod seeds;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use millpond_store::{Key, ManualClock, Platform, Zone, ZoneConf};

use home::home;
use random::Random;
use seeds::{run_each, seeds};

const SEGMENT: u64 = 256 << 10;
const INACTIVE: Duration = Duration::from_secs(600);
/// Bytes that a zone without entries keeps: the superblock, the journal, the file of uses.
const REST: u64 = 256 << 10;

struct Bench {
    home: tempfile::TempDir,
    clock: Arc<ManualClock>,
    zone: Arc<Zone>,
}

fn open(dir: &Path, clock: &Arc<ManualClock>, max_size: Option<u64>) -> Arc<Zone> {
    let conf = ZoneConf {
        max_size,
        segment_size: Some(SEGMENT),
        inactive: INACTIVE,
        memory: 0,
        flush: Duration::from_millis(20),
        ..ZoneConf::new("reclaim", dir)
    };
    Zone::open_on(conf, clock.clone(), Platform::default()).expect("opens")
}

impl Bench {
    fn new(max_size: Option<u64>) -> Self {
        let home = home();
        let clock = Arc::new(ManualClock::new(1_790_000_000_000));
        let zone = open(home.path(), &clock, max_size);
        Self { home, clock, zone }
    }

    fn store(&self, number: u64, version: u64, len: usize) {
        let mut writer = self.zone.begin(key(number), None).expect("begun");
        writer.set_head(Bytes::from(version.to_string()));
        writer.append(body(number, version, len)).expect("taken");
        writer.finish().expect("stored");
        self.zone.flush();
    }

    fn bytes(&self) -> u64 {
        let files = std::fs::read_dir(self.home.path()).expect("list");
        let lens = files.map(|file| file.expect("entry").metadata().map_or(0, |it| it.len()));
        lens.sum()
    }

    /// Sweeps until a state is reached.
    fn sweep_until(&self, is_so: impl Fn() -> bool) -> bool {
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(60) {
            self.zone.sweep();
            self.zone.flush();
            if is_so() {
                return true;
            }
            std::thread::yield_now();
        }
        false
    }
}

fn key(number: u64) -> Key {
    Key::of(&number.to_le_bytes())
}

fn body(number: u64, version: u64, len: usize) -> Bytes {
    vec![(number ^ version << 4) as u8; len].into()
}

/// The version of what is found, whose body is right.
fn version(zone: &Zone, number: u64) -> Option<u64> {
    let entry = zone.find(&key(number))?;
    let version = std::str::from_utf8(entry.head()).expect("digits");
    let version = version.parse().expect("a number");
    let mut bytes = Vec::new();
    for region in entry.regions(0..u64::MAX) {
        bytes.extend(read_region(region));
    }
    assert!(
        bytes == body(number, version, entry.len() as usize),
        "{number}"
    );
    Some(version)
}

fn read_region(region: millpond_store::Region) -> Vec<u8> {
    match region {
        millpond_store::Region::Memory(bytes) => bytes.to_vec(),
        millpond_store::Region::File { file, offset, len } => {
            let mut bytes = vec![0; len as usize];
            file.read_exact_at(&mut bytes, offset).expect("read");
            bytes
        }
    }
}

const LIMITS: [Option<u64>; 2] = [None, Some(64 << 20)];

#[test]
fn space_is_back_when_all_is_inactive() {
    for limit in LIMITS {
        let bench = Bench::new(limit);
        for number in 0..200 {
            bench.store(number, 0, 100_000);
        }
        let full = bench.bytes();
        assert!(full > 20_000_000, "{full}");
        bench.clock.advance(INACTIVE + Duration::from_secs(2));
        assert!(
            bench.sweep_until(|| bench.bytes() <= REST),
            "{}",
            bench.bytes()
        );
        assert_eq!(bench.zone.usage().entries, 0);
        println!("{limit:?}: {full} bytes, then {}", bench.bytes());
        bench.store(1, 1, 100_000);
        assert_eq!(version(&bench.zone, 1), Some(1));
    }
}

#[test]
fn space_is_back_when_all_was_removed() {
    for limit in LIMITS {
        let bench = Bench::new(limit);
        for number in 0..200 {
            bench.store(number, 0, 100_000);
        }
        for number in 0..200 {
            bench.zone.remove(&key(number));
        }
        assert!(
            bench.sweep_until(|| bench.bytes() <= REST),
            "{}",
            bench.bytes()
        );
    }
}

/// One entry came first and is asked for all the time; forty times the rest goes by.
#[test]
fn entry_that_stays_does_not_keep_what_came_after_it() {
    for limit in LIMITS {
        let bench = Bench::new(limit);
        bench.store(0, 7, 100_000);
        bench.store(1, 7, 1_000_000);
        let mut most = 0;
        for round in 1..=40 {
            for number in 0..20 {
                bench.store(round * 100 + number, 0, 50_000);
            }
            bench.clock.advance(INACTIVE / 2);
            for stays in 0..2 {
                assert_eq!(version(&bench.zone, stays), Some(7), "{round}");
            }
            bench.sweep_until(|| bench.bytes() <= 8_000_000);
            most = most.max(bench.bytes());
        }
        // Three rounds of a million bytes live, and the two that stay: twice that, and the ends.
        println!("{limit:?}: 41 MB came, at most {most} bytes were kept");
        assert!(
            most <= 2 * (3 * 20 * 50_000 + 1_100_000) + 6 * SEGMENT + REST,
            "{most}"
        );
        bench.clock.advance(INACTIVE / 2);
        assert_eq!(version(&bench.zone, 0), Some(7));
        assert_eq!(version(&bench.zone, 1), Some(7));
        bench.clock.advance(INACTIVE * 2);
        assert!(
            bench.sweep_until(|| bench.bytes() <= REST),
            "{}",
            bench.bytes()
        );
    }
}

fn copy_dir(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).expect("directory");
    for file in std::fs::read_dir(from).expect("list") {
        let file = file.expect("entry");
        // What is unlinked meanwhile was on its way out.
        let _ = std::fs::copy(file.path(), to.join(file.file_name()));
    }
}

fn numbers(dir: &Path) -> Vec<u32> {
    let names = std::fs::read_dir(dir).expect("list");
    let numbers = names.filter_map(|name| {
        let name = name.expect("entry").file_name();
        name.to_str()?.strip_prefix("segment-")?.parse().ok()
    });
    numbers.collect()
}

#[test]
fn number_of_a_segment_is_not_used_again_after_the_last_one_went() {
    let bench = Bench::new(None);
    for number in 0..20 {
        bench.store(number, 0, 100_000);
    }
    let before = numbers(bench.home.path()).into_iter().max().expect("one");
    bench.clock.advance(INACTIVE * 2);
    assert!(bench.sweep_until(|| numbers(bench.home.path()).is_empty()));
    let copy = home();
    copy_dir(bench.home.path(), copy.path());
    let zone = open(copy.path(), &bench.clock, None);
    let mut writer = zone.begin(key(1), None).expect("begun");
    writer.set_head(Bytes::from_static(b"1"));
    writer.append(body(1, 1, 1000)).expect("taken");
    writer.finish().expect("stored");
    zone.flush();
    let after = numbers(copy.path()).into_iter().min().expect("one");
    assert!(after > before, "{after} after {before}");
}

/// Entries come, are replaced, removed, used and forgotten; after a crash at any time there is the
/// newest version of each, or none.
fn run(seed: u64) {
    let mut random = Random(seed);
    let limit = LIMITS[random.below(2) as usize];
    let bench = Bench::new(limit);
    let mut newest: BTreeMap<u64, Option<u64>> = BTreeMap::new();
    for step in 0..300_u64 {
        let number = random.below(30);
        match random.below(12) {
            0..6 => {
                let len = 16 << random.below(14);
                bench.store(number, step, len);
                newest.insert(number, Some(step));
            }
            6 => {
                bench.zone.remove(&key(number));
                newest.insert(number, None);
            }
            7 => drop(version(&bench.zone, number)),
            8 => bench.clock.advance(Duration::from_secs(random.below(300))),
            9 if random.below(4) == 0 => bench.clock.advance(INACTIVE * 2),
            10 if random.below(4) == 0 => {
                bench.zone.flush();
                let copy = home();
                copy_dir(bench.home.path(), copy.path());
                check(&open(copy.path(), &bench.clock, limit), &newest);
            }
            _ => drop(bench.zone.sweep()),
        }
    }
    check(&bench.zone, &newest);
    bench.clock.advance(INACTIVE * 2);
    assert!(
        bench.sweep_until(|| bench.bytes() <= REST),
        "{}",
        bench.bytes()
    );
}

fn check(zone: &Zone, newest: &BTreeMap<u64, Option<u64>>) {
    for (number, expected) in newest {
        let found = version(zone, *number);
        assert!(
            found.is_none() || found == *expected,
            "{number}: {found:?}, not {expected:?}"
        );
    }
}

#[test]
fn nothing_comes_back_when_space_is_given_back() {
    run_each(&seeds(0..20), run);
}
