//! Acceptance of gzip by a client, by nginx's reading of Accept-Encoding.
//!
//! # Differs from the RFC
//! nginx looks for the word `gzip` and for nothing else: `*` and `x-gzip` do not count (RFC 9110
//! §12.5.3 would let them). A quality is read digit by digit and only its being zero matters; one
//! that is malformed or above 1 refuses gzip.
//!
//! # Differs from nginx
//! nginx takes a `gzip` right behind a `gzip` that did not count, as in `xgzipgzip`; here it does
//! not.

/// True if `value` accepts gzip.
#[must_use]
pub fn accepts_gzip(value: &[u8]) -> bool {
    // The common case: `gzip, deflate, br`.
    if value.starts_with(b"gzip,") {
        return true;
    }
    after_gzip(value).is_some_and(|rest| !is_refused(rest))
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
