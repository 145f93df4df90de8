//! Answers of an origin to requests: status, fields, and the piece of the body. No sockets.
//!
//! Conditions and ranges follow RFC 9110, sections 13 and 14, as far as caches use them:
//! `If-None-Match`, `If-Range` with an entity tag, and one range. Several ranges are answered with
//! the whole.

use crate::content::Content;
use crate::resource::Resource;

use super::GENERATION_FIELD;
use super::conf::OriginConf;

/// Parts of a request that matter.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Asking {
    /// Path and query.
    pub(super) target: String,
    /// True if the method is HEAD.
    pub(super) is_head: bool,
    /// `Range`.
    pub(super) range: Option<String>,
    /// `If-Range`.
    pub(super) if_range: Option<String>,
    /// `If-None-Match`.
    pub(super) if_none_match: Option<String>,
    /// True if the connection ends after the answer.
    pub(super) is_last: bool,
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Reply {
    /// Status.
    pub(super) status: u16,
    /// Fields, each with its end of line.
    pub(super) fields: String,
    /// Content that the body is a piece of; none: there is no body.
    pub(super) content: Option<Content>,
    /// Start and end (excluded) of the piece.
    pub(super) piece: (u64, u64),
}

/// The entity tag of a generation.
fn tag(generation: u64) -> String {
    format!("\"g-{generation}\"")
}

/// Answers a request in the generation of the moment.
pub(super) fn reply(asking: &Asking, generation: u64, conf: &OriginConf) -> Reply {
    let path = asking.target.split('?').next().unwrap_or_default();
    let Some(resource) = Resource::of_path(path) else {
        return empty(404, "Content-Length: 0\r\n".to_owned());
    };
    let content = resource.content(generation);
    let mut fields = format!("{GENERATION_FIELD}: {generation}\r\n");
    if let Some(value) = &conf.cache_control {
        fields += &format!("Cache-Control: {value}\r\n");
    }
    if conf.has_ranges {
        fields += "Accept-Ranges: bytes\r\n";
    }
    if conf.has_validators {
        fields += &format!("ETag: {}\r\n", tag(generation));
        let condition = asking.if_none_match.as_deref();
        if condition.is_some_and(|tags| tags.split(',').any(|one| one.trim() == tag(generation))) {
            return empty(304, fields);
        }
    }
    let len = content.len();
    let mut reply = Reply {
        status: 200,
        fields,
        content: Some(content),
        piece: (0, len),
    };
    let is_same = asking
        .if_range
        .as_deref()
        .is_none_or(|theirs| theirs == tag(generation));
    let range = asking
        .range
        .as_deref()
        .filter(|_| conf.has_ranges && is_same);
    match range.map(|range| piece(range, len)) {
        None | Some(Piece::Ignored) => {}
        Some(Piece::Part(start, end)) => {
            reply.status = 206;
            reply.fields += &format!("Content-Range: bytes {start}-{}/{len}\r\n", end - 1);
            reply.piece = (start, end);
        }
        Some(Piece::Outside) => {
            let fields = format!("Content-Range: bytes */{len}\r\nContent-Length: 0\r\n");
            return empty(416, fields);
        }
    }
    let (start, end) = reply.piece;
    reply.fields += &format!("Content-Length: {}\r\n", end - start);
    if asking.is_head {
        reply.content = None;
    }
    reply
}

fn empty(status: u16, fields: String) -> Reply {
    Reply {
        status,
        fields,
        content: None,
        piece: (0, 0),
    }
}

/// Piece that a `Range` asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Piece {
    /// The whole is sent: the field is not understood, or asks for several ranges.
    Ignored,
    /// Start and end (excluded).
    Part(u64, u64),
    /// Nothing that is there.
    Outside,
}

fn piece(range: &str, len: u64) -> Piece {
    let Some((first, last)) = range
        .strip_prefix("bytes=")
        .and_then(|range| range.split_once('-'))
    else {
        return Piece::Ignored;
    };
    let number = |text: &str| text.trim().parse::<u64>().ok();
    let (start, end) = match (number(first), number(last)) {
        (Some(first), Some(last)) if first <= last => (first, last.saturating_add(1).min(len)),
        (Some(first), None) if last.trim().is_empty() => (first, len),
        (None, Some(count)) if first.trim().is_empty() => (len.saturating_sub(count), len),
        _ => return Piece::Ignored,
    };
    if start < end {
        Piece::Part(start, end)
    } else {
        Piece::Outside
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asking(target: &str) -> Asking {
        Asking {
            target: target.to_owned(),
            ..Asking::default()
        }
    }

    #[test]
    fn ranges_are_understood_as_the_standard_says() {
        for (range, wanted) in [
            ("bytes=0-9", Piece::Part(0, 10)),
            ("bytes=90-", Piece::Part(90, 100)),
            ("bytes=90-1000", Piece::Part(90, 100)),
            ("bytes=-5", Piece::Part(95, 100)),
            ("bytes=-500", Piece::Part(0, 100)),
            ("bytes=100-", Piece::Outside),
            ("bytes=-0", Piece::Outside),
            ("bytes=5-4", Piece::Ignored),
            ("bytes=0-1,5-6", Piece::Ignored),
            ("lines=0-1", Piece::Ignored),
        ] {
            assert_eq!(piece(range, 100), wanted, "{range}");
        }
    }

    #[test]
    fn conditions_are_compared_with_the_generation_of_the_moment() {
        let conf = OriginConf::new();
        let status = |change: &dyn Fn(&mut Asking)| {
            let mut asking = asking("/x-100");
            change(&mut asking);
            reply(&asking, 7, &conf).status
        };
        assert_eq!(status(&|_| {}), 200);
        assert_eq!(
            status(&|asking| asking.if_none_match = Some("\"g-7\"".into())),
            304
        );
        assert_eq!(
            status(&|asking| asking.if_none_match = Some("\"g-6\"".into())),
            200
        );
        let range = Some("bytes=1-2".to_owned());
        assert_eq!(status(&|asking| asking.range = range.clone()), 206);
        assert_eq!(
            status(&|asking| {
                asking.range = range.clone();
                asking.if_range = Some("\"g-6\"".into());
            }),
            200
        );
    }

    #[test]
    fn a_path_without_a_size_is_nowhere() {
        assert_eq!(reply(&asking("/x"), 1, &OriginConf::new()).status, 404);
        assert_eq!(
            reply(&asking("/x-12?y-1"), 1, &OriginConf::new()).piece,
            (0, 12)
        );
    }
}
