//! The health of a disk: when it is given up, and what it must not bring back.
//!
//! ```text
//!   well ──► failed ──abandon──► nothing is written any more ──let go──► another may open it
//! ```
//!
//! A volume that failed finds nothing and takes nothing; it remembers what changes meanwhile.
//!
//! A disk is given up at once when its directory is gone or it is read-only, and after some errors
//! in a row otherwise. One that has no space left is not: it goes on being read. Nor is the last
//! one, for single errors: what is in memory is found, and there is nobody to take over. A volume
//! that was given up stays so; the zone opens another one on the directory when that is back.
//!
//! What was changed and may not be on the device is remembered as keys, up to a bound: what was
//! written since the last sync that went well and, once the disk is given up, whatever happened to
//! its keys since.
//!
//! 1. A key that was removed or replaced is in the list, unless a sync began and went well after it
//!    was written, and no segment is there of which a write or a sync went wrong. So without the
//!    listed keys the disk has nothing that is out of date.
//! 2. The list is bounded; if it overflows, nothing on the disk can be trusted.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::thread::JoinHandle;

use hashbrown::HashSet;

use crate::admit::NotStored;
use crate::disk::format::Membership;
use crate::entry::Pins;
use crate::key::{Key, Secret};
use crate::lock::{lock, read, write};
use crate::volume::{Inner, Volume};
use crate::zone::placement::Share;

/// Writes, syncs, or reads, that must go wrong one after the other. Arbitrary: a sector that cannot
/// be read is one entry; a device that is gone answers each time.
const ERRORS_IN_A_ROW: u32 = 5;
/// Number of segments that, lost within a time, give a disk up, or let a lone one rest. Arbitrary:
/// the first may be a sector, the third is not.
const LOST_MOST: usize = 3;
/// Time within which the losses count, and for which a lone disk rests. Arbitrary: a thin volume
/// may be grown by then.
const LOST_WITHIN_MS: u64 = 600_000;
const REST_MS: u64 = 60_000;
/// Keys that are remembered: about ten megabytes.
const MAX_CHANGED: usize = 256 << 10;

/// Operation that was tried when an error came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tried {
    /// A record of a file that is open was read, or a segment was looked through.
    Read,
    /// A body was read or sent: records are found in memory long after a disk is gone.
    Body,
    /// A file that is open was written to.
    Write,
    /// A file or names were synced: the kernel takes what is written long after a disk is gone.
    Sync,
    /// A file was made.
    Create,
}

/// Fate of a disk that has lost a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Endured {
    /// The disk goes on, or is given up.
    Goes,
    /// The disk takes nothing for a while, from now on.
    Rests,
}

/// Keys of which something may not be on the device, up to a bound.
#[derive(Debug, Default)]
pub(crate) struct Changed {
    keys: HashSet<Key>,
    /// True if there were too many keys.
    is_over: bool,
}

impl Changed {
    /// True if the set is empty, and was never over its bound.
    pub(crate) fn is_empty(&self) -> bool {
        !self.is_over && self.keys.is_empty()
    }

    /// Adds a key.
    pub(crate) fn add(&mut self, key: Key) {
        if self.is_over {
            return;
        }
        self.keys.insert(key);
        if self.keys.len() > MAX_CHANGED {
            *self = Self::unknown();
        }
    }

    /// Set of which nobody knows the keys.
    pub(crate) fn unknown() -> Self {
        Self {
            keys: HashSet::new(),
            is_over: true,
        }
    }

    /// The keys; `None` if there were too many.
    pub(crate) fn into_keys(self) -> Option<HashSet<Key>> {
        (!self.is_over).then_some(self.keys)
    }
}

/// Health of a disk: counts of its errors, and what follows from them.
#[derive(Debug, Default)]
pub(crate) struct Health {
    /// Reason why the disk was given up; empty while it was not.
    failed: OnceLock<String>,
    reads: AtomicU32,
    bodies: AtomicU32,
    writes: AtomicU32,
    syncs: AtomicU32,
    /// True if there are other disks to take over.
    has_company: AtomicBool,
    /// Set while the file system has no room for a segment that the limit allows.
    is_full: AtomicBool,
    /// Set while someone sweeps.
    is_sweeping: AtomicBool,
    changed: Mutex<Changed>,
    /// Times when segments were lost, the last `LOST_MOST` of them; milliseconds since 1970.
    losses: Mutex<Vec<u64>>,
    /// Time when the rest began that a lone disk takes; 0 while there is none.
    rests_since_ms: AtomicU64,
    /// The keys that may be put in; all of them if there is no share.
    claim: Mutex<Option<Arc<Share>>>,
}

