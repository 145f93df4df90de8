//! Zones of many segments: what opening, loading and syncing one costs grows as they do, and no
//! more of their files are open than there may be.

#[path = "support/read.rs"]
mod read;

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use millpond_store::{
    Event, Haste, Key, ManualClock, OpenFiles, Platform, Region, SimIo, Zone, ZoneConf,
};

use read::read;

/// The least size of a segment.
const SEGMENT: u64 = 4096;
/// Fills most of a segment, so that each has one.
const BODY: usize = 3000;
/// Files that may be open.
const OPEN: usize = 64;
/// Number of files that are open for a moment besides: one for each thread that opens or reads, and
/// one that is being made.
const MORE: usize = 10;

fn key(number: u64) -> Key {
    Key::of(&number.to_le_bytes())
}

fn body(number: u64) -> Vec<u8> {
    (0..BODY as u64).map(|at| (number * 7 + at) as u8).collect()
}

/// A zone, its clock, and what its files take of the process.
struct Scene {
    zone: Arc<Zone>,
    clock: Arc<ManualClock>,
    open_files: Arc<OpenFiles>,
}

/// True for events of a zone whose files nobody else touches.
fn is_usual(event: &Event) -> bool {
    matches!(event, Event::Loaded { .. } | Event::ReadFailed(_))
}

/// True for events of a zone whose files were exchanged: what it has left to write to them is lost.
fn is_of_exchange(event: &Event) -> bool {
    let is_loss = matches!(event, Event::WriteFailed(_) | Event::SegmentLost { .. });
    is_usual(event) || is_loss || matches!(event, Event::Resting { .. })
}

fn open(dir: &Path, is_expected: fn(&Event) -> bool) -> Scene {
    let conf = ZoneConf {
        segment_size: Some(SEGMENT),
        // Stands in its record, with its head.
        small: 8 << 10,
        memory: 0,
        queue: 256 << 20,
        warm_up: 0,
        inactive: Duration::from_secs(1_000_000),
        ..ZoneConf::new("many", dir)
    };
    let open_files = Arc::new(OpenFiles::new(OPEN));
    let platform = Platform {
        // Syncing costs the device nothing, and us what it costs.
        io: Arc::new(SimIo::new()),
        open_files: Arc::clone(&open_files),
        events: Arc::new(move |event| assert!(is_expected(event), "{event}")),
        ..Platform::default()
    };
    let clock = Arc::new(ManualClock::new(1_790_000_000_000));
    let zone = Zone::open_on(conf, clock.clone(), platform).expect("opens");
    Scene {
        zone,
        clock,
        open_files,
    }
}

fn store_all(scene: &Scene, count: u64) -> Duration {
    for number in 0..count {
        let mut writer = scene.zone.begin(key(number), None).expect("begun");
        writer.set_head(Bytes::from_static(b"head"));
        writer.append(Bytes::from(body(number))).expect("taken");
        writer.finish().expect("stored");
        if number % 64 == 0 {
            // What is written stays open until it is synced, or a minute has passed.
            scene.zone.flush();
            scene.clock.advance(Duration::from_secs(61));
        }
    }
    let began = Instant::now();
    assert!(scene.zone.sync());
    began.elapsed()
}

fn check_open(scene: &Scene) {
    let count = scene.open_files.count();
    assert!(count <= OPEN + MORE, "{count} files are open");
}

fn segments(dir: &Path) -> usize {
    let names = std::fs::read_dir(dir).expect("listed");
    let names = names.map(|entry| entry.expect("an entry").file_name());
    let is_segment = |name: &std::ffi::OsString| name.to_string_lossy().starts_with("segment-");
    names.filter(is_segment).count()
}

/// Makes a zone of so many segments, opens it again, loads it, reads all of it and syncs it; how
/// long that took.
fn run(count: u64) -> Duration {
    let home = tempfile::tempdir().expect("directory");
    let dir = home.path().join("zone");
    let scene = open(&dir, is_usual);
    let synced = store_all(&scene, count);
    scene.zone.close();
    drop(scene);
    assert!(segments(&dir) as u64 >= count);
    let began = Instant::now();
    let scene = open(&dir, is_usual);
    check_open(&scene);
    assert!(scene.zone.loaded());
    check_open(&scene);
    let took = began.elapsed();
    for number in (0..count).step_by(37) {
        let entry = scene.zone.find(&key(number)).expect("found");
        assert!(read(entry.regions(0..entry.len())) == body(number));
        check_open(&scene);
    }
    let began = Instant::now();
    scene.clock.advance(Duration::from_secs(61));
    scene.zone.sweep();
    scene.zone.close();
    let closed = began.elapsed();
    println!(
        "{count} segments: synced in {synced:?}, loaded in {took:?}, swept and closed in {closed:?}"
    );
    synced + took + closed
}

