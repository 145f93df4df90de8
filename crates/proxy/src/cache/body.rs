//! Bodies of cached answers: regions of an entry, or a running fill.
//!
//! An entry's body is known: its regions go out as pieces. A running fill is a stream that hands
//! out what is there and waits, without polling, for more.
//!
//! Bytes that the disk's thread has written go to the socket by `sendfile`, without a copy; what is
//! in memory yet is copied, which costs as much again as receiving it did. So a reader that sends
//! files takes the first bytes as they come, and waits a moment for the disk with the rest. It does
//! so no more for this body once it was in vain:
//!
//! ```text
//!   First ──what is there──► Files ──the origin gives little──► Placed ──┐ the disk
//!                              └─────── the disk is slow ───────────┐    │ is slow
//!                                                                   ▼    ▼
//!                                                                    Any
//! ```

use std::collections::VecDeque;
use std::future::Future;
use std::ops::Range;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use millpond_cache::exchange::FetchEnd;
use millpond_cache::fill::pump::Reader;
use millpond_cache::fill::rest;
use millpond_store::{Entry, NotStored, Region, View, ViewState, Written};
use millpond_system::body::{Body, BodyError, BodyStream, FileRegion, FileSource, Piece};
use millpond_system::clock;

use millpond_exchange::provenance::{Provenance, Tally, Whence};

/// The most that one look at a running fill hands out (arbitrary: several sends' worth).
const LOOK_BYTES: u64 = 1 << 20;

/// The most that is taken from memory before the disk is waited for: what a client can have at
/// once (TCP sends some 14 KiB before it hears of the other side).
const FIRST_BYTES: u64 = 32 << 10;

/// The most that is taken at once of what the store did not take (arbitrary: one send's worth; the
/// memory counts as read when the next is taken).
const REST_BYTES: u64 = 64 << 10;

/// Time that the disk may take to write bytes before they are taken from memory (what a disk with a
/// full queue takes; nobody notices so much once the answer has begun).
const DISK_PATIENCE: Duration = Duration::from_millis(100);

/// Time that an origin may take to send enough for a write (a fast one takes less for 256 KiB).
const ORIGIN_PATIENCE: Duration = Duration::from_millis(5);

/// The body of a stored entry.
pub(crate) fn of_entry(entry: &Entry) -> Body {
    if let Some(bytes) = entry.body_in_memory() {
        return Body::from(bytes.clone());
    }
    let mut regions = entry
        .regions_to_load(0..entry.len())
        .filter(|region| !region.is_empty());
    let Some(first) = regions.next() else {
        return Body::Empty;
    };
    // Most are one, for which no list is made.
    match regions.next() {
        None => Body::One(piece(first)),
        Some(second) => {
            let first = [first, second].into_iter();
            Body::Many(first.chain(regions).map(piece).collect())
        }
    }
}

/// A region as a piece of a body.
pub(super) fn piece(region: Region) -> Piece {
    match region {
        Region::Memory(bytes) => Piece::Memory(bytes),
        Region::File { file, offset, len } => Piece::File(FileRegion {
            file: FileSource::Held(file),
            offset,
            len,
        }),
    }
}

/// Waits for a fill or its disk; says what is taken from then on, if that is something else.
type Waiting = Pin<Box<dyn Future<Output = Option<Taste>>>>;

/// Kind of bytes that are taken of a running fill.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Taste {
    /// All that is there.
    Any,
    /// All that is there, but not much of it; then files.
    First,
    /// Only bytes that are written; origin and disk are waited for.
    Files,
    /// Only bytes that are written; only the disk is waited for.
    Placed,
}

/// Result of one look at a running fill.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Look {
    Took,
    /// Bytes that the disk is to write.
    Queued,
    /// Bytes that will be written with more of them.
    Gathering,
    Nothing,
}

/// Makes the body of a part of the same version, for who cannot read along any more.
pub(crate) type Resume = Box<dyn FnOnce(Range<u64>) -> Pin<Box<dyn BodyStream>>>;

