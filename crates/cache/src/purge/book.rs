//! The book: which purges are in force, and what they make of an entry.
//!
//! Every purge has a serial, which only grows. A stored head has the serial that was the newest
//! when its fill began; so a purge is about an entry just if its serial is larger and it matches.
//! An entry that is younger than the newest purge costs one comparison. For older ones tags and
//! keys are looked up by hash, prefixes in a sorted map, and wildcards, of which there may be few,
//! one by one.
//!
//! ```text
//!   order ──► serial ──► journal, synced ──► rules ──► newest ──► acknowledged
//!                                              ▲
//!   all heads reviewed, all older fills ended ─┴─► retired
//! ```
//!
//! 1. A rule is in force before the newest serial says so, and before it is acknowledged.
//! 2. A rule leaves only when nothing that it is about can be found any more, also after a crash.
//! 3. The book is bounded. Where it is full, the older half of its rules becomes one about
//!    everything as old as they are: too much is purged, never too little.
//! 4. Serials are never used twice, not even if the journal is lost: each is at least the time in
//!    milliseconds.

use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use bytes::Bytes;
use millpond_store::{Journal, JournalError, Key, Keys};

use super::apart::Apart;
use super::gather::{Gather, Order};
use super::notes::Notes;
use super::position::Position;
use super::rule::{Matter, Mode, Rule, is_match};
use super::running::{Running, RunningFill, Runs};
use crate::lag::Lag;
use crate::tag;

/// Rules of a book, each tag counted (arbitrary: about ten megabytes).
const RULES_MAX: usize = 64 << 10;
/// After this time keys that were purged are swept, however few they are: a look-up of an older
/// entry costs little more for them, and a sweep reads all heads (arbitrary).
const KEY_RULE_AGE_MS: u64 = 3_600_000;
/// Wildcards of a book: each is tried at each look-up of an older entry (arbitrary).
const WILDCARDS_MAX: usize = 256;

/// Up to where rules of both modes reach that are about one thing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Mark {
    /// Serial of the newest hard one; 0 for none.
    hard: u64,
    /// Serial of the newest soft one; 0 for none.
    soft: u64,
    /// Time of the newest soft purge, seconds since the epoch.
    soft_at: i64,
}

impl Mark {
    fn of(rule: &Rule) -> Mark {
        match rule.mode {
            Mode::Hard => Mark {
                hard: rule.serial,
                ..Mark::default()
            },
            Mode::Soft => Mark {
                soft: rule.serial,
                soft_at: rule.at,
                ..Mark::default()
            },
        }
    }

    fn newest(self) -> u64 {
        self.hard.max(self.soft)
    }

    fn join(&mut self, other: Mark) {
        self.hard = self.hard.max(other.hard);
        if other.soft > self.soft {
            (self.soft, self.soft_at) = (other.soft, other.soft_at);
        }
    }

    fn judge(self, serial: u64) -> Judged {
        match () {
            () if self.hard > serial => Judged::Gone,
            () if self.soft > serial => Judged::Stale {
                since: self.soft_at,
                serial: self.soft,
            },
            () => Judged::Untouched,
        }
    }
}

/// Effect of the purges in force on an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Judged {
    /// Nothing.
    Untouched,
    /// The entry is stale.
    Stale {
        /// First second in which the entry is stale.
        since: i64,
        /// Serial of the purge that made it stale.
        serial: u64,
    },
    /// The entry must not be found.
    Gone,
}

/// A purge in force, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InForce {
    /// Kind of the purge's target: `all`, `key`, `host`, `site`, `tag`, `prefix` or `wildcard`.
    pub kind: &'static str,
    /// The name, prefix or pattern.
    pub what: Bytes,
    /// Effect on what is purged.
    pub mode: Mode,
    /// Serial of the purge.
    pub serial: u64,
    /// Time of a soft purge, seconds since the epoch.
    pub at: Option<i64>,
}

