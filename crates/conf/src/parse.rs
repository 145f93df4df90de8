//! The parser: words and punctuation of one text to statements.
//!
//! It keeps a stack of the blocks that are open and the words of the statement that has begun.
//! After a mistake it goes on with the guess that loses least:
//!
//! | mistake | guess |
//! |---|---|
//! | `}` inside a statement | the `;` before it is missing: the statement ends, then the block |
//! | `;` without a word | it is one too many |
//! | `{` without a word | a block without a name: what is in it is read and dropped |
//! | `}` without a block | it is one too many |
//! | end of the text in a block | all open blocks end |
//!
//! Invariants:
//!
//! 1. Blocks are nested at most [`DEPTH`] deep, so that what walks the tree may recurse.
//! 2. Each mistake is reported once, in nginx's words.
//! 3. A configuration has at most [`STATEMENTS`], counted over all files, with repetition.
//!
//! What it does not do: it reads no other file; `include` statements stay as they are.

use crate::code;
use crate::diagnostic::Diagnostics;
use crate::foreign;
use crate::lex::{Lexer, Token};
use crate::source::{FileId, SourceKind, Span};
use crate::tree::{Statement, Word};

/// Depth to which blocks may be nested, over all included files together. Real configurations stay
/// below ten; the bound only keeps recursion safe.
pub(crate) const DEPTH: usize = 100;

/// Number of statements that a configuration may have; the largest address lists have a million.
/// They take about a gigabyte, and the bound keeps included files that repeat from taking more.
pub(crate) const STATEMENTS: usize = 4_000_000;

/// Number of statements that may still be read.
#[derive(Debug)]
pub(crate) struct Budget {
    left: usize,
}

impl Default for Budget {
    fn default() -> Budget {
        Budget { left: STATEMENTS }
    }
}

impl Budget {
    /// A budget of fewer statements.
    #[cfg(test)]
    pub(crate) fn of(left: usize) -> Budget {
        Budget { left }
    }

    /// True if nothing may be read any more.
    pub(crate) fn is_spent(&self) -> bool {
        self.left == 0
    }
}

/// Parses like [`parse`], within a budget that several texts share.
pub(crate) fn parse_within(
    file: FileId,
    kind: SourceKind,
    bytes: &[u8],
    budget: &mut Budget,
    diagnostics: &mut Diagnostics,
) -> Vec<Statement> {
    let mut parser = Parser {
        kind,
        budget,
        words: Vec::new(),
        open: Vec::new(),
        done: Vec::new(),
        diagnostics,
    };
    let mut lexer = Lexer::new(file, bytes);
    loop {
        let token = lexer.next(parser.diagnostics);
        let opens = matches!(token, Token::Open(_));
        if parser.take(token) == Go::Stop {
            break;
        }
        if opens && parser.is_in_foreign_block() {
            lexer.skip_foreign_block();
        }
    }
    parser.close_all();
    parser.done
}

/// The words of a text that stands in no file, such as the default of a directive.
pub(crate) fn words(text: &str) -> Vec<Word> {
    // A separator behind the text ends its last word.
    let padded = format!("{text} ");
    let mut lexer = Lexer::new(FileId::NONE, padded.as_bytes());
    let mut diagnostics = Diagnostics::new();
    let mut out = Vec::new();
    while let Token::Word(mut word) = lexer.next(&mut diagnostics) {
        word.span = Span::NONE;
        out.push(word);
    }
    out
}

/// Answer to the question if there is more to read.
#[derive(PartialEq, Eq)]
enum Go {
    On,
    Stop,
}

/// A block that has not been closed yet.
struct Block {
    /// Words before the block's `{`; none if there were none, and then the block is dropped.
    head: Option<Head>,
    open: Span,
    /// Statements around the block, so far.
    outer: Vec<Statement>,
}

struct Head {
    name: Word,
    args: Vec<Word>,
}

impl Head {
    fn new(words: Vec<Word>) -> Option<Head> {
        let mut words = words.into_iter();
        let name = words.next()?;
        let args = words.collect();
        Some(Head { name, args })
    }

    fn into_statement(self, body: Option<Vec<Statement>>) -> Statement {
        let last = self.args.last().unwrap_or(&self.name);
        Statement {
            span: self.name.span.to(last.span),
            name: self.name,
            args: self.args,
            body,
        }
    }
}

