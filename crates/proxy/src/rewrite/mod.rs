//! `rewrite`, `set`, `if`, `return`, `break`, `rewrite_log`, `uninitialized_variable_warn`: the
//! directives that run in the order of the file.
//!
//! They are compiled to a [`Script`] for each block and run in the phases `ServerRewrite` and
//! `Rewrite`. An `if` is a step that skips the steps of its block, which follow it in the same
//! script; in a location its block is also a location of its own, which takes the place of the one
//! that was found.
//!
//! ```text
//! set $a 1;                      Set
//! if ($uri = /x) {               If { condition, location, skip: 2 }
//!     rewrite ^ /y break;            Replace
//!     set $a 2;                      Set
//! }
//! return 200 $a;                 Return
//! ```
//!
//! Invariants:
//! 1. A script is walked forward only, so it ends.
//! 2. `skip` never leads beyond the end of the script.
//! 3. What a client sent never makes a step fail otherwise than with a status.
//!
//! Sources: nginx's rewrite module and script engine, whose rules about escaping are kept: captures
//! are escaped when they come from a path that had escapes and go into a query, a redirect, or a
//! value before the first replacement that matched.

pub(crate) mod answer;
pub mod computed;
mod condition;
mod functions;
mod replace;
pub(crate) mod set;

use std::sync::Arc;

use millpond_conf::{Contexts, Part, Statement, Template};
use millpond_semantics::uri::{EscapeKind, escape_into};
use millpond_system::log::error::Level;

use crate::content::ContentHandler;
use crate::log::request_error;
use crate::phase::Flow;
use crate::request::Request;
use crate::var;
use millpond_exchange::failure::Failure;
use millpond_exchange::scope::block::{Draft, Pass, Row};
use millpond_exchange::scope::build::Builder;
use millpond_exchange::scope::parts::{self, Place};
use millpond_exchange::settings::Location;
use millpond_exchange::settings::level::{self, Closing};
use millpond_exchange::settings::tree::LocationKind;
use millpond_exchange::stats::status_zone::StatusZone;

use condition::Condition;

pub use set::variable_name;

/// The blocks in which the directives of this module may stand.
const CONTEXTS: Contexts = Contexts::SERVER
    .union(Contexts::IF_SERVER)
    .union(Contexts::LOCATION)
    .union(Contexts::IF_LOCATION);

/// Rows of the directives that become steps.
pub const ROWS: &[Row] = &[
    Row {
        name: "rewrite",
        contexts: CONTEXTS,
        syntax: "regex replacement [last | break | redirect | permanent]",
        is_block: false,
        pass: Pass::Ordered,
        doc: "Replaces the path when the expression matches it, or redirects.",
        apply: replace::rewrite,
    },
    Row {
        name: "set",
        contexts: CONTEXTS,
        syntax: "$variable value",
        is_block: false,
        pass: Pass::Ordered,
        doc: "Gives a variable a value.",
        apply: set::set,
    },
    Row {
        name: "if",
        contexts: Contexts::SERVER.union(Contexts::LOCATION),
        syntax: "(condition) { … }",
        is_block: true,
        pass: Pass::Ordered,
        doc: "Runs the directives of its block, and in a location also applies its settings, when the condition holds.",
        apply: if_block,
    },
    Row {
        name: "return",
        contexts: CONTEXTS,
        syntax: "code [text] | code URL | URL",
        is_block: false,
        pass: Pass::Ordered,
        doc: "Ends the request with a status, a text or a redirect.",
        apply: answer::return_directive,
    },
    Row {
        name: "break",
        contexts: CONTEXTS,
        syntax: "",
        is_block: false,
        pass: Pass::Ordered,
        doc: "Ends the directives of this kind for the request's current location.",
        apply: break_directive,
    },
];

/// The messages that the rewrite directives log.
#[derive(Clone, Debug, millpond_conf::Family)]
#[family(http, server, location, if_server, if_location)]
pub struct RewritePolicy {
    /// Gives the error log a line at level notice for each step of `rewrite`.
    #[directive(name = "rewrite_log", default = "off")]
    pub log: bool,
}

impl parts::Part for RewritePolicy {
    const PLACE: Place = Place::Rewriting;
}

/// The compiled directives of a block.
#[derive(Debug, Default)]
pub struct Script {
    steps: Vec<Step>,
}

impl parts::Part for Script {
    const PLACE: Place = Place::Script;
}

/// One directive.
#[derive(Debug)]
enum Step {
    Replace(replace::Replace),
    Set(set::Set),
    Computed(computed::Computed),
    If {
        condition: Condition,
        /// Settings that apply when the condition holds; none in a server.
        location: Option<Arc<Location>>,
        /// The count of steps that belong to the block.
        skip: usize,
    },
    Return(answer::Answer),
    Break,
}

/// The effect of a step on its script: the next step, or the end.
enum Next {
    Step,
    End,
}

/// The form in which captures are written into a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CaptureForm {
    /// Captures as they were matched.
    Plain,
    /// Escaped for a query, if the path that the client sent had escapes.
    Escaped,
}