impl InForce {
    /// The newest hard one and the newest soft one of a mark.
    fn of(matter: &Matter, mark: &Mark) -> Vec<InForce> {
        let (kind, what) = match matter {
            Matter::None | Matter::All => ("all", Bytes::new()),
            Matter::Key(_) => ("key", Bytes::new()),
            Matter::Prefix(text) => ("prefix", text.clone()),
            Matter::Wildcard(text) => ("wildcard", text.clone()),
            Matter::Tags(tags) => {
                let tag = tags.first().cloned().unwrap_or_default();
                let (kind, name) = tag::kind_and_name(&tag);
                (kind, tag.slice_ref(name))
            }
        };
        let rule = |mode, serial, at| InForce {
            kind,
            what: what.clone(),
            mode,
            serial,
            at,
        };
        let hard = (mark.hard > 0).then(|| rule(Mode::Hard, mark.hard, None));
        let soft = (mark.soft > 0).then(|| rule(Mode::Soft, mark.soft, Some(mark.soft_at)));
        hard.into_iter().chain(soft).collect()
    }
}

/// Entry that is judged.
#[derive(Clone, Copy, Debug)]
pub struct Subject<'a> {
    /// Text of the entry's cache key.
    pub text: &'a [u8],
    /// Tags of the entry, as in its head.
    pub tags: &'a [u8],
    /// Newest serial when the entry's fill began.
    pub serial: u64,
}

/// The rules in force.
#[derive(Clone, Debug)]
pub(super) struct Rules {
    /// Makes the keys of texts.
    maker: Keys,
    /// Rules that it may have, each tag counted.
    limit: usize,
    all: Mark,
    keys: HashMap<Key, Mark>,
    tags: HashMap<Bytes, Mark>,
    /// Newest mark of the rules about tags; for entries with more tags than fit.
    any_tag: Mark,
    prefixes: BTreeMap<Bytes, Mark>,
    wildcards: BTreeMap<Bytes, Mark>,
    /// Up to where the log of a fleet was taken.
    position: Option<Position>,
}

impl Rules {
    /// No rules, and room for so many.
    pub(super) fn new(maker: Keys, limit: usize) -> Self {
        Rules {
            maker,
            limit,
            all: Mark::default(),
            keys: HashMap::new(),
            tags: HashMap::new(),
            any_tag: Mark::default(),
            prefixes: BTreeMap::new(),
            wildcards: BTreeMap::new(),
            position: None,
        }
    }

    pub(super) fn add(&mut self, rule: &Rule) {
        let mark = Mark::of(rule);
        self.take_position(rule.position);
        match &rule.matter {
            Matter::None => {}
            Matter::Key(key) => self.keys.entry(*key).or_default().join(mark),
            Matter::Prefix(text) => self.add_prefix(text, mark),
            Matter::Wildcard(text) => self.wildcards.entry(text.clone()).or_default().join(mark),
            Matter::Tags(tags) => {
                self.any_tag.join(mark);
                for tag in tags {
                    self.tags.entry(tag.clone()).or_default().join(mark);
                }
            }
            Matter::All => {
                self.all.join(mark);
                if rule.mode == Mode::Hard {
                    // Serials grow, so it is about all that the others are about.
                    self.keep(|other| other.newest() > rule.serial);
                }
            }
        }
        if self.wildcards.len() > WILDCARDS_MAX {
            self.fold_wildcards();
        }
        while self.count() > self.limit {
            self.fold();
        }
    }

    /// The position that was noted last counts, also if it stands before another: a log may have
    /// lost its end.
    fn take_position(&mut self, noted: Option<Position>) {
        self.position = noted.or(self.position);
    }

    fn add_prefix(&mut self, text: &Bytes, mark: Mark) {
        if mark.hard > 0 {
            let from = (Bound::Included(text.clone()), Bound::Unbounded);
            let inside = self.prefixes.range(from);
            let inside = inside.take_while(|(other, _)| other.starts_with(text));
            let covered = inside.filter(|(_, other)| other.newest() < mark.hard);
            let covered: Vec<Bytes> = covered.map(|(other, _)| other.clone()).collect();
            for other in covered {
                self.prefixes.remove(&other);
            }
        }
        self.prefixes.entry(text.clone()).or_default().join(mark);
    }

