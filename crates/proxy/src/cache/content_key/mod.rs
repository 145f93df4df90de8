//! Keys that the content of a request is a part of: those of QUERY (RFC 10008), and of queries of
//! GraphQL.
//!
//! The text of such a key is that of the cache key, a word, and a digest of the content and of what
//! is said of it. A purge of a prefix finds it.
//!
//! 1. A content that is not in memory as a whole has no key: `client_body_buffer_size` bounds what
//!    is read.
//! 2. No other request has such a text: half of the digest is made with the secret of the zone.
//! 3. Contents that differ share a key only where they say the same ([`QueryJson`]).

pub mod graphql;

use std::sync::Arc;

use bytes::Bytes;
use millpond_cache::method::{CacheMethod, QueryJson};
use millpond_cache::rule_counts::Rule;
use millpond_cache::zone::CacheZone;
use millpond_exchange::client::body::RequestBody;
use millpond_exchange::failure::Failure;
use millpond_exchange::protocol::Protocol;
use millpond_semantics::cache_control::CacheControl;
use millpond_semantics::hex::Hex;
use millpond_semantics::json::{self, Members};
use millpond_semantics::list;
use millpond_wire::header::Known;
use millpond_wire::http1::Method;
use sha2::{Digest, Sha256};

use graphql::InQuery;

use super::pass;
use super::zones::LocationCache;
use crate::phase::Begun;
use crate::request::{Request, Unparsed};
use crate::upstream::pass::PassTarget;
use crate::upstream::pass_settings::SettingsByProtocol as _;
use crate::{content, request_body};

/// Kind of a request whose key is made of its content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// QUERY.
    Query,
    /// GET, HEAD or POST that may be a query of GraphQL.
    GraphQl,
}

impl Kind {
    /// Word that stands before the digest.
    fn word(self) -> &'static str {
        match self {
            Kind::Query => "QUERY",
            Kind::GraphQl => "GRAPHQL",
        }
    }
}

/// The kind of a request that is looked up by its content; none for all others.
pub fn kind(req: &Request, protocol: Protocol) -> Option<Kind> {
    let policy = &req.location.settings.pass(protocol).method;
    match req.method {
        Method::Get | Method::Head | Method::Post => policy.graphql.then_some(Kind::GraphQl),
        _ => (req.is_query() && policy.allows(CacheMethod::Query)).then_some(Kind::Query),
    }
}

/// The rule by which a request has found its entry; none if its content had no part in that.
pub(crate) fn rule_of_hit(req: &Request, protocol: Protocol) -> Option<Rule> {
    match kind(req, protocol)? {
        Kind::Query => Some(Rule::QueryHit),
        Kind::GraphQl => {
            let is_asked =
                req.method == Method::Post || graphql::of_query(&req.args) != InQuery::None;
            is_asked.then_some(Rule::GraphQlHit)
        }
    }
}

/// Answers such a request from the zone, or from the origin through it; one that has no key is
/// passed on.
pub(crate) fn begin<'a>(
    req: &'a mut Request,
    target: &Arc<PassTarget>,
    cache: &LocationCache,
    (zone, kind): (Arc<CacheZone>, Kind),
) -> Begun<'a> {
    let (target, cache) = (Arc::clone(target), cache.clone());
    Begun::waits(req, async move |req| {
        request_body::read_all(req).await?;
        let text = match kind {
            Kind::Query => of_query(req, &target, &zone),
            Kind::GraphQl => of_graphql(req, &target, &zone),
        };
        match text? {
            Some(text) => pass::run(req, target, &cache, (zone, text)).await,
            None => {
                if kind == Kind::GraphQl {
                    zone.rule_counts.note(Rule::GraphQlPassed);
                }
                let response = pass::pass_by(req, &target).await?;
                content::respond(req, response)
            }
        }
    })
}

/// The content of a request that was read; none that is not in memory.
fn content(req: &Request) -> Option<Bytes> {
    match &req.body {
        RequestBody::None => Some(Bytes::new()),
        RequestBody::Memory(content) => Some(content.clone()),
        RequestBody::Unread { .. } | RequestBody::File(_) => None,
    }
}

fn of_query(
    req: &mut Request,
    target: &PassTarget,
    zone: &CacheZone,
) -> Result<Option<Bytes>, Failure> {
    let Some(content) = content(req) else {
        return Ok(None);
    };
    let policy = &req.location.settings.pass(target.protocol).method;
    let digest = digest(req, policy.query_json, &content);
    let key = pass::key(req, target)?;
    Ok(Some(text(&key, zone, (Kind::Query, &digest))))
}

