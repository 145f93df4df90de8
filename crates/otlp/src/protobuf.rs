//! Bytes of Protocol Buffers, as far as OTLP has them.
//!
//! | wire type | number | value |
//! |---|---|---|
//! | varint | 0 | seven bits a byte, the lowest first |
//! | 64 bits | 1 | eight bytes, the lowest first |
//! | length | 2 | a varint, and as many bytes: text, bytes, a message |
//! | 32 bits | 5 | four bytes, the lowest first |
//!
//! A field is a varint of its number and its wire type, and then its value. Readers skip what they
//! do not know.
//!
//! Source: the encoding of Protocol Buffers (protobuf.dev).

/// Bytes that a length takes at most: 32 bits of it.
const LEN_MAX: usize = 5;

/// Appends a field with a number that is not negative.
pub(crate) fn put_varint(out: &mut Vec<u8>, field: u32, value: u64) {
    put_key(out, field, 0);
    put_raw_varint(out, value);
}

/// Appends a field of 64 bits.
pub(crate) fn put_fixed64(out: &mut Vec<u8>, field: u32, value: u64) {
    put_key(out, field, 1);
    out.extend_from_slice(&value.to_le_bytes());
}

/// Appends a field of 32 bits.
pub(crate) fn put_fixed32(out: &mut Vec<u8>, field: u32, value: u32) {
    put_key(out, field, 5);
    out.extend_from_slice(&value.to_le_bytes());
}

/// Appends a field with bytes, or a message that is encoded already.
pub(crate) fn put_bytes(out: &mut Vec<u8>, field: u32, bytes: &[u8]) {
    put_key(out, field, 2);
    put_raw_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// Appends a field with a text; bytes that are no text are replaced, as readers refuse them.
pub(crate) fn put_text(out: &mut Vec<u8>, field: u32, text: &[u8]) {
    put_bytes(out, field, String::from_utf8_lossy(text).as_bytes());
}

/// Appends a field with the message that `write` writes.
pub(crate) fn put_message(out: &mut Vec<u8>, field: u32, write: impl FnOnce(&mut Vec<u8>)) {
    put_key(out, field, 2);
    let start = out.len();
    write(out);
    let len = (out.len() - start) as u64;
    let mut head = Vec::with_capacity(LEN_MAX);
    put_raw_varint(&mut head, len);
    out.splice(start..start, head);
}

/// The bytes that the key and the length of a field take whose value has so many bytes.
pub(crate) fn head_len(field: u32, len: usize) -> usize {
    varint_len(u64::from(field) << 3) + varint_len(len as u64)
}

/// Appends the key and the length of a field whose value of so many bytes follows.
pub(crate) fn put_head(out: &mut Vec<u8>, field: u32, len: usize) {
    put_key(out, field, 2);
    put_raw_varint(out, len as u64);
}

fn put_key(out: &mut Vec<u8>, field: u32, wire_type: u32) {
    put_raw_varint(out, u64::from(field << 3 | wire_type));
}

fn put_raw_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn varint_len(value: u64) -> usize {
    // Seven bits a byte; zero takes one, too.
    (64 - (value | 1).leading_zeros() as usize).div_ceil(7)
}

/// The value of a field that is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Value<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

/// The fields of a message; it ends at the first that is malformed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reader<'a>(pub(crate) &'a [u8]);

impl<'a> Iterator for Reader<'a> {
    type Item = (u64, Value<'a>);

    fn next(&mut self) -> Option<Self::Item> {
        let key = self.varint()?;
        let value = match key & 7 {
            0 => Value::Number(self.varint()?),
            1 => Value::Number(u64::from_le_bytes(self.take(8)?.try_into().ok()?)),
            2 => {
                let len = usize::try_from(self.varint()?).ok()?;
                Value::Bytes(self.take(len)?)
            }
            5 => Value::Number(u32::from_le_bytes(self.take(4)?.try_into().ok()?).into()),
            _ => return None,
        };
        Some((key >> 3, value))
    }
}

impl<'a> Reader<'a> {
    fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(taken)
    }

    fn varint(&mut self) -> Option<u64> {
        let mut value = 0_u64;
        for shift in (0..64).step_by(7) {
            let (first, rest) = self.0.split_first()?;
            self.0 = rest;
            value |= u64::from(first & 0x7f) << shift;
            if first & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_take_as_many_bytes_as_their_bits_need() {
        for (value, expected) in [
            (0, &[0x08, 0][..]),
            (1, &[0x08, 1]),
            (127, &[0x08, 0x7f]),
            (128, &[0x08, 0x80, 1]),
            (150, &[0x08, 0x96, 1]),
            (
                u64::MAX,
                &[0x08, 255, 255, 255, 255, 255, 255, 255, 255, 255, 1],
            ),
        ] {
            let mut out = Vec::new();
            put_varint(&mut out, 1, value);
            assert_eq!(out, expected, "{value}");
            assert_eq!(varint_len(value), out.len() - 1, "{value}");
            let read: Vec<_> = Reader(&out).collect();
            assert_eq!(read, [(1, Value::Number(value))]);
        }
    }

    #[test]
    fn messages_stand_in_one_another() {
        let mut out = Vec::new();
        put_message(&mut out, 3, |out| put_text(out, 2, b"testing"));
        assert_eq!(out, b"\x1a\x09\x12\x07testing");
        let long = vec![b'x'; 300];
        let mut out = Vec::new();
        put_message(&mut out, 1, |out| put_bytes(out, 1, &long));
        let [(1, Value::Bytes(inner))] = Reader(&out).collect::<Vec<_>>()[..] else {
            panic!("{out:?}");
        };
        assert_eq!(
            Reader(inner).collect::<Vec<_>>(),
            [(1, Value::Bytes(&long[..]))]
        );
        assert_eq!(out.len(), head_len(1, inner.len()) + inner.len());
    }

    #[test]
    fn texts_that_are_none_are_made_some() {
        let mut out = Vec::new();
        put_text(&mut out, 1, b"a\xff");
        assert_eq!(out, "\u{a}\u{4}a\u{fffd}".as_bytes());
    }

    #[test]
    fn malformed_bytes_end_the_fields() {
        for bytes in [
            &b"\x08"[..],
            b"\x08\x80",
            b"\x0a\x05abc",
            b"\x09\x01\x02",
            b"\x0d\x01",
            b"\x0b",
            b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
            b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
        ] {
            assert_eq!(Reader(bytes).count(), 0, "{bytes:?}");
        }
    }
}
