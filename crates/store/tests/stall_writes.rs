//! A disk that does not write: whoever stores, removes and looks up goes on at once, nothing passes
//! the limits, and later all is as before.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use millpond_store::{
    Entry, Fault, Key, Look, ManualClock, NotStored, Platform, Region, SimIo, Written, Zone,
    ZoneConf,
};

const MIB: usize = 1 << 20;
const MAX_SIZE: u64 = 8 << 20;
const QUEUE: u64 = 2 << 20;
/// Nothing takes so long, unless a test fails.
const PATIENCE: Duration = Duration::from_secs(60);

struct Bench {
    dir: tempfile::TempDir,
    clock: Arc<ManualClock>,
    io: Arc<SimIo>,
}

impl Bench {
    fn new() -> Self {
        Self {
            dir: tempfile::tempdir().expect("directory"),
            clock: Arc::new(ManualClock::new(1_700_000_000_000)),
            io: Arc::new(SimIo::new()),
        }
    }

    fn conf(&self) -> ZoneConf {
        ZoneConf {
            max_size: Some(MAX_SIZE),
            flush: Duration::ZERO,
            queue: QUEUE,
            ..ZoneConf::new("test", self.dir.path())
        }
    }

    /// A zone of sixteen segments of half a mebibyte.
    fn open(&self) -> Arc<Zone> {
        self.open_with(self.conf())
    }

    fn open_with(&self, conf: ZoneConf) -> Arc<Zone> {
        let platform = Platform {
            io: self.io.clone(),
            ..Platform::default()
        };
        Zone::open_on(conf, self.clock.clone(), platform).expect("opens")
    }

    /// Nothing is written from now on, until the guard goes: also when a test fails, or closing the
    /// zone would wait for ever.
    fn stall(&self) -> Stalled {
        self.io.set(Fault::StallWrites);
        Stalled(Arc::clone(&self.io))
    }

    fn until_stalled(&self) {
        while self.io.stalled() == 0 {
            std::thread::yield_now();
        }
    }
}

struct Stalled(Arc<SimIo>);

impl Drop for Stalled {
    fn drop(&mut self) {
        self.0.set(Fault::None);
    }
}

fn key(number: usize) -> Key {
    Key::of(&number.to_le_bytes())
}

fn body(number: usize, len: usize) -> Bytes {
    Bytes::from(vec![number as u8; len])
}

fn store(zone: &Zone, number: usize, len: usize) -> Result<Entry, NotStored> {
    let mut writer = zone.begin(key(number), Some(len as u64))?;
    writer.set_head(Bytes::from_static(b"head"));
    writer.append(body(number, len))?;
    writer.finish()
}

fn is_found(zone: &Zone, number: usize) -> bool {
    matches!(zone.look(&key(number)), Look::Found(_))
}

/// Bytes of all files; one that goes away meanwhile has none.
fn size_on_disk(dir: &Path) -> u64 {
    let names = std::fs::read_dir(dir).expect("listed");
    let found = names.map(|name| name.expect("a name").metadata());
    found
        .map(|found| found.map_or(0, |found| found.len()))
        .sum()
}

