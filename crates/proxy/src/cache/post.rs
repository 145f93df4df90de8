//! `proxy_cache_conformance rfc9111`: a POST whose answer later GET requests are answered with.
//!
//! RFC 9110 §9.3.3: an answer to POST may be stored when it says itself for how long it is fresh,
//! and its Content-Location is the URI that was posted to: then it is what GET would give. The POST
//! itself always goes to the origin, as the client sent it; what was stored for its URI is
//! invalidated first.
//!
//! 1. A heuristic or `proxy_cache_valid` is no word of the origin's.
//! 2. A Content-Location that is not a path or a URI with this very authority is another resource.
//! 3. The conditions and ranges of a POST are the origin's to weigh, whether its answer is stored
//!    or not.

use std::borrow::Cow;
use std::sync::Arc;

use millpond_cache::exchange::{Ask, Exchange};
use millpond_cache::step::{self, Given, Walk};
use millpond_cache::zone::CacheZone;
use millpond_wire::header::Known;
use millpond_wire::http1::Method;

use super::exchange::{Failed, Origin, PassExchange};
use super::invalidate;
use super::pass::{answer_with, key};
use super::status_header;
use super::zones::LocationCache;
use crate::request::Request;
use crate::upstream::by_rfc;
use crate::upstream::pass::PassTarget;
use millpond_exchange::failure::Failure;
use millpond_exchange::response::{RangeRule, Response};

/// True for a request whose answer may be one to store.
pub(crate) fn is_one(req: &Request, target: &PassTarget) -> bool {
    req.method == Method::Post && by_rfc::is_on(req, target)
}

/// Answers from the origin, and stores the answer where it is one for GET.
pub(crate) async fn run(
    req: &mut Request,
    target: &Arc<PassTarget>,
    cache: &LocationCache,
    zone: Arc<CacheZone>,
) -> Result<Box<Response>, Failure> {
    let walk = Walk {
        key: zone.primary(key(req, target)?),
        zone,
        policies: Arc::clone(&cache.policies),
        rules: by_rfc::rules(req, target),
        slicing: None,
        past: None,
    };
    let tries_before = status_header::tries(req);
    let since = walk.zone.purges.newest();
    let mut exchange = PassExchange::new(&mut *req, Arc::clone(target));
    let fetched = exchange.fetch(Ask::default()).await;
    let fetched = fetched.map_err(|Failed(failure)| failure)?;
    let head = &fetched.fetched.head;
    if invalidate::may_be_due(exchange.request(), (target, head)) {
        invalidate::invalidate(exchange.request(), (target, &walk.zone), head).await?;
    }
    let served = if is_what_get_gives(exchange.request(), &walk, &fetched) {
        step::keep(&mut exchange, &walk, fetched, since)
    } else {
        step::pass_on(fetched)
    };
    let mut response = answer_with(req, target, (served, &walk), tries_before)?;
    response.conditions.are_skipped = true;
    response.parts.rule = RangeRule::Refused;
    // nginx: a request that is not looked up has no status.
    req.upstream.borrow_mut().cache_status = None;
    Ok(response)
}

/// RFC 9110 §9.3.3.
fn is_what_get_gives(req: &Request, walk: &Walk, fetched: &Origin) -> bool {
    let head = &fetched.fetched.head;
    if !(200..300).contains(&head.status) || !is_of_this_uri(req, fetched) {
        return false;
    }
    let given = Given {
        policies: &walk.policies,
        rules: &walk.rules,
        // What is asked for is what the answer states itself.
        valid: Cow::Borrowed(&walk.policies.valid),
        is_authorized: req.head.find_all(b"authorization").next().is_some(),
    };
    let now = millpond_system::clock::now_ms().div_euclid(1000);
    step::judge(&given, fetched, (now, None)).is_ok_and(|kept| kept.is_stated)
}

/// RFC 9110 §8.7: a Content-Location that is the target URI says that the content is a
/// representation of it.
fn is_of_this_uri(req: &Request, fetched: &Origin) -> bool {
    let mut locations = fetched.fetched.head.fields.get_all(Known::ContentLocation);
    let (Some(location), None) = (locations.next(), locations.next()) else {
        return false;
    };
    let authority = req.field(Known::Host).unwrap_or_default();
    path_of(location, authority).is_some_and(|path| path == req.unparsed_uri())
}

/// Path and query of a reference that has this authority or none.
fn path_of<'u>(location: &'u [u8], authority: &[u8]) -> Option<&'u [u8]> {
    let is_http = |scheme: &[u8]| scheme.eq_ignore_ascii_case(b"http:");
    let rest = match location.split_first_chunk::<5>() {
        Some((scheme, rest)) if is_http(scheme) => rest,
        _ => location,
    };
    let Some(named) = rest.strip_prefix(b"//") else {
        let has_scheme = rest.len() != location.len();
        return (rest.starts_with(b"/") && !has_scheme).then_some(rest);
    };
    let end = memchr::memchr(b'/', named)?;
    let (other, path) = named.split_at_checked(end)?;
    other.eq_ignore_ascii_case(authority).then_some(path)
}

#[cfg(test)]
mod tests {
    use super::path_of;

    #[test]
    fn only_references_with_this_very_authority_have_a_path_here() {
        for (location, expected) in [
            ("/a?b", Some("/a?b")),
            ("http://H.example:8080/a", Some("/a")),
            ("HTTP://h.example:8080/a", Some("/a")),
            ("//h.example:8080/", Some("/")),
            ("https://h.example:8080/a", None),
            ("http://h.example/a", None),
            ("http://h.example:8080", None),
            ("http:/a", None),
            ("a", None),
            ("", None),
        ] {
            let path = path_of(location.as_bytes(), b"h.example:8080");
            assert_eq!(path, expected.map(str::as_bytes), "{location}");
        }
    }
}
