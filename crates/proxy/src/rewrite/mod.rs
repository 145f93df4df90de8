//! `rewrite`, `set`, `if`, `return`, `break`: the directives that run in the order of the file.
//!
//! They are compiled to a [`Script`] for each block and run in the phases `ServerRewrite` and `Rewrite`.

use crate::failure::Failure;
use crate::phase::Flow;
use crate::request::Request;

/// The compiled directives of a block.
#[derive(Debug, Default)]
pub struct Script {}

/// Runs a block's script.
pub fn run(_req: &mut Request, _script: &Script) -> Result<Flow, Failure> {
    Ok(Flow::Next)
}
