//! Records: the unit of everything that is said on a FastCGI connection.
//!
//! | offset | size | name | meaning |
//! |---|---|---|---|
//! | 0 | 1 | version | always 1 |
//! | 1 | 1 | kind | BEGIN_REQUEST 1, END_REQUEST 3, PARAMS 4, STDIN 5, STDOUT 6, STDERR 7 |
//! | 2 | 2 | id | of the request, big endian; always 1 here |
//! | 4 | 2 | content length | big endian |
//! | 6 | 1 | padding length | |
//! | 7 | 1 | reserved | |
//! | 8 | | content, then padding | |
//!
//! PARAMS, STDIN, STDOUT and STDERR are streams: pieces in any number of records, ended by an empty
//! one. Ours have no padding, which the specification leaves to the sender.
//!
//! ```text
//! Head ──8 bytes──► Content(kind) ──► Padding ──► Head …
//!   └── wrong version, kind or id ──► Fault            └── after END_REQUEST ──► Ended
//! ```

use bytes::{BufMut, Bytes, BytesMut};

/// Bytes before the content of a record.
pub(crate) const HEAD_LEN: usize = 8;

/// The most content that we put in one record (arbitrary: nginx's, and half of what fits).
pub const CONTENT_MAX: usize = 32 * 1024;

const VERSION: u8 = 1;

/// Records that are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sent {
    /// Begins a request.
    BeginRequest = 1,
    /// The parameters of the request.
    Params = 4,
    /// The body of the request.
    Stdin = 5,
}

/// The application's duty after the answer: to close the connection or to keep it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AfterAnswer {
    /// The application closes the connection.
    Close,
    /// The application waits for the next request.
    Keep,
}

/// The bytes before `len` bytes of content; at most [`CONTENT_MAX`] are meant.
#[must_use]
pub fn record_head(kind: Sent, len: u16) -> [u8; HEAD_LEN] {
    let [high, low] = len.to_be_bytes();
    [VERSION, kind as u8, 0, 1, high, low, 0, 0]
}

/// Writes the record that begins a request: the application answers it as a responder.
pub fn write_begin(out: &mut BytesMut, after: AfterAnswer) {
    const RESPONDER: u8 = 1;
    let flags = match after {
        AfterAnswer::Close => 0,
        AfterAnswer::Keep => 1,
    };
    out.put_slice(&record_head(Sent::BeginRequest, 8));
    out.put_slice(&[0, RESPONDER, flags, 0, 0, 0, 0, 0]);
}

/// Writes a whole stream, its end included.
pub fn write_stream(out: &mut BytesMut, kind: Sent, content: &[u8]) {
    for piece in content.chunks(CONTENT_MAX) {
        // At most `CONTENT_MAX`, which fits.
        out.put_slice(&record_head(kind, piece.len() as u16));
        out.put_slice(piece);
    }
    out.put_slice(&record_head(kind, 0));
}

/// The reason why what came is no FastCGI. The text is what the error log says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// The record has another version.
    #[error("upstream sent unsupported FastCGI protocol version: {0}")]
    Version(u8),
    /// A kind that no application sends.
    #[error("upstream sent invalid FastCGI record type: {0}")]
    Kind(u8),
    /// The record belongs to another request.
    #[error("upstream sent unexpected FastCGI request id: {0}")]
    Id(u16),
}

/// The result of one call of the decoder of records.
#[derive(Debug, PartialEq, Eq)]
pub enum Event {
    /// More bytes are needed.
    NeedMore,
    /// A piece of the answer, never empty.
    Stdout(Bytes),
    /// The answer is over; END_REQUEST follows.
    StdoutEnd,
    /// Bytes of the application's error stream: the content of one record.
    Stderr(Bytes),
    /// The request is over; all later calls say the same.
    EndRequest,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    EndRequest,
    Stdout,
    Stderr,
}

