//! A disk whose reads do not return: who does not need it does not notice, and who does is told.

use std::future::Future;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use millpond_store::{
    Cold, Fault, Haste, HeldFile, Key, LoadError, Loading, Look, ManualClock, Platform, Region,
    SimIo, Zone, ZoneConf,
};

struct Bench {
    dir: tempfile::TempDir,
    clock: Arc<ManualClock>,
    io: Arc<SimIo>,
}

impl Bench {
    fn new() -> Self {
        Self {
            dir: tempfile::tempdir().expect("no error"),
            clock: Arc::new(ManualClock::new(1_700_000_000_000)),
            io: Arc::new(SimIo::new()),
        }
    }

    /// A zone without a memory tier.
    fn open(&self) -> Arc<Zone> {
        self.open_with(0)
    }

    fn open_with(&self, memory: u64) -> Arc<Zone> {
        let conf = ZoneConf {
            max_size: Some(64 << 20),
            flush: Duration::ZERO,
            memory,
            ..ZoneConf::new("test", self.dir.path().join("zone"))
        };
        let platform = Platform {
            io: self.io.clone(),
            ..Platform::default()
        };
        Zone::open_on(conf, self.clock.clone(), platform).expect("no error")
    }

    fn open_and_keep(self) -> (Self, Arc<Zone>) {
        let zone = self.open();
        (self, zone)
    }

    /// Waits until so many reads do not return.
    fn until_stalled(&self, reads: u64) {
        while self.io.stalled() < reads {
            std::thread::yield_now();
        }
    }
}

fn key(number: usize) -> Key {
    Key::of(format!("key {number}").as_bytes())
}