/// The body of a running fill.
pub(crate) struct FillBody {
    reader: Reader,
    /// Range that is still wanted of the fill; the end is open while the length is unknown.
    wanted: Range<u64>,
    ready: VecDeque<Piece>,
    waiting: Option<Waiting>,
    taste: Taste,
    /// Maker of the body's rest that does without the fill, if there is one.
    resume: Option<Resume>,
    /// That it does.
    resumed: Option<Pin<Box<dyn BodyStream>>>,
    /// Bytes that were there when the fill was joined, and where what is handed out is entered.
    joined_at: Option<(u64, Rc<Tally>)>,
}

impl FillBody {
    /// The whole body.
    pub(crate) fn new(reader: Reader) -> Self {
        FillBody {
            reader,
            wanted: 0..u64::MAX,
            ready: VecDeque::new(),
            waiting: None,
            taste: Taste::Any,
            resume: None,
            resumed: None,
            joined_at: None,
        }
    }

    /// The body of a fill that another request caused, and where its bytes come from.
    pub(crate) fn joined(reader: Reader) -> (Self, Provenance) {
        let here = reader.view.len();
        let body = FillBody::new(reader);
        if here == 0 {
            return (body, Provenance::One(Whence::Origin));
        }
        let tally = Rc::<Tally>::default();
        let joined_at = Some((here, Rc::clone(&tally)));
        (FillBody { joined_at, ..body }, Provenance::Several(tally))
    }

    /// Lets the body go on without the fill.
    pub(crate) fn with_resume(self, resume: Option<Resume>) -> Self {
        FillBody { resume, ..self }
    }

    /// Enters what is handed out from here on.
    fn enter(&self, range: Range<u64>) {
        if let Some((here, tally)) = &self.joined_at {
            let held = range.end.min(*here).saturating_sub(range.start);
            tally.add(Whence::Cache, held);
            tally.add(Whence::Origin, range.end - range.start - held);
        }
    }

    /// Takes what has arrived.
    fn look(&mut self) -> Look {
        let len = self.reader.view.len().min(self.wanted.end);
        let start = self.wanted.start;
        self.reader.seat.move_to(start);
        if len <= start {
            return Look::Nothing;
        }
        let end = len.min(start.saturating_add(LOOK_BYTES));
        let (regions, end) = match self.choose(start..end) {
            Ok(chosen) => chosen,
            Err(wait) => return wait,
        };
        self.ready.extend(
            regions
                .into_iter()
                .filter(|region| !region.is_empty())
                .map(piece),
        );
        self.enter(start..end);
        self.wanted.start = end;
        Look::Took
    }

    /// Regions of a range that has arrived, and where they end; an error is what to wait for.
    fn choose(&mut self, range: Range<u64>) -> Result<(Vec<Region>, u64), Look> {
        let view = &self.reader.view;
        let Range { start, mut end } = range.clone();
        if self.taste != Taste::Any {
            match (view.written(range), self.taste) {
                (Written::Regions(regions), taste) => {
                    if taste == Taste::First {
                        self.taste = Taste::Files;
                    }
                    let len: u64 = regions.iter().map(Region::len).sum();
                    return Ok((regions, start + len));
                }
                (Written::Queued | Written::Gathering, Taste::First) => {
                    self.taste = Taste::Files;
                    end = end.min(start + FIRST_BYTES);
                }
                (Written::Queued, _) => return Err(Look::Queued),
                (Written::Gathering, Taste::Files) => return Err(Look::Gathering),
                (Written::Gathering | Written::No, _) => {}
            }
        }
        Ok((view.regions(start..end), end))
    }

