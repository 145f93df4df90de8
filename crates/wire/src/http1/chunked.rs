//! The chunked transfer coding: an incremental decoder, and the bytes around chunks to be sent.
//!
//! ```text
//!   ┌────────────────────────────────────────────┐
//!   ▼                                            │ CR LF
//! Size ──";"──► Extension ──LF──► Data(left) ──► DataEnd
//!   │ size 0          │ size 0
//!   └──────LF─────────┴──────────► Trailers ──""──► Ended
//! ```
//!
//! 1. Bytes given out as data are exactly those that a size announced; they are cut from the
//!    buffer, not copied.
//! 2. After an error every further call errs.
//! 3. In [`Strictness::Request`] each line ends in CR LF, a size is 1 to 16 hexadecimal digits
//!    and nothing else, and what follows it begins with a semicolon.
//! 4. Extensions, trailers and sizes are bounded.
//!
//! [`Strictness::Upstream`] also takes what nginx takes from origins: spaces and tabs after a
//! size, and a bare LF at the end of a trailer line.
//!
//! It does not judge trailers; whoever passes them on must drop what has no place there.
//!
//! Sources: RFC 9112 §7.1; nginx's chunked parser.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use smallvec::SmallVec;

use super::line::{self, LineScanner};
use crate::head::place::{NameKind, Span};
use crate::header::{Fields, Known};

/// Longest extension of one chunk, in bytes; arbitrarily. They are skipped.
const EXTENSION_MAX: u32 = 4096;

/// Most digits of a size: as many as 64 bits need.
const DIGITS_MAX: u8 = 16;

/// The last chunk without trailers.
pub const LAST_CHUNK: &[u8] = b"0\r\n\r\n";

/// The bytes that follow the data of each chunk.
pub const CHUNK_END: &[u8] = b"\r\n";

/// The side whose bytes are decoded, and so how strictly they are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strictness {
    /// A client's: nothing passes that another server might read in another way.
    Request,
    /// An upstream's: what nginx tolerates.
    Upstream,
}

/// Bounds of the trailers.
#[derive(Clone, Copy, Debug)]
pub struct TrailerLimits {
    /// Bytes of all trailer lines together, the empty one included.
    pub total: usize,
    /// The most fields.
    pub fields: usize,
}

/// Arbitrarily: the size of one large header buffer of nginx, and more fields than anyone sends.
impl Default for TrailerLimits {
    fn default() -> Self {
        Self {
            total: 8 * 1024,
            fields: 100,
        }
    }
}

/// The reason why a chunked body cannot be read on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChunkError {
    /// No size where one must be, or something else than a line end after it.
    #[error("invalid chunk size")]
    InvalidSize,
    /// A size of 2^63 or more, or of more than 16 digits.
    #[error("chunk size is too large")]
    SizeTooLarge,
    /// An extension with control bytes, or without a proper line end.
    #[error("invalid chunk extension")]
    InvalidExtension,
    /// An extension that is too long.
    #[error("chunk extension is longer than {EXTENSION_MAX} bytes")]
    ExtensionTooLong,
    /// The data are not followed by a line end.
    #[error("chunk data are longer than the chunk size")]
    InvalidDataEnd,
    /// A trailer line is malformed.
    #[error("invalid trailer")]
    InvalidTrailer,
    /// Trailers beyond the limits.
    #[error("too big trailers")]
    TrailersTooLarge,
    /// The decoder has ended or failed before.
    #[error("body has ended")]
    Ended,
}

/// The result of one call of the decoder.
#[derive(Debug, PartialEq, Eq)]
pub enum ChunkEvent {
    /// More bytes are needed.
    NeedMore,
    /// A piece of the body, never empty.
    Data(Bytes),
    /// The end of the body; what is left in the buffer belongs to the next message.
    End {
        /// The trailer fields in order.
        trailers: Fields,
    },
}

/// The decoder's position in the body. What is known of the size stands in each state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The decoder is in a size, of which so many digits have come.
    Size { size: u64, digits: u8 },
    /// The decoder is after a size, in spaces before a semicolon or line end.
    AfterSize { size: u64, skipped: u32 },
    /// The decoder is in an extension.
    Extension { size: u64, skipped: u32 },
    /// The decoder is after the CR of a size line.
    SizeLf { size: u64 },
    /// The decoder is in data of which so much is to come.
    Data { left: u64 },
    /// The decoder is after data, before CR.
    DataCr,
    /// The decoder is after data and CR.
    DataLf,
    /// The decoder is in the trailers.
    Trailers,
    /// The decoder is after the end or an error.
    Ended,
}

