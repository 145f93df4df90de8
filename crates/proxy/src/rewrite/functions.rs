//! Functions of bytes that lines of `computed.rs` apply: quoting, escaping, codings, digests.
//!
//! A function that cannot say anything of its input gives nothing; the request then fails.
//!
//! Source: set-misc-nginx-module 0.33, whose results are compared in `tests/tests/set_misc.rs`.

use std::io::Write as _;

use hmac::{Hmac, KeyInit as _, Mac as _};
use md5::{Digest as _, Md5};
use millpond_wire::base64;
use sha1::Sha1;
use sha2::Sha256;

/// Digits of base32 with the extended hexadecimal alphabet (RFC 4648 §7), in small letters.
const BASE32: &[u8; 32] = b"0123456789abcdefghijklmnopqrstuv";

/// Bytes that stay as they are beside letters and digits.
const PLAIN: &[u8] = b"!$'()*,-.@_`|~";

/// A string of SQL: `'it\'s'`.
pub(super) fn quote_sql(text: &[u8]) -> Vec<u8> {
    let mut out = vec![b'\''];
    for byte in text {
        match byte {
            0 => out.extend(b"\\0"),
            b'\n' => out.extend(b"\\n"),
            b'\r' => out.extend(b"\\r"),
            b'\t' => out.extend(b"\\t"),
            0x08 => out.extend(b"\\b"),
            0x1a => out.extend(b"\\Z"),
            b'\\' | b'\'' | b'"' => out.extend([b'\\', *byte]),
            _ => out.push(*byte),
        }
    }
    out.push(b'\'');
    out
}

/// A string of PostgreSQL: `E'it\'s'`; an empty one needs no escapes. In a text that is no UTF-8
/// all bytes beyond ASCII are escapes.
pub(super) fn quote_pgsql(text: &[u8]) -> Vec<u8> {
    let quoted = quote_sql(text);
    if text.is_empty() {
        return quoted;
    }
    let mut out = vec![b'E'];
    if str::from_utf8(text).is_ok() {
        out.extend(quoted);
        return out;
    }
    for byte in quoted {
        if byte.is_ascii() {
            out.push(byte);
        } else {
            // Writing to memory does not fail.
            let _ = write!(out, "\\\\{byte:03o}");
        }
    }
    out
}

/// A string of JSON; `null` for an empty one.
pub(super) fn quote_json(text: &[u8]) -> Vec<u8> {
    if text.is_empty() {
        return b"null".to_vec();
    }
    let mut out = vec![b'"'];
    for byte in text {
        match byte {
            b'\n' => out.extend(b"\\n"),
            b'\r' => out.extend(b"\\r"),
            b'\t' => out.extend(b"\\t"),
            0x08 => out.extend(b"\\b"),
            0x0c => out.extend(b"\\f"),
            b'\\' | b'"' => out.extend([b'\\', *byte]),
            0..0x20 => {
                // Writing to memory does not fail.
                let _ = write!(out, "\\u{byte:04x}");
            }
            _ => out.push(*byte),
        }
    }
    out.push(b'"');
    out
}

/// Escapes a part of a URI.
pub(super) fn escape_uri(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    for byte in text {
        if byte.is_ascii_alphanumeric() || PLAIN.contains(byte) {
            out.push(*byte);
        } else {
            // Writing to memory does not fail.
            let _ = write!(out, "%{byte:02X}");
        }
    }
    out
}

/// Undoes the escapes of a part of a query: `+` is a space, and a percent sign without two digits
/// goes.
pub(super) fn unescape_uri(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.iter();
    while let Some(byte) = bytes.next() {
        match byte {
            b'+' => out.push(b' '),
            b'%' => {
                let Some(first) = bytes.next() else { break };
                let Some(high) = digit(*first, 16) else {
                    out.push(*first);
                    continue;
                };
                let Some(second) = bytes.next() else { break };
                // nginx: what is no second digit goes, too.
                if let Some(low) = digit(*second, 16) {
                    out.push(high << 4 | low);
                }
            }
            _ => out.push(*byte),
        }
    }
    out
}

/// Base64 with padding.
pub(super) fn encode_base64(bytes: &[u8]) -> Vec<u8> {
    base64::encode(bytes).into_bytes()
}

/// Base64, with or without padding.
pub(super) fn decode_base64(text: &[u8]) -> Option<Vec<u8>> {
    base64::decode(text)
}

/// Base64 of the alphabet for URLs, without padding (RFC 4648 §5).
pub(super) fn encode_base64url(bytes: &[u8]) -> Vec<u8> {
    let text = base64::encode(bytes).into_bytes();
    let digits = text.into_iter().filter(|byte| *byte != b'=');
    let swapped = digits.map(|byte| match byte {
        b'+' => b'-',
        b'/' => b'_',
        other => other,
    });
    swapped.collect()
}

/// Base64 of the alphabet for URLs.
pub(super) fn decode_base64url(text: &[u8]) -> Option<Vec<u8>> {
    let swapped = text.iter().map(|byte| match byte {
        b'-' => b'+',
        b'_' => b'/',
        // Of the other alphabet only.
        b'+' | b'/' => b' ',
        other => *other,
    });
    base64::decode(&swapped.collect::<Vec<u8>>())
}

