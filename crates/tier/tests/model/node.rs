//! A node: its disk, which outlives it, and what it knows while it runs.
//!
//! Purges are judged by the book that zones have, which writes its rules down on the disk here.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use millpond_cache::head::StoredHead;
use millpond_cache::lag::OnLag;
use millpond_cache::purge::log::LogPurge;
use millpond_cache::purge::notes::Notes;
use millpond_cache::purge::position::Position;
use millpond_cache::purge::{Judged, PurgeBook};
use millpond_fleet::follower::Replica;
use millpond_fleet::held::mixed;
use millpond_fleet::ledger::Ledgers;
use millpond_fleet::{Follower, Record};
use millpond_store::{Journal, JournalError, Keys};
use millpond_tier::judge::Known;

use crate::peers::Question;
use crate::tier::Copied;
use crate::world::{Flaw, MAX_LAG_MS};

/// The zone of all nodes.
pub(crate) const ZONE: &str = "z";
/// Records of a journal, beyond which it has no room.
const RECORDS_MAX: usize = 40;

/// A stored answer.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Stored {
    /// Time at which the origin was asked.
    pub(crate) asked_ms: u64,
    pub(crate) is_fresh: bool,
    pub(crate) head: StoredHead,
}

/// Place that a fill takes its answer from.
#[derive(Clone, Debug)]
pub(crate) enum Source {
    Origin,
    /// The tier, asked at a position; with the copy, once it was read.
    Tier(Position, Option<Box<Copied>>),
    /// Another node.
    Peer(Question),
}

/// A fill that runs.
#[derive(Clone, Debug)]
pub(crate) struct Fill {
    pub(crate) key: u8,
    pub(crate) asked_ms: u64,
    /// Newest purge of the zone when the fill began.
    pub(crate) serial: u64,
    pub(crate) source: Source,
}

/// State that a crash leaves, and the fills, which it does not.
#[derive(Debug, Default)]
pub(crate) struct Disk {
    pub(crate) records: Vec<Bytes>,
    pub(crate) entries: BTreeMap<u8, Stored>,
    pub(crate) fills: Vec<Fill>,
    /// True if the disk refuses what is written next.
    pub(crate) is_failing: bool,
    /// True if the process ends in the midst of what is written next.
    pub(crate) ends_within: bool,
}

/// The journal of a disk.
#[derive(Clone, Debug)]
pub(crate) struct Records(Rc<RefCell<Disk>>);

impl Records {
    /// Has a change written down, unless the disk fails.
    fn write(&self, change: impl FnOnce(&mut Vec<Bytes>)) -> Result<(), JournalError> {
        let mut disk = self.0.borrow_mut();
        let is_refused = std::mem::take(&mut disk.is_failing);
        // What is one order is there or is not.
        if std::mem::take(&mut disk.ends_within) || is_refused {
            return Err(JournalError::Disk(io::Error::other("refused")));
        }
        change(&mut disk.records);
        Ok(())
    }
}

impl Notes for Records {
    fn note_all(&self, records: &[Bytes]) -> Result<(), JournalError> {
        if self.0.borrow().records.len() + records.len() > RECORDS_MAX {
            return Err(JournalError::NoRoom);
        }
        self.write(|journal| journal.extend_from_slice(records))
    }

    fn rewrite_journal(&self, records: &[Bytes]) -> Result<(), JournalError> {
        self.write(|journal| *journal = records.to_vec())
    }
}

/// The zone of a node that runs.
#[derive(Clone, Debug)]
pub(crate) struct ModelZone {
    pub(crate) book: Arc<PurgeBook>,
    pub(crate) disk: Rc<RefCell<Disk>>,
    pub(crate) now_ms: Rc<Cell<u64>>,
    pub(crate) flaw: Flaw,
}

