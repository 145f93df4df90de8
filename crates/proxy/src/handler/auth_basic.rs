//! `auth_basic`: who the client says it is.
//!
//! The Authorization field of the Basic scheme holds a name and a password in Base64 (RFC 7617).

use crate::failure::Failure;
use crate::header::Known;
use crate::request::Request;

/// What the gate says of a request that it does not refuse.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checked {
    /// There is no such gate here.
    Off,
    /// Name and password are right.
    Passed,
}

/// Asks for name and password where a location wants them.
pub async fn check(_req: &mut Request) -> Result<Checked, Failure> {
    Ok(Checked::Off)
}

/// The name and the password of the request's Authorization field.
pub fn credentials(req: &Request) -> Option<(Vec<u8>, Vec<u8>)> {
    let field = req.field(Known::Authorization)?;
    let (scheme, rest) = field.split_at_checked(b"Basic ".len())?;
    if !scheme.eq_ignore_ascii_case(b"Basic ") {
        return None;
    }
    let decoded = decode_base64(rest.trim_ascii())?;
    let colon = memchr::memchr(b':', &decoded)?;
    let password = decoded.get(colon + 1..)?.to_vec();
    let user = decoded.get(..colon)?.to_vec();
    Some((user, password))
}

/// Decodes Base64 of the ordinary alphabet, with or without padding.
pub fn decode_base64(text: &[u8]) -> Option<Vec<u8>> {
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
            bits = bits << 6 | u32::from(base64_value(*digit)?);
        }
        bits <<= 6 * (4 - group.len());
        let [_, a, b, c] = bits.to_be_bytes();
        bytes.extend([a, b, c].into_iter().take(group.len().saturating_sub(1)));
    }
    Some(bytes)
}

fn base64_value(digit: u8) -> Option<u8> {
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
    fn base64_is_decoded_with_and_without_padding() {
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
            let found = decode_base64(text.as_bytes());
            assert_eq!(found.as_deref(), expected.map(str::as_bytes), "{text}");
        }
    }
}
