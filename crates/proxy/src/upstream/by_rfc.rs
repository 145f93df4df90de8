//! `proxy_cache_conformance rfc9111`: what the proxy itself does for it, besides the cache's
//! machines.
//!
//! 1. Fields that Connection names go no further, in either direction, nor do those that are about
//!    a connection by their name (RFC 9110 §7.6.1).
//! 2. An answer keeps the origin's Date; a hit says its Age (RFC 9111 §5.1).
//! 3. A success of an unsafe method removes what it has made wrong, which is done in
//!    `cache/invalidate.rs`.
//! 4. The conditions of a request are weighed in the order of RFC 9110 §13.2.2.
//! 5. An answer without a Date that can be read gets the time when it came, once (RFC 9110 §6.6.1).
//! 6. Messages that go through say so in Via, in both directions (RFC 9110 §7.6.3); a stored answer
//!    keeps the Via that it came with.
//! 7. An answer is that to the request of which keys and variants were made (RFC 9111 §4.1): the
//!    fields that do not go on are gone before. Where a variable may have been made of them by
//!    then, the request is neither looked up nor its answer stored.

use std::rc::Rc;

use bytes::Bytes;
use millpond_cache::conformance::{Conformance, Rules};
use millpond_cache::head::StoredHead;
use millpond_cache::status::CacheStatus;
use millpond_semantics::cache_control::CacheControl;
use millpond_semantics::date::{format_http_date, parse_http_date_by_rfc};
use millpond_semantics::list;
use millpond_semantics::reuse::RequestRules;
use millpond_system::clock;
use millpond_wire::head::RequestHead;
use millpond_wire::header::{Field, Fields, Known, KnownSet};
use millpond_wire::http1::Version;
use millpond_wire::http1::response::ResponseHead;

use super::pass::PassTarget;
use crate::request::Request;
use crate::upstream::pass_settings::SettingsByProtocol as _;
use millpond_exchange::response::{RangeRule, Response};

/// Names that a request's Connection may have although it has fields of them: these are about the
/// connection, and no answer depends on them, or say where the request goes and where it ends.
const OF_REQUEST: [&[u8]; 10] = [
    b"connection",
    b"content-length",
    b"host",
    b"http2-settings",
    b"keep-alive",
    b"proxy-connection",
    b"te",
    b"trailer",
    b"transfer-encoding",
    b"upgrade",
];

/// True where the location's cache follows the RFC.
pub fn is_on(req: &Request, target: &PassTarget) -> bool {
    req.location.settings.by_rfc.contains(target.protocol)
}

/// The fields of a request that its Connection names, which the origin does not get (INVARIANT 1).
fn held_back(head: &RequestHead) -> impl Iterator<Item = &[u8]> {
    let of_connection = |name: &[u8]| {
        let mut known = OF_REQUEST.iter();
        known.any(|other| other.eq_ignore_ascii_case(name))
    };
    let named = head.get_all(Known::Connection).flat_map(list::members);
    named.filter(move |name| !of_connection(name) && head.find_all(name).next().is_some())
}

/// True where fields are left that the origin does not get (INVARIANT 7).
pub fn holds_fields_back(req: &Request, target: &PassTarget) -> bool {
    is_on(req, target) && held_back(&req.head).next().is_some()
}

/// Makes of a request's head the one that goes on: without the fields that Connection names
/// (INVARIANT 7), and in absolute form with the Host of the target, whatever Host the client wrote
/// beside it (RFC 9112 §3.2.2).
pub fn take_in(req: &mut Request, target: &PassTarget) {
    if !is_on(req, target) {
        return;
    }
    let head = &req.head;
    let authority = head.authority();
    let has_other_host = !authority.is_empty() && !head.get_all(Known::Host).eq([authority]);
    let host = has_other_host.then_some((Known::Host, &b"Host"[..], authority));
    let dropped = held_back(head)
        .filter(|_| !req.values.are_any())
        .map(|name| (Known::Other, name, &b""[..]));
    let changes: Vec<_> = host.into_iter().chain(dropped).collect();
    if !changes.is_empty() {
        let changed = head.with(&changes);
        req.head = Rc::new(changed);
    }
}

/// The rules of a request's walk through the cache.
pub fn rules(req: &Request, target: &PassTarget) -> Rules {
    if !is_on(req, target) {
        return Rules::Nginx;
    }
    let all = |name: &[u8]| req.head.find_all(name).collect::<Vec<_>>();
    let (control, pragma) = (all(b"cache-control"), all(b"pragma"));
    Rules::Rfc9111(RequestRules::parse(&control, &pragma))
}

/// Fields of an answer that are about its connection, besides those that no answer keeps.
const OF_CONNECTION: KnownSet = KnownSet::of(&[Known::ProxyConnection, Known::Te, Known::Upgrade]);