    /// The fill was given up: the rest comes past the store, or not at all.
    fn look_at_rest(&mut self, why: NotStored) -> Result<Rest, BodyError> {
        let Range { start, end } = self.wanted;
        let range = start..end.min(start.saturating_add(REST_BYTES));
        let seat = &self.reader.seat;
        match seat.look(&range) {
            rest::Look::InView => Ok(Rest::Taken),
            rest::Look::Bytes(regions) => {
                let len: u64 = regions.iter().map(Region::len).sum();
                self.ready.extend(regions.into_iter().map(piece));
                self.enter(start..start + len);
                self.wanted.start += len;
                Ok(Rest::Taken)
            }
            rest::Look::Wait(version) => {
                let changed = seat.changed(version);
                Ok(Rest::Wait(Box::pin(async move {
                    changed.await;
                    None
                })))
            }
            rest::Look::End(Ok(())) => Ok(Rest::End),
            // The origin may have waited too long for those who read.
            rest::Look::End(Err(_)) if seat.is_begun() && self.resume.is_some() => {
                Ok(self.go_on_alone())
            }
            rest::Look::LetGo if self.resume.is_some() => Ok(self.go_on_alone()),
            rest::Look::End(Err(FetchEnd::Truncated)) => Err(BodyError::UpstreamTruncated),
            rest::Look::End(Err(FetchEnd::TimedOut)) => Err(BodyError::UpstreamTimedOut),
            rest::Look::LetGo => Err(BodyError::FillAbandoned(why.to_string())),
        }
    }

    fn go_on_alone(&mut self) -> Rest {
        let wanted = self.wanted.clone();
        self.resumed = self.resume.take().map(|resume| resume(wanted));
        Rest::Taken
    }

