//! Vary: which request fields select a variant, and the bytes that tell variants apart (RFC 9111
//! §4.1).
//!
//! [`Vary::parse`] joins the Vary lines of a response into one text of names; that text is stored
//! with the entry. [`variant_material`] writes, for a stored text and a request, what two requests
//! must have alike to be answered by the same variant. For each name, in the order of the text:
//!
//! | size | meaning |
//! |---|---|
//! | 4 | length of the name, little-endian |
//! | | the name, in small letters |
//! | 1 | 1 if the request has the field, else 0 and nothing follows |
//! | 4 | length of the value |
//! | | the value, lines joined with `, ` |
//!
//! so that no name or value runs into the next. Values are written in one [`Spelling`]:
//!
//! | field | as in nginx | by the RFC |
//! |---|---|---|
//! | Accept-Encoding | the codings that may come, see [`preference`] | the same |
//! | Accept-Language | its members, without spaces and empty ones | sorted, see [`preference`] |
//! | Accept-Charset | its members, without spaces and empty ones | the same |
//! | fields that are no lists | as it is | as it is |
//! | an empty field | as if it were absent | not as if it were absent |
//! | others | as it is | its members, without spaces around them and without empty ones |
//!
//! # Differs from nginx
//! A `*` anywhere in the list counts (in nginx only when it is a whole line), and a tab separates
//! like a space. Accept-Encoding is reduced to what makes a difference; in nginx each order of the
//! codings is a variant.
//!
//! It does not hash, and it does not reorder names: `a, b` and `b, a` are two variants.

use std::borrow::Cow;

use crate::{list, preference};

/// The longest joined text that can be stored, as in nginx's cache files; arbitrary, but operators
/// may rely on it.
pub const MAX_VARY_LEN: usize = 128;

/// Meaning of the Vary lines of a response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Vary<'a> {
    /// The response has one variant only.
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

/// True if two Vary texts name the same fields, in whatever order and case.
#[must_use]
pub fn is_same_selection(one: &[u8], other: &[u8]) -> bool {
    let has = |text, name: &[u8]| names(text).any(|it| it.eq_ignore_ascii_case(name));
    names(one).all(|name| has(other, name)) && names(other).all(|name| has(one, name))
}

/// Extent to which the values of a request are brought into one spelling.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spelling {
    /// Little more than nginx does.
    AsNginx,
    /// Values are brought into one spelling as far as the meaning of the fields allows (RFC 9111
    /// §4.1).
    ByRfc,
}

/// Writes what tells this request's variant from others; see the module.
///
/// `lookup` gives the values of a request field, in order, and must not regard the case of the
/// name.
pub fn variant_material<'v, V>(
    text: &[u8],
    spelling: Spelling,
    lookup: impl Fn(&[u8]) -> V,
    out: &mut Vec<u8>,
) where
    V: IntoIterator<Item = &'v [u8]>,
{
    for name in names(text) {
        let name = name.to_ascii_lowercase();
        write_counted(out, |out| out.extend_from_slice(&name));
        let values: Vec<&[u8]> = lookup(&name).into_iter().collect();
        let is_present = match spelling {
            Spelling::AsNginx => values.iter().any(|value| !value.is_empty()),
            // RFC 9111 §4.1: an absent field matches only an absent one.
            Spelling::ByRfc => !values.is_empty(),
        };
        out.push(u8::from(is_present));
        if is_present {
            write_counted(out, |out| {
                write_value((&name, spelling), values.into_iter(), out)
            });
        }
    }
}

/// Text of what [`variant_material`] wrote, for people: `name: value` of each field, apart by `; `;
/// a field that was not there has the value `-`.
pub fn material_text(mut material: &[u8]) -> Vec<u8> {
    let mut text = Vec::new();
    while let Some(name) = take_counted(&mut material) {
        if !text.is_empty() {
            text.extend_from_slice(b"; ");
        }
        text.extend_from_slice(name);
        text.extend_from_slice(b": ");
        let Some((is_present, rest)) = material.split_first() else {
            break;
        };
        material = rest;
        let value = match is_present {
            0 => None,
            _ => take_counted(&mut material),
        };
        text.extend_from_slice(value.unwrap_or(b"-"));
    }
    text
}

fn take_counted<'m>(material: &mut &'m [u8]) -> Option<&'m [u8]> {
    let (len, rest) = material.split_first_chunk::<4>()?;
    let len = usize::try_from(u32::from_le_bytes(*len)).ok()?;
    let (part, rest) = rest.split_at_checked(len)?;
    *material = rest;
    Some(part)
}

fn write_value<'v>(
    (name, spelling): (&[u8], Spelling),
    values: impl Iterator<Item = &'v [u8]>,
    out: &mut Vec<u8>,
) {
    match (name, spelling) {
        (b"accept-encoding", _) => preference::write_codings(values, out),
        (b"accept-language", Spelling::ByRfc) => preference::write_languages(values, out),
        (b"accept-language" | b"accept-charset", _) => {
            write_joined(values.flat_map(words), b",", out);
        }
        (name, Spelling::ByRfc) if !is_singular(name) => {
            write_joined(values.flat_map(list::members), b",", out);
        }
        _ => write_joined(values, b", ", out),
    }
}

/// True if a comma in a field separates nothing.
fn is_singular(name: &[u8]) -> bool {
    let fields: [&[u8]; 6] = [
        b"authorization",
        b"cookie",
        b"host",
        b"origin",
        b"referer",
        b"user-agent",
    ];
    fields.contains(&name)
}

fn write_joined<'v>(parts: impl Iterator<Item = &'v [u8]>, separator: &[u8], out: &mut Vec<u8>) {
    for (index, part) in parts.enumerate() {
        if index > 0 {
            out.extend_from_slice(separator);
        }
        out.extend_from_slice(part);
    }
}

