//! memcached's text protocol without I/O: the request for a value, and its answer.
//!
//! ```text
//! "get " key CR LF
//! "VALUE " key " " flags " " length CR LF value CR LF "END" CR LF     it is there
//! "END" CR LF                                                         it is not
//! ```
//!
//! One request with one key is on a connection at a time.
//!
//! 1. What comes out does not depend on how the input was cut into pieces.
//! 2. No input makes a reader panic or loop; it keeps nothing but what is in the caller's buffer.
//! 3. Nothing behind the announced length is handed out.
//!
//! What it does not do: sockets, the binary protocol, several keys.
//!
//! Source: memcached's protocol.txt; nginx ngx_http_memcached_module.

use bytes::{Buf, Bytes, BytesMut};

use crate::http1::content_length;

/// The begin of a request.
const GET: &[u8] = b"get ";

/// The bytes that follow a value.
const TRAILER: &[u8] = b"\r\nEND\r\n";

/// The begin of a line that announces a value.
const VALUE: &[u8] = b"VALUE ";

/// The line of an answer without a value.
const END: &[u8] = b"END";

/// The line that asks for the value of a key, which has neither spaces nor controls.
#[must_use]
pub fn request(key: &[u8]) -> Bytes {
    Bytes::from([GET, key, b"\r\n"].concat())
}

/// The range of the key in a line of [`request`].
#[must_use]
pub fn key_range(line: &[u8]) -> std::ops::Range<usize> {
    let end = line.len().saturating_sub(2);
    GET.len().min(end)..end
}

/// The facts about a value that are known before its bytes come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ValueHead {
    /// The flags, which clients of memcached use as they like; none if they are no number.
    pub flags: Option<u64>,
    /// Bytes of the value.
    pub length: u64,
}

/// The first line of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// The value follows.
    Value(ValueHead),
    /// The key has no value.
    Nothing,
}

/// An answer that cannot be used; nginx's words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// The line does not end within the limit.
    #[error("upstream sent too big header")]
    TooBig,
    /// The line is none of those that may come.
    #[error("memcached sent invalid response: \"{0}\"")]
    Response(String),
    /// The answer is about another key.
    #[error("memcached sent invalid key in response \"{line}\" for key \"{key}\"")]
    Key {
        /// The line.
        line: String,
        /// The key that was asked for.
        key: String,
    },
    /// The length is no number.
    #[error("memcached sent invalid length in response \"{line}\" for key \"{key}\"")]
    Length {
        /// The line.
        line: String,
        /// The key that was asked for.
        key: String,
    },
}

/// Takes the first line of the answer about a key from the buffer, with the count of its bytes;
/// `None` as long as it is not whole. It may take `max` bytes.
///
/// # Errors
/// The line says nothing about the key.
pub fn read_head(
    buf: &mut BytesMut,
    key: &[u8],
    max: usize,
) -> Result<Option<(Found, usize)>, Fault> {
    let seen = buf.get(..max).unwrap_or(buf);
    let Some(end) = seen.iter().position(|byte| *byte == b'\n') else {
        return if buf.len() < max {
            Ok(None)
        } else {
            Err(Fault::TooBig)
        };
    };
    let line = seen.get(..end).unwrap_or_default();
    let found = parse_line(line, key)?;
    buf.advance(end + 1);
    Ok(Some((found, end + 1)))
}

fn parse_line(line: &[u8], key: &[u8]) -> Result<Found, Fault> {
    let shown = |text: &[u8]| String::from_utf8_lossy(text).trim_end().to_string();
    let invalid = || Fault::Response(shown(line));
    let text = line.strip_suffix(b"\r").ok_or_else(invalid)?;
    if text == END {
        return Ok(Found::Nothing);
    }
    let rest = text.strip_prefix(VALUE).ok_or_else(invalid)?;
    let rest = rest.strip_prefix(key).ok_or_else(|| Fault::Key {
        line: shown(line),
        key: shown(key),
    })?;
    let rest = rest.strip_prefix(b" ").ok_or_else(invalid)?;
    let space = rest.iter().position(|byte| *byte == b' ');
    let (flags, length) = space
        .and_then(|at| rest.split_at_checked(at))
        .ok_or_else(invalid)?;
    let length = length.strip_prefix(b" ").unwrap_or(length);
    let length = content_length(length).ok_or_else(|| Fault::Length {
        line: shown(line),
        key: shown(key),
    })?;
    Ok(Found::Value(ValueHead {
        flags: content_length(flags),
        length,
    }))
}

