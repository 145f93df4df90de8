//! The bytes of a body out of the bytes of a connection.

use bytes::{Buf, BytesMut};

use super::fault::Fault;
use super::head::Framing;

/// The longest line before a chunk, extensions included.
const LINE_MAX: usize = 4096;

/// Progress in a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Number of bytes that are left.
    Left(u64),
    /// Number of bytes that are left of a chunk.
    Chunk(u64),
    /// A line with the length of a chunk comes.
    ChunkLine,
    /// The end of the line behind a chunk comes.
    ChunkEnd,
    /// Lines behind the last chunk come.
    Trailer,
    /// All that comes is body.
    Close,
    /// The body is over.
    Over,
}

/// Finds the bytes of one body.
#[derive(Debug)]
pub(super) struct Body {
    state: State,
}

/// Next step of reading a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// Number of bytes of body at the beginning of the buffer.
    Bytes(usize),
    /// More must be read.
    Read,
    /// The body is over.
    Over,
}

impl Body {
    pub(super) fn new(framing: Framing) -> Self {
        let state = match framing {
            Framing::Empty | Framing::Length(0) => State::Over,
            Framing::Length(length) => State::Left(length),
            Framing::Chunked => State::ChunkLine,
            Framing::Close | Framing::Stream => State::Close,
        };
        Self { state }
    }

    /// Looks at what was read. Bytes that are told must be taken from `buf` before the next call.
    pub(super) fn next(&mut self, buf: &mut BytesMut) -> Result<Next, Fault> {
        loop {
            let there = buf.len();
            let part = |left: u64| there.min(usize::try_from(left).unwrap_or(usize::MAX));
            match self.state {
                State::Over => return Ok(Next::Over),
                _ if there == 0 => return Ok(Next::Read),
                State::Close => return Ok(Next::Bytes(there)),
                State::Left(left) => {
                    let part = part(left);
                    self.state = match left - part as u64 {
                        0 => State::Over,
                        left => State::Left(left),
                    };
                    return Ok(Next::Bytes(part));
                }
                State::Chunk(left) => {
                    let part = part(left);
                    self.state = match left - part as u64 {
                        0 => State::ChunkEnd,
                        left => State::Chunk(left),
                    };
                    return Ok(Next::Bytes(part));
                }
                State::ChunkLine | State::ChunkEnd | State::Trailer => {
                    let Some(line) = line(buf)? else {
                        return Ok(Next::Read);
                    };
                    self.state = after(self.state, &line)?;
                }
            }
        }
    }

    /// True if the end of the connection is the end of the body.
    pub(super) fn may_end(&self) -> bool {
        matches!(self.state, State::Close | State::Over)
    }
}

/// Takes a line from the buffer, if all of it is there.
fn line(buf: &mut BytesMut) -> Result<Option<Vec<u8>>, Fault> {
    let Some(end) = buf.iter().take(LINE_MAX).position(|byte| *byte == b'\n') else {
        return if buf.len() < LINE_MAX {
            Ok(None)
        } else {
            Err(Fault::Chunked)
        };
    };
    let line = buf.split_to(end).to_vec();
    buf.advance(1);
    Ok(Some(
        line.strip_suffix(b"\r").map(<[u8]>::to_vec).unwrap_or(line),
    ))
}

/// The state behind a line (RFC 9112, section 7.1).
fn after(state: State, line: &[u8]) -> Result<State, Fault> {
    match state {
        State::ChunkEnd if line.is_empty() => Ok(State::ChunkLine),
        State::ChunkEnd => Err(Fault::Chunked),
        State::Trailer if line.is_empty() => Ok(State::Over),
        State::Trailer => Ok(State::Trailer),
        _ => {
            let digits = line.split(|byte| *byte == b';').next().unwrap_or_default();
            let digits = std::str::from_utf8(digits)
                .map_err(|_| Fault::Chunked)?
                .trim();
            match u64::from_str_radix(digits, 16).map_err(|_| Fault::Chunked)? {
                0 => Ok(State::Trailer),
                length => Ok(State::Chunk(length)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The body of what arrives in pieces of every length.
    fn decoded(framing: Framing, bytes: &[u8]) -> Result<Vec<u8>, Fault> {
        let mut all = Vec::new();
        for step in 1..=bytes.len() {
            let (mut body, mut buf, mut out) = (Body::new(framing), BytesMut::new(), Vec::new());
            let mut pieces = bytes.chunks(step);
            loop {
                match body.next(&mut buf)? {
                    Next::Bytes(count) => out.extend_from_slice(&buf.split_to(count)),
                    Next::Over => break,
                    Next::Read => match pieces.next() {
                        Some(piece) => buf.extend_from_slice(piece),
                        None => break,
                    },
                }
            }
            assert!(body.may_end());
            all.push(out);
        }
        assert!(all.windows(2).all(|pair| pair[0] == pair[1]));
        Ok(all.remove(0))
    }

    #[test]
    fn a_body_is_the_same_however_it_arrives() {
        for (framing, bytes) in [
            (Framing::Length(5), "hello"),
            (Framing::Close, "hello"),
            (
                Framing::Chunked,
                "2\r\nhe\r\n3;x=y\r\nllo\r\n0\r\nA: b\r\n\r\n",
            ),
        ] {
            assert_eq!(decoded(framing, bytes.as_bytes()).expect("right"), b"hello");
        }
    }

    #[test]
    fn a_broken_coding_is_a_fault() {
        for bytes in ["x\r\n", "2\r\nhel\r\n", "-2\r\nhe\r\n"] {
            assert!(
                decoded(Framing::Chunked, bytes.as_bytes()).is_err(),
                "{bytes}"
            );
        }
    }
}
