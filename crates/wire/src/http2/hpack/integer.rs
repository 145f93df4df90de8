//! Integers of HPACK (RFC 7541 §5.1): a prefix of some bits, then seven bits a byte.
//!
//! 1. An integer of more than [`MOST_BYTES`] is refused, so that none overflows.
//!
//! The bits before the prefix are the caller's.

use bytes::{BufMut, BytesMut};

/// Most bytes of an integer, its prefix included (nginx: the same; enough for two million).
const MOST_BYTES: usize = 4;

/// The reason why there is no integer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BadInteger {
    /// The block ends within it.
    Truncated,
    /// The integer has too many bytes.
    TooLong,
}

/// Reads the integer that `rest` begins with, of a prefix of so many bits, and takes it away.
#[inline]
pub(crate) fn read(rest: &mut &[u8], prefix: u32) -> Result<usize, BadInteger> {
    let (first, mut tail) = rest.split_first().ok_or(BadInteger::Truncated)?;
    let most = (1_usize << prefix) - 1;
    let mut value = usize::from(*first) & most;
    if value == most {
        let mut shift = 0;
        loop {
            if shift >= 7 * (MOST_BYTES - 1) {
                return Err(BadInteger::TooLong);
            }
            let (byte, after) = tail.split_first().ok_or(BadInteger::Truncated)?;
            tail = after;
            value += usize::from(byte & 0x7f) << shift;
            shift += 7;
            if byte & 0x80 == 0 {
                break;
            }
        }
    }
    *rest = tail;
    Ok(value)
}

/// Writes an integer behind the bits of `first` that are not its prefix.
#[inline]
pub(crate) fn write(out: &mut BytesMut, first: u8, prefix: u32, value: usize) {
    let most = (1_usize << prefix) - 1;
    if value < most {
        // Less than the prefix holds, which is at most seven bits.
        return out.put_u8(first | value as u8);
    }
    out.put_u8(first | most as u8);
    let mut rest = value - most;
    while rest >= 0x80 {
        out.put_u8(rest as u8 & 0x7f | 0x80);
        rest >>= 7;
    }
    out.put_u8(rest as u8);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(prefix: u32, value: usize) -> Vec<u8> {
        let mut out = BytesMut::new();
        write(&mut out, 0, prefix, value);
        out.to_vec()
    }

    /// RFC 7541 §C.1.
    #[test]
    fn the_examples_of_the_rfc_are_written_and_read() {
        for (prefix, value, bytes) in [
            (5, 10, &[0b01010][..]),
            (5, 1337, &[0b11111, 0b1001_1010, 0b1010]),
            (8, 42, &[42]),
        ] {
            assert_eq!(written(prefix, value), bytes);
            let mut rest = bytes;
            assert_eq!(read(&mut rest, prefix), Ok(value));
            assert!(rest.is_empty());
        }
    }

    #[test]
    fn what_is_written_is_read_back() {
        for prefix in 4..=7 {
            for value in (0..400).chain([16_383, 16_384, 1 << 20, (1 << 21) - 1]) {
                let bytes = written(prefix, value);
                assert_eq!(read(&mut &bytes[..], prefix), Ok(value), "{prefix} {value}");
            }
        }
    }

    /// RFC 7541 §5.1: what is beyond the limits of an implementation is a decoding error.
    #[test]
    fn integers_that_are_too_long_or_cut_are_refused() {
        for (bytes, why) in [
            (&[][..], BadInteger::Truncated),
            (&[0x7f], BadInteger::Truncated),
            (&[0x7f, 0x80, 0x80], BadInteger::Truncated),
            (&[0x7f, 0x80, 0x80, 0x80], BadInteger::TooLong),
            (
                &[0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff],
                BadInteger::TooLong,
            ),
            (&[0x7f, 0x80, 0x80, 0x80, 0x00], BadInteger::TooLong),
        ] {
            assert_eq!(read(&mut &bytes[..], 7), Err(why), "{bytes:x?}");
        }
    }
}
