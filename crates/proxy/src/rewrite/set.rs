//! `set`: gives a variable a value.
//!
//! Any name that no record of the program has may be set; of those that have one, `$args` and
//! `$limit_rate` may, and setting them changes the request.

use millpond_conf::value::parse_offset;
use millpond_conf::{Statement, Template, VarId};

use super::{CaptureForm, Step, eval, text};
use crate::log::error::{self, Level};
use crate::request::{Request, Value};
use crate::scope::block::Draft;
use crate::scope::build::Builder;
use crate::var::{self, Definition};

/// Variables of families that are records of their own in nginx, so that it refuses to set them.
const FIXED_MEMBERS: &[&str] = &[
    "http_host",
    "http_user_agent",
    "http_referer",
    "http_via",
    "http_x_forwarded_for",
    "http_cookie",
    "sent_http_content_type",
    "sent_http_content_length",
    "sent_http_location",
    "sent_http_last_modified",
    "sent_http_connection",
    "sent_http_keep_alive",
    "sent_http_transfer_encoding",
    "sent_http_cache_control",
    "sent_http_link",
];

/// A compiled `set`.
#[derive(Debug)]
pub(super) struct Set {
    target: Target,
    value: Template,
}

#[derive(Clone, Copy, Debug)]
enum Target {
    Stored(VarId),
    Args,
    LimitRate,
}

/// Compiles the directive.
pub(super) fn set(builder: &mut Builder, statement: &Statement, draft: &mut Draft) {
    if !builder.has_arguments(statement, 2..=2) {
        return;
    }
    let [name, value] = statement.args.as_slice() else {
        return;
    };
    let target = target(builder, name);
    let value = builder.template(value);
    if let (Some(target), Some(value)) = (target, value) {
        draft.script.steps.push(Step::Set(Set { target, value }));
    }
}

fn target(builder: &mut Builder, word: &millpond_conf::Word) -> Option<Target> {
    let id = variable_name(builder, word)?;
    let name = builder.cx.variables.name(id).to_string();
    match name.as_str() {
        "args" => Some(Target::Args),
        "limit_rate" => Some(Target::LimitRate),
        _ => {
            builder.define_set(id);
            Some(Target::Stored(id))
        }
    }
}

/// The variable that a directive (`set`, `map` …) defines; an impossible name is reported.
pub(crate) fn variable_name(builder: &mut Builder, word: &millpond_conf::Word) -> Option<VarId> {
    let Some(name) = word.text.strip_prefix('$').filter(|name| !name.is_empty()) else {
        builder.error(
            word.span,
            format!("invalid variable name \"{}\"", word.text),
        );
        return None;
    };
    let lower = name.to_ascii_lowercase();
    let is_changeable = matches!(lower.as_str(), "args" | "limit_rate");
    let is_fixed = var::builtins().any(|variable| variable.name == lower)
        || var::composed().any(|variable| variable.name == lower)
        || var::absent::is_absent(&lower)
        || FIXED_MEMBERS.contains(&lower.as_str());
    if is_fixed && !is_changeable {
        builder.error(word.span, format!("the duplicate \"{lower}\" variable"));
        return None;
    }
    Some(builder.cx.variables.intern(&lower, word.span))
}

impl Builder {
    /// Makes a variable one that `set` writes, unless a block computes it already.
    fn define_set(&mut self, id: VarId) {
        let is_computed = matches!(self.defined.get(&id), Some(Definition::Lookup(_)));
        if !is_computed {
            self.define(id, Definition::Set);
        }
    }
}

impl Set {
    /// Evaluates the value and stores it.
    pub(super) fn run(&self, req: &mut Request, form: CaptureForm) {
        let value = eval(req, &self.value, form);
        match self.target {
            Target::Stored(id) => req.set_value(id, Value::Found(value)),
            Target::Args => {
                req.args = value;
                req.uri_is_changed = true;
            }
            Target::LimitRate => {
                let rate = str::from_utf8(&value).ok().and_then(parse_offset);
                match rate {
                    Some(rate) => req.limit_rate = Some(rate),
                    None => error::write(
                        req,
                        Level::Error,
                        format_args!("invalid $limit_rate \"{}\"", text(&value)),
                    ),
                }
            }
        }
    }
}
