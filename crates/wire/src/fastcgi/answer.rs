//! The body of an application's answer: what comes on STDOUT after the head.
//!
//! A Content-Length that the head announced is held to: what comes beyond it is dropped, and an
//! answer that ends before it is truncated. Without one the body ends with the stream.
//!
//! ```text
//! Data … ──► end of STDOUT ──► END_REQUEST ──► End(Clean)
//!   └── more than announced ──► End(Excess)  └── fewer bytes than announced ──► Truncated
//! ```
//!
//! 1. A connection that closes before the end of STDOUT, with no length that was reached, is a
//!    truncated answer. nginx takes it for a whole one; an application that crashes would have its
//!    half page cached.

use bytes::{Bytes, BytesMut};

use super::record::{Event, Fault, RecordDecoder};

/// The length of a body, as far as the head of the answer announces one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expected {
    /// The head announces none.
    Any,
    /// The head announces so many bytes.
    Exactly(u64),
    /// The answer to HEAD: nothing, or as many bytes as announced if any.
    NoneOr(Option<u64>),
}

/// The result of one call of the decoder of a body.
#[derive(Debug, PartialEq, Eq)]
pub enum BodyEvent {
    /// More bytes are needed.
    NeedMore,
    /// A piece, never empty.
    Data(Bytes),
    /// Bytes of the application's error stream.
    Stderr(Bytes),
    /// The end.
    End(BodyEnd),
}

/// The end of a body: clean, or with more bytes than were announced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyEnd {
    /// The request is over; the connection may serve another.
    Clean,
    /// More came than was announced; the connection is not to be used again.
    Excess,
}

/// A body that cannot be read on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BodyFault {
    /// The bytes that came are no FastCGI.
    #[error(transparent)]
    Record(#[from] Fault),
    /// The body ended before its announced end.
    #[error("upstream prematurely closed FastCGI stdout")]
    Truncated,
}

/// Reads a body.
#[derive(Debug)]
pub struct StdoutBody {
    decoder: RecordDecoder,
    /// Bytes of the body that came together with the head.
    first: Bytes,
    expected: Expected,
    has_ended: bool,
}

impl StdoutBody {
    /// The body after a head; `first` is what came of the body already.
    #[must_use]
    pub fn new(decoder: RecordDecoder, first: Bytes) -> Self {
        StdoutBody {
            decoder,
            first,
            expected: Expected::Any,
            has_ended: false,
        }
    }

    /// Sets what is to come, before anything was read.
    pub fn expect(&mut self, expected: Expected) {
        self.expected = expected;
    }

    /// True when all of the body has come, and only the end of the request is waited for.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.has_ended || self.expected == Expected::Exactly(0)
    }

    /// The length that was announced, as far as it has not come.
    #[must_use]
    pub fn left(&self) -> Option<u64> {
        match self.expected {
            Expected::Exactly(left) => Some(left),
            Expected::Any | Expected::NoneOr(_) => None,
        }
    }

    /// Goes on with what is in `buf`.
    ///
    /// # Errors
    /// No FastCGI, or too short.
    pub fn next(&mut self, buf: &mut BytesMut) -> Result<BodyEvent, BodyFault> {
        if !self.first.is_empty() {
            let first = std::mem::take(&mut self.first);
            return Ok(self.take(first));
        }
        // Each round takes a record's end from the buffer.
        loop {
            return Ok(match self.decoder.decode(buf)? {
                Event::NeedMore => BodyEvent::NeedMore,
                Event::Stdout(bytes) => self.take(bytes),
                Event::Stderr(message) => BodyEvent::Stderr(message),
                Event::StdoutEnd => {
                    self.check_end()?;
                    self.has_ended = true;
                    continue;
                }
                Event::EndRequest => {
                    self.check_end()?;
                    BodyEvent::End(BodyEnd::Clean)
                }
            });
        }
    }

    fn check_end(&self) -> Result<(), BodyFault> {
        match self.expected {
            Expected::Exactly(1..) => Err(BodyFault::Truncated),
            _ => Ok(()),
        }
    }

    fn take(&mut self, mut bytes: Bytes) -> BodyEvent {
        if let Expected::NoneOr(length) = self.expected {
            self.expected = length.map_or(Expected::Any, Expected::Exactly);
        }
        let Expected::Exactly(left) = self.expected else {
            return BodyEvent::Data(bytes);
        };
        if left == 0 {
            return BodyEvent::End(BodyEnd::Excess);
        }
        let rest = left.saturating_sub(bytes.len() as u64);
        if rest == 0 {
            // No longer than the piece.
            let excess = bytes.split_off(left as usize);
            // The next call reports it.
            self.first = excess;
        }
        self.expected = Expected::Exactly(rest);
        BodyEvent::Data(bytes)
    }
}

#[cfg(test)]
mod tests;
