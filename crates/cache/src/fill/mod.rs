//! Fills: at most one origin request per missing entry, shared by everybody who wants it.
//!
//! ```text
//!         enter: nobody there             begin(head, view)             end
//!  (none) ───────────────────► Requested ───────────────────► Streaming ─────► Ended
//!                                  │ end(why)                                    ▲
//!                                  └─────────────────────────────────────────────┘
//! ```
//!
//! An end is `Complete` or says why not. [`Fills::enter`] gives [`Ticket::Lead`] to the first and
//! [`Ticket::Wait`] to the others. The [`Lead`] is a guard: dropped in any way it ends the fill and
//! wakes every waiter. Waiters on other threads are woken at once, and none polls (`watched.rs`).
//!
//! Invariants:
//! 1. A key has at most one fill in the table. A fill that has not moved for `proxy_cache_lock_age`
//!    is replaced in the table; it goes on for those who read from it. Fills that nobody is to wait
//!    for run beside it ([`Fills::beside`]).
//! 2. A fill that has ended is not in the table.
//! 3. Whoever waits is told the end, whatever it is.
//! 4. Of the fills of a key one writes: the first whose head arrives ([`Lead::claim`]). Only a
//!    writer that has stood still for `proxy_cache_lock_age` gets a second one beside it.
//! 5. A fill is joined, and its end told, by its own text only. One whose text has the key of
//!    another's runs beside that; which of them is stored last stays.
//! 6. A fill that was purged is replaced in the table by the next who comes; it goes on for those
//!    who read from it, and is found by nobody.

pub mod again;
pub mod lock;
pub mod pump;
pub mod rest;
mod watched;

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use millpond_store::{Key, View};
use tokio::time::Instant;

use self::pump::Reader;
use self::rest::Rest;
use self::watched::Watched;
use crate::exchange::FetchEnd;
use crate::head::StoredHead;
use crate::purge::PurgeBook;
use crate::purge::running::{Running, RunningFill, Runs};
use crate::slice::Trust;
use crate::slice::generation::Generation;
use crate::slice::version::Validator;
use crate::use_stale::StaleCause;

/// Locks the table of fills is split into, so that workers seldom meet (arbitrary).
const SHARDS: usize = 64;

/// The progress of a fill that runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FillProgress {
    /// Range of the bytes that have come and are to come: from here, up to now, to there if that is
    /// known.
    pub from: u64,
    /// Offset that the body has come to.
    pub at: u64,
    /// Offset at which the body ends.
    pub end: Option<u64>,
    /// Time for which the fill has run; not known of slices.
    pub since: Option<Duration>,
    /// Number of those that wait for the fill or read along.
    pub followers: u32,
}

/// State of a fill.
#[derive(Clone, Debug)]
enum FillState {
    /// The origin has been asked.
    Requested,
    /// The head is known and the body arrives.
    Streaming(Arc<Streaming>),
    /// Over.
    Ended(FillEnd),
}

/// A fill whose head is known.
#[derive(Debug)]
pub struct Streaming {
    /// The head that will be stored.
    pub head: StoredHead,
    /// Length of the body when the origin announced it.
    pub length: Option<u64>,
    /// False when only the closing of the origin's connection ends the body: until then nobody can
    /// tell a body that is whole from one that is stuck.
    pub is_delimited: bool,
    /// The body as far as it has come.
    pub view: View,
    /// Rest of the body after the store has given up.
    pub rest: Arc<Rest>,
    /// Slices of the same version, for ranges that lie ahead.
    pub ahead: OnceLock<Arc<Generation>>,
}

impl Streaming {
    /// Reader of the fill from the first byte on; `None` where that is too late.
    pub fn reader(&self) -> Option<Reader> {
        Reader::new(&self.view, &self.rest)
    }

    /// True if a reader that has a part of the body can have the rest for another request: the
    /// version is known for sure, and the origin says that it serves ranges.
    pub fn can_resume(&self) -> bool {
        can_resume(&self.head, self.length)
    }
}

