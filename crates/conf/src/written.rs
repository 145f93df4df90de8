//! The statements of one file as they were written: with its `include` lines, and the place of
//! each up to its semicolon or its brace.
//!
//! For those who change a text: in a [`Tree`](crate::Tree) files are put together, and a statement
//! ends with its last word.
//!
//! Invariant: no text makes it panic, and blocks are nested as deep as the parser lets them.

use crate::diagnostic::Diagnostics;
use crate::foreign;
use crate::lex::{Lexer, Token};
use crate::parse::DEPTH;
use crate::source::{FileId, Span};
use crate::tree::Word;

/// A statement of a file.
#[derive(Clone, Debug)]
pub struct Written {
    /// Its words.
    pub words: Vec<Word>,
    /// Place of the words.
    pub head: Span,
    /// Place of the whole, its end and its block included.
    pub extent: Span,
    /// The statements of its block.
    pub inside: Vec<Written>,
}

impl Written {
    /// The name of the directive.
    pub fn name(&self) -> &str {
        self.words.first().map_or("", |word| &word.text)
    }

    fn of(words: Vec<Word>, end: Span, inside: Vec<Written>) -> Option<Written> {
        let (first, last) = (words.first()?.span, words.last()?.span);
        Some(Written {
            head: first.to(last),
            extent: first.to(end),
            words,
            inside,
        })
    }
}

/// Words of an open block, and the statements before it.
type Open = (Vec<Word>, Vec<Written>);

/// The statements of a text; what is not whole at its end is left out.
pub fn written(file: FileId, bytes: &[u8]) -> Vec<Written> {
    let mut diagnostics = Diagnostics::new();
    let mut lexer = Lexer::new(file, bytes);
    let mut open: Vec<Open> = Vec::new();
    let (mut words, mut done) = (Vec::new(), Vec::new());
    loop {
        match lexer.next(&mut diagnostics) {
            Token::Word(word) => words.push(word),
            Token::Semicolon(end) => {
                done.extend(Written::of(std::mem::take(&mut words), end, Vec::new()));
            }
            Token::Open(_) if open.len() >= DEPTH => break,
            Token::Open(_) => {
                let head: Vec<Word> = std::mem::take(&mut words);
                let is_foreign = head.first().is_some_and(|it| foreign::is_foreign(&it.text));
                open.push((head, std::mem::take(&mut done)));
                if is_foreign {
                    lexer.skip_foreign_block();
                }
            }
            Token::Close(end) => {
                words.clear();
                let Some((head, before)) = open.pop() else {
                    break;
                };
                let inside = std::mem::replace(&mut done, before);
                done.extend(Written::of(head, end, inside));
            }
            Token::End(_) | Token::EndInWord(_) | Token::Stop => break,
        }
    }
    while let Some((_, mut before)) = open.pop() {
        before.append(&mut done);
        done = before;
    }
    done
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The texts of statements and of those in their blocks.
    fn texts(all: &[Written], text: &str, out: &mut Vec<String>) {
        for it in all {
            out.push(text[it.extent.start as usize..it.extent.end as usize].to_string());
            texts(&it.inside, text, out);
        }
    }

    #[test]
    fn statements_have_their_ends_and_includes_are_among_them() {
        let text = "a 1;\ninclude x;\nb \"}\" {\n  c_by_lua_block { y = \"}\" } d 2 ;}e";
        let mut found = Vec::new();
        texts(&written(FileId(0), text.as_bytes()), text, &mut found);
        let block = &text[16..text.len() - 1];
        let expected = [
            "a 1;",
            "include x;",
            block,
            "c_by_lua_block { y = \"}\" }",
            "d 2 ;",
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn texts_that_are_not_whole_end() {
        for text in ["", "}", "a", "a {", "a { b;", "{;}", "a { b } c;", "\""] {
            let _ = written(FileId(0), text.as_bytes());
        }
        let deep = "a {".repeat(10_000);
        assert!(written(FileId(0), deep.as_bytes()).is_empty());
    }
}
