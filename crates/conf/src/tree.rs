//! The tree: words, statements and the whole configuration, with the place of each.
//!
//! A statement is a name, its arguments and, if it opened a block, the statements of that block.
//! Blocks whose lines are free-form (`map`, `types`, `geo`) have the same shape: the name is the
//! first word of the line.
//!
//! Invariants:
//!
//! 1. `include` statements are replaced by what they include; none is left in a [`Tree`].
//! 2. [`print()`] writes text that reads back as the same statements.

use std::fmt::Write as _;

use crate::source::{Sources, Span};

/// A word: the name of a statement or an argument.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Word {
    /// The text, without quotes and with escapes translated.
    pub text: String,
    /// Place of the word, quotes included.
    pub span: Span,
    /// True if the word was written in single or double quotes.
    pub quoted: bool,
}

impl Word {
    /// Rest behind the prefix, such as the value of `levels=1:2`, as a word of its own.
    pub fn strip_prefix(&self, prefix: &str) -> Option<Word> {
        let text = self.text.strip_prefix(prefix)?;
        let len = self.text.len();
        Some(Word {
            text: text.to_owned(),
            span: self.span.part(len, len - text.len(), len),
            quoted: self.quoted,
        })
    }

    /// The two sides of the first separator, as in `keys_zone=one:10m`.
    pub fn split_once(&self, separator: char) -> Option<(Word, Word)> {
        let (left, right) = self.text.split_once(separator)?;
        let len = self.text.len();
        let part = |text: &str, start: usize| Word {
            text: text.to_owned(),
            span: self.span.part(len, start, start + text.len()),
            quoted: self.quoted,
        };
        Some((part(left, 0), part(right, len - right.len())))
    }
}

/// One directive as it was written.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Statement {
    /// The first word.
    pub name: Word,
    /// The other words before `;` or `{`.
    pub args: Vec<Word>,
    /// Statements between `{` and `}`; none for a statement that ends with `;`.
    pub body: Option<Vec<Statement>>,
    /// Place of the statement, from the first word to the last.
    pub span: Span,
}

/// A configuration: its statements and the files that they stand in.
#[derive(Debug, Default)]
pub struct Tree {
    /// The statements of the main file, those of `-g` before them.
    pub statements: Vec<Statement>,
    /// All texts that were read.
    pub sources: Sources,
}

/// Writes statements in one layout, with only the quotes that the words had.
pub fn print(statements: &[Statement]) -> String {
    let mut out = String::new();
    print_into(&mut out, statements, 0);
    out
}

fn print_into(out: &mut String, statements: &[Statement], depth: usize) {
    for statement in statements {
        // Writing into a String never fails.
        let _ = write!(out, "{:1$}", "", depth * 4);
        print_word(out, &statement.name);
        for word in &statement.args {
            out.push(' ');
            print_word(out, word);
        }
        match &statement.body {
            None => out.push_str(";\n"),
            Some(body) => {
                out.push_str(" {\n");
                print_into(out, body, depth + 1);
                let _ = writeln!(out, "{:1$}}}", "", depth * 4);
            }
        }
    }
}

fn print_word(out: &mut String, word: &Word) {
    if word.quoted {
        out.push('"');
        for char in word.text.chars() {
            if matches!(char, '"' | '\\') {
                out.push('\\');
            }
            out.push(char);
        }
        out.push('"');
        return;
    }
    let mut chars = word.text.chars().peekable();
    let mut at_start = true;
    while let Some(char) = chars.next() {
        match char {
            '\t' => out.push_str("\\t"),
            '\r' => out.push_str("\\r"),
            '\n' => out.push_str("\\n"),
            '"' | '\'' if at_start => out.extend(['\\', char]),
            '\\' => match chars.next_if(|next| " ;{}#".contains(*next)) {
                // The escape is kept in the text, because it has no translation.
                Some(next) => out.extend(['\\', next]),
                None => out.push_str("\\\\"),
            },
            _ => out.push(char),
        }
        at_start = false;
    }
}
