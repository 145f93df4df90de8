//! Putting entries in: the writer of a fill, and the step that makes an entry visible.
//!
//! ```text
//!   begin ──► append… ──► finish ──► visible        small body: one record, head and body
//!                └─ drop ──► abandoned              large body: extents as they come, then a
//!                                                   record with head and slice table
//! ```
//!
//! A body is gathered in memory until an extent is full or the body ends; then exactly that much
//! space is reserved and the disk thread is told. So no reserved space is ever left unused.
//!
//! 1. Position in the log and order in the index agree: a record is reserved and its slot is
//!    inserted under one lock, that of the key's shard.
//! 2. The record of an entry is queued after all of its slices.
//! 3. A writer that is dropped in any way releases its segments and wakes its views.
//!
//! 4. Once the directory is lent, a writer uses only the space that it was granted, and makes no
//!    entry; whoever reads along gets the whole body all the same.
//! 5. A key that belongs to another disk is not published.
//!
//! It never waits for the disk.

use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use xxhash_rust::xxh3::Xxh3;

use crate::disk::format::{
    Kind, RECORD_HEADER, ROW, RecordHeader, Row, SLICE_REF, SliceRef, aligned, payload_sum,
};
use crate::disk::open::SegmentFile;
use crate::disk::segment::{Place, Refused, least_extent, site_room};
use crate::disk::writer::{Job, Then};
use crate::entry::{Body, Entry, Pins, Slice, Sliced, Stored, segments_of, unchecked};
use crate::fill::{Fill, Lease, View, ViewState, collect};
use crate::index::Slot;
use crate::key::Key;
use crate::lock::{lock, read};
use crate::site::{Claim, Leave};
use crate::volume::Inner;

/// Space is reserved in pieces of this size: large enough for sequential writes, small enough that
/// a fill of unknown length holds little memory. Arbitrary within 64 KiB to 1 MiB.
pub(crate) const EXTENT: u64 = 256 << 10;
/// The most that one checksum covers: what must be read to verify one byte.
const MAX_SLICE: u64 = 1 << 20;
/// Bytes that a fill may run ahead of the disk.
const WINDOW: u64 = 4 << 20;
/// Bytes that a fill may run ahead of the disk while much waits for it. Above what one waits for
/// before it has a place.
const NARROW_WINDOW: u64 = 2 * EXTENT;
/// Attempts of a reservation, each of which may find its segment taken by others, before it gives
/// up.
const MAX_ATTEMPTS: usize = 8;

/// The reason why something is not in the store. Not an error: the caller goes on without the
/// store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotStored {
    /// No segment can be evicted: all that are left hold running fills or are being read.
    #[error("zone is full of segments in use")]
    Full,
    /// The disk does not keep up.
    #[error("write queue is full")]
    QueueFull,
    /// The key was not asked for often enough before, and the zone is full of what was.
    #[error("not asked for often enough")]
    AskedSeldom,
    /// The disk answered with an error, or has less than `min_free` left.
    #[error("disk does not take more")]
    Disk,
    /// The entry that is stored under the key is not known yet, and is not replaced unseen.
    #[error("what the zone holds is not loaded yet")]
    Unloaded,
    /// The entry would not fit an empty zone, or its head would not fit a segment.
    #[error("larger than the zone can hold")]
    TooLarge,
    /// The body is not as long as was said.
    #[error("body has another length than expected")]
    Length,
    /// The entry was replaced or removed meanwhile.
    #[error("entry was replaced or removed meanwhile")]
    Superseded,
    /// The site of the entry holds as much as it may, and nothing of it can leave now; or the entry
    /// alone is more.
    #[error("its site holds as much as it may")]
    SiteFull,
    /// No head was set.
    #[error("no head was set")]
    NoHead,
    /// The writer was dropped before the body was whole.
    #[error("writer was dropped")]
    Dropped,
    /// The zone is closed.
    #[error("zone is closed")]
    Closed,
}

/// Origin of the space that a fill is written to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Space {
    /// Reserved in the log, until it is written.
    Reserved,
    /// Granted when the directory was lent.
    Granted,
}

/// Fills one entry. Dropping it without [`Writer::finish`] abandons the fill.
pub struct Writer {
    inner: Arc<Inner>,
    fill: Arc<Fill>,
    key: Key,
    head: Option<Bytes>,
    /// The site of the head has a number from then on.
    claim: Option<Claim>,
    pub(crate) expected_len: Option<u64>,
    /// The most that the site of the head may hold.
    pub(crate) site_most: u64,
    hasher: Box<Xxh3>,
    unallocated: u64,
    hold: Hold,
    is_finished: bool,
}

