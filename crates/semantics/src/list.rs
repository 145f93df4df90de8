//! Comma lists, quoted strings, tokens and the bytes that a field may hold (RFC 9110 §5.5, §5.6).
//!
//! A list is read as its members, in order, without the white space around them. Empty members do
//! not exist (§5.6.1.2), and a comma inside a quoted string separates nothing. A quoted string that
//! nobody closed reaches to the end of the value.
//!
//! It does not decode what the members mean; `cache_control` and others do.

use std::borrow::Cow;

use crate::byte_set::ByteSet;

/// RFC 9110 §5.6.2: the characters of a token.
const TCHAR: ByteSet = ByteSet::ALPHANUMERIC.with(b"!#$%&'*+-.^_`|~");

/// RFC 9110 §5.5: field-vchar, obs-text, space and tab.
const FIELD_VALUE: ByteSet = ByteSet::EMPTY
    .with(b"\t ")
    .with_range(0x21, 0x7e)
    .with_range(0x80, 0xff);

/// True if `bytes` is a token: at least one byte, all of them token characters.
#[must_use]
pub fn is_token(bytes: &[u8]) -> bool {
    !bytes.is_empty() && TCHAR.contains_all(bytes)
}

/// True if `bytes` may be sent as a field value: no control character except tab. Empty is allowed.
#[must_use]
pub fn is_field_value(bytes: &[u8]) -> bool {
    FIELD_VALUE.contains_all(bytes)
}

/// `bytes` without the spaces and tabs around it (OWS, RFC 9110 §5.6.3).
#[must_use]
pub fn trim_ows(mut bytes: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] = bytes {
        bytes = rest;
    }
    while let [rest @ .., b' ' | b'\t'] = bytes {
        bytes = rest;
    }
    bytes
}

/// The value of a field that came in several lines, with commas between (RFC 9651 §4.2).
pub(crate) fn joined<'a>(lines: impl IntoIterator<Item = &'a [u8]>) -> Vec<u8> {
    let mut value = Vec::new();
    for line in lines {
        if !value.is_empty() {
            value.extend_from_slice(b", ");
        }
        value.extend_from_slice(line);
    }
    value
}

/// The members of one field value.
#[must_use]
pub fn members(value: &[u8]) -> Members<'_> {
    Members { rest: value }
}

/// True if one member of `value` is `token`, without regard to case (as in `Connection: close`).
#[must_use]
pub fn has_token(value: &[u8], token: &[u8]) -> bool {
    members(value).any(|member| member.eq_ignore_ascii_case(token))
}

/// Iterator over the members of a list; see [`members`].
#[derive(Clone, Debug)]
pub struct Members<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for Members<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        // Each round takes at least one byte from a non-empty rest, so the loop ends.
        while !self.rest.is_empty() {
            let end = unquoted_position(self.rest, b',').unwrap_or(self.rest.len());
            let (member, rest) = self.rest.split_at_checked(end).unwrap_or((self.rest, b""));
            self.rest = rest.get(1..).unwrap_or_default();
            let member = trim_ows(member);
            if !member.is_empty() {
                return Some(member);
            }
        }
        None
    }
}

/// Splits a member at its first `=` that is not quoted: name and value, both trimmed.
#[must_use]
pub fn name_and_value(member: &[u8]) -> (&[u8], Option<&[u8]>) {
    match unquoted_position(member, b'=').and_then(|at| member.split_at_checked(at)) {
        Some((name, value)) => (
            trim_ows(name),
            Some(trim_ows(value.get(1..).unwrap_or_default())),
        ),
        None => (trim_ows(member), None),
    }
}

/// The text of a quoted string without quotes and backslashes; what is not quoted is returned as it
/// is.
///
/// Allocates only when a backslash stands in it.
#[must_use]
pub fn unquote(value: &[u8]) -> Cow<'_, [u8]> {
    let Some(inner) = value.strip_prefix(b"\"") else {
        return Cow::Borrowed(value);
    };
    let inner = inner.strip_suffix(b"\"").unwrap_or(inner);
    if memchr::memchr(b'\\', inner).is_none() {
        return Cow::Borrowed(inner);
    }
    let mut text = Vec::with_capacity(inner.len());
    let mut bytes = inner.iter();
    while let Some(&byte) = bytes.next() {
        // RFC 9110 §5.6.4: a quoted pair stands for its second byte.
        match (byte, bytes.as_slice().first()) {
            (b'\\', Some(&escaped)) => {
                text.push(escaped);
                bytes.next();
            }
            _ => text.push(byte),
        }
    }
    Cow::Owned(text)
}

/// Position of the first `wanted` in `bytes` outside of a quoted string.
fn unquoted_position(bytes: &[u8], wanted: u8) -> Option<usize> {
    let mut quoted = false;
    let mut escaped = false;
    for (index, &byte) in bytes.iter().enumerate() {
        if escaped {
            escaped = false;
        } else if quoted && byte == b'\\' {
            escaped = true;
        } else if byte == b'"' {
            quoted = !quoted;
        } else if byte == wanted && !quoted {
            return Some(index);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_trimmed_and_empty_ones_do_not_exist() {
        let cases: [(&str, &[&str]); 8] = [
            ("", &[]),
            (" , ,", &[]),
            ("a", &["a"]),
            (" a ,\tb\t,c", &["a", "b", "c"]),
            (",a,,b,", &["a", "b"]),
            (r#"a="x,y", b"#, &[r#"a="x,y""#, "b"]),
            (r#"a="x\",y", b"#, &[r#"a="x\",y""#, "b"]),
            (r#"a="x, b"#, &[r#"a="x, b"#]),
        ];
        for (value, expected) in cases {
            let found: Vec<&[u8]> = members(value.as_bytes()).collect();
            let expected: Vec<&[u8]> = expected.iter().map(|text| text.as_bytes()).collect();
            assert_eq!(found, expected, "{value}");
        }
    }

    #[test]
    fn member_splits_at_its_first_unquoted_equals_sign() {
        assert_eq!(name_and_value(b"a"), (&b"a"[..], None));
        assert_eq!(name_and_value(b"a="), (&b"a"[..], Some(&b""[..])));
        assert_eq!(name_and_value(b"a = b=c "), (&b"a"[..], Some(&b"b=c"[..])));
    }

    #[test]
    fn quoted_string_gives_its_text() {
        for (value, text) in [
            (r#""a b""#, "a b"),
            (r#""a\"b""#, "a\"b"),
            (r#""a\\""#, "a\\"),
            (r#""open"#, "open"),
            (r#"""#, ""),
            (r#""""#, ""),
            ("token", "token"),
            ("", ""),
        ] {
            assert_eq!(*unquote(value.as_bytes()), *text.as_bytes(), "{value}");
        }
    }

    #[test]
    fn token_is_found_without_regard_to_case() {
        assert!(has_token(b"Keep-Alive, CLOSE", b"close"));
        assert!(!has_token(b"closed, notclose", b"close"));
    }

    #[test]
    fn tokens_and_field_values_are_told_from_the_rest() {
        assert!(is_token(b"X-Forwarded-For"));
        assert!(!is_token(b""));
        assert!(!is_token(b"a b"));
        assert!(!is_token(b"a\x80"));
        assert!(is_field_value(b"caf\xc3\xa9\t, x"));
        assert!(is_field_value(b""));
        for bad in [b"a\0".as_slice(), b"a\r\nb", b"\x7f"] {
            assert!(!is_field_value(bad));
        }
    }
}
