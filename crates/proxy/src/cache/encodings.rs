//! `proxy_cache_encodings`, `proxy_cache_encodings_types`: stored answers in content codings that
//! were made once.
//!
//! ```text
//!   hit ──► what the client takes ──┬─ stored ─────► the answer is that encoding
//!                                   └─ not stored ─► the answer stays as it is; the encoding
//!                                                    is made behind it (`encoder.rs`)
//! ```
//!
//! An encoding is another representation of the resource, with a strong validator of its own
//! (RFC 9110 §8.8.3.3) and ranges of its own bytes.
//!
//! 1. An answer that this could change says `Vary: Accept-Encoding`, whether or not it was changed.
//! 2. Its Last-Modified is that of all its representations, and so says nothing of their bytes: a
//!    range is not served for a date in If-Range.
//! 3. Where another filter changes the text of answers, none is taken from an encoding.

use std::sync::Arc;

use millpond_cache::encoded::{Encoded, LookedForEncoding};
use millpond_cache::zone::{CacheZone, FoundEntry};
use millpond_conf::OffOr;
use millpond_semantics::accept_encoding::Coding;
use millpond_store::Cold;
use millpond_wire::header::Known;

use super::body;
use super::encoder::{Encoder, Job};
use crate::cache_settings::encodings::{Encodings, EncodingsPolicy};
use crate::request::Request;
use crate::upstream::by_rfc;
use crate::upstream::pass::PassTarget;
use crate::upstream::pass_settings::SettingsByProtocol as _;
use millpond_exchange::response::type_set::TypeSet;
use millpond_exchange::response::{DIGESTS, RangeRule, Response};

/// Answers from an encoding of an entry, if there is one that the client takes; else has it made.
/// The answer is complete but for this.
#[inline]
pub(super) fn apply(
    req: &Request,
    target: &PassTarget,
    (found, zone): (&FoundEntry, &Arc<CacheZone>),
    response: &mut Response,
) {
    let policy = &req.location.settings.pass(target.protocol).encodings;
    if let OffOr::On(encodings) = &policy.encodings
        && may_be_encoded(req, (policy, encodings), response)
        && found.head.sliced.is_none()
    {
        response.changes.have_stored_encodings = true;
        // RFC 9111 §5.2.1.6.
        let is_barred = by_rfc::is_on(req, target) && by_rfc::asks_for_original(req);
        if !is_barred && let Some(encoded) = find(req, encodings, (found, zone)) {
            let saved = found.entry.len().saturating_sub(encoded.1.entry.len());
            zone.encodings.note_answer(saved);
            answer(response, encoded);
        }
    }
}

/// Notes of an answer that is not from an entry yet that it may have encodings later.
pub(super) fn announce(req: &Request, target: &PassTarget, response: &mut Response) {
    let policy = &req.location.settings.pass(target.protocol).encodings;
    if let OffOr::On(encodings) = &policy.encodings {
        let may_be_encoded = may_be_encoded(req, (policy, encodings), response);
        response.changes.have_stored_encodings = may_be_encoded;
    }
}

fn may_be_encoded(
    req: &Request,
    (policy, encodings): (&EncodingsPolicy, &Encodings),
    response: &Response,
) -> bool {
    let lengths = encodings.min_length..=encodings.max_length;
    let mut codings = response.fields.get_all(Known::ContentEncoding);
    response.status == 200
        && !response.parts.is_one
        && !response.changes.are_forbidden
        && !response.changes.are_barred
        && response
            .length
            .is_none_or(|length| lengths.contains(&length))
        && codings.all(|it| it.is_empty())
        && TypeSet::any_fits(&policy.types, response)
        && req.is_clients_own()
        && !req.location.filters.changes_stored_text
}

/// The best stored encoding that the client takes. One that it would like more is begun to be made.
fn find(
    req: &Request,
    encodings: &Encodings,
    (found, zone): (&FoundEntry, &Arc<CacheZone>),
) -> Option<(Coding, Encoded)> {
    let mut taken: Vec<(u16, Coding, u32)> = encodings
        .codings
        .iter()
        .map(|(coding, level)| (req.coding_quality(*coding), *coding, *level))
        .filter(|(quality, ..)| *quality > 0)
        .collect();
    // The sort is stable: of equals the one that stands first is first.
    taken.sort_by_key(|(quality, ..)| std::cmp::Reverse(*quality));
    let mut is_begun = false;
    for (_, coding, level) in taken {
        match zone.encoding_of(found, coding) {
            LookedForEncoding::Found(encoded) => return Some((coding, encoded)),
            LookedForEncoding::Missing(name) => {
                let is_first = !std::mem::replace(&mut is_begun, true);
                if is_first && let Some(begun) = zone.begin_encoding(found, name, req.now_s()) {
                    let job = Job::new((found.clone(), zone), begun, (coding, level));
                    req.worker().shared.guests.of::<Encoder>().take(job);
                }
            }
            LookedForEncoding::Unread(cold) => {
                is_begun = true;
                cold.into_iter().for_each(read_behind);
            }
        }
    }
    None
}

/// Has a record read that is not in memory, so that a later request finds it there.
fn read_behind(cold: Cold) {
    tokio::task::spawn_local(async move { cold.wait().await });
}

/// Makes an encoding the answer.
fn answer(response: &mut Response, (coding, encoded): (Coding, Encoded)) {
    let fields = &mut response.fields;
    // RFC 9530 §3: digests are of a representation in its coding.
    fields.remove_all(DIGESTS);
    fields.set(Known::ETag, encoded.etag);
    fields.set(Known::ContentEncoding, coding.name());
    // The bytes are this server's, whatever the origin says of ranges of its own.
    response.parts.rule = RangeRule::Allowed;
    response.length = Some(encoded.entry.len());
    response.body = body::of_entry(&encoded.entry);
}
