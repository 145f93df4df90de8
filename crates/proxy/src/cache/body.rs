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

use millpond_cache::fill::pump::Reader;
use millpond_cache::step::FetchEnd;
use millpond_store::{Entry, Region, View, ViewState, Written};

use super::provenance::{Provenance, Tally, Whence};
use crate::body::{Body, BodyError, BodyStream, FileRegion, FileSource, Piece};
use crate::clock;

/// The most that one look at a running fill hands out (arbitrary: several sends' worth).
const LOOK_BYTES: u64 = 1 << 20;

/// The most that is taken from memory before the disk is waited for: what a client can have at
/// once (TCP sends some 14 KiB before it hears of the other side).
const FIRST_BYTES: u64 = 32 << 10;

/// How long the disk may take to write bytes before they are taken from memory (what a disk with a
/// full queue takes; nobody notices so much once the answer has begun).
const DISK_PATIENCE: Duration = Duration::from_millis(100);

/// How long an origin may take to send enough for a write (a fast one takes less for 256 KiB).
const ORIGIN_PATIENCE: Duration = Duration::from_millis(5);

/// The body of a stored entry.
pub fn of_entry(entry: &Entry) -> Body {
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

/// What is taken of a running fill.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Taste {
    /// All that is there.
    Any,
    /// The same, but not much of it; then files.
    First,
    /// What is written; origin and disk are waited for.
    Files,
    /// What is written; only the disk is waited for.
    Placed,
}

/// What one look at a running fill found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Look {
    Took,
    /// Bytes that the disk is to write.
    Queued,
    /// Bytes that will be written with more of them.
    Gathering,
    Nothing,
}

/// The body of a running fill.
pub struct FillBody {
    reader: Reader,
    /// What is still wanted of it; the end is open while the length is unknown.
    wanted: Range<u64>,
    ready: VecDeque<Piece>,
    waiting: Option<Waiting>,
    taste: Taste,
    /// Where in the body the overflow channel is, once it is read.
    overflow_at: u64,
    /// Bytes that were there when the fill was joined, and where what is handed out is entered.
    joined_at: Option<(u64, Rc<Tally>)>,
}

impl FillBody {
    /// The whole body.
    pub fn new(reader: Reader) -> Self {
        FillBody {
            reader,
            wanted: 0..u64::MAX,
            ready: VecDeque::new(),
            waiting: None,
            taste: Taste::Any,
            overflow_at: 0,
            joined_at: None,
        }
    }

    /// The body of a fill that another request caused, and where its bytes come from.
    pub fn joined(reader: Reader) -> (Self, Provenance) {
        let here = reader.view.len();
        let body = FillBody::new(reader);
        if here == 0 {
            return (body, Provenance::One(Whence::Origin));
        }
        let tally = Rc::<Tally>::default();
        let joined_at = Some((here, Rc::clone(&tally)));
        (FillBody { joined_at, ..body }, Provenance::Several(tally))
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
    fn poll_overflow(
        &mut self,
        cx: &mut Context<'_>,
        why: &str,
    ) -> Poll<Option<Result<Piece, BodyError>>> {
        let Some(overflow) = &mut self.reader.overflow else {
            return Poll::Ready(Some(Err(BodyError::FillAbandoned(why.to_string()))));
        };
        loop {
            let Some(next) = ready!(overflow.poll_recv(cx)) else {
                return Poll::Ready(None);
            };
            let mut bytes = match next {
                Ok(bytes) => bytes,
                Err(FetchEnd::Truncated) => {
                    return Poll::Ready(Some(Err(BodyError::UpstreamTruncated)));
                }
                Err(FetchEnd::TimedOut) => {
                    return Poll::Ready(Some(Err(BodyError::UpstreamTimedOut)));
                }
            };
            let at = self.overflow_at;
            self.overflow_at += bytes.len() as u64;
            let from = self.wanted.start.saturating_sub(at).min(bytes.len() as u64);
            let to = self.wanted.end.saturating_sub(at).min(bytes.len() as u64);
            bytes.truncate(to as usize);
            let bytes = bytes.split_off((from as usize).min(bytes.len()));
            if !bytes.is_empty() {
                let start = self.wanted.start;
                self.wanted.start += bytes.len() as u64;
                let range = start..self.wanted.start;
                self.enter(range);
                return Poll::Ready(Some(Ok(Piece::Memory(bytes))));
            }
            if self.wanted.start >= self.wanted.end {
                return Poll::Ready(None);
            }
        }
    }
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
                (Look::Nothing, ViewState::Abandoned(why)) => {
                    if this.overflow_at == 0 {
                        this.overflow_at = this.reader.view.len();
                    }
                    return this.poll_overflow(cx, &why.to_string());
                }
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
            let reader = Reader {
                view: writer.view(),
                overflow: None,
            };
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
