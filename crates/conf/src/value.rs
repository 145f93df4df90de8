//! Values: how the words behind a directive's name become a typed value.
//!
//! The type of a field is the grammar of its directive. Two traits describe a grammar:
//!
//! - [`FromWord`]: the value is exactly one word. Such a type is also a `FromArgs`, and can stand
//!   in `Vec<T>` (one word or more) and [`OffOr<T>`].
//! - [`FromArgs`]: the value is made from all words, and perhaps the block behind them.
//!
//! Each type of this module stands in a file of its own, with a table of good and bad inputs at
//! the end. Grammars that only one policy needs stand beside that policy.
//!
//! Invariants:
//!
//! 1. Reading a value only checks it: nothing is opened, resolved or started.
//! 2. An error names the word at fault; [`ArgError::report`] turns it into a diagnostic with that
//!    word's place and the syntax.

mod buffers;
mod flag;
mod number;
mod off;
mod path;
mod present;
mod sequence;
mod size;
mod spanned;
mod string;
pub(crate) mod syntax;
mod template;
mod time;
mod words;

use thiserror::Error;

use crate::code;
use crate::context::ParseContext;
use crate::schema::quoted_list;
use crate::suggest::suggest;
use crate::tree::{Statement, Word};

pub use buffers::Buffers;
pub use off::OffOr;
pub use path::ConfPath;
pub use present::Present;
pub use size::{ByteSize, Offset, SizeTemplate, parse_offset};
pub use spanned::Spanned;
pub use template::{Part, Template, TemplateError};
pub use time::parse_duration;
#[doc(hidden)]
pub use words::one_word;
pub use words::{Flags, Words};

/// The arguments of one directive.
pub struct Args<'a> {
    /// The name as it was written.
    pub name: &'a Word,
    /// The words behind the name.
    pub words: &'a [Word],
    /// The block behind the words; only directives that are declared as blocks have one.
    pub body: Option<&'a [Statement]>,
    /// Context that the words are read against.
    pub cx: &'a mut ParseContext,
}

impl<'a> Args<'a> {
    /// The only word; an error if there is none or there are more.
    pub fn one(&self) -> Result<&'a Word, ArgError> {
        match self.words {
            [word] => Ok(word),
            _ => Err(ArgError::Count),
        }
    }

    /// All words, if there are at least this many.
    pub fn at_least(&self, count: usize) -> Result<&'a [Word], ArgError> {
        if self.words.len() >= count {
            Ok(self.words)
        } else {
            Err(ArgError::Count)
        }
    }

    /// Reads the word at the index; an error if there is none.
    pub fn word<T: FromWord>(&mut self, index: usize) -> Result<T, ArgError> {
        let word = self.words.get(index).ok_or(ArgError::Count)?;
        T::from_word(word, self.cx).map_err(|error| error.at(index))
    }

    /// Reads the part behind a prefix such as `max_size=` of the word at the index; none if the
    /// word does not start with it.
    pub fn after<T: FromWord>(
        &mut self,
        index: usize,
        prefix: &str,
    ) -> Option<Result<T, ArgError>> {
        let word = self.words.get(index)?.strip_prefix(prefix)?;
        Some(T::from_word(&word, self.cx).map_err(|error| error.at(index)))
    }
}

/// A value that is made from all words behind a directive's name.
pub trait FromArgs: Sized {
    /// The words in the notation of the manual, such as `on | off`.
    const SYNTAX: &'static str;

    /// Reads the words.
    fn from_args(args: &mut Args<'_>) -> Result<Self, ArgError>;
}

/// A value that is one word.
pub trait FromWord: Sized {
    /// The word in the notation of the manual, such as `size`.
    const SYNTAX: &'static str;

    /// Reads the word.
    fn from_word(word: &Word, cx: &mut ParseContext) -> Result<Self, WordError>;
}

impl<T: FromWord> FromArgs for T {
    const SYNTAX: &'static str = <T as FromWord>::SYNTAX;

    fn from_args(args: &mut Args<'_>) -> Result<Self, ArgError> {
        let word = args.one()?;
        T::from_word(word, args.cx).map_err(|error| error.at(0))
    }
}

impl<T: FromArgs> FromArgs for Option<T> {
    const SYNTAX: &'static str = T::SYNTAX;

