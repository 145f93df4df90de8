//! The fleet, the time, and the oracle.
//!
//! The oracle knows of each stored answer when its origin was asked, and of each purge when it was
//! asked for and acknowledged.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use bytes::Bytes;
use fastrand::Rng;
use millpond_cache::head::{FieldsWriter, StoredHead};
use millpond_cache::purge::log::{Moment, PurgeId};
use millpond_cache::purge::{Mode, Target};
use millpond_fleet::entry::{Entry, Purge};
use millpond_fleet::ledger::Ledgers;
use millpond_fleet::{Follower, Record};
use millpond_store::Keys;

use crate::log::{MemoryLog, RETAIN_MS, key_text};
use crate::node::{Disk, Fill, Live, ModelZone, Node, Source, Stored, ZONE};
use crate::tier::Tier;

pub(crate) const MAX_LAG_MS: u64 = 5_000;
pub(crate) const NODES: usize = 4;
/// Entries on their way to the log, with which nodes make no beats: else none would come back while
/// it matters.
const SENT_MAX: usize = 6;
const KEYS: u8 = 5;
/// Things that happen to the tier at once: a copy takes many of them until it is read.
const TIER_STEPS: usize = 4;

/// True if the schedule of a seed is one in which little goes wrong.
pub(crate) fn is_calm(seed: u64) -> bool {
    seed.is_multiple_of(2)
}

/// A mistake of the nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flaw {
    None,
    /// A beat confirms the moment in which it is heard.
    ConfirmsWhenItHears,
    /// A log that was made anew is read on from the old position.
    TakesAnotherLogForItsOwn,
    /// The lag is measured by the time of day.
    TrustsItsClock,
    /// The position is written down by itself, before the purges up to it.
    NotesThePositionFirst,
    /// A beat confirms although what has replaced purges before it is still to come.
    TakesEachRecordForTheLast,
    /// Copies of the tier are used whatever was purged.
    BelievesTheTier,
    /// The tier is asked at a position that stands before that of the zone.
    AsksWithAnOldPosition,
    /// The position of a copy is that of after its entry was found.
    AsksForThePositionLast,
    /// An owner answers although it has less of the log than who asks.
    AnswersAtOnce,
    /// Others are asked for what this node alone has removed.
    AsksForWhatItRemoved,
}

impl Flaw {
    /// True if it shows in what comes from the tier or from other nodes, and so in calm schedules.
    pub(crate) fn is_of_copies(self) -> bool {
        !matches!(
            self,
            Flaw::None
                | Flaw::ConfirmsWhenItHears
                | Flaw::TakesAnotherLogForItsOwn
                | Flaw::TrustsItsClock
                | Flaw::NotesThePositionFirst
                | Flaw::TakesEachRecordForTheLast
        )
    }
}

/// A purge that somebody was told is acknowledged.
#[derive(Debug)]
struct Acknowledged {
    target: Target,
    issued_ms: u64,
    at_ms: u64,
}

/// A purge that a process was asked for.
#[derive(Debug)]
struct Own {
    run: u8,
    target: Target,
    issued_ms: u64,
}

impl Own {
    fn is_about(&self, run: u8, text: &Bytes) -> bool {
        self.run == run && is_about(&self.target, text)
    }
}

/// True if a purge is about a key.
fn is_about(target: &Target, text: &Bytes) -> bool {
    match target {
        Target::Key(other) => other == text,
        _ => true,
    }
}

/// Entry on its way to the log.
#[derive(Debug)]
struct Sent {
    node: usize,
    entry: Entry,
    issued_ms: u64,
}

pub(crate) struct World {
    /// True if little goes wrong, so that nodes are trusted for long and copies are made and read.
    is_calm: bool,
    pub(crate) dice: Rng,
    pub(crate) flaw: Flaw,
    now_ms: Rc<Cell<u64>>,
    log: MemoryLog,
    log_count: u8,
    /// The log's clock against true time.
    log_clock_ms: u64,
    pub(crate) nodes: Vec<Node>,
    pub(crate) tier: Tier,
    sent: Vec<Sent>,
    acknowledged: Vec<Acknowledged>,
    own: Vec<Own>,
    runs: u8,
    pub(crate) served_fresh: u64,
    /// Copies of the tier that were stored.
    pub(crate) copied: u64,
    /// Answers of other nodes that were stored.
    pub(crate) fetched: u64,
}

