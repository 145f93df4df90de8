//! Promises of a zone to its users, one behaviour at a time.

#[path = "support/read.rs"]
mod read;

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use millpond_store::{
    Admission, Clock, Entry, Event, Fault, Key, ManualClock, NotStored, Platform, Region, SimIo,
    StoreError, ViewState, Zone, ZoneConf,
};

use read::read as read_regions;

const MIB: usize = 1 << 20;

struct Bench {
    dir: tempfile::TempDir,
    clock: Arc<ManualClock>,
    io: Arc<SimIo>,
    events: Arc<Mutex<Vec<Event>>>,
}

impl Bench {
    fn new() -> Self {
        Self {
            dir: tempfile::tempdir().expect("directory"),
            clock: Arc::new(ManualClock::new(1_700_000_000_000)),
            io: Arc::new(SimIo::new()),
            events: Arc::default(),
        }
    }

    fn conf(&self) -> ZoneConf {
        ZoneConf {
            max_size: Some(64 << 20),
            flush: Duration::ZERO,
            ..ZoneConf::new("test", self.dir.path().join("zone"))
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

    fn open(&self, conf: ZoneConf) -> Arc<Zone> {
        Zone::open_on(conf, self.clock.clone(), self.platform()).expect("open")
    }

    fn events(&self) -> Vec<Event> {
        self.events.lock().expect("events").clone()
    }
}

fn body(len: usize, salt: u64) -> Bytes {
    let mut state = salt.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(len);
    Bytes::from(bytes)
}

fn key(name: &str) -> Key {
    Key::of(name.as_bytes())
}

fn store(zone: &Arc<Zone>, name: &str, bytes: &Bytes) -> Result<Entry, NotStored> {
    let mut writer = zone.begin(key(name), Some(bytes.len() as u64))?;
    writer.set_head(Bytes::from(format!("head of {name}")));
    for start in (0..bytes.len()).step_by(16 << 10) {
        writer.append(bytes.slice(start..bytes.len().min(start + (16 << 10))))?;
    }
    writer.finish()
}

fn read(entry: &Entry) -> Vec<u8> {
    read_regions(entry.regions(0..u64::MAX))
}

/// Bytes of all files; one that goes away meanwhile has none.
fn disk_bytes(dir: &Path) -> u64 {
    let entries = std::fs::read_dir(dir).expect("list");
    let found = entries.map(|entry| entry.expect("entry").metadata());
    found
        .map(|found| found.map_or(0, |found| found.len()))
        .sum()
}

const SIZES: [usize; 8] = [
    0,
    1,
    8 << 10,
    (8 << 10) + 1,
    100_000,
    MIB,
    3 * MIB + 17,
    10 * MIB,
];

#[test]
fn what_was_stored_is_found_at_once_and_after_reopening() {
    let bench = Bench::new();
    let zone = bench.open(bench.conf());
    for len in SIZES {
        let name = format!("{len}");
        let stored = store(&zone, &name, &body(len, 1)).expect("stored");
        assert_eq!(read(&stored), body(len, 1), "{len} at finish");
        let found = zone.find(&key(&name)).expect("found");
        assert_eq!(read(&found), body(len, 1), "{len} in flight");
    }
    zone.flush();
    for len in SIZES {
        let found = zone.find(&key(&format!("{len}"))).expect("found");
        assert_eq!(read(&found), body(len, 1), "{len} from disk");
        assert_eq!(&found.head()[..], format!("head of {len}").as_bytes());
    }
    drop(zone);
    let zone = bench.open(bench.conf());
    for len in SIZES {
        let found = zone.find(&key(&format!("{len}"))).expect("found");
        assert_eq!(read(&found), body(len, 1), "{len} after reopening");
        assert_eq!(found.len(), len as u64);
    }
    assert_eq!(zone.usage().entries, SIZES.len() as u64);
    assert_eq!(bench.events(), []);
}

#[test]
fn ranges_have_the_right_bytes() {
    let bench = Bench::new();
    let zone = bench.open(bench.conf());
    let whole = body(3 * MIB, 2);
    let stored = store(&zone, "a", &whole).expect("stored");
    let table = [
        0..1,
        0..whole.len(),
        MIB - 1..MIB + 1,
        5..2 * MIB,
        whole.len() - 1..whole.len(),
        7..7,
    ];
    zone.flush();
    let found = zone.find(&key("a")).expect("found");
    for range in table {
        for entry in [&stored, &found] {
            let regions = entry.regions(range.start as u64..range.end as u64);
            assert_eq!(read_regions(regions), whole[range.clone()], "{range:?}");
        }
    }
    assert_eq!(
        found.regions(0..u64::MAX).count(),
        1,
        "one fill alone is one region"
    );
    assert_eq!(found.regions(u64::MAX - 1..u64::MAX).count(), 0);
}

#[test]
fn removed_entry_does_not_come_back() {
    let bench = Bench::new();
    let zone = bench.open(bench.conf());
    for version in 0..3 {
        store(&zone, "a", &body(100, version)).expect("stored");
    }
    assert!(zone.remove(&key("a")));
    assert!(!zone.remove(&key("a")));
    assert!(zone.find(&key("a")).is_none());
    drop(zone);
    let zone = bench.open(bench.conf());
    assert!(zone.find(&key("a")).is_none());
    assert_eq!(zone.usage().entries, 0);
}

#[test]
fn new_head_keeps_the_body_and_survives() {
    let bench = Bench::new();
    let zone = bench.open(bench.conf());
    for len in [10, 5 * MIB] {
        let name = format!("{len}");
        let entry = store(&zone, &name, &body(len, 4)).expect("stored");
        bench.clock.advance(Duration::from_secs(5));
        let fresh = zone
            .replace_head(&entry, Bytes::from_static(b"new"))
            .expect("replaced");
        assert_eq!(fresh.created_ms(), entry.created_ms());
        assert_eq!(read(&fresh), body(len, 4));
        let again = zone.replace_head(&entry, Bytes::from_static(b"newer"));
        assert_eq!(again.err(), Some(NotStored::Superseded));
    }
    drop(zone);
    let zone = bench.open(bench.conf());
    for len in [10, 5 * MIB] {
        let found = zone.find(&key(&format!("{len}"))).expect("found");
        assert_eq!(&found.head()[..], b"new");
        assert_eq!(read(&found), body(len, 4));
    }
}

#[test]
fn views_read_what_has_arrived() {
    let bench = Bench::new();
    let zone = bench.open(bench.conf());
    let whole = body(2 * MIB, 5);
    let mut writer = zone.begin(key("a"), None).expect("begun");
    let view = writer.view();
    for (index, start) in (0..whole.len()).step_by(50_000).enumerate() {
        let end = whole.len().min(start + 50_000);
        writer.append(whole.slice(start..end)).expect("appended");
        assert_eq!(view.len(), end as u64);
        if index % 7 == 0 {
            zone.flush();
        }
        assert_eq!(read_regions(view.regions(0..u64::MAX)), whole[..end]);
        assert_eq!(
            read_regions(view.regions(start as u64..end as u64)),
            whole[start..end]
        );
    }
    assert_eq!(view.state(), ViewState::Filling);
    writer.set_head(Bytes::from_static(b"h"));
    writer.finish().expect("finished");
    assert_eq!(view.state(), ViewState::Complete);
    assert_eq!(read_regions(view.regions(0..u64::MAX)), whole);
}

#[test]
fn dropped_writer_leaves_no_entry_and_its_view_reads_on() {
    let bench = Bench::new();
    let zone = bench.open(bench.conf());
    let mut writer = zone.begin(key("a"), None).expect("begun");
    let view = writer.view();
    writer.append(body(MIB, 6)).expect("appended");
    drop(writer);
    assert_eq!(view.state(), ViewState::Abandoned(NotStored::Dropped));
    for _ in 0..2 {
        assert_eq!(read_regions(view.regions(0..u64::MAX)), body(MIB, 6));
        zone.flush();
    }
    assert!(zone.find(&key("a")).is_none());
}

#[test]
fn dropped_writer_gives_back_what_nobody_has_seen() {
    for seen in [0, 1, 10_000] {
        let bench = Bench::new();
        let zone = bench.open(bench.conf());
        for _ in 0..200 {
            let mut writer = zone.begin(key("a"), None).expect("begun");
            writer.append(body(MIB, 6)).expect("appended");
            zone.flush();
            assert_eq!(
                read_regions(writer.view().regions(0..seen)).len() as u64,
                seen
            );
            drop(writer);
            zone.flush();
        }
        let bytes = zone.usage().bytes;
        assert!(bytes <= 8 << 20, "{seen} of each: {bytes}");
    }
}

/// The kernel sends from the page cache: what it was handed and nobody has received yet changes
/// with the file.
#[test]
fn bytes_on_their_way_from_a_dropped_fill_are_not_overwritten() {
    let bench = Bench::new();
    let zone = bench.open(bench.conf());
    let first = body(MIB, 8);
    let mut writer = zone.begin(key("a"), None).expect("begun");
    writer.append(first.clone()).expect("appended");
    zone.flush();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("bound");
    let address = listener.local_addr().expect("address");
    let mut client = std::net::TcpStream::connect(address).expect("connected");
    let (server, _) = listener.accept().expect("accepted");
    let (start, end) = (MIB - (16 << 10), MIB);
    let regions = writer.view().regions(start as u64..end as u64);
    for region in regions {
        let Region::File { file, offset, len } = region else {
            panic!("what was flushed is in a file");
        };
        let file = file.file().expect("open");
        let sent = rustix::fs::sendfile(&server, file, Some(&mut { offset }), len as usize);
        assert_eq!(sent, Ok(len as usize));
    }
    drop((writer, server));
    zone.flush();
    store(&zone, "b", &body(MIB, 9)).expect("stored");
    zone.flush();
    let mut came = Vec::new();
    std::io::Read::read_to_end(&mut client, &mut came).expect("read");
    assert!(came == first[start..end], "bytes of another fill");
}

#[tokio::test]
async fn waiting_readers_wake_and_room_comes_back() {
    let bench = Bench::new();
    let zone = bench.open(bench.conf());
    let mut writer = zone.begin(key("a"), None).expect("begun");
    let view = writer.view();
    let reader = tokio::spawn(async move {
        let mut seen = 0;
        while view.state() == ViewState::Filling {
            view.changed(seen).await;
            seen = view.len();
        }
        read_regions(view.regions(0..u64::MAX))
    });
    let whole = body(12 * MIB, 7);
    for start in (0..whole.len()).step_by(64 << 10) {
        writer
            .append(whole.slice(start..start + (64 << 10)))
            .expect("appended");
        writer.room().await;
        assert!(writer.backlog() < 4 << 20);
        tokio::task::yield_now().await;
    }
    writer.set_head(Bytes::from_static(b"h"));
    writer.finish().expect("finished");
    assert!(reader.await.expect("reader") == whole);
}

#[test]
fn files_never_pass_max_size() {
    for max_size in [0, 5_000, 10 << 10, 20 << 10, 100 << 10, MIB as u64, 8 << 20] {
        let bench = Bench::new();
        let conf = ZoneConf {
            max_size: Some(max_size),
            ..bench.conf()
        };
        let zone = bench.open(conf.clone());
        let mut stored = 0;
        for number in 0..400_u64 {
            let len = (number * 977 % 40_000) as usize;
            stored += u64::from(store(&zone, &format!("{number}"), &body(len, number)).is_ok());
            // Listing is not atomic: the disk thread must not evict meanwhile.
            zone.flush();
            assert!(disk_bytes(&conf.path) <= max_size, "{max_size} at {number}");
        }
        assert!(zone.usage().bytes <= max_size);
        assert!(stored > 100 || max_size < 100 << 10, "{max_size}: {stored}");
        let refused = store(&zone, "big", &body(max_size as usize + 1, 0));
        assert_eq!(refused.err(), Some(NotStored::TooLarge));
    }
}

#[test]
fn oldest_entries_leave_first() {
    let bench = Bench::new();
    let conf = ZoneConf {
        max_size: Some(1 << 20),
        ..bench.conf()
    };
    let zone = bench.open(conf);
    for number in 0..200_u64 {
        store(&zone, &format!("{number}"), &body(20_000, number)).expect("stored");
        zone.flush();
    }
    let found: Vec<u64> = (0..200)
        .filter(|number| zone.find(&key(&format!("{number}"))).is_some())
        .collect();
    assert!(found.len() >= 30, "{}", found.len());
    assert!(
        found
            .iter()
            .eq(&(200 - found.len() as u64..200).collect::<Vec<_>>()),
        "{found:?}"
    );
    assert_eq!(zone.usage().evicted, 200 - found.len() as u64);
    assert_eq!(zone.usage().entries, found.len() as u64);
}

#[test]
fn entry_in_use_outlives_eviction() {
    let bench = Bench::new();
    let conf = ZoneConf {
        max_size: Some(1 << 20),
        ..bench.conf()
    };
    let zone = bench.open(conf.clone());
    store(&zone, "pinned", &body(50_000, 99)).expect("stored");
    zone.flush();
    let pinned = zone.find(&key("pinned")).expect("found");
    for number in 0..200_u64 {
        store(&zone, &format!("{number}"), &body(20_000, number)).expect("stored");
        zone.flush();
        assert!(disk_bytes(&conf.path) <= 1 << 20);
    }
    assert!(zone.find(&key("pinned")).is_none());
    assert_eq!(read(&pinned), body(50_000, 99));
    let names = || {
        let dir = std::fs::read_dir(&conf.path).expect("list");
        dir.filter(|e| {
            e.as_ref()
                .expect("entry")
                .file_name()
                .to_string_lossy()
                .starts_with("ret")
        })
        .count()
    };
    assert!(names() > 0);
    drop(pinned);
    zone.sweep();
    assert_eq!(names(), 0);
}

#[test]
fn entries_in_use_are_written_again() {
    let bench = Bench::new();
    let conf = ZoneConf {
        max_size: Some(64 << 20),
        memory: 0,
        ..bench.conf()
    };
    let zone = bench.open(conf);
    for number in 0..20_u64 {
        store(&zone, &format!("hot {number}"), &body(1000, number)).expect("stored");
    }
    store(&zone, "hot large", &body(300_000, 5)).expect("stored");
    for number in 0..600_u64 {
        store(&zone, &format!("{number}"), &body(300_000, number)).expect("stored");
        zone.flush();
        for hot in 0..20 {
            let found = zone.find(&key(&format!("hot {hot}"))).expect("hot entry");
            assert_eq!(read(&found), body(1000, hot));
        }
        let found = zone.find(&key("hot large")).expect("hot entry");
        assert_eq!(read(&found), body(300_000, 5));
    }
    let usage = zone.usage();
    assert!(usage.rewritten_bytes > 0);
    assert!(usage.rewritten_bytes * 4 < usage.written_bytes);
}

#[test]
fn once_full_a_zone_takes_what_is_asked_for_twice() {
    let bench = Bench::new();
    let conf = ZoneConf {
        max_size: Some(8 << 20),
        admission: Admission::SecondHit,
        ..bench.conf()
    };
    let zone = bench.open(conf.clone());
    let large = body(100_000, 1);
    let mut stored = 0;
    // Everything is taken while there is room.
    while store(&zone, &format!("{stored}"), &large).is_ok() {
        zone.flush();
        stored += 1;
    }
    assert!(stored > 60, "{stored}");
    // Then what comes again, what has no body, and what takes the place of an entry.
    let table = [
        ("new", large.clone(), Err(NotStored::AskedSeldom)),
        ("newer", large.clone(), Err(NotStored::AskedSeldom)),
        ("new", large.clone(), Ok(())),
        ("bare", Bytes::new(), Ok(())),
        ("60", large.clone(), Ok(())),
    ];
    for (name, bytes, expected) in table {
        let stored = store(&zone, name, &bytes).map(|_| ());
        assert_eq!(stored, expected, "{name}");
    }
    let usage = zone.usage();
    assert_eq!((usage.asked_seldom, usage.not_stored), (3, 3));
    // A change of mind counts at once.
    zone.change(ZoneConf {
        admission: Admission::All,
        ..conf
    });
    store(&zone, "newest", &large).expect("stored");
}

/// One question and one answer for those who have to make the body first.
#[test]
fn what_a_full_zone_has_chosen_it_takes_and_what_it_has_not_costs_no_body() {
    let bench = Bench::new();
    let conf = ZoneConf {
        max_size: Some(8 << 20),
        admission: Admission::SecondHit,
        ..bench.conf()
    };
    let zone = bench.open(conf);
    let some = body(100_000, 1);
    let stores = |number: &u64| {
        zone.flush();
        store(&zone, &format!("{number}"), &some).is_ok()
    };
    assert!((0..).take_while(stores).count() > 60);
    let before = zone.usage();
    assert_eq!(
        zone.choose(key("made"), 100_000).map(|_| ()),
        Err(NotStored::AskedSeldom)
    );
    let chosen = zone.choose(key("made"), 100_000).expect("asked for twice");
    // Nothing was fetched that was not stored.
    assert_eq!(zone.usage().not_stored, before.not_stored);
    let mut writer = zone.begin_chosen(chosen, 5).expect("begun");
    writer.set_head(Bytes::from_static(b"head"));
    writer.append(Bytes::from_static(b"bytes")).expect("room");
    writer.finish().expect("stored");
    let made = zone.find(&key("made")).expect("found");
    assert_eq!(read(&made), Bytes::from_static(b"bytes"));
}

/// Entries that are used stay, unless what comes is worth more than they are.
#[test]
fn a_full_zone_keeps_what_is_used_more_than_what_comes() {
    let bench = Bench::new();
    let conf = ZoneConf {
        max_size: Some(8 << 20),
        admission: Admission::SecondHit,
        ..bench.conf()
    };
    let zone = bench.open(conf);
    let some = body(20_000, 1);
    let stores = |name: &str| {
        zone.flush();
        store(&zone, name, &some).is_ok()
    };
    let held = (0..).take_while(|number| stores(&format!("{number}")));
    let held = held.count();
    let is_there = |number: &usize| zone.find(&key(&format!("{number}"))).is_some();
    let used: Vec<usize> = (0..held).filter(is_there).collect();
    assert!(used.len() > 300, "{} of {held}", used.len());
    for _ in 0..5 {
        assert!(used.iter().all(is_there));
    }
    // As much again, each asked for twice.
    let came = (0..held).filter(|number| {
        let name = format!("new {number}");
        !stores(&name) && stores(&name)
    });
    let came = came.count();
    let stayed = (0..held).filter(is_there).count();
    assert!(
        came < held / 4 && stayed > held / 2,
        "{came}, {stayed} of {held}"
    );
    // What is asked for again and again comes in all the same.
    assert!((0..20).any(|_| stores("wanted")));
}

/// Keys that are asked for twice pay for a tenth that is not; before, and while there is room,
/// admission is as with the others.
#[test]
fn on_trial_a_full_zone_takes_a_tenth_that_was_not_asked_for_before() {
    let bench = Bench::new();
    let conf = ZoneConf {
        max_size: Some(8 << 20),
        admission: Admission::Trial,
        ..bench.conf()
    };
    let zone = bench.open(conf);
    let some = body(20_000, 1);
    let stores = |name: &str| {
        zone.flush();
        store(&zone, name, &some).map(|_| ())
    };
    let stored = (0..).take_while(|number| stores(&format!("{number}")).is_ok());
    let stored = stored.count();
    assert!(stored > 300, "{stored}");
    assert_eq!(stores("first"), Err(NotStored::AskedSeldom));
    let (mut known, mut new) = (0, 0);
    for number in 0..200 {
        let again = format!("again {number}");
        if stores(&again).is_err() {
            assert_eq!(stores(&again), Ok(()), "{number}");
        } else {
            new += 1;
            continue;
        }
        known += 1;
    }
    // One in ten of what is stored, give or take the one that is being saved for.
    let share = 10 * new - (known + new);
    assert!((-20..=20).contains(&share), "{new} new beside {known}");
}

#[test]
fn what_is_used_most_for_its_space_stays_longest() {
    let bench = Bench::new();
    let conf = ZoneConf {
        max_size: Some(8 << 20),
        memory: 0,
        ..bench.conf()
    };
    let zone = bench.open(conf);
    // Half a segment of each kind; two ninths may be written again, and so four ninths of one kind.
    let names = |kind: &str| -> Vec<String> { (0..20).map(|n| format!("{kind} {n}")).collect() };
    for name in [names("seldom"), names("often")].concat() {
        store(&zone, &name, &body(9000, 3)).expect("stored");
        let uses = if name.starts_with("often") { 8 } else { 1 };
        for _ in 0..uses {
            assert!(zone.find(&key(&name)).is_some());
        }
    }
    let is_there = |name: &String| zone.peek(&key(name));
    let other = body(100_000, 1);
    // One turn of the log, and then some.
    for number in 0..90 {
        store(&zone, &format!("{number}"), &other).expect("stored");
        zone.flush();
    }
    let often = names("often").iter().filter(|name| is_there(name)).count();
    let seldom = names("seldom").iter().filter(|name| is_there(name)).count();
    assert!(often >= 5, "{often} of those that are used often are there");
    assert_eq!(seldom, 0);
    // Nobody asks for them any more, so they go.
    for number in 0..400 {
        store(&zone, &format!("{number}"), &other).expect("stored");
        zone.flush();
    }
    assert!(!names("often").iter().any(is_there));
}

#[test]
fn inactive_entries_are_removed_and_stay_away() {
    let bench = Bench::new();
    let conf = ZoneConf {
        inactive: Duration::from_secs(10),
        ..bench.conf()
    };
    let zone = bench.open(conf.clone());
    for number in 0..3000 {
        store(&zone, &format!("{number}"), &body(10, number)).expect("stored");
    }
    bench.clock.advance(Duration::from_secs(9));
    assert!(zone.find(&key("7")).is_some());
    assert_eq!(zone.sweep().expired, 0);
    bench.clock.advance(Duration::from_secs(2));
    assert!(zone.find(&key("8")).is_none(), "before the sweep");
    assert!(!zone.peek(&key("8")));
    assert_eq!(zone.sweep().expired, 2999);
    assert!(zone.find(&key("7")).is_some());
    assert_eq!(zone.usage().entries, 1);
    drop(zone);
    let zone = bench.open(conf);
    assert_eq!(zone.usage().entries, 1);
    assert!(zone.find(&key("7")).is_some());
}

#[test]
fn low_space_evicts_and_stops_storing() {
    let bench = Bench::new();
    let conf = ZoneConf {
        min_free: 1 << 30,
        segment_size: Some(1 << 20),
        ..bench.conf()
    };
    let zone = bench.open(conf);
    for number in 0..20 {
        store(&zone, &format!("{number}"), &body(300_000, number)).expect("stored");
    }
    zone.flush();
    bench.io.set(Fault::Available(1000));
    let swept = zone.sweep();
    assert!(swept.segments > 3 && swept.evicted > 9, "{swept:?}");
    assert_eq!(zone.begin(key("x"), None).err(), Some(NotStored::Disk));
    bench.io.set(Fault::None);
    zone.sweep();
    store(&zone, "x", &body(300_000, 1)).expect("stored");
}

#[test]
fn second_zone_on_a_directory_is_refused() {
    let bench = Bench::new();
    let zone = bench.open(bench.conf());
    let second = Zone::open(bench.conf(), bench.clock.clone());
    assert!(matches!(second, Err(StoreError::InUse { .. })));
    zone.close();
    assert!(Zone::open(bench.conf(), bench.clock.clone()).is_ok());
}

#[test]
fn damaged_superblock_is_set_aside() {
    let bench = Bench::new();
    let conf = bench.conf();
    let zone = bench.open(conf.clone());
    store(&zone, "a", &body(10, 1)).expect("stored");
    drop(zone);
    let path = conf.path.join("millpond.zone");
    let mut bytes = std::fs::read(&path).expect("read");
    bytes[20] ^= 1;
    std::fs::write(&path, bytes).expect("write");
    let zone = bench.open(conf.clone());
    assert!(zone.find(&key("a")).is_none());
    assert!(conf.path.join("millpond.zone.set-aside-1").exists());
    assert!(conf.path.join("segment-00000001.set-aside-1").exists());
    assert!(conf.path.join("millpond.journal.set-aside-1").exists());
    assert_eq!(bench.events().len(), 3);
    for number in 0..300 {
        store(&zone, &format!("{number}"), &body(300_000, number)).expect("stored");
        zone.flush();
        assert!(disk_bytes(&conf.path) <= 64 << 20);
    }
}

/// A process that is killed while it writes the header of a segment leaves part of it, and nothing
/// behind it: that is no news.
#[test]
fn segment_whose_header_was_cut_off_is_removed_without_a_word() {
    for (written, behind, is_told) in [(0, 0, false), (30, 0, false), (30, 1, true)] {
        let bench = Bench::new();
        let conf = bench.conf();
        let zone = bench.open(conf.clone());
        store(&zone, "a", &body(10, 1)).expect("stored");
        zone.close();
        let whole = std::fs::read(conf.path.join("segment-00000001")).expect("read");
        let mut torn = vec![0; whole.len()];
        torn[..written].copy_from_slice(&whole[..written]);
        torn[whole.len() - 1000] = behind;
        let path = conf.path.join("segment-00000002");
        std::fs::write(&path, torn).expect("written");
        let zone = bench.open(conf);
        assert!(zone.find(&key("a")).is_some() && !path.exists());
        let told = usize::from(is_told);
        assert_eq!(bench.events().len(), told, "{written} {behind}");
    }
}

#[test]
fn foreign_files_are_left_alone() {
    let bench = Bench::new();
    let conf = bench.conf();
    std::fs::create_dir_all(conf.path.join("a/bc")).expect("directory");
    std::fs::write(conf.path.join("a/bc/0123"), b"nginx").expect("file");
    let zone = bench.open(conf.clone());
    store(&zone, "a", &body(10, 1)).expect("stored");
    drop(zone);
    assert_eq!(
        std::fs::read(conf.path.join("a/bc/0123")).expect("read"),
        b"nginx"
    );
    assert!(matches!(bench.events()[0], Event::Foreign { count: 1, .. }));
}

#[test]
fn smaller_max_size_is_kept_from_the_start() {
    let bench = Bench::new();
    let zone = bench.open(bench.conf());
    for number in 0..100 {
        store(&zone, &format!("{number}"), &body(400_000, number)).expect("stored");
        // All of it is more than may wait for the disk.
        zone.flush();
    }
    drop(zone);
    for max_size in [20 << 20, 1 << 20, 0] {
        let conf = ZoneConf {
            max_size: Some(max_size),
            ..bench.conf()
        };
        let zone = bench.open(conf.clone());
        assert!(disk_bytes(&conf.path) <= max_size);
        zone.close();
        assert!(disk_bytes(&conf.path) <= max_size);
    }
}

#[test]
fn corrupt_record_is_a_miss_a_counter_and_one_event() {
    let bench = Bench::new();
    let conf = ZoneConf {
        memory: 0,
        ..bench.conf()
    };
    let zone = bench.open(conf.clone());
    store(&zone, "a", &body(100, 1)).expect("stored");
    store(&zone, "a", &body(100, 2)).expect("stored");
    zone.flush();
    let path = conf.path.join("segment-00000001");
    let mut bytes = std::fs::read(&path).expect("read");
    // The second record begins at 64 + 192: eighty bytes of header, nine of head, a hundred of
    // body, and three of padding.
    bytes[64 + 192 + 100] ^= 1;
    std::fs::write(&path, bytes).expect("write");
    assert!(zone.find(&key("a")).is_none());
    assert!(zone.find(&key("a")).is_none());
    assert_eq!(zone.usage().corrupt, 1);
    assert_eq!(bench.events().len(), 1);
    // Neither the corrupt entry nor the one that it had replaced comes back.
    zone.flush();
    let copy = bench.dir.path().join("copy");
    copy_dir(&conf.path, &copy);
    let crashed = bench.open(ZoneConf {
        path: copy,
        ..conf.clone()
    });
    assert!(!crashed.peek(&key("a")));
    zone.close();
    assert!(!bench.open(conf).peek(&key("a")));
}

#[test]
fn write_errors_are_not_stored_and_recoverable() {
    let bench = Bench::new();
    let conf = ZoneConf {
        memory: 0,
        ..bench.conf()
    };
    let zone = bench.open(conf.clone());
    store(&zone, "before", &body(100, 1)).expect("stored");
    store(&zone, "before large", &body(MIB, 1)).expect("stored");
    zone.flush();
    bench.io.set(Fault::WriteError);
    // The entry is visible until the disk has answered.
    store(&zone, "small", &body(100, 2)).expect("queued");
    zone.flush();
    assert!(zone.find(&key("small")).is_none());
    let mut writer = zone.begin(key("large"), None).expect("begun");
    let view = writer.view();
    writer.append(body(MIB, 2)).expect("queued");
    zone.flush();
    assert_eq!(writer.append(body(10, 2)), Err(NotStored::Disk));
    assert_eq!(view.state(), ViewState::Abandoned(NotStored::Disk));
    assert_eq!(read_regions(view.regions(0..u64::MAX)), body(MIB, 2));
    writer.set_head(Bytes::new());
    assert_eq!(writer.finish().err(), Some(NotStored::Disk));
    bench.io.set(Fault::None);
    store(&zone, "after", &body(MIB, 3)).expect("stored");
    assert!(zone.usage().write_errors >= 2);
    drop(zone);
    let zone = bench.open(conf);
    for (name, expected) in [("before", body(100, 1)), ("before large", body(MIB, 1))] {
        assert_eq!(
            read(&zone.find(&key(name)).expect(name)),
            expected,
            "{name}"
        );
    }
    assert_eq!(
        read(&zone.find(&key("after")).expect("after")),
        body(MIB, 3)
    );
    assert!(zone.find(&key("small")).is_none() && zone.find(&key("large")).is_none());
}

#[test]
fn no_space_is_not_stored() {
    let bench = Bench::new();
    bench.io.set(Fault::NoSpace);
    // Without room for its first file a zone has no disk.
    let zone = bench.open(bench.conf());
    assert_eq!(store(&zone, "a", &body(10, 1)).err(), Some(NotStored::Disk));
    drop(zone);
    bench.io.set(Fault::None);
    let zone = bench.open(bench.conf());
    bench.io.set(Fault::NoSpace);
    // That there is no room is known when the disk has answered.
    store(&zone, "a", &body(10, 1)).expect("queued");
    zone.flush();
    assert!(zone.find(&key("a")).is_none());
    let refused = |name| {
        let refused = store(&zone, name, &body(10, 1)).err();
        zone.flush();
        refused == Some(NotStored::Disk)
    };
    assert!(refused("b") && refused("c"));
    bench.io.set(Fault::None);
    // Who is refused has it tried again; so does a sweep.
    assert!(refused("d"));
    store(&zone, "e", &body(10, 1)).expect("stored");
    zone.flush();
    assert!(zone.find(&key("e")).is_some());
    assert_eq!(zone.usage().lost, 1);
}

#[test]
fn torn_and_lost_writes_never_serve_a_wrong_byte() {
    for fault in [Fault::TornWrite, Fault::LostWrite] {
        let bench = Bench::new();
        let conf = ZoneConf {
            memory: 0,
            ..bench.conf()
        };
        let copy = bench.dir.path().join("copy");
        let zone = bench.open(conf.clone());
        for number in 0..10 {
            store(&zone, &format!("{number}"), &body(200_000, number)).expect("stored");
        }
        zone.flush();
        bench.io.set(fault);
        let lost = store(&zone, "lost", &body(200_000, 50)).expect("stored");
        zone.flush();
        bench.io.set(Fault::None);
        drop(lost);
        // The record reaches the disk although the slices did not.
        let mut writer = zone.begin(key("half"), None).expect("begun");
        bench.io.set(fault);
        writer.append(body(MIB, 51)).expect("appended");
        zone.flush();
        bench.io.set(Fault::None);
        writer.set_head(Bytes::new());
        drop(writer.finish().expect("finished"));
        zone.flush();
        copy_dir(&conf.path, &copy);
        drop(zone);
        let zone = bench.open(ZoneConf {
            path: copy,
            ..conf.clone()
        });
        for number in 0..10 {
            let found = zone.find(&key(&format!("{number}"))).expect("found");
            assert_eq!(read(&found), body(200_000, number));
        }
        assert!(zone.find(&key("lost")).is_none(), "{fault:?}");
        assert!(zone.find(&key("half")).is_none(), "{fault:?}");
        assert_eq!(zone.usage().corrupt, 1, "{fault:?}");
    }
}

fn copy_dir(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).expect("directory");
    for entry in std::fs::read_dir(from).expect("list") {
        let entry = entry.expect("entry");
        std::fs::copy(entry.path(), to.join(entry.file_name())).expect("copy");
    }
}

#[test]
fn full_queue_refuses_and_recovers() {
    let bench = Bench::new();
    let conf = ZoneConf {
        queue: 64 << 10,
        ..bench.conf()
    };
    let zone = bench.open(conf);
    let mut refused = 0;
    for number in 0..50 {
        let stored = store(&zone, &format!("{number}"), &body(200_000, number));
        if let Err(why) = stored {
            assert_eq!(why, NotStored::QueueFull);
            refused += 1;
        }
    }
    zone.flush();
    store(&zone, "after", &body(60_000, 1)).expect("stored");
    // Each is counted once, wherever in it the queue was full.
    assert!(refused < 51);
    assert_eq!(zone.usage().not_stored, refused);
}

#[test]
fn wrong_length_and_missing_head_are_refused() {
    let bench = Bench::new();
    let zone = bench.open(bench.conf());
    let mut short = zone.begin(key("a"), Some(10)).expect("begun");
    short.set_head(Bytes::new());
    short.append(body(9, 1)).expect("appended");
    assert_eq!(short.finish().err(), Some(NotStored::Length));
    let mut long = zone.begin(key("a"), Some(10)).expect("begun");
    assert_eq!(long.append(body(11, 1)), Err(NotStored::Length));
    let headless = zone.begin(key("a"), None).expect("begun");
    assert_eq!(headless.finish().err(), Some(NotStored::NoHead));
    assert!(zone.find(&key("a")).is_none());
}

#[test]
fn memory_tier_stays_within_its_limit_and_serves_without_the_disk() {
    let bench = Bench::new();
    let conf = ZoneConf {
        memory: 256 << 10,
        ..bench.conf()
    };
    let zone = bench.open(conf);
    for number in 0..2000 {
        store(&zone, &format!("{number}"), &body(1000, number)).expect("stored");
        assert!(zone.usage().memory_bytes <= 256 << 10);
    }
    zone.flush();
    bench.io.set(Fault::ReadError);
    let hits = (0..2000)
        .filter(|number| zone.find(&key(&format!("{number}"))).is_some())
        .count();
    assert!(hits > 100, "{hits}");
}

#[test]
fn slow_fill_gives_way_when_the_log_has_turned() {
    let bench = Bench::new();
    // The slow fill takes less than a quarter of it: so much may wait for whoever reads it.
    let conf = ZoneConf {
        max_size: Some(2 << 20),
        ..bench.conf()
    };
    let zone = bench.open(conf);
    let mut slow = zone.begin(key("slow"), None).expect("begun");
    slow.set_head(Bytes::new());
    slow.append(body(300_000, 1)).expect("appended");
    let view = slow.view();
    let turn = || {
        (0..200_u64).find_map(|number| {
            zone.flush();
            store(&zone, &format!("{number}"), &body(20_000, number)).err()
        })
    };
    assert_eq!(turn(), Some(NotStored::Full));
    bench.clock.advance(Duration::from_secs(60));
    assert_eq!(turn(), None);
    assert_eq!(slow.append(body(10, 1)), Err(NotStored::Full));
    assert_eq!(read_regions(view.regions(0..u64::MAX)), body(300_000, 1));
    drop((slow, view));
    zone.sweep();
    assert!(zone.find(&key("slow")).is_none());
}

#[test]
fn a_time_of_day_that_is_set_stops_no_fill() {
    for set_s in [120, -120] {
        let bench = Bench::new();
        let zone = bench.open(ZoneConf {
            max_size: Some(1 << 20),
            ..bench.conf()
        });
        let mut running = zone.begin(key("running"), None).expect("begun");
        running.set_head(Bytes::new());
        running.append(body(300_000, 1)).expect("appended");
        bench
            .clock
            .set(bench.clock.now().saturating_add_signed(set_s * 1000));
        let full = (0..100_u64).find_map(|number| {
            zone.flush();
            store(&zone, &format!("{number}"), &body(20_000, number)).err()
        });
        assert_eq!(full, Some(NotStored::Full), "{set_s}");
        assert_eq!(running.view().state(), ViewState::Filling, "{set_s}");
    }
}

#[test]
fn threads_see_whole_versions_only() {
    let bench = Bench::new();
    let conf = ZoneConf {
        max_size: Some(2 << 20),
        memory: 100_000,
        ..bench.conf()
    };
    let zone = bench.open(conf.clone());
    let work = |thread: u64| {
        for step in 0..400_u64 {
            let number = (step * 31 + thread * 7) % 40;
            let name = format!("{number}");
            let salt = step << 8 | thread;
            match step % 5 {
                0 | 1 => {
                    let bytes = body((salt * 977 % 60_000) as usize, salt);
                    let mut writer = zone.begin(key(&name), None).expect("begun");
                    writer.set_head(Bytes::from(format!("{salt} {}", bytes.len())));
                    if writer.append(bytes).is_ok() {
                        // A full queue or zone is an answer here, too.
                        let _ = writer.finish();
                    }
                }
                2 if step % 3 == 0 => {
                    zone.remove(&key(&name));
                }
                _ => {
                    if let Some(entry) = zone.find(&key(&name)) {
                        let head = std::str::from_utf8(entry.head()).expect("text");
                        let (salt, len) = head.split_once(' ').expect("two numbers");
                        let expected = body(len.parse().expect("len"), salt.parse().expect("salt"));
                        assert!(read(&entry) == expected, "{name}");
                    }
                }
            }
            if step % 50 == 0 {
                zone.sweep();
            }
        }
    };
    std::thread::scope(|scope| {
        for thread in 0..4 {
            scope.spawn(move || work(thread));
        }
    });
    zone.flush();
    let usage = zone.usage();
    let mut listed = 0;
    zone.entries(&mut |_, _| listed += 1);
    assert_eq!(usage.entries, listed);
    // What has its place where readers keep the last segment may be lost.
    assert_eq!((usage.corrupt, usage.write_errors), (0, 0));
    drop(zone);
    let zone = bench.open(conf);
    assert_eq!(zone.usage().entries, listed);
    assert_eq!(bench.events(), []);
}

#[test]
fn entry_removed_without_room_for_a_tombstone_does_not_come_back() {
    let bench = Bench::new();
    let conf = ZoneConf {
        max_size: Some(4 << 20),
        memory: 0,
        ..bench.conf()
    };
    let zone = bench.open(conf.clone());
    store(&zone, "a", &body(100, 1)).expect("stored");
    drop(zone);
    let zone = bench.open(conf.clone());
    // An unfinished fill takes what is left and keeps its segments from being evicted.
    let mut writer = zone.begin(key("b"), None).expect("begun");
    writer.append(body(300_000, 2)).expect("appended");
    for len in [200_000, 9_000, 1_000, 0] {
        while store(&zone, &format!("{len}"), &body(len, 3)).is_ok() {
            zone.flush();
        }
    }
    let view = writer.view();
    let removed = zone.remove(&key("a"));
    // From then on it outlives the process.
    zone.flush();
    let copy = bench.dir.path().join("copy");
    copy_dir(&conf.path, &copy);
    assert!(removed && !zone.peek(&key("a")));
    drop((writer, view, zone));
    for path in [copy, conf.path.clone()] {
        let zone = bench.open(ZoneConf {
            path,
            ..conf.clone()
        });
        assert!(!zone.peek(&key("a")));
    }
}
