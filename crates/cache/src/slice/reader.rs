//! The body of an entry in slices, for one client: out of what is held and what arrives.
//!
//! ```text
//!  byte wanted ─► held? ──────────► regions of the record, as far as the disk has read them;
//!                     │            one that does not answer in time is as if it were not held
//!                 arriving? ──────► regions of the run or tail, as they come
//!                 neither ────────► claim a run, have it driven, read along
//! ```
//!
//! What is held is handed out at once, while nothing that is missing is waited for. A run that is
//! far away is given a moment, from its answer on: if it does not come near, the reader wishes that
//! it be cut, and waits until whoever drives it has found that nothing of it is there (`run.rs`).
//!
//! A look-up that brings nothing is followed by another only when something has happened: the run
//! that was waited for has come nearer, or the other tasks of the thread have had their turn.
//!
//! Invariants:
//! 1. All bytes are of one generation; where it has no more to give, the body ends with an error.
//! 2. A reader asks at most `SETBACKS_MAX` times in a row without anything coming nearer, and once
//!    if the origin fails it outright.

use std::collections::VecDeque;
use std::future::Future;
use std::ops::Range;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use millpond_store::{Cold, Haste, HeldFile, Loading, Region};
use tokio::time::Instant;

use super::filling::Filling;
use super::generation::{Attendance, Generation, Held, Source};
use super::pump;
use super::run::{LOOKS_MAX, Look, Purpose, Run, RunEnd, Seat, Wish};
use crate::clock;
use crate::disk_timeout::{Disk, DiskPolicy};
use crate::exchange::Exchange;
use crate::reason::{Brought, FillRole};
use crate::use_stale::StaleCause;
use crate::zone::Unread;

/// Look-ups after which nothing had come nearer, in a row, until the body is given up: runs that
/// break off before their first byte, slices that go between two looks.
const SETBACKS_MAX: u8 = 16;
/// Runs that broke off, in all, until the body is given up.
const BREAKS_MAX: u8 = 32;
/// Interval at which a run that is far away is looked at (arbitrary: soon enough for people, late
/// enough for an origin that is near).
const LOOK_INTERVAL: Duration = Duration::from_millis(50);
/// Time that a reader waits for the disk if it is not told.
const DISK_TIMEOUT: Duration = Duration::from_secs(1);
/// Slices that are looked at to tell whether all that is wanted is at hand.
const LOOKED_AT: usize = 1024;

/// Reason why a body ended before its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SliceFailure {
    /// The origin has another version, and a slice of this one is missing.
    #[error("upstream has another version of a body that is kept in slices")]
    Changed,
    /// The origin answered a request for a slice with something else.
    #[error("upstream did not answer a request for a slice with it")]
    Refused,
    /// No answer came, or none that did not break off.
    #[error("upstream failed while a slice was fetched")]
    Failed {
        /// Status that a client gets for the failure.
        status: u16,
        /// Word of `proxy_cache_use_stale` for the failure.
        cause: Option<StaleCause>,
    },
}

/// Reads a body.
pub struct SliceReader<X> {
    x: X,
    attendance: Attendance,
    wanted: Range<u64>,
    ready: VecDeque<Region>,
    at: At,
    /// The run that counts it among its readers.
    joined: Weak<Run>,
    role: FillRole,
    /// Ranges that were not there when the reader came to them, in order; those that lie behind the
    /// reader are forgotten.
    brought: Vec<Range<u64>>,
    waiting: Option<Pin<Box<dyn Future<Output = ()>>>>,
    setbacks: u8,
    /// The others are let have their turn before it looks again.
    must_yield: bool,
    breaks: u8,
    disk_timeout: Duration,
    /// Deadline of waiting for what the store has not loaded; set with the first such slice.
    loading_until: Option<Instant>,
    /// Read of the disk for this reader, so that the reader finds its result.
    read: Option<Cold>,
    /// The slice whose disk was given up.
    past: Option<u64>,
}

/// Source of the reader's next bytes.
enum At {
    Unknown,
    Disk(Reading),
    Run {
        seat: Seat,
        is_ours: bool,
        /// Progress of the run when it was found.
        found_at: u64,
        watch: Option<Watch>,
    },
    Tail(Arc<Filling>),
}

