//! `proxy_cache_status_header`: whether clients are told what the cache did, and under which name.
//!
//! `cache/status_header.rs` tells them.

use millpond_conf::value::{ArgError, Args, FromArgs};
use millpond_conf::{OffOr, Template};

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
    pub(crate) name: Option<Template>,
    /// Choice of showing the cache key.
    pub(crate) key: KeyShown,
}

/// Choice of showing the cache key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyShown {
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