fn of_graphql(
    req: &mut Request,
    target: &PassTarget,
    zone: &CacheZone,
) -> Result<Option<Bytes>, Failure> {
    let in_query = graphql::of_query(&req.args);
    if req.method != Method::Post {
        return match in_query {
            InQuery::None => pass::key(req, target).map(Some),
            InQuery::Other => Ok(None),
            InQuery::One(identity, rest) => {
                let mut bare = without_query(req, rest);
                let key = pass::key(&mut bare, target)?;
                let digest = Sha256::digest(&identity).into();
                Ok(Some(text(&key, zone, (Kind::GraphQl, &digest))))
            }
        };
    }
    let identity = content(req)
        .filter(|_| in_query == InQuery::None && is_plain_json(req))
        .and_then(|content| graphql::of_content(&content));
    let Some(identity) = identity else {
        return Ok(None);
    };
    let key = pass::key(req, target)?;
    let digest = Sha256::digest(&identity).into();
    Ok(Some(text(&key, zone, (Kind::GraphQl, &digest))))
}

/// The request as if its URI had not said what is asked, which these arguments are left of.
fn without_query(req: &Request, rest: Vec<u8>) -> Request {
    let mut bare = req.fork();
    let uri = req.unparsed_uri();
    let end = memchr::memchr(b'?', uri).unwrap_or(uri.len());
    let (path, query) = uri.split_at(end);
    let mut whole = path.to_vec();
    if let InQuery::One(_, rest) = graphql::of_query(query.get(1..).unwrap_or_default()) {
        if !rest.is_empty() {
            whole.push(b'?');
            whole.extend_from_slice(&rest);
        }
    } else {
        whole.extend_from_slice(query);
    }
    bare.args = rest.into();
    bare.unparsed = Unparsed::Own(whole.into());
    bare
}

/// The text of a key: INVARIANT 2.
fn text(key: &[u8], zone: &CacheZone, (kind, digest): (Kind, &[u8; 32])) -> Bytes {
    let made_here = zone.keys().of_part(digest);
    let of_all = digest.first_chunk::<16>().map_or(&[][..], |half| half);
    let mut text = key.to_vec();
    let end = format!(" {} {made_here}{}", kind.word(), Hex(of_all));
    text.extend_from_slice(end.as_bytes());
    Bytes::from(text)
}

/// Begins of all texts of a location that a content was added to a key in. No other text begins so:
/// there is a space in none that a request makes of its URI as it came.
pub(super) fn begins(req: &Request, protocol: Protocol, key: &[u8]) -> Vec<Bytes> {
    let policy = &req.location.settings.pass(protocol).method;
    let query = policy.allows(CacheMethod::Query).then_some(Kind::Query);
    let graphql = policy.graphql.then_some(Kind::GraphQl);
    let kinds = query.into_iter().chain(graphql);
    let begin = |kind: Kind| [key, b" ", kind.word().as_bytes(), b" "].concat().into();
    kinds.map(begin).collect()
}

/// Fields that say what a content is (RFC 9110 §8).
const METADATA: [Known; 3] = [
    Known::ContentType,
    Known::ContentEncoding,
    Known::ContentLanguage,
];

fn digest(req: &Request, form: QueryJson, content: &[u8]) -> [u8; 32] {
    let mut hash = Sha256::new();
    for known in METADATA {
        for value in req.head.get_all(known) {
            update(&mut hash, value);
        }
        update(&mut hash, b"");
    }
    let spelled = if may_be_spelled(req) {
        spell(form, content)
    } else {
        None
    };
    match spelled {
        Some(spelled) => update(&mut hash, &spelled),
        None => update(&mut hash, content),
    }
    hash.finalize().into()
}

/// Adds a value whose end is told by its length.
fn update(hash: &mut Sha256, value: &[u8]) {
    hash.update((value.len() as u64).to_le_bytes());
    hash.update(value);
}

/// RFC 10008 §2.7: a client says with `no-transform` that it does not wish its content to be taken
/// for another.
fn may_be_spelled(req: &Request) -> bool {
    let control = CacheControl::parse(req.head.get_all(Known::CacheControl));
    let is_json = |name: &[u8]| {
        name == b"application/json" || (name.contains(&b'/') && name.ends_with(b"+json"))
    };
    !control.no_transform && media_type(req).is_some_and(|name| is_json(&name))
}

/// True for a content in JSON as GraphQL over HTTP §5.2 has it.
fn is_plain_json(req: &Request) -> bool {
    media_type(req).is_some_and(|name| name == b"application/json")
}

/// The media type of a content that is not encoded, in small letters.
fn media_type(req: &Request) -> Option<Vec<u8>> {
    let mut codings = req.head.get_all(Known::ContentEncoding);
    let mut types = req.head.get_all(Known::ContentType);
    let (None, Some(value), None) = (codings.next(), types.next(), types.next()) else {
        return None;
    };
    let name = value.split(|byte| *byte == b';').next()?;
    Some(list::trim_ows(name).to_ascii_lowercase())
}

fn spell(form: QueryJson, content: &[u8]) -> Option<Vec<u8>> {
    match form {
        QueryJson::Off => None,
        QueryJson::Spelling => json::spell(content, Members::AsWritten),
        QueryJson::Members => json::spell(content, Members::Sorted)
            .or_else(|| json::spell(content, Members::AsWritten)),
    }
}
