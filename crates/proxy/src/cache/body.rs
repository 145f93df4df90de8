//! Bodies of cached answers: regions of an entry, or a running fill.
//!
//! An entry's body is known: its regions go out as pieces. A running fill is a stream that hands
//! out what is there and waits, without polling, for more.

use std::collections::VecDeque;
use std::future::Future;
use std::ops::Range;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use millpond_cache::fill::pump::Reader;
use millpond_cache::step::FetchEnd;
use millpond_store::{Entry, Region, View, ViewState};

use super::provenance::{Provenance, Tally, Whence};
use crate::body::{Body, BodyError, BodyStream, FileRegion, FileSource, Piece};

/// The most that one look at a running fill hands out (arbitrary: several sends' worth).
const LOOK_BYTES: u64 = 1 << 20;

/// The body of a stored entry.
pub fn of_entry(entry: &Entry) -> Body {
    if let Some(bytes) = entry.body_in_memory() {
        return Body::from(bytes.clone());
    }
    let pieces: VecDeque<Piece> = entry
        .regions_to_load(0..entry.len())
        .filter(|region| !region.is_empty())
        .map(piece)
        .collect();
    Body::from(pieces)
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

type Changed = Pin<Box<dyn Future<Output = ()>>>;

/// The body of a running fill.
pub struct FillBody {
    reader: Reader,
    /// What is still wanted of it; the end is open while the length is unknown.
    wanted: Range<u64>,
    ready: VecDeque<Piece>,
    changed: Option<Changed>,
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
            changed: None,
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

    /// Takes what has arrived; false when there is nothing new.
    fn look(&mut self) -> bool {
        let len = self.reader.view.len().min(self.wanted.end);
        let start = self.wanted.start;
        if len <= start {
            return false;
        }
        let end = len.min(start.saturating_add(LOOK_BYTES));
        let regions = self.reader.view.regions(start..end);
        self.ready.extend(
            regions
                .into_iter()
                .filter(|region| !region.is_empty())
                .map(piece),
        );
        self.enter(start..end);
        self.wanted.start = end;
        true
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
            if this.look() {
                this.changed = None;
                continue;
            }
            match state {
                ViewState::Complete => return Poll::Ready(None),
                ViewState::Abandoned(why) => {
                    if this.overflow_at == 0 {
                        this.overflow_at = this.reader.view.len();
                    }
                    return this.poll_overflow(cx, &why.to_string());
                }
                ViewState::Filling => {}
            }
            let seen = this.reader.view.len();
            let view = this.reader.view.clone();
            let changed = this
                .changed
                .get_or_insert_with(|| Box::pin(wait(view, seen)));
            ready!(changed.as_mut().poll(cx));
            this.changed = None;
        }
    }

    fn narrow(mut self: Pin<&mut Self>, wanted: Range<u64>) -> bool {
        self.wanted = wanted;
        true
    }
}

async fn wait(view: View, seen: u64) {
    view.changed(seen).await;
}