impl World {
    pub(crate) fn new(seed: u64, flaw: Flaw) -> Self {
        let node = |number: usize| Node {
            name: format!("n{number}"),
            disk: Rc::new(RefCell::new(Disk::default())),
            live: None,
            is_mute: false,
            is_deaf: false,
            paused_until_ms: 0,
            clock_error_ms: 0,
        };
        let mut world = World {
            is_calm: is_calm(seed),
            dice: Rng::with_seed(seed),
            flaw,
            now_ms: Rc::new(Cell::new(1_000_000)),
            log: MemoryLog::new(1, 0),
            log_count: 1,
            log_clock_ms: RETAIN_MS,
            nodes: (0..NODES).map(node).collect(),
            sent: Vec::new(),
            acknowledged: Vec::new(),
            own: Vec::new(),
            runs: 0,
            served_fresh: 0,
            copied: 0,
            fetched: 0,
            tier: Tier::default(),
        };
        (0..NODES).for_each(|node| world.boot(node));
        world
    }

    pub(crate) fn now(&self) -> u64 {
        self.now_ms.get()
    }

    pub(crate) fn key(&mut self) -> u8 {
        self.dice.u8(..KEYS)
    }

    /// True if a node runs and does not stand still.
    pub(crate) fn runs(&self, index: usize) -> bool {
        let node = &self.nodes[index];
        node.live.is_some() && node.paused_until_ms <= self.now()
    }

    fn log_now(&self) -> u64 {
        self.now() + self.log_clock_ms
    }

    fn boot(&mut self, node: usize) {
        self.runs += 1;
        let node = &mut self.nodes[node];
        node.disk.borrow_mut().fills.clear();
        let zone = ModelZone::open(&node.disk, &self.now_ms, self.flaw);
        let ledgers = Ledgers::default();
        ledgers.add(ZONE, Keys::for_tests());
        node.live = Some(Live {
            run: self.runs,
            follower: Follower::new(&node.name, [self.runs; 16], vec![zone.clone()]),
            zone,
            session: None,
            coming: Vec::new(),
            purges: 0,
            ledgers,
            ledger_session: None,
        });
    }

    /// One event.
    pub(crate) fn step(&mut self) {
        let node = self.dice.usize(..NODES);
        match self.dice.u32(..if self.is_calm { 130 } else { 106 }) {
            68..73 | 93..100 if self.is_calm && self.dice.u32(..4) > 0 => self.work(node),
            0..12 => self.pass(),
            12..50 => self.work(node),
            50..58 => self.begin_fill(node),
            58..68 => (0..self.dice.usize(1..4)).for_each(|_| self.end_fill(node)),
            68..73 => self.purge(node),
            73..93 => self.arrive(),
            93..98 => self.harm_node(node),
            98..100 => self.harm_log(),
            _ => (0..TIER_STEPS).for_each(|_| self.tend_tier(node)),
        }
    }

    fn pass(&mut self) {
        let most = match self.dice.u32(..50) {
            0 if !self.is_calm || self.dice.u32(..4) == 0 => 100_000,
            _ if self.is_calm => 500,
            _ => 1_500,
        };
        self.now_ms.set(self.now() + self.dice.u64(..most));
        let log_now = self.log_now();
        self.log.age(log_now);
    }

    /// A node does what it does by itself, as far as it gets: a beat, a session, records.
    fn work(&mut self, index: usize) {
        let now = self.now();
        let node = &mut self.nodes[index];
        if node.paused_until_ms > now {
            return;
        }
        let (is_mute, is_deaf) = (node.is_mute, node.is_deaf);
        let Some(live) = &mut node.live else { return };
        if !is_mute && self.sent.len() < SENT_MAX {
            let entry = live.follower.beat(now);
            let issued_ms = now;
            self.sent.push(Sent {
                node: index,
                entry,
                issued_ms,
            });
        }
        match live.session {
            None if is_mute || is_deaf => {}
            None => self.open(index),
            Some((log, _)) if log != self.log.id => self.close(index),
            Some(_) => self.feed(index),
        }
        // Another reads there, at its own pace.
        if self.dice.u32(..3) == 0 {
            self.read_ledger(index);
        }
    }

