//! Random operations on a zone, with crashes, checked against a map.
//!
//! The seed of each run is printed when it fails; `SEED=n` replays it alone, `SEEDS=n` runs so
//! many, `FROM=n` from that one on. (The disk thread runs beside the test, so one seed is one
//! sequence of operations, and nearly one run.)
//!
//! The model knows for each key what may be found: the last version that was finished, or nothing,
//! because anything may be evicted. A crash widens that:
//!
//! - after a **kill** also what was there since the last flush, removed or not;
//! - after a **power failure** also what was there since the last sync, removed or not;
//! - what was there when it happened, and had not been changed since the last flush or sync, is
//!   there afterwards;
//! - records of the journal that were acknowledged are there, and it is not damaged;
//! - after **errors** what was there since the last flush, as after a kill, as long as the disk
//!   takes what says that other things are lost.
//!
//! What is found must be one of those versions, byte for byte. What a killed process had given to
//! `sendfile` stays as it was, whatever its successor does.
//!
//! Mutants that it was tried with, and the first seed that found them: names of new segments are
//! not synced (8); segments of a dead process count as synced (9); slices of another process count
//! as compared (34); a record that could not be written leaves its row in the summary (34); the
//! newest segment goes on after an unclean stop (44); copies that a dead process wrote count as
//! synced (615, one time in ten); files of segments that have left are not kept open when the
//! directory is lent (27, one time in ten); a start reads from the page cache what a failed sync
//! has lost (3279); a segment that has left and whose file stays counts (3338). Not found in 300
//! seeds: what was written again is not synced before its old segment goes; zones of this size
//! seldom write again.

#[path = "support/home.rs"]
mod home;
#[path = "support/random.rs"]
mod random;
#[path = "support/read.rs"]
mod read;
#[path = "support/seeds.rs"]
mod seeds;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::error::Error;
use std::ops::{ControlFlow, Range};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use bytes::Bytes;
use millpond_store::{
    Class, Clock, Entry, Event, Held, JournalError, Key, Looked, ManualClock, Platform, PowerIo,
    Region, Role, SiteBook, View, Writer, Zone, ZoneConf,
};

use home::home;
use random::Random;
use read::read;
use seeds::{run_each, seeds};

const KEYS: u64 = 24;
const OPERATIONS: usize = 200;
const SEEDS: Range<u64> = 0..200;
/// Seeds that found something once.
const FOUND: [u64; 12] = [
    215, 615, 1188, 1568, 1573, 1656, 1778, 2137, 3279, 3338, 20090, 41707,
];
/// No other thread is at something for so long.
const PATIENCE: Duration = Duration::from_secs(30);

impl Random {
    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize]
    }
}

/// Version that an entry must have.
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

/// Versions belong to the site that the last digit of their number names; to none if it is a
/// nought. Some are slices.
fn classify(head: &[u8]) -> Class<'_> {
    let text = head.trim_ascii_start();
    let end = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let site = text.get(end.saturating_sub(1)..end).unwrap_or_default();
    Class {
        site: if site == b"0" { b"" } else { site },
        role: match site {
            b"3" | b"7" => Role::Slice,
            _ => Role::Entry,
        },
    }
}

/// Counts of what sites hold, by name.
type Sites = BTreeMap<String, Held>;

struct Open {
    key: u64,
    version: Version,
    writer: Writer,
    written: u64,
}

/// Versions that may be found under a key; `None` for nothing.
#[derive(Clone, Debug)]
struct Allowed {
    /// Now: the last one counts, the others may be what a crash left.
    now: Vec<Option<Version>>,
    /// After a kill.
    after_kill: Vec<Option<Version>>,
    /// After a power failure.
    after_loss: Vec<Option<Version>>,
}

impl Default for Allowed {
    fn default() -> Self {
        let nothing = vec![None];
        Self {
            now: nothing.clone(),
            after_kill: nothing.clone(),
            after_loss: nothing,
        }
    }
}

