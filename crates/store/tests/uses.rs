//! Last uses of entries, and their numbers of uses, survive restarts.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use millpond_store::{EntrySummary, Key, ManualClock, Platform, Zone, ZoneConf};

const FILE: &str = "millpond.uses";
const MINUTE: Duration = Duration::from_secs(60);

struct Bench {
    dir: tempfile::TempDir,
    clock: Arc<ManualClock>,
}

impl Bench {
    fn new() -> Self {
        Self {
            dir: tempfile::tempdir().expect("directory"),
            clock: Arc::new(ManualClock::new(1_700_000_000_000)),
        }
    }

    fn conf(&self, max_size: u64) -> ZoneConf {
        ZoneConf {
            max_size: Some(max_size),
            inactive: 10 * MINUTE,
            flush: Duration::ZERO,
            ..ZoneConf::new("test", self.dir.path().join("zone"))
        }
    }

    fn open(&self) -> Arc<Zone> {
        self.open_with(self.conf(16 << 20))
    }

    fn open_with(&self, conf: ZoneConf) -> Arc<Zone> {
        Zone::open_on(conf, self.clock.clone(), Platform::default()).expect("open")
    }

    fn file(&self) -> std::path::PathBuf {
        self.dir.path().join("zone").join(FILE)
    }

    /// Directory as a process leaves it that dies now, copied.
    fn killed(&self) -> Self {
        let copy = Self {
            dir: tempfile::tempdir().expect("directory"),
            clock: self.clock.clone(),
        };
        let (from, to) = (self.dir.path().join("zone"), copy.dir.path().join("zone"));
        std::fs::create_dir(&to).expect("created");
        for entry in std::fs::read_dir(from).expect("listed") {
            let path = entry.expect("entry").path();
            std::fs::copy(&path, to.join(path.file_name().expect("name"))).expect("copied");
        }
        copy
    }
}

fn store(zone: &Arc<Zone>, name: &str) {
    let mut writer = zone.begin(Key::of(name.as_bytes()), None).expect("begun");
    writer.set_head(Bytes::from_static(b"head"));
    writer.append(Bytes::from(vec![7; 300])).expect("taken");
    writer.finish().expect("finished");
    zone.flush();
}

fn summary(zone: &Zone, name: &str) -> Option<EntrySummary> {
    let mut found = None;
    zone.entries(&mut |key, summary| {
        if *key == Key::of(name.as_bytes()) {
            found = Some(summary);
        }
    });
    found
}

/// Second of the last use since the beginning of the test, and uses.
fn used(zone: &Zone, name: &str) -> Option<(u64, u32)> {
    let summary = summary(zone, name)?;
    Some((summary.used_ms / 1000 - 1_700_000_000, summary.hits))
}

fn find(zone: &Zone, name: &str) -> bool {
    zone.find(&Key::of(name.as_bytes())).is_some()
}

#[test]
fn uses_survive_a_restart_to_the_second() {
    let bench = Bench::new();
    let zone = bench.open();
    for name in ["a", "b", "c"] {
        store(&zone, name);
        bench.clock.advance(Duration::from_secs(7));
    }
    for _ in 0..5 {
        assert!(find(&zone, "a"));
    }
    let before = ["a", "b", "c"].map(|name| used(&zone, name));
    assert_eq!(before, [Some((21, 5)), Some((7, 0)), Some((14, 0))]);
    for round in 0..3 {
        zone.close();
        bench.clock.advance(MINUTE);
        let zone = bench.open();
        let after = ["a", "b", "c"].map(|name| used(&zone, name));
        assert_eq!(after, before, "{round}");
    }
}

#[test]
fn time_without_a_process_is_no_disuse() {
    let bench = Bench::new();
    let mut zone = bench.open();
    store(&zone, "old");
    bench.clock.advance(3 * MINUTE);
    store(&zone, "young");
    for round in 1..=3 {
        zone.close();
        bench.clock.advance(60 * MINUTE);
        zone = bench.open();
        let (old, young) = (round * 3600, round * 3600 + 180);
        assert_eq!(used(&zone, "old"), Some((old, 0)), "{round}");
        assert_eq!(used(&zone, "young"), Some((young, 0)), "{round}");
    }
    bench.clock.advance(7 * MINUTE + Duration::from_secs(1));
    assert!(!find(&zone, "old") && find(&zone, "young"));
    assert_eq!((zone.sweep().expired, zone.usage().entries), (1, 1));
}

