//! `proxy_cache_encodings`, `proxy_cache_encodings_types`: stored answers in content codings that
//! were made once.
//!
//! ```text
//!   hit ──► what the client takes ──┬─ stored ─────► the answer is that encoding
//!                                   └─ not stored ─► the answer stays as it is; the encoding
//!                                                    is made behind it (`encoder.rs`)
//! ```
//!
//! A client that has a dictionary of the zone (RFC 9842) takes codings by it, too; a stored one is
//! kept by its hash (`dictionaries.rs` of the cache).
//!
//! An encoding is another representation of the resource, with a strong validator of its own
//! (RFC 9110 §8.8.3.3) and ranges of its own bytes.
//!
//! 1. An answer that this could change says `Vary: Accept-Encoding`, whether or not it was changed.
//! 2. Its Last-Modified is that of all its representations, and so says nothing of their bytes: a
//!    range is not served for a date in If-Range.
//! 3. Where another filter changes the text of answers, none is taken from an encoding.

use std::sync::Arc;

use bytes::Bytes;
use millpond_cache::dictionaries::{self, KeptDictionary, LookedForDictionary};
use millpond_cache::encoded::{Encoded, Form, LookedForEncoding};
use millpond_cache::rule_counts::Rule;
use millpond_cache::zone::{CacheZone, FoundEntry};
use millpond_conf::OffOr;
use millpond_semantics::dictionary::{self, Offer};
use millpond_store::Cold;
use millpond_wire::header::Known;

use super::encoder::{DictionaryJob, Encoder, Job, Task};
use super::{body, groups};
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
        && found.head.sliced.is_none()
    {
        if !encodings.by_dictionary.is_empty() {
            offer(req, encodings, (found, zone), response);
        }
        if !may_be_encoded(req, (policy, encodings), response) {
            return;
        }
        response.changes.have_stored_encodings = true;
        response.changes.are_by_dictionary = !encodings.by_dictionary.is_empty();
        // RFC 9111 §5.2.1.6.
        let is_barred = by_rfc::is_on(req, target) && by_rfc::asks_for_original(req);
        if !is_barred && let Some(encoded) = find(req, encodings, (found, zone)) {
            let saved = found.entry.len().saturating_sub(encoded.1.entry.len());
            zone.encodings.note_answer(saved);
            if matches!(encoded.0, Form::By(..)) {
                zone.rule_counts.note(Rule::DictionaryHit);
            }
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
        response.changes.are_by_dictionary = may_be_encoded && !encodings.by_dictionary.is_empty();
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
) -> Option<(Form, Encoded)> {
    let dictionary = dictionary(req, encodings, zone);
    let by_dictionary = encodings
        .by_dictionary
        .iter()
        .filter_map(|(coding, level)| {
            let hash = dictionary.as_ref()?.hash;
            Some((Form::By(*coding, hash), *level))
        });
    let plain = encodings
        .codings
        .iter()
        .map(|(coding, level)| (Form::Plain(*coding), *level));
    let mut taken: Vec<(u16, Form, u32)> = by_dictionary
        .chain(plain)
        .map(|(form, level)| (req.quality_of(form.name()), form, level))
        .filter(|(quality, ..)| *quality > 0)
        .collect();
    // The sort is stable: of equals the one that stands first is first.
    taken.sort_by_key(|(quality, ..)| std::cmp::Reverse(*quality));
    let mut is_begun = false;
    for (_, form, level) in taken {
        match zone.encoding_of(found, &form) {
            LookedForEncoding::Found(encoded) => return Some((form, encoded)),
            LookedForEncoding::Missing(name) => {
                let is_first = !std::mem::replace(&mut is_begun, true);
                if is_first && let Some(begun) = zone.begin_encoding(found, name, req.now_s()) {
                    let mut job = Job::new((found.clone(), zone), begun, (form, level));
                    if let (Form::By(_, hash), Some(it)) = (form, &dictionary) {
                        zone.note_dictionary(found, hash);
                        job.dictionary = Some(it.entry.clone());
                    }
                    req.worker()
                        .shared
                        .guests
                        .of::<Encoder>()
                        .take(Task::Encode(job));
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

/// The dictionary that a client has, if the zone has it and it is for what is asked.
fn dictionary(
    req: &Request,
    encodings: &Encodings,
    zone: &Arc<CacheZone>,
) -> Option<KeptDictionary> {
    if encodings.by_dictionary.is_empty() {
        return None;
    }
    let mut fields = req.head.find_all(b"available-dictionary");
    let (Some(field), None) = (fields.next(), fields.next()) else {
        return None;
    };
    let hash = dictionary::available(field)?;
    match zone.dictionary(hash, &origin(req)) {
        LookedForDictionary::Found(found) => {
            let mut names = req.head.find_all(b"dictionary-id");
            // RFC 9842 §2.3: the name is the one that it came with.
            let is_named = names
                .next()
                .is_none_or(|name| dictionary::id(name).as_ref() == Some(&found.offer.id));
            (is_named && found.offer.is_for(req.unparsed_uri())).then_some(found)
        }
        LookedForDictionary::Missing => None,
        LookedForDictionary::Unread(cold) => {
            cold.into_iter().for_each(read_behind);
            None
        }
    }
}

/// Has an entry kept as a dictionary whose origin says that it is one.
fn offer(
    req: &Request,
    encodings: &Encodings,
    (found, zone): (&FoundEntry, &Arc<CacheZone>),
    response: &Response,
) {
    let said: Vec<Bytes> = dictionaries::lines(&found.head).collect();
    let mut codings = response.fields.get_all(Known::ContentEncoding);
    let is_plain = response.status == 200
        && found.entry.len() <= encodings.max_length
        && codings.all(|it| it.is_empty());
    if said.is_empty() || !is_plain || !req.is_clients_own() {
        return;
    }
    let place = (origin(req), req.unparsed_uri().to_vec());
    let offer = Offer::parse(said.iter().map(Bytes::as_ref), (&place.0, &place.1));
    if offer.is_some() && zone.begin_dictionary(found, req.now_s()) {
        let job = DictionaryJob::new((found.clone(), zone), place);
        let encoder = req.worker().shared.guests.of::<Encoder>();
        encoder.take(Task::Keep(job));
    }
}

/// The origin that a request is for, as URLs begin.
fn origin(req: &Request) -> Vec<u8> {
    let scheme: &[u8] = match req.client.connection.tls.get() {
        Some(_) => b"https://",
        None => b"http://",
    };
    [scheme, &groups::origin(req)].concat()
}

/// Has a record read that is not in memory, so that a later request finds it there.
fn read_behind(cold: Cold) {
    tokio::task::spawn_local(async move { cold.wait().await });
}

/// Makes an encoding the answer.
fn answer(response: &mut Response, (form, encoded): (Form, Encoded)) {
    let fields = &mut response.fields;
    // RFC 9530 §3: digests are of a representation in its coding.
    fields.remove_all(DIGESTS);
    fields.set(Known::ETag, encoded.etag);
    fields.set(Known::ContentEncoding, form.name());
    // The bytes are this server's, whatever the origin says of ranges of its own.
    response.parts.rule = RangeRule::Allowed;
    response.length = Some(encoded.entry.len());
    response.body = body::of_entry(&encoded.entry);
}
