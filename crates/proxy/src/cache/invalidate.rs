//! Removal of what an unsafe request that succeeded has made wrong.
//!
//! With `proxy_cache_conformance rfc9111` it is what is stored for its URI, and for those of
//! Location and Content-Location on the same host (RFC 9111 §4.4); with `proxy_cache_groups` what
//! is in the groups that its answer names (`cache/groups.rs`).

use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use millpond_cache::heir::{Handed, Heir};
use millpond_cache::purge::Target;
use millpond_cache::zone::CacheZone;
use millpond_semantics::reuse::invalidates;
use millpond_system::log::error::{self, Level};
use millpond_wire::header::Known;
use millpond_wire::http1::Method;
use millpond_wire::http1::response::ResponseHead;
use millpond_wire::url::{Place, Scheme, Url};

use super::{content_key, groups, purge};
use crate::log::request_error;
use crate::request::Request;
use crate::route::target;
use crate::upstream::by_rfc::is_on;
use crate::upstream::pass::PassTarget;
use crate::var;
use millpond_exchange::client::body::RequestBody;
use millpond_exchange::failure::Failure;

/// True if the request is an unsafe one that succeeded, where that removes anything.
pub(crate) fn may_be_due(req: &Request, (target, head): (&PassTarget, &ResponseHead)) -> bool {
    (is_on(req, target) || groups::are_on(req, target.protocol))
        && invalidates(req.head.method_bytes(), head.status)
}

/// Removes what a request has made wrong that may have ([`may_be_due`]).
pub(crate) async fn invalidate(
    req: &mut Request,
    (target, zone): (&PassTarget, &Arc<CacheZone>),
    head: &ResponseHead,
) -> Result<(), Failure> {
    let (mut removed, mut targets) = (Vec::new(), Vec::new());
    if is_on(req, target) {
        removed = remove(req, target, zone);
        let begins = removed
            .iter()
            .flat_map(|text| content_key::begins(req, target.protocol, text));
        targets.extend(begins.map(Target::Prefix));
        removed.extend(of_references(req, (target, zone), head));
    }
    targets.extend(groups::invalidated(req, (target.protocol, zone), head));
    let heir = req.worker().shared.guests.of::<Heir>();
    if heir.is_there() {
        hand_on(req, (heir, zone), (removed, targets)).await;
        return Ok(());
    }
    for target in targets {
        purge::by_origin(req, zone, target).await?;
    }
    Ok(())
}

/// The other way: the process that has the caches is told.
async fn hand_on(
    req: &Request,
    (heir, zone): (Arc<Heir>, &Arc<CacheZone>),
    (removed, targets): (Vec<Bytes>, Vec<Target>),
) {
    let keys = removed.into_iter().map(Handed::Key);
    let handed: Vec<Handed> = keys.chain(targets.into_iter().map(Handed::Purge)).collect();
    let name = zone.name.clone();
    let told = tokio::task::spawn_blocking(move || heir.tell(&name, &handed)).await;
    if let Ok(Err(failure)) = told {
        let reason = error::os_error(&failure);
        let message = format_args!("the new process cannot be told what is invalid ({reason})");
        request_error::write(req, Level::Error, message);
    }
}

/// RFC 9111 §4.4: the URIs of Location and Content-Location; the texts of their keys.
fn of_references(
    req: &Request,
    (target, zone): (&PassTarget, &Arc<CacheZone>),
    head: &ResponseHead,
) -> Vec<Bytes> {
    let mut removed = Vec::new();
    let target_here = req.unparsed_uri().to_vec();
    let Some(here) = url_of((&req.host, req.host_port), target_here) else {
        return removed;
    };
    for known in [Known::Location, Known::ContentLocation] {
        let reference = head.fields.get(known);
        // A URI of another origin is none of this one's business (§4.4).
        let path = reference.and_then(|text| target_on_origin(text, &here, req.host_port));
        let Some(path) = path else {
            continue;
        };
        let mut other = beside(req);
        if target::set_path(&mut other, &Bytes::from(path)).is_ok() {
            removed.extend(remove(&mut other, target, zone));
        }
    }
    removed
}

