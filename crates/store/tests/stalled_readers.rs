//! Cost of readers that stall for a zone: a bounded share of its entries, however many they are.
//!
//! A segment that is read takes space until its readers are gone, so evicting it makes none. The
//! rule: at most a quarter of `max_size` waits for readers; beyond that what comes is not stored,
//! and what is there stays, for a minute at the most: then the space of those who took next to
//! nothing is taken back. Zones are a quarter of what an operator would call small: 64 MiB, of
//! which 14 bodies of 3.5 MiB and 280 of 4 KiB take four fifths.

#[path = "support/home.rs"]
mod home;
#[path = "support/random.rs"]
mod random;
#[path = "support/read.rs"]
mod read;
#[path = "support/seeds.rs"]
mod seeds;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use millpond_store::{
    Entry, HeldFile, Key, ManualClock, NotStored, Platform, Region, Writer, Zone, ZoneConf,
};

use home::home;
use random::Random;
use read::read;
use seeds::{run_each, seeds};

const LIMIT: u64 = 64 << 20;
const SEGMENT: u64 = 1 << 20;
const LARGE: usize = PARTS * PART;
/// Bodies that come at once take turns by this; so their parts are mixed in each segment.
const PART: usize = 256 << 10;
const PARTS: usize = 14;
/// Bodies that come later: three eighths of the zone together, of a size that is stored in slices.
const NEW: usize = 64 << 10;
const NEWS: u64 = 384;
const SMALL: usize = 4 << 10;
const LARGES: u64 = 14;
const SMALLS: u64 = 280;
/// The share of the limit that may wait for readers.
const HELD_SHARE: u64 = 4;
/// Segments that may be on their way in or out: the active one, a sixteenth of the zone that is
/// kept free for what comes, what the journal and the file of uses take, and one at either end.
const UNDER_WAY: u64 = 9;

/// Order in which the large bodies came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Layout {
    InTurn,
    AtOnce,
}

struct Bench {
    zone: Arc<Zone>,
    clock: Arc<ManualClock>,
    home: tempfile::TempDir,
}

impl Bench {
    fn new() -> Self {
        let home = home();
        let conf = ZoneConf {
            max_size: Some(LIMIT),
            segment_size: Some(SEGMENT),
            inactive: Duration::from_secs(1_000_000),
            flush: Duration::ZERO,
            memory: 0,
            ..ZoneConf::new("stalled", home.path())
        };
        let clock = Arc::new(ManualClock::new(1_790_000_000_000));
        let zone = Zone::open_on(conf, clock.clone(), Platform::default()).expect("opens");
        Self { zone, clock, home }
    }

    fn begin(&self, number: u64, len: usize) -> Result<Writer, NotStored> {
        let mut writer = self.zone.begin(key(number), Some(len as u64))?;
        writer.set_head(Bytes::from_static(b"head"));
        Ok(writer)
    }

    fn store(&self, number: u64, len: usize) -> Result<Entry, NotStored> {
        let mut writer = self.begin(number, len)?;
        let whole = body(number, len);
        for start in (0..len).step_by(64 << 10) {
            writer.append(whole.slice(start..len.min(start + (64 << 10))))?;
        }
        let stored = writer.finish();
        self.zone.flush();
        stored
    }

    /// Large bodies are numbered from 0, small ones from `LARGES`.
    fn fill(&self, layout: Layout) {
        let smalls = LARGES..LARGES + SMALLS;
        let small = |number| {
            self.store(number, SMALL).expect("there is room");
        };
        match layout {
            Layout::InTurn => {
                for large in 0..LARGES {
                    self.store(large, LARGE).expect("there is room");
                    smalls
                        .clone()
                        .skip(large as usize * 20)
                        .take(20)
                        .for_each(small);
                }
            }
            Layout::AtOnce => self.fill_at_once(small),
        }
        self.clock.advance(Duration::from_secs(120));
    }

