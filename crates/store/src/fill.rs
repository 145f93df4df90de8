//! A running fill: bytes that arrive from an origin, on their way to the disk, read by many.
//!
//! ```text
//!   Filling ──finish──► Complete
//!      └── drop, full, failed disk ──► Abandoned(why)
//!
//!   0 ......... written ......... allocated ......... len
//!   in segments │ in memory, has a place │ in memory only
//! ```
//!
//! The writer appends, the disk thread moves `written` up, views read everything below `len`:
//! file regions below `written`, memory above.
//!
//! 1. `written <= allocated <= len`, and none of them ever falls.
//! 2. `tail` holds exactly the bytes from `written` to `len`. Where the page cache is not believed
//!    (`ready`, invariant 5), the last `retained` of those before stay in memory, too.
//! 3. Slices cover exactly the bytes from 0 to `allocated`, in order.
//! 4. A fill holds the files of all its slices that were written to, so their segments are pinned
//!    while it lives.
//! 5. Bytes that were handed out as a file region keep their place until their segment goes, also
//!    when the fill was given up and nobody holds the region any more: what `sendfile` was given
//!    and the peer has not received yet is still read from the page cache.
//!
//! It allocates no space and writes no files: the writer (`admit`) and the disk thread do.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use bytes::Bytes;
use tokio::sync::Notify;

use crate::admit::NotStored;
use crate::disk::open::SegmentFile;
use crate::disk::ready::HeldFile;
use crate::disk::segment::Place;
use crate::disk::writer::Job;
use crate::entry::{Region, Slice, file_region};
use crate::lock::lock;
use crate::volume::Inner;

/// State of a fill, as its views see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ViewState {
    /// More bytes may come.
    Filling,
    /// The body is whole.
    Complete,
    /// No more bytes will come, and there is no entry.
    Abandoned(NotStored),
}

/// State that writer, views and the disk thread share.
#[derive(Debug)]
pub(crate) struct Fill {
    state: Mutex<FillState>,
    len: AtomicU64,
    backlog: AtomicU64,
    changed: Notify,
    drained: Notify,
    /// Takes back the space of a fill that was given up.
    zone: Weak<Inner>,
    /// Time when the fill began, by the steady clock.
    pub(crate) began_ms: u64,
    /// Length of the body, if it is known.
    pub(crate) expected_len: Option<u64>,
}

impl Drop for Fill {
    fn drop(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        if state.failed.is_none() {
            return;
        }
        let unseen = unseen(&state.slices, state.handed);
        if !unseen.is_empty()
            && let Some(zone) = self.zone.upgrade()
        {
            zone.disk.queue.push(Job::GiveBack(unseen));
        }
    }
}

/// Milliseconds between two marks of how far a fill was written.
const MARK_MS: u64 = 500;

/// Bytes from here on were not written before.
#[derive(Clone, Copy, Debug)]
struct Mark {
    at: u64,
    ms: u64,
}

/// Fields that the lock of a fill protects.
#[derive(Debug)]
pub(crate) struct FillState {
    pub(crate) view: ViewState,
    pub(crate) written: u64,
    pub(crate) allocated: u64,
    /// Marks of the last two positions that bytes were not written from on at a time.
    marks: [Mark; 2],
    /// Position from which on nothing was handed out as a file region; at most `written`.
    pub(crate) handed: u64,
    pub(crate) tail: VecDeque<Bytes>,
    /// Bytes that end at `written` and are still in memory, and how many they are.
    kept: VecDeque<Bytes>,
    kept_len: u64,
    /// Most bytes that are kept in memory.
    retained: u64,
    pub(crate) slices: Vec<Slice>,
    pub(crate) files: Vec<(u32, Arc<SegmentFile>)>,
    /// True if the disk thread has been told to drain this fill.
    pub(crate) is_queued: bool,
    /// Bytes that count against the write queue.
    pub(crate) charged: u64,
    /// Reservations that were not written yet: where they end in the body, and their segment.
    pub(crate) open: VecDeque<(u64, u32)>,
    /// Set once a write failed or the writer gave up: nothing more is written.
    pub(crate) failed: Option<NotStored>,
    /// Destination of the rest once the directory is lent.
    pub(crate) lease: Lease,
}

/// The space of a fill that outlives our possession of the directory (`lend`).
#[derive(Debug, Default)]
pub(crate) enum Lease {
    /// We have the directory: space is reserved in the log.
    #[default]
    None,
    /// The directory is being lent; bytes wait in memory.
    Awaited,
    /// The rest goes into these extents, and no more.
    Granted {
        /// Extents that are left, in order, each with its file.
        left: VecDeque<(Place, Arc<SegmentFile>)>,
        /// The writer does not know yet.
        is_news: bool,
    },
}

