//! Accept-Encoding and Accept-Language in one spelling, so that requests that mean the same are
//! answered alike (RFC 9110 §12.4.2, §12.5.3, §12.5.4; RFC 9111 §4.1).
//!
//! [`write_codings`] reduces Accept-Encoding to the set of codings that an answer may have: sorted
//! names in small letters, without weights, joined with `,`.
//!
//! | written | becomes | why |
//! |---|---|---|
//! | `br;q=0.5, GZIP` | `br,gzip` | whichever of them an answer has, both requests take it |
//! | `x-gzip` | `gzip` | another name of it |
//! | `gzip, identity` | `gzip` | identity is acceptable unless it is refused |
//! | `gzip, br;q=0` | `gzip` | what is not listed is not acceptable anyway |
//! | `gzip, identity;q=0` | `gzip,identity;q=0` | it is refused |
//! | `gzip, deflate, br` | `br,gzip` | deflate and compress do not count beside better codings |
//!
//! The last line is no rule of HTTP: hardly any origin chooses deflate when it may choose gzip. An
//! answer in a coding that was dropped must not be shared with requests that never listed it;
//! [`covers_coding`] tells.
//!
//! [`write_languages`] sorts the ranges of Accept-Language, in small letters, with their weights in
//! one form. (Ranges of one weight have no order, RFC 9110 §12.5.4.)
//!
//! Members that are malformed are kept as they are, with a space behind that no other has.

use std::borrow::Cow;

use crate::list::{is_token, members, name_and_value, trim_ows};

/// Codings beside which the old ones do not count.
const BETTER: [&[u8]; 3] = [b"br", b"gzip", b"zstd"];

/// Codings that do not count beside better ones.
const OLD: [&[u8]; 2] = [b"compress", b"deflate"];

/// A member of a list with weights.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Preference<'v> {
    /// Name of the coding in small letters; the whole member if it is malformed.
    name: Cow<'v, [u8]>,
    /// Weight in thousandths; none if it is malformed.
    weight: Option<u16>,
}

impl<'v> Preference<'v> {
    fn of(member: &'v [u8]) -> Preference<'v> {
        let mut parts = member.split(|byte| *byte == b';').map(trim_ows);
        let name = parts.next().unwrap_or_default();
        let weight = match (parts.next(), parts.next()) {
            (None, _) => Some(1000),
            (Some(weight), None) => weight_of(weight),
            _ => None,
        };
        match weight {
            Some(_) if is_token(name) => Preference {
                name: in_small_letters(name),
                weight,
            },
            _ => Preference {
                name: Cow::Borrowed(member),
                weight: None,
            },
        }
    }
}

/// Codings that a request speaks of.
struct Codings<'v> {
    accepted: Vec<Cow<'v, [u8]>>,
    refused: Vec<Cow<'v, [u8]>>,
    malformed: Vec<Cow<'v, [u8]>>,
}

impl<'v> Codings<'v> {
    fn of(values: impl Iterator<Item = &'v [u8]>) -> Self {
        let mut codings = Codings {
            accepted: Vec::with_capacity(8),
            refused: Vec::new(),
            malformed: Vec::new(),
        };
        for member in values.flat_map(members) {
            let Preference { name, weight } = Preference::of(member);
            match weight {
                None => codings.malformed.push(name),
                Some(0) => codings.refused.push(canonical(name)),
                Some(_) => codings.accepted.push(canonical(name)),
            }
        }
        codings.reduce();
        codings
    }

    /// Drops what makes no difference.
    fn reduce(&mut self) {
        let Codings {
            accepted, refused, ..
        } = self;
        refused.retain(|name| !accepted.contains(name));
        let accepts_others = accepted.iter().any(|name| **name == *b"*");
        let refuses_others = refused.iter().any(|name| **name == *b"*");
        if !refuses_others {
            accepted.retain(|name| **name != *b"identity");
        }
        if accepted.iter().any(|name| BETTER.contains(&&**name)) {
            accepted.retain(|name| !OLD.contains(&&**name));
        }
        refused.retain(|name| match &**name {
            b"*" => true,
            b"identity" => !refuses_others,
            _ => accepts_others,
        });
    }
}

/// Writes the codings that an answer may have, for requests with an Accept-Encoding.
pub fn write_codings<'v>(values: impl Iterator<Item = &'v [u8]>, out: &mut Vec<u8>) {
    let mut codings = Codings::of(values);
    for list in [
        &mut codings.accepted,
        &mut codings.refused,
        &mut codings.malformed,
    ] {
        list.sort_unstable();
        list.dedup();
    }
    let accepted = codings.accepted.iter().map(|name| (name, &b""[..]));
    let refused = codings.refused.iter().map(|name| (name, &b";q=0"[..]));
    let malformed = codings.malformed.iter().map(|name| (name, &b" "[..]));
    for (index, (name, after)) in accepted.chain(refused).chain(malformed).enumerate() {
        if index > 0 {
            out.push(b',');
        }
        out.extend_from_slice(name);
        out.extend_from_slice(after);
    }
}

/// True if an answer in these codings may be shared by all requests whose codings are written like
/// those of `values`: it has none that was dropped.
pub fn covers_coding<'v>(values: impl Iterator<Item = &'v [u8]>, content_encoding: &[u8]) -> bool {
    let mut old = members(content_encoding)
        .map(|name| canonical(in_small_letters(name)))
        .filter(|name| OLD.contains(&&**name))
        .peekable();
    if old.peek().is_none() {
        return true;
    }
    let accepted = Codings::of(values).accepted;
    old.all(|name| accepted.contains(&name))
}

