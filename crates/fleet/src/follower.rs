//! The follower: takes the records of a log into zones, and knows how far behind they are.
//!
//! ```text
//!   away ── standing ──► each zone: goes on behind its position, or everything in it is stale
//!     ▲                         │
//!     └── closed, failed ── records: purges of others into the zones, with their position
//!                               ├─ own beat: heard
//!                               └─ end of the log: confirmed since what was heard was sent
//! ```
//!
//! The machine has no sockets, clocks or disks: what happens is told to it, in any order, and each
//! event is a method.
//!
//! 1. A zone is confirmed for the time at which a beat was made, once the beat has come back and
//!    the zone has taken everything up to a record, that one or a later one, which was the last of
//!    the log when it was sent. A purge before the beat may have been replaced by one of the same
//!    target behind it, and that by another; at the end of the log the last of them was sent, too.
//! 2. Purges and the position behind them are handed over together.
//! 3. A zone that fails to take something keeps its position, and is confirmed by nothing until it
//!    has taken it.
//! 4. What this process wrote is taken as well, though it was in force here before: it may have
//!    been long on its way, and have replaced a newer purge of another node in the log.
//! 5. The time of a position is that of the last end of the log before it. Entries that stood
//!    before an end were sent up to there; of others those may be gone that the log kept for too
//!    long until they were read.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use bytes::Bytes;
use millpond_cache::purge::log::{Issuer, LogPurge, PurgeId};
use millpond_cache::purge::position::Position;
use millpond_cache::purge::{Mode, Target};

use crate::entry::{Announced, Beat, Entry, Purge, Run};
use crate::gap::{Gap, RECORDS_MAX, Start, is_too_long, start};
use crate::log::{Record, Standing};

/// Beats that may be on their way (arbitrary: a minute of them).
const BEATS_MAX: usize = 64;
/// Nodes that are remembered by their beats (arbitrary; more is no fleet of today).
pub const MEMBERS_MAX: usize = 4096;
/// Positions are noted at least once in this time of the log, also without purges, so that a zone
/// that is away for a while is not taken for one that was away for long.
const NOTE_EVERY_MS: u64 = 600_000;

/// A zone that follows.
pub trait Replica {
    /// Failure to write something down.
    type Error;

    /// Name of the zone, by which purges name it.
    fn name(&self) -> &[u8];
    /// Position that is noted.
    fn position(&self) -> Option<Position>;
    /// Puts purges in force and notes the position with them; all or nothing.
    fn take(&self, purges: &[LogPurge], position: Position) -> Result<(), Self::Error>;
    /// All that was acknowledged before `at_ms`, of the clock that beats are made with, is in
    /// force.
    fn confirm(&self, at_ms: u64);
}

/// A node, by its last beat.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Process of the node.
    pub run: Run,
    /// Sequence up to which every purge is in force there.
    pub taken: u64,
    /// Time of the beat by the log's clock, milliseconds since 1970.
    pub at_ms: u64,
    /// Words of the node about itself.
    pub announced: Option<Announced>,
}

/// Counts of what happened, since the process began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Purges that were taken.
    pub taken: u64,
    /// Zones that began anew.
    pub gaps: u64,
    /// Entries that were not understood.
    pub unknown: u64,
    /// Beats of other processes that have the name of this node.
    pub rivals: u64,
}

#[derive(Debug)]
struct Followed<R> {
    replica: R,
    /// Up to where it has taken the log, which may be further than what is noted.
    reached: Option<Position>,
}

/// A purge of the log.
#[derive(Debug)]
struct Read {
    sequence: u64,
    /// Time of the last beat of this process before it; 0 for none.
    since_ms: u64,
    /// None if it is not understood.
    purge: Option<Purge>,
}

