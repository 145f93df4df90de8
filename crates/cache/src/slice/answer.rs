//! Judgement of an answer to a request for a range.
//!
//! A pure judgement of status, Content-Range and length. What is not exactly what was asked for is
//! not believed, but for an answer that ends early, which a server may give (RFC 9110 §15.3.7), and
//! only with the end of a slice: of a slice that never comes whole nothing would be kept, and each
//! answer would lead to the next question.

use std::ops::Range;

use bytes::Bytes;
use millpond_semantics::range::{parse_content_range, parse_unsatisfied_range};

use crate::exchange::{Fetched, field};

/// Range that was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    /// Bytes from `start` up to and without `end`.
    From {
        /// The first byte.
        start: u64,
        /// The first byte after the range; greater than `start`.
        end: u64,
    },
    /// The last bytes.
    Suffix(u64),
}

impl Asked {
    /// The value of the Range field.
    pub(crate) fn field(&self) -> Bytes {
        Bytes::from(match self {
            Asked::From { start, end } => format!("bytes={start}-{}", end.saturating_sub(1)),
            Asked::Suffix(len) => format!("bytes=-{len}"),
        })
    }

    /// True if the range begins behind the first byte of any body.
    pub(crate) fn skips_bytes(&self) -> bool {
        matches!(*self, Asked::From { start, .. } if start > 0)
    }

    fn is_answered_by(&self, got: &Range<u64>, total: u64, size: u64) -> bool {
        match *self {
            Asked::From { start, end } => {
                let is_whole =
                    got.end == end || got.end == total || got.end.is_multiple_of(size.max(1));
                got.start == start && got.end <= end && is_whole
            }
            Asked::Suffix(len) => got.end == total && got.start == total.saturating_sub(len),
        }
    }
}

/// Nature of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Judged {
    /// Bytes of a body of `total`.
    Range {
        /// The first byte.
        start: u64,
        /// The first byte after the range.
        end: u64,
        /// Length of the whole.
        total: u64,
    },
    /// A range of a body of unknown length.
    Unmeasured,
    /// A 206 that cannot be right: why.
    Unusable(&'static str),
    /// The range lies behind the end.
    Unsatisfiable {
        /// Length of the whole, if it was said.
        total: Option<u64>,
    },
    /// The answer is not one to the range.
    Other,
}

/// Judges an answer to `asked` for a body in slices of `size` bytes.
pub(crate) fn judge<F: Fetched>(fetched: &F, asked: &Asked, size: u64) -> Judged {
    match fetched.status() {
        206 => judge_partial(fetched, asked, size),
        416 => Judged::Unsatisfiable {
            total: field(fetched, b"content-range")
                .and_then(|value| parse_unsatisfied_range(&value)),
        },
        _ => Judged::Other,
    }
}

fn judge_partial<F: Fetched>(fetched: &F, asked: &Asked, size: u64) -> Judged {
    let Some(value) = field(fetched, b"content-range") else {
        return Judged::Unusable("no Content-Range in a partial answer");
    };
    let Some(range) = parse_content_range(&value) else {
        return Judged::Unusable("invalid Content-Range in a partial answer");
    };
    let Some(total) = range.len else {
        return Judged::Unmeasured;
    };
    if !asked.is_answered_by(&(range.start..range.end), total, size) {
        return Judged::Unusable("another range than the one asked for in a partial answer");
    }
    let len = range.end - range.start;
    if fetched.length().is_some_and(|announced| announced != len) {
        return Judged::Unusable("another length than its range in a partial answer");
    }
    Judged::Range {
        start: range.start,
        end: range.end,
        total,
    }
}
