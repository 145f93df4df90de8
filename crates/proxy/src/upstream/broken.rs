//! Reason why a conversation with a peer broke, in nginx's words.
//!
//! Whether the peer had said something is kept with it: an idle connection that dies silently is no
//! failure of its peer.

use millpond_wire::http2::Gone;

use super::receive::upstream_error;
use millpond_exchange::failure::{UpstreamFailure, UpstreamKind};

/// Reason why a conversation broke.
pub(super) struct Broken {
    /// Failure of the peer that the break counts as.
    pub(super) failure: UpstreamFailure,
    /// The peer had said nothing.
    pub(super) is_silent: bool,
    /// The way in which the request's stream went, if it is one that a peer does nothing with.
    pub(super) untouched: Option<Gone>,
}

impl Broken {
    /// After the peer had said something.
    pub(super) fn said(failure: UpstreamFailure) -> Self {
        Broken {
            failure,
            is_silent: false,
            untouched: None,
        }
    }

    /// The peer was silent, or took nothing, for too long.
    pub(super) fn timed_out() -> Self {
        Broken::said(UpstreamFailure::new(
            UpstreamKind::Timeout,
            "upstream timed out (110: Connection timed out) while reading response header from upstream",
        ))
    }

    /// A break because the bytes that came are no head.
    pub(super) fn invalid(what: &str) -> Self {
        Broken::said(UpstreamFailure::new(
            UpstreamKind::InvalidHeader,
            format!("{what} while reading response header from upstream"),
        ))
    }

    /// The socket failed.
    pub(super) fn io(error: &std::io::Error, is_silent: bool, has_sent: bool) -> Self {
        let doing = if has_sent {
            "reading response header from upstream"
        } else {
            "sending request to upstream"
        };
        Broken {
            failure: upstream_error(error, doing),
            is_silent,
            untouched: None,
        }
    }

    /// The peer has closed the connection.
    pub(super) fn closed(is_silent: bool) -> Self {
        let failure = UpstreamFailure::new(
            UpstreamKind::Error,
            "upstream prematurely closed connection while reading response header from upstream",
        );
        Broken {
            failure,
            is_silent,
            untouched: None,
        }
    }
}
