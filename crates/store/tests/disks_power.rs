//! Random operations on a zone of three disks of which some lose their power, against a map.
//!
//! The process dies with each crash; each disk then keeps what was written to it, or loses what was
//! not synced, for itself. The seed is printed when a run fails; `SEED=n` replays it, `SEEDS=n`
//! runs more, `FROM=n` from that one on.
//!
//! A key may be missing at any time. What is found must be the last version or, after a crash, one
//! that was the last since everything was synced; what had been removed before that is not found.
//! Records of the journal that were acknowledged are there, whichever disks lost their power.

#[path = "support/home.rs"]
mod home;
#[path = "support/random.rs"]
mod random;
#[path = "support/read.rs"]
mod read;
#[path = "support/seeds.rs"]
mod seeds;

use std::collections::HashMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use millpond_store::{DiskConf, JournalError, Key, ManualClock, Platform, PowerIo, Zone, ZoneConf};

use home::home;
use random::Random;
use read::read;
use seeds::{run_each, seeds};

const KEYS: u64 = 40;
const OPERATIONS: usize = 150;
const SEEDS: Range<u64> = 0..12;
const NAMES: [&str; 3] = ["a", "b", "c"];

fn key(number: u64) -> Key {
    Key::of(&number.to_le_bytes())
}

fn body(number: u64, version: u64) -> Vec<u8> {
    let len = version % 5 * 6000 + 20;
    let word = (number << 32 | version).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let words = (0..len.div_ceil(8)).flat_map(|at| (word ^ at).to_le_bytes());
    words.take(len as usize).collect()
}

/// Versions that may be found under a key; none for nothing, which always may be.
#[derive(Clone, Debug, Default)]
struct Allowed {
    now: Vec<Option<u64>>,
    /// After a disk has lost what was not synced.
    after_loss: Vec<Option<u64>>,
}

impl Allowed {
    fn change(&mut self, to: Option<u64>) {
        self.now = vec![to];
        self.after_loss.push(to);
    }
}

struct Run {
    random: Random,
    home: PathBuf,
    conf: ZoneConf,
    clock: Arc<ManualClock>,
    disks: Vec<Arc<PowerIo>>,
    zone: Arc<Zone>,
    allowed: HashMap<u64, Allowed>,
    noted: Vec<Bytes>,
    versions: u64,
    /// Entries that were found after a crash.
    hits: u64,
    has_crashed: bool,
}

fn conf(home: &Path, random: &mut Random) -> ZoneConf {
    let disk = |name: &&str| DiskConf {
        path: home.join(name),
        weight: 1,
    };
    ZoneConf {
        disks: NAMES[1..].iter().map(disk).collect(),
        max_size: Some([600 << 10, 8 << 20][random.below(2) as usize]),
        memory: [0, 100_000][random.below(2) as usize],
        small: [0, 8 << 10][random.below(2) as usize],
        inactive: Duration::from_secs(1_000_000),
        // Nothing is synced but what operations ask for, and what must be before an eviction.
        flush: Duration::from_secs(3600),
        ..ZoneConf::new("power", home.join(NAMES[0]))
    }
}

fn graves(home: &Path, name: &str) -> PathBuf {
    home.join(format!("graves-{name}"))
}

fn power(home: &Path, random: &mut Random) -> Vec<Arc<PowerIo>> {
    let one = |name: &&str| Arc::new(PowerIo::new(random.next(), graves(home, name)));
    NAMES.iter().map(one).collect()
}

fn open(conf: &ZoneConf, home: &Path, disks: &[Arc<PowerIo>]) -> (Arc<Zone>, Arc<ManualClock>) {
    let clock = Arc::new(ManualClock::new(1_700_000_000_000));
    let paths = NAMES.iter().map(|name| home.join(name));
    let all = paths.zip(disks.iter().map(Arc::clone)).collect();
    let io = PowerIo::new(0, graves(home, "all")).with_disks(all);
    let platform = Platform {
        io: Arc::new(io),
        ..Platform::default()
    };
    let zone = Zone::open_on(conf.clone(), clock.clone(), platform).expect("opens");
    assert!(zone.loaded());
    (zone, clock)
}

impl Run {
    fn new(seed: u64, home: &Path) -> Self {
        let mut random = Random(seed);
        let conf = conf(home, &mut random);
        let disks = power(home, &mut random);
        let (zone, clock) = open(&conf, home, &disks);
        Self {
            random,
            home: home.to_path_buf(),
            conf,
            clock,
            disks,
            zone,
            allowed: HashMap::new(),
            noted: Vec::new(),
            versions: 0,
            hits: 0,
            has_crashed: false,
        }
    }

