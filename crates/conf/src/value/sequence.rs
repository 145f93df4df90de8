//! Sequences: one word or more of the same kind.
//!
//! A directive that may be repeated is something else: its field is declared with `repeat`.

use crate::value::syntax::Joined;
use crate::value::{ArgError, Args, FromArgs, FromWord};

/// Carries the syntax of a sequence, which needs a place for its joined text.
struct Sequence<T>(T);

impl<T: FromWord> Sequence<T> {
    const JOINED: &'static Joined = &Joined::new(&[T::SYNTAX, " ..."]);
}

impl<T: FromWord> FromArgs for Vec<T> {
    const SYNTAX: &'static str = Sequence::<T>::JOINED.as_str();

    fn from_args(args: &mut Args<'_>) -> Result<Vec<T>, ArgError> {
        let count = args.at_least(1)?.len();
        (0..count).map(|index| args.word(index)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value::{WordError, read};

    #[test]
    fn sequences_have_a_word_or_more() {
        assert_eq!(
            read("a \"b c\""),
            Ok(vec!["a".to_owned(), "b c".to_owned()])
        );
        assert_eq!(read("1 2 3"), Ok(vec![1_u32, 2, 3]));
        assert_eq!(read::<Vec<String>>(""), Err(ArgError::Count));
        assert_eq!(read::<Vec<u32>>("1 x"), Err(WordError::Number.at(1)));
        assert_eq!(Vec::<u32>::SYNTAX, "number ...");
    }
}