/// True if a body with this head can be had in parts.
pub fn can_resume(head: &StoredHead, length: Option<u64>) -> bool {
    let ranges = head.field(b"accept-ranges");
    let is_known = || Validator::of_head(head, Trust::Validated).is_some();
    head.status == 200 && length.is_some() && has_ranges(ranges.as_deref()) && is_known()
}

/// True if a value of Accept-Ranges says that there are parts.
fn has_ranges(told: Option<&[u8]>) -> bool {
    told.is_some_and(|value| value.eq_ignore_ascii_case(b"bytes"))
}

/// End of a fill.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FillEnd {
    /// The entry is in the store.
    Complete,
    /// The entry is there with the body that it had before.
    Unchanged,
    /// The answer was not one to store; each waiter must ask for itself.
    NotStorable,
    /// The request's answer was kept out, for its own sake (`proxy_no_cache`); others' may be
    /// stored.
    Withheld,
    /// No answer came.
    Failed {
        /// The status that the leader's client was given.
        status: u16,
        /// Word of `proxy_cache_use_stale` for the failure.
        cause: Option<StaleCause>,
    },
    /// The origin answered with this error status, and the stale entry was kept instead.
    KeptStale(u16),
    /// The body broke off.
    Broken(FetchEnd),
    /// Given up half-way, or before the head.
    Abandoned,
}

/// Facts about a fill for those outside.
#[derive(Clone, Debug)]
pub struct FillSummary {
    /// Text of the fill's cache key.
    pub text: Bytes,
    /// Time since the fill began.
    pub age: Duration,
    /// Time for which the fill has stood still.
    pub idle: Duration,
    /// Status of the answer, once that is there.
    pub status: Option<u16>,
    /// Tags of the answer, among them site and host.
    pub tags: Option<Bytes>,
    /// Bytes of the body that came.
    pub received: u64,
    /// Length of the body, when the origin announced it.
    pub length: Option<u64>,
    /// Number of those besides the leader that wait for the fill or have read along.
    pub followers: u32,
}

/// The running fills of a zone.
#[derive(Debug)]
pub struct Fills {
    shards: Vec<Mutex<Shard>>,
    purges: Arc<PurgeBook>,
}

type Shard = HashMap<Key, Arc<Fill>, BuildHasherDefault<KeyHasher>>;

#[derive(Debug)]
struct Fill {
    state: Watched<FillState>,
    /// State of the fill as purges see it.
    running: Running,
    started: Instant,
    /// Time when the fill last moved, in milliseconds after its start.
    moved_ms: AtomicU64,
    /// True if the fill is the one that writes the entry.
    writes: AtomicBool,
    /// True if a newer answer is being written in the place of this one.
    is_outdated: AtomicBool,
    /// The fill whose place this one has taken: an older answer, still arriving.
    over: Mutex<Option<Arc<Fill>>>,
    /// Number of those that read along.
    joined: AtomicU32,
}

/// Part of a request that wants to fill: leader or waiter.
#[derive(Debug)]
pub enum Ticket {
    /// The request must fill.
    Lead(Lead),
    /// Another request fills the entry.
    Wait(Waiter),
}

/// The obligation to end a fill.
#[derive(Debug)]
pub struct Lead {
    key: Key,
    fill: RunningFill<Fill>,
    fills: Arc<Fills>,
    /// End that the fill has when the guard is dropped.
    end: FillEnd,
}

/// A place among those who wait.
#[derive(Debug)]
pub struct Waiter {
    key: Key,
    fill: Arc<Fill>,
}

/// Result of waiting for a fill.
#[derive(Debug)]
pub enum Waited {
    /// The head is there; the body can be read as it arrives.
    Streaming(Arc<Streaming>),
    /// The fill is over.
    Ended(FillEnd),
    /// The deadline came first.
    TimedOut,
}

impl Fills {
    /// No fills yet; which of them still count is in the book of purges.
    pub fn new(purges: Arc<PurgeBook>) -> Self {
        Fills {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            purges,
        }
    }

