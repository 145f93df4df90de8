//! What was learnt of a request's exchanges with upstreams, for `$upstream_*` variables.
//!
//! A request may try several peers, and go through several upstreams by internal redirection; each
//! try is an [`Attempt`], and variables join them with ", " and " : " as nginx does.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use millpond_cache::reason::Account;

use crate::header::Fields;

/// One try with one peer.
#[derive(Clone, Debug, Default)]
pub struct Attempt {
    /// The peer's address as configured or resolved; the group's name when none was live.
    pub peer: String,
    /// Status of its answer; 502 or 504 when it failed; 0 while unknown.
    pub status: u16,
    /// Time to connect.
    pub connect: Option<Duration>,
    /// Time to the answer's head.
    pub header: Option<Duration>,
    /// Time to the end of the answer.
    pub response: Option<Duration>,
    /// Bytes of the answer's body.
    pub body_bytes: u64,
    /// Bytes received, head included.
    pub bytes_received: u64,
    /// Bytes sent.
    pub bytes_sent: u64,
    /// True when the request went on to another upstream after this one (internal redirect): the
    /// log separates with a colon.
    pub ends_group: bool,
}

/// All exchanges of one request.
#[derive(Clone, Debug, Default)]
pub struct UpstreamTrace {
    /// The authority that requests name (`$proxy_host`), as it is passed to.
    pub host: Option<Arc<str>>,
    /// Its port.
    pub port: u16,
    /// In order.
    pub attempts: Vec<Attempt>,
    /// Fields of the last answer, or of the cached head that was served.
    pub fields: Option<Rc<Fields>>,
    /// Trailer fields of the last answer.
    pub trailers: Option<Rc<Fields>>,
    /// The Last-Modified and ETag of the stale entry that is being revalidated.
    pub validators: (Option<Bytes>, Option<Bytes>),
    /// The Set-Cookie field that binds the client to the last peer.
    pub sticky_cookie: Option<Bytes>,
    /// `$upstream_cache_status`.
    pub cache_status: Option<&'static str>,
    /// What the cache did and why.
    pub account: Account,
}
