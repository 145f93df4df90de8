//! `fastcgi_param`, `scgi_param`, `uwsgi_param`: the environment that an application gets.
//!
//! First what the configuration names, in its order; then the host, and the client's other fields
//! as `HTTP_…`, where the names are in upper case with underscores, and fields of one name are
//! joined to one value.
//!
//! 1. A parameter `HTTP_…` of the configuration takes the place of the client's field, also when
//!    its value is empty; with an empty text it is not sent at all.
//! 2. When the answer is for the cache, no condition or range of the client goes on but those that
//!    are the origin's to weigh by RFC 9111.
//! 3. `HTTP_HOST`, unless the configuration names it, is what `$host` and keys are made of, with
//!    the port that the client named, and not its Host field: that may be another one, or none,
//!    where the target has a host (RFC 9112 §3.2.2).

use std::collections::HashMap;
use std::sync::Arc;

use millpond_cache::conformance::Conformance;
use millpond_conf::Template;
use millpond_conf::value::{ArgError, Args, FromArgs};
use millpond_wire::header::Known;

use super::ask::Ask;
use super::request::is_kept_back;
use crate::request::Request;
use crate::upstream::pass_settings::SettingsByProtocol as _;
use millpond_exchange::protocol::Protocol;

/// One parameter.
#[derive(Clone, Debug)]
pub struct Param {
    /// Name.
    pub name: String,
    /// Value.
    pub value: Template,
    /// True when it is left out where its value is empty.
    pub skips_empty: bool,
}

impl FromArgs for Param {
    const SYNTAX: &'static str = "parameter value [if_not_empty]";

    fn from_args(args: &mut Args<'_>) -> Result<Self, ArgError> {
        let (name, skips_empty) = match args.words {
            [name, _] => (name, false),
            [name, _, condition] if condition.text == "if_not_empty" => (name, true),
            [_, _, other] => {
                let message = format!("invalid parameter \"{}\"", other.text);
                return Err(ArgError::value(2, message));
            }
            _ => return Err(ArgError::Count),
        };
        Ok(Param {
            name: name.text.clone(),
            value: args.word(1)?,
            skips_empty,
        })
    }
}

/// Settings of the parameters that an application is told.
#[derive(Clone, Debug, millpond_conf::Family)]
#[family(http, server, location, protocols)]
pub struct ParamPolicy {
    /// A parameter of requests; with `if_not_empty` it is left out where its value is empty.
    /// Parameters are inherited only where none is set.
    #[directive(name = "proxy_param", repeat, only("fastcgi", "scgi", "uwsgi"))]
    pub params: Vec<Param>,
}

/// Gives every parameter of a request to `write`, in the order they are sent.
pub(crate) fn for_each(
    req: &mut Request,
    protocol: Protocol,
    ask: &Ask,
    write: &mut dyn FnMut(&[u8], &[u8]),
) {
    let location = Arc::clone(&req.location);
    let settings = location.settings.pass(protocol);
    let params = &settings.param.params;
    for param in params {
        let is_field = param.name.starts_with(FIELD_PREFIX);
        if is_field && ask.replaces(&field_name(&param.name)) {
            continue;
        }
        if is_field && param.value.as_literal().is_some_and(<[u8]>::is_empty) {
            continue;
        }
        let value = req.eval(&param.value);
        if !(param.skips_empty && value.is_empty()) {
            write(param.name.as_bytes(), &value);
        }
    }
    // INVARIANT 3.
    if !is_named(params, HOST.as_bytes()) {
        write(HOST.as_bytes(), &host(req));
    }
    if ask.is_for_cache {
        for (name, value) in [
            ("HTTP_IF_MODIFIED_SINCE", &ask.if_modified_since),
            ("HTTP_IF_NONE_MATCH", &ask.if_none_match),
        ] {
            if let Some(value) = value
                && !is_named(params, name.as_bytes())
            {
                write(name.as_bytes(), value);
            }
        }
    }
    for (known, value) in ask.range_fields() {
        write(&param_name(known.lower().as_bytes()), value);
    }
    if settings.request.pass_headers {
        write_fields(req, params, (ask, settings.conformance.rules), write);
    }
}

/// Prefix of the parameters that carry the client's fields.
const FIELD_PREFIX: &str = "HTTP_";
const HOST: &str = "HTTP_HOST";

/// The value of [`HOST`].
fn host(req: &Request) -> Vec<u8> {
    let mut host = req.host_or_name().to_vec();
    if let Some(port) = req.host_port {
        host.extend_from_slice(format!(":{port}").as_bytes());
    }
    host
}

fn is_named(params: &[Param], name: &[u8]) -> bool {
    let mut names = params.iter().map(|param| param.name.as_bytes());
    names.any(|it| it.eq_ignore_ascii_case(name))
}

/// A field of the client, all its values joined.
struct Joined {
    name: Vec<u8>,
    value: Vec<u8>,
}

fn write_fields(
    req: &Request,
    params: &[Param],
    (ask, rules): (&Ask, Conformance),
    write: &mut dyn FnMut(&[u8], &[u8]),
) {
    let mut fields: Vec<Joined> = Vec::with_capacity(16);
    let mut places: HashMap<Vec<u8>, usize> = HashMap::with_capacity(16);
    for field in req.head.fields() {
        let is_named = rules == Conformance::Rfc9111 && req.head.connection_has(field.name);
        let is_written = field.known == Known::Host;
        if is_named || is_written || is_kept_back(req, (ask, rules), field.known) {
            continue;
        }
        let place = *places
            .entry(field.name.to_ascii_lowercase())
            .or_insert(fields.len());
        match fields.get_mut(place) {
            Some(joined) => {
                let separator: &[u8] = match field.known {
                    Known::Cookie => b"; ",
                    _ => b", ",
                };
                joined.value.extend_from_slice(separator);
                joined.value.extend_from_slice(field.value);
            }
            None => fields.push(Joined {
                name: param_name(field.name),
                value: field.value.to_vec(),
            }),
        }
    }
    for field in fields {
        if !is_named(params, &field.name) {
            write(&field.name, &field.value);
        }
    }
}

/// The name of the field that a parameter stands for.
fn field_name(param: &str) -> Vec<u8> {
    let name = param.strip_prefix(FIELD_PREFIX).unwrap_or(param);
    name.bytes()
        .map(|byte| if byte == b'_' { b'-' } else { byte })
        .collect()
}

fn param_name(field: &[u8]) -> Vec<u8> {
    let mut name = FIELD_PREFIX.as_bytes().to_vec();
    name.extend(field.iter().map(|byte| match byte {
        b'-' => b'_',
        other => other.to_ascii_uppercase(),
    }));
    name
}
