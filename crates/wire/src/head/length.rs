//! The length of a body as a head says it.
//!
//! 1. A text has one reading, or none.
//!
//! What follows from a length, or from its lack, is the business of each protocol.

/// Reads the value of a Content-Length field: digits only, at least one, at most 2^63 - 1.
///
/// RFC 9110 §8.6 would let a list of equal numbers pass as one; like nginx, this does not.
#[must_use]
pub fn content_length(value: &[u8]) -> Option<u64> {
    if value.is_empty() {
        return None;
    }
    let mut length: u64 = 0;
    for byte in value {
        if !byte.is_ascii_digit() {
            return None;
        }
        length = length
            .checked_mul(10)?
            .checked_add(u64::from(*byte - b'0'))?;
    }
    (length <= i64::MAX as u64).then_some(length)
}

#[cfg(test)]
mod tests {
    use super::content_length;

    #[test]
    fn a_content_length_is_digits_and_nothing_else() {
        for (value, expected) in [
            ("0", Some(0)),
            ("42", Some(42)),
            ("0042", Some(42)),
            ("9223372036854775807", Some(i64::MAX as u64)),
            ("9223372036854775808", None),
            ("18446744073709551616", None),
            ("", None),
            ("+5", None),
            ("-5", None),
            ("5,5", None),
            ("5, 5", None),
            ("0x5", None),
            ("5 ", None),
            ("\t5", None),
            ("5.0", None),
        ] {
            assert_eq!(content_length(value.as_bytes()), expected, "{value:?}");
        }
    }
}
