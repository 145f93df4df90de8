//! Promises of a zone on several disks, when they fail, come back, come and go.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use millpond_store::{
    DiskConf, DiskState, Event, Fault, Key, ManualClock, NotStored, Platform, Region, Review,
    SimIo, StoreError, Zone, ZoneConf,
};

const MIB: u64 = 1 << 20;
const KEYS: u64 = 300;

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

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// The device of a directory; to be asked for before the zone is opened.
    fn disk(&self, name: &str) -> Arc<SimIo> {
        self.io.disk(self.path(name))
    }

    fn conf(&self, names: &[(&str, u32)]) -> ZoneConf {
        let disk = |(name, weight): &(&str, u32)| DiskConf {
            path: self.path(name),
            weight: *weight,
        };
        let mut disks: Vec<_> = names.iter().map(disk).collect();
        let first = disks.remove(0);
        ZoneConf {
            weight: first.weight,
            disks,
            max_size: Some(64 * MIB),
            memory: 0,
            flush: Duration::ZERO,
            inactive: Duration::from_secs(86_400),
            ..ZoneConf::new("test", first.path)
        }
    }

    fn platform(&self) -> Platform {
        let events = Arc::clone(&self.events);
        Platform {
            io: self.io.clone(),
            events: Arc::new(move |event| events.lock().expect("events").push(event.clone())),
            ..Platform::default()
        }
    }

    fn try_open(&self, names: &[(&str, u32)]) -> Result<Arc<Zone>, StoreError> {
        Zone::open_on(self.conf(names), self.clock.clone(), self.platform())
    }

    fn open(&self, names: &[(&str, u32)]) -> Arc<Zone> {
        self.try_open(names).expect("open")
    }

    /// Lets the time pass after which a disk is tried again, and waits until it was.
    fn pass(&self, zone: &Zone) {
        self.clock.advance(Duration::from_secs(61));
        zone.sweep();
        zone.wait_for_disks();
    }

    /// Lets time pass until a disk is in use again: what was under way when it was given up may
    /// take some.
    fn until_back(&self, zone: &Zone, name: &str) {
        self.pass(zone);
        for _ in 0..50 {
            if state(zone, name) == DiskState::Live {
                return;
            }
            self.pass(zone);
        }
        panic!("{name} does not come back: {:?}", zone.disks());
    }

    fn told(&self, is_it: impl Fn(&Event) -> bool) -> usize {
        let events = self.events.lock().expect("events");
        events.iter().filter(|event| is_it(event)).count()
    }

    fn failures_told(&self) -> usize {
        self.told(|event| matches!(event, Event::DiskFailed { .. }))
    }
}

const THREE: &[(&str, u32)] = &[("a", 1), ("b", 1), ("c", 2)];

fn key(number: u64) -> Key {
    Key::of(&number.to_le_bytes())
}

fn body(number: u64, version: u64) -> Bytes {
    let len = 50 + number % 7 * 3000;
    let word = (number << 32 | version).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let words = (0..len.div_ceil(8)).flat_map(|at| (word ^ at).to_le_bytes());
    words.take(len as usize).collect()
}

fn store(zone: &Zone, number: u64, version: u64) -> Result<(), NotStored> {
    let body = body(number, version);
    let mut writer = zone.begin(key(number), Some(body.len() as u64))?;
    writer.set_head(Bytes::from(version.to_string()));
    writer.append(body)?;
    writer.finish().map(drop)
}

/// The version that is found, after a look at every byte.
fn version(zone: &Zone, number: u64) -> Option<u64> {
    let entry = zone.find(&key(number))?;
    let version = std::str::from_utf8(entry.head()).ok()?.parse().ok()?;
    let mut bytes = Vec::new();
    for region in entry.regions(0..u64::MAX) {
        match region {
            Region::Memory(memory) => bytes.extend_from_slice(&memory),
            Region::File { file, offset, len } => {
                let mut part = vec![0; len as usize];
                file.read_exact_at(&mut part, offset).expect("read");
                bytes.extend_from_slice(&part);
            }
        }
    }
    assert!(bytes == body(number, version), "{number} version {version}");
    Some(version)
}

