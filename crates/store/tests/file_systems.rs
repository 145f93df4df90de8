//! Zones on file systems of several kinds: ext4, xfs, btrfs, and ext2, which cannot allocate space
//! ahead, each on a loop device; and reads that leave no trace in them.
//!
//! Only root may mount one; where that is not permitted, or there are no tools for a kind or no
//! driver in the kernel, the test says so and goes on with the next kind.

#[path = "support/image.rs"]
mod image;
#[path = "support/read.rs"]
mod read;

use std::fs::{File, FileTimes};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use millpond_store::{Fault, Key, NotStored, Platform, SimIo, SystemClock, Zone, ZoneConf};

use image::{Image, KINDS};
use read::read;

const LIMIT: u64 = 24 << 20;

fn key(number: u64) -> Key {
    Key::of(&number.to_le_bytes())
}

/// The body of a key: long ones take several extents, short ones stand in their records.
fn body(number: u64) -> Vec<u8> {
    let len = match number % 4 {
        0 => 700_000,
        1 => 100,
        2 => 9_000,
        _ => 0,
    };
    (0..len).map(|at| (number * 31 + at) as u8).collect()
}

fn open(dir: &Path) -> Arc<Zone> {
    let conf = ZoneConf {
        max_size: Some(LIMIT),
        memory: 0,
        inactive: Duration::from_secs(1_000_000),
        ..ZoneConf::new("fs", dir)
    };
    Zone::open(conf, Arc::new(SystemClock)).expect("opens")
}

fn store(zone: &Zone, number: u64) -> Result<(), NotStored> {
    let body = body(number);
    let mut writer = zone.begin(key(number), Some(body.len() as u64))?;
    writer.set_head(Bytes::from(number.to_string()));
    writer.append(Bytes::from(body))?;
    writer.finish().map(|_| ())
}

/// Number of the keys that are found, each with its own bytes.
fn count(zone: &Zone, keys: std::ops::Range<u64>) -> u64 {
    let mut found = 0;
    for number in keys {
        let Some(entry) = zone.find(&key(number)) else {
            continue;
        };
        assert_eq!(**entry.head(), *number.to_string().as_bytes());
        assert!(
            read(entry.regions(0..entry.len())) == body(number),
            "{number}"
        );
        found += 1;
    }
    found
}

fn segments(dir: &Path) -> Vec<PathBuf> {
    let names = std::fs::read_dir(dir).expect("listed");
    let paths = names.map(|entry| entry.expect("an entry").path());
    let is_segment = |path: &PathBuf| path.display().to_string().contains("/segment-");
    paths.filter(is_segment).collect()
}

/// Bytes that the files of a folder take, by their lengths and by their blocks.
fn taken(dir: &Path) -> (u64, u64) {
    use std::os::unix::fs::MetadataExt;
    let metas = std::fs::read_dir(dir)
        .expect("listed")
        .map(|entry| entry.expect("an entry").metadata().expect("there"));
    metas.fold((0, 0), |(len, blocks), meta| {
        (len + meta.len(), blocks + meta.blocks() * 512)
    })
}

/// Stored entries are found with their bytes, also after a restart; the limit holds by length and
/// by blocks while the zone turns over several times; and all of it is gone from the folder when
/// the zone is emptied.
#[test]
fn zone_holds_what_it_promises_on_file_systems_of_every_kind() {
    for kind in KINDS {
        let home = tempfile::tempdir().expect("directory");
        let Some(image) = Image::mount(kind, home.path()) else {
            continue;
        };
        let dir = image.dir().join("zone");
        let zone = open(&dir);
        let mut stored = 0;
        for number in 0..600 {
            // A disk that is behind refuses; nothing else may be.
            match store(&zone, number) {
                Ok(()) => stored += 1,
                Err(why) => assert_eq!(why, NotStored::QueueFull, "{kind:?} {number}"),
            }
            if number % 16 == 0 {
                zone.flush();
                let (len, blocks) = taken(&dir);
                assert!(len <= LIMIT && blocks <= LIMIT, "{kind:?}: {len} {blocks}");
            }
        }
        assert!(zone.sync(), "{kind:?}");
        assert!(stored > 500, "{kind:?} {stored}");
        // The last of them are there, whatever went for them.
        let before = count(&zone, 0..600);
        assert!(
            before > 20 && count(&zone, 590..600) > 5,
            "{kind:?} {before}"
        );
        zone.close();
        drop(zone);
        let zone = open(&dir);
        assert!(zone.loaded());
        assert_eq!(count(&zone, 0..600), before, "{kind:?}");
        assert_eq!(
            zone.usage().write_errors + zone.usage().corrupt,
            0,
            "{kind:?}"
        );
        println!("{kind:?}: {before} of {stored} entries within {LIMIT} bytes");
        zone.close();
        drop(zone);
        assert!(image.unmount(), "{kind:?} is still in use");
    }
}