impl Read {
    /// The purge as a zone takes it, in a process; none if it is about another zone.
    fn for_zone(&self, zone: &[u8], run: Run) -> Option<LogPurge> {
        let Some(purge) = &self.purge else {
            // What is not understood was acknowledged.
            return Some(LogPurge {
                target: Target::All,
                mode: Mode::Hard,
                issuer: Issuer::Other,
                id: None,
                since_ms: self.since_ms,
            });
        };
        let issuer = if purge.run == run {
            Issuer::This
        } else {
            Issuer::Other
        };
        (purge.zone == zone).then(|| LogPurge {
            target: purge.target.clone(),
            mode: purge.mode,
            issuer,
            id: Some(PurgeId {
                run: purge.run,
                count: purge.count,
            }),
            since_ms: self.since_ms,
        })
    }
}

/// The machine.
#[derive(Debug)]
pub struct Follower<R> {
    node: String,
    run: Run,
    zones: Vec<Followed<R>>,
    /// Numbers of beats that have not come back, with their times.
    beats: VecDeque<(u64, u64)>,
    beat_count: u64,
    /// Words of this node about itself.
    announced: Option<Announced>,
    /// Time of the last beat that came back, the end of the log behind it or not.
    heard_ms: u64,
    /// Time of the last beat that came back before an end of the log.
    confirmed_ms: u64,
    /// Sequence of the last end of the log that all zones have taken.
    settled: u64,
    log: Option<[u8; 16]>,
    /// Time of the newest record that was seen, by the log's clock.
    newest_ms: u64,
    /// Time for which the log keeps entries.
    retain: Duration,
    members: BTreeMap<String, Member>,
    /// Nodes that were heard of since somebody asked.
    heard: BTreeSet<String>,
    /// Nodes that have left since somebody asked.
    left: BTreeSet<String>,
    counts: Counts,
    gaps: Vec<(Bytes, Gap)>,
    /// Numbers of purges of this process that came back since somebody asked.
    own: Vec<u64>,
}

impl<R: Replica> Follower<R> {
    /// A follower of this process for some zones.
    pub fn new(node: &str, run: Run, zones: Vec<R>) -> Self {
        let zones = zones.into_iter().map(|replica| Followed {
            reached: replica.position(),
            replica,
        });
        Follower {
            node: node.to_owned(),
            run,
            zones: zones.collect(),
            beats: VecDeque::new(),
            beat_count: 0,
            announced: None,
            heard_ms: 0,
            confirmed_ms: 0,
            settled: 0,
            log: None,
            newest_ms: 0,
            retain: Duration::ZERO,
            members: BTreeMap::new(),
            heard: BTreeSet::new(),
            left: BTreeSet::new(),
            counts: Counts::default(),
            gaps: Vec::new(),
            own: Vec::new(),
        }
    }

    /// Makes a beat at `now_ms`, which must be read before the beat is sent.
    pub fn beat(&mut self, now_ms: u64) -> Entry {
        self.beat_count += 1;
        if self.beats.len() >= BEATS_MAX {
            self.beats.pop_front();
        }
        self.beats.push_back((self.beat_count, now_ms));
        if let Some(announced) = &mut self.announced {
            let lag_ms = now_ms.saturating_sub(self.confirmed_ms);
            let is_known = self.confirmed_ms > 0;
            announced.lag_ms = u32::try_from(lag_ms).ok().filter(|_| is_known);
            announced.log = self.log;
        }
        Entry::Beat(Beat {
            run: self.run,
            count: self.beat_count,
            taken: self.settled,
            node: self.node.clone(),
            announced: self.announced.clone(),
        })
    }

    /// Words of this node about itself, for the beats from here on.
    pub fn announce(&mut self, announced: Option<Announced>) {
        self.announced = announced;
    }

    /// Name of the log that is followed.
    pub fn log(&self) -> Option<[u8; 16]> {
        self.log
    }

    /// Time of the newest record that was seen, by the log's clock, milliseconds since 1970.
    pub fn newest_ms(&self) -> u64 {
        self.newest_ms
    }

    /// Sequence up to which every purge is in force, itself or one that has replaced it.
    pub fn settled(&self) -> u64 {
        self.settled
    }

    /// Sequence behind which zones go on.
    pub fn taken(&self) -> u64 {
        let reached = self.zones.iter().map(|zone| zone.reached);
        let sequences = reached.map(|it| it.map_or(0, |position| position.sequence));
        sequences.min().unwrap_or(0)
    }

