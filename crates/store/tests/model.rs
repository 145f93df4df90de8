//! Random operations on a zone, checked against a map.
//!
//! The seed of each run is printed when it fails; `SEED=n` replays it alone, `SEEDS=n` runs more.
//!
//! The model knows for each key which versions may be found: the last one that was finished; after
//! a crash with writes under way also those before it, back to the last flush or removal; and none
//! at all where something was evicted. What is found must be one of them, byte for byte.

use std::collections::HashMap;
use std::ops::Range;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use millpond_store::{
    Clock, Entry, Event, Key, ManualClock, Platform, Region, SimIo, View, Writer, Zone, ZoneConf,
};

const KEYS: u64 = 24;
const OPERATIONS: usize = 400;
const SEEDS: Range<u64> = 0..24;

/// A small generator; the sequence is all that matters.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit.max(1)
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize]
    }
}

/// What an entry must look like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Version {
    number: u64,
    head: u64,
    len: u64,
}

impl Version {
    fn head(&self) -> Bytes {
        let len = 10 + self.head % 700;
        let head = format!("{} {} {}", self.number, self.head, self.len);
        Bytes::from(format!("{head:>width$}", width = len as usize))
    }

    fn body(&self, range: Range<u64>) -> Vec<u8> {
        let mut bytes = Vec::with_capacity((range.end - range.start) as usize + 16);
        let first = range.start / 8;
        for word in first..range.end.div_ceil(8) {
            let mixed = (self.number << 32 | word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            bytes.extend_from_slice(&(mixed ^ mixed >> 31).to_le_bytes());
        }
        bytes.drain(..(range.start - first * 8) as usize);
        bytes.truncate((range.end - range.start) as usize);
        bytes
    }
}

struct Open {
    key: u64,
    version: Version,
    writer: Writer,
    written: u64,
}

struct Run {
    random: Random,
    clock: Arc<ManualClock>,
    conf: ZoneConf,
    home: PathBuf,
    zone: Arc<Zone>,
    /// Versions that may be found, oldest first.
    may_be: HashMap<u64, Vec<Version>>,
    open: Vec<Open>,
    held: Vec<(Entry, Version)>,
    views: Vec<(View, Version)>,
    versions: u64,
    moves: u64,
    max_body: u64,
}

fn key(number: u64) -> Key {
    Key::of(&number.to_le_bytes())
}

fn open(conf: &ZoneConf, clock: &Arc<ManualClock>) -> Arc<Zone> {
    let platform = Platform {
        io: Arc::new(SimIo::new()),
        events: Arc::new(|event| match event {
            Event::Recovered { .. } => {}
            // A copy that was taken while the disk thread wrote may hold a torn body.
            Event::Corrupt { .. } => {}
            other => {
                eprintln!("{other}");
                std::process::abort()
            }
        }),
    };
    Zone::open_on(conf.clone(), clock.clone(), platform).expect("open")
}

fn read(regions: impl IntoIterator<Item = Region>) -> Vec<u8> {
    let mut bytes = Vec::new();
    for region in regions {
        match region {
            Region::Memory(memory) => bytes.extend_from_slice(&memory),
            Region::File { file, offset, len } => {
                let start = bytes.len();
                bytes.resize(start + len as usize, 0);
                file.read_exact_at(&mut bytes[start..], offset)
                    .expect("read");
            }
        }
    }
    bytes
}

impl Run {
    fn new(seed: u64, home: &Path) -> Self {
        let mut random = Random(seed);
        let max_size = random.pick(&[14 << 10, 40 << 10, 100 << 10, 300 << 10, 1 << 20, 4 << 20]);
        let conf = ZoneConf {
            max_size: Some(max_size),
            memory: random.pick(&[0, 20_000, 1 << 20]),
            small: random.pick(&[0, 500, 8 << 10]),
            segment_size: random.pick(&[None, None, Some(8 << 10), Some(128 << 10)]),
            inactive: Duration::from_secs(100),
            flush: Duration::ZERO,
            queue: random.pick(&[64 << 10, 32 << 20]),
            ..ZoneConf::new("model", home.join("0"))
        };
        let clock = Arc::new(ManualClock::new(1_700_000_000_000));
        Self {
            zone: open(&conf, &clock),
            max_body: random.pick(&[2_000, max_size / 20, max_size / 3]),
            random,
            clock,
            conf,
            home: home.to_path_buf(),
            may_be: HashMap::new(),
            open: Vec::new(),
            held: Vec::new(),
            views: Vec::new(),
            versions: 0,
            moves: 0,
        }
    }

    fn step(&mut self) {
        match self.random.below(100) {
            0..25 => self.store_whole(),
            25..35 => self.begin(),
            35..55 => self.append(),
            55..62 => self.finish(),
            62..65 => self.abandon(),
            65..72 => self.remove(),
            72..78 => self.replace_head(),
            78..90 => self.find(),
            90..93 => self.sweep(),
            93..95 => self.flush(),
            95..97 => self.reopen(),
            _ => self.crash(),
        }
        self.check_size();
    }

