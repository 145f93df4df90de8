//! `keepalive_timeout`, `keepalive_requests`, `keepalive_time`, `keepalive_disable`,
//! `lingering_close` and their like: how an HTTP/1 connection goes on after an answer.
//!
//! Invariants:
//! 1. A connection is reused only when the whole body of its request was consumed and its answer
//!    was sent whole.

use std::time::Duration;

use super::arrival::Idle;
use crate::downstream::serve::End;
use crate::request::Request;
use millpond_exchange::client::http1::Http1;
use millpond_exchange::client::http1::behind::Patience;
use millpond_exchange::failure::ClientGone;
use millpond_exchange::settings::clients::keep_alive::{
    DistrustedBrowser, KeepAlivePolicy, LingeringClose,
};
use millpond_system::clock::{self, Instant};
use millpond_wire::header::Known;
use millpond_wire::http1::Version;

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

fn idle(policy: &KeepAlivePolicy, since: Option<Instant>) -> Idle {
    Idle::new(policy.idle_timeout(), policy.min_timeout, since)
}

/// True when the connection of `req` may serve another request under this policy.
pub(super) fn allows(policy: &KeepAlivePolicy, http1: &Http1, req: &Request) -> bool {
    let connection = &http1.connection;
    policy.keeps(connection.requests.get())
        && is_younger(connection.accepted, policy.time, req.started)
        && (!connection.generation.is_closing() || !policy.min_timeout.is_zero())
        && !http1.is_body_in_doubt()
        && !distrusts(policy, req)
}

fn distrusts(policy: &KeepAlivePolicy, req: &Request) -> bool {
    let is_post = req.method == millpond_wire::http1::Method::Post;
    let distrusts_msie = is_post && policy.disable.contains(DistrustedBrowser::Msie6);
    let distrusts_safari = policy.disable.contains(DistrustedBrowser::Safari);
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
        return Some(After::NextRequest(idle(policy, req.sent.ended)));
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
        Ok(()) => After::NextRequest(idle(policy, None)),
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
) -> Result<(), millpond_exchange::failure::Failure> {
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
