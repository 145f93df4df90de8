//! `js_content`: an answer that a function makes.
//!
//! The answer is sent when the function, and all that it waits for, has ended.

use bytes::Bytes;
use millpond_conf::{Contexts, Span, Statement};
use millpond_exchange::failure::Failure;
use millpond_exchange::response::Response;
use millpond_exchange::scope::block::{Draft, Pass, Row};
use millpond_exchange::scope::build::Builder;
use millpond_semantics::uri::safe_uri;
use millpond_wire::header::Known;

use super::host::Out;
use super::session::Session;
use super::{FunctionName, Scripts, tell};
use crate::content::{ContentHandler, Explained, Handler, mime};
use crate::phase::{self, Begun, Flow};
use crate::request::Request;
use crate::request_body;

/// The row.
pub const ROWS: &[Row] = &[Row {
    name: "js_content",
    contexts: Contexts::LOCATION
        .union(Contexts::IF_LOCATION)
        .union(Contexts::LIMIT_EXCEPT),
    syntax: "module.function",
    is_block: false,
    pass: Pass::First,
    doc: "Answers with what a function makes: it gets the request `r`, and may wait for promises. \
          The request's body is read before.\n\n\
          # Differs from nginx\n\n\
          The answer is sent when the function has ended, and not as it is made.",
    apply,
}];

fn apply(builder: &mut Builder, statement: &Statement, draft: &mut Draft) {
    if !builder.has_arguments(statement, 1..=1) {
        return;
    }
    let Some(word) = statement.args.first() else {
        return;
    };
    if draft.has::<Named>() {
        return builder.error(statement.span, "\"js_content\" directive is duplicate");
    }
    match FunctionName::read(&word.text) {
        Ok(function) => {
            draft.put(Named {
                function: function.clone(),
                span: statement.span,
            });
            draft.put(ContentHandler::own(ScriptContent { function }));
        }
        Err(message) => builder.error(word.span, message),
    }
}

/// The function that the block being read names.
#[derive(Clone, Debug)]
pub(super) struct Named {
    pub(super) function: FunctionName,
    pub(super) span: Span,
}

/// The function that answers.
#[derive(Debug)]
struct ScriptContent {
    function: FunctionName,
}

impl Handler for ScriptContent {
    fn begin<'a>(&self, req: &'a mut Request) -> Result<Begun<'a>, Failure> {
        let function = self.function.clone();
        Ok(Begun::waits(req, |req| run(req, function)))
    }

    fn explain(&self) -> Explained {
        Explained::Itself("js_content")
    }
}

async fn run(req: &mut Request, function: FunctionName) -> Result<Flow, Failure> {
    request_body::read_all(req).await?;
    let location = std::sync::Arc::clone(&req.location);
    let Some(scripts) = location.parts.get::<Scripts>() else {
        let message = "\"js_content\" has no \"js_import\"";
        return Err(Failure::Internal(message.to_string()));
    };
    let mut out = Out::of_content();
    let outcome = match Session::begin(req, scripts) {
        Ok(mut session) => session.finish(req, &mut out, &function.0).await,
        Err(fault) => Err(fault),
    };
    if let Err(fault) = outcome {
        tell(req, &fault);
        return Err(Failure::Status(500));
    }
    answer(req, out)
}

/// Does what the script wants.
fn answer(req: &mut Request, mut out: Out) -> Result<Flow, Failure> {
    if let Some(target) = out.redirect.take() {
        return redirect(req, &target);
    }
    if let Some((status, text)) = out.returned.take() {
        return returned(req, out, (status, text));
    }
    if !out.is_answered() {
        return Err(Failure::Status(500));
    }
    let status = if out.status == 0 { 200 } else { out.status };
    let body = std::mem::take(&mut out.body).freeze();
    Ok(Flow::Respond(Box::new(made(req, out, (status, body)))))
}

/// `r.return()`, by the rules of the directive.
fn returned(
    req: &mut Request,
    out: Out,
    (status, text): (u16, Option<Bytes>),
) -> Result<Flow, Failure> {
    let is_redirect = crate::rewrite::answer::is_redirect(status);
    if is_redirect || (status >= 400 && text.is_none()) {
        req.answer_fields.extend(out.fields);
        if let Some(target) = text {
            req.answer_fields.set(Known::Location, target);
        }
        return Err(Failure::Status(status));
    }
    let body = text.unwrap_or_default();
    Ok(Flow::Respond(Box::new(made(req, out, (status, body)))))
}

fn made(req: &mut Request, mut out: Out, (status, body): (u16, Bytes)) -> Response {
    let content_type = match out.fields.get(Known::ContentType) {
        Some(own) => own.clone(),
        None => mime::content_type(req),
    };
    let is_head = req.is_head();
    let mut response = Response::text(status, content_type, body);
    out.fields.remove(Known::ContentType);
    for field in out.fields {
        response.fields.push(field);
    }
    // A length that the script gives holds where nothing contradicts it.
    if is_head && out.length.is_some() {
        response.length = out.length;
    }
    response
}

/// `r.internalRedirect()`.
pub(super) fn redirect(req: &mut Request, target: &[u8]) -> Result<Flow, Failure> {
    if target.first() == Some(&b'@') {
        return phase::redirect_named(req, target);
    }
    let Ok(uri) = safe_uri(target) else {
        let target = String::from_utf8_lossy(target);
        let message = format!("unsafe URI \"{target}\" in internalRedirect");
        return Err(Failure::Internal(message));
    };
    let path = Bytes::copy_from_slice(&uri.path);
    phase::redirect(req, path, uri.query.map(Bytes::copy_from_slice))
}
