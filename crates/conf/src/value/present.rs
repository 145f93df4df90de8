//! Directives without arguments, such as `internal;`: their presence is their value.
//!
//! Such a field is an `Option<Present>`.

use crate::value::{ArgError, Args, FromArgs};

/// The directive stands there.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Present;

impl FromArgs for Present {
    const SYNTAX: &'static str = "";

    fn from_args(args: &mut Args<'_>) -> Result<Present, ArgError> {
        match args.words {
            [] => Ok(Present),
            _ => Err(ArgError::Count),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value::read;

    #[test]
    fn no_words_are_taken() {
        assert_eq!(read(""), Ok(Present));
        assert_eq!(read::<Present>("on"), Err(ArgError::Count));
    }
}
