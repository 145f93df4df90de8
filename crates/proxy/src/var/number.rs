//! Numbers and times as variables write them, in decimal.
//!
//! All append to what a value is collected in, and are true as a value that exists is, so that a
//! variable can end with one of them.

use std::time::Duration;

/// Appends a decimal number of at least `width` digits.
pub(super) fn number(out: &mut Vec<u8>, mut value: u64, width: usize) -> bool {
    let mut digits = [b'0'; 20];
    let mut at = digits.len();
    for digit in digits.iter_mut().rev() {
        if value == 0 && at + width <= 20 {
            break;
        }
        *digit = b'0' + (value % 10) as u8;
        value /= 10;
        at -= 1;
    }
    out.extend_from_slice(digits.get(at..).unwrap_or_default());
    true
}

/// Appends a number in decimal.
pub fn write_number(value: u64, out: &mut Vec<u8>) -> bool {
    number(out, value, 1)
}

/// Appends seconds with three decimals.
pub fn write_millis(time: Duration, out: &mut Vec<u8>) -> bool {
    write_number(time.as_secs(), out);
    out.push(b'.');
    number(out, u64::from(time.subsec_millis()), 3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_a_least_width() {
        let cases = [
            (0, 1, "0"),
            (0, 3, "000"),
            (9, 3, "009"),
            (200, 3, "200"),
            (12_345, 3, "12345"),
        ];
        for (value, width, expected) in cases {
            let mut out = Vec::new();
            number(&mut out, value, width);
            assert_eq!(String::from_utf8(out).unwrap(), expected);
        }
        let mut out = Vec::new();
        number(&mut out, u64::MAX, 1);
        assert_eq!(out, u64::MAX.to_string().as_bytes());
    }
}
