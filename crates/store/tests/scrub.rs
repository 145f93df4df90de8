//! A scrub finds what a disk has lost before anybody asks for it.

use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use millpond_store::{
    DiskConf, DiskIo, Event, Fault, Key, ManualClock, Platform, RealIo, Scrub, SimIo, Tried,
    Verified, Zone, ZoneConf,
};

const ENTRIES: u64 = 24;
const DAY: Duration = Duration::from_secs(86_400);
/// Nothing takes so long, unless a test fails.
const PATIENCE: Duration = Duration::from_secs(30);

struct Bench {
    dir: tempfile::TempDir,
    io: Arc<SimIo>,
    clock: Arc<ManualClock>,
}

impl Bench {
    fn new(dir: tempfile::TempDir) -> Self {
        Self {
            dir,
            io: Arc::default(),
            clock: Arc::new(ManualClock::new(1_700_000_000_000)),
        }
    }

    fn conf(&self, scrub: Option<Duration>) -> ZoneConf {
        ZoneConf {
            max_size: Some(8 << 20),
            memory: 0,
            inactive: DAY * 100,
            scrub,
            ..ZoneConf::new("test", self.dir.path().join("a"))
        }
    }

    /// A zone with entries, of which every third is in slices, and what it scrubbed.
    fn open(&self, conf: ZoneConf) -> (Arc<Zone>, Receiver<(String, Verified)>) {
        let (told, scrubbed) = channel();
        let told = Mutex::new(told);
        let platform = Platform {
            io: self.io.clone(),
            events: Arc::new(move |event| {
                if let Event::Scrubbed { dir, verified, .. } = event {
                    let told = told.lock().expect("not poisoned");
                    // A test that has ended does not listen.
                    let _ = told.send((dir.clone(), *verified));
                }
            }),
            ..Platform::default()
        };
        let zone = Zone::open_on(conf, self.clock.clone(), platform).expect("opens");
        for number in 0..ENTRIES {
            let len = if number % 3 == 0 { 20_000 } else { 500 };
            let mut writer = zone.begin(key(number), None).expect("begun");
            writer.set_head(Bytes::from("head"));
            let body = format!("<mark {number}>").repeat(4000);
            writer
                .append(Bytes::from(body).slice(..len))
                .expect("taken");
            writer.finish().expect("finished");
        }
        zone.flush();
        (zone, scrubbed)
    }

    fn segments(&self) -> Vec<PathBuf> {
        let listed = std::fs::read_dir(self.dir.path().join("a")).expect("listed");
        let paths = listed.map(|entry| entry.expect("entry").path());
        let is_segment = |path: &PathBuf| path.to_string_lossy().contains("segment-");
        paths.filter(is_segment).collect()
    }

    /// File and range of an entry's body.
    fn body_of(&self, number: u64) -> (PathBuf, Range<u64>) {
        let mark = format!("<mark {number}>");
        let is_mark = |window: &[u8]| window == mark.as_bytes();
        for path in self.segments() {
            let bytes = std::fs::read(&path).expect("read");
            if let Some(at) = bytes.windows(mark.len()).position(is_mark) {
                return (path, at as u64..at as u64 + mark.len() as u64);
            }
        }
        panic!("{mark} is nowhere");
    }

    fn damage(&self, number: u64) {
        let (path, stretch) = self.body_of(number);
        write(&path, stretch.start);
    }
}

fn write(path: &Path, at: u64) {
    let file = std::fs::OpenOptions::new().write(true).open(path);
    let file = file.expect("opened");
    file.write_all_at(b"!", at).expect("written");
}

fn key(number: u64) -> Key {
    Key::of(&number.to_le_bytes())
}

fn scrub(zone: &Zone) -> Scrub {
    zone.disks()[0].scrub
}

fn next(scrubbed: &Receiver<(String, Verified)>) -> Verified {
    let (_, verified) = scrubbed.recv_timeout(PATIENCE).expect("a pass ends");
    verified
}