/// Hexadecimal digits.
pub(super) fn encode_hex(bytes: &[u8]) -> Vec<u8> {
    let digit = |value: u8| char::from_digit(u32::from(value), 16).map_or(0, |digit| digit as u8);
    let digits = bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]);
    digits.map(digit).collect()
}

/// The bytes of hexadecimal digits.
pub(super) fn decode_hex(text: &[u8]) -> Option<Vec<u8>> {
    if !text.len().is_multiple_of(2) {
        return None;
    }
    text.chunks(2)
        .map(|pair| match pair {
            [high, low] => Some(digit(*high, 16)? << 4 | digit(*low, 16)?),
            _ => None,
        })
        .collect()
}

/// Base32 with padding.
pub(super) fn encode_base32(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes.len().div_ceil(5) * 8);
    for group in bytes.chunks(5) {
        let mut whole = [0; 8];
        for (to, from) in whole.iter_mut().skip(3).zip(group) {
            *to = *from;
        }
        let bits = u64::from_be_bytes(whole);
        let digits = (group.len() * 8).div_ceil(5);
        for index in 0..8 {
            let at = (bits >> (35 - 5 * index)) & 31;
            let digit = BASE32.get(at as usize).filter(|_| index < digits);
            out.push(digit.copied().unwrap_or(b'='));
        }
    }
    out
}

/// The bytes of base32.
pub(super) fn decode_base32(text: &[u8]) -> Option<Vec<u8>> {
    let end = text.iter().rposition(|byte| *byte != b'=');
    let digits = text.get(..end.map_or(0, |end| end + 1))?;
    let mut out = Vec::with_capacity(digits.len() * 5 / 8);
    for group in digits.chunks(8) {
        let mut bits = 0u64;
        for byte in group {
            let value = digit(byte.to_ascii_lowercase(), 32)?;
            bits = bits << 5 | u64::from(value);
        }
        bits <<= 5 * (8 - group.len());
        let bytes = bits.to_be_bytes();
        out.extend(bytes.iter().skip(3).take(group.len() * 5 / 8));
    }
    Some(out)
}

/// The MD5 digest, in hexadecimal digits.
pub(super) fn md5(bytes: &[u8]) -> Vec<u8> {
    encode_hex(&Md5::digest(bytes))
}

/// The SHA-1 digest, in hexadecimal digits.
pub(super) fn sha1(bytes: &[u8]) -> Vec<u8> {
    encode_hex(&Sha1::digest(bytes))
}

/// The bytes of the HMAC with SHA-1.
pub(super) fn hmac_sha1(key: &[u8], bytes: &[u8]) -> Option<Vec<u8>> {
    let mut mac = Hmac::<Sha1>::new_from_slice(key).ok()?;
    mac.update(bytes);
    Some(mac.finalize().into_bytes().to_vec())
}

/// The bytes of the HMAC with SHA-256.
pub(super) fn hmac_sha256(key: &[u8], bytes: &[u8]) -> Option<Vec<u8>> {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).ok()?;
    mac.update(bytes);
    Some(mac.finalize().into_bytes().to_vec())
}

fn digit(byte: u8, radix: u32) -> Option<u8> {
    let value = char::from(byte).to_digit(radix)?;
    u8::try_from(value).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codings_go_there_and_back() {
        for text in ["", "h", "he", "hel", "hell", "hello", "hello ÿ", "\0\u{1}"] {
            let bytes = text.as_bytes();
            let back = decode_base32(&encode_base32(bytes));
            assert_eq!(back.as_deref(), Some(bytes), "{text}");
            let back = decode_base64url(&encode_base64url(bytes));
            assert_eq!(back.as_deref(), Some(bytes), "{text}");
            let back = decode_hex(&encode_hex(bytes));
            assert_eq!(back.as_deref(), Some(bytes), "{text}");
            assert_eq!(unescape_uri(&escape_uri(bytes)), bytes, "{text}");
        }
        assert_eq!(encode_base32(b"h"), b"d0======");
        assert_eq!(decode_hex(b"616"), None);
        assert_eq!(decode_hex(b"zz"), None);
        assert_eq!(decode_base32(b"wxyz"), None);
        assert_eq!(unescape_uri(b"a%20b+c%2Bd%zz%4"), b"a b c+dzz");
    }

    /// RFC 2202 §3, RFC 4231 §4.3.
    #[test]
    fn digests_are_those_of_the_rfcs() {
        let text = b"what do ya want for nothing?";
        let mac = hmac_sha1(b"Jefe", text).map(|mac| encode_hex(&mac));
        let known: &[u8] = b"effcdf6ae5eb2fa2d27416d5f184df9c259a7c79";
        assert_eq!(mac.as_deref(), Some(known));
        let mac = hmac_sha256(b"Jefe", text).map(|mac| encode_hex(&mac));
        let known: &[u8] = b"5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843";
        assert_eq!(mac.as_deref(), Some(known));
    }
}
