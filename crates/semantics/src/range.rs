//! Range and Content-Range: which bytes a client asks for, which an answer holds (RFC 9110 §14).
//!
//! [`parse_range`] needs the length of the body and gives byte ranges inside of it; [`first_range`]
//! works before the length is known. Ranges are half open everywhere: `end` is the first byte that
//! is not meant.
//!
//! # Differs from the RFC
//! As nginx does it: a value that begins with `bytes=` and is then malformed is unsatisfiable (416)
//! where the RFC would let it be ignored; more ranges than allowed, or ranges that sum up to more
//! than the body, are ignored (200); a range from 0 of an empty body is ignored.
//!
//! As the RFC has it, and not nginx: empty members of the list are passed over (§5.6.1.2), and
//! numbers from 2^63 on are as far behind the body as 2^63 - 1 (§14.1.2).
//!
//! Invariants:
//! 1. A range that is returned is not empty and ends within the body.
//! 2. No more ranges are returned than the caller allows.

use std::ops::Deref;

use crate::decimal::{Backwards, DIGITS};

/// nginx's default of `max_ranges`: no limit in number; the answer's size is limited instead.
pub const UNLIMITED_RANGES: u32 = i32::MAX as u32;

/// Offsets are signed 64 bit numbers in nginx, on disks and in most clients.
const LAST_OFFSET: u64 = i64::MAX as u64;

/// nginx reckons that each part of a multipart answer costs this many bytes of head…
const PART_HEAD_SIZE: u64 = 256;

/// …and lets an answer with an unlimited number of parts exceed the body by this many.
const MULTIPART_EXCESS: u64 = 4096;

/// Bytes from `start` up to and without `end_exclusive`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ByteRange {
    /// The first byte.
    pub start: u64,
    /// The first byte after the range.
    pub end_exclusive: u64,
}

impl ByteRange {
    /// Number of bytes that the range holds.
    #[must_use]
    pub const fn len(&self) -> u64 {
        self.end_exclusive.saturating_sub(self.start)
    }

    /// True if the range holds nothing.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// One or more ranges; the usual single one needs no allocation. Reads as a slice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ranges(Stored);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Stored {
    One(ByteRange),
    Many(Vec<ByteRange>),
}

impl Ranges {
    /// Ranges with the same bytes in ascending order, each byte once: ranges that overlap or touch
    /// are one.
    #[must_use]
    pub fn merged(&self) -> Ranges {
        let mut sorted: Vec<ByteRange> = self.to_vec();
        sorted.sort_unstable_by_key(|range| range.start);
        let mut merged: Vec<ByteRange> = Vec::with_capacity(sorted.len());
        for range in sorted {
            match merged.last_mut() {
                Some(last) if range.start <= last.end_exclusive => {
                    last.end_exclusive = last.end_exclusive.max(range.end_exclusive);
                }
                _ => merged.push(range),
            }
        }
        match merged[..] {
            [range] => Ranges(Stored::One(range)),
            _ => Ranges(Stored::Many(merged)),
        }
    }

    fn push(&mut self, range: ByteRange) {
        match &mut self.0 {
            Stored::One(first) => self.0 = Stored::Many(vec![*first, range]),
            Stored::Many(ranges) => ranges.push(range),
        }
    }
}

impl From<ByteRange> for Ranges {
    fn from(range: ByteRange) -> Self {
        Ranges(Stored::One(range))
    }
}

impl Deref for Ranges {
    type Target = [ByteRange];

    fn deref(&self) -> &[ByteRange] {
        match &self.0 {
            Stored::One(range) => std::slice::from_ref(range),
            Stored::Many(ranges) => ranges,
        }
    }
}

/// Meaning of a Range field for a body of known length.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RangeSet {
    /// The whole body is the answer: not `bytes`, too many ranges, or more bytes than the body has.
    Ignore,
    /// The answer is 416.
    Unsatisfiable,
    /// The answer is 206 with these ranges, in the client's order.
    Ranges(Ranges),
}

/// One range before the length of the body is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RangeSpec {
    /// `bytes=0-99` is `start` 0 and `end_exclusive` 100.
    FromTo {
        /// The first byte.
        start: u64,
        /// The first byte after the range; may lie behind the body.
        end_exclusive: u64,
    },
    /// `bytes=100-`.
    From {
        /// The first byte.
        start: u64,
    },
    /// `bytes=-100`: the last bytes.
    Suffix {
        /// Number of bytes; may be more than the body has.
        len: u64,
    },
}