    /// The log stands so; the sequence behind which it is to be read.
    pub fn handle_standing(&mut self, standing: &Standing) -> Result<u64, R::Error> {
        // What it has lost at its end comes again with other entries.
        if self.log != Some(standing.log) || standing.last < self.settled {
            self.settled = 0;
        }
        self.log = Some(standing.log);
        self.retain = standing.retain;
        // What a feed of before has sent says nothing of the end of this one.
        self.heard_ms = 0;
        for index in 0..self.zones.len() {
            let Some(zone) = self.zones.get(index) else {
                break;
            };
            if let Start::Anew(gap) = start(zone.reached, standing) {
                self.begin_anew(index, gap, standing)?;
            }
        }
        Ok(if self.zones.is_empty() {
            standing.last
        } else {
            self.taken()
        })
    }

    /// There are so many records to be read. True if they are; else zones have begun anew, and the
    /// log is to be read from its end as it stands.
    pub fn handle_pending(&mut self, pending: u64, standing: &Standing) -> Result<bool, R::Error> {
        if pending <= RECORDS_MAX {
            return Ok(true);
        }
        for index in 0..self.zones.len() {
            self.begin_anew(index, Gap::TooMany, standing)?;
        }
        Ok(false)
    }

    fn begin_anew(&mut self, index: usize, gap: Gap, standing: &Standing) -> Result<(), R::Error> {
        let Some(zone) = self.zones.get_mut(index) else {
            return Ok(());
        };
        let position = Position {
            log: standing.log,
            sequence: standing.last,
            at_ms: standing.last_at_ms,
        };
        let all = LogPurge {
            target: Target::All,
            mode: Mode::Soft,
            issuer: Issuer::Other,
            // Other nodes do not know of it.
            id: None,
            since_ms: 0,
        };
        zone.replica.take(&[all], position)?;
        zone.reached = Some(position);
        self.counts.gaps += 1;
        let name = Bytes::copy_from_slice(zone.replica.name());
        self.gaps.push((name, gap));
        Ok(())
    }

    /// Zones that began anew since this was asked, with the reasons.
    pub fn take_gaps(&mut self) -> Vec<(Bytes, Gap)> {
        std::mem::take(&mut self.gaps)
    }

    /// Records of the log whose standing was told, in their order. After an error the log is to be
    /// opened again.
    pub fn handle_records(&mut self, records: &[Record]) -> Result<(), R::Error> {
        let Some(log) = self.log else { return Ok(()) };
        self.look_for_holes(log, records)?;
        let mut purges: Vec<Read> = Vec::new();
        let mut end = None;
        for record in records {
            match Entry::decode(&record.payload) {
                Some(Entry::Beat(beat)) => {
                    let own_ms = self.hear(beat, record).unwrap_or(0);
                    self.heard_ms = self.heard_ms.max(own_ms);
                }
                Some(Entry::Farewell { node, .. }) => self.forget(node),
                // INVARIANT 4.
                Some(Entry::Purge(purge)) => {
                    if purge.run == self.run {
                        self.own.push(purge.count);
                    }
                    purges.push(self.read(record, Some(purge)));
                }
                None => {
                    self.counts.unknown += 1;
                    purges.push(self.read(record, None));
                }
            }
            if record.pending == 0 {
                end = Some((record.sequence, self.heard_ms));
            }
        }
        let Some(last) = records.last() else {
            return Ok(());
        };
        self.newest_ms = last.at_ms;
        // INVARIANT 5.
        let ends = records.iter().rev().filter(|record| record.pending == 0);
        let whole_ms = ends.map(|record| record.at_ms).next();
        for zone in &mut self.zones {
            let before_ms = zone.reached.map(|position| position.at_ms);
            let position = Position {
                log,
                sequence: last.sequence,
                at_ms: whole_ms.or(before_ms).unwrap_or(last.at_ms),
            };
            self.counts.taken += zone.take((&purges, self.run), position)?;
        }
        // INVARIANT 1: all zones have taken all records by now.
        if let Some((sequence, at_ms)) = end {
            self.settled = sequence;
            self.zones.iter().for_each(|it| it.replica.confirm(at_ms));
            self.confirmed_ms = self.confirmed_ms.max(at_ms);
        }
        Ok(())
    }