impl Health {
    /// True if the disk was given up.
    pub(crate) fn is_failed(&self) -> bool {
        self.failed.get().is_some()
    }

    /// Reason why the disk was given up.
    pub(crate) fn why(&self) -> Option<&str> {
        self.failed.get().map(String::as_str)
    }

    /// Gives the disk up.
    pub(crate) fn fail(&self, why: &str) {
        // A second reason adds nothing.
        let _ = self.failed.set(why.to_string());
    }

    /// Something was written.
    pub(crate) fn wrote(&self) {
        reset(&self.writes);
    }

    /// A file was synced.
    pub(crate) fn synced(&self) {
        reset(&self.syncs);
    }

    /// Something was read.
    pub(crate) fn has_read(&self) {
        reset(&self.reads);
    }

    /// A part of a body was read that was not in memory.
    pub(crate) fn has_read_body(&self) {
        reset(&self.bodies);
    }

    /// Something went wrong; gives the disk up if it is time.
    pub(crate) fn met(&self, error: &io::Error, tried: Tried) {
        let streak = match tried {
            Tried::Read => &self.reads,
            Tried::Body => &self.bodies,
            Tried::Write | Tried::Create => &self.writes,
            Tried::Sync => &self.syncs,
        };
        let must_fail = match severity(error, tried) {
            Severity::Fatal => true,
            Severity::Counts => {
                let row = streak.fetch_add(1, Ordering::Relaxed) + 1;
                row >= ERRORS_IN_A_ROW && self.has_company.load(Ordering::Relaxed)
            }
            Severity::Harmless => false,
        };
        if must_fail {
            self.fail(&error.to_string());
        }
    }

    /// A segment was lost (`loss`, invariant 5).
    pub(crate) fn lost_segment(&self, now_ms: u64) -> Endured {
        let mut losses = lock(&self.losses);
        losses.push(now_ms);
        // A clock that was set back says nothing.
        losses.retain(|at| now_ms.saturating_sub(*at) < LOST_WITHIN_MS && *at <= now_ms);
        if losses.len() < LOST_MOST {
            return Endured::Goes;
        }
        losses.remove(0);
        drop(losses);
        if self.has_company.load(Ordering::Relaxed) {
            self.fail("what is written there is lost");
            return Endured::Goes;
        }
        let before = self.rests_since_ms.swap(now_ms.max(1), Ordering::AcqRel);
        match before {
            0 => Endured::Rests,
            _ => Endured::Goes,
        }
    }

    /// Ends the rest before its time.
    pub(crate) fn end_rest(&self) {
        self.rests_since_ms.store(0, Ordering::Release);
    }

    /// True if nothing is to be stored, because what was stored lately was lost.
    pub(crate) fn rests(&self, now_ms: impl FnOnce() -> u64) -> bool {
        let since_ms = self.rests_since_ms.load(Ordering::Acquire);
        if since_ms == 0 {
            return false;
        }
        let is_over = now_ms().wrapping_sub(since_ms) >= REST_MS;
        if is_over {
            // Another rest may have begun meanwhile; then that holds.
            let (order, none) = (Ordering::AcqRel, Ordering::Acquire);
            let _ = self
                .rests_since_ms
                .compare_exchange(since_ms, 0, order, none);
        }
        !is_over
    }

    /// Says whether there are other disks to take over.
    pub(crate) fn set_company(&self, has_company: bool) {
        self.has_company.store(has_company, Ordering::Relaxed);
    }

    /// True if the file system had no room for a segment.
    pub(crate) fn is_full(&self) -> bool {
        self.is_full.load(Ordering::Relaxed)
    }

    /// Notes whether the file system had room for a segment.
    pub(crate) fn set_full(&self, is_full: bool) {
        self.is_full.store(is_full, Ordering::Relaxed);
    }

    /// Begins a sweep; false if there is one.
    pub(crate) fn begin_sweep(&self) -> bool {
        !self.is_sweeping.swap(true, Ordering::AcqRel)
    }

    /// Ends a sweep.
    pub(crate) fn end_sweep(&self) {
        self.is_sweeping.store(false, Ordering::Release);
    }

    /// Notes that something happened to a key; to be called after its segment is marked dirty.
    pub(crate) fn note(&self, key: Key) {
        lock(&self.changed).add(key);
    }

