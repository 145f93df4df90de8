//! The head of one try, where it is not the same for all of them.
//!
//! A head is written once for all peers that may be asked. Where exchanges are traced or signed,
//! each try has a copy with a span or a signature of its own; the signature is the last to come.

use super::ask::Ask;
use super::aws_sign;
use super::request::Prepared;
use crate::otel;
use crate::request::Request;
use millpond_exchange::failure::Failure;
use millpond_exchange::protocol::Protocol;

/// The request of a try; none where it is the same for all of them.
pub(super) async fn of_try(
    req: &mut Request,
    protocol: Protocol,
    (prepared, ask): (&Prepared, &Ask),
) -> Result<Option<Box<Prepared>>, Failure> {
    let traced = otel::exchange::address(req, &prepared.head).map(|head| {
        Box::new(Prepared {
            head,
            ..prepared.clone()
        })
    });
    if !aws_sign::is_on(req, protocol, ask) {
        return Ok(traced);
    }
    let head = traced.as_deref().unwrap_or(prepared);
    Box::pin(aws_sign::sign(req, head)).await.map(Some)
}