/// The test itself would hang if one of the calls waited: it lets the disk go on only at its end.
#[test]
fn nobody_waits_for_a_disk_that_does_not_write() {
    for held in [0, 6 * MIB, 12 * MIB] {
        let bench = Bench::new();
        let zone = bench.open();
        // An empty zone, one that has room, and one that must evict.
        let before = held / 100_000;
        for number in 0..before {
            store(&zone, number, 100_000).expect("stored");
            zone.flush();
        }
        store(&zone, 9_000, 10).expect("stored");
        zone.flush();
        let stalled = bench.stall();
        let mut stored = 0;
        let mut refused = None;
        for number in 10_000..10_200 {
            match store(&zone, number, 100_000) {
                Ok(entry) => stored += usize::from(entry.len() == 100_000),
                Err(why) => refused = refused.or(Some(why)),
            }
        }
        bench.until_stalled();
        assert!((10..40).contains(&stored), "{stored} of {held}");
        assert_eq!(refused, Some(NotStored::QueueFull), "{held}");
        assert!(zone.usage().queued_bytes <= QUEUE + 100_000);
        let entry = zone.find(&key(9_000)).expect("in memory");
        // There is room for a head, but not for another body.
        let replaced = zone.replace_head(&entry, Bytes::from_static(b"other"));
        assert_eq!(replaced.expect("room").head(), "other");
        assert!(zone.remove(&key(9_000)) && !is_found(&zone, 9_000));
        for number in 10_000..10_000 + stored {
            assert!(is_found(&zone, number), "{number} of {held}");
            assert!(zone.remove(&key(number)) && !is_found(&zone, number));
        }
        // Who reads along goes on with what there is.
        let mut writer = zone.begin(key(20_000), None).expect("begun");
        let view = writer.view();
        let refused = writer.append(body(1, MIB));
        assert_eq!(
            (refused, view.len()),
            (Err(NotStored::QueueFull), MIB as u64)
        );
        drop(writer);
        assert!(size_on_disk(bench.dir.path()) <= MAX_SIZE, "{held}");
        drop(stalled);
        zone.flush();
        assert_eq!(zone.usage().lost, 0, "{held}");
        let entry = store(&zone, 30_000, MIB).expect("stored");
        zone.flush();
        assert_eq!(entry.len(), MIB as u64);
        assert!(size_on_disk(bench.dir.path()) <= MAX_SIZE, "{held}");
        drop(zone);
        let zone = bench.open();
        assert!(zone.find(&key(30_000)).is_some());
        for number in [9_000].into_iter().chain(10_000..10_000 + stored) {
            assert!(!is_found(&zone, number), "{number} of {held} came back");
        }
    }
}

/// A burst that is longer than what is free finds room as far as something can be evicted for it,
/// before any of that happens.
#[test]
fn a_burst_into_a_full_zone_is_stored_while_the_disk_thread_is_behind() {
    let bench = Bench::new();
    let zone = bench.open();
    for number in 0..100 {
        store(&zone, number, 100_000).expect("stored");
        zone.flush();
    }
    let held = zone.usage().entries;
    let stalled = bench.stall();
    for number in 1_000..1_015 {
        store(&zone, number, 100_000).expect("there is something to evict");
    }
    drop(stalled);
    zone.flush();
    assert_eq!(zone.usage().lost, 0);
    assert!(zone.usage().entries <= held + 15);
    for number in 1_000..1_015 {
        assert!(is_found(&zone, number), "{number}");
    }
    assert!(size_on_disk(bench.dir.path()) <= MAX_SIZE);
}

/// While a sweep waits for the disk, nobody else does, and closing waits for it alone.
#[test]
fn a_sweep_that_waits_holds_nobody() {
    let bench = Bench::new();
    let zone = bench.open();
    for number in 0..50 {
        store(&zone, number, 1_000).expect("stored");
    }
    zone.flush();
    bench.clock.advance(Duration::from_secs(700));
    let stalled = bench.stall();
    std::thread::scope(|scope| {
        let sweep = scope.spawn(|| zone.sweep());
        bench.until_stalled();
        let close = scope.spawn(|| {
            zone.close();
        });
        // Whether it is closed by now or not, nobody waits.
        for number in 100..200 {
            let _ = store(&zone, number, 1_000);
            let _ = zone.remove(&key(number));
            let _ = zone.look(&key(number));
        }
        let _ = zone.usage();
        assert!(!sweep.is_finished() && !close.is_finished());
        drop(stalled);
        assert_eq!(sweep.join().expect("swept").expired, 50);
    });
}

