//! A sync that fails has lost what was written: nothing of it is served, and nothing that it had
//! replaced or removed comes back.

#[path = "support/home.rs"]
mod home;
#[path = "support/read.rs"]
mod read;

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use millpond_store::{
    DiskConf, DiskState, Event, Fault, Haste, Key, LoadError, ManualClock, NotStored, Platform,
    Region, SimIo, Usage, Zone, ZoneConf,
};

use home::home;
use read::read;

const KEYS: u64 = 12;
const START_MS: u64 = 1_790_000_000_000;
/// No other thread is at something for so long.
const PATIENCE: Duration = Duration::from_secs(30);

struct Bench {
    home: tempfile::TempDir,
    io: Arc<SimIo>,
    clock: Arc<ManualClock>,
    told: Arc<Mutex<Vec<Event>>>,
}

impl Bench {
    fn new() -> Self {
        Self {
            home: home(),
            io: Arc::default(),
            clock: Arc::new(ManualClock::new(START_MS)),
            told: Arc::default(),
        }
    }

    fn conf(&self) -> ZoneConf {
        ZoneConf {
            segment_size: Some(256 << 10),
            memory: 0,
            inactive: Duration::from_secs(1 << 30),
            // Nobody syncs but whoever is told to.
            flush: Duration::from_secs(3600),
            ..ZoneConf::new("loss", self.home.path().join("zone"))
        }
    }

    fn open(&self, conf: ZoneConf) -> Arc<Zone> {
        let told = Arc::clone(&self.told);
        let platform = Platform {
            io: self.io.clone(),
            events: Arc::new(move |event| told.lock().expect("whole").push(event.clone())),
            ..Platform::default()
        };
        Zone::open_on(conf, self.clock.clone(), platform).expect("opens")
    }

    /// Zone as another process finds it that comes after a kill.
    fn after_a_kill(&self) -> Arc<Zone> {
        let copy = self.home.path().join("copy");
        std::fs::create_dir(&copy).expect("directory");
        for entry in std::fs::read_dir(self.conf().path).expect("list") {
            let entry = entry.expect("entry");
            std::fs::copy(entry.path(), copy.join(entry.file_name())).expect("copied");
        }
        let path = copy;
        let zone = self.open(ZoneConf {
            path,
            ..self.conf()
        });
        assert!(zone.loaded());
        zone
    }

    fn count(&self, which: fn(&Event) -> bool) -> usize {
        let told = self.told.lock().expect("whole");
        told.iter().filter(|event| which(event)).count()
    }
}

fn key(number: u64) -> Key {
    Key::of(&number.to_le_bytes())
}

/// Every second one is large enough for slices.
fn body(number: u64, version: u64) -> Bytes {
    let len = if number.is_multiple_of(2) {
        40_000
    } else {
        500
    };
    let byte = (number * 16 + version) as u8;
    Bytes::from(vec![byte.max(1); len])
}

fn store(zone: &Zone, number: u64, version: u64) -> Result<(), NotStored> {
    let mut writer = zone.begin(key(number), None)?;
    writer.set_head(Bytes::from(version.to_string()));
    writer.append(body(number, version))?;
    writer.finish().map(|_| ())
}

fn fill(zone: &Zone, version: u64) {
    for number in 0..KEYS {
        store(zone, number, version).expect("stored");
    }
    zone.flush();
}

/// The versions that are found; all their bytes must be right.
fn versions(zone: &Zone) -> Vec<Option<u64>> {
    let version = |number| {
        let entry = zone.find(&key(number))?;
        let version: u64 = std::str::from_utf8(entry.head()).ok()?.parse().ok()?;
        let found = read(entry.regions(0..entry.len()));
        assert!(
            found == body(number, version),
            "{number} of version {version}: other bytes"
        );
        Some(version)
    };
    (0..KEYS).map(version).collect()
}

fn usage(zone: &Zone) -> Usage {
    zone.usage()
}

#[test]
fn nothing_is_served_of_a_segment_whose_sync_failed() {
    let bench = Bench::new();
    let zone = bench.open(bench.conf());
    fill(&zone, 1);
    bench.io.set(Fault::SyncLoses);
    assert!(!zone.sync());
    bench.io.set(Fault::None);
    assert_eq!(versions(&zone), vec![None; KEYS as usize]);
    assert!(usage(&zone).lost_segments >= 1);
    assert!(bench.count(|event| matches!(event, Event::SegmentLost { .. })) >= 1);
    // The disk is as good as any again.
    fill(&zone, 2);
    assert!(zone.sync());
    assert_eq!(versions(&zone), vec![Some(2); KEYS as usize]);
    drop(zone);
    let zone = bench.open(bench.conf());
    assert_eq!(versions(&zone), vec![Some(2); KEYS as usize]);
}

/// Entries that were replaced or removed in a segment that is lost stay so.
#[test]
fn nothing_older_comes_back_in_the_place_of_what_was_lost() {
    for is_killed in [true, false] {
        let bench = Bench::new();
        let zone = bench.open(bench.conf());
        fill(&zone, 1);
        assert!(zone.sync());
        for number in 0..KEYS {
            match number % 3 {
                0 => assert!(zone.remove(&key(number))),
                1 => store(&zone, number, 2).expect("stored"),
                _ => {}
            }
        }
        zone.flush();
        bench.io.set(Fault::SyncLoses);
        assert!(!zone.sync());
        bench.io.set(Fault::None);
        let check = |zone: &Zone| {
            for (number, version) in versions(zone).into_iter().enumerate() {
                let may_be = number % 3 == 2 && version == Some(1);
                assert!(may_be || version.is_none(), "{number}: {version:?}");
            }
        };
        check(&zone);
        assert!(zone.sync(), "it is written down elsewhere by now");
        if is_killed {
            check(&bench.after_a_kill());
        } else {
            zone.close();
            check(&bench.open(bench.conf()));
        }
    }
}

