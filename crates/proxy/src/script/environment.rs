//! `env`: the variables of the environment that scripts see as `process.env`.
//!
//! They are read with the configuration; nothing of the environment is changed for that.

use std::env;

use millpond_conf::{Contexts, Statement};
use millpond_exchange::scope::block::{Draft, Pass, Row};
use millpond_exchange::scope::build::Builder;

use super::variable::ScriptNames;

/// The row.
pub const ROWS: &[Row] = &[Row {
    name: "env",
    contexts: Contexts::MAIN,
    syntax: "variable[=value]",
    is_block: false,
    pass: Pass::First,
    doc: "Lets scripts see a variable of the environment as `process.env`: with the value that the \
          process was started with, or with this one. They see no others.\n\n\
          # Differs from nginx\n\n\
          The environment of the process itself stays as it is.",
    apply,
}];

fn apply(builder: &mut Builder, statement: &Statement, _draft: &mut Draft) {
    if !builder.has_arguments(statement, 1..=1) {
        return;
    }
    let Some(word) = statement.args.first() else {
        return;
    };
    let (name, value) = match word.text.split_once('=') {
        Some((name, value)) => (name, Some(value.to_string())),
        None => (word.text.as_str(), env::var(&word.text).ok()),
    };
    let known = &mut builder.of::<ScriptNames>().environment;
    known.retain(|(other, _)| other != name);
    known.extend(value.map(|value| (name.to_string(), value)));
}
