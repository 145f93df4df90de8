//! Acceptance of content codings by a client: of gzip by nginx's reading of Accept-Encoding, of
//! others by RFC 9110 §12.5.3.
//!
//! # Differs from the RFC
//! nginx looks for the word `gzip` and for nothing else: `*` and `x-gzip` do not count (RFC 9110
//! §12.5.3 would let them). A quality is read digit by digit and only its being zero matters; one
//! that is malformed or above 1 refuses gzip.
//!
//! # Differs from nginx
//! nginx takes a `gzip` right behind a `gzip` that did not count, as in `xgzipgzip`; here it does
//! not.

use crate::list::{members, trim_ows};

/// A content coding (RFC 9110 §8.4.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Coding {
    /// RFC 7932.
    Brotli,
    /// RFC 8878.
    Zstd,
    /// RFC 1952.
    Gzip,
}

impl Coding {
    /// The name in fields.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Coding::Brotli => "br",
            Coding::Zstd => "zstd",
            Coding::Gzip => "gzip",
        }
    }
}

/// True if `value` accepts gzip.
#[must_use]
pub fn accepts_gzip(value: &[u8]) -> bool {
    // The common case: `gzip, deflate, br`.
    if value.starts_with(b"gzip,") {
        return true;
    }
    after_gzip(value).is_some_and(|rest| !is_refused(rest))
}

/// The quality that `value` gives a coding, in thousandths; zero if the coding is not named or
/// refused.
///
/// `*` names nothing here: a client that knows a coding beyond gzip says so.
#[must_use]
pub fn quality(value: &[u8], coding: &[u8]) -> u16 {
    let named = members(value).find_map(|member| {
        let mut parts = member.split(|byte| *byte == b';').map(trim_ows);
        let name = parts.next()?;
        name.eq_ignore_ascii_case(coding)
            .then(|| parts.next().map_or(Some(1000), weight))
    });
    named.flatten().unwrap_or(0)
}

/// A weight in thousandths; none if it is malformed (RFC 9110 §12.4.2).
fn weight(parameter: &[u8]) -> Option<u16> {
    let [b'q' | b'Q', b'=', quality @ ..] = parameter else {
        return None;
    };
    let (whole, digits) = match quality {
        [b'0'] => (0, &[][..]),
        [b'1'] => (1000, &[][..]),
        [b'0', b'.', digits @ ..] => (0, digits),
        [b'1', b'.', digits @ ..] => (1000, digits),
        _ => return None,
    };
    if digits.len() > 3 || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let places = [100, 10, 1].into_iter().zip(digits);
    let rest: u16 = places
        .map(|(place, digit)| place * u16::from(digit - b'0'))
        .sum();
    (whole + rest <= 1000).then_some(whole + rest)
}

/// Rest behind the first `gzip` that begins a member.
fn after_gzip(value: &[u8]) -> Option<&[u8]> {
    const WORD: &[u8] = b"gzip";
    let mut from = 0;
    loop {
        let found = value
            .get(from..)?
            .windows(WORD.len())
            .position(|window| window.eq_ignore_ascii_case(WORD))?;
        let start = from + found;
        from = start + WORD.len();
        let before = start.checked_sub(1).and_then(|index| value.get(index));
        if matches!(before, None | Some(b',' | b' ')) {
            return value.get(from..);
        }
    }
}

/// True if the rest behind the word takes it back: another word, or a quality of zero.
fn is_refused(rest: &[u8]) -> bool {
    match skip_spaces(rest) {
        [] | [b',', ..] => false,
        [b';', parameter @ ..] => match skip_spaces(parameter) {
            [] => false,
            [b'q' | b'Q', b'=', quality @ ..] => !is_positive_quality(quality),
            _ => true,
        },
        _ => true,
    }
}

/// True if a quality is well formed, above zero and at most one.
fn is_positive_quality(text: &[u8]) -> bool {
    let end = text
        .iter()
        .position(|byte| matches!(byte, b',' | b' '))
        .unwrap_or(text.len());
    match text.get(..end) {
        Some(b"1" | b"1.") => true,
        Some([b'1', b'.', digits @ ..]) => {
            digits.len() <= 3 && digits.iter().all(|&byte| byte == b'0')
        }
        Some([b'0', b'.', digits @ ..]) => {
            digits.len() <= 3
                && digits.iter().all(u8::is_ascii_digit)
                && digits.iter().any(|&byte| byte != b'0')
        }
        _ => false,
    }
}

fn skip_spaces(mut text: &[u8]) -> &[u8] {
    while let [b' ', rest @ ..] = text {
        text = rest;
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gzip_is_accepted_when_it_is_named_and_not_refused() {
        for value in [
            "gzip",
            "gzip,deflate",
            "GZip",
            "deflate, gzip",
            "deflate,gzip;q=0.5, br",
            "gzip;q=1",
            "gzip;q=1.",
            "gzip;q=1.000",
            "gzip;q=0.001",
            "gzip ; Q=0.1",
            "gzip;",
            "x-gzip, gzip",
        ] {
            assert!(accepts_gzip(value.as_bytes()), "{value}");
        }
    }

    #[test]
    fn quality_of_a_coding_is_that_of_its_member() {
        for (value, expected) in [
            ("br", 1000),
            ("gzip, deflate, br, zstd", 1000),
            ("gzip;q=1.0, BR;q=0.5", 500),
            ("br ; q=0.125", 125),
            ("br;Q=1.000", 1000),
            ("br;q=0.1, br", 100),
            ("br;q=0", 0),
            ("br;q=0.000", 0),
            ("br;q=1.001", 0),
            ("br;q=0.1234", 0),
            ("br;q=.5", 0),
            ("br;level=1", 0),
            ("br;q=", 0),
            ("x-br, brr", 0),
            ("*", 0),
            ("", 0),
        ] {
            assert_eq!(quality(value.as_bytes(), b"br"), expected, "{value}");
        }
    }

    #[test]
    fn gzip_is_refused_otherwise() {
        for value in [
            "",
            "gzi",
            "*",
            "br, *",
            "x-gzip",
            "gzipped",
            "xgzipgzip",
            "gzip;q=0",
            "gzip;q=0.",
            "gzip;q=0.000",
            "gzip;q=1.001",
            "gzip;q=2",
            "gzip;q=0.0001",
            "gzip;q=0.x",
            "gzip;q",
            "gzip;q=",
            "gzip;level=1",
            "gzip;q=0, gzip",
        ] {
            assert!(!accepts_gzip(value.as_bytes()), "{value}");
        }
    }
}
