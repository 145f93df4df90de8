//! Ranges of an answer: 206 with one part or several, 416, and Accept-Ranges. `max_ranges` is
//! obeyed here.
//!
//! ```text
//! one range      Content-Range in the head, the bytes as the body
//! several        multipart/byteranges, for each:  CRLF --boundary CRLF fields CRLF CRLF bytes
//!                and at the end:                  CRLF --boundary-- CRLF
//! ```
//!
//! A body in memory or in files is sliced without a copy. A stream is walked once: what comes
//! before the range is dropped and reading ends with the range, so it gives one range only. A body
//! that is put together of slices gives several, at most `ASSEMBLED_RANGES_MAX`, each read when its
//! turn comes: ascending, and those that overlap or touch as one (RFC 9110 §14.2, §15.3.7.2).
//!
//! Invariants:
//! 1. `length` of a 206 is exactly the length of what [`Cut::apply`] gives.
//! 2. Several parts are never cut from a stream that can be read only once.
//!
//! Sources: RFC 9110 §14; nginx ngx_http_range_filter.

use std::collections::VecDeque;
use std::ops::Range;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};

use std::task::{Context, Poll, ready};

use bytes::Bytes;
use millpond_semantics::conditional::{Outcome, if_range_holds, if_range_holds_by_rfc};
use millpond_semantics::range::{
    ByteRange, RangeSet, Ranges, UNLIMITED_RANGES, content_range, parse_range, unsatisfied_range,
};
use millpond_system::body::{Body, BodyError, BodyStream, Piece};
use millpond_wire::header::{Known, short_value};
use millpond_wire::http1::{Method, Version};

use super::not_modified::ConditionPolicy;
use super::{Refusal, not_modified};
use crate::request::Request;
use millpond_exchange::response::{CONTENT_DIGESTS, RangeRule, Response};

/// Ranges of a body that is put together of slices, which may be fetched for each; more are
/// answered with the whole (arbitrary: several times what clients ask for).
const ASSEMBLED_RANGES_MAX: usize = 16;

/// Bytes that a part of such an answer is taken to need besides its own, as nginx reckons.
const ASSEMBLED_PART_HEAD: u64 = 256;

/// The only unit of ranges, and the value of Accept-Ranges.
pub(crate) const UNIT: &[u8] = b"bytes";

/// The number of the next boundary. nginx: a counter too; it only has to be absent from the body by
/// chance.
static BOUNDARY: AtomicU64 = AtomicU64::new(1);

/// Part of the body that is sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Cut {
    /// One range.
    One(ByteRange),
    /// Several, each with the head of its part, and what ends them.
    Parts(Vec<(Bytes, ByteRange)>, Bytes),
}

/// Decision about a Range field.
enum Decision {
    /// Nothing is said about ranges.
    None,
    /// The whole is sent, and ranges could be.
    Whole,
    /// The ranges are sent, of a body of this length.
    Ranges(Ranges, u64),
    /// There is nothing at these places, in a body of this length.
    Unsatisfiable(u64),
}

/// Decides which ranges are sent, and changes the head.
pub(crate) fn run(req: &Request, response: &mut Response) -> Result<Option<Cut>, Refusal> {
    match decide(req, response) {
        Decision::None => Ok(None),
        Decision::Whole => {
            accept_ranges(response);
            Ok(None)
        }
        Decision::Ranges(ranges, length) => Ok(Some(become_partial(response, &ranges, length))),
        Decision::Unsatisfiable(length) => Err(Refusal {
            status: 416,
            content_range: Some(Bytes::copy_from_slice(unsatisfied_range(length).as_bytes())),
        }),
    }
}

/// The bytes of the body that will be sent first, if no filter before this one objects; `None` if
/// none will be. What is found is kept for [`run`].
pub(crate) fn first_wanted(req: &Request, response: &mut Response) -> Option<Range<u64>> {
    if req.is_head() || not_modified::outcome(req, response) != Outcome::Proceed {
        return None;
    }
    match decide(req, response) {
        Decision::None | Decision::Whole => Some(0..response.length?),
        Decision::Ranges(ranges, length) => {
            if let [range] = ranges[..] {
                response.parts.first_look.range = Some((range, length));
            }
            let first = ranges.first()?;
            Some(first.start..first.end_exclusive)
        }
        Decision::Unsatisfiable(_) => None,
    }
}

