//! Letting another process have the directory, taking it back, and other limits meanwhile.
//!
//! ```text
//!            lend                          take_back
//!   ours ──────────► lent: nothing is found ──────────► ours, opened again
//! ```
//!
//! [`Volume::lend`] ends the possession as a close does: what was finished is written, every
//! segment has its summary, the superblock says `Clean` and its lock is free. But fills that run go
//! on, so that whoever reads along gets the whole body: each is granted space in segments before
//! the lock is released, and the rest of its body goes there. For the next owner this space is a
//! stretch of a segment that no record names. Such a fill makes no entry.
//!
//! 1. From the moment in which the lock is free, nothing is written but what was granted.
//! 2. A segment with granted space, or with the slices of a fill that runs, is never continued by
//!    the next owner, nor after a crash of it: it is left without room and with a summary.
//! 3. Granted space is within the limit of the zone, and at most a quarter of it.
//!
//! What the next owner evicts stays readable for those who read it here: they have it open. Its
//! space is free when they are done.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use crate::admit::{EXTENT, Hold};
use crate::choice::{Choice, Taking};
use crate::disk::open::SegmentFile;
use crate::disk::segment::{Place, Plan};
use crate::disk::writer::Job;
use crate::fill::{Fill, ViewState};
use crate::lock::{lock, write};
use crate::volume::{Admission, Inner, Volume, ZoneConf};

/// Granted to a fill whose length is not known. Arbitrary: most bodies of unknown length are pages.
const UNKNOWN_LEN: u64 = 8 << 20;
/// All grants together are at most one part in so many of what the zone can hold.
const GRANT_SHARE: u64 = 4;
/// The list of fills is cleaned of those that ended when it is longer than this, and then when it
/// has doubled.
const FEW_FILLS: usize = 64;

/// Limits that change while the zone is open; that of the files is the log's.
#[derive(Debug)]
pub(crate) struct Limits {
    inactive_s: AtomicU32,
    min_free: AtomicU64,
    /// Milliseconds; 0: never.
    scrub_ms: AtomicU64,
    /// Choice of what a full zone takes.
    pub(crate) choice: Choice,
}

impl Limits {
    /// Limits of a configuration.
    pub(crate) fn new(conf: &ZoneConf) -> Self {
        let limits = Self {
            inactive_s: AtomicU32::new(0),
            min_free: AtomicU64::new(0),
            scrub_ms: AtomicU64::new(0),
            choice: Choice::new(),
        };
        limits.set(conf);
        limits
    }

    fn set(&self, conf: &ZoneConf) {
        let inactive = u32::try_from(conf.inactive.as_secs()).unwrap_or(u32::MAX);
        self.inactive_s.store(inactive, Ordering::Relaxed);
        self.min_free.store(conf.min_free, Ordering::Relaxed);
        let scrub_ms = conf.scrub.map_or(0, |every| every.as_millis() as u64);
        self.scrub_ms.store(scrub_ms, Ordering::Relaxed);
        let limit = conf.max_size.unwrap_or(u64::MAX);
        let taking = match conf.admission {
            Admission::All => Taking::Everything,
            Admission::SecondHit => Taking::AskedFor,
            Admission::Trial => Taking::AskedForAndTrial,
        };
        self.choice.set(limit, taking);
    }

    /// Seconds after which an unused entry is gone.
    pub(crate) fn inactive_s(&self) -> u32 {
        self.inactive_s.load(Ordering::Relaxed)
    }

    /// Interval at which all entries are compared with their checksums; zero: never.
    pub(crate) fn scrub(&self) -> Duration {
        Duration::from_millis(self.scrub_ms.load(Ordering::Relaxed))
    }

    /// Bytes to leave free on the file system; 0: none.
    pub(crate) fn min_free(&self) -> u64 {
        self.min_free.load(Ordering::Relaxed)
    }
}

impl Volume {
    /// Puts other limits into force: `max_size`, `min_free`, `inactive`, `memory`, `scrub` and
    /// `admission`. Entries stay, as far as they fit. The rest of `conf` counts when the zone is
    /// opened again.
    pub(crate) fn change(&self, conf: ZoneConf) {
        self.set_limits(conf);
        self.sweep();
    }