    /// Leads the fill of `key`, or waits for the one of the same `text` that runs, has moved within
    /// `age` and was not purged. `text` is the text of the cache key.
    pub fn enter(self: &Arc<Self>, key: Key, text: &Bytes, age: Duration) -> Ticket {
        let mut shard = self.shard(&key);
        let lead = match shard.entry(key) {
            // INVARIANT 5.
            Entry::Occupied(place) if place.get().running.text() != text => {
                self.new_lead(key, text)
            }
            Entry::Occupied(place) if self.counts(place.get(), age) => {
                return Ticket::Wait(Waiter::new(key, place.get()));
            }
            Entry::Occupied(mut place) => {
                let lead = self.new_lead(key, text);
                place.insert(Arc::clone(&lead.fill));
                lead
            }
            Entry::Vacant(place) => {
                let lead = self.new_lead(key, text);
                place.insert(Arc::clone(&lead.fill));
                lead
            }
        };
        drop(shard);
        Ticket::Lead(lead)
    }

    /// True if a fill has moved within `age` and was not purged.
    fn counts(&self, fill: &Fill, age: Duration) -> bool {
        fill.has_moved_within(age) && !fill.running.is_purged(&self.purges)
    }

    /// Leads a fill beside the one that runs: nobody finds it before it writes.
    pub fn beside(self: &Arc<Self>, key: Key, text: &Bytes) -> Lead {
        self.new_lead(key, text)
    }

    /// Leads a fill in the place of one whose answer serves nobody who comes now, or waits for the
    /// one that has its place already.
    pub fn instead_of(self: &Arc<Self>, waiter: &Waiter) -> Ticket {
        let (key, text) = (waiter.key, waiter.fill.running.text());
        let mut shard = self.shard(&key);
        let lead = match shard.get(&key) {
            // INVARIANT 5.
            Some(other) if other.running.text() != text => self.new_lead(key, text),
            Some(other) if !Arc::ptr_eq(other, &waiter.fill) => {
                return Ticket::Wait(Waiter::new(key, other));
            }
            _ => {
                let lead = self.new_lead(key, text);
                shard.insert(key, Arc::clone(&lead.fill));
                lead
            }
        };
        *lead.fill.older() = Some(Arc::clone(&waiter.fill));
        Ticket::Lead(lead)
    }

    fn new_lead(self: &Arc<Self>, key: Key, text: &Bytes) -> Lead {
        let make = |running| Arc::new(Fill::new(running));
        Lead {
            key,
            fill: self.purges.begin(text.clone(), make),
            fills: Arc::clone(self),
            end: FillEnd::Abandoned,
        }
    }

    /// Number of running fills.
    pub fn len(&self) -> usize {
        self.shards.iter().map(|shard| guard(shard).len()).sum()
    }

    /// The fills that run, in no order, at most so many of them.
    pub fn list(&self, most: usize) -> Vec<FillSummary> {
        let mut fills = Vec::new();
        for shard in &self.shards {
            // Looked at without the lock.
            let left = most.saturating_sub(fills.len());
            fills.extend(guard(shard).values().take(left).cloned());
        }
        fills.iter().map(|fill| fill.summary()).collect()
    }

    /// True while somebody fills `key`.
    pub fn has(&self, key: &Key) -> bool {
        self.shard(key).contains_key(key)
    }

    /// The fill of a key with this text, if one runs.
    pub fn running(&self, key: &Key, text: &[u8]) -> Option<FillProgress> {
        let fill = Arc::clone(self.shard(key).get(key)?);
        if fill.running.text() != text {
            return None;
        }
        let (at, end) = match &*fill.state.value() {
            FillState::Streaming(streaming) => (streaming.view.len(), streaming.length),
            FillState::Requested | FillState::Ended(_) => (0, None),
        };
        Some(FillProgress {
            from: 0,
            at,
            end,
            since: Some(fill.started.elapsed()),
            followers: fill.followers(),
        })
    }