/// Decodes one chunked body.
#[derive(Debug)]
pub struct ChunkedDecoder {
    state: State,
    strictness: Strictness,
    limits: TrailerLimits,
    scanner: LineScanner,
    spans: SmallVec<[Span; 4]>,
}

impl ChunkedDecoder {
    /// A decoder at the begin of a body.
    #[must_use]
    pub fn new(strictness: Strictness, limits: TrailerLimits) -> Self {
        Self {
            state: State::Size { size: 0, digits: 0 },
            strictness,
            limits,
            scanner: LineScanner::default(),
            spans: SmallVec::new(),
        }
    }

    /// Goes on with what is in `buf`. Call it again after `Data`, until it says something else.
    ///
    /// # Errors
    /// The body is malformed or beyond a limit. Nothing after that can be trusted; the connection
    /// cannot go on.
    pub fn decode(&mut self, buf: &mut BytesMut) -> Result<ChunkEvent, ChunkError> {
        let event = self.step(buf);
        if matches!(event, Err(_) | Ok(ChunkEvent::End { .. })) {
            self.state = State::Ended;
        }
        event
    }

    /// True if the body has ended (or was malformed).
    #[must_use]
    pub fn is_ended(&self) -> bool {
        self.state == State::Ended
    }

    fn step(&mut self, buf: &mut BytesMut) -> Result<ChunkEvent, ChunkError> {
        loop {
            match self.state {
                State::Ended => return Err(ChunkError::Ended),
                State::Trailers => return self.read_trailers(buf),
                State::Data { left } => {
                    if buf.is_empty() {
                        return Ok(ChunkEvent::NeedMore);
                    }
                    return Ok(self.cut_data(buf, left));
                }
                _ => {}
            }
            // All other states read single bytes; none reads one that it does not consume.
            let mut read = 0;
            for byte in buf.iter() {
                read += 1;
                self.state = self.handle_byte(*byte)?;
                if matches!(self.state, State::Data { .. } | State::Trailers) {
                    break;
                }
            }
            buf.advance(read);
            if !matches!(self.state, State::Data { .. } | State::Trailers) {
                return Ok(ChunkEvent::NeedMore);
            }
        }
    }

    /// Handles one byte around the data.
    fn handle_byte(&self, byte: u8) -> Result<State, ChunkError> {
        match self.state {
            State::Size { size, digits } => match hex_value(byte) {
                Some(value) => push_digit(size, digits, value),
                None if digits == 0 => Err(ChunkError::InvalidSize),
                None => self.after_size(byte, size, 0),
            },
            State::AfterSize { size, skipped } => self.after_size(byte, size, skipped),
            State::Extension { size, skipped } => in_extension(byte, size, skipped),
            State::SizeLf { size } => match (byte, size) {
                (b'\n', 0) => Ok(State::Trailers),
                (b'\n', left) => Ok(State::Data { left }),
                _ => Err(ChunkError::InvalidSize),
            },
            State::DataCr if byte == b'\r' => Ok(State::DataLf),
            State::DataLf if byte == b'\n' => Ok(State::Size { size: 0, digits: 0 }),
            State::DataCr | State::DataLf => Err(ChunkError::InvalidDataEnd),
            State::Data { .. } | State::Trailers | State::Ended => Err(ChunkError::Ended),
        }
    }

    /// A byte after the digits, before a semicolon.
    fn after_size(&self, byte: u8, size: u64, skipped: u32) -> Result<State, ChunkError> {
        match byte {
            // RFC 9112 §7.1.1 lets spaces stand before a semicolon only.
            b'\r' if skipped == 0 || self.strictness == Strictness::Upstream => {
                Ok(State::SizeLf { size })
            }
            b';' => Ok(State::Extension { size, skipped }),
            b' ' | b'\t' if skipped < EXTENSION_MAX => Ok(State::AfterSize {
                size,
                skipped: skipped + 1,
            }),
            // nginx: after a space, anything is an extension.
            0x21.. if skipped > 0 && self.strictness == Strictness::Upstream => {
                in_extension(byte, size, skipped)
            }
            b' ' | b'\t' => Err(ChunkError::ExtensionTooLong),
            _ => Err(ChunkError::InvalidSize),
        }
    }

    /// Cuts data from the buffer, which is not empty; `left` is not zero.
    fn cut_data(&mut self, buf: &mut BytesMut, left: u64) -> ChunkEvent {
        let len = usize::try_from(left).map_or(buf.len(), |left| left.min(buf.len()));
        let left = left - len as u64;
        self.state = match left {
            0 => State::DataCr,
            _ => State::Data { left },
        };
        ChunkEvent::Data(buf.split_to(len).freeze())
    }

