//! `proxy_cache_max_range_offset`, `proxy_cache_range_fill`: what a range request does to a missing
//! entry; `proxy_cache_resume`: a body that breaks off.
//!
//! The offset looks at the first range of the field alone; a suffix range (`bytes=-N`) counts as
//! deeper than any limit, since its offset is unknown before the length is.

use millpond_conf::{Offset, Words};
use millpond_semantics::range::{RangeSpec, first_range};

/// Treatment of a range request for a missing entry.
#[derive(Clone, Debug, millpond_conf::Family)]
#[family(http, server, location, protocols)]
pub struct RangePolicy {
    /// The offset beyond which a range of a missing entry is asked of the origin as it is and not
    /// stored.
    #[directive(name = "proxy_cache_max_range_offset")]
    pub max_offset: Option<Offset>,
    /// Chooses what is fetched for a range of a missing entry, where `slice` is off: `whole` fills
    /// the entry as ever, while a range that begins further on is served at once by a request of
    /// its own; `slice` keeps what ranges touch, as `slice auto` does; `off` lets the range wait
    /// until the fill has come to it.
    ///
    /// # Differs from nginx
    ///
    /// nginx has what `off` says.
    #[directive(name = "proxy_cache_range_fill", default = "whole")]
    pub fill: RangeFill,
    /// Has the rest of a body that breaks off while it is stored asked for, as a range of the same
    /// version: clients get it whole, and it is stored. It takes an answer to GET with a strong
    /// validator, a Content-Length of more than 64 KiB, and `Accept-Ranges: bytes`; an origin that
    /// breaks off three times within a megabyte, or has another version now, is not asked again.
    ///
    /// # Differs from nginx
    ///
    /// nginx has what `off` says: its clients get what had come.
    #[directive(name = "proxy_cache_resume", default = "on")]
    pub resume: bool,
}

/// Part of a missing entry that is fetched for a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Words)]
pub enum RangeFill {
    /// The whole, and the range at once.
    #[word("whole")]
    Whole,
    /// Slices that the range touches are fetched.
    #[word("slice")]
    Slice,
    /// The whole, which the range waits for.
    #[word("off")]
    Off,
}

impl RangePolicy {
    /// True when a request with this Range field may fill the entry.
    pub fn may_fill(&self, range: Option<&[u8]>) -> bool {
        let (Some(max), Some(range)) = (self.max_offset, range) else {
            return true;
        };
        if max.0 == 0 {
            return false;
        }
        // nginx: an unreadable range does not keep the entry from being filled; a suffix does.
        match first_range(range) {
            None => true,
            Some(RangeSpec::Suffix { .. }) => false,
            Some(RangeSpec::From { start } | RangeSpec::FromTo { start, .. }) => start < max.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_ranges_that_begin_before_the_offset_fill() {
        let cases = [
            (None, Some("bytes=900-"), true),
            (Some(100), None, true),
            (Some(100), Some("bytes=99-"), true),
            (Some(100), Some("bytes=100-"), false),
            (Some(100), Some("bytes=0-1,900-901"), true),
            (Some(100), Some("bytes=-5"), false),
            (Some(100), Some("pages=1-2"), true),
            (Some(0), Some("bytes=0-"), false),
            (Some(0), Some("pages=1-2"), false),
            (Some(0), None, true),
        ];
        for (max, range, expected) in cases {
            let policy = RangePolicy {
                max_offset: max.map(Offset),
                fill: RangeFill::Off,
                resume: true,
            };
            let may_fill = policy.may_fill(range.map(str::as_bytes));
            assert_eq!(may_fill, expected, "{max:?} {range:?}");
        }
    }
}