impl Script {
    /// True when there is nothing to run.
    pub fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }

    /// Gives the locations of `if` blocks that have no handler of their own the one around them.
    fn inherit_handler(&mut self, handler: Option<&ContentHandler>) {
        let Some(handler) = handler else { return };
        for step in &mut self.steps {
            if let Step::If {
                location: Some(location),
                ..
            } = step
                && let Some(location) = Arc::get_mut(location)
                && location.parts.get::<ContentHandler>().is_none()
            {
                location.parts.put(handler.clone());
            }
        }
    }
}

/// Gives `if` blocks the handler of the location around them.
pub fn close(level: &mut Closing<'_>) {
    let handler = level.draft.get::<ContentHandler>().cloned();
    let script = level.draft.of::<Script>();
    script.inherit_handler(handler.as_ref());
}

/// Runs a block's script.
pub fn run(req: &mut Request, level: &Location) -> Result<Flow, Failure> {
    let Some(script) = level.parts.get::<Script>() else {
        return Ok(Flow::Next);
    };
    let mut form = CaptureForm::Escaped;
    let mut at = 0;
    // INVARIANT 1.
    while let Some(step) = script.steps.get(at) {
        at += 1;
        match step {
            Step::Replace(replace) => match replace.run(req, &mut form)? {
                Next::Step => {}
                Next::End => break,
            },
            Step::Set(set) => set.run(req, form),
            Step::Computed(computed) => computed.run(req, form)?,
            Step::If {
                condition,
                location,
                skip,
            } => {
                if !condition.holds(req, form) {
                    at += skip;
                } else if let Some(location) = location {
                    enter(req, location);
                }
            }
            Step::Return(answer) => return answer.run(req),
            Step::Break => {
                if std::mem::take(&mut req.path.is_changed_in_location) {
                    req.path.has_left_prefix = true;
                }
                break;
            }
        }
    }
    Ok(Flow::Next)
}

/// Goes over to the settings of a block whose condition holds.
///
/// nginx: the request stays with the handler of a block before it, but that finds no upstream in
/// the settings of this one, unless the location around them has one.
fn enter(req: &mut Request, location: &Arc<Location>) {
    let had_pass = matches!(req.location.parts.get(), Some(ContentHandler::Pass(_)));
    let has_handler = location.parts.get::<ContentHandler>().is_some();
    req.pass_is_lost = !has_handler && (had_pass || req.pass_is_lost);
    req.location = Arc::clone(location);
}

fn if_block(builder: &mut Builder, statement: &Statement, draft: &mut Draft) {
    let condition = condition::parse(builder, statement);
    let is_in_location = draft.context == Contexts::LOCATION;
    let context = if is_in_location {
        Contexts::IF_LOCATION
    } else {
        Contexts::IF_SERVER
    };
    let mut inner = Draft {
        name: draft.name.clone(),
        ..Draft::new(context, statement.span)
    };
    if is_in_location {
        StatusZone::pass_on(draft, &mut inner);
    }
    let mut location = level::nested(builder, statement, inner, LocationKind::Unnamed);
    let Some(condition) = condition else { return };
    let own = location.parts.get_mut::<Script>();
    let steps = own.map(|it| std::mem::take(&mut it.steps));
    let steps = steps.unwrap_or_default();
    location.is_internal |= draft.is_internal;
    let script = draft.of::<Script>();
    script.steps.push(Step::If {
        condition,
        location: is_in_location.then(|| Arc::new(location)),
        skip: steps.len(),
    });
    script.steps.extend(steps);
}

fn break_directive(builder: &mut Builder, statement: &Statement, draft: &mut Draft) {
    if builder.has_arguments(statement, 0..=0) {
        draft.of::<Script>().steps.push(Step::Break);
    }
}

/// Appends a template's value, with its captures in the given form.
fn eval_into(req: &mut Request, template: &Template, form: CaptureForm, out: &mut Vec<u8>) {
    for part in template.parts.iter() {
        match part {
            Part::Literal(text) => out.extend_from_slice(text),
            Part::Variable(id) => {
                var::write(req, *id, out);
            }
            Part::Capture(group) => {
                let text = req.capture(*group);
                if form == CaptureForm::Escaped && req.path.has_escapes {
                    escape_into(text, EscapeKind::Args, out);
                } else {
                    out.extend_from_slice(text);
                }
            }
        }
    }
}

/// A template's value, with its captures in the given form.
fn eval(req: &mut Request, template: &Template, form: CaptureForm) -> bytes::Bytes {
    let mut out = Vec::new();
    eval_into(req, template, form, &mut out);
    bytes::Bytes::from(out)
}

/// Writes a line for `rewrite_log`.
fn trace(req: &Request, message: std::fmt::Arguments<'_>) {
    if req.location.settings.of::<RewritePolicy>().log {
        request_error::write(req, Level::Notice, message);
    }
}

/// Bytes of a request for a log line.
fn text(bytes: &[u8]) -> std::borrow::Cow<'_, str> {
    String::from_utf8_lossy(bytes)
}