    fn fill_at_once(&self, small: impl Fn(u64)) {
        let begun = (0..LARGES).map(|large| self.begin(large, LARGE).expect("begun"));
        let mut writers: Vec<Writer> = begun.collect();
        let bodies: Vec<Bytes> = (0..LARGES).map(|large| body(large, LARGE)).collect();
        for part in 0..PARTS {
            for (writer, whole) in writers.iter_mut().zip(&bodies) {
                let bytes = whole.slice(part * PART..(part + 1) * PART);
                writer.append(bytes).expect("there is room");
                self.zone.flush();
            }
            let first = LARGES + part as u64 * 20;
            (first..first + 20).for_each(&small);
        }
        for writer in writers {
            writer.finish().expect("there is room");
        }
        self.zone.flush();
    }

    fn count(&self, numbers: impl Iterator<Item = u64>) -> u64 {
        let found = numbers.filter(|number| self.zone.find(&key(*number)).is_some());
        found.count() as u64
    }
}

fn key(number: u64) -> Key {
    Key::of(&number.to_le_bytes())
}

/// Blocks of one byte that follows from the number, each with its position at its beginning.
fn body(number: u64, len: usize) -> Bytes {
    let mut body = vec![number as u8; len];
    for (at, block) in body.chunks_exact_mut(512).enumerate() {
        block[..16].copy_from_slice(&(u128::from(number) << 64 | at as u128).to_le_bytes());
    }
    body.into()
}

/// Bytes of the files whose names begin like that.
fn bytes_of(dir: &Path, prefix: &str) -> u64 {
    let entries = std::fs::read_dir(dir).expect("list");
    let ours = entries
        .map(|entry| entry.expect("entry"))
        .filter(|entry| entry.file_name().to_string_lossy().starts_with(prefix));
    ours.map(|entry| entry.metadata().map_or(0, |found| found.len()))
        .sum()
}

/// Counts after a churn: small bodies and large ones that nobody reads, and the new ones that were
/// stored.
fn left_after_churn(layout: Layout, readers: u64) -> (u64, u64, u64) {
    let bench = Bench::new();
    bench.fill(layout);
    let held: Vec<Entry> = (0..readers)
        .map(|large| bench.zone.find(&key(large)).expect("there"))
        .collect();
    let mut stored = 0;
    for new in 0..NEWS {
        stored += u64::from(bench.store(10_000 + new, NEW).is_ok());
        bench.zone.sweep();
        let waiting = bytes_of(bench.home.path(), "retired-");
        assert!(waiting <= LIMIT / HELD_SHARE, "{waiting} bytes wait");
    }
    for (large, entry) in held.iter().enumerate() {
        let whole = read(entry.regions(0..u64::MAX));
        assert!(whole == body(large as u64, LARGE), "{large} is cut");
    }
    let smalls = bench.count(LARGES..LARGES + SMALLS);
    let larges = bench.count(readers..LARGES);
    println!("{layout:?}, {readers} readers: {larges} large, {smalls} small, {stored} new");
    (larges, smalls, stored)
}

/// Three eighths of the zone come. In the order in which they came as many of the entries go, and
/// at most another quarter for what is still read.
#[test]
fn readers_that_stall_take_a_bounded_share_of_the_other_entries() {
    let kept = |lost: u64| SMALLS * (LIMIT - lost - UNDER_WAY * SEGMENT) / LIMIT;
    let came = NEWS * NEW as u64;
    for layout in [Layout::InTurn, Layout::AtOnce] {
        let (_, smalls, stored) = left_after_churn(layout, 0);
        assert!(smalls >= kept(came), "{layout:?}");
        assert_eq!(stored, NEWS);
        for readers in [3, 14] {
            let (_, smalls, _) = left_after_churn(layout, readers);
            assert!(
                smalls >= kept(came + LIMIT / HELD_SHARE),
                "{layout:?} {readers}"
            );
        }
    }
}

/// Bodies that are read came first, and fit the share: the zone goes on, and what is there of the
/// bodies that came after them is what has room beside it and what comes.
#[test]
fn few_readers_that_stall_do_not_stop_a_zone() {
    let (larges, _, stored) = left_after_churn(Layout::InTurn, 3);
    assert_eq!(stored, NEWS);
    let lost = NEWS * NEW as u64 + LIMIT / HELD_SHARE + UNDER_WAY * SEGMENT;
    assert!(larges >= (LIMIT - lost) / (4 << 20), "{larges}");
}

