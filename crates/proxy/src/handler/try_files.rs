//! `try_files`: the first file that exists, else a fallback.

use crate::failure::Failure;
use crate::phase::Flow;
use crate::request::Request;

/// Tries the files of the location.
pub fn run(_req: &mut Request) -> Result<Flow, Failure> {
    Ok(Flow::Next)
}