    /// True if it is known which entries on the disk may be out of date.
    pub(crate) fn is_trusted(&self) -> bool {
        !lock(&self.changed).is_over
    }

    /// Nothing on the disk can be trusted from now on.
    pub(crate) fn distrust(&self) {
        *lock(&self.changed) = Changed::unknown();
    }

    /// Takes the list for a sync that begins, or for good.
    pub(crate) fn take_changed(&self) -> Changed {
        std::mem::take(&mut lock(&self.changed))
    }

    /// Puts a list back: the sync did not go well.
    pub(crate) fn put_back(&self, taken: Changed) {
        let mut changed = lock(&self.changed);
        match taken.into_keys() {
            Some(keys) => keys.into_iter().for_each(|key| changed.add(key)),
            None => *changed = Changed::unknown(),
        }
    }

    /// True if an entry may be stored under this key.
    pub(crate) fn may_hold(&self, key: &Key) -> bool {
        let claim = lock(&self.claim);
        claim.as_ref().is_none_or(|share| share.has(key))
    }

    /// The keys that may be put in; all of them if there is no share.
    pub(crate) fn claim(&self) -> Option<Arc<Share>> {
        lock(&self.claim).clone()
    }

    /// Says which keys may be put in from now on.
    pub(crate) fn set_claim(&self, share: Option<Arc<Share>>) {
        *lock(&self.claim) = share;
    }
}

impl Volume {
    /// Stops using a disk that was given up: its fills end, and nothing waits for it any more.
    pub(crate) fn abandon(&self) {
        let inner = &self.inner;
        inner.disk.queue.close();
        // Whoever is inside comes out when the disk answers; nobody else goes in meanwhile.
        if !inner.shut_door() {
            return;
        }
        let fills: Vec<_> = lock(&inner.fills)
            .iter()
            .filter_map(Weak::upgrade)
            .collect();
        for fill in fills {
            fill.fail(NotStored::Disk);
        }
    }

    /// Lets go of a directory that was given up; false while something may still be written there.
    pub(crate) fn let_go(&self) -> bool {
        let mut thread = lock(&self.thread);
        let is_used = thread.as_ref().is_some_and(|thread| !thread.is_finished());
        if is_used || !self.inner.is_closed() || self.inner.loading.is_running() {
            return false;
        }
        // A disk thread that panicked writes nothing more either.
        let _ = thread.take().map(JoinHandle::join);
        self.inner.is_shut.store(true, Ordering::Release);
        self.inner.drop_files();
        true
    }

    /// Takes the keys that must not come back with the directory; `None` if nobody knows. For once,
    /// at the end.
    pub(crate) fn take_changed(&self) -> Option<HashSet<Key>> {
        let mut keys = self.inner.health.take_changed().into_keys()?;
        for shard in self.inner.index.shards() {
            keys.extend(read(shard).flights.keys().copied());
        }
        Some(keys)
    }
}

impl Inner {
    /// The set of disks that this one is of.
    pub(crate) fn membership(&self) -> Option<Membership> {
        *lock(&self.disk.membership)
    }

    /// Secret that the zone's keys are made with.
    pub(crate) fn secret(&self) -> Secret {
        *lock(&self.disk.secret)
    }

    /// Closes the files of a directory that nobody uses any more, so that its file system can be
    /// unmounted. Who still reads one keeps that open.
    fn drop_files(&self) {
        self.close_journal();
        self.drop_uses();
        write(&self.disk.files).clear();
        lock(&self.disk.log).retired.clear();
        // What was on its way to the disk is not found any more; its keys are still wanted.
        for shard in self.index.shards() {
            for entry in write(shard).flights.values_mut() {
                (entry.pins, entry.fill) = (Pins::None, None);
            }
        }
        // The last, because it is the one that is locked.
        *lock(&self.disk.superblock) = None;
    }

    /// True if there is nothing on the disk that could be out of date.
    pub(crate) fn is_bare(&self) -> bool {
        lock(&self.disk.log).segments.is_empty() && lock(&self.journal).is_bare()
    }
}

/// Writes only if there is something to change: all cores come by here.
fn reset(streak: &AtomicU32) {
    if streak.load(Ordering::Relaxed) != 0 {
        streak.store(0, Ordering::Relaxed);
    }
}

enum Severity {
    /// The error will not go away by itself.
    Fatal,
    /// A single such error says little.
    Counts,
    /// The error says nothing about the disk.
    Harmless,
}

