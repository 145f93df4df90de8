//! The journal keeps what was acknowledged, whatever happens to the process and to the disk; a
//! review removes and changes entries for good.

use std::collections::HashSet;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use millpond_store::{
    Event, Fault, JournalError, Key, Platform, PowerIo, Review, SimIo, StoreError, SystemClock,
    Zone, ZoneConf,
};

/// Names the directory to the child.
const ZONE: &str = "MILLPOND_JOURNAL_TEST_ZONE";
const JOURNAL: &str = "millpond.journal";

fn conf(path: &Path) -> ZoneConf {
    ZoneConf {
        max_size: Some(64 << 20),
        ..ZoneConf::new("journal", path)
    }
}

/// Opens a zone, as soon as nobody has it. A process that another test forks has the files of this
/// one until it begins its own program, the lock of a zone that was closed among them.
fn open_in(conf: &ZoneConf, platform: &Platform) -> Arc<Zone> {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let zone = Zone::open_on(conf.clone(), Arc::new(SystemClock), platform.clone());
        match zone {
            Err(StoreError::InUse { .. }) if Instant::now() < deadline => std::thread::yield_now(),
            zone => return zone.expect("open"),
        }
    }
}

fn open(path: &Path) -> Arc<Zone> {
    open_in(&conf(path), &Platform::default())
}

fn open_on(path: &Path, io: &Arc<SimIo>) -> (Arc<Zone>, Arc<Mutex<Vec<Event>>>) {
    let events = Arc::new(Mutex::new(Vec::new()));
    let heard = Arc::clone(&events);
    let platform = Platform {
        io: io.clone(),
        events: Arc::new(move |event| heard.lock().expect("whole").push(event.clone())),
        ..Platform::default()
    };
    (open_in(&conf(path), &platform), events)
}

/// Zone on a disk that may lose its power.
fn open_with_power(path: &Path, io: &Arc<PowerIo>) -> Arc<Zone> {
    let platform = Platform {
        io: io.clone(),
        ..Platform::default()
    };
    open_in(&conf(path), &platform)
}

fn record(number: u64) -> Bytes {
    Bytes::from(format!(
        "record {number} {}",
        "x".repeat(number as usize % 50)
    ))
}

/// Notes a record as users do: into a new file if the old one takes none.
fn note(zone: &Zone, all: &mut Vec<Bytes>, number: u64) -> Result<(), JournalError> {
    let new = record(number);
    let noted = match zone.note(&new) {
        Err(JournalError::NoRoom) => {
            let records = [&all[..], std::slice::from_ref(&new)].concat();
            zone.rewrite_journal(&records)
        }
        noted => noted,
    };
    if noted.is_ok() {
        all.push(new);
    }
    noted
}

fn store(zone: &Zone, key: &[u8], head: &str) {
    let mut writer = zone.begin(Key::of(key), Some(4)).expect("begun");
    writer.set_head(Bytes::copy_from_slice(head.as_bytes()));
    writer.append(Bytes::from_static(b"body")).expect("taken");
    writer.finish().expect("finished");
}

#[test]
fn what_was_noted_is_there_after_a_restart_and_counted() {
    let dir = tempfile::tempdir().expect("directory");
    let mut all = Vec::new();
    for round in 0..3 {
        let zone = open(dir.path());
        let journal = zone.take_journal();
        assert_eq!((journal.records, journal.is_damaged), (all.clone(), false));
        for number in round * 1000..(round + 1) * 1000 {
            note(&zone, &mut all, number).expect("noted");
        }
        let len = std::fs::metadata(dir.path().join(JOURNAL))
            .expect("file")
            .len();
        assert!(zone.usage().bytes >= len + 4096, "{len}");
    }
    let zone = open(dir.path());
    zone.rewrite_journal(&[record(7)]).expect("rewritten");
    drop(zone);
    assert_eq!(open(dir.path()).take_journal().records, [record(7)]);
}

#[test]
fn the_largest_journal_is_a_share_of_the_zone_and_makes_its_own_room() {
    let dir = tempfile::tempdir().expect("directory");
    let small = ZoneConf {
        max_size: Some(200 << 10),
        ..ZoneConf::new("small", dir.path())
    };
    let zone = open_in(&small, &Platform::default());
    for number in 0..2000_u32 {
        store(&zone, &number.to_le_bytes(), &"h".repeat(500));
        if number % 20 == 0 {
            zone.flush();
        }
    }
    zone.flush();
    let records: Vec<Bytes> = (0..50).map(record).collect();
    zone.rewrite_journal(&records).expect("segments make room");
    assert!(zone.usage().bytes + 4096 <= 200 << 10, "{:?}", zone.usage());
    let refused = zone.rewrite_journal(&(0..500).map(record).collect::<Vec<_>>());
    assert!(
        matches!(refused, Err(JournalError::TooLarge { .. })),
        "{refused:?}"
    );
}

