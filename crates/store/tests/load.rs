//! A zone is there before its index is: what is found meanwhile, and what comes back.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex};
use std::thread::ThreadId;
use std::time::{Duration, Instant};

use bytes::Bytes;
use millpond_store::{DirEntry, DiskIo, Event, Key, ManualClock, Platform, RealIo, Zone, ZoneConf};

/// No test keeps the gate shut for so long, unless it fails.
const PATIENCE: Duration = Duration::from_secs(20);

/// The real file system, on which threads that load wait until they may go on.
#[derive(Default)]
struct Gate {
    is_shut: Mutex<bool>,
    changed: Condvar,
    /// Only the first thread waits; who it is, once it came.
    first: Mutex<Option<Option<ThreadId>>>,
}

impl Gate {
    fn set(&self, is_shut: bool) {
        *self.is_shut.lock().expect("gate") = is_shut;
        self.changed.notify_all();
    }

    fn holds_me(&self) -> bool {
        let own = std::thread::current().id();
        let mut first = self.first.lock().expect("first");
        let first = first.as_mut();
        first.is_none_or(|first| *first.get_or_insert(own) == own)
    }

    fn pass(&self) {
        let is_loader = std::thread::current()
            .name()
            .is_some_and(|name| name.starts_with("load "));
        if !is_loader || !self.holds_me() {
            return;
        }
        let mut is_shut = self.is_shut.lock().expect("gate");
        while *is_shut {
            let waited = self.changed.wait_timeout(is_shut, PATIENCE).expect("gate");
            is_shut = waited.0;
            // A test that fails closes its zone without opening the gate.
            *is_shut &= !waited.1.timed_out();
        }
    }
}

impl DiskIo for Gate {
    fn make_dir(&self, dir: &Path) -> io::Result<()> {
        RealIo.make_dir(dir)
    }
    fn list(&self, dir: &Path) -> io::Result<Vec<DirEntry>> {
        RealIo.list(dir)
    }
    fn create(&self, path: &Path, len: u64) -> io::Result<File> {
        RealIo.create(path, len)
    }
    fn open(&self, path: &Path) -> io::Result<File> {
        RealIo.open(path)
    }
    fn lock(&self, file: &File) -> io::Result<bool> {
        RealIo.lock(file)
    }
    fn read_at(&self, file: &File, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.pass();
        RealIo.read_at(file, buf, offset)
    }
    fn write_at(&self, file: &File, bufs: &[Bytes], offset: u64) -> io::Result<()> {
        RealIo.write_at(file, bufs, offset)
    }
    fn sync(&self, file: &File) -> io::Result<()> {
        RealIo.sync(file)
    }
    fn unlink(&self, path: &Path) -> io::Result<()> {
        RealIo.unlink(path)
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        RealIo.rename(from, to)
    }
    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        RealIo.sync_dir(dir)
    }
    fn available(&self, dir: &Path) -> io::Result<u64> {
        RealIo.available(dir)
    }
    fn random(&self) -> [u8; 16] {
        RealIo.random()
    }
}

struct Bench {
    dir: tempfile::TempDir,
    gate: Arc<Gate>,
    events: Arc<Mutex<Vec<Event>>>,
}

impl Bench {
    fn new() -> Self {
        Self {
            dir: tempfile::tempdir().expect("directory"),
            gate: Arc::default(),
            events: Arc::default(),
        }
    }

    fn conf(&self, max_size: u64) -> ZoneConf {
        ZoneConf {
            max_size: Some(max_size),
            segment_size: Some(64 << 10),
            small: 1 << 10,
            flush: Duration::ZERO,
            warm_up: u64::MAX,
            ..ZoneConf::new("test", self.dir.path().join("zone"))
        }
    }

    fn open(&self, conf: ZoneConf) -> Arc<Zone> {
        let clock = Arc::new(ManualClock::new(1_700_000_000_000));
        let events = Arc::clone(&self.events);
        let platform = Platform {
            io: self.gate.clone(),
            events: Arc::new(move |event| events.lock().expect("events").push(event.clone())),
            ..Platform::default()
        };
        Zone::open_on(conf, clock, platform).expect("open")
    }

