//! `list_not_inherited`, `if_in_location`: inheritance that surprises.
//!
//! A list that repeats every field of the outer one loses nothing and is not warned of. Only `if`
//! in a location is; in a server it has no settings of its own.

use std::collections::BTreeSet;

use millpond_conf::tree::Statement;
use millpond_conf::{Code, Contexts};

use super::Findings;
use super::block::{Blocks, View};

/// A list replaces that of the outer block.
pub(super) const LIST_NOT_INHERITED: Code = Code {
    name: "list_not_inherited",
    doc: "\"add_header\", \"proxy_set_header\" and their like are inherited only where a block has \
          none of its own: the first one in a location switches off all those of the server and \
          of http, also those for security. Repeat them in the block, put them into a file and \
          include it in both, or, for \"add_header\", write \"add_header_inherit merge;\".",
};

/// An if in a location has settings of its own.
pub(super) const IF_IN_LOCATION: Code = Code {
    name: "if_in_location",
    doc: "An \"if\" in a location is a location of its own that takes the place of the outer one \
          when its condition holds; of several that hold, the last one counts alone. Inside, only \
          \"return\", \"rewrite\", \"set\" and \"break\" do what they seem to do. What else \
          stands there often works alone and fails together with \"try_files\", another \"if\" or \
          a list that is not inherited. Set a variable by \"map\" or \"set\" and use it in the \
          location itself.",
};

/// Directives that add to a list, and the one that says how the list is inherited.
const LISTS: [(&str, Option<&str>); 6] = [
    ("add_header", Some("add_header_inherit")),
    ("add_trailer", Some("add_trailer_inherit")),
    ("proxy_set_header", None),
    ("fastcgi_param", None),
    ("uwsgi_param", None),
    ("scgi_param", None),
];

pub(super) fn list_not_inherited(blocks: &Blocks<'_>, findings: &mut Findings<'_>) {
    for view in blocks.views() {
        for (name, rule) in LISTS {
            if rule.is_none_or(|rule| matches!(view.value(rule), None | Some("on"))) {
                check_list(view, name, findings);
            }
        }
    }
}

fn check_list(view: View<'_, '_>, name: &str, findings: &mut Findings<'_>) {
    let own: Vec<&Statement> = view.own(name).collect();
    let (Some(first), Some(outer)) = (own.first(), view.outer()) else {
        return;
    };
    let field = |st: &Statement| st.args.first().map(|word| word.text.to_ascii_lowercase());
    let own_fields: BTreeSet<_> = own.iter().map(|st| field(st)).collect();
    let outer = outer.in_force(name);
    let lost: Vec<&&Statement> = outer
        .iter()
        .filter(|st| !own_fields.contains(&field(st)))
        .collect();
    let Some(first_lost) = lost.first() else {
        return;
    };
    let names: Vec<&str> = lost
        .iter()
        .filter_map(|st| Some(&*st.args.first()?.text))
        .collect();
    let message = format!(
        "\"{name}\" here switches off that of the outer block: {}",
        names.join(", ")
    );
    if let Some(warning) = findings.warn(LIST_NOT_INHERITED, first.span, message) {
        if first_lost.span.file == first.span.file {
            warning.also(first_lost.span, "not in force inside the inner block");
        }
        warning.help(match name {
            "add_header" => "repeat it here, or write \"add_header_inherit merge;\"",
            _ => "repeat it here, or include a file with all of them in both blocks",
        });
    }
}

pub(super) fn if_in_location(blocks: &Blocks<'_>, findings: &mut Findings<'_>) {
    let ifs = blocks
        .views()
        .filter(|view| view.kind() == Contexts::IF_LOCATION);
    for view in ifs {
        let is_safe =
            |st: &&Statement| matches!(&*st.name.text, "return" | "rewrite" | "set" | "break");
        let Some(statement) = view.statements().iter().find(|st| !is_safe(st)) else {
            continue;
        };
        let name = &statement.name.text;
        let message = format!("\"{name}\" inside \"if\" may not do what it seems to do");
        if let Some(warning) = findings.warn(IF_IN_LOCATION, statement.span, message) {
            warning.help(
                "inside \"if\" in a location write \"return\", \"rewrite\", \"set\" and \"break\" only",
            );
        }
    }
}