/// The range of a body that is to come, if the request wants just one of it.
pub(crate) fn wanted_alone(req: &Request, response: &Response) -> Option<Range<u64>> {
    if req.is_head() || not_modified::outcome(req, response) != Outcome::Proceed {
        return None;
    }
    match decide(req, response) {
        Decision::Ranges(ranges, _) => match ranges[..] {
            [range] => Some(range.start..range.end_exclusive),
            _ => None,
        },
        _ => None,
    }
}

fn decide(req: &Request, response: &Response) -> Decision {
    let Some(length) = response.length else {
        return Decision::None;
    };
    if response.status != 200
        || response.parts.rule == RangeRule::Refused
        || req.head.version() < Version::Http10
    {
        return Decision::None;
    }
    let max_ranges = req
        .location
        .settings
        .of::<ConditionPolicy>()
        .max_ranges
        .unwrap_or(UNLIMITED_RANGES);
    if max_ranges == 0 {
        return Decision::None;
    }
    let Some(wanted) = req
        .field(Known::Range)
        .filter(|_| is_for_range(req, response) && is_current(req, response))
    else {
        return Decision::Whole;
    };
    let is_single = response.parts.rule == RangeRule::Single || !response.body.has_random_access();
    let max_ranges = if is_single { 1 } else { max_ranges };
    let asked = match response.parts.first_look.range {
        // However many are allowed, one is.
        Some((range, of)) if of == length => RangeSet::Ranges(range.into()),
        _ => parse_range(wanted, length, max_ranges),
    };
    match asked {
        RangeSet::Ranges(ranges) if response.parts.are_assembled => assemble(&ranges, length),
        RangeSet::Ranges(ranges) => Decision::Ranges(ranges, length),
        RangeSet::Ignore => Decision::Whole,
        RangeSet::Unsatisfiable => Decision::Unsatisfiable(length),
    }
}

/// Several ranges of a body in slices: merged, or the whole where that is not more.
fn assemble(ranges: &Ranges, length: u64) -> Decision {
    let merged = ranges.merged();
    let bytes: u64 = merged.iter().map(ByteRange::len).sum();
    let heads = ASSEMBLED_PART_HEAD * ranges.len() as u64;
    let is_wasteful = ranges.len() > 1 && bytes.saturating_add(heads) > length;
    if is_wasteful || merged.len() > ASSEMBLED_RANGES_MAX {
        return Decision::Whole;
    }
    Decision::Ranges(merged, length)
}

/// RFC 9110 §14.2: Range has a meaning for GET only, and RFC 10008 §2.8 gives QUERY the same; in
/// nginx it has one for HEAD, too.
fn is_for_range(req: &Request, response: &Response) -> bool {
    !response.conditions.are_by_rfc || req.method == Method::Get || req.is_query()
}

/// True if there is no If-Range, or it lets the range count.
fn is_current(req: &Request, response: &Response) -> bool {
    let Some(condition) = req.field(Known::IfRange) else {
        return true;
    };
    // The date is that of other representations, too.
    if response.changes.have_stored_encodings && !condition.starts_with(b"\"") {
        return false;
    }
    let etag = response.fields.get(Known::ETag).map(|tag| &tag[..]);
    if response.conditions.are_by_rfc {
        if_range_holds_by_rfc(condition, etag, not_modified::dates(req, response))
    } else {
        if_range_holds(condition, etag, response.last_modified)
    }
}

fn accept_ranges(response: &mut Response) {
    let fields = &mut response.fields;
    if fields.contains(Known::AcceptRanges) || !fields.show_again(Known::AcceptRanges, UNIT) {
        fields.set(Known::AcceptRanges, UNIT);
    }
}