    /// Opens the zone; nothing but its newest segment is loaded before the gate is opened.
    fn open_shut(&self, conf: ZoneConf) -> Arc<Zone> {
        self.gate.set(true);
        self.open(ZoneConf { warm_up: 0, ..conf })
    }
}

fn key(number: u64) -> Key {
    Key::of(&number.to_le_bytes())
}

/// Stores an entry of about `len` bytes whose head says which version it is.
fn store(zone: &Arc<Zone>, number: u64, version: u64, len: usize) -> bool {
    let Ok(mut writer) = zone.begin(key(number), None) else {
        return false;
    };
    writer.set_head(Bytes::from(version.to_string()));
    let appended = writer.append(Bytes::from(vec![number as u8; len]));
    let is_stored = appended.and_then(|()| writer.finish()).is_ok();
    zone.flush();
    is_stored
}

fn version(zone: &Zone, number: u64) -> Option<u64> {
    let entry = zone.find(&key(number))?;
    let head = std::str::from_utf8(entry.head()).expect("text");
    Some(head.parse().expect("number"))
}

/// What is in a zone that is loaded: number and version.
fn all(zone: &Zone) -> BTreeMap<u64, u64> {
    let known = (0..500).filter_map(|number| Some((number, version(zone, number)?)));
    known.collect()
}

/// Random stores, replacements and removals, in some sixteen segments.
fn churn(zone: &Arc<Zone>, seed: u64) {
    let mut state = seed;
    for version in 0..2000 {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        let number = (state >> 40) % 300;
        match state >> 60 {
            0..12 => assert!(store(zone, number, version, 200)),
            // Larger than a record may be, so that its slices lie in other segments, too.
            12 => assert!(store(zone, number, version, 40_000)),
            _ => {
                zone.remove(&key(number));
            }
        }
    }
}

#[test]
fn in_whatever_order_segments_are_loaded_the_same_is_found() {
    for seed in 0..4 {
        let bench = Bench::new();
        let conf = bench.conf(32 << 20);
        let zone = bench.open(conf.clone());
        churn(&zone, seed);
        let expected = all(&zone);
        zone.close();
        for warm_up in [0, u64::MAX] {
            let zone = bench.open(ZoneConf {
                warm_up,
                ..conf.clone()
            });
            assert!(zone.loaded());
            assert_eq!(all(&zone), expected, "seed {seed}, warm_up {warm_up}");
            assert_eq!(zone.usage().entries, expected.len() as u64);
            zone.close();
        }
    }
}

#[test]
fn while_it_loads_a_zone_answers_and_what_is_done_then_lasts() {
    let bench = Bench::new();
    let conf = bench.conf(32 << 20);
    let zone = bench.open(conf.clone());
    for number in 0..400 {
        store(&zone, number, 1, 900);
    }
    zone.close();
    let zone = bench.open_shut(conf.clone());
    assert_eq!((version(&zone, 0), version(&zone, 399)), (None, Some(1)));
    assert!(zone.usage().entries < 400 && zone.usage().entries > 0);
    // Before their older records are known: one is replaced, one removed, one both.
    assert!(store(&zone, 0, 2, 900) && store(&zone, 2, 2, 900));
    assert!(zone.remove(&key(1)) && zone.remove(&key(2)));
    assert!(zone.remove(&key(399)) && !zone.remove(&key(399)));
    let expected: BTreeMap<u64, u64> = (3..399).map(|number| (number, 1)).chain([(0, 2)]).collect();
    bench.gate.set(false);
    assert!(zone.loaded());
    assert_eq!(all(&zone), expected);
    assert!(!zone.remove(&key(1)));
    let is_loaded = |event: &Event| matches!(event, Event::Loaded { entries: 397, .. });
    assert!(bench.events.lock().expect("events").iter().any(is_loaded));
    zone.close();
    assert_eq!(all(&bench.open(conf)), expected);
}