impl Fill {
    /// A fill without bytes.
    pub(crate) fn new(zone: Weak<Inner>, began_ms: u64, expected_len: Option<u64>) -> Self {
        Self {
            state: Mutex::new(FillState {
                view: ViewState::Filling,
                written: 0,
                allocated: 0,
                marks: [Mark {
                    at: 0,
                    ms: began_ms,
                }; 2],
                handed: 0,
                tail: VecDeque::new(),
                kept: VecDeque::new(),
                kept_len: 0,
                retained: 0,
                slices: Vec::new(),
                files: Vec::new(),
                is_queued: false,
                charged: 0,
                open: VecDeque::new(),
                failed: None,
                lease: Lease::None,
            }),
            len: AtomicU64::new(0),
            backlog: AtomicU64::new(0),
            changed: Notify::new(),
            drained: Notify::new(),
            zone,
            began_ms,
            expected_len,
        }
    }

    /// The state, locked.
    pub(crate) fn state(&self) -> std::sync::MutexGuard<'_, FillState> {
        lock(&self.state)
    }

    /// Keeps so many of the bytes that were written in memory, for whoever reads along.
    pub(crate) fn retain(&self, most: u64) {
        self.state().retained = most;
    }

    /// Publishes more bytes.
    pub(crate) fn push(&self, data: Bytes) {
        let size = data.len() as u64;
        let mut state = self.state();
        state.tail.push_back(data);
        self.backlog.fetch_add(size, Ordering::AcqRel);
        self.len.fetch_add(size, Ordering::AcqRel);
        drop(state);
        self.changed.notify_waiters();
    }

    /// Ends the fill, unless it has ended.
    pub(crate) fn end(&self, view: ViewState) {
        let mut state = self.state();
        if state.view == ViewState::Filling {
            state.view = view;
        }
        drop(state);
        self.changed.notify_waiters();
        self.drained.notify_waiters();
    }

    /// Notes that nothing more can be written; what is in memory stays there. Whether that is new.
    pub(crate) fn fail(&self, why: NotStored) -> bool {
        let is_new = {
            let mut state = self.state();
            let is_new = state.failed.is_none();
            state.failed.get_or_insert(why);
            is_new
        };
        self.end(ViewState::Abandoned(why));
        is_new
    }

    /// Bytes published.
    pub(crate) fn len(&self) -> u64 {
        self.len.load(Ordering::Acquire)
    }

    /// Bytes that the kernel does not have yet.
    pub(crate) fn backlog(&self) -> u64 {
        self.backlog.load(Ordering::Acquire)
    }

    /// Takes the next bytes to write, at most `limit`, all for one place.
    pub(crate) fn next_write(&self, limit: u64) -> Option<PendingWrite> {
        let state = self.state();
        if state.failed.is_some() || state.written == state.allocated {
            return None;
        }
        let slice = slice_at(&state.slices, state.written)?;
        let within = state.written - slice.start;
        let end = state.allocated.min(slice.start + u64::from(slice.len));
        let size = (end - state.written).min(limit);
        let file = state.files.iter().find(|(id, _)| *id == slice.segment);
        Some(PendingWrite {
            segment: slice.segment,
            file: file.map(|(_, file)| Arc::clone(file)),
            offset: u64::from(slice.offset) + within,
            bufs: collect(&state.tail, 0..size),
            size,
        })
    }

    /// Notes that the bytes of a write are in the kernel. The segments of reservations that are
    /// whole now.
    pub(crate) fn wrote(&self, size: u64, now_ms: u64) -> Vec<u32> {
        let mut state = self.state();
        let [_, last] = state.marks;
        if now_ms.saturating_sub(last.ms) >= MARK_MS {
            let at = state.written;
            state.marks = [last, Mark { at, ms: now_ms }];
        }
        state.written += size;
        state.charged = state.charged.saturating_sub(size);
        let written = state.written;
        let mut whole = Vec::new();
        while let Some((_, segment)) = state.open.pop_front_if(|(end, _)| *end <= written) {
            whole.push(segment);
        }
        let mut rest = size as usize;
        while rest > 0 {
            let Some(first) = state.tail.front_mut() else {
                break;
            };
            let taken = rest.min(first.len());
            rest -= taken;
            let written = first.split_to(taken);
            if first.is_empty() {
                state.tail.pop_front();
            }
            state.keep(written);
        }
        self.backlog.fetch_sub(size, Ordering::AcqRel);
        drop(state);
        self.drained.notify_waiters();
        whole
    }

    /// Regions of a range of what was published.
    pub(crate) fn regions(&self, range: Range<u64>) -> Vec<Region> {
        let mut state = self.state();
        let end = range.end.min(self.len());
        let kept_from = state.written - state.kept_len;
        let mut regions = state.written_regions(range.start..end.min(kept_from));
        let mut position = range.start + regions.iter().map(Region::len).sum::<u64>();
        if position < end && (kept_from..state.written).contains(&position) {
            let stop = end.min(state.written);
            let memory = collect(&state.kept, position - kept_from..stop - kept_from);
            regions.extend(memory.into_iter().map(Region::Memory));
            position = stop;
        }
        if position < end && position >= state.written {
            let from = state.written;
            let memory = collect(&state.tail, position - from..end - from);
            regions.extend(memory.into_iter().map(Region::Memory));
        }
        regions
    }

    /// Regions of files of a range, as far as the kernel has it.
    fn written(&self, range: Range<u64>) -> Written {
        let mut state = self.state();
        if state.retained > 0 {
            return Written::No;
        }
        let regions = state.written_regions(range.start..range.end.min(self.len()));
        if !regions.is_empty() {
            return Written::Regions(regions);
        }
        if !state.will_be_written(range.start) {
            Written::No
        } else if range.start < state.allocated {
            Written::Queued
        } else {
            Written::Gathering
        }
    }

    /// Waits until the byte at `position` is in the kernel, or will not come there.
    async fn until_written(&self, position: u64) {
        loop {
            let mut drained = std::pin::pin!(self.drained.notified());
            drained.as_mut().enable();
            if !self.state().will_be_written(position) {
                return;
            }
            drained.await;
        }
    }

    /// Waits until the backlog is below `window` as it is at that moment, or the fill has ended.
    pub(crate) async fn room(&self, window: impl Fn() -> u64) {
        loop {
            let mut drained = std::pin::pin!(self.drained.notified());
            drained.as_mut().enable();
            if self.backlog() < window() || self.needs_its_writer() {
                return;
            }
            drained.await;
        }
    }

    /// True if the writer has something to do, however much waits.
    fn needs_its_writer(&self) -> bool {
        let state = self.state();
        let has_news = matches!(state.lease, Lease::Granted { is_news: true, .. });
        has_news || state.view != ViewState::Filling
    }

    /// Notes that the directory is being lent.
    pub(crate) fn detach(&self) {
        self.state().lease = Lease::Awaited;
    }

    /// Gives the fill the space that is all it will have.
    pub(crate) fn grant(&self, left: VecDeque<(Place, Arc<SegmentFile>)>) {
        self.state().lease = Lease::Granted {
            left,
            is_news: true,
        };
        self.drained.notify_waiters();
    }

    /// True if the directory was lent since the fill began, so that it makes no entry.
    pub(crate) fn is_detached(&self) -> bool {
        !matches!(self.state().lease, Lease::None)
    }

    /// The next extent for up to `wanted` bytes: none while there is no lease.
    pub(crate) fn take_leased(&self, wanted: u32) -> Option<(Place, Arc<SegmentFile>)> {
        let mut state = self.state();
        let Lease::Granted { left, .. } = &mut state.lease else {
            return None;
        };
        let (place, file) = left.front_mut()?;
        let taken = Place {
            size: wanted.min(place.size),
            ..*place
        };
        let file = Arc::clone(file);
        place.offset += taken.size;
        place.size -= taken.size;
        if place.size == 0 {
            left.pop_front();
        }
        Some((taken, file))
    }

    async fn changed(&self, seen: u64) {
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            changed.as_mut().enable();
            if self.len() > seen || self.state().view != ViewState::Filling {
                return;
            }
            changed.await;
        }
    }
}

