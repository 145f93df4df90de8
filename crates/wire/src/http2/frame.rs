//! Frames (RFC 9113 §4, §6; PRIORITY_UPDATE of RFC 9218 §7.1): their heads, and the small ones
//! whole.
//!
//! ```text
//! 0  length     3 bytes, of the payload
//! 3  kind       1
//! 4  flags      1
//! 5  stream     4, without its highest bit
//! 9  payload
//! ```
//!
//! 1. A frame whose head passes [`Head::check`] has a length that its kind may have, and a stream
//!    exactly if its kind has one.
//!
//! Payloads of DATA and blocks of fields are cut by the connection, which does not wait for all of
//! one.

use bytes::{BufMut, BytesMut};

use super::code::{Code, Fault};

/// Bytes of a frame's head.
pub const HEAD_LEN: usize = 9;
/// The longest payload unless another was agreed on, and the least that may be (§6.5.2).
pub const DEFAULT_MAX_LEN: u32 = 16_384;
/// The longest payload that may be agreed on.
pub const MOST_MAX_LEN: u32 = (1 << 24) - 1;
/// The text that a client begins a connection with (§3.4).
pub const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// The highest number of a stream.
pub const MAX_STREAM: u32 = (1 << 31) - 1;
/// Bytes of a stream's number and of a window's increment that count.
const LOW_31: u32 = MAX_STREAM;

/// Flags.
pub(crate) const END_STREAM: u8 = 0x1;
pub(crate) const ACK: u8 = 0x1;
pub(crate) const END_HEADERS: u8 = 0x4;
pub(crate) const PADDED: u8 = 0x8;
pub(crate) const PRIORITY: u8 = 0x20;

/// The kind of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A part of a body.
    Data,
    /// The begin of a block of fields.
    Headers,
    /// A place in the tree of RFC 7540.
    Priority,
    /// The end of a stream at once.
    RstStream,
    /// Settings, or their acknowledgement.
    Settings,
    /// The announcement of an answer that nobody asked for.
    PushPromise,
    /// A question for a sign of life, or the answer.
    Ping,
    /// The end of new streams.
    GoAway,
    /// More room for DATA.
    WindowUpdate,
    /// More of a block of fields.
    Continuation,
    /// The priority of a stream (RFC 9218).
    PriorityUpdate,
    /// Another one, which is ignored (§4.1).
    Unknown,
}

impl Kind {
    fn of(number: u8) -> Self {
        match number {
            0 => Kind::Data,
            1 => Kind::Headers,
            2 => Kind::Priority,
            3 => Kind::RstStream,
            4 => Kind::Settings,
            5 => Kind::PushPromise,
            6 => Kind::Ping,
            7 => Kind::GoAway,
            8 => Kind::WindowUpdate,
            9 => Kind::Continuation,
            0x10 => Kind::PriorityUpdate,
            _ => Kind::Unknown,
        }
    }

    fn number(self) -> u8 {
        match self {
            Kind::Data => 0,
            Kind::Headers => 1,
            Kind::Priority => 2,
            Kind::RstStream => 3,
            Kind::Settings => 4,
            Kind::PushPromise => 5,
            Kind::Ping => 6,
            Kind::GoAway => 7,
            Kind::WindowUpdate => 8,
            Kind::Continuation => 9,
            Kind::PriorityUpdate => 0x10,
            Kind::Unknown => 0xff,
        }
    }
}

/// The head of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// Bytes of the payload.
    pub len: u32,
    /// The kind.
    pub kind: Kind,
    /// The flags, of which those without a meaning are to be ignored.
    pub flags: u8,
    /// The stream; zero is the connection.
    pub stream: u32,
}

impl Head {
    /// Reads a head.
    #[must_use]
    #[inline]
    pub fn read(bytes: [u8; HEAD_LEN]) -> Self {
        let [a, b, c, kind, flags, s0, s1, s2, s3] = bytes;
        Head {
            len: u32::from_be_bytes([0, a, b, c]),
            kind: Kind::of(kind),
            flags,
            stream: u32::from_be_bytes([s0, s1, s2, s3]) & LOW_31,
        }
    }

