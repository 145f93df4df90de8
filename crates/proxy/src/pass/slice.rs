//! `$slice_range`: a large body answered in slices where nothing is cached, each a request of its
//! own.
//!
//! ```text
//! Range of the client ─► first slice (aligned) ─206─► head of the whole: 200 and the total length
//!                              │ any other status                │
//!                              ▼                                 ▼
//!                        the answer as it is          SliceBody: slice, slice, slice …
//! ```
//!
//! The Range field of each request is what the configuration makes of `$slice_range`. Where there
//! is a cache, `cache/slice.rs` has the slices.
//!
//! Invariants:
//! 1. A slice whose Content-Range is not the one asked for, or whose ETag or total length differs
//!    from the first one's, ends the body with an error: no body mixes versions.
//! 2. One slice is fetched at a time, and none before the client has taken most of the one before.
//! 3. Less than `POSTPONED` bytes are not sent before the next slice is known to be right: with
//!    slices that small, an answer that cannot be put together is none, as in nginx.

use std::collections::VecDeque;
use std::future::Future;
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use millpond_semantics::range::{ContentRange, RangeSpec, first_range, parse_content_range};
use millpond_system::body::{Body, BodyError, BodyStream, Piece};
use millpond_system::log::error::Level;
use millpond_wire::header::Known;

use crate::cache::uncached;
use crate::log::request_error;
use crate::request::Request;
use crate::upstream::pass::PassTarget;
use millpond_exchange::failure::{CLOSE_WITHOUT_ANSWER, Failure};
use millpond_exchange::response::{CONTENT_DIGESTS, RangeRule, Response};

/// nginx's `postpone_output`: what it sends no less than, if more is to come.
const POSTPONED: u64 = 1460;

/// Answers a request in slices.
pub(crate) async fn run(
    req: &mut Request,
    target: &Arc<PassTarget>,
    size: u64,
) -> Result<Box<Response>, Failure> {
    let start = first_start(req) / size * size;
    set_range(req, start, size);
    let response = uncached::fetch(req, target).await?;
    if response.status != 206 {
        req.slice_range = None;
        return Ok(response);
    }
    match check(&response, start, size) {
        Ok(found) => Ok(whole(req, target, response, found, size)),
        Err(what) => {
            request_error::write(req, Level::Error, format_args!("{what}"));
            // nginx: an answer that is no slice is none.
            Err(Failure::Status(CLOSE_WITHOUT_ANSWER))
        }
    }
}

/// Position at which the client's range begins; nginx looks only at a plain first range.
fn first_start(req: &Request) -> u64 {
    if req.field(Known::IfRange).is_some() {
        return 0;
    }
    match req.field(Known::Range).and_then(first_range) {
        Some(RangeSpec::From { start } | RangeSpec::FromTo { start, .. }) => start,
        Some(RangeSpec::Suffix { .. }) | None => 0,
    }
}

fn set_range(req: &mut Request, start: u64, size: u64) {
    let end = start.saturating_add(size - 1);
    req.slice_range = Some(Bytes::from(format!("bytes={start}-{end}")));
}

/// A slice's place in the whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place {
    start: u64,
    end: u64,
    total: u64,
}

/// nginx: the slice must be the one asked for, up to the end of the whole.
fn check(response: &Response, start: u64, size: u64) -> Result<Place, String> {
    let Some(range) = response.fields.get(Known::ContentRange) else {
        return Err("invalid range in slice response".to_string());
    };
    let Some(ContentRange {
        start: from,
        end,
        len,
    }) = parse_content_range(range)
    else {
        return Err("invalid range in slice response".to_string());
    };
    let Some(total) = len else {
        return Err("no complete length in slice response".to_string());
    };
    let wanted_end = start.saturating_add(size).min(total);
    if from != start || end != wanted_end {
        return Err(format!("unexpected range in slice response: {from}-{end}"));
    }
    Ok(Place { start, end, total })
}

/// The head of the whole body, from the first slice's.
fn whole(
    req: &Request,
    target: &Arc<PassTarget>,
    mut first: Box<Response>,
    place: Place,
    size: u64,
) -> Box<Response> {
    let body = std::mem::take(&mut first.body);
    first.status = 200;
    first.orders.status_text = None;
    first.parts.is_one = false;
    first.length = Some(place.total);
    first.parts.rule = RangeRule::Single;
    first.fields.remove(Known::ContentRange);
    // Of one slice (RFC 9530 §2).
    first.fields.remove_all(CONTENT_DIGESTS);
    // The ranges are made here, whatever the upstream says of its own.
    first.fields.remove(Known::AcceptRanges);
    let stream = SliceBody {
        req: Some(Box::new(req.background())),
        target: Arc::clone(target),
        etag: first.fields.get(Known::ETag).cloned(),
        size,
        total: place.total,
        wanted: 0..place.total,
        first: Some((place, body)),
        current: None,
        next: None,
    };
    first.delivery.waits_for_body = true;
    first.body = if size < POSTPONED {
        Body::stream(Postponed::new(stream))
    } else {
        Body::stream(stream)
    };
    first
}

