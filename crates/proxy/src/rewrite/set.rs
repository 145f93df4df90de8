//! `set`: gives a variable a value.
//!
//! Any name that no record of the program has may be set; of those that have one, `$args` and
//! `$limit_rate` may, and setting them changes the request.

use bytes::Bytes;
use millpond_conf::VariableUses;
use millpond_conf::value::parse_offset;
use millpond_conf::{Span, Statement, Template, VarId};
use millpond_system::log::error::Level;

use super::{CaptureForm, Script, Step, eval, text};
use crate::log::request_error;
use crate::request::{Request, Value};
use crate::var;
use millpond_exchange::scope::block::Draft;
use millpond_exchange::scope::build::Builder;

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

/// Variables of nginx that a configuration may give values to all the same
/// (NGX_HTTP_VAR_CHANGEABLE), beside all whose names begin with `ssl_`.
const CHANGEABLE: &[&str] = &[
    "args",
    "http3",
    "invalid_referer",
    "limit_rate",
    "proxy_host",
    "proxy_port",
    "uid_reset",
];

/// Variables that nginx does not have, or had not until lately, so that a configuration made for it
/// may use the names.
const OWN: &[&str] = &[
    "acme_certificate",
    "acme_certificate_key",
    "brotli_ratio",
    "cache_age",
    "cache_args",
    "cache_bytes",
    "cache_fill_role",
    "cache_hits",
    "cache_site",
    "cache_status_reason",
    "cache_ttl",
    "is_request_port",
    "jwt_payload",
    "origin_bytes",
    "otel_parent_id",
    "otel_parent_sampled",
    "otel_span_id",
    "otel_trace_id",
    "proxy_add_via",
    "request_port",
    "secure_link_hmac",
    "secure_link_hmac_expires",
    "secure_link_hmac_token",
    "upstream_clients",
    "upstream_end",
    "upstream_entry",
    "upstream_host",
    "upstream_method",
    "upstream_node",
    "upstream_queue_time",
    "upstream_range",
    "upstream_reason",
    "upstream_redirects",
    "upstream_start",
    "upstream_tier",
    "upstream_uri",
    "zstd_ratio",
];

/// A compiled `set`.
#[derive(Debug)]
pub(super) struct Set {
    variable: Variable,
    value: Template,
}

/// A variable that may be set.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Variable {
    /// A variable that only holds the value it is given.
    Stored(VarId),
    /// `$args`: the query changes.
    Args,
    /// `$limit_rate`: the rate changes.
    LimitRate,
}

impl Variable {
    /// The variable of a name, in small letters, and its number.
    pub(crate) fn of(name: &str, id: VarId) -> Variable {
        match name {
            "args" => Variable::Args,
            "limit_rate" => Variable::LimitRate,
            _ => Variable::Stored(id),
        }
    }

    /// The variable of a checked name, in small letters, that a line gives values to.
    pub(crate) fn given(variables: &mut VariableUses, name: &str, span: Span) -> Variable {
        match Variable::of(name, variables.intern(name, span)) {
            Variable::Stored(_) => Variable::Stored(variables.store(name, span)),
            special => special,
        }
    }

    /// Gives the variable a value.
    pub(crate) fn assign(self, req: &mut Request, value: Bytes) {
        match self {
            Variable::Stored(id) => req.set_value(id, Value::Found(value)),
            Variable::Args => {
                req.set_query(Some(value));
                req.path.is_changed = true;
            }
            Variable::LimitRate => {
                let rate = str::from_utf8(&value).ok().and_then(parse_offset);
                match rate {
                    Some(rate) => req.limit_rate = Some(rate),
                    None => request_error::write(
                        req,
                        Level::Error,
                        format_args!("invalid $limit_rate \"{}\"", text(&value)),
                    ),
                }
            }
        }
    }
}

/// Compiles the directive.
pub(super) fn set(builder: &mut Builder, statement: &Statement, draft: &mut Draft) {
    if !builder.has_arguments(statement, 2..=2) {
        return;
    }
    let [name, value] = statement.args.as_slice() else {
        return;
    };
    let variable = settable(builder, name);
    let value = builder.template(value);
    if let (Some(variable), Some(value)) = (variable, value) {
        draft
            .of::<Script>()
            .steps
            .push(Step::Set(Set { variable, value }));
    }
}

/// The variable that a line gives a value; an impossible one is reported.
pub(super) fn settable(builder: &mut Builder, word: &millpond_conf::Word) -> Option<Variable> {
    let id = variable_name(builder, word)?;
    let variable = Variable::of(builder.cx.variables.name(id), id);
    if let Variable::Stored(id) = variable {
        var::define_set(builder, id);
    }
    Some(variable)
}

/// The variable that a directive (`set`, `map` …) defines; an impossible name is reported.
pub fn variable_name(builder: &mut Builder, word: &millpond_conf::Word) -> Option<VarId> {
    match checked_name(&builder.cx.variables, &word.text) {
        Ok(name) => Some(builder.cx.variables.intern(&name, word.span)),
        Err(message) => {
            builder.error(word.span, message);
            None
        }
    }
}

/// The name of a variable that may be set, in small letters; the error says why it may not.
pub(crate) fn checked_name(variables: &VariableUses, text: &str) -> Result<String, String> {
    let Some(name) = text.strip_prefix('$').filter(|name| !name.is_empty()) else {
        return Err(format!("invalid variable name \"{text}\""));
    };
    let lower = name.to_ascii_lowercase();
    let is_in = |names: &[&str]| names.contains(&lower.as_str());
    let is_changeable = lower.starts_with("ssl_") || is_in(CHANGEABLE) || is_in(OWN);
    let is_fixed = variables.is_fixed(&lower) || is_in(FIXED_MEMBERS);
    if is_fixed && !is_changeable {
        Err(format!("the duplicate \"{lower}\" variable"))
    } else {
        Ok(lower)
    }
}

impl Set {
    /// Evaluates the value and stores it.
    pub(super) fn run(&self, req: &mut Request, form: CaptureForm) {
        let value = eval(req, &self.value, form);
        self.variable.assign(req, value);
    }
}
