//! `types`, `default_type`: media types by file name.

use bytes::Bytes;

use crate::request::Request;

/// The media type for the request's path.
pub fn content_type(_req: &mut Request) -> Bytes {
    Bytes::from_static(b"text/plain")
}