    /// Judges an entry.
    pub(super) fn judge(&self, subject: &Subject<'_>) -> Judged {
        self.mark_of(subject).judge(subject.serial)
    }

    fn mark_of(&self, subject: &Subject<'_>) -> Mark {
        let mut mark = self.all;
        if !self.keys.is_empty()
            && let Some(other) = self.keys.get(&self.maker.of(subject.text))
        {
            mark.join(*other);
        }
        if self.any_tag.newest() > subject.serial {
            for tag in tag::of_head(subject.tags) {
                match self.tags.get(tag) {
                    Some(other) => mark.join(*other),
                    None if tag == tag::TOO_MANY => mark.join(self.any_tag),
                    None => {}
                }
            }
        }
        self.join_prefixes(subject.text, &mut mark);
        for (pattern, other) in &self.wildcards {
            if other.newest() > subject.serial && is_match(pattern, subject.text) {
                mark.join(*other);
            }
        }
        mark
    }

    /// Joins the marks of all prefixes of a text, longest first.
    fn join_prefixes(&self, text: &[u8], mark: &mut Mark) {
        let mut rest = text;
        // Each round makes the rest shorter: it ends.
        loop {
            let upto: (Bound<&[u8]>, Bound<&[u8]>) = (Bound::Unbounded, Bound::Included(rest));
            let Some((prefix, other)) = self.prefixes.range::<[u8], _>(upto).next_back() else {
                return;
            };
            let same = prefix.iter().zip(rest).take_while(|(a, b)| a == b).count();
            // Nothing between what is the same and the rest is a prefix: it would stand behind
            // the one that was found.
            let shorter = if same == prefix.len() {
                mark.join(*other);
                same.checked_sub(1)
            } else {
                Some(same)
            };
            match shorter.and_then(|len| rest.get(..len)) {
                Some(next) => rest = next,
                None => return,
            }
        }
    }

    pub(super) fn count(&self) -> usize {
        self.keys.len() + self.tags.len() + self.prefixes.len() + self.wildcards.len()
    }

    fn marks(&self) -> impl Iterator<Item = &Mark> {
        let texts = self.tags.values().chain(self.prefixes.values());
        texts
            .chain(self.wildcards.values())
            .chain(self.keys.values())
    }

    /// Drops the rules that are not to be kept.
    fn keep(&mut self, is_kept: impl Fn(&Mark) -> bool) {
        self.keys.retain(|_, mark| is_kept(mark));
        self.tags.retain(|_, mark| is_kept(mark));
        self.prefixes.retain(|_, mark| is_kept(mark));
        self.wildcards.retain(|_, mark| is_kept(mark));
    }

    /// INVARIANT 3.
    fn fold(&mut self) {
        let mut serials: Vec<u64> = self.marks().map(|mark| mark.newest()).collect();
        let half = serials.len() / 2;
        if serials.is_empty() {
            return;
        }
        let (_, median, _) = serials.select_nth_unstable(half);
        let median = *median;
        let mut folded = self.all;
        for mark in self.marks().filter(|mark| mark.newest() <= median) {
            folded.join(*mark);
        }
        self.all = folded;
        self.keep(|mark| mark.newest() > median);
    }

    /// Folds rules as [`Self::fold`] does, for wildcards alone.
    fn fold_wildcards(&mut self) {
        let mut serials: Vec<u64> = self.wildcards.values().map(|mark| mark.newest()).collect();
        serials.sort_unstable();
        let median = serials.get(serials.len() / 2).copied().unwrap_or(0);
        let (wildcards, all) = (&mut self.wildcards, &mut self.all);
        wildcards.retain(|_, mark| {
            let is_kept = mark.newest() > median;
            if !is_kept {
                all.join(*mark);
            }
            is_kept
        });
    }