    /// True when nothing is being filled.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn shard(&self, key: &Key) -> MutexGuard<'_, Shard> {
        // INVARIANT: there are SHARDS shards, and the remainder is below that.
        guard(&self.shards[usize::from(key.0[15]) % SHARDS])
    }

    fn leave(&self, key: &Key, fill: &Arc<Fill>) {
        let mut shard = self.shard(key);
        if let Entry::Occupied(place) = shard.entry(*key)
            && Arc::ptr_eq(place.get(), fill)
        {
            place.remove();
        }
    }
}

fn guard(shard: &Mutex<Shard>) -> MutexGuard<'_, Shard> {
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Runs for Fill {
    fn running(&self) -> &Running {
        &self.running
    }
}

impl Fill {
    fn new(running: Running) -> Self {
        Fill {
            state: Watched::new(FillState::Requested),
            running,
            started: crate::clock::now(),
            moved_ms: AtomicU64::new(0),
            writes: AtomicBool::new(false),
            is_outdated: AtomicBool::new(false),
            over: Mutex::default(),
            joined: AtomicU32::new(0),
        }
    }

    fn summary(&self) -> FillSummary {
        let state = self.state.value().clone();
        let streaming = match state {
            FillState::Streaming(streaming) => Some(streaming),
            FillState::Requested | FillState::Ended(_) => None,
        };
        let head = streaming.as_ref().map(|streaming| &streaming.head);
        FillSummary {
            text: self.running.text().clone(),
            age: self.started.elapsed(),
            idle: self.idle(),
            status: head.map(|head| head.status),
            tags: head.map(|head| head.tags.clone()),
            received: streaming.as_ref().map_or(0, |it| it.view.len()),
            length: streaming.as_ref().and_then(|it| it.length),
            followers: self.followers(),
        }
    }

    /// The fill whose place this one has taken, until it writes.
    fn older(&self) -> MutexGuard<'_, Option<Arc<Fill>>> {
        self.over.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Time from the start of the fill to its last move.
    fn moved_after(&self) -> Duration {
        Duration::from_millis(self.moved_ms.load(Ordering::Relaxed))
    }

    /// Number of those that read along or wait.
    fn followers(&self) -> u32 {
        let joined = self.joined.load(Ordering::Relaxed);
        joined.saturating_add(self.state.listeners())
    }

    /// True if the fill has moved within `age`; for ever is asked of no clock.
    fn has_moved_within(&self, age: Duration) -> bool {
        age == Duration::MAX || self.idle() < age
    }

    /// Time for which the fill has stood still.
    fn idle(&self) -> Duration {
        self.started.elapsed().saturating_sub(self.moved_after())
    }
}

impl Lead {
    /// The key that is filled.
    pub fn key(&self) -> &Key {
        &self.key
    }

    /// The serial of the newest purge when the fill began: that of the head that it stores.
    pub fn serial(&self) -> u64 {
        self.fill.serial()
    }

    /// The head that will be stored is known.
    pub fn know(&self, head: &StoredHead) {
        self.fill.know(head.tags.clone());
    }

    /// True if a purge is about the fill already.
    pub fn is_purged(&self) -> bool {
        self.fill.is_purged()
    }

    /// Takes the entry to write it; false while another fill writes it that has moved within `age`,
    /// and for one that was purged. Who comes later finds this fill.
    pub fn claim(&self, age: Duration) -> bool {
        if self.is_purged() {
            return false;
        }
        let mut shard = self.fills.shard(&self.key);
        if let Some(other) = shard.get(&self.key)
            && !Arc::ptr_eq(other, &self.fill)
            && other.writes.load(Ordering::Relaxed)
            && self.fills.counts(other, age)
        {
            return false;
        }
        // Read and written under the lock of the shard only.
        self.fill.writes.store(true, Ordering::Relaxed);
        if let Some(older) = self.fill.older().take() {
            older.is_outdated.store(true, Ordering::Relaxed);
        }
        shard.insert(self.key, Arc::clone(&self.fill));
        true
    }

    /// True if the answer may be stored; asked right before it is, and for the last time. If not,
    /// it was purged or a newer one is there, and must be found by nobody.
    pub fn may_store(&self) -> bool {
        self.fill.may_store() && !self.fill.is_outdated.load(Ordering::Relaxed)
    }

