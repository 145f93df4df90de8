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

/// A host that was found to be well-formed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Host<'a> {
    /// The name, as written, without port and without a dot at the end; an IPv6 address keeps
    /// its brackets.
    pub name: &'a [u8],
    /// The port, if one was given.
    pub port: Option<u16>,
}

impl<'a> Host<'a> {
    /// Reads a host; `None` if it is not well-formed.
    #[must_use]
    pub fn parse(value: &'a [u8]) -> Option<Self> {
        let (name, rest) = match value.strip_prefix(b"[") {
            None => value.split_at_checked(count_of(value, IN_NAME)?)?,
            Some(inner) => {
                let len = count_of(inner, IN_LITERAL)?;
                if inner.get(len) != Some(&b']') {
                    return None;
                }
                value.split_at_checked(len + 2)?
            }
        };
        let port = match rest {
            [] => None,
            [b':', digits @ ..] => parse_port(digits)?,
            _ => return None,
        };
        let name = name.strip_suffix(b".").unwrap_or(name);
        (!name.is_empty()).then_some(Self { name, port })
    }

    /// The name in small letters, as a slice of `whole` if it is in small letters already.
    /// `whole` must hold the bytes that this host was parsed from.
    #[must_use]
    pub fn write_lower(&self, whole: &Bytes) -> Bytes {
        if self.name.iter().any(u8::is_ascii_uppercase) {
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
    let mut port: u16 = 0;
    for byte in digits {
        if !byte.is_ascii_digit() {
            return None;
        }
        port = port.checked_mul(10)?.checked_add(u16::from(*byte - b'0'))?;
    }
    Some((port > 0).then_some(port))
}

/// Flags of bytes that may stand in a name, and in brackets (RFC 3986 §3.2.2).
const IN_NAME: u8 = 1;
const IN_LITERAL: u8 = 2;

const CLASSES: [u8; 256] = build_classes();

const fn build_classes() -> [u8; 256] {
    let mut classes = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        classes[byte] = match byte as u8 {
            b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z' => IN_NAME | IN_LITERAL,
            // Unreserved and sub-delims.
            b'-' | b'.' | b'_' | b'~' => IN_NAME | IN_LITERAL,
            b'!' | b'$' | b'&' | b'\'' | b'(' | b')' | b'*' | b'+' | b',' | b';' | b'=' => {
                IN_NAME | IN_LITERAL
            }
            b'%' => IN_NAME,
            b':' => IN_LITERAL,
            _ => 0,
        };
        byte += 1;
    }
    classes
}

/// How many bytes at the begin have the flag; `None` if a dot follows another there.
fn count_of(text: &[u8], flag: u8) -> Option<usize> {
    let mut before = 0;
    for (at, byte) in text.iter().enumerate() {
        if CLASSES[usize::from(*byte)] & flag == 0 {
            return Some(at);
        }
        if *byte == b'.' && before == b'.' {
            return None;
        }
        before = *byte;
    }
    Some(text.len())
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