    /// True if a flag is set.
    #[must_use]
    pub(crate) fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// Checks what can be known before the payload is there. INVARIANT 1.
    ///
    /// # Errors
    /// A length or a stream that the kind cannot have; all are errors of the connection.
    pub fn check(&self, max_len: u32) -> Result<(), Fault> {
        if self.len > max_len {
            return Err(Fault::FrameTooLong);
        }
        let is_len_good = match self.kind {
            Kind::Priority => self.len == 5,
            Kind::RstStream | Kind::WindowUpdate => self.len == 4,
            Kind::Settings if self.has(ACK) => self.len == 0,
            Kind::Settings => self.len.is_multiple_of(6),
            Kind::Ping => self.len == 8,
            Kind::GoAway => self.len >= 8,
            Kind::PriorityUpdate => self.len >= 4,
            Kind::Data | Kind::Headers => self.len >= self.prefix_len(),
            Kind::PushPromise | Kind::Continuation | Kind::Unknown => true,
        };
        if !is_len_good {
            return Err(Fault::FrameLength);
        }
        let is_stream_good = match self.kind {
            Kind::Data | Kind::Headers | Kind::Priority | Kind::RstStream => self.stream != 0,
            Kind::Continuation | Kind::PushPromise => self.stream != 0,
            Kind::Settings | Kind::Ping | Kind::GoAway | Kind::PriorityUpdate => self.stream == 0,
            Kind::WindowUpdate | Kind::Unknown => true,
        };
        if is_stream_good {
            Ok(())
        } else {
            Err(Fault::StreamId)
        }
    }

    /// Bytes before the data or the block of a frame: the length of the padding, and a priority.
    #[must_use]
    pub(crate) fn prefix_len(&self) -> u32 {
        let padding = u32::from(self.has(PADDED));
        match self.kind {
            Kind::Data => padding,
            Kind::Headers if self.has(PRIORITY) => padding + 5,
            Kind::Headers => padding,
            _ => 0,
        }
    }

    /// Bytes of data or of a block, and of padding behind them; `prefix` is what stands before.
    ///
    /// # Errors
    /// More padding than there are bytes (§6.1, §6.2).
    pub(crate) fn split(&self, prefix: &[u8]) -> Result<(u32, u32), Fault> {
        let rest = self.len - self.prefix_len().min(self.len);
        let padding = match prefix.first() {
            Some(padding) if self.has(PADDED) => u32::from(*padding),
            _ => 0,
        };
        let len = rest.checked_sub(padding).ok_or(Fault::Padding)?;
        Ok((len, padding))
    }
}

/// A number of 31 bits: a stream, or an increment.
pub(crate) fn number_31(bytes: &[u8]) -> u32 {
    number_32(bytes) & LOW_31
}

/// A number of 32 bits.
pub(crate) fn number_32(bytes: &[u8]) -> u32 {
    bytes
        .first_chunk()
        .map_or(0, |word| u32::from_be_bytes(*word))
}

/// The bytes of a frame's head.
#[must_use]
#[inline]
pub(crate) fn head(len: usize, (kind, flags): (Kind, u8), stream: u32) -> [u8; HEAD_LEN] {
    // No frame is longer than what 24 bits say.
    let [_, a, b, c] = (len as u32).to_be_bytes();
    let [s0, s1, s2, s3] = stream.to_be_bytes();
    [a, b, c, kind.number(), flags, s0, s1, s2, s3]
}

/// Writes RST_STREAM.
pub(crate) fn write_reset(out: &mut BytesMut, stream: u32, code: Code) {
    out.put_slice(&head(4, (Kind::RstStream, 0), stream));
    out.put_u32(code.0);
}

/// Writes WINDOW_UPDATE.
pub(crate) fn write_window_update(out: &mut BytesMut, stream: u32, increment: u32) {
    out.put_slice(&head(4, (Kind::WindowUpdate, 0), stream));
    out.put_u32(increment);
}

/// Writes PING, or its answer.
pub(crate) fn write_ping(out: &mut BytesMut, flags: u8, payload: [u8; 8]) {
    out.put_slice(&head(8, (Kind::Ping, flags), 0));
    out.put_slice(&payload);
}