fn body(number: usize, len: usize) -> Bytes {
    let pattern = (number as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let bytes = (0..len as u64).map(|at| (pattern.rotate_left((at % 61) as u32) ^ at) as u8);
    bytes.collect()
}

/// Stores an entry, and sees to it that it is on the disk only.
fn store(zone: &Zone, number: usize, len: usize) {
    let mut writer = zone.begin(key(number), Some(len as u64)).expect("no error");
    writer.set_head(Bytes::from_static(b"head"));
    writer.append(body(number, len)).expect("no error");
    writer.finish().expect("no error");
    zone.flush();
}

fn cold(zone: &Zone, number: usize) -> Cold {
    match zone.look(&key(number)) {
        Look::Cold(cold) => cold,
        other => panic!("{other:?} of a stalled disk"),
    }
}

/// File and offset at which the body of an entry begins, and its length there.
fn file_of(zone: &Zone, number: usize) -> (HeldFile, u64, u64) {
    let Look::Found(entry) = zone.look(&key(number)) else {
        panic!("the record is not in the page cache");
    };
    match entry.regions_to_load(0..u64::MAX).next() {
        Some(Region::File { file, offset, len }) => (file, offset, len),
        other => panic!("{other:?}"),
    }
}

fn is_pending(future: impl Future) -> bool {
    let future = std::pin::pin!(future);
    let mut cx = Context::from_waker(Waker::noop());
    matches!(future.poll(&mut cx), Poll::Pending)
}

async fn load_all(mut loading: impl FnMut(u64) -> Loading, len: u64) -> Result<(), LoadError> {
    let mut at = 0;
    while at < len {
        at += loading(at).done().await?;
    }
    Ok(())
}

/// A look never waits: what is in the page cache is found, the rest is read by a thread and found
/// by whoever looks again.
#[tokio::test]
async fn who_looks_never_waits_and_finds_what_was_read() {
    let bench = Bench::new();
    let zone = bench.open();
    store(&zone, 1, 1000);
    assert!(matches!(zone.look(&key(1)), Look::Found(_)));
    bench.io.set(Fault::Stall);
    let cold = cold(&zone, 1);
    assert!(is_pending(cold.wait()));
    bench.io.set(Fault::None);
    cold.wait().await;
    // The disk stalls again, and the record is in no memory tier: it is the read's.
    bench.io.set(Fault::Stall);
    let Look::Found(entry) = zone.look(&key(1)) else {
        panic!("what was read is not found");
    };
    assert_eq!(entry.body_in_memory(), Some(&body(1, 1000)));
    bench.io.set(Fault::None);
}

/// A read that was overtaken by a removal, or by another entry, is not found.
#[tokio::test]
async fn what_was_read_counts_only_where_the_entry_still_is() {
    let bench = Bench::new();
    let zone = bench.open();
    for number in [1, 2] {
        store(&zone, number, 1000);
    }
    bench.io.set(Fault::Stall);
    let reads = [cold(&zone, 1), cold(&zone, 2)];
    bench.until_stalled(2);
    assert!(zone.remove(&key(1)));
    store(&zone, 2, 500);
    bench.io.set(Fault::None);
    for read in &reads {
        read.wait().await;
    }
    assert!(matches!(zone.look(&key(1)), Look::Missing));
    let Look::Found(entry) = zone.look(&key(2)) else {
        panic!("the newer entry is not found");
    };
    assert_eq!(entry.len(), 500);
}

/// A thousand requests for a stalled disk: four threads, a bounded queue, and the rest is told at
/// once; what is in memory, and other disks, answer meanwhile. Later all is as before.
#[tokio::test]
async fn a_stalled_disk_takes_bounded_work_and_recovers() {
    let (bench, healthy) = (Bench::new(), Bench::new());
    let (zone, other) = (bench.open_with(32 << 20), healthy.open());
    for number in 0..1000 {
        store(&zone, number, 100);
    }
    store(&other, 1, 1000);
    zone.close();
    drop(zone);
    // All on the disk, and nothing in memory, but for what was asked for.
    let zone = bench.open_with(32 << 20);
    assert!(matches!(zone.look(&key(999)), Look::Found(_)));
    bench.io.set(Fault::Stall);
    let looks: Vec<Look> = (0..999).map(|number| zone.look(&key(number))).collect();
    let colds = looks.iter().filter(|look| matches!(look, Look::Cold(_)));
    let stalled = looks.iter().filter(|look| matches!(look, Look::Stalled));
    let (colds, stalled) = (colds.count(), stalled.count());
    assert!((256..=260).contains(&colds), "{colds}");
    assert_eq!(colds + stalled, 999);
    bench.until_stalled(4);
    assert_eq!(bench.io.stalled(), 4, "threads");
    bench.clock.advance(Duration::from_secs(1));
    // Nobody waits for a disk that is known to be stalled.
    assert!(matches!(zone.look(&key(998)), Look::Stalled));
    assert!(matches!(zone.look(&key(999)), Look::Found(_)));
    assert!(matches!(other.look(&key(1)), Look::Found(_)));
    bench.io.set(Fault::None);
    for look in &looks {
        if let Look::Cold(cold) = look {
            cold.wait().await;
        }
    }
    drop(looks);
    for number in 0..999 {
        assert!(
            matches!(zone.look(&key(number)), Look::Found(_)),
            "{number}"
        );
    }
}

/// Many who want one record of a slow disk cost one read.
#[tokio::test]
async fn one_record_is_read_once_for_all() {
    let bench = Bench::new();
    let zone = bench.open();
    store(&zone, 1, 100);
    bench.io.set(Fault::Stall);
    let reads: Vec<Cold> = (0..1000).map(|_| cold(&zone, 1)).collect();
    bench.until_stalled(1);
    assert_eq!((bench.io.stalled(), bench.io.injected()), (1, 1));
    bench.io.set(Fault::None);
    for read in &reads {
        read.wait().await;
    }
    assert!(matches!(zone.look(&key(1)), Look::Found(_)));
}

/// The bytes of a body are ready when they are in the page cache, and can be had when they are not.
#[tokio::test]
async fn a_body_is_ready_once_it_was_loaded() {
    let bench = Bench::new();
    let zone = bench.open();
    store(&zone, 1, 700_000);
    let (file, offset, len) = file_of(&zone, 1);
    assert_eq!((len, file.ready_len(offset, len)), (700_000, 700_000));
    bench.io.set(Fault::Stall);
    // A look holds for two seconds; a load of the same bytes is shared.
    assert_eq!(file.ready_len(offset, len), len);
    bench.clock.advance(Duration::from_secs(2));
    assert_eq!(file.ready_len(offset, len), 0);
    let loads: Vec<Loading> = (0..1000)
        .map(|_| file.load(offset, len, Haste::OrNotAtAll))
        .collect();
    bench.until_stalled(1);
    assert_eq!(bench.io.stalled(), 1);
    bench.io.set(Fault::None);
    for load in loads {
        assert!(load.done().await.expect("no error") > 0);
    }
    load_all(
        |at| file.load(offset + at, len - at, Haste::OrNotAtAll),
        len,
    )
    .await
    .expect("no error");
    bench.io.set(Fault::Stall);
    assert_eq!(file.ready_len(offset, len), len);
    let mut bytes = vec![0; len as usize];
    file.read_exact_at(&mut bytes, offset).expect("no error");
    assert_eq!(bytes, body(1, 700_000));
    bench.io.set(Fault::None);
}

/// A disk that does not read, or not in time, says so.
#[tokio::test]
async fn a_body_that_cannot_be_loaded_says_why() {
    let bench = Bench::new();
    let zone = bench.open();
    store(&zone, 1, 100_000);
    let (file, offset, len) = file_of(&zone, 1);
    bench.io.set(Fault::ReadError);
    assert_eq!(file.ready_len(offset, len), 0);
    let refused = file.load(offset, len, Haste::OrNotAtAll).done().await;
    assert!(matches!(refused, Err(LoadError::Io(_))), "{refused:?}");
    bench.io.set(Fault::Stall);
    let loads: Vec<Loading> = (0..300)
        .map(|at| file.load(offset + at, 1, Haste::OrNotAtAll))
        .collect();
    bench.until_stalled(4);
    bench.clock.advance(Duration::from_secs(1));
    assert_eq!(
        file.load(offset, len, Haste::OrNotAtAll).done().await,
        Err(LoadError::Busy)
    );
    bench.io.set(Fault::None);
    let mut refused = 0;
    for load in loads {
        refused += usize::from(load.done().await == Err(LoadError::Busy));
    }
    assert!((40..=44).contains(&refused), "{refused}");
}

/// Directory that a process that was killed would have left.
fn killed(bench: &Bench) -> Bench {
    let copy = Bench::new();
    std::fs::create_dir(copy.dir.path().join("zone")).expect("no error");
    for file in std::fs::read_dir(bench.dir.path().join("zone")).expect("no error") {
        let file = file.expect("no error");
        let to = copy.dir.path().join("zone").join(file.file_name());
        std::fs::copy(file.path(), to).expect("no error");
    }
    copy
}

/// Loads the regions of an entry and reads them, up to the first one that cannot be had.
async fn load_and_read(zone: &Zone, number: usize) -> (Vec<u8>, Result<(), LoadError>) {
    let Look::Found(entry) = zone.look(&key(number)) else {
        panic!("the entry was lost");
    };
    let mut read = Vec::new();
    for region in entry.regions_to_load(0..u64::MAX) {
        let Region::File { file, offset, len } = region else {
            panic!("{region:?}");
        };
        assert_eq!(file.ready_len(offset, len), 0, "it is in doubt");
        if let Err(error) = load_all(
            |at| file.load(offset + at, len - at, Haste::OrNotAtAll),
            len,
        )
        .await
        {
            return (read, Err(error));
        }
        assert_eq!(file.ready_len(offset, len), len);
        let start = read.len();
        read.resize(start + len as usize, 0);
        file.read_exact_at(&mut read[start..], offset)
            .expect("no error");
    }
    (read, Ok(()))
}

/// After an unclean stop a large body is compared with its checksums by a thread of the disk, slice
/// by slice, before its bytes are ready.
#[tokio::test]
async fn slices_in_doubt_are_compared_before_they_are_ready() {
    const LEN: usize = 6 << 20;
    let bench = Bench::new();
    let zone = bench.open();
    store(&zone, 1, LEN);
    zone.sync();
    let (file, offset, _) = file_of(&zone, 1);
    let sound = killed(&bench).open_and_keep();
    let (read, end) = load_and_read(&sound.1, 1).await;
    assert!(read == body(1, LEN) && end.is_ok());
    // The same with one wrong byte in its third mebibyte.
    let at = offset + (2 << 20) + 5;
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).expect("no error");
    let opened = file.file().expect("open");
    opened.write_all_at(&[!byte[0]], at).expect("no error");
    let damaged = killed(&bench).open_and_keep();
    let (read, end) = load_and_read(&damaged.1, 1).await;
    assert!(read == body(1, LEN)[..read.len()]);
    assert_eq!(end, Err(LoadError::Corrupt));
    assert!(matches!(damaged.1.look(&key(1)), Look::Missing));
}
