//! Answers to an authority that validates a name over HTTP (RFC 8555 §8.3).
//!
//! As in nginx's module they come before everything that the configuration says of the request,
//! redirects and limits among it, whatever server and address it is for: a token is found by nobody
//! who was not told it, and proves nothing to others. They are logged as other answers are, and are
//! never stored.

use bytes::Bytes;
use millpond_acme::challenge;
use millpond_wire::header::Known;
use millpond_wire::http1::Method;

use crate::phase::Flow;
use crate::request::Request;
use millpond_exchange::response::Response;

/// Answers a request for a token; leaves all others alone.
pub(crate) fn run(req: &mut Request) -> Flow {
    if !matches!(req.method, Method::Get | Method::Head) {
        return Flow::Next;
    }
    let Some(text) = challenge::text(&req.uri) else {
        return Flow::Next;
    };
    let content_type = Bytes::from_static(b"text/plain");
    let body = Bytes::copy_from_slice(text.as_bytes());
    let mut response = Response::text(200, content_type, body);
    let never = Bytes::from_static(b"no-store");
    response.fields.set(Known::CacheControl, never);
    Flow::Respond(Box::new(response))
}
