//! Promises of a zone while its directory is lent, and when its limits change.

#[path = "support/read.rs"]
mod read;

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use millpond_store::{
    Entry, Event, Key, NotStored, Platform, SystemClock, View, ViewState, Writer, Zone, ZoneConf,
};

use read::read;

const MIB: u64 = 1 << 20;
const PIECE: u64 = 64 << 10;
/// Nothing takes so long, unless a test fails.
const PATIENCE: Duration = Duration::from_secs(60);

struct Bench {
    dir: tempfile::TempDir,
    events: Arc<Mutex<Vec<Event>>>,
}

impl Bench {
    fn new() -> Self {
        Self {
            dir: tempfile::tempdir().expect("directory"),
            events: Arc::default(),
        }
    }

    fn conf(&self) -> ZoneConf {
        ZoneConf {
            max_size: Some(64 * MIB),
            ..ZoneConf::new("test", self.dir.path().join("zone"))
        }
    }

    fn open(&self) -> Arc<Zone> {
        let events = Arc::clone(&self.events);
        let platform = Platform {
            events: Arc::new(move |event| events.lock().expect("events").push(event.clone())),
            ..Platform::default()
        };
        Zone::open_on(self.conf(), Arc::new(SystemClock), platform).expect("open")
    }
}

fn key(name: &str) -> Key {
    Key::of(name.as_bytes())
}

/// A stretch of a body in which every position tells which one it is.
fn stretch(salt: u64, from: u64, to: u64) -> Bytes {
    let word = |at: u64| {
        (at / 8)
            .wrapping_add(salt)
            .wrapping_mul(0x9e37_79b9_7f4a_7c15)
    };
    (from..to)
        .map(|at| word(at).to_le_bytes()[(at % 8) as usize])
        .collect()
}

fn append(writer: &mut Writer, salt: u64, from: u64, to: u64) -> Result<(), NotStored> {
    let mut at = from;
    while at < to {
        let end = to.min(at + PIECE);
        writer.append(stretch(salt, at, end))?;
        at = end;
    }
    Ok(())
}

fn store(zone: &Arc<Zone>, name: &str, salt: u64, len: u64) -> Entry {
    let mut writer = zone.begin(key(name), Some(len)).expect("begin");
    writer.set_head(Bytes::from(name.to_string()));
    append(&mut writer, salt, 0, len).expect("append");
    writer.finish().expect("finish")
}

fn is_whole(zone: &Arc<Zone>, name: &str, salt: u64, len: u64) -> bool {
    let entry = zone.find(&key(name));
    entry.is_some_and(|entry| read(entry.regions(0..u64::MAX)) == stretch(salt, 0, len))
}

fn holds(view: &View, salt: u64, len: u64) -> bool {
    view.len() == len && read(view.regions(0..len)) == stretch(salt, 0, len)
}

/// The next process that opens the directory finds everything, without any doubt, and so does the
/// process that takes it back.
#[test]
fn lent_entries_are_found_by_the_next_owner_and_after_taking_back() {
    let bench = Bench::new();
    let ours = bench.open();
    for (number, len) in [(1, 100), (2, 2 * MIB), (3, 70_000)] {
        store(&ours, &format!("e{number}"), number, len);
    }
    ours.lend();
    assert!(ours.find(&key("e1")).is_none());
    assert!(matches!(ours.begin(key("x"), None), Err(NotStored::Closed)));
    assert!(!ours.remove(&key("e1")));
    let theirs = bench.open();
    for (number, len) in [(1, 100), (2, 2 * MIB), (3, 70_000)] {
        assert!(is_whole(&theirs, &format!("e{number}"), number, len));
    }
    store(&theirs, "theirs", 4, MIB);
    assert!(ours.take_back().is_err(), "the next owner has it");
    theirs.close();
    ours.take_back().expect("take back");
    assert!(is_whole(&ours, "theirs", 4, MIB));
    assert!(is_whole(&ours, "e2", 2, 2 * MIB));
    store(&ours, "after", 5, MIB);
    assert!(is_whole(&ours, "after", 5, MIB));
    assert_eq!(bench.events.lock().expect("events").as_slice(), []);
}

/// Fills of known and unknown length go on for their readers, and touch nothing of the next owner.
#[test]
fn running_fills_end_whole_for_their_readers() {
    let bench = Bench::new();
    let ours = bench.open();
    let len = 5 * MIB + 12_345;
    let cases = [("known", Some(len)), ("unknown", None)];
    let mut running: Vec<(Writer, View)> = cases
        .iter()
        .map(|(name, expected)| {
            let mut writer = ours.begin(key(name), *expected).expect("begin");
            writer.set_head(Bytes::new());
            append(&mut writer, 7, 0, 2 * MIB).expect("append");
            let view = writer.view();
            (writer, view)
        })
        .collect();
    let small = ours.begin(key("small"), Some(10)).expect("begin");
    ours.lend();
    let theirs = bench.open();
    for number in 0..20 {
        store(&theirs, &format!("t{number}"), 100 + number, MIB);
        for (writer, _) in &mut running {
            let at = 2 * MIB + number * 100_000;
            append(writer, 7, at, at + 100_000).expect("append");
        }
    }
    for (mut writer, view) in running {
        append(&mut writer, 7, view.len(), len).expect("append");
        assert!(matches!(writer.finish(), Err(NotStored::Closed)));
        assert_eq!(view.state(), ViewState::Complete);
        assert!(holds(&view, 7, len));
        ours.flush();
        assert!(holds(&view, 7, len));
    }
    drop(small);
    for number in 0..20 {
        assert!(is_whole(&theirs, &format!("t{number}"), 100 + number, MIB));
    }
    for (name, _) in cases {
        assert!(theirs.find(&key(name)).is_none());
    }
}