    /// Sets the limits as [`Volume::change`] does, without waiting for the disk: the next sweep
    /// evicts.
    pub(crate) fn set_limits(&self, conf: ZoneConf) {
        let inner = &self.inner;
        inner.limits.set(&conf);
        lock(&inner.disk.log).plan = Plan::new(conf.max_size, conf.segment_size);
        inner.index.limit_memory(conf.memory);
        *lock(&self.conf) = conf;
    }

    /// Lets the directory go, for another process to open it. Later calls find nothing, and fills
    /// that run go on for their readers. Waits until what was finished is written.
    pub(crate) fn lend(&self) {
        self.inner.settle_lost();
        self.inner.lend();
    }
}

impl Inner {
    /// Ends the possession; false if it has ended already. Whoever was writing is done.
    pub(crate) fn shut_door(&self) -> bool {
        let _slow_ones = write(&self.slow_close_lock);
        let _alone = write(&self.close_lock);
        self.index.holdings().end();
        !self.closed.swap(true, Ordering::AcqRel)
    }

    /// True if nothing is written any more but what was granted.
    pub(crate) fn is_shut(&self) -> bool {
        self.is_shut.load(Ordering::Acquire)
    }

    /// Remembers a fill that begins.
    pub(crate) fn note_fill(&self, fill: &Arc<Fill>) {
        let mut fills = lock(&self.fills);
        // Doubling makes the cleaning cheap; `capacity` is where it was left last.
        if fills.len() >= FEW_FILLS && fills.len() == fills.capacity() {
            fills.retain(|fill| fill.strong_count() > 0);
        }
        fills.push(Arc::downgrade(fill));
    }

    /// True if a fill or a reader of one is left.
    pub(crate) fn has_fills(&self) -> bool {
        lock(&self.fills).iter().any(|fill| fill.strong_count() > 0)
    }

    fn lend(&self) {
        let fills: Vec<Arc<Fill>> = {
            let _slow_ones = write(&self.slow_close_lock);
            let _alone = write(&self.close_lock);
            if self.closed.swap(true, Ordering::AcqRel) {
                return;
            }
            let fills: Vec<_> = lock(&self.fills).iter().filter_map(Weak::upgrade).collect();
            fills.iter().for_each(|fill| fill.detach());
            fills
        };
        self.disk.queue.flush();
        let mut budget = self.capacity() / GRANT_SHARE;
        let mut holds = Vec::new();
        for fill in &fills {
            if fill.state().failed.is_some() {
                self.release(fill);
                continue;
            }
            let granted = self.reserve_rest(fill, &mut budget, &mut holds);
            fill.grant(granted);
        }
        let is_read = fills.iter().any(|fill| !fill.state().files.is_empty());
        if is_read || !holds.is_empty() {
            // INVARIANT 2.
            lock(&self.disk.log).fill_active();
        }
        {
            // Nothing is on its way from one list of files to the other.
            let _turn = lock(&self.disk.turning);
            self.disk.keep_pinned_open();
        }
        self.shut_down();
        // The thread ends with the last fill, and with it what the index takes.
        self.disk.queue.push(Job::Part);
    }

    /// Space for the rest of a body; none if it is not needed or cannot be had.
    fn reserve_rest(
        &self,
        fill: &Arc<Fill>,
        budget: &mut u64,
        holds: &mut Vec<Hold>,
    ) -> VecDeque<(Place, Arc<SegmentFile>)> {
        let mut granted = VecDeque::new();
        let (view, allocated) = {
            let state = fill.state();
            (state.view, state.allocated)
        };
        let rest = match fill.expected_len {
            Some(len) => len.saturating_sub(allocated),
            None => UNKNOWN_LEN,
        };
        // What is less than an extent stays in memory.
        let mut left = rest - rest % EXTENT;
        if view != ViewState::Filling || left > *budget {
            return granted;
        }
        let Some(this) = self.this.upgrade() else {
            return granted;
        };
        *budget -= left;
        let mut hold = Hold::new(this, Arc::clone(fill));
        while left > 0 {
            let wanted = u32::try_from(left).unwrap_or(u32::MAX);
            let Ok(place) = hold.reserve_extent(wanted) else {
                break;
            };
            let file = self.file_to_write(place.segment);
            self.end_reservation(place.segment);
            let Some(file) = file else {
                break;
            };
            left -= u64::from(place.size);
            granted.push_back((place, file));
        }
        holds.push(hold);
        granted
    }
}