    fn open(&mut self, index: usize) {
        let log_now = self.log_now();
        let Some(live) = &mut self.nodes[index].live else {
            return;
        };
        let beat = live.follower.beat(self.now_ms.get());
        self.log.append(&beat, log_now);
        let mut standing = self.log.standing();
        if self.flaw == Flaw::TakesAnotherLogForItsOwn {
            standing.log = [1; 16];
            standing.last = standing.last.max(live.follower.taken());
        }
        let Ok(behind) = live.follower.handle_standing(&standing) else {
            return;
        };
        let pending = self.log.pending(behind);
        let Ok(is_read) = live.follower.handle_pending(pending, &standing) else {
            return;
        };
        let behind = if is_read { behind } else { standing.last };
        live.session = Some((self.log.id, behind));
    }

    fn close(&mut self, index: usize) {
        if let Some(live) = &mut self.nodes[index].live {
            live.session = None;
            live.coming.clear();
        }
    }

    /// Some records set out for a node, or arrive.
    pub(crate) fn feed(&mut self, index: usize) {
        let is_deaf = self.nodes[index].is_deaf;
        let Some(live) = &mut self.nodes[index].live else {
            return;
        };
        let Some((log, behind)) = live.session else {
            return;
        };
        if live.coming.is_empty() && is_deaf {
            return;
        }
        if !is_deaf && (live.coming.is_empty() || self.dice.bool()) {
            // A server may be behind.
            let lacks = self.dice.u64(..4) * self.dice.u64(..4);
            let upto = self.log.last().saturating_sub(lacks);
            let sent = self.log.read(behind, upto, self.dice.usize(1..8));
            let is_each_last = self.flaw == Flaw::TakesEachRecordForTheLast;
            let seen = sent.into_iter().map(|record| Record {
                pending: if is_each_last { 0 } else { record.pending },
                ..record
            });
            let records: Vec<Record> = seen.collect();
            if let Some(last) = records.last() {
                live.session = Some((log, last.sequence));
            }
            live.coming.extend(records);
            return;
        }
        let count = self.dice.usize(1..=live.coming.len());
        let records: Vec<_> = live.coming.drain(..count).collect();
        if live.follower.handle_records(&records).is_err() {
            self.close(index);
        }
    }

    /// Some records are read into the ledgers of a node.
    fn read_ledger(&mut self, index: usize) {
        if self.nodes[index].is_deaf || !self.runs(index) {
            return;
        }
        let Some(live) = &mut self.nodes[index].live else {
            return;
        };
        match live.ledger_session {
            None => {
                live.ledgers.begin(&self.log.standing());
                live.ledger_session = Some((self.log.id, 0));
            }
            Some((log, _)) if log != self.log.id => live.close_ledgers(),
            Some((log, behind)) => {
                let lacks = self.dice.u64(..4) * self.dice.u64(..4);
                let upto = self.log.last().saturating_sub(lacks);
                let records = self.log.read(behind, upto, self.dice.usize(4..40));
                let last = records.last().map_or(behind, |it| it.sequence);
                live.ledger_session = Some((log, last));
                if !live.ledgers.note(&records) {
                    live.ledger_session = None;
                }
            }
        }
    }

    /// A node misses something, and asks the tier or the origin.
    fn begin_fill(&mut self, index: usize) {
        let key = self.often();
        self.fill(index, key);
    }

    /// A key; in calm schedules mostly one, so that several nodes purge it, and fetch it meanwhile.
    fn often(&mut self) -> u8 {
        if self.is_calm && self.dice.u32(..3) > 0 {
            return 0;
        }
        self.key()
    }

