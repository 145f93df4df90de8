//! Makers of answers: the content handlers, and the look-up of the location.
//!
//! A location has at most one handler of its own (`proxy_pass`, `stub_status` …); without one, a
//! path that ends in a slash goes to what stands for a folder (`random_index`, `index`,
//! `autoindex`) and any other to the static files.

pub mod access;
pub(crate) mod acme_challenge;
pub mod auth_basic;
pub mod auth_request;
pub(crate) mod autoindex;
pub(crate) mod disable_symlinks;
pub mod empty_gif;
pub(crate) mod error_page;
pub mod flv;
pub(crate) mod folder;
pub(crate) mod hash_places;
pub(crate) mod index;
pub(crate) mod input_headers;
pub mod limit_conn;
pub mod limit_req;
pub mod limit_zone;
pub(crate) mod mime;
pub(crate) mod mirror;
pub mod mp4;
pub(crate) mod open_file;
pub(crate) mod password;
pub mod path;
pub(crate) mod post_action;
pub(crate) mod random_index;
pub mod realip;
pub(crate) mod redirect;
pub mod referer;
pub mod secure_link;
pub mod secure_link_hmac;
pub mod settings;
pub(crate) mod special;
pub(crate) mod static_file;
pub mod stub_status;
pub mod try_files;

use std::fmt::Debug;
use std::sync::Arc;

use bytes::Bytes;
use millpond_semantics::uri::safe_uri;
use millpond_wire::http1::Method;
use millpond_wire::http1::request::Refusal;

use crate::failure::Failure;
use crate::phase::{self, Begun, Flow};
use crate::request::Request;
use crate::request_body;
use crate::response::Response;
use crate::scope::parts::{Part, Place};
use crate::settings::level::{Closing, Proxies};
use crate::settings::tree::{Captured, Found};
use crate::upstream::{by_rfc, pass};

/// The handler that a location names.
#[derive(Clone, Debug)]
pub enum ContentHandler {
    /// `proxy_pass` and its like.
    Pass(Arc<pass::PassTarget>),
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

/// Gives the handler that a block names its settings.
pub fn close(level: &mut Closing<'_>) {
    let Some(mut handler) = level.draft.take::<ContentHandler>() else {
        return;
    };
    if let ContentHandler::Own(record) = &mut handler
        && let Some(record) = Arc::get_mut(record)
    {
        record.settle(level);
    }
    if matches!(handler, ContentHandler::Pass(_)) {
        level.draft.put(Proxies);
    }
    level.draft.put(handler);
}

/// Finds the location of the path and refuses what it does not allow.
pub fn find_location(req: &mut Request) -> Result<Flow, Failure> {
    // nginx: what the server's rewrites changed is looked up now; that is no change of the
    // location's.
    req.path.is_changed_in_location = false;
    req.pass_is_lost = false;
    let mut captured = Captured::new();
    let level = &req.server.location;
    let found = level.children.find(&req.uri, &mut captured);
    let found = found.inspect_err(|gave_up| req.note_gave_up(gave_up));
    let found = found.unwrap_or(Found::Nothing);
    let needs_slash = matches!(found, Found::AddSlash(_));
    req.location = match found {
        Found::Nothing => Arc::clone(level),
        Found::Location(location) | Found::AddSlash(location) => Arc::clone(location),
    };
    for (regex, captures) in captured {
        regex.keep(req, captures);
    }
    if req.location.is_internal && !req.is_internal {
        return Err(Failure::Status(404));
    }
    request_body::check_announced(req)?;
    phase::limit_method(req);
    check_lists(req)?;
    if needs_slash {
        let folder = req.location.name.clone();
        Err(redirect::add_slash(req, &folder))
    } else {
        Ok(Flow::Next)
    }
}

/// nginx: a list of entity tags in several lines is refused. It is one list where the location that
/// answers follows the RFCs (RFC 9110 §5.3).
fn check_lists(req: &Request) -> Result<(), Failure> {
    let Some(repeated) = req.head.repeated() else {
        return Ok(());
    };
    let by_rfc = match req.location.parts.get() {
        Some(ContentHandler::Pass(target)) => by_rfc::is_on(req, target),
        _ => false,
    };
    if by_rfc {
        Ok(())
    } else {
        Err(Failure::bad_request(
            Refusal::DuplicateField(repeated).to_string(),
        ))
    }
}

/// Runs the location's handler.
pub fn content(req: &mut Request) -> Result<Begun<'_>, Failure> {
    if req.pass_is_lost {
        return Err(Failure::Internal("no upstream configuration".to_string()));
    }
    let location = Arc::clone(&req.location);
    match location.parts.get() {
        Some(ContentHandler::Pass(target)) => pass::begin(req, &location, target),
        Some(ContentHandler::Own(handler)) => handler.begin(req),
        None => run_files(req).map(Begun::Done),
    }
}

/// Responds with a part of a file, or goes on as if nothing were said of files.
fn part_or_files(req: &mut Request, response: Option<Response>) -> Result<Begun<'_>, Failure> {
    match response {
        Some(response) => Ok(Begun::answer(response)),
        None => run_files(req).map(Begun::Done),
    }
}

/// Answers with a file, or goes on with what stands for a folder.
fn run_files(req: &mut Request) -> Result<Flow, Failure> {
    match req.uri.last() {
        Some(b'/') => run_folder(req),
        _ => Ok(Flow::Respond(Box::new(static_file::run(req)?))),
    }
}

/// Goes on with what stands for a folder, in nginx's order: any of its files, its index, its list.
fn run_folder(req: &mut Request) -> Result<Flow, Failure> {
    if !matches!(req.method, Method::Get | Method::Head | Method::Post) {
        return Err(Failure::Status(405));
    }
    if let Some(flow) = random_index::run(req)? {
        return Ok(flow);
    }
    if let Some(flow) = index::run(req)? {
        return Ok(flow);
    }
    match autoindex::run(req)? {
        Some(list) => Ok(Flow::Respond(Box::new(list))),
        None => Err(index::forbidden(req)?),
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
    let args = uri.query.map(Bytes::copy_from_slice).unwrap_or_default();
    phase::redirect(req, path, args)
}