#[test]
fn zone_stores_again_when_its_readers_go() {
    let bench = Bench::new();
    bench.fill(Layout::AtOnce);
    let all = 0..LARGES;
    let held: Vec<_> = all.filter_map(|it| bench.zone.find(&key(it))).collect();
    let refused = (0..NEWS).find_map(|new| bench.store(10_000 + new, NEW).err());
    assert_eq!(refused, Some(NotStored::Full));
    drop(held);
    let is_stored = |attempt: u64| {
        bench.zone.sweep();
        bench.zone.flush();
        bench.store(20_000 + attempt, NEW).is_ok()
    };
    // A file that cannot be created is tried again by whoever asks next.
    assert!((0..3).any(is_stored));
    assert!((10..42).all(is_stored));
    bench.zone.sweep();
    assert_eq!(bytes_of(bench.home.path(), "retired-"), 0);
}

/// The files of an entry's body.
fn files(entry: &Entry) -> Vec<HeldFile> {
    let regions = entry.regions(0..u64::MAX);
    let files = regions.filter_map(|region| match region {
        Region::File { file, .. } => Some(file),
        Region::Memory(_) => None,
    });
    files.collect()
}

fn is_whole(entry: &Entry) -> bool {
    read(entry.regions(0..u64::MAX)).len() == LARGE
}

impl Bench {
    /// Holds all large bodies until what comes is not stored for that.
    fn held_full(&self, layout: Layout) -> Vec<Entry> {
        self.fill(layout);
        let all = (0..LARGES).filter_map(|it| self.zone.find(&key(it)));
        let held: Vec<_> = all.collect();
        let refused = (0..NEWS).find_map(|new| self.store(10_000 + new, NEW).err());
        assert_eq!(refused, Some(NotStored::Full));
        self.zone.sweep();
        held
    }

    /// Number of the new bodies that are stored, of 64.
    fn stored_after(&self, passed: Duration, first: u64) -> u64 {
        self.clock.advance(passed);
        let is_stored = |new: &u64| {
            self.zone.sweep();
            self.zone.flush();
            self.store(first + new, NEW).is_ok()
        };
        (0..64).filter(is_stored).count() as u64
    }
}

#[test]
fn readers_that_stall_do_not_stop_a_zone_for_longer_than_a_minute() {
    let bench = Bench::new();
    let held = bench.held_full(Layout::AtOnce);
    let begun: Vec<_> = held.iter().map(files).collect();
    assert_eq!(bench.stored_after(Duration::from_secs(55), 20_000), 0);
    let stored = bench.stored_after(Duration::from_secs(10), 30_000);
    // What a sweep finds, the next body has room for.
    assert!(stored >= 60, "{stored}");
    let mut cut = 0;
    for (number, entry) in held.iter().enumerate() {
        let bytes = read(entry.regions(0..u64::MAX));
        assert!(
            body(number as u64, LARGE).starts_with(&bytes),
            "{number} is another one"
        );
        cut += usize::from(bytes.len() < LARGE);
    }
    assert!(cut > 0);
    // Who has begun already gets an error, and no other bytes.
    let ends = |file: &HeldFile| file.read_exact_at(&mut [0; 512], 4096).is_err();
    assert!(begun.iter().flatten().any(ends));
    let usage = bench.zone.usage();
    assert_eq!((usage.read_errors, usage.corrupt), (0, 0));
    assert!(bytes_of(bench.home.path(), "") <= LIMIT);
}

/// Bytes a second that each reader takes, and true if its body may break off.
#[test]
fn readers_that_take_some_keep_what_they_read() {
    for (rate, may_be_cut) in [(6_000, false), (1_000, true)] {
        let bench = Bench::new();
        let held = bench.held_full(Layout::AtOnce);
        let begun: Vec<_> = held.iter().map(files).collect();
        for step in 0..8 {
            for file in begun.iter().flatten() {
                // Each holds the file twice: as a body and as regions of it.
                file.note_taken(2 * rate * 30);
            }
            bench.stored_after(Duration::from_secs(30), 20_000 + step * 100);
        }
        assert_eq!(held.iter().all(is_whole), !may_be_cut, "{rate}");
    }
}

