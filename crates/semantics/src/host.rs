//! The host of a request, from a Host field or an absolute target (RFC 9110 §7.2, RFC 3986 §3.2.2).
//!
//! ```text
//! name [ "." ] [ ":" port ]        letters, digits, - . _ ~ % and sub-delims
//! "[" literal "]" [ ":" port ]     the same without %, and colons
//! ```
//!
//! As in nginx, the name is lower-cased, one dot at its end is dropped, two dots in a row are
//! refused, and a colon without digits is no port. What stands in the brackets is not checked to be
//! an address.

use std::borrow::Cow;
use std::fmt;
use std::net::Ipv4Addr;

use crate::byte_set::ByteSet;

/// RFC 3986 §2.2 and §2.3: unreserved and sub-delims, without the dot, which is watched apart.
const LITERAL: ByteSet = ByteSet::ALPHANUMERIC.with(b"-_~!$&'()*+,;=:");
const NAME: ByteSet = ByteSet::ALPHANUMERIC.with(b"-_~!$&'()*+,;=%");

/// A host that passed [`validate_host`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host<'a> {
    /// Lower-cased, without a dot at its end, with the brackets of a literal; not empty.
    pub name: Cow<'a, [u8]>,
    /// The port if one is named; port 0 counts as none.
    pub port: Option<u16>,
    /// What the name is.
    pub kind: HostKind,
}

impl Host<'_> {
    /// Whether the name is an address and not to be resolved.
    #[must_use]
    pub fn is_ip(&self) -> bool {
        self.kind != HostKind::Name
    }
}

/// What a host's name is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostKind {
    /// To be looked up.
    Name,
    /// Four numbers.
    Ipv4,
    /// An IPv6 address or a future form, in brackets.
    Literal,
}

/// Why a host is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadHost {
    /// Nothing stands before the port.
    Empty,
    /// A byte that may not stand there.
    InvalidByte(u8),
    /// Two dots in a row.
    EmptyLabel,
    /// A bracket that is not closed.
    UnclosedLiteral,
    /// The port is not a number up to 65535.
    InvalidPort,
}

impl fmt::Display for BadHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => write!(f, "host is empty"),
            Self::InvalidByte(byte) => write!(f, "invalid byte 0x{byte:02x} in host"),
            Self::EmptyLabel => write!(f, "two dots in a row in host"),
            Self::UnclosedLiteral => write!(f, "address in host lacks \"]\""),
            Self::InvalidPort => write!(f, "port in host is not a number from 0 to 65535"),
        }
    }
}

impl std::error::Error for BadHost {}

/// Checks and splits a host; allocates only to lower its case.
///
/// # Errors
/// The request is to be answered with 400.
pub fn validate_host(value: &[u8]) -> Result<Host<'_>, BadHost> {
    let (name, after, kind) = match value {
        [b'[', ..] => {
            let close = memchr::memchr(b']', value).ok_or(BadHost::UnclosedLiteral)?;
            let (name, after) = value
                .split_at_checked(close + 1)
                .ok_or(BadHost::UnclosedLiteral)?;
            check_bytes(name.get(1..close).unwrap_or_default(), &LITERAL)?;
            (name, after, HostKind::Literal)
        }
        _ => {
            let end = memchr::memchr(b':', value).unwrap_or(value.len());
            let (name, after) = value.split_at_checked(end).unwrap_or((value, b""));
            check_bytes(name, &NAME)?;
            let name = name.strip_suffix(b".").unwrap_or(name);
            (
                name,
                after,
                if is_ipv4(name) {
                    HostKind::Ipv4
                } else {
                    HostKind::Name
                },
            )
        }
    };
    let port = match after {
        [] => None,
        [b':', digits @ ..] => parse_port(digits)?,
        [byte, ..] => return Err(BadHost::InvalidByte(*byte)),
    };
    if name.is_empty() {
        return Err(BadHost::Empty);
    }
    let name = match name.iter().any(u8::is_ascii_uppercase) {
        true => Cow::Owned(name.to_ascii_lowercase()),
        false => Cow::Borrowed(name),
    };
    Ok(Host { name, port, kind })
}

fn check_bytes(name: &[u8], allowed: &ByteSet) -> Result<(), BadHost> {
    let mut before = 0;
    for &byte in name {
        if byte == b'.' && before == b'.' {
            return Err(BadHost::EmptyLabel);
        }
        if byte != b'.' && !allowed.contains(byte) {
            return Err(BadHost::InvalidByte(byte));
        }
        before = byte;
    }
    Ok(())
}