    fn version(&mut self) -> Version {
        self.versions += 1;
        Version {
            number: self.versions,
            head: self.random.below(1 << 20),
            len: self.random.below(self.max_body),
        }
    }

    fn begin(&mut self) {
        if self.open.len() >= 4 {
            return;
        }
        let key_number = self.random.below(KEYS);
        let version = self.version();
        let expected = self.random.pick(&[None, Some(version.len)]);
        if let Ok(writer) = self.zone.begin(key(key_number), expected) {
            if self.random.below(3) == 0 {
                self.views.push((writer.view(), version));
            }
            self.open.push(Open {
                key: key_number,
                version,
                writer,
                written: 0,
            });
        }
    }

    fn append(&mut self) {
        if self.open.is_empty() {
            return;
        }
        let index = self.random.below(self.open.len() as u64) as usize;
        let size = self.random.pick(&[1, 700, 5_000, 70_000]);
        let open = &mut self.open[index];
        let end = (open.written + size).min(open.version.len);
        let bytes = Bytes::from(open.version.body(open.written..end));
        open.written = end;
        if open.writer.append(bytes).is_err() {
            self.open.swap_remove(index);
        }
    }

    fn finish(&mut self) {
        if self.open.is_empty() {
            return;
        }
        let index = self.random.below(self.open.len() as u64) as usize;
        let mut open = self.open.swap_remove(index);
        let rest = open.version.body(open.written..open.version.len);
        open.writer.set_head(open.version.head());
        if open.writer.append(Bytes::from(rest)).is_err() {
            return;
        }
        if let Ok(entry) = open.writer.finish() {
            self.check_entry(&entry, open.version);
            self.may_be.entry(open.key).or_default().push(open.version);
            self.keep(entry, open.version);
        }
    }

    fn store_whole(&mut self) {
        let before = self.open.len();
        self.begin();
        if self.open.len() > before {
            self.finish();
        }
    }

    fn abandon(&mut self) {
        self.open.pop();
    }

    fn remove(&mut self) {
        let number = self.random.below(KEYS);
        self.zone.remove(&key(number));
        assert!(self.zone.find(&key(number)).is_none());
        self.may_be.remove(&number);
    }

    fn replace_head(&mut self) {
        let number = self.random.below(KEYS);
        let Some((entry, version)) = self.find_key(number) else {
            return;
        };
        let fresh = Version {
            head: self.random.below(1 << 20),
            ..version
        };
        if let Ok(entry) = self.zone.replace_head(&entry, fresh.head()) {
            self.check_entry(&entry, fresh);
            self.may_be.entry(number).or_default().push(fresh);
        }
    }

    fn find(&mut self) {
        let number = self.random.below(KEYS);
        if let Some((entry, version)) = self.find_key(number) {
            self.keep(entry, version);
        }
        for (entry, version) in &self.held {
            self.check_entry(entry, *version);
        }
        for (view, version) in &self.views {
            let seen = read(view.regions(0..u64::MAX));
            assert_eq!(seen, version.body(0..view.len()));
        }
    }

    /// Looks a key up; what is found must be the newest version that may be.
    fn find_key(&mut self, number: u64) -> Option<(Entry, Version)> {
        let entry = self.zone.find(&key(number))?;
        let versions = self.may_be.get(&number).map_or(&[][..], Vec::as_slice);
        let newest = *versions
            .last()
            .expect("an entry that was never finished, or was removed");
        self.check_entry(&entry, newest);
        Some((entry, newest))
    }

    fn check_entry(&self, entry: &Entry, version: Version) {
        assert_eq!(entry.head(), &version.head());
        assert_eq!(entry.len(), version.len);
        let start = version.len / 3;
        for range in [0..version.len, start..version.len - start / 2] {
            assert!(
                read(entry.regions(range.clone())) == version.body(range),
                "{version:?}"
            );
        }
    }

    fn keep(&mut self, entry: Entry, version: Version) {
        if self.random.below(4) == 0 {
            self.held.push((entry, version));
        }
        if self.held.len() > 3 {
            self.held.remove(0);
        }
        if self.views.len() > 3 {
            self.views.remove(0);
        }
    }

    fn sweep(&mut self) {
        self.clock
            .advance(Duration::from_secs(self.random.below(60)));
        self.zone.sweep();
    }

    fn flush(&mut self) {
        self.zone.flush();
        for versions in self.may_be.values_mut() {
            versions.drain(..versions.len() - 1);
        }
        let (entries, present) = (self.zone.usage().entries, self.present().len() as u64);
        // Entries that are inactive and not swept yet count, and are not found.
        assert!(present <= entries, "{present} found, {entries} counted");
        self.zone.sweep();
        // The sweep may have made the disk thread evict; what it does must not overlap a copy.
        self.zone.flush();
        assert_eq!(self.zone.usage().entries, self.present().len() as u64);
    }