impl RangeSpec {
    /// The bytes meant in a body of `len` bytes; empty when there are none.
    #[must_use]
    pub fn resolve(self, len: u64) -> ByteRange {
        let (start, end_exclusive) = match self {
            Self::FromTo {
                start,
                end_exclusive,
            } => (start, end_exclusive.min(len)),
            Self::From { start } => (start, len),
            Self::Suffix { len: suffix } => (len.saturating_sub(suffix), len),
        };
        ByteRange {
            start,
            end_exclusive,
        }
    }
}

/// Content-Range: the part of a body that an answer has (RFC 9110 §14.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContentRange {
    /// The first byte.
    pub start: u64,
    /// The first byte after the range: one more than the number in the field.
    pub end: u64,
    /// Length of the whole body; `None` for `*`.
    pub len: Option<u64>,
}

/// Reads a Range field for a body of `len` bytes, allowing `max_ranges` ranges (`0` allows none).
#[must_use]
pub fn parse_range(value: &[u8], len: u64, max_ranges: u32) -> RangeSet {
    let Some(mut specs) = Specs::new(value) else {
        return RangeSet::Ignore;
    };
    if max_ranges == 0 {
        return RangeSet::Ignore;
    }
    let mut ranges: Option<Ranges> = None;
    let mut total: u64 = 0;
    while let Some(spec) = specs.next_spec() {
        let Ok(spec) = spec else {
            return RangeSet::Unsatisfiable;
        };
        let range = spec.resolve(len);
        if range.is_empty() {
            if range.start == 0 {
                return RangeSet::Ignore;
            }
            continue;
        }
        total = total.saturating_add(range.len());
        if total > LAST_OFFSET {
            return RangeSet::Unsatisfiable;
        }
        match &mut ranges {
            None => ranges = Some(Ranges(Stored::One(range))),
            // INVARIANT 2.
            Some(ranges) if ranges.len() as u64 >= u64::from(max_ranges) => {
                return RangeSet::Ignore;
            }
            Some(ranges) => ranges.push(range),
        }
    }
    match ranges {
        None => RangeSet::Unsatisfiable,
        Some(ranges) if is_wasteful(&ranges, total, len, max_ranges) => RangeSet::Ignore,
        Some(ranges) => RangeSet::Ranges(ranges),
    }
}

/// True if several ranges together would be more than the body (RFC 9110 §14.2 on abusive
/// requests).
fn is_wasteful(ranges: &[ByteRange], total: u64, len: u64, max_ranges: u32) -> bool {
    if ranges.len() < 2 {
        return false;
    }
    let heads = PART_HEAD_SIZE.saturating_mul(ranges.len() as u64);
    total > len
        || (max_ranges == UNLIMITED_RANGES
            && total.saturating_add(heads) > len.saturating_add(MULTIPART_EXCESS))
}

/// The first range of a Range field, without knowing the length of the body.
///
/// `None` if the unit is not bytes, or any range in the field is malformed or ends before it
/// starts.
#[must_use]
pub fn first_range(value: &[u8]) -> Option<RangeSpec> {
    let mut specs = Specs::new(value)?;
    let mut first = None;
    while let Some(spec) = specs.next_spec() {
        let spec = spec.ok()?;
        if matches!(spec, RangeSpec::FromTo { start, end_exclusive } if start >= end_exclusive) {
            return None;
        }
        first = first.or(Some(spec));
    }
    first
}

/// A range that does not follow the grammar.
struct Malformed;

/// The ranges of a field, read one by one. After a malformed one the rest means nothing.
struct Specs<'a> {
    rest: &'a [u8],
    ended: bool,
}

impl<'a> Specs<'a> {
    /// `None` unless the unit is bytes and something follows.
    fn new(value: &'a [u8]) -> Option<Self> {
        let (unit, rest) = value.split_at_checked(6)?;
        let is_bytes = unit == b"bytes=" || unit.eq_ignore_ascii_case(b"bytes=");
        (is_bytes && !rest.is_empty()).then_some(Self {
            rest: skip_empty_members(rest),
            ended: false,
        })
    }

