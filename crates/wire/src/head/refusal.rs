//! The reasons why requests are refused, and with which status.
//!
//! 1. Every refusal has one status, and it is the one that nginx answers with.
//!
//! Error pages and the level of the log are not decided here.

use std::rc::Rc;

use super::RequestHead;
use crate::header::Known;

/// The reason why a request is refused. The text is what the error log says at level `info`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The method has other bytes than capital letters, `_` and `-`.
    #[error("client sent invalid method")]
    InvalidMethod,
    /// The rest of the request line is malformed.
    #[error("client sent invalid request")]
    InvalidRequest,
    /// The major version is 2 or more.
    #[error("client sent invalid version")]
    VersionNotSupported,
    /// A request without a version whose method is not GET.
    #[error("client sent invalid method in HTTP/0.9 request")]
    InvalidMethodHttp09,
    /// The host of an absolute URI is malformed.
    #[error("client sent invalid host in request line")]
    InvalidHostInLine,
    /// The request line does not fit the limits.
    #[error("client sent too long URI")]
    UriTooLong,
    /// A field line, or all of them together, do not fit the limits.
    #[error("client sent too long header line")]
    HeaderTooLarge,
    /// The request has more fields than allowed.
    #[error("client sent too many header lines")]
    TooManyFields,
    /// A field line is malformed.
    #[error("client sent invalid header line")]
    InvalidField,
    /// A field that must be unique came twice.
    #[error("client sent duplicate header line: \"{}\"", .0.canonical())]
    DuplicateField(Known),
    /// The Host field is malformed.
    #[error("client sent invalid host header")]
    InvalidHost,
    /// An HTTP/1.1 request without a Host field.
    #[error("client sent HTTP/1.1 request without \"Host\" header")]
    MissingHost,
    /// The Content-Length field is not a number.
    #[error("client sent invalid \"Content-Length\" header")]
    InvalidLength,
    /// Transfer-Encoding in a version that does not know it.
    #[error("client sent HTTP/1.0 request with \"Transfer-Encoding\" header")]
    EncodingInHttp10,
    /// Content-Length and Transfer-Encoding together.
    #[error("client sent \"Content-Length\" and \"Transfer-Encoding\" headers at the same time")]
    LengthAndEncoding,
    /// A Transfer-Encoding other than exactly `chunked`.
    #[error("client sent unknown \"Transfer-Encoding\"")]
    UnknownEncoding,
    /// The request is CONNECT where it is not served.
    #[error("client sent CONNECT method")]
    ConnectNotAllowed,
    /// A CONNECT that names a protocol that is not served (HTTP/2).
    #[error("client sent CONNECT for an unknown protocol")]
    UnknownProtocol,
    /// CONNECT with a body.
    #[error("client sent CONNECT request with body")]
    ConnectWithBody,
    /// A pseudo field behind a field (HTTP/2).
    #[error("client sent out of order pseudo-headers")]
    LatePseudo,
    /// A pseudo field that is not known (HTTP/2).
    #[error("client sent unknown pseudo-header")]
    UnknownPseudo,
    /// A pseudo field that came twice (HTTP/2).
    #[error("client sent duplicate :{0} header")]
    DuplicatePseudo(&'static str),
    /// A pseudo field without a value (HTTP/2).
    #[error("client sent empty :{0} header")]
    EmptyPseudo(&'static str),
    /// A pseudo field whose value it cannot have (HTTP/2).
    #[error("client sent invalid :{0} header")]
    InvalidPseudo(&'static str),
    /// OPTIONS of the server as a whole, which is well-formed and not served (HTTP/2).
    #[error("client sent OPTIONS without a path")]
    OptionsOfServer,
    /// A pseudo field that is missing (HTTP/2).
    #[error("client sent no :{0} header")]
    MissingPseudo(&'static str),
    /// Neither of the fields that say the host (HTTP/2).
    #[error("client sent neither \":authority\" nor \"Host\" header")]
    NoAuthority,
    /// Two hosts (HTTP/2).
    #[error("client sent \":authority\" and \"Host\" headers with different values")]
    TwoHosts,
    /// A name that no field has (HTTP/2).
    #[error("client sent invalid header name")]
    InvalidName,
    /// A value that no field has (HTTP/2).
    #[error("client sent header with invalid value")]
    InvalidValue,
    /// A field that is about an HTTP/1 connection (HTTP/2).
    #[error("client sent \"{}\" header", .0.canonical())]
    ConnectionField(Known),
    /// A TE field with another word than `trailers` (HTTP/2).
    #[error("client sent invalid \"TE\" header")]
    InvalidTe,
    /// A body that ended before it began (HTTP/2).
    #[error("client prematurely closed stream")]
    PrematureEnd,
    /// TRACE, which is served nowhere.
    #[error("client sent TRACE method")]
    TraceNotAllowed,
}

impl Refusal {
    /// The status for variables and error pages; 494 goes out as 400 (see
    /// [`crate::http1::encode::wire_status`]).
    #[must_use]
    pub fn status(self) -> u16 {
        match self {
            Refusal::VersionNotSupported => 505,
            Refusal::UriTooLong => 414,
            Refusal::HeaderTooLarge | Refusal::TooManyFields => 494,
            // RFC 9220 §3.
            Refusal::UnknownEncoding | Refusal::UnknownProtocol => 501,
            Refusal::ConnectNotAllowed | Refusal::TraceNotAllowed => 405,
            _ => 400,
        }
    }

    /// True if the request is malformed, so that its stream is reset behind the answer (RFC 9113
    /// §8.1.1, RFC 9114 §4.1.2).
    #[must_use]
    pub fn is_malformed(self) -> bool {
        self.status() == 400 && self != Refusal::OptionsOfServer
    }
}

/// A refused request: why, and all that was read of it, for logs and error pages.
#[derive(Debug)]
pub struct Refused {
    /// The reason.
    pub why: Refusal,
    /// The part of the head that was understood before the fault. Its request line is whatever came
    /// up to the first line end; its version is `Http11` unless another one was read.
    pub head: Rc<RequestHead>,
}

impl Refused {
    /// The status to answer with.
    #[must_use]
    pub fn status(&self) -> u16 {
        self.why.status()
    }
}