fn found(zone: &Zone) -> HashSet<u64> {
    (0..KEYS)
        .filter(|number| version(zone, *number).is_some())
        .collect()
}

fn fill(zone: &Zone, version: u64) {
    for number in 0..KEYS {
        store(zone, number, version).expect("stored");
    }
    // What was not synced may be lost with a disk that fails, so it does not come back.
    zone.sync();
}

fn state(zone: &Zone, name: &str) -> DiskState {
    let disks = zone.disks();
    let disk = disks.iter().find(|disk| disk.path.ends_with(name));
    disk.expect("configured").state
}

/// Bytes of all files; one that goes away meanwhile has none.
fn on_disk(dir: &Path) -> u64 {
    let listed = std::fs::read_dir(dir).expect("listed");
    let found = listed.map(|entry| entry.expect("entry").metadata());
    found
        .map(|found| found.map_or(0, |found| found.len()))
        .sum()
}

#[test]
fn entries_spread_by_weight_and_stay_over_a_restart() {
    let bench = Bench::new();
    let zone = bench.open(THREE);
    fill(&zone, 1);
    assert_eq!(found(&zone).len() as u64, KEYS);
    let disks = zone.disks();
    let counts: Vec<u64> = disks.iter().map(|disk| disk.usage.entries).collect();
    println!("entries of disks with weights 1, 1, 2: {counts:?}");
    assert_eq!(counts.iter().sum::<u64>(), KEYS);
    assert!(counts[0] > KEYS / 8 && counts[1] > KEYS / 8 && counts[2] > KEYS / 3);
    let limits: Vec<_> = disks.iter().map(|disk| disk.usage.max_size).collect();
    assert_eq!(limits, [Some(16 * MIB), Some(16 * MIB), Some(32 * MIB)]);
    assert_eq!(zone.usage().max_size, Some(64 * MIB));
    drop(zone);
    // The order in which they are named is nothing.
    let zone = bench.open(&[("c", 2), ("a", 1), ("b", 1)]);
    assert_eq!(found(&zone).len() as u64, KEYS);
    assert_eq!(bench.failures_told(), 0);
}

#[test]
fn limits_of_all_disks_together_are_those_of_the_zone() {
    let bench = Bench::new();
    let conf = ZoneConf {
        max_size: Some(MIB),
        memory: 100_000,
        ..bench.conf(THREE)
    };
    let zone = Zone::open_on(conf, bench.clock.clone(), bench.platform()).expect("open");
    for number in 0..KEYS {
        // What does not fit is not stored.
        let _ = store(&zone, number, 1);
        // Listing is not atomic: nobody may evict and create meanwhile.
        zone.flush();
        let bytes: u64 = ["a", "b", "c"]
            .iter()
            .map(|name| on_disk(&bench.path(name)))
            .sum();
        assert!(bytes <= MIB, "{bytes}");
        assert!(zone.usage().memory_bytes <= 100_000);
    }
    assert!(zone.usage().bytes <= MIB && zone.usage().evicted > 0);
}

