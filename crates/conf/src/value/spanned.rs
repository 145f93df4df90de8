//! A value with the place of its words, for checks that come later.
//!
//! A check that needs more than one directive runs when all are known, and still has to name the
//! line that is wrong.

use crate::source::Span;
use crate::value::{ArgError, Args, FromArgs};

/// Value with its place in the configuration.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Spanned<T> {
    /// The value.
    pub value: T,
    /// Place from the first argument to the last; the name if there are none.
    pub span: Span,
}

impl<T: FromArgs> FromArgs for Spanned<T> {
    const SYNTAX: &'static str = T::SYNTAX;

    fn from_args(args: &mut Args<'_>) -> Result<Self, ArgError> {
        let span = match args.words {
            [] => args.name.span,
            [first, rest @ ..] => first.span.to(rest.last().unwrap_or(first).span),
        };
        let value = T::from_args(args)?;
        Ok(Spanned { value, span })
    }
}
