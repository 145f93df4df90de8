//! The schema: what a directive is, and how directives are set and merged.
//!
//! A [`Family`] is a struct of settings that one module obeys; each field is a directive. A
//! [`Scope`] joins the families that one kind of block knows. Both are derived. For each there is
//! a *raw* twin that says what one block set, with the places; `resolve` merges the raw settings
//! from the outermost block to the innermost:
//!
//! - a plain directive: the innermost value wins, and the default fills what nobody set;
//! - one that may be repeated: the innermost block that has any replaces the whole list.
//!
//! A family may serve several protocols (`#[family(protocols)]`): its names are written with
//! `proxy_`, and a scope puts another word in that place.
//!
//! Invariants:
//!
//! 1. `apply` reports every mistake itself and says [`Applied::Unknown`] only if the family has no
//!    directive of that name, in any context.
//! 2. The checks come in nginx's order: context, block or not, duplicate, arguments.
//!
//! Sources: the order and the wording are those of nginx's configuration handler.

use std::borrow::Cow;
use std::collections::HashMap;
use std::ops::{BitOr, BitOrAssign};

use crate::code;
use crate::context::ParseContext;
use crate::source::Span;
use crate::suggest::suggest;
use crate::tree::Statement;
use crate::value::{ArgError, Args};

/// The blocks that a directive may stand in, or the one that is being read.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Contexts(pub u32);

impl Contexts {
    /// Context: outside of all blocks.
    pub const MAIN: Contexts = Contexts(1);
    /// Context: inside `events`.
    pub const EVENTS: Contexts = Contexts(1 << 1);
    /// Context: inside `http`.
    pub const HTTP: Contexts = Contexts(1 << 2);
    /// Context: inside `server`.
    pub const SERVER: Contexts = Contexts(1 << 3);
    /// Context: inside `location`.
    pub const LOCATION: Contexts = Contexts(1 << 4);
    /// Context: inside `upstream`.
    pub const UPSTREAM: Contexts = Contexts(1 << 5);
    /// Context: inside an `if` of a server.
    pub const IF_SERVER: Contexts = Contexts(1 << 6);
    /// Context: inside an `if` of a location.
    pub const IF_LOCATION: Contexts = Contexts(1 << 7);
    /// Context: inside `limit_except`.
    pub const LIMIT_EXCEPT: Contexts = Contexts(1 << 8);
    /// Context: inside `stream`.
    pub const STREAM: Contexts = Contexts(1 << 9);
    /// Context: inside a `server` of `stream`.
    pub const STREAM_SERVER: Contexts = Contexts(1 << 10);

    const NAMES: [(Contexts, &'static str); 11] = [
        (Contexts::MAIN, "main"),
        (Contexts::EVENTS, "events"),
        (Contexts::HTTP, "http"),
        (Contexts::SERVER, "server"),
        (Contexts::LOCATION, "location"),
        (Contexts::UPSTREAM, "upstream"),
        (Contexts::IF_SERVER, "if in server"),
        (Contexts::IF_LOCATION, "if in location"),
        (Contexts::LIMIT_EXCEPT, "limit_except"),
        (Contexts::STREAM, "stream"),
        (Contexts::STREAM_SERVER, "server in stream"),
    ];

    /// True if any of the other contexts is among these.
    pub const fn allows(self, other: Contexts) -> bool {
        self.0 & other.0 != 0
    }

    /// Both together, where `|` cannot be written: in constants.
    pub const fn union(self, other: Contexts) -> Contexts {
        Contexts(self.0 | other.0)
    }

    /// The names in nginx's manual, from the outermost block to the innermost.
    pub fn names(self) -> Vec<&'static str> {
        let among = Self::NAMES.iter().filter(|(one, _)| self.allows(*one));
        among.map(|(_, name)| *name).collect()
    }
}

impl BitOr for Contexts {
    type Output = Contexts;

    fn bitor(self, other: Contexts) -> Contexts {
        self.union(other)
    }
}

impl BitOrAssign for Contexts {
    fn bitor_assign(&mut self, other: Contexts) {
        *self = self.union(other);
    }
}

