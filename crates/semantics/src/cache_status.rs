//! Cache-Status (RFC 9211): one cache's member of the list that tells how a request was handled.
//!
//! ```text
//! Cache-Status: Origin-Cache; fwd=uri-miss, millpond; hit; ttl=376
//!               └ nearer the origin        └ this cache, at the end (§2)
//! ```
//!
//! 1. The name of a cache is a token where it can be one, else a string (§2).
//! 2. Text that a string cannot hold is written with percent signs.
//! 3. `hit` and `fwd` are not told together (§2.1, §2.2).
//!
//! What a cache did is not decided here.

use std::borrow::Cow;

use sfv::{
    Integer, ItemSerializer, KeyRef, List, ParameterSerializer, Parser, StringRef, TokenRef,
    integer, key_ref, string_ref,
};

/// The longest text of a member's name, key or detail; a longer one is left out (arbitrary: a line
/// of this field should fit any reader's limits).
pub const TEXT_MAX: usize = 1024;

/// The reason why a request went on towards the origin (§2.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Forward {
    /// The cache was configured to not handle it.
    Bypass,
    /// The request's method is not one that is answered from the cache.
    Method,
    /// The cache had nothing stored for the request's URI.
    UriMiss,
    /// Something was stored for its URI, but not for its fields.
    VaryMiss,
    /// Nothing was stored that could be used, and more is not known.
    Miss,
    /// A fresh response was stored, but the request wanted it validated.
    Request,
    /// A stale response was stored.
    Stale,
    /// Only a part of what is asked for was stored.
    Partial,
}

impl Forward {
    /// The token (§2.2).
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Forward::Bypass => "bypass",
            Forward::Method => "method",
            Forward::UriMiss => "uri-miss",
            Forward::VaryMiss => "vary-miss",
            Forward::Miss => "miss",
            Forward::Request => "request",
            Forward::Stale => "stale",
            Forward::Partial => "partial",
        }
    }
}

/// Manner in which a cache answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Handling {
    /// The answer came from what is stored, without asking anybody (§2.1).
    Hit,
    /// The answer came by asking.
    Forwarded {
        /// The reason (§2.2).
        why: Forward,
        /// The status of the answer that came (§2.3).
        status: Option<u16>,
        /// True if the answer was stored (§2.5).
        is_stored: bool,
        /// True if another request's fetch served this one as well (§2.6).
        is_collapsed: bool,
    },
}

/// One cache's member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member<'a> {
    /// The cache's name.
    pub cache: &'a [u8],
    /// Manner in which the cache answered.
    pub handling: Handling,
    /// Seconds of freshness that are left, below zero for a stale response (§2.4).
    pub ttl: Option<i64>,
    /// The cache key (§2.7).
    pub key: Option<&'a [u8]>,
    /// Detail (§2.8): a token.
    pub detail: Option<&'static str>,
}

impl Member<'_> {
    /// The member's text.
    #[must_use]
    pub fn serialize(&self) -> String {
        let name = text(self.cache).unwrap_or(Cow::Borrowed("?"));
        let item = ItemSerializer::new();
        // §2: a token if it can be one.
        let mut parameters = match TokenRef::from_str(&name) {
            Ok(token) => item.bare_item(token),
            Err(_) => item.bare_item(string_of(&name)),
        };
        match self.handling {
            Handling::Hit => parameters = parameters.parameter(key_ref("hit"), true),
            Handling::Forwarded {
                why,
                status,
                is_stored,
                is_collapsed,
            } => {
                parameters = write_token(parameters, key_ref("fwd"), why.as_str());
                if let Some(status) = status {
                    parameters = parameters.parameter(key_ref("fwd-status"), i64_of(status.into()));
                }
                for (name, is_true) in [("stored", is_stored), ("collapsed", is_collapsed)] {
                    if is_true && let Ok(name) = KeyRef::from_str(name) {
                        parameters = parameters.parameter(name, true);
                    }
                }
            }
        }
        if let Some(ttl) = self.ttl {
            parameters = parameters.parameter(key_ref("ttl"), i64_of(ttl));
        }
        if let Some(key) = self.key.and_then(text) {
            parameters = parameters.parameter(key_ref("key"), string_of(&key));
        }
        if let Some(detail) = self.detail {
            parameters = write_token(parameters, key_ref("detail"), detail);
        }
        parameters.finish()
    }
}

/// True if a line of the field is a list with members (RFC 9651 §4.2): one that is malformed or
/// empty is no field, and would make ours a part of something malformed.
#[must_use]
pub fn is_list(line: &[u8]) -> bool {
    let read: Result<List, _> = Parser::new(line).parse();
    read.is_ok_and(|members| !members.is_empty())
}

/// Adds a parameter whose value is a token; text that is none is told as a string.
fn write_token(
    parameters: ParameterSerializer<String>,
    name: &KeyRef,
    value: &str,
) -> ParameterSerializer<String> {
    match TokenRef::from_str(value) {
        Ok(token) => parameters.parameter(name, token),
        Err(_) => parameters.parameter(name, string_of(value)),
    }
}