/// Reads a value and what follows it.
///
/// ```text
/// left > 0 ──► left == 0, trailer to come ──► End(Clean)
///                        └── something else ──► End(Invalid)
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValueBody {
    /// Bytes of the value that are still to come.
    left: u64,
    /// The part of the trailer that is still to follow the value.
    trailer: &'static [u8],
}

/// The result of one call of the decoder of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BodyEvent {
    /// More bytes are needed.
    NeedMore,
    /// A piece, never empty.
    Data(Bytes),
    /// The end.
    End(BodyEnd),
}

/// The end of a value: as it must be, or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyEnd {
    /// The value ended as it must; the connection may serve another request.
    Clean,
    /// The value ended by something else; the connection is not to be used again.
    Invalid,
}

impl ValueBody {
    /// The value that a head announces.
    #[must_use]
    pub fn new(head: ValueHead) -> Self {
        ValueBody {
            left: head.length,
            trailer: TRAILER,
        }
    }

    /// Bytes of the value that are still to come.
    #[must_use]
    pub fn left(&self) -> u64 {
        self.left
    }

    /// Goes on with what is in `buf`.
    pub fn next(&mut self, buf: &mut BytesMut) -> BodyEvent {
        if self.left > 0 {
            let count = self.left.min(buf.len() as u64);
            self.left -= count;
            // No more than the buffer has.
            let bytes = buf.split_to(count as usize).freeze();
            return if bytes.is_empty() {
                BodyEvent::NeedMore
            } else {
                BodyEvent::Data(bytes)
            };
        }
        let count = buf.len().min(self.trailer.len());
        let (expected, rest) = self.trailer.split_at_checked(count).unwrap_or_default();
        if !buf.starts_with(expected) {
            return BodyEvent::End(BodyEnd::Invalid);
        }
        buf.advance(count);
        self.trailer = rest;
        match (rest.is_empty(), buf.is_empty()) {
            (false, _) => BodyEvent::NeedMore,
            (true, true) => BodyEvent::End(BodyEnd::Clean),
            // nginx: what follows the trailer makes it a wrong one.
            (true, false) => BodyEvent::End(BodyEnd::Invalid),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(text: &str, max: usize) -> Result<Option<(Found, usize)>, String> {
        read_head(&mut BytesMut::from(text), b"/k", max).map_err(|fault| fault.to_string())
    }

    fn value(flags: Option<u64>, length: u64) -> Found {
        Found::Value(ValueHead { flags, length })
    }

    #[test]
    fn the_first_line_tells_whether_there_is_a_value() {
        for (text, expected) in [
            ("", None),
            ("VALUE /k 0 8\r", None),
            ("VALUE /k 0 8\r\nrest", Some((value(Some(0), 8), 14))),
            ("VALUE /k 32 0\r\n", Some((value(Some(32), 0), 15))),
            ("VALUE /k x 1\r\n", Some((value(None, 1), 14))),
            ("VALUE /k  1\r\n", Some((value(None, 1), 13))),
            ("END\r\n", Some((Found::Nothing, 5))),
        ] {
            assert_eq!(head(text, 100), Ok(expected), "{text:?}");
        }
    }

    #[test]
    fn other_lines_are_refused_in_nginx_words() {
        let invalid = "memcached sent invalid response: ";
        let key = "memcached sent invalid key in response ";
        let length = "memcached sent invalid length in response ";
        for (text, expected) in [
            ("\n", format!("{invalid}\"\"")),
            ("END\n", format!("{invalid}\"END\"")),
            ("END \r\n", format!("{invalid}\"END\"")),
            ("ERROR\r\n", format!("{invalid}\"ERROR\"")),
            ("VALUE\r\n", format!("{invalid}\"VALUE\"")),
            ("VALUE /kk 0 8\r\n", format!("{invalid}\"VALUE /kk 0 8\"")),
            ("VALUE /k 0\r\n", format!("{invalid}\"VALUE /k 0\"")),
            (
                "VALUE /a 0 8\r\n",
                format!("{key}\"VALUE /a 0 8\" for key \"/k\""),
            ),
            (
                "VALUE /k 0 \r\n",
                format!("{length}\"VALUE /k 0\" for key \"/k\""),
            ),
            (
                "VALUE /k 0 8 1\r\n",
                format!("{length}\"VALUE /k 0 8 1\" for key \"/k\""),
            ),
            (
                "VALUE /k 0 -8\r\n",
                format!("{length}\"VALUE /k 0 -8\" for key \"/k\""),
            ),
        ] {
            assert_eq!(head(text, 100), Err(expected), "{text:?}");
        }
        let huge = format!("VALUE /k 0 {}0\r\n", u64::MAX);
        assert!(head(&huge, 100).is_err());
    }

    #[test]
    fn a_line_that_does_not_end_is_refused_at_the_limit() {
        assert_eq!(head("VALUE /k 0", 11), Ok(None));
        assert_eq!(
            head("VALUE /k 0", 10).unwrap_err(),
            "upstream sent too big header"
        );
        assert_eq!(
            head("END\r\n", 4).unwrap_err(),
            "upstream sent too big header"
        );
        assert_eq!(head("END\r\n", 5), Ok(Some((Found::Nothing, 5))));
    }

    /// All that a body gives of what comes in these pieces, and what is left of the last.
    fn body(length: u64, pieces: &[&str]) -> (String, Option<BodyEnd>) {
        let flags = None;
        let mut body = ValueBody::new(ValueHead { flags, length });
        let (mut buf, mut text) = (BytesMut::new(), String::new());
        for piece in pieces {
            buf.extend_from_slice(piece.as_bytes());
            loop {
                match body.next(&mut buf) {
                    BodyEvent::NeedMore => break,
                    BodyEvent::Data(bytes) => text += str::from_utf8(&bytes).unwrap(),
                    BodyEvent::End(end) => return (text, Some(end)),
                }
            }
        }
        (text, None)
    }

    #[test]
    fn a_value_ends_with_its_trailer_however_it_is_cut() {
        let text = "see\r\nEND\r\n";
        for first in 0..=text.len() {
            for second in first..=text.len() {
                let pieces = [&text[..first], &text[first..second], &text[second..]];
                let expected = ("see".to_string(), Some(BodyEnd::Clean));
                assert_eq!(body(3, &pieces), expected, "{pieces:?}");
            }
        }
        assert_eq!(
            body(0, &["\r\nEND\r\n"]),
            (String::new(), Some(BodyEnd::Clean))
        );
        assert_eq!(body(4, &["see"]), ("see".to_string(), None));
        assert_eq!(body(3, &["see\r\nEND"]), ("see".to_string(), None));
    }

    #[test]
    fn another_trailer_ends_a_value_and_its_connection() {
        for rest in ["x", "\r\nEND\r\nmore", "\r\nEN\r\n", "END\r\n", "\nEND\r\n"] {
            let came = format!("see{rest}");
            let expected = ("see".to_string(), Some(BodyEnd::Invalid));
            assert_eq!(body(3, &[&came]), expected, "{rest:?}");
        }
    }

    #[test]
    fn a_request_names_the_key() {
        let line = request(b"/a%20b");
        assert_eq!(line, "get /a%20b\r\n");
        assert_eq!(line.slice(key_range(&line)), "/a%20b");
        assert_eq!((key_range(b""), key_range(b"get")), (0..0, 1..1));
    }
}