/// Everything that the program and its manual know about one directive.
#[derive(Clone, Debug)]
pub struct Directive {
    /// The name, for the protocol of the scope.
    pub name: Cow<'static, str>,
    /// Contexts in which the directive may stand.
    pub contexts: Contexts,
    /// Arguments of the directive in the notation of the manual.
    pub syntax: &'static str,
    /// Arguments that the directive has where it is not written; none if there is no such thing.
    pub default: Option<&'static str>,
    /// Manual text of the directive.
    pub doc: Cow<'static, str>,
    /// The file and line where it is declared.
    pub source: &'static str,
    /// True if the directive opens a block.
    pub block: bool,
    /// Reads arguments and drops the value: for checks of the default.
    pub validate: fn(&mut Args<'_>) -> Result<(), ArgError>,
}

/// Result of applying a statement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use = "an unknown directive must be reported"]
pub enum Applied {
    /// No directive has this name; nothing was reported.
    Unknown,
    /// The directive was set, or what is wrong with it was reported.
    Done,
}

/// A group of directives that one module obeys; derived.
pub trait Family: Sized {
    /// Settings that one block made.
    type Raw: Default;

    /// The records, with names for the protocol.
    fn directives(protocol: &'static str) -> Vec<Directive>;

    /// Sets what a statement says in a block of this context.
    fn apply(
        raw: &mut Self::Raw,
        protocol: &str,
        st: &Statement,
        context: Contexts,
        cx: &mut ParseContext,
    ) -> Applied;

    /// Merges what the blocks set, the outermost first.
    fn resolve(outer_to_inner: &[&Self::Raw], cx: &mut ParseContext) -> Self;

    /// Place at which the block set the directive: the last one, if there are several.
    fn span_of(raw: &Self::Raw, protocol: &str, name: &str) -> Option<Span>;
}

/// The families that one kind of block knows; derived.
pub trait Scope: Sized {
    /// Settings that one block made.
    type Raw: Default;

    /// The records of all families.
    fn directives() -> Vec<Directive>;

    /// Sets what a statement says in a block of this context.
    fn apply(
        raw: &mut Self::Raw,
        st: &Statement,
        context: Contexts,
        cx: &mut ParseContext,
    ) -> Applied;

    /// Merges what the blocks set, the outermost first.
    fn resolve(outer_to_inner: &[&Self::Raw], cx: &mut ParseContext) -> Self;

    /// Place at which the block set the directive: the last one, if there are several.
    fn span_of(raw: &Self::Raw, name: &str) -> Option<Span>;
}

/// All directives of a program by name; reports those that a block does not know.
#[derive(Default, Debug)]
pub struct Table {
    by_name: HashMap<Cow<'static, str>, Vec<Directive>>,
}

impl Table {
    /// A table of the records. Several may have one name, for different contexts.
    pub fn new(directives: impl IntoIterator<Item = Directive>) -> Table {
        let mut table = Table::default();
        for directive in directives {
            let name = directive.name.clone();
            table.by_name.entry(name).or_default().push(directive);
        }
        table
    }

    /// The records of a name.
    pub fn find(&self, name: &str) -> &[Directive] {
        self.by_name.get(name).map_or(&[], Vec::as_slice)
    }

    /// All names, sorted.
    pub fn names(&self) -> Vec<&str> {
        let mut names: Vec<&str> = self.by_name.keys().map(|name| &**name).collect();
        names.sort_unstable();
        names
    }

