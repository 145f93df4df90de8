//! `send_timeout`, `limit_rate`, `limit_rate_after`, `sendfile`, `sendfile_max_chunk`: answers as
//! every wire sends them.
//!
//! An answer is planned without its wire: whether it has a body, how fast it may go, and the words
//! of its head. Chunks and frames are the wire's business.

use std::time::Duration;

use bytes::Bytes;
use millpond_system::backlog::Backlog;
use millpond_system::body::{Body, BodyError, FILE_READ_SIZE};
use millpond_system::clock::{self, Instant};

use super::Client;
use crate::failure::ClientGone;
use crate::response::tokens::Tokens;
use millpond_wire::header::Fields;

/// The body of an answer, as far as it is known before it is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyKind {
    /// The answer has none (HEAD, 204, 304).
    None,
    /// Exactly so many bytes.
    Length(u64),
    /// A body that tells its own end.
    Unknown,
}

/// The head of an answer, in the words of no protocol.
#[derive(Clone, Copy, Debug)]
pub struct AnswerHead<'a> {
    /// Status code.
    pub status: u16,
    /// Status code and reason as an upstream wrote them, if they are passed on.
    pub status_text: Option<&'a Bytes>,
    /// Facts that this server names of itself, unless that is hidden.
    pub server: Option<Tokens>,
    /// Wall time of the answer in microseconds, unless it is hidden.
    pub date_us: Option<i64>,
    /// The other fields, without framing.
    pub fields: &'a Fields,
    /// Length of the body that a GET would get, where it is known.
    pub length: Option<u64>,
    /// The body.
    pub body: BodyKind,
}

impl AnswerHead<'_> {
    /// The value of Content-Length, if the answer has one.
    ///
    /// RFC 9110 §8.6: none in 1xx and 204; nginx sends none with 304 either.
    pub fn content_length(&self) -> Option<u64> {
        match self.body {
            BodyKind::None if matches!(self.status, 100..=199 | 204 | 304) => None,
            BodyKind::None | BodyKind::Length(_) => self.length,
            BodyKind::Unknown => None,
        }
    }
}

/// Limits of one answer.
#[derive(Clone, Copy, Debug)]
pub struct SendLimits {
    /// Longest wait for the socket.
    pub timeout: Duration,
    /// Bytes a second; 0 is no limit.
    pub rate: u64,
    /// Bytes before the limit acts.
    pub rate_after: u64,
    /// Most bytes of one `sendfile` call.
    pub file_chunk: u64,
}

/// The reason why an answer was not sent whole.
#[derive(Debug, thiserror::Error)]
pub enum SendError {
    /// The client's fault.
    #[error(transparent)]
    Client(#[from] ClientGone),
    /// The body's source failed.
    #[error(transparent)]
    Body(BodyError),
}

impl From<BodyError> for SendError {
    fn from(error: BodyError) -> Self {
        match error {
            BodyError::ClientLeft => SendError::Client(ClientGone::Closed),
            error => SendError::Body(error),
        }
    }
}

/// Bytes that went out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SentBytes {
    /// Bytes of the head.
    pub head: u64,
    /// Bytes of the body, framing included.
    pub body: u64,
}

impl SentBytes {
    /// The first `count` bytes of an answer with a head of that length.
    pub fn of(count: u64, head_len: u64) -> Self {
        let head = count.min(head_len);
        SentBytes {
            head,
            body: count - head,
        }
    }
}

/// Trailer fields of an answer whose body has ended; gets the body's own.
pub type Trailers<'a> = &'a mut dyn FnMut(Option<Fields>) -> Option<Fields>;

/// An answer whose head is made.
pub struct Outgoing<'a> {
    /// The body; left unread when there is none to send.
    pub body: &'a mut Body,
    /// Limits of its sending.
    pub limits: &'a SendLimits,
    /// Note of how much of the body waits here.
    pub backlog: Option<Backlog>,
    /// Gives the trailer fields.
    pub trailers: Trailers<'a>,
}

/// Number of bytes that may be sent now under a `limit_rate`; waits until it is at least one.
pub async fn rate_allowance(
    client: &Client,
    limits: &SendLimits,
    started: Instant,
    sent: &SentBytes,
) -> Result<u64, ClientGone> {
    loop {
        // nginx: the first second's share is there at once.
        let elapsed_ms = (clock::instant() - started).as_millis() as u64;
        let budget = limits.rate_after + limits.rate * (elapsed_ms / 1000 + 1);
        let allowance = budget.saturating_sub(sent.head + sent.body);
        if allowance > 0 {
            return Ok(allowance.min(limits.rate.max(FILE_READ_SIZE as u64)));
        }
        client
            .pause(Duration::from_millis(1000 - elapsed_ms % 1000))
            .await?;
    }
}