    fn next_spec(&mut self) -> Option<Result<RangeSpec, Malformed>> {
        if self.ended {
            return None;
        }
        let read = parse_spec(self.rest);
        let (spec, rest) = match read {
            Ok((spec, [b',', rest @ ..])) => match skip_empty_members(rest) {
                [] => (Ok(spec), None),
                rest => (Ok(spec), Some(rest)),
            },
            Ok((spec, [])) => (Ok(spec), None),
            Ok(_) | Err(Malformed) => (Err(Malformed), None),
        };
        self.ended = rest.is_none();
        self.rest = rest.unwrap_or_default();
        Some(spec)
    }
}

/// Reads `0-9`, `10-` or `-10`, with spaces where nginx allows them; also gives what follows.
#[inline]
fn parse_spec(text: &[u8]) -> Result<(RangeSpec, &[u8]), Malformed> {
    let text = skip_spaces(text);
    if let Some(suffix) = text.strip_prefix(b"-") {
        let (len, rest) = take_place(suffix).ok_or(Malformed)?;
        return Ok((RangeSpec::Suffix { len }, skip_spaces(rest)));
    }
    let (start, rest) = take_place(text).ok_or(Malformed)?;
    let rest = skip_spaces(rest).strip_prefix(b"-").ok_or(Malformed)?;
    let rest = skip_spaces(rest);
    if matches!(rest, [] | [b',', ..]) {
        return Ok((RangeSpec::From { start }, rest));
    }
    let (last, rest) = take_place(rest).ok_or(Malformed)?;
    let spec = RangeSpec::FromTo {
        start,
        // No overflow: `last` is at most LAST_OFFSET.
        end_exclusive: last + 1,
    };
    Ok((spec, skip_spaces(rest)))
}

/// Reads a Content-Range of a 206; `None` if it is malformed, unsatisfied (`*/len`) or contradicts
/// itself.
#[must_use]
pub fn parse_content_range(value: &[u8]) -> Option<ContentRange> {
    let rest = value.strip_prefix(b"bytes ")?;
    let (start, rest) = take_number(skip_spaces(rest))?;
    let rest = skip_spaces(rest).strip_prefix(b"-")?;
    let (last, rest) = take_number(skip_spaces(rest))?;
    let rest = skip_spaces(rest).strip_prefix(b"/")?;
    let (len, rest) = match skip_spaces(rest) {
        [b'*', rest @ ..] => (None, rest),
        rest => take_number(rest).map(|(len, rest)| (Some(len), rest))?,
    };
    // RFC 9110 §14.4: invalid if it ends before it starts, or not before the complete length.
    let is_valid =
        skip_spaces(rest).is_empty() && start <= last && len.is_none_or(|len| last < len);
    is_valid.then_some(ContentRange {
        start,
        end: last + 1,
        len,
    })
}

/// The length of the whole body in the Content-Range of a 416 (`bytes */1000`).
#[must_use]
pub fn parse_unsatisfied_range(value: &[u8]) -> Option<u64> {
    let rest = skip_spaces(value.strip_prefix(b"bytes ")?).strip_prefix(b"*/")?;
    let (len, rest) = take_number(rest)?;
    skip_spaces(rest).is_empty().then_some(len)
}

/// `bytes `, three numbers, two separators.
const CONTENT_RANGE_LEN: usize = 8 + 3 * DIGITS;

/// The value of a Content-Range field, ready to be written.
#[derive(Clone, Copy, Debug)]
pub struct ContentRangeText(Backwards<CONTENT_RANGE_LEN>);

impl ContentRangeText {
    /// The bytes of the value.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

/// Writes the Content-Range of a 206: bytes from `start` up to and without `end_exclusive`, of
/// `len`.
#[must_use]
pub fn content_range(start: u64, end_exclusive: u64, len: u64) -> ContentRangeText {
    let mut text = Backwards::new();
    text.prepend_number(len);
    text.prepend(b"/");
    text.prepend_number(end_exclusive.saturating_sub(1));
    text.prepend(b"-");
    text.prepend_number(start);
    text.prepend(b"bytes ");
    ContentRangeText(text)
}

/// Writes the Content-Range of a 416 for a body of `len` bytes.
#[must_use]
pub fn unsatisfied_range(len: u64) -> ContentRangeText {
    let mut text = Backwards::new();
    text.prepend_number(len);
    text.prepend(b"bytes */");
    ContentRangeText(text)
}

/// Digits at the start of `text` as a number, and what follows; `None` without digits or above
/// [`LAST_OFFSET`].
fn take_number(text: &[u8]) -> Option<(u64, &[u8])> {
    take_digits(text).filter(|(number, _)| *number <= LAST_OFFSET)
}

/// Digits at the start of `text` as a place in a body, [`LAST_OFFSET`] at most, and what follows.
#[inline]
fn take_place(text: &[u8]) -> Option<(u64, &[u8])> {
    take_digits(text).map(|(number, rest)| (number.min(LAST_OFFSET), rest))
}

/// Digits at the start of `text` as a number, or as the greatest one, and what follows.
#[inline]
fn take_digits(text: &[u8]) -> Option<(u64, &[u8])> {
    let (mut number, mut rest) = (0_u64, text);
    while let [byte, after @ ..] = rest {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            break;
        }
        number = number.saturating_mul(10).saturating_add(u64::from(digit));
        rest = after;
    }
    (rest.len() < text.len()).then_some((number, rest))
}