    /// The head is known: waiters may read.
    pub fn begin(&self, streaming: Arc<Streaming>) {
        self.moved();
        self.know(&streaming.head);
        let streaming = FillState::Streaming(streaming);
        self.fill.state.set(streaming);
    }

    /// More of the body has come: the fill does not grow old.
    pub fn moved(&self) {
        let elapsed = self.fill.started.elapsed().as_millis();
        let elapsed = u64::try_from(elapsed).unwrap_or(u64::MAX);
        self.fill.moved_ms.store(elapsed, Ordering::Relaxed);
    }

    /// Number of those besides the leader that have the answer, or will find it: those who read
    /// along, and those who still wait.
    pub fn followers(&self) -> u32 {
        self.fill.followers()
    }

    /// The fill is over.
    pub fn end(mut self, end: FillEnd) {
        self.end = end;
    }
}

impl Drop for Lead {
    fn drop(&mut self) {
        // Out of the table first: who is woken must not find it there again.
        self.fills.leave(&self.key, &self.fill);
        let end = FillState::Ended(self.end);
        self.fill.state.set(end);
    }
}

impl Waiter {
    fn new(key: Key, fill: &Arc<Fill>) -> Self {
        fill.state.enter();
        Waiter {
            key,
            fill: Arc::clone(fill),
        }
    }

    /// The key that is filled.
    pub fn key(&self) -> &Key {
        &self.key
    }

    /// Notes that the waiter reads along, and waits no more.
    pub fn join(self) {
        self.fill.joined.fetch_add(1, Ordering::Relaxed);
    }

    /// State of the fill without waiting; `None` while the origin has not answered.
    pub fn now(&self) -> Option<Waited> {
        match &*self.fill.state.value() {
            FillState::Requested => None,
            FillState::Streaming(streaming) => Some(Waited::Streaming(Arc::clone(streaming))),
            FillState::Ended(end) => Some(Waited::Ended(*end)),
        }
    }

    /// Time when the fill will have stood still for `age`, if it does not move; `None` for never.
    pub fn grows_old_at(&self, age: Duration) -> Option<Instant> {
        let moved = self.fill.started.checked_add(self.fill.moved_after())?;
        moved.checked_add(age)
    }

    /// True when the fill has stood still for `age`.
    pub fn is_old(&self, age: Duration) -> bool {
        self.fill.idle() >= age
    }

    /// Waits for the head, if the body will end by itself, or else for the end.
    pub async fn wait(&self, deadline: Instant) -> Waited {
        let known = self.fill.state.until(|state| match state {
            FillState::Streaming(streaming) if streaming.is_delimited => {
                Some(Waited::Streaming(Arc::clone(streaming)))
            }
            FillState::Requested | FillState::Streaming(_) => None,
            FillState::Ended(end) => Some(Waited::Ended(*end)),
        });
        let waited = tokio::time::timeout_at(deadline, known).await;
        waited.unwrap_or(Waited::TimedOut)
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        self.fill.state.leave();
    }
}

/// Keys are hashes already.
#[derive(Default)]
struct KeyHasher(u64);

impl Hasher for KeyHasher {
    fn write(&mut self, bytes: &[u8]) {
        // A key's first bytes are as good a hash as all of them.
        if let Some(word) = bytes.first_chunk() {
            self.0 ^= u64::from_le_bytes(*word);
        }
    }

    // Keys are of one length, which need not be told.
    fn write_usize(&mut self, _len: usize) {}

