//! A range that begins far ahead of a running fill: served at once, by requests of its own.
//!
//! The fill goes on and keeps the whole. Meanwhile, ranges that lie ahead of it are read through
//! slices of the same version, which all requests that wait for this fill share: overlapping ranges
//! are asked for once. The slices are of no use any more when the fill has ended, and are removed.
//!
//! Whatever goes wrong with a range before its first byte, it comes from the fill after all.
//!
//! 1. Nothing is asked for that the fill brings soon: less than `slice::DEEP` bytes ahead.
//! 2. An origin that does not say that it serves ranges is not asked for one.
//! 3. Bytes of another version, or of unknown version, are never sent.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use millpond_cache::fill::Streaming;
use millpond_cache::range::RangeFill;
use millpond_cache::slice::DEEP;
use millpond_cache::step::Walk;
use millpond_semantics::range::content_range;
use millpond_wire::header::Known;

use super::slice;
use crate::conditional::range::wanted_alone;
use crate::request::Request;
use crate::upstream::pass::PassTarget;
use crate::upstream::pass_settings::SettingsByProtocol as _;
use millpond_exchange::response::Response;

/// Makes the answer from a fill the answer of a range that lies ahead of it, if it is one.
pub(crate) async fn over(
    req: &mut Request,
    target: &Arc<PassTarget>,
    (walk, streaming): (&Walk, &Streaming),
    response: &mut Response,
) {
    let Some((range, total)) = ahead(req, target, streaming, response) else {
        return;
    };
    let generation = walk.zone.slices.ahead_of(&walk.zone, streaming, total);
    let mut reader = slice::reader(req, target, &generation, range.clone());
    if reader.first_bytes().await.is_err() {
        return;
    }
    response.status = 206;
    response.orders.status_text = None;
    response.parts.is_one = true;
    response.length = Some(range.end - range.start);
    let place = content_range(range.start, range.end, total);
    let place = Bytes::copy_from_slice(place.as_bytes());
    response.fields.set(Known::ContentRange, place);
    (response.body, response.provenance) = slice::body_of(reader, range);
}

/// The range, and the length of the whole; `None` where it is better read from the fill.
fn ahead(
    req: &Request,
    target: &PassTarget,
    streaming: &Streaming,
    response: &Response,
) -> Option<(Range<u64>, u64)> {
    let settings = req.location.settings.pass(target.protocol);
    if settings.range.fill != RangeFill::Whole {
        return None;
    }
    // INVARIANTS 2 and 3.
    let range = wanted_alone(req, response).filter(|_| streaming.can_resume())?;
    // INVARIANT 1.
    let is_far = range.start.saturating_sub(streaming.view.len()) >= DEEP;
    Some((range, response.length?)).filter(|_| is_far)
}
