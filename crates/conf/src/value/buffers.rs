//! Buffers: how many, and the size of each, as in `8 4k`.
//!
//! The count is a number and the size one of memory; nginx refuses zero for either.

use crate::value::{ArgError, Args, ByteSize, FromArgs, WordError};

/// A number of buffers of one size. Neither is zero.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Buffers {
    /// Number of buffers.
    pub count: u32,
    /// The size of each.
    pub size: ByteSize,
}

impl FromArgs for Buffers {
    const SYNTAX: &'static str = "number size";

    fn from_args(args: &mut Args<'_>) -> Result<Buffers, ArgError> {
        if args.words.len() != 2 {
            return Err(ArgError::Count);
        }
        let count = args.word(0)?;
        let size = args.word(1)?;
        if count == 0 {
            return Err(WordError::Invalid.at(0));
        }
        if size == ByteSize(0) {
            return Err(WordError::Invalid.at(1));
        }
        Ok(Buffers { count, size })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value::read;

    #[test]
    fn buffers_are_two_words_and_not_nothing() {
        let size = ByteSize(4096);
        assert_eq!(read("8 4k"), Ok(Buffers { count: 8, size }));
        for (text, error) in [
            ("8", ArgError::Count),
            ("8 4k 1", ArgError::Count),
            ("0 4k", WordError::Invalid.at(0)),
            ("8 0", WordError::Invalid.at(1)),
            ("x 4k", WordError::Number.at(0)),
            ("8 4g", WordError::Invalid.at(1)),
        ] {
            assert_eq!(read::<Buffers>(text), Err(error), "{text}");
        }
    }
}
