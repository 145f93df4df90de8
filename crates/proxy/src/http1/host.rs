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
    /// Whether there are capital letters in the name.
    pub has_capitals: bool,
}

impl<'a> Host<'a> {
    /// Reads a host; `None` if it is not well-formed.
    #[must_use]
    pub fn parse(value: &'a [u8]) -> Option<Self> {
        let ((name, rest), seen) = match value.strip_prefix(b"[") {
            None => {
                let (len, seen) = count_of(value, IN_NAME)?;
                (value.split_at_checked(len)?, seen)
            }
            Some(inner) => {
                let (len, seen) = count_of(inner, IN_LITERAL)?;
                if inner.get(len) != Some(&b']') {
                    return None;
                }
                (value.split_at_checked(len + 2)?, seen)
            }
        };
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
        if digit > 9 {
            return None;
        }
        port = port * 10 + u32::from(digit);
        // So it cannot overflow with the next digit.
        if port > u32::from(u16::MAX) {
            return None;
        }
    }
    // Below 2^16, as was just seen.
    Some((port > 0).then_some(port as u16))
}

/// Flags of bytes that may stand in a name, and in brackets (RFC 3986 §3.2.2).
const IN_NAME: u8 = 1;
const IN_LITERAL: u8 = 2;
/// Of which there may not be two in a row.
const DOT: u8 = 4;
const CAPITAL: u8 = 8;
/// What most bytes are.
const PLAIN: u8 = IN_NAME | IN_LITERAL;

const CLASSES: [u8; 256] = build_classes();

const fn build_classes() -> [u8; 256] {
    let mut classes = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        classes[byte] = match byte as u8 {
            b'A'..=b'Z' => PLAIN | CAPITAL,
            b'0'..=b'9' | b'a'..=b'z' => PLAIN,
            // Unreserved and sub-delims.
            b'.' => PLAIN | DOT,
            b'-' | b'_' | b'~' => PLAIN,
            b'!' | b'$' | b'&' | b'\'' | b'(' | b')' | b'*' | b'+' | b',' | b';' | b'=' => PLAIN,
            b'%' => IN_NAME,
            b':' => IN_LITERAL,
            _ => 0,
        };
        byte += 1;
    }
    classes
}

/// How many bytes at the begin have the flag, and all flags that they have; `None` if a dot follows
/// another there.
fn count_of(text: &[u8], flag: u8) -> Option<(usize, u8)> {
    let (mut seen, mut len) = (0, 0);
    for byte in text {
        let class = CLASSES[usize::from(*byte)];
        // Most bytes are the same everywhere.
        if class != PLAIN {
            if class & flag == 0 {
                break;
            }
            if class & DOT != 0 && text.get(len + 1) == Some(&b'.') {
                return None;
            }
            seen |= class;
        }
        len += 1;
    }
    Some((len, seen))
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
