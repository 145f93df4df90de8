//! Names and values of the environment that an application gets.
//!
//! A pair is the length of the name, the length of the value, the name and the value. A length
//! below 128 is one byte; a longer one is four, big endian, with the highest bit set.

/// Appends a pair; names and values longer than 2^31 - 1 do not exist here, since heads and
/// configurations are bounded far below.
pub fn write_pair(out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    write_len(out, name.len());
    write_len(out, value.len());
    out.extend_from_slice(name);
    out.extend_from_slice(value);
}

fn write_len(out: &mut Vec<u8>, len: usize) {
    match u8::try_from(len) {
        Ok(len @ 0..=127) => out.push(len),
        _ => out.extend_from_slice(&(len as u32 | 1 << 31).to_be_bytes()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_of_128_and_more_take_four_bytes() {
        let cases: [(usize, &[u8]); 5] = [
            (0, &[0]),
            (127, &[127]),
            (128, &[0x80, 0, 0, 128]),
            (255, &[0x80, 0, 0, 255]),
            (70_000, &[0x80, 1, 0x11, 0x70]),
        ];
        for (len, expected) in cases {
            let mut out = Vec::new();
            write_len(&mut out, len);
            assert_eq!(out, expected, "{len}");
        }
    }

    #[test]
    fn both_lengths_come_before_name_and_value() {
        let mut out = Vec::new();
        write_pair(&mut out, b"A", b"");
        write_pair(&mut out, b"BC", b"def");
        assert_eq!(out, b"\x01\x00A\x02\x03BCdef");
    }
}