    /// Reads trailer lines; they stay in the buffer until the last one has come.
    fn read_trailers(&mut self, buf: &mut BytesMut) -> Result<ChunkEvent, ChunkError> {
        while let Some(range) = self.scanner.next_line(buf) {
            if range.end > self.limits.total {
                return Err(ChunkError::TrailersTooLarge);
            }
            let whole = buf.get(range.clone()).unwrap_or_default();
            if self.strictness == Strictness::Request && !line::ends_in_crlf(whole) {
                return Err(ChunkError::InvalidTrailer);
            }
            let text = line::without_end(whole);
            if text.is_empty() {
                let block = buf.split_to(range.end).freeze();
                let trailers = self.spans.iter().map(|span| span.to_field(&block));
                return Ok(ChunkEvent::End {
                    trailers: trailers.collect(),
                });
            }
            self.handle_trailer(text, range.start)?;
        }
        if buf.len() >= self.limits.total {
            Err(ChunkError::TrailersTooLarge)
        } else {
            Ok(ChunkEvent::NeedMore)
        }
    }

    fn handle_trailer(&mut self, text: &[u8], start: usize) -> Result<(), ChunkError> {
        let parsed = line::parse_field_line(text).map_err(|_| ChunkError::InvalidTrailer)?;
        // A client's odd names are dropped, as in its head.
        if self.strictness == Strictness::Request && parsed.kind != NameKind::Plain {
            return Ok(());
        }
        if self.spans.len() >= self.limits.fields {
            return Err(ChunkError::TrailersTooLarge);
        }
        let known = Known::of(text.get(..parsed.name_len).unwrap_or_default());
        let span = Span::new(start, &parsed, known).ok_or(ChunkError::InvalidTrailer)?;
        self.spans.push(span);
        Ok(())
    }
}

/// Adds one more digit to a size.
fn push_digit(size: u64, digits: u8, value: u64) -> Result<State, ChunkError> {
    let size = size
        .checked_mul(16)
        .and_then(|size| size.checked_add(value));
    match size {
        Some(size) if digits < DIGITS_MAX && size <= i64::MAX as u64 => Ok(State::Size {
            size,
            digits: digits + 1,
        }),
        _ => Err(ChunkError::SizeTooLarge),
    }
}

/// A byte of an extension. Controls are refused, a bare LF among them.
fn in_extension(byte: u8, size: u64, skipped: u32) -> Result<State, ChunkError> {
    match byte {
        b'\r' => Ok(State::SizeLf { size }),
        b'\t' | 0x20..=0x7e | 0x80.. if skipped < EXTENSION_MAX => Ok(State::Extension {
            size,
            skipped: skipped + 1,
        }),
        b'\t' | 0x20..=0x7e | 0x80.. => Err(ChunkError::ExtensionTooLong),
        _ => Err(ChunkError::InvalidExtension),
    }
}

fn hex_value(byte: u8) -> Option<u64> {
    match byte {
        b'0'..=b'9' => Some(u64::from(byte - b'0')),
        b'a'..=b'f' => Some(u64::from(byte - b'a') + 10),
        b'A'..=b'F' => Some(u64::from(byte - b'A') + 10),
        _ => None,
    }
}

/// The line before the data of a chunk.
#[derive(Clone, Copy, Debug)]
pub struct ChunkHead {
    /// The line stands at the end: up to 16 digits, CR, LF.
    bytes: [u8; 18],
    start: u8,
}

impl AsRef<[u8]> for ChunkHead {
    fn as_ref(&self) -> &[u8] {
        self.bytes
            .get(usize::from(self.start)..)
            .unwrap_or_default()
    }
}

/// Makes the line before `len` bytes of data. `len` must not be zero, which would end the body.
#[must_use]
pub fn chunk_head(len: u64) -> ChunkHead {
    debug_assert!(len > 0, "an empty chunk is the last one");
    let mut bytes = *b"0000000000000000\r\n";
    let mut left = len;
    let mut start = 16;
    for at in (0..16).rev() {
        if left == 0 {
            break;
        }
        // Masked to the sixteen digits; `at` is below 18.
        bytes[at] = b"0123456789abcdef"[(left & 15) as usize];
        left >>= 4;
        start = at as u8;
    }
    ChunkHead { bytes, start }
}

/// Writes the last chunk with its trailers.
pub fn write_last_chunk(out: &mut BytesMut, trailers: &Fields) {
    out.put_slice(b"0\r\n");
    for field in trailers {
        super::encode::write_field(out, &field.name, &field.value);
    }
    out.put_slice(b"\r\n");
}

#[cfg(test)]
mod tests;
