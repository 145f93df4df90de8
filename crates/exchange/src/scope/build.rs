//! The builder: names, mistakes and declarations of a configuration while it is walked.
//!
//! A block is walked twice: first the plain settings and the declarations, whatever their order,
//! then the directives whose order matters and the blocks inside, which inherit what the first walk
//! gathered.
//!
//! Invariant: a mistake never stops the walk; whoever has the builder asks at the end if there was
//! any.

use std::any::Any;
use std::ops::RangeInclusive;

use millpond_conf::code as conf_code;
use millpond_conf::source::Span;
use millpond_conf::tree::{Statement, Word};
use millpond_conf::{Code, Contexts, ParseContext, Template};

use super::block::{Draft, Pass, Row};
use super::code;
use super::slots::Slots;

/// The directives that a walk knows, handed in from the top.
#[derive(Clone, Copy)]
pub struct Tables {
    /// The row of a name.
    pub row: fn(&str) -> Option<&'static Row>,
    /// Obeys a line without a row: the setting of a family, or a mistake.
    pub setting: fn(&mut Builder, &Statement, Contexts),
    /// The reason for which a directive is not supported.
    pub refusal: fn(&str) -> Option<&'static str>,
    /// True for the name of any directive, in whatever block it stands.
    pub knows: fn(&str) -> bool,
    /// The module of others that an unknown directive belongs to, as a hint.
    pub foreign: fn(&str) -> Option<String>,
}

/// The state of the walk.
pub struct Builder {
    /// Names, diagnostics and paths.
    pub cx: ParseContext,
    /// The tables of directives.
    pub tables: Tables,
    slots: Slots,
}

impl Builder {
    /// A builder that has read nothing yet.
    pub fn new(cx: ParseContext, tables: Tables) -> Builder {
        Builder {
            cx,
            tables,
            slots: Slots::default(),
        }
    }

    /// The thing of a type that the configuration has declared.
    pub fn get<T: Any>(&self) -> Option<&T> {
        self.slots.get()
    }

    /// The things of a type that the configuration has declared so far.
    pub fn of<T: Any + Default>(&mut self) -> &mut T {
        self.slots.of()
    }

    /// The things of a type that the configuration has declared so far, and the parse context.
    pub fn with_cx<T: Any + Default>(&mut self) -> (&mut T, &mut ParseContext) {
        (self.slots.of(), &mut self.cx)
    }

    /// Takes out the things of a type that the configuration has declared so far.
    pub fn take<T: Any + Default>(&mut self) -> T {
        self.slots.take().unwrap_or_default()
    }

    /// Puts something in place of what was declared.
    pub fn put<T: Any>(&mut self, value: T) {
        self.slots.put(value);
    }

    /// Reports a mistake.
    pub fn error(&mut self, span: Span, message: impl Into<String>) {
        let message = message.into();
        let code = match () {
            () if message.starts_with("host not found") => Some(code::UNRESOLVED_HOST),
            () if message.starts_with("open() ") => Some(conf_code::MISSING_FILE),
            () => None,
        };
        self.cx.diagnostics.push_error(span, message).code = code;
    }

    /// Reports a mistake of a kind that has a code.
    pub fn coded(&mut self, span: Span, code: Code, message: impl Into<String>) {
        self.cx.diagnostics.push_error(span, message).code(code);
    }

    /// Checks the number of arguments; reports a wrong one.
    pub fn has_arguments(&mut self, statement: &Statement, allowed: RangeInclusive<usize>) -> bool {
        let is_right = allowed.contains(&statement.args.len());
        if !is_right {
            let name = &statement.name.text;
            let message = format!("invalid number of arguments in \"{name}\" directive");
            self.coded(statement.span, conf_code::ARGUMENT_COUNT, message);
        }
        is_right
    }

    /// Compiles a complex value; a bad one is reported and `None`.
    pub fn template(&mut self, word: &Word) -> Option<Template> {
        match Template::parse(&word.text, word.span, &mut self.cx.variables) {
            Ok(template) => Some(template),
            Err(error) => {
                self.error(word.span, error.to_string());
                None
            }
        }
    }

    /// Walks the statements of a block into its draft.
    pub fn walk(&mut self, statements: &[Statement], draft: &mut Draft) {
        let mut ordered = Vec::new();
        for statement in statements {
            match (self.tables.row)(&statement.name.text) {
                Some(row) if row.pass == Pass::Ordered => ordered.push((row, statement)),
                Some(row) => self.run_row(row, statement, draft),
                None => (self.tables.setting)(self, statement, draft.context),
            }
        }
        for (row, statement) in ordered {
            self.run_row(row, statement, draft);
        }
    }

    fn run_row(&mut self, row: &Row, statement: &Statement, draft: &mut Draft) {
        if !row.contexts.allows(draft.context) {
            self.misplaced(statement, row.contexts);
            return;
        }
        if row.has_no_arguments() && !self.has_arguments(statement, 0..=0) {
            return;
        }
        let name = &statement.name.text;
        match (row.is_block, &statement.body) {
            (true, None) => {
                let message = format!("directive \"{name}\" has no opening \"{{\"");
                self.coded(statement.name.span, conf_code::BLOCK_EXPECTED, message);
            }
            (false, Some(_)) => {
                let message = format!("directive \"{name}\" is not terminated by \";\"");
                self.coded(statement.name.span, conf_code::BLOCK_EXPECTED, message);
            }
            _ => (row.apply)(self, statement, draft),
        }
    }

    /// Reports a line that stands in a block that does not have it.
    pub fn misplaced(&mut self, statement: &Statement, allowed: Contexts) {
        let name = &statement.name.text;
        let message = format!("\"{name}\" directive is not allowed here");
        let help = format!("it belongs into: {}", allowed.names().join(", "));
        self.cx
            .diagnostics
            .push_error(statement.name.span, message)
            .code(conf_code::MISPLACED_DIRECTIVE)
            .help(help);
    }
}