/// Digits as a port; none at all and zero are no port.
fn parse_port(digits: &[u8]) -> Result<Option<u16>, BadHost> {
    let port = digits.iter().try_fold(0u16, |sum, byte| {
        let digit = byte.is_ascii_digit().then(|| u16::from(byte - b'0'))?;
        sum.checked_mul(10)?.checked_add(digit)
    });
    match port {
        None => Err(BadHost::InvalidPort),
        Some(0) => Ok(None),
        port => Ok(port),
    }
}

fn is_ipv4(name: &[u8]) -> bool {
    str::from_utf8(name).is_ok_and(|name| name.parse::<Ipv4Addr>().is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn good_hosts_are_lower_cased_and_split() {
        use HostKind::{Ipv4, Literal, Name};
        let future = "[v0123456789aBcDeF.!$&'()*+,;=-._~AbCdEfGhIjKlMnOpQrStUvWxYz0123456789:]";
        let future_lower = future.to_ascii_lowercase();
        for (value, name, port, kind) in [
            ("l", "l", None, Name),
            ("L", "l", None, Name),
            ("abcd-ef.g02.xyz:", "abcd-ef.g02.xyz", None, Name),
            ("abcd-ef.g02.xyz:8080", "abcd-ef.g02.xyz", Some(8080), Name),
            ("a:0", "a", None, Name),
            ("a:65535", "a", Some(65535), Name),
            ("a:000080", "a", Some(80), Name),
            ("www.abcd-ef.g02.xyz.", "www.abcd-ef.g02.xyz", None, Name),
            ("abcd-ef.g02.xyz.:88", "abcd-ef.g02.xyz", Some(88), Name),
            (
                "AbC-d93.0.34ZhGt-s.nk.Ru:88",
                "abc-d93.0.34zhgt-s.nk.ru",
                Some(88),
                Name,
            ),
            (".a", ".a", None, Name),
            ("_x.%41", "_x.%41", None, Name),
            ("123.40.56.78", "123.40.56.78", None, Ipv4),
            ("123.49.0.78:987", "123.49.0.78", Some(987), Ipv4),
            ("123.40.56.78:", "123.40.56.78", None, Ipv4),
            (
                "[abcd::ef98:0:7654:321]",
                "[abcd::ef98:0:7654:321]",
                None,
                Literal,
            ),
            (
                "[ABCD::ef98:0:7654:321]:80",
                "[abcd::ef98:0:7654:321]",
                Some(80),
                Literal,
            ),
            (
                "[::ffff:12.30.67.89]",
                "[::ffff:12.30.67.89]",
                None,
                Literal,
            ),
            (
                "[::123.45.67.89]:4321",
                "[::123.45.67.89]",
                Some(4321),
                Literal,
            ),
            (future, &future_lower, None, Literal),
        ] {
            let host = validate_host(value.as_bytes()).expect(value);
            assert_eq!(*host.name, *name.as_bytes(), "{value}");
            assert_eq!((host.port, host.kind), (port, kind), "{value}");
            assert_eq!(host.is_ip(), kind != Name);
        }
    }

    #[test]
    fn bad_hosts_are_refused_with_a_reason() {
        for (value, reason) in [
            ("", BadHost::Empty),
            (".", BadHost::Empty),
            (":80", BadHost::Empty),
            ("..", BadHost::EmptyLabel),
            ("example.com.:1.2", BadHost::InvalidPort),
            ("123.49.0.78:98777", BadHost::InvalidPort),
            ("123.40.56.78:9000:80", BadHost::InvalidPort),
            ("a:65536", BadHost::InvalidPort),
            ("example.com/\\:552", BadHost::InvalidByte(b'/')),
            ("\\e/xample.com", BadHost::InvalidByte(b'\\')),
            ("..examp-LE.com", BadHost::EmptyLabel),
            ("com.exa-m.45..:", BadHost::EmptyLabel),
            ("[abcd::e\\f98:0/:7654:321]", BadHost::InvalidByte(b'\\')),
            ("[abcd::ef98:0:7654:321].", BadHost::InvalidByte(b'.')),
            ("[abcd::ef98:0:7654:321].:98", BadHost::InvalidByte(b'.')),
            ("[ab..cd::ef98:0:7654:321]", BadHost::EmptyLabel),
            ("[::%251]", BadHost::InvalidByte(b'%')),
            (
                "extra[abcd::ef98:0:7654:321]:98",
                BadHost::InvalidByte(b'['),
            ),
            ("[abcd::ef98:0:7654:321", BadHost::UnclosedLiteral),
            ("localhost\x02", BadHost::InvalidByte(2)),
            ("a b", BadHost::InvalidByte(b' ')),
            ("user@host", BadHost::InvalidByte(b'@')),
        ] {
            assert_eq!(validate_host(value.as_bytes()), Err(reason), "{value}");
        }
    }
}