    /// Drops what is not newer than a serial.
    fn retire(&mut self, upto: u64) {
        self.keep(|mark| mark.newest() > upto);
        for mark in [&mut self.all, &mut self.any_tag] {
            if mark.newest() <= upto {
                *mark = Mark::default();
            }
        }
    }

    /// True if there are rules up to a serial that are about more than one key.
    fn has_many_matched(&self, upto: u64) -> bool {
        let texts = self.tags.values().chain(self.prefixes.values());
        let mut marks = texts.chain(self.wildcards.values()).chain([&self.all]);
        marks.any(|mark| (1..=upto).contains(&mark.newest()))
    }

    /// Records of all rules, and of the newest serial.
    fn records(&self, newest: u64) -> Vec<Bytes> {
        let mut rules = vec![(Matter::None, Mark::of(&used_up(newest)))];
        rules.push((Matter::All, self.all));
        rules.extend(
            self.keys
                .iter()
                .map(|(key, mark)| (Matter::Key(*key), *mark)),
        );
        let tags = self.tags.iter();
        rules.extend(tags.map(|(tag, mark)| (Matter::Tags(vec![tag.clone()]), *mark)));
        let prefixes = self.prefixes.iter();
        rules.extend(prefixes.map(|(text, mark)| (Matter::Prefix(text.clone()), *mark)));
        let wildcards = self.wildcards.iter();
        rules.extend(wildcards.map(|(text, mark)| (Matter::Wildcard(text.clone()), *mark)));
        let position = Rule {
            position: self.position,
            ..used_up(newest)
        };
        let records = rules.into_iter().flat_map(|(matter, mark)| {
            let rule = |serial, mode, at| Rule {
                serial,
                at,
                mode,
                matter: matter.clone(),
                position: None,
            };
            let hard = (mark.hard > 0).then(|| rule(mark.hard, Mode::Hard, 0).encode());
            let soft = (mark.soft > 0).then(|| rule(mark.soft, Mode::Soft, mark.soft_at).encode());
            [hard, soft]
        });
        let position = self.position.map(|_| position.encode());
        records.flatten().chain(position).collect()
    }
}

fn used_up(serial: u64) -> Rule {
    Rule {
        serial,
        at: 0,
        mode: Mode::Hard,
        matter: Matter::None,
        position: None,
    }
}

/// The purges of a zone.
#[derive(Debug)]
pub struct PurgeBook {
    /// The newest serial in force.
    newest: AtomicU64,
    rules: RwLock<Rules>,
    /// Purges that wait to be written down, with the lead for whoever changes the rules.
    orders: Gather,
    running: Mutex<Fleet>,
    /// Lag behind the log of a fleet.
    pub lag: Lag,
    /// Removals that other nodes of the fleet may not have.
    pub apart: Apart,
}

/// The fills that run.
#[derive(Debug, Default)]
struct Fleet {
    /// Running fills, each at a place of its own. There are as many places as fills ever ran at
    /// once.
    places: Vec<Option<Arc<dyn Runs>>>,
    /// Places that nobody has.
    free: Vec<usize>,
    /// True if purges are taken by another process, of which nobody hears here.
    is_apart: bool,
}

impl Fleet {
    fn enter(&mut self, fill: Arc<dyn Runs>) -> usize {
        let free = self.free.pop();
        let place = free.unwrap_or(self.places.len());
        match self.places.get_mut(place) {
            Some(empty) => *empty = Some(fill),
            None => self.places.push(Some(fill)),
        }
        place
    }

    fn leave(&mut self, place: usize) -> Option<Arc<dyn Runs>> {
        let fill = self.places.get_mut(place)?.take()?;
        self.free.push(place);
        Some(fill)
    }

    fn fills(&self) -> impl Iterator<Item = &Arc<dyn Runs>> {
        self.places.iter().flatten()
    }
}