#[test]
fn a_pass_removes_what_is_corrupt_and_comes_when_its_time_has_come() {
    let bench = Bench::new(tempfile::tempdir().expect("directory"));
    let (zone, scrubbed) = bench.open(bench.conf(Some(DAY)));
    // Nobody has swept.
    assert_eq!((scrub(&zone).began_ms, scrub(&zone).every), (0, DAY));
    zone.sweep();
    let first = next(&scrubbed);
    assert_eq!(
        (first.entries, first.corrupt, first.unread),
        (ENTRIES, 0, 0)
    );
    for number in [3, 4] {
        bench.damage(number);
    }
    zone.sweep();
    assert!(!scrub(&zone).is_running, "its time has not come");
    bench.clock.advance(DAY);
    zone.sweep();
    let second = next(&scrubbed);
    assert_eq!((second.entries, second.corrupt), (ENTRIES, 2));
    for number in 0..ENTRIES {
        assert_eq!(zone.peek(&key(number)), number != 3 && number != 4);
    }
    let state = scrub(&zone);
    assert_eq!((state.passes, state.corrupt, state.unread), (2, 2, 0));
    assert_eq!(state.progress.entries, ENTRIES);
    assert_eq!(zone.usage().corrupt, 2);
}

#[test]
fn what_the_disk_does_not_give_is_counted_and_does_not_give_it_up() {
    let bench = Bench::new(tempfile::tempdir().expect("directory"));
    let other = DiskConf {
        path: bench.dir.path().join("b"),
        weight: 1,
    };
    let conf = ZoneConf {
        disks: vec![other],
        ..bench.conf(Some(DAY))
    };
    let (zone, scrubbed) = bench.open(conf);
    for path in bench.segments() {
        bench.io.damage(&path, 0..1 << 20).expect("damaged");
    }
    bench.io.set(Fault::BadSectors);
    zone.sweep();
    let both = [
        scrubbed.recv_timeout(PATIENCE),
        scrubbed.recv_timeout(PATIENCE),
    ];
    for told in both {
        let (dir, verified) = told.expect("a pass ends");
        let is_bad = dir.ends_with("/a");
        assert_eq!(verified.unread > 0, is_bad, "{dir}: {verified:?}");
        assert_eq!((verified.corrupt, verified.is_complete), (0, true));
    }
    assert!(zone.disks().iter().all(|disk| disk.why.is_empty()));
    bench.io.set(Fault::None);
    zone.close();
    let zone = Zone::open(bench.conf(None), bench.clock.clone()).expect("opens");
    assert_eq!(zone.usage().corrupt, 0);
}

#[test]
fn a_change_turns_it_on_and_off() {
    let bench = Bench::new(tempfile::tempdir().expect("directory"));
    let (zone, scrubbed) = bench.open(bench.conf(None));
    zone.sweep();
    assert_eq!(scrub(&zone), Scrub::default());
    zone.change(bench.conf(Some(DAY)));
    zone.sweep();
    assert_eq!(next(&scrubbed).entries, ENTRIES);
    zone.change(bench.conf(None));
    bench.clock.advance(DAY);
    zone.sweep();
    assert!(!scrub(&zone).is_running && scrub(&zone).every.is_zero());
    assert_eq!(scrub(&zone).passes, 1);
}

/// True if the first page of a file is in memory; none if the file system cannot tell.
fn is_in_memory(path: &Path) -> Option<bool> {
    let file = RealIo.open(path).expect("opened");
    match RealIo
        .try_read_at(&file, &mut [0; 512], 8192)
        .expect("read")
    {
        Tried::Read => Some(true),
        Tried::WouldWait => Some(false),
        Tried::Unknown => None,
    }
}

#[test]
fn what_was_not_in_memory_is_not_there_afterwards() {
    // Beside the build, which is seldom in memory.
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("directory");
    let bench = Bench::new(dir);
    let (zone, scrubbed) = bench.open(bench.conf(Some(DAY)));
    assert!(zone.sync());
    let forget = || {
        for path in bench.segments() {
            let file = RealIo.open(&path).expect("opened");
            RealIo.sync(&file).expect("synced");
            RealIo.forget(&file, 0..8 << 20);
        }
    };
    forget();
    let before: Vec<_> = bench.segments().iter().map(|it| is_in_memory(it)).collect();
    if before.iter().any(|it| *it != Some(false)) {
        millpond_testkit::skip("the file system keeps what is to be forgotten");
        return;
    }
    forget();
    zone.sweep();
    assert_eq!(next(&scrubbed).entries, ENTRIES);
    let after: Vec<_> = bench.segments().iter().map(|it| is_in_memory(it)).collect();
    assert_eq!(before, after);
}
