//! A configuration with mistakes, as far as it is right: for reports and explanations, never to
//! serve.
//!
//! What is wrong is taken out and the rest is built again, until nothing is wrong any more:
//!
//! ```text
//! read ──► build ──► mistakes? ── none ──► a configuration
//!            ▲          └─ take the statements at fault out, stand in for names ──┐
//!            └──────────────────────────────────────────────────────────────────┘
//! ```
//!
//! A name that cannot be resolved on this machine is no fault of the configuration: an address
//! stands in for it, so that routing, keys and `$proxy_host` are as they would be.
//!
//! Invariants:
//! 1. It ends: a round takes at least one statement out, and there are at most [`ROUNDS`].
//! 2. All mistakes of all rounds are reported, each once; a mistake that another one hides shows in
//!    a later round.

use std::collections::{BTreeSet, HashSet};

use millpond_conf::code;
use millpond_conf::source::Span;
use millpond_conf::tree::{Statement, Tree, Word};
use millpond_conf::{Diagnostic, Diagnostics, ParseContext, Severity, one_line};
use millpond_exchange::scope::code::UNRESOLVED_HOST;
use millpond_exchange::settings::Conf;

use super::ConfSource;
use crate::directives::build;

/// The count of times that the rest is built. Mistakes that hide others are few deep.
pub const ROUNDS: usize = 12;

/// The address that stands in for a name.
const STAND_IN: &str = "127.0.0.1:9";

/// Blocks that are never taken out whole for the sake of a mistake about them.
const KEPT: [&str; 3] = ["http", "server", "events"];

/// The part of a configuration that could be read.
#[derive(Debug)]
pub struct Salvage {
    /// The files and what is written in them.
    pub tree: Tree,
    /// The statements that are right.
    pub right: Vec<Statement>,
    /// The meaning of the statements; none if not even a part of it can be built.
    pub conf: Option<Conf>,
    /// All mistakes, warnings and notes.
    pub diagnostics: Diagnostics,
}

impl Salvage {
    /// The mistakes, but for names that cannot be resolved on this machine.
    pub fn mistakes(&self) -> impl Iterator<Item = &Diagnostic> {
        let is_mistake =
            |it: &&Diagnostic| it.severity == Severity::Error && it.code != Some(UNRESOLVED_HOST);
        self.diagnostics.iter().filter(is_mistake)
    }

    /// The reason why nothing could be read, in one line; none where something was.
    pub fn unread(&self) -> Option<String> {
        let mistake = self.mistakes().next()?;
        let is_empty = self.tree.statements.is_empty();
        is_empty.then(|| one_line(mistake, &self.tree.sources))
    }
}

/// Reads a configuration as far as it is right.
pub fn salvage(source: &ConfSource) -> Salvage {
    let mut diagnostics = Diagnostics::new();
    let tree = source.load(&mut diagnostics);
    of_tree(tree, diagnostics, &|| source.context())
}

/// Salvages as [`salvage`] does, from what was read; `context` makes a context for each round.
fn of_tree(
    tree: Tree,
    mut diagnostics: Diagnostics,
    context: &dyn Fn() -> ParseContext,
) -> Salvage {
    let mut right = Tree {
        statements: tree.statements.clone(),
        ..Tree::default()
    };
    let mut seen: HashSet<(Option<Span>, String)> = HashSet::new();
    let mut conf = None;
    for _ in 0..ROUNDS {
        let (built, cx) = build(&right, context());
        let errors = |it: &&Diagnostic| it.severity == Severity::Error;
        let faults: Vec<Diagnostic> = cx.diagnostics.iter().filter(errors).cloned().collect();
        for found in cx.diagnostics.iter() {
            if seen.insert((found.span, found.message.clone())) {
                diagnostics.push_copy(found.clone());
            }
        }
        if built.is_some() {
            conf = built;
            break;
        }
        if !mend(&mut right.statements, &faults) {
            break;
        }
    }
    Salvage {
        tree,
        right: right.statements,
        conf,
        diagnostics,
    }
}

