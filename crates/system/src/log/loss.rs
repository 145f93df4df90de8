//! Loss of logs: counted for the process, and said in the error log once a second at most.
//!
//! A log never stops a request. So a full disk, a reader that does not read, or a syslog server
//! that is away costs lines; this file is where the operator learns of that.
//!
//! Invariants:
//! 1. A lost line is counted once, under one reason.
//! 2. One log reports once a second at most, and then all that it lost since its last report.
//! 3. A report that is lost itself leads to no other report within the same second.

use std::fmt;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use super::error::{self, Level};
use crate::clock;

/// The reason why lines are lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// The file refused them: the disk is full, the file is gone.
    File,
    /// The queue before a slow file is full.
    Queue,
    /// The syslog server, or the journal, is away or does not keep up.
    Syslog,
}

/// The sums of the process, by reason.
static LOST: [AtomicU64; 3] = [const { AtomicU64::new(0) }; 3];

/// Lines that the process's logs lost since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lost {
    /// Refused by files.
    pub file: u64,
    /// Before slow files.
    pub queue: u64,
    /// On the way to syslog servers and the journal.
    pub syslog: u64,
}

/// Loss of one log that is not told yet.
#[derive(Debug, Default)]
pub struct Loss {
    untold: AtomicU64,
    /// The second of the last report.
    told_s: AtomicI64,
}

impl Loss {
    /// Counts lines, and tells of them if the last report was not in this second.
    pub fn note(&self, why: Why, level: Level, lines: u64, what: fmt::Arguments<'_>) {
        // The discriminants are the indices of the table.
        if let Some(sum) = LOST.get(why as usize) {
            sum.fetch_add(lines, Ordering::Relaxed);
        }
        self.untold.fetch_add(lines, Ordering::Relaxed);
        let now_s = clock::now_ms() / 1000;
        // INVARIANTS 2 and 3: whoever changes the second tells.
        if self.told_s.swap(now_s, Ordering::Relaxed) != now_s {
            let untold = self.untold.swap(0, Ordering::Relaxed);
            error::process(level, format_args!("{what}, {untold} lines lost"));
        }
    }
}

/// The sums of the process.
pub fn lost() -> Lost {
    let [file, queue, syslog] = LOST.each_ref().map(|sum| sum.load(Ordering::Relaxed));
    Lost {
        file,
        queue,
        syslog,
    }
}
