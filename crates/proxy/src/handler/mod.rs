//! Makers of answers: the content handlers, and the look-up of the location.
//!
//! A location has at most one handler of its own (`proxy_pass`, `stub_status` …); without one, a
//! path that ends in a slash goes to what stands for a folder (`random_index`, `index`,
//! `autoindex`) and any other to the static files.

pub mod access;
pub(crate) mod acme_challenge;
pub mod auth_basic;
pub mod auth_jwt;
pub mod auth_request;
pub(crate) mod autoindex;
pub mod empty_gif;
pub(crate) mod error_page;
pub mod flv;
pub(crate) mod folder;
pub(crate) mod hash_places;
pub(crate) mod index;
pub(crate) mod input_headers;
pub mod limit_conn;
pub(crate) mod limit_conn_lease;
pub mod limit_req;
pub mod limit_zone;
pub(crate) mod mirror;
pub mod mp4;
pub(crate) mod password;
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

use std::sync::Arc;

use bytes::Bytes;
use millpond_wire::header::Known;
use millpond_wire::http1::Method;
use millpond_wire::http1::request::Refusal;

use crate::content::ContentHandler;
use crate::phase::{self, Begun, Flow};
use crate::request::Request;
use crate::route::captures::RequestRegex as _;
use crate::upstream::by_rfc;
use crate::upstream::pass::PassTarget;
use crate::{pass, request_body};
use millpond_exchange::failure::Failure;
use millpond_exchange::response::Response;
use millpond_exchange::settings::level::{Closing, Proxies};
use millpond_exchange::settings::tree::{Captured, Found};

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
    let target = req.location.parts.get().and_then(PassTarget::of);
    if target.is_some_and(|target| by_rfc::is_on(req, target)) {
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
    let Some(handler) = location.parts.get() else {
        return run_files(req).map(Begun::Done);
    };
    match (handler, PassTarget::of(handler)) {
        (_, Some(target)) => pass::begin(req, &location, target),
        (ContentHandler::Own(handler), _) => handler.begin(req),
        // No other module puts a target.
        (ContentHandler::Pass(_), None) => Err(Failure::Status(500)),
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

/// Refuses all methods but GET and HEAD for a page of the server's own, and says so
/// (RFC 9110 §15.5.6).
pub fn only_read(req: &mut Request) -> Result<(), Failure> {
    if matches!(req.method, Method::Get | Method::Head) {
        return Ok(());
    }
    let methods = Bytes::from_static(b"GET, HEAD");
    req.answer_fields.set(Known::Allow, methods);
    Err(Failure::Status(405))
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
