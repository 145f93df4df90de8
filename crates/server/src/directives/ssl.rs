//! `ssl`: the line by which a server was encrypted before `listen … ssl`.
//!
//! nginx has taken it away in 1.25.1; many configurations have it still. It makes all addresses of
//! a server encrypted, and stands for the parameter of each.

use millpond_conf::source::Span;
use millpond_conf::tree::Statement;
use millpond_conf::{Contexts, code};
use millpond_exchange::scope::block::{Draft, Pass, Row};
use millpond_exchange::scope::build::Builder;

use super::listen::ListenArgs;

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
struct IsEncrypted {
    is_on: bool,
    span: Span,
}

/// The line of `http`.
#[derive(Default)]
struct OfAll(Option<bool>);

/// The warning about a line.
const DEPRECATED: &str =
    "the \"ssl\" directive is deprecated, use the \"listen ... ssl\" directive instead";

/// Encrypts all addresses of a server, where that is said.
pub(super) fn settle(builder: &mut Builder, server: &Draft, listens: &mut [ListenArgs]) {
    let own = server.get::<IsEncrypted>().copied();
    if let Some(IsEncrypted { is_on, span }) = own {
        let warning = builder.cx.diagnostics.push_warning(span, DEPRECATED);
        warning.code(code::OBSOLETE_DIRECTIVE);
        // Without a line there is one that nobody wrote.
        if !is_on || !listens.is_empty() {
            warning.replace(span, "");
        }
        let plain = listens.iter().filter_map(ListenArgs::end_of_plain);
        for end in plain.filter(|_| is_on) {
            warning.replace(end, " ssl");
        }
    }
    let of_all = builder.of::<OfAll>().0;
    if own.map(|own| own.is_on).or(of_all) == Some(true) {
        listens.iter_mut().for_each(ListenArgs::encrypt);
    }
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
        draft.get::<IsEncrypted>().map(|it| it.is_on)
    } else {
        builder.of::<OfAll>().0
    };
    if before.is_some() {
        return builder.error(statement.span, "\"ssl\" directive is duplicate");
    }
    if is_of_server {
        // It is told when the addresses are known.
        let span = statement.span;
        draft.put(IsEncrypted { is_on, span });
    } else {
        let warning = builder
            .cx
            .diagnostics
            .push_warning(statement.span, DEPRECATED);
        warning.code(code::OBSOLETE_DIRECTIVE);
        builder.of::<OfAll>().0 = Some(is_on);
    }
}