#[test]
fn a_torn_tail_is_nothing_and_a_hole_is_damage() {
    let dir = tempfile::tempdir().expect("directory");
    let mut all = Vec::new();
    let zone = open(dir.path());
    for number in 0..5 {
        note(&zone, &mut all, number).expect("noted");
    }
    drop(zone);
    let path = dir.path().join(JOURNAL);
    let whole = std::fs::read(&path).expect("read");
    let find = |text: &[u8]| {
        let mut windows = whole.windows(text.len());
        windows.position(|window| window == text).expect("there")
    };
    let superblock = dir.path().join("millpond.zone");
    let clean = std::fs::read(&superblock).expect("read");
    // Where a byte is changed, whether the zone was closed, what is left, whether that is damage.
    let table = [
        (find(b"record 4"), false, 4, false),
        (find(b"record 4"), true, 4, true),
        (find(b"record 2"), false, 4, true),
        (whole.len() - 100, false, 5, false),
    ];
    for (position, is_closed, left, is_damaged) in table {
        let mut bytes = whole.clone();
        bytes[position] ^= 0x55;
        std::fs::write(&path, bytes).expect("written");
        std::fs::write(&superblock, &clean).expect("written");
        if !is_closed {
            // The superblock of a process that died: opened, never closed.
            let zone = open(dir.path());
            let open_now = std::fs::read(&superblock).expect("read");
            drop(zone);
            std::fs::write(&superblock, open_now).expect("written");
        }
        let zone = open(dir.path());
        let journal = zone.take_journal();
        assert_eq!(
            (journal.records.len(), journal.is_damaged),
            (left, is_damaged)
        );
        assert!(matches!(zone.note(&record(9)), Err(JournalError::NoRoom)));
        // What is damage stays damage; what is none does not become it by an orderly stop.
        drop(zone);
        let again = open(dir.path()).take_journal();
        assert_eq!(
            (again.records, again.is_damaged),
            (journal.records, is_damaged)
        );
    }
}

#[test]
fn a_journal_that_is_not_understood_is_set_aside_and_reported() {
    for damage in [0, 8, 40] {
        let dir = tempfile::tempdir().expect("directory");
        open(dir.path())
            .rewrite_journal(&[record(1)])
            .expect("noted");
        let path = dir.path().join(JOURNAL);
        let mut bytes = std::fs::read(&path).expect("read");
        bytes[damage] ^= 1;
        std::fs::write(&path, bytes).expect("written");
        let (zone, events) = open_on(dir.path(), &Arc::new(SimIo::new()));
        assert!(zone.take_journal().is_damaged);
        let is_told = |event: &Event| matches!(event, Event::SetAside { .. });
        assert!(events.lock().expect("whole").iter().any(is_told));
        assert!(!path.exists());
        zone.rewrite_journal(&[record(2)]).expect("a new one");
    }
}

/// Whichever step of a rewriting the disk refuses, what is acknowledged afterwards outlives the
/// power: nothing is appended to a file whose name may be lost.
#[test]
fn what_is_noted_after_a_refused_rewriting_outlives_the_power() {
    for (refused, seed) in (0..7).flat_map(|refused| (0..6).map(move |seed| (refused, seed))) {
        let home = tempfile::tempdir().expect("directory");
        let path = home.path().join("zone");
        let power = || Arc::new(PowerIo::new(seed, home.path().join("graves")));
        let io = power();
        let zone = open_with_power(&path, &io);
        let mut all = Vec::new();
        note(&zone, &mut all, 0).expect("noted");
        io.fail(refused..refused + 1, 5);
        let records = [&all[..], &[record(1)]].concat();
        if zone.rewrite_journal(&records).is_ok() {
            all = records;
        }
        io.fail(0..0, 5);
        note(&zone, &mut all, 2).expect("noted");
        io.cut();
        zone.close();
        io.lose().expect("lost");
        let journal = open_with_power(&path, &power()).take_journal();
        let is_there = |record: &Bytes| journal.records.contains(record);
        assert!(all.iter().all(is_there), "step {refused}, seed {seed}");
        assert!(!journal.is_damaged, "step {refused}, seed {seed}");
    }
}