/// The next owner is killed at once: what a fill still writes is not taken for free space.
#[test]
fn granted_space_is_not_reused_after_a_crash_of_the_next_owner() {
    let bench = Bench::new();
    let ours = bench.open();
    let len = 4 * MIB;
    let mut writer = ours.begin(key("long"), Some(len)).expect("begin");
    writer.set_head(Bytes::new());
    append(&mut writer, 7, 0, MIB).expect("append");
    let view = writer.view();
    ours.lend();
    // A close would write summaries; nothing is written by whoever is forgotten, and only the lock
    // is in the way.
    let theirs = bench.open();
    let copy = bench.dir.path().join("copy");
    std::fs::create_dir(&copy).expect("make");
    for file in std::fs::read_dir(bench.dir.path().join("zone")).expect("list") {
        let path = file.expect("entry").path();
        let name = path.file_name().expect("name").to_owned();
        std::fs::copy(&path, copy.join(name)).expect("copy");
    }
    drop(theirs);
    for file in std::fs::read_dir(&copy).expect("list") {
        use std::os::unix::fs::FileExt;
        let path = file.expect("entry").path();
        let name = path.file_name().expect("name").to_owned();
        let bytes = std::fs::read(&path).expect("read");
        // In place, because the fill has the file open.
        let target = std::fs::File::options();
        let target = { target }
            .write(true)
            .open(bench.dir.path().join("zone").join(name));
        target
            .expect("open")
            .write_all_at(&bytes, 0)
            .expect("write");
    }
    ours.take_back().expect("take back");
    for number in 0..10 {
        store(&ours, &format!("n{number}"), number, MIB);
    }
    ours.flush();
    append(&mut writer, 7, MIB, len).expect("append");
    assert!(writer.finish().is_err());
    assert!(holds(&view, 7, len));
    for number in 0..10 {
        assert!(is_whole(&ours, &format!("n{number}"), number, MIB));
    }
}

/// A fill that is too long for what may be granted ends for those who read along.
#[test]
fn fill_that_needs_too_much_is_given_up() {
    let bench = Bench::new();
    let ours = bench.open();
    let mut writer = ours.begin(key("huge"), Some(40 * MIB)).expect("begin");
    append(&mut writer, 7, 0, MIB).expect("append");
    ours.lend();
    let appended = append(&mut writer, 7, MIB, 40 * MIB);
    assert_eq!(appended, Err(NotStored::Full));
    assert_eq!(writer.view().state(), ViewState::Abandoned(NotStored::Full));
}

/// Threads of this process that write for zones.
fn writing_threads() -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").expect("tasks");
    let names =
        tasks.filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("comm")).ok());
    names.filter(|name| name.trim() == "disk threads").count()
}

fn until_they_are(count: usize, what: &str) {
    let deadline = Instant::now() + PATIENCE;
    while writing_threads() > count {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::yield_now();
    }
}

/// Whatever `flush` is, the thread of a directory that was lent ends with its last fill.
#[test]
fn thread_of_a_lent_directory_ends_with_its_fills() {
    for flush in [0, 3600] {
        let bench = Bench::new();
        let conf = ZoneConf {
            flush: Duration::from_secs(flush),
            name: "threads".to_string(),
            ..bench.conf()
        };
        let zone = Zone::open(conf, Arc::new(SystemClock)).expect("open");
        let mut writer = zone.begin(key("long"), None).expect("begin");
        append(&mut writer, 7, 0, MIB).expect("append");
        for lent in 1..4 {
            zone.lend();
            zone.take_back().expect("take back");
            // That of the fill, and the one of the directory.
            until_they_are(2, &format!("lent {lent}, flush {flush}"));
        }
        append(&mut writer, 7, MIB, 2 * MIB).expect("append");
        drop(writer);
        until_they_are(1, &format!("flush {flush}"));
        zone.close();
        until_they_are(0, "closed");
    }
}

/// Other limits are in force at once, and entries stay.
#[test]
fn limits_change_while_the_zone_is_open() {
    let bench = Bench::new();
    let zone = bench.open();
    for number in 0..30 {
        store(&zone, &format!("e{number}"), number, MIB);
    }
    zone.flush();
    let larger = ZoneConf {
        max_size: Some(256 * MIB),
        memory: 0,
        ..bench.conf()
    };
    zone.change(larger.clone());
    assert_eq!(zone.usage().max_size, Some(256 * MIB));
    assert_eq!(zone.usage().memory_bytes, 0);
    let alive = (0..30).filter(|number| is_whole(&zone, &format!("e{number}"), *number, MIB));
    assert_eq!(alive.count(), 30);
    zone.change(ZoneConf {
        max_size: Some(16 * MIB),
        ..larger
    });
    // What a sync is at when it is evicted is unlinked after that sync.
    let deadline = Instant::now() + PATIENCE;
    while zone.usage().bytes > 16 * MIB {
        assert!(Instant::now() < deadline, "{:?}", zone.usage());
        std::thread::yield_now();
    }
    assert!(is_whole(&zone, "e29", 29, MIB), "the newest stays");
    assert!(zone.find(&key("e0")).is_none());
}
