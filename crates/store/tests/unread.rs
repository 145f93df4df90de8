//! A disk that answers with errors while a zone is opened has lost nothing.

#[path = "support/random.rs"]
mod random;

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use millpond_store::{
    DiskConf, DiskState, Event, Fault, Glance, Haste, HeldFile, Key, LoadError, ManualClock,
    Platform, Region, SimIo, Zone, ZoneConf,
};

use random::Random;

const SEGMENT: u64 = 64 << 10;
const NUMBERS: u64 = 200;

struct Bench {
    dir: tempfile::TempDir,
    io: Arc<SimIo>,
    clock: Arc<ManualClock>,
    events: Arc<Mutex<Vec<Event>>>,
}

impl Bench {
    fn new() -> Self {
        Self {
            dir: tempfile::tempdir().expect("directory"),
            io: Arc::default(),
            clock: Arc::new(ManualClock::new(1_700_000_000_000)),
            events: Arc::default(),
        }
    }

    fn home(&self) -> PathBuf {
        self.dir.path().join("zone")
    }

    fn open(&self) -> Arc<Zone> {
        let conf = ZoneConf {
            max_size: Some(64 << 20),
            segment_size: Some(SEGMENT),
            small: 1 << 10,
            memory: 0,
            inactive: Duration::from_secs(1_000_000),
            flush: Duration::ZERO,
            ..ZoneConf::new("test", self.home())
        };
        let events = Arc::clone(&self.events);
        let platform = Platform {
            io: self.io.clone(),
            events: Arc::new(move |event| events.lock().expect("events").push(event.clone())),
            ..Platform::default()
        };
        Zone::open_on(conf, self.clock.clone(), platform).expect("open")
    }

    /// Stores, replaces and removes; what there is then.
    fn fill(&self, zone: &Zone, random: &mut Random) -> BTreeMap<u64, u64> {
        let mut expected = BTreeMap::new();
        for version in 0..600 {
            let number = random.below(NUMBERS);
            match random.below(10) {
                0 => {
                    zone.remove(&key(number));
                    expected.remove(&number);
                }
                kind => {
                    store(zone, number, version, if kind == 1 { 20_000 } else { 300 });
                    expected.insert(number, version);
                }
            }
        }
        zone.flush();
        expected
    }

    /// Directory as a process leaves it that dies now.
    fn dies(&self) -> Self {
        let copy = Self::new();
        std::fs::create_dir(copy.home()).expect("created");
        for entry in std::fs::read_dir(self.home()).expect("listed") {
            let path = entry.expect("entry").path();
            let name = path.file_name().expect("name");
            std::fs::copy(&path, copy.home().join(name)).expect("copied");
        }
        copy
    }

    fn segments(&self) -> Vec<PathBuf> {
        let listed = std::fs::read_dir(self.home()).expect("listed");
        let paths = listed.map(|entry| entry.expect("entry").path());
        let is_segment = |path: &PathBuf| {
            let name = path.file_name().expect("name").to_string_lossy();
            assert!(!name.contains("set-aside"), "{name}");
            name.starts_with("segment-")
        };
        let mut segments: Vec<_> = paths.filter(is_segment).collect();
        segments.sort();
        segments
    }

    fn told(&self) -> usize {
        let events = self.events.lock().expect("events");
        let told = events
            .iter()
            .filter(|it| matches!(it, Event::Unread { .. }));
        told.count()
    }

    fn pass(&self, zone: &Zone) {
        self.clock.advance(Duration::from_secs(60));
        zone.sweep();
        zone.loaded();
    }
}

fn key(number: u64) -> Key {
    Key::of(&number.to_le_bytes())
}

fn store(zone: &Zone, number: u64, version: u64, len: usize) {
    let mut writer = zone.begin(key(number), None).expect("begun");
    writer.set_head(Bytes::from(version.to_string()));
    writer.append(Bytes::from(vec![7; len])).expect("appended");
    writer.finish().expect("finished");
}

fn all(zone: &Zone) -> BTreeMap<u64, u64> {
    let version = |number: u64| {
        let entry = zone.find(&key(number))?;
        let head = std::str::from_utf8(entry.head()).expect("text");
        let version = head.split(' ').next().expect("a version");
        Some((number, version.parse().expect("number")))
    };
    (0..NUMBERS + 10).filter_map(version).collect()
}

