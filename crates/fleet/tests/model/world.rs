//! The fleet, the time, and the oracle.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use bytes::Bytes;
use fastrand::Rng;
use millpond_cache::purge::{Mode, Target};
use millpond_fleet::entry::{Entry, Purge};
use millpond_fleet::{Follower, Record};

use crate::log::{MemoryLog, RETAIN_MS, key_text};
use crate::node::{Disk, Fill, Live, ModelZone, Node, Stored};

pub(crate) const MAX_LAG_MS: u64 = 5_000;
const NODES: usize = 4;
/// Entries on their way to the log, with which nodes make no beats: else none would come back while
/// it matters.
const SENT_MAX: usize = 6;
const KEYS: u8 = 5;

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
}

/// A purge that somebody was told is acknowledged.
#[derive(Debug)]
struct Acknowledged {
    target: Target,
    issued_ms: u64,
    at_ms: u64,
}

/// Entry on its way to the log.
#[derive(Debug)]
struct Sent {
    node: usize,
    entry: Entry,
    issued_ms: u64,
}

pub(crate) struct World {
    dice: Rng,
    flaw: Flaw,
    now_ms: Rc<Cell<u64>>,
    log: MemoryLog,
    log_count: u8,
    /// The log's clock against true time.
    log_clock_ms: u64,
    nodes: Vec<Node>,
    sent: Vec<Sent>,
    acknowledged: Vec<Acknowledged>,
    runs: u8,
    pub(crate) served_fresh: u64,
}

impl World {
    pub(crate) fn new(seed: u64, flaw: Flaw) -> Self {
        let node = |number: usize| Node {
            name: format!("n{number}"),
            disk: Rc::new(RefCell::new(Disk::default())),
            live: None,
            is_cut_off: false,
            paused_until_ms: 0,
            clock_error_ms: 0,
        };
        let mut world = World {
            dice: Rng::with_seed(seed),
            flaw,
            now_ms: Rc::new(Cell::new(1_000_000)),
            log: MemoryLog::new(1, 0),
            log_count: 1,
            log_clock_ms: RETAIN_MS,
            nodes: (0..NODES).map(node).collect(),
            sent: Vec::new(),
            acknowledged: Vec::new(),
            runs: 0,
            served_fresh: 0,
        };
        (0..NODES).for_each(|node| world.boot(node));
        world
    }

    fn now(&self) -> u64 {
        self.now_ms.get()
    }

    fn log_now(&self) -> u64 {
        self.now() + self.log_clock_ms
    }

    fn boot(&mut self, node: usize) {
        self.runs += 1;
        let node = &mut self.nodes[node];
        node.disk.borrow_mut().fills.clear();
        let zone = ModelZone {
            disk: Rc::clone(&node.disk),
            confirmed_ms: Rc::new(Cell::new(0)),
            now_ms: Rc::clone(&self.now_ms),
            flaw: self.flaw,
        };
        node.live = Some(Live {
            run: self.runs,
            follower: Follower::new(&node.name, [self.runs; 16], vec![zone.clone()]),
            zone,
            session: None,
            coming: Vec::new(),
            purges: 0,
        });
    }

    /// One event.
    pub(crate) fn step(&mut self) {
        let node = self.dice.usize(..NODES);
        match self.dice.u32(..100) {
            0..12 => self.pass(),
            12..50 => self.work(node),
            50..58 => self.begin_fill(node),
            58..68 => self.end_fill(node),
            68..73 => self.purge(node),
            73..93 => self.arrive(),
            93..98 => self.harm_node(node),
            _ => self.harm_log(),
        }
    }

    fn pass(&mut self) {
        let most = if self.dice.u32(..50) == 0 {
            100_000
        } else {
            1_500
        };
        self.now_ms.set(self.now() + self.dice.u64(..most));
        let log_now = self.log_now();
        self.log.age(log_now);
    }