#[test]
fn disk_that_fails_loses_its_own_share_and_comes_back_with_it() {
    let bench = Bench::new();
    let disk = bench.disk("b");
    let zone = bench.open(THREE);
    fill(&zone, 1);
    let all = zone.disks();
    disk.set(Fault::Gone);
    // Somebody must come by to notice.
    let _ = found(&zone);
    bench.pass(&zone);
    assert_eq!(state(&zone, "b"), DiskState::Failed);
    let left = found(&zone);
    assert_eq!(left.len() as u64, KEYS - all[1].usage.entries);
    // Its share is stored elsewhere meanwhile.
    let lost: Vec<u64> = (0..KEYS).filter(|number| !left.contains(number)).collect();
    let (stored, others) = lost.split_at(lost.len() / 3);
    let (removed, kept) = others.split_at(others.len() / 2);
    for number in stored {
        store(&zone, *number, 2).expect("stored elsewhere");
        assert_eq!(version(&zone, *number), Some(2));
    }
    for number in removed {
        zone.remove(&key(*number));
    }
    for _ in 0..5 {
        bench.pass(&zone);
    }
    assert_eq!(bench.failures_told(), 1, "it is told once");
    assert_eq!(zone.disks()[1].failures, 1);
    disk.set(Fault::None);
    bench.until_back(&zone, "b");
    for number in kept {
        assert_eq!(version(&zone, *number), Some(1), "untouched");
    }
    for number in stored.iter().chain(removed) {
        assert_eq!(version(&zone, *number), None, "changed meanwhile");
    }
    // Nor do they come back with the next failure of it, or a restart.
    disk.set(Fault::Gone);
    let _ = found(&zone);
    bench.pass(&zone);
    assert_eq!(state(&zone, "b"), DiskState::Failed);
    for number in &lost {
        assert_eq!(version(&zone, *number), None);
    }
    disk.set(Fault::None);
    bench.until_back(&zone, "b");
    drop(zone);
    let zone = bench.open(THREE);
    let again = found(&zone);
    assert!(kept.iter().all(|number| again.contains(number)));
    assert!(
        !stored
            .iter()
            .chain(removed)
            .any(|number| again.contains(number))
    );
    let is_back = |event: &Event| matches!(event, Event::DiskBack { entries, .. } if *entries > 0);
    assert_eq!(bench.told(is_back), 2);
}

/// Number of files in a directory that this process has open.
fn open_files(dir: &Path) -> usize {
    let listed = std::fs::read_dir("/proc/self/fd").expect("listed");
    let files = listed.filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok());
    files.filter(|file| file.starts_with(dir)).count()
}

#[test]
fn disk_that_was_given_up_has_no_file_open() {
    let bench = Bench::new();
    let disk = bench.disk("b");
    let zone = bench.open(THREE);
    fill(&zone, 1);
    let dir = bench.path("b");
    let before = open_files(&dir);
    // What is read stays open for its reader.
    let is_large = |number: &u64| body(*number, 1).len() > 8 << 10;
    let held: Vec<_> = (0..KEYS)
        .filter(is_large)
        .map(|it| zone.find(&key(it)))
        .collect();
    disk.set(Fault::Gone);
    let _ = found(&zone);
    for _ in 0..50 {
        bench.pass(&zone);
        if state(&zone, "b") == DiskState::Failed && open_files(&dir) < before {
            break;
        }
    }
    assert_eq!(state(&zone, "b"), DiskState::Failed);
    let segments = open_files(&dir);
    assert!(0 < segments && segments < before, "{segments} of {before}");
    drop(held);
    assert_eq!(open_files(&dir), 0);
    disk.set(Fault::None);
    bench.until_back(&zone, "b");
    assert!(!found(&zone).is_empty());
}

#[test]
fn disks_are_given_up_for_errors_in_a_row_but_not_for_want_of_space() {
    for (fault, expected) in [
        (Fault::WriteError, DiskState::Failed),
        (Fault::ReadError, DiskState::Failed),
        (Fault::NoSpace, DiskState::Full),
    ] {
        let bench = Bench::new();
        let disk = bench.disk("c");
        let zone = bench.open(THREE);
        fill(&zone, 1);
        disk.set(fault);
        for round in 2..40 {
            for number in 0..KEYS {
                let _ = store(&zone, number, round);
            }
            zone.flush();
            // What is on its way to the disk is found without a read.
            let _ = found(&zone);
            if state(&zone, "c") == expected {
                break;
            }
        }
        assert_eq!(state(&zone, "c"), expected, "{fault:?}");
        bench.pass(&zone);
        // What is lost of its share was stored elsewhere, or is still there.
        if expected == DiskState::Failed {
            fill(&zone, 99);
            assert_eq!(found(&zone).len() as u64, KEYS, "{fault:?}");
        }
        disk.set(Fault::None);
        bench.until_back(&zone, "c");
        fill(&zone, 100);
        assert!(
            (0..KEYS).all(|number| version(&zone, number) == Some(100)),
            "{fault:?}"
        );
        assert_eq!(state(&zone, "c"), DiskState::Live, "{fault:?}");
    }
}

