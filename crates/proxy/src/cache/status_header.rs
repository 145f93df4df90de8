//! `proxy_cache_status_header`, `$cache_status_reason`: a request's way through the cache, told to
//! its client (Cache-Status, RFC 9211) and to logs.
//!
//! The walk keeps an account (`millpond_cache::reason`) in the request's trace; here it becomes one
//! member of the field. Each cache adds its member at the end, so what the origin's side sent
//! stands before ours; a stored Cache-Status is what was sent when the answer was stored.

use bytes::Bytes;
use millpond_cache::reason::Account;
use millpond_conf::OffOr;
use millpond_semantics::cache_status::{Handling, Member, is_list};
use millpond_system::clock;
use millpond_wire::header::Known;

use crate::cache_settings::status_header::KeyShown;
use crate::request::Request;
use crate::upstream::by_rfc;
use crate::upstream::pass::PassTarget;
use crate::upstream::pass_settings::SettingsByProtocol as _;
use millpond_exchange::response::Response;

/// Name of this cache where the configuration gives it none.
const NAME: &[u8] = b"millpond";

/// Facts of an answer besides its account.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Told<'a> {
    /// Until when what is served is fresh.
    pub valid_until: Option<i64>,
    /// The cache key.
    pub key: Option<&'a [u8]>,
    /// Number of tries with peers that were made before this request came to its cache.
    pub tries_before: usize,
}

/// Tries with peers that a request has made so far.
pub(crate) fn tries(req: &Request) -> usize {
    req.upstream.borrow().attempts.len()
}

/// Adds this cache's member to an answer.
pub(crate) fn tell(
    req: &mut Request,
    target: &PassTarget,
    response: &mut Response,
    told: &Told<'_>,
) {
    let settings = req.location.settings.pass(target.protocol);
    if settings.status_header.header.on().is_none() {
        return;
    }
    let location = std::sync::Arc::clone(&req.location);
    let settings = location.settings.pass(target.protocol);
    let OffOr::On(header) = &settings.status_header.header else {
        return;
    };
    let name = match &header.name {
        Some(name) => req.eval(name),
        None => Bytes::from_static(NAME),
    };
    let account = req.upstream.borrow().account;
    let handling = handling(req, &account, told);
    // A reason is worth a detail if the other words do not say it already.
    let detail = account.reason.map(|reason| reason.as_str());
    let member = Member {
        cache: &name,
        handling,
        ttl: told.valid_until.map(|until| {
            let now = clock::now_ms().div_euclid(1000);
            left(req, target, (until, now))
        }),
        key: told.key.filter(|_| header.key == KeyShown::Yes),
        detail: detail.filter(|word| !matches!(*word, "fresh" | "not-modified")),
    };
    let mut value: Vec<u8> = Vec::new();
    // RFC 9651 §4.2: one line that is no list would make none of the whole.
    let lines = response.fields.get_all(Known::CacheStatus);
    for earlier in lines.filter(|line| is_list(line)) {
        value.extend_from_slice(earlier);
        value.extend_from_slice(b", ");
    }
    value.extend_from_slice(member.serialize().as_bytes());
    response.fields.set(Known::CacheStatus, value);
}

fn handling(req: &Request, account: &Account, told: &Told<'_>) -> Handling {
    let Some(why) = account.forward else {
        return Handling::Hit;
    };
    let trace = req.upstream.borrow();
    let tries = trace.attempts.get(told.tries_before..).unwrap_or_default();
    // A try without an answer has no status that the origin gave.
    let answered = tries.last().filter(|attempt| attempt.header.is_some());
    Handling::Forwarded {
        why,
        status: answered.map(|attempt| attempt.status),
        is_stored: account.is_stored,
        is_collapsed: account.is_collapsed,
    }
}

/// Seconds of freshness that are left. Under the RFC's rules the last fresh second is the one
/// before the lifetime is over, under nginx's it is that one itself.
pub(super) fn left(req: &Request, target: &PassTarget, (valid_until, now): (i64, i64)) -> i64 {
    let left = valid_until.saturating_sub(now);
    if by_rfc::is_on(req, target) {
        left.saturating_add(1)
    } else {
        left
    }
}
