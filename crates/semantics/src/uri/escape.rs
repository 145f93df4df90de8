//! Escaping bytes for a place, and taking escapes back (RFC 3986 §2.1).
//!
//! Each place has the set of bytes that it does not need to have escaped; the sets are nginx's.
//!
//! Unescaping is tolerant as in nginx: a percent sign before something else than a hexadecimal
//! digit is dropped, one digit before something else is dropped with both, and an escape that the
//! end cuts off is dropped.

use std::borrow::Cow;

use super::hex_value;
use crate::byte_set::ByteSet;

const HEX_DIGITS: [u8; 16] = *b"0123456789ABCDEF";

/// RFC 3986 §2.3.
const UNRESERVED: ByteSet = ByteSet::ALPHANUMERIC.with(b"-._~");

/// A path: everything that a URI may hold except what would end the path.
const URI: ByteSet = UNRESERVED.with(b"!$&'()*+,/:;=@[]");

/// Bytes of arguments that stay: those of a path without `&`, `+` and `;`, which mean something in
/// arguments.
const ARGS: ByteSet = UNRESERVED.with(b"!$'()*,/:=@[]");

/// The path without quotes, but with `?`: for an attribute of HTML.
const HTML: ByteSet = UNRESERVED.with(b"!$&()*+,/:;=?@[]");

/// Bytes that stay in what already is a URI: escapes, query and fragment. In nginx `}` stays and
/// `~` does not; so here.
const REFRESH: ByteSet = ByteSet::ALPHANUMERIC.with(b"-._!#$%&()*+,/:;=?@[]}");

/// Everything but controls, spaces and percent signs.
const MEMCACHED: ByteSet = ByteSet::EMPTY.with_range(0x21, 0x24).with_range(0x26, 0xff);

/// Place that bytes are escaped for; the names are nginx's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EscapeKind {
    /// A path.
    Uri,
    /// An argument in a query.
    Args,
    /// A part of a path or query in which nothing keeps a meaning.
    UriComponent,
    /// A URI in an attribute of HTML; see [`escape_html`] for text.
    Html,
    /// A whole URI in a Refresh or Location field.
    Refresh,
    /// A key of memcached.
    Memcached,
}

impl EscapeKind {
    /// Bytes that stay as they are.
    const fn plain(self) -> &'static ByteSet {
        match self {
            Self::Uri => &URI,
            Self::Args => &ARGS,
            Self::UriComponent => &UNRESERVED,
            Self::Html => &HTML,
            Self::Refresh => &REFRESH,
            Self::Memcached => &MEMCACHED,
        }
    }
}

/// Escapes `bytes` for a place; allocates only if something has to change.
#[must_use]
pub fn escape(bytes: &[u8], kind: EscapeKind) -> Cow<'_, [u8]> {
    if kind.plain().contains_all(bytes) {
        return Cow::Borrowed(bytes);
    }
    let mut text = Vec::with_capacity(bytes.len() + bytes.len() / 2);
    escape_into(bytes, kind, &mut text);
    Cow::Owned(text)
}

/// Escapes `bytes` for a place and appends them to `text`; at most three bytes for each.
pub fn escape_into(bytes: &[u8], kind: EscapeKind, text: &mut Vec<u8>) {
    let plain = kind.plain();
    for &byte in bytes {
        if plain.contains(byte) {
            text.push(byte);
        } else {
            text.extend_from_slice(&[b'%', hex_digit(byte >> 4), hex_digit(byte & 0x0f)]);
        }
    }
}

/// Writes `bytes` as text of HTML: `<`, `>`, `&` and `"` as entities.
#[must_use]
pub fn escape_html(bytes: &[u8]) -> Cow<'_, [u8]> {
    const MARKS: ByteSet = ByteSet::EMPTY.with(b"<>&\"");
    if !bytes.iter().any(|&byte| MARKS.contains(byte)) {
        return Cow::Borrowed(bytes);
    }
    let mut text = Vec::with_capacity(bytes.len() + 16);
    for &byte in bytes {
        match byte {
            b'<' => text.extend_from_slice(b"&lt;"),
            b'>' => text.extend_from_slice(b"&gt;"),
            b'&' => text.extend_from_slice(b"&amp;"),
            b'"' => text.extend_from_slice(b"&quot;"),
            _ => text.push(byte),
        }
    }
    Cow::Owned(text)
}

/// Takes all escapes back.
#[must_use]
pub fn unescape(text: &[u8]) -> Cow<'_, [u8]> {
    unescape_as(text, Unescape::All)
}

/// Takes the escapes of a path back; from a question mark on, escaped or not, the rest stays as it
/// is.
#[must_use]
pub fn unescape_uri(text: &[u8]) -> Cow<'_, [u8]> {
    unescape_as(text, Unescape::Uri)
}

/// Like [`unescape_uri`], but only what is harmless in a redirect is taken back: printable bytes
/// above `%`.
#[must_use]
pub fn unescape_redirect(text: &[u8]) -> Cow<'_, [u8]> {
    unescape_as(text, Unescape::Redirect)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Unescape {
    All,
    Uri,
    Redirect,
}

