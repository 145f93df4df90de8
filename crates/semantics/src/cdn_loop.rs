//! CDN-Loop (RFC 8586): the list of those that a request has come through, to break circles.
//!
//! ```text
//! CDN-Loop: foo123.foocdn.example, barcdn.example; trace="abcdef", AnotherCDN
//!           └ identity               └ identity and what it adds      └ a name for itself
//! ```
//!
//! Whoever passes a request on adds itself at the end and takes nothing away (§2). A list that is
//! malformed is passed on like any other.

use crate::byte_set::ByteSet;
use crate::list;

/// §2: a host with or without a port, or a token. Brackets and colons are those of addresses.
const IDENTITY: ByteSet = ByteSet::ALPHANUMERIC.with(b"!#$%&'*+-.^_`|~[]:");

/// True if a text may name a member of the list.
#[must_use]
pub fn is_identity(text: &[u8]) -> bool {
    !text.is_empty() && IDENTITY.contains_all(text)
}

/// Number of times that a request has come through the member of this name.
#[must_use]
pub fn passages<'a>(values: impl IntoIterator<Item = &'a [u8]>, identity: &[u8]) -> usize {
    let members = values.into_iter().flat_map(list::members);
    members
        .filter(|member| {
            let name = member.split(|byte| *byte == b';').next();
            // Hosts are the same in any case (RFC 3986 §3.2.2).
            name.is_some_and(|name| list::trim_ows(name).eq_ignore_ascii_case(identity))
        })
        .count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passages_are_counted_over_all_lines() {
        let cases: [(&[&str], usize); 7] = [
            (&[], 0),
            (&["other, another"], 0),
            (&["me"], 1),
            (&["other, ME;trace=\"a, me\""], 1),
            (&["me , x", "me; a=b"], 2),
            (&["mean, not-me, me.example"], 0),
            (&[",,;me,"], 0),
        ];
        for (lines, expected) in cases {
            let lines = lines.iter().map(|line| line.as_bytes());
            assert_eq!(passages(lines, b"me"), expected);
        }
    }

    #[test]
    fn identities_are_hosts_or_tokens() {
        for good in ["cdn.example:8080", "[::1]:80", "AnotherCDN", "a_b"] {
            assert!(is_identity(good.as_bytes()), "{good}");
        }
        for bad in ["", "a b", "a,b", "a;b", "\"a\"", "h\u{f6}f", "a/b"] {
            assert!(!is_identity(bad.as_bytes()), "{bad}");
        }
    }
}
