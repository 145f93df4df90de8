//! The target of a request in its four forms (RFC 9112 §3.2).
//!
//! # Differs from the RFC
//! As in nginx: a fragment is tolerated and is no part of path or query; the host of an absolute
//! target has only letters, digits, dots and hyphens, or is a literal in brackets, and there is no
//! user information. nginx answers asterisk-form with 400 and takes authority-form for CONNECT
//! alone; that is for the caller.

use super::UriError;
use crate::byte_set::ByteSet;

const SCHEME: ByteSet = ByteSet::ALPHANUMERIC.with(b"+-.");
const HOST_NAME: ByteSet = ByteSet::ALPHANUMERIC.with(b".-");
const HOST_LITERAL: ByteSet = ByteSet::ALPHANUMERIC.with(b":-._~!$&'()*+,;=");
const DIGITS: ByteSet = ByteSet::EMPTY.with_range(b'0', b'9');

/// Bytes that end or break a request line.
const FORBIDDEN: ByteSet = ByteSet::EMPTY.with_range(0, b' ').with(b"\x7f");

/// The target of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target<'a> {
    /// `/path?query`.
    Origin(PathAndQuery<'a>),
    /// `http://host:port/path?query`.
    Absolute {
        /// Without the colon, as written.
        scheme: &'a [u8],
        /// Host and port, not empty, as written; hand it to `host::validate_host`.
        authority: &'a [u8],
        /// What follows the authority.
        path_and_query: PathAndQuery<'a>,
    },
    /// `host:port`, of CONNECT.
    Authority(&'a [u8]),
    /// `*`, of OPTIONS.
    Asterisk,
}

impl<'a> Target<'a> {
    /// Path and query, of the forms that have them.
    #[must_use]
    pub fn path_and_query(&self) -> Option<PathAndQuery<'a>> {
        match *self {
            Self::Origin(path_and_query) | Self::Absolute { path_and_query, .. } => {
                Some(path_and_query)
            }
            Self::Authority(_) | Self::Asterisk => None,
        }
    }
}

/// Path and query of a target, still escaped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathAndQuery<'a> {
    /// Everything from the path on, with query and fragment, as it came; `/` if there is nothing.
    pub raw: &'a [u8],
    /// The path; `/` if there is none. To be normalized.
    pub path: &'a [u8],
    /// What follows the question mark; `Some` of nothing if nothing follows it.
    pub query: Option<&'a [u8]>,
}

/// Splits the target of a request line; no form of it may hold a space or a control character.
///
/// # Errors
/// The request is to be answered with 400.
pub fn parse_target(target: &[u8]) -> Result<Target<'_>, UriError> {
    if let Some(&byte) = target.iter().find(|&&byte| FORBIDDEN.contains(byte)) {
        return Err(UriError::InvalidByte(byte));
    }
    match target {
        [] => Err(UriError::Empty),
        b"*" => Ok(Target::Asterisk),
        [b'/', ..] => Ok(Target::Origin(split(target))),
        _ => parse_absolute(target).or_else(|error| parse_authority(target).ok_or(error)),
    }
}

fn parse_absolute(target: &[u8]) -> Result<Target<'_>, UriError> {
    let colon = memchr::memchr(b':', target).ok_or(UriError::InvalidScheme)?;
    let (scheme, rest) = target
        .split_at_checked(colon)
        .ok_or(UriError::InvalidScheme)?;
    let begins_with_letter = scheme.first().is_some_and(u8::is_ascii_alphabetic);
    if !begins_with_letter || !SCHEME.contains_all(scheme) {
        return Err(UriError::InvalidScheme);
    }
    let rest = rest.strip_prefix(b"://").ok_or(UriError::InvalidScheme)?;
    let end = rest
        .iter()
        .position(|byte| matches!(byte, b'/' | b'?'))
        .unwrap_or(rest.len());
    let (authority, rest) = rest
        .split_at_checked(end)
        .ok_or(UriError::InvalidAuthority)?;
    let (host, _) = split_authority(authority).ok_or(UriError::InvalidAuthority)?;
    if host.is_empty() {
        return Err(UriError::InvalidAuthority);
    }
    Ok(Target::Absolute {
        scheme,
        authority,
        path_and_query: split(rest),
    })
}

/// RFC 9112 §3.2.3: host and port, both of them.
fn parse_authority(target: &[u8]) -> Option<Target<'_>> {
    let (host, port) = split_authority(target)?;
    let has_both = !host.is_empty() && port.is_some_and(|port| !port.is_empty());
    has_both.then_some(Target::Authority(target))
}

/// Host and port digits of an authority; `None` if a byte may not stand there.
fn split_authority(authority: &[u8]) -> Option<(&[u8], Option<&[u8]>)> {
    let host_len = match authority {
        [b'[', ..] => memchr::memchr(b']', authority)? + 1,
        _ => memchr::memchr(b':', authority).unwrap_or(authority.len()),
    };
    let (host, after) = authority.split_at_checked(host_len)?;
    let is_valid = match host {
        [b'[', literal @ .., b']'] => HOST_LITERAL.contains_all(literal),
        name => HOST_NAME.contains_all(name),
    };
    match after {
        _ if !is_valid => None,
        [] => Some((host, None)),
        [b':', port @ ..] if DIGITS.contains_all(port) => Some((host, Some(port))),
        _ => None,
    }
}

