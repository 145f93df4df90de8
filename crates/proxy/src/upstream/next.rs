//! `proxy_next_upstream`, `proxy_next_upstream_tries`, `proxy_next_upstream_timeout`: whether
//! another peer is asked.
//!
//! 1. A request that is not idempotent and was sent goes to another peer only with
//!    `non_idempotent`.
//! 2. Nothing is tried again once a byte of the answer went to the client.

use std::time::Duration;

use millpond_conf::{Flags, Words};
use millpond_system::clock::{self, Instant};
use millpond_system::log::error::Level;
use millpond_wire::http1::Method;

use super::group::Group;
use super::peer::Peer;
use crate::log::request_error;
use crate::request::Request;
use millpond_exchange::failure::UpstreamKind;

/// Cause that lets a request go to another peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Words)]
pub enum NextCause {
    /// Connecting, sending or reading failed.
    #[word("error")]
    Error,
    /// The peer took too long.
    #[word("timeout")]
    Timeout,
    /// The answer was no HTTP.
    #[word("invalid_header")]
    InvalidHeader,
    /// 500.
    #[word("http_500")]
    Http500,
    /// 502.
    #[word("http_502")]
    Http502,
    /// 503.
    #[word("http_503")]
    Http503,
    /// 504.
    #[word("http_504")]
    Http504,
    /// 403.
    #[word("http_403")]
    Http403,
    /// 404.
    #[word("http_404")]
    Http404,
    /// 429.
    #[word("http_429")]
    Http429,
    /// Accepted, as by nginx, and no cause of anything.
    #[word("updating")]
    Updating,
    /// Requests that change something, too.
    #[word("non_idempotent")]
    NonIdempotent,
    /// Nothing.
    #[word("off")]
    Off,
}

/// Settings of the tries of other peers.
#[derive(Clone, Debug, millpond_conf::Family)]
#[family(http, server, location, protocols)]
pub struct NextPolicy {
    /// Failures and statuses after which the request goes to the next peer, as long as nothing was
    /// sent to the client.
    #[directive(
        name = "proxy_next_upstream",
        default = "error timeout",
        union,
        only("proxy", "fastcgi", "scgi", "uwsgi", "grpc")
    )]
    pub causes: Flags<NextCause>,
    /// The number of peers that one request may try; 0: all.
    #[directive(
        name = "proxy_next_upstream_tries",
        default = "0",
        contexts(http, server, location, stream, stream_server)
    )]
    pub tries: u32,
    /// The time within which another peer may be tried; 0: any time.
    #[directive(
        name = "proxy_next_upstream_timeout",
        default = "0",
        contexts(http, server, location, stream, stream_server)
    )]
    pub timeout: Duration,
}

/// Counts the tries of one request.
#[derive(Debug)]
pub struct Tries {
    left: usize,
    until: Option<Instant>,
}

impl Tries {
    /// Tries for a group of so many peers.
    pub fn new(policy: &NextPolicy, peers: usize) -> Self {
        let left = match policy.tries as usize {
            0 => peers,
            tries => tries.min(peers),
        };
        let until = (!policy.timeout.is_zero()).then(|| clock::instant() + policy.timeout);
        Tries { left, until }
    }

    /// Spends a try.
    pub fn spend(&mut self) {
        self.left = self.left.saturating_sub(1);
    }

    /// True when another may follow.
    pub fn is_left(&self) -> bool {
        self.left > 0 && self.until.is_none_or(|until| clock::instant() < until)
    }
}

impl NextPolicy {
    /// True when a failure of this kind lets the request go on to another peer.
    ///
    /// `was_sent` says that the peer may have acted on the request already.
    pub fn allows(&self, cause: NextCause, method: Method, was_sent: bool) -> bool {
        if self.causes.contains(NextCause::Off) || !self.causes.contains(cause) {
            return false;
        }
        !was_sent || self.may_repeat(method)
    }

    /// True when a request that was sent may be sent again.
    ///
    /// RFC 9110 §9.2.2: one that changes something is not repeated by itself.
    pub fn may_repeat(&self, method: Method) -> bool {
        let is_idempotent = !matches!(method, Method::Post | Method::Lock | Method::Patch);
        is_idempotent || self.causes.contains(NextCause::NonIdempotent)
    }
}

/// Notes that a peer failed: nothing came from it, or an answer in whose place another peer is
/// asked. An answer that the client gets is no failure, whatever it says (nginx).
pub(super) fn note_failed(req: &Request, (group, peer): (&Group, &Peer), cause: NextCause) {
    // nginx: 403 and 404 are no failures.
    let is_one = !matches!(cause, NextCause::Http403 | NextCause::Http404);
    if is_one && group.failed(peer) {
        let message = format_args!("upstream server temporarily disabled");
        request_error::write(req, Level::Warn, message);
    }
}

impl NextCause {
    /// The cause that a failure is.
    pub fn of_kind(kind: UpstreamKind) -> NextCause {
        match kind {
            UpstreamKind::Error | UpstreamKind::NoLive | UpstreamKind::NoSocket => NextCause::Error,
            UpstreamKind::Timeout => NextCause::Timeout,
            UpstreamKind::InvalidHeader => NextCause::InvalidHeader,
        }
    }

    /// The cause that a status is.
    pub fn of_status(status: u16) -> Option<NextCause> {
        Some(match status {
            500 => NextCause::Http500,
            502 => NextCause::Http502,
            503 => NextCause::Http503,
            504 => NextCause::Http504,
            403 => NextCause::Http403,
            404 => NextCause::Http404,
            429 => NextCause::Http429,
            _ => return None,
        })
    }
}