/// A slice on a disk that is being asked.
struct Reading {
    index: u64,
    /// Look-up of the slice, if its record has not been read.
    cold: Option<Cold>,
    /// Future that says if the disk has answered in time.
    answered: Pin<Box<dyn Future<Output = bool>>>,
}

/// Watches a run that is far away.
struct Watch {
    /// Progress of the run when the timer was set, and whether the origin had begun to answer.
    seen: (u64, bool),
    /// Number of looks in a row that found the run where it was.
    stood_still: u64,
    timer: Pin<Box<tokio::time::Sleep>>,
}

impl Watch {
    fn new(run: &Run) -> Self {
        Watch {
            seen: run.progress(),
            stood_still: 0,
            timer: Box::pin(clock::timer(LOOK_INTERVAL)),
        }
    }

    /// Looks now and then; the progress one look before, if the run may be too slow.
    fn poll(&mut self, cx: &mut Context<'_>, run: &Run) -> Option<u64> {
        let mut slow_from = None;
        while self.timer.as_mut().poll(cx).is_ready() {
            let (seen_at, was_answered) = self.seen;
            let mut next = Watch::new(run);
            if next.seen == self.seen && was_answered {
                next.stood_still = self.stood_still + 1;
            }
            // Until it is answered, another request would be no faster; nor is one to an origin
            // that is busy for a moment.
            if was_answered && (next.stood_still == 0 || next.stood_still >= LOOKS_MAX) {
                slow_from = Some(seen_at);
            }
            *self = next;
        }
        slow_from
    }
}

