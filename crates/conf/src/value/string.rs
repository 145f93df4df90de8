//! A word as it is: a `String`, or a `Word` with its place.
//!
//! Quotes and escapes are gone already; dollar signs mean nothing here. For values with variables
//! see `template`.

use crate::context::ParseContext;
use crate::tree::Word;
use crate::value::{FromWord, WordError};

impl FromWord for String {
    const SYNTAX: &'static str = "string";

    fn from_word(word: &Word, _: &mut ParseContext) -> Result<String, WordError> {
        Ok(word.text.clone())
    }
}

impl FromWord for Word {
    const SYNTAX: &'static str = "string";

    fn from_word(word: &Word, _: &mut ParseContext) -> Result<Word, WordError> {
        Ok(word.clone())
    }
}

#[cfg(test)]
mod tests {
    use crate::value::{ArgError, read};

    #[test]
    fn any_one_word_is_a_string() {
        assert_eq!(read("\"a b\""), Ok("a b".to_owned()));
        assert_eq!(read("\"\""), Ok(String::new()));
        assert_eq!(read::<String>("a b"), Err(ArgError::Count));
    }
}