impl Writer {
    /// Key that the entry will be stored under.
    pub fn key(&self) -> &Key {
        &self.key
    }

    pub(crate) fn new(inner: Arc<Inner>, key: Key, expected_len: Option<u64>) -> Self {
        let now = inner.clock.steady();
        let fill = Arc::new(Fill::new(inner.weak(), now, expected_len));
        if !inner.disk.readers.is_local() {
            fill.retain(WINDOW);
        }
        inner.note_fill(&fill);
        Self {
            hold: Hold::new(Arc::clone(&inner), Arc::clone(&fill)),
            fill,
            inner,
            key,
            head: None,
            claim: None,
            expected_len,
            site_most: u64::MAX,
            hasher: Box::new(Xxh3::new()),
            unallocated: 0,
            is_finished: false,
        }
    }

    /// Sets the head; needed before [`Writer::finish`], and may be set again until then.
    pub fn set_head(&mut self, head: Bytes) {
        let claim = self.inner.disk.book.claim(&head);
        self.site_most = self.inner.site_most(claim.account(), self.expected_len);
        self.claim = Some(claim);
        self.head = Some(head);
    }

    /// Adds bytes to the body; views can read them at once. Nothing is copied.
    ///
    /// After an error the fill is abandoned and nothing more is stored.
    pub fn append(&mut self, data: Bytes) -> Result<(), NotStored> {
        if data.is_empty() {
            return Ok(());
        }
        let inner = Arc::clone(&self.inner);
        let _open = read(&inner.close_lock);
        let appended = self.admit(data);
        if let Err(why) = appended {
            self.give_up(why);
        }
        appended
    }

    /// Bytes of this fill that the kernel does not have yet.
    pub fn backlog(&self) -> u64 {
        self.fill.backlog()
    }

    /// Waits until the fill is less than 4 MiB ahead of the disk, or has failed. If much waits for
    /// the disk, also of others, it is less, so that what was begun can be stored to its end.
    pub async fn room(&self) {
        self.fill.room(|| self.window()).await;
    }

    /// True if [`Writer::room`] does not wait: to be asked first, for each piece.
    pub fn has_room(&self) -> bool {
        self.fill.backlog() < self.window()
    }

    fn window(&self) -> u64 {
        if self.inner.disk.queue.is_half_full() {
            NARROW_WINDOW
        } else {
            WINDOW
        }
    }

    /// A reader of this fill.
    pub fn view(&self) -> View {
        View::new(Arc::clone(&self.fill))
    }

    /// Makes the entry visible in place of an older one of its key.
    ///
    /// Its last bytes may still be on their way to the disk; they are served from memory until
    /// they are there. If the disk refuses them, the entry vanishes again.
    pub fn finish(mut self) -> Result<Entry, NotStored> {
        let inner = Arc::clone(&self.inner);
        let _open = read(&inner.close_lock);
        if self.fill.is_detached() {
            return Err(self.end_detached());
        }
        let published = self.publish();
        match &published {
            Ok(_) => {
                self.is_finished = true;
                self.fill.end(ViewState::Complete);
            }
            Err(why) => self.give_up(*why),
        }
        published
    }

