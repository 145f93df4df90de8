//! `proxy_pass`: a request is answered by an upstream, through the cache when there is one.

use crate::failure::Failure;
use crate::request::Request;
use crate::response::Response;

/// Where a location passes its requests.
#[derive(Debug)]
pub struct PassTarget {}

/// Answers from the upstream.
pub async fn run(_req: &mut Request, _target: &PassTarget) -> Result<Response, Failure> {
    Err(Failure::Status(502))
}
