//! Versions of HTTP, as far as one matters for what follows from it.
//!
//! 1. Versions compare by age: what came with HTTP/1.1 is there in every later one.
//!
//! Requests say their version; what an answer says is its encoder's business.

/// The version of a message, as far as it matters for what follows from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Version {
    /// A request of one line, answered by a body without a head.
    Http09,
    /// HTTP/1.0.
    Http10,
    /// HTTP/1.1, and any later minor version.
    Http11,
    /// HTTP/2.
    Http2,
    /// HTTP/3.
    Http3,
}

impl Version {
    /// The version as it is written in a message, or in a log for one that writes none.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Version::Http09 => "HTTP/0.9",
            Version::Http10 => "HTTP/1.0",
            Version::Http11 => "HTTP/1.1",
            // nginx: with a minor version, for all that there is none.
            Version::Http2 => "HTTP/2.0",
            Version::Http3 => "HTTP/3.0",
        }
    }
}