impl PurgeBook {
    /// No purges, of entries with such keys.
    pub fn new(keys: Keys) -> Self {
        PurgeBook {
            newest: AtomicU64::new(0),
            rules: RwLock::new(Rules::new(keys, RULES_MAX)),
            orders: Gather::default(),
            running: Mutex::default(),
            lag: Lag::default(),
            apart: Apart::default(),
        }
    }

    /// Purges are taken by another process from now on, so nobody may join a fill any more: what it
    /// fetched may be purged by then. Until a journal is read again.
    pub(crate) fn part(&self) {
        let mut fleet = lock(&self.running);
        fleet.is_apart = true;
        fleet.fills().for_each(|fill| fill.running().part());
    }

    /// Reads what a journal holds.
    pub fn load(&self, journal: &Journal) {
        self.orders.alone(|| self.load_alone(journal));
        lock(&self.running).is_apart = false;
    }

    fn load_alone(&self, journal: &Journal) {
        let now_ms = journal.read_ms;
        let mut rules = self.rules.write().unwrap_or_else(PoisonError::into_inner);
        let mut newest = self.newest();
        for record in &journal.records {
            let rule = Rule::decode(record).unwrap_or_else(|| everything(newest, now_ms));
            newest = newest.max(rule.serial);
            rules.add(&rule);
        }
        if journal.is_damaged {
            // What cannot be read was acknowledged.
            let rule = everything(newest, now_ms);
            newest = rule.serial;
            rules.add(&rule);
        }
        drop(rules);
        self.newest.store(newest, Ordering::Release);
    }

    /// A book with one hard rule, which is about everything it matches.
    pub(crate) fn of_one(matter: &Matter, keys: Keys) -> PurgeBook {
        let rule = Rule {
            serial: 1,
            at: 0,
            mode: Mode::Hard,
            matter: matter.clone(),
            position: None,
        };
        let book = PurgeBook::new(keys);
        let mut rules = book.rules.write().unwrap_or_else(PoisonError::into_inner);
        rules.add(&rule);
        drop(rules);
        book.newest.store(rule.serial, Ordering::Release);
        book
    }

    /// Makes the keys of texts.
    pub(super) fn keys(&self) -> Keys {
        let rules = self.rules.read().unwrap_or_else(PoisonError::into_inner);
        rules.maker
    }

    /// The newest serial in force.
    pub fn newest(&self) -> u64 {
        self.newest.load(Ordering::Acquire)
    }

    /// Judges an entry by the purges in force.
    pub fn judge(&self, subject: &Subject<'_>) -> Judged {
        if subject.serial >= self.newest() {
            return Judged::Untouched;
        }
        let rules = self.rules.read().unwrap_or_else(PoisonError::into_inner);
        rules.judge(subject)
    }

    /// The rules in force that are about an entry, whatever its serial.
    pub fn about(&self, subject: &Subject<'_>) -> Vec<InForce> {
        let rules = self.rules.read().unwrap_or_else(PoisonError::into_inner);
        let whole = |(matter, mark): (Matter, &Mark)| InForce::of(&matter, mark);
        let key = rules.maker.of(subject.text);
        let of_key = rules.keys.get(&key).map(|mark| (Matter::Key(key), mark));
        let tags = tag::of_head(subject.tags)
            .filter_map(|tag| rules.tags.get_key_value(tag))
            .map(|(tag, mark)| (Matter::Tags(vec![tag.clone()]), mark));
        let prefixes = rules.prefixes.iter();
        let prefixes = prefixes
            .filter(|(prefix, _)| subject.text.starts_with(prefix))
            .map(|(prefix, mark)| (Matter::Prefix(prefix.clone()), mark));
        let wildcards = rules.wildcards.iter();
        let wildcards = wildcards
            .filter(|(pattern, _)| is_match(pattern, subject.text))
            .map(|(pattern, mark)| (Matter::Wildcard(pattern.clone()), mark));
        let all = std::iter::once((Matter::All, &rules.all));
        let found = all.chain(of_key).chain(tags).chain(prefixes);
        found.chain(wildcards).flat_map(whole).collect()
    }