impl<X: Exchange<Background = X> + 'static> SliceReader<X> {
    /// A reader of `wanted` of the body; `x` asks the origin.
    pub fn new(x: X, generation: &Arc<Generation>, wanted: Range<u64>) -> Self {
        SliceReader {
            x,
            attendance: generation.attend(),
            wanted: wanted.start..wanted.end.min(generation.set.total),
            ready: VecDeque::new(),
            at: At::Unknown,
            joined: Weak::new(),
            role: FillRole::None,
            brought: Vec::new(),
            waiting: None,
            setbacks: 0,
            must_yield: false,
            breaks: 0,
            disk_timeout: DISK_TIMEOUT,
            loading_until: None,
            read: None,
            past: None,
        }
    }

    /// Sets the time for which the reader waits for the disk before it asks the origin for a slice
    /// that is held.
    pub fn with_disk_timeout(self, disk: &DiskPolicy) -> Self {
        SliceReader {
            disk_timeout: disk.timeout,
            ..self
        }
    }

    /// Notes what of the body came for its request before it was read.
    pub fn with_brought(mut self, brought: Brought) -> Self {
        match brought {
            Brought::Nothing => {}
            Brought::All => self.brought.push(0..u64::MAX),
            Brought::Range(start, end) => self.brought.push(start..end),
        }
        self
    }

    /// Another reader of the same body.
    pub fn fork(&self, wanted: Range<u64>) -> Self {
        SliceReader {
            disk_timeout: self.disk_timeout,
            brought: self.brought.clone(),
            ..SliceReader::new(self.x.background(), self.generation(), wanted)
        }
    }

    /// Generation of the body that is read.
    pub fn generation(&self) -> &Arc<Generation> {
        self.attendance.generation()
    }

    /// Reads another part; only before anything was read.
    pub fn narrow(&mut self, wanted: Range<u64>) {
        let total = self.generation().set.total;
        if self.wanted.start != wanted.start {
            self.ready.clear();
            self.at = At::Unknown;
            self.waiting = None;
        }
        self.wanted = wanted.start..wanted.end.min(total);
    }

    /// True if all that is wanted is held or arrives for somebody else.
    pub fn is_at_hand(&self) -> bool {
        let generation = self.generation();
        let set = &generation.set;
        if self.wanted.is_empty() {
            return true;
        }
        let last = set.index_of(self.wanted.end - 1);
        let mut indexes = (set.index_of(self.wanted.start)..=last).take(LOOKED_AT);
        indexes.all(|index| generation.is_at_hand(index))
    }

    /// The part of the request in bringing what was not held so far.
    pub fn role(&self) -> FillRole {
        self.role
    }

    /// Number of those of the last `len` bytes handed out that were not in the cache when the
    /// reader came to them, so that it had to ask or wait for them.
    pub fn brought_of_last(&self, len: u64) -> u64 {
        let last = self.wanted.start.saturating_sub(len)..self.wanted.start;
        let within = |brought: &Range<u64>| {
            let end = brought.end.min(last.end);
            end.saturating_sub(brought.start.max(last.start))
        };
        self.brought.iter().map(within).sum::<u64>().min(len)
    }

    /// Waits until the first bytes are there, or will not come.
    pub async fn first_bytes(&mut self) -> Result<(), SliceFailure> {
        std::future::poll_fn(|cx| self.poll_ready(cx)).await
    }

    /// The next bytes; `None` at the end.
    pub fn poll_next(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Region, SliceFailure>>> {
        if let Err(failure) = ready!(self.poll_ready(cx)) {
            self.wanted.start = self.wanted.end;
            return Poll::Ready(Some(Err(failure)));
        }
        // After [`Self::narrow`] more may be ready than is wanted.
        let left = self.wanted.end - self.wanted.start;
        Poll::Ready(self.ready.pop_front().filter(|_| left > 0).map(|region| {
            let region = cut(region, left);
            self.wanted.start += region.len();
            if let At::Run { seat, .. } = &self.at {
                seat.move_to(self.wanted.start);
            }
            Ok(region)
        }))
    }

    /// Waits until something is ready, or all was handed out.
    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), SliceFailure>> {
        while self.ready.is_empty() && !self.wanted.is_empty() {
            if std::mem::take(&mut self.must_yield) {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            self.watch(cx);
            if let Some(waiting) = &mut self.waiting {
                ready!(waiting.as_mut().poll(cx));
                self.waiting = None;
            }
            match &mut self.at {
                At::Unknown => self.locate()?,
                At::Disk(reading) => {
                    let is_read = ready!(reading.answered.as_mut().poll(cx));
                    self.end_reading(is_read);
                }
                At::Tail(filling) => {
                    let regions = filling.regions(self.wanted.clone());
                    self.take_or_leave(regions)?;
                }
                At::Run { seat, .. } => match seat.run().look(self.wanted.clone()) {
                    Look::Bytes(regions) => self.take(regions),
                    Look::Gone(end) => self.left_by(end)?,
                    Look::Wait(version) => {
                        let run = Arc::clone(seat.run());
                        self.waiting = Some(Box::pin(async move { run.changed(version).await }));
                    }
                },
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Watches the run that is waited for, and wishes that it be cut if it is too slow.
    fn watch(&mut self, cx: &mut Context<'_>) {
        let position = self.wanted.start;
        let At::Run {
            seat,
            watch: Some(watch),
            ..
        } = &mut self.at
        else {
            return;
        };
        if let Some(seen_at) = watch.poll(cx, seat.run()) {
            let set = &self.attendance.generation().set;
            seat.run().wish_cut(Wish {
                slice: set.span(set.index_of(position)).start,
                position,
                seen_at,
            });
        }
    }

    fn take(&mut self, regions: Vec<Region>) {
        self.setbacks = 0;
        self.ready
            .extend(regions.into_iter().filter(|region| !region.is_empty()));
        // What comes next may be another slice's, and a run that brought something may be asked
        // for more if it breaks off.
        if let At::Run { is_ours, watch, .. } = &mut self.at {
            *is_ours = false;
            *watch = None;
        }
    }

    fn take_or_leave(&mut self, regions: Vec<Region>) -> Result<(), SliceFailure> {
        if regions.is_empty() {
            return self.set_back();
        }
        self.take(regions);
        Ok(())
    }

    /// Finds out where the next bytes come from.
    fn locate(&mut self) -> Result<(), SliceFailure> {
        let generation = Arc::clone(self.generation());
        let index = generation.set.index_of(self.wanted.start);
        let span = generation.set.span(index);
        let mut disk = if self.past == Some(index) {
            Disk::GivenUp
        } else {
            Disk::Awaited
        };
        match generation.held(index) {
            Held::Yes(entry) => {
                let end = self.wanted.end.min(span.end);
                let range = self.wanted.start - span.start..end - span.start;
                match ready_part(entry.regions_to_load(range)) {
                    Ok(regions) => return self.take_or_leave(regions),
                    Err((file, region)) if disk == Disk::Awaited => {
                        self.at = self.reading_body(
                            index,
                            file.load(region.start, region.end - region.start, Haste::OrNotAtAll),
                        );
                        return Ok(());
                    }
                    Err(_) => {}
                }
            }
            Held::Unread(Unread::Cold(cold)) if disk == Disk::Awaited => {
                self.at = reading_record(index, cold, self.disk_deadline());
                return Ok(());
            }
            Held::Unread(Unread::Unknown(Some(cold))) if disk == Disk::Awaited => {
                self.at = reading_record(index, cold, self.loading_deadline());
                return Ok(());
            }
            Held::Unread(_) => disk = Disk::GivenUp,
            Held::No => {}
        }
        match generation.source_besides(disk, &self.wanted_at_once(), Purpose::Readers) {
            // Stored between the two looks.
            None => self.set_back()?,
            Some(Source::Tail(filling)) => self.at = At::Tail(filling),
            Some(Source::Run(run)) => {
                let is_far = generation.is_far(&run, self.wanted.start);
                self.join(&run);
                if self.role == FillRole::None {
                    self.role = FillRole::Waiter;
                }
                self.at = At::Run {
                    watch: is_far.then(|| Watch::new(&run)),
                    found_at: run.progress().0,
                    seat: run.sit(self.wanted.start),
                    is_ours: false,
                };
            }
            Some(Source::Claimed(run)) => {
                let task = pump::drive(
                    self.x.background(),
                    Arc::clone(&generation),
                    Arc::clone(&run),
                );
                self.x.spawn(task);
                self.join(&run);
                self.role = FillRole::Leader;
                self.at = At::Run {
                    found_at: run.start,
                    seat: run.sit(self.wanted.start),
                    is_ours: true,
                    watch: None,
                };
            }
        }
        Ok(())
    }

    /// The part of what is wanted that one run may bring.
    fn wanted_at_once(&self) -> Range<u64> {
        let Range { start, end } = self.wanted;
        let size = self.generation().set.size;
        let extents = self.x.extents();
        start..extents.map_or(end, |extents| end.min(extents.end(size, start)))
    }

    /// Counts among the readers of a run, once.
    fn join(&mut self, run: &Arc<Run>) {
        if self.joined.as_ptr() != Arc::as_ptr(run) {
            self.joined = Arc::downgrade(run);
            run.join();
            self.await_bytes(run.progress().0..run.end());
        }
    }

    /// Notes what is not there yet, and forgets what is not read again.
    fn await_bytes(&mut self, coming: Range<u64>) {
        let (read, size) = (self.wanted.start, self.generation().set.size);
        // What was handed out last, which is of one slice, may still be asked about.
        self.brought
            .retain(|brought| brought.end.saturating_add(size) > read);
        let mut start = coming.start;
        for brought in &self.brought {
            if brought.contains(&start) {
                start = brought.end;
            }
        }
        match self.brought.last_mut() {
            _ if start >= coming.end => {}
            Some(last) if last.end == start => last.end = coming.end,
            _ => self.brought.push(start..coming.end),
        }
    }

    fn reading_body(&self, index: u64, loading: Loading) -> At {
        let deadline = self.disk_deadline();
        let load = async move {
            let loaded = clock::within(deadline, loading.done()).await;
            loaded.is_some_and(|loaded| loaded.is_ok())
        };
        At::Disk(Reading {
            index,
            cold: None,
            answered: Box::pin(load),
        })
    }

    fn disk_deadline(&self) -> Option<Instant> {
        clock::now().checked_add(self.disk_timeout)
    }

    /// A body has many slices, and what is not loaded by then is not waited for again.
    fn loading_deadline(&mut self) -> Option<Instant> {
        if self.loading_until.is_none() {
            self.loading_until = self.disk_deadline();
        }
        self.loading_until
    }

    /// The disk has answered, or was given up.
    fn end_reading(&mut self, is_read: bool) {
        if let At::Disk(reading) = std::mem::replace(&mut self.at, At::Unknown) {
            if is_read {
                self.read = reading.cold;
            } else {
                self.past = Some(reading.index);
            }
        }
    }

    /// The run has nothing more for this reader.
    fn left_by(&mut self, end: Option<RunEnd>) -> Result<(), SliceFailure> {
        let (is_ours, is_nearer) = match &self.at {
            At::Run {
                seat,
                is_ours,
                found_at,
                ..
            } => (*is_ours, seat.run().progress().0 > *found_at),
            At::Unknown | At::Disk(_) | At::Tail(_) => (false, false),
        };
        match end {
            Some(RunEnd::Changed) if self.generation().is_retired() => {
                // What is held of the old version may suffice.
                let index = self.generation().set.index_of(self.wanted.start);
                if matches!(self.generation().held(index), Held::No) {
                    return Err(SliceFailure::Changed);
                }
            }
            Some(RunEnd::Refused(status)) => return Err(refused(status, is_ours)),
            Some(RunEnd::Failed { status, cause }) => {
                self.breaks += 1;
                if (is_ours && !is_nearer) || self.breaks >= BREAKS_MAX {
                    return Err(SliceFailure::Failed { status, cause });
                }
            }
            Some(RunEnd::Changed | RunEnd::Done) | None => {}
        }
        if is_nearer {
            self.look_again();
        } else {
            self.set_back()?;
        }
        Ok(())
    }

    /// Something has come nearer: whatever was in vain before does not count.
    fn look_again(&mut self) {
        self.at = At::Unknown;
        self.setbacks = 0;
    }

    /// Looks again a few times, each after others have had their turn.
    fn set_back(&mut self) -> Result<(), SliceFailure> {
        self.at = At::Unknown;
        self.must_yield = true;
        self.setbacks += 1;
        if self.setbacks > SETBACKS_MAX {
            return Err(SliceFailure::Failed {
                status: 502,
                cause: None,
            });
        }
        Ok(())
    }

    /// Fetches slices behind what is wanted, if the request goes on where others ended.
    pub fn fetch_ahead(&self, most: u64, table: &super::table::Slices) {
        let generation = self.generation();
        let count = table.note_range(generation, &self.wanted, most);
        if count == 0 || self.wanted.end >= generation.set.total {
            return;
        }
        let first = generation.set.index_of(self.wanted.end);
        if let Some(run) = generation.claim_ahead((first, count), self.x.extents()) {
            let task = pump::drive(self.x.background(), Arc::clone(generation), run);
            self.x.spawn(task);
        }
    }
}

/// Waits for the record of a slice.
fn reading_record(index: u64, cold: Cold, deadline: Option<Instant>) -> At {
    let awaited = cold.clone();
    let read = async move { clock::within(deadline, awaited.wait()).await.is_some() };
    At::Disk(Reading {
        index,
        cold: Some(cold),
        answered: Box::pin(read),
    })
}

/// Failure after an origin's refusal: the request that asked is passed on, to have the origin's own
/// answer; those who waited get its status and do not ask again, unless it may be about who asked.
fn refused(status: u16, is_ours: bool) -> SliceFailure {
    match status {
        408 | 429 | 500..=599 if !is_ours => SliceFailure::Failed {
            status,
            cause: StaleCause::of_status(status),
        },
        _ => SliceFailure::Refused,
    }
}

/// The regions that are ready, up to the first that is not; if that is the first, where it is.
fn ready_part(
    regions: impl Iterator<Item = Region>,
) -> Result<Vec<Region>, (HeldFile, Range<u64>)> {
    let mut part = Vec::new();
    for region in regions {
        let Region::File { file, offset, len } = &region else {
            part.push(region);
            continue;
        };
        match file.ready_len(*offset, *len) {
            0 if part.is_empty() => return Err((file.clone(), *offset..*offset + *len)),
            0 => break,
            ready if ready < *len => {
                part.push(cut(region, ready));
                break;
            }
            _ => part.push(region),
        }
    }
    Ok(part)
}

/// The first bytes of a region.
fn cut(region: Region, left: u64) -> Region {
    match region {
        Region::Memory(mut bytes) => {
            bytes.truncate(usize::try_from(left).unwrap_or(usize::MAX));
            Region::Memory(bytes)
        }
        Region::File { file, offset, len } => Region::File {
            file,
            offset,
            len: len.min(left),
        },
    }
}

#[cfg(test)]
mod tests;