#[test]
fn disk_whose_syncs_all_fail_is_given_up_though_it_takes_what_is_written() {
    let bench = Bench::new();
    let failing = bench.disk("b");
    let zone = bench.open(THREE);
    fill(&zone, 1);
    failing.set(Fault::SyncError);
    for round in 2..50 {
        for number in 0..KEYS {
            // At the moment at which it is given up it takes nothing.
            let _ = store(&zone, number, round);
        }
        zone.sync();
        if state(&zone, "b") == DiskState::Failed {
            break;
        }
    }
    assert_eq!(state(&zone, "b"), DiskState::Failed);
    bench.pass(&zone);
    fill(&zone, 99);
    failing.set(Fault::None);
    bench.until_back(&zone, "b");
    // What comes back is no older than what was stored last.
    let versions: HashSet<u64> = (0..KEYS).filter_map(|it| version(&zone, it)).collect();
    assert_eq!(versions, HashSet::from([99]));
}

/// A disk that did not let a removal be written down is not worse for it once it does.
#[test]
fn removal_that_was_refused_is_made_up_for_and_costs_no_disk_its_entries() {
    for is_swept in [true, false] {
        let bench = Bench::new();
        let disk = bench.disk("c");
        let zone = bench.open(THREE);
        fill(&zone, 1);
        let of_c = |number: &u64| {
            let glance = zone.glance(&key(*number));
            glance.is_some_and(|glance| glance.dir() == bench.path("c"))
        };
        let gone = (0..KEYS).find(of_c).expect("a key of its own");
        disk.set(Fault::WriteError);
        assert!(zone.remove(&key(gone)));
        zone.flush();
        assert!(!zone.sync(), "it is not written down");
        disk.set(Fault::None);
        if is_swept {
            zone.sweep();
        }
        assert!(zone.sync(), "it is by now");
        assert_eq!(state(&zone, "c"), DiskState::Live);
        drop(zone);
        let zone = bench.open(THREE);
        assert_eq!(version(&zone, gone), None);
        assert_eq!(found(&zone).len() as u64, KEYS - 1);
        let is_cleared = |event: &Event| matches!(event, Event::DiskCleared { .. });
        assert_eq!((bench.told(is_cleared), bench.failures_told()), (0, 0));
    }
}

#[test]
fn directory_that_is_pulled_comes_back_as_it_was_and_removed_one_empty() {
    let bench = Bench::new();
    let zone = bench.open(THREE);
    fill(&zone, 1);
    let all = zone.disks();
    for (is_pulled, left) in [(true, KEYS), (false, KEYS - all[1].usage.entries)] {
        let (here, there) = (bench.path("b"), bench.path("elsewhere"));
        if is_pulled {
            std::fs::rename(&here, &there).expect("renamed");
        } else {
            std::fs::remove_dir_all(&here).expect("removed");
        }
        // Nobody notices while there is room in the segment; then it is given up.
        let mut number = KEYS;
        while state(&zone, "b") == DiskState::Live {
            let _ = store(&zone, number, 1);
            zone.flush();
            number += 1;
            assert!(number < 1_000_000);
        }
        zone.sweep();
        zone.wait_for_disks();
        if is_pulled {
            std::fs::rename(&there, &here).expect("renamed");
        }
        bench.until_back(&zone, "b");
        assert_eq!(found(&zone).len() as u64, left, "pulled: {is_pulled}");
    }
    fill(&zone, 3);
    assert_eq!(found(&zone).len() as u64, KEYS);
}

/// Without any disk a zone holds nothing and notes nothing, until one is back.
#[test]
fn only_disk_that_does_not_read_at_the_start_is_used_when_it_does() {
    let bench = Bench::new();
    let disk = bench.disk("a");
    let alone = &[("a", 1)];
    let zone = bench.open(alone);
    fill(&zone, 1);
    let kept = Bytes::from_static(b"kept");
    zone.rewrite_journal(&[kept]).expect("noted");
    zone.close();
    disk.set(Fault::ReadError);
    let zone = bench.open(alone);
    assert_eq!(state(&zone, "a"), DiskState::Failed);
    assert_eq!(store(&zone, 1, 2).err(), Some(NotStored::Disk));
    let purge = Bytes::from_static(b"purge");
    assert!(zone.note(&purge).is_err());
    drop(zone);
    // Left as it is until then.
    disk.set(Fault::None);
    let zone = bench.open(alone);
    assert_eq!(found(&zone).len() as u64, KEYS);
    assert_eq!(zone.take_journal().records.len(), 1);
    let is_set_aside = |event: &Event| matches!(event, Event::SetAside { .. });
    assert_eq!(bench.told(is_set_aside), 0);
    drop(zone);
    disk.set(Fault::ReadError);
    let zone = bench.open(alone);
    disk.set(Fault::None);
    bench.until_back(&zone, "a");
    assert_eq!(found(&zone).len(), 0);
    zone.note(&purge).expect("noted");
    fill(&zone, 2);
    assert_eq!(found(&zone).len() as u64, KEYS);
}

