//! `js_access`: a function that lets requests in or refuses them.
//!
//! It runs behind the other gates, or as one of those of which any opens (`satisfy any`). One that
//! fails lets nobody in, also when it had begun something that failed later.

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

/// The word of a function about a request.
pub(crate) enum Word {
    /// The request may come in.
    Open,
    /// The function has nothing to say.
    Silent,
    /// The request is answered.
    Answer(Flow),
}

async fn run(req: &mut Request) -> Result<Flow, Failure> {
    match ask(req).await? {
        Word::Open | Word::Silent => Ok(Flow::Next),
        Word::Answer(flow) => Ok(flow),
    }
}

/// Asks the function, as one gate among others; silence where there is none.
pub(crate) async fn ask(req: &mut Request) -> Result<Word, Failure> {
    let location = Arc::clone(&req.location);
    let scripts = location.parts.get::<Scripts>();
    let Some((scripts, function)) = scripts.and_then(|it| Some((it, it.access.as_ref()?))) else {
        return Ok(Word::Silent);
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
        return redirect(req, target).map(Word::Answer);
    }
    let Some((status, text)) = out.returned else {
        // A function that may have failed halfway lets nobody in.
        if out.has_unhandled || out.is_stuck {
            return Err(Failure::Status(500));
        }
        let is_silent = out.is_declined;
        return Ok(if is_silent { Word::Silent } else { Word::Open });
    };
    match text {
        Some(target) if crate::rewrite::answer::is_redirect(status) => {
            req.answer_fields.set(Known::Location, target);
            Err(Failure::Status(status))
        }
        Some(text) => {
            let content_type = mime::content_type(req);
            let response = Box::new(Response::text(status, content_type, text));
            Ok(Word::Answer(Flow::Respond(response)))
        }
        None if status < 300 => Ok(Word::Open),
        None => Err(Failure::Status(status)),
    }
}