/// Printable ASCII as it is, other bytes and the percent sign escaped; `None` when it is too long.
fn text(bytes: &[u8]) -> Option<Cow<'_, str>> {
    if bytes.len() > TEXT_MAX {
        return None;
    }
    let is_plain = |byte: &u8| matches!(byte, b' '..=b'~') && *byte != b'%';
    if let Ok(plain) = std::str::from_utf8(bytes)
        && bytes.iter().all(|byte| is_plain(byte) || *byte == b'%')
    {
        return Some(Cow::Borrowed(plain));
    }
    let mut escaped = String::with_capacity(bytes.len() + 16);
    for byte in bytes {
        if is_plain(byte) {
            escaped.push(char::from(*byte));
        } else {
            escaped.push_str(&format!("%{byte:02X}"));
        }
    }
    Some(Cow::Owned(escaped))
}

fn string_of(text: &str) -> &StringRef {
    StringRef::from_str(text).unwrap_or(string_ref("?"))
}

/// A number of at most fifteen digits (RFC 9651 §3.3.1).
fn i64_of(number: i64) -> Integer {
    Integer::try_from(number).unwrap_or(if number > 0 {
        integer(999_999_999_999_999)
    } else {
        integer(-999_999_999_999_999)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(handling: Handling) -> Member<'static> {
        Member {
            cache: b"millpond",
            handling,
            ttl: None,
            key: None,
            detail: None,
        }
    }

    fn forwarded(why: Forward) -> Handling {
        Handling::Forwarded {
            why,
            status: None,
            is_stored: false,
            is_collapsed: false,
        }
    }

    #[test]
    fn what_is_malformed_or_empty_is_no_list() {
        for (line, expected) in [
            ("", false),
            ("  ", false),
            ("a; hit", true),
            ("a;hit, \"b c\"; fwd=miss; ttl=-5", true),
            ("a;hit,", false),
            (", a;hit", false),
            ("a;hit=\"x", false),
            ("((", false),
            ("a;hit\r\nb", false),
        ] {
            assert_eq!(is_list(line.as_bytes()), expected, "{line}");
        }
    }

    #[test]
    fn members_tell_what_they_hold() {
        let hit = Member {
            ttl: Some(-5),
            detail: Some("stale-while-revalidate"),
            ..member(Handling::Hit)
        };
        assert_eq!(
            hit.serialize(),
            "millpond;hit;ttl=-5;detail=stale-while-revalidate"
        );
        let stored = member(Handling::Forwarded {
            why: Forward::UriMiss,
            status: Some(200),
            is_stored: true,
            is_collapsed: true,
        });
        assert_eq!(
            stored.serialize(),
            "millpond;fwd=uri-miss;fwd-status=200;stored;collapsed"
        );
        let bare = member(forwarded(Forward::Bypass));
        assert_eq!(bare.serialize(), "millpond;fwd=bypass");
    }

    #[test]
    fn names_and_keys_are_written_as_what_they_can_be() {
        for (name, expected) in [
            (&b"edge-1"[..], "edge-1"),
            (b"a b", "\"a b\""),
            (b"1st", "\"1st\""),
            (b"", "\"\""),
            (b"h\xf6f", "h%F6f"),
            (b"a\"b\\", "\"a\\\"b\\\\\""),
            (b"a\r\nb", "a%0D%0Ab"),
        ] {
            let named = Member {
                cache: name,
                ..member(Handling::Hit)
            };
            assert_eq!(named.serialize(), format!("{expected};hit"));
        }
        let long = vec![b'k'; TEXT_MAX + 1];
        for (key, expected) in [
            (&b"/a?b=1%20"[..], ";key=\"/a?b=1%20\""),
            (b"/\xc3\xa9%", ";key=\"/%C3%A9%25\""),
            (&long, ""),
        ] {
            let keyed = Member {
                key: Some(key),
                ..member(Handling::Hit)
            };
            assert_eq!(keyed.serialize(), format!("millpond;hit{expected}"));
        }
    }

    #[test]
    fn numbers_stay_within_what_can_be_written() {
        for (ttl, expected) in [
            (i64::MAX, "999999999999999"),
            (i64::MIN, "-999999999999999"),
            (0, "0"),
        ] {
            let told = Member {
                ttl: Some(ttl),
                ..member(Handling::Hit)
            };
            assert_eq!(told.serialize(), format!("millpond;hit;ttl={expected}"));
        }
    }

    #[test]
    fn every_word_is_a_token() {
        for why in [
            Forward::Bypass,
            Forward::Method,
            Forward::UriMiss,
            Forward::VaryMiss,
            Forward::Miss,
            Forward::Request,
            Forward::Stale,
            Forward::Partial,
        ] {
            assert!(TokenRef::from_str(why.as_str()).is_ok());
        }
    }
}