#[test]
fn a_record_that_the_disk_refused_is_no_record_and_hides_none() {
    let dir = tempfile::tempdir().expect("directory");
    let io = Arc::new(SimIo::new());
    let (zone, _events) = open_on(dir.path(), &io);
    let mut all = Vec::new();
    note(&zone, &mut all, 0).expect("noted");
    for fault in [Fault::WriteError, Fault::NoSpace] {
        io.set(Fault::WriteError);
        let refused = note(&zone, &mut all, 1);
        assert!(matches!(refused, Err(JournalError::Disk(_))), "{fault:?}");
        io.set(fault);
        // Nothing is appended behind what may be half there.
        assert!(note(&zone, &mut all, 2).is_err(), "{fault:?}");
        io.set(Fault::None);
        note(&zone, &mut all, 3).expect("noted in a new file");
    }
    let bytes = zone.usage().bytes;
    drop(zone);
    let zone = open(dir.path());
    assert_eq!(zone.take_journal().records, all);
    assert_eq!(zone.usage().bytes, bytes, "what was refused is not counted");
}

/// A new journal is written anew, and nobody else removes it meanwhile or counts it twice.
#[test]
fn a_new_file_that_could_neither_be_written_nor_removed_counts_once() {
    let home = tempfile::tempdir().expect("directory");
    let path = home.path().join("zone");
    let io = Arc::new(PowerIo::new(1, home.path().join("graves")));
    let zone = open_with_power(&path, &io);
    let mut all = Vec::new();
    note(&zone, &mut all, 0).expect("noted");
    let (bytes, left) = (zone.usage().bytes, path.join("millpond.journal.new"));
    let mut was_left = false;
    for refused in 0..8 {
        // From some step on nothing is done any more.
        io.fail(refused..100, 5);
        let rewritten = zone.rewrite_journal(&all).is_ok();
        let len = std::fs::metadata(&left).map_or(0, |found| found.len());
        // Whether there is a file is not known if the disk does not say so.
        assert!(zone.usage().bytes >= bytes + len, "step {refused}");
        assert!(len == 0 || !rewritten, "step {refused}");
        was_left |= len > 0;
        io.fail(0..0, 5);
        zone.rewrite_journal(&all).expect("written");
        assert!(!left.exists(), "step {refused}");
        assert_eq!(zone.usage().bytes, bytes, "step {refused}");
    }
    assert!(was_left);
    zone.close();
    assert_eq!(open(&path).take_journal().records, all);
}

/// The bytes are in the file, the sync behind them failed, and nothing is noted any more.
#[test]
fn a_record_that_was_not_synced_is_wiped_out_by_a_close() {
    let home = tempfile::tempdir().expect("directory");
    let path = home.path().join("zone");
    let io = Arc::new(PowerIo::new(1, home.path().join("graves")));
    let zone = open_with_power(&path, &io);
    let mut all = Vec::new();
    note(&zone, &mut all, 0).expect("noted");
    // The write goes well.
    io.fail(1..2, 5);
    assert!(note(&zone, &mut all, 1).is_err());
    assert_eq!(io.injected(), 1);
    zone.close();
    let journal = open(&path).take_journal();
    assert_eq!((journal.records, journal.is_damaged), (all, false));
}

#[test]
fn a_lent_directory_takes_no_records_and_comes_back_with_those_of_the_borrower() {
    let dir = tempfile::tempdir().expect("directory");
    let zone = open(dir.path());
    zone.rewrite_journal(&[record(1)]).expect("noted");
    zone.lend();
    assert!(matches!(zone.note(&record(2)), Err(JournalError::Closed)));
    let other = open(dir.path());
    other.note(&record(3)).expect("noted");
    drop(other);
    zone.take_back().expect("taken back");
    assert_eq!(zone.take_journal().records, [record(1), record(3)]);
}

#[test]
fn a_review_removes_and_changes_for_good_and_spares_what_is_new() {
    let dir = tempfile::tempdir().expect("directory");
    let zone = open(dir.path());
    for number in 0..3000_u32 {
        store(&zone, &number.to_le_bytes(), &format!("head {number}"));
    }
    let mut seen = HashSet::new();
    let reviewed = zone.review(&mut |key, head| {
        seen.insert(*key);
        let number: u32 = std::str::from_utf8(&head[5..])
            .expect("text")
            .parse()
            .expect("number");
        match number % 3 {
            0 => Review::Remove,
            1 => Review::Head(Bytes::from(format!("again {number}"))),
            _ => Review::Keep,
        }
    });
    assert_eq!(
        (reviewed.removed, reviewed.changed),
        (1000, 1000),
        "{reviewed:?}"
    );
    assert!(reviewed.is_complete && seen.len() == 3000);
    assert!(zone.sync());
    drop(zone);
    let zone = open(dir.path());
    for number in 0..3000_u32 {
        let head = zone
            .find(&Key::of(&number.to_le_bytes()))
            .map(|entry| entry.head().clone());
        let expected = match number % 3 {
            0 => None,
            1 => Some(Bytes::from(format!("again {number}"))),
            _ => Some(Bytes::from(format!("head {number}"))),
        };
        assert_eq!(head, expected, "{number}");
    }
    let stopped = zone.review(&mut |_, _| Review::Stop);
    assert!(!stopped.is_complete);
}