    fn from_args(args: &mut Args<'_>) -> Result<Self, ArgError> {
        T::from_args(args).map(Some)
    }
}

/// Error of one word.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum WordError {
    /// The word is not what the syntax wants.
    #[error("invalid value")]
    Invalid,
    /// The word is not a number, or one that is too large.
    #[error("invalid number")]
    Number,
    /// The word is none of the words that are known.
    #[error("none of the known words")]
    Unknown {
        /// The known words.
        known: Vec<&'static str>,
    },
    /// Something else, in full.
    #[error("{0}")]
    Message(String),
}

impl WordError {
    /// The error of the word at this index among the arguments.
    pub fn at(self, word: usize) -> ArgError {
        ArgError::Word { word, error: self }
    }

    fn message(&self, name: &str, word: &str) -> String {
        match self {
            WordError::Invalid => format!("\"{name}\" directive invalid value \"{word}\""),
            WordError::Number => format!("\"{name}\" directive invalid number \"{word}\""),
            WordError::Unknown { known } if known.len() <= LISTED_WORDS => {
                let known = quoted_list(known);
                format!("invalid value \"{word}\" in \"{name}\" directive, it must be {known}")
            }
            WordError::Unknown { .. } => {
                format!("invalid value \"{word}\" in \"{name}\" directive")
            }
            WordError::Message(message) => message.clone(),
        }
    }
}

/// Number of known words that a message lists; more are found in the syntax below it.
const LISTED_WORDS: usize = 4;

/// Error of the arguments of a directive.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum ArgError {
    /// There are too few or too many words.
    #[error("invalid number of arguments")]
    Count,
    /// A word is wrong, as its type says.
    #[error("argument {}: {error}", word + 1)]
    Word {
        /// The index among the arguments.
        word: usize,
        /// Error of the word.
        error: WordError,
    },
    /// A word is wrong, with the whole message.
    #[error("{message}")]
    Value {
        /// The index among the arguments.
        word: usize,
        /// The message, in full.
        message: String,
    },
    /// Something about the directive as a whole is wrong.
    #[error("{message}")]
    Other {
        /// The message, in full.
        message: String,
    },
    /// The error has been reported in the context's diagnostics already.
    #[error("reported already")]
    Reported,
}

impl ArgError {
    /// An error about a word with the whole message.
    pub fn value(word: usize, message: impl Into<String>) -> ArgError {
        let message = message.into();
        ArgError::Value { word, message }
    }

    /// An error about the directive as a whole.
    pub fn other(message: impl Into<String>) -> ArgError {
        let message = message.into();
        ArgError::Other { message }
    }

    /// Turns the error into a diagnostic at the word at fault, with the syntax as help.
    pub fn report(&self, statement: &Statement, syntax: &str, cx: &mut ParseContext) {
        let name = &statement.name.text;
        let place = |index: &usize| {
            let word = statement.args.get(*index);
            (
                word.map_or(statement.span, |word| word.span),
                word.map_or("", |word| &word.text),
            )
        };
        let (span, message) = match self {
            ArgError::Reported => return,
            ArgError::Count => (
                statement.span,
                format!("invalid number of arguments in \"{name}\" directive"),
            ),
            ArgError::Word { word, error } => {
                let (span, text) = place(word);
                (span, error.message(name, text))
            }
            ArgError::Value { word, message } => (place(word).0, message.clone()),
            ArgError::Other { message } => (statement.span, message.clone()),
        };
        let diagnostic = cx.diagnostics.push_error(span, message);
        diagnostic.code(match self {
            ArgError::Count => code::ARGUMENT_COUNT,
            _ => code::INVALID_VALUE,
        });
        if let ArgError::Word {
            word,
            error: WordError::Unknown { known },
        } = self
            && let Some(near) = suggest(place(word).1, known.iter().copied())
        {
            diagnostic.help(format!("did you mean \"{near}\"?"));
        }
        diagnostic.help(if syntax.is_empty() {
            format!("syntax: {name};")
        } else {
            format!("syntax: {name} {syntax};")
        });
    }
}

/// Reads each text as arguments: what the tables of the values use.
#[cfg(test)]
pub(crate) fn read<T: FromArgs>(text: &str) -> Result<T, ArgError> {
    read_in(text, &mut ParseContext::new("/prefix", "/conf"))
}

/// Reads a text as arguments against a context.
#[cfg(test)]
pub(crate) fn read_in<T: FromArgs>(text: &str, cx: &mut ParseContext) -> Result<T, ArgError> {
    cx.parse_default("directive", text, T::from_args)
}
