//! `proxy_cache_status_header`, `$cache_status_reason`: a request's way through the cache, told to
//! its client (Cache-Status, RFC 9211) and to logs.
//!
//! The walk keeps an account (`millpond_cache::reason`) in the request's trace; here it becomes one
//! member of the field. Each cache adds its member at the end, so what the origin's side sent
//! stands before ours; a stored Cache-Status is what was sent when the answer was stored.

use bytes::Bytes;
use millpond_cache::reason::Account;
use millpond_conf::value::{ArgError, Args, FromArgs};
use millpond_conf::{OffOr, Template};
use millpond_semantics::cache_status::{Handling, Member, is_list};
use millpond_system::clock;
use millpond_wire::header::Known;

use crate::request::Request;
use crate::response::Response;
use crate::upstream::by_rfc;
use crate::upstream::pass::PassTarget;

/// Name of this cache where the configuration gives it none.
const NAME: &[u8] = b"millpond";

/// Settings of the field that tells clients what the cache did.
#[derive(Clone, Debug, millpond_conf::Family)]
#[family(http, server, location, protocols)]
pub struct StatusHeaderPolicy {
    /// Says in the Cache-Status of answers (RFC 9211) what the cache did: `on`, or the name that
    /// this cache has in it, which may contain variables; `on` stands for "millpond". With `key`
    /// the cache key is told, too. The member of this cache is added to those that the origin sent,
    /// and says: `hit`, or `fwd` and why, with `fwd-status`, `stored` and `collapsed`; `ttl`, the
    /// seconds of freshness that are left; and `detail`, why an answer was not stored or how a
    /// stale one came to be served (`$cache_status_reason`). Answers that this server makes itself,
    /// such as error pages, have no Cache-Status.
    #[directive(name = "proxy_cache_status_header", default = "off")]
    pub header: OffOr<StatusHeader>,
}

/// Name and members with which this cache stands in Cache-Status.
#[derive(Clone, Debug)]
pub struct StatusHeader {
    /// Name of this cache; `None` is the usual one.
    name: Option<Template>,
    key: KeyShown,
}

/// Choice of showing the cache key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum KeyShown {
    No,
    Yes,
}

impl FromArgs for StatusHeader {
    const SYNTAX: &'static str = "on | name [key]";

    fn from_args(args: &mut Args<'_>) -> Result<Self, ArgError> {
        let key = match args.at_least(1)? {
            [_] => KeyShown::No,
            [_, key] if key.text == "key" => KeyShown::Yes,
            [_, _] => return Err(ArgError::value(1, "it must be \"key\"")),
            _ => return Err(ArgError::Count),
        };
        let is_usual = args.words.first().is_some_and(|word| word.text == "on");
        let name = if is_usual { None } else { Some(args.word(0)?) };
        Ok(StatusHeader { name, key })
    }
}

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
