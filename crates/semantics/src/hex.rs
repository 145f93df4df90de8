//! Bytes in hexadecimal digits, as digests, names and ids are written.
//!
//! The digits are small, two for each byte, with nothing between them.

use std::fmt;

/// Bytes that are written in hexadecimal digits.
#[derive(Clone, Copy, Debug)]
pub struct Hex<'a>(pub &'a [u8]);

impl fmt::Display for Hex<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

#[cfg(test)]
mod tests {
    use super::Hex;

    #[test]
    fn each_byte_has_two_small_digits() {
        assert_eq!(Hex(&[0, 0xa, 0xf0, 0xff]).to_string(), "000af0ff");
        assert_eq!(Hex(&[]).to_string(), "");
    }
}
