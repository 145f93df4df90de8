//! The lexer: bytes to words and punctuation, by nginx's rules.
//!
//! The rules, all of them facts about nginx's reader:
//!
//! - Space, tab, CR and LF separate words. `#` starts a comment only where a word could start.
//! - A word that starts with `"` or `'` runs to the next such quote that no backslash precedes.
//!   Behind it must come a separator, `;`, `{` or `)`; the `)` starts the next word.
//! - Any other word runs to a separator, `;` or `{`. Right behind a `$` the `{` belongs to the
//!   word, so that `${name}` can be written. Quotes, `}` and `#` inside a word are plain.
//! - A backslash keeps the next byte from ending the word. `\"`, `\'`, `\\`, `\t`, `\r` and `\n`
//!   are translated, in quotes or not; before anything else the backslash stays.
//! - A word with its end must fit in nginx's buffer of [`BUFFER_BYTES`].
//!
//! Invariants:
//!
//! 1. Every call of [`Lexer::next`] consumes at least a byte or says [`Token::End`] or
//!    [`Token::Stop`], and these two are final.
//! 2. A word that is not UTF-8 is reported and goes on in replacement characters.
//!
//! What differs from nginx: a comment may be longer than the buffer. Blocks of Lua, which nginx
//! reads with a module of others, are passed over (`foreign`).

use crate::code;
use crate::diagnostic::Diagnostics;
use crate::foreign;
use crate::source::{FileId, Span};
use crate::tree::Word;

/// The size of the buffer that nginx reads a configuration through, and so the limit of a word.
pub(crate) const BUFFER_BYTES: usize = 4096;

/// Number of bytes of a word that is too long which are quoted in the message, as in nginx.
const QUOTED_BYTES: usize = 10;

/// Finding of the lexer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Token {
    /// A word.
    Word(Word),
    /// A `;`.
    Semicolon(Span),
    /// A `{` that opens a block.
    Open(Span),
    /// A `}` that closes a block.
    Close(Span),
    /// The end of the text.
    End(Span),
    /// The end of the text inside a word, which starts at the span.
    EndInWord(Span),
    /// The rest of the text makes no sense; that has been reported.
    Stop,
}

/// The reason why a word did not end.
enum Unfinished {
    EndOfText,
    TooLong,
}

/// Reads tokens from one text.
pub(crate) struct Lexer<'a> {
    bytes: &'a [u8],
    file: FileId,
    pos: usize,
    stopped: bool,
}