fn unescape_as(text: &[u8], mode: Unescape) -> Cow<'_, [u8]> {
    if memchr::memchr(b'%', text).is_none() {
        return Cow::Borrowed(text);
    }
    let ends_at_query = mode != Unescape::All;
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let [first, tail @ ..] = rest {
        rest = tail;
        if *first != b'%' {
            bytes.push(*first);
            if *first == b'?' && ends_at_query {
                break;
            }
            continue;
        }
        let byte;
        (byte, rest) = take_escape(tail);
        match byte {
            Escaped::Broken => {}
            Escaped::Literal(byte) => bytes.push(byte),
            Escaped::Byte(b'?') if ends_at_query => {
                bytes.push(b'?');
                break;
            }
            Escaped::Byte(byte) if mode == Unescape::Redirect && !(b'&'..0x7f).contains(&byte) => {
                // The digits as they came: their case is the writer's.
                bytes.push(b'%');
                bytes.extend_from_slice(tail.get(..2).unwrap_or_default());
            }
            Escaped::Byte(byte) => bytes.push(byte),
        }
    }
    bytes.extend_from_slice(rest);
    Cow::Owned(bytes)
}

/// Meaning of what stood after a percent sign.
enum Escaped {
    /// Two digits.
    Byte(u8),
    /// No digit: this byte stands for itself.
    Literal(u8),
    /// One digit and something else, or the end.
    Broken,
}

fn take_escape(text: &[u8]) -> (Escaped, &[u8]) {
    match text {
        [high, low, rest @ ..] => match (hex_value(*high), hex_value(*low)) {
            (Some(high), Some(low)) => (Escaped::Byte((high << 4) | low), rest),
            (Some(_), None) => (Escaped::Broken, rest),
            (None, _) => (Escaped::Literal(*high), text.get(1..).unwrap_or_default()),
        },
        [only] if hex_value(*only).is_none() => (Escaped::Literal(*only), b""),
        _ => (Escaped::Broken, b""),
    }
}

fn hex_digit(value: u8) -> u8 {
    HEX_DIGITS.get(usize::from(value)).copied().unwrap_or(b'0')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_place_keeps_its_own_bytes() {
        let printable: Vec<u8> = (b' '..=b'~')
            .filter(|byte| !byte.is_ascii_alphanumeric())
            .collect();
        for (kind, escaped) in [
            (EscapeKind::Uri, " \"#%<>?\\^`{|}"),
            (EscapeKind::Args, " \"#%&+;<>?\\^`{|}"),
            (EscapeKind::UriComponent, " !\"#$%&'()*+,/:;<=>?@[\\]^`{|}"),
            (EscapeKind::Html, " \"#%'<>\\^`{|}"),
            (EscapeKind::Refresh, " \"'<>\\^`{|~"),
            (EscapeKind::Memcached, " %"),
        ] {
            let changed: Vec<u8> = printable
                .iter()
                .copied()
                .filter(|&byte| escape(&[byte], kind).len() == 3)
                .collect();
            assert_eq!(String::from_utf8_lossy(&changed), escaped, "{kind:?}");
        }
    }

    #[test]
    fn controls_and_high_bytes_are_escaped_in_upper_case() {
        assert_eq!(*escape(b"/a b\0\xff", EscapeKind::Uri), *b"/a%20b%00%FF");
        assert_eq!(*escape(b"k\x1f\xff", EscapeKind::Memcached), *b"k%1F\xff");
        assert!(matches!(
            escape(b"/plain", EscapeKind::Uri),
            Cow::Borrowed(b"/plain")
        ));
    }

    #[test]
    fn html_text_has_entities() {
        assert_eq!(
            *escape_html(b"<a href=\"x\">&'"),
            *b"&lt;a href=&quot;x&quot;&gt;&amp;'"
        );
        assert!(matches!(escape_html(b"plain"), Cow::Borrowed(_)));
    }

    #[test]
    fn escapes_are_taken_back_tolerantly() {
        for (text, expected) in [
            ("", ""),
            ("plain", "plain"),
            ("%41%2f%3F%25", "A/?%"),
            ("a%zzb", "azzb"),
            ("a%4zb", "ab"),
            ("a%4", "a"),
            ("a%", "a"),
            ("a%z", "az"),
            ("%%41", "%41"),
            ("%4%41", "41"),
            ("a?%41", "a?A"),
        ] {
            assert_eq!(*unescape(text.as_bytes()), *expected.as_bytes(), "{text}");
        }
    }

    #[test]
    fn path_is_unescaped_up_to_the_query() {
        for (text, uri, redirect) in [
            ("/%41?%41", "/A?%41", "/A?%41"),
            ("/%41%3f%41", "/A?%41", "/A?%41"),
            ("/%20%25%26%7e%7f%0a", "/ %&~\x7f\n", "/%20%25&~%7f%0a"),
        ] {
            assert_eq!(*unescape_uri(text.as_bytes()), *uri.as_bytes(), "{text}");
            assert_eq!(
                *unescape_redirect(text.as_bytes()),
                *redirect.as_bytes(),
                "{text}"
            );
        }
    }

    #[test]
    fn what_was_escaped_comes_back() {
        let every_byte: Vec<u8> = (0..=255).collect();
        for kind in [
            EscapeKind::Uri,
            EscapeKind::Args,
            EscapeKind::UriComponent,
            EscapeKind::Memcached,
        ] {
            assert_eq!(*unescape(&escape(&every_byte, kind)), *every_byte);
        }
    }
}
