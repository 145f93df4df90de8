//! A node: its disk, which outlives it, and what it knows while it runs.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;

use millpond_cache::purge::position::Position;
use millpond_cache::purge::{Mode, Target};
use millpond_fleet::follower::Replica;
use millpond_fleet::{Follower, Record};

use crate::log::key_text;
use crate::world::Flaw;

/// A stored answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stored {
    /// Time at which the origin was asked.
    pub(crate) asked_ms: u64,
    pub(crate) is_fresh: bool,
}

/// A fill that runs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fill {
    pub(crate) key: u8,
    pub(crate) asked_ms: u64,
    pub(crate) is_purged: bool,
}

/// State that a crash leaves, and the fills, which it does not.
#[derive(Debug, Default)]
pub(crate) struct Disk {
    pub(crate) position: Option<Position>,
    pub(crate) entries: HashMap<u8, Stored>,
    pub(crate) fills: Vec<Fill>,
    /// True if the disk refuses what is written next.
    pub(crate) is_failing: bool,
    /// True if the process ends in the midst of what is written next.
    pub(crate) ends_within: bool,
}

impl Disk {
    pub(crate) fn purge(&mut self, target: &Target, mode: Mode) {
        let is_about = |key: &u8| match target {
            Target::Key(text) => *text == key_text(*key),
            _ => true,
        };
        for fill in self.fills.iter_mut().filter(|fill| is_about(&fill.key)) {
            fill.is_purged = true;
        }
        match mode {
            Mode::Hard => self.entries.retain(|key, _| !is_about(key)),
            Mode::Soft => {
                let about = self.entries.iter_mut().filter(|(key, _)| is_about(key));
                about.for_each(|(_, entry)| entry.is_fresh = false);
            }
        }
    }
}

/// The zone of a node that runs.
#[derive(Clone, Debug)]
pub(crate) struct ModelZone {
    pub(crate) disk: Rc<RefCell<Disk>>,
    pub(crate) confirmed_ms: Rc<Cell<u64>>,
    pub(crate) now_ms: Rc<Cell<u64>>,
    pub(crate) flaw: Flaw,
}

impl Replica for ModelZone {
    type Error = ();

    fn name(&self) -> &[u8] {
        b"z"
    }

    fn position(&self) -> Option<Position> {
        self.disk.borrow().position
    }

    fn take(&self, purges: &[(Target, Mode)], position: Position) -> Result<(), ()> {
        let mut disk = self.disk.borrow_mut();
        if std::mem::take(&mut disk.is_failing) {
            return Err(());
        }
        // What is one record is there or is not.
        if std::mem::take(&mut disk.ends_within) {
            if self.flaw == Flaw::NotesThePositionFirst {
                disk.position = Some(position);
            }
            return Err(());
        }
        for (target, mode) in purges {
            disk.purge(target, *mode);
        }
        disk.position = Some(position);
        Ok(())
    }

    fn confirm(&self, at_ms: u64) {
        let at_ms = match self.flaw {
            Flaw::ConfirmsWhenItHears => self.now_ms.get(),
            _ => at_ms,
        };
        self.confirmed_ms.set(self.confirmed_ms.get().max(at_ms));
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
}

#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) name: String,
    pub(crate) disk: Rc<RefCell<Disk>>,
    pub(crate) live: Option<Live>,
    pub(crate) is_cut_off: bool,
    pub(crate) paused_until_ms: u64,
    /// Error of the node's wall clock.
    pub(crate) clock_error_ms: i64,
}