/// Writes the languages that a request asks for.
pub fn write_languages<'v>(values: impl Iterator<Item = &'v [u8]>, out: &mut Vec<u8>) {
    let mut ranges: Vec<_> = values.flat_map(members).map(Preference::of).collect();
    ranges.sort_unstable();
    ranges.dedup();
    for (index, range) in ranges.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        out.extend_from_slice(&range.name);
        match range.weight {
            Some(1000) => {}
            Some(weight) => out.extend_from_slice(format!(";q={weight}").as_bytes()),
            None => out.push(b' '),
        }
    }
}

/// RFC 9110 §8.4.1.1, §8.4.1.3: the old names mean the same.
fn canonical(name: Cow<'_, [u8]>) -> Cow<'_, [u8]> {
    match &*name {
        b"x-gzip" => Cow::Borrowed(b"gzip"),
        b"x-compress" => Cow::Borrowed(b"compress"),
        _ => name,
    }
}

fn in_small_letters(name: &[u8]) -> Cow<'_, [u8]> {
    if name.iter().any(u8::is_ascii_uppercase) {
        Cow::Owned(name.to_ascii_lowercase())
    } else {
        Cow::Borrowed(name)
    }
}

/// RFC 9110 §12.4.2: a weight in thousandths; none if it is malformed.
fn weight_of(parameter: &[u8]) -> Option<u16> {
    let (b"q" | b"Q", Some(text)) = name_and_value(parameter) else {
        return None;
    };
    let (whole, digits) = match text {
        [whole] | [whole, b'.'] => (whole, &b""[..]),
        [whole, b'.', digits @ ..] if digits.len() <= 3 => (whole, digits),
        _ => return None,
    };
    let mut weight = u16::from(whole.checked_sub(b'0').filter(|digit| *digit <= 1)?);
    for index in 0..3 {
        let digit = digits.get(index).copied().unwrap_or(b'0');
        let digit = digit.checked_sub(b'0').filter(|digit| *digit <= 9)?;
        weight = weight * 10 + u16::from(digit);
    }
    (weight <= 1000).then_some(weight)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn codings(value: &str) -> String {
        let mut out = Vec::new();
        write_codings([value.as_bytes()].into_iter(), &mut out);
        String::from_utf8(out).expect("text in, text out")
    }

    fn languages(value: &str) -> String {
        let mut out = Vec::new();
        write_languages([value.as_bytes()].into_iter(), &mut out);
        String::from_utf8(out).expect("text in, text out")
    }

    #[test]
    fn codings_are_the_set_of_those_that_may_come() {
        for (value, expected) in [
            ("gzip, deflate, br", "br,gzip"),
            ("br,gzip", "br,gzip"),
            ("br;q=1.0, gzip;q=0.8, *;q=0.1", "*,br,gzip"),
            ("GZIP ; Q=0.001", "gzip"),
            ("gzip, gzip, x-gzip", "gzip"),
            ("gzip, deflate, br, zstd", "br,gzip,zstd"),
            ("deflate", "deflate"),
            ("deflate, compress;q=0.5", "compress,deflate"),
            ("x-compress, zstd", "zstd"),
            ("foo,,  ,bar , ", "bar,foo"),
            ("", ""),
            ("identity", ""),
            ("identity;q=0.5, gzip", "gzip"),
            ("gzip, identity;q=0", "gzip,identity;q=0"),
            ("gzip;q=0", ""),
            ("gzip;q=0, br", "br"),
            ("gzip, gzip;q=0.000", "gzip"),
            ("*", "*"),
            ("*, gzip;q=0", "*,gzip;q=0"),
            ("gzip, *;q=0", "gzip,*;q=0"),
            ("gzip, *;q=0, identity;q=0, br;q=0.", "gzip,*;q=0"),
            ("identity, *;q=0", "identity,*;q=0"),
            ("gzip;q=2, br", "br,gzip;q=2 "),
            ("gzip;level=1", "gzip;level=1 "),
            ("g zip", "g zip "),
            ("gzip;q=0;x", "gzip;q=0;x "),
        ] {
            assert_eq!(codings(value), expected, "{value}");
        }
    }

    #[test]
    fn an_answer_in_a_coding_that_was_dropped_is_not_shared() {
        for (value, coding, is_shared) in [
            ("gzip, deflate", "gzip", true),
            ("gzip, deflate", "", true),
            ("gzip, deflate", "Deflate", false),
            ("gzip, deflate", "gzip, deflate", false),
            ("deflate", "deflate", true),
            ("compress", "x-compress", true),
            ("br", "gzip", true),
        ] {
            let values = [value.as_bytes()].into_iter();
            let found = covers_coding(values, coding.as_bytes());
            assert_eq!(found, is_shared, "{value}: {coding}");
        }
    }

    #[test]
    fn languages_are_sorted_with_their_weights() {
        for (value, expected) in [
            ("en, de", "de,en"),
            ("dE ,  En", "de,en"),
            ("en-US,en;q=0.50, *;q=.1", "*;q=.1 ,en;q=500,en-us"),
            ("de;q=1.000;q=1", "de;q=1.000;q=1 "),
            ("de;q=1.000", "de"),
            ("de;q=0", "de;q=0"),
        ] {
            assert_eq!(languages(value), expected, "{value}");
        }
    }

    #[test]
    fn weights_are_read_as_written_in_the_rfc() {
        for (text, expected) in [
            ("q=0", Some(0)),
            ("q=1", Some(1000)),
            ("Q=0.5", Some(500)),
            ("q=0.123", Some(123)),
            ("q=1.000", Some(1000)),
            ("q=0.", Some(0)),
            ("q=1.001", None),
            ("q=0.1234", None),
            ("q=2", None),
            ("q=", None),
            ("q", None),
            ("q=0,5", None),
            ("q=0.x", None),
            ("x=1", None),
        ] {
            assert_eq!(weight_of(text.as_bytes()), expected, "{text}");
        }
    }
}
