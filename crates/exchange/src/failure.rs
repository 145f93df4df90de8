//! Failures of a request, and the one table that turns them into answers.
//!
//! A handler returns a [`Failure`] up to the phase loop; this file alone says which status the
//! client gets and at which level the failure is logged. Whether another peer may be tried is
//! decided where the peers are (`upstream/next.rs`), from [`UpstreamFailure::kind`].

pub mod told;

use std::io;

use millpond_semantics::proxy_status::ProxyError;
use millpond_system::log::error::Level;

/// Status of an answer that is none: the connection is closed instead (nginx: `return 444`).
pub const CLOSE_WITHOUT_ANSWER: u16 = 444;

/// Status that is logged of a request whose client has left before it was answered.
pub const CLIENT_LEFT: u16 = 499;

/// The reason why a client cannot be served further.
#[derive(Debug, thiserror::Error)]
pub enum ClientGone {
    /// Silence for too long.
    #[error("client timed out")]
    TimedOut,
    /// Its connection was closed to make room for another.
    #[error("connection closed to make room for others")]
    Displaced,
    /// An end of the connection before the end of its request.
    #[error("client prematurely closed connection")]
    Closed,
    /// The socket failed.
    #[error("client connection failed: {0}")]
    Io(io::Error),
}

/// The reason why a request was not answered by its handler.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The handler chose a status (`return 404`, access denied, no such file).
    #[error("status {0}")]
    Status(u16),
    /// The request itself is wrong.
    #[error("{message}")]
    Request {
        /// 400, 413, 414 …
        status: u16,
        /// Text that says what is wrong.
        message: String,
    },
    /// The client is gone.
    #[error(transparent)]
    Client(#[from] ClientGone),
    /// No upstream could answer.
    #[error(transparent)]
    Upstream(#[from] UpstreamFailure),
    /// A file of ours failed.
    #[error("{0}")]
    Disk(io::Error),
    /// A limit of ours was reached, or a configuration that cannot work for this request.
    #[error("{0}")]
    Internal(String),
}

/// Kind of failure of a peer; the words of `proxy_next_upstream`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UpstreamKind {
    /// Connecting, sending or reading failed.
    Error,
    /// The peer took too long.
    Timeout,
    /// The answer was not HTTP.
    InvalidHeader,
    /// No live peer was left.
    NoLive,
    /// No socket of ours could be had, or not with the address that it is to have; no peer is to
    /// blame.
    NoSocket,
}

impl UpstreamKind {
    /// The error that clients are told of, if no more is known.
    fn usual_error(self) -> ProxyError {
        match self {
            UpstreamKind::Error => ProxyError::ConnectionTerminated,
            UpstreamKind::Timeout => ProxyError::ReadTimeout,
            UpstreamKind::InvalidHeader => ProxyError::HttpProtocol,
            UpstreamKind::NoLive => ProxyError::DestinationUnavailable,
            UpstreamKind::NoSocket => ProxyError::Internal,
        }
    }
}

/// A failed exchange with an upstream.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{message}")]
pub struct UpstreamFailure {
    /// Kind of the failure.
    pub kind: UpstreamKind,
    /// Gravity of the failure to the operator.
    pub level: Level,
    /// In nginx's words, with the peer.
    pub message: String,
    /// Kind of the failure, as clients are told of it.
    pub error: ProxyError,
}

impl UpstreamFailure {
    /// One of the usual level.
    pub fn new(kind: UpstreamKind, message: impl Into<String>) -> Self {
        UpstreamFailure {
            kind,
            level: Level::Error,
            message: message.into(),
            error: kind.usual_error(),
        }
    }

    /// The same, told as another kind of error than is usual for it.
    pub fn told_as(self, error: ProxyError) -> Self {
        UpstreamFailure { error, ..self }
    }
}

impl Failure {
    /// A malformed request.
    pub fn bad_request(message: impl Into<String>) -> Self {
        Failure::Request {
            status: 400,
            message: message.into(),
        }
    }

    /// A body over `client_max_body_size`.
    pub fn too_large(message: impl Into<String>) -> Self {
        Failure::Request {
            status: 413,
            message: message.into(),
        }
    }

    /// A failing file of ours.
    pub fn disk(error: io::Error) -> Self {
        Failure::Disk(error)
    }

    /// The status that the client is answered with (444 and 499 close without an answer).
    pub fn status(&self) -> u16 {
        match self {
            Failure::Status(status) | Failure::Request { status, .. } => *status,
            Failure::Client(ClientGone::TimedOut | ClientGone::Displaced) => 408,
            Failure::Client(ClientGone::Closed) => 400,
            Failure::Client(ClientGone::Io(_)) => 499,
            Failure::Upstream(failure) => match failure.kind {
                UpstreamKind::Timeout => 504,
                UpstreamKind::Error | UpstreamKind::InvalidHeader | UpstreamKind::NoLive => 502,
                UpstreamKind::NoSocket => 500,
            },
            Failure::Disk(_) | Failure::Internal(_) => 500,
        }
    }

    /// The level it is logged at; `None` for what is no event (the handler chose a status).
    pub fn level(&self) -> Option<Level> {
        match self {
            Failure::Status(_) => None,
            Failure::Request { status: 413, .. } => Some(Level::Error),
            Failure::Request { .. } | Failure::Client(_) => Some(Level::Info),
            Failure::Upstream(failure) => Some(failure.level),
            Failure::Disk(_) => Some(Level::Crit),
            Failure::Internal(_) => Some(Level::Error),
        }
    }
}
