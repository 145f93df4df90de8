//! `ssl`: the line by which a server was encrypted before `listen … ssl`.
//!
//! nginx has taken it away in 1.25.1; many configurations have it still. It makes all addresses of
//! a server encrypted, and stands for the parameter of each.

use millpond_conf::tree::Statement;
use millpond_conf::{Contexts, code};
use millpond_exchange::scope::block::{Draft, Pass, Row};
use millpond_exchange::scope::build::Builder;

/// Rows of this file.
pub(crate) const ROWS: &[Row] = &[Row {
    name: "ssl",
    contexts: Contexts::HTTP.union(Contexts::SERVER),
    syntax: "on | off",
    is_block: false,
    pass: Pass::First,
    doc: "Whether all addresses of the server are encrypted. `listen … ssl` says it of one.\n\n\
          # Differs from nginx\n\nnginx has taken it away in 1.25.1.",
    apply: ssl,
}];

/// The line of a server.
#[derive(Clone, Copy, Debug)]
struct IsEncrypted(bool);

/// The line of `http`.
#[derive(Default)]
struct OfAll(Option<bool>);

/// True if all addresses of a server are encrypted.
pub(super) fn is_on(builder: &mut Builder, server: &Draft) -> bool {
    let own = server.get::<IsEncrypted>().map(|it| it.0);
    own.or(builder.of::<OfAll>().0).unwrap_or(false)
}

fn ssl(builder: &mut Builder, statement: &Statement, draft: &mut Draft) {
    if !builder.has_arguments(statement, 1..=1) {
        return;
    }
    let Some(word) = statement.args.first() else {
        return;
    };
    let is_on = match word.text.to_ascii_lowercase().as_str() {
        "on" => true,
        "off" => false,
        other => {
            let message = format!(
                "invalid value \"{other}\" in \"ssl\" directive, it must be \"on\" or \"off\""
            );
            return builder.error(word.span, message);
        }
    };
    let is_of_server = draft.context == Contexts::SERVER;
    let before = if is_of_server {
        draft.get::<IsEncrypted>().map(|it| it.0)
    } else {
        builder.of::<OfAll>().0
    };
    if before.is_some() {
        return builder.error(statement.span, "\"ssl\" directive is duplicate");
    }
    let message =
        "the \"ssl\" directive is deprecated, use the \"listen ... ssl\" directive instead";
    let warning = builder.cx.diagnostics.push_warning(statement.span, message);
    warning.code(code::OBSOLETE_DIRECTIVE);
    if is_of_server {
        draft.put(IsEncrypted(is_on));
    } else {
        builder.of::<OfAll>().0 = Some(is_on);
    }
}
