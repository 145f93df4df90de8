//! The parse context: what the arguments of a directive are read against.
//!
//! One context goes through the reading of a whole configuration. It collects what is wrong and
//! which variables are used, and keeps the defaults that have been parsed, so that each is parsed
//! once, however many blocks need it.

use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::path::PathBuf;

use crate::diagnostic::Diagnostics;
use crate::files::Files;
use crate::parse;
use crate::shared::SharedZones;
use crate::source::Span;
use crate::tree::Word;
use crate::value::{ArgError, Args, FromArgs};
use crate::variable::VariableUses;

/// Context that arguments are read against, and that collects findings meanwhile.
#[derive(Default)]
pub struct ParseContext {
    /// Directory that relative paths of most directives start at.
    pub prefix: PathBuf,
    /// The directory of the main configuration file, where some paths start.
    pub conf_dir: PathBuf,
    /// Source of the files that directives name.
    pub files: Files,
    /// The variables that templates use.
    pub variables: VariableUses,
    /// Zones in shared memory that lines name.
    pub shared: SharedZones,
    /// Findings so far.
    pub diagnostics: Diagnostics,
    defaults: HashMap<(&'static str, TypeId), Box<dyn Any + Send + Sync>>,
}

impl ParseContext {
    /// A context with nothing collected yet.
    pub fn new(prefix: impl Into<PathBuf>, conf_dir: impl Into<PathBuf>) -> ParseContext {
        ParseContext {
            prefix: prefix.into(),
            conf_dir: conf_dir.into(),
            ..ParseContext::default()
        }
    }

    /// The value that the default text of a directive stands for, parsed at most once.
    ///
    /// # Panics
    ///
    /// If the text does not parse: that is a mistake of the program, which `check_table` finds.
    pub fn default_of<T>(&mut self, directive: &'static str, text: &'static str) -> T
    where
        T: FromArgs + Clone + Send + Sync + 'static,
    {
        let key = (text, TypeId::of::<T>());
        let known = self.defaults.get(&key);
        if let Some(value) = known.and_then(|value| value.downcast_ref::<T>()) {
            return value.clone();
        }
        let parsed = self.parse_default(directive, text, T::from_args);
        let value = match parsed {
            Ok(value) => value,
            Err(error) => panic!("the default of {directive} must parse: {text}: {error}"),
        };
        self.defaults.insert(key, Box::new(value.clone()));
        value
    }

    /// Reads a default text as the arguments of the directive.
    pub(crate) fn parse_default<T>(
        &mut self,
        directive: &str,
        text: &str,
        from_args: impl FnOnce(&mut Args<'_>) -> Result<T, ArgError>,
    ) -> Result<T, ArgError> {
        let name = Word {
            text: directive.to_owned(),
            span: Span::NONE,
            quoted: false,
        };
        let words = parse::words(text);
        from_args(&mut Args {
            name: &name,
            words: &words,
            body: None,
            cx: self,
        })
    }
}