#[test]
fn mount_point_without_its_disk_is_not_the_disk() {
    let bench = Bench::new();
    let disk = bench.disk("b");
    disk.set_mounted(true);
    let zone = bench.open(THREE);
    fill(&zone, 1);
    disk.set(Fault::Gone);
    disk.set_mounted(false);
    let mut number = KEYS;
    while state(&zone, "b") == DiskState::Live {
        let _ = store(&zone, number, 1);
        zone.flush();
        number += 1;
        assert!(number < 1_000_000);
    }
    // The directory below the mount point answers.
    disk.set(Fault::None);
    for _ in 0..3 {
        bench.pass(&zone);
    }
    assert_eq!(state(&zone, "b"), DiskState::Failed);
    disk.set_mounted(true);
    bench.until_back(&zone, "b");
}

#[test]
fn disk_that_is_missing_at_the_start_comes_later_and_empty() {
    let bench = Bench::new();
    let zone = bench.open(THREE);
    fill(&zone, 1);
    let all = zone.disks();
    drop(zone);
    // Where the parent of a directory is not there, it is not made: nothing may be mounted.
    let deep = [("a", 1), ("mnt/disk/b", 1)];
    let zone = bench.open(&deep);
    assert_eq!(state(&zone, "b"), DiskState::Failed);
    bench.pass(&zone);
    assert_eq!(state(&zone, "b"), DiskState::Failed);
    fill(&zone, 2);
    assert_eq!(found(&zone).len() as u64, KEYS);
    std::fs::create_dir_all(bench.path("mnt/disk")).expect("mounted");
    bench.until_back(&zone, "b");
    assert!(found(&zone).len() < KEYS as usize);
    drop(zone);
    // The others were away for the life of a process, so what they hold is of another time.
    let zone = bench.open(THREE);
    assert_eq!(
        bench.told(|event| matches!(event, Event::DiskCleared { .. })),
        2
    );
    let left = found(&zone);
    assert!(left.len() as u64 <= all[0].usage.entries);
    assert!(left.iter().all(|number| version(&zone, *number) == Some(2)));
}

#[test]
fn zone_opens_with_any_of_its_disks_but_not_with_one_of_others() {
    let bench = Bench::new();
    let disks = ["a", "b", "c"].map(|name| bench.disk(name));
    disks[0].set(Fault::Gone);
    disks[2].set(Fault::Gone);
    let zone = bench.open(THREE);
    fill(&zone, 1);
    let usage = zone.usage();
    assert_eq!((usage.entries, usage.max_size), (KEYS, Some(64 * MIB)));
    let other = bench.try_open(&[("d", 1), ("b", 1)]);
    assert!(matches!(other.err(), Some(StoreError::InUse { .. })));
    drop(zone);
    disks[1].set(Fault::Gone);
    let zone = bench.open(THREE);
    assert!(
        ["a", "b", "c"]
            .iter()
            .all(|name| state(&zone, name) == DiskState::Failed)
    );
    assert_eq!(found(&zone).len(), 0);
    drop(zone);
    // No fault of a disk.
    std::fs::write(bench.path("file"), "").expect("made");
    let wrong = bench.try_open(&[("file/d", 1)]);
    assert!(matches!(wrong.err(), Some(StoreError::Io { .. })));
}

