//! `root`, `alias`, `etag`: files of this machine.

use crate::failure::Failure;
use crate::request::Request;
use crate::response::Response;

/// Answers with the file of the path.
pub fn run(_req: &mut Request) -> Result<Response, Failure> {
    Err(Failure::Status(404))
}