    fn step(&mut self) {
        match self.random.below(100) {
            0..45 => self.store(),
            45..57 => self.remove(),
            57..80 => {
                let number = self.random.below(KEYS);
                self.find(number);
            }
            80..86 => self.sync(),
            86..89 => self.note(),
            89..92 => {
                self.clock.advance(Duration::from_secs(61));
                self.zone.sweep();
            }
            92..94 => self.zone.flush(),
            94..95 => self.reopen(),
            _ => self.crash(),
        }
    }

    fn store(&mut self) {
        self.versions += 1;
        let (number, version) = (self.random.below(KEYS), self.versions);
        let Ok(mut writer) = self.zone.begin(key(number), None) else {
            return;
        };
        writer.set_head(Bytes::from(version.to_string()));
        let appended = writer.append(Bytes::from(body(number, version)));
        if appended.and_then(|()| writer.finish()).is_ok() {
            self.allowed
                .entry(number)
                .or_default()
                .change(Some(version));
        }
    }

    fn remove(&mut self) {
        let number = self.random.below(KEYS);
        self.zone.remove(&key(number));
        self.allowed.entry(number).or_default().change(None);
    }

    fn find(&mut self, number: u64) {
        let allowed = self.allowed.entry(number).or_default();
        let Some(entry) = self.zone.find(&key(number)) else {
            allowed.now = vec![None];
            return;
        };
        let head = std::str::from_utf8(entry.head()).expect("text");
        let version: u64 = head.parse().expect("a version");
        let is_one = allowed.now.contains(&Some(version));
        assert!(is_one, "key {number}: {version} of {allowed:?}");
        allowed.now = vec![Some(version)];
        let (found, wanted) = (read(entry.regions(0..u64::MAX)), body(number, version));
        // A slice that did not reach the disk ends a body, before its first byte.
        let is_cut = self.zone.usage().corrupt > 0 && wanted.starts_with(&found);
        assert!(found == wanted || is_cut, "key {number}: other bytes");
        self.hits += u64::from(self.has_crashed);
    }

    fn sync(&mut self) {
        self.zone.flush();
        if self.zone.sync() {
            let all = self.allowed.values_mut();
            all.for_each(|allowed| allowed.after_loss.clone_from(&allowed.now));
        }
    }

    fn note(&mut self) {
        let record = Bytes::from(format!("{:>20}", self.random.next()));
        match self.zone.note(&record) {
            Ok(()) => self.noted.push(record),
            Err(JournalError::NoRoom) => {
                let all = [&self.noted[..], &[record]].concat();
                self.zone.rewrite_journal(&all).expect("rewritten");
                self.noted = all;
            }
            Err(error) => panic!("{error}"),
        }
    }

    fn check_journal(&self) {
        let journal = self.zone.take_journal();
        let is_there = |record: &Bytes| journal.records.contains(record);
        assert!(self.noted.iter().all(is_there), "a record is lost");
        assert!(!journal.is_damaged, "the journal is damaged");
    }

    /// Closes the zone in order, and opens it again.
    fn reopen(&mut self) {
        self.zone.flush();
        self.zone.close();
        (self.zone, self.clock) = open(&self.conf, &self.home, &self.disks);
        self.check_journal();
    }

    /// The process dies, and some of the disks lose their power.
    fn crash(&mut self) {
        self.disks.iter().for_each(|disk| disk.cut());
        self.zone.close();
        let fresh = power(&self.home, &mut self.random);
        for (old, new) in self.disks.iter().zip(&fresh) {
            match self.random.below(2) {
                0 => old.lose().expect("what was not synced is lost"),
                _ => new.inherit(old),
            }
        }
        self.disks = fresh;
        (self.zone, self.clock) = open(&self.conf, &self.home, &self.disks);
        let all = self.allowed.values_mut();
        all.for_each(|allowed| allowed.now.clone_from(&allowed.after_loss));
        self.has_crashed = true;
        self.check_journal();
        if self.random.below(2) == 0 {
            (0..KEYS).for_each(|number| self.find(number));
        }
    }
}

fn run(seed: u64) -> u64 {
    let home = home();
    let mut run = Run::new(seed, home.path());
    for _ in 0..OPERATIONS {
        run.step();
    }
    run.crash();
    (0..KEYS).for_each(|number| run.find(number));
    run.zone.close();
    run.hits
}

/// Whatever each disk keeps, nothing torn, old or removed is found.
#[test]
fn disks_that_lose_their_power_one_by_one_bring_back_nothing_that_was_gone_for_good() {
    let seeds = seeds(SEEDS);
    let hits: u64 = run_each(&seeds, run).into_iter().sum();
    println!("{} seeds: {hits} hits after crashes", seeds.len());
    assert!(hits > 0);
}
