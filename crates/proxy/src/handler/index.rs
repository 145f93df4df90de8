//! `index`: the file that stands for a folder.

use crate::failure::Failure;
use crate::phase::Flow;
use crate::request::Request;

/// Redirects to the first index file that exists.
pub fn run(_req: &mut Request) -> Result<Flow, Failure> {
    Err(Failure::Status(403))
}