    /// Number of rules, each tag counted.
    pub fn rule_count(&self) -> usize {
        let rules = self.rules.read().unwrap_or_else(PoisonError::into_inner);
        rules.count() + usize::from(rules.all.newest() > 0)
    }

    /// Puts a purge in force, durably; its serial. Waits for the disk. After an error it is not in
    /// force.
    pub(crate) fn enforce(
        &self,
        notes: &impl Notes,
        (mode, matter): (Mode, Matter),
        now_ms: u64,
    ) -> Result<u64, JournalError> {
        self.enforce_together(notes, (vec![(mode, matter)], None), now_ms)
    }

    /// Puts purges in force as [`Self::enforce`] does, all or none, and notes with them up to where
    /// the log of a fleet was taken. The serial of the last.
    pub(crate) fn enforce_together(
        &self,
        notes: &impl Notes,
        (purges, position): (Vec<(Mode, Matter)>, Option<Position>),
        now_ms: u64,
    ) -> Result<u64, JournalError> {
        let make = |last: u64| {
            let mut serial = last.max(self.newest());
            let mut order: Order = Vec::with_capacity(purges.len());
            for (mode, matter) in purges {
                serial = next_serial(serial, now_ms);
                order.push(Rule {
                    serial,
                    at: i64::try_from(now_ms / 1000).unwrap_or(i64::MAX),
                    mode,
                    matter,
                    position: None,
                });
            }
            if let Some(rule) = order.last_mut() {
                rule.position = position;
            }
            order
        };
        self.orders
            .order(make, |batch| self.enforce_all(notes, batch))
    }

    /// Notes up to where the log of a fleet was taken, where nothing was purged since. Waits for
    /// the disk.
    pub(crate) fn note_position(
        &self,
        notes: &impl Notes,
        position: Position,
    ) -> Result<(), JournalError> {
        self.orders.alone(|| {
            let newest = self.newest();
            let note = Rule {
                position: Some(position),
                ..used_up(newest)
            };
            match notes.note_all(&[note.encode()]) {
                Err(JournalError::NoRoom) => {
                    let mut rules = self.copy();
                    rules.take_position(Some(position));
                    write_down(notes, &mut rules, newest)?;
                }
                noted => noted?,
            }
            let mut rules = self.rules.write().unwrap_or_else(PoisonError::into_inner);
            rules.take_position(Some(position));
            Ok(())
        })
    }

    /// Up to where the log of a fleet was taken, as it is noted.
    pub fn position(&self) -> Option<Position> {
        let rules = self.rules.read().unwrap_or_else(PoisonError::into_inner);
        rules.position
    }

    /// Position up to which no purge is about an entry that is younger than its fill; none where
    /// one is, or no log is followed. It holds for an entry that is found after this was asked:
    /// what a rule is about that has retired is not found.
    pub fn position_untouched(&self, subject: &Subject<'_>) -> Option<Position> {
        // Not `newest`: rules are in force, and their position is noted, before it says so.
        let rules = self.rules.read().unwrap_or_else(PoisonError::into_inner);
        let is_untouched = rules.judge(subject) == Judged::Untouched;
        rules.position.filter(|_| is_untouched)
    }

    /// Puts rules in force, in their order; all or none. The caller has the lead.
    fn enforce_all(&self, notes: &impl Notes, orders: &[Order]) -> Result<(), JournalError> {
        let batch: Vec<&Rule> = orders.iter().flatten().collect();
        let Some(newest) = batch.last().map(|rule| rule.serial) else {
            return Ok(());
        };
        let records: Vec<Bytes> = batch.iter().map(|rule| rule.encode()).collect();
        match notes.note_all(&records) {
            Ok(()) => {
                let mut rules = self.rules.write().unwrap_or_else(PoisonError::into_inner);
                batch.iter().for_each(|rule| rules.add(rule));
            }
            Err(JournalError::NoRoom) => {
                let mut rules = self.copy();
                batch.iter().for_each(|rule| rules.add(rule));
                write_down(notes, &mut rules, newest)?;
                *self.rules.write().unwrap_or_else(PoisonError::into_inner) = rules;
            }
            Err(error) => return Err(error),
        }
        // INVARIANT 1.
        self.newest.store(newest, Ordering::Release);
        Ok(())
    }

