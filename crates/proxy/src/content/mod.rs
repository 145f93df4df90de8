//! The record of a handler, the files that paths name and their media types, and the pages that
//! stand for errors: all that answers are made of.
//!
//! The handlers themselves stand above: whatever makes or stores answers asks here what the
//! location says of them.

pub mod disable_symlinks;
pub mod error_pages;
pub mod mime;
pub mod open_file;
pub mod path;
pub mod settings;

use std::any::Any;
use std::fmt::Debug;
use std::sync::Arc;

use bytes::Bytes;
use millpond_semantics::uri::safe_uri;
use millpond_wire::http1::Method;

use crate::phase::{self, Begun, Flow};
use crate::request::Request;
use millpond_exchange::failure::Failure;
use millpond_exchange::response::Response;
use millpond_exchange::scope::parts::{Part, Place};
use millpond_exchange::settings::level::Closing;

/// The handler that a location names.
#[derive(Clone, Debug)]
pub enum ContentHandler {
    /// `proxy_pass` and its like, with the target as the module that passes has it.
    Pass(Arc<dyn Any + Send + Sync>),
    /// Any other, by its record.
    Own(Arc<dyn Handler>),
}

impl Part for ContentHandler {
    const PLACE: Place = Place::Content;
}

/// The record of a handler: how it runs, and how it is explained. The row of its directive puts it
/// into the draft of the location.
pub trait Handler: Debug + Send + Sync {
    /// The answer, or what waits for it.
    fn begin<'a>(&self, req: &'a mut Request) -> Result<Begun<'a>, Failure>;

    /// The kind of answers that the handler makes.
    fn explain(&self) -> Explained;

    /// Takes over settings of its own when the block that names the handler is closed.
    fn settle(&mut self, _level: &mut Closing<'_>) {}
}

/// The kind of answers that a handler makes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Explained {
    /// Answers that this directive makes.
    Itself(&'static str),
    /// Files, or parts of them.
    Files,
    /// Purges of the zone.
    Purges(String),
}

impl ContentHandler {
    /// A handler by its record.
    pub fn own(handler: impl Handler + 'static) -> Self {
        ContentHandler::Own(Arc::new(handler))
    }
}

/// Responds with what an upstream or the cache answered, unless that names another path.
pub fn respond(req: &mut Request, mut response: Box<Response>) -> Result<Flow, Failure> {
    match response.orders.redirect.take() {
        Some(to) => {
            drop(response);
            accel_redirect(req, &to)
        }
        None => Ok(Flow::Respond(response)),
    }
}

/// X-Accel-Redirect: the upstream names a path or a named location of this server.
fn accel_redirect(req: &mut Request, to: &[u8]) -> Result<Flow, Failure> {
    if to.first() == Some(&b'@') {
        return phase::redirect_named(req, to);
    }
    let Ok(uri) = safe_uri(to) else {
        return Err(Failure::Status(404));
    };
    // nginx: the answer is for a GET, whatever was asked of the upstream, but for HEAD. A named
    // location goes on with the request as it was, and so does the refusal of a path.
    if req.method != Method::Head {
        req.method = Method::Get;
    }
    let path = Bytes::copy_from_slice(&uri.path);
    phase::redirect(req, path, uri.query.map(Bytes::copy_from_slice))
}
