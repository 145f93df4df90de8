//! Known words: one of them (`#[derive(Words)]`), or a set ([`Flags`]).
//!
//! As in nginx, the case of the letters does not matter.

use std::fmt;
use std::marker::PhantomData;

use crate::context::ParseContext;
use crate::tree::Word;
use crate::value::syntax::Joined;
use crate::value::{ArgError, Args, FromArgs, WordError};

/// An enum whose variants are words of the configuration; derived.
pub trait Words: Copy + PartialEq + 'static {
    /// The words with their variants, in the order of declaration.
    const WORDS: &'static [(&'static str, Self)];

    /// The words joined with ` | `.
    const SYNTAX: &'static str;

    /// The variant that a word stands for.
    fn parse(word: &str) -> Option<Self> {
        let found = Self::WORDS.iter();
        let mut found = found.filter(|(known, _)| known.eq_ignore_ascii_case(word));
        found.next().map(|(_, variant)| *variant)
    }

    /// The word that stands for the variant.
    fn word(self) -> &'static str {
        let found = Self::WORDS.iter().find(|(_, variant)| *variant == self);
        found.map_or("", |(word, _)| *word)
    }

    /// The error for a word that is not known.
    fn unknown() -> WordError {
        let known = Self::WORDS.iter().map(|(word, _)| *word).collect();
        WordError::Unknown { known }
    }
}

/// A set of known words, at most 32.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Flags<T> {
    bits: u32,
    of: PhantomData<T>,
}

impl<T: Words> Flags<T> {
    /// The empty set.
    pub fn empty() -> Flags<T> {
        Flags {
            bits: 0,
            of: PhantomData,
        }
    }

    /// Adds a word.
    pub fn insert(&mut self, word: T) {
        self.bits |= Self::bit(word);
    }

    /// True if the word is in the set.
    pub fn contains(&self, word: T) -> bool {
        self.bits & Self::bit(word) != 0
    }

    /// True if no word is in the set.
    pub fn is_empty(&self) -> bool {
        self.bits == 0
    }

    /// The words in the order of their declaration.
    pub fn iter(&self) -> impl Iterator<Item = T> + '_ {
        let words = T::WORDS.iter().map(|(_, word)| *word);
        words.filter(|word| self.contains(*word))
    }

    /// The bit of the word's place in the declaration. A word beyond the 32nd would have none;
    /// the constant refuses such a type when the program is compiled.
    fn bit(word: T) -> u32 {
        const { assert!(T::WORDS.len() <= 32, "a set holds 32 words") };
        let index = T::WORDS.iter().position(|(_, known)| *known == word);
        index.map_or(0, |index| 1 << index)
    }
}

impl<T: Words> Default for Flags<T> {
    fn default() -> Flags<T> {
        Flags::empty()
    }
}

impl<T: Words> FromIterator<T> for Flags<T> {
    fn from_iter<I: IntoIterator<Item = T>>(words: I) -> Flags<T> {
        let mut flags = Flags::empty();
        words.into_iter().for_each(|word| flags.insert(word));
        flags
    }
}

impl<T: Words> fmt::Debug for Flags<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter().map(T::word)).finish()
    }
}

impl<T: Words> Flags<T> {
    const JOINED: &'static Joined = &Joined::new(&[T::SYNTAX, " ..."]);
}

impl<T: Words> FromArgs for Flags<T> {
    const SYNTAX: &'static str = Self::JOINED.as_str();

    fn from_args(args: &mut Args<'_>) -> Result<Flags<T>, ArgError> {
        let mut flags = Flags::empty();
        for (index, word) in args.at_least(1)?.iter().enumerate() {
            let flag = T::parse(&word.text).ok_or_else(|| T::unknown().at(index))?;
            if flags.contains(flag) {
                let message = format!("duplicate value \"{}\"", word.text);
                args.cx.diagnostics.push_warning(word.span, message);
            }
            flags.insert(flag);
        }
        Ok(flags)
    }
}

/// Reads one known word; what the derive calls.
#[doc(hidden)]
pub fn one_word<T: Words>(word: &Word, _: &mut ParseContext) -> Result<T, WordError> {
    T::parse(&word.text).ok_or_else(T::unknown)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value::{read, read_in};

    #[derive(Clone, Copy, PartialEq, Eq, Debug, crate::Words)]
    enum Reason {
        #[word("error")]
        Error,
        #[word("timeout")]
        Timeout,
        #[word("http_500")]
        Http500,
        #[word("off")]
        Off,
        #[word("updating")]
        Updating,
    }

    #[test]
    fn one_word_is_one_variant() {
        assert_eq!(read("timeout"), Ok(Reason::Timeout));
        assert_eq!(read("HTTP_500"), Ok(Reason::Http500));
        assert_eq!(read::<Reason>("http_501"), Err(Reason::unknown().at(0)));
        assert_eq!(read::<Reason>("error timeout"), Err(ArgError::Count));
        assert_eq!(Reason::Http500.word(), "http_500");
        let syntax = "error | timeout | http_500 | off | updating";
        assert_eq!(<Reason as Words>::SYNTAX, syntax);
    }

    #[test]
    fn sets_hold_each_word_once() {
        let mut cx = ParseContext::default();
        let flags: Flags<Reason> = read_in("error http_500 error", &mut cx).expect("known words");
        assert_eq!(
            flags,
            [Reason::Http500, Reason::Error].into_iter().collect()
        );
        assert_eq!(format!("{flags:?}"), r#"{"error", "http_500"}"#);
        let messages: Vec<_> = cx.diagnostics.iter().map(|it| &it.message).collect();
        assert_eq!(messages, ["duplicate value \"error\""]);
        assert!(!cx.diagnostics.has_errors());
        assert_eq!(read::<Flags<Reason>>(""), Err(ArgError::Count));
        assert_eq!(
            read::<Flags<Reason>>("error x"),
            Err(Reason::unknown().at(1))
        );
    }
}
