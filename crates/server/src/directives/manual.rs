//! The manual: every directive and variable that a configuration may hold, in one form.
//!
//! Nothing is written here that stands elsewhere: an entry is made from the record of a directive
//! (a family's field, a row, a line of `upstream`), from the tables of what has no effect and what
//! is refused, or from the record of a variable. `nginx-modules.txt` says which module of nginx a
//! name belongs to; a name that is not in it is one of ours.
//!
//! Invariant: a name of nginx's has an entry, whether it works or not.

use millpond_conf::Contexts;
use millpond_proxy::upstream::memcached;
use millpond_proxy::var;
use millpond_stream::variables;

use super::{all_directives, no_effect, refused, table, upstream_lines};
use crate::variables::RECORDS;

/// The modules of nginx 1.31.5, each with its directives and variables, and the one for ACME, which
/// is kept beside them.
const MODULES: &str = include_str!("nginx-modules.txt");

/// The module of what nginx does not have.
pub const OWN_MODULE: &str = "millpond";

/// The version that had everything that [`SINCE`] does not name.
const FIRST_VERSION: &str = "0.1.0";

/// Names that came later, by version.
const SINCE: &[(&str, &[&str])] = &[];

/// The effect of a line that has the name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// The line does what the manual says.
    Works,
    /// The line is accepted and does nothing: why, as a clause.
    NoEffect(&'static str),
    /// A configuration that has it is refused: why, and what to do instead.
    Refused(&'static str),
}

/// The manual's text on a directive or a variable.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The name; a variable's begins with `$`, and a family's ends in `*`.
    pub name: String,
    /// The module of nginx that the name belongs to, or [`OWN_MODULE`].
    pub module: &'static str,
    /// The effect of a line with the name.
    pub standing: Standing,
    /// The statement in the notation of the manual, its end included; empty for variables and for
    /// what is refused.
    pub syntax: String,
    /// The statement that holds where it is not written.
    pub default: Option<String>,
    /// The contexts in which the line may stand; none if they are not known.
    pub contexts: Contexts,
    /// The description of the effect, in paragraphs.
    pub text: String,
    /// The difference from nginx.
    pub differences: Option<String>,
    /// The version that had it first.
    pub since: &'static str,
}

impl Entry {
    fn new(name: &str, standing: Standing, doc: &str) -> Entry {
        let (text, differences) = match doc.split_once("# Differs from nginx") {
            Some((text, differences)) => (text, Some(paragraphs(differences))),
            None => (doc, None),
        };
        Entry {
            module: module_of(name),
            since: since(name),
            name: name.to_string(),
            standing,
            syntax: String::new(),
            default: None,
            contexts: Contexts::default(),
            text: paragraphs(text),
            differences: differences.filter(|text| !text.is_empty()),
        }
    }

    /// An entry that works, with its grammar.
    fn working(name: &str, doc: &str, syntax: &str, form: Form) -> Entry {
        Entry {
            syntax: form.statement(name, syntax),
            ..Entry::new(name, Standing::Works, doc)
        }
    }
}

/// The end of a statement: a semicolon or a block.
#[derive(Clone, Copy)]
enum Form {
    /// A semicolon.
    Plain,
    /// A block, whatever its grammar says.
    Block,
}

impl Form {
    fn of(is_block: bool) -> Form {
        if is_block { Form::Block } else { Form::Plain }
    }

    fn statement(self, name: &str, arguments: &str) -> String {
        let space = if arguments.is_empty() { "" } else { " " };
        match self {
            Form::Plain => format!("{name}{space}{arguments};"),
            Form::Block if arguments.contains('{') => format!("{name} {arguments}"),
            Form::Block => format!("{name}{space}{arguments} {{ … }}"),
        }
    }
}

/// Every directive: those that work, then those that do not; by name within each.
pub fn directives() -> Vec<Entry> {
    let mut entries = working_directives();
    for row in no_effect::NO_EFFECT {
        let names = row.names.split_ascii_whitespace();
        entries.extend(names.map(|name| Entry {
            contexts: row.contexts,
            ..Entry::new(name, Standing::NoEffect(row.reason), "")
        }));
    }
    for group in refused::REFUSED {
        let names = group.names.split_ascii_whitespace();
        entries.extend(names.map(|name| Entry::new(name, Standing::Refused(group.reason), "")));
    }
    entries.sort_by(|a, b| order(a).cmp(&order(b)));
    entries
}

fn order(entry: &Entry) -> (u8, &str, u32) {
    let standing = match entry.standing {
        Standing::Works => 0,
        Standing::NoEffect(_) => 1,
        Standing::Refused(_) => 2,
    };
    (standing, &entry.name, entry.contexts.0)
}

fn working_directives() -> Vec<Entry> {
    let fields = all_directives().iter().map(|directive| {
        let form = Form::of(directive.block);
        let name = &*directive.name;
        Entry {
            default: directive
                .default
                .map(|arguments| Form::Plain.statement(name, arguments)),
            contexts: directive.contexts,
            ..Entry::working(name, &directive.doc, directive.syntax, form)
        }
    });
    let rows = table::rows().map(|row| Entry {
        contexts: row.contexts,
        ..Entry::working(row.name, row.doc, row.syntax, Form::of(row.is_block))
    });
    let lines = upstream_lines::LINES.iter().map(|line| Entry {
        default: line
            .default
            .map(|arguments| Form::Plain.statement(line.name, arguments)),
        contexts: Contexts::UPSTREAM,
        ..Entry::working(line.name, line.doc, line.syntax, Form::Plain)
    });
    let include = Entry {
        contexts: Contexts::MAIN
            | Contexts::EVENTS
            | Contexts::HTTP
            | Contexts::SERVER
            | Contexts::LOCATION
            | Contexts::UPSTREAM,
        ..Entry::working("include", INCLUDE, "file | pattern", Form::Plain)
    };
    let mut all: Vec<Entry> = fields.chain(rows).chain(lines).collect();
    all.push(include);
    all
}

