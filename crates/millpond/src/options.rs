//! Options that command lines of `millpond cache` and `millpond top` have in common: which process
//! is meant, mistakes, and how help and mistakes are told.
//!
//! What nobody knows is a mistake, told with the usage on the standard error stream, with the exit
//! status 2; help is on the standard output, with 0.

use std::process::ExitCode;

use millpond_server::source::ConfSource;

use crate::check;
use crate::printed;

/// A command line that is wrong.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum OptionError {
    /// The word is not an option of this command, or is one too many.
    #[error("invalid option: \"{0}\"")]
    Invalid(String),
    /// An option without its value.
    #[error("option \"{0}\" requires a value")]
    Missing(String),
    /// A value that is not understood.
    #[error("\"{value}\" is no value of \"{option}\": {expected}")]
    Value {
        /// The option.
        option: String,
        /// Value of the option.
        value: String,
        /// Value that was expected.
        expected: &'static str,
    },
    /// Something is missing, or too much.
    #[error("{0}")]
    Nothing(&'static str),
}

/// The configuration of the process that is asked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct OfProcess {
    /// The main file.
    pub(crate) file: Option<String>,
    /// Directory that relative paths start at.
    pub(crate) prefix: Option<String>,
    /// Directives besides those of the file, as of `millpond -g`.
    pub(crate) globals: Option<String>,
}

impl OfProcess {
    /// Takes an option that is about the process; false for any other.
    pub(crate) fn apply(
        &mut self,
        option: &str,
        value: &mut dyn FnMut() -> Result<String, OptionError>,
    ) -> Result<bool, OptionError> {
        let field = match option {
            "-c" => &mut self.file,
            "-p" => &mut self.prefix,
            "-g" => &mut self.globals,
            _ => return Ok(false),
        };
        *field = Some(value()?);
        Ok(true)
    }

    /// Source that the configuration is read from.
    pub(crate) fn source(&self) -> ConfSource {
        let mut source = check::source(self.file.as_deref(), self.prefix.as_deref());
        source.globals.clone_from(&self.globals);
        source
    }
}

/// Reads the words of a command, or tells how it is used, or which version it is: then with what
/// the process ends.
pub(crate) fn read<W: PartialEq<str>, O, E: std::fmt::Display>(
    words: Vec<W>,
    usage: &str,
    parse: impl FnOnce(std::vec::IntoIter<W>) -> Result<O, E>,
) -> Result<O, ExitCode> {
    if words.iter().any(|word| word == "-h" || word == "--help") {
        return Err(printed::answer(usage));
    }
    if words.iter().any(|word| word == "--version") {
        return Err(printed::answer(crate::version::line()));
    }
    parse(words.into_iter()).map_err(|error| {
        eprint!("millpond: {error}\n{usage}");
        ExitCode::from(2)
    })
}
