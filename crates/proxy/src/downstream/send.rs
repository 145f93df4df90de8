//! `send_timeout`, `limit_rate`, `limit_rate_after`, `sendfile`, `sendfile_max_chunk`: answers as
//! every wire sends them.
//!
//! An answer is planned without its wire: whether it has a body, how fast it may go, and the words
//! of its head. Chunks and frames are the wire's business.

use std::time::Duration;

use bytes::Bytes;
use millpond_conf::value::SizeTemplate;
use millpond_conf::{ByteSize, Offset};
use millpond_system::backlog::Backlog;
use millpond_system::body::{Body, BodyError, FILE_READ_SIZE};
use millpond_system::clock::{self, Instant};

use super::client::Client;
use crate::failure::ClientGone;
use crate::response::tokens::Tokens;
use millpond_wire::header::Fields;

/// Settings of the sending of answers.
#[derive(Clone, Debug, millpond_conf::Family)]
#[family(http, server, location, if_location)]
pub struct SendPolicy {
    /// The time between two successful writes to a client, after which the connection is closed.
    #[directive(
        name = "send_timeout",
        default = "60s",
        contexts(http, server, location)
    )]
    pub timeout: Duration,
    /// Limits the rate of an answer, in bytes a second; 0 means no limit. The limit is for one
    /// request.
    #[directive(name = "limit_rate")]
    pub rate: Option<SizeTemplate>,
    /// Bytes of an answer that are sent before `limit_rate` begins to act.
    #[directive(name = "limit_rate_after")]
    pub rate_after: Option<SizeTemplate>,
    /// Lets the kernel send files from the page cache without a copy in this process.
    #[directive(name = "sendfile", default = "off")]
    pub sendfile: bool,
    /// The most that one `sendfile` call sends, so that one fast client does not hold a worker; 0:
    /// no limit.
    #[directive(
        name = "sendfile_max_chunk",
        default = "2m",
        contexts(http, server, location)
    )]
    pub sendfile_max_chunk: ByteSize,
    /// Data of less than this many bytes may be held back until more comes.
    ///
    /// # Differs from nginx
    ///
    /// What is ready is sent at once and nothing is held back; the value is only checked.
    #[directive(
        name = "postpone_output",
        default = "1460",
        contexts(http, server, location)
    )]
    pub postpone_output: Offset,
}

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
pub(super) async fn rate_allowance(
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