    fn fill(&mut self, index: usize, key: u8) {
        let Some(live) = self.nodes[index].live.as_ref().filter(|_| self.runs(index)) else {
            return;
        };
        let serial = live.zone.book.newest();
        let other = match self.dice.u32(..4) {
            0 => None,
            1 => self.ask_owner(index, &key_text(key)),
            _ => self.ask_tier(index, key),
        };
        let fill = Fill {
            key,
            asked_ms: self.now(),
            serial,
            source: other.unwrap_or(Source::Origin),
        };
        self.nodes[index].disk.borrow_mut().fills.push(fill);
    }

    fn end_fill(&mut self, index: usize) {
        if !self.runs(index) {
            return;
        }
        let mut fill = {
            let mut disk = self.nodes[index].disk.borrow_mut();
            if disk.fills.is_empty() {
                return;
            }
            let at = self.dice.usize(..disk.fills.len());
            disk.fills.swap_remove(at)
        };
        let stored = self.advance(index, &mut fill);
        let mut disk = self.nodes[index].disk.borrow_mut();
        match stored {
            Some(stored) => drop(disk.entries.insert(fill.key, stored)),
            None => disk.fills.push(fill),
        }
    }

    /// The answer that a fill from the origin stores.
    pub(crate) fn stored(&self, index: usize, fill: &Fill) -> Stored {
        let mut head = StoredHead::new(200, FieldsWriter::default());
        head.key = key_text(fill.key);
        head.serial = fill.serial;
        let clock_ms = self
            .now()
            .saturating_add_signed(self.nodes[index].clock_error_ms);
        head.stored_at = (clock_ms / 1000).cast_signed();
        Stored {
            asked_ms: fill.asked_ms,
            is_fresh: true,
            head,
        }
    }

    /// Somebody purges at a node: in force there, then on its way to the log.
    fn purge(&mut self, index: usize) {
        let now = self.now();
        let key = self.often();
        let target = match self.dice.u32(..12) {
            0 => Target::All,
            _ => Target::Key(key_text(key)),
        };
        let mode = [Mode::Hard, Mode::Soft][self.dice.usize(..2)];
        let node = &mut self.nodes[index];
        if node.paused_until_ms > now {
            return;
        }
        let Some(live) = &mut node.live else { return };
        let zone = &live.zone;
        let moment = Moment {
            day_ms: now,
            boot_ms: now,
        };
        let purged = zone.book.purge(&zone.records(), (&target, mode), moment);
        if purged.is_err() {
            return;
        }
        self.own.push(Own {
            run: live.run,
            target: target.clone(),
            issued_ms: now,
        });
        live.purges += 1;
        let id = PurgeId {
            run: [live.run; 16],
            count: live.purges,
        };
        zone.book.apart.send(&target, mode, id);
        let entry = Entry::Purge(Purge {
            run: [live.run; 16],
            count: live.purges,
            zone: Bytes::from_static(ZONE.as_bytes()),
            mode,
            target,
        });
        if !node.is_mute {
            self.sent.push(Sent {
                node: index,
                entry,
                issued_ms: now,
            });
        }
        // Somebody looks at what has become of it.
        if self.is_calm && self.dice.bool() {
            self.fill(index, key);
        }
    }

    /// Something arrives at the log, in any order, and the answer at who sent it, or not.
    fn arrive(&mut self) {
        if self.sent.is_empty() {
            return;
        }
        let at = self.dice.usize(..self.sent.len());
        let sent = self.sent.swap_remove(at);
        if self.dice.u32(..8) == 0 {
            return;
        }
        let log_now = self.log_now();
        self.log.append(&sent.entry, log_now);
        let is_heard = self.dice.u32(..4) > 0 && !self.nodes[sent.node].is_deaf;
        if let Entry::Purge(purge) = sent.entry
            && is_heard
        {
            if let Some(live) = &self.nodes[sent.node].live {
                let id = PurgeId {
                    run: purge.run,
                    count: purge.count,
                };
                live.zone.book.apart.acknowledge(id, self.now());
            }
            self.acknowledged.push(Acknowledged {
                target: purge.target,
                issued_ms: sent.issued_ms,
                at_ms: self.now(),
            });
        }
    }

