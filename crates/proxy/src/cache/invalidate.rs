//! Removal of what an unsafe request that succeeded has made wrong.
//!
//! With `proxy_cache_conformance rfc9111` it is what is stored for its URI, and for those of
//! Location and Content-Location on the same host (RFC 9111 §4.4); with `proxy_cache_groups` what
//! is in the groups that its answer names (`cache/groups.rs`).

use std::sync::Arc;

use millpond_cache::zone::CacheZone;
use millpond_semantics::reuse::invalidates;
use millpond_wire::header::Known;
use millpond_wire::http1::host::Host;
use millpond_wire::http1::response::ResponseHead;

use super::groups;
use crate::request::Request;
use crate::route::target;
use crate::upstream::by_rfc::{is_on, without_fragment};
use crate::upstream::pass::PassTarget;
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
    if is_on(req, target) {
        of_uris(req, (target, zone), head);
    }
    groups::purge(req, (target.protocol, zone), head).await
}

/// RFC 9111 §4.4.
fn of_uris(req: &mut Request, (target, zone): (&PassTarget, &Arc<CacheZone>), head: &ResponseHead) {
    remove(req, target, zone);
    for known in [Known::Location, Known::ContentLocation] {
        let Some(uri) = head.fields.get(known).cloned() else {
            continue;
        };
        // A URI of another origin is none of this one's business (§4.4).
        let Some(path) = path_on_origin(&uri, &req.host, req.host_port) else {
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
        zone.invalidate(&zone.primary(text));
    }
    if let Ok(Some(text)) = super::no_vary_search::other_key(req, target, zone) {
        zone.invalidate(&zone.primary(text));
    }
}

/// The port of requests that name none: this server is spoken to in plain HTTP.
const USUAL_PORT: u16 = 80;

/// Path and query of a reference, if it is on the origin that a request is for. Its scheme does not
/// count, since something before this server may speak another one to clients: without a port,
/// each has that of the other's scheme.
fn path_on_origin<'u>(uri: &'u [u8], host: &[u8], port: Option<u16>) -> Option<&'u [u8]> {
    let uri = without_fragment(uri);
    let (usual, rest) = match uri {
        [b'/', b'/', rest @ ..] => (USUAL_PORT, rest),
        [b'/', ..] => return Some(uri),
        _ => {
            let mark = memchr::memmem::find(uri, b"://")?;
            let (scheme, rest) = uri.split_at_checked(mark)?;
            let usual = match scheme {
                _ if scheme.eq_ignore_ascii_case(b"http") => 80,
                _ if scheme.eq_ignore_ascii_case(b"https") => 443,
                _ => return None,
            };
            (usual, rest.get(3..)?)
        }
    };
    let end = rest.iter().position(|byte| matches!(byte, b'/' | b'?'))?;
    let (authority, path) = rest.split_at_checked(end)?;
    let named = Host::parse(authority)?;
    let is_same = named.name.eq_ignore_ascii_case(host)
        && named.port.unwrap_or(usual) == port.unwrap_or(usual);
    (is_same && path.starts_with(b"/")).then_some(path)
}

#[cfg(test)]
mod tests {
    use super::path_on_origin;

    #[test]
    fn references_of_the_same_origin_have_a_path() {
        for (uri, port, expected) in [
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
            ("http://h.example", None, None),
            ("http://h.example?a", None, None),
            ("http://h.example:port/a", None, None),
            ("a/b", None, None),
            ("", None, None),
        ] {
            let path = path_on_origin(uri.as_bytes(), b"h.example", port);
            assert_eq!(path, expected.map(str::as_bytes), "{uri} {port:?}");
        }
        for (uri, expected) in [("http://[::1]:81/a", Some("/a")), ("http://[::1]/a", None)] {
            let path = path_on_origin(uri.as_bytes(), b"[::1]", Some(81));
            assert_eq!(path, expected.map(str::as_bytes), "{uri}");
        }
    }
}
