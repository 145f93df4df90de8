//! Early-Data (RFC 8470 §5.1): upstreams are told of requests that somebody may have repeated, as
//! long as the handshake is not over that they came before.
//!
//! The choice of the requests that are served so early is made in `downstream/http3/early`.

use bytes::BytesMut;
use millpond_wire::http1::encode;

use crate::request::Request;

/// The field.
const FIELD: &[u8] = b"Early-Data";

/// Writes the field where it is due, and the client's own is not passed on.
pub(super) fn write(req: &Request, (passes_own, head): (bool, &mut BytesMut)) {
    let has_own = passes_own && req.head.find(FIELD).is_some();
    if req.client.connection.is_early.get() && !has_own {
        encode::write_field(head, FIELD, b"1");
    }
}