impl<'a> Lexer<'a> {
    /// A lexer at the start of the text.
    pub(crate) fn new(file: FileId, bytes: &'a [u8]) -> Lexer<'a> {
        Lexer {
            bytes,
            file,
            pos: 0,
            stopped: false,
        }
    }

    /// The next token.
    pub(crate) fn next(&mut self, diagnostics: &mut Diagnostics) -> Token {
        if self.stopped {
            return Token::Stop;
        }
        self.skip_space();
        let start = self.pos;
        let Some(first) = self.bytes.get(start) else {
            return Token::End(self.span(start, start));
        };
        let token = match first {
            b';' => Token::Semicolon(self.span(start, start + 1)),
            b'{' => Token::Open(self.span(start, start + 1)),
            b'}' => Token::Close(self.span(start, start + 1)),
            b'"' | b'\'' => return self.quoted_word(*first, diagnostics),
            _ => return self.bare_word(diagnostics),
        };
        self.pos += 1;
        token
    }

    /// Passes over a block in another language whose `{` was the last token; its `}` is the next.
    pub(crate) fn skip_foreign_block(&mut self) {
        self.pos = foreign::end_of_lua(self.bytes, self.pos);
    }

    fn skip_space(&mut self) {
        while let Some(byte) = self.bytes.get(self.pos) {
            match byte {
                byte if is_space(*byte) => self.pos += 1,
                b'#' => {
                    let rest = self.bytes.get(self.pos..).unwrap_or_default();
                    let line = rest.iter().position(|byte| *byte == b'\n');
                    self.pos += line.unwrap_or(rest.len());
                }
                _ => return,
            }
        }
    }

    fn bare_word(&mut self, diagnostics: &mut Diagnostics) -> Token {
        let start = self.pos;
        let mut after_dollar = false;
        loop {
            let byte = match self.read(start) {
                Ok(byte) => byte,
                Err(why) => return self.unfinished(why, start, None, diagnostics),
            };
            match byte {
                b'{' if after_dollar => {}
                b';' | b'{' => break,
                byte if is_space(byte) => break,
                b'\\' => {
                    after_dollar = false;
                    self.pos += 1;
                    if let Err(why) = self.read(start) {
                        return self.unfinished(why, start, None, diagnostics);
                    }
                }
                byte => after_dollar = byte == b'$',
            }
            self.pos += 1;
        }
        let raw = self.bytes.get(start..self.pos).unwrap_or_default();
        let span = self.span(start, self.pos);
        Token::Word(word(raw, span, false, diagnostics))
    }

    fn quoted_word(&mut self, quote: u8, diagnostics: &mut Diagnostics) -> Token {
        self.pos += 1;
        let start = self.pos;
        loop {
            match self.read(start) {
                Err(why) => return self.unfinished(why, start, Some(quote), diagnostics),
                Ok(byte) if byte == quote => break,
                Ok(b'\\') => self.pos += 2,
                Ok(_) => self.pos += 1,
            }
        }
        let raw = self.bytes.get(start..self.pos).unwrap_or_default();
        self.pos += 1;
        let span = self.span(start - 1, self.pos);
        let word = word(raw, span, true, diagnostics);
        self.check_behind_quote(start, diagnostics);
        Token::Word(word)
    }

    /// nginx wants a separator behind the closing quote.
    fn check_behind_quote(&mut self, start: usize, diagnostics: &mut Diagnostics) {
        match self.read(start) {
            Err(Unfinished::EndOfText) => {}
            Err(Unfinished::TooLong) => {
                self.unfinished(Unfinished::TooLong, start, None, diagnostics);
            }
            // The parser reports a `}` that comes too early.
            Ok(b';' | b'{' | b'}' | b')') => {}
            Ok(byte) if is_space(byte) => {}
            Ok(_) => self.skip_behind_quote(diagnostics),
        }
    }

    /// Reports what follows a closing quote, and passes over it: it is no word of its own.
    fn skip_behind_quote(&mut self, diagnostics: &mut Diagnostics) {
        let start = self.pos;
        let rest = self.bytes.get(start..).unwrap_or_default();
        let first = String::from_utf8_lossy(rest.get(..4).unwrap_or(rest));
        let first = first.chars().next().unwrap_or_default();
        let ends = |byte: &u8| is_space(*byte) || b";{}#".contains(byte);
        self.pos += rest.iter().position(ends).unwrap_or(rest.len());
        let span = self.span(start, self.pos.max(start + 1));
        diagnostics
            .push_error(span, format!("unexpected \"{first}\""))
            .code(code::SYNTAX)
            .label("expected a space, \";\" or \"{\" behind the closing quote")
            .help("inside a quoted word, write a quote as \\\"");
    }

    /// The byte at the position, if the word that starts at `start` may still reach it.
    fn read(&self, start: usize) -> Result<u8, Unfinished> {
        match self.bytes.get(self.pos) {
            None => Err(Unfinished::EndOfText),
            Some(_) if self.pos - start >= BUFFER_BYTES => Err(Unfinished::TooLong),
            Some(byte) => Ok(*byte),
        }
    }

    fn unfinished(
        &mut self,
        why: Unfinished,
        start: usize,
        quote: Option<u8>,
        diagnostics: &mut Diagnostics,
    ) -> Token {
        self.stopped = true;
        let opening = start - usize::from(quote.is_some());
        let span = self.span(opening, opening + 1);
        if let Unfinished::EndOfText = why {
            return Token::EndInWord(span);
        }
        let message = match quote {
            Some(quote) => format!(
                "too long parameter, probably missing terminating \"{}\" character",
                char::from(quote)
            ),
            None => {
                let shown = self.bytes.get(start..start + QUOTED_BYTES);
                let shown = String::from_utf8_lossy(shown.unwrap_or_default());
                format!("too long parameter \"{shown}...\" started")
            }
        };
        diagnostics
            .push_error(span, message)
            .code(code::TOO_MUCH)
            .label("it starts here")
            .help(format!(
                "a word has at most {BUFFER_BYTES} bytes with its end"
            ));
        Token::Stop
    }

    fn span(&self, start: usize, end: usize) -> Span {
        let clamp = |offset: usize| u32::try_from(offset).unwrap_or(u32::MAX);
        Span {
            file: self.file,
            start: clamp(start),
            end: clamp(end.min(self.bytes.len())),
        }
    }
}

fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\r' | b'\n')
}

fn word(raw: &[u8], span: Span, quoted: bool, diagnostics: &mut Diagnostics) -> Word {
    let text = match String::from_utf8(unescape(raw)) {
        Ok(text) => text,
        Err(error) => {
            diagnostics
                .push_error(span, "invalid UTF-8 in a word")
                .code(code::INVALID_UTF8)
                .help("only comments may hold other bytes; save the file as UTF-8");
            String::from_utf8_lossy(error.as_bytes()).into_owned()
        }
    };
    Word { text, span, quoted }
}

fn unescape(raw: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(raw.len());
    let mut bytes = raw.iter().copied().peekable();
    while let Some(byte) = bytes.next() {
        if byte != b'\\' {
            out.push(byte);
            continue;
        }
        let translated = match bytes.peek() {
            Some(next @ (b'"' | b'\'' | b'\\')) => Some(*next),
            Some(b't') => Some(b'\t'),
            Some(b'r') => Some(b'\r'),
            Some(b'n') => Some(b'\n'),
            _ => None,
        };
        if translated.is_some() {
            bytes.next();
        }
        out.push(translated.unwrap_or(byte));
    }
    out
}

#[cfg(test)]
mod tests;