    fn poll_resumed(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Piece, BodyError>>> {
        let Some(resumed) = &mut self.resumed else {
            return Poll::Ready(None);
        };
        let next = ready!(resumed.as_mut().poll_next(cx));
        if let Some(Ok(piece)) = &next {
            let start = self.wanted.start;
            self.wanted.start += piece.len();
            self.enter(start..self.wanted.start);
        }
        Poll::Ready(next)
    }
}

/// Result of a look at the rest of a fill that was given up.
enum Rest {
    /// There is something to go on with.
    Taken,
    Wait(Waiting),
    End,
}

impl BodyStream for FillBody {
    fn poll_next(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Piece, BodyError>>> {
        let this = &mut *self;
        loop {
            if let Some(piece) = this.ready.pop_front() {
                return Poll::Ready(Some(Ok(piece)));
            }
            if this.wanted.start >= this.wanted.end {
                return Poll::Ready(None);
            }
            if this.resumed.is_some() {
                return this.poll_resumed(cx);
            }
            // The state first: what it says of the end holds for all bytes that are seen after it.
            let state = this.reader.view.state();
            let look = this.look();
            match (look, state) {
                (Look::Took, _) => {
                    this.waiting = None;
                    continue;
                }
                (Look::Queued | Look::Gathering, _) | (Look::Nothing, ViewState::Filling) => {}
                (Look::Nothing, ViewState::Complete) => return Poll::Ready(None),
                (Look::Nothing, ViewState::Abandoned(why)) => match this.look_at_rest(why) {
                    Ok(Rest::Taken) => {
                        this.waiting = None;
                        continue;
                    }
                    Ok(Rest::Wait(waiting)) => this.waiting = Some(waiting),
                    Ok(Rest::End) => return Poll::Ready(None),
                    Err(error) => return Poll::Ready(Some(Err(error))),
                },
            }
            let (view, at) = (&this.reader.view, this.wanted.start);
            let waiting = this
                .waiting
                .get_or_insert_with(|| wait(view.clone(), look, at));
            if let Some(taste) = ready!(waiting.as_mut().poll(cx)) {
                this.taste = taste;
            }
            this.waiting = None;
        }
    }

    fn prefer_files(mut self: Pin<&mut Self>) {
        if self.taste == Taste::Any {
            self.taste = Taste::First;
        }
    }

    fn narrow(mut self: Pin<&mut Self>, wanted: Range<u64>) -> bool {
        self.wanted = wanted;
        true
    }
}

/// Waits for what a look at `position` did not find.
fn wait(view: View, look: Look, position: u64) -> Waiting {
    let (patience, then) = match look {
        Look::Queued => (DISK_PATIENCE, Taste::Any),
        Look::Gathering => (ORIGIN_PATIENCE, Taste::Placed),
        Look::Took | Look::Nothing => {
            return Box::pin(async move {
                view.changed(position).await;
                None
            });
        }
    };
    Box::pin(async move {
        let written = clock::within(patience, view.until_written(position));
        match written.await {
            Some(()) => None,
            None => Some(then),
        }
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bytes::Bytes;
    use millpond_store::{Fault, Key, ManualClock, Platform, SimIo, Writer, Zone, ZoneConf};
    use tokio::time::Instant;

    use super::*;

    const PLACED: usize = 512 << 10;

    /// A fill of two places and a hundred bytes, on a disk that may stand still; and its reader.
    struct Bench {
        io: Arc<SimIo>,
        zone: Arc<Zone>,
        writer: Writer,
        body: Body,
        _dir: tempfile::TempDir,
    }

    impl Bench {
        fn new(fault: Fault) -> Self {
            let dir = tempfile::tempdir().unwrap();
            let io = Arc::new(SimIo::new());
            let conf = ZoneConf {
                max_size: Some(8 << 20),
                flush: Duration::ZERO,
                ..ZoneConf::new("test", dir.path())
            };
            let platform = Platform {
                io: io.clone(),
                ..Platform::default()
            };
            let clock = Arc::new(ManualClock::new(1_700_000_000_000));
            let zone = Zone::open_on(conf, clock, platform).unwrap();
            io.set(fault);
            let mut writer = zone.begin(Key::of(b"k"), None).unwrap();
            writer
                .append(Bytes::from(vec![b'x'; PLACED + 100]))
                .unwrap();
            let reader = Reader::of_writer(&writer);
            Bench {
                io,
                zone,
                writer,
                body: Body::stream(FillBody::new(reader)),
                _dir: dir,
            }
        }

        /// The next piece, and how many milliseconds it took.
        async fn next(&mut self) -> (&'static str, u64, u128) {
            let before = Instant::now();
            let piece = self.body.next().await.unwrap().unwrap();
            let kind = match piece {
                Piece::Memory(_) => "memory",
                Piece::File(_) => "file",
            };
            (kind, piece.len(), before.elapsed().as_millis())
        }
    }

    impl Drop for Bench {
        fn drop(&mut self) {
            // The zone would wait for its disk.
            self.io.set(Fault::None);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn without_sendfile_all_is_taken_as_it_comes() {
        let mut bench = Bench::new(Fault::StallWrites);
        assert_eq!(bench.next().await, ("memory", PLACED as u64 + 100, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn a_disk_that_stands_still_is_waited_for_once() {
        let mut bench = Bench::new(Fault::StallWrites);
        bench.body.prefer_files();
        assert_eq!(bench.next().await, ("memory", FIRST_BYTES, 0));
        let rest = PLACED as u64 + 100 - FIRST_BYTES;
        let (kind, len, took) = bench.next().await;
        assert_eq!((kind, len), ("memory", rest));
        assert!((100..110).contains(&took), "{took}");
        bench
            .writer
            .append(Bytes::from(vec![b'x'; PLACED]))
            .unwrap();
        assert_eq!(bench.next().await, ("memory", PLACED as u64, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_written_is_sent_from_files_and_a_slow_origin_is_waited_for_once() {
        let mut bench = Bench::new(Fault::None);
        bench.zone.flush();
        bench.body.prefer_files();
        let mut files = 0;
        while files < PLACED as u64 {
            let (kind, len, took) = bench.next().await;
            assert_eq!((kind, took), ("file", 0));
            files += len;
        }
        let (kind, len, took) = bench.next().await;
        assert_eq!((kind, len), ("memory", 100));
        assert!((5..10).contains(&took), "{took}");
        bench.writer.append(Bytes::from_static(b"xx")).unwrap();
        assert_eq!(bench.next().await, ("memory", 2, 0));
    }
}
