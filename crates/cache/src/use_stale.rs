//! `proxy_cache_use_stale`: when a stale answer is better than none.
//!
//! The causes are nginx's words. `updating` concerns requests that find somebody else updating; the
//! others what became of a request to the origin. The fields `stale-while-revalidate` and
//! `stale-if-error` (RFC 5861) are weighed in `verdict.rs`.

use millpond_conf::{Flags, Words};

/// Cause for which a stale entry may be the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Words)]
pub enum StaleCause {
    /// Never.
    #[word("off")]
    Off,
    /// The origin could not be reached, or the connection failed.
    #[word("error")]
    Error,
    /// The origin took too long.
    #[word("timeout")]
    Timeout,
    /// The origin's answer was no HTTP.
    #[word("invalid_header")]
    InvalidHeader,
    /// The entry is being updated by another request.
    #[word("updating")]
    Updating,
    /// The origin answered 500.
    #[word("http_500")]
    Http500,
    /// The origin answered 502.
    #[word("http_502")]
    Http502,
    /// The origin answered 503.
    #[word("http_503")]
    Http503,
    /// The origin answered 504.
    #[word("http_504")]
    Http504,
    /// The origin answered 403.
    #[word("http_403")]
    Http403,
    /// The origin answered 404.
    #[word("http_404")]
    Http404,
    /// The origin answered 429.
    #[word("http_429")]
    Http429,
}

/// Causes for which stale entries are served.
#[derive(Clone, Debug, millpond_conf::Family)]
#[family(http, server, location, protocols)]
pub struct StalePolicy {
    /// Causes that are answered with a stale entry when there is one.
    #[directive(name = "proxy_cache_use_stale", default = "off", union)]
    pub causes: Flags<StaleCause>,
}

impl StalePolicy {
    /// True when this cause is answered with a stale entry.
    pub fn allows(&self, cause: StaleCause) -> bool {
        !self.causes.contains(StaleCause::Off) && self.causes.contains(cause)
    }
}

impl StaleCause {
    /// The cause that a status of the origin is.
    pub fn of_status(status: u16) -> Option<StaleCause> {
        Some(match status {
            500 => StaleCause::Http500,
            502 => StaleCause::Http502,
            503 => StaleCause::Http503,
            504 => StaleCause::Http504,
            403 => StaleCause::Http403,
            404 => StaleCause::Http404,
            429 => StaleCause::Http429,
            _ => return None,
        })
    }
}
