//! Integers of QPACK (RFC 9204 §4.1.1): those of HPACK, of 62 bits.
//!
//! 1. None that is read is larger than [`MAX`].

use bytes::BytesMut;

use crate::http2::hpack::integer;

/// The largest integer.
pub(crate) const MAX: u64 = (1 << 62) - 1;
/// Bytes behind the prefix of the longest integer.
const MOST_BYTES: u32 = 9;

/// The reason why there is no integer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BadInteger {
    /// The bytes end within it.
    Truncated,
    /// The integer is too large.
    TooLong,
}

/// Reads the integer that `rest` begins with, of a prefix of so many bits, and takes it away.
#[inline]
pub(crate) fn read(rest: &mut &[u8], prefix: u32) -> Result<u64, BadInteger> {
    let (first, mut tail) = rest.split_first().ok_or(BadInteger::Truncated)?;
    let most = (1_u64 << prefix) - 1;
    let mut value = u64::from(*first) & most;
    if value == most {
        let mut count = 0;
        loop {
            let (byte, after) = tail.split_first().ok_or(BadInteger::Truncated)?;
            tail = after;
            // No more than 63 bits, and a prefix of eight.
            value += u64::from(byte & 0x7f) << (7 * count);
            count += 1;
            if byte & 0x80 == 0 {
                break;
            }
            if count == MOST_BYTES {
                return Err(BadInteger::TooLong);
            }
        }
    }
    if value > MAX {
        return Err(BadInteger::TooLong);
    }
    *rest = tail;
    Ok(value)
}

/// Writes an integer behind the bits of `first` that are not its prefix.
#[inline]
pub(crate) fn write(out: &mut BytesMut, first: u8, prefix: u32, value: u64) {
    // On machines of 32 bits no table has as many entries, and no connection as many streams.
    integer::write(
        out,
        first,
        prefix,
        usize::try_from(value).unwrap_or(usize::MAX),
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 9204 §4.1.1: integers up to and including 62 bits.
    #[test]
    fn what_is_written_is_read_back_up_to_62_bits() {
        for prefix in 3..=8 {
            for value in (0..400).chain([1 << 21, (1 << 32) - 1, 1 << 56, MAX]) {
                let mut out = BytesMut::new();
                write(&mut out, 0, prefix, value);
                let mut rest = &out[..];
                assert_eq!(read(&mut rest, prefix), Ok(value), "{prefix} {value}");
                assert!(rest.is_empty());
                for len in 0..out.len() {
                    assert_eq!(read(&mut &out[..len], prefix), Err(BadInteger::Truncated));
                }
            }
        }
    }

    #[test]
    fn integers_of_more_bits_are_refused() {
        let mut out = BytesMut::new();
        write(&mut out, 0, 7, MAX + 1);
        assert_eq!(read(&mut &out[..], 7), Err(BadInteger::TooLong));
        let mut long = vec![0x7f];
        long.extend([0x80; 9]);
        long.push(0);
        assert_eq!(read(&mut &long[..], 7), Err(BadInteger::TooLong));
        assert_eq!(read(&mut &[0xff; 12][..], 8), Err(BadInteger::TooLong));
    }
}
