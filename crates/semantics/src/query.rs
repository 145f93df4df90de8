//! The query of a URI as its arguments (RFC 3986 §3.4, §6.2.2; the form coding of the WHATWG URL
//! standard).
//!
//! [`arguments`] splits a query at its ampersands. [`Argument::name`] is what an application reads
//! as the name: escapes are taken back and `+` is a space. [`Argument::write`] writes the argument
//! so that two spellings that RFC 3986 calls equivalent become one: escapes have capital digits,
//! and what needs no escape has none.
//!
//! What it does not do: a semicolon separates nothing here; [`Argument::has_semicolon`] tells of
//! one, because some applications split there. An argument with a percent sign without two digits
//! is written as it is: applications differ in how they read it.

use std::borrow::Cow;

use crate::byte_set::ByteSet;
use crate::uri::hex_value;

/// RFC 3986 §2.3: an escape of one of these means the same as the byte itself.
const UNRESERVED: ByteSet = ByteSet::ALPHANUMERIC.with(b"-._~");

/// One argument of a query, as it was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Argument<'q>(&'q [u8]);

/// The arguments of a query, in order; empty ones do not exist.
pub fn arguments(query: &[u8]) -> impl Iterator<Item = Argument<'_>> {
    query
        .split(|byte| *byte == b'&')
        .filter(|argument| !argument.is_empty())
        .map(Argument)
}

impl<'q> Argument<'q> {
    /// The name as an application reads it; allocates only if something was escaped.
    #[must_use]
    pub fn name(self) -> Cow<'q, [u8]> {
        let end = self.0.iter().position(|byte| *byte == b'=');
        decode(self.0.get(..end.unwrap_or(self.0.len())).unwrap_or(self.0))
    }

    /// The value as it was written; none without `=`.
    #[must_use]
    pub fn value(self) -> Option<&'q [u8]> {
        let end = self.0.iter().position(|byte| *byte == b'=')?;
        self.0.get(end + 1..)
    }

    /// The argument as it was written.
    #[must_use]
    pub fn as_written(self) -> &'q [u8] {
        self.0
    }

    /// Group of names between which an application may depend on the order: arguments of one group
    /// must not change places.
    ///
    /// Names are of one group if they differ only in case, or in what follows a bracket, or in
    /// spaces, dots and underscores: PHP makes one variable of those, ASP.NET of the first.
    #[must_use]
    pub fn group(self) -> Vec<u8> {
        let name = self.name();
        let stem = name.split(|byte| *byte == b'[').next().unwrap_or_default();
        stem.iter()
            .map(|byte| match byte {
                b' ' | b'.' => b'_',
                byte => byte.to_ascii_lowercase(),
            })
            .collect()
    }

    /// True if there is a semicolon that was not escaped.
    #[must_use]
    pub fn has_semicolon(self) -> bool {
        self.0.contains(&b';')
    }

    /// Appends the argument in its one spelling; never longer than it is.
    pub fn write(self, out: &mut Vec<u8>) {
        let mut rest = self.0;
        if !is_well_escaped(rest) {
            return out.extend_from_slice(rest);
        }
        while let [byte, after @ ..] = rest {
            rest = match escape(rest) {
                Some((decoded, after)) => {
                    if UNRESERVED.contains(decoded) {
                        out.push(decoded);
                    } else {
                        let written = rest.get(..3).unwrap_or_default();
                        out.extend(written.iter().map(u8::to_ascii_uppercase));
                    }
                    after
                }
                None => {
                    out.push(*byte);
                    after
                }
            };
        }
    }
}

/// The text of a name or value, by the form coding.
#[must_use]
pub fn decode(text: &[u8]) -> Cow<'_, [u8]> {
    if !text.iter().any(|byte| matches!(byte, b'%' | b'+')) {
        return Cow::Borrowed(text);
    }
    let mut decoded = Vec::with_capacity(text.len());
    let mut rest = text;
    while let [byte, after @ ..] = rest {
        let (byte, after) = escape(rest).unwrap_or((*byte, after));
        let is_plus = byte == b'+' && rest.first() == Some(&b'+');
        decoded.push(if is_plus { b' ' } else { byte });
        rest = after;
    }
    Cow::Owned(decoded)
}

/// True if two digits follow each percent sign.
fn is_well_escaped(mut text: &[u8]) -> bool {
    while let Some(at) = memchr::memchr(b'%', text) {
        match text.get(at..).and_then(escape) {
            Some((_, after)) => text = after,
            None => return false,
        }
    }
    true
}

/// The byte that an escape at the beginning of `text` stands for, and what follows it.
fn escape(text: &[u8]) -> Option<(u8, &[u8])> {
    match text {
        [b'%', high, low, after @ ..] => {
            let byte = hex_value(*high)? << 4 | hex_value(*low)?;
            Some((byte, after))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(query: &str) -> Vec<String> {
        let written = arguments(query.as_bytes()).map(|argument| {
            let mut out = Vec::new();
            argument.write(&mut out);
            String::from_utf8(out).expect("text in, text out")
        });
        written.collect()
    }

    #[test]
    fn arguments_stand_between_ampersands() {
        let cases: [(&str, &[&str]); 5] = [
            ("", &[]),
            ("&&", &[]),
            ("a=1&b&&c=", &["a=1", "b", "c="]),
            ("a=b=c&=x", &["a=b=c", "=x"]),
            ("a;b=1", &["a;b=1"]),
        ];
        for (query, expected) in cases {
            assert_eq!(written(query), expected, "{query}");
        }
    }

    #[test]
    fn equivalent_spellings_are_written_alike() {
        for (query, expected) in [
            ("%61=%7e", "a=~"),
            ("a=%2f%2F", "a=%2F%2F"),
            ("a=%2541", "a=%2541"),
            ("a=%c3%A9", "a=%C3%A9"),
            ("a=b+c%20d", "a=b+c%20d"),
            ("a=%26%3d%3B", "a=%26%3D%3B"),
            ("a=%", "a=%"),
            ("a=%4", "a=%4"),
            ("a=%zz%", "a=%zz%"),
            ("a=%%41", "a=%%41"),
            ("%61=%4", "%61=%4"),
        ] {
            assert_eq!(written(query), [expected], "{query}");
        }
    }

    #[test]
    fn names_are_what_an_application_reads() {
        for (argument, name, group) in [
            ("a=1", "a", "a"),
            ("a", "a", "a"),
            ("=1", "", ""),
            ("%75tm_source=x", "utm_source", "utm_source"),
            ("a+b=1", "a b", "a_b"),
            ("a%2Bb=1", "a+b", "a+b"),
            ("A.b=1", "A.b", "a_b"),
            ("a%5B%5d=1", "a[]", "a"),
            ("a%3D=1", "a=", "a="),
        ] {
            let argument = arguments(argument.as_bytes()).next().expect("one");
            assert_eq!(*argument.name(), *name.as_bytes(), "{argument:?}");
            assert_eq!(argument.group(), group.as_bytes(), "{argument:?}");
        }
    }

    #[test]
    fn only_plain_semicolons_are_told_of() {
        let has = |query: &str| arguments(query.as_bytes()).any(Argument::has_semicolon);
        assert!(has("a=1;b=2"));
        assert!(!has("a=1%3Bb=2"));
    }
}