    fn read(&self, record: &Record, purge: Option<Purge>) -> Read {
        Read {
            sequence: record.sequence,
            since_ms: self.heard_ms,
            purge,
        }
    }

    /// Begins anew what stood still for so long that entries may have been forgotten before they
    /// were read: a feed leaves those out without a word.
    fn look_for_holes(&mut self, log: [u8; 16], records: &[Record]) -> Result<(), R::Error> {
        for index in 0..self.zones.len() {
            let reached = self.zones.get(index).and_then(|zone| zone.reached);
            let Some(reached) = reached else { continue };
            let (mut whole_ms, mut before_ms) = (reached.at_ms, reached.at_ms);
            let mut has_hole = false;
            for record in records {
                let apart = Duration::from_millis(record.at_ms.saturating_sub(whole_ms));
                has_hole |= is_too_long(apart, self.retain);
                before_ms = record.at_ms;
                if record.pending == 0 {
                    whole_ms = record.at_ms;
                }
            }
            if has_hole {
                let standing = Standing {
                    log,
                    last: reached.sequence,
                    last_at_ms: before_ms,
                    retain: self.retain,
                };
                self.begin_anew(index, Gap::TooLong, &standing)?;
            }
        }
        Ok(())
    }

    /// Notes a beat; its time if it is one of this process.
    fn hear(&mut self, beat: Beat, record: &Record) -> Option<u64> {
        let is_own = beat.run == self.run;
        let count = beat.count;
        // What a process of before wrote stands before the first beat of this one.
        if !is_own && beat.node == self.node && self.confirmed_ms > 0 {
            self.counts.rivals += 1;
        }
        if self.members.len() < MEMBERS_MAX || self.members.contains_key(&beat.node) {
            let member = Member {
                run: beat.run,
                taken: beat.taken,
                at_ms: record.at_ms,
                announced: beat.announced,
            };
            self.heard.insert(beat.node.clone());
            self.members.insert(beat.node, member);
        }
        if !is_own {
            return None;
        }
        let mut at_ms = None;
        while let Some((own, sent_ms)) = self.beats.front().copied() {
            if own > count {
                break;
            }
            self.beats.pop_front();
            if own == count {
                at_ms = Some(sent_ms);
            }
        }
        at_ms
    }

    /// Notes that a node has left; its next beat makes it one again.
    fn forget(&mut self, node: String) {
        self.members.remove(&node);
        self.heard.remove(&node);
        self.left.insert(node);
    }

    /// Time up to which everything that was acknowledged is in force; 0 for never.
    pub fn confirmed_ms(&self) -> u64 {
        self.confirmed_ms
    }

    /// Nodes by name, as they were heard of last.
    pub fn members(&self) -> &BTreeMap<String, Member> {
        &self.members
    }

    /// Nodes that were heard of since this was asked.
    pub fn take_heard(&mut self) -> Vec<(String, Member)> {
        let heard = std::mem::take(&mut self.heard).into_iter();
        let known = heard.filter_map(|name| Some((name.clone(), self.members.get(&name)?.clone())));
        known.collect()
    }

    /// Numbers of purges of this process that came back by the log since this was asked.
    pub fn take_own(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.own)
    }

    /// Nodes that have left since this was asked; those that were heard of came back afterwards.
    pub fn take_left(&mut self) -> BTreeSet<String> {
        std::mem::take(&mut self.left)
    }

    /// Counts so far.
    pub fn counts(&self) -> Counts {
        self.counts
    }
}