    /// Abandons the fill; counted, if it is the zone that could not take it.
    pub(crate) fn give_up(&self, why: NotStored) {
        use NotStored::{Disk, Full, QueueFull, SiteFull, TooLarge};
        if let (SiteFull, Some(claim)) = (why, &self.claim) {
            self.inner.note_refused(claim.account());
        }
        if self.fill.fail(why) && matches!(why, Disk | Full | QueueFull | SiteFull | TooLarge) {
            let counter = &self.inner.counters.not_stored;
            counter.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Ends the fill without making an entry: who reads along gets the whole body, and nobody else
    /// finds it.
    pub fn finish_unseen(mut self) {
        let inner = Arc::clone(&self.inner);
        let _open = read(&inner.close_lock);
        if let Err(why) = self.check() {
            self.fill.fail(why);
            return;
        }
        self.end_detached();
    }

    fn admit(&mut self, data: Bytes) -> Result<(), NotStored> {
        self.check()?;
        let len = self.fill.len() + data.len() as u64;
        if self.expected_len.is_some_and(|expected| len > expected) {
            return Err(NotStored::Length);
        }
        if len > self.inner.capacity() {
            return Err(NotStored::TooLarge);
        }
        if len > self.site_most {
            return Err(NotStored::SiteFull);
        }
        self.unallocated += data.len() as u64;
        self.fill.push(data);
        if len <= self.inner.conf.small || !self.may_allocate() {
            return Ok(());
        }
        while self.unallocated >= EXTENT {
            self.allocate(EXTENT)?;
        }
        Ok(())
    }

    fn check(&self) -> Result<(), NotStored> {
        if self.inner.health.is_failed() {
            return Err(NotStored::Disk);
        }
        if self.inner.is_closed() && !self.fill.is_detached() {
            return Err(NotStored::Closed);
        }
        self.fill.state().failed.map_or(Ok(()), Err)
    }

    /// False while the directory is being lent.
    fn may_allocate(&self) -> bool {
        match &mut self.fill.state().lease {
            Lease::None => true,
            Lease::Awaited => false,
            Lease::Granted { is_news, .. } => {
                *is_news = false;
                true
            }
        }
    }

    /// The body is whole, and nobody will find it: its readers are told so, and the caller why not.
    fn end_detached(&mut self) -> NotStored {
        let len = self.fill.len();
        if self.expected_len.is_some_and(|expected| len != expected) {
            self.fill.fail(NotStored::Length);
            return NotStored::Length;
        }
        self.is_finished = true;
        self.fill.end(ViewState::Complete);
        NotStored::Closed
    }

    /// Gives the next `size` bytes of the body a place and queues them.
    fn allocate(&mut self, size: u64) -> Result<(), NotStored> {
        let mut left = size;
        while left > 0 {
            // `left` is at most an extent.
            let wanted = left as u32;
            let place = match self.fill.take_leased(wanted) {
                Some((place, file)) => {
                    self.locate(place, Some(file), Space::Granted);
                    place
                }
                // INVARIANT 4.
                None if self.fill.is_detached() => return Err(NotStored::Full),
                None => {
                    let place = self.hold.reserve_extent(wanted)?;
                    // None if the segment is only planned; it stays, as the reservation is open.
                    let file = self.inner.disk.file(place.segment);
                    self.locate(place, file, Space::Reserved);
                    place
                }
            };
            self.queue_drain();
            left -= u64::from(place.size);
            self.unallocated -= u64::from(place.size);
        }
        Ok(())
    }

    /// Notes that the first bytes without a place go to `place`.
    fn locate(&mut self, place: Place, file: Option<Arc<SegmentFile>>, space: Space) {
        let size = u64::from(place.size);
        let (bufs, last) = {
            let state = self.fill.state();
            let from = state.allocated - state.written;
            (
                collect(&state.tail, from..from + size),
                state.slices.last().copied(),
            )
        };
        let continues = last.is_some_and(|last| {
            last.segment == place.segment
                && last.offset + last.len == place.offset
                && u64::from(last.len) + size <= MAX_SLICE
        });
        if !continues {
            self.close_slice();
        }
        for buf in &bufs {
            self.hasher.update(buf);
        }
        let mut state = self.fill.state();
        let start = state.allocated;
        match state.slices.last_mut() {
            Some(last) if continues => last.len += place.size,
            _ => state.slices.push(Slice {
                start,
                segment: place.segment,
                offset: place.offset,
                len: place.size,
                checksum: 0,
            }),
        }
        if let Some(file) = file
            && !state.files.iter().any(|(id, _)| *id == place.segment)
        {
            state.files.push((place.segment, file));
        }
        state.allocated += size;
        state.charged += size;
        if space == Space::Reserved {
            let end = state.allocated;
            state.open.push_back((end, place.segment));
        }
        drop(state);
        self.inner.disk.queue.charge(size);
    }

    /// Queues a job for the disk thread: this fill has bytes with a place.
    fn queue_drain(&self) {
        let was_queued = std::mem::replace(&mut self.fill.state().is_queued, true);
        if !was_queued {
            self.inner
                .disk
                .queue
                .push(Job::Drain(Arc::clone(&self.fill)));
        }
    }

    /// Writes the checksum of the last slice down.
    fn close_slice(&mut self) {
        if let Some(last) = self.fill.state().slices.last_mut() {
            last.checksum = self.hasher.digest();
        }
        self.hasher.reset();
    }

    fn publish(&mut self) -> Result<Entry, NotStored> {
        self.check()?;
        let len = self.fill.len();
        if self.expected_len.is_some_and(|expected| len != expected) {
            return Err(NotStored::Length);
        }
        let head = self.head.take().ok_or(NotStored::NoHead)?;
        let inline = u64::from(RECORD_HEADER) + head.len() as u64 + len;
        let book = &self.inner.disk.book;
        let claim = book.claim(&head);
        let site_room = site_room(claim.account(), book);
        let is_inline = len == self.unallocated
            && len <= self.inner.conf.small
            && (len == 0 || self.inner.fits_record(inline, ROW + site_room));
        let body = if is_inline {
            NewBody::Inline(collect(&self.fill.state().tail, 0..len))
        } else {
            while self.unallocated > 0 {
                self.allocate(self.unallocated.min(EXTENT))?;
            }
            self.close_slice();
            NewBody::Sliced(self.fill.state().slices.clone())
        };
        self.inner.publish_charged(Publish {
            key: self.key,
            head,
            body,
            created_ms: self.inner.clock.now(),
            replaces: None,
            halvings: 0,
            source: if is_inline {
                Source::Memory
            } else {
                Source::Fill(Arc::clone(&self.fill))
            },
            is_doubtful: false,
        })
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        if !self.is_finished {
            self.fill.fail(NotStored::Dropped);
        }
        if !self.is_finished && !self.hold.segments.is_empty() {
            self.inner
                .disk
                .queue
                .push(Job::Abandon(Arc::clone(&self.fill)));
        }
    }
}

/// Counts a fill in the segments that hold its slices, until it ends.
pub(crate) struct Hold {
    inner: Arc<Inner>,
    fill: Arc<Fill>,
    segments: Vec<u32>,
}

impl Hold {
    /// Holds nothing yet.
    pub(crate) fn new(inner: Arc<Inner>, fill: Arc<Fill>) -> Self {
        Self {
            inner,
            fill,
            segments: Vec::new(),
        }
    }

    /// Reserves space for up to `wanted` bytes of a body; the place says how many.
    pub(crate) fn reserve_extent(&mut self, wanted: u32) -> Result<Place, NotStored> {
        let disk = &self.inner.disk;
        if !disk.queue.has_room(u64::from(wanted)) {
            return Err(NotStored::QueueFull);
        }
        for _ in 0..MAX_ATTEMPTS {
            let mut log = lock(&disk.log);
            if let Some(place) = log.reserve_extent(wanted) {
                if !self.segments.contains(&place.segment)
                    && let Some(segment) = log.segments.get_mut(&place.segment)
                {
                    segment.fills.push(Arc::downgrade(&self.fill));
                    self.segments.push(place.segment);
                }
                return Ok(place);
            }
            drop(log);
            self.inner.make_room(least_extent(wanted), 0)?;
        }
        Err(NotStored::Full)
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        let mut log = lock(&self.inner.disk.log);
        for id in &self.segments {
            if let Some(segment) = log.segments.get_mut(id) {
                let ours = Arc::as_ptr(&self.fill);
                segment.fills.retain(|fill| fill.as_ptr() != ours);
            }
        }
    }
}

/// The body of an entry to be published.
pub(crate) enum NewBody {
    /// Goes into the record.
    Inline(Vec<Bytes>),
    /// Slices of a body that has its place already.
    Sliced(Vec<Slice>),
}

/// Owner that keeps the slices readable until the entry is on the disk.
pub(crate) enum Source {
    /// Nothing has to be kept: there are no slices.
    Memory,
    /// Fill that wrote the slices.
    Fill(Arc<Fill>),
    /// Files of segments.
    Pins(Pins),
}

/// An entry that is about to become visible.
pub(crate) struct Publish {
    pub(crate) key: Key,
    pub(crate) head: Bytes,
    pub(crate) body: NewBody,
    pub(crate) created_ms: u64,
    /// If set, only an entry at this place may be replaced.
    pub(crate) replaces: Option<Place>,
    /// Number of times that the count of uses of the replaced entry is halved.
    pub(crate) halvings: u32,
    pub(crate) source: Source,
    /// True if the slices' checksums must be compared before use.
    pub(crate) is_doubtful: bool,
}

impl Publish {
    pub(crate) fn slices(&self) -> &[Slice] {
        match &self.body {
            NewBody::Inline(_) => &[],
            NewBody::Sliced(slices) => slices,
        }
    }

    /// Slice table, head and inline body in one buffer with room for the header before them.
    fn encode(&self) -> Vec<u8> {
        let inline: &[Bytes] = match &self.body {
            NewBody::Inline(bufs) => bufs,
            NewBody::Sliced(_) => &[],
        };
        let rows = self.slices().len() * SLICE_REF as usize;
        let bodies: usize = inline.iter().map(Bytes::len).sum();
        let len = RECORD_HEADER as usize + rows + self.head.len() + bodies;
        // With room for the padding.
        let mut record = Vec::with_capacity(aligned(len as u64) as usize);
        record.resize(RECORD_HEADER as usize, 0);
        for slice in self.slices() {
            SliceRef::encode(&slice.to_ref(), &mut record);
        }
        record.extend_from_slice(&self.head);
        for buf in inline {
            record.extend_from_slice(buf);
        }
        record
    }

    pub(crate) fn body_len(&self) -> u64 {
        match &self.body {
            NewBody::Inline(bufs) => bufs.iter().map(|buf| buf.len() as u64).sum(),
            NewBody::Sliced(slices) => slices.iter().map(|slice| u64::from(slice.len)).sum(),
        }
    }

    fn header(&self, payload: &[u8], size: u32) -> RecordHeader {
        let is_inline = matches!(self.body, NewBody::Inline(_));
        RecordHeader {
            kind: Kind::Entry,
            segment: 0,
            offset: 0,
            size,
            head_len: self.head.len() as u32,
            key: self.key,
            created_ms: self.created_ms,
            body_len: self.body_len(),
            count: self.slices().len() as u32,
            inline_len: if is_inline { self.body_len() as u32 } else { 0 },
            payload_sum: payload_sum(payload),
        }
    }
}

/// A count of uses after so many halvings; after the first it is at most a byte, so that what was
/// used ever so often leaves in time.
fn faded(hits: u16, halvings: u32) -> u16 {
    match halvings {
        0 => hits,
        _ => hits.min(u16::from(u8::MAX)) >> halvings,
    }
}

impl Inner {
    /// True if a record of this many bytes, padding aside, fits a segment.
    pub(crate) fn fits_record(&self, size: u64, rows_len: u32) -> bool {
        aligned(size) + u64::from(rows_len) <= self.disk.record_limit()
    }

    /// Reserves a record, makes its entry visible and queues the writing.
    pub(crate) fn publish(&self, publish: Publish) -> Result<Entry, NotStored> {
        let mut record = publish.encode();
        let size = aligned(record.len() as u64);
        let needs = segments_of(publish.slices());
        // Until the entry is in the index.
        let claim = self.disk.book.claim(&publish.head);
        let account = claim.account();
        let mut row = [Row {
            kind: Kind::Entry,
            key: publish.key,
            offset: 0,
            size: 0,
            body_len: publish.body_len(),
            is_sliced: !needs.is_empty(),
            account,
            needs: needs.to_vec(),
        }];
        let rows_len = row[0].encoded_len() + site_room(account, &self.disk.book);
        if !self.fits_record(size, rows_len) {
            return Err(NotStored::TooLarge);
        }
        if !self.disk.queue.has_room(size) {
            return Err(NotStored::QueueFull);
        }
        // A record fits a segment, so its size fits 32 bits.
        row[0].size = size as u32;
        let payload = record.get(RECORD_HEADER as usize..).unwrap_or_default();
        let mut header = publish.header(payload, size as u32);
        for _ in 0..MAX_ATTEMPTS {
            if let Some(entry) = self.try_publish(&publish, &mut row, &mut header, &mut record)? {
                return Ok(entry);
            }
            self.make_room(size as u32, rows_len)?;
        }
        Err(NotStored::Full)
    }

    /// INVARIANT 1 is kept here. `None` if the active segment has no room.
    fn try_publish(
        &self,
        publish: &Publish,
        row: &mut [Row; 1],
        header: &mut RecordHeader,
        record: &mut Vec<u8>,
    ) -> Result<Option<Entry>, NotStored> {
        let key = publish.key;
        let mut shard = self.index.shard(&key);
        let older = shard.table.get(&key);
        if publish.replaces.is_some() && publish.replaces != older.map(|slot| slot.place()) {
            return Err(NotStored::Superseded);
        }
        // INVARIANT 5. The answer holds as long as the lock of the shard.
        if !self.health.may_hold(&key) {
            return Err(NotStored::Superseded);
        }
        // Writing an entry again is no use of it.
        let kept = older.filter(|_| publish.replaces.is_some());
        let used = kept.map_or_else(|| self.now_s(), |slot| slot.used);
        let hits = kept.map_or(0, |slot| faded(slot.hits(), publish.halvings));
        // The rows must not name the record's own segment as one that it needs: it goes with it.
        let needs = segments_of(publish.slices());
        let reserved = {
            let mut log = lock(&self.disk.log);
            let active = log.active;
            row[0].needs = needs.iter().copied().filter(|id| *id != active).collect();
            log.reserve_record(header.size, row)
        };
        let place = match reserved {
            Ok(place) => place,
            Err(Refused::NoRoom) => return Ok(None),
            Err(Refused::Gone) => return Err(NotStored::Superseded),
        };
        (header.segment, header.offset) = (place.segment, place.offset);
        let encoded = header.encode(self.disk.seed);
        for (target, byte) in record.iter_mut().zip(&encoded) {
            *target = *byte;
        }
        let record = Bytes::from(std::mem::take(record));
        let entry = self.new_entry(publish, place, &record);
        let slot = Slot::new(key, place, publish.body_len(), used).charged_to(row[0].account);
        let mut slot = slot.with_hits(hits).in_flight();
        if row[0].is_sliced {
            slot = slot.sliced();
        }
        if publish.is_doubtful {
            slot = slot.unverified();
        }
        shard.insert(slot, kept.map_or(Leave::Replaced, |_| Leave::Moved));
        shard.flights.insert(key, entry.clone());
        drop(shard);
        self.index.keep(&entry.stored);
        self.disk.queue.charge(u64::from(place.size));
        self.disk.queue.push(Job::Record {
            place,
            bufs: vec![record],
            then: Then::Land {
                key,
                fill: entry.fill.clone(),
                older: older.map(|slot| slot.place()),
            },
        });
        Ok(Some(entry))
    }

    /// The entry of a record whose bytes are in memory.
    fn new_entry(&self, publish: &Publish, place: Place, record: &Bytes) -> Entry {
        let table = publish.slices().len() * SLICE_REF as usize;
        let head_start = RECORD_HEADER as usize + table;
        let head_end = head_start + publish.head.len();
        let body = match &publish.body {
            NewBody::Inline(_) => Body::Inline(record.slice(head_end..)),
            NewBody::Sliced(slices) => {
                let doubt = publish.is_doubtful.then(|| unchecked(slices.len()));
                Body::Sliced(Sliced::new(slices.clone().into(), doubt))
            }
        };
        let (pins, fill) = match &publish.source {
            Source::Memory => (Pins::None, None),
            Source::Fill(fill) => (Pins::None, Some(Arc::clone(fill))),
            Source::Pins(pins) => (pins.clone(), None),
        };
        let stored = Stored {
            key: publish.key,
            place,
            head: record.slice(head_start..head_end),
            body,
            len: publish.body_len(),
            created_ms: publish.created_ms,
            reading: OnceLock::new(),
        };
        Entry {
            zone: self.zone_of(&stored),
            stored: Arc::new(stored),
            pins,
            fill,
            origin: self.serial,
        }
    }
}

impl Inner {
    /// Decides whether a fill may begin.
    pub(crate) fn may_begin(&self, key: &Key, expected_len: Option<u64>) -> Result<(), NotStored> {
        self.may_write(key, expected_len)?;
        let must_choose = self.is_full.load(Ordering::Relaxed) && expected_len != Some(0);
        if must_choose && !self.is_chosen(key, expected_len) {
            return Err(NotStored::AskedSeldom);
        }
        Ok(())
    }

    /// The same without the choice of a full zone.
    pub(crate) fn may_write(&self, key: &Key, expected_len: Option<u64>) -> Result<(), NotStored> {
        if self.is_closed() {
            return Err(NotStored::Closed);
        }
        if self.is_low.load(Ordering::Relaxed) || self.health.is_failed() {
            return Err(NotStored::Disk);
        }
        if self.rests() {
            return Err(NotStored::Disk);
        }
        if self.is_unknown(key) {
            return Err(NotStored::Unloaded);
        }
        let capacity = self.capacity();
        if capacity == 0 || expected_len.is_some_and(|len| len > capacity) {
            return Err(NotStored::TooLarge);
        }
        if !self.disk.queue.has_room(1) {
            return Err(NotStored::QueueFull);
        }
        Ok(())
    }

    /// True if a full zone takes something.
    fn is_chosen(&self, key: &Key, expected_len: Option<u64>) -> bool {
        let choice = &self.limits.choice;
        if self.index.get(key).is_some() {
            choice.earn(expected_len);
            return true;
        }
        choice.takes(key, expected_len, &|| self.index.count())
    }
}
