//! `proxy_cache_no_vary_search`: keys without the arguments that an origin does not tell answers
//! apart by.
//!
//! ```text
//! /a?b=2&utm=x ─► what did the last answer of /a say? ─ nothing ─► the key of the request
//!                              └─ params=("utm") ─► the key of /a?b=2, and a digest
//! ```
//!
//! 1. The text of such a key is one that no other request has: its end is made with the secret of
//!    the zone, of the text before it and of what the origin has said.
//! 2. An answer is stored under it only if it says the same; what it says counts from then on.

use std::sync::Arc;

use bytes::Bytes;
use millpond_cache::key_mark::KeyMark;
use millpond_cache::targeted::EachField;
use millpond_cache::zone::CacheZone;
use millpond_semantics::no_vary_search::Variation;
use millpond_wire::http1::Method;

use super::pass;
use crate::request::{Request, Unparsed};
use crate::upstream::pass::PassTarget;
use crate::upstream::pass_settings::SettingsByProtocol as _;
use millpond_exchange::failure::Failure;
use millpond_exchange::protocol::Protocol;

/// The field.
const FIELD: &[u8] = b"no-vary-search";

/// True for a request whose key may leave arguments out.
pub fn is_due(req: &Request, protocol: Protocol) -> bool {
    let policy = &req.location.settings.pass(protocol).no_vary_search;
    policy.is_on && matches!(req.method, Method::Get | Method::Head)
}

/// Facts that the key of a request was made by.
#[derive(Debug)]
pub(crate) struct MadeBy {
    zone: Arc<CacheZone>,
    path: KeyMark,
    said: Option<Arc<Variation>>,
}

impl MadeBy {
    /// Takes what an answer says; false if it is not to be stored under the key.
    pub(crate) fn takes(&self, status: u16, each_field: EachField<'_>) -> bool {
        let mut lines: Vec<Vec<u8>> = Vec::new();
        each_field(&mut |name, value| {
            if name.eq_ignore_ascii_case(FIELD) {
                lines.push(value.to_vec());
            }
        });
        let said = Variation::parse(lines.iter().map(Vec::as_slice));
        let is_same = said.as_ref() == self.said.as_deref();
        // Errors and redirects say nothing of the path's other answers.
        if !is_same && (said.is_some() || (200..300).contains(&status)) {
            self.zone.variations.note(&self.path, said.map(Arc::new));
        }
        // INVARIANT 2. What was looked up by the whole URI may be stored by it.
        is_same || self.said.is_none()
    }
}

/// True if the key of a request was made by what an origin has said.
pub(crate) fn is_simplified(req: &Request) -> bool {
    let made_by: Option<&MadeBy> = req.notes.get();
    made_by.is_some_and(|made_by| made_by.said.is_some())
}

/// A look-up that is made by what an origin has said of a path.
#[derive(Clone, Debug)]
pub struct Simplified {
    /// The cache key.
    pub key: Bytes,
    /// The word of the origin.
    pub said: Arc<Variation>,
    /// The arguments that count, in their one spelling.
    pub query: Vec<u8>,
}

/// The look-up of a request whose path's last answer had a No-Vary-Search; none without one.
pub fn simplified(
    req: &mut Request,
    target: &PassTarget,
    zone: &Arc<CacheZone>,
) -> Option<Simplified> {
    let found = path(req, target, zone).ok()?;
    let said = zone.variations.find(&found)?;
    let key = simple_key(req, target, (zone, &said)).ok()?;
    let mut query = Vec::new();
    said.simplify(&req.args, &mut query);
    Some(Simplified { key, said, query })
}

/// The text of the request's key, and what it was made by.
pub(crate) fn key(
    req: &mut Request,
    target: &PassTarget,
    zone: &Arc<CacheZone>,
) -> Result<Bytes, Failure> {
    let path = path(req, target, zone)?;
    let said = zone.variations.find(&path);
    let text = match &said {
        Some(said) => simple_key(req, target, (zone, said))?,
        None => pass::key(req, target)?,
    };
    let zone = Arc::clone(zone);
    req.notes.put(MadeBy { zone, path, said });
    Ok(text)
}

/// The text under which answers to a request are stored besides the one that it names, if there is
/// one.
pub(crate) fn other_key(
    req: &mut Request,
    target: &PassTarget,
    zone: &Arc<CacheZone>,
) -> Result<Option<Bytes>, Failure> {
    if !req
        .location
        .settings
        .pass(target.protocol)
        .no_vary_search
        .is_on
    {
        return Ok(None);
    }
    let path = path(req, target, zone)?;
    match zone.variations.find(&path) {
        Some(said) => simple_key(req, target, (zone, &said)).map(Some),
        None => Ok(None),
    }
}

/// Name of what is known of the request's path.
fn path(req: &Request, target: &PassTarget, zone: &CacheZone) -> Result<KeyMark, Failure> {
    let text = pass::key(&mut with_query(req, |_| Vec::new()), target)?;
    Ok(zone.mark(&zone.keys().of(&text), &text))
}

/// INVARIANT 1.
fn simple_key(
    req: &Request,
    target: &PassTarget,
    (zone, said): (&CacheZone, &Variation),
) -> Result<Bytes, Failure> {
    let simplify = |query: &[u8]| {
        let mut out = Vec::new();
        said.simplify(query, &mut out);
        out
    };
    let text = pass::key(&mut with_query(req, simplify), target)?;
    let end = zone
        .keys()
        .of_part(format!("{said:?} {}", text.escape_ascii()).as_bytes());
    Ok(Bytes::from(
        [&text[..], format!(" NVS {end}").as_bytes()].concat(),
    ))
}

/// The request with another query, wherever a key may take it from.
fn with_query(req: &Request, change: impl Fn(&[u8]) -> Vec<u8>) -> Request {
    let mut other = req.fork();
    let uri = req.unparsed_uri();
    let end = memchr::memchr(b'?', uri).unwrap_or(uri.len());
    let (path, query) = uri.split_at(end);
    let query = change(query.get(1..).unwrap_or_default());
    let mark: &[u8] = if query.is_empty() { b"" } else { b"?" };
    other.unparsed = Unparsed::Own(Bytes::from([path, mark, &query].concat()));
    other.args = Bytes::from(change(&req.args));
    other
}