#[test]
fn a_death_takes_a_minute_of_uses_at_most() {
    let bench = Bench::new();
    let zone = bench.open();
    store(&zone, "early");
    zone.sweep();
    for _ in 0..5 {
        bench.clock.advance(MINUTE);
        assert!(find(&zone, "early"));
        zone.sweep();
    }
    bench.clock.advance(Duration::from_secs(50));
    assert!(find(&zone, "early"));
    store(&zone, "late");
    bench.clock.advance(MINUTE);
    let left = bench.killed();
    let again = left.open();
    // The last writing was in the fifth minute, and what was used since counts as used now: nobody
    // knows how long the process lived after it.
    assert_eq!(used(&again, "early"), Some((410, 5)));
    assert_eq!(used(&again, "late"), Some((410, 0)));
    // Nothing was in use for long, and the file says so: what is new is not taken for old.
    for _ in 0..30 {
        bench.clock.advance(MINUTE);
        zone.sweep();
    }
    store(&zone, "new");
    let again = bench.killed().open();
    assert!(find(&again, "new") && !find(&again, "late"));
}

#[test]
fn a_file_that_is_missing_or_damaged_costs_order_only() {
    let bench = Bench::new();
    let zone = bench.open();
    let names: Vec<String> = (0..500).map(|number| format!("{number}")).collect();
    for name in &names {
        store(&zone, name);
        assert!(find(&zone, name));
    }
    zone.close();
    let whole = std::fs::read(bench.file()).expect("read");
    let damages: [&dyn Fn(&Path); 6] = [
        &|path| std::fs::remove_file(path).expect("removed"),
        &|path| std::fs::write(path, b"").expect("written"),
        &|path| std::fs::write(path, vec![0xff; whole.len()]).expect("written"),
        &|path| std::fs::write(path, &whole[..whole.len() / 2]).expect("written"),
        &|path| flip(path, &whole, 70),
        &|path| flip(path, &whole, 200),
    ];
    for (number, damage) in damages.iter().enumerate() {
        damage(&bench.file());
        let zone = bench.open();
        assert_eq!(zone.usage().entries, 500, "{number}");
        assert!(names.iter().all(|name| find(&zone, name)), "{number}");
        zone.close();
        // And it is whole again.
        let zone = bench.open();
        assert!(
            names
                .iter()
                .all(|name| used(&zone, name).is_some_and(|(_, hits)| hits > 0))
        );
        zone.close();
    }
}

fn flip(path: &Path, whole: &[u8], position: usize) {
    let mut bytes = whole.to_vec();
    bytes[position] ^= 0x10;
    std::fs::write(path, bytes).expect("written");
}

#[test]
fn the_file_is_within_the_limit_and_grows_with_the_zone() {
    let bench = Bench::new();
    let limit = 2 << 20;
    let zone = bench.open_with(bench.conf(limit));
    let mut seen = 0;
    for number in 0..6000 {
        store(&zone, &format!("{}", number % 3000));
        if number % 40 == 0 {
            bench.clock.advance(MINUTE / 2);
            zone.sweep();
            // Listing is not atomic: the disk thread must not evict meanwhile.
            zone.flush();
            let files = std::fs::read_dir(bench.dir.path().join("zone")).expect("listed");
            let sizes = files.map(|file| file.expect("file").metadata().expect("size").len());
            let sum: u64 = sizes.sum();
            assert!(
                sum <= zone.usage().bytes && zone.usage().bytes <= limit,
                "{number}"
            );
            let len = std::fs::metadata(bench.file()).map_or(0, |meta| meta.len());
            assert!(len <= limit / 16);
            seen = seen.max(len);
        }
    }
    assert!(seen > 8192, "{seen}");
    zone.close();
    let entries = zone.usage().entries;
    assert_eq!(bench.open_with(bench.conf(limit)).usage().entries, entries);
}