fn become_partial(response: &mut Response, ranges: &Ranges, length: u64) -> Cut {
    response.status = 206;
    response.orders.status_text = None;
    response.fields.remove_all(CONTENT_DIGESTS);
    if let [range] = ranges[..] {
        let text = content_range(range.start, range.end_exclusive, length);
        let text = short_value(text.as_bytes());
        response.fields.set(Known::ContentRange, text);
        response.length = Some(range.len());
        return Cut::One(range);
    }
    let boundary = format!("{:020}", BOUNDARY.fetch_add(1, Ordering::Relaxed));
    let content_type = response.fields.get(Known::ContentType);
    let parts: Vec<(Bytes, ByteRange)> = ranges
        .iter()
        .map(|range| (part_head(&boundary, content_type, *range, length), *range))
        .collect();
    let end = Bytes::from(format!("\r\n--{boundary}--\r\n"));
    let heads_and_bytes: u64 = parts
        .iter()
        .map(|(head, range)| head.len() as u64 + range.len())
        .sum();
    response.length = Some(heads_and_bytes + end.len() as u64);
    response.fields.remove(Known::ContentRange);
    let value = format!("multipart/byteranges; boundary={boundary}");
    response.fields.set(Known::ContentType, value);
    Cut::Parts(parts, end)
}

fn part_head(boundary: &str, content_type: Option<&Bytes>, range: ByteRange, length: u64) -> Bytes {
    let mut head = Vec::with_capacity(160);
    head.extend_from_slice(b"\r\n--");
    head.extend_from_slice(boundary.as_bytes());
    if let Some(content_type) = content_type {
        head.extend_from_slice(b"\r\nContent-Type: ");
        head.extend_from_slice(content_type);
    }
    head.extend_from_slice(b"\r\nContent-Range: ");
    let text = content_range(range.start, range.end_exclusive, length);
    head.extend_from_slice(text.as_bytes());
    head.extend_from_slice(b"\r\n\r\n");
    Bytes::from(head)
}

impl Cut {
    /// Cuts a body.
    pub(crate) fn apply(self, mut body: Body) -> Body {
        if let (Cut::One(range), Body::One(piece)) = (&self, &mut body) {
            piece.narrow(range.start, range.len());
            return if piece.is_empty() { Body::Empty } else { body };
        }
        let pieces = match body {
            Body::Empty => return Body::Empty,
            Body::One(piece) => VecDeque::from([piece]),
            Body::Many(pieces) => pieces,
            Body::Stream(_) => return self.apply_to_stream(body),
        };
        let pieces = Pieces::new(pieces);
        let mut out = VecDeque::new();
        match self {
            Cut::One(range) => {
                pieces.slice(range, &mut out);
                if out.len() == 1
                    && let Some(piece) = out.pop_front()
                {
                    return Body::One(piece);
                }
            }
            Cut::Parts(parts, end) => {
                for (head, range) in parts {
                    out.push_back(Piece::Memory(head));
                    pieces.slice(range, &mut out);
                }
                out.push_back(Piece::Memory(end));
            }
        }
        Body::from(out)
    }

    fn apply_to_stream(self, mut body: Body) -> Body {
        match self {
            Cut::One(range) => {
                // The stream may know how to begin there, without what lies before.
                body.narrow(range.start..range.end_exclusive);
                body
            }
            Cut::Parts(parts, end) => Body::stream(Multipart {
                body,
                parts: parts.into(),
                end: Some(end),
                part: None,
            }),
        }
    }
}

/// Several parts of a body that is put together of slices.
struct Multipart {
    body: Body,
    /// Heads of parts to come, and what they hold.
    parts: VecDeque<(Bytes, ByteRange)>,
    /// Text that ends the parts.
    end: Option<Bytes>,
    part: Option<Pin<Box<dyn BodyStream>>>,
}

impl BodyStream for Multipart {
    fn poll_next(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Piece, BodyError>>> {
        let this = &mut *self;
        if let Some(part) = &mut this.part {
            match ready!(part.as_mut().poll_next(cx)) {
                None => this.part = None,
                next => return Poll::Ready(next),
            }
        }
        let Some((head, range)) = this.parts.pop_front() else {
            return Poll::Ready(this.end.take().map(|end| Ok(Piece::Memory(end))));
        };
        this.part = match &this.body {
            Body::Stream(stream) => stream.fork(range.start..range.end_exclusive),
            _ => None,
        };
        if this.part.is_none() {
            // INVARIANT 2: only what can be forked is cut into parts.
            let error = BodyError::Broken("body can be read only once".to_string());
            return Poll::Ready(Some(Err(error)));
        }
        Poll::Ready(Some(Ok(Piece::Memory(head))))
    }
}

/// Pieces of a body with the place of each, so that many ranges of many pieces are found quickly.
struct Pieces {
    pieces: VecDeque<Piece>,
    /// Positions at which each piece ends in the body.
    ends: Vec<u64>,
}

impl Pieces {
    fn new(pieces: VecDeque<Piece>) -> Self {
        let mut end = 0;
        let ends = pieces.iter().map(|piece| {
            end += piece.len();
            end
        });
        let ends = ends.collect();
        Pieces { pieces, ends }
    }

