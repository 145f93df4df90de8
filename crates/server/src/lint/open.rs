//! `open_to_everybody`: what is for operators, where anybody may ask.
//!
//! Any of the directives that say who may ask is enough: whether it says so well is its writer's
//! affair. `auth_basic off` says nothing.

use millpond_conf::Code;
use millpond_conf::tree::Statement;

use super::Findings;
use super::block::{Blocks, View};

/// Anybody may ask.
pub(super) const OPEN_TO_EVERYBODY: Code = Code {
    name: "open_to_everybody",
    doc: "Whoever reaches the location can purge caches and change servers (\"api write=on\"), or \
          sees which sites there are and what they do (\"dashboard\", \"metrics\"). Nothing says \
          who may: there is no \"allow\", \"deny\", \"auth_basic\" or \"auth_request\". An address \
          of this machine alone is no gate: pages in a browser here reach it, too. Write \"allow\" \
          and \"deny all;\", or ask for a password.",
};

/// Directives that say who may.
const GATES: [&str; 5] = ["allow", "deny", "auth_basic", "auth_jwt", "auth_request"];

pub(super) fn open_to_everybody(blocks: &Blocks<'_>, findings: &mut Findings<'_>) {
    for view in blocks.views() {
        let open = ["api", "dashboard", "metrics"].map(|name| view.own(name));
        let open = open.into_iter().flatten().filter(|st| is_for_operators(st));
        for statement in open.filter(|_| !has_gate(view)) {
            let message = format!("anybody may use \"{}\"", said(statement));
            if let Some(warning) = findings.warn(OPEN_TO_EVERYBODY, statement.span, message) {
                warning.help("say who may with \"allow\" and \"deny all\", or with \"auth_basic\"");
            }
        }
    }
}

/// An API that tells and changes nothing is as open as its reader wants.
fn is_for_operators(statement: &Statement) -> bool {
    let writes = statement.args.iter().any(|word| word.text == "write=on");
    statement.name.text != "api" || writes
}

fn has_gate(view: View<'_, '_>) -> bool {
    GATES.iter().any(|name| {
        let in_force = view.in_force(name);
        in_force
            .iter()
            .any(|st| st.args.first().is_some_and(|word| word.text != "off"))
    })
}

fn said(statement: &Statement) -> String {
    let words = statement.args.iter().map(|word| word.text.as_str());
    let all: Vec<&str> = std::iter::once(statement.name.text.as_str())
        .chain(words)
        .collect();
    all.join(" ")
}
