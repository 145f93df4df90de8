//! The command line of `millpond explain`.
//!
//! One thing is asked at a time; a second one is a mistake. Options that nobody knows are, too, so
//! that a slip of the pen is not taken for a name.

/// What is to be explained.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Asked {
    /// A directive, variable, code or status.
    Name(String),
    /// A document of the manual, for `cargo xtask docs`.
    Reference(String),
}

/// The arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Options {
    /// What is to be explained.
    pub(super) asked: Asked,
}

/// A command line that is wrong.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum OptionError {
    /// Nothing is asked.
    #[error("nothing to explain")]
    Nothing,
    /// Not an option, or one too many.
    #[error("invalid option: \"{0}\"")]
    Invalid(String),
    /// An option without its value.
    #[error("option \"{0}\" requires a value")]
    Missing(String),
}

impl Options {
    /// Reads the words behind `explain`.
    pub(super) fn parse(mut words: impl Iterator<Item = String>) -> Result<Options, OptionError> {
        let mut asked = None;
        while let Some(word) = words.next() {
            let next = match word.as_str() {
                "--reference" => Asked::Reference(words.next().ok_or(OptionError::Missing(word))?),
                option if option.starts_with('-') => return Err(OptionError::Invalid(word)),
                _ => Asked::Name(word),
            };
            if asked.replace(next.clone()).is_some() {
                let (Asked::Name(word) | Asked::Reference(word)) = next;
                return Err(OptionError::Invalid(word));
            }
        }
        let asked = asked.ok_or(OptionError::Nothing)?;
        Ok(Options { asked })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Asked, OptionError> {
        let words = text.split_ascii_whitespace().map(str::to_string);
        Options::parse(words).map(|options| options.asked)
    }

    #[test]
    fn one_thing_is_asked_at_a_time() {
        assert_eq!(parse("gzip"), Ok(Asked::Name("gzip".to_string())));
        assert_eq!(parse(""), Err(OptionError::Nothing));
        assert_eq!(parse("a b"), Err(OptionError::Invalid("b".to_string())));
        assert_eq!(parse("-x"), Err(OptionError::Invalid("-x".to_string())));
        let missing = OptionError::Missing("--reference".to_string());
        assert_eq!(parse("--reference"), Err(missing));
    }
}