/// Writes GOAWAY.
pub(crate) fn write_go_away(out: &mut BytesMut, last: u32, code: Code) {
    out.put_slice(&head(8, (Kind::GoAway, 0), 0));
    out.put_u32(last);
    out.put_u32(code.0);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(kind: u8, flags: u8, stream: u32, len: u32) -> Result<(), Fault> {
        let [_, a, b, c] = len.to_be_bytes();
        let [s0, s1, s2, s3] = stream.to_be_bytes();
        Head::read([a, b, c, kind, flags, s0, s1, s2, s3]).check(DEFAULT_MAX_LEN)
    }

    /// RFC 9113 §4.2, §6: FRAME_SIZE_ERROR for lengths that a kind cannot have.
    #[test]
    fn lengths_that_a_kind_cannot_have_are_refused() {
        for (kind, flags, stream, good, bad) in [
            (0, 0, 1, &[0, 1, 16_384][..], &[16_385][..]),
            (0, PADDED, 1, &[1, 2], &[0]),
            (1, PADDED | PRIORITY, 1, &[6, 7], &[0, 5]),
            (1, PRIORITY, 1, &[5], &[4]),
            (2, 0, 1, &[5], &[0, 4, 6]),
            (3, 0, 1, &[4], &[0, 3, 5]),
            (4, 0, 0, &[0, 6, 12], &[1, 5, 7]),
            (4, ACK, 0, &[0], &[6]),
            (6, 0, 0, &[8], &[0, 7, 9]),
            (7, 0, 0, &[8, 100], &[0, 7]),
            (8, 0, 0, &[4], &[3, 5]),
            (0x10, 0, 0, &[4, 50], &[3]),
            (0xbe, 0, 7, &[0, 16_384], &[16_385]),
        ] {
            for len in good {
                assert_eq!(check(kind, flags, stream, *len), Ok(()), "{kind} {len}");
            }
            for len in bad {
                let fault = check(kind, flags, stream, *len).unwrap_err();
                assert_eq!(fault.code(), Code::FRAME_SIZE_ERROR, "{kind} {len}");
            }
        }
    }

    /// RFC 9113 §6.1 to §6.10: PROTOCOL_ERROR for frames of streams without one, and the reverse.
    #[test]
    fn frames_have_a_stream_or_none_as_their_kind_wants() {
        for (kind, len, on_stream, on_connection) in [
            (0, 0, true, false),
            (1, 0, true, false),
            (2, 5, true, false),
            (3, 4, true, false),
            (4, 0, false, true),
            (5, 4, true, false),
            (6, 8, false, true),
            (7, 8, false, true),
            (8, 4, true, true),
            (9, 0, true, false),
            (0x10, 4, false, true),
            (0x0b, 3, true, true),
        ] {
            assert_eq!(check(kind, 0, 1, len).is_ok(), on_stream, "{kind}");
            assert_eq!(check(kind, 0, 0, len).is_ok(), on_connection, "{kind}");
        }
        assert_eq!(Fault::StreamId.code(), Code::PROTOCOL_ERROR);
    }

    /// RFC 9113 §4.1: the reserved bit is ignored; what is written is read back.
    #[test]
    fn heads_are_read_as_they_are_written() {
        for kind in (0..=9).chain([0x10]) {
            let bytes = head(70_000, (Kind::of(kind), 5), 77);
            assert_eq!(bytes[3], kind);
            let read = Head::read(bytes);
            assert_eq!((read.len, read.flags, read.stream), (70_000, 5, 77));
        }
        let with_reserved_bit = [0, 0, 0, 0, 0, 0x80, 0, 0, 1];
        assert_eq!(Head::read(with_reserved_bit).stream, 1);
    }

    /// RFC 9113 §6.1, §6.2.
    #[test]
    fn padding_is_no_longer_than_the_payload() {
        let frame = |flags, len| Head {
            len,
            kind: Kind::Headers,
            flags,
            stream: 1,
        };
        assert_eq!(frame(0, 10).split(&[]), Ok((10, 0)));
        assert_eq!(frame(PADDED, 10).split(&[4]), Ok((5, 4)));
        assert_eq!(frame(PADDED, 10).split(&[9]), Ok((0, 9)));
        assert_eq!(frame(PADDED, 10).split(&[10]), Err(Fault::Padding));
        assert_eq!(
            frame(PADDED | PRIORITY, 10).split(&[4, 0, 0, 0, 0, 0]),
            Ok((0, 4))
        );
        assert_eq!(
            frame(PADDED | PRIORITY, 10).split(&[5, 0, 0, 0, 0, 0]),
            Err(Fault::Padding)
        );
    }
}
