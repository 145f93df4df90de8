//! `cache_key_unbounded`, `cache_key_ambiguous`: what a cache key has that it should not have.
//!
//! A value that holds a variable of the configuration may be anything and is taken for right.

use millpond_conf::Code;

use super::Findings;
use super::block::{Blocks, neighbours, variables};

/// Clients can make as many entries as they like.
pub(super) const CACHE_KEY_UNBOUNDED: Code = Code {
    name: "cache_key_unbounded",
    doc: "The cache key has a request field or a cookie as the client wrote it. Every spelling is \
          an entry of its own, so that one resource fills the zone and is seldom found, and \
          anybody can push everything else out. Reduce the value to a few with \"map\" and put \
          that variable into the key; for languages or codings let the origin send Vary.",
};

/// Two requests that have one key by chance or by somebody's wish.
pub(super) const CACHE_KEY_AMBIGUOUS: Code = Code {
    name: "cache_key_ambiguous",
    doc: "In the cache key, two values that clients choose follow each other with nothing between \
          them, so that the end of one can as well be the beginning of the other: with \
          \"$arg_a$arg_b\", a=1&b=23 and a=12&b=3 are one key. Whoever sees that can make the \
          answer to one request be served for another. Write something between them that neither \
          can hold, such as a space: \"$arg_a $arg_b\".",
};

/// Variables whose end clients choose, besides the families of [`is_chosen`].
const CHOSEN_END: &[&str] = &[
    "args",
    "cache_args",
    "document_uri",
    "host",
    "http_host",
    "query_string",
    "remote_user",
    "request_body",
    "request_uri",
    "uri",
];

/// Variables whose beginning they choose. A path begins with a slash, which no host has.
const CHOSEN_BEGIN: &[&str] = &[
    "args",
    "cache_args",
    "host",
    "http_host",
    "query_string",
    "remote_user",
    "request_body",
];

pub(super) fn cache_key_unbounded(blocks: &Blocks<'_>, findings: &mut Findings<'_>) {
    for user in blocks.caching() {
        let Some((key, Some(statement))) = user.key() else {
            continue;
        };
        let names = variables(key);
        let Some(name) = names.iter().find(|name| is_unbounded(name)) else {
            continue;
        };
        let message = format!("clients can make any number of entries by ${name} in the key");
        if let Some(warning) = findings.warn(CACHE_KEY_UNBOUNDED, statement.span, message) {
            warning.help(match &**name {
                "http_range" => "for ranges use \"slice\"".to_string(),
                _ => format!("reduce it to a few values: map ${name} $kind {{ … }}"),
            });
        }
    }
}

pub(super) fn cache_key_ambiguous(blocks: &Blocks<'_>, findings: &mut Findings<'_>) {
    for user in blocks.caching() {
        let Some((key, Some(statement))) = user.key() else {
            continue;
        };
        let pairs = neighbours(key);
        let mixes = |(left, right): &&(String, String)| {
            is_chosen(left, CHOSEN_END) && is_chosen(right, CHOSEN_BEGIN)
        };
        let Some((left, right)) = pairs.iter().find(mixes) else {
            continue;
        };
        let message = format!("in the key, ${left} and ${right} can run into each other");
        if let Some(warning) = findings.warn(CACHE_KEY_AMBIGUOUS, statement.span, message) {
            warning.help(format!(
                "write something between them: \"${left} ${right}\""
            ));
        }
    }
}

fn is_chosen(name: &str, others: &[&str]) -> bool {
    let families = ["arg_", "cookie_", "http_"];
    others.contains(&name) || families.iter().any(|family| name.starts_with(family))
}

fn is_unbounded(name: &str) -> bool {
    let is_field = name.starts_with("http_") && name != "http_host";
    is_field || name.starts_with("cookie_")
}
