//! `js_access`: a function that lets requests in or refuses them.
//!
//! It runs behind the other gates. One that fails lets nobody in, also when it had begun something
//! that failed later.

use std::sync::Arc;

use millpond_exchange::failure::Failure;
use millpond_exchange::response::Response;
use millpond_exchange::scope::block::Draft;
use millpond_wire::header::Known;

use super::content::redirect;
use super::host::Out;
use super::session::Session;
use super::{Scripts, tell};
use crate::content::mime;
use crate::phase::{Begun, Flow};
use crate::request::Request;
use crate::request_body;

/// True if requests of a block are let in by a function.
pub(crate) fn is_due(draft: &Draft) -> bool {
    let scripts: Option<&Scripts> = draft.get();
    scripts.is_some_and(|scripts| scripts.access.is_some())
}

/// The step of a request.
pub(crate) fn begin(req: &mut Request) -> Result<Begun<'_>, Failure> {
    // nginx: who may ask for the whole may ask for its parts.
    if req.is_subrequest() {
        return Ok(Begun::Done(Flow::Next));
    }
    Ok(Begun::waits(req, run))
}

async fn run(req: &mut Request) -> Result<Flow, Failure> {
    let location = Arc::clone(&req.location);
    let scripts = location.parts.get::<Scripts>();
    let Some((scripts, function)) = scripts.and_then(|it| Some((it, it.access.as_ref()?))) else {
        return Ok(Flow::Next);
    };
    request_body::read_all(req).await?;
    let mut out = Out::of_access();
    let outcome = match Session::begin(req, scripts) {
        Ok(mut session) => session.finish(req, &mut out, &function.0).await,
        Err(fault) => Err(fault),
    };
    if let Err(fault) = outcome {
        tell(req, &fault);
        return Err(Failure::Status(500));
    }
    if let Some(target) = &out.redirect {
        return redirect(req, target);
    }
    let Some((status, text)) = out.returned else {
        // A function that may have failed halfway lets nobody in.
        if out.has_unhandled {
            return Err(Failure::Status(500));
        }
        return Ok(Flow::Next);
    };
    match text {
        Some(target) if crate::rewrite::answer::is_redirect(status) => {
            req.answer_fields.set(Known::Location, target);
            Err(Failure::Status(status))
        }
        Some(text) => {
            let content_type = mime::content_type(req);
            Ok(Flow::Respond(Box::new(Response::text(
                status,
                content_type,
                text,
            ))))
        }
        None if status < 300 => Ok(Flow::Next),
        None => Err(Failure::Status(status)),
    }
}