/// Ten times as many segments take at most fifteen times as long to open, load, sync, sweep and
/// close, and no more open files. A disk that was busy with something else for a moment may have
/// taken that time: what costs too much costs it each time.
#[test]
fn what_segments_cost_grows_as_they_do() {
    let attempt = || {
        let (few, many) = (run(1_000), run(10_000));
        println!("1,000 segments: {few:?}; 10,000: {many:?}");
        // Below so much the clock and others on the machine say more than the zone does.
        let few = few.max(Duration::from_millis(40));
        (many <= few * 15).then_some(()).ok_or((few, many))
    };
    let attempts = (0..3).map(|_| attempt());
    let failed: Vec<_> = attempts.map_while(Result::err).collect();
    assert!(failed.len() < 3, "{failed:?}");
}

/// A region of a file that was closed is not ready, so that no worker opens one; a thread of the
/// disk does, and what is being read stays open.
#[test]
fn closed_file_is_opened_by_a_thread_of_the_disk() {
    let home = tempfile::tempdir().expect("directory");
    let conf = ZoneConf {
        segment_size: Some(64 << 10),
        small: 0,
        // Heads are there, so that a look opens nothing.
        memory: 8 << 20,
        ..ZoneConf::new("few", home.path())
    };
    let open_files = Arc::new(OpenFiles::new(1));
    let platform = Platform {
        open_files: Arc::clone(&open_files),
        ..Platform::default()
    };
    let clock = Arc::new(ManualClock::new(1_790_000_000_000));
    let zone = Zone::open_on(conf, clock.clone(), platform).expect("opens");
    for number in 0..20 {
        let mut writer = zone.begin(key(number), None).expect("begun");
        writer.set_head(Bytes::from_static(b"head"));
        writer
            .append(Bytes::from(vec![number as u8; 50_000]))
            .expect("taken");
        writer.finish().expect("stored");
        zone.flush();
    }
    // After the first one headers say how many rows the summaries have.
    assert!(zone.sync() && zone.sync());
    clock.advance(Duration::from_secs(10));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .expect("runtime");
    let mut held = Vec::new();
    let mut closed = 0;
    for number in 0..20 {
        let entry = zone.find(&key(number)).expect("found");
        let region = entry.regions_to_load(0..entry.len()).next();
        let Some(Region::File { file, offset, len }) = region else {
            panic!("not in a file");
        };
        if file.ready_len(offset, len) == 0 {
            closed += usize::from(!file.is_open());
            let loaded = runtime.block_on(file.load(offset, len, Haste::Patient).done());
            assert_eq!(loaded.ok(), Some(len));
        }
        assert!(file.is_open() && file.ready_len(offset, len) > 0);
        held.push((file, offset, number));
    }
    assert!(closed > 10, "{closed}");
    // As many as are being read, each once.
    assert!(open_files.count() <= 21, "{}", open_files.count());
    for (file, offset, number) in &held {
        let mut bytes = [0; 100];
        file.read_exact_at(&mut bytes, *offset).expect("read");
        assert!(bytes.iter().all(|byte| *byte == *number as u8));
    }
    drop(held);
    let entry = zone.find(&key(3)).expect("found");
    assert_eq!(read(entry.regions(0..entry.len())).len(), 50_000);
    assert!(zone.sync());
    assert!(open_files.count() <= 3, "{}", open_files.count());
}

/// A file that took the name of another one, as when the folder was emptied and used by another
/// zone, is not taken for it.
#[test]
fn file_of_another_zone_is_not_opened_in_place_of_ones_own() {
    let home = tempfile::tempdir().expect("directory");
    let (one, other) = (home.path().join("one"), home.path().join("other"));
    let (scene, strange) = (open(&one, is_of_exchange), open(&other, is_of_exchange));
    for one in [&scene, &strange] {
        store_all(one, 200);
        // Nothing is left to be written to them.
        assert!(one.zone.sync() && one.zone.sync());
        one.clock.advance(Duration::from_secs(61));
        one.open_files.set_limit(OPEN);
    }
    // Most of them are closed by now; whatever is not keeps its own bytes.
    for entry in std::fs::read_dir(&other).expect("listed") {
        let name = entry.expect("an entry").file_name();
        if name.to_string_lossy().starts_with("segment-") {
            std::fs::rename(other.join(&name), one.join(&name)).expect("renamed");
        }
    }
    let zone = &scene.zone;
    let found = (0..200).filter(|number| zone.find(&key(*number)).is_some());
    assert!(found.count() <= OPEN + MORE);
}
