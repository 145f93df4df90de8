//! Faults that an answer can have.

use std::io;

use crate::content::Wrong;

/// Fault of an answer. Each has a kind, by which it is counted, and a text with the place.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Fault {
    /// The server cannot be connected to.
    #[error("cannot connect: {0}")]
    Connect(io::Error),
    /// TLS was not agreed on: neither is anything sent.
    #[error("no TLS: {0}")]
    Handshake(io::Error),
    /// TLS found something wrong after the handshake: a record that was changed, or an alert.
    #[error("TLS: {0}")]
    Tls(rustls::Error),
    /// HTTP/2 is broken, or the server ended a stream or the connection with an error.
    #[error("HTTP/2: {0}")]
    Http2(String),
    /// Nothing more came in time.
    #[error("no answer within {0:?}")]
    Timeout(std::time::Duration),
    /// The connection ended or broke before the head was there.
    #[error("connection ended before the head: {0}")]
    NoHead(io::Error),
    /// The head is no HTTP.
    #[error("unreadable head: {0}")]
    Head(String),
    /// The status is not one of those that are right.
    #[error("status {0}")]
    Status(u16),
    /// The head lacks a field or has a wrong one.
    #[error("wrong field {name}: {found}, wanted {wanted}")]
    Field {
        /// Name of the field.
        name: &'static str,
        /// Value of the field.
        found: String,
        /// Value that the field must have.
        wanted: String,
    },
    /// The cache status is not the one that is right.
    #[error("cache status {found}, wanted {wanted}")]
    CacheStatus {
        /// Cache status of the answer.
        found: String,
        /// Cache status that the answer must have.
        wanted: String,
    },
    /// The body has bytes that are not its own.
    #[error("{0}")]
    Body(#[from] Wrong),
    /// The body ended too soon.
    #[error("body ended after {got} of {wanted} bytes")]
    Truncated {
        /// Number of bytes that came.
        got: u64,
        /// Number of bytes of the body.
        wanted: u64,
    },
    /// The body is longer than the resource.
    #[error("body is longer than {wanted} bytes")]
    TooLong {
        /// Length that the body must have.
        wanted: u64,
    },
    /// The chunked coding is broken.
    #[error("broken chunked coding")]
    Chunked,
    /// Bytes came that nobody asked for.
    #[error("bytes behind the answer")]
    Behind,
    /// An older version than may be served.
    #[error("generation {found} is too old: {wanted} or later is due")]
    TooOld {
        /// Age of the answer that came.
        found: u64,
        /// The oldest that may come.
        wanted: u64,
    },
}

/// Kinds of faults that are about the bytes of an answer, whatever a cache may or may not do.
pub(crate) const OF_BYTES: &[&str] = &[
    "mixed",
    "shifted",
    "zeros",
    "wrong",
    "truncated",
    "too long",
    "chunked",
    "behind",
    "head",
    "field",
    "tls",
    "http2",
];

impl Fault {
    /// The fault of a connection that ended before a head: by I/O, or because TLS found something
    /// wrong, which is no end.
    pub(super) fn ended(error: io::Error) -> Self {
        match tls_error(&error) {
            Some(wrong) => Self::Tls(wrong),
            None => Self::NoHead(error),
        }
    }

    /// The kind, as a word for counting.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Connect(_) => "connect",
            Self::Handshake(_) => "handshake",
            Self::Tls(_) => "tls",
            Self::Http2(_) => "http2",
            Self::Timeout(_) => "timeout",
            Self::NoHead(_) => "no head",
            Self::Head(_) => "head",
            Self::Status(_) => "status",
            Self::Field { .. } => "field",
            Self::CacheStatus { .. } => "cache status",
            Self::Body(wrong) => wrong.whence.kind(),
            Self::Truncated { .. } => "truncated",
            Self::TooLong { .. } => "too long",
            Self::Chunked => "chunked",
            Self::Behind => "behind",
            Self::TooOld { .. } => "too old",
        }
    }
}

/// The error of TLS inside of one of I/O, if that is what it is.
pub(super) fn tls_error(error: &io::Error) -> Option<rustls::Error> {
    error.get_ref()?.downcast_ref().cloned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_tls_are_no_ends_of_connections() {
        let wrong = io::Error::new(io::ErrorKind::InvalidData, rustls::Error::DecryptError);
        assert_eq!(Fault::ended(wrong).kind(), "tls");
        for error in [
            io::ErrorKind::ConnectionReset.into(),
            io::Error::new(io::ErrorKind::UnexpectedEof, "without close_notify"),
        ] {
            assert_eq!(Fault::ended(error).kind(), "no head");
        }
    }
}
