//! What makes answers: the content handlers and the look-up of the location.
//!
//! A location has at most one handler of its own (`proxy_pass`, `stub_status` …); without one, a path that ends in a
//! slash goes to `index` and any other to the static files.

pub mod error_page;
pub mod index;
pub mod mime;
pub mod special;
pub mod static_file;
pub mod try_files;

use std::sync::Arc;

use bytes::Bytes;

use crate::downstream::body;
use crate::failure::Failure;
use crate::header::Known;
use crate::phase::Flow;
use crate::request::Request;
use crate::response::Response;
use crate::route::location::{Found, LocationKind};
use crate::upstream::pass;

/// The handler that a location names.
#[derive(Clone, Debug)]
pub enum ContentHandler {
    /// `proxy_pass`.
    Pass(Arc<pass::PassTarget>),
}

/// Finds the location of the path and refuses what it does not allow.
pub fn find_location(req: &mut Request) -> Result<Flow, Failure> {
    let server = Arc::clone(&req.server);
    req.location = match server.location.children.find(req) {
        Found::Nothing => Arc::clone(&server.location),
        Found::Location(location) => location,
        Found::AddSlash(path) => return Ok(Flow::Respond(Box::new(add_slash(req, &path)))),
    };
    let is_named = matches!(req.location.kind, LocationKind::Named);
    if (req.location.is_internal || is_named) && !req.is_internal {
        return Err(Failure::Status(404));
    }
    body::check_announced(req)?;
    Ok(Flow::Next)
}

/// nginx answers the slashless form of a proxied folder itself.
fn add_slash(req: &mut Request, path: &[u8]) -> Response {
    let mut target = path.to_vec();
    if !req.args.is_empty() {
        target.push(b'?');
        target.extend_from_slice(&req.args);
    }
    let mut response = special::page(req, 301);
    response.fields.set(Known::Location, Bytes::from(target));
    response
}

/// Runs the location's handler.
pub async fn content(req: &mut Request) -> Result<Flow, Failure> {
    let handler = req.location.handler.clone();
    let response = match handler {
        Some(ContentHandler::Pass(target)) => pass::run(req, &target).await?,
        None if req.uri.last() == Some(&b'/') => return index::run(req),
        None => static_file::run(req)?,
    };
    Ok(Flow::Respond(Box::new(response)))
}