impl FillState {
    /// Keeps bytes that were written, as far as that is wanted.
    fn keep(&mut self, written: Bytes) {
        if self.retained == 0 {
            return;
        }
        self.kept_len += written.len() as u64;
        self.kept.push_back(written);
        while self.kept_len > self.retained
            && let Some(oldest) = self.kept.pop_front()
        {
            self.kept_len -= oldest.len() as u64;
        }
    }

    /// True if the byte at a position is not in the kernel yet, and will be.
    fn will_be_written(&self, position: u64) -> bool {
        if position < self.written || self.failed.is_some() || !matches!(self.lease, Lease::None) {
            return false;
        }
        match self.view {
            ViewState::Filling => true,
            // What has no place by now is part of the record.
            ViewState::Complete => position < self.allocated,
            ViewState::Abandoned(_) => false,
        }
    }

    /// Regions of files of a range, up to what is written.
    fn written_regions(&mut self, range: Range<u64>) -> Vec<Region> {
        let end = range.end.min(self.written);
        let mut regions = Vec::new();
        let mut position = range.start;
        while position < end {
            let Some(slice) = slice_at(&self.slices, position) else {
                break;
            };
            let stop = end.min(slice.start + u64::from(slice.len));
            let Some((_, file)) = self.files.iter().find(|(id, _)| *id == slice.segment) else {
                break;
            };
            let file = HeldFile::written(file, written_ms(&self.marks, position));
            file_region(&mut regions, file, slice, position..stop);
            position = stop;
        }
        if !regions.is_empty() {
            // INVARIANT 5.
            self.handed = self.handed.max(position);
        }
        regions
    }
}

