//! The host and port of a request, from its Host field or from an absolute URI.
//!
//! ```text
//! host      = name [ "." ] [ ":" port ]   |   "[" literal "]" [ ":" port ]
//! name      = letters, digits, unreserved and sub-delims, "%"; no ".." inside
//! port      = digits, at most 65535; may be empty
//! ```
//!
//! 1. The name of an accepted host is not empty and holds neither a control byte, nor a space,
//!    nor a slash, nor a byte beyond ASCII.
//! 2. The dot at the end of a fully qualified name is not part of the name.
//!
//! It does not fold case (see [`Host::write_lower`]), and it does not ask whether a name exists.
//!
//! Sources: RFC 3986 §3.2.2; nginx's rules for virtual server names.

use bytes::{BufMut, Bytes, BytesMut};

use crate::seek;

/// A host that was found to be well-formed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Host<'a> {
    /// The name, as written, without port and without a dot at the end; an IPv6 address keeps
    /// its brackets.
    pub name: &'a [u8],
    /// The port, if one was given.
    pub port: Option<u16>,
    /// True if there are capital letters in the name.
    pub has_capitals: bool,
}

impl<'a> Host<'a> {
    /// Reads a host; `None` if it is not well-formed.
    #[must_use]
    pub fn parse(value: &'a [u8]) -> Option<Self> {
        let (name, rest, seen) = match value {
            [b'[', inner @ ..] => {
                let len = inner.iter().position(|byte| *byte == b']')?;
                let (name, rest) = value.split_at_checked(len + 2)?;
                (name, rest, classes_of(inner.get(..len)?) & !NOT_IN_NAME)
            }
            _ => {
                let (name, rest) = value.split_at_checked(seek::colon(value))?;
                (name, rest, classes_of(name) & !NOT_IN_LITERAL)
            }
        };
        if seen & (NOT_IN_NAME | NOT_IN_LITERAL | TWO_DOTS) != 0 {
            return None;
        }
        let port = match rest {
            [] => None,
            [b':', digits @ ..] => parse_port(digits)?,
            _ => return None,
        };
        let name = name.strip_suffix(b".").unwrap_or(name);
        let has_capitals = seen & CAPITAL != 0;
        (!name.is_empty()).then_some(Self {
            name,
            port,
            has_capitals,
        })
    }

    /// The name in small letters, as a slice of `whole` if it is in small letters already.
    /// `whole` must hold the bytes that this host was parsed from.
    #[must_use]
    pub fn write_lower(&self, whole: &Bytes) -> Bytes {
        if self.has_capitals {
            let mut lower = BytesMut::with_capacity(self.name.len());
            lower.put_slice(self.name);
            lower.make_ascii_lowercase();
            lower.freeze()
        } else {
            whole.slice_ref(self.name)
        }
    }
}

/// Reads the digits of a port; zero and nothing both mean that none was given.
fn parse_port(digits: &[u8]) -> Option<Option<u16>> {
    let mut port: u32 = 0;
    for byte in digits {
        let digit = byte.wrapping_sub(b'0');
        // So it cannot overflow with the next digit.
        if digit > 9 || port > u32::from(u16::MAX) {
            return None;
        }
        port = port * 10 + u32::from(digit);
    }
    let port = u16::try_from(port).ok()?;
    Some((port > 0).then_some(port))
}

/// Flags of bytes that may not stand in a name, and not in brackets (RFC 3986 §3.2.2).
const NOT_IN_NAME: u8 = 1;
const NOT_IN_LITERAL: u8 = 2;
const DOT: u8 = 4;
/// The flag of two dots in a row, which may not stand in a name: the bit above that of one.
const TWO_DOTS: u8 = DOT << 1;
const CAPITAL: u8 = 16;

const CLASSES: [u8; 256] = build_classes();

const fn build_classes() -> [u8; 256] {
    let mut classes = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        classes[byte] = match byte as u8 {
            b'A'..=b'Z' => CAPITAL,
            b'0'..=b'9' | b'a'..=b'z' => 0,
            // Unreserved and sub-delims.
            b'.' => DOT,
            b'-' | b'_' | b'~' => 0,
            b'!' | b'$' | b'&' | b'\'' | b'(' | b')' | b'*' | b'+' | b',' | b';' | b'=' => 0,
            b'%' => NOT_IN_LITERAL,
            b':' => NOT_IN_NAME,
            _ => NOT_IN_NAME | NOT_IN_LITERAL,
        };
        byte += 1;
    }
    classes
}

/// All flags of some bytes. There is no early end: nearly all hosts are good ones.
fn classes_of(text: &[u8]) -> u8 {
    let (mut seen, mut before) = (0, 0);
    for byte in text {
        let class = CLASSES[usize::from(*byte)];
        seen |= class | (before & class & DOT) << 1;
        before = class;
    }
    seen
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_split_into_name_and_port() {
        for (value, name, port) in [
            ("localhost", "localhost", None),
            ("localhost:8080", "localhost", Some(8080)),
            ("localhost:", "localhost", None),
            ("localhost:65535", "localhost", Some(65535)),
            ("Example.ORG.", "Example.ORG", None),
            ("example.org.:80", "example.org", Some(80)),
            (".example.org", ".example.org", None),
            ("under_score", "under_score", None),
            ("[::1]", "[::1]", None),
            ("[::1]:80", "[::1]", Some(80)),
            ("a%20b", "a%20b", None),
        ] {
            let host = Host::parse(value.as_bytes()).expect(value);
            assert_eq!(host.name, name.as_bytes());
            assert_eq!(host.port, port);
        }
    }

    #[test]
    fn malformed_hosts_are_refused() {
        for value in [
            "", ".", ":80", "a..b", "a b", "a/b", "a@b", "a:b", "a:65536", "a:80x", "[::1",
            "[::1]x", "a]", "\u{fc}", "a\0b", "a\tb", "[a/b]", "a:80:80", "a#b", "a?b", "a\\b",
        ] {
            assert_eq!(Host::parse(value.as_bytes()), None, "{value:?}");
        }
    }

    #[test]
    fn only_capital_letters_cost_a_copy() {
        let whole = Bytes::from_static(b"a.b:80");
        let host = Host::parse(&whole).expect("good");
        assert_eq!(host.write_lower(&whole).as_ptr(), whole.as_ptr());
        let whole = Bytes::from_static(b"A.b");
        let host = Host::parse(&whole).expect("good");
        assert_eq!(host.write_lower(&whole), "a.b");
    }
}
