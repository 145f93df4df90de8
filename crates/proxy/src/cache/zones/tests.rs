//! Zones on disks that stand still.

use std::time::Duration;

use millpond_store::{Fault, Key, ManualClock, SimIo};
use millpond_system::clock;

use super::*;

/// No test waits for so long, unless it fails.
const WAIT: Duration = Duration::from_secs(20);
const INACTIVE: Duration = Duration::from_secs(60);

/// A zone with a disk and a clock of its own.
struct Bench {
    dir: tempfile::TempDir,
    io: Arc<SimIo>,
    clock: Arc<ManualClock>,
    zone: Option<Arc<CacheZone>>,
}

/// A test that fails must not wait for its disk.
impl Drop for Bench {
    fn drop(&mut self) {
        self.io.set(Fault::None);
    }
}

fn conf(dir: &Path) -> ZoneConf {
    ZoneConf {
        inactive: INACTIVE,
        ..ZoneConf::new("z", dir.join("zone"))
    }
}

impl Bench {
    fn open(registry: &Registry) -> Bench {
        let mut bench = Bench {
            dir: tempfile::tempdir().unwrap(),
            io: Arc::new(SimIo::new()),
            clock: Arc::new(ManualClock::new(1_700_000_000_000)),
            zone: None,
        };
        bench.open_again(registry);
        bench
    }

    fn open_again(&mut self, registry: &Registry) {
        let platform = Platform {
            io: self.io.clone(),
            ..Platform::default()
        };
        let dir = self.dir.path();
        let store = Zone::open_on(conf(dir), self.clock.clone(), platform).unwrap();
        let zone = Arc::new(CacheZone::new("z".to_string(), store));
        registry.note(&ZonePath::new("z", dir), &zone);
        self.zone = Some(zone);
    }

    fn zone(&self) -> &CacheZone {
        self.zone.as_ref().unwrap()
    }

    fn store(&self) {
        let mut writer = self.zone().store.begin(Key::of(b"key"), None).unwrap();
        writer.set_head(Bytes::from_static(b"head"));
        writer.finish().unwrap();
        self.zone().store.flush();
    }

    /// The disk takes nothing any more, and the thread that sweeps wants to write to it.
    fn stand_still(&self) {
        self.store();
        self.io.set(Fault::StallWrites);
        // Uses are written down each minute, and inactive entries are removed.
        self.clock.advance(2 * INACTIVE);
    }

    /// True if the directory is free.
    fn is_free(&self) -> bool {
        Zone::open_on(
            conf(self.dir.path()),
            self.clock.clone(),
            Platform::default(),
        )
        .is_ok()
    }
}

fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = clock::instant();
    while !is_so() {
        assert!(began.elapsed() < WAIT, "{what}");
        std::thread::yield_now();
    }
}

#[test]
fn a_disk_that_stands_still_keeps_no_other_zone_from_being_swept() {
    let registry = Registry::default();
    let benches: Vec<Bench> = (0..6).map(|_| Bench::open(&registry)).collect();
    let (still, others) = benches.split_at(3);
    still.iter().for_each(Bench::stand_still);
    registry.sweepers.begin(&registry.open, &Arc::default());
    until("a disk is written to", || {
        still.iter().any(|bench| bench.io.stalled() > 0)
    });
    for bench in others {
        bench.store();
        bench.clock.advance(2 * INACTIVE);
    }
    for bench in others {
        until("swept", || bench.zone().store.usage().expired == 1);
    }
}

#[test]
fn zones_on_other_disks_are_closed_and_the_end_waits_for_one_that_stands_still_so_long_only() {
    let registry = Registry::default();
    let benches: Vec<Bench> = (0..4).map(|_| Bench::open(&registry)).collect();
    let (still, others) = benches.split_at(2);
    benches.iter().for_each(Bench::store);
    still.iter().for_each(Bench::stand_still);
    let began = clock::instant();
    registry.close(&Arc::default(), Duration::from_secs(1));
    assert!(began.elapsed() < WAIT);
    for bench in others {
        // The zone was closed in an orderly way, and its directory is free.
        assert!(bench.is_free());
    }
    still.iter().for_each(|bench| assert!(!bench.is_free()));
}

#[test]
fn a_folder_that_is_let_go_and_opened_again_is_swept_again() {
    let registry = Registry::default();
    let mut bench = Bench::open(&registry);
    for _ in 0..2 {
        registry.sweepers.begin(&registry.open, &Arc::default());
        assert_eq!(registry.sweepers.count(), 1);
        bench.store();
        bench.clock.advance(2 * INACTIVE);
        until("swept", || bench.zone().store.usage().expired == 1);
        bench.zone = None;
        until("ended", || registry.sweepers.count() == 0);
        bench.open_again(&registry);
    }
}