/// Part of a running fill that can be read from files.
#[derive(Debug)]
pub enum Written {
    /// Regions in files, from the first byte on.
    Regions(Vec<Region>),
    /// Nothing: the first byte has its place, and the disk is to write it.
    Queued,
    /// Nothing: the first byte gets its place when more bytes have come.
    Gathering,
    /// No regions, and there is nothing to wait for: the bytes stay in memory.
    No,
}

/// Bytes with a place, to be written.
#[derive(Debug)]
pub(crate) struct PendingWrite {
    pub(crate) segment: u32,
    /// None if the fill is the first to write to the segment.
    pub(crate) file: Option<Arc<SegmentFile>>,
    pub(crate) offset: u64,
    pub(crate) bufs: Vec<Bytes>,
    pub(crate) size: u64,
}

/// Earliest time at which the byte at a position can have been written.
fn written_ms(marks: &[Mark; 2], position: u64) -> u64 {
    let [before, last] = marks;
    match position {
        _ if position >= last.at => last.ms,
        _ if position >= before.at => before.ms,
        _ => 0,
    }
}

/// The slice that holds a position of the body.
pub(crate) fn slice_at(slices: &[Slice], position: u64) -> Option<&Slice> {
    let after = slices.partition_point(|slice| slice.start <= position);
    slices.get(after.checked_sub(1)?)
}

/// The places of the bytes of a body from `handed` on, the last one first.
fn unseen(slices: &[Slice], handed: u64) -> Vec<Place> {
    let place = |slice: &Slice| {
        // At most the length of the slice.
        let kept = handed.saturating_sub(slice.start).min(slice.len.into()) as u32;
        // Slices begin at multiples of 16, as whatever follows them does.
        let kept = kept.next_multiple_of(16);
        Place {
            segment: slice.segment,
            offset: slice.offset + kept,
            size: slice.len.saturating_sub(kept),
        }
    };
    let places = slices.iter().rev().map(place);
    places.filter(|place| place.size > 0).collect()
}

/// Clones the parts of `bufs` that make up `range`; no bytes are copied.
pub(crate) fn collect(bufs: &VecDeque<Bytes>, range: Range<u64>) -> Vec<Bytes> {
    let mut found = Vec::new();
    let mut start = 0;
    for buf in bufs {
        let end = start + buf.len() as u64;
        let (from, to) = (range.start.max(start), range.end.min(end));
        if from < to {
            // Both lie within this buffer, whose length is a `usize`.
            found.push(buf.slice((from - start) as usize..(to - start) as usize));
        }
        if end >= range.end {
            break;
        }
        start = end;
    }
    found
}

/// A reader of a running fill; it also keeps what it has seen readable after the fill ended.
#[derive(Clone, Debug)]
pub struct View {
    fill: Arc<Fill>,
}

impl View {
    pub(crate) fn new(fill: Arc<Fill>) -> Self {
        Self { fill }
    }

    /// Bytes of body that can be read.
    pub fn len(&self) -> u64 {
        self.fill.len()
    }

    /// True if no byte of the body can be read yet.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// State of the fill. After anything but `Filling`, [`View::len`] does not change.
    pub fn state(&self) -> ViewState {
        self.fill.state().view
    }

    /// The bytes of `range` that can be read, in order: memory for what is not written yet, file
    /// regions for the rest.
    pub fn regions(&self, range: Range<u64>) -> Vec<Region> {
        self.fill.regions(range)
    }

    /// Regions like those of [`View::regions`], but only what the kernel has by now: it goes to a
    /// socket without a copy.
    pub fn written(&self, range: Range<u64>) -> Written {
        self.fill.written(range)
    }

    /// Waits until the byte at a position is written, or stays in memory. How long the origin and
    /// the disk take is not known: not to be called without a deadline.
    pub async fn until_written(&self, position: u64) {
        self.fill.until_written(position).await;
    }

    /// Waits until more than `seen` bytes can be read, or the fill has ended.
    pub async fn changed(&self, seen: u64) {
        self.fill.changed(seen).await;
    }
}