    /// Appends the bytes of a range to `out`.
    fn slice(&self, range: ByteRange, out: &mut VecDeque<Piece>) {
        let first = self.ends.partition_point(|end| *end <= range.start);
        let start_of_first = first
            .checked_sub(1)
            .and_then(|before| self.ends.get(before));
        let mut skip = range.start - start_of_first.copied().unwrap_or(0);
        let mut left = range.len();
        for piece in self.pieces.iter().skip(first) {
            if left == 0 {
                return;
            }
            let mut piece = piece.clone();
            piece.split_to(skip);
            skip = 0;
            let piece = piece.split_to(left);
            left -= piece.len();
            out.push_back(piece);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::task::Waker;

    struct Source(VecDeque<&'static [u8]>);

    impl BodyStream for Source {
        fn poll_next(
            mut self: Pin<&mut Self>,
            _cx: &mut Context<'_>,
        ) -> Poll<Option<Result<Piece, BodyError>>> {
            let piece = self.0.pop_front();
            Poll::Ready(piece.map(|bytes| Ok(Piece::Memory(Bytes::from_static(bytes)))))
        }
    }

    fn text(mut body: Body) -> String {
        let mut cx = Context::from_waker(Waker::noop());
        let mut text = Vec::new();
        while let Poll::Ready(Some(piece)) = body.poll_next(&mut cx) {
            text.extend_from_slice(&piece.unwrap().take_memory().unwrap());
        }
        String::from_utf8(text).unwrap()
    }

    fn range(start: u64, end_exclusive: u64) -> ByteRange {
        ByteRange {
            start,
            end_exclusive,
        }
    }

    fn bodies() -> [Body; 3] {
        let memory = |text: &'static [u8]| Piece::Memory(Bytes::from_static(text));
        [
            Body::One(memory(b"0123456789")),
            Body::Many(VecDeque::from([
                memory(b"012"),
                memory(b"3456"),
                memory(b"789"),
            ])),
            Body::stream(Source(VecDeque::from([&b"012"[..], b"3456", b"789"]))),
        ]
    }

    #[test]
    fn one_range_is_cut_from_every_kind_of_body() {
        for (wanted, expected) in [
            (range(0, 10), "0123456789"),
            (range(2, 8), "234567"),
            (range(9, 10), "9"),
            (range(3, 7), "3456"),
        ] {
            for body in bodies() {
                assert_eq!(text(Cut::One(wanted).apply(body)), expected);
            }
        }
    }

    #[test]
    fn parts_are_framed_as_announced() {
        let RangeSet::Ranges(ranges) = parse_range(b"bytes=0-1,-2", 10, 5) else {
            panic!("a valid field");
        };
        for body in bodies().into_iter().take(2) {
            let content_type = Bytes::from_static(b"text/plain");
            let mut response = Response::text(200, content_type, Bytes::from_static(b"0123456789"));
            let cut = become_partial(&mut response, &ranges, 10);
            let content_type = response.fields.get(Known::ContentType).unwrap();
            let boundary = content_type.rsplit(|byte| *byte == b'=').next().unwrap();
            let boundary = std::str::from_utf8(boundary).unwrap();
            let body = text(cut.apply(body));
            assert_eq!(response.length, Some(body.len() as u64));
            let part = |range, bytes| {
                format!(
                    "\r\n--{boundary}\r\nContent-Type: text/plain\r\n\
                     Content-Range: bytes {range}/10\r\n\r\n{bytes}"
                )
            };
            let expected =
                part("0-1", "01") + &part("8-9", "89") + &format!("\r\n--{boundary}--\r\n");
            assert_eq!(body, expected);
        }
    }
}