    /// A node does what it does by itself, as far as it gets: a beat, a session, records.
    fn work(&mut self, index: usize) {
        let now = self.now();
        let node = &mut self.nodes[index];
        if node.is_cut_off || node.paused_until_ms > now {
            return;
        }
        let Some(live) = &mut node.live else { return };
        if self.sent.len() < SENT_MAX {
            let entry = live.follower.beat(now);
            let issued_ms = now;
            self.sent.push(Sent {
                node: index,
                entry,
                issued_ms,
            });
        }
        match live.session {
            None => self.open(index),
            Some((log, _)) if log != self.log.id => self.close(index),
            Some(_) => self.feed(index),
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
    fn feed(&mut self, index: usize) {
        let Some(live) = &mut self.nodes[index].live else {
            return;
        };
        let Some((log, behind)) = live.session else {
            return;
        };
        if live.coming.is_empty() || self.dice.bool() {
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

    fn begin_fill(&mut self, index: usize) {
        let now = self.now();
        let key = self.dice.u8(..KEYS);
        let node = &self.nodes[index];
        if node.live.is_some() && node.paused_until_ms <= now {
            node.disk.borrow_mut().fills.push(Fill {
                key,
                asked_ms: now,
                is_purged: false,
            });
        }
    }

    fn end_fill(&mut self, index: usize) {
        let node = &self.nodes[index];
        if node.live.is_none() || node.paused_until_ms > self.now() {
            return;
        }
        let mut disk = node.disk.borrow_mut();
        if disk.fills.is_empty() {
            return;
        }
        let at = self.dice.usize(..disk.fills.len());
        let fill = disk.fills.swap_remove(at);
        if !fill.is_purged {
            let stored = Stored {
                asked_ms: fill.asked_ms,
                is_fresh: true,
            };
            disk.entries.insert(fill.key, stored);
        }
    }

    /// Somebody purges at a node: in force there, then on its way to the log.
    fn purge(&mut self, index: usize) {
        let now = self.now();
        let target = match self.dice.u32(..12) {
            0 => Target::All,
            _ => Target::Key(key_text(self.dice.u8(..KEYS))),
        };
        let mode = [Mode::Hard, Mode::Soft][self.dice.usize(..2)];
        let node = &mut self.nodes[index];
        if node.paused_until_ms > now {
            return;
        }
        let Some(live) = &mut node.live else { return };
        node.disk.borrow_mut().purge(&target, mode);
        live.purges += 1;
        let entry = Entry::Purge(Purge {
            run: [live.run; 16],
            count: live.purges,
            zone: Bytes::from_static(b"z"),
            mode,
            target,
        });
        if !node.is_cut_off {
            self.sent.push(Sent {
                node: index,
                entry,
                issued_ms: now,
            });
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
        let is_heard = self.dice.u32(..4) > 0 && !self.nodes[sent.node].is_cut_off;
        if let Entry::Purge(purge) = sent.entry
            && is_heard
        {
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
            0..3 => {
                node.is_cut_off = !node.is_cut_off;
                self.close(index);
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

    fn is_trusted(&self, node: &Node, live: &Live) -> bool {
        let confirmed = live.zone.confirmed_ms.get();
        let now = match self.flaw {
            Flaw::TrustsItsClock => self.now().saturating_add_signed(node.clock_error_ms),
            _ => self.now(),
        };
        confirmed > 0 && now.saturating_sub(confirmed) <= MAX_LAG_MS
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
                if !entry.is_fresh {
                    continue;
                }
                self.served_fresh += 1;
                let text = key_text(*key);
                let wrong = self.acknowledged.iter().find(|purge| {
                    let is_about = match &purge.target {
                        Target::Key(other) => *other == text,
                        _ => true,
                    };
                    let is_older = entry.asked_ms < purge.issued_ms;
                    is_about && is_older && now - purge.at_ms > MAX_LAG_MS
                });
                if let Some(purge) = wrong {
                    let name = &node.name;
                    return Err(format!(
                        "{now}: {name} serves {key}, {entry:?} after {purge:?}"
                    ));
                }
            }
        }
        // What was purged long ago is found, or never.
        self.acknowledged.retain(|it| now - it.at_ms < 500_000);
        Ok(())
    }

    /// Ends all harm, and lets everybody work.
    pub(crate) fn heal(&mut self) {
        self.sent.clear();
        for index in 0..NODES {
            let node = &mut self.nodes[index];
            node.is_cut_off = false;
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
