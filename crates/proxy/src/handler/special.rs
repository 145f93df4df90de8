//! The built-in pages: what a status without a page of its own looks like.

use bytes::Bytes;

use crate::request::Request;
use crate::response::Response;

/// The built-in page of a status.
pub fn page(_req: &mut Request, status: u16) -> Response {
    Response::text(
        status,
        Bytes::from_static(b"text/html"),
        Bytes::from_static(b"error\n"),
    )
}