/// Takes out or replaces what is at fault; false if nothing changed.
fn mend(statements: &mut Vec<Statement>, faults: &[Diagnostic]) -> bool {
    let (names, faults): (Vec<&Diagnostic>, Vec<&Diagnostic>) = faults
        .iter()
        .filter(|fault| fault.span.is_some())
        .partition(|fault| fault.code == Some(UNRESOLVED_HOST));
    let mut faults: Vec<Span> = faults.iter().filter_map(|fault| fault.span).collect();
    faults.sort_unstable();
    let mut passed = BTreeSet::new();
    let mut places: Vec<(Span, &str)> = names
        .iter()
        .filter_map(|fault| Some((fault.span?, authority(&fault.message))))
        .collect();
    places.sort_unstable();
    let mut has_changed = stand_in(statements, &places, &mut passed);
    has_changed |= declare(statements, &passed);
    if !has_changed {
        faults.extend(places.iter().map(|(span, _)| *span));
        faults.sort_unstable();
    }
    take_out(statements, &faults) || has_changed
}

/// The name that a message is about.
fn authority(message: &str) -> &str {
    message.split('"').nth(1).unwrap_or_default()
}

/// Removes the statements that places belong to: all of them, where a file is included twice. The
/// places are sorted.
fn take_out(statements: &mut Vec<Statement>, faults: &[Span]) -> bool {
    let count = statements.len();
    statements.retain(|st| {
        KEPT.contains(&&*st.name.text) || first_in(faults, st, |span| *span).is_none()
    });
    let mut has_changed = statements.len() < count;
    for statement in statements {
        if let Some(body) = &mut statement.body {
            has_changed |= take_out(body, faults);
        }
    }
    has_changed
}

/// The first of the sorted places that lies in the head of a statement.
fn first_in<'a, T>(
    sorted: &'a [T],
    statement: &Statement,
    span_of: impl Fn(&T) -> Span,
) -> Option<&'a T> {
    let head = statement.span;
    let before = |it: &T| {
        let span = span_of(it);
        (span.file, span.start) < (head.file, head.start)
    };
    let found = sorted.get(sorted.partition_point(before))?;
    let span = span_of(found);
    let is_inside = span.file == head.file && span.start < head.end.max(head.start + 1);
    (is_inside && head != Span::NONE).then_some(found)
}

/// Puts an address in the place of the names of a group's servers, and gathers the names that are
/// passed to.
fn stand_in(
    statements: &mut [Statement],
    places: &[(Span, &str)],
    passed: &mut BTreeSet<String>,
) -> bool {
    let mut has_changed = false;
    for statement in statements {
        if let Some((_, authority)) = first_in(places, statement, |(span, _)| *span) {
            match (&*statement.name.text, statement.args.first_mut()) {
                ("server", Some(address)) => {
                    address.text = STAND_IN.to_string();
                    has_changed = true;
                }
                (name, _) if name.ends_with("_pass") => {
                    passed.insert((*authority).to_string());
                }
                _ => {}
            }
        }
        if let Some(body) = &mut statement.body {
            has_changed |= stand_in(body, places, passed);
        }
    }
    has_changed
}

/// Declares groups of these names; false if all are there.
fn declare(statements: &mut [Statement], names: &BTreeSet<String>) -> bool {
    let http = statements.iter_mut().find(|st| st.name.text == "http");
    let Some(body) = http.and_then(|http| http.body.as_mut()) else {
        return false;
    };
    let groups = body.iter().filter(|st| st.name.text == "upstream");
    let groups: BTreeSet<String> = groups
        .filter_map(|st| Some(st.args.first()?.text.clone()))
        .collect();
    let missing: Vec<&String> = names.difference(&groups).collect();
    for name in &missing {
        let server = statement("server", STAND_IN, None);
        body.insert(0, statement("upstream", name, Some(vec![server])));
    }
    !missing.is_empty()
}

