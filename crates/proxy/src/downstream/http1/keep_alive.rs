//! `keepalive_timeout`, `keepalive_requests`, `keepalive_time`, `keepalive_disable`,
//! `lingering_close` and their like: how an HTTP/1 connection goes on after an answer.
//!
//! Invariants:
//! 1. A connection is reused only when the whole body of its request was consumed and its answer
//!    was sent whole.

use std::time::Duration;

use super::Http1;
use super::arrival::Idle;
use super::behind::Patience;
use crate::downstream::serve::End;
use crate::failure::ClientGone;
use crate::request::Request;
use millpond_system::clock::{self, Instant};
use millpond_wire::header::Known;
use millpond_wire::http1::Version;

/// Browsers whose keep-alive is not trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, millpond_conf::Words)]
pub enum DistrustedBrowser {
    /// None.
    #[word("none")]
    None,
    /// Old MSIE, after a POST.
    #[word("msie6")]
    Msie6,
    /// Safari, on macOS.
    #[word("safari")]
    Safari,
}

/// Settings of connections that serve further requests, and of their close.
#[derive(Clone, Debug, millpond_conf::Family)]
#[family(http, server, location)]
pub struct KeepAlivePolicy {
    /// Time for which an idle connection is kept, and optionally the one that the Keep-Alive field
    /// says; 0 closes after each answer.
    #[directive(name = "keepalive_timeout", default = "75s")]
    pub timeout: Vec<Duration>,
    /// Requests after which a connection is closed.
    #[directive(name = "keepalive_requests", default = "1000")]
    pub requests: u32,
    /// Age of a connection after which it is closed with its next answer.
    #[directive(name = "keepalive_time", default = "1h")]
    pub time: Duration,
    /// The time that an idle connection is kept when the configuration or the process ends, at
    /// least: a client that was just told that it may send another request finds somebody there.
    ///
    /// # Differs from nginx
    ///
    /// It is never less than 200 ms, so that a request that follows an answer at once is not lost.
    #[directive(name = "keepalive_min_timeout", default = "0")]
    pub min_timeout: Duration,
    /// Browsers whose connections are not kept alive.
    #[directive(name = "keepalive_disable", default = "msie6", union)]
    pub disable: millpond_conf::Flags<DistrustedBrowser>,
    /// Makes the server go on reading from a client that it has answered early, so that the answer
    /// is not lost.
    #[directive(name = "lingering_close", default = "on")]
    pub lingering_close: LingeringClose,
    /// The longest time for which such reading goes on.
    #[directive(name = "lingering_time", default = "30s")]
    pub lingering_time: Duration,
    /// The longest wait for more in such reading.
    #[directive(name = "lingering_timeout", default = "5s")]
    pub lingering_timeout: Duration,
    /// Closes a connection whose request timed out, or was answered with 444, with a reset, so that
    /// nothing of it stays in the kernel. Idle connections are closed in the ordinary way.
    #[directive(name = "reset_timedout_connection", default = "off")]
    pub reset_timed_out: bool,
}

/// Condition under which a connection lingers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, millpond_conf::Words)]
pub enum LingeringClose {
    /// Never.
    #[word("off")]
    Off,
    /// Connections linger if the client may still be sending.
    #[word("on")]
    On,
    /// Always.
    #[word("always")]
    Always,
}

/// Fate of a connection after an answer.
pub(super) enum After {
    /// With the next request, if one comes.
    NextRequest(Idle),
    /// The connection ends.
    Close(Patience),
    /// The connection ends when the client has had time to read the answer.
    Linger {
        /// At most so long.
        time: Duration,
        /// And so long without a byte.
        timeout: Duration,
    },
}

impl KeepAlivePolicy {
    /// Time for which an idle connection is kept; zero when it is not.
    pub fn idle_timeout(&self) -> Duration {
        self.timeout.first().copied().unwrap_or_default()
    }

    fn idle(&self, since: Option<Instant>) -> Idle {
        Idle {
            timeout: self.idle_timeout(),
            min_timeout: self.min_timeout,
            since,
        }
    }

    /// The value of the Keep-Alive field, seconds.
    pub fn header_timeout(&self) -> Option<u64> {
        self.timeout
            .get(1)
            .map(Duration::as_secs)
            .filter(|seconds| *seconds > 0)
    }

    /// True when the connection of `req` may serve another request under this policy.
    pub(super) fn allows(&self, http1: &Http1, req: &Request) -> bool {
        let connection = &http1.connection;
        !self.idle_timeout().is_zero()
            && connection.requests.get() < self.requests
            && is_younger(connection.accepted, self.time, req.started)
            && (!connection.generation.is_closing() || !self.min_timeout.is_zero())
            && !http1.is_body_in_doubt()
            && !self.distrusts(req)
    }

