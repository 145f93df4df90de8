//! `error_page`, `recursive_error_pages`: answers instead of errors.

use std::sync::Arc;

use crate::phase::Phase;
use crate::request::Request;
use crate::response::Response;

/// One `error_page` code.
#[derive(Clone, Debug)]
pub struct ErrorPage {}

/// How the request goes on.
pub enum Next {
    /// With this answer.
    Answer(Box<Response>),
    /// From this phase, with another path or location.
    Run(Phase),
}

/// The page for a status that this server decided.
pub fn for_status(_req: &Request, _status: u16) -> Option<Arc<ErrorPage>> {
    None
}

/// The page for an answer of an upstream, when `proxy_intercept_errors` is on.
pub fn for_response(_req: &Request, _response: &Response) -> Option<Arc<ErrorPage>> {
    None
}

/// Goes to the page.
pub fn follow(req: &mut Request, _page: Arc<ErrorPage>, status: u16) -> Next {
    Next::Answer(Box::new(super::special::page(req, status)))
}
