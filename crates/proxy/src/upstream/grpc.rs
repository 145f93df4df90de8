//! `grpc_set_header`: what gRPC servers are asked.
//!
//! gRPC is HTTP/2 with trailers behind each answer, and with bodies that go both ways at once: a
//! request's body is never read whole before the server is asked, and an answer is never read ahead
//! of its client. All else is as for other upstreams of HTTP.

use bytes::BytesMut;
use millpond_wire::header::Known;
use millpond_wire::http1::encode;

use super::http::SetHeader;
use crate::request::Request;

/// The value of TE that lets an answer have trailers.
const TRAILERS: &[u8] = b"trailers";

/// Settings that only gRPC servers have.
#[derive(Clone, Debug, millpond_conf::Family)]
#[family(http, server, location)]
pub struct GrpcPolicy {
    /// A field of the request to the gRPC server; an empty value leaves it out. Inherited only
    /// where none is set.
    #[directive(name = "grpc_set_header", repeat)]
    pub set_headers: Vec<SetHeader>,
}

/// Passes on that the client takes trailers.
///
/// nginx: nothing else of the client's TE goes on.
pub(crate) fn write_te(req: &Request, head: &mut BytesMut) {
    let takes_trailers = req.head.find_all(b"te").any(|value| {
        value
            .windows(TRAILERS.len())
            .any(|part| part.eq_ignore_ascii_case(TRAILERS))
    });
    if takes_trailers {
        encode::write_known(head, Known::Te, TRAILERS);
    }
}
