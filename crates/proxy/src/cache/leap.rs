//! A range that begins far ahead of a running fill: served at once, by a request of its own.
//!
//! The fill goes on and keeps the whole; the range is asked for with If-Range, so that both are of
//! one version, and is not stored. Whatever is wrong with its answer, the range comes from the fill
//! after all.
//!
//! 1. Nothing is asked for that the fill brings soon: less than `slice::DEEP` bytes ahead.
//! 2. An origin that does not say that it serves ranges is not asked for one.
//! 3. An answer of another version, or of unknown version, is never sent.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use millpond_cache::fill::Streaming;
use millpond_cache::range::RangeFill;
use millpond_cache::slice::answer::{Asked, Judged, judge};
use millpond_cache::slice::version::Validator;
use millpond_cache::slice::{DEEP, Trust};
use millpond_semantics::range::content_range;

use super::exchange::Origin;
use crate::body::Body;
use crate::filter::range::wanted_alone;
use crate::header::Known;
use crate::request::Request;
use crate::response::Response;
use crate::upstream::exchange::{self, Ask};
use crate::upstream::pass::PassTarget;

/// Makes the answer from a fill the answer of a range that lies ahead of it, if it is one.
pub async fn over(
    req: &mut Request,
    target: &Arc<PassTarget>,
    streaming: &Streaming,
    response: &mut Response,
) {
    let Some((range, validator)) = ahead(req, target, streaming, response) else {
        return;
    };
    let asked = Asked::From {
        start: range.start,
        end: range.end,
    };
    let ask = Ask {
        is_for_cache: true,
        range: Some(asked.field()),
        if_range: validator.if_range(),
        ..Ask::default()
    };
    let Ok(fetched) = exchange::fetch(req, target, &ask).await else {
        return;
    };
    let origin = Origin::unpaced(fetched);
    let total = response.length.unwrap_or(0);
    let expected = Judged::Range {
        start: range.start,
        end: range.end,
        total,
    };
    if judge(&origin, &asked) != expected || !validator.names(&origin) {
        return;
    }
    response.status = 206;
    response.status_text = None;
    response.is_partial = true;
    response.length = Some(range.end - range.start);
    let place = content_range(range.start, range.end, total);
    let place = Bytes::copy_from_slice(place.as_bytes());
    response.fields.set(Known::ContentRange, place);
    response.body = Body::stream(origin.fetched.body);
}

/// The range, and the version that it is wanted of; `None` where it is better read from the fill.
fn ahead(
    req: &Request,
    target: &PassTarget,
    streaming: &Streaming,
    response: &Response,
) -> Option<(Range<u64>, Validator)> {
    let settings = req.location.settings.pass(target.protocol);
    if settings.range.fill != RangeFill::Whole {
        return None;
    }
    // INVARIANT 2.
    let ranges = streaming.head.field(b"accept-ranges")?;
    let range = wanted_alone(req, response).filter(|_| ranges.eq_ignore_ascii_case(b"bytes"))?;
    if range.start.saturating_sub(streaming.view.len()) < DEEP {
        return None;
    }
    let validator = Validator::of_head(&streaming.head, Trust::Validated)?;
    Some((range, validator))
}
