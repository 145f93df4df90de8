//! `rewrite`: another path, or a redirect, for a path that an expression matches.
//!
//! The replacement's first question mark starts new arguments; the old ones follow them, unless the
//! replacement ends in a question mark. A replacement that begins with `http://`, `https://` or
//! `$scheme` is a redirect.

use std::sync::Arc;

use bytes::Bytes;
use millpond_conf::{Statement, Template, Word};
use millpond_semantics::uri::unescape_redirect;
use millpond_wire::header::Known;

use super::{CaptureForm, Next, Script, Step, eval, eval_into, text, trace};
use crate::request::Request;
use crate::route::captures::RequestRegex as _;
use millpond_exchange::expression::{Captures, Case, Regex};
use millpond_exchange::failure::Failure;
use millpond_exchange::scope::block::Draft;
use millpond_exchange::scope::build::Builder;

/// A compiled `rewrite`.
#[derive(Debug)]
pub(super) struct Replace {
    regex: Arc<Regex>,
    path: Template,
    /// The part behind the first question mark.
    args: Option<Template>,
    old_args: OldArgs,
    then: Then,
}

/// The treatment of the arguments that the request had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OldArgs {
    Append,
    Drop,
}

/// The effect of a match on the request's way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Then {
    /// The next step.
    Continue,
    /// The end of the script, and a new search for the location.
    Last,
    /// The end of the script; the location stays.
    Break,
    /// A redirect with this status.
    Redirect(u16),
}

/// Compiles the directive.
pub(super) fn rewrite(builder: &mut Builder, statement: &Statement, draft: &mut Draft) {
    if !builder.has_arguments(statement, 2..=3) {
        return;
    }
    let [regex, replacement, flags @ ..] = statement.args.as_slice() else {
        return;
    };
    if replacement.text.is_empty() {
        builder.error(replacement.span, "empty replacement");
        return;
    }
    let compiled = Regex::compile(builder, &regex.text, Case::Sensitive, regex.span);
    let then = match flags.first() {
        None => Then::Continue,
        Some(flag) => match flag.text.as_str() {
            "last" => Then::Last,
            "break" => Then::Break,
            "redirect" => Then::Redirect(302),
            "permanent" => Then::Redirect(301),
            other => {
                builder.error(flag.span, format!("invalid parameter \"{other}\""));
                return;
            }
        },
    };
    let then = match then {
        Then::Redirect(_) => then,
        // nginx: "break" after an absolute URL does not keep it from being a redirect.
        _ if is_absolute(&replacement.text) => Then::Redirect(302),
        _ => then,
    };
    let (word, old_args) = without_last_mark(replacement);
    let split = match then {
        Then::Redirect(_) => None,
        _ => word.split_once('?'),
    };
    let (path, args) = match &split {
        Some((path, args)) => (builder.template(path), Some(builder.template(args))),
        None => (builder.template(&word), None),
    };
    let (Some(regex), Some(path)) = (compiled, path) else {
        return;
    };
    let args = match args {
        Some(None) => return,
        Some(args) => args,
        None => None,
    };
    draft.of::<Script>().steps.push(Step::Replace(Replace {
        regex,
        path,
        args,
        old_args,
        then,
    }));
}

/// True for what is always a redirect.
pub(super) fn is_absolute(text: &str) -> bool {
    ["http://", "https://", "$scheme"]
        .iter()
        .any(|start| text.starts_with(start))
}

/// nginx: a question mark at the end drops the old arguments.
fn without_last_mark(word: &Word) -> (Word, OldArgs) {
    match word.text.strip_suffix('?') {
        Some(text) => {
            let text = text.to_owned();
            (
                Word {
                    text,
                    ..word.clone()
                },
                OldArgs::Drop,
            )
        }
        None => (word.clone(), OldArgs::Append),
    }
}

impl Replace {
    /// Replaces the path if the expression matches it.
    pub(super) fn run(&self, req: &mut Request, form: &mut CaptureForm) -> Result<Next, Failure> {
        let source = self.regex.source();
        if !self.regex.capture(req) {
            trace(
                req,
                format_args!("\"{source}\" does not match \"{}\"", text(&req.uri)),
            );
            req.captures = Captures::default();
            return Ok(Next::Step);
        }
        trace(
            req,
            format_args!("\"{source}\" matches \"{}\"", text(&req.uri)),
        );
        req.is_internal = true;
        req.path.is_changed = true;
        // nginx: after the first replacement, values take captures as they are.
        *form = CaptureForm::Plain;
        match self.then {
            Then::Redirect(status) => return Err(self.redirect(req, status)),
            Then::Break => {
                req.path.has_left_prefix = true;
                req.path.is_changed_in_location = false;
            }
            Then::Continue | Then::Last => req.path.is_changed_in_location = true,
        }
        self.replace(req)?;
        match self.then {
            Then::Continue => Ok(Next::Step),
            _ => Ok(Next::End),
        }
    }

    fn replace(&self, req: &mut Request) -> Result<(), Failure> {
        let path = eval(req, &self.path, CaptureForm::Plain);
        let mut args = Vec::new();
        if let Some(template) = &self.args {
            eval_into(req, template, CaptureForm::Escaped, &mut args);
        }
        match (&self.args, self.old_args) {
            (Some(_), OldArgs::Append) => {
                if !req.args.is_empty() {
                    args.push(b'&');
                    args.extend_from_slice(&req.args);
                }
                req.set_query(Some(Bytes::from(args)));
            }
            (Some(_), OldArgs::Drop) => req.set_query(Some(Bytes::from(args))),
            // nginx: there is a query as before, and it is empty.
            (None, OldArgs::Drop) => req.args = Bytes::new(),
            (None, OldArgs::Append) => {}
        }
        trace(
            req,
            format_args!(
                "rewritten data: \"{}\", args: \"{}\"",
                text(&path),
                text(&req.args)
            ),
        );
        req.uri = path;
        if req.uri.is_empty() {
            return Err(Failure::Internal(
                "the rewritten URI has a zero length".to_string(),
            ));
        }
        Ok(())
    }

    /// Leaves the redirect's target with the request.
    fn redirect(&self, req: &mut Request, status: u16) -> Failure {
        let url = eval(req, &self.path, CaptureForm::Escaped);
        let mut url = unescape_redirect(&url).into_owned();
        if self.old_args == OldArgs::Append && !req.args.is_empty() {
            let has_args = self.path.source.contains('?');
            url.push(if has_args { b'&' } else { b'?' });
            url.extend_from_slice(&req.args);
        }
        trace(req, format_args!("rewritten redirect: \"{}\"", text(&url)));
        req.answer_fields.set(Known::Location, Bytes::from(url));
        Failure::Status(status)
    }
}