impl Allowed {
    fn change(&mut self, to: Option<Version>) {
        self.now = vec![to];
        self.after_kill.push(to);
        self.after_loss.push(to);
    }

    fn flush(&mut self) {
        self.after_kill.clone_from(&self.now);
    }

    fn sync(&mut self) {
        self.flush();
        self.after_loss.clone_from(&self.now);
    }

    /// Version that must be found after a crash, if anything was there before it.
    fn certain(&self, crash: Crash) -> Option<Version> {
        let [Some(version)] = self.now[..] else {
            return None;
        };
        let after = match crash {
            Crash::Kill => &self.after_kill,
            Crash::Loss => &self.after_loss,
        };
        (after[..] == [Some(version)]).then_some(version)
    }

    fn crash(&mut self, crash: Crash) {
        match crash {
            Crash::Kill => self.now.clone_from(&self.after_kill),
            Crash::Loss => self.now.clone_from(&self.after_loss),
        }
        self.after_kill.clone_from(&self.now);
        if crash == Crash::Loss {
            self.after_loss.clone_from(&self.now);
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Crash {
    Kill,
    Loss,
}

struct Run {
    random: Random,
    clock: Arc<ManualClock>,
    conf: ZoneConf,
    home: PathBuf,
    io: Arc<PowerIo>,
    zone: Arc<Zone>,
    strange: Strange,
    allowed: HashMap<u64, Allowed>,
    open: Vec<Open>,
    held: Vec<(Entry, Version)>,
    views: Vec<(View, Version)>,
    /// Regions that dead processes have given to their sockets, with their bytes.
    sockets: Vec<(Region, Vec<u8>)>,
    /// Records of the journal that were acknowledged.
    noted: Vec<Bytes>,
    /// Records that may be there or not.
    half_noted: Vec<Bytes>,
    /// Keys whose removal the disk has refused.
    half_removed: HashSet<u64>,
    /// Errors that there were when the zone was opened.
    injected: u64,
    /// Errors that there were when it was last looked what may have left no trace.
    seen_errors: u64,
    /// True if a slice of what is held may have been found corrupt before the zone was opened.
    was_corrupt: bool,
    /// Evictions without waiting for a sync, when everything was synced last.
    hasty: u64,
    versions: u64,
    max_body: u64,
}

fn key(number: u64) -> Key {
    Key::of(&number.to_le_bytes())
}

impl Run {
    fn new(seed: u64, home: &Path) -> Self {
        let mut random = Random(seed);
        let max_size = random.pick(&[14 << 10, 40 << 10, 100 << 10, 300 << 10, 1 << 20]);
        let conf = ZoneConf {
            max_size: Some(max_size),
            memory: random.pick(&[0, 20_000, 1 << 20]),
            small: random.pick(&[0, 500, 8 << 10]),
            segment_size: random.pick(&[None, None, Some(8 << 10), Some(128 << 10)]),
            inactive: Duration::from_secs(random.pick(&[100, 1 << 30])),
            // Nothing is synced but what operations ask for, and what must be before an eviction.
            flush: Duration::from_secs(3600),
            queue: random.pick(&[64 << 10, 32 << 20]),
            ..ZoneConf::new("model", home.join("zone"))
        };
        let clock = Arc::new(ManualClock::new(1_700_000_000_000));
        let io = Arc::new(PowerIo::new(random.next(), home.join("graves")));
        let strange = Strange::default();
        Self {
            zone: open(&conf, (&clock, &io), &strange),
            strange,
            max_body: random.pick(&[2_000, max_size / 20, max_size / 3]),
            random,
            clock,
            conf,
            home: home.to_path_buf(),
            io,
            allowed: HashMap::new(),
            open: Vec::new(),
            held: Vec::new(),
            views: Vec::new(),
            sockets: Vec::new(),
            noted: Vec::new(),
            half_noted: Vec::new(),
            half_removed: HashSet::new(),
            injected: 0,
            seen_errors: 0,
            was_corrupt: false,
            hasty: 0,
            versions: 0,
        }
    }

    fn step(&mut self) {
        let dice = self.random.below(100);
        match dice {
            0..25 => self.store_whole(),
            25..34 => self.begin(),
            34..52 => self.append(),
            52..59 => self.finish(),
            59..62 => self.abandon(),
            62..68 => self.remove(),
            68..74 => self.replace_head(),
            74..86 => self.find(),
            86..88 => self.note(),
            88..91 => self.sweep(),
            91..93 => self.flush(),
            93..94 => self.sync(),
            94..95 => self.reopen(),
            95..96 => self.lend(),
            96..97 => self.trouble(),
            97..98 => self.verify(),
            98..99 => self.crash(Crash::Kill),
            _ => self.crash(Crash::Loss),
        }
        self.check_size();
        assert_eq!(*lock(&self.strange), [""; 0]);
        assert!(!self.strange.has_failed.load(Ordering::Acquire));
        if dice >= 59 {
            self.check_sites();
        }
    }

    fn opened(&self) -> Arc<Zone> {
        open(&self.conf, (&self.clock, &self.io), &self.strange)
    }

    fn allowed(&mut self, number: u64) -> &mut Allowed {
        self.allowed.entry(number).or_default()
    }

    /// True if there were no errors since the zone was opened: what was not written is known to the
    /// process only, until it closes the zone.
    fn is_untroubled(&self) -> bool {
        self.io.injected() == self.injected
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
            self.allowed(open.key).change(Some(open.version));
            self.half_removed.remove(&open.key);
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
        let was_there = self.zone.remove(&key(number));
        assert!(self.zone.find(&key(number)).is_none());
        let allowed = self.allowed(number);
        if was_there {
            allowed.change(None);
        } else {
            allowed.now = vec![None];
        }
        self.note_half_removed();
    }

    /// If there were errors, what is gone may have left no trace on the disk.
    fn note_half_removed(&mut self) {
        let injected = self.io.injected();
        if std::mem::replace(&mut self.seen_errors, injected) < injected {
            let present = self.present();
            let gone = (0..KEYS).filter(|number| !present.contains(number));
            self.half_removed.extend(gone);
        }
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
            self.allowed(number).change(Some(fresh));
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
            let regions = view.regions(0..u64::MAX);
            let is_lost = !regions.iter().all(is_given);
            let seen = read(regions.into_iter().take_while(is_given));
            let wanted = version.body(0..view.len());
            let is_cut = is_lost && wanted.starts_with(&seen);
            assert!(seen == wanted || is_cut, "{version:?}: other bytes");
        }
        // The pages that a socket has are its own, whatever a failed sync does to the file.
        if self.io.injected() > 0 {
            self.sockets.clear();
        }
        for (region, bytes) in &self.sockets {
            assert!(read([region.clone()]) == *bytes, "a socket sends others");
        }
    }

    /// Looks a key up; what is found must be a version that may be.
    fn find_key(&mut self, number: u64) -> Option<(Entry, Version)> {
        let entry = self.zone.find(&key(number));
        self.note_half_removed();
        let allowed = self.allowed(number);
        let Some(entry) = entry else {
            // Whatever a crash had left is gone; its end need not be on the disk yet.
            allowed.now = vec![None];
            return None;
        };
        let is_it = |version: &&Version| version.head() == *entry.head();
        let versions = allowed.now.iter().flatten();
        let version = *versions
            .rev()
            .find(is_it)
            .unwrap_or_else(|| panic!("{number}: a phantom, {:?}", entry.head()));
        allowed.now = vec![Some(version)];
        self.check_entry(&entry, version);
        Some((entry, version))
    }

    fn check_entry(&self, entry: &Entry, version: Version) {
        assert_eq!(entry.head(), &version.head());
        assert_eq!(entry.len(), version.len);
        let start = version.len / 3;
        for range in [0..version.len, start..version.len - start / 2] {
            let found = read(entry.regions(range.clone()));
            let wanted = version.body(range.clone());
            if found == wanted {
                continue;
            }
            // A slice that is corrupt, or was lost, ends a body, before its first byte.
            let is_lost = !entry.regions_to_load(range).all(|region| is_given(&region));
            let is_cut = self.was_corrupt || self.zone.usage().corrupt > 0 || is_lost;
            let is_cut = is_cut && wanted.starts_with(&found);
            let (some, all) = (found.len(), wanted.len());
            assert!(is_cut, "{version:?}: other bytes, {some} of {all}");
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

    fn note(&mut self) {
        let count = self.random.pick(&[1, 1, 2, 9]);
        let width = 20 + self.noted.len();
        let record = |_| Bytes::from(format!("{:>width$}", self.random.next()));
        let records: Vec<Bytes> = (0..count).map(record).collect();
        let noted = match self.zone.note_all(&records) {
            Err(JournalError::NoRoom) => {
                let keep = self.noted.len().saturating_sub(5);
                self.noted.drain(..keep);
                let all = [&self.noted[..], &records].concat();
                self.zone.rewrite_journal(&all)
            }
            noted => noted,
        };
        match noted {
            Ok(()) => self.noted.extend(records),
            Err(_) => self.half_noted.extend(records),
        }
    }

    fn check_journal(&mut self) {
        let journal = self.zone.take_journal();
        let mut records = journal.records;
        records.retain(|record| !self.half_noted.contains(record));
        // Of a file that was to be smaller the old one may be there.
        let is_end = records.ends_with(&self.noted);
        assert!(is_end, "{records:?} and not {:?}", self.noted);
        assert!(!journal.is_damaged, "the journal is damaged");
        self.noted = records;
    }

    fn sweep(&mut self) {
        self.clock
            .advance(Duration::from_secs(self.random.below(60)));
        self.zone.sweep();
        self.note_half_removed();
    }

    fn flush(&mut self) {
        self.zone.flush();
        let (entries, present) = (self.zone.usage().entries, self.present().len() as u64);
        // Entries that are inactive and not swept yet count, and are not found.
        assert!(present <= entries, "{present} found, {entries} counted");
        let mut counts = (0, 0);
        // A disk that has refused a file takes the tombstones of the next sweep; and the thread
        // that syncs may evict at any moment.
        eventually(|| {
            self.zone.sweep();
            // The sweep may have made the disk thread evict.
            self.zone.flush();
            counts = (self.zone.usage().entries, self.present().len() as u64);
            counts.0 == counts.1
        });
        assert_eq!(counts.0, counts.1);
        self.note_half_removed();
        if self.is_untroubled() {
            self.allowed.values_mut().for_each(Allowed::flush);
        }
    }

    fn sync(&mut self) {
        self.flush();
        if self.zone.sync() && self.is_untroubled() {
            self.allowed.values_mut().for_each(Allowed::sync);
            self.hasty = self.zone.usage().hasty;
        }
    }

    /// The disk answers with errors for a while.
    fn trouble(&mut self) {
        let start = self.random.below(10);
        let errno = self.random.pick(&[5, 28]);
        let len = self.random.pick(&[1, 1, 3, 20]);
        self.io.fail(start..start + len, errno);
    }

    fn verify(&mut self) {
        let corrupt = self.zone.usage().corrupt;
        let verified = self.zone.verify(&mut |_| true);
        self.note_half_removed();
        assert_eq!(self.zone.usage().corrupt, corrupt + verified.corrupt);
        assert_eq!(verified.unread, 0);
    }

    /// The entries of `before`, unless the syncer has evicted some of them since.
    fn unless_evicted<'a>(&self, before: &'a [u64], evicted: u64) -> &'a [u64] {
        if self.zone.usage().evicted == evicted {
            before
        } else {
            &[]
        }
    }

    /// After a clean stop what was there is there, and nothing else.
    fn check_all_present(&mut self, before: &[u64], surely: &[u64]) {
        let half_removed = std::mem::take(&mut self.half_removed);
        let returned: Vec<u64> = self.present();
        let returned = returned
            .into_iter()
            .filter(|number| !before.contains(number));
        let returned: Vec<u64> = returned
            .filter(|number| !half_removed.contains(number))
            .collect();
        let told = lock(&self.strange).clone();
        assert!(returned.is_empty(), "{returned:?} came back: {told:?}");
        for number in surely {
            assert!(self.zone.peek(&key(*number)), "{number} is lost: {told:?}");
        }
        for (number, allowed) in &mut self.allowed {
            if half_removed.contains(number) {
                allowed.crash(Crash::Kill);
            } else {
                allowed.sync();
            }
        }
    }

    fn present(&self) -> Vec<u64> {
        (0..KEYS)
            .filter(|number| self.zone.peek(&key(*number)))
            .collect()
    }

    /// Closes the zone in order, and opens it again.
    fn reopen(&mut self) {
        let injected = self.io.injected();
        self.open.clear();
        self.flush();
        let evicted = self.zone.usage().evicted;
        let before = self.present();
        self.was_corrupt |= self.zone.usage().corrupt > 0;
        self.zone.close();
        let surely = self.unless_evicted(&before, evicted);
        let is_untroubled = self.io.injected() == injected && !self.io.has_lied();
        let at_worst = self.strange.at_worst(&self.conf.path);
        self.zone = self.opened();
        if is_untroubled {
            self.check_all_present(&before, surely);
        } else {
            self.after_errors(at_worst);
        }
        (self.injected, self.hasty) = (self.io.injected(), 0);
        self.check_journal();
    }

    /// Lets the directory go, while fills run, and takes it back.
    fn lend(&mut self) {
        let injected = self.io.injected();
        self.flush();
        let evicted = self.zone.usage().evicted;
        let before = self.present();
        self.was_corrupt |= self.zone.usage().corrupt > 0;
        self.zone.lend();
        let surely = self.unless_evicted(&before, evicted);
        let is_untroubled = self.io.injected() == injected && !self.io.has_lied();
        let at_worst = self.strange.at_worst(&self.conf.path);
        self.append();
        while let Err(error) = self.zone.take_back() {
            let cause = error.source().map(ToString::to_string);
            assert!(self.io.injected() > injected, "{error}: {cause:?}");
        }
        if is_untroubled {
            self.check_all_present(&before, surely);
        } else {
            self.after_errors(at_worst);
        }
        self.check_journal();
    }

    /// The process dies, or the machine; then goes on with what is there.
    fn crash(&mut self, crash: Crash) {
        match self.random.below(4) {
            0 => self.flush(),
            1 => self.sync(),
            _ => {}
        }
        let evicted = self.zone.usage().evicted;
        let certain = self.certain(crash);
        let was_hasty = crash == Crash::Loss && self.zone.usage().hasty > self.hasty;
        let is_untroubled = self.is_untroubled() && !was_hasty && !self.io.has_lied();
        self.io.cut();
        self.open_sockets(crash);
        self.open.clear();
        self.zone.close();
        // The disk thread may still have made space for what was asked for before.
        let has_evicted = self.zone.usage().evicted > evicted;
        let is_untroubled = is_untroubled && !has_evicted;
        if crash == Crash::Loss {
            (self.held, self.views) = (Vec::new(), Vec::new());
            self.io.lose().expect("what was not synced is lost");
        }
        let fresh = Arc::new(PowerIo::new(self.random.next(), self.home.join("graves")));
        if crash == Crash::Kill {
            fresh.inherit(&self.io);
        }
        self.io = fresh;
        (self.injected, self.hasty) = (0, 0);
        self.zone = self.opened();
        self.held.clear();
        self.views.clear();
        self.was_corrupt = false;
        self.after(crash);
        self.check_journal();
        if is_untroubled {
            for (number, version) in certain {
                assert!(
                    self.zone.peek(&key(number)),
                    "{number}: {version:?} is lost"
                );
                self.allowed(number).now = vec![Some(version)];
            }
            self.check_count();
        }
    }

    /// After errors, things are as after a kill; as after a power failure, if the disk lost what a
    /// failed sync was about, and then refused what says that it is lost: tombstones, or that its
    /// file is removed.
    fn after_errors(&mut self, at_worst: Crash) {
        let has_rested = self.strange.has_rested.swap(false, Ordering::AcqRel);
        let is_lost = (has_rested || at_worst == Crash::Loss) && self.io.has_lied();
        self.after(if is_lost { Crash::Loss } else { Crash::Kill });
    }

    fn after(&mut self, crash: Crash) {
        let all = self.allowed.values_mut();
        all.for_each(|allowed| allowed.crash(crash));
    }

    /// Entries that are there now and must be there after a crash.
    fn certain(&self, crash: Crash) -> Vec<(u64, Version)> {
        let present = self.present().into_iter();
        let certain = present.filter_map(|number| {
            let allowed = self.allowed.get(&number)?;
            Some((number, allowed.certain(crash)?))
        });
        // A use of the last minute may be lost, and with it who lived of it.
        let now = u32::try_from(self.clock.now() / 1000).expect("seconds");
        let is_old = |used: u32| used + 60 < now;
        let is_eternal = self.conf.inactive > Duration::from_secs(100);
        let certain = certain.filter(|(number, _)| {
            is_eternal
                || self
                    .zone
                    .peeks()
                    .last_used(&key(*number))
                    .is_some_and(is_old)
        });
        certain.collect()
    }

    /// Readers of a process that is killed have given regions to the kernel, which sends them on.
    fn open_sockets(&mut self, crash: Crash) {
        self.sockets.clear();
        if crash == Crash::Loss {
            return;
        }
        let held = self
            .held
            .iter()
            .map(|(entry, _)| entry.regions(0..u64::MAX).collect());
        let views = self.views.iter().map(|(view, _)| view.regions(0..u64::MAX));
        let all: Vec<Vec<Region>> = held.chain(views).collect();
        for region in all.into_iter().flatten().filter(is_given) {
            let bytes = read([region.clone()]);
            self.sockets.push((region, bytes));
        }
    }

    /// Entries that can be found are all that there are.
    fn check_count(&self) {
        let entries = self.zone.usage().entries;
        let present = self.present().len() as u64;
        assert!(present <= entries, "{present} found, {entries} counted");
    }

    /// Checks that the counts of each site are the sums over its entries.
    fn check_sites(&mut self) {
        // The disk thread, or the one that syncs, may evict or drop something meanwhile.
        let mut held = self.counted_sites();
        eventually(|| {
            held = self.counted_sites();
            held.as_ref()
                .is_none_or(|(counted, walked)| counted == walked)
        });
        if let Some((counted, walked)) = held {
            assert_eq!(counted, walked);
        }
    }

    /// Counts as the zone has them, and by a walk; none if not all entries are shown.
    fn counted_sites(&self) -> Option<(Sites, Sites)> {
        let mut counted = Sites::new();
        for one in self.zone.sites() {
            let site = String::from_utf8_lossy(&one.site).into_owned();
            counted.entry(site).or_default().add(&one.held);
        }
        let all: u64 = counted
            .values()
            .map(|held| held.entries + held.slices)
            .sum();
        let mut walked = Sites::new();
        let mut is_whole = true;
        let _ = self.zone.inspect(&mut |glance| {
            let Looked::Found(record) = glance.read() else {
                is_whole = false;
                return ControlFlow::Break(());
            };
            let class = classify(&record.head);
            let is_slice = class.role == Role::Slice;
            let summary = glance.summary();
            let site = String::from_utf8_lossy(class.site).into_owned();
            walked.entry(site).or_default().add(&Held {
                entries: u64::from(!is_slice),
                slices: u64::from(is_slice),
                disk_bytes: summary.disk_size,
                body_bytes: summary.body_len,
            });
            ControlFlow::Continue(())
        });
        let entries = self.zone.usage().entries;
        let shown: u64 = walked.values().map(|held| held.entries + held.slices).sum();
        if all != entries {
            return Some((counted, Sites::new()));
        }
        // What is inactive and was not swept is counted, and not shown.
        (is_whole && shown == entries).then_some((counted, walked))
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

/// Events of a zone, from any thread.
#[derive(Default)]
struct Told {
    /// Those that no run should make a zone report: the run looks at it after each step.
    strange: Mutex<Vec<String>>,
    /// True if the disk refused so much that the zone lets it rest.
    has_rested: AtomicBool,
    /// True if the disk was given up.
    has_failed: AtomicBool,
    /// Segments of which a sync failed.
    lost: Mutex<Vec<u32>>,
}

impl Told {
    fn note_lost(&self, segment: u32) {
        self.lost
            .lock()
            .expect("nobody panics with it")
            .push(segment);
    }

    /// The crash that errors come to at worst: a power failure, if the file of a segment that was
    /// lost is in the directory all the same.
    fn at_worst(&self, dir: &Path) -> Crash {
        let lost = self.lost.lock().expect("nobody panics with it");
        let stays = |id: &u32| dir.join(format!("segment-{id:08}")).exists();
        if lost.iter().any(stays) {
            Crash::Loss
        } else {
            Crash::Kill
        }
    }
}

type Strange = Arc<Told>;

fn lock(strange: &Strange) -> MutexGuard<'_, Vec<String>> {
    strange.strange.lock().expect("nobody panics with it")
}

fn open(
    conf: &ZoneConf,
    (clock, io): (&Arc<ManualClock>, &Arc<PowerIo>),
    strange: &Strange,
) -> Arc<Zone> {
    let teller = Arc::clone(strange);
    let platform = Platform {
        io: io.clone(),
        events: Arc::new(move |event| match event {
            Event::Recovered { .. } => {}
            // After a power failure, of what was not synced.
            Event::Corrupt { .. } => {}
            // Errors are part of the game, and a disk that was cut off knows nothing else.
            Event::WriteFailed(_) => {}
            Event::SegmentLost { segment, .. } => teller.note_lost(*segment),
            Event::Resting { .. } => teller.has_rested.store(true, Ordering::Release),
            // A segment that was lost, and whose tombstones were not synced when the power went.
            // What must be there all the same is looked for.
            Event::Gap { .. } => {}
            // A zone whose only disk does not open goes without it, and this one is opened again.
            Event::DiskFailed { .. } => teller.has_failed.store(true, Ordering::Release),
            other => lock(&teller).push(other.to_string()),
        }),
        sites: Arc::new(SiteBook::new(classify)),
        ..Platform::default()
    };
    let mut attempts = 0;
    loop {
        match Zone::open_on(conf.clone(), clock.clone(), platform.clone()) {
            Ok(zone) if !strange.has_failed.swap(false, Ordering::AcqRel) => return zone,
            Ok(zone) => zone.close(),
            Err(error) => panic!("{error}: {:?}", error.source()),
        }
        attempts += 1;
        assert!(attempts < 100, "it does not open");
    }
}

/// Tries until something is so, while other threads end what they are at; or for so long that it
/// never will be.
fn eventually(mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() && began.elapsed() < PATIENCE {
        std::thread::yield_now();
    }
}

/// True if a region may be sent: nothing is of what a failed sync has lost.
fn is_given(region: &Region) -> bool {
    match region {
        Region::Memory(_) => true,
        Region::File { file, offset, .. } => file.ready_len(*offset, 1) > 0,
    }
}

/// Size that `du` would say, or the sum of the lengths if that is more.
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

/// Any sequence of operations and crashes leaves a zone that agrees with the model.
#[test]
fn zone_agrees_with_a_map() {
    let seeds = seeds(SEEDS.chain(FOUND));
    run_each(&seeds, |seed| {
        let home = home();
        let mut run = Run::new(seed, home.path());
        for _ in 0..OPERATIONS {
            run.step();
        }
        run.reopen();
    });
    println!("{} seeds", seeds.len());
}