    fn present(&self) -> Vec<u64> {
        (0..KEYS)
            .filter(|number| self.zone.peek(&key(*number)))
            .collect()
    }

    fn reopen(&mut self) {
        self.open.clear();
        self.flush();
        let before = self.present();
        self.zone.close();
        self.zone = open(&self.conf, &self.clock);
        assert_eq!(self.present(), before, "after reopening");
        self.settle();
    }

    /// Goes on with a copy of the directory as it is, without closing the zone.
    fn crash(&mut self) {
        let is_quiet = self.random.below(2) == 0;
        if is_quiet {
            self.flush();
        }
        let before = self.present();
        let used: Vec<_> = before
            .iter()
            .map(|n| self.zone.last_used(&key(*n)))
            .collect();
        self.moves += 1;
        let copy = self.home.join(self.moves.to_string());
        copy_dir(&self.conf.path, &copy);
        self.open.clear();
        self.zone.close();
        let old = std::mem::replace(&mut self.conf.path, copy);
        self.zone = open(&self.conf, &self.clock);
        if is_quiet {
            // A use of the last minute may be lost, and with it who lived of it.
            let now = u32::try_from(self.clock.now() / 1000).expect("seconds");
            let is_late = |used: &Option<u32>| used.is_some_and(|used| used + 60 >= now);
            let late = before.iter().zip(&used).filter(|(_, used)| is_late(used));
            let late: Vec<u64> = late.map(|(number, _)| *number).collect();
            let after = self.present();
            assert!(after.iter().all(|number| before.contains(number)));
            let is_kept = |number: &&u64| !after.contains(number) && !late.contains(number);
            assert_eq!(before.iter().find(is_kept), None, "after a crash");
            assert_eq!(self.zone.usage().corrupt, 0);
        }
        std::fs::remove_dir_all(old).expect("removed");
        self.settle();
    }

    /// Learns which of the versions that may be there are.
    fn settle(&mut self) {
        for number in 0..KEYS {
            let found = self.zone.find(&key(number));
            let versions = self.may_be.remove(&number).unwrap_or_default();
            let Some(entry) = found else {
                continue;
            };
            let is_it = |version: &&Version| version.head() == *entry.head();
            let version = *versions.iter().rev().find(is_it).expect("a phantom");
            self.check_entry(&entry, version);
            self.may_be.insert(number, vec![version]);
        }
        // Entries that are inactive and not swept yet count, and are not found.
        self.zone.sweep();
        self.zone.flush();
        let entries = self.zone.usage().entries;
        assert_eq!(
            entries,
            self.present().len() as u64,
            "entries that nobody finished"
        );
    }

    fn check_size(&mut self) {
        let max_size = self.conf.max_size.expect("limit");
        assert!(self.zone.usage().bytes <= max_size);
        // Listing takes a moment, in which the disk thread may unlink one file and make another.
        if disk_size(&self.conf.path) > max_size {
            self.zone.flush();
        }
        let size = disk_size(&self.conf.path);
        assert!(size <= max_size, "{size} bytes of at most {max_size}");
    }
}

/// What `du` would say, or the sum of the lengths if that is more.
fn disk_size(dir: &Path) -> u64 {
    let mut lengths = 0;
    let mut blocks = std::fs::metadata(dir).expect("directory").blocks() * 512;
    for entry in std::fs::read_dir(dir).expect("list") {
        if let Ok(meta) = entry.expect("entry").metadata() {
            lengths += meta.len();
            blocks += meta.blocks() * 512;
        }
    }
    lengths.max(blocks)
}

fn copy_dir(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).expect("directory");
    for entry in std::fs::read_dir(from).expect("list") {
        let entry = entry.expect("entry");
        // A segment that is evicted while it is copied is missing, as after a crash.
        let _ = std::fs::copy(entry.path(), to.join(entry.file_name()));
    }
}

/// Any sequence of operations leaves a zone that agrees with the model.
#[test]
fn zone_agrees_with_a_map() {
    let number = |name| std::env::var(name).ok()?.parse::<u64>().ok();
    let more = number("SEEDS").map_or(SEEDS, |count| 0..count);
    let seeds = number("SEED").map_or(more, |seed| seed..seed + 1);
    for seed in seeds {
        let home = tempfile::tempdir().expect("directory");
        let outcome = std::panic::catch_unwind(|| {
            let mut run = Run::new(seed, home.path());
            for _ in 0..OPERATIONS {
                run.step();
            }
            run.reopen();
        });
        assert!(outcome.is_ok(), "SEED={seed} fails");
    }
}
