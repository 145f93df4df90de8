//! Base64 of the ordinary alphabet: `+` and `/` are its last digits.
//!
//! Encoded text is padded with `=`; text to be decoded may be.
//!
//! Source: RFC 4648 §4.

/// Decodes, with or without padding; none for what is no Base64.
#[must_use]
pub fn decode(text: &[u8]) -> Option<Vec<u8>> {
    let end = text
        .iter()
        .position(|byte| *byte == b'=')
        .unwrap_or(text.len());
    let (digits, padding) = text.split_at_checked(end)?;
    let is_padding = padding.len() <= 2 && padding.iter().all(|byte| *byte == b'=');
    // One digit alone holds no byte.
    if !is_padding || digits.len() % 4 == 1 {
        return None;
    }
    let mut bytes = Vec::with_capacity(digits.len() / 4 * 3 + 2);
    for group in digits.chunks(4) {
        let mut bits = 0u32;
        for digit in group {
            bits = bits << 6 | u32::from(value_of(*digit)?);
        }
        bits <<= 6 * (4 - group.len());
        let [_, a, b, c] = bits.to_be_bytes();
        bytes.extend([a, b, c].into_iter().take(group.len().saturating_sub(1)));
    }
    Some(bytes)
}

/// Encodes, with padding.
#[must_use]
pub fn encode(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let byte = |index: usize| u32::from(group.get(index).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for index in 0..4 {
            let digit = (bits >> (18 - 6 * index)) & 63;
            let digit = DIGITS.get(digit as usize).filter(|_| index <= group.len());
            text.push(digit.map_or('=', |digit| char::from(*digit)));
        }
    }
    text
}

fn value_of(digit: u8) -> Option<u8> {
    match digit {
        b'A'..=b'Z' => Some(digit - b'A'),
        b'a'..=b'z' => Some(digit - b'a' + 26),
        b'0'..=b'9' => Some(digit - b'0' + 52),
        b'+' => Some(62),
        b'/' => Some(63),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_those_of_the_rfc() {
        for (bytes, expected) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("foobar", "Zm9vYmFy"),
        ] {
            assert_eq!(encode(bytes.as_bytes()), expected);
        }
    }

    #[test]
    fn what_was_encoded_is_decoded() {
        for text in ["", "A", "AB", "ABC", "user:pass", "\u{7f}\0\u{3ff}"] {
            let encoded = encode(text.as_bytes());
            assert_eq!(encoded.len() % 4, 0, "{text}");
            assert_eq!(decode(encoded.as_bytes()).as_deref(), Some(text.as_bytes()));
        }
        assert_eq!(encode(b"\xfb\xef\xbe\xff"), "++++/w==");
    }

    #[test]
    fn text_is_decoded_with_and_without_padding() {
        for (text, expected) in [
            ("", Some("")),
            ("QQ==", Some("A")),
            ("QQ", Some("A")),
            ("QUI=", Some("AB")),
            ("QUJD", Some("ABC")),
            ("dXNlcjpwYXNz", Some("user:pass")),
            ("Q", None),
            ("QQ===", None),
            ("Q=Q=", None),
            ("Q Q=", None),
            ("Q-__", None),
        ] {
            let found = decode(text.as_bytes());
            assert_eq!(found.as_deref(), expected.map(str::as_bytes), "{text}");
        }
    }
}