#[test]
fn a_fill_that_ends_unseen_is_read_whole_and_not_found() {
    let dir = tempfile::tempdir().expect("directory");
    let zone = open(dir.path());
    for len in [10, 300 << 10] {
        let mut writer = zone.begin(Key::of(b"k"), Some(len)).expect("begun");
        writer.set_head(Bytes::from_static(b"head"));
        writer
            .append(Bytes::from(vec![7; len as usize]))
            .expect("taken");
        let view = writer.view();
        writer.finish_unseen();
        assert_eq!(view.len(), len);
        assert!(zone.find(&Key::of(b"k")).is_none());
    }
    drop(zone);
    assert!(open(dir.path()).find(&Key::of(b"k")).is_none());
}

/// Notes until it is killed; does nothing in an ordinary run.
#[test]
fn child_that_is_killed() {
    let Ok(path) = std::env::var(ZONE) else {
        return;
    };
    let zone = open(Path::new(&path));
    let mut report = std::io::stderr();
    let mut all = zone.take_journal().records;
    for number in all.len() as u64.. {
        note(&zone, &mut all, number).expect("noted");
        writeln!(report, "noted {number}").expect("reported");
    }
}

/// Whatever moment the process dies in, all that was acknowledged is there, in order.
#[test]
fn killed_process_forgets_nothing_that_it_acknowledged() {
    let dir = tempfile::tempdir().expect("directory");
    for round in 0..6_u64 {
        let mut child = Command::new(std::env::current_exe().expect("own name"))
            .args(["--exact", "child_that_is_killed", "--nocapture"])
            .env(ZONE, dir.path())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("child");
        let mut lines = BufReader::new(child.stderr.take().expect("stderr")).lines();
        let wanted = 150 + 17 * round as usize;
        let last = lines
            .by_ref()
            .take(wanted)
            .last()
            .expect("a line")
            .expect("text");
        child.kill().expect("killed");
        child.wait().expect("gone");
        // The last line may be cut, anywhere.
        let number = |line: &str| line.strip_prefix("noted ")?.parse::<u64>().ok();
        let rest = lines.map_while(Result::ok);
        let rest = rest.filter_map(|line| number(&line));
        let last = rest.last().or(number(&last)).expect("a number");
        let journal = open(dir.path()).take_journal();
        assert!(!journal.is_damaged);
        assert!(journal.records.len() as u64 > last, "{last}");
        let expected = (0..journal.records.len() as u64).map(record);
        assert!(journal.records.iter().cloned().eq(expected));
    }
}

/// A disk that is full has room for a purge: the file was made with the zone.
#[test]
fn first_record_finds_its_room_on_a_disk_that_is_full() {
    let dir = tempfile::tempdir().expect("directory");
    let io = Arc::new(SimIo::new());
    let (zone, _events) = open_on(dir.path(), &io);
    store(&zone, b"a", "head");
    io.set(Fault::NoSpace);
    for number in 0..100 {
        zone.note(&record(number)).expect("there is a file");
    }
    drop(zone);
    io.set(Fault::None);
    let all: Vec<Bytes> = (0..100).map(record).collect();
    assert_eq!(open(dir.path()).take_journal().records, all);
}

/// A zone without its journal does not know what was purged, until the journal is written anew.
#[test]
fn journal_that_is_gone_is_told_at_each_start_until_there_is_one() {
    for is_noted in [false, true] {
        let dir = tempfile::tempdir().expect("directory");
        let io = Arc::new(SimIo::new());
        let (zone, _events) = open_on(dir.path(), &io);
        if is_noted {
            zone.note(&record(1)).expect("noted");
        }
        drop(zone);
        std::fs::remove_file(dir.path().join(JOURNAL)).expect("removed");
        for is_written in [false, false, true] {
            let (zone, events) = open_on(dir.path(), &io);
            let is_it = |event: &&Event| matches!(event, Event::JournalLost { .. });
            assert_eq!(
                events.lock().expect("whole").iter().filter(is_it).count(),
                1
            );
            assert!(zone.take_journal().is_damaged);
            store(&zone, b"a", "head");
            assert!(zone.sync());
            if is_written {
                zone.rewrite_journal(&[record(2)]).expect("anew");
            }
        }
        let (zone, events) = open_on(dir.path(), &io);
        assert!(events.lock().expect("whole").is_empty());
        let journal = zone.take_journal();
        assert_eq!(
            (journal.records, journal.is_damaged),
            (vec![record(2)], false)
        );
    }
}