/// The list from its next member on; RFC 9110 §5.6.1.2.
#[inline]
fn skip_empty_members(mut text: &[u8]) -> &[u8] {
    while let [b',', rest @ ..] | [b' ' | b'\t', rest @ ..] = text {
        text = rest;
    }
    text
}

fn skip_spaces(mut text: &[u8]) -> &[u8] {
    while let [b' ', rest @ ..] = text {
        text = rest;
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ranges_of(value: &str, len: u64, max_ranges: u32) -> Option<Vec<(u64, u64)>> {
        match parse_range(value.as_bytes(), len, max_ranges) {
            RangeSet::Ranges(ranges) => Some(
                ranges
                    .iter()
                    .map(|range| (range.start, range.end_exclusive))
                    .collect(),
            ),
            _ => None,
        }
    }

    #[test]
    fn satisfiable_ranges_are_cut_to_the_body() {
        let cases: [(&str, &[(u64, u64)]); 19] = [
            ("bytes=0-8", &[(0, 9)]),
            ("BYTES=0-8", &[(0, 9)]),
            ("bytes=-10", &[(990, 1000)]),
            ("bytes=-2000", &[(0, 1000)]),
            ("bytes=990-", &[(990, 1000)]),
            ("bytes=990-1990", &[(990, 1000)]),
            ("bytes=0-9223372036854775807", &[(0, 1000)]),
            ("bytes=0-9223372036854775808", &[(0, 1000)]),
            ("bytes=0-99999999999999999999999", &[(0, 1000)]),
            ("bytes=-99999999999999999999999", &[(0, 1000)]),
            ("bytes=0-1,", &[(0, 2)]),
            ("bytes=,, ,\t0-1", &[(0, 2)]),
            ("bytes=0-1,,2-3, ", &[(0, 2), (2, 4)]),
            ("bytes=0-", &[(0, 1000)]),
            ("bytes= 1 - 2 ", &[(1, 3)]),
            ("bytes=0-9, -10, 10-19", &[(0, 10), (990, 1000), (10, 20)]),
            (
                "bytes=0-9, -10, 100000-, 10-19",
                &[(0, 10), (990, 1000), (10, 20)],
            ),
            ("bytes=5-3, 7-7", &[(7, 8)]),
            ("bytes=-0, 7-7", &[(7, 8)]),
        ];
        for (value, expected) in cases {
            assert_eq!(
                ranges_of(value, 1000, UNLIMITED_RANGES).as_deref(),
                Some(expected),
                "{value}"
            );
        }
    }

    #[test]
    fn malformed_or_outlying_ranges_are_unsatisfiable() {
        for value in [
            "bytes=100000-",
            "bytes=alpha",
            "bytes=10-alpha",
            "bytes=10",
            "bytes=10-11 12-",
            "bytes=,",
            "bytes= ",
            "bytes=-",
            "bytes=--1",
            "bytes=-0",
            "bytes=5-3",
            "bytes=0x-1,",
            "bytes=9223372036854775807-",
            "bytes=99999999999999999999-",
        ] {
            assert_eq!(
                parse_range(value.as_bytes(), 1000, 10),
                RangeSet::Unsatisfiable,
                "{value}"
            );
        }
    }

    #[test]
    fn other_units_and_greedy_ranges_are_ignored() {
        for value in [
            "",
            "bytes=",
            "bytes",
            "octets=0-1",
            "bytes =0-1",
            "bytes=0-10001, 0-0",
        ] {
            assert_eq!(
                parse_range(value.as_bytes(), 1000, 10),
                RangeSet::Ignore,
                "{value}"
            );
        }
    }

    #[test]
    fn ranges_above_the_limit_are_ignored_and_unsatisfiable_ones_do_not_count() {
        assert_eq!(
            ranges_of("bytes=0-9, -10", 1000, 2).map(|ranges| ranges.len()),
            Some(2)
        );
        assert_eq!(
            ranges_of("bytes=0-9, -10, 10000-", 1000, 2).map(|ranges| ranges.len()),
            Some(2)
        );
        assert_eq!(
            parse_range(b"bytes=0-9, -10, 10-19", 1000, 2),
            RangeSet::Ignore
        );
        assert_eq!(parse_range(b"bytes=0-9", 1000, 0), RangeSet::Ignore);
        assert_eq!(parse_range(b"bytes=alpha", 1000, 0), RangeSet::Ignore);
    }

    #[test]
    fn unlimited_ranges_may_not_cost_much_more_than_the_body() {
        let many = format!("bytes={}", ["0-0"; 100].join(","));
        assert_eq!(
            parse_range(many.as_bytes(), 1000, UNLIMITED_RANGES),
            RangeSet::Ignore
        );
        assert_eq!(
            ranges_of(&many, 1000, 100).map(|ranges| ranges.len()),
            Some(100)
        );
        assert_eq!(
            ranges_of(&many, 100_000, UNLIMITED_RANGES).map(|ranges| ranges.len()),
            Some(100)
        );
    }

    #[test]
    fn empty_body_is_answered_whole() {
        for value in ["bytes=0-", "bytes=0-0", "bytes=-1", "bytes=-0"] {
            assert_eq!(
                parse_range(value.as_bytes(), 0, 10),
                RangeSet::Ignore,
                "{value}"
            );
        }
        assert_eq!(parse_range(b"bytes=1-", 0, 10), RangeSet::Unsatisfiable);
    }

    #[test]
    fn first_range_needs_no_length_and_a_well_formed_field() {
        for (value, expected) in [
            (
                "bytes=0-99",
                Some(RangeSpec::FromTo {
                    start: 0,
                    end_exclusive: 100,
                }),
            ),
            ("bytes=100-", Some(RangeSpec::From { start: 100 })),
            ("bytes=-5, 0-1", Some(RangeSpec::Suffix { len: 5 })),
            ("bytes=5-3", None),
            ("bytes=0-1, x", None),
            (
                "bytes=,0-1,",
                Some(RangeSpec::FromTo {
                    start: 0,
                    end_exclusive: 2,
                }),
            ),
            ("bytes=,", None),
            ("items=0-1", None),
            ("bytes=", None),
        ] {
            assert_eq!(first_range(value.as_bytes()), expected, "{value}");
        }
    }

    #[test]
    fn content_range_reads_what_it_writes() {
        for (start, end, len) in [(0, 1, 1), (0, 9, 1000), (990, 1000, 1000)] {
            let text = content_range(start, end, len);
            let expected = ContentRange {
                start,
                end,
                len: Some(len),
            };
            assert_eq!(parse_content_range(text.as_bytes()), Some(expected));
        }
        assert_eq!(content_range(0, 9, 1000).as_bytes(), b"bytes 0-8/1000");
        assert_eq!(unsatisfied_range(1000).as_bytes(), b"bytes */1000");
        assert_eq!(parse_unsatisfied_range(b"bytes */1000"), Some(1000));
        assert_eq!(
            content_range(u64::MAX, u64::MAX, u64::MAX).as_bytes().len(),
            67 + 1
        );
    }

    #[test]
    fn content_range_that_contradicts_itself_is_refused() {
        assert_eq!(
            parse_content_range(b"bytes 0-0/*"),
            Some(ContentRange {
                start: 0,
                end: 1,
                len: None
            })
        );
        assert!(parse_content_range(b"bytes 0 - 8 / 1000 ").is_some());
        for value in [
            "",
            "bytes",
            "bytes */1000",
            "bytes 5-3/10",
            "bytes 0-10/10",
            "bytes 0-9/10x",
            "bytes 0-9",
            "bytes 0-9/",
            "Bytes 0-9/10",
            "bytes 0-9223372036854775808/*",
        ] {
            assert_eq!(parse_content_range(value.as_bytes()), None, "{value}");
        }
    }
}
