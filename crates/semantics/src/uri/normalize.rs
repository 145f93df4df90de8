//! The path that a request means: unescaped, without `.` and `..`, with slashes merged (RFC 3986
//! §6.2.2).
//!
//! A path is read byte by byte, escapes first decoded, so that an escaped dot or slash counts as
//! one; `%25`, `%23` and `%3f` are plain text wherever they stand.
//!
//! ```text
//!   Text ──"/"──► Slash ──"."──► Dot ──"."──► DotDot
//!     ▲             │ other       │ other       │ other
//!     └─────────────┴─────────────┴─────────────┘
//!   Dot    then "/" or end: the dot is dropped
//!   DotDot then "/" or end: the segment before is dropped; none left is an error
//! ```
//!
//! Invariants:
//! 1. The result begins with a slash, holds no NUL, and no segment of it is `.` or `..`.
//! 2. It is not longer than the input; a path that is already normal is returned as it is, without
//!    copying.

use std::borrow::Cow;

use super::{UriError, hex_value, unescape};

/// nginx's `merge_slashes`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MergeSlashes {
    /// Several slashes in a row are one.
    On,
    /// Slashes stay.
    Off,
}

/// State of normalizing: what the last bytes of the result are.
#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Text,
    Slash,
    Dot,
    DotDot,
}

/// Normalizes a path; a literal `?` or `#` ends it.
///
/// # Errors
/// The request is to be answered with 400.
pub fn normalize(path: &[u8], merge: MergeSlashes) -> Result<Cow<'_, [u8]>, UriError> {
    let end = memchr::memchr2(b'?', b'#', path).unwrap_or(path.len());
    let path = path.get(..end).unwrap_or(path);
    match path {
        [] => return Err(UriError::Empty),
        [b'/', ..] => {}
        _ => return Err(UriError::NotAbsolute),
    }
    if is_normal(path) {
        return Ok(Cow::Borrowed(path));
    }
    let mut normal = Vec::with_capacity(path.len());
    let mut state = State::Text;
    let mut rest = path;
    while let [first, tail @ ..] = rest {
        let byte;
        (byte, rest) = if *first == b'%' {
            decode(tail)?
        } else {
            (*first, tail)
        };
        let is_escaped_mark = *first == b'%' && matches!(byte, b'%' | b'#' | b'?');
        state = if is_escaped_mark {
            push(&mut normal, byte, State::Text)
        } else {
            apply(&mut normal, state, byte, merge)?
        };
    }
    match state {
        State::Text | State::Slash => {}
        State::Dot => normal.truncate(normal.len().saturating_sub(1)),
        State::DotDot => drop_segment(&mut normal)?,
    }
    Ok(Cow::Owned(normal))
}

/// True if nothing in `path` needs a change. A slash before a slash or a dot is looked at closely
/// elsewhere.
fn is_normal(path: &[u8]) -> bool {
    let mut before = 0;
    for &byte in path {
        if matches!((before, byte), (_, b'%' | 0) | (b'/', b'/' | b'.')) {
            return false;
        }
        before = byte;
    }
    true
}

/// The byte of an escape, after its percent sign, and what follows.
fn decode(text: &[u8]) -> Result<(u8, &[u8]), UriError> {
    let [high, low, rest @ ..] = text else {
        return Err(UriError::InvalidEscape);
    };
    match (hex_value(*high), hex_value(*low)) {
        (Some(high), Some(low)) => Ok(((high << 4) | low, rest)),
        _ => Err(UriError::InvalidEscape),
    }
}

fn apply(
    normal: &mut Vec<u8>,
    state: State,
    byte: u8,
    merge: MergeSlashes,
) -> Result<State, UriError> {
    Ok(match (state, byte) {
        // INVARIANT 1.
        (_, 0) => return Err(UriError::NulByte),
        (State::Text, b'/') => push(normal, byte, State::Slash),
        (State::Slash, b'/') if merge == MergeSlashes::On => State::Slash,
        (State::Slash, b'/') => push(normal, byte, State::Slash),
        (State::Slash, b'.') => push(normal, byte, State::Dot),
        (State::Dot, b'/') => {
            normal.pop();
            State::Slash
        }
        (State::Dot, b'.') => push(normal, byte, State::DotDot),
        (State::DotDot, b'/') => {
            drop_segment(normal)?;
            State::Slash
        }
        _ => push(normal, byte, State::Text),
    })
}

fn push(normal: &mut Vec<u8>, byte: u8, next: State) -> State {
    normal.push(byte);
    next
}

/// Takes `/..` and the segment before it off the end; the slash before that segment stays.
fn drop_segment(normal: &mut Vec<u8>) -> Result<(), UriError> {
    normal.truncate(normal.len().saturating_sub(b"/..".len()));
    let slash = memchr::memrchr(b'/', normal).ok_or(UriError::AboveRoot)?;
    normal.truncate(slash + 1);
    Ok(())
}

/// A URI that was named inside of a field, such as X-Accel-Redirect; see [`safe_uri`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SafeUri<'a> {
    /// Unescaped; not empty before that.
    pub path: Cow<'a, [u8]>,
    /// Query behind the question mark, as it came.
    pub query: Option<&'a [u8]>,
}

