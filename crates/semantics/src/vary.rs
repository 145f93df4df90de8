//! Vary: which request fields select a variant, and the bytes that tell variants apart (RFC 9111
//! §4.1).
//!
//! [`Vary::parse`] joins the Vary lines of a response into one text of names; that text is stored
//! with the entry. [`variant_material`] feeds, for a stored text and a request, what a hash must
//! cover:
//!
//! ```text
//! lower-cased name ":" value ["," value]… CR LF      for each name, in the order of the text
//! ```
//!
//! The values of Accept-Charset, Accept-Encoding and Accept-Language are fed as members, without
//! spaces and empty members, so that they match however they are spaced. Values of other fields are
//! fed as they are.
//!
//! # Differs from nginx
//! A `*` anywhere in the list counts (in nginx only when it is a whole line), and a tab separates
//! like a space.
//!
//! It does not hash, and it does not reorder: `a, b` and `b, a` are two variants.

use std::borrow::Cow;

/// The longest joined text that can be stored, as in nginx's cache files; arbitrary, but operators
/// may rely on it.
pub const MAX_VARY_LEN: usize = 128;

/// What the Vary lines of a response say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Vary<'a> {
    /// There is one variant only.
    None,
    /// `*`: no other request can be known to select this response.
    Any,
    /// More than [`MAX_VARY_LEN`] bytes of text.
    TooLong,
    /// The text of the names; see [`names`].
    Names(Cow<'a, [u8]>),
}

impl<'a> Vary<'a> {
    /// Reads all Vary lines of a response; allocates only when there are several.
    #[must_use]
    pub fn parse(values: impl IntoIterator<Item = &'a [u8]>) -> Self {
        let mut text: Cow<'a, [u8]> = Cow::Borrowed(b"");
        let mut is_first = true;
        for value in values {
            if names(value).any(|name| name == b"*") {
                return Self::Any;
            }
            if is_first {
                text = Cow::Borrowed(value);
                is_first = false;
            } else if text.len() <= MAX_VARY_LEN {
                // The bound holds the text to one value above the limit.
                let joined = text.to_mut();
                joined.extend_from_slice(b", ");
                joined.extend_from_slice(value);
            }
        }
        if text.len() > MAX_VARY_LEN {
            Self::TooLong
        } else if names(&text).next().is_none() {
            Self::None
        } else {
            Self::Names(text)
        }
    }
}

/// The names in a Vary text, as they were written.
pub fn names(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    words(text)
}

/// Feeds the bytes that tell this request's variant from others; see the module.
///
/// `lookup` gives the values of a request field, in order, and must not regard the case of the
/// name.
pub fn variant_material<'v, V>(
    text: &[u8],
    lookup: impl Fn(&[u8]) -> V,
    mut feed: impl FnMut(&[u8]),
) where
    V: IntoIterator<Item = &'v [u8]>,
{
    for name in names(text) {
        feed_lower_case(name, &mut feed);
        feed(b":");
        let is_spaced_freely = is_spaced_freely(name);
        let mut is_first = true;
        let mut feed_value = |value: &[u8]| {
            if !std::mem::take(&mut is_first) {
                feed(b",");
            }
            feed(value);
        };
        for value in lookup(name) {
            if is_spaced_freely {
                words(value).for_each(&mut feed_value);
            } else {
                feed_value(value);
            }
        }
        feed(b"\r\n");
    }
}

/// Whether a field is a list in which spaces are known to mean nothing.
fn is_spaced_freely(name: &[u8]) -> bool {
    let fields: [&[u8]; 3] = [b"accept-encoding", b"accept-language", b"accept-charset"];
    fields.iter().any(|field| name.eq_ignore_ascii_case(field))
}

fn feed_lower_case(name: &[u8], feed: &mut impl FnMut(&[u8])) {
    const PIECE: usize = 64;
    for piece in name.chunks(PIECE) {
        let mut buf = [0; PIECE];
        for (to, from) in buf.iter_mut().zip(piece) {
            *to = from.to_ascii_lowercase();
        }
        feed(buf.get(..piece.len()).unwrap_or_default());
    }
}

fn words(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split(|byte| matches!(byte, b',' | b' ' | b'\t'))
        .filter(|word| !word.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn material(text: &str, fields: &[(&str, &str)]) -> String {
        let mut fed = Vec::new();
        let lookup = |name: &[u8]| {
            let name = name.to_ascii_lowercase();
            let values = fields
                .iter()
                .filter(move |field| field.0.as_bytes() == name);
            values.map(|field| field.1.as_bytes()).collect::<Vec<_>>()
        };
        variant_material(text.as_bytes(), lookup, |bytes| {
            fed.extend_from_slice(bytes)
        });
        String::from_utf8(fed).expect("text in, text out")
    }

    #[test]
    fn lines_are_joined_and_asterisk_wins() {
        let names = |text: &'static str| Vary::Names(Cow::Borrowed(text.as_bytes()));
        let cases: [(&[&str], Vary<'_>); 8] = [
            (&[], Vary::None),
            (&[" , "], Vary::None),
            (&["*"], Vary::Any),
            (&["Accept", "a, *"], Vary::Any),
            (&["Accept"], names("Accept")),
            (&["Accept", "Foo"], names("Accept, Foo")),
            (&[",, Accept-encoding , ,"], names(",, Accept-encoding , ,")),
            (&["X-*"], names("X-*")),
        ];
        for (values, expected) in cases {
            let parsed = Vary::parse(values.iter().map(|value| value.as_bytes()));
            assert_eq!(parsed, expected, "{values:?}");
        }
    }

    #[test]
    fn text_above_the_limit_is_too_long() {
        let fitting = vec![b'a'; MAX_VARY_LEN];
        assert_eq!(
            Vary::parse([&fitting[..]]),
            Vary::Names(Cow::Borrowed(&fitting))
        );
        assert_eq!(Vary::parse([&fitting[..], b"b"]), Vary::TooLong);
        assert_eq!(Vary::parse([&[b'a'; MAX_VARY_LEN + 1][..]]), Vary::TooLong);
    }

    #[test]
    fn accept_fields_match_however_they_are_spaced() {
        let expected = "accept-encoding:foo,bar\r\n";
        for value in ["foo, bar", "foo,bar", "foo,,  ,bar , "] {
            assert_eq!(
                material("Accept-Encoding", &[("accept-encoding", value)]),
                expected,
                "{value}"
            );
        }
        let lines = [("accept-encoding", "foo"), ("accept-encoding", " bar")];
        assert_eq!(material("accept-encoding", &lines), expected);
        assert_eq!(
            material("Accept-Encoding", &[("accept-encoding", "foobar")]),
            "accept-encoding:foobar\r\n"
        );
    }

    #[test]
    fn other_fields_count_byte_by_byte() {
        assert_eq!(
            material("X, Y", &[("x", "a, b"), ("x", "c")]),
            "x:a, b,c\r\ny:\r\n"
        );
    }

    #[test]
    fn long_names_are_lower_cased_whole() {
        let name = "A".repeat(200);
        assert_eq!(material(&name, &[]), format!("{}:\r\n", "a".repeat(200)));
    }
}
