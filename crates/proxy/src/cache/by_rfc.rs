//! `proxy_cache_conformance rfc9111`: what the proxy itself does for it, besides the cache's
//! machines.
//!
//! 1. Fields that Connection names go no further, in either direction (RFC 9110 §7.6.1).
//! 2. An answer keeps the origin's Date; a hit says its Age (RFC 9111 §5.1).
//! 3. A success of an unsafe method removes what is stored for its URI, and for those of Location
//!    and Content-Location on the same host (RFC 9111 §4.4).
//! 4. The conditions of a request are weighed in the order of RFC 9110 §13.2.2.
//! 5. Messages that go through say so in Via, in both directions (RFC 9110 §7.6.3); a stored answer
//!    keeps the Via that it came with.

use std::sync::Arc;

use bytes::Bytes;
use millpond_cache::conformance::{Conformance, Rules};
use millpond_cache::head::StoredHead;
use millpond_cache::status::CacheStatus;
use millpond_cache::zone::{CacheZone, PrimaryKey};
use millpond_semantics::list;
use millpond_semantics::reuse::{RequestRules, invalidates};

use crate::clock;
use crate::header::{Fields, Known};
use crate::http1::Version;
use crate::http1::response::ResponseHead;
use crate::request::Request;
use crate::response::{RangeRule, Response};
use crate::route::target;
use crate::upstream::pass::PassTarget;

/// True where the location's cache follows the RFC.
pub fn is_on(req: &Request, target: &PassTarget) -> bool {
    let settings = req.location.settings.pass(target.protocol);
    settings.conformance.rules == Conformance::Rfc9111
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
    response.conditions_by_rfc = true;
}

/// Tells of a stored answer how old it is, unless it was just fetched or validated, and serves
/// ranges of it whether or not the origin would.
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
    if response.ranges == RangeRule::Refused && response.status == 200 {
        response.ranges = RangeRule::Allowed;
    }
}

/// Removes what an unsafe request that succeeded has made wrong.
pub fn invalidate(
    req: &mut Request,
    target: &PassTarget,
    zone: &Arc<CacheZone>,
    head: &ResponseHead,
) {
    if !is_on(req, target) || !invalidates(req.head.method_bytes(), head.status) {
        return;
    }
    remove(req, target, zone);
    for known in [Known::Location, Known::ContentLocation] {
        let Some(uri) = head.fields.get(known).cloned() else {
            continue;
        };
        // A URI of another host is none of this server's business (§4.4).
        let Some(path) = path_on_host(&uri, &req.host) else {
            continue;
        };
        let mut other = req.background();
        if target::set_path(&mut other, &uri.slice_ref(path)).is_ok() {
            remove(&mut other, target, zone);
        }
    }
}

fn remove(req: &mut Request, target: &PassTarget, zone: &Arc<CacheZone>) {
    // Without a key nothing is stored either.
    if let Ok(text) = super::pass::key(req, target) {
        zone.invalidate(&PrimaryKey::new(text));
    }
}

/// Path and query of a reference, if it is on `host`.
fn path_on_host<'u>(uri: &'u [u8], host: &[u8]) -> Option<&'u [u8]> {
    let rest = match uri {
        [b'/', b'/', rest @ ..] => rest,
        [b'/', ..] => return Some(uri),
        _ => {
            let mark = memchr::memmem::find(uri, b"://")?;
            uri.get(mark + 3..)?
        }
    };
    let end = memchr::memchr(b'/', rest)?;
    let (authority, path) = rest.split_at_checked(end)?;
    let name = authority.split(|byte| *byte == b':').next()?;
    name.eq_ignore_ascii_case(host).then_some(path)
}

#[cfg(test)]
mod tests {
    use super::path_on_host;

    #[test]
    fn references_on_the_same_host_have_a_path() {
        for (uri, expected) in [
            ("/a?b", Some("/a?b")),
            ("http://H.example:8080/a", Some("/a")),
            ("//h.example/a", Some("/a")),
            ("http://other.example/a", None),
            ("http://h.example", None),
            ("a/b", None),
            ("", None),
        ] {
            let path = path_on_host(uri.as_bytes(), b"h.example");
            assert_eq!(path, expected.map(str::as_bytes), "{uri}");
        }
    }
}
