//! `js_cache_key`, `js_cache_verdict`: functions that decide what the cache does.
//!
//! 1. A verdict is asked for when an answer may be stored, or makes a stored one fresh again; a hit
//!    asks nobody.
//! 2. What fails keeps out: without a verdict nothing is stored, and without a key nothing is
//!    answered.

use std::sync::Arc;

use bytes::Bytes;
use millpond_cache::ruling::Ruling;
use millpond_cache::targeted::EachField;
use millpond_conf::{Span, Template};
use millpond_exchange::protocol::Protocol;
use millpond_exchange::settings::level::Closing;
use millpond_script::Fault;
use millpond_wire::header::Field;

use super::host::Out;
use super::session::Session;
use super::{FunctionName, Scripts, tell};
use crate::request::Request;
use crate::upstream::pass_settings::SettingsByProtocol as _;
use crate::var::{self, Computed, Definition};

/// Makes a function's value the key of all caches of a block.
pub(super) fn make_key(level: &mut Closing<'_>, function: &FunctionName, span: Span) {
    let variables = &mut level.builder.cx.variables;
    let name = format!("js_cache_key_{}", function.0.replace('.', "__"));
    let id = variables.intern(&name, span);
    let Ok(template) = Template::parse(&format!("${{{name}}}"), span, variables) else {
        return;
    };
    let variable = KeyVariable {
        function: function.clone(),
    };
    var::define(level.builder, id, Definition::Lookup(Arc::new(variable)));
    for protocol in Protocol::ALL {
        level.settings.pass_mut(protocol).key.key = Some(template.clone());
    }
}

/// The key of a request.
#[derive(Debug)]
struct KeyVariable {
    function: FunctionName,
}

impl Computed for KeyVariable {
    fn evaluate(&self, req: &mut Request) -> Bytes {
        let location = Arc::clone(&req.location);
        let value = match location.parts.get::<Scripts>() {
            Some(scripts) => key(req, scripts, &self.function.0),
            None => Err(Fault::NoValue(self.function.0.clone())),
        };
        value.unwrap_or_else(|fault| {
            tell(req, &fault);
            // INVARIANT 2.
            req.lookup.expression_gave_up.set(true);
            Bytes::new()
        })
    }

    fn is_cached(&self) -> bool {
        false
    }
}

fn key(req: &mut Request, scripts: &Scripts, function: &str) -> Result<Bytes, Fault> {
    let mut out = Out::default();
    let value = Session::begin(req, scripts)?.at_once(req, &mut out, function)?;
    let key = value.filter(|key| !key.is_empty());
    key.ok_or_else(|| Fault::NoValue(function.to_string()))
}

/// Asks the function of a location for its verdict about an answer.
pub(super) fn rule(req: &mut Request, status: u16, each_field: EachField<'_>) -> Option<Ruling> {
    let location = Arc::clone(&req.location);
    let scripts: &Scripts = location.parts.get()?;
    let function = scripts.verdict.as_ref()?;
    let mut out = Out::of_verdict(status);
    each_field(&mut |name, value| {
        let name = Bytes::copy_from_slice(name);
        out.fields
            .push(Field::new(name, Bytes::copy_from_slice(value)));
    });
    let ruled = Session::begin(req, scripts)
        .and_then(|mut session| session.rule(req, &mut out, &function.0));
    let ruling = match ruled {
        Ok(ruling) => ruling,
        Err(fault) => {
            tell(req, &fault);
            // INVARIANT 2.
            return Some(Ruling::out());
        }
    };
    let bytes = |text: String| Bytes::from(text);
    Some(Ruling {
        keeps_out: ruling.keeps_out,
        fresh: ruling.fresh,
        stale: ruling.stale,
        tags: ruling.tags.into_iter().map(bytes).collect(),
        vary: ruling.vary.map(bytes),
    })
}
