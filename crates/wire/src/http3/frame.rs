//! Frames (RFC 9114 §7; PRIORITY_UPDATE of RFC 9218 §7.2) and the integers that they are made of
//! (RFC 9000 §16).
//!
//! ```text
//! kind     integer     1, 2, 4 or 8 bytes, as its first two bits say
//! length   integer     of the payload
//! payload
//! ```
//!
//! 1. What a kind means where is decided by who reads the stream.

use bytes::{BufMut, BytesMut};

/// The largest integer.
pub(crate) const MAX: u64 = (1 << 62) - 1;
/// Most bytes of a frame's head.
pub(crate) const HEAD_MOST: usize = 16;

/// The kind of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Data,
    Headers,
    CancelPush,
    Settings,
    PushPromise,
    GoAway,
    MaxPushId,
    /// The priority of a request.
    PriorityUpdate,
    /// The priority of a push.
    PushPriorityUpdate,
    /// One of HTTP/2 that there is not (§7.2.8).
    Reserved,
    /// Another one, which is ignored (§9).
    Unknown,
}

impl Kind {
    pub(crate) fn of(number: u64) -> Self {
        match number {
            0 => Kind::Data,
            1 => Kind::Headers,
            3 => Kind::CancelPush,
            4 => Kind::Settings,
            5 => Kind::PushPromise,
            7 => Kind::GoAway,
            0xd => Kind::MaxPushId,
            0xf_0700 => Kind::PriorityUpdate,
            0xf_0701 => Kind::PushPriorityUpdate,
            2 | 6 | 8 | 9 => Kind::Reserved,
            _ => Kind::Unknown,
        }
    }
}

/// The head of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) kind: Kind,
    pub(crate) len: u64,
}

/// Reads the integer that `rest` begins with, and takes it away; none if it is not there as a
/// whole.
#[inline]
pub(crate) fn read_integer(rest: &mut &[u8]) -> Option<u64> {
    let first = *rest.first()?;
    let len = 1 << (first >> 6);
    let (bytes, after) = rest.split_at_checked(len)?;
    let value = bytes
        .iter()
        .fold(0, |sum, byte| sum << 8 | u64::from(*byte));
    *rest = after;
    // Without the two bits that say the length.
    Some(value & (u64::MAX >> (66 - 8 * len as u32)))
}

/// Reads the head of a frame that `rest` begins with, and takes it away; none if it is not there as
/// a whole.
#[inline]
pub(crate) fn read_head(rest: &mut &[u8]) -> Option<Head> {
    let mut after = *rest;
    let kind = read_integer(&mut after)?;
    let len = read_integer(&mut after)?;
    *rest = after;
    let kind = Kind::of(kind);
    Some(Head { kind, len })
}

/// Bytes of an integer.
pub(crate) fn integer_len(value: u64) -> usize {
    match value {
        0..0x40 => 1,
        0x40..0x4000 => 2,
        0x4000..0x4000_0000 => 4,
        _ => 8,
    }
}

/// Writes an integer, which is no larger than [`MAX`].
#[inline]
pub(crate) fn write_integer(out: &mut BytesMut, value: u64) {
    match integer_len(value) {
        1 => out.put_u8(value as u8),
        2 => out.put_u16(0x4000 | value as u16),
        4 => out.put_u32(0x8000_0000 | value as u32),
        _ => out.put_u64(0xc000_0000_0000_0000 | value.min(MAX)),
    }
}

/// Writes the head of a DATA frame.
#[inline]
pub(crate) fn write_data_head(out: &mut BytesMut, len: usize) {
    out.put_u8(0);
    write_integer(out, len as u64);
}

/// Writes GOAWAY.
pub(crate) fn write_go_away(out: &mut BytesMut, id: u64) {
    out.put_u8(7);
    write_integer(out, integer_len(id) as u64);
    write_integer(out, id);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 9000 §A.1.
    #[test]
    fn the_examples_of_the_rfc_are_read_and_written() {
        for (bytes, value) in [
            (
                &[0xc2, 0x19, 0x7c, 0x5e, 0xff, 0x14, 0xe8, 0x8c][..],
                151_288_809_941_952_652,
            ),
            (&[0x9d, 0x7f, 0x3e, 0x7d], 494_878_333),
            (&[0x7b, 0xbd], 15_293),
            (&[0x25], 37),
        ] {
            let mut rest = bytes;
            assert_eq!(read_integer(&mut rest), Some(value));
            assert!(rest.is_empty());
            let mut out = BytesMut::new();
            write_integer(&mut out, value);
            assert_eq!(out, bytes);
        }
        assert_eq!(read_integer(&mut &[0x40, 0x25][..]), Some(37));
    }

    #[test]
    fn what_is_written_is_read_back_and_what_is_cut_is_not_there() {
        for value in [0, 63, 64, 16_383, 16_384, (1 << 30) - 1, 1 << 30, MAX] {
            let mut out = BytesMut::new();
            write_integer(&mut out, value);
            assert_eq!(out.len(), integer_len(value));
            assert_eq!(read_integer(&mut &out[..]), Some(value));
            for len in 0..out.len() {
                assert_eq!(read_integer(&mut &out[..len]), None, "{value} {len}");
            }
        }
    }
}