impl ModelZone {
    /// The zone as it is opened, with what its journal has.
    pub(crate) fn open(disk: &Rc<RefCell<Disk>>, now_ms: &Rc<Cell<u64>>, flaw: Flaw) -> ModelZone {
        let book = PurgeBook::new(Keys::for_tests());
        book.load(&Journal {
            records: disk.borrow().records.clone(),
            is_damaged: false,
            read_ms: now_ms.get(),
        });
        let max_lag = Duration::from_millis(MAX_LAG_MS);
        book.lag.join(max_lag, OnLag::Revalidate);
        ModelZone {
            book: Arc::new(book),
            disk: Rc::clone(disk),
            now_ms: Rc::clone(now_ms),
            flaw,
        }
    }

    pub(crate) fn records(&self) -> Records {
        Records(Rc::clone(&self.disk))
    }

    /// True if an entry is served without a question to the origin, by a zone that is trusted.
    pub(crate) fn is_fresh(&self, stored: &Stored) -> bool {
        stored.is_fresh && self.book.judge(&stored.head.subject()) == Judged::Untouched
    }

    /// Has purges come true in the entries, and forgets them.
    pub(crate) fn sweep(&self) {
        let newest = self.book.newest();
        let upto = {
            let disk = &mut *self.disk.borrow_mut();
            disk.entries
                .retain(|_, it| match self.book.judge(&it.head.subject()) {
                    Judged::Gone => false,
                    Judged::Stale { serial, .. } => {
                        it.is_fresh = false;
                        it.head.serial = serial;
                        true
                    }
                    Judged::Untouched => true,
                });
            let fills = disk.fills.iter().map(|fill| fill.serial);
            fills.min().unwrap_or(newest).min(newest)
        };
        // What cannot be written down is forgotten later.
        let _kept = self.book.retire(&self.records(), upto);
    }
}

impl Replica for ModelZone {
    type Error = JournalError;

    fn name(&self) -> &[u8] {
        ZONE.as_bytes()
    }

    fn position(&self) -> Option<Position> {
        let noted = self.book.position();
        noted.map(|position| mixed(position, ZONE.as_bytes()))
    }

    fn take(&self, purges: &[LogPurge], position: Position) -> Result<(), JournalError> {
        let position = mixed(position, ZONE.as_bytes());
        if self.flaw == Flaw::NotesThePositionFirst {
            let ends_within = std::mem::take(&mut self.disk.borrow_mut().ends_within);
            let nothing: (&[LogPurge], Position) = (&[], position);
            self.book
                .take(&self.records(), nothing, self.now_ms.get())?;
            self.disk.borrow_mut().ends_within = ends_within;
        }
        let order = (purges, position);
        let taken = self.book.take(&self.records(), order, self.now_ms.get());
        taken.map(drop)
    }

    fn confirm(&self, at_ms: u64) {
        self.book.confirm(match self.flaw {
            Flaw::ConfirmsWhenItHears => self.now_ms.get(),
            _ => at_ms,
        });
    }
}

/// A node that runs.
#[derive(Debug)]
pub(crate) struct Live {
    pub(crate) run: u8,
    pub(crate) follower: Follower<ModelZone>,
    pub(crate) zone: ModelZone,
    /// Log that is read, and up to where.
    pub(crate) session: Option<([u8; 16], u64)>,
    /// Records that are on their way.
    pub(crate) coming: Vec<Record>,
    pub(crate) purges: u64,
    pub(crate) ledgers: Ledgers,
    /// The same as `session`, of who reads into the ledgers.
    pub(crate) ledger_session: Option<([u8; 16], u64)>,
}

impl Live {
    /// Knowledge by which copies are judged at a position of the zone.
    pub(crate) fn known(&self, own: Position) -> Known<'_> {
        Known {
            ledgers: &self.ledgers,
            zone: ZONE,
            own,
        }
    }

    /// Nothing is known of the log any more that lies outside.
    pub(crate) fn close_ledgers(&mut self) {
        self.ledger_session = None;
        self.ledgers.forget();
    }
}

#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) name: String,
    pub(crate) disk: Rc<RefCell<Disk>>,
    pub(crate) live: Option<Live>,
    /// True if what it sends gets lost, and true if nothing comes to it.
    pub(crate) is_mute: bool,
    pub(crate) is_deaf: bool,
    pub(crate) paused_until_ms: u64,
    /// Error of the node's wall clock.
    pub(crate) clock_error_ms: i64,
}