#[test]
fn change_adds_removes_and_weighs_disks_and_moves_only_their_share() {
    let bench = Bench::new();
    let zone = bench.open(&[("a", 1), ("b", 1)]);
    fill(&zone, 1);
    let before: Vec<u64> = zone.disks().iter().map(|disk| disk.usage.entries).collect();
    zone.change(bench.conf(THREE));
    zone.wait_for_disks();
    assert_eq!(state(&zone, "c"), DiskState::Live);
    let kept = found(&zone);
    println!(
        "kept with a disk of half the weight added: {} of {KEYS}",
        kept.len()
    );
    // Where a disk is decides which keys are its own, and that differs from run to run.
    assert!(kept.len() as u64 > KEYS / 3 && (kept.len() as u64) < KEYS * 2 / 3);
    fill(&zone, 2);
    assert_eq!(found(&zone).len() as u64, KEYS);
    // Back as it was: what moved away must not be found in its old place.
    let of_c = zone.disks()[2].usage.entries;
    zone.change(bench.conf(&[("a", 1), ("b", 1)]));
    zone.wait_for_disks();
    let left = found(&zone);
    assert_eq!(left.len() as u64, KEYS - of_c);
    assert!(left.iter().all(|number| version(&zone, *number) == Some(2)));
    assert_eq!(left, kept, "the same share moved");
    assert!(on_disk(&bench.path("c")) > 0, "its files stay");
    fill(&zone, 3);
    // A disk that was taken out does not bring back what it had.
    zone.change(bench.conf(THREE));
    zone.wait_for_disks();
    assert!(
        found(&zone)
            .iter()
            .all(|number| version(&zone, *number) == Some(3))
    );
    assert_eq!(zone.disks()[2].usage.entries, 0);
    fill(&zone, 4);
    zone.change(bench.conf(&[("a", 1), ("b", 3), ("c", 2)]));
    zone.wait_for_disks();
    let grown = found(&zone);
    assert!(grown.len() as u64 > KEYS / 2 && (grown.len() as u64) < KEYS);
    assert!(
        grown
            .iter()
            .all(|number| version(&zone, *number) == Some(4))
    );
    let disks = zone.disks();
    assert_eq!(before.len(), 2);
    assert_eq!(
        disks.iter().map(|disk| disk.usage.entries).sum::<u64>(),
        grown.len() as u64
    );
}

#[test]
fn disk_that_was_taken_out_over_a_restart_comes_back_empty() {
    let bench = Bench::new();
    let zone = bench.open(THREE);
    fill(&zone, 1);
    drop(zone);
    let zone = bench.open(&[("a", 1), ("b", 1)]);
    fill(&zone, 2);
    for number in 0..KEYS / 2 {
        zone.remove(&key(number));
    }
    drop(zone);
    let zone = bench.open(THREE);
    let left = found(&zone);
    assert!(!left.is_empty());
    assert!(left.iter().all(|number| *number >= KEYS / 2));
    assert!(left.iter().all(|number| version(&zone, *number) == Some(2)));
}

#[test]
fn fill_that_runs_while_keys_move_does_not_end_up_where_it_does_not_belong() {
    let bench = Bench::new();
    let zone = bench.open(&[("a", 1), ("b", 1)]);
    let mut writers = Vec::new();
    for number in 0..KEYS {
        let mut writer = zone.begin(key(number), None).expect("begun");
        writer.set_head(Bytes::from("1"));
        writer.append(body(number, 1)).expect("appended");
        writers.push(writer);
    }
    zone.change(bench.conf(THREE));
    zone.wait_for_disks();
    let ends = writers.into_iter().map(|writer| writer.finish().map(drop));
    let refused = ends
        .filter(|end| *end == Err(NotStored::Superseded))
        .count();
    assert!(refused > 50, "{refused}");
    for number in 0..KEYS {
        zone.remove(&key(number));
    }
    zone.change(bench.conf(&[("a", 1), ("b", 1)]));
    zone.wait_for_disks();
    assert!(found(&zone).is_empty());
}