/// The manual text of the one directive that the reader of the language itself obeys.
const INCLUDE: &str = "Is replaced by the directives of a file, or of all files that a pattern \
    matches, in the order of their names. It may stand in any block. A relative path starts at the \
    directory of the main file. A pattern that matches nothing is no mistake.";

/// Every variable, by name.
pub fn variables() -> Vec<Entry> {
    let working = |name: String, doc: &str| Entry::new(&name, Standing::Works, doc);
    // Of a name that both have, the manual tells what it is in `http`.
    let sessions = variables::RECORDS.described();
    let of_sessions = sessions.filter(|(name, _)| !RECORDS.has(name) && !name.ends_with('*'));
    let described = RECORDS.described().chain(of_sessions);
    let read = described.map(|(name, doc)| working(format!("${name}"), doc));
    let asked = [working(memcached::KEY.to_string(), memcached::KEY_DOC)];
    let mut entries: Vec<Entry> = read.chain(asked).collect();
    for absent in var::absent::ABSENT {
        let names = absent.names.split_ascii_whitespace();
        entries
            .extend(names.map(|name| {
                Entry::new(&format!("${name}"), Standing::NoEffect(absent.reason), "")
            }));
    }
    for refused in var::absent::REFUSED {
        let names = refused.names.split_ascii_whitespace();
        let names = names.filter(|name| !RECORDS.has(name));
        entries
            .extend(names.map(|name| {
                Entry::new(&format!("${name}"), Standing::Refused(refused.reason), "")
            }));
    }
    entries.sort_by(|a, b| a.name.cmp(&b.name));
    entries
}

/// The modules in the order of the manual: nginx's, then ours.
pub fn modules() -> Vec<&'static str> {
    let names = MODULES.lines().filter_map(|line| line.split(' ').next());
    names.chain([OWN_MODULE]).collect()
}

/// The module that a directive or a variable (with its `$`) belongs to.
pub fn module_of(name: &str) -> &'static str {
    let name = name.strip_suffix('*').unwrap_or(name);
    let found = MODULES.lines().find_map(|line| {
        let (module, names) = line.split_once(' ')?;
        names.split(' ').any(|it| it == name).then_some(module)
    });
    match found {
        Some(module) => module,
        None if name == "include" => "ngx_core_module",
        None => OWN_MODULE,
    }
}

fn since(name: &str) -> &'static str {
    let later = SINCE.iter().find(|(_, names)| names.contains(&name));
    later.map_or(FIRST_VERSION, |(version, _)| version)
}

/// The text with one line for each paragraph.
fn paragraphs(doc: &str) -> String {
    let blocks = doc.split("\n\n").map(|block| {
        let words: Vec<&str> = block.split_ascii_whitespace().collect();
        words.join(" ")
    });
    let blocks: Vec<String> = blocks.filter(|block| !block.is_empty()).collect();
    blocks.join("\n\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_of_nginx_has_an_entry() {
        let directives = directives();
        let variables = variables();
        let mut faults = Vec::new();
        for line in MODULES.lines() {
            for name in line.split(' ').skip(1) {
                let found = match name.strip_prefix('$') {
                    None => directives.iter().any(|entry| entry.name == name),
                    Some(plain) => {
                        let family = format!("{name}*");
                        let has = |entry: &Entry| entry.name == name || entry.name == family;
                        variables.iter().any(has) || RECORDS.has(plain)
                    }
                };
                if !found {
                    faults.push(name);
                }
            }
        }
        assert!(faults.is_empty(), "{}", faults.join("\n"));
    }

    #[test]
    fn every_directive_that_is_known_belongs_to_a_module() {
        let names = include_str!("nginx-directives.txt").lines();
        let lost: Vec<&str> = names.filter(|name| module_of(name) == OWN_MODULE).collect();
        assert!(lost.is_empty(), "{lost:?}");
    }

    #[test]
    fn what_works_is_described_by_sentences_that_end() {
        let mut faults = Vec::new();
        for entry in directives().iter().chain(&variables()) {
            let texts = [Some(&entry.text), entry.differences.as_ref()];
            for text in texts.into_iter().flatten() {
                let ends = text.ends_with('.') || text.ends_with(':');
                if entry.standing == Standing::Works && !ends {
                    faults.push(format!("{}: {text}", entry.name));
                }
            }
        }
        assert!(faults.is_empty(), "{}", faults.join("\n"));
    }

    #[test]
    fn statements_are_written_whole() {
        let entries = directives();
        for (name, syntax) in [
            ("proxy_cache_lock", "proxy_cache_lock on | off;"),
            ("internal", "internal;"),
            ("events", "events { … }"),
            ("http", "http { … }"),
            ("keepalive", "keepalive connections [local];"),
        ] {
            let entry = entries.iter().find(|entry| entry.name == name);
            assert_eq!(entry.map(|entry| &*entry.syntax), Some(syntax), "{name}");
        }
    }
}
