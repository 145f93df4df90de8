//! Zones that were written by every version of the format: each opens with all that is in it, or
//! is set aside with a message, as those are whose keys were made without a secret.
//!
//! `fixtures/NAME/closed` was closed in order; `fixtures/NAME/killed` is what a process left that
//! was killed. Both were written by the code of their day with
//! `cargo test -p millpond-store --test formats -- --ignored`, which writes those of today's
//! version; older ones are never written again.

#[path = "support/read.rs"]
mod read;

use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use millpond_store::{Event, Key, ManualClock, Platform, RealIo, Review, Reviewed, Zone, ZoneConf};

use read::read;

/// Versions whose keys have no secret.
const UNKEYED: [&str; 2] = ["v1", "v1-journal2"];
/// All other versions: of the zone, and of its journal where that has one of its own. The last one
/// is written today.
const VERSIONS: [&str; 1] = ["v2"];
/// Time when the zones were written.
const WRITTEN_MS: u64 = 1_790_000_000_000;

/// Inline, empty, in one slice, in slices over several segments.
const LENGTHS: [u64; 8] = [0, 1, 15, 700, 4_000, 9_000, 40_000, 25_000];
const REMOVED: Range<u64> = 100..103;
const REVIEWED: Range<u64> = 200..205;
const NOTES: [&str; 3] = ["first", "second", "a third one"];

fn conf(path: &Path) -> ZoneConf {
    ZoneConf {
        max_size: Some(400 << 10),
        segment_size: Some(16 << 10),
        inactive: Duration::from_secs(1 << 30),
        small: 4096,
        ..ZoneConf::new("formats", path)
    }
}

fn key(number: u64) -> Key {
    Key::of(&number.to_le_bytes())
}

fn head(number: u64) -> Bytes {
    Bytes::from(format!("head of {number}"))
}

fn body(number: u64, len: u64) -> Vec<u8> {
    let byte = |at: u64| (number + 3).wrapping_mul(at + 7).wrapping_mul(0x9e37_79b9) >> 11;
    (0..len).map(|at| byte(at) as u8).collect()
}

fn store(zone: &Zone, number: u64, head: Bytes, body: Vec<u8>) {
    let mut writer = zone.begin(key(number), None).expect("begun");
    writer.set_head(head);
    writer.append(Bytes::from(body)).expect("taken");
    writer.finish().expect("finished");
}

/// Everything that a zone of today can hold.
fn fill(zone: &Zone) {
    let removed = REMOVED.chain(REVIEWED);
    for number in removed {
        store(zone, number, head(number), body(number, 300));
    }
    for (number, len) in (0..).zip(LENGTHS) {
        // An older version of each, which must not come back.
        store(zone, number, Bytes::from_static(b"old"), body(99, 2_000));
        store(zone, number, head(number), body(number, len));
    }
    for number in REMOVED {
        assert!(zone.remove(&key(number)));
    }
    let doomed: Vec<Key> = REVIEWED.map(key).collect();
    let reviewed: Reviewed = zone.review(&mut |key, _| {
        if doomed.contains(key) {
            Review::Remove
        } else {
            Review::Keep
        }
    });
    assert_eq!(reviewed.removed, 5);
    // A head that was replaced.
    let entry = zone.find(&key(6)).expect("there");
    zone.replace_head(&entry, Bytes::from_static(b"another head"))
        .expect("replaced");
    zone.rewrite_journal(&[Bytes::from(NOTES[0])]).expect("new");
    let together: Vec<Bytes> = NOTES[1..].iter().copied().map(Bytes::from).collect();
    zone.note_all(&together).expect("noted");
    zone.flush();
}

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures")
}

fn copy_dir(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).expect("directory");
    for entry in std::fs::read_dir(from).expect("list") {
        let entry = entry.expect("entry");
        std::fs::copy(entry.path(), to.join(entry.file_name())).expect("copied");
    }
}

fn open(path: &Path) -> (Arc<Zone>, Vec<Event>) {
    let events = Arc::new(Mutex::new(Vec::new()));
    let heard = Arc::clone(&events);
    let platform = Platform {
        io: Arc::new(RealIo),
        events: Arc::new(move |event| heard.lock().expect("whole").push(event.clone())),
        ..Platform::default()
    };
    let clock = Arc::new(ManualClock::new(WRITTEN_MS + 1_000));
    let zone = Zone::open_on(conf(path), clock, platform).expect("opens");
    let events = events.lock().expect("whole").clone();
    (zone, events)
}

fn check(zone: &Zone) {
    for (number, len) in (0..).zip(LENGTHS) {
        let entry = zone.find(&key(number)).expect("was stored");
        let replaced = Bytes::from_static(b"another head");
        let wanted = if number == 6 { replaced } else { head(number) };
        assert_eq!((entry.head(), entry.len()), (&wanted, len), "{number}");
        assert!(read(entry.regions(0..len)) == body(number, len), "{number}");
        assert_eq!(entry.created_ms(), WRITTEN_MS);
    }
    for number in REMOVED.chain(REVIEWED) {
        assert!(zone.find(&key(number)).is_none(), "{number}");
    }
    let journal = zone.take_journal();
    assert_eq!(
        (journal.records, journal.is_damaged),
        (NOTES.map(Bytes::from).to_vec(), false)
    );
    assert_eq!(zone.usage().entries, LENGTHS.len() as u64);
    assert_eq!(zone.usage().corrupt, 0);
}

