//! `return`: a status, a text or a redirect as the answer.
//!
//! A status from 400 on without a text is an error like any other, so `error_page` applies to it. A
//! redirect is one, too; its target waits in the request until the answer is made.

use bytes::Bytes;
use millpond_conf::{Statement, Template};
use millpond_wire::header::Known;

use super::replace::is_absolute;
use super::{Script, Step};
use crate::content::mime;
use crate::phase::Flow;
use crate::request::Request;
use millpond_exchange::failure::Failure;
use millpond_exchange::response::Response;
use millpond_exchange::scope::block::Draft;
use millpond_exchange::scope::build::Builder;

/// The largest status that can be written with three digits.
const MAX_STATUS: u16 = 999;

/// A compiled `return`.
#[derive(Debug)]
pub(super) struct Answer {
    status: u16,
    /// The text, or the target of a redirect; empty for none.
    text: Template,
}

/// Compiles the directive.
pub(super) fn return_directive(builder: &mut Builder, statement: &Statement, draft: &mut Draft) {
    if !builder.has_arguments(statement, 1..=2) {
        return;
    }
    let (first, second) = match statement.args.as_slice() {
        [first] => (first, None),
        [first, second] => (first, Some(second)),
        _ => return,
    };
    let is_number = !first.text.is_empty() && first.text.bytes().all(|b| b.is_ascii_digit());
    let status = match first.text.parse::<u16>() {
        Ok(status) if is_number && status <= MAX_STATUS => Some(status),
        _ => None,
    };
    let (status, text) = match (status, second) {
        (Some(status), Some(text)) => (status, builder.template(text)),
        (Some(status), None) => (status, Some(Template::literal(""))),
        (None, None) if is_absolute(&first.text) => (302, builder.template(first)),
        _ => {
            builder.error(
                first.span,
                format!("invalid return code \"{}\"", first.text),
            );
            return;
        }
    };
    if let Some(text) = text {
        let script = draft.of::<Script>();
        script.steps.push(Step::Return(Answer { status, text }));
    }
}

impl Answer {
    /// The answer, or the failure that stands for it.
    pub(super) fn run(&self, req: &mut Request) -> Result<Flow, Failure> {
        if self.status >= 400 && self.text.source.is_empty() {
            return Err(Failure::Status(self.status));
        }
        // nginx: the text may name the status that it goes out with.
        req.sent.status = match req.error.status {
            0 => self.status,
            of_error => of_error,
        };
        let text = req.eval(&self.text);
        req.sent.status = 0;
        if is_redirect(self.status) {
            req.answer_fields.set(Known::Location, text);
            return Err(Failure::Status(self.status));
        }
        Ok(Flow::Respond(Box::new(self.respond(req, text))))
    }

    fn respond(&self, req: &mut Request, text: Bytes) -> Response {
        let content_type = mime::content_type(req);
        Response::text(self.status, content_type, text)
    }
}

/// The statuses whose text is a Location.
pub(crate) fn is_redirect(status: u16) -> bool {
    matches!(status, 301 | 302 | 303 | 307 | 308)
}