/// The decoder's position, and the bytes of the record that are still to come.
#[derive(Clone, Copy, Debug)]
enum State {
    Head,
    Content { kind: Kind, left: u16, padding: u8 },
    Padding { kind: Kind, left: u8 },
    Ended,
}

/// Decodes what an application sends for one request.
#[derive(Debug)]
pub struct RecordDecoder {
    state: State,
}

impl Default for RecordDecoder {
    fn default() -> Self {
        Self { state: State::Head }
    }
}

impl RecordDecoder {
    /// A decoder at the begin of an answer.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Goes on with what is in `buf`, and takes what it understood from it.
    ///
    /// # Errors
    /// The bytes are no record for us; the decoder is of no use any more.
    pub fn decode(&mut self, buf: &mut BytesMut) -> Result<Event, Fault> {
        // Each round but the last takes bytes from the buffer or changes the state for good.
        loop {
            match self.state {
                State::Head => match Self::take_head(buf)? {
                    Some(state) => self.state = state,
                    None => return Ok(Event::NeedMore),
                },
                State::Content {
                    kind,
                    left,
                    padding,
                } => {
                    if let Some(event) = self.take_content(buf, kind, (left, padding)) {
                        return Ok(event);
                    }
                }
                State::Padding { kind, left } => {
                    let count = buf.len().min(usize::from(left));
                    let _ = buf.split_to(count);
                    // `count` is at most `left`.
                    let left = left - count as u8;
                    self.state = match (left, kind) {
                        (0, Kind::EndRequest) => State::Ended,
                        (0, _) => State::Head,
                        _ => State::Padding { kind, left },
                    };
                    if left > 0 {
                        return Ok(Event::NeedMore);
                    }
                }
                State::Ended => return Ok(Event::EndRequest),
            }
        }
    }

    fn take_head(buf: &mut BytesMut) -> Result<Option<State>, Fault> {
        let Some(&[version, kind, id_high, id_low, high, low, padding, _]) =
            buf.first_chunk::<HEAD_LEN>()
        else {
            return Ok(None);
        };
        if version != VERSION {
            return Err(Fault::Version(version));
        }
        let kind = match kind {
            3 => Kind::EndRequest,
            6 => Kind::Stdout,
            7 => Kind::Stderr,
            other => return Err(Fault::Kind(other)),
        };
        match u16::from_be_bytes([id_high, id_low]) {
            1 => {}
            other => return Err(Fault::Id(other)),
        }
        let _ = buf.split_to(HEAD_LEN);
        Ok(Some(State::Content {
            kind,
            left: u16::from_be_bytes([high, low]),
            padding,
        }))
    }

    /// Takes content; `None` when the state has changed and nothing is to be told.
    fn take_content(
        &mut self,
        buf: &mut BytesMut,
        kind: Kind,
        (left, padding): (u16, u8),
    ) -> Option<Event> {
        let after = State::Padding {
            kind,
            left: padding,
        };
        match kind {
            Kind::Stdout if left == 0 => {
                self.state = after;
                Some(Event::StdoutEnd)
            }
            Kind::Stdout if buf.is_empty() => Some(Event::NeedMore),
            Kind::Stdout => {
                let bytes = buf.split_to(buf.len().min(usize::from(left))).freeze();
                // The piece is no longer than `left`.
                self.state = match left - bytes.len() as u16 {
                    0 => after,
                    left => State::Content {
                        kind,
                        left,
                        padding,
                    },
                };
                // A record that ended is not looked at again: an empty rest would be the end.
                Some(Event::Stdout(bytes))
            }
            // These are taken whole, so that a message is one, however it came.
            Kind::Stderr | Kind::EndRequest if buf.len() < usize::from(left) => {
                Some(Event::NeedMore)
            }
            Kind::Stderr | Kind::EndRequest => {
                let content = buf.split_to(usize::from(left)).freeze();
                self.state = after;
                (kind == Kind::Stderr && !content.is_empty()).then_some(Event::Stderr(content))
            }
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
