//! Max-Forwards (RFC 9110 §7.6.2): how far an OPTIONS may go, where the RFC's rules hold.
//!
//! 1. A request with 0 goes no further: this server answers it.
//! 2. Otherwise it goes on with one less. What is no number is no limit, and goes on as it is.
//!
//! TRACE, which has the field too, is answered by 405 wherever it comes.

use millpond_cache::conformance::Conformance;
use millpond_semantics::cache_control::parse_delta_seconds;
use millpond_wire::header::Known;
use millpond_wire::http1::Method;
use millpond_wire::http1::request::FieldRef;

use crate::request::Request;
use crate::upstream::pass_settings::SettingsByProtocol as _;
use millpond_exchange::protocol::Protocol;
use millpond_exchange::response::Response;

/// The field, in small letters.
const FIELD: &[u8] = b"max-forwards";

/// The answer of this server to a request that may go no further.
pub(crate) fn answer(req: &Request, protocol: Protocol) -> Option<Response> {
    if req.method != Method::Options {
        return None;
    }
    let rules = req.location.settings.pass(protocol).conformance.rules;
    if rules != Conformance::Rfc9111 {
        return None;
    }
    // RFC 9110 §9.3.7: an answer without content says so by its length.
    let value = req.head.find(FIELD)?;
    (number(value) == Some(0)).then(|| Response::empty(200))
}

/// Value with which a field that counts forwards goes on, if the request has one.
pub(crate) fn left(req: &Request, field: FieldRef<'_>) -> Option<u64> {
    let counts = req.method == Method::Options
        && field.known == Known::Other
        && field.name.eq_ignore_ascii_case(FIELD);
    if counts {
        number(field.value)?.checked_sub(1)
    } else {
        None
    }
}

fn number(value: &[u8]) -> Option<u64> {
    parse_delta_seconds(value)
}