/// Splits and unescapes a URI that an upstream or a client named, without normalizing it.
///
/// # Differs from nginx
/// nginx overlooks a `/..` that a question mark follows; it is refused here.
///
/// # Errors
/// [`UriError::Unsafe`] if the path is empty, has a segment `..`, or a NUL, before or after
/// unescaping.
pub fn safe_uri(uri: &[u8]) -> Result<SafeUri<'_>, UriError> {
    let (path, query) = match memchr::memchr(b'?', uri).and_then(|end| uri.split_at_checked(end)) {
        Some((path, query)) => (path, query.get(1..)),
        None => (uri, None),
    };
    if path.is_empty() || is_suspicious(path) {
        return Err(UriError::Unsafe);
    }
    let path = unescape(path);
    if is_suspicious(&path) {
        return Err(UriError::Unsafe);
    }
    Ok(SafeUri { path, query })
}

fn is_suspicious(path: &[u8]) -> bool {
    memchr::memchr(0, path).is_some()
        || path
            .split(|&byte| byte == b'/')
            .any(|segment| segment == b"..")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn normal(path: &str, merge: MergeSlashes) -> Result<String, UriError> {
        normalize(path.as_bytes(), merge).map(|path| String::from_utf8_lossy(&path).into_owned())
    }

    #[test]
    fn dots_escapes_and_slashes_are_resolved() {
        for (path, expected) in [
            ("/", "/"),
            ("/foo/bar", "/foo/bar"),
            ("/foo/bar/.?args", "/foo/bar/"),
            ("/foo/bar/.#frag", "/foo/bar/"),
            ("/foo/bar/..?args", "/foo/"),
            ("/foo/bar/..#frag", "/foo/"),
            ("/foo/bar/.", "/foo/bar/"),
            ("/foo/bar/..", "/foo/"),
            ("/foo/./bar", "/foo/bar"),
            ("/foo/../bar", "/bar"),
            ("/foo/bar/../../baz", "/baz"),
            ("/a/b/c/../../d", "/a/d"),
            ("/foo/...", "/foo/..."),
            ("/foo/..a/.b", "/foo/..a/.b"),
            ("/foo/a..", "/foo/a.."),
            ("//", "/"),
            ("///a////b", "/a/b"),
            ("/a//../b", "/b"),
            ("/%02", "/\x02"),
            ("/%41%6a%6A", "/Ajj"),
            ("/%2e%2e/%2E/a", ""),
            ("/x/%2e%2e/%2E/a", "/a"),
            ("/a%2fb", "/a/b"),
            ("/a/%2f/b", "/a/b"),
            ("/%25%32%35", "/%25"),
            ("/a%3fb%23c", "/a?b#c"),
            ("/.%3f", "/.?"),
            ("/..%23", "/..#"),
            ("/a+b%2b", "/a+b+"),
            ("/%2", ""),
            ("/./", "/"),
            ("/.", "/"),
        ] {
            let found = normal(path, MergeSlashes::On);
            match expected {
                "" => assert!(found.is_err(), "{path}"),
                _ => assert_eq!(found.as_deref(), Ok(expected), "{path}"),
            }
        }
    }

    #[test]
    fn slashes_stay_when_they_are_not_merged() {
        for (path, expected) in [
            ("/foo//../bar", "/foo/bar"),
            ("/foo///../bar", "/foo//bar"),
            ("//", "//"),
            ("/a/%2fb", "/a//b"),
            ("//.", "//"),
            ("//..", "/"),
        ] {
            assert_eq!(
                normal(path, MergeSlashes::Off).as_deref(),
                Ok(expected),
                "{path}"
            );
        }
    }

    #[test]
    fn bad_paths_are_refused() {
        for (path, error) in [
            ("", UriError::Empty),
            ("?x", UriError::Empty),
            ("foo", UriError::NotAbsolute),
            ("/..", UriError::AboveRoot),
            ("/../a", UriError::AboveRoot),
            ("/a/../../b", UriError::AboveRoot),
            ("/%2e%2e", UriError::AboveRoot),
            ("/foo/bar%", UriError::InvalidEscape),
            ("/foo/bar%1", UriError::InvalidEscape),
            ("/%zz", UriError::InvalidEscape),
            ("/%1?a", UriError::InvalidEscape),
            ("/%00", UriError::NulByte),
            ("/a\0", UriError::NulByte),
        ] {
            assert_eq!(normal(path, MergeSlashes::On), Err(error), "{path}");
        }
    }

    #[test]
    fn normal_path_is_not_copied() {
        let path = b"/a/b.c/d+e?x=/../";
        assert!(matches!(
            normalize(path, MergeSlashes::On),
            Ok(Cow::Borrowed(b"/a/b.c/d+e"))
        ));
    }

    #[test]
    fn named_uri_is_split_and_unescaped() {
        let found = safe_uri(b"/a%20b/.c?x=..%00").expect("a safe URI");
        assert_eq!(*found.path, *b"/a b/.c");
        assert_eq!(found.query, Some(&b"x=..%00"[..]));
        assert_eq!(safe_uri(b"name").map(|uri| uri.query), Ok(None));
    }

    #[test]
    fn named_uri_that_climbs_is_unsafe() {
        for uri in [
            "",
            "?a",
            "..",
            "../a",
            "/..",
            "/../a",
            "/a/..?b",
            "/%2e%2e/a",
            "/a%00",
            "/a\0b",
            "%2e./a",
        ] {
            assert_eq!(safe_uri(uri.as_bytes()), Err(UriError::Unsafe), "{uri}");
        }
        for uri in ["/", "/a..", "/..a", "a/b", "...", "/a?/../"] {
            assert!(safe_uri(uri.as_bytes()).is_ok(), "{uri}");
        }
    }
}
