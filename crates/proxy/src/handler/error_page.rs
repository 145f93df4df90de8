//! Answers instead of errors.
//!
//! ```text
//! status ─► page of the location? ─ no ─► built-in page
//!              │ /path            ─► internal redirect, as GET, from the server's rewrites on
//!              │ @name            ─► the named location
//!              └ anything else    ─► 302 to it, or the redirect that `=code` names
//! ```
//!
//! Invariants:
//! 1. The answer gets the status of the error, or `=code`, or with a lone `=` its own.
//! 2. Unless `recursive_error_pages` is on, the error of an error page gets the built-in page.
//!
//! Sources: nginx's special responses.

use bytes::Bytes;
use millpond_wire::header::Known;
use millpond_wire::http1::Method;

use super::{redirect, special};
use crate::content::error_pages::{ErrorPage, PageStatus, find};
use crate::content::settings::ContentSettings;
use crate::phase::{self, Flow, Next};
use crate::request::Request;
use millpond_exchange::client::body::RequestBody;
use millpond_exchange::failure::{CLOSE_WITHOUT_ANSWER, Failure};
use millpond_exchange::response::Response;

/// Goes from an error to its page, or to the built-in one.
pub(crate) fn follow_status(req: &mut Request, status: u16) -> Next {
    // nginx: these end the connection; nobody is there to read a page.
    if matches!(status, CLOSE_WITHOUT_ANSWER | 408 | 499) {
        req.error.status = 0;
        return Next::Answer(Box::new(Response::empty(status)));
    }
    if special::closes_connection(status) {
        req.client.end_connection();
    }
    req.error.status = status;
    let page = if req.error.had_page {
        None
    } else {
        find(req, status)
    };
    match page {
        Some(page) => follow(req, &page, status),
        None => built_in(req, status),
    }
}

fn follow(req: &mut Request, page: &ErrorPage, status: u16) -> Next {
    req.error.had_page = !req
        .location
        .settings
        .of::<ContentSettings>()
        .error
        .is_recursive;
    req.error.status = match page.status {
        PageStatus::Error => special::wire_status(status),
        PageStatus::Own => 0,
        PageStatus::Code(code) => code,
    };
    let to = req.eval(&page.to);
    if status == 413 {
        // nginx: a body that was refused is discarded; it is none of the page's.
        req.body = RequestBody::None;
    }
    let flow = match to.first() {
        Some(b'/') => redirect(req, &to),
        Some(b'@') => phase::redirect_named(req, &to),
        _ => return redirect_client(req, page, to),
    };
    match flow {
        Ok(Flow::Jump(phase)) => Next::Run(phase),
        Ok(_) => built_in(req, 500),
        Err(failure) => {
            crate::log::request_error::failure(req, &failure);
            built_in(req, failure.status())
        }
    }
}

/// nginx: pages are fetched, whatever the request was.
fn redirect(req: &mut Request, to: &Bytes) -> Result<Flow, Failure> {
    if req.method != Method::Head {
        req.method = Method::Get;
    }
    let (path, query) = match memchr::memchr(b'?', to) {
        Some(mark) => (to.slice(..mark), Some(to.slice(mark + 1..))),
        None => (to.clone(), None),
    };
    phase::redirect(req, path, query)
}

fn redirect_client(req: &mut Request, page: &ErrorPage, to: Bytes) -> Next {
    let status = match page.status {
        PageStatus::Code(code @ (301 | 302 | 303 | 307 | 308)) => code,
        _ => 302,
    };
    req.answer_fields.set(Known::Location, to);
    built_in(req, status)
}

fn built_in(req: &mut Request, status: u16) -> Next {
    if req.is_clients_own() && req.client.discard_ready().is_err() {
        // Nobody knows where the next request begins.
        req.client.end_connection();
    }
    if let Some(page) = redirect::refresh_page(req, status) {
        req.error.status = page.status;
        return Next::Answer(Box::new(page));
    }
    req.error.status = special::wire_status(status);
    Next::Answer(Box::new(special::page(req, status)))
}