    fn finish(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Default for Fills {
        fn default() -> Self {
            let keys = millpond_store::Keys::for_tests();
            Fills::new(Arc::new(PurgeBook::new(keys)))
        }
    }

    const AGE: Duration = Duration::from_secs(5);

    fn key() -> Key {
        Key::of(b"k")
    }

    fn text() -> Bytes {
        Bytes::from_static(b"k")
    }

    fn lead(ticket: Ticket) -> Lead {
        match ticket {
            Ticket::Lead(lead) => lead,
            Ticket::Wait(_) => panic!("expected to lead"),
        }
    }

    fn wait(ticket: Ticket) -> Waiter {
        match ticket {
            Ticket::Wait(waiter) => waiter,
            Ticket::Lead(_) => panic!("expected to wait"),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_dropped_lead_wakes_its_waiters_and_leaves_the_table() {
        let fills = Arc::new(Fills::default());
        let first = lead(fills.enter(key(), &text(), AGE));
        let second = wait(fills.enter(key(), &text(), AGE));
        drop(first);
        let waited = second.wait(Instant::now() + AGE).await;
        assert!(matches!(waited, Waited::Ended(FillEnd::Abandoned)));
        assert!(fills.is_empty());
        lead(fills.enter(key(), &text(), AGE)).end(FillEnd::Complete);
    }

    #[tokio::test(start_paused = true)]
    async fn the_end_that_was_said_first_counts() {
        let fills = Arc::new(Fills::default());
        let first = lead(fills.enter(key(), &text(), AGE));
        let second = wait(fills.enter(key(), &text(), AGE));
        first.end(FillEnd::KeptStale(503));
        let waited = second.wait(Instant::now() + AGE).await;
        assert!(matches!(waited, Waited::Ended(FillEnd::KeptStale(503))));
    }

    #[tokio::test(start_paused = true)]
    async fn a_waiter_times_out_at_its_deadline() {
        let fills = Arc::new(Fills::default());
        let _first = lead(fills.enter(key(), &text(), AGE));
        let second = wait(fills.enter(key(), &text(), AGE));
        let before = Instant::now();
        let waited = second.wait(before + Duration::from_millis(200)).await;
        assert!(matches!(waited, Waited::TimedOut));
        assert_eq!(before.elapsed().as_millis() / 10, 20);
    }

    #[tokio::test(start_paused = true)]
    async fn an_old_fill_makes_room_for_one_more_and_does_not_remove_it() {
        let fills = Arc::new(Fills::default());
        let old = lead(fills.enter(key(), &text(), AGE));
        tokio::time::advance(AGE).await;
        let young = lead(fills.enter(key(), &text(), AGE));
        drop(old);
        assert_eq!(fills.len(), 1);
        wait(fills.enter(key(), &text(), AGE));
        drop(young);
        assert!(fills.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn of_fills_side_by_side_the_first_with_a_head_writes() {
        let fills = Arc::new(Fills::default());
        let first = lead(fills.enter(key(), &text(), AGE));
        let second = fills.beside(key(), &text());
        let third = fills.beside(key(), &text());
        assert!(second.claim(AGE));
        assert!(!first.claim(AGE) && !third.claim(AGE));
        let waiter = wait(fills.enter(key(), &text(), AGE));
        first.end(FillEnd::Complete);
        second.end(FillEnd::Complete);
        let waited = waiter.wait(Instant::now() + AGE).await;
        assert!(matches!(waited, Waited::Ended(FillEnd::Complete)));
        assert!(third.claim(AGE), "what is stored last stays");
        drop(third);
        assert!(fills.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_writer_that_stands_still_keeps_nobody_from_writing() {
        let fills = Arc::new(Fills::default());
        let stuck = lead(fills.enter(key(), &text(), AGE));
        assert!(stuck.claim(AGE));
        let other = fills.beside(key(), &text());
        assert!(!other.claim(AGE));
        tokio::time::advance(AGE).await;
        assert!(other.claim(AGE));
        drop(stuck);
        assert_eq!(fills.len(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_fill_that_moves_does_not_grow_old() {
        let fills = Arc::new(Fills::default());
        let first = lead(fills.enter(key(), &text(), AGE));
        tokio::time::advance(AGE - Duration::from_secs(1)).await;
        first.moved();
        tokio::time::advance(AGE - Duration::from_secs(1)).await;
        wait(fills.enter(key(), &text(), AGE));
        tokio::time::advance(Duration::from_secs(1)).await;
        lead(fills.enter(key(), &text(), AGE)).end(FillEnd::Complete);
    }
}