/// True for an error of the disk or its file system, which no configuration can be blamed for.
pub fn is_disk_fault(error: &io::Error) -> bool {
    use rustix::io::Errno;
    let faults = [
        Errno::ROFS,
        Errno::IO,
        Errno::NODEV,
        Errno::NXIO,
        Errno::STALE,
        Errno::NOTCONN,
        Errno::UCLEAN,
        Errno::NOMEDIUM,
        Errno::TIMEDOUT,
        Errno::NOSPC,
        Errno::DQUOT,
    ];
    Errno::from_io_error(error).is_some_and(|errno| faults.contains(&errno))
}

fn severity(error: &io::Error, tried: Tried) -> Severity {
    use rustix::io::Errno;
    let Some(errno) = Errno::from_io_error(error) else {
        // Made by ourselves, for what is no longer in the table, or by a test.
        return Severity::Harmless;
    };
    match errno {
        Errno::ROFS | Errno::NODEV | Errno::NXIO | Errno::STALE | Errno::NOTCONN => Severity::Fatal,
        // A file that is open is read and written by no name.
        Errno::NOENT | Errno::NOTDIR | Errno::ACCESS | Errno::PERM if tried == Tried::Create => {
            Severity::Fatal
        }
        Errno::NOSPC | Errno::DQUOT | Errno::FBIG => Severity::Harmless,
        // The process or the machine, not the disk.
        Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::INTR | Errno::AGAIN => {
            Severity::Harmless
        }
        _ => Severity::Counts,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::io::Errno;

    #[test]
    fn disk_is_given_up_for_what_will_not_pass() {
        let table = [
            (Errno::ROFS, Tried::Write, 1, true),
            (Errno::NODEV, Tried::Read, 1, true),
            (Errno::NOENT, Tried::Create, 1, true),
            (Errno::NOENT, Tried::Write, 1, false),
            (Errno::IO, Tried::Write, ERRORS_IN_A_ROW - 1, false),
            (Errno::IO, Tried::Write, ERRORS_IN_A_ROW, true),
            (Errno::IO, Tried::Sync, ERRORS_IN_A_ROW, true),
            (Errno::IO, Tried::Read, ERRORS_IN_A_ROW, true),
            (Errno::IO, Tried::Body, ERRORS_IN_A_ROW, true),
            (Errno::NOSPC, Tried::Create, 100, false),
            (Errno::NOSPC, Tried::Write, 100, false),
            (Errno::MFILE, Tried::Create, 100, false),
        ];
        for (errno, tried, times, expected) in table {
            let health = Health::default();
            health.set_company(true);
            for _ in 0..times {
                health.met(&errno.into(), tried);
            }
            assert_eq!(health.is_failed(), expected, "{errno} {tried:?} {times}");
        }
    }

    #[test]
    fn success_ends_a_row_of_errors() {
        let health = Health::default();
        health.set_company(true);
        for _ in 0..100 {
            health.met(&Errno::IO.into(), Tried::Read);
            health.has_read();
            health.met(&Errno::IO.into(), Tried::Write);
            health.wrote();
        }
        assert!(!health.is_failed());
    }

    #[test]
    fn writes_that_go_well_hide_no_syncs_that_do_not() {
        let health = Health::default();
        health.set_company(true);
        for is_given_up in [false, false, false, false, true] {
            health.wrote();
            health.met(&Errno::IO.into(), Tried::Sync);
            assert_eq!(health.is_failed(), is_given_up);
        }
        let health = Health::default();
        health.set_company(true);
        for _ in 0..100 {
            health.met(&Errno::IO.into(), Tried::Sync);
            health.synced();
        }
        assert!(!health.is_failed());
    }

    #[test]
    fn last_disk_is_not_given_up_for_single_errors() {
        let health = Health::default();
        for _ in 0..100 {
            health.met(&Errno::IO.into(), Tried::Read);
        }
        assert!(!health.is_failed());
        health.met(&Errno::NODEV.into(), Tried::Write);
        assert!(health.is_failed());
    }

    #[test]
    fn changes_are_bounded_and_survive_a_sync_that_failed() {
        let health = Health::default();
        health.note(Key([1; 16]));
        let taken = health.take_changed();
        health.note(Key([2; 16]));
        health.put_back(taken);
        let keys = health.take_changed().into_keys().expect("few");
        assert_eq!(keys.len(), 2);
        for number in 0..=MAX_CHANGED as u64 {
            health.note(Key::of(&number.to_le_bytes()));
        }
        assert!(health.take_changed().into_keys().is_none());
    }
}