#[test]
fn while_a_newer_segment_is_missing_no_older_version_is_found() {
    let bench = Bench::new();
    let conf = bench.conf(32 << 20);
    let zone = bench.open(conf.clone());
    for number in 0..300 {
        store(&zone, number, 1, 900);
    }
    // In the segment before the newest, which is there from the beginning.
    for number in 0..20 {
        store(&zone, number, 2, 900);
    }
    for number in 300..380 {
        store(&zone, number, 1, 900);
    }
    zone.close();
    *bench.gate.first.lock().expect("first") = Some(None);
    let zone = bench.open_shut(conf);
    // The other thread loads all but the segment that the first one waits for.
    let deadline = Instant::now() + PATIENCE;
    while zone.usage().entries < 300 {
        assert!(Instant::now() < deadline, "{}", zone.usage().entries);
        std::thread::yield_now();
    }
    for number in 0..20 {
        assert_ne!(version(&zone, number), Some(1), "{number}");
    }
    bench.gate.set(false);
    assert!(zone.loaded());
    for number in 0..380 {
        let wanted = if number < 20 { 2 } else { 1 };
        assert_eq!(version(&zone, number), Some(wanted), "{number}");
    }
}

#[test]
fn a_review_of_a_zone_that_loads_sees_all_of_it() {
    let bench = Bench::new();
    let conf = bench.conf(32 << 20);
    let zone = bench.open(conf.clone());
    for number in 0..400 {
        store(&zone, number, 1, 900);
    }
    zone.close();
    let zone = bench.open_shut(conf);
    let reviewed = std::thread::scope(|scope| {
        let review = scope.spawn(|| zone.review(&mut |_, _| millpond_store::Review::Remove));
        bench.gate.set(false);
        review.join().expect("reviewed")
    });
    assert!(reviewed.is_complete);
    assert_eq!((reviewed.removed, zone.usage().entries), (400, 0));
}

#[test]
fn segments_may_be_evicted_before_they_are_loaded() {
    let bench = Bench::new();
    let conf = bench.conf(1 << 20);
    let zone = bench.open(conf.clone());
    for number in 0..300 {
        store(
            &zone,
            number,
            1,
            if number % 10 == 0 { 40_000 } else { 900 },
        );
    }
    zone.close();
    let zone = bench.open_shut(conf.clone());
    let before = all(&zone);
    let mut stored = 0;
    for number in 300..500 {
        stored += u64::from(store(&zone, number, 2, 2000));
        assert!(zone.usage().bytes <= 1 << 20);
    }
    assert!(stored > 150, "{stored}");
    bench.gate.set(false);
    assert!(zone.loaded());
    // Counted before they are looked for, which would find out whose slices are gone.
    let entries = zone.usage().entries;
    let after = all(&zone);
    assert_eq!(entries, after.len() as u64);
    assert!(after.len() > before.len());
    for (number, version) in &after {
        let entry = zone.find(&key(*number)).expect("found");
        let body: u64 = entry.regions(0..u64::MAX).map(|region| region.len()).sum();
        assert_eq!(body, entry.len(), "{number} of version {version}");
    }
    zone.close();
    assert_eq!(all(&bench.open(conf)), after);
}

#[test]
fn a_zone_that_is_closed_or_dies_while_it_loads_loses_nothing() {
    let bench = Bench::new();
    let conf = bench.conf(32 << 20);
    let zone = bench.open(conf.clone());
    churn(&zone, 7);
    let mut expected = all(&zone);
    zone.close();
    let zone = bench.open_shut(conf.clone());
    for number in [400, 401] {
        assert!(store(&zone, number, 9, 200));
        expected.insert(number, 9);
    }
    let first = *expected.keys().next().expect("not empty");
    zone.remove(&key(first));
    expected.remove(&first);
    // A removal outlives a process that dies from then on.
    zone.flush();
    // What a process leaves that dies here.
    let copy = Bench::new();
    let left = copy.dir.path().join("zone");
    std::fs::create_dir(&left).expect("created");
    for entry in std::fs::read_dir(&conf.path).expect("listed") {
        let path = entry.expect("entry").path();
        std::fs::copy(&path, left.join(path.file_name().expect("name"))).expect("copied");
    }
    std::thread::scope(|scope| {
        let closing = scope.spawn(|| zone.close());
        bench.gate.set(false);
        closing.join().expect("closed");
    });
    assert_eq!(all(&bench.open(conf)), expected);
    let zone = copy.open_shut(copy.conf(32 << 20));
    copy.gate.set(false);
    assert!(zone.loaded());
    assert_eq!(all(&zone), expected);
    let is_told = |event: &Event| matches!(event, Event::Recovered { .. });
    assert!(copy.events.lock().expect("events").iter().any(is_told));
}