fn split(raw: &[u8]) -> PathAndQuery<'_> {
    let (path, query) =
        match memchr::memchr2(b'?', b'#', raw).and_then(|end| raw.split_at_checked(end)) {
            Some((path, [b'?', query @ ..])) => {
                let end = memchr::memchr(b'#', query).unwrap_or(query.len());
                (path, query.get(..end))
            }
            Some((path, _)) => (path, None),
            None => (raw, None),
        };
    PathAndQuery {
        raw: or_root(raw),
        path: or_root(path),
        query,
    }
}

fn or_root(path: &[u8]) -> &[u8] {
    if path.is_empty() { b"/" } else { path }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts<'a>(raw: &'a str, path: &'a str, query: Option<&'a str>) -> PathAndQuery<'a> {
        PathAndQuery {
            raw: raw.as_bytes(),
            path: path.as_bytes(),
            query: query.map(str::as_bytes),
        }
    }

    #[test]
    fn origin_form_splits_at_question_mark_and_fragment() {
        for (target, path, query) in [
            ("/", "/", None),
            ("/foo/bar", "/foo/bar", None),
            ("/foo?a=b", "/foo", Some("a=b")),
            ("/foo?", "/foo", Some("")),
            ("/foo?a?b#c", "/foo", Some("a?b")),
            ("/foo#a?b", "/foo", None),
            ("/foo/bar/..#frag", "/foo/bar/..", None),
            ("/%3f?x", "/%3f", Some("x")),
            ("//host/path", "//host/path", None),
            ("/\u{e9}", "/\u{e9}", None),
        ] {
            let expected = Target::Origin(parts(target, path, query));
            assert_eq!(parse_target(target.as_bytes()), Ok(expected), "{target}");
        }
    }

    #[test]
    fn absolute_form_has_scheme_and_authority() {
        for (target, authority, expected) in [
            ("http://localhost", "localhost", parts("/", "/", None)),
            ("http://localhost/", "localhost", parts("/", "/", None)),
            (
                "http://localhost?args",
                "localhost",
                parts("?args", "/", Some("args")),
            ),
            (
                "http://localhost?args#frag",
                "localhost",
                parts("?args#frag", "/", Some("args")),
            ),
            (
                "http://localhost:8080",
                "localhost:8080",
                parts("/", "/", None),
            ),
            ("http://localhost:/x", "localhost:", parts("/x", "/x", None)),
            (
                "http://[::1]:8080?args",
                "[::1]:8080",
                parts("?args", "/", Some("args")),
            ),
            ("http://h/a://b", "h", parts("/a://b", "/a://b", None)),
        ] {
            let found = parse_target(target.as_bytes());
            let authority = authority.as_bytes();
            let expected = Target::Absolute {
                scheme: b"http",
                authority,
                path_and_query: expected,
            };
            assert_eq!(found, Ok(expected), "{target}");
        }
    }

    #[test]
    fn authority_and_asterisk_have_no_path() {
        assert_eq!(parse_target(b"*"), Ok(Target::Asterisk));
        for target in ["localhost:80", "[::1]:443", "127.0.0.1:8080"] {
            let expected = Target::Authority(target.as_bytes());
            assert_eq!(parse_target(target.as_bytes()), Ok(expected), "{target}");
            assert_eq!(expected.path_and_query(), None);
        }
    }

    #[test]
    fn other_targets_are_refused() {
        for (target, error) in [
            ("", UriError::Empty),
            ("/ /", UriError::InvalidByte(b' ')),
            ("/\x02", UriError::InvalidByte(2)),
            ("/\0", UriError::InvalidByte(0)),
            ("/\x7f", UriError::InvalidByte(0x7f)),
            ("foo", UriError::InvalidScheme),
            ("?x", UriError::InvalidScheme),
            ("*x", UriError::InvalidScheme),
            ("http:/localhost/", UriError::InvalidScheme),
            ("1http://localhost/", UriError::InvalidScheme),
            ("http:///", UriError::InvalidAuthority),
            ("http://", UriError::InvalidAuthority),
            ("http://:80/", UriError::InvalidAuthority),
            ("http://user@host/", UriError::InvalidAuthority),
            ("http://ho_st/", UriError::InvalidAuthority),
            ("http://host#frag", UriError::InvalidAuthority),
            ("http://[::1/", UriError::InvalidAuthority),
            ("http://[::1]x/", UriError::InvalidAuthority),
            ("http://host:80:90/", UriError::InvalidAuthority),
            ("http://host\\/", UriError::InvalidAuthority),
            ("localhost:", UriError::InvalidScheme),
        ] {
            assert_eq!(parse_target(target.as_bytes()), Err(error), "{target}");
        }
    }
}