struct Parser<'a> {
    kind: SourceKind,
    budget: &'a mut Budget,
    /// The words of the statement that has begun.
    words: Vec<Word>,
    open: Vec<Block>,
    /// The statements of the innermost open block.
    done: Vec<Statement>,
    diagnostics: &'a mut Diagnostics,
}

impl Parser<'_> {
    fn take(&mut self, token: Token) -> Go {
        match token {
            Token::Word(word) => self.words.push(word),
            Token::Semicolon(span) => {
                if self.words.is_empty() {
                    self.unexpected(";", span);
                }
                self.end_statement();
                return self.spend(span);
            }
            Token::Open(span) => {
                return match self.spend(span) {
                    Go::On => self.open_block(span),
                    Go::Stop => Go::Stop,
                };
            }
            Token::Close(span) => self.close_block(span),
            Token::End(span) => return self.end(span, None),
            Token::EndInWord(start) => return self.end(start, Some(start)),
            Token::Stop => return Go::Stop,
        }
        Go::On
    }

    fn is_in_foreign_block(&self) -> bool {
        let head = self.open.last().and_then(|block| block.head.as_ref());
        head.is_some_and(|head| foreign::is_foreign(&head.name.text))
    }

    /// INVARIANT 3.
    fn spend(&mut self, span: Span) -> Go {
        if self.budget.left > 0 {
            self.budget.left -= 1;
            return Go::On;
        }
        let message = format!("more than {STATEMENTS} directives");
        self.diagnostics.push_error(span, message);
        Go::Stop
    }

    fn end_statement(&mut self) {
        let head = Head::new(std::mem::take(&mut self.words));
        let statement = head.map(|head| head.into_statement(None));
        self.done.extend(statement);
    }

    fn open_block(&mut self, span: Span) -> Go {
        let head = Head::new(std::mem::take(&mut self.words));
        if self.kind == SourceKind::CommandLine {
            let message = "block directives are not supported in -g option";
            let error = self.diagnostics.push_error(span, message);
            error.code(code::SYNTAX);
            return Go::Stop;
        }
        if head.is_none() {
            self.unexpected("{", span);
        }
        if self.open.len() >= DEPTH {
            let message = format!("blocks are nested more than {DEPTH} deep");
            let error = self.diagnostics.push_error(span, message);
            error.code(code::TOO_MUCH);
            return Go::Stop;
        }
        self.open.push(Block {
            head,
            open: span,
            outer: std::mem::take(&mut self.done),
        });
        Go::On
    }

    fn close_block(&mut self, span: Span) {
        if let Some(first) = self.words.first() {
            let first = first.span;
            self.diagnostics
                .push_error(span, "unexpected \"}\"")
                .code(code::SYNTAX)
                .also(first, "this directive has not ended")
                .help("is a \";\" missing?");
            self.end_statement();
        }
        match self.open.pop() {
            Some(block) => self.leave(block),
            None => self.unexpected("}", span),
        }
    }

    fn leave(&mut self, block: Block) {
        let body = std::mem::replace(&mut self.done, block.outer);
        let statement = block.head.map(|head| head.into_statement(Some(body)));
        self.done.extend(statement);
    }

    fn end(&mut self, span: Span, unfinished_word: Option<Span>) -> Go {
        let begun = self.words.first().map(|word| word.span);
        if let Some(begun) = begun.or(unfinished_word) {
            let message = match self.kind {
                SourceKind::File => "unexpected end of file, expecting \";\" or \"}\"",
                SourceKind::CommandLine => "unexpected end of parameter, expecting \";\"",
            };
            let diagnostic = self.diagnostics.push_error(span, message);
            diagnostic.code(code::UNEXPECTED_END);
            if unfinished_word.is_some() {
                // Without its last word the statement would be wrong in other ways, too.
                diagnostic.label("this word does not end");
                self.words.clear();
            } else {
                diagnostic.also(begun, "this directive has not ended");
                self.end_statement();
            }
        } else if let Some(block) = self.open.last() {
            self.diagnostics
                .push_error(span, "unexpected end of file, expecting \"}\"")
                .code(code::UNEXPECTED_END)
                .also(block.open, "this block is not closed");
        }
        Go::Stop
    }

    fn close_all(&mut self) {
        while let Some(block) = self.open.pop() {
            self.leave(block);
        }
    }

    fn unexpected(&mut self, what: &str, span: Span) {
        let message = format!("unexpected \"{what}\"");
        self.diagnostics
            .push_error(span, message)
            .code(code::SYNTAX);
    }
}

#[cfg(test)]
mod tests;
