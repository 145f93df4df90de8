//! Base64 of the alphabet for URLs, without padding: `-` and `_` are its last digits.
//!
//! The digits are those of `millpond-wire`, but for two. Source: RFC 4648 §5, RFC 7515 §2.

use millpond_wire::base64;

/// Encodes, without padding.
pub(crate) fn encode(bytes: &[u8]) -> String {
    let text = base64::encode(bytes);
    let digits = text.trim_end_matches('=').chars();
    digits
        .map(|digit| match digit {
            '+' => '-',
            '/' => '_',
            other => other,
        })
        .collect()
}

/// Decodes, with or without padding; none for what is none of it.
pub fn decode(text: &[u8]) -> Option<Vec<u8>> {
    if text.iter().any(|digit| matches!(digit, b'+' | b'/')) {
        return None;
    }
    let digits: Vec<u8> = text
        .iter()
        .map(|digit| match digit {
            b'-' => b'+',
            b'_' => b'/',
            other => *other,
        })
        .collect();
    base64::decode(&digits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_digits_are_those_of_urls() {
        for (bytes, text) in [
            (&[0xfb, 0xff, 0xfe, 1][..], "-__-AQ"),
            (b"", ""),
            (b"a", "YQ"),
        ] {
            assert_eq!(encode(bytes), text);
            assert_eq!(decode(text.as_bytes()).as_deref(), Some(bytes), "{text}");
        }
        for text in ["+//+AQ", "Y", "ä"] {
            assert_eq!(decode(text.as_bytes()), None, "{text}");
        }
    }
}
