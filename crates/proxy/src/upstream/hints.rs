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

use std::sync::Arc;

use millpond_cache::conformance::Conformance;
use millpond_conf::Template;
use millpond_system::log::error::Level;

use super::answer;
use crate::log::request_error;
use crate::request::Request;
use crate::upstream::by_rfc;
use crate::upstream::pass_settings::SettingsByProtocol as _;
use crate::upstream::settings::UpstreamSettings;
use millpond_exchange::protocol::Protocol;
use millpond_wire::header::{Fields, Known};
use millpond_wire::http1::response::ResponseHead;

/// Settings of the interim answers that are passed on.
#[derive(Clone, Debug, millpond_conf::Family)]
#[family(http, server, location)]
pub struct EarlyHintsPolicy {
    /// Values of which one that is neither empty nor "0" lets 103 answers of the upstream (Early
    /// Hints) through to clients of HTTP/1.1. Without the directive nothing is let through, but
    /// under `proxy_cache_conformance rfc9111` every interim answer except 100 is.
    #[directive(name = "early_hints", union)]
    pub when: Option<Vec<Template>>,
}

/// The hints of one answer, as they come.
pub(crate) struct Hints {
    /// Bytes of heads that may still come (invariant 4).
    left: usize,
}

impl Hints {
    /// Hints of at most so many bytes.
    pub(crate) fn new(max: usize) -> Self {
        Hints { left: max }
    }

    /// Passes an interim answer on to the client, if it is to get it.
    pub(crate) async fn pass_on(
        &mut self,
        req: &mut Request,
        protocol: Protocol,
        head: ResponseHead,
    ) {
        let by_rfc = req.location.settings.pass(protocol).conformance.rules;
        let by_rfc = by_rfc == Conformance::Rfc9111;
        if !is_wanted(req, by_rfc, head.status) {
            return;
        }
        let Some(left) = self.left.checked_sub(head.head_len) else {
            let message = format_args!("upstream sent too big early hints");
            return request_error::write(req, Level::Info, message);
        };
        self.left = left;
        let status = head.status;
        if let Some(fields) = fields_for_client(req, protocol, head, by_rfc) {
            // A fault of the connection shows when the answer is sent.
            let timeout = req.location.settings.send.timeout;
            req.client.inform(status, &fields, timeout).await;
        }
    }
}

fn is_wanted(req: &mut Request, by_rfc: bool, status: u16) -> bool {
    // RFC 9110 §15.2: nothing below HTTP/1.1 knows interim answers.
    if !req.is_clients_own() || !req.client.takes_interim(req.head.version()) || status == 100 {
        return false;
    }
    let location = Arc::clone(&req.location);
    match &location.settings.of::<UpstreamSettings>().early_hints.when {
        // RFC 9110 §15.2: a proxy passes on what it has not asked for itself.
        None => by_rfc,
        Some(when) => (by_rfc || status == 103) && when.iter().any(|value| req.is_true(value)),
    }
}

/// The fields of the interim answer as the client gets them.
fn fields_for_client(
    req: &Request,
    protocol: Protocol,
    mut head: ResponseHead,
    by_rfc: bool,
) -> Option<Fields> {
    let policy = &req.location.settings.pass(protocol).answer;
    if by_rfc {
        by_rfc::drop_hop_fields(head.status, &mut head.fields)
    } else {
        by_rfc::drop_connection_fields(&mut head.fields)
    }
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
    Some(head.fields)
}