#[test]
fn review_looks_at_all_disks_and_those_away_come_back_empty() {
    let bench = Bench::new();
    let disk = bench.disk("a");
    let zone = bench.open(THREE);
    fill(&zone, 1);
    let all = zone.disks();
    let reviewed = zone.review(&mut |_, _| Review::Keep);
    assert_eq!((reviewed.seen, reviewed.is_complete), (KEYS, true));
    disk.set(Fault::Gone);
    let _ = found(&zone);
    bench.pass(&zone);
    let reviewed = zone.review(&mut |_, _| Review::Remove);
    assert_eq!(reviewed.removed, KEYS - all[0].usage.entries);
    assert!(reviewed.is_complete);
    disk.set(Fault::None);
    bench.until_back(&zone, "a");
    assert!(found(&zone).is_empty());
    assert!(zone.sync());
}

#[test]
fn journal_is_on_every_disk_and_survives_any_of_them() {
    let bench = Bench::new();
    let disks = ["a", "b", "c"].map(|name| bench.disk(name));
    let zone = bench.open(THREE);
    let records = |names: &[&str]| -> Vec<Bytes> {
        names
            .iter()
            .map(|name| Bytes::from(name.to_string()))
            .collect()
    };
    assert!(zone.take_journal().records.is_empty());
    zone.rewrite_journal(&records(&["one"])).expect("written");
    zone.note(&Bytes::from("two")).expect("noted");
    // One of three fails: the others have it, and it is out.
    disks[0].set(Fault::WriteError);
    zone.note(&Bytes::from("three")).expect("noted");
    bench.pass(&zone);
    assert_eq!(state(&zone, "a"), DiskState::Failed);
    zone.note(&Bytes::from("four")).expect("noted");
    disks[0].set(Fault::None);
    bench.until_back(&zone, "a");
    drop(zone);
    let zone = bench.open(THREE);
    let mut held = zone.take_journal();
    held.records.sort();
    assert_eq!(held.records, records(&["four", "one", "three", "two"]));
    assert!(!held.is_damaged);
    drop(zone);
    // Each of them has all of it.
    for alone in 0..3 {
        for (number, disk) in disks.iter().enumerate() {
            disk.set(if number == alone {
                Fault::None
            } else {
                Fault::Gone
            });
        }
        let zone = bench.open(THREE);
        let mut held = zone.take_journal();
        held.records.sort();
        assert_eq!(
            held.records,
            records(&["four", "one", "three", "two"]),
            "{alone}"
        );
        drop(zone);
        disks.iter().for_each(|disk| disk.set(Fault::None));
        drop(bench.open(THREE));
    }
}

#[test]
fn zone_on_several_disks_is_lent_and_taken_back() {
    let bench = Bench::new();
    let zone = bench.open(THREE);
    fill(&zone, 1);
    zone.lend();
    assert!(found(&zone).is_empty());
    let other = bench.open(THREE);
    assert_eq!(found(&other).len() as u64, KEYS);
    store(&other, 0, 7).expect("stored");
    other.remove(&key(1));
    assert!(matches!(
        zone.take_back().err(),
        Some(StoreError::InUse { .. })
    ));
    bench.pass(&zone);
    drop(other);
    zone.take_back().expect("taken back");
    assert_eq!((version(&zone, 0), version(&zone, 1)), (Some(7), None));
    assert_eq!(found(&zone).len() as u64, KEYS - 1);
}

#[test]
fn lone_disk_whose_directory_is_pulled_comes_back() {
    let bench = Bench::new();
    let zone = bench.open(&[("a", 1)]);
    fill(&zone, 1);
    for number in 0..10 {
        zone.remove(&key(number));
    }
    let (here, there) = (bench.path("a"), bench.path("elsewhere"));
    std::fs::rename(&here, &there).expect("renamed");
    let mut number = KEYS;
    while state(&zone, "a") == DiskState::Live {
        let _ = store(&zone, number, 1);
        zone.flush();
        number += 1;
    }
    zone.remove(&key(20));
    zone.sweep();
    zone.wait_for_disks();
    assert!(found(&zone).is_empty());
    assert_eq!(store(&zone, 30, 9).err(), Some(NotStored::Disk));
    std::fs::rename(&there, &here).expect("renamed");
    bench.until_back(&zone, "a");
    let left = found(&zone);
    assert_eq!(
        left.len() as u64,
        KEYS - 12,
        "10 and 20 were removed; 30 may be out of date"
    );
}