/// A statement that nobody wrote.
fn statement(name: &str, argument: &str, body: Option<Vec<Statement>>) -> Statement {
    let word = |text: &str| Word {
        text: text.to_string(),
        span: Span::NONE,
        quoted: false,
    };
    Statement {
        name: word(name),
        args: vec![word(argument)],
        body,
        span: Span::NONE,
    }
}

impl Salvage {
    /// True if the main file, or one that it includes, could not be read or cut into statements.
    pub fn is_unreadable(&self) -> bool {
        let kinds = [
            code::SYNTAX,
            code::UNEXPECTED_END,
            code::TOO_MUCH,
            code::INCLUDE_CYCLE,
            code::MISSING_FILE,
        ];
        let is_such = |it: &Diagnostic| it.code.is_some_and(|code| kinds.contains(&code));
        self.diagnostics.iter().any(is_such)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use millpond_conf::{LoadOptions, load_text};

    /// The part of a text that is salvaged.
    fn read(text: &str) -> Salvage {
        let mut diagnostics = Diagnostics::new();
        let tree = load_text("x.conf", text, &LoadOptions::default(), &mut diagnostics);
        of_tree(tree, diagnostics, &|| ParseContext::new("/prefix", "/conf"))
    }

    fn messages(salvage: &Salvage) -> Vec<&str> {
        let errors = salvage.diagnostics.iter();
        let errors = errors.filter(|it| it.severity == Severity::Error);
        errors.map(|it| &*it.message).collect()
    }

    #[test]
    fn what_is_wrong_is_left_out_and_the_rest_is_there() {
        let salvaged = read(
            "mail { server { listen 1; } } lua_code_cache on; events {}
             http { image_filter off; server { listen 127.0.0.1:1; fancyindex on;
             location / { content_by_lua_block { x; } return 200 $nobody; } } }",
        );
        let expected = [
            "directive \"mail\" is not supported",
            "unknown directive \"lua_code_cache\"",
            "directive \"image_filter\" is not supported",
            "unknown directive \"fancyindex\"",
            "unknown directive \"content_by_lua_block\"",
            "unknown \"nobody\" variable",
        ];
        assert_eq!(messages(&salvaged), expected);
        let conf = salvaged.conf.expect("the rest is right");
        assert_eq!(conf.bindings.len(), 1);
    }

    #[test]
    fn mistakes_that_others_hide_are_found_too() {
        let salvaged = read("http { bad; server { location / { if (x) { } } } }");
        let expected = ["unknown directive \"bad\"", "invalid condition \"x\""];
        assert_eq!(messages(&salvaged), expected);
        assert!(salvaged.conf.is_some());
    }

    #[test]
    fn names_that_are_not_known_here_are_stood_in_for() {
        let salvaged = read(
            "http { upstream a { server no.such.host.invalid:81; } server {
             location / { proxy_pass http://a; }
             location /b { proxy_pass http://no.such.host.invalid:82/; } } }",
        );
        let mut found = messages(&salvaged);
        found.sort_unstable();
        let expected = [
            "host not found in upstream \"no.such.host.invalid:81\"",
            "host not found in upstream \"no.such.host.invalid:82\"",
        ];
        assert_eq!(found, expected);
        assert!(salvaged.conf.is_some() && !salvaged.is_unreadable());
    }

    #[test]
    fn texts_that_are_no_configuration_end_too() {
        for text in [
            "",
            "}",
            "http {",
            "http { server { listen",
            "\"",
            "http http http;",
        ] {
            let salvaged = read(text);
            assert!(
                salvaged.conf.is_some() || !messages(&salvaged).is_empty(),
                "{text}"
            );
        }
        assert!(read("http {").is_unreadable());
        assert!(read("include no.such.file;").is_unreadable());
    }
}
