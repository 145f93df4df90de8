//! `js_set`, `js_var`: variables that functions compute, and variables that scripts set.
//!
//! A variable is read while something else is worked out, so that its function cannot wait.

use std::sync::Arc;

use bytes::Bytes;
use millpond_conf::{Contexts, Statement, Template};
use millpond_exchange::scope::block::{Draft, Pass, Row};
use millpond_exchange::scope::build::Builder;
use millpond_exchange::scope::parts::{Part, Parts, Place};
use millpond_script::DictSpec;
use millpond_system::log::error::Level;

use super::host::Out;
use super::session::Session;
use super::{FunctionName, Scripts, tell};
use crate::log::request_error;
use crate::request::Request;
use crate::rewrite::variable_name;
use crate::var::{self, Computed, Definition};

/// The blocks in which the lines may stand.
const CONTEXTS: Contexts = Contexts::HTTP
    .union(Contexts::SERVER)
    .union(Contexts::LOCATION)
    .union(Contexts::STREAM)
    .union(Contexts::STREAM_SERVER);

/// The rows.
pub const ROWS: &[Row] = &[
    Row {
        name: "js_set",
        contexts: CONTEXTS,
        syntax: "$variable module.function [nocache]",
        is_block: false,
        pass: Pass::First,
        doc: "Defines a variable that a function computes when it is first read, once for a \
              request; with `nocache` whenever it is read. The function gets the request `r` (in \
              `stream` the session `s`), and cannot wait: what it returns, or a promise that is \
              kept already, is the value. A \
              function that fails is logged, and the value is empty.",
        apply: set,
    },
    Row {
        name: "js_var",
        contexts: CONTEXTS,
        syntax: "$variable [value]",
        is_block: false,
        pass: Pass::First,
        doc: "Declares a variable that scripts set by `r.variables`; the value may have variables, \
              and is that of a request until a script has set it.",
        apply: declare,
    },
];

/// The names that `js_var` has declared, and places that scripts are told.
#[derive(Debug, Default)]
pub struct ScriptNames {
    names: Vec<String>,
    pub(super) dicts: Vec<DictSpec>,
    pub(super) prefix: String,
    pub(super) conf_prefix: String,
    /// The variables of the environment that `env` names, and their values.
    pub(super) environment: Vec<(String, String)>,
    /// The words of the process's command line.
    pub(super) arguments: Vec<String>,
    /// True if `js_periodic` stands anywhere.
    pub(super) has_ticks: bool,
}

impl Part for ScriptNames {
    const PLACE: Place = Place::ScriptNames;
}

impl ScriptNames {
    /// True if `js_var` has declared the name.
    pub(super) fn has(&self, name: &str) -> bool {
        self.names.iter().any(|known| known == name)
    }

    /// The names, in the order of the file.
    pub(super) fn iter(&self) -> impl Iterator<Item = &str> {
        self.names.iter().map(String::as_str)
    }
}

/// Keeps the names for requests.
pub fn keep(builder: &mut Builder, parts: &mut Parts) {
    let mut names = builder.take::<ScriptNames>();
    let folder = |path: &std::path::Path| format!("{}/", path.display()).replace("//", "/");
    names.arguments = std::env::args_os()
        .map(|word| word.to_string_lossy().into_owned())
        .collect();
    names.prefix = folder(&builder.cx.prefix);
    names.conf_prefix = folder(&builder.cx.conf_dir);
    parts.put(names);
}

/// Lets the scripts of other parts see the same environment.
pub fn share(from: &Parts, to: &mut Parts) {
    if let Some(names) = to.get_mut::<ScriptNames>() {
        names.environment = from.of::<ScriptNames>().environment.clone();
    }
}

fn set(builder: &mut Builder, statement: &Statement, _draft: &mut Draft) {
    if !builder.has_arguments(statement, 2..=3) {
        return;
    }
    let (name, function, mark) = match statement.args.as_slice() {
        [name, function] => (name, function, None),
        [name, function, mark] => (name, function, Some(mark)),
        _ => return,
    };
    if let Some(mark) = mark
        && mark.text != "nocache"
    {
        let message = format!("unrecognized flag \"{}\"", mark.text);
        return builder.error(mark.span, message);
    }
    let read = FunctionName::read(&function.text);
    let function = match read {
        Ok(function) => function,
        Err(message) => return builder.error(function.span, message),
    };
    let Some(id) = variable_name(builder, name) else {
        return;
    };
    let variable = ScriptVariable {
        function,
        is_cached: mark.is_none(),
    };
    if let Some(Definition::Lookup(known)) = var::definition(builder, id) {
        // nginx: the same line twice is one.
        if format!("{known:?}") != format!("{variable:?}") {
            let message = format!("variable \"{}\" is already declared", name.text);
            builder.error(name.span, message);
        }
        return;
    }
    var::define(builder, id, Definition::Lookup(Arc::new(variable)));
}

fn declare(builder: &mut Builder, statement: &Statement, _draft: &mut Draft) {
    if !builder.has_arguments(statement, 1..=2) {
        return;
    }
    let Some((name, value)) = statement.args.split_first() else {
        return;
    };
    let value = match value.first() {
        Some(word) => match builder.template(word) {
            Some(template) => Some(template),
            None => return,
        },
        None => None,
    };
    let Some(id) = variable_name(builder, name) else {
        return;
    };
    let names = &mut builder.of::<ScriptNames>().names;
    let known = name.text.trim_start_matches('$').to_ascii_lowercase();
    if !names.contains(&known) {
        names.push(known);
    }
    let variable = DeclaredVariable { value };
    var::define(builder, id, Definition::Lookup(Arc::new(variable)));
}

/// A variable that a function computes.
#[derive(Debug)]
struct ScriptVariable {
    function: FunctionName,
    is_cached: bool,
}

impl Computed for ScriptVariable {
    fn evaluate(&self, req: &mut Request) -> Bytes {
        let location = Arc::clone(&req.location);
        let Some(scripts) = location.parts.get::<Scripts>() else {
            let message = format_args!(
                "no \"js_import\" directives found for \"js_set\" handler \"{}\" in the current scope",
                self.function.0
            );
            request_error::write(req, Level::Error, message);
            return Bytes::new();
        };
        let mut out = Out::default();
        let value = Session::begin(req, scripts)
            .and_then(|mut session| session.at_once(req, &mut out, &self.function.0));
        match value {
            Ok(value) => value.unwrap_or_default(),
            Err(fault) => {
                tell(req, &fault);
                Bytes::new()
            }
        }
    }

    fn is_cached(&self) -> bool {
        self.is_cached
    }
}

/// A variable that scripts set.
#[derive(Debug)]
struct DeclaredVariable {
    value: Option<Template>,
}

impl Computed for DeclaredVariable {
    fn evaluate(&self, req: &mut Request) -> Bytes {
        let value = self.value.as_ref();
        value.map(|value| req.eval(value)).unwrap_or_default()
    }

    fn is_cached(&self) -> bool {
        true
    }
}