/// The file of an evicted segment that the disk will not remove is older than all that was lost, so
/// it does not come back when the tombstones are lost that hid its entries.
#[test]
fn evicted_segment_whose_file_stays_does_not_come_back_when_a_newer_one_is_lost() {
    let bench = Bench::new();
    let zone = bench.open(bench.conf());
    fill(&zone, 1);
    // So that the removals stand in the next segment.
    fill(&zone, 2);
    for number in 0..KEYS {
        assert!(zone.remove(&key(number)));
    }
    let oldest = bench.conf().path.join("segment-00000001");
    bench.io.keep(Some(oldest.clone()));
    let began = Instant::now();
    while bench.io.injected() == 0 {
        assert!(began.elapsed() < PATIENCE, "the oldest segment stays");
        zone.sweep();
        assert!(zone.sync());
    }
    // The third lets the disk rest: nothing says what it had removed.
    for number in 0..3 {
        lose(&bench, &zone, number);
    }
    assert_eq!(
        bench.count(|event| matches!(event, Event::Resting { .. })),
        1
    );
    assert!(!zone.sync(), "the tombstones are nowhere");
    assert!(oldest.exists());
    bench.io.keep(None);
    assert_eq!(versions(&bench.after_a_kill()), [None; KEYS as usize]);
}

/// A client that is being sent a body gets no zeros.
#[test]
fn body_of_a_segment_that_is_lost_is_not_ready_and_ends_in_an_error() {
    let bench = Bench::new();
    let zone = bench.open(bench.conf());
    let mut writer = zone.begin(key(0), None).expect("begun");
    let view = writer.view();
    writer.set_head(Bytes::new());
    writer.append(Bytes::from(vec![7; 300_000])).expect("taken");
    let entry = writer.finish().expect("finished");
    zone.flush();
    let regions: Vec<Region> = view.regions(0..u64::MAX);
    let held: Vec<Region> = entry.regions_to_load(0..u64::MAX).collect();
    bench.io.set(Fault::SyncLoses);
    assert!(!zone.sync());
    let after = view.regions(0..u64::MAX);
    let mut files = 0;
    for region in regions.into_iter().chain(held).chain(after) {
        let Region::File { file, offset, len } = region else {
            continue;
        };
        files += 1;
        assert_eq!(file.ready_len(offset, len), 0);
        let loading = file.load(offset, len, Haste::OrNotAtAll);
        let done = futures_lite(loading.done());
        assert!(matches!(done, Err(LoadError::Io(_))), "{done:?}");
    }
    assert!(files >= 3, "{files}");
}

fn futures_lite<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    runtime.expect("runtime").block_on(future)
}

fn lose(bench: &Bench, zone: &Zone, number: u64) {
    bench.io.set(Fault::None);
    if store(zone, number, 1).is_ok() {
        zone.flush();
        bench.io.set(Fault::SyncLoses);
        zone.sync();
        bench.io.set(Fault::None);
    }
}

#[test]
fn lone_disk_that_loses_segment_after_segment_takes_nothing_for_a_while() {
    let bench = Bench::new();
    let zone = bench.open(bench.conf());
    for number in 0..20 {
        lose(&bench, &zone, number);
    }
    assert_eq!(store(&zone, 1, 1), Err(NotStored::Disk));
    let is_resting = |event: &Event| matches!(event, Event::Resting { .. });
    assert_eq!(bench.count(is_resting), 1, "it is told once");
    assert!((3..20).contains(&usage(&zone).lost_segments));
    bench.clock.advance(Duration::from_secs(61));
    fill(&zone, 2);
    assert!(zone.sync());
    assert_eq!(versions(&zone), vec![Some(2); KEYS as usize]);
}

#[test]
fn disk_that_loses_segment_after_segment_is_given_up_where_there_are_others() {
    let bench = Bench::new();
    let other = bench.home.path().join("other");
    let sound = bench.io.disk(&other);
    let conf = ZoneConf {
        disks: vec![DiskConf {
            path: other,
            weight: 1,
        }],
        ..bench.conf()
    };
    let zone = bench.open(conf);
    for number in 0..200 {
        lose(&bench, &zone, number);
        zone.sweep();
        zone.wait_for_disks();
    }
    let states: Vec<DiskState> = zone.disks().iter().map(|disk| disk.state).collect();
    assert_eq!(states, [DiskState::Failed, DiskState::Live]);
    assert_eq!(sound.injected(), 0);
    fill(&zone, 2);
    assert_eq!(versions(&zone), vec![Some(2); KEYS as usize]);
}

/// The journal does not go on in a file of which a sync failed.
#[test]
fn journal_of_which_a_sync_failed_is_written_anew() {
    let bench = Bench::new();
    let zone = bench.open(bench.conf());
    let first = Bytes::from_static(b"first");
    let second = Bytes::from_static(b"second");
    zone.rewrite_journal(std::slice::from_ref(&first))
        .expect("noted");
    bench.io.set(Fault::SyncLoses);
    assert!(zone.note(&second).is_err());
    assert!(
        zone.rewrite_journal(&[first.clone(), second.clone()])
            .is_err()
    );
    bench.io.set(Fault::None);
    assert!(zone.note(&second).is_err(), "there is no room behind it");
    zone.rewrite_journal(&[first.clone(), second.clone()])
        .expect("anew");
    let found = bench.after_a_kill().take_journal();
    assert_eq!(
        (found.records, found.is_damaged),
        (vec![first, second], false)
    );
}