/// A name, the position of a segment among so many, bytes, and whether all else is found.
type Case = (&'static str, fn(usize) -> usize, Range<u64>, bool);

/// Cases: the bytes of a segment that cannot be read, and true if all the rest is found meanwhile.
fn cases() -> [Case; 6] {
    [
        (
            "first bytes, in the middle",
            |count| count / 2,
            0..64,
            false,
        ),
        (
            "rows, in the middle",
            |count| count / 2,
            SEGMENT - 128..SEGMENT - 64,
            true,
        ),
        (
            "footer, in the middle",
            |count| count / 2,
            SEGMENT - 64..SEGMENT,
            false,
        ),
        ("all, in the middle", |count| count / 2, 0..SEGMENT, false),
        ("all of the newest", |count| count - 1, 0..SEGMENT, false),
        ("all of the oldest", |_| 0, 0..SEGMENT, false),
    ]
}

fn damage(bench: &Bench, which: fn(usize) -> usize, stretch: &Range<u64>) {
    let segments = bench.segments();
    assert!(segments.len() > 8, "{}", segments.len());
    let path: &Path = &segments[which(segments.len())];
    bench.io.damage(path, stretch.clone()).expect("damaged");
    bench.io.set(Fault::BadSectors);
}

/// Nothing that a segment which is not read may have replaced or removed is found; all of it is
/// when the disk gives it, in the same process or in the next.
#[test]
fn what_cannot_be_read_at_the_start_is_found_when_it_can() {
    for (name, which, stretch, is_found) in cases() {
        for (is_clean, is_healed_soon) in [(true, true), (true, false), (false, true)] {
            let what = format!("{name}, clean {is_clean}, soon {is_healed_soon}");
            let mut bench = Bench::new();
            let zone = bench.open();
            let mut expected = bench.fill(&zone, &mut Random(7));
            if is_clean {
                zone.close();
            } else {
                bench = bench.dies();
            }
            damage(&bench, which, &stretch);
            let zone = bench.open();
            let found = all(&zone);
            for (number, version) in &found {
                assert_eq!(expected.get(number), Some(version), "{what}: {number}");
            }
            assert_eq!(zone.loaded(), is_found, "{what}");
            assert!(!is_found || found == expected, "{what}");
            assert_eq!(bench.told(), usize::from(!is_found), "{what}");
            assert_eq!(zone.usage().unread_segments > 0, !is_found, "{what}");
            store(&zone, NUMBERS, 5000, 300);
            expected.insert(NUMBERS, 5000);
            let gone = *expected.keys().next().expect("one");
            zone.remove(&key(gone));
            expected.remove(&gone);
            if is_healed_soon {
                bench.io.set(Fault::None);
                bench.pass(&zone);
                assert_eq!(all(&zone), expected, "{what}");
            }
            // It is asked only so often.
            (0..10).for_each(|_| bench.pass(&zone));
            assert!(bench.told() <= 1, "{what}");
            zone.close();
            bench.io.set(Fault::None);
            assert_eq!(all(&bench.open()), expected, "{what}");
        }
    }
}

/// Segment and offset of some bytes.
fn place_of(bench: &Bench, mark: &[u8]) -> (PathBuf, u64) {
    let find = |path: PathBuf| {
        let bytes = std::fs::read(&path).expect("read");
        let at = bytes.windows(mark.len()).position(|it| it == mark)?;
        Some((path, at as u64))
    };
    bench
        .segments()
        .into_iter()
        .find_map(find)
        .expect("it is there")
}

/// A bad block costs what is in it, in a segment that must be read as a whole: a body, a record
/// with its older version, or, where nobody knows what was there, all that may be older.
#[test]
fn bad_block_of_a_segment_without_summary_costs_what_is_in_it() {
    for what in ["body", "head", "records"] {
        let bench = Bench::new();
        let zone = bench.open();
        (0..NUMBERS).for_each(|number| store(&zone, number, 1, 300));
        let marked = b"<mark>".repeat(3000);
        let (head, body) = match what {
            "body" => (b"2".to_vec(), &marked[..]),
            _ => ([b"2 ", &marked[..]].concat(), &b"short"[..]),
        };
        let mut writer = zone.begin(key(7), None).expect("begun");
        writer.set_head(Bytes::from(head));
        writer.append(Bytes::copy_from_slice(body)).expect("taken");
        writer.finish().expect("finished");
        (20..30).for_each(|number| store(&zone, number, 3, 300));
        zone.flush();
        let left = bench.dies();
        let (path, at) = place_of(&left, &marked);
        // A page that is within the mark, or one behind it.
        let page = match what {
            "records" => at + marked.len() as u64 + 4096,
            _ => at + 4096,
        };
        let page = page / 4096 * 4096;
        left.io.damage(&path, page..page + 512).expect("damaged");
        left.io.set(Fault::BadSectors);
        let zone = left.open();
        assert_eq!(zone.loaded(), what != "records", "{what}");
        let version = |number: u64| -> Option<u64> {
            let entry = zone.find(&key(number))?;
            let head = std::str::from_utf8(entry.head()).expect("text");
            let number = head.split(' ').next().expect("a number");
            Some(number.parse().expect("number"))
        };
        for number in (0..NUMBERS).filter(|number| *number != 7) {
            let newest = if (20..30).contains(&number) { 3 } else { 1 };
            match version(number) {
                Some(found) => assert_eq!(found, newest, "{what} {number}"),
                None => assert_eq!(what, "records", "{number} is lost"),
            }
        }
        // Not the one before it either.
        assert_eq!(version(7), None, "{what}");
        zone.close();
        // It was found out once; a summary says so by now.
        let zone = left.open();
        assert_eq!(zone.loaded(), what != "records", "{what}");
        zone.close();
        left.io.set(Fault::None);
        // What was lost stays lost, what was only not given is there.
        let zone = left.open();
        assert_eq!(zone.find(&key(7)).is_some(), what != "head", "{what}");
        let found = all(&zone);
        assert!(
            (20..30).all(|number| found.get(&number) == Some(&3)),
            "{what}"
        );
    }
}

/// The log turns over what nobody could read, within the limit.
#[test]
fn what_cannot_be_read_is_evicted_in_its_turn() {
    let bench = Bench::new();
    let zone = bench.open();
    bench.fill(&zone, &mut Random(9));
    zone.close();
    damage(&bench, |count| count / 2, &(0..SEGMENT));
    let zone = bench.open();
    assert!(!zone.loaded());
    for version in 0..4000 {
        store(&zone, version % NUMBERS, version, 20_000);
        zone.flush();
    }
    assert!(zone.usage().bytes <= 64 << 20);
    bench.pass(&zone);
    assert!(zone.loaded(), "{:?}", zone.usage());
    assert_eq!(all(&zone).len() as u64, NUMBERS);
}

fn file_of(zone: &Zone, number: u64) -> (HeldFile, u64, u64) {
    let entry = zone.find(&key(number)).expect("found");
    let mut regions = entry.regions_to_load(0..u64::MAX);
    match regions.next() {
        Some(Region::File { file, offset, len }) => (file, offset, len),
        other => panic!("{other:?}"),
    }
}

/// A body of which the disk does not give all is not found any more, until it is stored again;
/// those beside it are.
#[tokio::test]
async fn body_that_the_disk_did_not_give_is_missing_and_no_other() {
    let bench = Bench::new();
    let zone = bench.open();
    (0..6).for_each(|number| store(&zone, number, 1, 20_000));
    zone.flush();
    let errno = |errno: i32| std::io::Error::from_raw_os_error(errno);
    let (file, offset, len) = file_of(&zone, 3);
    // A connection that was reset, too many open files, no memory.
    for other in [104, 24, 12] {
        assert!(!file.has_refused(offset..offset + 1, &errno(other)));
    }
    assert_eq!(all(&zone).len(), 6);
    assert!(file.has_refused(offset + len - 1..offset + len, &errno(5)));
    assert!((0..6).all(|number| zone.find(&key(number)).is_some() == (number != 3)));
    assert_eq!(zone.usage().read_errors, 1);
    // As one whose window is read by a thread.
    let (file, offset, len) = file_of(&zone, 5);
    bench.io.set(Fault::ReadError);
    let loaded = file.load(offset, len, Haste::Patient).done().await;
    assert!(matches!(loaded, Err(LoadError::Io(_))), "{loaded:?}");
    bench.io.set(Fault::None);
    let is_well = |number| number != 3 && number != 5;
    assert!((0..6).all(|number| zone.find(&key(number)).is_some() == is_well(number)));
    assert_eq!((zone.usage().read_errors, zone.usage().corrupt), (2, 0));
    store(&zone, 3, 2, 20_000);
    zone.flush();
    zone.close();
    let expected = [(0, 1), (1, 1), (2, 1), (3, 2), (4, 1), (5, 1)];
    assert_eq!(all(&bench.open()), BTreeMap::from(expected));
}

/// Bodies that cannot be sent, one after the other, give a disk up as records that cannot be read.
#[test]
fn disk_whose_bodies_cannot_be_sent_is_given_up() {
    let dir = tempfile::tempdir().expect("directory");
    let other = DiskConf {
        path: dir.path().join("b"),
        weight: 1,
    };
    let conf = ZoneConf {
        disks: vec![other],
        memory: 0,
        ..ZoneConf::new("test", dir.path().join("a"))
    };
    let clock = Arc::new(ManualClock::new(1_700_000_000_000));
    let zone = Zone::open_on(conf, clock, Platform::default()).expect("open");
    (0..60).for_each(|number| store(&zone, number, 1, 20_000));
    zone.flush();
    let in_a = |glance: &Glance| glance.dir() == dir.path().join("a");
    let mut numbers =
        (0..60).filter(|number| zone.glance(&key(*number)).is_some_and(|it| in_a(&it)));
    for is_failed in [false, false, false, false, true] {
        let (file, offset, _) = file_of(&zone, numbers.next().expect("one more"));
        assert!(file.has_refused(offset..offset + 1, &std::io::Error::from_raw_os_error(5)));
        let state = zone.disks()[0].state;
        assert_eq!(state == DiskState::Failed, is_failed);
    }
}