    /// Drops the rules up to a serial, whose time is over.
    pub fn retire(&self, notes: &impl Notes, upto: u64) -> Result<(), JournalError> {
        self.orders.alone(|| {
            let mut rules = self.copy();
            rules.retire(upto);
            write_down(notes, &mut rules, self.newest())?;
            *self.rules.write().unwrap_or_else(PoisonError::into_inner) = rules;
            Ok(())
        })
    }

    /// True if it is time to sweep for the rules up to a serial: for those about many entries at
    /// once, for those about one key when there are many or they are old.
    pub(crate) fn is_sweep_due(&self, upto: u64, now_ms: u64) -> bool {
        let rules = self.rules.read().unwrap_or_else(PoisonError::into_inner);
        if rules.has_many_matched(upto) {
            return true;
        }
        let mut keys = rules.keys.values().map(|mark| mark.newest());
        // A serial is no less than the time of its purge.
        let is_old = |serial: &u64| serial.saturating_add(KEY_RULE_AGE_MS) <= now_ms;
        rules.keys.len() >= RULES_MAX / 2 || keys.any(|serial| serial <= upto && is_old(&serial))
    }

    /// Notes a fill that begins: what `make` makes of what purges see of it.
    pub(crate) fn begin<F: Runs>(
        self: &Arc<Self>,
        text: Bytes,
        make: impl FnOnce(Running) -> Arc<F>,
    ) -> RunningFill<F> {
        let mut fleet = lock(&self.running);
        let running = Running::new(text, self.newest());
        if fleet.is_apart {
            running.part();
        }
        let fill = make(running);
        let place = fleet.enter(Arc::clone(&fill) as Arc<dyn Runs>);
        drop(fleet);
        RunningFill::new(Arc::clone(self), fill, place)
    }

    /// Lets the fills of a key that run now be stored by nobody and joined by nobody.
    pub(crate) fn outdate(&self, text: &[u8]) {
        for fill in lock(&self.running).fills() {
            fill.running().outdate(text);
        }
    }

    pub(super) fn end(&self, place: usize) {
        let fill = lock(&self.running).leave(place);
        // Without the lock.
        drop(fill);
    }

    /// Up to which serial rules are about nothing that a running fill may still store. Fills that a
    /// rule is about are told to store nothing.
    pub(crate) fn floor(&self) -> u64 {
        let (newest, fills): (u64, Vec<Arc<dyn Runs>>) = {
            let fleet = lock(&self.running);
            (self.newest(), fleet.fills().cloned().collect())
        };
        let reach = fills.iter().map(|fill| fill.running().settle(self, newest));
        reach.min().unwrap_or(newest).min(newest)
    }

    fn copy(&self) -> Rules {
        let rules = self.rules.read().unwrap_or_else(PoisonError::into_inner);
        rules.clone()
    }
}

/// Writes all rules into a new journal; makes fewer of them until they fit.
fn write_down(notes: &impl Notes, rules: &mut Rules, newest: u64) -> Result<(), JournalError> {
    loop {
        match notes.rewrite_journal(&rules.records(newest)) {
            // Each round halves the rules; without any the records fit the smallest file.
            Err(JournalError::TooLarge { .. }) if rules.count() > 0 => rules.fold(),
            written => return written,
        }
    }
}

/// INVARIANT 4.
fn next_serial(newest: u64, now_ms: u64) -> u64 {
    newest.saturating_add(1).max(now_ms)
}

fn everything(newest: u64, now_ms: u64) -> Rule {
    Rule {
        serial: next_serial(newest, now_ms),
        at: 0,
        mode: Mode::Hard,
        matter: Matter::All,
        position: None,
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
