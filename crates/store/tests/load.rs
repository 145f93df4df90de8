//! A zone is there before its index is: what is found meanwhile, and what comes back.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::task::{Context, Poll, Waker};
use std::thread::ThreadId;
use std::time::{Duration, Instant};

use bytes::Bytes;
use millpond_store::{
    Cold, DirEntry, DiskIo, Event, Key, Look, ManualClock, NotStored, Platform, RealIo, Zone,
    ZoneConf,
};

/// No test keeps the gate shut for so long, unless it fails.
const PATIENCE: Duration = Duration::from_secs(20);

/// The real file system, on which threads that load wait until they may go on.
#[derive(Default)]
struct Gate {
    is_shut: Mutex<bool>,
    changed: Condvar,
    /// Only the first thread waits; who it is, once it came.
    first: Mutex<Option<Option<ThreadId>>>,
    /// Only who reads the file with this number waits.
    file: Mutex<Option<u64>>,
    /// Every read answers with an error.
    is_broken: AtomicBool,
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

    fn pass(&self, file: &File) -> io::Result<()> {
        let is_loader = std::thread::current()
            .name()
            .is_some_and(|name| name.starts_with("load "));
        let held = *self.file.lock().expect("file");
        let is_other = held.is_some_and(|held| file.metadata().is_ok_and(|it| it.ino() != held));
        if !is_loader || is_other || !self.holds_me() {
            return Ok(());
        }
        let mut is_shut = self.is_shut.lock().expect("gate");
        while *is_shut {
            let waited = self.changed.wait_timeout(is_shut, PATIENCE).expect("gate");
            is_shut = waited.0;
            // A test that fails closes its zone without opening the gate.
            *is_shut &= !waited.1.timed_out();
        }
        if self.is_broken.load(Ordering::SeqCst) {
            Err(io::Error::from_raw_os_error(5))
        } else {
            Ok(())
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
        self.pass(file)?;
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
    clock: Arc<ManualClock>,
    gate: Arc<Gate>,
    events: Arc<Mutex<Vec<Event>>>,
}

impl Bench {
    fn new() -> Self {
        Self {
            dir: tempfile::tempdir().expect("directory"),
            clock: Arc::new(ManualClock::new(1_700_000_000_000)),
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
        let clock = Arc::clone(&self.clock);
        let events = Arc::clone(&self.events);
        let platform = Platform {
            io: self.gate.clone(),
            events: Arc::new(move |event| events.lock().expect("events").push(event.clone())),
            ..Platform::default()
        };
        Zone::open_on(conf, clock, platform).expect("open")
    }

    /// The number of the file of the oldest segment.
    fn oldest(&self) -> u64 {
        let files = std::fs::read_dir(self.dir.path().join("zone")).expect("listed");
        let segments = files.filter_map(|entry| {
            let entry = entry.expect("entry");
            let name = entry.file_name().into_string().expect("name");
            let number: u32 = name.strip_prefix("segment-")?.parse().ok()?;
            Some((number, entry.metadata().expect("metadata").ino()))
        });
        segments.min().expect("a segment").1
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

/// Entries of a zone that is loaded: number and version.
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
    assert!(matches!(zone.look(&key(0)), Look::Unknown(Some(_))));
    assert_eq!(version(&zone, 399), Some(1));
    assert!(zone.usage().entries < 400 && zone.usage().entries > 0);
    // Before their older records are known: one is removed, one removed and stored again, one that
    // was stored again is removed.
    assert!(zone.remove(&key(0)) && zone.remove(&key(1)) && zone.remove(&key(2)));
    assert!(store(&zone, 0, 2, 900) && store(&zone, 2, 2, 900));
    assert!(zone.remove(&key(2)));
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
        // What was removed is known.
        zone.remove(&key(number));
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
        zone.remove(&key(number));
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

fn cold(zone: &Zone, number: u64) -> Cold {
    match zone.look(&key(number)) {
        Look::Unknown(Some(cold)) => cold,
        other => panic!("{number} is {other:?}"),
    }
}

fn is_pending(future: impl Future) -> bool {
    let mut cx = Context::from_waker(Waker::noop());
    matches!(pin!(future).poll(&mut cx), Poll::Pending)
}

/// Waits in this thread.
fn wait(cold: &Cold) {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_time().build().expect("runtime");
    let woken = runtime.block_on(async { tokio::time::timeout(PATIENCE, cold.wait()).await });
    woken.expect("nobody wakes who waits");
}

/// Result of a look, waited for.
fn look(zone: &Zone, number: u64) -> Option<u64> {
    // Once for what is not loaded, once for its record.
    for _ in 0..3 {
        match zone.look(&key(number)) {
            Look::Found(entry) => {
                let head = std::str::from_utf8(entry.head()).expect("text");
                return Some(head.parse().expect("number"));
            }
            Look::Missing => return None,
            Look::Unknown(Some(cold)) | Look::Cold(cold) => wait(&cold),
            other => panic!("{number} is {other:?}"),
        }
    }
    panic!("{number} is not known after it was waited for");
}

/// A zone of four hundred entries in some seven segments, closed.
fn filled(bench: &Bench) -> ZoneConf {
    let conf = bench.conf(32 << 20);
    let zone = bench.open(conf.clone());
    for number in 0..400 {
        assert!(store(&zone, number, 1, 900));
    }
    zone.close();
    conf
}

#[test]
fn what_is_not_loaded_is_no_miss_and_is_not_replaced() {
    let bench = Bench::new();
    let zone = bench.open_shut(filled(&bench));
    // What is there, what never was, and a part of what was.
    let (there, never) = (cold(&zone, 0), cold(&zone, 1000));
    assert!(is_pending(there.wait()) && is_pending(never.wait()));
    for number in [0, 1000] {
        assert!(zone.may_hold(&key(number)) && zone.peek(&key(number)));
        let refused = zone.begin(key(number), Some(0)).err();
        assert_eq!(refused, Some(NotStored::Unloaded));
    }
    assert!(matches!(zone.look(&key(399)), Look::Found(_)));
    assert!(store(&zone, 399, 2, 900), "what is known can be replaced");
    bench.gate.set(false);
    wait(&there);
    assert_eq!(version(&zone, 0), Some(1));
    wait(&never);
    assert!(matches!(zone.look(&key(1000)), Look::Missing));
    assert!(!zone.may_hold(&key(1000)) && !zone.peek(&key(1000)));
    assert!(store(&zone, 1000, 1, 900));
    assert_eq!(look(&zone, 399), Some(2));
}

#[test]
fn what_stands_behind_all_that_is_missing_is_known_at_once() {
    let bench = Bench::new();
    let conf = filled(&bench);
    *bench.gate.file.lock().expect("file") = Some(bench.oldest());
    let zone = bench.open_shut(conf);
    // All segments but the oldest are loaded meanwhile.
    for number in [398, 350, 200, 100] {
        assert_eq!(look(&zone, number), Some(1), "{number}");
    }
    let first = cold(&zone, 0);
    // A removal is known, too.
    zone.remove(&key(1));
    assert_eq!(look(&zone, 1), None);
    assert!(is_pending(first.wait()) && zone.is_loading());
    bench.gate.set(false);
    assert_eq!((look(&zone, 0), look(&zone, 1)), (Some(1), None));
}

#[test]
fn every_look_while_a_zone_loads_says_what_is_said_when_all_is_loaded() {
    for seed in 10..14 {
        let bench = Bench::new();
        let conf = bench.conf(32 << 20);
        let zone = bench.open(conf.clone());
        churn(&zone, seed);
        let expected = all(&zone);
        zone.close();
        let zone = bench.open_shut(conf);
        std::thread::scope(|scope| {
            for start in 0..4 {
                let (zone, expected) = (&zone, &expected);
                scope.spawn(move || {
                    for number in (0..300).map(|number| (number * 7 + start * 71) % 300) {
                        let wanted = expected.get(&number).copied();
                        assert_eq!(look(zone, number), wanted, "{number}, seed {seed}");
                    }
                });
            }
            bench.gate.set(false);
        });
        assert!(zone.loaded());
        assert_eq!(all(&zone), expected);
    }
}

#[test]
fn who_waits_for_a_zone_that_is_closed_or_lent_is_woken() {
    for ends in [Zone::close, Zone::lend] {
        let bench = Bench::new();
        let zone = bench.open_shut(filled(&bench));
        let waiting = cold(&zone, 0);
        std::thread::scope(|scope| {
            let ending = scope.spawn(|| ends(&zone));
            bench.gate.set(false);
            ending.join().expect("ended");
        });
        wait(&waiting);
        assert!(matches!(zone.look(&key(0)), Look::Missing));
        assert_eq!(zone.begin(key(0), None).err(), Some(NotStored::Closed));
    }
}

#[test]
fn what_is_taken_back_is_waited_for_as_what_is_opened() {
    let bench = Bench::new();
    let conf = filled(&bench);
    let zone = bench.open(ZoneConf { warm_up: 0, ..conf });
    assert!(zone.loaded());
    zone.lend();
    bench.gate.set(true);
    zone.take_back().expect("taken back");
    let waiting = cold(&zone, 0);
    assert_eq!(zone.begin(key(0), None).err(), Some(NotStored::Unloaded));
    bench.gate.set(false);
    wait(&waiting);
    assert_eq!(look(&zone, 0), Some(1));
}

#[test]
fn what_a_disk_does_not_give_is_not_waited_for() {
    let bench = Bench::new();
    let conf = filled(&bench);
    *bench.gate.file.lock().expect("file") = Some(bench.oldest());
    bench.gate.is_broken.store(true, Ordering::SeqCst);
    let zone = bench.open_shut(conf);
    let waiting = cold(&zone, 0);
    bench.gate.set(false);
    wait(&waiting);
    assert!(matches!(zone.look(&key(0)), Look::Missing));
    assert!(store(&zone, 0, 2, 900));
    assert_eq!((look(&zone, 0), look(&zone, 1)), (Some(2), None));
}

#[test]
fn nobody_begins_to_wait_for_a_disk_that_does_not_go_on() {
    let bench = Bench::new();
    let zone = bench.open_shut(filled(&bench));
    let waiting = cold(&zone, 0);
    bench.clock.advance(Duration::from_secs(5));
    assert!(matches!(zone.look(&key(0)), Look::Unknown(None)));
    assert_eq!(zone.begin(key(0), None).err(), Some(NotStored::Unloaded));
    assert!(matches!(zone.look(&key(399)), Look::Found(_)));
    bench.gate.set(false);
    wait(&waiting);
    assert_eq!(look(&zone, 0), Some(1));
}

#[test]
fn thousands_may_wait_and_are_all_woken() {
    const WAITING: u64 = 5000;
    let bench = Bench::new();
    let zone = bench.open_shut(filled(&bench));
    let waiting: Vec<Cold> = (0..WAITING)
        .map(|number| cold(&zone, number % 300))
        .collect();
    bench.gate.set(false);
    waiting.iter().for_each(wait);
    let (first, last) = (look(&zone, 0), look(&zone, 299));
    assert_eq!((first, last), (Some(1), Some(1)));
}