/// The slowest part of what waits for readers that stall goes first, and no more than one body
/// needs.
#[test]
fn slowest_readers_are_cut_first() {
    let bench = Bench::new();
    let entries = bench.held_full(Layout::InTurn);
    // The oldest body, whose segments have left first.
    for (at, file) in files(&entries[0]).iter().enumerate() {
        // Too little, and less from one to the next.
        file.note_taken((2_000 - 300 * at as u64) * 65);
    }
    bench.clock.advance(Duration::from_secs(65));
    bench.zone.sweep();
    let left = read(entries[0].regions(0..u64::MAX)).len();
    assert!((LARGE / 2..LARGE).contains(&left), "{left}");
    assert!(entries[1..].iter().all(is_whole));
}

/// A limit that is lowered takes what it must and no more, though what is read stays for a while.
#[test]
fn lowered_limit_does_not_empty_a_zone_that_is_read() {
    let bench = Bench::new();
    bench.fill(Layout::AtOnce);
    let held: Vec<_> = (0..3).filter_map(|it| bench.zone.find(&key(it))).collect();
    let conf = ZoneConf {
        max_size: Some(LIMIT / 2),
        segment_size: Some(SEGMENT),
        inactive: Duration::from_secs(1_000_000),
        ..ZoneConf::new("stalled", bench.home.path())
    };
    bench.zone.change(conf);
    for _ in 0..10 {
        bench.zone.sweep();
    }
    let left = bytes_of(bench.home.path(), "segment-");
    assert!(left >= LIMIT / 2 - UNDER_WAY * SEGMENT, "{left}");
    assert!(left <= LIMIT / 2, "{left}");
    drop(held);
    bench.zone.sweep();
    assert!(bytes_of(bench.home.path(), "") <= LIMIT / 2);
}

/// Bodies come, are read for a while, and are let go, in any order.
fn run(seed: u64) {
    let bench = Bench::new();
    let mut random = Random(seed);
    let mut held: Vec<(u64, Entry)> = Vec::new();
    let most = 1 + random.below(40);
    let mut newest = 0;
    for _ in 0..200 {
        match random.below(10) {
            0..4 => {
                let len = PART >> 2 << random.below(7);
                newest += u64::from(bench.store(newest, len).is_ok());
                bench.clock.advance(Duration::from_secs(20));
            }
            4..7 if (held.len() as u64) < most => {
                let number = random.below(newest);
                let found = bench.zone.find(&key(number));
                held.extend(found.map(|entry| (number, entry)));
            }
            7 if !held.is_empty() => {
                let one = random.below(held.len() as u64) as usize;
                let (number, entry) = held.swap_remove(one);
                // It may be cut by now, but is never another one.
                let bytes = read(entry.regions(0..u64::MAX));
                assert!(
                    body(number, entry.len() as usize).starts_with(&bytes),
                    "{number}"
                );
            }
            _ => drop(bench.zone.sweep()),
        }
        bench.zone.flush();
        bench.check();
    }
}

impl Bench {
    fn check(&self) {
        let dir = self.home.path();
        let waiting = bytes_of(dir, "retired-");
        assert!(waiting <= LIMIT / HELD_SHARE, "{waiting} bytes wait");
        assert!(bytes_of(dir, "") <= LIMIT);
        // What left did so for what came: without what waits the zone is as full as it was.
        let usage = self.zone.usage();
        if usage.evicted > 0 {
            let left = bytes_of(dir, "segment-") + waiting;
            assert!(left >= LIMIT - UNDER_WAY * SEGMENT, "{left} bytes left");
        }
    }
}

#[test]
fn zone_stays_full_whoever_reads() {
    run_each(&seeds(0..4), run);
}
