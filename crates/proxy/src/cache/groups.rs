//! `proxy_cache_groups`: stored answers that their origin groups, and purges by its word
//! (Cache Groups, RFC 9875).
//!
//! 1. A group is one of a host and port (§2.1); the scheme does not count, since something before
//!    this server may speak another one to clients.
//! 2. Only an unsafe method that succeeded invalidates (§3), and before its client has the answer.
//! 3. What is invalidated by its group invalidates nothing else (§2.2.1).

use bytes::Bytes;
use millpond_cache::purge::Target;
use millpond_cache::rule_counts::Rule;
use millpond_cache::tag::{self, TagWriter};
use millpond_cache::targeted::EachField;
use millpond_cache::zone::CacheZone;
use millpond_semantics::cache_groups::names;
use millpond_wire::http1::response::ResponseHead;

use super::purge;
use crate::request::Request;
use crate::upstream::pass_settings::SettingsByProtocol as _;
use millpond_exchange::protocol::Protocol;

/// Groups of one purge.
const GROUPS_MAX: usize = 256;

/// The fields.
const GROUPS: &[u8] = b"Cache-Groups";
const INVALIDATION: &[u8] = b"Cache-Group-Invalidation";

/// True if the answers of the location are grouped.
pub(crate) fn are_on(req: &Request, protocol: Protocol) -> bool {
    req.location.settings.pass(protocol).tag.groups
}

/// Host and port that the groups of a request are of. INVARIANT 1.
pub(super) fn origin(req: &Request) -> Vec<u8> {
    let mut origin = purge::host(req).to_vec();
    if let Some(port) = req.host_port.filter(|port| !matches!(port, 80 | 443)) {
        origin.extend_from_slice(format!(":{port}").as_bytes());
    }
    origin
}

/// Adds the groups that an answer names to the tags that it is stored with.
pub(crate) fn tag(
    req: &Request,
    protocol: Protocol,
    (each_field, tags): (EachField<'_>, &mut TagWriter),
) {
    if !are_on(req, protocol) {
        return;
    }
    let mut lines: Vec<Vec<u8>> = Vec::new();
    each_field(&mut |name, value| {
        if name.eq_ignore_ascii_case(GROUPS) {
            lines.push(value.to_vec());
        }
    });
    let origin = origin(req);
    for name in names(lines.iter().map(Vec::as_slice)) {
        tags.push_group(&origin, name.as_bytes());
    }
}

/// The groups that the answer of an unsafe request that succeeded names, as targets of purges.
pub(super) fn invalidated(
    req: &Request,
    (protocol, zone): (Protocol, &CacheZone),
    head: &ResponseHead,
) -> Vec<Target> {
    if !are_on(req, protocol) {
        return Vec::new();
    }
    let origin = origin(req);
    let tags: Vec<Bytes> = names(head.fields.find_all(INVALIDATION).map(Bytes::as_ref))
        .iter()
        .map(|name| tag::of_group(&origin, name.as_bytes()))
        .collect();
    tags.iter()
        .for_each(|_| zone.rule_counts.note(Rule::GroupInvalidated));
    let targets = tags.chunks(GROUPS_MAX);
    targets.map(|some| Target::Tags(some.to_vec())).collect()
}