/// Entries that were removed while the disk did not write are gone after a kill, once a flush has
/// returned.
#[test]
fn what_was_removed_is_gone_after_a_kill_once_that_was_flushed() {
    let bench = Bench::new();
    let zone = bench.open();
    for number in 0..10 {
        store(&zone, number, 1_000).expect("stored");
    }
    zone.flush();
    let stalled = bench.stall();
    for number in 0..5 {
        assert!(zone.remove(&key(number)));
    }
    drop(stalled);
    zone.flush();
    let copy = Bench::new();
    for name in std::fs::read_dir(bench.dir.path()).expect("listed") {
        let name = name.expect("a name");
        let to = copy.dir.path().join(name.file_name());
        std::fs::copy(name.path(), to).expect("copied");
    }
    let killed = copy.open();
    for number in 0..10 {
        assert_eq!(is_found(&killed, number), number >= 5, "{number}");
    }
}

/// Answers of a view about the files that hold a position: how many bytes from there on, or why
/// none.
fn written(zone: &Zone, view: &millpond_store::View, positions: &[u64]) -> Vec<String> {
    let say = |position: &u64| match view.written(*position..u64::MAX) {
        Written::Regions(regions) => {
            assert!(regions.iter().all(|it| matches!(it, Region::File { .. })));
            regions.iter().map(Region::len).sum::<u64>().to_string()
        }
        other => format!("{other:?}"),
    };
    let said = positions.iter().map(say).collect();
    // A look changes nothing of the zone.
    assert_eq!(zone.usage().entries, 0);
    said
}

#[test]
fn a_view_says_what_of_it_is_in_files_and_what_is_to_be_waited_for() {
    let bench = Bench::new();
    let zone = bench.open();
    let stalled = bench.stall();
    let mut writer = zone.begin(key(1), None).expect("begun");
    let view = writer.view();
    // Two places and something that has none yet.
    let placed = 512 << 10;
    writer.append(body(1, placed + 100)).expect("taken");
    bench.until_stalled();
    let (start, end) = (0, placed as u64);
    let said = written(&zone, &view, &[start, end - 1, end]);
    assert_eq!(said, ["Queued", "Queued", "Gathering"]);
    drop(stalled);
    zone.flush();
    let said = written(&zone, &view, &[start, end - 1, end]);
    assert_eq!(said, [placed.to_string().as_str(), "1", "Gathering"]);
    drop(writer);
    // What was given up stays where it is.
    assert_eq!(written(&zone, &view, &[end - 1, end]), ["1", "No"]);
}

#[test]
fn a_small_body_is_not_waited_for_in_files() {
    let bench = Bench::new();
    let zone = bench.open();
    let mut writer = zone.begin(key(1), None).expect("begun");
    writer.set_head(Bytes::from_static(b"head"));
    let view = writer.view();
    writer.append(body(1, 100)).expect("taken");
    writer.finish().expect("stored");
    assert!(matches!(view.written(0..100), Written::No));
}

/// The file of a segment that is synced when it is evicted goes as soon as that sync is over,
/// without a sweep.
#[test]
fn limit_that_is_lowered_during_a_sync_holds_once_the_sync_is_over() {
    const LOWERED: u64 = 2 << 20;
    let bench = Bench::new();
    let conf = ZoneConf {
        flush: Duration::from_millis(10),
        ..bench.conf()
    };
    let zone = bench.open_with(conf.clone());
    bench.io.set(Fault::StallSyncs);
    let stalled = Stalled(Arc::clone(&bench.io));
    store(&zone, 0, 100_000).expect("stored");
    bench.until_stalled();
    // Others are written meanwhile.
    for number in 1..40 {
        store(&zone, number, 100_000).expect("stored");
        zone.flush();
    }
    zone.change(ZoneConf {
        max_size: Some(LOWERED),
        ..conf
    });
    let held = zone.usage().bytes;
    assert!(held > LOWERED, "{held}: nothing of it was synced meanwhile");
    drop(stalled);
    let deadline = Instant::now() + PATIENCE;
    while zone.usage().bytes > LOWERED {
        assert!(Instant::now() < deadline, "{held}, then {:?}", zone.usage());
        std::thread::yield_now();
    }
    assert!(is_found(&zone, 39), "the newest stays");
}