impl<R: Replica> Followed<R> {
    /// Takes the purges that are about the zone, in a process; how many.
    fn take(&mut self, (purges, run): (&[Read], Run), position: Position) -> Result<u64, R::Error> {
        let reached = self.reached.map_or(0, |it| it.sequence);
        if position.sequence <= reached {
            return Ok(0);
        }
        let missing = purges.iter().filter(|it| it.sequence > reached);
        let name = self.replica.name();
        let own: Vec<LogPurge> = missing.filter_map(|it| it.for_zone(name, run)).collect();
        let noted_ms = self.replica.position().map_or(0, |it| it.at_ms);
        let is_old = position.at_ms.saturating_sub(noted_ms) >= NOTE_EVERY_MS;
        if !own.is_empty() || is_old {
            // INVARIANTS 2 and 3.
            self.replica.take(&own, position)?;
        }
        self.reached = Some(position);
        Ok(own.len() as u64)
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;

    /// A zone that keeps what it takes.
    #[derive(Debug, Default)]
    struct Kept(std::cell::RefCell<Vec<LogPurge>>);

    impl Replica for Kept {
        type Error = Infallible;

        fn name(&self) -> &[u8] {
            b"z"
        }

        fn position(&self) -> Option<Position> {
            None
        }

        fn take(&self, purges: &[LogPurge], _: Position) -> Result<(), Infallible> {
            self.0.borrow_mut().extend_from_slice(purges);
            Ok(())
        }

        fn confirm(&self, _: u64) {}
    }

    const RUN: Run = [1; 16];

    fn standing(last: u64) -> Standing {
        Standing {
            log: [7; 16],
            last,
            last_at_ms: 1_000,
            retain: Duration::ZERO,
        }
    }

    fn record(sequence: u64, entry: &Entry) -> Record {
        Record {
            sequence,
            at_ms: 1_000,
            pending: 0,
            payload: entry.encode(),
        }
    }

    fn purge(run: Run, count: u64) -> Entry {
        Entry::Purge(Purge {
            run,
            count,
            zone: Bytes::from_static(b"z"),
            mode: Mode::Hard,
            target: Target::Key(Bytes::from_static(b"k")),
        })
    }

    #[test]
    fn purges_are_known_by_their_names_and_by_the_own_beat_before_them() {
        let mut follower = Follower::new("n", RUN, vec![Kept::default()]);
        let beat = follower.beat(500);
        let Ok(_) = follower.handle_standing(&standing(0));
        let records = [
            record(1, &purge([2; 16], 8)),
            record(2, &beat),
            record(3, &purge(RUN, 9)),
        ];
        let Ok(()) = follower.handle_records(&records);
        let taken = follower.zones[0].replica.0.take();
        let mark = |purge: &LogPurge| (purge.id.map(|id| (id.run, id.count)), purge.since_ms);
        let seen: Vec<_> = taken.iter().map(mark).collect();
        // The first is about all, as the zone has followed no log before.
        let other = (Some(([2; 16], 8)), 0);
        assert_eq!(seen, [(None, 0), other, (Some((RUN, 9)), 500)]);
    }

    /// The second and the third are not far apart, but the first, which was read long before, and
    /// the end of the log are.
    #[test]
    fn what_was_forgotten_before_it_was_read_is_a_gap() {
        let mut follower = Follower::new("n", RUN, vec![Kept::default()]);
        let standing = Standing {
            retain: Duration::from_secs(80),
            ..standing(0)
        };
        let Ok(_) = follower.handle_standing(&standing);
        follower.take_gaps();
        for (sequence, at_ms, pending, gaps) in [
            (1, 10_000, 0, 0),
            (5, 76_000, 1, 0),
            (6, 96_000, 0, 1),
            (7, 97_000, 0, 0),
        ] {
            let record = Record {
                at_ms,
                pending,
                ..record(sequence, &purge([2; 16], sequence))
            };
            let Ok(()) = follower.handle_records(&[record]);
            assert_eq!(follower.take_gaps().len(), gaps, "{sequence}");
        }
    }

    /// Else an owner would answer who asks with a position that it has not come to.
    #[test]
    fn log_that_has_lost_its_end_is_not_taken_up_to_there() {
        let mut follower = Follower::new("n", RUN, vec![Kept::default()]);
        let Ok(_) = follower.handle_standing(&standing(0));
        let Ok(()) = follower.handle_records(&[record(9, &purge(RUN, 1))]);
        let Ok(_) = follower.handle_standing(&standing(9));
        assert_eq!(follower.settled(), 9);
        let Ok(_) = follower.handle_standing(&standing(5));
        assert_eq!(follower.settled(), 0);
    }
}