/// Writes the fixtures of today's version.
#[test]
#[ignore = "writes into the source tree"]
fn write_the_fixtures() {
    let home = tempfile::tempdir().expect("directory");
    let path = home.path().join("zone");
    let clock = Arc::new(ManualClock::new(WRITTEN_MS));
    let zone = Zone::open(conf(&path), clock).expect("opens");
    fill(&zone);
    let target = fixtures().join(VERSIONS[VERSIONS.len() - 1]);
    copy_dir(&path, &target.join("killed"));
    zone.close();
    copy_dir(&path, &target.join("closed"));
}

/// Entries that any version wrote are found, byte for byte, whether the zone was closed or not, and
/// still after it was closed by today's code.
#[test]
fn zones_of_every_version_open_with_all_that_is_in_them() {
    let home = tempfile::tempdir().expect("directory");
    for version in VERSIONS {
        for (name, is_killed) in [("closed", false), ("killed", true)] {
            let path = home.path().join(format!("{version}-{name}"));
            copy_dir(&fixtures().join(version).join(name), &path);
            let (zone, events) = open(&path);
            let entries = LENGTHS.len() as u64;
            let expected = is_killed.then_some(Event::Recovered { entries });
            assert_eq!(events, Vec::from_iter(expected), "{name} of {version}");
            check(&zone);
            zone.close();
            let (zone, events) = open(&path);
            assert_eq!(events, [], "{name} of {version}, closed again");
            check(&zone);
        }
    }
}

/// The names in a directory, of which those that were set aside count by themselves.
fn names(path: &Path) -> (Vec<String>, Vec<String>) {
    let listed = std::fs::read_dir(path).expect("list");
    let name = |entry: std::io::Result<std::fs::DirEntry>| {
        let name = entry.expect("entry").file_name();
        name.into_string().expect("a name of ours")
    };
    listed
        .map(name)
        .partition(|name| name.contains("set-aside"))
}

/// A store whose keys were made without a secret is not used: it is told once, why, and the next
/// store begins beside its files, which go when their space is needed.
#[test]
fn zones_without_a_secret_are_set_aside_and_their_space_is_used() {
    let home = tempfile::tempdir().expect("directory");
    for version in UNKEYED {
        for name in ["closed", "killed"] {
            let path = home.path().join(format!("{version}-{name}"));
            copy_dir(&fixtures().join(version).join(name), &path);
            let (_, before) = names(&path);
            let (zone, events) = open(&path);
            let dir = path.display().to_string();
            let files = before
                .iter()
                .filter(|name| *name != "millpond.uses")
                .count();
            assert_eq!(events, [Event::Unkeyed { dir, files }], "{version} {name}");
            let told = events[0].to_string();
            assert!(told.contains("without a secret"), "{told}");
            assert_eq!(names(&path).0.len(), files);
            assert_eq!(zone.usage().entries, 0);
            assert!((0..8).all(|number| zone.find(&key(number)).is_none()));
            // Nothing of its journal is in force.
            assert!(zone.take_journal().records.is_empty());
            // More than fits beside what is left of it.
            for number in 0..40 {
                store(&zone, number, head(number), body(number, 9_000));
                zone.flush();
                zone.sweep();
            }
            assert!(zone.find(&key(39)).is_some());
            assert_eq!(names(&path).0, [""; 0], "{version} {name}");
            zone.close();
            let (zone, events) = open(&path);
            assert_eq!(events, [], "{version} {name}, opened again");
            assert!(zone.find(&key(39)).is_some());
        }
    }
}

/// A superblock of a version that nobody knows is renamed with all its segments, and told.
#[test]
fn zones_of_an_unknown_version_are_set_aside() {
    let home = tempfile::tempdir().expect("directory");
    let path = home.path().join("zone");
    copy_dir(&fixtures().join(VERSIONS[0]).join("closed"), &path);
    let file = std::fs::OpenOptions::new()
        .write(true)
        .open(path.join("millpond.zone"))
        .expect("superblock");
    file.write_all_at(&99_u32.to_le_bytes(), 8)
        .expect("written");
    let (zone, events) = open(&path);
    let is_set_aside = |event: &Event| matches!(event, Event::SetAside { .. });
    assert!(
        !events.is_empty() && events.iter().all(is_set_aside),
        "{events:?}"
    );
    assert!(events[0].to_string().contains("set-aside"), "{}", events[0]);
    assert_eq!(zone.usage().entries, 0);
    store(&zone, 1, head(1), body(1, 100));
    assert!(zone.find(&key(1)).is_some());
}