/// Removes the fields about an answer's connection that the client must not get.
pub fn drop_hop_fields(status: u16, fields: &mut Fields) {
    // RFC 9110 §7.8, §15.5.22: these say which protocol, and are of use to the client only with it.
    let upgrade = match status {
        101 | 426 => fields.get(Known::Upgrade).cloned(),
        _ => None,
    };
    drop_connection_fields(fields);
    if fields.has_any(OF_CONNECTION) {
        fields.remove_all(OF_CONNECTION);
    }
    if let Some(upgrade) = upgrade {
        fields.push_known(Known::Upgrade, upgrade);
    }
}

/// Takes an answer in: white space around values is no part of them (RFC 9110 §5.5), and one
/// without a Date has that of its arrival (§6.6.1), at `now` (seconds).
pub fn receive(head: &mut ResponseHead, now: i64) {
    let is_trimmed = |value: &[u8]| list::trim_ows(value).len() == value.len();
    if !head.fields.iter().all(|field| is_trimmed(&field.value)) {
        head.fields.retain_mut(|field| {
            field.value = field.value.slice_ref(list::trim_ows(&field.value));
            true
        });
    }
    let date = head.fields.get(Known::Date);
    if date
        .and_then(|date| parse_http_date_by_rfc(date, now))
        .is_none()
    {
        let date = Bytes::copy_from_slice(&format_http_date(now));
        head.fields.set(Known::Date, date);
    }
}

/// RFC 9111 §5.2.2.6: whether an answer may not be transformed on its way.
pub fn forbids_transform(req: &Request, target: &PassTarget, fields: &Fields) -> bool {
    let says = |value: &[u8]| CacheControl::parse([value]).no_transform;
    let targeted = &req.location.settings.pass(target.protocol).targeted;
    let is_targeted = |field: &Field| {
        let mut names = targeted.in_force(Conformance::Rfc9111);
        names.any(|name| name.as_bytes().eq_ignore_ascii_case(&field.name))
    };
    fields.iter().any(|field| {
        (field.known == Known::CacheControl || is_targeted(field)) && says(&field.value)
    })
}

/// RFC 9111 §5.2.1.6: whether the client asks for an answer that is not transformed.
pub fn asks_for_original(req: &Request) -> bool {
    CacheControl::parse(req.head.get_all(Known::CacheControl)).no_transform
}

/// A request target without its fragment, which goes to no origin (RFC 9110 §7.1).
pub fn without_fragment(target: &[u8]) -> &[u8] {
    let end = memchr::memchr(b'#', target).unwrap_or(target.len());
    target.get(..end).unwrap_or(target)
}

/// Drops the fields of an answer that its Connection names.
pub fn drop_connection_fields(fields: &mut Fields) {
    let named: Vec<Vec<u8>> = fields
        .get_all(Known::Connection)
        .flat_map(|value| list::members(value).map(<[u8]>::to_vec))
        .collect();
    if !named.is_empty() {
        let is_named = |name: &[u8]| named.iter().any(|other| other.eq_ignore_ascii_case(name));
        fields.retain(|field| !is_named(&field.name));
    }
}

/// RFC 9110 §7.6.3: a gateway adds itself to Via, with the version that it was spoken to in.
pub fn add_via(head: &mut ResponseHead) {
    let mut via = Vec::new();
    for value in head.fields.get_all(Known::Via) {
        via.extend_from_slice(value);
        via.extend_from_slice(b", ");
    }
    via.extend_from_slice(match head.version {
        Version::Http2 => b"2.0 millpond",
        Version::Http3 => b"3.0 millpond",
        Version::Http11 => b"1.1 millpond",
        _ => b"1.0 millpond",
    });
    head.fields.set(Known::Via, via);
}

/// Gives an answer the Date that the origin gave it.
pub fn keep_date(response: &mut Response, date: Option<Bytes>) {
    if let Some(date) = date {
        response.fields.set(Known::Date, date);
    }
    response.conditions.are_by_rfc = true;
}

/// Adds the age to a stored answer, unless it was just fetched or validated, and serves ranges of
/// it whether or not the origin would.
pub fn tell_age(response: &mut Response, head: &StoredHead, status: CacheStatus) {
    let is_reused = matches!(
        status,
        CacheStatus::Hit | CacheStatus::Stale | CacheStatus::Updating
    );
    if is_reused {
        let age = head.age(clock::now_ms().div_euclid(1000));
        let age = Bytes::from(age.to_string());
        response.fields.set(Known::Age, age);
    }
    if response.parts.rule == RangeRule::Refused && response.status == 200 {
        response.parts.rule = RangeRule::Allowed;
    }
}