/// Removes what a GET of the URI is answered with, whatever of a request is in the keys, and what
/// the request itself would be; the texts of the keys.
fn remove(req: &mut Request, target: &PassTarget, zone: &Arc<CacheZone>) -> Vec<Bytes> {
    let mut texts = keys(req, target, zone);
    let mut safe = beside(req);
    safe.method = Method::Get;
    safe.head = Rc::new(req.head.as_safe(Method::Get));
    safe.body = RequestBody::none();
    texts.extend(keys(&mut safe, target, zone));
    texts.sort();
    texts.dedup();
    for text in &texts {
        zone.invalidate(&zone.primary(text.clone()));
    }
    texts
}

/// Another request of the same client, whose keys are made as those of this one were.
fn beside(req: &Request) -> Request {
    let other = req.background();
    let trace = req.upstream.borrow();
    let mut its = other.upstream.borrow_mut();
    // `$proxy_host` and `$proxy_port`.
    (its.host, its.port) = (trace.host.clone(), trace.port);
    drop(its);
    // Maps of the method or of the URI.
    var::forget_lookups(&other);
    other
}

/// URL of a request, as far as clients of this server see it.
fn url_of((host, port): (&[u8], Option<u16>), target: Vec<u8>) -> Option<Url> {
    let mut place = Place::of(Scheme::Http, host)?;
    place.port = port.unwrap_or(place.port);
    Some(Url { place, target })
}

/// Texts of the keys that a request is looked up by. Without a key nothing is stored either.
fn keys(req: &mut Request, target: &PassTarget, zone: &Arc<CacheZone>) -> Vec<Bytes> {
    let own = super::pass::key(req, target).ok();
    let other = super::no_vary_search::other_key(req, target, zone);
    own.into_iter().chain(other.ok().flatten()).collect()
}

/// The target of a reference, if it is on the origin that a request is for. Its scheme does not
/// count, since something before this server may speak another one to clients: without a port,
/// each has that of the other's scheme.
fn target_on_origin(reference: &[u8], here: &Url, port: Option<u16>) -> Option<Vec<u8>> {
    let there = here.join(reference)?;
    let usual = there.place.scheme.usual_port();
    let is_same = there.place.host == here.place.host && there.place.port == port.unwrap_or(usual);
    is_same.then_some(there.target)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target_of(reference: &str, host: &str, port: Option<u16>) -> Option<String> {
        let here = url_of((host.as_bytes(), port), b"/d/e?q".to_vec()).unwrap();
        let target = target_on_origin(reference.as_bytes(), &here, port)?;
        Some(String::from_utf8(target).unwrap())
    }

    #[test]
    fn references_of_the_same_origin_have_a_target() {
        for (reference, port, expected) in [
            ("/a?b", None, Some("/a?b")),
            ("/a?b#c", None, Some("/a?b")),
            ("http://H.example/a", None, Some("/a")),
            ("http://h.example:80/a", None, Some("/a")),
            ("http://h.example:80/a#b", Some(80), Some("/a")),
            ("http://H.example:8080/a", Some(8080), Some("/a")),
            ("http://H.example:8080/a", None, None),
            ("http://h.example/a", Some(8080), None),
            ("https://h.example/a", None, Some("/a")),
            ("https://h.example/a", Some(443), Some("/a")),
            ("https://h.example/a", Some(80), None),
            ("//h.example/a", None, Some("/a")),
            ("//h.example/a", Some(80), Some("/a")),
            ("//h.example:81/a", None, None),
            ("ftp://h.example/a", None, None),
            ("http://other.example/a", None, None),
            ("http://h.example", None, Some("/")),
            ("http://h.example?a", None, Some("/?a")),
            ("http://h.example:port/a", None, None),
            ("a/b", None, Some("/d/a/b")),
            ("../a", None, Some("/a")),
            ("?a", None, Some("/d/e?a")),
            ("/a", Some(8080), Some("/a")),
            ("b", Some(8080), Some("/d/b")),
            ("/a", Some(443), Some("/a")),
            ("", None, Some("/d/e?q")),
        ] {
            let target = target_of(reference, "h.example", port);
            assert_eq!(target.as_deref(), expected, "{reference} {port:?}");
        }
        for (reference, expected) in [("http://[::1]:81/a", Some("/a")), ("http://[::1]/a", None)] {
            let target = target_of(reference, "[::1]", Some(81));
            assert_eq!(target.as_deref(), expected, "{reference}");
        }
    }
}
