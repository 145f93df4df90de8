//! `early_hints`: interim answers of an upstream that clients get before the answer.
//!
//! A 103 names what a page will need (RFC 8297), so that a client can fetch it while the origin
//! still thinks. It is sent as soon as it comes and never stored: who gets the answer from the
//! cache, or from another request's fill, gets no hints.
//!
//! Invariants:
//! 1. Only the request that asked the upstream passes hints on: no subrequest, no request in the
//!    background.
//! 2. A client of HTTP/1.0 gets none (RFC 9110 §15.2).
//! 3. Hints never hold an answer up: one that the client's socket does not take is dropped. One
//!    that it takes in part is finished within `send_timeout`, or the connection is of no use.
//! 4. All hints before one answer are no longer than a head may be.
//!
//! A 100 is not passed on, since this server asks for none, and a 101 is an answer.

use std::io::IoSlice;
use std::sync::Arc;
use std::task::Poll;

use bytes::{Bytes, BytesMut};
use millpond_cache::conformance::Conformance;
use millpond_conf::Template;

use super::answer;
use super::protocol::Protocol;
use crate::cache::by_rfc;
use crate::downstream::Downstream;
use crate::header::Known;
use crate::http1::response::ResponseHead;
use crate::http1::{Version, encode};
use crate::log::error::{self, Level};
use crate::request::Request;
use crate::socket::More;

/// When interim answers are passed on.
#[derive(Clone, Debug, millpond_conf::Family)]
#[family(http, server, location)]
pub struct EarlyHintsPolicy {
    /// Values of which one that is neither empty nor "0" lets 103 answers of the upstream (Early
    /// Hints) through to clients of HTTP/1.1. Without the directive nothing is let through, but
    /// under `proxy_cache_conformance rfc9111` every interim answer except 100 is.
    #[directive(name = "early_hints")]
    pub when: Option<Vec<Template>>,
}

/// The hints of one answer, as they come.
pub struct Hints {
    /// Bytes of heads that may still come (invariant 4).
    left: usize,
}

impl Hints {
    /// Hints of at most so many bytes.
    pub fn new(max: usize) -> Self {
        Hints { left: max }
    }

    /// Passes an interim answer on to the client, if it is to get it.
    pub async fn pass_on(&mut self, req: &mut Request, protocol: Protocol, head: ResponseHead) {
        let by_rfc = req.location.settings.pass(protocol).conformance.rules;
        let by_rfc = by_rfc == Conformance::Rfc9111;
        if !is_wanted(req, by_rfc, head.status) {
            return;
        }
        let Some(left) = self.left.checked_sub(head.head_len) else {
            let message = format_args!("upstream sent too big early hints");
            return error::write(req, Level::Info, message);
        };
        self.left = left;
        if let Some(text) = encoded(req, protocol, head, by_rfc) {
            send(req, &text).await;
        }
    }
}

fn is_wanted(req: &mut Request, by_rfc: bool, status: u16) -> bool {
    // RFC 9110 §15.2: nothing below HTTP/1.1 knows interim answers.
    if !req.is_clients_own() || req.head.version() != Version::Http11 || status == 100 {
        return false;
    }
    let location = Arc::clone(&req.location);
    match &location.settings.early_hints.when {
        // RFC 9110 §15.2: a proxy passes on what it has not asked for itself.
        None => by_rfc,
        Some(when) => (by_rfc || status == 103) && when.iter().any(|value| req.is_true(value)),
    }
}

/// The interim answer as the client gets it.
fn encoded(
    req: &Request,
    protocol: Protocol,
    mut head: ResponseHead,
    by_rfc: bool,
) -> Option<Bytes> {
    let policy = &req.location.settings.pass(protocol).answer;
    by_rfc::drop_connection_fields(&mut head.fields);
    head.fields.retain(|field| {
        let is_of_connection = matches!(
            field.known,
            Known::Connection | Known::TransferEncoding | Known::ContentLength | Known::KeepAlive
        );
        !is_of_connection && !answer::is_hidden(policy, protocol, field)
    });
    // nginx: hints that hint at nothing are none.
    if head.fields.is_empty() && !by_rfc {
        return None;
    }
    let mut out = BytesMut::with_capacity(head.head_len + 32);
    encode::write_status(&mut out, head.status);
    encode::write_fields(&mut out, &head.fields);
    encode::end_head(&mut out);
    Some(out.freeze())
}

/// What goes wrong here shows when the answer is sent.
async fn send(req: &Request, text: &[u8]) {
    let down: &Downstream = &req.down;
    let first = std::future::poll_fn(|cx| {
        let slices = [IoSlice::new(text)];
        Poll::Ready(down.socket.poll_send(cx, &slices, More::Nothing))
    });
    let Poll::Ready(Ok(count)) = first.await else {
        return;
    };
    let rest = text.get(count..).unwrap_or_default();
    if rest.is_empty() {
        return;
    }
    let timeout = req.location.settings.send.timeout;
    let whole = down.timer.guard_for(timeout, send_all(down, rest)).await;
    if !matches!(whole, Ok(Ok(()))) {
        // Half a head has gone out: nothing can be said after it.
        down.socket.shutdown_write();
    }
}

async fn send_all(down: &Downstream, mut rest: &[u8]) -> std::io::Result<()> {
    // Each round sends at least one byte.
    while !rest.is_empty() {
        let slices = [IoSlice::new(rest)];
        let count =
            std::future::poll_fn(|cx| down.socket.poll_send(cx, &slices, More::Nothing)).await?;
        if count == 0 {
            return Err(std::io::ErrorKind::WriteZero.into());
        }
        rest = rest.get(count..).unwrap_or_default();
    }
    Ok(())
}