/// Writes a text with its length before it.
fn write_counted(out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    let at = out.len();
    out.extend_from_slice(&[0; 4]);
    write(out);
    let len = out.len().saturating_sub(at + 4);
    // A head of four gigabytes is beyond every limit on heads; its length would still tell it
    // from all shorter ones.
    let len = u32::try_from(len).unwrap_or(u32::MAX);
    if let Some(place) = out.get_mut(at..at + 4) {
        place.copy_from_slice(&len.to_le_bytes());
    }
}

fn words(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split(|byte| matches!(byte, b',' | b' ' | b'\t'))
        .filter(|word| !word.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The material of a request, with lengths as numbers in brackets and `-` for what is absent.
    fn material(text: &str, fields: &[(&str, &str)]) -> String {
        spelled(text, Spelling::AsNginx, fields)
    }

    fn spelled(text: &str, spelling: Spelling, fields: &[(&str, &str)]) -> String {
        let mut material = Vec::new();
        let lookup = |name: &[u8]| {
            let name = name.to_ascii_lowercase();
            let values = fields
                .iter()
                .filter(move |field| field.0.as_bytes() == name);
            values.map(|field| field.1.as_bytes()).collect::<Vec<_>>()
        };
        variant_material(text.as_bytes(), spelling, lookup, &mut material);
        let mut rest = &material[..];
        let mut shown = String::new();
        let counted = |rest: &mut &[u8]| {
            let (len, after) = rest.split_first_chunk::<4>().unwrap();
            let (text, after) = after.split_at(u32::from_le_bytes(*len) as usize);
            *rest = after;
            format!("[{}]{}", text.len(), String::from_utf8_lossy(text))
        };
        while !rest.is_empty() {
            shown.push_str(&counted(&mut rest));
            let (&is_present, after) = rest.split_first().unwrap();
            rest = after;
            match is_present {
                0 => shown.push('-'),
                _ => shown.push_str(&counted(&mut rest)),
            }
        }
        shown
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
    fn texts_with_the_same_names_select_alike() {
        for (one, other, expected) in [
            ("", "", true),
            ("Accept", "accept", true),
            ("Accept, Foo", "foo,ACCEPT, foo", true),
            ("Accept", "", false),
            ("Accept", "Accept-Encoding", false),
            ("Accept", "Accept, Foo", false),
        ] {
            let is_same = is_same_selection(one.as_bytes(), other.as_bytes());
            assert_eq!(is_same, expected, "{one} / {other}");
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
        let expected = "[15]accept-encoding[7]bar,foo";
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
            "[15]accept-encoding[6]foobar"
        );
    }

    #[test]
    fn other_fields_count_byte_by_byte() {
        assert_eq!(
            material("X, Y", &[("x", "a, b"), ("x", "c")]),
            "[1]x[7]a, b, c[1]y-"
        );
    }

    #[test]
    fn languages_are_sorted_by_the_rfc_only() {
        for (spelling, expected) in [
            (Spelling::AsNginx, "[15]accept-language[5]en,De"),
            (Spelling::ByRfc, "[15]accept-language[5]de,en"),
        ] {
            let fields = [("accept-language", "en, De")];
            assert_eq!(spelled("Accept-Language", spelling, &fields), expected);
        }
    }

    #[test]
    fn spaces_around_members_mean_nothing_by_the_rfc() {
        let by_rfc = |name, value| spelled(name, Spelling::ByRfc, &[(name, value)]);
        assert_eq!(by_rfc("foo", " 1,  2 ,"), "[3]foo[3]1,2");
        assert_eq!(by_rfc("foo", r#""1, 2", 3"#), r#"[3]foo[8]"1, 2",3"#);
        assert_eq!(
            by_rfc("user-agent", "a (b, c)"),
            "[10]user-agent[8]a (b, c)"
        );
    }

    #[test]
    fn an_absent_field_is_not_an_empty_one_by_the_rfc() {
        for (spelling, fields, expected) in [
            (Spelling::ByRfc, &[][..], "[1]x-"),
            (Spelling::ByRfc, &[("x", "")], "[1]x[0]"),
            (Spelling::AsNginx, &[], "[1]x-"),
            (Spelling::AsNginx, &[("x", "")], "[1]x-"),
            (Spelling::AsNginx, &[("x", ""), ("x", "1")], "[1]x[3], 1"),
        ] {
            assert_eq!(spelled("X", spelling, fields), expected);
        }
        let identity = [("accept-encoding", "identity")];
        let found = material("Accept-Encoding", &identity);
        assert_eq!(found, "[15]accept-encoding[0]");
    }

    #[test]
    fn names_and_values_do_not_run_into_each_other() {
        let one = material("X, Y", &[("x", "1\r\ny:2")]);
        let other = material("X, Y", &[("x", "1"), ("y", "2")]);
        assert_ne!(one, other);
        assert_ne!(material("X Y", &[]), material("XY", &[]));
    }

    #[test]
    fn long_names_are_lower_cased_whole() {
        let name = "A".repeat(200);
        assert_eq!(material(&name, &[]), format!("[200]{}-", "a".repeat(200)));
    }

    #[test]
    fn material_is_told_to_people() {
        let mut material = Vec::new();
        let lookup = |name: &[u8]| match name {
            b"accept" => vec![&b"text/html"[..]],
            _ => Vec::new(),
        };
        variant_material(b"Accept, Cookie", Spelling::AsNginx, lookup, &mut material);
        assert_eq!(material_text(&material), b"accept: text/html; cookie: -");
        for end in 0..material.len() {
            material_text(&material[..end]);
        }
        assert_eq!(material_text(&[0xff; 40]), b"");
    }
}