fn open_on(io: &Arc<SimIo>, dir: &Path) -> Arc<Zone> {
    let conf = ZoneConf {
        max_size: Some(LIMIT),
        memory: 0,
        inactive: Duration::from_secs(1_000_000),
        ..ZoneConf::new("sim", dir)
    };
    let platform = Platform {
        io: Arc::<SimIo>::clone(io),
        ..Platform::default()
    };
    Zone::open_on(conf, Arc::new(SystemClock), platform).expect("opens")
}

/// A file that cannot be made for want of a descriptor, and not of space, costs what would have
/// been in it: evicting others would not help.
#[test]
fn file_that_cannot_be_made_evicts_nothing() {
    let home = tempfile::tempdir().expect("directory");
    let io = Arc::new(SimIo::new());
    let zone = open_on(&io, home.path());
    (0..8).for_each(|number| store(&zone, number).expect("stored"));
    zone.flush();
    io.set(Fault::NoDescriptor);
    for number in 100..140 {
        let _ = store(&zone, number);
        zone.flush();
    }
    assert!(io.injected() > 0);
    assert_eq!((count(&zone, 0..8), zone.usage().evicted), (8, 0));
    io.set(Fault::None);
    zone.sweep();
    (200..208).for_each(|number| store(&zone, number).expect("stored"));
    assert_eq!(count(&zone, 200..208), 8);
}

/// A disk that is full says so at a write, where nothing can be allocated ahead. What it did not
/// take is not found, then or later, nor anything in its place; and the zone goes on when there is
/// room.
#[test]
fn disk_that_allocates_nothing_ahead_and_is_full_costs_what_does_not_fit() {
    let home = tempfile::tempdir().expect("directory");
    let io = Arc::new(SimIo::new());
    let open = || open_on(&io, home.path());
    let zone = open();
    (0..8).for_each(|number| store(&zone, number).expect("stored"));
    zone.flush();
    assert_eq!(count(&zone, 0..8), 8);
    io.set(Fault::NoneAhead);
    for number in 100..140 {
        // Some fail at once, others when they are written.
        let _ = store(&zone, number);
        zone.flush();
    }
    assert_eq!(count(&zone, 100..140), 0);
    assert_eq!(count(&zone, 0..8), 8, "what was there stays");
    let usage = zone.usage();
    assert!(
        usage.lost + usage.not_stored > 0 && usage.write_errors > 0,
        "{usage:?}"
    );
    io.set(Fault::None);
    zone.sweep();
    for number in 200..208 {
        store(&zone, number).expect("stored");
        zone.flush();
    }
    assert_eq!(count(&zone, 200..208), 8);
    zone.close();
    drop(zone);
    let zone = open();
    assert!(zone.loaded());
    assert_eq!((count(&zone, 0..8), count(&zone, 200..208)), (8, 8));
    assert_eq!(count(&zone, 100..140), 0);
    zone.close();
}

/// A long time ago, and before any time of modification: with `relatime` a read would change it.
fn age(path: &Path) {
    let file = File::options().write(true).open(path).expect("opened");
    let old = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    let times = FileTimes::new().set_accessed(old);
    file.set_times(times).expect("set");
}

fn accessed(path: &Path) -> SystemTime {
    let meta = std::fs::metadata(path).expect("there");
    meta.accessed().expect("known")
}

/// Reading and sending from a segment does not write its time of access: on ext4 that takes a
/// handle of the journal, for which whoever sends waits while the journal's disk is stalled.
#[test]
fn reads_of_a_zone_leave_the_times_of_its_files() {
    let home = tempfile::tempdir().expect("directory");
    let control = home.path().join("control");
    std::fs::write(&control, b"read me").expect("written");
    age(&control);
    let before = accessed(&control);
    std::fs::read(&control).expect("read");
    if accessed(&control) == before {
        println!("reads leave no times here in any case");
        return;
    }
    let dir = home.path().join("zone");
    let zone = open(&dir);
    for number in 0..8 {
        store(&zone, number).expect("stored");
    }
    assert!(zone.sync());
    let check = |zone: &Zone| {
        let segments = segments(&dir);
        assert!(!segments.is_empty());
        segments.iter().for_each(|path| age(path));
        let before: Vec<_> = segments.iter().map(|path| accessed(path)).collect();
        assert_eq!(count(zone, 0..8), 8);
        let after: Vec<_> = segments.iter().map(|path| accessed(path)).collect();
        assert_eq!(before, after);
    };
    // Files that were made by this process, and those that it found.
    check(&zone);
    zone.close();
    drop(zone);
    check(&open(&dir));
}