    /// Reports a statement that nobody in its block knew: it stands in the wrong block, or it is
    /// unknown everywhere.
    pub fn reject(&self, st: &Statement, cx: &mut ParseContext) {
        let name = &st.name.text;
        let known = self.find(name);
        if known.is_empty() {
            let message = format!("unknown directive \"{name}\"");
            let diagnostic = cx.diagnostics.push_error(st.name.span, message);
            diagnostic.code(code::UNKNOWN_DIRECTIVE);
            if let Some(near) = suggest(name, self.names()) {
                diagnostic.help(format!("did you mean \"{near}\"?"));
            }
        } else {
            let contexts = known.iter().map(|directive| directive.contexts);
            let contexts = contexts.fold(Contexts::default(), Contexts::union);
            report_misplaced(st, contexts, cx);
        }
    }
}

/// Reports a statement that stands in a block where its directive is not allowed.
pub fn report_misplaced(st: &Statement, allowed: Contexts, cx: &mut ParseContext) {
    let message = format!("\"{}\" directive is not allowed here", st.name.text);
    cx.diagnostics
        .push_error(st.name.span, message)
        .code(code::MISPLACED_DIRECTIVE)
        .help(format!("it is allowed in: {}", allowed.names().join(", ")));
}

/// Faults of a table: the same for all directives, so one test covers them.
///
/// Names must be unique in a context, defaults must parse, and manual texts must be sentences.
pub fn table_faults(directives: &[Directive]) -> Vec<String> {
    let mut faults = Vec::new();
    let mut seen: HashMap<&str, Contexts> = HashMap::new();
    for directive in directives {
        let Directive { name, source, .. } = directive;
        let contexts = seen.entry(name).or_default();
        if contexts.allows(directive.contexts) {
            faults.push(format!("{source}: {name} is declared twice"));
        }
        *contexts |= directive.contexts;
        if directive.contexts == Contexts::default() {
            faults.push(format!("{source}: {name} is allowed nowhere"));
        }
        if !is_sentence(&directive.doc) {
            faults.push(format!("{source}: the text of {name} is no sentence"));
        }
        if let Some(error) = default_error(directive) {
            faults.push(format!("{source}: the default of {name}: {error}"));
        }
    }
    faults
}

/// Asserts that a table has no faults; for tests.
///
/// # Panics
///
/// If there is any fault: the message lists them all.
pub fn check_table(directives: &[Directive]) {
    let faults = table_faults(directives);
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// `"a"`, `"a" or "b"`, `"a", "b" or "c"`.
pub fn quoted_list(words: &[&str]) -> String {
    let quoted: Vec<String> = words.iter().map(|word| format!("\"{word}\"")).collect();
    match quoted.as_slice() {
        [] => String::new(),
        [one] => one.clone(),
        [most @ .., last] => format!("{} or {last}", most.join(", ")),
    }
}

fn default_error(directive: &Directive) -> Option<String> {
    let mut cx = ParseContext::default();
    let name = &directive.name;
    let read = cx.parse_default(name, directive.default?, directive.validate);
    let said = cx.diagnostics.iter().next().map(|it| it.message.clone());
    read.err().map(|error| error.to_string()).or(said)
}

/// True if the first paragraph starts like a sentence and ends like one.
fn is_sentence(doc: &str) -> bool {
    let first = doc.trim().split("\n\n").next().unwrap_or_default();
    let starts = first.chars().next();
    starts.is_some_and(|char| char.is_uppercase() || char == '`' || char.is_ascii_digit())
        && first.ends_with(['.', ':'])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::derived::validate;

    fn directive(name: &'static str) -> Directive {
        Directive {
            name: Cow::Borrowed(name),
            contexts: Contexts::HTTP,
            syntax: "on | off",
            default: Some("on"),
            doc: Cow::Borrowed("A sentence.\n\nMore"),
            source: "x.rs:1",
            block: false,
            validate: validate::<bool>,
        }
    }

    #[test]
    fn table_faults_are_found() {
        let good = directive("good");
        let elsewhere = Directive {
            contexts: Contexts::MAIN,
            ..good.clone()
        };
        assert_eq!(table_faults(&[good.clone(), elsewhere]), [""; 0]);
        let faulty = [
            good.clone(),
            good,
            Directive {
                default: Some("of"),
                ..directive("wrong_default")
            },
            Directive {
                doc: Cow::Borrowed("no sentence"),
                ..directive("no_sentence")
            },
            Directive {
                contexts: Contexts::default(),
                ..directive("nowhere")
            },
        ];
        let expected = [
            "x.rs:1: good is declared twice",
            "x.rs:1: the default of wrong_default: argument 1: none of the known words",
            "x.rs:1: the text of no_sentence is no sentence",
            "x.rs:1: nowhere is allowed nowhere",
        ];
        assert_eq!(table_faults(&faulty), expected);
    }

    #[test]
    fn contexts_have_the_names_of_the_manual() {
        let contexts = Contexts::IF_LOCATION | Contexts::HTTP;
        assert_eq!(contexts.names(), ["http", "if in location"]);
        assert!(contexts.allows(Contexts::HTTP) && !contexts.allows(Contexts::SERVER));
    }

    #[test]
    fn known_words_are_listed_as_in_nginx() {
        assert_eq!(quoted_list(&["on", "off"]), "\"on\" or \"off\"");
        assert_eq!(quoted_list(&["a", "b", "c"]), "\"a\", \"b\" or \"c\"");
        assert_eq!(quoted_list(&["a"]), "\"a\"");
    }
}