    fn harm_node(&mut self, index: usize) {
        let now = self.now();
        let draw = self.dice.u32(..12);
        let span = self.dice.u64(..30_000);
        let node = &mut self.nodes[index];
        match draw {
            // A link that carries one way only may stay open.
            0 => node.is_mute = !node.is_mute,
            1 => node.is_deaf = !node.is_deaf,
            2 => {
                (node.is_mute, node.is_deaf) = (!node.is_mute, !node.is_deaf);
                self.close(index);
                if let Some(live) = &mut self.nodes[index].live {
                    live.close_ledgers();
                }
            }
            3 => node.paused_until_ms = now + span,
            4 => node.live = None,
            5 => node.clock_error_ms = span as i64 - 15_000,
            6 => node.disk.borrow_mut().is_failing = true,
            7..9 => {
                // A crash in the midst of a write, and the next life.
                node.disk.borrow_mut().ends_within = true;
                for _ in 0..6 {
                    self.feed(index);
                }
                self.nodes[index].disk.borrow_mut().ends_within = false;
                self.boot(index);
            }
            9 => self.close(index),
            _ if node.live.is_none() => self.boot(index),
            _ => {}
        }
    }

    fn harm_log(&mut self) {
        match self.dice.u32(..6) {
            0 => {
                self.log_count += 1;
                // Its numbers may go on, as those of one that was made from a copy.
                let last = [0, self.log.last(), self.log.last() + 9][self.dice.usize(..3)];
                self.log = MemoryLog::new(self.log_count, last);
            }
            1 => self.log_clock_ms = RETAIN_MS + self.dice.u64(..RETAIN_MS / 20),
            _ => {}
        }
    }

    pub(crate) fn is_trusted(&self, node: &Node, live: &Live) -> bool {
        let now = match self.flaw {
            Flaw::TrustsItsClock => self.now().saturating_add_signed(node.clock_error_ms),
            _ => self.now(),
        };
        live.zone.book.lag.is_up_to_date(now)
    }

    /// Asks every node that runs for everything.
    pub(crate) fn check(&mut self) -> Result<(), String> {
        let now = self.now();
        for node in &self.nodes {
            let Some(live) = &node.live else { continue };
            if node.paused_until_ms > now || !self.is_trusted(node, live) {
                continue;
            }
            for (key, entry) in &node.disk.borrow().entries {
                if !live.zone.is_fresh(entry) {
                    continue;
                }
                self.served_fresh += 1;
                let text = key_text(*key);
                let wrong = self.acknowledged.iter().find(|purge| {
                    let is_older = entry.asked_ms < purge.issued_ms;
                    let is_late = now - purge.at_ms > MAX_LAG_MS;
                    is_about(&purge.target, &text) && is_older && is_late
                });
                let name = &node.name;
                if let Some(purge) = wrong {
                    return Err(format!(
                        "{now}: {name} serves {key}, {entry:?} after {purge:?}"
                    ));
                }
                let mut own = self.own.iter().filter(|it| it.is_about(live.run, &text));
                if let Some(purge) = own.find(|it| entry.asked_ms < it.issued_ms) {
                    return Err(format!(
                        "{now}: {name} serves {key}, {entry:?} after its own {purge:?}"
                    ));
                }
            }
        }
        Ok(())
    }

    /// Ends all harm, and lets everybody work.
    pub(crate) fn heal(&mut self) {
        self.sent.clear();
        for index in 0..NODES {
            let node = &mut self.nodes[index];
            (node.is_mute, node.is_deaf) = (false, false);
            node.paused_until_ms = 0;
            node.disk.borrow_mut().is_failing = false;
            if node.live.is_none() {
                self.boot(index);
            }
        }
        for round in 0..600 {
            self.now_ms.set(self.now() + 10);
            self.work(round % NODES);
            while !self.sent.is_empty() {
                let sent = self.sent.remove(0);
                let log_now = self.log_now();
                self.log.append(&sent.entry, log_now);
            }
        }
    }

    pub(crate) fn are_all_trusted(&self) -> bool {
        let is_trusted = |node: &Node| {
            node.live
                .as_ref()
                .is_some_and(|it| self.is_trusted(node, it))
        };
        self.nodes.iter().all(is_trusted)
    }
}
