//! Selection of the part of an answer that is sent, once the request's conditions and range are
//! considered; and the lies that an origin tells about it ([`Lie`]).
//!
//! A lie is told in answers of status 206 only; everything else stays honest.

use super::Recorded;
use super::answer::{Answer, Ranges};
use std::ops::Range;

/// Lie of an answer to a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lie {
    /// The answer has no Content-Range.
    NoContentRange,
    /// Content-Range cannot be read.
    GarbledContentRange,
    /// The total length is `*`.
    UnknownTotal,
    /// The total length is this one.
    Total(u64),
    /// Other bytes come than were asked for, so many further on, and Content-Range says so.
    OtherBytes(u64),
    /// The right bytes come, but Content-Range places them so many further on.
    OtherPlace(u64),
    /// Number of bytes that are missing, as Content-Range says.
    Fewer(u64),
    /// Number of bytes that are sent at most, as Content-Range says.
    AtMost(u64),
    /// Number of bytes too many, as Content-Range says.
    More(u64),
    /// Number of bytes that are missing; Content-Length says so, Content-Range does not.
    FewerUntold(u64),
}

/// Part of an answer that is sent.
pub(super) struct Selected {
    pub(super) status: u16,
    pub(super) range: Range<u64>,
    pub(super) extra: Vec<(String, String)>,
}

pub(super) fn select(request: &Recorded, answer: &Answer) -> Selected {
    let len = answer.body.len();
    let whole = Selected {
        status: answer.status,
        range: 0..len,
        extra: Vec::new(),
    };
    if answer.revalidates && is_not_modified(request, answer) {
        return Selected {
            status: 304,
            range: 0..0,
            ..whole
        };
    }
    if answer.ranges == Ranges::Ignored || answer.status != 200 {
        return whole;
    }
    let accepts = ("Accept-Ranges".to_string(), "bytes".to_string());
    let whole = Selected {
        extra: vec![accepts.clone()],
        ..whole
    };
    let Some(range) = request
        .header("Range")
        .filter(|_| range_counts(request, answer))
    else {
        return whole;
    };
    match parse_range(range, len) {
        Asked::Part(range) => part(answer, range, accepts),
        Asked::Outside => Selected {
            status: 416,
            range: 0..0,
            extra: vec![("Content-Range".to_string(), format!("bytes */{len}"))],
        },
        Asked::Other => whole,
    }
}

fn range_counts(request: &Recorded, answer: &Answer) -> bool {
    let condition = request.header("If-Range");
    answer.ranges == Ranges::Unconditional
        || condition.is_none_or(|v| {
            Some(v) == answer.field("ETag") || Some(v) == answer.field("Last-Modified")
        })
}

fn is_not_modified(request: &Recorded, answer: &Answer) -> bool {
    match request.header("If-None-Match") {
        Some(tags) => answer
            .field("ETag")
            .is_some_and(|etag| tags.split(',').any(|tag| tag.trim() == etag)),
        None => request
            .header("If-Modified-Since")
            .is_some_and(|since| answer.field("Last-Modified") == Some(since)),
    }
}

/// A 206 for `asked`, with the answer's lie in it.
fn part(answer: &Answer, asked: Range<u64>, accepts: (String, String)) -> Selected {
    let len = answer.body.len();
    let Range { start, end } = asked.clone();
    let mut sent = asked;
    match answer.lie {
        Some(Lie::OtherBytes(by)) => {
            sent = (start + by).min(len - 1)..end.saturating_add(by).min(len);
        }
        Some(Lie::Fewer(by) | Lie::FewerUntold(by)) => {
            sent.end = end.saturating_sub(by).max(start + 1);
        }
        Some(Lie::AtMost(most)) => sent.end = end.min(start.saturating_add(most)),
        Some(Lie::More(by)) => sent.end = end.saturating_add(by).min(len),
        _ => {}
    }
    let told = match answer.lie {
        Some(Lie::OtherPlace(by)) => start + by..end + by,
        Some(Lie::FewerUntold(_)) => start..end,
        _ => sent.clone(),
    };
    let place = format!("bytes {}-{}", told.start, told.end - 1);
    let content_range = match answer.lie {
        Some(Lie::NoContentRange) => None,
        Some(Lie::GarbledContentRange) => Some("bytes here-there/everywhere".to_string()),
        Some(Lie::UnknownTotal) => Some(format!("{place}/*")),
        Some(Lie::Total(total)) => Some(format!("{place}/{total}")),
        _ => Some(format!("{place}/{len}")),
    };
    let content_range = content_range.map(|value| ("Content-Range".to_string(), value));
    Selected {
        status: 206,
        range: sent,
        extra: std::iter::once(accepts).chain(content_range).collect(),
    }
}

enum Asked {
    Part(Range<u64>),
    Outside,
    /// Several ranges, or none that is understood: the whole is sent.
    Other,
}

fn parse_range(value: &str, len: u64) -> Asked {
    let Some((first, last)) = value
        .strip_prefix("bytes=")
        .and_then(|spec| spec.split_once('-'))
    else {
        return Asked::Other;
    };
    let range = match (first.trim().parse::<u64>(), last.trim().parse::<u64>()) {
        (Ok(first), Ok(last)) if first <= last => first..len.min(last.saturating_add(1)),
        (Ok(first), Err(_)) if last.is_empty() => first..len,
        (Err(_), Ok(count)) if first.is_empty() => len.saturating_sub(count)..len,
        _ => return Asked::Other,
    };
    if range.is_empty() {
        Asked::Outside
    } else {
        Asked::Part(range)
    }
}