    fn distrusts(&self, req: &Request) -> bool {
        let is_post = req.method == millpond_wire::http1::Method::Post;
        let distrusts_msie = is_post && self.disable.contains(DistrustedBrowser::Msie6);
        let distrusts_safari = self.disable.contains(DistrustedBrowser::Safari);
        // Most requests are told without a look at who asks.
        if !distrusts_msie && !distrusts_safari {
            return false;
        }
        let Some(agent) = req.field(Known::UserAgent) else {
            return false;
        };
        let has = |text: &[u8]| memchr::memmem::find(agent, text).is_some();
        if has(b"MSIE ") && !has(b"Opera") {
            return distrusts_msie && is_old_msie(agent);
        }
        distrusts_safari && has(b"Safari/") && has(b"Mac OS X") && !has(b"Chrome/")
    }
}

/// True if a connection was not older than `time` when its request began.
fn is_younger(accepted: Instant, time: Duration, began: Instant) -> bool {
    let end = accepted.checked_add(time);
    end.is_none_or(|end| began < end)
}

/// MSIE 4 to 6, but not 6 with the security update (SV1) that repaired it.
fn is_old_msie(agent: &[u8]) -> bool {
    let Some(start) = memchr::memmem::find(agent, b"MSIE ") else {
        return false;
    };
    match agent.get(start + 5..).unwrap_or_default() {
        [b'4' | b'5', b'.', ..] => true,
        [b'6', b'.', rest @ ..] => memchr::memmem::find(rest, b"SV1").is_none(),
        _ => false,
    }
}

/// Decides how the connection goes on after the answer to `req`; `None` if that depends on the rest
/// of the request's body.
pub(super) fn after_answer(http1: &Http1, req: &Request, end: End) -> Option<After> {
    let policy = &req.location.settings.keep_alive;
    match end {
        End::Spent => return Some(After::Close(Patience::Brief)),
        End::Refused => return Some(linger(req)),
        End::Answered => {}
    }
    if !http1.is_body_done() {
        return if http1.keep_alive.get() {
            None
        } else {
            Some(linger(req))
        };
    }
    if http1.keep_alive.get() {
        return Some(After::NextRequest(policy.idle(req.sent.ended)));
    }
    Some(match policy.lingering_close {
        LingeringClose::Always => linger(req),
        // Bytes that a close leaves unread reset the connection, and the answer on its way may be
        // lost with it.
        LingeringClose::On if http1.has_unread() => linger(req),
        _ => After::Close(patience(req)),
    })
}

/// Reads what is left of the request of a connection that is to be kept.
pub(super) async fn after_discard(http1: &Http1, req: &Request) -> After {
    let policy = &req.location.settings.keep_alive;
    match discard(http1, req, policy).await {
        // A wait after the answer is no part of the idle time.
        Ok(()) => After::NextRequest(policy.idle(None)),
        Err(_) => linger(req),
    }
}

fn linger(req: &Request) -> After {
    let policy = &req.location.settings.keep_alive;
    match policy.lingering_close {
        LingeringClose::Off => After::Close(patience(req)),
        _ => After::Linger {
            time: policy.lingering_time,
            timeout: policy.lingering_timeout,
        },
    }
}

/// A body without length or chunks is over when the connection is.
fn patience(req: &Request) -> Patience {
    if req.head.version() == Version::Http11 && req.location.settings.chunked.enabled {
        Patience::Long
    } else {
        Patience::Brief
    }
}

/// Reads a body that no handler wanted, within the limits of lingering.
async fn discard(
    http1: &Http1,
    req: &Request,
    policy: &KeepAlivePolicy,
) -> Result<(), crate::failure::Failure> {
    let end = clock::instant() + policy.lingering_time;
    while !http1.is_body_done() {
        if clock::instant() >= end {
            return Err(ClientGone::TimedOut.into());
        }
        req.client.next_chunk(policy.lingering_timeout).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_browsers_are_told_by_their_version() {
        let cases = [
            ("Mozilla/4.0 (compatible; MSIE 5.0; Windows)", true),
            ("Mozilla/4.0 (compatible; MSIE 6.0; Windows)", true),
            ("Mozilla/4.0 (compatible; MSIE 6.0; Windows; SV1)", false),
            ("MSIE 7.0", false),
            ("MSIE ", false),
            ("Firefox", false),
        ];
        for (agent, expected) in cases {
            assert_eq!(is_old_msie(agent.as_bytes()), expected, "{agent}");
        }
    }
}