type NextSlice = Pin<Box<dyn Future<Output = (Box<Request>, Result<Box<Response>, Failure>)>>>;

/// The body of all slices in turn.
struct SliceBody {
    /// The request that asks for further slices; with the future while one runs.
    req: Option<Box<Request>>,
    target: Arc<PassTarget>,
    etag: Option<Bytes>,
    size: u64,
    total: u64,
    /// Range of positions that is still to be handed out.
    wanted: Range<u64>,
    /// The slice that gave the head.
    first: Option<(Place, Body)>,
    current: Option<Body>,
    next: Option<NextSlice>,
}

impl SliceBody {
    /// Begins the slice that holds the next wanted byte.
    fn begin_next(&mut self) {
        let start = self.wanted.start / self.size * self.size;
        if let Some((place, body)) = self.first.take()
            && place.start == start
        {
            self.open(place, body);
            return;
        }
        let Some(mut req) = self.req.take() else {
            return;
        };
        let target = Arc::clone(&self.target);
        set_range(&mut req, start, self.size);
        self.next = Some(Box::pin(async move {
            let answer = uncached::fetch(&mut req, &target).await;
            (req, answer)
        }));
    }

    /// Makes a slice the current one, cut to what is wanted of it.
    fn open(&mut self, place: Place, mut body: Body) {
        let from = self.wanted.start - place.start;
        let to = self.wanted.end.min(place.end) - place.start;
        body.narrow(from..to);
        self.current = Some(body);
    }

    fn arrived(&mut self, answer: Result<Box<Response>, Failure>) -> Result<(), BodyError> {
        let start = self.wanted.start / self.size * self.size;
        let broken = BodyError::Slice;
        let mut response = answer.map_err(|failure| broken(failure.to_string()))?;
        if response.status != 206 {
            return Err(broken(format!(
                "unexpected status code {} in slice response",
                response.status
            )));
        }
        let place = check(&response, start, self.size).map_err(broken)?;
        if place.total != self.total || response.fields.get(Known::ETag) != self.etag.as_ref() {
            return Err(broken("etag mismatch in slice response".to_string()));
        }
        let body = std::mem::take(&mut response.body);
        self.open(place, body);
        Ok(())
    }
}

impl BodyStream for SliceBody {
    fn poll_next(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Piece, BodyError>>> {
        let this = &mut *self;
        loop {
            if this.wanted.start >= this.wanted.end {
                return Poll::Ready(None);
            }
            if let Some(body) = &mut this.current {
                match ready!(body.poll_next(cx)) {
                    Some(Ok(piece)) => {
                        this.wanted.start += piece.len();
                        return Poll::Ready(Some(Ok(piece)));
                    }
                    Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                    None => this.current = None,
                }
                if !this.wanted.start.is_multiple_of(this.size)
                    && this.wanted.start < this.wanted.end
                {
                    return Poll::Ready(Some(Err(BodyError::UpstreamTruncated)));
                }
                continue;
            }
            if let Some(next) = &mut this.next {
                let (req, answer) = ready!(next.as_mut().poll(cx));
                this.next = None;
                this.req = Some(req);
                if let Err(error) = this.arrived(answer) {
                    return Poll::Ready(Some(Err(error)));
                }
                continue;
            }
            this.begin_next();
        }
    }

    fn narrow(mut self: Pin<&mut Self>, wanted: Range<u64>) -> bool {
        self.wanted = wanted.start..wanted.end.min(self.total);
        true
    }
}

/// A body whose first bytes wait for more of it, or for its end.
struct Postponed {
    body: SliceBody,
    held: VecDeque<Piece>,
    bytes: u64,
    is_open: bool,
    is_ended: bool,
}

impl Postponed {
    fn new(body: SliceBody) -> Self {
        Postponed {
            body,
            held: VecDeque::new(),
            bytes: 0,
            is_open: false,
            is_ended: false,
        }
    }
}

impl BodyStream for Postponed {
    fn poll_next(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Piece, BodyError>>> {
        let this = &mut *self;
        while !this.is_open {
            match ready!(Pin::new(&mut this.body).poll_next(cx)) {
                Some(Ok(piece)) => {
                    this.bytes += piece.len();
                    this.held.push_back(piece);
                    this.is_open = this.bytes >= POSTPONED;
                }
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                None => {
                    this.is_open = true;
                    this.is_ended = true;
                }
            }
        }
        match this.held.pop_front() {
            Some(piece) => Poll::Ready(Some(Ok(piece))),
            None if this.is_ended => Poll::Ready(None),
            None => Pin::new(&mut this.body).poll_next(cx),
        }
    }

    fn narrow(mut self: Pin<&mut Self>, wanted: Range<u64>) -> bool {
        Pin::new(&mut self.body).narrow(wanted)
    }
}
