//! HTTP/1 without I/O: bytes go in, heads and body pieces come out, and the other way round.
//!
//! ```text
//! client  ── BytesMut ──► request::RequestParser ──► RequestHead ──► framing ──┐
//!                         chunked::ChunkedDecoder ◄── body bytes ◄─────────────┘
//! upstream ─ BytesMut ──► response::ResponseParser ─► ResponseHead ─► framing ─► …
//! encode::{response head, request head}, chunked::{chunk head, last chunk} ──► BytesMut
//! ```
//!
//! Every parser is called with all bytes that have come and not been consumed, says whether it
//! needs more, and remembers how far it has looked.
//!
//! 1. A parser never looks at the same byte of an unfinished line twice when it searches the end
//!    of a line, so a peer that sends byte by byte costs no more than one that does not.
//! 2. The result does not depend on how the input was cut into pieces.
//! 3. Nothing is consumed from the buffer before a head or a piece of a body is complete, except
//!    empty lines before a request; then exactly its bytes are.
//! 4. No input makes a parser panic, loop, or keep more than its limits allow.
//! 5. A message whose length two parties could read differently is refused, never repaired.
//!
//! What it does not do: sockets, clocks, decoding of URIs, choosing servers, deciding what to
//! answer. HTTP/2 is elsewhere.
//!
//! Sources: RFC 9112; RFC 9110 §5, §7.6, §8.6; the behaviour of nginx 1.31 where the RFCs leave
//! room or where configurations rely on it. Each departure from nginx is named where it is made.

pub mod chunked;
pub mod encode;
pub mod host;
mod line;
pub mod method;
pub mod request;
pub mod response;
mod seek;

pub use method::Method;

/// The version of a message, as far as it matters for what follows from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Version {
    /// A request of one line, answered by a body without a head.
    Http09,
    /// HTTP/1.0.
    Http10,
    /// HTTP/1.1, and any later minor version.
    Http11,
}

impl Version {
    /// The version as it is written in a message.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Version::Http09 => "HTTP/0.9",
            Version::Http10 => "HTTP/1.0",
            Version::Http11 => "HTTP/1.1",
        }
    }
}

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
