//! Filters: what changes an answer between its handler and the connection, in the order the answer meets them.
//!
//! ```text
//! not_modified ─► headers (add_header, expires) ─► charset ─► gzip ─► range ─► chunked ─► connection
//! ```
//!
//! A filter changes the head in place and, when it must change the body, wraps it in a stream.

use crate::header::Fields;
use crate::request::Request;
use crate::response::Response;

/// Runs all filters.
pub fn run(_req: &mut Request, _response: &mut Response) {}

/// The trailer fields of an answer, asked for when its body has ended; `own` are the body's.
pub fn trailers(_req: &mut Request, own: Option<Fields>) -> Option<Fields> {
    own
}
